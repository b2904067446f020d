//! Reads of several objects at once for one thread of Python's: started by number, taken as they end,
//! cancelled together.

use std::sync::Arc;

use flatout_engine::{ErrorKind, Report};
use flatout_wire::range::Span;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::buffer::Buffer;
use crate::call_progress::CallProgress;
use crate::client::Client;
use crate::destination::Destination;
use crate::engine::Engine;
use crate::errors::{Failure, OrRaise};
use crate::object_ref::{ObjectRef, parse_url};
use crate::transfer_set::{Ended, Order, TransferSet};

/// Reads of ranges of several objects at once, for one thread: started by number, taken as they end.
#[pyclass(module = "flatout._native")]
pub struct ReadQueue {
    reads: TransferSet<QueuedRead>,
    engine: Arc<Engine>,
    progress: Option<CallProgress>,
}

struct QueuedRead {
    url: String,
    /// The version that the read has to be of.
    of: Option<Py<ObjectVersion>>,
}

/// The version of an object that was read, as far as the origin tells.
#[pyclass(name = "Version", frozen, get_all, module = "flatout._native")]
pub struct ObjectVersion {
    /// Bytes of the whole object.
    size: Option<u64>,
    /// As sent, quotes included.
    etag: Option<String>,
    /// The Last-Modified header as sent.
    modified: Option<String>,
}

#[pymethods]
impl ReadQueue {
    /// `progress` reports all of them; `title` names the bar.
    #[new]
    #[pyo3(signature = (client, progress=None, title=""))]
    fn new(
        py: Python<'_>,
        client: &Client,
        progress: Option<&Bound<'_, PyAny>>,
        title: &str,
    ) -> PyResult<ReadQueue> {
        let engine = client.engine(py)?;
        let progress = Some(CallProgress::begin(py, progress, title)?);
        Ok(ReadQueue { reads: TransferSet::new(engine.clone(), Order::End), engine, progress })
    }

    /// The client's memory limit, which bounds what has landed and has not been taken.
    #[getter]
    fn memory_bytes(&self) -> u64 {
        self.engine.memory_bytes
    }

    /// Starts to read ``start..end``, which is not empty, as far as the object goes; of the version ``of``,
    /// if one is named.
    #[pyo3(signature = (number, url, start, end, of=None))]
    fn start(
        &mut self,
        py: Python<'_>,
        number: u64,
        url: String,
        start: u64,
        end: u64,
        of: Option<Py<ObjectVersion>>,
    ) -> PyResult<()> {
        let location = parse_url(py, "read", &url)?;
        let if_match = of.as_ref().and_then(|version| version.get().etag.as_deref());
        let get = ObjectRef { location: &location, if_match, version_id: None }.get();
        let get = get.with_span(Span::Slice(start..end));
        let started = self.reads.start(py, number, get, Destination::made(), QueuedRead { url, of })?;
        let transfer = started.or_raise(py)?;
        if let Some(progress) = &self.progress {
            progress.watch(transfer);
        }
        Ok(())
    }

    /// Waits for a read to end: its number, its bytes, and the version that was read.
    ///
    /// Raises the error of a read that failed; the others go on. ValueError where nothing has been started.
    fn next(&mut self, py: Python<'_>) -> PyResult<(u64, Buffer, ObjectVersion)> {
        let Some(ended) = self.reads.next(py)? else {
            return Err(PyValueError::new_err("nothing has been started"));
        };
        let Ended { number, result, destination, item: QueuedRead { url, of } } = ended;
        let report = result.or_raise(py)?;
        if let Some(of) = of {
            of.get().check(&url, &report).or_raise(py)?;
        }
        let buffer = destination.into_buffer().or_raise(py)?;
        let flatout_engine::Version { etag, last_modified: modified, size } = report.version;
        Ok((number, buffer, ObjectVersion { size, etag, modified }))
    }

    /// Cancels the reads in flight. When it returns, no thread writes to their memory.
    fn close(&mut self, py: Python<'_>) {
        self.reads.clear();
        if let Some(progress) = self.progress.take() {
            progress.end(py);
        }
    }
}

impl Drop for ReadQueue {
    fn drop(&mut self) {
        self.reads.clear();
        if let Some(progress) = self.progress.take() {
            // Without an interpreter there is no bar to remove.
            Python::try_attach(|py| progress.end(py));
        }
    }
}

impl ObjectVersion {
    /// Compares it with the version of a read. Where there is an ETag, If-Match has made sure already.
    fn check(&self, url: &str, report: &Report) -> Result<(), Failure> {
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
