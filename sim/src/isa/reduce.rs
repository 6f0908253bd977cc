//! The combining functions of atomics, reductions and multimem, on one element's bits.

use super::site::{Issue, issue};
use crate::codes;
use crate::num::{Combine, F32, F64, float::Style, mask};
use crate::types::{Ty, TypeKind};

/// Returns `op` as the units at global memory compute it: single-precision sums flush subnormals,
/// and double-precision sums preserve NaNs.
pub(crate) fn combine_global(op: &str, ty: Ty) -> Result<Combine, Issue> {
    let Some(format) = ty.format().filter(|_| op == "add") else { return combine(op, ty) };
    let style = Style { ftz: format == F32, ..Style::new(format) };
    Ok(Box::new(move |a, b| match format {
        F64 if F64.is_nan(b) => b,
        F64 if F64.is_nan(a) => a,
        _ => style.add(a, b),
    }))
}

/// Returns `op` for bulk copies to global memory. Unlike those of `red`, sums of single precision
/// keep subnormals.
pub(crate) fn combine_bulk(op: &str, ty: Ty) -> Result<Combine, Issue> {
    if ty == Ty::F32 { combine(op, ty) } else { combine_global(op, ty) }
}

/// Returns `op` in shared memory, where double-precision sums are a loop of compare-and-swap that
/// adds the memory's value to the operand.
pub(crate) fn combine_shared(op: &str, ty: Ty) -> Result<Combine, Issue> {
    let f = combine(op, ty)?;
    Ok(if ty.format() == Some(F64) { Box::new(move |a, b| f(b, a)) } else { f })
}

/// Returns `op` on elements of `ty`. The caller splits packed types into elements.
pub(crate) fn combine(op: &str, ty: Ty) -> Result<Combine, Issue> {
    let m = mask(ty.bits);
    let signed = ty.signed();
    Ok(match (op, ty.kind) {
        ("add", TypeKind::Float(f)) => {
            let style = Style::new(f);
            Box::new(move |a, b| style.add(a, b))
        }
        ("min" | "max", TypeKind::Float(f)) => {
            let (style, largest) = (Style::new(f), op == "max");
            Box::new(move |a, b| style.extremum(a, b, largest, false))
        }
        ("add", _) => Box::new(move |a, b| a.wrapping_add(b) & m),
        ("min" | "max", _) => {
            let largest = op == "max";
            Box::new(move |a, b| {
                let below = if signed { ty.extend(a) < ty.extend(b) } else { a < b };
                if below == largest { b } else { a }
            })
        }
        ("and", _) => Box::new(|a, b| a & b),
        ("or", _) => Box::new(|a, b| a | b),
        ("xor", _) => Box::new(|a, b| a ^ b),
        ("inc", _) => Box::new(|a, b| if a >= b { 0 } else { a + 1 }),
        ("dec", _) => Box::new(|a, b| if a == 0 || a > b { b } else { a - 1 }),
        ("exch", _) => Box::new(|_, b| b),
        _ => return issue(codes::UNKNOWN_MODIFIER, format!("`.{op}` is not a reduction of this type"), ""),
    })
}
