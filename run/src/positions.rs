//! The positions of a layout's elements in memory, in the order of arrays (the last index varies
//! fastest).

use std::ops::Range;
use weft_ir::{Int, IntTuple, Layout};

/// The largest number of elements of a tensor on a PE.
const MAX_ELEMENTS: i64 = 1 << 32;

/// The elements of a tensor, with one mode for each dimension.
#[derive(Debug)]
pub(crate) struct Positions {
    modes: Vec<Mode>,
    /// The number of elements from the first to the last.
    span: u64,
}

/// The positions of a mode in elements.
#[derive(Debug)]
enum Mode {
    /// A number of positions with a constant distance.
    Even(usize, i64),
    /// A list of positions.
    Table(Vec<i64>),
}

impl Mode {
    fn len(&self) -> usize {
        match self {
            Mode::Even(n, _) => *n,
            Mode::Table(at) => at.len(),
        }
    }

    fn at(&self, i: usize) -> i64 {
        match self {
            Mode::Even(_, stride) => i as i64 * stride,
            Mode::Table(at) => at[i],
        }
    }
}

impl Positions {
    /// Computes the positions of a layout with known numbers.
    ///
    /// # Errors
    /// Fails for a layout without known positions. The text ends a sentence about the tensor.
    pub fn new(layout: &Layout) -> Result<Positions, String> {
        let within = |n: Int| n.as_const().filter(|n| (1..=MAX_ELEMENTS).contains(n));
        if layout.size().is(0) {
            return Err(format!(
                "with layout {layout} has an extent of 0, but a tensor must have at least one element"
            ));
        }
        let (Some(_), Some(span)) = (within(layout.size()), within(layout.cosize())) else {
            return Err(format!("with layout {layout} must have 1 to {MAX_ELEMENTS} elements"));
        };
        let mut modes = Vec::new();
        for m in 0..layout.rank() {
            let mode = layout.mode(m).unwrap_or_else(Layout::one);
            let n = mode.size().as_const().unwrap_or(0);
            let at = |i: i64| mode.crd2idx(&Int::from(i).into()).ok().and_then(|x| x.as_const());
            modes.push(match (mode.shape(), mode.stride().as_int().and_then(Int::as_const)) {
                (IntTuple::Int(_), Some(stride)) => Mode::Even(n as usize, stride),
                _ => {
                    let all: Option<Vec<i64>> = (0..n).map(at).collect();
                    Mode::Table(all.ok_or_else(|| format!("has a layout without addresses: {layout}"))?)
                }
            });
        }
        Ok(Positions { modes, span: span.unsigned_abs() })
    }

    /// The extents, with the slowest dimension first.
    pub fn shape(&self) -> Vec<u64> {
        self.modes.iter().map(|m| m.len() as u64).collect()
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        self.modes.iter().map(Mode::len).product()
    }

    /// The number of elements in memory from the first to the last, including gaps.
    pub fn span(&self) -> u64 {
        self.span
    }

    /// Calls `f` with (first element in C order, offset in memory, elements) of each run of consecutive elements.
    pub fn runs(&self, f: &mut dyn FnMut(usize, u64, usize)) {
        let Some((last, outer)) = self.modes.split_last() else { return f(0, 0, 1) };
        let rows: usize = outer.iter().map(Mode::len).product();
        for row in 0..rows {
            let (mut rest, mut base) = (row, 0);
            for mode in outer.iter().rev() {
                base += mode.at(rest % mode.len());
                rest /= mode.len();
            }
            let first = row * last.len();
            match last {
                Mode::Even(n, 1) => f(first, base as u64, *n),
                _ => (0..last.len()).for_each(|i| f(first + i, (base + last.at(i)) as u64, 1)),
            }
        }
    }

    /// The ranges of memory that contain elements, in elements: disjoint and in ascending order.
    pub fn ranges(&self) -> Vec<Range<usize>> {
        let mut all = Vec::new();
        self.runs(&mut |_, offset, n| all.push(offset as usize..offset as usize + n));
        all.sort_unstable_by_key(|r| r.start);
        let mut merged: Vec<Range<usize>> = Vec::new();
        for range in all {
            match merged.last_mut() {
                Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
                _ => merged.push(range),
            }
        }
        merged
    }

    /// Writes elements of `size` bytes, given in C order, to their positions in memory.
    pub fn scatter(&self, size: usize, data: &[u8], memory: &mut [u8]) {
        self.runs(&mut |first, offset, n| {
            let at = offset as usize * size;
            memory[at..at + n * size].copy_from_slice(&data[first * size..(first + n) * size]);
        });
    }

    /// Reads elements of `size` bytes from their positions in memory, in C order.
    pub fn gather(&self, size: usize, memory: &[u8]) -> Vec<u8> {
        let mut out = vec![0; self.len() * size];
        self.runs(&mut |first, offset, n| {
            let at = offset as usize * size;
            out[first * size..(first + n) * size].copy_from_slice(&memory[at..at + n * size]);
        });
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_are_not_in_the_ranges() {
        let tuple = |ns: [i64; 2]| IntTuple::Tuple(ns.map(|n| IntTuple::Int(n.into())).to_vec());
        let padded = Layout::new(tuple([3, 4]), tuple([6, 1])).unwrap();
        let positions = Positions::new(&padded).unwrap();
        assert_eq!(positions.ranges(), [0..4, 6..10, 12..16]);
        let columns = Layout::new(tuple([3, 4]), tuple([1, 3])).unwrap();
        assert_eq!(Positions::new(&columns).unwrap().ranges(), [Range { start: 0, end: 12 }]);
    }
}
