//! Logic and shifts, on registers and predicates.

use super::classes::BITS;
use super::lift::{custom, map1, map2, map3};
use super::site::{Issue, Site, issue};
use super::{Class, Family, row};
use crate::codes;
use crate::exec::{Flow, Op, Pred};
use crate::num::mask;
use crate::types::Ty;

const TYPE: Class = ("type", BITS);
const MODE: Class = ("mode", &["clamp", "wrap"]);

pub(super) static FAMILY: Family = Family {
    title: "Logic and shifts",
    section: "9.7.8",
    rows: &[
        row("and.type", "d, a, b", &[TYPE], |s| bits2(s, |a, b| a & b)),
        row("or.type", "d, a, b", &[TYPE], |s| bits2(s, |a, b| a | b)),
        row("xor.type", "d, a, b", &[TYPE], |s| bits2(s, |a, b| a ^ b)),
        row("and.pred", "p, q, r", &[], |s| pred2(s, |a, b| a & b)),
        row("or.pred", "p, q, r", &[], |s| pred2(s, |a, b| a | b)),
        row("xor.pred", "p, q, r", &[], |s| pred2(s, |a, b| a ^ b)),
        row("not.pred", "p, q", &[], |s| {
            let (p, q) = (s.pred_dst(0)?, s.pred_src(1)?);
            Ok(custom(move |cx| {
                let v = !cx.pred(q);
                cx.set_pred(p, v);
                Ok(Flow::Next)
            }))
        }),
        row("not.type", "d, a", &[TYPE], |s| bits1(s, |a| !a)),
        row("cnot.type", "d, a", &[TYPE], |s| bits1(s, |a| u64::from(a == 0))),
        row("lop3.b32", "d, a, b, c, immLut", &[], |s| lop3(s, None)),
        row("lop3.BoolOp.b32", "d|p, a, b, c, immLut, q", &[("BoolOp", &["or", "and"])], |s| {
            let combine: fn(u32, u32) -> u32 =
                if s.get("BoolOp") == Some("or") { |a, b| a | b } else { |a, b| a & b };
            lop3(s, Some(combine))
        }),
        row("shf.dir.mode.b32", "d, a, b, c", &[("dir", &["l", "r"]), MODE], shf),
        row("shl.type", "d, a, b", &[TYPE], |s| {
            let t = s.ty("type")?;
            let (d, a, b) = (s.dst(0, t)?, s.src(1, t)?, s.src(2, Ty::B32)?);
            let (bits, m) = (u64::from(t.bits), mask(t.bits));
            Ok(map2(d, a, b, move |a, n| if n < bits { a << n & m } else { 0 }))
        }),
        row(
            "shr.type",
            "d, a, b",
            &[("type", &["b16", "b32", "b64", "u16", "u32", "u64", "s16", "s32", "s64"])],
            |s| {
                let t = s.ty("type")?;
                let (d, a, b) = (s.dst(0, t)?, s.src(1, t)?, s.src(2, Ty::B32)?);
                let (bits, m) = (u64::from(t.bits), mask(t.bits));
                Ok(if t.signed() {
                    map2(d, a, b, move |a, n| (t.extend(a) >> n.min(bits - 1)) as u64 & m)
                } else {
                    map2(d, a, b, move |a, n| if n < bits { a >> n } else { 0 })
                })
            },
        ),
    ],
};

fn bits1(s: &mut Site<'_, '_, '_>, f: impl Fn(u64) -> u64 + Send + Sync + 'static) -> Result<Op, Issue> {
    let t = s.ty("type")?;
    let (d, a) = (s.dst(0, t)?, s.src(1, t)?);
    let m = mask(t.bits);
    Ok(map1(d, a, move |a| f(a) & m))
}

fn bits2(s: &mut Site<'_, '_, '_>, f: impl Fn(u64, u64) -> u64 + Send + Sync + 'static) -> Result<Op, Issue> {
    let t = s.ty("type")?;
    let (d, a, b) = (s.dst(0, t)?, s.src(1, t)?, s.src(2, t)?);
    Ok(map2(d, a, b, f))
}

fn pred2(s: &mut Site<'_, '_, '_>, f: fn(u32, u32) -> u32) -> Result<Op, Issue> {
    let (p, q, r) = (s.pred_dst(0)?, s.pred_src(1)?, s.pred_src(2)?);
    Ok(custom(move |cx| {
        let v = f(cx.pred(q), cx.pred(r));
        cx.set_pred(p, v);
        Ok(Flow::Next)
    }))
}

/// The function of three bits whose truth table is `lut`.
fn truth_table(lut: u64, a: u64, b: u64, c: u64) -> u64 {
    let term = |i: u64| {
        let pick = |v: u64, bit: u64| if i >> bit & 1 == 1 { v } else { !v };
        pick(a, 2) & pick(b, 1) & pick(c, 0)
    };
    (0..8).filter(|i| lut >> i & 1 == 1).fold(0, |d, i| d | term(i)) & mask(32)
}

fn lop3(s: &mut Site<'_, '_, '_>, combine: Option<fn(u32, u32) -> u32>) -> Result<Op, Issue> {
    let t = Ty::B32;
    let (d, p) = s.dst_pred(0, 32)?;
    let (a, b, c) = (s.src(1, t)?, s.src(2, t)?, s.src(3, t)?);
    let lut = s.immediate(4)?;
    if lut > 255 {
        return issue(codes::BAD_OPERANDS, "immLut must be 0 to 255", "");
    }
    let Some(combine) = combine else {
        if p != Pred::SINK {
            return issue(codes::BAD_OPERANDS, "lop3 with a predicate destination needs .or or .and", "");
        }
        return Ok(map3(d, [a, b, c], move |a, b, c| truth_table(lut, a, b, c)));
    };
    let q = s.pred_src(5)?;
    let inner = map3(d, [a, b, c], move |a, b, c| truth_table(lut, a, b, c));
    Ok(custom(move |cx| {
        inner.execute(cx)?;
        let nonzero = cx.reg(d).iter().enumerate().fold(0, |m, (l, v)| m | u32::from(*v != 0) << l);
        let v = combine(nonzero, cx.pred(q));
        cx.set_pred(p, v);
        Ok(Flow::Next)
    }))
}

fn shf(s: &mut Site<'_, '_, '_>) -> Result<Op, Issue> {
    let t = Ty::B32;
    let d = s.dst(0, t)?;
    let abc = [s.src(1, t)?, s.src(2, t)?, s.src(3, t)?];
    let clamp = s.get("mode") == Some("clamp");
    let amount = move |c: u64| if clamp { c.min(32) } else { c & 31 };
    Ok(if s.get("dir") == Some("l") {
        map3(d, abc, move |a, b, c| ((b << 32 | a) << amount(c)) >> 32 & mask(32))
    } else {
        map3(d, abc, move |a, b, c| (b << 32 | a) >> amount(c) & mask(32))
    })
}
