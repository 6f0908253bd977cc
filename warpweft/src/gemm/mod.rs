//! Products of matrices on tensor cores.
//!
//! A [`Gemm`] computes D = A * transpose(B), with A (m, k), B (n, k) and D (m, n). It is a kernel
//! of the library (`src/library/gemm_kernel.weft`) that is compiled for the GPU with a [`Plan`]:
//! the shape of tiles, the stages of the pipeline, and the other values of [`Plan::PARAMETERS`].
//! `weft tune gemm` measures the fastest plan of each shape, and a model chooses for shapes that
//! are unlike all measured ones.
//!
//! ```no_run
//! use weft::gemm::{Gemm, Problem, Shape};
//! use weft::runtime::{DType, Device, DeviceTensor};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let device = Device::open(0)?;
//! let stream = device.new_stream()?;
//! let (m, n, k) = (4096, 8192, 1024);
//! let a = DeviceTensor::<half::bf16>::zeros([m, k], &stream)?;
//! let b = DeviceTensor::<half::bf16>::zeros([n, k], &stream)?;
//! let d = DeviceTensor::<half::bf16>::alloc(&device, [m, n])?;
//!
//! let problem = Problem::new(Shape::new(m as u64, n as u64, k as u64), DType::BF16);
//! let gemm = Gemm::new(&device, problem)?;
//! println!("{} by {:?}", gemm.plan(), gemm.by());
//! gemm.launch(&stream, &a, &b, &d)?;
//! # Ok(()) }
//! ```

mod decode;
mod fit;
mod fused;
mod handle;
pub(crate) mod model;
mod plan;
mod problem;
#[cfg(test)]
mod tests;
pub mod tuning;

pub use decode::{Decode, DecodeNorm, DecodePlan, Normed};
pub(crate) use fused::alike;
pub use fused::tuning as fused_tuning;
pub use fused::{
    Activation, Bytes, Choice, Epilogue, Estimate, Form, Fused, FusedOperands, FusedPlan, FusedTeam, Scales,
};
pub use handle::Gemm;
pub use model::{BlockTiles, Machine};
pub use plan::{Param, Parameter, Plan};
pub use problem::{Major, Problem, Shape};
