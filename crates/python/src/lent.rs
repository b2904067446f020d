//! A buffer of the caller's, lent to a transfer. Its exporter keeps it where it is until it is given back.

use flatout_engine::Memory;
use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::{PyBufferError, PyMemoryError, PyTypeError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyMemoryView};

use crate::exit;

/// A writable, contiguous buffer of Python's, held.
pub struct Lent {
    held: PyUntypedBuffer,
    start: *mut u8,
    bytes: usize,
}

// SAFETY: the memory belongs to the exporter, which neither moves nor frees it while `held` lives; whoever takes `memory` has
// promised that one writer at a time touches each byte.
unsafe impl Send for Lent {}
// SAFETY: as above.
unsafe impl Sync for Lent {}

impl Lent {
    /// Holds `object`'s buffer.
    ///
    /// # Errors
    /// TypeError for what has no buffer, BufferError for one that is read-only or not contiguous: with what to do instead.
    pub fn new(object: &Bound<'_, PyAny>) -> PyResult<Lent> {
        let kind = || object.get_type().name().map_or_else(|_| "object".to_owned(), |name| name.to_string());
        let held = held(object).map_err(|error| match error.is_instance_of::<PyTypeError>(object.py()) {
            true => PyTypeError::new_err(format!(
                "a writable buffer is wanted, not {}: pass a bytearray, a numpy array, a memoryview or a tensor's .numpy()",
                kind()
            )),
            // It has one, and does not lend it: it says why.
            false => error,
        })?;
        if held.readonly() {
            return Err(PyBufferError::new_err(format!(
                "this {} is read-only: pass a bytearray, or a numpy array that owns its memory",
                kind()
            )));
        }
        if holds_references(held.format().to_bytes()) {
            return Err(PyTypeError::new_err(format!(
                "this {} holds references to objects, not bytes",
                kind()
            )));
        }
        if !held.is_c_contiguous() {
            return Err(PyBufferError::new_err(format!(
                "this {} is not C-contiguous: read into a contiguous one, such as numpy.empty, and copy from there",
                kind()
            )));
        }
        let (start, bytes) = (held.buf_ptr().cast(), held.len_bytes());
        advise_huge_pages(start, bytes);
        Ok(Lent { held, start, bytes })
    }

    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Where its first `bytes` bytes are, as numbers.
    pub fn place(&self, bytes: usize) -> std::ops::Range<usize> {
        let start = self.start as usize;
        start..start + bytes
    }

    /// `bytes` bytes from `at` on, for a transfer.
    ///
    /// # Safety
    /// The transfer has ended before `self` is given back, and no two transfers have bytes in common.
    pub unsafe fn memory(&self, at: usize, bytes: usize) -> Memory {
        assert!(at <= self.bytes && bytes <= self.bytes - at, "within the buffer");
        // SAFETY: within the held buffer, which is writable; Python's memory is initialised as far as anybody can tell. The
        // caller keeps the rest of the promise.
        unsafe { Memory::new(self.start.add(at), bytes) }
    }

    /// Copies `from` to `at`. Whoever else looks at the buffer meanwhile sees what any thread would.
    pub fn fill(&self, at: usize, from: &[u8]) {
        assert!(at <= self.bytes && from.len() <= self.bytes - at, "within the buffer");
        // SAFETY: within the held buffer, and memory of the engine's does not overlap with it.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), self.start.add(at), from.len()) }
    }

    /// Gives it back, with the interpreter's lock.
    pub fn release(self, py: Python<'_>) {
        self.held.release(py);
    }
}

/// An object's buffer. One that leaves out what a plain row of items does not need, as those of ctypes do, is seen through a memoryview,
/// which fills that in.
///
/// # Errors
/// TypeError for what has no buffer; what its exporter says.
pub fn held(object: &Bound<'_, PyAny>) -> PyResult<PyUntypedBuffer> {
    PyUntypedBuffer::get(object).or_else(|error| {
        if !error.is_instance_of::<PyBufferError>(object.py()) {
            return Err(error);
        }
        let view = PyMemoryView::from(object).map_err(|_| error)?;
        PyUntypedBuffer::get(view.as_any())
    })
}

/// Whether items of that format (PEP 3118) hold objects of Python's. Names of fields, which stand between colons, say nothing.
fn holds_references(format: &[u8]) -> bool {
    format.split(|byte| *byte == b':').step_by(2).any(|codes| codes.contains(&b'O'))
}

/// From so many bytes on it pays; NumPy gives the same advice about its own arrays.
const HUGE_BYTES: usize = 4 << 20;

/// Of memory that nobody has touched yet, a page at a time costs more than the transfer (docs/numbers.md).
fn advise_huge_pages(start: *mut u8, bytes: usize) {
    const PAGE: usize = 4096;
    let before = start.align_offset(PAGE);
    if bytes >= HUGE_BYTES {
        // SAFETY: advice about whole pages within the held buffer, which changes no byte; a refusal changes nothing.
        unsafe {
            libc::madvise(start.add(before).cast(), (bytes - before) / PAGE * PAGE, libc::MADV_HUGEPAGE)
        };
    }
}

/// A `bytes` that nobody has seen yet, to be filled without the interpreter's lock and without a copy more.
pub struct Fresh<'py> {
    bytes: Bound<'py, PyBytes>,
    /// Its first byte, as a number: what is sent to the thread that waits is no pointer.
    start: usize,
    length: usize,
}

impl<'py> Fresh<'py> {
    /// Zeros, for a transfer.
    pub fn zeros(py: Python<'py>, length: usize) -> PyResult<Fresh<'py>> {
        let fresh = Fresh::untouched(py, length)?;
        let start = fresh.start;
        exit::detached(py, || {
            advise_huge_pages(start as *mut u8, length);
            // SAFETY: nobody else has seen the object, so that it may still be written to.
            unsafe { (start as *mut u8).write_bytes(0, length) };
        });
        Ok(fresh)
    }

    /// What `fill` puts there, slice behind slice; zeros behind that.
    ///
    /// # Panics
    /// It puts more than fits.
    pub fn filled(
        py: Python<'py>,
        length: usize,
        fill: impl FnOnce(&mut dyn FnMut(&[u8])) + Send,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let fresh = Fresh::untouched(py, length)?;
        let start = fresh.start;
        exit::detached(py, || {
            advise_huge_pages(start as *mut u8, length);
            let mut at = 0;
            fill(&mut |from| {
                assert!(from.len() <= length - at, "within the object");
                // SAFETY: within the object, which nobody else has seen.
                unsafe {
                    std::ptr::copy_nonoverlapping(from.as_ptr(), (start as *mut u8).add(at), from.len())
                };
                at += from.len();
            });
            // SAFETY: as above; now all of it is initialised.
            unsafe { (start as *mut u8).add(at).write_bytes(0, length - at) };
        });
        Ok(fresh.bytes)
    }

    /// Not even initialised.
    fn untouched(py: Python<'py>, length: usize) -> PyResult<Fresh<'py>> {
        let size = isize::try_from(length).map_err(|_| PyMemoryError::new_err("too long"))?;
        // SAFETY: without a source it makes a new object of that length, or raises.
        let bytes = unsafe {
            Bound::from_owned_ptr_or_err(py, ffi::PyBytes_FromStringAndSize(std::ptr::null(), size))?
        };
        // SAFETY: it is a `bytes`, which was made a moment ago.
        let bytes = unsafe { bytes.cast_into_unchecked::<PyBytes>() };
        // SAFETY: as above.
        let start = unsafe { ffi::PyBytes_AsString(bytes.as_ptr()) } as usize;
        Ok(Fresh { bytes, start, length })
    }

    /// All of it.
    ///
    /// # Safety
    /// The transfer has ended before `self` goes or is given to anybody.
    pub unsafe fn memory(&self) -> Memory {
        // SAFETY: initialised, and nobody else has seen it; the caller keeps the rest of the promise.
        unsafe { Memory::new(self.start as *mut u8, self.length) }
    }

    pub fn into_bytes(self) -> Bound<'py, PyBytes> {
        self.bytes
    }
}
