//! The ops of the tensor level, and the bridge from tensors to addresses that lowering needs.

use super::Spread::{Operands, Rule, Same, Threads};
use super::{Family, here, there};
use crate::kernel::{TeamRef, Value};
use crate::names::{AmoOp, CmpOp, Group, MoveKind, RedOp, Scalar, Scope, Sem, SignalKind, Space, WaitFor};
use std::sync::Arc;
use weft_layout::Int;

pub(super) const LOADS: &[Sem] = &[Sem::Weak, Sem::Relaxed, Sem::Acquire];
pub(super) const STORES: &[Sem] = &[Sem::Weak, Sem::Relaxed, Sem::Release];
pub(super) const REDUCTIONS: &[Sem] = &[Sem::Relaxed, Sem::Release];
pub(super) const ATOMICS: &[Sem] = &[Sem::Relaxed, Sem::Acquire, Sem::Release, Sem::AcqRel];

/// How what a load reads differs between threads. A plain load of a place that others write is a race. An acquire waits
/// for others, and threads that acquire one place at different times read different values of it. So does a relaxed load
/// in a loop that polls, and uniformity knows whether it is in one.
pub(super) fn of_read(sem: Sem) -> super::Spread {
    match sem {
        Sem::Weak => Operands,
        Sem::Relaxed => Rule,
        Sem::Acquire | Sem::Release | Sem::AcqRel | Sem::SeqCst => Threads,
    }
}

/// The name of a function that has a non-blocking form and forms for groups: `put_nbi<block>`.
fn of_group(name: &str, nbi: bool, group: Group) -> String {
    let words = if group == Group::Thread { String::new() } else { format!("<{group}>") };
    format!("{name}{}{words}", if nbi { "_nbi" } else { "" })
}

/// The name of a wait: `wait_until`, `test_any`.
fn wait_name(test: bool, which: WaitFor) -> String {
    let verb = if test { "test" } else { "wait_until" };
    if which == WaitFor::One { verb.into() } else { format!("{verb}_{which}") }
}

/// The name of a barrier of NVSHMEM: `sync_all<block>`.
fn sync_name(barrier: bool, team: TeamRef, group: Group) -> String {
    let verb = if barrier { "barrier" } else { "sync" };
    of_group(&if team == TeamRef::WORLD { format!("{verb}_all") } else { verb.into() }, false, group)
}

family! {
    /// Views of tensors, and the symbolic integers that layouts are made of.
    View {
        /// A symbolic integer as a value (`i64`): extents, offsets, everything layouts are made of.
        pure Index = "index" {
            /// The expression; its variables are values of type `i64` or `i32`.
            expr: Int,
        }
        teams [], name "an index", spread Rule, result |t| t.scalar(Scalar::I64);
        /// A part of a tensor: the result's layout (and bounds), `offset` elements from the base's first.
        pure Part = "view" {
            /// Tensor.
            base: Value,
            /// Elements from the base's first element.
            offset: Int,
        }
        teams [], name "a view", spread Rule, result |t| t.view(*base);
        /// A part of a tile of two modes: what this thread holds of it where warpgroups share the tile out as they share
        /// out an accumulator. All threads of the CTA access such a view together.
        pure Dealt = "dealt" {
            /// The tile.
            base: Value,
            /// Elements from the tile's first element.
            offset: Int,
            /// Warpgroups that share out the rows, and the columns.
            over: Vec<u32>,
        }
        teams [], name "a view", spread Rule, result |t| t.dealt(*base, over);
        /// The same layout at the team's multicast address.
        pure Multicast = "multicast" {
            /// A symmetric tensor.
            base: Value,
            /// The team.
            team: TeamRef,
        }
        teams [team], name "multicast", spread Operands, result |t| t.symmetric(*base, Space::Multicast);
        /// The same layout in another PE's memory.
        pure Peer = "peer" {
            /// A symmetric tensor.
            base: Value,
            /// The team that ranks count in.
            team: TeamRef,
            /// Rank in the team (`i32`).
            pe: Value,
        }
        teams [team], name "peer", spread Operands, result |t| t.peer(*base, *pe);
        /// The same layout in the shared memory of another CTA of the cluster.
        pure InCta = "in_cta" {
            /// A tensor in the CTA's shared memory.
            base: Value,
            /// Rank of the CTA in the cluster (`i32`).
            cta: Value,
        }
        teams [], name "in_cta", spread Operands, result |t| t.in_cta(*base, *cta);
        /// A tensor in the CTA's shared memory, allocated for the whole kernel, uninitialised.
        pure Shared = "shared_alloc" {
            /// Its name in the text; may be empty.
            name: Arc<str>,
        }
        teams [], name "shared", spread Operands, result |t| t.shared();
    }
}

family! {
    /// Ranks, and barriers of a team.
    Team {
        /// This PE's rank in a team. Result: `i32`.
        pure MyPe = "my_pe" {
            /// The team.
            team: TeamRef,
        }
        teams [team], name "my_pe", spread Operands, result |t| t.scalar(Scalar::I32);
        /// PEs of a team. Result: `i32`.
        pure NPes = "n_pes" {
            /// The team.
            team: TeamRef,
        }
        teams [team], name "n_pes", spread Operands, result |t| t.scalar(Scalar::I32);
        /// Waits for the CTAs of the same index on every PE of the team. Epoch-counted: nothing is reset,
        /// launches may follow each other. `release` arrives, `acquire` waits, `acq_rel` both in order.
        effect Barrier = "team_barrier" {
            /// The counters.
            sync: Value,
            /// The team.
            team: TeamRef,
            /// Order.
            sem: Sem,
            /// Who must agree.
            scope: Scope,
        }
        reads [], writes [], order Some((*sem, ATOMICS)), group Some(Group::Block),
        teams [team], name "barrier", spread Operands, result |t| t.team_barrier(*sync);
    }
}

family! {
    /// Accesses to the elements of a tensor.
    Access {
        /// Reads a tensor's elements, in coordinate order (mode 0 fastest); those out of bounds read as 0.
        effect Load = "load" {
            /// Tensor.
            place: Value,
            /// `weak`, `relaxed` or `acquire`.
            sem: Sem,
            /// Scope of a strong access.
            scope: Scope,
        }
        reads [here(place)], writes [], order Some((*sem, LOADS)), group None,
        teams [], name "load", spread of_read(*sem), result |t| t.load(*place);
        /// Writes a tensor's elements, in coordinate order; those out of bounds are left alone.
        effect Store = "store" {
            /// Tensor.
            place: Value,
            /// One lane an element.
            value: Value,
            /// `weak`, `relaxed` or `release`.
            sem: Sem,
            /// Scope of a strong access.
            scope: Scope,
        }
        reads [], writes [here(place)], order Some((*sem, STORES)), group None,
        teams [], name "store", spread Operands, result |t| t.store(*place, *value, false);
        /// `multimem.ld_reduce`: the reduction over the team of every PE's element (PTX ISA, multimem).
        effect LdReduce = "ld_reduce" {
            /// Tensor in multicast space.
            place: Value,
            /// Reduction.
            op: RedOp,
            /// Precision it is summed in: the element's own type, or a wider one.
            acc: Scalar,
            /// `weak`, `relaxed` or `acquire`.
            sem: Sem,
            /// Scope of a strong access.
            scope: Scope,
        }
        reads [here(place)], writes [], order Some((*sem, LOADS)), group None,
        teams [], name "ld_reduce", spread of_read(*sem), result |t| t.ld_reduce(*place, *op, *acc);
        /// `multimem.st`: the value to every PE of the team.
        effect McStore = "mc_store" {
            /// Tensor in multicast space.
            place: Value,
            /// One lane an element.
            value: Value,
            /// `weak`, `relaxed` or `release`.
            sem: Sem,
            /// Scope of a strong access.
            scope: Scope,
        }
        reads [], writes [here(place)], order Some((*sem, STORES)), group None,
        teams [], name "st", spread Operands, result |t| t.store(*place, *value, true);
        /// `multimem.red`: reduces the value into every PE's element, atomically.
        effect McRed = "mc_red" {
            /// Tensor in multicast space.
            place: Value,
            /// One lane an element.
            value: Value,
            /// Reduction.
            op: RedOp,
            /// `relaxed` or `release`.
            sem: Sem,
            /// Who must agree.
            scope: Scope,
        }
        reads [here(place)], writes [here(place)], order Some((*sem, REDUCTIONS)), group None,
        teams [], name "red", spread Operands, result |t| t.reduce_into(*place, *value, *op, true);
        /// Atomic read-modify-write of each element, without the old value.
        effect Red = "red" {
            /// Tensor.
            place: Value,
            /// One lane an element.
            value: Value,
            /// Reduction.
            op: RedOp,
            /// `relaxed` or `release`.
            sem: Sem,
            /// Who must agree.
            scope: Scope,
        }
        reads [here(place)], writes [here(place)], order Some((*sem, REDUCTIONS)), group None,
        teams [], name "red", spread Operands, result |t| t.reduce_into(*place, *value, *op, false);
        /// Atomic read-modify-write of one element. Result: the old value.
        effect Atomic = "atomic" {
            /// Tensor of one element.
            place: Value,
            /// Operand.
            value: Value,
            /// Reduction; none exchanges.
            op: Option<RedOp>,
            /// Order.
            sem: Sem,
            /// Who must agree.
            scope: Scope,
        }
        reads [here(place)], writes [here(place)], order Some((*sem, ATOMICS)), group None,
        teams [], name "atomic", spread Threads, result |t| t.atomic(*place, *value, *op);
        /// Atomic compare and swap of one element. Result: the old value.
        effect AtomicCas = "atomic_cas" {
            /// Tensor of one element.
            place: Value,
            /// Compared with.
            expected: Value,
            /// Stored if equal.
            value: Value,
            /// Order.
            sem: Sem,
            /// Who must agree.
            scope: Scope,
        }
        reads [here(place)], writes [here(place)], order Some((*sem, ATOMICS)), group None,
        teams [], name "atomic_cas", spread Threads, result |t| t.compare_and_swap(*place, *expected, *value);
    }
}

impl Access {
    /// The tensor that is accessed.
    pub fn place(&self) -> Value {
        match *self {
            Access::Load { place, .. }
            | Access::Store { place, .. }
            | Access::LdReduce { place, .. }
            | Access::McStore { place, .. }
            | Access::McRed { place, .. }
            | Access::Red { place, .. }
            | Access::Atomic { place, .. }
            | Access::AtomicCas { place, .. } => place,
        }
    }

    /// The value that is stored or combined, if there is one.
    pub fn value(&self) -> Option<Value> {
        match *self {
            Access::Load { .. } | Access::LdReduce { .. } => None,
            Access::Store { value, .. }
            | Access::McStore { value, .. }
            | Access::McRed { value, .. }
            | Access::Red { value, .. }
            | Access::Atomic { value, .. }
            | Access::AtomicCas { value, .. } => Some(value),
        }
    }

    /// The memory order and the scope of the access.
    pub fn ordering(&self) -> (Sem, Scope) {
        match *self {
            Access::Load { sem, scope, .. }
            | Access::Store { sem, scope, .. }
            | Access::LdReduce { sem, scope, .. }
            | Access::McStore { sem, scope, .. }
            | Access::McRed { sem, scope, .. }
            | Access::Red { sem, scope, .. }
            | Access::Atomic { sem, scope, .. }
            | Access::AtomicCas { sem, scope, .. } => (sem, scope),
        }
    }

    /// The reduction that it does in memory or in the switch, if it does one.
    pub fn reduction(&self) -> Option<RedOp> {
        match *self {
            Access::LdReduce { op, .. } | Access::McRed { op, .. } | Access::Red { op, .. } => Some(op),
            Access::Atomic { op, .. } => op,
            Access::Load { .. }
            | Access::Store { .. }
            | Access::McStore { .. }
            | Access::AtomicCas { .. } => None,
        }
    }

    /// Whether the switch carries it out.
    pub fn in_switch(&self) -> bool {
        matches!(self, Access::LdReduce { .. } | Access::McStore { .. } | Access::McRed { .. })
    }

    /// The same access to another tensor, with another value if it has one.
    #[must_use]
    pub fn moved(&self, to: Value, new: Option<Value>) -> Access {
        let mut access = self.clone();
        match &mut access {
            Access::Load { place, .. } | Access::LdReduce { place, .. } => *place = to,
            Access::Store { place, value, .. }
            | Access::McStore { place, value, .. }
            | Access::McRed { place, value, .. }
            | Access::Red { place, value, .. }
            | Access::Atomic { place, value, .. }
            | Access::AtomicCas { place, value, .. } => {
                *place = to;
                *value = new.unwrap_or(*value);
            }
        }
        access
    }
}

family! {
    /// Operations that threads of a CTA carry out together with values and tensors.
    Together {
        /// Does nothing, where every thread of the group must come: a tensor dealt out over them is accessed here.
        effect Converge = "converge" {
            /// The threads.
            group: Group,
        }
        reads [], writes [], order None, group Some(*group),
        teams [], name format!("an access to a tensor that the {group} shares out"), spread Operands, result |t| t.unit();
        /// Reduces each lane over the threads of the group; all get the result. Order: a tree fixed by the thread index.
        effect Reduce = "reduce" {
            /// Operand.
            value: Value,
            /// Reduction.
            op: RedOp,
            /// The threads.
            group: Group,
        }
        reads [], writes [], order None, group Some(*group),
        teams [], name format!("a reduction over the {group}"), spread Rule, result |t| t.reduce(*value, *op);
    }
}

family! {
    /// Tiles that move asynchronously between a tensor and shared memory (TMA), and the pipelines that hand the stages of
    /// shared memory from those who fill them to those who read them.
    Tile {
        /// A full and an empty barrier for each stage.
        pure Pipeline = "pipeline" {
            /// Stages.
            stages: u32,
        }
        teams [], name "pipeline", spread Operands, result |t| t.pipeline(*stages);
        /// Waits for the next empty stage, and arms it with the bytes of the copies that name the pipeline up to the next
        /// acquire. Result: the stage (`i32`).
        effect Acquire = "producer_acquire" {
            /// The pipeline.
            pipe: Value,
        }
        reads [], writes [], order None, group Some(Group::Block),
        teams [], name "producer_acquire", spread Same, result |t| t.stage_of(*pipe, Scalar::I32);
        /// Says that the threads have written the oldest stage that they acquired and did not say so of: together with the
        /// bytes of its copies, if there are any, that makes it full.
        effect Commit = "producer_commit" {
            /// The pipeline.
            pipe: Value,
        }
        reads [], writes [], order None, group Some(Group::Block),
        teams [], name "producer_commit", spread Operands, result |t| t.pipe_user(*pipe);
        /// Waits for the next full stage. Result: the stage (`i32`).
        effect Await = "consumer_wait" {
            /// The pipeline.
            pipe: Value,
        }
        reads [], writes [], order None, group Some(Group::Block),
        teams [], name "consumer_wait", spread Same, result |t| t.stage_of(*pipe, Scalar::I32);
        /// Gives the oldest stage that was waited for back to those who fill it.
        effect Release = "consumer_release" {
            /// The pipeline.
            pipe: Value,
        }
        reads [], writes [], order None, group Some(Group::Block),
        teams [], name "consumer_release", spread Operands, result |t| t.pipe_user(*pipe);
        /// Goes past stages that another role waits for and gives back. All that were waited for before have been given
        /// back.
        effect Skip = "consumer_skip" {
            /// The pipeline.
            pipe: Value,
            /// Stages (`i64`), at least 0.
            stages: Value,
        }
        reads [], writes [], order None, group Some(Group::Block),
        teams [], name "consumer_skip", spread Same, result |t| t.pipe_skip(*pipe, *stages);
        /// Begins to copy a tile of a tensor to the stage that was acquired last. What lies beyond the tensor reads as 0.
        effect TmaLoad = "tma_load" {
            /// Tensor in shared memory.
            dst: Value,
            /// Tile of a parameter's tensor, of the same shape.
            src: Value,
            /// The pipeline.
            pipe: Value,
            /// Whose shared memory gets the tile, at the same place in each: that of this CTA and of those of the cluster
            /// that differ from it only in these dimensions, as bits (x is 1, y is 2, z is 4).
            dims: u32,
            /// Coordinates of the tile's first element in the modes of the parameter's layout (`i64`).
            at: Vec<Value>,
            /// For each mode of the parameter's layout, 1 + the mode of the tile that runs along it; 0 for none.
            along: Vec<u32>,
        }
        reads [here(src)], writes [here(dst)], order None, group Some(Group::Block),
        teams [], name "tma", spread Operands, result |t| t.tma_load(*dst, *src, *pipe, *dims, at, along);
        /// Begins to copy a tile from shared memory into a tensor, or to reduce it into the tensor. What lies beyond the
        /// tensor is not written.
        effect TmaStore = "tma_store" {
            /// Tile of a parameter's tensor.
            dst: Value,
            /// Tensor in shared memory, of the same shape.
            src: Value,
            /// Reduction; none overwrites.
            op: Option<RedOp>,
            /// Coordinates of the tile's first element in the modes of the parameter's layout (`i64`).
            at: Vec<Value>,
            /// For each mode of the parameter's layout, 1 + the mode of the tile that runs along it; 0 for none.
            along: Vec<u32>,
        }
        reads [here(src)], writes [here(dst)], order None, group Some(Group::Block),
        teams [], name if op.is_some() { "tma_red" } else { "tma" }, spread Operands, result |t| t.tma_reduction(*op).and_then(|()| t.tma_store(*dst, *src, at, along));
        /// Stands for a copy out of shared memory that threads have made, so that waits count it as one.
        effect TmaInstead = "tma_instead" {
        }
        reads [], writes [], order None, group Some(Group::Block),
        teams [], name "tma", spread Operands, result |t| t.unit();
        /// Begins to copy consecutive bytes of a tensor to the stage that was acquired last.
        effect BulkLoad = "bulk_load" {
            /// Tensor in shared memory.
            dst: Value,
            /// A tensor of as many elements, which follow each other in memory.
            src: Value,
            /// The pipeline.
            pipe: Value,
            /// Whose shared memory gets them, as for a tile.
            dims: u32,
        }
        reads [here(src)], writes [here(dst)], order None, group Some(Group::Block),
        teams [], name "bulk", spread Operands, result |t| t.bulk_load(*dst, *src, *pipe, *dims);
        /// Begins to copy consecutive bytes of shared memory to a tensor, on all PEs if it is multicast, or to reduce them
        /// into it. Where the tensor is in the shared memory of another CTA, they arrive on that CTA's pipeline.
        effect BulkStore = "bulk_store" {
            /// A tensor of as many elements, which follow each other in memory.
            dst: Value,
            /// Tensor in shared memory.
            src: Value,
            /// Reduction; none overwrites.
            op: Option<RedOp>,
            /// The pipeline, of a copy to another CTA.
            pipe: Option<Value>,
        }
        reads [here(src)], writes [here(dst)], order None, group Some(Group::Block),
        teams [], name if op.is_some() { "bulk_red" } else { "bulk" }, spread Operands, result |t| t.tma_reduction(*op).and_then(|()| t.bulk_store(*dst, *src, *pipe));
        /// Waits until all but the newest copies out of shared memory have read their source, or are done.
        effect TmaWait = "tma_wait" {
            /// Copies that may be under way.
            pending: u32,
            /// Whether it is enough that they have read.
            read: bool,
        }
        reads [], writes [], order None, group Some(Group::Block),
        teams [], name "tma_wait", spread Operands, result |t| t.unit();
        /// A tile of zeros that matrix products are added to. Result: the given type.
        effect Accumulator = "accumulator" {
        }
        reads [], writes [], order None, group Some(Group::Block),
        teams [], name "accumulator", spread Threads, result |t| t.accumulator();
        /// Begins `acc + a * transpose(b)`. Result: the accumulator, which is in flight.
        effect Mma = "mma" {
            /// Tile of modes (M, K) in shared memory, or the elements that the thread holds of one that is dealt out as the
            /// columns of an accumulator are.
            a: Value,
            /// Tile of modes (N, K) in shared memory.
            b: Value,
            /// The accumulator, M x N.
            acc: Value,
        }
        reads [here(a), here(b)], writes [], order None, group Some(Group::Block),
        teams [], name "mma", spread Threads, result |t| t.mma(*a, *b, *acc);
        /// Waits until all but the newest products are done. Result: the accumulator.
        effect MmaWait = "mma_wait" {
            /// The accumulator.
            acc: Value,
            /// Products that may be under way.
            pending: u32,
        }
        reads [], writes [], order None, group Some(Group::Block),
        teams [], name "mma_wait", spread Threads, result |t| t.mma_wait(*acc);
        /// An accumulator that begins with elements in registers. Result: the given type.
        effect AccumulatorOf = "accumulator_of" {
            /// The elements that the thread holds of the tile.
            value: Value,
        }
        reads [], writes [], order None, group Some(Group::Block),
        teams [], name "accumulator", spread Threads, result |t| t.accumulator_of(*value);
        /// Columns of an accumulator of which no product is under way. Result: the elements that the thread holds.
        effect AccumulatorRead = "accumulator_read" {
            /// The accumulator.
            acc: Value,
            /// First column.
            first: u32,
            /// Columns.
            cols: u32,
        }
        reads [], writes [], order None, group None,
        teams [], name "an accumulator's columns", spread Threads, result |t| t.accumulator_read(*acc, *first, *cols);
    }
}

family! {
    /// NVSHMEM's operations on other PEs' memory. Ranks count in `team`.
    Remote {
        /// Copies a local tensor to another PE's part of a symmetric one. At return the source may be reused, unless it
        /// is `nbi` (non-blocking); the data has arrived after a `quiet` or barrier.
        effect Put = "put" {
            /// Symmetric tensor: its place on the other PE is written.
            dst: Value,
            /// Tensor of this PE.
            src: Value,
            /// Rank in the team (`i32`).
            pe: Value,
            /// The team that ranks count in.
            team: TeamRef,
            /// Returns before the source is read; a `quiet` waits for it.
            nbi: bool,
            /// Threads that do it together, with the same arguments.
            group: Group,
        }
        reads [here(src)], writes [there(dst)], order None, group Some(*group),
        teams [team], name of_group("put", *nbi, *group), spread Threads, result |t| t.remote().put(*dst, *src, *pe);
        /// Copies another PE's part of a symmetric tensor to a local one. The data is there at return, unless it is `nbi`.
        effect Get = "get" {
            /// Tensor of this PE.
            dst: Value,
            /// Symmetric tensor: its place on the other PE is read.
            src: Value,
            /// Rank in the team (`i32`).
            pe: Value,
            /// The team that ranks count in.
            team: TeamRef,
            /// Returns before the data is there; a `quiet` waits for it.
            nbi: bool,
            /// Threads that do it together, with the same arguments.
            group: Group,
        }
        reads [there(src)], writes [here(dst)], order None, group Some(*group),
        teams [team], name of_group("get", *nbi, *group), spread Threads, result |t| t.remote().get(*dst, *src, *pe);
        /// `put`, and after the data is there, an update of a signal on that PE.
        effect PutSignal = "put_signal" {
            /// Symmetric tensor: its place on the other PE is written.
            dst: Value,
            /// Tensor of this PE.
            src: Value,
            /// Symmetric `u64`.
            signal: Value,
            /// How the signal is updated.
            op: SignalKind,
            /// The operand of the update (`u64`).
            value: Value,
            /// Rank in the team (`i32`).
            pe: Value,
            /// The team that ranks count in.
            team: TeamRef,
            /// Returns before the source is read; a `quiet` waits for it.
            nbi: bool,
            /// Threads that do it together, with the same arguments.
            group: Group,
        }
        reads [here(src)], writes [there(dst), there(signal)], order None, group Some(*group),
        teams [team], name of_group("put_signal", *nbi, *group), spread Threads, result |t| t.remote().put_signal([*dst, *src, *signal], *value, *pe);
        /// Writes one element on another PE.
        effect PutValue = "p" {
            /// Symmetric tensor of one element.
            dst: Value,
            /// Value of its element type.
            value: Value,
            /// Rank in the team (`i32`).
            pe: Value,
            /// The team that ranks count in.
            team: TeamRef,
        }
        reads [], writes [there(dst)], order None, group None,
        teams [team], name "p", spread Threads, result |t| t.remote().put_value(*dst, *value, *pe);
        /// Reads one element of another PE. Result: the element.
        effect GetValue = "g" {
            /// Symmetric tensor of one element.
            src: Value,
            /// Rank in the team (`i32`).
            pe: Value,
            /// The team that ranks count in.
            team: TeamRef,
        }
        reads [there(src)], writes [], order None, group None,
        teams [team], name "g", spread Threads, result |t| t.remote().get_value(*src, *pe);
        /// Updates a signal on another PE.
        effect SignalOp = "signal_op" {
            /// Symmetric `u64`.
            signal: Value,
            /// How the signal is updated.
            op: SignalKind,
            /// The operand of the update (`u64`).
            value: Value,
            /// Rank in the team (`i32`).
            pe: Value,
            /// The team that ranks count in.
            team: TeamRef,
        }
        reads [there(signal)], writes [there(signal)], order None, group None,
        teams [team], name "signal_op", spread Threads, result |t| t.remote().signal_op(*signal, *value, *pe);
        /// Waits until this PE's signal compares true with a value. Result: the signal's value (`u64`).
        effect SignalWait = "signal_wait_until" {
            /// Symmetric `u64`.
            signal: Value,
            /// Comparison, the signal on the left.
            cmp: CmpOp,
            /// Compared with (`u64`).
            value: Value,
        }
        reads [here(signal)], writes [], order None, group None,
        teams [], name "signal_wait_until", spread Threads, result |t| t.remote().signal_wait(*signal, *value);
        /// This PE's signal. Result: `u64`.
        effect SignalFetch = "signal_fetch" {
            /// Symmetric `u64`.
            signal: Value,
        }
        reads [here(signal)], writes [], order None, group None,
        teams [], name "signal_fetch", spread Threads, result |t| t.remote().signal_fetch(*signal);
        /// Waits, or tests, until variables of this PE compare true with values. Result: of `one` and `all` nothing, or
        /// `bool` for a test; of `any` the index of one that does (`i64`, -1 for none); of `some` how many do (`i64`).
        effect Wait = "wait" {
            /// Symmetric tensor; of one element for `one`.
            vars: Value,
            /// Comparison, the variable on the left.
            cmp: CmpOp,
            /// One value, or a tensor of one for each variable.
            value: Value,
            /// Which of them must compare true.
            which: WaitFor,
            /// Looks once and does not wait.
            test: bool,
            /// A tensor of `i32`, if there is one: where it is not 0 the variable is left out.
            status: Option<Value>,
            /// For `some`: a tensor of `u64` that gets the indices of those that do.
            indices: Option<Value>,
        }
        reads [here(vars), status.as_ref().and_then(here)], writes [indices.as_ref().and_then(here)], order None, group None,
        teams [], name wait_name(*test, *which), spread Threads, result |t| t.remote().wait(*vars, *value, (*which, *test), *status, *indices);
        /// Atomic operation on one element of another PE. Result: the old value of those that fetch.
        effect Amo = "amo" {
            /// Symmetric tensor of one element.
            target: Value,
            /// The operation.
            op: AmoOp,
            /// `compare_swap`: what is compared, what is stored; else one value, or none for fetch and inc.
            operands: Vec<Value>,
            /// Rank in the team (`i32`).
            pe: Value,
            /// The team that ranks count in.
            team: TeamRef,
        }
        reads [there(target)], writes [there(target)], order None, group None,
        teams [team], name format!("atomic_{op}"), spread Threads, result |t| t.remote().amo(*target, *op, operands, *pe);
        /// Orders this PE's puts, signals and atomics to each PE before later ones to the same PE.
        effect RmaFence = "rma_fence" {
        }
        reads [], writes [], order None, group None,
        teams [], name "rma_fence", spread Threads, result |t| t.unit();
        /// Waits until all puts, gets, signals and atomics of this PE are done, those of other PEs' memory included.
        effect Quiet = "quiet" {
        }
        reads [], writes [], order None, group None,
        teams [], name "quiet", spread Threads, result |t| t.unit();
        /// Waits for the same call on all PEs of the team; a barrier is a quiet first.
        effect TeamSync = "team_sync" {
            /// The team.
            team: TeamRef,
            /// Completes remote memory operations, too.
            barrier: bool,
            /// Threads of each PE that come together.
            group: Group,
        }
        reads [], writes [], order None, group Some(*group),
        teams [team], name sync_name(*barrier, *team, *group), spread Threads, result |t| t.unit();
        /// Reduces a tensor over the PEs of a team; all get all of it, or with `scatter` each its part.
        effect TeamReduce = "team_reduce" {
            /// Symmetric tensor: the result.
            dst: Value,
            /// Symmetric tensor; for `scatter`, a part for each PE, in rank order.
            src: Value,
            /// Reduction.
            op: RedOp,
            /// Each PE gets its part only.
            scatter: bool,
            /// The team.
            team: TeamRef,
            /// Threads of each PE that do it together.
            group: Group,
        }
        reads [here(src)], writes [here(dst)], order None, group Some(*group),
        teams [team], name of_group(if *scatter { "reducescatter" } else { "reduce" }, false, *group), spread Threads, result |t| t.remote().team_reduce(*dst, *src, *op, *scatter);
        /// Exchanges tensors among the PEs of a team.
        effect TeamMove = "team_move" {
            /// The exchange.
            kind: MoveKind,
            /// Symmetric tensor: the result.
            dst: Value,
            /// Symmetric tensor.
            src: Value,
            /// For `broadcast`: rank of the PE whose tensor it is (`i32`).
            root: Option<Value>,
            /// The team.
            team: TeamRef,
            /// Threads of each PE that do it together.
            group: Group,
        }
        reads [here(src)], writes [here(dst)], order None, group Some(*group),
        teams [team], name of_group(kind.name(), false, *group), spread Threads, result |t| t.remote().team_move(*dst, *src, *root);
        /// The rank that a PE of one team has in another; -1 where it is not in it. Result: `i32`.
        pure TranslatePe = "translate_pe" {
            /// Rank in `from` (`i32`).
            pe: Value,
            /// Its team.
            from: TeamRef,
            /// The other team.
            to: TeamRef,
        }
        teams [from, to], name "translate_pe", spread Operands, result |t| t.remote().translate_pe(*pe);
    }
}

impl Remote {
    /// Whether threads of a group call it together, with the same arguments.
    pub fn is_collective(&self) -> bool {
        self.group().is_some()
    }

    /// Whether earlier operations are done, or their signal has come, once it returns.
    pub fn completes(&self) -> bool {
        matches!(
            self,
            Remote::Quiet {}
                | Remote::TeamSync { barrier: true, .. }
                | Remote::SignalWait { .. }
                | Remote::Wait { .. }
        )
    }
}

family! {
    /// The way from tensors to addresses, in kernels that passes lower.
    Bridge {
        /// The address of a tensor's first element, or of a barrier's counters.
        pure AddressOf = "address_of" {
            /// Tensor or barrier.
            base: Value,
        }
        teams [], name "an address", spread Operands, result |t| t.address_of(*base);
    }
}
