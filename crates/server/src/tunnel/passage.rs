//! Between hyper and the front: which requests are refused, which answers are spoilt, and what the log says of each.

use std::collections::HashMap;
use std::future::Future;
use std::io;
use std::ops::Range;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use flatout_wire::range::ContentRange;
use flatout_wire::time::format_http;
use hyper::body::Incoming;
use hyper::header::{CONTENT_LENGTH, CONTENT_RANGE, DATE, HeaderMap, HeaderValue, RANGE};
use hyper::http::request::Parts;
use hyper::{Method, Request};
use s3s::{Body, HttpResponse, StdError};

use super::admission::{Admission, Refused};
use super::blown::{Blown, Fate};
use super::choice::{Chosen, Subject, choose};
use super::cue::{Act, Cue};
use super::log::{Entry, Log};
use super::replaced::Replacing;
use super::{FaultKind, Tunnel};
use crate::front::Front;
use crate::oss::{self, Named, drain};
use crate::rate::Rate;

/// A tunnel at work: what all connections share.
pub(crate) struct Wind {
    tunnel: Tunnel,
    log: Arc<Log>,
    attempts: Mutex<HashMap<Subject, u64>>,
    admission: Admission,
    pub replacing: Option<Arc<Replacing>>,
}

impl Wind {
    /// None where nothing is asked of it.
    pub(crate) fn new(tunnel: Tunnel) -> io::Result<Option<Wind>> {
        if tunnel.is_still() && tunnel.log.is_none() {
            return Ok(None);
        }
        let log = Arc::new(Log::open(tunnel.log.as_deref())?);
        Ok(Some(Wind {
            log,
            attempts: Mutex::default(),
            admission: Admission::new(&tunnel, Instant::now()),
            replacing: tunnel.replace_after.map(|after| Arc::new(Replacing::new(after))),
            tunnel,
        }))
    }

    /// An error when the log is not whole.
    pub(crate) fn check_log(&self) -> io::Result<()> {
        self.log.check()
    }

    /// Counts one more attempt, and says which one it is.
    fn attempt(&self, subject: Subject) -> u64 {
        let mut attempts = self.attempts.lock().unwrap_or_else(PoisonError::into_inner);
        let attempt = attempts.entry(subject).or_default();
        *attempt += 1;
        *attempt
    }
}

/// The service of one connection.
pub(crate) struct Passage {
    pub front: Front,
    pub wind: Arc<Wind>,
    pub cue: Arc<Cue>,
    /// The number of the address that the connection was made to.
    pub listener: usize,
}

impl hyper::service::Service<Request<Incoming>> for Passage {
    type Response = HttpResponse;
    type Error = StdError;
    type Future = Pin<Box<dyn Future<Output = Result<HttpResponse, StdError>> + Send>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let (head, body) = request.into_parts();
        let asked = Asked::of(&head);
        let mut entry = Entry::new(self.wind.log.clone(), head.method.to_string(), self.listener);
        entry.line.bucket.clone_from(&asked.bucket);
        entry.line.key.clone_from(&asked.key);
        entry.line.range = asked_range(&head);
        let (front, wind, cue) = (self.front.clone(), self.wind.clone(), self.cue.clone());
        if let Err(refused) = wind.admission.check(&head, !asked.key.is_empty(), Instant::now()) {
            entry.line.fault = Some(refused.name());
            let answer = Answer { front, wind, cue, head, asked, entry };
            return Box::pin(async move { Ok(answer.refuse(refused, Body::from(body)).await) });
        }
        if let (Some(replacing), Operation::Get) = (&wind.replacing, asked.operation) {
            replacing.on_get(&asked.bucket, &asked.key);
        }
        let answered = self.front.call(Request::from_parts(head.clone(), body));
        let answer = Answer { front, wind, cue, head, asked, entry };
        Box::pin(async move { Ok(answer.blow(answered.await?)) })
    }
}

/// What chance looks at in a request.
struct Asked {
    operation: Operation,
    bucket: String,
    key: String,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Operation {
    Get,
    Head,
    List,
    Other,
}

impl Asked {
    fn of(head: &Parts) -> Asked {
        let Named { bucket, key, plain } = Named::of(head);
        let operation = match (&head.method, key.is_empty()) {
            (&Method::GET, false) if plain => Operation::Get,
            (&Method::HEAD, false) => Operation::Head,
            (&Method::GET, true) if plain && !bucket.is_empty() => Operation::List,
            _ => Operation::Other,
        };
        Asked { operation, bucket, key }
    }

    /// `last` is the last byte of the range that is asked for, of an object.
    fn subject(&self, head: &Parts, last: Option<u64>) -> Subject {
        match self.operation {
            // Pages have the same names for everybody who asks for them.
            Operation::List => Subject::new("list", &self.bucket, &page(head), None),
            Operation::Head => Subject::new("head", &self.bucket, &self.key, None),
            _ => Subject::new("get", &self.bucket, &self.key, last),
        }
    }
}

/// Which page of which listing a query asks for.
fn page(head: &Parts) -> String {
    let pairs = head.uri.query().unwrap_or_default().split('&');
    let names = ["prefix=", "marker=", "start-after=", "continuation-token=", "delimiter="];
    let mut pairs: Vec<&str> = pairs.filter(|pair| names.iter().any(|name| pair.starts_with(name))).collect();
    pairs.sort_unstable();
    pairs.join("&")
}

/// The range that a request states by both of its ends.
fn asked_range(head: &Parts) -> Option<[u64; 2]> {
    match s3s::dto::Range::parse(head.headers.get(RANGE)?.to_str().ok()?).ok()? {
        s3s::dto::Range::Int { first, last } => Some([first, last?]),
        s3s::dto::Range::Suffix { .. } => None,
    }
}

/// An answer on its way through.
struct Answer {
    front: Front,
    wind: Arc<Wind>,
    cue: Arc<Cue>,
    head: Parts,
    asked: Asked,
    entry: Entry,
}

impl Answer {
    fn blow(mut self, response: HttpResponse) -> HttpResponse {
        let chosen = self.choose(&response);
        let (response, fate) = match chosen {
            Some(chosen) => self.meet(chosen, response),
            None => (response, Fate::Pass),
        };
        self.send(response, fate)
    }

    /// Takes the body of the request in first: who is still sending it would not hear why it is refused.
    async fn refuse(self, refused: Refused, mut body: Body) -> HttpResponse {
        drain(&mut body).await;
        let response = self.wind.admission.refuse(refused, &self.front, &self.head);
        self.send(response, Fate::Pass)
    }

    fn send(mut self, mut response: HttpResponse, fate: Fate) -> HttpResponse {
        self.entry.line.status = Some(response.status().as_u16());
        let clock = self.wind.tunnel.clock;
        if clock != 0 {
            let date = HeaderValue::try_from(format_http(oss::unix_s(clock)));
            response.headers_mut().insert(DATE, date.expect("a date is a header value"));
        }
        if matches!(fate, Fate::Pass) && !self.wind.log.is_kept() {
            return response;
        }
        let Answer { cue, entry, .. } = self;
        response.map(|body| Body::http_body_unsync(Blown::new(body, fate, cue, entry)))
    }

    /// What chance has for an answer that is none of the dialect's own refusals.
    fn choose(&mut self, response: &HttpResponse) -> Option<Chosen> {
        let Answer { asked, wind, head, entry, .. } = self;
        if asked.operation == Operation::Other || !response.status().is_success() {
            return None;
        }
        let (sent, size) = sent(response.headers())?;
        let gets = asked.operation == Operation::Get;
        let partial = gets && response.headers().contains_key(CONTENT_RANGE);
        if partial {
            entry.line.range = Some([sent.start, sent.end - 1]);
        }
        let subject = asked.subject(head, sent.end.checked_sub(1));
        entry.line.attempt = wind.attempt(subject);
        choose(wind.tunnel.seed, &wind.tunnel.faults, subject, entry.line.attempt, |kind| match kind {
            FaultKind::Error(_) => true,
            FaultKind::WrongRange => partial && neighbour(&sent, size).is_some(),
            _ => gets && !sent.is_empty(),
        })
    }

    fn meet(&mut self, chosen: Chosen, response: HttpResponse) -> (HttpResponse, Fate) {
        let (sent, size) = sent(response.headers()).expect("chance was asked for it");
        let at = chosen.at(sent.end - sent.start);
        self.entry.line.fault = Some(chosen.kind.name());
        let fate = match chosen.kind {
            FaultKind::Stall(time) => Fate::Stall { at, time },
            FaultKind::Reset => Fate::End { at, act: Act::Reset },
            FaultKind::Truncate => Fate::End { at, act: Act::Close },
            FaultKind::Slow(rate) => Fate::Slow { rate: Rate::new(rate, Instant::now()), booked: None },
            // Eight bits a byte: the place in the byte is another digit of the same number.
            FaultKind::Flip => Fate::Flip { at, bit: ((chosen.fraction * 8192.0) as u64 % 8) as u8 },
            FaultKind::Error(code) => {
                let why = "this is the wind tunnel: flatout serve --error";
                return (self.front.refuse(&self.head, code.status, code.code, why), Fate::Pass);
            }
            FaultKind::WrongRange => return (self.wrong_range(&sent, size, response), Fate::Pass),
        };
        (response, fate)
    }

    /// The bytes beside those that were asked for, truly labelled.
    fn wrong_range(&self, sent: &Range<u64>, size: u64, response: HttpResponse) -> HttpResponse {
        let Some(other) = neighbour(sent, size) else { return response };
        let Some(body) = self.front.body(&self.asked.bucket, &self.asked.key, other.clone()) else {
            return response;
        };
        let mut response = response.map(|_| body);
        let text = format!("bytes {}-{}/{size}", other.start, other.end - 1);
        let value = HeaderValue::try_from(text).expect("digits are a header value");
        response.headers_mut().insert(CONTENT_RANGE, value);
        response.headers_mut().insert(CONTENT_LENGTH, (other.end - other.start).into());
        response
    }
}

/// Which bytes an answer sends, of how many; None where it does not say.
fn sent(headers: &HeaderMap) -> Option<(Range<u64>, u64)> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    if let Some(text) = text(CONTENT_RANGE) {
        let ContentRange { range, total } = ContentRange::parse(text)?;
        return Some((range?, total?));
    }
    let bytes = text(CONTENT_LENGTH).map_or(Some(0), |text| text.parse().ok())?;
    Some((0..bytes, bytes))
}

/// The range of the same length before this one, or behind it, or shifted by as much as there is room for; that of the
/// whole but for its first byte where there is no room; none where there is no other byte.
fn neighbour(sent: &Range<u64>, size: u64) -> Option<Range<u64>> {
    let (length, room) = (sent.end - sent.start, size - sent.end);
    let shifted = match () {
        () if sent.start > 0 => sent.start.saturating_sub(length)..sent.end - length.min(sent.start),
        () if room > 0 => sent.start + length.min(room)..sent.end + length.min(room),
        () => sent.start + 1..sent.end,
    };
    (!shifted.is_empty()).then_some(shifted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_neighbour_is_another_range_of_the_same_length_where_there_is_room() {
        for (sent, size, expected) in [
            (10..20, 100, Some(0..10)),
            (4..20, 100, Some(0..16)),
            (0..10, 100, Some(10..20)),
            (0..90, 100, Some(10..100)),
            (90..100, 100, Some(80..90)),
            (0..100, 100, Some(1..100)),
            (0..1, 1, None),
            (0..0, 0, None),
        ] {
            assert_eq!(neighbour(&sent, size), expected, "{sent:?} of {size}");
        }
    }
}
