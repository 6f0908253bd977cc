//! The combining functions of atomics, reductions and multimem, on one element's bits.

use super::site::{Issue, issue};
use super::types::{Kind, Ty};
use crate::num::{float::Style, mask};

pub(crate) type Combine = Box<dyn Fn(u64, u64) -> u64 + Send + Sync>;

/// `op` on elements of `ty` (packed types element by element are the caller's business). `ftz` for
/// single-precision sums flushes subnormals.
pub(crate) fn combine(op: &str, ty: Ty, ftz: bool) -> Result<Combine, Issue> {
    let m = mask(ty.bits);
    let signed = ty.signed();
    Ok(match (op, ty.kind) {
        ("add", Kind::Float(f)) => {
            let style = Style { ftz, ..Style::new(f) };
            Box::new(move |a, b| style.add(a, b))
        }
        ("min" | "max", Kind::Float(f)) => {
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
        _ => return issue("P004", format!("`.{op}` is not a reduction of this type"), ""),
    })
}
