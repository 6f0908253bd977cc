//! `cp.async` and groups: the copies that a thread has issued, committed and waited for.

use super::{Asynchronous, DEPTH, Segment, Transfer, Work, World, carry, take};
use crate::check::detector::Ticket;
use crate::check::{Agent, Detector, Stream};
use crate::model::{LANES, WarpSlot, lanes};

/// A `cp.async` of one lane.
pub(super) struct Copy {
    pub number: u64,
    pub lane: u8,
    group: u32,
    /// The copied bytes, and the bytes after them that are filled with zeros.
    segments: [Option<Segment>; 2],
}

/// The committed groups of a warp's lanes: the number of each lane, and the times for the detector.
#[derive(Default)]
struct Committed {
    count: [u32; LANES],
    marks: Vec<(usize, u32, Ticket)>,
}

impl Committed {
    fn commit(&mut self, mask: u32, mut mark: impl FnMut(usize) -> Option<Ticket>) {
        for lane in lanes(mask) {
            if let Some(t) = mark(lane) {
                self.marks.push((lane, self.count[lane], t));
            }
            self.count[lane] += 1;
        }
    }

    /// The number below which all groups of a lane are complete if only the latest `n` are not.
    fn limit(&self, lane: usize, n: u32) -> u32 {
        self.count[lane].saturating_sub(n)
    }

    /// Notes that a lane has waited for the groups below `limit`.
    fn learn(&mut self, d: &mut Detector, slot: WarpSlot, lane: usize, limit: u32, only_read: bool) {
        let due = |m: &(usize, u32, Ticket)| m.0 == lane && m.1 < limit;
        if let Some((_, _, ticket)) = self.marks.iter().filter(|m| due(m)).max_by_key(|m| m.1) {
            d.learn(slot, lane, ticket, only_read);
        }
        if !only_read {
            self.marks.retain(|m| !due(m));
        }
    }
}

/// The pending copies and groups of a warp.
#[derive(Default)]
pub(super) struct Groups {
    copies: Vec<Copy>,
    copied: Committed,
    bulk: Committed,
}

/// The source and destination of a `cp.async` of one lane.
pub(crate) struct Piece {
    pub lane: usize,
    pub segments: [Option<Segment>; 2],
}

impl Asynchronous {
    fn warp(&mut self, slot: WarpSlot) -> &mut Groups {
        self.warps.entry(slot, Groups::default)
    }

    /// The current group of a lane's bulk operations.
    pub(super) fn bulk_group(&mut self, slot: WarpSlot, lane: usize) -> u32 {
        self.warp(slot).bulk.count[lane]
    }

    /// Issues copies of the lanes of a warp.
    pub(crate) fn copy(
        &mut self,
        world: &mut World<'_>,
        slot: WarpSlot,
        pieces: impl Iterator<Item = Piece>,
    ) {
        let number = self.number();
        let w = self.warp(slot);
        for Piece { lane, segments } in pieces {
            let group = w.copied.count[lane];
            w.copies.push(Copy { number, lane: lane as u8, group, segments });
        }
        let size = w.copies.len();
        if size > DEPTH {
            let middle = w.copies[size / 2].number;
            self.land_copies(world, slot, |c| c.number <= middle);
        } else if self.chance(3) {
            self.land_copies(world, slot, |c| c.number == number);
        }
    }

    /// Executes `cp.async.commit_group` and `cp.async.bulk.commit_group`.
    pub(crate) fn commit(&mut self, world: &mut World<'_>, slot: WarpSlot, mask: u32, pc: u32, bulk: bool) {
        let check = &mut world.check;
        let (agent, stream) = if bulk { (Agent::Async, Stream::Bulk) } else { (Agent::Copy, Stream::Copies) };
        let w = self.warp(slot);
        let groups = if bulk { &mut w.bulk } else { &mut w.copied };
        groups.commit(mask, |lane| check.as_deref_mut().map(|d| d.begin_in(slot, lane, pc, agent, stream)));
        // Some of the pending copies complete before a thread waits for them.
        if !bulk && self.chance(4) {
            let some = self.rng.next();
            self.land_copies(world, slot, |c| some >> (c.number % 64) & 1 != 0);
        }
    }

    /// Waits for all `cp.async` groups but the latest `n` of these lanes.
    pub(crate) fn wait_copies(&mut self, world: &mut World<'_>, slot: WarpSlot, mask: u32, n: u32) {
        let Some(w) = self.warps.get(slot) else { return };
        let limits: [u32; LANES] = std::array::from_fn(|lane| w.copied.limit(lane, n));
        self.land_copies(world, slot, |c| mask >> c.lane & 1 != 0 && c.group < limits[usize::from(c.lane)]);
        if let Some(d) = world.check.as_deref_mut() {
            let w = &mut self.warps[slot];
            lanes(mask).for_each(|lane| w.copied.learn(d, slot, lane, limits[lane], false));
        }
    }

    /// Waits for all bulk groups but the latest `n` of these lanes, until they are complete or
    /// their sources are read.
    pub(crate) fn wait_bulk(
        &mut self,
        world: &mut World<'_>,
        slot: WarpSlot,
        mask: u32,
        n: u32,
        only_read: bool,
    ) {
        let Some(w) = self.warps.get(slot) else { return };
        let limits: [u32; LANES] = std::array::from_fn(|lane| w.bulk.limit(lane, n));
        let mut i = 0;
        while i < self.queue.len() {
            let p = &mut self.queue[i];
            let lane = p.origin.lane;
            let due = p.origin.slot == Some(slot)
                && mask >> lane & 1 != 0
                && p.is_of_group()
                && p.group < limits[lane];
            if !due {
                i += 1;
                continue;
            }
            p.read = true;
            let mut work = std::mem::replace(&mut p.work, Work::Landed);
            if let Work::Transfer(t, _) = &mut work {
                take(world.memory, t);
                if only_read {
                    p.work = work;
                    i += 1;
                    continue;
                }
                carry(world.memory, t);
                if let Some(log) = &mut self.log {
                    log.land(p.number);
                }
            }
            self.queue.swap_remove(i);
        }
        if let Some(d) = world.check.as_deref_mut() {
            let w = &mut self.warps[slot];
            lanes(mask).for_each(|lane| w.bulk.learn(d, slot, lane, limits[lane], only_read));
        }
    }

    /// Completes the copies of a warp for which `chosen` returns true, in the order of issue or in
    /// reverse.
    pub(super) fn land_copies(
        &mut self,
        world: &mut World<'_>,
        slot: WarpSlot,
        chosen: impl Fn(&Copy) -> bool,
    ) {
        let Some(w) = self.warps.get_mut(slot).filter(|w| !w.copies.is_empty()) else { return };
        let mut due: Vec<Copy> = w.copies.extract_if(.., |c| chosen(c)).collect();
        if self.rng.next() & 1 != 0 {
            due.reverse();
        }
        for c in due {
            let t = Transfer::new(c.segments.into_iter().flatten().collect());
            carry(world.memory, &t);
        }
    }

    /// The number of the latest copy so far, for `cp.async.mbarrier.arrive`.
    pub(super) fn latest(&self) -> u64 {
        self.issued
    }
}
