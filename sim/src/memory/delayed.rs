//! Stores that their CTA sees and others do not see yet.
//!
//! The memory model lets a weak or relaxed store become visible to other CTAs at any time until something orders it: a
//! release or fence of its CTA, whose scope says for whom. Here such stores wait in their CTA's buffer and land in any
//! order that keeps those to the same bytes in theirs. The CTA's own reads look into its buffer.

use super::{Memory, Spot};
use crate::exec::run::Rng;

/// Stores a CTA may have under way; another makes one of them land.
const DEPTH: usize = 32;

struct Store {
    at: Spot,
    data: [u8; 32],
    len: usize,
    /// PE whose memory it goes to.
    owner: usize,
}

impl Store {
    fn overlaps(&self, at: Spot, len: usize) -> bool {
        self.at.buffer == at.buffer && self.at.at < at.at + len && at.at < self.at.at + self.len
    }
}

/// The buffers of all resident CTAs.
pub(crate) struct Delayed {
    /// Of eight stores, so many are delayed; 0 turns the buffers off.
    eighths: u64,
    rng: Rng,
    buffers: Vec<Vec<Store>>,
    /// The buffer of each CTA slot; what an ended CTA has left is in one of nobody's.
    of: Vec<Option<usize>>,
    pub(crate) under_way: usize,
}

impl Delayed {
    /// The CTA's stores.
    fn own(&self, cta: usize) -> &[Store] {
        self.of.get(cta).copied().flatten().map_or(&[], |b| &self.buffers[b])
    }

    /// The CTA's buffer, a new one if it has none.
    fn buffer(&mut self, cta: usize) -> usize {
        if self.of.len() <= cta {
            self.of.resize(cta + 1, None);
        }
        if let Some(b) = self.of[cta] {
            return b;
        }
        let taken = |b: usize| self.of.contains(&Some(b));
        let free = (0..self.buffers.len()).find(|&b| self.buffers[b].is_empty() && !taken(b));
        let b = free.unwrap_or_else(|| {
            self.buffers.push(Vec::new());
            self.buffers.len() - 1
        });
        self.of[cta] = Some(b);
        b
    }

    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.eighths > 0
    }

    pub(super) fn off() -> Delayed {
        Delayed { eighths: 0, rng: Rng(0), buffers: Vec::new(), of: Vec::new(), under_way: 0 }
    }
}

impl Memory {
    /// Lets `eighths` of eight stores be delayed, as `seed` draws.
    pub(crate) fn delay_stores(&mut self, eighths: u64, seed: u64) {
        self.delayed = Delayed {
            eighths,
            rng: Rng(seed ^ 0x7374_6f72_6573),
            buffers: Vec::new(),
            of: Vec::new(),
            under_way: 0,
        };
    }

    /// Takes a store of the CTA in slot `cta` to the memory of `owner`, if it is to be delayed.
    #[inline]
    pub(crate) fn delay(&mut self, cta: usize, owner: usize, at: Spot, data: &[u8]) -> bool {
        let d = &mut self.delayed;
        if d.eighths == 0 || data.len() > 32 || d.rng.next() % 8 >= d.eighths {
            return false;
        }
        // The CTA itself may read it now.
        self.mark_written(at.buffer, at.at, data.len());
        let d = &mut self.delayed;
        let b = d.buffer(cta);
        let mut store = Store { at, data: [0; 32], len: data.len(), owner };
        store.data[..data.len()].copy_from_slice(data);
        d.buffers[b].push(store);
        d.under_way += 1;
        if d.buffers[b].len() > DEPTH {
            let i = (d.rng.next() % DEPTH as u64) as usize;
            self.land(b, i);
        }
        true
    }

    /// Puts what the CTA itself has stored over what it reads.
    #[inline]
    pub(crate) fn overlay(&self, cta: usize, at: Spot, out: &mut [u8]) {
        let len = out.len();
        for s in self.delayed.own(cta).iter().filter(|s| s.overlaps(at, len)) {
            let (from, to) = (s.at.at.max(at.at), (s.at.at + s.len).min(at.at + len));
            out[from - at.at..to - at.at].copy_from_slice(&s.data[from - s.at.at..to - s.at.at]);
        }
    }

    /// Lands one store, and before it older ones of its CTA to the same bytes.
    fn land(&mut self, buffer: usize, mut i: usize) {
        let list = &mut self.delayed.buffers[buffer];
        let Some(s) = list.get(i) else { return };
        let (at, len) = (s.at, s.len);
        let mut due = Vec::new();
        let mut k = 0;
        while k <= i {
            if list[k].overlaps(at, len) || k == i {
                due.push(list.remove(k));
                i = i.wrapping_sub(1);
                if i == usize::MAX {
                    break;
                }
            } else {
                k += 1;
            }
        }
        self.delayed.under_way -= due.len();
        for s in due {
            self.store_at(s.at, &s.data[..s.len]);
        }
    }

    /// Lands the CTA's stores to these bytes.
    pub(crate) fn land_at(&mut self, cta: usize, at: Spot, len: usize) {
        let Some(b) = self.delayed.of.get(cta).copied().flatten() else { return };
        while let Some(i) = self.delayed.buffers[b].iter().position(|s| s.overlaps(at, len)) {
            self.land(b, i);
        }
    }

    /// Lands the CTA's stores; `only` those to the memory of one PE.
    pub(crate) fn land_all(&mut self, cta: usize, only: Option<usize>) {
        if let Some(b) = self.delayed.of.get(cta).copied().flatten() {
            self.land_buffer(b, only);
        }
    }

    fn land_buffer(&mut self, b: usize, only: Option<usize>) {
        let all = std::mem::take(&mut self.delayed.buffers[b]);
        let (due, rest): (Vec<Store>, Vec<Store>) =
            all.into_iter().partition(|s| only.is_none_or(|pe| s.owner == pe));
        self.delayed.buffers[b] = rest;
        self.delayed.under_way -= due.len();
        for s in due {
            self.store_at(s.at, &s.data[..s.len]);
        }
    }

    /// Lands all stores to the memory of a PE.
    pub(crate) fn land_for(&mut self, pe: usize) {
        for b in 0..self.delayed.buffers.len() {
            self.land_buffer(b, Some(pe));
        }
    }

    /// A CTA has ended: what it has stored lands all the same, some day.
    pub(crate) fn leave_stores(&mut self, cta: usize) {
        if let Some(of) = self.delayed.of.get_mut(cta) {
            *of = None;
        }
    }

    /// A round of the schedule has passed: some stores land.
    pub(crate) fn tick(&mut self) {
        if self.delayed.under_way == 0 {
            return;
        }
        for b in 0..self.delayed.buffers.len() {
            for i in (0..self.delayed.buffers[b].len()).rev() {
                // Landing one may take older ones along.
                if i < self.delayed.buffers[b].len() && self.delayed.rng.next().is_multiple_of(8) {
                    self.land(b, i);
                }
            }
        }
    }

    /// Lands everything; `false` if nothing was under way.
    pub(crate) fn land_every(&mut self) -> bool {
        let some = self.delayed.under_way > 0;
        for b in 0..self.delayed.buffers.len() {
            self.land_buffer(b, None);
        }
        some
    }
}
