//! Runs PTX that others made, as nvcc, NVRTC or Triton emit it, on the simulator.
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use weft_run::ptx::{PtxFile, PtxLaunch};
//! let file = PtxFile::parse("fill.ptx", "
//! .version 8.0 .target sm_90 .address_size 64
//! .visible .entry fill(.param .u64 out, .param .u32 value) {
//!     .reg .b32 %r<3>; .reg .b64 %rd<4>;
//!     ld.param.b64 %rd1, [out];
//!     ld.param.b32 %r1, [value];
//!     mov.u32 %r2, %tid.x;
//!     mul.wide.u32 %rd2, %r2, 4;
//!     add.s64 %rd3, %rd1, %rd2;
//!     st.global.b32 [%rd3], %r1;
//!     ret;
//! }")?;
//! let mut launch = PtxLaunch::new();
//! launch.block = Some([64, 1, 1]);
//! launch.args = vec!["empty:u32[64]".parse()?, "u32:7".parse()?];
//! let outcome = file.run(&launch)?;
//! assert!(outcome.ended.is_ok());
//! assert_eq!(outcome.memory[0][0][..4], [7, 0, 0, 0]);
//! # Ok(()) }
//! ```

mod argument;
mod machine;

pub use argument::{Argument, Fill, Tile};
pub use machine::Setup;

use crate::RunError;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use weft_ir::diag::Span;
use weft_lang::source::{LineColumn, SourceMap};
use weft_sim::{Check, CodeLocation, Finding, Kernel, Location, Module, SimError, Stats, Trace, TraceConfig};

/// The largest size of a PTX file in bytes. Linked NVSHMEM functions need a few MiB.
const MAX_BYTES: u64 = 256 << 20;

/// A PTX file that was read and decoded.
#[derive(Debug)]
pub struct PtxFile {
    name: String,
    module: Module,
    sources: Arc<SourceMap>,
}

/// A launch on every PE.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PtxLaunch {
    /// The name of the kernel, which can be omitted if the file has only one.
    pub entry: Option<String>,
    /// The number of CTAs of each PE.
    pub grid: [u32; 3],
    /// The number of threads of a CTA. If it is not given, it is that of `.reqntid`.
    pub block: Option<[u32; 3]>,
    /// The shape of a cluster in CTAs.
    pub cluster: [u32; 3],
    /// The size of dynamic shared memory in bytes.
    pub dynamic_shared: u32,
    /// The arguments in the order of the kernel's parameters.
    pub args: Vec<Argument>,
    /// The number of PEs.
    pub pes: usize,
    /// The seed of the schedule.
    pub seed: u64,
    /// The number of launches, back to back, over the same memory.
    pub launches: u32,
    /// The checks that watch the running kernel.
    pub check: Option<Check>,
    /// The options of a timeline, if one is wanted.
    pub trace: Option<TraceConfig>,
    /// The number of warp instructions after which a launch is stopped.
    pub step_limit: Option<u64>,
    /// The time after which a launch is stopped.
    pub time_limit: Option<Duration>,
}

weft_sim::setters!(
    PtxLaunch {
        entry: Option<String>,
        grid: [u32; 3],
        block: Option<[u32; 3]>,
        cluster: [u32; 3],
        dynamic_shared: u32,
        args: Vec<Argument>,
        pes: usize,
        seed: u64,
        launches: u32,
        check: Option<Check>,
        trace: Option<TraceConfig>,
        step_limit: Option<u64>,
        time_limit: Option<Duration>,
    }
);

impl PtxLaunch {
    /// Creates a launch of one CTA on one PE, without arguments.
    pub fn new() -> PtxLaunch {
        PtxLaunch {
            entry: None,
            grid: [1; 3],
            block: None,
            cluster: [1; 3],
            dynamic_shared: 0,
            args: Vec::new(),
            pes: 1,
            seed: 0,
            launches: 1,
            check: None,
            trace: None,
            step_limit: None,
            time_limit: None,
        }
    }
}

impl PtxLaunch {
    /// Returns its options on the command line, except entry, PEs, seed, grid and launches.
    pub fn words(&self) -> String {
        let dims = |[x, y, z]: [u32; 3]| format!("{x},{y},{z}");
        let block = self.block.map(|b| format!(" --block {}", dims(b)));
        let cluster = Some(self.cluster).filter(|c| *c != [1; 3]).map(|c| format!(" --cluster {}", dims(c)));
        let smem = Some(self.dynamic_shared).filter(|n| *n > 0).map(|n| format!(" --smem {n}"));
        let args = self.args.iter().map(|a| format!(" --arg '{a}'"));
        block.into_iter().chain(cluster).chain(smem).chain(args).collect()
    }
}

impl Default for PtxLaunch {
    fn default() -> Self {
        PtxLaunch::new()
    }
}

/// The outcome of a launch of PTX.
#[derive(Debug)]
pub struct PtxOutcome {
    /// The counters of the last launch, or the error that stopped it.
    pub ended: Result<Stats, SimError>,
    /// The findings of the checks, each with its element, such as `x[3, 17]`.
    pub findings: Vec<(Finding, Option<String>)>,
    /// The memory of each argument on each PE, which is empty for arguments that are not memory.
    pub memory: Vec<Vec<Vec<u8>>>,
    /// The text that all launches printed.
    pub printed: String,
    /// The timeline, if one was wanted.
    pub trace: Trace,
    /// The wall time of all launches.
    pub time: Duration,
}

impl PtxFile {
    /// Reads a PTX file.
    ///
    /// # Errors
    /// Fails if the file cannot be read, is not text, or is not PTX that the simulator executes.
    pub fn read(path: &Path) -> Result<PtxFile, RunError> {
        let text = weft::library::read_text_of(path, MAX_BYTES, ".ptx").map_err(RunError::Request)?;
        PtxFile::parse(&weft::library::name_of(path), &text)
    }

    /// Reads and checks a PTX text.
    ///
    /// # Errors
    /// Fails if the text is not PTX that the simulator executes.
    pub fn parse(name: &str, text: &str) -> Result<PtxFile, RunError> {
        let module = Module::parse(text)?;
        let mut sources = SourceMap::new();
        sources.add(name, text);
        Ok(PtxFile { name: name.to_owned(), module, sources: Arc::new(sources) })
    }

    /// The name of the file in messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The module with the file's kernels.
    pub fn module(&self) -> &Module {
        &self.module
    }

    /// Returns the kernel of that name, or the only one.
    ///
    /// # Errors
    /// Fails if there is no kernel, or if there are several to choose from.
    pub fn kernel(&self, name: Option<&str>) -> Result<&Kernel, RunError> {
        let all = self.module.kernels();
        let names = || all.iter().map(|k| &*k.name).collect::<Vec<_>>().join(", ");
        let bad = |message| Err(RunError::Request(message));
        match (all, name) {
            ([one], None) => Ok(one),
            ([], _) => bad(format!("{} has no kernel (.entry)", self.name)),
            (_, Some(n)) => match self.module.kernel(n) {
                Some(k) => Ok(k),
                None => bad(format!("{} has no kernel `{n}`; it has {}", self.name, names())),
            },
            (_, None) => {
                bad(format!("{} has several kernels; choose one with --entry: {}", self.name, names()))
            }
        }
    }

    /// Returns its text, for messages with source locations.
    pub fn sources(&self) -> Arc<SourceMap> {
        self.sources.clone()
    }

    /// Returns the line of a thread's location.
    pub fn span(&self, place: &CodeLocation) -> Span {
        let text = self.sources.text(0).unwrap_or_default();
        let line = text.lines().nth((place.ptx_line as usize).saturating_sub(1)).unwrap_or_default();
        let column = line.chars().take_while(|c| c.is_whitespace()).count() as u32 + 1;
        self.sources.span_at(0, LineColumn { line: place.ptx_line, column }).unwrap_or(Span::NONE)
    }

    /// Runs a kernel on every PE at once, and reads back the memory of its arguments. Files are
    /// read, but not written.
    ///
    /// # Errors
    /// Fails if the kernel cannot be launched: the arguments do not fit the parameters, or files or
    /// sizes are wrong.
    pub fn run(&self, launch: &PtxLaunch) -> Result<PtxOutcome, RunError> {
        Setup::new(self, launch)?.run(launch.seed)
    }

    /// Runs the kernel, and writes the output files of its arguments if the launch ended. Also
    /// returns a line about each file.
    ///
    /// # Errors
    /// Fails where [`run`](Self::run) fails, or if files cannot be written.
    pub fn run_and_write(&self, launch: &PtxLaunch) -> Result<(PtxOutcome, Vec<String>), RunError> {
        let setup = Setup::new(self, launch)?;
        let outcome = setup.run(launch.seed)?;
        let written = if outcome.ended.is_ok() { setup.write(&outcome)? } else { Vec::new() };
        Ok((outcome, written))
    }
}

/// The element of an argument's memory that a finding is about.
fn element(shape: &[u64], bytes: u64, location: &Location) -> Option<String> {
    let mut rest = location.offset.checked_div(bytes)?;
    let mut at = Vec::new();
    for n in shape.iter().rev() {
        at.push((rest.checked_rem(*n)?).to_string());
        rest /= n;
    }
    at.reverse();
    let element = format!("{}[{}]", location.name, at.join(", "));
    Some(if location.bytes > bytes { format!("{} bytes from {element}", location.bytes) } else { element })
}
