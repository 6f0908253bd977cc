//! The information about a call that the race detector needs while the call is made.

use crate::check::clock::Clock;
use crate::check::detector::Ticket;
use crate::exec::Context;
use std::sync::Arc;

/// The information about a call for the race detector.
#[derive(Default)]
pub(crate) struct Notes {
    pub(crate) op: Option<Ticket>,
    pub(crate) completes: Completed,
    /// A fence (false) or a quiet (true).
    pub(crate) fence: Option<bool>,
    /// Whether the call is only examined in advance, and made later.
    pub(crate) silent: bool,
    /// The knowledge of the threads that call together.
    pub(crate) clock: Option<Box<Clock>>,
    /// The knowledge of all PEs in a collective function.
    pub(crate) met: Option<Arc<Clock>>,
}

/// The state that is complete when a call returns.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Completed {
    Nothing,
    /// The source has been read.
    Source,
    #[default]
    All,
}

impl Context<'_> {
    /// Informs the detector of remote updates that have completed since.
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

    /// Notes that lanes join others in a call.
    pub(crate) fn watch_arrival(&mut self, mask: u32, notes: &mut Notes) {
        let slot = self.slot;
        if let Some(d) = self.check.as_deref_mut() {
            d.leave(slot, mask, notes.clock.get_or_insert_default());
        }
    }

    /// Notes that lanes have called fence or quiet.
    pub(crate) fn watch_fences(&mut self, mask: u32, quiet: bool) {
        let (slot, pc) = (self.slot, self.pc);
        if let Some(d) = self.check.as_deref_mut() {
            d.remote_fence(slot, mask, pc, quiet);
        }
    }

    /// Notes that lanes return from a call.
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
