//! The objects of an index by the addresses of their data: what lies in a range of the image.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use flatout_engine::{Client, Error, ErrorKind, Object, Pieces, Reader, Reading};
use flatout_erofs::{BLOCK, Index, IndexError, ReadAt};
use flatout_tree::{Cancel, FsError, Slices};
use flatout_wire::location::Location;

use crate::image::ImageContent;

/// Objects whose readers are kept in each of two generations. EROFS says neither that a file is opened nor
/// that it is closed.
const RECENT_MOST: usize = 2048;

/// Bytes of zeros that answer what lies behind an object's end, a block at a time.
static ZEROS: [u8; BLOCK as usize] = [0; BLOCK as usize];

/// The objects of an index, at an origin.
pub struct Objects<R> {
    index: Index<R>,
    /// The name of the index, for errors of it.
    name: String,
    client: Arc<Client>,
    root: Location,
    recent: Mutex<Recent>,
    replaced: AtomicU64,
}

/// An object that is read, and where its data lie.
#[derive(Clone)]
struct Found {
    reader: Reader,
    start: u64,
    size: u64,
}

/// Objects that were read last, by their first block.
#[derive(Default)]
struct Recent {
    young: BTreeMap<u32, Found>,
    old: BTreeMap<u32, Found>,
}

impl Recent {
    /// The object that has `block`, which is young afterwards.
    fn get(&mut self, block: u32) -> Option<Found> {
        if let Some((_, found)) = self.young.range(..=block).next_back().filter(|(_, found)| found.has(block))
        {
            return Some(found.clone());
        }
        let (&start, _) = self.old.range(..=block).next_back().filter(|(_, found)| found.has(block))?;
        let found = self.old.remove(&start)?;
        self.insert(start, found.clone());
        Some(found)
    }

    fn insert(&mut self, start: u32, found: Found) {
        if self.young.len() >= RECENT_MOST {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(start, found);
    }
}

impl Found {
    fn has(&self, block: u32) -> bool {
        let at = u64::from(block) * BLOCK;
        (self.start..self.start + self.size).contains(&at)
    }
}

/// A part of an answer.
enum Part {
    Object {
        found: Found,
        at: u64,
        bytes: usize,
    },
    /// Behind the end of an object, in its last block.
    Zeros(usize),
}

impl Part {
    fn bytes(&self) -> usize {
        match self {
            Part::Object { bytes, .. } | Part::Zeros(bytes) => *bytes,
        }
    }
}

impl<R: ReadAt + Send + Sync + 'static> Objects<R> {
    /// Those of `index`, which names its source; its own name is for errors.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`] where that is no bucket.
    pub fn new(index: Index<R>, name: String, client: Arc<Client>) -> Result<Objects<R>, Error> {
        let source = index.source();
        let root = Location::parse(source).ok().filter(|location| location.in_bucket().is_some());
        let root = root.ok_or_else(|| {
            Error::new(ErrorKind::Usage, "an index of this names no bucket: build it again")
                .during("mount", source)
        })?;
        Ok(Objects { index, name, client, root, recent: Mutex::default(), replaced: AtomicU64::new(0) })
    }

    pub fn index(&self) -> &Index<R> {
        &self.index
    }

    pub fn client(&self) -> &Arc<Client> {
        &self.client
    }

    /// Reads that found their object replaced or gone.
    pub fn replaced(&self) -> u64 {
        self.replaced.load(Ordering::Relaxed)
    }

    /// Objects whose readers are kept now.
    pub fn open_now(&self) -> usize {
        let recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        recent.young.len() + recent.old.len()
    }

    /// Reads `bytes` bytes of the data space, in full: zeros from an object's end to that of its last block.
    /// As [`flatout_tree::Files::read`], `done` is called once, unless the read is cancelled.
    pub fn read(
        self: &Arc<Self>,
        at: u64,
        bytes: usize,
        done: impl FnOnce(Result<Slices<'_, '_>, FsError>) + Send + 'static,
    ) -> Option<Cancel> {
        let parts = match self.parts(at, bytes) {
            Ok(parts) if !parts.is_empty() => parts,
            Ok(_) => {
                done(Ok(&mut std::iter::empty()));
                return None;
            }
            Err(error) => {
                done(Err(error));
                return None;
            }
        };
        // Nearly all reads are of one object.
        if !matches!(parts[..], [Part::Object { .. }] | [Part::Object { .. }, Part::Zeros(_)]) {
            return self.read_parts(parts, done);
        }
        let mut parts = parts.into_iter();
        let Some(Part::Object { found, at, bytes }) = parts.next() else { return None };
        let zeros = parts.next().map_or(0, |part| part.bytes());
        let (this, location) = (self.clone(), found.reader.object().location.clone());
        let reading = found.reader.read(at, bytes, move |read| match read {
            Ok(pieces) if pieces.len() == bytes => done(Ok(&mut pieces.slices().chain(zeros_of(zeros)))),
            Ok(pieces) => done(Err(this.short(&location, bytes, pieces.len()))),
            Err(error) => done(Err(this.failed(error))),
        });
        cancel_of(vec![reading])
    }

    /// Several objects, where the kernel reads ahead past the end of one.
    fn read_parts(
        self: &Arc<Self>,
        parts: Vec<Part>,
        done: impl FnOnce(Result<Slices<'_, '_>, FsError>) + Send + 'static,
    ) -> Option<Cancel> {
        let joint = Arc::new(Joint {
            state: Mutex::new(JointState {
                left: parts.len(),
                answers: parts.iter().map(|_| Answer::Zeros(0)).collect(),
                done: Some(Box::new(done)),
            }),
        });
        let mut readings = Vec::new();
        for (place, part) in parts.into_iter().enumerate() {
            match part {
                Part::Zeros(bytes) => joint.answer(place, Ok(Answer::Zeros(bytes))),
                Part::Object { found, at, bytes } => {
                    let (joint, this) = (joint.clone(), self.clone());
                    let location = found.reader.object().location.clone();
                    readings.push(found.reader.read(at, bytes, move |read| {
                        let answer = match read {
                            Ok(pieces) if pieces.len() == bytes => Ok(Answer::Bytes(pieces)),
                            Ok(pieces) => Err(this.short(&location, bytes, pieces.len())),
                            Err(error) => Err(this.failed(error)),
                        };
                        joint.answer(place, answer);
                    }));
                }
            }
        }
        cancel_of(readings)
    }

    /// What lies in a range of the data space.
    fn parts(&self, at: u64, bytes: usize) -> Result<Vec<Part>, FsError> {
        let (mut at, end) = (at, at + bytes as u64);
        let mut parts = Vec::with_capacity(2);
        while at < end {
            let found = self.object_with((at / BLOCK) as u32).map_err(|error| self.unreadable(&error))?;
            let data = found.filter(|found| at < found.start + found.size);
            match data {
                Some(found) => {
                    let bytes = end.min(found.start + found.size) - at;
                    let from = at - found.start;
                    parts.push(Part::Object { found, at: from, bytes: bytes as usize });
                    at += bytes;
                }
                None => {
                    let bytes = end.min((at / BLOCK + 1) * BLOCK) - at;
                    match parts.last_mut() {
                        Some(Part::Zeros(before)) => *before += bytes as usize,
                        _ => parts.push(Part::Zeros(bytes as usize)),
                    }
                    at += bytes;
                }
            }
        }
        Ok(parts)
    }

    fn object_with(&self, block: u32) -> Result<Option<Found>, IndexError> {
        let recent = || self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = recent().get(block) {
            return Ok(Some(found));
        }
        let Some(object) = self.index.object_at(block)? else { return Ok(None) };
        let malformed = |what| IndexError::Malformed { what };
        let key = String::from_utf8(object.path).map_err(|_| malformed("a key is not UTF-8"))?;
        let location = self.root.with_key(format!("{}{key}", self.root.key()));
        let location = location.ok_or_else(|| malformed("a key is none that the bucket takes"))?;
        let version = Object {
            location,
            size: object.size,
            etag: object.etag,
            modified_s: u64::try_from(object.modified_s).ok().filter(|&at| at > 0),
        };
        let reader = self.client.reader(version).map_err(|_| malformed("a key names no object"))?;
        let start = u64::from(object.start_block) * BLOCK;
        let found = Found { reader, start, size: object.size };
        recent().insert(object.start_block, found.clone());
        Ok(Some(found))
    }

    fn failed(&self, error: Error) -> FsError {
        if matches!(error.kind(), ErrorKind::Changed | ErrorKind::NotFound) {
            self.replaced.fetch_add(1, Ordering::Relaxed);
            let cause = format!("it is not what the index knows: {}", error.cause());
            // The kind says what a program can do, which is nothing: what is mounted stays as it is.
            return failed(
                Error::new(ErrorKind::Corrupt, cause)
                    .during("read", error.object())
                    .with_hint("`flatout volume update INDEX` makes an index of what is there now"),
            );
        }
        failed(error)
    }

    fn short(&self, object: &Location, wanted: usize, got: usize) -> FsError {
        let cause = format!("it ends early: {got} bytes of {wanted}");
        failed(Error::new(ErrorKind::Corrupt, cause).during("read", object))
    }

    /// An error of the index.
    pub fn unreadable(&self, error: &IndexError) -> FsError {
        failed(Error::new(ErrorKind::Corrupt, error.to_string()).during("read", &self.name))
    }
}

impl<R: ReadAt + Send + Sync + 'static> ImageContent for Objects<R> {
    fn image_bytes(&self) -> u64 {
        self.index.image_bytes()
    }

    fn metadata_bytes(&self) -> u64 {
        self.index.metadata_bytes()
    }

    fn metadata_block(&self, block: u64) -> Result<Vec<u8>, FsError> {
        self.index.block(block).map_err(|error| self.unreadable(&error))
    }

    fn read_data(
        self: &Arc<Self>,
        at: u64,
        bytes: usize,
        done: impl FnOnce(Result<Slices<'_, '_>, FsError>) + Send + 'static,
    ) -> Option<Cancel> {
        self.read(at, bytes, done)
    }
}

/// EROFS makes `EIO` of every errno, so the mount of old kernels says that, too. `ESTALE` would have the
/// kernel look names up again.
fn failed(error: Error) -> FsError {
    FsError { errno: libc::EIO, cause: Some(Arc::new(error)) }
}

/// `bytes` zeros.
pub fn zeros_of<'a>(bytes: usize) -> impl Iterator<Item = &'a [u8]> {
    let whole = bytes / ZEROS.len();
    let rest: &'a [u8] = &ZEROS[..bytes % ZEROS.len()];
    std::iter::repeat_n(&ZEROS[..], whole).chain((!rest.is_empty()).then_some(rest))
}

/// Cancels them all; `None` if they are over.
fn cancel_of(readings: Vec<Reading>) -> Option<Cancel> {
    if readings.iter().all(Reading::is_over) {
        return None;
    }
    Some(Box::new(move || {
        readings.into_iter().for_each(|reading| {
            reading.cancel();
        });
    }))
}

type Done = Box<dyn FnOnce(Result<Slices<'_, '_>, FsError>) + Send>;

/// A read of several parts, which is answered when all of them are there, or one has failed.
struct Joint {
    state: Mutex<JointState>,
}

struct JointState {
    left: usize,
    answers: Vec<Answer>,
    done: Option<Done>,
}

enum Answer {
    Bytes(Pieces),
    Zeros(usize),
}

impl Joint {
    fn answer(&self, place: usize, answer: Result<Answer, FsError>) {
        let (done, answers) = {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            match answer {
                Err(error) => match state.done.take() {
                    Some(done) => (done, Err(error)),
                    None => return,
                },
                Ok(answer) => {
                    state.answers[place] = answer;
                    state.left -= 1;
                    let done = if state.left == 0 { state.done.take() } else { None };
                    match done {
                        Some(done) => (done, Ok(std::mem::take(&mut state.answers))),
                        None => return,
                    }
                }
            }
        };
        match answers {
            Err(error) => done(Err(error)),
            Ok(answers) => {
                let slices = answers.iter().flat_map(|answer| match answer {
                    Answer::Bytes(pieces) => Either::Bytes(pieces.slices()),
                    Answer::Zeros(bytes) => Either::Zeros(zeros_of(*bytes)),
                });
                done(Ok(&mut { slices }));
            }
        }
    }
}

/// One of two iterators over slices.
enum Either<B, Z> {
    Bytes(B),
    Zeros(Z),
}

impl<'a, B: Iterator<Item = &'a [u8]>, Z: Iterator<Item = &'a [u8]>> Iterator for Either<B, Z> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        match self {
            Either::Bytes(bytes) => bytes.next(),
            Either::Zeros(zeros) => zeros.next(),
        }
    }
}
