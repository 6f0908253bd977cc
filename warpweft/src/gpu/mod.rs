//! Kernels on GPUs are compiled at run time for the device, loaded, and launched with arguments
//! that are checked.
//!
//! ```no_run
//! use weft::gpu::{Grid, Kernel};
//! use weft::{Define, runtime::World};
//! # const SOURCE: &str = "";
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let (n, world) = (1 << 20, World::init()?);
//! let x = world.zeros::<f32>(n)?;
//! let (team, barrier) = (world.team(), world.kernel_barrier(132)?);
//! let kernel = Kernel::compile(&world, SOURCE, &[("N", Define::Int(n as i64))])?;
//! kernel.launch(world.stream(), Grid::fill(world.device()), (&x, &barrier, &team))?;
//! # Ok(()) }
//! ```

pub mod cache;
mod kernel;

pub use kernel::{GpuError, Kernel, On, target, target_of};
pub use weft_runtime::launch::{Grid, LaunchOptions};
