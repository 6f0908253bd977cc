//! The documents are true: every snippet compiles, every generated table is current.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::PathBuf;
use weft::lang::elaborate::Loader;
use weft::{KernelFile, Options};

fn doc(name: &str) -> (PathBuf, String) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("docs").join(name);
    let text = std::fs::read_to_string(&path).unwrap();
    (path, text)
}

/// The file that a snippet uses stands for any other.
struct Tiles;

impl Loader for Tiles {
    fn file(&self, _from: &str, path: &str) -> Result<(String, String), String> {
        Ok((path.to_owned(), "const TILE = 64;".to_owned()))
    }
    fn builtin(&self, path: &str) -> Option<&str> {
        weft::library::part(path)
    }
}

#[test]
fn every_snippet_of_the_language_compiles() {
    let (_, text) = doc("language.md");
    let mut kernels = 0;
    for (i, part) in text.split("```weft\n").enumerate().skip(1) {
        let snippet = part.split("```").next().unwrap();
        let file = KernelFile::parse_with(&format!("snippet {i}"), snippet, &Tiles)
            .unwrap_or_else(|e| panic!("{e}"));
        if file.heads().is_empty() {
            continue;
        }
        let compiled =
            file.compile(&Options::new("sm_90a".parse().unwrap())).unwrap_or_else(|e| panic!("{e}"));
        kernels += compiled.low.kernels.len();
    }
    assert!(kernels >= 8, "only {kernels} kernels stand in docs/language.md");
}

/// The text between two marks of a document is what `make` gives; WEFT_BLESS=1 writes it.
fn generated(name: &str, begin: &str, end: &str, made: &str) {
    let (path, text) = doc(name);
    let (head, rest) = text.split_once(begin).unwrap();
    let (have, tail) = rest.split_once(end).unwrap();
    if have.trim() == made.trim() {
        return;
    }
    assert!(
        std::env::var_os("WEFT_BLESS").is_some(),
        "docs/{name} is not current: run the tests with WEFT_BLESS=1"
    );
    std::fs::write(path, format!("{head}{begin}\n{}\n{end}{tail}", made.trim_end())).unwrap();
}

#[test]
fn the_function_tables_are_current() {
    let made = weft::lang::elaborate::markdown();
    generated("language.md", "<!-- functions: generated -->", "<!-- end of functions -->", &made);
}

#[test]
fn the_error_pages_are_current() {
    generated("errors.md", "<!-- codes: generated -->", "<!-- end of codes -->", &weft::codes::markdown());
}
