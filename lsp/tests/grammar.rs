//! The words of the grammars for editors are those of the language.

#![allow(clippy::unwrap_used, reason = "tests")]

use serde_json::Value;
use std::collections::BTreeSet;
use weft_ir::Scalar;
use weft_lang::elaborate::{NoFiles, Program};
use weft_lang::source::SourceMap;
use weft_lang::{PLACED_WORDS, keywords};

/// The words between the first brackets of a rule.
fn words(rule: &str) -> BTreeSet<String> {
    let text = include_str!("../../editors/vscode/syntaxes/weft.tmLanguage.json");
    let grammar: Value = serde_json::from_str(text).unwrap();
    let pattern = grammar["repository"][rule]["match"].as_str().unwrap();
    let (_, rest) = pattern.split_once('(').unwrap();
    rest.split_once(')').unwrap().0.split('|').map(str::to_owned).collect()
}

fn set<'a>(words: impl Iterator<Item = &'a str>) -> BTreeSet<String> {
    words.map(str::to_owned).collect()
}

#[test]
fn keywords_agree() {
    assert_eq!(words("keywords"), set(keywords()));
    assert_eq!(words("placed"), set(PLACED_WORDS.iter().copied()));
}

/// The help for an unknown type lists all types that are no element types.
#[test]
fn types_agree() {
    let mut sources = SourceMap::new();
    let root = sources.add("k.weft", "fn f(x: no_type_has_this_name) { x } kernel k() block(32) { }");
    let found = Program::load(&mut sources, root, &NoFiles).unwrap().resolve(true).found;
    let help = found[0].help.as_deref().unwrap();
    let types = help.strip_prefix("the types are ").unwrap().strip_suffix(", and element types").unwrap();
    assert_eq!(words("types"), set(types.split(", ").chain(Scalar::ALL.iter().map(|s| s.name()))));
}

#[test]
fn the_tree_sitter_grammar_has_the_words() {
    let grammar = include_str!("../../editors/tree-sitter-weft/grammar.js");
    let highlights = include_str!("../../editors/tree-sitter-weft/queries/highlights.scm");
    for word in keywords().chain(PLACED_WORDS.iter().copied()) {
        assert!(grammar.contains(&format!("\"{word}\"")), "grammar.js does not have `{word}`");
    }
    for name in Scalar::ALL.iter().map(|s| s.name()) {
        assert!(highlights.contains(&format!("\"{name}\"")), "highlights.scm does not have `{name}`");
    }
}
