//! Threads, their clocks, and the barriers at which they meet. [`super::patterns`] has the
//! knowledge that passes from a release to an acquire.

use super::clock::{Clock, Topology};
use super::patterns::Pending;
use crate::memory::Spot;
use crate::model::{CtaId, CtaSlot, LANES, Table, WarpId, lanes};
use crate::order::Scope;
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// CTAs and warps of a launch, numbered as they start.
#[derive(Default)]
pub(super) struct Threads {
    pub ctas: Table<CtaId, CtaInfo>,
    pub warp_cta: Table<WarpId, CtaId>,
    /// The warps of the streams, which are numbered from `STREAMS` on.
    streams: Vec<WarpId>,
    stream_of: FxHashMap<(WarpId, Stream), WarpId>,
}

/// A sequence of a thread's operations that complete one after another. Knowing one stream says
/// nothing about the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Stream {
    /// The operations of the thread itself, and matrix operations.
    Thread,
    /// The copies of `cp.async`.
    Copies,
    /// Bulk copies that complete in groups.
    Bulk,
    /// Operations that complete on this mbarrier.
    Mbarrier(Spot),
}

/// The first number of a stream; smaller numbers are those of warps.
const STREAMS: u32 = 1 << 26;

pub(super) struct CtaInfo {
    pub grid: u32,
    pub pe: u32,
    pub ctaid: [u32; 3],
    /// The number of the first CTA of its cluster.
    pub cluster: CtaId,
    pub first_warp: WarpId,
}

impl Topology for Threads {
    #[inline]
    fn cta(&self, warp: WarpId) -> CtaId {
        self.warp_cta.get(self.warp(warp)).copied().unwrap_or(CtaId::NONE)
    }

    fn pe(&self, cta: CtaId) -> u32 {
        self.ctas.get(cta).map_or(u32::MAX, |c| c.pe)
    }
}

impl Threads {
    /// The warp of a stream, or the warp itself.
    #[inline]
    pub(super) fn warp(&self, number: WarpId) -> WarpId {
        match number.0.checked_sub(STREAMS) {
            None => number,
            Some(n) => self.streams.get(n as usize).copied().unwrap_or(number),
        }
    }

    /// The number of a warp's stream.
    pub(super) fn stream(&mut self, warp: WarpId, stream: Stream) -> WarpId {
        if stream == Stream::Thread || self.streams.len() as u32 >= STREAMS {
            return warp;
        }
        *self.stream_of.entry((warp, stream)).or_insert_with(|| {
            self.streams.push(warp);
            WarpId(STREAMS + self.streams.len() as u32 - 1)
        })
    }

    pub(super) fn info(&self, warp: WarpId) -> Option<&CtaInfo> {
        self.ctas.get(self.cta(warp))
    }

    /// Whether a scope of a thread of warp `a` includes warp `b`'s.
    pub(super) fn includes(&self, scope: Scope, a: WarpId, b: WarpId) -> bool {
        let (Some(x), Some(y)) = (self.info(a), self.info(b)) else { return true };
        match scope {
            Scope::Cta => self.cta(a) == self.cta(b),
            Scope::Cluster => x.cluster == y.cluster && x.pe == y.pe && x.grid == y.grid,
            Scope::Gpu => x.pe == y.pe,
            Scope::Sys => true,
        }
    }

    /// A number that is equal for two warps exactly if their scopes include the same threads.
    pub(super) fn region(&self, scope: Scope, warp: WarpId) -> u32 {
        match scope {
            Scope::Cta => self.cta(warp).0,
            Scope::Cluster => self.info(warp).map_or(u32::MAX, |cta| cta.cluster.0),
            Scope::Gpu => self.info(warp).map_or(u32::MAX, |cta| cta.pe),
            Scope::Sys => 0,
        }
    }
}

/// A word of memory, as its space and its number in it.
pub(super) type CodeLocation = (usize, usize);

/// A clock at some point, together with one thread's own time.
#[derive(Clone)]
pub(crate) struct Snapshot {
    pub clock: Arc<Clock>,
    pub warp: WarpId,
    pub lane: u32,
    pub time: u64,
    pub pc: u32,
}

impl Snapshot {
    pub(super) fn join_into(&self, threads: &Threads, clock: &mut Clock) {
        clock.join(threads, &self.clock);
        clock.seen.raise(self.warp, 1 << self.lane, false, self.time);
    }

    pub(super) fn is_known(&self, threads: &Threads, clock: &Clock) -> bool {
        clock.seen.covers(threads, self.warp, 1 << self.lane, self.time)
    }
}

#[derive(Default)]
pub(super) struct LaneState {
    /// The lane's clock, if it knows more than its warp.
    pub clock: Option<Arc<Clock>>,
    fences: Fences,
    sequential: Fences,
    pub pending: Vec<Pending>,
    /// For each location, the latest write that a strong read has observed, if the launch has
    /// `fence.sc`.
    pub observed: FxHashMap<CodeLocation, u64>,
    /// The latest NVSHMEM fence: the thread's clock at the fence, and so the operations that are
    /// delivered before its later ones.
    pub remote_fence: Option<Snapshot>,
}

impl LaneState {
    pub(super) fn has_fenced(&self) -> bool {
        self.fences.iter().next().is_some()
    }

    /// Notes a release fence.
    pub(super) fn fence(&mut self, scope: Scope, sequential: bool, from: Snapshot) {
        if sequential {
            self.sequential.set(scope, from.clone());
        }
        self.fences.set(scope, from);
    }
}

/// The latest fence of each scope.
#[derive(Default)]
struct Fences([Option<Snapshot>; 4]);

impl Fences {
    fn iter(&self) -> impl Iterator<Item = (Scope, &Snapshot)> {
        Scope::ALL.into_iter().zip(&self.0).filter_map(|(scope, from)| Some((scope, from.as_ref()?)))
    }

    fn set(&mut self, scope: Scope, from: Snapshot) {
        // A fence of a wider scope includes all effects of a narrower one.
        self.0[..scope as usize].fill(None);
        self.0[scope as usize] = Some(from);
    }
}

/// A barrier at which a warp has arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Met {
    pub warp: WarpId,
    pub time: u64,
    pub pc: u32,
    /// The number of the barrier; none for a barrier of the warp.
    pub at: Option<usize>,
}

pub(super) struct WarpState {
    /// The number of the warp in the launch.
    pub number: WarpId,
    /// The slot of its CTA.
    pub cta: CtaSlot,
    /// The lanes that it began with.
    pub whole: u32,
    pub base: Arc<Clock>,
    pub lanes: Option<Box<[LaneState; LANES]>>,
    /// Whether some lane knows more than its warp.
    pub diverged: bool,
    /// The latest barrier at which some of its lanes have arrived.
    pub met: Option<Met>,
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

    /// The clock of one lane, for a change.
    pub(super) fn clock_mut(&mut self, lane: usize) -> &mut Clock {
        let base = Arc::clone(&self.base);
        self.diverged = true;
        Arc::make_mut(self.lane(lane).clock.get_or_insert(base))
    }

    /// The first of some lanes, and all lanes with the same clock.
    pub(super) fn alike(&self, mask: u32) -> u32 {
        if !self.diverged {
            return mask;
        }
        let first = mask.trailing_zeros().min(31) as usize;
        let same = |l: &usize| Arc::ptr_eq(self.clock(*l), self.clock(first));
        lanes(mask).filter(same).fold(0, |m, l| m | 1 << l)
    }

    /// Changes the clocks of some lanes. Lanes that share a clock are changed once.
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

    /// Adds the knowledge of a lane at its fences of at least this scope to a clock.
    pub(super) fn fenced(&self, lane: usize, scope: Scope, threads: &Threads, clock: &mut Clock) {
        let fences = self.fences(lane).filter(|(of, _)| *of >= scope);
        fences.for_each(|(_, from)| from.join_into(threads, clock));
    }

    /// A lane's latest release fence of each scope.
    pub(super) fn fences(&self, lane: usize) -> impl Iterator<Item = (Scope, &Snapshot)> {
        self.lanes.as_ref().into_iter().flat_map(move |l| l[lane].fences.iter())
    }

    /// A lane's latest `fence.sc` of each scope.
    pub(super) fn sequential(&self, lane: usize) -> impl Iterator<Item = (Scope, &Snapshot)> {
        self.lanes.as_ref().into_iter().flat_map(move |l| l[lane].sequential.iter())
    }
}

/// The joined clocks of the threads that meet at a barrier.
#[derive(Default)]
pub(super) struct Meeting {
    clock: Clock,
    last: Option<Arc<Clock>>,
}

impl Meeting {
    /// A meeting at which a thread that knows `clock` has arrived.
    pub(super) fn of(clock: Clock) -> Meeting {
        Meeting { clock, last: None }
    }

    /// Adds the arrival of `lanes` of a warp at a time.
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
