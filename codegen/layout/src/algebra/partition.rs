//! Partitions: the tile of a block and the elements of a thread.

use crate::coord::{Coord, dice};
use crate::modes::{Modes, product_each, repeat};
use crate::{Int, Layout, Result, Tiler};

/// A layout divided by a tiler, and the coordinate that selects one part of it.
pub(crate) struct Cut {
    pub(crate) tiled: Layout,
    pub(crate) coord: Coord,
}

/// The mode of a zipped division to which the coordinate applies.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Side {
    Tile,
    Rest,
}

/// Divides the layout and places `coord` on one side and `_` on the other. A tuple is filled up
/// with `_`.
pub(crate) fn cut(layout: &Layout, tiler: &Tiler, coord: &Coord, side: Side) -> Result<Cut> {
    let tiled = layout.zipped_divide(tiler)?;
    let rank = |i| tiled.mode(i).map_or(1, |m| m.rank());
    let (here, other) = if side == Side::Tile { (0, 1) } else { (1, 0) };
    let coord = match coord {
        Coord::Tuple(_) => coord.append_to(rank(here), Coord::All)?,
        _ => coord.clone(),
    };
    let mut parts = vec![coord, repeat(rank(other), Coord::All)];
    if side == Side::Rest {
        parts.reverse();
    }
    Ok(Cut { tiled, coord: Coord::Tuple(parts) })
}

/// The tiler and the coordinate of the thread with index `index` in `threads`.
pub(crate) fn thread_tile(threads: &Layout, index: &Int) -> Result<(Tiler, Coord)> {
    let coord = threads.flat_coord(index)?;
    Ok((Tiler::from(&product_each(threads.shape())), Coord::from(&coord)))
}

impl Layout {
    /// Slices the elements of one tile: divides the layout by `tiler`, and picks the tile with `coord`.
    /// Returns the tile's layout and its offset.
    ///
    /// Post: the results over all `coord` are a partition of the padded layout.
    ///
    /// # Errors
    /// Fails where [`Layout::zipped_divide`] fails, or if `coord` does not fit the rest of the division.
    pub fn inner_partition(&self, tiler: &Tiler, coord: &Coord) -> Result<(Layout, Int)> {
        let Cut { tiled, coord } = cut(self, tiler, coord, Side::Rest)?;
        tiled.slice_and_offset(&coord)
    }

    /// Slices the elements at one position of every tile: divides the layout by `tiler`, and picks the
    /// position with `coord`. Returns the layout over the tiles and its offset.
    ///
    /// Post: the results over all `coord` are a partition of the padded layout.
    ///
    /// # Errors
    /// Fails where [`Layout::zipped_divide`] fails, or if `coord` does not fit the tile.
    pub fn outer_partition(&self, tiler: &Tiler, coord: &Coord) -> Result<(Layout, Int)> {
        let Cut { tiled, coord } = cut(self, tiler, coord, Side::Tile)?;
        tiled.slice_and_offset(&coord)
    }

    /// The tile at `coord`, as usual for a block: [`inner_partition`](Layout::inner_partition).
    /// With a projection, only those modes of the tiler and the coordinate are used for which the
    /// projection has an index.
    ///
    /// # Errors
    /// Fails where [`Layout::inner_partition`] fails, or if the projection does not fit.
    pub fn local_tile(
        &self,
        tiler: &Tiler,
        coord: &Coord,
        projection: Option<&Coord>,
    ) -> Result<(Layout, Int)> {
        match projection {
            None => self.inner_partition(tiler, coord),
            Some(p) => self.inner_partition(&dice(p, tiler)?, &dice(p, coord)?),
        }
    }

    /// The elements of the thread with index `index` in `threads`, as usual for a thread in a
    /// block: [`outer_partition`](Layout::outer_partition) by the extents of `threads`. With a
    /// projection, only those modes of `threads` are used for which the projection has an index.
    ///
    /// # Errors
    /// Fails where [`Layout::outer_partition`] fails, or if the projection does not fit.
    pub fn local_partition(
        &self,
        threads: &Layout,
        index: &Int,
        projection: Option<&Coord>,
    ) -> Result<(Layout, Int)> {
        let threads = match projection {
            None => threads.clone(),
            Some(p) => dice(p, threads)?,
        };
        let (tiler, coord) = thread_tile(&threads, index)?;
        self.outer_partition(&tiler, &coord)
    }
}
