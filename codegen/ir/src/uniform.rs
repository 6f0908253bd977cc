//! Which values differ between the threads of a CTA, and which code runs under such a condition.
//!
//! A load is taken to be as uniform as its address: threads that read one place read one value.

use crate::arena::Handle;
use crate::kernel::{Block, Kernel, Value};
use crate::names::{BinOp, CmpOp, Dim, Group, ShuffleMode, Sreg};
use crate::op::{Constant, Op};
use crate::remote;
use weft_layout::{Int, Node};

/// How far a value may differ. Ordered: the join of two is the greater.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Varies {
    /// The same in all threads of a CTA.
    No,
    /// The same in all lanes of a warp.
    ByWarp,
    /// May differ from lane to lane.
    ByThread,
}

/// The result of [`analyze`].
#[derive(Clone, Debug)]
pub struct Uniformity {
    values: Vec<Varies>,
    locals: Vec<Varies>,
    control: Vec<(Varies, Option<Value>)>,
}

impl Uniformity {
    /// How a value varies.
    pub fn value(&self, v: Value) -> Varies {
        self.values.get(v.index()).copied().unwrap_or(Varies::No)
    }

    /// How the decision to run an instruction varies, and the innermost condition that makes it so.
    pub fn control(&self, v: Value) -> (Varies, Option<Value>) {
        self.control.get(v.index()).copied().unwrap_or((Varies::No, None))
    }
}

/// Finds how every value of a kernel varies. Linear in its size, times the few rounds that locals need.
pub fn analyze(k: &Kernel) -> Uniformity {
    let u = Uniformity {
        values: vec![Varies::No; k.insts.len()],
        locals: vec![Varies::No; k.locals.len()],
        control: vec![(Varies::No, None); k.insts.len()],
    };
    let mut a = Analysis { k, u, changed: true };
    // Values only grow, and there are two steps to grow: this ends.
    while std::mem::take(&mut a.changed) {
        a.block(&k.body, (Varies::No, None));
    }
    a.u
}

struct Analysis<'k> {
    k: &'k Kernel,
    u: Uniformity,
    changed: bool,
}

impl Analysis<'_> {
    fn block(&mut self, block: &Block, control: (Varies, Option<Value>)) {
        for &v in &block.0 {
            if self.k.insts.get(v).is_some() {
                self.u.control[v.index()] = control;
                self.inst(v, control);
            }
        }
    }

    fn inst(&mut self, v: Value, control: (Varies, Option<Value>)) {
        let op = self.k.op(v);
        let under = |cond: Varies, at: Value| {
            if cond > control.0 { (cond, Some(at)) } else { control }
        };
        let varies = match op {
            Op::If { cond, then, otherwise } => {
                let inner = under(self.u.value(*cond), v);
                self.block(then, inner);
                self.block(otherwise, inner);
                Varies::No
            }
            Op::For { var, lo, hi, step, body, .. } => {
                let start = self.u.value(*lo).max(self.u.value(*step));
                self.raise(var.0, start);
                self.block(body, under(start.max(self.u.value(*hi)), v));
                Varies::No
            }
            Op::While { head, cond, body } => {
                let inner = under(self.u.value(*cond), v);
                self.block(head, inner);
                self.block(body, inner);
                Varies::No
            }
            Op::LocalSet { local, value } => {
                let new = self.u.value(*value).max(control.0);
                if let Some(old) = self.u.locals.get_mut(local.index()) {
                    self.changed |= new > *old;
                    *old = new.max(*old);
                }
                Varies::No
            }
            Op::LocalGet { local } => self.u.locals.get(local.index()).copied().unwrap_or(Varies::No),
            Op::Special { reg, dim } => self.special(*reg, *dim),
            Op::Reduce { group: Group::Block, .. } => Varies::No,
            Op::Reduce { group: Group::Warp, .. } => Varies::ByWarp,
            // Each thread asks for itself, and memory changes in between.
            op if remote::name(op).is_some() && !op.is_pure() => Varies::ByThread,
            Op::Shuffle { mode: ShuffleMode::Idx, lane, .. } if self.u.value(*lane) < Varies::ByThread => {
                Varies::ByWarp
            }
            Op::Call { function, args } if remote::is_query(function) => {
                args.iter().map(|a| self.u.value(*a)).max().unwrap_or(Varies::No)
            }
            Op::Atomic { .. } | Op::AtomicCas { .. } | Op::Shuffle { .. } | Op::Call { .. } => {
                Varies::ByThread
            }
            Op::Index { expr } => self.int(expr),
            Op::Compare { op, a, b } if self.is_warps_choice(*op, *a, *b) => {
                Varies::ByWarp.min(self.u.value(*a).max(self.u.value(*b)))
            }
            Op::View { base, offset } => {
                let bounds = self.k.ty(v).tensor().into_iter().flat_map(|t| &t.bounds);
                let starts = bounds.map(|b| self.int(&b.offset)).max().unwrap_or(Varies::No);
                starts.max(self.u.value(*base)).max(self.int(offset))
            }
            Op::Binary { op: BinOp::Div, a, b } if self.is_warp_index(*a, *b, |n| n > 0 && n % 32 == 0) => {
                Varies::ByWarp
            }
            Op::Binary { op: BinOp::Shr, a, b } if self.is_warp_index(*a, *b, |n| n >= 5) => Varies::ByWarp,
            _ => {
                let mut out = Varies::No;
                op.operands(&mut |x| out = out.max(self.u.value(x)));
                out
            }
        };
        self.raise(v, varies);
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
            Sreg::ThreadIdx if self.k.block[dim as usize] == 1 => Varies::No,
            Sreg::ThreadIdx => Varies::ByThread,
            _ => Varies::No,
        }
    }

    /// `thread_idx / 32k` is the same for a whole warp, where x alone tells the warp.
    fn is_warp_index(&self, a: Value, b: Value, ok: impl Fn(i64) -> bool) -> bool {
        let whole = self.k.block[0].is_multiple_of(32) || (self.k.block[1] == 1 && self.k.block[2] == 1);
        let divisor = match self.k.op(b) {
            Op::Const { value: Constant::Int(n) } => Some(*n),
            Op::Index { expr } => expr.as_const(),
            _ => None,
        };
        whole && thread_dim(self.k, a) == Some(Dim::X) && divisor.is_some_and(ok)
    }

    fn int(&self, e: &Int) -> Varies {
        let both = |a: &Int, b: &Int| self.int(a).max(self.int(b));
        match e.node() {
            Node::Const(_) | Node::Poison(_) => Varies::No,
            Node::Var(v) => self.u.value(Value(v.id)),
            Node::Add(terms) => {
                // What depends on the thread alone is looked at together.
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

    /// Whether it depends on the thread's indices, and on nothing else.
    fn is_of_thread(&self, e: &Int) -> bool {
        let (mut some, mut all) = (false, true);
        e.vars(&mut |v| {
            some = true;
            all &= thread_dim(self.k, Value(v.id)).is_some();
        });
        some && all
    }

    /// Whether a quotient, or a sum with one, of thread indices is the same for all threads of each warp. Warps are
    /// made of threads whose linear indices follow one another.
    fn is_of_warp(&self, e: &Int) -> bool {
        if !divides(e) || !self.is_of_thread(e) {
            return false;
        }
        self.is_same_in_warps(|t| at_thread(self.k, e, t))
    }

    /// Whether the threads of each warp have one answer, and all have one.
    fn is_same_in_warps<T: PartialEq>(&self, at: impl Fn(i64) -> Option<T>) -> bool {
        let threads = i64::from(self.k.threads());
        threads <= 1024
            && (0..threads).step_by(32).all(|first| {
                let answer = at(first);
                answer.is_some() && (first + 1..threads.min(first + 32)).all(|t| at(t) == answer)
            })
    }

    /// A comparison of numbers that depend on the thread alone, such as `thread_idx() < 32`.
    fn is_warps_choice(&self, op: CmpOp, a: Value, b: Value) -> bool {
        let number = |v: Value| match self.k.op(v) {
            Op::Index { expr } => Some(expr.clone()),
            Op::Const { value: Constant::Int(n) } => Some(Int::from(*n)),
            Op::Convert { .. } | Op::Special { .. } => thread_dim(self.k, v).and(self.k.symbol(v)),
            _ => None,
        };
        let (Some(a), Some(b)) = (number(a), number(b)) else { return false };
        self.is_same_in_warps(|t| {
            let (a, b) = (at_thread(self.k, &a, t)?, at_thread(self.k, &b, t)?);
            Some(match op {
                CmpOp::Eq => a == b,
                CmpOp::Ne => a != b,
                CmpOp::Lt => a < b,
                CmpOp::Le => a <= b,
                CmpOp::Gt => a > b,
                CmpOp::Ge => a >= b,
            })
        })
    }
}

/// The dimension whose thread index a value is.
fn thread_dim(k: &Kernel, v: Value) -> Option<Dim> {
    match &k.insts.get(v)?.op {
        Op::Special { reg: Sreg::ThreadIdx, dim } => Some(*dim),
        Op::Convert { a } => thread_dim(k, *a),
        Op::Index { expr } => match expr.node() {
            Node::Var(var) if var.id != v.0 => thread_dim(k, Value(var.id)),
            _ => None,
        },
        _ => None,
    }
}

/// The lane in a warp.
fn is_lane(k: &Kernel, v: Value) -> bool {
    matches!(k.insts.get(v).map(|i| &i.op), Some(Op::Special { reg: Sreg::LaneIdx, .. }))
}

/// The number that a thread has, by its linear index, if it depends on nothing else.
pub(crate) fn at_thread(k: &Kernel, e: &Int, thread: i64) -> Option<i64> {
    let [x, y, _] = k.block.map(|n| i64::from(n.max(1)));
    let point = [thread % x, thread / x % y, thread / (x * y)];
    let known = e.subst(&mut |v| match thread_dim(k, Value(v.id)) {
        Some(dim) => Some(point[dim as usize].into()),
        None => is_lane(k, Value(v.id)).then(|| Int::from(thread % 32)),
    });
    known.as_const()
}

/// Whether there is a quotient in it.
fn divides(e: &Int) -> bool {
    match e.node() {
        Node::FloorDiv(..) => true,
        Node::Add(list) | Node::Mul(list) => list.iter().any(divides),
        _ => false,
    }
}
