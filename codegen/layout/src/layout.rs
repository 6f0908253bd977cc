//! [`Layout`]: a shape and a congruent stride.

use std::fmt::{self, Display, Formatter};

use crate::error::Mode;
use crate::{Int, IntTuple, LayoutError, Result, Var};

/// A function from coordinates of `shape` to offsets, by the inner product of coordinate and `stride`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Layout {
    shape: IntTuple,
    stride: IntTuple,
}

impl Layout {
    /// The layout `shape:stride`.
    ///
    /// # Errors
    /// If they are not congruent, an extent is or may be negative, a number has no value, or they nest too deep.
    pub fn new(shape: impl Into<IntTuple>, stride: impl Into<IntTuple>) -> Result<Layout> {
        let shape = shape.into().checked("layout")?;
        let stride = stride.into().checked("layout")?;
        if !shape.is_congruent(&stride) {
            return Err(LayoutError::NotCongruent { shape, stride });
        }
        check_extents(&shape)?;
        Ok(Layout { shape, stride })
    }

    /// The compact layout of `shape` whose leftmost mode is contiguous (CuTe's `LayoutLeft`, generalised column-major).
    ///
    /// Post: `result(i) == i` for every i in its size.
    ///
    /// # Errors
    /// As [`Layout::new`].
    pub fn col_major(shape: impl Into<IntTuple>) -> Result<Layout> {
        let shape = shape.into();
        let mut step = Int::ONE;
        let stride = shape.map(&mut |extent| {
            let next = &step * extent;
            std::mem::replace(&mut step, next)
        });
        Layout::new(shape, stride)
    }

    /// Shape and stride known to be congruent and of valid extents; only their values are checked.
    pub(crate) fn checked(shape: IntTuple, stride: IntTuple, function: &'static str) -> Result<Layout> {
        debug_assert!(shape.is_congruent(&stride), "{shape}:{stride}");
        Ok(Layout { shape: shape.checked(function)?, stride: stride.checked(function)? })
    }

    /// Extents.
    pub fn shape(&self) -> &IntTuple {
        &self.shape
    }

    /// Offset of one step along each extent.
    pub fn stride(&self) -> &IntTuple {
        &self.stride
    }

    /// Modes at the top level.
    pub fn rank(&self) -> usize {
        self.shape.rank()
    }

    /// Levels of nesting.
    pub fn depth(&self) -> usize {
        self.shape.depth()
    }

    /// Elements in the domain.
    pub fn size(&self) -> Int {
        self.shape.product()
    }

    /// The least M such that every offset's magnitude reached from 0 is below M: one past the sum of `(extent-1)*|stride|`.
    pub fn cosize(&self) -> Int {
        let mut last = Int::ZERO;
        for (s, d) in self.shape.leaves().into_iter().zip(self.stride.leaves()) {
            last = last + (s - 1) * d.abs();
        }
        last + 1
    }

    /// Mode `index` as a layout of its own; mode 0 of a layout of one integer is itself.
    pub fn mode(&self, index: usize) -> Option<Layout> {
        Some(Layout { shape: self.shape.get(index)?.clone(), stride: self.stride.get(index)?.clone() })
    }

    /// Whether all its numbers are constants.
    pub fn is_static(&self) -> bool {
        self.shape.is_static() && self.stride.is_static()
    }

    /// The layout with variables replaced.
    ///
    /// # Errors
    /// If a replacement gives a negative extent or a number without value.
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

impl Display for Layout {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.shape, self.stride)
    }
}
