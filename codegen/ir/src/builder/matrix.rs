//! Accumulators and matrix products.

use super::{Builder, Built, moved};
use crate::diag::Diagnostic;
use crate::kernel::Value;
use crate::level::TensorLevel;
use crate::names::{Dim, Group, Sreg};
use crate::op::Tile;
use crate::types::{Accumulator, TypeRef, ValueType};
use crate::typing;
use weft_layout::{Coord, Int, Layout, LayoutError};

impl<L: TensorLevel> Builder<L> {
    /// Appends a tile of zeros to which products are added. The warpgroups that divide the tile are
    /// all those of the CTA, or of the role.
    ///
    /// # Errors
    /// Fails if products cannot be accumulated in the element type (E0201), or if the warpgroups
    /// cannot hold the tile (E0200).
    pub fn accumulator(&mut self, tile: Accumulator) -> Built<Value> {
        let ty = self.accumulator_type(tile)?;
        self.emit_as(Tile::Accumulator {}, ty)
    }

    /// Appends an accumulator that begins with `value`, the elements that each thread has of the
    /// tile.
    ///
    /// # Errors
    /// Fails where [`accumulator`](Self::accumulator) fails, or if a thread has another number of
    /// elements (E0200).
    pub fn accumulator_of(&mut self, tile: Accumulator, value: Value) -> Built<Value> {
        let ty = self.accumulator_type(tile)?;
        self.emit_as(Tile::AccumulatorOf { value }, ty)
    }

    fn accumulator_type(&self, tile: Accumulator) -> Built<L::Type> {
        L::Type::of(TypeRef::Accumulator(tile))
            .ok_or_else(|| Diagnostic::error(typing::MISMATCH, self.span, "the level has no accumulators"))
    }

    /// Appends the begin of `acc + a * transpose(b)`. `b` is a tile of modes (N, K) in shared
    /// memory. `a` is a tile of modes (M, K) in shared memory, or the elements that each thread has
    /// of such a tile in 16 bits. The result is the accumulator of M x N elements, which is in
    /// flight until [`mma_wait`](Self::mma_wait).
    ///
    /// # Errors
    /// Fails if there is no product of these types (E0201), if a tile is not in shared memory
    /// (E0202), or if the shapes do not fit (E0200).
    pub fn mma(&mut self, a: Value, b: Value, acc: Value) -> Built<Value> {
        self.emit(Tile::Mma { a, b, acc })
    }

    /// Appends a wait until all but the newest `pending` products are complete. The result is the
    /// accumulator.
    ///
    /// # Errors
    /// Fails if `acc` is not an accumulator (E0200).
    pub fn mma_wait(&mut self, acc: Value, pending: u32) -> Built<Value> {
        self.emit(Tile::MmaWait { acc, pending })
    }

    /// Appends a read of `cols` columns of an accumulator from column `first`. No product may be in
    /// flight. The result is a vector of the elements that each thread has, which
    /// [`accumulator_part`](Self::accumulator_part) of a tile in memory has in the same order.
    ///
    /// # Errors
    /// Fails if the columns are not a multiple of 8 or not in the accumulator (E0200).
    pub fn accumulator_read(&mut self, acc: Value, first: u32, cols: u32) -> Built<Value> {
        self.emit(Tile::AccumulatorRead { acc, first, cols })
    }

    /// Appends a view of the elements that this thread has of `tile`, a tile of two modes in memory,
    /// if `over` warpgroups divide its rows and columns as they divide an accumulator.
    ///
    /// # Errors
    /// Fails if the tile does not have two modes that are known when the kernel is compiled and
    /// that the warpgroups can divide (E0200).
    pub fn accumulator_part(&mut self, tile: Value, over: [u32; 2]) -> Built<Value> {
        let ty = self.tensor_type(tile)?;
        let span = self.span;
        let bad = |e: LayoutError| Diagnostic::error(typing::MISMATCH, span, e.to_string());
        let extent = |i| ty.layout.mode(i).and_then(|m| m.size().as_const());
        let Some((rows, cols)) = extent(0).zip(extent(1)).filter(|_| ty.layout.rank() == 2) else {
            let message = format!("expected a tile of two static modes, found {}", ty.layout);
            return Err(Diagnostic::error(typing::MISMATCH, span, message));
        };
        self.converge(Group::Block)?;
        let all = weft_layout::accumulator(rows, cols, over.map(i64::from)).map_err(bad)?;
        let at = Coord::Tuple(vec![Coord::All, Coord::Int(self.thread()?)]);
        let divide = |l: &Layout| l.composition(&all)?.slice_and_offset(&at);
        let (layout, offset) = divide(&ty.layout).map_err(bad)?;
        let bounds = moved(&ty.bounds, divide).map_err(bad)?;
        self.distributed(tile, offset, layout, bounds, over)
    }

    /// The index of the thread in its CTA, or in its role, as a symbol.
    fn thread(&mut self) -> Built<Int> {
        let [x, y, _] = self.kernel.block.map(i64::from);
        let mut index = Int::ZERO;
        for (dim, stride) in [(Dim::X, 1), (Dim::Y, x), (Dim::Z, x * y)] {
            if dim == Dim::X || self.kernel.block[dim as usize] > 1 {
                let own = self.special(Sreg::ThreadIdx, dim)?;
                index = index + self.symbol(own)? * Int::from(stride);
            }
        }
        Ok(index)
    }
}
