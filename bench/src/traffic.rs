//! The traffic and the instructions of an algorithm, counted on simulated PEs. This compares
//! algorithms that use the switch on machines that have none.

use super::model::SMS;
use super::{BenchError, Collective, Links, Report, Row};
use serde::{Deserialize, Serialize};
use std::fmt::Write;
use std::str::FromStr;
use weft::Lowering;
use weft::collective::{Algorithm, Placement, Plan, Request, Sums};
use weft_isa::Target;
use weft_run::{Ran, run_file, simulation};
use weft_runtime::DType;
use weft_sim::{Port, Stats};

/// The most bytes of a PE that are simulated. The counts of larger sizes are extrapolated.
pub const MAX_SIMULATED_BYTES: u64 = 256 << 10;
/// The number of CTAs of a simulated PE.
const CTAS: u32 = 4;

/// The counts of one launch. Bytes are payload only, without requests, headers and
/// acknowledgements.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Traffic {
    /// The collective that was launched.
    pub collective: Collective,
    /// The name of the algorithm.
    pub algorithm: String,
    /// The lowering of the kernel: `multimem` or `unicast`; `any` if both are the same.
    pub lowering: String,
    /// Where the results are.
    pub place: Placement,
    /// The type of the elements.
    #[serde(rename = "type")]
    pub dtype: DType,
    /// The bytes of the larger buffer of a PE.
    pub size: u64,
    /// The number of PEs.
    pub n_pes: u32,
    /// The number of CTAs of a PE.
    pub ctas: u32,
    /// The bytes between PEs by loads, stores and atomics, in each direction, of the PE that has
    /// the most.
    pub peer: PortBytes,
    /// The bytes between a PE and the switch by multimem instructions, of the PE that has the most.
    pub switch: PortBytes,
    /// The most bytes that one PE sends to one other PE.
    pub link: u64,
    /// The number of lanes that executed `multimem.ld_reduce`, over all PEs.
    pub ld_reduce: u64,
    /// The bytes of `multimem.st` instructions.
    pub st: u64,
    /// The bytes of `multimem.red` instructions.
    pub red: u64,
    /// The number of loads from other PEs, by lanes.
    pub remote_loads: u64,
    /// The number of stores and atomics to other PEs, by lanes.
    pub remote_stores: u64,
    /// The number of releases that other PEs may wait for, by lanes.
    pub flags: u64,
    /// The number of CTA barriers that were completed.
    pub barriers: u64,
    /// The number of instructions, by lanes. It includes those that wait, so it depends on the
    /// schedule.
    pub lane_instructions: u64,
    /// The steps that must follow each other.
    pub steps: Steps,
    /// The microseconds for which the model chose the algorithm, if this is the choice of `auto`.
    /// They are those of a plan with as many CTAs as an H200 would use, and of its waits in closed
    /// form.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chosen_us: Option<f64>,
}

/// The bytes through a port in each direction.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct PortBytes {
    /// The bytes that leave the PE.
    pub out: u64,
    /// The bytes that enter the PE.
    pub into: u64,
}

/// The steps that a launch waits for one after the other.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct Steps {
    /// The number of barriers of the team, and of flags that follow data.
    pub waits: u32,
    /// The number of waits for loads from other PEs; loads in flight together count once.
    pub pulls: u32,
    /// The number of waits for packets, which carry data together with a flag.
    pub packets: u32,
}

impl PortBytes {
    fn busiest(ports: &[Port]) -> PortBytes {
        let busiest = |of: fn(&Port) -> u64| ports.iter().map(of).max().unwrap_or(0);
        PortBytes { out: busiest(|p| p.out), into: busiest(|p| p.into) }
    }

    fn scaled(self, by: f64) -> PortBytes {
        let scaled = |n: u64| (n as f64 * by).round() as u64;
        PortBytes { out: scaled(self.out), into: scaled(self.into) }
    }

    /// The bytes of the direction that carries more.
    pub fn bytes(self) -> u64 {
        self.out.max(self.into)
    }
}

impl Traffic {
    /// Counts one launch of an algorithm, of `request.bytes()` up to [`MAX_SIMULATED_BYTES`].
    ///
    /// # Errors
    ///
    /// Fails if the algorithm does not support the request, for more than [`MAX_SIMULATED_BYTES`]
    /// bytes, if the kernel fails, or if its result is wrong.
    pub fn count(
        algorithm: &'static Algorithm,
        request: &Request,
        lowering: Lowering,
    ) -> Result<Traffic, BenchError> {
        let bad =
            |message: String| BenchError::Request(format!("{} on the simulator: {message}", algorithm.name));
        let bytes = request.bytes();
        if bytes > MAX_SIMULATED_BYTES {
            return Err(bad(format!(
                "{bytes} bytes are more than the {MAX_SIMULATED_BYTES} that are simulated at most"
            )));
        }
        let multicast = lowering != Lowering::Unicast;
        let request = &Request { multicast, ..*request };
        let plan = Plan::of(algorithm, request, CTAS);
        let target: Target = "sm_90a".parse().map_err(|e: <Target as FromStr>::Err| bad(e.to_string()))?;
        let (file, options) = simulation(&plan, request, target).map_err(|e| bad(e.to_string()))?;
        let outcome = run_file(&file, &options).map_err(|e| bad(e.to_string()))?;
        // (A quantised result has no exact value to compare with.)
        let exact = (algorithm.sums)(request) != Sums::Quantised;
        if exact && !outcome.passed() {
            return Err(bad(format!("the result of {bytes} bytes is wrong")));
        }
        let Ran::Simulator { stats, .. } = &outcome.ran else {
            return Err(bad("the kernel did not run on the simulator".into()));
        };
        let n = request.n_pes as usize;
        let switch = PortBytes::busiest(&stats.switch_ports(n));
        let lowering = match (switch.bytes(), multicast) {
            (0, true) => "any",
            (_, true) => "multimem",
            (_, false) => "unicast",
        };
        let lanes = |prefix: &str| stats.count(prefix).1;
        Ok(Traffic {
            collective: request.collective,
            algorithm: algorithm.name.into(),
            lowering: lowering.into(),
            place: request.place,
            dtype: request.dtype,
            size: bytes,
            n_pes: request.n_pes,
            ctas: plan.ctas,
            peer: PortBytes::busiest(&stats.peer_ports(n)),
            switch,
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
            chosen_us: None,
        })
    }

    /// Extrapolates to another size. Bytes are scaled in proportion, which is right except for
    /// flags; the steps stay the same. The instructions are those that were counted.
    pub fn at(&self, size: u64) -> Traffic {
        let by = size as f64 / self.size.max(1) as f64;
        let link = (self.link as f64 * by).round() as u64;
        Traffic { size, peer: self.peer.scaled(by), switch: self.switch.scaled(by), link, ..self.clone() }
    }
}

/// The number of lanes that executed an instruction with release semantics that other PEs may wait
/// for.
fn releases(stats: &Stats) -> u64 {
    let sends = |m: &str| ["st.", "red.", "atom.", "multimem.red."].iter().any(|p| m.starts_with(p));
    let is = |m: &str| sends(m) && m.contains(".release") && m.contains(".sys");
    stats.opcodes.iter().filter(|o| is(&o.mnemonic)).map(|o| o.lanes).sum()
}

impl Steps {
    /// For a wait, each CTA executes one release: through the switch to all PEs at once, or one to
    /// each PE, with or without itself. If nothing is released although data moves, the data are
    /// packets: one wait, or two in a kernel whose name contains two-shot.
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

/// The launches to count.
pub struct Counting<'a> {
    /// The collective, the element type, the reduction, the allowed sums and the number of PEs. The
    /// other fields of the request are not used.
    pub like: Request,
    /// The sizes in bytes, as in [`Bench::sizes`](super::Bench::sizes).
    pub sizes: &'a [u64],
    /// The algorithms to count for each size.
    pub algorithms: Vec<&'static Algorithm>,
    /// The links for which the model chooses an algorithm for each size, if its choice is wanted.
    pub auto: Option<&'a Links>,
}

/// An algorithm, its lowering, and the predicted time if the model chose it.
type Launch = (&'static Algorithm, Lowering, Option<f64>);

const LOWERINGS: [Lowering; 2] = [Lowering::Multimem, Lowering::Unicast];

impl Counting<'_> {
    /// A request of the counted kind for `count` elements.
    fn request(&self, count: u64) -> Request {
        let Request { collective, dtype, op, n_pes, sums, .. } = self.like;
        Request { op, sums, ..Request::new(collective, dtype, count, n_pes) }
    }

    /// The launches of `count` elements. Those that the model chooses come last. Reasons why it
    /// chooses none are added to `left_out`.
    fn launches(&self, count: u64, left_out: &mut Vec<String>) -> Vec<Launch> {
        let both = |a: &&'static Algorithm| LOWERINGS.map(|lowering| (*a, lowering, None));
        let mut all: Vec<Launch> = self.algorithms.iter().flat_map(both).collect();
        for (links, lowering) in self.auto.iter().flat_map(|links| LOWERINGS.map(|l| (links, l))) {
            let request = Request { multicast: lowering == Lowering::Multimem, ..self.request(count) };
            match Plan::choose(&request, SMS, links) {
                Ok(plan) => all.push((plan.algorithm, lowering, Some(links.time(&plan, &request)))),
                Err(why) => left_out.push(format!("auto: {why}")),
            }
        }
        all
    }
}

/// The counts of simulated launches, each of which runs once.
#[derive(Default)]
struct Counted(Vec<(&'static str, Lowering, u64, Traffic)>);

impl Counted {
    fn count(&mut self, launch: &Launch, request: &Request) -> Result<Traffic, BenchError> {
        let (algorithm, lowering, chosen_us) = *launch;
        // A launch that does not use the switch is the same with either lowering.
        let is = |(name, other, count, t): &&(&str, Lowering, u64, Traffic)| {
            (*name, *count) == (algorithm.name, request.count) && (*other == lowering || t.lowering == "any")
        };
        let traffic = match self.0.iter().find(is) {
            Some((.., known)) => known.clone(),
            None => {
                let place = algorithm.places().next().unwrap_or(Placement::OutOfPlace);
                let traffic = Traffic::count(algorithm, &Request { place, ..*request }, lowering)?;
                self.0.push((algorithm.name, lowering, request.count, traffic.clone()));
                traffic
            }
        };
        let lowering = match lowering {
            Lowering::Unicast => "unicast".into(),
            _ => traffic.lowering.clone(),
        };
        Ok(Traffic { chosen_us, lowering, ..traffic })
    }
}

/// Counts the algorithms of a collective and those that the model chooses, with and without the
/// switch, for several sizes. Those above [`MAX_SIMULATED_BYTES`] bytes are extrapolated. Also
/// returns the reasons why some are left out. `progress` gets the number of launches that are done,
/// and the number of all.
///
/// # Errors
///
/// Fails for a size that has no element for each PE.
pub fn count_all(
    counting: &Counting<'_>,
    progress: &dyn Fn(usize, usize),
) -> Result<(Vec<Traffic>, Vec<String>), BenchError> {
    let Request { collective, dtype, n_pes, .. } = counting.like;
    let (mut all, mut left_out): (Vec<Traffic>, Vec<String>) = (Vec::new(), Vec::new());
    let mut counted = Counted::default();
    for (done, size) in counting.sizes.iter().enumerate() {
        let none = || {
            BenchError::Request(format!(
                "{size} bytes are too few for {n_pes} PEs: each PE needs at least one element"
            ))
        };
        let counts = |bytes: u64| collective.counts(bytes, dtype.bytes() as u64, n_pes).ok_or_else(none);
        let (whole, simulated) = (counts(*size)?, counts((*size).min(MAX_SIMULATED_BYTES))?);
        let request = counting.request(simulated.count);
        let mut found = Vec::new();
        let launches = counting.launches(whole.count, &mut left_out);
        for (i, launch) in launches.iter().enumerate() {
            progress(done * launches.len() + i, counting.sizes.len() * launches.len());
            match counted.count(launch, &request) {
                Ok(traffic) => found.push(traffic.at(whole.bytes)),
                Err(e) => left_out.push(e.to_string()),
            }
        }
        // One line is enough for a launch that does not use the switch.
        let repeats = |b: &mut Traffic, a: &mut Traffic| {
            a.lowering == "any" && a.algorithm == b.algorithm && a.is_auto() == b.is_auto()
        };
        found.dedup_by(repeats);
        all.extend(found);
    }
    left_out.sort();
    left_out.dedup();
    Ok((all, left_out))
}

/// The columns of the table and their widths.
const COLUMNS: [(&str, usize); 17] = [
    ("size", 11),
    ("algorithm", 22),
    ("lowering", 8),
    ("port out", 11),
    ("port in", 11),
    ("by switch", 11),
    ("link", 11),
    ("ld_reduce", 9),
    ("st", 9),
    ("loads", 9),
    ("stores", 9),
    ("flags", 6),
    ("waits", 5),
    ("lanes", 10),
    ("model us", 9),
    ("meas. us", 9),
    ("ratio", 5),
];

/// Prints a table with the times that the model predicts and, if there is a report, those that were measured.
pub fn table(all: &[Traffic], links: &Links, measured: Option<&Report>) -> String {
    let mut out = String::new();
    let mut line = |cells: [String; 17]| {
        let cells = cells.iter().zip(COLUMNS).map(|(c, (_, width))| format!("{c:>width$}"));
        // Writing to a string cannot fail.
        let _ = writeln!(out, "{}", cells.collect::<Vec<_>>().join(" "));
    };
    line(COLUMNS.map(|(name, _)| name.into()));
    for t in all {
        let s = &t.steps;
        let model = t.chosen_us.unwrap_or_else(|| t.predict(links).total());
        let time = measured.and_then(|report| t.time_in(report));
        line([
            t.size.to_string(),
            if t.is_auto() { format!("auto: {}", t.algorithm) } else { t.algorithm.clone() },
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
            format!("{}+{}+{}", s.waits, s.pulls, s.packets),
            t.lane_instructions.to_string(),
            format!("{model:.2}"),
            time.map_or("-".into(), |us| format!("{us:.2}")),
            time.map_or("-".into(), |us| format!("{:.2}", model / us)),
        ]);
    }
    out
}

impl Traffic {
    /// Whether the model chose the algorithm.
    fn is_auto(&self) -> bool {
        self.chosen_us.is_some()
    }

    /// The time in microseconds that a report has for the same case.
    fn time_in(&self, report: &Report) -> Option<f64> {
        let same = report.lowering == self.lowering || self.lowering == "any";
        let name = if self.is_auto() { "auto" } else { &self.algorithm };
        let is = |r: &&Row| (&*r.algorithm, r.place, r.size) == (name, self.place, self.size);
        let row = report.rows.iter().find(is).filter(|_| same && report.n_pes == self.n_pes)?;
        Some(row.time_us.median)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(name: &str, lowering: Lowering, n_pes: u32, bytes: u64) -> Traffic {
        let algorithm = Algorithm::find(Collective::AllReduce, name).unwrap();
        let place = algorithm.places().next().unwrap();
        let count = bytes / 4;
        let request = Request { place, ..Request::new(Collective::AllReduce, DType::F32, count, n_pes) };
        Traffic::count(algorithm, &request, lowering).unwrap()
    }

    #[test]
    fn packets_are_twice_the_data_to_each_other_pe() {
        let t = count("ll", Lowering::Unicast, 4, 1 << 14);
        // Every 8 bytes are sent as 16; slots are emptied in turn, a few in each round.
        let data = 2 * 3 * (1 << 14);
        assert!((data..data + data / 50).contains(&t.peer.out), "{t:?}");
        assert_eq!((t.switch, t.ld_reduce, t.flags), (PortBytes::default(), 0, 0));
        assert_eq!(t.steps, Steps { waits: 0, pulls: 0, packets: 1 });
        assert_eq!(t.at(1 << 20).peer.out, t.peer.out * 64);
    }

    /// With the switch, a PE sends all its data once and an n-th of the result; without it, (n-1)/n
    /// of both.
    #[test]
    fn two_shot_by_the_switch_and_by_peers() {
        let (n, size) = (4u64, 1u64 << 14);
        let flags = |t: &Traffic| t.flags * 8;
        let t = count("two_shot", Lowering::Multimem, 4, size);
        let want = size + size / n;
        assert!((want..want + flags(&t)).contains(&t.switch.out) && t.switch.into >= want, "{t:?}");
        assert_eq!((t.peer, t.ld_reduce, t.st), (PortBytes::default(), size / 16, size / 16), "{t:?}");
        assert_eq!(t.steps, Steps { waits: 2, pulls: 1, packets: 0 });
        assert_eq!(t.flags, 2 * n * u64::from(t.ctas));
        let t = count("two_shot", Lowering::Unicast, 4, size);
        let want = 2 * size / n * (n - 1);
        assert!((want..want + flags(&t)).contains(&t.peer.out), "{t:?}");
        assert_eq!((t.switch, t.steps), (PortBytes::default(), Steps { waits: 2, pulls: 1, packets: 0 }));
        assert_eq!(t.remote_loads, size / 16 * (n - 1));
        let one = count("one_shot", Lowering::Multimem, 4, size);
        assert!(one.switch.out >= n * size && one.st == 0, "{one:?}");
    }

    #[test]
    fn a_table_has_what_was_counted_and_measured() {
        let t = count("ll", Lowering::Unicast, 2, 1024);
        let text = table(&[t.at(1 << 20)], &Links::H200, None);
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), 2);
        assert_eq!(lines[0].len(), lines[1].len());
        assert!(lines[1].contains("1048576") && lines[1].contains("0+0+1"), "{text}");
    }

    /// `auto` has the name and the time of the plan that the model chooses, for each size and with
    /// and without the switch. A choice that does not use the switch has one line.
    #[test]
    fn the_choice_of_the_model_is_counted() {
        let (links, sizes) = (Links::H200, [1 << 10, 64 << 20]);
        let like = Request::new(Collective::AllReduce, DType::BF16, 1, 3);
        let counting = Counting { like, sizes: &sizes, algorithms: Vec::new(), auto: Some(&links) };
        let (all, left_out) = count_all(&counting, &|_, _| ()).unwrap();
        assert!(left_out.is_empty(), "{left_out:?}");
        let found: Vec<_> =
            all.iter().map(|t| (t.size, &*t.algorithm, &*t.lowering, t.chosen_us.unwrap())).collect();
        let mut wanted = Vec::new();
        for bytes in sizes {
            let of = |multicast| {
                let request = Request { multicast, count: bytes / 2, ..like };
                let plan = Plan::choose(&request, 132, &links).unwrap();
                (bytes, plan.algorithm.name, links.time(&plan, &request))
            };
            match [of(true), of(false)] {
                [a, b] if a == b => wanted.push((a.0, a.1, "any", a.2)),
                [a, b] => wanted.extend([(a.0, a.1, "multimem", a.2), (b.0, b.1, "unicast", b.2)]),
            }
        }
        assert_eq!(found, wanted);
        assert_eq!(found.len(), 3, "the switch changes the choice of the small size alone");
        let text = table(&all, &links, None);
        for ((_, name, _, us), line) in found.iter().zip(text.lines().skip(1)) {
            assert!(
                line.contains(&format!(" auto: {name} ")) && line.contains(&format!(" {us:.2} ")),
                "{text}"
            );
        }
        // The choice has lines of its own beside that of a named algorithm.
        let lamport = Algorithm::find(Collective::AllReduce, "lamport").unwrap();
        let like = Request { n_pes: 2, ..like };
        let counting = Counting { like, sizes: &sizes[..1], algorithms: vec![lamport], auto: Some(&links) };
        let (all, _) = count_all(&counting, &|_, _| ()).unwrap();
        let names: Vec<_> = all.iter().map(|t| (&*t.algorithm, t.is_auto())).collect();
        assert_eq!(names, [("lamport", false), ("lamport_switch", true), ("lamport", true)]);
    }

    #[test]
    fn too_much_is_refused() {
        let algorithm = Algorithm::find(Collective::AllReduce, "ll").unwrap();
        let request = Request::new(Collective::AllReduce, DType::F32, MAX_SIMULATED_BYTES, 2);
        let e = Traffic::count(algorithm, &request, Lowering::Unicast).unwrap_err();
        assert!(e.to_string().contains("simulated at most"), "{e}");
    }
}
