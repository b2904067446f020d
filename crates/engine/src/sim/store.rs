//! The modelled origin, as objects are written to it: uploads and their parts, and what becomes of them.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use flatout_wire::body_checksum::{BodyChecksum, ChecksumForm};
use flatout_wire::checksum::Algorithm;
use flatout_wire::documents::etag_of_parts;

use super::line::SentHead;
use super::origin::{Answer, Cut};
use super::scenario::{Fault, Step, Trailers};
use super::world::World;
use crate::api::account::Dialect;
use crate::base::error::ErrorKind;

/// All that was ever written.
#[derive(Default)]
pub(super) struct Store {
    pub(super) objects: HashMap<usize, Stored>,
    pub(super) uploads: Vec<Upload>,
    /// What is on its way still, though nobody waits for it any more, and when it arrives.
    late: Vec<(Duration, Asked, Vec<u8>)>,
}

/// What stands at the origin before a put, where something does.
pub(super) const PLACED: &[u8] = b"placed";

impl Store {
    /// Something is there.
    pub(super) fn place(&mut self, object: usize) {
        self.objects.insert(object, Stored { content: PLACED.to_vec(), etag: etag_of(PLACED) });
    }
}

/// An object, or a part of one.
#[derive(Clone, Default)]
pub(super) struct Stored {
    pub(super) content: Vec<u8>,
    etag: String,
}

#[derive(Default)]
pub(super) struct Upload {
    parts: BTreeMap<u32, Stored>,
    /// Completed or aborted.
    pub(super) is_over: bool,
    /// The number of the request that began it, in the log.
    pub(super) begun_by: usize,
}

/// A request that writes, as its head says.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    /// Its number in the log.
    pub(super) number: usize,
    pub(super) step: Step,
    object: usize,
    upload: usize,
    pub(super) bytes: usize,
    if_absent: bool,
    /// The checksum that its head states, by the name of the header.
    stated: Option<(ChecksumForm, String)>,
    /// It says that a checksum follows a body that is framed.
    is_framed: bool,
    pub(super) fault: Option<Fault>,
    /// What becomes of the connection once so many bytes of the body have been taken.
    pub(super) cut: Option<(usize, TakeCut)>,
}

/// What happens within a body that is being taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TakeCut {
    Line(Cut),
    /// It is answered early, and no more of it is taken.
    Answer,
}

/// A request that is made to write an object, noted in the log.
pub(super) fn ask(world: &World, line: u32, head: &SentHead) -> Asked {
    let query = |name: &str| {
        let mut pairs = head.query.split('&').filter_map(|pair| pair.split_once('='));
        pairs.find(|(known, _)| *known == name).map(|(_, value)| value)
    };
    let upload = query("uploadId").map(|id| id.rsplit('-').next().and_then(|id| id.parse().ok()));
    let part = query("partNumber").and_then(|number| number.parse().ok());
    let step = match (head.method.as_str(), upload.is_some(), part) {
        ("PUT", true, Some(part)) => Step::Part(part),
        ("PUT", false, None) => Step::Put,
        ("POST", false, None) => Step::Create,
        ("POST", true, None) => Step::Complete,
        ("DELETE", true, None) => Step::Abort,
        ("HEAD", false, None) => Step::Head,
        other => panic!("no upload asks for this: {other:?}"),
    };
    let crcs = [Algorithm::Crc64Nvme, Algorithm::Crc32c].map(ChecksumForm::Crc);
    let stated = crcs.into_iter().chain([ChecksumForm::Md5]).find_map(|form| {
        let (name, _) = sum(form, &[]).header()?;
        Some((form, head.header(name)?.to_owned()))
    });
    let attempt = world.count_attempt(head.object, step);
    let mut asked = Asked {
        number: 0,
        step,
        object: head.object,
        upload: upload.flatten().unwrap_or(usize::MAX),
        bytes: head.length,
        if_absent: head.header("if-none-match").is_some() || head.header("x-oss-forbid-overwrite").is_some(),
        stated,
        is_framed: head.header("x-amz-trailer").is_some(),
        fault: choose(world, step, attempt),
        cut: None,
    };
    asked.cut = asked.draw_cut(world);
    asked.number = world.on_write(step, asked.bytes as u64, (asked.fault, asked.is_framed));
    world.tell(|| {
        let fault = asked.fault.map_or(String::new(), |fault| format!(", {fault:?}"));
        format!("#{line} {step:?} {} bytes attempt {attempt}{fault}", head.length)
    });
    explain(world, asked.fault);
    asked
}

fn choose(world: &World, step: Step, attempt: u32) -> Option<Fault> {
    let origin = &world.scenario.origin;
    let mut draw = world.draw.borrow_mut();
    let chosen = origin.faults.iter().find(|(chance, _)| draw.happens(*chance)).map(|&(_, fault)| fault)?;
    let is_meant =
        origin.faulty_steps.is_empty() || origin.faulty_steps.iter().any(|meant| meant.is_like(step));
    let suits = match chosen {
        Fault::WrongRange(_) => false,
        // OSS compares nothing: what it states of a part is looked at, that of an object comes too late.
        Fault::Flip => match step {
            Step::Put => origin.dialect == Dialect::S3,
            Step::Part(_) => origin.dialect == Dialect::S3 || origin.states_checksum,
            _ => false,
        },
        _ => true,
    };
    (is_meant && suits && attempt <= origin.faulty_attempts).then_some(chosen)
}

impl Step {
    fn is_like(self, other: Step) -> bool {
        std::mem::discriminant(&self) == std::mem::discriminant(&other)
    }

    /// Whether a body follows that is an object or a part of one.
    pub(super) fn has_content(self) -> bool {
        matches!(self, Step::Put | Step::Part(_))
    }
}

fn explain(world: &World, fault: Option<Fault>) {
    let kind = match fault {
        Some(Fault::Reset | Fault::Truncate | Fault::Fails | Fault::Lost) => ErrorKind::Network,
        Some(Fault::Stall(_) | Fault::Silence) => ErrorKind::Timeout,
        Some(Fault::Throttles(_)) => ErrorKind::Throttled,
        Some(Fault::Flip) => ErrorKind::Corrupt,
        Some(Fault::WrongRange(_)) | None => return,
    };
    world.explain(Some(0), kind);
}

impl Asked {
    /// What a fault does to the body on its way in.
    fn draw_cut(&self, world: &World) -> Option<(usize, TakeCut)> {
        let mut draw = world.draw.borrow_mut();
        if self.bytes == 0 || !self.step.has_content() {
            return None;
        }
        let at = draw.between(0, self.bytes as u64 - 1) as usize;
        match self.fault? {
            Fault::Reset => Some((at, TakeCut::Line(Cut::Reset))),
            Fault::Truncate => Some((at, TakeCut::Line(Cut::End))),
            Fault::Stall(wait) => Some((at, TakeCut::Line(Cut::Pause(wait)))),
            Fault::Fails | Fault::Throttles(_) if draw.happens(0.5) => Some((at, TakeCut::Answer)),
            _ => None,
        }
    }

    /// What happens to its answer.
    fn cut(&self) -> Option<(usize, Cut)> {
        let cut = match self.fault? {
            Fault::Silence => Cut::Silence,
            Fault::Lost => Cut::Reset,
            Fault::Stall(wait) if !self.step.has_content() => Cut::Pause(wait),
            Fault::Reset if !self.step.has_content() => Cut::Reset,
            Fault::Truncate if !self.step.has_content() => Cut::End,
            _ => return None,
        };
        Some((0, cut))
    }

    /// Whether the origin does what it is asked for.
    fn is_done(&self) -> bool {
        !matches!(
            self.fault,
            Some(Fault::Silence | Fault::Fails | Fault::Throttles(_) | Fault::Reset | Fault::Truncate)
        )
    }
}

/// An answer while it is put together.
#[derive(Default)]
struct Made {
    status: u16,
    headers: Vec<(&'static str, String)>,
    body: String,
}

impl Made {
    fn refusal(status: u16, code: &str) -> Made {
        let body = format!("<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>m</Message></Error>");
        Made { status, body, ..Made::default() }
    }
}

/// The answer to a request whose body the origin has, or to one that it refuses before.
pub(super) fn answer(world: &World, line: u32, asked: &Asked, mut body: Vec<u8>) -> Answer {
    arrive(world);
    if asked.fault == Some(Fault::Flip) && !body.is_empty() {
        let at = world.draw.borrow_mut().between(0, body.len() as u64 - 1) as usize;
        body[at] ^= 1;
    }
    let is_early = asked.cut.is_some_and(|(_, cut)| cut == TakeCut::Answer);
    let made = match asked.fault {
        Some(Fault::Fails) if asked.step == Step::Complete && world.draw.borrow_mut().happens(0.5) => {
            // What S3 says when it fails after it has said 200.
            Made { status: 200, ..Made::refusal(500, "InternalError") }
        }
        Some(Fault::Fails) => Made::refusal(500, "InternalError"),
        Some(Fault::Throttles(_)) => Made::refusal(503, "SlowDown"),
        _ => Made::default(),
    };
    let made = match made.status {
        0 if asked.is_done() => done(world, asked, body),
        0 => Made::refusal(500, "InternalError"),
        _ => made,
    };
    world.on_written(asked.number, made.status);
    world.tell(|| format!("#{line} {:?}: {}", asked.step, made.status));
    let origin = &world.scenario.origin;
    let closes = origin.closes_each || is_early;
    let mut answer = Answer { closes, cut: asked.cut(), ..Answer::default() };
    let mut put = |line: String| answer.bytes.extend_from_slice(line.as_bytes());
    put(format!("HTTP/1.1 {} x\r\n", made.status));
    for (name, value) in &made.headers {
        put(format!("{name}: {value}\r\n"));
    }
    if asked.step != Step::Head || made.status >= 400 {
        put(format!("Content-Length: {}\r\n", if asked.step == Step::Head { 0 } else { made.body.len() }));
    }
    put(if closes { "Connection: close\r\n\r\n".into() } else { "\r\n".into() });
    if asked.step != Step::Head {
        answer.bytes.extend_from_slice(made.body.as_bytes());
    }
    answer
}

fn sum(form: ChecksumForm, bytes: &[u8]) -> BodyChecksum {
    let mut hasher = form.hasher();
    hasher.update(bytes);
    hasher.finish()
}

/// The content of a body that is framed, and the checksum behind it; `None` where the framing is broken.
fn unframed(mut body: &[u8]) -> Option<(Vec<u8>, (ChecksumForm, String))> {
    fn line(body: &mut &[u8]) -> Option<String> {
        let at = body.windows(2).position(|two| two == b"\r\n")?;
        let line = String::from_utf8(body[..at].to_vec()).ok()?;
        *body = &body[at + 2..];
        Some(line)
    }
    let mut content = Vec::new();
    loop {
        let bytes = usize::from_str_radix(&line(&mut body)?, 16).ok()?;
        if bytes == 0 {
            break;
        }
        content.extend_from_slice(body.get(..bytes)?);
        body = body.get(bytes..)?;
        line(&mut body).filter(String::is_empty)?;
    }
    let trailer = line(&mut body)?;
    let (name, value) = trailer.split_once(':')?;
    let algorithm = Algorithm::ALL.into_iter().find(|algorithm| algorithm.header() == Some(name))?;
    let last = line(&mut body)?;
    (last.is_empty() && body.is_empty()).then_some(())?;
    Some((content, (ChecksumForm::Crc(algorithm), value.to_owned())))
}

/// Does what was asked for.
fn done(world: &World, asked: &Asked, body: Vec<u8>) -> Made {
    match world.scenario.origin.trailers {
        Trailers::Refused(status, code) if asked.is_framed => Made::refusal(status, code),
        Trailers::Taken if asked.is_framed => match unframed(&body) {
            Some((body, stated)) => done_with(world, &Asked { stated: Some(stated), ..asked.clone() }, body),
            None => Made::refusal(400, "IncompleteBody"),
        },
        _ => done_with(world, asked, body),
    }
}

/// Does what was asked for with what was sent.
fn done_with(world: &World, asked: &Asked, body: Vec<u8>) -> Made {
    let mut store = world.store.borrow_mut();
    let Store { objects, uploads, .. } = &mut *store;
    let dialect = world.scenario.origin.dialect;
    if asked.step.has_content()
        && let Some((form, stated)) = &asked.stated
        && sum(*form, &body).header().is_none_or(|(_, own)| own != *stated)
    {
        return Made::refusal(400, "BadDigest");
    }
    let upload = uploads.get_mut(asked.upload).filter(|upload| !upload.is_over);
    let is_refused = asked.if_absent && objects.contains_key(&asked.object);
    match asked.step {
        Step::Put | Step::Complete if is_refused => exists(dialect),
        Step::Put => {
            let stored = Stored { etag: etag_of(&body), content: body };
            let made = told_of(world, &stored, 200);
            objects.insert(asked.object, stored);
            made
        }
        Step::Create => {
            let upload = Upload { begun_by: asked.number, ..Upload::default() };
            uploads.push(upload);
            let id = uploads.len() - 1;
            let body = format!(
                "<InitiateMultipartUploadResult><UploadId>upload-{id}</UploadId>\
                 </InitiateMultipartUploadResult>"
            );
            Made { status: 200, body, ..Made::default() }
        }
        Step::Head => match objects.get(&asked.object) {
            Some(stored) => {
                let mut made = told_of(world, stored, 200);
                made.headers.push(("Content-Length", stored.content.len().to_string()));
                made
            }
            None => Made { status: 404, ..Made::default() },
        },
        Step::Part(_) | Step::Complete | Step::Abort => {
            let Some(upload) = upload else { return Made::refusal(404, "NoSuchUpload") };
            match asked.step {
                Step::Part(number) => {
                    let stored = Stored { etag: etag_of(&body), content: body };
                    let made = told_of(world, &stored, 200);
                    upload.parts.insert(number, stored);
                    made
                }
                Step::Abort => {
                    upload.is_over = true;
                    Made { status: 204, ..Made::default() }
                }
                _ => {
                    let made = complete(world, upload, asked, &String::from_utf8_lossy(&body));
                    made.map_or_else(
                        |refusal| refusal,
                        |(stored, made)| {
                            objects.insert(asked.object, stored);
                            made
                        },
                    )
                }
            }
        }
    }
}

fn exists(dialect: Dialect) -> Made {
    match dialect {
        Dialect::Oss => Made::refusal(409, "FileAlreadyExists"),
        _ => Made::refusal(412, "PreconditionFailed"),
    }
}

/// The object of the parts that the document names, as its answer tells of it.
fn complete(
    world: &World,
    upload: &mut Upload,
    asked: &Asked,
    document: &str,
) -> Result<(Stored, Made), Made> {
    let between = |text: &str, element: &str| {
        let (_, rest) = text.split_once(&format!("<{element}>"))?;
        Some(rest.split_once("</")?.0.replace("&quot;", "\"").replace("&#34;", "\""))
    };
    let (mut content, mut etags, mut last) = (Vec::new(), Vec::new(), 0);
    for part in document.split("<Part>").skip(1) {
        let number = between(part, "PartNumber").and_then(|number| number.parse().ok()).unwrap_or(0);
        let stored = upload.parts.get(&number).filter(|_| number > last);
        let stored = stored.filter(|stored| between(part, "ETag").is_some_and(|etag| etag == stored.etag));
        let stored = stored.ok_or_else(|| Made::refusal(400, "InvalidPart"))?;
        content.extend_from_slice(&stored.content);
        etags.push(&*stored.etag);
        last = number;
    }
    let stored = Stored { etag: etag_of_parts(etags.into_iter()).unwrap_or_default(), content };
    if let Some((form, stated)) = &asked.stated
        && sum(*form, &stored.content).header().is_none_or(|(_, own)| own != *stated)
    {
        return Err(Made::refusal(400, "BadDigest"));
    }
    upload.is_over = true;
    let mut made = told_of(world, &stored, 200);
    let mut document = format!("<ETag>{}</ETag>", stored.etag.replace('"', "&quot;"));
    for (name, value) in made.headers.extract_if(.., |(name, _)| name.starts_with("x-amz-checksum")) {
        match name {
            "x-amz-checksum-crc64nvme" => {
                document += &format!("<ChecksumCRC64NVME>{value}</ChecksumCRC64NVME>");
            }
            _ => document += &format!("<ChecksumType>{value}</ChecksumType>"),
        }
    }
    made.body = format!("<CompleteMultipartUploadResult>{document}</CompleteMultipartUploadResult>");
    Ok((stored, made))
}

/// An ETag that could be an MD5.
fn etag_of(content: &[u8]) -> String {
    let sum = Algorithm::Crc64Xz.of(content);
    format!("\"{sum:016x}{:016x}\"", sum ^ content.len() as u64)
}

/// Headers about something that is stored.
fn told_of(world: &World, stored: &Stored, status: u16) -> Made {
    let origin = &world.scenario.origin;
    let mut made = Made { status, ..Made::default() };
    made.headers.push(("ETag", stored.etag.clone()));
    if origin.states_checksum {
        let algorithm = match origin.dialect {
            Dialect::Oss => Algorithm::Crc64Xz,
            _ => Algorithm::Crc64Nvme,
        };
        let name = algorithm.header().expect("an algorithm of an origin has a header");
        made.headers.push((name, algorithm.encode(algorithm.of(&stored.content))));
        if origin.dialect == Dialect::S3 {
            made.headers.push(("x-amz-checksum-type", "FULL_OBJECT".into()));
        }
    }
    made
}

/// The connection of a request is gone, all of which had been written: what the kernel has of it may arrive
/// all the same.
pub(super) fn let_go(world: &World, asked: Asked, body: Vec<u8>) {
    // A part that is kept with its framing, and arrives after the one that was sent in its place, fails the
    // upload when it is completed (docs/decisions/trailers.md). Here no origin is as bad as that.
    let is_kept = asked.is_framed && world.scenario.origin.trailers == Trailers::Kept;
    if !asked.is_done() || is_kept {
        return;
    }
    let in_ms = {
        let mut draw = world.draw.borrow_mut();
        if !draw.happens(0.5) {
            return;
        }
        draw.between(0, 3_000)
    };
    world.on_unheard(asked.number);
    world.store.borrow_mut().late.push((world.now() + Duration::from_millis(in_ms), asked, body));
}

/// What was on its way to the origin, and has arrived by now.
fn arrive(world: &World) {
    let now = world.now();
    arrive_by(world, now);
}

/// All that is on its way arrives.
pub(super) fn settle(world: &World) {
    arrive_by(world, Duration::MAX);
}

fn arrive_by(world: &World, until: Duration) {
    let mut due: Vec<_> = world.store.borrow_mut().late.extract_if(.., |(at, ..)| *at <= until).collect();
    due.sort_by_key(|(at, ..)| *at);
    for (at, asked, body) in due {
        let made = done(world, &asked, body);
        world.tell(|| format!("{:?} arrives late, at {at:?}: {}", asked.step, made.status));
    }
}
