//! Compact layouts, whose strides follow from the shape and an order of its modes.

use crate::error::invalid;
use crate::modes::Modes;
use crate::{Int, IntTuple, Layout, LayoutError, Result};

/// The end of a shape at which the mode is contiguous.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// The leftmost mode is contiguous: generalised column-major.
    LayoutLeft,
    /// The rightmost mode is contiguous: generalised row-major.
    LayoutRight,
}

fn compact(shape: &IntTuple, major: Order, step: &mut Int) -> IntTuple {
    match shape {
        // There is never a step along an extent of 1.
        IntTuple::Int(s) if s.is(1) => Int::ZERO.into(),
        IntTuple::Int(s) => {
            let next = &*step * s;
            std::mem::replace(step, next).into()
        }
        IntTuple::Tuple(t) if major == Order::LayoutLeft => {
            IntTuple::Tuple(t.iter().map(|s| compact(s, major, step)).collect())
        }
        IntTuple::Tuple(t) => {
            let mut modes: Vec<IntTuple> = t.iter().rev().map(|s| compact(s, major, step)).collect();
            modes.reverse();
            IntTuple::Tuple(modes)
        }
    }
}

/// The strides of `shape` compact from the left, with `first` as the first stride.
pub(crate) fn col_major_strides(shape: &IntTuple, first: Int) -> IntTuple {
    compact(shape, Order::LayoutLeft, &mut { first })
}

impl Layout {
    /// The compact layout of `shape` whose leftmost mode is contiguous (CuTe's `LayoutLeft`).
    ///
    /// Post: `result(i) == i` for all i in its size; extents of 1 have stride 0.
    ///
    /// # Errors
    /// Fails where [`Layout::new`] fails.
    pub fn col_major(shape: impl Into<IntTuple>) -> Result<Layout> {
        let shape = shape.into().checked("make_layout")?;
        let stride = col_major_strides(&shape, Int::ONE);
        Layout::new(shape, stride)
    }

    /// The compact layout of `shape` whose rightmost mode is contiguous (CuTe's `LayoutRight`).
    ///
    /// Post: a bijection onto `0..size`, monotone in the lexicographic order of coordinates.
    ///
    /// # Errors
    /// Fails where [`Layout::new`] fails.
    pub fn row_major(shape: impl Into<IntTuple>) -> Result<Layout> {
        let shape = shape.into().checked("make_layout")?;
        let stride = compact(&shape, Order::LayoutRight, &mut { Int::ONE });
        Layout::new(shape, stride)
    }

    /// The compact layout of `shape` whose modes are contiguous in ascending `order`. Symbolic
    /// orders come last, from the left.
    ///
    /// Post, for an order without ties: a bijection onto `0..size`, with strides ascending in
    /// `order`.
    ///
    /// # Errors
    /// Fails if `order` is not weakly congruent with `shape`.
    pub fn ordered(shape: impl Into<IntTuple>, order: &IntTuple) -> Result<Layout> {
        let shape = shape.into().checked("make_ordered_layout")?;
        let extents = shape.product_like(order).map_err(|_| LayoutError::ProfileMismatch {
            function: "make_ordered_layout",
            what: "order",
            given: order.to_string(),
            against: shape.to_string(),
            expected: "it must be weakly congruent with the shape",
        })?;
        let largest = order.leaves().iter().filter_map(|o| o.as_const()).max().unwrap_or(0).max(0);
        let keys = order.leaves().into_iter().enumerate();
        // Symbolic orders come after every constant, and among themselves from left to right.
        let keys: Vec<i128> =
            keys.map(|(i, o)| o.as_const().map_or(i128::from(largest) + 1 + i as i128, i128::from)).collect();
        let extents = extents.leaves();
        let mut next = 0;
        let stride = order_strides(&shape, order, &mut |_| {
            let key = keys[next];
            next += 1;
            let lesser = keys.iter().zip(&extents).filter(|(k, _)| **k < key);
            lesser.fold(Int::ONE, |p, (_, s)| p * *s)
        });
        Layout::new(shape, stride)
    }

    /// The compact layout of this shape, with its modes in the order of these strides. Strides of 0
    /// stay 0.
    ///
    /// Post: same shape; injective on the modes with a stride other than 0.
    ///
    /// # Errors
    /// Fails if a number has no value.
    pub fn make_layout_like(&self) -> Result<Layout> {
        let filtered = self.filter_zeros();
        let compact = Layout::ordered(filtered.shape().clone(), self.stride())?;
        Layout::new(self.shape().clone(), compact.into_parts().1)
    }

    /// A compact layout of this shape in the form in which CuTe lays out register fragments. Mode 0
    /// is contiguous from the left, and its strides of 0 are kept. The other modes are in the order
    /// of their strides.
    ///
    /// Post: same shape.
    ///
    /// # Errors
    /// Fails where [`Layout::tiled_product`] fails.
    pub fn make_fragment_like(&self) -> Result<Layout> {
        if self.rank() <= 1 || !self.shape().is_static() {
            return Layout::col_major(self.shape().clone());
        }
        let filtered = self.filter_zeros();
        let (shapes, strides) = (self.shape().as_modes(), self.stride());
        let Some(first) = filtered.shape().mode(0) else { return invalid("make_fragment_like", "no modes") };
        let block = Layout::new(shapes[0].clone(), col_major_strides(first, Int::ONE))?;
        let rest = Layout::ordered(IntTuple::Tuple(shapes[1..].to_vec()), &strides.take(1, self.rank())?)?;
        block.tiled_product(&rest.into())
    }
}

/// The compact strides for the part of `shape` under each leaf of `order`, which begin at
/// `first(leaf)`.
fn order_strides(shape: &IntTuple, order: &IntTuple, first: &mut dyn FnMut(&Int) -> Int) -> IntTuple {
    match (shape, order) {
        (IntTuple::Tuple(s), IntTuple::Tuple(o)) => {
            IntTuple::Tuple(s.iter().zip(o).map(|(s, o)| order_strides(s, o, first)).collect())
        }
        (_, IntTuple::Int(o)) => col_major_strides(shape, first(o)),
        (_, IntTuple::Tuple(_)) => shape.clone(),
    }
}
