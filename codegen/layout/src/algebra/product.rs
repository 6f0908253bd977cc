//! Product: a layout repeated along another.

use super::composition::check_tiler_rank;
use super::divide::{unpack, unzip_by};
use crate::error::Mode;
use crate::modes::{Modes, product_each};
use crate::{IntTuple, Layout, LayoutError, Result, Tiler};

impl Layout {
    /// The layout as a block, with its repetitions in the order of the tiler: `(block,
    /// repetitions)`. A tuple as tiler applies by mode.
    ///
    /// Post: mode 0 is this layout; the tiler is compatible with mode 1; the repetitions do not
    /// overlap.
    ///
    /// # Errors
    /// Fails where [`Layout::complement`] or [`Layout::composition`] fails.
    pub fn logical_product(&self, tiler: &Tiler) -> Result<Layout> {
        const NAME: &str = "logical_product";
        let tile = match tiler {
            Tiler::All => return Ok(self.clone()),
            Tiler::Int(n) => Layout::col_major(n.clone())?,
            Tiler::Layout(tile) => tile.clone(),
            Tiler::Tuple(tilers) => {
                check_tiler_rank(NAME, tiler, self)?;
                let mut modes = self.modes();
                for (i, (mode, t)) in modes.iter_mut().zip(tilers).enumerate() {
                    *mode = mode.logical_product(t).map_err(|e| e.inside(i))?;
                }
                return Layout::from_modes(modes).checked(NAME);
            }
        };
        let repetitions = self.complement(&(self.size() * tile.cosize()).into())?.composition(&tile)?;
        Layout::from_modes(vec![self.clone(), repetitions]).checked(NAME)
    }

    /// The product with block modes and repetition modes gathered: `((block..),(tile..))`.
    ///
    /// Post: rank 2; the elements of [`Layout::logical_product`].
    ///
    /// # Errors
    /// Fails where [`Layout::logical_product`] fails.
    pub fn zipped_product(&self, tiler: &Tiler) -> Result<Layout> {
        let product = self.logical_product(tiler)?;
        let (block, tile) = unzip_by(&product, tiler, "zipped_product")?;
        Layout::from_modes(vec![block, tile]).checked("zipped_product")
    }

    /// The product with the repetition modes unpacked: `((block..),tile..)`.
    ///
    /// Post: the elements of [`Layout::logical_product`].
    ///
    /// # Errors
    /// Fails where [`Layout::logical_product`] fails.
    pub fn tiled_product(&self, tiler: &Tiler) -> Result<Layout> {
        unpack(&self.zipped_product(tiler)?, false)
    }

    /// The product with all modes unpacked: `(block..,tile..)`.
    ///
    /// Post: the elements of [`Layout::logical_product`].
    ///
    /// # Errors
    /// Fails where [`Layout::logical_product`] fails.
    pub fn flat_product(&self, tiler: &Tiler) -> Result<Layout> {
        unpack(&self.zipped_product(tiler)?, true)
    }

    /// The block reproduced over the tiler, mode by mode, as whole blocks: `((block0,tile0),(block1,tile1),..)`.
    ///
    /// Post: `rank(result) == max(rank(self), rank(tiler))`; the elements of [`Layout::logical_product`].
    ///
    /// # Errors
    /// Fails where [`Layout::logical_product`] fails.
    pub fn blocked_product(&self, tiler: &Layout) -> Result<Layout> {
        let (block, tile) = self.padded_product(tiler)?;
        Layout::from_modes(vec![block, tile]).zip()?.checked("blocked_product")
    }

    /// The block reproduced over the tiler, mode by mode, interleaved: `((tile0,block0),(tile1,block1),..)`.
    ///
    /// Post: `rank(result) == max(rank(self), rank(tiler))`; the elements of [`Layout::logical_product`].
    ///
    /// # Errors
    /// Fails where [`Layout::logical_product`] fails.
    pub fn raked_product(&self, tiler: &Layout) -> Result<Layout> {
        let (block, tile) = self.padded_product(tiler)?;
        Layout::from_modes(vec![tile, block]).zip()?.checked("raked_product")
    }

    /// The block and the repetitions, both extended to the greater of their ranks.
    fn padded_product(&self, tiler: &Layout) -> Result<(Layout, Layout)> {
        let rank = self.rank().max(tiler.rank());
        let block = self.append_to(rank, Layout::one())?;
        let tiler = tiler.append_to(rank, Layout::one())?;
        let product = block.logical_product(&tiler.into())?;
        unzip_by(&product, &Tiler::All, "logical_product")
    }

    /// The block repeated until it fills `shape`, across the modes in ascending `order`. Without an
    /// order it goes from the left.
    ///
    /// Post: `shape` is compatible with `result.shape()`.
    ///
    /// # Errors
    /// Fails if the block has more modes than `shape` or its extents do not divide it.
    pub fn tile_to_shape(&self, shape: &IntTuple, order: Option<&IntTuple>) -> Result<Layout> {
        const NAME: &str = "tile_to_shape";
        if self.rank() > shape.rank() {
            return Err(LayoutError::ProfileMismatch {
                function: NAME,
                what: "shape",
                given: shape.to_string(),
                against: self.to_string(),
                expected: "it needs at least as many modes as the block",
            });
        }
        let block = self.append_to(shape.rank(), Layout::one())?;
        let (extents, target) = (product_each(block.shape()), product_each(shape));
        for (i, (by, value)) in extents.as_modes().iter().zip(target.as_modes()).enumerate() {
            let (by, value) = (by.product(), value.product());
            if value.is_divisible_by(&by) {
                continue;
            }
            let (function, mode) = (NAME, Mode(vec![i]));
            return Err(match (value.as_const(), by.as_const()) {
                (Some(_), Some(_)) => LayoutError::NotDivisible { function, mode, value, by },
                _ => {
                    let condition = format!("extent {value} is divisible by {by}");
                    LayoutError::NotProvable { function, mode, condition }
                }
            });
        }
        let repetitions = target.ceil_div(&extents)?;
        let tiler = match order {
            Some(order) => Layout::ordered(repetitions, order)?,
            None => Layout::col_major(repetitions)?,
        };
        block.blocked_product(&tiler)
    }
}
