//! A GPU, or the device of a simulated PE.

use super::{CudaContext, Stream, device_count, error, no_gpu};
use crate::error::Result;
use crate::simulated::{Pe, not_simulated};
use cudarc::driver::{DriverError, result, sys};
use std::ffi::c_char;
use std::fmt;
use std::sync::Arc;
use sys::CUdevice_attribute as Attribute;

/// A GPU of this process, with its primary context, which other libraries in the process share; or
/// the device of a simulated PE. Clones are cheap.
#[derive(Clone, PartialEq)]
pub struct Device(DeviceKind);

impl Eq for Device {}

#[derive(Clone, PartialEq)]
pub(super) enum DeviceKind {
    Gpu(Arc<CudaContext>),
    Simulated(Pe),
}

/// The attributes of a simulated device; no others exist.
fn simulated_attribute(pe: &Pe, which: Attribute) -> Result<u32> {
    match which {
        Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT => Ok(pe.config().sms),
        Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN => Ok(pe.config().shared_per_cta),
        Attribute::CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED => Ok(u32::from(pe.config().multicast)),
        Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR => Ok(pe.capability().0),
        Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR => Ok(pe.capability().1),
        other => Err(not_simulated(&format!("{other:?}"))),
    }
}

impl Device {
    /// The [bandwidth of the memory](Device::memory_gbps) of an H100.
    pub const H100_MEMORY_GBPS: u32 = 3352;
    /// The [bandwidth of the memory](Device::memory_gbps) of an H200.
    pub const H200_MEMORY_GBPS: u32 = 4917;

    /// Opens the GPU of this number, counted within `CUDA_VISIBLE_DEVICES`, and makes its context
    /// current in this thread.
    ///
    /// # Errors
    /// Fails without a driver (R0101), without such a GPU (R0102), or if its context cannot be
    /// created (R0103).
    #[allow(unsafe_code, reason = "cudarc's switch for its own tracking")]
    pub fn open(ordinal: u32) -> Result<Device> {
        let count = device_count()?;
        if ordinal >= count {
            return Err(no_gpu(ordinal, count));
        }
        let context = CudaContext::new(ordinal as usize).map_err(|e| error("cuDevicePrimaryCtxRetain", e))?;
        // SAFETY: slices of this context are used on one stream, or their users order the streams.
        // The events would be wrong in captures, and cost two records for each launch.
        unsafe { context.disable_event_tracking() };
        Ok(Device(DeviceKind::Gpu(context)))
    }

    /// Returns the GPU that a stream, or another object of `cudarc`, belongs to.
    pub fn of(context: &Arc<CudaContext>) -> Device {
        Device(DeviceKind::Gpu(context.clone()))
    }

    /// Wraps a stream of this device that another library created.
    ///
    /// # Errors
    /// Fails on a simulated PE (R0403).
    ///
    /// # Safety
    /// `stream` is a stream of the device's primary context, or null for the default one, and its
    /// owner keeps it as long as the value returned and its clones.
    #[allow(unsafe_code, reason = "the caller vouches for a handle")]
    pub unsafe fn borrow_stream(&self, stream: sys::CUstream) -> Result<Stream> {
        // SAFETY: as this function's.
        Ok(Stream::Gpu(unsafe { self.context()?.wrap_borrowed_stream(stream) }))
    }

    pub(crate) fn simulated(pe: &Pe) -> Device {
        Device(DeviceKind::Simulated(pe.clone()))
    }

    pub(super) fn kind(&self) -> &DeviceKind {
        &self.0
    }

    /// The simulated PE that the device belongs to.
    pub(crate) fn pe(&self) -> Option<&Pe> {
        match &self.0 {
            DeviceKind::Gpu(_) => None,
            DeviceKind::Simulated(pe) => Some(pe),
        }
    }

    /// Whether it belongs to a simulated PE.
    pub fn is_simulated(&self) -> bool {
        self.pe().is_some()
    }

    /// A number that no other device of this process has, GPU or simulated.
    pub fn number(&self) -> i64 {
        match &self.0 {
            DeviceKind::Gpu(_) => i64::from(self.ordinal()),
            DeviceKind::Simulated(pe) => -1 - i64::from(pe.number()),
        }
    }

    /// Whether a stream belongs to this device.
    pub(crate) fn has(&self, stream: &Stream) -> bool {
        match (&self.0, stream) {
            (DeviceKind::Gpu(context), Stream::Gpu(stream)) => {
                context.ordinal() == stream.context().ordinal()
            }
            (DeviceKind::Simulated(pe), Stream::Simulated(stream)) => pe == stream.pe(),
            _ => false,
        }
    }

    /// The CUDA context of the device.
    ///
    /// # Errors
    /// Fails on a simulated PE (R0403).
    pub fn context(&self) -> Result<&Arc<CudaContext>> {
        match &self.0 {
            DeviceKind::Gpu(context) => Ok(context),
            DeviceKind::Simulated(_) => Err(not_simulated("context of CUDA's")),
        }
    }

    /// The number of the device in this process. For a simulated device, it is its PE.
    pub fn ordinal(&self) -> u32 {
        match &self.0 {
            DeviceKind::Gpu(context) => u32::try_from(context.ordinal()).unwrap_or(u32::MAX),
            DeviceKind::Simulated(pe) => pe.rank(),
        }
    }

    /// The name of the device, such as `NVIDIA H200`.
    ///
    /// # Errors
    /// Fails if the CUDA driver rejects the query (R0103), as all queries of a device do.
    pub fn name(&self) -> Result<String> {
        match &self.0 {
            DeviceKind::Gpu(context) => context.name().map_err(|e| error("cuDeviceGetName", e)),
            DeviceKind::Simulated(_) => Ok("simulated PE".into()),
        }
    }

    /// The compute capability, such as (9, 0).
    ///
    /// # Errors
    /// Fails if the CUDA driver rejects the query (R0103).
    pub fn compute_capability(&self) -> Result<(u32, u32)> {
        match &self.0 {
            DeviceKind::Gpu(_) => super::compute_capability(self.ordinal()),
            DeviceKind::Simulated(pe) => Ok(pe.capability()),
        }
    }

    /// Returns the target to compile for: `sm_90a`, with all features that only this architecture
    /// has, or `sm_80` before 9.0.
    ///
    /// # Errors
    /// Fails if the CUDA driver rejects the query (R0103).
    pub fn arch(&self) -> Result<String> {
        self.compute_capability().map(super::arch)
    }

    /// The number of streaming multiprocessors.
    ///
    /// # Errors
    /// Fails if the CUDA driver rejects the query (R0103).
    pub fn sm_count(&self) -> Result<u32> {
        self.attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)
    }

    /// The size of the second-level cache in bytes.
    ///
    /// # Errors
    /// Fails if the CUDA driver rejects the query (R0103).
    pub fn l2_bytes(&self) -> Result<u32> {
        self.attribute(Attribute::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)
    }

    /// The bandwidth of the memory in 10^9 bytes per second, by its clock and the width of its bus.
    /// A simulated GPU has that of an H100.
    ///
    /// # Errors
    /// Fails if the CUDA driver rejects the query (R0103).
    pub fn memory_gbps(&self) -> Result<u32> {
        if let DeviceKind::Simulated(_) = &self.0 {
            return Ok(Device::H100_MEMORY_GBPS);
        }
        let clock = self.attribute(Attribute::CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE)?;
        let bits = self.attribute(Attribute::CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH)?;
        // Two transfers in a cycle of a clock in kHz.
        Ok(u32::try_from(u64::from(clock) * u64::from(bits) / 4_000_000).unwrap_or(u32::MAX))
    }

    /// The free and the total memory in bytes.
    ///
    /// # Errors
    /// Fails if the CUDA driver rejects the query (R0103).
    pub fn memory(&self) -> Result<(usize, usize)> {
        match &self.0 {
            DeviceKind::Gpu(context) => context.mem_get_info().map_err(|e| error("cuMemGetInfo", e)),
            DeviceKind::Simulated(pe) => Ok(pe.memory()),
        }
    }

    /// Whether the GPU and its fabric have multicast objects. (NVSHMEM may still have disabled
    /// them.)
    ///
    /// # Errors
    /// Fails if the CUDA driver rejects the query (R0103).
    pub fn supports_multicast(&self) -> Result<bool> {
        Ok(self.attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED)? != 0)
    }

    /// Whether a kernel here can address the memory of another GPU of this process, by its number.
    ///
    /// # Errors
    /// Fails without such a GPU (R0102), or if the CUDA driver rejects a call (R0103).
    #[allow(unsafe_code, reason = "FFI")]
    pub fn can_access_peer(&self, ordinal: u32) -> Result<bool> {
        let context = self.context()?;
        let count = device_count()?;
        let other =
            i32::try_from(ordinal).ok().filter(|_| ordinal < count).ok_or_else(|| no_gpu(ordinal, count))?;
        let other = result::device::get(other).map_err(|e| error("cuDeviceGet", e))?;
        let mut can = 0;
        // SAFETY: both devices exist; a `Device` proves that the driver is initialised.
        unsafe { sys::cuDeviceCanAccessPeer(&mut can, context.cu_device(), other) }
            .result()
            .map_err(|e| error("cuDeviceCanAccessPeer", e))?;
        Ok(can != 0)
    }

    /// The UUID of the device, `GPU-` and 16 bytes in hexadecimal, as nvidia-smi prints it.
    ///
    /// # Errors
    /// Fails if the CUDA driver rejects the query (R0103).
    pub fn uuid(&self) -> Result<String> {
        let uuid = self.context()?.uuid().map_err(|e| error("cuDeviceGetUuid", e))?;
        Ok(uuid_text(uuid.bytes.map(|b| b as u8)))
    }

    /// The PCI address of the device, such as `0000:1b:00.0`.
    ///
    /// # Errors
    /// Fails if the CUDA driver rejects the query (R0103).
    #[allow(unsafe_code, reason = "FFI")]
    pub fn pci_bus_id(&self) -> Result<String> {
        let (mut text, context) = ([0u8; 32], self.context()?);
        // SAFETY: the buffer has the length that is said.
        unsafe {
            sys::cuDeviceGetPCIBusId(
                text.as_mut_ptr().cast::<c_char>(),
                text.len() as i32,
                context.cu_device(),
            )
        }
        .result()
        .map_err(|e| error("cuDeviceGetPCIBusId", e))?;
        let end = text.iter().position(|b| *b == 0).unwrap_or(text.len());
        Ok(String::from_utf8_lossy(&text[..end]).to_ascii_lowercase())
    }

    /// Returns an attribute of the device; a negative one becomes 0.
    ///
    /// # Errors
    /// Fails if the CUDA driver rejects the query (R0103).
    pub fn attribute(&self, which: Attribute) -> Result<u32> {
        let value = match &self.0 {
            DeviceKind::Gpu(context) => context.attribute(which),
            DeviceKind::Simulated(pe) => return simulated_attribute(pe, which),
        };
        Ok(u32::try_from(value.map_err(|e| error("cuDeviceGetAttribute", e))?).unwrap_or(0))
    }

    /// Makes the context of the device current in the calling thread.
    ///
    /// # Errors
    /// Fails if the CUDA driver rejects the call (R0103).
    pub fn bind(&self) -> Result<()> {
        match &self.0 {
            DeviceKind::Gpu(context) => context.bind_to_thread().map_err(|e| error("cuCtxSetCurrent", e)),
            DeviceKind::Simulated(_) => Ok(()),
        }
    }

    /// Creates a stream that does not wait for the default stream.
    ///
    /// # Errors
    /// Fails if the CUDA driver rejects the call (R0103).
    pub fn new_stream(&self) -> Result<Stream> {
        match &self.0 {
            DeviceKind::Gpu(context) => {
                context.new_stream().map(Stream::Gpu).map_err(|e| error("cuStreamCreate", e))
            }
            DeviceKind::Simulated(pe) => pe.new_stream().map(Stream::Simulated),
        }
    }

    /// The default (legacy, null) stream.
    pub fn default_stream(&self) -> Stream {
        match &self.0 {
            DeviceKind::Gpu(context) => Stream::Gpu(context.default_stream()),
            DeviceKind::Simulated(pe) => Stream::Simulated(pe.default_stream()),
        }
    }

    /// Waits for all work on the GPU.
    ///
    /// # Errors
    /// Fails if the CUDA driver rejects a call, or if a kernel failed before (R0103).
    pub fn synchronize(&self) -> Result<()> {
        match &self.0 {
            DeviceKind::Gpu(context) => context.synchronize().map_err(|e| error("cuCtxSynchronize", e)),
            DeviceKind::Simulated(pe) => pe.wait_for_device(),
        }
    }

    /// Makes a driver call in the device's context.
    pub(super) fn call<T>(
        &self,
        name: &str,
        f: impl FnOnce() -> std::result::Result<T, DriverError>,
    ) -> Result<T> {
        self.bind()?;
        f().map_err(|e| error(name, e))
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            DeviceKind::Gpu(_) => write!(f, "Device({})", self.ordinal()),
            DeviceKind::Simulated(pe) => pe.fmt(f),
        }
    }
}

fn uuid_text(bytes: [u8; 16]) -> String {
    let hex = |part: &[u8]| part.iter().map(|b| format!("{b:02x}")).collect::<String>();
    let parts = [&bytes[..4], &bytes[4..6], &bytes[6..8], &bytes[8..10], &bytes[10..]].map(hex);
    format!("GPU-{}", parts.join("-"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn architectures_from_nine_on_have_features_of_their_own() {
        let named = [(8, 0), (8, 9), (9, 0), (10, 0), (12, 1)].map(crate::cuda::arch);
        assert_eq!(named, ["sm_80", "sm_89", "sm_90a", "sm_100a", "sm_121a"]);
    }

    #[test]
    fn uuids_print_as_nvidia_smi_prints_them() {
        let bytes = std::array::from_fn(|i| i as u8 * 17);
        assert_eq!(uuid_text(bytes), "GPU-00112233-4455-6677-8899-aabbccddeeff");
    }
}
