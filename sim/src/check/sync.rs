//! Threads' clocks, and how knowledge passes from thread to thread.
//!
//! * A *release* at a location (a release operation, or a strong write after a release fence) leaves the thread's clock
//!   there; what an *acquire* (an acquire operation, or a strong read before an acquire fence) reads there, it learns,
//!   where the scopes of all operations involved include both threads. Atomic updates keep what was left there before.
//! * Barriers of a CTA or warp join the clocks of those who meet.
//! * What would have passed, had the operations been strong enough or their scopes wide enough, is remembered as a
//!   [`Miss`], to be told when a race is found.

use super::clock::{Clock, Topology};
use crate::exec::order::{Order, Scope};
use crate::exec::{LANES, lanes};
use crate::memory::Spot;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::sync::Arc;

/// CTAs and warps of a launch, numbered as they start.
#[derive(Default)]
pub(super) struct Threads {
    pub ctas: Vec<CtaInfo>,
    pub warp_cta: Vec<u32>,
    /// Warps of the streams, which are numbered from `STREAMS` on.
    streams: Vec<u32>,
    stream_of: FxHashMap<(u32, Stream), u32>,
}

/// Operations of a thread's that complete one after another. What is known of one says nothing of the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Stream {
    /// The thread itself, and matrix operations.
    Thread,
    /// `cp.async`
    Copies,
    /// Bulk copies of groups.
    Bulk,
    /// What completes on an mbarrier.
    Mbarrier(Spot),
}

/// The first number of a stream, where others are those of warps.
const STREAMS: u32 = 1 << 26;

pub(super) struct CtaInfo {
    pub grid: u32,
    pub pe: u32,
    pub ctaid: [u32; 3],
    /// Number of the first CTA of its cluster.
    pub cluster: u32,
    pub first_warp: u32,
}

impl Topology for Threads {
    #[inline]
    fn cta(&self, warp: u32) -> u32 {
        self.warp_cta.get(self.warp(warp) as usize).copied().unwrap_or(u32::MAX)
    }

    fn pe(&self, cta: u32) -> u32 {
        self.ctas.get(cta as usize).map_or(u32::MAX, |c| c.pe)
    }
}

impl Threads {
    /// The warp of a stream, or the warp itself.
    #[inline]
    pub(super) fn warp(&self, number: u32) -> u32 {
        match number.checked_sub(STREAMS) {
            None => number,
            Some(n) => self.streams.get(n as usize).copied().unwrap_or(number),
        }
    }

    /// The number of a warp's stream.
    pub(super) fn stream(&mut self, warp: u32, stream: Stream) -> u32 {
        if stream == Stream::Thread || self.streams.len() as u32 >= STREAMS {
            return warp;
        }
        *self.stream_of.entry((warp, stream)).or_insert_with(|| {
            self.streams.push(warp);
            STREAMS + self.streams.len() as u32 - 1
        })
    }

    pub(super) fn info(&self, warp: u32) -> Option<&CtaInfo> {
        self.ctas.get(self.cta(warp) as usize)
    }

    /// Whether a scope of a thread of warp `a` includes warp `b`'s.
    pub(super) fn includes(&self, scope: Scope, a: u32, b: u32) -> bool {
        let (Some(x), Some(y)) = (self.info(a), self.info(b)) else { return true };
        match scope {
            Scope::Cta => self.cta(a) == self.cta(b),
            Scope::Cluster => x.cluster == y.cluster && x.pe == y.pe && x.grid == y.grid,
            Scope::Gpu => x.pe == y.pe,
            Scope::Sys => true,
        }
    }
}

/// A clock as it was, and one thread up to a time.
#[derive(Clone)]
pub(crate) struct Snapshot {
    pub clock: Arc<Clock>,
    pub warp: u32,
    pub lane: u32,
    pub time: u64,
    pub pc: u32,
}

impl Snapshot {
    pub(super) fn join_into(&self, threads: &Threads, clock: &mut Clock) {
        clock.join(threads, &self.clock);
        clock.seen.raise(self.warp, 1 << self.lane, false, self.time);
    }

    fn is_known(&self, threads: &Threads, clock: &Clock) -> bool {
        clock.seen.covers(threads, self.warp, 1 << self.lane, self.time)
    }
}

/// What a release has left, and for whom.
#[derive(Clone)]
pub(crate) struct Part {
    pub scope: Scope,
    pub from: Snapshot,
    /// Which of the four bytes it was left at.
    pub bytes: u8,
    /// Several were joined: that its thread is known does not mean that all is.
    pub merged: bool,
}

/// A location that synchronises.
#[derive(Clone, Default)]
pub(super) struct SyncVar {
    pub parts: Parts,
}

pub(crate) type Parts = SmallVec<[Part; 1]>;

/// Why a thread did not learn what another has done, though it read what that one wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Why {
    /// The write is relaxed, and no fence before it releases.
    NoRelease,
    /// The read is relaxed, and no fence after it acquires.
    NoAcquire,
    /// A scope does not include the other thread.
    Scope(Scope),
    /// The write is no strong operation.
    WeakWrite,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Miss {
    pub why: Why,
    /// The write is an update, perhaps one of many.
    pub chain: bool,
    pub writer: u32,
    pub writer_lane: u32,
    pub write_pc: u32,
    pub write_time: u64,
    pub reader: u32,
    pub reader_lane: u32,
    pub read_pc: u32,
    pub read_time: u64,
}

/// Read, but not acquired yet.
pub(super) struct Pending {
    part: Part,
    read_scope: Scope,
    read_pc: u32,
}

#[derive(Default)]
pub(super) struct LaneState {
    /// Where it knows more than its warp.
    pub clock: Option<Arc<Clock>>,
    /// The latest release fence by scope.
    fences: [Option<Snapshot>; 4],
    pub pending: Vec<Pending>,
    /// The latest fence of NVSHMEM's: what the thread knew, and so what is delivered before its later operations.
    pub remote_fence: Option<Snapshot>,
}

impl LaneState {
    pub(super) fn has_fenced(&self) -> bool {
        self.fences.iter().any(Option::is_some)
    }
}

/// Reads that a thread keeps to acquire later; the oldest are joined.
const PENDING: usize = 64;

pub(super) struct WarpState {
    /// Number in the launch.
    pub number: u32,
    /// Slot of its CTA.
    pub cta: usize,
    /// Lanes it began with.
    pub whole: u32,
    pub base: Arc<Clock>,
    pub lanes: Option<Box<[LaneState; LANES]>>,
    /// Whether some lane knows more than its warp.
    pub diverged: bool,
}

impl WarpState {
    #[inline]
    pub(super) fn clock(&self, lane: usize) -> &Arc<Clock> {
        match &self.lanes {
            Some(l) if self.diverged => l[lane].clock.as_ref().unwrap_or(&self.base),
            _ => &self.base,
        }
    }

    pub(super) fn lane(&mut self, lane: usize) -> &mut LaneState {
        &mut self.lanes.get_or_insert_default()[lane]
    }

    /// The clock of one lane, to be changed.
    pub(super) fn clock_mut(&mut self, lane: usize) -> &mut Clock {
        let base = Arc::clone(&self.base);
        self.diverged = true;
        Arc::make_mut(self.lane(lane).clock.get_or_insert(base))
    }

    /// The first of some lanes and those with the same clock.
    pub(super) fn alike(&self, mask: u32) -> u32 {
        if !self.diverged {
            return mask;
        }
        let first = mask.trailing_zeros().min(31) as usize;
        let same = |l: &usize| Arc::ptr_eq(self.clock(*l), self.clock(first));
        lanes(mask).filter(same).fold(0, |m, l| m | 1 << l)
    }

    /// Changes the clocks of some lanes: one clock, where lanes have the same.
    pub(super) fn each_clock(&mut self, mask: u32, mut change: impl FnMut(&mut Clock)) {
        if mask == self.whole && !self.diverged {
            change(Arc::make_mut(&mut self.base));
            return;
        }
        let mut left = mask;
        while left != 0 {
            let group = self.alike(left);
            left &= !group;
            let mut clock = Arc::clone(self.clock(group.trailing_zeros().min(31) as usize));
            change(Arc::make_mut(&mut clock));
            self.set_clock(group, &clock);
        }
    }

    /// Sets the clock of some lanes.
    pub(super) fn set_clock(&mut self, mask: u32, clock: &Arc<Clock>) {
        if mask == self.whole {
            self.base = Arc::clone(clock);
            self.diverged = false;
            for l in self.lanes.iter_mut().flat_map(|l| l.iter_mut()) {
                l.clock = None;
            }
        } else {
            self.diverged = true;
            for lane in lanes(mask) {
                self.lane(lane).clock = Some(Arc::clone(clock));
            }
        }
    }

    pub(super) fn snapshot(&self, lane: usize, time: u64, pc: u32) -> Snapshot {
        let clock = Arc::clone(self.clock(lane));
        Snapshot { clock, warp: self.number, lane: lane as u32, time, pc }
    }

    /// Puts what a lane knew at its fences of at least this scope into a clock.
    pub(super) fn fenced(&self, lane: usize, scope: Scope, threads: &Threads, clock: &mut Clock) {
        let fences = self.lanes.as_ref().map(|l| &l[lane].fences[scope as usize..]);
        for from in fences.into_iter().flatten().flatten() {
            from.join_into(threads, clock);
        }
    }

    /// What a strong write of a lane releases.
    pub(super) fn release(&self, lane: usize, order: &Order, time: u64, pc: u32) -> Parts {
        let mut parts = SmallVec::new();
        let Some(scope) = order.strong else { return parts };
        if order.release {
            let from = self.snapshot(lane, time, pc);
            parts.push(Part { scope, from, bytes: 0b1111, merged: false });
            return parts;
        }
        let fences = self.lanes.as_ref().map(|l| &l[lane].fences);
        for (fence, by) in
            fences.into_iter().flatten().zip([Scope::Cta, Scope::Cluster, Scope::Gpu, Scope::Sys])
        {
            if let Some(from) = fence {
                parts.push(Part { scope: by.min(scope), from: from.clone(), bytes: 0b1111, merged: false });
            }
        }
        parts
    }
}

/// Joins the clocks of those who meet at a barrier.
#[derive(Default)]
pub(super) struct Meeting {
    clock: Clock,
    last: Option<Arc<Clock>>,
}

impl Meeting {
    /// One at which somebody who knows `clock` has come.
    pub(super) fn of(clock: Clock) -> Meeting {
        Meeting { clock, last: None }
    }

    /// `lanes` of a warp come, at a time.
    pub(super) fn arrive(&mut self, threads: &Threads, warp: &WarpState, mask: u32, time: u64) {
        for lane in lanes(mask) {
            let clock = warp.clock(lane);
            if !self.last.as_ref().is_some_and(|l| Arc::ptr_eq(l, clock)) {
                self.clock.join(threads, clock);
                self.last = Some(Arc::clone(clock));
            }
            if !warp.diverged {
                break;
            }
        }
        self.clock.seen.raise(warp.number, mask, mask == warp.whole, time);
    }

    pub(super) fn join(&mut self, threads: &Threads, other: &Meeting) {
        self.clock.join(threads, &other.clock);
    }

    pub(super) fn clock(self) -> Clock {
        self.clock
    }

    pub(super) fn clock_mut(&mut self) -> &mut Clock {
        &mut self.clock
    }
}

impl SyncVar {
    /// Adds what a strong write leaves. An update keeps what is there, and so does a later write of the same thread.
    pub(super) fn write(
        &mut self,
        threads: &Threads,
        (new, bytes): (Parts, u8),
        keeps: bool,
        writer: &WarpState,
        lane: usize,
    ) {
        let me = (writer.number, lane as u32);
        self.parts.retain(|p| {
            if p.bytes & bytes == 0 {
                return true;
            }
            let mine = (p.from.warp, p.from.lane) == me;
            let superseded = new.iter().any(|n| {
                n.scope >= p.scope
                    && (mine && n.from.time >= p.from.time
                        || !p.merged && p.from.is_known(threads, &n.from.clock))
            });
            (keeps || mine) && !superseded
        });
        self.add(threads, (new, bytes));
    }

    /// A write that releases nothing.
    pub(super) fn forget(&mut self, bytes: u8) {
        self.parts.retain(|p| p.bytes & bytes == 0);
    }

    /// Adds what an update leaves.
    pub(super) fn add(&mut self, threads: &Threads, (new, bytes): (Parts, u8)) {
        self.parts.extend(new.into_iter().map(|p| Part { bytes, ..p }));
        if self.parts.len() > 4 {
            self.shorten(threads);
        }
    }

    /// Joins the parts of each scope.
    fn shorten(&mut self, threads: &Threads) {
        let mut out: Parts = SmallVec::new();
        for p in self.parts.drain(..) {
            match out.iter_mut().find(|o| (o.scope, o.bytes) == (p.scope, p.bytes)) {
                None => out.push(p),
                Some(o) => {
                    let clock = Arc::make_mut(&mut o.from.clock);
                    p.from.join_into(threads, clock);
                    clock.seen.raise(o.from.warp, 1 << o.from.lane, false, o.from.time);
                    o.from = Snapshot { clock: Arc::clone(&o.from.clock), ..p.from };
                    o.merged = true;
                }
            }
        }
        self.parts = out;
    }
}

/// A lane has read a synchronisation variable by a strong read: it learns now, or at its next fence. What it does not
/// learn for its scope goes to `miss`.
pub(super) fn observe(
    threads: &Threads,
    warp: &mut WarpState,
    lane: usize,
    (var, bytes): (&SyncVar, u8),
    order: &Order,
    pc: u32,
    miss: &mut impl FnMut(Why, &Part),
) {
    let Some(read_scope) = order.strong else { return };
    for part in var.parts.iter().filter(|p| p.bytes & bytes != 0) {
        let from = &part.from;
        if (from.warp, from.lane) == (warp.number, lane as u32) && !part.merged {
            continue;
        }
        if !part.merged && from.is_known(threads, warp.clock(lane)) {
            continue;
        }
        if let Some(scope) = narrow(threads, part, read_scope, warp.number) {
            miss(Why::Scope(scope), part);
        } else if order.acquire {
            let clock = warp.clock_mut(lane);
            from.join_into(threads, clock);
        } else {
            miss(Why::NoAcquire, part);
            let pending = &mut warp.lane(lane).pending;
            let same = |p: &Pending| {
                (p.part.from.warp, p.part.from.lane) == (from.warp, from.lane)
                    && p.part.scope == part.scope
                    && !p.part.merged
            };
            let new = Pending { part: part.clone(), read_scope, read_pc: pc };
            match pending.iter_mut().find(|p| same(p)) {
                Some(old) => *old = new,
                None => pending.push(new),
            }
            if pending.len() > PENDING {
                pending.remove(0);
            }
        }
    }
}

/// The scope that keeps a reader from learning, if one does.
fn narrow(threads: &Threads, part: &Part, read_scope: Scope, reader: u32) -> Option<Scope> {
    if !threads.includes(part.scope, part.from.warp, reader) {
        Some(part.scope)
    } else if !threads.includes(read_scope, reader, part.from.warp) {
        Some(read_scope)
    } else {
        None
    }
}

/// A fence of one lane.
pub(super) fn fence(
    threads: &Threads,
    warp: &mut WarpState,
    lane: usize,
    scope: Scope,
    (acquire, release): (bool, bool),
    (time, pc): (u64, u32),
    miss: &mut impl FnMut(Why, &Part, u32),
) {
    if acquire && warp.lanes.is_some() && !warp.lane(lane).pending.is_empty() {
        let number = warp.number;
        for p in std::mem::take(&mut warp.lane(lane).pending) {
            match narrow(threads, &p.part, p.read_scope.min(scope), number) {
                None => p.part.from.join_into(threads, warp.clock_mut(lane)),
                Some(narrow) => {
                    miss(Why::Scope(narrow), &p.part, p.read_pc);
                    warp.lane(lane).pending.push(p);
                }
            }
        }
    }
    if release {
        let snapshot = warp.snapshot(lane, time, pc);
        let fences = &mut warp.lane(lane).fences;
        // A wider fence does all that a narrower one does.
        for narrower in &mut fences[..scope as usize] {
            *narrower = None;
        }
        fences[scope as usize] = Some(snapshot);
    }
}
