//! The formatter over every kernel file of the project, and over generated and mutated ones.

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

/// The kernel files of the project.
fn corpus() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut folders: Vec<PathBuf> =
        ["examples", "src", "tests", "benches"].iter().map(|f| root.join(f)).collect();
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "weft") {
                files.push(path);
            }
        }
    }
    assert!(files.len() > 400, "only {} kernel files found", files.len());
    files
}

#[test]
fn kernel_files_of_the_project() {
    for path in corpus() {
        let text = std::fs::read_to_string(&path).unwrap();
        let Some(once) = formatted(&text) else { continue };
        let twice = formatted(&once).unwrap();
        assert_eq!(once, twice, "{}", path.display());
        assert_eq!(print(&parse(0, &once).unwrap()), print(&parse(0, &text).unwrap()), "{}", path.display());
        for line in once.lines().filter(|line| line.chars().count() > MAX_WIDTH) {
            assert!(line.contains("//"), "{}: {line}", path.display());
        }
    }
}
