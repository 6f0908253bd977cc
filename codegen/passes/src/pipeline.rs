//! Lowers pipelines to barriers in shared memory.
//!
//! A pipeline of `S` stages is `2 S` barriers (PTX ISA, mbarrier) of 8 bytes: the full ones,
//! followed by the empty ones. A phase of a full barrier ends when thread 0 has arrived, which also
//! states how many bytes the copies will write, and these bytes have arrived. If threads write
//! stages, it ends when every warp of theirs has arrived. A phase of an empty barrier ends when
//! every warp has arrived. The next stage and the parity of its phase are variables of each thread:
//! one pair for the threads that fill stages and one for the threads that wait for full ones. There
//! are also a stage for threads that have written a stage and a stage for threads that release one.

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

/// The properties of the kernel's pipelines.
#[derive(Default)]
struct Facts {
    any: bool,
    /// All pipelines with their numbers of stages.
    pipelines: Vec<(Value, u32)>,
    /// The allocations that copies fill, and those that copies read.
    filled: Vec<Value>,
    drained: Vec<Value>,
    /// For each pipeline, the allocations filled by copies that arrive on it.
    stages: FxHashMap<Value, Vec<Value>>,
    /// The allocations that matrix products read.
    multiplied: Vec<Value>,
    /// The bytes that arrive in the stage of each acquire.
    bytes: FxHashMap<Value, u32>,
    /// For each pipeline, the numbers of warps of the roles that release its stages.
    warps: FxHashMap<Value, Vec<u32>>,
    /// The number of warps that write stages of each pipeline.
    writers: FxHashMap<Value, u32>,
    /// The pipelines on which copies arrive.
    copied: Vec<Value>,
    /// The pipelines for whose stages roles wait in turns.
    turns: Vec<Value>,
    /// The pipelines whose stages other CTAs of the cluster also fill. For each kind of copy, the
    /// value has the dimensions in which these CTAs differ from this one, as bits.
    shared: FxHashMap<Value, Vec<u32>>,
    /// The acquires for which all lanes of a warp wait: those of a single warp that waits for nothing
    /// else in between. If thread 0 waits alone, ptxas lets it yield to the other lanes with every poll
    /// (YIELD), so that the copies begin later. In roles that also wait for full stages, lanes diverge,
    /// and the barrier that precedes a wait of all lanes is slow (BRA.DIV).
    by_warp: Vec<Value>,
    /// The acquire whose stage each copy fills.
    acquires: FxHashMap<Value, Value>,
    /// The allocations that copies fill and threads read, and those that threads write and copies
    /// or matrix products read.
    read: Vec<Value>,
    written: Vec<Value>,
}

impl Facts {
    /// Adds up the bytes of the copies after each acquire of a block.
    fn block(&mut self, k: &Kernel, block: &Block) {
        let mut open: FxHashMap<Value, Value> = FxHashMap::default();
        for &v in &block.0 {
            match k.op(v).tile() {
                Some(Tile::Acquire { pipe }) => {
                    open.insert(*pipe, v);
                    self.bytes.insert(v, 0);
                }
                Some(op) if arrival(op).is_some() => {
                    let Some((dst, pipe, dims)) = arrival(op) else { continue };
                    self.copied.push(pipe);
                    self.stages.entry(pipe).or_default().extend(allocation(k, dst));
                    let by = line(k.cluster, dims).count_ones();
                    // Each CTA sends to another one, and receives the same amount from one.
                    let sends = matches!(op, Tile::BulkStore { .. });
                    let dims = if sends { EVERY_CTA } else { dims };
                    let by = if sends { 1 } else { by };
                    if line(k.cluster, dims) != 1 {
                        let all = self.shared.entry(pipe).or_default();
                        if !all.contains(&dims) {
                            all.push(dims);
                        }
                    }
                    if let Some(acquire) = open.get(&pipe) {
                        self.acquires.insert(v, *acquire);
                        let size = k.ty(dst).tensor().and_then(|t| {
                            let elements = u32::try_from(t.layout.size().as_const()?).ok()?;
                            // Every CTA of the cluster sends such a tile.
                            elements.checked_mul(t.elem.bytes())?.checked_mul(by)
                        });
                        let bytes = self.bytes.entry(*acquire).or_default();
                        *bytes = bytes.saturating_add(size.unwrap_or(u32::MAX));
                    }
                }
                _ => k.op(v).blocks().into_iter().for_each(|inner| self.block(k, inner)),
            }
        }
    }

    /// Counts the warps that write stages, and those that release them, and finds the acquires for which
    /// a whole warp waits. Each role counts with all of its `threads` threads.
    fn users(&mut self, k: &Kernel, block: &Block, threads: u32) {
        let (mut writes, mut releases, mut acquires, mut awaits) = (vec![], vec![], vec![], false);
        let mut walk = vec![block];
        while let Some(block) = walk.pop() {
            for &v in &block.0 {
                match (k.op(v).control(), k.op(v).tile()) {
                    (Some(Control::Role { threads, body, .. }), _) => self.users(k, body, *threads),
                    (_, Some(Tile::Acquire { .. })) => acquires.push(v),
                    (_, Some(Tile::Await { .. })) => awaits = true,
                    (_, Some(Tile::Commit { pipe })) if !writes.contains(pipe) => writes.push(*pipe),
                    (_, Some(Tile::Release { pipe })) if !releases.contains(pipe) => releases.push(*pipe),
                    (_, Some(Tile::Skip { pipe, .. })) if !self.turns.contains(pipe) => {
                        self.turns.push(*pipe);
                    }
                    _ => walk.extend(k.op(v).blocks()),
                }
            }
        }
        let warps = threads.div_ceil(WARP as u32);
        if warps == 1 && !awaits {
            self.by_warp.extend(acquires);
        }
        for pipe in writes {
            *self.writers.entry(pipe).or_default() += warps;
        }
        for pipe in releases {
            self.warps.entry(pipe).or_default().push(warps);
        }
    }

    /// The number of warps that write stages of a pipeline, and whether copies fill them.
    fn writes(&self, pipe: Value) -> (u32, bool) {
        let writers = self.writers.get(&pipe).copied().unwrap_or(0);
        (writers, writers == 0 || self.copied.contains(&pipe))
    }

    /// Whether one of these allocations holds stages of a pipeline. A pipeline without copies may
    /// stand for any stage that copies fill.
    fn hold(&self, among: &[Value], pipe: Value) -> bool {
        self.stages.get(&pipe).unwrap_or(&self.filled).iter().any(|v| among.contains(v))
    }

    /// The number of arrivals that empty a stage of a pipeline: those of all roles that release
    /// stages, or those of one role if they take turns.
    fn arrivals(&self, pipe: Value, span: Span) -> Built<u32> {
        let roles = self.warps.get(&pipe).map_or(&[1][..], |roles| roles);
        if !self.turns.contains(&pipe) {
            return Ok(roles.iter().sum());
        }
        match roles {
            [first, others @ ..] if others.iter().all(|n| n == first) => Ok(*first),
            _ => {
                let message =
                    "roles that take turns with the stages of a pipeline must have the same number of warps";
                Err(Diagnostic::error(UNARMED, span, message)
                    .help("give these roles the same number of threads"))
            }
        }
    }

    /// Finds the allocations that both threads and copies access. Without matrix instructions of
    /// warpgroups, threads load the operands of products.
    fn memory(&mut self, k: &Kernel, has_warpgroups: bool) {
        let (mut loaded, mut stored) = (vec![], vec![]);
        k.walk(&mut |_, inst| match (inst.op.tile(), inst.op.access()) {
            (Some(Tile::TmaLoad { dst, .. } | Tile::BulkLoad { dst, .. }), _) => {
                self.filled.extend(allocation(k, *dst));
            }
            (Some(Tile::TmaStore { src, .. }), _) => self.drained.extend(allocation(k, *src)),
            (Some(Tile::BulkStore { dst, src, .. }), _) => {
                self.filled.extend(allocation(k, *dst));
                self.drained.extend(allocation(k, *src));
            }
            (Some(Tile::Mma { a, b, .. }), _) => {
                let operands = || [*a, *b].into_iter().filter_map(|v| allocation(k, v));
                self.multiplied.extend(operands());
                loaded.extend(operands().filter(|_| !has_warpgroups));
            }
            (_, Some(Access::Store { place, .. } | Access::Red { place, .. })) => {
                stored.extend(allocation(k, *place))
            }
            (_, Some(access)) => loaded.extend(allocation(k, access.place())),
            _ => {}
        });
        self.read = loaded.into_iter().filter(|v| self.filled.contains(v)).collect();
        let taken = |v: &Value| self.drained.contains(v) || has_warpgroups && self.multiplied.contains(v);
        self.written = stored.into_iter().filter(taken).collect();
    }

    /// Aligns the allocations as copies and matrix products require.
    fn align(&self, k: &mut Kernel) {
        for &v in self.filled.iter().chain(&self.drained).chain(&self.multiplied) {
            if let Type::Tensor(t) = &mut k.insts[v].ty {
                let t = std::sync::Arc::make_mut(t);
                t.align = t.align.max(BOX_ALIGN);
            }
        }
        // An allocation has the same alignment in another CTA.
        let mut there = Vec::new();
        k.walk(&mut |v, inst| {
            if let Some(View::InCta { base, .. }) = inst.op.view() {
                there.extend(k.ty(*base).tensor().map(|t| (v, t.align)));
            }
        });
        for (v, align) in there {
            if let Type::Tensor(t) = &mut k.insts[v].ty {
                std::sync::Arc::make_mut(t).align = align;
            }
        }
    }

    /// Reports copies whose bytes no acquire counts.
    fn unarmed(&self, k: &Kernel) -> Vec<Diagnostic> {
        let mut found = Vec::new();
        k.walk(&mut |v, inst| {
            if inst.op.tile().and_then(arrival).is_some() && !self.acquires.contains_key(&v) {
                let message = "no `producer_acquire` of the pipeline precedes this copy in its block";
                found.push(
                    Diagnostic::error(UNARMED, inst.span, message)
                        .help("put the copies of a stage directly after its acquire"),
                );
            }
        });
        found
    }
}

/// The allocation in shared memory that contains a tensor.
fn allocation(k: &Kernel, mut v: Value) -> Option<Value> {
    loop {
        match k.op(v).view()? {
            View::Part { base, .. } | View::Distributed { base, .. } | View::InCta { base, .. } => v = *base,
            View::Shared { .. } => return Some(v),
            View::Index { .. } | View::Multicast { .. } | View::Peer { .. } => return None,
        }
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

/// All dimensions of a cluster.
const EVERY_CTA: u32 = 0b111;

/// For a copy that arrives on a pipeline: its destination, the pipeline, and the dimensions of the
/// cluster along which it goes.
fn arrival(op: &Tile) -> Option<(Value, Value, u32)> {
    match op {
        Tile::TmaLoad { dst, pipe, dims, .. } | Tile::BulkLoad { dst, pipe, dims, .. } => {
            Some((*dst, *pipe, *dims))
        }
        Tile::BulkStore { dst, pipe: Some(pipe), .. } => Some((*dst, *pipe, 0)),
        _ => None,
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
