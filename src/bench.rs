//! The command `weft bench`.

use super::LoweringArg;
use super::progress::Bar;
use super::run::gpus;
use anyhow::{Context, Result, anyhow, bail};
use clap::{Args, ValueEnum};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use weft::collective::{Algorithm, Collective, Request, Sums};
use weft::runtime::job::{ProcessRank, Started, start};
use weft::runtime::{Config, DType, Reduce, World, visible_line};
use weft_bench::{
    Bench, Calibration, Contender, Counting, Links, MAX_SIMULATED_BYTES, OPS, Operation, Own, Report,
    Timeline, count_all, parse_sizes, run, table, timeline,
};

mod from;
pub(super) mod output;
pub(crate) mod timing;
mod verify;

use output::{Sink, Table, writable_all};

/// The name of the benchmark that is not an operation of its own.
const VERIFY_SWITCH: &str = "verify-switch";

/// The place where the PEs run.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum On {
    /// On GPUs, with one process for each.
    Gpu,
    /// On the simulator.
    Sim,
}

#[derive(Args)]
pub struct BenchCommand {
    /// The operation: allreduce, allgather, reducescatter, broadcast, alltoall, put, get, signal or
    /// barrier. verify-switch runs all of warpweft's collectives with and without the switch on a
    /// machine with multicast, and compares them with each other and with the model.
    operation: String,
    /// Where the PEs run. On the simulator, the command counts the bytes and instructions of
    /// collectives, and measures no time. It prints the time that the model predicts. The lines of
    /// `auto` have the algorithm that the model chooses, with the switch and without.
    #[arg(long, value_enum, default_value = "gpu")]
    on: On,
    /// The number of PEs. The default is all GPUs of this host.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pes: Option<u32>,
    /// The size of the larger buffer of a PE in bytes: 64K, a list 1K,4K, or a range 1K:64M:x4 or
    /// 1M:8M:+1M
    #[arg(long, default_value = "1K:64M:x4")]
    sizes: String,
    /// The element type.
    #[arg(long, default_value = "f32")]
    dtype: String,
    /// The algorithms of warpweft: all, none, or a list of names. `auto` is the algorithm that a
    /// call uses if it names none.
    #[arg(long, default_value = "all", value_name = "all|none|NAME,...")]
    algo: String,
    /// The reduction: sum, min or max.
    #[arg(long, default_value = "sum")]
    op: String,
    /// How `auto` may compute sums: deterministic (the same bits for every launch, plan and split),
    /// ordinary, or quantised (elements can be sent in 8 bits).
    #[arg(long, default_value = "ordinary", value_parser = Sums::parse)]
    sums: Sums,
    /// The number of back-to-back calls in a timed block. Long calls get fewer.
    #[arg(long, default_value = "20", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    iters: u32,
    /// The number of calls before the first block.
    #[arg(long, default_value = "5", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    warmup: u32,
    /// The number of timed blocks.
    #[arg(long, default_value = "10", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    repeats: u32,
    /// The number of CTAs of warpweft's kernels. The default depends on the size.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    ctas: Option<u32>,
    /// The threads per CTA of warpweft's collectives. The default depends on the size.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: Option<u32>,
    /// The number of steps that a thread of warpweft's collectives has in flight. The default
    /// depends on the size.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=64))]
    unroll: Option<u32>,
    /// How in-switch operations of warpweft's kernels are compiled.
    #[arg(long, value_enum, default_value = "auto")]
    lowering: LoweringArg,
    /// Capture a block into a CUDA graph and replay it.
    #[arg(long)]
    graph: bool,
    /// Compare results with a reference, and fail if they differ.
    #[arg(long)]
    check: bool,
    /// The peers to measure in the same run: nccl, nccl-symm (with registered windows), nvshmem,
    /// nvshmem-stream, torch (the fastest function of PyTorch's symmetric memory), torch-one-shot,
    /// torch-two-shot, torch-multimem, flashinfer (its allreduce, from TensorRT-LLM), vllm (its
    /// allreduce, as FlashInfer packs it).
    #[arg(long, value_name = "PEER,...")]
    against: Option<String>,
    /// A kernel file of your own to measure as this collective. It has one kernel with the
    /// parameters x, optionally out, a barrier and a team, and with the compile-time parameters T
    /// and N (like examples/allreduce_two_shot.weft).
    #[arg(long, value_name = "FILE")]
    kernel: Vec<PathBuf>,
    /// Record where an allreduce with `ll` spends its time, for sizes of one packet for each
    /// thread: a table of the times, in nanoseconds, at which the PEs reach points of the kernel.
    #[arg(long, conflicts_with_all = ["on", "against", "kernel", "check", "json", "csv", "markdown", "plot", "algo"])]
    timeline: bool,
    /// Skip the calibration of the machine.
    #[arg(long)]
    no_calibration: bool,
    /// Also show minimum, maximum and cold times in the table.
    #[arg(long)]
    wide: bool,
    /// On the simulator: a report of `weft bench --json`, which supplies measured link times and
    /// results to compare with.
    #[arg(long, value_name = "FILE")]
    measured: Option<PathBuf>,
    /// Do not measure. Print, plot and write an existing report of `--json` instead. Several
    /// reports of one operation and machine are combined. --algo and --against select rows.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["on", "kernel", "measured", "check", "graph"])]
    from: Vec<PathBuf>,
    /// The file for all measurements as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// The file for all measurements as CSV, with a line for each row.
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// The file for a Markdown table of times, with a column for each contender.
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// The file for an SVG plot of times and bandwidths against sizes.
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
}

/// Runs a measurement on one PE of a job, and returns whether its results are correct.
pub(super) fn measured(
    place: &ProcessRank,
    measure: impl FnOnce(&World) -> Result<bool>,
) -> Result<ExitCode> {
    // The comparison of collective calls would be included in NVSHMEM's times.
    let world = World::join(place, &Config::default().checks(Some(false)))?;
    let mut passed = true;
    let status = world.run(|world| -> Result<(), String> {
        passed = measure(world).map_err(|e| super::message(&e))?;
        Ok(())
    });
    Ok(if passed { status } else { ExitCode::FAILURE })
}

impl BenchCommand {
    pub fn run(&self) -> Result<ExitCode> {
        if !self.from.is_empty() {
            return from::run(self);
        }
        if self.operation == VERIFY_SWITCH {
            return verify::run(self);
        }
        let bench = self.bench()?;
        if self.on == On::Sim {
            return self.count(&bench);
        }
        if self.measured.is_some() {
            bail!("--measured needs --on sim");
        }
        // Errors that hold for any number of PEs, and files that cannot be written, are reported
        // before GPUs are looked for.
        bench.counts(self.pes.unwrap_or(1))?;
        writable_all([&self.json, &self.csv, &self.markdown, &self.plot])?;
        let pes = gpus(self.pes)?;
        bench.counts(pes)?;
        match start(pes)? {
            Started::Done(code) => Ok(code),
            Started::Pe(place) if self.timeline => measured(&place, |world| self.timelines(&bench, world)),
            Started::Pe(place) => self.measure(&bench, &place),
        }
    }

    /// The requested benchmark.
    fn bench(&self) -> Result<Bench> {
        let operation = Operation::parse(&self.operation).map_err(|e| anyhow!(e))?;
        let sizes = parse_sizes(&self.sizes).map_err(|e| anyhow!("--sizes {}: {e}", self.sizes))?;
        let mut bench = Bench::new(operation, sizes);
        bench.dtype = dtype(&self.dtype)?;
        bench.op = op(&self.op)?;
        bench.sums = self.sums;
        bench.contenders = match &*self.algo {
            "none" => Vec::new(),
            names => Contender::algorithms(operation, names).map_err(|e| anyhow!("--algo {names}: {e}"))?,
        };
        // `all` means the algorithms that support the request. If none does and there are no peers,
        // the benchmark says why.
        let able = |c: &Contender| c.can(operation, bench.dtype, bench.op).is_ok();
        if self.algo == "all" && (self.against.is_some() || bench.contenders.iter().any(able)) {
            bench.contenders.retain(able);
        }
        if let Some(names) = &self.against {
            let peers = Contender::peers(names).map_err(|e| anyhow!("--against {names}: {e}"))?;
            bench.contenders.extend(peers);
        }
        for file in &self.kernel {
            let text = weft::library::read_text(file).map_err(|e| anyhow!(e))?;
            let name = file.file_stem().map_or_else(String::new, |n| n.to_string_lossy().into_owned());
            // The kernel lives as long as the command runs.
            let own = Own::new(&name, &text).map_err(|e| anyhow!("--kernel {}: {e}", file.display()))?;
            bench.contenders.push(Contender::Own(Box::leak(Box::new(own))));
        }
        if bench.contenders.is_empty() {
            bail!("there is nothing to measure: choose an algorithm of {operation} or a peer with --against");
        }
        (bench.iters, bench.warmup, bench.repeats) = (self.iters, self.warmup, self.repeats);
        (bench.ctas, bench.graph, bench.check) = (self.ctas, self.graph, self.check);
        (bench.threads, bench.unroll) = (self.threads, self.unroll);
        (bench.lowering, bench.calibrate) = (self.lowering.into(), !self.no_calibration);
        Ok(bench)
    }

    /// Counts the traffic of a collective on the simulator.
    fn count(&self, bench: &Bench) -> Result<ExitCode> {
        let Operation::Collective(collective) = bench.operation else {
            bail!(
                "only collectives can be counted on the simulator, and {} is not a collective",
                bench.operation
            )
        };
        let is_other = |c: &&Contender| !matches!(c, Contender::Ours(_) | Contender::Auto);
        if let Some(other) = bench.contenders.iter().find(is_other) {
            let names: Vec<_> = Algorithm::of(collective).map(|a| a.name).collect();
            bail!(
                "`{}` cannot be counted on the simulator, which counts warpweft's own algorithms\n  help: \
                 use `--algo all`, `--algo auto`, or some of {}",
                other.name(),
                names.join(", ")
            );
        }
        let measured = self.measured.as_deref().map(report).transpose()?;
        let links = measured.as_ref().and_then(|r| r.calibration.as_ref());
        let links = links.map_or(Links::H200, Calibration::links);
        let pes = self.pes.or(measured.as_ref().map(|r| r.n_pes)).unwrap_or(8);
        let bar = Bar::new("counts");
        let progress = |done: usize, total: usize| bar.at(done as u64, total as u64, String::new());
        let algorithms = bench.contenders.iter().filter_map(|c| match c {
            Contender::Ours(algorithm) => Some(*algorithm),
            _ => None,
        });
        let counting = Counting {
            like: Request { op: bench.op, sums: bench.sums, ..Request::new(collective, bench.dtype, 1, pes) },
            sizes: &bench.sizes,
            algorithms: algorithms.collect(),
            auto: bench.contenders.contains(&Contender::Auto).then_some(&links),
        };
        let counted = count_all(&counting, &progress);
        bar.clear();
        let (all, left_out) = counted?;
        let redop = if collective.reduces() { format!(" {}", self.op) } else { String::new() };
        let mut text = format!(
            "# weft bench {collective}: {pes} simulated PEs, {}{redop}; bytes are those of the busiest PE, lanes are the sum of all PEs; counted up to {MAX_SIMULATED_BYTES} bytes, extrapolated above\n",
            bench.dtype
        );
        text.push_str(&table(&all, &links, measured.as_ref()));
        for why in &left_out {
            text.push_str(&format!("# left out: {why}\n"));
        }
        super::write_out(None, text.as_bytes())?;
        if let Some(file) = &self.json {
            super::write_out(Some(file), (serde_json::to_string_pretty(&all)? + "\n").as_bytes())?;
        }
        Ok(if all.is_empty() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }

    /// Records the timelines of all sizes, which PE 0 prints.
    fn timelines(&self, bench: &Bench, world: &World) -> Result<bool> {
        if bench.operation != Operation::Collective(Collective::AllReduce) {
            bail!("--timeline works with allreduce, not with {}", bench.operation);
        }
        let mut text = Timeline::head();
        for bytes in &bench.sizes {
            match timeline(world, *bytes, self.ctas, self.threads) {
                Ok(found) => text.push_str(&found.lines()),
                Err(weft_bench::BenchError::Request(why)) => text.push_str(&format!("# left out: {why}\n")),
                Err(other) => return Err(other.into()),
            }
        }
        if world.my_pe() == 0 {
            super::write_out(None, text.as_bytes())?;
        }
        Ok(true)
    }

    /// Measures as one PE of a job. PE 0 reports.
    fn measure(&self, bench: &Bench, place: &ProcessRank) -> Result<ExitCode> {
        measured(place, |world| Ok(self.report(bench, world)?.first_wrong().is_none()))
    }

    /// Measures. PE 0 prints the table as it grows, and writes files.
    fn report(&self, bench: &Bench, world: &World) -> Result<Report> {
        let total = bench.counts(world.n_pes())?.len() * bench.contenders.len();
        let mut table = Table::new(world, total);
        let outcome = run(world, bench, &mut |report, rows| {
            table.add(|| report.head(self.wide), || Report::line(rows, self.wide))
        });
        table.end(&outcome.as_ref().map_or(String::new(), Report::foot))?;
        let mut report = outcome?;
        report.command = std::env::args().collect();
        table.write(&self.files(&report), report.first_wrong())?;
        Ok(report)
    }

    /// The requested files of a report, with their contents.
    fn files<'a>(&'a self, report: &'a Report) -> [Sink<'a>; 4] {
        [
            (&self.plot, Box::new(|| Ok(report.plot()?))),
            (&self.json, Box::new(|| Ok(report.json()?))),
            (&self.csv, Box::new(|| Ok(report.csv()))),
            (&self.markdown, Box::new(|| Ok(report.markdown()))),
        ]
    }
}

/// Parses a number type.
pub(super) fn dtype(name: &str) -> Result<DType> {
    let types = || DType::ALL.iter().filter(|d| **d != DType::Bool).map(|d| d.name());
    DType::parse(name)
        .filter(|d| *d != DType::Bool)
        .with_context(|| format!("--dtype {name}: expected one of {}", list(types())))
}

/// Parses the name of a reduction.
pub(super) fn op(name: &str) -> Result<Reduce> {
    let found = OPS.into_iter().find(|op| op.name() == name);
    found.with_context(|| format!("--op {name}: expected one of {}", list(OPS.map(|op| op.name()))))
}

/// Reads a report that was written as JSON.
fn report(file: &Path) -> Result<Report> {
    let text = weft::library::read_text_of(file, REPORT_BYTES, "report").map_err(|e| anyhow!(e))?;
    let no_report = || format!("{} is not a report of weft bench --json", file.display());
    let mut json: serde_json::Value = serde_json::from_str(&text).with_context(no_report)?;
    show_controls(&mut json);
    serde_json::from_value(json).with_context(no_report)
}

/// The largest size of a report in bytes.
const REPORT_BYTES: u64 = 64 << 20;

/// Makes control characters visible in all texts of a report, since these are written to terminals,
/// SVG, CSV and Markdown.
fn show_controls(json: &mut serde_json::Value) {
    match json {
        serde_json::Value::String(text) => *text = visible_line(text).into_owned(),
        serde_json::Value::Array(all) => all.iter_mut().for_each(show_controls),
        serde_json::Value::Object(all) => all.values_mut().for_each(show_controls),
        _ => {}
    }
}

pub(super) fn list<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    names.into_iter().collect::<Vec<_>>().join(", ")
}
