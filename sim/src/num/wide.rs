//! Double-precision add, multiply, fma, divide and square root in the directed rounding modes, with
//! integers.
//!
//! The host computes round-to-nearest. The directed modes compute the exact significand (128 bits
//! and a sticky bit suffice) and round once.

use super::format::{F64, Rounding};

/// A finite nonzero double as `±m * 2^e` with `m` of 53 bits (its top bit set).
struct Parts {
    sign: bool,
    e: i32,
    m: u64,
}

fn parts(x: f64) -> Parts {
    let bits = x.to_bits();
    let (e, f) = ((bits >> 52 & 0x7ff) as i32, bits & ((1 << 52) - 1));
    let (e, m) = if e == 0 {
        let s = f.leading_zeros() - 11;
        (-1074 - s as i32, f << s)
    } else {
        (e - 1075, f | 1 << 52)
    };
    Parts { sign: bits >> 63 != 0, e, m }
}

/// Rounds `±m * 2^e`, `m` not zero.
fn round(sign: bool, e: i32, m: u128, sticky: bool, mode: Rounding) -> f64 {
    let zeros = m.leading_zeros();
    let m = m << zeros;
    let lost = m as u64 != 0;
    f64::from_bits(F64.pack(sign, e + 127 - zeros as i32, (m >> 64) as u64, sticky || lost, mode, false))
}

/// The sign of an exact zero sum of operands with different signs.
fn zero(mode: Rounding) -> f64 {
    if mode == Rounding::Down { -0.0 } else { 0.0 }
}

/// `a * b + c` rounded once.
pub(crate) fn fma(a: f64, b: f64, c: f64, mode: Rounding) -> f64 {
    if !(a.is_finite() && b.is_finite() && c.is_finite()) {
        return a.mul_add(b, c);
    }
    if a == 0.0 || b == 0.0 {
        let p = a * b;
        return match (c == 0.0, p.is_sign_negative() == c.is_sign_negative()) {
            (false, _) | (true, true) => c,
            (true, false) => zero(mode),
        };
    }
    let (a, b) = (parts(a), parts(b));
    let sign = a.sign != b.sign;
    // The product has 105 or 106 bits; 20 more leave room for guard bits and a carry.
    let (product, e) = ((u128::from(a.m) * u128::from(b.m)) << 20, a.e + b.e - 20);
    if c == 0.0 {
        return round(sign, e, product, false, mode);
    }
    let c = parts(c);
    // The addend with its top bit at bit 125, where the product's is (or one below).
    let (addend, ce) = (u128::from(c.m) << 73, c.e - 73);
    let (mut big, mut small) = ((sign, product, e), (c.sign, addend, ce));
    if ce > e {
        std::mem::swap(&mut big, &mut small);
    }
    let distance = (big.2 - small.2) as u32;
    let (shifted, lost) = match distance {
        0 => (small.1, false),
        1..=127 => (small.1 >> distance, small.1 << (128 - distance) != 0),
        _ => (0, true),
    };
    if big.0 == small.0 {
        return round(big.0, big.2, big.1 + shifted, lost, mode);
    }
    // A lost tail makes the difference a little smaller: borrow one and keep the sticky bit.
    let tail = u128::from(lost);
    match big.1.checked_sub(shifted + tail) {
        Some(0) if !lost => zero(mode),
        Some(m) => round(big.0, big.2, m, lost, mode),
        None => round(small.0, big.2, shifted - big.1, false, mode),
    }
}

/// `a + b` rounded once.
pub(crate) fn add(a: f64, b: f64, mode: Rounding) -> f64 {
    fma(a, 1.0, b, mode)
}

/// `a * b` rounded once.
pub(crate) fn mul(a: f64, b: f64, mode: Rounding) -> f64 {
    let c = if (a * b).is_sign_negative() { -0.0 } else { 0.0 };
    if a == 0.0 || b == 0.0 { a * b } else { fma(a, b, c, mode) }
}

/// `a / b` rounded once.
pub(crate) fn div(a: f64, b: f64, mode: Rounding) -> f64 {
    if !a.is_finite() || !b.is_finite() || a == 0.0 || b == 0.0 {
        return a / b;
    }
    let (a, b) = (parts(a), parts(b));
    let (n, d) = (u128::from(a.m) << 74, u128::from(b.m));
    round(a.sign != b.sign, a.e - b.e - 74, n / d, n % d != 0, mode)
}

/// `sqrt(a)` rounded once.
pub(crate) fn sqrt(a: f64, mode: Rounding) -> f64 {
    if !a.is_finite() || a <= 0.0 {
        return a.sqrt();
    }
    let a = parts(a);
    let shift = 72 + (a.e & 1) as u32;
    let m = u128::from(a.m) << shift;
    let r = m.isqrt();
    round(false, (a.e - shift as i32) / 2, r, r * r != m, mode)
}
