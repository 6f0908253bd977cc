//! `put`, `get` and `put_signal`. Layouts are split into pieces, which NVSHMEM's functions or an
//! inlined copy move.

use super::amo::{call_signal_op, raise_after};
use super::copy::{Copied, Threads, copy};
use super::library::{self, call, callable_group, carrier, of_group, signal_op};
use super::pair::{Pair, PiecePosition};
use super::{RemotePass, address};
use crate::Transport;
use crate::edit::{Action, Editor, Emit};
use crate::report::{Moved, Pieces, Transfer};
use std::borrow::Cow;
use weft_ir::builder::Built;
use weft_ir::diag::Span;
use weft_ir::mixed::{Builder, Type};
use weft_ir::{CmpOp, Group, Int, Memory, Scalar, SignalKind, Sreg, TeamRef, Value, ValueType};

/// The size in bytes from which all threads of a CTA move a piece together, and the size for those
/// of a warp. Each thread moves a smaller piece by itself.
const FOR_BLOCK: i64 = 2048;
const FOR_WARP: i64 = 128;

/// A transfer.
pub(super) struct Rma {
    /// The name of the operation in the language.
    pub name: Cow<'static, str>,
    pub get: bool,
    pub dst: Value,
    pub src: Value,
    pub nbi: bool,
    pub group: Group,
    /// The signal, its update, and the operand of the update.
    pub signal: Option<(Value, SignalKind, Value)>,
    pub pe: Value,
    pub team: TeamRef,
}

impl Rma {
    /// The side on the other PE.
    fn remote(&self) -> Value {
        if self.get { self.src } else { self.dst }
    }

    /// The name of the function that moves bytes.
    fn function(&self, group: Group, signal: bool) -> String {
        let verb = if self.get { "getmem" } else { "putmem" };
        let signal = if signal { "_signal" } else { "" };
        of_group(&format!("{verb}{signal}{}", if self.nbi { "_nbi" } else { "" }), group)
    }
}

impl RemotePass<'_> {
    pub(super) fn transfer(&mut self, e: &mut Editor, rma: &Rma, span: Span) -> Built<Action> {
        let (dst, src) = (e.b.ty(rma.dst).tensor().cloned(), e.b.ty(rma.src).tensor().cloned());
        let (Some(dst), Some(src)) = (dst, src) else { return Ok(Action::Keep) };
        let pair = Pair::new(&dst, &src, span)?;
        let mut moved = Moved::default();
        let mut copied = None;
        self.by_transport(
            e,
            (rma.remote(), rma.team, rma.pe),
            &Type::Unit,
            &mut |this, e, there| {
                copied = Some(this.near_copy(e, rma, &pair, there)?);
                e.b.i64(0)
            },
            &mut |this, e, pe| {
                let far = LibraryTransfer {
                    rma,
                    pair: &pair,
                    pe,
                    alone: this.options.transport == Transport::Nvshmem,
                };
                moved.function = Some(far.emit(&mut e.b)?);
                e.b.i64(0)
            },
        )?;
        moved.copy = copied.map(|c: Copied| (c.words, c.unaligned));
        self.report.transfers.push(Transfer {
            kernel: e.b.kernel().name.clone(),
            span,
            op: rma.name.to_string(),
            pieces: pieces(&pair, &dst.layout.to_string(), &src.layout.to_string()),
            moved,
        });
        Ok(Action::Drop)
    }

    fn near_copy(&mut self, e: &mut Editor, rma: &Rma, pair: &Pair, there: Value) -> Built<Copied> {
        let signal = match rma.signal {
            None => None,
            Some((signal, op, value)) => {
                let or_none = self.options.transport == Transport::Auto;
                Some((self.near(e, signal, rma.team, rma.pe, or_none)?.pointer, op, value))
            }
        };
        let b = &mut e.b;
        let threads = Threads::of(b, rma.group)?;
        let here = address(b, if rma.get { rma.dst } else { rma.src })?;
        let (to, from) = if rma.get { (here, there) } else { (there, here) };
        threads.meet(b)?;
        let copied = copy(b, pair, to, from, &threads)?;
        threads.meet(b)?;
        if let Some((place, op, value)) = signal {
            raise_after(b, &threads, place, op, value)?;
            threads.meet(b)?;
        }
        Ok(copied)
    }
}

fn pieces(pair: &Pair, dst: &str, src: &str) -> Pieces {
    let tuple = |f: &dyn Fn(&super::pair::Mode) -> String| {
        format!("({})", pair.rest.iter().map(f).collect::<Vec<_>>().join(","))
    };
    Pieces {
        count: pair.pieces().to_string(),
        elements: pair.run.extent.to_string(),
        bytes: (&pair.run.extent * i64::from(pair.elem)).to_string(),
        strides: (!pair.contiguous).then(|| [pair.run.dst.to_string(), pair.run.src.to_string()]),
        order: (!pair.rest.is_empty()).then(|| {
            let shape = tuple(&|m| m.extent.to_string());
            [
                format!("{shape}:{}", tuple(&|m| m.dst.to_string())),
                format!("{shape}:{}", tuple(&|m| m.src.to_string())),
            ]
        }),
        layouts: [dst.to_owned(), src.to_owned()],
        bounded: !pair.limits.is_empty(),
    }
}

/// A transfer by NVSHMEM's functions.
struct LibraryTransfer<'a> {
    rma: &'a Rma,
    pair: &'a Pair,
    pe: Value,
    /// Whether there is no copy in place. Only then NVSHMEM's strided functions are useful, because
    /// they need the other PE's address themselves.
    alone: bool,
}

impl LibraryTransfer<'_> {
    /// Emits the transfer. Returns the function that it calls.
    fn emit(&self, b: &mut Builder) -> Built<String> {
        let (rma, pair) = (self.rma, self.pair);
        let first = pair.at(&Int::ZERO);
        if pair.rest.is_empty() && pair.contiguous {
            let group = callable_group(rma.group, b);
            let function = rma.function(group, rma.signal.is_some());
            let call = |b: &mut Builder| self.bytes(b, &first, &pair.count(&first), group, rma.signal);
            let all = |b: &mut Builder| {
                if group == rma.group {
                    return call(b);
                }
                let threads = Threads::of(b, rma.group)?;
                threads.meet(b)?;
                threads.first(b, call)?;
                threads.meet(b)
            };
            if pair.limits.is_empty() {
                all(b)?;
            } else {
                // It is possible that no element exists. The signal is updated nevertheless, after
                // the earlier operations of the group, as that of a put is.
                let (count, zero) = (b.index(pair.count(&first))?, b.i64(0)?);
                let some = b.compare(CmpOp::Gt, count, zero)?;
                b.if_else(some, all, |b| {
                    let Some((signal, op, value)) = rma.signal else { return Ok(()) };
                    let threads = Threads::of(b, rma.group)?;
                    threads.meet(b)?;
                    threads.first(b, |b| {
                        library::call(b, "nvshmem_fence", vec![], Type::Unit)?;
                        call_signal_op(b, signal, op, value, self.pe).map(drop)
                    })
                })?;
            }
            return Ok(function);
        }
        let threads = Threads::of(b, rma.group)?;
        threads.meet(b)?;
        let function = if pair.contiguous {
            let group = self.share(b);
            self.distribute(b, &threads, group, &|b, at, count| self.bytes(b, at, count, group, None))?;
            rma.function(group, false)
        } else if self.alone {
            let name = format!("i{}{}", if rma.get { "get" } else { "put" }, pair.elem * 8);
            let group = self.share(b);
            let function = of_group(&name, group);
            self.distribute(b, &threads, group, &|b, at, count| self.strided(b, &function, at, count))?;
            function
        } else {
            self.elements(b, &threads)?
        };
        if let Some((signal, op, value)) = rma.signal {
            // There is no guarantee which pieces arrive before the signal, so all of them are
            // completed first.
            call(b, "nvshmem_quiet", vec![], Type::Unit)?;
            threads.meet(b)?;
            threads.first(b, |b| call_signal_op(b, signal, op, value, self.pe).map(drop))?;
        }
        threads.meet(b)?;
        Ok(function)
    }

    /// The group of threads that moves a piece.
    fn share(&self, b: &Builder) -> Group {
        let bytes =
            self.pair.run.extent.as_const().map_or(i64::MAX, |n| n.saturating_mul(self.pair.elem.into()));
        match self.rma.group {
            Group::Block if bytes >= FOR_BLOCK => Group::Block,
            Group::Block | Group::Warp if bytes >= FOR_WARP => callable_group(Group::Warp, b),
            _ => Group::Thread,
        }
    }

    /// Emits all pieces, each moved by a `group` of the threads, with the number of its existing
    /// elements.
    fn distribute(
        &self,
        b: &mut Builder,
        threads: &Threads,
        group: Group,
        body: &dyn Fn(&mut Builder, &PiecePosition, &Int) -> Built<()>,
    ) -> Built<()> {
        let groups = match (threads.group, group) {
            (all, each) if all == each => Threads { group, index: Int::ZERO, count: Int::ONE },
            (Group::Block, Group::Warp) => {
                let index = crate::teams::linear(b, Sreg::ThreadIdx)?.floor_div(&Int::from(32));
                Threads { group, index, count: Int::from(i64::from(b.kernel().threads() / 32)) }
            }
            _ => Threads { group, index: threads.index.clone(), count: threads.count.clone() },
        };
        groups.distribute(b, &self.pair.pieces(), 1, &mut |b, piece| {
            let at = self.pair.at(&piece[0]);
            let count = self.pair.count(&at);
            if self.pair.limits.is_empty() {
                return body(b, &at, &count);
            }
            let (n, zero) = (b.index(count.clone())?, b.i64(0)?);
            let some = b.compare(CmpOp::Gt, n, zero)?;
            b.if_true(some, |b| body(b, &at, &count)).map(drop)
        })
    }

    /// The addresses of a piece on this PE.
    fn sides(&self, b: &mut Builder, at: &PiecePosition) -> Built<[Value; 2]> {
        let elem = i64::from(self.pair.elem);
        let (to, from) = (address(b, self.rma.dst)?, address(b, self.rma.src)?);
        Ok([b.offset(to, &(&at.dst * elem))?, b.offset(from, &(&at.src * elem))?])
    }

    /// Moves consecutive elements.
    fn bytes(
        &self,
        b: &mut Builder,
        at: &PiecePosition,
        count: &Int,
        group: Group,
        signal: Option<(Value, SignalKind, Value)>,
    ) -> Built<()> {
        let [to, from] = self.sides(b, at)?;
        let mut args = vec![to, from, b.index(count * i64::from(self.pair.elem))?];
        if let Some((signal, op, value)) = signal {
            args.extend([address(b, signal)?, value, b.i32(signal_op(op))?]);
        }
        args.push(self.pe);
        call(b, &self.rma.function(group, signal.is_some()), args, Type::Unit).map(drop)
    }

    /// Moves elements with one stride on each side.
    fn strided(&self, b: &mut Builder, function: &str, at: &PiecePosition, count: &Int) -> Built<()> {
        let [to, from] = self.sides(b, at)?;
        let (run, pe) = (&self.pair.run, self.pe);
        let (dst, src) = (b.index(run.dst.clone())?, b.index(run.src.clone())?);
        let args = vec![to, from, dst, src, b.index(count.clone())?, pe];
        call(b, function, args, Type::Unit).map(drop)
    }

    /// Moves element by element, which every transport can do.
    fn elements(&self, b: &mut Builder, threads: &Threads) -> Built<String> {
        let (pair, rma) = (self.pair, self.rma);
        let (ty, name) = carrier(pair.elem);
        let function = format!("nvshmem_{name}_{}", if rma.get { "g" } else { "p" });
        let extent = &pair.run.extent;
        threads.distribute(b, &(pair.pieces() * extent), 1, &mut |b, i| {
            let (at, c) = (pair.at(&i[0].floor_div(extent)), i[0].rem(extent));
            let mut tests = Vec::new();
            for ((limit, start), step) in pair.limits.iter().zip(&at.positions).zip(&pair.run.positions) {
                tests.push(b.less(&(start + &c * step), &limit.limit)?);
            }
            let at = PiecePosition {
                dst: at.dst + &c * &pair.run.dst,
                src: at.src + c * &pair.run.src,
                positions: Vec::new(),
            };
            let one = |b: &mut Builder| self.one(b, &function, &at, ty);
            match b.all(tests)? {
                Some(exists) => b.if_true(exists, one).map(drop),
                None => one(b),
            }
        })?;
        Ok(function)
    }

    fn one(&self, b: &mut Builder, function: &str, at: &PiecePosition, ty: Scalar) -> Built<()> {
        let [to, from] = self.sides(b, at)?;
        let (sem, scope) = (weft_ir::Sem::Weak, weft_ir::Scope::Sys);
        if self.rma.get {
            let value = call(b, function, vec![from, self.pe], Type::Scalar(ty))?;
            return b.emit(Memory::Store { ptr: to, value, sem, scope }).map(drop);
        }
        let value = b.emit_as(Memory::Load { ptr: from, sem, scope }, Type::Scalar(ty))?;
        call(b, function, vec![to, value, self.pe], Type::Unit).map(drop)
    }
}
