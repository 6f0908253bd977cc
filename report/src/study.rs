//! The data about a kernel: how it compiles and assembles, the findings of the checks, and a run.

use crate::{Options, Progress};
use std::time::Instant;
use weft::tools::{self, Listing};
use weft::{Compiled, KernelFile};
use weft_abi::RoleInfo;
use weft_check::{CheckOptions, Replay, Report, check_file};
use weft_ir::Kernel;
use weft_lang::elaborate::Head;
use weft_run::examine::{Examined, Subject};
use weft_run::{RunError, RunOptions, Stage, compile_sequence};
use weft_sim::TraceConfig;

/// The number of steps for each kernel.
const STEPS: usize = 3;

/// The greatest number of events of each kind in a timeline.
const EVENTS: usize = 1 << 16;

/// The data that a page shows about a kernel.
pub(crate) struct Study {
    pub name: String,
    pub compiled: Compiled,
    /// The machine code, or what is missing to get it.
    pub listing: Result<Listing, String>,
    /// The result of the checks, or why they could not run.
    pub check: Result<Report, String>,
    /// A run, or why the kernel could not be run.
    pub run: Result<Run, String>,
}

/// A run on simulated PEs.
pub(crate) struct Run {
    /// The parameters of the run.
    pub replay: Replay,
    pub examined: Examined,
    pub roles: Vec<RoleInfo>,
}

impl Study {
    /// The kernel as IR.
    pub fn kernel(&self) -> Option<&Kernel> {
        self.compiled.high.kernels.first()
    }
}

/// The kernels that the options name, or all of the file's.
pub(crate) fn all(
    file: &KernelFile,
    options: &Options,
    progress: &dyn Fn(Progress<'_>),
) -> Result<Vec<Study>, RunError> {
    let named = options.check.compile.kernel.as_deref();
    let heads = match named {
        Some(_) => vec![Stage { file, kernel: named }.head()?],
        None => file.heads(),
    };
    if heads.is_empty() {
        return Err(RunError::Request("the file has no kernel".into()));
    }
    let total = heads.len() * STEPS;
    let all = file.heads();
    let one = |(number, head): (usize, &Head)| {
        let tell = |step: usize, doing: &str| {
            progress(Progress { done: number * STEPS + step, total, doing, kernel: &head.name });
        };
        let mut own = options.clone();
        own.check.compile.defines.retain(|name, _| !is_others(&all, head, &|h| generics(h), name));
        own.check.args.retain(|name, _| !is_others(&all, head, &|h| params(h), name));
        of(file, head, &own, &tell)
    };
    heads.iter().enumerate().map(one).collect()
}

fn generics(head: &Head) -> Vec<&str> {
    head.generics.iter().map(|(name, ..)| &**name).collect()
}

fn params(head: &Head) -> Vec<&str> {
    head.params.iter().map(|param| &*param.name).collect()
}

/// Whether other kernels of a file have a parameter of that name, while this one has none.
fn is_others(all: &[Head], head: &Head, names: &dyn Fn(&Head) -> Vec<&str>, name: &str) -> bool {
    !names(head).contains(&name) && all.iter().any(|other| names(other).contains(&name))
}

fn of(
    file: &KernelFile,
    head: &Head,
    options: &Options,
    tell: &dyn Fn(usize, &str),
) -> Result<Study, RunError> {
    let name = head.name.to_string();
    tell(0, "checking");
    let check = checked(file, &name, options);
    let case = check.as_ref().ok().and_then(|report| shown(&report.cases));
    tell(1, "compiling");
    let compiled = compiled(file, head, options, case)?;
    let external = !compiled.external().is_empty();
    let listing = tools::list(&compiled.ptx, compiled.target, external).map_err(|e| e.to_string());
    tell(2, "running");
    let run = match (&check, case) {
        (Err(e), _) => Err(e.to_string()),
        (Ok(_), None) => Err("the checks did not run a case".to_owned()),
        (Ok(_), Some(case)) => ran(file, &name, options, case).map_err(|e| e.to_string()),
    };
    Ok(Study { name, compiled, listing, check: check.map_err(|e| e.to_string()), run })
}

/// The checks of a kernel, with as many seeds as there is time for.
fn checked(file: &KernelFile, name: &str, options: &Options) -> Result<Report, RunError> {
    let mut asked = options.check.clone();
    (asked.pes, asked.seeds) = (vec![options.pes], 1);
    asked.compile.kernel = Some(name.to_owned());
    let start = Instant::now();
    let first = check_file(file, &asked)?;
    let times = options.patience.as_secs_f64() / start.elapsed().as_secs_f64().max(1e-3);
    asked.seeds = options.check.seeds.min(times as u64);
    if asked.seeds > 1 { check_file(file, &asked) } else { Ok(first) }
}

/// The case that is shown: the one with the largest sizes, the first lowering, and about half of
/// the PEs in each node.
fn shown(cases: &[Replay]) -> Option<&Replay> {
    let last = cases.last()?;
    let first = cases.iter().find(|c| (&c.defines, &c.args) == (&last.defines, &last.args))?;
    let same =
        |c: &&Replay| (&c.defines, &c.args, c.lowering) == (&first.defines, &first.args, first.lowering);
    let all: Vec<_> = cases.iter().filter(same).collect();
    all.get(all.len() / 2).copied()
}

/// Compiles the kernel with the given parameters. A parameter without a default gets its value in
/// the case that is shown.
fn compiled(
    file: &KernelFile,
    head: &Head,
    options: &Options,
    case: Option<&Replay>,
) -> Result<Compiled, RunError> {
    let mut run = RunOptions::new(options.check.compile.clone(), options.pes);
    for (name, _, has_default) in &head.generics {
        if let Some(value) = case.and_then(|c| c.defines.get(&**name)).filter(|_| !has_default) {
            run.compile.defines.entry(name.to_string()).or_insert(*value);
        }
    }
    run.compile.kernel = Some(head.name.to_string());
    run.inputs.clone_from(&options.check.inputs);
    run.args.clone_from(&options.check.args);
    let stage = Stage { file, kernel: Some(&*head.name) };
    let compiled = compile_sequence(&[stage], &run)?.pop();
    compiled.ok_or_else(|| RunError::Request(format!("`{}` was not compiled", head.name)))
}

/// A run of a case, with its timeline.
fn ran(file: &KernelFile, name: &str, options: &Options, case: &Replay) -> Result<Run, RunError> {
    let CheckOptions { compile, inputs, step_limit, time_limit, seed, .. } = options.check.clone();
    let mut run = RunOptions::new(compile, case.pes);
    run.compile.defines.clone_from(&case.defines);
    run.compile.lowering = case.lowering;
    run.args.clone_from(&case.args);
    (run.node, run.grid, run.seed) = (case.node, case.grid, seed);
    (run.inputs, run.step_limit, run.time_limit) = (inputs, step_limit, time_limit);
    run.trace = Some(TraceConfig::default().limit(EVENTS));
    let subject = Subject::new(&[Stage { file, kernel: Some(name) }], &run)?;
    let examined = subject.run(&run)?;
    let roles = subject.stages().filter_map(|stage| stage.compiled.describe().ok());
    let roles = roles.flat_map(|info| info.kernels).flat_map(|kernel| kernel.roles).collect();
    Ok(Run { replay: Replay { launches: 1, ..case.clone() }, examined, roles })
}
