//! Syntax highlighting of code.

use maud::{Markup, PreEscaped, html};
use std::collections::HashSet;
use std::sync::LazyLock;
use weft_ir::Scalar;

/// A language of a pane.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Language {
    Weft,
    Ir,
    Ptx,
    Sass,
}

/// Names of types and memory spaces, besides those of number types.
const TYPES: [&str; 12] = [
    "global",
    "symm",
    "shared",
    "multicast",
    "peer",
    "cluster",
    "register",
    "barrier",
    "team",
    "tensor",
    "vector",
    "accumulator",
];

static KEYWORDS: LazyLock<HashSet<&str>> = LazyLock::new(|| weft_lang::keywords().collect());

/// A line of code: comments, numbers, registers, operations and keywords have a class each.
pub(crate) fn line(text: &str, language: Language) -> Markup {
    let (code, comment) = match text.find("//") {
        Some(at) => text.split_at(at),
        None => (text, ""),
    };
    let mut out = String::new();
    let mut first = true;
    for piece in pieces(code) {
        let class = class(piece, language, first);
        if piece.starts_with(is_word) && !piece.starts_with('@') {
            // The operation of an IR line follows its value, and that of SASS may follow a predicate.
            first &= match language {
                Language::Ir => piece.starts_with('%'),
                Language::Sass => is_sass_register(piece),
                Language::Weft | Language::Ptx => false,
            };
        }
        let text = html! { (piece) }.into_string();
        match class {
            Some(class) => out.push_str(&format!("<i class={class}>{text}</i>")),
            None => out.push_str(&text),
        }
    }
    html! { (PreEscaped(out)) @if !comment.is_empty() { i.c { (comment) } } }
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || "_.%$@".contains(c)
}

/// Splits a line into words and the text between them.
fn pieces(text: &str) -> Vec<&str> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let word = is_word(first);
        let end = rest.find(|c| is_word(c) != word).unwrap_or(rest.len());
        let (piece, after) = rest.split_at(end);
        pieces.push(piece);
        rest = after;
    }
    pieces
}

/// The class of a piece; `first` says that no word precedes it.
fn class(piece: &str, language: Language, first: bool) -> Option<&'static str> {
    let start = piece.chars().next()?;
    if !is_word(start) || piece == "." {
        return None;
    }
    if start.is_ascii_digit() {
        return Some("n");
    }
    let register = match language {
        Language::Weft => false,
        Language::Ir | Language::Ptx => start == '%',
        Language::Sass => is_sass_register(piece),
    };
    if register {
        return Some("r");
    }
    match language {
        Language::Weft if KEYWORDS.contains(piece) => Some("k"),
        Language::Weft | Language::Ir if TYPES.contains(&piece) || Scalar::parse(piece).is_some() => {
            Some("t")
        }
        Language::Weft => None,
        Language::Ptx if matches!(start, '.' | '$') => Some("t"),
        Language::Ir | Language::Ptx | Language::Sass if first && start != '@' => Some("k"),
        Language::Ir | Language::Ptx | Language::Sass => None,
    }
}

/// Registers, uniform registers and predicates.
fn is_sass_register(word: &str) -> bool {
    let name = word.split('.').next().unwrap_or_default();
    let digits = name.trim_start_matches(['U', 'R', 'P']);
    let letters = &name[..name.len() - digits.len()];
    let known = ["R", "UR", "P", "UP"].contains(&letters);
    known
        && (digits.chars().all(|c| c.is_ascii_digit()) && !digits.is_empty() || ["Z", "T"].contains(&digits))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str, language: Language) -> String {
        line(text, language).into_string()
    }

    #[test]
    fn words_have_their_classes_and_text_is_escaped() {
        assert_eq!(
            shown("let a = x<f32>; // a < b", Language::Weft),
            "<i class=k>let</i> a = x&lt;<i class=t>f32</i>&gt;; <i class=\"c\">// a &lt; b</i>"
        );
        assert_eq!(
            shown("  @%p2 bra  $L__BB0_4;", Language::Ptx),
            "  @%p2 <i class=k>bra</i>  <i class=t>$L__BB0_4</i>;"
        );
        assert_eq!(
            shown("%8 = special thread_idx", Language::Ir),
            "<i class=r>%8</i> = <i class=k>special</i> thread_idx"
        );
        assert_eq!(
            shown("LDC R1, c[0x0][RZ]", Language::Sass),
            "<i class=k>LDC</i> <i class=r>R1</i>, c[<i class=n>0x0</i>][<i class=r>RZ</i>]"
        );
        assert_eq!(
            shown("@!UP2 ULOP3 UR4", Language::Sass),
            "@!<i class=r>UP2</i> <i class=k>ULOP3</i> <i class=r>UR4</i>"
        );
    }
}
