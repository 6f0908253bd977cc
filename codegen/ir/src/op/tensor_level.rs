//! The ops of the tensor level on tensors and their elements, and the op that lowering needs to get
//! from tensors to addresses.

use super::Spread::{Operands, Rule, Threads};
use super::here;
use crate::kernel::{TeamRef, Value};
use crate::names::{Group, RedOp, Scalar, Scope, Sem, Space};
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
