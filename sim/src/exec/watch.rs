//! Reports the effects of instructions to the detector. Without checks nothing is reported, at
//! almost no cost.

use super::Context;
use super::access::Space;
use super::asynchronous::mbarrier::SIZE;
use crate::check::detector::Touch;
use crate::check::{AccessKind, Detector};
use crate::memory::{Spot, UnderWay, Window};
use crate::model::{Lanes, lanes};
use crate::order::{Fence, Order};

impl Context<'_> {
    /// Reports an access of `bytes` bytes by each active lane. Returns the lanes that write where a
    /// lower lane also writes.
    #[inline]
    pub(crate) fn watch(
        &mut self,
        space: Space,
        addresses: &Lanes,
        bytes: usize,
        kind: AccessKind,
        order: Order,
    ) -> u32 {
        self.watch_lanes(space, addresses, bytes, Touch { pc: self.pc, kind, order, same: 0 })
    }

    /// Reports an access whose details are known.
    #[inline]
    pub(crate) fn watch_lanes(&mut self, space: Space, addresses: &Lanes, bytes: usize, what: Touch) -> u32 {
        if matches!(space, Space::Local | Space::Param | Space::Const) {
            return 0;
        }
        self.settle();
        // The detector is taken out, so that it can read the rest of the context.
        let Some(d) = self.check.take() else { return 0 };
        let collisions = self.watched(d, space, addresses, bytes, what);
        self.check = Some(d);
        collisions
    }

    #[inline(never)]
    fn watched(&self, d: &mut Detector, space: Space, addresses: &Lanes, bytes: usize, what: Touch) -> u32 {
        d.tick();
        let mut collisions = 0;
        let mut w = Window::empty();
        let first = self.active.trailing_zeros() as usize;
        // If all lanes read the same address, they make one access together.
        let uniform =
            what.kind == AccessKind::Read && lanes(self.active).all(|l| addresses[l] == addresses[first]);
        for lane in lanes(if uniform { 1 << first } else { self.active }) {
            let Some(s) = self.place(space, addresses[lane], bytes, lane, &mut w) else { continue };
            if what.kind.reads() && !self.memory.is_written(s.buffer, s.at, bytes) {
                d.uninitialised(self.slot, lane, &what, (s.buffer, s.at, bytes));
            }
            let mask = if uniform { self.active } else { 1 << lane };
            let under_way = self.under_way(&what, s, bytes);
            if d.touch(self.slot, mask, &what, (s.buffer, s.at, bytes), under_way) {
                collisions |= 1 << lane;
            }
        }
        collisions
    }

    /// Returns the location of a lane's access to memory that other threads can see. An access out
    /// of bounds is reported when it is made.
    pub(crate) fn place(
        &self,
        space: Space,
        addr: u64,
        bytes: usize,
        lane: usize,
        w: &mut Window,
    ) -> Option<Spot> {
        let (space, addr) = match space {
            Space::Generic => Space::of_generic(addr),
            Space::Cluster => Space::of_generic(addr | space.window()),
            _ => (space, addr),
        };
        match space {
            Space::Global => {
                if !w.holds(addr, bytes as u64) {
                    *w = self.memory.window(self.at.pe, addr, bytes as u64).ok()?;
                }
                Some(self.memory.spot_in(w, addr))
            }
            Space::Shared => {
                let at = usize::try_from(addr).ok()?;
                let size = self.memory.buffers[self.shared].len();
                (at < size && size - at >= bytes).then_some(Spot { buffer: self.shared, at })
            }
            Space::Cluster => self.remote(addr, bytes, lane).ok(),
            _ => None,
        }
    }

    /// Reports an access of `bytes` bytes by each active lane on every member of a team.
    pub(crate) fn watch_multicast(
        &mut self,
        addresses: &Lanes,
        bytes: usize,
        kind: AccessKind,
        order: Order,
    ) {
        self.settle();
        let Some(d) = self.check.take() else { return };
        d.tick();
        let what = Touch { pc: self.pc, kind, order, same: 0 };
        for lane in lanes(self.active) {
            let found = self.memory.multicast(self.at.pe, addresses[lane], bytes as u64);
            let Ok((team, at)) = found else { continue };
            for &pe in &self.memory.teams[team].members {
                let buffer = self.memory.heap(pe, 0).buffer;
                if kind.reads() && !self.memory.is_written(buffer, at, bytes) {
                    d.uninitialised(self.slot, lane, &what, (buffer, at, bytes));
                }
                let under_way = self.under_way(&what, Spot { buffer, at }, bytes);
                d.touch(self.slot, 1 << lane, &what, (buffer, at, bytes), under_way);
            }
        }
        self.check = Some(d);
    }

    /// Returns what a strong access sees of the pending stores.
    fn under_way(&self, what: &Touch, at: Spot, bytes: usize) -> UnderWay {
        match what.order.strong.is_some() {
            true => self.memory.under_way(self.accessor(), at, bytes),
            false => UnderWay::default(),
        }
    }

    /// Reports that lane `lane`, one of those that [`watch`](Self::watch) returned, is about to
    /// write a different value than a lower lane has just written.
    #[cold]
    pub(crate) fn collide(
        &mut self,
        space: Space,
        addresses: &Lanes,
        lane: usize,
        bytes: usize,
        order: Order,
    ) {
        let addr = addresses[lane];
        let same = |l: &usize| self.active >> l & 1 != 0 && addresses[*l] == addr;
        let Some(lower) = (0..lane).rev().find(same) else { return };
        let Some(s) = self.place(space, addr, bytes, lane, &mut Window::empty()) else { return };
        let what = Touch { pc: self.pc, kind: AccessKind::Write, order, same: 0 };
        let slot = self.slot;
        if let Some(d) = self.check.as_deref_mut() {
            d.collision(slot, lane, lower, &what, (s.buffer, s.at, bytes));
        }
    }

    /// Whether a strong store of some active lane releases something through an earlier fence.
    #[inline]
    pub(crate) fn releases(&self, order: &Order) -> bool {
        order.strong.is_some()
            && self.check.as_ref().is_some_and(|d| lanes(self.active).any(|l| d.has_fenced(self.slot, l)))
    }

    /// Reports operations of the active lanes on whole mbarriers.
    pub(crate) fn watch_mbarrier(&mut self, space: Space, addresses: &Lanes, kind: AccessKind, order: Order) {
        let Some(d) = self.check.take() else { return };
        d.tick();
        let what = Touch { pc: self.pc, kind, order, same: 0 };
        let mut w = Window::empty();
        for lane in lanes(self.active) {
            if let Some(s) = self.place(space, addresses[lane], SIZE, lane, &mut w) {
                d.operate(self.slot, 1 << lane, &what, (s.buffer, s.at, SIZE));
            }
        }
        self.check = Some(d);
    }

    /// Reports a fence of the active lanes.
    pub(crate) fn watch_fence(&mut self, fence: Fence) {
        let (slot, active, pc) = (self.slot, self.active, self.pc);
        if let Some(d) = self.check.as_deref_mut() {
            d.fence(slot, active, pc, fence);
        }
    }

    /// Reports a fence between the generic and the async proxy.
    pub(crate) fn watch_proxy(&mut self) {
        let (slot, active) = (self.slot, self.active);
        if let Some(d) = self.check.as_deref_mut() {
            d.fence_proxy(slot, active);
        }
    }

    /// Reports that the active lanes have met.
    pub(crate) fn watch_warp_sync(&mut self, met: u32) {
        let (slot, pc) = (self.slot, self.pc);
        if let Some(d) = self.check.as_deref_mut() {
            d.warp_sync(slot, met, pc);
        }
    }
}
