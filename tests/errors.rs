//! Checks that every error code has a rejected example, and that the rendered errors are those in
//! files. The examples of the codes' own tables are in `tests/errors/`, and the others in
//! `tests/filetests/errors/`.

#![allow(clippy::unwrap_used, reason = "tests")]

#[path = "support/bless.rs"]
mod bless;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use weft::CompileError;
use weft::codes::Page;
use weft::ir::codes::Example;
use weft::ir::level::Tensor;
use weft::ir::text::parse_module;
use weft::ir::verify::verify;
use weft::{KernelFile, Options};

/// The codes with which neither a kernel file nor IR as text can be rejected, and the reason.
const ELSEWHERE: &[(&str, &str)] = &[
    ("E0001", "a file of more than 1 MiB: codegen/lang/tests/errors.rs"),
    ("E0002", "a file that is not UTF-8: codegen/lang/tests/errors.rs"),
    ("E0211", "only the builder can make it: below"),
    ("E0403", "a guard of the passes: the verifier rejects the same with E0203"),
    ("E0410", "a guard of the passes: the verifier rejects the same with E0201"),
    ("E0607", "a guard against mistakes of ours"),
    ("E0608", "a device library that is broken: codegen/llvm/tests/nvshmem.rs"),
    ("E0609", "a function that a version of NVSHMEM does not have: codegen/llvm/tests/nvshmem/link.rs"),
    ("E0610", "a device library for later GPUs: codegen/llvm/tests/nvshmem/link.rs"),
    ("E0611", "LLVM's library is not found: tests/llvm.rs"),
    ("E0620", "a warning of the assembler's: tests/ptxas.rs"),
    ("E0621", "as E0620"),
    ("E0622", "as E0620: runtime/src/launch/remarks.rs"),
    ("E0703", "a form that the passes never choose: codegen/isa/tests/tables.rs"),
    ("E0705", "as E0703; the verifier rejects the same with E0213"),
    ("E0706", "as E0703"),
    ("E0708", "as E0703"),
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The pages of the codes of the compiler.
fn codes() -> impl Iterator<Item = Page> {
    Page::all().filter(|page| page.code.starts_with('E'))
}

/// The error for a text, if there is one.
fn reject(text: &str) -> Option<CompileError> {
    let options = Options::new("sm_90a".parse().unwrap());
    KernelFile::parse("example.weft", text).and_then(|file| file.compile(&options)).err()
}

#[test]
fn each_example_is_rejected_with_its_code_alone() {
    let mut wrong = Vec::new();
    let mut files = BTreeSet::new();
    for info in codes() {
        let Some(text) = info.example.text() else { continue };
        let Some(error) = reject(text) else {
            wrong.push(format!("the example of {} compiles: {text}", info.code));
            continue;
        };
        let found: Vec<_> = error.diagnostics.iter().map(|d| d.code).collect();
        if found.iter().any(|code| code.to_string() != info.code) {
            wrong.push(format!("the example of {} gives {found:?}:\n{error}", info.code));
            continue;
        }
        let name = format!("{}.txt", info.code);
        let shown = format!("{error}\n");
        wrong.extend(bless::check(&root().join("tests/errors").join(&name), &shown).err());
        files.insert(name);
    }
    let there = fs::read_dir(root().join("tests/errors")).unwrap().map(|entry| entry.unwrap().file_name());
    let left: Vec<_> =
        there.filter_map(|name| name.into_string().ok()).filter(|name| !files.contains(name)).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(left.is_empty(), "no code has these: {left:?}");
}

/// The codes that file tests expect.
fn file_tests(folder: PathBuf, codes: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            file_tests(path, codes);
        } else if path.extension().is_some_and(|kind| kind == "weft" || kind == "ir") {
            let text = fs::read_to_string(&path).unwrap();
            let says =
                |line| ["// error: ", "// warning: "].iter().find_map(|word| str::strip_prefix(line, word));
            let lines = text.lines().filter_map(says);
            codes.extend(lines.flat_map(str::split_whitespace).map(str::to_owned));
        }
    }
}

#[test]
fn each_code_has_a_rejected_example() {
    let mut shown = BTreeSet::new();
    file_tests(root().join("tests/filetests"), &mut shown);
    let elsewhere = |code: &str| ELSEWHERE.iter().any(|(there, _)| *there == code);
    let mut without = Vec::new();
    for info in codes() {
        let code = info.code.to_string();
        let has_text = info.example.text().is_some();
        let shown = shown.contains(&code);
        assert!(!(elsewhere(&code) && (has_text || shown)), "{code} need not stand in ELSEWHERE");
        if !(has_text || shown || elsewhere(&code)) {
            without.push(format!("{code}: {}", info.title));
        }
    }
    assert!(
        without.is_empty(),
        "no rejected example (write one in the code's table, or a file test with `// error: CODE`):\n{}",
        without.join("\n")
    );
}

#[test]
fn an_instruction_in_two_places_is_rejected() {
    let text = "kernel @k block(1, 1, 1) {\n  %0 = const 1 : i32\n}";
    let mut module = parse_module::<Tensor>(text).unwrap();
    assert!(verify(module.clone()).is_ok());
    let body = &mut module.kernels[0].body.0;
    body.push(body[0]);
    let found = verify(module).unwrap_err();
    assert_eq!(found.iter().map(|d| d.code.to_string()).collect::<Vec<_>>(), ["E0211"]);
}

#[test]
fn each_code_is_explained() {
    for info in codes() {
        assert_eq!(Page::find(&info.code).as_ref(), Some(&info));
        let words = match info.example {
            Example::Text(text) | Example::Words(text) => text,
        };
        assert!(
            !info.title.is_empty() && info.explanation.ends_with('.') && words.len() < 400,
            "{}",
            info.code
        );
    }
}
