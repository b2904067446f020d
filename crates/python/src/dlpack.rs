//! DLPack: how arrays of other libraries share a buffer's memory (dlpack.h of DLPack 1.0, which DLPack gives
//! away for this).

use std::ffi::{CStr, c_void};
use std::ptr;
use std::sync::Arc;

use flatout_engine::AlignedBuffer;
use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;

const PLAIN: &CStr = c"dltensor";
const VERSIONED: &CStr = c"dltensor_versioned";

/// kDLCPU, and its only device.
pub const CPU: (i32, i32) = (1, 0);
/// kDLUInt, eight bits, one lane.
const BYTE: DataType = DataType { code: 1, bits: 8, lanes: 1 };

#[repr(C)]
#[derive(Clone, Copy)]
struct DataType {
    code: u8,
    bits: u8,
    lanes: u16,
}

#[repr(C)]
struct Device {
    kind: i32,
    number: i32,
}

#[repr(C)]
struct Tensor {
    data: *mut c_void,
    device: Device,
    dimensions: i32,
    kind: DataType,
    shape: *mut i64,
    strides: *mut i64,
    byte_offset: u64,
}

/// DLManagedTensor.
#[repr(C)]
struct Managed {
    tensor: Tensor,
    context: *mut c_void,
    deleter: unsafe extern "C" fn(*mut Managed),
}

/// DLManagedTensorVersioned.
#[repr(C)]
struct ManagedVersioned {
    major: u32,
    minor: u32,
    context: *mut c_void,
    deleter: unsafe extern "C" fn(*mut ManagedVersioned),
    flags: u64,
    tensor: Tensor,
}

/// Lives as long as the consumer's array. It holds no Python object, because a deleter may run on any thread.
struct Context {
    _block: Arc<AlignedBuffer>,
    shape: [i64; 1],
    strides: [i64; 1],
}

/// A capsule around a block, as the consumer's version of the protocol wants it.
pub fn capsule(
    py: Python<'_>,
    block: Arc<AlignedBuffer>,
    max_version: Option<(u32, u32)>,
) -> PyResult<Bound<'_, PyAny>> {
    let bytes = i64::try_from(block.len()).map_err(|_| PyBufferError::new_err("too long"))?;
    let data = block.as_ptr().cast();
    let mut context = Box::new(Context { _block: block, shape: [bytes], strides: [1] });
    let tensor = Tensor {
        data,
        device: Device { kind: CPU.0, number: CPU.1 },
        dimensions: 1,
        kind: BYTE,
        shape: context.shape.as_mut_ptr(),
        strides: context.strides.as_mut_ptr(),
        byte_offset: 0,
    };
    let context = Box::into_raw(context).cast();
    let (pointer, name, destructor): (*mut c_void, _, ffi::PyCapsule_Destructor) = match max_version {
        Some((major, _)) if major >= 1 => {
            let managed =
                ManagedVersioned { major: 1, minor: 0, context, deleter: delete_versioned, flags: 0, tensor };
            (Box::into_raw(Box::new(managed)).cast(), VERSIONED, destroy_versioned)
        }
        _ => {
            let managed = Managed { tensor, context, deleter: delete };
            (Box::into_raw(Box::new(managed)).cast(), PLAIN, destroy)
        }
    };
    // SAFETY: the pointer is not null, the name is static; what is behind it goes by the destructor or by its
    // consumer.
    unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyCapsule_New(pointer, name.as_ptr(), Some(destructor))) }
}

/// Called when the consumer frees its array.
///
/// # Safety
/// `managed` came out of a capsule of ours, and is freed once.
unsafe extern "C" fn delete(managed: *mut Managed) {
    // SAFETY: both were boxed by `capsule`.
    unsafe {
        let managed = Box::from_raw(managed);
        drop(Box::from_raw(managed.context.cast::<Context>()));
    }
}

/// [`delete`] of the versioned struct.
///
/// # Safety
/// That of [`delete`].
unsafe extern "C" fn delete_versioned(managed: *mut ManagedVersioned) {
    // SAFETY: both were boxed by `capsule`.
    unsafe {
        let managed = Box::from_raw(managed);
        drop(Box::from_raw(managed.context.cast::<Context>()));
    }
}

/// Called when the capsule is freed. A consumer has given it another name.
///
/// # Safety
/// Called by Python with a capsule of ours.
unsafe extern "C" fn destroy(capsule: *mut ffi::PyObject) {
    // SAFETY: the pointer is ours where the name still is.
    unsafe {
        if let Some(managed) = unconsumed(capsule, PLAIN) {
            delete(managed.cast());
        }
    }
}

/// [`destroy`] of the versioned capsule.
///
/// # Safety
/// That of [`destroy`].
unsafe extern "C" fn destroy_versioned(capsule: *mut ffi::PyObject) {
    // SAFETY: the pointer is ours where the name still is.
    unsafe {
        if let Some(managed) = unconsumed(capsule, VERSIONED) {
            delete_versioned(managed.cast());
        }
    }
}

/// The content of a capsule that has not been consumed.
///
/// # Safety
/// `capsule` is one, and the interpreter's lock is held.
unsafe fn unconsumed(capsule: *mut ffi::PyObject, name: &CStr) -> Option<*mut c_void> {
    // SAFETY: as the caller promises.
    unsafe {
        let is_ours = ffi::PyCapsule_IsValid(capsule, name.as_ptr()) == 1;
        let pointer =
            if is_ours { ffi::PyCapsule_GetPointer(capsule, name.as_ptr()) } else { ptr::null_mut() };
        (!pointer.is_null()).then_some(pointer)
    }
}
