//! What an algorithm moves and executes, counted on simulated PEs: the way to compare algorithms that use the switch where
//! there is none.

use super::{BenchError, Collective};
use crate::collective::{Algorithm, Place, Plan, Request, simulate};
use crate::compile::Lowering;
use crate::run::Ran;
use serde::{Deserialize, Serialize};
use std::fmt::Write;
use weft_runtime::{DType, Reduce};
use weft_sim::{Port, Stats};

/// Most bytes of a PE that are simulated; what more there would be follows from these.
pub const MOST: u64 = 256 << 10;
/// CTAs of a simulated PE.
const CTAS: u32 = 4;

/// Counts of one launch. Bytes are payload: requests, headers and acknowledgements are not among them.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Traffic {
    /// The collective.
    pub collective: Collective,
    /// Algorithm.
    pub algorithm: String,
    /// `multimem` or `unicast`.
    pub lowering: String,
    /// Where results are.
    pub place: Place,
    /// Element type.
    #[serde(rename = "type")]
    pub dtype: DType,
    /// Bytes of the larger side of a PE.
    pub size: u64,
    /// PEs.
    pub n_pes: u32,
    /// CTAs of a PE.
    pub ctas: u32,
    /// Bytes between PEs by loads, stores and atomics: of the PE that has most of them, each way.
    pub peer: Ways,
    /// Bytes between a PE and the switch by multimem instructions, likewise.
    pub switch: Ways,
    /// Most bytes from one PE to one other.
    pub link: u64,
    /// Lanes that executed `multimem.ld_reduce`, over all PEs.
    pub ld_reduce: u64,
    /// Those of `multimem.st`.
    pub st: u64,
    /// Those of `multimem.red`.
    pub red: u64,
    /// Loads of lanes from other PEs.
    pub remote_loads: u64,
    /// Stores and atomics of lanes to other PEs.
    pub remote_stores: u64,
    /// Releases that other PEs may wait for, by lanes.
    pub flags: u64,
    /// CTA barriers completed.
    pub barriers: u64,
    /// Instructions, by lanes: waiting included, so it differs by the order of things.
    pub lane_instructions: u64,
    /// What follows one upon the other.
    pub steps: Steps,
}

/// Bytes each way through a port.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct Ways {
    /// From the PE.
    pub out: u64,
    /// To it.
    pub into: u64,
}

/// What a launch waits for, one after the other.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct Steps {
    /// Barriers of the team, or other flags behind data.
    pub waits: u32,
    /// Loads from elsewhere that something waits for: once, since they are in flight together.
    pub pulls: u32,
    /// Data that carries its own flag.
    pub packets: u32,
}

impl Ways {
    fn most(ports: &[Port]) -> Ways {
        let most = |of: fn(&Port) -> u64| ports.iter().map(of).max().unwrap_or(0);
        Ways { out: most(|p| p.out), into: most(|p| p.into) }
    }

    fn scaled(self, by: f64) -> Ways {
        let scaled = |n: u64| (n as f64 * by).round() as u64;
        Ways { out: scaled(self.out), into: scaled(self.into) }
    }

    /// The greater way.
    pub fn bytes(self) -> u64 {
        self.out.max(self.into)
    }
}

impl Traffic {
    /// Counts one launch of an algorithm, of `request.bytes()` up to [`MOST`].
    ///
    /// # Errors
    /// What the algorithm cannot do; more than [`MOST`] bytes; whatever goes wrong in the kernel; a wrong result.
    pub fn count(
        algorithm: &'static Algorithm,
        request: &Request,
        lowering: Lowering,
    ) -> Result<Traffic, BenchError> {
        let bad =
            |message: String| BenchError::Request(format!("{} on the simulator: {message}", algorithm.name));
        let bytes = request.bytes();
        if bytes > MOST {
            return Err(bad(format!("{bytes} bytes, and {MOST} are simulated at most")));
        }
        let multicast = lowering != Lowering::Unicast;
        let request = &Request { multicast, ..*request };
        let plan = Plan::of(algorithm, request, CTAS);
        let outcome = simulate(&plan, request, lowering).map_err(|e| bad(e.to_string()))?;
        if !outcome.passed() {
            return Err(bad(format!("the result of {bytes} bytes is wrong")));
        }
        let Ran::Simulator { stats, .. } = &outcome.ran else { return Err(bad("it ran elsewhere".into())) };
        let n = request.n_pes as usize;
        let lanes = |prefix: &str| stats.count(prefix).1;
        Ok(Traffic {
            collective: request.collective,
            algorithm: algorithm.name.into(),
            lowering: if multicast { "multimem" } else { "unicast" }.into(),
            place: request.place,
            dtype: request.dtype,
            size: bytes,
            n_pes: request.n_pes,
            ctas: plan.ctas,
            peer: Ways::most(&stats.peer_ports(n)),
            switch: Ways::most(&stats.switch_ports(n)),
            link: stats.links.iter().copied().max().unwrap_or(0),
            ld_reduce: lanes("multimem.ld_reduce"),
            st: lanes("multimem.st"),
            red: lanes("multimem.red"),
            remote_loads: stats.remote_loads,
            remote_stores: stats.remote_stores,
            flags: releases(stats),
            barriers: stats.barriers,
            lane_instructions: stats.lane_instructions,
            steps: Steps::of(algorithm.name, stats, n, plan.ctas),
        })
    }

    /// The same for another size: bytes in proportion, which they are but for flags; what follows one upon the other
    /// stays. Instructions are those counted.
    pub fn at(&self, size: u64) -> Traffic {
        let by = size as f64 / self.size.max(1) as f64;
        let link = (self.link as f64 * by).round() as u64;
        Traffic { size, peer: self.peer.scaled(by), switch: self.switch.scaled(by), link, ..self.clone() }
    }
}

/// Lanes that executed an instruction with release semantics which others may wait for.
fn releases(stats: &Stats) -> u64 {
    let sends = |m: &str| ["st.", "red.", "atom.", "multimem.red."].iter().any(|p| m.starts_with(p));
    let is = |m: &str| sends(m) && m.contains(".release") && m.contains(".sys");
    stats.opcodes.iter().filter(|o| is(&o.mnemonic)).map(|o| o.lanes).sum()
}

impl Steps {
    /// Each CTA sends one release for a wait, through the switch to all at once, else to each PE, itself among them or
    /// not. Where nothing is released and yet something moves, data carries its flag: once, or, in a kernel that is
    /// called two-shot, twice.
    fn of(name: &str, stats: &Stats, n_pes: usize, ctas: u32) -> Steps {
        let each = (n_pes as u64 * u64::from(ctas)).max(1);
        let through: u64 = stats
            .opcodes
            .iter()
            .filter(|o| o.mnemonic.starts_with("multimem.red.release"))
            .map(|o| o.lanes)
            .sum();
        let direct = releases(stats) - through;
        let waits = through / each + (direct / each).div_ceil(n_pes as u64);
        let pulls = u64::from(stats.remote_loads + stats.count("multimem.ld_reduce").1 > 0);
        let moves = stats.remote_stores + stats.count("multimem.st").1 > 0;
        let packets = match waits == 0 && moves {
            true => 1 + u32::from(name.contains("two_shot")),
            false => 0,
        };
        Steps { waits: waits as u32, pulls: pulls as u32, packets }
    }
}

/// Counts all algorithms of a collective, by the switch and by peers, over sizes; those above [`MOST`] bytes follow from
/// that. With the reasons why some are left out.
///
/// # Errors
/// A size that has no element for each PE.
pub fn count_all(
    collective: Collective,
    (dtype, op): (DType, Reduce),
    n_pes: u32,
    sizes: &[u64],
    wanted: &dyn Fn(&Algorithm) -> bool,
) -> Result<(Vec<Traffic>, Vec<String>), BenchError> {
    let (mut all, mut left_out) = (Vec::new(), Vec::new());
    for size in sizes {
        let none = || BenchError::Request(format!("{size} bytes are too few for {n_pes} PEs"));
        let counts = |bytes: u64| collective.counts(bytes, dtype.bytes() as u64, n_pes);
        let whole = counts(*size).ok_or_else(none)?;
        let simulated = counts((*size).min(MOST)).ok_or_else(none)?;
        for algorithm in Algorithm::of(collective).filter(|a| wanted(a)) {
            for lowering in [Lowering::Multimem, Lowering::Unicast] {
                let place = algorithm.places().next().unwrap_or(Place::OutOfPlace);
                let multicast = lowering == Lowering::Multimem;
                let request = Request {
                    dtype,
                    op,
                    place,
                    multicast,
                    ..Request::new(collective, simulated.count, n_pes)
                };
                // What does not use the switch is the same in both.
                let same = |t: &Traffic| {
                    t.algorithm == algorithm.name && t.size == whole.bytes && t.switch.bytes() == 0
                };
                match algorithm
                    .can(&request)
                    .map_err(BenchError::Request)
                    .and_then(|()| Traffic::count(algorithm, &request, lowering))
                {
                    Ok(_) if !multicast && all.iter().any(same) => {}
                    Ok(t) => all.push(t.at(whole.bytes)),
                    Err(e) => {
                        let why = e.to_string();
                        if !left_out.contains(&why) {
                            left_out.push(why);
                        }
                    }
                }
            }
        }
    }
    Ok((all, left_out))
}

/// As a table, with the times that a model predicts.
pub fn table(all: &[Traffic], links: &super::Links) -> String {
    let mut out = String::new();
    let names = [
        "size",
        "algorithm",
        "lowering",
        "port out",
        "port in",
        "switch",
        "link",
        "ld_reduce",
        "mm.st",
        "r.loads",
        "r.stores",
        "flags",
        "steps",
        "lanes",
        "model us",
    ];
    let widths = [11, 17, 9, 11, 11, 11, 11, 10, 10, 10, 10, 7, 7, 11, 9];
    let mut line = |cells: &[String]| {
        let cells: Vec<_> = cells.iter().zip(widths).map(|(c, w)| format!("{c:>w$}")).collect();
        // Writing to a string cannot fail.
        let _ = writeln!(out, "{}", cells.join(" "));
    };
    line(&names.map(String::from));
    for t in all {
        let s = &t.steps;
        line(&[
            t.size.to_string(),
            t.algorithm.clone(),
            t.lowering.clone(),
            (t.peer.out + t.switch.out).to_string(),
            (t.peer.into + t.switch.into).to_string(),
            t.switch.bytes().to_string(),
            t.link.to_string(),
            t.ld_reduce.to_string(),
            t.st.to_string(),
            t.remote_loads.to_string(),
            t.remote_stores.to_string(),
            t.flags.to_string(),
            format!("{}w{}p{}k", s.waits, s.pulls, s.packets),
            t.lane_instructions.to_string(),
            format!("{:.2}", links.predict(t).total()),
        ]);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(name: &str, lowering: Lowering, n_pes: u32, bytes: u64) -> Traffic {
        let algorithm = Algorithm::find(Collective::AllReduce, name).unwrap();
        let place = algorithm.places().next().unwrap();
        let count = bytes / 4;
        let request = Request { place, ..Request::new(Collective::AllReduce, count, n_pes) };
        Traffic::count(algorithm, &request, lowering).unwrap()
    }

    #[test]
    fn packets_are_twice_the_data_to_each_other_pe() {
        let t = count("ll", Lowering::Unicast, 4, 1 << 14);
        // Every 8 bytes go as 16; slots are emptied in turn, a few a round.
        let data = 2 * 3 * (1 << 14);
        assert!((data..data + data / 50).contains(&t.peer.out), "{t:?}");
        assert_eq!((t.switch, t.ld_reduce, t.flags), (Ways::default(), 0, 0));
        assert_eq!(t.steps, Steps { waits: 0, pulls: 0, packets: 1 });
        assert_eq!(t.at(1 << 20).peer.out, t.peer.out * 64);
    }

    #[test]
    fn too_much_is_refused() {
        let algorithm = Algorithm::find(Collective::AllReduce, "ll").unwrap();
        let request = Request::new(Collective::AllReduce, MOST, 2);
        let e = Traffic::count(algorithm, &request, Lowering::Unicast).unwrap_err();
        assert!(e.to_string().contains("simulated at most"), "{e}");
    }
}
