//! Waits that report themselves: a thread that waits longer than the limit states what it waits
//! for.
//!
//! The pass finds the loops that only read memory, numbers them, and lets each of them count its
//! rounds. Every [`ROUNDS`] rounds a thread reads the clock. After the limit is exceeded, it writes
//! one record to memory that the host can read, and continues to wait. The host decides what
//! happens to the job. The layout of the memory is [`weft_abi::watch`]. Without [`Options::watch`]
//! the pass changes nothing.
//!
//! A class of waits is a CTA together with the number of a wait. In each launch, the first thread
//! of a class that exceeds the limit writes the record of the class.

mod spin;

use crate::edit::{Action, Editor, Emit, Rewrite, rewrite};
use crate::pointers::parameter;
use crate::teams::linear;
use crate::{Options, Report};
use spin::Spin;
use std::sync::Arc;
use weft_abi::watch::{self as abi, WaitInfo, field};
use weft_ir::builder::Built;
use weft_ir::diag::{Diagnostic, Span};
use weft_ir::mixed::{Builder, Kernel, Type};
use weft_ir::{
    Address, Arith, BinOp, CmpOp, Control, Dim, Hidden, Int, LocalId, Memory, NumberKind, Operation, RedOp,
    Scalar, Scope, Sem, Space, Sreg, Thread, Value, ValueType,
};

/// The number of rounds of a wait between two reads of the clock, a power of two.
const ROUNDS: i64 = 256;

const U32: Type = Type::Scalar(Scalar::U32);
const I64: Type = Type::Scalar(Scalar::I64);

/// A wait that was found, for the description of the kernel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wait {
    /// The name of the kernel.
    pub kernel: Arc<str>,
    /// The source text of the wait.
    pub span: Span,
    /// The description of the wait for the host.
    pub info: WaitInfo,
}

/// Runs the pass on a kernel.
pub(crate) fn run(kernel: Kernel, options: &Options, report: &mut Report) -> Result<Kernel, Vec<Diagnostic>> {
    if !options.watch {
        return Ok(kernel);
    }
    let mut roles = Vec::new();
    kernel.walk(&mut |_, inst| {
        if let Some(Control::Role { name, first, .. }) = inst.op.control()
            && !name.is_empty()
        {
            roles.push((*first, name.clone()));
        }
    });
    let mut waits = Vec::new();
    let counts = Counts::of(&kernel);
    let kernel = rewrite(kernel, &mut Watch { options, roles, counts, block: None, waits: &mut waits })?;
    report.waits.extend(waits);
    Ok(kernel)
}

/// The place in a kernel where its launch is counted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Counts {
    /// At the start.
    Start,
    /// After this op, in which all threads wait for the preceding launches. Those launches write
    /// records with their own number until they end.
    After(Value),
    /// Before this op of the kernel's outermost block. It contains the first wait, and the code
    /// before it always reaches it. What the first thread does there costs no time, because the
    /// awaited data is on its way.
    Before(Value),
}

impl Counts {
    fn of(kernel: &Kernel) -> Counts {
        let body = &kernel.body.0;
        let behind = body.iter().position(|v| is_dependency(kernel, *v));
        let from = behind.map_or(0, |at| at + 1);
        let early =
            behind.filter(|_| has_spin(kernel, body)).map_or(Counts::Start, |at| Counts::After(body[at]));
        let later = body.get(from..).unwrap_or_default();
        let Some(first) = later.iter().position(|v| has_spin(kernel, &[*v])) else { return early };
        let returns = |v| matches!(kernel.op(v).control(), Some(Control::Return {}));
        if contains(kernel, &body[..from + first], &mut |v| returns(v)) {
            return early;
        }
        Counts::Before(later[first])
    }
}

/// Whether an op waits for the preceding launches.
fn is_dependency(kernel: &Kernel, v: Value) -> bool {
    matches!(kernel.op(v).thread(), Some(Thread::WaitDependencies {}))
}

/// Whether ops contain a wait that is watched.
fn has_spin(kernel: &Kernel, ops: &[Value]) -> bool {
    contains(kernel, ops, &mut |v| Spin::of(kernel, v).is_some())
}

/// Whether a test holds for one of some ops, or for an op in one of their blocks.
fn contains(kernel: &Kernel, ops: &[Value], test: &mut dyn FnMut(Value) -> bool) -> bool {
    ops.iter()
        .any(|&v| test(v) || kernel.op(v).blocks().into_iter().any(|block| contains(kernel, &block.0, test)))
}

struct Watch<'a> {
    options: &'a Options,
    /// The first thread and the name of each role that has a name.
    roles: Vec<(u32, Arc<str>)>,
    counts: Counts,
    /// The address of the block that the host provides, if a wait needs it.
    block: Option<Value>,
    waits: &'a mut Vec<Wait>,
}

/// The counters of a wait: its rounds, and the time when it first read the clock. The time is 0
/// before that, and negative after the wait has been reported.
#[derive(Clone, Copy)]
struct Count {
    rounds: LocalId,
    since: LocalId,
}

impl Rewrite for Watch<'_> {
    fn op(&mut self, e: &mut Editor, v: Value) -> Built<Action> {
        if self.counts == Counts::After(v) {
            let block = self.block(e)?;
            // Instructions behind the wait would delay the launch.
            let first = is_first(&mut e.b)?;
            e.b.emit(Thread::WaitDependencies {})?;
            count_launch(&mut e.b, block, first)?;
            return Ok(Action::Drop);
        }
        if self.counts == Counts::Before(v) {
            let block = self.block(e)?;
            let first = is_first(&mut e.b)?;
            count_launch(&mut e.b, block, first)?;
        }
        let Some(spin) = Spin::of(e.b.kernel(), v) else { return Ok(Action::Keep) };
        let span = e.b.kernel().insts[v].span;
        let number = i64::try_from(self.waits.len()).unwrap_or(i64::MAX);
        let block = self.block(e)?;
        let b = &mut e.b;
        let count = Count { rounds: b.local("rounds", U32), since: b.local("since", I64) };
        let zero = b.int(Scalar::U32, 0)?;
        b.set(count.rounds, zero)?;
        let zero = b.i64(0)?;
        b.set(count.since, zero)?;
        b.open();
        let counted = look_at_clock(b, block, count, |b, cycles| {
            spin.if_waiting(b, |b| spin.record(b, block, number, cycles))
        });
        let added = b.close();
        counted?;
        let op = &mut b.kernel_mut().insts[v].op;
        if let Some(body) = op.blocks_mut().into_iter().nth(1) {
            // A jump ends its block, so nothing can follow it.
            let at = if spin.jumps { 0 } else { body.0.len() };
            body.0.splice(at..at, added.0);
        }
        let role = e.role().and_then(|first| self.roles.iter().find(|(f, _)| *f == first));
        let role = role.map(|(_, name)| name.to_string());
        let place = match &self.options.locate {
            Some(locate) if !span.is_none() => locate(span),
            _ => format!("kernel {}", e.b.kernel().name),
        };
        let (on, until) = (spin.on.clone(), spin.until.map(|op| spin::sign(op).to_owned()));
        let kernel: Arc<str> = (&*e.b.kernel().name).into();
        self.waits.push(Wait { kernel, span, info: WaitInfo { place, role, on, until } });
        Ok(Action::Keep)
    }
}

impl Watch<'_> {
    /// The address of the block. The function also counts the launch if that is done at the start
    /// of the kernel.
    fn block(&mut self, e: &mut Editor) -> Built<Value> {
        if let Some(block) = self.block {
            return Ok(block);
        }
        // There are no roles at the start of the kernel.
        let whole = e.whole();
        let threads = std::mem::replace(&mut e.b.kernel_mut().block, whole);
        let counts = self.counts == Counts::Start;
        let block = e.prologue(|b| {
            let bits = parameter(b, Hidden::Watch {})?;
            let block = b.address(bits, Space::Global)?;
            if counts {
                let first = is_first(b)?;
                count_launch(b, block, first)?;
            }
            Ok(block)
        });
        e.b.kernel_mut().block = threads;
        self.block = Some(block?);
        self.block.map_or_else(|| e.b.i64(0), Ok)
    }
}

/// Whether this is the first thread of the grid.
fn is_first(b: &mut Builder) -> Built<Value> {
    let zero = b.int(Scalar::I32, 0)?;
    let mut all = zero;
    for reg in [Sreg::BlockIdx, Sreg::ThreadIdx] {
        for dim in [Dim::X, Dim::Y, Dim::Z] {
            let index = b.special(reg, dim)?;
            all = b.binary(BinOp::Or, all, index)?;
        }
    }
    b.compare(CmpOp::Eq, all, zero)
}

/// Emits code in which the first thread of the grid counts the launch.
fn count_launch(b: &mut Builder, block: Value, first: Value) -> Built<()> {
    b.if_true(first, |b| {
        let (ptr, value) = (at(b, block, abi::LAUNCHES)?, b.int(Scalar::U32, 1)?);
        let (op, sem, scope) = (RedOp::Add, Sem::Relaxed, Scope::Gpu);
        b.emit(Memory::Red { ptr, value, op, sem, scope }).map(drop)
    })
    .map(drop)
}

/// Counts a round. Every [`ROUNDS`] rounds it reads the clock, and calls `over` with the number of
/// cycles if the limit is exceeded.
fn look_at_clock(
    b: &mut Builder,
    block: Value,
    count: Count,
    over: impl FnOnce(&mut Builder, Value) -> Built<()>,
) -> Built<()> {
    let (before, one) = (b.get(count.rounds)?, b.int(Scalar::U32, 1)?);
    let rounds = b.binary(BinOp::Add, before, one)?;
    b.set(count.rounds, rounds)?;
    let mask = b.int(Scalar::U32, ROUNDS - 1)?;
    let (part, none) = (b.binary(BinOp::And, rounds, mask)?, b.int(Scalar::U32, 0)?);
    let due = b.compare(CmpOp::Eq, part, none)?;
    b.if_true(due, |b| {
        let now = b.emit(Thread::Clock {})?;
        let (since, zero) = (b.get(count.since)?, b.i64(0)?);
        let begins = b.compare(CmpOp::Eq, since, zero)?;
        b.if_else(
            begins,
            |b| b.set(count.since, now).map(drop),
            |b| {
                let ptr = at(b, block, abi::LIMIT)?;
                let limit = b.emit_as(Memory::Load { ptr, sem: Sem::Weak, scope: Scope::Gpu }, I64)?;
                let cycles = b.binary(BinOp::Sub, now, since)?;
                let long = b.compare(CmpOp::Gt, cycles, limit)?;
                let open = b.compare(CmpOp::Gt, since, zero)?;
                let long = b.binary(BinOp::And, long, open)?;
                b.if_true(long, |b| {
                    let reported = b.i64(-1)?;
                    b.set(count.since, reported)?;
                    over(b, cycles)
                })
                .map(drop)
            },
        )
        .map(drop)
    })
    .map(drop)
}

impl Spin {
    /// Calls `then` for the lanes that still wait. The others of a warp wait with them.
    fn if_waiting(&self, b: &mut Builder, then: impl FnOnce(&mut Builder) -> Built<()>) -> Built<()> {
        match self.vote {
            None => then(b),
            Some((own, true)) => b.if_true(own, then).map(drop),
            Some((own, false)) => b.if_else(own, |_| Ok(()), then).map(drop),
        }
    }

    /// Writes the record of the wait's class, unless another thread has done so in this launch or
    /// the ring is full.
    fn record(&self, b: &mut Builder, block: Value, number: i64, cycles: Value) -> Built<()> {
        let (sem, scope) = (Sem::Relaxed, Scope::Gpu);
        let ptr = at(b, block, abi::LAUNCHES)?;
        let launch = b.emit_as(Memory::Load { ptr, sem, scope }, U32)?;
        let cta = linear(b, Sreg::BlockIdx)?;
        let cta = b.index(cta)?;
        // Consecutive CTAs have consecutive claims, and the waits of a CTA are far from each other.
        let spread = b.i64(number.wrapping_mul(0x9e37) & i64::from(abi::CLAIM_COUNT - 1))?;
        let class = b.binary(BinOp::Add, cta, spread)?;
        let mask = b.i64(i64::from(abi::CLAIM_COUNT - 1))?;
        let class = b.binary(BinOp::And, class, mask)?;
        let four = b.i64(4)?;
        let offset = b.binary(BinOp::Mul, class, four)?;
        let claims = at(b, block, abi::CLAIMS)?;
        let ptr = b.emit(Address::PtrAdd { ptr: claims, bytes: offset })?;
        let before = b.emit(Memory::Atomic { ptr, value: launch, op: None, sem, scope })?;
        let mine = b.compare(CmpOp::Ne, before, launch)?;
        b.if_true(mine, |b| {
            let (ptr, value) = (at(b, block, abi::CURSOR)?, b.int(Scalar::U32, 1)?);
            let slot = b.emit(Memory::Atomic { ptr, value, op: Some(RedOp::Add), sem, scope })?;
            let records = b.int(Scalar::U32, abi::RECORDS.into())?;
            let fits = b.compare(CmpOp::Lt, slot, records)?;
            b.if_else(
                fits,
                |b| self.write(b, block, slot, (number, cta, launch, cycles)),
                |b| drop_record(b, block),
            )
            .map(drop)
        })
        .map(drop)
    }

    /// Fills in the record of a slot. The mark is written last.
    fn write(
        &self,
        b: &mut Builder,
        block: Value,
        slot: Value,
        (number, cta, launch, cycles): (i64, Value, Value, Value),
    ) -> Built<()> {
        let ring = ring(b, block)?;
        let (slot, size) = (b.convert(slot, Scalar::I64)?, b.i64(abi::RECORD_BYTES.into())?);
        let bytes = b.binary(BinOp::Mul, slot, size)?;
        let record = b.emit(Address::PtrAdd { ptr: ring, bytes })?;
        let thread = linear(b, Sreg::ThreadIdx)?;
        let thread = b.index(thread)?;
        let number = b.int(Scalar::U32, number)?;
        let address = self.address(b)?;
        let fields = [
            (field::WAIT, number),
            (field::CTA, b.convert(cta, Scalar::U32)?),
            (field::THREAD, b.convert(thread, Scalar::U32)?),
            (field::LAUNCH, launch),
            (field::ADDRESS, address),
            (field::SEEN, self.number(b, self.seen)?),
            (field::EXPECTED, self.number(b, self.expected)?),
            (field::CYCLES, cycles),
        ];
        let scope = Scope::Sys;
        for (offset, value) in fields {
            let ptr = at(b, record, offset)?;
            b.emit(Memory::Store { ptr, value, sem: Sem::Relaxed, scope })?;
        }
        let (ptr, value) = (at(b, record, field::MARK)?, b.int(Scalar::U32, 1)?);
        b.emit(Memory::Store { ptr, value, sem: Sem::Release, scope }).map(drop)
    }
}

/// The address of the ring.
fn ring(b: &mut Builder, block: Value) -> Built<Value> {
    let ptr = at(b, block, abi::RING)?;
    let ring = b.emit_as(Memory::Load { ptr, sem: Sem::Weak, scope: Scope::Gpu }, I64)?;
    b.address(ring, Space::Global)
}

/// Counts a record for which the ring has no space.
fn drop_record(b: &mut Builder, block: Value) -> Built<()> {
    let ring = ring(b, block)?;
    let (ptr, value) = (at(b, ring, abi::DROPPED)?, b.int(Scalar::U32, 1)?);
    b.emit(Memory::Red { ptr, value, op: RedOp::Add, sem: Sem::Relaxed, scope: Scope::Sys }).map(drop)
}

impl Spin {
    /// The first of several values whose element is still awaited. There is one value for each
    /// compared element.
    fn first_open(&self, b: &mut Builder, values: Vec<Value>) -> Built<Option<Value>> {
        let (Some((compared, when)), Some(&last)) = (self.open, values.last()) else {
            return Ok(values.first().copied());
        };
        let mut first = last;
        for (lane, value) in values.into_iter().enumerate().rev().skip(1) {
            let lane = u32::try_from(lane).unwrap_or(u32::MAX);
            let open = b.slice(compared, lane, 1)?;
            first = if when { b.select(open, value, first)? } else { b.select(open, first, value)? };
        }
        Ok(Some(first))
    }

    /// The address of the awaited element, or 0 if the code cannot determine it.
    fn address(&self, b: &mut Builder) -> Built<Value> {
        let mut all = Vec::new();
        for look in &self.looks {
            let base = b.emit(Address::ToInt { a: look.ptr })?;
            for lane in 0..look.lanes {
                let bytes = b.i64((lane * look.bytes).into())?;
                all.push(b.binary(BinOp::Add, base, bytes)?);
            }
        }
        self.first_open(b, all)?.map_or_else(|| b.i64(0), Ok)
    }

    /// The awaited element of a value as an `i64`.
    fn number(&self, b: &mut Builder, value: Option<Value>) -> Built<Value> {
        let lanes = value.and_then(|v| b.ty(v).lanes()).unwrap_or(1);
        let compared = self.open.and_then(|(v, _)| b.ty(v).lanes()).unwrap_or(1);
        let Some(value) = value.filter(|_| lanes > 1 && lanes == compared) else {
            return number_of(b, value);
        };
        let each = (0..lanes).map(|lane| b.slice(value, lane, 1)).collect::<Built<Vec<_>>>()?;
        let first = self.first_open(b, each)?;
        number_of(b, first)
    }
}

/// The address `bytes` bytes after `base`.
fn at(b: &mut Builder, base: Value, bytes: u32) -> Built<Value> {
    b.offset(base, &Int::from(i64::from(bytes)))
}

/// The first lane of a value as an `i64`, or 0 if the value is not an integer.
fn number_of(b: &mut Builder, value: Option<Value>) -> Built<Value> {
    let Some(value) = value else { return b.i64(0) };
    let value = b.slice(value, 0, 1)?;
    match *b.ty(value) {
        Type::Scalar(Scalar::I64) => Ok(value),
        Type::Scalar(Scalar::U64) => b.emit_as(Arith::Bitcast { a: value }, I64),
        Type::Scalar(s) if !matches!(s.kind(), NumberKind::Float | NumberKind::Bool) => {
            b.convert(value, Scalar::I64)
        }
        _ => b.i64(0),
    }
}
