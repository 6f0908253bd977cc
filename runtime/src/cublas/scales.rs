//! Scales of the operands of cuBLASLt's products.

use super::{Product, Version, sys};
use crate::error::{CUBLAS, Error, Result};
use std::ffi::c_int;
use std::fmt;

/// The first version with scales of rows and blocks.
const SINCE: Version = Version(120_900);
/// The number of elements along a side of a block that have one scale.
const BLOCK: u64 = 128;
/// The distance of the scales of adjacent blocks of rows of B is a multiple of this number.
const UNIT: u64 = 4;

/// The scales, of type f32, by which the elements of A and B are multiplied.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Scales {
    /// No scales at all.
    #[default]
    None,
    /// One for A and one for B.
    Matrices,
    /// One for each row of A and one for each row of B.
    Rows,
    /// One for each 1 x 128 elements of A, with layout `(m, k / 128):(1, m)`, and one for each 128 x
    /// 128 of B, with layout `(n / 128, k / 128):(p, 1)`, where p is k / 128 rounded up to a multiple
    /// of 4 (cuBLAS Library, "Scaling factors layouts").
    Blocks,
}

impl Scales {
    /// The numbers of f32 in the memory of the scales of A and of B.
    pub fn counts(self, product: &Product) -> [u64; 2] {
        let Product { m, n, k, .. } = *product;
        let along = k.div_ceil(BLOCK);
        match self {
            Scales::None => [0, 0],
            Scales::Matrices => [1, 1],
            Scales::Rows => [m, n],
            Scales::Blocks => {
                [m.saturating_mul(along), n.div_ceil(BLOCK).saturating_mul(along.next_multiple_of(UNIT))]
            }
        }
    }

    /// The attributes that differ from those of a product without scales. The library's first operand
    /// is B here.
    pub(super) fn modes(self) -> Vec<(c_int, i32)> {
        let [a, b] = match self {
            // One scale for each matrix is the default, also of versions without the attribute.
            Scales::None | Scales::Matrices => return Vec::new(),
            Scales::Rows => [sys::SCALE_OUTER_VEC_32F; 2],
            Scales::Blocks => [sys::SCALE_VEC128_32F, sys::SCALE_BLK128X128_32F],
        };
        vec![(sys::DESC_A_SCALE_MODE, b), (sys::DESC_B_SCALE_MODE, a)]
    }

    /// Checks that a version of the library has such scales.
    ///
    /// # Errors
    /// Fails for scales of rows and blocks before 12.9 (R0113).
    pub(super) fn known_to(self, version: Version) -> Result<()> {
        if matches!(self, Scales::None | Scales::Matrices) || version >= SINCE {
            return Ok(());
        }
        let message = format!("cuBLASLt {version} has no products{self}: expected version {SINCE} or later");
        Err(Error::new(CUBLAS, message).help("`weft setup --cublas` fetches a newer cuBLASLt"))
    }
}

impl fmt::Display for Scales {
    /// Writes the words that follow "products" in a sentence.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Scales::None => "",
            Scales::Matrices => " with scales of matrices",
            Scales::Rows => " with scales of rows",
            Scales::Blocks => " with scales of blocks",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DType;

    const PRODUCT: Product =
        Product { m: 12, n: 272, k: 656, dtype: DType::E4M3, out: DType::BF16, b_columns: false };

    /// Numbers of scales of 6 blocks along K and 3 blocks of rows of B.
    #[test]
    fn numbers_of_scales_are_those_of_the_manual() {
        assert_eq!(Scales::None.counts(&PRODUCT), [0, 0]);
        assert_eq!(Scales::Matrices.counts(&PRODUCT), [1, 1]);
        assert_eq!(Scales::Rows.counts(&PRODUCT), [12, 272]);
        assert_eq!(Scales::Blocks.counts(&PRODUCT), [12 * 6, 3 * 8]);
    }

    /// The library's first operand is B, so it has the scales of 128 x 128 elements.
    #[test]
    fn attributes_of_the_operands_are_exchanged() {
        assert_eq!(Scales::Matrices.modes(), []);
        assert_eq!(Scales::Rows.modes(), [(31, 3), (32, 3)]);
        assert_eq!(Scales::Blocks.modes(), [(31, 5), (32, 4)]);
    }

    #[test]
    fn old_versions_have_scales_of_matrices_only() {
        let old = Version(120_802);
        assert_eq!(Scales::Matrices.known_to(old), Ok(()));
        assert_eq!(Scales::Blocks.known_to(Version(120_900)), Ok(()));
        let e = Scales::Rows.known_to(old).unwrap_err();
        let said = "cuBLASLt 12.8.2 has no products with scales of rows: expected version 12.9.0 or later";
        assert_eq!((e.code, e.message.as_str()), (CUBLAS, said));
    }
}
