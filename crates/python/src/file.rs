//! One version of an object, read at any place through the engine's reader.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use flatout_engine::{AlignedBuffer, Error, Get, Object, Pieces, Reader, Reading};
use flatout_wire::range::Span;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::arguments::{self, Ends};
use crate::borrowed_buffer::BorrowedBuffer;
use crate::buffer::Buffer;
use crate::client::Client;
use crate::destination::Destination;
use crate::engine::Engine;
use crate::errors::{Failure, OrRaise};
use crate::exit;
use crate::log;
use crate::object_ref::ObjectRef;
use crate::per_process::PerProcess;
use crate::prefetch::Prefetcher;
use crate::read_result::ReadResult;
use crate::span::within;
use crate::uninit_bytes::UninitBytes;
use crate::waiting;

/// Reads one version of an object at any place, from any thread. Positions and lengths are in bytes, counted
/// from 0.
///
/// Reads that follow a pattern are prefetched; a read that follows none is one request of exactly its bytes.
/// Once another version has replaced the object, reads that need the origin raise
/// :class:`flatout.ObjectChanged`.
#[pyclass(frozen, weakref, module = "flatout")]
pub struct File {
    client: Py<Client>,
    /// The URL as it was written.
    #[pyo3(get)]
    url: String,
    object: Object,
    /// The ``version_id`` that the file was opened with.
    #[pyo3(get)]
    version_id: Option<String>,
    open: PerProcess<OpenReader>,
    is_closed: AtomicBool,
    reads: AtomicU64,
    served_bytes: AtomicU64,
}

/// From here on a read is a transfer of its own; shorter ones gain more by prefetching.
const BULK_BYTES: u64 = 64 << 20;

/// What a process holds of an open file.
pub struct OpenReader {
    // Both are dropped before the engine that they belong to.
    prefetcher: Prefetcher,
    reader: Reader,
    pub engine: Arc<Engine>,
}

/// A read that has been started.
pub struct StartedRead {
    pub result: ReadResult,
    /// None for bytes that [`File::prefetch`] requested: this read must not cancel them.
    pub reading: Option<Reading>,
    /// How many bytes of the result come before those that are read.
    skip: usize,
    bytes: usize,
}

impl StartedRead {
    pub fn landed(&self, pieces: Arc<Pieces>) -> LandedBytes {
        LandedBytes { pieces, skip: self.skip, bytes: self.bytes }
    }
}

/// The bytes of a read, where they landed.
pub struct LandedBytes {
    pieces: Arc<Pieces>,
    /// How many bytes of the pieces come before those that are read.
    skip: usize,
    bytes: usize,
}

impl LandedBytes {
    /// Hands out the slices, each with its place among the bytes.
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

    /// Copies them to a new buffer.
    pub fn buffer(&self, py: Python<'_>) -> PyResult<Buffer> {
        let block = exit::copying(py, self.bytes, || {
            let mut block = AlignedBuffer::new(self.bytes as u64)?;
            let all = block.as_mut_slice();
            self.each(|at, slice| all[at..at + slice.len()].copy_from_slice(slice));
            Ok::<_, Error>(block)
        });
        block.map(Buffer::from).or_raise(py)
    }

    /// Copies them to a `bytes`.
    pub fn bytes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        UninitBytes::filled(py, self.bytes, |put| self.each(|_, slice| put(slice)))
    }

    /// Copies them to a buffer of the caller's, which is long enough; how many they are.
    pub fn fill(&self, py: Python<'_>, buffer: &BorrowedBuffer) -> usize {
        exit::copying(py, self.bytes, || self.each(|at, slice| buffer.fill(at, slice)));
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

    /// The engine of this process, unless the file is closed.
    fn engine(&self, py: Python<'_>) -> PyResult<Arc<Engine>> {
        if self.is_closed.load(Ordering::SeqCst) {
            return Err(Failure::usage("read", "I/O operation on closed file").raise(py));
        }
        self.client.get().engine(py)
    }

    /// What this process holds of the file, made if need be; without the interpreter's lock.
    fn opened(&self, engine: &Arc<Engine>) -> Result<Arc<OpenReader>, Failure> {
        self.open.get(|| {
            let reader = engine.reader_of_version(self.object.clone(), self.version_id.as_deref())?;
            let prefetcher = Prefetcher::new(engine.prefetch.clone());
            Ok(OpenReader { prefetcher, reader, engine: engine.clone() })
        })
    }

    /// Refuses a closed file, or one that cannot be opened.
    fn check(&self, py: Python<'_>) -> PyResult<()> {
        let engine = self.engine(py)?;
        let opened = waiting::without_gil(py, || self.opened(&engine).map(drop))?;
        opened.or_raise(py)
    }

    /// Starts to read a range within the object. It is not over only where bytes are missing. With `anew` it
    /// does not take what was prefetched.
    ///
    /// All that needs no origin happens in one go without the interpreter's lock: to get the lock back may
    /// take milliseconds where another thread runs Python code.
    pub fn start(
        &self,
        py: Python<'_>,
        range: &Range<u64>,
        anew: bool,
    ) -> PyResult<(Arc<OpenReader>, StartedRead)> {
        let engine = self.engine(py)?;
        let bytes = usize::try_from(range.end - range.start).expect("a word has 64 bits");
        let started = waiting::without_gil(py, || {
            let open = self.opened(&engine)?;
            let prefetched = if anew { None } else { open.prefetcher.find(&open.reader, range) };
            let started = match prefetched {
                Some((whole, result)) => {
                    let skip = usize::try_from(range.start - whole.start).expect("a word has 64 bits");
                    StartedRead { result, reading: None, skip, bytes }
                }
                None => {
                    let result = ReadResult::default();
                    let put = result.clone();
                    let reading = open.reader.read(range.start, bytes, move |result| put.put(result));
                    StartedRead { result, reading: Some(reading), skip: 0, bytes }
                }
            };
            Ok::<_, Failure>((open, started))
        })?;
        let started = started.or_raise(py)?;
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.served_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        Ok(started)
    }

    /// Reads a range within the object.
    fn read(&self, py: Python<'_>, range: Range<u64>) -> PyResult<LandedBytes> {
        let (open, mut started) = self.start(py, &range, false)?;
        loop {
            let Some(result) = started.result.get() else {
                if let Err(error) = waiting::wait_until(py, &open.engine, |slice| started.result.wait(slice))
                {
                    if let Some(reading) = started.reading {
                        exit::detached(py, || reading.cancel());
                    }
                    return Err(error);
                }
                continue;
            };
            log::report(py, &open.engine);
            match result {
                Ok(pieces) => return Ok(started.landed(pieces)),
                // The prefetch failed: the origin is asked again.
                Err(_) if started.reading.is_none() => started = self.start(py, &range, true)?.1,
                Err(failure) => return Err(failure.raise(py)),
            }
        }
    }

    /// A transfer of a range of the version that the file is pinned to.
    pub fn bulk(&self, range: Range<u64>) -> Get {
        let if_match = Some(self.object.etag.as_deref().expect("only a pinned file is read by transfers"));
        let version_id = self.version_id.as_deref();
        ObjectRef { location: &self.object.location, if_match, version_id }
            .get()
            .with_span(Span::Slice(range))
    }

    /// Whether a range is read by a transfer of its own: by many parts at once, straight to where it is
    /// wanted. A read through the engine's memory would hold the bytes twice. Only a strong ETag pins such a
    /// transfer to the version.
    pub fn is_bulk(&self, range: &Range<u64>) -> bool {
        let is_pinned = self.object.etag.as_deref().is_some_and(|etag| etag.starts_with('"'));
        is_pinned && range.end - range.start >= BULK_BYTES
    }

    fn transfer(
        &self,
        py: Python<'_>,
        range: Range<u64>,
        destination: Destination,
    ) -> PyResult<(usize, Destination)> {
        let engine = self.engine(py)?;
        let done = self.client.get().run(py, &engine, self.bulk(range), destination, None)?;
        let (report, destination) = done.or_raise(py)?;
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.served_bytes.fetch_add(report.bytes, Ordering::Relaxed);
        Ok((usize::try_from(report.bytes).expect("a word has 64 bits"), destination))
    }

    /// At most `bytes` bytes from `at` on, as far as the object goes; without `bytes` all that are left.
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

    /// As sent, with its quotes; None where the origin sent none.
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

    /// Reads ``n`` bytes from ``offset`` on, fewer where the object ends before; all that are left with
    /// ``n=-1``.
    #[pyo3(signature = (offset, n=-1), text_signature = "($self, offset, n=-1)")]
    fn pread(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = arguments::place)] offset: u64,
        #[pyo3(from_py_with = arguments::n)] n: i64,
    ) -> PyResult<Buffer> {
        let range = self.range(offset, u64::try_from(n).ok());
        if range.is_empty() {
            self.check(py)?;
            return Ok(Buffer::empty());
        }
        if self.is_bulk(&range) {
            let (_, made) = self.transfer(py, range, Destination::made())?;
            return made.into_buffer().or_raise(py);
        }
        self.read(py, range)?.buffer(py)
    }

    /// Reads like :meth:`pread`, into ``bytes``.
    #[pyo3(signature = (offset, n=-1), text_signature = "($self, offset, n=-1)")]
    fn pread_bytes<'py>(
        &self,
        py: Python<'py>,
        #[pyo3(from_py_with = arguments::place)] offset: u64,
        #[pyo3(from_py_with = arguments::n)] n: i64,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let range = self.range(offset, u64::try_from(n).ok());
        if range.is_empty() {
            self.check(py)?;
            return Ok(PyBytes::new(py, b""));
        }
        if self.is_bulk(&range) {
            let bytes = usize::try_from(range.end - range.start).expect("a word has 64 bits");
            let zeros = Destination::Bytes(UninitBytes::zeros(py, bytes)?);
            let (_, filled) = self.transfer(py, range, zeros)?;
            return filled.into_bytes(py).or_raise(py);
        }
        self.read(py, range)?.bytes(py)
    }

    /// Fills ``buffer`` from ``offset`` on, as far as the object goes, and returns the number of bytes.
    ///
    /// Raises:
    ///     BufferError: it is read-only, or not C-contiguous.
    fn preadinto(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = arguments::place)] offset: u64,
        buffer: &Bound<'_, PyAny>,
    ) -> PyResult<usize> {
        let buffer = BorrowedBuffer::new(buffer)?;
        let range = self.range(offset, Some(buffer.len() as u64));
        if range.is_empty() {
            buffer.release(py);
            self.check(py)?;
            return Ok(0);
        }
        if self.is_bulk(&range) {
            let (bytes, buffer) = self.transfer(py, range, Destination::Borrowed(buffer))?;
            buffer.release(py);
            return Ok(bytes);
        }
        let read = self.read(py, range).map(|landed| landed.fill(py, &buffer));
        buffer.release(py);
        read
    }

    /// Announces ranges that will be read, in this order, as pairs ``(start, end)`` like in a slice. They are
    /// fetched as far as memory goes, and the rest as soon as those have been read. Returns at once.
    fn prefetch(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = arguments::ranges)] ranges: Vec<Ends>,
    ) -> PyResult<()> {
        let engine = self.engine(py)?;
        let ranges = ranges.into_iter().map(|(start, end)| within(start, end, self.object.size)).collect();
        let added = waiting::without_gil(py, || {
            self.opened(&engine).map(|open| open.prefetcher.add(&open.reader, ranges))
        })?;
        added.or_raise(py)
    }

    /// Closes the file and frees its memory. Calling it again does nothing.
    fn close(&self, py: Python<'_>) {
        if !self.is_closed.swap(true, Ordering::SeqCst) {
            exit::detached(py, || drop(self.open.take()));
        }
    }

    fn __repr__(&self) -> String {
        format!("File({:?}, {} bytes)", self.url, self.object.size)
    }
}
