//! Checks that shared memory is not reused while a matrix product or a copy may still read it.
//!
//! The walk executes the code of a role as its threads do. It knows constants, the variables of
//! loops that begin at a constant, and the numbers of stages. It assumes `ROUNDS` rounds for a loop
//! whose number of rounds is unknown. If a condition is unknown, both branches must leave the same
//! state. If they do not, the walk of the role ends and reports nothing more. So every reported
//! error happens in a launch with these numbers of rounds.

use crate::diag::{Code, Diagnostic};
use crate::kernel::{Block, Inst, Kernel, LocalId, Value};
use crate::level::Tensor;
use crate::names::Sreg;
use crate::op::{Access, Arith, Constant, Control, Operation, Thread, Tile, Var, View};
use crate::stuck::{Counts, Waits};
use crate::types::{TypeRef, ValueType};
use std::collections::{HashMap, HashSet};
use weft_layout::Int;

/// A stage is released while a product or a copy may still read it.
pub const RELEASED_EARLY: Code = Code(241);
/// A buffer is written while a copy from it may still read it.
pub const OVERWRITTEN: Code = Code(243);

/// The number of rounds that is assumed for a loop whose number of rounds is unknown.
const ROUNDS: i64 = 4;
/// The number of instructions that the walk executes before it gives up.
const MAX_STEPS: u32 = 20_000;

/// Reports stages that `k` releases too early, buffers that it writes too early, and waits that
/// never end.
pub(crate) fn check(k: &Kernel, found: &mut Vec<Diagnostic>) {
    let mut any = false;
    k.walk(&mut |_, inst| {
        any |= matches!(
            inst.op.tile(),
            Some(Tile::Await { .. } | Tile::Acquire { .. } | Tile::TmaStore { .. } | Tile::BulkStore { .. })
        );
    });
    if any {
        let waits = Waits::new(k);
        let mut walk = Walk { k, single: Vec::new(), steps: 0, reported: HashSet::new(), waits, found };
        walk.single = walk.single_stages();
        walk.block(&k.body, &mut State::default());
        let stuck = walk.waits.into_errors();
        found.extend(stuck);
    }
}

/// A known integer, and the stage of a pipeline whose index it is.
#[derive(Clone, Copy, PartialEq, Eq)]
struct KnownInt {
    n: i64,
    stage: Option<Stage>,
}

/// The stage that a pipeline's wait number `wait`, counted from 0, returned.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Stage {
    pipe: Value,
    wait: i64,
}

/// A part of an allocation in shared memory.
#[derive(Clone, Copy, PartialEq, Eq)]
struct MemoryRange {
    memory: Value,
    first: i64,
    end: i64,
    /// Whether the part includes every element between the first and the last.
    dense: bool,
}

impl MemoryRange {
    /// Whether a reader of this part certainly reads an element of `written`.
    fn meets(&self, written: &MemoryRange) -> bool {
        let both = self.memory == written.memory && self.first < written.end && written.first < self.end;
        both && self.dense && (written.dense || (self.first..self.end).contains(&written.first))
    }
}

/// A product or copy that reads shared memory asynchronously.
#[derive(Clone, PartialEq, Eq)]
struct Reader {
    by: Value,
    stages: Vec<Stage>,
    parts: Vec<MemoryRange>,
}

#[derive(Clone, Default)]
struct State {
    values: HashMap<Value, KnownInt>,
    locals: HashMap<LocalId, KnownInt>,
    pipes: HashMap<Value, Counts>,
    /// The products that may be in flight, oldest first.
    products: Vec<Reader>,
    /// The copies that may not have read shared memory yet, oldest first.
    copies: Vec<Reader>,
}

impl State {
    /// The state after two branches, or `None` if it depends on the branch.
    fn meet(mut self, other: &State) -> Option<State> {
        let same =
            self.pipes == other.pipes && self.products == other.products && self.copies == other.copies;
        self.locals.retain(|local, known| other.locals.get(local) == Some(known));
        same.then_some(self)
    }
}

/// The place at which the execution continues.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    Behind,
    /// It leaves this number of loops and `once` plus one, or continues with the next round of the
    /// last of them.
    Out(u32),
    Round(u32),
    /// The thread ends, or the walk gives up.
    End,
    Lost,
}

struct Walk<'k, 'f> {
    k: &'k Kernel,
    /// The parts that are filled through pipelines of one stage, which need no index.
    single: Vec<(Value, MemoryRange)>,
    steps: u32,
    reported: HashSet<(Value, Value)>,
    waits: Waits,
    found: &'f mut Vec<Diagnostic>,
}

impl Walk<'_, '_> {
    fn block(&mut self, block: &Block, state: &mut State) -> Next {
        for &v in &block.0 {
            let Some(inst) = self.k.insts.get(v) else { continue };
            self.steps += 1;
            if self.steps > MAX_STEPS {
                return Next::Lost;
            }
            let next = match inst.op.control() {
                Some(control) => self.control(v, control, state),
                None => {
                    self.step(v, inst, state);
                    Next::Behind
                }
            };
            if next != Next::Behind {
                return next;
            }
        }
        Next::Behind
    }

    fn control(&mut self, v: Value, control: &Control, state: &mut State) -> Next {
        match control {
            Control::If { cond, then, otherwise } => match self.truth(*cond, state) {
                Some(true) => self.block(then, state),
                Some(false) => self.block(otherwise, state),
                None => self.either(then, otherwise, state),
            },
            Control::For { var, lo, hi, step, body, .. } => {
                let [lo, hi, step] = [lo, hi, step].map(|v| self.number(*v, state));
                let rounds = match (lo, hi, step) {
                    (Some(lo), Some(hi), Some(step)) if step > 0 => {
                        Int::from(hi.saturating_sub(lo)).ceil_div(&Int::from(step)).as_const()
                    }
                    _ => None,
                };
                let first = lo.zip(step);
                self.rounds(rounds, &[body], state, |round, state| {
                    let at = first.and_then(|(lo, step)| lo.checked_add(step.checked_mul(round)?));
                    match at {
                        Some(n) => state.values.insert(var.0, KnownInt { n, stage: None }),
                        None => state.values.remove(&var.0),
                    };
                })
            }
            Control::While { head, body, .. } => self.rounds(None, &[head, body], state, |_, _| {}),
            Control::Once { body } => match self.block(body, state) {
                Next::Out(0) => Next::Behind,
                Next::Out(n) => Next::Out(n - 1),
                Next::Round(n) if n > 0 => Next::Round(n - 1),
                next => next,
            },
            Control::Role { name, body, .. } => {
                self.steps = 0;
                if !name.is_empty() {
                    self.waits.role = Some((v, name.clone()));
                }
                self.block(body, &mut state.clone());
                Next::Behind
            }
            Control::Break { depth } => Next::Out(*depth),
            Control::Continue { depth } => Next::Round(*depth),
            Control::Return {} => Next::End,
        }
    }

    /// Walks two branches of an unknown condition. If one of them jumps away, the walk follows the
    /// other one.
    fn either(&mut self, then: &Block, otherwise: &Block, state: &mut State) -> Next {
        let (mut a, mut b) = (state.clone(), state.clone());
        let ways = [self.block(then, &mut a), self.block(otherwise, &mut b)];
        match ways {
            [Next::Behind, Next::Behind] => match a.meet(&b) {
                Some(both) => *state = both,
                None => return Next::Lost,
            },
            [Next::Lost, _] | [_, Next::Lost] => return Next::Lost,
            [Next::Behind, _] => *state = a,
            [_, Next::Behind] => *state = b,
            [next, other] => return if next == other && a.meet(&b).is_some() { next } else { Next::Lost },
        }
        Next::Behind
    }

    /// Walks the rounds of a loop, of which `ROUNDS` are assumed if their number is unknown.
    fn rounds(
        &mut self,
        known: Option<i64>,
        blocks: &[&Block],
        state: &mut State,
        begin: impl Fn(i64, &mut State),
    ) -> Next {
        let (mut starts, mut mark) = (Vec::new(), None);
        for round in 0..known.unwrap_or(ROUNDS) {
            begin(round, state);
            if known.is_none() {
                starts.push(state.pipes.clone());
                mark = mark.or_else(|| (round > 0).then(|| self.waits.mark()));
            }
            let next = self.round(blocks, state);
            if next != Next::Behind {
                self.waits.settle(mark, &starts, &mut state.pipes);
                return match next {
                    Next::Out(0) => Next::Behind,
                    Next::Out(n) => Next::Out(n - 1),
                    Next::Round(n) => Next::Round(n - 1),
                    next => next,
                };
            }
        }
        if known.is_none() {
            starts.push(state.pipes.clone());
            self.waits.settle(mark, &starts, &mut state.pipes);
        }
        Next::Behind
    }

    fn round(&mut self, blocks: &[&Block], state: &mut State) -> Next {
        for block in blocks {
            match self.block(block, state) {
                Next::Behind => {}
                Next::Round(0) => break,
                next => return next,
            }
        }
        Next::Behind
    }

    /// The known value of an instruction, if there is one.
    fn known(&self, v: Value, state: &State) -> Option<KnownInt> {
        match self.k.insts.get(v)?.op.arith() {
            Some(Arith::Const { value: Constant::Int(n) }) => Some(KnownInt { n: *n, stage: None }),
            _ => state.values.get(&v).copied(),
        }
    }

    fn number(&self, v: Value, state: &State) -> Option<i64> {
        self.known(v, state).map(|known| known.n)
    }

    /// Replaces the known values in an expression.
    fn value_of(&self, expr: &Int, state: &State) -> Int {
        expr.subst(&mut |var| self.number(Value(var.id), state).map(Int::from))
    }

    /// The known result of an instruction without effect, if there is one.
    fn result(&self, inst: &Inst<Tensor>, state: &State) -> Option<KnownInt> {
        match (inst.op.arith(), inst.op.view(), inst.op.var()) {
            (Some(Arith::Convert { a }), ..) => self.known(*a, state),
            (_, Some(View::Index { expr }), _) => {
                let mut open = false;
                expr.vars(&mut |var| open |= self.known(Value(var.id), state).is_none());
                let n = if open { None } else { self.value_of(expr, state).as_const() };
                n.map(|n| KnownInt { n, stage: None })
            }
            (.., Some(Var::LocalGet { local })) => state.locals.get(local).copied(),
            _ => None,
        }
    }

    fn truth(&self, cond: Value, state: &State) -> Option<bool> {
        match self.k.insts.get(cond)?.op.arith()? {
            Arith::Const { value: Constant::Bool(b) } => Some(*b),
            Arith::Compare { op, a, b } => Some(op.holds(self.number(*a, state)?, self.number(*b, state)?)),
            _ => None,
        }
    }

    fn step(&mut self, v: Value, inst: &Inst<Tensor>, state: &mut State) {
        if let Some(access) = inst.op.access() {
            let writes = matches!(
                access,
                Access::Store { .. } | Access::Red { .. } | Access::Atomic { .. } | Access::AtomicCas { .. }
            );
            if writes {
                self.written(v, access.place(), state);
            }
            return;
        }
        if let Some(Var::LocalSet { local, value }) = inst.op.var() {
            match self.known(*value, state) {
                Some(known) => state.locals.insert(*local, known),
                None => state.locals.remove(local),
            };
        }
        match self.result(inst, state) {
            Some(known) => state.values.insert(v, known),
            None => state.values.remove(&v),
        };
        if let Some(op) = inst.op.tile() {
            self.tile(v, op, state);
        }
    }

    fn tile(&mut self, v: Value, op: &Tile, state: &mut State) {
        match op {
            Tile::Acquire { pipe } | Tile::Await { pipe } => {
                let (counts, stages) = (state.pipes.entry(*pipe).or_default(), self.stages(*pipe));
                let fills = matches!(op, Tile::Acquire { .. });
                match fills {
                    true => self.waits.empty(self.k, (v, *pipe), *counts, stages),
                    false => self.waits.full(self.k, (v, *pipe), *counts, stages),
                }
                let count = if fills { &mut counts.acquires } else { &mut counts.waits };
                let number = *count;
                *count += 1;
                let stage = (!fills).then_some(Stage { pipe: *pipe, wait: number });
                state.values.insert(v, KnownInt { n: number % stages, stage });
            }
            Tile::Release { pipe } => self.released(v, *pipe, state),
            Tile::Commit { pipe } => state.pipes.entry(*pipe).or_default().commits += 1,
            Tile::Skip { pipe, stages } => {
                let n = self.number(*stages, state).unwrap_or(0);
                let counts = state.pipes.entry(*pipe).or_default();
                counts.waits = counts.waits.saturating_add(n);
                counts.releases = counts.releases.saturating_add(n);
            }
            Tile::Mma { a, b, .. } => state.products.push(self.reader(v, &[*a, *b], state)),
            Tile::MmaWait { pending, .. } => newest(&mut state.products, *pending),
            Tile::TmaStore { src, .. } | Tile::BulkStore { src, pipe: None, .. } => {
                state.copies.push(self.reader(v, &[*src], state))
            }
            Tile::TmaInstead {} => state.copies.push(self.reader(v, &[], state)),
            Tile::TmaWait { pending, .. } => newest(&mut state.copies, *pending),
            Tile::TmaLoad { dst, .. } | Tile::BulkLoad { dst, .. } => self.written(v, *dst, state),
            // The CTA that gets the bytes observes their arrival.
            Tile::BulkStore { pipe: Some(_), .. } => {}
            Tile::Pipeline { .. }
            | Tile::Accumulator {}
            | Tile::AccumulatorOf { .. }
            | Tile::AccumulatorRead { .. } => {}
        }
    }

    fn stages(&self, pipe: Value) -> i64 {
        match self.k.ty(pipe).view() {
            TypeRef::Pipeline(stages) => i64::from(stages.max(1)),
            _ => 1,
        }
    }

    fn single_stages(&self) -> Vec<(Value, MemoryRange)> {
        let mut parts = Vec::new();
        self.k.walk(&mut |_, inst| {
            if let Some(Tile::TmaLoad { dst, pipe, .. } | Tile::BulkLoad { dst, pipe, .. }) = inst.op.tile()
                && self.stages(*pipe) == 1
            {
                parts.extend(self.part(*dst, &State::default()).map(|part| (*pipe, part)));
            }
        });
        parts
    }

    /// A reader of tensors in shared memory.
    fn reader(&self, by: Value, tensors: &[Value], state: &State) -> Reader {
        let mut stages = Vec::new();
        for v in tensors {
            self.offsets(*v, &mut |offset| {
                offset.vars(&mut |var| stages.extend(self.known(Value(var.id), state).and_then(|k| k.stage)));
            });
        }
        let parts: Vec<_> = tensors.iter().filter_map(|v| self.part(*v, state)).collect();
        for (pipe, filled) in &self.single {
            let newest = state.pipes.get(pipe).and_then(|counts| counts.waits.checked_sub(1));
            let newest = newest.filter(|wait| *wait >= 0 && parts.iter().any(|part| part.meets(filled)));
            stages.extend(newest.map(|wait| Stage { pipe: *pipe, wait }));
        }
        Reader { by, stages, parts }
    }

    /// Calls `see` with the offsets of a tensor's views. Returns the allocation.
    fn offsets(&self, mut v: Value, see: &mut dyn FnMut(&Int)) -> Option<Value> {
        loop {
            match self.k.insts.get(v)?.op.view()? {
                View::Part { base, offset } | View::Distributed { base, offset, .. } => {
                    see(offset);
                    v = *base;
                }
                View::Shared { .. } => return Some(v),
                View::Index { .. } | View::Multicast { .. } | View::Peer { .. } | View::InCta { .. } => {
                    return None;
                }
            }
        }
    }

    /// The part of shared memory that a tensor covers for all threads together, if it is known.
    fn part(&self, v: Value, state: &State) -> Option<MemoryRange> {
        let mut sum = Int::from(0);
        let memory = self.offsets(v, &mut |offset| sum = &sum + self.value_of(offset, state))?;
        let mut open = false;
        sum.vars(&mut |var| open |= !self.of_thread(Value(var.id)));
        let layout = &self.k.ty(v).tensor()?.layout;
        let (size, cosize) = (layout.size().as_const()?, layout.cosize().as_const()?);
        let (first, last) = (sum.lower_bound(), sum.upper_bound()?);
        let dense = first == last && size == cosize;
        (!open).then_some(MemoryRange { memory, first, end: last.checked_add(cosize)?, dense })
    }

    /// Whether a value is a thread's index.
    fn of_thread(&self, v: Value) -> bool {
        let op = self.k.insts.get(v).and_then(|inst| inst.op.thread());
        matches!(op, Some(Thread::Special { reg: Sreg::ThreadIdx | Sreg::LaneIdx, .. }))
    }

    fn released(&mut self, v: Value, pipe: Value, state: &mut State) {
        let counts = state.pipes.entry(pipe).or_default();
        let stage = Stage { pipe, wait: counts.releases };
        counts.releases += 1;
        for (readers, product) in [(&mut state.products, true), (&mut state.copies, false)] {
            readers.retain(|reader| {
                let reads = reader.stages.contains(&stage);
                if reads && self.reported.insert((v, reader.by)) {
                    self.found.push(released_early(self.k, v, reader.by, product));
                }
                !reads
            });
        }
    }

    fn written(&mut self, v: Value, place: Value, state: &mut State) {
        let Some(part) = self.part(place, state).filter(|_| !state.copies.is_empty()) else { return };
        state.copies.retain(|copy| {
            let reads = copy.parts.iter().any(|read| read.meets(&part));
            if reads && self.reported.insert((v, copy.by)) {
                self.found.push(overwritten(self.k, v, copy.by));
            }
            !reads
        });
    }
}

/// Keeps the newest `pending` readers.
fn newest(readers: &mut Vec<Reader>, pending: u32) {
    let done = readers.len().saturating_sub(pending as usize);
    readers.drain(..done);
}

fn released_early(k: &Kernel, v: Value, by: Value, product: bool) -> Diagnostic {
    let (who, help) = if product {
        (
            "product",
            "release it after an `mma_wait` that covers the product: `mma_wait<n>` covers all but the \
             newest n",
        )
    } else {
        ("copy", "wait for the copy first: `tma_wait<read>(0);`")
    };
    let message = format!("a stage is released while a {who} may still read it");
    Diagnostic::error(RELEASED_EARLY, k.insts[v].span, message)
        .related(k.insts[by].span, format!("this {who} may still read the stage"))
        .help(help)
}

fn overwritten(k: &Kernel, v: Value, by: Value) -> Diagnostic {
    let message = "a buffer in shared memory is written while a copy may still read it";
    Diagnostic::error(OVERWRITTEN, k.insts[v].span, message)
        .related(k.insts[by].span, "this copy may not have read it")
        .help(
            "wait until the copy has read it: `tma_wait<read>(n);` leaves the newest n copies in \
            flight, and a `sync_threads();` after it informs the other threads",
        )
}
