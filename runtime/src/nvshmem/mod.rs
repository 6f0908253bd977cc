//! NVSHMEM's host library, opened at run time: [`sys`] the functions as they are, `Host` a `Result` for every
//! call (within this room, since it takes addresses on trust), `Library` that or the simulator's. What owns is above: [`World`](crate::World), teams, symmetric memory.
//!
//! Source: NVSHMEM API documentation; headers of 3.3 to 3.8.

mod exit;
mod library;
mod result;
pub mod sys;
pub mod version;

pub(crate) use exit::begun;
pub(crate) use library::{Library, raw};
pub(crate) use result::{Collective, Host, PutSignal};
pub use version::Version;
