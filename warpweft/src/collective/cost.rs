//! The waits and bytes of a launch in closed form, and the time that they take on a machine.
//!
//! ```text
//! time = launch + work + waits * wait + flights * flight + packet flights * packet
//!      + max(sum of bytes / bandwidth, hidden flights * flight)
//! ```
//!
//! Bytes are those through the busiest port of a GPU, in its busier direction. All GPUs of a node
//! are connected to one switch, so a port is a link. Bandwidths are those of kernels with enough
//! CTAs. With fewer CTAs each has a fixed bandwidth, except through the switch, which moves most of
//! the bytes by itself. The table of algorithms contains their costs, so the least time chooses
//! among them if nothing was measured.

use super::{Plan, Request};
use serde::{Deserialize, Serialize};

/// The consecutive waits of a launch and the bytes that it moves, for the PE that has the most.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub struct Cost {
    /// The number of barriers of the team.
    pub waits: f64,
    /// The number of flags that follow data, with a fence in between.
    pub flights: f64,
    /// The number of flights during which bytes move. The longer of both counts.
    pub hidden: f64,
    /// The number of waits for packets, which carry data together with a flag.
    pub packets: f64,
    /// The number of signals by NVSHMEM's operations.
    pub net_flights: f64,
    /// Bytes that are stored to all other PEs at once, or loaded and stored in equal amounts.
    pub push: f64,
    /// Bytes stored to one other PE.
    pub neighbour: f64,
    /// Bytes loaded from other PEs.
    pub pull: f64,
    /// Bytes of packets, including their flags.
    pub packed: f64,
    /// Bytes through the switch's multicast.
    pub switch: f64,
    /// Bytes by NVSHMEM's operations.
    pub net: f64,
    /// Bytes that the copy engine writes to other PEs. They count from the second launch on.
    pub engine: f64,
    /// Bytes of staged data that a GPU reads from its own memory.
    pub local: f64,
}

/// The latencies and bandwidths of one machine.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Links {
    /// Microseconds of an empty kernel in a CUDA graph.
    pub launch_us: f64,
    /// Microseconds of a kernel's own work: reading its input, reducing, writing.
    pub work_us: f64,
    /// Microseconds of a barrier of all GPUs in a kernel.
    pub wait_us: f64,
    /// Microseconds until data, a fence and a flag have reached another GPU.
    pub flight_us: f64,
    /// Microseconds until a word with its own flag has reached another GPU.
    pub packet_us: f64,
    /// The bandwidth of one CTA's loads or stores, in 10^9 bytes per second.
    pub cta_gbps: f64,
    /// The bandwidth of stores to one other GPU while the same amount is received, in 10^9 bytes
    /// per second.
    pub neighbour_gbps: f64,
    /// The bandwidth of stores to all other PEs at once, in 10^9 bytes per second.
    pub push_gbps: f64,
    /// The bandwidth of loads from all other PEs at once, in 10^9 bytes per second.
    pub pull_gbps: f64,
    /// The bandwidth of packets to all other PEs at once, in 10^9 bytes per second. Flags count as bytes.
    pub packet_gbps: f64,
    /// Microseconds that a call whose bytes the copy engine transfers takes besides two barriers: the
    /// start of copies, and the notice that they have ended.
    #[serde(default)]
    pub engine_us: f64,
    /// The bandwidth of the copy engine to all other PEs, in 10^9 bytes per second. It is 0 if it
    /// was not measured, and then the model does not choose the copy engine.
    #[serde(default)]
    pub engine_gbps: f64,
    /// The bandwidth of multimem instructions to all other PEs at once, in 10^9 bytes per second.
    pub switch_gbps: f64,
    /// Microseconds of a put with a signal between nodes.
    pub net_us: f64,
    /// The bandwidth of each GPU between nodes, in 10^9 bytes per second.
    pub net_gbps: f64,
    /// The bandwidth of reads of staged data from a GPU's own memory or cache, in 10^9 bytes per
    /// second.
    pub local_gbps: f64,
}

/// The predicted microseconds of a launch, by cause.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Prediction {
    /// The launch, and the kernel's own work.
    pub launch_us: f64,
    /// The time to wait for other PEs.
    pub latency_us: f64,
    /// The time to move the bytes.
    pub moving_us: f64,
}

impl Prediction {
    /// The time of the whole launch.
    pub fn total(&self) -> f64 {
        self.launch_us + self.latency_us + self.moving_us
    }
}

/// The specified NVLink bandwidth of the measured machine in each direction, in 10^9 bytes per
/// second: 18 links of 25.
const NVLINK: f64 = 450.0;

impl Links {
    /// H200s with NVLink between all pairs, multicast off (driver 580.159.04, CUDA 13.0, NVSHMEM
    /// 3.4.5, 2026-11-21). On 2 of them we measured an empty kernel, a barrier, a word with fence
    /// and signal, one CTA, push and pull. The figures of packets follow from the times of `ll`
    /// (docs/performance.md: 1 MiB in 10.2 us, 1 GiB in 7.1 ms), and those of staged bytes from
    /// `staged` (64 MiB in 111 us). On 8 of them we measured stores to all others at once. The
    /// figure of the switch was published by others: at best 275 GB/s of allreduce (NCCL 2.30.4 and
    /// MSCCL++, 8 H100s and H200s with NVLS: nccl-tests issue 212, nccl issue 2140), with 9/8 of
    /// each byte on the port in each direction. The copy engine was measured on 2 H200s
    /// (2026-11-28, broadcast of 64 and 128 MiB). Nothing was measured between nodes: the figures are
    /// the specification of a 400 Gb/s adapter for each GPU.
    pub const H200: Links = Links {
        launch_us: 0.89,
        work_us: 0.1,
        wait_us: 2.71,
        flight_us: 1.9,
        packet_us: 1.3,
        cta_gbps: 40.0,
        neighbour_gbps: 363.0,
        push_gbps: 326.0,
        pull_gbps: 333.0,
        packet_gbps: 320.0,
        switch_gbps: 309.4,
        engine_us: 8.0,
        engine_gbps: 395.0,
        net_us: 8.0,
        net_gbps: 40.0,
        local_gbps: 6400.0,
    };

    /// GPUs over 16 lanes of PCIe 4.0. The figures are specifications and were not measured.
    pub const PCIE: Links =
        Links { wait_us: 6.0, flight_us: 4.0, packet_us: 3.0, ..Links::H200.of_bandwidth(24.0 / 363.0) };

    /// NVLinks with a specified total bandwidth of `gbps` 10^9 bytes a second in each direction.
    /// They reach the same share of it as those of an H200.
    pub fn nvlink(gbps: f64) -> Links {
        Links::H200.of_bandwidth(gbps / NVLINK)
    }

    /// The same links with `by` times the bandwidth between GPUs.
    pub const fn of_bandwidth(self, by: f64) -> Links {
        Links {
            neighbour_gbps: self.neighbour_gbps * by,
            push_gbps: self.push_gbps * by,
            pull_gbps: self.pull_gbps * by,
            packet_gbps: self.packet_gbps * by,
            engine_gbps: self.engine_gbps * by,
            switch_gbps: self.switch_gbps * by,
            ..self
        }
    }

    /// Predicts the time of a launch with `ctas` CTAs.
    pub fn predict(&self, cost: &Cost, ctas: u32) -> Prediction {
        let few = f64::from(ctas) * self.cta_gbps;
        // A byte at 1 GB/s takes 0.001 us.
        let us = |bytes: f64, gbps: f64| bytes / gbps.max(1e-3) / 1e3;
        let by_few = |bytes: f64, gbps: f64| us(bytes, gbps.min(few));
        let moving = [
            by_few(cost.push, self.push_gbps),
            by_few(cost.neighbour, self.neighbour_gbps),
            by_few(cost.pull, self.pull_gbps),
            by_few(cost.packed, self.packet_gbps),
            us(cost.switch, self.switch_gbps),
            us(cost.net, self.net_gbps),
            us(cost.engine, self.engine_gbps),
            by_few(cost.local, self.local_gbps),
        ];
        Prediction {
            launch_us: self.launch_us + self.work_us,
            latency_us: cost.waits * self.wait_us
                + if cost.engine > 0.0 { self.engine_us } else { 0.0 }
                + cost.flights * self.flight_us
                + cost.packets * self.packet_us
                + cost.net_flights * self.net_us,
            moving_us: moving.iter().sum::<f64>().max(cost.hidden * self.flight_us),
        }
    }

    /// The predicted microseconds of a plan.
    pub fn time(&self, plan: &Plan, request: &Request) -> f64 {
        self.predict(&(plan.algorithm.cost)(request, plan), plan.ctas).total()
    }
}

/// The bytes of a PE's part.
pub(super) fn part(r: &Request) -> f64 {
    r.count as f64 * r.dtype.bytes() as f64
}

/// The number of PEs.
pub(super) fn pes(r: &Request) -> f64 {
    f64::from(r.n_pes)
}

/// The number of other PEs.
pub(super) fn others(r: &Request) -> f64 {
    f64::from(r.n_pes.saturating_sub(1))
}

/// Bytes stored to all other PEs of a request.
pub(super) fn pushed(r: &Request, bytes: f64) -> Cost {
    Cost::stored(r.n_pes, bytes)
}

impl Cost {
    /// The cost of bytes that are stored to all other PEs of `n_pes`. Of two PEs, the other one is
    /// a neighbour.
    pub(crate) fn stored(n_pes: u32, bytes: f64) -> Cost {
        match n_pes {
            0..=2 => Cost { neighbour: bytes, ..Cost::default() },
            _ => Cost { push: bytes, ..Cost::default() },
        }
    }
}

/// The number of rounds that a thread runs one after the other.
pub(super) fn rounds(r: &Request, p: &Plan) -> f64 {
    let all = u64::from(p.ctas) * u64::from(p.threads) * u64::from(p.unroll);
    units(r, p).div_ceil(all.max(1)) as f64
}

/// The number of packets that are sent to each PE, rounded up to whole rounds of the CTAs.
pub(super) fn slots(r: &Request, p: &Plan) -> f64 {
    let (threads, each) = (u64::from(p.threads).max(1), u64::from(p.threads) * u64::from(p.unroll));
    let (units, ctas) = (units(r, p), u64::from(p.ctas).max(1));
    let full = units / (ctas * each).max(1);
    let rest = units - full * ctas * each;
    ((full * ctas + rest.div_ceil(threads).min(ctas)) * each) as f64
}

/// The bytes that a PE stages, rounded up to whole chunks.
pub(super) fn chunks(r: &Request, p: &Plan) -> f64 {
    let each = u64::from(p.threads) * u64::from(p.unroll);
    (units(r, p).div_ceil(each.max(1)) * each * p.algorithm.unit) as f64
}

/// The bytes of the last chunk, over all CTAs together.
pub(super) fn last_chunk(r: &Request, p: &Plan) -> f64 {
    let round = f64::from(p.ctas) * f64::from(p.threads) * f64::from(p.unroll) * p.algorithm.unit as f64;
    chunks(r, p).min(round)
}

/// The additional flights because flags of many CTAs arrive later than that of one: the CTAs do not
/// all start to wait at the same time.
pub(super) fn skew(p: &Plan) -> f64 {
    let ctas = f64::from(p.ctas);
    ctas / (ctas + 20.0)
}

fn units(r: &Request, p: &Plan) -> u64 {
    (p.algorithm.work)(r).div_ceil(p.algorithm.unit.max(1)).max(1)
}

#[cfg(test)]
mod tests;
