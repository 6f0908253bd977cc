//! Mixtures of experts: dispatch and products in one launch and combine, against NCCL's all-to-alls and cuBLASLt's products.

mod measure;
mod predict;
mod products;
mod report;
mod way;

pub use crate::rounds::Wrong;
pub use predict::predict;
pub use report::{Report, Row};
pub use way::{Form, Way};

use super::BenchError;
use super::contender::pick;
use weft::moe::Problem;
use weft_runtime::{DType, World};

/// An implementation that is measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Contender {
    /// Our launches.
    Ours(Way),
    /// NCCL's all-to-all, cuBLASLt's product for each expert, and NCCL's all-to-all. Rows are sent as if they lay in the
    /// order of experts, and results are not added up: both would take it more time.
    Nccl,
    /// cuBLASLt's product of as many rows as all experts of a PE have, with one matrix.
    OneProduct,
}

impl Contender {
    /// Reads a list of contenders, by their names.
    ///
    /// # Errors
    /// Fails for a name that does not exist, with those that do.
    pub fn peers(names: &str) -> Result<Vec<Contender>, String> {
        pick(names, &[("nccl+cublas", Contender::Nccl), ("cublas", Contender::OneProduct)], "peer", "")
    }

    /// The name that the table shows.
    pub fn name(&self) -> &'static str {
        match self {
            Contender::Ours(_) => "ours",
            Contender::Nccl => "nccl+cublas",
            Contender::OneProduct => "cublas",
        }
    }
}

/// The problems and contenders of a run. Each expert gets as many rows as every other one, which NCCL's all-to-all needs.
#[derive(Clone, Debug)]
pub struct Request {
    /// The problems that are measured.
    pub problems: Vec<Problem>,
    /// The implementations that are measured.
    pub contenders: Vec<Contender>,
    /// Calls back to back in a block that is timed; fewer where they take long.
    pub iters: u32,
    /// Calls before the first block.
    pub warmup: u32,
    /// Blocks of each contender: each round has one of each, in an order that is drawn anew.
    pub repeats: u32,
    /// Whether a block is captured into a CUDA graph and replayed.
    pub graph: bool,
    /// Whether results of ours are compared with float64.
    pub check: bool,
}

/// Measures on every PE of the world, which all call it with the same request; `done` gets the rows of each problem as
/// they come, on every PE. *Collective.*
///
/// # Errors
/// Fails for a problem that the kernels do not have or whose rows are not shared out evenly, a kernel that does not
/// compile, and a missing library. Wrong results are in the rows.
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
        None => Err(BenchError::Request("no problem is asked for".into())),
    }
}
