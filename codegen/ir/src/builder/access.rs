//! Accesses to tensors, and operations of all threads on values.

use super::{Builder, Built};
use crate::kernel::Value;
use crate::level::TensorLevel;
use crate::names::{Group, RedOp, Scalar, Scope, Sem};
use crate::op::{Access, Together};

impl<L: TensorLevel> Builder<L> {
    /// Appends a weak load of a tensor's elements.
    pub fn load(&mut self, place: Value) -> Built<Value> {
        self.emit(Access::Load { place, sem: Sem::Weak, scope: Scope::Sys })
    }

    /// Appends a weak store of a tensor's elements.
    pub fn store(&mut self, place: Value, value: Value) -> Built<Value> {
        self.emit(Access::Store { place, value, sem: Sem::Weak, scope: Scope::Sys })
    }

    /// Appends a `multimem.ld_reduce.relaxed.sys` from `place`.
    pub fn ld_reduce(&mut self, place: Value, op: RedOp, acc: Scalar) -> Built<Value> {
        self.emit(Access::LdReduce { place, op, acc, sem: Sem::Relaxed, scope: Scope::Sys })
    }

    /// Appends a `multimem.st.relaxed.sys` of `value` to `place`.
    pub fn mc_store(&mut self, place: Value, value: Value) -> Built<Value> {
        self.emit(Access::McStore { place, value, sem: Sem::Relaxed, scope: Scope::Sys })
    }

    /// Appends a load of a tensor's elements with a memory order: `weak`, `relaxed` or `acquire`.
    ///
    /// # Errors
    /// Fails if `place` is multicast (E0202), or if a thread cannot hold its elements (E0203).
    pub fn load_ordered(&mut self, place: Value, sem: Sem, scope: Scope) -> Built<Value> {
        self.emit(Access::Load { place, sem, scope })
    }

    /// Appends a store of a tensor's elements with a memory order: `weak`, `relaxed` or `release`.
    ///
    /// # Errors
    /// Fails where [`load_ordered`](Self::load_ordered) fails, or if `value` does not have a lane
    /// for each element (E0200).
    pub fn store_ordered(&mut self, place: Value, value: Value, sem: Sem, scope: Scope) -> Built<Value> {
        self.emit(Access::Store { place, value, sem, scope })
    }

    /// Appends an atomic reduction of `value` into each element of `place`, `relaxed` or `release`.
    ///
    /// # Errors
    /// Fails if memory does not have the reduction (E0201), or where
    /// [`store_ordered`](Self::store_ordered) fails.
    pub fn red(&mut self, place: Value, value: Value, op: RedOp, (sem, scope): (Sem, Scope)) -> Built<Value> {
        self.emit(Access::Red { place, value, op, sem, scope })
    }

    /// Appends a `multimem.red` of `value` into each element of `place` on every PE of the team,
    /// `relaxed` or `release`.
    ///
    /// # Errors
    /// Fails if `place` is not multicast (E0202), or where [`red`](Self::red) fails.
    pub fn mc_red(
        &mut self,
        place: Value,
        value: Value,
        op: RedOp,
        (sem, scope): (Sem, Scope),
    ) -> Built<Value> {
        self.emit(Access::McRed { place, value, op, sem, scope })
    }

    /// Appends an atomic operation on the one element of `place`. Without a reduction, it exchanges
    /// the element. The result is the old value.
    ///
    /// # Errors
    /// Fails if `place` does not have one element of the value's type (E0200), or if memory does
    /// not have the reduction (E0201).
    pub fn atomic(
        &mut self,
        place: Value,
        value: Value,
        op: Option<RedOp>,
        (sem, scope): (Sem, Scope),
    ) -> Built<Value> {
        self.emit(Access::Atomic { place, value, op, sem, scope })
    }

    /// Appends an atomic store of `value` to the one element of `place` if the element is
    /// `expected`. The result is the old value.
    ///
    /// # Errors
    /// Fails if `place` does not have one element of the values' type (E0200).
    pub fn atomic_cas(
        &mut self,
        place: Value,
        expected: Value,
        value: Value,
        (sem, scope): (Sem, Scope),
    ) -> Built<Value> {
        self.emit(Access::AtomicCas { place, expected, value, sem, scope })
    }

    /// Appends the statement that all threads of the group reach this place together, because they
    /// access a tensor that is divided over them.
    pub fn converge(&mut self, group: Group) -> Built<Value> {
        self.emit(Together::Converge { group })
    }

    /// Appends a reduction of each lane of `value` over the threads of the group. All threads get
    /// the result.
    ///
    /// # Errors
    /// Fails if the element type does not have the reduction (E0201).
    pub fn reduce(&mut self, value: Value, op: RedOp, group: Group) -> Built<Value> {
        self.emit(Together::Reduce { value, op, group })
    }
}
