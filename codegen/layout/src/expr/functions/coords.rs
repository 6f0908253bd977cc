//! Functions of coordinates, slices and partitions.

use super::{Call, Function, Result, function};
use crate::coord::{self, Coord};
use crate::expr::Value;
use crate::{
    AnyLayout, CopyAtom, Int, IntTuple, Layout, LayoutError, Result as LayoutResult, Side, TiledCopy, Tiler,
};

/// The layout of a part. As in a slice, its offset is left out.
fn part<T: Into<Value>>(c: &Call<'_>, result: LayoutResult<(T, Int)>) -> Result<Value> {
    c.wrap(result.map(|(layout, _)| layout))
}

fn cut(
    c: &Call<'_>,
    which: fn(&Coord, &IntTuple) -> LayoutResult<IntTuple>,
    coords: fn(&Coord, &Coord) -> LayoutResult<Coord>,
    tilers: fn(&Coord, &Tiler) -> LayoutResult<Tiler>,
    layouts: fn(&Layout, &Coord) -> LayoutResult<Layout>,
) -> Result<Value> {
    let coord = c.coord(0)?;
    match c.arg(1)? {
        Value::Int(_) | Value::Tuple(_) => c.wrap(which(&coord, &c.tuple(1)?)),
        Value::Coord(t) => c.wrap(coords(&coord, t)),
        Value::Tiler(t) => c.wrap(tilers(&coord, t)),
        Value::Composed(l) => c.wrap(l.slice_and_offset(&coord).map(|(slice, _)| slice)),
        _ => c.wrap(layouts(&c.layout(1)?, &coord)),
    }
}

/// The tiled copy of the thread and value layouts. Argument `atom_at` is the number of values that
/// one instruction copies.
fn tiled_copy(c: &Call<'_>, atom_at: usize) -> Result<TiledCopy> {
    let values = if c.args.len() > atom_at { c.constant(atom_at)? } else { 1 };
    let (threads, values_layout) = (c.layout(0)?, c.layout(1)?);
    let made = CopyAtom::universal(values).and_then(|atom| TiledCopy::make(atom, &threads, &values_layout));
    made.map_err(|e| c.error(e))
}

/// Evaluates `partition_S(threads,values,L,thread[,atom])` or the same for the destination.
fn partition(c: &Call<'_>, side: Side) -> Result<Value> {
    let copy = tiled_copy(c, 4)?;
    part(c, copy.partition(side, &c.int(3)?, &c.layout(2)?))
}

pub(super) fn functions() -> Vec<Function> {
    vec![
        function(
            "crd2idx",
            "crd2idx(c,L) or crd2idx(c,shape[,stride]) -> int",
            "the offset of a coordinate",
            2..=3,
            |c| {
                let coord = c.tuple(0)?;
                match (c.args.len(), c.arg(1)?) {
                    (3, _) => {
                        let layout = Layout::new(c.tuple(1)?, c.tuple(2)?).map_err(|e| c.error(e))?;
                        c.wrap(layout.crd2idx(&coord))
                    }
                    (_, Value::Int(_) | Value::Tuple(_)) => c.wrap(coord::crd2idx(&coord, &c.tuple(1)?)),
                    (_, Value::Composed(l)) => c.wrap(l.crd2idx(&coord)),
                    _ => c.wrap(c.layout(1)?.crd2idx(&coord)),
                }
            },
        ),
        function(
            "idx2crd",
            "idx2crd(i,L) or idx2crd(i,shape[,stride]) -> tuple",
            "the coordinate of an offset",
            2..=3,
            |c| {
                let index = c.tuple(0)?;
                if let Some(negative) =
                    index.leaves().into_iter().find(|i| i.as_const().is_some_and(|i| i < 0))
                {
                    let reason = format!("the index is {negative}, but indices are 0 or more");
                    return Err(c.error(LayoutError::Invalid { function: "idx2crd", reason }));
                }
                match (c.args.len(), c.arg(1)?) {
                    (3, _) => {
                        let layout = Layout::new(c.tuple(1)?, c.tuple(2)?).map_err(|e| c.error(e))?;
                        c.wrap(layout.idx2crd(&index))
                    }
                    (_, Value::Int(_) | Value::Tuple(_)) => c.wrap(coord::idx2crd(&index, &c.tuple(1)?)),
                    _ => c.wrap(c.layout(1)?.idx2crd(&index)),
                }
            },
        ),
        function(
            "get_hier_coord",
            "get_hier_coord(L,i) -> tuple",
            "the coordinate of offset i, nested as L",
            2..=2,
            |c| c.wrap(c.layout(0)?.idx2crd(&c.int(1)?.into())),
        ),
        function(
            "get_flat_coord",
            "get_flat_coord(L,i) -> tuple",
            "the coordinate of offset i, by top-level mode",
            2..=2,
            |c| c.wrap(c.layout(0)?.flat_coord(&c.int(1)?)),
        ),
        function(
            "get_1d_coord",
            "get_1d_coord(L,i) -> int",
            "the index of offset i in colexicographic order",
            2..=2,
            |c| c.wrap(c.layout(0)?.coord_1d(&c.int(1)?)),
        ),
        function(
            "crd2crd",
            "crd2crd(c,from,to) -> tuple",
            "the coordinate of shape to that c is in from",
            3..=3,
            |c| c.wrap(coord::crd2crd(&c.tuple(0)?, &c.shape(1)?, &c.shape(2)?)),
        ),
        function("slice", "slice(c,L) -> layout", "the modes for which c has a _", 2..=2, |c| {
            cut(c, coord::slice, coord::slice, coord::slice, Layout::slice)
        }),
        function("dice", "dice(c,L) -> layout", "the modes for which c has an index", 2..=2, |c| {
            if let Value::Composed(l) = c.arg(1)? {
                return Err(super::expected(c.at(1), &l.clone().into(), "a layout that is not swizzled"));
            }
            cut(c, coord::dice, coord::dice, coord::dice, Layout::dice)
        }),
        function(
            "slice_and_offset",
            "slice_and_offset(c,L) -> (layout,int)",
            "the slice and where it begins",
            2..=2,
            |c| {
                let coord = c.coord(0)?;
                let result = match c.any(1)? {
                    AnyLayout::Plain(l) => l.slice_and_offset(&coord).map(|(l, i)| (AnyLayout::Plain(l), i)),
                    AnyLayout::Composed(l) => l.slice_and_offset(&coord),
                };
                c.wrap(result.map(|(layout, offset)| vec![layout.into(), offset.into()]))
            },
        ),
        function("inner_partition", "inner_partition(L,tiler,c) -> layout", "the tile at c", 3..=3, |c| {
            let (tiler, coord) = (c.tiler(1)?, c.coord(2)?);
            match c.any(0)? {
                AnyLayout::Plain(l) => part(c, l.inner_partition(&tiler, &coord)),
                AnyLayout::Composed(l) => part(c, l.inner_partition(&tiler, &coord)),
            }
        }),
        function(
            "outer_partition",
            "outer_partition(L,tiler,c) -> layout",
            "position c of all tiles",
            3..=3,
            |c| {
                let (tiler, coord) = (c.tiler(1)?, c.coord(2)?);
                match c.any(0)? {
                    AnyLayout::Plain(l) => part(c, l.outer_partition(&tiler, &coord)),
                    AnyLayout::Composed(l) => part(c, l.outer_partition(&tiler, &coord)),
                }
            },
        ),
        function(
            "local_tile",
            "local_tile(L,tiler,c[,projection]) -> layout",
            "the tile of a block",
            3..=4,
            |c| {
                let (mut tiler, mut coord) = (c.tiler(1)?, c.coord(2)?);
                if c.args.len() == 4 {
                    let projection = c.coord(3)?;
                    tiler = coord::dice(&projection, &tiler).map_err(|e| c.error(e))?;
                    coord = coord::dice(&projection, &coord).map_err(|e| c.error(e))?;
                }
                match c.any(0)? {
                    AnyLayout::Plain(l) => part(c, l.local_tile(&tiler, &coord, None)),
                    AnyLayout::Composed(l) => part(c, l.inner_partition(&tiler, &coord)),
                }
            },
        ),
        function(
            "local_partition",
            "local_partition(L,threads,i[,projection]) -> layout",
            "the elements of thread i",
            3..=4,
            |c| {
                let (mut threads, index) = (c.layout(1)?, c.int(2)?);
                if c.args.len() == 4 {
                    threads = coord::dice(&c.coord(3)?, &threads).map_err(|e| c.error(e))?;
                }
                match c.any(0)? {
                    AnyLayout::Plain(l) => part(c, l.local_partition(&threads, &index, None)),
                    AnyLayout::Composed(l) => part(c, l.local_partition(&threads, &index)),
                }
            },
        ),
        function(
            "make_tiled_copy",
            "make_tiled_copy(threads,values[,atom values]) -> (tiler,layout_tv)",
            "the tile that threads with values each copy, and (thread,value) to index in it",
            2..=3,
            |c| {
                let copy = tiled_copy(c, 2)?;
                Ok(Value::List(vec![copy.tiler().clone().into(), copy.layout_tv().clone().into()]))
            },
        ),
        function(
            "layout_tv",
            "layout_tv(threads,values) -> layout",
            "(thread,value) to index in the tile",
            2..=2,
            |c| Ok(tiled_copy(c, 2)?.layout_tv().clone().into()),
        ),
        function(
            "partition_S",
            "partition_S(threads,values,L,thread[,atom values]) -> layout",
            "what a thread of the tiled copy reads of L: ((value,atom),rest..)",
            4..=5,
            |c| partition(c, Side::Source),
        ),
        function(
            "partition_D",
            "partition_D(threads,values,L,thread[,atom values]) -> layout",
            "what a thread of the tiled copy writes of L: ((value,atom),rest..)",
            4..=5,
            |c| partition(c, Side::Destination),
        ),
    ]
}
