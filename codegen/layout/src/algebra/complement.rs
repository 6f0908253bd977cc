//! Complement: the layout of the repetitions of another.

use super::coalesce::{Flat, flat, from_flat};
use crate::error::{Mode, invalid};
use crate::{Int, IntTuple, Layout, LayoutError, Result};

fn not_provable<T>(condition: String) -> Result<T> {
    Err(LayoutError::NotProvable { function: "complement", mode: Mode::default(), condition })
}

/// Removes the first mode whose stride is the least.
fn pop_least(modes: &mut Flat) -> Result<(Int, Int)> {
    let least = |i: &usize| modes.iter().all(|(_, d)| modes[*i].1.is_le(d));
    match (0..modes.len()).find(least) {
        Some(at) => Ok(modes.remove(at)),
        None => {
            let strides: Vec<String> = modes.iter().map(|(_, d)| d.to_string()).collect();
            not_provable(format!("one of the strides {} is the least", strides.join(", ")))
        }
    }
}

/// The complement, together with a stride that is not a multiple of the span of the modes below it,
/// if there is one. In that case some offsets belong neither to the layout nor to its complement.
pub(crate) fn complement_with_gap(
    layout: &Layout,
    cotarget: &IntTuple,
) -> Result<(Layout, Option<(Int, Int)>)> {
    if let Some(negative) = cotarget.leaves().iter().find(|n| n.as_const().is_some_and(|n| n < 0)) {
        return invalid(
            "complement",
            format!("the codomain has {negative} elements, but a size is never negative"),
        );
    }
    let filtered = layout.filter()?;
    let mut modes = flat(&filtered);
    if let [(_, d)] = modes.as_slice()
        && d.is(0)
    {
        return Ok((Layout::col_major(cotarget.product())?, None));
    }
    let (mut result, mut span, mut gap) = (Flat::new(), Int::ONE, None);
    while !modes.is_empty() {
        let (s, d) = pop_least(&mut modes)?;
        if !span.is_le(&d) {
            if d.as_const().is_some() && span.as_const().is_some() {
                return Err(LayoutError::Overlap { layout: filtered.to_string(), stride: d, span });
            }
            return not_provable(format!("stride {d} is at least {span}, the span of the modes below it"));
        }
        if gap.is_none() && !d.is_divisible_by(&span) {
            gap = Some((d.clone(), span.clone()));
        }
        let next = &d * &s;
        result.push((d.floor_div(&span), std::mem::replace(&mut span, next)));
    }
    let rest = cotarget.ceil_div(&span.clone().into())?.product();
    let stride = if rest.is(1) { Int::ZERO } else { span };
    result.push((rest, stride));
    Ok((from_flat(result).coalesce()?.checked("complement")?, gap))
}

impl Layout {
    /// The layout of the repetitions of this one that together fill a codomain of `cotarget` elements.
    ///
    /// Post: ordered, `result(i-1) < result(i)`; disjoint, `result(i) != self(j)` for all i > 0 and all j;
    /// `cosize((self, result)) >= size(cotarget)`.
    ///
    /// # Errors
    /// Fails if modes overlap or strides are negative, or if their order cannot be proven.
    pub fn complement(&self, cotarget: &IntTuple) -> Result<Layout> {
        Ok(complement_with_gap(self, cotarget)?.0)
    }

    /// The complement in the layout's own codomain, which describes the holes between its offsets.
    ///
    /// Post: that of [`Layout::complement`] with `cotarget = cosize(filter(self))`.
    ///
    /// # Errors
    /// Fails where [`Layout::complement`] fails.
    pub fn complement_self(&self) -> Result<Layout> {
        self.complement(&self.filter()?.cosize().into())
    }
}
