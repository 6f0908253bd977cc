//! Binary floating-point formats as parameters, and the only code that rounds a value into one of
//! them.

/// The rounding of a result that has no exact representation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rounding {
    /// To nearest, ties to even (`.rn`).
    Nearest,
    /// To nearest, ties away from zero (`.rna`).
    NearestAway,
    /// Toward zero (`.rz`).
    Zero,
    /// Toward minus infinity (`.rm`).
    Down,
    /// Toward plus infinity (`.rp`).
    Up,
}

/// A binary floating-point format of at most 64 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Format {
    /// Width of the exponent field.
    pub exp: u32,
    /// The number of explicit significand bits.
    pub man: u32,
    /// Whether the format has infinities; `e4m3` has none, and a single NaN pattern per sign.
    pub inf: bool,
    /// The NaN that instructions produce.
    pub nan: u64,
}

pub(crate) const F64: Format = Format { exp: 11, man: 52, inf: true, nan: 0x7ff8_0000_0000_0000 };
pub(crate) const F32: Format = Format { exp: 8, man: 23, inf: true, nan: 0x7fff_ffff };
pub(crate) const F16: Format = Format { exp: 5, man: 10, inf: true, nan: 0x7fff };
pub(crate) const BF16: Format = Format { exp: 8, man: 7, inf: true, nan: 0x7fff };
/// The format TF32 with 19 significant bits, kept in a 32-bit register whose 13 low bits are zero.
pub(crate) const TF32: Format = Format { exp: 8, man: 10, inf: true, nan: 0x3ffff };
pub(crate) const E4M3: Format = Format { exp: 4, man: 3, inf: false, nan: 0x7f };
pub(crate) const E5M2: Format = Format { exp: 5, man: 2, inf: true, nan: 0x7f };

impl Format {
    /// The total number of bits, including the sign.
    #[inline]
    pub(crate) const fn bits(self) -> u32 {
        1 + self.exp + self.man
    }

    #[inline]
    const fn bias(self) -> i32 {
        (1 << (self.exp - 1)) - 1
    }

    /// The smallest normal value (of the formats that `decode` computes with).
    #[inline]
    pub(crate) fn min_normal(self) -> f64 {
        f64::from_bits(((1 - self.bias() + 1023) as u64) << 52)
    }

    #[inline]
    pub(crate) const fn sign(self) -> u64 {
        1 << (self.bits() - 1)
    }

    /// All bits but the sign.
    #[inline]
    const fn magnitude(self, v: u64) -> u64 {
        v & (self.sign() - 1)
    }

    /// The magnitude bits of infinity, or of NaN for a format without infinities.
    #[inline]
    const fn overflow(self) -> u64 {
        if self.inf { ((1 << self.exp) - 1) << self.man } else { self.sign() - 1 }
    }

    #[inline]
    pub(crate) const fn is_nan(self, v: u64) -> bool {
        let m = self.magnitude(v);
        if self.inf { m > self.overflow() } else { m == self.overflow() }
    }

    #[inline]
    pub(crate) const fn is_inf(self, v: u64) -> bool {
        self.inf && self.magnitude(v) == self.overflow()
    }

    #[inline]
    const fn is_subnormal(self, v: u64) -> bool {
        self.magnitude(v) >> self.man == 0
    }

    /// Converts a NaN of another format to this format. Sign and leading payload bits are kept, and
    /// the NaN is made quiet if `quiet`. Conversions from and to double precision, and from bf16 to
    /// single, do so; all others return the canonical NaN.
    pub(crate) const fn carry_nan(self, from: Format, v: u64, quiet: bool) -> u64 {
        let payload = v & ((1 << from.man) - 1);
        let payload = if self.man > from.man {
            payload << (self.man - from.man)
        } else {
            payload >> (from.man - self.man)
        };
        let sign = if v & from.sign() != 0 { self.sign() } else { 0 };
        sign | self.overflow() | (quiet as u64) << (self.man - 1) | payload
    }

    /// Applies `.ftz`: subnormal values become zero of the same sign.
    #[inline]
    pub(crate) const fn flush(self, v: u64) -> u64 {
        if self.is_subnormal(v) { v & self.sign() } else { v }
    }

    /// Returns the exact value, for every format but F64, whose bits are returned as they are.
    #[inline]
    pub(crate) fn decode(self, v: u64) -> f64 {
        if self.man == 52 {
            return f64::from_bits(v);
        }
        let sign = (v & self.sign()) << (64 - self.bits());
        let m = self.magnitude(v);
        let (e, f) = (m >> self.man, m & ((1 << self.man) - 1));
        let magnitude = if self.is_nan(v) {
            0x7ff8_0000_0000_0000
        } else if self.is_inf(v) {
            0x7ff0_0000_0000_0000
        } else if e == 0 {
            let unit = f64::from_bits(((1 - self.bias() - self.man as i32 + 1023) as u64) << 52);
            (f as f64 * unit).to_bits()
        } else {
            ((e as i64 - i64::from(self.bias()) + 1023) as u64) << 52 | f << (52 - self.man)
        };
        f64::from_bits(sign | magnitude)
    }

    /// Rounds a double once into this format. `finite` clamps overflow and infinity to the largest finite
    /// value (`.satfinite`).
    #[inline]
    pub(crate) fn encode(self, x: f64, mode: Rounding, finite: bool) -> u64 {
        let bits = x.to_bits();
        let sign = bits >> 63 != 0;
        let m = bits & mask_f64();
        if m > 0x7ff0_0000_0000_0000 {
            return self.nan;
        }
        if m == 0x7ff0_0000_0000_0000 {
            let out = if finite || !self.inf {
                if finite { self.overflow() - 1 } else { self.nan }
            } else {
                self.overflow()
            };
            return if sign { out | self.sign() } else { out };
        }
        if m == 0 {
            return if sign { self.sign() } else { 0 };
        }
        let e = (m >> 52) as i32;
        let f = m & ((1 << 52) - 1);
        if e == 0 {
            let zeros = f.leading_zeros();
            return self.pack(sign, -1022 - (zeros as i32 - 11), f << zeros, false, mode, finite);
        }
        self.pack(sign, e - 1023, (f | 1 << 52) << 11, false, mode, finite)
    }

    /// Rounds `±m * 2^(e - 63)`, where `m` has its top bit set and `sticky` says that bits below it were lost.
    #[inline]
    pub(crate) fn pack(self, sign: bool, e: i32, m: u64, sticky: bool, mode: Rounding, finite: bool) -> u64 {
        let emin = 1 - self.bias();
        let below = (emin - e).max(0) as u32;
        let shift = (63 - self.man).saturating_add(below);
        // `low` holds the discarded bits, left-aligned: its top bit is worth half a unit.
        let (keep, low, sticky) = match shift {
            1..=63 => (m >> shift, m << (64 - shift), sticky),
            64 => (0, m, sticky),
            _ => (0, 0, true),
        };
        let half = 1 << 63;
        let up = match mode {
            Rounding::Nearest => low > half || low == half && (sticky || keep & 1 == 1),
            Rounding::NearestAway => low >= half,
            Rounding::Zero => false,
            Rounding::Down => sign && (low != 0 || sticky),
            Rounding::Up => !sign && (low != 0 || sticky),
        };
        // Carries continue into the exponent, which is exactly what rounding up to the next binade
        // means.
        let base = if below == 0 { ((e - emin).max(0) as u64) << self.man } else { 0 };
        let magnitude = base.saturating_add(keep).saturating_add(u64::from(up));
        let limit = self.overflow();
        let magnitude = if magnitude < limit {
            magnitude
        } else {
            let toward_zero = match mode {
                Rounding::Nearest | Rounding::NearestAway => false,
                Rounding::Zero => true,
                Rounding::Down => !sign,
                Rounding::Up => sign,
            };
            if finite || toward_zero { limit - 1 } else { limit }
        };
        if sign { magnitude | self.sign() } else { magnitude }
    }

    /// Rounds an integer of the given sign and magnitude.
    #[inline]
    pub(crate) fn integer(self, negative: bool, magnitude: u64, mode: Rounding) -> u64 {
        if magnitude == 0 {
            return 0;
        }
        let zeros = magnitude.leading_zeros();
        self.pack(negative, 63 - zeros as i32, magnitude << zeros, false, mode, false)
    }
}

#[inline]
const fn mask_f64() -> u64 {
    u64::MAX >> 1
}
