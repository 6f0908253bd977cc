//! Lowers ranks and sizes of teams to hidden parameters, and team barriers to code.
//!
//! A barrier has memory on every PE. For CTA `c` (its linear index) there is a line of 128 bytes at
//! `128 * c`, with a `u32` counter at 0 and a `u32` epoch at 4. Both are 0 when allocated and only
//! increase (modulo 2^32), so nothing is reset and launches can follow each other. In epoch `e`
//! every PE adds 1 to the counter of each PE, including itself, and waits until its own counter has
//! reached `e * n_pes`. Thread 0 alone reads and writes the epoch.
//!
//! A barrier with order `acq_rel` arrives with release and waits with acquire. With `release`,
//! `acquire` and `relaxed` it also arrives and waits, but `release` orders only the arrival,
//! `acquire` orders only the wait, and `relaxed` orders neither.

use crate::codes::BARRIER_ORIGIN;
use crate::edit::{Action, Editor, Emit, Rewrite, param_index, rewrite};
use crate::pointers::{AddressSource, Peers};
use crate::{Lowering, Options, Report};
use weft_ir::builder::{Built, Range};
use weft_ir::diag::{Diagnostic, Span};
use weft_ir::mixed::{Builder, Kernel, Type};
use weft_ir::{
    Arith, BinOp, Bridge, CmpOp, Control, Debug, Dim, Group, Int, LocalId, Memory, Operation, RedOp, Scalar,
};
use weft_ir::{Scope, Sem, Sreg, Team, TeamRef, Thread, Value};

/// The size of a CTA's counters in bytes: a cache line, so that CTAs do not share one.
const LINE: i64 = 128;
/// The offset of the epoch in the line.
const EPOCH: i64 = 4;

/// Runs the pass on a kernel.
pub(crate) fn run(kernel: Kernel, options: &Options, _: &mut Report) -> Result<Kernel, Vec<Diagnostic>> {
    rewrite(kernel, &mut Teams { options })
}

struct Teams<'a> {
    options: &'a Options,
}

impl Rewrite for Teams<'_> {
    fn op(&mut self, e: &mut Editor, v: Value) -> Built<Action> {
        let source = AddressSource::of(self.options);
        let Some(op) = e.b.kernel().op(v).team() else { return Ok(Action::Keep) };
        let told = match *op {
            Team::MyPe { team } => e.prologue(|b| source.my_pe(b, team))?,
            Team::NPes { team } => e.prologue(|b| source.n_pes(b, team))?,
            Team::Barrier { sync, team, sem, scope } => {
                let span = e.b.kernel().insts[v].span;
                let barrier = Barrier { options: self.options, sync, team, sem, scope, span };
                return barrier.emit(e).map(|()| Action::Drop);
            }
        };
        // The value keeps its number, by which layouts and offsets refer to it. It is at the start,
        // where all code can use it.
        let op = e.b.kernel().op(told).clone();
        e.retire(told, v);
        e.b.kernel_mut().insts[v].op = op;
        Ok(Action::Drop)
    }
}

struct Barrier<'a> {
    options: &'a Options,
    sync: Value,
    team: TeamRef,
    sem: Sem,
    scope: Scope,
    span: Span,
}

impl Barrier<'_> {
    fn emit(&self, e: &mut Editor) -> Built<()> {
        let Some(base) = param_index(e.b.kernel(), self.sync) else {
            return Err(Diagnostic::error(
                BARRIER_ORIGIN,
                self.span,
                "pass the counters of the barrier as a parameter",
            ));
        };
        let (source, team) = (AddressSource::of(self.options), self.team);
        let multimem = self.options.lowering == Lowering::Multimem;
        let (mc, peers) = match multimem {
            true => (Some(e.prologue(|b| source.multicast(b, base, team))?), None),
            false => (None, Some(e.prologue(|b| source.peers(b, base, team))?)),
        };
        let n_pes = e.prologue(|b| source.n_pes(b, team))?;
        let b = &mut e.b;
        let line = linear(b, Sreg::BlockIdx)? * Int::from(LINE);
        let thread = linear(b, Sreg::ThreadIdx)?;

        b.emit(Thread::GroupBarrier { group: Group::Block })?;
        if let Some(peers) = peers {
            self.arrive_unicast(b, peers, n_pes, &thread, &line)?;
        }
        let first = b.index(thread)?;
        let zero = b.i64(0)?;
        let first = b.compare(CmpOp::Eq, first, zero)?;
        let body = b.nested(|b| {
            if let Some(mc) = mc {
                let ptr = b.offset(mc, &line)?;
                let value = b.int(Scalar::U32, 1)?;
                b.emit(Memory::McRed { ptr, value, op: RedOp::Add, sem: self.arrival(), scope: self.scope })?;
            }
            self.wait(b, n_pes, &line)
        })?;
        b.emit(Control::If { cond: first, then: body, otherwise: weft_ir::Block::default() })?;
        b.emit(Thread::GroupBarrier { group: Group::Block })?;
        Ok(())
    }

    fn arrival(&self) -> Sem {
        if matches!(self.sem, Sem::AcqRel | Sem::Release) { Sem::Release } else { Sem::Relaxed }
    }

    /// Arrives at all PEs. The PEs are distributed over the threads.
    fn arrive_unicast(
        &self,
        b: &mut Builder,
        peers: Peers,
        n_pes: Value,
        thread: &Int,
        line: &Int,
    ) -> Built<()> {
        let lo = b.index(thread.clone())?;
        let hi = b.convert(n_pes, Scalar::I64)?;
        let step = b.i64(b.kernel().threads().into())?;
        b.for_loop((lo, hi, step), 1, Range { min: 0, max: None, div: 1 }, |b, pe| {
            let there = peers.address(b, &b.symbol(pe)?)?;
            let ptr = b.offset(there, line)?;
            let value = b.int(Scalar::U32, 1)?;
            b.emit(Memory::Red { ptr, value, op: RedOp::Add, sem: self.arrival(), scope: self.scope })?;
            Ok(())
        })?;
        Ok(())
    }

    /// Thread 0 waits for this epoch's arrivals, and then stores the epoch.
    fn wait(&self, b: &mut Builder, n_pes: Value, line: &Int) -> Built<()> {
        let u32 = Type::Scalar(Scalar::U32);
        let counters = b.emit(Bridge::AddressOf { base: self.sync })?;
        let counter = b.offset(counters, line)?;
        let epoch_at = b.offset(counter, &Int::from(EPOCH))?;
        let before =
            b.emit_as(Memory::Load { ptr: epoch_at, sem: Sem::Weak, scope: Scope::Sys }, u32.clone())?;
        let one = b.int(Scalar::U32, 1)?;
        let epoch = b.binary(BinOp::Add, before, one)?;
        let pes = b.emit_as(Arith::Bitcast { a: n_pes }, u32.clone())?;
        let expected = b.binary(BinOp::Mul, epoch, pes)?;
        let sem = if matches!(self.sem, Sem::AcqRel | Sem::Acquire) { Sem::Acquire } else { Sem::Relaxed };
        let polls = Polls::new(b, self.options.debug_waits)?;
        let seen = b.local("arrived", u32.clone());
        b.while_loop(
            |b| {
                let count = b.emit_as(Memory::Load { ptr: counter, sem, scope: self.scope }, u32)?;
                b.set(seen, count)?;
                // Both numbers wrap around, and their difference is always below 2^31.
                let ahead = b.binary(BinOp::Sub, count, expected)?;
                let ahead = b.emit_as(Arith::Bitcast { a: ahead }, Type::Scalar(Scalar::I32))?;
                let zero = b.i32(0)?;
                b.compare(CmpOp::Lt, ahead, zero)
            },
            |b| {
                polls.count(b, |b| {
                    let count = b.get(seen)?;
                    self.give_up(b, line, count, expected)
                })
            },
        )?;
        b.emit(Memory::Store { ptr: epoch_at, value: epoch, sem: Sem::Weak, scope: Scope::Sys })?;
        Ok(())
    }

    fn give_up(&self, b: &mut Builder, line: &Int, count: Value, expected: Value) -> Built<()> {
        let place = place(self.options, self.span, b);
        let pe = AddressSource::of(self.options).my_pe(b, self.team)?;
        let cta = b.index(line.floor_div(&Int::from(LINE)))?;
        let cta = b.convert(cta, Scalar::I32)?;
        let format = format!("weft: PE %d CTA %d waits in barrier at {place}: counter %u, expected %u\n",);
        b.emit(Debug::Print { format: format.into(), args: vec![pe, cta, count, expected] })?;
        b.emit(Debug::Trap {})?;
        Ok(())
    }
}

/// The place of a wait as part of a format.
pub(crate) fn place(options: &Options, span: Span, b: &Builder) -> String {
    let place = match &options.locate {
        Some(locate) if !span.is_none() => locate(span),
        _ => format!("kernel {}", b.kernel().name),
    };
    place.replace('%', "%%")
}

/// The limit of a wait, which counts its polls.
pub(crate) struct Polls(Option<(LocalId, u64)>);

impl Polls {
    /// Counts polls from 0 up to `limit`, if there is a limit.
    pub fn new(b: &mut Builder, limit: Option<u64>) -> Built<Polls> {
        let Some(limit) = limit else { return Ok(Polls(None)) };
        let polls = b.local("polls", Type::Scalar(Scalar::U64));
        let zero = b.int(Scalar::U64, 0)?;
        b.set(polls, zero)?;
        Ok(Polls(Some((polls, limit))))
    }

    /// Counts a poll. After the last one it emits `give_up`.
    pub fn count(&self, b: &mut Builder, give_up: impl FnOnce(&mut Builder) -> Built<()>) -> Built<()> {
        let Some((polls, limit)) = self.0 else { return Ok(()) };
        let n = b.get(polls)?;
        let one = b.int(Scalar::U64, 1)?;
        let n = b.binary(BinOp::Add, n, one)?;
        b.set(polls, n)?;
        let limit = b.int(Scalar::U64, i64::try_from(limit).unwrap_or(i64::MAX))?;
        let over = b.compare(CmpOp::Ge, n, limit)?;
        b.if_true(over, give_up).map(drop)
    }
}

/// The linear index of the CTA in the grid or of the thread in the CTA, with x fastest.
pub(crate) fn linear(b: &mut Builder, reg: Sreg) -> Built<Int> {
    let mut index = Int::ZERO;
    for dim in [Dim::Z, Dim::Y, Dim::X] {
        let extent = if reg == Sreg::ThreadIdx { Sreg::BlockDim } else { Sreg::GridDim };
        if reg == Sreg::ThreadIdx && b.kernel().block[dim as usize] == 1 {
            continue;
        }
        let n = b.special(extent, dim)?;
        let i = b.special(reg, dim)?;
        index = index * b.symbol(n)? + b.symbol(i)?;
    }
    Ok(index)
}
