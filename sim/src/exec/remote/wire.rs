//! Pending remote operations. An issued operation completes when NVSHMEM's rules allow it, as late
//! and as much out of order as they allow, drawn from the machine's seed:
//!
//! * A *prompt* operation (blocking put, `p`, signal, non-fetching AMO) carries its data. It
//!   completes at once or some rounds of the schedule later.
//! * A *lazy* operation (`put_nbi`, `get_nbi`) reads its source when it completes: at a quiet or
//!   barrier of its PE, before an operation that a fence orders after it, or when no thread could
//!   continue otherwise.
//! * `put_signal_nbi` is in between. It mostly reads its source late, but completes some time
//!   without a quiet, since receivers wait for its signal.
//! * Puts are cut into pieces that complete separately. A signal completes after all pieces of its
//!   own put.
//! * A fence begins a new epoch of its PE. An operation completes after all operations of earlier
//!   epochs between the same two PEs, except gets. The same holds for a plain store to a peer's
//!   memory.

use crate::check::Releases;
use crate::check::detector::Ticket;
use crate::exec::access::{from_le, put_le};
use crate::exec::trace::Log;
use crate::memory::{Memory, Spot};
use crate::num::Combine;
use crate::rng::Rng;
use rustc_hash::{FxHashMap, FxHashSet};
use std::ops::Range;

/// The largest number of pending operations; beyond it, the older half completes.
const DEPTH: usize = 1 << 15;

/// How long an operation may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Late {
    Prompt,
    Signal,
    Lazy,
}

/// The source of a put's data.
#[derive(Debug, Clone)]
pub(crate) enum Data {
    Bytes(Vec<u8>),
    /// A location that is read when the put completes.
    Memory(Spot, usize),
}

impl Data {
    fn len(&self) -> usize {
        match self {
            Data::Bytes(b) => b.len(),
            Data::Memory(_, n) => *n,
        }
    }

    fn part(&self, r: Range<usize>) -> Data {
        match self {
            Data::Bytes(b) => Data::Bytes(b[r].to_vec()),
            Data::Memory(s, _) => Data::Memory(Spot { at: s.at + r.start, ..*s }, r.len()),
        }
    }
}

/// A change of one element.
#[derive(Clone, Copy)]
pub(crate) enum Change {
    Set,
    /// The addition of a signal.
    Add,
    /// The operator of an AMO.
    Combine(&'static Combine),
}

impl Change {
    pub(crate) fn apply(self, old: u64, value: u64) -> u64 {
        match self {
            Change::Set => value,
            Change::Add => old.wrapping_add(value),
            Change::Combine(combine) => combine(old, value),
        }
    }
}

enum TransferKind {
    /// A put of elements of `element` bytes to heap offset `dst`, every `step` bytes.
    Put {
        dst: u64,
        step: u64,
        element: usize,
        data: Data,
    },
    Get {
        src: u64,
        dst: Spot,
        bytes: usize,
    },
    Update {
        dst: u64,
        bytes: usize,
        value: u64,
        change: Change,
    },
}

struct Pending {
    from: usize,
    to: usize,
    late: Late,
    epoch: u64,
    /// The put that a signal belongs to.
    group: u64,
    is_signal: bool,
    /// The number in the order of issue.
    number: u64,
    kind: TransferKind,
    landing: Option<Box<Landing>>,
}

/// For the race detector, the releases of a signal or AMO when it completes.
pub(crate) struct Landing {
    pub ticket: Ticket,
    pub left: Releases,
}

impl Pending {
    fn is_get(&self) -> bool {
        matches!(self.kind, TransferKind::Get { .. })
    }
}

/// A put that is to be issued.
pub(crate) struct Put {
    pub from: usize,
    pub to: usize,
    pub dst: u64,
    pub step: u64,
    pub element: usize,
    pub data: Data,
    /// The offset, value and change of the signal after the put.
    pub signal: Option<(u64, u64, Change)>,
    pub landing: Option<Box<Landing>>,
}

/// A variable that a PE has set twice, where the first value arrived last. It can cause an endless
/// wait.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Overtaken {
    pub from: usize,
    pub first: u64,
    pub second: u64,
}

pub(crate) struct Wire {
    rng: Rng,
    n_pes: usize,
    queue: Vec<Pending>,
    /// The number of fences of each PE.
    epoch: Vec<u64>,
    /// For each PE, the number of pending operations that are older than its latest fence.
    behind: Vec<usize>,
    groups: u64,
    issued: u64,
    /// By PE and heap offset, the latest completed set of a variable: the issuing PE, the
    /// operation's number, and the value.
    sets: FxHashMap<(usize, u64), (usize, u64, u64)>,
    overtaken: FxHashMap<(usize, u64), Overtaken>,
    /// Completed updates that the detector has not seen yet, with location and size.
    pub landed: Vec<(Box<Landing>, Spot, usize)>,
    /// The bytes moved between PEs, at index `from * n_pes + to`.
    pub links: Vec<u64>,
    /// The number of operations that no quiet or barrier had completed when the last CTA ended.
    pub unfinished: u64,
    /// The log of transfers that a timeline is made from.
    pub log: Option<Box<Log>>,
}

impl Wire {
    pub(crate) fn new(n_pes: usize, seed: u64) -> Wire {
        Wire {
            // The random sequence is separate from that of the schedule.
            rng: Rng(seed ^ 0x6e76_7368_6d65_6d00),
            n_pes,
            queue: Vec::new(),
            epoch: vec![0; n_pes],
            behind: vec![0; n_pes],
            groups: 0,
            issued: 0,
            sets: FxHashMap::default(),
            overtaken: FxHashMap::default(),
            landed: Vec::new(),
            links: vec![0; n_pes * n_pes],
            unfinished: 0,
            log: None,
        }
    }

    /// Counts bytes that go from one PE to another.
    pub(crate) fn count(&mut self, from: usize, to: usize, bytes: usize) {
        if from != to {
            self.links[from * self.n_pes + to] += bytes as u64;
        }
    }

    /// Returns true in one of `n` cases.
    pub(crate) fn chance(&mut self, n: u64) -> bool {
        self.rng.next().is_multiple_of(n)
    }

    fn push(
        &mut self,
        memory: &mut Memory,
        (from, to): (usize, usize),
        late: Late,
        group: u64,
        kind: TransferKind,
        landing: Option<Box<Landing>>,
    ) {
        let (epoch, is_signal) =
            (self.epoch[from], group != 0 && matches!(kind, TransferKind::Update { .. }));
        self.issued += 1;
        let number = self.issued;
        if let Some(log) = &mut self.log {
            let (what, bytes) = match &kind {
                TransferKind::Put { data, .. } => ("put", data.len()),
                TransferKind::Get { bytes, .. } => ("get", *bytes),
                TransferKind::Update { bytes, .. } => (if is_signal { "signal" } else { "update" }, *bytes),
            };
            log.issue(number, what, (from, to), bytes);
        }
        self.queue.push(Pending { from, to, late, epoch, group, is_signal, number, kind, landing });
        let at_once = match late {
            Late::Prompt => self.chance(2),
            Late::Signal => self.chance(8),
            Late::Lazy => false,
        };
        if at_once {
            self.land(memory, self.queue.len() - 1);
        } else if self.queue.len() > DEPTH {
            // Older operations complete before newer ones, so no rule is violated.
            let middle = self.queue[self.queue.len() / 2].number;
            self.land_all(memory, |o| o.number <= middle);
        }
    }

    /// Issues a put.
    pub(crate) fn put(&mut self, memory: &mut Memory, late: Late, put: Put) {
        let Put { from, to, dst, step, element, data, signal, landing } = put;
        self.groups += 1;
        let group = self.groups;
        let elements = data.len() / element.max(1);
        let cut =
            if elements > 1 && self.chance(2) { 1 + self.rng.next() as usize % (elements - 1) } else { 0 };
        for part in [0..cut, cut..elements] {
            if !part.is_empty() {
                let dst = dst + part.start as u64 * step;
                let data = data.part(part.start * element..part.end * element);
                self.push(
                    memory,
                    (from, to),
                    late,
                    group,
                    TransferKind::Put { dst, step, element, data },
                    None,
                );
            }
        }
        if let Some((dst, value, change)) = signal {
            self.push(
                memory,
                (from, to),
                late,
                group,
                TransferKind::Update { dst, bytes: 8, value, change },
                landing,
            );
        }
    }

    /// Issues a non-blocking get.
    pub(crate) fn get(
        &mut self,
        memory: &mut Memory,
        from: usize,
        to: usize,
        src: u64,
        dst: Spot,
        bytes: usize,
    ) {
        self.push(memory, (from, to), Late::Lazy, 0, TransferKind::Get { src, dst, bytes }, None);
    }

    /// Issues a change of one element without a result.
    pub(crate) fn update(
        &mut self,
        memory: &mut Memory,
        (from, to): (usize, usize),
        (dst, bytes): (u64, usize),
        value: u64,
        change: Change,
        landing: Option<Box<Landing>>,
    ) {
        self.push(
            memory,
            (from, to),
            Late::Prompt,
            0,
            TransferKind::Update { dst, bytes, value, change },
            landing,
        );
    }

    /// Executes `nvshmem_fence` on a PE.
    pub(crate) fn fence(&mut self, pe: usize) {
        self.behind[pe] = self.queue.iter().filter(|o| o.from == pe && !o.is_get()).count();
        self.epoch[pe] += 1;
    }

    /// Completes the operations that a fence of `from` orders before its next access to the memory
    /// of `to`.
    #[inline]
    pub(crate) fn order(&mut self, memory: &mut Memory, from: usize, to: usize) {
        if self.behind[from] > 0 && to < self.n_pes {
            let epoch = self.epoch[from];
            self.land_all(memory, |o| o.from == from && o.to == to && !o.is_get() && o.epoch < epoch);
        }
    }

    /// Executes `nvshmem_quiet` on a PE.
    pub(crate) fn quiet(&mut self, memory: &mut Memory, pe: usize) {
        self.land_all(memory, |o| o.from == pe);
    }

    /// Executes `nvshmemx_flush` on a PE, which reads the sources of its puts.
    pub(crate) fn flush(&mut self, memory: &Memory, pe: usize) {
        for o in self.queue.iter_mut().filter(|o| o.from == pe) {
            if let TransferKind::Put { data, .. } = &mut o.kind
                && let Data::Memory(s, n) = *data
            {
                *data = Data::Bytes(memory.at(s, n).to_vec());
            }
        }
    }

    /// Advances by a round of the schedule.
    pub(crate) fn tick(&mut self, memory: &mut Memory) {
        let mut chosen = FxHashSet::default();
        let mut groups = FxHashSet::default();
        let mut epochs: FxHashMap<(usize, usize), u64> = FxHashMap::default();
        for i in 0..self.queue.len() {
            let lands = match self.queue[i].late {
                Late::Prompt => self.chance(4),
                Late::Signal => self.chance(16),
                Late::Lazy => false,
            };
            let o = &self.queue[i];
            if !lands {
                continue;
            }
            chosen.insert(o.number);
            if o.is_signal {
                groups.insert(o.group);
            }
            let epoch = epochs.entry((o.from, o.to)).or_default();
            *epoch = o.epoch.max(*epoch);
        }
        // The operations that must come before them complete too.
        if !chosen.is_empty() {
            self.land_all(memory, |o| {
                let fenced = || !o.is_get() && epochs.get(&(o.from, o.to)).is_some_and(|e| o.epoch < *e);
                chosen.contains(&o.number) || groups.contains(&o.group) || fenced()
            });
        }
    }

    /// Completes an operation if no thread can continue, or if nothing has changed for long.
    /// Returns `false` if nothing is pending.
    pub(crate) fn hasten(&mut self, memory: &mut Memory) -> bool {
        for late in [Late::Prompt, Late::Signal, Late::Lazy] {
            let all: Vec<usize> = (0..self.queue.len()).filter(|&i| self.queue[i].late == late).collect();
            if !all.is_empty() {
                let chosen = self.rng.next() as usize % all.len();
                self.land(memory, all[chosen]);
                return true;
            }
        }
        false
    }

    /// Completes all operations after the end of all kernels, as late as possible.
    pub(crate) fn finish(&mut self, memory: &mut Memory) {
        self.unfinished = self.queue.len() as u64;
        self.land_all(memory, |_| true);
    }

    /// Completes one operation, and before it those that must come first.
    fn land(&mut self, memory: &mut Memory, i: usize) {
        let op = self.queue.remove(i);
        if !op.is_get() && (op.is_signal || self.behind[op.from] > 0) {
            self.land_all(memory, |o| {
                let fenced = o.epoch < op.epoch && !o.is_get();
                let signalled = op.is_signal && o.group == op.group;
                o.from == op.from && o.to == op.to && (fenced || signalled)
            });
        }
        self.apply(memory, op);
    }

    /// Completes all operations for which `chosen` returns true, in a random order among the
    /// possible ones.
    fn land_all(&mut self, memory: &mut Memory, chosen: impl Fn(&Pending) -> bool) {
        let mut due: Vec<Pending> = self.queue.extract_if(.., |o| chosen(o)).collect();
        self.rng.shuffle(&mut due);
        due.sort_by_key(|o| (o.epoch, o.is_signal));
        for op in due {
            self.apply(memory, op);
        }
    }

    /// Notes that a variable is being set, and whether an older value arrives after a newer one.
    fn note(&mut self, from: usize, to: usize, dst: u64, number: u64, value: u64) {
        let last = self.sets.insert((to, dst), (from, number, value));
        match last {
            Some((pe, later, second)) if pe == from && later > number => {
                self.overtaken.insert((to, dst), Overtaken { from, first: value, second });
            }
            _ => {
                self.overtaken.remove(&(to, dst));
            }
        }
    }

    /// Whether the value of a variable arrived after a newer one.
    pub(crate) fn overtaken(&self, pe: usize, offset: u64) -> Option<Overtaken> {
        self.overtaken.get(&(pe, offset)).copied()
    }

    fn apply(&mut self, memory: &mut Memory, op: Pending) {
        let Pending { from, to, .. } = op;
        if let Some(log) = &mut self.log {
            log.land(op.number);
        }
        if op.epoch < self.epoch[from] && !op.is_get() {
            self.behind[from] = self.behind[from].saturating_sub(1);
        }
        match op.kind {
            TransferKind::Put { dst, step, element, data } => {
                let bytes = match data {
                    Data::Bytes(bytes) => bytes,
                    Data::Memory(s, n) => memory.at(s, n).to_vec(),
                };
                self.count(from, to, bytes.len());
                // Contiguous elements are one piece.
                let unit = if step == element as u64 { bytes.len() } else { element };
                for (i, piece) in bytes.chunks(unit.max(1)).enumerate() {
                    memory.store_at(memory.heap(to, dst + i as u64 * step), piece);
                }
            }
            TransferKind::Get { src, dst, bytes } => {
                let data = memory.at(memory.heap(to, src), bytes).to_vec();
                self.count(to, from, bytes);
                memory.store_at(dst, &data);
            }
            TransferKind::Update { dst, bytes, value, change } => {
                self.count(from, to, bytes);
                if matches!(change, Change::Set) {
                    self.note(from, to, dst, op.number, value);
                }
                let spot = memory.heap(to, dst);
                change_element(memory, spot, bytes, value, change);
                self.landed.extend(op.landing.map(|l| (l, spot, bytes)));
            }
        }
    }
}

/// Changes one element and returns its old value.
pub(crate) fn change_element(memory: &mut Memory, at: Spot, bytes: usize, value: u64, change: Change) -> u64 {
    let old = from_le(memory.at(at, bytes));
    let mut new = [0; 8];
    put_le(&mut new[..bytes], change.apply(old, value));
    memory.store_at(at, &new[..bytes]);
    old
}
