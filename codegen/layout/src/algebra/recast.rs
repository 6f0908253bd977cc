//! Recast: a layout of elements of one width read as elements of another.

use super::coalesce::{flat, from_flat};
use crate::error::{Mode, invalid};
use crate::int::gcd;
use crate::{Int, IntTuple, Layout, LayoutError, Result};

/// Applies a function to each leaf's extent and stride.
fn map_modes(
    shape: &IntTuple,
    stride: &IntTuple,
    f: &impl Fn(&Int, &Int) -> Result<(Int, Int)>,
) -> Result<(IntTuple, IntTuple)> {
    match (shape, stride) {
        (IntTuple::Int(s), IntTuple::Int(d)) => f(s, d).map(|(s, d)| (s.into(), d.into())),
        _ => {
            let mut out = (Vec::new(), Vec::new());
            for (i, (s, d)) in shape.as_modes().iter().zip(stride.as_modes()).enumerate() {
                let (s, d) = map_modes(s, d, f).map_err(|e| e.inside(i))?;
                out.0.push(s);
                out.1.push(d);
            }
            Ok((IntTuple::Tuple(out.0), IntTuple::Tuple(out.1)))
        }
    }
}

/// Fails unless `n` can be a factor of a recast.
pub(crate) fn check_factor(function: &'static str, n: i64) -> Result<()> {
    if n >= 1 { Ok(()) } else { invalid(function, format!("the factor must be at least 1, not {n}")) }
}

impl Layout {
    /// The layout in units of `n` elements: contiguous extents shrink by `n`, and so do all other
    /// strides.
    ///
    /// Post, where `n` divides the contiguous extents: `result(c) * n == self(c')` for the first
    /// element c' of group c.
    ///
    /// # Errors
    /// Fails if a stride neither divides `n` nor is a multiple of it, or if that cannot be proven.
    pub fn upcast(&self, n: i64) -> Result<Layout> {
        const NAME: &str = "upcast";
        check_factor(NAME, n)?;
        let by = Int::from(n);
        let (shape, stride) = map_modes(self.shape(), self.stride(), &|s, d| match d.as_const() {
            Some(0) => Ok((s.clone(), d.clone())),
            Some(c) if c % n != 0 && n % c != 0 => Err(LayoutError::NotDivisible {
                function: NAME,
                mode: Mode::default(),
                value: d.clone(),
                by: by.clone(),
            }),
            Some(c) => {
                let step = Int::from(c).abs();
                Ok((s.ceil_div(&by.ceil_div(&step)), step.ceil_div(&by) * c.signum()))
            }
            None if d.is_divisible_by(&by) => Ok((s.clone(), d.floor_div(&by))),
            None => Err(LayoutError::NotProvable {
                function: NAME,
                mode: Mode::default(),
                condition: format!("stride {d} is divisible by {n}"),
            }),
        })?;
        Layout::raw(shape, stride).checked(NAME)
    }

    /// The layout in units of an `n`-th of an element: contiguous extents grow by `n`, and so do
    /// all other strides.
    ///
    /// Post: `upcast(result, n) == self`, up to extents of 1.
    ///
    /// # Errors
    /// Fails if no mode is contiguous.
    pub fn downcast(&self, n: i64) -> Result<Layout> {
        const NAME: &str = "downcast";
        check_factor(NAME, n)?;
        if !self.stride().leaves().iter().any(|d| d.is(1)) {
            return invalid(
                NAME,
                format!("{self} has no mode of stride 1, so its elements are not adjacent"),
            );
        }
        let by = Int::from(n);
        let (shape, stride) = map_modes(self.shape(), self.stride(), &|s, d| {
            let contiguous = d.is(1) || d.is(-1);
            Ok(if contiguous { (s * &by, d.clone()) } else { (s.clone(), d * &by) })
        })?;
        Layout::raw(shape, stride).checked(NAME)
    }

    /// The layout of the same memory read as elements of `to` bits instead of `from` bits.
    ///
    /// # Errors
    /// Fails where [`Layout::upcast`] or [`Layout::downcast`] fails, or if a width is below 1.
    pub fn recast(&self, from: i64, to: i64) -> Result<Layout> {
        let (up, down) = ratio("recast", from, to)?;
        let coarse = if up == 1 { self.clone() } else { self.upcast(up)? };
        if down == 1 { Ok(coarse) } else { coarse.downcast(down) }
    }

    /// The largest n that [`Layout::upcast`] accepts, as far as constants alone can tell.
    ///
    /// # Errors
    /// Fails where [`Layout::logical_divide`] fails.
    pub fn max_alignment(&self) -> Result<Int> {
        let modes = flat(&self.coalesce()?).into_iter().map(|(s, d)| {
            let known = |v: Int, otherwise| if v.as_const().is_some() { v } else { otherwise };
            (known(s, Int::ONE), known(d, Int::ZERO))
        });
        let fixed = from_flat(modes.collect());
        let permuted = fixed.logical_divide(&fixed.right_inverse()?.into())?;
        let size = permuted.mode(0).and_then(|m| m.size().as_const()).unwrap_or(1);
        let strides = permuted.mode(1).map(|m| m.into_parts().1);
        let strides = strides.iter().flat_map(IntTuple::leaves).filter_map(Int::as_const);
        Ok(strides.fold(size, gcd).into())
    }
}

/// `to / from` in lowest terms: the factors of an upcast and of a downcast.
pub(crate) fn ratio(function: &'static str, from: i64, to: i64) -> Result<(i64, i64)> {
    check_factor(function, from)?;
    check_factor(function, to)?;
    let shared = gcd(from, to);
    Ok((to / shared, from / shared))
}
