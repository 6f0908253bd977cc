//! Checks that need a machine with multicast: whether the kernels are right when the switch adds,
//! and whether they take the time there that the model predicts.

use super::traffic::{MAX_SIMULATED_BYTES, Traffic};
use super::{Bench, BenchError, Calibration, Collective, Contender, Links, OPS, Placement, Row, Wrong, run};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::SystemTime;
use weft::Lowering;
use weft::collective::{Algorithm, Request};
use weft::gpu::GpuError;
use weft_runtime::{DType, Reduce, World};

/// The measurements to make, with their options.
#[derive(Clone, Debug)]
pub struct Verify {
    /// Sizes in bytes of the larger buffer of a PE.
    pub sizes: Vec<u64>,
    /// The types of the elements.
    pub dtypes: Vec<DType>,
    /// The number of back-to-back calls in a timed block.
    pub iters: u32,
    /// The number of blocks of calls.
    pub repeats: u32,
}

/// The measurements of one kernel with a size, with and without the switch.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Pair {
    /// The collective that was measured.
    pub collective: Collective,
    /// The name of the algorithm.
    pub algorithm: String,
    /// Where the results are.
    pub place: Placement,
    /// The type of the elements.
    #[serde(rename = "type")]
    pub dtype: DType,
    /// The reduction, if there is one.
    pub redop: Option<String>,
    /// The bytes of the larger buffer of a PE.
    pub size: u64,
    /// The measurement with multimem instructions.
    pub native: Option<LoweringResult>,
    /// The measurement with every PE's own address.
    pub unicast: Option<LoweringResult>,
}

/// The measurement of one lowering.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct LoweringResult {
    /// The median time of a call; the time of a block is that of its slowest PE.
    pub time_us: f64,
    /// The time that the model predicts.
    pub predicted_us: Option<f64>,
    /// The number of wrong elements, over all PEs and rounds.
    pub wrong: u64,
    /// The first wrong element.
    pub first_wrong: Option<Wrong>,
}

/// The report of a verification.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Verification {
    /// The version of warpweft.
    pub warpweft: String,
    /// The date and time at which the verification began.
    pub date: String,
    /// The number of PEs, one for each GPU.
    pub n_pes: u32,
    /// The GPU of PE 0.
    pub gpu: String,
    /// The version of NVSHMEM.
    pub nvshmem: String,
    /// The links that the model uses: calibrated on this machine, except for the switch.
    pub links: Links,
    /// The pairs of every kernel, type and size.
    pub pairs: Vec<Pair>,
    /// The cases that could not be run, with reasons.
    pub left_out: Vec<String>,
}

/// The reason why the team of all PEs has no multicast address; none if it has one. The call does
/// not create or enable anything. This call is *collective*.
///
/// # Errors
///
/// Fails if there is not even memory for one word (R0302).
pub fn why_no_switch(world: &World) -> Result<Option<String>, BenchError> {
    let buffer = world.buffer(256)?;
    let team = world.team();
    Ok(match buffer.multicast_address(&team) {
        Some(_) => None,
        None => Some(
            buffer.why_no_multicast(&team).unwrap_or_else(|| "NVSHMEM returned no multicast address".into()),
        ),
    })
}

/// Runs every algorithm of every collective with every type, reduction and size, with and without
/// the switch. Compares the results with a reference and the times with the model.
///
/// The data are whole numbers whose sums are exact in their type, so that a result does not depend
/// on the order in which the switch adds. `done` gets each pair when it is measured, on every PE.
/// This call is *collective*.
///
/// # Errors
///
/// Fails with the reason of [`why_no_switch`], or if a call of CUDA or NVSHMEM fails. Wrong results
/// are not errors: the pairs report them.
pub fn verify(
    world: &World,
    what: &Verify,
    done: &mut dyn FnMut(&Pair) -> std::io::Result<()>,
) -> Result<Verification, BenchError> {
    if let Some(why) = why_no_switch(world)? {
        return Err(BenchError::Request(format!("multicast is not available: {why}")));
    }
    let mut all = Verification {
        warpweft: env!("CARGO_PKG_VERSION").into(),
        date: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
        n_pes: world.n_pes(),
        gpu: world.device().name()?,
        nvshmem: world.nvshmem_version().map_or_else(|| "none".into(), |v| v.to_string()),
        links: Links::H200,
        pairs: Vec::new(),
        left_out: Vec::new(),
    };
    let mut counted = BTreeMap::new();
    let mut calibrate = true;
    for (collective, dtype, op) in cases(&what.dtypes) {
        let mut rows: [Vec<Row>; 2] = Default::default();
        for (rows, lowering) in rows.iter_mut().zip([Lowering::Multimem, Lowering::Unicast]) {
            let Some(bench) = bench(what, (collective, dtype, op), lowering, world.n_pes(), calibrate) else {
                continue;
            };
            *rows = all.measure(world, &bench)?;
            calibrate = all.links == Links::H200;
        }
        let [native, unicast] = rows;
        for pair in pairs(collective, &native, &unicast) {
            let pair = predicted(pair, world.n_pes(), &all.links, &mut counted);
            done(&pair).map_err(|e| BenchError::Request(format!("cannot write: {e}")))?;
            all.pairs.push(pair);
        }
    }
    Ok(all)
}

/// Every collective with every type, and with every reduction if it reduces.
fn cases(dtypes: &[DType]) -> Vec<(Collective, DType, Reduce)> {
    let ops = |c: Collective| if c.reduces() { &OPS[..] } else { &OPS[..1] };
    let of = |c: Collective| dtypes.iter().flat_map(move |d| ops(c).iter().map(move |op| (c, *d, *op)));
    Collective::ALL.into_iter().flat_map(of).collect()
}

/// The request for a case; none if no algorithm supports it.
fn bench(
    what: &Verify,
    (collective, dtype, op): (Collective, DType, Reduce),
    lowering: Lowering,
    n_pes: u32,
    calibrate: bool,
) -> Option<Bench> {
    let element = dtype.bytes() as u64;
    let sizes = what.sizes.iter().copied().filter(|s| collective.counts(*s, element, n_pes).is_some());
    let mut bench = Bench::new(collective, sizes.collect());
    bench.contenders = Algorithm::of(collective).map(Contender::Ours).collect();
    bench.contenders.retain(|c| c.can(bench.operation, dtype, op).is_ok());
    (bench.dtype, bench.op, bench.lowering) = (dtype, op, lowering);
    (bench.iters, bench.repeats) = (what.iters, what.repeats);
    (bench.graph, bench.check, bench.calibrate) = (true, true, calibrate);
    (!bench.sizes.is_empty() && !bench.contenders.is_empty()).then_some(bench)
}

/// Pairs the rows of both lowerings, in the order of the first.
fn pairs(collective: Collective, native: &[Row], unicast: &[Row]) -> Vec<Pair> {
    let same = |a: &Row, b: &Row| (&a.algorithm, a.place, a.size) == (&b.algorithm, b.place, b.size);
    let side = |r: &Row| LoweringResult {
        time_us: r.time_us.median,
        predicted_us: None,
        wrong: r.wrong.unwrap_or(0),
        first_wrong: r.first_wrong.clone(),
    };
    let only = unicast.iter().filter(|u| !native.iter().any(|n| same(n, u)));
    let of = |r: &Row| Pair {
        collective,
        algorithm: r.algorithm.clone(),
        place: r.place,
        dtype: r.dtype,
        redop: r.redop.clone(),
        size: r.size,
        native: native.iter().find(|n| same(n, r)).map(side),
        unicast: unicast.iter().find(|u| same(u, r)).map(side),
    };
    native.iter().chain(only).map(of).collect()
}

type Counted = BTreeMap<(&'static str, String, bool, bool), Option<Traffic>>;

/// Adds the predictions of the model, from counts for f32, which are made once.
fn predicted(mut pair: Pair, n_pes: u32, links: &Links, counted: &mut Counted) -> Pair {
    let (collective, place) = (pair.collective, pair.place);
    for (side, lowering) in [(&mut pair.native, Lowering::Multimem), (&mut pair.unicast, Lowering::Unicast)] {
        let Some(side) = side else { continue };
        let key = (
            collective.name(),
            pair.algorithm.clone(),
            place == Placement::InPlace,
            lowering == Lowering::Multimem,
        );
        let traffic = counted.entry(key).or_insert_with(|| {
            let counts = collective.counts(MAX_SIMULATED_BYTES, DType::F32.bytes() as u64, n_pes)?;
            let algorithm = Algorithm::find(collective, &pair.algorithm).ok()?;
            let request = Request { place, ..Request::new(collective, DType::F32, counts.count, n_pes) };
            Traffic::count(algorithm, &request, lowering).ok()
        });
        side.predicted_us = traffic.as_ref().map(|t| t.at(pair.size).predict(links).total());
    }
    pair
}

impl Verification {
    /// Measures all contenders. If one does not compile, measures each by itself, so that the
    /// others are kept. This call is *collective*.
    fn measure(&mut self, world: &World, bench: &Bench) -> Result<Vec<Row>, BenchError> {
        match run(world, bench, &mut |_, _| Ok(())) {
            Ok(report) => {
                self.links = report.calibration.as_ref().map_or(self.links, Calibration::links);
                self.leave_out(report.left_out);
                Ok(report.rows)
            }
            Err(BenchError::Gpu(GpuError::Compile(_))) if bench.contenders.len() > 1 => {
                let mut rows = Vec::new();
                for contender in &bench.contenders {
                    rows.extend(
                        self.measure(world, &Bench { contenders: vec![*contender], ..bench.clone() })?,
                    );
                }
                Ok(rows)
            }
            // The switch of this GPU does not support the type. This happens on all PEs, before a
            // launch.
            Err(e @ (BenchError::Request(_) | BenchError::Gpu(GpuError::Compile(_)))) => {
                let why = e.to_string();
                let why = why.lines().next().unwrap_or_default();
                let who = bench.contenders.iter().map(|c| c.name()).collect::<Vec<_>>().join(", ");
                let (operation, dtype, op) = (bench.operation, bench.dtype, bench.op.name());
                self.leave_out(vec![format!("{operation} of {dtype}, {op}, with {who}: {why}")]);
                Ok(Vec::new())
            }
            Err(e) => Err(e),
        }
    }

    fn leave_out(&mut self, why: Vec<String>) {
        for why in why {
            if !self.left_out.contains(&why) {
                self.left_out.push(why);
            }
        }
    }

    /// The pairs that have a wrong result with either lowering.
    pub fn wrong(&self) -> impl Iterator<Item = &Pair> {
        let is = |s: &Option<LoweringResult>| s.as_ref().is_some_and(|s| s.wrong > 0);
        self.pairs.iter().filter(move |p| is(&p.native) || is(&p.unicast))
    }

    /// The report as JSON.
    ///
    /// # Errors
    /// Fails if a field cannot be written as JSON, which no field is known to do.
    pub fn json(&self) -> serde_json::Result<String> {
        serde_json::to_string_pretty(self).map(|text| text + "\n")
    }

    /// How far the predictions are from the times: for each algorithm and lowering, the geometric
    /// mean of their ratio, and the greatest ratio.
    pub fn summary(&self) -> String {
        let mut ratios: BTreeMap<(&str, &str, &str), Vec<f64>> = BTreeMap::new();
        for pair in &self.pairs {
            for (way, side) in [("native", &pair.native), ("unicast", &pair.unicast)] {
                let Some(side) = side else { continue };
                let Some(predicted) = side.predicted_us.filter(|_| side.time_us > 0.0) else { continue };
                let key = (pair.collective.name(), &*pair.algorithm, way);
                ratios.entry(key).or_default().push((predicted / side.time_us).ln());
            }
        }
        let mut out = String::from(
            "# predicted / measured time: the geometric mean, and the largest factor between the two\n",
        );
        for ((collective, algorithm, way), logs) in ratios {
            let mean = (logs.iter().sum::<f64>() / logs.len() as f64).exp();
            let worst = logs.iter().fold(0.0f64, |w, l| w.max(l.abs())).exp();
            // Writing to a string cannot fail.
            let _ = writeln!(out, "# {collective:>14} {algorithm:>18} {way:>8} {mean:>8.2} {worst:>8.2}");
        }
        let wrong = self.wrong().count();
        let _ = writeln!(
            out,
            "# {} of {} combinations of kernel, type and size have wrong results",
            wrong,
            self.pairs.len()
        );
        out
    }
}

impl Pair {
    /// The lines above the pairs.
    pub fn head() -> String {
        format!(
            "# {:>13} {:>18} {:>12} {:>5} {:>5} {:>11} {:>10} {:>10} {:>7} {:>10} {:>10} {:>7}\n",
            "collective",
            "algorithm",
            "place",
            "type",
            "redop",
            "size",
            "native us",
            "predicted",
            "#wrong",
            "unicast us",
            "predicted",
            "#wrong"
        )
    }

    /// The measurements in one line.
    pub fn line(&self) -> String {
        let side = |s: &Option<LoweringResult>| match s {
            None => format!("{:>10} {:>10} {:>7}", "-", "-", "-"),
            Some(s) => {
                let predicted = s.predicted_us.map_or("-".into(), |us| format!("{us:.2}"));
                format!("{:>10.2} {predicted:>10} {:>7}", s.time_us, s.wrong)
            }
        };
        let place = self.place.name();
        let redop = self.redop.as_deref().unwrap_or("none");
        format!(
            "  {:>13} {:>18} {place:>12} {:>5} {redop:>5} {:>11} {} {}\n",
            self.collective.name(),
            self.algorithm,
            self.dtype.name(),
            self.size,
            side(&self.native),
            side(&self.unicast)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Spread;

    fn row(algorithm: &str, size: u64, us: f64, wrong: u64) -> Row {
        let spread = Spread { min: us, median: us, max: us };
        Row {
            size,
            count: size / 4,
            dtype: DType::F32,
            redop: Some("sum".into()),
            algorithm: algorithm.into(),
            place: Placement::OutOfPlace,
            ctas: Some(4),
            plan: None,
            iters: 1,
            repeats: 1,
            time_us: spread,
            cold_us: spread,
            first_us: us,
            algbw: 0.0,
            busbw: 0.0,
            wrong: Some(wrong),
            first_wrong: None,
        }
    }

    #[test]
    fn both_ways_stand_side_by_side() {
        let native = [row("a", 1024, 5.0, 0), row("s", 1024, 4.0, 3)];
        let unicast = [row("a", 1024, 7.0, 0), row("u", 1024, 6.0, 0)];
        let all = pairs(Collective::AllReduce, &native, &unicast);
        let of = |p: &Pair| {
            (p.algorithm.clone(), p.native.as_ref().map(|s| s.time_us), p.unicast.as_ref().map(|s| s.time_us))
        };
        assert_eq!(
            all.iter().map(of).collect::<Vec<_>>(),
            [
                ("a".into(), Some(5.0), Some(7.0)),
                ("s".into(), Some(4.0), None),
                ("u".into(), None, Some(6.0))
            ]
        );
        let mut verification = Verification {
            warpweft: "0".into(),
            date: String::new(),
            n_pes: 8,
            gpu: "a GPU".into(),
            nvshmem: "3.4.5".into(),
            links: Links::H200,
            pairs: all,
            left_out: Vec::new(),
        };
        assert_eq!(verification.wrong().map(|p| &*p.algorithm).collect::<Vec<_>>(), ["s"]);
        verification.pairs[0].native.as_mut().unwrap().predicted_us = Some(10.0);
        verification.pairs[0].unicast.as_mut().unwrap().predicted_us = Some(7.0);
        let text = verification.summary();
        assert!(
            text.contains("native     2.00     2.00") && text.contains("unicast     1.00     1.00"),
            "{text}"
        );
        assert!(text.contains("1 of 3"), "{text}");
        let json = verification.json().unwrap();
        assert_eq!(serde_json::from_str::<Verification>(&json).unwrap(), verification);
        let widths: Vec<_> = [Pair::head(), verification.pairs[0].line(), verification.pairs[1].line()]
            .iter()
            .map(String::len)
            .collect();
        assert!(widths.iter().all(|w| *w == widths[0]), "{widths:?}");
    }

    #[test]
    fn every_case_has_a_bench() {
        let what =
            Verify { sizes: vec![1 << 10, 3], dtypes: vec![DType::F32, DType::U8], iters: 1, repeats: 1 };
        let all = cases(&what.dtypes);
        assert!(all.contains(&(Collective::AllGather, DType::U8, Reduce::Sum)));
        assert!(all.contains(&(Collective::AllReduce, DType::F32, Reduce::Max)));
        assert!(!all.contains(&(Collective::Broadcast, DType::F32, Reduce::Max)));
        let b = bench(&what, (Collective::AllReduce, DType::F32, Reduce::Sum), Lowering::Multimem, 8, true)
            .unwrap();
        // Three bytes are less than one element.
        assert_eq!((b.sizes, b.check, b.lowering), (vec![1 << 10], true, Lowering::Multimem));
    }

    #[test]
    fn predictions_come_from_counts() {
        let pair = pairs(Collective::AllReduce, &[], &[row("ll", 1 << 20, 50.0, 0)]).remove(0);
        let mut counted = BTreeMap::new();
        let pair = predicted(pair, 2, &Links::H200, &mut counted);
        let us = pair.unicast.unwrap().predicted_us.unwrap();
        assert!(us > Links::H200.launch_us + 1.0 && us < 1000.0, "{us}");
        assert_eq!(counted.len(), 1);
    }
}
