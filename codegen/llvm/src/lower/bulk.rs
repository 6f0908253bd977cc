//! The lowering of copies of consecutive bytes between shared memory and other memory, in the forms
//! of the tables of `weft-isa`.

use super::switch::red_op;
use super::{Lower, Lowered};
use crate::raw::{Cast, Val};
use weft_ir::diag::Code;
use weft_ir::{Async, Scalar, Space, Value, ValueType};
use weft_isa::{Input, Spelling};

impl<'c> Lower<'_, 'c> {
    pub(super) fn bulk(&mut self, op: &Async) -> Lowered<Option<Val<'c>>> {
        match op {
            Async::BulkLoad { dst, src, bytes, mbar, ctas } => {
                let mut copy = weft_isa::bulk_load(ctas.is_some());
                if self.is_cta_only() && ctas.is_none() {
                    copy = copy.map(|copy| copy.with(0, "shared::cta"));
                }
                let copy = self.spelled(copy)?;
                let mut args = vec![
                    ("TO", self.bits(*dst)?),
                    ("S", self.bits(*dst)?),
                    ("G", self.bits(*src)?),
                    ("M", self.bits(*mbar)?),
                ];
                if let Some(ctas) = ctas {
                    args.push(("MASK", self.mask(*ctas)?));
                }
                self.written(&copy, &args, *bytes);
            }
            Async::BulkStore { dst, src, bytes, elem, op, mbar } => {
                let reduction = op.map(|op| op.name());
                let copy = |to| match reduction {
                    Some(op) => weft_isa::bulk_reduction(elem.name(), op, to),
                    None => weft_isa::bulk_store(to),
                };
                self.nothing_passes();
                if self.k.ty(*dst).space() == Some(Space::Multicast) {
                    return self.bulk_in_switch((*dst, *src), *bytes, (*elem, *op));
                }
                let copy = self.spelled(copy(if mbar.is_some() { "shared::cluster" } else { "global" }))?;
                let mut args =
                    vec![("TO", self.bits(*dst)?), ("G", self.bits(*dst)?), ("S", self.bits(*src)?)];
                if let Some(mbar) = mbar {
                    args.push(("M", self.bits(*mbar)?));
                }
                self.written(&copy, &args, *bytes);
            }
            _ => return Err(self.bug("no bulk copy")),
        }
        Ok(None)
    }

    /// Emits a copy to the memory of every PE of a team.
    fn bulk_in_switch(
        &mut self,
        (dst, src): (Value, Value),
        bytes: u32,
        (elem, op): (Scalar, Option<weft_ir::RedOp>),
    ) -> Lowered<Option<Val<'c>>> {
        let form = weft_isa::bulk_in_switch(elem.name(), op.and_then(red_op))
            .ok_or_else(|| self.bug("a reduction without a table"))?;
        let legal = weft_isa::check(&form, self.target)
            .map_err(|no| self.error(Code(no.code()), no.to_string()).help(no.help()))?;
        self.needs.raise(legal.min_ptx(), self.inst.span, || format!("`{form}`"))?;
        let asm = legal.asm().ok_or_else(|| self.bug("a form over 8-bit registers"))?;
        let ir = self.ir;
        let mut args = Vec::new();
        for input in &asm.inputs {
            args.push(match input {
                Input::Address => self.bits(dst)?,
                Input::SharedAddress => ir.cast(Cast::LLVMTrunc, self.bits(src)?, ir.int(32)),
                Input::Bytes => ir.constant(ir.int(32), bytes.into()),
                Input::Data(_) => return Err(self.bug("a bulk copy of registers")),
            });
        }
        ir.asm(&asm.text, &asm.constraints, &[], &args);
        Ok(None)
    }

    /// Emits the instruction with those operands that it names.
    fn written(&self, copy: &Spelling, operands: &[(&str, Val<'c>)], bytes: u32) {
        let (mut args, mut constraints) = (Vec::new(), String::new());
        let text = copy.ptx(|name| match operands.iter().find(|(known, _)| *known == name) {
            Some((_, value)) => {
                args.push(*value);
                constraints.push_str(if name == "MASK" { "h," } else { "l," });
                format!("${}", args.len() - 1)
            }
            None => bytes.to_string(),
        });
        self.ir.asm(&text, &(constraints + "~{memory}"), &[], &args);
    }

    /// An address in its own space as a number.
    fn bits(&self, address: Value) -> Lowered<Val<'c>> {
        Ok(self.ir.cast(Cast::LLVMPtrToInt, self.val(address)?, self.ir.int(64)))
    }
}
