//! Collectives and remote operations on GPUs, timed and checked: warpweft's, each compiled like a
//! user's kernel, and those of its peers in the same run.
//!
//! A [`Bench`] says what is measured. [`run`] measures it on the PEs of a world and returns a
//! [`Report`], whose columns and factors are those of NVIDIA's nccl-tests (see its
//! doc/PERFORMANCE.md).

mod calibrate;
mod check;
mod contender;
mod data;
pub mod fused;
pub mod gemm;
pub mod gemm_comm;
mod kernels;
mod measure;
mod model;
pub mod moe;
mod operand;
mod operation;
mod own;
mod plot;
mod report;
mod rounds;
mod sizes;
mod start;
mod switch;
mod table;
mod timeline;
mod times;
mod torch;
mod traffic;
mod tune;

pub use contender::{Contender, PEERS};
pub use operation::Operation;
pub use own::Own;
pub use report::{Bandwidth, Calibration, Loading, NvLink, Report, Row, Spread, Wrong};
pub use sizes::parse_sizes;
pub use switch::{LoweringResult, Pair, Verification, Verify, verify, why_no_switch};
pub use timeline::{Parts, Stamps, Timeline, timeline};
pub use traffic::{Counting, MAX_SIMULATED_BYTES, PortBytes, Steps, Traffic, count_all, table};
pub use tune::{Cell, Effort, Look, ProgressSink, Search, SearchResult, Timed, Tune, tune};
pub use weft::collective::{Collective, Counts, Links, Placement, Prediction, Sums};

use weft::Lowering;
use weft::collective::tuning::Tuning;
use weft::gpu::GpuError;
use weft_runtime::{DType, Reduce, World, cuda, nccl};

/// The reductions that can be measured.
pub const OPS: [Reduce; 3] = [Reduce::Sum, Reduce::Min, Reduce::Max];

/// The measurements to make, with their options.
#[derive(Clone, Debug)]
pub struct Bench {
    /// The operation that is measured.
    pub operation: Operation,
    /// Sizes in bytes, as nccl-tests counts them: of the larger of the two buffers of a PE. A size
    /// that does not divide into whole elements for each PE is rounded down. Ignored for a signal
    /// and a barrier.
    pub sizes: Vec<u64>,
    /// The type of the elements.
    pub dtype: DType,
    /// The reduction, if the operation reduces.
    pub op: Reduce,
    /// How `auto` may compute sums. It does not limit algorithms that are requested by name.
    pub sums: Sums,
    /// The contenders for each size. Those that do not support it are left out, and the report says
    /// so.
    pub contenders: Vec<Contender>,
    /// The number of back-to-back calls in a block, which is timed by two events.
    pub iters: u32,
    /// The number of calls before the first block; at least one, which loads the code.
    pub warmup: u32,
    /// The number of blocks of calls.
    pub repeats: u32,
    /// The number of CTAs of warpweft's kernels, limited by their workspaces; chosen by size if not
    /// given.
    pub ctas: Option<u32>,
    /// The threads of a CTA of warpweft's collectives; chosen by size if not given. Algorithms that
    /// do not support the number are left out.
    pub threads: Option<u32>,
    /// The steps of a thread of warpweft's collectives that are in flight at once; chosen by size
    /// if not given. Algorithms that do not support the number are left out.
    pub unroll: Option<u32>,
    /// How warpweft's kernels lower in-switch operations.
    pub lowering: Lowering,
    /// The source of the plans of `auto`.
    pub tuning: Tuning,
    /// Whether a block is captured into a CUDA graph and replayed.
    pub graph: bool,
    /// Whether results are compared with a reference.
    pub check: bool,
    /// Whether the machine is calibrated before the measurement.
    pub calibrate: bool,
}

/// Why a measurement failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BenchError {
    /// The request cannot be met.
    #[error("{0}")]
    Request(String),
    /// Only this PE failed, because of a peer's process or of its output, while the other PEs go
    /// on: the job must end.
    #[error("{0}")]
    Local(String),
    /// A kernel, a GPU or NVSHMEM failed.
    #[error(transparent)]
    Gpu(#[from] GpuError),
}

impl From<weft_runtime::Error> for BenchError {
    fn from(e: weft_runtime::Error) -> BenchError {
        BenchError::Gpu(e.into())
    }
}

impl Bench {
    /// A request for all contenders of warpweft for an operation: f32, sums, 20 calls in a block.
    pub fn new(operation: impl Into<Operation>, sizes: Vec<u64>) -> Bench {
        let operation = operation.into();
        Bench {
            operation,
            sizes,
            dtype: DType::F32,
            op: Reduce::Sum,
            sums: Sums::default(),
            contenders: Contender::ours(operation),
            iters: 20,
            warmup: 5,
            repeats: 10,
            ctas: None,
            threads: None,
            unroll: None,
            lowering: Lowering::Auto,
            tuning: Tuning::Stored,
            graph: false,
            check: false,
            calibrate: false,
        }
    }

    /// The elements for each size on `n_pes` PEs, after everything is checked that can be checked
    /// before a GPU is used.
    ///
    /// # Errors
    ///
    /// Fails for a size that has no element for each PE, an operation that a contender does not
    /// support, a check that could not be exact, or if NCCL is to be measured and is not found
    /// (R0109). Without a CUDA driver, a missing library is an error about the driver (R0101).
    pub fn counts(&self, n_pes: u32) -> Result<Vec<Counts>, BenchError> {
        let bad = |message: String| Err(BenchError::Request(message));
        if self.operation.has_size() && self.sizes.is_empty() || self.contenders.is_empty() {
            return bad("there is nothing to measure: give at least one size and one algorithm".into());
        }
        if self.iters == 0 || self.warmup == 0 || self.repeats == 0 || self.ctas == Some(0) {
            return bad("iterations, warm-up, repeats and CTAs must be at least 1".into());
        }
        for contender in &self.contenders {
            contender.can(self.operation, self.dtype, self.op).map_err(BenchError::Request)?;
        }
        if self.contenders.iter().any(|c| c.is_nccl()) {
            usable(nccl::installed())?;
        }
        for contender in &self.contenders {
            if let Contender::Torch(name) = contender {
                usable(torch::available(name))?;
            }
        }
        if self.check && data::limit(self.dtype, self.summands(n_pes)) == 0 {
            let dtype = self.dtype;
            return bad(format!("--check: sums over {n_pes} PEs are not exact in {dtype}; use a wider type"));
        }
        let count = |bytes: &u64| {
            let counts = self.operation.counts(*bytes, self.dtype.bytes() as u64, n_pes);
            counts.ok_or_else(|| {
                let (each, dtype) = (self.operation.parts(n_pes), self.dtype);
                let least = each * dtype.bytes() as u64;
                let message =
                    format!("{bytes} bytes are too few for {} of {dtype} over {n_pes} PEs", self.operation);
                BenchError::Request(format!("{message}: use at least {least}"))
            })
        };
        // An operation without a size is measured once.
        let sizes = if self.operation.has_size() { &self.sizes[..] } else { &[0] };
        sizes.iter().map(count).collect()
    }

    /// The number of elements that are added to one.
    fn summands(&self, n_pes: u32) -> u32 {
        if self.operation.reduces() && self.op == Reduce::Sum { n_pes } else { 1 }
    }
}

/// Measures on every PE of the world, all of which call it with the same request. `done` gets the
/// report without rows first, and then the rows of each size and contender when they are measured,
/// on every PE. This call is *collective*.
///
/// If the world compares the collectives that its PEs call ([`weft_runtime::Config::checks`]), the
/// time of that comparison is part of the times of peers that are called without a graph.
///
/// # Errors
///
/// Fails where [`Bench::counts`] fails, if a kernel does not compile for this type and lowering, if
/// there is not enough memory for a size (R0302), or if a call of CUDA or NVSHMEM fails. Wrong
/// results are not errors: the rows report them.
pub fn run(
    world: &World,
    bench: &Bench,
    done: &mut dyn FnMut(&Report, &[Row]) -> std::io::Result<()>,
) -> Result<Report, BenchError> {
    measure::run(world, bench, done)
}

/// Fails if a peer's library is missing. Without a CUDA driver, no library would help, so the error
/// is about the driver.
fn usable<T, E: Into<BenchError>>(library: Result<T, E>) -> Result<(), BenchError> {
    let Err(missing) = library.map_err(Into::into) else { return Ok(()) };
    let Err(mut driver) = cuda::device_count() else { return Err(missing) };
    let message = missing.to_string();
    let first = message.lines().next().unwrap_or_default().trim_end_matches("; searched:");
    let first = first.split_once("]: ").map_or(first, |(_code, message)| message);
    driver.help.push_str(&format!("\nthe peer to compare with is missing as well: {first}"));
    Err(driver.into())
}
