//! Operations that continue after their instruction: asynchronous operations, and those of NVSHMEM.

use super::*;
use crate::memory::UnderWay;
use crate::model::WarpSlot;
use crate::order::Fence;
use smallvec::smallvec;

impl Detector {
    /// Begins an operation of a lane that continues after its instruction.
    pub(crate) fn begin(&mut self, slot: WarpSlot, lane: usize, pc: u32, agent: Agent) -> Ticket {
        self.begin_in(slot, lane, pc, agent, Stream::Thread)
    }

    /// Begins an operation in a stream of the lane's.
    pub(crate) fn begin_in(
        &mut self,
        slot: WarpSlot,
        lane: usize,
        pc: u32,
        agent: Agent,
        stream: Stream,
    ) -> Ticket {
        self.now += 1;
        let from = self.warps[slot].snapshot(lane, self.now, pc);
        let stream = self.threads.stream(from.warp, stream);
        if agent == Agent::Remote {
            let cta = self.warps[slot].cta;
            self.ctas[cta].issuers.insert((from.warp, from.lane), from.time);
        }
        Ticket { from, stream, agent, reduces: Order::RELAXED_GPU }
    }

    /// Begins a remote operation of a whole warp, or with `block` of a CTA, which one lane carries
    /// out.
    pub(crate) fn begin_together(&mut self, slot: WarpSlot, lane: usize, pc: u32, block: bool) -> Ticket {
        self.now += 1;
        let state = &self.warps[slot];
        let first = self.threads.info(state.number).map_or(state.number, |i| i.first_warp);
        let warp = if block { first } else { state.number };
        // The first lane is who mostly carries out what completes later.
        let from = Snapshot { warp, lane: 31, ..state.snapshot(lane, self.now, pc) };
        self.ctas[state.cta].issuers.insert((warp, 31), from.time);
        Ticket { from, stream: warp, agent: Agent::Remote, reduces: Order::RELAXED_GPU }
    }

    /// Adds to a lane's clock that the operations of this ticket's stream, up to the ticket's, are
    /// complete (or have read their source).
    pub(crate) fn learn(&mut self, slot: WarpSlot, lane: usize, ticket: &Ticket, only_read: bool) {
        ticket.publish(self.warps[slot].clock_mut(lane), only_read);
    }

    /// Passes on what a lane knew at its latest fence of a scope.
    pub(crate) fn leave_fenced(&mut self, slot: WarpSlot, lane: usize, scope: Scope, clock: &mut Clock) {
        self.warps[slot].fenced(lane, scope, &self.threads, clock);
    }

    /// Handles lanes that return from a call. They have a part in issuing its operation, know
    /// whether it is complete or has read its source, and learn what all threads that met in the
    /// call knew.
    pub(crate) fn learn_call(
        &mut self,
        slot: WarpSlot,
        mask: u32,
        op: Option<&Ticket>,
        only_read: Option<bool>,
        met: Option<&Clock>,
    ) {
        let Detector { warps, threads, .. } = self;
        let alone = op.is_some_and(|op| op.from.warp == warps[slot].number && mask == 1 << op.from.lane);
        warps[slot].each_clock(mask, |clock| {
            if let Some(op) = op {
                if !alone {
                    clock.issued.raise(op.from.warp, 1 << op.from.lane, false, op.from.time);
                }
                if let Some(only_read) = only_read {
                    op.publish(clock, only_read);
                }
            }
            if let Some(met) = met {
                clock.join(threads, met);
            }
        });
    }

    /// Adds all that lanes know to a clock that others will join (of an mbarrier's phase, or of a
    /// team's collective).
    pub(crate) fn leave(&mut self, slot: WarpSlot, mask: u32, clock: &mut Clock) {
        self.now += 1;
        let Detector { warps, threads, now, .. } = self;
        let mut meeting = Meeting::of(std::mem::take(clock));
        meeting.arrive(threads, &warps[slot], mask, *now);
        *clock = meeting.clock();
    }

    /// Adds a clock that others have left to the clocks of lanes.
    pub(crate) fn take(&mut self, slot: WarpSlot, mask: u32, clock: &Clock) {
        let Detector { warps, threads, .. } = self;
        warps[slot].each_clock(mask, |own| own.join(threads, clock));
    }

    /// Handles a fence of NVSHMEM. Operations that the threads, and the threads they know, have
    /// issued on their PE are delivered before those that they issue from now on. After a quiet
    /// they know that the operations are delivered.
    pub(crate) fn remote_fence(&mut self, slot: WarpSlot, mask: u32, pc: u32, quiet: bool) {
        self.fence(slot, mask, pc, Fence::acq_rel(Scope::Sys));
        let Detector { warps, threads, now, .. } = self;
        let warp = &mut warps[slot];
        let pe = threads.info(warp.number).map_or(u32::MAX, |i| i.pe);
        // Lanes that know the same learn the same.
        let mut left = mask;
        while left != 0 {
            let group = warp.alike(left);
            left &= !group;
            let mut clock = Clock::clone(warp.clock(group.trailing_zeros().min(31) as usize));
            clock.issued.raise(warp.number, group, group == warp.whole, *now);
            clock.deliver(threads, pe);
            let clock = Arc::new(clock);
            for lane in lanes(group) {
                let from = Snapshot {
                    clock: Arc::clone(&clock),
                    warp: warp.number,
                    lane: lane as u32,
                    time: *now,
                    pc,
                };
                warp.lane(lane).remote_fence = Some(from);
            }
            if quiet {
                warp.set_clock(group, &clock);
            }
        }
    }

    /// The knowledge that a signal or AMO of a lane releases when it arrives: what fences have
    /// ordered before it, and the remote operations that the lane knows to be complete. The signal
    /// of a put comes after the put, and so after all that the thread has done and knows.
    pub(crate) fn remote_release(
        &mut self,
        slot: WarpSlot,
        lane: usize,
        pc: u32,
        put: Option<&Ticket>,
    ) -> Releases {
        self.now += 1;
        let Detector { warps, threads, now, .. } = self;
        let warp = &warps[slot];
        let mut left = warp.release(lane, &Order::RELAXED_SYS, *now, pc);
        let fence = warp.lanes.as_ref().and_then(|l| l[lane].remote_fence.clone());
        let complete = warp.clock(lane).complete();
        let from = match (fence, put) {
            (None, None) if complete.is_none() => return left,
            (fence, None) => {
                // Without a fence of its own the lane passes on no accesses, so the time is 0.
                let nothing = || Snapshot { clock: Arc::default(), time: 0, ..warp.snapshot(lane, *now, pc) };
                let mut from = fence.unwrap_or_else(nothing);
                if let Some(complete) = complete {
                    Arc::make_mut(&mut from.clock).join(threads, &complete);
                }
                from
            }
            (fence, Some(put)) => {
                let mut from = warp.snapshot(lane, *now, pc);
                let clock = Arc::make_mut(&mut from.clock);
                if let Some(fence) = fence {
                    clock.join(threads, &fence.clock);
                }
                put.publish(clock, false);
                from
            }
        };
        let carrier = Carrier::new(warp.number, Scope::Sys, *now);
        left.push(Released { scope: Scope::Sys, from, bytes: 0b1111, merged: true, carrier });
        left
    }

    /// Notes that a signal or AMO has arrived, and stores its releases at the location.
    pub(crate) fn landed(&mut self, ticket: &Ticket, left: &Releases, space: usize, at: usize, bytes: usize) {
        self.now += 1;
        let Snapshot { warp, lane, pc, time, .. } = ticket.from;
        let order = Order::RELAXED_SYS;
        let mut record = Record::new(time, warp, pc, 1 << lane, ticket.agent, &order);
        record.flags = UPDATE | if left.is_empty() { 0 } else { RELEASED };
        let by = (WarpSlot(usize::MAX), Some(&ticket.from.clock));
        self.compare(by, record, AccessKind::Update, false, (space, at, bytes));
        for word in words(at, bytes) {
            self.missed_by_reads(&record, (space, word));
            let write = &mut self.shadow.cell(space, word).write;
            if left.is_empty() && write.sync() == 0 {
                continue;
            }
            write.flags |= SYNC;
            let var = self.variables.entry((space, word)).or_default();
            let by = Carrier::new(warp, Scope::Sys, time);
            var.land(&self.threads, (left.clone(), within(word, at, bytes)), by);
        }
    }

    /// Notes the strong reads of a word that did not see an update which arrives now, although it
    /// was issued before them.
    fn missed_by_reads(&mut self, update: &Record, place: (usize, usize)) {
        let cell = *self.shadow.cell(place.0, place.1);
        let reads = self.shadow.records(&cell.read).iter().chain(self.shadow.records(&cell.write));
        let missed = |q: &&Record| q.strong.is_some() && q.agent == Agent::Thread && q.time > update.time;
        let view = UnderWay { unseen: smallvec![update.time], ..UnderWay::default() };
        for q in reads.filter(missed) {
            self.stale.entry(place).or_default().add(q, &view);
        }
    }

    /// Adds to a clock that the operations of the PE's threads, as far as the clock knows them, are
    /// complete.
    pub(crate) fn deliver(&self, clock: &mut Clock, pe: usize) {
        clock.deliver(&self.threads, pe as u32);
    }

    pub(crate) fn join(&self, into: &mut Clock, from: &Clock) {
        into.join(&self.threads, from);
    }
}

impl Ticket {
    /// Adds the operation's completion to a clock.
    pub(crate) fn publish(&self, clock: &mut Clock, only_read: bool) {
        let Snapshot { lane, time, .. } = self.from;
        let known: &mut Known = match self.agent {
            Agent::Remote if only_read => &mut clock.sent,
            Agent::Remote => &mut clock.delivered,
            _ if only_read => &mut clock.drained,
            _ => &mut clock.copied,
        };
        known.raise(self.stream, 1 << lane, false, time);
    }
}
