//! What the detector of races has to know of a call while it is made.

use crate::check::clock::Clock;
use crate::check::detector::Ticket;
use crate::exec::Context;
use std::sync::Arc;

/// What the detector has to know of a call.
#[derive(Default)]
pub(crate) struct Notes {
    pub(crate) op: Option<Ticket>,
    pub(crate) completes: Completed,
    /// A fence, or a quiet.
    pub(crate) fence: Option<bool>,
    /// It only looks ahead: the call itself comes later.
    pub(crate) silent: bool,
    /// What the threads that call together knew.
    pub(crate) clock: Option<Box<Clock>>,
    /// What all PEs of a collective function knew.
    pub(crate) met: Option<Arc<Clock>>,
}

/// What is complete when a call returns.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Completed {
    Nothing,
    /// The source is read.
    Source,
    #[default]
    All,
}

impl Context<'_> {
    /// Tells of remote updates that have landed since.
    #[inline]
    pub(crate) fn settle(&mut self) {
        if !self.remote.wire.landed.is_empty() {
            let landed = std::mem::take(&mut self.remote.wire.landed);
            if let Some(d) = self.check.as_deref_mut() {
                for (landing, spot, bytes) in landed {
                    d.landed(&landing.ticket, &landing.left, spot.buffer, spot.at, bytes);
                }
            }
        }
    }

    /// Lanes join others in a call.
    pub(crate) fn watch_arrival(&mut self, mask: u32, notes: &mut Notes) {
        let slot = self.slot;
        if let Some(d) = self.check.as_deref_mut() {
            d.leave(slot, mask, notes.clock.get_or_insert_default());
        }
    }

    /// Lanes have called fence, or quiet.
    pub(crate) fn watch_fences(&mut self, mask: u32, quiet: bool) {
        let (slot, pc) = (self.slot, self.pc);
        if let Some(d) = self.check.as_deref_mut() {
            d.remote_fence(slot, mask, pc, quiet);
        }
    }

    /// Lanes go on behind a call.
    pub(crate) fn watch_return(&mut self, mask: u32, notes: &Notes) {
        let slot = self.slot;
        let Some(d) = self.check.as_deref_mut() else { return };
        if notes.op.is_some() || notes.met.is_some() {
            let only_read = match notes.completes {
                Completed::Nothing => None,
                done => Some(done == Completed::Source),
            };
            d.learn_call(slot, mask, notes.op.as_ref(), only_read, notes.met.as_deref());
        }
    }
}
