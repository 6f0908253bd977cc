//! The description of a kernel's launch: element types, memory spaces, the lowering of the code,
//! and the parameters of an entry point with their offsets.
//!
//! The compiler writes this description, the cache keeps it next to the code, and launches on GPUs
//! and on simulated PEs read it. Each of these concepts is defined here once. This crate depends on
//! neither IR nor LLVM nor CUDA.

mod choice;
mod entry;
pub mod extent;
mod hidden;
mod info;
mod map;
mod memory;
mod remark;
mod role;
mod scalar;
mod text;
mod version;
pub mod watch;
mod words;

pub use choice::{Lowering, LoweringRequest, Transport};
pub use entry::{EntryKind, EntryParam, MAX_PARAM_BYTES, TooManyBytes, entry_params};
pub use extent::{Extent, Extents};
pub use hidden::{Hidden, WORLD};
pub use info::{KernelInfo, ModuleInfo, ParamInfo, ParamKind, RoleInfo};
pub use map::{MAP_ALIGN, MAP_BYTES, MAP_DIMS, MapShape, MapSwizzle};
pub use memory::{Scope, Space};
pub use remark::{Remark, RemarkKind};
pub use role::Role;
pub use scalar::{Element, NumberKind, Scalar};
pub use version::NvshmemVersion;
