//! Arithmetic that PTX defines bit by bit: floating formats, rounding, packed halves, integer helpers.

pub(crate) mod float;
pub(crate) mod format;
pub(crate) mod tensor;
pub(crate) mod wide;

pub(crate) use format::{BF16, E4M3, E5M2, F16, F32, F64, Format, Rounding, TF32};

/// The NaN that an H200 reads outside of a tensor of floats that is filled with NaN, in every 16
/// bits of any type. The manual calls it "OOB NaN" and gives no number.
pub(crate) const OOB_NAN: u16 = 0x7ff7;

/// Returns a mask of the low `bits` bits.
#[inline]
pub(crate) const fn mask(bits: u32) -> u64 {
    if bits >= 64 { u64::MAX } else { (1 << bits) - 1 }
}

/// Sign extension of the low `bits` bits (1 to 64).
#[inline]
pub(crate) const fn sext(v: u64, bits: u32) -> i64 {
    let s = 64 - bits;
    ((v << s) as i64) >> s
}

/// The combining function of a reduction, on one element's bits.
pub(crate) type Combine = Box<dyn Fn(u64, u64) -> u64 + Send + Sync>;

#[cfg(test)]
mod tests;
