//! Tells the kernel cache which compiler this is. Where LLVM's library is linked and not opened at run time, lets the
//! programs of this package find it.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;

/// What decides what a kernel's text becomes. (A release is known by its version: it is built without these folders.)
const COMPILER: &[&str] = &["../abi", "../codegen", "src/compile.rs", "src/describe.rs"];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=DEP_WEFT_LLVM_LIBDIR");
    if let Ok(directory) = std::env::var("DEP_WEFT_LLVM_LIBDIR") {
        println!("cargo::rustc-link-arg=-Wl,-rpath,{directory}");
    }
    let mut hasher = DefaultHasher::new();
    for path in COMPILER {
        println!("cargo::rerun-if-changed={path}");
        hash(Path::new(path), &mut hasher);
    }
    println!("cargo::rustc-env=WEFT_COMPILER={:016x}", hasher.finish());
}

/// A file, or all of a folder in the order of names.
fn hash(path: &Path, hasher: &mut DefaultHasher) {
    let Ok(entries) = std::fs::read_dir(path) else {
        return (path, std::fs::read(path).unwrap_or_default()).hash(hasher);
    };
    let mut entries: Vec<_> = entries.flatten().map(|e| e.path()).collect();
    entries.sort();
    entries.iter().for_each(|e| hash(e, hasher));
}
