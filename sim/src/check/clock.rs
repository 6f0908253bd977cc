//! The events that a thread knows to have happened, as clocks over all threads. A clock is as short
//! as the synchronisation is coarse.
//!
//! One time counts the events of the whole launch. A thread *knows* an event of another thread if
//! the event's time is not above the time up to which it knows that thread. That time is the
//! greatest of three entries: for the other thread itself, for its warp, and for its CTA. A barrier
//! of a CTA makes one entry, whatever the CTA's size.

use crate::model::{CtaId, WarpId};

/// The number of a thread in a launch: its warp's number times 32, plus its lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Thread(u32);

impl Thread {
    pub(super) fn new(warp: WarpId, lane: u32) -> Thread {
        Thread(warp.0 * 32 + lane)
    }

    pub(super) fn warp(self) -> WarpId {
        WarpId(self.0 / 32)
    }

    pub(super) fn lane(self) -> u32 {
        self.0 % 32
    }
}

/// The map from warps to the CTAs that they belong to.
pub(super) trait Topology {
    fn cta(&self, warp: WarpId) -> CtaId;
    fn pe(&self, cta: CtaId) -> u32;
}

/// The times up to which other threads are known, by CTA, warp and thread. Each list is sorted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Known {
    ctas: Vec<(CtaId, u64)>,
    warps: Vec<(WarpId, u64)>,
    threads: Vec<(Thread, u64)>,
}

fn at<K: Copy + Ord>(list: &[(K, u64)], key: K) -> u64 {
    match list {
        [] => 0,
        [(k, t)] => {
            if *k == key {
                *t
            } else {
                0
            }
        }
        _ => list.binary_search_by_key(&key, |e| e.0).map_or(0, |i| list[i].1),
    }
}

fn raise<K: Copy + Ord>(list: &mut Vec<(K, u64)>, key: K, time: u64) {
    match list.binary_search_by_key(&key, |e| e.0) {
        Ok(i) => list[i].1 = list[i].1.max(time),
        Err(i) => list.insert(i, (key, time)),
    }
}

/// Whether `list` has every entry of `other` with an equal or later time.
fn includes<K: Copy + Ord>(list: &[(K, u64)], other: &[(K, u64)]) -> bool {
    let mut mine = list.iter();
    other.iter().all(|&(k, t)| mine.find(|e| e.0 >= k).is_some_and(|e| e.0 == k && e.1 >= t))
}

fn merge<K: Copy + Ord>(list: &mut Vec<(K, u64)>, other: &[(K, u64)]) {
    if includes(list, other) {
        return;
    }
    if list.is_empty() {
        list.extend_from_slice(other);
        return;
    }
    let mine = std::mem::take(list);
    list.reserve(mine.len() + other.len());
    let (mut i, mut j) = (0, 0);
    while let (Some(&x), Some(&y)) = (mine.get(i), other.get(j)) {
        list.push(if x.0 == y.0 { (x.0, x.1.max(y.1)) } else { x.min(y) });
        i += usize::from(x.0 <= y.0);
        j += usize::from(y.0 <= x.0);
    }
    list.extend_from_slice(&mine[i..]);
    list.extend_from_slice(&other[j..]);
}

impl Known {
    /// Whether all `lanes` of a warp are known up to a time.
    #[inline]
    pub(super) fn covers(&self, topology: &impl Topology, warp: WarpId, lanes: u32, time: u64) -> bool {
        at(&self.ctas, topology.cta(warp)) >= time
            || at(&self.warps, warp) >= time
            || !self.threads.is_empty()
                && crate::model::lanes(lanes).all(|l| at(&self.threads, Thread::new(warp, l as u32)) >= time)
    }

    /// A thread (or warp) of a CTA that is known up to `time` or later.
    pub(super) fn latest(
        &self,
        topology: &impl Topology,
        cta: CtaId,
        time: u64,
    ) -> Option<(WarpId, Option<u32>)> {
        let thread = self.threads.iter().find(|&&(t, at)| at >= time && topology.cta(t.warp()) == cta);
        let warp = || self.warps.iter().find(|&&(w, at)| at >= time && topology.cta(w) == cta);
        thread.map(|&(t, _)| (t.warp(), Some(t.lane()))).or_else(|| warp().map(|&(w, _)| (w, None)))
    }

    /// Whether any event of the threads of a CTA is known.
    pub(super) fn has_met(&self, topology: &impl Topology, cta: CtaId) -> bool {
        at(&self.ctas, cta) > 0
            || self.warps.iter().any(|&(w, _)| topology.cta(w) == cta)
            || self.threads.iter().any(|&(t, _)| topology.cta(t.warp()) == cta)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ctas.is_empty() && self.warps.is_empty() && self.threads.is_empty()
    }

    /// Adds that all threads of a CTA are known up to `time`, which is the present, so that finer
    /// entries are dropped.
    pub(super) fn raise_cta(&mut self, topology: &impl Topology, cta: CtaId, time: u64) {
        raise(&mut self.ctas, cta, time);
        self.warps.retain(|&(w, t)| t > time || topology.cta(w) != cta);
        self.threads.retain(|&(t, at)| at > time || topology.cta(t.warp()) != cta);
    }

    /// Adds that these lanes of a warp are known up to `time`; `whole` if the warp has no others.
    pub(super) fn raise(&mut self, warp: WarpId, lanes: u32, whole: bool, time: u64) {
        if time == 0 {
            return;
        }
        if whole {
            raise(&mut self.warps, warp, time);
            self.threads.retain(|&(t, at)| at > time || t.warp() != warp);
        } else {
            for lane in crate::model::lanes(lanes) {
                raise(&mut self.threads, Thread::new(warp, lane as u32), time);
            }
            self.gather();
        }
    }

    /// Replaces the entries of all 32 threads of a warp by one entry of the warp. Without this
    /// step, lanes that diverge and do the same would make clocks as long as there are threads.
    fn gather(&mut self) {
        let (mut kept, mut i) = (0, 0);
        while let Some(&(first, _)) = self.threads.get(i) {
            let is_last = |t: Thread| first.lane() == 0 && t == Thread::new(first.warp(), 31);
            let last = self.threads.get(i + 31).filter(|e| is_last(e.0));
            let end = if last.is_some() { i + 32 } else { i + 1 };
            let mut least = 0;
            if last.is_some() {
                least = self.threads[i..end].iter().map(|e| e.1).min().unwrap_or(0);
                raise(&mut self.warps, first.warp(), least);
            }
            for k in i..end {
                if self.threads[k].1 > least {
                    self.threads[kept] = self.threads[k];
                    kept += 1;
                }
            }
            i = end;
        }
        self.threads.truncate(kept);
    }

    pub(super) fn join(&mut self, topology: &impl Topology, other: &Known) {
        if other.is_empty() {
            return;
        }
        if includes(&self.ctas, &other.ctas)
            && includes(&self.warps, &other.warps)
            && includes(&self.threads, &other.threads)
        {
            return;
        }
        merge(&mut self.ctas, &other.ctas);
        merge(&mut self.warps, &other.warps);
        merge(&mut self.threads, &other.threads);
        self.gather();
        let ctas = &self.ctas;
        self.warps.retain(|&(w, t)| at(ctas, topology.cta(w)) < t);
        let warps = &self.warps;
        self.threads
            .retain(|&(thread, t)| at(warps, thread.warp()) < t && at(ctas, topology.cta(thread.warp())) < t);
    }
}

/// Everything that a thread knows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Clock {
    /// Accesses that threads made themselves.
    pub(super) seen: Known,
    /// The accesses in `seen` that a proxy fence has made known to the async proxy.
    pub(super) proxied: Known,
    /// Asynchronous copies and matrix operations that are complete, by issuing thread and time of issue.
    pub(super) copied: Known,
    /// Copies of `cp.async`, which belong to the generic proxy, that a proxy fence has made known
    /// to the async proxy.
    pub(super) copied_proxied: Known,
    /// Asynchronous copies that have read their source.
    pub(super) drained: Known,
    /// Remote operations that have read their source.
    pub(super) sent: Known,
    /// NVSHMEM operations that are delivered, by issuing thread and time of issue.
    pub(super) delivered: Known,
    /// Remote operations that the thread has issued together with others. One of these threads
    /// counts as the issuer.
    pub(super) issued: Known,
}

impl Clock {
    /// Adds that operations which threads of a PE issued, up to the time they are known, are
    /// delivered.
    pub(super) fn deliver(&mut self, topology: &impl Topology, pe: u32) {
        let mut issued = self.seen.clone();
        issued.join(topology, &self.issued);
        issued.ctas.retain(|&(c, _)| topology.pe(c) == pe);
        issued.warps.retain(|&(w, _)| topology.pe(topology.cta(w)) == pe);
        issued.threads.retain(|&(t, _)| topology.pe(topology.cta(t.warp())) == pe);
        self.delivered.join(topology, &issued);
        self.issued = Known::default();
    }

    /// A clock with only the remote operations that are known to be complete or to have read their
    /// source.
    pub(super) fn complete(&self) -> Option<Clock> {
        let Clock { sent, delivered, .. } = self;
        let any = !sent.is_empty() || !delivered.is_empty();
        any.then(|| Clock { sent: sent.clone(), delivered: delivered.clone(), ..Clock::default() })
    }

    pub(super) fn join(&mut self, topology: &impl Topology, other: &Clock) {
        self.seen.join(topology, &other.seen);
        self.proxied.join(topology, &other.proxied);
        self.copied.join(topology, &other.copied);
        self.copied_proxied.join(topology, &other.copied_proxied);
        self.drained.join(topology, &other.drained);
        self.sent.join(topology, &other.sent);
        self.delivered.join(topology, &other.delivered);
        self.issued.join(topology, &other.issued);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A topology with four warps in each CTA.
    struct Four;
    impl Topology for Four {
        fn cta(&self, warp: WarpId) -> CtaId {
            CtaId(warp.0 / 4)
        }
        fn pe(&self, _: CtaId) -> u32 {
            0
        }
    }

    #[test]
    fn coarse_entries_cover_fine_ones() {
        let mut k = Known::default();
        k.raise(WarpId(5), 0b110, false, 10);
        assert!(
            k.covers(&Four, WarpId(5), 0b110, 10)
                && !k.covers(&Four, WarpId(5), 0b111, 10)
                && !k.covers(&Four, WarpId(5), 0b10, 11)
        );
        k.raise(WarpId(5), u32::MAX, true, 12);
        assert!(k.covers(&Four, WarpId(5), u32::MAX, 12) && k.threads.is_empty());
        k.raise_cta(&Four, CtaId(1), 20);
        assert!(k.covers(&Four, WarpId(7), 1, 20) && k.warps.is_empty() && !k.covers(&Four, WarpId(8), 1, 1));
    }

    #[test]
    fn joins_keep_the_later_and_drop_what_is_covered() {
        let (mut a, mut b) = (Known::default(), Known::default());
        a.raise(WarpId(0), 1, false, 5);
        a.raise(WarpId(9), 2, false, 50);
        b.raise_cta(&Four, CtaId(0), 7);
        b.raise(WarpId(9), 2, false, 40);
        b.raise(WarpId(3), u32::MAX, true, 9);
        a.join(&Four, &b);
        assert_eq!(a.ctas, [(CtaId(0), 7)]);
        assert_eq!(a.warps, [(WarpId(3), 9)]);
        assert_eq!(a.threads, [(Thread::new(WarpId(9), 1), 50)]);
        let before = a.clone();
        a.join(&Four, &b);
        assert_eq!(a, before);
    }

    #[test]
    fn all_lanes_of_a_warp_make_one_entry() {
        let (mut a, mut b) = (Known::default(), Known::default());
        a.raise(WarpId(3), 1, false, 8);
        a.raise(WarpId(5), 1, false, 9);
        b.raise(WarpId(3), !1, false, 6);
        assert_eq!((b.warps.len(), b.threads.len()), (0, 31));
        a.join(&Four, &b);
        assert_eq!(a.warps, [(WarpId(3), 6)]);
        assert_eq!(a.threads, [(Thread::new(WarpId(3), 0), 8), (Thread::new(WarpId(5), 0), 9)]);
        a.raise(WarpId(3), !1, false, 8);
        a.raise(WarpId(3), 1, false, 8);
        assert!(a.covers(&Four, WarpId(3), u32::MAX, 8) && !a.covers(&Four, WarpId(3), 2, 9));
    }
}
