//! The composition of two layouts, which applies one after the other.
//!
//! The left-hand side is coalesced first. The result is a mixed-radix number system whose digits
//! are its modes. Each integral mode `s:d` of the right-hand side then takes whole digits, or an
//! even part of one. CuTe asserts, mode by mode, that the strides and extents permit this. CuTe
//! does not assert two further conditions. Several modes of the right-hand side must not carry from
//! one digit into the next. A part taken of a digit must divide that digit before the next digit
//! begins. If either condition fails, CuTe's result is a layout but not the composition. This
//! module checks both conditions as well.

use smallvec::SmallVec;

use super::coalesce::{Flat, coalesce_beyond, flat};
use crate::error::Mode;
use crate::modes::Modes;
use crate::{Int, IntTuple, Layout, LayoutError, Result, Tiler};

/// The property that a composition must have.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Guarantee {
    /// `result(c) == lhs(rhs(c))` for all c.
    Exact,
    /// `Exact`, or, if a tile does not divide a mode, that every element of the left-hand side is
    /// reached. Each mode is then padded to a multiple of the tile. Divisions promise this.
    Covering,
    /// Only the conditions that CuTe asserts.
    Asserted,
}

/// The part of one digit that one mode of the right-hand side takes.
struct Piece {
    digit: usize,
    extent: Int,
    /// Always positive.
    step: Int,
    /// Whether the piece takes all of the digit that its step leaves.
    filled: bool,
}

/// The parts of the left-hand side's digits that the modes of the right-hand side take.
#[derive(Default)]
struct TakenDigits {
    pieces: SmallVec<[Piece; 8]>,
    leaves: usize,
    /// Whether some strides are positive, and whether some are negative.
    signs: (bool, bool),
    /// The first digit left with a remainder.
    uneven: Option<LayoutError>,
}

impl TakenDigits {
    fn take(&mut self, digit: usize, extent: &Int, step: &Int, filled: bool) {
        if !extent.is(1) {
            self.pieces.push(Piece { digit, extent: extent.clone(), step: step.clone(), filled });
        }
    }

    /// The pieces of a digit.
    fn of(&self, digit: usize) -> impl Iterator<Item = &Piece> {
        self.pieces.iter().filter(move |p| p.digit == digit)
    }

    /// Checks that the digits add up without a carry. An error says which one carries.
    fn no_carry(&self, lhs: &Flat) -> Result<()> {
        let last = lhs.len() - 1;
        if self.leaves <= 1 || last == 0 {
            return Ok(());
        }
        if self.signs == (true, true) && self.pieces.iter().any(|p| p.digit != self.pieces[0].digit) {
            return Err(LayoutError::Invalid {
                function: "composition",
                reason: "the right-hand side mixes positive and negative strides over several modes of the left-hand \
                         side"
                    .into(),
            });
        }
        for (k, (extent, _)) in lhs[..last].iter().enumerate() {
            let reach = self.of(k).fold(Int::ZERO, |sum, p| sum + (&p.extent - 1) * &p.step);
            if reach.is(0) || reach.is_lt(extent) {
                continue;
            }
            return Err(match (reach.as_const(), extent.as_const()) {
                (Some(_), Some(_)) => LayoutError::Carry { mode: k, reach, extent: extent.clone() },
                _ => not_provable(format!(
                    "the right-hand side, which reaches {reach}, stays below extent {extent} of the left-hand side"
                )),
            });
        }
        Ok(())
    }

    /// Whether the pieces of every digit enumerate it from 0 without gaps or repetitions.
    fn covers(&self, extents: &[Int]) -> bool {
        extents.iter().enumerate().all(|(digit, extent)| {
            let mut left: Vec<&Piece> = self.of(digit).collect();
            let (mut next, mut filled) = (Int::ONE, false);
            while let Some(at) = left.iter().position(|p| p.step == next) {
                let piece = left.swap_remove(at);
                next = next * &piece.extent;
                filled = piece.filled;
            }
            left.is_empty() && (filled || extent.is_le(&next))
        })
    }
}

fn not_provable(condition: String) -> LayoutError {
    LayoutError::NotProvable { function: "composition", mode: Mode::default(), condition }
}

/// `lhs o extent:stride` for an integral mode.
fn compose_mode(
    lhs: &Flat,
    extent: &Int,
    stride: &Int,
    taken: &mut TakenDigits,
) -> Result<(IntTuple, IntTuple)> {
    taken.leaves += 1;
    let last = lhs.len() - 1;
    if stride.is(0) {
        return Ok((extent.into(), stride.into()));
    }
    if last == 0 {
        taken.take(0, extent, stride, false);
        return Ok((extent.into(), (stride * &lhs[0].1).into()));
    }
    let sign = stride.sign().ok_or_else(|| not_provable(format!("stride {stride} is not 0")))?;
    if sign < 0 {
        taken.signs.1 = true
    } else {
        taken.signs.0 = true
    }
    let constants = |a: &Int, b: &Int| a.as_const().is_some() && b.as_const().is_some();

    let (mut rest, mut step) = (extent.clone(), stride * sign);
    let mut result = Flat::new();
    for (k, (s, d)) in lhs[..last].iter().enumerate() {
        let skips = step.is_divisible_by(s);
        let within = step.is(1) || step.is_le(s);
        if !skips && !within {
            if constants(&step, s) {
                return Err(LayoutError::StrideDivisibility {
                    mode: Mode::default(),
                    stride: step,
                    extent: s.clone(),
                });
            }
            if !rest.is(1) {
                return Err(not_provable(format!("stride {step} is a multiple of extent {s}, or below it")));
            }
        }
        if skips {
            step = step.floor_div(s);
            continue;
        }
        if !rest.is(1) {
            let available = s.ceil_div(&step);
            let ends = rest.is_le(&available);
            if !ends && !rest.is_divisible_by(&available) {
                if constants(&rest, &available) {
                    return Err(uneven(&rest, &step, s));
                }
                return Err(not_provable(format!(
                    "extent {rest} is a multiple of {available}, or not above it"
                )));
            }
            let filled = !ends || rest == available;
            let take = if ends { rest.clone() } else { available };
            rest = if ends { Int::ONE } else { rest.floor_div(&take) };
            if !ends && !rest.is(1) && !step.is(1) && !s.is_divisible_by(&step) {
                let error = if constants(s, &step) {
                    uneven(&(&rest * &take), &step, s)
                } else {
                    not_provable(format!("stride {step} divides extent {s}"))
                };
                taken.uneven.get_or_insert(error);
            }
            taken.take(k, &take, &step, filled);
            result.push((take, &step * sign * d));
        }
        // A step below this extent rounds up to single steps of the next extent.
        step = if within { Int::ONE } else { step.ceil_div(s) };
    }
    taken.take(last, &rest, &step, false);
    if result.is_empty() || !rest.is(1) {
        result.push((rest, step * sign * &lhs[last].1));
    }
    let (shape, stride) = super::coalesce::from_flat(result).into_parts();
    Ok((shape, stride))
}

fn uneven(extent: &Int, stride: &Int, by: &Int) -> LayoutError {
    LayoutError::ShapeDivisibility {
        mode: Mode::default(),
        extent: extent.clone(),
        stride: stride.clone(),
        by: by.clone(),
    }
}

fn compose(
    lhs: &Flat,
    shape: &IntTuple,
    stride: &IntTuple,
    taken: &mut TakenDigits,
) -> Result<(IntTuple, IntTuple)> {
    match (shape, stride) {
        (IntTuple::Int(s), IntTuple::Int(d)) => compose_mode(lhs, s, d, taken),
        _ => {
            let modes = shape.as_modes().iter().zip(stride.as_modes()).enumerate();
            let mut out = (Vec::with_capacity(shape.rank()), Vec::with_capacity(shape.rank()));
            for (i, (s, d)) in modes {
                let (s, d) = compose(lhs, s, d, taken).map_err(|e| e.inside(i))?;
                out.0.push(s);
                out.1.push(d);
            }
            Ok((IntTuple::Tuple(out.0), IntTuple::Tuple(out.1)))
        }
    }
}

pub(crate) fn compose_guaranteed(lhs: &Layout, rhs: &Layout, guarantee: Guarantee) -> Result<Layout> {
    let mut modes = coalesce_beyond(lhs);
    if modes.is_empty() {
        modes.push((Int::ONE, Int::ZERO));
    }
    let mut taken = TakenDigits::default();
    let (shape, stride) = compose(&modes, rhs.shape(), rhs.stride(), &mut taken)?;
    let exact = match taken.uneven.take() {
        Some(error) => Err(error),
        None => taken.no_carry(&modes),
    };
    if let Err(error) = exact {
        let enough = match guarantee {
            Guarantee::Exact => false,
            Guarantee::Covering => taken.covers(&extents(lhs, &modes)),
            Guarantee::Asserted => true,
        };
        if !enough {
            return Err(error);
        }
    }
    Layout::raw(shape, stride).checked("composition")
}

/// The extents of the coalesced modes of `layout`. They do not include the extension that
/// `coalesce_beyond` gives to a last extent of 1.
fn extents(layout: &Layout, modes: &Flat) -> Vec<Int> {
    let mut extents: Vec<Int> = modes.iter().map(|(s, _)| s.clone()).collect();
    if let (Some((s, _)), Some(last)) = (flat(layout).last(), extents.last_mut())
        && s.is(1)
    {
        *last = last.floor_div(&Int::from(2));
    }
    extents
}

impl Layout {
    /// The composition of this layout with `rhs`, which is applied first.
    ///
    /// Post: `rhs.shape()` is compatible with `result.shape()`; `result(c) == self(rhs(c))` for all coordinates c of
    /// `rhs`.
    ///
    /// # Errors
    /// Fails if a stride or extent of `rhs` does not step through the modes of the coalesced `self` evenly,
    /// if modes of `rhs` together carry from one of them into the next, or if either cannot be proven of
    /// symbolic values.
    pub fn composition(&self, rhs: &Layout) -> Result<Layout> {
        compose_guaranteed(self, rhs, Guarantee::Exact)
    }

    /// The composition with a tiler: by mode where it is a tuple, dropping the modes it does not reach.
    ///
    /// Post: `rank(result) == rank(tiler)` for a tuple, and each mode is the composition of the modes.
    ///
    /// # Errors
    /// Fails if the tiler has more modes than the layout, or where [`Layout::composition`] fails.
    pub fn compose(&self, tiler: &Tiler) -> Result<Layout> {
        match tiler {
            Tiler::All => Ok(self.clone()),
            Tiler::Int(n) => self.composition(&Layout::new(n, 1)?),
            Tiler::Layout(rhs) => self.composition(rhs),
            Tiler::Tuple(tilers) => {
                let modes = self.modes();
                check_tiler_rank("composition", tiler, self)?;
                let parts = modes.iter().zip(tilers).enumerate();
                let parts = parts.map(|(i, (mode, t))| mode.compose(t).map_err(|e| e.inside(i)));
                Layout::from_modes(parts.collect::<Result<_>>()?).checked("composition")
            }
        }
    }

    /// The layout as a function of coordinates of another shape.
    ///
    /// Post: `shape` is compatible with `result.shape()`; `result(i) == self(i)` for all i in its size.
    ///
    /// # Errors
    /// Fails where [`Layout::composition`] fails.
    pub fn with_shape(&self, shape: &IntTuple) -> Result<Layout> {
        self.composition(&Layout::col_major(shape.clone())?)
    }
}

/// An error if a tuple of tilers has more modes than the layout it is applied to.
pub(crate) fn check_tiler_rank(function: &'static str, tiler: &Tiler, layout: &Layout) -> Result<()> {
    match tiler {
        Tiler::Tuple(t) if t.len() > layout.rank() => Err(LayoutError::ProfileMismatch {
            function,
            what: "tiler",
            given: tiler.to_string(),
            against: layout.to_string(),
            expected: "it may not have more modes than the layout",
        }),
        _ => Ok(()),
    }
}
