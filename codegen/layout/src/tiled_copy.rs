//! Tiled copies: thread-value layouts that say which elements of a tile each thread copies.

use crate::coord::{Coord, slice};
use crate::error::{Mode, invalid};
use crate::modes::{Modes, product_each, repeat};
use crate::{Int, IntTuple, Layout, LayoutError, Result, Tiler};

/// A copy instruction, as three layouts from `(thread, value)` to positions: one for its source,
/// one for its destination, and one for the numbering in tiled copies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopyAtom {
    /// The position from which each thread reads each value.
    pub src: Layout,
    /// The position to which each thread writes each value.
    pub dst: Layout,
    /// The numbering of threads and values in a tiled copy's layout.
    pub reference: Layout,
}

impl CopyAtom {
    /// One thread that copies `values` adjacent elements.
    ///
    /// # Errors
    /// Fails if `values` is below 1.
    pub fn universal(values: i64) -> Result<CopyAtom> {
        crate::algebra::recast::check_factor("copy_atom", values)?;
        let layout = Layout::new(IntTuple::tuple([1, values]), IntTuple::tuple([0, i64::from(values != 1)]))?;
        Ok(CopyAtom { src: layout.clone(), dst: layout.clone(), reference: layout })
    }
}

/// An end of a copy: its source or its destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The source of the copy.
    Source,
    /// The destination of the copy.
    Destination,
}

/// A tile and the layout that says which thread copies which of its elements.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TiledCopy {
    atom: CopyAtom,
    layout_tv: Layout,
    tiler: Tiler,
}

impl TiledCopy {
    /// The tiled copy of `atom` with `(thread, value)` layout `layout_tv` onto the tile that `tiler` selects.
    ///
    /// # Errors
    /// Fails if `layout_tv` is not of rank 2, or has fewer threads or values than the atom, or no multiple of
    /// them.
    pub fn new(atom: CopyAtom, layout_tv: Layout, tiler: Tiler) -> Result<TiledCopy> {
        if layout_tv.rank() != 2 || atom.reference.rank() != 2 {
            return invalid("tiled_copy", format!("{layout_tv} and {} must be of rank 2", atom.reference));
        }
        for i in 0..2 {
            let size = |l: &Layout| l.mode(i).map_or(Int::ONE, |m| m.size());
            let (value, by) = (size(&layout_tv), size(&atom.reference));
            if !value.is_divisible_by(&by) {
                let (function, mode) = ("tiled_copy", Mode(vec![i]));
                return Err(LayoutError::NotDivisible { function, mode, value, by });
            }
        }
        Ok(TiledCopy { atom, layout_tv, tiler })
    }

    /// The tiled copy in which `threads` and `values` map coordinates to thread and value indices.
    /// Each thread's values are a block of the tile, and the block is repeated over the threads.
    ///
    /// Post: `layout_tv` is a bijection of `(thread, value)` onto the tile, for compact `threads`
    /// and `values`.
    ///
    /// # Errors
    /// Fails where [`Layout::raked_product`] or [`TiledCopy::new`] fails.
    pub fn make(atom: CopyAtom, threads: &Layout, values: &Layout) -> Result<TiledCopy> {
        let layout_mn = threads.raked_product(values)?;
        let shape = IntTuple::tuple([threads.size(), values.size()]);
        let layout_tv = layout_mn.right_inverse()?.with_shape(&shape)?;
        TiledCopy::new(atom, layout_tv, Tiler::from(&product_each(layout_mn.shape())))
    }

    /// The layout from `(thread, value)` to the colexicographic index in the tile.
    pub fn layout_tv(&self) -> &Layout {
        &self.layout_tv
    }

    /// The tiler that selects a tile.
    pub fn tiler(&self) -> &Tiler {
        &self.tiler
    }

    /// A layout divided by the tile, with the tile's modes as threads and values:
    /// `(thread,(value in atom, atom),(rest..))`.
    ///
    /// Post: every element of `layout` is one of the result.
    ///
    /// # Errors
    /// Fails where [`Layout::zipped_divide`] fails, or if the layout has too few modes.
    pub fn thread_fragments(&self, side: Side, layout: &Layout) -> Result<Layout> {
        let end = if side == Side::Source { &self.atom.src } else { &self.atom.dst };
        let to_reference = self.atom.reference.right_inverse()?.composition(end)?;
        self.fragments(&layout.zipped_divide(&self.tiler)?, to_reference)
    }

    /// `((tile..),(rest..))` with the tile's modes rearranged as threads and values.
    fn fragments(&self, tiled: &Layout, to_reference: Layout) -> Result<Layout> {
        let atom = Tiler::from(&product_each(self.atom.reference.shape()));
        let by_atom = self.layout_tv.zipped_divide(&atom)?;
        let at_end = by_atom.compose(&Tiler::Tuple(vec![to_reference.into(), Tiler::All]))?;
        let one = || IntTuple::from(Int::ONE);
        let profile = IntTuple::tuple([one(), IntTuple::tuple([one(), one()])]);
        let element = Modes::zip(&at_end)?.coalesce_by(&profile)?;
        let fragments = tiled.compose(&Tiler::Tuple(vec![element.into(), Tiler::All]))?;
        slice(&Coord::Tuple(vec![Coord::Tuple(vec![Coord::All; 2]), Coord::All]), &fragments)
    }

    /// The elements of `layout` that thread `thread` reads or writes: `((value in atom, atom), rest..)`, and the offset
    /// at which they begin.
    ///
    /// Post: over all threads, a partition of the padded layout.
    ///
    /// # Errors
    /// Fails where [`TiledCopy::thread_fragments`] fails.
    pub fn partition(&self, side: Side, thread: &Int, layout: &Layout) -> Result<(Layout, Int)> {
        let fragments = self.thread_fragments(side, layout)?;
        let rest = fragments.mode(2).map_or(1, |m| m.rank());
        let coord = Coord::Tuple(vec![Coord::Int(thread.clone()), Coord::All, repeat(rest, Coord::All)]);
        fragments.slice_and_offset(&coord)
    }

    /// The layout from `(thread, value)` of one end of the copy to the coordinate in the tile.
    ///
    /// # Errors
    /// Fails if the tiler leaves a mode open.
    pub fn end_layout_tv(&self, side: Side) -> Result<Layout> {
        let Some(shape) = self.tiler.shape() else {
            return invalid("layout_tv", format!("tiler {} leaves a mode open", self.tiler));
        };
        let whole = Layout::col_major(shape)?.append(Layout::one());
        let tile = Layout::from_modes(vec![
            Layout::from_modes(whole.modes()[..whole.rank() - 1].to_vec()),
            Layout::one(),
        ]);
        let end = if side == Side::Source { &self.atom.src } else { &self.atom.dst };
        let to_reference = self.atom.reference.right_inverse()?.composition(end)?;
        let fragments = self.fragments(&tile, to_reference)?;
        fragments.slice(&Coord::Tuple(vec![Coord::All, Coord::All, Coord::Int(Int::ZERO)]))
    }
}
