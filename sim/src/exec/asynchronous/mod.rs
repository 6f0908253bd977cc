//! Asynchronous copies under way: `cp.async`, bulk and tensor copies, and what completes them.
//!
//! What has been issued lands when the manual allows it, drawn from the machine's seed: at once, some rounds of the
//! schedule later, or not before a thread waits for it. Until then the destination holds what it held, and the source
//! has perhaps not been read. Bulk copies are cut into pieces that land separately.
//!
//! * A `cp.async` belongs to its thread's group under way. Waiting for the group makes it land, and so does the arrival
//!   that `cp.async.mbarrier.arrive` leaves behind.
//! * A bulk copy with an mbarrier lands some day without being asked to, and takes its bytes off the mbarrier's tx-count.
//! * A bulk copy of a group of its thread's (`bulk_group`) is remembered until somebody has waited for it, landed or not:
//!   shared memory must not end before it has been read.

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
use mbarrier::{Barriers, By};
use std::sync::Arc;

/// Copies of a warp, and bulk operations of the machine, that may be under way; more make the older half land.
const DEPTH: usize = 1 << 14;

/// Who issued an operation.
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

/// Bytes that move together; without a source they are filled.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Segment {
    pub from: Option<Spot>,
    pub to: Spot,
    pub len: usize,
}

/// A reduction into the destination, element by element.
pub(crate) struct Reduction {
    pub combine: Combine,
    /// Bytes of an element.
    pub element: usize,
    /// Whether it is atomic for the whole system (`.relaxed.sys`); else for this GPU.
    pub of_system: bool,
}

/// What tells that an operation is complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Completion {
    /// The bytes are taken off the mbarrier's tx-count.
    Mbarrier(Spot),
    /// The thread's group under way.
    Group,
}

/// A bulk operation.
#[derive(Clone)]
pub(crate) struct Transfer {
    pub segments: Vec<Segment>,
    /// Its bytes go over the links between PEs; those of a multicast are counted by their team.
    pub links: bool,
    /// Repeats in what has no source.
    pub fill: [u8; 2],
    /// What is made of the bits of 4-byte elements that have a source.
    pub convert: Option<tensor::Convert>,
    pub reduction: Option<Arc<Reduction>>,
    /// The segments' sources, one after another, where they have been read.
    pub data: Option<Vec<u8>>,
}

impl Transfer {
    /// Copies these segments.
    pub(crate) fn new(segments: Vec<Segment>) -> Transfer {
        Transfer { segments, links: true, fill: [0; 2], convert: None, reduction: None, data: None }
    }

    fn bytes(&self) -> usize {
        self.segments.iter().map(|s| s.len).sum()
    }

    /// Shared memories among source and destination.
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
    /// Arrivals of lanes of a warp's slot, once their copies up to a number have landed.
    Arrive {
        slot: WarpSlot,
        at: Vec<(usize, Spot, Option<Ticket>)>,
        up_to: u64,
    },
    /// A transfer of a group that has landed and has not been waited for.
    Landed,
}

/// An operation under way.
struct Pending {
    /// In the order of issue.
    number: u64,
    origin: Origin,
    work: Work,
    /// Number of its group among the thread's.
    group: u32,
    /// Somebody has waited until its source was read.
    read: bool,
    /// Shared memories that it uses.
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

/// Something that went wrong as an operation landed.
pub(crate) struct Failure {
    pub origin: Origin,
    pub fault: FaultInfo,
}

/// What landings change.
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
    /// Operations issued so far.
    issued: u64,
    /// What a timeline is to show.
    pub log: Option<Box<Log>>,
}

impl Asynchronous {
    pub(crate) fn new(seed: u64) -> Asynchronous {
        Asynchronous {
            // Not the schedule's sequence.
            rng: Rng(seed ^ 0x6173_796e_6300_0000),
            warps: Table::default(),
            queue: Vec::new(),
            barriers: Vec::new(),
            issued: 0,
            log: None,
        }
    }

    /// Nothing is under way but copies of groups.
    fn is_idle(&self) -> bool {
        self.queue.is_empty()
    }

    /// One in `n`.
    fn chance(&mut self, n: u64) -> bool {
        self.rng.next().is_multiple_of(n)
    }

    /// A round of the schedule has passed.
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

    /// Nobody can go on, or nothing has changed for long: lands something. `false` if nothing is under way.
    pub(crate) fn hasten(&mut self, world: &mut World<'_>) -> Result<bool, Box<Failure>> {
        let all: Vec<usize> = (0..self.queue.len()).filter(|&i| !self.queue[i].is_landed()).collect();
        if all.is_empty() {
            return Ok(false);
        }
        let chosen = self.rng.next() as usize % all.len();
        self.land(world, all[chosen])?;
        Ok(true)
    }

    /// A grid has ended: lands what it has under way.
    pub(crate) fn end_grid(&mut self, world: &mut World<'_>, grid: usize) -> Result<(), Box<Failure>> {
        let mut i = 0;
        while i < self.queue.len() {
            let p = &self.queue[i];
            let left = p.origin.grid == grid && !p.is_landed() && self.land(world, i)?;
            i += usize::from(!left);
        }
        Ok(())
    }

    /// All kernels have ended: lands what is left.
    pub(crate) fn finish(&mut self, world: &mut World<'_>) -> Result<(), Box<Failure>> {
        while self.hasten(world)? {}
        Ok(())
    }

    /// Lands an operation of the queue; tells whether it has left it.
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

    /// An operation completes on an mbarrier.
    fn complete(
        &mut self,
        world: &mut World<'_>,
        origin: &Origin,
        ticket: Option<&Ticket>,
        at: Spot,
        change: impl FnOnce(&mut mbarrier::Mbarrier) -> Result<(), mbarrier::Wrong>,
    ) -> Result<(), Box<Failure>> {
        let done = self.change(world, at, By::Operation(ticket), change);
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

    /// A warp has ended: what its threads copied lands, and their groups are nobody's.
    pub(crate) fn end_warp(&mut self, world: &mut World<'_>, slot: WarpSlot) {
        if self.warps.get(slot).is_some() {
            self.land_copies(world, slot, |_| true);
            self.warps[slot] = Groups::default();
        }
        for p in self.queue.iter_mut().filter(|p| p.origin.slot == Some(slot)) {
            p.origin.slot = None;
        }
    }

    /// A CTA has ended, and with it its shared memory, which operations under way must not use any more.
    pub(crate) fn end_cta(&mut self, memory: &Memory, buffer: usize) -> Result<(), Box<Failure>> {
        if let Some(b) = self.barriers.get_mut(buffer - memory.shared_buffer(CtaSlot(0))) {
            b.clear();
        }
        // An arrival that nobody waits for has no effect.
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

/// Moves or reduces the bytes of an operation: the one place where memory is read and written by those under way.
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

/// Reads the sources of an operation, if that has not happened.
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

/// Tells the detector what an operation will read and write, whenever it does.
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
