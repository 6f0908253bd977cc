//! Mixtures of experts: dispatch and products in one launch, and combine, compared with NCCL's
//! all-to-alls and cuBLASLt's products.

mod measure;
mod predict;
mod products;
mod report;
mod variant;

pub use crate::rounds::Wrong;
pub use predict::predict;
pub use report::{Report, Row};
pub use variant::{Form, Variant};

use super::BenchError;
use super::contender::pick;
use weft::moe::Problem;
use weft_runtime::{DType, World};

/// An implementation that is measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Contender {
    /// The launches of warpweft, in a form and by a plan.
    Ours(Variant),
    /// NCCL's all-to-all, cuBLASLt's product for each expert, and NCCL's all-to-all. Rows are sent
    /// as if they were already sorted by expert, and results are not added up; both steps would
    /// take additional time.
    Nccl,
    /// cuBLASLt's product of as many rows as all experts of a PE have, with one matrix.
    OneProduct,
}

impl Contender {
    /// Reads a list of contenders, by their names.
    ///
    /// # Errors
    ///
    /// Fails for an unknown name. The message lists the known names.
    pub fn peers(names: &str) -> Result<Vec<Contender>, String> {
        pick(names, &[("nccl+cublas", Contender::Nccl), ("cublas", Contender::OneProduct)], "peer", "")
    }

    /// Whether transfers alone are timed.
    fn is_transfer(&self) -> bool {
        matches!(self, Contender::Ours(variant) if variant.is_transfer())
    }

    /// The name in the table.
    pub fn name(&self) -> &'static str {
        match self {
            Contender::Ours(_) => "ours",
            Contender::Nccl => "nccl+cublas",
            Contender::OneProduct => "cublas",
        }
    }
}

/// The problems and contenders of a run. All experts get equally many rows, because NCCL's
/// all-to-all needs that.
#[derive(Clone, Debug)]
pub struct Request {
    /// The problems that are measured.
    pub problems: Vec<Problem>,
    /// The implementations that are measured.
    pub contenders: Vec<Contender>,
    /// The number of back-to-back calls in a timed block; fewer if they take long.
    pub iters: u32,
    /// The number of calls before the first block.
    pub warmup: u32,
    /// The number of blocks of each contender. Each round runs one block of each, in a new random
    /// order.
    pub repeats: u32,
    /// Whether a block is captured into a CUDA graph and replayed.
    pub graph: bool,
    /// Whether the results of warpweft are compared with float64.
    pub check: bool,
}

/// Measures on every PE of the world, all of which call it with the same request. `done` gets the
/// rows of each problem when they are measured, on every PE. This call is *collective*.
///
/// # Errors
///
/// Fails for a problem that the kernels do not support or whose rows are not distributed evenly, if
/// a kernel does not compile, or if a library is not found. Wrong results are not errors: the rows
/// report them.
pub fn run(
    world: &World,
    request: &Request,
    done: &mut dyn FnMut(&Report, &[Row]) -> std::io::Result<()>,
) -> Result<Report, BenchError> {
    for problem in &request.problems {
        problem.check(world.n_pes())?;
    }
    match request.problems.first().map(|p| p.dtype) {
        Some(DType::F16) => measure::run::<half::f16>(world, request, done),
        Some(_) => measure::run::<half::bf16>(world, request, done),
        None => Err(BenchError::Request("there is nothing to measure: give at least one problem".into())),
    }
}
