//! Tests of the formatter on every kernel file of the project, and on generated and mutated
//! kernels.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::path::{Path, PathBuf};
use weft_lang::format::{FormatError, MAX_WIDTH, format};
use weft_lang::parse;
use weft_lang::print::print;

fn formatted(text: &str) -> Option<String> {
    match format(0, text) {
        Ok(formatted) => Some(formatted),
        Err(FormatError::Syntax(_)) => None,
        Err(FormatError::Changed) => panic!("the formatter changes\n{text}"),
    }
}

/// The only kernel file of the project with syntax errors, which it tests.
const UNFORMATTED: &str = "tests/filetests/errors/syntax.weft";

/// A kernel text of the project: a file, or a snippet of a page.
struct Kernel {
    file: PathBuf,
    text: String,
}

/// The files of the project with this ending, without those in hidden folders, in build output, and
/// in the corpus of the fuzzer.
fn files(extension: &str) -> Vec<PathBuf> {
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")];
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy();
            let skipped = name.starts_with('.') || name.starts_with("target") || name == "node_modules";
            if path.is_dir()
                && !skipped
                && !path.ends_with("fuzz/corpus")
                && !path.ends_with("fuzz/artifacts")
            {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == extension) {
                files.push(path);
            }
        }
    }
    files.sort();
    files
}

/// The kernels that a page shows.
fn snippets(page: &str) -> impl Iterator<Item = &str> {
    page.split("```weft\n").skip(1).filter_map(|rest| rest.split_once("```")).map(|(text, _)| text)
}

/// Every kernel file and every snippet.
fn corpus() -> Vec<Kernel> {
    let mut kernels = Vec::new();
    for file in files("weft").into_iter().filter(|path| !path.ends_with(UNFORMATTED)) {
        kernels.push(Kernel { text: std::fs::read_to_string(&file).unwrap(), file });
    }
    let count = kernels.len();
    assert!(count > 400, "only {count} kernel files were found");
    for page in files("md") {
        let text = std::fs::read_to_string(&page).unwrap();
        kernels.extend(snippets(&text).map(|text| Kernel { file: page.clone(), text: text.to_owned() }));
    }
    assert!(kernels.len() > count + 30, "only {} snippets were found", kernels.len() - count);
    kernels
}

/// Checks that all kernels are formatted. WEFT_BLESS=1 formats them.
#[test]
fn kernels_of_the_project_are_formatted() {
    let bless = std::env::var_os("WEFT_BLESS").is_some();
    let mut unformatted = Vec::new();
    for Kernel { file, text } in corpus() {
        let Some(once) = formatted(&text) else { panic!("{} has syntax errors:\n{text}", file.display()) };
        if once == text {
            continue;
        }
        unformatted.push(file.display().to_string());
        if bless {
            let all = std::fs::read_to_string(&file).unwrap();
            std::fs::write(&file, all.replacen(&text, &once, 1)).unwrap();
        }
    }
    assert!(
        bless || unformatted.is_empty(),
        "`weft fmt` would change the kernels of these files; WEFT_BLESS=1 formats them:\n{}",
        unformatted.join("\n")
    );
}

/// Checks that formatted text does not change when it is formatted again, has the same meaning, and
/// fits.
#[test]
fn formatting_is_stable() {
    for Kernel { file, text } in corpus() {
        let Some(once) = formatted(&text) else { panic!("{} has syntax errors", file.display()) };
        let twice = formatted(&once).unwrap();
        assert_eq!(once, twice, "{}", file.display());
        assert_eq!(print(&parse(0, &once).unwrap()), print(&parse(0, &text).unwrap()), "{}", file.display());
        for line in once.lines().filter(|line| line.chars().count() > MAX_WIDTH) {
            assert!(line.contains("//"), "{}: {line}", file.display());
        }
    }
}
