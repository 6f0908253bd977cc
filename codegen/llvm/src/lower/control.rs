//! The lowering of structured control flow to basic blocks, and of local variables.

use super::{Lower, Lowered};
use crate::raw::{Bb, Cast, IntIs, Val};
use weft_ir::arena::Handle;
use weft_ir::machine::Kernel;
use weft_ir::roles::registers_at_start;
use weft_ir::{Arith, Block, Constant, Control, Operation, Scalar, Value, Var};
use weft_isa::Instruction;

/// A role whose code is being lowered.
#[derive(Clone, Copy)]
pub(super) struct Role {
    /// The index of its first thread in the CTA.
    pub first: u32,
    /// The number of threads of the role.
    pub threads: u32,
    /// The number of its barrier. 0 is the CTA's barrier.
    pub barrier: u32,
}

/// The targets of jumps that leave a loop or another block, or its current round.
pub(super) struct JumpTargets<'c> {
    /// The block after it.
    end: Bb<'c>,
    /// The block at the end of its round, if a jump goes there.
    latch: Option<Bb<'c>>,
}

impl<'c> Lower<'_, 'c> {
    /// Declares local variables as memory of the thread, which LLVM's SROA turns into registers.
    pub(super) fn declare_locals(&mut self) -> Lowered<()> {
        for (_, local) in self.k.locals.iter() {
            let ty = self.ty(&local.ty)?;
            let at = self.ir.alloca(ty);
            self.ir.set(self.ir.zero(ty), at);
            self.locals.push(at);
        }
        Ok(())
    }

    pub(super) fn control(&mut self, op: &Control) -> Lowered<()> {
        match op {
            Control::If { cond, then, otherwise } => self.branch(*cond, then, otherwise),
            Control::For { var, lo, hi, step, unroll, body } => {
                self.counted([*lo, *hi, *step], var.0, *unroll, body)
            }
            Control::While { head, cond, body } => self.repeat(head, *cond, body),
            Control::Once { body } => self.once(body),
            Control::Role { name, first, threads, regs, body } => {
                // A role that only holds other roles has no barrier.
                self.roles += u32::from(!name.is_empty());
                self.role(Role { first: *first, threads: *threads, barrier: self.roles }, *regs, body)
            }
            Control::Break { depth } => {
                let end = self.target(*depth)?.end;
                self.ir.jump(end);
                self.unreachable();
                Ok(())
            }
            Control::Continue { depth } => {
                let (ir, f) = (self.ir, self.f);
                let latch = *self.target(*depth)?.latch.get_or_insert_with(|| ir.block(f, "again"));
                ir.jump(latch);
                self.unreachable();
                Ok(())
            }
            Control::Return {} => {
                self.ir.ret();
                self.unreachable();
                Ok(())
            }
        }
    }

    /// Lowers the code of some of the CTA's warps. The index of the warp comes from lane 0, so that
    /// ptxas knows that all lanes of a warp take the same branch.
    fn role(&mut self, role: Role, regs: u32, body: &Block) -> Lowered<()> {
        let ir = self.ir;
        let word = |n: u32| ir.constant(ir.int(32), i64::from(n));
        let tid = self.intrinsic("llvm.nvvm.read.ptx.sreg.tid.x", &[], &[])?;
        let warp = ir.lshr(tid, word(5));
        let lanes = ir.constant(ir.int(32), -1);
        let warp = self.intrinsic("llvm.nvvm.shfl.sync.idx.i32", &[], &[lanes, warp, word(0), word(31)])?;
        let inside = ir.icmp(IntIs::LLVMIntULT, ir.sub(warp, word(role.first / 32)), word(role.threads / 32));
        let (yes, end) = (ir.block(self.f, "role"), ir.block(self.f, "end"));
        ir.branch(inside, yes, end);
        ir.go(yes);
        // If warps keep the registers with which they begin, `regs` has no effect.
        let given = Instruction::named("setmaxnreg").is_some_and(|setmaxnreg| setmaxnreg.is_on(self.target));
        if regs > 0 && given {
            let more = regs > registers_at_start(self.k.threads());
            let name = format!("llvm.nvvm.setmaxnreg.{}.sync.aligned.u32", if more { "inc" } else { "dec" });
            self.intrinsic(&name, &[], &[word(regs)])?;
        }
        let outside = self.role.replace(role);
        let last = self.last;
        self.block(body)?;
        self.role = outside;
        // A path from the end of a role into the next one would prevent ptxas from treating values
        // as uniform in a warp of that role.
        if last {
            ir.ret();
        } else {
            ir.jump(end);
        }
        ir.go(end);
        Ok(())
    }

    /// Lowers a block that jumps can leave.
    fn once(&mut self, body: &Block) -> Lowered<()> {
        let end = self.ir.block(self.f, "left");
        self.enter(end);
        self.block(body)?;
        self.leave();
        self.ir.jump(end);
        self.ir.go(end);
        Ok(())
    }

    /// The target of a jump.
    fn target(&mut self, depth: u32) -> Lowered<&mut JumpTargets<'c>> {
        let bug = self.bug("nothing to jump to");
        self.around.iter_mut().rev().nth(depth as usize).ok_or(bug)
    }

    /// Continues in a block that is unreachable. The code after a jump adds its own end to it, and
    /// LLVM removes it.
    fn unreachable(&self) {
        self.ir.go(self.ir.block(self.f, "never"));
    }

    /// Begins the code of a loop. Jumps out of it go to `end`.
    fn enter(&mut self, end: Bb<'c>) {
        self.around.push(JumpTargets { end, latch: None });
    }

    /// Ends a round, at the point to which jumps to its end go.
    fn leave(&mut self) {
        if let Some(latch) = self.around.pop().and_then(|around| around.latch) {
            self.ir.jump(latch);
            self.ir.go(latch);
        }
    }

    fn branch(&mut self, cond: Value, then: &Block, otherwise: &Block) -> Lowered<()> {
        let ir = self.ir;
        let (yes, end) = (ir.block(self.f, "then"), ir.block(self.f, "end"));
        let no = if otherwise.0.is_empty() { end } else { ir.block(self.f, "else") };
        ir.branch(self.val(cond)?, yes, no);
        ir.go(yes);
        self.block(then)?;
        ir.jump(end);
        if no != end {
            ir.go(no);
            self.block(otherwise)?;
            ir.jump(end);
        }
        ir.go(end);
        Ok(())
    }

    /// Lowers a loop to `if lo < hi { i = lo; loop { body; if i >= hi - step { break }; i += step }
    /// }`, where `hi - step` saturates. Therefore the sum never overflows, whatever the bounds are,
    /// and LLVM is told so.
    fn counted(&mut self, [lo, hi, step]: [Value; 3], var: Value, unroll: u32, body: &Block) -> Lowered<()> {
        let ir = self.ir;
        let by = if let Some(Arith::Const { value: Constant::Int(n @ 1..) }) = self.k.op(step).arith() {
            Some(*n)
        } else {
            None
        };
        let (lo, hi, step) = (self.val(lo)?, self.val(hi)?, self.val(step)?);
        let int = lo.ty();
        let narrow = matches!(self.k.op(var).var(), Some(Var::LoopVar { min: 0.., max, .. }) if *max <= i32::MAX.into());
        if let (Some(by), 1, false) = (by, unroll, narrow || uses(self.k, body, var)) {
            return self.repeated([lo, hi], by, body);
        }
        let mut step = self.intrinsic("llvm.smax", &[int], &[step, ir.constant(int, 1)])?;
        let mut last = self.intrinsic("llvm.ssub.sat", &[int], &[hi, step])?;
        let mut first = lo;
        let (head, end) = (ir.block(self.f, "for"), ir.block(self.f, "done"));
        if narrow {
            // Each operation of 64 bits is two instructions, so the variable has 32 bits. Values
            // beyond 32 bits are never reached.
            let limit = ir.constant(int, i32::MAX.into());
            last = self.intrinsic("llvm.smin", &[int], &[last, limit])?;
            last = self.intrinsic("llvm.smax", &[int], &[last, ir.constant(int, -1)])?;
            let counter = ir.scalar(Scalar::I32);
            [first, last, step] = [first, last, step].map(|x| ir.cast(Cast::LLVMTrunc, x, counter));
        }
        ir.branch(ir.icmp(IntIs::LLVMIntSLT, lo, hi), head, end);
        let before = ir.here();
        ir.go(head);
        let i = ir.phi(first.ty());
        ir.incoming(i, first, before);
        self.values[var.index()] = Some(if narrow { ir.cast(Cast::LLVMZExt, i, int) } else { i });
        self.enter(end);
        self.block(body)?;
        self.leave();
        let more = ir.icmp(IntIs::LLVMIntSLT, i, last);
        let next = ir.add_nsw(i, step);
        let latch = ir.branch(more, head, end);
        ir.unroll(latch, unroll);
        ir.incoming(i, next, ir.here());
        ir.go(end);
        Ok(())
    }

    /// Lowers a loop whose body does not use its variable with a counter of 32 bits. If that is not
    /// enough, an outer loop continues the count.
    fn repeated(&mut self, [lo, hi]: [Val<'c>; 2], step: i64, body: &Block) -> Lowered<()> {
        const MAX_ROUNDS: i64 = 1 << 30;
        let ir = self.ir;
        let (int, counter) = (lo.ty(), ir.scalar(Scalar::I32));
        let (outer, head) = (ir.block(self.f, "part"), ir.block(self.f, "for"));
        let (after, end) = (ir.block(self.f, "next"), ir.block(self.f, "done"));
        let rounds = ir.udiv(ir.sub(ir.sub(hi, lo), ir.constant(int, 1)), ir.constant(int, step));
        ir.branch(ir.icmp(IntIs::LLVMIntSLT, lo, hi), outer, end);
        let before = ir.here();
        // The outer loop counts the rounds after the inner loop.
        ir.go(outer);
        let left = ir.phi(int);
        ir.incoming(left, rounds, before);
        let part = self.intrinsic("llvm.umin", &[int], &[left, ir.constant(int, MAX_ROUNDS)])?;
        let last = ir.cast(Cast::LLVMTrunc, part, counter);
        ir.jump(head);
        ir.go(head);
        let i = ir.phi(counter);
        ir.incoming(i, ir.constant(counter, 0), outer);
        self.enter(end);
        self.block(body)?;
        self.leave();
        let more = ir.icmp(IntIs::LLVMIntSLT, i, last);
        let next = ir.add_nsw(i, ir.constant(counter, 1));
        let latch = ir.branch(more, head, after);
        ir.unroll(latch, 1);
        ir.incoming(i, next, ir.here());
        ir.go(after);
        let rest = ir.sub(left, ir.add(part, ir.constant(int, 1)));
        let latch = ir.branch(ir.icmp(IntIs::LLVMIntUGT, left, part), outer, end);
        ir.unroll(latch, 1);
        ir.incoming(left, rest, ir.here());
        ir.go(end);
        Ok(())
    }

    fn repeat(&mut self, head: &Block, cond: Value, body: &Block) -> Lowered<()> {
        let ir = self.ir;
        let (top, inside, end) =
            (ir.block(self.f, "while"), ir.block(self.f, "do"), ir.block(self.f, "done"));
        ir.jump(top);
        ir.go(top);
        self.enter(end);
        self.block(head)?;
        ir.branch(self.val(cond)?, inside, end);
        ir.go(inside);
        self.block(body)?;
        self.leave();
        let latch = ir.jump(top);
        ir.unroll(latch, 1);
        ir.go(end);
        Ok(())
    }
}

/// Whether ops of a block, or of its nested blocks, use a value.
fn uses(k: &Kernel, block: &Block, value: Value) -> bool {
    block.0.iter().any(|&v| {
        let mut found = false;
        k.op(v).operands(&mut |x| found |= x == value);
        found || k.op(v).blocks().into_iter().any(|inner| uses(k, inner, value))
    })
}
