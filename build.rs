//! Where LLVM's library is linked and not opened at run time, lets the programs of this package find it.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=DEP_WEFT_LLVM_LIBDIR");
    if let Ok(directory) = std::env::var("DEP_WEFT_LLVM_LIBDIR") {
        println!("cargo::rustc-link-arg=-Wl,-rpath,{directory}");
    }
}
