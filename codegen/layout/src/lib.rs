//! The CuTe layout algebra: hierarchical shapes and strides, exact where extents are constants and
//! symbolic where they are kernel arguments.
//!
//! A [`Layout`] is a function from coordinates to offsets. Every function of this crate states what
//! it returns as a postcondition ("Post:"). Nothing here panics. Where CuTe has a static assertion,
//! this crate returns a [`LayoutError`] that names the mode and the numbers.
//!
//! ```
//! use weft_layout::{Int, Layout, Tiler, Var, parse_layout};
//!
//! let tiled = parse_layout("(16,32):(32,1)", &mut |_| None)?.zipped_divide(&Tiler::from(8))?;
//! // The extent is known at run time and is known to be divisible by 8.
//! let n = Int::var(Var { div: 8, ..Var::extent(0, "N") });
//! let vectors = Layout::col_major(n)?.zipped_divide(&Tiler::from(8))?;
//! assert_eq!(vectors.to_string(), "(8,N/8):(1,8)");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Differences from CuTe C++
//! Results are those of CuTe, in the same printed form (`tests/cute.rs` compares thousands), with
//! these exceptions:
//! - Constants correspond to CuTe's static integers and symbolic values to its dynamic integers.
//!   Here symbolic values also simplify and merge like constants if that can be proven. If a
//!   condition cannot be proven, the result is an error, where CuTe trusts the caller.
//! - Some results that CuTe compiles break the function's postcondition, and are errors here.
//!   Examples are a composition in which modes carry or a stride does not divide the mode it
//!   leaves, a division that would miss elements, an inverse of modes that overlap, the complement
//!   of negative strides, and a swizzle pushed through a layout that does not move bits as they
//!   are.
//! - A slice of a swizzled layout decays to a plain layout only for constant coordinates.
//! - Quotients of negative numbers round down in expressions. Coordinates mirror, as in CuTe.
//!
//! Strides are integers. CuTe's scaled basis elements, such as those of identity layouts, are not
//! supported.

mod accumulator;
mod algebra;
mod boxes;
pub mod codes;
mod composed;
mod coord;
pub mod draw;
mod error;
pub mod expr;
mod int;
mod layout;
mod major;
mod modes;
mod nearest;
mod operand;
mod place;
mod swizzle;
mod tiled_copy;
mod tiler;
mod tuple;

pub use accumulator::{ATOM_ROWS, accumulator, accumulator_rows};
pub use boxes::{TileBox, TileBoxes, panels};
pub use composed::{AnyLayout, ComposedLayout, swizzle_after, swizzled};
pub use coord::{Coord, crd2crd, crd2idx, dice, idx2crd, slice};
pub use draw::{Cell, Mapping, svg, svg_cells, svg_tv, table};
pub use error::{LayoutError, Mode, Result};
pub use expr::{ExprError, Value, eval, eval_with, functions, parse_int, parse_layout};
pub use int::{Int, MAX_NODES, Node, Poison, Var};
pub use layout::Layout;
pub use major::Order;
pub use modes::Modes;
pub use nearest::{Nearest, swizzled_panels};
pub use operand::{Operand, SLICE_BYTES};
pub use swizzle::Swizzle;
pub use tiled_copy::{CopyAtom, Side, TiledCopy};
pub use tiler::Tiler;
pub use tuple::{IntTuple, MAX_DEPTH, MAX_LEAVES};

/// The examples of the README compile and run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
