//! Compiled kernels on a GPU: loading, arguments that are checked against a kernel's description, launching.
//!
//! PTX comes with a [`ModuleInfo`], and nothing else is known of it here. [`Module::load`] gives it to the driver,
//! [`Module::kernel`] finds an entry point, and [`Kernel::launch`] checks the arguments ([`KernelInfo::check`]), fills
//! in the addresses that only the launcher knows (multicast addresses, tables of peers' addresses), and launches.

mod argument;
mod check;
mod driver;
pub mod extent;
mod info;
mod kernel;
mod module;
mod scalar;

pub use crate::memory::BARRIER_LINE;
pub use argument::{Argument, Arguments, AsArgument, Elements, Given, multicast};
pub use check::{Address, Checked, Hidden};
pub use extent::{Extent, Extents};
pub use info::{KernelInfo, ModuleInfo, ParamInfo, ParamKind, Space, WORLD, runs_on};
pub use kernel::{Grid, Kernel, LaunchOptions};
pub use module::{Module, needs_nvshmem, to_cubin};
pub use scalar::Number;
pub use weft_abi::Lowering;
