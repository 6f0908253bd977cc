//! Combines rounds of a loop that are independent of each other into one round over wider tensors.
//!
//! `for i in lo..hi unroll(n)` becomes a loop of step `n` whose tensors have one more mode of `n`
//! rounds. Each load or `ld_reduce` is one op over all rounds, so that all of them are issued
//! before the first store. Incomplete groups of rounds, at the end of the loop or where a bound
//! cuts one of them, run one after another as before. The wide body therefore has no bounds.
//! Positions only increase, so the place where a bound cuts is found once, before the loop, from
//! its end:
//!
//! ```text
//! whole = hi; while lo < whole && an element of round whole-1 does not exist { whole -= 1 }
//! last = lo + (max(whole, lo) - lo) / n * n
//! for i in lo..last step n { wide }
//! for j in last..hi { body }
//! ```
//!
//! A loop with another step, or whose bounds depend on values that its body computes, tests in each
//! wide round:
//!
//! ```text
//! for i in lo..hi step n*step {
//!     if i + (n-1)*step < hi && every element of the n rounds exists { wide } else { for j in i..min(i + n*step, hi) { body } }
//! }
//! ```
//!
//! A body qualifies if it is straight-line code whose accesses move linearly with the round, and no
//! round accesses what another writes. Any other loop keeps its hint for LLVM. The pass assumes
//! that distinct tensor parameters do not overlap.

mod copy;
mod plan;

use crate::edit::{Action, Editor, Emit, Rewrite, constant, nested, rewrite};
use crate::report::Widened;
use crate::{Options, Report};
use copy::Wide;
use plan::{Loop, Plan, plan};
use weft_ir::builder::Built;
use weft_ir::diag::Diagnostic;
use weft_ir::mixed::{Kernel, Type};
use weft_ir::{BinOp, CmpOp, Control, Int, Operation, Scalar, Value, Var};

/// Runs the pass on a kernel.
pub(crate) fn run(kernel: Kernel, _: &Options, report: &mut Report) -> Result<Kernel, Vec<Diagnostic>> {
    rewrite(kernel, &mut Widen { report })
}

struct Widen<'a> {
    report: &'a mut Report,
}

impl Rewrite for Widen<'_> {
    fn op(&mut self, e: &mut Editor, v: Value) -> Built<Action> {
        let k = e.b.kernel();
        if !matches!(k.op(v).control(), Some(Control::For { unroll, .. }) if *unroll != 1) {
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
    let Some(&Var::LoopVar { min, max, div }) = e.b.kernel().op(l.var).var() else { return Ok(()) };
    if l.stride.is(1) && !plan.computed_tests() {
        let var = e.b.loop_var(min, max, div);
        return split(e, l, plan, var);
    }
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

/// Emits a loop over the complete groups of rounds, counted by `var`, and a loop over the other
/// rounds one by one.
fn split(e: &mut Editor, l: &Loop, plan: &Plan, var: Value) -> Built<()> {
    let rounds = i64::from(plan.rounds);
    let whole = whole(e, l, plan)?;
    let whole = e.b.binary(BinOp::Max, whole, l.lo)?;
    let (first, end) = (e.b.symbol(l.lo)?, e.b.symbol(whole)?);
    let last = e.b.index(&first + (end - &first).floor_div(&Int::from(rounds)) * rounds)?;
    let start = e.b.symbol(var)?;
    let wide = nested(e, |e| {
        let mut wide = Wide::new(l, plan, &start);
        wide.same(e)?;
        wide.emit(e)
    })?;
    let step = e.b.i64(rounds)?;
    e.b.rounds(var, [l.lo, last, step], 1, wide)?;
    if l.trip.is_some_and(|trip| trip % rounds == 0) && plan.tests.is_empty() {
        return Ok(());
    }
    e.b.rounds(l.var, [last, l.hi, l.step], 1, l.body.clone()).map(drop)
}

/// The round before which all rounds are whole.
fn whole(e: &mut Editor, l: &Loop, plan: &Plan) -> Built<Value> {
    if plan.tests.is_empty() {
        return Ok(l.hi);
    }
    let whole = e.b.local("whole", Type::Scalar(Scalar::I64));
    e.b.set(whole, l.hi)?;
    e.b.while_loop(
        |b| {
            let end = b.get(whole)?;
            let last = b.symbol(end)? - 1;
            let round = Wide::new(l, plan, &last);
            let mut cut = None;
            for test in &plan.tests {
                let (at, limit) = (b.index(round.int(&test.one, 0))?, b.index(round.int(&test.limit, 0))?);
                let cuts = b.compare(CmpOp::Ge, at, limit)?;
                cut = Some(match cut {
                    None => cuts,
                    Some(before) => b.binary(BinOp::Or, before, cuts)?,
                });
            }
            let more = b.compare(CmpOp::Lt, l.lo, end)?;
            Ok(b.all(cut.into_iter().chain([more]).collect())?.unwrap_or(more))
        },
        |b| {
            let end = b.get(whole)?;
            let before = b.index(b.symbol(end)? - 1)?;
            b.set(whole, before).map(drop)
        },
    )?;
    e.b.get(whole)
}

/// Emits all rounds of a group from `start`, which is the value of `var`.
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
    for test in &plan.tests {
        tests.push(e.b.less(&wide.int(&test.all, 0), &wide.int(&test.limit, 0))?);
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
    e.b.emit(Control::If { cond, then, otherwise }).map(drop)
}
