//! Tests of every syntax error: the code of its example, and its rendered text.

#![expect(clippy::expect_used, reason = "helpers of tests")]

use weft_ir::diag::Diagnostic;
use weft_lang::codes::{explain, syntax};
use weft_lang::render::{Color, render};
use weft_lang::source::{MAX_FILE_BYTES, SourceMap};
use weft_lang::{MAX_ERRORS, parse, parse_bytes};

fn errors(text: &str) -> Vec<Diagnostic> {
    parse(0, text).expect_err(text)
}

fn rendered(text: &str) -> String {
    let mut sources = SourceMap::new();
    sources.add("k.weft", text);
    render(&errors(text), &sources, Color::Never)
}

#[test]
fn every_example_is_rejected_with_its_code_alone() {
    let mut all = String::new();
    for (code, example) in syntax::SYNTAX.iter().filter_map(|info| Some((info.code, info.example.text()?))) {
        let codes: Vec<_> = errors(example).iter().map(|error| error.code).collect();
        assert_eq!(codes, [code], "{example}");
        all.push_str(&format!("{}\n", rendered(example)));
    }
    insta::assert_snapshot!(all);
}

#[test]
fn the_codes_without_an_example() {
    let large = " ".repeat(MAX_FILE_BYTES + 1);
    let latin1 = b"const N = 4; // \xe9t\xe9";
    let found = [parse(0, &large), parse_bytes(0, large.as_bytes()), parse_bytes(1, latin1)];
    let found: Vec<_> = found.into_iter().flat_map(|result| result.unwrap_err()).collect();
    let codes: Vec<_> = found.iter().map(|error| error.code).collect();
    assert_eq!(codes, [syntax::FILE_TOO_LARGE, syntax::FILE_TOO_LARGE, syntax::NOT_UTF8]);
    let mut sources = SourceMap::new();
    sources.add("large.weft", large);
    sources.add("latin1.weft", String::from_utf8_lossy(latin1));
    insta::assert_snapshot!(render(&found, &sources, Color::Never));
    assert!(parse(0, &" ".repeat(MAX_FILE_BYTES)).is_ok());
}

/// Checks other texts with the same codes, and errors that must not cause further errors.
#[test]
fn errors_that_people_make() {
    let texts = [
        "kernel k(x: symm<f32, (N:(1)>) {}",
        "kernel k() { if a = b { f(); } }",
        "kernel k() { let x = f<a + b>(c); }",
        "kernel k() { i++; }",
        "kernel k() { for i in 0..4 { f(); }; }",
        "kernel k() { let x = a + \u{201c}b\u{201d}; let y = 1 }",
        "kernel k() {\n    let x = 1\n    f(x)\n    let y = 2;\n}",
        "kernel k() {\n    if a {\n        f();\n}\nkernel l() {}\n",
        "kernel k() { x.y; t[]; }",
        "fn f(x) -> { x }",
        "kernel k() { return 1 }",
        "fn f() {} }",
        "use tiles.weft;",
        "kernel k<N>() {}",
        "kernel k() { let x = &y; }",
        "kernel k() { let _ = f(); }",
        "kernel k() { f(0..4); }",
        "kernel k() block 512 {}",
        "const A = 1e999; const B = 0xffff_ffff_ffff_ffff; const C = 0x; const D = 1e; const E = 1.5f;",
        "const A = \"\\q \\u\"; const B = \"",
        "const A = \"one\\",
        "/* /* */",
        "kernel k() { let x: symm<f32 = y; }",
        "kernel k() { x = ; y = 2; z = 3 4; let = 5; }",
        "else",
    ];
    let mut all = String::new();
    for text in texts {
        for error in errors(text) {
            assert!(explain(error.code).is_some(), "{error}");
        }
        all.push_str(&format!("{}\n", rendered(text)));
    }
    insta::assert_snapshot!(all);
}

#[test]
fn several_errors_are_found_in_one_run_and_in_order() {
    let text = "
use 5;
const A = ;
fn f(x, 8) { }
kernel k(x: symm<f32, (N):(1)>) block(512) {
    let a = 1 +;
    for i in 0..n {
        let b = (2;
        let c = 3 # 4;
        b + c
    }
    let d = f(a b);
    if a < b < c { d }
    let e = [1];
}
kernel l(x) { }
";
    insta::assert_snapshot!(rendered(text));
}

#[test]
fn a_flood_of_errors_stops_early() {
    for text in [
        "let x;\n",
        "# ",
        "const = ;",
        "kernel k() { = }\n",
        "kernel k(",
        "{",
        "}",
        "\"\n",
        "fn f() { x = ; y = ; ",
    ] {
        let found = errors(&text.repeat(10_000));
        assert!((1..=MAX_ERRORS).contains(&found.len()), "{text}: {}", found.len());
        assert!(found.is_sorted_by_key(|error| error.span.start), "{text}");
    }
}
