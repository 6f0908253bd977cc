//! Tests of `weft bench`: every algorithm beside its peers, with checked results, remote
//! operations, and a check that finds wrong results.

use crate::check::{Case, Checked};
use crate::{ensure, finish, same};
use libtest_mimic::Failed;
use std::path::PathBuf;
use std::process::Command;
use weft::runtime::{DType, Reduce, World, nccl};
use weft_bench::{Bench, BenchError, Collective, Contender, Operation, Own, Report, Row, Verification, run};

pub const CASES: &[Case] = &[
    Case::new("bench::allreduce", |w| collective(w, Collective::AllReduce)),
    Case::new("bench::allgather", |w| collective(w, Collective::AllGather)),
    Case::new("bench::reducescatter", |w| collective(w, Collective::ReduceScatter)),
    Case::new("bench::broadcast", |w| collective(w, Collective::Broadcast)),
    Case::new("bench::alltoall", |w| collective(w, Collective::AllToAll)),
    Case::new("bench::torch", torch).pes(2),
    Case::new("bench::min_and_max", min_and_max),
    Case::new("bench::kernels_of_files", own),
    Case::new("bench::put_and_get", put_and_get),
    Case::new("bench::signal_and_barrier", signal_and_barrier),
    Case::new("bench::calibration", calibration),
    Case::new("bench::wrong_sums_are_found", wrong).pes(2),
    Case::new("bench::sizes_that_do_not_fit", too_large),
    Case::new("bench::a_pe_that_dies", dies).pes(2).judged(dies_judged),
];

/// Some of the sizes divide evenly, and some do not.
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

/// Checks that a row has plausible times and no wrong elements.
fn good(row: &Row) -> Checked {
    let t = row.time_us;
    ensure!(row.wrong == Some(0), "{row:?}");
    ensure!(0.1 < t.min && t.min <= t.median && t.median <= t.max && t.max < 1e6, "{row:?}");
    ensure!(close(row.algbw * t.median * 1e3, row.size as f64), "{row:?}");
    Ok(())
}

/// The peers that are installed. NCCL can be missing.
fn peers() -> Vec<Contender> {
    match nccl::installed() {
        Ok(_) => vec![Contender::Nvshmem, Contender::Nccl, Contender::NcclSymm],
        Err(e) => {
            println!("without NCCL: {}", e.message);
            vec![Contender::Nvshmem]
        }
    }
}

fn collective(world: &World, collective: Collective) -> Checked {
    let operation = Operation::Collective(collective);
    for (dtype, graph) in [(DType::F32, true), (DType::BF16, false), (DType::I32, true)] {
        let mut bench = Bench::new(collective, SIZES.to_vec());
        bench.contenders.extend(peers());
        (bench.dtype, bench.graph, bench.check) = (dtype, graph, true);
        // There are many algorithms, so each runs only a few times.
        (bench.warmup, bench.iters, bench.repeats) = (1, 5, 3);
        let report = measure(world, &bench)?;
        // Algorithms that need the switch are left out if there is none.
        let left_out = report.left_out.len();
        let places: usize = bench.contenders.iter().map(|c| c.places(operation).len()).sum();
        let rows = SIZES.len() * places;
        ensure!(
            report.rows.len() == rows || left_out > 0 && report.rows.len() < rows,
            "{:?}",
            report.left_out
        );
        for row in &report.rows {
            // An error of NCCL that the report names is not a failure of this test, but must not be
            // hidden either.
            let part = row.count * dtype.bytes() as u64;
            let known = row.algorithm == Contender::NcclSymm.name()
                && !part.is_multiple_of(8)
                && !report.notes.is_empty();
            good(&Row { wrong: if known { Some(0) } else { row.wrong }, ..row.clone() })?;
        }
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

/// Tests PyTorch beside the library: each of its algorithms, and the fastest of them. Its absence
/// is reported.
fn torch(world: &World) -> Checked {
    for (collective, dtype, graph) in [
        (Collective::AllReduce, DType::BF16, true),
        (Collective::AllReduce, DType::F32, false),
        (Collective::ReduceScatter, DType::BF16, true),
    ] {
        let mut bench = Bench::new(collective, SIZES.to_vec());
        bench.contenders = Contender::peers("torch,torch-two-shot,torch-multimem")?;
        if collective == Collective::AllReduce {
            bench.contenders.extend(Contender::peers("torch-one-shot")?);
        } else {
            bench.contenders.retain(|c| c.name() != "torch-multimem");
        }
        (bench.dtype, bench.graph, bench.check) = (dtype, graph, true);
        (bench.warmup, bench.iters, bench.repeats) = (1, 5, 3);
        let report = match run(world, &bench, &mut |_, _| Ok(())) {
            Err(BenchError::Request(why)) if why.contains("pip install torch") => {
                println!("without PyTorch: {why}");
                return Ok(());
            }
            report => report?,
        };
        ensure!(report.torch.is_some(), "no version");
        report.rows.iter().try_for_each(good)?;
        let of = |name: &str, size: u64| -> Vec<&Row> {
            report.rows.iter().filter(|r| r.algorithm == name && r.size == size).collect()
        };
        for size in [1 << 10, 1 << 20] {
            let places = if collective == Collective::AllReduce { 2 } else { 1 };
            same!(of("torch", size).len(), places, "{collective} of {size}: {:?}", report.left_out);
            ensure!(of("torch", size).iter().all(|r| r.plan.is_some()), "which it was");
        }
    }
    Ok(())
}

fn min_and_max(world: &World) -> Checked {
    for op in [Reduce::Min, Reduce::Max] {
        let mut bench = Bench::new(Collective::AllReduce, vec![4096]);
        bench.contenders = peers();
        (bench.op, bench.check, bench.iters, bench.repeats) = (op, true, 2, 2);
        let report = measure(world, &bench)?;
        same!(report.rows.len(), 2 * bench.contenders.len(), "both places");
        report.rows.iter().try_for_each(good)?;
        same!(report.rows[0].redop.as_deref(), Some(op.name()), "reduction");
    }
    Ok(())
}

fn put_and_get(world: &World) -> Checked {
    for operation in [Operation::Put, Operation::Get] {
        let mut bench = Bench::new(operation, vec![4, 40_004, 1 << 20]);
        bench.contenders.extend([Contender::Nvshmem, Contender::Stream]);
        (bench.check, bench.graph, bench.dtype) = (true, operation == Operation::Put, DType::BF16);
        let report = measure(world, &bench)?;
        same!(report.rows.len(), 9, "rows");
        report.rows.iter().try_for_each(good)?;
        ensure!(report.rows.iter().all(|r| r.busbw == r.algbw), "{operation}: {:?}", report.rows[0]);
    }
    Ok(())
}

fn signal_and_barrier(world: &World) -> Checked {
    for graph in [false, true] {
        for operation in [Operation::Signal, Operation::Barrier] {
            let mut bench = Bench::new(operation, Vec::new());
            bench.contenders.push(Contender::Nvshmem);
            (bench.graph, bench.check) = (graph, true);
            let report = measure(world, &bench)?;
            same!(report.rows.len(), 2, "rows");
            for row in &report.rows {
                let us = row.time_us;
                // There is nothing to compare, because a single PE signals nobody.
                same!(row.wrong, None, "wrong elements");
                ensure!(us.min <= us.median && us.median <= us.max && us.max < 1e4, "{row:?}");
                ensure!(world.n_pes() == 1 || us.min > 0.3, "{row:?}");
            }
        }
    }
    Ok(())
}

fn calibration(world: &World) -> Checked {
    let mut bench = Bench::new(Collective::AllReduce, vec![1024]);
    bench.calibrate = true;
    let report = measure(world, &bench)?;
    let c = report.calibration.as_ref().ok_or("no calibration")?;
    ensure!(0.1 < c.empty_kernel_us && c.empty_kernel_us < 20.0, "{c:?}");
    ensure!(c.empty_kernel_us < c.barrier_us && c.barrier_us < 200.0, "{c:?}");
    ensure!(c.loading.ptx_ms > c.loading.cubin_ms && c.loading.cubin_ms > 0.0, "{c:?}");
    ensure!(c.flight_us.is_some() == (world.n_pes() > 1), "{c:?}");
    let all = [&c.push, &c.pull];
    ensure!(all.iter().all(|b| b.is_empty() == (world.n_pes() == 1)), "{c:?}");
    ensure!(all.into_iter().flatten().all(|b| 0.5 < b.gbps && b.gbps < 5000.0), "{c:?}");
    // More CTAs give more bandwidth.
    let ends = c.push.first().zip(c.push.last());
    ensure!(ends.is_none_or(|(one, all)| one.gbps * 2.0 < all.gbps), "{c:?}");
    same!(report.rows.first().map(|r| r.size), Some(1024), "size");
    Ok(())
}

/// Tests kernels of files, as `--kernel` takes them.
fn own(world: &World) -> Checked {
    let kernels = [
        (Collective::AllReduce, "one_shot", include_str!("../../examples/allreduce_one_shot.weft")),
        (Collective::AllReduce, "two_shot", include_str!("../../examples/allreduce_two_shot.weft")),
        (Collective::AllGather, "push", include_str!("../../examples/all_gather.weft")),
        (Collective::ReduceScatter, "pull", include_str!("../../examples/reduce_scatter.weft")),
        (Collective::Broadcast, "push", include_str!("../../examples/broadcast.weft")),
    ];
    for (collective, name, text) in kernels {
        let mut bench = Bench::new(collective, SIZES.to_vec());
        bench.contenders = vec![contender(name, text)?];
        (bench.check, bench.graph, bench.dtype) = (true, true, DType::BF16);
        let report = measure(world, &bench)?;
        same!(report.rows.len(), SIZES.len(), "rows of {name}");
        report.rows.iter().try_for_each(good)?;
    }
    Ok(())
}

fn contender(name: &str, text: &str) -> Result<Contender, String> {
    Ok(Contender::Own(Box::leak(Box::new(Own::new(name, text)?))))
}

/// A kernel that ignores the data of all other PEs.
const FORGETS: &str = "kernel forgets<T: dtype, N: int>(
    x: symm<T, (N):(1)>, out: global<T, (N):(1)>, sync: barrier, team: team) block(128) {
    let from = partition(x, threads());
    let to = partition(out, threads());
    barrier(sync, team, acq_rel, sys);
    for i in 0..size<1>(from) { to[_, i] = from[_, i]; }
    barrier(sync, team, acq_rel, sys);
}";

fn wrong(world: &World) -> Checked {
    for graph in [false, true] {
        let mut bench = Bench::new(Collective::AllReduce, vec![4000]);
        bench.contenders = vec![contender("forgets", FORGETS)?];
        (bench.graph, bench.check) = (graph, true);
        let report = measure(world, &bench)?;
        let found = report.rows[0].wrong.unwrap_or_default();
        let first = report.rows[0].first_wrong.as_ref().ok_or("nothing was found")?;
        // Some sums are right by chance, if all other PEs have 0.
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

/// Checks that all PEs report the error and can continue.
fn too_large(world: &World) -> Checked {
    for bytes in [200 << 30, 1 << 60] {
        let bench = Bench::new(Collective::AllReduce, vec![1024, bytes]);
        let e = run(world, &bench, &mut |_, _| Ok(())).err().ok_or("it was measured")?.to_string();
        ensure!(e.contains("R0302") && e.contains("bytes"), "{e}");
    }
    let report = measure(world, &Bench::new(Collective::AllReduce, vec![1024]))?;
    ensure!(!report.rows.is_empty(), "no rows after that");
    Ok(())
}

/// PE 1 is killed between two sizes.
fn dies(world: &World) -> Checked {
    let mut bench = Bench::new(Collective::AllReduce, vec![1 << 10, 1 << 20, 1 << 24]);
    bench.contenders.push(Contender::Nvshmem);
    let mut told = 0;
    let outcome = run(world, &bench, &mut |_, rows| {
        told += rows.len();
        if world.my_pe() == 1 && told > 3 {
            // It prints no message.
            Command::new("kill").args(["-9", &std::process::id().to_string()]).status()?;
        }
        Ok(())
    });
    Ok(outcome.map(drop)?)
}

fn dies_judged(o: &crate::check::Outcome) -> Result<(), String> {
    match o.code != Some(0) && o.err.contains("PE 1") && o.seconds < 40.0 {
        true => Ok(()),
        false => Err(format!("the others were to hear of PE 1's death and end; it took {:.1} s", o.seconds)),
    }
}

/// The path of the command: beside this test if both were copied to another machine, and otherwise
/// in cargo's folder.
pub fn weft() -> Result<PathBuf, Failed> {
    let beside = std::env::current_exe().map_err(|e| e.to_string())?.with_file_name("weft");
    let built = PathBuf::from(env!("CARGO_BIN_EXE_weft"));
    [beside, built].into_iter().find(|p| p.is_file()).ok_or_else(|| "no `weft` beside this test".into())
}

/// Tests the path from the command line to the table and its files.
pub fn command(pes: u32) -> Result<(), Failed> {
    let folder = tempfile::tempdir().map_err(|e| e.to_string())?;
    let file = folder.path().join("kernel.weft");
    for operation in ["allreduce", "allgather", "reducescatter", "broadcast", "alltoall", "put"] {
        let [json, csv, plot] =
            ["json", "csv", "svg"].map(|kind| folder.path().join(format!("{operation}.{kind}")));
        let mut command = Command::new(weft()?);
        command.args(["bench", operation, "--sizes", "1K:1M:x32", "--check", "--graph", "--wide"]);
        command.args(["--iters", "5", "--repeats", "3"]);
        command.args(["--against", "nvshmem", "--pes", &pes.to_string(), "--no-calibration"]);
        command.arg("--json").arg(&json).arg("--csv").arg(&csv).arg("--plot").arg(&plot);
        let outcome = finish(&mut command, &format!("weft bench {operation}"))?;
        let judged = (|| -> Checked {
            same!(outcome.code, Some(0), "status");
            let report: Report = serde_json::from_str(&std::fs::read_to_string(&json)?)?;
            same!((report.n_pes, report.graph), (pes, true), "PEs, graph");
            same!(report.command.get(2).map(String::as_str), Some(operation), "command");
            report.rows.iter().try_for_each(good)?;
            let sizes: std::collections::BTreeSet<_> = report.rows.iter().map(|r| r.size).collect();
            same!(sizes.len(), 3, "sizes");
            same!(std::fs::read_to_string(&csv)?.lines().count(), 1 + report.rows.len(), "lines of the CSV");
            ensure!(std::fs::read_to_string(&plot)?.contains("nvshmem"), "the plot has no nvshmem");
            // Both placements of a contender share a line of the table.
            let lines: std::collections::BTreeSet<_> =
                report.rows.iter().map(|r| (r.size, &r.algorithm)).collect();
            let told = outcome.out.lines().filter(|l| l.starts_with("   ")).count();
            same!(told, lines.len(), "lines of the table");
            Ok(())
        })();
        judged.map_err(|why| outcome.told(&why.to_string()))?;
    }
    wrong_results(pes, &file)
}

/// Checks that nothing runs without multicast, with the reason, and that every result is right with
/// it.
pub fn verify_switch(pes: u32) -> Result<(), Failed> {
    let folder = tempfile::tempdir().map_err(|e| e.to_string())?;
    let file = folder.path().join("switch.json");
    let mut command = Command::new(weft()?);
    command.args(["bench", "verify-switch", "--sizes", "4K", "--dtype", "bf16", "--iters", "2"]);
    command.args(["--repeats", "2", "--pes", &pes.to_string(), "--json"]).arg(&file);
    let outcome = finish(&mut command, "weft bench verify-switch")?;
    let judged = (|| -> Checked {
        if outcome.code == Some(3) {
            ensure!(outcome.out.starts_with("multicast is not available, so nothing was run: "), "no reason");
            ensure!(!file.exists(), "a report of nothing");
            return Ok(());
        }
        same!(outcome.code, Some(0), "status");
        let all: Verification = serde_json::from_str(&std::fs::read_to_string(&file)?)?;
        ensure!(all.pairs.iter().any(|p| p.native.is_some() && p.unicast.is_some()), "no pair");
        same!(all.wrong().count(), 0, "wrong");
        Ok(())
    })();
    judged.map_err(|why| outcome.told(&why.to_string()).into())
}

/// Checks that the command fails if a check finds something, and prints it.
fn wrong_results(pes: u32, file: &std::path::Path) -> Result<(), Failed> {
    if pes < 2 {
        return Ok(());
    }
    std::fs::write(file, FORGETS).map_err(|e| e.to_string())?;
    let mut command = Command::new(weft()?);
    command.args(["bench", "allreduce", "--algo", "none", "--sizes", "4000", "--check", "--no-calibration"]);
    command.args(["--pes", &pes.to_string(), "--kernel"]).arg(file);
    let outcome = finish(&mut command, "weft bench with a kernel that forgets")?;
    let judged = (|| -> Checked {
        same!(outcome.code, Some(1), "status");
        ensure!(outcome.err.contains("elements are wrong; first: PE 0, element"), "no first wrong element");
        ensure!(outcome.err.contains("expected"), "no expected value");
        Ok(())
    })();
    judged.map_err(|why| outcome.told(&why.to_string()).into())
}
