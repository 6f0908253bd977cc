//! Strong accesses and fences, and what they synchronise.

use super::*;
use crate::check::happens_before::happens_before;
use crate::memory::{Landed, UnderWay};
use crate::model::WarpSlot;
use crate::order::Fence;

impl Detector {
    /// Handles an access of lanes of a warp to the same bytes. The lanes may not see some of the
    /// pending stores to them. Returns whether a lower lane writes the bytes in the same
    /// instruction.
    pub(crate) fn touch(
        &mut self,
        slot: WarpSlot,
        mask: u32,
        what: &Touch,
        (space, at, bytes): (usize, usize, usize),
        mut under_way: UnderWay,
    ) -> bool {
        let Touch { pc, kind, order, same } = *what;
        let number = self.warps[slot].number;
        let mut record = Record::new(self.now, number, pc, mask, Agent::Thread, &order);
        record.flags = match kind {
            AccessKind::Update => UPDATE,
            AccessKind::Write if same & mask != 0 => UNCHANGED,
            _ => 0,
        };
        let place = (space, at, bytes);
        let Some(scope) = order.strong else {
            return self.compare((slot, None), record, kind, order.non_coherent, place);
        };
        if kind.writes() && (order.release || lanes(mask).all(|lane| self.has_fenced(slot, lane))) {
            record.flags |= RELEASED;
        }
        // Most locations of strong accesses synchronise nothing: they hold data that go through the switch.
        let synchronises = self.shadow.synchronises(space, words(at, bytes));
        let wanted = kind.reads() || under_way.landed.is_some();
        let latest = if wanted { self.latest_seen(space, at / 4, &under_way.unseen) } else { None };
        // Stores do not always land in the order in which they were made. When other operations land is not in their time.
        let overtakes = |s: &Landed| latest.is_some_and(|w| w.agent == Agent::Thread && w.time < s.landed);
        let overtaken = under_way.landed.filter(overtakes);
        under_way.seen = under_way.seen.or(overtaken.map(|s| s.made));
        if kind.reads() {
            // What an acquire learns comes before the acquire itself.
            for lane in lanes(mask) {
                self.unreleased(slot, lane, pc, latest);
                if synchronises {
                    self.observe(slot, lane, what, scope, place, &under_way);
                }
            }
        }
        let collides = self.compare((slot, None), record, kind, order.non_coherent, place);
        if kind.reads() {
            self.read_strongly(&record, &under_way, place);
        }
        if kind.writes() {
            for lane in lanes(mask) {
                let left = self.warps[slot].release(lane, &order, self.now, pc);
                if synchronises || !left.is_empty() {
                    self.release(slot, lane, what, scope, place, (&left, &under_way.unseen));
                }
            }
        }
        if self.sequential.on {
            self.access_behind_fences(slot, mask, kind, place, &under_way);
        }
        collides
    }

    /// The latest write to a word that is visible to a lane which does not see these pending
    /// stores.
    fn latest_seen(&mut self, space: usize, word: usize, unseen: &[u64]) -> Option<Record> {
        let write = self.shadow.cell(space, word).write;
        let sync = write.sync();
        let latest = self.shadow.records(&write).iter().rev().find(|r| !unseen.contains(&r.time));
        latest.map(|r| Record { flags: r.flags | sync, ..*r })
    }

    /// Remembers which of the pending stores a strong read has seen.
    fn read_strongly(
        &mut self,
        read: &Record,
        under_way: &UnderWay,
        (space, at, bytes): (usize, usize, usize),
    ) {
        if !under_way.unseen.is_empty() || under_way.seen.is_some() {
            for word in words(at, bytes) {
                self.stale.entry((space, word)).or_default().add(read, under_way);
            }
        }
    }

    /// Handles a strong read of a lane: it acquires the releases at the location, now or at the
    /// lane's next fence.
    fn observe(
        &mut self,
        slot: WarpSlot,
        lane: usize,
        what: &Touch,
        scope: Scope,
        (space, at, bytes): (usize, usize, usize),
        under_way: &UnderWay,
    ) {
        let Touch { pc, order, .. } = *what;
        for word in words(at, bytes) {
            let place = (space, word);
            if self.shadow.cell(space, word).write.sync() == 0 {
                continue;
            }
            let Some(var) = self.variables.get(&place) else { continue };
            let (number, cta) = (self.warps[slot].number, self.ctas_of(slot));
            let mut releases = ReadReleases {
                threads: &self.threads,
                raws: &mut self.raws,
                misses: &mut self.misses,
                passed: &mut self.passed,
                cta,
                reader: (number, lane as u32),
                now: self.now,
            };
            let mut miss = |why, left: &Released, pc| releases.note(why, left, pc);
            let bytes = within(word, at, bytes);
            let read = StrongRead { lane, place, bytes, scope, acquire: order.acquire, pc, under_way };
            patterns::observe(&self.threads, &mut self.warps[slot], var, read, &mut miss);
        }
    }

    /// Handles a strong write of a lane, which leaves its releases. `unseen` are the pending stores
    /// that the lane does not see.
    fn release(
        &mut self,
        slot: WarpSlot,
        lane: usize,
        what: &Touch,
        scope: Scope,
        (space, at, bytes): (usize, usize, usize),
        (left, unseen): (&Releases, &[u64]),
    ) {
        let warp = &self.warps[slot];
        for word in words(at, bytes) {
            let cell = self.shadow.cell(space, word);
            if left.is_empty() && cell.write.sync() == 0 {
                continue;
            }
            let var = self.variables.entry((space, word)).or_default();
            let write = StrongWrite {
                by: Carrier::new(warp.number, scope, self.now),
                lane,
                bytes: within(word, at, bytes),
                update: what.kind == AccessKind::Update,
                time: self.now,
                unseen,
            };
            var.write(&self.threads, left.clone(), write);
            if var.is_empty() {
                self.variables.remove(&(space, word));
                cell.write.flags &= !SYNC;
            } else {
                cell.write.flags |= SYNC;
            }
        }
    }

    /// Notes that a strong read has read a value that another thread wrote without a release.
    fn unreleased(&mut self, slot: WarpSlot, lane: usize, pc: u32, write: Option<Record>) {
        let number = self.warps[slot].number;
        let other = |w: &Record| {
            w.flags & SYNC == 0 && w.agent == Agent::Thread && (w.warp != number || w.lanes != 1 << lane)
        };
        let Some(w) = write.filter(other) else { return };
        let why = if w.strong.is_some() { Unordered::NoRelease } else { Unordered::WeakWrite };
        let miss = Miss {
            why,
            chain: w.flags & UPDATE != 0,
            writer: w.warp,
            writer_lane: w.lanes.trailing_zeros().min(31),
            write_pc: w.pc,
            write_time: w.time,
            reader: number,
            reader_lane: lane as u32,
            read_pc: pc,
            read_time: self.now,
        };
        let cta = self.ctas_of(slot);
        note(self.misses.entry(cta).or_default(), miss);
    }

    /// Handles a fence of some lanes.
    pub(crate) fn fence(&mut self, slot: WarpSlot, mask: u32, pc: u32, fence: Fence) {
        self.now += 1;
        let cta = self.ctas_of(slot);
        let number = self.warps[slot].number;
        for lane in lanes(mask) {
            if fence.sequential {
                self.follow_fences(slot, lane, fence.scope);
            }
            let now = self.now;
            let warp = &mut self.warps[slot];
            if fence.acquire {
                let mut releases = ReadReleases {
                    threads: &self.threads,
                    raws: &mut self.raws,
                    misses: &mut self.misses,
                    passed: &mut self.passed,
                    cta,
                    reader: (number, lane as u32),
                    now,
                };
                let mut miss = |why, left: &Released, read_pc| releases.note(why, left, read_pc);
                patterns::learn(&self.threads, warp, lane, fence.scope, |_| true, &mut miss);
            }
            if fence.release {
                let from = warp.snapshot(lane, now, pc);
                warp.lane(lane).fence(fence.scope, fence.sequential, from);
            }
        }
    }

    /// Whether a lane has executed a release fence.
    pub(crate) fn has_fenced(&self, slot: WarpSlot, lane: usize) -> bool {
        self.warps[slot].lanes.as_ref().is_some_and(|l| l[lane].has_fenced())
    }

    /// Notes a strong access of lanes. It tells later which `fence.sc` come before others.
    fn access_behind_fences(
        &mut self,
        slot: WarpSlot,
        mask: u32,
        kind: AccessKind,
        (space, at, bytes): (usize, usize, usize),
        under_way: &UnderWay,
    ) {
        for word in words(at, bytes) {
            let place = (space, word);
            let time = match kind.writes() {
                true => self.now,
                false => {
                    let latest = self.latest_seen(space, word, &under_way.unseen);
                    under_way.seen.or(latest.map(|w| w.time)).unwrap_or(0)
                }
            };
            let version = Version { time, under_way: under_way.unseen.clone() };
            for lane in lanes(mask) {
                self.sequential.access(place, &version, self.warps[slot].sequential(lane));
                if kind.reads() {
                    let latest = self.warps[slot].lane(lane).observed.entry(place).or_default();
                    *latest = time.max(*latest);
                }
            }
        }
    }

    /// Adds to a lane's `fence.sc` what threads knew at the fences that must precede it.
    fn follow_fences(&mut self, slot: WarpSlot, lane: usize, scope: Scope) {
        let Detector { warps, threads, shadow, sequential, now, .. } = self;
        let warp = &mut warps[slot];
        let me = Record::new(*now, warp.number, 0, 1 << lane, Agent::Thread, &Order::WEAK);
        let known = |place: CodeLocation| {
            let observed = warp.lanes.as_ref().and_then(|l| l[lane].observed.get(&place).copied());
            let clock = warp.clock(lane);
            let write = shadow.cell(place.0, place.1).write;
            let happened = |w: &&Record| happens_before(threads, w, AccessKind::Write, (&me, lane), clock);
            let known = shadow.records(&write).iter().filter(happened);
            known.map(|w| w.time).chain(observed).collect()
        };
        let fences = sequential.before(threads, (scope, warp.number), known);
        let me = (warp.number, lane as u32);
        for fence in fences.iter().filter(|f| (f.warp, f.lane) != me) {
            fence.join_into(threads, warp.clock_mut(lane));
        }
    }
}
