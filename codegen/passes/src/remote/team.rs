//! Collective operations of a team's PEs by NVSHMEM's collectives, which have workspaces of their
//! own.

use super::copy::Threads;
use super::library::{call, callable_group, of_group, reduction};
use super::wait::acquire;
use super::{RemotePass, address};
use crate::Transport;
use crate::codes::{NEEDS_LIBRARY, NO_FUNCTION};
use crate::edit::{Action, Editor, Emit, nested};
use std::borrow::Cow;
use weft_ir::builder::Built;
use weft_ir::diag::{Diagnostic, Span};
use weft_ir::mixed::{Builder, Type};
use weft_ir::{
    BinOp, Block, CmpOp, Control, Group, Int, MoveKind, RedOp, Scalar, Team, TeamRef, Value, ValueType,
};

const I32: Type = Type::Scalar(Scalar::I32);

/// A collective operation of a team's PEs.
pub(super) struct Collective {
    /// The name of the operation in the language.
    pub name: Cow<'static, str>,
    /// The team whose PEs take part.
    pub team: TeamRef,
    /// The threads that call it together.
    pub group: Group,
    /// The kind of exchange that is made.
    pub what: Exchange,
}

/// What a collective exchanges.
#[derive(Clone, Copy)]
pub(super) enum Exchange {
    /// No data. The PEs wait for each other, and also for their remote operations if it is a
    /// barrier.
    Sync { barrier: bool },
    /// A reduction, of which each PE gets the whole result or its part.
    Reduce { dst: Value, src: Value, op: RedOp, scatter: bool },
    /// An exchange of unchanged data.
    Move { kind: MoveKind, dst: Value, src: Value, root: Option<Value> },
}

impl Collective {
    /// The advice if NVSHMEM must not be used.
    fn help(&self) -> &'static str {
        match self.what {
            Exchange::Sync { .. } => {
                "compile with `--transport auto` or `nvshmem`, or pass a barrier parameter: `barrier(sync, team, acq_rel, sys)`"
            }
            Exchange::Reduce { .. } | Exchange::Move { .. } => {
                "compile with `--transport auto` or `nvshmem`, or use the collectives of `weft::tile`"
            }
        }
    }
}

impl RemotePass<'_> {
    pub(super) fn collective(&mut self, e: &mut Editor, op: &Collective, span: Span) -> Built<Action> {
        if self.options.transport == Transport::P2p {
            return Err(needs_library(&op.name, op.help(), span));
        }
        let asked = op.group;
        let group = callable_group(asked, &e.b);
        let threads = Threads::of(&mut e.b, asked)?;
        if group == asked {
            self.function(e, op, group, span)?;
        } else {
            threads.meet(&mut e.b)?;
            let cond = threads.is_first(&mut e.b)?;
            let then = nested(e, |e| self.function(e, op, group, span))?;
            e.b.emit(Control::If { cond, then, otherwise: Block::default() })?;
        }
        // Any of the threads may have been the one that observed the others' arrival.
        acquire(&mut e.b)?;
        threads.meet(&mut e.b)?;
        Ok(Action::Drop)
    }

    /// Calls the function of a collective.
    fn function(&mut self, e: &mut Editor, op: &Collective, group: Group, span: Span) -> Built<()> {
        let team = op.team;
        match op.what {
            Exchange::Sync { barrier } => {
                let verb = if barrier { "barrier" } else { "sync" };
                if team == TeamRef::WORLD {
                    call(&mut e.b, &of_group(&format!("{verb}_all"), group), vec![], Type::Unit)?;
                } else {
                    let verb = if barrier { verb } else { "team_sync" };
                    let handle = self.handle(e, team)?;
                    call(&mut e.b, &of_group(verb, group), vec![handle], I32)?;
                }
                Ok(())
            }
            Exchange::Reduce { dst, src, op, scatter } => {
                let function = reduce_name((op, scatter), &e.b, dst, group, span)?;
                let count = size(&e.b, dst);
                self.exchange(e, &function, (dst, src), count, team, None)
            }
            Exchange::Move { kind, dst, src, root } => {
                let (name, size) = match kind {
                    MoveKind::Fcollect => ("fcollectmem", size(&e.b, src)),
                    MoveKind::Alltoall => {
                        let n = e.b.emit(Team::NPes { team })?;
                        ("alltoallmem", size(&e.b, src).floor_div(&e.b.symbol(n)?))
                    }
                    MoveKind::Broadcast => ("broadcastmem", size(&e.b, src).min(&size(&e.b, dst))),
                };
                let bytes = size * i64::from(e.b.ty(src).elem().map_or(1, Scalar::bytes));
                self.exchange(e, &of_group(name, group), (dst, src), bytes, team, root)
            }
        }
    }

    fn exchange(
        &mut self,
        e: &mut Editor,
        function: &str,
        (dst, src): (Value, Value),
        count: Int,
        team: TeamRef,
        root: Option<Value>,
    ) -> Built<()> {
        let handle = self.handle(e, team)?;
        let (to, from) = (address(&mut e.b, dst)?, address(&mut e.b, src)?);
        let mut args = vec![handle, to, from, e.b.index(count)?];
        args.extend(root);
        call(&mut e.b, function, args, I32).map(drop)
    }

    /// The rank of a PE in another team.
    pub(super) fn translate(
        &mut self,
        e: &mut Editor,
        pe: Value,
        (from, to): (TeamRef, TeamRef),
        span: Span,
    ) -> Built<Action> {
        if from == to {
            return self.member(e, pe, from).map(Action::Become);
        }
        if self.options.transport == Transport::P2p {
            let help = "compile with `--transport auto` or `nvshmem`, or pass the rank as an argument";
            let message = "`translate_pe` needs NVSHMEM, which knows the teams";
            return Err(Diagnostic::error(NEEDS_LIBRARY, span, message).help(help));
        }
        let (from, to) = (self.handle(e, from)?, self.handle(e, to)?);
        call(&mut e.b, "nvshmem_team_translate_pe", vec![from, pe, to], I32).map(Action::Become)
    }

    /// A rank, or -1 if the team does not have it.
    fn member(&mut self, e: &mut Editor, pe: Value, team: TeamRef) -> Built<Value> {
        let b = &mut e.b;
        let (n, zero, none) = (b.emit(Team::NPes { team })?, b.i32(0)?, b.i32(-1)?);
        let (low, high) = (b.compare(CmpOp::Ge, pe, zero)?, b.compare(CmpOp::Lt, pe, n)?);
        let inside = b.binary(BinOp::And, low, high)?;
        b.select(inside, pe, none)
    }
}

fn size(b: &Builder, tensor: Value) -> Int {
    b.ty(tensor).tensor().map_or(Int::ZERO, |t| t.layout.size())
}

/// The name of a function such as `nvshmemx_float_sum_reduce_block`.
fn reduce_name(
    (op, scatter): (RedOp, bool),
    b: &Builder,
    dst: Value,
    group: Group,
    span: Span,
) -> Built<String> {
    let elem = b.ty(dst).elem().unwrap_or(Scalar::U8);
    let bitwise = matches!(op, RedOp::And | RedOp::Or | RedOp::Xor);
    match elem.nvshmem_name().filter(|_| elem.is_int() || !bitwise) {
        Some(ty) => {
            let verb = if scatter { "reducescatter" } else { "reduce" };
            Ok(of_group(&format!("{ty}_{}_{verb}", reduction(op)), group))
        }
        None => {
            let message = format!("NVSHMEM cannot reduce {elem} by {op}");
            Err(Diagnostic::error(NO_FUNCTION, span, message).help(
                "it sums, multiplies and compares numbers of 8 to 64 bits, and combines the bits of integers",
            ))
        }
    }
}

fn needs_library(name: &str, help: &str, span: Span) -> Diagnostic {
    let message = format!("`{name}` needs memory that only NVSHMEM provides");
    Diagnostic::error(NEEDS_LIBRARY, span, message).help(help)
}
