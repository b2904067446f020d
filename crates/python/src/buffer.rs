//! What a read returns: memory that landed bytes stay in, shown to Python by its buffer protocol and by DLPack. Nothing is copied.

use std::ffi::c_int;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::{PyBufferError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyMemoryView};

use crate::blocks::{Block, Held};
use crate::dlpack;

/// Bytes in memory of their own: writable, aligned to pages, one dimension of unsigned bytes.
///
/// `memoryview`, `numpy.frombuffer`, `torch.frombuffer` and `from_dlpack` of either share the memory, which lives as long as
/// anybody does. `len()` is in bytes; a slice is a memoryview; `bytes()` copies.
#[pyclass(frozen, weakref, module = "flatout")]
pub struct Buffer {
    memory: Mutex<Option<Arc<Shared>>>,
}

/// The memory, and how many show it.
pub struct Shared {
    held: Held,
    views: AtomicUsize,
}

impl From<Held> for Buffer {
    fn from(held: Held) -> Buffer {
        let shared = Shared { held, views: AtomicUsize::new(0) };
        Buffer { memory: Mutex::new(Some(Arc::new(shared))) }
    }
}

impl From<Block> for Buffer {
    fn from(block: Block) -> Buffer {
        Held::Ours(block).into()
    }
}

impl From<flatout_engine::Block> for Buffer {
    fn from(block: flatout_engine::Block) -> Buffer {
        Held::Made(block).into()
    }
}

impl Buffer {
    pub fn empty() -> Buffer {
        Block::new(0).into()
    }

    /// One more view of the memory.
    pub fn view(&self) -> PyResult<View> {
        let memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        let shared = memory.as_ref().ok_or_else(released)?.clone();
        shared.views.fetch_add(1, Ordering::SeqCst);
        Ok(View(shared))
    }
}

/// Somebody who shows the memory.
pub struct View(Arc<Shared>);

impl View {
    pub fn start(&self) -> *mut u8 {
        self.0.held.start()
    }

    pub fn len(&self) -> usize {
        self.0.held.len()
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: initialised and alive. Whoever writes to it through another view is a thread of Python's that the reader's
        // own program lets do so, as with every buffer of Python's.
        unsafe { std::slice::from_raw_parts(self.start(), self.len()) }
    }
}

impl Drop for View {
    fn drop(&mut self) {
        self.0.views.fetch_sub(1, Ordering::SeqCst);
    }
}

fn released() -> PyErr {
    PyValueError::new_err("this buffer has been released")
}

#[pymethods]
impl Buffer {
    fn __len__(&self) -> PyResult<usize> {
        Ok(self.view()?.len())
    }

    /// Lets go of the memory now, not when the last reference goes.
    ///
    /// Raises BufferError while anything else shows it, such as an array.
    fn release(&self) -> PyResult<()> {
        let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        let views = memory.as_ref().map_or(0, |shared| shared.views.load(Ordering::SeqCst));
        if views > 0 {
            return Err(PyBufferError::new_err(format!(
                "{views} view{} still there: delete arrays and memoryviews of it first",
                if views == 1 { " of this buffer is" } else { "s of this buffer are" }
            )));
        }
        *memory = None;
        Ok(())
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __exit__(
        &self,
        _type: &Bound<'_, PyAny>,
        _error: &Bound<'_, PyAny>,
        _trace: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        self.release()
    }

    fn __bytes__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        Ok(PyBytes::new(py, self.view()?.bytes()))
    }

    fn __getitem__<'py>(slf: &Bound<'py, Self>, index: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        PyMemoryView::from(slf)?.get_item(index)
    }

    fn __eq__(&self, py: Python<'_>, other: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        let Ok(theirs) = PyUntypedBuffer::get(other) else { return Ok(py.NotImplemented()) };
        if !theirs.is_c_contiguous() {
            return Ok(py.NotImplemented());
        }
        let ours = self.view()?;
        // SAFETY: the exporter keeps so many bytes there while `theirs` lives.
        let same = unsafe { std::slice::from_raw_parts(theirs.buf_ptr().cast::<u8>(), theirs.len_bytes()) }
            == ours.bytes();
        Ok(same.into_pyobject(py)?.to_owned().into_any().unbind())
    }

    fn __repr__(&self) -> String {
        self.view().map_or_else(|_| "Buffer(released)".into(), |view| format!("Buffer({} bytes)", view.len()))
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
        dlpack::capsule(py, self.view()?, max_version)
    }

    fn __dlpack_device__(&self) -> (i32, i32) {
        dlpack::CPU
    }

    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let shown = slf.get().view()?;
        let bytes = isize::try_from(shown.len()).expect("an allocation fits");
        let (owner, start) = (slf.as_ptr(), shown.start().cast());
        // SAFETY: `view` is the caller's to fill, as the protocol says; the memory lives as long as `shown`.
        if unsafe { ffi::PyBuffer_FillInfo(view, owner, start, bytes, 0, flags) } != 0 {
            return Err(PyErr::fetch(slf.py()));
        }
        // SAFETY: it has just been filled. What is behind `internal` goes in `__releasebuffer__`.
        unsafe { (*view).internal = Box::into_raw(Box::new(shown)).cast() };
        Ok(())
    }

    #[allow(clippy::unused_self)]
    unsafe fn __releasebuffer__(&self, view: *mut ffi::Py_buffer) {
        // SAFETY: from the box that `__getbuffer__` put there; called once for each.
        drop(unsafe { Box::from_raw((*view).internal.cast::<View>()) });
    }
}
