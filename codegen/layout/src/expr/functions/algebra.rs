//! Functions of the layout algebra.

use super::{Call, Function, Result, compose, function};
use crate::expr::Value;
use crate::{AnyLayout, ComposedLayout, Layout, Order, Result as LayoutResult, Swizzle, Tiler};

/// Calls a function of a layout and a tiler.
fn tiled(c: &Call<'_>, f: fn(&Layout, &Tiler) -> LayoutResult<Layout>) -> Result<Value> {
    let tiler = c.tiler(1)?;
    c.lift(|l| f(l, &tiler))
}

/// Calls a function of a layout, or its variant that also takes a profile.
fn profiled(
    c: &Call<'_>,
    whole: fn(&Layout) -> LayoutResult<Layout>,
    by: fn(&Layout, &crate::IntTuple) -> LayoutResult<Layout>,
) -> Result<Value> {
    match c.args.len() {
        1 => c.lift(whole),
        _ => {
            let profile = c.tuple(1)?;
            c.lift(|l| by(l, &profile))
        }
    }
}

/// Calls the overload of a function for layouts, for swizzled layouts or for swizzles.
fn overloaded(
    c: &Call<'_>,
    layout: impl FnOnce(&Layout) -> LayoutResult<Layout>,
    composed: impl FnOnce(&ComposedLayout) -> LayoutResult<AnyLayout>,
    swizzle: impl FnOnce(Swizzle) -> LayoutResult<Swizzle>,
) -> Result<Value> {
    match c.arg(0)? {
        Value::Swizzle(s) => c.wrap(swizzle(*s)),
        _ => match c.any(0)? {
            AnyLayout::Plain(l) => c.wrap(layout(&l)),
            AnyLayout::Composed(l) => c.wrap(composed(&l)),
        },
    }
}

/// The layout, or the inner layout if it is swizzled.
fn inner(c: &Call<'_>, i: usize) -> Result<Layout> {
    Ok(match c.any(i)? {
        AnyLayout::Plain(l) => l,
        AnyLayout::Composed(l) => l.layout().clone(),
    })
}

pub(super) fn functions() -> Vec<Function> {
    vec![
        function(
            "coalesce",
            "coalesce(L[,profile]) -> layout",
            "the same function with the fewest modes",
            1..=2,
            |c| profiled(c, Layout::coalesce, Layout::coalesce_by),
        ),
        function(
            "filter",
            "filter(L[,profile]) -> layout",
            "L without strides of 0 and extents of 1",
            1..=2,
            |c| profiled(c, Layout::filter, Layout::filter_by),
        ),
        function(
            "filter_zeros",
            "filter_zeros(L[,profile]) -> layout",
            "extent 1 where the stride is 0",
            1..=2,
            |c| profiled(c, |l| Ok(l.filter_zeros()), Layout::filter_zeros_by),
        ),
        function(
            "composition",
            "composition(A,B) -> layout, or composition(swizzle,offset,L)",
            "A after B: result(c) = A(B(c)); by mode if B is a tiler",
            2..=3,
            |c| match (c.args.len(), c.arg(0)?) {
                (3, Value::Swizzle(s)) => c.wrap(ComposedLayout::new(*s, c.int(1)?, c.layout(2)?)),
                (3, _) => {
                    let inner = compose(c.at, c.arg(1)?, c.arg(2)?)?;
                    compose(c.at, c.arg(0)?, &inner)
                }
                _ => compose(c.at, c.arg(0)?, c.arg(1)?),
            },
        ),
        function(
            "with_shape",
            "with_shape(L,shape) -> layout",
            "L as a function of coordinates of shape",
            2..=2,
            |c| {
                let shape = c.tuple(1)?;
                c.lift(|l| l.with_shape(&shape))
            },
        ),
        function(
            "complement",
            "complement(L[,cotarget]) -> layout",
            "the layout of the repetitions of L that fill cotarget",
            1..=2,
            |c| match c.args.len() {
                1 => c.wrap(inner(c, 0)?.complement_self()),
                _ => c.wrap(inner(c, 0)?.complement(&c.shape(1)?)),
            },
        ),
        function("right_inverse", "right_inverse(L) -> layout", "R with L(R(i)) = i", 1..=1, |c| {
            overloaded(c, Layout::right_inverse, ComposedLayout::right_inverse, Ok)
        }),
        function("left_inverse", "left_inverse(L) -> layout", "R with L(R(L(i))) = L(i)", 1..=1, |c| {
            overloaded(c, Layout::left_inverse, ComposedLayout::left_inverse, Ok)
        }),
        function(
            "nullspace",
            "nullspace(L) -> layout",
            "the indices that L maps to 0 by strides of 0",
            1..=1,
            |c| match c.any(0)? {
                AnyLayout::Plain(l) => c.wrap(l.nullspace()),
                AnyLayout::Composed(_) => Ok(Layout::one().into()),
            },
        ),
        function(
            "max_common_layout",
            "max_common_layout(A,B) -> layout",
            "R with A(R(i)) = B(R(i)) = i",
            2..=2,
            |c| match (c.any(0)?, c.any(1)?) {
                (AnyLayout::Plain(a), AnyLayout::Plain(b)) => c.wrap(a.max_common_layout(&b)),
                (AnyLayout::Composed(a), AnyLayout::Plain(b))
                | (AnyLayout::Plain(b), AnyLayout::Composed(a)) => c.wrap(a.max_common_layout(&b)),
                _ => Err(super::expected(c.at(1), c.arg(1)?, "a layout that is not swizzled")),
            },
        ),
        function(
            "max_common_vector",
            "max_common_vector(A,B) -> int",
            "elements contiguous in both",
            2..=2,
            |c| match (c.any(0)?, c.any(1)?) {
                (AnyLayout::Plain(a), AnyLayout::Plain(b)) => c.wrap(a.max_common_vector(&b)),
                (AnyLayout::Composed(a), AnyLayout::Plain(b))
                | (AnyLayout::Plain(b), AnyLayout::Composed(a)) => c.wrap(a.max_common_vector(&b)),
                (AnyLayout::Composed(a), AnyLayout::Composed(b)) => c.wrap(a.max_common_vector_composed(&b)),
            },
        ),
        function(
            "domain_distribute",
            "domain_distribute(shape,n) -> layout",
            "n indices spread over shape",
            2..=2,
            |c| c.wrap(Layout::domain_distribute(&c.shape(0)?, &c.int(1)?)),
        ),
        function("logical_divide", "logical_divide(L,tiler) -> layout", "(tile,rest), by mode", 2..=2, |c| {
            tiled(c, Layout::logical_divide)
        }),
        function("zipped_divide", "zipped_divide(L,tiler) -> layout", "((tile..),(rest..))", 2..=2, |c| {
            tiled(c, Layout::zipped_divide)
        }),
        function("tiled_divide", "tiled_divide(L,tiler) -> layout", "((tile..),rest..)", 2..=2, |c| {
            tiled(c, Layout::tiled_divide)
        }),
        function("flat_divide", "flat_divide(L,tiler) -> layout", "(tile..,rest..)", 2..=2, |c| {
            tiled(c, Layout::flat_divide)
        }),
        function(
            "tile_unzip",
            "tile_unzip(L,tiler) -> layout",
            "((tile,rest)..) to ((tile..),(rest..))",
            2..=2,
            |c| tiled(c, Layout::tile_unzip),
        ),
        function(
            "logical_product",
            "logical_product(L,tiler) -> layout",
            "(block,repetitions), by mode",
            2..=2,
            |c| tiled(c, Layout::logical_product),
        ),
        function("zipped_product", "zipped_product(L,tiler) -> layout", "((block..),(tile..))", 2..=2, |c| {
            tiled(c, Layout::zipped_product)
        }),
        function("tiled_product", "tiled_product(L,tiler) -> layout", "((block..),tile..)", 2..=2, |c| {
            tiled(c, Layout::tiled_product)
        }),
        function("flat_product", "flat_product(L,tiler) -> layout", "(block..,tile..)", 2..=2, |c| {
            tiled(c, Layout::flat_product)
        }),
        function("blocked_product", "blocked_product(L,tiler) -> layout", "((block,tile)..)", 2..=2, |c| {
            let tiler = c.layout(1)?;
            c.lift(|l| l.blocked_product(&tiler))
        }),
        function(
            "raked_product",
            "raked_product(L,tiler) -> layout",
            "((tile,block)..), interleaved",
            2..=2,
            |c| {
                let tiler = c.layout(1)?;
                c.lift(|l| l.raked_product(&tiler))
            },
        ),
        function(
            "tile_to_shape",
            "tile_to_shape(L,shape[,order]) -> layout",
            "L repeated to fill shape",
            2..=3,
            |c| {
                let shape = c.shape(1)?;
                let order = match c.args.get(2) {
                    None | Some(Value::Order(Order::LayoutLeft)) => None,
                    Some(Value::Order(Order::LayoutRight)) => {
                        Some(crate::IntTuple::tuple((0..shape.rank() as i64).rev()))
                    }
                    Some(_) => Some(c.tuple(2)?),
                };
                c.lift(|l| l.tile_to_shape(&shape, order.as_ref()))
            },
        ),
        function("upcast", "upcast<N>(L) -> layout", "L in units of N elements", 1..=2, |c| {
            let [n] = c.constants(1)?;
            overloaded(c, |l| l.upcast(n), |l| l.upcast(n).map(AnyLayout::Composed), |s| s.upcast(n))
        }),
        function("downcast", "downcast<N>(L) -> layout", "L in units of an N-th element", 1..=2, |c| {
            let [n] = c.constants(1)?;
            overloaded(c, |l| l.downcast(n), |l| l.downcast(n).map(AnyLayout::Composed), |s| s.downcast(n))
        }),
        function(
            "recast",
            "recast<from,to>(L) -> layout",
            "L with elements of to bits instead of from",
            1..=3,
            |c| {
                let [from, to] = c.constants(1)?;
                overloaded(
                    c,
                    |l| l.recast(from, to),
                    |l| l.recast(from, to).map(AnyLayout::Composed),
                    |s| s.recast(from, to),
                )
            },
        ),
        function(
            "max_alignment",
            "max_alignment(L) -> int",
            "the largest N that upcast<N> accepts",
            1..=1,
            |c| match c.any(0)? {
                AnyLayout::Plain(l) => c.wrap(l.max_alignment()),
                AnyLayout::Composed(l) => c.wrap(l.max_alignment()),
            },
        ),
        function(
            "make_swizzle",
            "make_swizzle(Y,Z) -> swizzle",
            "the swizzle of bits Y into bits Z",
            2..=2,
            |c| c.wrap(Swizzle::from_masks(c.constant(0)?, c.constant(1)?)),
        ),
    ]
}
