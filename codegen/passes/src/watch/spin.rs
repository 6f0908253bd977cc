//! Finds the loops that wait, the memory that they read, and the values that they compare it with.

use rustc_hash::FxHashSet;
use weft_abi::watch::Watched;
use weft_ir::mixed::{Inst, Kernel, Op, Type};
use weft_ir::{
    Address, Arith, Async, BinOp, Block, Bridge, Call, CmpOp, Constant, Control, LocalId, Memory, Operation,
    RedOp, Sem, Space, Thread, UnOp, Value, ValueType, Var,
};

/// An access by which a loop polls memory.
pub(super) struct PollingAccess {
    /// The address that is read.
    pub ptr: Value,
    /// The number of elements.
    pub lanes: u32,
    /// The size of an element in bytes.
    pub bytes: u32,
}

/// A loop that waits for memory to change.
pub(super) struct Spin {
    /// The memory that the loop polls.
    pub on: Watched,
    /// The polling accesses, each with an address that is known in the body. There is one, or
    /// several whose concatenated elements are the value that is seen. It is empty if the code
    /// cannot determine them.
    pub looks: Vec<PollingAccess>,
    /// The value that the loop has read.
    pub seen: Option<Value>,
    /// The value with which the loop compares it.
    pub expected: Option<Value>,
    /// The comparison of both that ends the wait.
    pub until: Option<CmpOp>,
    /// The result of a comparison of several elements, and whether a true result marks an element
    /// that is still awaited.
    pub open: Option<(Value, bool)>,
    /// What the lanes of a warp vote on, and whether the wait goes on in all of them while it is
    /// true in one. A wait of single threads has none.
    pub vote: Option<(Value, bool)>,
    /// Whether the body ends with a jump.
    pub jumps: bool,
}

impl Spin {
    /// Analyses the loop `v`. The result is `None` unless the loop only polls memory that others
    /// write.
    pub fn of(k: &Kernel, v: Value) -> Option<Spin> {
        let Some(Control::While { head, cond, body }) = k.op(v).control() else { return None };
        let mut all = Vec::new();
        [head, body].into_iter().for_each(|block| collect(k, block, &mut all));
        let mut looks = false;
        for (_, inst) in &all {
            match effect(inst) {
                Effect::None => {}
                Effect::Looks => looks = true,
                Effect::Other => return None,
            }
        }
        if !looks {
            return None;
        }
        let jumps = body.0.last().is_some_and(|v| k.op(*v).control().is_some_and(Control::is_jump));
        let mut top: Vec<Value> = head.0.clone();
        if !jumps {
            top.extend(&body.0);
        }
        let mut spin = Spin {
            on: Watched::Memory,
            looks: Vec::new(),
            seen: None,
            expected: None,
            until: None,
            open: None,
            vote: voted(k, &top, *cond),
            jumps,
        };
        spin.find_place(k, &all, &top);
        spin.find_values(k, (&all, &top), *cond);
        spin.keep_fitting_looks(k);
        Some(spin)
    }

    /// Finds the memory of the first polling op.
    fn find_place(&mut self, k: &Kernel, all: &[(Value, &Inst)], top: &[Value]) {
        let Some((v, inst)) = all.iter().find(|(_, inst)| effect(inst) == Effect::Looks) else { return };
        let ptr = match &inst.op {
            Op::Async(_) => {
                self.on = Watched::Stage;
                return;
            }
            Op::Call(_) => {
                self.on = Watched::Variable;
                None
            }
            Op::Memory(Memory::Load { ptr, .. } | Memory::AtomicCas { ptr, .. }) => Some(*ptr),
            _ => None,
        };
        let Some(ptr) = ptr else { return };
        if let Some(name) = origin(k, ptr) {
            self.on = Watched::Parameter(name);
        }
        let global = |ptr| matches!(k.ty(ptr), Type::Pointer(space) if !matches!(space, Space::Shared | Space::Cluster));
        let look = |(v, inst): &(Value, &Inst)| match &inst.op {
            Op::Memory(Memory::Load { ptr, .. } | Memory::AtomicCas { ptr, .. })
                if effect(inst) == Effect::Looks && global(*ptr) && top.contains(v) =>
            {
                let ty = k.ty(*v);
                Some(PollingAccess {
                    ptr: *ptr,
                    lanes: ty.lanes().unwrap_or(1),
                    bytes: ty.elem().map_or(1, |s| s.bytes()),
                })
            }
            _ => None,
        };
        if global(ptr) && top.contains(v) {
            self.looks = all.iter().filter_map(look).collect();
        }
    }

    /// Keeps the accesses whose elements are those of the comparison, or otherwise the first one.
    fn keep_fitting_looks(&mut self, k: &Kernel) {
        let compared = self.open.and_then(|(v, _)| k.ty(v).lanes()).unwrap_or(1);
        if compared == 1 || self.looks.iter().map(|look| look.lanes).sum::<u32>() != compared {
            self.looks.truncate(1);
        }
    }

    /// Finds the first comparison, difference or exclusive or of a value that changes during the
    /// loop with one that does not.
    fn find_values(&mut self, k: &Kernel, (all, top): (&[(Value, &Inst)], &[Value]), cond: Value) {
        if self.on == Watched::Variable {
            // The function's result does not give the value of the variable.
            return;
        }
        let seen = PolledValues::new(all);
        for &v in top {
            let (op, a, b) = match k.op(v).arith() {
                Some(Arith::Compare { op, a, b }) => (Some(*op), *a, *b),
                Some(Arith::Binary { op: BinOp::Sub | BinOp::Xor, a, b }) if !literal(k, *a, *b) => {
                    (None, *a, *b)
                }
                _ => continue,
            };
            let swapped = match (seen.values.contains(&a), seen.values.contains(&b)) {
                (true, false) => false,
                (false, true) => true,
                _ => continue,
            };
            (self.seen, self.expected) = if swapped { (Some(b), Some(a)) } else { (Some(a), Some(b)) };
            let sense = Sense { k, of: v };
            let goes_on = match (op, k.op(v).arith()) {
                (Some(op), _) => sense.of(cond, true).map(|same| if same { op } else { not(op) }),
                (None, Some(Arith::Binary { op: BinOp::Sub, .. })) => sense.difference(cond),
                _ => None,
            };
            self.until = goes_on.map(|op| if swapped { mirrored(not(op)) } else { not(op) });
            let many = op.filter(|_| k.ty(v).lanes().is_some_and(|n| n > 1));
            self.open = many.zip(goes_on).map(|(op, goes_on)| (v, op == goes_on));
            return;
        }
        let parity = all.iter().find_map(|(_, inst)| match &inst.op {
            Op::Async(Async::MbarTest { parity, .. }) => Some(*parity),
            _ => None,
        });
        let looked = || all.iter().find(|(v, inst)| effect(inst) == Effect::Looks && top.contains(v));
        match parity {
            Some(parity) => {
                self.expected = Some(parity).filter(|p| !all.iter().any(|(v, _)| v == p) || top.contains(p))
            }
            None => self.seen = looked().map(|(v, _)| *v),
        }
    }
}

/// The condition on which the lanes of a warp vote in `top`, if the loop's condition follows from it,
/// and whether the loop goes on while it is true in one of the lanes.
fn voted(k: &Kernel, top: &[Value], cond: Value) -> Option<(Value, bool)> {
    top.iter().find_map(|&v| match k.op(v) {
        Op::Thread(Thread::Vote { op, cond: own }) => {
            let same = Sense { k, of: v }.of(cond, true)?;
            // All lanes wait for one only if they go on with `any`, or until `all`.
            (same == (*op == RedOp::Or)).then_some((*own, same))
        }
        _ => None,
    })
}

/// Collects all ops of a block and of its nested blocks, in the order of the code.
fn collect<'k>(k: &'k Kernel, block: &Block, all: &mut Vec<(Value, &'k Inst)>) {
    for &v in &block.0 {
        let Some(inst) = k.insts.get(v) else { continue };
        all.push((v, inst));
        inst.op.blocks().into_iter().for_each(|inner| collect(k, inner, all));
    }
}

/// The effect of an op on the question whether a loop waits.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Effect {
    /// The op can be part of a loop that waits.
    None,
    /// The op polls memory that others write.
    Looks,
    /// The op makes the loop more than a wait.
    Other,
}

fn effect(inst: &Inst) -> Effect {
    let looks = |looks| if looks { Effect::Looks } else { Effect::None };
    match &inst.op {
        op if op.is_pure() => Effect::None,
        Op::Memory(Memory::Load { sem, .. }) => looks(*sem != Sem::Weak),
        Op::Memory(Memory::AtomicCas { .. }) | Op::Async(Async::MbarTest { .. }) => Effect::Looks,
        Op::Call(Call::Function { function, .. }) if function.contains("_test") => Effect::Looks,
        Op::Thread(
            Thread::Fence { .. }
            | Thread::Clock {}
            | Thread::GlobalTime {}
            | Thread::Shuffle { .. }
            | Thread::Vote { .. },
        ) => Effect::None,
        Op::Control(Control::Role { .. }) => Effect::Other,
        Op::Var(_) | Op::Control(_) | Op::Debug(_) => Effect::None,
        _ => Effect::Other,
    }
}

/// The values that depend on the polling accesses of a loop.
#[derive(Default)]
struct PolledValues {
    values: FxHashSet<Value>,
    locals: FxHashSet<LocalId>,
}

impl PolledValues {
    fn new(all: &[(Value, &Inst)]) -> PolledValues {
        let mut seen = PolledValues::default();
        // A round reads the variables that the previous round has set.
        for _ in 0..2 {
            for (v, inst) in all {
                let mut found = effect(inst) == Effect::Looks;
                inst.op.operands(&mut |x| found |= seen.values.contains(&x));
                match inst.op.var() {
                    Some(Var::LocalSet { local, .. }) if found => {
                        seen.locals.insert(*local);
                    }
                    Some(Var::LocalGet { local }) => found |= seen.locals.contains(local),
                    _ => {}
                }
                if found {
                    seen.values.insert(*v);
                }
            }
        }
        seen
    }
}

/// The dependence of a condition on a value.
struct Sense<'k> {
    k: &'k Kernel,
    of: Value,
}

impl Sense<'_> {
    /// Whether `cond` follows the value: `Some(true)` if both are equal, `Some(false)` if the
    /// condition is true when the value is false.
    fn of(&self, cond: Value, same: bool) -> Option<bool> {
        if cond == self.of {
            return Some(same);
        }
        if let Op::Thread(Thread::Vote { cond, .. }) = self.k.op(cond) {
            return self.of(*cond, same);
        }
        match self.k.op(cond).arith()? {
            Arith::Unary { op: UnOp::Not, a } => self.of(*a, !same),
            Arith::Compare { op: CmpOp::Eq, a, b } if zero(self.k, *b) => self.of(*a, !same),
            Arith::Compare { op: CmpOp::Ne, a, b } if zero(self.k, *b) => self.of(*a, same),
            Arith::Convert { a } | Arith::Slice { a, .. } => self.of(*a, same),
            // Elements outside of a tensor are not awaited.
            Arith::Select { a, b, .. } if truth(self.k, *b) => self.of(*a, same),
            Arith::Binary { op: BinOp::And | BinOp::Or, a, b } => {
                self.of(*a, same).or_else(|| self.of(*b, same))
            }
            _ => None,
        }
    }

    /// The comparison of the value, which is a difference, with 0 in a condition.
    fn difference(&self, cond: Value) -> Option<CmpOp> {
        let Arith::Compare { op, a, b } = self.k.op(cond).arith()? else { return None };
        let mut a = *a;
        while let Some(Arith::Bitcast { a: inner } | Arith::Convert { a: inner }) = self.k.op(a).arith() {
            a = *inner;
        }
        (a == self.of && zero(self.k, *b)).then_some(*op)
    }
}

fn constant(k: &Kernel, v: Value) -> Option<i64> {
    match k.op(v).arith()? {
        Arith::Const { value: Constant::Int(n) } => Some(*n),
        Arith::Splat { a } => constant(k, *a),
        _ => None,
    }
}

/// Whether a value is the constant `true`.
fn truth(k: &Kernel, v: Value) -> bool {
    match k.op(v).arith() {
        Some(Arith::Const { value: Constant::Bool(true) }) => true,
        Some(Arith::Splat { a }) => truth(k, *a),
        _ => false,
    }
}

fn zero(k: &Kernel, v: Value) -> bool {
    constant(k, v) == Some(0)
}

/// Whether one of two operands is a literal.
fn literal(k: &Kernel, a: Value, b: Value) -> bool {
    constant(k, a).or_else(|| constant(k, b)).is_some()
}

/// The name of the parameter that an address points into.
fn origin(k: &Kernel, ptr: Value) -> Option<String> {
    match k.op(ptr) {
        Op::Address(Address::PtrAdd { ptr, .. }) => origin(k, *ptr),
        Op::Bridge(Bridge::AddressOf { base }) => origin(k, *base),
        Op::Var(Var::Param { index }) => k.head.params.get(*index as usize).map(|p| p.name.to_string()),
        _ => None,
    }
}

fn not(op: CmpOp) -> CmpOp {
    match op {
        CmpOp::Eq => CmpOp::Ne,
        CmpOp::Ne => CmpOp::Eq,
        CmpOp::Lt => CmpOp::Ge,
        CmpOp::Le => CmpOp::Gt,
        CmpOp::Gt => CmpOp::Le,
        CmpOp::Ge => CmpOp::Lt,
    }
}

/// The comparison with its operands exchanged.
fn mirrored(op: CmpOp) -> CmpOp {
    match op {
        CmpOp::Eq | CmpOp::Ne => op,
        CmpOp::Lt => CmpOp::Gt,
        CmpOp::Le => CmpOp::Ge,
        CmpOp::Gt => CmpOp::Lt,
        CmpOp::Ge => CmpOp::Le,
    }
}

/// The operator of a comparison as it is written in messages.
pub(super) fn sign(op: CmpOp) -> &'static str {
    match op {
        CmpOp::Eq => "==",
        CmpOp::Ne => "!=",
        CmpOp::Lt => "<",
        CmpOp::Le => "<=",
        CmpOp::Gt => ">",
        CmpOp::Ge => ">=",
    }
}
