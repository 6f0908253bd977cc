//! Products fused with communication, compared with a product and a separate collective before or
//! after it.

mod measure;
mod plot;
mod predict;
mod report;
mod tune;

pub use crate::rounds::Wrong;
pub use predict::{Predicted, predict, table};
pub use report::{Report, Row};
pub use tune::{TuningResult, tried, tune};

use super::contender::pick;
use super::torch;
use super::{BenchError, usable};
use weft::gemm::{Choice, Form, Problem, Shape};
use weft_runtime::{DType, World};

/// The shapes that are measured by default: the rows of all PEs, the columns of B of all PEs, and
/// all of K, as for the product on one PE.
pub const SHAPES: [Shape; 5] = [
    Shape { m: 1024, n: 8192, k: 8192 },
    Shape { m: 4096, n: 8192, k: 8192 },
    Shape { m: 8192, n: 8192, k: 8192 },
    Shape { m: 4096, n: 8192, k: 28672 },
    Shape { m: 8192, n: 8192, k: 4096 },
];

/// An implementation that is measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Contender {
    /// The plan of warpweft that a table or the model chooses.
    Auto,
    /// A plan of warpweft: one fused launch, or a product and a collective.
    Fused(Choice),
    /// cuBLASLt's product alone, without communication. It does not compute the result, but is what
    /// the others are compared with.
    Product,
    /// cuBLASLt's product, and warpweft's collective.
    Ours,
    /// cuBLASLt's product, and NCCL's collective.
    Nccl,
    /// PyTorch's fused product (`torch.ops.symm_mem`).
    Torch,
}

/// The contenders besides warpweft's, with their names on the command line.
const PEERS: [(&str, Contender); 3] =
    [("cublas+ours", Contender::Ours), ("cublas+nccl", Contender::Nccl), ("torch", Contender::Torch)];

impl Contender {
    /// The contender of warpweft that `--plan` names: `auto`, `sequence`, or a plan.
    ///
    /// # Errors
    ///
    /// Fails as [`Choice::parse`] does.
    pub fn ours(word: &str, form: Form) -> Result<Contender, String> {
        match word {
            "auto" => Ok(Contender::Auto),
            _ => Choice::parse(word, form).map(Contender::Fused),
        }
    }

    /// Reads a list of contenders, by their names.
    ///
    /// # Errors
    /// Fails for an unknown name. The message lists the known names.
    pub fn peers(names: &str) -> Result<Vec<Contender>, String> {
        pick(names, &PEERS, "peer", "")
    }

    /// The name in the table.
    pub fn name(&self) -> &'static str {
        match self {
            Contender::Auto => "auto",
            Contender::Fused(Choice::Launch(_)) => "fused",
            Contender::Fused(Choice::Sequence) => "sequence",
            Contender::Fused(Choice::Decode(_)) => "decode",
            Contender::Product => "cublas alone",
            Contender::Ours => "cublas+ours",
            Contender::Nccl => "cublas+nccl",
            Contender::Torch => "torch",
        }
    }
}

/// The measurements to make, with their options.
#[derive(Clone, Debug)]
pub struct Request {
    /// The operation that the PEs compute together.
    pub form: Form,
    /// The products as they would be on one PE. Each PE has a part of K or, for an all-gather, of N.
    /// For an all-to-all, each PE has a product of this shape.
    pub shapes: Vec<Shape>,
    /// The rows of each PE, if PEs do not have equal parts. `m` of each shape is their sum.
    pub rows: Vec<u64>,
    /// Element type of all matrices: bf16 or f16.
    pub dtype: DType,
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
    /// Whether results are compared with the product in float64.
    pub check: bool,
}

impl Request {
    /// The part of one PE in a product, given the shape that it would have on one PE.
    ///
    /// # Errors
    ///
    /// Fails if the number of PEs does not divide K, or N for an all-gather, or is not that of the rows.
    pub fn problem(&self, shape: Shape, pes: u32) -> Result<Problem, BenchError> {
        if !self.rows.is_empty() && self.rows.len() != pes as usize {
            let message = format!("there are rows for {} PEs, but {pes} PEs take part", self.rows.len());
            return Err(BenchError::Request(message));
        }
        let (name, extent) = match self.form {
            Form::AllGather => ("n", shape.n),
            Form::ReduceScatter | Form::AllReduce => ("k", shape.k),
            Form::AllToAll => return Ok(Problem::new(shape, self.dtype)),
        };
        let part = extent / u64::from(pes.max(1));
        if part * u64::from(pes) != extent {
            let message =
                format!("{name} is {extent} in {shape}, which cannot be divided evenly over {pes} PEs");
            return Err(BenchError::Request(message));
        }
        let shape = match self.form {
            Form::AllGather => Shape { n: part, ..shape },
            _ => Shape { k: part, ..shape },
        };
        Ok(Problem::new(shape, self.dtype))
    }

    /// Checks that PyTorch is installed and has such a product.
    fn torch(&self) -> Result<(), BenchError> {
        torch::product::function(self.form)?;
        usable(torch::installed())
    }

    /// Checks everything that can be checked before a GPU is used.
    ///
    /// # Errors
    ///
    /// Says what is wrong and what was expected.
    pub fn examine(&self) -> Result<(), BenchError> {
        let wrong = if ![DType::BF16, DType::F16].contains(&self.dtype) {
            format!("matrices cannot have type {}: expected bf16 or f16", self.dtype)
        } else if self.shapes.is_empty() || self.iters == 0 || self.repeats == 0 {
            "shapes, iterations and repeats must be at least 1".to_owned()
        } else {
            self.rows()?;
            return if self.contenders.contains(&Contender::Torch) { self.torch() } else { Ok(()) };
        };
        Err(BenchError::Request(wrong))
    }

    /// Checks the rows of each PE, if there are any.
    fn rows(&self) -> Result<(), BenchError> {
        if self.rows.is_empty() {
            return Ok(());
        }
        let sum = self.rows.iter().fold(0u64, |sum, rows| sum.saturating_add(*rows));
        let equal = [Contender::Ours, Contender::Nccl, Contender::Torch];
        let other = self.contenders.iter().find(|c| equal.contains(c));
        let wrong = if self.form == Form::AllReduce {
            "PEs have equal parts of an allreduce: leave the rows of each PE out".to_owned()
        } else if let Some(other) = other {
            format!("{} needs equal parts of the rows: leave it out of --against", other.name())
        } else if let Some(shape) = self.shapes.iter().find(|shape| shape.m != sum) {
            format!("the rows of the PEs are {sum} together, but {shape} has {}", shape.m)
        } else {
            return Ok(());
        };
        Err(BenchError::Request(wrong))
    }
}

/// Measures on every PE of the world, all of which call it with the same request. `done` gets the
/// rows of each shape when they are measured, on every PE. This call is *collective*.
///
/// # Errors
///
/// Fails where [`Request::examine`] or [`Request::problem`] fails, if a kernel does not compile, or
/// if a library is not found. Wrong results are not errors: the rows report them.
pub fn run(
    world: &World,
    request: &Request,
    done: &mut dyn FnMut(&Report, &[Row]) -> std::io::Result<()>,
) -> Result<Report, BenchError> {
    request.examine()?;
    match request.dtype {
        DType::F16 => measure::run::<half::f16>(world, request, done),
        _ => measure::run::<half::bf16>(world, request, done),
    }
}
