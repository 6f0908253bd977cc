//! The values of expressions while a kernel is elaborated.

use super::coordinates::Coordinates;
use crate::ast::Function;
use std::fmt;
use std::sync::Arc;
use weft_ir::{Accumulator, Bound, Int, IntTuple, Layout, RedOp, Scalar, TeamRef, Value};
use weft_layout::{LayoutError, Swizzle, accumulator, accumulator_rows};

/// The meaning of an expression.
#[derive(Clone, Debug)]
pub enum Val {
    /// The meaning of an expression that has no value.
    Unit,
    /// The meaning of an expression with an error, which is reported once.
    Error,
    /// A compile-time or symbolic integer, such as an extent, coordinate, offset or loop variable.
    Int(Int),
    /// A literal float, which takes the type of the other operand.
    Float(f64),
    /// A compile-time truth value.
    Bool(bool),
    /// A format text for `print`.
    Str(Arc<str>),
    /// An element type, such as `f32`.
    Dtype(Scalar),
    /// A reduction that is passed to functions.
    Reduction(RedOp),
    /// A scalar that is known at run time.
    Runtime(Value),
    /// Elements that the threads hold in registers.
    Fragment(Fragment),
    /// Coordinates of elements in registers.
    Coordinates(Coordinates),
    /// A tensor in memory (an IR value of tensor type).
    Tensor(Tensor),
    /// A layout without a swizzle.
    Layout(Layout),
    /// A layout of shared memory with a permutation of its bytes.
    Swizzled(Swizzle, Layout),
    /// The barriers of a pipeline, which passes stages of shared memory between roles.
    Pipeline(Value),
    /// A tile to which matrix products are added.
    Accumulator(Value, Accumulator),
    /// A tuple, such as a shape, a coordinate or a tiler.
    Tuple(Vec<Val>),
    /// A tuple whose fields have names.
    Record(Vec<(Arc<str>, Val)>),
    /// A function of the text.
    Function(Arc<Function>),
    /// A group of PEs.
    Team(TeamRef),
    /// The counters of a team barrier.
    Barrier(Value),
    /// A set of threads, with this thread's place in it.
    Threads(Threads),
    /// The placeholder `_`, which keeps a whole mode.
    Whole,
    /// A range of integers: `a..b`
    Range(Int, Int),
}

/// A view of memory.
#[derive(Clone, Copy, Debug)]
pub struct Tensor {
    /// The IR value of the tensor.
    pub value: Value,
    /// Whether each thread has its own part: the tensor came from `partition`, or its offset
    /// depends on the thread.
    pub private: bool,
    /// Whether it is a single element that a whole coordinate names, which is a number where a
    /// number is expected.
    pub element: bool,
    /// The order in which `partition` distributed the elements, if it did.
    pub order: Option<Order>,
}

/// The order in which `partition` distributes the elements of a tensor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// The first mode is the fastest.
    FirstMode,
    /// The last mode is the fastest. Its elements are contiguous in memory, and those of the first
    /// are not.
    LastMode {
        /// The number of modes with more than one element.
        modes: usize,
        /// The number of elements of the last mode, if it is known at compile time.
        last: Option<i64>,
    },
}

/// Elements that the threads hold in registers.
#[derive(Clone, Debug)]
pub struct Fragment {
    /// A scalar or vector with its lanes in coordinate order, mode 0 fastest.
    pub value: Value,
    /// The extents, known at compile time.
    pub shape: IntTuple,
    /// The bounds that say which lanes hold existing elements.
    pub bounds: Vec<Bound>,
    /// The distribution over the threads, if the tensor is the same for all threads.
    pub distribution: Option<Distribution>,
    /// The order in which `partition` distributed the elements, if they belong to a tensor that it
    /// made.
    pub order: Option<Order>,
}

/// The way in which the elements of a tensor are distributed over the threads of a CTA.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Distribution {
    /// The elements are distributed in turn.
    Evenly(Turns),
    /// The elements are distributed as those of accumulators of matrix products are.
    Accumulated(Share),
}

/// The order in which elements are distributed in turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Turns {
    /// The number of all elements.
    pub total: i64,
    /// The number of consecutive elements that a thread gets in each turn.
    pub vector: i64,
    /// Whether the elements of the last mode are contiguous, and those of the first are not.
    pub by_rows: bool,
}

impl std::fmt::Display for Turns {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Turns { total, vector, by_rows } = self;
        write!(f, "{total} by {vector}{}", if *by_rows { ", row by row," } else { "" })
    }
}

/// A tile that warpgroups divide as matrix instructions do. With 1 column, it stands for a value
/// for each row of such a tile, which all threads with elements of the row have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Share {
    /// The number of rows of the tile.
    pub rows: u32,
    /// The number of columns of the tile.
    pub cols: u32,
    /// The number of warpgroups that divide the rows, and of those that divide the columns.
    pub over: [u32; 2],
}

impl Share {
    /// The distribution with one value for each row.
    pub fn of_rows(self) -> Share {
        Share { cols: 1, ..self }
    }

    /// Whether there is one value for each row.
    pub fn is_rows(self) -> bool {
        self.cols == 1
    }

    /// The number of values that each thread has of a row.
    pub fn own_cols(self) -> u32 {
        self.cols / self.over[1].max(1)
    }

    /// The layout of modes (value, thread) to `row + rows * column`.
    pub fn layout(self) -> Result<Layout, LayoutError> {
        let (rows, over) = (self.rows.into(), self.over.map(i64::from));
        if self.is_rows() { accumulator_rows(rows, over) } else { accumulator(rows, self.cols.into(), over) }
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_rows() {
            write!(f, "{} rows", self.rows)
        } else {
            write!(f, "{} x {} elements", self.rows, self.cols)
        }
    }
}

/// A set of threads.
#[derive(Clone, Debug)]
pub struct Threads {
    /// The rank of this thread in the set.
    pub index: Int,
    /// The number of threads in the set.
    pub count: Int,
}

impl Val {
    /// The number of elements of a tuple at all levels together, or 1 for other values.
    pub fn leaves(&self) -> usize {
        match self {
            Val::Tuple(items) => items.iter().map(Val::leaves).sum(),
            Val::Record(fields) => fields.iter().map(|(_, v)| v.leaves()).sum(),
            _ => 1,
        }
    }

    /// The kind of value, for messages.
    pub fn kind(&self) -> &'static str {
        match self {
            Val::Unit => "nothing",
            Val::Error => "an error",
            Val::Int(_) => "an integer",
            Val::Float(_) => "a float",
            Val::Bool(_) => "a truth value",
            Val::Str(_) => "a string",
            Val::Dtype(_) => "a type",
            Val::Reduction(_) => "a reduction",
            Val::Runtime(_) => "a run-time scalar",
            Val::Fragment(_) => "a register tensor",
            Val::Coordinates(_) => "coordinates of elements",
            Val::Tensor(_) => "a tensor",
            Val::Layout(_) => "a layout",
            Val::Swizzled(..) => "a swizzled layout",
            Val::Pipeline(_) => "a pipeline",
            Val::Accumulator(..) => "an accumulator",
            Val::Tuple(_) => "a tuple",
            Val::Record(_) => "a tuple with named fields",
            Val::Function(_) => "a function",
            Val::Team(_) => "a team",
            Val::Barrier(_) => "a barrier",
            Val::Threads(_) => "a set of threads",
            Val::Whole => "`_`",
            Val::Range(..) => "a range",
        }
    }
}

impl fmt::Display for Val {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Val::Int(n) => write!(f, "{n}"),
            Val::Float(x) => write!(f, "{x}"),
            Val::Bool(b) => write!(f, "{b}"),
            Val::Dtype(s) => write!(f, "{s}"),
            Val::Reduction(op) => write!(f, "{op}"),
            Val::Layout(l) => write!(f, "{l}"),
            other => f.write_str(other.kind()),
        }
    }
}
