//! Integers that are known at compile time or only when the kernel runs.
//!
//! An [`Int`] is a constant or a canonical symbolic expression over [`Var`]s. Arithmetic simplifies
//! as it builds. Sums of products are kept with like terms combined, and divisions cancel what they
//! can. Divisibility and bounds are tracked so that layout functions can prove their conditions.
//! Arithmetic is that of the mathematical integers. A result that leaves 64 bits, divides by zero
//! or grows past [`MAX_NODES`] becomes a [`Poison`] that every layout function turns into an error.

mod display;
mod divide;
mod poly;

use std::cmp::Ordering;
use std::ops::{Add, Mul, Neg, Sub};
use std::sync::Arc;

pub(crate) use divide::gcd;
use poly::Poly;

/// The maximum number of nodes of an expression. A larger one is [`Poison::TooComplex`].
pub const MAX_NODES: u32 = 512;

/// The maximum nesting of an expression. It bounds the depth of every recursion over expressions.
const MAX_DEPTH: u32 = 48;

/// A run-time integer, such as a kernel argument.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Var {
    /// The number that identifies the variable within a kernel.
    pub id: u32,
    /// The name under which it is displayed.
    pub name: Arc<str>,
    /// The greatest known divisor, at least 1.
    pub div: i64,
    /// The least value. It is 1 for extents, unless an empty extent is allowed.
    pub min: i64,
    /// The greatest value, if it is known.
    pub max: Option<i64>,
}

impl Var {
    /// An extent, which is at least 1 and about which nothing else is known.
    pub fn extent(id: u32, name: impl Into<Arc<str>>) -> Self {
        Var { id, name: name.into(), div: 1, min: 1, max: None }
    }
}

/// A constant or symbolic integer, which is cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Int(pub(crate) Repr);

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Repr {
    Const(i64),
    Sym(Arc<Expr>),
    Poison(Poison),
}

/// The reason why an integer has no value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Poison {
    /// A constant left the range of 64-bit signed integers.
    Overflow,
    /// A divisor was zero.
    Undefined,
    /// The expression has more than [`MAX_NODES`] nodes.
    TooComplex,
}

/// A symbolic node with what is known of its value. Bounds use `i64::MIN` and `i64::MAX` for "unbounded".
#[derive(Debug)]
pub(crate) struct Expr {
    kind: IntKind,
    div: i64,
    lo: i64,
    hi: i64,
    nodes: u32,
    depth: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum IntKind {
    Var(Var),
    Add(Box<[Int]>),
    Mul(Box<[Int]>),
    Op(Op, Int, Int),
}

/// The binary operations that stay in an expression if they cannot be simplified away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Op {
    FloorDiv,
    CeilDiv,
    Rem,
    Min,
    Max,
    And,
    Xor,
}

impl PartialEq for Expr {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other) || self.kind == other.kind
    }
}
impl Eq for Expr {}
impl std::hash::Hash for Expr {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.kind.hash(state);
    }
}

/// The outermost operation of an [`Int`], for code that evaluates it or emits instructions for it.
#[derive(Debug, Clone, Copy)]
pub enum Node<'a> {
    /// A constant integer that is known now.
    Const(i64),
    /// A variable whose value is known at run time.
    Var(&'a Var),
    /// A sum of two or more terms; a constant term comes last.
    Add(&'a [Int]),
    /// A product of two or more factors; a constant factor comes last.
    Mul(&'a [Int]),
    /// The quotient rounded toward negative infinity.
    FloorDiv(&'a Int, &'a Int),
    /// The quotient rounded toward positive infinity.
    CeilDiv(&'a Int, &'a Int),
    /// `a - floor_div(a, b) * b`, which has the sign of the divisor.
    Rem(&'a Int, &'a Int),
    /// The lesser of two integers.
    Min(&'a Int, &'a Int),
    /// The greater of two integers.
    Max(&'a Int, &'a Int),
    /// Bitwise and, in two's complement.
    And(&'a Int, &'a Int),
    /// Bitwise exclusive or, in two's complement.
    Xor(&'a Int, &'a Int),
    /// The result of arithmetic that has no value.
    Poison(Poison),
}

impl Int {
    /// The constant integer 0.
    pub const ZERO: Int = Int(Repr::Const(0));
    /// The constant integer 1.
    pub const ONE: Int = Int(Repr::Const(1));

    /// The run-time integer `var`.
    pub fn var(var: Var) -> Int {
        let div = var.div.max(1);
        // Bounds are tightened to multiples of the divisor. For example, an extent with div=8 is at
        // least 8.
        let lo = var.min.checked_add(div - 1).map_or(var.min, |v| v.div_euclid(div) * div);
        let hi = var.max.map_or(i64::MAX, |v| v.div_euclid(div).saturating_mul(div));
        if lo == hi {
            return Int::from(lo);
        }
        Int(Repr::Sym(Arc::new(Expr { kind: IntKind::Var(var), div, lo, hi, nodes: 1, depth: 1 })))
    }

    pub(crate) fn poisoned(why: Poison) -> Int {
        Int(Repr::Poison(why))
    }

    /// The value, if it is a constant.
    #[inline]
    pub fn as_const(&self) -> Option<i64> {
        match self.0 {
            Repr::Const(v) => Some(v),
            _ => None,
        }
    }

    /// Whether it is the constant `v`.
    #[inline]
    pub fn is(&self, v: i64) -> bool {
        self.as_const() == Some(v)
    }

    /// The reason why the integer has no value, if it has none.
    #[inline]
    pub fn poison(&self) -> Option<Poison> {
        match self.0 {
            Repr::Poison(p) => Some(p),
            _ => None,
        }
    }

    /// The largest divisor that can be proven. It is 0 for the constant 0, which everything
    /// divides.
    pub fn divisor(&self) -> i64 {
        match &self.0 {
            // |i64::MIN| does not fit, but half of it is still a divisor.
            Repr::Const(v) => v.checked_abs().unwrap_or(1 << 62),
            Repr::Sym(e) => e.div,
            Repr::Poison(_) => 1,
        }
    }

    /// Whether `other` provably divides the integer without a remainder.
    #[inline]
    pub fn is_divisible_by(&self, other: &Int) -> bool {
        match (self.as_const(), other.as_const()) {
            (_, Some(0)) => false,
            (Some(a), Some(b)) => a.wrapping_rem(b) == 0,
            _ => self.rem(other).is(0),
        }
    }

    /// A proven lower bound; `i64::MIN` if none is known.
    #[inline]
    pub fn lower_bound(&self) -> i64 {
        match &self.0 {
            Repr::Const(v) => *v,
            Repr::Sym(e) => e.lo,
            Repr::Poison(_) => i64::MIN,
        }
    }

    /// A proven upper bound, if one is known.
    pub fn upper_bound(&self) -> Option<i64> {
        let hi = self.hi();
        (hi != i64::MAX || self.as_const().is_some()).then_some(hi)
    }

    fn hi(&self) -> i64 {
        match &self.0 {
            Repr::Const(v) => *v,
            Repr::Sym(e) => e.hi,
            Repr::Poison(_) => i64::MAX,
        }
    }

    /// Whether `self <= other` can be proven.
    #[inline]
    pub fn is_le(&self, other: &Int) -> bool {
        match (self.as_const(), other.as_const()) {
            (Some(a), Some(b)) => a <= b,
            _ => self.min_gap(other) >= 0,
        }
    }

    /// Whether `self < other` can be proven.
    #[inline]
    pub fn is_lt(&self, other: &Int) -> bool {
        match (self.as_const(), other.as_const()) {
            (Some(a), Some(b)) => a < b,
            _ => self.min_gap(other) >= 1,
        }
    }

    /// A proven lower bound of `other - self`; `i64::MIN` if none is known.
    fn min_gap(&self, other: &Int) -> i64 {
        let apart = (other - self).lower_bound();
        if apart >= 1 || self.lower_bound() < 0 {
            return apart;
        }
        // This case covers N <= M*N + K, which the bounds of the difference do not show.
        let (quotient, rest) = divide::split_multiples(other, self);
        match (quotient.lower_bound(), rest.lower_bound()) {
            (1, 0..) => apart.max(rest.lower_bound()),
            (2.., 0..) => apart.max(rest.lower_bound().saturating_add(self.lower_bound())),
            _ => apart,
        }
    }

    /// The outermost node of the expression.
    pub fn node(&self) -> Node<'_> {
        let e = match &self.0 {
            Repr::Const(v) => return Node::Const(*v),
            Repr::Poison(p) => return Node::Poison(*p),
            Repr::Sym(e) => e,
        };
        match &e.kind {
            IntKind::Var(v) => Node::Var(v),
            IntKind::Add(terms) => Node::Add(terms),
            IntKind::Mul(factors) => Node::Mul(factors),
            IntKind::Op(op, a, b) => match op {
                Op::FloorDiv => Node::FloorDiv(a, b),
                Op::CeilDiv => Node::CeilDiv(a, b),
                Op::Rem => Node::Rem(a, b),
                Op::Min => Node::Min(a, b),
                Op::Max => Node::Max(a, b),
                Op::And => Node::And(a, b),
                Op::Xor => Node::Xor(a, b),
            },
        }
    }

    /// Replaces every variable for which `f` returns an integer, and simplifies the result.
    pub fn subst(&self, f: &mut dyn FnMut(&Var) -> Option<Int>) -> Int {
        match self.node() {
            Node::Const(_) | Node::Poison(_) => self.clone(),
            Node::Var(v) => f(v).unwrap_or_else(|| self.clone()),
            Node::Add(terms) => terms.iter().fold(Int::ZERO, |sum, t| sum + t.subst(f)),
            Node::Mul(factors) => factors.iter().fold(Int::ONE, |product, t| product * t.subst(f)),
            Node::FloorDiv(a, b) => a.subst(f).floor_div(&b.subst(f)),
            Node::CeilDiv(a, b) => a.subst(f).ceil_div(&b.subst(f)),
            Node::Rem(a, b) => a.subst(f).rem(&b.subst(f)),
            Node::Min(a, b) => a.subst(f).min(&b.subst(f)),
            Node::Max(a, b) => a.subst(f).max(&b.subst(f)),
            Node::And(a, b) => a.subst(f).bit_and(&b.subst(f)),
            Node::Xor(a, b) => a.subst(f).bit_xor(&b.subst(f)),
        }
    }

    /// Calls `f` on every occurrence of a variable, from left to right.
    pub fn vars(&self, f: &mut dyn FnMut(&Var)) {
        match self.node() {
            Node::Const(_) | Node::Poison(_) => {}
            Node::Var(v) => f(v),
            Node::Add(list) | Node::Mul(list) => list.iter().for_each(|t| t.vars(f)),
            Node::FloorDiv(a, b)
            | Node::CeilDiv(a, b)
            | Node::Rem(a, b)
            | Node::Min(a, b)
            | Node::Max(a, b)
            | Node::And(a, b)
            | Node::Xor(a, b) => {
                a.vars(f);
                b.vars(f);
            }
        }
    }

    /// The absolute value of the integer.
    pub fn abs(&self) -> Int {
        self.max(&-self)
    }

    /// The sign, -1, 0 or 1, if it can be proven.
    pub fn sign(&self) -> Option<i64> {
        match (self.lower_bound(), self.hi()) {
            (1.., _) => Some(1),
            (_, ..=-1) => Some(-1),
            (0, 0) => Some(0),
            _ => None,
        }
    }

    /// The total order in which terms and factors are kept; it says nothing about values.
    fn canonical_cmp(&self, other: &Int) -> Ordering {
        match (&self.0, &other.0) {
            (Repr::Sym(a), Repr::Sym(b)) if Arc::ptr_eq(a, b) => Ordering::Equal,
            (Repr::Sym(a), Repr::Sym(b)) => a.kind.canonical_cmp(&b.kind),
            (Repr::Const(a), Repr::Const(b)) => a.cmp(b),
            // Constants come last, because they are printed last.
            (Repr::Const(_), _) => Ordering::Greater,
            (_, Repr::Const(_)) => Ordering::Less,
            _ => Ordering::Equal,
        }
    }

    /// A node of `kind`, or poison if the expression became too large.
    fn symbolic(kind: IntKind, div: i64, (lo, hi): (i64, i64)) -> Int {
        if lo == hi {
            return Int::from(lo);
        }
        let children: &[Int] = match &kind {
            IntKind::Var(_) => &[],
            IntKind::Add(list) | IntKind::Mul(list) => list,
            IntKind::Op(_, a, b) => &[a.clone(), b.clone()],
        };
        let (mut nodes, mut depth) = (1u32, 0);
        for child in children {
            match &child.0 {
                Repr::Poison(p) => return Int::poisoned(*p),
                Repr::Const(_) => nodes += 1,
                Repr::Sym(e) => {
                    nodes = nodes.saturating_add(e.nodes);
                    depth = depth.max(e.depth);
                }
            }
        }
        if nodes > MAX_NODES || depth >= MAX_DEPTH {
            return Int::poisoned(Poison::TooComplex);
        }
        Int(Repr::Sym(Arc::new(Expr { kind, div: div.max(1), lo, hi, nodes, depth: depth + 1 })))
    }
}

impl Var {
    /// Orders variables by name. Numbered names such as `%99` and `%100` are ordered by number.
    fn canonical_cmp(&self, other: &Var) -> Ordering {
        let numbered = self.name.starts_with('%') && other.name.starts_with('%');
        let by_name = if numbered { Ordering::Equal } else { self.name.cmp(&other.name) };
        by_name.then_with(|| self.id.cmp(&other.id)).then_with(|| {
            (&self.name, self.div, self.min, self.max).cmp(&(&other.name, other.div, other.min, other.max))
        })
    }
}

impl IntKind {
    fn canonical_cmp(&self, other: &IntKind) -> Ordering {
        fn rank(k: &IntKind) -> u8 {
            match k {
                IntKind::Var(_) => 0,
                IntKind::Op(..) => 1,
                IntKind::Mul(_) => 2,
                IntKind::Add(_) => 3,
            }
        }
        match (self, other) {
            (IntKind::Var(a), IntKind::Var(b)) => a.canonical_cmp(b),
            (IntKind::Op(o, a, b), IntKind::Op(p, c, d)) => {
                o.cmp(p).then_with(|| a.canonical_cmp(c)).then_with(|| b.canonical_cmp(d))
            }
            (IntKind::Add(a), IntKind::Add(b)) | (IntKind::Mul(a), IntKind::Mul(b)) => {
                canonical_cmp_slices(a, b)
            }
            _ => rank(self).cmp(&rank(other)),
        }
    }
}

fn canonical_cmp_slices(a: &[Int], b: &[Int]) -> Ordering {
    let elements = a.iter().zip(b).map(|(x, y)| x.canonical_cmp(y));
    elements.fold(Ordering::Equal, Ordering::then).then(a.len().cmp(&b.len()))
}

impl From<i64> for Int {
    #[inline]
    fn from(v: i64) -> Self {
        Int(Repr::Const(v))
    }
}

impl From<i32> for Int {
    fn from(v: i32) -> Self {
        Int(Repr::Const(v.into()))
    }
}

impl From<u32> for Int {
    fn from(v: u32) -> Self {
        Int(Repr::Const(v.into()))
    }
}

impl From<usize> for Int {
    /// The result is poison if `v` does not fit 63 bits.
    fn from(v: usize) -> Self {
        i64::try_from(v).map_or(Int::poisoned(Poison::Overflow), Int::from)
    }
}

impl From<Var> for Int {
    fn from(v: Var) -> Self {
        Int::var(v)
    }
}

#[inline]
fn checked(value: Option<i64>) -> Int {
    value.map_or(Int::poisoned(Poison::Overflow), Int::from)
}

#[inline]
fn add(a: &Int, b: &Int) -> Int {
    match (&a.0, &b.0) {
        (Repr::Const(x), Repr::Const(y)) => checked(x.checked_add(*y)),
        _ => add_symbolic(a, b),
    }
}

fn add_symbolic(a: &Int, b: &Int) -> Int {
    match (&a.0, &b.0) {
        (Repr::Poison(p), _) | (_, Repr::Poison(p)) => Int::poisoned(*p),
        (Repr::Const(0), _) => b.clone(),
        (_, Repr::Const(0)) => a.clone(),
        _ => Poly::of(a).add(Poly::of(b)).into_int(),
    }
}

#[inline]
fn mul(a: &Int, b: &Int) -> Int {
    match (&a.0, &b.0) {
        (Repr::Const(x), Repr::Const(y)) => checked(x.checked_mul(*y)),
        _ => mul_symbolic(a, b),
    }
}

fn mul_symbolic(a: &Int, b: &Int) -> Int {
    match (&a.0, &b.0) {
        (Repr::Poison(p), _) | (_, Repr::Poison(p)) => Int::poisoned(*p),
        (Repr::Const(0), _) | (_, Repr::Const(0)) => Int::ZERO,
        (Repr::Const(1), _) => b.clone(),
        (_, Repr::Const(1)) => a.clone(),
        _ => Poly::of(a).mul(&Poly::of(b)).into_int(),
    }
}

#[inline]
fn sub(a: &Int, b: &Int) -> Int {
    match (&a.0, &b.0) {
        (Repr::Const(x), Repr::Const(y)) => checked(x.checked_sub(*y)),
        _ => sub_symbolic(a, b),
    }
}

fn sub_symbolic(a: &Int, b: &Int) -> Int {
    add(a, &mul(b, &Int::from(-1)))
}

macro_rules! operators {
    ($($trait:ident $method:ident),*) => {$(
        impl $trait<&Int> for &Int { type Output = Int; #[inline] fn $method(self, rhs: &Int) -> Int { $method(self, rhs) } }
        impl $trait<Int> for &Int { type Output = Int; #[inline] fn $method(self, rhs: Int) -> Int { $method(self, &rhs) } }
        impl $trait<&Int> for Int { type Output = Int; #[inline] fn $method(self, rhs: &Int) -> Int { $method(&self, rhs) } }
        impl $trait<Int> for Int { type Output = Int; #[inline] fn $method(self, rhs: Int) -> Int { $method(&self, &rhs) } }
        impl $trait<i64> for &Int { type Output = Int; #[inline] fn $method(self, rhs: i64) -> Int { $method(self, &Int::from(rhs)) } }
        impl $trait<i64> for Int { type Output = Int; #[inline] fn $method(self, rhs: i64) -> Int { $method(&self, &Int::from(rhs)) } }
    )*};
}
operators!(Add add, Sub sub, Mul mul);

impl Neg for &Int {
    type Output = Int;
    fn neg(self) -> Int {
        mul(self, &Int::from(-1))
    }
}

impl Neg for Int {
    type Output = Int;
    fn neg(self) -> Int {
        -&self
    }
}
