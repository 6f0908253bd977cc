//! NVSHMEM's two halves on this machine: the host library, which a process opens, and the device bitcode, which
//! kernels are linked with. Joins the rooms that can read one each.

mod library;

pub use library::{Caller, Library, LinkError, Object, Objects};

use std::path::Path;

use weft_ir::diag::Diagnostic;
use weft_runtime::Error;
use weft_runtime::find::{self, Found};
use weft_runtime::nvshmem::version::{self, Version};

/// A half of NVSHMEM that was found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Half {
    /// The file of the library.
    pub found: Found,
    /// What it says it is.
    pub version: Version,
}

/// Why a half is not there, or not to be used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NvshmemError {
    /// Not found, not supported, or not of the other's version.
    #[error("{0}")]
    Runtime(Error),
    /// The bitcode cannot be read.
    #[error("error[{}]: {}{}", .0.code, .0.message, help(.0))]
    Bitcode(Diagnostic),
}

fn help(diagnostic: &Diagnostic) -> String {
    diagnostic.help.as_ref().map(|help| format!("\n  help: {help}")).unwrap_or_default()
}

impl From<Error> for NvshmemError {
    fn from(e: Error) -> NvshmemError {
        NvshmemError::Runtime(e)
    }
}

/// Finds the host library of NVSHMEM.
///
/// # Errors
/// Fails if there is none (R0104), or if its version cannot be had (R0105).
pub fn host() -> Result<Half, NvshmemError> {
    let found = find::nvshmem_host()?;
    let version = version::host_version(&found.path)?;
    Ok(Half { found, version })
}

/// The device bitcode for a GPU of compute capability `sm` (90 for 9.0).
///
/// # Errors
/// Fails if there is none (R0104), or if it cannot be read (E0608).
pub fn device(sm: u32) -> Result<Half, NvshmemError> {
    let found = find::nvshmem_device(sm)?;
    let version = device_version(&found.path)?;
    Ok(Half { found, version })
}

/// As the room of LLVM says it of what it cannot open.
fn unreadable(path: &Path, why: &std::io::Error) -> NvshmemError {
    let message = format!("{}: {why}", path.display());
    NvshmemError::Bitcode(Diagnostic::error(
        weft_llvm::codes::BAD_LIBRARY,
        weft_ir::diag::Span::NONE,
        message,
    ))
}

fn device_version(path: &Path) -> Result<Version, NvshmemError> {
    let [major, minor, patch] =
        weft_llvm::nvshmem::device_library_version(path).map_err(NvshmemError::Bitcode)?;
    Ok(Version::new(major, minor, patch))
}

/// Both halves, of one supported version: for who links a kernel with NVSHMEM.
///
/// # Errors
/// Fails where [`host`] or [`device`] fails, or if their versions differ or are not supported (R0105). The
/// message has both versions.
pub fn pair(sm: u32) -> Result<(Half, Half), NvshmemError> {
    let (host, device) = (host()?, device(sm)?);
    check(&host, &device)?;
    Ok((host, device))
}

/// Whether two halves go together.
///
/// # Errors
/// Fails if the versions differ or are not supported (R0105). The message has both versions.
pub fn check(host: &Half, device: &Half) -> Result<(), NvshmemError> {
    Ok(version::check((host.version, &host.found.path), (device.version, &device.found.path))?)
}
