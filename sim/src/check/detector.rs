//! Compares every access with the latest accesses to the same bytes.

mod barriers;
mod operations;
mod strong;

use super::clock::{Clock, Known};
use super::compare::{Access, Comparison, Remembered};
use super::near::Near;
use super::patterns::{self, Carrier, Miss, Released, Releases, StrongRead, StrongWrite, SyncVar, Unordered};
use super::sequential::{Sequential, Version};
use super::shadow::{Cell, PAGE, RELEASED, Record, SYNC, Shadow, UNCHANGED, UPDATE};
use super::stale::StaleReads;
use super::sync::{CodeLocation, CtaInfo, Meeting, Met, Snapshot, Stream, Threads, WarpState};
use super::why::{ReadReleases, note};
use super::{AccessKind, Agent, Check};
use crate::model::{BARRIERS, CtaId, CtaSlot, Table, WarpId, WarpSlot, lanes};
use crate::order::{Order, Scope};
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// The kind of error in a pair of accesses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Fault {
    Race,
    /// Both accesses are strong, but one scope does not include the other thread.
    Scope,
    /// The earlier access is known to the thread, but not to the async proxy.
    Proxy,
    Uninitialised,
    NonCoherent,
}

/// One side of a finding.
#[derive(Debug, Clone, Copy)]
pub(super) struct Side {
    pub warp: WarpId,
    pub lane: u32,
    pub pc: u32,
    pub agent: Agent,
    pub kind: AccessKind,
    pub strong: Option<Scope>,
    pub time: u64,
}

/// A finding before it is expressed in words.
#[derive(Debug, Clone)]
pub(super) struct Raw {
    pub fault: Fault,
    pub at: Side,
    pub other: Option<Side>,
    pub space: usize,
    pub offset: usize,
    pub bytes: usize,
    /// The synchronisations that would have ordered the accesses if they had been strong or wide
    /// enough, in order from the earlier access.
    pub misses: Vec<Miss>,
    /// Whether other threads of their CTAs have synchronised.
    pub near: Option<Near>,
    /// The instruction by which the writing thread has read the same bytes before, as the other
    /// thread has. Both accesses belong to an update.
    pub update: Option<u32>,
    pub count: u64,
}

/// The number of pairs of the same two instructions that are examined for the one that explains
/// most.
const EXPLAINED: u64 = 64;

/// State of a resident CTA.
#[derive(Default)]
struct CtaState {
    number: CtaId,
    /// The clock of its threads when they begin.
    begins: Arc<Clock>,
    barriers: [Option<Box<Meeting>>; BARRIERS],
    /// Threads with remote operations that were not known to be delivered: the warp and lane, and
    /// the time of the last issue.
    issuers: FxHashMap<(WarpId, u32), u64>,
    /// The clocks of threads that have ended.
    ended: Option<Box<Meeting>>,
    /// The cluster's barrier, kept with the cluster's first CTA: the clocks of the arrived threads,
    /// for those that wait.
    cluster: Option<Box<Meeting>>,
    met: Option<Arc<Clock>>,
}

/// A grid of the run.
#[derive(Default)]
struct GridState {
    /// The number of its module.
    image: u32,
    /// The grids that end before it begins.
    after: Vec<usize>,
    /// The clock of its threads when they begin, once the first has begun.
    begins: Option<Arc<Clock>>,
    /// The clock at the end of the grid.
    ends: Clock,
}

/// An operation that continues after its instruction: its issuer, the time of issue, and the clock
/// at that time.
#[derive(Clone)]
pub(crate) struct Ticket {
    pub(super) from: Snapshot,
    /// The number of its stream.
    stream: WarpId,
    pub(super) agent: Agent,
    /// The memory order of its reductions.
    pub reduces: Order,
}

/// An instruction's access by one or more lanes of a warp.
#[derive(Clone, Copy)]
pub(crate) struct Touch {
    pub pc: u32,
    pub kind: AccessKind,
    pub order: Order,
    /// The lanes that write the value that is already there. Such a write does not race with the
    /// earlier write of that value.
    pub same: u32,
}

/// The checks of a launch.
pub(crate) struct Detector {
    pub(super) options: Check,
    now: u64,
    pub(super) threads: Threads,
    /// The warps, by the runner's slot.
    pub(super) warps: Table<WarpSlot, WarpState>,
    ctas: Table<CtaSlot, CtaState>,
    grids: Vec<GridState>,
    pub(super) shadow: Shadow,
    variables: FxHashMap<CodeLocation, SyncVar>,
    stale: FxHashMap<CodeLocation, StaleReads>,
    sequential: Sequential,
    /// By CTA, the releases that threads read but did not acquire.
    pub(super) misses: FxHashMap<CtaId, Vec<Miss>>,
    /// By CTA, the releases that threads did acquire.
    pub(super) passed: FxHashMap<CtaId, Vec<Miss>>,
    pub(super) raws: Vec<Raw>,
    index: FxHashMap<(Fault, u32, u32, u32), usize>,
    /// The number of findings beyond the limit.
    pub(super) dropped: u64,
    /// The number of spaces of global memory; the shared memory of each CTA slot follows them.
    pub(super) globals: usize,
}

impl Detector {
    pub(crate) fn new(options: Check, globals: usize) -> Detector {
        Detector {
            options,
            now: 1,
            threads: Threads::default(),
            warps: Table::default(),
            ctas: Table::default(),
            grids: Vec::new(),
            shadow: Shadow::default(),
            variables: FxHashMap::default(),
            stale: FxHashMap::default(),
            sequential: Sequential::default(),
            misses: FxHashMap::default(),
            passed: FxHashMap::default(),
            raws: Vec::new(),
            index: FxHashMap::default(),
            dropped: 0,
            globals,
        }
    }

    /// Adds a grid of a module that runs after other grids. `sequential` tells whether the module
    /// has `fence.sc`.
    pub(crate) fn add_grid(&mut self, image: u32, after: &[usize], sequential: bool) {
        self.sequential.on |= sequential;
        self.grids.push(GridState { image, after: after.to_vec(), ..GridState::default() });
    }

    /// The clock at the end of the grids before this one.
    fn begins(&mut self, grid: usize) -> Arc<Clock> {
        if let Some(begins) = &self.grids[grid].begins {
            return Arc::clone(begins);
        }
        let mut begins = Clock::default();
        for before in &self.grids[grid].after {
            begins.join(&self.threads, &self.grids[*before].ends);
        }
        Arc::clone(self.grids[grid].begins.insert(Arc::new(begins)))
    }

    /// Notes that a CTA becomes resident in a slot. `leader` is the slot of its cluster's first
    /// CTA.
    pub(crate) fn start_cta(
        &mut self,
        (slot, leader): (CtaSlot, CtaSlot),
        pe: usize,
        grid: usize,
        ctaid: [u32; 3],
    ) {
        let number = self.threads.ctas.next_id();
        let first_warp = self.threads.warp_cta.next_id();
        let begins = self.begins(grid);
        *self.ctas.entry(slot, CtaState::default) = CtaState { number, begins, ..CtaState::default() };
        let cluster = self.ctas[leader].number;
        let info = CtaInfo { grid: grid as u32, pe: pe as u32, ctaid, cluster, first_warp };
        self.threads.ctas.push(info);
        let space = self.globals + slot.0;
        self.shadow.clear(space);
        self.variables.retain(|(s, _), _| *s != space);
        self.stale.retain(|(s, _), _| *s != space);
        self.sequential.clear(space);
    }

    /// Notes that all threads of a CTA have ended.
    pub(crate) fn end_cta(&mut self, slot: CtaSlot, grid: usize) {
        self.now += 1;
        let Detector { threads, ctas, grids, now, .. } = self;
        let ends = &mut grids[grid].ends;
        if let Some(ended) = ctas[slot].ended.take() {
            ends.join(threads, &ended.clock());
        }
        ends.seen.raise_cta(threads, ctas[slot].number, *now);
    }

    /// Notes that the next warp of the CTA in `cta` starts in `slot`.
    pub(crate) fn start_warp(&mut self, slot: WarpSlot, cta: CtaSlot, live: u32) {
        let number = self.threads.warp_cta.next_id();
        self.threads.warp_cta.push(self.ctas[cta].number);
        let base = Arc::clone(&self.ctas[cta].begins);
        let state = WarpState { number, cta, whole: live, base, lanes: None, diverged: false, met: None };
        match self.warps.get_mut(slot) {
            Some(place) => *place = state,
            // Slots are handed out in order.
            None => drop(self.warps.push(state)),
        }
    }

    /// Advances the time to that of the next instruction.
    pub(crate) fn tick(&mut self) {
        self.now += 1;
    }

    /// The time of the current instruction.
    pub(crate) fn now(&self) -> u64 {
        self.now
    }

    /// Handles an access of lanes of a warp to an object that has its own synchronisation rules (an
    /// mbarrier).
    pub(crate) fn operate(&mut self, slot: WarpSlot, mask: u32, what: &Touch, place: (usize, usize, usize)) {
        let mut record =
            Record::new(self.now, self.warps[slot].number, what.pc, mask, Agent::Thread, &what.order);
        record.flags = if what.kind == AccessKind::Update { UPDATE } else { 0 };
        self.compare((slot, None), record, what.kind, what.order.non_coherent, place);
    }

    /// Handles a read or write by an operation that a thread began.
    pub(crate) fn land(&mut self, ticket: &Ticket, kind: AccessKind, space: usize, at: usize, bytes: usize) {
        let Snapshot { lane, time, pc, .. } = ticket.from;
        let (order, flags) = match kind {
            AccessKind::Update if ticket.agent == Agent::Async => (&ticket.reduces, UPDATE),
            _ => (&Order::WEAK, 0),
        };
        let mut record = Record::new(time, ticket.stream, pc, 1 << lane, ticket.agent, order);
        record.flags = flags;
        self.compare(
            (WarpSlot(usize::MAX), Some(&ticket.from.clock)),
            record,
            kind,
            false,
            (space, at, bytes),
        );
    }

    /// Compares an access with earlier ones, and remembers it. Returns whether a lower lane writes
    /// the same bytes in the same instruction. `slot` is the warp's; a pending operation has a
    /// ticket's clock instead.
    fn compare(
        &mut self,
        (slot, ticket): (WarpSlot, Option<&Arc<Clock>>),
        me: Record,
        kind: AccessKind,
        non_coherent: bool,
        (space, at, bytes): (usize, usize, usize),
    ) -> bool {
        if !self.options.races || bytes == 0 {
            return false;
        }
        let (mut collides, mut wrong, mut update) = (false, None, None);
        let unwritten = space < self.globals || !self.options.uninitialised;
        let Detector { warps, threads, shadow, variables, stale, .. } = self;
        let (threads, warp, ticket) = (&*threads, warps.get(slot), ticket.map(|t| &**t));
        let mut access = Access { threads, me, kind, ticket, warp, non_coherent };
        // Neighbours mostly have been accessed together: what is known of one is known of the next.
        let mut latest = [Record::default(); 2];
        let mut compared = Comparison::default();
        let (mut word, end) = (at / 4, (at + bytes - 1) / 4);
        while word <= end {
            if !non_coherent {
                let first = word;
                let cells = shadow.run(space, word, end);
                word += access.plain_run(cells, (word, at, bytes), unwritten, &mut latest);
                if word > end {
                    break;
                }
                if word > first && word.is_multiple_of(PAGE) {
                    continue;
                }
            }
            access.me.bytes = within(word, at, bytes);
            let mut cell: Cell = *shadow.cell(space, word);
            let (writes, reads) = (shadow.records(&cell.write), shadow.records(&cell.read));
            let stale = if stale.is_empty() { None } else { stale.get(&(space, word)) };
            access.compare(Remembered { writes, reads, stale }, &mut compared);
            collides |= compared.collides;
            if let (None, Some((_, other, other_kind))) = (&wrong, &compared.wrong) {
                update = access.updates(reads, other, *other_kind);
            }
            wrong = wrong.or(compared.wrong);
            if kind.reads() && !unwritten && access.me.bytes & !compared.written != 0 {
                wrong = wrong.or(Some((Fault::Uninitialised, access.me, kind)));
            }
            if kind.writes() && me.strong.is_none() && cell.write.sync() != 0 {
                forget(variables, (space, word), access.me.bytes, &mut cell);
            }
            shadow.remember(&mut cell, &access.me, kind, &compared);
            *shadow.cell(space, word) = cell;
            word += 1;
        }
        if let Some((fault, other, other_kind)) = wrong {
            let me = access.me;
            self.report((fault, update), me, kind, Some((other, other_kind)), (space, at, bytes));
        }
        collides
    }

    /// Reports that two lanes of one instruction write different values to the same bytes.
    pub(crate) fn collision(
        &mut self,
        slot: WarpSlot,
        lane: usize,
        other: usize,
        what: &Touch,
        place: (usize, usize, usize),
    ) {
        let number = self.warps[slot].number;
        let me = Record::new(self.now, number, what.pc, 1 << lane, Agent::Thread, &what.order);
        let other = Record { lanes: 1 << other, ..me };
        self.report((Fault::Race, None), me, what.kind, Some((other, what.kind)), place);
    }

    /// Reports a read of memory that has not been written.
    pub(crate) fn uninitialised(
        &mut self,
        slot: WarpSlot,
        lane: usize,
        what: &Touch,
        place: (usize, usize, usize),
    ) {
        let number = self.warps[slot].number;
        let me = Record::new(self.now, number, what.pc, 1 << lane, Agent::Thread, &what.order);
        self.report((Fault::Uninitialised, None), me, what.kind, None, place);
    }

    /// Reports a read of unwritten memory by a pending operation.
    pub(crate) fn land_uninitialised(&mut self, ticket: &Ticket, place: (usize, usize, usize)) {
        let Snapshot { warp, lane, time, pc, .. } = ticket.from;
        let me = Record::new(time, warp, pc, 1 << lane, ticket.agent, &Order::WEAK);
        self.report((Fault::Uninitialised, None), me, AccessKind::Read, None, place);
    }

    fn report(
        &mut self,
        (fault, update): (Fault, Option<u32>),
        me: Record,
        kind: AccessKind,
        other: Option<(Record, AccessKind)>,
        (space, offset, bytes): (usize, usize, usize),
    ) {
        let named = |r: Record| Record { warp: self.threads.warp(r.warp), ..r };
        let me = named(me);
        let other = other.filter(|_| fault != Fault::Uninitialised).map(|(r, kind)| (named(r), kind));
        let image = self.threads.info(me.warp).map_or(0, |cta| self.grids[cta.grid as usize].image);
        let key = (fault, image, me.pc, other.map_or(u32::MAX, |(r, _)| r.pc));
        let known = self.index.get(&key).copied();
        let count = known.map_or(1, |i| self.raws[i].count + 1);
        if let Some(i) = known {
            self.raws[i].count = count;
            self.raws[i].update = self.raws[i].update.or(update);
            let apart = |other: WarpId| self.apart(me.warp, other);
            let before = self.raws[i].other.map_or(0, |o| self.apart(self.raws[i].at.warp, o.warp));
            if count > EXPLAINED && other.is_none_or(|(r, _)| apart(r.warp) <= before) {
                return;
            }
        } else if self.raws.len() >= self.options.limit {
            self.dropped += 1;
            return;
        }
        let side = |r: &Record, kind| {
            // Of lanes that read together, one that is not the other side's.
            let others = if r.warp == me.warp && r.lanes != me.lanes { r.lanes & !me.lanes } else { r.lanes };
            let lane = if others != 0 { others } else { r.lanes }.trailing_zeros().min(31);
            Side { warp: r.warp, lane, pc: r.pc, agent: r.agent, kind, strong: r.strong, time: r.time }
        };
        let misses = other.map_or_else(Vec::new, |(r, _)| self.misses(&me, &r));
        let asked = other.filter(|(r, _)| misses.is_empty() || r.agent == Agent::Remote);
        let near = asked.and_then(|(r, _)| self.near(&me, &r));
        let other = other.map(|(r, kind)| side(&r, kind));
        let update = update.or(known.and_then(|i| self.raws[i].update));
        let raw =
            Raw { fault, at: side(&me, kind), other, space, offset, bytes, misses, near, update, count };
        match known {
            // The pair that says most: synchronisation that is too weak has taken place, or who is farther apart.
            Some(i) if self.telling(&raw) > self.telling(&self.raws[i]) => self.raws[i] = raw,
            Some(_) => {}
            None => {
                self.index.insert(key, self.raws.len());
                self.raws.push(raw);
            }
        }
    }

    fn ctas_of(&self, slot: WarpSlot) -> CtaId {
        self.threads.warp_cta.get(self.warps[slot].number).copied().unwrap_or(CtaId::NONE)
    }
}

/// The words that hold some bytes.
fn words(at: usize, bytes: usize) -> std::ops::RangeInclusive<usize> {
    at / 4..=(at + bytes.max(1) - 1) / 4
}

/// The bytes of a word that belong to the `bytes` bytes from `at` on, as a mask of four bits.
pub(super) fn within(word: usize, at: usize, bytes: usize) -> u8 {
    let low = at.max(word * 4) - word * 4;
    let high = (at + bytes).min(word * 4 + 4) - word * 4;
    (((1 << high) - 1) & !((1 << low) - 1)) as u8
}

/// Removes the releases of strong writes that a weak write overwrites.
fn forget(variables: &mut FxHashMap<CodeLocation, SyncVar>, place: CodeLocation, bytes: u8, cell: &mut Cell) {
    let left = variables.get_mut(&place).is_some_and(|v| {
        v.forget(bytes);
        !v.is_empty()
    });
    if !left {
        variables.remove(&place);
        cell.write.flags &= !SYNC;
    }
}
