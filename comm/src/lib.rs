//! Collectives between the GPUs of one host, for inference engines that have their own streams and
//! memory.
//!
//! A [`Comm`] connects processes of one host, one per GPU. As NCCL's communicators do, it uses an
//! id of 128 bytes on which the processes agree. Its calls take CUDA's raw streams and device
//! addresses, which every engine has, and accept any memory. Memory of [`Comm::alloc`] is used
//! without a copy. NVSHMEM, MPI and a CUDA toolkit are not needed, and a process can have several
//! communicators.
//!
//! ```no_run
//! use warpweft_comm::{Comm, DType, Id, Options};
//! # fn tell_the_others(_: &Id) {}
//! # fn main() -> Result<(), warpweft_comm::Error> {
//! # let (rank, size, stream, src, dst) = (0, 2, std::ptr::null_mut(), 0u64, 0u64);
//! let id = Id::random()?; // made by rank 0
//! tell_the_others(&id);
//! let comm = Comm::new(rank, size, &id, &Options::default())?;
//! if comm.should_all_reduce(4096, DType::BF16) {
//!     // SAFETY: both have 4096 elements, and the stream is this device's.
//!     unsafe { comm.all_reduce(stream, src, dst, 4096, DType::BF16)? };
//! }
//! # Ok(()) }
//! ```
//!
//! # Norms
//! [`AddRmsNorm`] does what follows a row-parallel layer in one call: the sum of all ranks' partial
//! hidden states, the residual add, and RMSNorm or LayerNorm. A [`NormForm`] states the norm and its
//! results, which can be e4m3 with one scale, or a scale for each token or each group of elements.
//!
//! # Streams and graphs
//! Calls of one communicator follow each other in the order of one stream at a time. If an engine
//! changes streams, it orders them by events, as it does for its own buffers. Calls can be captured
//! in CUDA graphs after a call of the same size and type was made or [prepared](Comm::prepare),
//! because a capture compiles nothing.

#![deny(missing_docs)]

mod comm;
pub mod gemm;
mod id;
pub mod moe;
mod norm;

pub use comm::{Buffer, Comm, Options, Reduce, Sums};
pub use id::Id;
pub use norm::{AddRmsNorm, Operands};
pub use weft::fused::Form as NormForm;
pub use weft::runtime::DType;

/// A CUDA stream of the driver (`CUstream`). Null is the device's default stream.
pub type RawStream = weft::runtime::cuda::RawStream;

/// The reason why a call failed: a code, what was expected, and what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An error of the communicator or the GPU.
    #[error(transparent)]
    Runtime(#[from] weft::runtime::Error),
    /// An error of a kernel that is compiled for the call.
    #[error(transparent)]
    Gpu(#[from] weft::gpu::GpuError),
    /// The exchange that the caller supplied has failed.
    #[error("the ranks could not exchange the communicator's id: {0}")]
    Exchange(String),
    /// The call needs more than the communicator was created for.
    #[error(
        "the call needs {bytes} bytes, but the communicator accepts at most {limit}\n  help: use NCCL for \
         such sizes, or raise Options::max_bytes"
    )]
    TooLarge {
        /// The size of the larger side in bytes.
        bytes: usize,
        /// The maximum size of a call, which is [`Options::max_bytes`].
        limit: usize,
    },
    /// An address is not a multiple of 16.
    #[error(
        "address {address:#x} is not a multiple of 16\n  help: copy the tensor, or begin its slice at a multiple of 16 bytes"
    )]
    Unaligned {
        /// The address that is not aligned.
        address: u64,
    },
}
