//! The CUDA driver, through [`cudarc`]: information about devices and errors, and the few calls
//! that cudarc's safe layer does not have.
//!
//! `cudarc` opens libcuda at its first call and panics if it is missing. So everything here begins
//! with [`present`], and a [`Device`] is the proof that it succeeded. The caller orders streams:
//! `cudarc`'s tracking of slices by events is disabled in the contexts created here.

pub(crate) mod copy;
mod device;
mod event;
mod graph;
pub(crate) mod ipc;
mod map;
pub(crate) mod pinned;
mod stream;
mod symbols;
mod tensor;
pub mod vmm;
mod wait;

/// A CUDA stream in the driver's form (`CUstream`).
pub type RawStream = sys::CUstream;

pub use cudarc::driver::{CudaContext, CudaSlice, CudaStream, DevicePtr, DriverError};
pub use device::Device;
pub use event::Event;
pub use graph::{Graph, Keep, keep};
pub(crate) use map::encode_map;
pub use stream::Stream;
pub use tensor::{AnyDeviceTensor, BorrowedTensor, DeviceTensor};
pub use wait::wait_for;
pub(crate) use wait::{drained, give_up, is_waiting, not_stuck};

use crate::error::{ASSERTION, CUDA, Error, NO_CUDA, NO_GPU, Result};
use cudarc::driver::result;
use cudarc::driver::sys::{self, CUresult};
use std::sync::OnceLock;

/// The oldest CUDA version whose driver has all functions that are called here.
const OLDEST: (u32, u32) = (12, 4);

/// The first steps of a search for the missing GPUs.
const WHAT_TO_DO: &str = "an NVIDIA driver brings libcuda.so.1; in a container, pass the GPUs on (docker run --gpus all)\n\
                          without a GPU, `weft run` and `weft compile` work as they are, on the simulator";

/// Checks that the driver can be used.
///
/// # Errors
/// Fails if libcuda is not found, does not work, or is too old (R0101). The message lists the names
/// that were tried.
pub fn present() -> Result<()> {
    driver_version().map(|_| ())
}

/// The CUDA version that the driver supports, such as (13, 0).
///
/// # Errors
/// Fails where [`present`] fails.
pub fn driver_version() -> Result<(u32, u32)> {
    static FOUND: OnceLock<Result<(u32, u32)>> = OnceLock::new();
    FOUND.get_or_init(ask_version).clone()
}

#[allow(unsafe_code, reason = "FFI")]
fn ask_version() -> Result<(u32, u32)> {
    // SAFETY: opening libcuda runs only its own initialisers.
    if !unsafe { sys::is_culib_present() } {
        let path = std::env::var("LD_LIBRARY_PATH").unwrap_or_default();
        let message = format!(
            "the CUDA driver was not found: neither libcuda.so nor libcuda.so.1 is where the loader searches (the \
             system's folders, and LD_LIBRARY_PATH={path})"
        );
        return Err(Error::new(NO_CUDA, message).help(WHAT_TO_DO));
    }
    // SAFETY: the library is there; nothing is called or read through the symbol.
    let has = |name: &[u8]| unsafe { sys::culib().get::<unsafe extern "C" fn()>(name) }.is_ok();
    let missing = symbols::missing(has);
    if let Some(first) = missing.first() {
        let message = format!(
            "the libcuda that was found cannot be used: it lacks {first}{}",
            if missing.len() > 1 {
                format!(" and {} more functions", missing.len() - 1)
            } else {
                String::new()
            }
        );
        return Err(Error::new(NO_CUDA, message)
            .help(format!("check whether LD_LIBRARY_PATH hides the driver's own libcuda; {WHAT_TO_DO}")));
    }
    let mut version = 0;
    // SAFETY: the library has this function.
    let answer = unsafe { sys::cuDriverGetVersion(&mut version) };
    let version = u32::try_from(version).unwrap_or(0);
    let version = (version / 1000, version % 1000 / 10);
    match answer {
        CUresult::CUDA_SUCCESS if version >= OLDEST => Ok(version),
        CUresult::CUDA_SUCCESS => {
            let ((major, minor), (least, after)) = (version, OLDEST);
            let message = format!(
                "the driver supports CUDA {major}.{minor}, but warpweft needs {least}.{after} or later"
            );
            Err(Error::new(NO_CUDA, message).help("install a newer NVIDIA driver (550 or later)"))
        }
        other => {
            let message = format!("libcuda does not work: cuDriverGetVersion returned {other:?}");
            Err(Error::new(NO_CUDA, message)
                .help("remove stub libraries from LD_LIBRARY_PATH, or install the driver that matches the kernel module"))
        }
    }
}

/// Returns the number of GPUs that this process can see.
///
/// # Errors
/// Fails without a driver (R0101), or if the driver does not start (R0103). Without a GPU, the
/// result is 0.
pub fn device_count() -> Result<u32> {
    present()?;
    match CudaContext::device_count() {
        Ok(n) => Ok(u32::try_from(n).unwrap_or(0)),
        Err(DriverError(CUresult::CUDA_ERROR_NO_DEVICE)) => Ok(0),
        Err(e) => Err(error("cuInit", e)),
    }
}

/// Returns the compute capability of a GPU, such as (9, 0), without creating a context on it.
///
/// # Errors
/// Fails without a driver (R0101), without such a GPU (R0102), or if the CUDA driver rejects a call
/// (R0103).
#[allow(unsafe_code, reason = "FFI")]
pub fn compute_capability(ordinal: u32) -> Result<(u32, u32)> {
    use sys::CUdevice_attribute as Attribute;
    let count = device_count()?;
    let device = i32::try_from(ordinal).ok().filter(|_| ordinal < count);
    let device = device.ok_or_else(|| no_gpu(ordinal, count))?;
    let device = result::device::get(device).map_err(|e| error("cuDeviceGet", e))?;
    let ask = |which| {
        // SAFETY: the device was just found.
        let n = unsafe { result::device::get_attribute(device, which) };
        n.map(|n| u32::try_from(n).unwrap_or(0)).map_err(|e| error("cuDeviceGetAttribute", e))
    };
    Ok((
        ask(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
        ask(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
    ))
}

/// Returns the target to compile for: `sm_90a`, with all features that only this architecture has,
/// or `sm_80` before 9.0.
pub fn arch((major, minor): (u32, u32)) -> String {
    format!("sm_{major}{minor}{}", if major >= 9 { "a" } else { "" })
}

/// The PE that this process is.
static PE: OnceLock<u32> = OnceLock::new();

/// Sets the PE of this process, for errors.
pub(crate) fn this_is(pe: u32) {
    // A process joins one job.
    let _ = PE.set(pe);
}

/// Makes the error of a failed assertion in a kernel. CUDA reports the assertion, but not the PE.
fn assertion(call: &str, pe: Option<u32>) -> Error {
    let whose = pe.map_or_else(|| "this process".to_owned(), |pe| format!("PE {pe}"));
    Error::new(ASSERTION, format!("{call}: an assertion failed in a kernel of {whose}")).help(
        "see standard error for its text, file and line, the CTA (block) and the thread; every later call of this \
         process fails",
    )
}

/// Makes an error of a driver call's result. It has the name of the call, CUDA's name for the
/// error, and CUDA's explanation.
pub fn error(call: &str, e: DriverError) -> Error {
    if e.0 == CUresult::CUDA_ERROR_ASSERT {
        return assertion(call, PE.get().copied());
    }
    let text = |s: std::result::Result<&std::ffi::CStr, DriverError>| {
        s.map(|s| s.to_string_lossy().into_owned()).unwrap_or_default()
    };
    let (name, meaning) = match present() {
        Ok(()) => (text(e.error_name()), text(e.error_string())),
        Err(_) => (String::new(), String::new()),
    };
    let name = if name.is_empty() { format!("{:?}", e.0) } else { name };
    let colon = if meaning.is_empty() { "" } else { ": " };
    let error = Error::new(CUDA, format!("{call}: {name}{colon}{meaning}"));
    match HELP.iter().find(|(code, _)| *code == e.0) {
        Some((_, help)) => error.help(*help),
        None => error,
    }
}

/// Makes the error of a call that may run out of memory.
pub(crate) fn no_room(what: &str, bytes: usize, device: &Device, call: &str, e: DriverError) -> Error {
    if e.0 != CUresult::CUDA_ERROR_OUT_OF_MEMORY {
        return error(call, e);
    }
    let room =
        device.memory().map(|(free, total)| format!("; {free} of its {total} are free")).unwrap_or_default();
    let message =
        format!("GPU {} does not have enough memory for {what} of {bytes} bytes{room}", device.ordinal());
    Error::new(crate::error::OUT_OF_MEMORY, message)
}

/// Help for errors whose name does not tell what to do.
const HELP: &[(CUresult, &str)] = &[
    (
        CUresult::CUDA_ERROR_ILLEGAL_ADDRESS,
        "a kernel read or wrote outside its memory; every later call of this process fails\n\
         the simulator says which access it was: `weft run --pes N`",
    ),
    (
        CUresult::CUDA_ERROR_LAUNCH_FAILED,
        "a kernel trapped (with debug waits, a wait exceeded its bound); every later call of this process fails",
    ),
    (
        CUresult::CUDA_ERROR_MISALIGNED_ADDRESS,
        "a kernel used a misaligned address; run it on the simulator to find the access",
    ),
    (
        CUresult::CUDA_ERROR_DEVICE_UNAVAILABLE,
        "another process uses this GPU exclusively: check nvidia-smi -q -d COMPUTE",
    ),
    (
        CUresult::CUDA_ERROR_SYSTEM_NOT_READY,
        "start NVIDIA's fabric manager: systemctl start nvidia-fabricmanager",
    ),
];

/// Makes the error for a missing GPU number.
pub(crate) fn no_gpu(ordinal: u32, count: u32) -> Error {
    let gpus = if count == 1 { "GPU" } else { "GPUs" };
    let message = format!("there is no GPU {ordinal}: this process sees {count} {gpus}");
    Error::new(NO_GPU, message).help(match std::env::var("CUDA_VISIBLE_DEVICES") {
        Ok(visible) => {
            format!("CUDA_VISIBLE_DEVICES is {visible:?}: only these GPUs are visible, counted from 0")
        }
        Err(_) => "GPUs are counted from 0; `nvidia-smi -L` lists them".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The tests of this module run on machines with and without a driver.
    #[test]
    fn without_a_driver_everything_is_an_error_and_nothing_a_panic() {
        match present() {
            Ok(()) => assert!(driver_version().unwrap() >= OLDEST),
            Err(e) => {
                assert_eq!(e.code, NO_CUDA);
                assert!(e.message.contains("libcuda") || e.message.contains("CUDA"), "{e}");
                assert_eq!(device_count().unwrap_err(), e);
                assert_eq!(Device::open(0).unwrap_err(), e);
            }
        }
    }

    #[test]
    fn errors_say_the_call_the_name_and_what_to_do() {
        let e = error("cuLaunchKernelEx", DriverError(CUresult::CUDA_ERROR_ILLEGAL_ADDRESS));
        assert_eq!(e.code, CUDA);
        assert!(e.message.starts_with("cuLaunchKernelEx: CUDA_ERROR_ILLEGAL_ADDRESS"), "{e}");
        assert!(e.help.contains("simulator"), "{e}");
    }

    #[test]
    fn a_failed_assertion_names_the_pe() {
        let e = assertion("cuStreamQuery", Some(3));
        assert_eq!(e.code, ASSERTION);
        assert_eq!(e.message, "cuStreamQuery: an assertion failed in a kernel of PE 3");
        assert_eq!(error("cuStreamQuery", DriverError(CUresult::CUDA_ERROR_ASSERT)).code, ASSERTION);
    }

    #[test]
    fn a_missing_gpu_is_named_with_how_many_there_are() {
        let e = no_gpu(3, 2);
        assert_eq!((e.code, e.message.as_str()), (NO_GPU, "there is no GPU 3: this process sees 2 GPUs"));
    }
}
