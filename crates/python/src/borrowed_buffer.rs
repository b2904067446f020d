//! Buffers that Python code passes to a call. The exporter keeps the memory where it is until the buffer is
//! released.

use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::{PyBufferError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::PyMemoryView;

use crate::kind::kind;

/// A writable, contiguous buffer, borrowed until it is released or dropped.
pub struct BorrowedBuffer {
    exported: PyUntypedBuffer,
    start: *mut u8,
    bytes: usize,
}

// SAFETY: the memory belongs to the exporter, which neither moves nor frees it while `exported` lives. A
// transfer that writes to it owns the buffer (`Destination`), so that nothing else of ours writes meanwhile.
unsafe impl Send for BorrowedBuffer {}
// SAFETY: nothing is written through a shared reference but by `fill`, which says who may see it.
unsafe impl Sync for BorrowedBuffer {}

impl BorrowedBuffer {
    /// Borrows `object`'s buffer.
    ///
    /// # Errors
    /// TypeError for an object without a buffer, BufferError for one that is read-only or not contiguous.
    /// Each says what to pass instead.
    pub fn new(object: &Bound<'_, PyAny>) -> PyResult<BorrowedBuffer> {
        let exported = export(object).map_err(|error| match error.is_instance_of::<PyTypeError>(object.py()) {
            true => PyTypeError::new_err(format!(
                "a writable buffer is wanted, not {}: pass a bytearray, a numpy array, a memoryview or a tensor's .numpy()",
                kind(object)
            )),
            // The object has a buffer and refuses to export it: its own error says why.
            false => error,
        })?;
        if exported.readonly() {
            return Err(PyBufferError::new_err(format!(
                "this {} is read-only: pass a bytearray, or a numpy array that owns its memory",
                kind(object)
            )));
        }
        if holds_references(exported.format().to_bytes()) {
            return Err(PyTypeError::new_err(format!(
                "this {} holds references to objects, not bytes",
                kind(object)
            )));
        }
        if !exported.is_c_contiguous() {
            return Err(PyBufferError::new_err(format!(
                "this {} is not C-contiguous: read into a contiguous one, such as numpy.empty, and copy from there",
                kind(object)
            )));
        }
        let (start, bytes) = (exported.buf_ptr().cast(), exported.len_bytes());
        advise_huge_pages(start, bytes);
        Ok(BorrowedBuffer { exported, start, bytes })
    }

    pub fn len(&self) -> usize {
        self.bytes
    }

    /// The first byte.
    pub fn start(&self) -> *mut u8 {
        self.start
    }

    /// The addresses of its first `bytes` bytes.
    pub fn addresses(&self, bytes: usize) -> std::ops::Range<usize> {
        let start = self.start as usize;
        start..start + bytes
    }

    /// Copies `from` to the place `at`. Python code that looks at the buffer meanwhile sees what it would of
    /// any other thread's write.
    pub fn fill(&self, at: usize, from: &[u8]) {
        assert!(at <= self.bytes && from.len() <= self.bytes - at, "within the buffer");
        // SAFETY: within the exported buffer, and the engine's memory does not overlap with it.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), self.start.add(at), from.len()) }
    }

    /// Gives it back, with the interpreter's lock.
    pub fn release(self, py: Python<'_>) {
        self.exported.release(py);
    }
}

/// A contiguous buffer whose bytes are read.
pub struct ReadableBuffer(PyUntypedBuffer);

impl ReadableBuffer {
    /// The buffer of `object`; none where that has none, or one that is not contiguous.
    pub fn contiguous(object: &Bound<'_, PyAny>) -> Option<ReadableBuffer> {
        export(object).ok().filter(PyUntypedBuffer::is_c_contiguous).map(ReadableBuffer)
    }

    /// The buffer of `object`, which an error calls `name`.
    ///
    /// # Errors
    /// TypeError for an object without a buffer, BufferError for one that is not contiguous.
    pub fn named(name: &str, object: &Bound<'_, PyAny>) -> PyResult<ReadableBuffer> {
        let exported = export(object).map_err(|_| {
            PyTypeError::new_err(format!("{name} has bytes, such as b'…', and is no {}", kind(object)))
        })?;
        if holds_references(exported.format().to_bytes()) {
            return Err(PyTypeError::new_err(format!(
                "this {} holds references to objects, not bytes",
                kind(object)
            )));
        }
        match exported.is_c_contiguous() {
            true => Ok(ReadableBuffer(exported)),
            false => Err(PyBufferError::new_err(format!("this {} is not C-contiguous", kind(object)))),
        }
    }

    pub fn len(&self) -> usize {
        self.0.len_bytes()
    }

    /// The first byte; of an empty buffer nothing.
    pub fn start(&self) -> *const u8 {
        self.0.buf_ptr().cast()
    }

    /// Gives it back, with the interpreter's lock.
    pub fn release(self, py: Python<'_>) {
        self.0.release(py);
    }

    /// Shows the bytes to `look`, which keeps the interpreter's lock, so that no Python code writes to them
    /// meanwhile.
    pub fn with_bytes<R>(&self, _py: Python<'_>, look: impl FnOnce(&[u8]) -> R) -> R {
        match self.len() {
            // An empty buffer may have no address.
            0 => look(&[]),
            // SAFETY: the exporter keeps that many bytes there while `self` lives, and the lock is held.
            bytes => look(unsafe { std::slice::from_raw_parts(self.0.buf_ptr().cast::<u8>(), bytes) }),
        }
    }

    /// Copies the bytes to `to`, which has as many. Without the interpreter's lock the result of a concurrent
    /// write is undefined, as of any copy that NumPy makes.
    pub fn copy_to(&self, to: &mut [u8]) {
        assert_eq!(to.len(), self.len(), "as many bytes");
        self.copy_from(0, to);
    }

    /// Fills `to` with the bytes from `at` on, as [`ReadableBuffer::copy_to`].
    pub fn copy_from(&self, at: usize, to: &mut [u8]) {
        assert!(at <= self.len() && to.len() <= self.len() - at, "within the buffer");
        if !to.is_empty() {
            // SAFETY: within the bytes that the exporter keeps there while `self` lives, and `to` is our own
            // memory.
            unsafe { std::ptr::copy_nonoverlapping(self.start().add(at), to.as_mut_ptr(), to.len()) };
        }
    }
}

/// Exports an object's buffer. An exporter that leaves out the shape of a plain row of items, as those of
/// ctypes do, is seen through a memoryview, which fills that in.
///
/// # Errors
/// TypeError for an object without a buffer, or the exporter's own error.
fn export(object: &Bound<'_, PyAny>) -> PyResult<PyUntypedBuffer> {
    PyUntypedBuffer::get(object).or_else(|error| {
        if !error.is_instance_of::<PyBufferError>(object.py()) {
            return Err(error);
        }
        let view = PyMemoryView::from(object).map_err(|_| error)?;
        PyUntypedBuffer::get(view.as_any())
    })
}

/// Whether items of that format (PEP 3118) are references to Python objects. Field names, which stand between
/// colons, do not count.
fn holds_references(format: &[u8]) -> bool {
    format.split(|byte| *byte == b':').step_by(2).any(|codes| codes.contains(&b'O'))
}

/// Huge pages pay from here on; NumPy gives the same advice about its own arrays.
const HUGE_BYTES: usize = 4 << 20;

/// Asks for huge pages: the page faults of untouched memory, 4 KiB each, would cost more than the transfer
/// (docs/numbers.md).
pub fn advise_huge_pages(start: *mut u8, bytes: usize) {
    const PAGE: usize = 4096;
    let before = start.align_offset(PAGE);
    if bytes >= HUGE_BYTES {
        // SAFETY: `before` is less than a page, and `bytes` far more. madvise(2) itself changes no byte, and
        // its refusal is of no account.
        unsafe {
            libc::madvise(
                start.wrapping_add(before).cast(),
                (bytes - before) / PAGE * PAGE,
                libc::MADV_HUGEPAGE,
            )
        };
    }
}
