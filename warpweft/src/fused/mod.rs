//! Kernels with allreduce, residual add and RMSNorm in one launch, and their plans.

mod choose;
mod form;
pub mod tuning;

pub use choose::Shape;
pub use form::Form;

use crate::collective::Cost;
use weft_lang::elaborate::Define;

/// The text of `weft::allreduce_rms_norm`, whose kernels do not spread a row over a cluster.
const TEXT: &str = include_str!("../library/allreduce_rms_norm.weft");

/// The text of `weft::allreduce_norm`, whose kernel spreads rows over clusters.
const SPREAD: &str = include_str!("../library/allreduce_norm.weft");

/// The way in which the PEs of a fused kernel exchange data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Exchange {
    /// Between barriers of all PEs, in symmetric memory of the caller.
    Barriers,
    /// Packets in two flights. Each CTA that shares a row reads the whole row.
    Packets,
    /// Packets in this number of flights. The CTAs of a cluster share each row.
    Spread(u32),
}

/// A kernel that fuses an allreduce with a norm.
#[derive(Debug)]
pub struct Fused {
    /// The name of the variant in measurements.
    pub name: &'static str,
    /// How it exchanges data.
    pub exchange: Exchange,
    /// The function that computes the waits and the bytes of a launch.
    pub cost: fn(&Shape, &Plan) -> Cost,
    /// Microseconds that a launch takes in addition to its cost and an empty kernel: the norm, and
    /// the overhead of the exchange. They are measured times of one token (docs/performance.md)
    /// less what the model predicts for the rest. One flight and two have the mean of theirs,
    /// because they are the same kernel.
    pub norm_us: f64,
}

/// The fused kernels, in the order in which they are measured.
const KERNELS: &[Fused] = &[
    Fused { name: "one_flight", exchange: Exchange::Spread(1), cost: choose::one_flight, norm_us: 0.35 },
    Fused { name: "two_flights", exchange: Exchange::Spread(2), cost: choose::two_flights, norm_us: 0.35 },
    Fused { name: "low_latency", exchange: Exchange::Packets, cost: choose::low_latency, norm_us: 1.7 },
    Fused { name: "one_shot", exchange: Exchange::Barriers, cost: choose::one_shot, norm_us: 0.4 },
    Fused { name: "two_shot", exchange: Exchange::Barriers, cost: choose::two_shot, norm_us: 1.4 },
];

impl Fused {
    /// Every kernel, in the order in which tables list them.
    pub const ALL: &'static [Fused] = KERNELS;
    /// The text of the library part with the older kernels, and with the norm that follows an
    /// allreduce.
    pub const TEXT: &'static str = TEXT;

    /// Whether it exchanges packets, and so has a workspace and needs no symmetric memory from its caller.
    pub fn packets(&self) -> bool {
        self.exchange != Exchange::Barriers
    }

    /// Whether the CTAs of a cluster share each row.
    pub fn spreads(&self) -> bool {
        matches!(self.exchange, Exchange::Spread(_))
    }

    /// The kernel's name in the library.
    pub fn kernel(&self) -> &'static str {
        if self.spreads() { "allreduce_norm" } else { self.name }
    }

    /// The file's name in the library, and its text.
    pub fn file(&self) -> (&'static str, &'static str) {
        if self.spreads() { ("allreduce_norm.weft", SPREAD) } else { ("allreduce_rms_norm.weft", TEXT) }
    }
}

/// How a fused kernel is launched.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// The kernel that is launched.
    pub kernel: &'static Fused,
    /// CTAs that share a row.
    pub split: u32,
    /// Threads of a CTA of a kernel that spreads rows. Other kernels derive them from the row.
    pub threads: u32,
    /// The number of CTAs.
    pub ctas: u32,
    /// Whether packets are sent through the switch.
    pub switch: bool,
    /// Whether CTAs process several rows, one after the other.
    pub loops: bool,
    /// Whether the kernel begins before the previous launch ends, if it supports that.
    pub early: bool,
    /// Whether packets carry flags. Those of `low_latency` always do.
    pub flags: bool,
}

/// The name of a kernel, the CTAs that share a row, their threads, whether they process several
/// rows, and whether packets carry flags.
pub type Variant = (&'static str, u32, u32, bool, bool);

/// The number of CTAs for which this crate gives `low_latency` workspace.
const PACKET_CTAS: u32 = 128;
/// The number of rows for which kernels that spread rows have workspace.
const SPREAD_ROWS: u32 = 256;
/// The size in bytes of the longest row that is spread over a cluster: 8 vectors of 16 bytes for each of 1024 threads.
const MAX_SPREAD: usize = 128 << 10;

/// The threads of a warp, which is also the greatest number of CTAs that share a row: each lane
/// reads the value of one warp of the cluster.
const WARP: usize = 32;
const MAX_THREADS: usize = 1024;

impl Plan {
    /// The largest number of CTAs that share a row.
    pub const MAX_SPLIT: u32 = 8;
    /// The size in bytes of the longest row that CTAs of `low_latency` share.
    pub const MAX_SHARED: usize = 16 << 10;

    /// Plans a launch for `tokens` rows of `row_bytes` bytes on a GPU with `sms` multiprocessors.
    /// If there are enough CTAs, several share the packets of a row. Otherwise, each CTA has one or
    /// several rows.
    pub fn of(kernel: &'static Fused, tokens: u32, row_bytes: usize, sms: u32) -> Plan {
        // A row with more than one vector for each thread belongs to one CTA.
        let max = if row_bytes > Plan::MAX_SHARED && !kernel.spreads() { 1 } else { Plan::MAX_SPLIT };
        Plan::with(kernel, tokens, row_bytes, sms, max)
    }

    /// Makes a plan like [`of`](Plan::of), with at most `max_split` CTAs for a row.
    pub fn with(kernel: &'static Fused, tokens: u32, row_bytes: usize, sms: u32, max_split: u32) -> Plan {
        let (tokens, sms) = (tokens.max(1), sms.max(1));
        let max = max_split.clamp(1, Plan::MAX_SPLIT);
        let plain = Plan {
            kernel,
            split: 1,
            threads: 0,
            ctas: 1,
            switch: false,
            loops: false,
            early: false,
            flags: false,
        };
        match kernel.exchange {
            Exchange::Barriers => {
                let ctas = tokens.min(sms);
                Plan { ctas, loops: ctas < tokens, ..plain }
            }
            Exchange::Packets => {
                let room = PACKET_CTAS.min(sms);
                let split = power_of_two((room / tokens).clamp(1, max));
                let ctas = tokens.saturating_mul(split).min(room);
                Plan { split, ctas, loops: ctas < tokens.saturating_mul(split), flags: true, ..plain }
            }
            Exchange::Spread(_) => {
                // Two vectors for each thread and 128 threads for each CTA were the fastest. If
                // that takes more CTAs than there are multiprocessors, 256 threads were.
                let threads = row_bytes.div_ceil(16).div_ceil(2).clamp(WARP, MAX_THREADS) as u32;
                let of = |each: u32| {
                    let split = power_of_two((threads / each).clamp(1, max));
                    Plan::spread(kernel, tokens, row_bytes, sms, (split, Some(threads.div_ceil(split))))
                };
                let few = of(128);
                if few.ctas > sms { of(256) } else { few }
            }
        }
    }

    /// A plan of a kernel that spreads rows, with `split` CTAs for each row. By default, a thread
    /// has one vector of 16 bytes as far as possible.
    pub fn spread(
        kernel: &'static Fused,
        tokens: u32,
        row_bytes: usize,
        sms: u32,
        (split, threads): (u32, Option<u32>),
    ) -> Plan {
        let split = power_of_two(split.clamp(1, Plan::MAX_SPLIT));
        let max = MAX_THREADS / split as usize;
        let each = row_bytes.div_ceil(16).div_ceil(split as usize);
        let threads = threads.map_or(each, |n| n as usize).next_multiple_of(WARP).clamp(WARP, max) as u32;
        // All CTAs are resident at once, with 1024 threads for each multiprocessor.
        let rows = (sms.max(1) * (MAX_THREADS as u32 / threads) / split).clamp(1, SPREAD_ROWS);
        let ctas = tokens.max(1).min(rows) * split;
        let loops = tokens > rows;
        Plan { kernel, split, threads, ctas, switch: false, loops, early: true, flags: false }
    }

    /// The number of packets of 16 bytes for a row, of a kernel that spreads rows: one for each
    /// vector of 16 bytes without flags; with flags two, or four for each three vectors if a thread
    /// has three.
    fn row_packets(&self, row_bytes: usize) -> usize {
        let threads = self.threads.max(1) as usize * self.split as usize;
        let vectors = row_bytes.div_ceil(16).div_ceil(threads);
        threads
            * match self.flags {
                false => vectors,
                true if vectors.is_multiple_of(3) => vectors / 3 * 4,
                true => 2 * vectors,
            }
    }

    /// The values that the kernel and its workspace are compiled for. Plans of one variant share
    /// both.
    pub fn variant(&self) -> Variant {
        (self.kernel.name, self.split, self.threads, self.loops, self.flags)
    }

    /// The number of CTAs that the workspace has room for.
    fn room(&self) -> u32 {
        if self.kernel.spreads() { SPREAD_ROWS * self.split } else { PACKET_CTAS }
    }

    /// Values of the kernel's compile-time parameters.
    pub fn defines(&self, form: Form, hidden: usize, n_pes: u32) -> Vec<(&'static str, Define)> {
        let room = [("P", n_pes.into()), ("CTAS", self.room().into()), ("MC", self.switch.into())];
        match self.kernel.exchange {
            Exchange::Barriers => [&form.defines(hidden)[..], &room[..1]].concat(),
            Exchange::Packets => {
                [&form.defines(hidden)[..], &room[..], &[("SPLIT", self.split.into())]].concat()
            }
            Exchange::Spread(flights) => {
                let own = [
                    ("FLIGHTS", flights.into()),
                    ("C", self.split.into()),
                    ("THREADS", self.threads.into()),
                    ("LOOP", self.loops.into()),
                    ("EARLY", self.early.into()),
                    ("LAMPORT", (!self.flags).into()),
                ];
                [&form.spread_defines(hidden)[..], &room[..], &own[..]].concat()
            }
        }
    }
}

/// The greatest power of two that is at most n.
fn power_of_two(n: u32) -> u32 {
    1 << n.max(1).ilog2()
}

/// The numbers of elements of the workspaces of a kernel with packets. They start with zeros and
/// belong to that plan alone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Workspace {
    /// The number of elements of each symmetric tensor of `u64`.
    pub packets: Vec<usize>,
    /// The number of `u32` elements for the epoch.
    pub epoch: usize,
}

impl Workspace {
    /// The workspaces for rows of `row_bytes` bytes: the extents in the kernel's head.
    pub fn of(plan: &Plan, row_bytes: usize, n_pes: u32) -> Workspace {
        let (pes, split, ctas) = (n_pes as usize, plan.split as usize, plan.room() as usize);
        match plan.kernel.exchange {
            Exchange::Barriers => Workspace { packets: Vec::new(), epoch: 0 },
            Exchange::Packets => {
                let packets = row_bytes.div_ceil(8);
                let slots = packets.div_ceil(pes * split).next_multiple_of(2);
                let packets = vec![2 * slots * pes * ctas, 2 * packets * ctas.div_ceil(split)];
                Workspace { packets, epoch: ctas }
            }
            Exchange::Spread(flights) => {
                let senders = pes + flights as usize - 1;
                // Each packet has two words. The next row is sent before the packets of this one
                // have arrived. Without flags, one of three buffers is emptied.
                let buffers = match (plan.loops, plan.flags) {
                    (true, _) => 4,
                    (false, false) => 3,
                    (false, true) => 2,
                };
                let words = 2 * plan.row_packets(row_bytes) * senders * buffers * (ctas / split);
                Workspace { packets: vec![words], epoch: 32 * ctas }
            }
        }
    }
}
