//! The functions of the layout algebra, as methods of [`Layout`](crate::Layout) under their CuTe names.

pub(crate) mod coalesce;
mod common;
mod complement;
pub(crate) mod composition;
mod divide;
mod inverse;
pub(crate) mod partition;
mod product;
pub(crate) mod recast;
