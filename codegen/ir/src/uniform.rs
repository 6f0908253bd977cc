//! Determines which values differ between the threads of a CTA, and which code runs under a
//! condition that does.
//!
//! A plain load is as uniform as its address, because threads that read one address read one value.
//! A relaxed load is too, for example of a counter that only the CTA changes, unless it polls in a
//! `while` loop. The results of loads that poll and of acquires can differ from thread to thread,
//! because others can write the element between the reads. A `for` loop that a jump leaves polls
//! like a `while` loop.
//!
//! Threads that jump do not execute the code that they skip. If only some threads jump, the code
//! after the jump is as divergent as the jump up to the point where the threads meet again. For a
//! `break` this is the end of the block or loop that it leaves, and for a `continue` the end of the
//! round. After a `return` there is no such point. A loop that some threads leave before others has
//! all of its rounds under that condition.

mod numbers;

use crate::arena::Handle;
use crate::kernel::{Block, Inst, Kernel, Value};
use crate::level::Level;
use crate::names::{BinOp, Dim, Group, ShuffleMode, Sreg};
use crate::op::{Arith, Call, Constant, Control, FamilyRef, Operation, Spread, Thread, Together, Var, View};
use crate::remote;
use crate::types::ValueType;
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use weft_layout::{Int, Node};

/// The extent to which a value can differ between threads. The join of two is the greater one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Varies {
    /// The value is the same in all threads of a CTA.
    No,
    /// The value is the same in all lanes of a warp.
    ByWarp,
    /// The value can differ from lane to lane.
    ByThread,
}

/// The extent to which the decision to run code varies, and the instruction that causes it: a
/// condition, or a jump past the code.
type Cause = (Varies, Option<Value>);

/// The code that all threads run.
const BY_ALL: Cause = (Varies::No, None);

/// The result of [`analyze`].
#[derive(Clone, Debug)]
pub struct Uniformity {
    values: Vec<Varies>,
    locals: Vec<Varies>,
    control: Vec<Cause>,
    /// The role that each instruction is in, counted from 1 in the order of the text. 0 is the
    /// whole CTA.
    roles: Vec<u32>,
    /// The number of threads of each role.
    threads: Vec<u32>,
}

impl Uniformity {
    /// The way in which a value varies between threads.
    pub fn value(&self, v: Value) -> Varies {
        self.values.get(v.index()).copied().unwrap_or(Varies::No)
    }

    /// The number of threads that the code of an instruction treats as the CTA: those of its role,
    /// or all.
    pub fn threads<L: Level>(&self, k: &Kernel<L>, v: Value) -> u32 {
        let role = self.roles.get(v.index()).copied().unwrap_or(0);
        role.checked_sub(1).and_then(|i| self.threads.get(i as usize)).copied().unwrap_or(k.threads())
    }

    /// The extent to which the decision to run an instruction varies, and the innermost condition
    /// or the jump that causes it.
    pub fn control(&self, v: Value) -> (Varies, Option<Value>) {
        self.control.get(v.index()).copied().unwrap_or(BY_ALL)
    }
}

/// Determines how every value of a kernel varies. The time is linear in its size, times the few
/// rounds that local variables need.
pub fn analyze<L: Level>(k: &Kernel<L>) -> Uniformity {
    let u = Uniformity {
        values: vec![Varies::No; k.insts.len()],
        locals: vec![Varies::No; k.locals.len()],
        control: vec![BY_ALL; k.insts.len()],
        roles: vec![0; k.insts.len()],
        threads: Vec::new(),
    };
    let exits = HashMap::new();
    let mut a = Analysis {
        k,
        u,
        changed: true,
        polls: false,
        open: vec![],
        exits,
        numbers: RefCell::default(),
        cta: k.block,
        role: 0,
    };
    a.find_roles(&k.body, 0);
    // A value only moves up, by at most two steps, so the iteration ends.
    while std::mem::take(&mut a.changed) {
        a.open = vec![(None, BY_ALL)];
        a.block(&k.body, BY_ALL);
    }
    a.u
}

struct Analysis<'k, L: Level> {
    k: &'k Kernel<L>,
    u: Uniformity,
    changed: bool,
    /// Whether the code is in a loop that waits for something.
    polls: bool,
    /// The kernel and then the surrounding loops and `once`, each with the jumps to its end so far.
    open: Vec<(Option<Value>, Cause)>,
    /// The loops that jumps leave, with the variation of these jumps.
    exits: HashMap<Value, Cause>,
    /// For values that depend on the thread alone, the numbers of all threads.
    numbers: RefCell<HashMap<Value, Option<Rc<Vec<i64>>>>>,
    /// The extents of the CTA, or of the role that the current code belongs to.
    cta: [u32; 3],
    /// The role that the current code belongs to, or 0.
    role: u32,
}

/// Roles. Within a role, statements about the CTA apply to the role.
impl<L: Level> Analysis<'_, L> {
    /// Records the role of each instruction of a block.
    fn find_roles(&mut self, block: &Block, role: u32) {
        for &v in &block.0 {
            if let Some(slot) = self.u.roles.get_mut(v.index()) {
                *slot = role;
            }
            let k = self.k;
            let Some(inst) = k.insts.get(v) else { continue };
            let inner = match inst.op.control() {
                Some(Control::Role { threads, .. }) => {
                    self.u.threads.push(*threads);
                    u32::try_from(self.u.threads.len()).unwrap_or(u32::MAX)
                }
                _ => role,
            };
            inst.op.blocks().into_iter().for_each(|b| self.find_roles(b, inner));
        }
    }

    /// Analyses the code of a role, whose begin all of its threads reach.
    fn role(&mut self, threads: u32, body: &Block) {
        let role = body.0.first().and_then(|v| self.u.roles.get(v.index())).copied().unwrap_or(0);
        let outside = (self.cta, self.role);
        (self.cta, self.role) = ([threads, 1, 1], role);
        let open = std::mem::replace(&mut self.open, vec![(None, BY_ALL)]);
        self.block(body, BY_ALL);
        self.open = open;
        (self.cta, self.role) = outside;
    }

    /// Whether a value belongs to the current code. The thread index of another role, or of the
    /// whole CTA, is a different value.
    fn is_own(&self, v: Value) -> bool {
        self.u.roles.get(v.index()).copied().unwrap_or(0) == self.role
    }

    fn threads(&self) -> u32 {
        self.cta.iter().map(|n| n.max(&1)).product()
    }

    fn thread_dim(&self, v: Value) -> Option<Dim> {
        thread_dim(self.k, v).filter(|_| self.is_own(v))
    }

    fn at_thread(&self, e: &Int, thread: i64) -> Option<i64> {
        let mut own = true;
        e.vars(&mut |v| own &= self.is_own(Value(v.id)));
        if own { at_thread(self.k, self.cta, e, thread) } else { None }
    }
}

impl<L: Level> Analysis<'_, L> {
    fn block(&mut self, block: &Block, control: Cause) {
        for &v in &block.0 {
            if self.k.insts.get(v).is_some() {
                let control = self.open.iter().fold(control, |all, (_, left)| joined(all, *left));
                // If a jump makes its own loop diverge, the original cause of the jump is kept.
                if control.1 != Some(v) {
                    self.u.control[v.index()] = control;
                }
                self.inst(v, control);
            }
        }
    }

    fn inst(&mut self, v: Value, control: Cause) {
        let k = self.k;
        let inst = &k.insts[v];
        let varies = match (inst.op.spread(), inst.op.family()) {
            (Spread::Same, _) => Varies::No,
            (Spread::Threads, _) => Varies::ByThread,
            (_, FamilyRef::Control(op)) => self.control(v, op, control),
            (_, FamilyRef::Var(op)) => self.var(inst, op, control),
            (Spread::Operands, _) => self.operands(inst),
            (Spread::Rule, FamilyRef::Arith(op)) => self.arith(v, inst, op),
            (Spread::Rule, FamilyRef::Thread(op)) => self.thread(inst, op),
            (Spread::Rule, FamilyRef::View(op)) => self.view(inst, op),
            (Spread::Rule, FamilyRef::Together(op)) => self.together(inst, op),
            (Spread::Rule, FamilyRef::Call(Call::Function { function, .. })) => {
                if remote::is_query(function) { self.operands(inst) } else { Varies::ByThread }
            }
            (Spread::Rule, FamilyRef::Access(_) | FamilyRef::Memory(_)) if self.polls => Varies::ByThread,
            (Spread::Rule, FamilyRef::Access(_) | FamilyRef::Memory(_)) => self.operands(inst),
            (
                Spread::Rule,
                FamilyRef::Debug(_)
                | FamilyRef::Team(_)
                | FamilyRef::Tile(_)
                | FamilyRef::Async(_)
                | FamilyRef::Remote(_)
                | FamilyRef::Bridge(_)
                | FamilyRef::Address(_),
            ) => Varies::ByThread,
        };
        self.raise(v, varies);
    }

    /// The join of the values among the op's fields.
    fn operands(&self, inst: &Inst<L>) -> Varies {
        let mut out = Varies::No;
        inst.op.operands(&mut |x| out = out.max(self.u.value(x)));
        out
    }

    fn control(&mut self, v: Value, op: &Control, control: Cause) -> Varies {
        let under = |cond: Varies| joined(control, (cond, Some(v)));
        match op {
            Control::If { cond, then, otherwise } => {
                let inner = under(self.u.value(*cond));
                self.block(then, inner);
                self.block(otherwise, inner);
            }
            Control::For { var, lo, hi, step, body, .. } => {
                let start = self.u.value(*lo).max(self.u.value(*step));
                self.raise(var.0, start);
                let inner = under(start.max(self.u.value(*hi)));
                let polls = self.exits.contains_key(&v);
                self.rounds(v, &[body], inner, polls);
            }
            Control::While { head, cond, body } => {
                let inner = under(self.u.value(*cond));
                self.rounds(v, &[head, body], inner, true);
            }
            Control::Once { body } => {
                self.open.push((None, BY_ALL));
                self.block(body, control);
                self.open.pop();
            }
            Control::Role { threads, body, .. } => self.role(*threads, body),
            Control::Break { depth } => self.jump(v, self.around(*depth), false, control),
            Control::Continue { depth } => self.jump(v, self.around(*depth), true, control),
            Control::Return {} => self.jump(v, 0, false, control),
        }
        Varies::No
    }

    /// Analyses the blocks of a loop.
    fn rounds(&mut self, v: Value, blocks: &[&Block], control: Cause, polls: bool) {
        let outside = self.polls;
        self.polls |= polls;
        self.open.push((Some(v), self.exits.get(&v).copied().unwrap_or(BY_ALL)));
        blocks.iter().for_each(|b| self.block(b, control));
        self.open.pop();
        self.polls = outside;
    }

    /// The index in `open` of the target of a jump.
    fn around(&self, depth: u32) -> usize {
        self.open.len().saturating_sub(1 + depth as usize)
    }

    /// Records a jump to the end of the open item `to`, or of its round.
    fn jump(&mut self, v: Value, to: usize, again: bool, control: Cause) {
        let cause = if control.0 == Varies::No { BY_ALL } else { (control.0, Some(v)) };
        if let Some((_, left)) = self.open.get_mut(to) {
            *left = joined(*left, cause);
        }
        for (inst, _) in self.open.iter().skip(to + usize::from(again)) {
            let Some(inst) = inst else { continue };
            let before = self.exits.get(inst).copied();
            let after = joined(before.unwrap_or(BY_ALL), cause);
            if before != Some(after) {
                self.exits.insert(*inst, after);
                self.changed = true;
            }
        }
    }

    fn var(&mut self, inst: &Inst<L>, op: &Var, control: Cause) -> Varies {
        match op {
            Var::LocalSet { local, value } => {
                let new = self.u.value(*value).max(control.0);
                if let Some(old) = self.u.locals.get_mut(local.index()) {
                    self.changed |= new > *old;
                    *old = new.max(*old);
                }
                Varies::No
            }
            Var::LocalGet { local } => self.u.locals.get(local.index()).copied().unwrap_or(Varies::No),
            Var::Param { .. } | Var::LoopVar { .. } => self.operands(inst),
        }
    }

    fn thread(&self, inst: &Inst<L>, op: &Thread) -> Varies {
        match op {
            Thread::Special { reg, dim } => self.special(*reg, *dim),
            Thread::Shuffle { mode: ShuffleMode::Idx, lane, .. }
                if self.u.value(*lane) < Varies::ByThread =>
            {
                Varies::ByWarp
            }
            Thread::Vote { .. } => Varies::ByWarp,
            Thread::Shuffle { .. } | Thread::Clock {} | Thread::GlobalTime {} => Varies::ByThread,
            Thread::Fence { .. }
            | Thread::AsyncFence {}
            | Thread::GroupBarrier { .. }
            | Thread::ClusterArrive {}
            | Thread::ClusterWait {}
            | Thread::LaunchDependents {}
            | Thread::WaitDependencies {} => self.operands(inst),
        }
    }

    fn view(&self, inst: &Inst<L>, op: &View) -> Varies {
        match op {
            View::Index { expr } => self.int(expr),
            View::Part { base, offset } | View::Distributed { base, offset, .. } => {
                let bounds = inst.ty.tensor().into_iter().flat_map(|t| &t.bounds);
                let starts = bounds.map(|b| self.int(&b.offset)).max().unwrap_or(Varies::No);
                starts.max(self.u.value(*base)).max(self.int(offset))
            }
            View::Multicast { .. } | View::Peer { .. } | View::InCta { .. } | View::Shared { .. } => {
                self.operands(inst)
            }
        }
    }

    fn together(&self, inst: &Inst<L>, op: &Together) -> Varies {
        match op {
            Together::Reduce { group: Group::Block | Group::Cluster, .. } => Varies::No,
            Together::Reduce { group: Group::Warp, .. } => Varies::ByWarp,
            Together::Reduce { group: Group::Thread, .. } | Together::Converge { .. } => self.operands(inst),
        }
    }

    /// A value computed from the thread index alone is uniform in a warp if it is equal for all 32
    /// threads of each warp.
    fn arith(&self, v: Value, inst: &Inst<L>, op: &Arith) -> Varies {
        let operands = self.operands(inst);
        let by_warp = operands == Varies::ByThread
            && match op {
                Arith::Compare { op, a, b } => self.is_warps_choice(*op, *a, *b),
                Arith::Binary { op: BinOp::Div, a, b } => {
                    self.is_warp_index(*a, *b, |n| n > 0 && n % 32 == 0) || self.is_warps_number(v)
                }
                Arith::Binary { op: BinOp::Shr, a, b } => {
                    self.is_warp_index(*a, *b, |n| n >= 5) || self.is_warps_number(v)
                }
                Arith::Binary { .. } => self.is_warps_number(v),
                Arith::Const { .. }
                | Arith::Unary { .. }
                | Arith::Fma { .. }
                | Arith::Select { .. }
                | Arith::Convert { .. }
                | Arith::Bitcast { .. }
                | Arith::Splat { .. }
                | Arith::Concat { .. }
                | Arith::Slice { .. }
                | Arith::Extract { .. }
                | Arith::Insert { .. } => false,
            };
        if by_warp { Varies::ByWarp } else { operands }
    }

    fn raise(&mut self, v: Value, to: Varies) {
        if let Some(old) = self.u.values.get_mut(v.index()) {
            self.changed |= to > *old;
            *old = to.max(*old);
        }
    }

    fn special(&self, reg: Sreg, dim: Dim) -> Varies {
        match reg {
            Sreg::LaneIdx => Varies::ByThread,
            Sreg::ThreadIdx if self.cta[dim as usize] == 1 => Varies::No,
            Sreg::ThreadIdx => Varies::ByThread,
            Sreg::BlockIdx | Sreg::BlockDim | Sreg::GridDim | Sreg::ClusterRank => Varies::No,
        }
    }

    /// Whether `thread_idx / 32k` is uniform in a warp, because x alone determines the warp.
    fn is_warp_index(&self, a: Value, b: Value, ok: impl Fn(i64) -> bool) -> bool {
        let whole = self.cta[0].is_multiple_of(32) || (self.cta[1] == 1 && self.cta[2] == 1);
        let op = self.k.op(b);
        let divisor = if let Some(Arith::Const { value: Constant::Int(n) }) = op.arith() {
            Some(*n)
        } else if let Some(View::Index { expr }) = op.view() {
            expr.as_const()
        } else {
            None
        };
        whole && self.thread_dim(a) == Some(Dim::X) && divisor.is_some_and(ok)
    }

    fn int(&self, e: &Int) -> Varies {
        let both = |a: &Int, b: &Int| self.int(a).max(self.int(b));
        match e.node() {
            Node::Const(_) | Node::Poison(_) => Varies::No,
            Node::Var(v) => self.u.value(Value(v.id)),
            Node::Add(terms) => {
                // The terms that depend on the thread alone are considered together.
                let (own, rest): (Vec<&Int>, Vec<&Int>) = terms.iter().partition(|n| self.is_of_thread(n));
                let own = own.into_iter().fold(Int::ZERO, |sum, n| sum + n);
                let rest = rest.into_iter().map(|n| self.int(n)).max().unwrap_or(Varies::No);
                rest.max(if self.is_of_warp(&own) { Varies::ByWarp } else { self.vars(&own) })
            }
            Node::FloorDiv(..) if self.is_of_warp(e) => Varies::ByWarp,
            Node::Mul(_) if self.is_of_warp(e) => Varies::ByWarp,
            Node::Mul(factors) => factors.iter().map(|n| self.int(n)).max().unwrap_or(Varies::No),
            Node::FloorDiv(a, b) | Node::CeilDiv(a, b) | Node::Rem(a, b) => both(a, b),
            Node::Min(a, b) | Node::Max(a, b) | Node::And(a, b) | Node::Xor(a, b) => both(a, b),
        }
    }

    fn vars(&self, e: &Int) -> Varies {
        let mut out = Varies::No;
        e.vars(&mut |v| out = out.max(self.u.value(Value(v.id))));
        out
    }

    /// Whether the expression depends only on the thread's indices.
    fn is_of_thread(&self, e: &Int) -> bool {
        let (mut some, mut all) = (false, true);
        e.vars(&mut |v| {
            some = true;
            all &= self.thread_dim(Value(v.id)).is_some();
        });
        some && all
    }

    /// Whether a quotient of thread indices, or a sum with one, is the same for all threads of each
    /// warp. A warp consists of threads with consecutive linear indices.
    fn is_of_warp(&self, e: &Int) -> bool {
        if !divides(e) || !self.is_of_thread(e) {
            return false;
        }
        self.is_same_in_warps(|t| self.at_thread(e, t))
    }

    /// Whether all threads have a result, and those of each warp have the same one.
    fn is_same_in_warps<T: PartialEq>(&self, at: impl Fn(i64) -> Option<T>) -> bool {
        let threads = i64::from(self.threads());
        threads <= 1024
            && (0..threads).step_by(32).all(|first| {
                let answer = at(first);
                answer.is_some() && (first + 1..threads.min(first + 32)).all(|t| at(t) == answer)
            })
    }
}

/// The cause that varies more, or `a` if both vary equally.
fn joined(a: Cause, b: Cause) -> Cause {
    if b.0 > a.0 { b } else { a }
}

/// The dimension of the thread index that a value reads.
fn thread_dim<L: Level>(k: &Kernel<L>, v: Value) -> Option<Dim> {
    let op = &k.insts.get(v)?.op;
    if let Some(Thread::Special { reg: Sreg::ThreadIdx, dim }) = op.thread() {
        return Some(*dim);
    }
    if let Some(Arith::Convert { a }) = op.arith() {
        return thread_dim(k, *a);
    }
    let Some(View::Index { expr }) = op.view() else { return None };
    match expr.node() {
        Node::Var(var) if var.id != v.0 => thread_dim(k, Value(var.id)),
        _ => None,
    }
}

/// Whether a value is the lane index in a warp.
fn is_lane<L: Level>(k: &Kernel<L>, v: Value) -> bool {
    let op = k.insts.get(v).and_then(|i| i.op.thread());
    matches!(op, Some(Thread::Special { reg: Sreg::LaneIdx, .. }))
}

/// The coordinates in the CTA of the thread with a linear index.
fn point(cta: [u32; 3], thread: i64) -> [i64; 3] {
    let [x, y, _] = cta.map(|n| i64::from(n.max(1)));
    [thread % x, thread / x % y, thread / (x * y)]
}

/// The number that a thread has by its linear index, if the expression depends on nothing else.
pub(crate) fn at_thread<L: Level>(k: &Kernel<L>, cta: [u32; 3], e: &Int, thread: i64) -> Option<i64> {
    let point = point(cta, thread);
    let known = e.subst(&mut |v| match thread_dim(k, Value(v.id)) {
        Some(dim) => Some(point[dim as usize].into()),
        None => is_lane(k, Value(v.id)).then(|| Int::from(thread % 32)),
    });
    known.as_const()
}

/// Whether the expression contains a quotient.
fn divides(e: &Int) -> bool {
    match e.node() {
        Node::FloorDiv(..) => true,
        Node::Add(list) | Node::Mul(list) => list.iter().any(divides),
        _ => false,
    }
}
