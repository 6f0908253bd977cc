//! Why two accesses are not ordered: what would have ordered them, had it been stronger, wider, or done by all.

use super::Agent;
use super::detector::{Detector, Raw};
use super::patterns::{Miss, Released, Why};
use super::shadow::Record;
use super::sync::WarpState;
use crate::order::Scope;

/// Why a CTA's threads have not learnt what others did; the oldest are forgotten.
const MISSES: usize = 64;

/// Other threads have synchronised, these two have not.
#[derive(Debug, Clone, Copy)]
pub(super) enum Near {
    /// This thread, of the later access's CTA, knows the earlier one.
    Learnt { warp: u32, lane: u32 },
    /// Something was learnt of this thread, of the earlier access's CTA, that it did later.
    Told { warp: u32, lane: Option<u32> },
    /// That the remote operation was issued is known, that it is complete is not.
    Issued,
}

impl Detector {
    fn state(&self, warp: u32) -> Option<&WarpState> {
        self.warps.iter().find(|w| w.number == warp)
    }

    /// Whether lanes of a warp, or what they know, has `lanes` of another up to a time. Of warps that have ended nothing
    /// is known any more.
    fn knew(&self, (warp, by): (u32, u32), (other, lanes): (u32, u32), time: u64) -> bool {
        warp == other && by & lanes != 0
            || self.state(warp).is_none_or(|w| {
                let lane = by.trailing_zeros().min(31) as usize;
                w.clock(lane).seen.covers(&self.threads, other, lanes, time)
            })
    }

    /// How much a finding says of what is missing: whether anything synchronised, and how far apart the threads are.
    pub(super) fn telling(&self, raw: &Raw) -> (u8, u8) {
        let explained = if raw.miss.is_some() { 2 } else { u8::from(raw.near.is_some()) };
        let scopes = [Scope::Cta, Scope::Cluster, Scope::Gpu];
        let apart = |(a, b): (u32, u32)| {
            scopes.iter().filter(|s| !self.threads.includes(**s, a, b)).count() as u8 + u8::from(a != b)
        };
        (explained, raw.other.map_or(0, |other| apart((raw.at.warp, other.warp))))
    }

    /// Why what `r` did is not known to `me`, though something was read that its CTA wrote later: a flag, not the data
    /// itself.
    pub(super) fn miss(&self, me: &Record, r: &Record) -> Option<Miss> {
        let (mine, its) =
            (self.threads.warp_cta.get(me.warp as usize)?, self.threads.warp_cta.get(r.warp as usize)?);
        let list = self.misses.get(mine)?;
        let data = [me.pc, r.pc];
        let would = |m: &&Miss| {
            m.write_time >= r.time
                && !(data.contains(&m.write_pc) && data.contains(&m.read_pc))
                && self.knew((me.warp, me.lanes), (m.reader, 1 << m.reader_lane), m.read_time)
        };
        let later = || list.iter().rev().filter(would);
        let direct = later().find(|m| {
            self.threads.warp_cta.get(m.writer as usize) == Some(its)
                && self.knew((m.writer, 1 << m.writer_lane), (r.warp, r.lanes), r.time)
        });
        // Of a chain of updates only the last is seen.
        direct.or_else(|| later().find(|m| m.chain)).copied()
    }

    /// Whether another thread of a CTA has done what the one at fault has not.
    pub(super) fn near(&self, me: &Record, r: &Record) -> Option<Near> {
        let cta = |warp: u32| self.threads.warp_cta.get(warp as usize).copied();
        let (mine, its) = (cta(me.warp)?, cta(r.warp)?);
        let knows_issue = || {
            let clock = self.state(me.warp)?.clock(me.lanes.trailing_zeros().min(31) as usize);
            clock.seen.covers(&self.threads, r.warp, r.lanes, r.time).then_some(Near::Issued)
        };
        match (me.agent, r.agent) {
            _ if mine == its => return None,
            (Agent::Thread, Agent::Thread) => {}
            (Agent::Thread, Agent::Remote) => return knows_issue(),
            _ => return None,
        }
        let all = self.warps.iter().filter(|w| cta(w.number) == Some(mine));
        let learnt = all.filter_map(|w| {
            let knows = |lane: &usize| w.clock(*lane).seen.covers(&self.threads, r.warp, r.lanes, r.time);
            let lane = crate::model::lanes(w.whole).find(knows)? as u32;
            Some(Near::Learnt { warp: w.number, lane })
        });
        let told = || {
            let clock = self.state(me.warp)?.clock(me.lanes.trailing_zeros().min(31) as usize);
            let (warp, lane) = clock.seen.latest(&self.threads, its, r.time)?;
            Some(Near::Told { warp, lane })
        };
        learnt
            .min_by_key(|n| match n {
                Near::Learnt { warp, .. } | Near::Told { warp, .. } => *warp,
                Near::Issued => 0,
            })
            .or_else(told)
    }
}

pub(super) fn note(list: &mut Vec<Miss>, miss: Miss) {
    let same = |m: &Miss| {
        (m.writer, m.write_pc, m.read_pc, m.why) == (miss.writer, miss.write_pc, miss.read_pc, miss.why)
    };
    if let Some(i) = list.iter().position(same) {
        list.remove(i);
    }
    if list.len() >= MISSES {
        list.remove(0);
    }
    list.push(miss);
}

pub(super) fn miss_of(
    why: Why,
    left: &Released,
    (reader, reader_lane, read_pc, read_time): (u32, u32, u32, u64),
) -> Miss {
    let Released { from, merged, .. } = left;
    Miss {
        why,
        chain: *merged,
        writer: from.warp,
        writer_lane: from.lane,
        write_pc: from.pc,
        write_time: from.time,
        reader,
        reader_lane,
        read_pc,
        read_time,
    }
}
