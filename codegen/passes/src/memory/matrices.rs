//! Matrices of eight rows of 16 bytes in shared memory, which a warp loads and stores together.
//!
//! Each lane gives the address of one row. A lane holds two 16-bit elements of a matrix in a
//! register, in the order of fragments of matrix products and of accumulators. Therefore tiles that
//! such instructions read are loaded this way, and tiles that are distributed as accumulators are
//! loaded and stored this way.

use super::MemoryPass;
use super::matrix::{OperandTile, Operands, fragment, nowhere, operand, source_of};
use super::place::{Route, TensorAddress};
use crate::edit::{Action, Editor, Emit};
use crate::report::{self, Cover, Instr};
use crate::teams::linear;
use rustc_hash::FxHashMap;
use weft_ir::builder::Built;
use weft_ir::diag::Span;
use weft_ir::mixed::Type;
use weft_ir::roles::WARPGROUP;
use weft_ir::{Access, Arith, Async, Int, Operation, Scalar, Sem, Space, Sreg, Value, ValueType};
use weft_isa::fragments;
use weft_layout::{ATOM_ROWS, Swizzle};

/// The number of bytes of a matrix's row.
const ROW: u32 = 16;
/// An alignment that is greater than any tile needs.
const ANYWHERE: u32 = 1 << 20;
/// The number of matrices of a fragment of 16 rows and 16 elements of 16 bits.
const FRAGMENT: u32 = 4;

/// The loads and stores of a tile's matrices.
pub(super) struct Matrices<'a> {
    source: &'a OperandTile,
    /// The distance in bytes from the tile's beginning to the row of 16 bytes whose address the
    /// lane gives, without the swizzle.
    lane: Int,
    swizzle: Option<Swizzle>,
    /// The addresses of the lane's rows if the tile were at the beginning of the allocation, by
    /// bytes within the swizzle's period. They are the same for all tiles.
    known: FxHashMap<i64, Value>,
    span: Span,
}

impl<'a> Matrices<'a> {
    /// Divides a warp's 16 of 64 rows into two by two matrices, first along the rows.
    pub fn of_rows(e: &mut Editor, source: &'a OperandTile, span: Span) -> Built<Matrices<'a>> {
        Matrices::new(e, source, [8, 16, 32, 64].map(Some), span)
    }

    /// Divides 16 rows into two by two matrices, first along K. All warps have the same matrices.
    pub fn of_columns(e: &mut Editor, source: &'a OperandTile, span: Span) -> Built<Matrices<'a>> {
        Matrices::new(e, source, [Some(16), Some(8), None, None], span)
    }

    /// `bits` are the bits of the thread's index that select the second matrix of 8 along M or N,
    /// the second of two along K, and the second and the fourth of the groups of 16 rows.
    fn new(
        e: &mut Editor,
        source: &'a OperandTile,
        bits: [Option<i64>; 4],
        span: Span,
    ) -> Built<Matrices<'a>> {
        let thread = linear(&mut e.b, Sreg::ThreadIdx)?;
        let part = |n: i64, of: i64| thread.floor_div(&Int::from(n)).rem(&Int::from(of));
        let [eight, half, sixteen, thirty_two] = bits.map(|n| n.map_or(Int::ZERO, |n| part(n, 2)));
        let operand = &source.operand;
        let mut lane = &source.part + part(1, 8) * operand.span() + half * operand.half();
        for (bit, rows) in [(eight, 8), (sixteen, 16), (thirty_two, 32)] {
            if !bit.is(0) {
                // A tile of eight rows has no second matrix, and the address that a lane would give
                // for one is not used.
                lane = lane + bit * operand.row(rows).unwrap_or(0);
            }
        }
        let swizzle = Swizzle::new(operand.swizzle_bits(), 4, 3).ok().filter(|_| operand.mode != 0);
        Ok(Matrices { source, lane, swizzle, known: FxHashMap::default(), span })
    }

    /// Loads matrices that begin at a row and a slice along K: 2 along K, and for 4 also the next
    /// ones along M or N.
    pub fn load(&mut self, e: &mut Editor, (row, slice): (i64, usize), count: u32) -> Built<Value> {
        let ptr = self.at(e, row, slice)?;
        e.b.emit(Async::LdMatrix { ptr, count, trans: self.source.operand.mn_major })
    }

    /// Stores the four matrices of a fragment that begins at a row and a slice along K.
    fn store(&mut self, e: &mut Editor, (row, slice): (i64, usize), value: Value) -> Built<()> {
        let ptr = self.at(e, row, slice)?;
        e.b.emit(Async::StMatrix { ptr, value, trans: self.source.operand.mn_major }).map(drop)
    }

    /// The address of the lane's row of the matrices that begin at a row and a slice along K.
    fn at(&mut self, e: &mut Editor, row: i64, slice: usize) -> Built<Value> {
        let operand = &self.source.operand;
        let nowhere = || nowhere(row, self.span);
        let bytes = operand.row(row).ok_or_else(nowhere)? + operand.slices.get(slice).ok_or_else(nowhere)?;
        let period = 8 * operand.span();
        let within = bytes % period;
        let first = match self.known.get(&within) {
            Some(first) => *first,
            None => {
                let place = &self.lane + Int::from(within);
                let place = self.swizzle.map_or(place.clone(), |s| s.apply(&place));
                let first = e.b.offset(self.source.root, &place)?;
                self.known.insert(within, first);
                first
            }
        };
        e.b.offset(first, &(&self.source.offset + Int::from(bytes - within)))
    }
}

/// An access to the elements that a thread has of a tile which warpgroups divide.
struct DividedTile<'a> {
    /// Whether the access is a store.
    stores: bool,
    tile: &'a TensorAddress,
    over: [u32; 2],
}

impl MemoryPass<'_> {
    /// Lowers an access to elements that are distributed as an accumulator's to accesses of whole
    /// matrices. If the tile does not consist of matrices, it returns the reason. For any other
    /// access it returns nothing.
    pub(super) fn by_matrices(
        &mut self,
        e: &mut Editor,
        v: Value,
        op: &Access,
        at: &TensorAddress,
    ) -> Built<Result<Action, Option<String>>> {
        let Some((tile, over)) = at.distributed.as_deref() else { return Ok(Err(None)) };
        let value = match op {
            Access::Load { sem: Sem::Weak, .. } => None,
            Access::Store { sem: Sem::Weak, value, .. } => Some(*value),
            _ => return Ok(Err(None)),
        };
        if tile.route != Route::Local || tile.ty.space != Space::Shared {
            return Ok(Err(None));
        }
        let divided = DividedTile { stores: value.is_some(), tile, over: *over };
        let found = match divided.operand() {
            Ok(found) => found,
            Err(why) => return Ok(Err(Some(why))),
        };
        let trans = found.operand.mn_major;
        let name = if divided.stores { "stmatrix" } else { "ldmatrix" };
        let choice = fragments(name, FRAGMENT, trans).map(|choice| choice.check(self.options.target));
        if let Some(Err(no)) = choice {
            return Ok(Err(Some(no.to_string())));
        }
        let span = e.b.kernel().insts[v].span;
        let slices = found.operand.slices.len();
        let warpgroup = linear(&mut e.b, Sreg::ThreadIdx)?.floor_div(&Int::from(i64::from(WARPGROUP)));
        let part = warpgroup.rem(&Int::from(i64::from(over[0])));
        let part = &part * Int::from(found.step);
        let source = source_of(e, tile, (found, part))?;
        let blocks = divided.rows() / ATOM_ROWS;
        let fragments = (0..blocks).flat_map(|block| (0..slices).map(move |slice| (block, slice)));
        let count = blocks as u32 * slices as u32;
        let mut matrices = Matrices::of_rows(e, &source, span)?;
        let ty = match value {
            Some(value) => e.b.ty(value).clone(),
            None => e.b.ty(v).clone(),
        };
        let packed = Type::lanes_of(Scalar::I32, FRAGMENT * count);
        self.note_matrices(e, v, (name, trans), (ty.lanes().unwrap_or(1), count));
        let Some(value) = value else {
            let parts =
                fragments.map(|(block, slice)| matrices.load(e, (block * ATOM_ROWS, slice), FRAGMENT));
            let parts = parts.collect::<Built<Vec<_>>>()?;
            let all = e.b.concat(parts)?;
            return e.b.emit_as(Arith::Bitcast { a: all }, ty).map(Action::Become).map(Ok);
        };
        let registers = e.b.emit_as(Arith::Bitcast { a: value }, packed)?;
        for (block, slice) in fragments {
            let own = fragment(&mut e.b, registers, (block as usize, slice), slices)?;
            matrices.store(e, (block * ATOM_ROWS, slice), own)?;
        }
        Ok(Ok(Action::Drop))
    }

    fn note_matrices(
        &mut self,
        e: &Editor,
        v: Value,
        (name, trans): (&str, bool),
        (elements, count): (u32, u32),
    ) {
        let k = e.b.kernel();
        let trans = if trans { ".trans" } else { "" };
        let name = format!("{name}.sync.aligned.m8n8.x{FRAGMENT}{trans}.shared.b16");
        self.report.accesses.push(report::Access {
            kernel: k.name.clone(),
            span: k.insts[v].span,
            op: k.insts[v].op.mnemonic(),
            elements,
            instrs: vec![Instr { name, bytes: 4 * FRAGMENT, count }],
            narrow: None,
            no_matrices: None,
            cover: Cover::All,
        });
    }
}

impl DividedTile<'_> {
    /// The number of rows of each warpgroup.
    fn rows(&self) -> i64 {
        let rows = self.tile.ty.layout.mode(0).and_then(|m| m.size().as_const()).unwrap_or(0);
        rows / i64::from(self.over[0])
    }

    /// The tile as an operand of matrices. Fails with the reason if it does not consist of matrices.
    fn operand(&self) -> Result<Operands, String> {
        let ty = &self.tile.ty;
        if ty.elem.bytes() != 2 {
            return Err(format!("elements of {} have {} bits instead of 16", ty.elem, ty.elem.bits()));
        }
        if !ty.bounds.is_empty() {
            return Err("elements can be out of bounds".into());
        }
        if self.over[1] > 1 {
            return Err("warpgroups divide the columns".into());
        }
        if self.tile.root_align() < ROW {
            return Err(format!("it begins only at a multiple of {} bytes", self.tile.root_align()));
        }
        // Threads permute the bytes of an allocation by their offsets in it, for every alignment of
        // the allocation.
        operand(self.tile, (self.rows(), i64::from(self.over[0])), ANYWHERE)
            .map_err(|why| format!("matrix instructions cannot read the tile ({})", why.replace("mma: ", "")))
    }
}
