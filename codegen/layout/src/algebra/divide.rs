//! Division: a layout split into tiles and the layout of the tiles.

use super::complement::complement_with_gap;
use super::composition::{Guarantee, check_tiler_rank, compose_guaranteed};
use crate::coord::{Coord, slice};
use crate::error::Mode;
use crate::modes::{Modes, repeat};
use crate::{Layout, LayoutError, Result, Tiler};

/// The modes of a layout of `(tile, rest)` modes, gathered along the profile of the tiler into tile and rest.
pub(crate) fn unzip_by(layout: &Layout, tiler: &Tiler, function: &'static str) -> Result<(Layout, Layout)> {
    let modes = layout.modes();
    match tiler {
        Tiler::Tuple(tilers) => {
            check_tiler_rank(function, tiler, layout)?;
            let (mut tile, mut rest) = (Vec::new(), Vec::new());
            for (i, (mode, t)) in modes.iter().zip(tilers).enumerate() {
                let (a, b) = unzip_by(mode, t, function).map_err(|e| e.inside(i))?;
                tile.push(a);
                rest.push(b);
            }
            rest.extend_from_slice(&modes[tilers.len()..]);
            Ok((Layout::from_modes(tile), Layout::from_modes(rest)))
        }
        _ => match <[Layout; 2]>::try_from(modes) {
            Ok([tile, rest]) => Ok((tile, rest)),
            Err(_) => Err(LayoutError::ProfileMismatch {
                function,
                what: "tiler",
                given: tiler.to_string(),
                against: layout.to_string(),
                expected: "a mode that is not divided must itself be of rank 2",
            }),
        },
    }
}

/// `((tile..),(rest..))` with the rest unpacked, and also the tile if `flat` is set.
pub(crate) fn unpack(zipped: &Layout, flat: bool) -> Result<Layout> {
    let rank = |i| zipped.mode(i).map_or(1, |m| m.rank());
    let tile = if flat { repeat(rank(0), Coord::All) } else { Coord::All };
    slice(&Coord::Tuple(vec![tile, repeat(rank(1), Coord::All)]), zipped)
}

impl Layout {
    /// Splits the layout, by mode if the tiler is a tuple, into the elements that the tiler selects
    /// and the layout of its repetitions: `(tile, rest)`.
    ///
    /// Post: the tiler is compatible with mode 0; every element of this layout is an element of the
    /// result. If the tile divides the layout, the result has no other elements. Otherwise each
    /// mode is padded to a multiple of the tile.
    ///
    /// # Errors
    /// Fails where [`Layout::composition`] or [`Layout::complement`] fails, or if the tiler and its
    /// repetitions leave a hole or would miss an element.
    pub fn logical_divide(&self, tiler: &Tiler) -> Result<Layout> {
        const NAME: &str = "logical_divide";
        let tile = match tiler {
            Tiler::All => return Ok(self.clone()),
            Tiler::Int(n) => Layout::col_major(n.clone())?,
            Tiler::Layout(tile) => tile.clone(),
            Tiler::Tuple(tilers) => {
                check_tiler_rank(NAME, tiler, self)?;
                let mut modes = self.modes();
                for (i, (mode, t)) in modes.iter_mut().zip(tilers).enumerate() {
                    *mode = mode.logical_divide(t).map_err(|e| e.inside(i))?;
                }
                return Layout::from_modes(modes).checked(NAME);
            }
        };
        let (rest, gap) = complement_with_gap(&tile, self.coalesce()?.shape())?;
        if let Some((value, by)) = gap {
            return Err(LayoutError::NotDivisible { function: NAME, mode: Mode::default(), value, by });
        }
        compose_guaranteed(self, &Layout::from_modes(vec![tile, rest]), Guarantee::Covering)
    }

    /// The division with tile modes and rest modes gathered: `((tile..),(rest..))`.
    ///
    /// Post: rank 2; the elements of [`Layout::logical_divide`].
    ///
    /// # Errors
    /// Fails where [`Layout::logical_divide`] fails.
    pub fn zipped_divide(&self, tiler: &Tiler) -> Result<Layout> {
        let divided = self.logical_divide(tiler)?;
        let (tile, rest) = unzip_by(&divided, tiler, "zipped_divide")?;
        Layout::from_modes(vec![tile, rest]).checked("zipped_divide")
    }

    /// The division with the rest modes unpacked: `((tile..),rest..)`.
    ///
    /// Post: the elements of [`Layout::logical_divide`].
    ///
    /// # Errors
    /// Fails where [`Layout::logical_divide`] fails.
    pub fn tiled_divide(&self, tiler: &Tiler) -> Result<Layout> {
        unpack(&self.zipped_divide(tiler)?, false)
    }

    /// The division with all modes unpacked: `(tile..,rest..)`.
    ///
    /// Post: the elements of [`Layout::logical_divide`].
    ///
    /// # Errors
    /// Fails where [`Layout::logical_divide`] fails.
    pub fn flat_divide(&self, tiler: &Tiler) -> Result<Layout> {
        unpack(&self.zipped_divide(tiler)?, true)
    }

    /// A layout of `(tile, rest)` modes gathered along the profile of a tiler: `((tile..),(rest..))`.
    ///
    /// Post: rank 2; the same elements.
    ///
    /// # Errors
    /// Fails if the tiler has more modes than the layout, or a mode it does not divide is not of rank 2.
    pub fn tile_unzip(&self, tiler: &Tiler) -> Result<Layout> {
        let (tile, rest) = unzip_by(self, tiler, "tile_unzip")?;
        Layout::from_modes(vec![tile, rest]).checked("tile_unzip")
    }
}
