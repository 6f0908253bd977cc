//! Layouts as pictures: a table as text, or SVG in the style of CuTe.

mod svg;
mod table;

use std::fmt::Display;

pub use svg::{Cell, svg, svg_cells, svg_tv};
pub use table::table;

use crate::error::invalid;
use crate::modes::product_each;
use crate::{AnyLayout, ComposedLayout, Int, IntTuple, Layout, LayoutError, Result, Value};

/// The maximum number of cells that are drawn.
pub const MAX_CELLS: i64 = 1 << 14;

/// A function from the coordinates of a shape to offsets, which can be drawn.
pub trait Mapping: Display {
    /// The shape whose coordinates the function takes.
    fn shape(&self) -> &IntTuple;

    /// The offset of a coordinate.
    ///
    /// # Errors
    /// Fails if the coordinate does not fit the shape.
    fn offset_at(&self, coord: &IntTuple) -> Result<Int>;
}

impl Mapping for Layout {
    fn shape(&self) -> &IntTuple {
        Layout::shape(self)
    }

    fn offset_at(&self, coord: &IntTuple) -> Result<Int> {
        self.crd2idx(coord)
    }
}

impl Mapping for ComposedLayout {
    fn shape(&self) -> &IntTuple {
        self.layout().shape()
    }

    fn offset_at(&self, coord: &IntTuple) -> Result<Int> {
        self.crd2idx(coord)
    }
}

impl Mapping for AnyLayout {
    fn shape(&self) -> &IntTuple {
        match self {
            AnyLayout::Plain(l) => l.shape(),
            AnyLayout::Composed(c) => Mapping::shape(c),
        }
    }

    fn offset_at(&self, coord: &IntTuple) -> Result<Int> {
        match self {
            AnyLayout::Plain(l) => l.crd2idx(coord),
            AnyLayout::Composed(c) => c.crd2idx(coord),
        }
    }
}

impl Value {
    /// The [`table`] of a layout, or of a shape as a layout.
    ///
    /// # Errors
    /// Fails where [`table`] fails, or if the value is neither.
    pub fn table(&self) -> Result<String> {
        table(&*self.mapping("table")?)
    }

    /// The [`svg`] of a layout or of a shape as a layout, or the [`svg_tv`] of a tile and its thread-value layout, as
    /// `make_tiled_copy` returns them.
    ///
    /// # Errors
    /// Fails where [`svg`] or [`svg_tv`] fails, or if the value is neither.
    pub fn svg(&self) -> Result<String> {
        if let Value::List(parts) = self
            && let [tile, Value::Layout(layout_tv)] = parts.as_slice()
            && let Some(shape) = tile.to_tiler().and_then(|t| t.shape())
        {
            return svg_tv(layout_tv, &shape);
        }
        svg(&*self.mapping("svg")?)
    }

    fn mapping(&self, function: &'static str) -> Result<Box<dyn Mapping>> {
        match self {
            Value::Composed(c) => Ok(Box::new(c.clone())),
            other => match other.to_layout() {
                Some(layout) => Ok(Box::new(layout?)),
                None => invalid(function, format!("{other} is {}, not a layout", other.kind())),
            },
        }
    }
}

/// The number of rows and columns of a grid of `shape`. A shape of rank 1 is a column, as in CuTe's
/// drawings.
fn grid(function: &'static str, shape: &IntTuple) -> Result<(i64, i64)> {
    let extents = match product_each(shape) {
        IntTuple::Tuple(modes) => modes,
        IntTuple::Int(_) => vec![],
    };
    let extent = |i: usize| match extents.get(i).and_then(IntTuple::as_int) {
        None => Ok(1),
        Some(n) => n.as_const().ok_or_else(|| LayoutError::NotConstant {
            function,
            mode: crate::Mode(vec![i]),
            value: n.clone(),
        }),
    };
    if extents.len() > 2 {
        return invalid(
            function,
            format!("{shape} has rank {}; group its modes into two, such as with group", extents.len()),
        );
    }
    let (rows, columns) = (extent(0)?, extent(1)?);
    // Rows are drawn even if there are no columns.
    match rows.max(1).checked_mul(columns.max(1)) {
        Some(cells) if cells <= MAX_CELLS => Ok((rows, columns)),
        _ => Err(LayoutError::TooLarge {
            function,
            what: "the number of cells",
            value: format!("{rows}*{columns}"),
            limit: MAX_CELLS,
        }),
    }
}

/// The offsets of a grid, row by row.
fn offsets(function: &'static str, mapping: &dyn Mapping, rows: i64, columns: i64) -> Result<Vec<Vec<i64>>> {
    let rank = mapping.shape().rank();
    let cell = |m: i64, n: i64| {
        let coord = match rank {
            0 => IntTuple::Tuple(vec![]),
            1 => IntTuple::from(m),
            _ => IntTuple::tuple([m, n]),
        };
        let offset = mapping.offset_at(&coord)?;
        let symbolic =
            || LayoutError::NotConstant { function, mode: crate::Mode::default(), value: offset.clone() };
        offset.as_const().ok_or_else(symbolic)
    };
    (0..rows).map(|m| (0..columns).map(|n| cell(m, n)).collect()).collect()
}
