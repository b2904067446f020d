//! An object that is written from its start to its end, and sent while it is written: Python's
//! `flatout.RemoteWriter` is the other half.

mod awaited;

use std::mem;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use flatout_engine::{
    AppendPosition, CancelSwitch, Dialect, Error, ErrorKind, Put, Source, Stat, StreamUploader, UploadEnded,
    upload_stream,
};
use flatout_wire::location::Location;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::MutexExt;
use pyo3::types::PyDict;

use crate::appending::{self, Before};
use crate::arguments;
use crate::borrowed_buffer::ReadableBuffer;
use crate::call_progress::CallProgress;
use crate::client::Client;
use crate::destination::{Destination, OwnedTransfer};
use crate::engine::Engine;
use crate::errors::{Failure, OrRaise};
use crate::exit;
use crate::object_meta::ObjectMeta;
use crate::object_ref::parse_url;
use crate::put_options::PutOptions;
use crate::waiting;
use crate::writes::{made, put_of};

/// The most bytes that one request appends to an object of OSS. They are held in memory until the commit.
const GROWS_MOST: usize = 64 << 20;

/// An object that is written from its start to its end. It is there once :meth:`commit` has returned; dropped
/// before, nothing is.
#[pyclass(frozen, weakref, module = "flatout._native")]
pub struct Writer {
    /// As it was written.
    #[pyo3(get)]
    url: String,
    location: Location,
    options: PutOptions,
    /// Of an object that is continued, the bytes before.
    begins_at: u64,
    written: AtomicU64,
    state: Arc<Mutex<State>>,
    cancel: Option<CancelSwitch>,
    /// The thread that has the state locked with the interpreter's lock; 0 for none.
    owner: AtomicI32,
    /// Of an object of OSS that is continued: it has no condition of a write, so its ETag is looked at.
    continues: Option<String>,
    process: u32,
}

enum State {
    Open(Box<OpenUpload>),
    /// An appendable object of OSS: the commit appends these bytes in one request.
    Grows(Vec<u8>, AppendPosition, Arc<Engine>),
    /// Published.
    Committed(ObjectMeta),
    /// It will never be.
    Failed(Failure),
    Aborted,
}

struct OpenUpload {
    // Dropped first: the upload then ends without an object.
    uploader: StreamUploader,
    transfer: OwnedTransfer,
    progress: CallProgress,
    engine: Arc<Engine>,
}

/// Bytes that are copied into rooms.
trait Bytes: Sync {
    fn len(&self) -> usize;

    /// Fills `to` with those from `at` on.
    fn copy_from(&self, at: usize, to: &mut [u8]);
}

impl Bytes for ReadableBuffer {
    fn len(&self) -> usize {
        ReadableBuffer::len(self)
    }

    fn copy_from(&self, at: usize, to: &mut [u8]) {
        ReadableBuffer::copy_from(self, at, to);
    }
}

impl Bytes for [u8] {
    fn len(&self) -> usize {
        <[u8]>::len(self)
    }

    fn copy_from(&self, at: usize, to: &mut [u8]) {
        to.copy_from_slice(&self[at..at + to.len()]);
    }
}

/// Why a write did not take all of its bytes.
enum Stopped {
    /// A signal's handler raised, the client was closed or the interpreter ends.
    Raised(PyErr),
    /// The upload has failed.
    Ended,
}

impl OpenUpload {
    /// Whether there is a room for at least one byte now.
    ///
    /// # Errors
    /// The upload has failed.
    fn has_room(&mut self) -> Result<bool, UploadEnded> {
        self.uploader.reserve(|| false)
    }

    /// Waits for a room for at most a tenth of a second. An upload that has failed shows when the room is
    /// asked for.
    fn wait_for_room(uploader: &mut StreamUploader) -> bool {
        let mut goes_on = true;
        uploader.reserve(|| mem::take(&mut goes_on)) != Ok(false)
    }

    /// Takes bytes as far as there is room; how many. The room is there.
    fn fill(
        &mut self,
        py: Python<'_>,
        buffer: &(impl Bytes + ?Sized),
        at: usize,
    ) -> Result<usize, UploadEnded> {
        let space = self.uploader.space()?;
        let bytes = space.len().min(buffer.len() - at);
        exit::copying(py, bytes, || buffer.copy_from(at, &mut space[..bytes]));
        self.uploader.advance(bytes);
        Ok(bytes)
    }

    /// Takes all bytes; waits for rooms.
    fn take(&mut self, py: Python<'_>, buffer: &(impl Bytes + ?Sized)) -> Result<(), Stopped> {
        let mut at = 0;
        while at < buffer.len() {
            if !self.has_room().map_err(|UploadEnded| Stopped::Ended)? {
                let (engine, uploader) = (&self.engine, &mut self.uploader);
                let waited = waiting::wait_until(py, engine, |_| OpenUpload::wait_for_room(uploader));
                waited.map_err(Stopped::Raised)?;
                continue;
            }
            at += self.fill(py, buffer, at).map_err(|UploadEnded| Stopped::Ended)?;
        }
        Ok(())
    }
}

/// The state, and who has it.
struct Locked<'a> {
    state: MutexGuard<'a, State>,
    owner: &'a AtomicI32,
}

impl std::ops::Deref for Locked<'_> {
    type Target = State;

    fn deref(&self) -> &State {
        &self.state
    }
}

impl std::ops::DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut State {
        &mut self.state
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        self.owner.store(0, Ordering::Relaxed);
    }
}

/// The number of this thread; no thread has 0.
fn thread() -> i32 {
    rustix::thread::gettid().as_raw_nonzero().get()
}

fn cut_off() -> Failure {
    Failure::new(ErrorKind::Cancelled, "write", "", "a write was interrupted: nothing is published")
}

fn unknown_end() -> Failure {
    let cause = "the end was interrupted: whether the object was published is not known";
    Failure::new(ErrorKind::Cancelled, "write", "", cause).with_hint("stat it before you write again")
}

/// What a second call of commit says; none where the writer was aborted.
fn committed_before(state: &State) -> Option<Result<ObjectMeta, Failure>> {
    match state {
        State::Committed(meta) => Some(Ok(meta.clone())),
        State::Failed(failure) => Some(Err(failure.clone())),
        _ => None,
    }
}

/// Refuses to replace another version than the one that was continued.
fn check_unchanged(engine: &Engine, location: &Location, etag: Option<&str>) -> Result<(), Error> {
    let found = engine.stat(location)?.version.etag;
    if etag.is_none() || found.as_deref() == etag {
        return Ok(());
    }
    let cause = "the object was replaced by another client: nothing was added to it";
    Err(Error::new(ErrorKind::Changed, cause).during("upload", location))
}

/// Appends bytes to an object of OSS; the object as it is then.
fn appended(
    engine: &Engine,
    location: &Location,
    bytes: Vec<u8>,
    position: AppendPosition,
) -> Result<Stat, Error> {
    if !bytes.is_empty() {
        engine.append(location, position, bytes.into())?;
    }
    engine.stat(location)
}

impl Writer {
    fn lock(&self, py: Python<'_>) -> PyResult<Locked<'_>> {
        if self.process != std::process::id() {
            let cause = "this was opened in the process that forked this one, which goes on with it";
            return Err(Failure::usage("write", cause).with_hint("open it after the fork").raise(py));
        }
        if self.is_mine() {
            // A signal's handler, or a log that is written to this file.
            return Err(PyRuntimeError::new_err(format!("reentrant call of the writer of {}", self.url)));
        }
        let state = self.state.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner);
        self.owner.store(thread(), Ordering::Relaxed);
        Ok(Locked { state, owner: &self.owner })
    }

    /// Whether a call of this thread is under way.
    fn is_mine(&self) -> bool {
        self.owner.load(Ordering::Relaxed) == thread()
    }

    /// The upload; an exception where it is over.
    fn open<'a>(&self, py: Python<'_>, state: &'a mut State) -> PyResult<&'a mut OpenUpload> {
        match state {
            State::Open(open) => Ok(open),
            State::Failed(failure) => Err(failure.raise(py)),
            State::Grows(..) => Err(Failure::panicked().raise(py)),
            State::Committed(_) | State::Aborted => {
                Err(PyValueError::new_err("I/O operation on closed file"))
            }
        }
    }

    /// Keeps bytes that are to be appended.
    fn grow(&self, py: Python<'_>, kept: &mut Vec<u8>, buffer: &ReadableBuffer) -> Result<(), Failure> {
        let (at, bytes) = (kept.len(), buffer.len());
        if at + bytes > GROWS_MOST {
            let cause =
                format!("at most {} MiB are appended to an object of OSS at a time", GROWS_MOST >> 20);
            let failure = Failure::new(ErrorKind::Unsupported, "write", &self.location, cause);
            return Err(failure.with_hint("close the file before, and open it again"));
        }
        kept.resize(at + bytes, 0);
        exit::copying(py, bytes, || buffer.copy_from(0, &mut kept[at..]));
        self.written.fetch_add(bytes as u64, Ordering::Relaxed);
        Ok(())
    }

    /// Begins an upload.
    fn start(
        py: Python<'_>,
        engine: Arc<Engine>,
        put: Put,
        uploader: StreamUploader,
        progress: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<OpenUpload> {
        let progress = CallProgress::begin(py, progress, put.location.name())?;
        let started = waiting::without_gil(py, || OwnedTransfer::start(&engine, put, Destination::Origin));
        match started.and_then(|started| started.or_raise(py)) {
            Ok(transfer) => {
                progress.watch(&transfer);
                Ok(OpenUpload { uploader, transfer, progress, engine })
            }
            Err(error) => {
                progress.end(py);
                Err(error)
            }
        }
    }

    /// Keeps how it ended.
    fn settle(state: &mut State, done: Result<ObjectMeta, Failure>) -> Result<ObjectMeta, Failure> {
        *state = match &done {
            Ok(meta) => State::Committed(meta.clone()),
            Err(failure) => State::Failed(failure.clone()),
        };
        done
    }

    /// The upload has ended before its stream: why.
    fn failed(py: Python<'_>, open: OpenUpload) -> (PyErr, Failure) {
        let OpenUpload { uploader, transfer, progress, engine: _engine } = open;
        let (result, _) = exit::detached(py, || {
            drop(uploader);
            transfer.wait()
        });
        progress.end(py);
        let failure = result.err().unwrap_or_else(Failure::panicked);
        (failure.raise(py), failure)
    }

    /// The upload has ended before its stream: every call from now on raises why.
    fn fail(py: Python<'_>, state: &mut State) -> PyErr {
        let State::Open(open) = mem::replace(state, State::Aborted) else {
            return Failure::panicked().raise(py);
        };
        let (error, failure) = Writer::failed(py, *open);
        *state = State::Failed(failure);
        error
    }

    fn end_with(py: Python<'_>, state: &mut State, end: State) {
        if let State::Open(open) = mem::replace(state, end) {
            let OpenUpload { uploader, transfer, progress, engine } = *open;
            exit::detached(py, || {
                drop(uploader);
                drop(transfer);
                drop(engine);
            });
            progress.end(py);
        }
    }
}

#[pymethods]
impl Writer {
    /// With ``appends`` it goes on with the object that is there.
    #[new]
    #[pyo3(signature = (client, url, options=None, appends=false, progress=None))]
    fn new(
        py: Python<'_>,
        client: &Bound<'_, Client>,
        #[pyo3(from_py_with = arguments::url)] url: String,
        options: Option<&Bound<'_, PyDict>>,
        appends: bool,
        progress: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Writer> {
        let (location, mut options) = (parse_url(py, "write", &url)?, PutOptions::of(options)?);
        let engine = client.get().engine(py)?;
        let before = match appends {
            true => appending::look(py, client.get(), &engine, &location, &mut options)?,
            false => Before::Nothing,
        };
        let continues = before.etag().filter(|_| Dialect::of(&location) == Dialect::Oss);
        let new = |state: State, options: PutOptions, begins_at: u64, cancel: Option<CancelSwitch>| Writer {
            url,
            location: location.clone(),
            options,
            begins_at,
            written: AtomicU64::new(0),
            state: Arc::new(Mutex::new(state)),
            cancel,
            owner: AtomicI32::new(0),
            continues,
            process: std::process::id(),
        };
        if let Before::Grows(position) = before {
            return Ok(new(State::Grows(Vec::new(), position, engine), options, position.at, None));
        }
        let (uploader, source) = upload_stream();
        let mut put = put_of(location.clone(), Source::Stream(source), options.clone());
        let mut begins_at = 0;
        if let Before::Copied(object) = &before {
            begins_at = object.size;
            put = put.continuing(object.clone());
        }
        let mut open = Writer::start(py, engine, put, uploader, progress)?;
        let cancel = open.transfer.cancel_switch();
        if let Before::Sent(bytes, _) = &before {
            begins_at = bytes.as_slice().len() as u64;
            let taken = open.take(py, bytes.as_slice());
            match taken {
                Ok(()) => {}
                Err(Stopped::Ended) => return Err(Writer::failed(py, open).0),
                Err(Stopped::Raised(error)) => {
                    Writer::end_with(py, &mut State::Open(Box::new(open)), State::Aborted);
                    return Err(error);
                }
            }
        }
        Ok(new(State::Open(Box::new(open)), options, begins_at, Some(cancel)))
    }

    /// Takes all bytes of ``data``, and waits where they come faster than they can be sent.
    fn write(&self, py: Python<'_>, data: &Bound<'_, PyAny>) -> PyResult<usize> {
        let buffer = ReadableBuffer::named("data", data)?;
        let mut state = self.lock(py)?;
        if let State::Grows(bytes, ..) = &mut *state {
            if let Err(failure) = self.grow(py, bytes, &buffer) {
                *state = State::Failed(failure.clone());
                return Err(failure.raise(py));
            }
            return Ok(buffer.len());
        }
        match self.open(py, &mut state)?.take(py, &buffer) {
            Ok(()) => {
                self.written.fetch_add(buffer.len() as u64, Ordering::Relaxed);
                Ok(buffer.len())
            }
            Err(Stopped::Ended) => Err(Writer::fail(py, &mut state)),
            Err(Stopped::Raised(error)) => {
                // Whether it has taken bytes is not known to the caller, who must not go on behind them.
                Writer::end_with(py, &mut state, State::Failed(cut_off()));
                Err(error)
            }
        }
    }

    /// Takes bytes of ``data`` from ``at`` on as far as that needs no wait, and returns how many.
    fn write_some(&self, py: Python<'_>, data: &Bound<'_, PyAny>, at: usize) -> PyResult<usize> {
        let buffer = ReadableBuffer::named("data", data)?;
        let mut state = self.lock(py)?;
        if let State::Grows(bytes, ..) = &mut *state {
            if let Err(failure) = self.grow(py, bytes, &buffer) {
                *state = State::Failed(failure.clone());
                return Err(failure.raise(py));
            }
            return Ok(buffer.len());
        }
        let open = self.open(py, &mut state)?;
        if at > buffer.len() {
            return Err(PyValueError::new_err("the buffer has become shorter"));
        }
        let mut taken = at;
        while taken < buffer.len() {
            let filled = match open.has_room() {
                Ok(false) => break,
                Ok(true) => open.fill(py, &buffer, taken),
                Err(ended) => Err(ended),
            };
            match filled {
                Ok(bytes) => taken += bytes,
                Err(UploadEnded) => return Err(Writer::fail(py, &mut state)),
            }
        }
        self.written.fetch_add((taken - at) as u64, Ordering::Relaxed);
        Ok(taken - at)
    }

    /// Publishes the object.
    pub fn commit(&self, py: Python<'_>) -> PyResult<ObjectMeta> {
        let mut state = self.lock(py)?;
        let done = match mem::replace(&mut *state, State::Failed(unknown_end())) {
            State::Open(open) => {
                let OpenUpload { uploader, transfer, progress, engine } = *open;
                let (called, location, etag) =
                    (engine.clone(), self.location.clone(), self.continues.clone());
                let checked = match &self.continues {
                    None => Ok(Ok(())),
                    Some(_) => waiting::call(py, &engine, move || {
                        Ok(check_unchanged(&called, &location, etag.as_deref()).map_err(Failure::from))
                    }),
                };
                if let Ok(Ok(())) = checked {
                    uploader.finish();
                } else {
                    drop(uploader);
                }
                let finished = waiting::finish(py, &engine, transfer);
                progress.end(py);
                let finished = finished?.0;
                checked?.and(finished).map(|report| made(&self.url, &self.location, &self.options, report))
            }
            State::Grows(bytes, position, engine) => {
                let (called, location) = (engine.clone(), self.location.clone());
                let work = move || Ok(appended(&called, &location, bytes, position).map_err(Failure::from));
                let stat = waiting::call(py, &engine, work)?;
                stat.map(|stat| ObjectMeta::of_stat(&self.url, &self.location, stat))
            }
            over => {
                *state = over;
                return match committed_before(&state) {
                    Some(done) => done.or_raise(py),
                    None => Err(PyValueError::new_err("I/O operation on closed file")),
                };
            }
        };
        Writer::settle(&mut state, done).or_raise(py)
    }

    /// Has the upload end soon, without waiting for that.
    fn cancel(&self) {
        if self.process == std::process::id()
            && let Some(cancel) = &self.cancel
        {
            cancel.cancel();
        }
    }

    /// Ends the upload without an object. Does nothing once it is over.
    pub fn abort(&self, py: Python<'_>) {
        // A write or a commit that waits ends by it, also one of this thread below us.
        self.cancel();
        // In a forked child it is the parent's.
        if let Ok(mut state) = self.lock(py)
            && matches!(&*state, State::Open(_) | State::Grows(..))
        {
            Writer::end_with(py, &mut state, State::Aborted);
        }
    }

    /// Whether bytes are taken.
    #[getter]
    fn is_open(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(matches!(&*self.lock(py)?, State::Open(_) | State::Grows(..)))
    }

    /// Bytes of the object so far.
    #[getter]
    fn size(&self) -> u64 {
        self.begins_at + self.written.load(Ordering::Relaxed)
    }

    fn __repr__(&self) -> String {
        format!("Writer({:?}, {} bytes)", self.url, self.size())
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if self.process != std::process::id() {
            // Its threads are in the process that forked this one.
            mem::forget(self.state.clone());
            return;
        }
        self.cancel();
        Python::try_attach(|py| {
            let mut state = self.state.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner);
            Writer::end_with(py, &mut state, State::Aborted);
        });
    }
}
