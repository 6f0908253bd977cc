//! The `weft` command. Each subcommand has one file.

mod bench;
mod check;
mod compile;
mod doctor;
mod explain;
mod fmt;
mod fused;
mod gemm;
mod gemm_comm;
mod layout;
mod lsp;
mod moe;
mod new;
mod progress;
mod report;
mod run;
mod setup;
mod shell;
mod sim;
mod trace;
mod tune;
mod verbosity;

use anyhow::{Context, Result, anyhow};
use clap::{Args, Parser, Subcommand, ValueEnum};
use progress::Spinner;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use verbosity::Verbosity;
use weft::gemm::Form;
use weft::lang::render::Color;
use weft::library::Files;
use weft::{CompileError, IrError, KernelFile, Lowering, Nvshmem, OptLevel, Options, Transport};
use weft::{Define, Defines, PtxVersion, Target};
use weft_run::{Arg, RunError, Stage};
use weft_runtime::owned::{self, Trust};
use weft_runtime::{find, visible};

/// Compiler for GPU kernels that compute and communicate in one launch.
#[derive(Parser)]
#[command(name = "weft", version, max_term_width = 110)]
struct Cli {
    #[command(flatten)]
    verbosity: Verbosity,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Create a folder with a kernel, a host program in Rust or Python that runs it, and a test.
    New(new::New),
    /// Compile a kernel file to IR, LLVM IR, PTX, cubin or SASS.
    Compile(compile::Compile),
    /// Compile a kernel file, run it on many PEs over .npy files or generated data, and check the
    /// result.
    Run(run::Run),
    /// Search a kernel file for races, deadlocks and wrong results, over many sizes and schedules,
    /// on simulated PEs.
    Check(check::Check),
    /// Time and check collectives on GPUs, and compare them with those of other libraries. The
    /// results are a table like that of nccl-tests, JSON and CSV.
    Bench(Bench),
    /// Measure the fastest plans of warpweft's collectives on this machine, and store them for
    /// later calls.
    Tune(Tune),
    /// Run PTX of other compilers (nvcc, NVRTC, Triton) on the simulator: `weft sim k.ptx --grid 8
    /// --arg npy:x.npy ...`.
    Sim(sim::Sim),
    /// Evaluate layout algebra: `weft layout 'composition((4,(2,2)):(1,(8,4)),(2,4):(4,1))'`.
    Layout(layout::LayoutCommand),
    /// Show the instructions of each access of a kernel, or the meaning of an error code.
    Explain(explain::Explain),
    /// Write a page that shows a kernel at every level: source, IR, PTX, SASS, layouts, traffic,
    /// timeline and findings.
    Report(report::Report),
    /// Format kernel files: `weft fmt`, or `weft fmt --check` to list the files that are not
    /// formatted.
    Fmt(fmt::Fmt),
    /// Run the language server of kernel files for an editor.
    Lsp(lsp::Lsp),
    /// Print the shell completions for this command.
    Completions(shell::Completions),
    /// Print the manual page of this command, or write those of all subcommands to a folder.
    Man(shell::Man),
    /// Examine this machine (compiler, GPUs and their links, NVSHMEM, tools), and show what is
    /// missing and what to do.
    Doctor(doctor::Doctor),
    /// Fetch NVSHMEM, ptxas and nvdisasm with pip into your cache folder, where every command finds them.
    Setup(setup::Setup),
}

/// An operation by its name, or a benchmark with its own options.
#[derive(Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
struct Bench {
    #[command(subcommand)]
    other: Option<OtherBench>,
    #[command(flatten)]
    operation: Option<bench::BenchCommand>,
}

#[derive(Subcommand)]
enum OtherBench {
    /// Time a fused allreduce, residual add and RMSNorm, and compare it with an allreduce
    /// (warpweft's or a peer's) that is followed by a kernel.
    FusedAllreduceRmsnorm(fused::Fused),
    /// Time GEMMs on one GPU, and compare them with cuBLASLt: `weft bench gemm --against cublas`.
    Gemm(gemm::BenchGemm),
    /// Time a fused GEMM + reduce-scatter, and compare it with cuBLASLt's GEMM and a collective.
    #[command(name = "gemm-reducescatter")]
    GemmReduceScatter(gemm_comm::GemmComm),
    /// Time a fused GEMM + allreduce, and compare it with cuBLASLt's GEMM and a collective.
    #[command(name = "gemm-allreduce")]
    GemmAllReduce(gemm_comm::GemmComm),
    /// Time a fused all-gather + GEMM, and compare it with a collective and cuBLASLt's GEMM.
    #[command(name = "allgather-gemm")]
    AllGatherGemm(gemm_comm::GemmComm),
    /// Time a fused GEMM + all-to-all, and compare it with cuBLASLt's GEMM and a collective.
    #[command(name = "gemm-alltoall")]
    GemmAllToAll(gemm_comm::GemmComm),
    /// Time dispatch, experts and combine, and compare them with NCCL's all-to-alls and cuBLASLt's
    /// GEMMs.
    Moe(moe::BenchMoe),
}

/// Collectives, or a tuning with its own options.
#[derive(Args)]
#[command(args_conflicts_with_subcommands = true)]
struct Tune {
    #[command(subcommand)]
    other: Option<OtherTune>,
    #[command(flatten)]
    collectives: tune::TuneCommand,
}

#[derive(Subcommand)]
enum OtherTune {
    /// Find the fastest ways to compute allreduce, residual add and RMSNorm, by number of tokens, and
    /// store them.
    FusedAllreduceRmsnorm(fused::TuneFused),
    /// Find the fastest plans of GEMMs on one GPU, by shape, and store them.
    Gemm(gemm::TuneGemm),
    /// Find the fastest ways to compute GEMM + reduce-scatter, by shape, and store them.
    #[command(name = "gemm-reducescatter")]
    GemmReduceScatter(gemm_comm::TuneGemmComm),
    /// Find the fastest ways to compute GEMM + allreduce, by shape, and store them.
    #[command(name = "gemm-allreduce")]
    GemmAllReduce(gemm_comm::TuneGemmComm),
    /// Find the fastest ways to compute all-gather + GEMM, by shape, and store them.
    #[command(name = "allgather-gemm")]
    AllGatherGemm(gemm_comm::TuneGemmComm),
    /// Find the fastest ways to compute GEMM + all-to-all, by shape, and store them.
    #[command(name = "gemm-alltoall")]
    GemmAllToAll(gemm_comm::TuneGemmComm),
}

impl Tune {
    fn run(&self) -> Result<ExitCode> {
        match &self.other {
            Some(OtherTune::FusedAllreduceRmsnorm(fused)) => fused.run(),
            Some(OtherTune::Gemm(gemm)) => gemm.run(),
            Some(OtherTune::GemmReduceScatter(tune)) => tune.run(Form::ReduceScatter),
            Some(OtherTune::GemmAllReduce(tune)) => tune.run(Form::AllReduce),
            Some(OtherTune::AllGatherGemm(tune)) => tune.run(Form::AllGather),
            Some(OtherTune::GemmAllToAll(tune)) => tune.run(Form::AllToAll),
            None => self.collectives.run(),
        }
    }
}

impl Bench {
    fn run(&self) -> Result<ExitCode> {
        match (&self.other, &self.operation) {
            (Some(OtherBench::FusedAllreduceRmsnorm(fused)), _) => fused.run(),
            (Some(OtherBench::Gemm(gemm)), _) => gemm.run(),
            (Some(OtherBench::GemmReduceScatter(bench)), _) => bench.run(Form::ReduceScatter),
            (Some(OtherBench::GemmAllReduce(bench)), _) => bench.run(Form::AllReduce),
            (Some(OtherBench::AllGatherGemm(bench)), _) => bench.run(Form::AllGather),
            (Some(OtherBench::GemmAllToAll(bench)), _) => bench.run(Form::AllToAll),
            (Some(OtherBench::Moe(bench)), _) => bench.run(),
            (None, Some(operation)) => operation.run(),
            (None, None) => {
                Err(anyhow!("the operation to measure is missing: `weft bench --help` lists the operations"))
            }
        }
    }
}

/// Keeps LLVM's library for the time after its Rust toolchain is removed. A hard link in this
/// user's cache folder, which needs no space, gives the file a second name. The library is also
/// searched there.
fn keep_llvm() {
    let Some(path) = weft_llvm::library() else { return };
    let Some((folder, name)) = find::cache_folder().map(|cache| cache.join("llvm")).zip(path.file_name())
    else {
        return;
    };
    let in_toolchain = path.components().any(|part| part.as_os_str() == "toolchains");
    if in_toolchain && !folder.join(name).exists() && owned::make_folder(&folder, Trust::Owner).is_ok() {
        // On another file system the link fails. Then the later error for a missing library says
        // what to do.
        let _ = path.canonicalize().and_then(|file| std::fs::hard_link(file, folder.join(name)));
    }
}

/// Runs the command with these words, of which the first is the program's name. The process ends at
/// a usage error and at `--help`.
pub fn run(words: impl IntoIterator<Item = impl Into<OsString> + Clone>) -> ExitCode {
    let (cli, start) = (Cli::parse_from(words), Instant::now());
    cli.verbosity.choose();
    let result = match cli.command {
        Command::New(n) => n.run(),
        Command::Compile(c) => c.run(),
        Command::Run(r) => r.run(),
        Command::Check(c) => Ok(c.run()),
        Command::Bench(b) => b.run(),
        Command::Tune(t) => t.run(),
        Command::Sim(s) => Ok(s.run()),
        Command::Layout(l) => l.run(),
        Command::Explain(e) => e.run(),
        Command::Report(r) => r.run(),
        Command::Fmt(f) => f.run(),
        Command::Lsp(l) => l.run(),
        Command::Completions(c) => c.run(),
        Command::Man(m) => m.run(),
        Command::Doctor(d) => d.run(),
        Command::Setup(s) => s.run(),
    };
    let code = result.unwrap_or_else(|e| {
        report(&e);
        ExitCode::FAILURE
    });
    keep_llvm();
    let mut err = std::io::stderr().lock();
    for why in owned::refusals().iter().filter(|_| !verbosity::quiet()) {
        let _ = writeln!(err, "note: {}", visible(why));
    }
    if verbosity::verbose() {
        let _ = writeln!(err, "{:<16} {:>9.3} s", "whole command", start.elapsed().as_secs_f64());
    }
    code
}

/// Prints a note to standard error.
fn note(text: &str) {
    // If standard error is closed, the note has no reader.
    let _ = writeln!(std::io::stderr(), "note: {}", visible(text));
}

/// Prints an error: a compile error with its source, and other errors in one line. A closed pipe is
/// not an error.
fn report(e: &anyhow::Error) {
    if e.chain().any(|c| {
        c.downcast_ref::<std::io::Error>().is_some_and(|e| e.kind() == std::io::ErrorKind::BrokenPipe)
    }) {
        return;
    }
    let run = e.chain().find_map(|c| c.downcast_ref::<RunError>());
    let compile = match run {
        Some(RunError::Compile(e)) => Some(e),
        _ => e.chain().find_map(|c| c.downcast_ref::<CompileError>()),
    };
    if let Some(RunError::Sim(e)) = run {
        // If standard output is closed, the text has no reader.
        let _ = std::io::stdout().write_all(visible(&e.printed).as_bytes());
    }
    let mut err = std::io::stderr().lock();
    let text = message(e);
    // If standard error is closed, the text has no reader.
    let _ = match compile {
        Some(c) => write!(err, "{}", c.render(color(&err))),
        None => writeln!(err, "{text}"),
    };
}

/// Formats an error in one line, or with its own format if it has a code.
fn message(e: &anyhow::Error) -> String {
    let text = visible(&format!("{e:#}")).into_owned();
    if text.starts_with("error[") { text } else { format!("error: {text}") }
}

fn color(stream: &impl IsTerminal) -> Color {
    let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    let wanted = stream.is_terminal() && std::env::var_os("NO_COLOR").is_none() && !dumb;
    if wanted { Color::Always } else { Color::Never }
}

/// Limits of simulated launches.
#[derive(Args)]
struct Limits {
    /// The number of warp instructions after which a simulated launch stops.
    #[arg(long, value_name = "N")]
    max_steps: Option<u64>,
    /// The time in seconds after which a simulated launch stops. 0 means no limit.
    #[arg(long, value_name = "SECONDS", default_value = "40")]
    time_limit: f64,
}

impl Limits {
    fn time(&self) -> Result<Option<Duration>> {
        if self.time_limit == 0.0 {
            return Ok(None);
        }
        let limit = Duration::try_from_secs_f64(self.time_limit);
        limit.map(Some).map_err(|e| anyhow!("--time-limit {}: {e}", self.time_limit))
    }
}

/// The options of every command that compiles.
#[derive(Args)]
struct CompileArgs {
    /// The kernel file, or a kernel of it as FILE:KERNEL.
    #[arg(value_name = "FILE")]
    file: KernelPath,
    /// The kernel, if the file has several.
    #[arg(long)]
    kernel: Option<String>,
    /// The folder that contains the files of `use`. The default is the kernel file's folder.
    #[arg(long, value_name = "FOLDER")]
    root: Option<PathBuf>,
    /// A compile-time parameter: -D N=1048576 -D T=bf16
    #[arg(short = 'D', value_name = "NAME=VALUE")]
    define: Vec<String>,
    /// The target architecture. The default is sm_90a, or that of the GPU that runs the kernel.
    #[arg(long)]
    arch: Option<String>,
    /// The PTX version, such as 8.6. The default is the lowest version that suffices.
    #[arg(long)]
    ptx_version: Option<String>,
    /// How in-switch operations are compiled.
    #[arg(long, value_enum, default_value = "auto")]
    lowering: LoweringArg,
    /// How put, get, signals and atomics reach another PE.
    #[arg(long, value_enum, default_value = "auto")]
    transport: TransportArg,
    /// NVSHMEM's device bitcode for the functions that the kernel calls, as a file or an
    /// installation. `extern` leaves the functions external, for another object to define. By
    /// default, they are linked if NVSHMEM is found, and otherwise stay external. Only `weft
    /// compile` links. Runs and checks on simulated PEs use the external form.
    #[arg(long, value_name = "PATH|extern")]
    nvshmem: Option<PathBuf>,
    /// LLVM's optimisation level.
    #[arg(short = 'O', default_value = "2", value_parser = clap::value_parser!(u8).range(0..=3))]
    opt: u8,
    /// Limit every wait to this number of polls. After that, print the waits and trap.
    #[arg(long, value_name = "POLLS")]
    debug_waits: Option<u64>,
    /// Make every long wait report itself to the host, as WEFT_WATCH=1 does for kernels on GPUs.
    #[arg(long)]
    watch: bool,
    /// Compile the kernel without its asserts.
    #[arg(long)]
    no_assert: bool,
}

/// A kernel file, optionally with the name of one of its kernels: `FILE`, `FILE:KERNEL`.
#[derive(Clone, Debug)]
struct KernelPath {
    path: PathBuf,
    kernel: Option<String>,
}

impl From<&str> for KernelPath {
    /// The text after the last colon is a kernel, unless a file with the whole name exists.
    fn from(text: &str) -> KernelPath {
        let is_name = |s: &str| !s.is_empty() && s.chars().all(|c| c.is_alphanumeric() || c == '_');
        match text.rsplit_once(':').filter(|(path, name)| !path.is_empty() && is_name(name)) {
            Some((path, name)) if !Path::new(text).exists() => {
                KernelPath { path: path.into(), kernel: Some(name.to_owned()) }
            }
            _ => KernelPath { path: text.into(), kernel: None },
        }
    }
}

impl KernelPath {
    /// Parses the file. The files that it uses are below `root`, or below its own folder.
    fn parse(&self, root: Option<&Path>) -> Result<KernelFile> {
        let text = weft::library::read_text(&self.path).map_err(|e| anyhow!(e))?;
        let name = weft::library::name_of(&self.path);
        let files = root.map_or_else(|| Files::beside(Path::new(&name)), Files::below);
        Ok(KernelFile::parse_with(&name, &text, &files)?)
    }
}

#[derive(Clone, Copy, ValueEnum)]
enum LoweringArg {
    /// Use the switch if the team has a multicast address, and unicast otherwise.
    Auto,
    /// Use multimem instructions.
    Multimem,
    /// Use loads, stores and reductions at every PE's own address.
    Unicast,
}

impl From<LoweringArg> for Lowering {
    fn from(asked: LoweringArg) -> Lowering {
        match asked {
            LoweringArg::Auto => Lowering::Auto,
            LoweringArg::Multimem => Lowering::Multimem,
            LoweringArg::Unicast => Lowering::Unicast,
        }
    }
}

#[derive(Clone, Copy, ValueEnum)]
enum TransportArg {
    /// Use direct loads and stores if they reach the PE, and otherwise NVSHMEM calls. The choice is
    /// made at run time.
    Auto,
    /// Use NVSHMEM functions, also for ranks and addresses.
    Nvshmem,
    /// Use direct loads and stores, without calls.
    P2p,
}

impl From<TransportArg> for Transport {
    fn from(asked: TransportArg) -> Transport {
        match asked {
            TransportArg::Auto => Transport::Auto,
            TransportArg::Nvshmem => Transport::Nvshmem,
            TransportArg::P2p => Transport::P2p,
        }
    }
}

/// Prints warnings unless they are suppressed, and the times of the stages if they are requested.
fn warn(compiled: &weft::Compiled) -> Result<()> {
    if verbosity::verbose() {
        compile::times(compiled)?;
    }
    if verbosity::quiet() { Ok(()) } else { show(&compiled.warnings, compiled) }
}

fn show(warnings: &[weft::ir::diag::Diagnostic], compiled: &weft::Compiled) -> Result<()> {
    if warnings.is_empty() {
        return Ok(());
    }
    let color = color(&std::io::stderr());
    let shown = weft::lang::render::render(warnings, compiled.sources(), color);
    Ok(std::io::Write::write_all(&mut std::io::stderr(), shown.as_bytes())?)
}

impl CompileArgs {
    /// Compiles the file: a kernel file, or IR in the format of `--emit ir` (`.ir`).
    fn compile(&self, options: &Options) -> Result<weft::Compiled> {
        let _compiling = Spinner::new("compiling");
        let path = &self.file.path;
        if path.extension().is_some_and(|e| e == "ir") {
            if self.no_assert {
                return Err(anyhow!(
                    "--no-assert cannot remove the asserts of IR; compile the kernel's .weft file instead"
                ));
            }
            let text = weft::library::read_text(path).map_err(|e| anyhow!(e))?;
            return weft::compile_ir(&text, options).map_err(|e| match e {
                IrError::Text(e) => anyhow::Error::new(e).context(path.display().to_string()),
                IrError::Compile(e) => e.into(),
                other => other.into(),
            });
        }
        Ok(self.file.parse(self.root.as_deref())?.compile(options)?)
    }

    /// Parses the files of its kernel and of the kernels that are launched after it. Returns them
    /// with the names of the kernels.
    fn parse(&self, then: &[KernelPath]) -> Result<Vec<(KernelFile, Option<String>)>> {
        let first = KernelPath { kernel: self.kernel()?, ..self.file.clone() };
        let all = std::iter::once(&first).chain(then);
        all.map(|one| Ok((one.parse(self.root.as_deref())?, one.kernel.clone()))).collect()
    }

    /// The requested kernel.
    fn kernel(&self) -> Result<Option<String>> {
        match (&self.file.kernel, &self.kernel) {
            (Some(one), Some(other)) => {
                Err(anyhow!("--kernel {other} contradicts the kernel `{one}` that is given with the file"))
            }
            (one, other) => Ok(one.as_ref().or(other.as_ref()).cloned()),
        }
    }

    fn options(&self) -> Result<Options> {
        let target: Target = self.arch.as_deref().unwrap_or("sm_90a").parse()?;
        let mut options = Options::new(target);
        options.ptx_version = self.ptx_version.as_deref().map(str::parse::<PtxVersion>).transpose()?;
        options.lowering = self.lowering.into();
        options.transport = self.transport.into();
        options.kernel = self.kernel()?;
        options.defines = defines(&self.define)?;
        options.opt = [OptLevel::O0, OptLevel::O1, OptLevel::O2, OptLevel::O3][usize::from(self.opt)];
        options.debug_waits = self.debug_waits;
        options.watch = self.watch;
        options.asserts = !self.no_assert;
        Ok(options)
    }

    /// The source of the NVSHMEM functions that the kernel calls.
    fn nvshmem(&self, target: Target) -> Result<Nvshmem> {
        match &self.nvshmem {
            None => Ok(Nvshmem::Found),
            Some(word) if word.as_os_str() == "extern" => Ok(Nvshmem::External),
            Some(path) => weft::runtime::find::nvshmem_device_at(path, target.number().into())
                .map(Nvshmem::At)
                .with_context(|| {
                    format!(
                        "--nvshmem {}: there is no device bitcode for {target} (libnvshmem_device*.bc)",
                        path.display()
                    )
                }),
        }
    }
}

/// Parses `NAME=VALUE` pairs.
fn defines(pairs: &[String]) -> Result<Defines> {
    let mut out = Defines::new();
    for pair in pairs {
        let (name, value) = pair.split_once('=').with_context(|| format!("`{pair}`: expected NAME=VALUE"))?;
        let value = Define::parse(value).with_context(|| {
            let kinds = "expected a 64-bit integer, a float, true, false, a reduction or an element type";
            let types: Vec<_> = weft::ir::Scalar::ALL.iter().map(|s| s.name()).collect();
            format!("`{pair}`: {kinds} (element types: {})", types.join(", "))
        })?;
        if out.insert(name.to_owned(), value).is_some() {
            return Err(anyhow!("`{name}` is given twice"));
        }
    }
    Ok(out)
}

/// Parses `NAME=VALUE` pairs of run-time scalars. `1+2` is 1 in the first launch and grows by 2 in
/// each further launch.
fn args(pairs: &[String]) -> Result<BTreeMap<String, Arg>> {
    let mut out = BTreeMap::new();
    for pair in pairs {
        let (name, value) = pair.split_once('=').with_context(|| format!("`{pair}`: expected NAME=VALUE"))?;
        let value = Arg::parse(value).with_context(|| {
            format!(
                "`{pair}`: expected an integer, a float, true, false, or an integer and its step, as in 1+2"
            )
        })?;
        if out.insert(name.to_owned(), value).is_some() {
            return Err(anyhow!("`{name}` is given twice"));
        }
    }
    Ok(out)
}

/// The kernels of parsed files.
fn stages(files: &[(KernelFile, Option<String>)]) -> Vec<Stage<'_>> {
    files.iter().map(|(file, kernel)| Stage { file, kernel: kernel.as_deref() }).collect()
}

/// The path of one of several texts, such as `k.2.ptx` for `k.ptx`, or the path itself if there is
/// only one text.
fn numbered(path: &Path, number: usize, of: usize) -> PathBuf {
    if of == 1 {
        return path.to_owned();
    }
    let extension = path.extension().map_or(String::new(), |e| format!(".{}", e.display()));
    path.with_extension(format!("{number}{extension}"))
}

/// Writes to a file, or to standard output if there is no path or it is `-`.
fn write_out(path: Option<&Path>, data: &[u8]) -> Result<()> {
    match path.filter(|p| *p != Path::new("-")) {
        Some(p) => std::fs::write(p, data).with_context(|| format!("cannot write {}", p.display())),
        None => Ok(std::io::stdout().lock().write_all(data)?),
    }
}

/// Writes PTX to a file in the format of `weft compile`.
fn write_ptx(path: &Path, ptx: &str) -> Result<()> {
    let end = if ptx.ends_with('\n') { "" } else { "\n" };
    write_out(Some(path), format!("{ptx}{end}").as_bytes())
}

/// Writes a timeline to a file.
fn write_trace(path: &Path, trace: &weft::sim::Trace) -> Result<()> {
    let file = std::fs::File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
    let mut out = std::io::BufWriter::new(file);
    trace::write_chrome(trace, &mut out).with_context(|| format!("cannot write {}", path.display()))?;
    out.flush().with_context(|| format!("cannot write {}", path.display()))
}

/// Compiles the Rust code of the documents.
#[cfg(doctest)]
mod documents {
    #[doc = include_str!("../README.md")]
    struct Readme;
    #[doc = include_str!("../docs/tour.md")]
    struct Tour;
    #[doc = include_str!("../docs/builder.md")]
    struct KernelsInRust;
    #[doc = include_str!("../docs/gpu.md")]
    struct Gpu;
    #[doc = include_str!("../docs/simulated.md")]
    struct Simulated;
    #[doc = include_str!("../docs/checking.md")]
    struct Checking;
    #[doc = include_str!("../docs/collectives.md")]
    struct Collectives;
    #[doc = include_str!("../docs/gemm.md")]
    struct Gemm;
    #[doc = include_str!("../docs/gemm-comm.md")]
    struct GemmComm;
    #[doc = include_str!("../docs/moe.md")]
    struct Moe;
}
