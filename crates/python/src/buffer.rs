//! What a read returns: memory that landed bytes stay in, shown to Python by its buffer protocol and by DLPack. Nothing is copied.

use std::ffi::c_int;
use std::sync::Arc;

use flatout_engine::Block;
use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyMemoryView};

use crate::dlpack;

/// Bytes in memory of their own: writable, aligned to 64 bytes or to pages, one dimension of unsigned bytes.
///
/// `memoryview`, `numpy.frombuffer`, `torch.frombuffer` and `from_dlpack` of either share the memory, which lives as long as
/// anybody does. `len()` is in bytes; a slice is a memoryview; `bytes()` copies.
// It has no way to be let go of early: numpy and torch keep the object and not its export, so nobody could know who still looks.
#[pyclass(frozen, weakref, module = "flatout")]
pub struct Buffer(Arc<Block>);

impl From<Block> for Buffer {
    fn from(block: Block) -> Buffer {
        Buffer(Arc::new(block))
    }
}

impl Buffer {
    pub fn empty() -> Buffer {
        Block::new(0).expect("nothing can be had").into()
    }
}

#[pymethods]
impl Buffer {
    fn __len__(&self) -> usize {
        self.0.len()
    }

    fn __bytes__<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, self.0.as_slice())
    }

    fn __getitem__<'py>(slf: &Bound<'py, Self>, index: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        PyMemoryView::from(slf)?.get_item(index)
    }

    fn __eq__(&self, py: Python<'_>, other: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        let Ok(theirs) = PyUntypedBuffer::get(other) else { return Ok(py.NotImplemented()) };
        if !theirs.is_c_contiguous() {
            return Ok(py.NotImplemented());
        }
        // SAFETY: the exporter keeps so many bytes there while `theirs` lives.
        let same = unsafe { std::slice::from_raw_parts(theirs.buf_ptr().cast::<u8>(), theirs.len_bytes()) }
            == self.0.as_slice();
        Ok(same.into_pyobject(py)?.to_owned().into_any().unbind())
    }

    fn __repr__(&self) -> String {
        format!("Buffer({} bytes)", self.0.len())
    }

    /// A capsule for `from_dlpack`: one dimension of uint8 on the CPU, writable, not copied.
    #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        stream: Option<&Bound<'py, PyAny>>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(i32, i32)>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        if stream.is_some() {
            return Err(PyBufferError::new_err("memory of the CPU has no stream: leave it out"));
        }
        if dl_device.is_some_and(|device| device != dlpack::CPU) {
            return Err(PyBufferError::new_err("this memory is the CPU's: move the array once it is made"));
        }
        if copy == Some(true) {
            return Err(PyBufferError::new_err("nothing is copied here: copy the array once it is made"));
        }
        dlpack::capsule(py, self.0.clone(), max_version)
    }

    fn __dlpack_device__(&self) -> (i32, i32) {
        dlpack::CPU
    }

    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let block = &slf.get().0;
        let bytes = isize::try_from(block.len()).expect("an allocation fits");
        // SAFETY: `view` is the caller's to fill, as the protocol says; it keeps `slf`, and that the memory.
        match unsafe { ffi::PyBuffer_FillInfo(view, slf.as_ptr(), block.as_ptr().cast(), bytes, 0, flags) } {
            0 => Ok(()),
            _ => Err(PyErr::fetch(slf.py())),
        }
    }
}
