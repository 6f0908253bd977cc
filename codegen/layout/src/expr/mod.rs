//! Layout expressions as text, in CuTe's notation: `composition((4,(2,2)):(1,(8,4)),(2,4):(4,1))`.
//!
//! [`eval`] evaluates an expression, and [`functions`] lists the functions that it can call. An int
//! tuple in the place of a layout is a shape, which is compact from the left. In the place of a
//! tiler it applies by mode, as in CuTe. `N` is a run-time extent, and `N{div=8,min=1,max=64}`
//! states what is known of it. `/` and `%` round toward negative infinity.

mod eval;
mod functions;
mod parse;
mod value;

use thiserror::Error;

pub use functions::{Function, functions};
pub use value::Value;

use crate::{Int, Layout, LayoutError};
use eval::{Evaluator, Symbols};

/// The reason why an expression has no value.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("at byte {position}: {message}{}", hint(expected.as_deref()))]
#[non_exhaustive]
pub struct ExprError {
    /// The byte offset of the error in the text.
    pub position: usize,
    /// A description of what is wrong.
    pub message: String,
    /// A description of what the evaluator expected instead, if there is one.
    pub expected: Option<String>,
}

fn hint(expected: Option<&str>) -> String {
    match expected {
        None => String::new(),
        Some(question) if question.ends_with('?') => format!("; {question}"),
        Some(what) => format!("; expected {what}"),
    }
}

impl ExprError {
    pub(crate) fn new(position: usize, message: impl Into<String>) -> Self {
        ExprError { position, message: message.into(), expected: None }
    }

    pub(crate) fn of(position: usize, error: LayoutError) -> Self {
        ExprError::new(position, format!("{} {error}", error.code()))
    }
}

/// The value of an expression. A name that is not bound is a run-time extent.
///
/// # Errors
/// Fails if the text does not parse, or a function rejects its arguments.
///
/// ```
/// let value = weft_layout::eval("composition((4,(2,2)):(1,(8,4)),(2,4):(4,1))")?;
/// assert_eq!(value.to_string(), "(2,4):(8,1)");
/// # Ok::<(), weft_layout::ExprError>(())
/// ```
pub fn eval(text: &str) -> Result<Value, ExprError> {
    let program = parse::parse(text)?;
    let mut symbols = Symbols::declared(&program)?;
    Evaluator::new(&mut |name| Some(symbols.get(name))).run(&program)
}

/// Parses a layout, and looks up names (such as `N` or `%12`) in `resolve`.
///
/// # Errors
/// Fails if the text does not parse to a layout, or a name is unknown.
pub fn parse_layout(text: &str, resolve: &mut dyn FnMut(&str) -> Option<Int>) -> Result<Layout, ExprError> {
    match eval_with(text, resolve)? {
        Value::Layout(layout) => Ok(layout),
        other => Err(wrong_kind(&other, "a layout such as (4,8):(8,1)")),
    }
}

/// Parses an integer, and looks up names in `resolve`.
///
/// # Errors
/// Fails if the text does not parse to an integer, or a name is unknown.
pub fn parse_int(text: &str, resolve: &mut dyn FnMut(&str) -> Option<Int>) -> Result<Int, ExprError> {
    let value = eval_with(text, resolve)?;
    value.to_int().ok_or_else(|| wrong_kind(&value, "an integer"))
}

/// The value of an expression, with names looked up in `resolve`.
///
/// # Errors
/// Fails if the text does not parse, a function rejects its arguments, or a name is unknown.
pub fn eval_with(text: &str, resolve: &mut dyn FnMut(&str) -> Option<Int>) -> Result<Value, ExprError> {
    let program = parse::parse(text)?;
    Evaluator::with_declared_names(resolve).run(&program)
}

fn wrong_kind(value: &Value, expected: &str) -> ExprError {
    ExprError { position: 0, message: format!("this is {}", value.kind()), expected: Some(expected.into()) }
}
