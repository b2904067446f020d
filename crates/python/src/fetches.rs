//! Several reads at once for one thread of Python's: begun by number, handed over as they end, cancelled together.

use std::collections::HashMap;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use flatout_engine::{ErrorKind, Get, Landing, Made, Report, Transfer};
use flatout_wire::range::Span;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::buffer::Buffer;
use crate::client::Client;
use crate::engine::Engine;
use crate::errors::Failure;
use crate::waiting;
use crate::watching::Watching;
use crate::which::{conditional, place};

/// Reads of ranges of several objects at once, for one thread: begun by number, handed over as they end.
#[pyclass(frozen, module = "flatout._native")]
pub struct Fetches {
    // Goes before the engine.
    running: Mutex<HashMap<u64, Fetch>>,
    engine: Arc<Engine>,
    watching: Mutex<Option<Watching>>,
    tell: Sender<u64>,
    told: Mutex<Receiver<u64>>,
}

/// One read.
struct Fetch {
    transfer: Transfer,
    made: Made,
    url: String,
    of: Option<Py<Version>>,
}

/// Which version of an object was read, as far as the origin tells.
#[pyclass(frozen, get_all, module = "flatout._native")]
pub struct Version {
    /// Bytes of the whole object.
    size: Option<u64>,
    /// As sent, quotes included.
    etag: Option<String>,
    /// The Last-Modified header as sent.
    modified: Option<String>,
}

#[pymethods]
impl Fetches {
    /// `progress` is told of all of them; `title` is what a bar is called.
    #[new]
    #[pyo3(signature = (client, progress=None, title=""))]
    fn new(
        py: Python<'_>,
        client: &Client,
        progress: Option<&Bound<'_, PyAny>>,
        title: &str,
    ) -> PyResult<Fetches> {
        let engine = client.engine(py)?;
        let watching = Mutex::new(Some(Watching::begin(py, progress, title)?));
        let (tell, told) = mpsc::channel();
        Ok(Fetches { running: Mutex::default(), engine, watching, tell, told: Mutex::new(told) })
    }

    /// What may have landed and not been taken, by the client's settings.
    #[getter]
    fn memory_bytes(&self) -> u64 {
        self.engine.memory_bytes
    }

    /// Begins to read ``start..end``, which is not empty, or what there is of it: of that version, if one is named.
    #[pyo3(signature = (number, url, start, end, of=None))]
    fn start(
        &self,
        py: Python<'_>,
        number: u64,
        url: &str,
        start: u64,
        end: u64,
        of: Option<Py<Version>>,
    ) -> PyResult<()> {
        let location = place(py, "read", url)?;
        let made = Made::new();
        let tell = self.tell.clone();
        let get = Get::new(location, Landing::Made(made.clone())).with_span(Span::Slice(start..end));
        let get = conditional(get, of.as_ref().and_then(|version| version.get().etag.as_deref()));
        let get = get.on_end(move || {
            // Nobody may wait any more.
            let _ = tell.send(number);
        });
        let transfer = waiting::briefly(py, || self.engine.get(get))?;
        let transfer = transfer.map_err(|error| Failure::from(error).raise(py))?;
        if let Some(watching) = &*self.watching() {
            watching.watch(|| transfer.watch());
        }
        self.running().insert(number, Fetch { transfer, made, url: url.to_owned(), of });
        Ok(())
    }

    /// Waits for one that ends: its number, what came, and the version that was read.
    ///
    /// Raises what went wrong with it; the others go on. ValueError where nothing has been started.
    fn next(&self, py: Python<'_>) -> PyResult<(u64, Buffer, Version)> {
        if self.running().is_empty() {
            return Err(PyValueError::new_err("nothing has been started"));
        }
        let mut ended = None;
        waiting::until(py, &self.engine, |slice| {
            let told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
            match told.recv_timeout(slice) {
                Ok(number) => ended = Some(number),
                Err(RecvTimeoutError::Timeout) => return false,
                Err(RecvTimeoutError::Disconnected) => {}
            }
            true
        })?;
        let fetch = ended.and_then(|number| Some((number, self.running().remove(&number)?)));
        let (number, fetch) = fetch.ok_or_else(|| Failure::panicked().raise(py))?;
        let Fetch { transfer, made, url, of } = fetch;
        let report = py.detach(|| transfer.wait()).map_err(|error| Failure::from(error).raise(py))?;
        if let Some(of) = of {
            of.get().hold(&url, &report).map_err(|failure| failure.raise(py))?;
        }
        let memory = made.take().ok_or_else(|| Failure::panicked().raise(py))?;
        let flatout_engine::Version { etag, last_modified: modified, size } = report.version;
        Ok((number, Buffer::from(memory), Version { size, etag, modified }))
    }

    /// Cancels what still runs. When it returns no thread writes to any of its memory.
    fn close(&self, py: Python<'_>) {
        let running = std::mem::take(&mut *self.running());
        if self.engine.is_foreign() {
            // It belongs to the process that forked this one.
            std::mem::forget(running);
        } else {
            running.values().for_each(|fetch| fetch.transfer.cancel_switch().cancel());
            py.detach(|| drop(running));
        }
        let watching = self.watching().take();
        if let Some(watching) = watching {
            watching.end(py);
        }
    }
}

impl Fetches {
    fn running(&self) -> MutexGuard<'_, HashMap<u64, Fetch>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn watching(&self) -> MutexGuard<'_, Option<Watching>> {
        self.watching.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Fetches {
    fn drop(&mut self) {
        if self.engine.is_foreign() {
            std::mem::forget(std::mem::take(&mut *self.running()));
        }
        if let Some(watching) = self.watching().take() {
            // Without an interpreter there is no bar to be taken away.
            Python::try_attach(|py| watching.end(py));
        }
    }
}

impl Version {
    /// If-Match has seen to that already where there is an ETag.
    fn hold(&self, url: &str, report: &Report) -> Result<(), Failure> {
        let now = &report.version;
        let differs = self.size != now.size || self.etag != now.etag || self.modified != now.last_modified;
        if !differs {
            return Ok(());
        }
        let cause = "another version of it was read first";
        Err(Failure::new(ErrorKind::Changed, "read", url, cause)
            .with_hint("it was replaced meanwhile: start over"))
    }
}
