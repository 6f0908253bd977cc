//! Data for matrix instructions: elements whose sums show how an implementation aligns, truncates and rounds.

use super::super::common::Rng;

/// A binary floating-point format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Format {
    pub exp: u32,
    pub man: u32,
    /// Whether the largest exponent is that of infinities and NaNs; otherwise only all ones is a NaN (e4m3).
    pub ieee: bool,
    /// Bits below the fraction that a register holds and the instruction does not use (tf32).
    pub unused: u32,
}

const fn ieee(exp: u32, man: u32) -> Format {
    Format { exp, man, ieee: true, unused: 0 }
}

pub const F16: Format = ieee(5, 10);
pub const BF16: Format = ieee(8, 7);
pub const F32: Format = ieee(8, 23);
pub const F64: Format = ieee(11, 52);
pub const E5M2: Format = ieee(5, 2);
pub const E4M3: Format = Format { exp: 4, man: 3, ieee: false, unused: 0 };
pub const TF32: Format = Format { exp: 8, man: 10, ieee: true, unused: 13 };

impl Format {
    pub fn bits(self) -> u32 {
        1 + self.exp + self.man + self.unused
    }
    fn bias(self) -> i64 {
        (1 << (self.exp - 1)) - 1
    }
    /// The largest exponent of finite numbers, unbiased.
    fn top(self) -> i64 {
        self.bias() + i64::from(!self.ieee)
    }
    /// A number of this exponent (unbiased) and fraction, clamped to what is finite; subnormal below.
    fn number(self, negative: bool, exponent: i64, fraction: u64) -> u64 {
        let e = (exponent.min(self.top()) + self.bias()).max(0) as u64;
        let mut fraction = fraction & ((1 << self.man) - 1);
        if !self.ieee && e == (1 << self.exp) - 1 {
            fraction &= !1;
        }
        (u64::from(negative) << (self.exp + self.man) | e << self.man | fraction) << self.unused
    }
    fn special(self, rng: &mut Rng) -> u64 {
        let top = (1 << self.exp) - 1;
        let magnitude = match rng.below(4) {
            _ if !self.ieee => (top << self.man) | ((1 << self.man) - 1),
            0 => (top << self.man) | (1 << (self.man - 1)) | (rng.next() & 3 >> (10 / self.man.max(10))),
            _ => top << self.man,
        };
        (rng.below(2) << (self.exp + self.man) | magnitude) << self.unused
    }
}

/// Which operand of `d = a * b + c` an element is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OperandName {
    A,
    B,
    C,
}

/// How the elements of one trial are drawn; trials take them in turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DataKind {
    /// Around one.
    Near,
    /// Any finite numbers.
    Wide,
    /// Large numbers that cancel, and small ones between them.
    Cancel,
    /// Around one, with a few infinities, NaNs and zeros.
    Special,
    /// Mostly zeros, and powers of two far from each other.
    Powers,
    /// Mostly zeros, and any fractions, exponents far from each other.
    Sparse,
    /// Subnormal numbers and what is a little larger.
    Tiny,
    /// Near the largest.
    Huge,
}

pub const KINDS: [DataKind; 8] = [
    DataKind::Near,
    DataKind::Wide,
    DataKind::Cancel,
    DataKind::Special,
    DataKind::Powers,
    DataKind::Sparse,
    DataKind::Tiny,
    DataKind::Huge,
];

/// An element of an operand in the format's bits.
pub fn element(f: Format, kind: DataKind, part: OperandName, rng: &mut Rng) -> u64 {
    let negative = rng.below(2) == 1;
    let fraction = rng.next();
    let around = |rng: &mut Rng, half: i64| rng.below(2 * half as u64 + 1) as i64 - half;
    let reach = f.bias().min(24);
    let unused = if f.unused > 0 && kind == DataKind::Wide { rng.next() & ((1 << f.unused) - 1) } else { 0 };
    let value = match (kind, part) {
        (DataKind::Near, _) => f.number(negative, around(rng, 2), fraction),
        (DataKind::Wide, _) => f.number(negative, around(rng, f.bias()), fraction),
        (DataKind::Cancel, OperandName::B) => f.number(false, -(rng.below(6) as i64 / 4), 0),
        (DataKind::Cancel, _) => {
            let e = [3, 3, 3, -4, -9][rng.below(5) as usize];
            f.number(negative, e, if rng.below(2) == 0 { 0 } else { fraction & 3 })
        }
        (DataKind::Special, _) if rng.below(48) == 0 => f.special(rng),
        (DataKind::Special, _) if rng.below(8) == 0 => f.number(negative, -(1 << f.exp), 0),
        (DataKind::Special, _) => f.number(negative, around(rng, 1), fraction),
        (DataKind::Powers | DataKind::Sparse, OperandName::A) if rng.below(4) != 0 => {
            f.number(negative, -(1 << f.exp), 0)
        }
        (DataKind::Powers, OperandName::B) => f.number(negative, around(rng, 2), 0),
        (DataKind::Powers, _) => f.number(negative, around(rng, reach), 0),
        (DataKind::Sparse, OperandName::B) => f.number(negative, around(rng, 2), fraction),
        (DataKind::Sparse, _) => f.number(negative, around(rng, reach), fraction),
        (DataKind::Tiny, OperandName::C) => f.number(negative, -f.bias() + rng.below(5) as i64, fraction),
        (DataKind::Tiny, _) => {
            f.number(negative, -f.bias() / (1 + rng.below(2) as i64) + around(rng, 3), fraction)
        }
        (DataKind::Huge, OperandName::B) => f.number(negative, around(rng, 1), fraction),
        (DataKind::Huge, _) => f.number(negative, f.top() - rng.below(3) as i64, fraction),
    };
    value | unused
}

/// `words` 32-bit words full of elements.
pub fn floats(f: Format, kind: DataKind, part: OperandName, words: usize, rng: &mut Rng) -> Vec<u32> {
    let each = (f.bits().max(8)) as usize;
    let mut out = Vec::with_capacity(words);
    if each == 64 {
        for _ in 0..words / 2 {
            let v = element(f, kind, part, rng);
            out.extend([v as u32, (v >> 32) as u32]);
        }
        return out;
    }
    for _ in 0..words {
        out.push((0..32 / each).fold(0, |w, i| w | (element(f, kind, part, rng) as u32) << (i * each)));
    }
    out
}

pub fn integers(words: usize, rng: &mut Rng) -> Vec<u32> {
    (0..words).map(|_| rng.next() as u32).collect()
}

pub fn bytes(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|w| w.to_le_bytes()).collect()
}
