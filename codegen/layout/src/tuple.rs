//! Hierarchical tuples of integers: shapes, strides, coordinates.

use std::fmt::{self, Display, Formatter};

use crate::{Int, LayoutError, Mode, Poison, Result};

/// The deepest nesting a layout may have.
pub const MAX_DEPTH: usize = 32;

/// The most modes a layout may have when flattened.
pub const MAX_LEAVES: usize = 1024;

/// An integer, or a tuple of int tuples.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum IntTuple {
    /// An integer that is a leaf of the tuple.
    Int(Int),
    /// A node. The empty tuple has rank 0 and size 1.
    Tuple(Vec<IntTuple>),
}

impl IntTuple {
    /// The tuple of `elements`.
    pub fn tuple<T: Into<IntTuple>>(elements: impl IntoIterator<Item = T>) -> Self {
        IntTuple::Tuple(elements.into_iter().map(Into::into).collect())
    }

    /// The number of modes at the top level, which is 1 for an integer.
    pub fn rank(&self) -> usize {
        self.as_tuple().map_or(1, <[_]>::len)
    }

    /// The number of levels of nesting, which is 0 for an integer.
    pub fn depth(&self) -> usize {
        self.as_tuple().map_or(0, |t| 1 + t.iter().map(IntTuple::depth).max().unwrap_or(0))
    }

    /// The elements, if it is a tuple.
    pub fn as_tuple(&self) -> Option<&[IntTuple]> {
        match self {
            IntTuple::Tuple(t) => Some(t),
            IntTuple::Int(_) => None,
        }
    }

    /// The integer, if it is one.
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

    /// Mode `index`. Mode 0 of an integer is the integer itself.
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

    /// The leaves, from left to right.
    pub fn leaves(&self) -> Vec<&Int> {
        let mut out = Vec::new();
        self.for_each_leaf(&mut |i| out.push(i));
        out
    }

    /// Replaces every leaf by the result of `f`.
    pub fn map(&self, f: &mut dyn FnMut(&Int) -> Int) -> IntTuple {
        match self {
            IntTuple::Int(i) => IntTuple::Int(f(i)),
            IntTuple::Tuple(t) => IntTuple::Tuple(t.iter().map(|e| e.map(f)).collect()),
        }
    }

    /// The product of all leaves, which is 1 for the empty tuple.
    pub fn product(&self) -> Int {
        match self {
            IntTuple::Int(i) => i.clone(),
            IntTuple::Tuple(t) => t.iter().fold(Int::ONE, |p, e| p * e.product()),
        }
    }

    /// Whether every leaf is a constant.
    pub fn is_static(&self) -> bool {
        let mut all = true;
        self.for_each_leaf(&mut |i| all &= i.as_const().is_some());
        all
    }

    /// Whether both tuples have the same nesting.
    pub fn is_congruent(&self, other: &IntTuple) -> bool {
        match (self, other) {
            (IntTuple::Int(_), IntTuple::Int(_)) => true,
            (IntTuple::Tuple(a), IntTuple::Tuple(b)) => {
                a.len() == b.len() && a.iter().zip(b).all(|(x, y)| x.is_congruent(y))
            }
            _ => false,
        }
    }

    /// Replaces variables, as [`Int::subst`] does.
    pub fn subst(&self, f: &mut dyn FnMut(&crate::Var) -> Option<Int>) -> IntTuple {
        self.map(&mut |i| i.subst(f))
    }

    /// Returns the tuple, or an error if a leaf has no value, it nests too deep, or it has too many
    /// leaves.
    pub(crate) fn checked(self, function: &'static str) -> Result<IntTuple> {
        self.check(function, false)?;
        Ok(self)
    }

    /// Fails if the tuple cannot be part of a layout. If it holds `extents`, a negative one is an
    /// error too.
    pub(crate) fn check(&self, function: &'static str, extents: bool) -> Result<()> {
        let defect = match self.defect(extents, MAX_DEPTH, &mut 0) {
            None => return Ok(()),
            Some(defect) => defect,
        };
        let too_large = |what, limit: usize| {
            let (value, limit) = ("of the result".into(), limit as i64);
            Err(LayoutError::TooLarge { function, what, value, limit })
        };
        match defect {
            Defect::Poison(poison) => Err(LayoutError::Arithmetic { function, poison }),
            Defect::Negative(extent) => {
                Err(LayoutError::NegativeExtent { mode: Mode::default(), extent: extent.into() })
            }
            Defect::Deep => too_large("the nesting depth", MAX_DEPTH),
            Defect::Wide => too_large("the number of modes", MAX_LEAVES),
        }
    }

    fn defect(&self, extents: bool, levels: usize, leaves: &mut usize) -> Option<Defect> {
        match self {
            IntTuple::Int(i) => {
                *leaves += 1;
                match i.as_const() {
                    Some(v) if extents && v < 0 => Some(Defect::Negative(v)),
                    _ if *leaves > MAX_LEAVES => Some(Defect::Wide),
                    _ => i.poison().map(Defect::Poison),
                }
            }
            IntTuple::Tuple(_) if levels == 0 => Some(Defect::Deep),
            IntTuple::Tuple(t) => t.iter().find_map(|e| e.defect(extents, levels - 1, leaves)),
        }
    }
}

enum Defect {
    Poison(Poison),
    Negative(i64),
    Deep,
    Wide,
}

/// Writes `(a,b,c)` without spaces.
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
