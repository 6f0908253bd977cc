//! Coalesce and filter: the same function with fewer modes.

use smallvec::SmallVec;

use crate::layout::for_each_mode;
use crate::modes::Modes;
use crate::{Int, IntTuple, Layout, LayoutError, Result};

/// A layout of depth 1 or less as pairs of extent and stride.
pub(crate) type Flat = SmallVec<[(Int, Int); 6]>;

pub(crate) fn flat(layout: &Layout) -> Flat {
    let mut modes = Flat::new();
    for_each_mode(layout.shape(), layout.stride(), &mut |s, d| modes.push((s.clone(), d.clone())));
    modes
}

/// The layout of `modes`. A single mode is not wrapped in a tuple, and no modes give `1:0`.
pub(crate) fn from_flat(mut modes: Flat) -> Layout {
    match modes.len() {
        0 => Layout::one(),
        1 => {
            let (s, d) = modes.swap_remove(0);
            Layout::raw(s.into(), d.into())
        }
        _ => {
            let (shape, stride) =
                modes.into_iter().map(|(s, d)| (IntTuple::Int(s), IntTuple::Int(d))).unzip();
            Layout::raw(IntTuple::Tuple(shape), IntTuple::Tuple(stride))
        }
    }
}

/// Merges each mode with the one to its right if the left mode's extent times its stride is the
/// right mode's stride, and drops extents of 1. `last` is the extent that stands for an extent of 1
/// in the last mode.
fn merge(modes: Flat, last: &Int) -> Flat {
    let mut out = Flat::new();
    for (i, (s, d)) in modes.into_iter().rev().enumerate() {
        if i == 0 {
            out.push(if s.is(1) { (last.clone(), d) } else { (s, d) });
            continue;
        }
        if s.is(1) {
            continue;
        }
        match out.last_mut() {
            Some(front) if front.0.is(1) => *front = (s, d),
            Some(front) if &s * &d == front.1 => *front = (&s * &front.0, d),
            _ => out.push((s, d)),
        }
    }
    out.reverse();
    out
}

/// The coalesced modes of a function that also agrees outside the domain. An extent of 1 in the
/// last mode keeps its stride, because the layout continues with that stride.
pub(crate) fn coalesce_beyond(layout: &Layout) -> Flat {
    merge(flat(layout), &Int::from(2))
}

impl Layout {
    /// Merges adjacent modes where that is possible, and drops extents of 1. The result is the same function
    /// of an index.
    ///
    /// Post: `size(result) == size(self)`; `depth(result) <= 1`; `result(i) == self(i)` for all i in the size.
    ///
    /// # Errors
    /// Fails if a product leaves 64 bits.
    pub fn coalesce(&self) -> Result<Layout> {
        let modes = merge(flat(self), &Int::ONE);
        let unit = modes.len() == 1 && modes[0].0.is(1);
        if unit { Ok(Layout::one()) } else { from_flat(modes).checked("coalesce") }
    }

    /// [`coalesce`](Layout::coalesce) applied to the modes that are leaves of `profile`.
    ///
    /// Post: weakly congruent with `profile`; `result(c) == self(c)` for all coordinates c of `profile`.
    ///
    /// # Errors
    /// Fails if `profile` has more modes than the layout.
    pub fn coalesce_by(&self, profile: &IntTuple) -> Result<Layout> {
        self.by_profile(profile, "coalesce", &Layout::coalesce)
    }

    fn by_profile(
        &self,
        profile: &IntTuple,
        function: &'static str,
        f: &dyn Fn(&Layout) -> Result<Layout>,
    ) -> Result<Layout> {
        let Some(profiles) = profile.as_tuple() else { return f(self) };
        let mut modes = self.modes();
        if profiles.len() > modes.len() {
            return Err(LayoutError::ProfileMismatch {
                function,
                what: "profile",
                given: profile.to_string(),
                against: self.to_string(),
                expected: "it may not have more modes than the layout",
            });
        }
        for (i, (mode, profile)) in modes.iter_mut().zip(profiles).enumerate() {
            *mode = mode.by_profile(profile, function, f).map_err(|e| e.inside(i))?;
        }
        Layout::from_modes(modes).checked(function)
    }

    /// The layout with extent 1 wherever the stride is the constant 0.
    ///
    /// Post: congruent with the argument; the same set of offsets.
    pub fn filter_zeros(&self) -> Layout {
        Layout::raw(ones_under_zeros(self.stride(), self.shape()), self.stride().clone())
    }

    /// The layout with extent 1 in every mode under a constant 0 of `profile`.
    ///
    /// Post: congruent with the argument.
    ///
    /// # Errors
    /// Fails if `profile` is not weakly congruent with the layout.
    pub fn filter_zeros_by(&self, profile: &IntTuple) -> Result<Layout> {
        if !profile.is_weakly_congruent(self.shape()) {
            return Err(LayoutError::ProfileMismatch {
                function: "filter_zeros",
                what: "profile",
                given: profile.to_string(),
                against: self.to_string(),
                expected: "it must be weakly congruent with the layout",
            });
        }
        Ok(Layout::raw(ones_under_zeros(profile, self.shape()), self.stride().clone()))
    }

    /// The layout without strides of 0 and extents of 1, coalesced; `1:0` if nothing is left.
    ///
    /// Post: the same set of offsets; no stride of 0 unless the result is `1:0`.
    ///
    /// # Errors
    /// Fails if a product leaves 64 bits.
    pub fn filter(&self) -> Result<Layout> {
        self.filter_zeros().coalesce()
    }

    /// [`filter`](Layout::filter) applied to the modes that are leaves of `profile`.
    ///
    /// # Errors
    /// Fails if `profile` has more modes than the layout.
    pub fn filter_by(&self, profile: &IntTuple) -> Result<Layout> {
        self.by_profile(profile, "filter", &Layout::filter)
    }
}

/// `shape` with 1 for every leaf under a constant 0 of `profile`. The profile is weakly congruent
/// with the shape.
fn ones_under_zeros(profile: &IntTuple, shape: &IntTuple) -> IntTuple {
    match (profile, shape) {
        (IntTuple::Tuple(p), IntTuple::Tuple(s)) => {
            IntTuple::Tuple(p.iter().zip(s).map(|(p, s)| ones_under_zeros(p, s)).collect())
        }
        (IntTuple::Int(p), _) if p.is(0) => shape.map(&mut |_| Int::ONE),
        _ => shape.clone(),
    }
}
