//! Runs kernels over data and checks their results, on simulated PEs or on GPUs.
//!
//! A run finds a kernel's parameters, allocates and fills its tensors, launches it, and compares the results with what
//! the kernel says that it computes:
//!
//! ```
//! use weft::{KernelFile, Options};
//! use weft_run::{RunOptions, run_file};
//!
//! let text = include_str!("../../examples/allreduce_two_shot.weft");
//! let file = KernelFile::parse("allreduce.weft", text)?;
//! let mut options = Options::new("sm_90a".parse()?);
//! options.defines.insert("N".into(), 1003.into());
//! let outcome = run_file(&file, &RunOptions::new(options, 4))?;
//! assert!(outcome.passed());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod array;
mod collective;
mod evaluated;
pub mod examine;
mod expected;
mod gpus;
mod inputs;
mod load;
mod matmul;
mod npy;
mod pe;
mod plan;
mod positions;
pub mod ptx;
pub mod reference;
mod sequence;
mod simulated;
mod tensors;

use array::ArrayError;
pub use collective::simulation;
pub use expected::Tolerance;
pub use inputs::{pes_of, show};
pub use load::Npy;
use plan::Plan;
use reference::Checked;
pub use sequence::Stage;
use sequence::{Checks, Sequence};
use simulated::Simulated;
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use weft::gpu::GpuError;
use weft::nvshmem::LinkError;
use weft::{CompileError, Compiled, KernelFile, Options};
use weft_ir::Scalar;
use weft_lang::elaborate::Define;
use weft_runtime::launch::ModuleInfo;
use weft_sim::Stats;

/// The value of a run-time scalar.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Arg {
    /// The value in the first launch.
    pub first: Define,
    /// The number that the host adds to an integer for each further launch.
    pub step: i64,
}

impl<V: Into<Define>> From<V> for Arg {
    /// The same value in all launches.
    fn from(value: V) -> Arg {
        Arg { first: value.into(), step: 0 }
    }
}

impl Arg {
    /// Parses a value of the command line; `1+2` is 1 in the first launch and grows by 2 in each
    /// further one.
    pub fn parse(text: &str) -> Option<Arg> {
        let steps = || {
            let (first, step) = text.split_once('+')?;
            Some(Arg { first: Define::Int(first.parse().ok()?), step: step.parse().ok()? })
        };
        Define::parse(text).map(Arg::from).or_else(steps)
    }

    /// Returns the value in a launch, counted from 0, or `None` if it exceeds a 64-bit integer.
    pub fn of_launch(self, launch: u32) -> Option<Define> {
        match self.first {
            Define::Int(n) => {
                self.step.checked_mul(launch.into()).and_then(|more| n.checked_add(more)).map(Define::Int)
            }
            other => Some(other),
        }
    }
}

impl fmt::Display for Arg {
    /// Formats the value for the command line: `1`, `1+2`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.step {
            0 => f.write_str(&show(self.first)),
            step => write!(f, "{}+{step}", show(self.first)),
        }
    }
}

/// The options of a run: what to run, and where.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RunOptions {
    /// The options of the compiler. Its `defines` take precedence over values that follow from
    /// data.
    pub compile: Options,
    /// The number of PEs.
    pub n_pes: usize,
    /// The number of CTAs of a PE's grid, if the kernel does not state it; 4 by default.
    pub grid: Option<[u32; 3]>,
    /// The seed of data and schedule.
    pub seed: u64,
    /// The number of launches of each kernel, which take turns.
    pub launches: u32,
    /// For the simulator: whether launches follow each other in each PE's stream without a wait of
    /// the host. A PE can then be in the next launch while others are in the one before. Results
    /// are not compared then.
    pub back_to_back: bool,
    /// The element type of the data, such as `bf16` for `uint16` files.
    pub dtype: Option<Scalar>,
    /// Pairs `(tensor, file)`: a `.npy` file with a leading PE dimension, or one file for each PE
    /// if the name has `{pe}`. An empty name is the kernel's first tensor.
    pub inputs: Vec<(String, PathBuf)>,
    /// Pairs `(tensor, file)` as in `inputs`, written after the last launch.
    pub outputs: Vec<(String, PathBuf)>,
    /// Pairs `(tensor, file)` as in `inputs`, with the expected contents of a tensor after the last
    /// launch.
    pub expected: Vec<(String, PathBuf)>,
    /// The tolerance for tensors that are compared with a file. The default is the usual one for
    /// the element type.
    pub tolerance: Option<Tolerance>,
    /// The values of run-time scalars.
    pub args: BTreeMap<String, Arg>,
    /// The number of warp instructions after which the simulator stops.
    pub step_limit: Option<u64>,
    /// The time after which a launch on simulated PEs is stopped.
    pub time_limit: Option<Duration>,
    /// For the simulator: the number of PEs in a node. It decides which branch of `Transport::Auto`
    /// runs: direct loads and stores within a node, and NVSHMEM calls between nodes, where the
    /// simulator delays transfers as a network may. If it is not given, the PEs form two nodes, so
    /// that both branches run.
    ///
    /// A given node also limits the kernel's own loads and stores: [`run`] rejects a kernel that
    /// accesses all PEs directly. Without it, loads and stores reach all PEs.
    pub node: Option<u32>,
    /// For the simulator: a flag that stops the run once it is set.
    pub stop: Option<Arc<AtomicBool>>,
    /// For the simulator: the checks. `weft::check` reports the findings; a plain run does not.
    pub check: Option<weft_sim::Check>,
    /// For the simulator: the options of a timeline.
    pub trace: Option<weft_sim::TraceConfig>,
}

weft_sim::setters!(
    RunOptions {
        compile: Options,
        n_pes: usize,
        grid: Option<[u32; 3]>,
        seed: u64,
        launches: u32,
        back_to_back: bool,
        dtype: Option<Scalar>,
        inputs: Vec<(String, PathBuf)>,
        outputs: Vec<(String, PathBuf)>,
        expected: Vec<(String, PathBuf)>,
        tolerance: Option<Tolerance>,
        args: BTreeMap<String, Arg>,
        step_limit: Option<u64>,
        time_limit: Option<Duration>,
        node: Option<u32>,
        stop: Option<Arc<AtomicBool>>,
        check: Option<weft_sim::Check>,
        trace: Option<weft_sim::TraceConfig>,
    }
);

impl RunOptions {
    /// Creates options for one launch on `n_pes` PEs with generated data.
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
            expected: Vec::new(),
            tolerance: None,
            args: BTreeMap::new(),
            step_limit: None,
            time_limit: None,
            node: None,
            stop: None,
            check: None,
            trace: None,
        }
    }

    /// The number of PEs in a simulated node.
    pub fn pes_of_node(&self) -> usize {
        self.node.map_or(self.n_pes.div_ceil(2), |n| n as usize).clamp(1, self.n_pes.max(1))
    }
}

/// The reasons why a run has no outcome.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The text does not compile.
    #[error(transparent)]
    Compile(#[from] CompileError),
    /// A file is not an array, or not the expected one.
    #[error(transparent)]
    Array(#[from] ArrayError),
    /// The request does not fit the kernel.
    #[error("{0}")]
    Request(String),
    /// The simulator cannot read the PTX.
    #[error(transparent)]
    Ptx(#[from] weft_sim::PtxError),
    /// The kernel made an error, or did not finish.
    #[error(transparent)]
    Sim(Box<weft_sim::SimError>),
    /// An error of the runtime: GPUs, their driver and NVSHMEM, or simulated PEs.
    #[error(transparent)]
    Runtime(#[from] weft_runtime::Error),
    /// NVSHMEM functions cannot be linked to the kernel.
    #[error(transparent)]
    Link(#[from] LinkError),
}

impl From<weft_sim::SimError> for RunError {
    fn from(e: weft_sim::SimError) -> RunError {
        RunError::Sim(Box::new(e))
    }
}

impl From<GpuError> for RunError {
    fn from(e: GpuError) -> RunError {
        match e {
            GpuError::Compile(e) => e.into(),
            GpuError::Describe(d) => RunError::Request(d.message),
            GpuError::Link(e) => e.into(),
            GpuError::Runtime(e) => e.into(),
            other => RunError::Request(other.to_string()),
        }
    }
}

/// The place where a run took place, with its measurements.
#[derive(Clone, Debug)]
pub enum Ran {
    /// The run took place on the simulator.
    Simulator {
        /// The counters of the last launch.
        stats: Box<Stats>,
        /// The wall time of all launches.
        time: Duration,
        /// The number of PEs in a node, if the kernel chooses at run time how it reaches a PE
        /// (`Transport::Auto`).
        node: Option<usize>,
    },
    /// The run took place on GPUs, one for each PE.
    Gpus {
        /// The name of this PE's GPU.
        gpu: String,
        /// The version of NVSHMEM, if the world has one.
        nvshmem: Option<weft_runtime::nvshmem::Version>,
        /// The reason why in-switch operations used every PE's own address, if the text did not fix
        /// the lowering.
        no_multicast: Option<String>,
        /// The time of each launch on this PE in microseconds, measured by events on its stream,
        /// including waits for other PEs.
        micros: Vec<f64>,
    },
}

/// A tensor of the run.
#[derive(Clone, Debug)]
pub struct TensorInfo {
    /// The name of the parameter.
    pub name: String,
    /// The type of the elements.
    pub dtype: Scalar,
    /// The extents on each PE.
    pub shape: Vec<u64>,
}

/// The outcome of a run.
#[derive(Debug)]
pub struct Outcome {
    /// The kernels, in the order of their launches.
    pub kernels: Vec<KernelRun>,
    /// The comparison with the numbers of each file after the last launch.
    pub expected: Vec<(String, Checked)>,
    /// The tensors of the kernels.
    pub tensors: Vec<TensorInfo>,
    /// The text that all launches printed.
    pub printed: String,
    /// The time that compilation took.
    pub compile_time: Duration,
    /// The place where the kernels ran.
    pub ran: Ran,
}

/// A kernel of a run.
#[derive(Debug)]
pub struct KernelRun {
    /// The name of the kernel.
    pub name: String,
    /// The compiled kernel, without other kernels.
    pub compiled: Compiled,
    /// The number of CTAs (x, y, z).
    pub grid: [u32; 3],
    /// The number of threads of a CTA (x, y, z).
    pub block: [u32; 3],
    /// The check of each launch, or `None` if the kernel does not state what it computes.
    pub checks: Option<Vec<Checked>>,
}

/// The verdict of the comparisons of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Every launch was compared, and all elements are right.
    Correct,
    /// An element is wrong.
    Wrong,
    /// No result was compared: the kernel does not state what it computes, another PE compares, or
    /// the launches followed each other without a wait.
    Unchecked,
}

impl Outcome {
    /// Returns all comparisons: kernel by kernel, then those with files.
    pub fn checks(&self) -> impl Iterator<Item = &Checked> {
        let launches = self.kernels.iter().flat_map(|k| k.checks.iter().flatten());
        launches.chain(self.expected.iter().map(|(_, checked)| checked))
    }

    /// The verdict that follows from the findings.
    pub fn verdict(&self) -> Verdict {
        if self.checks().any(|c| c.wrong > 0) {
            Verdict::Wrong
        } else if self.checks().next().is_none() || self.checks().any(|c| c.elements == 0) {
            Verdict::Unchecked
        } else {
            Verdict::Correct
        }
    }

    /// Whether results were compared and all are right. It is false if nothing was compared.
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
/// Fails with a [`RunError`] that gives the reason. No file is written unless all launches ended.
pub fn run(path: &Path, options: &RunOptions) -> Result<Outcome, RunError> {
    let text = weft::library::read_text(path).or_else(request)?;
    let file = KernelFile::parse(&weft::library::name_of(path), &text)?;
    run_file(&file, options)
}

/// Compiles and runs a kernel of a parsed file on the simulator.
///
/// # Errors
/// Fails where [`run`] fails.
pub fn run_file(file: &KernelFile, options: &RunOptions) -> Result<Outcome, RunError> {
    run_sequence(&[only(file, options)], options)
}

/// Compiles and runs kernels on the simulator, one after another as on a stream. Tensors and
/// parameters of equal names are shared; each kernel has its own barriers.
///
/// # Errors
/// Fails where [`run`] fails, or if tensors of equal names differ.
pub fn run_sequence(stages: &[Stage<'_>], options: &RunOptions) -> Result<Outcome, RunError> {
    let sequence = Sequence::new(stages, options)?;
    sequence.within_nodes(options)?;
    let simulated = Simulated::new(&sequence)?;
    let plan = Plan::new(&sequence, options)?;
    let checks = Mutex::<Checks>::default();
    let simulation = simulated.run(&sequence, &plan, options, &checks)?;
    let (stats, time, printed) = (Box::new(simulation.stats()), simulation.time, simulation.printed());
    simulation.result?;
    let node = sequence.tests_reach().then_some(options.pes_of_node());
    sequence.outcome(&plan, checks, printed, Ran::Simulator { stats, time, node })
}

/// Determines the parameters of a run and compiles its kernels, without running them.
///
/// # Errors
/// Fails where [`run`] fails before anything is allocated.
pub fn compile_sequence(stages: &[Stage<'_>], options: &RunOptions) -> Result<Vec<Compiled>, RunError> {
    Ok(Sequence::new(stages, options)?.stages.into_iter().map(|stage| stage.compiled).collect())
}

/// Compiles and runs kernels on the GPUs of a world, one after another. Every PE calls it; PE 0
/// checks and writes. *Collective.*
///
/// # Errors
/// Fails where [`run_sequence`] fails, or if the GPUs reject a call.
pub fn run_sequence_on_gpus(
    stages: &[Stage<'_>],
    options: &RunOptions,
    world: &weft_runtime::World,
) -> Result<Outcome, RunError> {
    gpus::run(stages, options, world)
}

/// Compiles and runs a kernel of a parsed file on the GPUs of a world; every PE calls it. PE 0 checks and writes.
/// *Collective.*
///
/// # Errors
/// Fails where [`run_sequence_on_gpus`] fails.
pub fn run_on_gpus(
    file: &KernelFile,
    options: &RunOptions,
    world: &weft_runtime::World,
) -> Result<Outcome, RunError> {
    gpus::run(&[only(file, options)], options, world)
}

/// The kernel that the options name.
fn only<'f>(file: &'f KernelFile, options: &'f RunOptions) -> Stage<'f> {
    Stage { file, kernel: options.compile.kernel.as_deref() }
}

/// The entry point of a kernel that was compiled alone.
fn entry(info: &ModuleInfo) -> &str {
    info.kernels.first().map_or("", |kernel| &kernel.name)
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
