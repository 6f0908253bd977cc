//! The layout algebra on layouts, and on tensors, which keep their memory and change their layout.

use super::{Builtin, Call, builtin};
use crate::codes::meaning::{LAYOUT, WRONG_ARGS, WRONG_KIND};
use crate::elaborate::value::{Distribution, Share, Val};
use crate::elaborate::{Elab, Result, fail};
use weft_ir::diag::{Diagnostic, Span};
use weft_ir::{Accumulator, IntTuple, Layout};
use weft_layout::{LayoutError, Modes, Tiler};

pub(super) const TABLE: &[Builtin] = &[
    builtin(
        "size",
        "size<m>(x)",
        "Number of elements of a tensor, layout or tuple, or of its mode m.",
        extent,
    ),
    builtin("cosize", "cosize<m>(x)", "The greatest offset plus 1.", extent),
    builtin("rank", "rank<m>(x)", "Number of modes.", extent),
    builtin("depth", "depth<m>(x)", "How deeply the modes are nested.", extent),
    builtin("shape", "shape<m>(x)", "The shape, as a tuple.", parts),
    builtin("stride", "stride<m>(x)", "The strides, as a tuple.", parts),
    builtin("layout", "layout<m>(x)", "The layout of a tensor, or of its mode m.", layout_of),
    builtin(
        "make_layout",
        "make_layout(shape, stride)",
        "A layout. Without strides, it is compact with the first mode fastest.",
        make_layout,
    ),
    builtin("crd2idx", "crd2idx(coord, x)", "The offset of a coordinate.", crd2idx),
    builtin("idx2crd", "idx2crd(i, x)", "The coordinate of a linear index.", idx2crd),
    builtin("coalesce", "coalesce(x)", "The same layout function with as few modes as possible.", unary),
    builtin("flatten", "flatten(x)", "The same layout function without nested modes.", unary),
    builtin("filter", "filter(x)", "The layout without modes of stride 0 or extent 1.", unary),
    builtin("right_inverse", "right_inverse(l)", "The layout R with l(R(i)) = i.", unary),
    builtin("left_inverse", "left_inverse(l)", "The layout R with R(l(i)) = i.", unary),
    builtin(
        "complement",
        "complement(l, n)",
        "The layout of the elements that l leaves out of n elements.",
        complement,
    ),
    builtin("composition", "composition(x, tiler)", "x after the tiler: R(c) = x(tiler(c)).", by_tiler),
    builtin("logical_divide", "logical_divide(x, tiler)", "((tile), (rest)), mode by mode.", by_tiler),
    builtin(
        "zipped_divide",
        "zipped_divide(x, tiler)",
        "((tiles), (rests)): one mode within the tile, and one mode of tiles.",
        by_tiler,
    ),
    builtin("tiled_divide", "tiled_divide(x, tiler)", "((tiles), rest, rest, ...).", by_tiler),
    builtin("flat_divide", "flat_divide(x, tiler)", "(tile, tile, ..., rest, rest, ...).", by_tiler),
    builtin("logical_product", "logical_product(l, tiler)", "l repeated according to the tiler.", by_tiler),
    builtin("zipped_product", "zipped_product(l, tiler)", "((l modes), (repetitions)).", by_tiler),
    builtin("tiled_product", "tiled_product(l, tiler)", "((l modes), rep, rep, ...).", by_tiler),
    builtin(
        "blocked_product",
        "blocked_product(l, m)",
        "l repeated by m, with corresponding modes joined block by block.",
        by_layout,
    ),
    builtin(
        "raked_product",
        "raked_product(l, m)",
        "l repeated by m, with corresponding modes joined and interleaved.",
        by_layout,
    ),
    builtin(
        "max_common_vector",
        "max_common_vector(a, b)",
        "The number of elements that are consecutive in both.",
        common_vector,
    ),
    builtin("local_tile", "local_tile(x, tiler, coord)", "The tile at a coordinate.", local_tile),
    builtin("replace", "replace<m>(t, x)", "The tuple t with x as its mode m.", replace),
];

fn bad(span: Span) -> impl Fn(LayoutError) -> Diagnostic {
    move |x| Diagnostic::error(LAYOUT, span, x.to_string())
}

/// The compact layout of the tile to which elements of an accumulator belong.
fn share_layout(share: Share) -> Result<Layout, LayoutError> {
    let modes = if share.is_rows() { vec![share.rows] } else { vec![share.rows, share.cols] };
    Layout::col_major(IntTuple::Tuple(modes.into_iter().map(|n| i64::from(n).into()).collect()))
}

/// The argument as a layout, or the mode of it that angle brackets select.
fn subject(e: &mut Elab<'_>, call: &Call<'_>) -> Result<Layout> {
    call.arity(1..=1)?;
    let (val, span) = call.val(0);
    let layout = match val {
        Val::Fragment(f) => match f.distribution {
            None => e.fragment_layout(&f, span)?,
            Some(Distribution::Evenly(turns)) if call.words.is_empty() && call.name.ends_with("size") => {
                return Layout::col_major(turns.total).map_err(bad(span));
            }
            Some(Distribution::Accumulated(share)) => share_layout(share).map_err(bad(span))?,
            Some(_) => {
                let message =
                    format!("`{}` of a register tensor that is distributed over the CTA", call.name);
                return Err(Diagnostic::error(WRONG_KIND, span, message)
                    .help("apply it to the tensor in memory from which it was read"));
            }
        },
        Val::Accumulator(_, Accumulator { rows, cols, over, .. }) => {
            share_layout(Share { rows, cols, over }).map_err(bad(span))?
        }
        Val::Threads(t) => return Layout::col_major(t.count).map_err(bad(span)),
        other => e.as_layout(other, span)?,
    };
    match call.mode(e)? {
        None => Ok(layout),
        Some(m) => usize::try_from(m)
            .ok()
            .and_then(|m| layout.mode(m))
            .ok_or_else(|| Diagnostic::error(WRONG_ARGS, call.span, format!("{layout} has no mode {m}"))),
    }
}

fn extent(e: &mut Elab<'_>, call: &Call<'_>) -> Result<Val> {
    // A coordinate also has modes, whatever its numbers are.
    if let ("rank", [], [(None, Val::Tuple(modes), _)]) = (call.name, call.words, &call.args[..]) {
        return Ok(Val::Int((modes.len() as i64).into()));
    }
    let l = subject(e, call)?;
    let n = match call.name {
        "size" => l.size(),
        "cosize" => l.cosize(),
        "rank" => l.rank().into(),
        _ => l.depth().into(),
    };
    match n.poison() {
        None => Ok(Val::Int(n)),
        Some(p) => fail(LAYOUT, call.span, format!("the {} of {l} has no value: {p}", call.name)),
    }
}

fn tuple(t: &IntTuple) -> Val {
    match t {
        IntTuple::Int(n) => Val::Int(n.clone()),
        IntTuple::Tuple(items) => Val::Tuple(items.iter().map(tuple).collect()),
    }
}

fn parts(e: &mut Elab<'_>, call: &Call<'_>) -> Result<Val> {
    let l = subject(e, call)?;
    Ok(tuple(if call.name == "shape" { l.shape() } else { l.stride() }))
}

fn layout_of(e: &mut Elab<'_>, call: &Call<'_>) -> Result<Val> {
    subject(e, call).map(Val::Layout)
}

fn make_layout(e: &mut Elab<'_>, call: &Call<'_>) -> Result<Val> {
    call.arity(1..=2)?;
    call.no_words()?;
    let (shape, span) = call.val(0);
    let shape = e.as_tuple(&shape, span)?;
    let layout = if call.args.len() == 2 {
        let (stride, at) = call.val(1);
        Layout::new(shape, e.as_tuple(&stride, at)?)
    } else {
        Layout::col_major(shape)
    };
    layout.map(Val::Layout).map_err(bad(call.span))
}

fn crd2idx(e: &mut Elab<'_>, call: &Call<'_>) -> Result<Val> {
    call.arity(2..=2)?;
    call.no_words()?;
    let (coord, at) = call.val(0);
    let coord = e.as_tuple(&coord, at)?;
    let (l, at) = call.val(1);
    e.as_layout(l, at)?.crd2idx(&coord).map(Val::Int).map_err(bad(call.span))
}

fn idx2crd(e: &mut Elab<'_>, call: &Call<'_>) -> Result<Val> {
    call.arity(2..=2)?;
    call.no_words()?;
    let index = call.int(e, 0)?;
    let (l, at) = call.val(1);
    let l = e.as_layout(l, at)?;
    l.idx2crd(&index.into()).map(|t| tuple(&t)).map_err(bad(call.span))
}

/// Applies a function of layouts to a layout or a tensor.
fn on(e: &mut Elab<'_>, call: &Call<'_>, f: impl Fn(&Layout) -> Result<Layout, LayoutError>) -> Result<Val> {
    match call.val(0) {
        (Val::Tensor(t), _) => e.relayout(t, call.span, f).map(Val::Tensor),
        (other, at) => {
            let l = e.as_layout(other, at)?;
            f(&l).map(Val::Layout).map_err(bad(call.span))
        }
    }
}

fn unary(e: &mut Elab<'_>, call: &Call<'_>) -> Result<Val> {
    call.arity(1..=1)?;
    call.no_words()?;
    if call.name.ends_with("inverse") && matches!(call.val(0), (Val::Tensor(_), _)) {
        return fail(WRONG_KIND, call.span, format!("`{}` takes a layout: write `layout(x)`", call.name));
    }
    let f = match call.name {
        "coalesce" => Layout::coalesce,
        "filter" => Layout::filter,
        "right_inverse" => Layout::right_inverse,
        "left_inverse" => Layout::left_inverse,
        _ => |l: &Layout| Ok(Modes::flatten(l)),
    };
    on(e, call, f)
}

fn complement(e: &mut Elab<'_>, call: &Call<'_>) -> Result<Val> {
    call.arity(1..=2)?;
    call.no_words()?;
    let (l, at) = call.val(0);
    let l = e.as_layout(l, at)?;
    let out = if call.args.len() == 2 {
        let (n, at) = call.val(1);
        l.complement(&e.as_tuple(&n, at)?)
    } else {
        l.complement_self()
    };
    out.map(Val::Layout).map_err(bad(call.span))
}

fn tiler(e: &mut Elab<'_>, val: Val, span: Span) -> Result<Tiler> {
    Ok(match val {
        Val::Whole => Tiler::All,
        Val::Layout(l) => Tiler::Layout(l),
        Val::Tuple(items) => {
            Tiler::Tuple(items.into_iter().map(|i| tiler(e, i, span)).collect::<Result<_>>()?)
        }
        other => Tiler::Int(e.as_int(other, span)?),
    })
}

fn by_tiler(e: &mut Elab<'_>, call: &Call<'_>) -> Result<Val> {
    call.arity(2..=2)?;
    call.no_words()?;
    let (t, at) = call.val(1);
    let t = tiler(e, t, at)?;
    if call.name.ends_with("product") && matches!(call.val(0), (Val::Tensor(_), _)) {
        return fail(
            WRONG_KIND,
            call.span,
            format!("`{}` needs a layout, because a tensor has no more elements", call.name),
        );
    }
    let f: fn(&Layout, &Tiler) -> Result<Layout, LayoutError> = match call.name {
        "composition" => Layout::compose,
        "logical_divide" => Layout::logical_divide,
        "zipped_divide" => Layout::zipped_divide,
        "tiled_divide" => Layout::tiled_divide,
        "flat_divide" => Layout::flat_divide,
        "logical_product" => Layout::logical_product,
        "zipped_product" => Layout::zipped_product,
        _ => Layout::tiled_product,
    };
    on(e, call, |l| f(l, &t))
}

fn by_layout(e: &mut Elab<'_>, call: &Call<'_>) -> Result<Val> {
    call.arity(2..=2)?;
    call.no_words()?;
    let ((a, a_at), (b, b_at)) = (call.val(0), call.val(1));
    let (a, b) = (e.as_layout(a, a_at)?, e.as_layout(b, b_at)?);
    let out = if call.name == "blocked_product" { a.blocked_product(&b) } else { a.raked_product(&b) };
    out.map(Val::Layout).map_err(bad(call.span))
}

fn common_vector(e: &mut Elab<'_>, call: &Call<'_>) -> Result<Val> {
    call.arity(2..=2)?;
    call.no_words()?;
    let ((a, a_at), (b, b_at)) = (call.val(0), call.val(1));
    let (a, b) = (e.as_layout(a, a_at)?, e.as_layout(b, b_at)?);
    a.max_common_vector(&b).map(Val::Int).map_err(bad(call.span))
}

/// Evaluates `zipped_divide(x, tiler)[_, coord]`.
fn local_tile(e: &mut Elab<'_>, call: &Call<'_>) -> Result<Val> {
    call.arity(3..=3)?;
    call.no_words()?;
    let (t, at) = call.tensor(e, 0)?;
    let (tile, tile_at) = call.val(1);
    let tile = tiler(e, tile, tile_at)?;
    let divided = e.relayout(t, at, |l| l.zipped_divide(&tile))?;
    // The tile keeps its modes with `(_, _)`. A `_` would keep it as one nested mode.
    let inner = e.tensor_type_of(divided).layout.mode(0).map_or(1, |tile| tile.rank());
    let whole = if inner == 1 { Val::Whole } else { Val::Tuple(vec![Val::Whole; inner]) };
    let (coord, coord_at) = call.val(2);
    e.slice(divided, &[(whole, at), (coord, coord_at)], call.span).map(Val::Tensor)
}

fn replace(e: &mut Elab<'_>, call: &Call<'_>) -> Result<Val> {
    call.arity(2..=2)?;
    let mode = call.mode(e)?.and_then(|m| usize::try_from(m).ok());
    let (Val::Tuple(mut modes), at) = call.val(0) else {
        let (other, at) = call.val(0);
        return fail(WRONG_KIND, at, format!("`replace` needs a tuple, found {}", e.describe(&other)));
    };
    let known = modes.len();
    let Some(slot) = mode.and_then(|m| modes.get_mut(m)) else {
        return Err(Diagnostic::error(WRONG_ARGS, at, format!("`replace` needs one of the {known} modes"))
            .help("write `replace<0>(t, x)`"));
    };
    *slot = call.val(1).0;
    Ok(Val::Tuple(modes))
}
