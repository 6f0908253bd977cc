//! Real GPUs: one process a PE, NVSHMEM's symmetric heap under them, kernels loaded through the CUDA driver.
//!
//! Foreign libraries are opened at run time, each in three layers: the raw functions (`sys`), a `Result` for every
//! call (`result`), and types that own. CUDA's are [`cudarc`]'s, NVSHMEM's are in [`nvshmem`].
//! This room knows neither the IR nor LLVM: it launches PTX with the description that came with it.

pub mod cuda;
pub mod dtype;
pub mod error;
pub mod find;

pub use dtype::{DType, Element};
pub use error::Error;
