//! Comparison and selection.

use super::classes::SCALAR;
use super::lift::{Combination, compare, custom, map2, map3};
use super::site::{Issue, Site, issue};
use super::{Class, Family, row};
use crate::codes;
use crate::exec::{Flow, Op, Pred};
use crate::num::{F16, F32, Format, mask};
use crate::types::{Ty, TypeKind};

const CMP: Class = (
    "CmpOp",
    &[
        "eq", "ne", "lt", "le", "gt", "ge", "lo", "ls", "hi", "hs", "equ", "neu", "ltu", "leu", "gtu", "geu",
        "num", "nan",
    ],
);
const BOOL: Class = ("BoolOp", &["and", "or", "xor"]);
const TYPE: Class =
    ("type", &["b16", "b32", "b64", "u16", "u32", "u64", "s16", "s32", "s64", "f32", "f64", "f16", "bf16"]);
const PACKED: Class = ("type", &["f16x2", "bf16x2"]);
const DTYPE: Class = ("dtype", &["u32", "s32", "f32", "u16", "s16", "f16", "bf16"]);

pub(super) static FAMILY: Family = Family {
    title: "Comparison and selection",
    section: "9.7.6, 9.7.7",
    rows: &[
        row("setp.CmpOp{.ftz}.type", "p|q, a, b", &[CMP, TYPE], setp),
        row("setp.CmpOp.BoolOp{.ftz}.type", "p|q, a, b, c", &[CMP, BOOL, TYPE], setp),
        row("setp.CmpOp{.ftz}.type", "p|q, a, b", &[CMP, PACKED], setp_packed),
        row("setp.CmpOp.BoolOp{.ftz}.type", "p|q, a, b, c", &[CMP, BOOL, PACKED], setp_packed),
        row("set.CmpOp{.ftz}.dtype.type", "d, a, b", &[CMP, DTYPE, TYPE], set),
        row("set.CmpOp.BoolOp{.ftz}.dtype.type", "d, a, b, c", &[CMP, BOOL, DTYPE, TYPE], set),
        row("selp.type", "d, a, b, p", &[("type", SCALAR)], |s| {
            let t = s.ty("type")?;
            let (d, a, b, p) = (s.dst(0, t)?, s.src(1, t)?, s.src(2, t)?, s.pred_src(3)?);
            Ok(custom(move |cx| {
                let (a, b, p) = (*cx.src(a), *cx.src(b), cx.pred(p));
                for l in crate::model::lanes(cx.active) {
                    cx.reg(d)[l] = if p >> l & 1 == 1 { a[l] } else { b[l] };
                }
                Ok(Flow::Next)
            }))
        }),
        row("slct.type.s32", "d, a, b, c", &[("type", SCALAR)], |s| {
            let t = s.ty("type")?;
            let (d, abc) = (s.dst(0, t)?, [s.src(1, t)?, s.src(2, t)?, s.src(3, Ty::B32)?]);
            Ok(map3(d, abc, |a, b, c| if c >> 31 & 1 == 0 { a } else { b }))
        }),
        row("slct{.ftz}.type.f32", "d, a, b, c", &[("type", SCALAR)], |s| {
            let t = s.ty("type")?;
            let ftz = s.has("ftz");
            let (d, abc) = (s.dst(0, t)?, [s.src(1, t)?, s.src(2, t)?, s.src(3, Ty::F32)?]);
            // The value -0 counts as zero, and a NaN selects b.
            Ok(map3(
                d,
                abc,
                move |a, b, c| if F32.decode(if ftz { F32.flush(c) } else { c }) >= 0.0 { a } else { b },
            ))
        }),
    ],
};

/// The outcomes that a comparison accepts: less, equal, greater, unordered.
const OUTCOMES: &[(&str, u8)] = &[
    ("eq", 0b0010),
    ("ne", 0b0101),
    ("lt", 0b0001),
    ("le", 0b0011),
    ("gt", 0b0100),
    ("ge", 0b0110),
    ("lo", 0b0001),
    ("ls", 0b0011),
    ("hi", 0b0100),
    ("hs", 0b0110),
    ("equ", 0b1010),
    ("neu", 0b1101),
    ("ltu", 0b1001),
    ("leu", 0b1011),
    ("gtu", 0b1100),
    ("geu", 0b1110),
    ("num", 0b0111),
    ("nan", 0b1000),
];

#[inline]
fn outcome<T: PartialOrd>(a: &T, b: &T) -> u8 {
    if a < b {
        0
    } else if a == b {
        1
    } else if a > b {
        2
    } else {
        3
    }
}

/// The accepted outcomes of `.CmpOp`, checked against the operand type.
fn accepted(s: &Site<'_, '_, '_>, t: Ty) -> Result<u8, Issue> {
    let op = s.text("CmpOp");
    if s.has("ftz") && !matches!(t.format(), Some(F32 | F16)) {
        return issue(codes::UNKNOWN_MODIFIER, "`.ftz` applies to .f32 and .f16 operands", "");
    }
    let legal = match t.kind {
        TypeKind::Bits => matches!(op, "eq" | "ne"),
        TypeKind::Signed => matches!(op, "eq" | "ne" | "lt" | "le" | "gt" | "ge"),
        TypeKind::Unsigned => {
            matches!(op, "eq" | "ne" | "lt" | "le" | "gt" | "ge" | "lo" | "ls" | "hi" | "hs")
        }
        TypeKind::Float(_) => !matches!(op, "lo" | "ls" | "hi" | "hs"),
    };
    match OUTCOMES.iter().find(|(n, _)| *n == op) {
        Some((_, bits)) if legal => Ok(*bits),
        _ => issue(codes::UNKNOWN_MODIFIER, format!("`.{op}` does not compare operands of this type"), ""),
    }
}

#[inline]
fn float_outcome(f: Format, ftz: bool, a: u64, b: u64) -> u8 {
    let value = |v: u64| f.decode(if ftz { f.flush(v) } else { v });
    outcome(&value(a), &value(b))
}

fn bool_op(s: &Site<'_, '_, '_>) -> Option<fn(u32, u32) -> u32> {
    match s.get("BoolOp")? {
        "and" => Some(|a, b| a & b),
        "or" => Some(|a, b| a | b),
        _ => Some(|a, b| a ^ b),
    }
}

fn combination(s: &mut Site<'_, '_, '_>) -> Result<Option<Combination>, Issue> {
    match bool_op(s) {
        Some(op) => Ok(Some((op, s.pred_src(3)?))),
        None => Ok(None),
    }
}

fn setp(s: &mut Site<'_, '_, '_>) -> Result<Op, Issue> {
    let t = s.ty("type")?;
    let accept = accepted(s, t)?;
    let ftz = s.has("ftz");
    let (p, a, b, c) = (s.pred_pair(0)?, s.src(1, t)?, s.src(2, t)?, combination(s)?);
    if p.1 != Pred::SINK && t.bits == 16 && t.format().is_some() {
        return issue(
            codes::BAD_OPERANDS,
            "setp on one half-precision value has one destination predicate",
            "",
        );
    }
    let yes = move |o: u8| accept >> o & 1 == 1;
    Ok(match t.kind {
        TypeKind::Signed => compare(p, a, b, c, move |a, b| yes(outcome(&t.extend(a), &t.extend(b)))),
        TypeKind::Float(f) => compare(p, a, b, c, move |a, b| yes(float_outcome(f, ftz, a, b))),
        _ => compare(p, a, b, c, move |a, b| yes(outcome(&a, &b))),
    })
}

/// Builds a comparison of packed halves: `p` is for the low element, `q` for the high one.
fn setp_packed(s: &mut Site<'_, '_, '_>) -> Result<Op, Issue> {
    let t = s.ty("type")?;
    let accept = accepted(s, t)?;
    let Some(f) = t.format() else {
        return issue(codes::UNKNOWN_MODIFIER, "a floating-point type is needed", "");
    };
    let ftz = s.has("ftz");
    let ((p, q), a, b, c) = (s.pred_pair(0)?, s.src(1, t)?, s.src(2, t)?, combination(s)?);
    let half = move |shift: u32, to: Pred| {
        compare((to, Pred::SINK), a, b, c, move |a, b| {
            let (a, b) = (a >> shift & mask(16), b >> shift & mask(16));
            accept >> float_outcome(f, ftz, a, b) & 1 == 1
        })
    };
    // `c` may be the same register as `p`: the high half reads it first.
    let (low, high) = (half(0, p), half(16, q));
    Ok(custom(move |cx| {
        let saved = c.map(|(_, c)| (c.slot, cx.preds[c.slot.0 as usize]));
        high.execute(cx)?;
        let q_value = cx.preds[q.0 as usize];
        if let Some((slot, v)) = saved {
            cx.preds[slot.0 as usize] = v;
        }
        low.execute(cx)?;
        if q != p {
            cx.set_pred(q, q_value);
        }
        Ok(Flow::Next)
    }))
}

fn set(s: &mut Site<'_, '_, '_>) -> Result<Op, Issue> {
    let (t, dt) = (s.ty("type")?, s.ty("dtype")?);
    let accept = accepted(s, t)?;
    let ftz = s.has("ftz");
    let (d, a, b, c) = (s.dst(0, dt)?, s.src(1, t)?, s.src(2, t)?, combination(s)?);
    let yes = match dt.format() {
        Some(f) => f.integer(false, 1, crate::num::Rounding::Nearest),
        None => mask(dt.bits),
    };
    let test = move |a: u64, b: u64| {
        let o = match t.kind {
            TypeKind::Signed => outcome(&t.extend(a), &t.extend(b)),
            TypeKind::Float(f) => float_outcome(f, ftz, a, b),
            _ => outcome(&a, &b),
        };
        accept >> o & 1 == 1
    };
    let Some((op, c)) = c else { return Ok(map2(d, a, b, move |a, b| if test(a, b) { yes } else { 0 })) };
    Ok(custom(move |cx| {
        let (a, b, c) = (*cx.src(a), *cx.src(b), cx.pred(c));
        for l in crate::model::lanes(cx.active) {
            let t = op(test(a[l], b[l]).into(), c >> l & 1);
            cx.reg(d)[l] = if t & 1 == 1 { yes } else { 0 };
        }
        Ok(Flow::Next)
    }))
}
