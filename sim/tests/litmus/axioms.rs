//! The outcomes that the memory consistency model of PTX allows a small program (PTX ISA 8.10 and later, "Memory
//! Consistency Model"; Lustig, Sahasrabuddhe, Giroux, "A Formal Analysis of the NVIDIA PTX Memory Consistency Model",
//! ASPLOS 2019). All candidate executions are enumerated: what each read reads from, the coherence order of each location,
//! and the order of `fence.sc`.
//!
//! Coherence order is total here for each location, where the manual leaves racing weak writes unordered: the simulator
//! has one memory for all PEs, so it shows no other outcomes.

use super::program::{Op, Order, Outcome, Program, Scope, ThreadPlace};
use std::collections::BTreeMap;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum EventKind {
    Read,
    Write(u32),
    Fence { sc: bool },
}

/// One event. An exchange is a read and the write after it.
#[derive(Clone, Copy, Debug)]
struct Event {
    kind: EventKind,
    /// Its location; of a fence none.
    at: Option<usize>,
    order: Order,
    /// Its thread; of the writes before all threads none.
    thread: Option<usize>,
    place: ThreadPlace,
    /// The other half of an exchange.
    pair: Option<usize>,
}

/// A relation: for each event the set of those that come behind it.
#[derive(Clone, PartialEq, Eq)]
struct Relation(Vec<u32>);

impl Relation {
    fn new(n: usize) -> Relation {
        Relation(vec![0; n])
    }

    fn of(n: usize, holds: impl Fn(usize, usize) -> bool) -> Relation {
        let set = |a| (0..n).filter(|&b| holds(a, b)).fold(0, |set, b| set | 1 << b);
        Relation((0..n).map(set).collect())
    }

    fn has(&self, a: usize, b: usize) -> bool {
        self.0[a] >> b & 1 != 0
    }

    fn add(&mut self, a: usize, b: usize) {
        self.0[a] |= 1 << b;
    }

    fn union(&self, other: &Relation) -> Relation {
        Relation(self.0.iter().zip(&other.0).map(|(a, b)| a | b).collect())
    }

    /// First this one, then the other.
    fn then(&self, other: &Relation) -> Relation {
        let n = self.0.len();
        let step = |set: u32| (0..n).filter(|b| set >> b & 1 != 0).fold(0, |all, b| all | other.0[b]);
        Relation(self.0.iter().map(|set| step(*set)).collect())
    }

    /// Any number of steps, but at least one.
    fn closure(mut self) -> Relation {
        loop {
            let next = self.union(&self.then(&self));
            if next == self {
                return self;
            }
            self = next;
        }
    }

    fn is_irreflexive(&self) -> bool {
        (0..self.0.len()).all(|a| !self.has(a, a))
    }
}

/// A program as events, with what does not depend on the execution.
struct Events {
    all: Vec<Event>,
    po: Relation,
    /// Pairs that are strong enough for each other.
    morally_strong: Relation,
    /// Release patterns: the first operation, and the write.
    releases: Vec<(usize, usize)>,
    /// Acquire patterns: the read, and the last operation.
    acquires: Vec<(usize, usize)>,
    locations: usize,
}

impl Events {
    fn of(program: &Program) -> Events {
        let mut all = Vec::new();
        for at in 0..program.homes.len() {
            let place = ThreadPlace { pe: program.homes[at], cta: 0 };
            let order = Order::relaxed(Scope::Sys);
            all.push(Event {
                kind: EventKind::Write(0),
                at: Some(at),
                order,
                thread: None,
                place,
                pair: None,
            });
        }
        for (t, (place, ops)) in program.threads.iter().enumerate() {
            for op in ops {
                let event =
                    |kind, at, order| Event { kind, at, order, thread: Some(t), place: *place, pair: None };
                match *op {
                    Op::Read { at, order } => all.push(event(EventKind::Read, Some(at), order)),
                    Op::Write { at, value, order } => {
                        all.push(event(EventKind::Write(value), Some(at), order))
                    }
                    Op::Exchange { at, value, order } => {
                        let n = all.len();
                        let read = Event {
                            pair: Some(n + 1),
                            ..event(EventKind::Read, Some(at), Order { release: false, ..order })
                        };
                        let write = Event {
                            pair: Some(n),
                            ..event(EventKind::Write(value), Some(at), Order { acquire: false, ..order })
                        };
                        all.extend([read, write]);
                    }
                    Op::Fence { sc, scope } => {
                        all.push(event(EventKind::Fence { sc }, None, Order::relaxed(scope)))
                    }
                }
            }
        }
        let n = all.len();
        let po = Relation::of(n, |a, b| match (all[a].thread, all[b].thread) {
            (Some(s), Some(t)) => s == t && a < b,
            (None, Some(_)) => true,
            _ => false,
        });
        let includes = |a: &Event, b: &Event| a.order.strong.is_some_and(|s| a.place.includes(s, b.place));
        let morally_strong = Relation::of(n, |a, b| {
            let (x, y) = (&all[a], &all[b]);
            let overlap = x.at == y.at || x.at.is_none() || y.at.is_none();
            let related = po.has(a, b) || po.has(b, a) || includes(x, y) && includes(y, x);
            a != b && overlap && related
        });
        let mut events = Events {
            all,
            po,
            morally_strong,
            releases: Vec::new(),
            acquires: Vec::new(),
            locations: program.homes.len(),
        };
        events.patterns();
        events
    }

    fn patterns(&mut self) {
        let n = self.all.len();
        let strong = |e: &Event| e.order.strong.is_some() && e.thread.is_some();
        for a in 0..n {
            let x = self.all[a];
            let is_fence = matches!(x.kind, EventKind::Fence { .. });
            if matches!(x.kind, EventKind::Write(_)) && x.order.release {
                self.releases.push((a, a));
            }
            if matches!(x.kind, EventKind::Read) && x.order.acquire {
                self.acquires.push((a, a));
            }
            for b in 0..n {
                let y = self.all[b];
                if !self.po.has(a, b) {
                    continue;
                }
                let same = x.at == y.at;
                if matches!(y.kind, EventKind::Write(_))
                    && strong(&y)
                    && (is_fence || x.order.release && same)
                {
                    self.releases.push((a, b));
                }
                let last = matches!(y.kind, EventKind::Fence { .. }) || y.order.acquire && same;
                if matches!(x.kind, EventKind::Read) && strong(&x) && last {
                    self.acquires.push((a, b));
                }
            }
        }
    }

    /// Whether two operations of different threads conflict, are not strong enough for each other, and are not ordered.
    ///
    /// With `all`, that is as the manual says. Otherwise those do not count of which one comes before another access of
    /// its thread to the same location, and that one is ordered with the other operation by observation alone: the manual
    /// does not have program order followed by observation order as causality, but no value depends on it.
    ///
    /// The manual has an atomic operation as one, the formal model as a read and a write. Here it counts as one where a
    /// release pattern contains it: what others do behind an operation that observes it comes behind both its halves.
    fn has_race(&self, base: &Relation, cause: &Relation, all: bool) -> bool {
        let is_fence = |a: usize| matches!(self.all[a].kind, EventKind::Fence { .. });
        let whole = |a: usize| self.releases.iter().any(|r| r.1 == a && (r.0 == a || is_fence(r.0)));
        let ordered = |a: usize, b: usize| {
            let read_half = self.all[a].kind == EventKind::Read && self.all[a].pair.is_some();
            let before = self.all[a].pair.filter(|w| read_half && whole(*w));
            base.has(a, b) || cause.has(a, b) || before.is_some_and(|w| cause.has(w, b))
        };
        let same = |a: usize, b: usize| self.all[a].at == self.all[b].at;
        let through = |a: usize, b: usize| {
            !all && (0..self.all.len()).any(|c| self.po.has(a, c) && same(a, c) && cause.has(c, b))
        };
        let ordered = |a: usize, b: usize| ordered(a, b) || through(a, b);
        let pairs = (0..self.all.len()).flat_map(|a| (0..a).map(move |b| (a, b)));
        pairs.into_iter().any(|(a, b)| {
            let (x, y) = (&self.all[a], &self.all[b]);
            let writes = matches!(x.kind, EventKind::Write(_)) || matches!(y.kind, EventKind::Write(_));
            let apart = x.thread.is_some() && y.thread.is_some() && x.thread != y.thread;
            apart
                && writes
                && x.at.is_some()
                && x.at == y.at
                && !self.morally_strong.has(a, b)
                && !ordered(a, b)
                && !ordered(b, a)
        })
    }

    fn writes(&self, at: usize) -> Vec<usize> {
        let is = |e: &Event| e.at == Some(at) && matches!(e.kind, EventKind::Write(_));
        (0..self.all.len()).filter(|&e| is(&self.all[e])).collect()
    }

    fn value(&self, write: usize) -> u32 {
        match self.all[write].kind {
            EventKind::Write(value) => value,
            _ => 0,
        }
    }
}

/// What one execution chooses.
struct Execution {
    rf: Relation,
    co: Relation,
    sc: Relation,
}

impl Execution {
    /// If all axioms hold, whether two operations race.
    fn judge(&self, e: &Events) -> Option<Verdict> {
        let n = e.all.len();
        let Execution { rf, co, sc } = self;
        // From a read to the writes behind the one that it reads from.
        let fr = Relation::of(n, |r, w| (0..n).any(|x| rf.has(x, r) && co.has(x, w) && x != w));
        let com = rf.union(co).union(&fr);
        let strong = |r: &Relation| Relation::of(n, |a, b| r.has(a, b) && e.morally_strong.has(a, b));
        let update = Relation::of(n, |a, b| e.all[a].kind == EventKind::Read && e.all[a].pair == Some(b));
        let strong_rf = strong(rf);
        let observation = strong_rf.union(&strong_rf.then(&update).closure().then(&strong_rf));
        let mut base = e.po.union(sc);
        for &(first, write) in &e.releases {
            for &(read, last) in &e.acquires {
                if observation.has(write, read) && e.morally_strong.has(first, last) {
                    base.add(first, last);
                }
            }
        }
        let base = base.closure();
        let cause = base.union(&observation.then(&base));
        // Coherence and Fence-SC.
        let against = |r: &Relation| (0..n).any(|a| (0..n).any(|b| r.has(a, b) && cause.has(b, a)));
        if !cause.is_irreflexive() || against(co) {
            return None;
        }
        // Atomicity.
        let torn = (0..n).any(|r| {
            let pair = e.all[r].pair.filter(|_| e.all[r].kind == EventKind::Read);
            pair.is_some_and(|w| (0..n).any(|x| fr.has(r, x) && co.has(x, w) && e.morally_strong.has(x, w)))
        });
        // Sequential consistency of each location.
        let same = |a: usize, b: usize| e.all[a].at.is_some() && e.all[a].at == e.all[b].at;
        let po_at = Relation::of(n, |a, b| e.po.has(a, b) && same(a, b));
        let per_location = strong(&com).union(&po_at).closure();
        // Causality.
        let allowed = !torn && per_location.is_irreflexive() && !against(rf) && !against(&fr);
        let has_race = |all| e.has_race(&base, &cause, all);
        allowed.then(|| match () {
            () if has_race(false) => Verdict::Racy,
            () if has_race(true) => Verdict::Either,
            () => Verdict::Silent,
        })
    }
}

/// What executions with one outcome have in common.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    Silent,
    Racy,
    /// Some have a race, others none; or a race by the letter in which no value depends on the order.
    Either,
}

/// All outcomes that some execution has, and whether those executions have races.
pub fn allowed(program: &Program) -> BTreeMap<Outcome, Verdict> {
    let e = Events::of(program);
    let n = e.all.len();
    assert!(n <= 32, "a relation has 32 events at most");
    let reads: Vec<usize> = (0..n).filter(|&i| e.all[i].kind == EventKind::Read).collect();
    let sources = reads.iter().map(|&r| {
        let own = e.all[r].pair;
        let writes = e.writes(e.all[r].at.unwrap_or(0));
        writes.into_iter().filter(|w| Some(*w) != own).collect::<Vec<_>>()
    });
    let sources: Vec<Vec<usize>> = sources.collect();
    let orders: Vec<Vec<Vec<usize>>> = (0..e.locations)
        .map(|at| {
            // The first value comes before all writes.
            let writes = e.writes(at);
            let all = permutations(&writes[1..]);
            all.into_iter().map(|order| [&writes[..1], &order[..]].concat()).collect()
        })
        .collect();
    let fences: Vec<usize> = (0..n).filter(|&i| e.all[i].kind == (EventKind::Fence { sc: true })).collect();
    let fence_orders = permutations(&fences);
    let mut out = BTreeMap::new();
    for order in product(&orders) {
        let mut co = Relation::new(n);
        for writes in &order {
            for (i, a) in writes.iter().enumerate() {
                writes[i + 1..].iter().for_each(|b| co.add(*a, *b));
            }
        }
        let last: Vec<u32> = order.iter().map(|w| e.value(*w.last().unwrap_or(&0))).collect();
        for source in product(&sources) {
            let read: Vec<u32> = source.iter().map(|w| e.value(*w)).collect();
            let outcome = (read, last.clone());
            let mut rf = Relation::new(n);
            source.iter().zip(&reads).for_each(|(w, r)| rf.add(*w, *r));
            for fences in &fence_orders {
                let mut sc = Relation::new(n);
                for (i, a) in fences.iter().enumerate() {
                    for b in &fences[i + 1..] {
                        if e.morally_strong.has(*a, *b) {
                            sc.add(*a, *b);
                        }
                    }
                }
                let execution = Execution { rf: rf.clone(), co: co.clone(), sc };
                let Some(verdict) = execution.judge(&e) else { continue };
                let known = out.entry(outcome.clone()).or_insert(verdict);
                if *known != verdict {
                    *known = Verdict::Either;
                }
            }
        }
    }
    out
}

/// One element of each list, in all ways.
fn product<T: Clone>(lists: &[Vec<T>]) -> Vec<Vec<T>> {
    lists.iter().fold(vec![Vec::new()], |all, list| {
        let longer = |head: &Vec<T>| {
            list.iter().map(|x| [&head[..], std::slice::from_ref(x)].concat()).collect::<Vec<_>>()
        };
        all.iter().flat_map(longer).collect()
    })
}

fn permutations(list: &[usize]) -> Vec<Vec<usize>> {
    if list.is_empty() {
        return vec![Vec::new()];
    }
    let mut all = Vec::new();
    for (i, first) in list.iter().enumerate() {
        let rest = [&list[..i], &list[i + 1..]].concat();
        all.extend(permutations(&rest).into_iter().map(|rest| [&[*first][..], &rest[..]].concat()));
    }
    all
}
