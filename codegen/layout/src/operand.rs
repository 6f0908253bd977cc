//! [`Operand`]: a tile in shared memory in the form in which the matrix instructions over shared
//! memory (wgmma) read it.
//!
//! The layouts are those of the PTX ISA, "Asynchronous Warpgroup Level Matrix Shared Memory
//! Layout": core matrices of eight rows of 16 bytes, or rows of 32, 64 or 128 bytes whose 16-byte
//! pieces a swizzle permutes.

use crate::boxes::{Steps, starts, steps};
use crate::error::invalid;
use crate::{Layout, Result, Swizzle};

/// The number of bytes along K that one instruction multiplies, for every element type.
pub const SLICE_BYTES: i64 = 32;
/// The unit of offsets in descriptors, which have 14 bits for each offset.
const UNIT: i64 = 16;
const LIMIT: i64 = UNIT << 14;

/// The fields of a matrix descriptor for a tile of (M or N) x K. All distances are in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Operand {
    /// Whether consecutive elements lie along M or N instead of K.
    pub mn_major: bool,
    /// The value of bits 62 and 63, which selects the swizzle: 0 for none, 1, 2 and 3 for 128, 64
    /// and 32 bytes.
    pub mode: u64,
    /// The leading dimension byte offset of the descriptor.
    pub leading: i64,
    /// The stride dimension byte offset of the descriptor.
    pub stride: i64,
    /// The number of elements along K that one instruction multiplies.
    pub slice: i64,
    /// The offset of each slice along K, in bytes.
    pub slices: Vec<i64>,
    /// The number of rows between two rows at which an instruction can begin.
    pub block: i64,
    /// The offset of each block of rows, in bytes.
    pub blocks: Vec<i64>,
    /// The alignment that the tile needs, in bytes.
    pub align: u32,
}

impl Operand {
    /// The operand of `tile`: a static layout of modes (M or N, K), with elements of `bytes` bytes
    /// that `swizzle` permutes.
    ///
    /// Post: consider the instruction with [`bits`](Operand::bits) and a start address of the
    /// tile's plus `blocks[i] + slices[j]`. Its first element is that of row `i * block` and of
    /// position `j * slice` along K. It reads every other element at the address that the layout
    /// gives it.
    ///
    /// # Errors
    /// Fails if no instruction reads the tile. The message says which property the tile lacks.
    pub fn new(tile: &Layout, swizzle: Option<Swizzle>, bytes: u32) -> Result<Operand> {
        let bytes = i64::from(bytes.max(1));
        if tile.rank() != 2 {
            return invalid("mma", format!("{tile} has {} modes, but an operand has two", tile.rank()));
        }
        let (rows, depth) = (steps("mma", tile, 0)?, steps("mma", tile, 1)?);
        let (mode, span) = match swizzle {
            None => (0, UNIT),
            Some(s) => match ((s.base(), s.shift()), s.bits()) {
                ((4, 3), bits @ 1..=3) => (4 - u64::from(bits), UNIT << bits),
                _ => return invalid("mma", format!("no matrix instruction has the swizzle {s}")),
            },
        };
        let is_first = |steps: &Steps| steps.first().is_some_and(|(_, d)| *d == 1);
        match (is_first(&depth), is_first(&rows)) {
            (true, _) => k_major(tile, (&rows, &depth), (mode, span), bytes),
            (_, true) if bytes == 2 => mn_major(tile, (&rows, &depth), (mode, span)),
            (_, true) => invalid(
                "mma",
                format!("{tile} is contiguous along M or N, which only types of 16 bits permit"),
            ),
            _ => invalid("mma", format!("{tile} is contiguous along neither of its modes")),
        }
    }

    /// The bits of the descriptor without its start address (PTX ISA, Matrix Descriptor Format).
    pub fn bits(&self) -> u64 {
        let field = |bytes: i64| (bytes / UNIT).unsigned_abs() & 0x3fff;
        field(self.leading) << 16 | field(self.stride) << 32 | self.mode << 62
    }

    /// The offset of the instruction whose first row is `row` and whose slice along K is `slice`, in bytes.
    pub fn at(&self, row: i64, slice: usize) -> Option<i64> {
        if row % self.block != 0 {
            return None;
        }
        let block = usize::try_from(row / self.block).ok()?;
        Some(self.blocks.get(block)? + self.slices.get(slice)?)
    }

    /// The bytes of a row of an atom. The period of its swizzle is eight rows.
    pub fn span(&self) -> i64 {
        UNIT << self.swizzle_bits()
    }

    /// The bits of an address that the swizzle changes, or 0 without a swizzle.
    pub fn swizzle_bits(&self) -> u32 {
        [0, 3, 2, 1].get(self.mode as usize).copied().unwrap_or(0)
    }

    /// The offset of row `row` in the first slice along K, in bytes.
    pub fn row(&self, row: i64) -> Option<i64> {
        let block = usize::try_from(row / self.block).ok()?;
        let step = if self.mn_major { self.span() / self.block } else { self.span() };
        Some(self.blocks.get(block)? + row % self.block * step)
    }

    /// The distance in bytes between the two halves of a slice along K. A half has 16 bytes, or
    /// eight elements if the tile is contiguous along M or N.
    pub fn half(&self) -> i64 {
        if self.mn_major && self.mode != 0 { self.stride } else { self.leading }
    }

    fn checked(self, tile: &Layout) -> Result<Operand> {
        let wrong = [("leading", self.leading), ("stride", self.stride)]
            .into_iter()
            .find(|(_, n)| !(0..LIMIT).contains(n) || n % UNIT != 0);
        match wrong {
            None => Ok(self),
            Some((name, n)) => invalid(
                "mma",
                format!("the {name} byte offset of {tile} is {n}, which does not fit into a descriptor"),
            ),
        }
    }
}

/// Builds the operand from rows of `span` bytes along K. Eight rows make an atom, and the distance
/// between atoms along M or N is constant.
fn k_major(
    tile: &Layout,
    (rows, depth): (&Steps, &Steps),
    (mode, span): (u64, i64),
    bytes: i64,
) -> Result<Operand> {
    let (width, slice) = (span / bytes, SLICE_BYTES / bytes);
    let (run, panels) = cut(tile, depth, width)?;
    expect(tile, &run, (width, 1), format!("{span} bytes along K follow each other"))?;
    let (eight, groups) = cut(tile, rows, 8)?;
    expect(tile, &eight, (8, width), format!("eight rows follow each other {span} bytes apart"))?;
    let stride = even(tile, &groups, "groups of eight rows")?.unwrap_or(8 * width) * bytes;
    let (leading, slices) = if mode == 0 {
        let (pair, rest) = cut(tile, &panels, 2)?;
        let leading = even(tile, &pair, "core matrices along K")?.unwrap_or(8 * width);
        (leading * bytes, places(&rest))
    } else {
        let inside = (0..width / slice).map(|i| i * slice);
        let panels = places(&panels);
        (UNIT, panels.iter().flat_map(|p| inside.clone().map(move |i| p + i)).collect())
    };
    Operand {
        mn_major: false,
        mode,
        leading,
        stride,
        slice,
        slices: scaled(&slices, bytes),
        block: 8,
        blocks: scaled(&places(&groups), bytes),
        align: alignment(span),
    }
    .checked(tile)
}

/// Builds the operand from rows of `span` bytes along M or N. Atoms of eight rows follow each other
/// along K.
fn mn_major(tile: &Layout, (rows, depth): (&Steps, &Steps), (mode, span): (u64, i64)) -> Result<Operand> {
    const BYTES: i64 = 2;
    let width = span / BYTES;
    let (run, panels) = cut(tile, rows, width)?;
    expect(tile, &run, (width, 1), format!("{span} bytes along M or N follow each other"))?;
    let (eight, groups) = cut(tile, depth, 8)?;
    expect(tile, &eight, (8, width), format!("eight places along K follow each other {span} bytes apart"))?;
    let (pair, slices) = cut(tile, &groups, 2)?;
    let along_k = even(tile, &pair, "groups of eight along K")?.unwrap_or(8 * width) * BYTES;
    let along_mn = even(tile, &panels, "panels along M or N")?.unwrap_or(8 * width) * BYTES;
    let (leading, stride) = if mode == 0 { (along_k, along_mn) } else { (along_mn, along_k) };
    Operand {
        mn_major: true,
        mode,
        leading,
        stride,
        slice: SLICE_BYTES / BYTES,
        slices: scaled(&places(&slices), BYTES),
        block: width,
        blocks: scaled(&places(&panels), BYTES),
        align: alignment(span),
    }
    .checked(tile)
}

/// The number of bytes after which a swizzle's pattern repeats, which is that of eight rows.
fn alignment(span: i64) -> u32 {
    u32::try_from(8 * span).unwrap_or(1024)
}

fn scaled(elements: &[i64], bytes: i64) -> Vec<i64> {
    elements.iter().map(|n| n * bytes).collect()
}

/// The first `n` elements of a mode, and the repetitions of this group.
fn cut(tile: &Layout, steps: &[(i64, i64)], n: i64) -> Result<(Steps, Steps)> {
    let (mut first, mut rest, mut left) = (Steps::new(), Steps::new(), n);
    for &(extent, stride) in steps {
        if left == 1 {
            rest.push((extent, stride));
        } else if extent % left == 0 {
            first.push((left, stride));
            if extent > left {
                rest.push((extent / left, stride * left));
            }
            left = 1;
        } else if left % extent == 0 {
            first.push((extent, stride));
            left /= extent;
        } else {
            return invalid("mma", format!("a mode of {tile} is not a multiple of {n}"));
        }
    }
    if left > 1 {
        return invalid("mma", format!("a mode of {tile} has fewer than {n} elements"));
    }
    Ok((first, rest))
}

fn expect(tile: &Layout, part: &[(i64, i64)], want: (i64, i64), what: String) -> Result<()> {
    if part == [want] { Ok(()) } else { invalid("mma", format!("{what} in an operand, but not in {tile}")) }
}

/// The distance between neighbours of a mode, which must be constant. It is `None` if the mode has
/// one element.
fn even(tile: &Layout, steps: &[(i64, i64)], what: &str) -> Result<Option<i64>> {
    match steps {
        [] => Ok(None),
        [(_, d)] => Ok(Some(*d)),
        _ => invalid("mma", format!("the distance between {what} of {tile} is not constant")),
    }
}

/// The offsets of the elements of a mode.
fn places(steps: &[(i64, i64)]) -> Vec<i64> {
    starts(steps, 1).into_iter().map(|(_, offset)| offset).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::panels;

    fn swizzled(shape: &[i64], major: usize, bytes: u32, bits: u32) -> Result<Operand> {
        let width = (16i64 << bits) / i64::from(bytes);
        let layout = panels(shape, major, width)?;
        Operand::new(&layout, Some(Swizzle::new(bits, 4, 3)?), bytes)
    }

    #[test]
    fn swizzled_tiles_are_operands() {
        let k = swizzled(&[128, 64], 1, 2, 3).unwrap();
        assert_eq!((k.mn_major, k.mode, k.stride, k.slice, k.block, k.align), (false, 1, 1024, 16, 8, 1024));
        assert_eq!(k.slices, [0, 32, 64, 96]);
        assert_eq!(k.at(64, 1), Some(8192 + 32));
        // The tile has two panels along K.
        let wide = swizzled(&[64, 128], 1, 2, 3).unwrap();
        assert_eq!(wide.slices, [0, 32, 64, 96, 8192, 8224, 8256, 8288]);
        let mn = swizzled(&[128, 64], 0, 2, 3).unwrap();
        assert_eq!((mn.mn_major, mn.leading, mn.stride, mn.block), (true, 8192, 1024, 64));
        assert_eq!(mn.slices, [0, 2048, 4096, 6144]);
        assert_eq!(mn.at(64, 1), Some(8192 + 2048));
        let fp8 = swizzled(&[64, 64], 1, 1, 2).unwrap();
        assert_eq!((fp8.mode, fp8.stride, fp8.slice), (2, 512, 32));
    }

    /// Checks that the rows of the 8 x 8 matrices that warps load are where the layout has them.
    #[test]
    fn rows_and_halves_are_where_the_layout_has_them() {
        for (tile, major, bytes, bits) in [
            ([128, 64], 1, 2, 3),
            ([64, 32], 1, 2, 2),
            ([64, 64], 1, 4, 3),
            ([128, 64], 0, 2, 3),
            ([64, 32], 0, 2, 1),
        ] {
            let width = (16i64 << bits) / i64::from(bytes);
            let layout = panels(&tile, major, width).unwrap();
            let o = Operand::new(&layout, Some(Swizzle::new(bits, 4, 3).unwrap()), bytes as u32).unwrap();
            let half = if o.mn_major { 8 } else { o.slice / 2 };
            for (row, k) in [(0, 0), (8, 0), (24, 0), (48, half), (56, 0)] {
                let at = crate::IntTuple::Tuple(vec![row.into(), k.into()]);
                let wanted = layout.crd2idx(&at).unwrap().as_const().unwrap() * i64::from(bytes);
                let found = o.row(row).unwrap() + if k == 0 { 0 } else { o.half() };
                assert_eq!(found, wanted, "{layout}: {row}, {k}");
            }
        }
    }

    #[test]
    fn core_matrices_without_a_swizzle_are_operands() {
        // (8, 8) x (8, 2): rows of 16 bytes. The second column of core matrices follows all of the
        // first.
        let tile = crate::parse_layout("((8,8),(8,2)):((8,64),(1,512))", &mut |_| None).unwrap();
        let o = Operand::new(&tile, None, 2).unwrap();
        assert_eq!((o.mode, o.leading, o.stride, o.slices), (0, 1024, 128, vec![0]));
    }

    #[test]
    fn a_tile_that_no_instruction_reads_is_an_error_with_a_reason() {
        let bad = |tile: &str, bytes| {
            Operand::new(&crate::parse_layout(tile, &mut |_| None).unwrap(), None, bytes)
                .unwrap_err()
                .to_string()
        };
        assert!(bad("(64,16):(16,1)", 2).contains("eight rows follow each other 16 bytes apart"));
        assert!(bad("(64,32):(1,64)", 1).contains("only types of 16 bits"));
        assert!(bad("(64,16):(2,128)", 2).contains("neither"));
        assert!(swizzled(&[12, 64], 1, 2, 3).unwrap_err().to_string().contains("multiple of 8"));
    }
}
