//! Sparse multiplication, `mma.sp`. Of every four elements along K, A has two non-zero ones (of
//! TF32 one of two, of 4-bit integers two pairs of four). Only these are given, with their
//! positions as metadata.

use super::fragment::{Accumulator, gather, operand_registers};
use super::mma::{accumulator_bits, kind_name};
use super::{ElementFormat, Shape, arithmetic, register_type, whole_warp};
use crate::codes;
use crate::exec::{Context, Fault, Flow, Op, Operation, Reg, Src, fault};
use crate::isa::site::{Issue, Site, issue};
use crate::isa::{Class, Family, row};
use crate::num::tensor::{Arithmetic, Rows, multiply};
use crate::types::Ty;

const VARIANT: Class = ("spvariant", &["sp", "sp::ordered_metadata"]);
const F16_F32: &[&str] = &["f16", "f32"];
const F32: &[&str] = &["f32"];
const S32: &[&str] = &["s32"];
const FP8: &[&str] = &["e4m3", "e5m2"];
const INT8: &[&str] = &["s8", "u8"];
const INT4: &[&str] = &["s4", "u4"];
const OPERANDS: &str = "d, a, b, c, e, f";
const TYPED: &str = "mma.spvariant.sync.aligned.shape.row.col.dtype.atype.btype.ctype";
const INTEGERS: &str = "mma.spvariant.sync.aligned.shape.row.col{.satfinite}.dtype.atype.btype.ctype";

pub(in crate::isa) static FAMILY: Family = Family {
    title: "Matrix multiplication by a warp, with a sparse matrix",
    section: "9.7.14.6",
    rows: &[
        row(
            "mma.spvariant.sync.aligned.shape.row.col.dtype.f16.f16.ctype",
            OPERANDS,
            &[VARIANT, ("shape", &["m16n8k16", "m16n8k32"]), ("dtype", F16_F32), ("ctype", F16_F32)],
            sparse,
        ),
        row(
            "mma.spvariant.sync.aligned.shape.row.col.dtype.bf16.bf16.ctype",
            OPERANDS,
            &[VARIANT, ("shape", &["m16n8k16", "m16n8k32"]), ("dtype", F32), ("ctype", F32)],
            sparse,
        ),
        row(
            TYPED,
            OPERANDS,
            &[
                VARIANT,
                ("shape", &["m16n8k8", "m16n8k16"]),
                ("dtype", F32),
                ("atype", &["tf32"]),
                ("btype", &["tf32"]),
                ("ctype", F32),
            ],
            sparse,
        ),
        row(
            TYPED,
            OPERANDS,
            &[
                VARIANT,
                ("shape", &["m16n8k64"]),
                ("dtype", F32),
                ("atype", FP8),
                ("btype", FP8),
                ("ctype", F32),
            ],
            sparse,
        ),
        row(
            INTEGERS,
            OPERANDS,
            &[
                VARIANT,
                ("shape", &["m16n8k32", "m16n8k64"]),
                ("dtype", S32),
                ("atype", INT8),
                ("btype", INT8),
                ("ctype", S32),
            ],
            sparse,
        ),
        row(
            INTEGERS,
            OPERANDS,
            &[
                VARIANT,
                ("shape", &["m16n8k64", "m16n8k128"]),
                ("dtype", S32),
                ("atype", INT4),
                ("btype", INT4),
                ("ctype", S32),
            ],
            sparse,
        ),
    ],
};

/// The encoding of the positions of non-zero elements in metadata, with four bits for each chunk of
/// a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Places {
    /// Two 2-bit positions in a chunk of four elements.
    Elements,
    /// Two 2-bit positions of pairs of elements.
    Pairs,
    /// Two 2-bit positions of halves of elements: one of two elements.
    Halves,
}

struct Sparse {
    shape: Shape,
    arithmetic: Arithmetic,
    places: Places,
    a: (ElementFormat, Vec<Src>),
    b: (ElementFormat, Vec<Src>),
    c: Vec<Src>,
    metadata: Src,
    /// The first lane of a group that gives the metadata, and the number of such lanes.
    lanes: (usize, usize),
    accumulator: Accumulator,
    d: Vec<Reg>,
}

fn sparse(s: &mut Site<'_, '_, '_>) -> Result<Op, Issue> {
    let (atype, btype) = (kind_name(s, "atype"), kind_name(s, "btype"));
    let shape = Shape::parse(s.text("shape"), atype)?;
    let (ka, kb) = (ElementFormat::parse(atype)?, ElementFormat::parse(btype)?);
    if s.get("dtype") != s.get("ctype") {
        return issue(codes::UNKNOWN_MODIFIER, "the accumulators C and D must have the same type", "");
    }
    let places = match ka.storage {
        32 => Places::Halves,
        4 => Places::Pairs,
        _ => Places::Elements,
    };
    // There are four bits for each chunk, for 16 rows, from 8 groups of lanes.
    let count = shape.k / places.chunk() * 4 * 16 / (8 * 32);
    let selector = s.immediate(5)?;
    let first = usize::try_from(selector).unwrap_or(usize::MAX).saturating_mul(count);
    if first >= 4 {
        let message = format!("the sparsity selector is {selector}");
        return issue(
            codes::BAD_OPERANDS,
            message,
            format!("use a selector below {} for this shape and type", 4 / count),
        );
    }
    let accumulator = Accumulator { m: 16, n: shape.n, bits: accumulator_bits(s, "dtype") };
    let t = register_type(32);
    let d = s.vector_dst(0, accumulator.registers(), t, false)?.into_iter().map(|d| d.0).collect();
    Ok(Box::new(Sparse {
        shape,
        arithmetic: arithmetic(s, atype, false)?,
        places,
        a: (ka, s.vector_src(1, operand_registers(16, shape.k / 2, ka), t, false)?),
        b: (kb, s.vector_src(2, operand_registers(shape.n, shape.k, kb), t, false)?),
        c: s.vector_src(3, accumulator.registers(), t, false)?,
        metadata: s.src(4, Ty::B32)?,
        lanes: (first, count),
        accumulator,
        d,
    }))
}

impl Places {
    /// The number of elements of a chunk.
    fn chunk(self) -> usize {
        match self {
            Places::Elements => 4,
            Places::Pairs => 8,
            Places::Halves => 2,
        }
    }

    /// The position of the non-zero element `i` in its row, according to the metadata of its chunk.
    fn place(self, i: usize, chunk: u64) -> usize {
        let field = |n: usize| (chunk >> (2 * n) & 3) as usize;
        match self {
            Places::Elements => i / 2 * 4 + field(i % 2),
            Places::Pairs => i / 4 * 8 + 2 * field(i / 2 % 2) + i % 2,
            Places::Halves => i * 2 + field(0) / 2,
        }
    }
}

/// The metadata of chunk `n` of a row. For integers and floats of at most eight bits (`by_rows`) a
/// lane gives eight chunks of one row; for other types it gives four chunks of each of two rows.
fn chunk(metadata: &[u64; 32], (first, count): (usize, usize), by_rows: bool, row: usize, n: usize) -> u64 {
    let (group, upper) = (row % 8, row / 8);
    let (lane, at) = if by_rows { (n / 8 * 2 + upper, n % 8) } else { (n / 4, 4 * upper + n % 4) };
    metadata[4 * group + (first + lane % count) % 4] >> (4 * at) & 15
}

impl Operation for Sparse {
    fn execute(&self, cx: &mut Context<'_>) -> Result<Flow, Fault> {
        if let Some(wait) = whole_warp(cx)? {
            return Ok(wait);
        }
        let Shape { n, k, .. } = self.shape;
        let half = k / 2;
        let a = gather(cx, 16, half, self.a.0, &self.a.1);
        let b = gather(cx, n, k, self.b.0, &self.b.1);
        let mut acc = self.accumulator.gather(cx, &self.c);
        let metadata = *cx.src(self.metadata);
        let by_rows = self.a.0.storage <= 8;
        let in_chunk = self.places.chunk() / 2;
        for (row, acc) in acc.chunks_exact_mut(n).enumerate() {
            let mut places = Vec::with_capacity(half);
            for i in 0..half {
                let bits = chunk(&metadata, self.lanes, by_rows, row, i / in_chunk);
                if bits & 3 == bits >> 2 {
                    let message =
                        format!("sparsity metadata {bits:#06b} of row {row} names one position twice");
                    return Err(fault(
                        codes::UNDEFINED,
                        row % 8 * 4,
                        message,
                        "name two different positions in each chunk",
                    ));
                }
                places.push(self.places.place(i, bits));
            }
            let columns: Vec<u64> =
                b.chunks_exact(k).flat_map(|column| places.iter().map(|&p| column[p])).collect();
            let a = Rows { element: self.a.0.element, bits: &a[row * half..(row + 1) * half] };
            let b = Rows { element: self.b.0.element, bits: &columns };
            multiply(self.arithmetic, half, &a, &b, acc);
        }
        self.accumulator.scatter(cx, &self.d, &acc);
        Ok(Flow::Next)
    }
}
