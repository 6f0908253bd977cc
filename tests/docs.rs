//! Checks that every snippet of the documents compiles, and that every generated table is current.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::fmt::Write;
use std::path::PathBuf;
use weft::codes::Page;
use weft::ir::codes::Example;
use weft::lang::elaborate::Loader;
use weft::{KernelFile, Options};

fn doc(name: &str) -> (PathBuf, String) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("docs").join(name);
    let text = std::fs::read_to_string(&path).unwrap();
    (path, text)
}

/// A loader that returns the same text for every file that a snippet uses.
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
    let kernels = compiled("language.md");
    assert!(kernels >= 8, "only {kernels} kernels stand in docs/language.md");
}

#[test]
fn every_snippet_of_the_gemm_library_compiles() {
    let kernels = compiled("gemm-library.md");
    assert!(kernels >= 2, "only {kernels} kernels stand in docs/gemm-library.md");
}

/// Compiles the snippets of a document, and returns the number of their kernels.
fn compiled(name: &str) -> usize {
    let (_, text) = doc(name);
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
    kernels
}

/// Checks that the page names every launcher's variables, and every NVSHMEM function that an
/// operation on streams calls.
#[test]
fn the_page_of_real_gpus_is_complete() {
    let (_, page) = doc("gpu.md");
    let room = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("runtime/src");
    let source = |name: &str| std::fs::read_to_string(room.join(name)).unwrap();
    let (environment, calls) = (source("job/env.rs"), source("nvshmem/result.rs"));

    let launchers = environment.split("const LAUNCHERS").nth(1).and_then(|rest| rest.split("\n];").next());
    let rows = launchers.unwrap().lines().map(str::trim);
    let rows = rows.filter(|row| ["rank:", "size:", "local_"].iter().any(|field| row.starts_with(field)));
    let variables: Vec<_> = rows
        .flat_map(|row| row.split('"').skip(1).step_by(2))
        .filter(|name| name.bytes().all(|b| b.is_ascii_uppercase() || b == b'_'))
        .collect();
    let words = calls.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let functions: Vec<_> =
        words.filter(|w| w.starts_with("nvshmemx_") && w.ends_with("_on_stream")).collect();
    assert!(variables.len() >= 20 && functions.len() >= 12, "{variables:?} {functions:?}");
    for name in variables.iter().chain(&functions) {
        assert!(page.contains(&format!("`{name}`")), "docs/gpu.md does not say `{name}`");
    }
}

/// Checks that the text between two marks of a document equals `made`. WEFT_BLESS=1 writes it.
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

/// Wraps the text to lines of at most 100 columns.
fn wrapped(text: &str) -> String {
    let mut out = String::new();
    let mut column = 0;
    for word in text.split_whitespace() {
        let width = word.chars().count();
        let fits = column + 1 + width <= 100;
        out.push_str(match (column, fits) {
            (0, _) => "",
            (_, true) => " ",
            (_, false) => "\n",
        });
        column = if column > 0 && fits { column + 1 + width } else { width };
        out.push_str(word);
    }
    out
}

/// The list of all codes for docs/errors.md.
fn codes_as_markdown() -> String {
    let mut out = String::new();
    for Page { code, title, explanation, example } in Page::all() {
        // Writing to a string cannot fail.
        let _ = write!(out, "### {code}: {title}\n\n{}\n\n", wrapped(explanation));
        let _ = match example {
            Example::Text("") | Example::Words("") => Ok(()),
            Example::Text(text) => write!(out, "```text\n{}\n```\n\n", text.trim_end()),
            Example::Words(words) => write!(out, "{}\n\n", wrapped(&format!("An example is {words}."))),
        };
    }
    out
}

#[test]
fn the_error_pages_are_current() {
    generated("errors.md", "<!-- codes: generated -->", "<!-- end of codes -->", &codes_as_markdown());
}

#[test]
fn the_table_of_gemm_parameters_is_current() {
    let row = |p: &weft::gemm::Parameter| {
        let values: Vec<_> = p.values.iter().map(u32::to_string).collect();
        format!("| `{}` | {} | {} |\n", p.name.to_ascii_lowercase(), values.join(", "), p.about)
    };
    let rows: String = weft::gemm::Plan::PARAMETERS.iter().map(row).collect();
    let made = format!("| parameter | values | |\n|---|---|---|\n{rows}");
    generated("gemm.md", "<!-- parameters: generated -->", "<!-- end of parameters -->", &made);
}
