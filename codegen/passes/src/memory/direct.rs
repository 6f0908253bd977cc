//! Loads, stores and atomics of one address.

use super::moves::{Read, Write};
use super::place::{Place, Route, elements_on};
use super::switch::{illegal, isa_form};
use super::{Memory, plain_name};
use crate::codes::NO_REDUCTION;
use crate::edit::{Action, Editor};
use crate::memory::fragment::Fragment;
use crate::report::{Cover, Instr};
use weft_ir::builder::Built;
use weft_ir::diag::{Diagnostic, Span};
use weft_ir::{Int, Op, RedOp, Scalar, Sem, Space, Type, Value};
use weft_isa::{Form, Instr as Instruction, Target, Width};

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
        reject_product(op, span)?;
        let pointer = at.pointer(&mut e.b, base)?;
        let by = At { pointer, op, elem: at.ty.elem };
        let (elem, space) = (at.ty.elem, at.ty.space);
        let (legal, name): (Vec<u32>, &dyn Fn(u32) -> String) = match op {
            Op::Load { sem, scope, .. } => (plain_widths(elem), &|lanes| {
                plain_name("ld", *sem, *scope, space, lanes * elem.bytes(), elem.bytes())
            }),
            Op::Store { sem, scope, .. } => (plain_widths(elem), &|lanes| {
                plain_name("st", *sem, *scope, space, lanes * elem.bytes(), elem.bytes())
            }),
            Op::Red { value, .. } if space != Space::Shared => {
                let red = Reductions::new(self.options.target, op, elem, span)?;
                let f = red.fragment(at, span)?;
                self.note(e, v, &f, red.instrs(&f));
                return self.finish_write(e, &f, *value, &by, None, red.narrowest());
            }
            _ => (vec![1], &|_| atomic_name(op, elem, space)),
        };
        let f = Fragment::new(at, &legal, span)?;
        let (bytes, count) = (f.width * elem.bytes(), f.starts.len() as u32);
        self.note(e, v, &f, vec![Instr { name: name(f.width), bytes, count }]);
        match op {
            Op::Load { .. } | Op::Atomic { .. } | Op::AtomicCas { .. } => {
                self.finish_read(e, &f, &by, None, 1)
            }
            Op::Store { value, .. } | Op::Red { value, .. } => self.finish_write(e, &f, *value, &by, None, 1),
            _ => Err(super::place::no_address(span, e.b.ty(v))),
        }
    }
}

/// The reductions that memory has for an element type: vectors for some, single elements for most.
pub(super) struct Reductions {
    form: Form,
    target: Target,
    widths: Vec<Width>,
}

impl Reductions {
    /// Those of an op, or the table's reason why there is none.
    pub fn new(target: Target, op: &Op, elem: Scalar, span: Span) -> Built<Reductions> {
        let (Op::Red { op, sem, scope, .. } | Op::McRed { op, sem, scope, .. }) = op else {
            return Err(super::place::no_address(span, &Type::Unit));
        };
        let form = isa_form(Instruction::GlobalRed, Some(*op), elem, *sem, *scope);
        let widths = weft_isa::widths(&form, target);
        if widths.is_empty() {
            Err(illegal(&form, target, span))
        } else {
            Ok(Reductions { form, target, widths })
        }
    }

    /// Fewest elements that one reduces.
    pub fn narrowest(&self) -> u32 {
        self.widths.last().map_or(1, |w| w.elements)
    }

    /// The fragment; an error if it needs single elements, and there are none.
    pub fn fragment(&self, at: &Place, span: Span) -> Built<Fragment> {
        let legal: Vec<u32> = self.widths.iter().map(|w| w.elements).collect();
        let f = Fragment::new(at, &legal, span)?;
        if f.width < self.narrowest() || f.cover == Cover::Cut {
            self.single(span)?;
        }
        Ok(f)
    }

    /// An error unless there is one for single elements.
    pub fn single(&self, span: Span) -> Built<()> {
        if self.narrowest() == 1 { Ok(()) } else { Err(illegal(&self.form, self.target, span)) }
    }

    /// What a fragment is reduced by.
    pub fn instrs(&self, f: &Fragment) -> Vec<Instr> {
        let instr = |lanes: u32, count: usize| {
            let width = self.widths.iter().find(|w| w.elements == lanes)?;
            let name = width.legal.form().to_string();
            Some(Instr { name, bytes: width.bytes, count: count as u32 })
        };
        let tail = (f.cover == Cover::Cut && f.width > 1).then(|| instr(1, 0)).flatten();
        instr(f.width, f.starts.len()).into_iter().chain(tail).collect()
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
