//! `weft bench`: every algorithm and NVSHMEM beside it, checked; and a check that finds what is wrong.

use crate::check::{Case, Checked};
use crate::{ensure, finish, same};
use libtest_mimic::Failed;
use std::path::PathBuf;
use std::process::Command;
use weft::bench::{Algorithm, Bench, Collective, Contender, Place, Report, Row, run};
use weft::runtime::{DType, Reduce, World};

pub const CASES: &[Case] = &[
    Case::new("bench::allreduce", |w| collective(w, Collective::AllReduce)),
    Case::new("bench::allgather", |w| collective(w, Collective::AllGather)),
    Case::new("bench::reducescatter", |w| collective(w, Collective::ReduceScatter)),
    Case::new("bench::broadcast", |w| collective(w, Collective::Broadcast)),
    Case::new("bench::min_and_max_of_nvshmem", min_and_max),
    Case::new("bench::wrong_sums_are_found", wrong).pes(2),
];

/// Sizes that divide well and badly.
const SIZES: [u64; 3] = [1 << 10, 40_004, 1 << 20];

fn measure(world: &World, bench: &Bench) -> Result<Report, Box<dyn std::error::Error>> {
    let mut lines = 0;
    let report = run(world, bench, &mut |_, rows| {
        lines += rows.len();
        Ok(())
    })?;
    same!(lines, report.rows.len(), "rows told");
    Ok(report)
}

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-6 * b.abs()
}

/// Times that can be, of a row without wrong elements.
fn good(row: &Row) -> Checked {
    let t = row.time_us;
    ensure!(row.wrong == Some(0), "{row:?}");
    ensure!(0.1 < t.min && t.min <= t.median && t.median <= t.max && t.max < 1e6, "{row:?}");
    ensure!(close(row.algbw * t.median * 1e3, row.size as f64), "{row:?}");
    Ok(())
}

fn collective(world: &World, collective: Collective) -> Checked {
    for (dtype, graph) in [(DType::F32, true), (DType::BF16, false), (DType::I32, true)] {
        let mut bench = Bench::new(collective, SIZES.to_vec());
        bench.contenders.push(Contender::Nvshmem);
        (bench.dtype, bench.graph, bench.check) = (dtype, graph, true);
        let report = measure(world, &bench)?;
        let places: usize = bench.contenders.iter().map(|c| c.places(collective).len()).sum();
        same!(report.rows.len(), SIZES.len() * places, "rows");
        report.rows.iter().try_for_each(good)?;
        let unit = collective.parts(world.n_pes()) * dtype.bytes() as u64;
        for row in &report.rows {
            let factor = collective.bus_factor(world.n_pes());
            ensure!(close(row.busbw, row.algbw * factor), "{row:?}");
            ensure!(SIZES.iter().any(|s| row.size <= *s && s - row.size < unit), "{row:?}");
        }
        same!(serde_json::from_str::<Report>(&report.json()?)?, report, "the report read back");
    }
    Ok(())
}

fn min_and_max(world: &World) -> Checked {
    for op in [Reduce::Min, Reduce::Max] {
        let mut bench = Bench::new(Collective::AllReduce, vec![4096]);
        bench.contenders = vec![Contender::Nvshmem];
        (bench.op, bench.check, bench.iters, bench.repeats) = (op, true, 2, 2);
        let report = measure(world, &bench)?;
        same!(report.rows.len(), 2, "both places");
        report.rows.iter().try_for_each(good)?;
        same!(report.rows[0].redop.as_deref(), Some(op.name()), "reduction");
    }
    Ok(())
}

/// Forgets all PEs but its own.
static FORGETS: Algorithm = Algorithm {
    collective: Collective::AllReduce,
    name: "forgets",
    source: "kernel forgets<T: dtype, N: int>(
        x: symm<T, (N):(1)>, out: global<T, (N):(1)>, sync: barrier, team: team) block(128) {
        let from = partition(x, threads());
        let to = partition(out, threads());
        barrier(sync, team, acq_rel, sys);
        for i in 0..size<1>(from) { to[_, i] = from[_, i]; }
        barrier(sync, team, acq_rel, sys);
    }",
    place: Place::OutOfPlace,
    work: |c, _| c.count,
};

fn wrong(world: &World) -> Checked {
    for graph in [false, true] {
        let mut bench = Bench::new(Collective::AllReduce, vec![4000]);
        bench.contenders = vec![Contender::Ours(&FORGETS)];
        (bench.graph, bench.check) = (graph, true);
        let report = measure(world, &bench)?;
        let found = report.rows[0].wrong.unwrap_or_default();
        let first = report.rows[0].first_wrong.as_ref().ok_or("nothing was found")?;
        // Some sums may be right by chance: where all others have 0.
        let all = 1000 * 3 * u64::from(world.n_pes());
        same!(first.of, all, "elements compared");
        ensure!(
            found > all * 9 / 10 && found == first.elements,
            "{found} of {all} wrong elements were found"
        );
        same!((first.pe, first.round), (0, 1), "the first");
        let said = report.first_wrong().ok_or("no sentence")?;
        ensure!(said.contains("by forgets out of place") && said.contains("first: PE 0, element"), "{said}");
    }
    Ok(())
}

/// The command: beside this test where both were carried to another machine, else where cargo put it.
fn weft() -> Result<PathBuf, Failed> {
    let beside = std::env::current_exe().map_err(|e| e.to_string())?.with_file_name("weft");
    let built = PathBuf::from(env!("CARGO_BIN_EXE_weft"));
    [beside, built].into_iter().find(|p| p.is_file()).ok_or_else(|| "no `weft` beside this test".into())
}

/// From the command line to the table and its files.
pub fn command(pes: u32) -> Result<(), Failed> {
    let folder = tempfile::tempdir().map_err(|e| e.to_string())?;
    let rows = [("allreduce", 4), ("allgather", 2), ("reducescatter", 2), ("broadcast", 2)];
    for (collective, per_size) in rows {
        let [json, csv] = ["json", "csv"].map(|kind| folder.path().join(format!("{collective}.{kind}")));
        let mut command = Command::new(weft()?);
        command.args(["bench", collective, "--sizes", "1K:1M:x32", "--check", "--graph"]);
        command.args(["--against", "nvshmem", "--pes", &pes.to_string()]);
        command.arg("--json").arg(&json).arg("--csv").arg(&csv);
        let outcome = finish(&mut command, &format!("weft bench {collective}"))?;
        let judged = (|| -> Checked {
            same!(outcome.code, Some(0), "status");
            let report: Report = serde_json::from_str(&std::fs::read_to_string(&json)?)?;
            same!((report.n_pes, report.graph), (pes, true), "PEs, graph");
            same!(report.rows.len(), 3 * per_size, "rows");
            report.rows.iter().try_for_each(good)?;
            same!(std::fs::read_to_string(&csv)?.lines().count(), 1 + report.rows.len(), "lines of the CSV");
            // Both places of an algorithm share a line of the table.
            let both = if collective == "allreduce" { 3 } else { 0 };
            let lines = outcome.out.lines().filter(|l| l.starts_with("   ")).count();
            same!(lines, report.rows.len() - both, "lines of the table");
            Ok(())
        })();
        judged.map_err(|why| outcome.told(&why.to_string()))?;
    }
    Ok(())
}
