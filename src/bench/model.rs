//! The model: what a launch takes, from what it waits for and what it moves.
//!
//! ```text
//! time = launch + work + waits * wait + (pulls + packets) * flight + peer bytes / peer bandwidth + switch bytes / switch bandwidth
//! ```
//!
//! Bytes are those through the busiest port of a GPU in its busier direction; all GPUs of a node hang on one switch, so
//! a port is a link. It knows nothing of a GPU's own memory, of how many CTAs it takes to fill a port, nor of
//! anything that happens at the same time: large sizes overlap what it adds up, middle ones have not enough in flight.

use super::report::Calibration;
use super::traffic::Traffic;
use serde::{Deserialize, Serialize};

/// What one machine takes.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Links {
    /// Microseconds of a kernel that does nothing, in a CUDA graph.
    pub launch_us: f64,
    /// Microseconds of a kernel's own: reading what it is given, reducing, writing.
    pub work_us: f64,
    /// Microseconds of a barrier of all GPUs in a kernel.
    pub wait_us: f64,
    /// Microseconds that a word takes to another GPU; a load from there is taken to cost as much.
    pub flight_us: f64,
    /// 10^9 bytes a second that a GPU sends by stores while it receives as many.
    pub push_gbps: f64,
    /// The same by loads.
    pub pull_gbps: f64,
    /// The same by multimem instructions.
    pub switch_gbps: f64,
}

/// Microseconds of a launch, by what they are for.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Prediction {
    /// The launch, and the kernel's own work.
    pub launch_us: f64,
    /// Waiting for others.
    pub latency_us: f64,
    /// Moving bytes.
    pub moving_us: f64,
}

impl Links {
    /// 8 H200s, NVLink all to all. Measured with multicast off (driver 580.159.04, CUDA 13.0, 2026-11-20): an empty kernel
    /// 0.54 us, one that is only a barrier 2.37 us, a flag one way 1.30 us, all GPUs at once by stores of 16 bytes
    /// 326 GB/s, by loads 322 GB/s; a one-shot whose data carries its flag 3.86 us for 256 bytes, of which launch and flight
    /// leave 2.02 us for work. The switch's bandwidth is other people's: at best 275 GB/s of allreduce (NCCL 2.30.4 and
    /// MSCCL++, 8 H100s and H200s with NVLS: nccl-tests issue 212, nccl issue 2140), of which each byte is 9/8 on the port
    /// each way.
    pub const H200: Links = Links {
        launch_us: 0.54,
        work_us: 2.02,
        wait_us: 1.83,
        flight_us: 1.30,
        push_gbps: 326.0,
        pull_gbps: 322.0,
        switch_gbps: 309.4,
    };

    /// With what was measured on this machine in the place of what was elsewhere. Work and switch stay as they are.
    pub fn measured(calibration: &Calibration) -> Links {
        let best = |all: &[super::Bandwidth], or: f64| {
            let best = all.iter().map(|b| b.gbps).fold(0.0, f64::max);
            if best > 0.0 { best } else { or }
        };
        let launch_us = calibration.empty_kernel_us;
        Links {
            launch_us,
            wait_us: (calibration.barrier_us - launch_us).max(0.0),
            flight_us: calibration.flight_us.unwrap_or(Links::H200.flight_us),
            push_gbps: best(&calibration.push, Links::H200.push_gbps),
            pull_gbps: best(&calibration.pull, Links::H200.pull_gbps),
            ..Links::H200
        }
    }

    /// What a launch takes.
    pub fn predict(&self, t: &Traffic) -> Prediction {
        // Bytes by gigabytes a second are thousandths of a microsecond.
        let us = |bytes: u64, gbps: f64| bytes as f64 / gbps / 1e3;
        let peer = if t.remote_loads > t.remote_stores { self.pull_gbps } else { self.push_gbps };
        let s = &t.steps;
        Prediction {
            launch_us: self.launch_us + self.work_us,
            latency_us: f64::from(s.waits) * self.wait_us + f64::from(s.pulls + s.packets) * self.flight_us,
            moving_us: us(t.peer.bytes(), peer) + us(t.switch.bytes(), self.switch_gbps),
        }
    }
}

impl Prediction {
    /// All of it.
    pub fn total(&self) -> f64 {
        self.launch_us + self.latency_us + self.moving_us
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::traffic::{Steps, Ways};
    use crate::bench::{Collective, Place};
    use weft_runtime::DType;

    fn traffic(peer: u64, switch: u64, steps: Steps) -> Traffic {
        let ways = |n| Ways { out: n, into: n };
        Traffic {
            collective: Collective::AllReduce,
            algorithm: "some".into(),
            lowering: "multimem".into(),
            place: Place::InPlace,
            dtype: DType::BF16,
            size: 0,
            n_pes: 8,
            ctas: 1,
            peer: ways(peer),
            switch: ways(switch),
            link: 0,
            ld_reduce: 0,
            st: 0,
            red: 0,
            remote_loads: 0,
            remote_stores: 1,
            flags: 0,
            barriers: 0,
            lane_instructions: 0,
            steps,
        }
    }

    /// Published times of MSCCL++'s allreduce through the switch on 8 H100s (docs/dsl/results.md, read off its figures):
    /// the only ones that say what is in them. Two-shot: two barriers, one pull, 9/8 of the size each way.
    #[test]
    fn published_times_of_the_switch_are_met() {
        let steps = Steps { waits: 2, pulls: 1, packets: 0 };
        for (size, measured, within) in [
            (1u64 << 20, 10.3, 0.12),
            (16 << 20, 68.2, 0.03),
            (64 << 20, 252.3, 0.03),
            (1 << 30, 3904.0, 0.03),
        ] {
            let predicted = Links::H200.predict(&traffic(0, size / 8 * 9, steps)).total();
            assert!((predicted / measured - 1.0).abs() < within, "{size}: {predicted} against {measured}");
        }
    }

    /// The first one-shot with flags in data, f32, 8 H200s: its packets are twice the data, to 7 others.
    #[test]
    fn measured_times_of_packets_are_met() {
        let steps = Steps { waits: 0, pulls: 0, packets: 1 };
        for (size, measured, within) in [(256u64, 3.86, 0.01), (1024, 3.94, 0.02), (65_536, 7.45, 0.12)] {
            let predicted = Links::H200.predict(&traffic(14 * size, 0, steps)).total();
            assert!((predicted / measured - 1.0).abs() < within, "{size}: {predicted} against {measured}");
        }
    }
}
