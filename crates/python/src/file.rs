//! One version of an object, read here and there over the engine's reader and its lanes.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use flatout_engine::{Block, Error, Get, Landing, Made, Object, Pieces, Reader};
use flatout_wire::range::Span;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::ahead::Ahead;
use crate::answer::Answer;
use crate::buffer::Buffer;
use crate::client::Client;
use crate::engine::Engine;
use crate::errors::Failure;
use crate::exit;
use crate::lent::{Fresh, Lent};
use crate::per_process::PerProcess;
use crate::span::within;
use crate::waiting;

/// Reads one version of an object at any place, from any thread: positions and lengths in bytes, counted from 0.
///
/// What is read in a pattern is fetched ahead; a read that follows none is one request of exactly its bytes. Once another version
/// stands in the object's place, reads that need the origin raise ObjectChanged.
#[pyclass(frozen, weakref, module = "flatout")]
pub struct File {
    client: Py<Client>,
    /// As it was written.
    #[pyo3(get)]
    url: String,
    object: Object,
    open: PerProcess<Open>,
    is_closed: AtomicBool,
    reads: AtomicU64,
    served_bytes: AtomicU64,
}

/// From so many bytes on a read is a transfer of its own: shorter ones gain more by what is fetched ahead of them.
const BULK_BYTES: u64 = 64 << 20;

/// What a process has of it.
struct Open {
    // Both go before the engine that they belong to.
    ahead: Ahead,
    reader: Reader,
    engine: Arc<Engine>,
}

/// Bytes that have landed.
struct There {
    pieces: Arc<Pieces>,
    /// Of those, what was asked for.
    skip: usize,
    bytes: usize,
}

impl There {
    /// Hands out slice after slice, with where it goes.
    fn each(&self, mut take: impl FnMut(usize, &[u8])) {
        let (mut at, mut skip) = (0, self.skip);
        for slice in self.pieces.slices() {
            let before = skip.min(slice.len());
            skip -= before;
            let slice = &slice[before..];
            let slice = &slice[..slice.len().min(self.bytes - at)];
            take(at, slice);
            at += slice.len();
        }
    }
}

impl File {
    pub fn new(client: Py<Client>, url: String, object: Object) -> File {
        File {
            client,
            url,
            object,
            open: PerProcess::new(),
            is_closed: AtomicBool::new(false),
            reads: AtomicU64::new(0),
            served_bytes: AtomicU64::new(0),
        }
    }

    fn open(&self, py: Python<'_>) -> PyResult<Arc<Open>> {
        if self.is_closed.load(Ordering::SeqCst) {
            return Err(Failure::usage("read", "I/O operation on closed file").raise(py));
        }
        let engine = self.client.get().engine(py)?;
        let opened = waiting::briefly(py, || {
            self.open.get(|| {
                let reader = engine.reader(self.object.clone())?;
                Ok(Open { ahead: Ahead::new(engine.ahead.clone()), reader, engine: engine.clone() })
            })
        })?;
        opened.map_err(|error: Error| Failure::from(error).raise(py))
    }

    /// A range within the object.
    fn bring(&self, py: Python<'_>, range: Range<u64>) -> PyResult<There> {
        let open = self.open(py)?;
        let bytes = usize::try_from(range.end - range.start).expect("a word has 64 bits");
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.served_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        if let Some((ahead, answer)) = waiting::briefly(py, || open.ahead.find(&open.reader, &range))? {
            waiting::until(py, &open.engine, |slice| answer.wait(slice))?;
            // What failed ahead is tried again below, and fails there if it must.
            if let Some(Ok(pieces)) = answer.get() {
                let skip = usize::try_from(range.start - ahead.start).expect("a word has 64 bits");
                return Ok(There { pieces, skip, bytes });
            }
        }
        let answer = Answer::default();
        let told = answer.clone();
        let reading =
            waiting::briefly(py, || open.reader.read(range.start, bytes, move |result| told.put(result)))?;
        if let Err(error) = waiting::until(py, &open.engine, |slice| answer.wait(slice)) {
            exit::detached(py, || reading.cancel());
            return Err(error);
        }
        match answer.get() {
            Some(result) => {
                let pieces = result.map_err(|failure| failure.raise(py))?;
                Ok(There { pieces, skip: 0, bytes })
            }
            None => Err(Failure::panicked().raise(py)),
        }
    }

    /// Whether a range is brought by a transfer of its own: from many parts at once, straight to where it is wanted. A read through
    /// the engine's memory would hold it twice. Only a strong ETag keeps such a transfer to the version.
    fn is_bulk(&self, range: &Range<u64>) -> bool {
        let is_pinned = self.object.etag.as_deref().is_some_and(|etag| etag.starts_with('"'));
        is_pinned && range.end - range.start >= BULK_BYTES
    }

    fn transfer(&self, py: Python<'_>, range: Range<u64>, landing: Landing) -> PyResult<usize> {
        let open = self.open(py)?;
        let Object { location, etag, .. } = &self.object;
        let get = Get::new(location.clone(), landing).with_span(Span::Slice(range));
        let get = get.with_if_match(etag.as_deref().expect("only what is pinned is brought so"));
        let started = waiting::briefly(py, || open.engine.get(get))?;
        let report =
            waiting::report(py, &open.engine, started.map_err(|error| Failure::from(error).raise(py))?)?
                .map_err(|failure| failure.raise(py))?;
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.served_bytes.fetch_add(report.bytes, Ordering::Relaxed);
        Ok(usize::try_from(report.bytes).expect("a word has 64 bits"))
    }

    /// What there is of `bytes` from `at` on; all that is left without them.
    fn range(&self, at: u64, bytes: Option<u64>) -> Range<u64> {
        let start = at.min(self.object.size);
        let end = bytes.map_or(self.object.size, |bytes| at.saturating_add(bytes).min(self.object.size));
        start..end.max(start)
    }
}

#[pymethods]
impl File {
    /// In bytes.
    #[getter]
    fn size(&self) -> u64 {
        self.object.size
    }

    /// As sent, with its quotes; None where the origin told none.
    #[getter]
    fn etag(&self) -> Option<String> {
        self.object.etag.clone()
    }

    /// Seconds since 1970.
    #[getter]
    fn modified(&self) -> Option<f64> {
        self.object.modified_s.map(|s| s as f64)
    }

    #[getter]
    fn client(&self, py: Python<'_>) -> Py<Client> {
        self.client.clone_ref(py)
    }

    #[getter]
    fn closed(&self) -> bool {
        self.is_closed.load(Ordering::SeqCst)
    }

    /// Reads and their bytes so far, of this file in this process.
    #[getter]
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let stats = PyDict::new(py);
        stats.set_item("reads", self.reads.load(Ordering::Relaxed))?;
        stats.set_item("served_bytes", self.served_bytes.load(Ordering::Relaxed))?;
        Ok(stats)
    }

    /// `n` bytes from `offset` on, fewer where the object ends before; all of them with n=-1. Copied once, into a buffer of the
    /// caller's own.
    #[pyo3(signature = (offset, n=-1), text_signature = "($self, offset, n=-1)")]
    fn pread(&self, py: Python<'_>, offset: u64, n: i64) -> PyResult<Buffer> {
        let range = self.range(offset, u64::try_from(n).ok());
        if range.is_empty() {
            self.open(py)?;
            return Ok(Buffer::empty());
        }
        if self.is_bulk(&range) {
            let made = Made::new();
            self.transfer(py, range, Landing::Made(made.clone()))?;
            return made.take().map(Buffer::from).ok_or_else(|| Failure::panicked().raise(py));
        }
        let there = self.bring(py, range)?;
        let block = exit::detached(py, || {
            let mut block = Block::new(there.bytes as u64)?;
            let all = block.as_mut_slice();
            there.each(|at, slice| all[at..at + slice.len()].copy_from_slice(slice));
            Ok::<_, Error>(block)
        });
        block.map(Buffer::from).map_err(|error| Failure::from(error).raise(py))
    }

    /// As `pread`, into `bytes`.
    #[pyo3(signature = (offset, n=-1), text_signature = "($self, offset, n=-1)")]
    fn pread_bytes<'py>(&self, py: Python<'py>, offset: u64, n: i64) -> PyResult<Bound<'py, PyBytes>> {
        let range = self.range(offset, u64::try_from(n).ok());
        if range.is_empty() {
            self.open(py)?;
            return Ok(PyBytes::new(py, b""));
        }
        let bytes = usize::try_from(range.end - range.start).expect("a word has 64 bits");
        if self.is_bulk(&range) {
            let fresh = Fresh::zeros(py, bytes)?;
            // SAFETY: `transfer` returns when it has ended, however it did.
            self.transfer(py, range, Landing::Memory(unsafe { fresh.memory() }))?;
            return Ok(fresh.into_bytes());
        }
        let there = self.bring(py, range)?;
        Fresh::filled(py, bytes, |put| there.each(|_, slice| put(slice)))
    }

    /// Fills `buffer` from `offset` on, as far as the object goes; how many bytes that were.
    fn preadinto(&self, py: Python<'_>, offset: u64, buffer: &Bound<'_, PyAny>) -> PyResult<usize> {
        let lent = Lent::new(buffer)?;
        let range = self.range(offset, Some(lent.len() as u64));
        if range.is_empty() {
            lent.release(py);
            self.open(py)?;
            return Ok(0);
        }
        let read = match self.is_bulk(&range) {
            // SAFETY: `transfer` returns when it has ended, however it did, and `lent` is held until then.
            true => self.transfer(py, range, Landing::Memory(unsafe { lent.memory(0, lent.len()) })),
            false => self.bring(py, range).map(|there| {
                exit::detached(py, || there.each(|at, slice| lent.fill(at, slice)));
                there.bytes
            }),
        };
        lent.release(py);
        read
    }

    /// Says which ranges will be read, in this order: they are asked for at once as far as memory goes, the others as soon as
    /// those have been read. `ranges` are pairs (start, end) as in a slice. Returns at once.
    fn prefetch(&self, py: Python<'_>, ranges: Vec<(Option<i64>, Option<i64>)>) -> PyResult<()> {
        let open = self.open(py)?;
        let ranges = ranges.into_iter().map(|(start, end)| within(start, end, self.object.size)).collect();
        waiting::briefly(py, || open.ahead.say(&open.reader, ranges))
    }

    /// Lets go of what is held for it. Calling it again does nothing.
    fn close(&self, py: Python<'_>) {
        if !self.is_closed.swap(true, Ordering::SeqCst) {
            exit::detached(py, || drop(self.open.take()));
        }
    }

    fn __repr__(&self) -> String {
        format!("File({:?}, {} bytes)", self.url, self.object.size)
    }
}
