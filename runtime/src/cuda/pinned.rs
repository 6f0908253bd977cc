//! Host memory that a GPU writes while a kernel runs.
#![allow(unsafe_code, reason = "FFI")]

use super::{Device, error};
use crate::error::Result;
use cudarc::driver::{result, sys};
use std::ffi::c_void;

/// Pinned, zeroed host memory that is also mapped on the GPU. It is freed on drop once the device
/// is done.
#[derive(Debug)]
pub(crate) struct Pinned {
    device: Device,
    host: *mut c_void,
    bytes: usize,
    address: sys::CUdeviceptr,
}

// SAFETY: it is an address, and the memory is read only by volatile loads.
unsafe impl Send for Pinned {}
// SAFETY: the same holds for shared access.
unsafe impl Sync for Pinned {}

impl Pinned {
    /// Allocates zeroed host memory that a GPU can access.
    ///
    /// # Errors
    /// Fails if the CUDA driver has no such memory (R0103).
    pub fn zeroed(device: &Device, bytes: usize) -> Result<Pinned> {
        device.bind()?;
        let flags = sys::CU_MEMHOSTALLOC_DEVICEMAP | sys::CU_MEMHOSTALLOC_PORTABLE;
        // SAFETY: the context is bound.
        let host = unsafe { result::malloc_host(bytes.max(1), flags) };
        let host = host.map_err(|e| error("cuMemHostAlloc", e))?;
        // SAFETY: allocated above, of that many bytes.
        unsafe { std::ptr::write_bytes(host.cast::<u8>(), 0, bytes) };
        let mut pinned = Pinned { device: device.clone(), host, bytes, address: 0 };
        // SAFETY: the memory was allocated to be mapped; the pointer is to a field.
        unsafe { sys::cuMemHostGetDevicePointer_v2(&mut pinned.address, host, 0) }
            .result()
            .map_err(|e| error("cuMemHostGetDevicePointer", e))?;
        Ok(pinned)
    }

    /// The GPU that accesses it.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The address at which the GPU accesses it.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Returns its current contents. A kernel may be writing meanwhile.
    pub fn read(&self) -> Vec<u8> {
        let first = self.host.cast::<u8>().cast_const();
        // SAFETY: every byte is part of the allocation, which lives as long as `self`.
        (0..self.bytes).map(|i| unsafe { first.add(i).read_volatile() }).collect()
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // A kernel that does not end keeps its memory.
        if self.device.wait().and_then(|()| self.device.bind()).is_err() {
            return;
        }
        if let Ok(context) = self.device.context() {
            // SAFETY: allocated by `zeroed`, freed once.
            context.record_err(unsafe { result::free_host(self.host) });
        }
    }
}
