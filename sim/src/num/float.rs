//! Floating-point operations on raw bits of any format up to 32 bits, and on doubles.
//!
//! Operations up to single precision are computed exactly in double precision, or are rounded there
//! to odd. In this way a result whose last bit says "inexact" survives the second rounding into the
//! narrow format (53 >= 2 * 24 + 2). So every result is rounded once, in every mode.

use super::format::{F32, F64, Format, Rounding};
use super::wide;

/// Moves an inexact nearest result to the odd neighbour on the side of `error` (exact value minus `x`).
#[inline]
fn odd(x: f64, error: f64) -> f64 {
    let bits = x.to_bits();
    if error == 0.0 || bits & 1 == 1 || !x.is_finite() {
        return x;
    }
    if x == 0.0 {
        return f64::from_bits(1 | error.to_bits() & 1 << 63);
    }
    let outward = (error > 0.0) == (x > 0.0);
    f64::from_bits(if outward { bits + 1 } else { bits - 1 })
}

#[inline]
fn add_odd(a: f64, b: f64) -> f64 {
    let s = a + b;
    let bb = s - a;
    odd(s, (a - (s - bb)) + (b - bb))
}

/// The options of a floating-point instruction for its operands and result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Style {
    pub format: Format,
    pub rounding: Rounding,
    /// Whether subnormal inputs and results become zero.
    pub ftz: bool,
    /// Whether to clamp to [0, 1] and map NaN to 0.
    pub sat: bool,
    /// Whether to clamp negative values to 0; a NaN becomes the canonical NaN.
    pub relu: bool,
}

impl Style {
    pub(crate) const fn new(format: Format) -> Self {
        Style { format, rounding: Rounding::Nearest, ftz: false, sat: false, relu: false }
    }

    #[inline]
    fn read(self, v: u64) -> f64 {
        self.format.decode(if self.ftz { self.format.flush(v) } else { v })
    }

    /// Rounds and applies the result modifiers.
    #[inline]
    fn write(self, x: f64) -> u64 {
        // Whether a result is subnormal is decided before it is rounded.
        if self.ftz && x.abs() < self.format.min_normal() {
            return self.finish(if x.is_sign_negative() { self.format.sign() } else { 0 });
        }
        self.finish(self.format.encode(x, self.rounding, false))
    }

    /// Applies the result modifiers to bits already in the format.
    #[inline]
    pub(crate) fn finish(self, mut v: u64) -> u64 {
        let f = self.format;
        if self.ftz {
            v = f.flush(v);
        }
        if self.sat {
            let x = f.decode(v);
            v = if x.is_nan() || x <= 0.0 {
                0
            } else if x >= 1.0 {
                f.encode(1.0, Rounding::Nearest, false)
            } else {
                v
            };
        }
        if self.relu && !f.is_nan(v) && v & f.sign() != 0 {
            v = 0;
        }
        v
    }

    /// Whether the operation is plain single precision rounded to nearest, which the host's own
    /// arithmetic computes.
    #[inline]
    fn plain_f32(self) -> bool {
        self.format == F32 && self.rounding == Rounding::Nearest && !self.ftz
    }

    #[inline]
    fn f32_result(self, x: f32) -> u64 {
        let v = if x.is_nan() { F32.nan } else { u64::from(x.to_bits()) };
        if self.sat { self.finish(v) } else { v }
    }

    /// Returns a double-precision result. If it is NaN, this is the last operand that is a NaN,
    /// made quiet, or else the NaN of the hardware for invalid operations.
    #[inline]
    fn f64_result(x: f64, operands: [u64; 3]) -> u64 {
        if !x.is_nan() {
            return x.to_bits();
        }
        match operands.iter().rev().find(|v| F64.is_nan(**v)) {
            Some(v) => F64.carry_nan(F64, *v, true),
            None => 0xfff8_0000_0000_0000,
        }
    }

    #[inline]
    pub(crate) fn add(self, a: u64, b: u64) -> u64 {
        if self.plain_f32() {
            return self.f32_result(f32::from_bits(a as u32) + f32::from_bits(b as u32));
        }
        if self.format == F64 {
            let (x, y) = (f64::from_bits(a), f64::from_bits(b));
            return Self::f64_result(
                if self.nearest() { x + y } else { wide::add(x, y, self.rounding) },
                [0, a, b],
            );
        }
        let (a, b) = (self.read(a), self.read(b));
        self.write(self.exact_sum(a, b))
    }

    #[inline]
    pub(crate) fn sub(self, a: u64, b: u64) -> u64 {
        let nan = self.format.is_nan(b);
        self.add(a, if nan { b } else { b ^ self.format.sign() })
    }

    #[inline]
    pub(crate) fn mul(self, a: u64, b: u64) -> u64 {
        if self.plain_f32() {
            return self.f32_result(f32::from_bits(a as u32) * f32::from_bits(b as u32));
        }
        if self.format == F64 {
            let (x, y) = (f64::from_bits(a), f64::from_bits(b));
            return Self::f64_result(
                if self.nearest() { x * y } else { wide::mul(x, y, self.rounding) },
                [0, a, b],
            );
        }
        self.write(self.read(a) * self.read(b))
    }

    #[inline]
    pub(crate) fn fma(self, a: u64, b: u64, c: u64) -> u64 {
        if self.plain_f32() {
            return self.f32_result(
                f32::from_bits(a as u32).mul_add(f32::from_bits(b as u32), f32::from_bits(c as u32)),
            );
        }
        if self.format == F64 {
            let (x, y, z) = (f64::from_bits(a), f64::from_bits(b), f64::from_bits(c));
            let r = if self.nearest() { x.mul_add(y, z) } else { wide::fma(x, y, z, self.rounding) };
            return Self::f64_result(r, [a, c, b]);
        }
        let (p, c) = (self.read(a) * self.read(b), self.read(c));
        self.write(self.exact_sum(p, c))
    }

    /// The sum rounded to odd, with the sign of an exact zero that the rounding mode requires.
    #[inline]
    fn exact_sum(self, a: f64, b: f64) -> f64 {
        if self.rounding == Rounding::Down
            && a == -b
            && a.is_finite()
            && (a != 0.0 || a.is_sign_negative() != b.is_sign_negative())
        {
            return -0.0;
        }
        add_odd(a, b)
    }

    #[inline]
    fn nearest(self) -> bool {
        self.rounding == Rounding::Nearest
    }

    #[inline]
    pub(crate) fn div(self, a: u64, b: u64) -> u64 {
        if self.plain_f32() {
            return self.f32_result(f32::from_bits(a as u32) / f32::from_bits(b as u32));
        }
        if self.format == F64 {
            let (x, y) = (f64::from_bits(a), f64::from_bits(b));
            // Division is a program on the GPU, which prefers the other NaN.
            return Self::f64_result(
                if self.nearest() { x / y } else { wide::div(x, y, self.rounding) },
                [0, b, a],
            );
        }
        let (a, b) = (self.read(a), self.read(b));
        let q = a / b;
        let exact = !q.is_finite() || b.is_infinite();
        let rest = if exact { 0.0 } else { (-q).mul_add(b, a) };
        self.write(odd(q, if b < 0.0 { -rest } else { rest }))
    }

    #[inline]
    pub(crate) fn sqrt(self, a: u64) -> u64 {
        if self.plain_f32() {
            return self.f32_result(f32::from_bits(a as u32).sqrt());
        }
        if self.format == F64 {
            let x = f64::from_bits(a);
            return Self::f64_result(
                if self.nearest() { x.sqrt() } else { wide::sqrt(x, self.rounding) },
                [0, 0, a],
            );
        }
        let a = self.read(a);
        let s = a.sqrt();
        self.write(odd(s, if s.is_finite() { (-s).mul_add(s, a) } else { 0.0 }))
    }

    /// Computes an approximate function: evaluated in double precision and rounded to nearest, well
    /// inside the error bounds of the manual.
    #[inline]
    pub(crate) fn approx(self, a: u64, f: impl Fn(f64) -> f64) -> u64 {
        self.write(f(self.read(a)))
    }

    /// The smaller (`-1`) or larger (`1`) operand. A NaN loses against a number unless `nan` is set; `-0 < +0`.
    #[inline]
    pub(crate) fn extremum(self, a: u64, b: u64, largest: bool, nan: bool) -> u64 {
        let f = self.format;
        let (a, b) = if self.ftz { (f.flush(a), f.flush(b)) } else { (a, b) };
        let picked = match (f.is_nan(a), f.is_nan(b)) {
            (true, true) if f == F64 => F64.carry_nan(F64, b, true),
            (true, true) => f.nan,
            (true, false) => {
                if nan {
                    f.nan
                } else {
                    b
                }
            }
            (false, true) => {
                if nan {
                    f.nan
                } else {
                    a
                }
            }
            (false, false) => {
                if (order_key(f, a) < order_key(f, b)) == largest {
                    b
                } else {
                    a
                }
            }
        };
        self.finish(picked)
    }
}

/// A key that orders non-NaN bits as their values, with `-0 < +0`.
#[inline]
fn order_key(f: Format, v: u64) -> i64 {
    let m = (v & (f.sign() - 1)) as i64;
    if v & f.sign() != 0 { !m } else { m }
}

/// Applies `op` to each of `count` fields of `bits` bits.
#[inline]
pub(crate) fn each2(count: u32, bits: u32, a: u64, b: u64, op: impl Fn(u64, u64) -> u64) -> u64 {
    let m = super::mask(bits);
    (0..count).fold(0, |d, i| d | op(a >> (i * bits) & m, b >> (i * bits) & m) << (i * bits))
}
