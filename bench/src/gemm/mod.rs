//! Matrix products, timed and checked: warpweft's by one or more plans, and cuBLASLt's in the same
//! run, of operands with or without scales.

pub(crate) mod data;
mod measure;
mod own;
mod report;
mod scaled;
mod scales;
mod tune;

pub use data::Wrong;
pub use own::Own;
pub use report::{Quartiles, Report, Row};
pub use scales::scales;
pub use tune::{Tune, TuningResult, tried, tune};

use super::{BenchError, usable};
use weft::gemm::tuning::Tuning;
use weft::gemm::{Major, Plan, Problem, Scales, Shape};
use weft_runtime::{DType, Device, cublas};

/// An implementation that is measured.
#[derive(Clone, PartialEq, Debug)]
pub enum Contender {
    /// The kernel of warpweft, by a plan from this source.
    Ours(Tuning),
    /// A kernel from a file.
    Own(Own),
    /// cuBLASLt with the fastest of the algorithms that its heuristic proposes.
    Cublas,
    /// The same with one scale for each matrix, for a comparison with other scales.
    CublasMatrices,
}

impl Contender {
    /// The name in the table.
    pub fn name(&self) -> &str {
        match self {
            Contender::Ours(_) => report::OURS,
            Contender::Own(own) => own.name(),
            Contender::Cublas => report::CUBLAS,
            Contender::CublasMatrices => report::CUBLAS_MATRICES,
        }
    }

    /// Whether cuBLASLt computes the product.
    pub fn is_cublas(&self) -> bool {
        matches!(self, Contender::Cublas | Contender::CublasMatrices)
    }

    /// The contender of warpweft that a word means: `auto`, `model`, or a plan.
    ///
    /// # Errors
    ///
    /// Fails if the word is not a plan.
    pub fn ours(word: &str) -> Result<Contender, String> {
        Ok(Contender::Ours(match word {
            "auto" => Tuning::Stored,
            "model" => Tuning::Model,
            plan => Tuning::Plan(plan.parse::<Plan>().map_err(|e| format!("{e} (or auto, or model)"))?),
        }))
    }
}

/// The shapes that are measured by default: those of transformers of several sizes.
pub const SHAPES: [Shape; 7] = [
    Shape { m: 4096, n: 4096, k: 4096 },
    Shape { m: 8192, n: 8192, k: 8192 },
    Shape { m: 4096, n: 8192, k: 4096 },
    Shape { m: 8192, n: 8192, k: 1024 },
    Shape { m: 4096, n: 8192, k: 14336 },
    Shape { m: 2048, n: 8192, k: 8192 },
    Shape { m: 1024, n: 8192, k: 4096 },
];

/// A shape that tiles do not divide in any mode.
pub const TAILS: Shape = Shape { m: 4001, n: 8184, k: 4104 };

/// The measurements to make, with their options.
#[derive(Clone, Debug)]
pub struct Request {
    /// The products that are measured.
    pub problems: Vec<Problem>,
    /// The contenders for each of them.
    pub contenders: Vec<Contender>,
    /// The scales of the operands.
    pub scales: Scales,
    /// The number of calls in a timed block; fewer for calls that take long.
    pub iters: u32,
    /// The number of calls before the first block.
    pub warmup: u32,
    /// The number of blocks of each contender. Each round runs one block of each, in a new random
    /// order.
    pub repeats: u32,
    /// The number of algorithms of cuBLASLt's heuristic that are tried.
    pub algorithms: u32,
    /// Whether a block is captured into a CUDA graph and replayed.
    pub graph: bool,
    /// Whether calls alternate between several sets of operands that together are larger than the
    /// L2 cache.
    pub cold: bool,
    /// Whether results are checked.
    pub check: bool,
}

impl Request {
    /// A request that measures the plan that `Gemm` chooses, in graphs, with a check.
    pub fn new(problems: Vec<Problem>) -> Request {
        Request {
            problems,
            contenders: vec![Contender::Ours(Tuning::Stored)],
            scales: Scales::None,
            iters: 20,
            warmup: 5,
            repeats: 15,
            algorithms: 8,
            graph: true,
            cold: false,
            check: true,
        }
    }

    /// Checks everything that can be checked before a GPU is used.
    ///
    /// # Errors
    ///
    /// Fails for a problem that the kernel does not support, or a plan that fits none of the
    /// problems (R0505), if cuBLASLt is to be measured and is not found (R0112), for scales of
    /// operands that do not have 8 bits or of kernels without them, or if a number is 0 that must be
    /// positive. Without a CUDA driver, a missing cuBLASLt is an error about the
    /// driver (R0101).
    pub fn examine(&self) -> Result<(), BenchError> {
        if self.problems.is_empty() || self.contenders.is_empty() {
            return Err(BenchError::Request(
                "there is nothing to measure: give at least one shape and one contender".into(),
            ));
        }
        if [self.iters, self.warmup, self.repeats, self.algorithms].contains(&0) {
            return Err(BenchError::Request(
                "calls, warm-up, rounds and algorithms must be at least 1".into(),
            ));
        }
        self.problems.iter().try_for_each(Problem::check)?;
        self.examine_scales()?;
        for contender in &self.contenders {
            // A plan may be for only some of the problems; one that fits none of them is a mistake.
            if let Contender::Ours(Tuning::Plan(plan)) = contender {
                let check = |p| match self.scales {
                    Scales::None => plan.check(p),
                    scales => plan.check(p).and_then(|()| scaled::fits(p, scales, plan)),
                };
                let first = self.problems.iter().map(check).reduce(Result::or);
                first.unwrap_or(Ok(()))?;
            }
        }
        if self.contenders.iter().any(Contender::is_cublas) {
            usable(cublas::installed())?;
            self.problems.iter().try_for_each(|p| cublas::has(p.dtype))?;
        }
        Ok(())
    }

    /// Checks that the operands can have scales, and that kernels of files have them if and only if
    /// the operands do.
    fn examine_scales(&self) -> Result<(), BenchError> {
        let (scaled, name) = (self.scales != Scales::None, scales::name(self.scales));
        if let Some(wide) = self.problems.iter().find(|p| scaled && p.dtype.bytes() != 1) {
            return Err(BenchError::Request(format!(
                "operands with scales of {name} are of e4m3 or e5m2, and not of {}",
                wide.dtype
            )));
        }
        if !scaled && self.contenders.contains(&Contender::CublasMatrices) {
            let message = "cuBLASLt is to be measured with scales, and operands have none";
            return Err(BenchError::Request(message.into()));
        }
        let own = |contender: &Contender| match contender {
            Contender::Own(own) if own.takes_scales() != scaled => Some(own.name().to_owned()),
            _ => None,
        };
        match self.contenders.iter().find_map(own) {
            None => Ok(()),
            Some(file) if scaled => Err(BenchError::Request(format!(
                "{file} has no parameters `scale_a` and `scale_b`, and operands have scales of {name}"
            ))),
            Some(file) => Err(BenchError::Request(format!(
                "{file} has the parameters `scale_a` and `scale_b`, and operands have no scales"
            ))),
        }
    }
}

/// The products of a type for these shapes.
pub fn problems(shapes: &[Shape], dtype: DType, out: Option<DType>, b: Major) -> Vec<Problem> {
    let of = |shape: &Shape| {
        let problem = Problem { b, ..Problem::new(*shape, dtype) };
        Problem { out: out.unwrap_or(problem.out), ..problem }
    };
    shapes.iter().map(of).collect()
}

/// Measures on a GPU. `done` gets the report without rows first, and then the rows of each problem
/// when they are measured.
///
/// # Errors
///
/// Fails where [`Request::examine`] fails, if a kernel does not compile, if there is not enough
/// memory for a problem (R0302), if a cuBLASLt call fails (R0113), or if another CUDA call fails.
/// Wrong results are not errors: the rows report them.
pub fn run(
    device: &Device,
    request: &Request,
    done: &mut dyn FnMut(&Report, &[Row]) -> std::io::Result<()>,
) -> Result<Report, BenchError> {
    request.examine()?;
    measure::run(device, request, done)
}
