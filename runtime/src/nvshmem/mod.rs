//! NVSHMEM's host library, which is opened at run time. [`sys`] has the raw functions, `Host` a
//! `Result` for every call (only within this crate, since it trusts addresses), and `Library`
//! chooses between it and other implementations. The owning types are [`World`](crate::World),
//! teams and symmetric memory.
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
