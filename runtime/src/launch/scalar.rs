//! Numbers that are passed to a kernel.

use crate::DType;
use float8::{F8E4M3, F8E5M2};
use half::{bf16, f16};
use std::fmt;

/// A number that is given for a scalar parameter.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Number {
    /// A truth value, `true` or `false`.
    Bool(bool),
    /// An integer of any type.
    Int(i128),
    /// A floating-point number of any type.
    Float(f64),
}

impl Number {
    /// Returns its bytes as a `dtype`, rounded to nearest if the type has fewer digits. Truth
    /// values, integers and floating-point numbers are not converted into each other.
    ///
    /// # Errors
    /// Says why the number cannot have that type.
    pub fn encode(self, dtype: DType) -> Result<Vec<u8>, String> {
        let encoded = match self {
            Number::Bool(b) => (dtype == DType::Bool).then(|| (vec![u8::from(b)], true)),
            Number::Int(n) => integer(n, dtype),
            Number::Float(x) => float(x, dtype),
        };
        match encoded {
            Some((bytes, true)) => Ok(bytes),
            Some((_, false)) => Err(format!("{self} does not fit into {dtype}")),
            None => Err(format!("{self} is {}", self.kind())),
        }
    }

    fn kind(self) -> &'static str {
        match self {
            Number::Bool(_) => "a truth value",
            Number::Int(_) => "an integer",
            Number::Float(_) => "a floating-point number",
        }
    }
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Number::Bool(b) => write!(f, "{b}"),
            Number::Int(n) => write!(f, "{n}"),
            Number::Float(x) => write!(f, "{x:?}"),
        }
    }
}

/// Returns the bytes, and whether the value fits; none if the type is not an integer type.
fn integer(n: i128, dtype: DType) -> Option<(Vec<u8>, bool)> {
    use DType::{I8, I16, I32, I64, U8, U16, U32, U64};
    let bits = dtype.bits();
    let fits = match dtype {
        I8 | I16 | I32 | I64 => n >> (bits - 1) == 0 || n >> (bits - 1) == -1,
        U8 | U16 | U32 | U64 => n >> bits == 0,
        _ => return None,
    };
    Some((n.to_le_bytes()[..dtype.bytes() as usize].to_vec(), fits))
}

/// Returns the bytes, and whether the value is still finite; none if the type is not a
/// floating-point type.
fn float(x: f64, dtype: DType) -> Option<(Vec<u8>, bool)> {
    let (bytes, back) = match dtype {
        DType::F16 => (f16::from_f64(x).to_le_bytes().to_vec(), f16::from_f64(x).to_f64()),
        DType::BF16 => (bf16::from_f64(x).to_le_bytes().to_vec(), bf16::from_f64(x).to_f64()),
        DType::F32 => ((x as f32).to_le_bytes().to_vec(), f64::from(x as f32)),
        DType::F64 => (x.to_le_bytes().to_vec(), x),
        // These types saturate instead of overflowing.
        DType::E4M3 => (vec![F8E4M3::from_f64(x).to_bits()], if x.abs() > 464.0 { f64::INFINITY } else { x }),
        DType::E5M2 => {
            (vec![F8E5M2::from_f64(x).to_bits()], if x.abs() > 61440.0 { f64::INFINITY } else { x })
        }
        _ => return None,
    };
    Some((bytes, back.is_finite() || !x.is_finite()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_fit_or_are_refused() {
        for (n, dtype, want) in [
            (-128, DType::I8, Some(vec![0x80])),
            (-129, DType::I8, None),
            (255, DType::U8, Some(vec![0xff])),
            (256, DType::U8, None),
            (-1, DType::U64, None),
            (i128::from(u64::MAX), DType::U64, Some(vec![0xff; 8])),
            (i128::from(i64::MIN), DType::I64, Some(vec![0, 0, 0, 0, 0, 0, 0, 0x80])),
            (1 << 63, DType::I64, None),
        ] {
            assert_eq!(Number::Int(n).encode(dtype).ok(), want, "{n} as {dtype}");
        }
    }

    #[test]
    fn fractions_round_and_do_not_become_infinite() {
        assert_eq!(Number::Float(1.0).encode(DType::BF16).unwrap(), [0x80, 0x3f]);
        assert_eq!(Number::Float(1e-6).encode(DType::F32).unwrap(), 1e-6f32.to_le_bytes());
        assert_eq!(Number::Float(448.0).encode(DType::E4M3).unwrap(), [0x7e]);
        for (x, dtype) in
            [(1e39, DType::F32), (70000.0, DType::F16), (500.0, DType::E4M3), (65536.0, DType::E5M2)]
        {
            let e = Number::Float(x).encode(dtype).unwrap_err();
            assert!(e.contains("does not fit"), "{e}");
        }
        assert!(Number::Float(f64::INFINITY).encode(DType::F32).is_ok());
    }

    #[test]
    fn kinds_of_numbers_do_not_mix() {
        assert!(Number::Int(1).encode(DType::F32).is_err());
        assert!(Number::Float(1.0).encode(DType::I32).is_err());
        assert!(Number::Int(1).encode(DType::Bool).is_err());
        assert!(Number::Bool(true).encode(DType::I32).is_err());
    }
}
