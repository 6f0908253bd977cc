//! [`Layout`]: a shape and a congruent stride.

use std::fmt::{self, Display, Formatter};

use crate::error::Mode;
use crate::{Int, IntTuple, LayoutError, Result, Var};

/// A function from coordinates of `shape` to offsets: the inner product of the coordinate and
/// `stride`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Layout {
    shape: IntTuple,
    stride: IntTuple,
}

impl Layout {
    /// Creates the layout `shape:stride`.
    ///
    /// # Errors
    /// Fails if shape and stride are not congruent, an extent is or may be negative, a number has no value,
    /// or they nest too deep.
    pub fn new(shape: impl Into<IntTuple>, stride: impl Into<IntTuple>) -> Result<Layout> {
        let shape = shape.into().checked("layout")?;
        let stride = stride.into().checked("layout")?;
        if !shape.is_congruent(&stride) {
            return Err(LayoutError::NotCongruent { shape, stride });
        }
        check_extents(&shape)?;
        Ok(Layout { shape, stride })
    }

    /// `1:0`, the layout of one element at offset 0.
    pub fn one() -> Layout {
        Layout::raw(Int::ONE.into(), Int::ZERO.into())
    }

    /// A layout of parts that are known to be congruent.
    pub(crate) fn raw(shape: IntTuple, stride: IntTuple) -> Layout {
        debug_assert!(shape.is_congruent(&stride), "{shape}:{stride}");
        Layout { shape, stride }
    }

    /// Returns the layout, or an error if one of its numbers has no value or it has become too
    /// large.
    pub(crate) fn checked(self, function: &'static str) -> Result<Layout> {
        self.shape.check(function, true)?;
        self.stride.check(function, false)?;
        Ok(self)
    }

    /// Takes the layout apart into its shape and its stride.
    pub fn into_parts(self) -> (IntTuple, IntTuple) {
        (self.shape, self.stride)
    }

    /// The shape: the extent of each mode.
    pub fn shape(&self) -> &IntTuple {
        &self.shape
    }

    /// The stride: the distance of one step along each extent.
    pub fn stride(&self) -> &IntTuple {
        &self.stride
    }

    /// The number of modes at the top level.
    pub fn rank(&self) -> usize {
        self.shape.rank()
    }

    /// The number of levels of nesting.
    pub fn depth(&self) -> usize {
        self.shape.depth()
    }

    /// The number of elements in the domain.
    pub fn size(&self) -> Int {
        self.shape.product()
    }

    /// The size of the codomain: one past the sum of `(extent - 1) * |stride|`.
    ///
    /// Post, for strides that are not negative: the least M with `self(c) < M` for all c in the domain.
    pub fn cosize(&self) -> Int {
        let mut last = Int::ZERO;
        for_each_mode(&self.shape, &self.stride, &mut |s, d| last = &last + (s - 1) * d.abs());
        last + 1
    }

    /// Mode `index` as a layout. Mode 0 of a layout of one integer is the layout itself.
    pub fn mode(&self, index: usize) -> Option<Layout> {
        Some(Layout { shape: self.shape.mode(index)?.clone(), stride: self.stride.mode(index)?.clone() })
    }

    /// Whether all of the layout's numbers are constants.
    pub fn is_static(&self) -> bool {
        self.shape.is_static() && self.stride.is_static()
    }

    /// The layout with its variables replaced by what `f` returns for them.
    ///
    /// # Errors
    /// Fails if a replacement gives a negative extent or a number without value.
    pub fn subst(&self, f: &mut dyn FnMut(&Var) -> Option<Int>) -> Result<Layout> {
        Layout::new(self.shape.subst(f), self.stride.subst(f))
    }
}

fn check_extents(shape: &IntTuple) -> Result<()> {
    match shape {
        IntTuple::Int(extent) if extent.lower_bound() < 0 => {
            Err(LayoutError::NegativeExtent { mode: Mode::default(), extent: extent.clone() })
        }
        IntTuple::Int(_) => Ok(()),
        IntTuple::Tuple(t) => {
            t.iter().enumerate().try_for_each(|(i, e)| check_extents(e).map_err(|err| err.inside(i)))
        }
    }
}

/// Calls `f` with the extent and the stride of each leaf, from left to right.
pub(crate) fn for_each_mode<'a>(
    shape: &'a IntTuple,
    stride: &'a IntTuple,
    f: &mut dyn FnMut(&'a Int, &'a Int),
) {
    match (shape, stride) {
        (IntTuple::Int(s), IntTuple::Int(d)) => f(s, d),
        (IntTuple::Tuple(s), IntTuple::Tuple(d)) => s.iter().zip(d).for_each(|(s, d)| for_each_mode(s, d, f)),
        _ => {}
    }
}

impl Display for Layout {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.shape, self.stride)
    }
}
