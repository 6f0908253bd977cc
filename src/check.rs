//! The command `weft check`.

use super::progress::Bar;
use super::run::{Expected, grid};
use super::sim::PtxArgs;
use super::{CompileArgs, KernelPath, Limits, args, numbered, stages, verbosity};
use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use weft::CompileError;
use weft::lang::render::Color;
use weft_check::{CheckOptions, Progress, Report, check_file_with, check_ptx, check_sequence};
use weft_check::{uncompiled_json, uncompiled_sarif};
use weft_run::RunError;
use weft_run::ptx::PtxFile;

/// The exit status is 0 if nothing is found, 1 if something is found, and 2 if the kernel cannot be
/// run.
#[derive(Args)]
pub struct Check {
    #[command(flatten)]
    compile: CompileArgs,
    /// Kernels to launch after the first one, in this order. Tensors and parameters of equal names
    /// are shared.
    #[arg(value_name = "FILE:KERNEL")]
    then: Vec<KernelPath>,
    #[command(flatten)]
    limits: Limits,
    /// The numbers of PEs: --pes 2,4,8
    #[arg(long, value_delimiter = ',', default_value = "2,8", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pes: Vec<u32>,
    /// The numbers of PEs in a node, for kernels whose transfers use direct loads and stores within
    /// a node and NVSHMEM calls between nodes (--transport auto): --node 1,4. The default is a node
    /// for each PE, two nodes, and one node.
    #[arg(long, value_name = "PES", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=4096))]
    node: Vec<u32>,
    /// The number of schedules of each case. The default is 20, or 1 with --seed.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    seeds: Option<u64>,
    /// The first seed, which determines data and schedule.
    #[arg(long)]
    seed: Option<u64>,
    /// The values of extents that are parameters. The default values are chosen to fit the kernel.
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(i64).range(1..))]
    sizes: Vec<i64>,
    /// A run-time scalar parameter. 1+2 is 1 in the first launch and grows by 2 in each further
    /// launch. For a PTX file, give the arguments in order, as for `weft sim`.
    #[arg(long, value_name = "NAME=VALUE")]
    arg: Vec<String>,
    /// The number of CTAs on each PE, if the kernel does not state it: 8 or 4,2,1
    #[arg(long, value_name = "X[,Y[,Z]]")]
    grid: Option<String>,
    #[command(flatten)]
    expected: Expected,
    #[command(flatten)]
    ptx: PtxArgs,
    /// The number of launches in a run, back to back.
    #[arg(long, default_value = "2", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    launches: u32,
    /// With odd seeds, let PEs run ahead into the next launch even if the kernel has no barriers
    /// over the PEs. Use this option for kernels that separate their launches by other means, such
    /// as flags.
    #[arg(long)]
    overlap: bool,
    /// The format of the report.
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
    /// The file for the report. The default is standard output.
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Write the timeline of the first finding's run, or of the first run, as Chrome trace events
    /// for Perfetto.
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Write the PTX that ran. It equals that of `weft compile` with the options that standard
    /// error then lists. With several texts, FILE.ptx becomes FILE.1.ptx, FILE.2.ptx and so on.
    #[arg(long = "ptx", value_name = "FILE")]
    ptx_file: Option<PathBuf>,
    /// Stop at the first finding.
    #[arg(long)]
    fail_fast: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Text for people.
    Text,
    /// JSON with all details of each finding.
    Json,
    /// SARIF 2.1.0, which editors and code hosts show next to the source lines.
    Sarif,
}

impl Check {
    pub fn run(&self) -> ExitCode {
        match self.report() {
            Ok(report) if report.is_clean() => ExitCode::SUCCESS,
            Ok(_) => ExitCode::FAILURE,
            Err(e) => {
                super::report(&e);
                if let Err(e) = self.write_uncompiled(&e) {
                    super::report(&e);
                }
                ExitCode::from(2)
            }
        }
    }

    /// Writes the requested document if the kernel does not compile, with that error in it.
    fn write_uncompiled(&self, e: &anyhow::Error) -> Result<()> {
        let found = match e.downcast_ref::<RunError>() {
            Some(RunError::Compile(e)) => Some(e),
            _ => e.downcast_ref::<CompileError>(),
        };
        let document = match (found, self.format) {
            (Some(e), Format::Json) => uncompiled_json(e),
            (Some(e), Format::Sarif) => uncompiled_sarif(e),
            (_, Format::Text) | (None, _) => return Ok(()),
        };
        super::write_out(self.output.as_deref(), document.as_bytes())
    }

    fn report(&self) -> Result<Report> {
        let bar = Bar::new("runs");
        let progress = |p: Progress| {
            let remark = match (p.total, p.met) {
                (0, _) => format!("{} kernels compiled", p.compiled),
                (_, 0) => String::new(),
                (_, met) => format!("{met} with findings"),
            };
            bar.at(p.done, p.total, remark);
        };
        let is_ptx = self.compile.file.path.extension().is_some_and(|e| e == "ptx");
        let options = self.options(is_ptx)?;
        let report = if is_ptx {
            if self.overlap {
                bail!("--overlap works only with `.weft` files: the host waits between launches of PTX");
            }
            if !self.then.is_empty() {
                bail!("--then works only with `.weft` files: PTX cannot be part of a sequence of kernels");
            }
            if self.expected.is_given() {
                bail!(
                    "--input, --expect and --tolerance work only with `.weft` files: give PTX its files as arguments"
                );
            }
            if !self.node.is_empty() || self.ptx_file.is_some() {
                bail!(
                    "--node and --ptx work only with `.weft` files: PTX runs unchanged, with its own arguments"
                );
            }
            let file = PtxFile::read(&self.compile.file.path)?;
            let launch = self.ptx.launch(self.grid.as_deref(), &self.arg)?;
            check_ptx(&file, &launch, &options, &progress)
        } else {
            self.ptx.refuse()?;
            let files = self.compile.parse(&self.then)?;
            match &files[..] {
                [(file, _)] => check_file_with(file, &options, &progress),
                all => check_sequence(&stages(all), &options, &progress),
            }
        };
        bar.clear();
        let report = report?;
        let text = match self.format {
            Format::Text if self.output.is_none() => report.text(super::color(&std::io::stdout())),
            Format::Text => report.text(Color::Never),
            Format::Json => report.json(),
            Format::Sarif => report.sarif(),
        };
        if let (Some(path), Some(trace)) = (&self.trace, &report.trace) {
            super::write_trace(path, trace)?;
        }
        if let Some(path) = &self.ptx_file {
            write_variants(path, &report)?;
        }
        let nothing = self.format == Format::Text && self.output.is_none() && report.is_clean();
        if !(verbosity::quiet() && nothing) {
            super::write_out(self.output.as_deref(), text.as_bytes())?;
        }
        Ok(report)
    }

    fn options(&self, is_ptx: bool) -> Result<CheckOptions> {
        let mut options = CheckOptions::new("sm_90a".parse()?);
        options.compile = self.compile.options()?;
        options.pes = self.pes.iter().map(|n| *n as usize).collect();
        options.nodes.clone_from(&self.node);
        options.seed = self.seed.unwrap_or(0);
        options.seeds = self.seeds.unwrap_or(if self.seed.is_some() { 1 } else { options.seeds });
        options.sizes.clone_from(&self.sizes);
        if !is_ptx {
            options.args = args(&self.arg)?;
        }
        options.inputs = self.expected.inputs()?;
        options.expected = self.expected.expected()?;
        options.tolerance = self.expected.tolerance;
        options.root.clone_from(&self.compile.root);
        options.grid = self.grid.as_deref().map(|g| grid("--grid", g)).transpose()?;
        options.launches = self.launches;
        (options.step_limit, options.time_limit) = (self.limits.max_steps, self.limits.time()?);
        options.overlap = self.overlap;
        options.trace = self.trace.is_some();
        options.fail_fast = self.fail_fast;
        Ok(options)
    }
}

/// Writes the PTX of each variant, and prints the options of `weft compile` that produce it.
fn write_variants(path: &Path, report: &Report) -> Result<()> {
    let mut err = std::io::stderr().lock();
    for (variant, number) in report.variants.iter().zip(1..) {
        let path = numbered(path, number, report.variants.len());
        super::write_ptx(&path, &variant.ptx)?;
        writeln!(err, "{}: weft compile {} {}", path.display(), variant.file, variant.options)?;
    }
    Ok(())
}
