//! Element types, and the Rust types that have the same bytes.

use half::{bf16, f16};
use serde::{Deserialize, Serialize};

/// The kind of number that a [`Scalar`] is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NumberKind {
    /// A truth value (`bool`).
    Bool,
    /// A signed integer in two's complement.
    Signed,
    /// An unsigned integer of any width.
    Unsigned,
    /// A floating-point number of any precision.
    Float,
}

/// One row for each element type: its word, its kind, its width in memory in bits, its name in
/// NVSHMEM's typed functions if they have it, and the Rust type with the same bytes if there is
/// one.
macro_rules! scalars {
    ($($(#[$doc:meta])* $variant:ident = $word:literal: $kind:ident, $bits:literal, $nvshmem:expr $(, $rust:ty)?;)*) => {
        crate::words! {
            /// Element types, named as kernel texts name them.
            #[derive(Serialize, Deserialize)]
            #[serde(rename_all = "lowercase")]
            Scalar { $($(#[$doc])* $variant = $word),* }
        }

        impl Scalar {
            /// The kind of number that it is.
            pub fn kind(self) -> NumberKind {
                match self { $(Scalar::$variant => NumberKind::$kind),* }
            }

            /// The width in memory, in bits. A `bool` has 8.
            pub fn bits(self) -> u32 {
                match self { $(Scalar::$variant => $bits),* }
            }

            /// The TYPENAME of NVSHMEM's typed functions (NVSHMEM API, Table "Standard RMA Types").
            /// NVSHMEM moves elements of the other types only as bytes.
            pub fn nvshmem_name(self) -> Option<&'static str> {
                match self { $(Scalar::$variant => $nvshmem),* }
            }
        }

        $($(
            impl sealed::Sealed for $rust {}
            impl Element for $rust {
                const DTYPE: Scalar = Scalar::$variant;
            }
        )?)*
    };
}

mod sealed {
    pub trait Sealed {}
}

/// A Rust type that has the bytes of an element type, and for which every bit pattern is a value.
/// `bool` is not such a type, because only two bit patterns are values. Use `u8` instead.
pub trait Element: sealed::Sealed + Copy + PartialEq + std::fmt::Debug + Send + Sync + 'static {
    /// The element type with the same bytes.
    const DTYPE: Scalar;
}

scalars! {
    /// A truth value in a byte that is 0 or 1.
    Bool = "bool": Bool, 8, None;
    /// A signed integer of 8 bits.
    I8 = "i8": Signed, 8, Some("int8"), i8;
    /// A signed integer of 16 bits.
    I16 = "i16": Signed, 16, Some("int16"), i16;
    /// A signed integer of 32 bits.
    I32 = "i32": Signed, 32, Some("int32"), i32;
    /// A signed integer of 64 bits.
    I64 = "i64": Signed, 64, Some("int64"), i64;
    /// An unsigned integer of 8 bits.
    U8 = "u8": Unsigned, 8, Some("uint8"), u8;
    /// An unsigned integer of 16 bits.
    U16 = "u16": Unsigned, 16, Some("uint16"), u16;
    /// An unsigned integer of 32 bits.
    U32 = "u32": Unsigned, 32, Some("uint32"), u32;
    /// An unsigned integer of 64 bits.
    U64 = "u64": Unsigned, 64, Some("uint64"), u64;
    /// A float of IEEE 754 binary16.
    F16 = "f16": Float, 16, Some("half"), f16;
    /// A float of type bfloat16.
    BF16 = "bf16": Float, 16, Some("bfloat16"), bf16;
    /// A float of IEEE 754 binary32.
    F32 = "f32": Float, 32, Some("float"), f32;
    /// A float of IEEE 754 binary64.
    F64 = "f64": Float, 64, Some("double"), f64;
    /// OCP FP8 with 4 exponent bits and 3 mantissa bits.
    E4M3 = "e4m3": Float, 8, None, float8::F8E4M3;
    /// OCP FP8 with 5 exponent bits and 2 mantissa bits.
    E5M2 = "e5m2": Float, 8, None, float8::F8E5M2;
}

impl Scalar {
    /// The width in memory in bytes.
    pub fn bytes(self) -> u32 {
        self.bits() / 8
    }

    /// Whether it is a floating-point type, including FP8.
    pub fn is_float(self) -> bool {
        self.kind() == NumberKind::Float
    }

    /// Whether it is an integer type (not `bool`).
    pub fn is_int(self) -> bool {
        matches!(self.kind(), NumberKind::Signed | NumberKind::Unsigned)
    }

    /// The text of the number in these little-endian bytes, or none if there are too few. A float
    /// is written with the fewest digits that distinguish it, such as `0.5` and `1e-5`.
    pub fn text(self, bytes: &[u8]) -> Option<String> {
        let bytes = bytes.get(..self.bytes() as usize)?;
        let mut wide = [0; 8];
        wide.get_mut(..bytes.len())?.copy_from_slice(bytes);
        let bits = u64::from_le_bytes(wide);
        let unused = 64 - self.bits();
        Some(match self {
            Scalar::Bool => (bits != 0).to_string(),
            Scalar::F64 => format!("{:?}", f64::from_bits(bits)),
            Scalar::F32 => format!("{:?}", f32::from_bits(bits as u32)),
            Scalar::F16 => format!("{:?}", f16::from_bits(bits as u16).to_f32()),
            Scalar::BF16 => format!("{:?}", bf16::from_bits(bits as u16).to_f32()),
            Scalar::E4M3 => format!("{:?}", float8::F8E4M3::from_bits(bits as u8).to_f32()),
            Scalar::E5M2 => format!("{:?}", float8::F8E5M2::from_bits(bits as u8).to_f32()),
            _ if self.kind() == NumberKind::Signed => ((bits << unused) as i64 >> unused).to_string(),
            _ => bits.to_string(),
        })
    }

    /// Whether it is a type that is only loaded, stored and converted, because there is no
    /// arithmetic in it.
    pub fn is_fp8(self) -> bool {
        matches!(self, Scalar::E4M3 | Scalar::E5M2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rust_types_have_the_width_of_their_elements() {
        fn same<T: Element>() -> bool {
            size_of::<T>() == T::DTYPE.bytes() as usize
        }
        assert!(same::<i8>() && same::<u16>() && same::<i32>() && same::<u64>());
        assert!(same::<f16>() && same::<bf16>() && same::<f32>() && same::<f64>());
        assert!(same::<float8::F8E4M3>() && same::<float8::F8E5M2>());
    }

    #[test]
    fn numbers_have_the_text_of_their_type() {
        let text = |dtype: Scalar, bytes: &[u8]| dtype.text(bytes).unwrap();
        assert_eq!(text(Scalar::I32, &(-5i32).to_le_bytes()), "-5");
        assert_eq!(text(Scalar::U32, &(-5i32).to_le_bytes()), "4294967291");
        assert_eq!(text(Scalar::I64, &i64::MIN.to_le_bytes()), "-9223372036854775808");
        assert_eq!(text(Scalar::U64, &u64::MAX.to_le_bytes()), "18446744073709551615");
        assert_eq!((text(Scalar::I8, &[0xff]), text(Scalar::U8, &[0xff])), ("-1".into(), "255".into()));
        assert_eq!(text(Scalar::F32, &0.5f32.to_le_bytes()), "0.5");
        assert_eq!(text(Scalar::F32, &1e-5f32.to_le_bytes()), "1e-5");
        assert_eq!(text(Scalar::F64, &(-0.1f64).to_le_bytes()), "-0.1");
        assert_eq!(text(Scalar::F16, &f16::from_f32(1.5).to_le_bytes()), "1.5");
        assert_eq!(text(Scalar::BF16, &bf16::from_f32(-3.0).to_le_bytes()), "-3.0");
        assert_eq!(text(Scalar::E4M3, &[0x38]), "1.0");
        assert_eq!(text(Scalar::E5M2, &[0xc0]), "-2.0");
        assert_eq!(text(Scalar::Bool, &[1]), "true");
        assert_eq!(Scalar::F32.text(&[0, 0]), None);
    }

    #[test]
    fn json_has_the_word_of_kernel_texts() {
        for s in Scalar::ALL {
            let text = serde_json::to_string(s).unwrap();
            assert_eq!(text, format!("\"{s}\""));
            assert_eq!(serde_json::from_str::<Scalar>(&text).unwrap(), *s);
            assert_eq!(Scalar::parse(s.name()), Some(*s));
        }
        assert!(serde_json::from_str::<Scalar>("\"F32\"").is_err());
    }
}
