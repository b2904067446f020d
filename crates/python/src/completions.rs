//! What asyncio waits for: calls that are begun here, and a descriptor that becomes readable when some have ended.
//!
//! A thread of the engine's notes the ticket of a call that has ended and writes to an eventfd; the loop's thread, with the
//! interpreter's lock, takes the results. So no other thread ever wants that lock.

use std::collections::{HashMap, HashSet};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};

use flatout_engine::{Called, CancelSwitch, Error, Get, Landing, Made, Transfer};
use flatout_wire::range::Span;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use rustix::event::{EventfdFlags, eventfd};

use crate::buffer::Buffer;
use crate::client::{Client, conditional, has_nothing, place};
use crate::engine::{Closing, Engine};
use crate::errors::Failure;
use crate::exit;
use crate::info::Info;
use crate::lent::Lent;
use crate::span::{Asked, asked, from};
use crate::waiting;
use crate::watching::Watching;

/// Makes of what has ended, and its bytes, what Python is to get.
type Settle = Box<dyn FnOnce(Python<'_>, Result<u64, Failure>) -> PyResult<Py<PyAny>> + Send>;

/// A call that somebody awaits.
struct Pending {
    /// None of a call that cannot be cancelled. Goes before what it lands in, which `settle` holds.
    transfer: Option<Transfer>,
    /// Of one without a transfer, until nobody awaits it any more.
    called: Option<Called>,
    settle: Settle,
    watching: Option<Watching>,
    engine: Arc<Engine>,
}

impl Pending {
    fn switch(&self) -> Option<CancelSwitch> {
        self.transfer.as_ref().map(Transfer::cancel_switch)
    }

    fn settle(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let Pending { transfer, called: _, settle, watching, engine } = self;
        let end = transfer.map_or(Ok(0), |transfer| Ok(transfer.wait()?.bytes));
        if let Some(watching) = watching {
            watching.end(py);
        }
        settle(
            py,
            end.map_err(|error: Error| match engine.is_closed() {
                true => Engine::closed(),
                false => error.into(),
            }),
        )
    }
}

/// Whoever ends writes here.
struct Ended {
    event: OwnedFd,
    tickets: Mutex<Vec<u64>>,
}

impl Ended {
    fn note(&self, ticket: u64) {
        let mut tickets = self.tickets.lock().unwrap_or_else(PoisonError::into_inner);
        tickets.push(ticket);
        if tickets.len() == 1 {
            // A counter that is full wakes the loop as well.
            let _ = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
        }
    }

    fn take(&self) -> Vec<u64> {
        let mut tickets = self.tickets.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = rustix::io::read(&self.event, &mut [0_u8; 8]);
        std::mem::take(&mut *tickets)
    }
}

/// Calls that are awaited, of one loop. Use `flatout.AsyncClient`.
#[pyclass(frozen, weakref, module = "flatout._native")]
pub struct Completions {
    awaited: Arc<Awaited>,
    process: u32,
}

/// Says that a call has ended when it is dropped.
struct NotedAtEnd {
    ended: Arc<Ended>,
    ticket: u64,
}

impl Drop for NotedAtEnd {
    fn drop(&mut self) {
        self.ended.note(self.ticket);
    }
}

/// What a client that is closed has to end as well.
struct Awaited {
    ended: Arc<Ended>,
    calls: Mutex<Calls>,
}

#[derive(Default)]
struct Calls {
    next: u64,
    pending: HashMap<u64, Pending>,
    /// Ended before it was known that they had begun.
    early: HashSet<u64>,
    is_closed: bool,
}

impl Awaited {
    fn calls(&self) -> MutexGuard<'_, Calls> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends a call as soon as may be: one without a transfer at once, whatever its thread still does.
    fn end(&self, ticket: u64, pending: &Pending) {
        match pending.switch() {
            Some(switch) => switch.cancel(),
            None => self.ended.note(ticket),
        }
    }
}

impl Closing for Awaited {
    fn closed(&self, engine: &Engine) {
        let calls = self.calls();
        for (ticket, pending) in &calls.pending {
            if std::ptr::eq(&*pending.engine, engine) {
                self.end(*ticket, pending);
            }
        }
    }
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
        settle: impl FnOnce(Python<'_>, Result<u64, Failure>) -> PyResult<Py<PyAny>> + Send + 'static,
    ) -> PyResult<u64> {
        let (engine, ticket) = (client.engine(py)?, self.ticket()?);
        let watching = Watching::begin(py, progress, get.location.name())?;
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
        watching.watch(|| transfer.watch());
        let (transfer, watching) = (Some(transfer), Some(watching));
        self.add(ticket, Pending { transfer, called: None, settle: Box::new(settle), watching, engine });
        Ok(ticket)
    }

    /// Begins what blocks, on a thread of the engine's callers.
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
        let begun = engine.callers.call(move || {
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
        self.add(ticket, Pending { transfer: None, called: Some(called), settle, watching: None, engine });
        Ok(ticket)
    }
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

    /// Readable when calls have ended.
    fn fileno(&self) -> i32 {
        self.awaited.ended.event.as_raw_fd()
    }

    /// What has ended since: triples (ticket, result, exception), one of the latter two None.
    #[allow(clippy::type_complexity)]
    fn take(&self, py: Python<'_>) -> PyResult<Vec<(u64, Option<Py<PyAny>>, Option<Py<PyAny>>)>> {
        let mut taken = Vec::new();
        for ticket in self.awaited.ended.take() {
            let pending = {
                let mut calls = self.calls();
                let pending = calls.pending.remove(&ticket);
                if pending.is_none() && !calls.is_closed {
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

    /// Asks for the end of a call, and says whether that is to be waited for. It ends as any other: nothing touches its buffer
    /// after that.
    fn cancel(&self, ticket: u64) -> bool {
        let mut calls = self.calls();
        let Some(pending) = calls.pending.get_mut(&ticket) else { return false };
        let (switch, called) = (pending.switch(), pending.called.take());
        drop(calls);
        drop(called);
        switch.inspect(CancelSwitch::cancel).is_some()
    }

    /// Ends all calls, and returns when no thread touches a buffer of theirs any more.
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

    #[pyo3(signature = (client, url, start=None, end=None, *, if_match=None, progress=None))]
    #[allow(clippy::too_many_arguments)]
    fn read(
        &self,
        py: Python<'_>,
        client: &Client,
        url: &str,
        start: Option<i64>,
        end: Option<i64>,
        if_match: Option<String>,
        progress: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<u64> {
        let location = place(py, "read", url)?;
        let made = Made::new();
        let get = Get::new(location, Landing::Made(made.clone()));
        let Asked::Span(span) = asked(start, end) else {
            return Err(Failure::usage("read", "a range that is empty or counted from the end")
                .with_hint("stat the object first, and count from its start")
                .raise(py));
        };
        let get = conditional(get.with_span(span.clone()), if_match.as_deref());
        self.begin(py, client, get, progress, move |py, end| {
            match end {
                // To be looked into: it is handed out, not raised.
                Err(failure) if failure.may_be_of_nothing(&span) => {
                    return Ok(failure.exception(py)?.unbind());
                }
                end => end.map_err(|failure| failure.raise(py))?,
            };
            let block = made.take().ok_or_else(|| Failure::panicked().raise(py))?;
            Ok(Py::new(py, Buffer::from(block))?.into_any())
        })
    }

    /// Whether a read failed since the object has no bytes there.
    #[pyo3(signature = (client, url, start=None, end=None, *, if_match=None))]
    fn is_of_nothing(
        &self,
        py: Python<'_>,
        client: &Client,
        url: &str,
        start: Option<i64>,
        end: Option<i64>,
        if_match: Option<String>,
    ) -> PyResult<u64> {
        let location = place(py, "read", url)?;
        let span = asked(start, end);
        self.call(
            py,
            client,
            move |engine| Ok(engine.stat(&location).ok()),
            move |py, stat| {
                let is_nothing = match (stat, span) {
                    (Some(stat), Asked::Span(span)) => has_nothing(&stat, &span, if_match.as_deref()),
                    _ => false,
                };
                Ok(is_nothing.into_pyobject(py)?.to_owned().into_any().unbind())
            },
        )
    }

    #[pyo3(signature = (client, url, buffer, *, offset=0, length=None, if_match=None, progress=None))]
    #[allow(clippy::too_many_arguments)]
    fn readinto(
        &self,
        py: Python<'_>,
        client: &Client,
        url: &str,
        buffer: &Bound<'_, PyAny>,
        offset: u64,
        length: Option<u64>,
        if_match: Option<String>,
        progress: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<u64> {
        let location = place(py, "read", url)?;
        let lent = Lent::new(buffer)?;
        let span = from(offset, length);
        // SAFETY: what settles the call holds `lent` beside the transfer, and drops it behind that.
        let landing = Landing::Memory(unsafe { lent.memory(0, lent.len()) });
        let get = conditional(Get::new(location, landing).with_span(span.clone()), if_match.as_deref());
        self.begin(py, client, get, progress, move |py, end| {
            lent.release(py);
            match end {
                Ok(bytes) => Ok(bytes.into_pyobject(py)?.into_any().unbind()),
                Err(failure) => unless_of_nothing(py, &failure, &span),
            }
        })
    }

    #[pyo3(signature = (client, url, path, *, if_match=None, progress=None))]
    fn download(
        &self,
        py: Python<'_>,
        client: &Client,
        url: &str,
        path: PathBuf,
        if_match: Option<String>,
        progress: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<u64> {
        let get = Get::new(place(py, "read", url)?, Landing::File(path));
        self.begin(py, client, conditional(get, if_match.as_deref()), progress, |py, end| {
            Ok(end.map_err(|failure| failure.raise(py))?.into_pyobject(py)?.into_any().unbind())
        })
    }

    fn stat(&self, py: Python<'_>, client: &Client, url: String) -> PyResult<u64> {
        let location = place(py, "stat", &url)?;
        let asked = location.clone();
        self.call(
            py,
            client,
            move |engine| engine.stat(&asked),
            move |py, stat| Ok(Py::new(py, Info::of_stat(&url, &location, stat))?.into_any()),
        )
    }

    #[pyo3(signature = (client, url, *, recursive=false))]
    fn ls(&self, py: Python<'_>, client: &Client, url: &str, recursive: bool) -> PyResult<u64> {
        let location = place(py, "list", url)?;
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
