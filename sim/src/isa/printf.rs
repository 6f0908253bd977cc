//! Functions that PTX calls but does not define: `vprintf` and `__assertfail`.

use super::lift::custom;
use super::site::{Issue, issue};
use crate::codes;
use crate::exec::access::{Space, from_le};
use crate::exec::{Context, Fault, Flow, Op, fault};
use crate::memory::Window;
use crate::model::lanes;
use std::fmt::Write as _;

/// The length of the longest string that is read from the program.
const MAX_STRING: usize = 4096;

/// Returns the operation for a call of a function that the simulator provides. Arguments and
/// results are given by frame offset and size.
pub(crate) fn builtin(name: &str, args: &[(u64, u64)], returns: &[(u64, u64)]) -> Option<Result<Op, Issue>> {
    let sizes: Vec<u64> = args.iter().map(|(_, size)| *size).collect();
    match (name, sizes.as_slice(), returns) {
        ("vprintf", [8, 8], [] | [(_, 4)]) => {
            Some(Ok(vprintf(args[0].0, args[1].0, returns.first().map(|r| r.0))))
        }
        ("__assertfail", [8, 8, 4, 8, 8], []) => {
            Some(Ok(assertfail(args[0].0, args[1].0, args[2].0, args[3].0)))
        }
        ("vprintf" | "__assertfail", _, _) => Some(issue(
            codes::BAD_OPERANDS,
            format!("the arguments of this call do not match the parameters of `{name}`"),
            "",
        )),
        _ => None,
    }
}

/// Reads an argument from the frame.
fn argument(cx: &mut Context<'_>, offset: u64, bytes: usize, lane: usize) -> Result<u64, Fault> {
    let mut data = [0; 8];
    let at = cx.frame_base + offset;
    cx.read(Space::Local, at, &mut data[..bytes], lane, &mut Window::empty())?;
    Ok(from_le(&data[..bytes]))
}

/// Reads a zero-terminated string at a generic address.
fn string(cx: &mut Context<'_>, addr: u64, lane: usize) -> Result<String, Fault> {
    let mut bytes = Vec::new();
    let mut w = Window::empty();
    while bytes.len() < MAX_STRING {
        let mut b = [0];
        cx.read(Space::Generic, addr.wrapping_add(bytes.len() as u64), &mut b, lane, &mut w)?;
        if b[0] == 0 {
            break;
        }
        bytes.push(b[0]);
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn vprintf(format: u64, args: u64, result: Option<u64>) -> Op {
    custom(move |cx| {
        for lane in lanes(cx.active) {
            let format = argument(cx, format, 8, lane)?;
            let format = string(cx, format, lane)?;
            let args = argument(cx, args, 8, lane)?;
            let (text, count) = render(cx, &format, args, lane)?;
            let pe = cx.at.pe;
            cx.output.print(pe, &text);
            if let Some(at) = result {
                let at = cx.frame_base + at;
                cx.write(Space::Local, at, &count.to_le_bytes(), lane, &mut Window::empty())?;
            }
        }
        Ok(Flow::Next)
    })
}

fn assertfail(message: u64, file: u64, line: u64, function: u64) -> Op {
    custom(move |cx| {
        let lane = cx.active.trailing_zeros() as usize;
        let mut text = |offset| {
            let at = argument(cx, offset, 8, lane)?;
            string(cx, at, lane)
        };
        let (message, file, function) = (text(message)?, text(file)?, text(function)?);
        let line = argument(cx, line, 4, lane)?;
        Err(fault(
            codes::ASSERTION,
            lane,
            format!("assertion failed: {message} ({file}:{line}, in {function})"),
            "",
        ))
    })
}

/// One conversion of a format string.
#[derive(Debug, Default, PartialEq)]
struct Conversion {
    left: bool,
    zero: bool,
    plus: bool,
    space: bool,
    alternate: bool,
    width: usize,
    precision: Option<usize>,
    /// Whether the integer has 8 bytes (`l`, `ll`, `z`, `j`, `t`).
    long: bool,
    kind: char,
}

/// Parses the text after a `%`, and returns the conversion and its length.
fn conversion(spec: &str) -> Option<(Conversion, usize)> {
    let mut c = Conversion::default();
    let mut chars = spec.char_indices().peekable();
    while let Some((_, flag @ ('-' | '0' | '+' | ' ' | '#'))) = chars.peek().copied() {
        match flag {
            '-' => c.left = true,
            '0' => c.zero = true,
            '+' => c.plus = true,
            ' ' => c.space = true,
            _ => c.alternate = true,
        }
        chars.next();
    }
    let number = |chars: &mut std::iter::Peekable<std::str::CharIndices<'_>>| {
        let mut n = 0_usize;
        while let Some(d) = chars.peek().and_then(|(_, ch)| ch.to_digit(10)) {
            n = n.saturating_mul(10).saturating_add(d as usize).min(512);
            chars.next();
        }
        n
    };
    c.width = number(&mut chars);
    if chars.next_if(|(_, ch)| *ch == '.').is_some() {
        c.precision = Some(number(&mut chars));
    }
    while let Some((_, size)) = chars.next_if(|(_, ch)| matches!(ch, 'h' | 'l' | 'z' | 'j' | 't')) {
        c.long |= size != 'h';
    }
    let (at, kind) = chars.next()?;
    c.kind = kind;
    "diuxXoeEfFgGcspaA".contains(kind).then_some((c, at + kind.len_utf8()))
}

/// Formats a string with the arguments packed at `args`, each aligned to its size. Returns the text and the
/// number of arguments.
fn render(cx: &mut Context<'_>, format: &str, mut args: u64, lane: usize) -> Result<(String, u32), Fault> {
    let mut out = String::new();
    let mut count = 0;
    let mut rest = format;
    while let Some(n) = rest.find('%') {
        out.push_str(&rest[..n]);
        rest = &rest[n + 1..];
        if let Some(after) = rest.strip_prefix('%') {
            out.push('%');
            rest = after;
            continue;
        }
        let Some((c, length)) = conversion(rest) else {
            let message =
                format!("printf conversion `%{}` is not supported", rest.chars().take(8).collect::<String>());
            return Err(fault(
                codes::UNDEFINED,
                lane,
                message,
                "use one of d i u x X o e f g c s p, with l or ll if needed",
            ));
        };
        rest = &rest[length..];
        let bytes = if c.long || "eEfFgGaAsp".contains(c.kind) { 8 } else { 4 };
        args = args.checked_next_multiple_of(bytes as u64).unwrap_or(u64::MAX);
        let mut data = [0; 8];
        cx.read(Space::Generic, args, &mut data[..bytes], lane, &mut Window::empty())?;
        args += bytes as u64;
        count += 1;
        let value = from_le(&data[..bytes]);
        let text = if c.kind == 's' { string(cx, value, lane)? } else { String::new() };
        out.push_str(&c.format(value, bytes, &text));
    }
    out.push_str(rest);
    Ok((out, count))
}

impl Conversion {
    fn format(&self, v: u64, bytes: usize, text: &str) -> String {
        let signed = crate::num::sext(v, bytes as u32 * 8);
        let digits = |s: String| match self.precision {
            Some(p) if s.len() < p => format!("{}{s}", "0".repeat(p - s.len())),
            _ => s,
        };
        let (negative, body) = match self.kind {
            'd' | 'i' => (signed < 0, digits(signed.unsigned_abs().to_string())),
            'u' => (false, digits(v.to_string())),
            'x' => (false, format!("{}{}", if self.alternate { "0x" } else { "" }, digits(format!("{v:x}")))),
            'X' => (false, format!("{}{}", if self.alternate { "0X" } else { "" }, digits(format!("{v:X}")))),
            'o' => (false, digits(format!("{v:o}"))),
            'c' => (false, char::from(v as u8).to_string()),
            'p' => (false, format!("0x{v:x}")),
            's' => (false, text.chars().take(self.precision.unwrap_or(usize::MAX)).collect()),
            _ => self.float(f64::from_bits(v)),
        };
        let numeric = !matches!(self.kind, 'c' | 's' | 'p');
        let is_signed = numeric && !matches!(self.kind, 'u' | 'x' | 'X' | 'o');
        let sign = match (negative, is_signed, self.plus, self.space) {
            (true, ..) => "-",
            (_, true, true, _) => "+",
            (_, true, _, true) => " ",
            _ => "",
        };
        let fill = self.width.saturating_sub(sign.len() + body.chars().count());
        let padding = |c: &str| c.repeat(fill);
        match (self.left, self.zero && numeric) {
            (true, _) => format!("{sign}{body}{}", padding(" ")),
            (_, true) => format!("{sign}{}{body}", padding("0")),
            _ => format!("{}{sign}{body}", padding(" ")),
        }
    }

    /// Returns the sign and the magnitude of a floating-point value, in C's format.
    fn float(&self, x: f64) -> (bool, String) {
        let negative = x.is_sign_negative();
        let m = x.abs();
        if !m.is_finite() {
            return (negative && !m.is_nan(), if m.is_nan() { "nan".into() } else { "inf".into() });
        }
        let precision = self.precision.unwrap_or(6);
        let upper = self.kind.is_ascii_uppercase();
        let text = match self.kind.to_ascii_lowercase() {
            'f' => format!("{m:.precision$}"),
            'e' => exponent(m, precision),
            'a' => format!("{m:e}"),
            _ => {
                // For %g, C uses the shorter of %e and %f with that many significant digits,
                // without trailing zeros.
                let significant = precision.max(1);
                let e = exponent(m, significant - 1);
                let exp: i32 = e.rsplit('e').next().and_then(|s| s.parse().ok()).unwrap_or(0);
                if exp < -4 || exp >= significant as i32 {
                    let (mantissa, tail) = e.split_once('e').unwrap_or((&e, ""));
                    format!("{}e{tail}", trim_zeros(mantissa))
                } else {
                    trim_zeros(&format!("{m:.*}", (significant as i32 - 1 - exp).max(0) as usize)).to_string()
                }
            }
        };
        (negative, if upper { text.to_uppercase() } else { text })
    }
}

fn trim_zeros(s: &str) -> &str {
    if s.contains('.') { s.trim_end_matches('0').trim_end_matches('.') } else { s }
}

/// Formats `d.ddde+xx`.
fn exponent(m: f64, precision: usize) -> String {
    let text = format!("{m:.precision$e}");
    let (mantissa, exp) = text.split_once('e').unwrap_or((&text, "0"));
    let exp: i32 = exp.parse().unwrap_or(0);
    let mut out = String::new();
    let _ = write!(out, "{mantissa}e{}{:02}", if exp < 0 { '-' } else { '+' }, exp.abs());
    out
}
