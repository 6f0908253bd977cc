//! `wgmma`: the four warps of a warpgroup multiply matrices in shared memory asynchronously.
//!
//! Each warp computes 16 of the 64 rows. An instruction only begins the multiplication; [`pipe`]
//! decides when the operands are read, and how warps wait.

use super::descriptor::{Descriptor, Major};
use super::fragment::{Accumulator, gather, operand_registers};
use super::mma::{accumulator_bits, kind_name};
use super::{ElementFormat, Shape, arithmetic, register_type, whole_warp};
use crate::check::detector::Ticket;
use crate::codes;
use crate::exec::pipe::{self, Multiplication, Operands, WARPS};
use crate::exec::{Context, Fault, Flow, Op, Operation, PredSrc, Reg, Src, fault};
use crate::isa::lift::custom;
use crate::isa::site::{Issue, Site, issue};
use crate::isa::{Class, Family, row};
use crate::model::LANES;
use crate::num::tensor::{Arithmetic, Element, Rows, multiply};
use crate::ptx::ast::Operand;
use crate::types::Ty;
use std::sync::Arc;

macro_rules! shapes {
    ($k:literal: $($n:literal)*) => { &[$(concat!("m64n", $n, "k", $k)),*] };
}

macro_rules! all_shapes {
    ($k:literal) => {
        shapes!($k: 8 16 24 32 40 48 56 64 72 80 88 96 104 112 120 128
            136 144 152 160 168 176 184 192 200 208 216 224 232 240 248 256)
    };
}

macro_rules! integer_shapes {
    ($k:literal) => {
        shapes!($k: 8 16 24 32 48 64 80 96 112 128 144 160 176 192 208 224 240 256)
    };
}

const FP8: &[&str] = &["e4m3", "e5m2"];
const INT8: &[&str] = &["s8", "u8"];
const TF32S: &[&str] = &["tf32"];
const F32: Class = ("dtype", &["f32"]);
const S32: Class = ("dtype", &["s32"]);
const IN_SHARED: &str = "d, a-desc, b-desc, scale-d, imm-scale-a, imm-scale-b, imm-trans-a, imm-trans-b";
const IN_REGISTERS: &str = "d, a, b-desc, scale-d, imm-scale-a, imm-scale-b, imm-trans-b";

pub(in crate::isa) static FAMILY: Family = Family {
    title: "Matrix multiplication by a warpgroup",
    section: "9.7.15",
    rows: &[
        row(
            "wgmma.mma_async.sync.aligned.shape.dtype.f16.f16",
            IN_SHARED,
            &[("shape", all_shapes!(16)), ("dtype", &["f16", "f32"])],
            wgmma,
        ),
        row(
            "wgmma.mma_async.sync.aligned.shape.dtype.f16.f16",
            IN_REGISTERS,
            &[("shape", all_shapes!(16)), ("dtype", &["f16", "f32"])],
            wgmma,
        ),
        row(
            "wgmma.mma_async.sync.aligned.shape.dtype.bf16.bf16",
            IN_SHARED,
            &[("shape", all_shapes!(16)), F32],
            wgmma,
        ),
        row(
            "wgmma.mma_async.sync.aligned.shape.dtype.bf16.bf16",
            IN_REGISTERS,
            &[("shape", all_shapes!(16)), F32],
            wgmma,
        ),
        row(
            "wgmma.mma_async.sync.aligned.shape.dtype.atype.btype",
            "d, a, b-desc, scale-d, imm-scale-a, imm-scale-b",
            &[("shape", all_shapes!(8)), F32, ("atype", TF32S), ("btype", TF32S)],
            wgmma,
        ),
        row(
            "wgmma.mma_async.sync.aligned.shape.dtype.atype.btype",
            "d, a, b-desc, scale-d, imm-scale-a, imm-scale-b",
            &[("shape", all_shapes!(32)), ("dtype", &["f16", "f32"]), ("atype", FP8), ("btype", FP8)],
            wgmma,
        ),
        row(
            "wgmma.mma_async.sync.aligned.shape{.satfinite}.dtype.atype.btype",
            "d, a, b-desc, scale-d",
            &[("shape", integer_shapes!(32)), S32, ("atype", INT8), ("btype", INT8)],
            wgmma,
        ),
        row(
            "wgmma.mma_async.sync.aligned.shape.dtype.atype.btype.bitOp.popc",
            "d, a, b-desc, scale-d",
            &[
                ("shape", integer_shapes!(256)),
                S32,
                ("atype", &["b1"]),
                ("btype", &["b1"]),
                ("bitOp", &["and"]),
            ],
            wgmma,
        ),
        row("wgmma.fence.sync.aligned", "", &[], |_| Ok(aligned(pipe::fence))),
        row("wgmma.commit_group.sync.aligned", "", &[], |_| Ok(aligned(pipe::commit))),
        row("wgmma.wait_group.sync.aligned", "n", &[], |s| {
            let n = s.immediate(0)?;
            s.f.settles();
            Ok(aligned(move |cx| pipe::wait(cx, n)))
        }),
    ],
};

/// The instruction.
pub(super) struct Wgmma {
    shape: Shape,
    arithmetic: Arithmetic,
    accumulator: Accumulator,
    d: Vec<Reg>,
    a: (ElementFormat, LeftOperand),
    b: (ElementFormat, Src),
    /// Whether to add to the accumulator: `scale-d`.
    keep: PredSrc,
    /// Whether the signs of A and B are inverted.
    negate: (bool, bool),
    major: (Major, Major),
}

/// The location of A.
enum LeftOperand {
    Registers(Vec<Src>),
    Shared(Src),
}

struct Begin(Arc<Wgmma>);

fn wgmma(s: &mut Site<'_, '_, '_>) -> Result<Op, Issue> {
    let (atype, btype) = (kind_name(s, "atype"), kind_name(s, "btype"));
    let shape = Shape::parse(s.text("shape"), atype)?;
    let (ka, kb) = (ElementFormat::parse(atype)?, ElementFormat::parse(btype)?);
    let accumulator = Accumulator { m: 16, n: shape.n, bits: accumulator_bits(s, "dtype") };
    let t = register_type(32);
    let d: Vec<Reg> = s.vector_dst(0, accumulator.registers(), t, false)?.into_iter().map(|d| d.0).collect();
    let in_registers = matches!(s.operands.get(1), Some(Operand::Vector(_)));
    let a = if in_registers {
        LeftOperand::Registers(s.vector_src(1, operand_registers(16, shape.k, ka), t, false)?)
    } else {
        LeftOperand::Shared(s.src(1, Ty::B64)?)
    };
    let b = s.src(2, Ty::B64)?;
    let keep = s.pred_src(3)?;
    let count = s.operands.len();
    let floating = !matches!(ka.element, Element::Int { .. }) && atype != "b1";
    let sign = |s: &Site<'_, '_, '_>, i: usize| match floating.then(|| s.immediate(i)).transpose()? {
        None | Some(1) => Ok(false),
        Some(u64::MAX) => Ok(true),
        Some(_) => issue(codes::BAD_OPERANDS, "imm-scale must be 1 or -1", ""),
    };
    let major = |s: &Site<'_, '_, '_>, i: usize| match s.immediate(i)? {
        0 => Ok(Major::K),
        1 => Ok(Major::Mn),
        _ => issue(codes::BAD_OPERANDS, "imm-trans must be 0 or 1", ""),
    };
    let major = match (count, in_registers) {
        (8, false) => (major(s, 6)?, major(s, 7)?),
        (7, true) => (Major::K, major(s, 6)?),
        (7 | 8, _) => {
            return issue(
                codes::BAD_OPERANDS,
                "omit imm-trans-a if A is in registers, and give it if A is in shared memory",
                "",
            );
        }
        _ => (Major::K, Major::K),
    };
    let negate = (sign(s, 4)?, sign(s, 5)?);
    // The accumulator is read and written, and A is read, until a wait for the group.
    for r in &d {
        s.f.reads(*r);
        s.f.holds(*r);
    }
    if let LeftOperand::Registers(regs) = &a {
        regs.iter().filter_map(|r| r.register()).for_each(|r| s.f.holds(r));
    }
    let arithmetic = arithmetic(s, atype, true)?;
    let instruction =
        Wgmma { shape, arithmetic, accumulator, d, a: (ka, a), b: (kb, b), keep, negate, major };
    Ok(Box::new(Begin(Arc::new(instruction))))
}

impl Operation for Begin {
    fn execute(&self, cx: &mut Context<'_>) -> Result<Flow, Fault> {
        if let Some(wait) = whole_warp(cx)? {
            return Ok(wait);
        }
        let w = &self.0;
        let group_end = (cx.warp as usize / WARPS + 1) * WARPS * LANES;
        let threads = cx.at.ntid.iter().product::<u32>();
        if (threads as usize) < group_end {
            let message = format!("wgmma is executed in a partial warpgroup: the CTA has {threads} threads");
            return Err(fault(
                codes::UNDEFINED,
                0,
                message,
                "launch whole warpgroups: a warpgroup has four warps, and the number of the first is a multiple of four",
            ));
        }
        if !cx.pipe.is_fenced() {
            let help =
                "execute wgmma.fence.sync.aligned before the first wgmma.mma_async, to order the registers";
            return Err(fault(
                codes::UNDEFINED,
                0,
                "there is no wgmma.fence before this wgmma.mma_async",
                help,
            ));
        }
        let keep = match cx.pred(w.keep) {
            u32::MAX => true,
            0 => false,
            _ => {
                let message = "scale-d differs between the threads of a warp";
                return Err(fault(codes::UNDEFINED, 0, message, "use the same value in the whole warpgroup"));
            }
        };
        let b = Descriptor::new(cx.uniform(w.b.1, "the descriptor of B")?)?;
        let a = match &w.a.1 {
            LeftOperand::Registers(regs) => {
                let mut written = regs.iter().filter_map(|s| s.register());
                if written.any(|r| cx.pipe.writes(r)) {
                    return Err(in_flight(0));
                }
                b
            }
            LeftOperand::Shared(a) => {
                let a = Descriptor::new(cx.uniform(*a, "the descriptor of A")?)?;
                a.check(cx, w.major.0, 0..64, w.a.0)?;
                a
            }
        };
        b.check(cx, w.major.1, 0..w.shape.n, w.b.0)?;
        let begun: Arc<dyn Multiplication> =
            Arc::new(Begun { instruction: Arc::clone(w), descriptors: (a, b) });
        pipe::begin(cx, &begun, keep)
    }
}

/// Builds an operation of the whole warp.
fn aligned(f: impl Fn(&mut Context<'_>) -> Flow + Send + Sync + 'static) -> Op {
    custom(move |cx| match whole_warp(cx)? {
        Some(wait) => Ok(wait),
        None => Ok(f(cx)),
    })
}

/// A multiplication that a warp has begun, with 64 rows of A unless A is in registers.
struct Begun {
    instruction: Arc<Wgmma>,
    descriptors: (Descriptor, Descriptor),
}

/// Runs before an instruction that uses registers of multiplications. Such a use is undefined while
/// they are pending. ptxas inserts a wait there, and Triton and CUTLASS rely on it for plain moves,
/// so moves wait.
pub(crate) fn before_use(registers: Vec<Reg>, is_move: bool) -> Op {
    custom(move |cx| match cx.pipe.last_that_uses(&registers) {
        None => Ok(Flow::Next),
        Some(last) if is_move => Ok(pipe::finish(cx, last + 1)),
        Some(_) => Err(in_flight(cx.active.trailing_zeros() as usize)),
    })
}

fn in_flight(lane: usize) -> Fault {
    let message = "a register of a wgmma.mma_async is used while the multiplication is in flight";
    fault(
        codes::UNDEFINED,
        lane,
        message,
        "commit the group of the multiplication and wait for it with wgmma.wait_group first",
    )
}

impl Multiplication for Begun {
    fn key(&self) -> (usize, [u64; 2]) {
        let (a, b) = &self.descriptors;
        (Arc::as_ptr(&self.instruction).addr(), [a.bits(), b.bits()])
    }

    fn writes(&self, r: Reg) -> bool {
        self.instruction.d.contains(&r)
    }

    fn uses(&self, r: Reg) -> bool {
        let reads = match &self.instruction.a.1 {
            LeftOperand::Registers(regs) => regs.iter().any(|s| s.register() == Some(r)),
            LeftOperand::Shared(_) => false,
        };
        reads || self.writes(r)
    }

    fn fetch(&self, cx: &mut Context<'_>, ticket: Option<&Ticket>) -> Operands {
        self.instruction.fetch(cx, &self.descriptors, ticket)
    }

    fn multiply(&self, cx: &mut Context<'_>, operands: &Operands, keep: bool) {
        self.instruction.multiply(cx, operands, keep);
    }
}

impl Wgmma {
    fn fetch(
        &self,
        cx: &mut Context<'_>,
        (a, b): &(Descriptor, Descriptor),
        ticket: Option<&Ticket>,
    ) -> Operands {
        let turn = |bits: &mut Vec<u64>, kind: ElementFormat, negate: bool| {
            if negate {
                bits.iter_mut().for_each(|v| *v ^= 1 << (kind.storage - 1));
            }
        };
        let mut operands = Operands::default();
        if let LeftOperand::Shared(_) = self.a.1 {
            operands.a = a.read(cx, self.major.0, 0..64, self.a.0, ticket);
            turn(&mut operands.a, self.a.0, self.negate.0);
        }
        operands.b = b.read(cx, self.major.1, 0..self.shape.n, self.b.0, ticket);
        turn(&mut operands.b, self.b.0, self.negate.1);
        operands
    }

    /// Computes the part of one warp, which has 16 rows.
    fn multiply(&self, cx: &mut Context<'_>, operands: &Operands, keep: bool) {
        let (k, n) = (self.shape.k, self.shape.n);
        let mut registers;
        let first = cx.warp as usize % WARPS * 16;
        let a = match &self.a.1 {
            LeftOperand::Registers(regs) => {
                registers = gather(cx, 16, k, self.a.0, regs);
                if self.negate.0 {
                    registers.iter_mut().for_each(|v| *v ^= 1 << (self.a.0.storage - 1));
                }
                &registers[..]
            }
            LeftOperand::Shared(_) => &operands.a[first * k..(first + 16) * k],
        };
        let mut acc = if keep {
            let from: Vec<Src> = self.d.iter().map(|&r| Src::reg(r)).collect();
            self.accumulator.gather(cx, &from)
        } else {
            vec![0; 16 * n]
        };
        let rows = |bits, kind: ElementFormat| Rows { element: kind.element, bits };
        multiply(self.arithmetic, k, &rows(a, self.a.0), &rows(&operands.b, self.b.0), &mut acc);
        self.accumulator.scatter(cx, &self.d, &acc);
    }
}
