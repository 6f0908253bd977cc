//! The command `weft sim`.

use super::Limits;
use super::progress::Spinner;
use super::run::{dims, grid};
use super::verbosity::quiet;
use anyhow::{Result, bail};
use clap::Args;
use std::path::PathBuf;
use std::process::ExitCode;
use weft::sim::{Check, Stats, TraceConfig, visible};
use weft_check::report_ptx;
use weft_run::ptx::{Argument, PtxFile, PtxLaunch, PtxOutcome};

/// The exit status is 0 if the kernel ran without findings, 1 if there were findings or the kernel
/// failed, and 2 if it cannot be run.
#[derive(Args)]
pub struct Sim {
    /// The PTX file.
    file: PathBuf,
    /// The number of CTAs on each PE: 8 or 4,2,1
    #[arg(long, value_name = "X[,Y[,Z]]")]
    grid: Option<String>,
    #[command(flatten)]
    ptx: PtxArgs,
    /// An argument, in the order of the kernel's parameters: npy:x.npy (the address of its data),
    /// npy:y.npy=out.npy (also written back), zeros:f32[4,1000]=out.npy, empty:4096 (not
    /// initialised), sym:npy:x.npy (on the symmetric heap), map:128x64/128:npy:x.npy (a tensor map,
    /// with its box and the bytes of its swizzle), i32:1024, f32:1.5, u64:0, bf16:1, bytes:00ff (a
    /// structure), peers:N (a table of the addresses of argument N on all PEs), mc:N (its multicast
    /// address), peer:N+1 (its address on the next PE), pe, npes. With several PEs, a file has a
    /// leading PE dimension, or there is one file for each PE: npy:x_{pe}.npy
    #[arg(long, value_name = "FORM:VALUE", verbatim_doc_comment)]
    arg: Vec<String>,
    #[command(flatten)]
    limits: Limits,
    /// The number of PEs, each of which runs the grid.
    #[arg(long, default_value = "1", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pes: u32,
    /// The seed of the schedule.
    #[arg(long, default_value = "0")]
    seed: u64,
    /// The number of launches, back to back.
    #[arg(long, default_value = "1", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    launches: u32,
    /// Look for data races and for reads of memory that has not been written.
    #[arg(long)]
    check: bool,
    /// Write a timeline as Chrome trace events for Perfetto.
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Count instructions and the bytes between PEs.
    #[arg(long)]
    stats: bool,
}

/// A launch of PTX, for `weft sim` and `weft check`.
#[derive(Args)]
pub(super) struct PtxArgs {
    /// For PTX: the kernel, if the file has several.
    #[arg(long)]
    entry: Option<String>,
    /// For PTX: the threads of a CTA, if `.reqntid` does not state them: 128 or 32,4
    #[arg(long, value_name = "X[,Y[,Z]]")]
    block: Option<String>,
    /// For PTX: the CTAs of a cluster.
    #[arg(long, value_name = "X[,Y[,Z]]")]
    cluster: Option<String>,
    /// For PTX: the bytes of dynamic shared memory.
    #[arg(long, value_name = "BYTES")]
    smem: Option<u32>,
}

impl PtxArgs {
    /// The launch that they describe, with these arguments.
    pub(super) fn launch(&self, grid_text: Option<&str>, args: &[String]) -> Result<PtxLaunch> {
        let mut launch = PtxLaunch::new();
        launch.entry.clone_from(&self.entry);
        launch.grid = grid_text.map(|g| grid("--grid", g)).transpose()?.unwrap_or([1; 3]);
        launch.block = self.block.as_deref().map(|g| grid("--block", g)).transpose()?;
        launch.cluster = self.cluster.as_deref().map(|g| grid("--cluster", g)).transpose()?.unwrap_or([1; 3]);
        launch.dynamic_shared = self.smem.unwrap_or(0);
        let all = args.iter().map(|a| a.parse::<Argument>().map_err(anyhow::Error::msg));
        launch.args = all.collect::<Result<_>>()?;
        Ok(launch)
    }

    /// Rejects these options for a kernel file, which states the values itself.
    pub(super) fn refuse(&self) -> Result<()> {
        let given = [
            ("--entry", self.entry.is_some()),
            ("--block", self.block.is_some()),
            ("--cluster", self.cluster.is_some()),
            ("--smem", self.smem.is_some()),
        ];
        match given.iter().find(|(_, given)| *given) {
            Some((option, _)) => bail!("{option} works only with PTX files"),
            None => Ok(()),
        }
    }
}

impl Sim {
    pub fn run(&self) -> ExitCode {
        match self.outcome() {
            Ok(true) => ExitCode::SUCCESS,
            Ok(false) => ExitCode::FAILURE,
            Err(e) => {
                super::report(&e);
                ExitCode::from(2)
            }
        }
    }

    /// Runs the kernel. Returns whether nothing is wrong.
    fn outcome(&self) -> Result<bool> {
        let file = PtxFile::read(&self.file)?;
        let mut launch = self.ptx.launch(self.grid.as_deref(), &self.arg)?;
        launch.pes = self.pes as usize;
        launch.seed = self.seed;
        launch.launches = self.launches;
        (launch.step_limit, launch.time_limit) = (self.limits.max_steps, self.limits.time()?);
        launch.check = self.check.then(Check::default);
        launch.trace = self.trace.is_some().then(TraceConfig::default);
        let simulating = Spinner::new(&format!("simulating {} PEs", launch.pes));
        let ran = file.run_and_write(&launch);
        drop(simulating);
        let (outcome, written) = ran?;
        let mut out = visible(&outcome.printed).into_owned();
        if !out.is_empty() && !out.ends_with('\n') {
            out.push('\n');
        }
        let summary = self.summary(&file, &launch, &outcome, &written)?;
        if let Some(path) = &self.trace {
            super::write_trace(path, &outcome.trace)?;
        }
        let report = report_ptx(&file, &launch, outcome)?;
        if !(quiet() && report.is_clean()) {
            out.push_str(&summary);
            out.push_str(&report.findings_text(super::color(&std::io::stdout())));
        }
        super::write_out(None, out.as_bytes())?;
        Ok(report.is_clean())
    }

    fn summary(
        &self,
        file: &PtxFile,
        launch: &PtxLaunch,
        outcome: &PtxOutcome,
        written: &[String],
    ) -> Result<String> {
        let mut out = String::new();
        let mut line = |name: &str, text: String| out.push_str(&format!("{name:<13}{text}\n"));
        let kernel = file.kernel(launch.entry.as_deref())?;
        let (major, minor) = file.module().version();
        line("kernel", format!("{} for {}, PTX {major}.{minor}", kernel.name, file.module().target()));
        let block = launch.block.or(kernel.reqntid).unwrap_or([1; 3]);
        let pes = if launch.pes == 1 { "1 PE".to_owned() } else { format!("{} PEs", launch.pes) };
        let shared = u64::from(kernel.shared_bytes) + u64::from(launch.dynamic_shared);
        let (grid, block) = (dims(launch.grid), dims(block));
        line(
            "ran on",
            format!("simulator, {pes}, grid {grid}, block {block}, {shared} bytes of shared memory"),
        );
        for (argument, p) in launch.args.iter().zip(&kernel.params) {
            line("argument", format!("{}: {argument}", p.name));
        }
        let seconds = outcome.time.as_secs_f64();
        match &outcome.ended {
            Ok(stats) => {
                let count =
                    |n: u64| if n < 10_000 { n.to_string() } else { format!("{:.1} k", n as f64 / 1e3) };
                let (warps, lanes) = (count(stats.warp_instructions), count(stats.lane_instructions));
                line(
                    "executed",
                    format!("{warps} warp instructions, {lanes} lane instructions, {seconds:.3} s"),
                );
                if self.stats {
                    self.stats(stats, launch.pes, &mut line);
                }
            }
            Err(_) => line("executed", format!("stopped before the end, {seconds:.3} s")),
        }
        written.iter().for_each(|w| line("wrote", w.clone()));
        Ok(out)
    }

    fn stats(&self, stats: &Stats, pes: usize, line: &mut dyn FnMut(&str, String)) {
        for c in &stats.opcodes {
            line("instruction", format!("{} x {} ({} lanes)", c.warps, c.mnemonic, c.lanes));
        }
        line("barriers", format!("{} of CTAs completed", stats.barriers));
        for from in 0..pes {
            for to in 0..pes {
                let bytes = stats.link(pes, from, to);
                if bytes > 0 {
                    line(
                        "link",
                        format!("{bytes} bytes from PE {from} to PE {to} with loads, stores and atomics"),
                    );
                }
                let bytes = stats.nvshmem.links.get(from * pes + to).copied().unwrap_or(0);
                if bytes > 0 {
                    line("link", format!("{bytes} bytes from PE {from} to PE {to} with NVSHMEM functions"));
                }
            }
        }
        for m in &stats.multicast {
            line(
                "multicast",
                format!("team {:?}: {} bytes ld_reduce, {} st, {} red", m.team, m.ld_reduce, m.st, m.red),
            );
        }
        for (name, n) in &stats.nvshmem.calls {
            line("call", format!("{n} x {name}"));
        }
    }
}
