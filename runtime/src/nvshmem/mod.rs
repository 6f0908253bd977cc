//! NVSHMEM's host library, opened at run time: [`sys`] the functions as they are, `Library` a `Result` for every
//! call (within this room, since it takes addresses on trust). What owns is above: [`World`](crate::World), teams, symmetric memory.
//!
//! Source: NVSHMEM API documentation; headers of 3.3 to 3.8.

mod exit;
mod result;
pub mod sys;
pub mod version;

pub(crate) use exit::begun;
pub(crate) use result::{Collective, Library, PutSignal};
pub use version::Version;
