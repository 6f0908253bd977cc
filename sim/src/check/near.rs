//! Synchronisation by other threads than the two of a pair: the reason why an existing
//! synchronisation does not order their accesses.

use super::Agent;
use super::detector::{Detector, Fault, Raw, Side};
use super::patterns::Miss;
use super::shadow::Record;
use super::sync::{Met, Snapshot, Threads};
use crate::model::{CtaId, WarpId};

/// A synchronisation that other threads have made, but these two have not.
#[derive(Debug, Clone, Copy)]
pub(super) enum Near {
    /// This thread has acquired the access in another CTA; the other threads of its CTA have not.
    Learnt { warp: WarpId, lane: u32 },
    /// This thread has released its own accesses, but not the access in question, which another
    /// thread of the same CTA made.
    Told { warp: WarpId, lane: Option<u32> },
    /// The remote operation is known to be issued, but not known to be complete.
    Issued,
    /// This CTA has synchronised with the CTA `met` of the same index on another PE, but not with
    /// the other CTA of the pair.
    SameIndex { cta: CtaId, met: CtaId },
    /// The two threads have arrived at barriers that do not join them.
    Apart { later: Option<Met>, earlier: Option<Met> },
    /// Both threads arrived at this barrier before the earlier access, and a loop leads back to
    /// before the barrier.
    NextRound(Met),
}

impl Detector {
    /// Looks for another thread of a CTA that has done the synchronisation which is missing.
    pub(super) fn near(&self, me: &Record, r: &Record) -> Option<Near> {
        let (mine, its) = (self.cta_of(me.warp)?, self.cta_of(r.warp)?);
        match (me.agent, r.agent) {
            (Agent::Thread, Agent::Thread) if mine == its => self.other_barriers(me, r),
            (Agent::Thread, Agent::Thread) => self
                .learnt(mine, r)
                .or_else(|| self.told(me, its, r.time))
                .or_else(|| self.overtaken(me, r))
                .or_else(|| self.overtaken(r, me))
                .or_else(|| self.same_index((me, mine), its))
                .or_else(|| self.same_index((r, its), mine)),
            (Agent::Thread, Agent::Remote) if mine != its => {
                let known = self.clock_of(me)?.seen.covers(&self.threads, r.warp, r.lanes, r.time);
                known.then_some(Near::Issued)
            }
            _ => None,
        }
    }

    fn cta_of(&self, warp: WarpId) -> Option<CtaId> {
        self.threads.warp_cta.get(warp).copied()
    }

    /// The clock of the first thread of an access.
    fn clock_of(&self, r: &Record) -> Option<&super::clock::Clock> {
        Some(self.state(r.warp)?.clock(r.lanes.trailing_zeros().min(31) as usize))
    }

    /// A thread of the CTA that knows the access.
    fn learnt(&self, cta: CtaId, r: &Record) -> Option<Near> {
        let all = self.warps.iter().filter(|w| self.cta_of(w.number) == Some(cta));
        let learnt = all.filter_map(|w| {
            let knows = |lane: &usize| w.clock(*lane).seen.covers(&self.threads, r.warp, r.lanes, r.time);
            Some((w.number, crate::model::lanes(w.whole).find(knows)? as u32))
        });
        learnt.min().map(|(warp, lane)| Near::Learnt { warp, lane })
    }

    /// A thread of that CTA of which the access knows a later event.
    fn told(&self, me: &Record, cta: CtaId, time: u64) -> Option<Near> {
        let (warp, lane) = self.clock_of(me)?.seen.latest(&self.threads, cta, time)?;
        Some(Near::Told { warp, lane })
    }

    /// Looks for a release by one thread and an acquire by another between these two accesses in
    /// the text, where the thread of the first access had not yet completed it.
    fn overtaken(&self, first: &Record, second: &Record) -> Option<Near> {
        let (its, mine) = (self.cta_of(first.warp)?, self.cta_of(second.warp)?);
        let between = |s: &&Miss| {
            self.cta_of(s.writer) == Some(its)
                && first.pc < s.write_pc
                && s.read_pc < second.pc
                && !self.knew((first.warp, first.lanes), s.writing(), s.write_time)
        };
        let s = self.passed.get(&mine)?.iter().find(between)?;
        Some(Near::Told { warp: s.writer, lane: Some(s.writer_lane) })
    }

    /// Whether the thread knows a CTA of its own index on another PE, and nothing of CTA `other`,
    /// which has another index.
    fn same_index(&self, (me, mine): (&Record, CtaId), other: CtaId) -> Option<Near> {
        let known = &self.clock_of(me)?.seen;
        let ctas = &self.threads.ctas;
        let (own, of) = (ctas.get(mine)?, ctas.get(other)?);
        if own.ctaid == of.ctaid || known.has_met(&self.threads, other) {
            return None;
        }
        let same = |c: &CtaId| ctas[*c].ctaid == own.ctaid && ctas[*c].pe != own.pe;
        let met = ctas.ids().filter(same).find(|c| known.has_met(&self.threads, *c))?;
        Some(Near::SameIndex { cta: mine, met })
    }

    /// Barriers of the CTA at which both threads have arrived, but which do not order these
    /// accesses.
    fn other_barriers(&self, me: &Record, r: &Record) -> Option<Near> {
        if me.warp == r.warp {
            return None;
        }
        let (later, earlier) = (self.state(me.warp)?.met, self.state(r.warp)?.met);
        if let (Some(a), Some(b)) = (later, earlier)
            && (a.pc, a.at) == (b.pc, b.at)
            && b.time < r.time
            && (me.pc..r.pc).contains(&a.pc)
        {
            return Some(Near::NextRound(a));
        }
        let since = |met: &Met| met.time > r.time;
        let any = later.is_some_and(|m| since(&m)) || earlier.is_some_and(|m| since(&m));
        let of_warp = |met: Option<Met>| met.is_some_and(|m| m.at.is_none());
        let different = match (later, earlier) {
            (Some(a), Some(b)) => a.at.is_none() || a.at != b.at,
            _ => of_warp(later) || of_warp(earlier),
        };
        (any && different).then_some(Near::Apart { later, earlier })
    }
}

/// Explains findings without an explanation, if a release and an acquire by other threads are the
/// order that they lack.
pub(super) fn explain(
    threads: &Threads,
    raws: &mut [Raw],
    from: &Snapshot,
    reader: (WarpId, u32),
    read_pc: u32,
) {
    let cta = |warp: WarpId| threads.warp_cta.get(warp);
    let unexplained = |r: &&mut Raw| r.fault == Fault::Race && r.misses.is_empty() && r.near.is_none();
    for raw in raws.iter_mut().filter(unexplained) {
        let Some(other) = raw.other.filter(|o| (o.agent, raw.at.agent) == (Agent::Thread, Agent::Thread))
        else {
            continue;
        };
        let between = |(first, second): &(Side, Side)| {
            cta(first.warp) != cta(second.warp)
                && (cta(first.warp), cta(second.warp)) == (cta(from.warp), cta(reader.0))
                && first.pc < from.pc
                && read_pc < second.pc
        };
        let Some((first, second)) = [(raw.at, other), (other, raw.at)].into_iter().find(between) else {
            continue;
        };
        let released = (from.warp, from.lane) == (first.warp, first.lane)
            || from.clock.seen.covers(threads, first.warp, 1 << first.lane, first.time);
        raw.near = match released {
            false => Some(Near::Told { warp: from.warp, lane: Some(from.lane) }),
            true if reader != (second.warp, second.lane) => {
                Some(Near::Learnt { warp: reader.0, lane: reader.1 })
            }
            true => None,
        };
    }
}
