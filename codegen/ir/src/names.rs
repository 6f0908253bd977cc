//! The small closed sets of the IR. Each is a table of names that [`weft_abi::words`] prints and
//! parses. The sets that launches also use come from [`weft_abi`].

use weft_abi::words;

pub use weft_abi::{NumberKind, Role, Scalar, Scope, Space};

words! {
    /// The memory order of an access (PTX ISA, Memory Consistency Model).
    Sem {
        /// A weak access, which is ordered by nothing.
        Weak = "weak",
        /// A strong access without order.
        Relaxed = "relaxed",
        /// Later accesses happen after it.
        Acquire = "acquire",
        /// Earlier accesses happen before it.
        Release = "release",
        /// Both acquire and release.
        AcqRel = "acq_rel",
        /// Sequentially consistent: all threads agree on one order.
        SeqCst = "sc",
    }
}

words! {
    /// Reductions in the switch, in memory and among threads.
    RedOp {
        /// The sum.
        Add = "add",
        /// The product, only among threads and in registers.
        Mul = "mul",
        /// The minimum.
        Min = "min",
        /// The maximum.
        Max = "max",
        /// The bitwise and.
        And = "and",
        /// The bitwise or.
        Or = "or",
        /// The bitwise exclusive or.
        Xor = "xor",
    }
}

words! {
    /// Elementwise operations with two operands of one type.
    BinOp {
        /// The sum.
        Add = "add",
        /// The difference.
        Sub = "sub",
        /// The product.
        Mul = "mul",
        /// The quotient. Quotients of integers round towards zero.
        Div = "div",
        /// The remainder, which has the sign of the dividend.
        Rem = "rem",
        /// The minimum. If one of two floats is NaN, the result is the other one.
        Min = "min",
        /// The maximum. If one of two floats is NaN, the result is the other one.
        Max = "max",
        /// The bitwise and.
        And = "and",
        /// The bitwise or.
        Or = "or",
        /// The bitwise exclusive or.
        Xor = "xor",
        /// The left shift. A count of the width or more gives 0.
        Shl = "shl",
        /// The right shift, which is arithmetic for signed types.
        Shr = "shr",
    }
}

words! {
    /// Elementwise operations with one operand.
    UnOp {
        /// The negation.
        Neg = "neg",
        /// The bitwise complement, which is logical for `bool`.
        Not = "not",
        /// The absolute value.
        Abs = "abs",
        /// The square root, correctly rounded.
        Sqrt = "sqrt",
        /// The reciprocal square root (PTX `rsqrt.approx`).
        Rsqrt = "rsqrt",
        /// The exponential to base e (PTX `ex2.approx` of `x * log2(e)`).
        Exp = "exp",
        /// The exponential to base 2 (PTX `ex2.approx`).
        Exp2 = "exp2",
        /// The natural logarithm (PTX `lg2.approx` times `ln(2)`).
        Log = "log",
        /// The logarithm to base 2 (PTX `lg2.approx`).
        Log2 = "log2",
        /// The hyperbolic tangent (PTX `tanh.approx`).
        Tanh = "tanh",
        /// The sine (PTX `sin.approx`).
        Sin = "sin",
        /// The cosine (PTX `cos.approx`).
        Cos = "cos",
        /// The greatest integer that is not above the operand.
        Floor = "floor",
        /// The least integer that is not below the operand.
        Ceil = "ceil",
        /// The nearest integer, with ties to even.
        Round = "round",
    }
}

words! {
    /// Comparisons. Those of floats are ordered, but `ne` is true if one is NaN.
    CmpOp {
        /// Equal.
        Eq = "eq",
        /// Not equal.
        Ne = "ne",
        /// Less.
        Lt = "lt",
        /// Less or equal.
        Le = "le",
        /// Greater.
        Gt = "gt",
        /// Greater or equal.
        Ge = "ge",
    }
}

impl CmpOp {
    /// Whether the comparison holds for two integers.
    pub fn holds(self, a: i64, b: i64) -> bool {
        match self {
            CmpOp::Eq => a == b,
            CmpOp::Ne => a != b,
            CmpOp::Lt => a < b,
            CmpOp::Le => a <= b,
            CmpOp::Gt => a > b,
            CmpOp::Ge => a >= b,
        }
    }
}

words! {
    /// A group of threads that execute an operation together.
    Group {
        /// A single thread.
        Thread = "thread",
        /// The 32 threads of a warp.
        Warp = "warp",
        /// The threads of a CTA.
        Block = "block",
        /// The threads of all CTAs of a cluster.
        Cluster = "cluster",
    }
}

words! {
    /// A dimension of the launch.
    Dim {
        /// The fastest dimension.
        X = "x",
        /// The middle dimension.
        Y = "y",
        /// The slowest dimension.
        Z = "z",
    }
}

words! {
    /// Special registers.
    Sreg {
        /// The index of the thread in the CTA (%tid).
        ThreadIdx = "thread_idx",
        /// The index of the CTA in the grid (%ctaid).
        BlockIdx = "block_idx",
        /// The number of threads of a CTA (%ntid).
        BlockDim = "block_dim",
        /// The number of CTAs of the grid (%nctaid).
        GridDim = "grid_dim",
        /// The index of the lane in the warp (%laneid), only in dimension x.
        LaneIdx = "lane_idx",
        /// The rank of the CTA in its cluster (%cluster_ctarank), only in dimension x.
        ClusterRank = "cluster_rank",
    }
}

words! {
    /// The way in which a warp shuffle picks the lane to read from.
    ShuffleMode {
        /// The lane that the operand names.
        Idx = "idx",
        /// The lane whose number is this lane's minus the operand.
        Up = "up",
        /// The lane whose number is this lane's plus the operand.
        Down = "down",
        /// The lane whose number is the exclusive or of this lane's and the operand.
        Xor = "xor",
    }
}

words! {
    /// The way in which a signal is updated (NVSHMEM: `NVSHMEM_SIGNAL_SET`, `NVSHMEM_SIGNAL_ADD`).
    SignalKind {
        /// The value replaces the signal.
        Set = "set",
        /// The value is added to the signal atomically.
        Add = "add",
    }
}

words! {
    /// Atomic memory operations on another PE (NVSHMEM: `nvshmem_TYPE_atomic_...`).
    AmoOp {
        /// Reads the element.
        Fetch = "fetch",
        /// Writes the element.
        Set = "set",
        /// Writes the element and returns the old value.
        Swap = "swap",
        /// Writes the element if it equals an operand, and returns the old value.
        CompareSwap = "compare_swap",
        /// Adds 1 to the element.
        Inc = "inc",
        /// Adds 1 to the element and returns the old value.
        FetchInc = "fetch_inc",
        /// Adds to the element.
        Add = "add",
        /// Adds to the element and returns the old value.
        FetchAdd = "fetch_add",
        /// Combines the element by bitwise and.
        And = "and",
        /// Combines the element by bitwise and, and returns the old value.
        FetchAnd = "fetch_and",
        /// Combines the element by bitwise or.
        Or = "or",
        /// Combines the element by bitwise or, and returns the old value.
        FetchOr = "fetch_or",
        /// Combines the element by bitwise exclusive or.
        Xor = "xor",
        /// Combines the element by bitwise exclusive or, and returns the old value.
        FetchXor = "fetch_xor",
    }
}

impl AmoOp {
    /// Whether the operation returns the old value.
    pub fn fetches(self) -> bool {
        !matches!(self, AmoOp::Set | AmoOp::Inc | AmoOp::Add | AmoOp::And | AmoOp::Or | AmoOp::Xor)
    }

    /// The number of values that the operation takes.
    pub fn operands(self) -> usize {
        match self {
            AmoOp::Fetch | AmoOp::Inc | AmoOp::FetchInc => 0,
            AmoOp::CompareSwap => 2,
            _ => 1,
        }
    }

    /// Whether the operation exists for a type (NVSHMEM, standard, extended and bitwise AMO types;
    /// float add since NVSHMEM 3.7).
    pub fn takes(self, s: Scalar) -> bool {
        let int = s.is_int() && s.bits() >= 32;
        let float = matches!(s, Scalar::F32 | Scalar::F64);
        match self {
            AmoOp::Fetch | AmoOp::Set | AmoOp::Swap => int || float,
            AmoOp::Add | AmoOp::FetchAdd => int || float || s == Scalar::F16,
            _ => int,
        }
    }
}

words! {
    /// The variables, among several, that a wait is for.
    WaitFor {
        /// The wait has one variable.
        One = "one",
        /// The wait is for all variables.
        All = "all",
        /// The wait is for one of the variables.
        Any = "any",
        /// The wait is for at least one variable and returns all that are ready.
        Some = "some",
    }
}

words! {
    /// Collective exchanges without arithmetic.
    MoveKind {
        /// Every PE gets all PEs' tensors, in rank order (all-gather).
        Fcollect = "fcollect",
        /// Every PE gets its part of each PE's tensor.
        Alltoall = "alltoall",
        /// Every PE gets the root's tensor.
        Broadcast = "broadcast",
    }
}
