//! Tests that names are resolved in every function, including functions that no kernel calls.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use weft_lang::elaborate::{Defines, NoFiles, Program};
use weft_lang::source::SourceMap;

/// The errors of a text, as `line: message`, with helps after `; `.
fn found(text: &str) -> Vec<String> {
    let mut sources = SourceMap::new();
    let root = sources.add("k.weft", text);
    let program = Program::load(&mut sources, root, &NoFiles).unwrap();
    let Err(found) = program.check_names(true) else { return Vec::new() };
    found
        .iter()
        .map(|d| {
            let line = sources.line_column(d.span).map_or(0, |at| at.line);
            format!(
                "{line}: {}",
                std::iter::once(&d.message).chain(&d.help).cloned().collect::<Vec<_>>().join("; ")
            )
        })
        .collect()
}

#[test]
fn in_functions_that_nothing_calls() {
    let text = "\
fn f<T: dtype>(x, n: int) {
    let half = n / 2;
    let mut sum = 0.0;
    for i in 0..halv { sum += x[i]; }
    half = 3;
    let r = (count = n, total = sum);
    g(r.sum);
    frobnicate(x);
    f<T>(x);
    if n == 1 { nowhere } else { r.total.to<T>() }
}
fn g(x: tensr) { x }
kernel k() block(32) { }
";
    assert_eq!(
        found(text),
        [
            "4: `halv` is not defined here; did you mean `half`?",
            "5: `half` is not `mut`; declare it with `let mut half`",
            "7: there is no field `sum`; the fields are `count`, `total`",
            "8: `frobnicate` is not defined here; declare it, or `use` the file that declares it",
            "9: `f` takes 2 arguments, not 1",
            "10: `nowhere` is not defined here; declare it, or `use` the file that declares it",
            "12: there is no type `tensr`; did you mean `tensor`?",
        ]
    );
}

#[test]
fn names_end_with_their_blocks() {
    let text = "fn f(x) { { } if x { let y = 1; } y } kernel k() block(32) { for i in 0..2 { } let j = i; }";
    let text = text.replace("{ } if", "if");
    assert_eq!(found(&text).len(), 2, "{:?}", found(&text));
}

#[test]
fn functions_that_are_parameters_are_known() {
    let text = "
fn apply<F: fn, R: reduction>(x) { F(x) }
fn twice(x) { 2 * x }
fn h(x) { x.apply<twice, add>() }
fn wrong(x) { apply<thrice, add>(x) }
kernel k() block(32) { }";
    let help = "define it in this file or in one that it uses: `fn name(...) { ... }`";
    assert_eq!(found(text), [format!("5: there is no function `thrice`; {help}")]);
}

/// Checks that errors of names do not hide other errors of a kernel, and are reported once.
#[test]
fn with_the_other_errors_of_a_kernel() {
    let text = "
fn unused(x) { missing }
kernel k(x: global<f32, (4, 8):(1, 4)>) block(32) {
    let a = undefined + 1;
    let b = ceil_div(1, 2, 3);
    let d = 4;
    d = 5;
}";
    let mut sources = SourceMap::new();
    let root = sources.add("k.weft", text);
    let program = Program::load(&mut sources, root, &NoFiles).unwrap();
    let found = program.compile(None, &Defines::new()).unwrap_err();
    let codes: Vec<_> = found.iter().map(|d| d.code.to_string()).collect();
    assert_eq!(codes, ["E0100", "E0104", "E0105", "E0100"]);
}
