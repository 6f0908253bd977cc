//! mbarrier objects: barriers in shared memory. A phase completes when the expected arrivals and
//! the expected bytes of asynchronous copies have arrived (PTX ISA 9.7.13.15).
//!
//! The contents of an mbarrier's eight bytes are opaque to programs. Here they are a digest of the
//! state, which is kept separately. So the simulator detects a program that overwrites an mbarrier,
//! or uses one that was not initialised.

use super::{Asynchronous, World};
use crate::check::Detector;
use crate::check::clock::Clock;
use crate::check::detector::Ticket;
use crate::memory::{Memory, Spot};
use crate::model::{CtaSlot, WarpSlot};
use crate::order::Scope;
use std::sync::Arc;

/// The size and the alignment of an mbarrier in bytes.
pub(crate) const SIZE: usize = 8;
/// The largest count of arrivals, and of pending bytes.
pub(crate) const LIMIT: i64 = (1 << 20) - 1;

/// An error in an operation on an mbarrier, as message and help.
pub(crate) type Wrong = (String, &'static str);

/// State of an mbarrier.
#[derive(Debug, Clone, Default)]
pub(crate) struct Mbarrier {
    /// The number of complete phases.
    pub phase: u64,
    /// The number of arrivals that each phase expects, from the next one on.
    pub expected: u32,
    /// The number of arrivals that the current phase still needs.
    pub pending: u32,
    /// The bytes that the phase still expects. The count is negative if bytes arrived before they
    /// were expected.
    pub tx: i64,
    /// For the detector, the clocks of the threads that have arrived in this phase.
    clock: Clock,
    /// For the detector, the clocks of the phase before.
    complete: Arc<Clock>,
}

/// The agent that changes an mbarrier.
pub(crate) enum Changer<'a> {
    /// A lane of a warp's slot, which releases all that it knows.
    Thread(WarpSlot, usize),
    /// A lane that releases what it knew at its latest fence.
    Relaxed(WarpSlot, usize),
    /// An asynchronous operation.
    Operation(Option<&'a Ticket>),
}

impl Mbarrier {
    pub(crate) fn new(count: u32) -> Mbarrier {
        Mbarrier { expected: count, pending: count, ..Mbarrier::default() }
    }

    /// The contents of its bytes in memory.
    fn digest(&self) -> u64 {
        let state = u64::from(self.pending) | u64::from(self.expected) << 20 | (self.phase & 3) << 40;
        state ^ (self.tx as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    /// The state that `mbarrier.arrive` returns: the phase and the number of pending arrivals.
    pub(crate) fn token(&self) -> u64 {
        self.phase << 20 | u64::from(self.pending)
    }

    /// The count in a state that `mbarrier.arrive` returned.
    pub(crate) fn token_count(token: u64) -> u64 {
        token & LIMIT as u64
    }

    /// Whether the phase of a state is complete. It must be the current phase or the one before.
    pub(crate) fn is_past(&self, token: u64) -> Result<bool, Wrong> {
        match self.phase.checked_sub(token >> 20) {
            Some(0) => Ok(false),
            Some(1) => Ok(true),
            _ => Err((
                format!(
                    "the state belongs to phase {}, but the mbarrier is in phase {}",
                    token >> 20,
                    self.phase
                ),
                "wait with the state of the latest arrival: a thread can wait only for the current phase or the phase before it",
            )),
        }
    }

    pub(crate) fn arrive(&mut self, count: u32) -> Result<(), Wrong> {
        if count == 0 || count > self.pending {
            let Mbarrier { pending, expected, phase, .. } = self;
            let message =
                format!("{count} arrivals, but phase {phase} waits for {pending} more of its {expected}");
            return Err((message, "initialise the mbarrier with the number of arrivals per phase"));
        }
        self.pending -= count;
        Ok(())
    }

    /// Expects one more arrival in this phase.
    pub(crate) fn expect_one_more(&mut self) -> Result<(), Wrong> {
        if i64::from(self.pending) >= LIMIT {
            return Err(("too many arrivals are pending".into(), "a phase can have 1 to 1048575 arrivals"));
        }
        self.pending += 1;
        Ok(())
    }

    /// Reduces the number of arrivals of the phases from the next one on.
    pub(crate) fn drop_out(&mut self, count: u32) -> Result<(), Wrong> {
        match self.expected.checked_sub(count) {
            Some(n) => self.expected = n,
            None => {
                let message =
                    format!("{count} threads drop out, but the mbarrier expects {} arrivals", self.expected);
                return Err((message, "let each thread drop out only once"));
            }
        }
        Ok(())
    }

    /// Expects bytes. A negative count means that bytes have arrived.
    pub(crate) fn expect(&mut self, bytes: i64) -> Result<(), Wrong> {
        self.tx += bytes;
        if self.tx.abs() > LIMIT {
            return Err((
                format!("the transaction count is {} bytes", self.tx),
                "an mbarrier can count at most 1048575 pending bytes",
            ));
        }
        if self.pending == 0 && self.tx < 0 {
            let message =
                format!("copies have brought {} bytes more than phase {} expected", -self.tx, self.phase);
            return Err((
                message,
                "announce the bytes of all copies that complete on the mbarrier with expect_tx",
            ));
        }
        Ok(())
    }

    /// Begins the next phase if this one is complete.
    fn settle(&mut self) -> bool {
        let complete = self.pending == 0 && self.tx == 0;
        if complete {
            self.phase += 1;
            self.pending = self.expected;
            self.complete = Arc::new(std::mem::take(&mut self.clock));
        }
        complete
    }
}

/// A CTA's mbarriers, by offset in its shared memory.
#[derive(Debug, Default)]
pub(super) struct Barriers(Vec<(usize, Mbarrier)>);

impl Barriers {
    fn get(&mut self, at: usize) -> Option<&mut Mbarrier> {
        self.0.iter_mut().find(|(a, _)| *a == at).map(|(_, b)| b)
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

const UNKNOWN: &str =
    "execute mbarrier.init first, and make it visible to every thread and copy that uses the mbarrier";

impl Asynchronous {
    fn barriers(&mut self, memory: &Memory, buffer: usize) -> &mut Barriers {
        let cta = buffer.saturating_sub(memory.shared_buffer(CtaSlot(0)));
        if self.barriers.len() <= cta {
            self.barriers.resize_with(cta + 1, Barriers::default);
        }
        &mut self.barriers[cta]
    }

    fn find(&self, memory: &Memory, at: Spot) -> Option<&Mbarrier> {
        let list = self.barriers.get(at.buffer.checked_sub(memory.shared_buffer(CtaSlot(0)))?)?;
        list.0.iter().find(|(a, _)| *a == at.at).map(|(_, b)| b)
    }

    /// Executes `mbarrier.init`.
    pub(crate) fn init(&mut self, memory: &mut Memory, at: Spot, count: u32) -> Result<(), Wrong> {
        let list = self.barriers(memory, at.buffer);
        if let Some(b) = list.get(at.at)
            && memory.at(at, SIZE) == b.digest().to_le_bytes()
        {
            return Err((
                format!("this memory already holds an mbarrier, in phase {}", b.phase),
                "execute mbarrier.inval before the memory is used again",
            ));
        }
        list.0.retain(|(a, _)| a.abs_diff(at.at) >= SIZE);
        let b = Mbarrier::new(count);
        memory.store_at(at, &b.digest().to_le_bytes());
        list.0.push((at.at, b));
        // A polling warp looks again, even if the bytes are the same.
        memory.changes += 1;
        Ok(())
    }

    /// Executes `mbarrier.inval`.
    pub(crate) fn invalidate(&mut self, memory: &mut Memory, at: Spot) -> Result<(), Wrong> {
        self.valid(memory, at)?;
        self.barriers(memory, at.buffer).0.retain(|(a, _)| *a != at.at);
        memory.store_at(at, &[0xff; SIZE]);
        Ok(())
    }

    /// Returns the mbarrier at a location, if it exists and is intact.
    pub(crate) fn valid(&mut self, memory: &Memory, at: Spot) -> Result<&mut Mbarrier, Wrong> {
        let Some(b) = self.barriers(memory, at.buffer).get(at.at) else {
            return Err((
                "there is no mbarrier at this address: it was not initialised, or it was invalidated".into(),
                UNKNOWN,
            ));
        };
        if memory.at(at, SIZE) != b.digest().to_le_bytes() {
            let help = "use the mbarrier's memory only with mbarrier instructions until mbarrier.inval";
            return Err(("the mbarrier has been overwritten".into(), help));
        }
        Ok(b)
    }

    /// Changes an mbarrier, and begins its next phase if the current one is complete. All
    /// operations on mbarriers use this function. Returns the state before.
    pub(crate) fn change(
        &mut self,
        world: &mut World<'_>,
        at: Spot,
        by: Changer<'_>,
        f: impl FnOnce(&mut Mbarrier) -> Result<(), Wrong>,
    ) -> Result<u64, Wrong> {
        let b = self.valid(world.memory, at)?;
        let token = b.token();
        match (by, world.check.as_deref_mut()) {
            (Changer::Thread(slot, lane), Some(d)) => d.leave(slot, 1 << lane, &mut b.clock),
            (Changer::Relaxed(slot, lane), Some(d)) => d.leave_fenced(slot, lane, Scope::Cta, &mut b.clock),
            (Changer::Operation(Some(ticket)), _) => ticket.publish(&mut b.clock, false),
            _ => {}
        }
        f(b)?;
        b.settle();
        let digest = b.digest().to_le_bytes();
        world.memory.store_at(at, &digest);
        Ok(token)
    }

    /// Acquires the releases of the phase before for a lane that has found it complete.
    pub(crate) fn acquire(&self, memory: &Memory, d: &mut Detector, at: Spot, slot: WarpSlot, lane: usize) {
        if let Some(b) = self.find(memory, at) {
            d.take(slot, 1 << lane, &b.complete);
        }
    }

    /// The bytes that the phase of an mbarrier expects beyond those that have arrived, if it waits
    /// for nothing else.
    pub(crate) fn lacks(&self, memory: &Memory, at: Spot) -> Option<i64> {
        let Mbarrier { pending: 0, tx, .. } = self.find(memory, at)? else { return None };
        Some(*tx).filter(|n| *n > 0)
    }

    pub(crate) fn describe(&self, memory: &Memory, at: Spot) -> String {
        match self.find(memory, at) {
            None => "there is no mbarrier at this address".into(),
            Some(Mbarrier { phase, expected, pending, tx, .. }) => {
                let parity = *phase & 1;
                let bytes = match *tx {
                    0 => String::new(),
                    n if n > 0 => format!(" and {n} bytes of asynchronous copies"),
                    n => format!(" and has {} bytes more than it expects", -n),
                };
                format!(
                    "phase {phase} (parity {parity}) waits for {pending} more of its {expected} arrivals{bytes}"
                )
            }
        }
    }
}
