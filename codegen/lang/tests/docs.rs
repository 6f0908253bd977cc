//! Checks that docs/language.md and the example kernels match the parser.

#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

use std::path::{Path, PathBuf};
use weft_lang::codes::syntax::EXPECTED_NAME;
use weft_lang::parse;
use weft_lang::render::{Color, render};
use weft_lang::source::SourceMap;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn language() -> String {
    std::fs::read_to_string(root().join("docs/language.md")).unwrap()
}

fn check(name: &str, text: &str) {
    if let Err(errors) = parse(0, text) {
        let mut sources = SourceMap::new();
        sources.add(name, text);
        panic!("{}", render(&errors, &sources, Color::Never));
    }
}

#[test]
fn every_snippet_parses() {
    let text = language();
    let snippets: Vec<_> =
        text.split("\n```weft\n").skip(1).map(|rest| rest.split("\n```").next().unwrap()).collect();
    assert!(snippets.len() >= 5, "{}", snippets.len());
    for (n, snippet) in snippets.iter().enumerate() {
        check(&format!("docs/language.md, snippet {}", n + 1), snippet);
    }
}

#[test]
fn every_example_parses() {
    let files = std::fs::read_dir(root().join("examples")).unwrap().map(|entry| entry.unwrap().path());
    let files: Vec<_> = files.filter(|path| path.extension().is_some_and(|kind| kind == "weft")).collect();
    assert!(!files.is_empty());
    for path in files {
        check(&path.display().to_string(), &std::fs::read_to_string(&path).unwrap());
    }
}

#[test]
fn the_listed_keywords_are_the_keywords() {
    let text = language();
    let paragraph = text.split("\n\n").find(|text| text.starts_with("**Keywords**")).unwrap();
    let words: Vec<_> = paragraph.split('`').skip(1).step_by(2).collect();
    assert_eq!(words.len(), 17);
    for word in words {
        let errors = parse(0, &format!("const {word} = 1;")).expect_err(word);
        assert_eq!((errors[0].code, &*errors[0].label), (EXPECTED_NAME, "a keyword"), "{word}");
    }
    for name in ["step", "unroll", "inf", "nan", "_x", "team", "barrier"] {
        check(name, &format!("const {name} = 1;"));
    }
}
