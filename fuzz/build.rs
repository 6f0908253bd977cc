//! As the root's build script: where LLVM's library is linked, finds it where `weft-llvm` found it.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if let Ok(directory) = std::env::var("DEP_WEFT_LLVM_LIBDIR") {
        println!("cargo::rustc-link-arg=-Wl,-rpath,{directory}");
    }
}
