//! Checks the order of remote memory operations: a `quiet` must precede the reuse of memory of a
//! non-blocking operation, and a fence must separate a put from the signal that announces it.
//!
//! The walk follows the text. A completion (`quiet`, a barrier) in one branch of an `if` counts for
//! both branches, because the walk does not evaluate conditions and must not report false errors.
//! Loops are walked twice, so that each round also follows a previous round. The state at a jump is
//! merged at the target of the jump.

use crate::diag::{Code, Diagnostic, Span};
use crate::kernel::{Block, Kernel, TeamRef, Value};
use crate::names::Sem;
use crate::op::{Access, Arith, Constant, Control, Operation, Remote, Team, Thread, Var, View};
use crate::signals::Signals;
use crate::tensor::Op;
use crate::types::ValueType;
use crate::{remote, uniform};
use std::collections::{BTreeMap, HashSet};
use weft_layout::{Int, Layout, Node};

/// Memory of a non-blocking operation is used before the operation is complete.
pub const BEFORE_QUIET: Code = Code(232);
/// A separate signal can overtake the put that it announces.
pub const UNORDERED_SIGNAL: Code = Code(233);

/// Reports missing completions and fences between `k`'s remote memory operations.
pub(crate) fn check(k: &Kernel, found: &mut Vec<Diagnostic>) {
    let mut any = false;
    k.walk(&mut |_, inst| any |= inst.op.remote().is_some());
    if !any {
        return;
    }
    let signals = Signals::of(k);
    let mut walk = Walk {
        k,
        waited: signals.waited(),
        reported: HashSet::new(),
        around: Vec::new(),
        cta: k.block,
        found,
    };
    walk.block(&k.body, &mut State::default());
    signals.report(k, found);
}

/// The reason why the elements of a parameter are considered to be counters or flags.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Flag {
    /// An atomic, a compare and swap or a reduction updates the tensor in memory.
    Counted,
    /// The tensor is a signal, or a kernel waits for it.
    Signal,
    /// The tensor is read with an order, so other threads write it meanwhile.
    Ordered,
}

/// The parameters that are counters or flags: targets of atomics and of reductions in memory,
/// signals, and tensors that are waited for or read with an order. Their elements begin at 0.
pub fn flags(k: &Kernel) -> BTreeMap<u32, Flag> {
    let mut found = BTreeMap::new();
    k.walk(&mut |_, inst| {
        let is_int = |v: &Value| k.ty(*v).elem().is_some_and(|s| s.is_int());
        let flag = match (inst.op.remote(), inst.op.access()) {
            (Some(Remote::Amo { target, .. }), _) => {
                Some((*target, Flag::Counted)).filter(|_| is_int(target))
            }
            (Some(op), _) => counted(op).map(|v| (v, Flag::Signal)),
            (_, Some(access)) => in_memory(access).filter(|(v, flag)| *flag == Flag::Counted || is_int(v)),
            (None, None) => None,
        };
        if let Some((v, flag)) = flag
            && let Some((region, _)) = viewed_region(k, v)
        {
            let known = found.entry(region.param).or_insert(flag);
            *known = flag.min(*known);
        }
    });
    found
}

/// The tensor that an access updates in memory or reads in order.
fn in_memory(access: &Access) -> Option<(Value, Flag)> {
    match access {
        Access::McRed { place, .. }
        | Access::Red { place, .. }
        | Access::Atomic { place, .. }
        | Access::AtomicCas { place, .. } => Some((*place, Flag::Counted)),
        Access::Load { place, sem, .. } if *sem != Sem::Weak => Some((*place, Flag::Ordered)),
        Access::Load { .. } | Access::Store { .. } | Access::LdReduce { .. } | Access::McStore { .. } => None,
    }
}

/// The variable that an operation updates as a counter or waits for.
fn counted(op: &Remote) -> Option<Value> {
    match op {
        Remote::PutSignal { signal, .. }
        | Remote::SignalOp { signal, .. }
        | Remote::SignalWait { signal, .. }
        | Remote::SignalFetch { signal } => Some(*signal),
        Remote::Wait { vars, .. } => Some(*vars),
        Remote::Amo { target, .. } => Some(*target),
        Remote::Put { .. }
        | Remote::Get { .. }
        | Remote::PutValue { .. }
        | Remote::GetValue { .. }
        | Remote::RmaFence {}
        | Remote::Quiet {}
        | Remote::TeamSync { .. }
        | Remote::TeamReduce { .. }
        | Remote::TeamMove { .. }
        | Remote::TranslatePe { .. } => None,
    }
}

/// Elements of a parameter's tensor on this PE.
#[derive(Clone)]
pub(crate) struct Region {
    pub param: u32,
    pub offset: Int,
    layout: Layout,
}

impl Region {
    /// Whether the regions can have an element in common. They are assumed to if the contrary
    /// cannot be proven.
    pub fn meets(&self, other: &Region) -> bool {
        let within = |a: &Region, b: &Region| {
            let distance = &b.offset - &a.offset;
            let dense = remote::is_contiguous(&a.layout);
            distance.is(0) || (dense && Int::from(0).is_le(&distance) && distance.is_lt(&a.layout.cosize()))
        };
        self.param == other.param && (within(self, other) || within(other, self))
    }

    fn mentions(&self, defined: &HashSet<Value>) -> bool {
        let mut found = false;
        let mut see = |v: &weft_layout::Var| found |= defined.contains(&Value(v.id));
        self.offset.vars(&mut see);
        self.layout.shape().for_each_leaf(&mut |n| n.vars(&mut see));
        self.layout.stride().for_each_leaf(&mut |n| n.vars(&mut see));
        found
    }
}

/// The region of a parameter's tensor that a tensor views, also through another PE's address.
pub(crate) fn viewed_region(k: &Kernel, v: Value) -> Option<(Region, bool)> {
    let layout = k.ty(v).tensor()?.layout.clone();
    let (mut at, mut offset, mut elsewhere) = (v, Int::from(0), false);
    loop {
        let op = &k.insts.get(at)?.op;
        if let Some(Var::Param { index }) = op.var() {
            return Some((Region { param: *index, offset, layout }, elsewhere));
        }
        at = match op.view()? {
            View::Part { base, offset: more } | View::Distributed { base, offset: more, .. } => {
                offset = offset + canonical(k, more);
                *base
            }
            View::Peer { base, .. } | View::Multicast { base, .. } => {
                elsewhere = true;
                *base
            }
            View::Index { .. } | View::InCta { .. } | View::Shared { .. } => return None,
        };
    }
}

/// The region of this PE's memory that a tensor views.
fn here(k: &Kernel, v: Value) -> Option<Region> {
    viewed_region(k, v).filter(|(_, elsewhere)| !elsewhere).map(|(region, _)| region)
}

/// The number in a canonical form, so that a question which is computed twice has one answer.
fn canonical(k: &Kernel, n: &Int) -> Int {
    n.subst(&mut |var| {
        let v = Value(var.id);
        let op = &k.insts.get(v)?.op;
        if let Some(View::Index { expr }) = op.view() {
            let itself = matches!(expr.node(), Node::Var(x) if x.id == var.id);
            return (!itself).then(|| canonical(k, expr));
        }
        if !is_fixed(op) {
            return None;
        }
        let first = k.insts.iter().find(|(_, inst)| inst.op == *op).map(|(v, _)| v)?;
        if first == v { None } else { k.symbol(first) }
    })
}

/// Whether an op gives a thread the same number each time, because it reads the thread's position
/// or a parameter.
fn is_fixed(op: &Op) -> bool {
    matches!(op.thread(), Some(Thread::Special { .. }))
        || matches!(op.team(), Some(Team::MyPe { .. } | Team::NPes { .. }))
        || matches!(op.var(), Some(Var::Param { .. }))
}

/// The value as an integer expression.
pub(crate) fn number(k: &Kernel, v: Value) -> Option<Int> {
    let op = k.insts.get(v)?.op.arith();
    if let Some(Arith::Convert { a }) = op {
        return number(k, *a);
    }
    if let Some(Arith::Const { value: Constant::Int(n) }) = op {
        return Some(Int::from(*n));
    }
    k.symbol(v).map(|n| canonical(k, &n))
}

#[derive(Clone, Default)]
struct State {
    /// The non-blocking operations that may not be complete: the instruction, its memory on this
    /// PE, and whether the memory is written.
    pending: Vec<(Value, Region, bool)>,
    /// The puts that a signal can overtake: the instruction, the PE and the team.
    unfenced: Vec<(Value, Value, TeamRef)>,
    /// Whether the code is unreachable because a jump precedes it.
    gone: bool,
}

/// The states at jumps to a surrounding loop or `once`.
#[derive(Default)]
struct EnclosingLoop {
    /// The states at jumps to its next round.
    next: Vec<State>,
    /// The states at jumps out of it.
    out: Vec<State>,
}

struct Walk<'k, 'f> {
    k: &'k Kernel,
    /// The regions that a wait reads.
    waited: Vec<Region>,
    /// The pairs that have been reported.
    reported: HashSet<(Value, Value)>,
    /// The surrounding loops and `once`, outermost first.
    around: Vec<EnclosingLoop>,
    /// The extents of the CTA, or of the role that the current code belongs to.
    cta: [u32; 3],
    found: &'f mut Vec<Diagnostic>,
}

impl Walk<'_, '_> {
    fn block(&mut self, block: &Block, state: &mut State) {
        for &v in &block.0 {
            let Some(inst) = self.k.insts.get(v).filter(|_| !state.gone) else { continue };
            match inst.op.control() {
                Some(Control::If { then, otherwise, .. }) => self.either(then, otherwise, state),
                Some(Control::For { var, body, .. }) => self.rounds(Some(var.0), &[body], true, state),
                Some(Control::While { head, cond, body }) => {
                    let endless = Arith::Const { value: Constant::Bool(true) };
                    let ends = self.k.op(*cond).arith() != Some(&endless);
                    self.rounds(None, &[head, body], ends, state);
                }
                Some(Control::Once { body }) => self.once(body, state),
                Some(Control::Role { threads, body, .. }) => {
                    let cta = std::mem::replace(&mut self.cta, [*threads, 1, 1]);
                    self.block(body, &mut state.clone());
                    self.cta = cta;
                }
                Some(Control::Break { depth }) => self.jump(*depth, false, state),
                Some(Control::Continue { depth }) => self.jump(*depth, true, state),
                Some(Control::Return {}) => state.gone = true,
                None => self.step(v, &inst.op, state),
            }
        }
    }

    fn either(&mut self, then: &Block, otherwise: &Block, state: &mut State) {
        let (mut a, mut b) = (state.clone(), state.clone());
        self.block(then, &mut a);
        self.block(otherwise, &mut b);
        *state = meeting(state, a, b);
    }

    fn jump(&mut self, depth: u32, again: bool, state: &mut State) {
        let to = self.around.len().checked_sub(1 + depth as usize);
        if let Some(to) = to.and_then(|to| self.around.get_mut(to)) {
            if again { &mut to.next } else { &mut to.out }.push(state.clone());
        }
        state.gone = true;
    }

    fn once(&mut self, body: &Block, state: &mut State) {
        let before = state.clone();
        self.around.push(EnclosingLoop::default());
        self.block(body, state);
        for other in self.around.pop().unwrap_or_default().out {
            *state = meeting(&before, state.clone(), other);
        }
    }

    /// Walks the rounds of a loop. `ends` says whether the loop can end other than by a jump.
    fn rounds(&mut self, var: Option<Value>, blocks: &[&Block], ends: bool, state: &mut State) {
        let mut defined: HashSet<_> = var.into_iter().collect();
        blocks.iter().for_each(|b| self.defined(b, &mut defined));
        // A region whose offset depends on the round is different memory in the next round.
        let keep = |state: &mut State| {
            state.pending.retain(|(_, region, _)| !region.mentions(&defined));
            state.unfenced.retain(|(_, pe, _)| !defined.contains(pe));
        };
        let before = state.clone();
        let mut out = Vec::new();
        for _ in 0..2 {
            let start = state.clone();
            self.around.push(EnclosingLoop::default());
            blocks.iter().for_each(|b| self.block(b, state));
            let around = self.around.pop().unwrap_or_default();
            out.extend(around.out);
            for other in around.next {
                *state = meeting(&start, state.clone(), other);
            }
            keep(state);
            // A body that always jumps has at most one round, and the loop can have none.
            if state.gone {
                break;
            }
        }
        state.gone |= !ends;
        if state.gone && ends {
            *state = before.clone();
        }
        for mut other in out {
            keep(&mut other);
            *state = meeting(&before, state.clone(), other);
        }
    }

    /// Collects the values that each round computes anew.
    fn defined(&self, block: &Block, out: &mut HashSet<Value>) {
        for &v in &block.0 {
            let Some(inst) = self.k.insts.get(v) else { continue };
            if !is_fixed(&inst.op) {
                out.insert(v);
            }
            if let Some(Control::For { var, .. }) = inst.op.control() {
                out.insert(var.0);
            }
            inst.op.blocks().iter().for_each(|b| self.defined(b, out));
        }
    }

    fn step(&mut self, v: Value, op: &Op, state: &mut State) {
        // A wait reads its variable until it has changed, which is not a use of the data.
        let waits = matches!(
            op.remote(),
            Some(Remote::SignalWait { .. } | Remote::SignalFetch { .. } | Remote::Wait { .. })
        );
        for (places, write) in [(op.reads(), false), (op.writes(), true)] {
            for place in places.into_iter().filter(|p| !p.remote) {
                if !waits && let Some(region) = here(self.k, place.value) {
                    self.access(v, &region, write, state);
                }
            }
        }
        if let Some(op) = op.remote() {
            self.remote(v, op, state);
        }
    }

    fn remote(&mut self, v: Value, op: &Remote, state: &mut State) {
        match op {
            Remote::Quiet {} | Remote::TeamSync { barrier: true, .. } => *state = State::default(),
            Remote::RmaFence {} => state.unfenced.clear(),
            Remote::Put { src, pe, team, nbi, .. } => {
                state.unfenced.push((v, *pe, *team));
                self.begin(v, *src, false, *nbi, state);
            }
            Remote::PutSignal { src, nbi, .. } => self.begin(v, *src, false, *nbi, state),
            Remote::Get { dst, nbi, .. } => self.begin(v, *dst, true, *nbi, state),
            Remote::SignalOp { pe, team, .. } => self.signal(v, *pe, *team, state),
            Remote::PutValue { dst: flag, pe, team, .. } | Remote::Amo { target: flag, pe, team, .. } => {
                let waited = |(flag, _): (Region, bool)| self.waited.iter().any(|r| self.meet(r, &flag));
                if viewed_region(self.k, *flag).is_some_and(waited) {
                    self.signal(v, *pe, *team, state);
                } else if matches!(op, Remote::PutValue { .. }) {
                    state.unfenced.push((v, *pe, *team));
                }
            }
            Remote::GetValue { .. }
            | Remote::SignalWait { .. }
            | Remote::SignalFetch { .. }
            | Remote::Wait { .. }
            | Remote::TeamSync { .. }
            | Remote::TeamReduce { .. }
            | Remote::TeamMove { .. }
            | Remote::TranslatePe { .. } => {}
        }
    }

    /// Whether two regions provably have an element in common, at least for some thread.
    fn meet(&self, a: &Region, b: &Region) -> bool {
        if a.param != b.param || a.meets(b) {
            return a.param == b.param;
        }
        let whole = |r: &Region| {
            let ty = self.k.head.params.get(r.param as usize).and_then(|p| p.ty.tensor());
            r.offset.is(0) && ty.is_some_and(|t| t.layout == r.layout)
        };
        // Bounds keep every part within its tensor.
        whole(a) || whole(b) || self.same_for_a_thread(a, b) || self.same_for_a_thread(b, a)
    }

    /// Whether for some thread `b` begins within `a`.
    fn same_for_a_thread(&self, a: &Region, b: &Region) -> bool {
        let distance = &b.offset - &a.offset;
        let Some(size) = a.layout.size().as_const().filter(|_| remote::is_contiguous(&a.layout)) else {
            return false;
        };
        let threads = self.cta.map(i64::from).iter().product::<i64>();
        threads <= 1024
            && (0..threads).any(|t| {
                uniform::at_thread(self.k, self.cta, &distance, t).is_some_and(|d| (0..size).contains(&d))
            })
    }

    /// Records that an operation reads or writes `place`, until a quiet if it is non-blocking.
    fn begin(&mut self, v: Value, place: Value, written: bool, nbi: bool, state: &mut State) {
        if nbi && let Some(region) = here(self.k, place) {
            state.pending.push((v, region, written));
        }
    }

    fn access(&mut self, v: Value, region: &Region, write: bool, state: &State) {
        for (at, pending, written) in &state.pending {
            // A source can be read again.
            if !(write || *written) || !self.meet(pending, region) || !self.reported.insert((v, *at)) {
                continue;
            }
            let name = self.k.op(*at).name();
            let tensor = self.k.head.params.get(region.param as usize).map_or("", |p| &p.name);
            let verb = if write { "written" } else { "read" };
            let (message, label, why): (_, String, _) = if *written {
                (
                    format!("`{tensor}` is {verb} before the data of `{name}` has arrived"),
                    format!("{verb} here"),
                    "this operation can write it at any time until `quiet`",
                )
            } else {
                (
                    format!("`{tensor}` is written while `{name}` may still read it"),
                    "written here".into(),
                    "this operation can read it at any time until `quiet`",
                )
            };
            self.found.push(
                Diagnostic::error(BEFORE_QUIET, self.span(v), message)
                    .label(label)
                    .related(self.span(*at), why)
                    .help(
                        "write `quiet()` between them, followed by `sync_threads()` if another thread \
                         uses the data",
                    ),
            );
        }
    }

    /// Checks a separate signal: earlier puts to the same PE must be ordered before it.
    fn signal(&mut self, v: Value, pe: Value, team: TeamRef, state: &State) {
        for (at, to, of) in &state.unfenced {
            let same = *of == team
                && (*to == pe || number(self.k, *to).is_some_and(|n| Some(n) == number(self.k, pe)));
            if !same || !self.reported.insert((v, *at)) {
                continue;
            }
            let name = self.k.op(v).name();
            self.found.push(
                Diagnostic::error(
                    UNORDERED_SIGNAL,
                    self.span(v),
                    format!("`{name}` may arrive before the data of the put that it announces"),
                )
                .related(self.span(*at), "the data of this put may arrive later")
                .help("write `rma_fence()` between them, or use `put_signal`, which keeps the order"),
            );
        }
    }

    fn span(&self, v: Value) -> Span {
        self.k.insts.get(v).map_or(Span::NONE, |i| i.span)
    }
}

/// The open operations where two branches that separate after `before` meet again.
fn meeting(before: &State, a: State, b: State) -> State {
    match (a.gone, b.gone) {
        (true, _) => b,
        (_, true) => a,
        (false, false) => State {
            pending: join(&before.pending, a.pending, b.pending, |p| p.0),
            unfenced: join(&before.unfenced, a.unfenced, b.unfenced, |p| p.0),
            gone: false,
        },
    }
}

/// The open operations after one of two branches. An operation that was open before is open if it
/// is in both, because a completion in one branch counts for both. An operation that either branch
/// began is open.
fn join<T>(before: &[T], mut a: Vec<T>, b: Vec<T>, at: impl Fn(&T) -> Value) -> Vec<T> {
    let has = |list: &[T], x: &T| list.iter().any(|y| at(y) == at(x));
    a.retain(|x| !has(before, x) || has(&b, x));
    a.extend(b.into_iter().filter(|x| !has(before, x)));
    a
}
