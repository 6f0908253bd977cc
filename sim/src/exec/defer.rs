//! Loads that are executed later than their position in the program.
//!
//! The memory model orders a weak or relaxed load with later accesses to other locations only by
//! fences, acquires and releases. Hardware meanwhile issues instructions that do not depend on the
//! load. This causes load buffering, and readers that see two writes in different orders. Here such
//! a load is deferred while the warp executes instructions that use none of its registers and
//! access other memory. Any other instruction forces the load first: instructions that are not
//! known to be independent, fences, barriers, acquires, releases and atomics.

use super::access::Space;
use super::{Context, Fault, Reg};
use crate::exec::code::{Code, Inst};
use crate::model::{Lanes, lanes};
use smallvec::SmallVec;

/// The range of addresses of a warp's lanes, from the lowest byte to the end of the highest.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AddressRange {
    pub first: u64,
    pub end: u64,
}

impl AddressRange {
    /// The range of the active lanes' accesses; none in spaces that no other thread can access.
    pub(crate) fn of(space: Space, addresses: &Lanes, bytes: usize, active: u32) -> Option<AddressRange> {
        if matches!(space, Space::Local | Space::Param | Space::Const) {
            return None;
        }
        let first = lanes(active).map(|l| addresses[l]).min()?;
        let last = lanes(active).map(|l| addresses[l]).max()?;
        Some(AddressRange { first, end: last.saturating_add(bytes as u64) })
    }

    fn overlaps(self, other: AddressRange) -> bool {
        self.first < other.end && other.first < self.end
    }
}

/// The registers and memory that an instruction uses, if it has no other effect.
#[derive(Debug, Default)]
pub(crate) struct Footprint {
    pub reads: SmallVec<[Reg; 4]>,
    pub writes: SmallVec<[Reg; 4]>,
    pub reach: Option<AddressRange>,
}

/// A load that has not been executed yet.
#[derive(Debug)]
pub(crate) struct Deferred {
    pub pc: u32,
    pub mask: u32,
    /// Whether the warp has waited for the load.
    waited: bool,
    footprint: Footprint,
}

impl Deferred {
    /// Whether another instruction may be executed before it.
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

/// Whether a warp may defer a load, and the load that it has deferred.
#[derive(Debug, Default)]
pub(crate) enum Deferral {
    #[default]
    Never,
    Free,
    Taken(Box<Deferred>),
}

impl Deferral {
    /// Sets whether loads may be deferred from now on.
    pub(crate) fn allow(&mut self, may: bool) {
        if !self.is_taken() {
            *self = if may { Deferral::Free } else { Deferral::Never };
        }
    }

    #[inline]
    pub(crate) fn is_taken(&self) -> bool {
        matches!(self, Deferral::Taken(_))
    }

    /// Takes the deferred load out. No other load is deferred until [`Deferral::Free`] is set
    /// again.
    fn take(&mut self) -> Option<Box<Deferred>> {
        match std::mem::take(self) {
            Deferral::Taken(deferred) => Some(deferred),
            Deferral::Never | Deferral::Free => None,
        }
    }
}

impl Context<'_> {
    /// Defers the load that is being executed, if possible.
    #[inline]
    pub(crate) fn defer(&mut self, footprint: impl FnOnce(&Self) -> Footprint) -> bool {
        if !matches!(self.deferral, Deferral::Free)
            // A polling load is not deferred, since its value tells what the warp waits for.
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

    /// Executes the deferred load, unless the next instruction may come before it. Returns whether
    /// the warp continues; if not, it waits for the loaded value while other warps run.
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
