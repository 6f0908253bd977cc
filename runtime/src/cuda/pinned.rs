//! Memory of the host that a GPU writes while a kernel runs.
#![allow(unsafe_code, reason = "FFI")]

use super::{Device, error};
use crate::error::Result;
use cudarc::driver::{result, sys};
use std::ffi::c_void;

/// Pinned memory of the host, zeroed, at an address of the GPU's too. It is freed on drop once the device is done.
#[derive(Debug)]
pub(crate) struct Pinned {
    device: Device,
    host: *mut c_void,
    bytes: usize,
    address: sys::CUdeviceptr,
}

// SAFETY: an address; the memory is read by volatile loads only.
unsafe impl Send for Pinned {}
// SAFETY: as above.
unsafe impl Sync for Pinned {}

impl Pinned {
    /// Allocates zeroed host memory that a GPU can reach.
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

    /// Where the GPU has it.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// What stands in it now. A kernel may be writing.
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
