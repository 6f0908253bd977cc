//! Tests kernel files that state the expected results: `tests/filetests/**/*.weft`, each with one
//! or more tests, and files of IR, `*.ir`, for everything that no kernel file can express.
//! `support/directives.rs` describes the directives. Files in folders called `used` exist only for
//! the `use` of other files.

#[path = "support/bless.rs"]
mod bless;
#[path = "support/directives.rs"]
mod directives;
#[path = "support/sequence.rs"]
mod sequence;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use directives::{Expectations, Setting};
use libtest_mimic::{Arguments, Failed, Trial};
use weft::ir::diag::Severity;
use weft::lang::render::{Color, render};
use weft::{CompileError, Compiled, IrError, compile_ir};
use weft::{Define, KernelFile, Lowering, Options, Transport};
use weft_run::{self as run, RunOptions, run_file};

/// The maximum time of one test.
const LIMIT: Duration = Duration::from_secs(60);

type Verdict = Result<(), String>;

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    // Messages and `use` name files relative to the root.
    if let Err(e) = std::env::set_current_dir(env!("CARGO_MANIFEST_DIR")) {
        eprintln!("{}: {e}", env!("CARGO_MANIFEST_DIR"));
        return ExitCode::FAILURE;
    }
    let mut files = Vec::new();
    collect(Path::new("tests/filetests"), &mut files);
    files.sort();
    let mut trials: Vec<_> = files.iter().flat_map(|path| trials(path)).collect();
    trials.push(Trial::test("there are file tests", move || match files.len() {
        0..50 => Err(format!("only {} files found", files.len()).into()),
        _ => Ok(()),
    }));
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// The kernel files below a folder.
fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    for path in entries.map(|entry| entry.path()) {
        if path.is_dir() && !path.ends_with("used") {
            collect(&path, files);
        } else if path.extension().is_some_and(|kind| kind == "weft" || kind == "ir") {
            files.push(path);
        }
    }
}

/// A file that has been read, and parsed if possible.
struct FileTest {
    path: PathBuf,
    expects: Expectations,
    name: String,
    text: String,
}

/// The tests of a file: one of the compiled text, and one for each `run`.
fn trials(path: &Path) -> Vec<Trial> {
    let shown = path.strip_prefix("tests/filetests").unwrap_or(path).display().to_string();
    let test = match FileTest::read(path) {
        Ok(test) => Arc::new(test),
        Err(e) => return vec![Trial::test(shown, move || Err(Failed::from(e)))],
    };
    let mut trials = Vec::new();
    if test.expects.runs.is_empty() || !test.expects.stages.is_empty() {
        let test = test.clone();
        trials.push(Trial::test(shown.clone(), move || within_limit(move || test.compiles())));
    }
    for number in 0..test.expects.runs.len() {
        let test = test.clone();
        let name = format!("{shown} run {}", number + 1);
        trials.push(Trial::test(name, move || within_limit(move || test.runs(number))));
    }
    trials
}

/// The reason why a file has no text of a stage.
enum Rejected {
    /// The file is rejected: the errors' codes, and their rendered text.
    Compiler(Vec<String>, String),
    /// The test itself is wrong.
    Test(String),
}

impl From<CompileError> for Rejected {
    fn from(error: CompileError) -> Rejected {
        let errors = error.diagnostics.iter().filter(|d| d.severity == Severity::Error);
        Rejected::Compiler(errors.map(|d| d.code.to_string()).collect(), format!("{error}\n"))
    }
}

impl From<String> for Rejected {
    fn from(message: String) -> Rejected {
        Rejected::Test(message)
    }
}

impl From<Rejected> for String {
    fn from(rejected: Rejected) -> String {
        match rejected {
            Rejected::Compiler(_, message) | Rejected::Test(message) => message,
        }
    }
}

/// Runs a test in a thread of its own, so that a test that hangs fails alone.
fn within_limit(test: impl FnOnce() -> Verdict + Send + 'static) -> Result<(), Failed> {
    let (done, wait) = mpsc::channel();
    std::thread::spawn(move || done.send(test()));
    match wait.recv_timeout(LIMIT) {
        Ok(verdict) => verdict.map_err(Failed::from),
        Err(mpsc::RecvTimeoutError::Timeout) => Err(format!("not done after {LIMIT:?}").into()),
        Err(mpsc::RecvTimeoutError::Disconnected) => Err("panicked: see standard error".into()),
    }
}

impl FileTest {
    fn read(path: &Path) -> Result<FileTest, String> {
        let read = |path: &Path| fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()));
        let text = read(path)?;
        let expects = directives::parse(&text).map_err(|e| format!("{}: {e}", path.display()))?;
        let (name, text) = match &expects.source {
            Some(source) => (source.clone(), read(Path::new(source))?),
            None => (path.display().to_string(), text),
        };
        Ok(FileTest { path: path.to_owned(), expects, name, text })
    }

    fn options(&self) -> Result<Options, String> {
        let target = self.expects.arch.as_deref().unwrap_or("sm_90a");
        let mut options = Options::new(target.parse().map_err(|e| format!("arch: {e}"))?);
        options.lowering = lowering(self.expects.lowering.as_deref().unwrap_or("multimem"))?;
        options.transport = transport(self.expects.transport.as_deref().unwrap_or("auto"))?;
        let version = self.expects.ptx.as_deref().map(str::parse).transpose();
        options.watch = self.expects.watch;
        options.ptx_version = version.map_err(|e| format!("ptx: {e}"))?;
        for (name, value) in &self.expects.defines {
            options.defines.insert(name.clone(), define(value)?);
        }
        Ok(options)
    }

    fn compile(&self, options: &Options) -> Result<Compiled, Rejected> {
        if self.path.extension().is_some_and(|kind| kind == "ir") {
            // Comments precede the IR and are not part of it.
            let ir: Vec<_> = self.text.lines().filter(|line| !line.starts_with("//")).collect();
            return compile_ir(&ir.join("\n"), options).map_err(|e| match e {
                IrError::Text(e) => Rejected::from(e.to_string()),
                IrError::Compile(e) => e.into(),
                other => Rejected::from(other.to_string()),
            });
        }
        Ok(KernelFile::parse(&self.name, &self.text)?.compile(options)?)
    }

    /// Compiles and keeps the stage called `name`. Returns its text.
    fn stage(&self, name: &str) -> Result<String, Rejected> {
        let mut options = self.options()?;
        options.keep_ir = name == "ir";
        options.keep_llvm = name == "llvm";
        options.keep_after = name.strip_prefix("after:").map(str::to_owned);
        let compiled = self.compile(&options)?;
        let accesses = &compiled.report.accesses;
        let text = match name {
            "ptx" => Some(compiled.ptx),
            "report" => {
                let transfers = compiled.report.transfers.iter().map(|t| format!("{t}\n"));
                let tiles = compiled.report.tiles.iter().map(|t| format!("{}\n", t.fact));
                let accesses = accesses.iter().map(|access| format!("{access}\n"));
                Some(accesses.chain(transfers).chain(tiles).collect())
            }
            "ir" => compiled.ir,
            "llvm" => compiled.llvm,
            _ => compiled.after,
        };
        text.ok_or_else(|| Rejected::Test(format!("emit: there is no stage `{name}`")))
    }

    /// Compiles, and compares the errors, or the text of stages, with the expectations.
    fn compiles(&self) -> Verdict {
        let Expectations { errors, warnings, stages, .. } = &self.expects;
        if !warnings.is_empty() {
            let compiled = self.compile(&self.options()?)?;
            let codes: Vec<_> = compiled.warnings.iter().map(|d| d.code.to_string()).collect();
            let rendered = render(&compiled.warnings, compiled.sources(), Color::Never);
            if codes != *warnings {
                return Err(format!(
                    "expected {}, found {}:\n{rendered}",
                    warnings.join(" "),
                    codes.join(" ")
                ));
            }
            bless::check(&self.path.with_extension("stderr"), &rendered)?;
        }
        if errors.is_empty() {
            return stages.iter().try_for_each(|stage| stage.check(&self.stage(&stage.name)?));
        }
        let (codes, rendered) = match self.stage(stages.first().map_or("ptx", |stage| &stage.name)) {
            Ok(_) => return Err("it compiles".into()),
            Err(Rejected::Test(e)) => return Err(e),
            Err(Rejected::Compiler(codes, rendered)) => (codes, rendered),
        };
        if codes != *errors {
            return Err(format!("expected {}, found {}:\n{rendered}", errors.join(" "), codes.join(" ")));
        }
        bless::check(&self.path.with_extension("stderr"), &rendered)
    }

    /// Runs every combination of a `run` line, and reports up to five failures.
    fn runs(&self, number: usize) -> Verdict {
        let file = KernelFile::parse(&self.name, &self.text).map_err(|e| e.to_string())?;
        let mut failures = Vec::new();
        for setting in self.expects.runs[number].settings() {
            if let Err(e) = self.run(&file, &setting) {
                let words: Vec<_> = setting.iter().map(|(word, value)| format!("{word}={value}")).collect();
                failures.push(format!("with {}: {e}", words.join(" ")));
                if failures.len() == 5 {
                    break;
                }
            }
        }
        if failures.is_empty() { Ok(()) } else { Err(failures.join("\n")) }
    }

    fn run(&self, file: &KernelFile, setting: &Setting) -> Verdict {
        let options = self.run_options(file, setting)?;
        let outcome = match (self.launch(file, &options), &self.expects.fails) {
            (Ok(outcome), None) => outcome,
            (Ok(_), Some(why)) => return Err(format!("it does not fail, which it should: {why}")),
            (Err(e), Some(why)) if e.contains(why) => return Ok(()),
            (Err(e), Some(why)) => return Err(format!("it does not fail by `{why}`: {e}")),
            (Err(e), None) => return Err(e),
        };
        if outcome.verdict() == run::Verdict::Unchecked && self.expects.stdout.is_empty() {
            return Err("nothing of the run is checked: say `computes(...)` or `// stdout: ...`".into());
        }
        if let Some(wrong) = outcome.checks().find(|check| check.wrong != 0) {
            return Err(format!("wrong: {wrong:?}"));
        }
        let printed: Vec<_> = outcome.printed.lines().collect();
        if !self.expects.stdout.is_empty() && printed != self.expects.stdout {
            return Err(format!("it prints\n{}\nnot\n{}", outcome.printed, self.expects.stdout.join("\n")));
        }
        Ok(())
    }

    /// Runs the file's only kernel, or the requested sequence.
    fn launch(&self, file: &KernelFile, options: &RunOptions) -> Result<run::Outcome, String> {
        if self.expects.sequence.is_empty() {
            return run_file(file, options).map_err(|e| e.to_string());
        }
        let kernels = sequence::kernels(&self.expects)?;
        let stages = kernels
            .iter()
            .map(|(other, kernel)| run::Stage { file: other.as_ref().unwrap_or(file), kernel: Some(kernel) });
        run::run_sequence(&stages.collect::<Vec<_>>(), options).map_err(|e| e.to_string())
    }

    fn run_options(&self, file: &KernelFile, setting: &Setting) -> Result<RunOptions, String> {
        let mut options = RunOptions::new(self.options()?, 1);
        let kernels = sequence::kernels(&self.expects)?;
        let files = kernels.iter().filter_map(|(other, _)| other.as_ref()).chain([file]);
        let generics: Vec<_> = files.flat_map(|file| file.heads()).flat_map(|head| head.generics).collect();
        for (word, value) in setting {
            let number = || value.parse::<u32>().map_err(|e| format!("{word}={value}: {e}"));
            match word.as_str() {
                "pes" => options.n_pes = number()? as usize,
                "grid" => options.grid = Some([number()?, 1, 1]),
                "seed" => options.seed = number()?.into(),
                "launches" => options.launches = number()?,
                "node" => options.node = Some(number()?),
                "waits" => options.compile.debug_waits = Some(number()?.into()),
                "lowering" => options.compile.lowering = lowering(value)?,
                "transport" => options.compile.transport = transport(value)?,
                "arch" => options.compile.target = value.parse().map_err(|e| format!("arch: {e}"))?,
                _ if generics.iter().any(|(name, ..)| **name == **word) => {
                    options.compile.defines.insert(word.clone(), define(value)?);
                }
                _ => {
                    let arg = run::Arg::parse(value).ok_or_else(|| format!("`{value}` is no value"))?;
                    options.args.insert(word.clone(), arg);
                }
            }
        }
        Ok(options)
    }
}

fn lowering(word: &str) -> Result<Lowering, String> {
    match word {
        "multimem" => Ok(Lowering::Multimem),
        "unicast" => Ok(Lowering::Unicast),
        _ => Err(format!("lowering: `{word}` is neither multimem nor unicast")),
    }
}

fn transport(name: &str) -> Result<Transport, String> {
    match name {
        "auto" => Ok(Transport::Auto),
        "nvshmem" => Ok(Transport::Nvshmem),
        "p2p" => Ok(Transport::P2p),
        other => Err(format!("transport: {other}: expected auto, nvshmem or p2p")),
    }
}

fn define(value: &str) -> Result<Define, String> {
    Define::parse(value).ok_or_else(|| format!("`{value}` is no value"))
}
