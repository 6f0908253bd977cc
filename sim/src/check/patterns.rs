//! Release patterns and acquire patterns, and the knowledge that passes from one to the other (PTX
//! ISA, memory consistency model).
//!
//! * A release pattern begins with a release operation or a fence and ends with a strong write. The
//!   knowledge of its thread at the beginning is stored at the location of the write ([`Released`]).
//! * An acquire pattern begins with a strong read and ends with an acquire operation or a fence.
//!   Where the read observes the write, its thread acquires the stored knowledge, if the scopes of
//!   the beginning of the release pattern and of the end of the acquire pattern include both threads.
//! * The read observes the write directly, or through a chain of atomic updates. The scopes of each
//!   two neighbours in the chain must include both threads; a narrow scope at one link does not
//!   matter for the others.

use super::clock::Topology;
use super::sync::{CodeLocation, Snapshot, Threads, WarpState};
use crate::memory::UnderWay;
use crate::model::WarpId;
use crate::order::{Order, Scope};
use smallvec::SmallVec;
use std::sync::Arc;

/// The knowledge that a release pattern has stored at a location.
#[derive(Clone)]
pub(crate) struct Released {
    /// The scope of the operation that begins the pattern.
    pub scope: Scope,
    pub from: Snapshot,
    /// The bytes, of four, at which it was stored.
    pub bytes: u8,
    /// Several releases were joined. Knowing this thread's time does not imply knowing all of it.
    pub merged: bool,
    pub carrier: Carrier,
}

/// The write that a read must observe to observe the release: the latest write of a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Carrier {
    pub warp: WarpId,
    pub scope: Scope,
    pub time: u64,
    /// The scope that was too narrow for a link of the chain, if there was one. After that link no
    /// read observes the release.
    pub broken: Option<Scope>,
}

/// A location that threads synchronise through.
#[derive(Clone, Default)]
pub(super) struct SyncVar {
    left: Releases,
    /// Releases that pending stores have replaced. Readers that do not see these stores can still
    /// observe them.
    replaced: Vec<Replaced>,
}

/// A replaced release, and the times of the stores that replace it.
#[derive(Clone)]
struct Replaced {
    left: Released,
    by: SmallVec<[u64; 1]>,
}

impl Replaced {
    /// Whether a reader that does not see these stores still observes the replaced release.
    fn shows(&self, unseen: &[u64]) -> bool {
        self.by.iter().all(|time| unseen.contains(time))
    }
}

pub(crate) type Releases = SmallVec<[Released; 1]>;

/// The reason why a thread did not acquire another's accesses, although it read a value that the
/// other wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unordered {
    /// The write is relaxed, and no fence before it releases.
    NoRelease,
    /// The read is relaxed, and no fence after it acquires.
    NoAcquire,
    /// A scope does not include the other thread.
    Scope(Scope),
    /// The write is not a strong operation.
    WeakWrite,
    /// The thread did acquire them.
    Learnt,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Miss {
    pub why: Unordered,
    /// The write is an update, perhaps one of many.
    pub chain: bool,
    pub writer: WarpId,
    pub writer_lane: u32,
    pub write_pc: u32,
    pub write_time: u64,
    pub reader: WarpId,
    pub reader_lane: u32,
    pub read_pc: u32,
    pub read_time: u64,
}

impl Miss {
    /// The thread that wrote, as its warp and lane.
    pub(super) fn writing(&self) -> (WarpId, u32) {
        (self.writer, 1 << self.writer_lane)
    }

    /// The thread that read.
    pub(super) fn reading(&self) -> (WarpId, u32) {
        (self.reader, 1 << self.reader_lane)
    }
}

/// A release that was read, but not acquired yet.
pub(super) struct Pending {
    left: Released,
    place: CodeLocation,
    read_pc: u32,
}

/// The number of reads that a thread keeps to acquire later; the oldest are forgotten first.
const PENDING: usize = 64;
/// The number of releases that a location keeps before those of nearby threads are joined.
const LEFT: usize = 4;
/// The number of replaced releases that a location keeps.
const REPLACED: usize = 8;

impl Carrier {
    /// A carrier for the write of a thread of `warp`.
    pub(super) fn new(warp: WarpId, scope: Scope, time: u64) -> Carrier {
        Carrier { warp, scope, time, broken: None }
    }

    /// The scope that prevents a strong read from observing the write, if there is one.
    fn hidden_from(&self, threads: &Threads, reader: WarpId, scope: Scope) -> Option<Scope> {
        self.broken.or_else(|| narrow(threads, (self.scope, self.warp), (scope, reader)))
    }
}

/// The scope of one of two operations that does not include the other thread, if there is one.
fn narrow(threads: &Threads, a: (Scope, WarpId), b: (Scope, WarpId)) -> Option<Scope> {
    let includes = |scope, from, to| threads.includes(scope, from, to);
    let (first, second) = (includes(a.0, a.1, b.1), includes(b.0, b.1, a.1));
    (!first).then_some(a.0).or((!second).then_some(b.0))
}

impl Released {
    /// The scope that prevents an acquire pattern from synchronising, if there is one. The pattern
    /// begins with a strong read that observes the write, and `end` is the scope of the operation
    /// at its end.
    fn unmatched_by(&self, threads: &Threads, reader: WarpId, end: Scope) -> Option<Scope> {
        narrow(threads, (self.scope, self.from.warp), (end, reader))
    }

    /// Extends the chain by an update of the location, if the update observes the carrier.
    fn carry(&mut self, threads: &Threads, by: Carrier) {
        let broken = self.carrier.hidden_from(threads, by.warp, by.scope);
        self.carrier = if broken.is_some() { Carrier { broken, ..self.carrier } } else { by };
    }

    /// Whether two releases can be joined, since the same readers can acquire them.
    fn joins(&self, threads: &Threads, other: &Released) -> bool {
        let region = |r: &Released| threads.region(r.scope, r.from.warp);
        (self.scope, self.bytes, self.carrier) == (other.scope, other.bytes, other.carrier)
            && region(self) == region(other)
    }
}

impl WarpState {
    /// The releases of a lane's strong write.
    pub(super) fn release(&self, lane: usize, order: &Order, time: u64, pc: u32) -> Releases {
        let mut all = SmallVec::new();
        let Some(by) = order.strong else { return all };
        let carrier = Carrier::new(self.number, by, time);
        let mut leave =
            |scope, from| all.push(Released { scope, from, bytes: 0b1111, merged: false, carrier });
        if order.release {
            leave(by, self.snapshot(lane, time, pc));
        }
        // A fence of a wider scope before a release begins a pattern of its own.
        let fences = self.fences(lane).filter(|(scope, _)| !order.release || *scope > by);
        fences.for_each(|(scope, from)| leave(scope, from.clone()));
        all
    }
}

/// A lane's strong write of a location.
#[derive(Clone, Copy)]
pub(super) struct StrongWrite<'a> {
    pub by: Carrier,
    pub lane: usize,
    /// The mask of the accessed bytes, of four.
    pub bytes: u8,
    pub update: bool,
    pub time: u64,
    /// The times of pending stores that the lane does not see.
    pub unseen: &'a [u64],
}

impl SyncVar {
    pub(super) fn is_empty(&self) -> bool {
        self.left.is_empty() && self.replaced.is_empty()
    }

    /// Stores the releases of a strong write. An update keeps the releases at the location, and so
    /// does a later write of the same thread.
    pub(super) fn write(&mut self, threads: &Threads, new: Releases, write: StrongWrite<'_>) {
        let StrongWrite { by, lane, bytes, update, time, unseen } = write;
        if update {
            let shown = self.replaced.extract_if(.., |r| r.shows(unseen));
            self.left.extend(shown.map(|r| r.left));
        }
        let mut replaced = std::mem::take(&mut self.replaced);
        // A write that releases something is never pending.
        let delayed = new.is_empty() && !update;
        replaced.retain_mut(|r| {
            r.by.push(time);
            delayed
        });
        self.left.retain(|r| {
            if r.bytes & bytes == 0 {
                return true;
            }
            let mine = !r.merged && (r.from.warp, r.from.lane) == (by.warp, lane as u32);
            let superseded = new.iter().any(|n| {
                // Every scope that includes one of these threads includes the other.
                let near = || threads.cta(n.from.warp) == threads.cta(r.from.warp);
                let known = || !r.merged && near() && r.from.is_known(threads, &n.from.clock);
                n.scope >= r.scope && (mine && n.from.time >= r.from.time || known())
            });
            let stays = (update || mine) && !superseded;
            if !stays && delayed && replaced.len() < REPLACED {
                replaced.push(Replaced { left: r.clone(), by: SmallVec::from_elem(time, 1) });
            }
            match mine {
                true => r.carrier = by,
                false => r.carry(threads, by),
            }
            stays
        });
        self.replaced = replaced;
        self.add(threads, (new, bytes));
    }

    /// Handles a write that releases nothing.
    pub(super) fn forget(&mut self, bytes: u8) {
        self.left.retain(|r| r.bytes & bytes == 0);
        self.replaced.retain(|r| r.left.bytes & bytes == 0);
    }

    /// Adds the releases of an update that continues after its instruction.
    pub(super) fn land(&mut self, threads: &Threads, (new, bytes): (Releases, u8), by: Carrier) {
        self.left.iter_mut().filter(|r| r.bytes & bytes != 0).for_each(|r| r.carry(threads, by));
        self.add(threads, (new, bytes));
    }

    fn add(&mut self, threads: &Threads, (new, bytes): (Releases, u8)) {
        self.left.extend(new.into_iter().map(|r| Released { bytes, ..r }));
        if self.left.len() > LEFT {
            self.shorten(threads);
        }
    }

    /// Joins the releases that can be joined.
    fn shorten(&mut self, threads: &Threads) {
        let all = std::mem::take(&mut self.left);
        let superseded = |i: usize, r: &Released| {
            let known = |n: &Released| n.joins(threads, r) && r.from.is_known(threads, &n.from.clock);
            !r.merged && all[i + 1..].iter().any(known)
        };
        let left = all.iter().enumerate().filter(|(i, r)| !superseded(*i, r)).map(|(_, r)| r.clone());
        let mut out: Releases = SmallVec::new();
        for r in left {
            match out.iter_mut().find(|o| o.joins(threads, &r)) {
                None => out.push(r),
                Some(o) => {
                    let clock = Arc::make_mut(&mut o.from.clock);
                    r.from.join_into(threads, clock);
                    clock.seen.raise(o.from.warp, 1 << o.from.lane, false, o.from.time);
                    o.from = Snapshot { clock: Arc::clone(&o.from.clock), ..r.from };
                    o.merged = true;
                }
            }
        }
        self.left = out;
    }
}

/// A lane's strong read of a location.
#[derive(Clone, Copy)]
pub(super) struct StrongRead<'a> {
    pub lane: usize,
    pub place: CodeLocation,
    /// The mask of the accessed bytes, of four.
    pub bytes: u8,
    pub scope: Scope,
    pub acquire: bool,
    pub pc: u32,
    pub under_way: &'a UnderWay,
}

/// Handles a strong read, which observes the releases at its location. The lane acquires them now
/// or at its next fence. Each release that it acquires, or that a scope or a missing acquire keeps
/// it from acquiring, goes to `miss`.
pub(super) fn observe(
    threads: &Threads,
    warp: &mut WarpState,
    var: &SyncVar,
    read: StrongRead<'_>,
    miss: &mut impl FnMut(Unordered, &Released, u32),
) {
    let StrongRead { lane, place, bytes, scope, acquire, pc, under_way } = read;
    if acquire {
        learn(threads, warp, lane, scope, |p| p.place == place, miss);
    }
    let replaced = var.replaced.iter().filter(|r| r.shows(&under_way.unseen)).map(|r| &r.left);
    let read = |r: &&Released| under_way.seen.is_none_or(|made| r.carrier.time == made);
    for left in var.left.iter().chain(replaced).filter(|r| r.bytes & bytes != 0).filter(read) {
        let from = &left.from;
        let own = (from.warp, from.lane) == (warp.number, lane as u32);
        if !left.merged && (own || from.is_known(threads, warp.clock(lane))) {
            continue;
        }
        let hidden = left.carrier.hidden_from(threads, warp.number, scope);
        let end = || if acquire { left.unmatched_by(threads, warp.number, scope) } else { None };
        if let Some(narrow) = hidden.or_else(end) {
            miss(Unordered::Scope(narrow), left, pc);
        } else if acquire {
            miss(Unordered::Learnt, left, pc);
            from.join_into(threads, warp.clock_mut(lane));
        } else {
            miss(Unordered::NoAcquire, left, pc);
            put_off(warp, lane, Pending { left: left.clone(), place, read_pc: pc });
        }
    }
}

/// Keeps the releases that a relaxed read has observed until the thread acquires.
fn put_off(warp: &mut WarpState, lane: usize, new: Pending) {
    let pending = &mut warp.lane(lane).pending;
    let same = |p: &Pending| {
        let (old, new) = (&p.left, &new.left);
        (old.from.warp, old.from.lane, old.scope) == (new.from.warp, new.from.lane, new.scope) && !old.merged
    };
    match pending.iter_mut().find(|p| same(p)) {
        Some(old) => *old = new,
        None => pending.push(new),
    }
    if pending.len() > PENDING {
        pending.remove(0);
    }
}

/// Acquires releases that a lane has read before, through an operation of this scope.
pub(super) fn learn(
    threads: &Threads,
    warp: &mut WarpState,
    lane: usize,
    scope: Scope,
    which: impl Fn(&Pending) -> bool,
    miss: &mut impl FnMut(Unordered, &Released, u32),
) {
    if warp.lanes.is_none() || warp.lane(lane).pending.is_empty() {
        return;
    }
    let number = warp.number;
    for p in std::mem::take(&mut warp.lane(lane).pending) {
        let narrow = which(&p).then(|| p.left.unmatched_by(threads, number, scope));
        match narrow {
            Some(None) => {
                miss(Unordered::Learnt, &p.left, p.read_pc);
                p.left.from.join_into(threads, warp.clock_mut(lane));
            }
            Some(Some(narrow)) => {
                miss(Unordered::Scope(narrow), &p.left, p.read_pc);
                warp.lane(lane).pending.push(p);
            }
            None => warp.lane(lane).pending.push(p),
        }
    }
}
