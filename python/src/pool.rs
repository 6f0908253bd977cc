//! Symmetric memory for PyTorch's allocator: the two functions of `torch.cuda.memory.CUDAPluggableAllocator`.
#![allow(unsafe_code, reason = "PyTorch calls C functions by their names")]

use crate::comm::Comm;
use pyo3::prelude::*;
use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The communicators that allocations use, and the buffers that are in use.
#[derive(Default)]
struct Pool {
    /// The communicator of each device.
    comms: Vec<(c_int, Arc<warpweft_comm::Comm>)>,
    /// The buffers by address.
    buffers: Option<HashMap<usize, warpweft_comm::Buffer>>,
}

static POOL: Mutex<Pool> = Mutex::new(Pool { comms: Vec::new(), buffers: None });

fn pool() -> MutexGuard<'static, Pool> {
    POOL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sets the communicator that the pool of a device allocates from. None removes it, with its unused
/// buffers.
#[pyfunction]
pub fn set_pool(device: c_int, comm: Option<&Comm>) -> PyResult<()> {
    let comm = comm.map(Comm::get).transpose()?;
    let mut pool = pool();
    pool.comms.retain(|(of, _)| *of != device);
    pool.comms.extend(comm.map(|comm| (device, comm)));
    Ok(())
}

/// Allocates memory on all ranks. Returns null on failure, which PyTorch reports as out of memory.
/// Collective.
///
/// # Safety
///
/// Only PyTorch may call it, with a valid device.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weft_pool_alloc(bytes: isize, device: c_int, _: *mut c_void) -> *mut c_void {
    let comm = pool().comms.iter().find(|(of, _)| *of == device).map(|(_, comm)| comm.clone());
    let (Some(comm), Ok(bytes)) = (comm, usize::try_from(bytes)) else { return std::ptr::null_mut() };
    match comm.alloc(bytes.max(16)) {
        Ok(buffer) => {
            buffer.free_later();
            let address = buffer.address() as usize;
            pool().buffers.get_or_insert_default().insert(address, buffer);
            address as *mut c_void
        }
        Err(e) => {
            eprintln!("warpweft: the memory pool cannot allocate {bytes} bytes: {e}");
            std::ptr::null_mut()
        }
    }
}

/// Releases memory, which is freed once all ranks have released it.
///
/// # Safety
///
/// Only PyTorch may call it, with an address from [`weft_pool_alloc`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weft_pool_free(address: *mut c_void, _: isize, _: c_int, _: *mut c_void) {
    let gone = pool().buffers.get_or_insert_default().remove(&(address as usize));
    drop(gone);
}
