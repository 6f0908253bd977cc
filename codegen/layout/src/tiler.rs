//! [`Tiler`]: the argument that selects or divides the modes of a layout.

use std::fmt::{self, Display, Formatter};

use crate::modes::Modes;
use crate::{Int, IntTuple, Layout};

/// The right-hand side of a composition or a division, given mode by mode.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Tiler {
    /// `_`, which leaves the mode as it is.
    All,
    /// An extent n, which stands for `n:1`.
    Int(Int),
    /// A layout, which is composed with the mode as a function of an index.
    Layout(Layout),
    /// Tilers for the modes, beginning with the first.
    Tuple(Vec<Tiler>),
}

impl Tiler {
    fn has_layout(&self) -> bool {
        match self {
            Tiler::All | Tiler::Int(_) => false,
            Tiler::Layout(_) => true,
            Tiler::Tuple(t) => t.iter().any(Tiler::has_layout),
        }
    }

    /// The shape of the selected elements, or `None` if a `_` leaves it open.
    pub fn shape(&self) -> Option<IntTuple> {
        match self {
            Tiler::All => None,
            Tiler::Int(i) => Some(i.clone().into()),
            Tiler::Layout(l) => Some(l.shape().clone()),
            Tiler::Tuple(t) => Some(IntTuple::Tuple(t.iter().map(Tiler::shape).collect::<Option<_>>()?)),
        }
    }
}

impl From<Layout> for Tiler {
    fn from(layout: Layout) -> Self {
        Tiler::Layout(layout)
    }
}

impl From<&IntTuple> for Tiler {
    fn from(shape: &IntTuple) -> Self {
        match shape {
            IntTuple::Int(i) => Tiler::Int(i.clone()),
            IntTuple::Tuple(t) => Tiler::Tuple(t.iter().map(Tiler::from).collect()),
        }
    }
}

impl<T: Into<Int>> From<T> for Tiler {
    fn from(extent: T) -> Self {
        Tiler::Int(extent.into())
    }
}

impl Modes for Tiler {
    fn children(&self) -> Option<Vec<Self>> {
        match self {
            Tiler::Tuple(t) => Some(t.clone()),
            _ => None,
        }
    }

    fn from_modes(modes: Vec<Self>) -> Self {
        Tiler::Tuple(modes)
    }
}

impl Display for Tiler {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Tiler::All => f.write_str("_"),
            Tiler::Int(i) => write!(f, "{i}"),
            Tiler::Layout(l) => write!(f, "{l}"),
            // Angle brackets distinguish a tuple of layouts from a layout of a tuple.
            Tiler::Tuple(t) if self.has_layout() => {
                let parts: Vec<String> = t.iter().map(Tiler::to_string).collect();
                write!(f, "<{}>", parts.join(","))
            }
            Tiler::Tuple(t) => crate::tuple::write_tuple(t, f),
        }
    }
}
