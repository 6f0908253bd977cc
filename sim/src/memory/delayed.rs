//! Stores that some threads see and others do not see yet.
//!
//! The memory model lets a weak or relaxed store become visible to other CTAs at any time, until a
//! release or fence of its CTA orders it for the threads of a scope. Here such stores wait in two
//! places:
//!
//! - They wait in the buffer of their CTA, which the CTA's own reads use.
//! - After a release of their CTA at gpu or cluster scope, those to the memory of other PEs wait in
//!   the buffer of their PE, which all of its CTAs use. (Those to the PE's own memory complete,
//!   which shows them to more threads than necessary.)
//!
//! A release at system scope completes both: the stores of other CTAs of its PE that the CTA has
//! seen come before it (causality order is transitive). Stores complete in any order that keeps the
//! order of those to the same bytes. Those in the buffer of the PE come before those of a CTA,
//! since the CTA may have seen them.

use super::{Memory, Spot};
use crate::order::Scope;
use crate::rng::Rng;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// The number of stores that a buffer holds; another one forces one of them to complete.
const DEPTH: usize = 32;

struct Store {
    at: Spot,
    data: [u8; 32],
    len: usize,
    /// The PE whose memory it writes.
    owner: usize,
    /// The time at which it was made, as the checks count time.
    time: u64,
}

impl Store {
    fn overlaps(&self, at: Spot, len: usize) -> bool {
        self.at.buffer == at.buffer && self.at.at < at.at + len && at.at < self.at.at + self.len
    }
}

/// Pending stores, in the order in which they were made.
#[derive(Default)]
struct Buffer {
    stores: Vec<Store>,
    /// The PE that makes the stores.
    pe: usize,
}

impl Buffer {
    /// Removes one store, and before it older ones to the same bytes.
    fn take(&mut self, i: usize) -> Vec<Store> {
        let Some(Store { at, len, .. }) = self.stores.get(i) else { return Vec::new() };
        let (at, len) = (*at, *len);
        let mut number = 0..;
        let due = self.stores.extract_if(..=i, |s| {
            let n = number.next();
            n == Some(i) || s.overlaps(at, len)
        });
        due.collect()
    }

    /// Removes the stores to some bytes.
    fn take_at(&mut self, at: Spot, len: usize) -> Vec<Store> {
        if self.stores.is_empty() {
            return Vec::new();
        }
        self.stores.extract_if(.., |s| s.overlaps(at, len)).collect()
    }

    /// Applies the stores to the bytes that are read.
    fn overlay(&self, at: Spot, out: &mut [u8]) {
        let len = out.len();
        for s in self.stores.iter().filter(|s| s.overlaps(at, len)) {
            let (from, to) = (s.at.at.max(at.at), (s.at.at + s.len).min(at.at + len));
            out[from - at.at..to - at.at].copy_from_slice(&s.data[from - s.at.at..to - s.at.at]);
        }
    }
}

/// The buffers of all resident CTAs, and of the PEs.
pub(crate) struct Delayed {
    /// The number of stores in eight that are delayed; 0 turns the buffers off.
    eighths: u64,
    rng: Rng,
    buffers: Vec<Buffer>,
    /// The buffer of each CTA slot. The stores of an ended CTA are in a buffer without a slot.
    of: Vec<Option<usize>>,
    /// By PE, the stores that its CTAs have released within the PE.
    released: Vec<Buffer>,
    pub(crate) under_way: usize,
    /// The latest time of an accessor.
    now: u64,
    /// By buffer and word, the delayed store that completed last, among those that begin in the
    /// word.
    landed: FxHashMap<(usize, usize), Landed>,
}

/// The number of words whose last completed store is kept.
const LANDED: usize = 1 << 16;

impl Delayed {
    fn new(eighths: u64, rng: Rng, n_pes: usize) -> Delayed {
        let released = (0..n_pes).map(|pe| Buffer { stores: Vec::new(), pe }).collect();
        Delayed {
            eighths,
            rng,
            buffers: Vec::new(),
            of: Vec::new(),
            released,
            under_way: 0,
            now: 0,
            landed: FxHashMap::default(),
        }
    }

    /// The CTA's buffer, if it has one.
    fn own(&self, cta: usize) -> Option<usize> {
        self.of.get(cta).copied().flatten()
    }

    /// The CTA's buffer, which is created if needed.
    fn buffer(&mut self, cta: usize, pe: usize) -> usize {
        if self.of.len() <= cta {
            self.of.resize(cta + 1, None);
        }
        if let Some(b) = self.of[cta] {
            return b;
        }
        let taken = |b: usize| self.of.contains(&Some(b));
        let free = (0..self.buffers.len()).find(|&b| self.buffers[b].stores.is_empty() && !taken(b));
        let b = free.unwrap_or_else(|| {
            self.buffers.push(Buffer::default());
            self.buffers.len() - 1
        });
        self.buffers[b].pe = pe;
        self.of[cta] = Some(b);
        b
    }

    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.eighths > 0
    }

    /// Draws whether to defer a load: one in eight, if stores are delayed.
    #[inline]
    pub(crate) fn draws_load(&mut self) -> bool {
        self.eighths > 0 && self.rng.next().is_multiple_of(8)
    }

    /// Draws whether a warp that needs a deferred load lets others run first, in every second case.
    pub(crate) fn draws_wait(&mut self) -> bool {
        self.rng.next().is_multiple_of(2)
    }

    pub(super) fn off() -> Delayed {
        Delayed::new(0, Rng(0), 0)
    }
}

/// The view that an access has of the pending stores to its bytes.
#[derive(Debug, Clone, Default)]
pub(crate) struct UnderWay {
    /// The times of the stores that are not visible to it.
    pub unseen: SmallVec<[u64; 1]>,
    /// The time of the delayed store to exactly these bytes whose value it sees. Another store may
    /// have been made later.
    pub seen: Option<u64>,
    /// The delayed store to exactly these bytes that completed last.
    pub landed: Option<Landed>,
}

/// A delayed store that has completed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Landed {
    /// The time at which it was made.
    pub made: u64,
    /// The time at which it completed.
    pub landed: u64,
    at: usize,
    len: usize,
}

impl UnderWay {
    /// Whether a read with this view has observed another value than that of the write made at this
    /// time.
    pub(crate) fn hides(&self, write: u64) -> bool {
        self.unseen.contains(&write) || self.seen.is_some_and(|seen| seen != write)
    }
}

/// A CTA that accesses memory.
#[derive(Clone, Copy)]
pub(crate) struct Accessor {
    /// The slot that the CTA occupies.
    pub cta: usize,
    pub pe: usize,
    /// The time by the count of the checks, or 0 without checks.
    pub time: u64,
}

impl Memory {
    /// Lets `eighths` of eight stores be delayed, drawn from `seed`.
    pub(crate) fn delay_stores(&mut self, eighths: u64, seed: u64) {
        self.delayed = Delayed::new(eighths, Rng(seed ^ 0x7374_6f72_6573), self.n_pes);
    }

    /// Buffers a store of a CTA to the memory of `owner`, if it is to be delayed.
    #[inline]
    pub(crate) fn delay(&mut self, by: Accessor, owner: usize, at: Spot, data: &[u8]) -> bool {
        let d = &mut self.delayed;
        if d.eighths == 0 || data.len() > 32 || d.rng.next() % 8 >= d.eighths {
            return false;
        }
        // The CTA itself can read it from now on.
        self.mark_written(at.buffer, at.at, data.len());
        let d = &mut self.delayed;
        d.now = by.time;
        let b = d.buffer(by.cta, by.pe);
        let mut store = Store { at, data: [0; 32], len: data.len(), owner, time: by.time };
        store.data[..data.len()].copy_from_slice(data);
        d.buffers[b].stores.push(store);
        d.under_way += 1;
        if d.buffers[b].stores.len() > DEPTH {
            let i = (d.rng.next() % DEPTH as u64) as usize;
            self.land(b, i);
        }
        true
    }

    /// Applies the pending stores that a CTA sees to the bytes that it reads.
    #[inline]
    pub(crate) fn overlay(&self, by: Accessor, at: Spot, out: &mut [u8]) {
        let d = &self.delayed;
        if let Some(released) = d.released.get(by.pe) {
            released.overlay(at, out);
        }
        if let Some(b) = d.own(by.cta) {
            d.buffers[b].overlay(at, out);
        }
    }

    /// The pending stores to these bytes in a CTA's view.
    pub(crate) fn under_way(&self, by: Accessor, at: Spot, len: usize) -> UnderWay {
        let d = &self.delayed;
        let latest = || d.landed.get(&(at.buffer, at.at / 4));
        let landed = if d.landed.is_empty() { None } else { latest() };
        let landed = landed.filter(|s| (s.at, s.len) == (at.at, len)).copied();
        let mut out = UnderWay { landed, ..UnderWay::default() };
        if d.under_way > 0 {
            let own = d.own(by.cta);
            // This is the order in which reads use the buffers.
            let released = d.released.iter().map(|r| (r.pe == by.pe, r));
            let buffers = d.buffers.iter().enumerate().map(|(b, buffer)| (Some(b) == own, buffer));
            for (sees, buffer) in released.chain(buffers) {
                let mut stores = buffer.stores.iter().filter(|s| s.overlaps(at, len));
                match (sees, stores.next_back()) {
                    (_, None) => {}
                    (true, Some(s)) => {
                        out.seen = ((s.at.at, s.len) == (at.at, len)).then_some(s.time);
                    }
                    (false, Some(last)) => out.unseen.extend(stores.chain([last]).map(|s| s.time)),
                }
            }
        }
        out
    }

    /// Whether these bytes contain `data` for all threads, with and without the pending stores.
    pub(crate) fn holds(&self, at: Spot, data: &[u8]) -> bool {
        let d = &self.delayed;
        let landed = self.at(at, data.len());
        let seen_through = |released: Option<&Buffer>, own: Option<&Buffer>| {
            let mut seen = [0; 32];
            let seen = &mut seen[..data.len()];
            seen.copy_from_slice(landed);
            released.into_iter().chain(own).for_each(|b| b.overlay(at, seen));
            seen == data
        };
        landed == data
            && (d.under_way == 0
                || d.released.iter().all(|r| seen_through(Some(r), None))
                    && d.buffers.iter().all(|b| seen_through(d.released.get(b.pe), Some(b))))
    }

    fn land_these(&mut self, due: Vec<Store>) {
        self.delayed.under_way -= due.len();
        for s in due {
            self.store_at(s.at, &s.data[..s.len]);
            let d = &mut self.delayed;
            if s.time > 0 {
                if d.landed.len() >= LANDED {
                    d.landed.clear();
                }
                let landed = Landed { made: s.time, landed: d.now, at: s.at.at, len: s.len };
                d.landed.insert((s.at.buffer, s.at.at / 4), landed);
            }
        }
    }

    /// Completes one store of a CTA, after older ones to the same bytes of the CTA and of its PE.
    fn land(&mut self, b: usize, i: usize) {
        let due = self.delayed.buffers[b].take(i);
        let pe = self.delayed.buffers[b].pe;
        for s in &due {
            let before = self.delayed.released[pe].take_at(s.at, s.len);
            self.land_these(before);
        }
        self.land_these(due);
    }

    /// Completes the pending stores to these bytes that a CTA sees.
    #[inline]
    pub(crate) fn land_at(&mut self, by: Accessor, at: Spot, len: usize) {
        if self.delayed.under_way > 0 {
            self.land_seen(by, at, len);
        }
    }

    fn land_seen(&mut self, by: Accessor, at: Spot, len: usize) {
        self.delayed.now = by.time;
        let own = self.delayed.own(by.cta).map(|b| self.delayed.buffers[b].take_at(at, len));
        let own = own.unwrap_or_default();
        for (at, len) in std::iter::once((at, len)).chain(own.iter().map(|s| (s.at, s.len))) {
            let released = self.delayed.released.get_mut(by.pe).map(|r| r.take_at(at, len));
            self.land_these(released.unwrap_or_default());
        }
        self.land_these(own);
    }

    /// Handles a release of a CTA: its stores, and those of others that it has seen, become visible
    /// in the scope.
    pub(crate) fn release(&mut self, by: Accessor, scope: Scope) {
        self.delayed.now = by.time;
        let own = self.delayed.own(by.cta);
        match scope {
            Scope::Cta => {}
            Scope::Cluster | Scope::Gpu => {
                if let Some(b) = own {
                    self.release_buffer(b);
                }
            }
            Scope::Sys => {
                let released = std::mem::take(&mut self.delayed.released[by.pe].stores);
                self.land_these(released);
                if let Some(b) = own {
                    let stores = std::mem::take(&mut self.delayed.buffers[b].stores);
                    self.land_these(stores);
                }
            }
        }
    }

    /// Makes the stores of a buffer visible to all CTAs of the PE.
    fn release_buffer(&mut self, b: usize) {
        let pe = self.delayed.buffers[b].pe;
        for s in std::mem::take(&mut self.delayed.buffers[b].stores) {
            if s.owner == pe {
                self.land_these(vec![s]);
            } else {
                self.delayed.released[pe].stores.push(s);
            }
        }
        while self.delayed.released[pe].stores.len() > DEPTH {
            let due = self.delayed.released[pe].take(0);
            self.land_these(due);
        }
    }

    /// Handles the end of a grid of a PE: its stores to the PE's own memory complete. Those to
    /// peers' memory complete some time later, but before a grid that follows begins, and before a
    /// host that has waited for the grid continues.
    pub(crate) fn retire(&mut self, pe: usize) {
        for b in 0..self.delayed.buffers.len() {
            if self.delayed.buffers[b].pe == pe {
                self.release_buffer(b);
            }
        }
    }

    /// Completes all stores of the CTAs of a PE.
    pub(crate) fn land_from(&mut self, pe: usize) {
        let d = &mut self.delayed;
        let mut all: Vec<Store> =
            d.released.get_mut(pe).map(|r| std::mem::take(&mut r.stores)).unwrap_or_default();
        for buffer in d.buffers.iter_mut().filter(|b| b.pe == pe) {
            all.append(&mut buffer.stores);
        }
        self.land_these(all);
    }

    /// Handles the end of a CTA, whose stores still complete some time.
    pub(crate) fn leave_stores(&mut self, cta: usize) {
        if let Some(of) = self.delayed.of.get_mut(cta) {
            *of = None;
        }
    }

    /// Advances by a round of the schedule: some stores complete, at this time as the checks count
    /// it.
    pub(crate) fn tick(&mut self, time: u64) {
        if self.delayed.under_way == 0 {
            return;
        }
        self.delayed.now = time;
        // Completing one store can complete older ones too.
        for b in 0..self.delayed.buffers.len() {
            for i in (0..self.delayed.buffers[b].stores.len()).rev() {
                if i < self.delayed.buffers[b].stores.len() && self.delayed.rng.next().is_multiple_of(8) {
                    self.land(b, i);
                }
            }
        }
        for pe in 0..self.delayed.released.len() {
            for i in (0..self.delayed.released[pe].stores.len()).rev() {
                if i < self.delayed.released[pe].stores.len() && self.delayed.rng.next().is_multiple_of(8) {
                    let due = self.delayed.released[pe].take(i);
                    self.land_these(due);
                }
            }
        }
    }

    /// Completes all stores. Returns `false` if none was pending.
    pub(crate) fn land_every(&mut self) -> bool {
        let some = self.delayed.under_way > 0;
        for pe in 0..self.delayed.released.len() {
            self.land_from(pe);
        }
        some
    }
}
