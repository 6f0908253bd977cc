//! DLPack's capsules (dmlc.github.io/dlpack, "Python Specification").
#![allow(unsafe_code, reason = "capsules hold raw pointers")]

use crate::error::Fault;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use std::ffi::CStr;
use std::ptr::NonNull;
use weft::runtime::dlpark::ffi::{DLManagedTensor, DLManagedTensorVersioned};
use weft::runtime::dlpark::{Managed, ManagedTensorBase};
use weft::runtime::memory::AnyTensor;

const PLAIN: &CStr = c"dltensor";
const VERSIONED: &CStr = c"dltensor_versioned";

/// Exports a tensor to another library, which keeps the memory alive until it drops the tensor.
pub fn export<'py>(py: Python<'py>, tensor: &AnyTensor, versioned: bool) -> PyResult<Bound<'py, PyCapsule>> {
    match versioned {
        true => {
            let made = tensor.to_dlpack::<DLManagedTensorVersioned>().map_err(Fault::from)?;
            capsule(py, made, VERSIONED, drop_versioned)
        }
        false => {
            let made = tensor.to_dlpack::<DLManagedTensor>().map_err(Fault::from)?;
            capsule(py, made, PLAIN, drop_plain)
        }
    }
}

fn capsule<'py, M: ManagedTensorBase>(
    py: Python<'py>,
    tensor: Managed<M>,
    name: &'static CStr,
    destructor: unsafe extern "C" fn(*mut ffi::PyObject),
) -> PyResult<Bound<'py, PyCapsule>> {
    let raw = tensor.into_raw();
    let pointer =
        NonNull::new(raw.cast()).ok_or_else(|| Fault::new("R0308", "a DLPack tensor at null", ""))?;
    // SAFETY: the pointer is that of a tensor, which its consumer or the destructor drops.
    unsafe { PyCapsule::new_with_pointer_and_destructor(py, pointer, name, Some(destructor)) }
}

/// Drops the tensor of a capsule that has not been consumed. (A consumer renames the capsule.)
///
/// # Safety
///
/// The object must be a capsule of [`capsule`], with a tensor of type `M`.
unsafe fn drop_untaken<M: ManagedTensorBase>(capsule: *mut ffi::PyObject, name: &CStr) {
    // SAFETY: the object is a capsule; its pointer is that of a tensor as long as the capsule has
    // its original name.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, name.as_ptr()) == 1 {
            let raw = ffi::PyCapsule_GetPointer(capsule, name.as_ptr()).cast::<M>();
            drop(Managed::<M>::from_raw(raw));
        }
    }
}

unsafe extern "C" fn drop_plain(capsule: *mut ffi::PyObject) {
    // SAFETY: Python calls this function only for capsules that were made with it.
    unsafe { drop_untaken::<DLManagedTensor>(capsule, PLAIN) }
}

unsafe extern "C" fn drop_versioned(capsule: *mut ffi::PyObject) {
    // SAFETY: Python calls this function only for capsules that were made with it.
    unsafe { drop_untaken::<DLManagedTensorVersioned>(capsule, VERSIONED) }
}
