//! Integer arithmetic and bit fields.

use super::classes::INT;
use super::lift::{map1, map2, map3, try2};
use super::site::{Issue, Site, issue};
use super::{Class, Family, row};
use crate::codes;
use crate::exec::Op;
use crate::num::{float::each2, mask, sext};
use crate::types::Ty;

const TYPE: Class = ("type", INT);
const PACKED: &[&str] = &["u16", "u32", "u64", "s16", "s32", "s64", "u16x2", "s16x2"];
const MODE: Class = ("mode", &["hi", "lo", "wide"]);

pub(super) static FAMILY: Family = Family {
    title: "Integer arithmetic",
    section: "9.7.1",
    rows: &[
        row("add.type", "d, a, b", &[("type", PACKED)], |s| packed2(s, |_, a, b| a.wrapping_add(b))),
        row("add.sat.s32", "d, a, b", &[], |s| {
            fixed2(s, "s32", |a, b| sext(a, 32).saturating_add(sext(b, 32)).clamp(I32.0, I32.1) as u64)
        }),
        row("sub.type", "d, a, b", &[("type", PACKED)], |s| packed2(s, |_, a, b| a.wrapping_sub(b))),
        row("sub.sat.s32", "d, a, b", &[], |s| {
            fixed2(s, "s32", |a, b| sext(a, 32).saturating_sub(sext(b, 32)).clamp(I32.0, I32.1) as u64)
        }),
        row("mul.mode.type", "d, a, b", &[MODE, TYPE], mul),
        row("mad.mode.type", "d, a, b, c", &[MODE, TYPE], mad),
        row("mad.hi.sat.s32", "d, a, b, c", &[], |s| {
            let t = s.ty("s32")?;
            let (d, a) = (s.dst(0, t)?, [s.src(1, t)?, s.src(2, t)?, s.src(3, t)?]);
            Ok(map3(d, a, |a, b, c| {
                let hi = (sext(a, 32) * sext(b, 32)) >> 32;
                (hi + sext(c, 32)).clamp(I32.0, I32.1) as u64 & mask(32)
            }))
        }),
        row("div.type", "d, a, b", &[TYPE], |s| divide(s, i128::wrapping_div)),
        row("rem.type", "d, a, b", &[TYPE], |s| divide(s, i128::wrapping_rem)),
        row("abs.type", "d, a", &[("type", &["s16", "s32", "s64"])], |s| {
            int1(s, |t, a| t.extend(a).unsigned_abs())
        }),
        row("neg.type", "d, a", &[("type", &["s16", "s32", "s64"])], |s| int1(s, |_, a| a.wrapping_neg())),
        row("min{.relu}.type", "d, a, b", &[("type", PACKED)], |s| extremum(s, false)),
        row("max{.relu}.type", "d, a, b", &[("type", PACKED)], |s| extremum(s, true)),
    ],
};

const I32: (i64, i64) = (i32::MIN as i64, i32::MAX as i64);

fn int1(s: &mut Site<'_, '_, '_>, f: impl Fn(Ty, u64) -> u64 + Send + Sync + 'static) -> Result<Op, Issue> {
    let t = s.ty("type")?;
    let (d, a) = (s.dst(0, t)?, s.src(1, t)?);
    Ok(map1(d, a, move |a| f(t, a) & mask(t.bits)))
}

/// Applies `f` to each packed element; `f` gets zero-extended elements and the element type.
fn packed2(
    s: &mut Site<'_, '_, '_>,
    f: impl Fn(Ty, u64, u64) -> u64 + Send + Sync + 'static,
) -> Result<Op, Issue> {
    let t = s.ty("type")?;
    let (d, a, b) = (s.dst(0, t)?, s.src(1, t)?, s.src(2, t)?);
    let m = mask(t.bits);
    Ok(if t.count == 1 {
        map2(d, a, b, move |a, b| f(t, a, b) & m)
    } else {
        map2(d, a, b, move |a, b| each2(t.count, t.bits, a, b, |a, b| f(t, a, b) & m))
    })
}

/// Builds a form with one type, whose result is truncated to the type.
fn fixed2(
    s: &mut Site<'_, '_, '_>,
    ty: &str,
    f: impl Fn(u64, u64) -> u64 + Send + Sync + 'static,
) -> Result<Op, Issue> {
    let t = s.ty(ty)?;
    let (d, a, b) = (s.dst(0, t)?, s.src(1, t)?, s.src(2, t)?);
    Ok(map2(d, a, b, move |a, b| f(a, b) & mask(t.bits)))
}

/// The double-width product.
#[inline]
fn product(t: Ty, a: u64, b: u64) -> i128 {
    if t.signed() {
        i128::from(t.extend(a)) * i128::from(t.extend(b))
    } else {
        // The product wraps correctly, since only the low 128 bits are used.
        (u128::from(a) * u128::from(b)) as i128
    }
}

/// The part of the product that `.mode` selects, and the type of the result.
fn selected(s: &Site<'_, '_, '_>, t: Ty) -> Result<(u32, Ty), Issue> {
    match s.get("mode") {
        Some("wide") if t.bits == 64 => {
            issue(codes::UNKNOWN_MODIFIER, "the .wide mode needs a 16-bit or 32-bit type", "")
        }
        Some("wide") => Ok((0, Ty { bits: 2 * t.bits, ..t })),
        Some("hi") => Ok((t.bits, t)),
        _ => Ok((0, t)),
    }
}

fn mul(s: &mut Site<'_, '_, '_>) -> Result<Op, Issue> {
    let t = s.ty("type")?;
    let (shift, r) = selected(s, t)?;
    let (d, a, b) = (s.dst(0, r)?, s.src(1, t)?, s.src(2, t)?);
    let m = mask(r.bits);
    Ok(match (shift, r.bits > t.bits && t.signed()) {
        (0, false) => map2(d, a, b, move |a, b| a.wrapping_mul(b) & m),
        (0, true) => map2(d, a, b, move |a, b| t.extend(a).wrapping_mul(t.extend(b)) as u64 & m),
        _ => map2(d, a, b, move |a, b| (product(t, a, b) >> shift) as u64 & m),
    })
}

fn mad(s: &mut Site<'_, '_, '_>) -> Result<Op, Issue> {
    let t = s.ty("type")?;
    let (shift, r) = selected(s, t)?;
    let (d, abc) = (s.dst(0, r)?, [s.src(1, t)?, s.src(2, t)?, s.src(3, r)?]);
    let m = mask(r.bits);
    Ok(match (shift, r.bits > t.bits && t.signed()) {
        (0, false) => map3(d, abc, move |a, b, c| a.wrapping_mul(b).wrapping_add(c) & m),
        (0, true) => {
            map3(d, abc, move |a, b, c| (t.extend(a).wrapping_mul(t.extend(b)) as u64).wrapping_add(c) & m)
        }
        _ => map3(d, abc, move |a, b, c| ((product(t, a, b) >> shift) as u64).wrapping_add(c) & m),
    })
}

fn divide(s: &mut Site<'_, '_, '_>, f: fn(i128, i128) -> i128) -> Result<Op, Issue> {
    let t = s.ty("type")?;
    let (d, a, b) = (s.dst(0, t)?, s.src(1, t)?, s.src(2, t)?);
    let value = move |v: u64| if t.signed() { i128::from(t.extend(v)) } else { i128::from(v) };
    Ok(try2(d, a, b, move |a, b| match value(b) {
        0 => Err("integer division by zero"),
        b => Ok(f(value(a), b) as u64 & mask(t.bits)),
    }))
}

fn extremum(s: &mut Site<'_, '_, '_>, largest: bool) -> Result<Op, Issue> {
    let t = s.ty("type")?;
    let relu = s.has("relu");
    if relu && !(t.signed() && t.width() == 32) {
        return issue(codes::UNKNOWN_MODIFIER, ".relu needs the type .s32 or .s16x2", "");
    }
    packed2(s, move |t, a, b| {
        let below = if t.signed() { t.extend(a) < t.extend(b) } else { a < b };
        let v = if below == largest { b } else { a };
        if relu && t.extend(v) < 0 { 0 } else { v }
    })
}
