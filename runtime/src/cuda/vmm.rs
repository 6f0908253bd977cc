//! Memory of CUDA's virtual memory functions, which NVSHMEM can register as symmetric.
#![allow(unsafe_code, reason = "FFI")]

use super::device::DeviceKind;
use super::{Device, no_room};
use crate::error::Result;
use cudarc::driver::sys::{self, CUdevice_attribute as Attribute, CUdeviceptr};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// The kind of handle by which memory is passed to other processes.
const DESCRIPTOR: sys::CUmemAllocationHandleType =
    sys::CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

/// The granularity of memory of a simulated device in bytes.
const SIMULATED_GRANULARITY: usize = 64 << 10;

/// Physical memory of a device, mapped at its own address and exportable as a file descriptor (CUDA
/// Driver API, Virtual Memory Management). It is unmapped and released on drop.
#[derive(Debug)]
pub struct Allocation {
    device: Device,
    handle: Option<sys::CUmemGenericAllocationHandle>,
    address: CUdeviceptr,
    mapped: bool,
    bytes: usize,
}

impl Allocation {
    /// Allocates at least `bytes` bytes that the device can read and write, in multiples of the
    /// device's granularity.
    ///
    /// # Errors
    /// Fails if the device does not have enough memory (R0302), or if the CUDA driver rejects a
    /// call (R0103).
    pub fn new(device: &Device, bytes: usize) -> Result<Allocation> {
        Allocation::with_granularity(device, bytes, 1)
    }

    /// Allocates memory like [`new`](Allocation::new). Its size is also a multiple of `granularity` bytes, to
    /// which its address is aligned. NVSHMEM registers multiples of `NVSHMEM_CUMEM_GRANULARITY` (512 MiB if
    /// unset).
    ///
    /// # Errors
    /// Fails if the device has no room (R0302), or if the CUDA driver rejects a call (R0103).
    pub fn with_granularity(device: &Device, bytes: usize, granularity: usize) -> Result<Allocation> {
        if let Some(pe) = device.pe() {
            let (bytes, _) = round_up(bytes, SIMULATED_GRANULARITY, granularity);
            let address = pe.map(bytes)?;
            return Ok(Allocation { device: device.clone(), handle: None, address, mapped: true, bytes });
        }
        let prop = properties(device)?;
        let least = device.call("cuMemGetAllocationGranularity", || {
            let mut least = 0;
            let which = sys::CUmemAllocationGranularity_flags::CU_MEM_ALLOC_GRANULARITY_MINIMUM;
            // SAFETY: both pointers are to locals.
            unsafe { sys::cuMemGetAllocationGranularity(&mut least, &prop, which) }.result().map(|()| least)
        })?;
        let (bytes, align) = round_up(bytes, least, granularity);
        let mut handle = 0;
        // SAFETY: both pointers are to locals.
        unsafe { sys::cuMemCreate(&mut handle, bytes, &prop, 0) }
            .result()
            .map_err(|e| no_room("an allocation", bytes, device, "cuMemCreate", e))?;
        Allocation::map(device, handle, (bytes, align), prop.location)
    }

    /// Maps memory of another process, or of another allocation of this one, of `bytes` bytes for
    /// this device. The memory exists as long as any process maps it.
    ///
    /// # Errors
    /// Fails if the descriptor is not that of memory, or if this device cannot access the memory
    /// (R0103).
    pub(crate) fn import(device: &Device, descriptor: &OwnedFd, bytes: usize) -> Result<Allocation> {
        device.bind()?;
        let prop = properties(device)?;
        let handle = device.call("cuMemImportFromShareableHandle", || {
            let mut handle = 0;
            let number = std::ptr::without_provenance_mut(descriptor.as_raw_fd() as usize);
            // SAFETY: the handle is a local, and the descriptor is open and passed by its number.
            unsafe { sys::cuMemImportFromShareableHandle(&mut handle, number, DESCRIPTOR) }
                .result()
                .map(|()| handle)
        })?;
        Allocation::map(device, handle, (bytes, 0), prop.location)
    }

    /// Maps physical memory of this size at an address of its own.
    fn map(
        device: &Device,
        handle: sys::CUmemGenericAllocationHandle,
        (bytes, align): (usize, usize),
        location: sys::CUmemLocation,
    ) -> Result<Allocation> {
        // If a step fails, `drop` undoes the steps before it.
        let mut made =
            Allocation { device: device.clone(), handle: Some(handle), address: 0, mapped: false, bytes };
        device.call("cuMemAddressReserve", || {
            // SAFETY: the pointer is to a field.
            unsafe { sys::cuMemAddressReserve(&mut made.address, bytes, align, 0, 0) }.result()
        })?;
        // SAFETY: the range was just reserved, and the handle made, each of this size.
        device.call("cuMemMap", || unsafe { sys::cuMemMap(made.address, bytes, 0, handle, 0) }.result())?;
        made.mapped = true;
        device.call("cuMemSetAccess", || {
            let access = sys::CUmemAccessDesc {
                location,
                flags: sys::CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
            };
            // SAFETY: the range is mapped, and the pointer is to one local.
            unsafe { sys::cuMemSetAccess(made.address, bytes, &access, 1) }.result()
        })?;
        Ok(made)
    }

    /// The address of the first byte.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// The size in bytes, a multiple of the granularity.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The device whose memory it is.
    pub fn device(&self) -> &Device {
        &self.device
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        if self.device.wait().and_then(|()| self.device.bind()).is_err() {
            return;
        }
        let context = match self.device.kind() {
            DeviceKind::Gpu(context) => context,
            DeviceKind::Simulated(pe) => return pe.unmap(self.address),
        };
        // SAFETY: each step is undone once, in reverse order, and only if it was done. Unmapping
        // waits for the device.
        unsafe {
            if self.mapped {
                context.record_err(sys::cuMemUnmap(self.address, self.bytes).result());
            }
            if self.address != 0 {
                context.record_err(sys::cuMemAddressFree(self.address, self.bytes).result());
            }
            if let Some(handle) = self.handle {
                context.record_err(sys::cuMemRelease(handle).result());
            }
        }
    }
}

fn properties(device: &Device) -> Result<sys::CUmemAllocationProp> {
    let rdma = Attribute::CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED;
    Ok(sys::CUmemAllocationProp {
        type_: sys::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
        requestedHandleTypes: DESCRIPTOR,
        location: sys::CUmemLocation {
            type_: sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE,
            id: device.context()?.cu_device(),
        },
        win32HandleMetaData: std::ptr::null_mut(),
        allocFlags: sys::CUmemAllocationProp_st__bindgen_ty_1 {
            compressionType: 0,
            gpuDirectRDMACapable: u8::from(device.attribute(rdma)? != 0),
            usage: 0,
            reserved: [0; 4],
        },
    })
}

/// Returns a descriptor by which another process of this host can map memory of CUDA's virtual
/// memory functions that is mapped at an address here.
///
/// # Errors
/// Fails if it is other memory, or was not created for export (R0103).
pub(crate) fn export(device: &Device, address: u64) -> Result<OwnedFd> {
    device.bind()?;
    let handle = device.call("cuMemRetainAllocationHandle", || {
        let (mut handle, address) = (0, std::ptr::without_provenance_mut(address as usize));
        // SAFETY: the handle is a local; the driver looks the address up and does not read there.
        unsafe { sys::cuMemRetainAllocationHandle(&mut handle, address) }.result().map(|()| handle)
    })?;
    let mut number: RawFd = -1;
    let exported = device.call("cuMemExportToShareableHandle", || {
        // SAFETY: the handle was retained above, and the driver writes a descriptor's number, an int.
        unsafe { sys::cuMemExportToShareableHandle((&raw mut number).cast(), handle, DESCRIPTOR, 0) }.result()
    });
    // SAFETY: the handle was retained above, and is released once.
    let released = device.call("cuMemRelease", || unsafe { sys::cuMemRelease(handle) }.result());
    exported.and(released)?;
    // SAFETY: the driver has opened this descriptor for us.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Returns the size and the alignment: the next multiple of both granularities, at least one, and
/// the larger power of two of them.
fn round_up(bytes: usize, device: usize, asked: usize) -> (usize, usize) {
    let (device, asked) = (device.max(1), asked.max(1));
    let unit =
        if asked % device == 0 { asked } else { asked.checked_next_multiple_of(device).unwrap_or(device) };
    let bytes = bytes.max(1).checked_next_multiple_of(unit).unwrap_or(usize::MAX / device * device);
    (bytes, if unit.is_power_of_two() { unit } else { device })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_multiples_of_both_granularities() {
        const MIB: usize = 1 << 20;
        assert_eq!(round_up(1, 2 * MIB, 1), (2 * MIB, 2 * MIB));
        assert_eq!(round_up(0, 2 * MIB, 1), (2 * MIB, 2 * MIB));
        assert_eq!(round_up(3 * MIB, 2 * MIB, 512 * MIB), (512 * MIB, 512 * MIB));
        assert_eq!(round_up(512 * MIB + 1, 2 * MIB, 512 * MIB), (1024 * MIB, 512 * MIB));
        assert_eq!(round_up(5 * MIB, 2 * MIB, 3 * MIB), (8 * MIB, 4 * MIB));
        // The driver reports that such memory does not exist.
        assert_eq!(round_up(usize::MAX, 2 * MIB, 1).0 % (2 * MIB), 0);
    }
}
