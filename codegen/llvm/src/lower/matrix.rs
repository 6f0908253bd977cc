//! The lowering of matrix instructions of warpgroups (PTX ISA, Asynchronous Warpgroup Level Matrix
//! Instructions) and of warps.
//!
//! LLVM has no intrinsic for `wgmma.mma_async`. Consecutive ones are inline assembly that takes and
//! returns every accumulator register to which they add, and so is a wait that does not follow them
//! at once. Therefore no use of an accumulator can move above the wait. No use is between
//! instructions of a group either, which would make ptxas run the instructions one after the other.

use super::{Lower, Lowered};
use crate::raw::Val;
use weft_ir::arena::Handle;
use weft_ir::diag::Code;
use weft_ir::machine::{Inst, Op};
use weft_ir::tile::per_register;
use weft_ir::{Arith, Async, Constant, Operation, Scalar, Value, ValueType};
use weft_isa::{Choice, Product, Spelling, fragments};

/// Products that follow each other and add to the same registers, their end, and a wait that follows
/// at once. They are one text of assembly, because LLVM takes most of its time for the registers
/// that assembly takes and returns.
pub(super) struct Products<'c> {
    /// The accumulator to which the first product adds, and the result of the last one.
    acc: Value,
    pub last: Value,
    /// The first register of the accumulator to which they add, and the number of registers.
    own: (u32, u32),
    texts: Vec<String>,
    /// The operands after the registers, and their constraints.
    operands: Vec<Val<'c>>,
    constraints: String,
    /// Whether the group that the instructions form has ended.
    committed: bool,
}

impl Products<'_> {
    fn new<'c>(acc: Value, own: (u32, u32)) -> Products<'c> {
        let (texts, operands, constraints) = (Vec::new(), Vec::new(), String::new());
        Products { acc, last: acc, own, texts, operands, constraints, committed: false }
    }
}

impl<'c> Lower<'_, 'c> {
    pub(super) fn matrix(&mut self, op: &Async) -> Lowered<Option<Val<'c>>> {
        match op {
            Async::WgmmaFence {} => self.effect("llvm.nvvm.wgmma.fence.sync.aligned", &[]),
            Async::WgmmaCommit {} => match &mut self.products {
                Some(group) => {
                    group.texts.push("wgmma.commit_group.sync.aligned;".into());
                    group.committed = true;
                    Ok(None)
                }
                None => self.effect("llvm.nvvm.wgmma.commit_group.sync.aligned", &[]),
            },
            Async::WgmmaWait { acc, pending, held } => {
                let lanes = self.k.ty(*acc).lanes().unwrap_or(0);
                let text = format!("wgmma.wait_group.sync.aligned {pending};");
                let mut operands = Vec::new();
                for v in held {
                    operands.extend(self.ir.lanes(self.val(*v)?));
                }
                let constraints = ",r".repeat(operands.len());
                if let Some(group) = &mut self.products {
                    group.texts.push(text);
                    group.operands.extend(operands);
                    group.constraints += &constraints;
                    return Ok(None);
                }
                self.tied(*acc, (0, lanes), &text, &operands, &constraints).map(Some)
            }
            Async::WgmmaUnset {} => {
                let ty = self.ty(&self.inst.ty)?;
                Ok(Some(self.ir.poison(ty)))
            }
            Async::WgmmaZero {} => self.zeros().map(Some),
            Async::WgmmaRegisters { a } => {
                let lanes = self.k.ty(*a).lanes().unwrap_or(0);
                self.tied(*a, (0, lanes), "wgmma.fence.sync.aligned;", &[], "").map(Some)
            }
            Async::Wgmma { .. } => self.wgmma(op).map(|()| None),
            Async::LdMatrix { ptr, count, trans } => self.ldmatrix(*ptr, *count, *trans).map(Some),
            Async::StMatrix { ptr, value, trans } => self.stmatrix(*ptr, *value, *trans),
            Async::MmaSync { a, b, acc, a_elem, b_elem, sum } => {
                let product = self.product([*a_elem, *b_elem, *sum])?;
                let held = 4 / per_register(*sum);
                let text = self.spelled(product.of_warp())?.ptx(|operand| match operand {
                    "A" => registers(2 * held, 4),
                    "B" => registers(2 * held + 4, 2),
                    _ => registers(0, held),
                });
                let mut operands = self.ir.lanes(self.val(*a)?);
                operands.extend(self.ir.lanes(self.val(*b)?));
                self.tied(*acc, (0, held), &text, &operands, ",r,r,r,r,r,r").map(Some)
            }
            _ => Err(self.bug("no matrix instruction")),
        }
    }

    /// Adds a product to those that are not emitted yet.
    fn wgmma(&mut self, op: &Async) -> Lowered<()> {
        let Async::Wgmma { acc, first, a, b, n, a_elem, b_elem, sum, a_mn, b_mn, adds } = op else {
            return Err(self.bug("no product"));
        };
        let product = self.product([*a_elem, *b_elem, *sum])?;
        let in_registers = self.k.ty(*a).lanes() == Some(4);
        let spelling = self.spelled(product.of_warpgroup(*n, in_registers, [*a_mn, *b_mn]))?;
        let lanes = n / 2 / per_register(*sum);
        let mut group = self.products.take().unwrap_or_else(|| Products::new(*acc, (*first, lanes)));
        let a_at = 2 * lanes + group.operands.len() as u32;
        let b_at = a_at + if in_registers { 4 } else { 1 };
        if in_registers {
            group.operands.extend(self.ir.lanes(self.val(*a)?));
        } else {
            group.operands.push(self.val(*a)?);
        }
        group.operands.push(self.val(*b)?);
        group.constraints += if in_registers { ",r,r,r,r,l" } else { ",l,l" };
        let scale = match adds.map(|adds| (adds, self.k.op(adds).arith())) {
            None => "1".into(),
            Some((_, Some(Arith::Const { value: Constant::Bool(adds) }))) => u8::from(*adds).to_string(),
            Some((adds, _)) => {
                group.operands.push(self.val(adds)?);
                group.constraints += ",b";
                format!("${}", b_at + 1)
            }
        };
        group.texts.push(spelling.ptx(|operand| match operand {
            "D" => registers(0, lanes),
            "A" if in_registers => registers(a_at, 4),
            "A" => format!("${a_at}"),
            "B" => format!("${b_at}"),
            _ => scale.clone(),
        }));
        self.products = Some(group);
        Ok(())
    }

    /// Whether the products that are not emitted yet can be emitted after this instruction: it is
    /// the next one of them, their end and the wait for them, or it computes a value without theirs.
    /// Values that are computed between the end and a wait stay there, so that they overlap with the
    /// products.
    pub(super) fn precedes_products(&self, inst: &Inst) -> bool {
        let Some(group) = &self.products else { return true };
        match &inst.op {
            Op::Async(Async::Wgmma { acc, first, n, sum, .. }) => {
                !group.committed && *acc == group.last && (*first, n / 2 / per_register(*sum)) == group.own
            }
            Op::Async(Async::WgmmaCommit {}) => !group.committed,
            Op::Async(Async::WgmmaWait { acc, .. }) => {
                let all = (0, self.k.ty(*acc).lanes().unwrap_or(0));
                group.committed && *acc == group.last && group.own == all
            }
            op => {
                let mut uses = false;
                op.operands(&mut |v| uses |= v == group.last);
                !group.committed && op.is_pure() && !uses
            }
        }
    }

    /// Emits the products that are not emitted yet.
    pub(super) fn emit_products(&mut self) -> Lowered<()> {
        let Some(Products { acc, last, own, texts, operands, constraints, .. }) = self.products.take() else {
            return Ok(());
        };
        let sums = self.tied(acc, own, &texts.join("\n\t"), &operands, &constraints)?;
        self.values[last.index()] = Some(sums);
        Ok(())
    }

    /// Emits zeros as assembly, because LLVM would turn a branch around constants into selections
    /// of registers.
    fn zeros(&self) -> Lowered<Val<'c>> {
        let ir = self.ir;
        let (elem, lanes) = (self.inst.ty.elem().unwrap_or(Scalar::F32), self.inst.ty.lanes().unwrap_or(1));
        let moves: Vec<_> = (0..lanes).map(|i| format!("mov.b32 ${i}, 0;")).collect();
        let constraints = vec![constraint(elem); lanes as usize].join(",");
        let out = ir.asm(&moves.join(" "), &constraints, &vec![ir.scalar(elem); lanes as usize], &[]);
        let zeros: Vec<_> = (0..lanes).map(|i| if lanes == 1 { out } else { ir.field(out, i) }).collect();
        Ok(ir.pack(&zeros, self.ty(&self.inst.ty)?))
    }

    /// The product of two element types that is accumulated in a third.
    fn product(&self, [a, b, sum]: [Scalar; 3]) -> Lowered<Product> {
        Product::new(a.name(), b.name(), sum.name())
            .ok_or_else(|| self.bug("a product of types that are not multiplied"))
    }

    /// An instruction of the tables. Fails if the target does not have it.
    pub(super) fn spelled(&mut self, choice: Option<Choice>) -> Lowered<Spelling> {
        let choice = choice.ok_or_else(|| self.bug("an instruction without a table"))?;
        let spelling = choice.check(self.target).map_err(|no| self.error(Code(no.code()), no.to_string()))?;
        self.needs.raise(spelling.min_ptx(), self.inst.span, || format!("`{choice}`"))?;
        Ok(spelling)
    }

    fn ldmatrix(&mut self, ptr: Value, count: u32, trans: bool) -> Lowered<Val<'c>> {
        self.spelled(fragments("ldmatrix", count, trans))?;
        let ir = self.ir;
        let trans = if trans { ".trans" } else { "" };
        let name = format!("llvm.nvvm.ldmatrix.sync.aligned.m8n8.x{count}{trans}.b16");
        let ptr = self.val(ptr)?;
        let out = self.intrinsic(&name, &[ptr.ty()], &[ptr])?;
        if count == 1 {
            return Ok(out);
        }
        let lanes: Vec<_> = (0..count).map(|i| ir.field(out, i)).collect();
        Ok(ir.pack(&lanes, ir.vector(ir.int(32), count)))
    }

    fn stmatrix(&mut self, ptr: Value, value: Value, trans: bool) -> Lowered<Option<Val<'c>>> {
        let count = self.k.ty(value).lanes().unwrap_or(1);
        self.spelled(fragments("stmatrix", count, trans))?;
        let trans = if trans { ".trans" } else { "" };
        let name = format!("llvm.nvvm.stmatrix.sync.aligned.m8n8.x{count}{trans}.b16");
        let mut args = vec![self.val(ptr)?];
        args.extend(self.ir.lanes(self.val(value)?));
        self.intrinsic(&name, &[args[0].ty()], &args).map(|_| None)
    }

    /// Emits assembly that takes lanes `first..first + n` of a vector and returns them, with `more`
    /// operands after them.
    fn tied(
        &self,
        acc: Value,
        (first, n): (u32, u32),
        text: &str,
        more: &[Val<'c>],
        constraints: &str,
    ) -> Lowered<Val<'c>> {
        let ir = self.ir;
        let elem = self.k.ty(acc).elem().unwrap_or(Scalar::F32);
        let mut lanes = ir.lanes(self.val(acc)?);
        let ty = self.val(acc)?.ty();
        let own = first as usize..(first + n) as usize;
        let Some(tied) = lanes.get(own.clone()).map(<[_]>::to_vec) else {
            return Err(self.bug("registers that an accumulator does not have"));
        };
        let mut all = vec![constraint(elem).to_owned(); n as usize];
        all.extend((0..n).map(|i| i.to_string()));
        let constraints = format!("{}{constraints}", all.join(","));
        let results = vec![ir.scalar(elem); n as usize];
        let args: Vec<_> = tied.iter().chain(more).copied().collect();
        let out = ir.asm(text, &constraints, &results, &args);
        for (i, at) in (0u32..).zip(own) {
            lanes[at] = if n == 1 { out } else { ir.field(out, i) };
        }
        Ok(ir.pack(&lanes, ty))
    }
}

/// The constraint for an accumulator's register as result of assembly.
fn constraint(elem: Scalar) -> &'static str {
    if elem == Scalar::F32 { "=f" } else { "=r" }
}

/// The operands of assembly as text: `{$0, $1}`.
fn registers(first: u32, count: u32) -> String {
    let names: Vec<_> = (first..first + count).map(|i| format!("${i}")).collect();
    format!("{{{}}}", names.join(", "))
}
