//! Functions that make tensors: other PEs' copies, parts for threads, shared memory, registers.

use super::{Builtin, Call, builtin};
use crate::codes::meaning::{LAYOUT, NOT_HELD, WRONG_ARGS, WRONG_KIND};
use crate::elaborate::value::{Fragment, Tensor, Val};
use crate::elaborate::{Elab, Result, fail};
use weft_ir::diag::{Diagnostic, Span};
use weft_ir::typing::MAX_LANES;
use weft_ir::{Int, IntTuple, Scalar, Type, Value, ValueType, View};

pub(super) const TABLE: &[Builtin] = &[
    builtin(
        "multicast",
        "multicast(x, team)",
        "The symmetric tensor x at the team's multicast address: for ld_reduce, st, red.",
        multicast,
    ),
    builtin(
        "peer",
        "peer(x, pe, team)",
        "The symmetric tensor x in the memory of rank pe. Without a team, the rank refers to the \
         kernel's only team, or to all PEs.",
        peer,
    ),
    builtin(
        "in_cta",
        "in_cta(x, rank)",
        "The tensor x of shared memory in the CTA of that rank in the cluster.",
        in_cta,
    ),
    builtin(
        "partition",
        "partition(x, threads(), v)",
        "This thread's part of x, as modes (value, step). The threads take turns and get v elements each time, or 16 bytes without v.",
        partition,
    ),
    builtin("shared", "shared<T>(layout)", "A tensor in the CTA's shared memory, uninitialised.", shared),
    builtin(
        "zeros",
        "zeros<T>(shape), zeros<T>(like = x)",
        "A register tensor of zeros. With `like`, it has the shape of x and the same distribution over the threads: that of elements or coordinates in registers, or of a tensor that all threads read together.",
        zeros,
    ),
    builtin("full", "full<T>(shape, value)", "A register tensor of one value.", full),
    builtin("sizeof", "sizeof(x)", "Bytes of an element of a tensor, or of a type.", sizeof),
    builtin("is_float", "is_float(T)", "Whether a type is a floating-point one.", is_float),
];

fn multicast(e: &mut Elab<'_>, call: &Call<'_>) -> Result<Val> {
    call.arity(2..=2)?;
    call.no_words()?;
    let (t, _) = call.tensor(e, 0)?;
    let team = call.team(e, 1)?;
    let value = e.b.multicast(t.value, team)?;
    Ok(Val::Tensor(Tensor { value, private: t.private, element: t.element, order: t.order }))
}

fn peer(e: &mut Elab<'_>, call: &Call<'_>) -> Result<Val> {
    call.arity(2..=3)?;
    call.no_words()?;
    let (t, _) = call.tensor(e, 0)?;
    let pe = call.int(e, 1)?;
    let team = call.team_or_only(e, 2)?;
    let private = t.private || e.varies(&pe);
    let pe = e.i32(pe)?;
    let value = e.b.peer(t.value, team, pe)?;
    Ok(Val::Tensor(Tensor { value, private, element: t.element, order: t.order }))
}

fn in_cta(e: &mut Elab<'_>, call: &Call<'_>) -> Result<Val> {
    call.arity(2..=2)?;
    call.no_words()?;
    let (t, _) = call.tensor(e, 0)?;
    let rank = call.int(e, 1)?;
    let size = i64::from(e.b.kernel().cluster_size());
    if rank.upper_bound().is_some_and(|r| r < 0) || rank.lower_bound() >= size {
        let message = format!("the cluster has {size} CTAs, so there is no CTA of rank {rank}");
        return Err(Diagnostic::error(WRONG_ARGS, call.val(1).1, message)
            .help("the attribute `cluster(2)` of a kernel sets the number of CTAs of a cluster"));
    }
    let private = t.private || e.varies(&rank);
    let cta = e.i32(rank)?;
    let value = e.b.emit(View::InCta { base: t.value, cta })?;
    Ok(Val::Tensor(Tensor { value, private, element: t.element, order: t.order }))
}

fn partition(e: &mut Elab<'_>, call: &Call<'_>) -> Result<Val> {
    call.arity(2..=3)?;
    call.no_words()?;
    let (t, _) = call.tensor(e, 0)?;
    let vector = if call.args.len() == 3 {
        let n = call.int(e, 2)?;
        match n.as_const() {
            Some(n @ 1..=1024) => Some(n),
            _ => {
                return fail(
                    WRONG_ARGS,
                    call.val(2).1,
                    format!("a thread can take 1 to 1024 elements at a time, not {n}"),
                );
            }
        }
    } else {
        None
    };
    match call.val(1) {
        (Val::Threads(threads), _) => e.partition(t, &threads, vector, call.span).map(Val::Tensor),
        (other, at) => Err(Diagnostic::error(
            WRONG_KIND,
            at,
            format!("`partition` needs threads, found {}", e.describe(&other)),
        )
        .help("write `threads()` for the threads of the grid, `threads<block>()` or `threads<warp>()`")),
    }
}

/// The element type in angle brackets.
pub(super) fn elem(e: &mut Elab<'_>, call: &Call<'_>) -> Result<Scalar> {
    let words = call.words()?;
    match words.positional[..] {
        [(name, span)] if words.named.is_empty() => e.dtype(name, span),
        _ => fail(WRONG_ARGS, call.span, format!("`{}` needs one element type in angle brackets", call.name)),
    }
}

fn shared(e: &mut Elab<'_>, call: &Call<'_>) -> Result<Val> {
    call.arity(1..=1)?;
    let elem = elem(e, call)?;
    let (l, at) = call.val(0);
    let (layout, swizzle) = match l {
        Val::Swizzled(swizzle, layout) => (layout, Some(swizzle)),
        l => (e.as_layout(l, at)?, None),
    };
    let bytes = layout.cosize().as_const().and_then(|n| n.checked_mul(i64::from(elem.bytes())));
    if !bytes.is_some_and(|n| n > 0 && n.unsigned_abs() <= weft_ir::abi::MAX_SHARED) {
        return Err(Diagnostic::error(
            NOT_HELD,
            at,
            format!("{layout} of {elem} does not fit shared memory"),
        )
        .help("a CTA has at most 227 KiB, and the extents must be compile-time constants"));
    }
    let value = e.b.shared(elem, layout, swizzle)?;
    Ok(Val::Tensor(Tensor { value, private: false, element: false, order: None }))
}

fn zeros(e: &mut Elab<'_>, call: &Call<'_>) -> Result<Val> {
    let elem = elem(e, call)?;
    if let [(Some(name), like, at)] = &call.args[..]
        && &*name.name == "like"
    {
        return zeros_like(e, elem, like, *at);
    }
    call.arity(1..=1)?;
    let (shape, lanes) = static_shape(e, call)?;
    let value = zero(e, elem, lanes)?;
    Ok(Val::Fragment(Fragment { value, shape, bounds: Vec::new(), distribution: None, order: None }))
}

/// Zeros with the shape and the distribution of elements or coordinates, or of those of a tensor
/// that all threads read together.
fn zeros_like(e: &mut Elab<'_>, elem: Scalar, like: &Val, at: Span) -> Result<Val> {
    match like {
        Val::Fragment(f) => {
            let value = zero(e, elem, e.b.ty(f.value).lanes().unwrap_or(1))?;
            Ok(Val::Fragment(Fragment { value, ..f.clone() }))
        }
        Val::Coordinates(c) => {
            let value = zero(e, elem, c.lanes())?;
            e.tile_fragment(value, c.share(), at).map(Val::Fragment)
        }
        Val::Tensor(t) => {
            let (part, distribution) = e.part_of(*t, at)?;
            let size = e.tensor_type_of(part).layout.size();
            let Some(lanes) = lanes(&size) else { return Err(not_held(at, &size)) };
            let value = zero(e, elem, lanes)?;
            Ok(Val::Fragment(e.fragment(part, value, distribution)))
        }
        other => {
            let message = format!("`zeros` needs a tensor to be like, found {}", e.describe(other));
            Err(Diagnostic::error(WRONG_KIND, at, message).help("zeros<f32>(like = x)"))
        }
    }
}

fn full(e: &mut Elab<'_>, call: &Call<'_>) -> Result<Val> {
    call.arity(2..=2)?;
    let elem = elem(e, call)?;
    let (shape, lanes) = static_shape(e, call)?;
    let (v, at) = call.val(1);
    let v = e.scalar_or_frag(v, Some(elem), at)?;
    let value = match e.check_elem(v, Some(elem), at)? {
        Val::Runtime(v) => e.b.splat(v, &Type::lanes_of(elem, lanes))?,
        other => {
            return fail(WRONG_KIND, at, format!("`full` needs a scalar, found {}", e.describe(&other)));
        }
    };
    Ok(Val::Fragment(Fragment { value, shape, bounds: Vec::new(), distribution: None, order: None }))
}

/// The shape of a register tensor, which is the first argument, and its number of elements.
fn static_shape(e: &mut Elab<'_>, call: &Call<'_>) -> Result<(IntTuple, u32)> {
    let (shape, at) = call.val(0);
    let shape = e.as_tuple(&shape, at)?;
    let Some(n) = lanes(&shape.product()) else { return Err(not_held(at, &shape)) };
    if weft_ir::Layout::col_major(shape.clone()).is_err() {
        return fail(LAYOUT, at, format!("{shape} is not a shape"));
    }
    Ok((shape, n))
}

/// The number of elements, if a thread can hold them.
fn lanes(size: &Int) -> Option<u32> {
    size.as_const().and_then(|n| u32::try_from(n).ok()).filter(|n| (1..=MAX_LANES).contains(n))
}

fn not_held(at: Span, shape: &dyn std::fmt::Display) -> Diagnostic {
    let message = format!("a register tensor must have 1 to {MAX_LANES} elements, unlike {shape}");
    Diagnostic::error(NOT_HELD, at, message).help("its extents must be compile-time constants")
}

/// Zeros in registers.
fn zero(e: &mut Elab<'_>, elem: Scalar, lanes: u32) -> Result<Value> {
    let ty = Type::lanes_of(elem, lanes);
    if !elem.is_fp8() {
        return e.b.zero(&ty);
    }
    let zero = e.b.float(Scalar::F32, 0.0)?;
    let zero = e.b.convert(zero, elem)?;
    e.b.splat(zero, &ty)
}

fn sizeof(e: &mut Elab<'_>, call: &Call<'_>) -> Result<Val> {
    call.arity(1..=1)?;
    call.no_words()?;
    let elem = match call.val(0) {
        (Val::Dtype(s), _) => Some(s),
        (Val::Tensor(t), _) => e.b.ty(t.value).elem(),
        (Val::Fragment(f), _) => e.b.ty(f.value).elem(),
        (Val::Runtime(v), _) => e.b.ty(v).elem(),
        _ => None,
    };
    match elem {
        Some(s) => Ok(Val::Int(i64::from(s.bytes()).into())),
        None => fail(WRONG_KIND, call.span, "`sizeof` needs a tensor or an element type"),
    }
}

fn is_float(e: &mut Elab<'_>, call: &Call<'_>) -> Result<Val> {
    call.arity(1..=1)?;
    call.no_words()?;
    match call.val(0) {
        (Val::Dtype(s), _) => Ok(Val::Bool(s.is_float())),
        (other, at) => {
            fail(WRONG_KIND, at, format!("`is_float` needs an element type, found {}", e.describe(&other)))
        }
    }
}
