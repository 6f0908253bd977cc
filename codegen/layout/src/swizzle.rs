//! [`Swizzle`]: a function that combines some bits of an offset into others by exclusive or.

use std::fmt::{self, Display, Formatter};

use crate::algebra::recast::{check_factor, ratio};
use crate::error::invalid;
use crate::{Int, Result};

/// Combines `bits` bits into the bits at `base` by exclusive or. The source bits are `shift` above
/// the target bits, or below them if `shift` is negative.
///
/// ```text
/// 0bxxxxxYYYxxxxxZZZxxxx   Z ^= Y
///                   ^--^   base: low bits that stay
///        ^-^       ^-^     bits
///          ^---------^     shift
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Swizzle {
    bits: u32,
    base: u32,
    shift: i32,
}

impl Swizzle {
    /// Creates the swizzle `Sw<bits,base,shift>`.
    ///
    /// # Errors
    /// Fails if `|shift| < bits`, where source and target bits would overlap, or if the swizzle reaches past
    /// bit 61.
    pub fn new(bits: u32, base: u32, shift: i32) -> Result<Swizzle> {
        let distance = shift.unsigned_abs();
        if distance < bits {
            return invalid(
                "swizzle",
                format!("Sw<{bits},{base},{shift}>: |shift| must be at least the bits moved"),
            );
        }
        if u64::from(bits) + u64::from(base) + u64::from(distance) > 61 {
            return invalid("swizzle", format!("Sw<{bits},{base},{shift}> reaches past bit 61"));
        }
        Ok(Swizzle { bits, base, shift })
    }

    /// The swizzle that reads the bits of `source` and changes those of `target`.
    ///
    /// # Errors
    /// Fails if the masks do not have equally many bits, if the bits of one are not contiguous, or if the
    /// masks overlap.
    pub fn from_masks(source: i64, target: i64) -> Result<Swizzle> {
        let (y, z) = (source.trailing_zeros(), target.trailing_zeros());
        // An empty mask has no lowest bit. As in CuTe it counts as bit 32, which is bit 0 of the
        // next word.
        let (y, z) = (if source == 0 { 32 } else { y }, if target == 0 { 32 } else { z });
        let swizzle = (source.count_ones() == target.count_ones())
            .then(|| Swizzle::new(source.count_ones(), y.min(z) % 32, y as i32 - z as i32));
        match swizzle {
            Some(Ok(s)) if s.source_mask() == source && s.target_mask() == target => Ok(s),
            _ => invalid("make_swizzle", format!("no swizzle moves bits {source:#b} onto bits {target:#b}")),
        }
    }

    /// The number of bits that the swizzle combines.
    pub fn bits(self) -> u32 {
        self.bits
    }

    /// The number of low bits that do not change.
    pub fn base(self) -> u32 {
        self.base
    }

    /// The distance from the source bits down to the target bits. It is negative if the source bits
    /// are lower.
    pub fn shift(self) -> i32 {
        self.shift
    }

    fn mask(self, up: i32) -> i64 {
        ((1i64 << self.bits) - 1) << (self.base as i32 + up)
    }

    /// The bits of an offset that the swizzle reads.
    pub fn source_mask(self) -> i64 {
        self.mask(self.shift.max(0))
    }

    /// The bits of an offset that the swizzle changes.
    pub fn target_mask(self) -> i64 {
        self.mask(-self.shift.min(0))
    }

    /// The swizzled offset: `x ^ ((x & source_mask) >> shift)`.
    ///
    /// Post: an involution, `apply(apply(x)) == x`.
    pub fn apply(self, x: &Int) -> Int {
        let source = x.bit_and(&Int::from(self.source_mask()));
        let by = Int::from(1i64 << self.shift.unsigned_abs());
        let moved = if self.shift >= 0 { source.floor_div(&by) } else { source * by };
        x.bit_xor(&moved)
    }

    /// The distance after which the permutation repeats.
    ///
    /// Post: `apply(x + n * period()) == apply(x) + n * period()`.
    pub fn period(self) -> i64 {
        let mask = self.source_mask() | self.target_mask();
        1 << (i64::BITS - mask.leading_zeros())
    }

    /// The composition with `rhs`, which is applied first, as one swizzle.
    ///
    /// Post: `result(x) == self(rhs(x))`.
    ///
    /// # Errors
    /// Fails if they differ in shift, or their bits do not make up one run.
    pub fn composition(self, rhs: Swizzle) -> Result<Swizzle> {
        if self.shift != rhs.shift {
            return invalid("composition", format!("{self} and {rhs} differ in shift, so they do not merge"));
        }
        let (y, z) = (self.source_mask() ^ rhs.source_mask(), self.target_mask() ^ rhs.target_mask());
        Swizzle::from_masks(y, z)
    }

    /// The swizzle of offsets in units of `n`.
    ///
    /// Post, where `n` is at most `2^base`: `result(x) * n == self(x * n)`.
    ///
    /// # Errors
    /// Fails if `n` is not a power of two.
    pub fn upcast(self, n: i64) -> Result<Swizzle> {
        let log = log2("upcast", n)?;
        let over = log.saturating_sub(self.base);
        Swizzle::new(self.bits.saturating_sub(over), self.base.saturating_sub(log), self.shift)
    }

    /// The swizzle of offsets in units of an `n`-th.
    ///
    /// Post: `result(x * n) == self(x) * n`.
    ///
    /// # Errors
    /// Fails if `n` is not a power of two.
    pub fn downcast(self, n: i64) -> Result<Swizzle> {
        Swizzle::new(self.bits, self.base + log2("downcast", n)?, self.shift)
    }

    /// The swizzle of the same memory in elements of `to` bits instead of `from` bits.
    ///
    /// # Errors
    /// Fails if one of the factors is not a power of two.
    pub fn recast(self, from: i64, to: i64) -> Result<Swizzle> {
        let (up, down) = ratio("recast", from, to)?;
        self.upcast(up)?.downcast(down)
    }
}

fn log2(function: &'static str, n: i64) -> Result<u32> {
    check_factor(function, n)?;
    if n & (n - 1) != 0 {
        return invalid(function, format!("the factor of a swizzle must be a power of two, not {n}"));
    }
    Ok(n.trailing_zeros())
}

impl Display for Swizzle {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "Sw<{},{},{}>", self.bits, self.base, self.shift)
    }
}
