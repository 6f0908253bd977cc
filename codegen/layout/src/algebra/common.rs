//! The common part of two layouts, and the distribution of a tile over a shape.

use super::coalesce::from_flat;
use super::composition::{Guarantee, compose_guaranteed};
use crate::int::gcd;
use crate::layout::for_each_mode;
use crate::{Int, IntTuple, Layout, LayoutError, Result};

/// The first mode of the coalesced `a o inverse`, if it is contiguous. If that layout satisfies
/// CuTe's assertions but is not the composition, only the first mode of `inverse` counts.
fn contiguous(a: &Layout, inverse: &Layout) -> Result<Option<Int>> {
    let common = match a.composition(inverse) {
        Ok(common) => common,
        Err(error) => {
            compose_guaranteed(a, inverse, Guarantee::Asserted).map_err(|_| error)?;
            match a.composition(&inverse.mode(0).unwrap_or_else(Layout::one)) {
                Ok(common) => common,
                Err(_) => return Ok(None),
            }
        }
    };
    let first = common.coalesce()?.mode(0).filter(|m| m.stride().as_int().is_some_and(|d| d.is(1)));
    Ok(first.map(|m| m.size()))
}

impl Layout {
    /// A layout of the longest run of elements that are contiguous in both layouts and correspond.
    ///
    /// Post: `self(result(i)) == i` and `other(result(i)) == i` for all i in the size of the result.
    ///
    /// # Errors
    /// Fails where [`Layout::composition`] fails.
    pub fn max_common_layout(&self, other: &Layout) -> Result<Layout> {
        let inverse = other.right_inverse()?;
        match contiguous(self, &inverse)? {
            Some(n) => inverse.composition(&Layout::raw(n.into(), Int::ONE.into())),
            None => Ok(Layout::one()),
        }
    }

    /// The number of elements that are contiguous in both layouts and correspond, at least 1. A
    /// symbolic extent counts too, because its divisor says how wide an access can be.
    ///
    /// Post: `self(other.coord_1d(i)) == i` for all i below the result.
    ///
    /// # Errors
    /// Fails where [`Layout::composition`] fails.
    pub fn max_common_vector(&self, other: &Layout) -> Result<Int> {
        Ok(contiguous(self, &other.right_inverse()?)?.unwrap_or(Int::ONE))
    }

    /// A layout of up to `n` indices into `shape`. It takes modes of the shape from the left for as
    /// long as they divide evenly.
    ///
    /// Post: `size(result)` divides `n`; ordered; it divides `shape` evenly.
    ///
    /// # Errors
    /// Fails if a number is symbolic.
    pub fn domain_distribute(shape: &IntTuple, n: &Int) -> Result<Layout> {
        let constant = |i: &Int| {
            i.as_const().ok_or_else(|| LayoutError::NotConstant {
                function: "domain_distribute",
                mode: Default::default(),
                value: i.clone(),
            })
        };
        let compact = Layout::col_major(shape.clone())?;
        let (mut rest, mut modes) = (constant(n)?, Vec::new());
        for_each_mode(compact.shape(), compact.stride(), &mut |s, d| modes.push((s.clone(), d.clone())));
        let mut result = super::coalesce::Flat::new();
        for (s, d) in modes {
            let take = gcd(constant(&s)?, rest);
            rest = rest.checked_div(take).unwrap_or(0);
            result.push((take.into(), d));
        }
        from_flat(result).coalesce()
    }
}
