//! Tests kernels with a seeded bug, `tests/broken/**/*.{weft,ptx}`. The checks must find the bug
//! with the right diagnosis and nothing else. They must find nothing in the same kernel after the
//! bug is fixed. `support/seeded.rs` describes the files.
//!
//! `WEFT_FOUND=1 cargo test --test broken -- NAME --nocapture` prints the findings, each with the
//! first seed that shows it.

#[path = "support/handwritten.rs"]
mod handwritten;
#[path = "support/within_limit.rs"]
mod limit;
#[path = "support/seeded.rs"]
mod seeded;

use libtest_mimic::{Arguments, Failed, Trial};
use seeded::{Key, Seeded};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use weft::ir::diag::Severity;
use weft::{Define, KernelFile, Lowering, Transport};
use weft_check::{CheckOptions, check_file, check_sequence};
use weft_run::{Arg, RunError, Stage};

/// The maximum time of one test in seconds.
const LIMIT: u64 = 120;

/// A finding: its place, the first seed that shows it, and its text.
pub(crate) struct Found {
    pub(crate) key: Key,
    pub(crate) seed: u64,
    pub(crate) text: String,
}

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    if let Err(e) = std::env::set_current_dir(env!("CARGO_MANIFEST_DIR")) {
        eprintln!("{}: {e}", env!("CARGO_MANIFEST_DIR"));
        return ExitCode::FAILURE;
    }
    let mut files = Vec::new();
    collect(Path::new("tests/broken"), &mut files);
    files.sort();
    let mut trials: Vec<_> = files.iter().flat_map(|path| trials(path)).collect();
    trials.push(Trial::test("there are broken kernels", move || match files.len() {
        0..40 => Err(format!("only {} files found", files.len()).into()),
        _ => Ok(()),
    }));
    libtest_mimic::run(&arguments, trials).exit_code()
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    for path in entries.map(|entry| entry.path()) {
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|kind| kind == "weft" || kind == "ptx") {
            files.push(path);
        }
    }
}

fn trials(path: &Path) -> Vec<Trial> {
    let shown = path.strip_prefix("tests/broken").unwrap_or(path).display().to_string();
    let ptx = path.extension().is_some_and(|kind| kind == "ptx");
    let read = fs::read_to_string(path).map_err(|e| e.to_string()).and_then(|text| Seeded::read(&text, ptx));
    let file = match read {
        Ok(file) => Arc::new((path.display().to_string(), ptx, file)),
        Err(e) => return vec![Trial::test(shown, move || Err(Failed::from(e)))],
    };
    let mended = file.clone();
    vec![
        Trial::test(shown.clone(), move || {
            limit::within(LIMIT, move || broken(&file.0, file.1, &file.2)).map_err(Failed::from)
        }),
        Trial::test(format!("{shown} mended"), move || {
            limit::within(LIMIT, move || clean(&mended.0, mended.1, &mended.2)).map_err(Failed::from)
        }),
    ]
}

fn find(name: &str, ptx: bool, file: &Seeded, text: &str, seeds: u64) -> Result<Vec<Found>, String> {
    if ptx { handwritten::find(file, text, seeds) } else { find_in_weft(name, file, text, seeds) }
}

/// Checks that all expected findings occur, and no others.
fn broken(name: &str, ptx: bool, file: &Seeded) -> Result<(), String> {
    let found = find(name, ptx, file, &file.broken, file.within)?;
    let shown = |found: &Found| {
        let (code, lines) = &found.key;
        format!("{code} at {lines:?}, seed {}:\n{}\n", found.seed, found.text)
    };
    if std::env::var_os("WEFT_FOUND").is_some() {
        println!("{name}\n{}", found.iter().map(shown).collect::<String>());
    }
    let mut rest: BTreeMap<&Key, &Found> = found.iter().map(|f| (&f.key, f)).collect();
    let mut wrong = String::new();
    let mut before = None;
    for expected in &file.finds {
        let key = file.key(expected)?;
        let place = found.iter().position(|f| f.key == key);
        if expected.behind && place < before {
            wrong += &format!("listed before its cause: {} at {:?}\n", key.0, key.1);
        }
        before = place;
        match rest.remove(&key) {
            None => wrong += &format!("not found: {} at {:?}\n", key.0, key.1),
            Some(found) => {
                let says = |text: &&String| found.text.contains(&***text);
                for text in expected.says.iter().filter(|text| !says(text)) {
                    wrong += &format!("it does not say `{text}`: {}", shown(found));
                }
                for text in expected.denies.iter().filter(says) {
                    wrong += &format!("it says `{text}`: {}", shown(found));
                }
            }
        }
    }
    for expected in &file.may {
        rest.remove(&file.key(expected)?);
    }
    for found in rest.values() {
        wrong += &format!("not expected: {}", shown(found));
    }
    if wrong.is_empty() { Ok(()) } else { Err(wrong) }
}

fn clean(name: &str, ptx: bool, file: &Seeded) -> Result<(), String> {
    let found = find(name, ptx, file, &file.mended, file.clean)?;
    match found.first() {
        None => Ok(()),
        Some(f) => Err(format!("{} at {:?}, seed {}:\n{}", f.key.0, f.key.1, f.seed, f.text)),
    }
}

/// The findings of `weft check`.
fn find_in_weft(name: &str, file: &Seeded, text: &str, seeds: u64) -> Result<Vec<Found>, String> {
    let kernels = match KernelFile::parse(name, text) {
        Ok(kernels) => kernels,
        Err(e) => return Err(e.to_string()),
    };
    let names = file.word("sequence").unwrap_or_default().split_whitespace();
    let stages: Vec<_> = names.map(|kernel| Stage { file: &kernels, kernel: Some(kernel) }).collect();
    let options = options(file, seeds)?;
    let report = match &stages[..] {
        [] => check_file(&kernels, &options),
        stages => check_sequence(stages, &options, &|_| ()),
    };
    match report {
        Ok(report) => Ok(report.findings.iter().map(|f| found(f, &kernels)).collect()),
        // The error is one that the compiler reports.
        Err(RunError::Compile(e)) => {
            let errors = e.diagnostics.iter().filter(|d| d.severity == Severity::Error);
            let line = |span| kernels.sources().line_column(span).map(|at| at.line);
            let key =
                |d: &weft::ir::diag::Diagnostic| (d.code.to_string(), line(d.span).into_iter().collect());
            Ok(errors.map(|d| Found { key: key(d), seed: 0, text: e.to_string() }).collect())
        }
        Err(e) => Err(e.to_string()),
    }
}

fn found(finding: &weft_check::Finding, kernels: &KernelFile) -> Found {
    let line = |a: &weft_check::Access| kernels.sources().line_column(a.span).map_or(0, |at| at.line);
    let mut lines: Vec<u32> = finding.accesses.iter().map(line).collect();
    lines.sort_unstable();
    let mut text = finding.message.clone() + "\n";
    for access in &finding.accesses {
        text += &format!("at line {}: {} {}\n", line(access), access.who(), access.what);
    }
    finding.notes.iter().for_each(|note| text += &format!("note: {note}\n"));
    text += &format!("help: {}\nrun: {}\n", finding.help, finding.replay);
    Found { key: (finding.code.clone(), lines), seed: finding.replay.seed, text }
}

fn options(file: &Seeded, seeds: u64) -> Result<CheckOptions, String> {
    let arch = file.word("arch").unwrap_or("sm_90a");
    let mut options = CheckOptions::new(arch.parse().map_err(|e| format!("arch: {e}"))?);
    options.pes.clone_from(&file.pes);
    options.seeds = seeds;
    let number = |word: &str| {
        let value = file.word(word).map(|v| v.parse::<u32>().map_err(|e| format!("{word}: {v}: {e}")));
        value.transpose()
    };
    options.launches = number("launches")?.unwrap_or(1);
    options.overlap = file.word("overlap") == Some("true");
    options.grid = number("grid")?.map(|n| [n, 1, 1]);
    // A wait that never ends must be reported as a deadlock, and the test must be quick.
    options.step_limit = Some(10_000_000);
    options.compile.lowering = match file.word("lowering").unwrap_or("multimem") {
        "multimem" => Lowering::Multimem,
        "unicast" => Lowering::Unicast,
        other => return Err(format!("lowering: {other}")),
    };
    options.compile.transport = match file.word("transport").unwrap_or("nvshmem") {
        "nvshmem" => Transport::Nvshmem,
        "p2p" => Transport::P2p,
        other => return Err(format!("transport: {other}")),
    };
    let value = |v: &str| Define::parse(v).ok_or(format!("`{v}` is no value"));
    for (name, v) in file.pairs("define")? {
        options.compile.defines.insert(name.to_owned(), value(v)?);
    }
    for (name, v) in file.pairs("arg")? {
        options.args.insert(name.to_owned(), Arg::parse(v).ok_or(format!("`{v}` is no value"))?);
    }
    Ok(options)
}
