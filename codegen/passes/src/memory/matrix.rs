//! Products of tiles become matrix instructions of warpgroups, and accumulators the registers that these add to.

use super::MemoryPass;
use super::place::{Place, Route, found};
use crate::codes::BAD_OPERAND;
use crate::edit::{Action, Editor, Emit};
use crate::teams::linear;
use rustc_hash::FxHashMap;
use weft_ir::builder::{Built, aligned};
use weft_ir::diag::{Diagnostic, Span};
use weft_ir::mixed::{Builder, Kernel, Type};
use weft_ir::roles::WARPGROUP;
use weft_ir::{
    Accumulator, Address, Async, BinOp, Bridge, Int, Layout, Operation, Scalar, Space, Sreg, Tile, Value,
    ValueType,
};
use weft_layout::{ATOM_ROWS, Operand};

/// The bits of an address that a matrix descriptor has, in units of 16 bytes.
const ADDRESS: i64 = 0x3ffff;

/// Accumulators become registers of each thread. Gives the tile of each op on one.
pub(super) fn registers(k: &mut Kernel) -> FxHashMap<Value, Accumulator> {
    let vector = |a: Accumulator| Type::lanes_of(a.elem, a.lanes(a.own_cols()));
    let of = |k: &Kernel, v: Value| match k.ty(v) {
        Type::Accumulator(a) => Some(*a),
        _ => None,
    };
    let mut tiles = FxHashMap::default();
    k.walk(&mut |v, inst| {
        let acc = match inst.op.tile() {
            Some(Tile::Mma { acc, .. } | Tile::AccumulatorRead { acc, .. }) => of(k, *acc),
            _ => None,
        };
        tiles.extend(acc.map(|acc| (v, acc)));
    });
    for local in k.locals.iter_mut() {
        if let Type::Accumulator(a) = local.ty {
            local.ty = vector(a);
        }
    }
    for inst in k.insts.iter_mut() {
        if let Type::Accumulator(a) = inst.ty {
            inst.ty = vector(a);
        }
    }
    tiles
}

/// A tile in shared memory as instructions read it.
struct Source {
    operand: Operand,
    /// The lower half of the descriptor of its first element, of this warpgroup (`u32`). The upper half is a constant.
    low: Value,
}

impl MemoryPass<'_> {
    /// An op on accumulators.
    pub(super) fn matrix(&mut self, e: &mut Editor, v: Value, op: &Tile, span: Span) -> Built<Action> {
        let done = match op {
            Tile::Accumulator {} => {
                let ty = e.b.ty(v).clone();
                e.b.zero(&ty)?
            }
            Tile::MmaWait { acc, pending } => e.b.emit(Async::WgmmaWait { acc: *acc, pending: *pending })?,
            Tile::AccumulatorRead { acc, first, cols } => {
                let tile = self.tile_of(v, span)?;
                read(&mut e.b, *acc, tile, *first, *cols)?
            }
            Tile::Mma { a, b, acc } => {
                let tile = self.tile_of(v, span)?;
                let k = e.b.kernel();
                let x = found(self.places.get(a), k, *a, span)?.clone();
                let y = found(self.places.get(b), k, *b, span)?.clone();
                multiply(e, (&x, &y), *acc, tile, span)?
            }
            _ => return Ok(Action::Keep),
        };
        Ok(Action::Become(done))
    }

    fn tile_of(&self, v: Value, span: Span) -> Built<Accumulator> {
        let missing = || Diagnostic::error(BAD_OPERAND, span, "this accumulator is not known");
        self.accumulators.get(&v).copied().ok_or_else(missing)
    }
}

/// The registers of columns, those of each block of 64 rows behind each other.
fn read(b: &mut Builder, acc: Value, tile: Accumulator, first: u32, cols: u32) -> Built<Value> {
    let (own, wanted) = (tile.own_cols(), cols / tile.over[1]);
    let blocks = tile.rows / (ATOM_ROWS as u32 * tile.over[0]);
    let parts = (0..blocks).map(|i| b.slice(acc, (i * own + first) / 2, wanted / 2));
    let parts = parts.collect::<Built<Vec<_>>>()?;
    b.concat(parts)
}

/// Instructions for all blocks of 64 rows and slices along K of a warpgroup, as one group.
fn multiply(
    e: &mut Editor,
    (x, y): (&Place, &Place),
    mut acc: Value,
    tile: Accumulator,
    span: Span,
) -> Built<Value> {
    let warpgroup = linear(&mut e.b, Sreg::ThreadIdx)?.floor_div(&Int::from(i64::from(WARPGROUP)));
    let [m, n] = tile.over.map(i64::from);
    let (along_m, along_n) = (warpgroup.rem(&Int::from(m)), warpgroup.floor_div(&Int::from(m)));
    let (rows, cols) = (i64::from(tile.rows) / m, i64::from(tile.cols) / n);
    let a = source(e, x, (&along_m, rows, m), span)?;
    let b = source(e, y, (&along_n, cols, n), span)?;
    if a.operand.slices.len() != b.operand.slices.len() {
        let message = format!("{} and {} have different depths", x.ty.layout, y.ty.layout);
        return Err(Diagnostic::error(BAD_OPERAND, span, message));
    }
    let cols = u32::try_from(cols).unwrap_or(u32::MAX);
    e.b.emit(Async::WgmmaFence {})?;
    // Instructions that follow each other add to different registers where they can.
    for slice in 0..a.operand.slices.len() {
        for block in 0..rows / ATOM_ROWS {
            let (a_at, b_at) =
                (a.at(&mut e.b, block * ATOM_ROWS, slice, span)?, b.at(&mut e.b, 0, slice, span)?);
            let op = Async::Wgmma {
                acc,
                first: block as u32 * (cols / 2),
                a: a_at,
                b: b_at,
                n: cols,
                a_elem: x.ty.elem,
                b_elem: y.ty.elem,
                a_mn: a.operand.mn_major,
                b_mn: b.operand.mn_major,
            };
            acc = e.b.emit(op)?;
        }
    }
    e.b.emit(Async::WgmmaCommit {})?;
    Ok(acc)
}

/// A tile, of which `parts` warpgroups read `rows` each, this one as number `part`.
fn source(e: &mut Editor, at: &Place, (part, rows, parts): (&Int, i64, i64), span: Span) -> Built<Source> {
    let bytes = at.ty.elem.bytes();
    let bad = |why: String| {
        Diagnostic::error(BAD_OPERAND, span, why)
            .help("`swizzled<T>(shape)` gives a layout that matrix instructions read")
    };
    if at.route != Route::Local || at.ty.space != Space::Shared {
        return Err(bad("matrix instructions read the CTA's own shared memory".into()));
    }
    let layout: &Layout = &at.ty.layout;
    let operand = Operand::new(layout, at.ty.swizzle, bytes).map_err(|x| bad(x.to_string()))?;
    let step = if parts > 1 { operand.at(rows, 0) } else { Some(0) };
    let even = |step: &i64| (0..parts).all(|i| operand.at(i * rows, 0) == Some(i * step));
    let Some(step) = step.filter(even) else {
        return Err(bad(format!("parts of {rows} rows of {layout} do not lie at one distance")));
    };
    let has = aligned(at.root_align(), &at.offset, bytes);
    if has < operand.align {
        let message =
            format!("a tile begins at a multiple of {has} bytes, and has to at one of {}", operand.align);
        return Err(bad(message));
    }
    let root = e.b.emit(Bridge::AddressOf { base: at.root })?;
    let root = e.b.emit(Address::ToInt { a: root })?;
    let root = e.b.convert(root, Scalar::U32)?;
    let first = e.b.index(&at.offset * Int::from(i64::from(bytes)) + part * Int::from(step))?;
    let first = e.b.convert(first, Scalar::U32)?;
    let address = e.b.binary(BinOp::Add, root, first)?;
    let constant = |b: &mut Builder, n: i64| b.int(Scalar::U32, n);
    let mask = constant(&mut e.b, ADDRESS)?;
    let address = e.b.binary(BinOp::And, address, mask)?;
    let four = constant(&mut e.b, 4)?;
    let units = e.b.binary(BinOp::Shr, address, four)?;
    let bits = constant(&mut e.b, i64::from(operand.bits() as u32))?;
    let low = e.b.binary(BinOp::Or, units, bits)?;
    Ok(Source { operand, low })
}

impl Source {
    /// The descriptor of the instruction that begins there.
    fn at(&self, b: &mut Builder, row: i64, slice: usize, span: Span) -> Built<Value> {
        let nowhere = || Diagnostic::error(BAD_OPERAND, span, format!("no instruction begins at row {row}"));
        let bytes = self.operand.at(row, slice).ok_or_else(nowhere)?;
        let units = b.int(Scalar::U32, bytes / 16)?;
        let low = b.binary(BinOp::Add, self.low, units)?;
        let low = b.convert(low, Scalar::I64)?;
        let high = b.i64((self.operand.bits() >> 32 << 32).cast_signed())?;
        b.binary(BinOp::Or, low, high)
    }
}
