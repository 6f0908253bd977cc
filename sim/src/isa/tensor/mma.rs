//! `mma.sync`: a warp multiplies matrices that its lanes hold in registers.

use super::fragment::{Accumulator, gather, operand_registers, quads};
use super::{ElementFormat, Shape, arithmetic, register_type, whole_warp};
use crate::codes;
use crate::exec::{Context, Fault, Flow, Op, Operation, Reg, Src};
use crate::isa::classes::RND;
use crate::isa::site::{Issue, Site, issue};
use crate::isa::{Class, Family, row};
use crate::num::tensor::{Arithmetic, Rows, multiply};
use crate::num::{F16, F32, Format, Rounding};

const F16_F32: &[&str] = &["f16", "f32"];
const DTYPE: Class = ("dtype", F16_F32);
const CTYPE: Class = ("ctype", F16_F32);
const FP8: &[&str] = &["e4m3", "e5m2"];
const INT8: &[&str] = &["s8", "u8"];
const INT4: &[&str] = &["s4", "u4"];
const LAYOUT: &[&str] = &["row", "col"];

pub(in crate::isa) static FAMILY: Family = Family {
    title: "Matrix multiplication by a warp",
    section: "9.7.14.5",
    rows: &[
        row(
            "mma.sync.aligned.m8n8k4.alayout.blayout.dtype.f16.f16.ctype",
            "d, a, b, c",
            &[("alayout", LAYOUT), ("blayout", LAYOUT), DTYPE, CTYPE],
            mma_quads,
        ),
        row(
            "mma.sync.aligned.shape.row.col.dtype.f16.f16.ctype",
            "d, a, b, c",
            &[("shape", &["m16n8k8", "m16n8k16"]), DTYPE, CTYPE],
            mma,
        ),
        row(
            "mma.sync.aligned.shape.row.col.dtype.bf16.bf16.ctype",
            "d, a, b, c",
            &[("shape", &["m16n8k8", "m16n8k16"]), ("dtype", &["f32"]), ("ctype", &["f32"])],
            mma,
        ),
        row(
            "mma.sync.aligned.shape.row.col.dtype.atype.btype.ctype",
            "d, a, b, c",
            &[
                ("shape", &["m16n8k4", "m16n8k8"]),
                ("dtype", &["f32"]),
                ("atype", &["tf32"]),
                ("btype", &["tf32"]),
                ("ctype", &["f32"]),
            ],
            mma,
        ),
        row(
            "mma.sync.aligned.shape.row.col.dtype.atype.btype.ctype",
            "d, a, b, c",
            &[("shape", &["m16n8k16", "m16n8k32"]), DTYPE, ("atype", FP8), ("btype", FP8), CTYPE],
            mma,
        ),
        row(
            "mma.sync.aligned.shape.row.col{.rnd}.dtype.atype.btype.ctype",
            "d, a, b, c",
            &[
                ("shape", &["m8n8k4", "m16n8k4", "m16n8k8", "m16n8k16"]),
                ("rnd", RND),
                ("dtype", &["f64"]),
                ("atype", &["f64"]),
                ("btype", &["f64"]),
                ("ctype", &["f64"]),
            ],
            mma,
        ),
        row(
            "mma.sync.aligned.shape.row.col{.satfinite}.dtype.atype.btype.ctype",
            "d, a, b, c",
            &[
                ("shape", &["m8n8k16", "m16n8k16", "m16n8k32"]),
                ("dtype", &["s32"]),
                ("atype", INT8),
                ("btype", INT8),
                ("ctype", &["s32"]),
            ],
            mma,
        ),
        row(
            "mma.sync.aligned.shape.row.col{.satfinite}.dtype.atype.btype.ctype",
            "d, a, b, c",
            &[
                ("shape", &["m8n8k32", "m16n8k32", "m16n8k64"]),
                ("dtype", &["s32"]),
                ("atype", INT4),
                ("btype", INT4),
                ("ctype", &["s32"]),
            ],
            mma,
        ),
        row(
            "mma.sync.aligned.shape.row.col.dtype.atype.btype.ctype.bitOp.popc",
            "d, a, b, c",
            &[
                ("shape", &["m8n8k128", "m16n8k128", "m16n8k256"]),
                ("dtype", &["s32"]),
                ("atype", &["b1"]),
                ("btype", &["b1"]),
                ("ctype", &["s32"]),
                ("bitOp", &["xor", "and"]),
            ],
            mma,
        ),
    ],
};

/// The bits of an accumulator's element.
pub(super) fn accumulator_bits(s: &Site<'_, '_, '_>, position: &str) -> u32 {
    match s.get(position) {
        Some("f16") => 16,
        Some("f64") => 64,
        _ => 32,
    }
}

struct Mma {
    shape: Shape,
    arithmetic: Arithmetic,
    a: (ElementFormat, Vec<Src>),
    b: (ElementFormat, Vec<Src>),
    from: (Accumulator, Vec<Src>),
    to: (Accumulator, Vec<Reg>),
}

/// The name of the type at a position, which is a choice or part of the syntax.
pub(super) fn kind_name(s: &Site<'_, '_, '_>, position: &str) -> &'static str {
    [position, "f16", "bf16"].into_iter().find_map(|n| s.get(n)).unwrap_or("")
}

fn mma(s: &mut Site<'_, '_, '_>) -> Result<Op, Issue> {
    let (atype, btype) = (kind_name(s, "atype"), kind_name(s, "btype"));
    let shape = Shape::parse(s.text("shape"), atype)?;
    let (a, b) = (ElementFormat::parse(atype)?, ElementFormat::parse(btype)?);
    if s.get("dtype") != s.get("ctype") {
        return issue(
            codes::UNKNOWN_MODIFIER,
            "the accumulators C and D must have the same type in this shape",
            "",
        );
    }
    let accumulator = Accumulator { m: shape.m, n: shape.n, bits: accumulator_bits(s, "dtype") };
    let (d, count) = (register_type(accumulator.register()), accumulator.registers());
    let to: Vec<Reg> = s.vector_dst(0, count, d, false)?.into_iter().map(|d| d.0).collect();
    let operand = |s: &mut Site<'_, '_, '_>, i, rows, kind: ElementFormat| {
        s.vector_src(i, operand_registers(rows, shape.k, kind), register_type(kind.register()), false)
    };
    Ok(Box::new(Mma {
        shape,
        arithmetic: arithmetic(s, atype, false)?,
        a: (a, operand(s, 1, shape.m, a)?),
        b: (b, operand(s, 2, shape.n, b)?),
        from: (accumulator, s.vector_src(3, count, d, false)?),
        to: (accumulator, to),
    }))
}

impl Operation for Mma {
    fn execute(&self, cx: &mut Context<'_>) -> Result<Flow, Fault> {
        if let Some(wait) = whole_warp(cx)? {
            return Ok(wait);
        }
        let Shape { m, n, k } = self.shape;
        let a = gather(cx, m, k, self.a.0, &self.a.1);
        let b = gather(cx, n, k, self.b.0, &self.b.1);
        let mut acc = self.from.0.gather(cx, &self.from.1);
        let (a, b) =
            (Rows { element: self.a.0.element, bits: &a }, Rows { element: self.b.0.element, bits: &b });
        multiply(self.arithmetic, k, &a, &b, &mut acc);
        self.to.0.scatter(cx, &self.to.1, &acc);
        Ok(Flow::Next)
    }
}

/// Volta's `mma.m8n8k4`, which is four multiplications at once.
struct Quads {
    arithmetic: Arithmetic,
    kind: ElementFormat,
    /// For A and for B, whether a lane's elements are along K.
    along: (bool, bool),
    a: Vec<Src>,
    b: Vec<Src>,
    c: (u32, Vec<Src>),
    d: (u32, Vec<Reg>),
}

fn mma_quads(s: &mut Site<'_, '_, '_>) -> Result<Op, Issue> {
    let bits = |position| accumulator_bits(s, position);
    let (d, c) = (bits("dtype"), bits("ctype"));
    if d == 16 && c == 32 {
        return issue(codes::UNKNOWN_MODIFIER, "an .f32 accumulator needs an .f32 result", "");
    }
    let half = ElementFormat::parse("f16")?;
    let t = register_type(32);
    let registers = |bits: u32| if bits == 16 { 4 } else { 8 };
    Ok(Box::new(Quads {
        arithmetic: Arithmetic::Quad(if d == 16 { F16 } else { F32 }),
        kind: half,
        along: (s.get("alayout") == Some("row"), s.get("blayout") == Some("col")),
        d: (d, s.vector_dst(0, registers(d), t, false)?.into_iter().map(|d| d.0).collect()),
        a: s.vector_src(1, 2, t, false)?,
        b: s.vector_src(2, 2, t, false)?,
        c: (c, s.vector_src(3, registers(c), t, false)?),
    }))
}

impl Operation for Quads {
    fn execute(&self, cx: &mut Context<'_>) -> Result<Flow, Fault> {
        if let Some(wait) = whole_warp(cx)? {
            return Ok(wait);
        }
        let element = self.kind.element;
        let mut results = Vec::with_capacity(4);
        for q in 0..4 {
            let a = quads::gather(cx, q, self.along.0, &self.a);
            let b = quads::gather(cx, q, self.along.1, &self.b);
            let mut acc = quads::collect(cx, q, self.c.0, &self.c.1);
            if self.c.0 < self.d.0 {
                acc.iter_mut().for_each(|v| *v = convert(F16, F32, *v));
            }
            let (a, b) = (Rows { element, bits: &a }, Rows { element, bits: &b });
            multiply(self.arithmetic, quads::SHAPE.k, &a, &b, &mut acc);
            results.push(acc);
        }
        for (q, acc) in results.iter().enumerate() {
            quads::scatter(cx, q, self.d.0, &self.d.1, acc);
        }
        Ok(Flow::Next)
    }
}

/// Converts a value to another format, rounded to nearest.
pub(super) fn convert(from: Format, to: Format, v: u64) -> u64 {
    to.encode(from.decode(v), Rounding::Nearest, false)
}
