//! What asyncio waits for: calls that are begun here, and a descriptor that becomes readable when some have ended.
//!
//! A thread of the engine's notes the ticket of a call that has ended and writes to an eventfd; the loop's thread, with the
//! interpreter's lock, takes the results. So no other thread ever wants that lock.

use std::collections::{HashMap, HashSet};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use flatout_engine::{CancelSwitch, Error, Get, Landing, Made, Transfer};
use flatout_wire::range::Span;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use rustix::event::{EventfdFlags, eventfd};

use crate::buffer::Buffer;
use crate::client::{Client, conditional, place};
use crate::engine::Engine;
use crate::errors::Failure;
use crate::exit;
use crate::info::Info;
use crate::lent::Lent;
use crate::progress::Progress;
use crate::span::{Asked, asked};
use crate::waiting;

/// Makes of what has ended, and its bytes, what Python is to get.
type Settle = Box<dyn FnOnce(Python<'_>, Result<u64, Failure>) -> PyResult<Py<PyAny>> + Send>;

/// A call that somebody awaits.
struct Pending {
    /// None of a call that cannot be cancelled. Goes before what it lands in, which `settle` holds.
    transfer: Option<Transfer>,
    settle: Settle,
    _engine: Arc<Engine>,
}

impl Pending {
    fn switch(&self) -> Option<CancelSwitch> {
        self.transfer.as_ref().map(Transfer::cancel_switch)
    }

    fn settle(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let Pending { transfer, settle, _engine } = self;
        let end = transfer.map_or(Ok(0), |transfer| Ok(transfer.wait()?.bytes));
        settle(py, end.map_err(|error: Error| error.into()))
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
    ended: Arc<Ended>,
    calls: Mutex<Calls>,
    process: u32,
}

#[derive(Default)]
struct Calls {
    next: u64,
    pending: HashMap<u64, Pending>,
    /// Ended before it was known that they had begun.
    early: HashSet<u64>,
    is_closed: bool,
}

impl Completions {
    fn calls(&self) -> MutexGuard<'_, Calls> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
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
        let mut calls = self.calls();
        calls.pending.insert(ticket, pending);
        if calls.early.remove(&ticket) {
            self.ended.note(ticket);
        }
    }

    /// Begins a transfer; `settle` makes of its end what is awaited.
    fn begin(
        &self,
        py: Python<'_>,
        client: &Client,
        get: Get,
        progress: Option<&Progress>,
        settle: impl FnOnce(Python<'_>, Result<u64, Failure>) -> PyResult<Py<PyAny>> + Send + 'static,
    ) -> PyResult<u64> {
        let (engine, ticket) = (client.engine(py)?, self.ticket()?);
        progress.map_or(Ok(()), Progress::begin).map_err(|failure| failure.raise(py))?;
        let ended = self.ended.clone();
        let get = get.on_end(move || ended.note(ticket));
        let started = waiting::briefly(py, || engine.get(get))?;
        let transfer = started.map_err(|error| Failure::from(error).raise(py))?;
        if let Some(progress) = progress {
            progress.watch(transfer.watch(), None);
        }
        self.add(ticket, Pending { transfer: Some(transfer), settle: Box::new(settle), _engine: engine });
        Ok(ticket)
    }

    /// Begins what blocks, on a thread of its own.
    fn call<T: Send + 'static>(
        &self,
        py: Python<'_>,
        client: &Client,
        work: impl FnOnce(&Engine) -> Result<T, Error> + Send + 'static,
        show: impl FnOnce(Python<'_>, T) -> PyResult<Py<PyAny>> + Send + 'static,
    ) -> PyResult<u64> {
        let (engine, ticket) = (client.engine(py)?, self.ticket()?);
        let (tell, told) = std::sync::mpsc::sync_channel(1);
        let (ended, called) = (self.ended.clone(), engine.clone());
        let spawned = std::thread::Builder::new().name("flatout-call".into()).spawn(move || {
            // Nobody may await it any more.
            let _ = tell.send(work(&called));
            ended.note(ticket);
        });
        spawned.map_err(|refused| Failure::local("cannot start a thread", &refused).raise(py))?;
        let told = Mutex::new(told);
        let settle: Settle = Box::new(move |py, _| {
            let told = told.into_inner().unwrap_or_else(PoisonError::into_inner);
            match told.recv() {
                Ok(Ok(done)) => show(py, done),
                Ok(Err(error)) => Err(Failure::from(error).raise(py)),
                Err(_) => Err(Failure::panicked().raise(py)),
            }
        });
        self.add(ticket, Pending { transfer: None, settle, _engine: engine });
        Ok(ticket)
    }
}

#[pymethods]
impl Completions {
    #[new]
    fn new() -> PyResult<Completions> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let event = event.map_err(std::io::Error::from)?;
        let ended = Arc::new(Ended { event, tickets: Mutex::default() });
        Ok(Completions { ended, calls: Mutex::default(), process: std::process::id() })
    }

    /// Readable when calls have ended.
    fn fileno(&self) -> i32 {
        self.ended.event.as_raw_fd()
    }

    /// What has ended since: triples (ticket, result, exception), one of the latter two None.
    #[allow(clippy::type_complexity)]
    fn take(&self, py: Python<'_>) -> PyResult<Vec<(u64, Option<Py<PyAny>>, Option<Py<PyAny>>)>> {
        let mut taken = Vec::new();
        for ticket in self.ended.take() {
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

    /// Asks for the end of a call. It ends as any other: nothing touches its buffer after that.
    fn cancel(&self, ticket: u64) {
        if let Some(switch) = self.calls().pending.get(&ticket).and_then(Pending::switch) {
            switch.cancel();
        }
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
        exit::detached(py, || drop(pending));
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
        progress: Option<&Progress>,
    ) -> PyResult<u64> {
        let location = place(py, "read", url)?;
        let made = Made::new();
        let get = Get::new(location, Landing::Made(made.clone()));
        let Asked::Span(span) = asked(start, end) else {
            return Err(Failure::usage("read", "a range that is empty or counted from the end")
                .with_hint("stat the object first, and count from its start")
                .raise(py));
        };
        self.begin(
            py,
            client,
            conditional(get.with_span(span), if_match.as_deref()),
            progress,
            move |py, end| {
                end.map_err(|failure| failure.raise(py))?;
                let block = made.take().ok_or_else(|| Failure::panicked().raise(py))?;
                Ok(Py::new(py, Buffer::from(block))?.into_any())
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
        progress: Option<&Progress>,
    ) -> PyResult<u64> {
        let location = place(py, "read", url)?;
        let lent = Lent::new(buffer)?;
        let span = match (offset, length) {
            (0, None) => Span::All,
            (offset, None) => Span::From(offset),
            (offset, Some(length)) => Span::Slice(offset..offset.saturating_add(length)),
        };
        // SAFETY: what settles the call holds `lent` beside the transfer, and drops it behind that.
        let landing = Landing::Memory(unsafe { lent.memory(0, lent.len()) });
        let get = conditional(Get::new(location, landing).with_span(span), if_match.as_deref());
        self.begin(py, client, get, progress, move |py, end| {
            lent.release(py);
            Ok(end.map_err(|failure| failure.raise(py))?.into_pyobject(py)?.into_any().unbind())
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
        progress: Option<&Progress>,
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
        }
    }
}
