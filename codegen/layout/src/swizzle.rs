//! [`Swizzle`] and the layouts it is put before.

use std::fmt::{self, Display, Formatter};

use crate::{Int, Layout, LayoutError, Result};

/// Exclusive-or of `bits` bits, found `shift` above (negative: below) bit `base`, into those at `base`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Swizzle {
    bits: u32,
    base: u32,
    shift: i32,
}

impl Swizzle {
    /// `Sw<bits,base,shift>`.
    ///
    /// # Errors
    /// If `|shift| < bits`, where source and target bits would overlap, or if it reaches past bit 62.
    pub fn new(bits: u32, base: u32, shift: i32) -> Result<Swizzle> {
        let distance = shift.unsigned_abs();
        if distance < bits {
            let reason =
                format!("Sw<{bits},{base},{shift}>: the shift must be at least the {bits} bits it moves");
            return Err(LayoutError::Invalid { function: "swizzle", reason });
        }
        if u64::from(bits) + u64::from(base) + u64::from(distance) > 62 {
            let reason = format!("Sw<{bits},{base},{shift}> reaches past bit 62");
            return Err(LayoutError::Invalid { function: "swizzle", reason });
        }
        Ok(Swizzle { bits, base, shift })
    }

    /// Bits that are moved.
    pub fn bits(self) -> u32 {
        self.bits
    }

    /// Low bits that stay as they are.
    pub fn base(self) -> u32 {
        self.base
    }

    /// Distance from the source bits down to the target bits; negative if the source is the lower.
    pub fn shift(self) -> i32 {
        self.shift
    }

    /// The bits read.
    pub fn source_mask(self) -> i64 {
        ((1 << self.bits) - 1) << (self.base as i32 + self.shift.max(0))
    }

    /// The bits changed.
    pub fn target_mask(self) -> i64 {
        ((1 << self.bits) - 1) << (self.base as i32 - self.shift.min(0))
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
}

impl Display for Swizzle {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "Sw<{},{},{}>", self.bits, self.base, self.shift)
    }
}

/// `swizzle o offset o layout`: the layout's offset plus a constant one, then swizzled.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ComposedLayout {
    swizzle: Swizzle,
    offset: Int,
    layout: Layout,
}

impl ComposedLayout {
    /// `swizzle o offset o layout`.
    ///
    /// # Errors
    /// If the offset has no value.
    pub fn new(swizzle: Swizzle, offset: Int, layout: Layout) -> Result<ComposedLayout> {
        match offset.poison() {
            Some(poison) => Err(LayoutError::Arithmetic { function: "composition", poison }),
            None => Ok(ComposedLayout { swizzle, offset, layout }),
        }
    }

    /// The outer function.
    pub fn swizzle(&self) -> Swizzle {
        self.swizzle
    }

    /// Added to the layout's offset before swizzling.
    pub fn offset(&self) -> &Int {
        &self.offset
    }

    /// The inner layout.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }
}

impl Display for ComposedLayout {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} o {} o {}", self.swizzle, self.offset, self.layout)
    }
}
