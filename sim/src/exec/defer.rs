//! Loads that read later than their place in the program says.
//!
//! The memory model orders a weak or relaxed load with later accesses to other locations only by fences, acquires and
//! releases, and hardware issues what does not depend on it meanwhile: load buffering, and readers that see two writes in
//! different orders, come from this. Here such a load is put off while the warp goes on with instructions that use none of
//! its registers and reach other memory. Anything else makes it read first: whatever is not known to be independent,
//! fences, barriers, acquires, releases and atomics included.

use super::access::Space;
use super::{Context, Fault, Reg};
use crate::exec::code::{Code, Inst};
use crate::model::{Lanes, lanes};
use smallvec::SmallVec;

/// Addresses of a warp's lanes, from the lowest byte to the end of the highest.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reach {
    pub first: u64,
    pub end: u64,
}

impl Reach {
    /// Of the active lanes' accesses; none in spaces that no other thread reaches.
    pub(crate) fn of(space: Space, addresses: &Lanes, bytes: usize, active: u32) -> Option<Reach> {
        if matches!(space, Space::Local | Space::Param | Space::Const) {
            return None;
        }
        let first = lanes(active).map(|l| addresses[l]).min()?;
        let last = lanes(active).map(|l| addresses[l]).max()?;
        Some(Reach { first, end: last.saturating_add(bytes as u64) })
    }

    fn overlaps(self, other: Reach) -> bool {
        self.first < other.end && other.first < self.end
    }
}

/// What an instruction uses, where it does nothing else.
#[derive(Debug, Default)]
pub(crate) struct Footprint {
    pub reads: SmallVec<[Reg; 4]>,
    pub writes: SmallVec<[Reg; 4]>,
    pub reach: Option<Reach>,
}

/// A load that has not read.
#[derive(Debug)]
pub(crate) struct Deferred {
    pub pc: u32,
    pub mask: u32,
    /// The warp has waited for it.
    waited: bool,
    footprint: Footprint,
}

impl Deferred {
    /// Whether an instruction may come before it.
    pub(crate) fn yields_to(&self, other: &Footprint) -> bool {
        let mine = &self.footprint;
        let clash = |a: &[Reg], b: &[Reg]| a.iter().any(|r| b.contains(r));
        let registers = clash(&mine.writes, &other.reads)
            || clash(&mine.writes, &other.writes)
            || clash(&mine.reads, &other.writes);
        let memory = mine.reach.zip(other.reach).is_some_and(|(a, b)| a.overlaps(b));
        !registers && !memory
    }
}

/// Whether a warp may put a load off, and the one that it has put off.
#[derive(Debug, Default)]
pub(crate) enum Deferral {
    #[default]
    Never,
    Free,
    Taken(Box<Deferred>),
}

impl Deferral {
    /// Whether loads may be put off from now on.
    pub(crate) fn allow(&mut self, may: bool) {
        if !self.is_taken() {
            *self = if may { Deferral::Free } else { Deferral::Never };
        }
    }

    #[inline]
    pub(crate) fn is_taken(&self) -> bool {
        matches!(self, Deferral::Taken(_))
    }

    /// Takes the load out that is put off; no other is until [`Deferral::Free`] is set again.
    fn take(&mut self) -> Option<Box<Deferred>> {
        match std::mem::take(self) {
            Deferral::Taken(deferred) => Some(deferred),
            Deferral::Never | Deferral::Free => None,
        }
    }
}

impl Context<'_> {
    /// Puts the executing load off, if it is to be.
    #[inline]
    pub(crate) fn defer(&mut self, footprint: impl FnOnce(&Self) -> Footprint) -> bool {
        if !matches!(self.deferral, Deferral::Free)
            // A load that polls is not put off: who waits is told by what it reads.
            || self.poll.pc == self.pc
            || !self.memory.delayed.draws_load()
        {
            return false;
        }
        let footprint = footprint(self);
        let deferred = Deferred { pc: self.pc, mask: self.active, waited: false, footprint };
        *self.deferral = Deferral::Taken(Box::new(deferred));
        true
    }

    /// Lets the load read that is put off, unless the next instruction may come before it. Answers whether the warp goes
    /// on: else it waits for what it loads, and other warps go on meanwhile.
    #[cold]
    pub(crate) fn read_first(&mut self, code: &Code, next: &Inst) -> Result<bool, Fault> {
        let footprint = next.op.footprint(self);
        let Deferral::Taken(deferred) = &mut *self.deferral else { return Ok(true) };
        if footprint.is_some_and(|footprint| deferred.yields_to(&footprint)) {
            return Ok(true);
        }
        if !std::mem::replace(&mut deferred.waited, true) && self.memory.delayed.draws_wait() {
            return Ok(false);
        }
        let Some(deferred) = self.deferral.take() else { return Ok(true) };
        let (pc, active) = (self.pc, self.active);
        (self.pc, self.active) = (deferred.pc, deferred.mask);
        code.insts[deferred.pc as usize].op.execute(self)?;
        (self.pc, self.active) = (pc, active);
        *self.deferral = Deferral::Free;
        Ok(true)
    }
}
