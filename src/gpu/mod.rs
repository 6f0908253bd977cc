//! Kernels on real GPUs: compiled at run time for the device that is there, loaded, and launched with arguments that
//! are checked.
//!
//! ```no_run
//! use weft::gpu::{Grid, Kernel};
//! use weft::runtime::{Element, World};
//! # const SOURCE: &str = "";
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let (n, world) = (1 << 20, World::init()?);
//! let x = world.zeros::<half::bf16>([n])?;
//! let (team, barrier) = (world.team(), world.kernel_barrier(132)?);
//! let kernel = Kernel::compile(&world, SOURCE, &[("N", (n as i64).into()), ("T", weft::Define::parse("bf16").unwrap())])?;
//! kernel.launch(world.stream(), Grid::fill(world.device()), (&x, &barrier, &team))?;
//! # Ok(()) }
//! ```

pub mod cache;
mod kernel;

pub use cache::Cache;
pub use kernel::{GpuError, Kernel, On, target};
pub use weft_runtime::launch::{Arguments, AsArgument, Grid, LaunchOptions};
