//! The command `weft report`.

use super::progress::Bar;
use super::run::grid;
use super::verbosity::quiet;
use super::{CompileArgs, Limits, args};
use anyhow::{Result, bail};
use clap::Args;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use weft_check::CheckOptions;
use weft_report::{Options, Progress, page};

/// Write a page that shows kernels at every level: the source linked line by line to IR, PTX and
/// SASS, the widths of accesses, registers and shared memory, layouts, the traffic between PEs, a
/// timeline of a simulated run, and the findings of checks. The page is one file that needs no
/// network.
///
/// The kernel is compiled with the values of -D and the defaults in the file. The simulated runs
/// use the sizes that `weft check` chooses, unless -D or --arg gives them. Without ptxas and
/// nvdisasm, the page says how to install them.
#[derive(Args)]
pub struct Report {
    #[command(flatten)]
    compile: CompileArgs,
    #[command(flatten)]
    limits: Limits,
    /// The file for the page. The default is standard output.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// The number of simulated PEs.
    #[arg(long, default_value = "8", value_parser = clap::value_parser!(u32).range(1..=64))]
    pes: u32,
    /// A run-time scalar parameter of the simulated runs.
    #[arg(long, value_name = "NAME=VALUE")]
    arg: Vec<String>,
    /// The number of CTAs on each PE, if the kernel does not state it: 8 or 4,2,1
    #[arg(long, value_name = "X[,Y[,Z]]")]
    grid: Option<String>,
    /// The largest number of schedules that the checks try for each case.
    #[arg(long, default_value = "5", value_parser = clap::value_parser!(u64).range(1..))]
    seeds: u64,
    /// The approximate time limit for the checks of a kernel, in seconds. If all schedules would
    /// take longer, fewer are tried, but always at least one.
    #[arg(long, value_name = "SECONDS", default_value = "10")]
    check_time: f64,
}

impl Report {
    pub fn run(&self) -> Result<ExitCode> {
        if self.compile.file.path.extension().is_some_and(|e| e == "ptx" || e == "ir") {
            bail!("`weft report` shows kernel files (.weft); for PTX, `weft sim --trace` writes a timeline");
        }
        let options = self.options()?;
        let file = self.compile.file.parse(self.compile.root.as_deref())?;
        let bar = Bar::new("steps");
        let progress = |p: Progress<'_>| {
            bar.at(p.done as u64, p.total as u64, format!("({} {})", p.doing, p.kernel));
        };
        let page = page(&file, &options, &progress);
        bar.clear();
        let page = page?;
        super::write_out(self.output.as_deref(), page.text.as_bytes())?;
        let file = self.output.as_deref().filter(|path| *path != Path::new("-") && !quiet());
        if let Some(path) = file {
            let s = if page.kernels == 1 { "" } else { "s" };
            let (kernels, size) = (page.kernels, page.text.len().div_ceil(1000));
            let said = format!("wrote {}: {kernels} kernel{s}, {size} kB\n", path.display());
            super::write_out(None, said.as_bytes())?;
        }
        Ok(ExitCode::SUCCESS)
    }

    fn options(&self) -> Result<Options> {
        let compile = self.compile.options()?;
        let mut check = CheckOptions::new(compile.target);
        check.compile = compile;
        check.seeds = self.seeds;
        check.args = args(&self.arg)?;
        check.root.clone_from(&self.compile.root);
        check.grid = self.grid.as_deref().map(|g| grid("--grid", g)).transpose()?;
        (check.step_limit, check.time_limit) = (self.limits.max_steps, self.limits.time()?);
        let mut options = Options::new(check, self.pes as usize);
        options.patience = match Duration::try_from_secs_f64(self.check_time) {
            Ok(time) => time,
            Err(e) => bail!("--check-time {}: {e}", self.check_time),
        };
        Ok(options)
    }
}
