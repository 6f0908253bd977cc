//! Runs a kernel over real data, on simulated PEs or on GPUs: finds parameters out, allocates, fills, launches, checks.

pub mod array;
pub(crate) mod examine;
mod gpus;
pub(crate) mod inputs;
mod npy;
mod pe;
mod plan;
pub(crate) mod positions;
pub mod reference;
mod simulated;
mod tensors;

use crate::compile::{CompileError, Compiled, KernelFile, Options};
use crate::gpu::GpuError;
use crate::nvshmem::LinkError;
use array::ArrayError;
use inputs::Found;
pub(crate) use inputs::show;
use pe::Pe;
use plan::Plan;
use reference::{Checked, Values, check};
use simulated::Simulated;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use weft_ir::{Access, Arith, Hidden, Operation, Scalar, ValueType};
use weft_lang::elaborate::{Define, Reference};
use weft_runtime::launch::ModuleInfo;
use weft_sim::Stats;

/// What to run, on what.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// How it is compiled; its `defines` win over what is found from data.
    pub compile: Options,
    /// PEs.
    pub n_pes: usize,
    /// CTAs of a PE's grid, where the kernel does not say; 4 if not given.
    pub grid: Option<[u32; 3]>,
    /// Seeds the data and the schedule.
    pub seed: u64,
    /// Launches, back to back, each checked.
    pub launches: u32,
    /// For the simulator: launches follow each other in each PE's stream and the host waits for nobody, so that a PE may
    /// be in the next launch while others are in the one before. Results are not compared then.
    pub back_to_back: bool,
    /// Element type to take data as: `bf16` from `uint16` files.
    pub dtype: Option<Scalar>,
    /// `(tensor, file)`: a `.npy` with a leading PE dimension, or one a PE where the name has `{pe}`. An empty
    /// name is the kernel's first tensor.
    pub inputs: Vec<(String, PathBuf)>,
    /// `(tensor, file)`, as `inputs`, written after the last launch.
    pub outputs: Vec<(String, PathBuf)>,
    /// Values of run-time scalars.
    pub args: BTreeMap<String, Define>,
    /// Warp instructions after which the simulator gives up.
    pub step_limit: Option<u64>,
    /// For the simulator: the number of PEs in a node. It decides which branch of `Transport::Auto` runs: an operation
    /// is carried out in place within a node, and by NVSHMEM's function between nodes, where the simulator delays
    /// transfers as a network may. If it is not given, the PEs form two nodes, so that both branches run.
    ///
    /// A node that is given also limits the kernel's own loads and stores: [`run`] refuses a kernel that makes them to
    /// all PEs. Without it, loads and stores reach all PEs.
    pub node: Option<u32>,
    /// For the simulator: what it watches for. `weft::check` tells what it finds; a plain run does not.
    pub(crate) check: Option<weft_sim::Check>,
    /// For the simulator: a timeline.
    pub(crate) trace: Option<weft_sim::TraceConfig>,
}

impl RunOptions {
    /// One launch on `n_pes` PEs with made data.
    pub fn new(compile: Options, n_pes: usize) -> RunOptions {
        RunOptions {
            compile,
            n_pes,
            grid: None,
            seed: 0,
            launches: 1,
            back_to_back: false,
            dtype: None,
            inputs: Vec::new(),
            outputs: Vec::new(),
            args: BTreeMap::new(),
            step_limit: None,
            node: None,
            check: None,
            trace: None,
        }
    }

    /// The number of PEs in a simulated node.
    pub(crate) fn pes_of_node(&self) -> usize {
        self.node.map_or(self.n_pes.div_ceil(2), |n| n as usize).clamp(1, self.n_pes.max(1))
    }
}

/// What went wrong.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The text does not compile.
    #[error(transparent)]
    Compile(#[from] CompileError),
    /// A file is no array, or not the one wanted.
    #[error(transparent)]
    Array(#[from] ArrayError),
    /// The request does not fit the kernel.
    #[error("{0}")]
    Request(String),
    /// The PTX is not understood by the simulator.
    #[error(transparent)]
    Ptx(#[from] weft_sim::PtxError),
    /// The kernel did something wrong, or nothing for ever.
    #[error(transparent)]
    Sim(#[from] weft_sim::SimError),
    /// What the runtime refused: GPUs, their driver and NVSHMEM, or simulated PEs.
    #[error(transparent)]
    Runtime(#[from] weft_runtime::Error),
    /// NVSHMEM's functions cannot be joined to the kernel.
    #[error(transparent)]
    Link(#[from] LinkError),
}

impl From<GpuError> for RunError {
    fn from(e: GpuError) -> RunError {
        match e {
            GpuError::Compile(e) => e.into(),
            GpuError::Describe(d) => RunError::Request(d.message),
            GpuError::Array(e) => e.into(),
            GpuError::Link(e) => e.into(),
            GpuError::Runtime(e) => e.into(),
        }
    }
}

/// Where a run took place, and what is known from there.
#[derive(Clone, Debug)]
pub enum Ran {
    /// On the simulator.
    Simulator {
        /// Counters of the last launch.
        stats: Box<Stats>,
        /// Wall time that all launches took.
        time: Duration,
        /// The number of PEs in a node, where the kernel chooses at run time how it reaches a PE (`Transport::Auto`).
        node: Option<usize>,
    },
    /// On GPUs, one a PE.
    Gpus {
        /// Name of this PE's.
        gpu: String,
        /// NVSHMEM's version.
        nvshmem: weft_runtime::nvshmem::Version,
        /// Why in-switch operations went by every PE's own address, where the text left that open.
        no_multicast: Option<String>,
        /// Time of each launch on this PE in microseconds, by events on its stream: waiting for others is in it.
        micros: Vec<f64>,
    },
}

/// A tensor of the run.
#[derive(Clone, Debug)]
pub struct TensorInfo {
    /// Its parameter's name.
    pub name: String,
    /// Element type.
    pub dtype: Scalar,
    /// Extents on each PE.
    pub shape: Vec<u64>,
}

/// What a run did.
#[derive(Debug)]
pub struct Outcome {
    /// The compiled file.
    pub compiled: Compiled,
    /// The kernel.
    pub kernel: String,
    /// CTAs.
    pub grid: [u32; 3],
    /// Threads a CTA.
    pub block: [u32; 3],
    /// Its tensors.
    pub tensors: Vec<TensorInfo>,
    /// The check of each launch; `None` where the kernel does not say what it computes.
    pub checks: Option<Vec<Checked>>,
    /// What all launches printed.
    pub printed: String,
    /// Time to compile.
    pub compile_time: Duration,
    /// Where it ran.
    pub ran: Ran,
}

/// What the comparisons of a run say.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Every launch was compared, and all elements are right.
    Correct,
    /// An element is wrong.
    Wrong,
    /// Nothing was compared: the kernel does not say what it computes, another PE compares, or the launches followed each
    /// other without a wait.
    Unchecked,
}

impl Outcome {
    /// What was found.
    pub fn verdict(&self) -> Verdict {
        let checks = self.checks.as_deref().unwrap_or_default();
        if checks.iter().any(|c| c.wrong > 0) {
            Verdict::Wrong
        } else if checks.is_empty() || checks.iter().any(|c| c.elements == 0) {
            Verdict::Unchecked
        } else {
            Verdict::Correct
        }
    }

    /// Whether results were compared and all are right: false where nothing was compared.
    pub fn passed(&self) -> bool {
        self.verdict() == Verdict::Correct
    }
}

pub(crate) fn request<T>(message: impl Into<String>) -> Result<T, RunError> {
    Err(RunError::Request(message.into()))
}

/// Reads, compiles and runs a kernel file on the simulator.
///
/// # Errors
/// See [`RunError`]. Nothing is written unless all launches ended.
pub fn run(path: &Path, options: &RunOptions) -> Result<Outcome, RunError> {
    let text = crate::library::read_text(path).or_else(request)?;
    let file = KernelFile::parse(&crate::library::name_of(path), &text)?;
    run_file(&file, options)
}

/// Compiles and runs a parsed kernel file on the simulator.
///
/// # Errors
/// As [`run`].
pub fn run_file(file: &KernelFile, options: &RunOptions) -> Result<Outcome, RunError> {
    let prepared = Prepared::new(file, options)?;
    prepared.within_nodes(options)?;
    let simulated = Simulated::new(&prepared)?;
    let plan = Plan::new(&prepared.compiled, options, &prepared.found)?;
    let checks = Mutex::default();
    let simulation = simulated.run(&prepared, &plan, options, &checks)?;
    let (stats, time, printed) = (Box::new(simulation.stats()), simulation.time, simulation.printed());
    simulation.result?;
    let node = prepared.compiled.tests_reach().then_some(options.pes_of_node());
    Ok(prepared.outcome(&plan, checks, printed, Ran::Simulator { stats, time, node }))
}

/// What a run would run: finds parameters out and compiles, and no more.
///
/// # Errors
/// As [`run`], before anything is allocated.
pub fn check_file(file: &KernelFile, options: &RunOptions) -> Result<Compiled, RunError> {
    Prepared::new(file, options).map(|prepared| prepared.compiled)
}

/// Compiles and runs a parsed kernel file on the GPUs of a world; every PE calls it. PE 0 checks and writes.
/// *Collective.*
///
/// # Errors
/// As [`run`], and what the GPUs refuse.
pub fn run_on_gpus(
    file: &KernelFile,
    options: &RunOptions,
    world: &weft_runtime::World,
) -> Result<Outcome, RunError> {
    gpus::run(file, options, world)
}

/// A compiled kernel with what follows from data and request.
struct Prepared {
    kernel: String,
    found: Found,
    /// What it was compiled with.
    options: Options,
    compiled: Compiled,
    compile_time: Duration,
}

impl Prepared {
    fn new(file: &KernelFile, options: &RunOptions) -> Result<Prepared, RunError> {
        if options.n_pes == 0 || options.launches == 0 {
            return request("a run takes 1 PE and 1 launch or more");
        }
        let heads = file.heads();
        let head = inputs::choose(&heads, options.compile.kernel.as_deref()).or_else(request)?;
        let found = inputs::gather(head, options)?;

        let start = Instant::now();
        let mut compile = options.compile.clone();
        compile.kernel = Some(head.name.to_string());
        compile.defines = found.defines.clone();
        let compiled = file.compile(&compile)?;
        let compile_time = start.elapsed();
        Ok(Prepared { kernel: head.name.to_string(), found, options: compile, compiled, compile_time })
    }

    /// Whether the kernel's loads and stores stay within the nodes that were asked for.
    fn within_nodes(&self, options: &RunOptions) -> Result<(), RunError> {
        let node = options.pes_of_node();
        if options.node.is_none() || node >= options.n_pes {
            return Ok(());
        }
        let launches = self.compiled.low.kernels.iter().filter_map(|k| k.head.launch.as_ref());
        let of_all =
            launches.flat_map(|l| l.params.iter().map(move |p| (l, p))).find_map(|(l, p)| match p.kind {
                weft_abi::ParamKind::Hidden(Hidden::Peers { base, .. }) => l.params.get(base as usize),
                _ => None,
            });
        match of_all {
            None => Ok(()),
            Some(tensor) => request(format!(
                "the kernel loads from and stores to `{}` of all PEs, and PE 0 does not reach PE {node}",
                tensor.name
            )),
        }
    }

    /// What a PE does: it fills, launches, and, as PE 0, adds the check of each launch to `checks` and writes what is
    /// asked for. *Collective.*
    fn carry_out(
        &self,
        pe: &mut Pe<'_>,
        options: &RunOptions,
        checks: &Mutex<Vec<Checked>>,
    ) -> Result<(), RunError> {
        pe.fill(options.seed, &self.found)?;
        pe.settle()?;
        if options.back_to_back {
            (0..options.launches).try_for_each(|_| pe.enqueue())?;
            pe.settle()?;
        } else {
            self.launch_and_check(pe, options, checks)?;
        }
        if pe.judges() {
            pe.write(&options.outputs)?;
        }
        pe.settle()
    }

    /// Launches as often as is asked for; each launch begins when PE 0 has compared what the one before has left, and with
    /// results that hold nothing.
    fn launch_and_check(
        &self,
        pe: &mut Pe<'_>,
        options: &RunOptions,
        checks: &Mutex<Vec<Checked>>,
    ) -> Result<(), RunError> {
        let reference = self.reference().filter(|_| pe.judges());
        let values = |pe: &Pe<'_>| {
            let mut all: BTreeMap<String, Values> = BTreeMap::new();
            for name in reference.iter().flat_map(|r| &r.args) {
                all.extend(pe.values(name)?.map(|v| (name.to_string(), v)));
            }
            Ok::<_, RunError>(all)
        };
        let mut before = values(pe)?;
        for launch in 0..options.launches {
            pe.settle()?;
            if launch > 0 {
                pe.renew(options.seed, &self.found)?;
                pe.settle()?;
            }
            pe.launch()?;
            pe.settle()?;
            let after = values(pe)?;
            if let Some(r) = reference {
                let get = |values: &BTreeMap<String, Values>, name: &str| values.get(name).cloned();
                let checked = self.check(r, &|name| get(&before, name), &|name| get(&after, name))?;
                checks.lock().unwrap_or_else(PoisonError::into_inner).push(checked);
            }
            before = after;
        }
        Ok(())
    }

    /// What the kernel says it computes.
    fn reference(&self) -> Option<&Reference> {
        self.compiled.references.first().and_then(Option::as_ref)
    }

    /// Compares values after a launch with what is computed from those before.
    fn check(
        &self,
        reference: &Reference,
        before: &dyn Fn(&str) -> Option<Values>,
        after: &dyn Fn(&str) -> Option<Values>,
    ) -> Result<Checked, RunError> {
        check(reference, before, after, self.root(), accumulator(&self.compiled)).or_else(request)
    }

    /// The outcome of a run that has ended.
    fn outcome(self, plan: &Plan, checks: Mutex<Vec<Checked>>, printed: String, ran: Ran) -> Outcome {
        let checks = checks.into_inner().unwrap_or_else(PoisonError::into_inner);
        Outcome {
            grid: plan.grid,
            block: plan.block,
            tensors: plan.infos(),
            checks: self.reference().is_some().then_some(checks),
            printed,
            ran,
            kernel: self.kernel,
            compile_time: self.compile_time,
            compiled: self.compiled,
        }
    }

    /// The compile-time parameter that `computes(broadcast(x))` is from.
    fn root(&self) -> Option<i64> {
        match self.compiled.defines.first().and_then(|d| d.get("ROOT")) {
            Some(Define::Int(n)) => Some(*n),
            _ => None,
        }
    }
}

/// The entry point of a kernel that was compiled alone.
fn entry(info: &ModuleInfo) -> &str {
    info.kernels.first().map_or("", |kernel| &kernel.name)
}

/// The least precise type that a reduction of the kernel is summed in.
fn accumulator(compiled: &Compiled) -> Scalar {
    let mut least: Option<Scalar> = None;
    for k in &compiled.high.kernels {
        k.walk(&mut |_, inst| {
            let combines = matches!(inst.op.arith(), Some(Arith::Binary { .. } | Arith::Fma { .. }));
            let acc = if let Some(Access::LdReduce { acc, .. }) = inst.op.access() {
                Some(*acc)
            } else if let Some(Access::McRed { value, .. } | Access::Red { value, .. }) = inst.op.access() {
                k.insts[*value].ty.elem()
            } else {
                inst.ty.elem().filter(|_| combines)
            };
            if let Some(acc) = acc.filter(|a| a.is_float())
                && least.is_none_or(|l| acc.bits() < l.bits())
            {
                least = Some(acc);
            }
        });
    }
    least.unwrap_or(Scalar::F32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_run_that_compared_results_has_passed() {
        let verdict = |computes: &str, factor: u32, back_to_back: bool| {
            let text = format!(
                "kernel k(x: global<i32, (64):(1)>, y: global<i32, (64):(1)>) block(64) grid(1) {computes} {{
                    y[thread_idx()] = x[thread_idx()] * {factor};
                }}"
            );
            let file = KernelFile::parse("k.weft", &text).unwrap();
            let mut options = RunOptions::new(Options::new("sm_90a".parse().unwrap()), 2);
            options.back_to_back = back_to_back;
            let outcome = run_file(&file, &options).unwrap();
            assert_eq!(outcome.passed(), outcome.verdict() == Verdict::Correct);
            outcome.verdict()
        };
        assert_eq!(verdict("computes(copy(x, y))", 1, false), Verdict::Correct);
        assert_eq!(verdict("computes(copy(x, y))", 2, false), Verdict::Wrong);
        assert_eq!(verdict("computes(copy(x, y))", 1, true), Verdict::Unchecked);
        assert_eq!(verdict("", 1, false), Verdict::Unchecked);
    }
}
