//! Compiles the text of a kernel file to PTX, with the data that a launcher needs.

use crate::library::Files;
use crate::nvshmem::Caller;
use crate::roles::{TensorRole, assign};
use std::collections::HashSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use weft_ir::diag::{Diagnostic, Span};
use weft_ir::text::{AnyModule, ParseError, parse_any, readable};
use weft_ir::verify::{Verified, verify};
use weft_ir::{Hidden, Kernel, LaunchParam, Module, machine};
use weft_isa::{PtxVersion, Target};
use weft_lang::elaborate::{Defines, Head, Loader, Program, Reference};
use weft_lang::render::{Color, render};
use weft_lang::source::SourceMap;
use weft_passes::{Lowered, Report};
use weft_runtime::nvshmem::Version;

pub use weft_abi::{LoweringRequest as Lowering, Transport};
pub use weft_llvm::OptLevel;

/// The source of NVSHMEM's device functions that a kernel calls.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub enum Nvshmem {
    /// The PTX declares them. [`Library::join`](crate::nvshmem::Library::join) or the simulator
    /// defines them.
    #[default]
    External,
    /// Device bitcode that is found on this machine is linked in. If none is found, the functions
    /// are [external](Nvshmem::External).
    Found,
    /// The device bitcode in this file is linked in.
    At(PathBuf),
}

/// The target and the options of a compilation.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// The target, as PTX's `.target` names it.
    pub target: Target,
    /// The version of PTX, as in `.version`. By default, it is the lowest version that the code
    /// needs.
    pub ptx_version: Option<PtxVersion>,
    /// How in-switch operations are lowered. `Auto` compiles for a team with a multicast address. A
    /// launcher whose team has none compiles with `Unicast`.
    pub lowering: Lowering,
    /// The way in which remote memory operations are carried out.
    pub transport: Transport,
    /// The source of the NVSHMEM functions that remote memory operations call.
    pub nvshmem: Nvshmem,
    /// The name of the only kernel to compile. By default, all kernels are compiled.
    pub kernel: Option<String>,
    /// Values of compile-time parameters.
    pub defines: Defines,
    /// The level at which LLVM optimizes.
    pub opt: OptLevel,
    /// Whether the PTX names source lines (`.loc`).
    pub lines: bool,
    /// The number of polls after which a wait prints a message and traps. By default, waits have no
    /// limit.
    pub debug_waits: Option<u64>,
    /// Whether waits that take long report themselves to the host. The launcher fills in a
    /// parameter for the reports.
    pub watch: bool,
    /// Whether to compile the asserts of the text. If not, they have no effect.
    pub asserts: bool,
    /// Whether to keep the IR before the passes as text.
    pub keep_ir: bool,
    /// The name of a pass after which to keep the IR as text.
    pub keep_after: Option<String>,
    /// Whether to keep LLVM's IR.
    pub keep_llvm: bool,
}

weft_sim::setters!(
    Options {
        target: Target,
        ptx_version: Option<PtxVersion>,
        lowering: Lowering,
        transport: Transport,
        nvshmem: Nvshmem,
        kernel: Option<String>,
        defines: Defines,
        opt: OptLevel,
        lines: bool,
        debug_waits: Option<u64>,
        watch: bool,
        asserts: bool,
        keep_ir: bool,
        keep_after: Option<String>,
        keep_llvm: bool,
    }
);

impl Options {
    /// Makes the default options: the code is optimised and has line information, and no stage is
    /// kept.
    pub fn new(target: Target) -> Options {
        Options {
            target,
            ptx_version: None,
            lowering: Lowering::Auto,
            transport: Transport::Auto,
            nvshmem: Nvshmem::External,
            kernel: None,
            defines: Defines::new(),
            opt: OptLevel::O2,
            lines: true,
            debug_waits: None,
            watch: false,
            asserts: true,
            keep_ir: false,
            keep_after: None,
            keep_llvm: false,
        }
    }
}

/// The errors and warnings of a compilation, with the text that they refer to. `Display` renders
/// them.
#[derive(Clone, Debug)]
pub struct CompileError {
    /// All errors and warnings.
    pub diagnostics: Vec<Diagnostic>,
    sources: Arc<SourceMap>,
}

impl CompileError {
    /// Removes duplicates, because an unrolled loop gives the same finding for each iteration.
    fn new(mut diagnostics: Vec<Diagnostic>, sources: Arc<SourceMap>) -> CompileError {
        let mut seen = HashSet::new();
        diagnostics.retain(|d| seen.insert((d.code, d.span, d.message.clone())));
        CompileError { diagnostics, sources }
    }

    /// The texts that the findings refer to.
    pub fn sources(&self) -> &SourceMap {
        &self.sources
    }

    /// Renders it, with or without terminal colours.
    pub fn render(&self, color: Color) -> String {
        render(&self.diagnostics, &self.sources, color)
    }
}

impl fmt::Display for CompileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.render(Color::Never).trim_end())
    }
}

impl std::error::Error for CompileError {}

/// A parsed file with all files that it uses.
#[derive(Debug)]
pub struct KernelFile {
    sources: Arc<SourceMap>,
    program: Program,
    parse_time: Duration,
}

/// A compiled kernel file.
#[derive(Debug)]
pub struct Compiled {
    /// The PTX of all its kernels.
    pub ptx: String,
    /// The version of PTX that the text declares with `.version`.
    pub ptx_version: PtxVersion,
    /// The target that the code was compiled for.
    pub target: Target,
    /// The way in which in-switch operations are carried out.
    pub lowering: weft_abi::Lowering,
    /// The names of the NVSHMEM functions that its kernels call.
    pub functions: Vec<Arc<str>>,
    /// The version of the NVSHMEM functions that are linked in, or `None` if they are external.
    pub nvshmem: Option<Version>,
    /// The IR before the passes, with the parameters of the text.
    pub high: Verified,
    /// The IR after the passes, with the parameters of the entry points.
    pub low: machine::Verified,
    /// For each kernel, what it computes, if it says so.
    pub references: Vec<Option<Reference>>,
    /// For each kernel, its compile-time parameters.
    pub defines: Vec<Defines>,
    /// A report on each memory operation.
    pub report: Report,
    /// Warnings about code that is allowed but may be wrong.
    pub warnings: Vec<Diagnostic>,
    /// The time that each stage took, in order.
    pub timings: Vec<(String, Duration)>,
    /// The IR before the passes, if it is kept.
    pub ir: Option<String>,
    /// The IR after the requested pass, if it is kept.
    pub after: Option<String>,
    /// LLVM's IR after its passes, if it is kept.
    pub llvm: Option<String>,
    sources: Arc<SourceMap>,
}

impl KernelFile {
    /// Parses the text of a kernel file. `use` reads files below the folder of `name`.
    pub fn parse(name: &str, text: &str) -> Result<KernelFile, CompileError> {
        KernelFile::parse_with(name, text, &Files::beside(Path::new(name)))
    }

    /// Parses a text, with another source of used files.
    pub fn parse_with(name: &str, text: &str, loader: &dyn Loader) -> Result<KernelFile, CompileError> {
        let start = Instant::now();
        let mut sources = SourceMap::new();
        let root = sources.add(name, text);
        let program = Program::load(&mut sources, root, loader);
        let sources = Arc::new(sources);
        match program {
            Ok(program) => Ok(KernelFile { sources, program, parse_time: start.elapsed() }),
            Err(diagnostics) => Err(CompileError::new(diagnostics, sources)),
        }
    }

    /// The texts of the file and of all files that it uses.
    pub fn sources(&self) -> &SourceMap {
        &self.sources
    }

    /// The texts of the file, as a shared pointer.
    pub fn shared_sources(&self) -> Arc<SourceMap> {
        self.sources.clone()
    }

    /// The heads of its kernels, which say how parameters follow from data.
    pub fn heads(&self) -> Vec<Head> {
        self.program.heads()
    }

    /// Compiles the kernels of the file.
    ///
    /// # Errors
    /// Fails with all errors in the text.
    pub fn compile(&self, options: &Options) -> Result<Compiled, CompileError> {
        let start = Instant::now();
        let only = options.kernel.as_deref();
        let made = match options.asserts {
            true => self.program.compile(only, &options.defines),
            false => self.program.compile_without_asserts(only, &options.defines),
        };
        let made = made.map_err(|found| CompileError::new(found, self.sources.clone()))?;
        let timings = vec![("parse".to_owned(), self.parse_time), ("elaborate".to_owned(), start.elapsed())];
        let mut compiled = lower(made.module, options, self.sources.clone(), timings)?;
        compiled.references = made.references;
        compiled.defines = made.defines;
        Ok(compiled)
    }

    /// The metadata of one of its kernels that a launch needs, without the code.
    ///
    /// # Errors
    ///
    /// Fails if there is no such kernel, or if its head has an error.
    pub fn without_code(&self, name: &str, options: &Options) -> Result<Kernel, CompileError> {
        let made = self.program.without_code(name, &options.defines);
        made.map_err(|found| CompileError::new(found, self.sources.clone()))
    }
}

/// Compiles IR of the tensor level, made with [`Builder`](weft_ir::Builder) or read from its text
/// form.
///
/// # Errors
///
/// Fails with the errors of the verifier, the passes or the tables of the ISA.
pub fn compile_module(module: Module, options: &Options) -> Result<Compiled, CompileError> {
    let sources = sources_of(&module.files);
    let verified = verify(module).map_err(|found| CompileError::new(found, sources.clone()))?;
    lower(verified, options, sources, Vec::new())
}

/// Compiles IR of the machine level, which the passes do not change.
///
/// # Errors
///
/// Fails with the errors of the verifier or the tables of the ISA.
fn compile_machine(module: machine::Module, options: &Options) -> Result<Compiled, CompileError> {
    let sources = sources_of(&module.files);
    let error = |found| CompileError::new(found, sources.clone());
    let ir = options.keep_ir.then(|| weft_ir::text::print_module(&module));
    let module = verify(module).map_err(error)?;
    let high = verify(Module::default()).map_err(error)?;
    let lowered = Lowered { module, report: Report::default(), timings: Vec::new(), dump: None };
    emit(high, lowered, ir, options, sources.clone(), Vec::new())
}

/// Compiles the text form of IR, of the level that it names.
///
/// # Errors
/// Fails if the text is not IR, or where [`compile_module`] fails.
pub fn compile_ir(text: &str, options: &Options) -> Result<Compiled, IrError> {
    Ok(match parse_any(text)? {
        AnyModule::Tensor(module) => compile_module(module, options)?,
        AnyModule::Machine(module) => compile_machine(module, options)?,
    })
}

/// Why IR as text does not compile.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IrError {
    /// The text is not IR.
    #[error(transparent)]
    Text(#[from] ParseError),
    /// The IR does not compile.
    #[error(transparent)]
    Compile(#[from] CompileError),
}

/// The names of files whose texts are not known.
fn sources_of(files: &[Arc<str>]) -> Arc<SourceMap> {
    let mut sources = SourceMap::new();
    for name in files {
        sources.add(&**name, "");
    }
    Arc::new(sources)
}

/// Lowers verified IR to PTX through the passes.
fn lower(
    high: Verified,
    options: &Options,
    sources: Arc<SourceMap>,
    timings: Vec<(String, Duration)>,
) -> Result<Compiled, CompileError> {
    let error = |found| CompileError::new(found, sources.clone());
    let ir = options.keep_ir.then(|| weft_ir::text::print_module(&high));
    let lowering = options.lowering.decide(true);
    let mut passes = weft_passes::Options::new(lowering, options.target);
    passes.transport = options.transport;
    passes.library_pointers = options.transport == Transport::Nvshmem;
    passes.debug_waits = options.debug_waits;
    passes.watch = options.watch;
    passes.dump_after.clone_from(&options.keep_after);
    let names = sources.clone();
    passes.locate = Some(Arc::new(move |span| place(&names, span)));
    let lowered = weft_passes::run(high.clone(), &passes).map_err(|mut found| {
        if let [k] = &high.kernels[..] {
            found.iter_mut().for_each(|d| d.message = readable(k, &d.message));
        }
        error(found)
    })?;
    emit(high, lowered, ir, options, sources.clone(), timings)
}

/// Emits PTX from IR of the machine level.
fn emit(
    high: Verified,
    lowered: Lowered,
    ir: Option<String>,
    options: &Options,
    sources: Arc<SourceMap>,
    mut timings: Vec<(String, Duration)>,
) -> Result<Compiled, CompileError> {
    let error = |found| CompileError::new(found, sources.clone());
    // Warnings about the library's own files are omitted, because its users cannot change them.
    let is_own = |w: &&Diagnostic| !sources.name(w.span.file).is_some_and(|name| name.starts_with("weft::"));
    let warnings = high.warnings.iter().filter(is_own).cloned().collect();
    timings.extend(lowered.timings.iter().map(|(name, t)| ((*name).to_owned(), *t)));

    let library = library(&options.nvshmem, &lowered.module, options.target).map_err(|e| error(vec![e]))?;
    let locate = |span: Span| {
        let at = sources.line_column(span)?;
        Some(weft_llvm::Location { file: span.file, line: at.line, column: at.column })
    };
    let llvm = weft_llvm::Options::new(options.target)
        .ptx_version(options.ptx_version)
        .opt(options.opt)
        .keep_llvm(options.keep_llvm)
        .link(library.as_deref().map_or(weft_llvm::Link::External, weft_llvm::Link::Library));
    let llvm = if options.lines { llvm.locate(&locate) } else { llvm };
    let out = weft_llvm::emit(&lowered.module, &llvm).map_err(|e| error(vec![e]))?;
    timings.extend(out.timings.iter().map(|(name, t)| (format!("llvm {name}"), *t)));
    Ok(Compiled {
        ptx: out.ptx,
        ptx_version: out.version,
        target: options.target,
        lowering: options.lowering.decide(true),
        functions: out.functions,
        nvshmem: out.library.map(|[major, minor, patch]| Version::new(major, minor, patch)),
        references: vec![None; high.kernels.len()],
        defines: vec![Defines::new(); high.kernels.len()],
        high,
        low: lowered.module,
        report: lowered.report,
        warnings,
        timings,
        ir,
        after: lowered.dump,
        llvm: out.llvm,
        sources,
    })
}

/// The bitcode to link in, if a kernel calls one of its functions.
fn library(from: &Nvshmem, module: &machine::Module, target: Target) -> Result<Option<PathBuf>, Diagnostic> {
    if *from == Nvshmem::External || weft_llvm::called_functions(module).is_empty() {
        return Ok(None);
    }
    match from {
        Nvshmem::At(path) => Ok(Some(path.clone())),
        _ => {
            let found = weft_runtime::find::nvshmem_device_if_any(target.number().into());
            let found = found.map_err(|e| {
                Diagnostic::error(weft_llvm::codes::BAD_LIBRARY, Span::NONE, e.message).help(e.help)
            })?;
            Ok(found.map(|found| found.path))
        }
    }
}

impl Compiled {
    /// The functions that the PTX calls but does not define.
    pub fn external(&self) -> Vec<&str> {
        let missing = if self.nvshmem.is_none() { &self.functions[..] } else { &[] };
        missing.iter().map(|f| &**f).collect()
    }

    /// Whether a kernel tests at run time which PEs it reaches by loads and stores. It does so if
    /// [`Transport::Auto`] compiled both ways of an operation.
    pub fn tests_reach(&self) -> bool {
        let launches = self.low.kernels.iter().filter_map(|k| k.head.launch.as_ref());
        let reach = |p: &LaunchParam| matches!(p.kind, weft_abi::ParamKind::Hidden(Hidden::Reach { .. }));
        launches.flat_map(|l| &l.params).any(reach)
    }

    /// The code as a caller of NVSHMEM's functions, or `None` if it calls none.
    pub fn caller(&self) -> Option<Caller<'_>> {
        let functions = Some(self.external()).filter(|functions| !functions.is_empty())?;
        let threads = self.low.kernels.iter().map(weft_ir::machine::Kernel::threads).max().unwrap_or(0);
        Some(Caller { ptx: &self.ptx, functions, target: self.target, threads })
    }

    /// Explains the declared or guessed use of each tensor, and the instructions and width of every
    /// access, with the reason why it is not wider. Each has a line, as `weft explain` prints it.
    pub fn explain(&self) -> String {
        let mut out = self.roles();
        for a in &self.report.accesses {
            out.push_str(&format!("{}: {a}\n", self.place(a.span)));
        }
        for t in &self.report.tiles {
            out.push_str(&format!("{}: {}\n", self.place(t.span), t.fact));
        }
        for t in &self.report.transfers {
            out.push_str(&format!("{}: {t}\n", self.place(t.span)));
        }
        for l in &self.report.loops {
            let why = l.why.as_deref().map(|w| format!(": {w}")).unwrap_or_default();
            out.push_str(&format!("{}: loop: {} rounds in flight{why}\n", self.place(l.span), l.rounds));
        }
        for kernel in &self.high.kernels {
            let waits = self.report.waits.iter().filter(|w| w.kernel == kernel.name);
            for (number, wait) in waits.enumerate() {
                out.push_str(&format!("{}: wait {number}\n", wait.info));
            }
        }
        match &self.high.kernels[..] {
            [kernel] => readable(kernel, &out),
            _ => out,
        }
    }

    /// The use of each tensor of the kernels. Other parameters are omitted, because their use
    /// cannot be guessed wrongly.
    fn roles(&self) -> String {
        let mut out = String::new();
        for (i, kernel) in self.high.kernels.iter().enumerate() {
            for (p, role) in kernel.head.params.iter().zip(self.tensor_roles(i)) {
                if let Some(role) = role {
                    out.push_str(&format!("{}: parameter {}: {role}\n", self.place(p.span), p.name));
                }
            }
        }
        out
    }

    /// The roles of a kernel's parameters, by index: `None` for a parameter that is not a tensor.
    /// The result is empty if there is no such kernel.
    pub fn tensor_roles(&self, kernel: usize) -> Vec<Option<TensorRole>> {
        let reference = self.references.get(kernel).and_then(Option::as_ref);
        self.high.kernels.get(kernel).map(|k| assign(k, reference)).unwrap_or_default()
    }

    /// Makes an error about the text from `found`, for a problem that shows only after compilation.
    pub fn error(&self, found: Diagnostic) -> CompileError {
        CompileError::new(vec![found], self.sources.clone())
    }

    /// The texts that spans of the report and the warnings refer to.
    pub fn sources(&self) -> &SourceMap {
        &self.sources
    }

    /// Formats the position of a span, such as `file.weft:12`.
    pub fn place(&self, span: Span) -> String {
        place(&self.sources, span)
    }
}

fn place(sources: &SourceMap, span: Span) -> String {
    match (sources.name(span.file), sources.line_column(span)) {
        (Some(name), Some(at)) => format!("{name}:{}", at.line),
        _ => "generated code".to_owned(),
    }
}

/// Compiles a text with these values of its compile-time parameters.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use weft::Define;
/// let source = "kernel twice<N: int>(x: global<f32, (N):(1)>) block(128) {
///     let mine = partition(x, threads());
///     for i in 0..size<1>(mine) { mine[_, i] = mine[_, i] * 2; }
/// }";
/// let compiled = weft::compile(source, &[("N", Define::Int(1000))], "sm_90a".parse()?)?;
/// assert!(compiled.ptx.contains("st.global.v4"));
/// # Ok(()) }
/// ```
pub fn compile(
    source: &str,
    defines: &[(&str, weft_lang::elaborate::Define)],
    target: Target,
) -> Result<Compiled, CompileError> {
    let mut options = Options::new(target);
    options.defines = defines.iter().map(|(n, d)| ((*n).to_owned(), *d)).collect();
    KernelFile::parse("kernel.weft", source)?.compile(&options)
}
