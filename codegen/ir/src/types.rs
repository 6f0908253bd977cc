//! Types of values, one enum for each level.

use crate::names::{Scalar, Space};
use crate::roles::WARPGROUP;
use std::fmt;
use std::hash::Hash;
use std::sync::Arc;
use weft_layout::{Int, Layout, Swizzle, Var};

/// A reference to a type of any level, for code that serves several levels.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TypeRef<'a> {
    /// The type of ops without a result.
    Unit,
    /// A single number of the given type.
    Scalar(Scalar),
    /// A number of elements in a thread's registers.
    Vector(Scalar, u32),
    /// An address in the given memory space.
    Pointer(Space),
    /// A view of memory.
    Tensor(&'a Arc<TensorType>),
    /// A group of PEs.
    Team,
    /// Counters of a team barrier.
    Barrier,
    /// The barriers of a pipeline with the given number of stages of shared memory.
    Pipeline(u32),
    /// A tile to which matrix instructions add.
    Accumulator(Accumulator),
}

/// A tile to which matrix instructions add, divided over warpgroups. It differs from a register
/// tensor in that nothing else accesses it while instructions are in flight.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Accumulator {
    /// The type of the tile's elements.
    pub elem: Scalar,
    /// The number of rows of the tile.
    pub rows: u32,
    /// The number of columns of the tile.
    pub cols: u32,
    /// The number of warpgroups that divide the rows, and of those that divide the columns.
    pub over: [u32; 2],
}

impl Accumulator {
    /// The number of warpgroups that hold the tile together.
    pub fn warpgroups(&self) -> u32 {
        self.over[0].saturating_mul(self.over[1])
    }

    /// The number of columns of each warpgroup.
    pub fn own_cols(&self) -> u32 {
        self.cols / self.over[1].max(1)
    }

    /// The number of elements that each thread holds of `cols` columns.
    pub fn lanes(&self, cols: u32) -> u32 {
        self.rows.saturating_mul(cols) / WARPGROUP.saturating_mul(self.over[0]).max(1)
    }
}

/// A type of some level.
pub trait ValueType: Clone + PartialEq + Eq + Hash + fmt::Debug + fmt::Display + From<Shared> {
    /// The type as a reference, for pattern matching.
    fn view(&self) -> TypeRef<'_>;

    /// This level's type of that kind, or `None` if the level has none.
    fn of(ty: TypeRef<'_>) -> Option<Self>;

    /// The type of ops that have no result.
    fn unit() -> Self {
        Shared::Unit.into()
    }

    /// The type of a single number.
    fn scalar(s: Scalar) -> Self {
        Shared::Scalar(s).into()
    }

    /// The type of `n` elements, which is a scalar if `n` is 1.
    fn lanes_of(elem: Scalar, n: u32) -> Self {
        if n == 1 { Shared::Scalar(elem).into() } else { Shared::Vector(elem, n).into() }
    }

    /// The element type of scalars, vectors and tensors.
    fn elem(&self) -> Option<Scalar> {
        match self.view() {
            TypeRef::Scalar(s) | TypeRef::Vector(s, _) => Some(s),
            TypeRef::Tensor(t) => Some(t.elem),
            TypeRef::Accumulator(a) => Some(a.elem),
            TypeRef::Unit | TypeRef::Pointer(_) | TypeRef::Team | TypeRef::Barrier | TypeRef::Pipeline(_) => {
                None
            }
        }
    }

    /// The number of elements of a scalar (1) or vector.
    fn lanes(&self) -> Option<u32> {
        match self.view() {
            TypeRef::Scalar(_) => Some(1),
            TypeRef::Vector(_, n) => Some(n),
            _ => None,
        }
    }

    /// The same shape with another element type.
    #[must_use]
    fn with_elem(&self, elem: Scalar) -> Self {
        match self.view() {
            TypeRef::Vector(_, n) => Shared::Vector(elem, n).into(),
            _ => Self::scalar(elem),
        }
    }

    /// The tensor type, if it is one.
    fn tensor(&self) -> Option<&Arc<TensorType>> {
        match self.view() {
            TypeRef::Tensor(t) => Some(t),
            _ => None,
        }
    }

    /// The memory space of tensors and pointers.
    fn space(&self) -> Option<Space> {
        match self.view() {
            TypeRef::Tensor(t) => Some(t.space),
            TypeRef::Pointer(s) => Some(s),
            _ => None,
        }
    }
}

/// The types that every level has.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Shared {
    /// The type of ops without a result.
    Unit,
    /// A single number of the given type.
    Scalar(Scalar),
    /// A number of elements in a thread's registers.
    Vector(Scalar, u32),
}

/// Declares the type of a level: the shared variants and the given ones.
macro_rules! level_type {
    ($(#[$meta:meta])* $module:ident: $($(#[$vmeta:meta])* $variant:ident $(($field:ty = $bind:ident => $view:expr, $make:expr))?),* $(,)?) => {
        pub(crate) mod $module {
            use super::*;

            $(#[$meta])*
            #[derive(Clone, PartialEq, Eq, Hash, Debug)]
            pub enum Type {
                /// The type of ops without a result.
                Unit,
                /// A single number of the given type.
                Scalar(Scalar),
                /// A number of elements in a thread's registers.
                Vector(Scalar, u32),
                $($(#[$vmeta])* $variant $(($field))?),*
            }

            impl From<Shared> for Type {
                fn from(ty: Shared) -> Type {
                    match ty {
                        Shared::Unit => Type::Unit,
                        Shared::Scalar(s) => Type::Scalar(s),
                        Shared::Vector(s, n) => Type::Vector(s, n),
                    }
                }
            }

            impl ValueType for Type {
                fn view(&self) -> TypeRef<'_> {
                    match self {
                        Type::Unit => TypeRef::Unit,
                        Type::Scalar(s) => TypeRef::Scalar(*s),
                        Type::Vector(s, n) => TypeRef::Vector(*s, *n),
                        $(Type::$variant $(($bind))? => TypeRef::$variant $(($view))?),*
                    }
                }

                fn of(ty: TypeRef<'_>) -> Option<Type> {
                    Some(match ty {
                        TypeRef::Unit => Type::Unit,
                        TypeRef::Scalar(s) => Type::Scalar(s),
                        TypeRef::Vector(s, n) => Type::Vector(s, n),
                        $(TypeRef::$variant $(($bind))? => Type::$variant $(($make))?,)*
                        #[allow(unreachable_patterns, reason = "the mixed level has all of them")]
                        _ => return None,
                    })
                }
            }

            impl fmt::Display for Type {
                fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                    self.view().fmt(f)
                }
            }
        }
    };
}

level_type! {
    /// The type of a value at the tensor level.
    tensor:
    /// A view of memory.
    Tensor(Arc<TensorType> = t => t, t.clone()),
    /// A group of PEs.
    Team,
    /// Symmetric, zero-initialised counters of a [`TeamBarrier`](crate::op::Team::Barrier).
    Barrier,
    /// The barriers of a pipeline with the given number of stages of shared memory.
    Pipeline(u32 = n => *n, n),
    /// A tile to which matrix instructions add.
    Accumulator(Accumulator = a => *a, a),
}

level_type! {
    /// The type of a value at the machine level.
    machine:
    /// An address in the given memory space.
    Pointer(Space = s => *s, s),
}

level_type! {
    /// The type of a value while passes lower a kernel.
    mixed:
    /// An address in the given memory space.
    Pointer(Space = s => *s, s),
    /// A view of memory.
    Tensor(Arc<TensorType> = t => t, t.clone()),
    /// A group of PEs.
    Team,
    /// Symmetric, zero-initialised counters of a [`TeamBarrier`](crate::op::Team::Barrier).
    Barrier,
    /// The barriers of a pipeline with the given number of stages of shared memory.
    Pipeline(u32 = n => *n, n),
    /// A tile to which matrix instructions add.
    Accumulator(Accumulator = a => *a, a),
}

impl From<TensorType> for tensor::Type {
    fn from(t: TensorType) -> tensor::Type {
        tensor::Type::Tensor(Arc::new(t))
    }
}

impl From<TensorType> for mixed::Type {
    fn from(t: TensorType) -> mixed::Type {
        mixed::Type::Tensor(Arc::new(t))
    }
}

impl From<tensor::Type> for mixed::Type {
    fn from(ty: tensor::Type) -> mixed::Type {
        match ty {
            tensor::Type::Unit => mixed::Type::Unit,
            tensor::Type::Scalar(s) => mixed::Type::Scalar(s),
            tensor::Type::Vector(s, n) => mixed::Type::Vector(s, n),
            tensor::Type::Tensor(t) => mixed::Type::Tensor(t),
            tensor::Type::Team => mixed::Type::Team,
            tensor::Type::Barrier => mixed::Type::Barrier,
            tensor::Type::Pipeline(n) => mixed::Type::Pipeline(n),
            tensor::Type::Accumulator(a) => mixed::Type::Accumulator(a),
        }
    }
}

/// A view of memory: element type, layout (in elements), memory space, alignment, bounds.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct TensorType {
    /// The type of the tensor's elements.
    pub elem: Scalar,
    /// The layout, which maps coordinates to element offsets.
    pub layout: Layout,
    /// The permutation of the bytes of a tensor in shared memory. It maps the distance in bytes from the
    /// allocation's first byte, which the layout and the views' offsets give, to the place in memory. (PTX
    /// ISA, Swizzling Modes.)
    pub swizzle: Option<Swizzle>,
    /// The memory space that the tensor is in.
    pub space: Space,
    /// The provable alignment of the first element in bytes, a power of two.
    pub align: u32,
    /// The predicates under which the element of a coordinate exists. A division by a tile that
    /// does not divide the extent has coordinates beyond the end. Loads there read zero, and stores
    /// there do nothing.
    pub bounds: Vec<Bound>,
}

/// The predicate under which a coordinate is in bounds: `offset + layout(coordinate) < limit`. The
/// left side is the coordinate in one mode of the tensor from which the view was made. (CuTe
/// expresses it with an identity tensor.)
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Bound {
    /// The extent of the original mode.
    pub limit: Int,
    /// The position in the original mode at which the view begins.
    pub offset: Int,
    /// The layout from the view's coordinates to positions in the mode. Its modes have the same
    /// sizes as those of the view's layout.
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

impl TensorType {
    /// Replaces symbols of its layout and bounds by other integers.
    ///
    /// # Errors
    /// Fails if the result of the substitution is not a layout.
    pub fn subst(&self, f: &mut dyn FnMut(&Var) -> Option<Int>) -> weft_layout::Result<TensorType> {
        let bound = |b: &Bound| {
            let layout = b.layout.subst(f)?;
            Ok(Bound { limit: b.limit.subst(f), offset: b.offset.subst(f), layout })
        };
        let bounds = self.bounds.iter().map(bound).collect::<weft_layout::Result<_>>()?;
        Ok(TensorType { layout: self.layout.subst(f)?, bounds, ..self.clone() })
    }
}

impl fmt::Display for TypeRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TypeRef::Unit => f.write_str("unit"),
            TypeRef::Scalar(s) => write!(f, "{s}"),
            TypeRef::Vector(s, n) => write!(f, "vector<{s}, {n}>"),
            TypeRef::Pointer(space) => write!(f, "ptr<{space}>"),
            TypeRef::Tensor(t) => write!(f, "{t}"),
            TypeRef::Team => f.write_str("team"),
            TypeRef::Barrier => f.write_str("barrier"),
            TypeRef::Pipeline(stages) => write!(f, "pipeline<{stages}>"),
            TypeRef::Accumulator(Accumulator { elem, rows, cols, over: [m, n] }) => {
                write!(f, "accumulator<{elem}, {rows}, {cols}, {m}, {n}>")
            }
        }
    }
}

impl fmt::Display for TensorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tensor<{}, {}, {{{}}}, align {}", self.elem, self.space, self.layout, self.align)?;
        if let Some(s) = self.swizzle {
            write!(f, ", swizzle({}, {}, {})", s.bits(), s.base(), s.shift())?;
        }
        for b in &self.bounds {
            write!(f, ", bound({{{}}}, {{{}}}, {{{}}})", b.limit, b.offset, b.layout)?;
        }
        f.write_str(">")
    }
}
