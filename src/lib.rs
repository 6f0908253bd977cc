//! A JIT compiler for GPU kernels that compute and communicate in one launch.
//!
//! A kernel is written as tensor layouts in a `.weft` file (or with [`ir::Builder`]), compiled by [`compile()`] or
//! [`KernelFile`] to PTX, and run on simulated PEs by [`run`].

pub mod bench;
pub mod check;
pub mod codes;
pub mod collective;
pub mod compile;
pub mod gpu;
pub mod library;
pub mod meta;
pub mod nvshmem;
pub mod ptx;
pub mod run;
pub mod store;
pub mod tools;
pub mod trace;

pub use compile::{
    CompileError, Compiled, KernelFile, Lowering, Nvshmem, OptLevel, Options, Transport, compile, compile_ir,
    compile_machine, compile_module,
};
pub use weft_ir as ir;
pub use weft_isa::{PtxVersion, Target};
pub use weft_lang as lang;
pub use weft_lang::elaborate::{Define, Defines};
pub use weft_layout as layout;
pub use weft_llvm::version as llvm_version;
pub use weft_runtime as runtime;
pub use weft_sim as sim;

/// The Rust of the documents compiles.
#[cfg(doctest)]
mod documents {
    #[doc = include_str!("../README.md")]
    struct Readme;
    #[doc = include_str!("../docs/gpu.md")]
    struct Gpu;
    #[doc = include_str!("../docs/checking.md")]
    struct Checking;
    #[doc = include_str!("../docs/collectives.md")]
    struct Collectives;
}
