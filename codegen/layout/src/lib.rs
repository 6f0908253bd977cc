//! The CuTe layout algebra: hierarchical shapes and strides, exact where extents are constants and symbolic where they
//! are kernel arguments.
//!
//! A [`Layout`] is a function from coordinates to offsets; every function of this crate states what it returns as a
//! postcondition on that function. Nothing here panics: what CuTe rejects with a static assertion is a [`LayoutError`]
//! that names the mode and the numbers.

mod algebra;
mod composed;
mod coord;
pub mod draw;
mod error;
pub mod expr;
mod int;
mod layout;
mod major;
mod modes;
mod swizzle;
mod tiled_copy;
mod tiler;
mod tuple;

pub use composed::{AnyLayout, ComposedLayout, swizzle_after, swizzled};
pub use coord::{Coord, crd2crd, crd2idx, dice, idx2crd, slice};
pub use draw::{Mapping, svg, svg_tv, table};
pub use error::{LayoutError, Mode, Result};
pub use expr::{ExprError, Value, eval, eval_with, functions, parse_int, parse_layout};
pub use int::{Int, MAX_NODES, Node, Poison, Var};
pub use layout::Layout;
pub use major::Order;
pub use modes::Modes;
pub use swizzle::Swizzle;
pub use tiled_copy::{CopyAtom, Side, TiledCopy};
pub use tiler::Tiler;
pub use tuple::{IntTuple, MAX_DEPTH, MAX_LEAVES};
