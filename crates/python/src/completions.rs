//! The calls of asyncio: they are begun here, and a descriptor becomes readable when some have ended.
//!
//! A thread of the engine's adds the ticket of a call that has ended and writes to an eventfd. The loop's
//! thread, which holds the interpreter's lock, takes the results. So no other thread ever takes that lock.

use std::ops::Range;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};

use flatout_engine::{Error, Reading, Report};
use flatout_wire::location::Location;
use flatout_wire::range::Span;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use rustix::event::{EventfdFlags, eventfd};

use crate::arguments;
use crate::awaited_calls::{AwaitedCalls, CallTable, EndedTickets, NotifyOnDrop, PendingCall, Settle, Work};
use crate::borrowed_buffer::BorrowedBuffer;
use crate::call_progress::CallProgress;
use crate::client::Client;
use crate::destination::{Destination, OwnedTransfer, Request};
use crate::engine::Engine;
use crate::errors::{Failure, OrRaise};
use crate::exit;
use crate::file::{File, LandedBytes};
use crate::many::get_of;
use crate::object_meta::ObjectMeta;
use crate::object_ref::{ObjectRef, dialect, has_nothing, parse_url};
use crate::pages::Pages;
use crate::span::{RangeRequest, range_request};
use crate::waiting;

/// The calls of one loop that are awaited: see :class:`flatout.AsyncClient`. Each verb returns a ticket.
#[pyclass(frozen, weakref, module = "flatout._native")]
pub struct Completions {
    awaited: Arc<AwaitedCalls>,
    process: u32,
}

impl Completions {
    fn calls(&self) -> MutexGuard<'_, CallTable> {
        self.awaited.calls()
    }

    fn ticket(&self) -> PyResult<u64> {
        let mut calls = self.calls();
        if calls.is_closed {
            return Err(PyRuntimeError::new_err("these completions are closed"));
        }
        calls.next += 1;
        Ok(calls.next)
    }

    fn add(&self, ticket: u64, call: PendingCall) {
        let engine = call.engine.clone();
        engine.notify_on_close(&self.awaited);
        let mut calls = self.calls();
        // The engine may have closed before the listener was registered.
        if engine.is_closed() {
            self.awaited.end(ticket, &call);
        }
        calls.pending.insert(ticket, call);
        if calls.early.remove(&ticket) {
            self.awaited.ended.add(ticket);
        }
    }

    /// Begins a transfer; `settle` makes the call's result of its end.
    pub fn begin(
        &self,
        py: Python<'_>,
        client: &Client,
        request: impl Into<Request>,
        destination: Destination,
        progress: Option<&Bound<'_, PyAny>>,
        settle: impl FnOnce(Python<'_>, Result<Report, Failure>, Destination) -> PyResult<Py<PyAny>>
        + Send
        + 'static,
    ) -> PyResult<u64> {
        let request = request.into();
        let progress = CallProgress::begin(py, progress, request.name())?;
        let (engine, ticket) = (client.engine(py)?, self.ticket()?);
        let ended = self.awaited.ended.clone();
        let request = request.on_end(move || ended.add(ticket));
        let started = waiting::without_gil(py, || OwnedTransfer::start(&engine, request, destination));
        match started.and_then(|started| started.or_raise(py)) {
            Ok(transfer) => {
                progress.watch(&transfer);
                let work = Work::Transfer(transfer, Box::new(settle));
                self.add(ticket, PendingCall { work, progress: Some(progress), engine });
                Ok(ticket)
            }
            Err(error) => {
                progress.end(py);
                Err(error)
            }
        }
    }

    /// Begins a call that blocks, on a thread of the engine's.
    pub fn call<T: Send + 'static>(
        &self,
        py: Python<'_>,
        client: &Client,
        work: impl FnOnce(&Engine) -> Result<T, Error> + Send + 'static,
        show: impl FnOnce(Python<'_>, T) -> PyResult<Py<PyAny>> + Send + 'static,
    ) -> PyResult<u64> {
        let (engine, ticket) = (client.engine(py)?, self.ticket()?);
        let (sender, receiver) = mpsc::sync_channel(1);
        let (ended, called) = (self.awaited.ended.clone(), engine.clone());
        let begun = engine.blocking_pool.call(move || {
            // A call that panics ends as well. Dropped in this order, so that the result is there or its
            // sender gone.
            let (_notify, sender) = (NotifyOnDrop { ended, ticket }, sender);
            // The call may have been cancelled.
            let _ = sender.send(work(&called));
        });
        let called = begun.map_err(|refused| Failure::local("cannot start a thread", &refused).raise(py))?;
        let receiver = Mutex::new(receiver);
        let settle: Settle = Box::new(move |py| {
            let receiver = receiver.into_inner().unwrap_or_else(PoisonError::into_inner);
            match receiver.try_recv() {
                Ok(Ok(done)) => show(py, done),
                Ok(Err(error)) => Err(Failure::from(error).raise(py)),
                // It is not waited for where the client was closed.
                Err(mpsc::TryRecvError::Empty) => Err(Engine::closed().raise(py)),
                Err(mpsc::TryRecvError::Disconnected) => Err(Failure::panicked().raise(py)),
            }
        });
        self.add(ticket, PendingCall { work: Work::Call(called, settle), progress: None, engine });
        Ok(ticket)
    }

    /// Begins a read of a file. The result is None where the prefetch of those bytes has failed; with `anew`
    /// the origin is asked again.
    fn read_file(
        &self,
        py: Python<'_>,
        file: &File,
        range: Range<u64>,
        anew: bool,
        show: impl FnOnce(Python<'_>, Option<LandedBytes>) -> PyResult<Py<PyAny>> + Send + 'static,
    ) -> PyResult<u64> {
        let ticket = self.ticket()?;
        let (open, mut started) = file.start(py, &range, anew)?;
        let reading = started.reading.take();
        let (engine, ended, is_prefetched) =
            (open.engine.clone(), self.awaited.ended.clone(), reading.is_none());
        let result = started.result.clone();
        let settle: Settle = Box::new(move |py| {
            // The reader stays until its read has ended.
            let _open = open;
            match started.result.get() {
                Some(Ok(pieces)) => show(py, Some(started.landed(pieces))),
                Some(Err(_)) if is_prefetched => show(py, None),
                Some(Err(failure)) => Err(failure.raise(py)),
                // It is not waited for where the client was closed.
                None => Err(Engine::closed().raise(py)),
            }
        });
        self.add(ticket, PendingCall { work: Work::Read(reading, settle), progress: None, engine });
        result.when_there(move || ended.add(ticket));
        Ok(ticket)
    }
}

/// The span of a range that `AsyncClient` has resolved.
///
/// # Errors
/// It has not: the range is empty, or counts from the end.
fn resolved(py: Python<'_>, start: Option<i64>, end: Option<i64>) -> PyResult<Span> {
    match range_request(start, end) {
        RangeRequest::Span(span) => Ok(span),
        RangeRequest::Empty | RangeRequest::NeedsSize => {
            let failure = Failure::usage("read", "a range that is empty or counted from the end");
            Err(failure.with_hint("stat the object first, and count from its start").raise(py))
        }
    }
}

/// The result of a read: a buffer, or the exception where the object may just have no bytes there, which
/// `AsyncClient` then finds out.
fn read_result(
    py: Python<'_>,
    result: Result<Report, Failure>,
    destination: Destination,
    (url, location, span): (&str, &Location, &Span),
) -> PyResult<Py<PyAny>> {
    match result {
        Ok(report) => {
            let buffer = destination.into_buffer().or_raise(py)?;
            let meta = ObjectMeta::of_report(url, location, report);
            Ok(Py::new(py, buffer.with_info(meta))?.into_any())
        }
        Err(failure) => unless_of_nothing(py, &failure, span),
    }
}

/// The exception as a result, where the object may just have no bytes there; else it is raised.
fn unless_of_nothing(py: Python<'_>, failure: &Failure, span: &Span) -> PyResult<Py<PyAny>> {
    match failure.may_be_of_nothing(span) {
        true => Ok(failure.exception(py)?.unbind()),
        false => Err(failure.raise(py)),
    }
}

/// How many bytes landed.
fn count(py: Python<'_>, result: Result<Report, Failure>) -> PyResult<Py<PyAny>> {
    let report = result.or_raise(py)?;
    Ok(report.bytes.into_pyobject(py)?.into_any().unbind())
}

fn infos(py: Python<'_>, entries: Vec<flatout_engine::Entry>, bucket: &str) -> PyResult<Py<PyAny>> {
    let infos: Vec<_> = entries.into_iter().map(|entry| ObjectMeta::of_entry(bucket, entry)).collect();
    Ok(infos.into_pyobject(py)?.into_any().unbind())
}

#[pymethods]
impl Completions {
    #[new]
    fn new() -> PyResult<Completions> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let event = event.map_err(std::io::Error::from)?;
        let ended = Arc::new(EndedTickets { event, tickets: Mutex::default() });
        let awaited = Arc::new(AwaitedCalls { ended, calls: Mutex::default() });
        Ok(Completions { awaited, process: std::process::id() })
    }

    /// A descriptor that is readable when calls have ended.
    fn fileno(&self) -> i32 {
        self.awaited.ended.event.as_raw_fd()
    }

    /// The calls that have ended since: ``(ticket, result, exception)``.
    #[allow(clippy::type_complexity)]
    fn take(&self, py: Python<'_>) -> PyResult<Vec<(u64, Option<Py<PyAny>>, Option<Py<PyAny>>)>> {
        let mut taken = Vec::new();
        for ticket in self.awaited.ended.take() {
            let pending = {
                let mut calls = self.calls();
                let pending = calls.pending.remove(&ticket);
                let was_cancelled = calls.cancelled.remove(&ticket);
                if pending.is_none() && !was_cancelled && !calls.is_closed {
                    calls.early.insert(ticket);
                }
                pending
            };
            let Some(pending) = pending else { continue };
            taken.push(match pending.settle(py) {
                Ok(result) => (ticket, Some(result), None),
                Err(error) => (ticket, None, Some(error.into_value(py).into_any())),
            });
        }
        Ok(taken)
    }

    /// Cancels a call, which then ends like any other; whether its end has to be waited for.
    fn cancel(&self, ticket: u64) -> bool {
        let mut calls = self.calls();
        let Some(pending) = calls.pending.get_mut(&ticket) else { return false };
        match &mut pending.work {
            Work::Transfer(transfer, _) => {
                transfer.cancel_switch().cancel();
                true
            }
            Work::Call(..) => {
                let pending = calls.pending.remove(&ticket);
                calls.cancelled.insert(ticket);
                drop(calls);
                drop(pending);
                false
            }
            Work::Read(reading, _) => {
                let reading = reading.take();
                // Nothing is copied to the caller's buffer before the call is settled, so that the buffer can
                // be released at once.
                let pending = calls.pending.remove(&ticket);
                calls.cancelled.insert(ticket);
                drop(calls);
                drop(pending);
                if reading.is_some_and(Reading::cancel) {
                    self.calls().cancelled.remove(&ticket);
                }
                false
            }
        }
    }

    /// Cancels all calls, and returns when no thread writes to their buffers.
    fn close(&self, py: Python<'_>) {
        let pending = {
            let mut calls = self.calls();
            calls.is_closed = true;
            std::mem::take(&mut calls.pending)
        };
        if self.process != std::process::id() {
            // They belong to the process that forked this one.
            std::mem::forget(pending);
            return;
        }
        pending.values().filter_map(PendingCall::switch).for_each(|switch| switch.cancel());
        let mut pending: Vec<PendingCall> = pending.into_values().collect();
        let progress: Vec<_> = pending.iter_mut().filter_map(|call| call.progress.take()).collect();
        exit::detached(py, || drop(pending));
        progress.into_iter().for_each(|progress| progress.end(py));
    }

    #[pyo3(signature = (client, url, start=None, end=None, *, if_match=None, version_id=None, progress=None))]
    #[allow(clippy::too_many_arguments)]
    fn read(
        &self,
        py: Python<'_>,
        client: &Client,
        #[pyo3(from_py_with = arguments::url)] url: String,
        #[pyo3(from_py_with = arguments::start)] start: Option<i64>,
        #[pyo3(from_py_with = arguments::end)] end: Option<i64>,
        if_match: Option<String>,
        version_id: Option<String>,
        progress: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<u64> {
        let location = parse_url(py, "read", &url)?;
        let span = resolved(py, start, end)?;
        let get = ObjectRef::new(&location, &if_match, &version_id).get().with_span(span.clone());
        self.begin(py, client, get, Destination::made(), progress, move |py, result, destination| {
            read_result(py, result, destination, (&url, &location, &span))
        })
    }

    /// One of many objects, of which at most ``bytes`` bytes come; without it as many as a small object has.
    /// The result is the size, an int, where the object is larger.
    #[pyo3(signature = (client, url, start=None, end=None, *, bytes=None, if_match=None, version_id=None, progress=None))]
    #[allow(clippy::too_many_arguments)]
    fn read_one(
        &self,
        py: Python<'_>,
        client: &Client,
        #[pyo3(from_py_with = arguments::url)] url: String,
        #[pyo3(from_py_with = arguments::start)] start: Option<i64>,
        #[pyo3(from_py_with = arguments::end)] end: Option<i64>,
        bytes: Option<u64>,
        if_match: Option<String>,
        version_id: Option<String>,
        progress: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<u64> {
        let location = parse_url(py, "read", &url)?;
        let span = resolved(py, start, end)?;
        let object = ObjectRef::new(&location, &if_match, &version_id);
        let (get, made) = get_of(object, span.clone(), bytes);
        self.begin(
            py,
            client,
            get,
            Destination::AllocatedBuffer(made),
            progress,
            move |py, result, destination| match destination.beyond() {
                Some(bytes) => Ok(bytes.into_pyobject(py)?.into_any().unbind()),
                None => read_result(py, result, destination, (&url, &location, &span)),
            },
        )
    }

    /// Whether a read, whose result was an exception, failed only because the object has no bytes there.
    #[pyo3(signature = (client, url, start=None, end=None, *, if_match=None, version_id=None))]
    #[allow(clippy::too_many_arguments)]
    fn is_of_nothing(
        &self,
        py: Python<'_>,
        client: &Client,
        #[pyo3(from_py_with = arguments::url)] url: String,
        #[pyo3(from_py_with = arguments::start)] start: Option<i64>,
        #[pyo3(from_py_with = arguments::end)] end: Option<i64>,
        if_match: Option<String>,
        version_id: Option<String>,
    ) -> PyResult<u64> {
        let location = parse_url(py, "read", &url)?;
        let span = range_request(start, end);
        self.call(
            py,
            client,
            move |engine| Ok(engine.stat_version(&location, version_id.as_deref()).ok()),
            move |py, stat| {
                let is_nothing = match (stat, span) {
                    (Some(stat), RangeRequest::Span(span)) => has_nothing(&stat, &span, if_match.as_deref()),
                    _ => false,
                };
                Ok(is_nothing.into_pyobject(py)?.to_owned().into_any().unbind())
            },
        )
    }

    /// The result is how many bytes landed, and the object's Info.
    #[pyo3(signature = (client, url, buffer, start=None, end=None, *, if_match=None, version_id=None, progress=None))]
    #[allow(clippy::too_many_arguments)]
    fn readinto(
        &self,
        py: Python<'_>,
        client: &Client,
        #[pyo3(from_py_with = arguments::url)] url: String,
        buffer: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = arguments::start)] start: Option<i64>,
        #[pyo3(from_py_with = arguments::end)] end: Option<i64>,
        if_match: Option<String>,
        version_id: Option<String>,
        progress: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<u64> {
        let location = parse_url(py, "read", &url)?;
        let buffer = Destination::Borrowed(BorrowedBuffer::new(buffer)?);
        let span = resolved(py, start, end)?;
        let get = ObjectRef::new(&location, &if_match, &version_id).get().with_span(span.clone());
        self.begin(py, client, get, buffer, progress, move |py, result, buffer| {
            buffer.release(py);
            match result {
                Ok(report) => {
                    let bytes = report.bytes;
                    let meta = ObjectMeta::of_report(&url, &location, report);
                    let meta = meta.map(|meta| meta.as_ref().clone());
                    Ok((bytes, meta).into_pyobject(py)?.into_any().unbind())
                }
                Err(failure) => unless_of_nothing(py, &failure, &span),
            }
        })
    }

    #[pyo3(signature = (client, url, path, *, if_match=None, version_id=None, progress=None))]
    #[allow(clippy::too_many_arguments)]
    fn download(
        &self,
        py: Python<'_>,
        client: &Client,
        #[pyo3(from_py_with = arguments::url)] url: String,
        path: PathBuf,
        if_match: Option<String>,
        version_id: Option<String>,
        progress: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<u64> {
        let location = parse_url(py, "read", &url)?;
        let get = ObjectRef::new(&location, &if_match, &version_id).get();
        self.begin(py, client, get, Destination::File(path), progress, |py, result, _| count(py, result))
    }

    #[pyo3(signature = (client, url, *, version_id=None))]
    fn stat(
        &self,
        py: Python<'_>,
        client: &Client,
        #[pyo3(from_py_with = arguments::url)] url: String,
        version_id: Option<String>,
    ) -> PyResult<u64> {
        let location = parse_url(py, "stat", &url)?;
        let asked = location.clone();
        self.call(
            py,
            client,
            move |engine| engine.stat_version(&asked, version_id.as_deref()),
            move |py, stat| Ok(Py::new(py, ObjectMeta::of_stat(&url, &location, stat))?.into_any()),
        )
    }

    #[pyo3(signature = (client, url, *, expires, version_id=None))]
    fn presign(
        &self,
        py: Python<'_>,
        client: &Client,
        #[pyo3(from_py_with = arguments::url)] url: String,
        #[pyo3(from_py_with = arguments::expires)] expires: u64,
        version_id: Option<String>,
    ) -> PyResult<u64> {
        let location = parse_url(py, "presign", &url)?;
        self.call(
            py,
            client,
            move |engine| engine.presign_version(&location, version_id.as_deref(), expires),
            |py, url| Ok(url.into_pyobject(py)?.into_any().unbind()),
        )
    }

    fn buckets(&self, py: Python<'_>, client: &Client, scheme: &str) -> PyResult<u64> {
        let dialect = dialect(scheme);
        self.call(
            py,
            client,
            move |engine| engine.buckets(dialect),
            |py, buckets| {
                let names: Vec<_> = buckets.into_iter().map(|bucket| bucket.name).collect();
                Ok(names.into_pyobject(py)?.into_any().unbind())
            },
        )
    }

    /// The next page of a listing; None is awaited behind the last.
    fn page(&self, py: Python<'_>, client: &Client, pages: Py<Pages>) -> PyResult<u64> {
        let (listing, bucket) = pages.borrow_mut(py).take();
        self.call(
            py,
            client,
            move |_| Pages::next_of(listing),
            move |py, found| {
                let Some((page, rest)) = found else { return Ok(py.None()) };
                pages.borrow_mut(py).put(rest);
                infos(py, page, &bucket)
            },
        )
    }

    /// A range of a file that is not empty, as a Buffer or as bytes; None is awaited where what is ahead has
    /// failed.
    #[pyo3(signature = (client, file, offset, n, *, as_bytes=false, past=false))]
    #[allow(clippy::too_many_arguments)]
    fn pread(
        &self,
        py: Python<'_>,
        client: &Client,
        file: &Bound<'_, File>,
        #[pyo3(from_py_with = arguments::place)] offset: u64,
        #[pyo3(from_py_with = arguments::n)] n: i64,
        as_bytes: bool,
        past: bool,
    ) -> PyResult<u64> {
        let (file, range) = (file.get(), file.get().range(offset, u64::try_from(n).ok()));
        if file.is_bulk(&range) && !as_bytes {
            return self.begin(
                py,
                client,
                file.bulk(range),
                Destination::made(),
                None,
                |py, result, made| {
                    let buffer = result.and_then(|_| made.into_buffer()).or_raise(py)?;
                    Ok(Py::new(py, buffer)?.into_any())
                },
            );
        }
        self.read_file(py, file, range, past, move |py, landed| {
            Ok(match landed {
                None => py.None(),
                Some(landed) if as_bytes => landed.bytes(py)?.into_any().unbind(),
                Some(landed) => Py::new(py, landed.buffer(py)?)?.into_any(),
            })
        })
    }

    /// Fills ``buffer`` from ``offset`` of a file on, where there is something of it; how many bytes, or None
    /// as of ``pread``.
    #[pyo3(signature = (client, file, offset, buffer, *, past=false))]
    fn preadinto(
        &self,
        py: Python<'_>,
        client: &Client,
        file: &Bound<'_, File>,
        #[pyo3(from_py_with = arguments::place)] offset: u64,
        buffer: &Bound<'_, PyAny>,
        past: bool,
    ) -> PyResult<u64> {
        let buffer = BorrowedBuffer::new(buffer)?;
        let (file, range) = (file.get(), file.get().range(offset, Some(buffer.len() as u64)));
        if file.is_bulk(&range) {
            let buffer = Destination::Borrowed(buffer);
            return self.begin(py, client, file.bulk(range), buffer, None, |py, result, buffer| {
                buffer.release(py);
                count(py, result)
            });
        }
        self.read_file(py, file, range, past, move |py, landed| {
            let count = landed.map(|landed| landed.fill(py, &buffer));
            buffer.release(py);
            Ok(count.into_pyobject(py)?.into_any().unbind())
        })
    }

    #[pyo3(signature = (client, url, *, recursive=false))]
    fn ls(
        &self,
        py: Python<'_>,
        client: &Client,
        #[pyo3(from_py_with = arguments::url)] url: String,
        recursive: bool,
    ) -> PyResult<u64> {
        let location = parse_url(py, "list", &url)?;
        let bucket = ObjectMeta::bucket_of(&location);
        self.call(
            py,
            client,
            move |engine| engine.list(&location, recursive)?.collect::<Result<Vec<_>, _>>(),
            move |py, entries| infos(py, entries, &bucket),
        )
    }
}

impl Drop for Completions {
    fn drop(&mut self) {
        if self.process != std::process::id() {
            std::mem::forget(std::mem::take(&mut self.calls().pending));
        } else {
            Python::try_attach(|py| self.close(py));
        }
    }
}
