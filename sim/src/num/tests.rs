//! Properties of the arithmetic, against the host's own where it has the operation.

use super::float::Style;
use super::{BF16, E4M3, E5M2, F16, F32, F64, Format, Rounding, TF32, wide};
use proptest::prelude::*;

const MODES: [Rounding; 4] = [Rounding::Nearest, Rounding::Zero, Rounding::Down, Rounding::Up];
const NARROW: [Format; 6] = [F16, BF16, F32, TF32, E4M3, E5M2];

/// Doubles of all kinds: any bits, small integers, neighbours of powers of two.
fn double() -> impl Strategy<Value = f64> {
    prop_oneof![
        any::<u64>().prop_map(f64::from_bits),
        (-1000_i32..1000).prop_map(f64::from),
        (any::<bool>(), -1074_i32..1023, 0_u64..4).prop_map(|(s, e, d)| {
            let x = f64::from_bits((2_f64.powi(e).to_bits() + d).saturating_sub(1));
            if s { -x } else { x }
        }),
    ]
}

fn single() -> impl Strategy<Value = f32> {
    prop_oneof![
        any::<u32>().prop_map(f32::from_bits),
        (-100_i16..100).prop_map(f32::from),
        (any::<bool>(), -149_i32..127, 0_u32..4).prop_map(|(s, e, d)| {
            let x = f32::from_bits(((2_f64.powi(e) as f32).to_bits() + d).saturating_sub(1));
            if s { -x } else { x }
        }),
    ]
}

/// Equal bits, any NaN being equal to any other.
fn same(a: f64, b: f64) -> bool {
    a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan()
}

/// What the four modes must give if `exact` is the sign of (exact result - nearest result).
fn ordered(of: impl Fn(Rounding) -> f64) -> Result<(), TestCaseError> {
    let [n, z, d, u] = MODES.map(of);
    if n.is_nan() {
        prop_assert!(z.is_nan() && d.is_nan() && u.is_nan());
        return Ok(());
    }
    prop_assert!(d <= n && n <= u, "{d:e} {n:e} {u:e}");
    prop_assert!(n == d || n == u);
    prop_assert_eq!(z, if n > 0.0 || u > 0.0 { d } else { u });
    Ok(())
}

proptest! {
    #[test]
    fn wide_nearest_is_the_hosts(a in double(), b in double(), c in double()) {
        let n = Rounding::Nearest;
        prop_assert!(same(wide::fma(a, b, c, n), a.mul_add(b, c)), "fma {a:e} {b:e} {c:e}");
        prop_assert!(same(wide::add(a, b, n), a + b), "{a:e} + {b:e}");
        prop_assert!(same(wide::mul(a, b, n), a * b), "{a:e} * {b:e}");
        prop_assert!(same(wide::div(a, b, n), a / b), "{a:e} / {b:e}");
        prop_assert!(same(wide::sqrt(a, n), a.sqrt()), "sqrt {a:e}");
    }

    #[test]
    fn wide_modes_enclose_the_result(a in double(), b in double(), c in double()) {
        ordered(|m| wide::fma(a, b, c, m))?;
        ordered(|m| wide::add(a, b, m))?;
        ordered(|m| wide::mul(a, b, m))?;
        ordered(|m| wide::div(a, b, m))?;
        ordered(|m| wide::sqrt(a, m))?;
    }

    /// Single precision by way of doubles rounded to odd agrees with the host, and its modes are ordered.
    #[test]
    fn narrow_path_is_the_hosts(a in single(), b in single(), c in single()) {
        let (x, y, z) = (u64::from(a.to_bits()), u64::from(b.to_bits()), u64::from(c.to_bits()));
        // `.NearestAway` differs from `.Nearest` only in ties, which it resolves outward; use it to reach the path.
        let host = Style::new(F32);
        let of = |m: Rounding, f: &dyn Fn(Style) -> u64| f64::from(f32::from_bits(f(Style { rounding: m, ..host }) as u32));
        for f in [
            &(|s: Style| s.add(x, y)) as &dyn Fn(Style) -> u64,
            &|s: Style| s.mul(x, y),
            &|s: Style| s.fma(x, y, z),
            &|s: Style| s.div(x, y),
            &|s: Style| s.sqrt(x),
        ] {
            ordered(|m| of(m, f))?;
        }
    }

    /// A value of a format decodes and encodes to itself; encoding is the nearest of its neighbours.
    #[test]
    fn formats_round_trip(bits in any::<u32>(), x in double()) {
        for f in NARROW {
            let v = u64::from(bits) & super::mask(f.bits());
            let d = f.decode(v);
            for m in MODES {
                prop_assert_eq!(f.encode(d, m, false), if f.is_nan(v) { f.nan } else { v });
            }
            ordered(|m| f.decode(f.encode(x, m, true)))?;
            if x.is_finite() {
                let [down, up] = [Rounding::Down, Rounding::Up].map(|m| f.decode(f.encode(x, m, true)));
                let largest = f.decode(f.encode(f64::MAX, Rounding::Zero, false));
                prop_assert!(down <= x.max(-largest) && x.min(largest) <= up, "{down:e} {x:e} {up:e}");
            }
        }
        // The host converts to single precision too.
        prop_assert!(same(F32.decode(F32.encode(x, Rounding::Nearest, false)), f64::from(x as f32)));
    }

    #[test]
    fn integers_to_floats(v in any::<i64>(), shift in 0_u32..63) {
        let v = v >> shift;
        let of = |f: Format, m| f.integer(v < 0, v.unsigned_abs(), m);
        prop_assert_eq!(f64::from_bits(of(F64, Rounding::Nearest)), v as f64);
        prop_assert_eq!(f32::from_bits(of(F32, Rounding::Nearest) as u32), v as f32);
        for f in NARROW.into_iter().filter(|f| f.inf) {
            ordered(|m| f.decode(of(f, m)))?;
        }
    }

    #[test]
    fn sign_extension(v in any::<u64>(), bits in 1_u32..=64) {
        let s = super::sext(v, bits);
        prop_assert_eq!(s as u64 & super::mask(bits), v & super::mask(bits));
        prop_assert!(bits == 64 || (-(1_i128 << (bits - 1))..1 << (bits - 1)).contains(&i128::from(s)));
    }
}

#[test]
fn known_values() {
    let e = |f: Format, x: f64| f.encode(x, Rounding::Nearest, false);
    assert_eq!(e(F16, 1.0), 0x3c00);
    assert_eq!(e(F16, 65504.0), 0x7bff);
    assert_eq!(e(F16, 65519.9), 0x7bff);
    assert_eq!(e(F16, 65520.0), 0x7c00);
    assert_eq!(e(F16, 2_f64.powi(-24)), 1);
    assert_eq!(e(F16, 2_f64.powi(-25)), 0);
    assert_eq!(e(F16, 2_f64.powi(-25) * 1.0001), 1);
    assert_eq!(e(BF16, 3.0), 0x4040);
    assert_eq!(e(E4M3, 448.0), 0x7e);
    assert_eq!(e(E4M3, 464.0), 0x7e);
    assert_eq!(e(E4M3, 465.0), 0x7f);
    assert_eq!(E4M3.encode(1e9, Rounding::Nearest, true), 0x7e);
    assert_eq!(E4M3.encode(f64::NEG_INFINITY, Rounding::Nearest, true), 0xfe);
    assert_eq!(e(E5M2, 57344.0), 0x7b);
    assert_eq!(e(E5M2, 61440.0), 0x7c);
    // fma in half precision with a product that rounds up if it is rounded before the addition.
    let s = Style::new(F16);
    let (a, b, c) =
        (e(F16, 1.0 + 2_f64.powi(-10)), e(F16, 1.0 + 2_f64.powi(-10)), e(F16, -1.0 - 2_f64.powi(-9)));
    assert_eq!(F16.decode(s.fma(a, b, c)), 2_f64.powi(-20));
    assert!(F16.is_nan(s.extremum(F16.nan, F16.nan, true, false)));
    assert_eq!(s.extremum(0x8000, 0, true, false), 0);
    assert_eq!(s.extremum(0, 0x8000, false, false), 0x8000);
}
