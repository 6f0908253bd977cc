//! Maps memory of `cuMemAlloc` of another process (CUDA Driver API, `cuIpcGetMemHandle`).
#![allow(unsafe_code, reason = "FFI")]

use super::Device;
use crate::error::Result;
use cudarc::driver::sys::{self, CUdeviceptr, CUipcMem_flags};

/// The size of a handle in bytes.
pub(crate) const BYTES: usize = sys::CU_IPC_HANDLE_SIZE as usize;

/// Returns the handle of an allocation for other processes of this host, and the offset of an
/// address in it.
///
/// # Errors
/// Fails for memory of another kind (R0103).
pub(crate) fn handle(device: &Device, address: u64) -> Result<([u8; BYTES], u64)> {
    device.bind()?;
    let mut handle = sys::CUipcMemHandle { reserved: [0; BYTES] };
    device.call("cuIpcGetMemHandle", || {
        // SAFETY: the handle is a local; the driver looks the address up.
        unsafe { sys::cuIpcGetMemHandle(&mut handle, address) }.result()
    })?;
    let start = device.call("cuMemGetAddressRange", || {
        let (mut start, mut bytes) = (0, 0);
        // SAFETY: both pointers are to locals.
        unsafe { sys::cuMemGetAddressRange_v2(&mut start, &mut bytes, address) }.result().map(|()| start)
    })?;
    Ok((handle.reserved.map(|c| c as u8), address - start))
}

/// An allocation of another process, mapped until this is dropped.
#[derive(Debug)]
pub(crate) struct Opened {
    device: Device,
    start: CUdeviceptr,
}

impl Opened {
    /// Maps the memory of another process that `handle` names.
    ///
    /// # Errors
    /// Fails if the handle is this process's own, or this device does not reach the memory (R0103).
    pub fn new(device: &Device, handle: [u8; BYTES]) -> Result<Opened> {
        device.bind()?;
        let handle = sys::CUipcMemHandle { reserved: handle.map(|b| b as std::ffi::c_char) };
        let flags = CUipcMem_flags::CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS as u32;
        let start = device.call("cuIpcOpenMemHandle", || {
            let mut start = 0;
            // SAFETY: the address is a local.
            unsafe { sys::cuIpcOpenMemHandle_v2(&mut start, handle, flags) }.result().map(|()| start)
        })?;
        Ok(Opened { device: device.clone(), start })
    }

    /// The address of the first byte in this process.
    pub fn start(&self) -> u64 {
        self.start
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        if self.device.wait().and_then(|()| self.device.bind()).is_err() {
            return;
        }
        if let Ok(context) = self.device.context() {
            // SAFETY: opened once, and closed once when it is not used any more.
            context.record_err(unsafe { sys::cuIpcCloseMemHandle(self.start) }.result());
        }
    }
}
