//! Functions of integers.

use super::{Call, Function, Result, function};
use crate::expr::Value;
use crate::{Int, LayoutError};

/// Folds the arguments with `f`.
fn fold(c: &Call<'_>, f: fn(&Int, &Int) -> Int) -> Result<Value> {
    let mut result = c.int(0)?;
    for i in 1..c.args.len() {
        result = f(&result, &c.int(i)?);
    }
    match result.poison() {
        Some(poison) => Err(c.error(LayoutError::Arithmetic { function: c.function.name, poison })),
        None => Ok(result.into()),
    }
}

pub(super) fn functions() -> Vec<Function> {
    vec![
        function("ceil_div", "ceil_div(a,b) -> int or tuple", "the quotient rounded up", 2..=2, |c| {
            match (c.arg(0)?.to_int(), c.arg(1)?) {
                (Some(_), Value::Int(_)) => fold(c, Int::ceil_div),
                // The rest mode of a division by a layout.
                (_, Value::Layout(tiler)) => c.wrap(tiler.complement(&c.shape(0)?).map(|l| l.into_parts().0)),
                _ => c.wrap(c.shape(0)?.ceil_div(&c.tuple(1)?).and_then(|t| t.checked("ceil_div"))),
            }
        }),
        function("min", "min(a,..) -> int", "the least", 1..=64, |c| fold(c, Int::min)),
        function("max", "max(a,..) -> int", "the greatest", 1..=64, |c| fold(c, Int::max)),
        function("abs", "abs(a) -> int", "the magnitude", 1..=1, |c| Ok(c.int(0)?.abs().into())),
        function(
            "round_up",
            "round_up(a,b) -> int",
            "the least multiple of b that is not below a",
            2..=2,
            |c| fold(c, |a, b| a.ceil_div(b) * b),
        ),
        function("and", "and(a,b) -> int", "bitwise and", 2..=2, |c| fold(c, Int::bit_and)),
        function("xor", "xor(a,b) -> int", "bitwise exclusive or", 2..=2, |c| fold(c, Int::bit_xor)),
    ]
}
