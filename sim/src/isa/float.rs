//! Floating-point arithmetic in single and double precision, and in half precision (f16, bf16,
//! packed).

use super::classes::RND;
use super::lift::{custom, map1, map2, map3};
use super::site::{Issue, Site, issue};
use super::{Class, Family, row};
use crate::codes;
use crate::exec::{Flow, Op};
use crate::model::lanes;
use crate::num::float::{Style, each2};
use crate::num::{F32, F64, Format, OOB_NAN, Rounding, mask};
use crate::types::Ty;

const RNDS: Class = ("rnd", RND);
const F3264: Class = ("type", &["f32", "f64"]);
const HALF_IN: Class = ("atype", &["f16", "bf16"]);
const HALF: Class = ("type", &["f16", "f16x2", "bf16", "bf16x2"]);
const F16S: Class = ("type", &["f16", "f16x2"]);
const BF16S: Class = ("type", &["bf16", "bf16x2"]);

pub(super) static FAMILY: Family = Family {
    title: "Floating-point arithmetic, single and double precision",
    section: "9.7.3",
    rows: &[
        row("add{.rnd}{.ftz}{.sat}.f32", "d, a, b", &[RNDS], |s| two(s, Style::add)),
        row("add{.rnd}.f64", "d, a, b", &[RNDS], |s| two(s, Style::add)),
        row("add{.rnd}{.ftz}.f32x2", "d, a, b", &[RNDS], |s| two(s, Style::add)),
        row("sub{.rnd}{.ftz}{.sat}.f32", "d, a, b", &[RNDS], |s| two(s, Style::sub)),
        row("sub{.rnd}.f64", "d, a, b", &[RNDS], |s| two(s, Style::sub)),
        row("sub{.rnd}{.ftz}.f32x2", "d, a, b", &[RNDS], |s| two(s, Style::sub)),
        row("mul{.rnd}{.ftz}{.sat}.f32", "d, a, b", &[RNDS], |s| two(s, Style::mul)),
        row("mul{.rnd}.f64", "d, a, b", &[RNDS], |s| two(s, Style::mul)),
        row("mul{.rnd}{.ftz}.f32x2", "d, a, b", &[RNDS], |s| two(s, Style::mul)),
        row("fma.rnd{.ftz}{.sat}.f32", "d, a, b, c", &[RNDS], |s| three(s, Style::fma)),
        row("fma.rnd.f64", "d, a, b, c", &[RNDS], |s| three(s, Style::fma)),
        row("fma.rnd{.ftz}.f32x2", "d, a, b, c", &[RNDS], |s| three(s, Style::fma)),
        row("mad.rnd{.ftz}{.sat}.f32", "d, a, b, c", &[RNDS], |s| three(s, Style::fma)),
        row("mad.rnd.f64", "d, a, b, c", &[RNDS], |s| three(s, Style::fma)),
        row("add{.rnd}{.sat}.f32.atype", "d, a, c", &[RNDS, HALF_IN], |s| {
            mixed(s, false, |t, a, _, c| t.add(a, c))
        }),
        row("sub{.rnd}{.sat}.f32.atype", "d, a, c", &[RNDS, HALF_IN], |s| {
            mixed(s, false, |t, a, _, c| t.sub(a, c))
        }),
        row("fma.rnd{.sat}.f32.atype", "d, a, b, c", &[RNDS, HALF_IN], |s| mixed(s, true, Style::fma)),
        row("div.rnd{.ftz}.f32", "d, a, b", &[RNDS], |s| two(s, Style::div)),
        row("div.rnd.f64", "d, a, b", &[RNDS], |s| two(s, Style::div)),
        row("div.full{.ftz}.f32", "d, a, b", &[], |s| two(s, Style::div)),
        row("div.approx{.ftz}.f32", "d, a, b", &[], |s| {
            // The reciprocal of a divisor of at least 2^126 is treated as zero.
            two(s, |t, a, b| match F32.decode(b) {
                y if y.is_finite() && y.abs() > 2_f64.powi(126) => t.mul(a, b & F32.sign()),
                _ => t.div(a, b),
            })
        }),
        row("rcp.rnd{.ftz}.f32", "d, a", &[RNDS], |s| one(s, |t, a| t.div(unity(t.format), a))),
        row("rcp.rnd.f64", "d, a", &[RNDS], |s| one(s, |t, a| t.div(unity(t.format), a))),
        row("rcp.approx{.ftz}.f32", "d, a", &[], |s| one(s, |t, a| t.div(unity(t.format), a))),
        row("rcp.approx.ftz.f64", "d, a", &[], |s| one(s, |_, a| truncated(1.0 / flushed(a)))),
        row("sqrt.rnd{.ftz}.f32", "d, a", &[RNDS], |s| one(s, Style::sqrt)),
        row("sqrt.rnd.f64", "d, a", &[RNDS], |s| one(s, Style::sqrt)),
        row("sqrt.approx{.ftz}.f32", "d, a", &[], |s| one(s, Style::sqrt)),
        row("rsqrt.approx{.ftz}.f32", "d, a", &[], |s| approx(s, |x| 1.0 / x.sqrt())),
        row("rsqrt.approx.f64", "d, a", &[], |s| one(s, |_, a| (1.0 / f64::from_bits(a).sqrt()).to_bits())),
        row("rsqrt.approx.ftz.f64", "d, a", &[], |s| one(s, |_, a| truncated(1.0 / flushed(a).sqrt()))),
        row("sin.approx{.ftz}.f32", "d, a", &[], |s| approx(s, f64::sin)),
        row("cos.approx{.ftz}.f32", "d, a", &[], |s| approx(s, f64::cos)),
        row("lg2.approx{.ftz}.f32", "d, a", &[], |s| approx(s, f64::log2)),
        row("ex2.approx{.ftz}.f32", "d, a", &[], |s| approx(s, f64::exp2)),
        row("tanh.approx.f32", "d, a", &[], |s| approx(s, f64::tanh)),
        row("abs{.ftz}.f32", "d, a", &[], |s| one(s, |t, a| sign_op(t, a, |v, sign| v & !sign))),
        row("abs.f64", "d, a", &[], |s| one(s, |t, a| sign_op(t, a, |v, sign| v & !sign))),
        row("neg{.ftz}.f32", "d, a", &[], |s| one(s, |t, a| sign_op(t, a, |v, sign| v ^ sign))),
        row("neg.f64", "d, a", &[], |s| one(s, |t, a| sign_op(t, a, |v, sign| v ^ sign))),
        row("min{.ftz}{.NaN}{.xorsign.abs}.f32", "d, a, b", &[], |s| extremum(s, false)),
        row("max{.ftz}{.NaN}{.xorsign.abs}.f32", "d, a, b", &[], |s| extremum(s, true)),
        row("min{.ftz}{.NaN}{.abs}.f32", "d, a, b, c", &[], |s| extremum3(s, false)),
        row("max{.ftz}{.NaN}{.abs}.f32", "d, a, b, c", &[], |s| extremum3(s, true)),
        row("min.f64", "d, a, b", &[], |s| extremum(s, false)),
        row("max.f64", "d, a, b", &[], |s| extremum(s, true)),
        row("copysign.type", "d, a, b", &[F3264], |s| {
            two(s, |t, a, b| a & t.format.sign() | b & !t.format.sign() & mask(t.format.bits()))
        }),
        row(
            "testp.op.type",
            "p, a",
            &[("op", &["finite", "infinite", "number", "notanumber", "normal", "subnormal"]), F3264],
            testp,
        ),
    ],
};

pub(super) static HALF_FAMILY: Family = Family {
    title: "Floating-point arithmetic, half precision",
    section: "9.7.4",
    rows: &[
        row("add{.rn}{.ftz}{.sat}.type", "d, a, b", &[F16S], |s| two(s, Style::add)),
        row("add{.rn}.type", "d, a, b", &[BF16S], |s| two(s, Style::add)),
        row("sub{.rn}{.ftz}{.sat}.type", "d, a, b", &[F16S], |s| two(s, Style::sub)),
        row("sub{.rn}.type", "d, a, b", &[BF16S], |s| two(s, Style::sub)),
        row("mul{.rn}{.ftz}{.sat}.type", "d, a, b", &[F16S], |s| two(s, Style::mul)),
        row("mul{.rn}.type", "d, a, b", &[BF16S], |s| two(s, Style::mul)),
        row("fma.rn{.ftz}{.sat}.type", "d, a, b, c", &[F16S], |s| three(s, Style::fma)),
        row("fma.rn{.ftz}.relu.type", "d, a, b, c", &[F16S], |s| three(s, Style::fma)),
        row("fma.rn{.relu}.type", "d, a, b, c", &[BF16S], |s| three(s, Style::fma)),
        row("fma.rn.oob{.relu}.type", "d, a, b, c", &[HALF], |s| three(s, fma_oob)),
        row("neg.type", "d, a", &[BF16S], |s| one(s, |t, a| sign_op(t, a, |v, sign| v ^ sign))),
        row("neg{.ftz}.type", "d, a", &[F16S], |s| one(s, |t, a| sign_op(t, a, |v, sign| v ^ sign))),
        row("abs.type", "d, a", &[BF16S], |s| one(s, |t, a| sign_op(t, a, |v, sign| v & !sign))),
        row("abs{.ftz}.type", "d, a", &[F16S], |s| one(s, |t, a| sign_op(t, a, |v, sign| v & !sign))),
        row("min{.ftz}{.NaN}{.xorsign.abs}.type", "d, a, b", &[F16S], |s| extremum(s, false)),
        row("min{.NaN}{.xorsign.abs}.type", "d, a, b", &[BF16S], |s| extremum(s, false)),
        row("max{.ftz}{.NaN}{.xorsign.abs}.type", "d, a, b", &[F16S], |s| extremum(s, true)),
        row("max{.NaN}{.xorsign.abs}.type", "d, a, b", &[BF16S], |s| extremum(s, true)),
        row("tanh.approx.type", "d, a", &[HALF], |s| approx(s, f64::tanh)),
        row("ex2.approx.type", "d, a", &[F16S], |s| approx(s, f64::exp2)),
        row("ex2.approx.ftz.type", "d, a", &[BF16S], |s| approx(s, f64::exp2)),
    ],
};

/// Computes `fma`, with result 0 if a factor is the NaN of elements outside a tensor, of either
/// sign.
fn fma_oob(style: Style, a: u64, b: u64, c: u64) -> u64 {
    let outside = |v: u64| v & 0x7fff == OOB_NAN.into();
    if outside(a) || outside(b) { 0 } else { style.fma(a, b, c) }
}

/// The type of the instruction: `.type` or a literal one.
fn float_ty(s: &Site<'_, '_, '_>) -> Result<(Ty, Format), Issue> {
    let named = ["type", "f32", "f64", "f32x2"].into_iter().find(|n| s.has(n));
    let t = s.ty(named.unwrap_or("type"))?;
    match t.format() {
        Some(f) => Ok((t, f)),
        None => issue(codes::UNKNOWN_MODIFIER, "a floating-point type is needed", ""),
    }
}

fn style(s: &Site<'_, '_, '_>, format: Format) -> Style {
    Style {
        rounding: s.rounding(),
        ftz: s.has("ftz"),
        sat: s.has("sat"),
        relu: s.has("relu"),
        ..Style::new(format)
    }
}

fn one(s: &mut Site<'_, '_, '_>, f: impl Fn(Style, u64) -> u64 + Send + Sync + 'static) -> Result<Op, Issue> {
    let (t, format) = float_ty(s)?;
    let style = style(s, format);
    let (d, a) = (s.dst(0, t)?, s.src(1, t)?);
    Ok(if t.count == 1 {
        map1(d, a, move |a| f(style, a))
    } else {
        map1(d, a, move |a| each2(t.count, t.bits, a, 0, |a, _| f(style, a)))
    })
}

fn two(
    s: &mut Site<'_, '_, '_>,
    f: impl Fn(Style, u64, u64) -> u64 + Send + Sync + 'static,
) -> Result<Op, Issue> {
    let (t, format) = float_ty(s)?;
    let style = style(s, format);
    let (d, a, b) = (s.dst(0, t)?, s.src(1, t)?, s.src(2, t)?);
    Ok(if t.count == 1 {
        map2(d, a, b, move |a, b| f(style, a, b))
    } else {
        map2(d, a, b, move |a, b| each2(t.count, t.bits, a, b, |a, b| f(style, a, b)))
    })
}

fn three(
    s: &mut Site<'_, '_, '_>,
    f: impl Fn(Style, u64, u64, u64) -> u64 + Send + Sync + 'static,
) -> Result<Op, Issue> {
    let (t, format) = float_ty(s)?;
    let style = style(s, format);
    let (d, abc) = (s.dst(0, t)?, [s.src(1, t)?, s.src(2, t)?, s.src(3, t)?]);
    if t.count == 1 {
        return Ok(map3(d, abc, move |a, b, c| f(style, a, b, c)));
    }
    let m = mask(t.bits);
    Ok(map3(d, abc, move |a, b, c| {
        (0..t.count)
            .map(|i| i * t.bits)
            .fold(0, |d, at| d | f(style, a >> at & m, b >> at & m, c >> at & m) << at)
    }))
}

/// Builds a single-precision operation with half-precision operands: `a` and, in fma, `b`.
fn mixed(s: &mut Site<'_, '_, '_>, fma: bool, f: fn(Style, u64, u64, u64) -> u64) -> Result<Op, Issue> {
    let (t, half) = (s.ty("f32")?, s.ty("atype")?);
    let Some(narrow) = half.format() else {
        return issue(codes::UNKNOWN_MODIFIER, "a floating-point type is needed", "");
    };
    let style = style(s, F32);
    let (d, a) = (s.dst(0, t)?, s.src(1, half)?);
    let (b, c) = if fma { (s.src(2, half)?, s.src(3, t)?) } else { (a, s.src(2, t)?) };
    let widen = move |v: u64| F32.encode(narrow.decode(v), Rounding::Nearest, false);
    Ok(map3(d, [a, b, c], move |a, b, c| f(style, widen(a), widen(b), c)))
}

fn approx(s: &mut Site<'_, '_, '_>, f: fn(f64) -> f64) -> Result<Op, Issue> {
    one(s, move |t, a| t.approx(a, f))
}

/// The value 1.0 in this format.
fn unity(f: Format) -> u64 {
    f.integer(false, 1, Rounding::Nearest)
}

/// Applies `f`, which changes the sign. A NaN becomes canonical, except in double precision.
fn sign_op(t: Style, a: u64, f: fn(u64, u64) -> u64) -> u64 {
    let a = if t.ftz { t.format.flush(a) } else { a };
    match (t.format.is_nan(a), t.format == F64) {
        (true, true) => t.format.carry_nan(t.format, a, true),
        (true, false) => t.format.nan,
        _ => f(a, t.format.sign()),
    }
}

/// Flushes an operand of the double-precision `.approx.ftz` forms, which read only its upper 32
/// bits.
fn flushed(a: u64) -> f64 {
    f64::from_bits(F64.flush(a & !mask(32)))
}

/// Truncates the result of these forms to its upper 32 bits.
fn truncated(x: f64) -> u64 {
    if x.is_nan() { 0x7fff_ffff << 32 } else { F64.flush(x.to_bits() & !mask(32)) }
}

fn extremum(s: &mut Site<'_, '_, '_>, largest: bool) -> Result<Op, Issue> {
    let (nan, xorsign) = (s.has("NaN"), s.has("xorsign"));
    if xorsign != s.has("abs") {
        return issue(codes::UNKNOWN_MODIFIER, "`.xorsign` needs `.abs`, and `.abs` needs `.xorsign`", "");
    }
    two(s, move |t, a, b| {
        if !xorsign {
            return t.extremum(a, b, largest, nan);
        }
        let sign = t.format.sign();
        let r = t.extremum(a & !sign, b & !sign, largest, nan);
        if t.format.is_nan(r) { r } else { r & !sign | (a ^ b) & sign }
    })
}

fn extremum3(s: &mut Site<'_, '_, '_>, largest: bool) -> Result<Op, Issue> {
    let (nan, abs) = (s.has("NaN"), s.has("abs"));
    three(s, move |t, a, b, c| {
        let keep = if abs { !t.format.sign() } else { u64::MAX };
        t.extremum(t.extremum(a & keep, b & keep, largest, nan), c & keep, largest, nan)
    })
}

fn testp(s: &mut Site<'_, '_, '_>) -> Result<Op, Issue> {
    let (t, f) = float_ty(s)?;
    let (p, a) = (s.pred_dst(0)?, s.src(1, t)?);
    let test: fn(Format, u64) -> bool = match s.text("op") {
        "finite" => |f, v| !f.is_nan(v) && !f.is_inf(v),
        "infinite" => |f, v| f.is_inf(v),
        "number" => |f, v| !f.is_nan(v),
        "notanumber" => |f, v| f.is_nan(v),
        // Zero counts as normal.
        "normal" => |f, v| !f.is_nan(v) && !f.is_inf(v) && f.flush(v) == v,
        _ => |f, v| f.flush(v) != v,
    };
    debug_assert!(f == F32 || f == F64);
    Ok(custom(move |cx| {
        let a = *cx.src(a);
        let bits = lanes(cx.active).fold(0, |m, l| m | u32::from(test(f, a[l])) << l);
        cx.set_pred(p, bits);
        Ok(Flow::Next)
    }))
}
