//! Moves, packing and conversions.

use super::classes::SCALAR;
use super::lift::{custom, map1, map2};
use super::site::{Issue, Site, issue};
use super::{Class, Family, row};
use crate::codes;
use crate::exec::{Flow, Op, Src};
use crate::model::lanes;
use crate::num::{BF16, F16, F32, F64, Format, Rounding, TF32, mask, sext};
use crate::ptx::ast::Operand;
use crate::types::{Ty, TypeKind};

const NUMERIC: &[&str] = &["u8", "u16", "u32", "u64", "s8", "s16", "s32", "s64", "bf16", "f16", "f32", "f64"];
const ROUNDING: Class = ("rnd", &["rn", "rz", "rm", "rp", "rni", "rzi", "rmi", "rpi"]);
const RN_RZ: Class = ("rnd", &["rn", "rz"]);
const FP8X2: &[&str] = &["e4m3x2", "e5m2x2"];

pub(super) static FAMILY: Family = Family {
    title: "Moves and conversions",
    section: "9.7.9",
    rows: &[
        row("mov.pred", "p, q", &[], |s| {
            if s.is_named(1, "%is_explicit_cluster") {
                let p = s.pred_dst(0)?;
                return Ok(custom(move |cx| {
                    cx.set_pred(p, if cx.at.members.len() > 1 { u32::MAX } else { 0 });
                    Ok(Flow::Next)
                }));
            }
            let (p, q) = (s.pred_dst(0)?, s.pred_src(1)?);
            Ok(custom(move |cx| {
                let v = cx.pred(q);
                cx.set_pred(p, v);
                Ok(Flow::Next)
            }))
        }),
        row("mov.type", "d, a", &[("type", SCALAR)], mov),
        row(
            "cvt{.rnd}{.ftz}{.sat}.dtype.atype",
            "d, a",
            &[ROUNDING, ("dtype", NUMERIC), ("atype", NUMERIC)],
            cvt,
        ),
        row(
            "cvt.rnd{.relu}{.satfinite}.dtype.f32",
            "d, a",
            &[RN_RZ, ("dtype", &["f16", "bf16", "tf32"])],
            narrow,
        ),
        row("cvt.rnd{.satfinite}.tf32.f32", "d, a", &[("rnd", &["rna"])], narrow),
        row(
            "cvt.rnd{.relu}{.satfinite}.dtype.f32",
            "d, a, b",
            &[RN_RZ, ("dtype", &["f16x2", "bf16x2"])],
            narrow2,
        ),
        row("cvt.rn.satfinite{.relu}.dtype.f32", "d, a, b", &[("dtype", FP8X2)], narrow2),
        row("cvt.rn.satfinite{.relu}.dtype.f16x2", "d, a", &[("dtype", FP8X2)], |s| {
            let (t, relu) = (s.ty("dtype")?, s.has("relu"));
            let Some(f) = t.format() else {
                return issue(codes::UNKNOWN_MODIFIER, "a floating-point type is needed", "");
            };
            let (d, a) = (s.dst(0, t)?, s.src(1, Ty::B32)?);
            let one = move |v: u64| to_narrow(f, F16.decode(v & mask(16)), Rounding::Nearest, relu, true);
            Ok(map1(d, a, move |a| one(a >> 16) << 8 | one(a)))
        }),
        row("cvt.rn{.relu}.f16x2.atype", "d, a", &[("atype", FP8X2)], |s| {
            let (t, relu) = (s.ty("atype")?, s.has("relu"));
            let Some(f) = t.format() else {
                return issue(codes::UNKNOWN_MODIFIER, "a floating-point type is needed", "");
            };
            let (d, a) = (s.dst(0, Ty::B32)?, s.src(1, t)?);
            let one = move |v: u64| to_narrow(F16, f.decode(v & mask(8)), Rounding::Nearest, relu, false);
            Ok(map1(d, a, move |a| one(a >> 8) << 16 | one(a)))
        }),
        row("cvt.pack.sat.dtype.s32", "d, a, b", &[("dtype", &["u16", "s16"])], |s| {
            let t = s.ty("dtype")?;
            let (d, a, b) = (s.dst(0, Ty::B32)?, s.src(1, Ty::B32)?, s.src(2, Ty::B32)?);
            let one = move |v: u64| clamp_int(t, sext(v, 32).into()) & mask(16);
            Ok(map2(d, a, b, move |a, b| one(a) << 16 | one(b)))
        }),
    ],
};

fn mov(s: &mut Site<'_, '_, '_>) -> Result<Op, Issue> {
    let t = s.ty("type")?;
    let parts = |list: &[Operand<'_>]| match (t.kind, list.len()) {
        (TypeKind::Bits, n @ (2 | 4)) if t.bits as usize / n >= 8 => {
            Ok(Ty { kind: TypeKind::Bits, bits: t.bits / n as u32, count: 1 })
        }
        _ => issue(
            codes::BAD_OPERANDS,
            "use mov to pack or unpack 2 or 4 elements of a .b16, .b32 or .b64 value",
            "",
        ),
    };
    match s.operands {
        [Operand::Vector(list), _] => {
            let part = parts(list)?;
            let (dst, a) = (s.vector_dst(0, list.len(), part, false)?, s.src(1, t)?);
            Ok(custom(move |cx| {
                let a = *cx.src(a);
                for (i, (d, _)) in dst.iter().enumerate() {
                    for l in lanes(cx.active) {
                        cx.reg(*d)[l] = a[l] >> (i as u32 * part.bits) & mask(part.bits);
                    }
                }
                Ok(Flow::Next)
            }))
        }
        [_, Operand::Vector(list)] => {
            let part = parts(list)?;
            let (d, src) = (s.dst(0, t)?, s.vector_src(1, list.len(), part, false)?);
            Ok(custom(move |cx| {
                for l in lanes(cx.active) {
                    let join = |v, (i, a): (usize, &Src)| v | cx.src(*a)[l] << (i as u32 * part.bits);
                    let v = src.iter().enumerate().fold(0, join);
                    cx.reg(d)[l] = v;
                }
                Ok(Flow::Next)
            }))
        }
        _ => {
            let d = s.dst(0, t)?;
            if let Some(op) = s.computed(1, t, d)? {
                return Ok(op);
            }
            let a = s.src_named(1, t)?;
            let m = mask(t.bits);
            Ok(map1(d, a, move |a| a & m))
        }
    }
}

/// Clamps an integer to an integer type's range, and returns its bits.
fn clamp_int(t: Ty, v: i128) -> u64 {
    let (low, high) = if t.signed() {
        (-(1_i128 << (t.bits - 1)), (1 << (t.bits - 1)) - 1)
    } else {
        (0, (1 << t.bits) - 1)
    };
    v.clamp(low, high) as u64 & mask(t.bits)
}

/// Rounds to an integral value.
fn integral(x: f64, mode: Rounding) -> f64 {
    match mode {
        Rounding::Zero => x.trunc(),
        Rounding::Down => x.floor(),
        Rounding::Up => x.ceil(),
        _ => x.round_ties_even(),
    }
}

/// Converts a floating-point value to an integer: rounded and clamped, with NaN as the manual says.
fn float_to_int(x: f64, from: Format, t: Ty, mode: Rounding) -> u64 {
    if x.is_nan() {
        let wide = from.bits() == 64 || t.bits == 64;
        return if wide { 1 << (t.bits - 1) } else { 0 };
    }
    // `as` saturates, and i128 holds every 64-bit range.
    clamp_int(t, integral(x, mode) as i128)
}

fn cvt(s: &mut Site<'_, '_, '_>) -> Result<Op, Issue> {
    let (dt, at) = (s.ty("dtype")?, s.ty("atype")?);
    let (ftz, sat) = (s.has("ftz"), s.has("sat"));
    let rnd = s.get("rnd");
    let integer_rounding = rnd.is_some_and(|r| r.len() == 3);
    let (d, width) = s.dst_wide(0, dt.bits)?;
    let is_special = matches!(s.operands.get(1), Some(Operand::Name { name, .. }) if super::special_register(name).is_some());
    let a = if is_special { s.src_any(1, at)? } else { s.src_wide(1, at)? };
    need(ftz && at.format() != Some(F32) && dt.format() != Some(F32), ".ftz applies to .f32 only")?;
    let types = [dt, at];
    let narrow = types.iter().any(|t| t.format() == Some(BF16)) && types.iter().any(|t| t.bits == 8);
    need(narrow, "there is no conversion between .bf16 and 8-bit integers")?;
    let c = Conversion { dt, at, ftz, sat, mode: s.rounding(), integer_rounding, width };
    Ok(match (dt.format(), at.format()) {
        (None, None) => {
            need(rnd.is_some(), "an integer conversion cannot have a rounding modifier")?;
            need(sat && c.always_fits(), "`.sat` has no effect on a conversion whose result always fits")?;
            map1(d, a, move |v| c.integers(v))
        }
        (None, Some(f)) => {
            need(!integer_rounding, "a conversion from float to integer needs .rni, .rzi, .rmi or .rpi")?;
            map1(d, a, move |v| c.place(float_to_int(c.read(f, v), f, dt, c.mode)))
        }
        (Some(f), None) => {
            need(
                rnd.is_none() || integer_rounding,
                "a conversion from integer to float needs .rn, .rz, .rm or .rp",
            )?;
            map1(d, a, move |v| c.integer_to_float(f, v))
        }
        (Some(to), Some(f)) => {
            let narrows = to.man < f.man || to.exp < f.exp;
            need(narrows && rnd.is_none(), "this conversion needs a rounding modifier")?;
            need(integer_rounding && to != f, "rounding to an integral value must keep the type")?;
            let exact = rnd.is_some() && !integer_rounding && !narrows;
            need(exact, "this conversion is exact and cannot have a rounding modifier")?;
            map1(d, a, move |v| c.floats(f, to, v))
        }
    })
}

/// Returns an issue if `wrong` is true.
fn need(wrong: bool, what: &str) -> Result<(), Issue> {
    if wrong { issue(codes::UNKNOWN_MODIFIER, what, "") } else { Ok(()) }
}

/// The parts of a `cvt`.
#[derive(Clone, Copy)]
struct Conversion {
    dt: Ty,
    at: Ty,
    ftz: bool,
    sat: bool,
    mode: Rounding,
    integer_rounding: bool,
    /// The number of bits of the destination register.
    width: u32,
}

impl Conversion {
    /// Whether the destination type can represent every integer of the source type.
    fn always_fits(&self) -> bool {
        match (self.at.signed(), self.dt.signed()) {
            (false, false) | (true, true) => self.dt.bits >= self.at.bits,
            (false, true) => self.dt.bits > self.at.bits,
            (true, false) => false,
        }
    }

    /// Extends the result to a destination register that is wider than the type, by the type's
    /// signedness.
    fn place(&self, v: u64) -> u64 {
        if self.dt.signed() { sext(v, self.dt.bits) as u64 & mask(self.width) } else { v }
    }

    fn source(&self, v: u64) -> u64 {
        v & mask(self.at.bits)
    }

    fn read(&self, f: Format, v: u64) -> f64 {
        let v = self.source(v);
        f.decode(if self.ftz && f == F32 { f.flush(v) } else { v })
    }

    fn integers(&self, v: u64) -> u64 {
        let Conversion { dt, at, .. } = *self;
        if !self.sat {
            return self.place(at.extend(v) as u64 & mask(dt.bits));
        }
        let wide = if at.signed() { i128::from(at.extend(v)) } else { i128::from(self.source(v)) };
        self.place(clamp_int(dt, wide))
    }

    fn integer_to_float(&self, f: Format, v: u64) -> u64 {
        let x = self.at.extend(v);
        let (negative, magnitude) =
            if self.at.signed() { (x < 0, x.unsigned_abs()) } else { (false, self.source(v)) };
        saturate(f, f.integer(negative, magnitude, self.mode), self.sat)
    }

    fn floats(&self, f: Format, to: Format, v: u64) -> u64 {
        let carries = f == F64 || to == F64 || (f, to) == (BF16, F32);
        let x = self.read(f, v);
        if carries && !self.sat && x.is_nan() {
            // `.ftz` goes through a single-precision operation, which makes the NaN canonical.
            let v = if self.ftz && f == F32 { F32.nan } else { self.source(v) };
            return to.carry_nan(f, v, to == F64 || f == F64);
        }
        let x = if self.integer_rounding { integral(x, self.mode) } else { x };
        let r = to.encode(x, self.mode, false);
        let r = if self.ftz && to == F32 { to.flush(r) } else { r };
        saturate(to, r, self.sat)
    }
}

/// Applies `.sat`: clamps to [0, 1], and maps NaN to 0.
fn saturate(f: Format, v: u64, sat: bool) -> u64 {
    if !sat {
        return v;
    }
    let x = f.decode(v);
    if x > 0.0 { if x < 1.0 { v } else { f.integer(false, 1, Rounding::Nearest) } } else { 0 }
}

/// Rounds into a narrow format with `.relu` and `.satfinite`.
fn to_narrow(f: Format, x: f64, mode: Rounding, relu: bool, finite: bool) -> u64 {
    let x = if relu && x.is_sign_negative() && !x.is_nan() { 0.0 } else { x };
    f.encode(x, mode, finite)
}

/// The bits of a narrow value in its register: tf32 is in the upper bits of a 32-bit register.
fn placed(f: Format, v: u64) -> u64 {
    if f == TF32 { v << 13 } else { v }
}

fn narrow(s: &mut Site<'_, '_, '_>) -> Result<Op, Issue> {
    let t = s.ty(if s.has("dtype") { "dtype" } else { "tf32" })?;
    let Some(f) = t.format() else {
        return issue(codes::UNKNOWN_MODIFIER, "a floating-point type is needed", "");
    };
    let (mode, relu, finite) = (s.rounding(), s.has("relu"), s.has("satfinite"));
    let (d, a) = (s.dst(0, t)?, s.src(1, Ty::F32)?);
    if mode == Rounding::NearestAway {
        // This form drops the NaN's low bits, while all others make the NaN canonical. If
        // saturated, it removes one more bit.
        return Ok(map1(d, a, move |v| {
            let r = if F32.is_nan(v) {
                TF32.carry_nan(F32, v, false) - u64::from(finite)
            } else {
                to_narrow(f, F32.decode(v), mode, relu, finite)
            };
            placed(f, r)
        }));
    }
    Ok(map1(d, a, move |v| placed(f, to_narrow(f, F32.decode(v), mode, relu, finite))))
}

/// Builds a conversion of two single-precision values to a packed pair, with the first in the upper
/// half.
fn narrow2(s: &mut Site<'_, '_, '_>) -> Result<Op, Issue> {
    let t = s.ty("dtype")?;
    let Some(f) = t.format() else {
        return issue(codes::UNKNOWN_MODIFIER, "a floating-point type is needed", "");
    };
    let (mode, relu, finite) = (s.rounding(), s.has("relu"), s.has("satfinite"));
    let (d, a, b) = (s.dst(0, t)?, s.src(1, Ty::F32)?, s.src(2, Ty::F32)?);
    let one = move |v: u64| to_narrow(f, F32.decode(v), mode, relu, finite);
    Ok(map2(d, a, b, move |a, b| one(a) << t.bits | one(b)))
}
