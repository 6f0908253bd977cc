//! Types of values.

use crate::names::{Scalar, Space};
use std::fmt;
use std::sync::Arc;
use weft_layout::{Int, Layout, Var};

/// The type of a value.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Type {
    /// No value: an op for its effect.
    Unit,
    /// One element.
    Scalar(Scalar),
    /// That many elements in a thread's registers.
    Vector(Scalar, u32),
    /// An address (after views are lowered).
    Pointer(Space),
    /// A view of memory.
    Tensor(Arc<TensorType>),
    /// A group of PEs.
    Team,
    /// Symmetric, zero-initialised counters for [`TeamBarrier`](crate::op::Op::TeamBarrier).
    Barrier,
}

/// A view of memory: element type, layout (in elements), memory space, alignment, bounds.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct TensorType {
    /// Element type.
    pub elem: Scalar,
    /// Coordinate to element offset.
    pub layout: Layout,
    /// Where it lives.
    pub space: Space,
    /// Provable alignment of its first element, in bytes; a power of two.
    pub align: u32,
    /// What must hold of a coordinate for its element to exist. A divide by a tile that does not
    /// divide the extent gives coordinates beyond the end; accesses there read as zero and are not written.
    pub bounds: Vec<Bound>,
}

/// `offset + layout(coordinate) < limit`: the coordinate in one mode of the tensor the view was made from
/// (CuTe writes this predicate with an identity tensor).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Bound {
    /// Extent of the original mode.
    pub limit: Int,
    /// Where the view starts in it.
    pub offset: Int,
    /// The view's coordinates to positions in it; same sizes, mode by mode, as the view's layout.
    pub layout: Layout,
}

impl TensorType {
    /// Calls `visit` with every symbol of its layout and bounds.
    pub fn vars(&self, visit: &mut dyn FnMut(&Var)) {
        let mut layout = |l: &Layout| {
            l.shape().for_each_leaf(&mut |i| i.vars(visit));
            l.stride().for_each_leaf(&mut |i| i.vars(visit));
        };
        layout(&self.layout);
        self.bounds.iter().for_each(|b| layout(&b.layout));
        for b in &self.bounds {
            b.limit.vars(visit);
            b.offset.vars(visit);
        }
    }
}

impl Type {
    /// The element type of scalars, vectors and tensors.
    pub fn elem(&self) -> Option<Scalar> {
        match self {
            Type::Scalar(s) | Type::Vector(s, _) => Some(*s),
            Type::Tensor(t) => Some(t.elem),
            _ => None,
        }
    }

    /// Elements of a scalar (1) or vector.
    pub fn lanes(&self) -> Option<u32> {
        match self {
            Type::Scalar(_) => Some(1),
            Type::Vector(_, n) => Some(*n),
            _ => None,
        }
    }

    /// The same shape of another element type.
    pub fn with_elem(&self, elem: Scalar) -> Type {
        match self {
            Type::Vector(_, n) => Type::Vector(elem, *n),
            _ => Type::Scalar(elem),
        }
    }

    /// `n` elements: a scalar for 1.
    pub fn lanes_of(elem: Scalar, n: u32) -> Type {
        if n == 1 { Type::Scalar(elem) } else { Type::Vector(elem, n) }
    }

    /// The tensor type, if it is one.
    pub fn tensor(&self) -> Option<&Arc<TensorType>> {
        match self {
            Type::Tensor(t) => Some(t),
            _ => None,
        }
    }

    /// The memory space of tensors and pointers.
    pub fn space(&self) -> Option<Space> {
        match self {
            Type::Tensor(t) => Some(t.space),
            Type::Pointer(s) => Some(*s),
            _ => None,
        }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Type::Unit => f.write_str("unit"),
            Type::Scalar(s) => write!(f, "{s}"),
            Type::Vector(s, n) => write!(f, "vector<{s}, {n}>"),
            Type::Pointer(space) => write!(f, "ptr<{space}>"),
            Type::Tensor(t) => write!(f, "{t}"),
            Type::Team => f.write_str("team"),
            Type::Barrier => f.write_str("barrier"),
        }
    }
}

impl fmt::Display for TensorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tensor<{}, {}, {{{}}}, align {}", self.elem, self.space, self.layout, self.align)?;
        for b in &self.bounds {
            write!(f, ", bound({{{}}}, {{{}}}, {{{}}})", b.limit, b.offset, b.layout)?;
        }
        f.write_str(">")
    }
}
