//! The version of an NVSHMEM library, and whether two versions match.
#![allow(unsafe_code, reason = "a C function of a library opened at run time")]

use std::ffi::c_int;
use std::path::Path;

use crate::error::{Error, NVSHMEM_VERSION, Result};

pub use weft_abi::NvshmemVersion as Version;

/// Asks a host library for its NVSHMEM version (`nvshmemx_vendor_get_version_info`). It needs
/// neither a GPU nor an initialisation.
///
/// # Errors
/// Fails if it cannot be opened or has no such function (R0105).
pub fn host_version(path: &Path) -> Result<Version> {
    type GetVersion = unsafe extern "C" fn(*mut c_int, *mut c_int, *mut c_int);
    const NAME: &str = "nvshmemx_vendor_get_version_info";
    let fails = |e: libloading::Error| {
        Error::new(NVSHMEM_VERSION, format!("{} is not an NVSHMEM host library: {e}", path.display()))
            .help("`weft setup` fetches one that works; set WEFT_NVSHMEM or NVSHMEM_HOME to use your own")
    };
    // SAFETY: loading runs the initialisers of a library that the user names or the system has; NVSHMEM's only
    // set up its own tables. The function is declared `void (int *, int *, int *)` in nvshmemx_api.h, writes its
    // three arguments, and the library outlives the call.
    let [major, minor, patch] = unsafe {
        let library = libloading::Library::new(path).map_err(fails)?;
        let get = library.get::<GetVersion>(NAME.as_bytes()).map_err(fails)?;
        let mut numbers = [-1; 3];
        let [major, minor, patch] = &mut numbers;
        get(major, minor, patch);
        numbers
    };
    let number = |n: c_int| {
        u32::try_from(n).map_err(|_| {
            let message = format!("{} reports version {major}.{minor}.{patch}", path.display());
            Error::new(NVSHMEM_VERSION, message)
        })
    };
    Ok(Version::new(number(major)?, number(minor)?, number(patch)?))
}

/// Checks that a library's version is supported.
///
/// # Errors
/// Fails if the version is not supported (R0105). The message lists the supported versions.
pub fn check_supported(version: Version, path: &Path) -> Result<()> {
    if version.is_supported() {
        return Ok(());
    }
    let ((a, b), (c, d)) = (Version::SUPPORTED.start(), Version::SUPPORTED.end());
    let message = format!(
        "{} is NVSHMEM {version}, but only versions {a}.{b} to {c}.{d} are supported",
        path.display()
    );
    Err(Error::new(NVSHMEM_VERSION, message)
        .help("`weft setup` fetches a supported one; set WEFT_NVSHMEM or NVSHMEM_HOME to use your own"))
}

/// Checks that a host library and device bitcode match: both are supported and have the same
/// version.
///
/// # Errors
/// Fails if the versions differ (R0105). The message has both versions and both paths.
pub fn check(host: (Version, &Path), device: (Version, &Path)) -> Result<()> {
    check_supported(host.0, host.1)?;
    check_supported(device.0, device.1)?;
    if host.0 == device.0 {
        return Ok(());
    }
    let message = format!(
        "NVSHMEM's host library is {} and its device bitcode is {}\n    host:   {}\n    device: {}",
        host.0,
        device.0,
        host.1.display(),
        device.1.display()
    );
    Err(Error::new(NVSHMEM_VERSION, message).help(
        "they share structures, so both must come from one installation: set NVSHMEM_HOME to it, or run \
         `weft setup --force`",
    ))
}
