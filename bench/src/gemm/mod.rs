//! Products of matrices, timed and checked: ours by one or more plans, and in the same run cuBLASLt's.

pub(crate) mod data;
mod measure;
mod own;
mod report;
mod tune;

pub use data::Wrong;
pub use own::Own;
pub use report::{Quartiles, Report, Row};
pub use tune::{Found, Tune, tried, tune};

use super::BenchError;
use weft::gemm::tuning::Tuning;
use weft::gemm::{Major, Plan, Problem, Shape};
use weft_runtime::{DType, Device, cublas};

/// Who computes a product.
#[derive(Clone, PartialEq, Debug)]
pub enum Contender {
    /// Ours, by a plan from there.
    Ours(Tuning),
    /// A kernel of a file.
    Own(Own),
    /// cuBLASLt, by the fastest of the algorithms that its heuristic names.
    Cublas,
}

impl Contender {
    /// The name that the table shows.
    pub fn name(&self) -> &str {
        match self {
            Contender::Ours(_) => report::OURS,
            Contender::Own(own) => own.name(),
            Contender::Cublas => report::CUBLAS,
        }
    }

    /// The contender of ours that a word means: `auto`, `model`, or a plan.
    ///
    /// # Errors
    /// Fails if the word is not a plan.
    pub fn ours(word: &str) -> Result<Contender, String> {
        Ok(Contender::Ours(match word {
            "auto" => Tuning::Stored,
            "model" => Tuning::Model,
            plan => Tuning::Plan(plan.parse::<Plan>().map_err(|e| format!("{e} (or auto, or model)"))?),
        }))
    }
}

/// The shapes that are measured where none are given: those that transformers have at several sizes.
pub const SHAPES: [Shape; 7] = [
    Shape { m: 4096, n: 4096, k: 4096 },
    Shape { m: 8192, n: 8192, k: 8192 },
    Shape { m: 4096, n: 8192, k: 4096 },
    Shape { m: 8192, n: 8192, k: 1024 },
    Shape { m: 4096, n: 8192, k: 14336 },
    Shape { m: 2048, n: 8192, k: 8192 },
    Shape { m: 1024, n: 8192, k: 4096 },
];

/// A shape whose tiles are cut off along every mode.
pub const TAILS: Shape = Shape { m: 4001, n: 8184, k: 4104 };

/// The measurements that are asked for.
#[derive(Clone, Debug)]
pub struct Request {
    /// The products that are measured.
    pub problems: Vec<Problem>,
    /// Who computes each of them.
    pub contenders: Vec<Contender>,
    /// Calls of a block that is timed; fewer of calls that take long.
    pub iters: u32,
    /// Calls before the first block.
    pub warmup: u32,
    /// Blocks of each contender. Each round has one block of each, in an order that is drawn anew.
    pub repeats: u32,
    /// Algorithms of cuBLASLt's heuristic that are tried.
    pub algorithms: u32,
    /// Whether a block is captured into a CUDA graph and replayed.
    pub graph: bool,
    /// Whether calls take turns on several sets of operands, which together are larger than the L2 cache.
    pub cold: bool,
    /// Whether results are checked.
    pub check: bool,
}

impl Request {
    /// Ours by the plan that `Gemm` chooses, in graphs, with a check.
    pub fn new(problems: Vec<Problem>) -> Request {
        Request {
            problems,
            contenders: vec![Contender::Ours(Tuning::Stored)],
            iters: 20,
            warmup: 5,
            repeats: 15,
            algorithms: 8,
            graph: true,
            cold: false,
            check: true,
        }
    }

    /// Looks at all that can be known before a GPU works.
    ///
    /// # Errors
    /// Fails for a problem that the kernel does not compute, or a plan that fits none of them (R0505), if
    /// cuBLASLt is to be measured and is not found (R0112), or if a number is 0 that must not be.
    pub fn examine(&self) -> Result<(), BenchError> {
        if self.problems.is_empty() || self.contenders.is_empty() {
            return Err(BenchError::Request(
                "there is nothing to measure: no shape, or nobody to compute it".into(),
            ));
        }
        if [self.iters, self.warmup, self.repeats, self.algorithms].contains(&0) {
            return Err(BenchError::Request("calls, warm-up, rounds and algorithms are 1 or more".into()));
        }
        self.problems.iter().try_for_each(Problem::check)?;
        for contender in &self.contenders {
            // A plan may be for some of the problems; for none of them it is a mistake.
            if let Contender::Ours(Tuning::Plan(plan)) = contender {
                let first = self.problems.iter().map(|p| plan.check(p)).reduce(Result::or);
                first.unwrap_or(Ok(()))?;
            }
        }
        if self.contenders.contains(&Contender::Cublas) {
            cublas::installed()?;
            self.problems.iter().try_for_each(|p| cublas::has(p.dtype))?;
        }
        Ok(())
    }
}

/// Products of a type over shapes.
pub fn problems(shapes: &[Shape], dtype: DType, out: Option<DType>, b: Major) -> Vec<Problem> {
    let of = |shape: &Shape| {
        let problem = Problem { b, ..Problem::new(*shape, dtype) };
        Problem { out: out.unwrap_or(problem.out), ..problem }
    };
    shapes.iter().map(of).collect()
}

/// Measures on a GPU. `done` gets the report before any row, and then the rows of each problem as they come.
///
/// # Errors
/// Fails where [`Request::examine`] fails, if a kernel does not compile, for sizes that the memory has no
/// room for (R0302), if a cuBLASLt call fails (R0113), or if the GPU refuses something else. Wrong results
/// are not errors: the rows have them.
pub fn run(
    device: &Device,
    request: &Request,
    done: &mut dyn FnMut(&Report, &[Row]) -> std::io::Result<()>,
) -> Result<Report, BenchError> {
    request.examine()?;
    measure::run(device, request, done)
}
