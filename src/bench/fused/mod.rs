//! Allreduce, residual add and RMSNorm in one kernel, against an allreduce and a kernel behind it.

mod choose;
mod measure;
mod reference;
mod report;

pub use choose::Shape;
pub use reference::{Form, Inputs, LEAST_SCALE, Outputs, Wrong};
pub use report::{Report, Row};

use super::BenchError;
use super::contender::pick;
use crate::collective::Cost;
use crate::compile::Lowering;
use weft_ir::Scalar;
use weft_lang::elaborate::Define;
use weft_runtime::World;

/// The kernels' text: `examples/allreduce_rms_norm.weft`.
pub const TEXT: &str = include_str!("../../../examples/allreduce_rms_norm.weft");

/// A fused kernel of the text.
#[derive(Debug)]
pub struct Fused {
    /// The name of the kernel in the library.
    pub name: &'static str,
    /// Whether it goes by packets, and so has a workspace and needs no symmetric memory from its caller.
    pub packets: bool,
    /// What a launch waits for and moves.
    pub cost: fn(&Shape, &Plan) -> Cost,
}

/// The fused kernels, in the order in which they are measured.
pub const KERNELS: &[Fused] = &[
    Fused { name: "low_latency", packets: true, cost: choose::low_latency },
    Fused { name: "one_shot", packets: false, cost: choose::one_shot },
    Fused { name: "two_shot", packets: false, cost: choose::two_shot },
];

/// How a fused kernel is launched.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// The kernel that is launched.
    pub kernel: &'static Fused,
    /// CTAs that share a row.
    pub split: u32,
    /// The number of CTAs.
    pub ctas: u32,
    /// Whether packets are sent by the switch.
    pub switch: bool,
}

/// CTAs that `low_latency` has workspace for, here.
pub const PACKET_CTAS: u32 = 128;
/// Most CTAs that share a row.
const MOST_SPLIT: u32 = 8;
/// Most bytes of a row that CTAs share.
const MOST_SHARED: usize = 16 << 10;

impl Plan {
    /// How to launch a kernel for so many rows of so many bytes on a GPU with so many multiprocessors: the packets of a
    /// row by as many CTAs as there are for each, else a row or several a CTA.
    pub fn of(kernel: &'static Fused, tokens: u32, row_bytes: usize, sms: u32) -> Plan {
        // A row that a thread has more than one vector of is a CTA's alone.
        let most = if row_bytes > MOST_SHARED { 1 } else { MOST_SPLIT };
        Plan::with(kernel, tokens, sms, most)
    }

    /// As [`of`](Plan::of), with that many CTAs to a row at most.
    pub fn with(kernel: &'static Fused, tokens: u32, sms: u32, most_split: u32) -> Plan {
        let (tokens, sms) = (tokens.max(1), sms.max(1));
        if !kernel.packets {
            return Plan { kernel, split: 1, ctas: tokens.min(sms), switch: false };
        }
        let most = PACKET_CTAS.min(sms);
        let split = (most / tokens).clamp(1, most_split.clamp(1, MOST_SPLIT));
        let split = 1 << split.ilog2();
        Plan { kernel, split, ctas: tokens.saturating_mul(split).min(most), switch: false }
    }

    /// Values of the kernel's compile-time parameters.
    pub fn defines(&self, form: Form, hidden: usize, n_pes: u32) -> Vec<(&'static str, Define)> {
        let mut all = form.defines(hidden).to_vec();
        all.push(("P", n_pes.into()));
        if self.kernel.packets {
            let own =
                [("SPLIT", self.split.into()), ("CTAS", PACKET_CTAS.into()), ("MC", self.switch.into())];
            all.extend(own);
        }
        all
    }
}

/// Elements of `low_latency`'s tensors of its own, which begin at 0 and are of that plan alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Workspace {
    /// The number of symmetric `u64` elements for parts.
    pub parts: usize,
    /// The number of symmetric `u64` elements for sums.
    pub sums: usize,
    /// The number of `u32` elements for the epoch.
    pub epoch: usize,
}

impl Workspace {
    /// For rows of so many bytes: the extents in the kernel's head.
    pub fn of(plan: &Plan, row_bytes: usize, n_pes: u32) -> Workspace {
        let (pes, split, ctas) = (n_pes as usize, plan.split as usize, PACKET_CTAS as usize);
        let packets = row_bytes.div_ceil(8);
        let slots = packets.div_ceil(pes * split).next_multiple_of(2);
        Workspace { parts: 2 * slots * pes * ctas, sums: 2 * packets * ctas.div_ceil(split), epoch: ctas }
    }
}

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
    /// As that, over registered windows.
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

    /// As the table names it.
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

impl Form {
    /// Values of compile-time parameters that all kernels of the text have.
    pub fn defines(&self, hidden: usize) -> [(&'static str, Define); 5] {
        [
            ("T", self.dtype.into()),
            ("OUT", self.out.into()),
            ("PER_TOKEN", self.per_token.into()),
            ("BOTH", self.both.into()),
            ("H", (hidden as i64).into()),
        ]
    }
}
