//! NVSHMEM's device functions, which come as LLVM bitcode.

use crate::codes::BAD_LIBRARY;
use crate::raw;
use inkwell::context::Context;
use std::path::Path;
use weft_ir::diag::{Diagnostic, Span};

/// The variable that holds the version NVSHMEM was built as: three 32-bit integers. The host library compares it
/// with its own when a module is initialised.
const VERSION: &str = "nvshmemi_device_lib_version_d";

/// What to do about a broken file.
pub(crate) const FETCH_ANEW: &str =
    "`weft setup --force` fetches NVSHMEM anew; NVSHMEM_HOME names another installation";

/// Major, minor and patch version of NVSHMEM's device bitcode. Takes a few milliseconds: functions are not read.
///
/// # Errors
/// E0608 where the file cannot be read, is no bitcode that LLVM 22 reads, or is not NVSHMEM's.
pub fn device_library_version(path: &Path) -> Result<[u32; 3], Diagnostic> {
    raw::on_fatal_error();
    raw::reading(path, || version_in(path)).map_err(|why| {
        Diagnostic::error(BAD_LIBRARY, Span::NONE, format!("{}: {why}", path.display())).help(FETCH_ANEW)
    })
}

fn version_in(path: &Path) -> Result<[u32; 3], String> {
    let context = Context::create();
    let module = raw::library::open(&context, path).map_err(|why| format!("not device bitcode: {why}"))?;
    let numbers = raw::library::initial_integers::<3>(&module, VERSION);
    let numbers = numbers.ok_or_else(|| format!("not NVSHMEM's device bitcode: it has no `{VERSION}`"))?;
    let [Ok(major), Ok(minor), Ok(patch)] = numbers.map(u32::try_from) else {
        return Err(format!("`{VERSION}` is no version: {numbers:?}"));
    };
    Ok([major, minor, patch])
}
