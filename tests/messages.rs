//! Checks that messages of errors and their helps have the form that `docs/style.md` requires, as
//! far as a program can tell.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::path::{Path, PathBuf};
use syn::visit::{self, Visit};
use syn::{Expr, ExprCall, ExprMethodCall, Lit, LitStr};

/// The least number of words of a message or a help, where a placeholder counts as a word.
const MIN_WORDS: usize = 2;

/// The folders of the crates whose messages users read.
const CRATES: &[&str] =
    &["src", "abi", "bench", "check", "codegen", "comm", "lsp", "run", "runtime", "sim", "warpweft"];

/// Functions whose last argument is a message.
const MAKERS: &[&str] = &["Error::new", "SimError::new", "Diagnostic::error", "Diagnostic::warning"];

/// The messages of one file that break a rule, with their lines.
#[derive(Default)]
struct Messages {
    seen: usize,
    wrong: Vec<(usize, String)>,
}

/// The text of a literal, or of the literal in `format!`.
fn text(argument: &Expr) -> Option<LitStr> {
    match argument {
        Expr::Lit(literal) => match &literal.lit {
            Lit::Str(text) => Some(text.clone()),
            _ => None,
        },
        Expr::Macro(made) if made.mac.path.is_ident("format") => {
            let first = made.mac.tokens.clone().into_iter().next()?;
            syn::parse2(first.into()).ok()
        }
        _ => None,
    }
}

/// The rule that a message violates, if there is one.
fn fault(message: &str) -> Option<&'static str> {
    let first = message.split(char::is_whitespace).next().unwrap_or_default();
    let letters: Vec<char> = first.chars().filter(|c| c.is_alphabetic()).collect();
    // Names such as `World::tensor`, `TMA` and `WEFT_PES` keep their capitals.
    let sentence = letters.first().is_some_and(|c| c.is_uppercase())
        && letters[1..].iter().all(|c| c.is_lowercase())
        && !first.contains(['_', ':', '`', '(', '{']);
    if sentence {
        return Some("begins with a capital letter");
    }
    if message.ends_with('.') && !message.ends_with("..") {
        return Some("ends with a full stop");
    }
    (message.split_whitespace().count() < MIN_WORDS && !message.contains('{')).then_some("has one word")
}

impl<'ast> Visit<'ast> for Messages {
    fn visit_expr_method_call(&mut self, call: &'ast ExprMethodCall) {
        if call.method == "help" {
            call.args.iter().filter_map(text).for_each(|text| self.judge(&text));
        }
        visit::visit_expr_method_call(self, call);
    }

    fn visit_expr_call(&mut self, call: &'ast ExprCall) {
        if let Expr::Path(path) = &*call.func {
            let names: Vec<_> = path.path.segments.iter().map(|s| s.ident.to_string()).collect();
            let name = names[names.len().saturating_sub(2)..].join("::");
            if MAKERS.contains(&&*name) {
                call.args.iter().filter_map(text).for_each(|text| self.judge(&text));
            }
        }
        visit::visit_expr_call(self, call);
    }

    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        let tests = module.attrs.iter().any(|a| a.path().is_ident("cfg"));
        if !tests {
            visit::visit_item_mod(self, module);
        }
    }
}

impl Messages {
    fn judge(&mut self, text: &LitStr) {
        let message = text.value();
        if message.is_empty() {
            return;
        }
        self.seen += 1;
        if let Some(fault) = fault(&message) {
            self.wrong.push((text.span().start().line, format!("{fault}: {message:?}")));
        }
    }
}

/// The Rust files below a folder, without tests.
fn rust_files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() && !["tests", "benches", "examples", "target"].contains(&&*name) {
            rust_files(&path, found);
        } else if name.ends_with(".rs") && name != "tests.rs" {
            found.push(path);
        }
    }
}

#[test]
fn messages_are_plain() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    CRATES.iter().for_each(|folder| rust_files(&root.join(folder), &mut files));
    let (mut report, mut seen) = (String::new(), 0);
    for path in &files {
        let mut messages = Messages::default();
        messages.visit_file(&syn::parse_file(&fs::read_to_string(path).unwrap()).unwrap());
        seen += messages.seen;
        let shown = path.strip_prefix(root).unwrap().display();
        for (line, text) in messages.wrong {
            report.push_str(&format!("{shown}:{line}: {text}\n"));
        }
    }
    assert!(seen > 200, "only {seen} messages found");
    assert!(report.is_empty(), "docs/style.md says how messages are written:\n{report}");
}

#[test]
fn violations_of_the_rules_are_found() {
    let source = r#"
        fn f() -> Result<(), Error> {
            let _ = Error::new(CODE, "The file is missing").help("give a file.");
            let _ = error::Error::new(CODE, format!("{name} is missing")).help("sure");
            let _ = Error::new(CODE, "World::tensor is missing").help("TMA needs 16 bytes");
            let _ = Other::new(CODE, "Anything.");
        }
    "#;
    let mut messages = Messages::default();
    messages.visit_file(&syn::parse_file(source).unwrap());
    let faults: Vec<_> =
        messages.wrong.iter().map(|(line, text)| (*line, text.split(':').next().unwrap())).collect();
    let expected = [(3, "ends with a full stop"), (3, "begins with a capital letter"), (4, "has one word")];
    assert_eq!(faults, expected);
    assert_eq!(messages.seen, 6);
}
