//! What a launch waits for and moves, in closed form, and what that takes on a machine.
//!
//! ```text
//! time = launch + work + waits * wait + flights * flight + packet flights * packet
//!      + max(sum of bytes / bandwidth, hidden flights * flight)
//! ```
//!
//! Bytes are those through the busiest port of a GPU in its busier direction; all GPUs of a node hang on one switch, so
//! a port is a link. Bandwidths are of kernels with enough CTAs; fewer have so much each, but for the switch, which does the
//! most of its moving by itself. The rows of the table of
//! algorithms say what they cost, so the least time chooses among them where nobody has measured.

use super::{Plan, Request};
use serde::{Deserialize, Serialize};

/// What a launch waits for, one after the other, and the bytes it moves. All of it of the PE that has most.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub struct Cost {
    /// Barriers of the team.
    pub waits: f64,
    /// Flags behind data, with a fence between.
    pub flights: f64,
    /// Those that moving bytes hides: the longer of both counts.
    pub hidden: f64,
    /// Data that carries its own flag.
    pub packets: f64,
    /// Signals by NVSHMEM's operations.
    pub net_flights: f64,
    /// Bytes stored to all other PEs at once, or loaded and stored alike.
    pub push: f64,
    /// Bytes stored to one other PE.
    pub neighbour: f64,
    /// Bytes loaded from other PEs.
    pub pull: f64,
    /// Bytes of packets, flags among them.
    pub packed: f64,
    /// Bytes through the switch's multicast.
    pub switch: f64,
    /// Bytes by NVSHMEM's operations.
    pub net: f64,
    /// Bytes that a GPU moves in its own memory, beside operand and result.
    pub local: f64,
}

/// What one machine takes.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Links {
    /// Microseconds of a kernel that does nothing, in a CUDA graph.
    pub launch_us: f64,
    /// Microseconds of a kernel's own: reading what it is given, reducing, writing.
    pub work_us: f64,
    /// Microseconds of a barrier of all GPUs in a kernel.
    pub wait_us: f64,
    /// Microseconds that data, a fence and a flag take to another GPU.
    pub flight_us: f64,
    /// Microseconds that a word takes that carries its own flag.
    pub packet_us: f64,
    /// 10^9 bytes a second that one CTA stores or loads.
    pub cta_gbps: f64,
    /// 10^9 bytes a second that a GPU stores to one other while it receives as many.
    pub neighbour_gbps: f64,
    /// The same to all others at once.
    pub push_gbps: f64,
    /// The same by loads.
    pub pull_gbps: f64,
    /// The same by packets, flags among the bytes.
    pub packet_gbps: f64,
    /// The same by multimem instructions.
    pub switch_gbps: f64,
    /// Microseconds of a put with a signal between nodes.
    pub net_us: f64,
    /// 10^9 bytes a second and GPU between nodes.
    pub net_gbps: f64,
    /// 10^9 bytes a second that a GPU copies in its own memory.
    pub local_gbps: f64,
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

impl Prediction {
    /// All of it.
    pub fn total(&self) -> f64 {
        self.launch_us + self.latency_us + self.moving_us
    }
}

/// Bandwidth that NVLink has as specified where it was measured, in 10^9 bytes a second and direction: 18 links of 25.
const NVLINK: f64 = 450.0;

impl Links {
    /// H200s, NVLink all to all, multicast off (driver 580.159.04, CUDA 13.0, NVSHMEM 3.4.5, 2026-11-21). Measured on 2
    /// of them: an empty kernel, a barrier, a word with fence and signal, one CTA, push and pull; packets from the
    /// times of `ll` (docs/performance.md: 1 GiB in 7.1 ms, 2048 rounds). Measured on 8: all at once by stores. The
    /// switch is other people's: at best 275 GB/s of allreduce (NCCL 2.30.4 and MSCCL++, 8 H100s and H200s with
    /// NVLS: nccl-tests issue 212, nccl issue 2140), of which each byte is 9/8 on the port each way. Between nodes, and
    /// in a GPU's own memory, nothing was measured: a 400 Gb/s adapter for each GPU, and half of 4.8 TB/s, as specified.
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
        packet_gbps: 330.0,
        switch_gbps: 309.4,
        net_us: 8.0,
        net_gbps: 40.0,
        local_gbps: 2400.0,
    };

    /// GPUs over PCIe, as specified and not measured: 16 lanes of the fourth generation.
    pub const PCIE: Links =
        Links { wait_us: 6.0, flight_us: 4.0, packet_us: 3.0, ..Links::H200.of_bandwidth(24.0 / 363.0) };

    /// NVLinks that have so much bandwidth in all, in 10^9 bytes a second and direction as specified: the share of it
    /// that an H200 reaches.
    pub fn nvlink(gbps: f64) -> Links {
        Links::H200.of_bandwidth(gbps / NVLINK)
    }

    /// With so many times the bandwidth between GPUs.
    pub(crate) const fn of_bandwidth(self, by: f64) -> Links {
        Links {
            neighbour_gbps: self.neighbour_gbps * by,
            push_gbps: self.push_gbps * by,
            pull_gbps: self.pull_gbps * by,
            packet_gbps: self.packet_gbps * by,
            switch_gbps: self.switch_gbps * by,
            ..self
        }
    }

    /// What a launch of so many CTAs takes.
    pub fn predict(&self, cost: &Cost, ctas: u32) -> Prediction {
        let few = f64::from(ctas) * self.cta_gbps;
        // Bytes by gigabytes a second are thousandths of a microsecond.
        let us = |bytes: f64, gbps: f64| bytes / gbps.max(1e-3) / 1e3;
        let by_few = |bytes: f64, gbps: f64| us(bytes, gbps.min(few));
        let moving = [
            by_few(cost.push, self.push_gbps),
            by_few(cost.neighbour, self.neighbour_gbps),
            by_few(cost.pull, self.pull_gbps),
            by_few(cost.packed, self.packet_gbps),
            us(cost.switch, self.switch_gbps),
            us(cost.net, self.net_gbps),
            by_few(cost.local, self.local_gbps),
        ];
        Prediction {
            launch_us: self.launch_us + self.work_us,
            latency_us: cost.waits * self.wait_us
                + cost.flights * self.flight_us
                + cost.packets * self.packet_us
                + cost.net_flights * self.net_us,
            moving_us: moving.iter().sum::<f64>().max(cost.hidden * self.flight_us),
        }
    }

    /// Microseconds that a plan is likely to take.
    pub fn time(&self, plan: &Plan, request: &Request) -> f64 {
        self.predict(&(plan.algorithm.cost)(request, plan), plan.ctas).total()
    }
}

/// Bytes of a PE's part.
pub(super) fn part(r: &Request) -> f64 {
    r.count as f64 * r.dtype.bytes() as f64
}

/// PEs.
pub(super) fn pes(r: &Request) -> f64 {
    f64::from(r.n_pes)
}

/// Other PEs.
pub(super) fn others(r: &Request) -> f64 {
    f64::from(r.n_pes.saturating_sub(1))
}

/// Bytes stored to all other PEs, which of two is one.
pub(super) fn pushed(r: &Request, bytes: f64) -> Cost {
    match r.n_pes {
        0..=2 => Cost { neighbour: bytes, ..Cost::default() },
        _ => Cost { push: bytes, ..Cost::default() },
    }
}

/// What a thread goes through one after the other.
pub(super) fn rounds(r: &Request, p: &Plan) -> f64 {
    let all = u64::from(p.ctas) * u64::from(p.threads) * u64::from(p.unroll);
    units(r, p).div_ceil(all.max(1)) as f64
}

/// Packets that are sent to each PE: whole rounds of the CTAs that have one.
pub(super) fn slots(r: &Request, p: &Plan) -> f64 {
    let (threads, each) = (u64::from(p.threads).max(1), u64::from(p.threads) * u64::from(p.unroll));
    let (units, ctas) = (units(r, p), u64::from(p.ctas).max(1));
    let full = units / (ctas * each).max(1);
    let rest = units - full * ctas * each;
    ((full * ctas + rest.div_ceil(threads).min(ctas)) * each) as f64
}

/// Bytes of the chunks that a PE's staging memory takes: whole ones.
pub(super) fn chunks(r: &Request, p: &Plan) -> f64 {
    let each = u64::from(p.threads) * u64::from(p.unroll);
    (units(r, p).div_ceil(each.max(1)) * each * p.algorithm.unit) as f64
}

fn units(r: &Request, p: &Plan) -> u64 {
    (p.algorithm.work)(r).div_ceil(p.algorithm.unit.max(1)).max(1)
}

#[cfg(test)]
mod tests {
    use super::super::{Algorithm, Collective, Place};
    use super::*;
    use weft_runtime::DType;

    /// Published times of MSCCL++'s allreduce through the switch on 8 H100s (docs/dsl/results.md, read off its figures):
    /// the only ones that say what is in them. Two-shot: two barriers, 9/8 of the size each way.
    #[test]
    fn published_times_of_the_switch_are_met() {
        let two_shot = Algorithm::find(Collective::AllReduce, "two_shot").unwrap();
        for (size, published, within) in [
            (1u64 << 10, 6.45, 0.01),
            (64 << 10, 6.6, 0.02),
            (512 << 10, 8.3, 0.01),
            (1 << 20, 10.3, 0.02),
            (16 << 20, 68.2, 0.02),
            (64 << 20, 252.3, 0.01),
            (1 << 30, 3904.0, 0.01),
        ] {
            let request =
                Request { multicast: true, ..Request::new(Collective::AllReduce, DType::BF16, size / 2, 8) };
            let predicted = Links::H200.time(&Plan::of(two_shot, &request, 132), &request);
            assert!((predicted / published - 1.0).abs() < within, "{size}: {predicted} against {published}");
        }
    }

    /// docs/performance.md, 2 H200s, bf16 out of place, 2026-11-21: microseconds by size.
    const MEASURED: [(&str, [f64; 11]); 7] = [
        ("ll", [2.25, 2.31, 2.49, 2.79, 4.02, 10.22, 34.19, 120.89, 511.2, 1848.4, 7099.5]),
        ("ll_two_shot", [3.15, 3.36, 3.60, 3.90, 5.08, 10.48, 35.87, 131.78, 547.75, 2055.5, 8029.0]),
        ("one_shot", [6.61, 6.78, 6.86, 8.00, 8.28, 10.09, 19.65, 57.18, 206.6, 808.3, 3188.2]),
        ("two_shot", [7.22, 7.24, 7.49, 7.73, 8.00, 9.85, 18.58, 55.35, 202.8, 789.8, 3135.4]),
        ("push_direct", [5.38, 5.49, 5.59, 5.75, 6.59, 9.11, 18.25, 52.59, 195.06, 750.3, 2985.3]),
        ("push", [5.70, 5.85, 5.98, 6.24, 6.96, 9.52, 19.60, 56.74, 201.94, 767.4, 3057.8]),
        ("rotate", [5.68, 5.77, 5.83, 6.04, 6.76, 9.32, 18.56, 52.98, 195.81, 752.8, 2993.6]),
    ];

    fn request(i: usize) -> Request {
        Request::new(Collective::AllReduce, DType::BF16, 512 << (2 * i), 2)
    }

    #[test]
    fn what_is_chosen_is_nearly_the_fastest_that_was_measured() {
        for i in 0..11 {
            let chosen = Plan::choose(&request(i), 132, &Links::H200).unwrap().algorithm.name;
            let time = |name: &str| MEASURED.iter().find(|(n, _)| *n == name).map(|(_, us)| us[i]);
            let best = MEASURED.iter().map(|(_, us)| us[i]).fold(f64::MAX, f64::min);
            let time = time(chosen).unwrap_or_else(|| panic!("{chosen} was not measured"));
            assert!(
                time <= 1.05 * best,
                "{} bytes: {chosen} takes {time}, the best {best}",
                request(i).bytes()
            );
        }
    }

    #[test]
    fn times_are_near_those_that_were_measured() {
        let mut far = Vec::new();
        for (name, measured) in MEASURED {
            let algorithm = Algorithm::find(Collective::AllReduce, name).unwrap();
            for (i, us) in measured.into_iter().enumerate() {
                let ratio = Links::H200.time(&Plan::of(algorithm, &request(i), 132), &request(i)) / us;
                if !(0.75..1.25).contains(&ratio) {
                    far.push((name, request(i).bytes(), ratio));
                }
            }
        }
        assert!(far.is_empty(), "{far:?}");
    }

    /// The same page: turns as 8 PEs take them, all to one other GPU, so that nothing meets in the switch.
    #[test]
    fn turns_are_near_those_that_were_measured() {
        let rotate = Algorithm::find(Collective::AllReduce, "rotate").unwrap();
        for (size, us) in
            [(1u64 << 20, 41.8), (4 << 20, 54.5), (16 << 20, 101.5), (64 << 20, 349.0), (1 << 30, 5301.6)]
        {
            let request = Request::new(Collective::AllReduce, DType::BF16, size / 2, 8);
            let ratio = Links::H200.time(&Plan::of(rotate, &request, 132), &request) / us;
            assert!((0.75..1.1).contains(&ratio), "{size}: {ratio}");
        }
    }

    /// Fewer CTAs have less bandwidth; plain memory leaves what any memory can.
    #[test]
    fn few_ctas_and_plain_memory_count() {
        let request = Request::new(Collective::AllReduce, DType::F32, 4 << 20, 8);
        let two_shot = Algorithm::find(Collective::AllReduce, "two_shot").unwrap();
        let time = |ctas| Links::H200.time(&Plan { ctas, ..Plan::of(two_shot, &request, 132) }, &request);
        assert!(time(1) > 3.0 * time(4) && time(64) == time(132), "{} {}", time(1), time(64));
        let plain = Request { symmetric: [false; 2], place: Place::InPlace, ..request };
        assert_eq!(Plan::choose(&plain, 132, &Links::H200).unwrap().algorithm.name, "push");
    }

    /// No count of any size is too much for the sums.
    #[test]
    fn times_are_numbers() {
        for a in &super::super::ALGORITHMS {
            for count in [0, 1, 1 << 40, u64::MAX / 64] {
                for n_pes in [1, 2, 32] {
                    let request = Request::new(a.collective, DType::F64, count, n_pes);
                    let time = Links::PCIE.time(&Plan::of(a, &request, 1), &request);
                    assert!(time.is_finite() && time > 0.0, "{a:?} {count} {n_pes}: {time}");
                }
            }
        }
    }
}
