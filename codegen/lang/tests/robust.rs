//! Tests that no input causes a panic or a stack overflow, and that errors lie inside the text.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use proptest::collection::vec;
use proptest::prelude::*;
use std::thread;
use std::time::{Duration, Instant};
use weft_ir::diag::Diagnostic;
use weft_lang::ast::File;
use weft_lang::codes::{explain, syntax};
use weft_lang::print::print;
use weft_lang::render::{Color, render};
use weft_lang::source::{MAX_FILE_BYTES, SourceMap};
use weft_lang::{MAX_ERRORS, MAX_HEIGHT, parse, parse_bytes};

const KERNEL: &str = include_str!("weft/two_shot.weft");

const WORDS: &str = "use const kernel fn let mut for in step unroll while loop break continue if else return true false x t inf 0 42 0xff \
    1.5 1e-5 \"s\" _ ( ) [ ] { } < > , ; : :: . .. -> = += >>= <<= == != <= >= && || << >> + - * / % ^ & | ! # \" /* */ //";

fn vocabulary() -> Vec<&'static str> {
    WORDS.split(' ').filter(|word| !word.is_empty()).collect()
}

/// Checks the properties that every result must have.
fn check(text: &str, result: Result<File, Vec<Diagnostic>>) -> Result<(), TestCaseError> {
    match result {
        Ok(file) => {
            let printed = print(&file);
            prop_assert_eq!(parse(0, &printed).map(|file| print(&file)), Ok(printed));
        }
        Err(errors) => {
            prop_assert!((1..=MAX_ERRORS).contains(&errors.len()));
            for error in &errors {
                prop_assert!(
                    error.span.start <= error.span.end && error.span.end as usize <= text.len(),
                    "{}",
                    error
                );
                prop_assert!(text.is_char_boundary(error.span.start as usize), "{}", error);
                prop_assert!(explain(error.code).is_some(), "{}", error);
            }
            let mut sources = SourceMap::new();
            sources.add("k.weft", text);
            let shown = render(&errors, &sources, Color::Never);
            prop_assert!(errors.iter().all(|error| shown.contains(&error.code.to_string())));
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn arbitrary_bytes(bytes in vec(any::<u8>(), 0..200)) {
        check(&String::from_utf8_lossy(&bytes), parse_bytes(0, &bytes))?;
    }

    #[test]
    fn arbitrary_text(text in "\\PC{0,100}") {
        check(&text, parse(0, &text))?;
    }

    #[test]
    fn arbitrary_words(words in vec(prop::sample::select(vocabulary()), 0..60), gap in "[ \n]?") {
        let text = words.join(&gap);
        check(&text, parse(0, &text))?;
        let body = format!("kernel k() {{ {text} }}");
        check(&body, parse(0, &body))?;
    }

    /// Checks a kernel in which some words are removed, doubled or replaced.
    #[test]
    fn damaged_kernels(edits in vec((any::<prop::sample::Index>(), 0..3, any::<prop::sample::Index>()), 1..6)) {
        let mut words: Vec<&str> = KERNEL.split_inclusive(|c: char| !c.is_alphanumeric()).collect();
        for (at, edit, other) in edits {
            let at = at.index(words.len());
            match edit {
                0 => drop(words.remove(at)),
                1 => words.insert(at, words[other.index(words.len())]),
                _ => words[at] = *other.get(&vocabulary()[..]),
            }
        }
        let text = words.concat();
        check(&text, parse(0, &text))?;
    }
}

/// Texts with `n` levels of nesting, and whether each is well-formed.
fn towers(n: usize) -> Vec<(String, bool)> {
    let around = |before: &str, middle: &str, after: &str| {
        format!("kernel k() {{ x = {}{middle}{}; }}", before.repeat(n), after.repeat(n))
    };
    let stmts =
        |before: &str, after: &str| format!("kernel k() {{ {} {} }}", before.repeat(n), after.repeat(n));
    vec![
        (around("(", "1", ")"), true),
        (around("(1,", "1", ")"), true),
        (around("-", "1", ""), true),
        (around("! ", "x", ""), true),
        (around("1+", "1", ""), true),
        (around("a < b && ", "c", ""), true),
        (around("1 | 2 * 3 + ", "c", ""), true),
        (around("f(", "1", ")"), true),
        (around("f<a>(b, c = ", "1", ")"), true),
        (around("t[", "1", "]"), true),
        (around("t[1..", "1", "]"), true),
        (around("x", ".f()", ".f()"), true),
        (around("x", "[0]", "[0]"), true),
        (around("(1:", "1", ")"), true),
        (around("if a { 1 } else ", "{ 1 }", ""), true),
        (around("if ", "a", " { 1 } else { 2 }"), true),
        (around("x.f(if a { g(", "1", ") })"), true),
        (stmts("if a {", "}"), true),
        (stmts("while a {", "}"), true),
        (stmts("loop {", "}"), true),
        (stmts("for i in 0..n step (2) unroll(4) {", "}"), true),
        (stmts("if a { f(); } else {", "}"), true),
        (around("((1 + ", "1", ") + 1)"), true),
        (format!("kernel k(x: {}1{}) {{}}", "s<(".repeat(n), ")>".repeat(n)), n == 1),
        (format!("kernel k(x: int % {}1{}) {{}}", "(".repeat(n), ")".repeat(n)), true),
        (around("(", "", ""), false),
        (around("f(1, [", "", ""), false),
        (around("1:", "1", ""), n == 1),
        (around("a < ", "b", ""), n == 1),
        (stmts("if a { x = (", ""), false),
        (stmts("{", ""), false),
        (stmts("else if a {}", ""), false),
        (format!("kernel k<{}", "N: int = (".repeat(n)), false),
        ("/*".repeat(n) + &"*/".repeat(n), true),
        ("kernel k() {".repeat(n), false),
    ]
}

/// Runs `run` with three quarters of the stack that Rust gives a thread.
fn on_a_small_stack<T: Send>(run: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| {
        thread::Builder::new().stack_size(3 << 19).spawn_scoped(scope, run).unwrap().join().unwrap()
    })
}

#[test]
fn high_towers_are_errors_and_low_ones_are_not() {
    on_a_small_stack(|| {
        for (text, valid) in towers(1).into_iter().chain(towers(12)) {
            assert_eq!(parse(0, &text).is_ok(), valid, "{text}");
        }
        for n in (1..=MAX_HEIGHT as usize + 1).chain([20_000]) {
            for (text, _) in towers(n) {
                match parse(0, &text) {
                    // An accepted text can be walked, copied and dropped.
                    Ok(file) => assert!(file.clone() == file && !format!("{file:?}").is_empty()),
                    Err(errors) => assert!(errors.len() <= MAX_ERRORS),
                }
            }
        }
        for (text, valid) in towers(20_000).into_iter().filter(|(_, valid)| *valid) {
            let codes: Vec<_> = parse(0, &text).map_err(|errors| errors[0].code).err().into_iter().collect();
            let comment = text.starts_with("/*");
            assert_eq!(
                codes,
                if comment { vec![] } else { vec![syntax::TOO_DEEP] },
                "{valid} {}",
                &text[..40]
            );
        }
    });
}

#[test]
fn long_lists_are_fine() {
    let args = "1, ".repeat(50_000);
    let stmts = "f(x); if a { f(x); } ".repeat(20_000);
    let chain = "x = a + b * c + d; ".repeat(20_000);
    for text in [
        format!("const A = ({args});"),
        format!("kernel k() {{ f({args}); }}"),
        format!("kernel k() {{ {stmts} {chain} }}"),
        "fn f() {}".repeat(50_000),
        "// comment\n".repeat(90_000),
        format!("fn f({}) {{}}", "n: int % -1, ".repeat(1000)),
    ] {
        assert!(parse(0, &text).is_ok(), "{}", &text[..40]);
    }
}

#[test]
fn garbage_is_rejected_at_once() {
    // A release build takes tens of milliseconds. The bound allows for a busy machine and no
    // optimization.
    let patterns: [&[u8]; 6] = [b"\0", b"\xff\xd8", b"garbage ", b"((((", b"/*", b"kernel k( "];
    for pattern in patterns {
        for size in [MAX_FILE_BYTES, 100_000_000] {
            let bytes = pattern.repeat(size / pattern.len());
            let start = Instant::now();
            let errors = parse_bytes(0, &bytes).unwrap_err();
            assert!(start.elapsed() < Duration::from_secs(5), "{pattern:?}: {:?}", start.elapsed());
            assert!(errors.len() <= MAX_ERRORS);
        }
    }
}
