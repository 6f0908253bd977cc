//! Reports the effects of NVSHMEM functions to the race detector.
//!
//! The reads and writes of a function are accesses of agent [`Agent::Remote`] at the time of the
//! call. No thread knows of them until the operation is complete. When a blocking put returns, it
//! has read its source; when a get returns, it has written its destination. All else is *delivered*
//! to threads after a quiet, or after a signal that a fence (or the put that it belongs to) orders
//! after it. A wait acquires the releases of the signals that it saw.

use super::Call;
use crate::check::detector::{Ticket, Touch};
use crate::check::{AccessKind, Agent};
use crate::exec::remote::Scope;
use crate::exec::remote::notes::Completed;
use crate::exec::remote::wire::Landing;
use crate::memory::Spot;
use crate::order::Order;

impl Call<'_, '_> {
    fn ticket(&mut self) -> Option<Ticket> {
        let (slot, pc, lane) = (self.cx.slot, self.cx.pc, self.lane);
        let d = self.cx.check.as_deref_mut().filter(|_| !self.notes.silent)?;
        // An operation that is complete on return counts as that of one thread of the group, the
        // last one that arrives and executes it, so that clocks stay short. Operations that
        // complete later are reported separately.
        let signals = self.f.row.params.iter().any(|(name, _)| *name == "signal");
        let together =
            self.f.scope != Scope::Thread && self.notes.completes != Completed::Nothing && !signals;
        let block = self.f.scope == Scope::Block;
        let begin = || match together {
            true => d.begin_together(slot, lane, pc, block),
            false => d.begin(slot, lane, pc, Agent::Remote),
        };
        Some(self.notes.op.get_or_insert_with(begin).clone())
    }

    /// Reports a read or write of the operation.
    pub(super) fn watch(&mut self, kind: AccessKind, at: Spot, bytes: usize) {
        if self.cx.check.is_none() || bytes == 0 {
            return;
        }
        self.cx.settle();
        let Some(op) = self.ticket() else { return };
        let Some(d) = self.cx.check.as_deref_mut() else { return };
        if kind.reads() && !self.cx.memory.is_written(at.buffer, at.at, bytes) {
            d.land_uninitialised(&op, (at.buffer, at.at, bytes));
        }
        d.land(&op, kind, at.buffer, at.at, bytes);
    }

    /// Reports what is complete when the call returns.
    pub(super) fn completes(&mut self, what: Completed) {
        self.notes.completes = what;
    }

    /// Reports a strong access of the calling thread itself to a variable: an AMO, or a wait's
    /// read.
    pub(super) fn watch_strong(&mut self, kind: AccessKind, at: Spot, bytes: usize) {
        self.cx.settle();
        let (slot, pc, lane) = (self.cx.slot, self.cx.pc, self.lane);
        let under_way = self.cx.memory.under_way(self.cx.accessor(), at, bytes);
        let Some(d) = self.cx.check.as_deref_mut() else { return };
        d.tick();
        let order = Order { acquire: kind == AccessKind::Read, ..Order::RELAXED_SYS };
        let what = Touch { pc, kind, order, same: 0 };
        if kind.reads() && !self.cx.memory.is_written(at.buffer, at.at, bytes) {
            d.uninitialised(slot, lane, &what, (at.buffer, at.at, bytes));
        }
        d.touch(slot, 1 << lane, &what, (at.buffer, at.at, bytes), under_way);
    }

    /// Prepares the report of a signal or AMO that completes later; `with_put` if it is the signal
    /// of this call's put.
    pub(super) fn landing(&mut self, with_put: bool) -> Option<Box<Landing>> {
        let ticket = self.ticket()?;
        let (slot, pc, lane) = (self.cx.slot, self.cx.pc, self.lane);
        let d = self.cx.check.as_deref_mut()?;
        let left = d.remote_release(slot, lane, pc, with_put.then_some(&ticket));
        Some(Box::new(Landing { ticket, left }))
    }

    /// Reports a fence or quiet.
    pub(super) fn watch_fence(&mut self, quiet: bool) {
        // An operation completes before it is reported as complete.
        self.cx.settle();
        self.notes.fence = Some(quiet);
    }

    /// Reports the arrival of the calling threads at a collective function, which may complete the
    /// PE's pending operations.
    pub(super) fn watch_meeting(&mut self, completes: bool) {
        self.cx.settle();
        let (slot, lane, pe) = (self.cx.slot, self.lane, self.cx.at.pe);
        let Some(d) = self.cx.check.as_deref_mut() else { return };
        let clock = self.notes.clock.get_or_insert_default();
        d.leave(slot, 1 << lane, clock);
        if completes {
            d.deliver(clock, pe);
        }
    }
}
