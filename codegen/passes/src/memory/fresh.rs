//! Accumulators that nothing was added to: their first product replaces what the registers hold, and nobody writes zeros
//! to them before.
//!
//! Whether an accumulator holds sums is a condition that goes with it. Of most values it is known; with each variable goes
//! another one that holds it, which is false when a loop begins and true in all rounds but the first.

use super::MemoryPass;
use crate::edit::{Action, Editor, nested};
use rustc_hash::FxHashMap;
use weft_ir::builder::Built;
use weft_ir::mixed::{Kernel, Type};
use weft_ir::{Arith, Async, Block, Constant, Control, LocalId, Operation, Scalar, Value, Var};

/// Whether an accumulator holds sums.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Holds {
    /// It does.
    Sums,
    /// Nothing was added to it: it stands for zeros.
    Nothing,
    /// Where this condition is true.
    If(Value),
}

/// What is known of the accumulators of a kernel.
#[derive(Default)]
pub(super) struct Fresh {
    /// The values that may hold nothing.
    values: FxHashMap<Value, Holds>,
    /// For each variable the one that says whether it holds sums.
    conditions: FxHashMap<LocalId, LocalId>,
    /// What variables hold here, with the depth of the block that set them.
    known: FxHashMap<LocalId, (Holds, u32)>,
    depth: u32,
}

impl Fresh {
    /// Adds a condition to the kernel for each of these accumulators.
    pub fn new(k: &mut Kernel, accumulators: &[LocalId]) -> Fresh {
        let ty = || Type::Scalar(Scalar::Bool);
        let mut condition = |of: LocalId| {
            let name = format!("{} holds sums", k.locals[of].name).into();
            (of, k.locals.push(weft_ir::mixed::Local { name, ty: ty() }))
        };
        let conditions = accumulators.iter().map(|of| condition(*of)).collect();
        Fresh { conditions, ..Fresh::default() }
    }

    /// Whether an accumulator holds sums.
    pub fn of(&self, acc: Value) -> Holds {
        self.values.get(&acc).copied().unwrap_or(Holds::Sums)
    }

    /// Notes it of a value.
    pub fn note(&mut self, acc: Value, holds: Holds) {
        if holds != Holds::Sums {
            self.values.insert(acc, holds);
        }
    }

    /// Follows an op that reads or sets a variable, or has blocks that may. Gives what is done with the op.
    ///
    /// A variable that is set to nothing keeps its registers as they are. Registers that nobody had written would be live
    /// for ptxas from the beginning of the kernel on.
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
                // What a value of an inner block says is not there behind it.
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

    /// What a block sets is not known where it begins again, or behind it.
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

/// A condition that is known.
fn constant(e: &mut Editor, value: bool) -> Built<Value> {
    e.b.emit_as(Arith::Const { value: Constant::Bool(value) }, Type::Scalar(Scalar::Bool))
}

impl MemoryPass<'_> {
    /// Whether a product adds to the registers of an accumulator, as instructions say it: nothing where it always does.
    pub(super) fn adds(&self, e: &mut Editor, acc: Value) -> Built<Option<Value>> {
        match self.fresh.of(acc) {
            Holds::Sums => Ok(None),
            Holds::Nothing => constant(e, false).map(Some),
            Holds::If(condition) => Ok(Some(condition)),
        }
    }

    /// The registers of an accumulator as they are read: zeros where nothing was added to it.
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
