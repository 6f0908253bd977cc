//! Elementwise functions of numbers, and reductions over lanes and threads.

use super::{Builtin, Call, builtin};
use crate::codes::meaning::{LAYOUT, MISMATCH, WRONG_ARGS, WRONG_KIND};
use crate::elaborate::arith::{join, raw, with};
use crate::elaborate::value::{Fragment, Val};
use crate::elaborate::{Elab, Result, fail};
use weft_ir::diag::{Diagnostic, Span};
use weft_ir::{
    Arith, BinOp, CmpOp, Group, Int, RedOp, Scalar, ShuffleMode, Thread, Together, Type, UnOp, Value,
    ValueType,
};

pub(super) const TABLE: &[Builtin] = &[
    builtin("ceil_div", "ceil_div(a, b)", "a / b, rounded up.", integers),
    builtin("round_up", "round_up(a, b)", "The least multiple of b that is at least a.", integers),
    builtin(
        "min",
        "min(a, b), min<block>(v)",
        "The minimum of a and b, or the minimum over lanes and threads.",
        minmax,
    ),
    builtin(
        "max",
        "max(a, b), max<block>(v)",
        "The maximum of a and b, or the maximum over lanes and threads.",
        minmax,
    ),
    builtin(
        "sum",
        "sum<block>(v)",
        "The sum over v's lanes and the threads of a block or warp. `<thread>` sums over lanes only. Like all of these reductions, `<row>` reduces each row of an accumulator's elements to one value per row.",
        reduce,
    ),
    builtin(
        "prod",
        "prod<block>(v)",
        "The product over v's lanes and the threads of a block or warp.",
        reduce,
    ),
    builtin("all", "all<block>(v)", "Whether all values are true.", reduce),
    builtin("any", "any<block>(v)", "Whether at least one value is true.", reduce),
    builtin(
        "shuffle",
        "shuffle<xor>(v, n)",
        "The value v of another lane, selected by idx, up, down or xor.",
        shuffle,
    ),
    builtin("fma", "fma(a, b, c)", "a * b + c, rounded once.", fma),
    builtin("select", "select(c, a, b)", "a if c is true, and b otherwise.", select),
    builtin("to", "v.to<T>()", "v converted to another element type; `.to<int>()` makes an index.", to),
    builtin(
        "bits",
        "v.bits<T>()",
        "The same bits as elements of type T. Two f16 are one u32, and a u64 is two u32 with the lower one first.",
        bits,
    ),
    builtin("combine", "combine<add>(a, b)", "a and b reduced to one, elementwise.", combine),
    builtin("abs", "abs(v)", "The absolute value.", unary),
    builtin("sqrt", "sqrt(v)", "Square root, correctly rounded.", unary),
    builtin("rsqrt", "rsqrt(v)", "Reciprocal square root, approximate.", unary),
    builtin("exp", "exp(v)", "Exponential, approximate. Results below 2^-126 are 0.", unary),
    builtin("exp2", "exp2(v)", "Exponential, base 2, approximate. Results below 2^-126 are 0.", unary),
    builtin("log", "log(v)", "Natural logarithm.", unary),
    builtin("log2", "log2(v)", "Logarithm, base 2, approximate.", unary),
    builtin("tanh", "tanh(v)", "Hyperbolic tangent, approximate.", unary),
    builtin("sin", "sin(v)", "Sine, approximate.", unary),
    builtin("cos", "cos(v)", "Cosine, approximate.", unary),
    builtin("floor", "floor(v)", "The greatest integer that is not above v.", unary),
    builtin("ceil", "ceil(v)", "The least integer that is not below v.", unary),
    builtin("round", "round(v)", "Nearest integer, ties to even.", unary),
];

fn integers(e: &mut Elab<'_>, call: &Call<'_>) -> Result<Val> {
    call.arity(2..=2)?;
    call.no_words()?;
    let (a, b) = (call.int(e, 0)?, call.int(e, 1)?);
    if b.upper_bound().is_some_and(|n| n <= 0) {
        return fail(WRONG_ARGS, call.span, format!("the divisor of `{}` is {b}", call.name));
    }
    let tiles = a.ceil_div(&b);
    let n = if call.name == "ceil_div" { tiles } else { tiles * b };
    match n.poison() {
        None => Ok(Val::Int(n)),
        Some(p) => fail(LAYOUT, call.span, format!("`{}` has no value: {p}", call.name)),
    }
}

fn minmax(e: &mut Elab<'_>, call: &Call<'_>) -> Result<Val> {
    if !call.words.is_empty() || call.args.len() == 1 {
        return reduce(e, call);
    }
    call.arity(2..=2)?;
    let is_min = call.name == "min";
    let ((a, _), (b, _)) = (call.val(0), call.val(1));
    let ints = match (&a, &b) {
        (Val::Int(x), Val::Int(y)) => Some((x.clone(), y.clone())),
        _ => e.as_ints(&a, &b, call.span)?,
    };
    if let Some((x, y)) = ints {
        return Ok(Val::Int(if is_min { x.min(&y) } else { x.max(&y) }));
    }
    let (a, b) = e.pair(a, b, call.span)?;
    let value = e.b.binary(if is_min { BinOp::Min } else { BinOp::Max }, raw(&a), raw(&b))?;
    Ok(join(a, b, value))
}

fn unary(e: &mut Elab<'_>, call: &Call<'_>) -> Result<Val> {
    call.arity(1..=1)?;
    call.no_words()?;
    let (v, at) = call.val(0);
    match UnOp::parse(call.name) {
        Some(op) => e.map(op, v, at),
        None => fail(WRONG_ARGS, call.span, format!("there is no function `{}`", call.name)),
    }
}

fn fma(e: &mut Elab<'_>, call: &Call<'_>) -> Result<Val> {
    call.arity(3..=3)?;
    call.no_words()?;
    let (a, b) = e.pair(call.val(0).0, call.val(1).0, call.span)?;
    let (a, c) = e.pair(a, call.val(2).0, call.span)?;
    let (b, c) = e.pair(b, c, call.span)?;
    let value = e.b.emit(Arith::Fma { a: raw(&a), b: raw(&b), c: raw(&c) })?;
    Ok(join(join(a, b, value), c, value))
}

fn select(e: &mut Elab<'_>, call: &Call<'_>) -> Result<Val> {
    call.arity(3..=3)?;
    call.no_words()?;
    let (c, at) = call.val(0);
    if let Val::Bool(c) = c {
        return Ok(call.val(if c { 1 } else { 2 }).0);
    }
    let c = e.scalar_or_frag(c, None, at)?;
    let (a, b) = e.pair(call.val(1).0, call.val(2).0, call.span)?;
    let (a, b) = (e.alike(a, &c, call.span)?, e.alike(b, &c, call.span)?);
    let c = e.alike(c, &a, call.span)?;
    let value = e.b.select(raw(&c), raw(&a), raw(&b))?;
    Ok(join(join(a, b, value), if matches!(c, Val::Fragment(_)) { c } else { Val::Runtime(value) }, value))
}

fn to(e: &mut Elab<'_>, call: &Call<'_>) -> Result<Val> {
    call.arity(1..=1)?;
    let words = call.words()?;
    let (v, at) = call.val(0);
    match words.positional[..] {
        [("int", _)] => e.as_int(v, at).map(Val::Int),
        [(name, span)] => {
            let to = e.dtype(name, span)?;
            e.convert(v, to, at)
        }
        _ => Err(Diagnostic::error(WRONG_ARGS, call.span, "`to` needs one type").help("write `.to<f32>()`")),
    }
}

fn bits(e: &mut Elab<'_>, call: &Call<'_>) -> Result<Val> {
    call.arity(1..=1)?;
    let words = call.words()?;
    let (v, at) = call.val(0);
    let [(name, span)] = words.positional[..] else {
        return Err(
            Diagnostic::error(WRONG_ARGS, call.span, "`bits` needs one type").help("write `.bits<u32>()`")
        );
    };
    let to = e.dtype(name, span)?;
    let v = e.scalar_or_frag(v, None, at)?;
    let ty = e.b.ty(raw(&v)).clone();
    let elem = ty.elem().unwrap_or(to);
    let bytes = ty.lanes().unwrap_or(1) * elem.bytes();
    if !bytes.is_multiple_of(to.bytes()) || [elem, to].contains(&Scalar::Bool) {
        let message =
            format!("{} has {bytes} bytes, which is not a whole number of elements of {to}", e.describe(&v));
        return fail(MISMATCH, call.span, message);
    }
    let lanes = bytes / to.bytes();
    let value = e.b.emit_as(Arith::Bitcast { a: raw(&v) }, Type::lanes_of(to, lanes))?;
    let shape = weft_ir::IntTuple::Tuple(vec![i64::from(lanes).into()]);
    Ok(match v {
        Val::Fragment(Fragment { distribution: Some(_), .. }) => {
            return fail(WRONG_KIND, at, "this tensor is distributed over the CTA: partition it first");
        }
        Val::Runtime(_) if lanes == 1 => Val::Runtime(value),
        // Elements that do not exist also have bits. The caller decides what happens to them.
        Val::Fragment(Fragment { order, .. }) => {
            Val::Fragment(Fragment { value, shape, bounds: Vec::new(), distribution: None, order })
        }
        _ => Val::Fragment(Fragment { value, shape, bounds: Vec::new(), distribution: None, order: None }),
    })
}

fn combine(e: &mut Elab<'_>, call: &Call<'_>) -> Result<Val> {
    call.arity(2..=2)?;
    let mut words = call.words()?;
    let op = words.take(RedOp::parse);
    words.done(call.name, "a reduction")?;
    let Some(&(_, _, op)) = REDUCTIONS.iter().find(|(_, red, _)| Some(*red) == op) else {
        return Err(Diagnostic::error(WRONG_ARGS, call.span, "`combine` needs a reduction")
            .help("write `combine<add>(a, b)`: add, mul, min, max, and, or, xor"));
    };
    let (a, b) = e.pair(call.val(0).0, call.val(1).0, call.span)?;
    let value = e.b.binary(op, raw(&a), raw(&b))?;
    Ok(join(a, b, value))
}

fn shuffle(e: &mut Elab<'_>, call: &Call<'_>) -> Result<Val> {
    call.arity(2..=2)?;
    let mut words = call.words()?;
    let mode = words.take(ShuffleMode::parse).unwrap_or(ShuffleMode::Idx);
    words.done(call.name, "idx, up, down or xor")?;
    let (v, at) = call.val(0);
    let v = e.scalar_or_frag(v, None, at)?;
    let lane = call.int(e, 1)?;
    let lane = e.i32(lane)?;
    let value = e.b.emit(Thread::Shuffle { value: raw(&v), mode, lane })?;
    Ok(with(v, value))
}

/// The reductions: the name, the reduction, and the operation with two operands.
const REDUCTIONS: [(&str, RedOp, BinOp); 7] = [
    ("sum", RedOp::Add, BinOp::Add),
    ("prod", RedOp::Mul, BinOp::Mul),
    ("min", RedOp::Min, BinOp::Min),
    ("max", RedOp::Max, BinOp::Max),
    ("all", RedOp::And, BinOp::And),
    ("any", RedOp::Or, BinOp::Or),
    ("", RedOp::Xor, BinOp::Xor),
];

fn reduce(e: &mut Elab<'_>, call: &Call<'_>) -> Result<Val> {
    call.arity(1..=1)?;
    let mut words = call.words()?;
    let over = words.take(Over::parse);
    words.done(call.name, "block, warp, thread or row")?;
    let Some(&(_, op, bin)) = REDUCTIONS.iter().find(|(n, ..)| *n == call.name) else {
        return fail(WRONG_ARGS, call.span, format!("there is no reduction `{}`", call.name));
    };
    let Some(over) = over else {
        return Err(Diagnostic::error(
            WRONG_ARGS,
            call.span,
            format!("`{}` does not state over which threads it reduces", call.name),
        )
        .help(format!("write `{0}<block>(v)`, `{0}<warp>(v)` or `{0}<thread>(v)`", call.name)));
    };
    let (v, at) = call.val(0);
    let v = e.scalar_or_frag(v, None, at)?;
    if over == Over::Row {
        let (f, share) = e.of_accumulator(call.name, &v, at)?;
        let elem = e.b.ty(f.value).elem().unwrap_or(Scalar::F32);
        let value = masked(e, &f, op, elem, at)?;
        return e.reduce_rows(value, share, bin, at);
    }
    if let Val::Fragment(Fragment { distribution: Some(_), .. }) = v
        && !matches!(over, Over::Threads(Group::Block | Group::Cluster))
    {
        return Err(Diagnostic::error(WRONG_KIND, at, "this tensor is distributed over the CTA")
            .help(format!("write `{}<block>(v)`", call.name)));
    }
    let elem = e.b.ty(raw(&v)).elem().unwrap_or(Scalar::F32);
    let value = match &v {
        Val::Fragment(f) => {
            let masked = masked(e, f, op, elem, at)?;
            fold(e, masked, bin, elem)?
        }
        other => raw(other),
    };
    e.b.at(call.span);
    match over {
        Over::Threads(group) => e.b.emit(Together::Reduce { value, op, group }).map(Val::Runtime),
        _ => Ok(Val::Runtime(value)),
    }
}

/// The elements over which a reduction goes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Over {
    /// It reduces the lanes of each thread.
    Lanes,
    /// It reduces the lanes and the threads of a group.
    Threads(Group),
    /// It reduces the elements of each row of an accumulator.
    Row,
}

impl Over {
    fn parse(word: &str) -> Option<Over> {
        match word {
            "thread" => Some(Over::Lanes),
            "row" => Some(Over::Row),
            word => Group::parse(word).map(Over::Threads),
        }
    }
}

/// Replaces lanes beyond the tensor's end by the identity of the reduction.
fn masked(e: &mut Elab<'_>, f: &Fragment, op: RedOp, elem: Scalar, span: Span) -> Result<Value> {
    if f.bounds.is_empty() {
        return Ok(f.value);
    }
    let ty = e.b.ty(f.value).clone();
    let n = ty.lanes().unwrap_or(1);
    let mut mask: Option<Value> = None;
    for b in &f.bounds {
        let limit = e.b.index(b.limit.clone())?;
        let mut lanes = Vec::new();
        for i in 0..n {
            let at = b.layout.crd2idx(&Int::from(i64::from(i)).into());
            let at = at.map_err(|x| Diagnostic::error(LAYOUT, span, x.to_string()))? + &b.offset;
            let at = e.b.index(at)?;
            lanes.push(e.b.compare(CmpOp::Lt, at, limit)?);
        }
        let bools = ty.with_elem(Scalar::Bool);
        let inside = if n == 1 { lanes[0] } else { e.b.emit_as(Arith::Concat { parts: lanes }, bools)? };
        mask = Some(match mask {
            Some(m) => e.b.binary(BinOp::And, m, inside)?,
            None => inside,
        });
    }
    let Some(mask) = mask else { return Ok(f.value) };
    let identity = identity(e, op, elem, &ty)?;
    e.b.select(mask, f.value, identity)
}

/// The identity of a reduction, which does not change the result.
fn identity(e: &mut Elab<'_>, op: RedOp, elem: Scalar, ty: &Type) -> Result<Value> {
    let bits = elem.bits();
    let signed = elem.kind() == weft_ir::NumberKind::Signed;
    let min = if signed { i64::MIN >> (64 - bits) } else { 0 };
    let max = if signed { i64::MAX >> (64 - bits) } else { ((1u128 << bits) - 1) as i64 };
    let v = match (op, elem.kind()) {
        (RedOp::And, weft_ir::NumberKind::Bool) => {
            e.b.emit_as(Arith::Const { value: weft_ir::Constant::Bool(true) }, Type::Scalar(elem))?
        }
        (RedOp::Min, weft_ir::NumberKind::Float) => e.b.float(elem, f64::INFINITY)?,
        (RedOp::Max, weft_ir::NumberKind::Float) => e.b.float(elem, f64::NEG_INFINITY)?,
        (RedOp::Mul, weft_ir::NumberKind::Float) => e.b.float(elem, 1.0)?,
        (RedOp::Mul, _) => e.b.int(elem, 1)?,
        (RedOp::Min, _) => e.b.int(elem, if elem == Scalar::U64 { -1 } else { max })?,
        (RedOp::Max, _) => e.b.int(elem, min)?,
        (RedOp::And, _) if elem == Scalar::U64 || signed => e.b.int(elem, -1)?,
        (RedOp::And, _) => e.b.int(elem, max)?,
        _ => e.b.zero(&Type::Scalar(elem))?,
    };
    e.b.splat(v, ty)
}

/// Reduces all lanes to one pairwise. The tree depends only on the number of lanes.
fn fold(e: &mut Elab<'_>, value: Value, op: BinOp, elem: Scalar) -> Result<Value> {
    let mut value = value;
    while let Some(n) = e.b.ty(value).lanes().filter(|n| *n > 1) {
        let half = n / 2;
        let ty = Type::lanes_of(elem, half);
        let a = e.b.emit_as(Arith::Slice { a: value, first: 0 }, ty.clone())?;
        let b = e.b.emit_as(Arith::Slice { a: value, first: half }, ty)?;
        let mut sum = e.b.binary(op, a, b)?;
        if n % 2 == 1 {
            let last = e.b.emit_as(Arith::Slice { a: value, first: n - 1 }, Type::Scalar(elem))?;
            let rest = if half > 1 { fold(e, sum, op, elem)? } else { sum };
            sum = e.b.binary(op, rest, last)?;
        }
        value = sum;
    }
    Ok(value)
}
