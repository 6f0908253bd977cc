//! Lowers pipelines to barriers in shared memory.
//!
//! A pipeline of `S` stages is `2 S` barriers (PTX ISA, mbarrier) of 8 bytes: the full ones,
//! followed by the empty ones. A phase of a full barrier ends when thread 0 has arrived, which also
//! states how many bytes the copies will write, and these bytes have arrived. If threads write
//! stages, it ends when every warp of theirs has arrived. A phase of an empty barrier ends when
//! every warp has arrived. The next stage and the parity of its phase are variables of each thread:
//! one pair for the threads that fill stages and one for the threads that wait for full ones. There
//! are also a stage for threads that have written a stage and a stage for threads that release one.

mod facts;

use facts::{Facts, allocation};

use crate::cluster::union;
use crate::codes::UNARMED;
use crate::edit::{Action, Editor, Emit, Rewrite, rewrite};
use crate::memory::matrix::has_warpgroups;
use crate::teams::{Polls, linear, place};
use crate::tiles::Fact;
use crate::{Options, Report};
use rustc_hash::FxHashMap;
use weft_ir::builder::Built;
use weft_ir::diag::{Diagnostic, Span};
use weft_ir::mixed::{Builder, Kernel, Type};
use weft_ir::tile::line;
use weft_ir::{
    Access, Block, Dim, Layout, LocalId, Operation, Scalar, Scope, Space, Sreg, Thread, Tile, Value, View,
};
use weft_ir::{Address, Async, BinOp, Bridge, CmpOp, Control, Debug, Group, Int, UnOp, ValueType, Var};

/// The alignment of a box in shared memory in bytes (PTX ISA, cp.async.bulk.tensor). A swizzle
/// permutes by the bits of the address, so a box can begin inside of its pattern (CUDA programming
/// guide, swizzle modes of TMA).
pub(crate) const BOX_ALIGN: u32 = 128;
/// The size of a barrier in bytes.
const BARRIER: i64 = 8;
const WARP: i64 = 32;
const I32: Type = Type::Scalar(Scalar::I32);

/// Runs the pass on a kernel.
pub(crate) fn run(
    mut kernel: Kernel,
    options: &Options,
    report: &mut Report,
) -> Result<Kernel, Vec<Diagnostic>> {
    let mut facts = Facts::default();
    kernel.walk(&mut |v, inst| {
        facts.any |= inst.op.tile().is_some();
        if let Some(Tile::Pipeline { stages }) = inst.op.tile() {
            facts.pipelines.push((v, *stages));
        }
    });
    if !facts.any {
        return Ok(kernel);
    }
    facts.block(&kernel, &kernel.body);
    facts.users(&kernel, &kernel.body, kernel.threads());
    facts.memory(&kernel, has_warpgroups(options.target));
    facts.align(&mut kernel);
    let unarmed = facts.unarmed(&kernel);
    if !unarmed.is_empty() {
        return Err(unarmed);
    }
    let mut pass = Pipelines {
        options,
        report,
        facts,
        pipes: FxHashMap::default(),
        armed: FxHashMap::default(),
        dirty: false,
    };
    let mut kernel = rewrite(kernel, &mut pass)?;
    let shared = !pass.facts.shared.is_empty();
    if shared || !pass.facts.drained.is_empty() {
        let (mut b, body) = Builder::edit(std::mem::replace(&mut kernel, Kernel::new("")));
        finish(&mut b, body, shared, report).map_err(|d| vec![d])?;
        kernel = b.finish();
    }
    Ok(kernel)
}

/// Rewrites a block so that shared memory stays valid until the copies from it, which thread 0 of
/// the CTA or of a role began, have read it. If CTAs of a cluster fill each other's stages
/// (`shared`), a CTA does not end until all others have finished using its memory and its barriers.
fn finish(b: &mut Builder, body: Block, shared: bool, report: &mut Report) -> Built<()> {
    let (mut copies, mut roles) = (None, false);
    for v in body.0 {
        let op = b.kernel().op(v).clone();
        if let Some(Control::Role { .. }) = op.control() {
            let mut op = op;
            roles = true;
            for block in op.blocks_mut() {
                b.open();
                let inner = finish(b, std::mem::take(block), shared, report);
                *block = b.close();
                inner?;
            }
            b.kernel_mut().insts[v].op = op;
        } else {
            copies = copies.or_else(|| stores(b.kernel(), v));
        }
        b.push(v);
    }
    if let Some(span) = copies {
        let why = "keeps shared memory until the last copies have read it";
        report.tile(&b.kernel().name, span, Fact::Wait(why));
        by_first(b, |b| b.emit(Async::BulkWait { pending: 0, read: true }).map(drop))?;
    }
    if shared && !roles {
        b.emit(Thread::GroupBarrier { group: Group::Cluster })?;
    }
    Ok(())
}

/// The first place at which an op, or an op in its blocks, copies out of shared memory.
fn stores(k: &Kernel, v: Value) -> Option<Span> {
    let op = k.op(v);
    match op.tile() {
        Some(Tile::TmaStore { .. } | Tile::BulkStore { pipe: None, .. }) => Some(k.insts[v].span),
        _ => op.blocks().into_iter().find_map(|b| b.0.iter().find_map(|v| stores(k, *v))),
    }
}

/// The position of a side of a pipeline: the next stage, and the parity of its phase.
#[derive(Clone, Copy)]
struct Cursor {
    stage: LocalId,
    parity: LocalId,
}

/// The memory and the cursors of a pipeline.
#[derive(Clone, Copy)]
struct Pipe {
    stages: u32,
    /// The number of CTAs of the cluster that fill a stage. Each of them waits for the copies in
    /// all of them.
    ctas: u32,
    /// The ranks of these CTAs as bits (`i32`), or `None` if they are all CTAs of the cluster.
    ranks: Option<Value>,
    /// The address of the barriers.
    barriers: Value,
    fills: Cursor,
    waits: Cursor,
    frees: Cursor,
    /// The cursor of the threads that write stages, if there are any.
    writes: Option<Cursor>,
    /// Whether copies arrive. In that case, thread 0 states their number of bytes.
    copied: bool,
    /// The number of arrivals that fill a stage, in addition to bytes.
    arrivals: u32,
    /// Whether threads read the stages that copies fill, and whether copies read them.
    read: bool,
    drained: bool,
}

impl Pipe {
    /// The scope in which accesses to a stage before its release are visible. A stage that only
    /// matrix instructions read needs no visibility, because a completed product has read it,
    /// whichever CTA fills it again. Release and acquire with cluster scope are fences of the whole
    /// GPU in every step of the loop, and such a fence waits for pending stores to other GPUs.
    fn scope(&self) -> Scope {
        if self.ctas > 1 && self.read { Scope::Cluster } else { Scope::Cta }
    }
}

struct Pipelines<'a> {
    options: &'a Options,
    report: &'a mut Report,
    facts: Facts,
    pipes: FxHashMap<Value, Pipe>,
    /// The full barrier of the stage of each acquire.
    armed: FxHashMap<Value, Value>,
    /// Whether threads have written memory that copies will read, without a fence since then.
    dirty: bool,
}

impl Rewrite for Pipelines<'_> {
    fn op(&mut self, e: &mut Editor, v: Value) -> Built<Action> {
        let k = e.b.kernel();
        let span = k.insts[v].span;
        if let Some(Access::Store { place, .. } | Access::Red { place, .. }) = k.op(v).access() {
            self.dirty |= allocation(k, *place).is_some_and(|a| self.facts.written.contains(&a));
        }
        if let Some(
            Thread::GroupBarrier { group: Group::Block | Group::Cluster } | Thread::ClusterArrive {},
        ) = k.op(v).thread()
        {
            self.show_writes(e, span)?;
            return Ok(Action::Keep);
        }
        if let Some(Control::Role { .. }) = k.op(v).control() {
            self.dirty = false;
        }
        let Some(op) = k.op(v).tile().cloned() else { return Ok(Action::Keep) };
        match op {
            Tile::Pipeline { stages } => {
                if self.pipes.is_empty() {
                    let facts = &self.facts;
                    self.pipes = e.prologue(|b| make(b, facts))?;
                }
                let ctas = self.pipe(v, span)?.ctas;
                let warps = self.facts.arrivals(v, span)?;
                self.report_fact(e, span, Fact::Pipeline { stages, warps: warps * ctas });
                Ok(Action::Drop)
            }
            Tile::Acquire { pipe } => {
                let pipe = self.pipe(pipe, span)?;
                self.acquire(e, v, pipe, span).map(|()| Action::Drop)
            }
            Tile::Commit { pipe } => {
                let pipe = self.pipe(pipe, span)?;
                self.show_writes(e, span)?;
                self.commit(&mut e.b, pipe, span).map(|()| Action::Drop)
            }
            Tile::Await { pipe } => {
                let pipe = self.pipe(pipe, span)?;
                let parity = e.b.get(pipe.waits.parity)?;
                let stage = under_its_number(e, v, pipe.waits.stage);
                let full = barrier(&mut e.b, pipe.barriers, stage)?;
                self.wait(&mut e.b, (full, parity, Scope::Cta), span)?;
                advance(&mut e.b, pipe.waits, stage, pipe.stages).map(|()| Action::Drop)
            }
            Tile::Release { pipe } => {
                let pipe = self.pipe(pipe, span)?;
                if pipe.read {
                    self.report_fact(
                        e,
                        span,
                        Fact::Fence("orders reads of stages by threads before copies that fill them again"),
                    );
                }
                self.release(&mut e.b, pipe).map(|()| Action::Drop)
            }
            Tile::Skip { pipe, stages } => {
                let pipe = self.pipe(pipe, span)?;
                skip(&mut e.b, pipe, stages).map(|()| Action::Drop)
            }
            Tile::TmaLoad { .. } | Tile::BulkLoad { .. } | Tile::BulkStore { pipe: Some(_), .. } => {
                let acquire = self.facts.acquires.get(&v).and_then(|a| self.armed.get(a)).copied();
                let full = acquire.unwrap_or(v);
                if let weft_ir::mixed::Op::Tile(
                    Tile::TmaLoad { pipe, .. }
                    | Tile::BulkLoad { pipe, .. }
                    | Tile::BulkStore { pipe: Some(pipe), .. },
                ) = &mut e.b.kernel_mut().insts[v].op
                {
                    *pipe = full;
                }
                Ok(Action::Keep)
            }
            Tile::TmaStore { .. }
            | Tile::TmaInstead {}
            | Tile::BulkStore { .. }
            | Tile::TmaWait { .. }
            | Tile::Accumulator {}
            | Tile::Mma { .. }
            | Tile::MmaWait { .. }
            | Tile::AccumulatorOf { .. }
            | Tile::AccumulatorRead { .. } => Ok(Action::Keep),
        }
    }
}

impl Pipelines<'_> {
    fn pipe(&self, v: Value, span: Span) -> Built<Pipe> {
        let missing =
            || Diagnostic::error(UNARMED, span, "this pipeline is not known when the kernel is compiled");
        self.pipes.get(&v).copied().ok_or_else(missing)
    }

    fn report_fact(&mut self, e: &Editor, span: Span, fact: Fact) {
        self.report.tile(&e.b.kernel().name, span, fact);
    }

    /// Emits code that waits for the stage to become empty, in which thread 0 states how many bytes
    /// will arrive.
    fn acquire(&mut self, e: &mut Editor, v: Value, pipe: Pipe, span: Span) -> Built<()> {
        let bytes = self.facts.bytes.get(&v).copied().unwrap_or(0);
        self.report_fact(e, span, Fact::Expects(bytes));
        let parity = e.b.get(pipe.fills.parity)?;
        let stage = under_its_number(e, v, pipe.fills.stage);
        let b = &mut e.b;
        let full = barrier(b, pipe.barriers, stage)?;
        let empty = b.offset(full, &Int::from(i64::from(pipe.stages) * BARRIER))?;
        self.armed.insert(v, full);
        let scope = pipe.scope();
        // All stages are empty at first, because the phase before the first one counts as complete.
        let empty_phase = |b: &mut Builder| {
            let one = b.i32(1)?;
            let before = b.binary(BinOp::Xor, parity, one)?;
            self.wait(b, (empty, before, scope), span)
        };
        let by_warp = self.facts.by_warp.contains(&v);
        // All threads that write a stage wait for it.
        if pipe.writes.is_some() {
            empty_phase(b)?;
        } else if by_warp {
            // No lane is several phases ahead of another one, which would misread the parity.
            b.emit(Thread::GroupBarrier { group: Group::Warp })?;
            empty_phase(b)?;
        }
        if pipe.copied {
            by_first(b, |b| {
                if pipe.writes.is_none() && !by_warp {
                    empty_phase(b)?;
                }
                b.emit(Async::MbarExpect { ptr: full, bytes }).map(drop)
            })?;
        }
        advance(b, pipe.fills, stage, pipe.stages)
    }

    /// Makes earlier writes of threads visible to copies and matrix instructions.
    fn show_writes(&mut self, e: &mut Editor, span: Span) -> Built<()> {
        if std::mem::take(&mut self.dirty) {
            self.report_fact(
                e,
                span,
                Fact::Fence("orders writes of threads before copies or matrix instructions that read them"),
            );
            e.b.emit(Async::ProxyFence { global: false })?;
        }
        Ok(())
    }

    /// Lets every warp arrive after its lanes have written the stage.
    fn commit(&self, b: &mut Builder, pipe: Pipe, span: Span) -> Built<()> {
        let Some(writes) = pipe.writes else {
            return Err(Diagnostic::error(UNARMED, span, "no role acquires stages of this pipeline"));
        };
        b.emit(Thread::GroupBarrier { group: Group::Warp })?;
        let stage = b.get(writes.stage)?;
        let ptr = barrier(b, pipe.barriers, stage)?;
        let lane = linear(b, Sreg::ThreadIdx)?.rem(&Int::from(WARP));
        let (lane, zero) = (b.index(lane)?, b.i64(0)?);
        let first = b.compare(CmpOp::Eq, lane, zero)?;
        b.if_true(first, |b| b.emit(Async::MbarArrive { ptr, scope: Scope::Cta }).map(drop))?;
        advance(b, writes, stage, pipe.stages)
    }

    /// Lets every warp arrive after its lanes have finished using the stage.
    fn release(&self, b: &mut Builder, pipe: Pipe) -> Built<()> {
        if pipe.read {
            b.emit(Async::ProxyFence { global: false })?;
        }
        // A completed product has read its operands for the whole warp, but each thread reads or
        // copies for itself. A product can also read stages that threads have written.
        if pipe.read || pipe.drained || pipe.writes.is_some() {
            b.emit(Thread::GroupBarrier { group: Group::Warp })?;
        }
        let stage = b.get(pipe.frees.stage)?;
        let full = barrier(b, pipe.barriers, stage)?;
        let empty = b.offset(full, &Int::from(i64::from(pipe.stages) * BARRIER))?;
        let lane = linear(b, Sreg::ThreadIdx)?.rem(&Int::from(WARP));
        let scope = pipe.scope();
        // Lane i signals CTA i of the CTAs that fill the stage.
        let all = if pipe.ctas > 1 { b.kernel().cluster_size() } else { 1 };
        let (lane, end) = (b.index(lane)?, b.i64(all.into())?);
        let mut tells = b.compare(CmpOp::Lt, lane, end)?;
        if let Some(ranks) = pipe.ranks {
            let (rank, one, zero) = (b.convert(lane, Scalar::I32)?, b.i32(1)?, b.i32(0)?);
            let bit = b.binary(BinOp::Shr, ranks, rank)?;
            let bit = b.binary(BinOp::And, bit, one)?;
            let fills = b.compare(CmpOp::Ne, bit, zero)?;
            tells = b.binary(BinOp::And, tells, fills)?;
        }
        b.if_true(tells, |b| {
            let ptr = match pipe.ctas {
                1 => empty,
                _ => {
                    let cta = b.convert(lane, Scalar::I32)?;
                    b.emit(Address::InCta { ptr: empty, cta })?
                }
            };
            b.emit(Async::MbarArrive { ptr, scope }).map(drop)
        })?;
        advance(b, pipe.frees, stage, pipe.stages)
    }

    /// Waits until the phase with this parity has ended.
    fn wait(&self, b: &mut Builder, (ptr, parity, scope): (Value, Value, Scope), span: Span) -> Built<()> {
        let polls = Polls::new(b, self.options.debug_waits)?;
        b.while_loop(
            |b| {
                let ended = b.emit(Async::MbarTest { ptr, parity, scope })?;
                b.unary(UnOp::Not, ended)
            },
            |b| {
                polls.count(b, |b| {
                    let format =
                        format!("weft: CTA %d waits at {}: phase %d\n", place(self.options, span, b));
                    let cta = b.special(Sreg::BlockIdx, Dim::X)?;
                    b.emit(Debug::Print { format: format.into(), args: vec![cta, parity] })?;
                    b.emit(Debug::Trap {}).map(drop)
                })
            },
        )
        .map(drop)
    }
}

/// Allocates the memory of all pipelines. Thread 0 initialises it before any thread continues.
fn make(b: &mut Builder, facts: &Facts) -> Built<FxHashMap<Value, Pipe>> {
    let cluster = b.kernel().cluster;
    let mut made = Vec::new();
    for &(v, stages) in &facts.pipelines {
        b.at(b.kernel().insts[v].span);
        let lines = facts.shared.get(&v).map_or(&[][..], Vec::as_slice);
        let ctas = lines.iter().fold(1, |all, dims| all | line(cluster, *dims)).count_ones();
        let all = ctas < 2 || ctas == b.kernel().cluster_size();
        let ranks = if all { None } else { Some(union(b, lines)?) };
        let warps = facts.arrivals(v, b.kernel().insts[v].span)?;
        made.push((v, pipe(b, stages, (ctas, ranks), (facts, v))?, warps * ctas));
    }
    by_first(b, |b| {
        for (_, Pipe { stages, barriers, arrivals: fills, .. }, releases) in &made {
            for i in 0..2 * stages {
                let ptr = b.offset(*barriers, &Int::from(i64::from(i) * BARRIER))?;
                b.emit(Async::MbarInit { ptr, count: if i < *stages { *fills } else { *releases } })?;
            }
        }
        b.emit(Async::MbarFence {}).map(drop)
    })?;
    // Copies and arrivals of another CTA can come as soon as that CTA continues.
    let group = if facts.shared.is_empty() { Group::Block } else { Group::Cluster };
    b.emit(Thread::GroupBarrier { group })?;
    Ok(made.into_iter().map(|(v, pipe, _)| (v, pipe)).collect())
}

/// The memory and the cursors of one pipeline, with the facts about its use in the kernel.
fn pipe(
    b: &mut Builder,
    stages: u32,
    (ctas, ranks): (u32, Option<Value>),
    (facts, v): (&Facts, Value),
) -> Built<Pipe> {
    let layout = Layout::col_major(Int::from(2 * i64::from(stages)));
    let layout = layout.map_err(|x| Diagnostic::error(UNARMED, Span::NONE, x.to_string()))?;
    let memory = b.emit_as(
        View::Shared { name: "pipeline".into() },
        Builder::tensor(Scalar::U64, Space::Shared, layout, 8),
    )?;
    let barriers = b.emit(Bridge::AddressOf { base: memory })?;
    let mut cursor = |name: &str| -> Built<Cursor> {
        let zero = b.i32(0)?;
        let at = Cursor {
            stage: b.local(&format!("{name}_stage"), I32),
            parity: b.local(&format!("{name}_parity"), I32),
        };
        b.set(at.stage, zero)?;
        b.set(at.parity, zero)?;
        Ok(at)
    };
    let (fills, waits, frees) = (cursor("fill")?, cursor("wait")?, cursor("free")?);
    let (writers, copied) = facts.writes(v);
    let writes = (writers > 0).then(|| cursor("write")).transpose()?;
    let arrivals = writers + u32::from(copied);
    let (read, drained) = (facts.hold(&facts.read, v), facts.hold(&facts.drained, v));
    Ok(Pipe { stages, ctas, ranks, barriers, fills, waits, frees, writes, copied, arrivals, read, drained })
}

/// Emits code that only thread 0 executes.
pub(crate) fn by_first(b: &mut Builder, f: impl FnOnce(&mut Builder) -> Built<()>) -> Built<()> {
    let thread = linear(b, Sreg::ThreadIdx)?;
    let (thread, zero) = (b.index(thread)?, b.i64(0)?);
    let first = b.compare(CmpOp::Eq, thread, zero)?;
    let then = b.nested(f)?;
    b.emit(Control::If { cond: first, then, otherwise: Block::default() }).map(drop)
}

/// Reads a stage into the value `v`, because layouts and offsets refer to the stage by that number.
fn under_its_number(e: &mut Editor, v: Value, stage: LocalId) -> Value {
    e.b.kernel_mut().insts[v].op = Var::LocalGet { local: stage }.into();
    e.b.push(v);
    v
}

/// The address of a stage's full barrier.
fn barrier(b: &mut Builder, barriers: Value, stage: Value) -> Built<Value> {
    let bytes = b.symbol(stage)? * Int::from(BARRIER);
    b.offset(barriers, &bytes)
}

/// Advances to the next stage. After the last stage follows the first one with the other parity.
fn advance(b: &mut Builder, at: Cursor, stage: Value, stages: u32) -> Built<()> {
    let (one, zero, end) = (b.i32(1)?, b.i32(0)?, b.i32(stages.into())?);
    let next = b.binary(BinOp::Add, stage, one)?;
    let wraps = b.compare(CmpOp::Eq, next, end)?;
    let next = b.select(wraps, zero, next)?;
    b.set(at.stage, next)?;
    let parity = b.get(at.parity)?;
    let other = b.binary(BinOp::Xor, parity, one)?;
    let parity = b.select(wraps, other, parity)?;
    b.set(at.parity, parity).map(drop)
}

/// Advances both the wait cursor and the release cursor by a number of stages.
fn skip(b: &mut Builder, pipe: Pipe, stages: Value) -> Built<()> {
    let n = Int::from(i64::from(pipe.stages));
    let stage = b.get(pipe.waits.stage)?;
    let behind = b.symbol(stage)? + b.symbol(stages)?;
    let next = b.index(behind.rem(&n))?;
    let next = b.convert(next, Scalar::I32)?;
    let wraps = b.index(behind.floor_div(&n).rem(&Int::from(2)))?;
    let wraps = b.convert(wraps, Scalar::I32)?;
    let parity = b.get(pipe.waits.parity)?;
    let parity = b.binary(BinOp::Xor, parity, wraps)?;
    for at in [pipe.waits, pipe.frees] {
        b.set(at.stage, next)?;
        b.set(at.parity, parity)?;
    }
    Ok(())
}
