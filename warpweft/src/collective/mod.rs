//! The collectives of a team: a table of algorithms, and calls that compile and launch them like a
//! user's kernels.
//!
//! An [`Algorithm`] is a kernel of the built-in library (`src/library/*.weft`) with its properties.
//! [`Collectives`] owns the symmetric workspaces that algorithms need, and compiles each algorithm
//! at its first launch:
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use weft::collective::Collectives;
//! use weft::runtime::{Reduce, World};
//!
//! let world = World::init()?;
//! let collectives = Collectives::new(&world)?;
//! let x = world.tensor::<f32>(4096)?;
//! collectives.allreduce(&x, None, Reduce::Sum, world.stream())?; // in place
//! # Ok(()) }
//! ```
//!
//! All PEs of the team make the same calls, in the same order. One handle belongs to one stream at
//! a time, because its workspaces count exchanges on the device. Calls can follow each other
//! without synchronisation between them, also in CUDA graphs. Calls that run at the same time on
//! another stream need another handle.

mod algorithm;
mod call;
mod cost;
mod engine;
mod handle;
mod kernel;
mod launch;
mod plan;
mod ready;
mod shape;
mod sums;
mod table;
pub mod tuning;
mod workspace;

pub use algorithm::Algorithm;
pub use call::{Call, Flat};
pub use cost::{Cost, Links, Prediction};
pub use handle::{Collectives, Config};
pub use plan::{Limits, Placement, Plan, Request};
pub use shape::{Collective, Counts};
pub use sums::Sums;
use table::ALGORITHMS;
