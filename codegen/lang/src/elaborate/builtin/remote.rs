//! NVSHMEM's operations on other PEs' memory: puts and gets, signals, waits, atomics.

use super::{Builtin, Call, Words, builtin};
use crate::codes::meaning::{WRONG_ARGS, WRONG_KIND};
use crate::elaborate::arith::raw;
use crate::elaborate::value::Val;
use crate::elaborate::{Elab, Result, fail};
use weft_ir::diag::Diagnostic;
use weft_ir::{AmoOp, CmpOp, Op, Remote, Scalar, SignalKind, TeamRef, Type, Value, WaitFor};

pub(super) const TABLE: &[Builtin] = &[
    builtin(
        "put",
        "put<block>(dst, src, pe)",
        "Copies src of this PE to the symmetric dst of rank pe. src can be reused afterwards. One thread makes the copy. With `<warp>` or `<block>`, the threads of that group make it together.",
        transfer,
    ),
    builtin(
        "get",
        "get<block>(dst, src, pe)",
        "Copies the symmetric src of rank pe to dst of this PE. The data has arrived when the call returns.",
        transfer,
    ),
    builtin(
        "put_nbi",
        "put_nbi<block>(dst, src, pe)",
        "Like put, but src can be reused only after `quiet`.",
        transfer,
    ),
    builtin(
        "get_nbi",
        "get_nbi<block>(dst, src, pe)",
        "Like get, but the data has arrived only after `quiet`.",
        transfer,
    ),
    builtin(
        "iput",
        "iput<block>(dst, src, pe)",
        "Like put, for elements a stride apart. `dst` and `src` have one mode each.",
        transfer,
    ),
    builtin("iget", "iget<block>(dst, src, pe)", "Like get, for elements a stride apart.", transfer),
    builtin(
        "put_signal",
        "put_signal<block, add>(dst, src, sig, value, pe)",
        "Like put. When the data has arrived, it sets (`set`) the signal on rank pe to value, or adds \
         value (`add`).",
        put_signal,
    ),
    builtin(
        "put_signal_nbi",
        "put_signal_nbi<block, set>(dst, src, sig, value, pe)",
        "Like put_signal, but src can be reused only after `quiet`.",
        put_signal,
    ),
    builtin(
        "p",
        "p(x[i], value, pe)",
        "Writes one element on rank pe. The value is cast to the type of x.",
        p,
    ),
    builtin("g", "g(x[i], pe)", "Reads one element of rank pe.", g),
    builtin(
        "signal_op",
        "signal_op<add>(sig, value, pe)",
        "Sets the signal on rank pe to value, or adds it.",
        signal_op,
    ),
    builtin(
        "signal_wait_until",
        "signal_wait_until<ge>(sig, value)",
        "Waits until this PE's signal is eq, ne, lt, le, gt or ge value, and returns the signal.",
        signal_wait,
    ),
    builtin("signal_fetch", "signal_fetch(sig)", "This PE's signal.", signal_fetch),
    builtin("wait_until", "wait_until<eq>(x[i], value)", "Waits for an integer that other PEs write.", wait),
    builtin(
        "wait_until_all",
        "wait_until_all<eq>(x, value, status)",
        "Waits for all elements of x, except those whose i32 status is not 0. status is optional. `value` can be a tensor with one value for each element.",
        wait,
    ),
    builtin(
        "wait_until_any",
        "wait_until_any<eq>(x, value, status)",
        "Waits for one of the elements of x, and returns its index, or -1 if all are left out.",
        wait,
    ),
    builtin(
        "wait_until_some",
        "wait_until_some<eq>(x, value, indices, status)",
        "Waits for at least one element, writes the indices of all that match, and returns their number.",
        wait,
    ),
    builtin(
        "test",
        "test<eq>(x[i], value)",
        "Like wait_until, but tests once, and returns whether the element matches.",
        wait,
    ),
    builtin("test_all", "test_all<eq>(x, value, status)", "Like wait_until_all, but tests once.", wait),
    builtin("test_any", "test_any<eq>(x, value, status)", "Like wait_until_any, but tests once.", wait),
    builtin(
        "test_some",
        "test_some<eq>(x, value, indices, status)",
        "Like wait_until_some, but tests once.",
        wait,
    ),
    builtin("atomic_fetch", "atomic_fetch(x[i], pe)", "Reads an element of rank pe, atomically.", amo),
    builtin("atomic_set", "atomic_set(x[i], v, pe)", "Writes an element of rank pe, atomically.", amo),
    builtin("atomic_swap", "atomic_swap(x[i], v, pe)", "Writes the element and returns its old value.", amo),
    builtin(
        "atomic_compare_swap",
        "atomic_compare_swap(x[i], expected, v, pe)",
        "Writes v if the element equals expected, and returns the old value.",
        amo,
    ),
    builtin("atomic_inc", "atomic_inc(x[i], pe)", "Adds 1.", amo),
    builtin("atomic_fetch_inc", "atomic_fetch_inc(x[i], pe)", "Adds 1 and returns the old value.", amo),
    builtin("atomic_add", "atomic_add(x[i], v, pe)", "Adds v.", amo),
    builtin("atomic_fetch_add", "atomic_fetch_add(x[i], v, pe)", "Adds v and returns the old value.", amo),
    builtin("atomic_and", "atomic_and(x[i], v, pe)", "Bitwise and.", amo),
    builtin("atomic_fetch_and", "atomic_fetch_and(x[i], v, pe)", "Bitwise and. Returns the old value.", amo),
    builtin("atomic_or", "atomic_or(x[i], v, pe)", "Bitwise or.", amo),
    builtin("atomic_fetch_or", "atomic_fetch_or(x[i], v, pe)", "Bitwise or. Returns the old value.", amo),
    builtin("atomic_xor", "atomic_xor(x[i], v, pe)", "Bitwise exclusive or.", amo),
    builtin(
        "atomic_fetch_xor",
        "atomic_fetch_xor(x[i], v, pe)",
        "Bitwise exclusive or. Returns the old value.",
        amo,
    ),
    builtin(
        "rma_fence",
        "rma_fence()",
        "Orders this PE's puts, signals and atomics to each PE before later ones to the same PE (NVSHMEM's fence).",
        order,
    ),
    builtin("quiet", "quiet()", "Waits until all remote memory operations of this PE are complete.", order),
];

/// The rank and the team at the end of the arguments. If the team is left out, it is the kernel's
/// only team, or the team of all PEs if the kernel has none.
fn rank(e: &mut Elab<'_>, call: &Call<'_>, at: usize) -> Result<(Value, TeamRef)> {
    let pe = call.int(e, at)?;
    let team = call.team_or_only(e, at + 1)?;
    Ok((e.i32(pe)?, team))
}

const SCOPES: &str = "warp, block, or nothing for each thread by itself";

fn transfer(e: &mut Elab<'_>, call: &Call<'_>) -> Result<Val> {
    call.arity(3..=4)?;
    let mut words = call.words()?;
    let group = words.group();
    words.done(call.name, SCOPES)?;
    let sides = [call.tensor(e, 0)?, call.tensor(e, 1)?];
    let (dst, src) = (sides[0].0.value, sides[1].0.value);
    if call.name.starts_with('i') {
        for (t, at) in sides {
            let layout = &e.tensor_type_of(t).layout;
            let one = layout.coalesce().is_ok_and(|l| l.shape().as_int().is_some());
            if !one {
                return Err(Diagnostic::error(
                    WRONG_KIND,
                    at,
                    format!("`{}` moves elements with one stride, not {layout}", call.name),
                )
                .help("`put` and `get` accept any layout"));
            }
        }
    }
    let (pe, team) = rank(e, call, 2)?;
    let nbi = call.name.ends_with("_nbi");
    e.b.emit(match call.name.trim_start_matches('i').starts_with("put") {
        true => Op::Remote(Remote::Put { dst, src, pe, team, nbi, group }),
        false => Op::Remote(Remote::Get { dst, src, pe, team, nbi, group }),
    })
    .map(|_| Val::Unit)
}

/// The word `set` or `add`, which is required.
fn kind(call: &Call<'_>, words: &mut Words<'_>) -> Result<SignalKind> {
    words.take(SignalKind::parse).ok_or_else(|| {
        let message = format!("`{}` does not state how the signal is updated", call.name);
        Diagnostic::error(WRONG_ARGS, call.span, message)
            .help(format!("write `{0}<set>(...)` or `{0}<add>(...)`", call.name))
    })
}

fn put_signal(e: &mut Elab<'_>, call: &Call<'_>) -> Result<Val> {
    call.arity(5..=6)?;
    let mut words = call.words()?;
    let group = words.group();
    let op = kind(call, &mut words)?;
    words.done(call.name, "set or add, and warp or block")?;
    let (dst, src) = (call.tensor(e, 0)?.0.value, call.tensor(e, 1)?.0.value);
    let signal = call.tensor(e, 2)?.0.value;
    let value = cast(e, call, 3, Scalar::U64)?;
    let (pe, team) = rank(e, call, 4)?;
    let nbi = call.name.ends_with("_nbi");
    e.b.emit(Remote::PutSignal { dst, src, signal, op, value, pe, team, nbi, group }).map(|_| Val::Unit)
}

/// A number, converted to a type (NVSHMEM: "value is cast").
fn cast(e: &mut Elab<'_>, call: &Call<'_>, i: usize, to: Scalar) -> Result<Value> {
    let (v, at) = call.val(i);
    let v = match v {
        Val::Float(_) if !to.is_float() => e.scalar_or_frag(v, Some(Scalar::F64), at)?,
        Val::Float(_) if !to.is_fp8() => e.scalar_or_frag(v, Some(to), at)?,
        v => v,
    };
    let v = e.convert(v, to, at)?;
    scalar(e, call, &v, at)
}

/// A number of exactly that type. Literals take the type.
fn exactly(e: &mut Elab<'_>, call: &Call<'_>, i: usize, want: Scalar) -> Result<Value> {
    let (v, at) = call.val(i);
    let v = e.scalar_or_frag(v, Some(want), at)?;
    let v = e.check_elem(v, Some(want), at)?;
    scalar(e, call, &v, at)
}

fn scalar(e: &Elab<'_>, call: &Call<'_>, v: &Val, at: weft_ir::diag::Span) -> Result<Value> {
    match e.b.ty(raw(v)) {
        Type::Scalar(_) => Ok(raw(v)),
        _ => fail(WRONG_KIND, at, format!("`{}` needs one number, found {}", call.name, e.describe(v))),
    }
}

/// The element type of the first argument.
fn elem(e: &Elab<'_>, call: &Call<'_>) -> Result<(Value, Scalar)> {
    let (t, _) = call.tensor(e, 0)?;
    Ok((t.value, e.tensor_type_of(t).elem))
}

fn p(e: &mut Elab<'_>, call: &Call<'_>) -> Result<Val> {
    call.arity(3..=4)?;
    call.no_words()?;
    let (dst, elem) = elem(e, call)?;
    let value = cast(e, call, 1, elem)?;
    let (pe, team) = rank(e, call, 2)?;
    e.b.emit(Remote::PutValue { dst, value, pe, team }).map(|_| Val::Unit)
}

fn g(e: &mut Elab<'_>, call: &Call<'_>) -> Result<Val> {
    call.arity(2..=3)?;
    call.no_words()?;
    let (src, _) = elem(e, call)?;
    let (pe, team) = rank(e, call, 1)?;
    e.b.emit(Remote::GetValue { src, pe, team }).map(Val::Runtime)
}

fn signal_op(e: &mut Elab<'_>, call: &Call<'_>) -> Result<Val> {
    call.arity(3..=4)?;
    let mut words = call.words()?;
    let op = kind(call, &mut words)?;
    words.done(call.name, "set or add")?;
    let (signal, _) = elem(e, call)?;
    let value = cast(e, call, 1, Scalar::U64)?;
    let (pe, team) = rank(e, call, 2)?;
    e.b.emit(Remote::SignalOp { signal, op, value, pe, team }).map(|_| Val::Unit)
}

/// The comparison, which is required.
fn comparison(call: &Call<'_>) -> Result<CmpOp> {
    let mut words = call.words()?;
    let cmp = words.take(CmpOp::parse);
    words.done(call.name, "eq, ne, lt, le, gt or ge")?;
    cmp.ok_or_else(|| {
        Diagnostic::error(WRONG_ARGS, call.span, format!("`{}` needs a comparison", call.name))
            .help(format!("write `{0}<eq>(...)`: eq, ne, lt, le, gt or ge", call.name))
    })
}

fn signal_wait(e: &mut Elab<'_>, call: &Call<'_>) -> Result<Val> {
    call.arity(2..=2)?;
    let cmp = comparison(call)?;
    let (signal, _) = elem(e, call)?;
    let value = cast(e, call, 1, Scalar::U64)?;
    e.b.emit(Remote::SignalWait { signal, cmp, value }).map(Val::Runtime)
}

fn signal_fetch(e: &mut Elab<'_>, call: &Call<'_>) -> Result<Val> {
    call.arity(1..=1)?;
    call.no_words()?;
    let (signal, _) = elem(e, call)?;
    e.b.emit(Remote::SignalFetch { signal }).map(Val::Runtime)
}

fn wait(e: &mut Elab<'_>, call: &Call<'_>) -> Result<Val> {
    let test = call.name.starts_with("test");
    let which = call.name.rsplit('_').next().and_then(WaitFor::parse).unwrap_or(WaitFor::One);
    let lists = match which {
        WaitFor::One => 0..=0,
        WaitFor::Some => 1..=2,
        _ => 0..=1,
    };
    call.arity(2 + lists.start()..=2 + lists.end())?;
    let cmp = comparison(call)?;
    let (vars, elem) = elem(e, call)?;
    let value = match call.val(1).0 {
        Val::Tensor(t) if !t.element && which != WaitFor::One => t.value,
        _ => exactly(e, call, 1, elem)?,
    };
    let mut rest = (2..call.args.len()).map(|i| call.tensor(e, i).map(|(t, _)| t.value));
    let indices = if which == WaitFor::Some { rest.next().transpose()? } else { None };
    let status = rest.next().transpose()?;
    let v = e.b.emit(Remote::Wait { vars, cmp, value, which, test, status, indices })?;
    match e.b.ty(v) {
        Type::Unit => Ok(Val::Unit),
        // The value is an index into the variables.
        Type::Scalar(Scalar::I64) => e.symbol(v).map(Val::Int),
        _ => Ok(Val::Runtime(v)),
    }
}

fn amo(e: &mut Elab<'_>, call: &Call<'_>) -> Result<Val> {
    let Some(op) = call.name.strip_prefix("atomic_").and_then(AmoOp::parse) else {
        return fail(WRONG_ARGS, call.span, format!("there is no atomic `{}`", call.name));
    };
    let n = op.operands();
    call.arity(2 + n..=3 + n)?;
    call.no_words()?;
    let (target, elem) = elem(e, call)?;
    let operands = (1..=n).map(|i| exactly(e, call, i, elem)).collect::<Result<_>>()?;
    let (pe, team) = rank(e, call, 1 + n)?;
    let v = e.b.emit(Remote::Amo { target, op, operands, pe, team })?;
    Ok(if op.fetches() { Val::Runtime(v) } else { Val::Unit })
}

fn order(e: &mut Elab<'_>, call: &Call<'_>) -> Result<Val> {
    call.arity(0..=0)?;
    call.no_words()?;
    e.b.emit(if call.name == "quiet" {
        Op::Remote(Remote::Quiet {})
    } else {
        Op::Remote(Remote::RmaFence {})
    })
    .map(|_| Val::Unit)
}
