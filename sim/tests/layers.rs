//! The modules of the crate import downwards only: each from those before it in [`LAYERS`].

#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::path::{Path, PathBuf};

/// The modules, lowest first, and what each is for.
const LAYERS: [(&str, &str); 22] = [
    ("setters", "the macro that options get their setters from"),
    ("visible", "control characters that are shown"),
    ("num", "arithmetic that PTX defines bit by bit"),
    ("rng", "random numbers"),
    ("stats", "counters"),
    ("codes", "the codes of errors and findings"),
    ("order", "memory orders and scopes"),
    ("names", "names of threads"),
    ("error", "errors and places"),
    ("types", "PTX's types"),
    ("ptx", "text to syntax tree"),
    ("model", "lanes and warps"),
    ("memory", "allocations, and stores that are under way"),
    ("check", "the detector of races"),
    ("exec", "what runs warps, and what they have begun and not completed"),
    ("builder", "code under construction"),
    ("isa", "instructions"),
    ("nvshmem", "functions of NVSHMEM's"),
    ("decode", "syntax tree to code"),
    ("module", "PTX that has been read"),
    ("machine", "PEs and launches"),
    ("slices", "launches over slices"),
];

fn rank(module: &str) -> Option<usize> {
    LAYERS.iter().position(|(name, _)| *name == module)
}

fn sources(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, files);
        } else if path.extension().is_some_and(|kind| kind == "rs") {
            files.push(path);
        }
    }
}

/// Names behind `crate::`, and behind as many `super::` as lead from a module of this depth to the crate.
fn imports(line: &str, depth: usize) -> Vec<String> {
    let mut found = Vec::new();
    for prefix in ["crate::".to_owned(), "super::".repeat(depth)] {
        for (at, _) in line.match_indices(&prefix) {
            // Of `super::super::x` with one `super::` too many, the shorter prefix is no import of the crate's.
            let before = line[..at].chars().last();
            let rest = &line[at + prefix.len()..];
            if before.is_some_and(|c| c.is_alphanumeric() || c == ':') || rest.starts_with("super::") {
                continue;
            }
            let list = rest.strip_prefix('{').and_then(|list| list.split('}').next()).unwrap_or(rest);
            let names = list.split(',').take(if rest.starts_with('{') { usize::MAX } else { 1 });
            let name = |n: &str| n.trim().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            found.extend(names.map(name).filter(|n: &String| !n.is_empty()));
        }
    }
    found
}

/// Imports of a text from modules that do not stand below it.
fn upward(path: &[&str], text: &str) -> Vec<String> {
    let Some(own) = path.first().and_then(|module| rank(module)) else { return Vec::new() };
    let mut found = Vec::new();
    for (line, number) in text.lines().zip(1..) {
        if line.trim_start().starts_with("//") {
            continue;
        }
        for name in imports(line, path.len()) {
            if rank(&name).is_some_and(|rank| rank > own) {
                found.push(format!("{}:{number}: `{}` imports from `{name}`", path.join("::"), path[0]));
            }
        }
    }
    found
}

#[test]
fn modules_import_downwards() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    sources(&root, &mut files);
    let mut found = Vec::new();
    let mut modules = std::collections::BTreeSet::new();
    for file in &files {
        let relative = file.strip_prefix(&root).unwrap().with_extension("");
        let mut path: Vec<&str> = relative.iter().map(|part| part.to_str().unwrap()).collect();
        path.retain(|part| *part != "mod");
        if path != ["lib"] {
            modules.insert(path[0].to_owned());
            found.extend(upward(&path, &fs::read_to_string(file).unwrap()));
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
    let known = LAYERS.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(modules, known, "every module has its layer");
}

#[test]
fn an_import_upwards_is_found() {
    let path = ["memory", "delayed"];
    let upwards = [
        "use crate::exec::Context;",
        "    let run: &crate::machine::Machine;",
        "use crate::{exec, order};",
        "use super::super::check::Detector;",
    ];
    for line in upwards {
        assert_eq!(upward(&path, line).len(), 1, "{line}");
    }
    for line in
        ["use crate::order::Scope;", "use super::exec;", "// crate::exec", "use super::super::rng::Rng;"]
    {
        assert!(upward(&path, line).is_empty(), "{line}");
    }
    assert_eq!(upward(&["memory"], "use super::exec::Context;").len(), 1);
}
