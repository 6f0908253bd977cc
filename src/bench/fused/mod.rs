//! Allreduce, residual add and RMSNorm in one kernel, against an allreduce and a kernel behind it.

mod reference;

pub use reference::{Form, Given, Got, LEAST_SCALE, Wrong};

use weft_lang::elaborate::Define;

/// The kernels' text: `examples/allreduce_rms_norm.weft`.
pub const TEXT: &str = include_str!("../../../examples/allreduce_rms_norm.weft");

/// A fused kernel of the text.
#[derive(Debug)]
pub struct Fused {
    /// Its name there.
    pub name: &'static str,
    /// Whether it goes by packets, and so has a workspace and needs no symmetric memory from its caller.
    pub packets: bool,
}

/// The fused kernels.
pub const KERNELS: &[Fused] = &[
    Fused { name: "low_latency", packets: true },
    Fused { name: "one_shot", packets: false },
    Fused { name: "two_shot", packets: false },
];

/// How a fused kernel is launched.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// The kernel.
    pub kernel: &'static Fused,
    /// CTAs that share a row.
    pub split: u32,
    /// CTAs.
    pub ctas: u32,
}

/// CTAs that `low_latency` has workspace for, here.
pub const PACKET_CTAS: u32 = 128;
/// Most CTAs that share a row.
const MOST_SPLIT: u32 = 8;

impl Plan {
    /// How to launch a kernel for so many tokens on a GPU with so many multiprocessors: the packets of a row by as many
    /// CTAs as there are for each, else a row or several a CTA.
    pub fn of(kernel: &'static Fused, tokens: u32, sms: u32) -> Plan {
        let tokens = tokens.max(1);
        if !kernel.packets {
            return Plan { kernel, split: 1, ctas: tokens.min(sms.max(1)) };
        }
        let most = PACKET_CTAS.min(sms.max(1));
        let split = (most / tokens).clamp(1, MOST_SPLIT);
        let split = 1 << split.ilog2();
        Plan { kernel, split, ctas: (tokens * split).min(most) }
    }

    /// Values of the kernel's compile-time parameters.
    pub fn defines(&self, form: Form, hidden: usize, n_pes: u32) -> Vec<(&'static str, Define)> {
        let mut all = form.defines(hidden).to_vec();
        if self.kernel.packets {
            all.extend([("P", n_pes.into()), ("SPLIT", self.split.into()), ("CTAS", PACKET_CTAS.into())]);
        }
        all
    }
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
