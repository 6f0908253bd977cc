//! The canonical form of sums and products: a list of `coefficient * atom * atom * ...` plus a constant.

use std::cmp::Ordering;

use super::divide::gcd;
use super::{Int, IntKind, Node, Op, Poison, Repr, canonical_cmp_slices};

/// Products whose expansion would have more terms than this stay factored.
const MAX_EXPANSION: usize = 32;

/// `coef * atoms[0] * atoms[1] * ...`; the atoms are sorted and none is a constant.
#[derive(Debug, Clone)]
pub(super) struct Term {
    pub coef: i64,
    pub atoms: Vec<Int>,
}

/// A sum of terms and a constant, or poison. The terms are sorted and have different atoms.
#[derive(Debug, Clone, Default)]
pub(super) struct Poly {
    pub terms: Vec<Term>,
    pub constant: i64,
    pub poison: Option<Poison>,
}

impl Term {
    fn of(int: &Int) -> Option<Term> {
        match int.node() {
            Node::Const(_) | Node::Poison(_) | Node::Add(_) => None,
            Node::Mul([atoms @ .., last]) => match last.as_const() {
                Some(coef) => Some(Term { coef, atoms: atoms.to_vec() }),
                None => Some(Term { coef: 1, atoms: [atoms, std::slice::from_ref(last)].concat() }),
            },
            _ => Some(Term { coef: 1, atoms: vec![int.clone()] }),
        }
    }

    pub fn into_int(self) -> Int {
        let Term { coef, mut atoms } = self;
        if coef == 1 && atoms.len() == 1 {
            return atoms.swap_remove(0);
        }
        if coef != 1 {
            atoms.push(Int::from(coef));
        }
        let div = atoms.iter().map(Int::divisor).try_fold(1i64, i64::checked_mul);
        let div = div.unwrap_or_else(|| atoms.iter().map(Int::divisor).max().unwrap_or(1));
        let bounds = atoms.iter().fold((1, 1), |b, a| mul_bounds(b, (a.lower_bound(), a.hi())));
        Int::symbolic(IntKind::Mul(atoms.into_boxed_slice()), div, bounds)
    }

    /// Compares by degree first, so that a product's leading term usually is the product of the
    /// leading terms.
    fn cmp_atoms(&self, other: &Term) -> Ordering {
        other.atoms.len().cmp(&self.atoms.len()).then_with(|| canonical_cmp_slices(&self.atoms, &other.atoms))
    }

    /// The term divided by `k > 0`, if it is provably divisible.
    pub fn exact_div(&self, k: i64) -> Option<Term> {
        let g = gcd(self.coef, k);
        let (mut k, mut term) = (k / g, Term { coef: self.coef / g, atoms: self.atoms.clone() });
        for atom in &mut term.atoms {
            let h = gcd(atom.divisor(), k);
            if h > 1 {
                *atom = exact_quotient(atom, h)?;
                k /= h;
            }
        }
        if k != 1 {
            return None;
        }
        term.atoms.sort_by(Int::canonical_cmp);
        Some(term)
    }

    /// A divisor of the term's value.
    pub fn divisor(&self) -> i64 {
        let factors = self.atoms.iter().map(Int::divisor);
        let coef = self.coef.checked_abs().unwrap_or(1 << 62);
        factors.clone().try_fold(coef, i64::checked_mul).unwrap_or_else(|| factors.fold(coef, i64::max))
    }

    /// The term divided by another, if it is provably divisible: it has the divisor's atoms, and
    /// the rest is divisible by the divisor's coefficient.
    pub fn cancel(&self, divisor: &Term) -> Option<Term> {
        let mut atoms = self.atoms.clone();
        for d in &divisor.atoms {
            let at = atoms.iter().position(|a| a == d)?;
            atoms.remove(at);
        }
        let coef = self.coef.checked_mul(divisor.coef.signum())?;
        Term { coef, atoms }.exact_div(divisor.coef.checked_abs()?)
    }
}

impl Poly {
    pub fn of(int: &Int) -> Poly {
        match int.node() {
            Node::Const(constant) => Poly { constant, ..Poly::default() },
            Node::Poison(p) => Poly { poison: Some(p), ..Poly::default() },
            Node::Add(list) => {
                let terms: Vec<Term> = list.iter().filter_map(Term::of).collect();
                Poly { terms, constant: list.last().and_then(Int::as_const).unwrap_or(0), poison: None }
            }
            _ => Poly { terms: Term::of(int).into_iter().collect(), ..Poly::default() },
        }
    }

    pub fn into_int(self) -> Int {
        let Poly { mut terms, constant, poison } = self;
        if let Some(p) = poison {
            return Int::poisoned(p);
        }
        match (terms.len(), constant) {
            (0, c) => return Int::from(c),
            (1, 0) => return terms.swap_remove(0).into_int(),
            _ => {}
        }
        let mut list: Vec<Int> = terms.into_iter().map(Term::into_int).collect();
        if constant != 0 {
            list.push(Int::from(constant));
        }
        let div = list.iter().fold(0, |g, t| gcd(g, t.divisor()));
        let lo = list.iter().fold(0i64, |sum, t| add_bound(sum, t.lower_bound()));
        let hi = list.iter().fold(0i64, |sum, t| add_bound(sum, t.hi()));
        Int::symbolic(IntKind::Add(list.into_boxed_slice()), div, (lo, hi))
    }

    fn fail(&mut self, why: Poison) {
        self.poison.get_or_insert(why);
    }

    pub fn push_const(&mut self, c: i64) {
        match self.constant.checked_add(c) {
            Some(sum) => self.constant = sum,
            None => self.fail(Poison::Overflow),
        }
    }

    pub fn push(&mut self, term: Term) {
        if term.coef == 0 {
            return;
        }
        if term.atoms.is_empty() {
            return self.push_const(term.coef);
        }
        if let Some(expanded) = absorb_quotient(&term) {
            return self.append(expanded);
        }
        match self.terms.binary_search_by(|t| t.cmp_atoms(&term)) {
            Err(at) => self.terms.insert(at, term),
            // The combined term may absorb more of a quotient than each of them did.
            Ok(at) => match self.terms.remove(at).coef.checked_add(term.coef) {
                Some(coef) => self.push(Term { coef, ..term }),
                None => self.fail(Poison::Overflow),
            },
        }
    }

    fn append(&mut self, other: Poly) {
        self.poison = self.poison.or(other.poison);
        self.push_const(other.constant);
        other.terms.into_iter().for_each(|t| self.push(t));
    }

    pub fn add(mut self, other: Poly) -> Poly {
        self.append(other);
        self
    }

    fn all_terms(&self) -> Vec<Term> {
        let constant = (self.constant != 0).then(|| Term { coef: self.constant, atoms: vec![] });
        self.terms.iter().cloned().chain(constant).collect()
    }

    pub fn mul(&self, other: &Poly) -> Poly {
        let mut out = Poly { poison: self.poison.or(other.poison), ..Poly::default() };
        let (a, b) = (self.all_terms(), other.all_terms());
        if a.len().min(b.len()) > 1 && a.len() * b.len() > MAX_EXPANSION {
            let mut atoms = vec![self.clone().into_int(), other.clone().into_int()];
            atoms.sort_by(Int::canonical_cmp);
            out.terms.push(Term { coef: 1, atoms });
            return out;
        }
        for x in &a {
            for y in &b {
                match x.coef.checked_mul(y.coef) {
                    None => out.fail(Poison::Overflow),
                    Some(coef) => {
                        let mut atoms = [x.atoms.as_slice(), &y.atoms].concat();
                        atoms.sort_by(Int::canonical_cmp);
                        out.push(Term { coef, atoms });
                    }
                }
            }
        }
        out
    }
}

/// `atom / k` as one atom, where `k > 1` divides it.
fn exact_quotient(atom: &Int, k: i64) -> Option<Int> {
    let (numerator, k) = match atom.node() {
        // The quotient of a sum is a sum and not an atom.
        Node::Add(_) => return None,
        Node::FloorDiv(x, c) => match c.as_const() {
            Some(c) if c > 0 => (x, c.checked_mul(k)?),
            _ => (atom, k),
        },
        _ => (atom, k),
    };
    if numerator.as_const().is_some() || numerator.divisor() % k != 0 {
        return None;
    }
    let bound = |b: i64| if b == i64::MIN || b == i64::MAX { b } else { b.div_euclid(k) };
    let bounds = (bound(numerator.lower_bound()), bound(numerator.hi()));
    let kind = IntKind::Op(Op::FloorDiv, numerator.clone(), Int::from(k));
    let quotient = Int::symbolic(kind, numerator.divisor() / k, bounds);
    matches!(quotient.0, Repr::Sym(_)).then_some(quotient)
}

/// Multiplies exact quotients by the common factors of their divisor and the coefficient. For
/// example, `8 * (N / 8)` with N divisible by 8 is N.
fn absorb_quotient(term: &Term) -> Option<Poly> {
    let (at, numerator, divisor, shared) = term.atoms.iter().enumerate().find_map(|(at, atom)| {
        let Repr::Sym(e) = &atom.0 else { return None };
        let IntKind::Op(Op::FloorDiv, numerator, divisor) = &e.kind else { return None };
        let divisor = divisor.as_const()?;
        let shared = gcd(divisor, term.coef);
        (divisor > 0 && shared > 1 && numerator.divisor() % divisor == 0)
            .then_some((at, numerator, divisor, shared))
    })?;
    let mut rest = Term { coef: term.coef / shared, atoms: term.atoms.clone() };
    rest.atoms.remove(at);
    let mut others = Poly::default();
    others.push(rest);
    Some(others.mul(&Poly::of(&numerator.floor_div(&Int::from(divisor / shared)))))
}

/// The sum of two bounds of the same direction. An unbounded one stays unbounded.
pub(super) fn add_bound(a: i64, b: i64) -> i64 {
    match (a, b) {
        (i64::MIN, _) | (_, i64::MIN) => i64::MIN,
        (i64::MAX, _) | (_, i64::MAX) => i64::MAX,
        _ => a.saturating_add(b),
    }
}

pub(super) fn mul_bounds(a: (i64, i64), b: (i64, i64)) -> (i64, i64) {
    // -i64::MAX results from negating "unbounded" and also means unbounded.
    let product = |x: i64, y: i64| match x.saturating_mul(y) {
        p if p <= -i64::MAX => i64::MIN,
        p => p,
    };
    let all = [product(a.0, b.0), product(a.0, b.1), product(a.1, b.0), product(a.1, b.1)];
    all.iter().fold((i64::MAX, i64::MIN), |(lo, hi), &p| (lo.min(p), hi.max(p)))
}
