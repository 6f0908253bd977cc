//! Loads, stores and atomics of one address.

use super::moves::{Read, Write};
use super::place::{Place, Route, elements_on};
use super::{Memory, plain_name};
use crate::codes::NO_REDUCTION;
use crate::edit::{Action, Editor};
use crate::memory::fragment::Fragment;
use crate::report::Instr;
use weft_ir::builder::Built;
use weft_ir::diag::{Diagnostic, Span};
use weft_ir::{Int, Op, RedOp, Scalar, Sem, Space, Type, Value};

/// An address that elements are counted from, and what is done there.
pub(super) struct At<'a> {
    /// Where the fragment's first element is.
    pub pointer: Value,
    /// Load, store, atomic, or op of the switch.
    pub op: &'a Op,
    /// Element type.
    pub elem: Scalar,
}

impl At<'_> {
    fn pointer(&self, e: &mut Editor, at: &Int) -> Built<Value> {
        elements_on(&mut e.b, self.pointer, at, self.elem)
    }
}

impl Read for At<'_> {
    fn read(&self, _: &mut Memory<'_>, e: &mut Editor, pieces: &[(Int, u32)]) -> Built<Vec<Value>> {
        let mut out = Vec::with_capacity(pieces.len());
        for (at, lanes) in pieces {
            let op = with_place(self.op, self.pointer(e, at)?, None);
            out.push(e.b.emit_as(op, Type::lanes_of(self.elem, *lanes))?);
        }
        Ok(out)
    }
}

impl Write for At<'_> {
    fn write(&self, _: &mut Memory<'_>, e: &mut Editor, pieces: &[(Int, Value)]) -> Built<()> {
        for (at, value) in pieces {
            let op = with_place(self.op, self.pointer(e, at)?, Some(*value));
            e.b.emit(op)?;
        }
        Ok(())
    }
}

/// The same op at another place, with another value.
pub(super) fn with_place(op: &Op, to: Value, new: Option<Value>) -> Op {
    let mut op = op.clone();
    match &mut op {
        Op::Load { place, .. } | Op::LdReduce { place, .. } => *place = to,
        Op::Store { place, value, .. }
        | Op::McStore { place, value, .. }
        | Op::McRed { place, value, .. }
        | Op::Red { place, value, .. }
        | Op::Atomic { place, value, .. }
        | Op::AtomicCas { place, value, .. } => {
            *place = to;
            *value = new.unwrap_or(*value);
        }
        _ => {}
    }
    op
}

/// The accesses that loads and stores of an element type have, in elements, widest first.
pub(super) fn plain_widths(elem: Scalar) -> Vec<u32> {
    let most = 16 / elem.bytes();
    (0..=most.ilog2()).rev().map(|shift| 1 << shift).collect()
}

impl Memory<'_> {
    pub(super) fn direct(
        &mut self,
        e: &mut Editor,
        v: Value,
        op: &Op,
        at: &Place,
        span: Span,
    ) -> Built<Action> {
        let base = match at.route {
            Route::Peer(pointer) => pointer,
            _ => at.root,
        };
        let pointer = at.pointer(&mut e.b, base)?;
        let by = At { pointer, op, elem: at.ty.elem };
        let space = at.ty.space;
        let (legal, name): (Vec<u32>, &dyn Fn(u32) -> String) = match op {
            Op::Load { sem, scope, .. } => {
                (plain_widths(at.ty.elem), &|bytes| plain_name("ld", *sem, *scope, space, bytes))
            }
            Op::Store { sem, scope, .. } => {
                (plain_widths(at.ty.elem), &|bytes| plain_name("st", *sem, *scope, space, bytes))
            }
            _ => (vec![1], &|_| atomic_name(op, at.ty.elem, space)),
        };
        reject_product(op, span)?;
        let f = Fragment::new(at, &legal, span)?;
        let bytes = f.width * f.elem.bytes();
        let count = f.starts.len() as u32;
        self.note(e, v, &f, vec![Instr { name: name(bytes), bytes, count }]);
        match op {
            Op::Load { .. } | Op::Atomic { .. } | Op::AtomicCas { .. } => {
                self.finish_read(e, &f, &by, None, 1)
            }
            Op::Store { value, .. } | Op::Red { value, .. } => self.finish_write(e, &f, *value, &by, None, 1),
            _ => Err(super::place::no_address(span, e.b.ty(v))),
        }
    }
}

/// No memory multiplies.
pub(super) fn reject_product(op: &Op, span: Span) -> Built<()> {
    match op {
        Op::Red { op: RedOp::Mul, .. }
        | Op::Atomic { op: Some(RedOp::Mul), .. }
        | Op::McRed { op: RedOp::Mul, .. }
        | Op::LdReduce { op: RedOp::Mul, .. } => {
            let message = format!("`{}` cannot multiply", op.mnemonic());
            Err(Diagnostic::error(NO_REDUCTION, span, message)
                .help("memory reduces by add, min, max, and, or, xor; load, combine and store instead"))
        }
        _ => Ok(()),
    }
}

fn atomic_name(op: &Op, elem: Scalar, space: Space) -> String {
    let space = if space == Space::Shared { "shared" } else { "global" };
    let name =
        |verb: &str, sem: Sem, scope, what: &str| format!("{verb}.{sem}.{scope}.{space}.{what}.{elem}");
    match op {
        Op::Red { op, sem, scope, .. } => name("red", *sem, scope, op.name()),
        Op::Atomic { op, sem, scope, .. } => name("atom", *sem, scope, op.map_or("exch", RedOp::name)),
        Op::AtomicCas { sem, scope, .. } => name("atom", *sem, scope, "cas"),
        _ => op.mnemonic().into(),
    }
}
