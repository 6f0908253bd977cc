//! In-switch operations as `multimem` instructions, in the forms that the tables of `weft-isa`
//! have.

use super::MemoryPass;
use super::direct::{AccessSite, Reductions, reject_product};
use super::everywhere::{EveryPe, unicast_name};
use super::fragment::Fragment;
use super::place::TensorAddress;
use crate::codes::NO_ACCUMULATOR;
use crate::edit::{Action, Editor};
use crate::report::{Cover, Instr};
use weft_ir::builder::Built;
use weft_ir::diag::{Code, Diagnostic, Span};
use weft_ir::mixed::Type;
use weft_ir::{Access, RedOp, Scalar, Scope, Sem, TeamRef, Value};
use weft_isa::{Acc, ElemType, Form, Instr as Instruction, Target};

impl MemoryPass<'_> {
    /// Lowers an op of the switch to its multimem form.
    pub(super) fn switch(
        &mut self,
        e: &mut Editor,
        v: Value,
        op: &Access,
        at: &TensorAddress,
        team: TeamRef,
        span: Span,
    ) -> Built<Action> {
        reject_product(op, span)?;
        let elem = at.ty.elem;
        let form = op_form(op, elem, span)?;
        let widths = weft_isa::widths(&form, self.options.target);
        let Some(narrowest) = widths.last() else {
            return Err(illegal(&form, self.options.target, span));
        };
        let legal: Vec<u32> = widths.iter().map(|w| w.elements).collect();
        let f = Fragment::new(at, &legal, span)?;
        let every = EveryPe { place: at, team, op, width: f.width };

        let Some(width) = widths.iter().find(|w| w.elements == f.width) else {
            // Single elements that the switch cannot move are accessed at every PE's own address.
            let instr = self.single(op, elem, f.starts.len() as u32, span)?;
            self.note(e, v, &f, vec![instr]);
            return match op.value() {
                Some(value) => self.finish_write(e, &f, value, &every, None, 1),
                None => self.finish_read(e, &f, &every, None, 1),
            };
        };
        let mut instrs = vec![Instr {
            name: width.legal.form().to_string(),
            bytes: width.bytes,
            count: f.starts.len() as u32,
        }];
        if f.cover == Cover::Cut {
            if narrowest.elements < f.width {
                let name = narrowest.legal.form().to_string();
                instrs.push(Instr { name, bytes: narrowest.bytes, count: 0 });
            }
            if narrowest.elements > 1 {
                instrs.push(self.single(op, elem, 0, span)?);
            }
        }
        self.note(e, v, &f, instrs);

        let mc = self.multicast(e, at, team)?;
        let pointer = at.pointer(&mut e.b, mc)?;
        let by = AccessSite { pointer, op, elem, swizzle: None };
        match op.value() {
            Some(value) => self.finish_write(e, &f, value, &by, Some(&every), narrowest.elements),
            None => self.finish_read(e, &f, &by, Some(&every), narrowest.elements),
        }
    }

    /// The instruction that moves a single element at each PE's own address.
    fn single(&self, op: &Access, elem: Scalar, count: u32, span: Span) -> Built<Instr> {
        let bytes = elem.bytes();
        let name = if let Access::McRed { op: red, sem, scope, .. } = op {
            Reductions::new(self.options.target, op, elem, span)?.single(span)?;
            format!("red.{sem}.{scope}.global.{red}.{elem}")
        } else {
            unicast_name(op, bytes, bytes)
        };
        Ok(Instr { name, bytes, count })
    }
}

/// The form of an op of the switch, with a scalar type and an open width.
fn op_form(op: &Access, elem: Scalar, span: Span) -> Built<Form> {
    match *op {
        Access::LdReduce { op, acc, sem, scope, .. } => {
            let form = isa_form(Instruction::LdReduce, Some(op), elem, sem, scope);
            Ok(match (elem, acc) {
                _ if acc == elem => form,
                (Scalar::F16 | Scalar::BF16, Scalar::F32) => form.acc(Acc::F32),
                (Scalar::E4M3 | Scalar::E5M2, Scalar::F16) => form.acc(Acc::F16),
                _ => {
                    let message = format!("the switch cannot accumulate {elem} in {acc}");
                    return Err(Diagnostic::error(NO_ACCUMULATOR, span, message).help(
                        "omit `acc`, or write f32 for f16 and bf16, or f16 for fp8, or use `--lowering \
                         unicast`",
                    ));
                }
            })
        }
        Access::McRed { op, sem, scope, .. } => Ok(isa_form(Instruction::Red, Some(op), elem, sem, scope)),
        Access::McStore { sem, scope, .. } => Ok(isa_form(Instruction::St, None, elem, sem, scope)),
        Access::Load { .. }
        | Access::Store { .. }
        | Access::Red { .. }
        | Access::Atomic { .. }
        | Access::AtomicCas { .. } => Err(super::place::no_address(span, &Type::Unit)),
    }
}

/// A scalar form in the words of the tables.
pub(super) fn isa_form(instr: Instruction, op: Option<RedOp>, elem: Scalar, sem: Sem, scope: Scope) -> Form {
    let mut form = Form::new(instr, elem_type(elem));
    form.op = op.and_then(red_op);
    let sem = match sem {
        Sem::Weak => return form,
        Sem::Relaxed => weft_isa::Sem::Relaxed,
        Sem::Acquire => weft_isa::Sem::Acquire,
        Sem::Release => weft_isa::Sem::Release,
        Sem::AcqRel | Sem::SeqCst => weft_isa::Sem::AcqRel,
    };
    let scope = match scope {
        Scope::Cta => weft_isa::Scope::Cta,
        Scope::Cluster => weft_isa::Scope::Cluster,
        Scope::Gpu => weft_isa::Scope::Gpu,
        Scope::Sys => weft_isa::Scope::Sys,
    };
    form.order(sem, scope)
}

fn red_op(op: RedOp) -> Option<weft_isa::RedOp> {
    Some(match op {
        RedOp::Add => weft_isa::RedOp::Add,
        RedOp::Min => weft_isa::RedOp::Min,
        RedOp::Max => weft_isa::RedOp::Max,
        RedOp::And => weft_isa::RedOp::And,
        RedOp::Or => weft_isa::RedOp::Or,
        RedOp::Xor => weft_isa::RedOp::Xor,
        RedOp::Mul => return None,
    })
}

fn elem_type(elem: Scalar) -> ElemType {
    match elem {
        Scalar::Bool | Scalar::I8 | Scalar::U8 => ElemType::B8,
        Scalar::I16 | Scalar::U16 => ElemType::B16,
        Scalar::I32 => ElemType::S32,
        Scalar::I64 => ElemType::S64,
        Scalar::U32 => ElemType::U32,
        Scalar::U64 => ElemType::U64,
        Scalar::F16 => ElemType::F16,
        Scalar::BF16 => ElemType::BF16,
        Scalar::F32 => ElemType::F32,
        Scalar::F64 => ElemType::F64,
        Scalar::E4M3 => ElemType::E4M3,
        Scalar::E5M2 => ElemType::E5M2,
    }
}

/// The table's reason why a form exists in no width.
pub(super) fn illegal(form: &Form, target: Target, span: Span) -> Diagnostic {
    // The type fills a whole register, so that the width is not the cause of the error.
    let packed = ElemType::ALL.iter().find(|ty| ty.scalar() == form.ty && ty.bytes() == 4);
    let form = Form { ty: packed.copied().unwrap_or(form.ty), ..*form };
    match weft_isa::check(&form, target) {
        Err(why) => {
            let help = match form.instr.is_multimem() {
                true => format!("{}; or use `--lowering unicast`", why.help()),
                false => why.help(),
            };
            Diagnostic::error(Code(why.code()), span, why.to_string()).help(help)
        }
        Ok(_) => Diagnostic::error(
            NO_ACCUMULATOR,
            span,
            format!("`{form}` cannot move a single {}", form.ty.scalar()),
        ),
    }
}
