//! IR to IR: from tensors, teams and reductions to the machine level that `weft-llvm` takes, one file a pass.
//!
//! After the passes every memory op's place is a pointer and its value no wider than 16 bytes; no view, team,
//! symbolic index or reduction is left. What the launcher has to fill in for that stands in hidden parameters
//! ([`weft_ir::Hidden`]).
//!
//! Memory rules that the passes rely on: distinct tensor parameters do not overlap; a tensor's declared alignment and
//! bounds are true; counters of a team barrier belong to that barrier's parameter alone.

mod advance;
mod cluster;
pub mod codes;
mod dce;
mod edit;
mod hidden;
mod index;
mod launch;
mod memory;
mod pipeline;
mod pointers;
mod proxies;
mod reduce;
mod remote;
mod report;
mod settle;
mod teams;
mod tiles;
mod watch;
mod widen;

pub use report::{Access, Cover, Instr, Moved, Narrow, Pieces, Report, Transfer, Widened};
pub use tiles::{Copy, Fact, Product, Tiled};
pub use watch::Wait;
pub use weft_abi::{Lowering, Transport};

use codes::NO_SUCH_PASS;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};
use weft_ir::diag::{Diagnostic, Span};
use weft_ir::kernel::{Kernel, Module};
use weft_ir::verify::verify;
use weft_ir::{Launch, Level, machine, mixed, tensor, text};
use weft_isa::Target;

/// The options of the passes.
#[derive(Clone)]
pub struct Options {
    /// The way in which in-switch operations are carried out.
    pub lowering: Lowering,
    /// The way in which remote memory operations are carried out.
    pub transport: Transport,
    /// Whether ranks, and peers' and multicast addresses, come from NVSHMEM's functions, not from hidden parameters.
    pub library_pointers: bool,
    /// The target that code is compiled for.
    pub target: Target,
    /// Polls after which a wait gives up, prints who waits for what, and traps; none waits for ever.
    pub debug_waits: Option<u64>,
    /// Whether a wait that takes long reports itself to the host, and goes on waiting.
    pub watch: bool,
    /// Names a place in the text in the messages of waits that give up: `k.weft:12`.
    pub locate: Option<Locate>,
    /// The pass whose result is wanted as text in [`Lowered::dump`].
    pub dump_after: Option<String>,
    /// Verify after every pass, not only after the last.
    pub verify_each: bool,
}

/// Names a place in the text.
pub type Locate = Arc<dyn Fn(Span) -> String + Send + Sync>;

impl Options {
    /// Plain options: waits without end, no dump; every pass is verified in debug builds.
    pub fn new(lowering: Lowering, target: Target) -> Options {
        Options {
            lowering,
            transport: Transport::Auto,
            library_pointers: false,
            target,
            debug_waits: None,
            watch: false,
            locate: None,
            dump_after: None,
            verify_each: cfg!(debug_assertions),
        }
    }
}

impl Options {
    /// Whether code stands between two polls of a wait, so that no function of NVSHMEM's can do all of it.
    pub(crate) fn bounds_waits(&self) -> bool {
        self.debug_waits.is_some() || self.watch
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("lowering", &self.lowering)
            .field("transport", &self.transport)
            .field("library_pointers", &self.library_pointers)
            .field("target", &self.target)
            .field("debug_waits", &self.debug_waits)
            .field("watch", &self.watch)
            .field("dump_after", &self.dump_after)
            .field("verify_each", &self.verify_each)
            .finish_non_exhaustive()
    }
}

/// The function of a pass, by the levels that it works on.
#[derive(Clone, Copy)]
pub enum Run {
    /// The pass replaces ops of the tensor level, step by step.
    Mixed(fn(mixed::Kernel, &Options, &mut Report) -> Result<mixed::Kernel, Vec<Diagnostic>>),
    /// The pass brings the kernel to the machine level.
    Settle(fn(&mixed::Kernel, Launch) -> Result<machine::Kernel, Vec<Diagnostic>>),
    /// The pass improves machine code.
    Machine(fn(machine::Kernel) -> machine::Kernel),
}

/// One step from tensors to machine level.
#[derive(Clone, Copy)]
pub struct Pass {
    /// The name of the pass, as in `--emit after:NAME`.
    pub name: &'static str,
    /// One line that says what the pass does.
    pub doc: &'static str,
    /// The function that carries out the pass.
    pub run: Run,
}

/// Every pass, in the order in which they run.
pub const PASSES: &[Pass] = &[
    Pass {
        name: "widen",
        doc: "rounds of a loop that cannot disturb each other become one round over wider tensors",
        run: Run::Mixed(widen::run),
    },
    Pass {
        name: "remote",
        doc: "operations on other PEs' memory become calls of NVSHMEM's functions, or code at the other PE's address",
        run: Run::Mixed(remote::run),
    },
    Pass {
        name: "teams",
        doc: "ranks become hidden parameters, team barriers become code",
        run: Run::Mixed(teams::run),
    },
    Pass {
        name: "pipeline",
        doc: "pipelines become barriers in shared memory, with the bytes, arrivals and phases that follow from their use",
        run: Run::Mixed(pipeline::run),
    },
    Pass {
        name: "proxies",
        doc: "copies see what threads wrote to global memory: fences before them where the CTA has learned of writes",
        run: Run::Mixed(proxies::run),
    },
    Pass {
        name: "memory",
        doc: "accesses to tensors become accesses to pointers, as wide as layout, alignment and bounds allow",
        run: Run::Mixed(memory::run),
    },
    Pass {
        name: "reduce",
        doc: "reductions among threads become shuffles and shared memory",
        run: Run::Mixed(reduce::run),
    },
    Pass {
        name: "advance",
        doc: "addresses that a loop's variable moves become pointers that the loop moves",
        run: Run::Mixed(advance::run),
    },
    Pass {
        name: "watch",
        doc: "waits get numbers and report themselves where they take long, if that is asked for",
        run: Run::Mixed(watch::run),
    },
    Pass { name: "index", doc: "symbolic integers become 64-bit arithmetic", run: Run::Mixed(index::run) },
    Pass {
        name: "settle",
        doc: "what is left of parameters and shared memory becomes addresses and numbers: the machine level",
        run: Run::Settle(settle::settle),
    },
    Pass { name: "dce", doc: "values that nobody uses go", run: Run::Machine(dce::run) },
];

/// A module at the machine level.
#[derive(Clone, Debug)]
pub struct Lowered {
    /// The module at the machine level.
    pub module: machine::Verified,
    /// A report on each access, for `weft explain`.
    pub report: Report,
    /// Time each pass took over all kernels, in order.
    pub timings: Vec<(&'static str, Duration)>,
    /// The text of the module after [`Options::dump_after`].
    pub dump: Option<String>,
}

/// A module between two passes.
enum Stage {
    Mixed(mixed::Module),
    Machine(machine::Module),
}

impl Stage {
    fn apply(
        self,
        run: Run,
        options: &Options,
        launches: &mut Vec<Launch>,
        report: &mut Report,
    ) -> Result<Stage, Vec<Diagnostic>> {
        match (self, run) {
            (Stage::Mixed(m), Run::Mixed(run)) => {
                each_kernel(m, |k| run(k, options, report)).map(Stage::Mixed)
            }
            (Stage::Mixed(m), Run::Settle(run)) => {
                let mut launches = launches.drain(..);
                each_kernel(m, |k| run(&k, launches.next().unwrap_or_default())).map(Stage::Machine)
            }
            (Stage::Machine(m), Run::Machine(run)) => each_kernel(m, |k| Ok(run(k))).map(Stage::Machine),
            (stage, _) => Ok(stage),
        }
    }

    fn verified(self) -> Result<Stage, Vec<Diagnostic>> {
        match self {
            Stage::Mixed(m) => verify(m).map(|m| Stage::Mixed(m.into_module())),
            Stage::Machine(m) => verify(m).map(|m| Stage::Machine(m.into_module())),
        }
    }

    fn text(&self) -> String {
        match self {
            Stage::Mixed(m) => text::print_module(m),
            Stage::Machine(m) => text::print_module(m),
        }
    }
}

/// Runs all passes on a module.
///
/// # Errors
/// Fails with everything that has no machine form and its place, or if a pass name does not exist.
pub fn run(module: tensor::Verified, options: &Options) -> Result<Lowered, Vec<Diagnostic>> {
    if let Some(name) = options.dump_after.as_deref()
        && !PASSES.iter().any(|p| p.name == name)
    {
        let names: Vec<_> = PASSES.iter().map(|p| p.name).collect();
        let d = Diagnostic::error(NO_SUCH_PASS, Span::NONE, format!("there is no pass `{name}`"));
        return Err(vec![d.help(format!("the passes are {}", names.join(", ")))]);
    }
    let module = module.into_module();
    let mut launches = Vec::new();
    for kernel in &module.kernels {
        launches.push(launch::describe(kernel)?);
    }
    let mut stage = Stage::Mixed(module.into());
    let mut report = Report::default();
    let mut timings = Vec::with_capacity(PASSES.len());
    let mut dump = None;
    for pass in PASSES {
        let start = Instant::now();
        stage = stage.apply(pass.run, options, &mut launches, &mut report)?;
        timings.push((pass.name, start.elapsed()));
        if options.verify_each {
            stage = stage.verified().map_err(|found| internal(found, pass))?;
        }
        if options.dump_after.as_deref() == Some(pass.name) {
            dump = Some(stage.text());
        }
    }
    let last = &PASSES[PASSES.len() - 1];
    let module = match stage {
        Stage::Machine(module) => verify(module).map_err(|found| internal(found, last))?,
        Stage::Mixed(_) => {
            let d = Diagnostic::error(codes::NO_ADDRESS, Span::NONE, "no pass reaches the machine level");
            return Err(internal(vec![d], last));
        }
    };
    for kernel in &module.kernels {
        report.tiles.extend(tiles::of_launch(kernel, options.target));
    }
    Ok(Lowered { module, report, timings, dump })
}

/// Works on all kernels of a module; all errors at once.
fn each_kernel<A: Level, B: Level>(
    module: Module<A>,
    mut run: impl FnMut(Kernel<A>) -> Result<Kernel<B>, Vec<Diagnostic>>,
) -> Result<Module<B>, Vec<Diagnostic>> {
    let (mut kernels, mut errors) = (Vec::new(), Vec::new());
    for kernel in module.kernels {
        match run(kernel) {
            Ok(k) => kernels.push(k),
            Err(found) => errors.extend(found),
        }
    }
    if errors.is_empty() { Ok(Module { kernels, files: module.files }) } else { Err(errors) }
}

/// What the verifier finds after a pass is that pass's fault: say so.
fn internal(found: Vec<Diagnostic>, pass: &Pass) -> Vec<Diagnostic> {
    let blame = |mut d: Diagnostic| {
        d.message = format!("after pass `{}`: {}", pass.name, d.message);
        d.help("this is a bug of warpweft: please report it with the kernel's text")
    };
    found.into_iter().map(blame).collect()
}
