//! Tests with random code of loops, conditions and jumps, which is executed by a plain recursive
//! program, as a kernel at the tensor level, and after the passes.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use common::machine::{Arg, World};
use common::{layout, lower, module};
use proptest::prelude::*;
use weft_ir::builder::{Built, Range};
use weft_ir::*;
use weft_passes::Lowering;

const THREADS: i64 = 4;
/// The number of elements of a thread.
const OWN: i64 = 64;

/// An action of a thread. A thread counts its steps, and its conditions depend on that number.
#[derive(Clone, Debug)]
enum Action {
    /// Counts a step and writes the number. The innermost `for` moves the position by `by` in each
    /// round.
    Write {
        at: i64,
        by: i64,
    },
    /// Takes one of two branches, depending on the steps and the thread's index.
    If(i64, Vec<Action>, Vec<Action>),
    For {
        lo: i64,
        trip: i64,
        step: i64,
        body: Vec<Action>,
    },
    While {
        trip: i64,
        body: Vec<Action>,
    },
    Once(Vec<Action>),
    /// Jumps to the item that is this many levels further out, if there is one.
    Break(usize),
    Continue(usize),
    Return,
}

fn code() -> impl Strategy<Value = Vec<Action>> {
    let write = (0i64..20, 0i64..4).prop_map(|(at, by)| Action::Write { at, by });
    let leaf = prop_oneof![
        6 => write,
        2 => (0usize..4).prop_map(Action::Break),
        2 => (0usize..4).prop_map(Action::Continue),
        1 => Just(Action::Return),
    ];
    let block = |inner: BoxedStrategy<Action>| prop::collection::vec(inner, 1..5);
    let one = leaf.prop_recursive(5, 40, 4, move |inner| {
        prop_oneof![
            4 => (0i64..4, block(inner.clone()), block(inner.clone())).prop_map(|(c, a, b)| Action::If(c, a, b)),
            2 => (0i64..3, 0i64..5, 1i64..3, block(inner.clone()))
                .prop_map(|(lo, trip, step, body)| Action::For { lo, trip, step, body }),
            2 => (0i64..5, block(inner.clone())).prop_map(|(trip, body)| Action::While { trip, body }),
            1 => block(inner).prop_map(Action::Once),
        ]
    });
    prop::collection::vec(one, 1..6)
}

/// The place at which a thread continues.
#[derive(PartialEq)]
enum Next {
    Here,
    Break(usize),
    Continue(usize),
    Return,
}

/// A thread that executes the actions directly.
struct Thread {
    index: i64,
    steps: i64,
    memory: Vec<i32>,
    /// The surrounding items: the variable of a `for`, and whether the item is a loop.
    around: Vec<(Option<i64>, bool)>,
}

impl Thread {
    fn block(&mut self, code: &[Action]) -> Next {
        code.iter().map(|d| self.step(d)).find(|next| *next != Next::Here).unwrap_or(Next::Here)
    }

    fn step(&mut self, d: &Action) -> Next {
        match d {
            Action::Write { at, by } => {
                self.steps += 1;
                let round = self.around.iter().rev().find_map(|(var, _)| *var).unwrap_or(0);
                self.memory[(at + by * round) as usize] = self.steps as i32;
                Next::Here
            }
            Action::If(c, then, otherwise) => {
                let way = if (self.steps + self.index) % 4 == *c { then } else { otherwise };
                self.block(way)
            }
            Action::For { lo, trip, step, body } => {
                let values: Vec<i64> = (*lo..lo + trip * step).step_by(*step as usize).collect();
                self.rounds(values.into_iter().map(Some), body)
            }
            Action::While { trip, body } => self.rounds((0..*trip).map(|_| None), body),
            Action::Once(body) => {
                self.around.push((None, false));
                let next = self.block(body);
                self.around.pop();
                outwards(next)
            }
            Action::Break(depth) if *depth < self.around.len() => Next::Break(*depth),
            Action::Continue(depth) if is_loop(&self.around, *depth) => Next::Continue(*depth),
            Action::Break(_) | Action::Continue(_) => Next::Here,
            Action::Return => Next::Return,
        }
    }

    fn rounds(&mut self, values: impl Iterator<Item = Option<i64>>, body: &[Action]) -> Next {
        for value in values {
            self.around.push((value, true));
            let next = self.block(body);
            self.around.pop();
            match next {
                Next::Here | Next::Continue(0) => {}
                next => return outwards(next),
            }
        }
        Next::Here
    }
}

/// A jump out of this level as seen from one level further out.
fn outwards(next: Next) -> Next {
    match next {
        Next::Break(0) => Next::Here,
        Next::Break(n) => Next::Break(n - 1),
        Next::Continue(n) => Next::Continue(n.saturating_sub(1)),
        Next::Here => Next::Here,
        Next::Return => Next::Return,
    }
}

fn is_loop<T>(around: &[(T, bool)], depth: usize) -> bool {
    around.iter().rev().nth(depth).is_some_and(|(_, is_loop)| *is_loop)
}

/// A kernel under construction.
struct Maker {
    x: Value,
    steps: LocalId,
    thread: Value,
    around: Vec<(Option<Value>, bool)>,
}

impl Maker {
    /// Emits ops into the open block, up to the first jump.
    fn block(&mut self, b: &mut Builder, code: &[Action]) -> Built<()> {
        for d in code {
            let depth = |n: &usize| u32::try_from(*n).unwrap();
            let jump = match d {
                Action::Break(n) if *n < self.around.len() => Control::Break { depth: depth(n) },
                Action::Continue(n) if is_loop(&self.around, *n) => Control::Continue { depth: depth(n) },
                Action::Break(_) | Action::Continue(_) => continue,
                Action::Return => Control::Return {},
                other => {
                    self.step(b, other)?;
                    continue;
                }
            };
            return b.emit(jump).map(drop);
        }
        Ok(())
    }

    fn inside(&mut self, b: &mut Builder, around: (Option<Value>, bool), code: &[Action]) -> Built<()> {
        self.around.push(around);
        let made = self.block(b, code);
        self.around.pop();
        made
    }

    fn step(&mut self, b: &mut Builder, d: &Action) -> Built<()> {
        match d {
            Action::Write { at, by } => {
                let steps = count(b, self.steps)?;
                let round = self.around.iter().rev().find_map(|(var, _)| *var);
                let round = round.map_or(Ok(Int::ZERO), |var| b.symbol(var))?;
                let offset = b.symbol(self.thread)? * OWN + *at + round * *by;
                let place = b.view(self.x, offset, layout(&[1], &[1]), vec![])?;
                let value = b.convert(steps, Scalar::I32)?;
                b.store(place, value).map(drop)
            }
            Action::If(c, then, otherwise) => {
                let steps = b.get(self.steps)?;
                let sum = b.symbol(steps)? + b.symbol(self.thread)?;
                let (way, c) = (b.index(sum.rem(&Int::from(4)))?, b.int(Scalar::I64, *c)?);
                let cond = b.compare(CmpOp::Eq, way, c)?;
                let then = b.nested(|b| self.block(b, then))?;
                let otherwise = b.nested(|b| self.block(b, otherwise))?;
                b.emit(Control::If { cond, then, otherwise }).map(drop)
            }
            Action::For { lo, trip, step, body } => {
                let (min, hi) = (*lo, lo + trip * step);
                let bounds = (b.int(Scalar::I64, *lo)?, b.int(Scalar::I64, hi)?, b.int(Scalar::I64, *step)?);
                let range = Range { min, max: Some(hi), div: 1 };
                b.for_loop(bounds, 1, range, |b, i| self.inside(b, (Some(i), true), body)).map(drop)
            }
            Action::While { trip, body } => {
                let (rounds, none) = (b.local("rounds", Type::Scalar(Scalar::I64)), b.int(Scalar::I64, 0)?);
                b.set(rounds, none)?;
                let head = |b: &mut Builder| {
                    let (round, trip) = (count(b, rounds)?, b.int(Scalar::I64, *trip)?);
                    b.compare(CmpOp::Le, round, trip)
                };
                b.while_loop(head, |b| self.inside(b, (None, true), body)).map(drop)
            }
            Action::Once(body) => {
                let body = b.nested(|b| self.inside(b, (None, false), body))?;
                b.emit(Control::Once { body }).map(drop)
            }
            Action::Break(_) | Action::Continue(_) | Action::Return => Ok(()),
        }
    }
}

/// Adds one to a variable and returns the sum.
fn count(b: &mut Builder, local: LocalId) -> Built<Value> {
    let (old, one) = (b.get(local)?, b.int(Scalar::I64, 1)?);
    let new = b.binary(BinOp::Add, old, one)?;
    b.set(local, new)?;
    Ok(new)
}

fn kernel(code: &[Action]) -> Built<Kernel> {
    let mut b = Builder::new("jumps", [THREADS as u32, 1, 1]);
    let whole = layout(&[THREADS * OWN], &[1]);
    let x = b.param("x", Builder::tensor(Scalar::I32, Space::Global, whole, 16))?;
    let thread = b.special(Sreg::ThreadIdx, Dim::X)?;
    let (steps, none) = (b.local("steps", Type::Scalar(Scalar::I64)), b.int(Scalar::I64, 0)?);
    b.set(steps, none)?;
    Maker { x, steps, thread, around: vec![] }.block(&mut b, code)?;
    Ok(b.finish())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(800))]

    #[test]
    fn jumps_have_the_right_targets(code in code()) {
        let mut want = Vec::new();
        for index in 0..THREADS {
            let memory = vec![-1; OWN as usize];
            let mut thread = Thread { index, steps: 0, memory, around: vec![] };
            thread.block(&code);
            want.extend(thread.memory);
        }
        let want: Vec<u8> = want.into_iter().flat_map(i32::to_le_bytes).collect();
        let kernel = kernel(&code).unwrap();
        let args = vec![Arg::Memory(vec![vec![0xff; want.len()]], 16)];
        let (mut written, mut lowered) = (World::new(1, [1, 1, 1], args.clone()), World::new(1, [1, 1, 1], args));
        lowered.launch_lowered(&lower(kernel.clone(), Lowering::Multimem));
        written.launch(&module(kernel).kernels[0]);
        prop_assert!(written.memory(0, 0) == want, "as written");
        prop_assert!(lowered.memory(0, 0) == want, "as the passes leave it");
    }
}
