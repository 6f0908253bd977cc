//! The table of functions that expressions can call.

mod algebra;
mod coords;
mod integers;
mod modes;

use std::ops::RangeInclusive;
use std::sync::LazyLock;

use super::eval::expected;
use super::{ExprError, Value};
use crate::{
    AnyLayout, ComposedLayout, Coord, Int, IntTuple, Layout, LayoutError, Result as LayoutResult, Swizzle,
    Tiler, swizzle_after, swizzled,
};

type Result<T> = std::result::Result<T, ExprError>;

/// A function that expressions can call.
#[derive(Debug)]
pub struct Function {
    /// The name of the function in CuTe.
    pub name: &'static str,
    /// The form of a call: its arguments, and what it returns.
    pub signature: &'static str,
    /// One line that says what it returns.
    pub doc: &'static str,
    arguments: RangeInclusive<usize>,
    run: fn(&Call<'_>) -> Result<Value>,
}

/// The functions, by family.
pub fn functions() -> impl Iterator<Item = &'static Function> {
    FAMILIES.iter().flat_map(|f| f.iter())
}

static FAMILIES: LazyLock<[Vec<Function>; 4]> =
    LazyLock::new(|| [modes::functions(), algebra::functions(), coords::functions(), integers::functions()]);

/// The function called `name`.
pub(crate) fn find(name: &str) -> Option<&'static Function> {
    functions().find(|f| f.name == name)
}

/// The function whose name is nearest to `name`, if it is near enough for a suggestion after a
/// typing mistake.
pub(crate) fn nearest(name: &str) -> Option<&'static str> {
    if name.len() > 32 {
        return None;
    }
    let ranked = functions().map(|f| (edits(name.as_bytes(), f.name.as_bytes()), f.name));
    ranked.min().filter(|(edits, _)| *edits <= 1 + name.len() / 6).map(|(_, nearest)| nearest)
}

/// The least number of insertions, removals and replacements that turn `a` into `b`.
fn edits(a: &[u8], b: &[u8]) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

/// An entry of the table.
fn function(
    name: &'static str,
    signature: &'static str,
    doc: &'static str,
    arguments: RangeInclusive<usize>,
    run: fn(&Call<'_>) -> Result<Value>,
) -> Function {
    Function { name, signature, doc, arguments, run }
}

impl Function {
    pub(crate) fn call(&self, call: &Call<'_>) -> Result<Value> {
        // Integers in angle brackets count as arguments.
        let count = call.args.len() + usize::from(!call.template.is_empty() && self.signature.contains('<'));
        if !self.arguments.contains(&count) && !self.arguments.contains(&call.args.len()) {
            return Err(ExprError {
                position: call.at,
                message: format!("{} does not take {} arguments", self.name, call.args.len()),
                expected: Some(self.signature.into()),
            });
        }
        (self.run)(call)
    }
}

/// A call that is being evaluated.
pub(crate) struct Call<'a> {
    pub function: &'a Function,
    pub at: usize,
    pub template: &'a [i64],
    pub args: Vec<Value>,
    pub args_at: Vec<usize>,
}

impl Call<'_> {
    fn error(&self, error: LayoutError) -> ExprError {
        ExprError::of(self.at, error)
    }

    fn wrap<T: Into<Value>>(&self, result: LayoutResult<T>) -> Result<Value> {
        result.map(Into::into).map_err(|e| self.error(e))
    }

    fn at(&self, i: usize) -> usize {
        self.args_at.get(i).copied().unwrap_or(self.at)
    }

    fn arg(&self, i: usize) -> Result<&Value> {
        self.args.get(i).ok_or_else(|| ExprError {
            position: self.at,
            message: format!("{} lacks argument {}", self.function.name, i + 1),
            expected: Some(self.function.signature.into()),
        })
    }

    fn convert<T>(&self, i: usize, what: &str, f: impl FnOnce(&Value) -> Option<T>) -> Result<T> {
        let value = self.arg(i)?;
        f(value).ok_or_else(|| expected(self.at(i), value, what))
    }

    fn int(&self, i: usize) -> Result<Int> {
        self.convert(i, "an integer", Value::to_int)
    }

    fn constant(&self, i: usize) -> Result<i64> {
        self.convert(i, "a constant integer", |v| v.to_int()?.as_const())
    }

    fn tuple(&self, i: usize) -> Result<IntTuple> {
        self.convert(i, "an integer or a tuple of integers", Value::to_tuple)
    }

    /// Argument `i` as a tuple. A layout stands for its shape.
    fn shape(&self, i: usize) -> Result<IntTuple> {
        self.convert(i, "a shape or a layout", |v| match v {
            Value::Layout(l) => Some(l.shape().clone()),
            Value::Composed(c) => Some(c.layout().shape().clone()),
            other => other.to_tuple(),
        })
    }

    fn coord(&self, i: usize) -> Result<Coord> {
        self.convert(i, "a coordinate", Value::to_coord)
    }

    fn tiler(&self, i: usize) -> Result<Tiler> {
        self.convert(i, "a layout or a tiler", Value::to_tiler)
    }

    fn layout(&self, i: usize) -> Result<Layout> {
        self.convert(i, "a layout", Value::to_layout)?.map_err(|e| ExprError::of(self.at(i), e))
    }

    /// Argument `i` as a layout, swizzled or not.
    fn any(&self, i: usize) -> Result<AnyLayout> {
        match self.arg(i)? {
            Value::Composed(c) => Ok(AnyLayout::Composed(c.clone())),
            _ => self.layout(i).map(AnyLayout::Plain),
        }
    }

    /// Applies `f` to the first argument, or to its inner layout if it is swizzled.
    fn lift(&self, f: impl FnOnce(&Layout) -> LayoutResult<Layout>) -> Result<Value> {
        match self.any(0)? {
            AnyLayout::Plain(l) => self.wrap(f(&l)),
            AnyLayout::Composed(c) => self.wrap(c.map(f)),
        }
    }

    /// The indices in angle brackets, or else those in the arguments from `from`.
    fn indices(&self, from: usize) -> Result<Vec<usize>> {
        let index = |at: usize, v: i64| {
            usize::try_from(v).map_err(|_| ExprError::new(at, format!("{v} is not an index of a mode")))
        };
        if !self.template.is_empty() {
            return self.template.iter().map(|&v| index(self.at, v)).collect();
        }
        (from..self.args.len()).map(|i| index(self.at(i), self.constant(i)?)).collect()
    }

    /// Does what [`Call::indices`] does, and requires exactly `n` of them.
    fn exact_indices<const N: usize>(&self, from: usize) -> Result<[usize; N]> {
        self.indices(from)?.try_into().map_err(|v: Vec<usize>| ExprError {
            position: self.at,
            message: format!("{} takes {N} indices, not {}", self.function.name, v.len()),
            expected: Some(self.function.signature.into()),
        })
    }

    /// The `N` constants in angle brackets, or else those in the arguments from `from`.
    fn constants<const N: usize>(&self, from: usize) -> Result<[i64; N]> {
        let list = if self.template.is_empty() {
            (from..self.args.len()).map(|i| self.constant(i)).collect::<Result<Vec<_>>>()?
        } else {
            self.template.to_vec()
        };
        list.try_into().map_err(|v: Vec<i64>| ExprError {
            position: self.at,
            message: format!("{} takes {N} constants, not {}", self.function.name, v.len()),
            expected: Some(self.function.signature.into()),
        })
    }
}

/// The composition `outer o inner`.
pub(crate) fn compose(at: usize, outer: &Value, inner: &Value) -> Result<Value> {
    let wrap = |result: LayoutResult<Value>| result.map_err(|e| ExprError::of(at, e));
    let layout = |v: &Value| {
        let result = v.to_layout().ok_or_else(|| expected(at, v, "a layout"))?;
        result.map_err(|e| ExprError::of(at, e))
    };
    match (outer, inner) {
        (Value::Swizzle(a), Value::Swizzle(b)) => wrap(a.composition(*b).map(Value::Swizzle)),
        (Value::Swizzle(a), Value::Composed(b)) => wrap(merge(*a, b)),
        (Value::Swizzle(a), b) => wrap(swizzled(*a, layout(b)?).map(Value::from)),
        (a, Value::Swizzle(b)) => wrap(swizzle_after(&layout(a)?, *b).map(Value::from)),
        (Value::Composed(a), b) => {
            let tiler = b.to_tiler().ok_or_else(|| expected(at, b, "a layout or a tiler"))?;
            wrap(a.map(|l| l.compose(&tiler)).map(Value::Composed))
        }
        (a, Value::Composed(b)) => wrap(b.composition_after(&layout(a)?).map(Value::from)),
        (a, b) => {
            let tiler = b.to_tiler().ok_or_else(|| expected(at, b, "a layout or a tiler"))?;
            wrap(layout(a)?.compose(&tiler).map(Value::Layout))
        }
    }
}

fn merge(outer: Swizzle, inner: &ComposedLayout) -> LayoutResult<Value> {
    let both = outer.composition(inner.swizzle())?;
    ComposedLayout::new(both, inner.offset().clone(), inner.layout().clone()).map(Value::Composed)
}
