//! Video instructions: arithmetic on bytes and halves of words, one or several at a time.
//!
//! An H200 executes some of them differently from the manual: the upper half of a destination gets
//! the upper half of the result, unsigned sums do not saturate, and unsigned products saturate and
//! scale differently. Those forms are left out.

use super::lift::map3;
use super::site::{Issue, Site, issue};
use super::{Class, Family, Row, row};
use crate::codes;
use crate::exec::Op;
use crate::num::{mask, sext};

const TYPES: &[&str] = &["u32", "s32"];
const D: Class = ("dtype", TYPES);
const A: Class = ("atype", TYPES);
const B: Class = ("btype", TYPES);
const OP2: Class = ("op2", &["add", "min", "max"]);
const MODE: Class = ("mode", &["clamp", "wrap"]);
const SCALE: Class = ("scale", &["shr7", "shr15"]);
const CMPS: Class = ("cmp", &["eq", "ne", "lt", "le", "gt", "ge"]);
const SCALAR: &str = "d, a, b{, c}";
/// The reason why a form is not simulated.
const UNSURE: &str = "an H200's result differs from the PTX manual";
const SIMD: &str = "d, a, b, c";

const fn scalar_row(syntax: &'static str, build: super::Build) -> Row {
    row(syntax, SCALAR, &[D, A, B, OP2], build)
}

const fn simd_row(syntax: &'static str, build: super::Build) -> Row {
    row(syntax, SIMD, &[D, A, B], build)
}

pub(super) static FAMILY: Family = Family {
    title: "Video instructions",
    section: "9.7.18",
    rows: &[
        scalar_row("vadd.dtype.atype.btype{.sat}{.op2}", |s| {
            if s.has("sat") && ["dtype", "atype", "btype"].iter().all(|p| !is_signed(s, p)) {
                return issue(
                    codes::NOT_SIMULATED,
                    "a saturating sum of unsigned numbers is not simulated",
                    UNSURE,
                );
            }
            scalar(s, |a, b| a + b)
        }),
        scalar_row("vsub.dtype.atype.btype{.sat}{.op2}", |s| scalar(s, |a, b| a - b)),
        scalar_row("vabsdiff.dtype.atype.btype{.sat}{.op2}", |s| scalar(s, |a, b| (a - b).abs())),
        scalar_row("vmin.dtype.atype.btype{.sat}{.op2}", |s| scalar(s, i64::min)),
        scalar_row("vmax.dtype.atype.btype{.sat}{.op2}", |s| scalar(s, i64::max)),
        row("vshl.dtype.atype.u32.mode{.op2}", SCALAR, &[D, A, MODE, OP2], |s| {
            let distance = distance(s);
            scalar(s, move |a, b| a << distance(b))
        }),
        row("vshr.dtype.atype.u32{.sat}.mode{.op2}", SCALAR, &[D, A, MODE, OP2], |s| {
            let distance = distance(s);
            scalar(s, move |a, b| a >> distance(b))
        }),
        row("vmad.dtype.atype.btype{.po}{.sat}{.scale}", "d, a, b, c", &[D, A, B, SCALE], mad),
        row("vset.atype.btype.cmp{.op2}", SCALAR, &[A, B, CMPS, OP2], |s| {
            let test = test(s);
            scalar(s, move |a, b| test(a, b).into())
        }),
        simd_row("vadd2.dtype.atype.btype{.sat}{.add}", |s| simd(s, 16, |a, b| a + b)),
        simd_row("vsub2.dtype.atype.btype{.sat}{.add}", |s| simd(s, 16, |a, b| a - b)),
        simd_row("vavrg2.dtype.atype.btype{.sat}{.add}", |s| simd(s, 16, average)),
        simd_row("vabsdiff2.dtype.atype.btype{.sat}{.add}", |s| simd(s, 16, |a, b| (a - b).abs())),
        simd_row("vmin2.dtype.atype.btype{.sat}{.add}", |s| simd(s, 16, i64::min)),
        simd_row("vmax2.dtype.atype.btype{.sat}{.add}", |s| simd(s, 16, i64::max)),
        row("vset2.atype.btype.cmp{.add}", SIMD, &[A, B, CMPS], |s| {
            let test = test(s);
            simd(s, 16, move |a, b| test(a, b).into())
        }),
        simd_row("vadd4.dtype.atype.btype{.sat}{.add}", |s| simd(s, 8, |a, b| a + b)),
        simd_row("vsub4.dtype.atype.btype{.sat}{.add}", |s| simd(s, 8, |a, b| a - b)),
        simd_row("vavrg4.dtype.atype.btype{.sat}{.add}", |s| simd(s, 8, average)),
        simd_row("vabsdiff4.dtype.atype.btype{.sat}{.add}", |s| simd(s, 8, |a, b| (a - b).abs())),
        simd_row("vmin4.dtype.atype.btype{.sat}{.add}", |s| simd(s, 8, i64::min)),
        simd_row("vmax4.dtype.atype.btype{.sat}{.add}", |s| simd(s, 8, i64::max)),
        row("vset4.atype.btype.cmp{.add}", SIMD, &[A, B, CMPS], |s| {
            let test = test(s);
            simd(s, 8, move |a, b| test(a, b).into())
        }),
    ],
};

fn average(a: i64, b: i64) -> i64 {
    (a + b + i64::from(a + b >= 0)) >> 1
}

/// The shift function of `.mode`.
fn distance(s: &Site<'_, '_, '_>) -> impl Fn(i64) -> i64 + Send + Sync + 'static {
    let wrap = s.get("mode") == Some("wrap");
    move |b| if wrap { b & 31 } else { b.min(32) }
}

fn test(s: &Site<'_, '_, '_>) -> fn(i64, i64) -> bool {
    match s.text("cmp") {
        "eq" => |a, b| a == b,
        "ne" => |a, b| a != b,
        "lt" => |a, b| a < b,
        "le" => |a, b| a <= b,
        "gt" => |a, b| a > b,
        _ => |a, b| a >= b,
    }
}

fn is_signed(s: &Site<'_, '_, '_>, position: &str) -> bool {
    s.get(position) == Some("s32")
}

/// A part of a word: its lowest bit and its number of bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Part {
    at: u32,
    bits: u32,
}

impl Part {
    const WORD: Part = Part { at: 0, bits: 32 };

    /// Parses `b0` to `b3`, `h0`, `h1`, or an empty name for the whole word.
    fn parse(name: &str) -> Result<Part, Issue> {
        match name.as_bytes() {
            [] => Ok(Part::WORD),
            [b'b', n @ b'0'..=b'3'] => Ok(Part { at: 8 * u32::from(n - b'0'), bits: 8 }),
            [b'h', n @ b'0'..=b'1'] => Ok(Part { at: 16 * u32::from(n - b'0'), bits: 16 }),
            _ => issue(
                codes::BAD_OPERANDS,
                format!("`.{name}` does not select a part of a word"),
                "use one of .b0 to .b3, .h0 and .h1",
            ),
        }
    }

    fn of(self, v: u64, signed: bool) -> i64 {
        let v = v >> self.at & mask(self.bits);
        if signed { sext(v, self.bits) } else { v as i64 }
    }

    /// Replaces this part of `c`.
    fn merge(self, v: i64, c: u64) -> u64 {
        c & !(mask(self.bits) << self.at) | (v as u64 & mask(self.bits)) << self.at
    }
}

fn clamp(v: i64, bits: u32, signed: bool) -> i64 {
    if signed { v.clamp(-1 << (bits - 1), (1 << (bits - 1)) - 1) } else { v.clamp(0, (1 << bits) - 1) }
}

/// Builds one operation on parts of two words. The result is combined with `c`, if there is one.
fn scalar(
    s: &mut Site<'_, '_, '_>,
    f: impl Fn(i64, i64) -> i64 + Send + Sync + 'static,
) -> Result<Op, Issue> {
    // The result of a comparison is a number, and the distance of a shift is unsigned.
    let (signed, sa, sb) = (is_signed(s, "dtype"), is_signed(s, "atype"), is_signed(s, "btype"));
    let (d, to) = s.part_dst(0)?;
    let ((a, pa, na), (b, pb, nb)) = (s.part_src(1)?, s.part_src(2)?);
    let (pa, pb) = (Part::parse(pa)?, Part::parse(pb)?);
    let second = s.get("op2");
    if na || nb {
        return issue(codes::BAD_OPERANDS, "operands of this instruction cannot be negated", "");
    }
    if !to.is_empty() {
        return issue(codes::NOT_SIMULATED, "results that replace part of a word are not simulated", UNSURE);
    }
    if second.is_some() != (s.operands.len() == 4) {
        return issue(
            codes::BAD_OPERANDS,
            "the operands do not match the modifiers",
            "use a third operand only with .add, .min or .max",
        );
    }
    let c = if s.operands.len() == 4 { s.part_src(3)?.0 } else { a };
    let sat = s.has("sat");
    let word = move |v: u64| if signed { sext(v, 32) } else { v as i64 };
    Ok(map3(d, [a, b, c], move |a, b, c| {
        let r = f(pa.of(a, sa), pb.of(b, sb));
        let r = if sat { clamp(r, 32, signed) } else { r };
        let low = r as u64 & mask(32);
        match second {
            None => low,
            Some("add") => low.wrapping_add(c) & mask(32),
            Some("min") => word(low).min(word(c)) as u64 & mask(32),
            Some(_) => word(low).max(word(c)) as u64 & mask(32),
        }
    }))
}

fn mad(s: &mut Site<'_, '_, '_>) -> Result<Op, Issue> {
    let (sa, sb) = (is_signed(s, "atype"), is_signed(s, "btype"));
    let (d, to) = s.part_dst(0)?;
    let ((a, pa, na), (b, pb, nb), (c, pc, nc)) = (s.part_src(1)?, s.part_src(2)?, s.part_src(3)?);
    let (pa, pb) = (Part::parse(pa)?, Part::parse(pb)?);
    let (po, sat) = (s.has("po"), s.has("sat"));
    if (sat || s.has("scale")) && !(sa && sb) {
        return issue(
            codes::NOT_SIMULATED,
            "`.sat` and `.shr` of unsigned products are not simulated",
            UNSURE,
        );
    }
    if !to.is_empty() || !pc.is_empty() || po && (na || nb || nc) {
        return issue(
            codes::BAD_OPERANDS,
            "the operands do not match the modifiers",
            "select parts of a and b only, and do not negate operands with .po",
        );
    }
    let shift = match s.get("scale") {
        Some("shr7") => 7,
        Some(_) => 15,
        None => 0,
    };
    let (negate, signed) = (na != nb, sa || sb || na != nb || nc);
    Ok(map3(d, [a, b, c], move |a, b, c| {
        let product = i128::from(pa.of(a, sa)) * i128::from(pb.of(b, sb));
        let c = if nc && !negate { !c & mask(32) } else { c };
        let c = if signed { sext(c, 32) } else { c as i64 };
        let one = i128::from(po || negate || nc);
        let sum = if negate { !product } else { product } + i128::from(c) + one;
        let r = sum >> shift;
        let r = match (sat, signed) {
            (false, _) => r,
            (true, true) => r.clamp(i32::MIN.into(), i32::MAX.into()),
            (true, false) => r.clamp(0, u32::MAX.into()),
        };
        r as u64 & mask(32)
    }))
}

/// Parses the numbers in `h10`, `b7654` and so on, with the lowest lane first.
fn digits(name: &str, letter: char, max: usize, below: usize) -> Result<Vec<usize>, Issue> {
    let list: Option<Vec<usize>> = name
        .strip_prefix(letter)
        .map(|n| n.chars().rev().map(|c| c.to_digit(10).map_or(usize::MAX, |d| d as usize)).collect());
    match list {
        Some(l) if !l.is_empty() && l.len() <= max && l.iter().all(|&d| d < below) => Ok(l),
        _ => issue(codes::BAD_OPERANDS, format!("`.{name}` does not select {max} parts"), ""),
    }
}

/// Builds the same operation on all halves or bytes of two words. Results replace parts of `c`, or
/// are added to it.
fn simd(
    s: &mut Site<'_, '_, '_>,
    bits: u32,
    f: impl Fn(i64, i64) -> i64 + Send + Sync + 'static,
) -> Result<Op, Issue> {
    let (signed, sa, sb) = (is_signed(s, "dtype"), is_signed(s, "atype"), is_signed(s, "btype"));
    let (letter, lanes) = if bits == 16 { ('h', 2) } else { ('b', 4) };
    let (d, to) = s.part_dst(0)?;
    let ((a, pa, na), (b, pb, nb), (c, pc, nc)) = (s.part_src(1)?, s.part_src(2)?, s.part_src(3)?);
    if na || nb || nc || !pc.is_empty() {
        return issue(
            codes::BAD_OPERANDS,
            "operands of this instruction cannot be negated, and c cannot select a part",
            "",
        );
    }
    let (sat, add) = (s.has("sat"), s.has("add"));
    if sat && add {
        return issue(codes::UNKNOWN_MODIFIER, "an instruction cannot have both `.sat` and `.add`", "");
    }
    // The lanes of both words are numbered in one sequence, beginning with those of a.
    let select = |name: &str, first: usize| match name {
        "" => Ok((first..first + lanes).collect()),
        _ => match digits(name, letter, lanes, 2 * lanes)? {
            l if l.len() == lanes => Ok(l),
            _ => issue(codes::BAD_OPERANDS, format!("`.{name}` selects too few parts"), ""),
        },
    };
    let (from_a, from_b): (Vec<usize>, Vec<usize>) = (select(pa, 0)?, select(pb, lanes)?);
    let to = if to.is_empty() { (0..lanes).collect() } else { digits(to, letter, lanes, lanes)? };
    let part = move |n: usize| Part { at: n as u32 * bits, bits };
    Ok(map3(d, [a, b, c], move |a, b, c| {
        let words = b << 32 | a;
        let lane = |i: usize| f(part(from_a[i]).of(words, sa), part(from_b[i]).of(words, sb));
        if add {
            let sum = to.iter().fold(c, |sum, &i| sum.wrapping_add(lane(i) as u64));
            return sum & mask(32);
        }
        to.iter().fold(c, |r, &i| {
            let v = lane(i);
            part(i).merge(if sat { clamp(v, bits, signed) } else { v }, r)
        })
    }))
}
