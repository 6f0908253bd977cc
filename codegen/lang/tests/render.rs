//! Tests of the rendering of diagnostics.

use weft_ir::diag::{Code, Diagnostic, Span};
use weft_lang::render::{Color, render};
use weft_lang::source::SourceMap;

fn sources() -> SourceMap {
    let mut sources = SourceMap::new();
    sources.add("a.weft", "let x = 1;\nlet y = x + z;\nlet \u{e9} = 3;\n");
    sources.add("b.weft", "fn z() {}\n");
    sources.add("long.weft", format!("{}# {}\nlast", "a + ".repeat(100_000), "b + ".repeat(100_000)));
    sources.add("high.weft", format!("first\n{}last", "x;\n".repeat(100_000)));
    sources
}

fn plain(diagnostic: Diagnostic) -> String {
    render(&[diagnostic], &sources(), Color::Never)
}

fn error(span: Span) -> Diagnostic {
    Diagnostic::error(Code(100), span, "`z` is not a value")
}

#[test]
fn places_of_one_file_share_an_excerpt_and_other_files_follow() {
    let text = plain(
        error(Span::new(0, 23, 24))
            .label("a function")
            .related(Span::new(0, 4, 5), "`x` is a number")
            .related(Span::new(1, 3, 4), "`z` is declared here")
            .help("call it: `z()`"),
    );
    insta::assert_snapshot!(text);
}

#[test]
fn a_warning_without_a_place_is_its_message() {
    let text = plain(Diagnostic::warning(Code(7), Span::NONE, "nothing to do").help("do something"));
    insta::assert_snapshot!(text);
}

#[test]
fn a_piece_of_a_very_long_line_is_shown() {
    let text = plain(error(Span::new(2, 400_000, 400_001)).label("here"));
    assert!(text.contains("long.weft:1:400001"), "{text}");
    assert!(text.len() < 1000, "{text}");
    insta::assert_snapshot!(text);
}

#[test]
fn places_far_apart_get_an_excerpt_each() {
    let text =
        plain(error(Span::new(3, 300_006, 300_010)).label("here").related(Span::new(3, 0, 5), "there"));
    insta::assert_snapshot!(text);
}

#[test]
fn a_span_of_a_whole_large_file_is_shown_from_its_start() {
    let text = plain(error(Span::new(3, 0, 300_010)).label("all of this"));
    insta::assert_snapshot!(text);
}

#[test]
fn without_a_label_only_the_position_is_shown() {
    let text = plain(error(Span::new(0, 11, 11)));
    insta::assert_snapshot!(text);
}

#[test]
fn spans_that_do_not_fit_their_file_do_no_harm() {
    for (start, end) in [(9999, 9999), (9999, 3), (40, 9999), (30, 31), (u32::MAX, u32::MAX)] {
        for file in [0, 1, 2, 3, 77] {
            let text = plain(
                error(Span::new(file, start, end)).label("here").related(Span::new(file, end, start), ""),
            );
            assert!(text.starts_with("error[E0100]: `z` is not a value\n"), "{text}");
        }
    }
}

#[test]
fn colours_are_asked_for() {
    let diagnostics = [error(Span::new(0, 0, 3)), error(Span::new(0, 0, 3))];
    let plain = render(&diagnostics, &sources(), Color::Never);
    let colored = render(&diagnostics, &sources(), Color::Always);
    assert!(!plain.contains('\x1b') && colored.contains('\x1b'));
    assert_eq!(plain.matches("\n\nerror").count(), 1, "an empty line between");
}
