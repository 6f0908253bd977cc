//! Allreduce, residual add and RMSNorm in one kernel, against an allreduce and a kernel behind it.

mod measure;
mod reference;
mod report;

pub use reference::{Inputs, LEAST_SCALE, Outputs, Wrong};
pub use report::{Report, Row};
pub use weft::fused::{Form, Fused, KERNELS, PACKET_CTAS, Plan, Shape, TEXT, Workspace};

use super::BenchError;
use super::contender::pick;
use weft::Lowering;
use weft::fused::{MOST_SHARED, MOST_SPLIT};
use weft_ir::Scalar;
use weft_runtime::World;

/// Who does the work.
#[derive(Clone, Copy, Debug)]
pub enum Contender {
    /// One kernel that does all of the work.
    Fused(&'static Fused),
    /// The one that is likely the fastest: [`Plan::choose`].
    Auto,
    /// Our allreduce, and our kernel for the rest.
    Separate,
    /// NCCL's allreduce, and our kernel for the rest.
    Nccl,
    /// NCCL's allreduce over registered windows.
    NcclSymm,
}

impl Contender {
    /// The peers that a list of names means.
    ///
    /// # Errors
    /// Fails for an unknown name. The message lists the known names.
    pub fn peers(names: &str) -> Result<Vec<Contender>, String> {
        pick(names, &PEERS, "peer", "")
    }

    /// The name that the table shows.
    pub fn name(self) -> &'static str {
        match self {
            Contender::Fused(kernel) => kernel.name,
            Contender::Auto => "auto",
            Contender::Separate => "allreduce+norm",
            Contender::Nccl => "nccl+norm",
            Contender::NcclSymm => "nccl-symm+norm",
        }
    }
}

/// Peers, as the command line names them.
const PEERS: [(&str, Contender); 2] = [("nccl", Contender::Nccl), ("nccl-symm", Contender::NcclSymm)];

/// Forms of the result, as the command line names them: whether it is quantised, whether each token has its own scale.
pub const OUTPUTS: [(&str, bool, bool); 4] =
    [("bf16", false, false), ("f16", false, false), ("e4m3", true, false), ("e4m3-per-token", true, true)];

/// The measurements that are asked for.
#[derive(Clone, Debug)]
pub struct Request {
    /// The numbers of tokens, one for each row.
    pub tokens: Vec<u32>,
    /// The number of elements of a row.
    pub hidden: u32,
    /// The element types and the outputs.
    pub form: Form,
    /// Who is measured, for each number of tokens.
    pub contenders: Vec<Contender>,
    /// Calls back to back in a block that is timed.
    pub iters: u32,
    /// Calls before the first block.
    pub warmup: u32,
    /// The number of blocks of calls.
    pub repeats: u32,
    /// CTAs that share a row in `low_latency`, if not by the number of tokens.
    pub split: Option<u32>,
    /// How our kernels carry in-switch operations out.
    pub lowering: Lowering,
    /// Whether a block is captured into a CUDA graph and replayed.
    pub graph: bool,
    /// Whether results are compared with the reference.
    pub check: bool,
}

impl Request {
    /// All our kernels with bf16 results.
    pub fn new(tokens: Vec<u32>, hidden: u32) -> Request {
        let fused = KERNELS.iter().map(Contender::Fused);
        Request {
            tokens,
            hidden,
            form: Form { dtype: Scalar::BF16, out: Scalar::BF16, per_token: false, both: false },
            contenders: fused.chain([Contender::Auto, Contender::Separate]).collect(),
            iters: 20,
            warmup: 5,
            repeats: 10,
            split: None,
            lowering: Lowering::Auto,
            graph: false,
            check: false,
        }
    }

    /// Looks at all that can be known before any GPU works.
    ///
    /// # Errors
    /// Says what is wrong and what was expected.
    pub fn examine(&self) -> Result<(), BenchError> {
        let Form { dtype, out, .. } = self.form;
        let wrong = if self.tokens.is_empty() || self.tokens.contains(&0) || self.hidden == 0 {
            "tokens and hidden are 1 or more".to_owned()
        } else if ![Scalar::BF16, Scalar::F16].contains(&dtype) {
            format!("hidden states of {dtype}: expected bf16 or f16")
        } else if out != dtype && out != Scalar::E4M3 {
            format!("{out} from hidden states of {dtype}: expected {dtype} or e4m3")
        } else if self.iters == 0 || self.warmup == 0 || self.repeats == 0 {
            "iterations, warm-up and repeats are 1 or more".to_owned()
        } else if self.split.is_some_and(|n| !n.is_power_of_two() || n > MOST_SPLIT) {
            format!("CTAs that share a row: expected 1, 2, 4 or {MOST_SPLIT}")
        } else if self.split.is_some_and(|n| n > 1) && self.hidden as usize * 2 > MOST_SHARED {
            format!("CTAs share rows of {MOST_SHARED} bytes or less: expected 1 for each")
        } else {
            return Ok(());
        };
        Err(BenchError::Request(wrong))
    }
}

/// Measures on every PE of the world, which all call it with the same request; `done` gets the rows of each number of
/// tokens as they come, on every PE. *Collective.*
///
/// # Errors
/// Fails where [`Request::examine`] fails, if a kernel does not compile, if NCCL is not found, or for sizes
/// that the memory has no room for (R0302). Wrong results are not errors: the rows have them.
pub fn run(
    world: &World,
    request: &Request,
    done: &mut dyn FnMut(&Report, &[Row]) -> std::io::Result<()>,
) -> Result<Report, BenchError> {
    measure::run(world, request, done)
}
