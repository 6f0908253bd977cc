//! Right inverses, left inverses and the nullspace of a layout.

use super::coalesce::{Flat, flat, from_flat};
use crate::error::{Mode, invalid};
use crate::layout::for_each_mode;
use crate::{Int, Layout, LayoutError, Result};

/// The modes of the coalesced layout, each with the product of the extents before it.
fn with_prefix_products(layout: &Layout) -> Result<Vec<(Int, Int, Int)>> {
    let mut prefix = Int::ONE;
    let modes = flat(&layout.coalesce()?).into_iter().map(|(s, d)| {
        let next = &prefix * &s;
        (s, d, std::mem::replace(&mut prefix, next))
    });
    Ok(modes.collect())
}

/// Sorts by exchanges as CuTe does, which determines the order of equal keys.
fn exchange_sort<T>(list: &mut [T], key: impl Fn(&T) -> i64) {
    for i in 0..list.len() {
        for j in i + 1..list.len() {
            if key(&list[j]) < key(&list[i]) {
                list.swap(i, j);
            }
        }
    }
}

/// Whether every sum of steps along `modes`, which are in order of stride, can also be written
/// greedily: as many of the widest steps as possible, then of the next, and so on, with at most as
/// many as each mode has. The left inverse of overlapping modes relies on this. With `goes_on` the
/// widest mode has no end.
fn digits_exist(modes: &[(Int, Int, Int)], goes_on: bool) -> bool {
    let modes: Vec<_> = modes.iter().filter(|(_, d, _)| !d.is(0)).collect();
    let mut reach = Int::ZERO;
    modes.iter().enumerate().all(|(i, (s, d, _))| {
        reach = &reach + (s - 1) * d;
        let span = s * d;
        match modes.get(i + 1) {
            None => goes_on || reach.is_lt(&span),
            // The modes up to here do not reach the next stride, so they form a group of their own.
            Some((_, next, _)) if reach.is_lt(next) => std::mem::replace(&mut reach, Int::ZERO).is_lt(&span),
            Some((_, next, _)) => next.is_le(&span),
        }
    })
}

impl Layout {
    /// A layout that undoes this one from the right, as far as its offsets are contiguous from 0.
    ///
    /// Post: `self(result(i)) == i` for all i in the size of the result.
    ///
    /// # Errors
    /// Fails if a number leaves 64 bits.
    pub fn right_inverse(&self) -> Result<Layout> {
        let (mut fixed, mut symbolic): (Vec<_>, Vec<_>) =
            with_prefix_products(self)?.into_iter().partition(|(_, d, _)| d.as_const().is_some());
        exchange_sort(&mut fixed, |(_, d, _)| d.as_const().unwrap_or(0));
        let mut result: Flat = Flat::from_iter([(Int::ONE, Int::ZERO)]);
        let mut next = Int::ONE;
        let mut chain = |(s, d, prefix): (Int, Int, Int)| {
            next = &s * d;
            result.push((s, prefix));
            next.clone()
        };
        let mut expected = Int::ONE;
        for mode in fixed {
            if mode.1 == expected {
                expected = chain(mode);
            }
        }
        // A symbolic stride fits if it is exactly the expected expression.
        while let Some(at) = symbolic.iter().position(|(_, d, _)| *d == expected) {
            expected = chain(symbolic.remove(at));
        }
        from_flat(result).coalesce()
    }

    /// A layout that undoes this one from the left. For a layout that is not injective it is a
    /// quasi-inverse.
    ///
    /// Post: `self(result(self(i))) == self(i)` for all i in the size of this layout.
    ///
    /// # Errors
    /// Fails if strides are negative, if one is not a multiple of those below it, if modes overlap
    /// such that no layout is an inverse, or if the order of the strides cannot be proven.
    pub fn left_inverse(&self) -> Result<Layout> {
        const NAME: &str = "left_inverse";
        let mut modes = with_prefix_products(self)?;
        if let Some((_, d, _)) = modes.iter().find(|(_, d, _)| d.lower_bound() < 0) {
            return invalid(NAME, format!("{self} has stride {d}, which is or may be negative"));
        }
        if modes.iter().all(|(_, d, _)| d.as_const().is_some()) {
            exchange_sort(&mut modes, |(_, d, _)| d.as_const().unwrap_or(0));
        } else {
            let mut sorted = Vec::with_capacity(modes.len());
            while !modes.is_empty() {
                let least = (0..modes.len()).find(|&i| modes.iter().all(|m| modes[i].1.is_le(&m.1)));
                let Some(at) = least else {
                    let condition = format!("the strides of {self} have an order");
                    return Err(LayoutError::NotProvable {
                        function: NAME,
                        mode: Mode::default(),
                        condition,
                    });
                };
                sorted.push(modes.remove(at));
            }
            modes = sorted;
        }
        let Some((last_extent, _, last_prefix)) = modes.last().cloned() else { return Ok(Layout::one()) };
        let goes_on = flat(self).last().is_some_and(|(s, _)| !s.is(1));
        let outermost = goes_on && modes.iter().all(|(_, _, prefix)| prefix.is_le(&last_prefix));
        if !digits_exist(&modes, outermost) {
            return invalid(
                NAME,
                format!("modes of {self} overlap, or cannot be proven not to, so it has no inverse"),
            );
        }
        let (mut shape, mut stride, mut span) = (vec![], vec![Int::ZERO], Int::ONE);
        for (i, (_, d, prefix)) in modes.into_iter().enumerate() {
            if d.is(0) {
                continue;
            }
            if !d.is_divisible_by(&span) {
                let (function, mode) = (NAME, Mode(vec![i]));
                return Err(match (d.as_const(), span.as_const()) {
                    (Some(_), Some(_)) => LayoutError::NotDivisible { function, mode, value: d, by: span },
                    _ => {
                        let condition = format!("stride {d} is divisible by {span}");
                        LayoutError::NotProvable { function, mode, condition }
                    }
                });
            }
            shape.push(d.floor_div(&span));
            stride.push(prefix);
            span = d;
        }
        shape.push(last_extent);
        from_flat(shape.into_iter().zip(stride).collect()).coalesce()
    }

    /// The layout of the indices that this layout maps to 0: its modes of stride 0.
    ///
    /// Post: `self(result(i)) == 0` for all i in the size of the result; `size(result) == size(self) /
    /// size(filter(self))`.
    ///
    /// # Errors
    /// Fails if a number leaves 64 bits.
    pub fn nullspace(&self) -> Result<Layout> {
        let (mut modes, mut prefix) = (Flat::new(), Int::ONE);
        for_each_mode(self.shape(), self.stride(), &mut |s, d| {
            let next = &prefix * s;
            let here = std::mem::replace(&mut prefix, next);
            if d.is(0) {
                // Compact strides are 0 along extents of 1.
                modes.push((s.clone(), if s.is(1) { Int::ZERO } else { here }));
            }
        });
        from_flat(modes).checked("nullspace")
    }
}
