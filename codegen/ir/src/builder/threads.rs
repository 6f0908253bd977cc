//! Special registers, fences, barriers of threads, and clusters.

use super::{Builder, Built};
use crate::kernel::Value;
use crate::level::Level;
use crate::names::{Dim, Group, RedOp, Scope, Sem, ShuffleMode, Sreg};
use crate::op::Thread;

impl<L: Level> Builder<L> {
    /// Appends a read of component `dim` of a special register. The result is an `i32`.
    pub fn special(&mut self, reg: Sreg, dim: Dim) -> Built<Value> {
        self.emit(Thread::Special { reg, dim })
    }

    /// Appends a read of the CTA's rank in its cluster, an `i32` from 0. The kernel's
    /// [`cluster`](crate::Kernel::cluster) sets the number of CTAs.
    pub fn cluster_rank(&mut self) -> Built<Value> {
        self.special(Sreg::ClusterRank, Dim::X)
    }

    /// Appends a read of the multiprocessor's clock, in cycles. The result is an `i64`.
    pub fn clock(&mut self) -> Built<Value> {
        self.emit(Thread::Clock {})
    }

    /// Appends a read of the GPU's timer, in nanoseconds. The result is an `i64`.
    pub fn global_time(&mut self) -> Built<Value> {
        self.emit(Thread::GlobalTime {})
    }

    /// Appends a fence that orders earlier accesses of the thread before later ones.
    pub fn fence(&mut self, sem: Sem, scope: Scope) -> Built<Value> {
        self.emit(Thread::Fence { sem, scope })
    }

    /// Appends a fence that orders earlier accesses to GPU memory before copies of tiles that begin
    /// later. It covers the thread's own accesses and those of other threads that it has observed.
    pub fn fence_async(&mut self) -> Built<Value> {
        self.emit(Thread::AsyncFence {})
    }

    /// Appends a barrier of the threads of a group. In a role, those of the block are those of the
    /// role.
    pub fn sync(&mut self, group: Group) -> Built<Value> {
        self.emit(Thread::GroupBarrier { group })
    }

    /// Appends the first half of a barrier of the cluster, which does not wait.
    pub fn cluster_arrive(&mut self) -> Built<Value> {
        self.emit(Thread::ClusterArrive {})
    }

    /// Appends the second half of a barrier of the cluster, which waits until all threads of the
    /// cluster have arrived.
    pub fn cluster_wait(&mut self) -> Built<Value> {
        self.emit(Thread::ClusterWait {})
    }

    /// Appends a read of another lane's `value`. `lane` is an `i32` that selects the lane by `mode`.
    ///
    /// # Errors
    /// Fails if `value` is not a number or vector, or if `lane` is not an `i32` (E0200).
    pub fn shuffle(&mut self, value: Value, mode: ShuffleMode, lane: Value) -> Built<Value> {
        self.emit(Thread::Shuffle { value, mode, lane })
    }

    /// Appends the question whether `cond` is true in all lanes of the warp (`And`) or in at least
    /// one (`Or`).
    ///
    /// # Errors
    /// Fails if `cond` is not a `bool`, or for another operation (E0200).
    pub fn vote(&mut self, op: RedOp, cond: Value) -> Built<Value> {
        self.emit(Thread::Vote { op, cond })
    }

    /// Appends the permission for the next launch to begin before this one ends. It begins when all
    /// CTAs have reached this op or ended.
    pub fn launch_dependents(&mut self) -> Built<Value> {
        self.emit(Thread::LaunchDependents {})
    }

    /// Appends a wait until the launches before this one have ended.
    pub fn wait_dependencies(&mut self) -> Built<Value> {
        self.emit(Thread::WaitDependencies {})
    }
}
