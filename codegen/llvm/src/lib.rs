//! Compiles the machine level of the IR to PTX through LLVM. This is the only crate that uses LLVM.
//!
//! Its input is a verified module of the machine level: pointers, numbers, vectors and structured
//! control. Its output is PTX text.
//!
//! Where PTX leaves a result undefined, the lowering defines it:
//! - An integer `x / 0` is -1 (all bits set) and `x % 0` is `x`. The least integer divided by -1 is
//!   itself, with remainder 0.
//! - A shift count is unsigned. If it is the width or more, the result is 0, or the sign for signed
//!   right shifts.
//! - A run-time lane index beyond the last lane selects the last lane.
//! - NaN converts to the integer 0, and to `true`.
//! - A local variable is 0 until it is set.
//! - A loop's step below 1 counts as 1.
//!
//! Products and sums are never contracted (the PTX has `.rn`), and subnormal numbers are preserved
//! (there is no `.ftz`).

pub mod codes;
mod link;
mod lower;
pub mod nvshmem;
mod pipeline;
mod products;
mod raw;

pub use link::{Link, called_functions, object};
pub use pipeline::{OptLevel, passes};

use raw::{Diagnostics, Ir, Lines};
use std::collections::HashSet;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use weft_ir::diag::{Diagnostic, Span};
use weft_ir::machine::Verified;
use weft_isa::{PtxVersion, Target};

/// The version of LLVM that compiles kernels, such as (22, 1, 0). Opens LLVM's library if it is not
/// open yet.
///
/// # Errors
/// Fails if no usable library of LLVM is found (E0611).
pub fn version() -> Result<(u32, u32, u32), Diagnostic> {
    raw::open()?;
    Ok(inkwell::support::get_llvm_version())
}

/// The path of LLVM's shared library, after a kernel was compiled. It is `None` if LLVM is built
/// in.
pub fn library() -> Option<&'static Path> {
    raw::opened()
}

/// A place in a source file, for PTX's `.loc`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Location {
    /// The index into [`weft_ir::Module::files`].
    pub file: u32,
    /// The line, counted from 1.
    pub line: u32,
    /// The column, counted from 1.
    pub column: u32,
}

/// A function that finds the place of a span. It returns `None` if the span has no source text.
pub type Locate<'a> = dyn Fn(Span) -> Option<Location> + 'a;

/// The target of a compilation, and its options.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct Options<'a> {
    /// The target, which PTX names in `.target`.
    pub target: Target,
    /// The version of PTX in `.version`. By default, it is the lowest version that the target and
    /// the code need.
    pub ptx_version: Option<PtxVersion>,
    /// The level at which LLVM optimizes.
    pub opt: OptLevel,
    /// The function that finds the places of instructions for `.loc`. Without it, the PTX has no
    /// `.loc`.
    pub locate: Option<&'a Locate<'a>>,
    /// Whether the output contains LLVM's IR as text.
    pub keep_llvm: bool,
    /// The source of functions that are called.
    pub link: Link<'a>,
}

impl Options<'_> {
    /// Options for optimised code without line information.
    pub fn new(target: Target) -> Options<'static> {
        Options {
            target,
            ptx_version: None,
            opt: OptLevel::O3,
            locate: None,
            keep_llvm: false,
            link: Link::External,
        }
    }
}

impl<'a> Options<'a> {
    /// Sets the version of PTX. `None` is the lowest version that suffices.
    pub fn ptx_version(self, ptx_version: Option<PtxVersion>) -> Options<'a> {
        Options { ptx_version, ..self }
    }

    /// Sets the level at which LLVM optimizes.
    pub fn opt(self, opt: OptLevel) -> Options<'a> {
        Options { opt, ..self }
    }

    /// Sets the function that finds the places of instructions for `.loc`.
    pub fn locate(self, locate: &'a Locate<'a>) -> Options<'a> {
        Options { locate: Some(locate), ..self }
    }

    /// Chooses whether the output contains LLVM's IR as text.
    pub fn keep_llvm(self, keep_llvm: bool) -> Options<'a> {
        Options { keep_llvm, ..self }
    }

    /// Sets the source of functions that are called.
    pub fn link(self, link: Link<'a>) -> Options<'a> {
        Options { link, ..self }
    }
}

impl fmt::Debug for Options<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("target", &self.target.name())
            .field("ptx_version", &self.ptx_version)
            .field("opt", &self.opt)
            .field("lines", &self.locate.is_some())
            .field("keep_llvm", &self.keep_llvm)
            .field("link", &self.link)
            .finish()
    }
}

/// The PTX of a module, with information about the compilation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Output {
    /// The text of the PTX module.
    pub ptx: String,
    /// The version of PTX that the text declares with `.version`.
    pub version: PtxVersion,
    /// The functions of libraries that its kernels call, by name.
    pub functions: Vec<Arc<str>>,
    /// The version of NVSHMEM's device bitcode that is linked in.
    pub library: Option<[u32; 3]>,
    /// LLVM's IR before its passes, if it was requested.
    pub llvm_before: Option<String>,
    /// LLVM's IR after its passes, if it was requested.
    pub llvm: Option<String>,
    /// The time that each stage took, in order.
    pub timings: Vec<(&'static str, Duration)>,
}

/// Compiles a module to PTX.
///
/// # Errors
/// Fails at the first op that has no PTX, with its place and a code of [`codes`] or of `weft-isa`'s
/// tables. Also fails if LLVM is not found (E0611).
pub fn emit(module: &Verified, options: &Options<'_>) -> Result<Output, Diagnostic> {
    let mut clock = Clock::start();
    let context = raw::context()?;
    let diagnostics = Diagnostics::collect(&context);
    let ir = Ir::new(&context);
    let mut lines = options.locate.and_then(|_| Lines::new(&ir, &module.files));
    let mut needs = RequiredPtx::of(options)?;
    let mut names = HashSet::new();
    for kernel in &module.kernels {
        if !names.insert(&*kernel.name) || lower::TAKEN.contains(&&*kernel.name) {
            return Err(lower::unnameable(kernel));
        }
        lower::kernel(&ir, (kernel, &module.files), options, &mut needs, lines.as_mut())?;
    }
    drop(lines);
    clock.lap("lower");

    let llvm = ir.finished();
    let llvm_before = options.keep_llvm.then(|| llvm.print_to_string().to_string());
    let called = link::called_functions(module);
    let library = match options.link {
        Link::Library(path) if !called.is_empty() => {
            let library =
                link::functions(&context, &diagnostics, llvm, (path, &called), options.target, &mut needs)?;
            clock.lap("link");
            Some(library)
        }
        _ => None,
    };

    let machine = pipeline::Machine::get(options, needs.version)?;
    machine.adopt(llvm);
    clock.lap("machine");
    // The check costs as much as the lowering, and finds only faults of this crate and of LLVM.
    let check = || llvm.verify().map_err(|e| failed(e.to_string()));
    if cfg!(debug_assertions) {
        check()?;
        clock.lap("verify");
    }
    machine.optimize(llvm, library.is_some())?;
    products::widen(llvm)?;
    if cfg!(debug_assertions) {
        check()?;
    }
    if options.locate.is_some() {
        raw::restore_places(llvm);
    }
    clock.lap("optimize");
    if let Some(library) = &library {
        library.settle(llvm);
    }
    let llvm_after = options.keep_llvm.then(|| llvm.print_to_string().to_string());
    let ptx = machine.finished(llvm, &diagnostics, options.target, needs.version)?;
    clock.lap("print");
    Ok(Output {
        ptx,
        version: needs.version,
        functions: called.into_keys().collect(),
        library: library.map(|l| l.version),
        llvm_before,
        llvm: llvm_after,
        timings: clock.laps,
    })
}

/// The error for an error that LLVM reported.
fn failed(message: impl fmt::Display) -> Diagnostic {
    Diagnostic::error(codes::LLVM_FAILED, Span::NONE, format!("LLVM: {message}"))
        .help("this is a bug of warpweft: please report it with the kernel's text")
}

/// The lowest version of PTX that the code so far needs.
struct RequiredPtx {
    version: PtxVersion,
    requested: Option<PtxVersion>,
}

impl RequiredPtx {
    fn of(options: &Options<'_>) -> Result<RequiredPtx, Diagnostic> {
        let (target, requested) = (options.target, options.ptx_version);
        let mut needs = RequiredPtx { version: requested.unwrap_or(target.min_ptx()), requested };
        needs.raise(target.min_ptx(), Span::NONE, || format!("target {target}"))?;
        Ok(needs)
    }

    /// Records that something needs at least `version`.
    fn raise(
        &mut self,
        version: PtxVersion,
        span: Span,
        what: impl FnOnce() -> String,
    ) -> Result<(), Diagnostic> {
        match self.requested {
            Some(requested) if version > requested => {
                let message = format!("{} needs PTX {version}, but version {requested} is requested", what());
                Err(Diagnostic::error(codes::OLD_PTX, span, message)
                    .help(format!("request {version} or later, or omit the version")))
            }
            _ => {
                self.version = self.version.max(version);
                Ok(())
            }
        }
    }
}

/// A stopwatch that measures the time of each stage.
struct Clock {
    since: Instant,
    laps: Vec<(&'static str, Duration)>,
}

impl Clock {
    fn start() -> Clock {
        Clock { since: Instant::now(), laps: Vec::with_capacity(5) }
    }

    fn lap(&mut self, name: &'static str) {
        let now = Instant::now();
        self.laps.push((name, now - self.since));
        self.since = now;
    }
}
