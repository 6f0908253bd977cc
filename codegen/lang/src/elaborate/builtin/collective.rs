//! NVSHMEM's collectives on the device, and queries about teams.

use super::{Builtin, Call, builtin};
use crate::codes::meaning::WRONG_ARGS;
use crate::elaborate::value::Val;
use crate::elaborate::{Elab, Result, fail};
use weft_ir::diag::Diagnostic;
use weft_ir::{MoveKind, RedOp, Remote, TeamRef};

pub(super) const TABLE: &[Builtin] = &[
    builtin("sync", "sync<block>(team)", "Waits for the same call on all PEs of the team.", sync),
    builtin("sync_all", "sync_all<block>()", "Like sync, for all PEs.", sync),
    builtin("barrier_all", "barrier_all<block>()", "A quiet and a sync of all PEs.", sync),
    builtin(
        "reduce",
        "reduce<block, add>(dst, src, team)",
        "Reduces src over the PEs of the team, element by element, and gives all PEs the result: add, mul, min, max, and, or, xor.",
        reduce,
    ),
    builtin(
        "reducescatter",
        "reducescatter<block, add>(dst, src, team)",
        "Like reduce, but each PE gets its part. src has n_pes times the elements of dst.",
        reduce,
    ),
    builtin(
        "fcollect",
        "fcollect<block>(dst, src, team)",
        "Collects all PEs' src in dst, in rank order. dst has n_pes times the elements of src.",
        exchange,
    ),
    builtin(
        "alltoall",
        "alltoall<block>(dst, src, team)",
        "Copies part j of src to part my_pe of dst on rank j, for all j.",
        exchange,
    ),
    builtin(
        "broadcast",
        "broadcast<block>(dst, src, root, team)",
        "Copies src of rank root to all PEs' dst.",
        exchange,
    ),
    builtin(
        "translate_pe",
        "translate_pe(pe, team, to)",
        "The rank in the team `to` (all PEs by default) of rank pe of team, or -1 if it is not a member.",
        translate,
    ),
];

const SCOPES: &str = "`warp`, `block`, or nothing for one thread";

/// Evaluates `sync<block>(team)`, `barrier<block>(team)` and the same for all PEs.
pub(super) fn sync(e: &mut Elab<'_>, call: &Call<'_>) -> Result<Val> {
    let all = call.name.ends_with("_all");
    call.arity(if all { 0..=0 } else { 1..=1 })?;
    let mut words = call.words()?;
    let group = words.group();
    words.done(call.name, SCOPES)?;
    let team = if all { TeamRef::WORLD } else { call.team(e, 0)? };
    let barrier = call.name.starts_with("barrier");
    e.b.emit(Remote::TeamSync { team, barrier, group }).map(|_| Val::Unit)
}

fn reduce(e: &mut Elab<'_>, call: &Call<'_>) -> Result<Val> {
    call.arity(2..=3)?;
    let mut words = call.words()?;
    let group = words.group();
    let op = words.take(RedOp::parse);
    words.done(call.name, "a reduction, and warp or block")?;
    let Some(op) = op else {
        let message = format!("`{}` needs a reduction", call.name);
        return Err(Diagnostic::error(WRONG_ARGS, call.span, message)
            .help(format!("write `{}<block, add>(dst, src, team)`", call.name)));
    };
    let (dst, src) = (call.tensor(e, 0)?.0.value, call.tensor(e, 1)?.0.value);
    let team = call.team_or_only(e, 2)?;
    let scatter = call.name == "reducescatter";
    e.b.emit(Remote::TeamReduce { dst, src, op, scatter, team, group }).map(|_| Val::Unit)
}

fn exchange(e: &mut Elab<'_>, call: &Call<'_>) -> Result<Val> {
    let Some(kind) = MoveKind::parse(call.name) else {
        return fail(WRONG_ARGS, call.span, format!("there is no exchange `{}`", call.name));
    };
    let rooted = usize::from(kind == MoveKind::Broadcast);
    call.arity(2 + rooted..=3 + rooted)?;
    let mut words = call.words()?;
    let group = words.group();
    words.done(call.name, SCOPES)?;
    let (dst, src) = (call.tensor(e, 0)?.0.value, call.tensor(e, 1)?.0.value);
    let mut root = None;
    if rooted == 1 {
        let pe = call.int(e, 2)?;
        root = Some(e.i32(pe)?);
    }
    let team = call.team_or_only(e, 2 + rooted)?;
    e.b.emit(Remote::TeamMove { kind, dst, src, root, team, group }).map(|_| Val::Unit)
}

fn translate(e: &mut Elab<'_>, call: &Call<'_>) -> Result<Val> {
    call.arity(2..=3)?;
    call.no_words()?;
    let pe = call.int(e, 0)?;
    let pe = e.i32(pe)?;
    let from = call.team(e, 1)?;
    let to = if call.args.len() == 3 { call.team(e, 2)? } else { TeamRef::WORLD };
    let v = e.b.emit(Remote::TranslatePe { pe, from, to })?;
    e.symbol(v).map(Val::Int)
}
