//! The values to which expressions evaluate.

use std::fmt::{self, Display, Formatter};

use crate::modes::Modes;
use crate::{AnyLayout, ComposedLayout, Coord, Int, IntTuple, Layout, Order, Swizzle, Tiler};

/// The value of an expression. It is displayed in CuTe's notation, without spaces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// An integer, constant or symbolic.
    Int(Int),
    /// A tuple of integers: a shape, a stride, a coordinate without `_`.
    Tuple(IntTuple),
    /// A coordinate in which `_` keeps whole modes.
    Coord(Coord),
    /// A layout without a swizzle.
    Layout(Layout),
    /// A swizzle after an offset after a layout.
    Composed(ComposedLayout),
    /// A swizzle without a layout.
    Swizzle(Swizzle),
    /// A tuple of layouts, shapes and `_`.
    Tiler(Tiler),
    /// An order of modes: `LayoutLeft`, `LayoutRight`.
    Order(Order),
    /// A truth value, from a comparison or a predicate.
    Bool(bool),
    /// The results of a function that has several.
    List(Vec<Value>),
}

impl Value {
    /// The name of the kind of value, for messages.
    pub fn kind(&self) -> &'static str {
        match self {
            Value::Int(_) => "an integer",
            Value::Tuple(_) => "a tuple",
            Value::Coord(_) => "a coordinate with _",
            Value::Layout(_) => "a layout",
            Value::Composed(_) => "a swizzled layout",
            Value::Swizzle(_) => "a swizzle",
            Value::Tiler(_) => "a tiler",
            Value::Order(_) => "an order",
            Value::Bool(_) => "a truth value",
            Value::List(_) => "a list",
        }
    }

    /// The tuple of `parts`: integers if all parts are integers, a coordinate if a `_` is among
    /// them, or a tiler if a layout is among them.
    pub(crate) fn tuple(parts: Vec<Value>) -> Option<Value> {
        if let Some(t) = parts.iter().map(Value::to_tuple).collect::<Option<Vec<_>>>() {
            return Some(Value::Tuple(IntTuple::Tuple(t)));
        }
        if let Some(t) = parts.iter().map(Value::to_coord).collect::<Option<Vec<_>>>() {
            return Some(Value::Coord(Coord::Tuple(t)));
        }
        Some(Value::Tiler(Tiler::Tuple(parts.iter().map(Value::to_tiler).collect::<Option<_>>()?)))
    }

    pub(crate) fn to_int(&self) -> Option<Int> {
        match self {
            Value::Int(i) => Some(i.clone()),
            // Parentheses around an integer group it.
            Value::Tuple(IntTuple::Tuple(t)) => match t.as_slice() {
                [IntTuple::Int(i)] => Some(i.clone()),
                _ => None,
            },
            _ => None,
        }
    }

    pub(crate) fn to_tuple(&self) -> Option<IntTuple> {
        match self {
            Value::Int(i) => Some(i.into()),
            Value::Tuple(t) => Some(t.clone()),
            _ => None,
        }
    }

    pub(crate) fn to_coord(&self) -> Option<Coord> {
        match self {
            Value::Coord(c) => Some(c.clone()),
            other => other.to_tuple().map(|t| Coord::from(&t)),
        }
    }

    pub(crate) fn to_tiler(&self) -> Option<Tiler> {
        fn of_coord(c: &Coord) -> Tiler {
            match c {
                Coord::Int(i) => Tiler::Int(i.clone()),
                Coord::All => Tiler::All,
                Coord::Tuple(t) => Tiler::Tuple(t.iter().map(of_coord).collect()),
            }
        }
        match self {
            Value::Tiler(t) => Some(t.clone()),
            Value::Layout(l) => Some(Tiler::Layout(l.clone())),
            Value::Coord(c) => Some(of_coord(c)),
            other => other.to_tuple().as_ref().map(Tiler::from),
        }
    }

    /// The value as a layout. A tuple of integers is a shape that is compact from the left, and a
    /// tuple of layouts is one layout.
    pub(crate) fn to_layout(&self) -> Option<crate::Result<Layout>> {
        fn concatenated(t: &Tiler) -> Option<crate::Result<Layout>> {
            match t {
                Tiler::All => None,
                Tiler::Int(n) => Some(Layout::col_major(n.clone())),
                Tiler::Layout(l) => Some(Ok(l.clone())),
                Tiler::Tuple(t) => {
                    let modes: crate::Result<Vec<Layout>> =
                        t.iter().map(concatenated).collect::<Option<_>>()?;
                    Some(modes.and_then(|m| Layout::from_modes(m).checked("make_layout")))
                }
            }
        }
        match self {
            Value::Layout(l) => Some(Ok(l.clone())),
            Value::Tiler(t) => concatenated(t),
            other => other.to_tuple().map(Layout::col_major),
        }
    }

    /// The number of leaves, as a measure of the work that the value causes.
    pub(crate) fn weight(&self) -> usize {
        fn of_tiler(t: &Tiler) -> usize {
            match t {
                Tiler::All | Tiler::Int(_) => 1,
                Tiler::Layout(l) => l.shape().leaves().len(),
                Tiler::Tuple(t) => t.iter().map(of_tiler).sum(),
            }
        }
        match self {
            Value::Tuple(t) => t.leaves().len(),
            Value::Coord(c) => c.leaf_modes().len(),
            Value::Layout(l) => l.shape().leaves().len(),
            Value::Composed(c) => c.layout().shape().leaves().len(),
            Value::Tiler(t) => of_tiler(t),
            Value::List(l) => l.iter().map(Value::weight).sum(),
            Value::Int(_) | Value::Swizzle(_) | Value::Order(_) | Value::Bool(_) => 1,
        }
    }
}

macro_rules! from {
    ($($variant:ident($type:ty)),*) => {$(
        impl From<$type> for Value { fn from(v: $type) -> Self { Value::$variant(v) } }
    )*};
}
from!(Int(Int), Layout(Layout), Composed(ComposedLayout), Swizzle(Swizzle), Bool(bool), List(Vec<Value>));

impl From<IntTuple> for Value {
    fn from(t: IntTuple) -> Self {
        match t {
            IntTuple::Int(i) => Value::Int(i),
            tuple => Value::Tuple(tuple),
        }
    }
}

impl From<Coord> for Value {
    fn from(c: Coord) -> Self {
        if c.has_all() { Value::Coord(c) } else { c.origin().into() }
    }
}

/// A tiler without layouts is the coordinate or tuple that its text shows.
impl From<Tiler> for Value {
    fn from(t: Tiler) -> Self {
        fn coord(t: &Tiler) -> Option<Coord> {
            match t {
                Tiler::All => Some(Coord::All),
                Tiler::Int(i) => Some(Coord::Int(i.clone())),
                Tiler::Layout(_) => None,
                Tiler::Tuple(t) => t.iter().map(coord).collect::<Option<_>>().map(Coord::Tuple),
            }
        }
        match (coord(&t), t) {
            (Some(c), _) => c.into(),
            (None, Tiler::Layout(l)) => Value::Layout(l),
            (None, t) => Value::Tiler(t),
        }
    }
}

impl From<AnyLayout> for Value {
    fn from(l: AnyLayout) -> Self {
        match l {
            AnyLayout::Plain(l) => Value::Layout(l),
            AnyLayout::Composed(c) => Value::Composed(c),
        }
    }
}

impl Display for Value {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Value::Int(v) => write!(f, "{v}"),
            Value::Tuple(v) => write!(f, "{v}"),
            Value::Coord(v) => write!(f, "{v}"),
            Value::Layout(v) => write!(f, "{v}"),
            Value::Composed(v) => write!(f, "{v}"),
            Value::Swizzle(v) => write!(f, "{v}"),
            Value::Tiler(v) => write!(f, "{v}"),
            Value::Order(v) => write!(f, "{v:?}"),
            Value::Bool(v) => write!(f, "{v}"),
            Value::List(v) => crate::tuple::write_tuple(v, f),
        }
    }
}
