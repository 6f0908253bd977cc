//! The layout of the accumulators of matrix instructions in the registers of warpgroups.

use crate::{IntTuple, Layout, Result};

/// The number of rows of the tile that one instruction computes.
pub const ATOM_ROWS: i64 = 64;

/// The elements of a tile of `rows` x `cols` that each thread holds. `over` warpgroups divide the
/// rows and the columns among themselves. The result is a layout of modes (value, thread) to `row +
/// rows * column`.
///
/// Each instruction computes 64 rows (PTX ISA, wgmma: Register Fragments, matrix D). Values are in
/// the order of the instruction's registers. If a warpgroup has more rows, the registers of one
/// instruction follow those of the other. Threads of the warpgroups that divide the rows come
/// first. Pre: `rows` is a multiple of `64 * over[0]`, and `cols` is a multiple of `8 * over[1]`.
///
/// # Errors
/// Fails if an extent is too large for a layout.
pub fn accumulator(rows: i64, cols: i64, over: [i64; 2]) -> Result<Layout> {
    let (own_rows, own_cols) = (rows / over[0], cols / over[1]);
    let tuple = |items: &[i64]| IntTuple::Tuple(items.iter().map(|n| IntTuple::from(*n)).collect());
    let values = ([2, 2, own_cols / 8, own_rows / ATOM_ROWS], [rows, 8, 8 * rows, ATOM_ROWS]);
    let threads = ([4, 8, 4, over[0], over[1]], [2 * rows, 1, 16, own_rows, rows * own_cols]);
    Layout::new(
        IntTuple::Tuple(vec![tuple(&values.0), tuple(&threads.0)]),
        IntTuple::Tuple(vec![tuple(&values.1), tuple(&threads.1)]),
    )
}

/// The rows of [`accumulator`]'s elements: a layout of modes (value, thread) to the row, with one
/// value for each row in which a thread has elements. Four consecutive threads have the same rows.
/// Pre: as for [`accumulator`].
///
/// # Errors
/// Fails if an extent is too large for a layout.
pub fn accumulator_rows(rows: i64, over: [i64; 2]) -> Result<Layout> {
    let own_rows = rows / over[0];
    let tuple = |items: &[i64]| IntTuple::Tuple(items.iter().map(|n| IntTuple::from(*n)).collect());
    let values = ([2, own_rows / ATOM_ROWS], [8, ATOM_ROWS]);
    let threads = ([4, 8, 4, over[0], over[1]], [0, 1, 16, own_rows, 0]);
    Layout::new(
        IntTuple::Tuple(vec![tuple(&values.0), tuple(&threads.0)]),
        IntTuple::Tuple(vec![tuple(&values.1), tuple(&threads.1)]),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Int;

    #[test]
    fn every_element_is_held_once_at_its_place_in_the_manual() {
        for (rows, cols, over) in [(64, 8, [1, 1]), (128, 256, [2, 1]), (256, 64, [2, 2])] {
            let tv = accumulator(rows, cols, over).unwrap();
            let mut held = vec![0; (rows * cols) as usize];
            for i in 0..rows * cols {
                let at = tv.crd2idx(&Int::from(i).into()).unwrap().as_const().unwrap();
                held[at as usize] += 1;
            }
            assert!(held.iter().all(|n| *n == 1), "{rows} x {cols}");
        }
        // PTX ISA: row = lane / 4 + 16 * warp (+ 8 if i modulo 4 is 2 or 3), column = lane % 4 * 2
        // + i % 2 + i / 4 * 8.
        let tv = accumulator(64, 32, [1, 1]).unwrap();
        for (thread, i) in [(0, 0), (5, 3), (37, 6), (127, 15)] {
            let (lane, warp) = (thread % 32, thread / 32);
            let row = lane / 4 + 16 * warp + if i % 4 > 1 { 8 } else { 0 };
            let col = lane % 4 * 2 + i % 2 + i / 4 * 8;
            let at = IntTuple::Tuple(vec![i.into(), thread.into()]);
            assert_eq!(tv.crd2idx(&at).unwrap().as_const(), Some(row + 64 * col));
        }
    }

    #[test]
    fn rows_are_those_of_the_elements() {
        for (rows, cols, over) in [(64, 8, [1, 1]), (128, 32, [1, 1]), (256, 64, [2, 2])] {
            let (all, one) = (accumulator(rows, cols, over).unwrap(), accumulator_rows(rows, over).unwrap());
            let at = |l: &Layout, value: i64, thread: i64| {
                let at = IntTuple::Tuple(vec![value.into(), thread.into()]);
                l.crd2idx(&at).unwrap().as_const().unwrap()
            };
            let own_cols = cols / over[1];
            for thread in 0..128 * over[0] * over[1] {
                for value in 0..own_cols * rows / over[0] / 128 {
                    let row = value / 2 % 2 + value / (own_cols / 2) * 2;
                    assert_eq!(at(&all, value, thread) % rows, at(&one, row, thread));
                }
            }
        }
    }
}
