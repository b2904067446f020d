//! What asyncio waits for: calls that are begun here, and a descriptor that becomes readable when some have ended.
//!
//! A thread of the engine's notes the ticket of a call that has ended and writes to an eventfd; the loop's thread, with the
//! interpreter's lock, takes the results. So no other thread ever wants that lock.

use std::ops::Range;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};

use flatout_engine::{Error, Get, Landing, Made, Reading, Report};
use flatout_wire::location::Location;
use flatout_wire::range::Span;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use rustix::event::{EventfdFlags, eventfd};

use crate::arguments;
use crate::awaited::{Awaited, Calls, Ended, NotedAtEnd, Pending, Settle, Work};
use crate::buffer::Buffer;
use crate::client::Client;
use crate::engine::Engine;
use crate::errors::Failure;
use crate::exit;
use crate::file::{File, There};
use crate::info::Info;
use crate::lent::Lent;
use crate::many::get_of;
use crate::pages::Pages;
use crate::span::{Asked, asked};
use crate::waiting;
use crate::watching::Watching;
use crate::which::{conditional, dialect, has_nothing, of_version, place};

/// Calls that are awaited, of one loop: see :class:`flatout.AsyncClient`. Each verb returns a ticket.
#[pyclass(frozen, weakref, module = "flatout._native")]
pub struct Completions {
    awaited: Arc<Awaited>,
    process: u32,
}

impl Completions {
    fn calls(&self) -> MutexGuard<'_, Calls> {
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

    fn add(&self, ticket: u64, pending: Pending) {
        let engine = pending.engine.clone();
        engine.tell_when_closed(&self.awaited);
        let mut calls = self.calls();
        // It may have been closed before it was told whom to tell.
        if engine.is_closed() {
            self.awaited.end(ticket, &pending);
        }
        calls.pending.insert(ticket, pending);
        if calls.early.remove(&ticket) {
            self.awaited.ended.note(ticket);
        }
    }

    /// Begins a transfer; `settle` makes of its end what is awaited.
    fn begin(
        &self,
        py: Python<'_>,
        client: &Client,
        get: Get,
        progress: Option<&Bound<'_, PyAny>>,
        settle: impl FnOnce(Python<'_>, Result<Option<Report>, Failure>) -> PyResult<Py<PyAny>> + Send + 'static,
    ) -> PyResult<u64> {
        let watching = Watching::begin(py, progress, get.location.name())?;
        self.begin_on(py, client.engine(py)?, get, None, watching, settle)
    }

    /// The same on an engine; `made` is where it lands if it may turn out too large for that.
    fn begin_on(
        &self,
        py: Python<'_>,
        engine: Arc<Engine>,
        get: Get,
        made: Option<&Made>,
        watching: Watching,
        settle: impl FnOnce(Python<'_>, Result<Option<Report>, Failure>) -> PyResult<Py<PyAny>> + Send + 'static,
    ) -> PyResult<u64> {
        let ticket = self.ticket()?;
        let ended = self.awaited.ended.clone();
        let get = get.on_end(move || ended.note(ticket));
        let started = waiting::briefly(py, || engine.get(get));
        let started = started.and_then(|started| started.map_err(|error| Failure::from(error).raise(py)));
        let transfer = match started {
            Ok(transfer) => transfer,
            Err(error) => {
                watching.end(py);
                return Err(error);
            }
        };
        match made {
            Some(made) => watching.watch_attempt(|| transfer.watch(), made),
            None => watching.watch(|| transfer.watch()),
        }
        let (work, watching) = (Work::Transfer(transfer), Some(watching));
        self.add(ticket, Pending { work, settle: Box::new(settle), watching, engine });
        Ok(ticket)
    }

    /// Begins what blocks, on a thread of the engine's blocking pool.
    fn call<T: Send + 'static>(
        &self,
        py: Python<'_>,
        client: &Client,
        work: impl FnOnce(&Engine) -> Result<T, Error> + Send + 'static,
        show: impl FnOnce(Python<'_>, T) -> PyResult<Py<PyAny>> + Send + 'static,
    ) -> PyResult<u64> {
        let (engine, ticket) = (client.engine(py)?, self.ticket()?);
        let (tell, told) = mpsc::sync_channel(1);
        let (ended, called) = (self.awaited.ended.clone(), engine.clone());
        let begun = engine.blocking_pool.call(move || {
            // What panics has ended as well; told after `tell` has gone.
            let (_noted, tell) = (NotedAtEnd { ended, ticket }, tell);
            // Nobody may await it any more.
            let _ = tell.send(work(&called));
        });
        let called = begun.map_err(|refused| Failure::local("cannot start a thread", &refused).raise(py))?;
        let told = Mutex::new(told);
        let settle: Settle = Box::new(move |py, _| {
            let told = told.into_inner().unwrap_or_else(PoisonError::into_inner);
            match told.try_recv() {
                Ok(Ok(done)) => show(py, done),
                Ok(Err(error)) => Err(Failure::from(error).raise(py)),
                // It is not waited for where the client was closed.
                Err(mpsc::TryRecvError::Empty) => Err(Engine::closed().raise(py)),
                Err(mpsc::TryRecvError::Disconnected) => Err(Failure::panicked().raise(py)),
            }
        });
        self.add(ticket, Pending { work: Work::Call(Some(called)), settle, watching: None, engine });
        Ok(ticket)
    }

    /// Begins a read of a file's range; None is awaited where what is ahead has failed, and the origin is to be asked `past` that.
    fn bring(
        &self,
        py: Python<'_>,
        file: &File,
        range: Range<u64>,
        past: bool,
        show: impl FnOnce(Python<'_>, Option<There>) -> PyResult<Py<PyAny>> + Send + 'static,
    ) -> PyResult<u64> {
        let (open, ticket) = (file.open(py)?, self.ticket()?);
        let mut begun = file.begin(py, &open, &range, past)?;
        let reading = begun.reading.take();
        let (engine, ended, is_ahead) = (open.engine.clone(), self.awaited.ended.clone(), reading.is_none());
        let answer = begun.answer.clone();
        let settle: Settle = Box::new(move |py, _| {
            // What is read goes with it.
            let _open = open;
            match begun.answer.get() {
                Some(Ok(pieces)) => show(py, Some(begun.there(pieces))),
                Some(Err(_)) if is_ahead => show(py, None),
                Some(Err(failure)) => Err(failure.raise(py)),
                // It is not waited for where the client was closed.
                None => Err(Engine::closed().raise(py)),
            }
        });
        self.add(ticket, Pending { work: Work::Reading(reading), settle, watching: None, engine });
        answer.when_there(move || ended.note(ticket));
        Ok(ticket)
    }
}

/// A range that `AsyncClient` has to make another of first.
fn unresolved() -> Failure {
    Failure::usage("read", "a range that is empty or counted from the end")
        .with_hint("stat the object first, and count from its start")
}

/// The buffer of a read that ended well.
fn read(
    py: Python<'_>,
    made: &Made,
    url: &str,
    location: &Location,
    report: Option<Report>,
) -> PyResult<Py<PyAny>> {
    let info = Info::of_report(url, location, whole(py, report)?);
    let block = made.take().ok_or_else(|| Failure::panicked().raise(py))?;
    Ok(Py::new(py, Buffer::from(block).with_info(info))?.into_any())
}

/// What a transfer that ended well has left.
fn whole(py: Python<'_>, report: Option<Report>) -> PyResult<Report> {
    report.ok_or_else(|| Failure::panicked().raise(py))
}

/// Of a read that failed: where the object may have no bytes there the exception is handed out, to be looked into.
fn unless_of_nothing(py: Python<'_>, failure: &Failure, span: &Span) -> PyResult<Py<PyAny>> {
    match failure.may_be_of_nothing(span) {
        true => Ok(failure.exception(py)?.unbind()),
        false => Err(failure.raise(py)),
    }
}

#[pymethods]
impl Completions {
    #[new]
    fn new() -> PyResult<Completions> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let event = event.map_err(std::io::Error::from)?;
        let ended = Arc::new(Ended { event, tickets: Mutex::default() });
        let awaited = Arc::new(Awaited { ended, calls: Mutex::default() });
        Ok(Completions { awaited, process: std::process::id() })
    }

    /// A descriptor that is readable when calls have ended.
    fn fileno(&self) -> i32 {
        self.awaited.ended.event.as_raw_fd()
    }

    /// What has ended since: ``(ticket, result, exception)``.
    #[allow(clippy::type_complexity)]
    fn take(&self, py: Python<'_>) -> PyResult<Vec<(u64, Option<Py<PyAny>>, Option<Py<PyAny>>)>> {
        let mut taken = Vec::new();
        for ticket in self.awaited.ended.take() {
            let pending = {
                let mut calls = self.calls();
                let pending = calls.pending.remove(&ticket);
                let was_given_up = calls.given_up.remove(&ticket);
                if pending.is_none() && !was_given_up && !calls.is_closed {
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

    /// Asks for the end of a call, which ends as any other; whether that is to be waited for.
    fn cancel(&self, ticket: u64) -> bool {
        let mut calls = self.calls();
        let Some(pending) = calls.pending.get_mut(&ticket) else { return false };
        match &mut pending.work {
            Work::Transfer(transfer) => {
                transfer.cancel_switch().cancel();
                true
            }
            Work::Call(called) => {
                let called = called.take();
                drop(calls);
                drop(called);
                false
            }
            Work::Reading(reading) => {
                let reading = reading.take();
                // Nothing lands in the caller's buffer before it is settled, so that it can go at once.
                let pending = calls.pending.remove(&ticket);
                calls.given_up.insert(ticket);
                drop(calls);
                drop(pending);
                if reading.is_some_and(Reading::cancel) {
                    self.calls().given_up.remove(&ticket);
                }
                false
            }
        }
    }

    /// Ends all calls, and returns when nothing touches their buffers any more.
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
        pending.values().filter_map(Pending::switch).for_each(|switch| switch.cancel());
        let mut pending: Vec<Pending> = pending.into_values().collect();
        let watching: Vec<_> = pending.iter_mut().filter_map(|pending| pending.watching.take()).collect();
        exit::detached(py, || drop(pending));
        watching.into_iter().for_each(|watching| watching.end(py));
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
        let location = place(py, "read", &url)?;
        let made = Made::new();
        let get = Get::new(location.clone(), Landing::Made(made.clone()));
        let Asked::Span(span) = asked(start, end) else { return Err(unresolved().raise(py)) };
        let get = conditional(get.with_span(span.clone()), if_match.as_deref());
        let get = of_version(get, version_id.as_deref());
        self.begin(py, client, get, progress, move |py, end| {
            let report = match end {
                // To be looked into: it is handed out, not raised.
                Err(failure) => return unless_of_nothing(py, &failure, &span),
                Ok(report) => report,
            };
            read(py, &made, &url, &location, report)
        })
    }

    /// One of many: as many bytes at most as are said, or else those of a small object; an int is awaited where there are more.
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
        let location = place(py, "read", &url)?;
        let Asked::Span(span) = asked(start, end) else { return Err(unresolved().raise(py)) };
        let (get, made) = get_of(location.clone(), span.clone(), bytes);
        let get = of_version(conditional(get, if_match.as_deref()), version_id.as_deref());
        let watching = Watching::begin(py, progress, location.name())?;
        let watched = made.clone();
        let settle = move |py: Python<'_>, end: Result<Option<Report>, Failure>| match (end, made.beyond()) {
            (_, Some(bytes)) => Ok(bytes.into_pyobject(py)?.into_any().unbind()),
            (Err(failure), None) => unless_of_nothing(py, &failure, &span),
            (Ok(report), None) => read(py, &made, &url, &location, report),
        };
        self.begin_on(py, client.engine(py)?, get, Some(&watched), watching, settle)
    }

    /// Whether a read failed since the object has no bytes there; that of a read whose result is an exception.
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
        let location = place(py, "read", &url)?;
        let span = asked(start, end);
        self.call(
            py,
            client,
            move |engine| Ok(engine.stat_version(&location, version_id.as_deref()).ok()),
            move |py, stat| {
                let is_nothing = match (stat, span) {
                    (Some(stat), Asked::Span(span)) => has_nothing(&stat, &span, if_match.as_deref()),
                    _ => false,
                };
                Ok(is_nothing.into_pyobject(py)?.to_owned().into_any().unbind())
            },
        )
    }

    /// How many bytes landed, and what was told of the object, are awaited.
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
        let location = place(py, "read", &url)?;
        let lent = Lent::new(buffer)?;
        let Asked::Span(span) = asked(start, end) else { return Err(unresolved().raise(py)) };
        // SAFETY: what settles the call holds `lent` beside the transfer, and drops it behind that.
        let landing = Landing::Memory(unsafe { lent.memory(0, lent.len()) });
        let get = Get::new(location.clone(), landing).with_span(span.clone());
        let get = of_version(conditional(get, if_match.as_deref()), version_id.as_deref());
        self.begin(py, client, get, progress, move |py, end| {
            lent.release(py);
            let report = match end {
                Err(failure) => return unless_of_nothing(py, &failure, &span),
                Ok(report) => whole(py, report)?,
            };
            let (bytes, info) = (report.bytes, Info::of_report(&url, &location, report));
            Ok((bytes, info.as_deref().cloned()).into_pyobject(py)?.into_any().unbind())
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
        let get = Get::new(place(py, "read", &url)?, Landing::File(path));
        let get = of_version(conditional(get, if_match.as_deref()), version_id.as_deref());
        self.begin(py, client, get, progress, |py, end| {
            let report = whole(py, end.map_err(|failure| failure.raise(py))?)?;
            Ok(report.bytes.into_pyobject(py)?.into_any().unbind())
        })
    }

    #[pyo3(signature = (client, url, *, version_id=None))]
    fn stat(
        &self,
        py: Python<'_>,
        client: &Client,
        #[pyo3(from_py_with = arguments::url)] url: String,
        version_id: Option<String>,
    ) -> PyResult<u64> {
        let location = place(py, "stat", &url)?;
        let asked = location.clone();
        self.call(
            py,
            client,
            move |engine| engine.stat_version(&asked, version_id.as_deref()),
            move |py, stat| Ok(Py::new(py, Info::of_stat(&url, &location, stat))?.into_any()),
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
        let location = place(py, "presign", &url)?;
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
                let infos: Vec<_> = page.into_iter().map(|entry| Info::of_entry(&bucket, entry)).collect();
                Ok(infos.into_pyobject(py)?.into_any().unbind())
            },
        )
    }

    /// A range of a file that is not empty, as a Buffer or as bytes; None is awaited where what is ahead has failed.
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
            let made = Made::new();
            let get = file.bulk(range, Landing::Made(made.clone()));
            return self.begin(py, client, get, None, move |py, end| {
                end.map_err(|failure| failure.raise(py))?;
                let block = made.take().ok_or_else(|| Failure::panicked().raise(py))?;
                Ok(Py::new(py, Buffer::from(block))?.into_any())
            });
        }
        self.bring(py, file, range, past, move |py, there| {
            Ok(match there {
                None => py.None(),
                Some(there) if as_bytes => there.bytes(py)?.into_any().unbind(),
                Some(there) => Py::new(py, there.buffer(py)?)?.into_any(),
            })
        })
    }

    /// Fills ``buffer`` from ``offset`` of a file on, where there is something of it; how many bytes, or None as of ``pread``.
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
        let lent = Lent::new(buffer)?;
        let (file, range) = (file.get(), file.get().range(offset, Some(lent.len() as u64)));
        if file.is_bulk(&range) {
            // SAFETY: what settles the call holds `lent` beside the transfer, and drops it behind that.
            let landing = Landing::Memory(unsafe { lent.memory(0, lent.len()) });
            return self.begin(py, client, file.bulk(range, landing), None, move |py, end| {
                lent.release(py);
                let report = whole(py, end.map_err(|failure| failure.raise(py))?)?;
                Ok(report.bytes.into_pyobject(py)?.into_any().unbind())
            });
        }
        self.bring(py, file, range, past, move |py, there| {
            let count = there.map(|there| there.fill(py, &lent));
            lent.release(py);
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
        let location = place(py, "list", &url)?;
        let bucket = Info::bucket_of(&location);
        self.call(
            py,
            client,
            move |engine| engine.list(&location, recursive)?.collect::<Result<Vec<_>, _>>(),
            move |py, entries| {
                let infos: Vec<_> = entries.into_iter().map(|entry| Info::of_entry(&bucket, entry)).collect();
                Ok(infos.into_pyobject(py)?.into_any().unbind())
            },
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
