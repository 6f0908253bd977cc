//! Products of tiles by warps, for targets whose warpgroups have no matrix instructions.
//!
//! The registers of an accumulator are those of both: warp `w` of a warpgroup holds rows `16 w` and on of each 64, as
//! products of 16 rows and 8 columns side by side. Fragments of A and B are loaded as matrices of eight rows of 16 bytes.

use super::matrices::Matrices;
use super::matrix::{Left, Own, Source, fragment};
use crate::edit::{Editor, Emit};
use weft_ir::builder::Built;
use weft_ir::diag::Span;
use weft_ir::tile::per_register;
use weft_ir::{Async, Value};
use weft_layout::ATOM_ROWS;

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
    let mut a = match a {
        Left::Shared(a) => Rows::Loaded(Matrices::of_rows(e, a, span)?),
        Left::Registers(registers) => Rows::Held(*registers),
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
            Rows::Held(registers) => fragment(&mut e.b, *registers, (block as usize, slice), slices),
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

/// Where the fragments of A come from.
enum Rows<'a> {
    Loaded(Matrices<'a>),
    Held(Value),
}
