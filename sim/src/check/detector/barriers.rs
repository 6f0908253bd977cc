//! Proxy fences, and barriers of warps, CTAs and clusters.

use super::*;
use crate::model::{CtaSlot, WarpSlot};

impl Detector {
    /// A proxy fence passes everything that the lanes know to the async proxy.
    pub(crate) fn fence_proxy(&mut self, slot: WarpSlot, mask: u32) {
        self.now += 1;
        let Detector { warps, threads, now, .. } = self;
        let warp = &mut warps[slot];
        let number = warp.number;
        for lane in lanes(mask) {
            let clock = warp.clock_mut(lane);
            let seen = clock.seen.clone();
            clock.proxied.join(threads, &seen);
            clock.proxied.raise(number, 1 << lane, false, *now);
            let copied = clock.copied.clone();
            clock.copied_proxied.join(threads, &copied);
        }
    }

    /// Joins the clocks of the lanes of a warp that meet at `bar.warp.sync`.
    pub(crate) fn warp_sync(&mut self, slot: WarpSlot, mask: u32, pc: u32) {
        self.now += 1;
        let Detector { warps, threads, now, .. } = self;
        let warp = &mut warps[slot];
        warp.met = Some(Met { warp: warp.number, time: *now, pc, at: None });
        let mut meeting = Meeting::default();
        meeting.arrive(threads, warp, mask, *now);
        warp.set_clock(mask, &Arc::new(meeting.clock()));
    }

    /// Notes that lanes arrive at barrier `id` of their CTA.
    pub(crate) fn arrive(&mut self, slot: WarpSlot, cta: CtaSlot, (id, pc): (usize, u32), mask: u32) {
        self.now += 1;
        let Detector { warps, threads, ctas, now, .. } = self;
        let meeting = ctas[cta].barriers[id].get_or_insert_default();
        meeting.arrive(threads, &warps[slot], mask, *now);
        warps[slot].met = Some(Met { warp: warps[slot].number, time: *now, pc, at: Some(id) });
    }

    /// Completes a barrier: the `waiting` threads (slots and lanes) continue. `all` tells whether
    /// the barrier is of the whole CTA.
    pub(crate) fn complete(&mut self, cta: CtaSlot, id: usize, all: bool, waiting: &[(WarpSlot, u32)]) {
        self.now += 1;
        let Detector { warps, threads, ctas, now, .. } = self;
        let state = &mut ctas[cta];
        let mut meeting = state.barriers[id].take().map_or_else(Meeting::default, |m| *m);
        if all {
            if let Some(ended) = &state.ended {
                meeting.join(threads, ended);
            }
            let clock = meeting.clock_mut();
            clock.seen.raise_cta(threads, state.number, *now);
            // That all of a CTA's operations are delivered, or have read their sources, is told by one entry.
            let all =
                |known: &Known| state.issuers.iter().all(|(&(w, l), &t)| known.covers(threads, w, 1 << l, t));
            if !state.issuers.is_empty() {
                if all(&clock.delivered) {
                    state.issuers.clear();
                    clock.delivered.raise_cta(threads, state.number, *now);
                    clock.sent.raise_cta(threads, state.number, *now);
                } else if all(&clock.sent) {
                    clock.sent.raise_cta(threads, state.number, *now);
                }
            }
        }
        let clock = Arc::new(meeting.clock());
        for &(slot, mask) in waiting {
            warps[slot].set_clock(mask, &clock);
        }
    }

    /// Notes that threads end. A barrier of the whole CTA at which others wait counts them as
    /// arrived.
    pub(crate) fn exit(&mut self, slot: WarpSlot, cta: CtaSlot, mask: u32) {
        self.now += 1;
        let Detector { warps, threads, ctas, now, .. } = self;
        let ended = ctas[cta].ended.get_or_insert_default();
        ended.arrive(threads, &warps[slot], mask, *now);
    }

    /// Notes that lanes arrive at the barrier of the cluster whose first CTA is in `leader`.
    /// Without a release they pass on what they knew at their latest fences.
    pub(crate) fn arrive_cluster(&mut self, slot: WarpSlot, leader: CtaSlot, mask: u32, releases: bool) {
        self.now += 1;
        let Detector { warps, threads, ctas, now, .. } = self;
        let meeting = ctas[leader].cluster.get_or_insert_default();
        if releases {
            meeting.arrive(threads, &warps[slot], mask, *now);
        } else {
            for lane in lanes(mask) {
                warps[slot].fenced(lane, Scope::Cluster, threads, meeting.clock_mut());
            }
        }
    }

    /// Completes the cluster's barrier.
    pub(crate) fn complete_cluster(&mut self, leader: CtaSlot) {
        let meeting = self.ctas[leader].cluster.take().map_or_else(Meeting::default, |m| *m);
        self.ctas[leader].met = Some(Arc::new(meeting.clock()));
    }

    /// Passes the clock at the end of a grid to lanes that have waited for it.
    pub(crate) fn wait_grid(&mut self, slot: WarpSlot, mask: u32, grid: usize) {
        let ends = std::mem::take(&mut self.grids[grid].ends);
        self.take(slot, mask, &ends);
        self.grids[grid].ends = ends;
    }

    /// Passes the clock of the cluster's barrier to lanes that have waited for it.
    pub(crate) fn wait_cluster(&mut self, slot: WarpSlot, leader: CtaSlot, mask: u32) {
        if let Some(clock) = self.ctas[leader].met.clone() {
            self.take(slot, mask, &clock);
        }
    }
}
