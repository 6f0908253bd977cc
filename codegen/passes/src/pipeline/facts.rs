//! What a kernel's pipelines are used for: the copies, roles and threads that fill, read and release
//! their stages.

use super::*;

/// The properties of the kernel's pipelines.
#[derive(Default)]
pub(super) struct Facts {
    pub(super) any: bool,
    /// All pipelines with their numbers of stages.
    pub(super) pipelines: Vec<(Value, u32)>,
    /// The allocations that copies fill, and those that copies read.
    pub(super) filled: Vec<Value>,
    pub(super) drained: Vec<Value>,
    /// For each pipeline, the allocations filled by copies that arrive on it.
    pub(super) stages: FxHashMap<Value, Vec<Value>>,
    /// The allocations that matrix products read.
    pub(super) multiplied: Vec<Value>,
    /// The bytes that arrive in the stage of each acquire.
    pub(super) bytes: FxHashMap<Value, u32>,
    /// For each pipeline, the numbers of warps of the roles that release its stages.
    pub(super) warps: FxHashMap<Value, Vec<u32>>,
    /// The number of warps that write stages of each pipeline.
    pub(super) writers: FxHashMap<Value, u32>,
    /// The pipelines on which copies arrive.
    pub(super) copied: Vec<Value>,
    /// The pipelines for whose stages roles wait in turns.
    pub(super) turns: Vec<Value>,
    /// The pipelines whose stages other CTAs of the cluster also fill. For each kind of copy, the
    /// value has the dimensions in which these CTAs differ from this one, as bits.
    pub(super) shared: FxHashMap<Value, Vec<u32>>,
    /// The acquires for which all lanes of a warp wait: those of a single warp that waits for nothing
    /// else in between. If thread 0 waits alone, ptxas lets it yield to the other lanes with every poll
    /// (YIELD), so that the copies begin later. In roles that also wait for full stages, lanes diverge,
    /// and the barrier that precedes a wait of all lanes is slow (BRA.DIV).
    pub(super) by_warp: Vec<Value>,
    /// The acquire whose stage each copy fills.
    pub(super) acquires: FxHashMap<Value, Value>,
    /// The allocations that copies fill and threads read, and those that threads write and copies
    /// or matrix products read.
    pub(super) read: Vec<Value>,
    pub(super) written: Vec<Value>,
}

impl Facts {
    /// Adds up the bytes of the copies after each acquire of a block.
    pub(super) fn block(&mut self, k: &Kernel, block: &Block) {
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
    pub(super) fn users(&mut self, k: &Kernel, block: &Block, threads: u32) {
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
    pub(super) fn writes(&self, pipe: Value) -> (u32, bool) {
        let writers = self.writers.get(&pipe).copied().unwrap_or(0);
        (writers, writers == 0 || self.copied.contains(&pipe))
    }

    /// Whether one of these allocations holds stages of a pipeline. A pipeline without copies may
    /// stand for any stage that copies fill.
    pub(super) fn hold(&self, among: &[Value], pipe: Value) -> bool {
        self.stages.get(&pipe).unwrap_or(&self.filled).iter().any(|v| among.contains(v))
    }

    /// The number of arrivals that empty a stage of a pipeline: those of all roles that release
    /// stages, or those of one role if they take turns.
    pub(super) fn arrivals(&self, pipe: Value, span: Span) -> Built<u32> {
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
    pub(super) fn memory(&mut self, k: &Kernel, has_warpgroups: bool) {
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
    pub(super) fn align(&self, k: &mut Kernel) {
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
    pub(super) fn unarmed(&self, k: &Kernel) -> Vec<Diagnostic> {
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
pub(super) fn allocation(k: &Kernel, mut v: Value) -> Option<Value> {
    loop {
        match k.op(v).view()? {
            View::Part { base, .. } | View::Distributed { base, .. } | View::InCta { base, .. } => v = *base,
            View::Shared { .. } => return Some(v),
            View::Index { .. } | View::Multicast { .. } | View::Peer { .. } => return None,
        }
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
