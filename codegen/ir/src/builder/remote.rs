//! Teams, and NVSHMEM's operations on other PEs' memory.

use super::{Builder, Built};
use crate::kernel::{TeamRef, Value};
use crate::level::TensorLevel;
use crate::names::{AmoOp, CmpOp, Group, MoveKind, RedOp, Scope, Sem, SignalKind, WaitFor};
use crate::op::{Remote, Team};

/// A PE, by its rank in a team.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rank {
    /// The number of the PE in the team (`i32`).
    pub pe: Value,
    /// The team to which the number refers.
    pub team: TeamRef,
}

/// An update of a signal on another PE.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Signal {
    /// The signal, a symmetric `u64`.
    pub signal: Value,
    /// How the signal is updated.
    pub op: SignalKind,
    /// The operand of the update (`u64`).
    pub value: Value,
}

/// Methods for teams.
impl<L: TensorLevel> Builder<L> {
    /// Appends a read of this PE's rank in a team, an `i32`.
    pub fn my_pe(&mut self, team: TeamRef) -> Built<Value> {
        self.emit(Team::MyPe { team })
    }

    /// Appends a read of the number of PEs of a team, an `i32`.
    pub fn n_pes(&mut self, team: TeamRef) -> Built<Value> {
        self.emit(Team::NPes { team })
    }

    /// Appends a barrier of the CTAs of the same index on every PE of a team. `release` arrives,
    /// `acquire` waits, and `acq_rel` does both.
    ///
    /// # Errors
    /// Fails if `sync` is not a barrier (E0200).
    pub fn team_barrier(&mut self, sync: Value, team: TeamRef, sem: Sem, scope: Scope) -> Built<Value> {
        self.emit(Team::Barrier { sync, team, sem, scope })
    }

    /// Appends the rank that a PE has in the team `to`, or -1 if it is not in it. The result is an
    /// `i32`.
    ///
    /// # Errors
    /// Fails if the rank is not an `i32` (E0200).
    pub fn translate_pe(&mut self, of: Rank, to: TeamRef) -> Built<Value> {
        self.emit(Remote::TranslatePe { pe: of.pe, from: of.team, to })
    }
}

/// Methods for puts, gets, signals and atomics.
impl<L: TensorLevel> Builder<L> {
    /// Appends a copy of `src` of this PE to the symmetric `dst` on another PE. When it returns,
    /// `src` can be written again.
    ///
    /// # Errors
    /// Fails if `dst` is not symmetric (E0220), or if element types (E0221) or sizes (E0222)
    /// differ.
    pub fn rma_put(&mut self, dst: Value, src: Value, to: Rank, group: Group) -> Built<Value> {
        self.emit(Remote::Put { dst, src, pe: to.pe, team: to.team, nbi: false, group })
    }

    /// Appends a [`rma_put`](Self::rma_put) that may return before `src` is read. [`quiet`](Self::quiet)
    /// waits for it.
    ///
    /// # Errors
    /// Fails where [`rma_put`](Self::rma_put) fails.
    pub fn rma_put_nbi(&mut self, dst: Value, src: Value, to: Rank, group: Group) -> Built<Value> {
        self.emit(Remote::Put { dst, src, pe: to.pe, team: to.team, nbi: true, group })
    }

    /// Appends a copy of the symmetric `src` on another PE to `dst` of this PE. The data has arrived
    /// when it returns.
    ///
    /// # Errors
    /// Fails if `src` is not symmetric (E0220), or if element types (E0221) or sizes (E0222)
    /// differ.
    pub fn rma_get(&mut self, dst: Value, src: Value, from: Rank, group: Group) -> Built<Value> {
        self.emit(Remote::Get { dst, src, pe: from.pe, team: from.team, nbi: false, group })
    }

    /// Appends a [`rma_get`](Self::rma_get) that may return before the data has arrived.
    /// [`quiet`](Self::quiet) waits for it.
    ///
    /// # Errors
    /// Fails where [`rma_get`](Self::rma_get) fails.
    pub fn rma_get_nbi(&mut self, dst: Value, src: Value, from: Rank, group: Group) -> Built<Value> {
        self.emit(Remote::Get { dst, src, pe: from.pe, team: from.team, nbi: true, group })
    }

    /// Appends a [`rma_put`](Self::rma_put) that updates a signal on the other PE after the data has
    /// arrived.
    ///
    /// # Errors
    /// Fails where [`rma_put`](Self::rma_put) fails, or if the signal is not one symmetric `u64` (E0223).
    pub fn put_signal(
        &mut self,
        dst: Value,
        src: Value,
        Signal { signal, op, value }: Signal,
        Rank { pe, team }: Rank,
        group: Group,
    ) -> Built<Value> {
        self.emit(Remote::PutSignal { dst, src, signal, op, value, pe, team, nbi: false, group })
    }

    /// Appends a write of one element on another PE.
    ///
    /// # Errors
    /// Fails if `dst` is not symmetric (E0220), if it has more than one element (E0222), or if
    /// `value` is of another type (E0200).
    pub fn put_value(&mut self, dst: Value, value: Value, to: Rank) -> Built<Value> {
        self.emit(Remote::PutValue { dst, value, pe: to.pe, team: to.team })
    }

    /// Appends a read of one element of another PE. The result is the element.
    ///
    /// # Errors
    /// Fails if `src` is not symmetric (E0220), or if it has more than one element (E0222).
    pub fn get_value(&mut self, src: Value, from: Rank) -> Built<Value> {
        self.emit(Remote::GetValue { src, pe: from.pe, team: from.team })
    }

    /// Appends an update of a signal on another PE.
    ///
    /// # Errors
    /// Fails if the signal is not one symmetric `u64` (E0223), or if its operand is not a `u64`
    /// (E0200).
    pub fn signal_op(&mut self, Signal { signal, op, value }: Signal, to: Rank) -> Built<Value> {
        self.emit(Remote::SignalOp { signal, op, value, pe: to.pe, team: to.team })
    }

    /// Appends a wait until this PE's signal compares true with `value` (`u64`). The result is the
    /// signal's value.
    ///
    /// # Errors
    /// Fails where [`signal_op`](Self::signal_op) fails.
    pub fn signal_wait(&mut self, signal: Value, cmp: CmpOp, value: Value) -> Built<Value> {
        self.emit(Remote::SignalWait { signal, cmp, value })
    }

    /// Appends a read of this PE's signal, a `u64`.
    ///
    /// # Errors
    /// Fails if the signal is not one symmetric `u64` (E0223).
    pub fn signal_fetch(&mut self, signal: Value) -> Built<Value> {
        self.emit(Remote::SignalFetch { signal })
    }

    /// Appends a wait until a variable of this PE, a symmetric integer, compares true with `value`.
    /// Waits for lists of variables are made with [`emit`](Self::emit) and [`Remote::Wait`].
    ///
    /// # Errors
    /// Fails if `var` is not symmetric (E0220), if it has more than one element (E0222), or if
    /// there is no wait for its type (E0201).
    pub fn wait_until(&mut self, var: Value, cmp: CmpOp, value: Value) -> Built<Value> {
        let (status, indices) = (None, None);
        self.emit(Remote::Wait { vars: var, cmp, value, which: WaitFor::One, test: false, status, indices })
    }

    /// Appends an atomic operation on one element of another PE, with as many operands as `op` has.
    /// The result is the old value, if `op` fetches it.
    ///
    /// # Errors
    /// Fails if the operation does not exist for the type (E0201), if `target` is not symmetric
    /// (E0220), or if it has more than one element (E0222).
    pub fn amo(&mut self, target: Value, op: AmoOp, operands: Vec<Value>, on: Rank) -> Built<Value> {
        self.emit(Remote::Amo { target, op, operands, pe: on.pe, team: on.team })
    }

    /// Appends a fence that orders this PE's puts, signals and atomics to each PE before later ones
    /// to the same PE.
    pub fn rma_fence(&mut self) -> Built<Value> {
        self.emit(Remote::RmaFence {})
    }

    /// Appends a wait until all puts, gets, signals and atomics of this PE are complete.
    pub fn quiet(&mut self) -> Built<Value> {
        self.emit(Remote::Quiet {})
    }
}

/// Methods for NVSHMEM's collectives. `group` is the threads of each PE that call one together.
impl<L: TensorLevel> Builder<L> {
    /// Appends a wait for the same call on all PEs of a team.
    pub fn team_sync(&mut self, team: TeamRef, group: Group) -> Built<Value> {
        self.emit(Remote::TeamSync { team, barrier: false, group })
    }

    /// Appends a [`quiet`](Self::quiet) and a [`team_sync`](Self::team_sync).
    pub fn team_quiet_sync(&mut self, team: TeamRef, group: Group) -> Built<Value> {
        self.emit(Remote::TeamSync { team, barrier: true, group })
    }

    /// Appends a reduction of `src` over the PEs of a team into `dst` on each of them.
    ///
    /// # Errors
    /// Fails if a tensor is not symmetric (E0220) or not contiguous (E0222), if the types (E0221)
    /// or sizes (E0222) differ, or if the type does not have the reduction (E0201).
    pub fn team_reduce(
        &mut self,
        dst: Value,
        src: Value,
        op: RedOp,
        team: TeamRef,
        group: Group,
    ) -> Built<Value> {
        self.emit(Remote::TeamReduce { dst, src, op, scatter: false, team, group })
    }

    /// Appends a reduction over the PEs of a team of which each gets its part. `src` has a part for
    /// each PE, in rank order.
    ///
    /// # Errors
    /// Fails where [`team_reduce`](Self::team_reduce) fails.
    pub fn team_reducescatter(
        &mut self,
        dst: Value,
        src: Value,
        op: RedOp,
        team: TeamRef,
        group: Group,
    ) -> Built<Value> {
        self.emit(Remote::TeamReduce { dst, src, op, scatter: true, team, group })
    }

    /// Appends an all-gather: `dst` gets `src` of all PEs, in rank order.
    ///
    /// # Errors
    /// Fails if a tensor is not symmetric (E0220) or not contiguous (E0222), or if the types differ
    /// (E0221).
    pub fn fcollect(&mut self, dst: Value, src: Value, team: TeamRef, group: Group) -> Built<Value> {
        self.emit(Remote::TeamMove { kind: MoveKind::Fcollect, dst, src, root: None, team, group })
    }

    /// Appends an exchange: `dst` gets this PE's part of `src` of all PEs, in rank order.
    ///
    /// # Errors
    /// Fails where [`fcollect`](Self::fcollect) fails.
    pub fn alltoall(&mut self, dst: Value, src: Value, team: TeamRef, group: Group) -> Built<Value> {
        self.emit(Remote::TeamMove { kind: MoveKind::Alltoall, dst, src, root: None, team, group })
    }

    /// Appends a broadcast: `dst` on all PEs of the root's team gets the root's `src`.
    ///
    /// # Errors
    /// Fails where [`fcollect`](Self::fcollect) fails.
    pub fn broadcast(&mut self, dst: Value, src: Value, root: Rank, group: Group) -> Built<Value> {
        let Rank { pe, team } = root;
        self.emit(Remote::TeamMove { kind: MoveKind::Broadcast, dst, src, root: Some(pe), team, group })
    }
}
