//! Matrix descriptors: the locations of the rows of a `wgmma` operand in shared memory (manual
//! section 9.7.15.5.1).
//!
//! Memory is moved in *pieces* of 16 bytes. Eight of them, from eight rows, make a core matrix. The
//! descriptor states the distance between core matrices, and whether pieces are exchanged
//! (swizzled) within spans of 32, 64 or 128 bytes.

use super::ElementFormat;
use crate::check::AccessKind;
use crate::check::detector::Ticket;
use crate::codes;
use crate::exec::{Context, Fault, fault};
use crate::num::mask;
use std::ops::Range;

const PIECE: u64 = 16;
/// The number of bytes along K of one multiplication.
const ALONG_K: u64 = 32;

/// The dimension along which elements are contiguous.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Major {
    K,
    /// Elements are contiguous along M (of A) or N (of B); elements have 16 bits.
    Mn,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Descriptor {
    bits: u64,
    start: u64,
    leading: u64,
    stride: u64,
    /// The phase of the swizzling pattern at its first byte, in spans of 128 bytes.
    base: u64,
    /// The number of bytes within which pieces are exchanged; 16 means no exchange.
    span: u64,
}

impl Descriptor {
    pub(super) fn new(bits: u64) -> Result<Descriptor, Fault> {
        let field = |at: u32, width: u32| bits >> at & mask(width);
        let span = match field(62, 2) {
            0 => PIECE,
            1 => 128,
            2 => 64,
            _ => 32,
        };
        if field(52, 10) != 0 || field(46, 3) != 0 || field(30, 2) != 0 || field(14, 2) != 0 {
            let message = format!("{bits:#018x} is not a matrix descriptor: reserved bits are set");
            return Err(fault(
                codes::UNDEFINED,
                0,
                message,
                "set bits 14, 15, 30, 31, 46 to 48 and 52 to 61 to zero",
            ));
        }
        Ok(Descriptor {
            bits,
            start: field(0, 14) << 4,
            leading: field(16, 14) << 4,
            stride: field(32, 14) << 4,
            base: field(49, 3),
            span,
        })
    }

    /// The number that the descriptor was decoded from.
    pub(super) fn bits(&self) -> u64 {
        self.bits
    }

    /// The address of a piece. K-major: of row `row`, piece `piece` along K. MN-major: of the eight
    /// rows from `8 * row`, element `piece` along K.
    fn address(&self, major: Major, row: u64, piece: u64) -> u64 {
        let Descriptor { start, leading, stride, span, .. } = *self;
        let at = start
            + match (major, span) {
                (Major::K, PIECE) => row / 8 * stride + row % 8 * PIECE + piece * leading,
                (Major::K, _) => row / 8 * stride + row % 8 * span + piece * PIECE,
                (Major::Mn, PIECE) => row * stride + piece % 8 * PIECE + piece / 8 * leading,
                (Major::Mn, _) => {
                    let pieces = span / PIECE;
                    row % pieces * PIECE + row / pieces * leading + piece % 8 * span + piece / 8 * stride
                }
            };
        // The pattern repeats every 8 lines of 128 bytes; the line's number changes the piece's.
        let line = (at >> 7).wrapping_sub(self.base);
        at ^ (line & (span / PIECE - 1)) << 4
    }

    /// Addresses of an operand's pieces, in order.
    fn pieces(self, major: Major, rows: Range<usize>, kind: ElementFormat) -> impl Iterator<Item = u64> {
        let rows = rows.start as u64..rows.end as u64;
        let (rows, along) = match major {
            Major::K => (rows, ALONG_K / PIECE),
            Major::Mn => (rows.start / 8..rows.end / 8, ALONG_K * 8 / u64::from(kind.storage)),
        };
        rows.flat_map(move |r| (0..along).map(move |p| self.address(major, r, p)))
    }

    /// Checks that the whole operand is in shared memory.
    pub(super) fn check(
        self,
        cx: &Context<'_>,
        major: Major,
        rows: Range<usize>,
        kind: ElementFormat,
    ) -> Result<(), Fault> {
        let size = cx.memory.buffers[cx.shared].len() as u64;
        match self.pieces(major, rows, kind).find(|at| at + PIECE > size) {
            None => Ok(()),
            Some(at) => {
                let message =
                    format!("a matrix operand at shared offset {at:#x} is out of bounds (size {size})");
                let help = "check the descriptor's address, offsets and swizzling mode";
                let mut f = fault(codes::OUT_OF_BOUNDS, 0, message, help);
                f.shared = Some(at);
                Err(f)
            }
        }
    }

    /// Reads the operand's bits, row by row. Only this function reads shared memory for
    /// multiplications, in the async proxy.
    pub(super) fn read(
        self,
        cx: &mut Context<'_>,
        major: Major,
        rows: Range<usize>,
        kind: ElementFormat,
        ticket: Option<&Ticket>,
    ) -> Vec<u64> {
        let shared = cx.shared;
        if let (Some(d), Some(t)) = (cx.check.as_deref_mut(), ticket) {
            for at in self.pieces(major, rows.clone(), kind) {
                d.land(t, AccessKind::Read, shared, at as usize, PIECE as usize);
            }
        }
        let bytes = cx.memory.buffers.get(shared).map_or(&[][..], Vec::as_slice);
        let per_piece = (PIECE * 8) as usize / kind.storage as usize;
        let elements = self.pieces(major, rows.clone(), kind).flat_map(|at| {
            let piece = bytes.get(at as usize..).and_then(|b| b.first_chunk()).copied().unwrap_or_default();
            let bits = u128::from_le_bytes(piece);
            (0..per_piece).map(move |i| (bits >> (i * kind.storage as usize)) as u64 & mask(kind.storage))
        });
        let elements: Vec<u64> = elements.collect();
        if major == Major::K {
            return elements;
        }
        // The pieces of eight rows at one position along K.
        let k = (ALONG_K * 8) as usize / kind.storage as usize;
        let element = |row: usize, x: usize| elements[(row / 8 * k + x) * 8 + row % 8];
        (0..rows.len()).flat_map(|row| (0..k).map(move |x| element(row, x))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::ElementFormat;
    use super::*;
    use std::collections::HashSet;

    fn descriptor(start: u64, leading: u64, stride: u64, mode: u64) -> Descriptor {
        Descriptor::new(start >> 4 | (leading >> 4) << 16 | (stride >> 4) << 32 | mode << 62).unwrap()
    }

    /// A tile whose rows of 64 halves lie one after the other, swizzled over 128 bytes as TMA does.
    #[test]
    fn rows_of_128_bytes() {
        let d = descriptor(0x2000, 16, 1024, 1);
        for (row, k) in [(0, 0), (1, 0), (9, 8), (63, 56)] {
            let k = k as u64;
            // Advancing along K moves the start, as kernels do.
            let d = Descriptor { start: 0x2000 + k / 16 * 32, ..d };
            let want = 0x2000 + row * 128 + ((k / 8) ^ (row % 8)) * 16;
            assert_eq!(d.address(Major::K, row, k / 8 % 2), want, "row {row} element {k}");
        }
    }

    #[test]
    fn other_spans() {
        // 64 bytes: pairs of rows share a line; 32 bytes: four rows.
        let d = descriptor(0, 16, 512, 2);
        assert_eq!(d.address(Major::K, 3, 1), 3 * 64);
        let d = descriptor(0, 16, 256, 3);
        assert_eq!(d.address(Major::K, 5, 0), 5 * 32 + 16);
        // No exchange: core matrices of 128 bytes, `leading` apart along K.
        let d = descriptor(0, 128, 256, 0);
        assert_eq!(d.address(Major::K, 10, 1), 256 + 2 * 16 + 128);
        // MN-major: element (row 72, k 9) of rows of 64 halves.
        let d = descriptor(0, 8192, 1024, 1);
        assert_eq!(d.address(Major::Mn, 9, 9), 8192 + 1024 + 128);
    }

    /// No two pieces of an operand share memory in any of the layouts.
    #[test]
    fn pieces_are_apart() {
        let kind = ElementFormat::parse("bf16").unwrap();
        for (leading, stride, mode, major) in [
            (128, 256, 0, Major::K),
            (16, 256, 3, Major::K),
            (16, 512, 2, Major::K),
            (16, 1024, 1, Major::K),
            (128, 256, 0, Major::Mn),
            (512, 256, 3, Major::Mn),
            (1024, 512, 2, Major::Mn),
            (2048, 1024, 1, Major::Mn),
        ] {
            let d = descriptor(1024, leading, stride, mode);
            let pieces: HashSet<u64> = d.pieces(major, 0..64, kind).collect();
            assert_eq!(pieces.len(), 128, "{d:?} {major:?}");
        }
        assert!(Descriptor::new(1 << 14).is_err());
    }
}
