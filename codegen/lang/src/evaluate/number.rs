//! Numbers with a bound on the difference to another program's result.

use std::fmt;
use weft_ir::{NumberKind, Scalar};

/// An exact integer, a real number or a truth value.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Number {
    /// An integer, wide enough for the elements of all integer types and for sums of them.
    Int(i128),
    /// A real number, computed in float64.
    Real(Real),
    /// A truth value, `true` or `false`.
    Bool(bool),
}

/// A real number in float64, with a bound on the effect of rounding elsewhere.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Real {
    /// The number as computed in float64.
    pub value: f64,
    /// The sum of the absolute values that were added to it.
    pub magnitude: f64,
    /// A bound on the difference to the result of a program that does the same operations with
    /// another unit roundoff and adds in another order. It is a running error analysis (Higham,
    /// Accuracy and Stability of Numerical Algorithms, 3.3 and 4.2).
    pub error: f64,
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Number::Int(n) => n.fmt(f),
            Number::Real(x) => x.value.fmt(f),
            Number::Bool(b) => b.fmt(f),
        }
    }
}

impl From<f64> for Real {
    /// Makes an exact number.
    fn from(value: f64) -> Real {
        Real { value, magnitude: value.abs(), error: 0.0 }
    }
}

/// The greatest relative error of rounding once to an element type, which is half a unit in the
/// last place. It is 0 for types that are not floats.
pub fn unit_roundoff(dtype: Scalar) -> f64 {
    let bits = match dtype {
        Scalar::F64 => 53,
        Scalar::F32 => 24,
        Scalar::F16 => 11,
        Scalar::BF16 => 8,
        Scalar::E4M3 => 4,
        Scalar::E5M2 => 3,
        _ => return 0.0,
    };
    0.5f64.powi(bits)
}

impl Real {
    /// The sum, rounded with this unit roundoff.
    pub(super) fn add(self, other: Real, unit: f64) -> Real {
        let magnitude = self.magnitude + other.magnitude;
        let error = self.error + other.error + unit * magnitude;
        Real { value: self.value + other.value, magnitude, error }
    }

    pub(super) fn negate(self) -> Real {
        Real { value: -self.value, ..self }
    }

    pub(super) fn multiply(self, other: Real, unit: f64) -> Real {
        let magnitude = self.magnitude * other.magnitude;
        let error = self.value.abs() * other.error
            + other.value.abs() * self.error
            + self.error * other.error
            + unit * magnitude;
        Real { value: self.value * other.value, magnitude, error }
    }

    pub(super) fn divide(self, other: Real, unit: f64) -> Real {
        let value = self.value / other.value;
        let least = other.value.abs() - other.error;
        let magnitude = self.magnitude / other.value.abs();
        let error = if least > 0.0 {
            (self.error + value.abs() * other.error) / least + unit * magnitude
        } else {
            f64::INFINITY
        };
        Real { value, magnitude, error }
    }

    pub(super) fn remainder(self, other: Real) -> Real {
        Real { error: self.error + other.error, ..Real::from(self.value % other.value) }
    }

    /// The lesser of the two numbers if `least` is set, and otherwise the greater one.
    pub(super) fn choose(self, other: Real, least: bool) -> Real {
        let first = if least { self.value <= other.value } else { self.value >= other.value };
        let chosen = if first || other.value.is_nan() { self } else { other };
        Real { error: self.error.max(other.error), ..chosen }
    }

    /// The number rounded to an element type.
    pub(super) fn rounded(self, dtype: Scalar) -> Real {
        Real { error: self.error + unit_roundoff(dtype) * self.value.abs(), ..self }
    }

    pub(super) fn apply(self, function: &Function, unit: f64) -> Real {
        let x = self.value;
        let value = (function.value)(x);
        let own = unit * (function.relative * value.abs() + function.absolute);
        let error = match function.slope {
            Slope::Of(slope) if self.error > 0.0 => {
                // The steepest of three points stands for the whole interval.
                let steepest = [x - self.error, x, x + self.error].map(|x| slope(x).abs());
                steepest.into_iter().filter(|s| !s.is_nan()).fold(0.0, f64::max) * self.error
            }
            Slope::Of(_) => 0.0,
            Slope::Steps => {
                let (low, high) = ((function.value)(x - self.error), (function.value)(x + self.error));
                (high - value).abs().max((value - low).abs())
            }
        };
        Real { error: error + own, ..Real::from(value) }
    }
}

/// The way in which a function passes on errors of its argument.
pub(super) enum Slope {
    /// It scales them by its derivative.
    Of(fn(f64) -> f64),
    /// It is a step function.
    Steps,
}

/// A function of one real number.
pub(super) struct Function {
    pub(super) name: &'static str,
    value: fn(f64) -> f64,
    slope: Slope,
    /// The possible error of PTX's instruction, or of the sequence for the language's function,
    /// relative to the result and absolute, in units of roundoff (PTX ISA, floating point
    /// instructions).
    relative: f64,
    absolute: f64,
}

const fn function(
    name: &'static str,
    value: fn(f64) -> f64,
    slope: Slope,
    [relative, absolute]: [f64; 2],
) -> Function {
    Function { name, value, slope, relative, absolute }
}

pub(super) const FUNCTIONS: [Function; 14] = [
    function("abs", f64::abs, Slope::Of(|_| 1.0), [0.0, 0.0]),
    function("sqrt", f64::sqrt, Slope::Of(|x| 0.5 / x.sqrt()), [1.0, 0.0]),
    function("rsqrt", |x| 1.0 / x.sqrt(), Slope::Of(|x| 0.5 / (x * x.sqrt())), [4.0, 0.0]),
    function("exp", f64::exp, Slope::Of(|x| x.exp() * (1.0 + x.abs())), [8.0, 0.0]),
    function("exp2", f64::exp2, Slope::Of(|x| x.exp2()), [8.0, 0.0]),
    function("log", f64::ln, Slope::Of(|x| 1.0 / x), [4.0, 8.0]),
    function("log2", f64::log2, Slope::Of(|x| std::f64::consts::LOG2_E / x), [4.0, 8.0]),
    function("tanh", f64::tanh, Slope::Of(|_| 1.0), [8192.0, 0.0]),
    function("sin", f64::sin, Slope::Of(|_| 1.0), [4.0, 32.0]),
    function("cos", f64::cos, Slope::Of(|_| 1.0), [4.0, 32.0]),
    function("floor", f64::floor, Slope::Steps, [0.0, 0.0]),
    function("ceil", f64::ceil, Slope::Steps, [0.0, 0.0]),
    function("round", f64::round_ties_even, Slope::Steps, [0.0, 0.0]),
    function("trunc", f64::trunc, Slope::Steps, [0.0, 0.0]),
];

impl Number {
    /// The number as a real number.
    pub fn real(self) -> Real {
        match self {
            Number::Int(n) => Real::from(n as f64),
            Number::Real(x) => x,
            Number::Bool(b) => Real::from(f64::from(u8::from(b))),
        }
    }

    /// Converts the number as `.to<T>()` does. The result is `None` if there is no number of that
    /// type, such as an integer for NaN.
    pub(super) fn to(self, dtype: Scalar) -> Option<Number> {
        Some(match (self, dtype.kind()) {
            (Number::Real(x), NumberKind::Float) => Number::Real(x.rounded(dtype)),
            (n, NumberKind::Float) => Number::Real(n.real().rounded(dtype)),
            (n, NumberKind::Bool) => Number::Bool(n.real().value != 0.0),
            (Number::Real(x), NumberKind::Signed | NumberKind::Unsigned) if !x.value.is_finite() => {
                return None;
            }
            (Number::Real(x), _) => Number::Int(x.value.trunc() as i128),
            (Number::Bool(b), _) => Number::Int(b.into()),
            (n, _) => n,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks that single precision in any order stays within the bound, and that the bound is at
    /// most a few hundred times too large.
    #[test]
    fn sums_and_norms_in_single_precision_are_within_the_bound() {
        let unit = unit_roundoff(Scalar::F32);
        for seed in 0..20u64 {
            let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
            let mut next = || {
                state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
                ((state >> 40) as f32) / 8_388_608.0 - 1.0
            };
            let xs: Vec<f32> = (0..1000).map(|_| next()).collect();
            let zero = Real::from(0.0);
            let sum = xs.iter().fold(zero, |sum, x| sum.add(f64::from(*x).into(), unit));
            let orders: [f32; 3] = [
                xs.iter().sum(),
                xs.iter().rev().sum(),
                xs.chunks(32).map(|chunk| chunk.iter().sum::<f32>()).sum(),
            ];
            for found in orders {
                let off = (f64::from(found) - sum.value).abs();
                assert!(off <= sum.error, "seed {seed}: {off} {}", sum.error);
            }
            assert!(sum.error < 1000.0 * unit * sum.magnitude);

            let square = |x: f32| Real::from(f64::from(x)).multiply(f64::from(x).into(), unit);
            let squares = xs.iter().fold(zero, |sum, x| sum.add(square(*x), unit));
            let mean = squares.divide(1000.0.into(), unit);
            let root = mean.apply(FUNCTIONS.iter().find(|f| f.name == "rsqrt").unwrap(), unit);
            let found = 1.0 / (xs.iter().map(|x| x * x).sum::<f32>() / 1000.0).sqrt();
            let off = (f64::from(found) - root.value).abs();
            assert!(off <= root.error && root.error < 1e-3 * root.value, "seed {seed}: {off} {}", root.error);
        }
    }

    #[test]
    fn a_divisor_that_may_be_zero_leaves_no_bound() {
        let small = Real { error: 0.5, ..Real::from(0.25) };
        assert_eq!(Real::from(1.0).divide(small, 0.0).error, f64::INFINITY);
        let step = Real { error: 0.3, ..Real::from(1.9) };
        assert_eq!(step.apply(FUNCTIONS.iter().find(|f| f.name == "floor").unwrap(), 0.0).error, 1.0);
    }
}
