//! Pipelines, and asynchronous copies: tiles by tensor maps (TMA), and consecutive bytes (bulk
//! copies).
//!
//! One role fills the four stages of `buffer`, and another one reads them:
//!
//! ```
//! use weft_ir::builder::Ctas;
//! use weft_ir::*;
//! use weft_layout::{Coord, parse_layout};
//! let mut b = Builder::new("copy", [64, 1, 1]);
//! let x = b.param("x", Builder::tensor(Scalar::F32, Space::Global, Layout::col_major(4096)?, 16))?;
//! let buffer = b.shared(Scalar::F32, parse_layout("(256,4):(1,256)", &mut |_| None)?, None)?;
//! let p = b.pipeline(4)?;
//! let stage = |b: &mut Builder, s: Value| {
//!     let s = b.symbol(s)?;
//!     b.part(buffer, &Coord::Tuple(vec![Coord::All, s.into()]))
//! };
//! b.role("fill", 0..32, 0, |b| {
//!     b.for_each(0.into()..16.into(), 1.into(), 1, |b, i| {
//!         let s = b.producer_acquire(p)?;
//!         let (to, from) = (stage(b, s)?, b.tile(x, &[(i * Int::from(256), 256)])?);
//!         b.tma_load(to, &from, p, Ctas::OWN).map(drop)
//!     })?;
//!     Ok(())
//! })?;
//! b.role("read", 32..64, 0, |b| {
//!     b.for_each(0.into()..16.into(), 1.into(), 1, |b, _| {
//!         let s = b.consumer_wait(p)?;
//!         stage(b, s)?;
//!         b.consumer_release(p).map(drop)
//!     })?;
//!     Ok(())
//! })?;
//! let module = Module { kernels: vec![b.finish()], ..Module::default() };
//! assert!(verify::verify(module).is_ok());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use super::{Builder, Built};
use crate::diag::Diagnostic;
use crate::kernel::Value;
use crate::level::TensorLevel;
use crate::names::{Dim, RedOp};
use crate::op::{Operation, Tile, Var, View};
use crate::types::{Bound, ValueType};
use crate::typing;
use weft_layout::{Int, IntTuple, Layout};

/// The CTAs of a cluster whose shared memory a copy fills, each at the same offset.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Ctas(u32);

impl Ctas {
    /// The CTA that begins the copy.
    pub const OWN: Ctas = Ctas(0);
    /// All CTAs of the cluster.
    pub const CLUSTER: Ctas = Ctas(0b111);

    /// The CTAs that differ from the one that begins the copy only in these dimensions of the
    /// cluster.
    pub fn along(dims: impl IntoIterator<Item = Dim>) -> Ctas {
        Ctas(dims.into_iter().fold(0, |bits, dim| bits | 1 << dim as u32))
    }
}

/// A tile of a parameter's tensor, and its place in the tensor, from which the coordinates of a
/// tensor map follow. [`Builder::tile`] makes it.
#[derive(Clone, PartialEq, Debug)]
pub struct PlacedTile {
    /// The view of the tile.
    pub view: Value,
    /// The coordinates of the tile's first element in the modes of the parameter's layout (`i64`).
    pub at: Vec<Value>,
    /// For each mode of the parameter's layout, 1 plus the mode of the tile that runs along it, or
    /// 0.
    pub along: Vec<u32>,
}

/// Methods for pipelines.
impl<L: TensorLevel> Builder<L> {
    /// Appends a pipeline of `stages` stages, with a full and an empty barrier for each.
    ///
    /// # Errors
    /// Fails if a pipeline cannot have that number of stages (E0200). It has 1 to
    /// [`MAX_STAGES`](crate::tile::MAX_STAGES).
    pub fn pipeline(&mut self, stages: u32) -> Built<Value> {
        self.emit(Tile::Pipeline { stages })
    }

    /// Appends a wait for the next empty stage, which then expects the bytes of the copies that
    /// follow. The result is the number of the stage, an `i32` from 0.
    ///
    /// # Errors
    /// Fails if `pipe` is not a pipeline (E0200).
    pub fn producer_acquire(&mut self, pipe: Value) -> Built<Value> {
        self.emit(Tile::Acquire { pipe })
    }

    /// Appends the statement that the threads of the role have written the oldest stage that they
    /// acquired. Stages that only copies fill need none.
    ///
    /// # Errors
    /// Fails if `pipe` is not a pipeline (E0200).
    pub fn producer_commit(&mut self, pipe: Value) -> Built<Value> {
        self.emit(Tile::Commit { pipe })
    }

    /// Appends a wait for the next full stage. The result is the number of the stage, an `i32` from
    /// 0.
    ///
    /// # Errors
    /// Fails if `pipe` is not a pipeline (E0200).
    pub fn consumer_wait(&mut self, pipe: Value) -> Built<Value> {
        self.emit(Tile::Await { pipe })
    }

    /// Appends the return of the oldest stage that was waited for, so that it can be filled again.
    ///
    /// # Errors
    /// Fails if `pipe` is not a pipeline (E0200).
    pub fn consumer_release(&mut self, pipe: Value) -> Built<Value> {
        self.emit(Tile::Release { pipe })
    }

    /// Appends a skip over `stages` stages (`i64`, at least 0) that another role waits for and
    /// releases.
    ///
    /// # Errors
    /// Fails if `pipe` is not a pipeline, or if `stages` is not an `i64` (E0200).
    pub fn consumer_skip(&mut self, pipe: Value, stages: Value) -> Built<Value> {
        self.emit(Tile::Skip { pipe, stages })
    }
}

/// Methods for copies.
impl<L: TensorLevel> Builder<L> {
    /// Appends a view of a tile of a parameter's tensor, or of a peer's. `parts` has the tile's
    /// first position and its number of positions in each mode of the tensor's layout. A mode of
    /// one position does not become a mode of the tile. The tile can run past the end of the
    /// tensor.
    ///
    /// # Errors
    /// Fails if `tensor` is neither a parameter nor a peer's copy of one, or if `parts` does not
    /// have an entry for each of its flat modes (E0200).
    pub fn tile(&mut self, tensor: Value, parts: &[(Int, u32)]) -> Built<PlacedTile> {
        let is_whole = match self.kernel.op(tensor).view() {
            Some(View::Peer { base, .. }) => self.kernel.op(*base).var(),
            _ => self.kernel.op(tensor).var(),
        };
        let found = || format!("expected a parameter's tensor of {} flat modes", parts.len());
        let whole = matches!(is_whole, Some(Var::Param { .. }));
        let ty = self.ty(tensor).tensor().filter(|_| whole).cloned();
        let flat = ty.as_ref().and_then(|t| modes(&t.layout)).filter(|modes| modes.len() == parts.len());
        let (Some(modes), Some(_)) = (flat, ty) else {
            let message = format!("{}, found {}", found(), self.ty(tensor));
            return Err(Diagnostic::error(typing::MISMATCH, self.span, message)
                .help("pass a parameter, or a peer's copy of one, and the part of each of its modes"));
        };
        let kept: Vec<_> = (0..parts.len()).filter(|i| parts[*i].1 > 1).collect();
        // The layout of the tile with these strides of the parameter's modes.
        let layout = |stride: &dyn Fn(usize) -> Int| {
            let shape = kept.iter().map(|i| Int::from(i64::from(parts[*i].1)).into()).collect();
            let strides = kept.iter().map(|i| stride(*i).into()).collect();
            let made = Layout::new(IntTuple::Tuple(shape), IntTuple::Tuple(strides));
            made.map_err(|e| Diagnostic::error(typing::MISMATCH, self.span, e.to_string()))
        };
        let mut bounds = Vec::new();
        let mut offset = Int::ZERO;
        for (i, (first, n)) in parts.iter().enumerate() {
            let (extent, stride) = &modes[i];
            offset = offset + first * stride;
            if !(first + Int::from(i64::from(*n))).is_le(extent) {
                let layout = layout(&|j| Int::from(i64::from(i == j)))?;
                bounds.push(Bound { limit: extent.clone(), offset: first.clone(), layout });
            }
        }
        let layout = layout(&|i| modes[i].1.clone())?;
        let view = self.view(tensor, offset, layout, bounds)?;
        let at = parts.iter().map(|(first, _)| self.index(first.clone())).collect::<Built<_>>()?;
        let place = |i| kept.iter().position(|j| *j == i).map_or(0, |mode| mode as u32 + 1);
        Ok(PlacedTile { view, at, along: (0..parts.len()).map(place).collect() })
    }

    /// Appends the begin of a copy of a tile to `dst` in shared memory, which has the tile's modes.
    /// The bytes arrive on the stage of `pipe` that was acquired last. Elements beyond the tensor
    /// read as 0.
    ///
    /// # Errors
    /// Fails if `dst` is not in shared memory or the tile not outside of it (E0202), if their
    /// elements or shapes differ (E0200, E0203), or if the tensor has more modes than a tensor map
    /// (E0246).
    pub fn tma_load(&mut self, dst: Value, tile: &PlacedTile, pipe: Value, to: Ctas) -> Built<Value> {
        let PlacedTile { view, at, along } = tile.clone();
        self.emit(Tile::TmaLoad { dst, src: view, pipe, dims: to.0, at, along })
    }

    /// Appends the begin of a copy of `src` in shared memory to a tile, which has the same modes.
    /// Elements beyond the tensor are not written. [`tma_wait`](Self::tma_wait) waits for it.
    ///
    /// # Errors
    /// Fails where [`tma_load`](Self::tma_load) fails.
    pub fn tma_store(&mut self, tile: &PlacedTile, src: Value) -> Built<Value> {
        self.tma_out(tile, src, None)
    }

    /// Appends the begin of a reduction of `src` in shared memory into a tile, element by element.
    ///
    /// # Errors
    /// Fails where [`tma_load`](Self::tma_load) fails, or if memory does not have the reduction
    /// (E0200).
    pub fn tma_reduce(&mut self, tile: &PlacedTile, src: Value, op: RedOp) -> Built<Value> {
        self.tma_out(tile, src, Some(op))
    }

    fn tma_out(&mut self, tile: &PlacedTile, src: Value, op: Option<RedOp>) -> Built<Value> {
        let PlacedTile { view, at, along } = tile.clone();
        self.emit(Tile::TmaStore { dst: view, src, op, at, along })
    }

    /// Appends a stand-in for a copy out of shared memory that threads have made themselves. A
    /// [`tma_wait`](Self::tma_wait) counts it like a copy.
    pub fn tma_instead(&mut self) -> Built<Value> {
        self.emit(Tile::TmaInstead {})
    }

    /// Appends a wait until all but the newest `pending` copies out of shared memory have read it.
    pub fn tma_wait_read(&mut self, pending: u32) -> Built<Value> {
        self.emit(Tile::TmaWait { pending, read: true })
    }

    /// Appends a wait until all but the newest `pending` copies out of shared memory are complete.
    pub fn tma_wait(&mut self, pending: u32) -> Built<Value> {
        self.emit(Tile::TmaWait { pending, read: false })
    }

    /// Appends the begin of a copy of consecutive elements to `dst` in shared memory. `src` has the
    /// same number of elements in `global` or `symm` memory, or in a peer's. The bytes arrive on
    /// the stage of `pipe` that was acquired last.
    ///
    /// # Errors
    /// Fails if a side is in another memory (E0202), or if their elements or sizes differ (E0200,
    /// E0203).
    pub fn bulk_load(&mut self, dst: Value, src: Value, pipe: Value, to: Ctas) -> Built<Value> {
        self.emit(Tile::BulkLoad { dst, src, pipe, dims: to.0 })
    }

    /// Appends the begin of a copy of `src` in shared memory to consecutive elements of `dst`, on
    /// all PEs if `dst` is multicast. [`tma_wait`](Self::tma_wait) waits for it.
    ///
    /// # Errors
    /// Fails where [`bulk_load`](Self::bulk_load) fails.
    pub fn bulk_store(&mut self, dst: Value, src: Value) -> Built<Value> {
        self.emit(Tile::BulkStore { dst, src, op: None, pipe: None })
    }

    /// Appends the begin of a reduction of `src` in shared memory into consecutive elements of
    /// `dst`.
    ///
    /// # Errors
    /// Fails where [`bulk_load`](Self::bulk_load) fails, or if memory does not have the reduction
    /// (E0200).
    pub fn bulk_reduce(&mut self, dst: Value, src: Value, op: RedOp) -> Built<Value> {
        self.emit(Tile::BulkStore { dst, src, op: Some(op), pipe: None })
    }

    /// Appends the begin of a copy, or of the reduction `op`, of `src` into the shared memory `dst`
    /// of another CTA of the cluster ([`in_cta`](Self::in_cta)). The bytes arrive on `pipe` of that
    /// CTA.
    ///
    /// # Errors
    /// Fails where [`bulk_reduce`](Self::bulk_reduce) fails.
    pub fn bulk_to_cta(&mut self, dst: Value, src: Value, op: Option<RedOp>, pipe: Value) -> Built<Value> {
        self.emit(Tile::BulkStore { dst, src, op, pipe: Some(pipe) })
    }
}

/// The extent and the stride of each mode of a layout without nested modes.
fn modes(layout: &Layout) -> Option<Vec<(Int, Int)>> {
    let flat = |i| {
        let (shape, stride) = layout.mode(i)?.into_parts();
        Some((shape.as_int()?.clone(), stride.as_int()?.clone()))
    };
    (0..layout.rank()).map(flat).collect()
}
