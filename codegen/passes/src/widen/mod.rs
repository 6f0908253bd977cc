//! Rounds of a loop that cannot disturb each other become one round over wider tensors.
//!
//! `for i in lo..hi unroll(n)` becomes a loop of step `n` whose tensors have one more mode, `n` rounds: each load or
//! `ld_reduce` is one op over all rounds, so all are issued before the first store. Rounds that are not whole, because the
//! loop ends or a bound cuts one of them, run one after another as they were; so the wide body has no bounds:
//!
//! ```text
//! for i in lo..hi step n*step {
//!     if i + (n-1)*step < hi && every element of the n rounds exists { wide } else { for j in i..min(i + n*step, hi) { body } }
//! }
//! ```
//!
//! A body qualifies if it is straight-line code whose accesses move linearly with the round, and no round accesses what
//! another writes; any other loop keeps its hint for LLVM. That distinct tensor parameters do not overlap is assumed.

mod copy;
mod plan;

use crate::edit::{Action, Editor, Emit, Rewrite, constant, rewrite};
use crate::report::Widened;
use crate::{Options, Report};
use copy::Wide;
use plan::{Loop, Plan, plan};
use weft_ir::builder::Built;
use weft_ir::diag::Diagnostic;
use weft_ir::{BinOp, CmpOp, Int, Kernel, Op, Value};

/// The pass.
pub(crate) fn run(kernel: Kernel, _: &Options, report: &mut Report) -> Result<Kernel, Vec<Diagnostic>> {
    rewrite(kernel, &mut Widen { report })
}

struct Widen<'a> {
    report: &'a mut Report,
}

impl Rewrite for Widen<'_> {
    fn op(&mut self, e: &mut Editor, v: Value) -> Built<Action> {
        let k = e.b.kernel();
        if !matches!(k.op(v), Op::For { unroll, .. } if *unroll != 1) {
            return Ok(Action::Keep);
        }
        let (kernel, span) = (k.name.clone(), k.insts[v].span);
        let mut note =
            |rounds, why| self.report.loops.push(Widened { kernel: kernel.clone(), span, rounds, why });
        let Some(l) = Loop::new(k, k.op(v)) else { return Ok(Action::Keep) };
        match plan(k, &l) {
            Ok(plan) => {
                note(plan.rounds, plan.fewer.clone());
                emit(e, &l, &plan)?;
                Ok(Action::Drop)
            }
            Err(why) => {
                note(1, Some(why));
                Ok(Action::Keep)
            }
        }
    }
}

fn emit(e: &mut Editor, l: &Loop, plan: &Plan) -> Built<()> {
    let rounds = i64::from(plan.rounds);
    if l.trip == Some(rounds) {
        let start = e.b.symbol(l.lo)?;
        return round(e, l, plan, l.lo, &start);
    }
    let op = e.b.kernel().op(l.var).clone();
    let Op::LoopVar { min, max, div } = op else { return Ok(()) };
    let var = e.b.loop_var(min, max, div);
    let start = e.b.symbol(var)?;
    e.b.open();
    let result = round(e, l, plan, var, &start);
    let body = e.b.close();
    result?;
    let step = match constant(e.b.kernel(), l.step).and_then(|s| s.checked_mul(rounds)) {
        Some(step) => e.b.i64(step)?,
        None => e.b.index(&l.stride * rounds)?,
    };
    e.b.rounds(var, [l.lo, l.hi, step], 1, body).map(drop)
}

/// All rounds from `start`, the value of `var`, on.
fn round(e: &mut Editor, l: &Loop, plan: &Plan, var: Value, start: &Int) -> Built<()> {
    let rounds = i64::from(plan.rounds);
    let divides = l.trip.is_some_and(|trip| trip % rounds == 0);
    let mut wide = Wide::new(l, plan, start);
    wide.same(e)?;
    let mut tests = Vec::new();
    if !divides {
        let last = e.b.index(start + &l.stride * (rounds - 1))?;
        tests.push(e.b.compare(CmpOp::Lt, last, l.hi)?);
    }
    for (top, limit) in &plan.tests {
        tests.push(e.b.less(&wide.int(top, 0), &wide.int(limit, 0))?);
    }
    let Some(cond) = e.b.all(tests)? else { return wide.emit(e) };
    e.b.open();
    let result = wide.emit(e);
    let then = e.b.close();
    result?;
    let otherwise = e.b.nested(|b| {
        let mut end = b.index(start + &l.stride * rounds)?;
        if !divides {
            end = b.binary(BinOp::Min, end, l.hi)?;
        }
        b.rounds(l.var, [var, end, l.step], 1, l.body.clone()).map(drop)
    })?;
    e.b.emit(Op::If { cond, then, otherwise }).map(drop)
}
