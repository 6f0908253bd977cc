//! Lowers copies of tiles to copies of boxes. Thread 0 issues each copy with a tensor map that the
//! launch makes.

use super::place::{TensorAddress, found};
use super::{MemoryPass, limits};
use crate::cluster::ranks;
use crate::codes::BAD_BOX;
use crate::edit::{Action, Editor, Emit};
use crate::hidden;
use crate::pipeline::{BOX_ALIGN, by_first};
use crate::pointers::AddressSource;
use crate::teams::linear;
use crate::tiles::{self, Fact};
use weft_abi::{MAP_BYTES, MapShape, MapSwizzle};
use weft_ir::builder::{Built, aligned};
use weft_ir::diag::{Diagnostic, Span};
use weft_ir::mixed::Builder;
use weft_ir::tile::line;
use weft_ir::{
    Async, Block, Bridge, CmpOp, Control, Hidden, Int, RedOp, Scalar, Space, Sreg, TensorType, Tile, Value,
    Var,
};
use weft_layout::{Nearest, Swizzle, TileBoxes};

/// A copy between a tile in shared memory and a tile of a tensor.
struct Copy<'a> {
    /// The tile in shared memory.
    inside: &'a TensorAddress,
    /// The boxes of the tile.
    boxes: TileBoxes,
    /// For each dimension of the tensor map, the coordinate of the tile's first element (`i64`).
    at: Vec<Value>,
    /// The address of the tensor map.
    map: Value,
}

/// The operation on the boxes.
#[derive(Clone, Copy)]
enum BoxOperation {
    /// The boxes are filled. Their bytes arrive at a barrier of this CTA, or of the CTAs of the
    /// cluster whose bits are set.
    Load { mbar: Value, ctas: Option<Value> },
    /// The boxes are written to the tensor, or reduced into it.
    Store(Option<RedOp>),
}

impl MemoryPass<'_> {
    /// Lowers a copy of a tile, a wait for copies, or an op on accumulators.
    pub(super) fn tile(&mut self, e: &mut Editor, v: Value, op: &Tile, span: Span) -> Built<Action> {
        let (inside, outside, at, along, what) = match op {
            Tile::TmaLoad { dst, src, pipe, dims, at, along } => {
                let ctas = ctas(e, *dims)?;
                (dst, src, at, along, BoxOperation::Load { mbar: *pipe, ctas })
            }
            Tile::TmaStore { dst, src, op, at, along } => (src, dst, at, along, BoxOperation::Store(*op)),
            Tile::TmaInstead {} => {
                by_first(&mut e.b, |b| b.emit(Async::BulkCommit {}).map(drop))?;
                return Ok(Action::Drop);
            }
            Tile::TmaWait { pending, read } => {
                let wait = Async::BulkWait { pending: *pending, read: *read };
                by_first(&mut e.b, |b| b.emit(wait).map(drop))?;
                return Ok(Action::Drop);
            }
            Tile::BulkLoad { .. } | Tile::BulkStore { .. } => return self.bulk(e, op, span),
            // An earlier pass has replaced the other ops.
            Tile::Pipeline { .. }
            | Tile::Acquire { .. }
            | Tile::Commit { .. }
            | Tile::Await { .. }
            | Tile::Release { .. }
            | Tile::Skip { .. } => {
                return Ok(Action::Keep);
            }
            Tile::Accumulator {}
            | Tile::AccumulatorOf { .. }
            | Tile::Mma { .. }
            | Tile::MmaWait { .. }
            | Tile::AccumulatorRead { .. } => {
                return self.matrix(e, v, op, span);
            }
        };
        let k = e.b.kernel();
        let inside = found(self.places.get(inside), k, *inside, span)?.clone();
        let outside = found(self.places.get(outside), k, *outside, span)?.clone();
        let copy = self.copy(e, &inside, &outside, (at, along), span)?;
        if matches!(what, BoxOperation::Load { .. }) && copy.overlaps() {
            let message = format!("elements of the tile {} share shared memory", inside.ty.layout);
            return Err(Diagnostic::error(BAD_BOX, span, message).help(nearest(
                &inside.ty,
                true,
                "the copy accepts",
            )));
        }
        let kernel = e.b.kernel().name.clone();
        let peer = outside.pe.is_some();
        self.report.tile(&kernel, span, Fact::Copy(tiles::Copy { peer, ..copy.fact(what) }));
        let to = e.b.emit(Bridge::AddressOf { base: inside.root })?;
        by_first(&mut e.b, |b| copy.issue(b, to, what))?;
        Ok(Action::Drop)
    }
}

/// The CTAs of the cluster that get a copy along these dimensions, as bits, or `None` for this CTA
/// alone.
pub(super) fn ctas(e: &mut Editor, dims: u32) -> Built<Option<Value>> {
    if line(e.b.kernel().cluster, dims) == 1 {
        return Ok(None);
    }
    ranks(&mut e.b, dims).map(Some)
}

impl MemoryPass<'_> {
    fn copy<'a>(
        &mut self,
        e: &mut Editor,
        inside: &'a TensorAddress,
        outside: &TensorAddress,
        (at, along): (&[Value], &[u32]),
        span: Span,
    ) -> Built<Copy<'a>> {
        let bad = |why: String| {
            Diagnostic::error(BAD_BOX, span, why).help(nearest(&inside.ty, true, "the copy accepts"))
        };
        if let Some(limit) = inside.cut() {
            let layout = &inside.ty.layout;
            return Err(bad(format!("the tile {layout} extends beyond the {limit} elements of its tensor")));
        }
        let root = e.b.ty(outside.root).clone();
        let order = order(&root, span)?;
        limits::map(&root, span)?;
        let (swizzle, row) = match inside.ty.swizzle {
            None => (MapSwizzle::None, None),
            Some(s) => width(s).ok_or_else(|| bad(format!("no tensor copy has the swizzle {s}")))?,
        };
        let dims: Vec<_> = order.iter().map(|d| along[*d].checked_sub(1).map(|m| m as usize)).collect();
        let boxes = TileBoxes::new(&inside.ty.layout, &dims, inside.ty.elem.bytes(), row)
            .map_err(|x| limits::no_boxes(&inside.ty, dims.first(), x.to_string(), span))?;
        let from = boxes.boxes.iter().map(|b| &inside.offset + b.offset);
        for offset in from {
            let has = aligned(inside.root_align(), &offset, inside.ty.elem.bytes());
            if has < BOX_ALIGN {
                return Err(bad(format!(
                    "a box begins at a multiple of {has} bytes, and has to at one of {BOX_ALIGN}"
                )));
            }
        }
        let pairs: Vec<_> = order.iter().zip(&boxes.extents).map(|(d, n)| (*d as u8, *n)).collect();
        let shape = MapShape::new(swizzle, &pairs)
            .ok_or_else(|| bad(format!("a tensor of {} modes", pairs.len())))?;
        let map = self.map(e, outside, shape)?;
        let at = order.iter().map(|d| at[*d]).collect();
        Ok(Copy { inside, boxes, at, map })
    }

    /// The address of the tensor map of a place: a parameter, or an entry of a table for a place on
    /// another PE.
    fn map(&mut self, e: &mut Editor, outside: &TensorAddress, map: MapShape) -> Built<Value> {
        let base = super::base(e, outside);
        let Some((team, pe)) = outside.pe else {
            let index = hidden::param(e.b.kernel_mut(), Hidden::TensorMap { base, map });
            return e.prologue(|b| b.emit(Var::Param { index }));
        };
        let index = hidden::param(e.b.kernel_mut(), Hidden::PeerMaps { base, team: team.0, map });
        let first = i64::from(e.role().unwrap_or(0));
        let fenced = self.fenced.contains(&(index, first));
        self.fenced.push((index, first));
        let source = AddressSource::of(self.options);
        let table = e.prologue(|b| {
            let bits = b.emit(Var::Param { index })?;
            let table = b.address(bits, Space::Global)?;
            if !fenced {
                let n_pes = source.n_pes(b, team)?;
                fence_maps(b, table, first, n_pes)?;
            }
            Ok(table)
        })?;
        let pe = e.b.convert(pe, Scalar::I64)?;
        let pe = e.b.symbol(pe)?;
        e.b.offset(table, &(pe * i64::from(MAP_BYTES)))
    }
}

/// Makes each map of a table visible to the copies that one thread of the CTA begins. The host
/// wrote the maps, so the copies would not see them otherwise (PTX ISA, fence.proxy.tensormap).
fn fence_maps(b: &mut Builder, table: Value, thread: i64, n_pes: Value) -> Built<()> {
    let (own, issuer) = (linear(b, Sreg::ThreadIdx)?, b.i64(thread)?);
    let own = b.index(own)?;
    let issues = b.compare(CmpOp::Eq, own, issuer)?;
    let then = b.nested(|b| {
        let (zero, one) = (b.i64(0)?, b.i64(1)?);
        let end = b.convert(n_pes, Scalar::I64)?;
        let pe = b.loop_var(0, i64::from(i32::MAX), 1);
        let body = b.nested(|b| {
            let at = b.symbol(pe)? * i64::from(MAP_BYTES);
            let map = b.offset(table, &at)?;
            b.emit(Async::MapFence { map }).map(drop)
        })?;
        b.rounds(pe, [zero, end, one], 1, body).map(drop)
    })?;
    b.emit(Control::If { cond: issues, then, otherwise: Block::default() }).map(drop)
}

impl Copy<'_> {
    /// Whether two boxes have memory in common, so that a copy fills it twice.
    fn overlaps(&self) -> bool {
        let elements: i64 = self.boxes.extents.iter().map(|n| i64::from(*n)).product();
        let mut starts: Vec<_> = self.boxes.boxes.iter().map(|b| b.offset).collect();
        starts.sort_unstable();
        starts.windows(2).any(|pair| pair[1] - pair[0] < elements)
    }

    /// The fact about the copy for the report.
    fn fact(&self, what: BoxOperation) -> tiles::Copy {
        let elements: u64 = self.boxes.extents.iter().map(|n| u64::from(*n)).product();
        tiles::Copy {
            out: matches!(what, BoxOperation::Store(_)),
            peer: false,
            count: self.boxes.boxes.len(),
            extents: self.boxes.extents.clone(),
            bytes: elements * u64::from(self.inside.ty.elem.bytes()),
            swizzle: self.inside.ty.swizzle.and_then(width).and_then(|(_, row)| row).unwrap_or(0),
        }
    }

    /// Emits code in which thread 0 issues a copy for each box.
    fn issue(&self, b: &mut Builder, to: Value, what: BoxOperation) -> Built<()> {
        let bytes = i64::from(self.inside.ty.elem.bytes());
        for part in &self.boxes.boxes {
            let shared = b.offset(to, &((&self.inside.offset + part.offset) * bytes))?;
            let at = self.at.iter().zip(&part.at).map(|(first, more)| {
                let at = b.symbol(*first)? + Int::from(*more);
                let at = b.index(at)?;
                b.convert(at, Scalar::I32)
            });
            let at = at.collect::<Built<Vec<_>>>()?;
            b.emit(match what {
                BoxOperation::Load { mbar, ctas } => {
                    Async::TmaLoad { dst: shared, map: self.map, at, mbar, ctas }
                }
                BoxOperation::Store(op) => Async::TmaStore { src: shared, map: self.map, at, op },
            })?;
        }
        match what {
            BoxOperation::Load { .. } => Ok(()),
            BoxOperation::Store(_) => b.emit(Async::BulkCommit {}).map(drop),
        }
    }
}

/// Advice for a tile that is not accepted: the nearest tile that `who` accepts. `mn` says whether
/// its first mode can be contiguous.
pub(super) fn nearest(tile: &TensorType, mn: bool, who: &str) -> String {
    match Nearest::new(&tile.layout, (tile.elem.name(), tile.elem.bytes()), mn) {
        Some(nearest) => format!("the nearest tile that {who} is {nearest}"),
        None => format!("`swizzled<T>(shape)` makes a layout that {who}"),
    }
}

/// The modes of a parameter's layout, flattened, in the order of a tensor map's dimensions. The
/// mode of stride 1 comes first.
fn order(root: &weft_ir::mixed::Type, span: Span) -> Built<Vec<usize>> {
    let weft_ir::mixed::Type::Tensor(t) = root else { return Err(super::place::no_address(span, root)) };
    let strides = t.layout.stride().leaves();
    let Some(first) = strides.iter().position(|s| s.is(1)) else {
        return Err(Diagnostic::error(BAD_BOX, span, format!("no mode of {} has stride 1", t.layout))
            .help("TMA copies rows of consecutive elements"));
    };
    let rest = (0..strides.len()).filter(|i| *i != first);
    Ok(std::iter::once(first).chain(rest).collect())
}

/// The swizzle of a tensor map, and its width in bytes.
fn width(s: Swizzle) -> Option<(MapSwizzle, Option<u32>)> {
    const SWIZZLES: [(MapSwizzle, u32); 3] =
        [(MapSwizzle::B32, 1), (MapSwizzle::B64, 2), (MapSwizzle::B128, 3)];
    let (swizzle, bits) = SWIZZLES.into_iter().find(|(_, bits)| s.bits() == *bits)?;
    (s.base() == 4 && s.shift() == 3).then_some((swizzle, Some(16 << bits)))
}
