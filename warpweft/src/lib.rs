//! A JIT compiler for GPU kernels that compute and communicate in one launch.
//!
//! This program compiles the two-shot allreduce, runs it on four simulated PEs, and compares the
//! results:
//!
//! ```
//! use weft::gpu::{GpuError, Grid, Kernel};
//! use weft::runtime::World;
//!
//! let data: Vec<Vec<f32>> = (0..4).map(|pe| (0..1003).map(|i| (pe * i % 17) as f32).collect()).collect();
//! let sums = World::simulated(4)?.run(|world| {
//!     let text = include_str!("../../examples/allreduce_two_shot.weft");
//!     let kernel = Kernel::compile(world, text, &[("N", 1003.into())])?;
//!     let (x, sync, stream) = (world.tensor::<f32>(1003)?, world.kernel_barrier(4)?, world.stream());
//!     x.copy_from(&data[world.my_pe() as usize], stream)?;
//!     kernel.launch(stream, Grid::of(4), (&x, &sync, &world.team()))?;
//!     Ok::<_, GpuError>(x.to_vec(stream)?)
//! })?;
//! let want: Vec<f32> = (0..1003).map(|i| data.iter().map(|x| x[i]).sum()).collect();
//! assert!(sums.iter().all(|sum| *sum == want));
//! # Ok::<(), GpuError>(())
//! ```
//!
//! With [`on_every_pe`](runtime::on_every_pe) instead of `World::simulated(4)?.run`, the same
//! closure runs on GPUs if the machine has them.
//!
//! You write a kernel with tensor layouts in a `.weft` file, or build it with [`ir::Builder`].
//! [`compile()`] or [`KernelFile`] compiles it to PTX. [`gpu::Kernel`] runs it on GPUs or on
//! simulated PEs in a program's own [`runtime::World`]. The crate `warpweft-run` runs it with data
//! and a check.

pub mod codes;
pub mod collective;
mod compile;
mod describe;
pub mod fused;
pub mod gemm;
pub mod gpu;
pub mod library;
pub mod moe;
pub mod nvshmem;
mod remarks;
mod roles;
mod store;
pub mod tools;
mod tuned;

pub use compile::{
    CompileError, Compiled, IrError, KernelFile, Lowering, Nvshmem, OptLevel, Options, Transport, compile,
    compile_ir, compile_module,
};
pub use roles::TensorRole;
pub use weft_ir as ir;
pub use weft_isa::{PtxVersion, Target};
pub use weft_lang as lang;
pub use weft_lang::elaborate::{Define, Defines};
pub use weft_layout as layout;
pub use weft_runtime as runtime;
pub use weft_sim as sim;

/// The examples of the README compile and run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
