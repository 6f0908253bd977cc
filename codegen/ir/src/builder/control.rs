//! Local variables, control flow, roles and messages.

use super::{Builder, Built};
use crate::kernel::{Block, Induction, LocalId, Value};
use crate::level::{Level, TensorLevel};
use crate::names::Scalar;
use crate::op::{Control, Debug, Var};
use crate::roles::WARPGROUP;
use crate::types::ValueType;
use weft_layout::Int;

/// The known bounds and divisor of a loop variable's values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Range {
    /// The least value of the variable.
    pub min: i64,
    /// The greatest value of the variable, if it is known.
    pub max: Option<i64>,
    /// A divisor of all values of the variable.
    pub div: i64,
}

impl Range {
    /// What is known of the variable of a loop from `lo` to `hi` by `step`.
    pub fn of(lo: &Int, hi: &Int, step: &Int) -> Range {
        let max = hi.upper_bound().map(|n| n.saturating_sub(1));
        Range { min: lo.lower_bound(), max, div: gcd(lo.divisor(), step.divisor()).max(1) }
    }
}

fn gcd(a: i64, b: i64) -> i64 {
    if b == 0 { a.saturating_abs() } else { gcd(b, a.wrapping_rem(b)) }
}

impl<L: Level> Builder<L> {
    /// Reads a local variable.
    pub fn get(&mut self, local: LocalId) -> Built<Value> {
        self.emit(Var::LocalGet { local })
    }

    /// Writes a local variable.
    pub fn set(&mut self, local: LocalId, value: Value) -> Built<Value> {
        self.emit(Var::LocalSet { local, value })
    }

    /// Appends an `if` that runs `then` if `cond` is true, and `otherwise` if it is false.
    pub fn if_else(
        &mut self,
        cond: Value,
        then: impl FnOnce(&mut Builder<L>) -> Built<()>,
        otherwise: impl FnOnce(&mut Builder<L>) -> Built<()>,
    ) -> Built<Value> {
        let span = self.span;
        let then = self.nested(then)?;
        let otherwise = self.nested(otherwise)?;
        self.span = span;
        self.emit(Control::If { cond, then, otherwise })
    }

    /// Appends an `if` that runs `then` if `cond` is true.
    pub fn if_true(&mut self, cond: Value, then: impl FnOnce(&mut Builder<L>) -> Built<()>) -> Built<Value> {
        self.if_else(cond, then, |_| Ok(()))
    }

    /// Appends `for var in lo..hi step step` with unroll factor `unroll` (0 unrolls completely).
    /// `range` states what is known of `var`.
    pub fn for_loop(
        &mut self,
        (lo, hi, step): (Value, Value, Value),
        unroll: u32,
        range: Range,
        body: impl FnOnce(&mut Builder<L>, Value) -> Built<()>,
    ) -> Built<Value> {
        let span = self.span;
        let op = Var::LoopVar { min: range.min, max: range.max.unwrap_or(i64::MAX), div: range.div };
        let var = self.detached(op, L::Type::scalar(Scalar::I64));
        let body = self.nested(|b| body(b, var))?;
        self.span = span;
        self.emit(Control::For { var: Induction(var), lo, hi, step, unroll, body })
    }

    /// Appends the loop `while head() { body() }`.
    pub fn while_loop(
        &mut self,
        head: impl FnOnce(&mut Builder<L>) -> Built<Value>,
        body: impl FnOnce(&mut Builder<L>) -> Built<()>,
    ) -> Built<Value> {
        let span = self.span;
        self.open();
        let cond = head(self);
        let head = self.close();
        let cond = cond?;
        let body = self.nested(body)?;
        self.span = span;
        self.emit(Control::While { head, cond, body })
    }

    /// Appends a block that runs once, which [`break_out`](Self::break_out) can leave.
    pub fn once(&mut self, body: impl FnOnce(&mut Builder<L>) -> Built<()>) -> Built<Value> {
        let span = self.span;
        let body = self.nested(body)?;
        self.span = span;
        self.emit(Control::Once { body })
    }

    /// Appends a jump out of a surrounding loop or [`once`](Self::once). `depth` is the number of
    /// those between the jump and the one that it leaves. A jump is the last op of its block.
    pub fn break_out(&mut self, depth: u32) -> Built<Value> {
        self.emit(Control::Break { depth })
    }

    /// Appends a jump to the next round of a surrounding loop. `depth` counts as in
    /// [`break_out`](Self::break_out).
    pub fn next_round(&mut self, depth: u32) -> Built<Value> {
        self.emit(Control::Continue { depth })
    }

    /// Appends the end of the kernel for the thread.
    pub fn return_now(&mut self) -> Built<Value> {
        self.emit(Control::Return {})
    }

    /// Appends a role: the warps of the CTA with these threads run `body`, in which they stand for
    /// the CTA. A thread has `regs` registers, or as many as the launch gives if `regs` is 0.
    ///
    /// Roles come one after the other at the end of the kernel, and only code of all threads comes
    /// before them. Registers belong to whole warpgroups of 128 threads. If a role with registers
    /// ends within a warpgroup, the other threads of the warpgroup do nothing. Roles that share a
    /// warpgroup are nested in a role without a name, which has the registers.
    ///
    /// # Errors
    /// Fails if `body` fails. [`verify`](crate::verify::verify) checks the threads and registers of
    /// all roles together (E0244).
    pub fn role(
        &mut self,
        name: &str,
        threads: std::ops::Range<u32>,
        regs: u32,
        body: impl FnOnce(&mut Builder<L>) -> Built<()>,
    ) -> Built<Value> {
        let (span, first) = (self.span, threads.start);
        let own = threads.end.saturating_sub(first);
        let block = std::mem::replace(&mut self.kernel.block, [own, 1, 1]);
        let body = self.nested(body);
        self.kernel.block = block;
        self.span = span;
        let role =
            |name: &str, threads, regs, body| Control::Role { name: name.into(), first, threads, regs, body };
        let all = if regs > 0 { own.next_multiple_of(WARPGROUP) } else { own };
        if all == own {
            return self.emit(role(name, own, regs, body?));
        }
        let inner = role(name, own, 0, body?);
        let inner = self.nested(|b| b.emit(inner).map(drop))?;
        self.emit(role("", all, regs, inner))
    }

    /// Appends a message of each thread, with a format as that of C's `printf` and scalars.
    ///
    /// # Errors
    /// Fails if one of `args` is not a scalar (E0200).
    pub fn print(&mut self, format: &str, args: Vec<Value>) -> Built<Value> {
        self.emit(Debug::Print { format: format.into(), args })
    }

    /// Appends the end of the kernel with an error.
    pub fn trap(&mut self) -> Built<Value> {
        self.emit(Debug::Trap {})
    }

    /// Appends the end of the kernel with an error that says `text` if `cond` is false.
    ///
    /// # Errors
    /// Fails if `cond` is not a `bool` (E0200).
    pub fn assert(&mut self, cond: Value, text: &str) -> Built<Value> {
        self.emit(Debug::Assert { cond, text: text.into() })
    }

    /// Collects the ops that `f` adds in a block of their own.
    pub fn nested(&mut self, f: impl FnOnce(&mut Builder<L>) -> Built<()>) -> Built<Block> {
        self.open();
        let result = f(self);
        let block = self.close();
        result.map(|()| block)
    }
}

/// Loops whose bounds are symbolic integers.
impl<L: TensorLevel> Builder<L> {
    /// Appends a loop over `range` by `step` (> 0), with unroll factor `unroll` (0 unrolls
    /// completely). `body` gets the loop's variable as a symbol. What is known of it follows from
    /// the bounds.
    ///
    /// # Errors
    /// Fails if `body` fails.
    pub fn for_each(
        &mut self,
        range: std::ops::Range<Int>,
        step: Int,
        unroll: u32,
        body: impl FnOnce(&mut Builder<L>, Int) -> Built<()>,
    ) -> Built<Value> {
        let known = Range::of(&range.start, &range.end, &step);
        let bounds = (self.index(range.start)?, self.index(range.end)?, self.index(step)?);
        self.for_loop(bounds, unroll, known, |b, var| {
            let var = b.symbol(var)?;
            body(b, var)
        })
    }
}
