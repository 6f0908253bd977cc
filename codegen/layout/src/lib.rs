//! The CuTe layout algebra: hierarchical shapes and strides, exact where extents are constants and symbolic where they
//! are kernel arguments.
//!
//! A [`Layout`] is a function from coordinates to offsets; every function of this crate states what it returns as a
//! postcondition ("Post:") on that function. Nothing here panics: what CuTe rejects with a static assertion is a
//! [`LayoutError`] that names the mode and the numbers.
//!
//! ```
//! use weft_layout::{Int, Layout, Tiler, Var, parse_layout};
//!
//! let tiled = parse_layout("(16,32):(32,1)", &mut |_| None)?.zipped_divide(&Tiler::from(8))?;
//! // An extent known at run time, of which it is known that 8 divides it.
//! let n = Int::var(Var { div: 8, ..Var::extent(0, "N") });
//! let vectors = Layout::col_major(n)?.zipped_divide(&Tiler::from(8))?;
//! assert_eq!(vectors.to_string(), "(8,N/8):(1,8)");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Where it differs from CuTe C++
//! Answers are CuTe's, to the printed form (`tests/cute.rs` compares thousands), except that
//! - constants are CuTe's static integers and symbolic values its dynamic ones, but these simplify and merge like
//!   constants wherever that can be proven; what cannot be proven is an error, where CuTe trusts the caller;
//! - results that CuTe compiles but that break the function's postcondition are errors: a composition in which modes carry
//!   or a stride does not divide the mode it leaves, a division that would miss elements, an inverse of modes that
//!   overlap, the complement of negative strides, a swizzle pushed through a layout that does not move bits as they are;
//! - a slice of a swizzled layout decays to a plain layout only for constant coordinates;
//! - quotients of negative numbers round down in expressions (coordinates mirror, as in CuTe).
//!
//! Strides are integers: CuTe's scaled basis elements, as of identity layouts, have no counterpart here.

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
pub use operand::Operand;
pub use swizzle::Swizzle;
pub use tiled_copy::{CopyAtom, Side, TiledCopy};
pub use tiler::Tiler;
pub use tuple::{IntTuple, MAX_DEPTH, MAX_LEAVES};

/// The examples of the README compile and run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
