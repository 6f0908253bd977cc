//! Products of tiles by warps, for targets whose warpgroups have no matrix instructions.
//!
//! The registers of an accumulator are those of both: warp `w` of a warpgroup holds rows `16 w` and on of each 64, as
//! products of 16 rows and 8 columns side by side. Fragments of A and B are loaded as matrices of eight rows of 16 bytes.

use super::matrix::{Left, Own, Source, fragment, nowhere};
use crate::edit::{Editor, Emit};
use crate::teams::linear;
use rustc_hash::FxHashMap;
use weft_ir::builder::Built;
use weft_ir::diag::Span;
use weft_ir::{Async, Int, Sreg, Value};
use weft_layout::{ATOM_ROWS, Swizzle};

/// Columns of a product, and elements of it that a thread holds.
pub(super) const COLS: u32 = 8;
const HELD: u32 = 4;

/// Products for all slices along K, added to the registers `acc`.
pub(super) fn multiply(
    e: &mut Editor,
    (a, b): (&Left, &Source),
    acc: Value,
    own: Own,
    span: Span,
) -> Built<Value> {
    let thread = linear(&mut e.b, Sreg::ThreadIdx)?;
    let part = |n: i64, of: i64| thread.floor_div(&Int::from(n)).rem(&Int::from(of));
    let (eighth, quarter) = (part(8, 2), part(16, 2));
    // Lanes 8 to 15 give the second matrix along M of A, and along K of B.
    let bits = [&eighth, &quarter, &part(32, 2), &part(64, 2)];
    let mut a = match a {
        Left::Shared(a) => Rows::Loaded(Loads::new(e, a, bits, &part(1, 8), span)?),
        Left::Registers(registers) => Rows::Held(*registers),
    };
    let slices = b.operand.slices.len();
    let mut b = Loads::new(e, b, [&quarter, &eighth, &Int::ZERO, &Int::ZERO], &part(1, 8), span)?;
    let (across, blocks) = (own.cols / COLS, (own.rows / ATOM_ROWS) as u32);
    let sums = (0..blocks * across).map(|i| e.b.slice(acc, i * HELD, HELD));
    let mut sums = sums.collect::<Built<Vec<_>>>()?;
    for slice in 0..slices {
        let rows = (0..blocks).map(|block| match &mut a {
            Rows::Loaded(a) => a.load(e, i64::from(block) * ATOM_ROWS, slice, 4),
            Rows::Held(registers) => fragment(&mut e.b, *registers, (block as usize, slice), slices),
        });
        let rows = rows.collect::<Built<Vec<_>>>()?;
        for first in (0..across).step_by(2) {
            let pair = 2.min(across - first);
            let both = b.load(e, i64::from(first * COLS), slice, 2 * pair)?;
            for j in 0..pair {
                let cols = e.b.slice(both, 2 * j, 2)?;
                for (row, sums) in rows.iter().zip(sums.chunks_mut(across as usize)) {
                    let sum = &mut sums[(first + j) as usize];
                    let [a_elem, b_elem] = own.elems;
                    *sum = e.b.emit(Async::MmaSync { a: *row, b: cols, acc: *sum, a_elem, b_elem })?;
                }
            }
        }
    }
    e.b.concat(sums)
}

/// Where the fragments of A come from.
enum Rows<'a> {
    Loaded(Loads<'a>),
    Held(Value),
}

/// Loads of a tile's fragments.
struct Loads<'a> {
    source: &'a Source,
    /// The tile's first byte.
    tile: Value,
    /// Bytes from there to the row of 16 bytes whose address the lane gives, as if there were no swizzle.
    lane: Int,
    swizzle: Option<Swizzle>,
    /// The addresses of the lane's rows, by bytes within the swizzle's period.
    known: FxHashMap<i64, Value>,
    span: Span,
}

impl<'a> Loads<'a> {
    /// Which matrix the lane's row is of: the second of 8 along M or N, of two along K, and the second and fourth of those
    /// of 16 rows, as 0 or 1 each; and its row of eight.
    fn new(
        e: &mut Editor,
        source: &'a Source,
        [eight, half, sixteen, thirty_two]: [&Int; 4],
        row: &Int,
        span: Span,
    ) -> Built<Loads<'a>> {
        let operand = &source.operand;
        let mut lane = &source.part + row * operand.span() + half * operand.half();
        for (bit, rows) in [(eight, 8), (sixteen, 16), (thirty_two, 32)] {
            if !bit.is(0) {
                // A tile of eight rows has no second matrix, and no lane's address of one is used.
                lane = lane + bit * operand.row(rows).unwrap_or(0);
            }
        }
        let tile = e.b.offset(source.root, &source.offset)?;
        let swizzle = Swizzle::new(operand.swizzle_bits(), 4, 3).ok().filter(|_| operand.mode != 0);
        Ok(Loads { source, tile, lane, swizzle, known: FxHashMap::default(), span })
    }

    /// Matrices from a row and a slice along K on: 2 along K, and for 4 also the next ones along M or N.
    fn load(&mut self, e: &mut Editor, row: i64, slice: usize, count: u32) -> Built<Value> {
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
                let first = e.b.offset(self.tile, &place)?;
                self.known.insert(within, first);
                first
            }
        };
        let ptr = e.b.offset(first, &Int::from(bytes - within))?;
        e.b.emit(Async::LdMatrix { ptr, count, trans: operand.mn_major })
    }
}
