//! NVSHMEM's device functions, which are distributed as LLVM bitcode.

use crate::codes::BAD_LIBRARY;
use crate::raw;
use inkwell::context::Context;
use inkwell::module::Module;
use std::path::Path;
use weft_ir::diag::{Diagnostic, Span};

/// The variable that holds the version of NVSHMEM that the bitcode belongs to, as three 32-bit
/// integers. The host library compares it with its own when a module is initialised.
const VERSION: &str = "nvshmemi_device_lib_version_d";

/// Advice for a broken file.
pub(crate) const FETCH_ANEW: &str =
    "run `weft setup --force` to download NVSHMEM again, or set NVSHMEM_HOME to another installation";

/// The major, minor and patch version of NVSHMEM's device bitcode. This takes a few milliseconds,
/// because functions are not read.
///
/// # Errors
/// Fails if the file cannot be read, is not bitcode that LLVM 22 reads, or is not NVSHMEM's
/// (E0608), and if LLVM is not found (E0611).
pub fn device_library_version(path: &Path) -> Result<[u32; 3], Diagnostic> {
    let context = raw::context()?;
    raw::reading(path, || version_in(&context, path)).map_err(|why| broken(path, &why))
}

/// The error for a file that cannot be used.
pub(crate) fn broken(path: &Path, why: &str) -> Diagnostic {
    Diagnostic::error(BAD_LIBRARY, Span::NONE, format!("{}: {why}", path.display())).help(FETCH_ANEW)
}

/// Functions that came later than the oldest supported version: the beginnings of their names, and
/// the version that introduced them. (Found by comparing the device functions of 3.4.5, 3.5.21,
/// 3.6.5, 3.7.2 and 3.8.0.)
const SINCE: &[(&str, &str)] = &[
    ("nvshmemx_qp_", "3.5"),
    ("nvshmemx_float_atomic_", "3.7"),
    ("nvshmemx_double_atomic_", "3.7"),
    ("nvshmemx_half_atomic_", "3.7"),
    ("nvshmemx_flush", "3.7"),
    ("nvshmemx_put16_signal", "3.8"),
    ("nvshmemx_region_", "3.8"),
    ("nvshmemx_signal_counted_reset", "3.8"),
];

/// The version that introduced a function, if not all versions have it.
pub(crate) fn since(function: &str) -> Option<&'static str> {
    SINCE.iter().find(|(prefix, _)| function.starts_with(prefix)).map(|(_, version)| *version)
}

fn version_in(context: &Context, path: &Path) -> Result<[u32; 3], String> {
    let diagnostics = raw::Diagnostics::collect(context);
    let module = open(context, &diagnostics, path)?;
    version_of(&module)
}

/// Opens the bitcode lazily.
pub(crate) fn open<'c>(
    context: &'c Context,
    diagnostics: &raw::Diagnostics<'c>,
    path: &Path,
) -> Result<Module<'c>, String> {
    raw::library::open(context, diagnostics, path).map_err(|why| format!("not device bitcode: {why}"))
}

/// The version in opened bitcode.
pub(crate) fn version_of(module: &Module<'_>) -> Result<[u32; 3], String> {
    let numbers = raw::library::initial_integers::<3>(module, VERSION);
    let numbers = numbers.ok_or_else(|| format!("not NVSHMEM's device bitcode: it has no `{VERSION}`"))?;
    let [Ok(major), Ok(minor), Ok(patch)] = numbers.map(u32::try_from) else {
        return Err(format!("`{VERSION}` is not a version: {numbers:?}"));
    };
    Ok([major, minor, patch])
}

/// The declaration of a device function in its library.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Function {
    /// The name of the function in C.
    pub name: String,
    /// The size of each parameter in bytes as PTX passes it. Integers below 32 bits have 4.
    pub params: Vec<u64>,
    /// The size of the result in bytes, if there is one.
    pub result: Option<u64>,
}

/// The functions with C names (`nvshmem_*`, `nvshmemx_*`) that NVSHMEM's device bitcode has.
///
/// # Errors
/// Fails where [`device_library_version`] fails.
pub fn functions(path: &Path) -> Result<Vec<Function>, Diagnostic> {
    let context = raw::context()?;
    let diagnostics = raw::Diagnostics::collect(&context);
    raw::reading(path, || {
        let module = open(&context, &diagnostics, path)?;
        version_of(&module)?;
        let known = module.get_functions().filter(|f| !f.as_global_value().is_declaration());
        let named = known.filter_map(|f| Some((f.get_name().to_str().ok()?.to_owned(), f)));
        let public = named.filter(|(name, _)| name.starts_with("nvshmem_") || name.starts_with("nvshmemx_"));
        Ok(public.map(|(name, f)| raw::library::declared(name, f)).collect())
    })
    .map_err(|why: String| broken(path, &why))
}
