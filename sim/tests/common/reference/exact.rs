//! Floating-point arithmetic by exact integers of any size: a value is `n * 2^e`, and rounded once.

use num_bigint::{BigInt, BigUint, Sign};

/// A binary floating-point format with infinities.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Format {
    pub exp: u32,
    pub man: u32,
    /// What an invalid operation gives.
    pub nan: u64,
}

pub const F16: Format = Format { exp: 5, man: 10, nan: 0x7fff };
pub const BF16: Format = Format { exp: 8, man: 7, nan: 0x7fff };
pub const F32: Format = Format { exp: 8, man: 23, nan: 0x7fff_ffff };
pub const F64: Format = Format { exp: 11, man: 52, nan: 0xfff8_0000_0000_0000 };

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    Nearest,
    Zero,
    Down,
    Up,
}

/// A number that is not NaN.
#[derive(Debug, Clone)]
pub enum Number {
    /// Whether it is negative.
    Infinite(bool),
    /// `n * 2^e`, and the sign of a zero.
    Finite(BigInt, i64, bool),
}

impl Format {
    pub fn sign(self) -> u64 {
        1 << (self.exp + self.man)
    }
    fn bias(self) -> i64 {
        (1 << (self.exp - 1)) - 1
    }
    /// Exponent of the least unit.
    fn unit(self) -> i64 {
        1 - self.bias() - i64::from(self.man)
    }
    pub fn infinity(self) -> u64 {
        ((1 << self.exp) - 1) << self.man
    }
    pub fn is_nan(self, v: u64) -> bool {
        v & (self.sign() - 1) > self.infinity()
    }
    /// Zero instead of a subnormal number.
    pub fn flush(self, v: u64) -> u64 {
        if v & self.infinity() == 0 { v & self.sign() } else { v }
    }

    /// `None` is NaN.
    pub fn read(self, v: u64) -> Option<Number> {
        let negative = v & self.sign() != 0;
        let (e, m) = ((v & self.infinity()) >> self.man, v & ((1 << self.man) - 1));
        if e == (1 << self.exp) - 1 {
            return (m == 0).then_some(Number::Infinite(negative));
        }
        let n = BigInt::from(if e == 0 { m } else { m | 1 << self.man });
        let n = if negative { -n } else { n };
        Some(Number::Finite(n, self.unit() + (e as i64 - 1).max(0), negative))
    }

    /// Rounds; `flush`: what is below the normal numbers becomes zero.
    pub fn write(self, x: Number, mode: Mode, flush: bool) -> u64 {
        let (n, e, zero_sign) = match x {
            Number::Infinite(negative) => return self.infinity() | if negative { self.sign() } else { 0 },
            Number::Finite(n, e, s) => (n, e, s),
        };
        let negative = if n.sign() == Sign::NoSign { zero_sign } else { n.sign() == Sign::Minus };
        let sign = if negative { self.sign() } else { 0 };
        let n = n.magnitude();
        if n.bits() == 0 || flush && n.bits() as i64 - 1 + e < 1 - self.bias() {
            return sign;
        }
        // The exponent of the result's last place.
        let last = self.unit().max(n.bits() as i64 - 1 + e - i64::from(self.man));
        let (mut kept, up) = if e >= last {
            (n << (e - last) as u64, false)
        } else {
            let cut = (last - e) as u64;
            let kept: BigUint = n >> cut;
            let rest = n - (&kept << cut);
            let half = BigUint::from(1_u8) << (cut - 1);
            let up = match mode {
                Mode::Nearest => rest > half || rest == half && kept.bit(0),
                Mode::Zero => false,
                Mode::Down => negative && rest.bits() > 0,
                Mode::Up => !negative && rest.bits() > 0,
            };
            (kept, up)
        };
        kept += u32::from(up);
        // The leading bit of a normal number counts one up in the exponent.
        let kept = u64::try_from(kept).unwrap();
        let magnitude = (((last - self.unit()) as u64) << self.man) + kept;
        if magnitude < self.infinity() && last - self.unit() < 1 << self.exp {
            return sign | magnitude;
        }
        let stays = matches!((mode, negative), (Mode::Zero, _) | (Mode::Down, false) | (Mode::Up, true));
        sign | if stays { self.infinity() - 1 } else { self.infinity() }
    }
}

/// `a + b`; `None` is NaN. An exact zero is negative only when rounding down, or if both are.
pub fn sum(a: Number, b: Number, mode: Mode) -> Option<Number> {
    use Number::{Finite, Infinite};
    Some(match (a, b) {
        (Infinite(a), Infinite(b)) if a != b => return None,
        (Infinite(a), _) | (_, Infinite(a)) => Infinite(a),
        (Finite(a, ea, sa), Finite(b, eb, sb)) => {
            let e = ea.min(eb);
            let n: BigInt = (a << (ea - e) as u64) + (b << (eb - e) as u64);
            Finite(n, e, if sa == sb { sa } else { mode == Mode::Down })
        }
    })
}

pub fn product(a: Number, b: Number) -> Option<Number> {
    use Number::{Finite, Infinite};
    let zero = |n: &BigInt| n.sign() == Sign::NoSign;
    Some(match (a, b) {
        (Infinite(a), Infinite(b)) => Infinite(a != b),
        (Infinite(s), Finite(n, _, t)) | (Finite(n, _, t), Infinite(s)) => {
            if zero(&n) {
                return None;
            }
            Infinite(s != t)
        }
        (Finite(a, ea, sa), Finite(b, eb, sb)) => Finite(a * b, ea + eb, sa != sb),
    })
}

/// Bits of a quotient or root beyond which only matters whether there are more.
const MORE: u64 = 160;

pub fn quotient(a: Number, b: Number) -> Option<Number> {
    use Number::{Finite, Infinite};
    Some(match (a, b) {
        (Infinite(_), Infinite(_)) => return None,
        (Infinite(s), Finite(_, _, t)) => Infinite(s != t),
        (Finite(_, _, s), Infinite(t)) => Finite(BigInt::ZERO, 0, s != t),
        (Finite(a, ea, sa), Finite(b, eb, sb)) => match (a.sign(), b.sign()) {
            (Sign::NoSign, Sign::NoSign) => return None,
            (_, Sign::NoSign) => Infinite(sa != sb),
            _ => {
                let (q, r) = division(&(a.magnitude() << MORE), b.magnitude());
                let n = BigInt::from(q * 2_u8 + u32::from(r.bits() > 0));
                Finite(if sa != sb { -n } else { n }, ea - eb - MORE as i64 - 1, sa != sb)
            }
        },
    })
}

fn division(a: &BigUint, b: &BigUint) -> (BigUint, BigUint) {
    (a / b, a % b)
}

pub fn root(a: Number) -> Option<Number> {
    use Number::{Finite, Infinite};
    Some(match a {
        Infinite(true) => return None,
        Infinite(false) => Infinite(false),
        Finite(n, e, s) if n.sign() == Sign::NoSign => Finite(n, e, s),
        Finite(_, _, true) => return None,
        Finite(n, e, _) => {
            let odd = e.rem_euclid(2);
            let n = n.magnitude() << (2 * MORE + odd as u64);
            let r = n.sqrt();
            let rest = u32::from(&r * &r != n);
            Finite(BigInt::from(r * 2_u8 + rest), (e - odd) / 2 - MORE as i64 - 1, false)
        }
    })
}

/// An integer's value, rounded towards where the mode has it.
pub fn integral(x: &Number, mode: Mode) -> Option<BigInt> {
    let Number::Finite(n, e, _) = x else { return None };
    if *e >= 0 {
        return Some(n << *e as u64);
    }
    let cut = -*e as u64;
    let floor: BigInt = n >> cut;
    let rest: BigInt = n - (&floor << cut);
    let half = BigInt::from(1) << (cut - 1);
    let odd = floor.bit(0);
    let up = match mode {
        Mode::Nearest => rest > half || rest == half && odd,
        Mode::Zero => n.sign() == Sign::Minus && rest.sign() != Sign::NoSign,
        Mode::Down => false,
        Mode::Up => rest.sign() != Sign::NoSign,
    };
    Some(floor + u32::from(up))
}
