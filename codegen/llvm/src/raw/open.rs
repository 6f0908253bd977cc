//! Opens LLVM's shared library when a kernel is first compiled.
//!
//! Programs that are linked with this crate therefore start without LLVM. Every function of LLVM's C interface is
//! defined here as a jump to an address in a table. [`open`] finds the library and fills the table.

use std::ffi::c_void;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::codes::NO_LLVM;
use libloading::Library;
use weft_ir::diag::{Diagnostic, Span};

/// The major version that inkwell is built for.
const MAJOR: u32 = 22;

/// The variable that names a library, or a folder that has one.
const VARIABLE: &str = "WEFT_LLVM";

/// Defines the functions with these names, and [`NAMES`] and [`ADDRESSES`] in the same order.
macro_rules! functions {
    ($($name:ident)*) => {
        const NAMES: &[&str] = &[$(stringify!($name)),*];

        std::arch::global_asm!(
            ".pushsection .data.weft_llvm_addresses, \"aw\"",
            ".balign 8",
            ".hidden weft_llvm_addresses",
            ".globl weft_llvm_addresses",
            "weft_llvm_addresses:",
            $(concat!("weft_llvm_address_", stringify!($name), ": .quad {absent}"),)*
            ".popsection",
            ".pushsection .text.weft_llvm_functions, \"ax\"",
            $(
                concat!(".globl ", stringify!($name)),
                concat!(".hidden ", stringify!($name)),
                concat!(".type ", stringify!($name), ", @function"),
                concat!(stringify!($name), ": jmp qword ptr [rip + weft_llvm_address_", stringify!($name), "]"),
            )*
            ".popsection",
            absent = sym absent,
        );
    };
}

include!("functions.rs");

unsafe extern "C" {
    #[link_name = "weft_llvm_addresses"]
    static mut ADDRESSES: [*const c_void; NAMES.len()];
}

/// The entry of the table for functions that the library lacks, and for all functions before it is
/// opened.
extern "C" fn absent() -> ! {
    super::say(
        "weft: a function of LLVM was called that its library lacks, or before the library was opened",
    );
    std::process::abort()
}

/// The open library, or the reason why there is none.
static OPENED: OnceLock<Result<PathBuf, Diagnostic>> = OnceLock::new();

/// Opens LLVM's library, at the first call of the process.
///
/// # Errors
/// Fails if no library of the right version is found (E0611).
pub(crate) fn open() -> Result<(), Diagnostic> {
    OPENED.get_or_init(find).as_ref().map(drop).map_err(Clone::clone)
}

/// The path of the library, once it is open.
pub(crate) fn opened() -> Option<&'static Path> {
    OPENED.get()?.as_deref().ok()
}

/// Tries the library that the variable names, or else all candidates in turn.
fn find() -> Result<PathBuf, Diagnostic> {
    let named = std::env::var_os(VARIABLE).filter(|path| !path.is_empty()).map(PathBuf::from);
    let places = match &named {
        Some(path) => vec![path.clone()],
        None => places(),
    };
    let mut tried = Vec::new();
    for path in places.iter().flat_map(|place| libraries(place)) {
        match fill(&path) {
            Ok(()) => return Ok(path),
            Err(why) => tried.push(why),
        }
    }
    let message = match (&named, &tried[..]) {
        (Some(path), []) => format!("{VARIABLE} names {}, which does not contain libLLVM", path.display()),
        (_, []) => format!("found no shared library of LLVM {MAJOR}"),
        (_, tried) => format!("found no usable shared library of LLVM {MAJOR}: {}", tried.join("; ")),
    };
    let searched: Vec<_> = places.iter().map(|place| place.display().to_string()).collect();
    Err(Diagnostic::error(NO_LLVM, Span::NONE, message).help(format!(
        "install LLVM {MAJOR} (Debian: `apt install libllvm{MAJOR}`), or the Rust toolchain that has it \
         (`rustup toolchain install 1.95.0`), or set {VARIABLE} to the path of a libLLVM; searched: {}",
        searched.join(", ")
    )))
}

/// The folders to search: those of the loader's variable, the library's place when this crate was
/// built, the user's cache, Rust's toolchains, and the system's folders.
fn places() -> Vec<PathBuf> {
    let folder = |variable: &str| std::env::var_os(variable).map(PathBuf::from).filter(|p| p.is_absolute());
    let home = |name: &str| folder("HOME").map(|home| home.join(name));
    let loaded = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let mut places: Vec<_> = std::env::split_paths(&loaded).filter(|path| path.is_absolute()).collect();
    places.extend(option_env!("WEFT_LLVM_FOLDER").map(PathBuf::from));
    let cache = folder("XDG_CACHE_HOME").or_else(|| home(".cache")).map(|cache| cache.join("warpweft/llvm"));
    places.extend(cache.filter(|path| is_ours(path)));
    let toolchains =
        folder("RUSTUP_HOME").or_else(|| home(".rustup")).map(|rustup| rustup.join("toolchains"));
    let mut toolchains: Vec<_> = toolchains.map(|path| entries(&path)).unwrap_or_default();
    toolchains.sort();
    places.extend(toolchains.into_iter().map(|toolchain| toolchain.join("lib")));
    let system =
        ["/usr/lib/llvm-22/lib", "/usr/local/lib", "/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib"];
    places.extend(system.map(PathBuf::from));
    places
}

/// Whether only this user can have written a folder and its contents.
fn is_ours(folder: &Path) -> bool {
    // The system says that a process belongs to its effective user.
    let Ok(user) = std::fs::metadata("/proc/self").map(|process| process.uid()) else { return false };
    let mut files = entries(folder);
    files.push(folder.to_owned());
    let is_ours = |path: &PathBuf| {
        let meta = std::fs::symlink_metadata(path);
        meta.is_ok_and(|m| !m.is_symlink() && m.uid() == user && m.mode() & 0o022 == 0)
    };
    files.iter().all(is_ours)
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

/// The libraries of the right version in a place, which can be a library file itself.
fn libraries(place: &Path) -> Vec<PathBuf> {
    if place.is_file() {
        return vec![place.to_owned()];
    }
    let names = [format!("libLLVM-{MAJOR}"), format!("libLLVM.so.{MAJOR}")];
    let fits = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        names.iter().any(|begin| name.starts_with(begin)) && name.contains(".so")
    };
    let mut found: Vec<_> = entries(place).into_iter().filter(fits).collect();
    found.sort();
    found
}

/// Opens a library and fills the table, if it has the right version and a back end for NVIDIA's
/// GPUs.
fn fill(path: &Path) -> Result<(), String> {
    // SAFETY: the initialisers of LLVM's library have no conditions.
    let library = unsafe { Library::new(path) }.map_err(|e| e.to_string())?;
    let shown = path.display();
    let symbol = |name: &str| {
        // SAFETY: only the address is taken here.
        unsafe { library.get::<*const c_void>(name.as_bytes()) }.ok().map(|address| *address)
    };
    let version = symbol("LLVMGetVersion").ok_or_else(|| format!("{shown} has no LLVMGetVersion"))?;
    let mut numbers = [0u32; 3];
    let [major, minor, patch] = numbers.each_mut();
    // SAFETY: the function takes three addresses of integers, in every LLVM that has it.
    unsafe {
        let version: unsafe extern "C" fn(*mut u32, *mut u32, *mut u32) = std::mem::transmute(version);
        version(major, minor, patch);
    }
    if numbers[0] != MAJOR {
        return Err(format!("{shown} belongs to LLVM {}", numbers[0]));
    }
    if symbol("LLVMInitializeNVPTXTarget").is_none() {
        return Err(format!("{shown} has no back end for NVIDIA's GPUs"));
    }
    for (i, address) in NAMES.iter().enumerate().filter_map(|(i, name)| Some((i, symbol(name)?))) {
        // SAFETY: the table has as many entries as there are names. Nobody else writes it, because `OPENED` calls this
        // in one thread at a time, and nobody reads it before `OPENED` is set.
        unsafe { (&raw mut ADDRESSES).cast::<*const c_void>().add(i).write(address) };
    }
    // The addresses must stay valid until the process ends.
    std::mem::forget(library);
    Ok(())
}
