//! The distribution of a matrix over lanes and registers.
//!
//! A lane belongs to group `lane / 4` and has number `lane % 4` in it. With few exceptions, the
//! rows of an operand are distributed over groups. The elements of a row are distributed over the
//! numbers, one register at a time.

use super::{ElementFormat, Shape};
use crate::exec::{Context, Reg, Src};
use crate::model::LANES;
use crate::num::mask;

#[inline]
fn place(lane: usize) -> (usize, usize) {
    (lane / 4, lane % 4)
}

/// The row and the position along K of element `i` of register `j` of A, which has `m` rows. B is
/// laid out like an A with 8 rows, where its columns are the rows.
pub(super) fn operand(m: usize, packed: usize, lane: usize, j: usize, i: usize) -> (usize, usize) {
    let (group, number) = place(lane);
    let halves = m / 8;
    (group + 8 * (j % halves), (j / halves * 4 + number) * packed + i)
}

/// The row and column of the lane's element `x` of an accumulator with `m` rows.
pub(super) fn accumulator(m: usize, lane: usize, x: usize) -> (usize, usize) {
    let (group, number) = place(lane);
    let (halves, pair) = (m / 8, x / 2);
    (group + 8 * (pair % halves), pair / halves * 8 + number * 2 + x % 2)
}

/// The number of registers of an operand with `rows` rows of `k` elements.
pub(super) fn operand_registers(rows: usize, k: usize, kind: ElementFormat) -> usize {
    rows * k / (LANES * kind.packed())
}

/// Collects an operand's bits, row by row.
pub(super) fn gather(cx: &Context<'_>, rows: usize, k: usize, kind: ElementFormat, regs: &[Src]) -> Vec<u64> {
    let mut out = vec![0; rows * k];
    let packed = kind.packed();
    for (j, &r) in regs.iter().enumerate() {
        for (lane, &v) in cx.src(r).iter().enumerate() {
            for i in 0..packed {
                let (row, at) = operand(rows, packed, lane, j, i);
                out[row * k + at] = v >> (i as u32 * kind.storage) & mask(kind.storage);
            }
        }
    }
    out
}

/// The layout of an accumulator's elements in registers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Accumulator {
    pub m: usize,
    pub n: usize,
    /// The bits of an element; 16-bit elements share registers.
    pub bits: u32,
}

impl Accumulator {
    pub(super) fn registers(self) -> usize {
        self.m * self.n * self.bits as usize / (LANES * self.register() as usize)
    }

    pub(super) fn register(self) -> u32 {
        self.bits.max(32)
    }

    /// Collects the accumulator's bits, row by row.
    pub(super) fn gather(self, cx: &Context<'_>, regs: &[Src]) -> Vec<u64> {
        let mut out = vec![0; self.m * self.n];
        let packed = (self.register() / self.bits) as usize;
        for (j, &r) in regs.iter().enumerate() {
            for (lane, &v) in cx.src(r).iter().enumerate() {
                for i in 0..packed {
                    let (row, column) = accumulator(self.m, lane, j * packed + i);
                    out[row * self.n + column] = v >> (i as u32 * self.bits) & mask(self.bits);
                }
            }
        }
        out
    }

    pub(super) fn scatter(self, cx: &mut Context<'_>, regs: &[Reg], bits: &[u64]) {
        let packed = (self.register() / self.bits) as usize;
        for (j, &r) in regs.iter().enumerate() {
            let to = cx.reg(r);
            for (lane, to) in to.iter_mut().enumerate() {
                *to = (0..packed).fold(0, |v, i| {
                    let (row, column) = accumulator(self.m, lane, j * packed + i);
                    v | bits[row * self.n + column] << (i as u32 * self.bits)
                });
            }
        }
    }
}

/// The four multiplications of `mma.m8n8k4`, each by the lanes `4q..4q + 4` and `16 + 4q..16 + 4q + 4`.
pub(super) mod quads {
    use super::{Shape, mask};
    use crate::exec::{Context, Reg, Src};

    pub(in super::super) const SHAPE: Shape = Shape { m: 8, n: 8, k: 4 };

    /// The lane of row `r` among the eight of quad pair `q`.
    fn lane(q: usize, r: usize) -> usize {
        4 * q + r % 4 + r / 4 * 16
    }

    /// Collects an operand's bits for quad pair `q`: 8 rows (of B: columns) of 4. `along` tells
    /// whether a lane's four elements are along K.
    pub(in super::super) fn gather(cx: &Context<'_>, q: usize, along: bool, regs: &[Src]) -> Vec<u64> {
        let half = |lane: usize, i: usize| cx.src(regs[i / 2])[lane] >> (16 * (i % 2)) & mask(16);
        let element = |r: usize, k: usize| {
            if along { half(lane(q, r), k) } else { half(lane(q, r / 4 * 4 + k), r % 4) }
        };
        (0..8).flat_map(|r| (0..4).map(move |k| element(r, k))).collect()
    }

    /// The lane, register and shift of an accumulator's element.
    pub(in super::super) fn accumulator(
        q: usize,
        row: usize,
        column: usize,
        bits: u32,
    ) -> (usize, usize, u32) {
        if bits == 16 {
            return (lane(q, row), column / 2, 16 * (column as u32 % 2));
        }
        // Rows alternate with bit 0 of the lane and bit 1 of the register, and columns with bit 1
        // of the lane.
        let at = lane(q, row & 4 | column & 2 | row & 1);
        (at, column & 4 | row & 2 | column & 1, 0)
    }

    pub(in super::super) fn collect(cx: &Context<'_>, q: usize, bits: u32, regs: &[Src]) -> Vec<u64> {
        let element = |row, column| {
            let (lane, register, shift) = accumulator(q, row, column, bits);
            cx.src(regs[register])[lane] >> shift & mask(bits)
        };
        (0..8).flat_map(|row| (0..8).map(move |column| element(row, column))).collect()
    }

    pub(in super::super) fn scatter(cx: &mut Context<'_>, q: usize, bits: u32, regs: &[Reg], from: &[u64]) {
        for (i, v) in from.iter().enumerate() {
            let (lane, register, shift) = accumulator(q, i / 8, i % 8, bits);
            let to = &mut cx.reg(regs[register])[lane];
            *to = *to & !(mask(bits) << shift) | v << shift;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    /// Every element of every operand is held exactly once.
    #[test]
    fn fragments_are_bijections() {
        for (m, k, packed) in [
            (16, 16, 2),
            (16, 8, 2),
            (16, 8, 1),
            (16, 32, 4),
            (16, 64, 8),
            (8, 16, 4),
            (8, 4, 1),
            (16, 16, 1),
        ] {
            let registers = m * k / (LANES * packed);
            let places: HashSet<_> = (0..LANES)
                .flat_map(|lane| (0..registers).map(move |j| (lane, j)))
                .flat_map(|(lane, j)| (0..packed).map(move |i| operand(m, packed, lane, j, i)))
                .collect();
            assert_eq!(places.len(), m * k);
            assert!(places.iter().all(|&(r, c)| r < m && c < k));
        }
        for (m, n) in [(16, 8), (8, 8), (16, 256)] {
            let places: HashSet<_> = (0..LANES)
                .flat_map(|lane| (0..m * n / LANES).map(move |x| accumulator(m, lane, x)))
                .collect();
            assert_eq!(places.len(), m * n);
        }
        for bits in [16, 32] {
            let places: HashSet<_> =
                (0..4 * 64).map(|i| quads::accumulator(i / 64, i % 64 / 8, i % 8, bits)).collect();
            assert_eq!(places.len(), 256);
        }
    }

    /// The figures of manual section 9.7.14.5: `(lane, register, element) -> (row, column)`.
    #[test]
    fn fragments_are_those_of_the_manual() {
        // m16n8k16 of halves: a6 of lane 5 is in register 3.
        assert_eq!(operand(16, 2, 5, 3, 0), (9, 10));
        assert_eq!(operand(16, 2, 31, 1, 1), (15, 7));
        // m16n8k8 of tf32: a2 is K + 4.
        assert_eq!(operand(16, 1, 6, 2, 0), (1, 6));
        // m16n8k32 of bytes: b5 of lane 7.
        assert_eq!(operand(8, 4, 7, 1, 1), (1, 29));
        // Accumulators: c3 of m16n8, c5 of wgmma's.
        assert_eq!(accumulator(16, 9, 3), (10, 3));
        assert_eq!(accumulator(16, 9, 5), (2, 11));
        // m8n8k4 with single-precision accumulators: c6 of lane 18 is in row 4 + 2, column 4 + 2.
        assert_eq!(quads::accumulator(0, 6, 6, 32), (18, 6, 0));
        assert_eq!(quads::accumulator(1, 3, 1, 32), (5, 3, 0));
    }
}
