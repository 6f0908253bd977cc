//! Checks that nothing is found in correct kernels: those of `examples/` and
//! `warpweft/src/library/`, and those of the file tests that run, on 2 to 8 PEs with all checks.
//! The fixed kernels of `tests/broken/` have a test of their own.
//!
//! Each file runs with the number of seeds in `WEFT_SEEDS`, or 6 seeds by default. They are
//! distributed over the settings of its `run` directives and over numbers of PEs:
//!
//! ```text
//! WEFT_SEEDS=1000 cargo test --release --test clean
//! ```

#[allow(dead_code, reason = "runs need only a part of it")]
#[path = "support/directives.rs"]
#[expect(dead_code, reason = "the file tests check the compiled text")]
mod directives;
#[path = "support/within_limit.rs"]
mod limit;
#[path = "support/sequence.rs"]
mod sequence;

use directives::{Expectations, Setting};
use libtest_mimic::{Arguments, Failed, Trial};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use weft::lang::render::Color;
use weft::{Define, KernelFile, Lowering, Transport};
use weft_check::{CheckOptions, check_file, check_sequence};
use weft_run::{Arg, Stage};

/// The default number of seeds of a file.
const SEEDS: u64 = 6;

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    if let Err(e) = std::env::set_current_dir(env!("CARGO_MANIFEST_DIR")) {
        eprintln!("{}: {e}", env!("CARGO_MANIFEST_DIR"));
        return ExitCode::FAILURE;
    }
    let seeds = match std::env::var("WEFT_SEEDS").ok().map(|n| n.parse()) {
        None => SEEDS,
        Some(Ok(n)) => n,
        Some(Err(e)) => {
            eprintln!("WEFT_SEEDS: {e}");
            return ExitCode::FAILURE;
        }
    };
    let mut files = Vec::new();
    collect(Path::new("tests/filetests"), &mut files);
    files.sort();
    let mut trials: Vec<Trial> = files.into_iter().filter_map(|path| trial(path, seeds)).collect();
    let n = trials.len();
    trials.push(Trial::test("there are kernels", move || match n {
        0..60 => Err(format!("only {n} files").into()),
        _ => Ok(()),
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

/// The test of a file that runs and is correct.
fn trial(path: PathBuf, seeds: u64) -> Option<Trial> {
    let shown = path.strip_prefix("tests/filetests").unwrap_or(&path).display().to_string();
    let text = fs::read_to_string(&path).ok()?;
    // The file tests report errors in the directives.
    let expects = directives::parse(&text).ok()?;
    if expects.runs.is_empty() || expects.fails.is_some() {
        return None;
    }
    Some(Trial::test(shown, move || {
        limit::within(120 + 10 * seeds, move || clean(&path, &expects, text, seeds)).map_err(Failed::from)
    }))
}

fn clean(path: &Path, expects: &Expectations, text: String, seeds: u64) -> Result<(), String> {
    let (name, text) = match &expects.source {
        Some(source) => (source.clone(), fs::read_to_string(source).map_err(|e| format!("{source}: {e}"))?),
        None => (path.display().to_string(), text),
    };
    let file = KernelFile::parse(&name, &text).map_err(|e| e.to_string())?;
    let numbers = numbers(expects);
    let settings: Vec<_> = settings(expects).into_iter().map(|s| (fitting(&numbers, &s), s)).collect();
    let all: u64 = settings.iter().map(|(numbers, _)| numbers.len() as u64).sum();
    if settings.iter().any(|(numbers, _)| numbers.is_empty()) {
        return Err("no number of PEs fits a setting's P or ROOT".into());
    }
    let runs = all.min(seeds);
    let each = seeds.div_ceil(runs);
    for i in 0..runs {
        // If there are fewer seeds than combinations, every number of PEs is used in turn, and the
        // settings are distributed over all of the file's directives.
        let of = settings.len() as u64;
        let (numbers, setting) = &settings[if runs < of { i * of / runs } else { i % of } as usize];
        let pes = numbers[((i + i / settings.len() as u64) % numbers.len() as u64) as usize];
        let mut options = options(expects, &file, setting)?;
        options.pes = vec![pes];
        (options.seed, options.seeds) = (i * each, each);
        let with = format!("{pes} PEs, {setting:?}");
        let kernels = sequence::kernels(expects)?;
        let stages = kernels
            .iter()
            .map(|(other, kernel)| Stage { file: other.as_ref().unwrap_or(&file), kernel: Some(kernel) });
        let report = match &stages.collect::<Vec<_>>()[..] {
            [] => check_file(&file, &options),
            stages => check_sequence(stages, &options, &|_| ()),
        };
        let report = report.map_err(|e| format!("{with}: {e}"))?;
        if !report.is_clean() {
            return Err(format!("{with}:\n{}", report.text(Color::Never)));
        }
    }
    Ok(())
}

/// All settings except the numbers of PEs, nodes, and limits of waits.
fn settings(expects: &Expectations) -> Vec<Setting> {
    let mut all: Vec<Setting> = Vec::new();
    for mut setting in expects.runs.iter().flat_map(|r| r.settings()) {
        setting.retain(|(word, _)| !["pes", "seed", "node", "waits"].contains(&word.as_str()));
        if !all.contains(&setting) {
            all.push(setting);
        }
    }
    all
}

/// The numbers of PEs that a setting permits. A setting can name a PE as root, or the number of PEs
/// as P.
fn fitting(numbers: &[usize], setting: &Setting) -> Vec<usize> {
    let given = |name: &str| setting.iter().find(|(word, _)| word == name).and_then(|(_, n)| n.parse().ok());
    let (root, pes) = (given("ROOT"), given("P"));
    let fits = |n: &usize| root.is_none_or(|root: usize| *n > root) && pes.is_none_or(|p: usize| *n == p);
    numbers.iter().copied().filter(fits).collect()
}

/// The numbers of PEs: 2 to 8, or the only number of the file.
fn numbers(expects: &Expectations) -> Vec<usize> {
    let settings = expects.runs.iter().flat_map(|r| r.settings()).flatten();
    let mut given: Vec<usize> =
        settings.filter(|(word, _)| word == "pes").filter_map(|(_, n)| n.parse().ok()).collect();
    given.sort_unstable();
    given.dedup();
    if given.len() > 1 {
        (2..=8).collect()
    } else if given.is_empty() {
        vec![1]
    } else {
        given
    }
}

fn options(expects: &Expectations, file: &KernelFile, setting: &Setting) -> Result<CheckOptions, String> {
    let target = expects.arch.as_deref().unwrap_or("sm_90a");
    let mut options = CheckOptions::new(target.parse().map_err(|e| format!("arch: {e}"))?);
    (options.launches, options.overlap) = (2, expects.overlap);
    let kernels = sequence::kernels(expects)?;
    let files = kernels.iter().filter_map(|(other, _)| other.as_ref()).chain([file]);
    let generics: Vec<_> = files.flat_map(|file| file.heads()).flat_map(|head| head.generics).collect();
    let given = |word: &str, value: &Option<String>| value.clone().map(|v| (word.to_owned(), v));
    let head = [given("lowering", &expects.lowering), given("transport", &expects.transport)];
    let all =
        expects.defines.iter().cloned().chain(head.into_iter().flatten()).chain(setting.iter().cloned());
    for (word, value) in all {
        let number = || value.parse::<u32>().map_err(|e| format!("{word}={value}: {e}"));
        let define = || Define::parse(&value).ok_or_else(|| format!("`{value}` is no value"));
        match word.as_str() {
            "grid" => options.grid = Some([number()?, 1, 1]),
            "launches" => options.launches = number()?,
            "arch" => options.compile.target = value.parse().map_err(|e| format!("arch: {e}"))?,
            "lowering" => {
                let lowerings = [("multimem", Lowering::Multimem), ("unicast", Lowering::Unicast)];
                let found = lowerings.into_iter().find(|(name, _)| *name == value);
                options.compile.lowering = found.ok_or(format!("lowering: {value}"))?.1;
            }
            "transport" => {
                let ways =
                    [("auto", Transport::Auto), ("nvshmem", Transport::Nvshmem), ("p2p", Transport::P2p)];
                let found = ways.into_iter().find(|(name, _)| *name == value);
                options.compile.transport = found.ok_or(format!("transport: {value}"))?.1;
            }
            _ if generics.iter().any(|(name, ..)| **name == *word) => {
                options.compile.defines.insert(word.clone(), define()?);
            }
            _ => {
                let arg = Arg::parse(&value).ok_or_else(|| format!("`{value}` is no value"))?;
                options.args.insert(word.clone(), arg);
            }
        }
    }
    Ok(options)
}
