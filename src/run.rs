//! The command `weft run`.

use super::progress::Spinner;
use super::verbosity::quiet;
use super::{CompileArgs, KernelPath, Limits, args, numbered, stages};
use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use indexmap::IndexSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use weft::Compiled;
use weft::gpu::target_of;
use weft::ir::Scalar;
use weft::runtime::job::{ProcessRank, Started, start};
use weft::runtime::{Config, Error, World, cuda, error, find, visible};
use weft_run::array::Array;
use weft_run::reference::Checked;
use weft_run::{
    KernelRun, Outcome, Ran, RunError, RunOptions, Stage, Tolerance, Verdict, compile_sequence, run_sequence,
    run_sequence_on_gpus,
};

/// The greatest number of PEs of a run.
const MAX_PES: u32 = 4096;

#[derive(Args)]
pub struct Run {
    #[command(flatten)]
    compile: CompileArgs,
    /// Kernels to launch after the first one, in this order. Tensors and parameters of equal names
    /// are shared.
    #[arg(value_name = "FILE:KERNEL")]
    then: Vec<KernelPath>,
    #[command(flatten)]
    limits: Limits,
    /// The number of PEs. By default, it follows from the input files. Without them, it is all GPUs
    /// of this host, or 8 simulated PEs.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_PES)))]
    pes: Option<u32>,
    /// Where the PEs run.
    #[arg(long, value_enum, default_value = "auto")]
    on: On,
    /// The file for a tensor after the run, in the form of --input.
    #[arg(long, value_name = "TENSOR=FILE")]
    output: Vec<String>,
    #[command(flatten)]
    expected: Expected,
    /// The element type of the data, such as bf16 for uint16 files.
    #[arg(long)]
    dtype: Option<String>,
    /// A run-time scalar parameter. 1+2 is 1 in the first launch and grows by 2 in each further
    /// launch.
    #[arg(long, value_name = "NAME=VALUE")]
    arg: Vec<String>,
    /// The number of CTAs on each PE, if the kernel does not state it: 8 or 4,2,1
    #[arg(long, value_name = "X[,Y[,Z]]")]
    grid: Option<String>,
    /// The seed of generated data and of the schedule.
    #[arg(long, default_value = "0")]
    seed: u64,
    /// The number of launches. Several kernels are launched in turn.
    #[arg(long, default_value = "1", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    launches: u32,
    /// The number of PEs in a simulated node. With --transport auto, transfers use direct loads and
    /// stores within a node, and NVSHMEM calls between nodes. By default, the PEs form two nodes.
    #[arg(long, value_name = "PES", value_parser = clap::value_parser!(u32).range(1..=4096))]
    node: Option<u32>,
    /// Write the PTX that ran. It equals that of `weft compile` with the same options and --nvshmem
    /// extern. With several kernels, FILE.ptx becomes FILE.1.ptx, FILE.2.ptx and so on.
    #[arg(long, value_name = "FILE")]
    ptx: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum On {
    /// Run on GPUs if the machine has NVSHMEM and as many GPUs as PEs, and otherwise on the
    /// simulator.
    Auto,
    /// Run on GPUs, with one process for each. Under mpirun, torchrun or srun, the launched
    /// processes join.
    Gpu,
    /// Run on the simulator.
    Sim,
}

impl Run {
    pub fn run(&self) -> Result<ExitCode> {
        let files = self.compile.parse(&self.then)?;
        let kernels = stages(&files);
        // A launcher says how many PEs there are.
        let rank = if matches!(self.on, On::Sim) { None } else { ProcessRank::detect()? };
        let of_files =
            || weft_run::pes_of(&self.expected.inputs().unwrap_or_default()).filter(|n| *n <= MAX_PES);
        let wanted = if rank.is_some() { self.pes } else { self.pes.or_else(of_files) };
        let pes = match self.on {
            On::Sim => Err("not used with --on sim".to_owned()),
            On::Gpu => gpus(wanted).map(Ok)?,
            On::Auto => match (gpus(wanted), rank) {
                // A launcher does not start many processes so that each of them simulates all PEs.
                (Err(e), Some(place)) if place.size > 1 => {
                    let own = "a launcher started this process as one PE, so it does not simulate all PEs unless you give --on sim";
                    let help = format!("{}\n{own}", e.help);
                    return Err(e.help(help.trim_start()).into());
                }
                (pes, _) => pes.map_err(|e| e.message),
            },
        };
        let pes = match pes {
            Ok(pes) => pes,
            Err(why) => return self.simulated(&kernels, wanted, &why),
        };
        let mut options = self.options(pes)?;
        if self.compile.arch.is_none() {
            options.compile.target = target_of(cuda::compute_capability(0)?)?;
        }
        if ProcessRank::detect()?.is_none() {
            // The warnings are printed once, and not by every PE.
            compile_sequence(&kernels, &options)?.iter().try_for_each(super::warn)?;
        }
        match start(pes)? {
            Started::Done(code) => Ok(code),
            Started::Pe(place) => self.on_gpus(&kernels, &options, &place),
        }
    }

    fn simulated(&self, kernels: &[Stage<'_>], pes: Option<u32>, why: &str) -> Result<ExitCode> {
        let options = self.options(pes.unwrap_or(8))?;
        let simulating = Spinner::new(&format!("simulating {} PEs", options.n_pes));
        let ran = run_sequence(kernels, &options);
        drop(simulating);
        let outcome = match ran {
            Ok(outcome) => outcome,
            Err(e) => {
                if let Ok(compiled) = compile_sequence(kernels, &options) {
                    // A warning may explain the error.
                    compiled.iter().try_for_each(super::warn)?;
                    self.write_ptx(&compiled.iter().collect::<Vec<_>>())?;
                }
                self.note_bits(&e);
                return Err(e.into());
            }
        };
        outcome.kernels.iter().try_for_each(|k| super::warn(&k.compiled))?;
        self.write_ptx(&compiled(&outcome))?;
        super::write_out(None, report(&outcome, options.n_pes, why).as_bytes())?;
        Ok(if outcome.verdict() == Verdict::Wrong { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }

    /// Prints a note if the kernel does not compile for the unsigned integers of a file, which may
    /// be the bits of floating-point numbers.
    fn note_bits(&self, e: &RunError) {
        if quiet() || self.dtype.is_some() || !matches!(e, RunError::Compile(_)) {
            return;
        }
        for (_, path) in self.expected.inputs().unwrap_or_default() {
            let file = path.to_string_lossy().replace("{pe}", "0");
            let Ok(Array { dtype: dtype @ (Scalar::U8 | Scalar::U16), .. }) = Array::read(Path::new(&file))
            else {
                continue;
            };
            super::note(&format!(
                "{file} holds {dtype}; if these are the bits of floating-point numbers, name their type, as \
                 `--dtype bf16` does"
            ));
        }
    }

    /// Writes the PTX of each kernel, if requested.
    fn write_ptx(&self, compiled: &[&Compiled]) -> Result<()> {
        let Some(path) = &self.ptx else { return Ok(()) };
        let mut all = compiled.iter().zip(1..);
        all.try_for_each(|(one, number)| super::write_ptx(&numbered(path, number, compiled.len()), &one.ptx))
    }

    /// Runs as one PE of a job on GPUs. PE 0 reports.
    fn on_gpus(&self, kernels: &[Stage<'_>], options: &RunOptions, place: &ProcessRank) -> Result<ExitCode> {
        let world = World::join(place, &Config::default())?;
        let mut verdict = Verdict::Unchecked;
        let status = world.run(|world| -> Result<(), String> {
            let outcome = run_sequence_on_gpus(kernels, options, world).map_err(|e| e.to_string())?;
            verdict = outcome.verdict();
            if world.my_pe() == 0 {
                self.write_ptx(&compiled(&outcome)).map_err(|e| e.to_string())?;
                let text = report(&outcome, options.n_pes, "");
                super::write_out(None, text.as_bytes()).map_err(|e| e.to_string())?;
            }
            Ok(())
        });
        Ok(if verdict == Verdict::Wrong { ExitCode::FAILURE } else { status })
    }

    fn options(&self, pes: u32) -> Result<RunOptions> {
        let mut options = RunOptions::new(self.compile.options()?, pes as usize);
        options.seed = self.seed;
        options.launches = self.launches;
        (options.step_limit, options.time_limit) = (self.limits.max_steps, self.limits.time()?);
        options.node = self.node;
        options.inputs = self.expected.inputs()?;
        options.expected = self.expected.expected()?;
        options.tolerance = self.expected.tolerance;
        options.outputs = files(&self.output)?;
        options.args = args(&self.arg)?;
        options.grid = self.grid.as_deref().map(|g| grid("--grid", g)).transpose()?;
        if let Some(name) = &self.dtype {
            let known: Vec<_> = Scalar::ALL.iter().map(|s| s.name()).collect();
            let dtype = Scalar::parse(name)
                .with_context(|| format!("--dtype {name}: expected one of {}", known.join(", ")))?;
            options.dtype = Some(dtype);
        }
        Ok(options)
    }
}

/// Returns the number of PEs on GPUs of this host, or in the job that a launcher started. An error
/// says why GPUs cannot be used.
pub(super) fn gpus(pes: Option<u32>) -> Result<u32, weft::runtime::Error> {
    let place = ProcessRank::detect()?;
    let count = cuda::device_count()?;
    find::nvshmem_host()?;
    if let Some(place) = place {
        return match pes {
            Some(n) if n != place.size => {
                let message = format!("--pes is {n}, but the launcher started {} PEs", place.size);
                Err(Error::new(error::LAUNCHER, message).help("leave --pes out under a launcher"))
            }
            _ => Ok(place.size),
        };
    }
    match pes.unwrap_or(count) {
        0 => Err(Error::new(error::NO_GPU, "this machine has no visible GPU").help(
            "`weft doctor` says what this machine has; without a GPU, `weft run` works on the simulator",
        )),
        n if n > count => {
            let message = format!("{n} PEs were requested, but this host has {count} GPUs");
            Err(Error::new(error::NO_GPU, message).help(
                "start one PE for each GPU, or use `weft run --on sim`, which can simulate any number of PEs",
            ))
        }
        n => Ok(n),
    }
}

/// The options for the data of tensors before the launches and after them.
#[derive(Args)]
pub struct Expected {
    /// A tensor's data: a .npy file with a leading PE dimension, or one file per PE: --input
    /// x=grad_{pe}.npy
    #[arg(long, value_name = "TENSOR=FILE")]
    input: Vec<String>,
    /// The expected contents of a tensor after the last launch, in the form of --input.
    #[arg(long, value_name = "TENSOR=FILE")]
    expect: Vec<String>,
    /// The relative and absolute tolerance of --expect. The default is that of
    /// torch.testing.assert_close for the element type.
    #[arg(long, value_name = "RELATIVE[,ABSOLUTE]", value_parser = tolerance)]
    pub tolerance: Option<Tolerance>,
}

impl Expected {
    pub fn inputs(&self) -> Result<Vec<(String, PathBuf)>> {
        files(&self.input)
    }

    pub fn expected(&self) -> Result<Vec<(String, PathBuf)>> {
        files(&self.expect)
    }

    /// Whether one of the options is given.
    pub fn is_given(&self) -> bool {
        !self.input.is_empty() || !self.expect.is_empty() || self.tolerance.is_some()
    }
}

/// Parses `1e-3` or `1e-3,1e-6`.
fn tolerance(text: &str) -> Result<Tolerance, String> {
    let (relative, absolute) = text.split_once(',').unwrap_or((text, "0"));
    let number = |text: &str| text.parse().ok().filter(|x: &f64| *x >= 0.0);
    match (number(relative), number(absolute)) {
        (Some(relative), Some(absolute)) => Ok(Tolerance { relative, absolute }),
        _ => Err("expected one or two numbers that are not negative, such as 1e-3,1e-6".to_owned()),
    }
}

/// Parses `TENSOR=FILE`, or `FILE` for the first tensor.
fn files(pairs: &[String]) -> Result<Vec<(String, PathBuf)>> {
    let split = |p: &String| {
        let (name, file) = match p.split_once('=') {
            Some(("", _)) | Some((_, "")) => bail!("`{p}`: expected TENSOR=FILE"),
            Some(pair) => pair,
            None => ("", &**p),
        };
        match placeholder(file).filter(|_| !Path::new(file).exists()) {
            Some(other) => {
                bail!("`{p}`: `{other}` is not a placeholder; use `{{pe}}` for the number of the PE")
            }
            None => Ok((name.to_owned(), file.into())),
        }
    };
    pairs.iter().map(split).collect()
}

/// Finds a word in braces other than `{pe}`.
fn placeholder(file: &str) -> Option<&str> {
    let words = file.match_indices('{').filter_map(|(at, _)| {
        let end = file[at..].find('}')?;
        Some(&file[at..=at + end])
    });
    words.into_iter().find(|word| *word != "{pe}")
}

/// Parses the value `X[,Y[,Z]]` of an option.
pub(super) fn grid(option: &str, text: &str) -> Result<[u32; 3]> {
    let parts = text.split(',').map(str::parse).collect::<Result<Vec<u32>, _>>();
    let parts = parts.ok().filter(|p| (1..=3).contains(&p.len()) && !p.contains(&0));
    let Some(parts) = parts else {
        bail!("{option} {text}: expected 1 to 3 positive numbers, such as 8 or 4,2")
    };
    Ok([parts[0], parts.get(1).copied().unwrap_or(1), parts.get(2).copied().unwrap_or(1)])
}

pub(super) fn dims(d: [u32; 3]) -> String {
    let used = d.iter().rposition(|n| *n != 1).unwrap_or(0);
    d[..=used].iter().map(u32::to_string).collect::<Vec<_>>().join(" x ")
}

/// The kernels of a run as they were compiled.
fn compiled(outcome: &Outcome) -> Vec<&Compiled> {
    outcome.kernels.iter().map(|k| &k.compiled).collect()
}

/// A function that adds a line to a report.
type Line<'a> = &'a mut dyn FnMut(&str, String);

/// The report at the end of a run. With `--quiet` and no errors, it has only the output of the
/// kernels.
fn report(o: &Outcome, pes: usize, why_simulated: &str) -> String {
    let mut out = visible(&o.printed).into_owned();
    if !out.is_empty() && !out.ends_with('\n') {
        out.push('\n');
    }
    if quiet() && o.verdict() != Verdict::Wrong {
        return out;
    }
    let mut line = |name: &str, text: String| out.push_str(&format!("{name:<13}{text}\n"));
    for kernel in &o.kernels {
        let Compiled { target, lowering, .. } = &kernel.compiled;
        line("kernel", format!("{} for {target}, {lowering} lowering", kernel.name));
    }
    place(o, pes, why_simulated, &mut line);
    for t in &o.tensors {
        let shape: Vec<_> = t.shape.iter().map(u64::to_string).collect();
        line("tensor", format!("{}: {} ({}) on each PE", t.name, t.dtype, shape.join(", ")));
    }
    for kernel in &o.kernels {
        line(
            "computes",
            match kernel.compiled.references.first() {
                Some(Some(r)) => r.to_string(),
                _ => "not stated, so no result is checked: declare it with computes(...)".to_owned(),
            },
        );
    }
    if let Ran::Simulator { stats, .. } = &o.ran {
        for c in stats.opcodes.iter().filter(|c| c.mnemonic.starts_with("multimem.")) {
            line("instruction", format!("{} x {}", c.mnemonic, c.lanes));
        }
    }
    let instructions = o.kernels.iter().flat_map(|k| k.compiled.report.instructions());
    for name in instructions.filter(|n| !n.starts_with("multimem.")).collect::<IndexSet<_>>() {
        line("instruction", name.to_owned());
    }
    o.kernels.iter().for_each(|kernel| errors(kernel, o.kernels.len() > 1, &mut line));
    for (file, c) in &o.expected {
        error(c, "tolerance", file, " after the last launch", &mut line);
    }
    time(o, &mut line);
    out
}

/// Reports where a run took place.
fn place(o: &Outcome, pes: usize, why_simulated: &str, line: Line<'_>) {
    let shapes: Vec<_> =
        o.kernels.iter().map(|k| format!("grid {}, block {}", dims(k.grid), dims(k.block))).collect();
    let shapes = shapes.join("; ");
    match &o.ran {
        Ran::Simulator { node, .. } => {
            // Only the first sentence is shown; `weft doctor` shows the searched locations.
            let why = why_simulated.lines().next().unwrap_or_default().trim_end_matches("; searched:");
            let why = why.split_once(": ").map_or(why, |(first, _)| first);
            let s = if pes == 1 { "" } else { "s" };
            line("ran on", format!("simulator, {pes} PE{s}, {shapes} (GPUs: {why})"));
            if let Some(node) = node {
                line("transfers", transfers(pes, *node));
            }
        }
        Ran::Gpus { gpu, nvshmem, no_multicast, .. } => {
            let nvshmem = nvshmem.map_or_else(|| "without NVSHMEM".into(), |v| format!("NVSHMEM {v}"));
            line("ran on", format!("{pes} x {gpu}, {nvshmem}, {shapes}"));
            if let Some(why) = no_multicast {
                line("multicast", format!("none: {why}"));
            }
        }
    }
}

/// Reports how far a kernel's results are from its `computes` declaration.
fn errors(kernel: &KernelRun, named: bool, line: Line<'_>) {
    let checks = kernel.checks.as_deref().unwrap_or_default();
    let of = if named { format!(" of {}", kernel.name) } else { String::new() };
    for (c, number) in checks.iter().zip(1..) {
        let launch = if checks.len() > 1 { format!(" launch {number}{of}") } else { of.clone() };
        error(c, "rounding bound", "float64", &launch, line);
    }
}

/// Reports how far a tensor is from its expected contents.
fn error(c: &Checked, bound: &str, with: &str, when: &str, line: Line<'_>) {
    let Checked { elements, tensor, wrong, .. } = c;
    let errors =
        format!("max abs {:.2e}, max rel {:.2e}, {:.2} of the {bound}", c.max_abs, c.max_rel, c.worst);
    line(
        "error",
        match c.first_wrong {
            None => format!("{errors} against {with} over {elements} elements of {tensor}:{when} correct"),
            Some((pe, i, have, want)) => {
                let first = format!("PE {pe}, {tensor}[{i}] is {have}, expected {want}");
                format!("{errors}: {wrong} of {elements} elements WRONG{when}; first: {first}")
            }
        },
    );
}

/// Reports how long a run took.
fn time(o: &Outcome, line: Line<'_>) {
    let compiled = o.compile_time.as_secs_f64() * 1e3;
    let text = match &o.ran {
        Ran::Simulator { stats, time, .. } => format!(
            "compiled in {compiled:.1} ms; simulated in {:.3} s, {:.1} M lane instructions",
            time.as_secs_f64(),
            stats.lane_instructions as f64 / 1e6
        ),
        Ran::Gpus { micros, .. } => {
            let all: Vec<_> = micros.iter().map(|us| format!("{us:.1}")).collect();
            format!(
                "compiled in {compiled:.1} ms; launches took {} us on PE 0 (cold, including the wait for other PEs)",
                all.join(", ")
            )
        }
    };
    line("time", text);
}

/// Describes how a simulated PE reaches the others with `--transport auto`.
fn transfers(pes: usize, node: usize) -> String {
    match pes.div_ceil(node) {
        1 => "direct loads and stores, since all PEs are in one node".to_owned(),
        nodes if node == 1 => format!("NVSHMEM calls between {nodes} nodes of one PE each"),
        nodes => {
            format!(
                "direct loads and stores within a node of {node} PEs, NVSHMEM calls between the {nodes} nodes"
            )
        }
    }
}
