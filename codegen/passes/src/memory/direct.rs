//! Loads, stores and atomics of one address.

use super::moves::{Read, Write};
use super::place::{Route, TensorAddress, elements_on};
use super::switch::{illegal, isa_form};
use super::{MemoryPass, plain_name};
use crate::codes::NO_REDUCTION;
use crate::edit::{Action, Editor, Emit};
use crate::memory::fragment::Fragment;
use crate::report::{Cover, Instr};
use weft_ir::builder::Built;
use weft_ir::diag::{Diagnostic, Span};
use weft_ir::mixed::Type;
use weft_ir::{Access, Bridge, Family, Int, Memory, RedOp, Scalar, Sem, Space, Value, ValueType};
use weft_isa::{Form, Instr as Instruction, Target, Width};
use weft_layout::Swizzle;

/// An address and the access at it.
pub(super) struct AccessSite<'a> {
    /// The address of the fragment's first element. For a swizzled tensor it is the beginning of
    /// its allocation.
    pub pointer: Value,
    /// The op: a load, store, atomic, or op of the switch.
    pub op: &'a Access,
    /// The type of the elements.
    pub elem: Scalar,
    /// For a swizzled tensor, the permutation of the bytes, and the offset from its allocation's
    /// first element to the fragment's.
    pub swizzle: Option<(Swizzle, Int)>,
}

impl AccessSite<'_> {
    fn pointer(&self, e: &mut Editor, at: &Int) -> Built<Value> {
        match &self.swizzle {
            None => elements_on(&mut e.b, self.pointer, at, self.elem),
            Some((swizzle, first)) => {
                let size = Int::from(self.elem.bytes());
                // Pieces that are whole periods apart share the permuted part of the address, and
                // with it the registers.
                let within = (at * &size).rem(&Int::from(swizzle.period()));
                let periods = at * &size - &within;
                let bytes = match within.as_const() {
                    Some(_) => swizzle.apply(&(first * &size + within)) + periods,
                    None => swizzle.apply(&((first + at) * size)),
                };
                e.b.offset(self.pointer, &bytes)
            }
        }
    }
}

impl Read for AccessSite<'_> {
    fn read(&self, _: &mut MemoryPass<'_>, e: &mut Editor, pieces: &[(Int, u32)]) -> Built<Vec<Value>> {
        let mut out = Vec::with_capacity(pieces.len());
        for (at, lanes) in pieces {
            let op = at_address(self.op, self.pointer(e, at)?, None);
            out.push(e.b.emit_as(op, Type::lanes_of(self.elem, *lanes))?);
        }
        Ok(out)
    }
}

impl Write for AccessSite<'_> {
    fn write(&self, _: &mut MemoryPass<'_>, e: &mut Editor, pieces: &[(Int, Value)]) -> Built<()> {
        for (at, value) in pieces {
            let op = at_address(self.op, self.pointer(e, at)?, Some(*value));
            e.b.emit(op)?;
        }
        Ok(())
    }
}

/// The access at an address, with the value `new` if it has a value.
pub(super) fn at_address(op: &Access, ptr: Value, new: Option<Value>) -> Memory {
    let of = |value: Value| new.unwrap_or(value);
    match *op {
        Access::Load { sem, scope, .. } => Memory::Load { ptr, sem, scope },
        Access::LdReduce { op, acc, sem, scope, .. } => Memory::LdReduce { ptr, op, acc, sem, scope },
        Access::Store { value, sem, scope, .. } => Memory::Store { ptr, value: of(value), sem, scope },
        Access::McStore { value, sem, scope, .. } => Memory::McStore { ptr, value: of(value), sem, scope },
        Access::McRed { value, op, sem, scope, .. } => {
            Memory::McRed { ptr, value: of(value), op, sem, scope }
        }
        Access::Red { value, op, sem, scope, .. } => Memory::Red { ptr, value: of(value), op, sem, scope },
        Access::Atomic { value, op, sem, scope, .. } => {
            Memory::Atomic { ptr, value: of(value), op, sem, scope }
        }
        Access::AtomicCas { expected, value, sem, scope, .. } => {
            Memory::AtomicCas { ptr, expected, value: of(value), sem, scope }
        }
    }
}

/// The widths of loads and stores of an element type, in elements, widest first.
pub(super) fn plain_widths(elem: Scalar) -> Vec<u32> {
    let max = 16 / elem.bytes();
    (0..=max.ilog2()).rev().map(|shift| 1 << shift).collect()
}

impl MemoryPass<'_> {
    pub(super) fn direct(
        &mut self,
        e: &mut Editor,
        v: Value,
        op: &Access,
        at: &TensorAddress,
        no_matrices: Option<String>,
    ) -> Built<Action> {
        let span = e.b.kernel().insts[v].span;
        reject_product(op, span)?;
        let base = match at.route {
            Route::There(pointer) => pointer,
            Route::Local | Route::Everywhere(_) => e.b.emit(Bridge::AddressOf { base: at.root })?,
        };
        let swizzle = at.ty.swizzle.map(|s| (s, at.offset.clone()));
        let pointer = if swizzle.is_some() { base } else { at.pointer(&mut e.b, base)? };
        let by = AccessSite { pointer, op, elem: at.ty.elem, swizzle };
        let (elem, space) = (at.ty.elem, at.ty.space);
        if let Access::Red { value, .. } = op
            && !space.is_shared()
        {
            let red = Reductions::new(self.options.target, op, elem, span)?;
            let f = red.fragment(at, span)?;
            self.note(e, v, &f, red.instrs(&f));
            return self.finish_write(e, &f, *value, &by, None, red.narrowest());
        }
        let plain = match op {
            Access::Load { .. } => Some("ld"),
            Access::Store { .. } => Some("st"),
            Access::LdReduce { .. }
            | Access::McStore { .. }
            | Access::McRed { .. }
            | Access::Red { .. }
            | Access::Atomic { .. }
            | Access::AtomicCas { .. } => None,
        };
        let mut legal = if plain.is_some() { plain_widths(elem) } else { vec![1] };
        if let Some(swizzle) = at.ty.swizzle {
            // The permutation keeps bytes below the swizzle's base together.
            legal.retain(|width| *width == 1 || u64::from(width * elem.bytes()) <= 1 << swizzle.base());
        }
        let mut f = Fragment::new(at, &legal, span)?;
        f.no_matrices = no_matrices;
        let (sem, scope) = op.ordering();
        let weak = matches!(op, Access::Load { sem: Sem::Weak, .. });
        let repeats = weak.then(|| f.distinct()).filter(|(once, _)| once.starts.len() < f.starts.len());
        let read = repeats.as_ref().map_or(&f, |(once, _)| once);
        let (bytes, count) = (f.width * elem.bytes(), read.starts.len() as u32);
        let name = match plain {
            Some(verb) => plain_name(verb, sem, scope, space, bytes, elem.bytes()),
            None => atomic_name(op, elem, space),
        };
        self.note(e, v, &f, vec![Instr { name, bytes, count }]);
        match op {
            Access::Load { .. } | Access::Atomic { .. } | Access::AtomicCas { .. } => {
                match (self.finish_read(e, read, &by, None, 1)?, &repeats) {
                    (Action::Become(v), Some((_, numbers))) => {
                        let piece = |k: &usize| e.b.slice(v, *k as u32 * f.width, f.width);
                        let all = numbers.iter().map(piece).collect::<Built<_>>()?;
                        e.b.concat(all).map(Action::Become)
                    }
                    (action, _) => Ok(action),
                }
            }
            Access::Store { value, .. } | Access::Red { value, .. } => {
                self.finish_write(e, &f, *value, &by, None, 1)
            }
            Access::LdReduce { .. } | Access::McStore { .. } | Access::McRed { .. } => {
                Err(super::place::no_address(span, e.b.ty(op.place())))
            }
        }
    }
}

/// The reductions in memory for an element type: vectors for some types, single elements for most.
pub(super) struct Reductions {
    form: Form,
    target: Target,
    widths: Vec<Width>,
}

impl Reductions {
    /// The reductions of an op. Fails with the reason if the table has none.
    pub fn new(target: Target, op: &Access, elem: Scalar, span: Span) -> Built<Reductions> {
        let (Access::Red { op, sem, scope, .. } | Access::McRed { op, sem, scope, .. }) = op else {
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

    /// The least number of elements that one instruction reduces.
    pub fn narrowest(&self) -> u32 {
        self.widths.last().map_or(1, |w| w.elements)
    }

    /// The fragment. Fails if it needs single elements and there is no instruction for them.
    pub fn fragment(&self, at: &TensorAddress, span: Span) -> Built<Fragment> {
        let legal: Vec<u32> = self.widths.iter().map(|w| w.elements).collect();
        let f = Fragment::new(at, &legal, span)?;
        if f.width < self.narrowest() || f.cover == Cover::Cut {
            self.single(span)?;
        }
        Ok(f)
    }

    /// Fails unless there is an instruction for single elements.
    pub fn single(&self, span: Span) -> Built<()> {
        if self.narrowest() == 1 { Ok(()) } else { Err(illegal(&self.form, self.target, span)) }
    }

    /// The instructions that reduce a fragment.
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

/// Fails for a product, which no memory can compute.
pub(super) fn reject_product(op: &Access, span: Span) -> Built<()> {
    if op.reduction() != Some(RedOp::Mul) {
        return Ok(());
    }
    let message = format!("`{}` cannot multiply", op.name());
    Err(Diagnostic::error(NO_REDUCTION, span, message)
        .help("reduce by add, min, max, and, or, xor, or load, combine and store instead"))
}

fn atomic_name(op: &Access, elem: Scalar, space: Space) -> String {
    let space = super::space_name(space);
    let (sem, scope) = op.ordering();
    let (verb, what) = match op {
        Access::Red { op, .. } => ("red", op.name()),
        Access::Atomic { op, .. } => ("atom", op.map_or("exch", RedOp::name)),
        Access::AtomicCas { .. } => ("atom", "cas"),
        Access::Load { .. }
        | Access::Store { .. }
        | Access::LdReduce { .. }
        | Access::McStore { .. }
        | Access::McRed { .. } => (op.mnemonic(), ""),
    };
    format!("{verb}.{sem}.{scope}.{space}.{what}.{elem}")
}
