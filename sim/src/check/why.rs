//! Finds why two accesses are not ordered: the synchronisation that would have ordered them if it
//! had been stronger, wider, or made by all threads.

use super::detector::{Detector, Raw};
use super::near;
use super::patterns::{Miss, Released, Unordered};
use super::shadow::Record;
use super::sync::{Threads, WarpState};
use crate::model::{CtaId, WarpId};
use crate::order::Scope;
use rustc_hash::FxHashMap;

/// The number of reasons kept for a CTA; the oldest are forgotten.
const MISSES: usize = 64;
/// The largest number of threads that pass a value on, and of chains that are followed.
const RELAYS: usize = 3;
const WAYS: usize = 64;

impl Detector {
    pub(super) fn state(&self, warp: WarpId) -> Option<&WarpState> {
        self.warps.iter().find(|w| w.number == warp)
    }

    /// Whether lanes of a warp, or their clock, know `lanes` of another warp up to a time. Nothing
    /// is known of warps that have ended.
    pub(super) fn knew(&self, (warp, by): (WarpId, u32), (other, lanes): (WarpId, u32), time: u64) -> bool {
        warp == other && by & lanes != 0
            || self.state(warp).is_none_or(|w| {
                let lane = by.trailing_zeros().min(31) as usize;
                w.clock(lane).seen.covers(&self.threads, other, lanes, time)
            })
    }

    /// How well a finding explains the missing order: whether anything synchronised, and how far
    /// apart the threads are.
    pub(super) fn telling(&self, raw: &Raw) -> (u8, u8) {
        let explained = if raw.misses.is_empty() { u8::from(raw.near.is_some()) } else { 2 };
        (explained, raw.other.map_or(0, |other| self.apart(raw.at.warp, other.warp)))
    }

    /// How far apart two warps are.
    pub(super) fn apart(&self, a: WarpId, b: WarpId) -> u8 {
        let scopes = [Scope::Cta, Scope::Cluster, Scope::Gpu];
        scopes.iter().filter(|s| !self.threads.includes(**s, a, b)).count() as u8 + u8::from(a != b)
    }

    /// The reasons why `me` does not know the access `r`, although it read something that the CTA
    /// of `r` wrote later: a flag, not the data itself. A chain of threads that pass on a value
    /// gives several misses, in order from `r` to `me`.
    pub(super) fn misses(&self, me: &Record, r: &Record) -> Vec<Miss> {
        let data = [me.pc, r.pc];
        let later =
            |m: &&Miss| m.write_time >= r.time && !(data.contains(&m.write_pc) && data.contains(&m.read_pc));
        let cta = |warp: WarpId| self.threads.warp_cta.get(warp);
        let list = cta(me.warp).and_then(|mine| self.misses.get(mine)).map_or(&[][..], |list| list);
        let known = |m: &&Miss| self.knew((me.warp, me.lanes), (m.reader, 1 << m.reader_lane), m.read_time);
        let would = || list.iter().rev().filter(later).filter(known);
        let wrote = |m: &&Miss| self.knew((m.writer, 1 << m.writer_lane), (r.warp, r.lanes), r.time);
        let direct = would().find(|m| cta(m.writer) == cta(r.warp) && wrote(m));
        // Only the last update of a chain is visible.
        match direct.or_else(|| would().find(|m| m.chain)) {
            Some(m) => vec![*m],
            None => self.relayed(me, r, &later),
        }
    }

    /// The shortest chain from `r` to `me` through threads of other CTAs in which each hop would
    /// have passed on the access `r`.
    fn relayed(&self, me: &Record, r: &Record, later: &dyn Fn(&&Miss) -> bool) -> Vec<Miss> {
        let all: Vec<&Miss> = self.misses.values().flatten().filter(later).collect();
        let knows = |(warp, lanes): (WarpId, u32), (other, of): (WarpId, u32), time| {
            self.state(warp).is_some() && self.knew((warp, lanes), (other, of), time)
        };
        let mut ways: Vec<Vec<Miss>> = vec![Vec::new()];
        for _ in 0..RELAYS {
            let mut longer = Vec::new();
            for way in &ways {
                let (by, until) =
                    way.last().map_or(((me.warp, me.lanes), u64::MAX), |m| (m.writing(), m.write_time));
                let hops = all.iter().filter(|m| m.read_time <= until && knows(by, m.reading(), m.read_time));
                longer.extend(hops.map(|m| [&way[..], &[**m]].concat()));
            }
            let arrives =
                |way: &&Vec<Miss>| way.last().is_some_and(|m| knows(m.writing(), (r.warp, r.lanes), r.time));
            if let Some(way) = longer.iter().find(arrives) {
                return way.iter().rev().copied().collect();
            }
            longer.truncate(WAYS);
            ways = longer;
        }
        Vec::new()
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

fn miss_of(
    why: Unordered,
    left: &Released,
    (reader, reader_lane, read_pc, read_time): (WarpId, u32, u32, u64),
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

/// The results of reads of others' releases, collected for the reader's CTA.
pub(super) struct ReadReleases<'a> {
    pub threads: &'a Threads,
    pub raws: &'a mut [Raw],
    /// The releases that threads read but did not acquire, and those that they did acquire, by CTA.
    pub misses: &'a mut FxHashMap<CtaId, Vec<Miss>>,
    pub passed: &'a mut FxHashMap<CtaId, Vec<Miss>>,
    pub cta: CtaId,
    pub reader: (WarpId, u32),
    pub now: u64,
}

impl ReadReleases<'_> {
    pub(super) fn note(&mut self, why: Unordered, left: &Released, read_pc: u32) {
        let (reader, lane) = self.reader;
        let miss = miss_of(why, left, (reader, lane, read_pc, self.now));
        if why != Unordered::Learnt {
            return note(self.misses.entry(self.cta).or_default(), miss);
        }
        note(self.passed.entry(self.cta).or_default(), miss);
        near::explain(self.threads, self.raws, &left.from, self.reader, read_pc);
    }
}
