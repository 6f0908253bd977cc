//! Element types, named as kernel texts name them, and NVSHMEM's names for them.

use half::{bf16, f16};

macro_rules! dtypes {
    ($($variant:ident $name:literal $bytes:literal $nvshmem:expr, $($rust:ty)?, $doc:literal;)*) => {
        /// An element type.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, serde::Serialize, serde::Deserialize)]
        #[serde(rename_all = "lowercase")]
        pub enum DType {
            $(#[doc = $doc] $variant,)*
        }

        impl DType {
            /// Every element type.
            pub const ALL: &[DType] = &[$(DType::$variant),*];

            /// As a kernel text names it.
            pub fn name(self) -> &'static str {
                match self { $(DType::$variant => $name),* }
            }

            /// Bytes of an element.
            pub fn bytes(self) -> usize {
                match self { $(DType::$variant => $bytes),* }
            }

            /// TYPENAME of NVSHMEM's typed functions (NVSHMEM API, Table "Standard RMA Types"); none where it moves
            /// such elements only as bytes.
            pub fn nvshmem_name(self) -> Option<&'static str> {
                match self { $(DType::$variant => $nvshmem),* }
            }
        }

        $($(impl sealed::Sealed for $rust {}
        impl Element for $rust {
            const DTYPE: DType = DType::$variant;
        })?)*
    };
}

mod sealed {
    pub trait Sealed {}
}

/// A Rust type whose bytes are an element's, whatever they are. (`bool` is none: not every byte is one. Use `u8`.)
pub trait Element: sealed::Sealed + Copy + PartialEq + std::fmt::Debug + Send + Sync + 'static {
    /// Which.
    const DTYPE: DType;
}

dtypes! {
    Bool "bool" 1 None, , "A byte, 0 or 1.";
    I8 "i8" 1 Some("int8"), i8, "Signed, 8 bits.";
    I16 "i16" 2 Some("int16"), i16, "Signed, 16 bits.";
    I32 "i32" 4 Some("int32"), i32, "Signed, 32 bits.";
    I64 "i64" 8 Some("int64"), i64, "Signed, 64 bits.";
    U8 "u8" 1 Some("uint8"), u8, "Unsigned, 8 bits.";
    U16 "u16" 2 Some("uint16"), u16, "Unsigned, 16 bits.";
    U32 "u32" 4 Some("uint32"), u32, "Unsigned, 32 bits.";
    U64 "u64" 8 Some("uint64"), u64, "Unsigned, 64 bits.";
    F16 "f16" 2 Some("half"), f16, "IEEE 754 binary16.";
    BF16 "bf16" 2 Some("bfloat16"), bf16, "bfloat16.";
    F32 "f32" 4 Some("float"), f32, "IEEE 754 binary32.";
    F64 "f64" 8 Some("double"), f64, "IEEE 754 binary64.";
    E4M3 "e4m3" 1 None, float8::F8E4M3, "FP8, 4 exponent bits (OCP OFP8).";
    E5M2 "e5m2" 1 None, float8::F8E5M2, "FP8, 5 exponent bits (OCP OFP8).";
}

impl DType {
    /// The type of that name.
    pub fn parse(name: &str) -> Option<DType> {
        DType::ALL.iter().copied().find(|d| d.name() == name)
    }
}

impl std::fmt::Display for DType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}
