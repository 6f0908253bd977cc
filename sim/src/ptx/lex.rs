//! Tokens: white space and comments, identifiers, numbers, strings.

use super::ast::Number;
use crate::codes;
use nom::error::{ErrorKind, ParseError};
use nom::{IResult, Parser};

/// The failure of a rule: the expected text, and the remaining text at that point.
#[derive(Debug, Clone)]
pub(super) struct Snag<'a> {
    pub rest: &'a str,
    pub code: codes::Code,
    pub message: String,
    pub help: &'static str,
}

impl<'a> ParseError<&'a str> for Snag<'a> {
    fn from_error_kind(rest: &'a str, _: ErrorKind) -> Self {
        Snag { rest, code: codes::SYNTAX, message: "this text is not PTX".into(), help: "" }
    }
    fn append(_: &'a str, _: ErrorKind, other: Self) -> Self {
        other
    }
}

pub(super) type Res<'a, T> = IResult<&'a str, T, Snag<'a>>;

/// A recoverable failure: another alternative may fit.
pub(super) fn miss<'a, T>(rest: &'a str, expected: &str) -> Res<'a, T> {
    Err(nom::Err::Error(Snag {
        rest,
        code: codes::SYNTAX,
        message: format!("expected {expected}"),
        help: "",
    }))
}

/// A final failure.
pub(super) fn fail<'a, T>(
    rest: &'a str,
    code: codes::Code,
    message: impl Into<String>,
    help: &'static str,
) -> Res<'a, T> {
    Err(nom::Err::Failure(Snag { rest, code, message: message.into(), help }))
}

/// Makes a failure final from here on.
pub(super) fn must<'a, T>(
    mut rule: impl Parser<&'a str, Output = T, Error = Snag<'a>>,
) -> impl FnMut(&'a str) -> Res<'a, T> {
    move |i| {
        rule.parse(i).map_err(|e| match e {
            nom::Err::Error(snag) => nom::Err::Failure(snag),
            other => other,
        })
    }
}

/// Skips white space and comments; an unclosed `/*` runs to the end of the text.
pub(super) fn blank(mut i: &str) -> &str {
    loop {
        i = i.trim_start();
        if let Some(rest) = i.strip_prefix("//") {
            i = rest.find('\n').map_or("", |n| &rest[n..]);
        } else if let Some(rest) = i.strip_prefix("/*") {
            i = rest.find("*/").map_or("", |n| &rest[n + 2..]);
        } else {
            return i;
        }
    }
}

/// One punctuation token, with white space before it.
pub(super) fn sign<'a>(token: &'static str) -> impl FnMut(&'a str) -> Res<'a, &'a str> {
    move |i| {
        let i = blank(i);
        match i.strip_prefix(token) {
            Some(rest) => Ok((rest, token)),
            None => miss(i, &format!("`{token}`")),
        }
    }
}

/// Whether the next token is `token`; consumes it if so.
pub(super) fn eat(i: &mut &str, token: &str) -> bool {
    let rest = blank(i).strip_prefix(token);
    if let Some(rest) = rest {
        *i = rest;
    }
    rest.is_some()
}

fn is_follow(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '$'
}

/// Parses an identifier: `[a-zA-Z][\w$]*` or `[_$%][\w$]+`, or the sink `_`. Special registers keep
/// their component: `%tid.x`.
pub(super) fn name(i: &str) -> Res<'_, &str> {
    let i = blank(i);
    let mut chars = i.char_indices();
    match chars.next() {
        Some((_, c)) if c.is_ascii_alphabetic() || matches!(c, '_' | '$' | '%') => {}
        _ => return miss(i, "a name"),
    }
    let mut end = chars.find(|&(_, c)| !is_follow(c)).map_or(i.len(), |(n, _)| n);
    if i.starts_with('%') {
        let component = i[end..].strip_prefix('.').and_then(|s| s.chars().next());
        let ends = !i[end..].chars().nth(2).is_some_and(is_follow);
        if matches!(component, Some('x' | 'y' | 'z' | 'w')) && ends {
            end += 2;
        }
    }
    Ok((&i[end..], &i[..end]))
}

/// A directive or modifier after its dot: letters, digits, `_` and `::`.
pub(super) fn dotted(i: &str) -> Res<'_, &str> {
    let Some(rest) = i.strip_prefix('.') else { return miss(i, "a `.` and a name") };
    let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == ':')).unwrap_or(rest.len());
    if end == 0 { miss(rest, "a name after `.`") } else { Ok((&rest[end..], &rest[..end])) }
}

/// The dotted name `word`, white space before it allowed.
pub(super) fn directive(i: &str) -> Res<'_, &str> {
    dotted(blank(i))
}

/// Unsigned integer literal: decimal, octal, binary, hexadecimal, with an optional `U`.
pub(super) fn unsigned(i: &str) -> Res<'_, u64> {
    let i = blank(i);
    let end = i.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(i.len());
    let word = i[..end].strip_suffix(['U', 'u']).unwrap_or(&i[..end]);
    if !word.starts_with(|c: char| c.is_ascii_digit()) {
        return miss(i, "a number");
    }
    let (digits, radix) = match word.as_bytes() {
        [b'0', b'x' | b'X', ..] => (&word[2..], 16),
        [b'0', b'b' | b'B', ..] => (&word[2..], 2),
        [b'0', _, ..] => (&word[1..], 8),
        _ => (word, 10),
    };
    match u64::from_str_radix(digits, radix) {
        Ok(v) => Ok((&i[end..], v)),
        Err(_) => fail(i, codes::SYNTAX, format!("`{word}` does not fit into a 64-bit integer"), ""),
    }
}

/// Integer with an optional sign, as two's complement bits.
pub(super) fn signed(i: &str) -> Res<'_, i64> {
    let mut i = blank(i);
    let minus = eat(&mut i, "-");
    let (rest, v) = unsigned(i)?;
    Ok((rest, if minus { (v as i64).wrapping_neg() } else { v as i64 }))
}

/// Integer or floating literal with an optional minus sign.
pub(super) fn number(i: &str) -> Res<'_, Number> {
    let mut i = blank(i);
    let minus = eat(&mut i, "-");
    let i = blank(i);
    let bytes = i.as_bytes();
    if let [b'0', tag @ (b'f' | b'F' | b'd' | b'D'), ..] = bytes {
        let end = i[2..].find(|c: char| !c.is_ascii_hexdigit()).map_or(i.len(), |n| n + 2);
        let digits = if tag.eq_ignore_ascii_case(&b'f') { 8 } else { 16 };
        let bits = u64::from_str_radix(&i[2..end], 16);
        return match bits {
            Ok(b) if end == digits + 2 => {
                let flip = u64::from(minus) << (digits * 4 - 1);
                let value = b ^ flip;
                let number =
                    if digits == 8 { Number::F32(value as u32) } else { Number::F64(f64::from_bits(value)) };
                Ok((&i[end..], number))
            }
            _ => fail(
                i,
                codes::SYNTAX,
                format!("a floating-point literal of this form needs {digits} hexadecimal digits"),
                "",
            ),
        };
    }
    let end = i.find(|c: char| !c.is_ascii_digit()).unwrap_or(i.len());
    if end > 0 && i[end..].starts_with(['.', 'e', 'E']) {
        let tail = decimal_tail(&i[end..]);
        if let Ok(v) = i[..end + tail].parse::<f64>() {
            return Ok((&i[end + tail..], Number::F64(if minus { -v } else { v })));
        }
    }
    let (rest, v) = unsigned(i)?;
    Ok((rest, Number::Int(if minus { v.wrapping_neg() } else { v })))
}

/// Returns the length of `.digits` and `e+digits` after the integer part.
fn decimal_tail(i: &str) -> usize {
    let digits = |s: &str| s.find(|c: char| !c.is_ascii_digit()).unwrap_or(s.len());
    let mut n = 0;
    if let Some(s) = i.strip_prefix('.') {
        n = 1 + digits(s);
    }
    if let Some(s) = i[n..].strip_prefix(['e', 'E']) {
        let sign = usize::from(s.starts_with(['+', '-']));
        let d = digits(&s[sign..]);
        if d > 0 {
            n += 1 + sign + d;
        }
    }
    n
}

/// A quoted string, escapes kept as written.
pub(super) fn string(i: &str) -> Res<'_, &str> {
    let i = blank(i);
    let Some(body) = i.strip_prefix('"') else { return miss(i, "a string in quotes") };
    let mut escaped = false;
    for (n, c) in body.char_indices() {
        match c {
            '"' if !escaped => return Ok((&body[n + 1..], &body[..n])),
            _ => escaped = c == '\\' && !escaped,
        }
    }
    fail(i, codes::SYNTAX, "this string has no closing quote", "")
}

/// `item` separated by commas, possibly none.
pub(super) fn commas<'a, T>(i: &'a str, mut item: impl FnMut(&'a str) -> Res<'a, T>) -> Res<'a, Vec<T>> {
    let mut out = Vec::new();
    let (mut i, first) = match item(i) {
        Ok(x) => x,
        Err(nom::Err::Error(_)) => return Ok((i, out)),
        Err(e) => return Err(e),
    };
    out.push(first);
    while eat(&mut i, ",") {
        let (rest, next) = must(&mut item)(i)?;
        out.push(next);
        i = rest;
    }
    Ok((i, out))
}
