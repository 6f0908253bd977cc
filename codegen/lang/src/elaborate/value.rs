//! What an expression of the text stands for while the kernel is being made.

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
    /// A compile-time or symbolic integer: extents, coordinates, offsets, loop variables.
    Int(Int),
    /// A literal float; takes the type of what it meets.
    Float(f64),
    /// A compile-time truth value.
    Bool(bool),
    /// A format text, as `print` takes it.
    Str(Arc<str>),
    /// An element type, such as `f32`.
    Dtype(Scalar),
    /// A reduction, passed on to functions.
    Reduction(RedOp),
    /// A scalar that is known at run time.
    Rt(Value),
    /// Elements that the threads hold in registers.
    Frag(Frag),
    /// Coordinates of elements in registers.
    Coordinates(Coordinates),
    /// A tensor in memory (an IR value of tensor type).
    Tensor(Tensor),
    /// A layout without a swizzle.
    Layout(Layout),
    /// A layout of shared memory whose bytes are permuted.
    Swizzled(Swizzle, Layout),
    /// Barriers that hand stages of shared memory on.
    Pipeline(Value),
    /// A tile that matrix products are added to.
    Accumulator(Value, Accumulator),
    /// A tuple: a shape, a coordinate, a tiler.
    Tuple(Vec<Val>),
    /// A tuple whose fields have names.
    Record(Vec<(Arc<str>, Val)>),
    /// A function of the text.
    Function(Arc<Function>),
    /// A group of PEs.
    Team(TeamRef),
    /// Counters of a team barrier.
    Barrier(Value),
    /// A set of threads and this thread's place in it.
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
    /// Each thread has its own part: it came from `partition`, or its offset depends on the thread.
    pub private: bool,
    /// One element, named by a whole coordinate: a number where a number is wanted.
    pub element: bool,
    /// The order in which `partition` dealt the elements out, if it did.
    pub order: Option<Order>,
}

/// The order in which `partition` deals the elements of a tensor out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// The first mode is the fastest.
    FirstMode,
    /// The last mode is the fastest: its elements follow each other in memory, and those of the first do not.
    LastMode {
        /// Modes with more than one element.
        modes: usize,
        /// Elements of the last mode, where that is known at compile time.
        last: Option<i64>,
    },
}

/// Elements that the threads hold in registers.
#[derive(Clone, Debug)]
pub struct Frag {
    /// A scalar or vector; lanes in coordinate order, mode 0 fastest.
    pub value: Value,
    /// The extents, known at compile time.
    pub shape: IntTuple,
    /// The bounds that say which lanes hold elements that exist.
    pub bounds: Vec<Bound>,
    /// The way in which the elements of a tensor that is the same for all threads are dealt out over them.
    pub dealt: Option<Dealt>,
    /// The order in which `partition` dealt the elements out, if they are of a tensor that it made.
    pub order: Option<Order>,
}

/// The way in which the elements of a tensor are dealt out over the threads of a CTA.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Dealt {
    /// The elements are dealt out in turn.
    Evenly(Turns),
    /// The elements are dealt out as accumulators of matrix products are.
    Accumulated(Share),
}

/// The order in which elements are dealt out in turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Turns {
    /// The number of all elements.
    pub total: i64,
    /// The number of elements that a thread gets at a time.
    pub vector: i64,
    /// Whether those of the last mode follow each other, and not those of the first.
    pub by_rows: bool,
}

impl std::fmt::Display for Turns {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Turns { total, vector, by_rows } = self;
        write!(f, "{total} by {vector}{}", if *by_rows { ", row by row," } else { "" })
    }
}

/// A tile that warpgroups share out as matrix instructions do; with 1 column, a value for each row of such a tile, which
/// all threads with elements of the row have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Share {
    /// Rows of the tile.
    pub rows: u32,
    /// Columns of the tile.
    pub cols: u32,
    /// Warpgroups that share out the rows, and the columns.
    pub over: [u32; 2],
}

impl Share {
    /// A value for each row.
    pub fn of_rows(self) -> Share {
        Share { cols: 1, ..self }
    }

    /// Whether there is one value for each row.
    pub fn is_rows(self) -> bool {
        self.cols == 1
    }

    /// Values that each thread has of a row.
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
            write!(f, "{} x {}", self.rows, self.cols)
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
    /// Elements of a tuple, all levels together; 1 of anything else.
    pub fn leaves(&self) -> usize {
        match self {
            Val::Tuple(items) => items.iter().map(Val::leaves).sum(),
            Val::Record(fields) => fields.iter().map(|(_, v)| v.leaves()).sum(),
            _ => 1,
        }
    }

    /// For messages: what kind of thing it is.
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
            Val::Rt(_) => "a run-time scalar",
            Val::Frag(_) => "a register tensor",
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
