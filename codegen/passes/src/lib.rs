//! The passes, which lower tensors, teams and reductions to the machine level that `weft-llvm`
//! takes. There is one file per pass.
//!
//! After the passes every memory op has a pointer as address and a value of at most 16 bytes. No
//! views, teams, symbolic indices or reductions remain. Values that the launcher has to provide for
//! this are hidden parameters ([`weft_ir::Hidden`]).
//!
//! The passes rely on these memory rules: distinct tensor parameters do not overlap; a tensor's
//! declared alignment and bounds are true; the counters of a team barrier belong to that barrier's
//! parameter alone.

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
#[non_exhaustive]
pub struct Options {
    /// The way in which in-switch operations are carried out.
    pub lowering: Lowering,
    /// The way in which remote memory operations are carried out.
    pub transport: Transport,
    /// Whether ranks, and peers' and multicast addresses, come from NVSHMEM's functions instead of
    /// hidden parameters.
    pub library_pointers: bool,
    /// The target that code is compiled for.
    pub target: Target,
    /// The number of polls after which a wait prints its state and traps. Without it, waits have no
    /// limit.
    pub debug_waits: Option<u64>,
    /// Whether a long wait reports itself to the host and continues to wait.
    pub watch: bool,
    /// Names a place in the source text in the messages of waits that trap: `k.weft:12`.
    pub locate: Option<Locate>,
    /// The pass after which the text of the module is stored in [`Lowered::dump`].
    pub dump_after: Option<String>,
    /// Whether the verifier runs after every pass, and not only after the last.
    pub verify_each: bool,
}

/// A function that names a place in the source text.
pub type Locate = Arc<dyn Fn(Span) -> String + Send + Sync>;

impl Options {
    /// Options with waits without limit and without a dump. In debug builds every pass is verified.
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
    /// Whether code runs between two polls of a wait, so that a single NVSHMEM function cannot be
    /// the whole wait.
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

/// A step of the lowering from tensors to the machine level.
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
        doc: "combines independent rounds of a loop into one round over wider tensors",
        run: Run::Mixed(widen::run),
    },
    Pass {
        name: "remote",
        doc: "turns operations on other PEs' memory into calls of NVSHMEM's functions, or into code at \
             the other PE's address",
        run: Run::Mixed(remote::run),
    },
    Pass {
        name: "teams",
        doc: "turns ranks into hidden parameters, and team barriers into code",
        run: Run::Mixed(teams::run),
    },
    Pass {
        name: "pipeline",
        doc: "turns pipelines into barriers in shared memory, with the bytes, arrivals and phases that \
             follow from their use",
        run: Run::Mixed(pipeline::run),
    },
    Pass {
        name: "proxies",
        doc: "inserts fences before copies that read global memory which threads have written",
        run: Run::Mixed(proxies::run),
    },
    Pass {
        name: "memory",
        doc: "turns accesses to tensors into accesses to pointers, as wide as layout, alignment and \
             bounds allow",
        run: Run::Mixed(memory::run),
    },
    Pass {
        name: "reduce",
        doc: "turns reductions among threads into shuffles and shared memory",
        run: Run::Mixed(reduce::run),
    },
    Pass {
        name: "advance",
        doc: "turns addresses that depend on a loop's variable into pointers that the loop increments",
        run: Run::Mixed(advance::run),
    },
    Pass {
        name: "watch",
        doc: "numbers waits and makes long ones report themselves, if that is requested",
        run: Run::Mixed(watch::run),
    },
    Pass {
        name: "index",
        doc: "turns symbolic integers into 64-bit arithmetic",
        run: Run::Mixed(index::run),
    },
    Pass {
        name: "settle",
        doc: "turns the remaining parameters and shared memory into addresses and numbers of the machine \
             level",
        run: Run::Settle(settle::settle),
    },
    Pass { name: "dce", doc: "removes values that are not used", run: Run::Machine(dce::run) },
];

/// A module at the machine level.
#[derive(Clone, Debug)]
pub struct Lowered {
    /// The module at the machine level.
    pub module: machine::Verified,
    /// A report on each access and tile, for `weft explain`.
    pub report: Report,
    /// The time that each pass took over all kernels, in order.
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
/// Fails with the errors of all code that cannot be lowered, or if the name of a pass does not
/// exist.
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

/// Applies a function to all kernels of a module and collects all errors.
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

/// Marks errors that the verifier finds after a pass as faults of that pass.
fn internal(found: Vec<Diagnostic>, pass: &Pass) -> Vec<Diagnostic> {
    let blame = |mut d: Diagnostic| {
        d.message = format!("after pass `{}`: {}", pass.name, d.message);
        d.help("this is a bug of warpweft: please report it with the kernel's text")
    };
    found.into_iter().map(blame).collect()
}
