//! Division, remainder, minimum, maximum and bit operations.

use super::poly::{Poly, Term};
use super::{Int, IntKind, Node, Op, Poison};

/// The greatest common divisor; `gcd(0, n) == n`. `i64::MIN` counts as 2^62.
pub(crate) fn gcd(a: i64, b: i64) -> i64 {
    let (mut a, mut b) = (a.checked_abs().unwrap_or(1 << 62), b.checked_abs().unwrap_or(1 << 62));
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// The direction in which a quotient is rounded.
#[derive(Clone, Copy, PartialEq)]
enum Round {
    Down,
    Up,
}

impl Round {
    /// The quotient of constants; `b > 0`.
    #[inline]
    fn quotient(self, a: i64, b: i64) -> i64 {
        let q = a.div_euclid(b);
        if self == Round::Up && a.rem_euclid(b) != 0 { q + 1 } else { q }
    }

    fn op(self) -> Op {
        if self == Round::Up { Op::CeilDiv } else { Op::FloorDiv }
    }
}

impl Int {
    /// `self / other`, rounded toward negative infinity. Poison if `other` is 0.
    #[inline]
    pub fn floor_div(&self, other: &Int) -> Int {
        if let (Some(a), Some(b @ 1..)) = (self.as_const(), other.as_const()) {
            return Int::from(Round::Down.quotient(a, b));
        }
        divide(self, other, Round::Down)
    }

    /// `self / other`, rounded toward positive infinity. Poison if `other` is 0.
    #[inline]
    pub fn ceil_div(&self, other: &Int) -> Int {
        if let (Some(a), Some(b @ 1..)) = (self.as_const(), other.as_const()) {
            return Int::from(Round::Up.quotient(a, b));
        }
        divide(self, other, Round::Up)
    }

    /// `self - floor_div(self, other) * other`, which has the sign of `other`. Poison if `other` is 0.
    pub fn rem(&self, other: &Int) -> Int {
        match (self.node(), other.node()) {
            (Node::Poison(p), _) | (_, Node::Poison(p)) => Int::poisoned(p),
            (_, Node::Const(0)) => Int::poisoned(Poison::Undefined),
            (Node::Const(a), Node::Const(b)) => {
                let r = a.wrapping_rem(b);
                Int::from(if r != 0 && (r < 0) != (b < 0) { r + b } else { r })
            }
            (_, Node::Const(i64::MIN)) => Int::poisoned(Poison::Overflow),
            (_, Node::Const(b @ ..0)) => -(-self).rem(&Int::from(-b)),
            (_, Node::Const(k)) => rem_const(self, k),
            _ => {
                let (_, rest) = split_multiples(self, other);
                if rest.is(0) || (rest.lower_bound() >= 0 && rest.is_lt(other)) {
                    return rest;
                }
                let div = gcd(rest.divisor(), other.divisor());
                let hi =
                    if other.lower_bound() > 0 && other.hi() != i64::MAX { other.hi() - 1 } else { i64::MAX };
                let lo = if other.lower_bound() > 0 { 0 } else { i64::MIN };
                Int::symbolic(IntKind::Op(Op::Rem, rest, other.clone()), div, (lo, hi))
            }
        }
    }

    /// The lesser of the two integers.
    pub fn min(&self, other: &Int) -> Int {
        self.pick(other, Op::Min)
    }

    /// The greater of the two integers.
    pub fn max(&self, other: &Int) -> Int {
        self.pick(other, Op::Max)
    }

    fn pick(&self, other: &Int, op: Op) -> Int {
        match (self.node(), other.node()) {
            (Node::Poison(p), _) | (_, Node::Poison(p)) => return Int::poisoned(p),
            (Node::Const(a), Node::Const(b)) => {
                return Int::from(if op == Op::Min { a.min(b) } else { a.max(b) });
            }
            _ => {}
        }
        let (least, greatest) = match (self.is_le(other), other.is_le(self)) {
            (true, _) => (self, other),
            (_, true) => (other, self),
            _ => {
                let mut pair = [self.clone(), other.clone()];
                pair.sort_by(Int::canonical_cmp);
                let [a, b] = pair;
                let bounds = if op == Op::Min {
                    (a.lower_bound().min(b.lower_bound()), a.hi().min(b.hi()))
                } else {
                    (a.lower_bound().max(b.lower_bound()), a.hi().max(b.hi()))
                };
                let div = gcd(a.divisor(), b.divisor());
                return Int::symbolic(IntKind::Op(op, a, b), div, bounds);
            }
        };
        if op == Op::Min { least.clone() } else { greatest.clone() }
    }

    /// Bitwise and, in two's complement.
    pub fn bit_and(&self, other: &Int) -> Int {
        match (self.node(), other.node()) {
            (Node::Const(a), Node::Const(b)) => return Int::from(a & b),
            (_, Node::Const(0)) | (Node::Const(0), _) if self.poison().or(other.poison()).is_none() => {
                return Int::ZERO;
            }
            // A mask of low bits that covers every possible value changes nothing.
            (_, Node::Const(m)) if covers(m, self) => return self.clone(),
            (Node::Const(m), _) if covers(m, other) => return other.clone(),
            _ => {}
        }
        let zeros = trailing_zeros(self).max(trailing_zeros(other));
        let bounds = match (self.lower_bound() >= 0, other.lower_bound() >= 0) {
            (true, true) => (0, self.hi().min(other.hi())),
            (true, false) => (0, self.hi()),
            (false, true) => (0, other.hi()),
            _ => (i64::MIN, i64::MAX),
        };
        self.bits(other, Op::And, zeros, bounds)
    }

    /// Bitwise exclusive or, in two's complement.
    pub fn bit_xor(&self, other: &Int) -> Int {
        match (self.node(), other.node()) {
            (Node::Const(a), Node::Const(b)) => return Int::from(a ^ b),
            (_, Node::Const(0)) => return self.clone(),
            (Node::Const(0), _) => return other.clone(),
            _ if self == other && self.poison().is_none() => return Int::ZERO,
            _ => {}
        }
        let zeros = trailing_zeros(self).min(trailing_zeros(other));
        let nonnegative = self.lower_bound() >= 0 && other.lower_bound() >= 0;
        let bounds = match self.hi().max(other.hi()) {
            _ if !nonnegative => (i64::MIN, i64::MAX),
            hi if hi >= 1 << 62 => (0, i64::MAX),
            hi => (0, (1 << (64 - hi.leading_zeros())) - 1),
        };
        self.bits(other, Op::Xor, zeros, bounds)
    }

    fn bits(&self, other: &Int, op: Op, zeros: u32, bounds: (i64, i64)) -> Int {
        let mut pair = [self.clone(), other.clone()];
        pair.sort_by(Int::canonical_cmp);
        let [a, b] = pair;
        Int::symbolic(IntKind::Op(op, a, b), 1 << zeros.min(62), bounds)
    }
}

fn covers(mask: i64, value: &Int) -> bool {
    mask > 0 && mask & mask.wrapping_add(1) == 0 && value.lower_bound() >= 0 && value.hi() <= mask
}

fn trailing_zeros(v: &Int) -> u32 {
    v.divisor().trailing_zeros()
}

fn divide(a: &Int, b: &Int, round: Round) -> Int {
    match (a.node(), b.node()) {
        (Node::Poison(p), _) | (_, Node::Poison(p)) => Int::poisoned(p),
        (_, Node::Const(0)) => Int::poisoned(Poison::Undefined),
        (_, Node::Const(1)) => a.clone(),
        (_, Node::Const(i64::MIN)) => Int::poisoned(Poison::Overflow),
        (_, Node::Const(k @ ..0)) => divide(&-a, &Int::from(-k), round),
        (Node::Const(a), Node::Const(b)) => Int::from(round.quotient(a, b)),
        (_, Node::Const(k)) => divide_const(a, k, round),
        _ => divide_symbolic(a, b, round),
    }
}

/// Splits the terms of `poly` into the quotients of those that `k` divides and the other terms,
/// without its constant.
fn split_by(poly: &Poly, k: i64) -> (Poly, Poly) {
    let (mut quotient, mut rest) = (Poly::default(), Poly::default());
    for term in &poly.terms {
        match term.exact_div(k) {
            Some(q) => quotient.push(q),
            None => rest.push(term.clone()),
        }
    }
    (quotient, rest)
}

fn divide_const(a: &Int, mut k: i64, round: Round) -> Int {
    let poly = Poly::of(a);
    let (mut quotient, mut rest) = split_by(&poly, k);
    // The constant is split so that the remainder is in [0, k) when rounding down and in (-k, 0] when rounding up.
    let q = round.quotient(poly.constant, k);
    quotient.push_const(q);
    rest.constant = (i128::from(poly.constant) - i128::from(q) * i128::from(k)) as i64;
    if rest.terms.is_empty() {
        return quotient.into_int();
    }
    // The part of the constant below the common divisor of the terms cannot carry into the
    // quotient.
    let unit = rest.terms.iter().fold(k, |g, t| gcd(g, t.divisor()));
    rest.constant = round.quotient(rest.constant, unit) * unit;
    // Both roundings get one form: floor((x + k - unit) / k) == ceil(x / k).
    let up = match (round, rest.constant) {
        (Round::Down, c) if c == k - unit && c != 0 => true,
        (Round::Up, c) if c == unit - k && c != 0 => false,
        _ => round == Round::Up,
    };
    if up != (round == Round::Up) {
        rest.constant = 0;
    }
    let round = if up { Round::Up } else { Round::Down };
    let shared = rest.terms.iter().fold(gcd(k, rest.constant), |g, t| gcd(g, t.coef));
    if shared > 1 {
        rest.terms.iter_mut().for_each(|t| t.coef /= shared);
        rest.constant /= shared;
        k /= shared;
    }
    let rest = rest.into_int();
    let (lo, hi) = (rest.lower_bound(), rest.hi());
    let bound = |b: i64| if b == i64::MIN || b == i64::MAX { b } else { round.quotient(b, k) };
    let (lo, hi) = (bound(lo), bound(hi));
    let tail = match rest.node() {
        _ if lo == hi => Int::from(lo),
        Node::FloorDiv(x, d) if round == Round::Down && d.lower_bound() > 0 => x.floor_div(&(d * k)),
        Node::CeilDiv(x, d) if round == Round::Up && d.lower_bound() > 0 => x.ceil_div(&(d * k)),
        // An exact quotient rounds the same both ways: (N/8) rounded up by 4 is N rounded up by 32.
        Node::FloorDiv(x, d)
            if round == Round::Up && d.as_const().is_some_and(|d| d > 0 && x.divisor() % d == 0) =>
        {
            x.ceil_div(&(d * k))
        }
        _ => {
            let div = if rest.divisor() % k == 0 { rest.divisor() / k } else { 1 };
            Int::symbolic(IntKind::Op(round.op(), rest, Int::from(k)), div, (lo, hi))
        }
    };
    quotient.into_int() + tail
}

/// Finds `a == quotient * b + rest` with as much in the quotient as cancels term by term.
pub(super) fn split_multiples(a: &Int, b: &Int) -> (Int, Int) {
    if b.as_const().is_some() || a.poison().or(b.poison()).is_some() {
        return (Int::ZERO, a.clone());
    }
    let (pa, pb) = (Poly::of(a), Poly::of(b));
    if let ([divisor], 0) = (pb.terms.as_slice(), pb.constant) {
        let (mut quotient, mut rest) = (Poly::default(), Poly { constant: pa.constant, ..Poly::default() });
        for term in &pa.terms {
            match term.cancel(divisor) {
                Some(q) => quotient.push(q),
                None => rest.push(term.clone()),
            }
        }
        return (quotient.into_int(), rest.into_int());
    }
    // For a divisor of several terms, only the ratio of the leading terms is tried as quotient.
    if let (Some(x), Some(y)) = (pa.terms.first(), pb.terms.first())
        && let Some(Term { coef, atoms }) = x.cancel(y)
    {
        let ratio = atoms.iter().fold(Int::from(coef), |p, a| p * a);
        if &ratio * b == *a {
            return (ratio, Int::ZERO);
        }
    }
    (Int::ZERO, a.clone())
}

fn divide_symbolic(a: &Int, b: &Int, round: Round) -> Int {
    let (quotient, rest) = split_multiples(a, b);
    if rest.is(0) {
        return quotient;
    }
    let positive = b.lower_bound() > 0;
    match round {
        Round::Down if rest.lower_bound() >= 0 && rest.is_lt(b) => return quotient,
        Round::Up if rest.lower_bound() >= 1 && rest.is_le(b) => return quotient + 1,
        _ => {}
    }
    match rest.node() {
        Node::FloorDiv(x, d) if round == Round::Down && positive && d.lower_bound() > 0 => {
            return quotient + x.floor_div(&(d * b));
        }
        Node::CeilDiv(x, d) if round == Round::Up && positive && d.lower_bound() > 0 => {
            return quotient + x.ceil_div(&(d * b));
        }
        _ => {}
    }
    let (mut top, mut bottom) = (Poly::of(&rest), Poly::of(b));
    let coefs = |p: &Poly| p.terms.iter().fold(p.constant, |g, t| gcd(g, t.coef));
    let shared = gcd(coefs(&top), coefs(&bottom));
    if shared > 1 {
        for p in [&mut top, &mut bottom] {
            p.terms.iter_mut().for_each(|t| t.coef /= shared);
            p.constant /= shared;
        }
        // The remaining fraction can be a quotient itself.
        return quotient + divide(&top.into_int(), &bottom.into_int(), round);
    }
    let (top, bottom) = (top.into_int(), bottom.into_int());
    let bounds = if !positive {
        (i64::MIN, i64::MAX)
    } else {
        let by = |v: i64, d: i64| match (v, d) {
            (i64::MIN | i64::MAX, _) => v,
            // For a divisor without an upper bound, only the sign of the dividend matters.
            (_, i64::MAX) if round == Round::Down => {
                if v < 0 {
                    -1
                } else {
                    0
                }
            }
            (_, i64::MAX) => i64::from(v > 0),
            _ => round.quotient(v, d),
        };
        let (min, max) = (bottom.lower_bound(), bottom.hi());
        let ends = |v| (by(v, min).min(by(v, max)), by(v, min).max(by(v, max)));
        let (lo, hi) = (top.lower_bound(), top.hi());
        (if lo == i64::MIN { lo } else { ends(lo).0 }, if hi == i64::MAX { hi } else { ends(hi).1 })
    };
    quotient + Int::symbolic(IntKind::Op(round.op(), top, bottom), 1, bounds)
}

fn rem_const(a: &Int, k: i64) -> Int {
    let poly = Poly::of(a);
    let mut rest = Poly { constant: poly.constant.rem_euclid(k), ..Poly::default() };
    for term in split_by(&poly, k).1.terms {
        let coef = if term.coef >= k { term.coef % k } else { term.coef };
        rest.push(Term { coef, ..term });
    }
    if rest.terms.is_empty() {
        return Int::from(rest.constant);
    }
    // If every term is a multiple of `unit`, the constant's part below `unit` is kept.
    let unit = rest.terms.iter().fold(k, |g, t| gcd(g, t.divisor()));
    let low = rest.constant % unit;
    rest.constant -= low;
    let shared = rest.terms.iter().fold(gcd(k, rest.constant), |g, t| gcd(g, t.coef));
    rest.terms.iter_mut().for_each(|t| t.coef /= shared);
    rest.constant /= shared;
    let k = k / shared;
    let rest = rest.into_int();
    let (lo, hi) = (rest.lower_bound(), rest.hi());
    let bounded = lo != i64::MIN && hi != i64::MAX;
    let result = match rest.node() {
        _ if bounded && lo.div_euclid(k) == hi.div_euclid(k) => &rest - lo.div_euclid(k) * k,
        Node::Rem(x, d) if d.as_const().is_some_and(|d| d % k == 0) => x.rem(&Int::from(k)),
        _ => {
            let div = gcd(rest.divisor(), k);
            let hi = if lo >= 0 { hi.min(k - div) } else { k - div };
            Int::symbolic(IntKind::Op(Op::Rem, rest, Int::from(k)), div, (0, hi))
        }
    };
    result * shared + low
}
