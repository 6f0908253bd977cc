//! The model of [`Links`], applied to traffic counted on the simulator and to the constants of a
//! machine's calibration.

use super::report::{Bandwidth, Calibration};
use super::traffic::Traffic;
use crate::BenchError;
use std::str::FromStr;
use weft::collective::{Algorithm, Cost, Links, Plan, Prediction, Request};
use weft::gemm::Machine;
use weft_isa::Target;
use weft_runtime::Device;

/// The number of multiprocessors of the GPU that times are predicted for (H200).
pub(crate) const SMS: u32 = 132;

/// The GPU that times are predicted for, as the models of products describe it.
///
/// # Errors
/// Fails if there is no target for it.
pub(crate) fn machine() -> Result<Machine, BenchError> {
    let target = Target::from_str("sm_90a").map_err(|e| BenchError::Local(e.to_string()))?;
    Ok(Machine { target, sms: SMS, memory_gbps: Device::H200_MEMORY_GBPS })
}

impl Calibration {
    /// The links of the model, with the constants that this calibration measured instead of the
    /// built-in ones. The rates of packets and of stores to all PEs keep their built-in proportion.
    /// The constants of a kernel's own work, of the switch and of the network stay as they are.
    pub fn links(&self) -> Links {
        let calibration = self;
        const ELSEWHERE: Links = Links::H200;
        let known = |gbps: f64| Some(gbps).filter(|g| *g > 0.0);
        let max =
            |all: &[Bandwidth], of: fn(&Bandwidth) -> f64| known(all.iter().map(of).fold(0.0, f64::max));
        let push = max(&calibration.push, |b| b.gbps).unwrap_or(ELSEWHERE.neighbour_gbps);
        let cta = max(&calibration.push, |b| b.gbps / f64::from(b.ctas.max(1)));
        let flight_us = calibration.flight_us.unwrap_or(ELSEWHERE.flight_us);
        let launch_us = calibration.empty_kernel_us;
        Links {
            launch_us,
            wait_us: (calibration.barrier_us - launch_us).max(0.0),
            flight_us,
            packet_us: ELSEWHERE.packet_us * flight_us / ELSEWHERE.flight_us,
            cta_gbps: cta.unwrap_or(ELSEWHERE.cta_gbps),
            pull_gbps: max(&calibration.pull, |b| b.gbps).unwrap_or(ELSEWHERE.pull_gbps),
            switch_gbps: ELSEWHERE.switch_gbps,
            ..ELSEWHERE.of_bandwidth(push / ELSEWHERE.neighbour_gbps)
        }
    }
}

impl Traffic {
    /// The time that a launch with this traffic takes on enough CTAs.
    pub fn predict(&self, links: &Links) -> Prediction {
        let t = self;
        let (s, bytes) = (&t.steps, t.peer.bytes() as f64);
        let algorithm = Algorithm::find(t.collective, &t.algorithm).ok();
        let moved = match (s.packets > 0, t.remote_loads > t.remote_stores) {
            _ if algorithm.is_some_and(|a| a.engine) => Cost { engine: bytes, ..Cost::default() },
            (true, _) => Cost { packed: bytes, ..Cost::default() },
            (_, true) => Cost { pull: bytes, ..Cost::default() },
            _ if t.n_pes > 2 => Cost { push: bytes, ..Cost::default() },
            _ => Cost { neighbour: bytes, ..Cost::default() },
        };
        if let Some(algorithm) = algorithm.filter(|a| a.net) {
            // NVSHMEM's signals are not counted.
            let count = t.size / (t.collective.parts(t.n_pes) * t.dtype.bytes() as u64);
            let request = Request { place: t.place, ..Request::new(t.collective, t.dtype, count, t.n_pes) };
            let plan = Plan::of(algorithm, &request, u32::MAX);
            return links.predict(&(algorithm.cost)(&request, &plan), plan.ctas);
        }
        // If data is staged, the kernel waits for a flag and not for a barrier.
        let staged = algorithm.is_some_and(|a| a.staged);
        let [waits, flights] = if staged { [0, s.waits] } else { [s.waits, 0] }.map(f64::from);
        let (packets, switch) = (f64::from(s.packets), t.switch.bytes() as f64);
        let cost = Cost { waits, flights, packets, switch, ..moved };
        links.predict(&cost, u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Loading;
    use weft::Lowering;
    use weft::collective::{Collective, Placement};
    use weft_runtime::DType;

    fn bytes(cost: &Cost) -> f64 {
        cost.push + cost.neighbour + cost.pull + cost.packed + cost.net + cost.engine
    }

    /// The properties of an algorithm in the table match its behaviour: the bytes to peers and to
    /// the switch through the busiest port, except for flags, and the barriers.
    fn agrees(algorithm: &'static Algorithm, n_pes: u32, kib: u64, lowering: Lowering) {
        let place = algorithm.places().next().unwrap_or(Placement::OutOfPlace);
        let counts = algorithm.collective.counts(kib << 10, 4, n_pes).unwrap();
        let multicast = lowering == Lowering::Multimem;
        let request = Request {
            place,
            multicast,
            ..Request::new(algorithm.collective, DType::F32, counts.count, n_pes)
        };
        let counted = Traffic::count(algorithm, &request, lowering).unwrap();
        let plan = Plan::of(algorithm, &request, counted.ctas);
        let cost = (algorithm.cost)(&request, &plan);
        let what = format!("{algorithm:?} {place:?} {lowering:?} of {n_pes}: {cost:?}, {counted:?}");
        let close = |said: f64, counted: u64, than: f64| (said - counted as f64).abs() <= than;
        // The flags of each PE, CTA and step, and the stores that empty slots, are small compared
        // with the data.
        let little = 0.03 * counts.bytes as f64 + 4096.0;
        assert!(close(bytes(&cost), counted.peer.bytes(), little), "{what}");
        assert!(close(cost.switch, counted.switch.bytes(), little), "{what}");
        if cost.packets == 0.0 && cost.flights == 0.0 {
            assert_eq!(cost.waits, f64::from(counted.steps.waits), "{what}");
        }
        assert_eq!(cost.packets > 0.0, counted.steps.packets > 0, "{what}");
    }

    fn all_agree(collective: Collective) {
        let by_memory = |a: &&Algorithm| !a.net && a.collective == collective;
        for (i, a) in Algorithm::ALL.iter().filter(by_memory).enumerate() {
            let n_pes = [3, 4, 2][i % 3];
            if !a.switch {
                agrees(a, n_pes, 61, Lowering::Unicast);
            }
            agrees(a, n_pes, 48, Lowering::Multimem);
        }
    }

    #[test]
    fn closed_forms_are_what_allreduce_does() {
        all_agree(Collective::AllReduce);
    }

    #[test]
    fn closed_forms_are_what_others_do() {
        Collective::ALL.into_iter().filter(|c| *c != Collective::AllReduce).for_each(all_agree);
    }

    /// The calibration of docs/performance.md, for 2 H200s.
    #[test]
    fn a_calibration_takes_the_place_of_constants() {
        let push = |ctas, gbps| Bandwidth { ctas, bytes: 1 << 28, gbps };
        let mut calibration = Calibration {
            empty_kernel_us: 0.89,
            empty_block_us: None,
            barrier_us: 3.6,
            flight_us: Some(1.9),
            push: vec![push(8, 304.0), push(132, 363.0)],
            pull: vec![push(132, 333.0)],
            loading: Loading { ptx_ms: 73.0, cubin_ms: 0.09 },
        };
        let links = calibration.links();
        let same = |a: f64, b: f64| assert!((a - b).abs() < 1e-6, "{a}, {b}: {links:?}");
        same(links.cta_gbps, 38.0);
        same(links.pull_gbps, 333.0);
        for of in [
            |l: &Links| l.packet_us,
            |l: &Links| l.packet_gbps,
            |l: &Links| l.wait_us,
            |l: &Links| l.neighbour_gbps,
            |l: &Links| l.push_gbps,
        ] {
            same(of(&links), of(&Links::H200));
        }
        // A machine with one GPU has no links.
        (calibration.push, calibration.pull, calibration.flight_us) = (Vec::new(), Vec::new(), None);
        assert_eq!(calibration.links().push_gbps, Links::H200.push_gbps);
    }
}
