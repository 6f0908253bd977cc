//! Hierarchical tuples of integers: shapes, strides, coordinates.

use std::fmt::{self, Display, Formatter};

use crate::{Int, LayoutError, Poison, Result};

/// The deepest nesting a layout may have.
pub const MAX_DEPTH: usize = 32;

/// The most modes a layout may have when flattened.
pub const MAX_LEAVES: usize = 1024;

/// An integer, or a tuple of such.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum IntTuple {
    /// A leaf.
    Int(Int),
    /// A node; the empty tuple has rank 0 and size 1.
    Tuple(Vec<IntTuple>),
}

impl IntTuple {
    /// The tuple of `elements`.
    pub fn tuple<T: Into<IntTuple>>(elements: impl IntoIterator<Item = T>) -> Self {
        IntTuple::Tuple(elements.into_iter().map(Into::into).collect())
    }

    /// Modes at the top level; 1 for an integer.
    pub fn rank(&self) -> usize {
        self.as_tuple().map_or(1, <[_]>::len)
    }

    /// Levels of nesting; 0 for an integer.
    pub fn depth(&self) -> usize {
        self.as_tuple().map_or(0, |t| 1 + t.iter().map(IntTuple::depth).max().unwrap_or(0))
    }

    /// The elements if it is a tuple.
    pub fn as_tuple(&self) -> Option<&[IntTuple]> {
        match self {
            IntTuple::Tuple(t) => Some(t),
            IntTuple::Int(_) => None,
        }
    }

    /// The integer if it is one.
    pub fn as_int(&self) -> Option<&Int> {
        match self {
            IntTuple::Int(i) => Some(i),
            IntTuple::Tuple(_) => None,
        }
    }

    /// The top-level modes: the elements of a tuple, or the integer itself.
    pub fn as_modes(&self) -> &[IntTuple] {
        self.as_tuple().unwrap_or(std::slice::from_ref(self))
    }

    /// Mode `index`; mode 0 of an integer is itself.
    pub fn mode(&self, index: usize) -> Option<&IntTuple> {
        self.as_modes().get(index)
    }

    /// Calls `f` on each leaf, left to right.
    pub fn for_each_leaf<'a>(&'a self, f: &mut dyn FnMut(&'a Int)) {
        match self {
            IntTuple::Int(i) => f(i),
            IntTuple::Tuple(t) => t.iter().for_each(|e| e.for_each_leaf(f)),
        }
    }

    /// The leaves, left to right.
    pub fn leaves(&self) -> Vec<&Int> {
        let mut out = Vec::new();
        self.for_each_leaf(&mut |i| out.push(i));
        out
    }

    /// It with every leaf replaced by `f` of it.
    pub fn map(&self, f: &mut dyn FnMut(&Int) -> Int) -> IntTuple {
        match self {
            IntTuple::Int(i) => IntTuple::Int(f(i)),
            IntTuple::Tuple(t) => IntTuple::Tuple(t.iter().map(|e| e.map(f)).collect()),
        }
    }

    /// The product of all leaves; 1 for the empty tuple.
    pub fn product(&self) -> Int {
        let mut product = Int::ONE;
        self.for_each_leaf(&mut |i| product = &product * i);
        product
    }

    /// Whether every leaf is a constant.
    pub fn is_static(&self) -> bool {
        let mut all = true;
        self.for_each_leaf(&mut |i| all &= i.as_const().is_some());
        all
    }

    /// Whether both nest alike.
    pub fn is_congruent(&self, other: &IntTuple) -> bool {
        match (self, other) {
            (IntTuple::Int(_), IntTuple::Int(_)) => true,
            (IntTuple::Tuple(a), IntTuple::Tuple(b)) => {
                a.len() == b.len() && a.iter().zip(b).all(|(x, y)| x.is_congruent(y))
            }
            _ => false,
        }
    }

    /// It with variables replaced, as [`Int::subst`].
    pub fn subst(&self, f: &mut dyn FnMut(&crate::Var) -> Option<Int>) -> IntTuple {
        self.map(&mut |i| i.subst(f))
    }

    /// It, or an error if a leaf has no value, or it nests too deep or has too many leaves.
    pub(crate) fn checked(self, function: &'static str) -> Result<IntTuple> {
        let too_large = |what, limit| {
            Err(LayoutError::TooLarge { function, what, value: "of the result".into(), limit: limit as i64 })
        };
        let mut leaves = 0;
        match self.check(MAX_DEPTH, &mut leaves) {
            Err(Defect::Poison(poison)) => Err(LayoutError::Arithmetic { function, poison }),
            Err(Defect::Deep) => too_large("the nesting depth", MAX_DEPTH),
            Err(Defect::Wide) => too_large("the number of modes", MAX_LEAVES),
            Ok(()) => Ok(self),
        }
    }

    fn check(&self, levels: usize, leaves: &mut usize) -> std::result::Result<(), Defect> {
        match self {
            IntTuple::Int(i) => {
                *leaves += 1;
                i.poison().map_or(Ok(()), |p| Err(Defect::Poison(p)))
            }
            IntTuple::Tuple(_) if levels == 0 => Err(Defect::Deep),
            IntTuple::Tuple(t) => t.iter().try_for_each(|e| e.check(levels - 1, leaves)),
        }?;
        if *leaves > MAX_LEAVES { Err(Defect::Wide) } else { Ok(()) }
    }
}

enum Defect {
    Poison(Poison),
    Deep,
    Wide,
}

/// `(a,b,c)`, without spaces.
pub(crate) fn write_tuple<T: Display>(elements: &[T], f: &mut Formatter<'_>) -> fmt::Result {
    f.write_str("(")?;
    for (i, e) in elements.iter().enumerate() {
        write!(f, "{}{e}", if i > 0 { "," } else { "" })?;
    }
    f.write_str(")")
}

impl<T: Into<Int>> From<T> for IntTuple {
    fn from(v: T) -> Self {
        IntTuple::Int(v.into())
    }
}

impl From<&Int> for IntTuple {
    fn from(v: &Int) -> Self {
        IntTuple::Int(v.clone())
    }
}

impl From<Vec<IntTuple>> for IntTuple {
    fn from(v: Vec<IntTuple>) -> Self {
        IntTuple::Tuple(v)
    }
}

impl Display for IntTuple {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            IntTuple::Int(i) => write!(f, "{i}"),
            IntTuple::Tuple(t) => write_tuple(t, f),
        }
    }
}
