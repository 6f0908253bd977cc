//! Lowers reductions among threads to shuffles and shared memory.
//!
//! A warp reduces by a butterfly of five shuffles. If the CTA's last warp is not full, it reduces
//! by a tree towards lane 0, which then distributes the result. Conditions of full warps need one
//! vote. A CTA first reduces its warps in
//! this way. It stores one value per warp in shared memory, and every thread combines them in the
//! order of the warps. The CTAs of a cluster then read each other's value from shared memory and
//! combine them in the order of their ranks. The order depends only on the thread index and is the
//! same in all threads, so all threads get the same bits. f16 and bf16 are reduced in f32 and
//! rounded once. There are no sums of fp8.

use crate::edit::{Action, Editor, Emit, Rewrite, rewrite};
use crate::teams::linear;
use crate::{Options, Report};
use weft_ir::builder::Built;
use weft_ir::diag::Diagnostic;
use weft_ir::mixed::{Builder, Kernel, Type};
use weft_ir::{
    Address, CmpOp, Control, Group, Int, Memory, Operation, RedOp, Scalar, Scope, Sem, ShuffleMode, Thread,
};
use weft_ir::{Together, Value, ValueType};

const WARP: u32 = 32;

/// Runs the pass on a kernel.
pub(crate) fn run(kernel: Kernel, _: &Options, _: &mut Report) -> Result<Kernel, Vec<Diagnostic>> {
    rewrite(kernel, &mut Reduce { slots: Vec::new() })
}

struct Reduce {
    /// Shared memory for one value per warp, by the size of a value in bytes. All reductions use it
    /// in turn.
    slots: Vec<(u32, Option<u32>, Value)>,
}

impl Rewrite for Reduce {
    fn op(&mut self, e: &mut Editor, v: Value) -> Built<Action> {
        let Some(&Together::Reduce { value, op, group }) = e.b.kernel().op(v).together() else {
            return Ok(Action::Keep);
        };
        let ty = e.b.ty(v).clone();
        let elem = ty.elem().unwrap_or(Scalar::F32);
        let full = e.b.kernel().threads().is_multiple_of(WARP);
        if full && group == Group::Warp && elem == Scalar::Bool && matches!(op, RedOp::And | RedOp::Or) {
            return vote(&mut e.b, op, value);
        }
        let work = working_type(elem);
        let mut parts = Vec::new();
        for lane in 0..ty.lanes().unwrap_or(1) {
            let one = e.b.slice(value, lane, 1)?;
            parts.push(to_working(&mut e.b, one, work)?);
        }
        let thread = linear(&mut e.b, weft_ir::Sreg::ThreadIdx)?;
        let thread = e.b.index(thread)?;
        let thread = e.b.convert(thread, Scalar::I32)?;
        for part in &mut parts {
            *part = warp(&mut e.b, op, *part, thread)?;
        }
        let all = matches!(group, Group::Block | Group::Cluster);
        if all && e.b.kernel().threads() > WARP {
            parts = self.block(e, op, parts, work, thread)?;
        } else {
            // All lanes have the same bits. This shuffle makes that known to the uniformity
            // analysis.
            for part in &mut parts {
                *part = shuffle(&mut e.b, *part, ShuffleMode::Idx, 0)?;
            }
        }
        if group == Group::Cluster && e.b.kernel().cluster_size() > 1 {
            parts = self.cluster(e, op, parts, work, thread)?;
        }
        for part in &mut parts {
            *part = from_working(&mut e.b, *part, elem)?;
        }
        e.b.concat(parts).map(Action::Become)
    }
}

impl Reduce {
    /// Reduces the warps' values, with one slot per warp for each of `parts`.
    fn block(
        &mut self,
        e: &mut Editor,
        op: RedOp,
        mut parts: Vec<Value>,
        work: Scalar,
        thread: Value,
    ) -> Built<Vec<Value>> {
        let warps = e.b.kernel().threads().div_ceil(WARP);
        let bytes = i64::from(work.bytes());
        let row = i64::from(warps) * bytes;
        let slots = self.slots(e, row.saturating_mul(parts.len() as i64))?;
        let place = |b: &mut Builder, at: &Int| b.offset(slots, at);

        let index = e.b.symbol(thread)?;
        let (warp, lane) = (index.floor_div(&Int::from(WARP)), index.rem(&Int::from(WARP)));
        let (lane, zero) = (e.b.index(lane)?, e.b.i64(0)?);
        let first = e.b.compare(CmpOp::Eq, lane, zero)?;
        write(&mut e.b, first, &parts, &|b, i| place(b, &(&warp * bytes + row * i)))?;
        e.b.emit(Thread::GroupBarrier { group: Group::Block })?;
        for (i, part) in (0i64..).zip(parts.iter_mut()) {
            let at = |b: &mut Builder, w: u32| place(b, &Int::from(row * i + i64::from(w) * bytes));
            *part = read(&mut e.b, (op, work), warps, &at)?.unwrap_or(*part);
        }
        // The next reduction uses the same slots.
        e.b.emit(Thread::GroupBarrier { group: Group::Block })?;
        Ok(parts)
    }

    /// Reduces the CTAs' values. Thread 0 of each CTA stores its own value in shared memory, where
    /// all threads of the cluster read it.
    fn cluster(
        &mut self,
        e: &mut Editor,
        op: RedOp,
        mut parts: Vec<Value>,
        work: Scalar,
        thread: Value,
    ) -> Built<Vec<Value>> {
        let bytes = i64::from(work.bytes());
        let slots = self.slots(e, bytes.saturating_mul(parts.len() as i64))?;
        let ctas = e.b.kernel().cluster_size();
        let zero = e.b.i32(0)?;
        let first = e.b.compare(CmpOp::Eq, thread, zero)?;
        write(&mut e.b, first, &parts, &|b, i| b.offset(slots, &Int::from(bytes * i)))?;
        e.b.emit(Thread::GroupBarrier { group: Group::Cluster })?;
        let ranks = (0..ctas).map(|rank| {
            let cta = e.b.i32(rank.into())?;
            e.b.emit(Address::InCta { ptr: slots, cta })
        });
        let ranks = ranks.collect::<Built<Vec<_>>>()?;
        for (i, part) in (0i64..).zip(parts.iter_mut()) {
            let at = |b: &mut Builder, rank: u32| b.offset(ranks[rank as usize], &Int::from(bytes * i));
            *part = read(&mut e.b, (op, work), ctas, &at)?.unwrap_or(*part);
        }
        // The next reduction uses the same slots, and a CTA's memory does not exist after it has
        // ended.
        e.b.emit(Thread::GroupBarrier { group: Group::Cluster })?;
        Ok(parts)
    }

    fn slots(&mut self, e: &mut Editor, bytes: i64) -> Built<Value> {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        if let Some((.., slots)) = self.slots.iter().find(|(n, r, _)| *n >= bytes && *r == e.role()) {
            return Ok(*slots);
        }
        let shared = Address::Shared { name: "".into(), bytes: bytes.into(), align: 16 };
        let slots = e.prologue(|b| b.emit(shared))?;
        self.slots.push((bytes, e.role(), slots));
        Ok(slots)
    }
}

/// Writes each part to the address that `at` returns for its number, in the threads for which `by`
/// is true.
fn write(
    b: &mut Builder,
    by: Value,
    parts: &[Value],
    at: &dyn Fn(&mut Builder, i64) -> Built<Value>,
) -> Built<()> {
    let then = b.nested(|b| {
        for (i, part) in (0..).zip(parts) {
            let ptr = at(b, i)?;
            b.emit(Memory::Store { ptr, value: *part, sem: Sem::Weak, scope: Scope::Cta })?;
        }
        Ok(())
    })?;
    b.emit(Control::If { cond: by, then, otherwise: weft_ir::Block::default() }).map(drop)
}

/// Reads `n` values of type `work` from the addresses that `at` returns, and combines them in that
/// order.
fn read(
    b: &mut Builder,
    (op, work): (RedOp, Scalar),
    n: u32,
    at: &dyn Fn(&mut Builder, u32) -> Built<Value>,
) -> Built<Option<Value>> {
    let mut total = None;
    for i in 0..n {
        let ptr = at(b, i)?;
        let load = Memory::Load { ptr, sem: Sem::Weak, scope: Scope::Cta };
        let value = b.emit_as(load, Type::Scalar(work))?;
        total = Some(match total {
            None => value,
            Some(before) => b.combine(op, before, value)?,
        });
    }
    Ok(total)
}

/// The type in which an element type is reduced.
fn working_type(elem: Scalar) -> Scalar {
    match elem {
        Scalar::F16 | Scalar::BF16 | Scalar::E4M3 | Scalar::E5M2 => Scalar::F32,
        Scalar::Bool | Scalar::U8 | Scalar::U16 => Scalar::U32,
        Scalar::I8 | Scalar::I16 => Scalar::I32,
        other => other,
    }
}

fn to_working(b: &mut Builder, value: Value, work: Scalar) -> Built<Value> {
    if b.ty(value).elem() == Some(Scalar::Bool) {
        let (one, zero) = (b.int(work, 1)?, b.int(work, 0)?);
        return b.select(value, one, zero);
    }
    b.convert(value, work)
}

/// Converts back to the element type. Integers are taken modulo 2^bits, as if they had been reduced
/// in their own type.
fn from_working(b: &mut Builder, value: Value, elem: Scalar) -> Built<Value> {
    let work = b.ty(value).elem().unwrap_or(elem);
    if elem == Scalar::Bool {
        let zero = b.int(work, 0)?;
        return b.compare(CmpOp::Ne, value, zero);
    }
    b.convert(value, elem)
}

/// Reduces a scalar over the lanes of each warp. Lane 0 has the result.
fn warp(b: &mut Builder, op: RedOp, value: Value, thread: Value) -> Built<Value> {
    let threads = b.kernel().threads();
    if threads.is_multiple_of(WARP) {
        return (0..5).try_fold(value, |sum, step| {
            let other = shuffle(b, sum, ShuffleMode::Xor, 1 << step)?;
            b.combine(op, sum, other)
        });
    }
    // Lane 0 gets the result. A lane that would read a lane that does not exist (or a wrong lane,
    // past the warp's end) reads itself, because the result of reading a lane that does not take
    // part is undefined.
    let count = b.i32(threads.into())?;
    (0..5).try_fold(value, |sum, step| {
        let distance = b.i32(1 << step)?;
        let asked = b.binary(weft_ir::BinOp::Add, thread, distance)?;
        let exists = b.compare(CmpOp::Lt, asked, count)?;
        let asked = b.select(exists, asked, thread)?;
        let last = b.i32(i64::from(WARP) - 1)?;
        let lane = b.binary(weft_ir::BinOp::And, asked, last)?;
        let other = b.emit(Thread::Shuffle { value: sum, mode: ShuffleMode::Idx, lane })?;
        let both = b.combine(op, sum, other)?;
        b.select(exists, both, sum)
    })
}

/// Reduces each element of a value over the lanes of each warp.
fn vote(b: &mut Builder, op: RedOp, value: Value) -> Built<Action> {
    let each = (0..b.ty(value).lanes().unwrap_or(1)).map(|lane| {
        let cond = b.slice(value, lane, 1)?;
        b.emit(Thread::Vote { op, cond })
    });
    let each = each.collect::<Built<Vec<_>>>()?;
    b.concat(each).map(Action::Become)
}

fn shuffle(b: &mut Builder, value: Value, mode: ShuffleMode, lane: i64) -> Built<Value> {
    let lane = b.i32(lane)?;
    b.emit(Thread::Shuffle { value, mode, lane })
}
