//! Pending asynchronous copies: `cp.async`, bulk and tensor copies, and the events that complete
//! them.
//!
//! An issued operation completes when the manual allows it, drawn from the machine's seed: at once,
//! some rounds of the schedule later, or not before a thread waits for it. Until then the
//! destination keeps its old contents, and the source may not have been read. Bulk copies are cut
//! into pieces that complete separately.
//!
//! * A `cp.async` belongs to the current group of its thread. A wait for the group completes it,
//!   and so does the arrival of `cp.async.mbarrier.arrive`.
//! * A bulk copy with an mbarrier completes some time without a wait, and subtracts its bytes from
//!   the mbarrier's tx-count.
//! * A bulk copy of a group of its thread (`bulk_group`) is remembered until a thread has waited
//!   for it, complete or not, since shared memory must not end before it has been read.

mod groups;
mod issue;
pub(crate) mod mbarrier;
mod run;
pub(crate) mod tensor;

use super::FaultInfo;
use crate::check::detector::Ticket;
use crate::check::{AccessKind, Detector};
use crate::codes;
use crate::exec::access::{from_le, put_le};
use crate::exec::trace::Log;
use crate::memory::{Memory, Spot};
use crate::model::{CtaSlot, Table, WarpSlot};
use crate::num::Combine;
use crate::rng::Rng;
use groups::Groups;
use mbarrier::{Barriers, Changer};
use std::sync::Arc;

/// The largest number of pending copies of a warp, and of pending bulk operations of the machine.
/// Beyond it, the older half completes.
const DEPTH: usize = 1 << 14;

/// The thread that issued an operation.
#[derive(Debug, Clone)]
pub(crate) struct Origin {
    /// The warp's slot; none if the warp has ended.
    pub slot: Option<WarpSlot>,
    pub lane: usize,
    pub grid: usize,
    pub pe: usize,
    pub ctaid: [u32; 3],
    pub tid: [u32; 3],
    pub pc: u32,
}

/// A range of bytes that move together. Without a source they are filled.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Segment {
    pub from: Option<Spot>,
    pub to: Spot,
    pub len: usize,
}

/// A reduction into the destination, for each element.
pub(crate) struct Reduction {
    pub combine: Combine,
    /// The size of an element in bytes.
    pub element: usize,
    /// Whether it is atomic for the whole system (`.relaxed.sys`) or only for this GPU.
    pub of_system: bool,
}

/// The event by which an operation reports its completion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Completion {
    /// The operation subtracts its bytes from the mbarrier's tx-count.
    Mbarrier(Spot),
    /// The operation belongs to the thread's current group.
    Group,
}

/// A bulk operation.
#[derive(Clone)]
pub(crate) struct Transfer {
    pub segments: Vec<Segment>,
    /// Whether its bytes use the links between PEs. Those of a multicast are counted for their
    /// team.
    pub links: bool,
    /// The repeated value of bytes without a source.
    pub fill: [u8; 2],
    /// The conversion of the bits of 4-byte elements that have a source.
    pub convert: Option<tensor::Convert>,
    pub reduction: Option<Arc<Reduction>>,
    /// The sources of the segments, one after another, once they have been read.
    pub data: Option<Vec<u8>>,
}

impl Transfer {
    /// A transfer that copies these segments.
    pub(crate) fn new(segments: Vec<Segment>) -> Transfer {
        Transfer { segments, links: true, fill: [0; 2], convert: None, reduction: None, data: None }
    }

    fn bytes(&self) -> usize {
        self.segments.iter().map(|s| s.len).sum()
    }

    /// The shared memories that contain the source or the destination.
    fn uses(&self, memory: &Memory, completion: Completion) -> [usize; 2] {
        let first = self.segments.first();
        let from = first.and_then(|s| s.from).map(|s| s.buffer);
        let to = match completion {
            Completion::Mbarrier(b) => Some(b.buffer),
            Completion::Group => first.map(|s| s.to.buffer),
        };
        [from, to].map(|b| b.filter(|&b| b >= memory.shared_buffer(CtaSlot(0))).unwrap_or(usize::MAX))
    }
}

enum Work {
    Transfer(Transfer, Completion),
    /// Arrivals of lanes of a warp's slot, which happen when their copies up to a number are
    /// complete.
    Arrive {
        slot: WarpSlot,
        at: Vec<(usize, Spot, Option<Ticket>)>,
        up_to: u64,
    },
    /// A transfer of a group that is complete, and that no thread has waited for.
    Landed,
}

/// A pending operation.
struct Pending {
    /// The number in the order of issue.
    number: u64,
    origin: Origin,
    work: Work,
    /// The number of its group among those of the thread.
    group: u32,
    /// Whether a thread has waited until its source was read.
    read: bool,
    /// The shared memories that it uses.
    uses: [usize; 2],
    ticket: Option<Ticket>,
}

impl Pending {
    fn is_landed(&self) -> bool {
        matches!(self.work, Work::Landed)
    }

    fn is_of_group(&self) -> bool {
        matches!(self.work, Work::Landed | Work::Transfer(_, Completion::Group))
    }
}

/// An error at the completion of an operation.
pub(crate) struct Failure {
    pub origin: Origin,
    pub fault: FaultInfo,
}

/// The state that a completion changes.
pub(crate) struct World<'a> {
    pub memory: &'a mut Memory,
    pub check: Option<&'a mut Detector>,
}

pub(crate) struct Asynchronous {
    rng: Rng,
    /// By slot of the warp.
    warps: Table<WarpSlot, Groups>,
    queue: Vec<Pending>,
    /// By CTA.
    barriers: Vec<Barriers>,
    /// The number of operations issued so far.
    issued: u64,
    /// The log for a timeline.
    pub log: Option<Box<Log>>,
}

impl Asynchronous {
    pub(crate) fn new(seed: u64) -> Asynchronous {
        Asynchronous {
            // The random sequence is separate from that of the schedule.
            rng: Rng(seed ^ 0x6173_796e_6300_0000),
            warps: Table::default(),
            queue: Vec::new(),
            barriers: Vec::new(),
            issued: 0,
            log: None,
        }
    }

    /// Whether only copies of groups are pending.
    fn is_idle(&self) -> bool {
        self.queue.is_empty()
    }

    /// Returns true in one of `n` cases.
    fn chance(&mut self, n: u64) -> bool {
        self.rng.next().is_multiple_of(n)
    }

    /// Advances by a round of the schedule.
    pub(crate) fn tick(&mut self, world: &mut World<'_>) -> Result<(), Box<Failure>> {
        let mut i = 0;
        while i < self.queue.len() {
            if !self.queue[i].is_landed() && self.chance(4) {
                i += usize::from(!self.land(world, i)?);
            } else {
                i += 1;
            }
        }
        Ok(())
    }

    /// Completes an operation if no thread can continue, or if nothing has changed for long.
    /// Returns `false` if nothing is pending.
    pub(crate) fn hasten(&mut self, world: &mut World<'_>) -> Result<bool, Box<Failure>> {
        let all: Vec<usize> = (0..self.queue.len()).filter(|&i| !self.queue[i].is_landed()).collect();
        if all.is_empty() {
            return Ok(false);
        }
        let chosen = self.rng.next() as usize % all.len();
        self.land(world, all[chosen])?;
        Ok(true)
    }

    /// Completes the pending operations of a grid at its end.
    pub(crate) fn end_grid(&mut self, world: &mut World<'_>, grid: usize) -> Result<(), Box<Failure>> {
        let mut i = 0;
        while i < self.queue.len() {
            let p = &self.queue[i];
            let left = p.origin.grid == grid && !p.is_landed() && self.land(world, i)?;
            i += usize::from(!left);
        }
        Ok(())
    }

    /// Completes the remaining operations after the end of all kernels.
    pub(crate) fn finish(&mut self, world: &mut World<'_>) -> Result<(), Box<Failure>> {
        while self.hasten(world)? {}
        Ok(())
    }

    /// Completes an operation of the queue. Returns whether it has left the queue.
    fn land(&mut self, world: &mut World<'_>, i: usize) -> Result<bool, Box<Failure>> {
        let p = &mut self.queue[i];
        let stays = p.is_of_group() && !p.read;
        match std::mem::replace(&mut p.work, Work::Landed) {
            Work::Landed => return Ok(false),
            Work::Transfer(t, completion) => {
                let bytes = t.bytes();
                if let Some(log) = &mut self.log {
                    log.land(p.number);
                }
                carry(world.memory, &t);
                if stays {
                    return Ok(false);
                }
                let p = self.queue.swap_remove(i);
                if let Completion::Mbarrier(at) = completion {
                    self.complete(world, &p.origin, p.ticket.as_ref(), at, |b| b.expect(-(bytes as i64)))?;
                }
            }
            Work::Arrive { slot, at, up_to } => {
                let p = self.queue.swap_remove(i);
                for (lane, at, ticket) in at {
                    self.land_copies(world, slot, |c| usize::from(c.lane) == lane && c.number <= up_to);
                    self.complete(world, &p.origin, ticket.as_ref(), at, |b| b.arrive(1))?;
                }
            }
        }
        Ok(true)
    }

    /// Reports the completion of an operation to an mbarrier.
    fn complete(
        &mut self,
        world: &mut World<'_>,
        origin: &Origin,
        ticket: Option<&Ticket>,
        at: Spot,
        change: impl FnOnce(&mut mbarrier::Mbarrier) -> Result<(), mbarrier::Wrong>,
    ) -> Result<(), Box<Failure>> {
        let done = self.change(world, at, Changer::Operation(ticket), change);
        done.map(|_| ()).map_err(|(message, help)| {
            let message =
                format!("when the operation completed on the mbarrier at shared {:#x}: {message}", at.at);
            let fault = FaultInfo {
                code: codes::ASYNCHRONOUS,
                message,
                help: help.into(),
                lane: Some(origin.lane),
                shared: None,
            };
            Box::new(Failure { origin: origin.clone(), fault })
        })
    }

    /// Handles the end of a warp: the copies of its threads complete, and their groups lose their
    /// owner.
    pub(crate) fn end_warp(&mut self, world: &mut World<'_>, slot: WarpSlot) {
        if self.warps.get(slot).is_some() {
            self.land_copies(world, slot, |_| true);
            self.warps[slot] = Groups::default();
        }
        for p in self.queue.iter_mut().filter(|p| p.origin.slot == Some(slot)) {
            p.origin.slot = None;
        }
    }

    /// Handles the end of a CTA and of its shared memory, which pending operations must not use any
    /// more.
    pub(crate) fn end_cta(&mut self, memory: &Memory, buffer: usize) -> Result<(), Box<Failure>> {
        if let Some(b) = self.barriers.get_mut(buffer - memory.shared_buffer(CtaSlot(0))) {
            b.clear();
        }
        // An arrival without a waiting thread has no effect.
        self.queue.retain(|p| !(p.uses.contains(&buffer) && matches!(p.work, Work::Arrive { .. })));
        let Some(p) = self.queue.iter().find(|p| p.uses.contains(&buffer) && !p.read) else { return Ok(()) };
        let (message, help) = if p.uses[0] == buffer {
            (
                "the CTA ends while this operation may still read its shared memory",
                "wait with cp.async.bulk.wait_group.read 0, in the thread that issued it, before the CTA's threads exit",
            )
        } else {
            (
                "the CTA ends while this operation still writes its shared memory",
                "wait at the mbarrier on which it completes before the CTA's threads exit",
            )
        };
        let fault = FaultInfo {
            code: codes::ASYNCHRONOUS,
            message: message.into(),
            help: help.into(),
            lane: Some(p.origin.lane),
            shared: None,
        };
        Err(Box::new(Failure { origin: p.origin.clone(), fault }))
    }
}

/// Moves or reduces the bytes of an operation. No other function reads and writes memory for
/// pending operations.
fn carry(memory: &mut Memory, t: &Transfer) {
    let mut taken = 0;
    let mut bytes = Vec::new();
    for s in &t.segments {
        bytes.clear();
        match (&t.data, s.from) {
            (Some(data), _) => bytes.extend_from_slice(&data[taken..taken + s.len]),
            (None, Some(from)) => bytes.extend_from_slice(memory.at(from, s.len)),
            (None, None) => bytes.extend(t.fill.iter().cycle().take(s.len)),
        }
        taken += s.len;
        if let Some(convert) = t.convert.filter(|_| s.from.is_some()) {
            bytes.chunks_exact_mut(4).for_each(|e| put_le(e, convert(from_le(e))));
        }
        if let Some(r) = &t.reduction {
            let old = memory.at(s.to, s.len);
            for (old, new) in old.chunks_exact(r.element).zip(bytes.chunks_exact_mut(r.element)) {
                put_le(new, (r.combine)(from_le(old), from_le(new)));
            }
        }
        memory.store_at(s.to, &bytes);
    }
}

/// Reads the sources of an operation, unless that has been done.
fn take(memory: &Memory, t: &mut Transfer) {
    if t.data.is_some() {
        return;
    }
    let mut data = Vec::with_capacity(t.bytes());
    for s in &t.segments {
        match s.from {
            Some(from) => data.extend_from_slice(memory.at(from, s.len)),
            None => data.extend(t.fill.iter().cycle().take(s.len)),
        }
    }
    t.data = Some(data);
}

/// Informs the detector of the memory that an operation will read and write.
fn announce<'a>(
    d: &mut Detector,
    memory: &Memory,
    ticket: &Ticket,
    writes: AccessKind,
    segments: impl Iterator<Item = &'a Segment>,
) {
    for s in segments {
        if let Some(from) = s.from {
            if !memory.is_written(from.buffer, from.at, s.len) {
                d.land_uninitialised(ticket, (from.buffer, from.at, s.len));
            }
            d.land(ticket, AccessKind::Read, from.buffer, from.at, s.len);
        }
        d.land(ticket, writes, s.to.buffer, s.to.at, s.len);
    }
}
