//! If LLVM's library is linked, finds it at the place where `weft-llvm` found it, as the root's
//! build script does.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if let Ok(directory) = std::env::var("DEP_WEFT_LLVM_LIBDIR") {
        println!("cargo::rustc-link-arg=-Wl,-rpath,{directory}");
    }
}
