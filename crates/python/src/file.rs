//! One version of an object, read here and there over the engine's reader and its lanes.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use flatout_engine::{Block, Error, Get, Landing, Made, Object, Pieces, Reader, Reading};
use flatout_wire::range::Span;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::ahead::Ahead;
use crate::answer::Answer;
use crate::arguments::{self, Ends};
use crate::buffer::Buffer;
use crate::client::Client;
use crate::engine::Engine;
use crate::errors::Failure;
use crate::exit;
use crate::lent::{Fresh, Lent};
use crate::per_process::PerProcess;
use crate::span::within;
use crate::waiting;
use crate::which::of_version;

/// Reads one version of an object at any place, from any thread: positions and lengths in bytes, counted from 0.
///
/// What is read in a pattern is fetched ahead; a read that follows none is one request of exactly its bytes. Once another version
/// stands in the object's place, reads that need the origin raise :class:`flatout.ObjectChanged`.
#[pyclass(frozen, weakref, module = "flatout")]
pub struct File {
    client: Py<Client>,
    /// As it was written.
    #[pyo3(get)]
    url: String,
    object: Object,
    /// The version that was asked for by its id, if one was.
    #[pyo3(get)]
    version_id: Option<String>,
    open: PerProcess<Open>,
    is_closed: AtomicBool,
    reads: AtomicU64,
    served_bytes: AtomicU64,
}

/// From so many bytes on a read is a transfer of its own: shorter ones gain more by what is fetched ahead of them.
const BULK_BYTES: u64 = 64 << 20;

/// What a process has of it.
pub struct Open {
    // Both go before the engine that they belong to.
    ahead: Ahead,
    reader: Reader,
    pub engine: Arc<Engine>,
}

/// A read that has begun.
pub struct Begun {
    pub answer: Answer,
    /// None where somebody said before that these bytes will be read: that read is not this one's to give up.
    pub reading: Option<Reading>,
    /// Of what is answered, that much comes before what was asked for.
    skip: usize,
    bytes: usize,
}

impl Begun {
    pub fn there(&self, pieces: Arc<Pieces>) -> There {
        There { pieces, skip: self.skip, bytes: self.bytes }
    }
}

/// Bytes that have landed.
pub struct There {
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

    /// In a buffer of their own.
    pub fn buffer(&self, py: Python<'_>) -> PyResult<Buffer> {
        let block = exit::detached(py, || {
            let mut block = Block::new(self.bytes as u64)?;
            let all = block.as_mut_slice();
            self.each(|at, slice| all[at..at + slice.len()].copy_from_slice(slice));
            Ok::<_, Error>(block)
        });
        block.map(Buffer::from).map_err(|error| Failure::from(error).raise(py))
    }

    pub fn bytes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        Fresh::filled(py, self.bytes, |put| self.each(|_, slice| put(slice)))
    }

    /// Into a buffer of the caller's, which is long enough; how many they are.
    pub fn fill(&self, py: Python<'_>, lent: &Lent) -> usize {
        exit::detached(py, || self.each(|at, slice| lent.fill(at, slice)));
        self.bytes
    }
}

impl File {
    pub fn new(client: Py<Client>, url: String, object: Object, version_id: Option<String>) -> File {
        File {
            client,
            url,
            object,
            version_id,
            open: PerProcess::new(),
            is_closed: AtomicBool::new(false),
            reads: AtomicU64::new(0),
            served_bytes: AtomicU64::new(0),
        }
    }

    pub fn open(&self, py: Python<'_>) -> PyResult<Arc<Open>> {
        if self.is_closed.load(Ordering::SeqCst) {
            return Err(Failure::usage("read", "I/O operation on closed file").raise(py));
        }
        let engine = self.client.get().engine(py)?;
        let opened = waiting::briefly(py, || {
            self.open.get(|| {
                let reader = engine.reader_of_version(self.object.clone(), self.version_id.as_deref())?;
                Ok(Open { ahead: Ahead::new(engine.ahead.clone()), reader, engine: engine.clone() })
            })
        })?;
        opened.map_err(|error: Error| Failure::from(error).raise(py))
    }

    /// Begins to bring a range within the object: from what is ahead, where somebody said that it will be read, unless it is to go
    /// `past` that.
    pub fn begin(&self, py: Python<'_>, open: &Open, range: &Range<u64>, past: bool) -> PyResult<Begun> {
        let bytes = usize::try_from(range.end - range.start).expect("a word has 64 bits");
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.served_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        let ahead = match past {
            false => waiting::briefly(py, || open.ahead.find(&open.reader, range))?,
            true => None,
        };
        if let Some((ahead, answer)) = ahead {
            let skip = usize::try_from(range.start - ahead.start).expect("a word has 64 bits");
            return Ok(Begun { answer, reading: None, skip, bytes });
        }
        let answer = Answer::default();
        let told = answer.clone();
        let reading =
            waiting::briefly(py, || open.reader.read(range.start, bytes, move |result| told.put(result)))?;
        Ok(Begun { answer, reading: Some(reading), skip: 0, bytes })
    }

    /// A range within the object.
    fn bring(&self, py: Python<'_>, range: Range<u64>) -> PyResult<There> {
        let open = self.open(py)?;
        let mut begun = self.begin(py, &open, &range, false)?;
        loop {
            if let Err(error) = waiting::until(py, &open.engine, |slice| begun.answer.wait(slice)) {
                if let Some(reading) = begun.reading {
                    exit::detached(py, || reading.cancel());
                }
                return Err(error);
            }
            match begun.answer.get() {
                Some(Ok(pieces)) => return Ok(begun.there(pieces)),
                // What failed ahead is tried again, and fails then if it must.
                Some(Err(_)) if begun.reading.is_none() => begun = self.begin(py, &open, &range, true)?,
                Some(Err(failure)) => return Err(failure.raise(py)),
                None => return Err(Failure::panicked().raise(py)),
            }
        }
    }

    /// A transfer of a range of what is pinned.
    pub fn bulk(&self, range: Range<u64>, landing: Landing) -> Get {
        let Object { location, etag, .. } = &self.object;
        let get = Get::new(location.clone(), landing).with_span(Span::Slice(range));
        let get = get.with_if_match(etag.as_deref().expect("only what is pinned is brought so"));
        of_version(get, self.version_id.as_deref())
    }

    /// Whether a range is brought by a transfer of its own: from many parts at once, straight to where it is wanted. A read through
    /// the engine's memory would hold it twice. Only a strong ETag keeps such a transfer to the version.
    pub fn is_bulk(&self, range: &Range<u64>) -> bool {
        let is_pinned = self.object.etag.as_deref().is_some_and(|etag| etag.starts_with('"'));
        is_pinned && range.end - range.start >= BULK_BYTES
    }

    fn transfer(&self, py: Python<'_>, range: Range<u64>, landing: Landing) -> PyResult<usize> {
        let open = self.open(py)?;
        let get = self.bulk(range, landing);
        let started = waiting::briefly(py, || open.engine.get(get))?;
        let report =
            waiting::report(py, &open.engine, started.map_err(|error| Failure::from(error).raise(py))?)?
                .map_err(|failure| failure.raise(py))?;
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.served_bytes.fetch_add(report.bytes, Ordering::Relaxed);
        Ok(usize::try_from(report.bytes).expect("a word has 64 bits"))
    }

    /// What there is of `bytes` from `at` on; all that is left without them.
    pub fn range(&self, at: u64, bytes: Option<u64>) -> Range<u64> {
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

    /// The client whose engine reads.
    #[getter]
    fn client(&self, py: Python<'_>) -> Py<Client> {
        self.client.clone_ref(py)
    }

    /// Whether :meth:`close` was called.
    #[getter]
    fn closed(&self) -> bool {
        self.is_closed.load(Ordering::SeqCst)
    }

    /// ``reads`` and ``served_bytes`` so far, of this file in this process.
    #[getter]
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let stats = PyDict::new(py);
        stats.set_item("reads", self.reads.load(Ordering::Relaxed))?;
        stats.set_item("served_bytes", self.served_bytes.load(Ordering::Relaxed))?;
        Ok(stats)
    }

    /// ``n`` bytes from ``offset`` on, fewer where the object ends before; all of them with ``n=-1``.
    #[pyo3(signature = (offset, n=-1), text_signature = "($self, offset, n=-1)")]
    fn pread(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = arguments::place)] offset: u64,
        #[pyo3(from_py_with = arguments::n)] n: i64,
    ) -> PyResult<Buffer> {
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
        self.bring(py, range)?.buffer(py)
    }

    /// As :meth:`pread`, into ``bytes``.
    #[pyo3(signature = (offset, n=-1), text_signature = "($self, offset, n=-1)")]
    fn pread_bytes<'py>(
        &self,
        py: Python<'py>,
        #[pyo3(from_py_with = arguments::place)] offset: u64,
        #[pyo3(from_py_with = arguments::n)] n: i64,
    ) -> PyResult<Bound<'py, PyBytes>> {
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
        self.bring(py, range)?.bytes(py)
    }

    /// Fills ``buffer`` from ``offset`` on, as far as the object goes; how many bytes that were.
    ///
    /// Raises:
    ///     BufferError: it is read-only, or not C-contiguous.
    fn preadinto(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = arguments::place)] offset: u64,
        buffer: &Bound<'_, PyAny>,
    ) -> PyResult<usize> {
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
            false => self.bring(py, range).map(|there| there.fill(py, &lent)),
        };
        lent.release(py);
        read
    }

    /// Says which ranges will be read, in this order: they are asked for at once as far as memory goes, the others as soon as
    /// those have been read. Pairs ``(start, end)`` as in a slice. Returns at once.
    fn prefetch(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = arguments::ranges)] ranges: Vec<Ends>,
    ) -> PyResult<()> {
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
