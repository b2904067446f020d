//! The modelled origin: a request's head in, an answer's bytes out, as the scenario has it.

use std::ops::Range;
use std::time::Duration;

use flatout_wire::checksum::Algorithm;

use super::scenario::{Etag, Fault, Framing, ThrottleHint, Wrong};
use super::world::{Exchange, HEAD, LAST_BYTE, WHOLE, World};
use crate::api::account::Dialect;
use crate::base::error::ErrorKind;

/// An answer on its way.
#[derive(Debug, Default)]
pub(super) struct Answer {
    pub(super) bytes: Vec<u8>,
    /// Which of `bytes` are payload, in order.
    pub(super) payload: Vec<Range<usize>>,
    /// Something happens before this byte leaves.
    pub(super) cut: Option<(usize, Cut)>,
    /// The connection ends with it.
    pub(super) closes: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cut {
    Reset,
    End,
    Pause(Duration),
    Silence,
}

/// What a request's head says.
struct Request {
    is_get: bool,
    object: usize,
    range: Option<String>,
    if_match: Option<String>,
    wants_checksum: bool,
}

/// The answer to the request whose head is `text`.
pub(super) fn answer(world: &World, line: u32, text: &str) -> Answer {
    let request = Request::parse(text);
    let (object, version) = (request.object, version(world, &request));
    let content = world.content(object, version);
    let size = content.len() as u64;
    let range = request.resolve(size);
    let key = match (&request.range, &range) {
        (None, _) | (_, None) => WHOLE,
        // Whatever is asked for, all of it comes.
        _ if !world.scenario.origin.has_ranges => WHOLE,
        (Some(range), _)
            if range.starts_with("bytes=-") && !world.scenario.wants_the_last_byte_alone(size) =>
        {
            LAST_BYTE
        }
        (_, Some(range)) => range.end,
    };
    let attempt = {
        let mut attempts = world.attempts.borrow_mut();
        let key = if request.is_get { key } else { HEAD };
        let attempt = attempts.entry((world.transfer.get(), object, key)).or_default();
        *attempt += 1;
        *attempt
    };
    let fault = choose(world, &request, attempt);
    let mut made = MadeResponse::of(world, &request, version, range, fault);
    world.tell(|| {
        let method = if request.is_get { "GET" } else { "HEAD" };
        let range = request.range.as_deref().unwrap_or("whole");
        let fault = fault.map_or(String::new(), |fault| format!(", {fault:?}"));
        format!("#{line} {method} object-{object} {range} attempt {attempt}: {}{fault}", made.status)
    });
    world.on_request(Exchange {
        transfer: world.transfer.get(),
        line,
        is_get: request.is_get,
        object,
        key,
        status: made.status,
        fault,
        body: made.body.clone(),
        received: 0,
        asked_at: world.now(),
        moved_at: world.now(),
        ended_at: None,
    });
    explain(world, object, fault);
    if fault == Some(Fault::Flip) && made.has_body() {
        world.log.borrow_mut().flipped.push(object);
    }
    made.finish(world, &request, fault)
}

/// Which version stands there by now; a GET counts.
fn version(world: &World, request: &Request) -> u32 {
    let mut gets = world.gets.borrow_mut();
    let asked = gets.entry(request.object).or_default();
    *asked += u32::from(request.is_get);
    let is_replaced = world.scenario.origin.replaced.is_some_and(|replaced| *asked > replaced.after_gets);
    u32::from(is_replaced)
}

fn choose(world: &World, request: &Request, attempt: u32) -> Option<Fault> {
    let origin = &world.scenario.origin;
    if !origin.faulty_steps.is_empty() {
        // Those are steps of a put.
        return None;
    }
    let mut draw = world.draw.borrow_mut();
    let chosen = origin.faults.iter().find(|(chance, _)| draw.happens(*chance)).map(|&(_, fault)| fault)?;
    let suits = match chosen {
        Fault::Fails | Fault::Throttles(_) | Fault::Silence => true,
        Fault::WrongRange(_) => request.is_get && request.range.is_some() && origin.has_ranges,
        Fault::Lost => false,
        _ => request.is_get,
    };
    (suits && attempt <= origin.faulty_attempts).then_some(chosen)
}

/// What errors a fault explains, once it has become too much.
fn explain(world: &World, object: usize, fault: Option<Fault>) {
    let Some(fault) = fault else { return };
    let kinds: &[ErrorKind] = match fault {
        Fault::Reset | Fault::Truncate | Fault::Fails | Fault::Lost | Fault::WrongRange(_) => {
            &[ErrorKind::Network]
        }
        Fault::Stall(_) | Fault::Silence => &[ErrorKind::Timeout],
        Fault::Throttles(_) => &[ErrorKind::Throttled],
        Fault::Flip => &[ErrorKind::Corrupt],
    };
    for &kind in kinds {
        world.explain(Some(object), kind);
    }
}

impl Request {
    fn parse(text: &str) -> Request {
        let mut lines = text.split("\r\n");
        let first = lines.next().unwrap_or_default();
        let path = first.split(' ').nth(1).unwrap_or_default();
        let path = path.split('?').next().unwrap_or_default();
        let object = path.rsplit('-').next().and_then(|number| number.parse().ok());
        let headers: Vec<(String, &str)> = lines
            .filter_map(|line| line.split_once(':'))
            .map(|(name, value)| (name.to_ascii_lowercase(), value.trim()))
            .collect();
        let header = |wanted: &str| {
            headers.iter().find(|(name, _)| name == wanted).map(|(_, value)| (*value).to_owned())
        };
        Request {
            is_get: first.starts_with("GET "),
            object: object.expect("the engine asks for the modelled objects only"),
            range: header("range"),
            if_match: header("if-match"),
            wants_checksum: header("x-amz-checksum-mode").is_some(),
        }
    }

    /// The bytes asked for that there are; `None` where none are.
    fn resolve(&self, size: u64) -> Option<Range<u64>> {
        let Some(range) = &self.range else { return Some(0..size) };
        let range = range.strip_prefix("bytes=").expect("ranges are of bytes");
        let range = match range.split_once('-').expect("a range has two ends") {
            ("", last) => size.saturating_sub(last.parse().expect("a number"))..size,
            (first, "") => first.parse().expect("a number")..size,
            (first, last) => {
                let last: u64 = last.parse().expect("a number");
                first.parse().expect("a number")..size.min(last + 1)
            }
        };
        (range.start < range.end).then_some(range)
    }
}

/// An answer while it is put together.
struct MadeResponse {
    status: u16,
    headers: Vec<(&'static str, String)>,
    content: Vec<u8>,
    /// Where the content lies in the object; empty for what is none of it.
    body: Range<u64>,
}

impl MadeResponse {
    fn of(
        world: &World,
        request: &Request,
        version: u32,
        range: Option<Range<u64>>,
        fault: Option<Fault>,
    ) -> MadeResponse {
        match fault {
            Some(Fault::Fails) => return MadeResponse::refusal(500, "InternalError"),
            Some(Fault::Throttles(ask)) => return MadeResponse::throttle(ask),
            _ => {}
        }
        let origin = &world.scenario.origin;
        let content = world.content(request.object, version);
        let size = content.len() as u64;
        let etag = format!("\"{}-{version}\"", request.object);
        if version > 0 {
            world.explain(Some(request.object), ErrorKind::Changed);
            let keeps = origin.replaced.is_some_and(|replaced| replaced.keeps_if_match);
            if keeps && request.if_match.as_ref().is_some_and(|wanted| *wanted != etag) {
                return MadeResponse::refusal(412, "PreconditionFailed");
            }
        }
        let ranged =
            request.range.is_some() && origin.has_ranges && fault != Some(Fault::WrongRange(Wrong::Whole));
        let (status, range) = match range {
            _ if !ranged => (200, 0..size),
            Some(range) => (206, range),
            None => {
                let mut refusal = MadeResponse::refusal(416, "InvalidRange");
                refusal.headers.push(("Content-Range", format!("bytes */{size}")));
                return refusal;
            }
        };
        let mut made = MadeResponse { status, headers: Vec::new(), content: Vec::new(), body: range.clone() };
        made.content = content[range.start as usize..range.end as usize].to_vec();
        match origin.etag {
            Etag::Strong => made.headers.push(("ETag", etag)),
            Etag::Weak => made.headers.push(("ETag", format!("W/{etag}"))),
            Etag::None => {}
        }
        made.headers.push(("Last-Modified", format!("Wed, 21 Oct 2015 07:28:0{version} GMT")));
        if status == 206 {
            made.name_range(content, range, fault);
        }
        if origin.states_checksum {
            made.state_checksum(origin.dialect, content, request.wants_checksum && !ranged);
        }
        made
    }

    fn name_range(&mut self, whole: &[u8], range: Range<u64>, fault: Option<Fault>) {
        let size = whole.len() as u64;
        let (first, last) = (range.start, range.end - 1);
        let (first, last) = match fault {
            Some(Fault::WrongRange(Wrong::Shifted)) if last + 1 < size => (first + 1, last + 1),
            Some(Fault::WrongRange(Wrong::Shorter | Wrong::Shifted)) if last > first => (first, last - 1),
            Some(Fault::WrongRange(_)) => return,
            _ => (first, last),
        };
        self.content = whole[first as usize..=last as usize].to_vec();
        self.headers.push(("Content-Range", format!("bytes {first}-{last}/{size}")));
    }

    fn state_checksum(&mut self, dialect: Dialect, whole: &[u8], s3_whole: bool) {
        let algorithm = match dialect {
            Dialect::Oss => Algorithm::Crc64Xz,
            Dialect::S3 if s3_whole => Algorithm::Crc64Nvme,
            _ => return,
        };
        let name = algorithm.header().expect("an algorithm of an origin has a header");
        self.headers.push((name, algorithm.encode(algorithm.of(whole))));
        if dialect == Dialect::S3 {
            self.headers.push(("x-amz-checksum-type", "FULL_OBJECT".into()));
        }
    }

    fn refusal(status: u16, code: &str) -> MadeResponse {
        let content =
            format!("<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>m</Message></Error>");
        MadeResponse { status, headers: Vec::new(), content: content.into_bytes(), body: 0..0 }
    }

    fn throttle(ask: Option<ThrottleHint>) -> MadeResponse {
        let mut made = MadeResponse::refusal(503, "SlowDown");
        match ask {
            Some(ThrottleHint::RetryAfter(wait)) => {
                made.headers.push(("Retry-After", wait.as_secs().to_string()))
            }
            Some(ThrottleHint::QosDelay(wait)) => {
                made.headers.push(("x-oss-qos-delay-time", wait.as_millis().to_string()));
            }
            None => {}
        }
        made
    }

    fn has_body(&self) -> bool {
        !self.body.is_empty() && !self.content.is_empty()
    }

    /// The bytes as they leave.
    fn finish(&mut self, world: &World, request: &Request, fault: Option<Fault>) -> Answer {
        let origin = &world.scenario.origin;
        let mut draw = world.draw.borrow_mut();
        if fault == Some(Fault::Flip) && self.has_body() {
            let at = draw.between(0, self.content.len() as u64 - 1) as usize;
            self.content[at] ^= 1 << draw.between(0, 7);
        }
        let framing = if self.status >= 400 || !request.is_get { Framing::Length } else { origin.framing };
        let closes = origin.closes_each || framing == Framing::UntilClose;
        let mut answer = Answer { closes, ..Answer::default() };
        if draw.happens(0.05) {
            answer.bytes.extend_from_slice(b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n");
        }
        answer.bytes.extend_from_slice(format!("HTTP/1.1 {} x\r\n", self.status).as_bytes());
        match framing {
            Framing::Length => self.headers.push(("Content-Length", self.content.len().to_string())),
            Framing::Chunked => self.headers.push(("Transfer-Encoding", "chunked".into())),
            Framing::UntilClose => {}
        }
        if closes {
            self.headers.push(("Connection", "close".into()));
        }
        for (name, value) in &self.headers {
            answer.bytes.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
        }
        answer.bytes.extend_from_slice(b"\r\n");
        if request.is_get {
            let head = answer.bytes.len();
            let chunk = match framing {
                Framing::Chunked => draw.between_orders(1 + self.content.len() as u64 / 50, 1 << 20) as usize,
                _ => usize::MAX,
            };
            self.frame(&mut answer, framing, chunk);
            let body = (answer.bytes.len() - head) as u64;
            let at = head + draw.between(0, body.saturating_sub(1)) as usize;
            answer.cut = cut(fault, at, self.has_body());
        }
        if fault == Some(Fault::Silence) {
            answer.cut = Some((0, Cut::Silence));
        }
        answer
    }

    fn frame(&self, answer: &mut Answer, framing: Framing, chunk: usize) {
        let is_payload = !self.body.is_empty();
        for piece in self.content.chunks(chunk) {
            if framing == Framing::Chunked {
                answer.bytes.extend_from_slice(format!("{:x}\r\n", piece.len()).as_bytes());
            }
            let start = answer.bytes.len();
            answer.bytes.extend_from_slice(piece);
            if is_payload {
                answer.payload.push(start..answer.bytes.len());
            }
            if framing == Framing::Chunked {
                answer.bytes.extend_from_slice(b"\r\n");
            }
        }
        if framing == Framing::Chunked {
            answer.bytes.extend_from_slice(b"0\r\n\r\n");
        }
    }
}

fn cut(fault: Option<Fault>, at: usize, has_body: bool) -> Option<(usize, Cut)> {
    match fault? {
        Fault::Reset => Some((at, Cut::Reset)),
        Fault::Truncate if has_body => Some((at, Cut::End)),
        Fault::Stall(wait) => Some((at, Cut::Pause(wait))),
        _ => None,
    }
}
