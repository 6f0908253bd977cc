//! Collectives and remote operations on GPUs, timed and checked: ours, each compiled as a user's kernel is, and in the
//! same run their peers.
//!
//! A [`Bench`] says what is measured; [`run`] measures it on the PEs of a world and gives a [`Report`], whose columns
//! and factors are those of NVIDIA's nccl-tests (doc/PERFORMANCE.md there).

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
pub use switch::{Pair, Side, Verification, Verify, verify, why_no_switch};
pub use timeline::{Parts, Stamps, Timeline, timeline};
pub use traffic::{MOST, Steps, Traffic, Ways, count_all, table};
pub use tune::{Cell, Effort, Found, Look, ProgressSink, Search, Timed, Tune, tune};
pub use weft::collective::{Collective, Counts, Links, Placement, Prediction, Sums};

use weft::Lowering;
use weft::collective::tuning::Tuning;
use weft::gpu::GpuError;
use weft_runtime::{DType, Reduce, World, nccl};

/// Reductions that can be asked for.
pub const OPS: [Reduce; 3] = [Reduce::Sum, Reduce::Min, Reduce::Max];

/// The measurements that are asked for.
#[derive(Clone, Debug)]
pub struct Bench {
    /// The operation that is measured.
    pub operation: Operation,
    /// Bytes, as nccl-tests counts them: of the larger side of a PE. What does not divide into whole elements for
    /// each PE is rounded down. A signal and a barrier have none.
    pub sizes: Vec<u64>,
    /// The type of the elements.
    pub dtype: DType,
    /// How elements become one, where the operation reduces.
    pub op: Reduce,
    /// What `auto` may do to sums. An algorithm that is named does what it does.
    pub sums: Sums,
    /// Who is measured, for each size. Those that cannot do it there are left out, which the report says.
    pub contenders: Vec<Contender>,
    /// Calls back to back in a block that is timed, between two events.
    pub iters: u32,
    /// Calls before the first block; at least one, which loads the code.
    pub warmup: u32,
    /// The number of blocks of calls.
    pub repeats: u32,
    /// CTAs of our kernels, as far as their workspaces go; if not given, by the size.
    pub ctas: Option<u32>,
    /// Threads of a CTA of our collectives; if not given, by the size. Algorithms that cannot are left out.
    pub threads: Option<u32>,
    /// Steps of a thread of our collectives that are on their way at once; if not given, by the size. Algorithms that
    /// cannot are left out.
    pub unroll: Option<u32>,
    /// How our kernels carry in-switch operations out.
    pub lowering: Lowering,
    /// Where `auto` has its plans from.
    pub tuning: Tuning,
    /// Whether a block is captured into a CUDA graph and replayed.
    pub graph: bool,
    /// Whether results are compared with a reference.
    pub check: bool,
    /// Whether what the machine itself takes is measured first.
    pub calibrate: bool,
}

/// Why nothing is measured.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BenchError {
    /// The request cannot be met.
    #[error("{0}")]
    Request(String),
    /// This PE alone failed, by a peer's process or by where it writes to, while the others go on: the job is to end.
    #[error("{0}")]
    Local(String),
    /// The kernels, the GPUs or NVSHMEM are to blame.
    #[error(transparent)]
    Gpu(#[from] GpuError),
}

impl From<weft_runtime::Error> for BenchError {
    fn from(e: weft_runtime::Error) -> BenchError {
        BenchError::Gpu(e.into())
    }
}

impl Bench {
    /// All of ours for an operation over so many bytes: f32, sums, 20 calls a block.
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

    /// Elements for each size with so many PEs, after all that can be known before any GPU works was looked at.
    ///
    /// # Errors
    /// Fails for a size that has no element for each PE, an operation that a contender does not have, a check
    /// that could not be exact, or if NCCL is to be measured and is not found (R0109).
    pub fn counts(&self, n_pes: u32) -> Result<Vec<Counts>, BenchError> {
        let bad = |message: String| Err(BenchError::Request(message));
        if self.operation.has_size() && self.sizes.is_empty() || self.contenders.is_empty() {
            return bad("there is nothing to measure: no size, or no algorithm".into());
        }
        if self.iters == 0 || self.warmup == 0 || self.repeats == 0 || self.ctas == Some(0) {
            return bad("iterations, warm-up, repeats and CTAs are 1 or more".into());
        }
        for contender in &self.contenders {
            contender.can(self.operation, self.dtype, self.op).map_err(BenchError::Request)?;
        }
        if self.contenders.iter().any(|c| c.is_nccl()) {
            nccl::installed()?;
        }
        if self.contenders.iter().any(|c| matches!(c, Contender::Torch(_))) {
            torch::installed()?;
        }
        if self.check && data::limit(self.dtype, self.summands(n_pes)) == 0 {
            let dtype = self.dtype;
            return bad(format!(
                "--check: sums over {n_pes} PEs are not exact in {dtype}; take a wider type"
            ));
        }
        let count = |bytes: &u64| {
            let counts = self.operation.counts(*bytes, self.dtype.bytes() as u64, n_pes);
            counts.ok_or_else(|| {
                let (each, dtype) = (self.operation.parts(n_pes), self.dtype);
                let least = each * dtype.bytes() as u64;
                let message =
                    format!("{bytes} bytes do not fit {} of {dtype} over {n_pes} PEs", self.operation);
                BenchError::Request(format!("{message}: {least} is the least"))
            })
        };
        // What has no size is measured once.
        let sizes = if self.operation.has_size() { &self.sizes[..] } else { &[0] };
        sizes.iter().map(count).collect()
    }

    /// Elements that are added to one.
    fn summands(&self, n_pes: u32) -> u32 {
        if self.operation.reduces() && self.op == Reduce::Sum { n_pes } else { 1 }
    }
}

/// Measures on every PE of the world, which all call it with the same request; `done` gets the report before any row, with
/// none, and then the rows of each size and contender as they come, on every PE. *Collective.*
///
/// Worlds that compare their collectives ([`weft_runtime::Config::checks`]) have the time of that in those of peers
/// that are called without a graph.
///
/// # Errors
/// Fails where [`Bench::counts`] fails, if a kernel does not compile for this type and lowering, for sizes
/// that the memory has no room for (R0302), or if GPUs or NVSHMEM refuse a call. Wrong results are not
/// errors: the rows have them.
pub fn run(
    world: &World,
    bench: &Bench,
    done: &mut dyn FnMut(&Report, &[Row]) -> std::io::Result<()>,
) -> Result<Report, BenchError> {
    measure::run(world, bench, done)
}
