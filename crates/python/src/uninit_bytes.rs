//! A new `bytes` object that is filled without the interpreter's lock and without a further copy.

use pyo3::exceptions::PyMemoryError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::borrowed_buffer::advise_huge_pages;
use crate::exit;

/// A `bytes` object that no Python code has seen yet, so that it may still be written to.
pub struct UninitBytes {
    bytes: Py<PyBytes>,
    /// The address of its first byte; a number, because a pointer cannot be sent to another thread.
    start: usize,
    length: usize,
}

impl UninitBytes {
    /// Filled with zeros, for a transfer to write to.
    pub fn zeros(py: Python<'_>, length: usize) -> PyResult<UninitBytes> {
        let fresh = UninitBytes::new(py, length)?;
        let start = fresh.start;
        exit::detached(py, || {
            advise_huge_pages(start as *mut u8, length);
            // SAFETY: within the object, which no other code has seen.
            unsafe { (start as *mut u8).write_bytes(0, length) };
        });
        Ok(fresh)
    }

    /// The slices that `fill` puts there, one behind the other, and zeros behind them.
    ///
    /// # Panics
    /// When `fill` puts more than fits.
    pub fn filled<'py>(
        py: Python<'py>,
        length: usize,
        fill: impl FnOnce(&mut dyn FnMut(&[u8])) + Send,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let fresh = UninitBytes::new(py, length)?;
        let start = fresh.start;
        exit::copying(py, length, || {
            advise_huge_pages(start as *mut u8, length);
            let mut at = 0;
            fill(&mut |from| {
                assert!(from.len() <= length - at, "within the object");
                // SAFETY: within the object, which no other code has seen.
                unsafe {
                    std::ptr::copy_nonoverlapping(from.as_ptr(), (start as *mut u8).add(at), from.len())
                };
                at += from.len();
            });
            // SAFETY: within the object, which is initialised to its end by this.
            unsafe { (start as *mut u8).add(at).write_bytes(0, length - at) };
        });
        Ok(fresh.into_bytes(py))
    }

    /// Not initialised.
    fn new(py: Python<'_>, length: usize) -> PyResult<UninitBytes> {
        let size = isize::try_from(length).map_err(|_| PyMemoryError::new_err("too long"))?;
        // SAFETY: without a source it makes a new object of that length, or raises.
        let bytes = unsafe {
            Bound::from_owned_ptr_or_err(py, ffi::PyBytes_FromStringAndSize(std::ptr::null(), size))?
        };
        // SAFETY: the function makes a `bytes` and nothing else.
        let bytes = unsafe { bytes.cast_into_unchecked::<PyBytes>() };
        // SAFETY: it is a `bytes`, which has such a pointer.
        let start = unsafe { ffi::PyBytes_AsString(bytes.as_ptr()) } as usize;
        Ok(UninitBytes { bytes: bytes.unbind(), start, length })
    }

    /// The first byte.
    pub fn start(&self) -> *mut u8 {
        self.start as *mut u8
    }

    pub fn len(&self) -> usize {
        self.length
    }

    pub fn into_bytes(self, py: Python<'_>) -> Bound<'_, PyBytes> {
        self.bytes.into_bound(py)
    }
}
