//! PEs are processes with a GPU each, which have NVSHMEM's symmetric heap and load kernels through
//! the CUDA driver, or they are [`simulated`] by threads of one process.
//!
//! Foreign libraries are opened at run time, each in three layers: the raw functions (`sys`), a
//! `Result` for every call (`result`), and owning types. CUDA's layers are [`cudarc`]'s, and
//! NVSHMEM's are in [`nvshmem`]. This crate knows neither the IR nor LLVM: it launches PTX with the
//! description that came with it.

mod collective;
pub mod cublas;
pub mod cuda;
mod direct;
pub mod error;
pub mod find;
mod foreign;
mod interrupt;
pub mod jitlink;
pub mod job;
pub mod launch;
pub mod machine;
pub mod memory;
pub mod nccl;
pub mod nvshmem;
pub mod owned;
mod peers;
mod program;
mod registry;
mod rma;
mod shape;
pub mod simulated;
mod team;
pub mod watch;
mod world;

pub use collective::Reduce;
pub use cuda::{Device, DeviceTensor, Graph, Stream};
pub use dlpark;
pub use error::{Error, Result};
pub use interrupt::on_interrupt;
pub use memory::{
    Barrier, Compare, ImportedTensor, Mapping, Signal, SignalOp, SymmetricBuffer, SymmetricTensor,
};
pub use program::{On, on_every_gpu, on_every_pe};
pub use rma::Local;
pub use shape::IntoLayout;
pub use simulated::{Modules, SimConfig, SimJob, Simulation};
pub use team::Team;
pub use weft_abi::{Element, Scalar as DType};
pub use weft_sim::{visible, visible_line};
pub use world::{Config, Memory, World};

#[cfg(feature = "mpi")]
pub use ::mpi;
