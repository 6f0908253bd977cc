//! Coordinates, and the maps between coordinates and indices.

use std::fmt::{self, Display, Formatter};

use crate::modes::{Modes, repeat};
use crate::{Int, IntTuple, Layout, LayoutError, Result};

/// A coordinate in which `_` keeps a whole mode.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Coord {
    /// One index into a mode.
    Int(Int),
    /// `_`, which keeps the whole mode.
    All,
    /// Coordinates of the modes.
    Tuple(Vec<Coord>),
}

impl Coord {
    /// Whether a mode is kept anywhere.
    pub fn has_all(&self) -> bool {
        match self {
            Coord::Int(_) => false,
            Coord::All => true,
            Coord::Tuple(t) => t.iter().any(Coord::has_all),
        }
    }

    /// The coordinate as integers, with 0 where a mode is kept.
    pub fn origin(&self) -> IntTuple {
        match self {
            Coord::Int(i) => i.clone().into(),
            Coord::All => Int::ZERO.into(),
            Coord::Tuple(t) => IntTuple::tuple(t.iter().map(Coord::origin)),
        }
    }
}

impl From<&IntTuple> for Coord {
    fn from(t: &IntTuple) -> Self {
        match t {
            IntTuple::Int(i) => Coord::Int(i.clone()),
            IntTuple::Tuple(t) => Coord::Tuple(t.iter().map(Coord::from).collect()),
        }
    }
}

impl<T: Into<Int>> From<T> for Coord {
    fn from(v: T) -> Self {
        Coord::Int(v.into())
    }
}

impl Modes for Coord {
    fn children(&self) -> Option<Vec<Self>> {
        match self {
            Coord::Tuple(t) => Some(t.clone()),
            _ => None,
        }
    }

    fn from_modes(modes: Vec<Self>) -> Self {
        Coord::Tuple(modes)
    }
}

impl Display for Coord {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Coord::Int(i) => write!(f, "{i}"),
            Coord::All => f.write_str("_"),
            Coord::Tuple(t) => crate::tuple::write_tuple(t, f),
        }
    }
}

fn mismatch(function: &'static str, coord: &dyn Display, shape: &dyn Display) -> LayoutError {
    LayoutError::ProfileMismatch {
        function,
        what: "coordinate",
        given: coord.to_string(),
        against: shape.to_string(),
        expected: "it must be an integer, or a tuple of as many modes, at every level",
    }
}

/// The modes that a walk over a coordinate and a tree keeps.
#[derive(Clone, Copy, PartialEq)]
enum Keep {
    Sliced,
    Diced,
}

/// The kept modes under `coord`, spliced into one list. The result contains nothing else.
fn kept<T: Modes>(coord: &Coord, t: &T, keep: Keep, function: &'static str) -> Result<Vec<T>> {
    match coord {
        Coord::Tuple(c) => {
            let modes =
                t.children().filter(|m| m.len() == c.len()).ok_or_else(|| mismatch(function, coord, t))?;
            let mut out = Vec::new();
            for (c, m) in c.iter().zip(&modes) {
                out.extend(kept(c, m, keep, function)?);
            }
            Ok(out)
        }
        leaf => Ok(if (*leaf == Coord::All) == (keep == Keep::Sliced) { vec![t.clone()] } else { vec![] }),
    }
}

fn cut<T: Modes>(coord: &Coord, t: &T, keep: Keep, function: &'static str) -> Result<T> {
    let mut modes = kept(coord, t, keep, function)?;
    match coord {
        Coord::Tuple(_) => Ok(T::from_modes(modes)),
        // A bare `_` (or a bare index for `dice`) gives the tree itself, not a tuple of it.
        _ => Ok(modes.pop().unwrap_or_else(|| T::from_modes(vec![]))),
    }
}

/// The modes of `t` for which `coord` has a `_`.
///
/// # Errors
/// Fails if `coord` is not weakly congruent with `t`.
pub fn slice<T: Modes>(coord: &Coord, t: &T) -> Result<T> {
    cut(coord, t, Keep::Sliced, "slice")
}

/// The modes of `t` for which `coord` has an index.
///
/// # Errors
/// Fails if `coord` is not weakly congruent with `t`.
pub fn dice<T: Modes>(coord: &Coord, t: &T) -> Result<T> {
    cut(coord, t, Keep::Diced, "dice")
}

/// The quotient and the remainder of an index. As in CuTe, those of constants truncate, so that a
/// negative index mirrors the positive one. A symbolic index is assumed to be non-negative.
fn div_rem(a: &Int, b: &Int) -> (Int, Int) {
    if let (Some(x), Some(y)) = (a.as_const(), b.as_const())
        && let (Some(q), Some(r)) = (x.checked_div(y), x.checked_rem(y))
    {
        return (q.into(), r.into());
    }
    (a.floor_div(b), a.rem(b))
}

/// The offset at an index of a part of a layout. The last extent of the layout does not limit the
/// index.
fn offset_of_index(index: &Int, shape: &IntTuple, stride: &IntTuple) -> Int {
    match (shape, stride) {
        (IntTuple::Tuple(s), IntTuple::Tuple(d)) => {
            let (mut rest, mut sum) = (index.clone(), Int::ZERO);
            for (i, (s, d)) in s.iter().zip(d).enumerate() {
                if i + 1 == shape.rank() {
                    return sum + offset_of_index(&rest, s, d);
                }
                let (q, r) = div_rem(&rest, &s.product());
                rest = q;
                sum = sum + offset_of_index(&r, s, d);
            }
            sum
        }
        (_, IntTuple::Int(d)) => index * d,
        (IntTuple::Int(_), IntTuple::Tuple(_)) => Int::ZERO,
    }
}

fn offset(coord: &IntTuple, shape: &IntTuple, stride: &IntTuple) -> Result<Int> {
    match (coord, shape, stride) {
        (IntTuple::Int(c), ..) => Ok(offset_of_index(c, shape, stride)),
        (IntTuple::Tuple(c), IntTuple::Tuple(s), IntTuple::Tuple(d)) if c.len() == s.len() => {
            let modes = c.iter().zip(s).zip(d);
            modes.map(|((c, s), d)| offset(c, s, d)).try_fold(Int::ZERO, |sum, part| Ok(sum + part?))
        }
        _ => Err(mismatch("crd2idx", coord, shape)),
    }
}

fn defined(int: Int, function: &'static str) -> Result<Int> {
    match int.poison() {
        Some(poison) => Err(LayoutError::Arithmetic { function, poison }),
        None => Ok(int),
    }
}

/// The index of `coord` in the colexicographic order of `shape`; an integer is already one.
///
/// Post: `idx2crd(result, shape)` is congruent with `shape` and names the same element.
///
/// # Errors
/// Fails if `coord` is not weakly congruent with `shape`.
pub fn crd2idx(coord: &IntTuple, shape: &IntTuple) -> Result<Int> {
    if let IntTuple::Int(i) = coord {
        return Ok(i.clone());
    }
    let extents = shape.product_like(coord).map_err(|_| mismatch("crd2idx", coord, shape))?;
    let (coord, extents) = (coord.leaves(), extents.leaves());
    let horner = |index: Int, (c, s): (&&Int, &&Int)| *c + *s * index;
    defined(coord.iter().zip(&extents).rev().fold(Int::ZERO, horner), "crd2idx")
}

/// The coordinate of `shape` at colexicographic index `index`. The last mode is not reduced, so an
/// index past the size exceeds its extent.
///
/// Post: `crd2idx(result, shape) == index`.
///
/// # Errors
/// Fails if `index` is a tuple that is not weakly congruent with `shape`.
pub fn idx2crd(index: &IntTuple, shape: &IntTuple) -> Result<IntTuple> {
    match (index, shape) {
        (IntTuple::Int(_), IntTuple::Int(_)) => Ok(index.clone()),
        (IntTuple::Int(i), IntTuple::Tuple(s)) => {
            let mut rest = i.clone();
            let mut modes = Vec::with_capacity(s.len());
            for (k, s) in s.iter().enumerate() {
                let here = if k + 1 == shape.rank() {
                    rest.clone()
                } else {
                    let (q, r) = div_rem(&rest, &s.product());
                    rest = q;
                    r
                };
                modes.push(idx2crd(&here.into(), s)?);
            }
            IntTuple::Tuple(modes).checked("idx2crd")
        }
        (IntTuple::Tuple(i), IntTuple::Tuple(s)) if i.len() == s.len() => {
            Ok(IntTuple::Tuple(i.iter().zip(s).map(|(i, s)| idx2crd(i, s)).collect::<Result<_>>()?))
        }
        _ => Err(mismatch("idx2crd", index, shape)),
    }
}

fn hier_coord(index: &IntTuple, shape: &IntTuple, stride: &IntTuple) -> Result<IntTuple> {
    match (index, shape, stride) {
        (IntTuple::Int(i), IntTuple::Int(s), IntTuple::Int(d)) => {
            // The coordinate of a mode of one element is 0 whatever its stride is. The stride can
            // be 0.
            Ok(if s.is(1) { Int::ZERO } else { div_rem(&div_rem(i, d).0, s).1 }.into())
        }
        (IntTuple::Int(_), IntTuple::Tuple(s), IntTuple::Tuple(d)) => {
            Ok(IntTuple::Tuple(s.iter().zip(d).map(|(s, d)| hier_coord(index, s, d)).collect::<Result<_>>()?))
        }
        (IntTuple::Tuple(i), IntTuple::Tuple(s), IntTuple::Tuple(d)) if i.len() == s.len() => {
            let modes = i.iter().zip(s).zip(d).map(|((i, s), d)| hier_coord(i, s, d));
            Ok(IntTuple::Tuple(modes.collect::<Result<_>>()?))
        }
        _ => Err(mismatch("idx2crd", index, shape)),
    }
}

/// The coordinate of `to` with the index that `coord` has in `from`, mode by mode while all three are tuples.
///
/// Post: congruent with `to`; `crd2idx(result, to) == crd2idx(coord, from)`.
///
/// # Errors
/// Fails if `coord` is not weakly congruent with `from`.
pub fn crd2crd(coord: &IntTuple, from: &IntTuple, to: &IntTuple) -> Result<IntTuple> {
    match (coord, from, to) {
        (IntTuple::Tuple(c), IntTuple::Tuple(s), IntTuple::Tuple(d)) => {
            if c.len() != s.len() || c.len() != d.len() {
                return Err(mismatch("crd2crd", coord, if c.len() != s.len() { from } else { to }));
            }
            let modes = c.iter().zip(s).zip(d).map(|((c, s), d)| crd2crd(c, s, d));
            Ok(IntTuple::Tuple(modes.collect::<Result<_>>()?))
        }
        _ => idx2crd(&crd2idx(coord, from)?.into(), to),
    }
}

impl Layout {
    /// The offset of `coord`. An integer is a colexicographic index, and a tuple applies mode by
    /// mode.
    ///
    /// Post: the inner product of the natural coordinate and the stride. The last mode continues
    /// past the domain.
    ///
    /// # Errors
    /// Fails if `coord` is not weakly congruent with the shape.
    pub fn crd2idx(&self, coord: &IntTuple) -> Result<Int> {
        defined(offset(coord, self.shape(), self.stride())?, "crd2idx")
    }

    /// The natural coordinate of offset `index`, `(index / stride) % shape` in each mode.
    ///
    /// Post, for a compact layout: `crd2idx(result) == index`.
    ///
    /// # Errors
    /// Fails if a mode of more than one element has stride 0.
    pub fn idx2crd(&self, index: &IntTuple) -> Result<IntTuple> {
        hier_coord(index, self.shape(), self.stride())?.checked("idx2crd")
    }

    /// The coordinate of offset `index` with one integer for each top-level mode.
    ///
    /// # Errors
    /// Fails where [`Layout::idx2crd`] fails.
    pub fn flat_coord(&self, index: &Int) -> Result<IntTuple> {
        let coord = self.idx2crd(&index.clone().into())?;
        crd2crd(&coord, self.shape(), &repeat(self.rank(), IntTuple::from(Int::ONE)))
    }

    /// The colexicographic index of the coordinate that has offset `index`.
    ///
    /// # Errors
    /// Fails where [`Layout::idx2crd`] fails.
    pub fn coord_1d(&self, index: &Int) -> Result<Int> {
        crd2idx(&self.idx2crd(&index.clone().into())?, self.shape())
    }

    /// The sublayout of the modes for which `coord` has a `_`.
    ///
    /// Post: `result(c) + offset == self(coord with c for its _s)` for the offset of
    /// [`Layout::slice_and_offset`].
    ///
    /// # Errors
    /// Fails if `coord` is not weakly congruent with the layout.
    pub fn slice(&self, coord: &Coord) -> Result<Layout> {
        slice(coord, self)
    }

    /// The sublayout of the modes for which `coord` has an index.
    ///
    /// # Errors
    /// Fails if `coord` is not weakly congruent with the layout.
    pub fn dice(&self, coord: &Coord) -> Result<Layout> {
        dice(coord, self)
    }

    /// The slice, and the offset at which it begins.
    ///
    /// # Errors
    /// Fails if `coord` is not weakly congruent with the layout.
    pub fn slice_and_offset(&self, coord: &Coord) -> Result<(Layout, Int)> {
        Ok((self.slice(coord)?, self.crd2idx(&coord.origin())?))
    }
}
