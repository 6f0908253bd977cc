//! Compiled kernels on a GPU: loading, arguments that are checked against a kernel's description,
//! and launching.
//!
//! PTX comes with a [`ModuleInfo`], which is all that is known of it here. [`Module::load`] passes
//! the PTX to the driver, [`Module::kernel`] finds an entry point, and [`Kernel::launch`] checks
//! the arguments ([`Checked::new`]), fills in the addresses that only the launcher knows (multicast
//! addresses, tables of peers' addresses), and launches.

mod argument;
mod check;
mod copies;
pub(crate) mod driver;
mod grid;
mod image;
mod kernel;
mod map;
mod module;
pub mod remarks;
mod scalar;
mod target;

pub use crate::memory::BARRIER_LINE;
pub use argument::{Argument, ArgumentValue, Arguments, AsArgument, Elements, multicast};
pub use check::{Checked, Unfilled};
pub use copies::Copied;
pub use grid::{Grid, LaunchOptions};
pub use kernel::{Kernel, Prepared};
pub use module::{Module, is_whole_program, needs_nvshmem, to_image};
pub use scalar::Number;
pub use target::runs_on;
pub use weft_abi::extent;
pub use weft_abi::{
    Extent, Extents, Hidden, KernelInfo, Lowering, ModuleInfo, ParamInfo, ParamKind, Space, WORLD,
};
