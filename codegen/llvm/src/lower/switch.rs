//! The lowering of in-switch operations, and of other instructions from the tables of `weft-isa`,
//! to inline assembly.

use super::memory::{Access, isa_order};
use super::{Lower, Lowered};
use crate::codes::NO_ACCESS;
use crate::raw::{Cast, Order, Ty, Val};
use weft_ir::diag::{Code, Diagnostic};
use weft_ir::{RedOp, Scalar};
use weft_isa::{Acc, ElemType, Form, Input, Instr, Reg, Width, check, widths};

/// The name of an element type in the tables.
fn elem_type(s: Scalar) -> ElemType {
    match s {
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

/// The name of a reduction in the tables. It is `None` for a product, which no memory can compute.
pub(super) fn red_op(op: RedOp) -> Option<weft_isa::RedOp> {
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

/// An instruction of the tables that the IR requests.
#[derive(Clone, Copy)]
pub(super) struct InstructionRequest {
    pub instr: Instr,
    pub op: Option<RedOp>,
    /// The precision of a sum, for instructions that have one.
    pub acc: Option<Scalar>,
    pub access: Access,
    pub order: Order,
}

impl<'c> Lower<'_, 'c> {
    /// Emits an instruction of the tables at an address. `data` is the value that it writes.
    pub(super) fn instruction(
        &mut self,
        wanted: InstructionRequest,
        at: Val<'c>,
        data: Option<Val<'c>>,
    ) -> Lowered<Option<Val<'c>>> {
        let access = wanted.access;
        let width = self.form(wanted)?;
        let form = *width.legal.form();
        self.needs.raise(width.legal.min_ptx(), self.inst.span, || format!("`{form}`"))?;
        let Some(asm) = width.legal.asm() else {
            return Err(self.bug("a form over 8-bit registers"));
        };
        let ir = self.ir;
        let ty = |reg: Reg| match reg {
            Reg::F32 => ir.scalar(Scalar::F32),
            Reg::F64 => ir.scalar(Scalar::F64),
            Reg::B8 => ir.int(8),
            Reg::B16 => ir.int(16),
            Reg::B32 => ir.int(32),
            Reg::B64 => ir.int(64),
        };
        let pieces = |reg: Reg, n: usize| -> Ty<'c> {
            match u32::try_from(n) {
                Ok(n) if n > 1 => ir.vector(ty(reg), n),
                _ => ty(reg),
            }
        };
        let mut registers = Vec::new();
        if let Some(data) = data {
            let inputs =
                asm.inputs.iter().filter_map(|i| if let Input::Data(r) = i { Some(*r) } else { None });
            let regs: Vec<_> = inputs.collect();
            let reg = *regs.first().unwrap_or(&Reg::B32);
            registers = ir.lanes(ir.bitcast(data, pieces(reg, regs.len())));
        }
        let mut registers = registers.into_iter();
        let mut args = Vec::with_capacity(asm.inputs.len());
        for input in &asm.inputs {
            args.push(match input {
                Input::Address => ir.cast(Cast::LLVMPtrToInt, at, ir.int(64)),
                _ => registers.next().ok_or_else(|| self.bug("an operand too few"))?,
            });
        }
        let results: Vec<_> = asm.outputs.iter().map(|r| ty(*r)).collect();
        let out = ir.asm(&asm.text, &asm.constraints, &results, &args);
        let value = match asm.outputs.as_slice() {
            [] => return Ok(None),
            [_] => out,
            [reg, ..] => {
                let lanes: Vec<_> = (0u32..).zip(&results).map(|(i, _)| ir.field(out, i)).collect();
                ir.pack(&lanes, pieces(*reg, lanes.len()))
            }
        };
        let memory = match access.elem {
            Scalar::Bool => ir.int(8),
            s => ir.scalar(s),
        };
        let result = self.ty(&self.inst.ty)?;
        let value = ir.bitcast(value, self.with_elem(result, memory));
        Ok(Some(super::from_memory(ir, value, access.elem)))
    }

    /// The form that moves exactly the bytes of the access.
    fn form(&self, wanted: InstructionRequest) -> Lowered<Width> {
        let InstructionRequest { instr, op, acc, access, order } = wanted;
        let Access { elem, lanes, .. } = access;
        let none = |help: &str| {
            let op = op.map_or(String::new(), |op| format!(" ({op})"));
            self.error(NO_ACCESS, format!("no {}{op} moves {lanes} x {elem}", instr.name())).help(help)
        };
        let op = match op {
            Some(op) => Some(
                red_op(op)
                    .ok_or_else(|| none("memory cannot compute a product: load, multiply and store"))?,
            ),
            None => None,
        };
        let acc = match acc {
            Some(acc) if acc == elem => None,
            Some(Scalar::F32) => Some(Acc::F32),
            Some(Scalar::F16) => Some(Acc::F16),
            Some(other) => return Err(none(&format!("the switch cannot accumulate in {other}"))),
            None => None,
        };
        let (sem, scope) =
            isa_order(order).ok_or_else(|| none("the access cannot be `sc`: put a fence before it"))?;
        let want = Form { instr, op, ty: elem_type(elem), vec: 1, acc, sem, scope };
        let all = widths(&want, self.target);
        if let Some(width) = all.iter().find(|w| w.elements == lanes) {
            return Ok(*width);
        }
        if all.is_empty()
            && let Err(illegal) = check(&want, self.target)
        {
            return Err(Diagnostic::error(Code(illegal.code()), self.inst.span, illegal.to_string())
                .help(illegal.help()));
        }
        let known: Vec<_> = all.iter().map(|w| w.elements.to_string()).collect();
        Err(none(&format!("on {} it moves {} at a time", self.target, known.join(" or "))))
    }
}
