//! `weft bench`

use super::LoweringArg;
use super::run::gpus;
use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use std::fs::{OpenOptions, remove_file};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use weft::bench::{Bench, Collective, Contender, OPS, Report, parse_sizes, run};
use weft::runtime::job::{Place, Started, start};
use weft::runtime::{Config, DType, World};

#[derive(Args)]
pub struct BenchCommand {
    /// allreduce, allgather, reducescatter or broadcast.
    collective: String,
    /// PEs: all GPUs of this host if not given.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pes: Option<u32>,
    /// Bytes of the larger side of a PE: 64K, a list 1K,4K, 1K:64M:x4 or 1M:8M:+1M
    #[arg(long, default_value = "1K:64M:x4")]
    sizes: String,
    /// Element type.
    #[arg(long, default_value = "f32")]
    dtype: String,
    /// Algorithms: all, or names with commas between.
    #[arg(long, default_value = "all", value_name = "all|NAME,...")]
    algo: String,
    /// Reduction: sum, min or max.
    #[arg(long, default_value = "sum")]
    op: String,
    /// Calls back to back in a block that is timed.
    #[arg(long, default_value = "20", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    iters: u32,
    /// Calls before the first block.
    #[arg(long, default_value = "5", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    warmup: u32,
    /// Blocks.
    #[arg(long, default_value = "10", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    repeats: u32,
    /// CTAs of our kernels, if not by the size.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    ctas: Option<u32>,
    /// How our kernels carry in-switch operations out.
    #[arg(long, value_enum, default_value = "auto")]
    lowering: LoweringArg,
    /// Capture a block into a CUDA graph and replay it.
    #[arg(long)]
    graph: bool,
    /// Compare results with a reference, and fail where they differ.
    #[arg(long)]
    check: bool,
    /// Peers to measure in the same run: nvshmem.
    #[arg(long, value_name = "PEER,...")]
    against: Option<String>,
    /// Where all that was measured goes, as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Where all that was measured goes, a line for each row.
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
}

impl BenchCommand {
    pub fn run(&self) -> Result<ExitCode> {
        let bench = self.bench()?;
        // What is wrong with any number of PEs, and what cannot be written, is said before GPUs are looked at.
        bench.counts(self.pes.unwrap_or(1))?;
        if Place::detect()?.is_none_or(|place| place.rank == 0) {
            [&self.json, &self.csv].into_iter().flatten().try_for_each(|file| writable(file))?;
        }
        let pes = gpus(self.pes)?;
        bench.counts(pes)?;
        match start(pes)? {
            Started::Done(code) => Ok(code),
            Started::Pe(place) => self.measure(&bench, &place),
        }
    }

    /// What is asked for.
    fn bench(&self) -> Result<Bench> {
        let name = &self.collective;
        let collective = Collective::parse(name).with_context(|| {
            format!("`{name}` is no collective: expected {}", list(Collective::ALL.map(Collective::name)))
        })?;
        let sizes = parse_sizes(&self.sizes).map_err(|e| anyhow!("--sizes {}: {e}", self.sizes))?;
        let mut bench = Bench::new(collective, sizes);
        let types = || DType::ALL.iter().filter(|d| **d != DType::Bool).map(|d| d.name());
        bench.dtype = DType::parse(&self.dtype)
            .filter(|d| *d != DType::Bool)
            .with_context(|| format!("--dtype {}: expected one of {}", self.dtype, list(types())))?;
        bench.op = OPS.into_iter().find(|op| op.name() == self.op).with_context(|| {
            format!("--op {}: expected one of {}", self.op, list(OPS.map(|op| op.name())))
        })?;
        bench.contenders = Contender::algorithms(collective, &self.algo)
            .map_err(|e| anyhow!("--algo {}: {e}", self.algo))?;
        if let Some(names) = &self.against {
            let peers = Contender::peers(names).map_err(|e| anyhow!("--against {names}: {e}"))?;
            if self.algo == "all" {
                // Those there are, beside peers that have more.
                bench.contenders.retain(|c| c.can(collective, bench.dtype, bench.op).is_ok());
            }
            bench.contenders.extend(peers);
        }
        (bench.iters, bench.warmup, bench.repeats) = (self.iters, self.warmup, self.repeats);
        (bench.ctas, bench.graph, bench.check) = (self.ctas, self.graph, self.check);
        bench.lowering = self.lowering.into();
        Ok(bench)
    }

    /// One PE of a job. PE 0 reports.
    fn measure(&self, bench: &Bench, place: &Place) -> Result<ExitCode> {
        // Comparing collectives among PEs before they are made would be in NVSHMEM's times.
        let world = World::join(place, &Config { checks: Some(false), ..Config::default() })?;
        let mut passed = true;
        let status = world.run(|world| -> Result<(), String> {
            let report = self.report(bench, world).map_err(|e| super::message(&e))?;
            passed = report.first_wrong().is_none();
            Ok(())
        });
        Ok(if passed { status } else { ExitCode::FAILURE })
    }

    /// Measures; PE 0 prints the table as it grows, and writes files.
    fn report(&self, bench: &Bench, world: &World) -> Result<Report> {
        let reports = world.my_pe() == 0;
        let print = |text: String| std::io::stdout().lock().write_all(text.as_bytes());
        let mut head = true;
        let report = run(world, bench, &mut |report, rows| match reports {
            true if std::mem::take(&mut head) => print(report.head() + &Report::line(rows)),
            true => print(Report::line(rows)),
            false => Ok(()),
        })?;
        if reports {
            if let Some(file) = &self.json {
                super::write_out(Some(file), report.json()?.as_bytes())?;
            }
            if let Some(file) = &self.csv {
                super::write_out(Some(file), report.csv().as_bytes())?;
            }
            if let Some(wrong) = report.first_wrong() {
                eprintln!("error: {wrong}");
            }
        }
        Ok(report)
    }
}

/// Whether a file can be written; leaves it as it is.
fn writable(file: &Path) -> Result<()> {
    let is_new = !file.exists();
    let opened = OpenOptions::new().append(true).create(true).open(file);
    drop(opened.with_context(|| format!("cannot write {}", file.display()))?);
    if is_new && let Err(e) = remove_file(file) {
        bail!("cannot write {}: {e}", file.display());
    }
    Ok(())
}

fn list<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    names.into_iter().collect::<Vec<_>>().join(", ")
}
