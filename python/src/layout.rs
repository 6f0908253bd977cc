//! Layout expressions, from text to text. `warpweft.Layout` makes values of them.

use crate::error::Fault;
use pyo3::prelude::*;
use weft::layout::expr::{self, Value};

fn value(text: &str) -> Result<Value, Fault> {
    expr::eval(text).map_err(|e| Fault::new("L0001", format!("`{text}` {e}"), ""))
}

/// The name of a kind of value, by which Python chooses a class.
fn kind(value: &Value) -> &'static str {
    match value {
        Value::Int(_) => "int",
        Value::Tuple(_) => "tuple",
        Value::Layout(_) => "layout",
        Value::Composed(_) => "composed",
        Value::Bool(_) => "bool",
        Value::List(_) => "list",
        Value::Coord(_) => "coord",
        Value::Swizzle(_) => "swizzle",
        Value::Tiler(_) => "tiler",
        Value::Order(_) => "order",
    }
}

/// The kind and the text of the value of an expression. For a list, those of its members, one after
/// the other.
#[pyfunction]
pub fn evaluate(text: &str) -> PyResult<Vec<(&'static str, String)>> {
    Ok(match value(text)? {
        Value::List(all) => all.iter().map(|v| (kind(v), v.to_string())).collect(),
        one => vec![(kind(&one), one.to_string())],
    })
}

/// A layout as a grid of numbers (`table`) or a drawing (`svg`).
#[pyfunction]
pub fn draw_layout(text: &str, svg: bool) -> PyResult<String> {
    let value = value(text)?;
    let drawn = if svg { value.svg() } else { value.table() };
    Ok(drawn.map_err(|e| Fault::new(e.code(), e.to_string(), ""))?)
}

/// The functions of expressions: the name, the signature and the result of each.
#[pyfunction]
pub fn layout_functions() -> Vec<(&'static str, &'static str, &'static str)> {
    expr::functions().map(|f| (f.name, f.signature, f.doc)).collect()
}
