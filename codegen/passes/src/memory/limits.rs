//! Limits of tensor maps that can be checked when the kernel is compiled. The launch checks the
//! rest.

use super::tile::nearest;
use crate::codes::BAD_BOX;
use weft_ir::TensorType;
use weft_ir::builder::Built;
use weft_ir::diag::{Diagnostic, Span};
use weft_ir::mixed::Type;
use weft_ir::tile::BAD_MAP;
use weft_layout::Nearest;

/// Strides of a tensor map are multiples of this number of bytes (CUDA driver API,
/// cuTensorMapEncodeTiled).
const STRIDE_UNIT: i64 = 16;
/// Strides of a tensor map are less than this number of bytes.
const STRIDE_END: i64 = 1 << 40;
/// The maximum extent of a mode.
const MAX_EXTENT: i64 = 1 << 32;

/// Checks whether a map can describe a parameter's tensor.
///
/// # Errors
/// Fails if a constant stride or extent is outside the limits of tensor maps.
pub(super) fn map(root: &Type, span: Span) -> Built<()> {
    let Type::Tensor(t) = root else { return Ok(()) };
    let bytes = i64::from(t.elem.bytes());
    let error = |mode: usize, what: String, help: &str| {
        let message = format!("tma: mode {mode} of {} {what}", t.layout);
        Err(Diagnostic::error(BAD_MAP, span, message).help(help))
    };
    let modes = t.layout.shape().leaves().into_iter().zip(t.layout.stride().leaves());
    for (mode, (extent, stride)) in modes.enumerate() {
        if let Some(n) = extent.as_const().filter(|n| !(1..=MAX_EXTENT).contains(n)) {
            return error(
                mode,
                format!("has {n} elements"),
                "a mode of a tensor map must have 1 to 2^32 elements",
            );
        }
        let Some(n) = stride.as_const().filter(|n| *n != 1) else { continue };
        let fits = n.checked_mul(bytes).filter(|b| (0..STRIDE_END).contains(b) && b % STRIDE_UNIT == 0);
        if fits.is_none() {
            let what = format!("has a stride of {n} elements of {bytes} bytes");
            return error(
                mode,
                what,
                "strides of a tensor map must be multiples of 16 bytes and less than 2^40: pad the rows",
            );
        }
    }
    Ok(())
}

/// The error for a tile that cannot be divided into boxes. The first of `dims` is the mode of the
/// tile along which the tensor is contiguous.
pub(super) fn no_boxes(
    tile: &TensorType,
    dims: Option<&Option<usize>>,
    why: String,
    span: Span,
) -> Diagnostic {
    let elem = (tile.elem.name(), tile.elem.bytes());
    let along = dims.and_then(|mode| Nearest::along(&tile.layout, elem, (*mode)?));
    let help = match along {
        Some(nearest) => format!("the nearest tile that the copy accepts is {nearest}"),
        None => nearest(tile, true, "the copy accepts"),
    };
    Diagnostic::error(BAD_BOX, span, why).help(help)
}
