//! Checks that the PTX which simulated PEs run is, byte for byte, the PTX that `weft compile`
//! writes for the same options. This covers every example and every file test that runs, in `weft
//! run` and in `weft check`.

#[path = "support/directives.rs"]
#[expect(dead_code, reason = "the file tests check the compiled text")]
mod directives;
#[path = "support/within_limit.rs"]
mod limit;

use directives::{Expectations, Setting};
use libtest_mimic::{Arguments, Failed, Trial};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Output};
use std::sync::Arc;
use tempfile::TempDir;
use weft::{KernelFile, Options};
use weft_run::{Ran, RunOptions, run_file};

/// The maximum time of one test in seconds.
const LIMIT: u64 = 120;

/// The example that no file test runs, because `tests/fused.rs` runs it.
const FUSED: &str = "warpweft/src/library/allreduce_rms_norm.weft";

/// The options that `weft run` and `weft compile` share, each with its value.
type Shared = Vec<(String, String)>;

/// A kernel file and a way to run it.
#[derive(Clone, PartialEq, Debug)]
struct Case {
    source: String,
    /// The options of the compiler.
    compile: Shared,
    /// The options of the run only.
    run: Shared,
    pes: String,
}

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    // Messages and `source` name files relative to the root.
    if let Err(e) = std::env::set_current_dir(env!("CARGO_MANIFEST_DIR")) {
        eprintln!("{}: {e}", env!("CARGO_MANIFEST_DIR"));
        return ExitCode::FAILURE;
    }
    let mut files = Vec::new();
    collect(Path::new("tests/filetests"), &mut files);
    files.sort();
    let mut trials: Vec<Trial> = files.iter().flat_map(|path| of_file(path)).collect();
    for kernel in ["one_shot", "two_shot", "low_latency", "add_rms_norm"] {
        trials.extend(pair(format!("{FUSED} {kernel}"), vec![fused(kernel)]));
    }
    let n = trials.len();
    trials.push(Trial::test("there are kernels", move || match n {
        0..200 => Err(format!("only {n} tests").into()),
        _ => Ok(()),
    }));
    trials.push(Trial::test("both branches run by default", || both_branches().map_err(Failed::from)));
    trials.push(Trial::test("every example is among them", move || {
        examples_are_covered(&files).map_err(Failed::from)
    }));
    libtest_mimic::run(&arguments, trials).exit_code()
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    for path in entries.map(|entry| entry.path()) {
        if path.is_dir() && !path.ends_with("used") {
            collect(&path, files);
        } else if path.extension().is_some_and(|kind| kind == "weft") {
            files.push(path);
        }
    }
}

/// The tests of a file that runs: one for `weft run` and one for `weft check`.
fn of_file(path: &Path) -> Vec<Trial> {
    let shown = path.strip_prefix("tests/filetests").unwrap_or(path).display().to_string();
    let Ok(text) = fs::read_to_string(path) else { return Vec::new() };
    // The file tests report errors in the directives. `tests/sequence.rs` compares the PTX of
    // sequences.
    let expects = directives::parse(&text).ok().filter(|e| !e.runs.is_empty() && e.sequence.is_empty());
    // Arguments that are rejected do not lead to a launch.
    let expects = expects.filter(|e| e.fails.as_deref() != Some("R0502"));
    match expects.map(|expects| cases(path, &expects)) {
        None => Vec::new(),
        Some(Ok(cases)) => pair(shown, cases),
        Some(Err(e)) => vec![Trial::test(shown, move || Err(Failed::from(e)))],
    }
}

fn pair(shown: String, cases: Vec<Case>) -> Vec<Trial> {
    let cases = Arc::new(cases);
    let trial = |command: &str, test: fn(&[Case]) -> Result<(), String>| {
        let cases = cases.clone();
        Trial::test(format!("{command} {shown}"), move || {
            limit::within(LIMIT, move || test(&cases)).map_err(Failed::from)
        })
    };
    vec![trial("run", run), trial("check", check)]
}

/// A kernel of the example with several kernels.
fn fused(kernel: &str) -> Case {
    let own = |options: &[(&str, &str)]| -> Shared {
        options.iter().map(|(option, value)| ((*option).to_owned(), (*value).to_owned())).collect()
    };
    let mut compile = own(&[("--kernel", kernel), ("-D", "H=512")]);
    if kernel != "add_rms_norm" {
        compile.extend(own(&[("-D", "P=4")]));
    }
    let run = own(&[("--arg", "tokens=3"), ("--arg", "eps=0.00001")]);
    Case { source: FUSED.to_owned(), compile, run, pes: "4".to_owned() }
}

/// The first and the last setting of each `run` line.
fn cases(path: &Path, expects: &Expectations) -> Result<Vec<Case>, String> {
    let source = expects.source.clone().unwrap_or_else(|| path.display().to_string());
    let text = fs::read_to_string(&source).map_err(|e| format!("{source}: {e}"))?;
    let file = KernelFile::parse(&source, &text).map_err(|e| e.to_string())?;
    let generics: Vec<String> =
        file.heads().iter().flat_map(|h| &h.generics).map(|(name, ..)| name.to_string()).collect();
    let mut cases = Vec::new();
    for sweep in &expects.runs {
        let settings = sweep.settings();
        for setting in settings.iter().take(1).chain(settings.last()) {
            let case = one(&source, expects, &generics, setting);
            if !cases.contains(&case) {
                cases.push(case);
            }
        }
    }
    Ok(cases)
}

fn one(source: &str, expects: &Expectations, generics: &[String], setting: &Setting) -> Case {
    let mut defines: BTreeMap<String, String> = expects.defines.iter().cloned().collect();
    let mut compile: BTreeMap<String, String> = BTreeMap::new();
    let head = [
        ("--lowering", &expects.lowering),
        ("--transport", &expects.transport),
        ("--arch", &expects.arch),
        ("--ptx-version", &expects.ptx),
    ];
    compile.extend(head.iter().filter_map(|(option, v)| Some(((*option).to_owned(), (*v).clone()?))));
    let (mut run, mut pes) = (Vec::new(), "2".to_owned());
    for (word, value) in setting {
        let value = value.clone();
        match word.as_str() {
            "pes" => pes = value,
            "grid" | "seed" | "launches" | "node" => run.push((format!("--{word}"), value)),
            "lowering" | "transport" | "arch" => drop(compile.insert(format!("--{word}"), value)),
            "waits" => drop(compile.insert("--debug-waits".into(), value)),
            _ if generics.contains(word) => drop(defines.insert(word.clone(), value)),
            _ => run.push(("--arg".into(), format!("{word}={value}"))),
        }
    }
    let defines = defines.iter().map(|(name, value)| ("-D".to_owned(), format!("{name}={value}")));
    let compile = compile.into_iter().chain(defines).collect();
    Case { source: source.to_owned(), compile, run, pes }
}

/// Runs the command.
fn weft(arguments: &[&str]) -> Result<Output, String> {
    Command::new(env!("CARGO_BIN_EXE_weft")).args(arguments).output().map_err(|e| e.to_string())
}

fn words(options: &Shared) -> impl Iterator<Item = &str> {
    options.iter().flat_map(|(option, value)| [&**option, &**value])
}

/// Checks that the file equals the output of `weft compile` with these options.
fn same(file: &Path, arguments: &[&str]) -> Result<(), String> {
    let compiled = weft(arguments)?;
    if !compiled.status.success() || compiled.stdout.is_empty() {
        return Err(format!("weft {}: {}", arguments.join(" "), String::from_utf8_lossy(&compiled.stderr)));
    }
    let ran = fs::read(file).map_err(|e| format!("{}: {e}", file.display()))?;
    if ran == compiled.stdout {
        return Ok(());
    }
    let (ran, compiled) = (String::from_utf8_lossy(&ran), String::from_utf8_lossy(&compiled.stdout));
    Err(format!("weft {} gives\n{compiled}\nand what ran is\n{ran}", arguments.join(" ")))
}

/// Checks the files that `weft run` writes. The file tests check whether the run succeeds.
fn run(cases: &[Case]) -> Result<(), String> {
    let folder = TempDir::new().map_err(|e| e.to_string())?;
    let file = folder.path().join("ran.ptx");
    for case in cases {
        let shown = file.display().to_string();
        let arguments = ["run", &case.source, "--on", "sim", "--pes", &case.pes, "--ptx", &shown];
        let all: Vec<_> = arguments.into_iter().chain(words(&case.compile)).chain(words(&case.run)).collect();
        let out = weft(&all)?;
        let told = || format!("weft {}: {}", all.join(" "), String::from_utf8_lossy(&out.stderr));
        let compile = ["compile", &case.source, "--nvshmem", "extern"];
        let compile: Vec<_> = compile.into_iter().chain(words(&case.compile)).collect();
        same(&file, &compile).map_err(|e| format!("{e}\n{}", told()))?;
        fs::remove_file(&file).map_err(|e| e.to_string())?;
    }
    Ok(())
}

/// Checks the files that `weft check` writes against the output of the commands that it prints for
/// them.
fn check(cases: &[Case]) -> Result<(), String> {
    let folder = TempDir::new().map_err(|e| e.to_string())?;
    let file = folder.path().join("checked.ptx").display().to_string();
    let Some(case) = cases.first() else { return Err("no case".into()) };
    let arguments =
        ["check", &case.source, "--pes", &case.pes, "--seeds", "1", "--launches", "1", "--ptx", &file];
    let of_check = case.run.iter().filter(|(option, _)| ["--arg", "--grid"].contains(&&**option));
    let of_check = of_check.flat_map(|(option, value)| [&**option, &**value]);
    let all: Vec<_> = arguments.into_iter().chain(words(&case.compile)).chain(of_check).collect();
    let out = weft(&all)?;
    let told = String::from_utf8_lossy(&out.stderr);
    let written: Vec<_> = told.lines().filter_map(|line| line.split_once(": weft ")).collect();
    let files = fs::read_dir(folder.path()).map_err(|e| e.to_string())?.count();
    if written.is_empty() || written.len() != files {
        return Err(format!("weft {}: {files} files, and it says\n{told}", all.join(" ")));
    }
    // The check passes these options on unchanged.
    let passed_on = ["--arch", "--ptx-version", "--debug-waits"];
    let passed_on = case.compile.iter().filter(|(option, _)| passed_on.contains(&&**option));
    let passed_on: Vec<_> = passed_on.flat_map(|(option, value)| [&**option, &**value]).collect();
    for (path, command) in written {
        let command: Vec<_> = command.split(' ').chain(passed_on.iter().copied()).collect();
        same(Path::new(path), &command)?;
    }
    Ok(())
}

/// Checks that `weft run` simulates two nodes by default, so that transfers are done in place and
/// through NVSHMEM's functions.
fn both_branches() -> Result<(), String> {
    let source = "examples/10_ring_put_get.weft";
    let text = fs::read_to_string(source).map_err(|e| e.to_string())?;
    let file = KernelFile::parse(source, &text).map_err(|e| e.to_string())?;
    let target = "sm_90a".parse().map_err(|e| format!("{e}"))?;
    for (pes, node, in_place, called) in
        [(4, None, true, true), (4, Some(4), true, false), (4, Some(1), false, true)]
    {
        let mut options = RunOptions::new(Options::new(target), pes);
        options.node = node;
        let outcome = run_file(&file, &options).map_err(|e| e.to_string())?;
        let Ran::Simulator { stats, node: ran, .. } = &outcome.ran else {
            return Err("the kernel did not run on the simulator".into());
        };
        let calls = stats.nvshmem.calls.iter().any(|(name, n)| name.contains("putmem") && *n > 0);
        let stores = stats.links.iter().any(|bytes| *bytes > 0);
        if (stores, calls) != (in_place, called)
            || !outcome.passed()
            || *ran != Some(node.unwrap_or(2) as usize)
        {
            return Err(format!("{node:?}: in place {stores}, called {calls}, nodes of {ran:?}"));
        }
    }
    Ok(())
}

/// Checks that every example which is a kernel file has a file test that runs it.
fn examples_are_covered(files: &[PathBuf]) -> Result<(), String> {
    let texts: Vec<_> = files.iter().filter_map(|path| fs::read_to_string(path).ok()).collect();
    for entry in fs::read_dir("examples").map_err(|e| e.to_string())? {
        let path = entry.map_err(|e| e.to_string())?.path();
        let line = format!("// source: {}\n", path.display());
        let is_kernel = path.extension().is_some_and(|kind| kind == "weft");
        if is_kernel && path != Path::new(FUSED) && !texts.iter().any(|text| text.contains(&line)) {
            return Err(format!("{} has no file test", path.display()));
        }
    }
    Ok(())
}
