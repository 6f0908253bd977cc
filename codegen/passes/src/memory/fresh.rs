//! Accumulators to which nothing has been added yet. Their first product replaces the contents of
//! the registers, so no code writes zeros to them before.
//!
//! Each accumulator has a condition that says whether it holds sums. It is known at compile time
//! for most values. For each variable, another variable holds it, which is false at the beginning
//! of a loop and true in all rounds but the first.
//!
//! Registers that no code writes are live around each loop, since a product of the next round could
//! read what the last one left. If the branches of a loop have accumulators of their own, ptxas
//! would keep the registers of all of them. Such accumulators begin with zeros.

use super::MemoryPass;
use crate::edit::{Action, Editor, nested};
use rustc_hash::{FxHashMap, FxHashSet};
use weft_ir::builder::Built;
use weft_ir::mixed::{Kernel, Type};
use weft_ir::{Arith, Async, Block, Constant, Control, LocalId, Operation, Scalar, Tile, Value, Var};

/// Whether an accumulator holds sums.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Holds {
    /// The accumulator holds sums.
    Sums,
    /// Nothing has been added to the accumulator, so it stands for zeros.
    Nothing,
    /// The accumulator holds sums if this condition is true.
    If(Value),
}

/// The state of the accumulators of a kernel.
#[derive(Default)]
pub(super) struct AccumulatorStates {
    /// The values that may hold nothing.
    values: FxHashMap<Value, Holds>,
    /// For each variable, the variable that says whether it holds sums.
    conditions: FxHashMap<LocalId, LocalId>,
    /// The state of variables at the current place, with the depth of the block that set them.
    known: FxHashMap<LocalId, (Holds, u32)>,
    depth: u32,
    /// The accumulators that begin with zeros.
    zeroed: FxHashSet<Value>,
}

impl AccumulatorStates {
    /// Adds a condition to the kernel for each of these variables, which hold accumulators.
    pub fn new(k: &mut Kernel, accumulators: &[LocalId]) -> AccumulatorStates {
        let ty = || Type::Scalar(Scalar::Bool);
        let mut condition = |of: LocalId| {
            let name = format!("{} holds sums", k.locals[of].name).into();
            (of, k.locals.push(weft_ir::mixed::Local { name, ty: ty() }))
        };
        let conditions = accumulators.iter().map(|of| condition(*of)).collect();
        AccumulatorStates { conditions, zeroed: in_branches_of_loops(k), ..AccumulatorStates::default() }
    }

    /// Whether the registers of the accumulator that an op begins must be set to zero.
    pub fn begins_with_zeros(&self, begin: Value) -> bool {
        self.zeroed.contains(&begin)
    }

    /// Whether an accumulator holds sums.
    pub fn of(&self, acc: Value) -> Holds {
        self.values.get(&acc).copied().unwrap_or(Holds::Sums)
    }

    /// Records whether a value holds sums.
    pub fn note(&mut self, acc: Value, holds: Holds) {
        if holds != Holds::Sums {
            self.values.insert(acc, holds);
        }
    }

    /// Follows an op that reads or sets a variable, or that has blocks which can. Returns the
    /// treatment of the op.
    ///
    /// If a variable is set to an accumulator without sums, its registers are not written.
    /// Undefined registers would be live for ptxas from the beginning of the kernel.
    pub fn follow(&mut self, e: &mut Editor, v: Value) -> Built<Action> {
        let k = e.b.kernel();
        match k.op(v).var() {
            Some(Var::LocalSet { local, value }) => {
                let (local, holds) = (*local, self.of(*value));
                let Some(condition) = self.conditions.get(&local).copied() else { return Ok(Action::Keep) };
                let held = match holds {
                    Holds::If(condition) => condition,
                    Holds::Sums | Holds::Nothing => constant(e, holds == Holds::Sums)?,
                };
                e.b.set(condition, held)?;
                // The state after an inner block is not known.
                self.known.insert(local, (holds, self.depth));
                return Ok(if holds == Holds::Nothing { Action::Drop } else { Action::Keep });
            }
            Some(Var::LocalGet { local }) => {
                let Some(condition) = self.conditions.get(local).copied() else { return Ok(Action::Keep) };
                let holds = match self.known.get(local) {
                    Some((known, _)) => *known,
                    None => Holds::If(e.b.get(condition)?),
                };
                self.note(v, holds);
            }
            _ => {
                k.op(v).blocks().into_iter().for_each(|block| self.forget(k, block));
            }
        }
        Ok(Action::Keep)
    }

    /// Forgets the variables that a block sets, because their state at its beginning and after it
    /// is unknown.
    fn forget(&mut self, k: &Kernel, block: &Block) {
        for inst in block.0.iter().filter_map(|v| k.insts.get(*v)) {
            if let Some(Var::LocalSet { local, .. }) = inst.op.var() {
                self.known.remove(local);
            }
            inst.op.blocks().into_iter().for_each(|inner| self.forget(k, inner));
        }
    }

    /// Enters a nested block.
    pub fn enter(&mut self) {
        self.depth += 1;
    }

    /// Leaves a nested block.
    pub fn leave(&mut self) {
        self.known.retain(|_, (_, depth)| *depth < self.depth);
        self.depth -= 1;
    }
}

/// The blocks around an op, from the outermost loop inwards. Each is the op that has the block, and
/// the number of the block among those of this op.
type Blocks = Vec<(Value, usize)>;

/// The accumulators with which variables begin in a block of a loop, if another block of this loop,
/// neither inside nor around it, begins one too.
fn in_branches_of_loops(k: &Kernel) -> FxHashSet<Value> {
    let mut begins = Vec::new();
    find_begins(k, &k.body, &mut Vec::new(), &mut begins);
    let apart = |a: &Blocks, b: &Blocks| {
        let in_one_loop = a.first().map(|outer| outer.0) == b.first().map(|outer| outer.0);
        in_one_loop && !a.starts_with(b) && !b.starts_with(a)
    };
    let zeroed = begins.iter().filter(|(_, own)| begins.iter().any(|(_, other)| apart(own, other)));
    zeroed.map(|(begin, _)| *begin).collect()
}

/// Finds the accumulators with which variables begin in loops, with the blocks around them.
fn find_begins(k: &Kernel, block: &Block, around: &mut Blocks, begins: &mut Vec<(Value, Blocks)>) {
    for &v in &block.0 {
        let op = k.op(v);
        if let Some(Var::LocalSet { value, .. }) = op.var()
            && matches!(k.op(*value).tile(), Some(Tile::Accumulator {}))
            && !around.is_empty()
        {
            begins.push((*value, around.clone()));
        }
        let in_loop =
            !around.is_empty() || matches!(op.control(), Some(Control::For { .. } | Control::While { .. }));
        for (i, inner) in op.blocks().into_iter().enumerate() {
            let depth = around.len();
            around.extend(in_loop.then_some((v, i)));
            find_begins(k, inner, around, begins);
            around.truncate(depth);
        }
    }
}

/// Emits a condition that is known.
fn constant(e: &mut Editor, value: bool) -> Built<Value> {
    e.b.emit_as(Arith::Const { value: Constant::Bool(value) }, Type::Scalar(Scalar::Bool))
}

impl MemoryPass<'_> {
    /// Whether a product adds to the registers of an accumulator, as the operand of instructions.
    /// It is `None` if the product always adds.
    pub(super) fn adds(&self, e: &mut Editor, acc: Value) -> Built<Option<Value>> {
        match self.fresh.of(acc) {
            Holds::Sums => Ok(None),
            Holds::Nothing => constant(e, false).map(Some),
            Holds::If(condition) => Ok(Some(condition)),
        }
    }

    /// The registers of an accumulator for reading. They are zeros if nothing was added.
    pub(super) fn settled(&self, e: &mut Editor, acc: Value, holds: Holds) -> Built<Value> {
        let ty = e.b.ty(acc).clone();
        match holds {
            Holds::Sums => Ok(acc),
            Holds::Nothing => e.b.zero(&ty),
            Holds::If(cond) => {
                let sums = e.b.local("sums", ty.clone());
                e.b.set(sums, acc)?;
                let otherwise = nested(e, |e| {
                    let zero = e.b.emit_as(Async::WgmmaZero {}, ty)?;
                    e.b.set(sums, zero).map(drop)
                })?;
                e.b.emit(Control::If { cond, then: Block::default(), otherwise })?;
                e.b.get(sums)
            }
        }
    }
}
