//! Decides whether rounds of a loop can be in flight together, and how each of its values is
//! widened.

use crate::edit::{constant, param_index};
use rustc_hash::{FxHashMap, FxHashSet};
use weft_ir::View;
use weft_ir::kernel::Induction;
use weft_ir::mixed::{Kernel, Op, Type};
use weft_ir::{
    Access, Block, Control, Int, Layout, Operation, Sem, Team, TensorType, Thread, Value, ValueType, Var,
};

/// The maximum number of elements of one value over all rounds.
const MAX_LANES: u32 = 256;
/// The maximum number of rounds for `unroll(0)`, which stands for all rounds.
const MAX_FULL: i64 = 64;

/// A loop that requests rounds in flight.
pub(super) struct Loop {
    pub var: Value,
    pub lo: Value,
    pub hi: Value,
    pub step: Value,
    pub unroll: u32,
    pub body: Block,
    /// The variable as a symbol in layouts and offsets.
    pub symbol: Int,
    /// The distance from one round to the next.
    pub stride: Int,
    /// The number of rounds, if it is known.
    pub trip: Option<i64>,
}

/// The form of a value of the body over all rounds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ValueKind {
    /// The value is the same in every round.
    Same,
    /// The value has this number of lanes per round.
    Rounds(u32),
    /// The value is a tensor.
    Tensor,
    /// The op has an effect and no value.
    Effect,
}

/// How a loop is widened.
pub(super) struct Plan {
    /// The number of rounds in flight.
    pub rounds: u32,
    /// The reason why there are fewer rounds than requested.
    pub fewer: Option<String>,
    pub kinds: FxHashMap<Value, ValueKind>,
    /// For each place that is accessed, the distance from one round's first element to the next
    /// round's.
    pub strides: FxHashMap<Value, Int>,
    /// The bounds that must be tested.
    pub tests: Vec<Test>,
}

/// A bound that fails monotonically: it holds for a prefix of the rounds and fails for the rest.
#[derive(PartialEq)]
pub(super) struct Test {
    /// The greatest position in one round.
    pub one: Int,
    /// The greatest position in all rounds in flight.
    pub all: Int,
    pub limit: Int,
}

impl Plan {
    /// Whether a bound depends on a value that the body computes.
    pub fn computed_tests(&self) -> bool {
        let mut found = false;
        for test in &self.tests {
            let mut seen = |v: &weft_layout::Var| found |= self.kinds.contains_key(&Value(v.id));
            test.one.vars(&mut seen);
            test.limit.vars(&mut seen);
        }
        found
    }
}

/// A bound when it is first found: its greatest position in the first round, its stride, its limit.
type BoundRange = (Int, Int, Int);

struct Touch {
    root: Value,
    writes: bool,
    offset: Int,
    stride: Int,
    modes: Vec<(i64, Int)>,
}

impl Loop {
    pub fn new(k: &Kernel, op: &Op) -> Option<Loop> {
        let Some(Control::For { var: Induction(var), lo, hi, step, unroll, body }) = op.control() else {
            return None;
        };
        let stride = k.symbol(*step)?;
        let trip = match (constant(k, *lo), constant(k, *hi), constant(k, *step)) {
            (Some(lo), Some(hi), Some(step)) if step > 0 => {
                (Int::from(hi.max(lo)) - lo).ceil_div(&Int::from(step)).as_const()
            }
            _ => None,
        };
        Some(Loop {
            var: *var,
            lo: *lo,
            hi: *hi,
            step: *step,
            unroll: *unroll,
            body: body.clone(),
            symbol: k.symbol(*var)?,
            stride,
            trip,
        })
    }

    /// The expression `e` one round later.
    fn next(&self, e: &Int) -> Int {
        e.subst(&mut |v| (v.id == self.var.0).then(|| &self.symbol + &self.stride))
    }

    fn mentions(&self, e: &Int) -> bool {
        let mut found = false;
        e.vars(&mut |v| found |= v.id == self.var.0);
        found
    }
}

/// Decides how to widen a loop.
///
/// # Errors
/// Fails with the reason why the loop stays unchanged.
pub(super) fn plan(k: &Kernel, l: &Loop) -> Result<Plan, String> {
    let mut plan = Plan {
        rounds: requested_unroll(l)?,
        fewer: None,
        kinds: FxHashMap::default(),
        strides: FxHashMap::default(),
        tests: Vec::new(),
    };
    let (mut accesses, mut reaches) = (Vec::new(), Vec::new());
    let mut max_lanes = 1;
    for &v in &l.body.0 {
        let kind = kind(k, l, &plan, v)?;
        plan.kinds.insert(v, kind);
        if let ValueKind::Rounds(lanes) = kind {
            max_lanes = max_lanes.max(lanes);
        }
        if let Some(op) = k.op(v).access() {
            let (place, writes) = (op.place(), op.value().is_some());
            let lanes = access(k, l, &mut plan, place, writes, &mut accesses, &mut reaches)?;
            max_lanes = max_lanes.max(lanes);
        }
    }
    if accesses.is_empty() {
        return Err("it contains no memory access".into());
    }
    if plan.rounds > MAX_LANES / max_lanes {
        plan.rounds = MAX_LANES / max_lanes;
        plan.fewer = Some(format!("a round has {max_lanes} elements, but only {MAX_LANES} can be in flight"));
    }
    if plan.rounds < 2 {
        return Err(plan.fewer.unwrap_or_else(|| "there is only one round".into()));
    }
    let rounds = i64::from(plan.rounds);
    for (i, a) in accesses.iter().enumerate() {
        for b in &accesses[i + 1..] {
            if (a.writes || b.writes) && may_meet(k, a, b, rounds) {
                return Err("a round may access memory that another round writes".into());
            }
        }
    }
    for (top, stride, limit) in reaches {
        let test = Test { all: &top + stride * (rounds - 1), one: top, limit };
        if test.all.poison().is_some() {
            return Err("a bound has no value after this number of rounds".into());
        }
        if !test.all.is_lt(&test.limit) && !plan.tests.contains(&test) {
            plan.tests.push(test);
        }
    }
    Ok(plan)
}

fn requested_unroll(l: &Loop) -> Result<u32, String> {
    let rounds = match (l.unroll, l.trip) {
        (0, Some(trip)) if trip <= MAX_FULL => trip,
        (0, Some(trip)) => return Err(format!("{trip} rounds are too many: the limit is {MAX_FULL}")),
        (0, None) => return Err("the number of rounds is known only at run time".into()),
        (n, trip) => trip.map_or(n.into(), |trip| trip.min(n.into())),
    };
    Ok(u32::try_from(rounds).unwrap_or(0))
}

fn kind(k: &Kernel, l: &Loop, plan: &Plan, v: Value) -> Result<ValueKind, String> {
    let (op, ty) = (k.op(v), k.ty(v));
    let mut same = true;
    op.operands(&mut |x| same &= x != l.var && !matches!(plan.kinds.get(&x), Some(ValueKind::Rounds(_))));
    if let Some(access) = op.access() {
        let (sem, _) = access.ordering();
        return match access {
            Access::Atomic { .. } | Access::AtomicCas { .. } => {
                Err(format!("`{}` keeps the order of the rounds", op.mnemonic()))
            }
            Access::Load { .. }
            | Access::Store { .. }
            | Access::LdReduce { .. }
            | Access::McStore { .. }
            | Access::McRed { .. }
            | Access::Red { .. } => match sem {
                Sem::Weak | Sem::Relaxed => Ok(ty.lanes().map_or(ValueKind::Effect, ValueKind::Rounds)),
                _ => Err(format!("a `{sem}` access keeps the order of the rounds")),
            },
        };
    }
    match op.view() {
        Some(View::Peer { pe, .. } | View::InCta { cta: pe, .. })
            if *pe == l.var || matches!(plan.kinds.get(pe), Some(ValueKind::Rounds(_))) =>
        {
            Err("the PE, or the CTA, differs from round to round".into())
        }
        Some(View::Distributed { .. }) => Err("the threads of the CTA access a tile together".into()),
        Some(View::Part { .. } | View::Multicast { .. } | View::Peer { .. } | View::InCta { .. }) => {
            Ok(ValueKind::Tensor)
        }
        Some(View::Index { .. } | View::Shared { .. }) | None if op.is_pure() => match (same, ty.lanes()) {
            (true, _) => Ok(ValueKind::Same),
            (false, Some(lanes)) => Ok(ValueKind::Rounds(lanes)),
            (false, None) => Err(format!("`{}` differs from round to round", op.mnemonic())),
        },
        Some(View::Index { .. } | View::Shared { .. }) | None => {
            Err(format!("`{}` keeps the order of the rounds", op.mnemonic()))
        }
    }
}

/// Checks one access: its place moves by a constant stride, and the rest of it does not change.
/// Returns the number of its elements per round.
fn access(
    k: &Kernel,
    l: &Loop,
    plan: &mut Plan,
    place: Value,
    writes: bool,
    accesses: &mut Vec<Touch>,
    reaches: &mut Vec<BoundRange>,
) -> Result<u32, String> {
    let Type::Tensor(t) = k.ty(place) else { return Err("it accesses a pointer".into()) };
    // Symbols that the body computes in each round must not occur where the variable must not
    // occur.
    let changes = |e: &Int| {
        let mut found = false;
        e.vars(&mut |v| found |= matches!(plan.kinds.get(&Value(v.id)), Some(ValueKind::Rounds(_))));
        found
    };
    let stays = |e: &Int| !l.mentions(e) && !changes(e);
    let stride = |e: &Int| {
        let stride = l.next(e) - e;
        (stays(&stride) && !changes(e) && stride.poison().is_none()).then_some(stride)
    };
    let layouts = std::iter::once(&t.layout).chain(t.bounds.iter().map(|b| &b.layout));
    if !layouts.flat_map(|x| [x.shape(), x.stride()]).all(|x| x.leaves().into_iter().all(stays)) {
        return Err("a layout differs from round to round".into());
    }
    let (root, offset) = resolve(k, place)?;
    let Some(by) = stride(&offset) else {
        return Err(format!("the offset of an access, {offset}, is not a linear function of the round"));
    };
    for b in &t.bounds {
        let (Some(by), Some(top)) = (stride(&b.offset), top(&b.layout)) else {
            return Err("a bound is not a linear function of the round".into());
        };
        if !stays(&b.limit) || by.lower_bound() < 0 {
            return Err("a bound is not an increasing function of the round".into());
        }
        reaches.push((&b.offset + top, by, b.limit.clone()));
    }
    let modes = modes(t).ok_or("the shape of an access is known only at run time")?;
    let lanes = modes.iter().try_fold(1i64, |n, (e, _)| n.checked_mul(*e));
    plan.strides.insert(place, by.clone());
    // The canonical names are used only for comparisons, because their definitions need not be
    // visible here.
    let (offset, stride) = (one_name(k, &offset), one_name(k, &by));
    accesses.push(Touch { root, writes, offset, stride, modes });
    lanes.and_then(|n| u32::try_from(n).ok()).ok_or_else(|| "an access is too large".into())
}

fn modes(t: &TensorType) -> Option<Vec<(i64, Int)>> {
    let leaves = t.layout.shape().leaves().into_iter().zip(t.layout.stride().leaves());
    leaves.map(|(e, d)| Some((e.as_const()?, d.clone()))).collect()
}

/// The greatest offset of a layout whose strides are not negative.
fn top(layout: &Layout) -> Option<Int> {
    let mut top = Int::ZERO;
    for (e, d) in layout.shape().leaves().into_iter().zip(layout.stride().leaves()) {
        if d.lower_bound() < 0 {
            return None;
        }
        top = top + (e - 1) * d;
    }
    Some(top)
}

/// The parameter or allocation of a tensor, and the offset of the tensor in it in elements.
fn resolve(k: &Kernel, mut v: Value) -> Result<(Value, Int), String> {
    let mut offset = Int::ZERO;
    loop {
        let op = k.op(v);
        match op.view() {
            Some(View::Part { base, offset: by } | View::Distributed { base, offset: by, .. }) => {
                offset = offset + by;
                v = *base;
            }
            Some(View::Multicast { base, .. } | View::Peer { base, .. } | View::InCta { base, .. }) => {
                v = *base
            }
            Some(View::Shared { .. }) => return Ok((v, offset)),
            Some(View::Index { .. }) | None if matches!(op.var(), Some(Var::Param { .. })) => {
                return Ok((v, offset));
            }
            Some(View::Index { .. }) | None => return Err(format!("`{}` has no address", op.mnemonic())),
        }
    }
}

/// An offset in a form in which each constant value (indices of threads and CTAs, ranks) has one
/// name, wherever it was computed.
fn one_name(k: &Kernel, offset: &Int) -> Int {
    offset.subst(&mut |v| {
        let constant = |op: &&Op| {
            matches!(op.thread(), Some(Thread::Special { .. }))
                || matches!(op.team(), Some(Team::MyPe { .. } | Team::NPes { .. }))
        };
        let op = Some(&k.insts.get(Value(v.id))?.op).filter(constant)?;
        let (first, _) = k.insts.iter().find(|(_, inst)| inst.op == *op)?;
        k.symbol(first)
    })
}

/// Whether `a` in a round can access what `b`, later in the body, accesses in an earlier round. In
/// the widened loop `a` comes first. The route of the accesses (own address, a peer's, multicast)
/// is ignored, because they can reach the same memory.
fn may_meet(k: &Kernel, a: &Touch, b: &Touch, rounds: i64) -> bool {
    let same_root = match (param_index(k, a.root), param_index(k, b.root)) {
        (Some(x), Some(y)) => x == y,
        (None, None) => a.root == b.root,
        _ => false,
    };
    if !same_root {
        return false;
    }
    if a.stride != b.stride {
        return true;
    }
    let apart = &a.offset - &b.offset;
    if let (Some(apart), Some(stride), Some(x), Some(y)) =
        (apart.as_const(), a.stride.as_const(), offsets(&a.modes), offsets(&b.modes))
    {
        let y: FxHashSet<i64> = y.into_iter().collect();
        return (1..rounds).any(|m| {
            let from = apart.saturating_add(m.saturating_mul(stride));
            x.iter().any(|x| y.contains(&x.saturating_add(from)))
        });
    }
    let span = |modes: &[(i64, Int)]| {
        modes.iter().try_fold(Int::ZERO, |top, (e, d)| (d.lower_bound() >= 0).then(|| top + d * (e - 1)))
    };
    let (Some(x), Some(y)) = (span(&a.modes), span(&b.modes)) else { return true };
    let moved = apart + &a.stride;
    let above = a.stride.lower_bound() >= 0 && y.is_lt(&moved);
    let below = a.stride.upper_bound().is_some_and(|s| s <= 0) && (moved + x).is_lt(&Int::ZERO);
    !(above || below)
}

/// All offsets of a static layout.
fn offsets(modes: &[(i64, Int)]) -> Option<Vec<i64>> {
    let mut all = vec![0i64];
    for (extent, stride) in modes {
        let stride = stride.as_const()?;
        all = (0..*extent)
            .flat_map(|c| all.iter().map(move |o| o.saturating_add(stride.saturating_mul(c))))
            .collect();
        if all.len() > MAX_LANES as usize {
            return None;
        }
    }
    Some(all)
}
