//! Loads, stores, reductions in memory and in the switch, and printing.

use super::{Builtin, Call, builtin};
use crate::codes::meaning::{WRONG_ARGS, WRONG_KIND};
use crate::elaborate::arith::raw;
use crate::elaborate::value::{Distribution, Fragment, Tensor, Val};
use crate::elaborate::{Elab, Result, fail};
use weft_ir::diag::Diagnostic;
use weft_ir::{Access, Debug, Op, RedOp, Scalar, Scope, Sem, Space, Type, Value, ValueType};

pub(super) const TABLE: &[Builtin] = &[
    builtin(
        "load",
        "load<acquire, sys>(x), load(x, like = v)",
        "The elements of x in registers. Without an order, the load is weak. `like` distributes them like those of v, which belong to an accumulator.",
        load,
    ),
    builtin(
        "store",
        "store<release, sys>(x, v)",
        "Writes v to x. Without an order, the store is weak, like `x[...] = v`.",
        store,
    ),
    builtin(
        "ld_reduce",
        "ld_reduce<add, acc = f32>(x)",
        "multimem.ld_reduce: the switch reduces every element over the PEs of the team. The default is relaxed, sys.",
        ld_reduce,
    ),
    builtin(
        "st",
        "st<relaxed, sys>(x, v)",
        "multimem.st: writes v to every PE of the team. `x[...] = v` does this with relaxed, sys.",
        st,
    ),
    builtin(
        "red",
        "red<add, release, sys>(x, v)",
        "Reduces v into x, atomically: multimem.red on every PE for a multicast tensor, and red otherwise.",
        red,
    ),
    builtin(
        "atomic",
        "atomic<add, relaxed, sys>(x, v)",
        "Like red on one element, but returns the old value. `exch` exchanges.",
        atomic,
    ),
    builtin(
        "atomic_cas",
        "atomic_cas<acq_rel, sys>(x, expected, v)",
        "Stores v if x equals expected, and returns the old value.",
        atomic_cas,
    ),
    builtin("print", "print(\"%d\", v, ...)", "printf on the device.", print),
    builtin("trap", "trap()", "Ends the kernel with an error.", trap),
    builtin(
        "assert",
        "assert(cond, \"text\")",
        "Ends the kernel with an error unless cond is true. The error has the text, the line, and the PE, CTA and thread. `--no-assert` leaves it out.",
        assert,
    ),
    builtin(
        "static_assert",
        "static_assert(cond, \"why\")",
        "A compile-time error unless cond is known to be true.",
        static_assert,
    ),
];

/// Takes a memory order and a scope from the words, and leaves the others.
fn order(words: &mut super::Words<'_>, default: Sem) -> (Sem, Scope) {
    (words.take(Sem::parse).unwrap_or(default), words.take(Scope::parse).unwrap_or(Scope::Sys))
}

fn load(e: &mut Elab<'_>, call: &Call<'_>) -> Result<Val> {
    if let [(None, ..), (Some(name), like, at)] = &call.args[..]
        && &*name.name == "like"
    {
        call.no_words()?;
        let (t, _) = call.tensor(e, 0)?;
        if let Val::Fragment(Fragment { distribution: Some(Distribution::Evenly(turns)), .. }) = like {
            return e.load_as(t, *turns, call.span).map(Val::Fragment);
        }
        let (_, share) = e.of_accumulator(call.name, like, *at)?;
        return e.read_as(t, share, call.span).map(Val::Fragment);
    }
    call.arity(1..=1)?;
    let mut words = call.words()?;
    let (sem, scope) = order(&mut words, Sem::Weak);
    words.done(call.name, "weak, relaxed or acquire, and a scope")?;
    let (t, at) = call.tensor(e, 0)?;
    let (part, distribution) = e.part_of(t, at)?;
    let value = e.b.emit(Access::Load { place: part.value, sem, scope })?;
    Ok(held(e, part, value, distribution))
}

/// The result as a register tensor, or as a scalar for one element.
fn held(e: &mut Elab<'_>, part: Tensor, value: Value, distribution: Option<Distribution>) -> Val {
    if part.element { Val::Runtime(value) } else { Val::Fragment(e.fragment(part, value, distribution)) }
}

fn store(e: &mut Elab<'_>, call: &Call<'_>) -> Result<Val> {
    call.arity(2..=2)?;
    let mut words = call.words()?;
    let (sem, scope) = order(&mut words, Sem::Weak);
    words.done(call.name, "weak, relaxed or release, and a scope")?;
    let (t, _) = call.tensor(e, 0)?;
    let (place, value) = e.place(t, call.val(1).0, call.span)?;
    e.b.emit(Access::Store { place: place.value, value, sem, scope }).map(|_| Val::Unit)
}

fn ld_reduce(e: &mut Elab<'_>, call: &Call<'_>) -> Result<Val> {
    call.arity(1..=1)?;
    let mut words = call.words()?;
    let op = words.take(RedOp::parse);
    let acc = words.take_named("acc");
    let (sem, scope) = order(&mut words, Sem::Relaxed);
    words.done(call.name, "a reduction, acc = f32, a memory order and a scope")?;
    let Some(op) = op else {
        return Err(Diagnostic::error(WRONG_ARGS, call.span, "`ld_reduce` needs a reduction")
            .help("write `ld_reduce<add>(x)`"));
    };
    let (t, at) = call.tensor(e, 0)?;
    let elem = e.tensor_type_of(t).elem;
    let acc = match acc {
        // Narrow floats have a wider accumulator, and other types have their own.
        Some((name, span)) => match e.dtype(name, span)? {
            acc if acc.bits() < elem.bits() || !elem.is_float() => elem,
            acc => acc,
        },
        None => elem,
    };
    let (part, distribution) = e.part_of(t, at)?;
    let value = e.b.emit(Access::LdReduce { place: part.value, op, acc, sem, scope })?;
    Ok(held(e, part, value, distribution))
}

fn st(e: &mut Elab<'_>, call: &Call<'_>) -> Result<Val> {
    call.arity(2..=2)?;
    let mut words = call.words()?;
    let (sem, scope) = order(&mut words, Sem::Relaxed);
    words.done(call.name, "weak, relaxed or release, and a scope")?;
    let (t, _) = call.tensor(e, 0)?;
    let (place, value) = e.place(t, call.val(1).0, call.span)?;
    e.b.emit(Access::McStore { place: place.value, value, sem, scope }).map(|_| Val::Unit)
}

fn red(e: &mut Elab<'_>, call: &Call<'_>) -> Result<Val> {
    call.arity(2..=2)?;
    let mut words = call.words()?;
    let op = words.take(RedOp::parse);
    let (sem, scope) = order(&mut words, Sem::Relaxed);
    words.done(call.name, "a reduction, relaxed or release, and a scope")?;
    let Some(op) = op else {
        return Err(Diagnostic::error(WRONG_ARGS, call.span, "`red` needs a reduction")
            .help("write `red<add>(x, v)`"));
    };
    let (t, _) = call.tensor(e, 0)?;
    let (place, value) = e.place(t, call.val(1).0, call.span)?;
    let place = place.value;
    let op = match e.b.ty(place).space() {
        Some(Space::Multicast) => Op::Access(Access::McRed { place, value, op, sem, scope }),
        _ => Op::Access(Access::Red { place, value, op, sem, scope }),
    };
    e.b.emit(op).map(|_| Val::Unit)
}

/// The element on which an atomic operates.
fn element(e: &mut Elab<'_>, call: &Call<'_>) -> Result<Tensor> {
    let (t, at) = call.tensor(e, 0)?;
    let ty = e.tensor_type_of(t);
    if ty.layout.size().is(1) {
        Ok(t)
    } else {
        Err(Diagnostic::error(
            WRONG_KIND,
            at,
            format!("`{}` needs one element, not {}", call.name, ty.layout),
        )
        .help("index it: `x[i]`"))
    }
}

fn atomic(e: &mut Elab<'_>, call: &Call<'_>) -> Result<Val> {
    call.arity(2..=2)?;
    let mut words = call.words()?;
    let op = words.take(|w| if w == "exch" { Some(None) } else { RedOp::parse(w).map(Some) });
    let (sem, scope) = order(&mut words, Sem::Relaxed);
    words.done(call.name, "a reduction or exch, a memory order and a scope")?;
    let Some(op) = op else {
        return Err(Diagnostic::error(WRONG_ARGS, call.span, "`atomic` needs a reduction or `exch`")
            .help("write `atomic<add>(x[0], 1)` or `atomic<exch>(...)`"));
    };
    let t = element(e, call)?;
    let (place, value) = e.place(t, call.val(1).0, call.span)?;
    e.b.emit(Access::Atomic { place: place.value, value, op, sem, scope }).map(Val::Runtime)
}

fn atomic_cas(e: &mut Elab<'_>, call: &Call<'_>) -> Result<Val> {
    call.arity(3..=3)?;
    let mut words = call.words()?;
    let (sem, scope) = order(&mut words, Sem::Relaxed);
    words.done(call.name, "a memory order and a scope")?;
    let t = element(e, call)?;
    let (_, expected) = e.place(t, call.val(1).0, call.span)?;
    let (place, value) = e.place(t, call.val(2).0, call.span)?;
    e.b.emit(Access::AtomicCas { place: place.value, expected, value, sem, scope }).map(Val::Runtime)
}

fn print(e: &mut Elab<'_>, call: &Call<'_>) -> Result<Val> {
    call.no_words()?;
    let (Val::Str(format), _) = call.val(0) else {
        return Err(Diagnostic::error(
            WRONG_ARGS,
            call.span,
            "the first argument of `print` must be a format",
        )
        .help("print(\"pe %d\", my_pe(team))"));
    };
    let mut args = Vec::new();
    for i in 1..call.args.len() {
        let (v, at) = call.val(i);
        let v = e.scalar_or_frag(v, None, at)?;
        let value = raw(&v);
        match e.b.ty(value) {
            Type::Scalar(s) if s.is_fp8() => args.push(e.b.convert(value, Scalar::F32)?),
            Type::Scalar(_) => args.push(value),
            _ => return fail(WRONG_KIND, at, format!("`print` needs scalars, found {}", e.describe(&v))),
        }
    }
    e.b.emit(Debug::Print { format, args }).map(|_| Val::Unit)
}

fn trap(e: &mut Elab<'_>, call: &Call<'_>) -> Result<Val> {
    call.arity(0..=0)?;
    e.b.emit(Debug::Trap {}).map(|_| Val::Unit)
}

fn assert(e: &mut Elab<'_>, call: &Call<'_>) -> Result<Val> {
    call.arity(1..=2)?;
    call.no_words()?;
    let text = match call.args.len() {
        1 => "the condition does not hold".into(),
        _ => match call.val(1) {
            (Val::Str(text), _) => text,
            (other, at) => {
                let message = format!("the text of `assert` must be a string, not {}", e.describe(&other));
                return Err(
                    Diagnostic::error(WRONG_ARGS, at, message).help("assert(n > 0, \"n is positive\")")
                );
            }
        },
    };
    let (cond, at) = call.val(0);
    let cond = match e.condition(cond, at)? {
        Val::Bool(true) => return Ok(Val::Unit),
        known => raw(&e.scalar_or_frag(known, None, at)?),
    };
    e.b.emit(Debug::Assert { cond, text }).map(|_| Val::Unit)
}

fn static_assert(e: &mut Elab<'_>, call: &Call<'_>) -> Result<Val> {
    call.arity(1..=2)?;
    let why = match call.val(1) {
        (Val::Str(s), _) if call.args.len() == 2 => s.to_string(),
        _ => "the condition does not hold".to_owned(),
    };
    match call.val(0) {
        (Val::Bool(true), _) => Ok(Val::Unit),
        (Val::Bool(false), at) => fail(crate::codes::meaning::ASSERTION, at, format!("static_assert: {why}")),
        (other, at) => {
            let message = format!("static_assert: {} is not known at compile time", e.describe(&other));
            fail(crate::codes::meaning::ASSERTION, at, message)
        }
    }
}
