//! The hardware of this machine: GPUs, the links between them, and MPI. It asks the driver without
//! creating a context on any GPU, so that other users are not disturbed.
#![allow(unsafe_code, reason = "the CUDA driver's interface is C")]

use std::ffi::{CStr, c_char, c_int};
use std::sync::mpsc;
use std::time::Duration;

use cudarc::driver::DriverError;
use cudarc::driver::result;
use cudarc::driver::sys::{
    self, CUdevice, CUdevice_P2PAttribute as P2p, CUdevice_attribute as Attribute, CUresult,
};
use nvml_wrapper::Nvml;
use nvml_wrapper::enum_wrappers::device::{P2pCapabilitiesIndex, P2pStatus};
use serde::Serialize;

use crate::cuda;
use crate::error::{CUDA, Error, Result};
use crate::find;

/// Whether PEs can connect over an MPI communicator (the cargo feature `mpi`).
pub const MPI: bool = cfg!(feature = "mpi");

/// The time limit for the driver's answer, since a broken fabric can block it forever.
const LIMIT: Duration = Duration::from_secs(20);

/// The driver and its GPUs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Driver {
    /// The CUDA version that it supports, such as (13, 0).
    pub cuda: (u32, u32),
    /// The version of the driver, such as `580.95.05`. It is none without NVML.
    pub version: Option<String>,
    /// The GPUs this process can see (CUDA_VISIBLE_DEVICES may hide others).
    pub gpus: Vec<Gpu>,
}

/// A GPU of this machine.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Gpu {
    /// The name of the GPU, such as `NVIDIA H200`.
    pub name: String,
    /// The compute capability, such as (9, 0).
    pub compute_capability: (u32, u32),
    /// The size of its memory in bytes.
    pub memory: u64,
    /// The number of streaming multiprocessors.
    pub multiprocessors: u32,
    /// The PCI address, such as `0000:1B:00.0`.
    pub pci: String,
    /// Whether it and its fabric have multicast objects (CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED).
    pub multicast: bool,
    /// The number of NVLinks that are up; none without NVML.
    pub nvlinks: Option<u32>,
    /// The link to the memory of each GPU, in order.
    pub links: Vec<Link>,
}

/// The link by which a GPU reaches another GPU's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Link {
    /// The memory is the GPU's own.
    Own,
    /// NVLink, with loads, stores and atomics.
    NvLink,
    /// PCIe peer access, with loads and stores.
    Pcie,
    /// The devices cannot access each other, except by copies.
    None,
}

impl Link {
    /// The name of the link, as reports print it.
    pub fn name(self) -> &'static str {
        match self {
            Link::Own => "-",
            Link::NvLink => "NVLink",
            Link::Pcie => "PCIe",
            Link::None => "none",
        }
    }
}

/// Asks the driver for its GPUs.
///
/// # Errors
/// Fails without a usable driver (R0101), or if it rejects a call or does not answer in 20 s
/// (R0103).
pub fn driver() -> Result<Driver> {
    let (tell, told) = mpsc::channel();
    // A thread that hangs in the driver ends with the process.
    std::thread::spawn(move || tell.send(query()));
    told.recv_timeout(LIMIT).unwrap_or_else(|_| {
        let message = format!("the CUDA driver did not answer in {} s", LIMIT.as_secs());
        Err(Error::new(CUDA, message)
            .help("check whether `nvidia-smi` works, and look for NVRM in the output of `dmesg`"))
    })
}

/// Whether libcuda exists, working or not.
pub fn has_libcuda() -> bool {
    // SAFETY: opening libcuda runs only its own initialisers.
    unsafe { sys::is_culib_present() }
}

fn query() -> Result<Driver> {
    let cuda = cuda::driver_version()?;
    let count = c_int::try_from(cuda::device_count()?).unwrap_or(0);
    let devices = (0..count).map(|n| driver_result("cuDeviceGet", result::device::get(n)));
    let devices = devices.collect::<Result<Vec<_>>>()?;
    let nvml = nvml();
    let gpus = devices.iter().map(|device| gpu(*device, &devices, nvml.as_ref())).collect::<Result<_>>()?;
    let version = nvml.as_ref().and_then(|nvml| nvml.sys_driver_version().ok());
    Ok(Driver { cuda, version, gpus })
}

/// NVML comes with the driver; some containers lack it.
fn nvml() -> Option<Nvml> {
    // The crate's default, `libnvidia-ml.so`, exists only with a development package.
    Nvml::builder().lib_path("libnvidia-ml.so.1".as_ref()).init().ok()
}

fn driver_result<T>(call: &str, answer: std::result::Result<T, DriverError>) -> Result<T> {
    answer.map_err(|e| cuda::error(call, e))
}

fn gpu(device: CUdevice, all: &[CUdevice], nvml: Option<&Nvml>) -> Result<Gpu> {
    // SAFETY: the driver has been initialised, and gave these devices.
    let attribute = |which| unsafe {
        let value = driver_result("cuDeviceGetAttribute", result::device::get_attribute(device, which))?;
        Ok(u32::try_from(value).unwrap_or(0))
    };
    // SAFETY: as above.
    let memory = driver_result("cuDeviceTotalMem", unsafe { result::device::total_mem(device) })?;
    let pci = pci_bus_id(device)?;
    Ok(Gpu {
        name: driver_result("cuDeviceGetName", result::device::get_name(device))?,
        compute_capability: (
            attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        ),
        memory: memory as u64,
        multiprocessors: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
        // A driver before 12.1 does not know the attribute.
        multicast: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED).unwrap_or(0) != 0,
        nvlinks: nvml.and_then(|nvml| nvlinks(nvml, &pci)),
        links: all.iter().map(|other| link(device, *other, nvml)).collect::<Result<_>>()?,
        pci,
    })
}

/// The number of NVLinks that are up. (No GPU so far has more than 18.)
fn nvlinks(nvml: &Nvml, pci: &str) -> Option<u32> {
    let device = nvml.device_by_pci_bus_id(pci).ok()?;
    let up = (0..18).filter(|link| device.link_wrapper_for(*link).is_active().unwrap_or(false));
    u32::try_from(up.count()).ok()
}

/// The bandwidth in each direction, in 10^9 bytes per second, that NVLinks of a GPU have as specified: 25 for
/// each link in the third and fourth generation (compute capability 8.0, 9.0), 50 in the fifth (10.0).
pub fn nvlink_gbps(links: u32, (major, _): (u32, u32)) -> f64 {
    f64::from(links) * if major >= 10 { 50.0 } else { 25.0 }
}

fn link(from: CUdevice, to: CUdevice, nvml: Option<&Nvml>) -> Result<Link> {
    if from == to {
        return Ok(Link::Own);
    }
    let mut reaches = 0;
    // SAFETY: the driver has been initialised, and gave both devices.
    let answer = unsafe { sys::cuDeviceCanAccessPeer(&mut reaches, from, to) };
    driver_result("cuDeviceCanAccessPeer", answer.result())?;
    Ok(match reaches {
        0 => Link::None,
        _ if over_nvlink(from, to, nvml) => Link::NvLink,
        _ => Link::Pcie,
    })
}

fn over_nvlink(from: CUdevice, to: CUdevice, nvml: Option<&Nvml>) -> bool {
    let known = nvml.and_then(|nvml| {
        let device = |of| nvml.device_by_pci_bus_id(pci_bus_id(of).ok()?).ok();
        let status = device(from)?.p2p_status(&device(to)?, P2pCapabilitiesIndex::NvLink);
        Some(status.ok()? == P2pStatus::Ok)
    });
    // Without that information, peers over PCIe have no native atomics.
    known.unwrap_or_else(|| {
        let mut atomics = 0;
        let which = P2p::CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED;
        // SAFETY: the driver has been initialised, and gave both devices.
        let answer = unsafe { sys::cuDeviceGetP2PAttribute(&mut atomics, which, from, to) };
        answer == CUresult::CUDA_SUCCESS && atomics != 0
    })
}

/// The PCI address of a device, by which NVML also names it, independent of CUDA_VISIBLE_DEVICES.
fn pci_bus_id(device: CUdevice) -> Result<String> {
    let mut text: [c_char; 32] = [0; 32];
    // SAFETY: the driver writes at most the 32 bytes, with a NUL behind.
    let text = unsafe {
        let answer = sys::cuDeviceGetPCIBusId(text.as_mut_ptr(), 32, device);
        driver_result("cuDeviceGetPCIBusId", answer.result())?;
        CStr::from_ptr(text.as_ptr())
    };
    Ok(text.to_string_lossy().into_owned())
}

/// Returns the version of the `mpirun` on PATH, which is the first line that it prints. It is none
/// without `mpirun`.
pub fn mpi() -> Option<String> {
    let said = find::output("mpirun", &["--version"])?;
    said.lines().map(str::trim).find(|line| !line.is_empty()).map(str::to_owned)
}

/// Whether NVSHMEM_DISABLE_NVLS keeps NVSHMEM from using multicast.
pub fn nvls_disabled() -> bool {
    std::env::var("NVSHMEM_DISABLE_NVLS").is_ok_and(|value| is_on(&value))
}

/// Parses a switch like NVSHMEM (its env_defs_internal.h): it is off if the value begins with 0, n
/// or f.
fn is_on(value: &str) -> bool {
    !value.starts_with(['0', 'N', 'n', 'F', 'f'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_without_a_driver_says_so_and_one_with_it_names_its_gpus() {
        match driver() {
            Err(e) => assert!(e.to_string().starts_with("error[R010"), "{e}"),
            Ok(found) => {
                for (n, gpu) in found.gpus.iter().enumerate() {
                    assert!(!gpu.name.is_empty() && gpu.memory > 0 && gpu.multiprocessors > 0, "{gpu:?}");
                    assert_eq!(gpu.links.len(), found.gpus.len());
                    assert_eq!(gpu.links[n], Link::Own);
                }
            }
        }
    }

    #[test]
    fn booleans_are_read_as_nvshmem_reads_them() {
        assert!(["1", "true", "Yes", "on", "2", ""].into_iter().all(is_on));
        assert!(!["0", "false", "No", "n"].into_iter().any(is_on));
    }
}
