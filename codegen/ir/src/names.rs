//! The small closed sets of the IR: each is a table of names, printed and parsed by [`weft_abi::words`]. Those that a
//! launch has too come from [`weft_abi`].

use weft_abi::words;

pub use weft_abi::{NumberKind, Role, Scalar, Scope, Space};

words! {
    /// Memory order of an access (PTX ISA, Memory Consistency Model).
    Sem {
        /// Ordered by nothing.
        Weak = "weak",
        /// Strong, without order.
        Relaxed = "relaxed",
        /// Later accesses stay later.
        Acquire = "acquire",
        /// Earlier accesses stay earlier.
        Release = "release",
        /// Both.
        AcqRel = "acq_rel",
        /// One order for all.
        SeqCst = "sc",
    }
}

words! {
    /// Reductions, in the switch, in memory and among threads.
    RedOp {
        /// Sum.
        Add = "add",
        /// Product (among threads and in registers only).
        Mul = "mul",
        /// Least.
        Min = "min",
        /// Greatest.
        Max = "max",
        /// Bitwise and.
        And = "and",
        /// Bitwise or.
        Or = "or",
        /// Bitwise exclusive or.
        Xor = "xor",
    }
}

words! {
    /// Elementwise operations of two operands of one type.
    BinOp {
        /// Sum.
        Add = "add",
        /// Difference.
        Sub = "sub",
        /// Product.
        Mul = "mul",
        /// Quotient; of integers, towards zero.
        Div = "div",
        /// Remainder, with the sign of the dividend.
        Rem = "rem",
        /// Least; of floats, the number where one is NaN.
        Min = "min",
        /// Greatest; of floats, the number where one is NaN.
        Max = "max",
        /// Bitwise and.
        And = "and",
        /// Bitwise or.
        Or = "or",
        /// Bitwise exclusive or.
        Xor = "xor",
        /// Left shift; a count of the width or more gives 0.
        Shl = "shl",
        /// Right shift, arithmetic for signed types.
        Shr = "shr",
    }
}

words! {
    /// Elementwise operations of one operand.
    UnOp {
        /// Negation.
        Neg = "neg",
        /// Bitwise (of `bool`: logical) complement.
        Not = "not",
        /// Magnitude.
        Abs = "abs",
        /// Square root, correctly rounded.
        Sqrt = "sqrt",
        /// 1 / square root (PTX `rsqrt.approx`).
        Rsqrt = "rsqrt",
        /// Exponential, base e (PTX `ex2.approx` of `x * log2(e)`).
        Exp = "exp",
        /// Exponential, base 2 (PTX `ex2.approx`).
        Exp2 = "exp2",
        /// Natural logarithm (PTX `lg2.approx` times `ln(2)`).
        Log = "log",
        /// Logarithm, base 2 (PTX `lg2.approx`).
        Log2 = "log2",
        /// Hyperbolic tangent (PTX `tanh.approx`).
        Tanh = "tanh",
        /// Sine (PTX `sin.approx`).
        Sin = "sin",
        /// Cosine (PTX `cos.approx`).
        Cos = "cos",
        /// Next integer below.
        Floor = "floor",
        /// Next integer above.
        Ceil = "ceil",
        /// Nearest integer, ties to even.
        Round = "round",
    }
}

words! {
    /// Comparisons; of floats ordered, but `ne` is true where one is NaN.
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
    /// Whether two integers compare so.
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
    /// Threads that do something together.
    Group {
        /// One thread by itself.
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
        /// Fastest.
        X = "x",
        /// Middle.
        Y = "y",
        /// Slowest.
        Z = "z",
    }
}

words! {
    /// Special registers.
    Sreg {
        /// Thread index in the CTA (%tid).
        ThreadIdx = "thread_idx",
        /// CTA index in the grid (%ctaid).
        BlockIdx = "block_idx",
        /// Threads a CTA (%ntid).
        BlockDim = "block_dim",
        /// CTAs of the grid (%nctaid).
        GridDim = "grid_dim",
        /// Index in the warp (%laneid); dimension x only.
        LaneIdx = "lane_idx",
        /// Rank of the CTA in its cluster (%cluster_ctarank); dimension x only.
        ClusterRank = "cluster_rank",
    }
}

words! {
    /// The way in which a warp shuffle picks the lane to read from.
    ShuffleMode {
        /// The lane named.
        Idx = "idx",
        /// The lane with the number of this lane minus the operand.
        Up = "up",
        /// The lane with the number of this lane plus the operand.
        Down = "down",
        /// The lane with the number of this lane exclusive-or the operand.
        Xor = "xor",
    }
}

words! {
    /// The way in which a signal is updated (NVSHMEM: `NVSHMEM_SIGNAL_SET`, `NVSHMEM_SIGNAL_ADD`).
    SignalKind {
        /// The value replaces it.
        Set = "set",
        /// The value is added, atomically.
        Add = "add",
    }
}

words! {
    /// Atomic memory operations on another PE (NVSHMEM: `nvshmem_TYPE_atomic_...`).
    AmoOp {
        /// Reads.
        Fetch = "fetch",
        /// Writes.
        Set = "set",
        /// Writes, gives the old value.
        Swap = "swap",
        /// Writes if equal, gives the old value.
        CompareSwap = "compare_swap",
        /// Adds 1.
        Inc = "inc",
        /// Adds 1, gives the old value.
        FetchInc = "fetch_inc",
        /// Adds.
        Add = "add",
        /// Adds, gives the old value.
        FetchAdd = "fetch_add",
        /// Bitwise and.
        And = "and",
        /// Bitwise and, gives the old value.
        FetchAnd = "fetch_and",
        /// Bitwise or.
        Or = "or",
        /// Bitwise or, gives the old value.
        FetchOr = "fetch_or",
        /// Bitwise exclusive or.
        Xor = "xor",
        /// Bitwise exclusive or, gives the old value.
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

    /// Types it exists for (NVSHMEM, standard, extended and bitwise AMO types; float add since NVSHMEM 3.7).
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
    /// The variables among several that a wait is for.
    WaitFor {
        /// The only one.
        One = "one",
        /// All of them.
        All = "all",
        /// One of them.
        Any = "any",
        /// One at least; tells which all.
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
