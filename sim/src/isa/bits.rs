//! Bit fields, counting, permutation, small dot products, extended precision.

use super::classes::{INT, WORD};
use super::lift::{custom, map1, map2, map3, map4};
use super::site::{Issue, Site};
use super::{Class, Family, row};
use crate::exec::{Flow, Op, Pred, PredSrc, Src};
use crate::model::lanes;
use crate::num::{mask, sext};
use crate::types::Ty;

const B3264: Class = ("type", &["b32", "b64"]);
const WORDS: Class = ("type", WORD);
const MODE: Class = ("mode", &["clamp", "wrap"]);
const S32U32: &[&str] = &["u32", "s32"];

pub(super) static FAMILY: Family = Family {
    title: "Bit fields, permutation, extended precision",
    section: "9.7.1, 9.7.2, 9.7.9.7",
    rows: &[
        row("popc.type", "d, a", &[B3264], |s| count(s, |_, a| a.count_ones())),
        row("clz.type", "d, a", &[B3264], |s| {
            count(s, |t, a| (a << (64 - t.bits)).leading_zeros().min(t.bits))
        }),
        row("brev.type", "d, a", &[B3264], |s| {
            let t = s.ty("type")?;
            let (d, a) = (s.dst(0, t)?, s.src(1, t)?);
            Ok(map1(d, a, move |a| a.reverse_bits() >> (64 - t.bits)))
        }),
        row("bfind{.shiftamt}.type", "d, a", &[WORDS], |s| {
            let shift = s.has("shiftamt");
            count(s, move |t, a| {
                let v = t.extend(a);
                let v = if t.signed() && v < 0 { !v } else { v } as u64;
                match 63_u32.checked_sub(v.leading_zeros()) {
                    None => u32::MAX,
                    Some(top) => {
                        if shift {
                            t.bits - 1 - top
                        } else {
                            top
                        }
                    }
                }
            })
        }),
        row("bfe.type", "d, a, b, c", &[WORDS], |s| {
            let t = s.ty("type")?;
            let (d, abc) = (s.dst(0, t)?, [s.src(1, t)?, s.src(2, Ty::B32)?, s.src(3, Ty::B32)?]);
            Ok(map3(d, abc, move |a, b, c| bfe(t, a, b, c)))
        }),
        row("bfi.type", "f, a, b, c, d", &[B3264], |s| {
            let t = s.ty("type")?;
            let f = s.dst(0, t)?;
            let v = [s.src(1, t)?, s.src(2, t)?, s.src(3, Ty::B32)?, s.src(4, Ty::B32)?];
            Ok(map4(f, v, move |[a, b, c, d]| {
                let (pos, len) = (c & 0xff, d & 0xff);
                let field =
                    if pos < u64::from(t.bits) { mask(len.min(64) as u32) << pos & mask(t.bits) } else { 0 };
                b & !field | a << pos.min(63) & field
            }))
        }),
        row("bmsk.mode.b32", "d, a, b", &[MODE], |s| {
            let clamp = s.get("mode") == Some("clamp");
            word2(s, move |a, b| {
                if clamp && a >= 32 {
                    return 0;
                }
                let width = if clamp { b.min(32) } else { b & 31 };
                mask(width as u32) << (a & 31)
            })
        }),
        row("szext.mode.type", "d, a, b", &[MODE, ("type", S32U32)], |s| {
            let (clamp, signed) = (s.get("mode") == Some("clamp"), s.get("type") == Some("s32"));
            word2(s, move |a, b| {
                if clamp && b >= 32 {
                    return a;
                }
                match (b & 31) as u32 {
                    0 => 0,
                    n if signed => sext(a, n) as u64,
                    n => a & mask(n),
                }
            })
        }),
        row("fns.b32", "d, mask, base, offset", &[], |s| {
            let t = Ty::B32;
            let (d, abc) = (s.dst(0, t)?, [s.src(1, t)?, s.src(2, t)?, s.src(3, t)?]);
            Ok(map3(d, abc, |m, base, offset| fns(m as u32, base as u32, offset as i32).into()))
        }),
        row(
            "prmt.b32{.mode}",
            "d, a, b, c",
            &[("mode", &["f4e", "b4e", "rc8", "ecl", "ecr", "rc16"])],
            |s| {
                let t = Ty::B32;
                let (d, abc) = (s.dst(0, t)?, [s.src(1, t)?, s.src(2, t)?, s.src(3, t)?]);
                let mode = s.text("mode");
                Ok(map3(d, abc, move |a, b, c| prmt(mode, a, b, c)))
            },
        ),
        row("sad.type", "d, a, b, c", &[("type", INT)], |s| {
            let t = s.ty("type")?;
            let (d, abc) = (s.dst(0, t)?, [s.src(1, t)?, s.src(2, t)?, s.src(3, t)?]);
            Ok(map3(d, abc, move |a, b, c| {
                let less = if t.signed() { t.extend(a) < t.extend(b) } else { a < b };
                let difference = if less { b.wrapping_sub(a) } else { a.wrapping_sub(b) };
                c.wrapping_add(difference) & mask(t.bits)
            }))
        }),
        row("mul24.mode.type", "d, a, b", &[("mode", &["hi", "lo"]), ("type", S32U32)], |s| {
            let (t, shift) = (s.ty("type")?, if s.get("mode") == Some("hi") { 16 } else { 0 });
            word2(s, move |a, b| (product24(t, a, b) >> shift) as u64)
        }),
        row("mad24.mode.type", "d, a, b, c", &[("mode", &["hi", "lo"]), ("type", S32U32)], |s| {
            let (t, shift) = (s.ty("type")?, if s.get("mode") == Some("hi") { 16 } else { 0 });
            let (d, abc) = (s.dst(0, t)?, [s.src(1, t)?, s.src(2, t)?, s.src(3, t)?]);
            Ok(map3(d, abc, move |a, b, c| ((product24(t, a, b) >> shift) as u64).wrapping_add(c) & mask(32)))
        }),
        row("dp4a.atype.btype", "d, a, b, c", &[("atype", S32U32), ("btype", S32U32)], |s| dot(s, 8, 0)),
        row(
            "dp2a.mode.atype.btype",
            "d, a, b, c",
            &[("mode", &["lo", "hi"]), ("atype", S32U32), ("btype", S32U32)],
            |s| {
                let high = if s.get("mode") == Some("hi") { 16 } else { 0 };
                dot(s, 16, high)
            },
        ),
        row("add.cc.type", "d, a, b", &[WORDS], |s| carry(s, false, true, |a, b, _| a + b)),
        row("addc{.cc}.type", "d, a, b", &[WORDS], |s| carry(s, true, s.has("cc"), |a, b, c| a + b + c)),
        row("sub.cc.type", "d, a, b", &[WORDS], |s| carry(s, false, true, |a, b, _| a.wrapping_sub(b))),
        row("subc{.cc}.type", "d, a, b", &[WORDS], |s| {
            carry(s, true, s.has("cc"), |a, b, c| a.wrapping_sub(b).wrapping_sub(c))
        }),
        row("mad.half.cc.type", "d, a, b, c", &[("half", &["lo", "hi"]), WORDS], |s| {
            mad_carry(s, false, true)
        }),
        row("madc.half{.cc}.type", "d, a, b, c", &[("half", &["lo", "hi"]), WORDS], |s| {
            mad_carry(s, true, s.has("cc"))
        }),
    ],
};

/// Builds an operation that gives a 32-bit count for an operand of `.type`.
fn count(s: &mut Site<'_, '_, '_>, f: impl Fn(Ty, u64) -> u32 + Send + Sync + 'static) -> Result<Op, Issue> {
    let t = s.ty("type")?;
    let (d, a) = (s.dst(0, Ty::B32)?, s.src(1, t)?);
    Ok(map1(d, a, move |a| f(t, a).into()))
}

fn word2(s: &mut Site<'_, '_, '_>, f: impl Fn(u64, u64) -> u64 + Send + Sync + 'static) -> Result<Op, Issue> {
    let t = Ty::B32;
    let (d, a, b) = (s.dst(0, t)?, s.src(1, t)?, s.src(2, t)?);
    Ok(map2(d, a, b, move |a, b| f(a, b) & mask(32)))
}

fn bfe(t: Ty, a: u64, b: u64, c: u64) -> u64 {
    let (pos, len) = ((b & 0xff) as u32, (c & 0xff) as u32);
    if len == 0 {
        return 0;
    }
    let top = (pos + len - 1).min(t.bits - 1);
    let sign = t.signed() && a >> top & 1 == 1;
    let field = if pos < t.bits { a >> pos & mask(len.min(t.bits - pos)) } else { 0 };
    // Above the existing bits, the sign is repeated.
    let have = if pos < t.bits { len.min(t.bits - pos) } else { 0 };
    if sign { (field | !mask(have)) & mask(t.bits) } else { field }
}

fn fns(m: u32, base: u32, offset: i32) -> u32 {
    let base = base & 31;
    if offset == 0 {
        return if m >> base & 1 == 1 { base } else { u32::MAX };
    }
    let step = i64::from(offset.signum());
    let mut left = i64::from(offset.unsigned_abs()) - 1;
    let mut pos = i64::from(base);
    while (0..32).contains(&pos) {
        if m >> pos & 1 == 1 {
            if left == 0 {
                return pos as u32;
            }
            left -= 1;
        }
        pos += step;
    }
    u32::MAX
}

fn prmt(mode: &str, a: u64, b: u64, c: u64) -> u64 {
    let bytes = b << 32 | a;
    let byte = |n: u64| bytes >> (8 * (n & 7)) & 0xff;
    let k = c & 3;
    let selectors: [u64; 4] = match mode {
        "f4e" => [k, k + 1, k + 2, k + 3],
        "b4e" => [k, k + 7, k + 6, k + 5],
        "rc8" => [k; 4],
        "ecl" => [k, k.max(1), k.max(2), 3],
        "ecr" => [0, k.min(1), k.min(2), k],
        "rc16" => [2 * (k & 1), 2 * (k & 1) + 1, 2 * (k & 1), 2 * (k & 1) + 1],
        _ => [c, c >> 4, c >> 8, c >> 12].map(|n| n & 0xf),
    };
    selectors.iter().enumerate().fold(0, |d, (i, &n)| {
        let v = byte(n);
        // Bit 3 of a selector replicates the byte's sign, but only in the default mode.
        let v = if mode.is_empty() && n & 8 != 0 { if v & 0x80 != 0 { 0xff } else { 0 } } else { v };
        d | v << (8 * i)
    })
}

fn product24(t: Ty, a: u64, b: u64) -> i64 {
    let low = |v: u64| if t.signed() { sext(v, 24) } else { (v & mask(24)) as i64 };
    low(a).wrapping_mul(low(b)) & mask(48) as i64
}

/// The sum of products of the fields of `a` (of `bits` bits) and the bytes of `b` from bit `start`.
fn dot(s: &mut Site<'_, '_, '_>, bits: u32, start: u32) -> Result<Op, Issue> {
    let (ta, tb) = (s.get("atype") == Some("s32"), s.get("btype") == Some("s32"));
    let t = Ty::B32;
    let (d, abc) = (s.dst(0, t)?, [s.src(1, t)?, s.src(2, t)?, s.src(3, t)?]);
    let field = |v: u64, at: u32, bits: u32, signed: bool| {
        let v = v >> at & mask(bits);
        if signed { sext(v, bits) } else { v as i64 }
    };
    Ok(map3(d, abc, move |a, b, c| {
        let terms = (0..32 / bits).map(|i| field(a, i * bits, bits, ta) * field(b, start + 8 * i, 8, tb));
        (terms.sum::<i64>() as u64).wrapping_add(c) & mask(32)
    }))
}

const CARRY: PredSrc = PredSrc { slot: Pred::CARRY, flip: 0 };

/// Computes `f(a, b, carry)` in 128 bits. The bit above the type is the carry (borrow) out.
fn carry(
    s: &mut Site<'_, '_, '_>,
    takes: bool,
    gives: bool,
    f: fn(u128, u128, u128) -> u128,
) -> Result<Op, Issue> {
    let t = s.ty("type")?;
    let (d, a, b) = (s.dst(0, t)?, s.src(1, t)?, s.src(2, t)?);
    Ok(with_carry(t, d, [a, b, b], takes, gives, move |a, b, _, c| f(a.into(), b.into(), c)))
}

fn mad_carry(s: &mut Site<'_, '_, '_>, takes: bool, gives: bool) -> Result<Op, Issue> {
    let t = s.ty("type")?;
    let high = s.get("half") == Some("hi");
    let (d, abc) = (s.dst(0, t)?, [s.src(1, t)?, s.src(2, t)?, s.src(3, t)?]);
    Ok(with_carry(t, d, abc, takes, gives, move |a, b, c, carry| {
        let p = if t.signed() {
            (i128::from(t.extend(a)) * i128::from(t.extend(b))) as u128
        } else {
            u128::from(a) * u128::from(b)
        };
        let part = if high { p >> t.bits } else { p } & u128::from(mask(t.bits));
        part + u128::from(c) + carry
    }))
}

fn with_carry(
    t: Ty,
    d: crate::exec::Reg,
    abc: [Src; 3],
    takes: bool,
    gives: bool,
    f: impl Fn(u64, u64, u64, u128) -> u128 + Send + Sync + 'static,
) -> Op {
    custom(move |cx| {
        let [a, b, c] = abc.map(|s| *cx.src(s));
        let carry_in = if takes { cx.pred(CARRY) } else { 0 };
        let mut out = 0;
        for l in lanes(cx.active) {
            let r = f(a[l], b[l], c[l], (carry_in >> l & 1).into());
            cx.reg(d)[l] = r as u64 & mask(t.bits);
            out |= ((r >> t.bits) as u32 & 1) << l;
        }
        if gives {
            cx.set_pred(Pred::CARRY, out);
        }
        Ok(Flow::Next)
    })
}
