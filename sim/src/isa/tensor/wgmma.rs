//! `wgmma`: the four warps of a warpgroup multiply matrices in shared memory, asynchronously.
//!
//! Each warp computes 16 of the 64 rows. An instruction only puts the multiplication into its warp's [`Pipe`]; it is
//! carried out at once, when its group is committed, or as late as when the group is waited for, as the seed has it, and
//! only then reads its operands. So a tile in shared memory that is filled again too early shows in the result.

use super::descriptor::{Descriptor, Major};
use super::fragment::{Accumulator, gather, operand_registers};
use super::mma::{accumulator_bits, kind_name};
use super::{Kind, Shape, arithmetic, register_type, whole_warp};
use crate::check::Agent;
use crate::check::detector::Ticket;
use crate::exec::{Context, Fault, Flow, LANES, Op, Operation, PredSrc, Reg, Src, fault};
use crate::isa::lift::custom;
use crate::isa::site::{Issue, Site, issue};
use crate::isa::types::Ty;
use crate::isa::{Class, Family, row};
use crate::num::tensor::{Arithmetic, Element, Rows, multiply};
use crate::ptx::ast::Operand;
use std::collections::VecDeque;
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
        row("wgmma.fence.sync.aligned", "", &[], |_| Ok(aligned(|cx| cx.pipe.fenced = true))),
        row("wgmma.commit_group.sync.aligned", "", &[], |_| Ok(aligned(commit))),
        row("wgmma.wait_group.sync.aligned", "n", &[], |s| {
            let n = s.immediate(0)?;
            s.f.settles();
            Ok(aligned(move |cx| wait(cx, n)))
        }),
    ],
};

/// Multiplications that a warp has under way at most.
const MOST: usize = 64;

/// What a warp has begun and not waited for.
#[derive(Default)]
pub(crate) struct Pipe {
    under_way: VecDeque<UnderWay>,
    /// Finished ones of which the detector has not been told that they were waited for.
    finished: Vec<(u64, Ticket)>,
    /// Number of the group that is open.
    group: u64,
    /// Whether the registers have been ordered before any of it.
    fenced: bool,
}

impl std::fmt::Debug for Pipe {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pipe").field("under_way", &self.under_way.len()).field("group", &self.group).finish()
    }
}

struct UnderWay {
    instruction: Arc<Wgmma>,
    a: Descriptor,
    b: Descriptor,
    keep: bool,
    group: u64,
    /// Carried out when its group is committed, not later.
    early: bool,
    ticket: Option<Ticket>,
}

/// The instruction.
struct Wgmma {
    shape: Shape,
    arithmetic: Arithmetic,
    accumulator: Accumulator,
    d: Vec<Reg>,
    a: (Kind, Left),
    b: (Kind, Src),
    /// Whether the accumulator counts: `scale-d`.
    keep: PredSrc,
    /// Signs of A and B are turned.
    negate: (bool, bool),
    major: (Major, Major),
}

/// Where A is.
enum Left {
    Registers(Vec<Src>),
    Shared(Src),
}

/// `Operation` is implemented for what can be put into a pipe.
struct Begin(Arc<Wgmma>);

fn wgmma(s: &mut Site<'_, '_, '_>) -> Result<Op, Issue> {
    let (atype, btype) = (kind_name(s, "atype"), kind_name(s, "btype"));
    let shape = Shape::parse(s.text("shape"), atype)?;
    let (ka, kb) = (Kind::parse(atype)?, Kind::parse(btype)?);
    let accumulator = Accumulator { m: 16, n: shape.n, bits: accumulator_bits(s, "dtype") };
    let t = register_type(32);
    let d: Vec<Reg> = s.vector_dst(0, accumulator.registers(), t, false)?.into_iter().map(|d| d.0).collect();
    let in_registers = matches!(s.operands.get(1), Some(Operand::Vector(_)));
    let a = if in_registers {
        Left::Registers(s.vector_src(1, operand_registers(16, shape.k, ka), t, false)?)
    } else {
        Left::Shared(s.src(1, Ty::B64)?)
    };
    let b = s.src(2, Ty::B64)?;
    let keep = s.pred_src(3)?;
    let count = s.operands.len();
    let floating = !matches!(ka.element, Element::Int { .. }) && atype != "b1";
    let sign = |s: &Site<'_, '_, '_>, i: usize| match floating.then(|| s.immediate(i)).transpose()? {
        None | Some(1) => Ok(false),
        Some(u64::MAX) => Ok(true),
        Some(_) => issue("P005", "imm-scale is 1 or -1", ""),
    };
    let major = |s: &Site<'_, '_, '_>, i: usize| match s.immediate(i)? {
        0 => Ok(Major::K),
        1 => Ok(Major::Mn),
        _ => issue("P005", "imm-trans is 0 or 1", ""),
    };
    let major = match (count, in_registers) {
        (8, false) => (major(s, 6)?, major(s, 7)?),
        (7, true) => (Major::K, major(s, 6)?),
        (7 | 8, _) => {
            return issue(
                "P005",
                "A in registers is not transposed, and A in shared memory has imm-trans-a",
                "",
            );
        }
        _ => (Major::K, Major::K),
    };
    let negate = (sign(s, 4)?, sign(s, 5)?);
    // The accumulator is read and written, and A read, until the group is waited for.
    for r in &d {
        s.f.reads(*r);
        s.f.holds(*r);
    }
    if let Left::Registers(regs) = &a {
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
        let group_end = (cx.warp / 4 + 1) * 4 * LANES as u32;
        let threads = cx.at.ntid.iter().product::<u32>();
        if threads < group_end {
            let message = format!("wgmma in a warpgroup that is not whole: the CTA has {threads} threads");
            return Err(fault("S011", 0, message, "a warpgroup is four warps, the first a multiple of four"));
        }
        if !cx.pipe.fenced {
            let help = "wgmma.fence.sync.aligned orders the registers before the first wgmma.mma_async";
            return Err(fault("S011", 0, "wgmma.mma_async without a wgmma.fence before it", help));
        }
        let keep = match cx.pred(w.keep) {
            u32::MAX => true,
            0 => false,
            _ => {
                let message = "scale-d differs between the threads of a warp";
                return Err(fault("S011", 0, message, "it must be the same for the whole warpgroup"));
            }
        };
        let b = Descriptor::new(cx.uniform(w.b.1, "the descriptor of B")?)?;
        let a = match &w.a.1 {
            Left::Registers(regs) => {
                let mut written = regs.iter().filter_map(|s| s.register());
                if written.any(|r| cx.pipe.under_way.iter().any(|u| u.instruction.writes(r))) {
                    return Err(in_flight(0));
                }
                b
            }
            Left::Shared(a) => {
                let a = Descriptor::new(cx.uniform(*a, "the descriptor of A")?)?;
                a.check(cx, w.major.0, rows_of(cx.warp), w.a.0)?;
                a
            }
        };
        b.check(cx, w.major.1, 0..w.shape.n, w.b.0)?;
        let (slot, pc) = (cx.slot, cx.pc);
        let ticket = cx.check.as_deref_mut().map(|d| d.begin(slot, 0, pc, Agent::Async));
        let chance = cx.rng.next() % 4;
        let group = cx.pipe.group;
        let instruction = Arc::clone(w);
        cx.pipe.under_way.push_back(UnderWay { instruction, a, b, keep, group, early: chance < 2, ticket });
        // Some at once; and the pipe has its limits.
        if chance == 0 || cx.pipe.under_way.len() > MOST {
            settle(cx);
        }
        Ok(Flow::Next)
    }
}

/// An operation of the whole warp that goes on to the next.
fn aligned(f: impl Fn(&mut Context<'_>) + Send + Sync + 'static) -> Op {
    custom(move |cx| {
        if let Some(wait) = whole_warp(cx)? {
            return Ok(wait);
        }
        f(cx);
        Ok(Flow::Next)
    })
}

fn commit(cx: &mut Context<'_>) {
    cx.pipe.group += 1;
    // Multiplications finish in order.
    let early = cx.pipe.under_way.iter().rposition(|u| u.early).map_or(0, |i| i + 1);
    finish(cx, early);
}

/// Finishes the first few.
fn finish(cx: &mut Context<'_>, count: usize) {
    for _ in 0..count {
        if let Some(u) = cx.pipe.under_way.pop_front() {
            u.finish(cx);
        }
    }
}

/// Waits until at most the `n` latest groups are under way.
fn wait(cx: &mut Context<'_>, n: u64) {
    let until = cx.pipe.group.saturating_sub(n);
    let due = cx.pipe.under_way.iter().take_while(|u| u.group < until).count();
    finish(cx, due);
    let waited = cx.pipe.finished.iter().take_while(|(group, _)| *group < until).count();
    for (_, ticket) in cx.pipe.finished.drain(..waited) {
        let Some(d) = cx.check.as_deref_mut() else { continue };
        (0..LANES).for_each(|lane| d.learn(cx.slot, lane, &ticket, true));
    }
}

/// Finishes all that the warp has begun: its frame goes away.
pub(in crate::isa) fn settle(cx: &mut Context<'_>) {
    let all = cx.pipe.under_way.len();
    finish(cx, all);
}

/// What comes before an instruction that uses registers of multiplications. That is undefined while they are under way;
/// ptxas puts a wait there, and Triton relies on it for plain moves, so these wait.
pub(crate) fn before_use(registers: Vec<Reg>, is_move: bool) -> Op {
    custom(move |cx| {
        let used = |u: &UnderWay| registers.iter().any(|&r| u.instruction.uses(r));
        match cx.pipe.under_way.iter().rposition(used) {
            None => {}
            Some(last) if is_move => finish(cx, last + 1),
            Some(_) => return Err(in_flight(cx.active.trailing_zeros() as usize)),
        }
        Ok(Flow::Next)
    })
}

fn in_flight(lane: usize) -> Fault {
    let message = "a register of a wgmma.mma_async is used while the multiplication is under way";
    fault("S011", lane, message, "commit its group and wait for it with wgmma.wait_group before")
}

impl Wgmma {
    fn writes(&self, r: Reg) -> bool {
        self.d.contains(&r)
    }

    fn uses(&self, r: Reg) -> bool {
        let reads = match &self.a.1 {
            Left::Registers(regs) => regs.iter().any(|s| s.register() == Some(r)),
            Left::Shared(_) => false,
        };
        reads || self.writes(r)
    }
}

/// The rows that a warp of the CTA computes.
fn rows_of(warp: u32) -> std::ops::Range<usize> {
    let first = warp as usize % 4 * 16;
    first..first + 16
}

impl UnderWay {
    fn finish(self, cx: &mut Context<'_>) {
        let w = &*self.instruction;
        let (k, n) = (w.shape.k, w.shape.n);
        let mut a = match &w.a.1 {
            Left::Registers(regs) => gather(cx, 16, k, w.a.0, regs),
            Left::Shared(_) => self.a.read(cx, w.major.0, rows_of(cx.warp), w.a.0, self.ticket.as_ref()),
        };
        let mut b = self.b.read(cx, w.major.1, 0..n, w.b.0, self.ticket.as_ref());
        for (bits, kind, negate) in [(&mut a, w.a.0, w.negate.0), (&mut b, w.b.0, w.negate.1)] {
            if negate {
                bits.iter_mut().for_each(|v| *v ^= 1 << (kind.storage - 1));
            }
        }
        let mut acc = if self.keep {
            let from: Vec<Src> = w.d.iter().map(|&r| Src::reg(r)).collect();
            w.accumulator.gather(cx, &from)
        } else {
            vec![0; 16 * n]
        };
        let rows = |bits, kind: Kind| Rows { element: kind.element, bits };
        multiply(w.arithmetic, k, &rows(&a, w.a.0), &rows(&b, w.b.0), &mut acc);
        w.accumulator.scatter(cx, &w.d, &acc);
        if let Some(ticket) = self.ticket {
            cx.pipe.finished.push((self.group, ticket));
        }
    }
}
