//! NVSHMEM's two halves on this machine: the host library, which a process opens, and the device
//! bitcode, which kernels are linked with.

mod library;

pub use library::{Caller, Library, LinkError, Object, Objects};

use std::path::Path;

use weft_ir::diag::Diagnostic;
use weft_runtime::Error;
use weft_runtime::nvshmem::Version;

/// The reason why NVSHMEM cannot be used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NvshmemError {
    /// NVSHMEM is not found, its version is not supported, or its two halves differ in version.
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

/// The error for bitcode that cannot be opened, in the words of the LLVM back end.
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
