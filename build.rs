//! Lets the binaries, tests, examples and benches of this package find LLVM's library where `weft-llvm` found it.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=DEP_WEFT_LLVM_LIBDIR");
    if let Ok(directory) = std::env::var("DEP_WEFT_LLVM_LIBDIR") {
        println!("cargo::rustc-link-arg=-Wl,-rpath,{directory}");
    }
}
