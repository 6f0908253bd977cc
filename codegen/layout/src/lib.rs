//! The CuTe layout algebra: hierarchical shapes and strides, exact where extents are constants and symbolic where they
//! are kernel arguments.
//!
//! A [`Layout`] is a function from coordinates to offsets; every function of this crate states what it returns as a
//! postcondition on that function. Nothing here panics: what CuTe rejects with a static assertion is a [`LayoutError`]
//! that names the mode and the numbers.

mod error;
mod int;
mod layout;
mod swizzle;
mod tuple;

pub use error::{LayoutError, Mode, Result};
pub use int::{Int, MAX_NODES, Node, Poison, Var};
pub use layout::Layout;
pub use swizzle::{ComposedLayout, Swizzle};
pub use tuple::{IntTuple, MAX_DEPTH};
