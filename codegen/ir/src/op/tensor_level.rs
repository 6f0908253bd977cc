//! The ops of the tensor level, and the ops that lowering needs to get from tensors to addresses.

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

/// How the result of a load differs between threads. A plain load of an element that others write
/// meanwhile is a race, so its result is uniform. Threads that acquire one element at different
/// times can read different values, and so can relaxed loads in a loop that polls. The uniformity
/// analysis finds such loops.
pub(super) fn of_read(sem: Sem) -> super::Spread {
    match sem {
        Sem::Weak => Operands,
        Sem::Relaxed => Rule,
        Sem::Acquire | Sem::Release | Sem::AcqRel | Sem::SeqCst => Threads,
    }
}

/// The name of a function with a non-blocking variant and variants for groups: `put_nbi<block>`.
fn of_group(name: &str, nbi: bool, group: Group) -> String {
    let words = if group == Group::Thread { String::new() } else { format!("<{group}>") };
    format!("{name}{}{words}", if nbi { "_nbi" } else { "" })
}

/// The name of a wait, such as `wait_until` or `test_any`.
fn wait_name(test: bool, which: WaitFor) -> String {
    let verb = if test { "test" } else { "wait_until" };
    if which == WaitFor::One { verb.into() } else { format!("{verb}_{which}") }
}

/// The name of an NVSHMEM barrier, such as `sync_all<block>`.
fn sync_name(barrier: bool, team: TeamRef, group: Group) -> String {
    let verb = if barrier { "barrier" } else { "sync" };
    of_group(&if team == TeamRef::WORLD { format!("{verb}_all") } else { verb.into() }, false, group)
}

family! {
    /// Views of tensors, and the symbolic integers that layouts are made of.
    View {
        /// A symbolic integer as a value (`i64`), such as an extent or an offset.
        pure Index = "index" {
            /// The expression. Its variables are values of type `i64` or `i32`.
            expr: Int,
        }
        teams [], name "an index", spread Rule, result |t| t.scalar(Scalar::I64);
        /// A view of a part of a tensor. It has the result's layout (and bounds) and begins
        /// `offset` elements after the base's first.
        pure Part = "view" {
            /// The tensor that the view is a part of.
            base: Value,
            /// The offset from the base's first element, in elements.
            offset: Int,
        }
        teams [], name "a view", spread Rule, result |t| t.view(*base);
        /// The elements of a tile of two modes that this thread has if warpgroups divide the tile
        /// as they divide an accumulator. All threads of the CTA access such a view together.
        pure Distributed = "distributed" {
            /// The tile that is divided.
            base: Value,
            /// The offset from the tile's first element, in elements.
            offset: Int,
            /// The number of warpgroups that divide the rows, and of those that divide the columns.
            over: Vec<u32>,
        }
        teams [], name "a view", spread Rule, result |t| t.distributed(*base, over);
        /// The same layout at the team's multicast address.
        pure Multicast = "multicast" {
            /// The symmetric tensor.
            base: Value,
            /// The team.
            team: TeamRef,
        }
        teams [team], name "multicast", spread Operands, result |t| t.symmetric(*base, Space::Multicast);
        /// The same layout in another PE's memory.
        pure Peer = "peer" {
            /// The symmetric tensor.
            base: Value,
            /// The team to which ranks refer.
            team: TeamRef,
            /// The rank in the team (`i32`).
            pe: Value,
        }
        teams [team], name "peer", spread Operands, result |t| t.peer(*base, *pe);
        /// The same layout in the shared memory of another CTA of the cluster.
        pure InCta = "in_cta" {
            /// The tensor in the CTA's shared memory.
            base: Value,
            /// The rank of the CTA in the cluster (`i32`).
            cta: Value,
        }
        teams [], name "in_cta", spread Operands, result |t| t.in_cta(*base, *cta);
        /// Allocates a tensor in the CTA's shared memory for the whole kernel, uninitialised.
        pure Shared = "shared_alloc" {
            /// The name in the source text, which can be empty.
            name: Arc<str>,
        }
        teams [], name "shared", spread Operands, result |t| t.shared();
    }
}

family! {
    /// Ranks in a team, and barriers of a team.
    Team {
        /// This PE's rank in a team. Result: `i32`.
        pure MyPe = "my_pe" {
            /// The team.
            team: TeamRef,
        }
        teams [team], name "my_pe", spread Operands, result |t| t.scalar(Scalar::I32);
        /// The number of PEs of a team. Result: `i32`.
        pure NPes = "n_pes" {
            /// The team.
            team: TeamRef,
        }
        teams [team], name "n_pes", spread Operands, result |t| t.scalar(Scalar::I32);
        /// Waits for the CTAs of the same index on every PE of the team. The barrier counts epochs
        /// and is never reset, so launches can follow each other. `release` arrives, `acquire`
        /// waits, and `acq_rel` arrives and then waits.
        effect Barrier = "team_barrier" {
            /// The counters of the barrier.
            sync: Value,
            /// The team.
            team: TeamRef,
            /// The memory order.
            sem: Sem,
            /// The scope within which the order holds.
            scope: Scope,
        }
        reads [], writes [], order Some((*sem, ATOMICS)), group Some(Group::Block),
        teams [team], name "barrier", spread Operands, result |t| t.team_barrier(*sync);
    }
}

family! {
    /// Accesses to the elements of a tensor.
    Access {
        /// Reads a tensor's elements in coordinate order (mode 0 fastest), and 0 out of bounds.
        effect Load = "load" {
            /// The tensor that is read.
            place: Value,
            /// The memory order: `weak`, `relaxed` or `acquire`.
            sem: Sem,
            /// The scope of a strong access.
            scope: Scope,
        }
        reads [here(place)], writes [], order Some((*sem, LOADS)), group None,
        teams [], name "load", spread of_read(*sem), result |t| t.load(*place);
        /// Writes a tensor's elements in coordinate order. Elements out of bounds are not written.
        effect Store = "store" {
            /// The tensor that is written.
            place: Value,
            /// The value, with one lane per element.
            value: Value,
            /// The memory order: `weak`, `relaxed` or `release`.
            sem: Sem,
            /// The scope of a strong access.
            scope: Scope,
        }
        reads [], writes [here(place)], order Some((*sem, STORES)), group None,
        teams [], name "store", spread Operands, result |t| t.store(*place, *value, false);
        /// `multimem.ld_reduce`: the reduction over the team of every PE's element (PTX ISA, multimem).
        effect LdReduce = "ld_reduce" {
            /// The tensor in multicast space.
            place: Value,
            /// The reduction operation.
            op: RedOp,
            /// The type in which the switch accumulates: the element type or a wider one.
            acc: Scalar,
            /// The memory order: `weak`, `relaxed` or `acquire`.
            sem: Sem,
            /// The scope of a strong access.
            scope: Scope,
        }
        reads [here(place)], writes [], order Some((*sem, LOADS)), group None,
        teams [], name "ld_reduce", spread of_read(*sem), result |t| t.ld_reduce(*place, *op, *acc);
        /// `multimem.st`: writes the value to every PE of the team.
        effect McStore = "mc_store" {
            /// The tensor in multicast space.
            place: Value,
            /// The value, with one lane per element.
            value: Value,
            /// The memory order: `weak`, `relaxed` or `release`.
            sem: Sem,
            /// The scope of a strong access.
            scope: Scope,
        }
        reads [], writes [here(place)], order Some((*sem, STORES)), group None,
        teams [], name "st", spread Operands, result |t| t.store(*place, *value, true);
        /// `multimem.red`: reduces the value into every PE's element atomically.
        effect McRed = "mc_red" {
            /// The tensor in multicast space.
            place: Value,
            /// The value, with one lane per element.
            value: Value,
            /// The reduction operation.
            op: RedOp,
            /// The memory order: `relaxed` or `release`.
            sem: Sem,
            /// The scope within which the order holds.
            scope: Scope,
        }
        reads [here(place)], writes [here(place)], order Some((*sem, REDUCTIONS)), group None,
        teams [], name "red", spread Operands, result |t| t.reduce_into(*place, *value, *op, true);
        /// Atomic read-modify-write of each element that does not return the old value.
        effect Red = "red" {
            /// The tensor whose elements are updated.
            place: Value,
            /// The value, with one lane per element.
            value: Value,
            /// The reduction operation.
            op: RedOp,
            /// The memory order: `relaxed` or `release`.
            sem: Sem,
            /// The scope within which the order holds.
            scope: Scope,
        }
        reads [here(place)], writes [here(place)], order Some((*sem, REDUCTIONS)), group None,
        teams [], name "red", spread Operands, result |t| t.reduce_into(*place, *value, *op, false);
        /// Atomic read-modify-write of one element. Result: the old value.
        effect Atomic = "atomic" {
            /// The tensor, which has one element.
            place: Value,
            /// The operand of `op`, or the new value of an exchange.
            value: Value,
            /// The reduction operation. Without one, the value is exchanged.
            op: Option<RedOp>,
            /// The memory order.
            sem: Sem,
            /// The scope within which the order holds.
            scope: Scope,
        }
        reads [here(place)], writes [here(place)], order Some((*sem, ATOMICS)), group None,
        teams [], name "atomic", spread Threads, result |t| t.atomic(*place, *value, *op);
        /// Atomic compare and swap of one element. Result: the old value.
        effect AtomicCas = "atomic_cas" {
            /// The tensor, which has one element.
            place: Value,
            /// The value that the old value is compared with.
            expected: Value,
            /// The value that is stored if they are equal.
            value: Value,
            /// The memory order.
            sem: Sem,
            /// The scope within which the order holds.
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

    /// Whether the switch carries out the access.
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
    /// Operations that threads of a CTA execute together on values and tensors.
    Together {
        /// Has no effect, but every thread of the group must reach it: a tensor that is divided
        /// over the group is accessed here.
        effect Converge = "converge" {
            /// The threads of the group.
            group: Group,
        }
        reads [], writes [], order None, group Some(*group),
        teams [], name format!("an access to a tensor that is divided over the \
             {group}"), spread Operands, result |t| t.unit();
        /// Reduces each lane over the threads of the group. All threads get the result. The order
        /// is a tree that the thread index determines.
        effect Reduce = "reduce" {
            /// The scalar or vector of each thread that is reduced, lane by lane.
            value: Value,
            /// The reduction operation.
            op: RedOp,
            /// The threads of the group.
            group: Group,
        }
        reads [], writes [], order None, group Some(*group),
        teams [], name format!("a reduction over the {group}"), spread Rule, result |t| t.reduce(*value, *op);
    }
}

family! {
    /// Tiles that move asynchronously between a tensor and shared memory (TMA), and pipelines that
    /// pass the stages of shared memory from the roles that fill them to the roles that read them.
    Tile {
        /// A full and an empty barrier for each stage.
        pure Pipeline = "pipeline" {
            /// The number of stages.
            stages: u32,
        }
        teams [], name "pipeline", spread Operands, result |t| t.pipeline(*stages);
        /// Waits for the next empty stage, and makes it expect the bytes of the copies that name
        /// the pipeline before the next acquire. Result: the stage (`i32`).
        effect Acquire = "producer_acquire" {
            /// The pipeline.
            pipe: Value,
        }
        reads [], writes [], order None, group Some(Group::Block),
        teams [], name "producer_acquire", spread Same, result |t| t.stage_of(*pipe, Scalar::I32);
        /// States that the threads have written the oldest acquired stage that is not committed
        /// yet. Together with the bytes of its copies, if there are any, this makes the stage full.
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
        /// Returns the oldest stage that was waited for to the roles that fill it.
        effect Release = "consumer_release" {
            /// The pipeline.
            pipe: Value,
        }
        reads [], writes [], order None, group Some(Group::Block),
        teams [], name "consumer_release", spread Operands, result |t| t.pipe_user(*pipe);
        /// Skips stages that another role waits for and releases. All stages that were waited for
        /// before have been released.
        effect Skip = "consumer_skip" {
            /// The pipeline.
            pipe: Value,
            /// The number of stages (`i64`), at least 0.
            stages: Value,
        }
        reads [], writes [], order None, group Some(Group::Block),
        teams [], name "consumer_skip", spread Same, result |t| t.pipe_skip(*pipe, *stages);
        /// Begins to copy a tile of a tensor to the stage that was acquired last. Elements beyond
        /// the tensor read as 0.
        effect TmaLoad = "tma_load" {
            /// The tensor in shared memory.
            dst: Value,
            /// The tile of a parameter's tensor, with the same shape.
            src: Value,
            /// The pipeline.
            pipe: Value,
            /// The CTAs whose shared memory gets the tile, each at the same offset: this CTA and
            /// those of the cluster that differ from it only in these dimensions, as bits (x is 1,
            /// y is 2, z is 4).
            dims: u32,
            /// The coordinates of the tile's first element in the modes of the parameter's layout (`i64`).
            at: Vec<Value>,
            /// For each mode of the parameter's layout, 1 plus the mode of the tile that runs along it, or 0.
            along: Vec<u32>,
        }
        reads [here(src)], writes [here(dst)], order None, group Some(Group::Block),
        teams [], name "tma", spread Operands, result |t| t.tma_load(*dst, *src, *pipe, *dims, at, along);
        /// Begins to copy or reduce a tile of shared memory into a tensor. Elements beyond the
        /// tensor are not written.
        effect TmaStore = "tma_store" {
            /// The tile of a parameter's tensor.
            dst: Value,
            /// The tensor in shared memory, with the same shape.
            src: Value,
            /// The reduction operation. Without one, the elements are overwritten.
            op: Option<RedOp>,
            /// The coordinates of the tile's first element in the modes of the parameter's layout (`i64`).
            at: Vec<Value>,
            /// For each mode of the parameter's layout, 1 plus the mode of the tile that runs along it, or 0.
            along: Vec<u32>,
        }
        reads [here(src)], writes [here(dst)], order None, group Some(Group::Block),
        teams [], name if op.is_some() { "tma_red" } else { "tma" }, spread Operands, result |t| t.tma_reduction(*op).and_then(|()| t.tma_store(*dst, *src, at, along));
        /// Stands for a copy out of shared memory that threads have made themselves, so that waits
        /// count it like a copy.
        effect TmaInstead = "tma_instead" {
        }
        reads [], writes [], order None, group Some(Group::Block),
        teams [], name "tma", spread Operands, result |t| t.unit();
        /// Begins to copy consecutive bytes of a tensor to the stage that was acquired last.
        effect BulkLoad = "bulk_load" {
            /// The tensor in shared memory.
            dst: Value,
            /// A tensor with the same number of elements, which are contiguous in memory.
            src: Value,
            /// The pipeline.
            pipe: Value,
            /// The CTAs whose shared memory gets the bytes, as in `TmaLoad`.
            dims: u32,
        }
        reads [here(src)], writes [here(dst)], order None, group Some(Group::Block),
        teams [], name "bulk", spread Operands, result |t| t.bulk_load(*dst, *src, *pipe, *dims);
        /// Begins to copy or reduce consecutive bytes of shared memory into a tensor, on all PEs if
        /// it is multicast. If the tensor is in the shared memory of another CTA, the bytes arrive
        /// on that CTA's pipeline.
        effect BulkStore = "bulk_store" {
            /// A tensor with the same number of elements, which are contiguous in memory.
            dst: Value,
            /// The tensor in shared memory.
            src: Value,
            /// The reduction operation. Without one, the elements are overwritten.
            op: Option<RedOp>,
            /// The pipeline of the other CTA, for a copy to one.
            pipe: Option<Value>,
        }
        reads [here(src)], writes [here(dst)], order None, group Some(Group::Block),
        teams [], name if op.is_some() { "bulk_red" } else { "bulk" }, spread Operands, result |t| t.tma_reduction(*op).and_then(|()| t.bulk_store(*dst, *src, *pipe));
        /// Waits until all but the newest copies out of shared memory have read their source or end.
        effect TmaWait = "tma_wait" {
            /// The number of copies that may still be in flight.
            pending: u32,
            /// Whether it is enough that the copies have read their source.
            read: bool,
        }
        reads [], writes [], order None, group Some(Group::Block),
        teams [], name "tma_wait", spread Operands, result |t| t.unit();
        /// A tile of zeros to which matrix products are added. Result: the given type.
        effect Accumulator = "accumulator" {
        }
        reads [], writes [], order None, group Some(Group::Block),
        teams [], name "accumulator", spread Threads, result |t| t.accumulator();
        /// Begins `acc + a * transpose(b)`. Result: the accumulator, which is in flight.
        effect Mma = "mma" {
            /// The tile A of modes (M, K) in shared memory, or the elements that the thread holds
            /// of a tile that is divided as the columns of an accumulator are.
            a: Value,
            /// The tile B of modes (N, K) in shared memory.
            b: Value,
            /// The accumulator of M x N elements.
            acc: Value,
        }
        reads [here(a), here(b)], writes [], order None, group Some(Group::Block),
        teams [], name "mma", spread Threads, result |t| t.mma(*a, *b, *acc);
        /// Waits until all but the newest products are complete. Result: the accumulator.
        effect MmaWait = "mma_wait" {
            /// The accumulator.
            acc: Value,
            /// The number of products that may still be in flight.
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
        /// Reads columns of an accumulator that no product in flight adds to. Result: the elements
        /// that the thread holds.
        effect AccumulatorRead = "accumulator_read" {
            /// The accumulator.
            acc: Value,
            /// The first column that is read.
            first: u32,
            /// The number of columns.
            cols: u32,
        }
        reads [], writes [], order None, group None,
        teams [], name "an accumulator's columns", spread Threads, result |t| t.accumulator_read(*acc, *first, *cols);
    }
}

family! {
    /// NVSHMEM's operations on other PEs' memory. Ranks refer to `team`.
    Remote {
        /// Copies a local tensor to another PE's part of a symmetric tensor. After it returns, the
        /// source can be reused, unless it is `nbi` (non-blocking). The data has arrived after a
        /// `quiet` or barrier.
        effect Put = "put" {
            /// The symmetric tensor that is written on the other PE.
            dst: Value,
            /// The tensor of this PE.
            src: Value,
            /// The rank in the team (`i32`).
            pe: Value,
            /// The team to which ranks refer.
            team: TeamRef,
            /// Whether the call may return before the source is read. A `quiet` waits for it.
            nbi: bool,
            /// The threads that call it together with the same arguments.
            group: Group,
        }
        reads [here(src)], writes [there(dst)], order None, group Some(*group),
        teams [team], name of_group("put", *nbi, *group), spread Threads, result |t| t.remote().put(*dst, *src, *pe);
        /// Copies another PE's part of a symmetric tensor to a local one. The data has arrived when
        /// it returns, unless it is `nbi`.
        effect Get = "get" {
            /// The tensor of this PE.
            dst: Value,
            /// The symmetric tensor that is read on the other PE.
            src: Value,
            /// The rank in the team (`i32`).
            pe: Value,
            /// The team to which ranks refer.
            team: TeamRef,
            /// Whether the call may return before the data has arrived. A `quiet` waits for it.
            nbi: bool,
            /// The threads that call it together with the same arguments.
            group: Group,
        }
        reads [there(src)], writes [here(dst)], order None, group Some(*group),
        teams [team], name of_group("get", *nbi, *group), spread Threads, result |t| t.remote().get(*dst, *src, *pe);
        /// Does a `put`, and updates a signal on that PE after the data has arrived.
        effect PutSignal = "put_signal" {
            /// The symmetric tensor that is written on the other PE.
            dst: Value,
            /// The tensor of this PE.
            src: Value,
            /// The signal, a symmetric `u64`.
            signal: Value,
            /// How the signal is updated.
            op: SignalKind,
            /// The operand of the update (`u64`).
            value: Value,
            /// The rank in the team (`i32`).
            pe: Value,
            /// The team to which ranks refer.
            team: TeamRef,
            /// Whether the call may return before the source is read. A `quiet` waits for it.
            nbi: bool,
            /// The threads that call it together with the same arguments.
            group: Group,
        }
        reads [here(src)], writes [there(dst), there(signal)], order None, group Some(*group),
        teams [team], name of_group("put_signal", *nbi, *group), spread Threads, result |t| t.remote().put_signal([*dst, *src, *signal], *value, *pe);
        /// Writes one element on another PE.
        effect PutValue = "p" {
            /// The symmetric tensor, which has one element.
            dst: Value,
            /// The value, which has the element type.
            value: Value,
            /// The rank in the team (`i32`).
            pe: Value,
            /// The team to which ranks refer.
            team: TeamRef,
        }
        reads [], writes [there(dst)], order None, group None,
        teams [team], name "p", spread Threads, result |t| t.remote().put_value(*dst, *value, *pe);
        /// Reads one element of another PE. Result: the element.
        effect GetValue = "g" {
            /// The symmetric tensor, which has one element.
            src: Value,
            /// The rank in the team (`i32`).
            pe: Value,
            /// The team to which ranks refer.
            team: TeamRef,
        }
        reads [there(src)], writes [], order None, group None,
        teams [team], name "g", spread Threads, result |t| t.remote().get_value(*src, *pe);
        /// Updates a signal on another PE.
        effect SignalOp = "signal_op" {
            /// The signal, a symmetric `u64`.
            signal: Value,
            /// How the signal is updated.
            op: SignalKind,
            /// The operand of the update (`u64`).
            value: Value,
            /// The rank in the team (`i32`).
            pe: Value,
            /// The team to which ranks refer.
            team: TeamRef,
        }
        reads [there(signal)], writes [there(signal)], order None, group None,
        teams [team], name "signal_op", spread Threads, result |t| t.remote().signal_op(*signal, *value, *pe);
        /// Waits until this PE's signal compares true with a value. Result: the signal's value (`u64`).
        effect SignalWait = "signal_wait_until" {
            /// The signal, a symmetric `u64`.
            signal: Value,
            /// The comparison, with the signal on the left.
            cmp: CmpOp,
            /// The value that the signal is compared with (`u64`).
            value: Value,
        }
        reads [here(signal)], writes [], order None, group None,
        teams [], name "signal_wait_until", spread Threads, result |t| t.remote().signal_wait(*signal, *value);
        /// This PE's signal. Result: `u64`.
        effect SignalFetch = "signal_fetch" {
            /// The signal, a symmetric `u64`.
            signal: Value,
        }
        reads [here(signal)], writes [], order None, group None,
        teams [], name "signal_fetch", spread Threads, result |t| t.remote().signal_fetch(*signal);
        /// Waits until variables of this PE compare true with values, or tests whether they do. The
        /// result of `one` and `all` is nothing, or `bool` for a test. That of `any` is the index
        /// of a variable that compares true (`i64`, -1 for none). That of `some` is the number of
        /// such variables (`i64`).
        effect Wait = "wait" {
            /// The symmetric tensor, which has one element for `one`.
            vars: Value,
            /// The comparison, with the variable on the left.
            cmp: CmpOp,
            /// The value that is compared, or a tensor with one value for each variable.
            value: Value,
            /// The variables that must compare true.
            which: WaitFor,
            /// Whether it tests once and does not wait.
            test: bool,
            /// An optional tensor of `i32`. A variable whose element here is not 0 is left out.
            status: Option<Value>,
            /// A tensor of `u64` for `some` that gets the indices of the variables that compare
            /// true.
            indices: Option<Value>,
        }
        reads [here(vars), status.as_ref().and_then(here)], writes [indices.as_ref().and_then(here)], order None, group None,
        teams [], name wait_name(*test, *which), spread Threads, result |t| t.remote().wait(*vars, *value, (*which, *test), *status, *indices);
        /// An atomic operation on one element of another PE. Result: the old value, for operations
        /// that fetch.
        effect Amo = "amo" {
            /// The symmetric tensor, which has one element.
            target: Value,
            /// The operation.
            op: AmoOp,
            /// The operands: the compared value and the stored value for `compare_swap`, none for
            /// fetch and inc, and one otherwise.
            operands: Vec<Value>,
            /// The rank in the team (`i32`).
            pe: Value,
            /// The team to which ranks refer.
            team: TeamRef,
        }
        reads [there(target)], writes [there(target)], order None, group None,
        teams [team], name format!("atomic_{op}"), spread Threads, result |t| t.remote().amo(*target, *op, operands, *pe);
        /// Orders this PE's puts, signals and atomics to each PE before later ones to the same PE.
        effect RmaFence = "rma_fence" {
        }
        reads [], writes [], order None, group None,
        teams [], name "rma_fence", spread Threads, result |t| t.unit();
        /// Waits until all puts, gets, signals and atomics of this PE are complete, also on other PEs.
        effect Quiet = "quiet" {
        }
        reads [], writes [], order None, group None,
        teams [], name "quiet", spread Threads, result |t| t.unit();
        /// Waits for the same call on all PEs of the team. A barrier also does a quiet first.
        effect TeamSync = "team_sync" {
            /// The team.
            team: TeamRef,
            /// Whether it also completes remote memory operations.
            barrier: bool,
            /// The threads of each PE that call it together.
            group: Group,
        }
        reads [], writes [], order None, group Some(*group),
        teams [team], name sync_name(*barrier, *team, *group), spread Threads, result |t| t.unit();
        /// Reduces a tensor over the PEs of a team. All PEs get the whole result, or with `scatter`
        /// each gets its part.
        effect TeamReduce = "team_reduce" {
            /// The symmetric tensor that gets the result.
            dst: Value,
            /// The symmetric tensor. For `scatter` it has a part for each PE, in rank order.
            src: Value,
            /// The reduction operation.
            op: RedOp,
            /// Whether each PE gets only its part.
            scatter: bool,
            /// The team.
            team: TeamRef,
            /// The threads of each PE that call it together.
            group: Group,
        }
        reads [here(src)], writes [here(dst)], order None, group Some(*group),
        teams [team], name of_group(if *scatter { "reducescatter" } else { "reduce" }, false, *group), spread Threads, result |t| t.remote().team_reduce(*dst, *src, *op, *scatter);
        /// Exchanges tensors among the PEs of a team.
        effect TeamMove = "team_move" {
            /// The exchange.
            kind: MoveKind,
            /// The symmetric tensor that gets the result.
            dst: Value,
            /// The symmetric tensor.
            src: Value,
            /// The rank of the PE whose tensor is broadcast (`i32`), for `broadcast`.
            root: Option<Value>,
            /// The team.
            team: TeamRef,
            /// The threads of each PE that call it together.
            group: Group,
        }
        reads [here(src)], writes [here(dst)], order None, group Some(*group),
        teams [team], name of_group(kind.name(), false, *group), spread Threads, result |t| t.remote().team_move(*dst, *src, *root);
        /// The rank that a PE of one team has in another, or -1 if it is not in it. Result: `i32`.
        pure TranslatePe = "translate_pe" {
            /// The rank in `from` (`i32`).
            pe: Value,
            /// The team in which the PE has that rank.
            from: TeamRef,
            /// The other team.
            to: TeamRef,
        }
        teams [from, to], name "translate_pe", spread Operands, result |t| t.remote().translate_pe(*pe);
    }
}

impl Remote {
    /// Whether threads of a group call it together with the same arguments.
    pub fn is_collective(&self) -> bool {
        self.group().is_some()
    }

    /// Whether earlier operations are complete, or their signal has arrived, when it returns.
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
    /// The op that gets from tensors to addresses in kernels that passes are lowering.
    Bridge {
        /// The address of a tensor's first element, or of a barrier's counters.
        pure AddressOf = "address_of" {
            /// The tensor or barrier.
            base: Value,
        }
        teams [], name "an address", spread Operands, result |t| t.address_of(*base);
    }
}
