//! Allreduce, residual add and RMSNorm in one kernel: which kernels there are, and how they are launched.

mod choose;

pub use choose::Shape;

use crate::collective::Cost;
use weft_ir::Scalar;
use weft_lang::elaborate::Define;

/// The text of the kernels: `weft::allreduce_rms_norm` of the library.
pub const TEXT: &str = include_str!("../library/allreduce_rms_norm.weft");

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
/// The largest number of CTAs that share a row.
pub const MOST_SPLIT: u32 = 8;
/// The size in bytes of the longest row that CTAs share.
pub const MOST_SHARED: usize = 16 << 10;

impl Plan {
    /// How to launch a kernel for so many rows of so many bytes on a GPU with so many multiprocessors: the packets of a
    /// row by as many CTAs as there are for each, else a row or several a CTA.
    pub fn of(kernel: &'static Fused, tokens: u32, row_bytes: usize, sms: u32) -> Plan {
        // A row that a thread has more than one vector of is a CTA's alone.
        let most = if row_bytes > MOST_SHARED { 1 } else { MOST_SPLIT };
        Plan::with(kernel, tokens, sms, most)
    }

    /// Makes a plan like [`of`](Plan::of), with at most `most_split` CTAs for a row.
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

/// The element types and the outputs of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Form {
    /// The type of hidden states, residual and weights: bf16 or f16.
    pub dtype: Scalar,
    /// The type of the result: `dtype`, or e4m3.
    pub out: Scalar,
    /// Whether each token of a quantised result has its own scale, max|norm| / 448.
    pub per_token: bool,
    /// Whether the norm is written beside a quantised result.
    pub both: bool,
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
