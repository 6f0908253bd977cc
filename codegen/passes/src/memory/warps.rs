//! Products of tiles by warps, for targets without matrix instructions of warpgroups.
//!
//! The registers of an accumulator have the same order for both: warp `w` of a warpgroup holds 16
//! rows from row `16 w` of each 64 rows, as adjacent products of 16 rows and 8 columns. Fragments
//! of A and B are loaded as matrices of eight rows of 16 bytes.

use super::matrices::Matrices;
use super::matrix::{LeftFactor, OperandTile, WarpgroupPart, fragment};
use crate::edit::Editor;
use weft_ir::builder::Built;
use weft_ir::diag::Span;
use weft_ir::tile::per_register;
use weft_ir::{Async, Value};
use weft_layout::ATOM_ROWS;

/// The number of columns of a product, and the number of its elements that a thread holds.
pub(super) const COLS: u32 = 8;
const HELD: u32 = 4;

/// Emits products for all slices along K, which are added to the registers `acc`.
pub(super) fn multiply(
    e: &mut Editor,
    (a, b): (&LeftFactor, &OperandTile),
    acc: Value,
    own: WarpgroupPart,
    span: Span,
) -> Built<Value> {
    let mut a = match a {
        LeftFactor::Shared(a) => Rows::Loaded(Matrices::of_rows(e, a, span)?),
        LeftFactor::Registers(registers) => Rows::HeldRegisters(*registers),
    };
    let slices = b.operand.slices.len();
    let mut b = Matrices::of_columns(e, b, span)?;
    let (across, blocks) = (own.cols / COLS, (own.rows / ATOM_ROWS) as u32);
    let held = HELD / per_register(own.sum);
    let sums = (0..blocks * across).map(|i| e.b.slice(acc, i * held, held));
    let mut sums = sums.collect::<Built<Vec<_>>>()?;
    for slice in 0..slices {
        let rows = (0..blocks).map(|block| match &mut a {
            Rows::Loaded(a) => a.load(e, (i64::from(block) * ATOM_ROWS, slice), 4),
            Rows::HeldRegisters(registers) => fragment(&mut e.b, *registers, (block as usize, slice), slices),
        });
        let rows = rows.collect::<Built<Vec<_>>>()?;
        for first in (0..across).step_by(2) {
            let pair = 2.min(across - first);
            let both = b.load(e, (i64::from(first * COLS), slice), 2 * pair)?;
            for j in 0..pair {
                let cols = e.b.slice(both, 2 * j, 2)?;
                for (row, sums) in rows.iter().zip(sums.chunks_mut(across as usize)) {
                    let sum = &mut sums[(first + j) as usize];
                    let [a_elem, b_elem] = own.elems;
                    let acc = *sum;
                    *sum =
                        e.b.emit(Async::MmaSync { a: *row, b: cols, acc, a_elem, b_elem, sum: own.sum })?;
                }
            }
        }
    }
    e.b.concat(sums)
}

/// The source of the fragments of A.
enum Rows<'a> {
    Loaded(Matrices<'a>),
    HeldRegisters(Value),
}
