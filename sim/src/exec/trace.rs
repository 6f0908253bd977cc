//! A timeline of launches: what warps did and waited for, and the transfers between PEs.
//!
//! Time is the machine's clock, which counts the warp instructions of all PEs. Warps take turns, so
//! a running warp does not execute all instructions of its time.

use crate::exec::run::Run;
use crate::exec::stall;
use crate::exec::warp::State;
use crate::model::{Table, WarpSlot};
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// The options of a timeline: what it keeps.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TraceConfig {
    /// The largest number of events of each kind; later events are only counted.
    pub limit: usize,
}

crate::setters!(TraceConfig { limit: usize });

impl Default for TraceConfig {
    fn default() -> Self {
        TraceConfig { limit: 1 << 18 }
    }
}

/// The activity of a warp.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Activity {
    /// The warp executes instructions, in turns with other warps.
    Running,
    /// The warp waits for something.
    Waiting {
        /// The reason in a few words, such as `barrier 0` or `polls flag+8`.
        what: Arc<str>,
        /// All details that are known when the wait begins: values, source lines and PTX lines.
        detail: Arc<str>,
    },
}

/// A period in which a warp has one activity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceSpan {
    /// The PE that runs the warp.
    pub pe: usize,
    /// The index of its CTA (`%ctaid`).
    pub cta: [u32; 3],
    /// The number of the warp in the CTA.
    pub warp: u32,
    /// The name of the launched kernel.
    pub kernel: Arc<str>,
    /// The number of the first warp instruction.
    pub start: u64,
    /// The number of the warp instruction after the last one.
    pub end: u64,
    /// The activity of the warp in that time.
    pub activity: Activity,
}

/// An operation from one PE to another, or a bulk copy between global and shared memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceTransfer {
    /// The kind of transfer: `put`, `get`, `signal`, `update`, `bulk load` or `bulk store`.
    pub what: &'static str,
    /// The PE that issued it.
    pub from: usize,
    /// The PE whose memory is written, or read by a get.
    pub to: usize,
    /// The number of bytes moved.
    pub bytes: usize,
    /// The time at which it was issued.
    pub start: u64,
    /// The time at which it completed, or at which the launch ended.
    pub end: u64,
}

/// The bytes that loads, stores and atomics have moved from a PE's memory up to some time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceTraffic {
    /// The time, in warp instructions.
    pub time: u64,
    /// The PE that owns the memory.
    pub pe: usize,
    /// The number of bytes since the machine was created.
    pub bytes: u64,
}

/// A timeline of a simulated launch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Trace {
    /// The activities of warps, in the order in which they ended.
    pub spans: Vec<TraceSpan>,
    /// The NVSHMEM operations and the bulk copies, in the order of completion.
    pub transfers: Vec<TraceTransfer>,
    /// The bytes of plain accesses, in the order of time.
    pub traffic: Vec<TraceTraffic>,
    /// The number of events that were not kept, since the limit was reached.
    pub dropped: u64,
    /// The number of warp instructions of all launches.
    pub end: u64,
}

impl Trace {
    /// Appends the events of a later launch.
    pub(crate) fn extend(&mut self, mut later: Trace) {
        let base = self.end;
        for s in &mut later.spans {
            (s.start, s.end) = (s.start + base, s.end + base);
        }
        for t in &mut later.transfers {
            (t.start, t.end) = (t.start + base, t.end + base);
        }
        later.traffic.iter_mut().for_each(|t| t.time += base);
        self.spans.append(&mut later.spans);
        self.transfers.append(&mut later.transfers);
        self.traffic.append(&mut later.traffic);
        self.dropped += later.dropped;
        self.end += later.end;
    }

    /// The number of events of the most frequent kind.
    pub(crate) fn len(&self) -> usize {
        self.spans.len().max(self.transfers.len()).max(self.traffic.len())
    }
}

/// Keeps an event, or only counts it.
fn keep<T>(list: &mut Vec<T>, limit: usize, dropped: &mut u64, event: T) {
    if list.len() < limit { list.push(event) } else { *dropped += 1 }
}

/// A warp that has not ended.
struct Track {
    pe: usize,
    cta: [u32; 3],
    index: u32,
    kernel: Arc<str>,
    activity: Activity,
    /// Whether it polls one location. Only its next turn shows whether it continues to poll.
    polls: bool,
    since: u64,
}

/// The log of pending operations.
#[derive(Default)]
pub(crate) struct Log {
    /// The machine's clock, with the precision of a warp's turn.
    pub clock: u64,
    open: FxHashMap<u64, TraceTransfer>,
    done: Vec<TraceTransfer>,
    limit: usize,
    dropped: u64,
}

impl Log {
    pub(crate) fn issue(
        &mut self,
        number: u64,
        what: &'static str,
        (from, to): (usize, usize),
        bytes: usize,
    ) {
        let (start, end) = (self.clock, self.clock);
        self.open.insert(number, TraceTransfer { what, from, to, bytes, start, end });
    }

    pub(crate) fn land(&mut self, number: u64) {
        if let Some(t) = self.open.remove(&number) {
            let t = TraceTransfer { end: self.clock, ..t };
            keep(&mut self.done, self.limit, &mut self.dropped, t);
        }
    }
}

/// Collects the timeline of a launch.
pub(crate) struct Recorder {
    /// By warp slot.
    tracks: Table<WarpSlot, Option<Track>>,
    trace: Trace,
    limit: usize,
    /// By PE, the bytes that were read from its memory.
    moved: Vec<u64>,
    kernels: FxHashMap<usize, Arc<str>>,
}

/// The facts about a warp that are remembered during its turn.
pub(crate) struct WarpTurn {
    start: u64,
    /// Its latest read: the location, the value, and the number of executions of that instruction.
    poll: Option<(u32, u64, u64, u64)>,
}

/// The number of executions of the instruction.
fn counted(run: &Run, w: WarpSlot, pc: u32) -> u64 {
    let image = run.grids[run.ctas[run.warps[w].cta].grid].image;
    run.counts[image][pc as usize].warps
}

impl Recorder {
    /// Creates a recorder; `kept` is the number of events of earlier launches that count towards
    /// the limit.
    pub(crate) fn new(run: &mut Run, config: &TraceConfig, kept: usize) -> Recorder {
        let limit = config.limit.saturating_sub(kept);
        run.remote.wire.log = Some(Box::new(Log { limit, ..Log::default() }));
        run.asynchronous.log = Some(Box::new(Log { limit, ..Log::default() }));
        let moved = vec![0; run.memory.n_pes];
        let mut recorder = Recorder {
            tracks: Table::default(),
            trace: Trace::default(),
            limit,
            moved,
            kernels: FxHashMap::default(),
        };
        recorder.traffic(run);
        recorder.trace.traffic.clear();
        recorder
    }

    /// Begins a warp's turn.
    pub(crate) fn begin(&mut self, run: &mut Run, w: WarpSlot) -> WarpTurn {
        let start = run.clock;
        for log in [&mut run.remote.wire.log, &mut run.asynchronous.log].into_iter().flatten() {
            log.clock = start;
        }
        match self.tracks.entry(w, || None) {
            None => self.tracks[w] = Some(self.track(run, w)),
            Some(t) if !t.polls && t.activity != Activity::Running => {
                self.turn_to(w, start, Activity::Running, false);
            }
            Some(_) => {}
        }
        let p = run.warps[w].poll;
        let poll = p.valid.then(|| (p.pc, p.addr, p.value, counted(run, w, p.pc)));
        WarpTurn { start, poll }
    }

    fn track(&mut self, run: &Run, w: WarpSlot) -> Track {
        let warp = &run.warps[w];
        let cta = &run.ctas[warp.cta];
        let name = || Arc::from(run.grids[cta.grid].kernel().name.as_str());
        Track {
            pe: cta.at.pe,
            cta: cta.at.ctaid,
            index: warp.index,
            kernel: self.kernels.entry(cta.grid).or_insert_with(name).clone(),
            activity: Activity::Running,
            polls: false,
            since: run.clock,
        }
    }

    /// Ends a warp's turn.
    pub(crate) fn end(&mut self, run: &Run, w: WarpSlot, turn: &WarpTurn) {
        self.traffic(run);
        let warp = &run.warps[w];
        if warp.live == 0 {
            self.close(w, run.clock);
            return;
        }
        let p = warp.poll;
        let again = turn.poll.is_some_and(|(pc, addr, value, count)| {
            p.valid && (p.pc, p.addr, p.value) == (pc, addr, value) && counted(run, w, pc) > count
        });
        let ready = warp.choose(run.memory.changes + 1);
        let waits_for = match ready {
            Some(i) => Some(&warp.groups[i]).filter(|_| again),
            None => warp.groups.iter().min_by_key(|g| g.state != State::Ready),
        };
        match waits_for {
            Some(g) => {
                let (polls, at) = if ready.is_some() { (true, turn.start) } else { (again, run.clock) };
                let same = self.tracks[w].as_ref().is_some_and(|t| t.polls && polls);
                if !same {
                    let (what, detail) = stall::waiting(run, w, g);
                    self.turn_to(
                        w,
                        at,
                        Activity::Waiting { what: what.into(), detail: detail.into() },
                        polls,
                    );
                }
            }
            None => self.turn_to(w, turn.start, Activity::Running, false),
        }
    }

    /// Ends the activity of a warp if it does something else now.
    fn turn_to(&mut self, w: WarpSlot, at: u64, activity: Activity, polls: bool) {
        let Some(t) = &mut self.tracks[w] else { return };
        if t.activity == activity {
            return;
        }
        let span = TraceSpan {
            pe: t.pe,
            cta: t.cta,
            warp: t.index,
            kernel: t.kernel.clone(),
            start: t.since,
            end: at,
            activity: std::mem::replace(&mut t.activity, activity),
        };
        (t.since, t.polls) = (at, polls);
        if span.end > span.start {
            keep(&mut self.trace.spans, self.limit, &mut self.trace.dropped, span);
        }
    }

    fn close(&mut self, w: WarpSlot, at: u64) {
        if let Some(t) = &self.tracks[w] {
            // Any other activity ends the current one.
            let none = Activity::Waiting { what: "".into(), detail: "".into() };
            let activity = if t.activity == Activity::Running { none } else { Activity::Running };
            self.turn_to(w, at, activity, false);
        }
        self.tracks[w] = None;
    }

    /// Records the bytes that plain accesses have moved between PEs.
    fn traffic(&mut self, run: &Run) {
        let n = run.memory.n_pes;
        for (pe, moved) in self.moved.iter_mut().enumerate() {
            let row = &run.memory.links[pe * n..(pe + 1) * n];
            let bytes = row.iter().sum::<u64>() - row[pe];
            if bytes != *moved {
                *moved = bytes;
                let event = TraceTraffic { time: run.clock, pe, bytes };
                keep(&mut self.trace.traffic, self.limit, &mut self.trace.dropped, event);
            }
        }
    }

    /// Ends the recording at the end of the launch, with or without an error.
    pub(crate) fn finish(mut self, run: &mut Run) -> Trace {
        for w in 0..self.tracks.next_id().0 {
            self.close(WarpSlot(w), run.clock);
        }
        let logs = [run.remote.wire.log.take(), run.asynchronous.log.take()];
        for mut log in logs.into_iter().flatten() {
            log.clock = run.clock;
            let mut left: Vec<u64> = log.open.keys().copied().collect();
            left.sort_unstable();
            left.into_iter().for_each(|number| log.land(number));
            self.trace.transfers.append(&mut log.done);
            self.trace.dropped += log.dropped;
        }
        self.trace.transfers.sort_by_key(|t| t.end);
        self.trace.end = run.clock;
        self.trace
    }
}
