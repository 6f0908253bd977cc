//! Checks that the commands of README.md and docs/ print the text below them. Every ```console
//! block is run, line by line.
//!
//! A kernel block whose first line is `// NAME.weft` is saved under that name beside the examples.
//!
//! `sh` runs a line `$ command` in a folder with the examples, with `weft` in the path. The lines
//! below it are its output. `...` stands for any text in a line and, alone, for any number of
//! lines. A command must fail if a line of its output begins with `error[` or `error:`, and must
//! succeed otherwise. `cargo run --release -- ...` is run as `weft ...`. GPUs are hidden, so that
//! the output is the simulator's on every machine.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

/// The command that runs this test, which therefore cannot run it.
const TESTS: &str = "cargo test --workspace";

struct Step {
    command: String,
    prints: Vec<String>,
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The commands of a document's console blocks, in order.
fn steps(document: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for block in document.split("```console\n").skip(1) {
        for line in block.split("```").next().unwrap_or_default().lines() {
            match (line.strip_prefix("$ "), steps.last_mut()) {
                (Some(command), _) => steps.push(Step { command: command.to_owned(), prints: Vec::new() }),
                (None, Some(step)) => step.prints.push(line.trim_end().to_owned()),
                (None, None) => panic!("no command before `{line}`"),
            }
        }
    }
    steps
}

/// Whether a line matches the expected line, in which `...` stands for any text.
fn line_matches(expected: &str, line: &str) -> bool {
    match expected.split_once("...") {
        None => expected == line,
        Some((before, rest)) => line.strip_prefix(before).is_some_and(|line| {
            (0..=line.len()).filter(|at| line.is_char_boundary(*at)).any(|at| line_matches(rest, &line[at..]))
        }),
    }
}

/// Whether lines match the expected lines, in which the line `...` stands for any number of lines.
fn lines_match(expected: &[String], lines: &[&str]) -> bool {
    match (expected.split_first(), lines.split_first()) {
        (None, None) => true,
        (Some((first, rest)), _) if first == "..." => {
            (0..=lines.len()).any(|n| lines_match(rest, &lines[n..]))
        }
        (Some((first, rest)), Some((line, others))) => {
            line_matches(first, line.trim_end()) && lines_match(rest, others)
        }
        _ => false,
    }
}

/// A folder with the examples, and a folder with `weft` for the path.
fn place() -> (TempDir, PathBuf) {
    let place = TempDir::new().unwrap();
    let (examples, bin) = (place.path().join("examples"), place.path().join(".bin"));
    fs::create_dir(&examples).unwrap();
    fs::create_dir(&bin).unwrap();
    for entry in fs::read_dir(root().join("examples")).unwrap() {
        let from = entry.unwrap().path();
        fs::copy(&from, examples.join(from.file_name().unwrap())).unwrap();
    }
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_weft"), bin.join("weft")).unwrap();
    (place, bin)
}

/// Writes the kernels of a document that have a name in their first line, `// NAME.weft`.
fn save_kernels(document: &str, place: &Path) {
    for block in document.split("```weft\n").skip(1) {
        let text = block.split("```").next().unwrap_or_default();
        let name = text.lines().next().and_then(|line| line.strip_prefix("// "));
        if let Some(name) = name.filter(|name| name.contains(".weft") && !name.contains([' ', '/'])) {
            fs::write(place.join(name), text).unwrap();
        }
    }
}

/// Runs a document's commands and returns their number.
fn run(name: &str) -> usize {
    let document = fs::read_to_string(root().join(name)).unwrap();
    let steps = steps(&document);
    let (place, bin) = place();
    save_kernels(&document, place.path());
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    for step in steps.iter().filter(|step| step.command != TESTS) {
        let command = step.command.replace("cargo run --release -- ", "weft ");
        let shell = format!("exec 2>&1; {command}");
        let mut sh = Command::new("sh");
        sh.args(["-c", &shell]).current_dir(&place).env("PATH", &path).env("CUDA_VISIBLE_DEVICES", "");
        let out = sh.output().unwrap();
        let printed = String::from_utf8(out.stdout).unwrap();
        let fails = step.prints.iter().any(|line| line.starts_with("error[") || line.starts_with("error:"));
        assert_eq!(out.status.success(), !fails, "{name}: $ {}\n{printed}", step.command);
        // On a slow machine, notes say how far a command is. A terminal shows a bar instead.
        let lines: Vec<_> = printed.lines().filter(|line| !line.ends_with(" s so far")).collect();
        assert!(
            step.prints.is_empty() || lines_match(&step.prints, &lines),
            "{name}: $ {}\nprints\n{printed}\nand not\n{}",
            step.command,
            step.prints.join("\n")
        );
    }
    steps.len()
}

#[test]
fn the_tour_is_true() {
    let document = fs::read_to_string(root().join("README.md")).unwrap();
    assert!(document.contains(&format!("$ {TESTS}\n")), "README.md does not name the test command");
    assert_eq!(run("README.md"), 2);
    assert!(run("docs/tour.md") >= 14);
}

#[test]
fn the_lessons_are_true() {
    let lessons = fs::read_dir(root().join("docs/tutorial")).unwrap().map(|entry| entry.unwrap().file_name());
    let lessons: Vec<_> = lessons.map(|name| format!("docs/tutorial/{}", name.to_str().unwrap())).collect();
    assert_eq!(lessons.len(), 6);
    for lesson in lessons {
        assert!(run(&lesson) >= 2, "{lesson}");
    }
}

#[test]
fn the_architecture_page_is_true() {
    assert!(run("docs/architecture.md") >= 2);
}

#[test]
fn the_page_of_real_gpus_is_true() {
    assert!(run("docs/gpu.md") >= 2);
}

#[test]
fn the_page_of_checks_is_true() {
    assert!(run("docs/checking.md") >= 6);
}

#[test]
fn the_page_of_reports_is_true() {
    assert!(run("docs/report.md") >= 3);
}

/// A text without comments and empty lines.
fn code(text: &str) -> Vec<&str> {
    let lines = text.lines().map(|line| line.split("//").next().unwrap_or_default().trim_end());
    lines.filter(|line| !line.is_empty()).collect()
}

#[test]
fn the_kernels_shown_are_those_that_run() {
    for (name, example) in [("README.md", "allreduce_two_shot"), ("docs/architecture.md", "all_gather")] {
        let document = fs::read_to_string(root().join(name)).unwrap();
        let shown = document.split("```weft\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
        let kernel = fs::read_to_string(root().join(format!("examples/{example}.weft"))).unwrap();
        assert_eq!(code(shown), code(&kernel), "{name} does not show examples/{example}.weft");
    }
}

/// Checks that every file to which a document links exists.
#[test]
fn links_have_existing_targets() {
    for name in [
        "README.md",
        "CONTRIBUTING.md",
        "docs/tour.md",
        "docs/architecture.md",
        "docs/builder.md",
        "docs/checking.md",
        "docs/gpu.md",
        "docs/gpu-verification.md",
        "docs/language.md",
        "docs/performance.md",
        "docs/python.md",
        "python/README.md",
    ] {
        let document = fs::read_to_string(root().join(name)).unwrap();
        // In code, text that looks like a link is an index and a call.
        let text: String = document.split('`').step_by(2).collect();
        let folder = root().join(name).parent().unwrap().to_owned();
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let file = link.split('#').next().unwrap_or_default();
            if !link.contains("://") && !file.is_empty() {
                assert!(folder.join(file).exists(), "{name} points at {file}, which is not there");
            }
        }
    }
}

/// Checks the page's statement on the product of matrices: it has 60 lines, including the part of
/// the library that it uses.
#[test]
fn the_product_of_matrices_is_short() {
    let lines = |path: &str| {
        let text = fs::read_to_string(root().join(path)).unwrap();
        let code = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("//"));
        code.inspect(|line| assert!(line.len() <= 120, "{path}: {line}")).count()
    };
    let all = lines("examples/gemm.weft") + lines("warpweft/src/library/gemm.weft");
    assert!(all <= 60, "{all} lines");
    let attention = lines("examples/attention.weft");
    assert!(attention <= 120, "{attention} lines");
}
