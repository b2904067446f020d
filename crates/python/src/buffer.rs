//! What a read returns: the memory that the bytes landed in, shown to Python by the buffer protocol and
//! DLPack. Nothing is copied.

use std::ffi::{CString, c_int};
use std::sync::Arc;

use flatout_engine::AlignedBuffer;
use pyo3::exceptions::{PyBufferError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyInt, PyMemoryView, PyString, PyTuple};

use crate::borrowed_buffer::ReadableBuffer;
use crate::dlpack;
use crate::errors::OrRaise;
use crate::exit;
use crate::object_meta::ObjectMeta;

/// Bytes in memory of their own: writable, aligned to 64 bytes at least, one dimension of unsigned bytes.
///
/// ``memoryview``, ``numpy.frombuffer``, ``torch.frombuffer`` and ``from_dlpack`` of both share the memory,
/// which lives as long as any of them. ``len()`` is in bytes, a slice is a memoryview, ``bytes()`` copies. As
/// with bytes, ``==`` compares with any object that has a buffer, ``in`` searches, ``+`` makes bytes, and
/// ``decode`` makes text. A Buffer is writable and therefore, like a bytearray, has no hash: use
/// ``hash(bytes(buffer))``. It pickles; with protocol 5 and out-of-band buffers without a copy. The unpickled
/// Buffer has memory of its own.
///
/// ``Buffer(data)`` copies the bytes of any object that has a buffer.
// It has no way to be let go of early: numpy and torch keep the object and not its export, so nobody could
// know who still looks.
#[pyclass(frozen, weakref, module = "flatout")]
pub struct Buffer {
    block: Arc<AlignedBuffer>,
    /// The object that the bytes are of.
    info: Option<Arc<ObjectMeta>>,
}

impl From<AlignedBuffer> for Buffer {
    fn from(block: AlignedBuffer) -> Buffer {
        Buffer { block: Arc::new(block), info: None }
    }
}

impl Buffer {
    /// The bytes, of a buffer that no Python code has seen yet.
    pub fn as_slice(&self) -> &[u8] {
        self.block.as_slice()
    }

    #[must_use]
    pub fn with_info(self, info: Option<Arc<ObjectMeta>>) -> Buffer {
        Buffer { info, ..self }
    }

    pub fn empty() -> Buffer {
        AlignedBuffer::new(0).expect("nothing can be had").into()
    }
}

#[pymethods]
impl Buffer {
    #[new]
    #[pyo3(signature = (data=None, info=None, /))]
    fn new(py: Python<'_>, data: Option<&Bound<'_, PyAny>>, info: Option<ObjectMeta>) -> PyResult<Buffer> {
        let info = info.map(Arc::new);
        let Some(data) = data else { return Ok(Buffer::empty().with_info(info)) };
        let data = ReadableBuffer::named("data", data)?;
        let block = exit::copying(py, data.len(), || {
            let mut block = AlignedBuffer::new(data.len() as u64)?;
            data.copy_to(block.as_mut_slice());
            Ok::<_, flatout_engine::Error>(block)
        });
        let block = block.or_raise(py)?;
        Ok(Buffer::from(block).with_info(info))
    }

    /// The object that the bytes are of, as the response described it: size, ETag, time of the last change,
    /// type, metadata, version id.
    ///
    /// None where no request was sent, as for an empty range, and for reads of an open file.
    #[getter]
    fn info(&self) -> Option<ObjectMeta> {
        self.info.as_deref().cloned()
    }

    fn __reduce_ex__<'py>(slf: &Bound<'py, Self>, protocol: i32) -> PyResult<Bound<'py, PyTuple>> {
        let py = slf.py();
        // From protocol 5 on whoever pickles may take the memory as it lies (PEP 574).
        let data = match protocol {
            ..=4 => slf.get().__bytes__(py).into_any(),
            _ => py.import("pickle")?.getattr("PickleBuffer")?.call1((slf,))?,
        };
        (slf.get_type(), (data, slf.get().info())).into_pyobject(py)
    }

    fn __len__(&self) -> usize {
        self.block.len()
    }

    fn __bytes__<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, self.block.as_slice())
    }

    fn __getitem__<'py>(slf: &Bound<'py, Self>, index: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        PyMemoryView::from(slf)?.get_item(index)
    }

    fn __iter__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        Ok(PyMemoryView::from(slf)?.try_iter()?.into_any())
    }

    fn __eq__(&self, py: Python<'_>, other: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        let Some(other) = ReadableBuffer::contiguous(other) else { return Ok(py.NotImplemented()) };
        let same = other.with_bytes(py, |bytes| bytes == self.block.as_slice());
        Ok(same.into_pyobject(py)?.to_owned().into_any().unbind())
    }

    fn __contains__(&self, py: Python<'_>, item: &Bound<'_, PyAny>) -> PyResult<bool> {
        if item.is_instance_of::<PyInt>() {
            let byte = item.extract::<u8>().map_err(|_| PyValueError::new_err("a byte is 0 to 255"))?;
            return Ok(memchr::memchr(byte, self.block.as_slice()).is_some());
        }
        let item = ReadableBuffer::named("what is looked for", item)?;
        let at = item.with_bytes(py, |bytes| memchr::memmem::find(self.block.as_slice(), bytes));
        Ok(at.is_some())
    }

    fn __concat__<'py>(&self, py: Python<'py>, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
        let other = ReadableBuffer::named("what is added", other)?;
        let ours = self.block.as_slice();
        PyBytes::new_with(py, ours.len() + other.len(), |sum| {
            sum[..ours.len()].copy_from_slice(ours);
            other.copy_to(&mut sum[ours.len()..]);
            Ok(())
        })
    }

    /// Decodes the bytes to text, like :meth:`bytes.decode`.
    #[pyo3(signature = (encoding="utf-8", errors="strict"))]
    fn decode<'py>(slf: &Bound<'py, Self>, encoding: &str, errors: &str) -> PyResult<Bound<'py, PyString>> {
        let (encoding, errors) = (CString::new(encoding)?, CString::new(errors)?);
        PyString::from_encoded_object(slf.as_any(), Some(&encoding), Some(&errors))
    }

    /// Whether the bytes begin with ``prefix``.
    fn startswith(&self, py: Python<'_>, prefix: &Bound<'_, PyAny>) -> PyResult<bool> {
        let prefix = ReadableBuffer::named("prefix", prefix)?;
        Ok(prefix.with_bytes(py, |bytes| self.block.as_slice().starts_with(bytes)))
    }

    /// Whether the bytes end with ``suffix``.
    fn endswith(&self, py: Python<'_>, suffix: &Bound<'_, PyAny>) -> PyResult<bool> {
        let suffix = ReadableBuffer::named("suffix", suffix)?;
        Ok(suffix.with_bytes(py, |bytes| self.block.as_slice().ends_with(bytes)))
    }

    fn __repr__(&self) -> String {
        format!("Buffer({} bytes)", self.block.len())
    }

    /// A capsule for ``from_dlpack``: one dimension of uint8 on the CPU, writable, not copied.
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
        dlpack::capsule(py, self.block.clone(), max_version)
    }

    fn __dlpack_device__(&self) -> (i32, i32) {
        dlpack::CPU
    }

    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let block = &slf.get().block;
        let bytes = isize::try_from(block.len()).expect("an allocation fits");
        // SAFETY: `view` is the caller's to fill, as the protocol says; it keeps `slf`, and that the memory.
        match unsafe { ffi::PyBuffer_FillInfo(view, slf.as_ptr(), block.as_ptr().cast(), bytes, 0, flags) } {
            0 => Ok(()),
            _ => Err(PyErr::fetch(slf.py())),
        }
    }
}
