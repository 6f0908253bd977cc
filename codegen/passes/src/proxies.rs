//! Makes writes of threads to global memory visible to copies of tiles.
//!
//! Copies access memory through another proxy than threads do, so they do not see the writes of
//! threads automatically (PTX ISA, Memory Consistency Model, proxies). The pass `pipeline` orders
//! both in shared memory. This pass orders them in global memory, in the thread that begins the
//! copy. After the CTA has learned of other threads' writes (it acquired something, or waited at a
//! barrier), the thread executes a fence before the next copy that could access such memory.

use crate::pipeline::by_first;
use crate::tiles::Fact;
use crate::{Options, Report};
use rustc_hash::FxHashSet;
use weft_ir::builder::Built;
use weft_ir::diag::Diagnostic;
use weft_ir::mixed::{Builder, Inst, Kernel, Op, Type};
use weft_ir::{Async, Block, Control, Operation, Role, Sem, Space, Thread, Tile, Value, Var, View};

/// Runs the pass on a kernel.
pub(crate) fn run(kernel: Kernel, _: &Options, report: &mut Report) -> Result<Kernel, Vec<Diagnostic>> {
    let facts = Facts::new(&kernel);
    if !kernel.body.0.iter().any(|v| facts.any(&kernel, *v, Facts::touches)) {
        return Ok(kernel);
    }
    let (b, body) = Builder::edit(kernel);
    let mut fences = Fences { b, facts, report };
    let body = fences.block(body, &mut false).map_err(|d| vec![d])?;
    let mut kernel = fences.b.finish();
    kernel.body = body;
    Ok(kernel)
}

/// The accesses of the kernel's threads to the memory that its copies access.
struct Facts {
    /// The parameters that threads write, on any PE.
    written: FxHashSet<u32>,
    /// Whether copies access a parameter that threads write on this PE, so that barriers of the CTA
    /// order the accesses of both. A PE learns of writes of other PEs to its memory by acquiring
    /// something.
    own: bool,
}

impl Facts {
    fn new(k: &Kernel) -> Facts {
        let (mut written, mut here) = (FxHashSet::default(), FxHashSet::default());
        k.walk(&mut |_, inst| {
            if inst.op.access().is_some() {
                for place in inst.op.writes() {
                    let index = parameter(k, place.value);
                    written.extend(index);
                    here.extend(index.filter(|_| space(k.ty(place.value)) != Some(Space::Peer)));
                }
            }
        });
        let mut own = false;
        k.walk(&mut |_, inst| {
            own |= outside(inst).and_then(|v| parameter(k, v)).is_some_and(|p| here.contains(&p));
        });
        Facts { written, own }
    }

    /// Whether `holds` is true for an op, or for an op in its blocks.
    fn any(&self, k: &Kernel, v: Value, holds: fn(&Facts, &Kernel, &Inst) -> bool) -> bool {
        let inst = &k.insts[v];
        let inner = || inst.op.blocks().into_iter().any(|b| b.0.iter().any(|v| self.any(k, *v, holds)));
        holds(self, k, inst) || inner()
    }

    /// Whether an op is a copy of memory that threads, on this PE or another, may have written
    /// while the kernel runs.
    fn touches(&self, k: &Kernel, inst: &Inst) -> bool {
        let Some(index) = outside(inst).and_then(|v| parameter(k, v)) else { return false };
        let Some(p) = k.head.params.get(index as usize) else { return false };
        let loads = matches!(inst.op.tile(), Some(Tile::TmaLoad { .. } | Tile::BulkLoad { .. }));
        let far = outside(inst).is_some_and(|v| space(k.ty(v)) == Some(Space::Peer));
        let others_write = far || p.role != Some(Role::Input) && space(&p.ty) == Some(Space::Symmetric);
        self.written.contains(&index) || loads && others_write
    }

    /// Whether a thread knows of earlier writes of other threads after an op.
    fn learns(&self, _: &Kernel, inst: &Inst) -> bool {
        let acquires = |(sem, _)| matches!(sem, Sem::Acquire | Sem::AcqRel | Sem::SeqCst);
        let meets = matches!(
            inst.op.thread(),
            Some(Thread::GroupBarrier { .. } | Thread::ClusterWait {} | Thread::WaitDependencies {})
        );
        inst.op.order().is_some_and(acquires) || matches!(inst.op, Op::Call(_)) || self.own && meets
    }
}

/// The tensor outside of shared memory of a copy of a tile.
fn outside(inst: &Inst) -> Option<Value> {
    match inst.op.tile()? {
        Tile::TmaLoad { src, .. } | Tile::BulkLoad { src, .. } => Some(*src),
        Tile::TmaStore { dst, .. } | Tile::BulkStore { dst, .. } => Some(*dst),
        _ => None,
    }
}

/// The parameter whose memory contains a tensor, on this PE or others.
fn parameter(k: &Kernel, mut v: Value) -> Option<u32> {
    loop {
        match k.op(v).view() {
            Some(
                View::Part { base, .. }
                | View::Distributed { base, .. }
                | View::InCta { base, .. }
                | View::Multicast { base, .. }
                | View::Peer { base, .. },
            ) => v = *base,
            Some(View::Shared { .. } | View::Index { .. }) => return None,
            None => break,
        }
    }
    let Some(Var::Param { index }) = k.op(v).var() else { return None };
    Some(*index)
}

fn space(ty: &Type) -> Option<Space> {
    match ty {
        Type::Tensor(t) => Some(t.space),
        _ => None,
    }
}

struct Fences<'a> {
    b: Builder,
    facts: Facts,
    report: &'a mut Report,
}

impl Fences<'_> {
    /// Rewrites a block. `open` says whether the CTA has learned of writes and executed no fence
    /// since then.
    fn block(&mut self, block: Block, open: &mut bool) -> Built<Block> {
        self.b.open();
        for v in block.0 {
            if let Err(d) = self.op(v, open) {
                self.b.close();
                return Err(d);
            }
            self.b.push(v);
        }
        Ok(self.b.close())
    }

    fn op(&mut self, v: Value, open: &mut bool) -> Built<()> {
        let (k, facts) = (self.b.kernel(), &self.facts);
        let copies = facts.any(k, v, Facts::touches);
        let learns = facts.any(k, v, Facts::learns);
        // Each role begins its own copies.
        let role = matches!(k.op(v).control(), Some(Control::Role { .. }));
        if copies && !role && std::mem::take(open) {
            let span = k.insts[v].span;
            let why = Fact::Fence("orders writes of other threads before copies of the same memory");
            self.report.tile(&k.name, span, why);
            self.b.at(span);
            by_first(&mut self.b, |b| b.emit(Async::ProxyFence { global: true }).map(drop))?;
        }
        let at_start = *open;
        *open |= learns;
        let op = self.b.kernel().op(v);
        if !copies || op.blocks().is_empty() {
            return Ok(());
        }
        // A round follows a previous round that may have learned something.
        let repeats = matches!(op.control(), Some(Control::For { .. } | Control::While { .. }));
        let mut op = op.clone();
        let mut after = false;
        for block in op.blocks_mut() {
            let mut inner = at_start || learns && repeats;
            *block = self.block(std::mem::take(block), &mut inner)?;
            after |= inner;
        }
        *open = after || learns && repeats || role && at_start;
        self.b.kernel_mut().insts[v].op = op;
        Ok(())
    }
}
