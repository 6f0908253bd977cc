//! Why two accesses are not ordered: what would have ordered them, had it been stronger, wider, or done by all.

use super::detector::{Detector, Raw};
use super::near;
use super::patterns::{Miss, Released, Why};
use super::shadow::Record;
use super::sync::{Threads, WarpState};
use crate::model::{CtaId, WarpId};
use crate::order::Scope;
use rustc_hash::FxHashMap;

/// Why a CTA's threads have not learnt what others did; the oldest are forgotten.
const MISSES: usize = 64;
/// Most threads that pass something on, and most ways that are followed.
const RELAYS: usize = 3;
const WAYS: usize = 64;

impl Detector {
    pub(super) fn state(&self, warp: WarpId) -> Option<&WarpState> {
        self.warps.iter().find(|w| w.number == warp)
    }

    /// Whether lanes of a warp, or what they know, has `lanes` of another up to a time. Of warps that have ended nothing
    /// is known any more.
    pub(super) fn knew(&self, (warp, by): (WarpId, u32), (other, lanes): (WarpId, u32), time: u64) -> bool {
        warp == other && by & lanes != 0
            || self.state(warp).is_none_or(|w| {
                let lane = by.trailing_zeros().min(31) as usize;
                w.clock(lane).seen.covers(&self.threads, other, lanes, time)
            })
    }

    /// How much a finding says of what is missing: whether anything synchronised, and how far apart the threads are.
    pub(super) fn telling(&self, raw: &Raw) -> (u8, u8) {
        let explained = if raw.misses.is_empty() { u8::from(raw.near.is_some()) } else { 2 };
        (explained, raw.other.map_or(0, |other| self.apart(raw.at.warp, other.warp)))
    }

    /// How far apart two warps are.
    pub(super) fn apart(&self, a: WarpId, b: WarpId) -> u8 {
        let scopes = [Scope::Cta, Scope::Cluster, Scope::Gpu];
        scopes.iter().filter(|s| !self.threads.includes(**s, a, b)).count() as u8 + u8::from(a != b)
    }

    /// Why what `r` did is not known to `me`, though something was read that its CTA wrote later: a flag, not the data
    /// itself. Through threads that pass on what they read it is several misses, from `r` to `me`.
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
        // Of a chain of updates only the last is seen.
        match direct.or_else(|| would().find(|m| m.chain)) {
            Some(m) => vec![*m],
            None => self.relayed(me, r, &later),
        }
    }

    /// The shortest way from `r` to `me` through threads of other CTAs, if each hop would have passed on what `r` did.
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
    why: Why,
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

/// What came of a read of what others released goes to the reader's CTA.
pub(super) struct Heard<'a> {
    pub threads: &'a Threads,
    pub raws: &'a mut [Raw],
    /// What threads have not learnt, and what they have, by CTA.
    pub misses: &'a mut FxHashMap<CtaId, Vec<Miss>>,
    pub passed: &'a mut FxHashMap<CtaId, Vec<Miss>>,
    pub cta: CtaId,
    pub reader: (WarpId, u32),
    pub now: u64,
}

impl Heard<'_> {
    pub(super) fn note(&mut self, why: Why, left: &Released, read_pc: u32) {
        let (reader, lane) = self.reader;
        let miss = miss_of(why, left, (reader, lane, read_pc, self.now));
        if why != Why::Learnt {
            return note(self.misses.entry(self.cta).or_default(), miss);
        }
        note(self.passed.entry(self.cta).or_default(), miss);
        near::explain(self.threads, self.raws, &left.from, self.reader, read_pc);
    }
}
