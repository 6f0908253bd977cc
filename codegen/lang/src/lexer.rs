//! The lexer, which turns text into tokens. A malformed piece becomes a [`TokenKind::Bad`] token and a
//! diagnostic, and lexing continues, so that one run reports all errors. The parser reports nothing
//! for such tokens.

use crate::codes::syntax as code;
use nom::branch::alt;
use nom::bytes::complete::{tag, tag_no_case, take_while, take_while1};
use nom::character::complete::{anychar, char, one_of, satisfy};
use nom::combinator::{opt, peek, recognize, value};
use nom::{IResult, Parser};
use weft_ir::diag::{Diagnostic, Span};

/// Declares the tokens with a fixed text.
macro_rules! fixed {
    ($($kind:ident $text:literal)*) => {
        /// The kind of a token.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub(crate) enum TokenKind {
            Ident,
            Int,
            Float,
            Str,
            /// A malformed piece that has been reported.
            Bad,
            /// The end of the file, which is always the last token.
            End,
            $($kind,)*
        }

        /// The keywords, followed by operators and brackets. Longer ones precede their prefixes.
        const FIXED: &[(&str, TokenKind)] = &[$(($text, TokenKind::$kind),)*];
    };
}

fixed! {
    Use "use" Const "const" Kernel "kernel" Fn "fn" Let "let" Mut "mut" For "for" In "in" While "while"
    Loop "loop" Break "break" Continue "continue" If "if" Else "else" Return "return" True "true" False "false"
    ShlAssign "<<=" ShrAssign ">>=" DotDot ".." PathSep "::" Arrow "->"
    AddAssign "+=" SubAssign "-=" MulAssign "*=" DivAssign "/=" RemAssign "%=" AndAssign "&=" OrAssign "|="
    XorAssign "^=" EqEq "==" Ne "!=" Le "<=" Ge ">=" AndAnd "&&" OrOr "||" Shl "<<" Shr ">>"
    Assign "=" Lt "<" Gt ">" Plus "+" Minus "-" Star "*" Slash "/" Percent "%" Caret "^" And "&" Or "|" Not "!"
    LParen "(" RParen ")" LBracket "[" RBracket "]" LBrace "{" RBrace "}"
    Comma "," Semi ";" Colon ":" Dot "." Underscore "_"
}

impl TokenKind {
    /// The text of a token, if it is fixed.
    pub(crate) fn text(self) -> Option<&'static str> {
        FIXED.iter().find(|(_, kind)| *kind == self).map(|(text, _)| *text)
    }

    /// Whether it is a reserved word.
    pub(crate) fn is_keyword(self) -> bool {
        self.text().is_some_and(|text| text.as_bytes()[0].is_ascii_alphabetic())
    }
}

/// The reserved words of the language.
pub fn keywords() -> impl Iterator<Item = &'static str> {
    FIXED.iter().filter(|(_, kind)| kind.is_keyword()).map(|(text, _)| *text)
}

/// Words that are reserved in one place only: before a function, in heads of loops, and before a
/// role.
pub const PLACED_WORDS: &[&str] = &["reference", "step", "unroll", "role"];

/// A token and its byte range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Token {
    pub(crate) kind: TokenKind,
    pub(crate) start: u32,
    pub(crate) end: u32,
}

/// An error in a piece of text: code, message, label, help.
type LexError = (weft_ir::diag::Code, String, &'static str, &'static str);
type Lexed<'a, T> = IResult<&'a str, T>;

/// The tokens of `text`, which must be shorter than 4 GiB. The last one is [`TokenKind::End`].
/// Lexing stops after `limit` errors.
pub(crate) fn lex(file: u32, text: &str, limit: usize) -> (Vec<Token>, Vec<Diagnostic>) {
    let mut tokens = Vec::with_capacity(text.len() / 4 + 1);
    let mut found = Vec::new();
    let mut rest = text.strip_prefix('\u{feff}').unwrap_or(text);
    let at = |rest: &str| u32::try_from(text.len() - rest.len()).unwrap_or(u32::MAX);
    while found.len() < limit {
        let (start, open_comment) = trivia(rest);
        let Ok((next, piece)) = alt((word, number, string, operator, foreign)).parse(start) else {
            if let Some(comment) = open_comment {
                let span = Span::new(file, at(comment), at(comment) + 2);
                found.push(diagnostic(
                    span,
                    (
                        code::UNTERMINATED_COMMENT,
                        "this comment does not end".into(),
                        "opened here",
                        "close it with `*/`",
                    ),
                ));
            }
            break;
        };
        let token = Token {
            kind: piece.as_ref().copied().unwrap_or(TokenKind::Bad),
            start: at(start),
            end: at(next),
        };
        if let Err(complaint) = piece {
            found.push(diagnostic(Span::new(file, token.start, token.end), complaint));
        }
        tokens.push(token);
        rest = next;
    }
    let end = at("");
    tokens.push(Token { kind: TokenKind::End, start: end, end });
    (tokens, found)
}

fn diagnostic(span: Span, (code, message, label, help): LexError) -> Diagnostic {
    Diagnostic::error(code, span, message).label(label).help(help)
}

/// Skips white space and comments. Also returns a block comment that is not closed and extends to
/// the end of the text.
fn trivia(mut text: &str) -> (&str, Option<&str>) {
    loop {
        let rest = text.trim_start_matches([' ', '\t', '\r', '\n']);
        if rest.starts_with("//") {
            text = rest.find('\n').map_or("", |end| &rest[end..]);
        } else if rest.starts_with("/*") {
            let Some(after) = block_comment(rest) else { return ("", Some(rest)) };
            text = after;
        } else {
            return (rest, None);
        }
    }
}

/// The text after a block comment, which can contain block comments. It counts the nesting and does
/// not recurse, so any depth is possible.
pub(crate) fn block_comment(text: &str) -> Option<&str> {
    let (bytes, mut depth, mut at) = (text.as_bytes(), 0usize, 0);
    while at + 1 < bytes.len() {
        let step = match &bytes[at..at + 2] {
            b"/*" => {
                depth += 1;
                2
            }
            b"*/" => {
                depth -= 1;
                2
            }
            _ => 1,
        };
        at += step;
        if depth == 0 {
            return Some(&text[at..]);
        }
    }
    None
}

fn word_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

fn word(text: &str) -> Lexed<'_, Result<TokenKind, LexError>> {
    let name = recognize((satisfy(|c| c.is_ascii_alphabetic() || c == '_'), take_while(word_char)));
    name.map(|word: &str| {
        Ok(FIXED.iter().find(|(text, _)| *text == word).map_or(TokenKind::Ident, |(_, kind)| *kind))
    })
    .parse(text)
}

fn digits(text: &str) -> Lexed<'_, &str> {
    recognize((satisfy(|c| c.is_ascii_digit()), take_while(|c: char| c.is_ascii_digit() || c == '_')))
        .parse(text)
}

/// Reads a number, including letters that follow it directly.
fn number(text: &str) -> Lexed<'_, Result<TokenKind, LexError>> {
    let radix = |prefix, base| {
        recognize((
            tag_no_case(prefix),
            satisfy(move |c| c.is_digit(base)),
            take_while(move |c: char| c.is_digit(base) || c == '_'),
        ))
    };
    let fraction = recognize((char('.'), digits));
    let exponent = recognize((one_of("eE"), opt(one_of("+-")), digits));
    let decimal = (digits, opt(fraction), opt(exponent)).map(
        |(_, fraction, exponent): (&str, Option<&str>, Option<&str>)| {
            if fraction.or(exponent).is_some() { TokenKind::Float } else { TokenKind::Int }
        },
    );
    let (rest, kind) =
        alt((value(TokenKind::Int, radix("0x", 16)), value(TokenKind::Int, radix("0b", 2)), decimal))
            .parse(text)?;
    let (rest, tail) = take_while(word_char).parse(rest)?;
    if tail.is_empty() {
        return Ok((rest, Ok(kind)));
    }
    let number = clip(&text[..text.len() - rest.len()]);
    let help = "numbers have no suffix; write `42`, `0xff`, `0b1010`, `1.5` or `1e-5`";
    Ok((rest, Err((code::MALFORMED_NUMBER, format!("malformed number `{number}`"), "not a number", help))))
}

/// Reads a string, up to its quote or to the end of the line.
fn string(text: &str) -> Lexed<'_, Result<TokenKind, LexError>> {
    let (mut rest, _) = char('"').parse(text)?;
    loop {
        (rest, _) = take_while(|c| !matches!(c, '"' | '\\' | '\n')).parse(rest)?;
        match rest.as_bytes() {
            [b'"', ..] => return Ok((&rest[1..], Ok(TokenKind::Str))),
            [b'\\', next, ..] if *next != b'\n' => rest = recognize((char('\\'), anychar)).parse(rest)?.0,
            _ => break,
        }
    }
    // Skip to the end of the line, where the next token is more likely to be read correctly.
    let (rest, _) = take_while(|c| c != '\n').parse(rest)?;
    let help = "close it with `\"`; a line break in a string is `\\n`";
    let message = "this string does not end on its line".into();
    Ok((rest, Err((code::UNTERMINATED_STRING, message, "opened here", help))))
}

/// Reads an operator or a bracket. Operators that begin with `>` are left as single characters for
/// the parser to join, because `>` also ends type arguments: `let x: symm<T, N>= y`.
fn operator(text: &str) -> Lexed<'_, Result<TokenKind, LexError>> {
    let first = peek(anychar).parse(text)?.1;
    if first == '>' {
        return value(Ok(TokenKind::Gt), tag(">")).parse(text);
    }
    let found = FIXED.iter().find(|(sign, _)| sign.starts_with(first) && text.starts_with(sign));
    let Some((sign, kind)) = found else {
        return Err(nom::Err::Error(nom::error::make_error(text, nom::error::ErrorKind::Tag)));
    };
    Ok((&text[sign.len()..], Ok(*kind)))
}

/// Reads a sequence of characters with which no token begins.
fn foreign(text: &str) -> Lexed<'_, Result<TokenKind, LexError>> {
    let begins = |c: char| {
        word_char(c)
            || matches!(c, '"' | ' ' | '\t' | '\r' | '\n')
            || FIXED.iter().any(|(sign, _)| sign.starts_with(c))
    };
    let (rest, run) = take_while1(|c| !begins(c)).parse(text)?;
    let first = run.chars().next().unwrap_or_default();
    let help = match first {
        '\u{201c}' | '\u{201d}' | '\'' | '\u{2018}' | '\u{2019}' => {
            "strings are written with the straight quote `\"`"
        }
        '\u{2013}' | '\u{2014}' | '\u{2212}' => "minus is `-`",
        '\u{d7}' => "times is `*`",
        '~' => "`!x` inverts",
        '#' => "comments begin with `//`",
        _ => "remove it; only comments and strings can contain it",
    };
    let message = format!("`{}` is not part of the language", first.escape_debug());
    Ok((rest, Err((code::FOREIGN_CHARACTER, message, "not part of the language", help))))
}

/// The beginning of a text, which can be long.
pub(crate) fn clip(text: &str) -> &str {
    &text[..text.floor_char_boundary(40)]
}
