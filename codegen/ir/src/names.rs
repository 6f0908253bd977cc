//! The small closed sets of the IR: each is a table of names, printed and parsed by one macro.

/// An enum whose text form is one word a variant.
macro_rules! words {
    ($(#[$meta:meta])* $name:ident { $($(#[$vmeta:meta])* $variant:ident = $word:literal),* $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum $name { $($(#[$vmeta])* $variant),* }

        impl $name {
            /// Every variant.
            pub const ALL: &'static [$name] = &[$($name::$variant),*];

            /// Its text form.
            pub fn name(self) -> &'static str {
                match self { $($name::$variant => $word),* }
            }

            /// The variant of that name.
            pub fn parse(word: &str) -> Option<$name> {
                match word { $($word => Some($name::$variant),)* _ => None }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.name())
            }
        }
    };
}

words! {
    /// Element types.
    Scalar {
        /// One truth value.
        Bool = "bool",
        /// Signed, 8 bits.
        I8 = "i8",
        /// Signed, 16 bits.
        I16 = "i16",
        /// Signed, 32 bits.
        I32 = "i32",
        /// Signed, 64 bits.
        I64 = "i64",
        /// Unsigned, 8 bits.
        U8 = "u8",
        /// Unsigned, 16 bits.
        U16 = "u16",
        /// Unsigned, 32 bits.
        U32 = "u32",
        /// Unsigned, 64 bits.
        U64 = "u64",
        /// IEEE half.
        F16 = "f16",
        /// bfloat16.
        BF16 = "bf16",
        /// IEEE single.
        F32 = "f32",
        /// IEEE double.
        F64 = "f64",
        /// OCP fp8, 4 exponent bits, 3 mantissa bits.
        E4M3 = "e4m3",
        /// OCP fp8, 5 exponent bits, 2 mantissa bits.
        E5M2 = "e5m2",
    }
}

/// What kind of number a [`Scalar`] is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Truth value.
    Bool,
    /// Two's complement.
    Signed,
    /// Unsigned.
    Unsigned,
    /// Floating point.
    Float,
}

impl Scalar {
    /// (kind, bits) of each, in the order of [`Scalar::ALL`].
    const FACTS: [(Kind, u32); 15] = {
        use Kind::{Bool, Float, Signed, Unsigned};
        [
            (Bool, 8),
            (Signed, 8),
            (Signed, 16),
            (Signed, 32),
            (Signed, 64),
            (Unsigned, 8),
            (Unsigned, 16),
            (Unsigned, 32),
            (Unsigned, 64),
            (Float, 16),
            (Float, 16),
            (Float, 32),
            (Float, 64),
            (Float, 8),
            (Float, 8),
        ]
    };

    /// What kind of number.
    pub fn kind(self) -> Kind {
        Scalar::FACTS[self as usize].0
    }

    /// Width in memory, in bits (a `bool` takes a byte).
    pub fn bits(self) -> u32 {
        Scalar::FACTS[self as usize].1
    }

    /// Width in memory, in bytes.
    pub fn bytes(self) -> u32 {
        self.bits() / 8
    }

    /// A floating-point type, fp8 included.
    pub fn is_float(self) -> bool {
        self.kind() == Kind::Float
    }

    /// An integer type (not `bool`).
    pub fn is_int(self) -> bool {
        matches!(self.kind(), Kind::Signed | Kind::Unsigned)
    }

    /// A type only loaded, stored and converted: no arithmetic is done in it.
    pub fn is_fp8(self) -> bool {
        matches!(self, Scalar::E4M3 | Scalar::E5M2)
    }
}

words! {
    /// Where a tensor lives.
    Space {
        /// This GPU's memory.
        Global = "global",
        /// This PE's part of the symmetric heap.
        Symmetric = "symm",
        /// Another PE's part of the symmetric heap, through its unicast address.
        Peer = "peer",
        /// All PEs' parts at once, through the team's multicast address: `multimem` operations only.
        Multicast = "multicast",
        /// The CTA's shared memory.
        Shared = "shared",
        /// A thread's registers.
        Register = "register",
    }
}

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
    /// Who must agree on the order.
    Scope {
        /// The threads of one CTA.
        Cta = "cta",
        /// The threads of one cluster.
        Cluster = "cluster",
        /// The threads of one GPU.
        Gpu = "gpu",
        /// All threads of the system, other PEs and the host included.
        Sys = "sys",
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

words! {
    /// Threads that do something together.
    Group {
        /// One thread by itself.
        Thread = "thread",
        /// The 32 threads of a warp.
        Warp = "warp",
        /// The threads of a CTA.
        Block = "block",
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
    }
}

words! {
    /// How a warp shuffle picks the lane it reads from.
    ShuffleMode {
        /// The lane named.
        Idx = "idx",
        /// This lane minus the operand.
        Up = "up",
        /// This lane plus the operand.
        Down = "down",
        /// This lane exclusive-or the operand.
        Xor = "xor",
    }
}

words! {
    /// How a signal is updated (NVSHMEM: `NVSHMEM_SIGNAL_SET`, `NVSHMEM_SIGNAL_ADD`).
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
    /// It gives the old value.
    pub fn fetches(self) -> bool {
        !matches!(self, AmoOp::Set | AmoOp::Inc | AmoOp::Add | AmoOp::And | AmoOp::Or | AmoOp::Xor)
    }

    /// Values it takes.
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
    /// Which of several variables a wait is for.
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
