//! The operand types of instructions.

use crate::num::{BF16, E4M3, E5M2, F16, F32, F64, Format, TF32, mask, sext};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TypeKind {
    Bits,
    Unsigned,
    Signed,
    Float(Format),
}

/// A type: `count` packed elements of `bits` bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ty {
    pub kind: TypeKind,
    pub bits: u32,
    pub count: u32,
}

const fn ty(kind: TypeKind, bits: u32, count: u32) -> Ty {
    Ty { kind, bits, count }
}

const fn float(format: Format, bits: u32, count: u32) -> Ty {
    ty(TypeKind::Float(format), bits, count)
}

const TYPES: &[(&str, Ty)] = &[
    ("b8", ty(TypeKind::Bits, 8, 1)),
    ("b16", ty(TypeKind::Bits, 16, 1)),
    ("b32", ty(TypeKind::Bits, 32, 1)),
    ("b64", ty(TypeKind::Bits, 64, 1)),
    ("u8", ty(TypeKind::Unsigned, 8, 1)),
    ("u16", ty(TypeKind::Unsigned, 16, 1)),
    ("u32", ty(TypeKind::Unsigned, 32, 1)),
    ("u64", ty(TypeKind::Unsigned, 64, 1)),
    ("s8", ty(TypeKind::Signed, 8, 1)),
    ("s16", ty(TypeKind::Signed, 16, 1)),
    ("s32", ty(TypeKind::Signed, 32, 1)),
    ("s64", ty(TypeKind::Signed, 64, 1)),
    ("u16x2", ty(TypeKind::Unsigned, 16, 2)),
    ("s16x2", ty(TypeKind::Signed, 16, 2)),
    ("f16", float(F16, 16, 1)),
    ("f16x2", float(F16, 16, 2)),
    ("bf16", float(BF16, 16, 1)),
    ("bf16x2", float(BF16, 16, 2)),
    ("tf32", float(TF32, 32, 1)),
    ("f32", float(F32, 32, 1)),
    ("f32x2", float(F32, 32, 2)),
    ("f64", float(F64, 64, 1)),
    ("e4m3", float(E4M3, 8, 1)),
    ("e4m3x2", float(E4M3, 8, 2)),
    ("e4m3x4", float(E4M3, 8, 4)),
    ("e5m2", float(E5M2, 8, 1)),
    ("e5m2x2", float(E5M2, 8, 2)),
    ("e5m2x4", float(E5M2, 8, 4)),
];

impl Ty {
    pub(crate) const F32: Ty = float(F32, 32, 1);
    pub(crate) const B32: Ty = ty(TypeKind::Bits, 32, 1);
    pub(crate) const B64: Ty = ty(TypeKind::Bits, 64, 1);

    pub(crate) fn parse(name: &str) -> Option<Ty> {
        TYPES.iter().find(|(n, _)| *n == name).map(|(_, t)| *t)
    }

    /// The total number of bits.
    pub(crate) fn width(self) -> u32 {
        self.bits * self.count
    }

    /// The total number of bytes.
    pub(crate) fn bytes(self) -> usize {
        self.width() as usize / 8
    }

    pub(crate) fn signed(self) -> bool {
        self.kind == TypeKind::Signed
    }

    pub(crate) fn format(self) -> Option<Format> {
        match self.kind {
            TypeKind::Float(f) => Some(f),
            _ => None,
        }
    }

    /// The value of the low bits as this integer type, in 64-bit two's complement.
    #[inline]
    pub(crate) fn extend(self, v: u64) -> i64 {
        if self.kind == TypeKind::Signed { sext(v, self.bits) } else { (v & mask(self.bits)) as i64 }
    }
}
