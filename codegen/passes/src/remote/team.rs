//! What the PEs of a team do together, by NVSHMEM's collectives, which have workspaces of their own.

use super::copy::Threads;
use super::library::{able, call, of_group, reduction};
use super::wait::acquire;
use super::{Remote, address};
use crate::Transport;
use crate::codes::{NEEDS_LIBRARY, NO_FUNCTION};
use crate::edit::{Action, Editor, Emit, nested};
use weft_ir::builder::Built;
use weft_ir::diag::{Diagnostic, Span};
use weft_ir::{
    BinOp, Block, Builder, CmpOp, Group, Int, MoveKind, Op, RedOp, Scalar, TeamRef, Type, Value, remote,
};

const I32: Type = Type::Scalar(Scalar::I32);

impl Remote<'_> {
    pub(super) fn collective(&mut self, e: &mut Editor, op: &Op, span: Span) -> Built<Action> {
        if self.options.transport == Transport::P2p {
            return Err(needs_library(op, span));
        }
        let asked = remote::group(op).unwrap_or(Group::Thread);
        let group = able(asked, &e.b);
        let threads = Threads::of(&mut e.b, asked)?;
        if group == asked {
            self.function(e, op, group, span)?;
        } else {
            threads.meet(&mut e.b)?;
            let cond = threads.is_first(&mut e.b)?;
            let then = nested(e, |e| self.function(e, op, group, span))?;
            e.b.emit(Op::If { cond, then, otherwise: Block::default() })?;
        }
        // Any of the threads may have been the one that saw the others come.
        acquire(&mut e.b)?;
        threads.meet(&mut e.b)?;
        Ok(Action::Drop)
    }

    /// Calls the function of a collective.
    fn function(&mut self, e: &mut Editor, op: &Op, group: Group, span: Span) -> Built<()> {
        match *op {
            Op::TeamSync { team, barrier, .. } => {
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
            Op::TeamReduce { dst, src, op, scatter, team, .. } => {
                let function = reduce_name((op, scatter), &e.b, dst, group, span)?;
                let count = size(&e.b, dst);
                self.exchange(e, &function, (dst, src), count, team, None)
            }
            Op::TeamMove { kind, dst, src, ref root, team, .. } => {
                let (name, size) = match kind {
                    MoveKind::Fcollect => ("fcollectmem", size(&e.b, src)),
                    MoveKind::Alltoall => {
                        let n = e.b.emit(Op::NPes { team })?;
                        ("alltoallmem", size(&e.b, src).floor_div(&e.b.symbol(n)?))
                    }
                    MoveKind::Broadcast => ("broadcastmem", size(&e.b, src).min(&size(&e.b, dst))),
                };
                let bytes = size * i64::from(e.b.ty(src).elem().map_or(1, Scalar::bytes));
                self.exchange(e, &of_group(name, group), (dst, src), bytes, team, root.first().copied())
            }
            _ => Ok(()),
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
    pub(super) fn translate(&mut self, e: &mut Editor, op: &Op, span: Span) -> Built<Action> {
        let Op::TranslatePe { pe, from, to } = *op else { return Ok(Action::Keep) };
        if from == to {
            return self.member(e, pe, from).map(Action::Become);
        }
        if self.options.transport == Transport::P2p {
            return Err(needs_library(op, span));
        }
        let (from, to) = (self.handle(e, from)?, self.handle(e, to)?);
        call(&mut e.b, "nvshmem_team_translate_pe", vec![from, pe, to], I32).map(Action::Become)
    }

    /// A rank, or -1 where the team has no such.
    fn member(&mut self, e: &mut Editor, pe: Value, team: TeamRef) -> Built<Value> {
        let b = &mut e.b;
        let (n, zero, none) = (b.emit(Op::NPes { team })?, b.i32(0)?, b.i32(-1)?);
        let (low, high) = (b.compare(CmpOp::Ge, pe, zero)?, b.compare(CmpOp::Lt, pe, n)?);
        let inside = b.binary(BinOp::And, low, high)?;
        b.select(inside, pe, none)
    }
}

fn size(b: &Builder, tensor: Value) -> Int {
    b.ty(tensor).tensor().map_or(Int::ZERO, |t| t.layout.size())
}

/// `nvshmemx_float_sum_reduce_block`
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
            let message = format!("NVSHMEM reduces no {elem} by {op}");
            Err(Diagnostic::error(NO_FUNCTION, span, message).help(
                "it sums, multiplies and compares numbers of 8 to 64 bits, and combines the bits of integers",
            ))
        }
    }
}

fn needs_library(op: &Op, span: Span) -> Diagnostic {
    let name = remote::name(op).unwrap_or_else(|| op.mnemonic().into());
    let (message, help) = match op {
        Op::TeamSync { .. } => (
            format!("`{name}` needs memory that only NVSHMEM has for it"),
            "compile with `--transport auto` or `nvshmem`, or pass a barrier parameter: `barrier(sync, team, acq_rel, sys)`",
        ),
        Op::TranslatePe { .. } => (
            format!("`{name}` needs NVSHMEM, which knows the teams"),
            "compile with `--transport auto` or `nvshmem`, or pass the rank as an argument",
        ),
        _ => (
            format!("`{name}` needs memory that only NVSHMEM has for it"),
            "compile with `--transport auto` or `nvshmem`, or use the collectives of `weft::tile`",
        ),
    };
    Diagnostic::error(NEEDS_LIBRARY, span, message).help(help)
}
