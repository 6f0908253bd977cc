//! Functions of shapes and of modes.

use super::{Call, Function, Result, function};
use crate::expr::{ExprError, Value};
use crate::modes::{Modes, product_each};
use crate::{AnyLayout, Coord, Int, IntTuple, Layout, LayoutError, Order};

/// A tree that the mode functions rearrange. Layouts stay layouts, and tuples stay tuples.
enum Tree {
    Layout(Layout),
    Tuple(IntTuple),
    Coord(Coord),
}

fn tree(call: &Call<'_>, i: usize) -> Result<Tree> {
    match call.arg(i)? {
        Value::Int(_) | Value::Tuple(_) => call.tuple(i).map(Tree::Tuple),
        Value::Coord(_) => call.coord(i).map(Tree::Coord),
        _ => call.layout(i).map(Tree::Layout),
    }
}

/// Applies a function of any tree to the first argument, or to its inner layout if it is swizzled.
macro_rules! rearrange {
    ($call:expr, |$t:ident| $body:expr) => {
        match $call.arg(0)? {
            Value::Composed(_) => $call.lift(|$t| $body),
            _ => match tree($call, 0)? {
                Tree::Layout($t) => $call.wrap($body.and_then(|l: Layout| l.checked($call.function.name))),
                Tree::Tuple($t) => $call.wrap($body.and_then(|t: IntTuple| t.checked($call.function.name))),
                Tree::Coord($t) => $call.wrap($body),
            },
        }
    };
}

/// Applies a function with a second tree of the same kind as the first. If the argument for `x` is
/// absent, it is `1:0`.
macro_rules! extend {
    ($call:expr, $x_at:expr, |$t:ident, $x:ident| $body:expr) => {
        match ($call.arg(0)?, $call.args.get($x_at)) {
            (Value::Composed(_), _) => {
                let $x = if $call.args.len() > $x_at { $call.layout($x_at)? } else { Layout::one() };
                $call.lift(|$t| $body)
            }
            _ => match (tree($call, 0)?, $call.args.len() > $x_at) {
                (Tree::Layout($t), given) => {
                    let $x = if given { $call.layout($x_at)? } else { Layout::one() };
                    $call.wrap($body.and_then(|l: Layout| l.checked($call.function.name)))
                }
                (Tree::Tuple($t), true) if $call.tuple($x_at).is_ok() => {
                    let $x = $call.tuple($x_at)?;
                    $call.wrap($body.and_then(|t: IntTuple| t.checked($call.function.name)))
                }
                (Tree::Tuple(t), true) if $call.coord($x_at).is_err() => {
                    let $t = Layout::col_major(t).map_err(|e| $call.error(e))?;
                    let $x = $call.layout($x_at)?;
                    $call.wrap($body.and_then(|l: Layout| l.checked($call.function.name)))
                }
                (Tree::Tuple(t), true) => {
                    let ($t, $x) = (Coord::from(&t), $call.coord($x_at)?);
                    $call.wrap($body)
                }
                (Tree::Coord($t), true) => {
                    let $x = $call.coord($x_at)?;
                    $call.wrap($body)
                }
                (Tree::Tuple($t), false) => {
                    let $x = IntTuple::from(Int::ONE);
                    $call.wrap($body.and_then(|t: IntTuple| t.checked($call.function.name)))
                }
                (Tree::Coord($t), false) => {
                    let $x = Coord::All;
                    $call.wrap($body)
                }
            },
        }
    };
}

/// The shape of the mode that the indices after the first argument lead to.
fn shape_of_mode(call: &Call<'_>) -> Result<IntTuple> {
    call.shape(0)?.at(&call.indices(1)?).map_err(|e| call.error(e))
}

fn layout_of_mode(call: &Call<'_>) -> Result<Layout> {
    let layout = match call.any(0)? {
        AnyLayout::Plain(l) => l,
        AnyLayout::Composed(c) => c.layout().clone(),
    };
    layout.at(&call.indices(1)?).map_err(|e| call.error(e))
}

fn count(n: usize) -> Result<Value> {
    Ok(Value::Int(Int::from(n)))
}

/// The extent `n` among the arguments of `append` and `prepend`: `append<n>(t[,x])` or
/// `append(t[,x])`.
fn extent(call: &Call<'_>) -> Result<Option<usize>> {
    if call.template.is_empty() { Ok(None) } else { call.exact_indices::<1>(1).map(|[n]| Some(n)) }
}

pub(super) fn functions() -> Vec<Function> {
    vec![
        function(
            "size",
            "size<I..>(L) -> int",
            "elements in the domain, of the mode I.. if given",
            1..=9,
            |c| {
                let size = shape_of_mode(c)?.product();
                match size.poison() {
                    Some(poison) => Err(c.error(LayoutError::Arithmetic { function: "size", poison })),
                    None => Ok(Value::Int(size)),
                }
            },
        ),
        function("cosize", "cosize<I..>(L) -> int", "one past the greatest offset", 1..=9, |c| {
            let cosize = layout_of_mode(c)?.cosize();
            match cosize.poison() {
                Some(poison) => Err(c.error(LayoutError::Arithmetic { function: "cosize", poison })),
                None => Ok(Value::Int(cosize)),
            }
        }),
        function("rank", "rank<I..>(L) -> int", "modes at the top level", 1..=9, |c| {
            count(shape_of_mode(c)?.rank())
        }),
        function("depth", "depth<I..>(L) -> int", "levels of nesting; 0 for an integer", 1..=9, |c| {
            count(shape_of_mode(c)?.depth())
        }),
        function("shape", "shape<I..>(L) -> tuple", "extents", 1..=9, |c| Ok(shape_of_mode(c)?.into())),
        function("stride", "stride<I..>(L) -> tuple", "strides", 1..=9, |c| {
            if let Value::Composed(l) = c.arg(0)? {
                return Err(ExprError::new(c.at(0), format!("{l} is swizzled and has no strides")));
            }
            Ok(layout_of_mode(c)?.into_parts().1.into())
        }),
        function("layout", "layout<I..>(L) -> layout", "the mode I.. as a layout", 1..=9, |c| {
            let path = c.indices(1)?;
            c.lift(|l| l.at(&path))
        }),
        function("get", "get<I..>(T) -> mode", "the mode I..", 1..=9, |c| {
            let path = c.indices(1)?;
            rearrange!(c, |t| t.at(&path))
        }),
        function("take", "take<B,E>(T) -> modes", "the modes B to E, without E", 1..=3, |c| {
            let [b, e] = c.exact_indices(1)?;
            rearrange!(c, |t| t.take(b, e))
        }),
        function("select", "select<I..>(T) -> modes", "the modes listed, in that order", 1..=9, |c| {
            let which = c.indices(1)?;
            rearrange!(c, |t| t.select(&which))
        }),
        function("group", "group<B,E>(T) -> modes", "the modes B to E gathered into one", 1..=3, |c| {
            let [b, e] = c.exact_indices(1)?;
            rearrange!(c, |t| t.group(b, e))
        }),
        function("flatten", "flatten(T) -> modes", "all leaves in one level", 1..=1, |c| {
            rearrange!(c, |t| Ok(t.flatten()))
        }),
        function(
            "unflatten",
            "unflatten(T,profile) -> modes",
            "flat modes nested as the profile is",
            2..=2,
            |c| {
                let profile = c.shape(1)?;
                rearrange!(c, |t| t.unflatten(&profile))
            },
        ),
        function(
            "append",
            "append<N>(T[,x]) -> modes",
            "x as another last mode, or up to rank N; x is 1:0",
            1..=2,
            |c| match extent(c)? {
                Some(n) => extend!(c, 1, |t, x| t.append_to(n, x)),
                None => extend!(c, 1, |t, x| Ok(t.append(x))),
            },
        ),
        function(
            "prepend",
            "prepend<N>(T[,x]) -> modes",
            "x as another first mode, or up to rank N",
            1..=2,
            |c| match extent(c)? {
                Some(n) => extend!(c, 1, |t, x| t.prepend_to(n, x)),
                None => extend!(c, 1, |t, x| Ok(t.prepend(x))),
            },
        ),
        function("replace", "replace<N>(T,x) -> modes", "x in place of mode N", 2..=2, |c| {
            let [n] = c.exact_indices(2)?;
            extend!(c, 1, |t, x| t.replace(n, x))
        }),
        function("zip", "zip(T[,U]) -> modes", "((a,b),(x,y)) to ((a,x),(b,y))", 1..=2, |c| {
            match c.args.len() {
                1 => rearrange!(c, |t| t.zip()),
                _ => extend!(c, 1, |t, u| Modes::from_modes(vec![t.clone(), u]).zip()),
            }
        }),
        function("congruent", "congruent(T,U) -> bool", "whether both nest alike", 2..=2, |c| {
            Ok(c.shape(0)?.is_congruent(&c.shape(1)?).into())
        }),
        function(
            "weakly_congruent",
            "weakly_congruent(T,U) -> bool",
            "whether T nests no deeper than U",
            2..=2,
            |c| Ok(c.shape(0)?.is_weakly_congruent(&c.shape(1)?).into()),
        ),
        function(
            "compatible",
            "compatible(S,T) -> bool",
            "whether coordinates of S are ones of T",
            2..=2,
            |c| Ok(c.shape(0)?.is_compatible(&c.shape(1)?).into()),
        ),
        function(
            "evenly_divides",
            "evenly_divides(S,tiler) -> bool",
            "whether no tile is in part past S",
            2..=2,
            |c| c.wrap(c.shape(0)?.evenly_divides(&c.tiler(1)?)),
        ),
        function(
            "shape_div",
            "shape_div(S,T) -> tuple",
            "ceil_div where one must divide the other",
            2..=2,
            |c| c.wrap(c.shape(0)?.shape_div(&c.shape(1)?).and_then(|t| t.checked("shape_div"))),
        ),
        function("product", "product(T) -> int", "the product of all integers", 1..=1, |c| {
            Ok(Value::Int(c.tuple(0)?.product()))
        }),
        function("product_each", "product_each(T) -> tuple", "the products of the modes", 1..=1, |c| {
            Ok(product_each(&c.shape(0)?).into())
        }),
        function(
            "make_layout",
            "make_layout(shape[,stride or LayoutLeft or LayoutRight]) or make_layout(L,..) -> layout",
            "a layout of shape and stride, or of layouts as modes",
            1..=64,
            make_layout,
        ),
        function(
            "make_ordered_layout",
            "make_ordered_layout(shape,order) -> layout",
            "the compact layout with strides ascending in the order of its modes",
            2..=2,
            |c| match c.arg(1)? {
                Value::Order(_) => make_layout(c),
                _ => c.wrap(Layout::ordered(c.shape(0)?, &c.tuple(1)?)),
            },
        ),
        function(
            "make_layout_like",
            "make_layout_like(L) -> layout",
            "L made compact in its own order",
            1..=1,
            |c| c.wrap(c.layout(0)?.make_layout_like()),
        ),
        function(
            "make_fragment_like",
            "make_fragment_like(L) -> layout",
            "L as registers hold it",
            1..=1,
            |c| match c.any(0)? {
                AnyLayout::Plain(l) => c.wrap(l.make_fragment_like()),
                AnyLayout::Composed(l) => c.wrap(l.layout().make_fragment_like()),
            },
        ),
    ]
}

fn make_layout(c: &Call<'_>) -> Result<Value> {
    let is_shape = |v: &Value| v.to_tuple().is_some();
    match c.args.as_slice() {
        [shape] if is_shape(shape) => c.wrap(Layout::col_major(c.tuple(0)?)),
        [_, Value::Order(Order::LayoutLeft)] => c.wrap(Layout::col_major(c.shape(0)?)),
        [_, Value::Order(Order::LayoutRight)] => c.wrap(Layout::row_major(c.shape(0)?)),
        [shape, stride] if is_shape(shape) && is_shape(stride) => {
            c.wrap(Layout::new(c.tuple(0)?, c.tuple(1)?))
        }
        _ => {
            let modes = (0..c.args.len()).map(|i| c.layout(i)).collect::<Result<Vec<_>>>()?;
            c.wrap(Layout::from_modes(modes).checked("make_layout"))
        }
    }
}
