//! Looks for what is wrong with kernels: runs them on simulated PEs over many sizes and schedules, and reports what
//! the simulator finds, and results that are not what `computes(...)` says.
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use weft::KernelFile;
//! use weft_check::{CheckOptions, check_file};
//! let file = KernelFile::parse("copy.weft", "
//!     kernel twice<N: int>(x: global<f32, (N):(1)>, out: global<f32, (N):(1)>) block(128) computes(copy(x, out)) {
//!         let from = partition(x, threads());
//!         let to = partition(out, threads());
//!         for i in 0..size<1>(to) { to[_, i] = from[_, i] * 2; }
//!     }")?;
//! let mut options = CheckOptions::new("sm_90a".parse()?);
//! options.seeds = 1;
//! let report = check_file(&file, &options)?;
//! assert_eq!(report.findings[0].code, weft_check::WRONG_RESULT);
//! # Ok(()) }
//! ```

mod cases;
mod causes;
mod finding;
mod formats;
mod ptx;
mod text;

pub use finding::{Access, Finding, Replay};
pub use formats::{uncompiled_json, uncompiled_sarif};
pub use weft::codes::WRONG_RESULT;

use cases::Case;
use finding::Gathered;
use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use weft::{KernelFile, Options};
use weft_isa::Target;
use weft_lang::source::SourceMap;
use weft_run::ptx::{PtxFile, PtxLaunch, PtxOutcome};
use weft_run::{Arg, RunError, Stage, Tolerance};
use weft_sim::Trace;

/// The options of a check: the cases to run, and the number of schedules.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CheckOptions {
    /// The options of the compiler. `Lowering::Auto` checks both lowerings, if the kernel's text
    /// does not fix one. The defines are kept; other extents are varied.
    pub compile: Options,
    /// The numbers of PEs to run with.
    pub pes: Vec<usize>,
    /// The numbers of PEs in a node. A node decides which branch of `Transport::Auto` runs: direct
    /// loads and stores within a node, and NVSHMEM calls between nodes. The kernel's own loads and
    /// stores reach all PEs. If none is given, kernels with such branches run with a node for each
    /// PE, with two nodes and with one.
    pub nodes: Vec<u32>,
    /// The first seed of data and schedule.
    pub seed: u64,
    /// The number of schedules of each case, whose seeds begin at `seed`.
    pub seeds: u64,
    /// The values of extents that are parameters. If there are none, the check uses a tiny size, a
    /// size that tiles do not divide, and a larger one, as far as the kernel accepts them.
    pub sizes: Vec<i64>,
    /// The values of run-time scalars.
    pub args: BTreeMap<String, Arg>,
    /// Pairs `(tensor, file)` with data that replaces the generated data, as in
    /// [`RunOptions::inputs`](weft_run::RunOptions::inputs). Extents that follow from it are not
    /// varied.
    pub inputs: Vec<(String, PathBuf)>,
    /// Pairs `(tensor, file)` with the expected contents of a tensor after the last launch.
    pub expected: Vec<(String, PathBuf)>,
    /// The folder for `use` (`--root`), for the command lines in reports.
    pub root: Option<PathBuf>,
    /// The tolerance for tensors that are compared with a file. The default is the usual one for
    /// the element type.
    pub tolerance: Option<Tolerance>,
    /// The number of CTAs of a PE's grid, if the kernel does not state it.
    pub grid: Option<[u32; 3]>,
    /// The number of launches of a run. With even seeds the host waits between them, and each
    /// result is checked. With odd seeds the launches of a kernel that has barriers over the PEs
    /// follow each other on every PE as on a stream.
    pub launches: u32,
    /// Whether launches also follow each other for kernels without barriers, which separate
    /// launches by other means, such as flags.
    pub overlap: bool,
    /// The number of warp instructions after which a launch is stopped.
    pub step_limit: Option<u64>,
    /// The time after which a launch is stopped. No further run begins then.
    pub time_limit: Option<Duration>,
    /// A flag that ends the check once it is set: no further run begins, and running ones are
    /// stopped.
    pub stop: Option<Arc<AtomicBool>>,
    /// Whether to stop at the first finding.
    pub fail_fast: bool,
    /// Whether to keep the timeline of the first finding's run, or of the first run if nothing was found.
    pub trace: bool,
}

weft_sim::setters!(
    CheckOptions {
        compile: Options,
        pes: Vec<usize>,
        nodes: Vec<u32>,
        seed: u64,
        seeds: u64,
        sizes: Vec<i64>,
        args: BTreeMap<String, Arg>,
        inputs: Vec<(String, PathBuf)>,
        expected: Vec<(String, PathBuf)>,
        root: Option<PathBuf>,
        tolerance: Option<Tolerance>,
        grid: Option<[u32; 3]>,
        launches: u32,
        overlap: bool,
        step_limit: Option<u64>,
        time_limit: Option<Duration>,
        stop: Option<Arc<AtomicBool>>,
        fail_fast: bool,
        trace: bool,
    }
);

impl CheckOptions {
    /// Creates options for two PEs and eight, twenty schedules, sizes that the kernel accepts, and
    /// two launches.
    pub fn new(target: Target) -> CheckOptions {
        CheckOptions {
            compile: Options::new(target),
            pes: vec![2, 8],
            nodes: Vec::new(),
            seed: 0,
            seeds: 20,
            sizes: Vec::new(),
            args: BTreeMap::new(),
            inputs: Vec::new(),
            expected: Vec::new(),
            root: None,
            tolerance: None,
            grid: None,
            launches: 2,
            overlap: false,
            step_limit: None,
            time_limit: None,
            stop: None,
            fail_fast: false,
            trace: false,
        }
    }
}

/// The findings of a check, and the cases that were run.
#[derive(Clone, Debug)]
pub struct Report {
    /// The name of the file in messages.
    pub file: String,
    /// The cases that were run, each with every seed: kernel, lowering, transport, sizes, PEs.
    pub cases: Vec<Replay>,
    /// The number of runs.
    pub runs: u64,
    /// The different findings, with causes before their consequences, and otherwise in the order of
    /// the runs that found them first.
    pub findings: Vec<Finding>,
    /// The PTX that ran, one for each set of compile options. It is empty if the file is PTX
    /// itself.
    pub variants: Vec<Variant>,
    /// The timeline, if it was requested.
    pub trace: Option<Trace>,
    /// The texts that contain the locations of findings.
    sources: Arc<SourceMap>,
}

impl Report {
    /// Whether nothing was found.
    pub fn is_clean(&self) -> bool {
        self.findings.is_empty()
    }
}

/// PTX that a check ran.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Variant {
    /// The name of the kernel's file.
    pub file: String,
    /// The options of `weft compile` that produce this text. Options that a check passes on
    /// unchanged, such as `--arch`, are not among them.
    pub options: String,
    /// The text of the PTX.
    pub ptx: String,
}

/// The progress of a check.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// The number of runs that have ended.
    pub done: u64,
    /// The number of all runs.
    pub total: u64,
    /// The number of runs with findings.
    pub met: u64,
    /// The number of kernels that were compiled to determine the runs. All are compiled before the
    /// first run; `total` is 0 until then.
    pub compiled: u64,
}

/// Checks the kernels of a file.
///
/// # Errors
/// Fails if a kernel cannot be compiled or run at all. The report has the errors of a kernel that
/// ran.
pub fn check_file(file: &KernelFile, options: &CheckOptions) -> Result<Report, RunError> {
    check_file_with(file, options, &|_| ())
}

/// Checks a file like [`check_file`], and reports its progress. The report follows each kernel that it
/// compiles and each run, and comes from any of its threads.
///
/// # Errors
/// Fails where [`check_file`] fails.
pub fn check_file_with(
    file: &KernelFile,
    options: &CheckOptions,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<Report, RunError> {
    report(&cases::of_file(file, options, progress)?, file.shared_sources(), options, progress)
}

/// Checks kernels that are launched one after another. Tensors and parameters of equal names are
/// shared. The kernel that `options.compile` names is not used.
///
/// # Errors
/// Fails where [`check_file`] fails, or if tensors of equal names differ.
pub fn check_sequence(
    stages: &[Stage<'_>],
    options: &CheckOptions,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<Report, RunError> {
    let mut sources = SourceMap::new();
    for stage in stages {
        let own = stage.file.sources();
        for file in 0..own.len() as u32 {
            let (name, text) = (own.name(file).unwrap_or_default(), own.text(file).unwrap_or_default());
            if sources.find(name).is_none() {
                sources.add(name, text);
            }
        }
    }
    let sources = Arc::new(sources);
    report(&cases::of_sequence(stages, sources.clone(), options, progress)?, sources, options, progress)
}

/// Runs cases. `sources` has the texts of their kernels, with the first file's before others.
fn report(
    cases: &[Case],
    sources: Arc<SourceMap>,
    options: &CheckOptions,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<Report, RunError> {
    let (runs, findings) = explore(cases, options, &Case::run, progress)?;
    let replays: Vec<_> = cases.iter().map(Case::replay).collect();
    let trace = traced(&replays, &findings, options, &|i, seed| cases[i].trace(seed))?;
    Ok(Report {
        file: sources.name(0).unwrap_or_default().to_owned(),
        cases: replays,
        runs,
        findings,
        variants: cases::variants(cases),
        trace,
        sources,
    })
}

/// Checks a launch of PTX with the options' numbers of PEs and seeds, of which each combination is
/// one run.
///
/// # Errors
/// Fails if the kernel cannot be launched at all.
pub fn check_ptx(
    file: &PtxFile,
    launch: &PtxLaunch,
    options: &CheckOptions,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<Report, RunError> {
    let cases = ptx::all(file, launch, options)?;
    let (runs, findings) = explore(&cases, options, &ptx::Case::run, progress)?;
    let replays: Vec<_> = cases.iter().map(|c| c.replay(options.seed)).collect();
    let trace = traced(&replays, &findings, options, &|i, seed| cases[i].trace(seed))?;
    Ok(Report {
        file: file.name().to_owned(),
        cases: replays,
        runs,
        findings,
        variants: Vec::new(),
        trace,
        sources: file.sources(),
    })
}

/// Reports the findings of a single launch of PTX.
///
/// # Errors
/// Fails if the file has no such kernel.
pub fn report_ptx(file: &PtxFile, launch: &PtxLaunch, outcome: PtxOutcome) -> Result<Report, RunError> {
    let replay = ptx::replay(&file.kernel(launch.entry.as_deref())?.name, launch);
    let mut gathered = Gathered::default();
    let trace = outcome.trace.clone();
    gathered.add_run(ptx::findings(file, outcome, &replay));
    Ok(Report {
        file: file.name().to_owned(),
        cases: vec![replay],
        runs: 1,
        findings: gathered.into_findings(),
        variants: Vec::new(),
        trace: launch.trace.is_some().then_some(trace),
        sources: file.sources(),
    })
}

/// The requested timeline, for which the run of this case and seed is repeated.
fn traced(
    cases: &[Replay],
    findings: &[Finding],
    options: &CheckOptions,
    run: &dyn Fn(usize, u64) -> Result<Trace, RunError>,
) -> Result<Option<Trace>, RunError> {
    if !options.trace || cases.is_empty() {
        return Ok(None);
    }
    let (case, seed) = match findings.first() {
        Some(f) => {
            let is = |c: &Replay| Replay { seed: f.replay.seed, ..c.clone() } == f.replay;
            (cases.iter().position(is).unwrap_or(0), f.replay.seed)
        }
        None => (0, options.seed),
    };
    run(case, seed).map(Some)
}

/// Runs a case with a seed and returns its findings.
type Runner<'a, C> = dyn Fn(&C, u64) -> Result<Vec<Finding>, RunError> + Sync + 'a;

/// Runs every case with every seed, on all cores. Returns the number of runs and their findings.
fn explore<C: Sync>(
    cases: &[C],
    options: &CheckOptions,
    run: &Runner<'_, C>,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<(u64, Vec<Finding>), RunError> {
    let jobs = cases.len() as u64 * options.seeds;
    // The threads of a run sometimes wait for each other; meanwhile another run continues.
    let threads = 2 * std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let (next, done, met) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let stop = AtomicBool::new(false);
    let results = Mutex::new(Vec::new());
    // Seeds are in the outer loop and cases in the inner one, so that an error of any schedule is
    // found soon, with the lowest seed.
    let work = || {
        let stopped = || options.stop.as_ref().is_some_and(|stop| stop.load(Ordering::Relaxed));
        while !stop.load(Ordering::Relaxed) && !stopped() {
            let job = next.fetch_add(1, Ordering::Relaxed);
            if job >= jobs {
                return;
            }
            let case = &cases[(job % cases.len() as u64) as usize];
            let result = run(case, options.seed.wrapping_add(job / cases.len() as u64));
            if result.as_ref().map_or(true, |found| !found.is_empty()) {
                met.fetch_add(1, Ordering::Relaxed);
                let endless = |found: &Vec<Finding>| {
                    found.iter().any(|f| f.code == weft_sim::codes::STEP_LIMIT.as_str())
                };
                let last = options.fail_fast || result.as_ref().map_or(true, endless);
                stop.fetch_or(last, Ordering::Relaxed);
            }
            let done = done.fetch_add(1, Ordering::Relaxed) + 1;
            if let Ok(mut results) = results.lock() {
                results.push((job, result));
            }
            progress(Progress { done, total: jobs, met: met.load(Ordering::Relaxed), compiled: 0 });
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..(threads as u64).min(jobs) {
            scope.spawn(work);
        }
        work();
    });
    let mut results = results.into_inner().unwrap_or_else(|e| e.into_inner());
    results.sort_by_key(|(job, _)| *job);
    let mut gathered = Gathered::default();
    let mut runs = 0;
    for (_, result) in results {
        runs += 1;
        let found = result?;
        let any = !found.is_empty();
        gathered.add_run(found);
        // Other threads may have been ahead.
        if any && options.fail_fast {
            break;
        }
    }
    Ok((runs, gathered.into_findings()))
}
