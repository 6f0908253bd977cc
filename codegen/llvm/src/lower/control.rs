//! Structured control flow as basic blocks, and local variables.

use super::{Lower, Lowered};
use crate::raw::{Bb, Cast, IntIs, Val};
use weft_ir::arena::Handle;
use weft_ir::machine::Kernel;
use weft_ir::roles::registers_at_start;
use weft_ir::{Arith, Block, Constant, Control, Operation, Scalar, Value, Var};
use weft_isa::Instruction;

/// A role whose code is lowered.
#[derive(Clone, Copy)]
pub(super) struct Role {
    /// Its first thread in the CTA.
    pub first: u32,
    /// The number of threads of the role.
    pub threads: u32,
    /// Its barrier; 0 is the CTA's.
    pub barrier: u32,
}

/// Where jumps out of a loop, or out of a block that can be left, go to.
pub(super) struct Around<'c> {
    /// Behind it.
    end: Bb<'c>,
    /// The end of its round, once something jumps there.
    latch: Option<Bb<'c>>,
}

impl<'c> Lower<'_, 'c> {
    /// Local variables are memory of the thread, which LLVM's SROA makes registers again.
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
                // One that only holds other roles has no barrier.
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

    /// The code of a part of the CTA's warps. Which warp a thread is in comes from lane 0, so that ptxas knows that the
    /// lanes of a warp go one way.
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
        // Where warps keep the registers that they begin with, the budget says nothing.
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
        // A way from the end of a role into the next one would make ptxas keep apart what is the same in a warp of it.
        if last {
            ir.ret();
        } else {
            ir.jump(end);
        }
        ir.go(end);
        Ok(())
    }

    /// A block that jumps can leave.
    fn once(&mut self, body: &Block) -> Lowered<()> {
        let end = self.ir.block(self.f, "left");
        self.enter(end);
        self.block(body)?;
        self.leave();
        self.ir.jump(end);
        self.ir.go(end);
        Ok(())
    }

    /// What a jump goes to.
    fn target(&mut self, depth: u32) -> Lowered<&mut Around<'c>> {
        let bug = self.bug("nothing to jump to");
        self.around.iter_mut().rev().nth(depth as usize).ok_or(bug)
    }

    /// Goes on in a block that nothing comes to: what follows a jump adds its own end to it, and LLVM removes it.
    fn unreachable(&self) {
        self.ir.go(self.ir.block(self.f, "never"));
    }

    /// A loop's code begins; jumps out of it go to `end`.
    fn enter(&mut self, end: Bb<'c>) {
        self.around.push(Around { end, latch: None });
    }

    /// A round ends, where jumps to its end come too.
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

    /// `if lo < hi { i = lo; loop { body; if i >= hi - step { break }; i += step } }`, where `hi - step` saturates:
    /// so the sum never overflows, whatever the bounds are, and LLVM may know that.
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
            // Arithmetic of 64 bits is two instructions each. What is beyond 32 bits is never reached.
            let most = ir.constant(int, i32::MAX.into());
            last = self.intrinsic("llvm.smin", &[int], &[last, most])?;
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

    /// A loop whose body does not use its variable, by a counter of 32 bits: where that is not enough, another loop
    /// around it counts on.
    fn repeated(&mut self, [lo, hi]: [Val<'c>; 2], step: i64, body: &Block) -> Lowered<()> {
        const MOST: i64 = 1 << 30;
        let ir = self.ir;
        let (int, counter) = (lo.ty(), ir.scalar(Scalar::I32));
        let (outer, head) = (ir.block(self.f, "part"), ir.block(self.f, "for"));
        let (after, end) = (ir.block(self.f, "next"), ir.block(self.f, "done"));
        let rounds = ir.udiv(ir.sub(ir.sub(hi, lo), ir.constant(int, 1)), ir.constant(int, step));
        ir.branch(ir.icmp(IntIs::LLVMIntSLT, lo, hi), outer, end);
        let before = ir.here();
        // Rounds that come after the next one.
        ir.go(outer);
        let left = ir.phi(int);
        ir.incoming(left, rounds, before);
        let part = self.intrinsic("llvm.umin", &[int], &[left, ir.constant(int, MOST)])?;
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

/// Whether ops of a block, or of those in it, use a value.
fn uses(k: &Kernel, block: &Block, value: Value) -> bool {
    block.0.iter().any(|&v| {
        let mut found = false;
        k.op(v).operands(&mut |x| found |= x == value);
        found || k.op(v).blocks().into_iter().any(|inner| uses(k, inner, value))
    })
}
