//! Compares results with the numbers of files.

use super::array::{Array, ArrayError, read_number};
use super::reference::{Checked, Values, min_step};
use super::{RunError, inputs};
use std::path::Path;
use weft_ir::Scalar;

/// The largest difference of numbers that count as equal: `absolute`, plus `relative` times the
/// magnitude of the expected number.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Tolerance {
    /// The tolerance relative to the magnitude of the expected number.
    pub relative: f64,
    /// The absolute tolerance for any number.
    pub absolute: f64,
}

impl Tolerance {
    /// Returns the tolerance of `torch.testing.assert_close` for an element type. It is one step
    /// for fp8, which that function does not compare, and 0 for integers.
    pub fn usual(dtype: Scalar) -> Tolerance {
        let (relative, absolute) = match dtype {
            Scalar::F64 => (1e-7, 1e-7),
            Scalar::F32 => (1.3e-6, 1e-5),
            Scalar::F16 => (1e-3, 1e-5),
            Scalar::BF16 => (1.6e-2, 1e-5),
            Scalar::E4M3 => (0.125, min_step(dtype)),
            Scalar::E5M2 => (0.25, min_step(dtype)),
            _ => (0.0, 0.0),
        };
        Tolerance { relative, absolute }
    }
}

/// Compares a tensor of all PEs with a file, or with one file for each PE.
///
/// # Errors
/// Fails if the file is not an array, or has another shape.
pub(super) fn compare(
    name: &str,
    values: &Values,
    path: &Path,
    tolerance: Option<Tolerance>,
) -> Result<Checked, RunError> {
    let bad = |message: String| RunError::Array(ArrayError { file: path.display().to_string(), message });
    let tolerance = tolerance.unwrap_or_else(|| Tolerance::usual(values.dtype));
    let mut out = Checked { tensor: name.to_owned(), ..Checked::default() };
    for (pe, array) in inputs::read(path, values.data.len())?.into_iter().enumerate() {
        if array.shape != values.shape {
            let (found, wanted) = (&array.shape, &values.shape);
            return Err(bad(format!("has shape {found:?} for each PE, but `{name}` has {wanted:?}")));
        }
        let array = same_kind(array, values.dtype).map_err(bad)?;
        let size = array.dtype.bytes() as usize;
        for (i, bytes) in array.data.chunks_exact(size).enumerate() {
            let (have, want) = (values.get(pe, i), read_number(array.dtype, bytes));
            let bound = tolerance.absolute + tolerance.relative * want.as_f64().abs();
            if !out.within(have, want, have == want, bound) {
                out.add_wrong(name, pe, i, have, want);
            }
        }
    }
    Ok(out)
}

/// Returns an array whose numbers can be compared with those of a type: floats of any width with
/// floats, and otherwise only the type itself.
fn same_kind(array: Array, dtype: Scalar) -> Result<Array, String> {
    if array.dtype.is_float() && dtype.is_float() { Ok(array) } else { array.reinterpret(dtype) }
}
