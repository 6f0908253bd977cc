//! Waits for and tests of this PE's own variables.
//!
//! NVSHMEM's functions also make writes of the network visible, so they are used wherever there may
//! be a network. With a limit on polls, the function that tests is called in a loop. The functions
//! use volatile loads without order. A fence after them prevents later loads from reading old data
//! from a cache (observed on an H200: a part of a line that an earlier load had fetched).

use super::library::{call, comparison, waited_name};
use super::{RemotePass, address};
use crate::codes::NO_FUNCTION;
use crate::edit::{Action, Editor, Emit};
use crate::{Options, Transport, teams};
use weft_ir::builder::{Built, Range};
use weft_ir::diag::{Diagnostic, Span};
use weft_ir::mixed::{Builder, Type};
use weft_ir::{
    Access, Arith, BinOp, CmpOp, Debug, Int, Layout, LocalId, Scalar, Scope, Sem, Space, Team, TeamRef,
};
use weft_ir::{Thread, Value, ValueType, WaitFor};

const I64: Type = Type::Scalar(Scalar::I64);

/// The variables, values and comparison of a wait.
pub(super) struct Wait<'a> {
    pub vars: Value,
    pub elem: Scalar,
    pub cmp: CmpOp,
    pub value: Value,
    pub which: WaitFor,
    pub status: Option<Value>,
    pub indices: Option<Value>,
    pub span: Span,
    pub options: &'a Options,
}

impl RemotePass<'_> {
    fn near_only(&self) -> bool {
        self.options.transport == Transport::P2p
    }

    pub(super) fn signal_fetch(&mut self, e: &mut Editor, signal: Value) -> Built<Action> {
        let b = &mut e.b;
        if self.near_only() {
            return load(b, signal, Sem::Acquire, Scope::Sys).map(Action::Become);
        }
        let at = address(b, signal)?;
        let value = call(b, "nvshmem_signal_fetch", vec![at], Type::Scalar(Scalar::U64))?;
        acquire(b)?;
        Ok(Action::Become(value))
    }

    pub(super) fn signal_wait(
        &mut self,
        e: &mut Editor,
        signal: Value,
        cmp: CmpOp,
        value: Value,
        span: Span,
    ) -> Built<Action> {
        let (b, near, options) = (&mut e.b, self.near_only(), self.options);
        if near || options.bounds_waits() {
            let elem = b.ty(signal).elem().unwrap_or(Scalar::U64);
            let (vars, which) = (signal, WaitFor::One);
            let wait = Wait { vars, elem, cmp, value, which, status: None, indices: None, span, options };
            wait.until(b, near)?;
            return load(b, signal, Sem::Acquire, Scope::Sys).map(Action::Become);
        }
        let (at, cmp) = (address(b, signal)?, b.i32(comparison(cmp))?);
        let function = "nvshmem_signal_wait_until";
        let value = call(b, function, vec![at, cmp, value], Type::Scalar(Scalar::U64))?;
        acquire(b)?;
        Ok(Action::Become(value))
    }

    /// Lowers waits for and tests of variables.
    pub(super) fn wait(&mut self, e: &mut Editor, wait: &Wait<'_>, test: bool) -> Built<Action> {
        let (b, near) = (&mut e.b, self.near_only());
        let found = match (test, near) {
            (true, true) => wait.look(b)?,
            (true, false) => wait.call(b, true)?,
            (false, false) if !self.options.bounds_waits() => wait.call(b, false)?,
            (false, near) => wait.until(b, near)?,
        };
        match (wait.which, test) {
            (WaitFor::One | WaitFor::All, false) => Ok(Action::Drop),
            (WaitFor::One | WaitFor::All, true) => {
                let zero = b.zero(&b.ty(found).clone())?;
                b.compare(CmpOp::Ne, found, zero).map(Action::Become)
            }
            (WaitFor::Any | WaitFor::Some, _) => Ok(Action::Become(found)),
        }
    }
}

/// Orders later accesses after the writes that an NVSHMEM function has observed.
pub(super) fn acquire(b: &mut Builder) -> Built<()> {
    b.emit(Thread::Fence { sem: Sem::AcqRel, scope: Scope::Sys }).map(drop)
}

fn load(b: &mut Builder, place: Value, sem: Sem, scope: Scope) -> Built<Value> {
    b.emit(Access::Load { place, sem, scope })
}

impl Wait<'_> {
    fn count(&self, b: &Builder) -> Int {
        b.ty(self.vars).tensor().map_or(Int::ONE, |t| t.layout.size())
    }

    /// Calls NVSHMEM's function that waits or tests. The result is an `i32` for `one` and `all`,
    /// and otherwise an `i64`.
    fn call(&self, b: &mut Builder, test: bool) -> Built<Value> {
        let Some(ty) = waited_name(self.elem) else {
            let message = format!("a wait on {} does not exist", self.elem);
            return Err(Diagnostic::error(NO_FUNCTION, self.span, message)
                .help("wait on integers of 16, 32 or 64 bits"));
        };
        let each = b.ty(self.value).tensor().is_some();
        let verb = if test { "test" } else { "wait_until" };
        let which = if self.which == WaitFor::One { String::new() } else { format!("_{}", self.which) };
        let function = format!("nvshmem_{ty}_{verb}{which}{}", if each { "_vector" } else { "" });
        let mut args = vec![address(b, self.vars)?];
        if self.which != WaitFor::One {
            args.push(b.index(self.count(b))?);
            if let Some(indices) = self.indices {
                args.push(address(b, indices)?);
            }
            args.push(match self.status {
                Some(status) => address(b, status)?,
                None => {
                    let null = b.i64(0)?;
                    b.address(null, Space::Global)?
                }
            });
        }
        args.push(b.i32(comparison(self.cmp))?);
        args.push(if each { address(b, self.value)? } else { self.value });
        let result = match (self.which, test) {
            (WaitFor::One | WaitFor::All, false) => Type::Unit,
            (WaitFor::One | WaitFor::All, true) => Type::Scalar(Scalar::I32),
            _ => I64,
        };
        let found = call(b, &function, args, result)?;
        acquire(b).map(|()| found)
    }

    /// Polls until there is a result, or nothing to wait for, or the limit of polls is reached. The
    /// result is that of `look`.
    fn until(&self, b: &mut Builder, near: bool) -> Built<Value> {
        let ty = match self.which {
            WaitFor::One | WaitFor::All => Type::Scalar(Scalar::I32),
            _ => I64,
        };
        let found = b.local("found", ty);
        // `all` of no variables holds, and `any` and `some` of no variables do not wait.
        let empty = match (self.which, self.status) {
            (WaitFor::Any | WaitFor::Some, Some(status)) => Some(self.nothing_left(b, status)?),
            _ => None,
        };
        let polls = teams::Polls::new(b, self.options.debug_waits)?;
        b.while_loop(
            |b| {
                let now = if near { self.look(b)? } else { self.call(b, true)? };
                b.set(found, now)?;
                let zero = b.zero(&b.ty(now).clone())?;
                let go_on = match self.which {
                    WaitFor::Any => b.compare(CmpOp::Lt, now, zero)?,
                    _ => b.compare(CmpOp::Eq, now, zero)?,
                };
                match empty {
                    Some(empty) => b.binary(BinOp::And, go_on, empty),
                    None => Ok(go_on),
                }
            },
            |b| polls.count(b, |b| self.give_up(b)),
        )?;
        b.get(found)
    }

    fn give_up(&self, b: &mut Builder) -> Built<()> {
        let place = teams::place(self.options, self.span, b);
        let mut args = vec![b.emit(Team::MyPe { team: TeamRef::WORLD })?];
        let mut values = String::new();
        if self.which == WaitFor::One {
            let have = load(b, self.vars, Sem::Relaxed, Scope::Sys)?;
            for v in [have, self.value] {
                args.push(b.convert(v, Scalar::I64)?);
            }
            values = format!(": it is %ld, and must be {} %ld", sign(self.cmp));
        }
        let format = format!("weft: PE %d waits for a variable at {place}{values}\n");
        b.emit(Debug::Print { format: format.into(), args })?;
        b.emit(Debug::Trap {}).map(drop)
    }

    /// Tests once by loads. The result is that of [`call`](Wait::call) for a test.
    fn look(&self, b: &mut Builder) -> Built<Value> {
        let whole = self.which;
        let start = match whole {
            WaitFor::One => {
                let holds = self.holds(b, &Int::ZERO)?;
                return b.convert(holds, Scalar::I32);
            }
            WaitFor::All => b.i32(1)?,
            WaitFor::Any => b.i64(-1)?,
            WaitFor::Some => b.i64(0)?,
        };
        let found = b.local("found", b.ty(start).clone());
        b.set(found, start)?;
        let count = self.count(b);
        let range = (b.i64(0)?, b.index(count)?, b.i64(1)?);
        b.for_loop(range, 1, Range { min: 0, max: None, div: 1 }, |b, var| {
            let i = b.symbol(var)?;
            let test = |b: &mut Builder| {
                let holds = self.holds(b, &i)?;
                let (met, before) = (whole != WaitFor::All, b.get(found)?);
                let next = match whole {
                    WaitFor::Any => var,
                    WaitFor::Some => {
                        let one = b.i64(1)?;
                        b.binary(BinOp::Add, before, one)?
                    }
                    _ => b.i32(0)?,
                };
                let now = if met { b.select(holds, next, before)? } else { b.select(holds, before, next)? };
                if let Some(indices) = self.indices {
                    b.if_true(holds, |b| {
                        let at = b.symbol(before)?;
                        let slot = element(b, indices, &at)?;
                        let value = b.emit_as(Arith::Bitcast { a: var }, Type::Scalar(Scalar::U64))?;
                        b.store(slot, value).map(drop)
                    })?;
                }
                b.set(found, now).map(drop)
            };
            match self.status {
                None => test(b),
                Some(status) => {
                    let cond = left_in(b, status, &i)?;
                    b.if_true(cond, test).map(drop)
                }
            }
        })?;
        b.get(found)
    }

    /// Whether one variable compares true.
    fn holds(&self, b: &mut Builder, i: &Int) -> Built<Value> {
        let var = element(b, self.vars, i)?;
        let have = load(b, var, Sem::Acquire, Scope::Sys)?;
        let value = match b.ty(self.value).tensor() {
            Some(_) => {
                let place = element(b, self.value, i)?;
                b.load(place)?
            }
            None => self.value,
        };
        b.compare(self.cmp, have, value)
    }

    /// Whether the status leaves out all variables.
    fn nothing_left(&self, b: &mut Builder, status: Value) -> Built<Value> {
        let any: LocalId = b.local("waits", Type::Scalar(Scalar::Bool));
        let no = b.zero(&Type::Scalar(Scalar::Bool))?;
        b.set(any, no)?;
        let count = self.count(b);
        let range = (b.i64(0)?, b.index(count)?, b.i64(1)?);
        b.for_loop(range, 1, Range { min: 0, max: None, div: 1 }, |b, var| {
            let i = b.symbol(var)?;
            let here = left_in(b, status, &i)?;
            let before = b.get(any)?;
            let now = b.binary(BinOp::Or, before, here)?;
            b.set(any, now).map(drop)
        })?;
        b.get(any)
    }
}

/// An element of a contiguous list.
fn element(b: &mut Builder, list: Value, i: &Int) -> Built<Value> {
    b.view(list, i.clone(), Layout::one(), vec![])
}

fn left_in(b: &mut Builder, status: Value, i: &Int) -> Built<Value> {
    let place = element(b, status, i)?;
    let status = b.load(place)?;
    let zero = b.i32(0)?;
    b.compare(CmpOp::Eq, status, zero)
}

fn sign(cmp: CmpOp) -> &'static str {
    match cmp {
        CmpOp::Eq => "==",
        CmpOp::Ne => "!=",
        CmpOp::Lt => "<",
        CmpOp::Le => "<=",
        CmpOp::Gt => ">",
        CmpOp::Ge => ">=",
    }
}
