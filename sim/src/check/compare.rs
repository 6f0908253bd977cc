//! Compares one access with the remembered earlier accesses, and remembers it.

use super::clock::Clock;
use super::detector::{Fault, within};
use super::happens_before::{happens_before, morally_strong, stands_for};
use super::shadow::{Cell, RELEASED, Record, UNCHANGED, UPDATE};
use super::stale::StaleReads;
use super::sync::{Threads, WarpState};
use super::{AccessKind, Agent};
use crate::model::lanes;
use smallvec::SmallVec;

/// In longer lists, the records of other warps are looked at only from time to time, unless they
/// may race.
const SHORT: usize = 16;

/// An access, with the knowledge of the threads that make it.
pub(super) struct Access<'a> {
    pub threads: &'a Threads,
    pub me: Record,
    pub kind: AccessKind,
    /// The clock of an operation that continues after its instruction.
    pub ticket: Option<&'a Clock>,
    /// The warp whose lanes access memory; none if there is a ticket.
    pub warp: Option<&'a WarpState>,
    pub non_coherent: bool,
}

/// The result of comparing an access with those of one cell.
#[derive(Default)]
pub(super) struct Comparison {
    pub wrong: Option<(Fault, Record, AccessKind)>,
    /// A lower lane writes the same bytes in the same instruction.
    pub collides: bool,
    /// The bytes that have been written before.
    pub written: u8,
    /// The part of each write and each read of the cell that stays remembered.
    pub writes: SmallVec<[Rest; SHORT]>,
    pub reads: SmallVec<[Rest; SHORT]>,
    /// Whether a write that stays remembered is ordered only by observation, and this access does
    /// not observe it.
    observed: bool,
}

/// The bytes and the lanes of a record that stay remembered.
#[derive(Clone, Copy)]
pub(super) struct Rest {
    pub bytes: u8,
    pub lanes: u32,
}

/// The records of a cell.
#[derive(Clone, Copy)]
pub(super) struct Remembered<'a> {
    pub writes: &'a [Record],
    pub reads: &'a [Record],
    /// Reads of this word that did not see pending stores.
    pub stale: Option<&'a StaleReads>,
}

impl<'a> Access<'a> {
    fn clock(&self, lane: usize) -> Option<&'a Clock> {
        self.ticket.or_else(|| self.warp.map(|w| &**w.clock(lane)))
    }

    fn first_lane(&self) -> usize {
        self.me.lanes.trailing_zeros().min(31) as usize
    }

    /// Whether this access happens after `half` of an earlier access.
    pub(super) fn knows(&self, r: &Record, half: AccessKind) -> bool {
        let knows = |lane: usize| {
            let clock = self.clock(lane);
            clock.is_some_and(|clock| happens_before(self.threads, r, half, (&self.me, lane), clock))
        };
        // Where all lanes know the same one look is enough, but each lane knows what it did itself.
        let alike = self.ticket.is_some() || self.warp.is_some_and(|w| !w.diverged);
        if alike && r.warp != self.me.warp {
            return knows(self.first_lane());
        }
        lanes(self.me.lanes).all(knows)
    }

    /// Whether a strong read or an update that this access knows has observed a strong write.
    /// Observation comes before everything after the read (causality order). The read has observed
    /// the write if only updates came between them.
    fn observed(&self, r: &Record, of: Remembered<'_>) -> bool {
        if r.strong.is_none() {
            return false;
        }
        let replaces = |w: &&Record| w.time > r.time && w.flags & UPDATE == 0 && w.bytes & r.bytes != 0;
        let until = of.writes.iter().filter(replaces).map(|w| w.time).min().unwrap_or(u64::MAX);
        let observes = |q: &Record| {
            let saw = || of.stale.is_none_or(|stale| stale.saw(q, r));
            morally_strong(self.threads, q, r)
                && (r.time + 1..until).contains(&q.time)
                && q.bytes & r.bytes != 0
                && saw()
        };
        let reads = of.reads.iter().filter(|q| observes(q));
        let updates = of.writes.iter().filter(|q| q.flags & UPDATE != 0 && observes(q));
        reads.chain(updates).any(|q| self.knows(q, AccessKind::Read))
    }

    fn fault(&self, r: &Record) -> Fault {
        let seen = || {
            let known = |c: &Clock| {
                let known = if r.agent == Agent::Copy { &c.copied } else { &c.seen };
                known.covers(self.threads, r.warp, r.lanes, r.time)
            };
            self.clock(self.first_lane()).is_some_and(known)
        };
        if r.strong.is_some() && self.me.strong.is_some() {
            return Fault::Scope;
        }
        let same_thread = || r.warp == self.threads.warp(self.me.warp) && r.lanes == self.me.lanes;
        let proxy = match (self.me.agent, r.agent) {
            (Agent::Async, Agent::Thread) => same_thread() || seen(),
            (Agent::Async, Agent::Copy) => seen(),
            _ => false,
        };
        if proxy { Fault::Proxy } else { Fault::Race }
    }

    /// For a write that races: the instruction by which the thread has read the same bytes before,
    /// if the other thread has executed that read or this write as well. Then both threads update
    /// the value that they read.
    pub(super) fn updates(&self, reads: &[Record], other: &Record, kind: AccessKind) -> Option<u32> {
        let me = &self.me;
        let own = |q: &&Record| q.warp == me.warp && q.lanes & me.lanes != 0;
        let both = |q: &&Record| if kind.writes() { other.pc == me.pc } else { other.pc == q.pc };
        let update = self.kind == AccessKind::Write && me.agent == Agent::Thread;
        reads.iter().filter(|_| update).filter(own).find(both).map(|q| q.pc)
    }

    /// Compares this access with those of a cell. `out` is empty or has the result of an earlier
    /// comparison.
    pub(super) fn compare(&self, of: Remembered<'_>, out: &mut Comparison) {
        (out.wrong, out.collides, out.written, out.observed) = (None, false, 0, false);
        out.writes.clear();
        out.reads.clear();
        let (writes, reads) = (of.writes.len(), of.reads.len());
        for r in of.writes {
            out.written |= r.bytes;
            let keep = self.compare_write(r, of, writes, out);
            out.writes.push(keep);
        }
        for r in of.reads {
            let keep = self.compare_read(r, reads, out);
            out.reads.push(keep);
        }
        if out.observed {
            self.keep_observers(of, out);
        }
        if self.kind == AccessKind::Update {
            self.keep_stores(of, out);
        }
    }

    /// Keeps a store that ends chains of updates when an older write that also does so is
    /// forgotten, since an update does not end them.
    fn keep_stores(&self, of: Remembered<'_>, out: &mut Comparison) {
        let stays = |rest: &Rest| rest.bytes != 0 && rest.lanes != 0;
        let kept = of.writes.iter().zip(&out.writes).filter(|(_, rest)| stays(rest));
        let Some(oldest) = kept.map(|(r, _)| r.time).min() else { return };
        let stores = of.writes.iter().zip(&mut out.writes);
        for (r, rest) in stores.filter(|(r, _)| r.flags & UPDATE == 0 && r.time > oldest) {
            *rest = Rest { bytes: r.bytes, lanes: r.lanes };
        }
    }

    /// Keeps the accesses that have observed writes where this access does not give the same
    /// information.
    fn keep_observers(&self, of: Remembered<'_>, out: &mut Comparison) {
        let writes = of.writes.iter().zip(&mut out.writes).filter(|(r, _)| r.flags & UPDATE != 0);
        let reads = of.reads.iter().zip(&mut out.reads).filter(|(r, _)| r.strong.is_some());
        writes.chain(reads).for_each(|(r, rest)| *rest = Rest { bytes: r.bytes, lanes: r.lanes });
    }

    /// The part of an earlier access, of `many`, that stays remembered beside this one. `known`
    /// tells whether the earlier access happens before this one.
    fn rest(&self, r: &Record, kind: AccessKind, known: bool, many: bool) -> Rest {
        let (me, whole) = (&self.me, Rest { bytes: r.bytes, lanes: r.lanes });
        let mine = r.warp == me.warp && r.agent == me.agent && r.bytes & !me.bytes == 0;
        if !(known || mine) || !stands_for(self.threads, (me, self.kind), (r, kind), !many) {
            whole
        } else if known {
            Rest { bytes: r.bytes & !me.bytes, ..whole }
        } else {
            Rest { lanes: r.lanes & !me.lanes, ..whole }
        }
    }

    /// Compares this access with a write, and returns the part of the write that stays remembered.
    fn compare_write(&self, r: &Record, of: Remembered<'_>, count: usize, out: &mut Comparison) -> Rest {
        let (all, many) = looked_at(count);
        let (me, whole) = (&self.me, Rest { bytes: r.bytes, lanes: r.lanes });
        let strong = morally_strong(self.threads, r, me);
        if r.bytes & me.bytes == 0 || strong && !all && r.warp != me.warp {
            return whole;
        }
        let kind = if r.flags & UPDATE != 0 { AccessKind::Update } else { AccessKind::Write };
        let happened = self.knows(r, AccessKind::Write);
        let observed = !happened && self.observed(r, of);
        // The read half of an update counts where this access writes: an update that releases something is observed as a
        // whole, and so is one that NVSHMEM carries out.
        let whole_update = r.flags & RELEASED != 0 || r.agent == Agent::Remote;
        let counts = !self.kind.writes() || r.flags & UPDATE == 0 || whole_update;
        let known = happened || observed && counts;
        if known && self.non_coherent {
            out.wrong.get_or_insert((Fault::NonCoherent, *r, AccessKind::Write));
        }
        if known || strong {
            let rest = self.rest(r, kind, known, many);
            let stays = rest.bytes != 0 && rest.lanes != 0;
            out.observed |= stays && observed && !(strong && self.kind.reads());
            return rest;
        }
        if self.kind == AccessKind::Write && r.same_instruction(me) {
            out.collides = true;
            return whole;
        }
        if me.flags & UNCHANGED != 0 {
            // Where a great many threads store the same value, the latest of them stand for the others.
            return self.rest(r, kind, many, many);
        }
        out.wrong.get_or_insert((self.fault(r), *r, kind));
        // This race has been reported.
        if self.kind.writes() { Rest { bytes: r.bytes & !me.bytes, ..whole } } else { whole }
    }

    /// Compares this access with a read, and returns the part of the read that stays remembered.
    fn compare_read(&self, r: &Record, count: usize, out: &mut Comparison) -> Rest {
        let (all, many) = looked_at(count);
        let (me, whole) = (&self.me, Rest { bytes: r.bytes, lanes: r.lanes });
        let mine = r.warp == me.warp && r.agent == me.agent;
        let harmless = !self.kind.writes() || morally_strong(self.threads, r, me);
        if r.bytes & me.bytes == 0 || harmless && !all && !mine {
            return whole;
        }
        let known = self.knows(r, AccessKind::Read);
        if known || harmless {
            return self.rest(r, AccessKind::Read, known, many);
        }
        out.wrong.get_or_insert((self.fault(r), *r, AccessKind::Read));
        Rest { bytes: r.bytes & !me.bytes, ..whole }
    }

    /// Handles as many cells as are in the usual case, from `word` on, and returns their number.
    /// `latest` are the latest records that happen before this access: a read and a write.
    #[inline(always)]
    pub(super) fn plain_run(
        &self,
        cells: &mut [Cell],
        (word, at, bytes): (usize, usize, usize),
        unwritten: bool,
        latest: &mut [Record; 2],
    ) -> usize {
        let mut knows = |r: &Record, kind: AccessKind| {
            let last = &mut latest[usize::from(kind.writes())];
            let same = (last.time, last.warp, last.lanes, last.agent, last.strong)
                == (r.time, r.warp, r.lanes, r.agent, r.strong);
            let known = same || self.knows(r, kind);
            if known && !same {
                *last = *r;
            }
            known
        };
        let me = |word| Record { bytes: within(word, at, bytes), ..self.me };
        let mut accessed =
            |(i, cell): (usize, &mut Cell)| self.plain(cell, &me(word + i), unwritten, &mut knows);
        cells.iter_mut().enumerate().map_while(|cell| accessed(cell).then_some(())).count()
    }

    /// Handles the usual case of an access: at most one earlier write and one earlier read, both of
    /// which happen before it and are subsumed by it, and nothing to report. Returns whether the
    /// case applies; then the access is remembered.
    #[inline(always)]
    pub(super) fn plain(
        &self,
        cell: &mut Cell,
        me: &Record,
        unwritten: bool,
        mut knows: impl FnMut(&Record, AccessKind) -> bool,
    ) -> bool {
        let (w, r) = (&cell.write, &cell.read);
        if w.time | r.time == 0 && (unwritten || !self.kind.reads()) {
            *(if self.kind.writes() { &mut cell.write } else { &mut cell.read }) = *me;
            return true;
        }
        if w.is_list() || r.is_list() || w.bytes & me.bytes != 0 && !knows(w, AccessKind::Write) {
            return false;
        }
        if self.kind.reads() && !unwritten && me.bytes & !w.bytes != 0 {
            return false;
        }
        // The strength of an access of the same warp, or of a weak one, is compared at once.
        let narrower = |old: &Record| match (me.strong, old.strong) {
            (None, _) => true,
            (Some(new), Some(old_scope)) => new <= old_scope && me.warp == old.warp,
            (Some(_), None) => false,
        };
        if self.kind.writes() {
            let partial = (w.bytes | r.bytes) & !me.bytes != 0;
            let stands = (w.bytes == 0 || narrower(w)) && (r.bytes == 0 || narrower(r));
            let sync = w.sync();
            if partial || !stands || sync != 0 && me.strong.is_none() {
                return false;
            }
            if r.bytes != 0 && !knows(r, AccessKind::Read) {
                return false;
            }
            *cell = Cell { write: Record { flags: me.flags | sync, ..*me }, read: Record::default() };
            return true;
        }
        if r.time != 0 && r.same_event(me) {
            cell.read.lanes |= me.lanes;
            return true;
        }
        let own = r.warp == me.warp && r.agent == me.agent && r.lanes & !me.lanes == 0;
        let covered =
            r.time == 0 || r.bytes & !me.bytes == 0 && narrower(r) && (own || knows(r, AccessKind::Read));
        if covered {
            cell.read = *me;
        }
        covered
    }
}

/// Whether all records of a list of this length are looked at this time, and whether there are too
/// many for an exact answer.
fn looked_at(count: usize) -> (bool, bool) {
    (count < SHORT || count.is_power_of_two(), count >= SHORT)
}
