//! Several reads at once for one thread of Python's: begun by number, handed over as they end, cancelled together.

use std::collections::HashMap;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use flatout_engine::{ErrorKind, Get, Landing, Report, Transfer};
use flatout_wire::range::Span;
use pyo3::prelude::*;

use crate::blocks::Block;
use crate::buffer::Buffer;
use crate::client::Client;
use crate::engine::Engine;
use crate::errors::{Failure, location};
use crate::progress::{Progress, Source};
use crate::waiting;

/// Reads of ranges, as many at once as were started.
#[pyclass(frozen, module = "flatout._native")]
pub struct Fetches {
    engine: Arc<Engine>,
    progress: Option<Py<Progress>>,
    running: Mutex<HashMap<u64, Fetch>>,
    tell: Sender<u64>,
    told: Mutex<Receiver<u64>>,
}

/// One read. The transfer goes before the memory that it writes to.
struct Fetch {
    transfer: Transfer,
    block: Block,
    url: String,
    of: Option<Py<Version>>,
}

/// Which version of an object was read, as far as the origin tells.
#[pyclass(frozen, get_all, module = "flatout._native")]
pub struct Version {
    size: Option<u64>,
    etag: Option<String>,
    modified: Option<String>,
}

#[pymethods]
impl Fetches {
    /// `progress` is told of all of them.
    #[new]
    #[pyo3(signature = (client, progress=None))]
    fn new(py: Python<'_>, client: &Bound<'_, Client>, progress: Option<Py<Progress>>) -> PyResult<Fetches> {
        let engine = client.get().engine(py)?;
        if let Some(progress) = &progress {
            progress.get().begin().map_err(|failure| failure.raise(py))?;
        }
        let (tell, told) = mpsc::channel();
        Ok(Fetches { engine, progress, running: Mutex::default(), tell, told: Mutex::new(told) })
    }

    /// Begins to read `start..end` of an object, or what there is of it: of that version, if one is named. `number` says
    /// which one it was when it has ended.
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
        let location = location("read", url).map_err(|failure| failure.raise(py))?;
        let bytes =
            end.checked_sub(start).filter(|bytes| *bytes > 0).and_then(|bytes| usize::try_from(bytes).ok());
        let bytes = bytes.ok_or_else(|| Failure::usage("read", "an empty range").raise(py))?;
        let block = Block::new(bytes);
        // SAFETY: `Fetch` drops its transfer before the block, and nobody looks at the block before its end.
        let landing = Landing::Memory(unsafe { block.memory() });
        let tell = self.tell.clone();
        // Whoever wanted to hear it may have gone.
        let get = Get::new(location, landing).with_span(Span::Slice(start..end)).on_end(move || {
            let _ = tell.send(number);
        });
        let etag = of.as_ref().and_then(|version| version.get().etag.clone());
        let get = match etag {
            Some(_etag) => get, //.with_if_match(etag),
            None => get,
        };
        // It may end before it is known here: whoever is told of that looks with this lock.
        let mut running = self.running();
        let transfer = waiting::briefly(py, || self.engine.client.get(get))?;
        let transfer = transfer.map_err(|error| Failure::from(error).raise(py))?;
        if let Some(progress) = &self.progress {
            progress.get().watch(Source::One(transfer.watch()));
        }
        running.insert(number, Fetch { transfer, block, url: url.to_owned(), of });
        Ok(())
    }

    /// Waits for one that ends, and returns its number, its memory, how much of that landed, and the version read.
    ///
    /// Raises what went wrong with it; the others go on.
    fn next(&self, py: Python<'_>) -> PyResult<(u64, Buffer, u64, Version)> {
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
        let Fetch { transfer, block, url, of } = fetch;
        let report = py.detach(|| transfer.wait()).map_err(|error| Failure::from(error).raise(py))?;
        if let Some(of) = of {
            of.get().hold(&url, &report).map_err(|failure| failure.raise(py))?;
        }
        let flatout_engine::Version { etag, last_modified: modified, size } = report.version;
        Ok((number, Buffer::new(block), report.bytes, Version { size, etag, modified }))
    }

    /// Cancels what still runs. When it returns no thread writes to any of its memory.
    fn close(&self, py: Python<'_>) {
        let running = std::mem::take(&mut *self.running());
        py.detach(|| drop(running));
        if let Some(progress) = &self.progress {
            progress.get().end();
        }
    }
}

impl Fetches {
    fn running(&self) -> MutexGuard<'_, HashMap<u64, Fetch>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
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
