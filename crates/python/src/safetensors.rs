//! The header of a safetensors file. The official crate judges it, so that whatever is a safetensors file
//! there is one here.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};

use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use safetensors::tensor::{Dtype, Metadata, TensorInfo};

/// The header's length, a little-endian number, stands before it.
const LENGTH_BYTES: usize = 8;

/// `MAX_HEADER_SIZE` of the official crate, which keeps it to itself.
const MOST_HEADER_BYTES: u64 = 100_000_000;

/// A header as Python gets it.
type HeaderTuple<'py> = (Option<BTreeMap<String, String>>, Vec<Bound<'py, PyTuple>>);

/// A parsed header.
struct Header {
    metadata: Option<BTreeMap<String, String>>,
    /// In the order of the file.
    tensors: Vec<Tensor>,
}

struct Tensor {
    name: String,
    dtype: String,
    bits: usize,
    shape: Vec<usize>,
    /// Offsets within the file.
    start: u64,
    end: u64,
}

/// The offset at which the header of a file of ``file_bytes`` bytes ends, which begins with ``head``.
///
/// Raises ValueError where that is no safetensors file.
#[pyfunction]
pub fn safetensors_header_end(py: Python<'_>, head: PyBuffer<u8>, file_bytes: u64) -> PyResult<u64> {
    header_end(&head.to_vec(py)?, file_bytes).map_err(PyValueError::new_err)
}

/// A tensor to be saved: name, type, shape, bytes.
type SavedTuple = (String, String, Vec<usize>, usize);

/// The head of a file of these tensors, with its length before it, and the order in which their bytes follow.
///
/// Raises ValueError, which says what is wrong.
#[pyfunction]
pub fn safetensors_head(
    tensors: Vec<SavedTuple>,
    metadata: Option<HashMap<String, String>>,
) -> PyResult<(Cow<'static, [u8]>, Vec<usize>)> {
    head(tensors, metadata).map_err(PyValueError::new_err)
}

/// Laid out as the official crate does it, which keeps that to itself: by type, then by name.
fn head(
    tensors: Vec<SavedTuple>,
    metadata: Option<HashMap<String, String>>,
) -> Result<(Cow<'static, [u8]>, Vec<usize>), String> {
    let typed = tensors.into_iter().enumerate().map(|(place, (name, dtype, shape, bytes))| {
        let known = serde_json::from_value::<Dtype>(serde_json::Value::String(dtype.clone()));
        known
            .map(|known| (place, name, known, shape, bytes))
            .map_err(|_| format!("{dtype} is no type of tensors"))
    });
    let mut typed = typed.collect::<Result<Vec<_>, _>>()?;
    typed.sort_by(|(_, one, left, ..), (_, other, right, ..)| right.cmp(left).then_with(|| one.cmp(other)));
    let order = typed.iter().map(|(place, ..)| *place).collect();
    let mut at = 0;
    let infos = typed.into_iter().map(|(_, name, dtype, shape, bytes)| {
        let data_offsets = (at, at + bytes);
        at += bytes;
        (name, TensorInfo { dtype, shape, data_offsets })
    });
    let metadata = metadata.map(|named| named.into_iter().collect());
    let metadata = Metadata::new(metadata, infos.collect()).map_err(|wrong| wrong.to_string())?;
    let text = serde_json::to_vec(&metadata).map_err(|wrong| wrong.to_string())?;
    let bytes = text.len().next_multiple_of(LENGTH_BYTES);
    let mut head = (bytes as u64).to_le_bytes().to_vec();
    head.extend(&text);
    head.resize(LENGTH_BYTES + bytes, b' ');
    Ok((head.into(), order))
}

/// Metadata, and tensors in the order of the file: (name, dtype, bits of an element, shape, start, end),
/// within the file.
///
/// Raises ValueError, which says what is wrong. ``head`` has to contain the whole header.
#[pyfunction]
pub fn safetensors_header<'py>(
    py: Python<'py>,
    head: PyBuffer<u8>,
    file_bytes: u64,
) -> PyResult<HeaderTuple<'py>> {
    let head = head.to_vec(py)?;
    let header = py.detach(|| read(&head, file_bytes)).map_err(PyValueError::new_err)?;
    let tensors = header.tensors.into_iter().map(|tensor| {
        let shape = PyTuple::new(py, tensor.shape)?;
        (tensor.name, tensor.dtype, tensor.bits, shape, tensor.start, tensor.end).into_pyobject(py)
    });
    Ok((header.metadata, tensors.collect::<PyResult<_>>()?))
}

fn header_end(head: &[u8], file_bytes: u64) -> Result<u64, String> {
    let Some(length) = head.first_chunk::<LENGTH_BYTES>() else {
        return Err(format!("it has {file_bytes} bytes, and the length of the header alone takes 8"));
    };
    let header_bytes = u64::from_le_bytes(*length);
    if header_bytes > MOST_HEADER_BYTES {
        let why = format!("its first 8 bytes say that the header has {header_bytes} bytes");
        return Err(format!("{why}, and {MOST_HEADER_BYTES} are the most"));
    }
    let end = LENGTH_BYTES as u64 + header_bytes;
    if end > file_bytes {
        return Err(format!("its header would end at byte {end}, and it has {file_bytes}"));
    }
    Ok(end)
}

fn read(head: &[u8], file_bytes: u64) -> Result<Header, String> {
    let data_start = header_end(head, file_bytes)?;
    let header = usize::try_from(data_start).ok().and_then(|end| head.get(LENGTH_BYTES..end));
    let header = header.ok_or_else(|| "its header has been cut off".to_owned())?;
    let text = std::str::from_utf8(header).map_err(|wrong| format!("its header is not UTF-8: {wrong}"))?;
    // Whatever makes a `Metadata` goes through its `validate`.
    let metadata: Metadata = serde_json::from_str(text).map_err(|wrong| format!("its header: {wrong}"))?;
    let data_bytes = metadata.data_len() as u64;
    if data_start.checked_add(data_bytes) != Some(file_bytes) {
        let there = file_bytes - data_start;
        return Err(format!(
            "its header tells of {data_bytes} bytes of tensors, and {there} follow: it is cut off, or still being written"
        ));
    }
    let mut tensors: Vec<Tensor> = metadata
        .tensors()
        .into_iter()
        .map(|(name, info)| Tensor {
            name,
            dtype: info.dtype.to_string(),
            bits: info.dtype.bitsize(),
            shape: info.shape.clone(),
            start: data_start + info.data_offsets.0 as u64,
            end: data_start + info.data_offsets.1 as u64,
        })
        .collect();
    // By name where several lie at one place, as those without elements do: else it would be by chance.
    tensors.sort_by(|a, b| (a.start, a.end, &a.name).cmp(&(b.start, b.end, &b.name)));
    let metadata = metadata.metadata().as_ref().map(|pairs| {
        pairs.iter().map(|(key, value)| (key.clone(), value.clone())).collect::<BTreeMap<_, _>>()
    });
    Ok(Header { metadata, tensors })
}
