//! The columns of the tables: closed sets of words, written as in PTX.

/// Declares an enum whose text form is one word per variant.
macro_rules! words {
    ($(#[$meta:meta])* $name:ident { $($(#[$vmeta:meta])* $variant:ident = $word:literal),* $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum $name { $($(#[$vmeta])* $variant),* }

        impl $name {
            /// Every variant, in order.
            pub const ALL: &'static [$name] = &[$($name::$variant),*];
            /// The name of each variant, in order.
            pub const NAMES: &'static [&'static str] = &[$($word),*];

            /// The word that PTX uses for it.
            pub fn name(self) -> &'static str {
                Self::NAMES[self as usize]
            }

            /// The variant for a word of PTX.
            pub fn parse(word: &str) -> Option<$name> {
                Self::NAMES.iter().position(|name| *name == word).map(|i| Self::ALL[i])
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.name())
            }
        }
    };
}

words! {
    /// The instructions that have a table.
    Instr {
        /// Loads from every PE and reduces the values in the switch.
        LdReduce = "multimem.ld_reduce",
        /// Stores to every PE.
        St = "multimem.st",
        /// Reduces into every PE's memory.
        Red = "multimem.red",
        /// [`Instr::St`] that completes asynchronously.
        StAsync = "multimem.st.async",
        /// [`Instr::Red`] that completes asynchronously.
        RedAsync = "multimem.red.async",
        /// Copies from shared memory to every PE.
        CpBulk = "multimem.cp.async.bulk",
        /// Reduces from shared memory into every PE's memory.
        CpReduceBulk = "multimem.cp.reduce.async.bulk",
        /// Loads from one address.
        GlobalLd = "ld",
        /// Stores to one address.
        GlobalSt = "st",
        /// Reduces into one address without returning the old value.
        GlobalRed = "red",
        /// Read-modify-write of one address, which returns the old value. Without an op it
        /// exchanges.
        GlobalAtom = "atom",
    }
}

impl Instr {
    /// Whether its address is a multimem (multicast) address.
    pub fn is_multimem(self) -> bool {
        self <= Instr::CpReduceBulk
    }
}

words! {
    /// The reductions that instructions can have.
    RedOp {
        /// The sum.
        Add = "add",
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
    /// The precision of the intermediate sum, if it differs from the element's.
    Acc {
        /// Single precision, for f16 and bf16.
        F32 = "acc::f32",
        /// Half precision, for fp8.
        F16 = "acc::f16",
    }
}

words! {
    /// Memory semantics (PTX ISA, Memory Consistency Model).
    Sem {
        /// A weak access, which is ordered by nothing and has no scope.
        Weak = "weak",
        /// A strong access without order.
        Relaxed = "relaxed",
        /// Later accesses happen after it.
        Acquire = "acquire",
        /// Earlier accesses happen before it.
        Release = "release",
        /// Both acquire and release, for read-modify-writes.
        AcqRel = "acq_rel",
    }
}

words! {
    /// The threads among which a strong access is ordered.
    Scope {
        /// The threads of the CTA.
        Cta = "cta",
        /// The threads of the cluster.
        Cluster = "cluster",
        /// The threads of the GPU.
        Gpu = "gpu",
        /// All threads of the system, including those of other PEs and the host.
        Sys = "sys",
    }
}

words! {
    /// The element types, including packed ones.
    ElemType {
        /// An unsigned integer of 32 bits.
        U32 = "u32",
        /// A signed integer of 32 bits.
        S32 = "s32",
        /// An unsigned integer of 64 bits.
        U64 = "u64",
        /// A signed integer of 64 bits.
        S64 = "s64",
        /// 8 bits of any type, which only other types carry.
        B8 = "b8",
        /// 16 bits of any type, which only other types carry.
        B16 = "b16",
        /// 32 bits of any type.
        B32 = "b32",
        /// 64 bits of any type.
        B64 = "b64",
        /// IEEE half precision.
        F16 = "f16",
        /// Two [`ElemType::F16`] in one register.
        F16x2 = "f16x2",
        /// The type bfloat16.
        BF16 = "bf16",
        /// Two [`ElemType::BF16`] in one register.
        BF16x2 = "bf16x2",
        /// IEEE single precision.
        F32 = "f32",
        /// IEEE double precision.
        F64 = "f64",
        /// An fp8 type with 4 exponent bits.
        E4M3 = "e4m3",
        /// Two [`ElemType::E4M3`] in one register.
        E4M3x2 = "e4m3x2",
        /// Four [`ElemType::E4M3`] in one register.
        E4M3x4 = "e4m3x4",
        /// An fp8 type with 5 exponent bits.
        E5M2 = "e5m2",
        /// Two [`ElemType::E5M2`] in one register.
        E5M2x2 = "e5m2x2",
        /// Four [`ElemType::E5M2`] in one register.
        E5M2x4 = "e5m2x4",
    }
}

/// A kind of PTX register.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Reg {
    /// A register of 8 bits (`.b8`), which LLVM does not have.
    B8,
    /// A register of 16 bits without a type (`.b16`).
    B16,
    /// A register of 32 bits without a type (`.b32`).
    B32,
    /// A register of 64 bits without a type (`.b64`).
    B64,
    /// A register for a 32-bit floating-point number (`.f32`).
    F32,
    /// A register for a 64-bit floating-point number (`.f64`).
    F64,
}

impl Reg {
    /// (PTX type of a register declaration, letter of LLVM's inline-assembly constraint) in order.
    const FACTS: [(&'static str, Option<char>); 6] = [
        ("b8", None),
        ("b16", Some('h')),
        ("b32", Some('r')),
        ("b64", Some('l')),
        ("f32", Some('f')),
        ("f64", Some('d')),
    ];

    /// The type that declares the register, such as `b32`.
    pub fn ptx(self) -> &'static str {
        Self::FACTS[self as usize].0
    }

    /// The letter of LLVM's inline-assembly constraint, such as `r`. [`Reg::B8`] has none.
    pub fn constraint(self) -> Option<char> {
        Self::FACTS[self as usize].1
    }
}

impl ElemType {
    /// (scalar it is made of, scalars, bytes, register) in the order of [`ElemType::ALL`].
    const FACTS: [(ElemType, u8, u8, Reg); 20] = {
        use ElemType::*;
        [
            (U32, 1, 4, Reg::B32),
            (S32, 1, 4, Reg::B32),
            (U64, 1, 8, Reg::B64),
            (S64, 1, 8, Reg::B64),
            (B8, 1, 1, Reg::B8),
            (B16, 1, 2, Reg::B16),
            (B32, 1, 4, Reg::B32),
            (B64, 1, 8, Reg::B64),
            (F16, 1, 2, Reg::B16),
            (F16, 2, 4, Reg::B32),
            (BF16, 1, 2, Reg::B16),
            (BF16, 2, 4, Reg::B32),
            (F32, 1, 4, Reg::F32),
            (F64, 1, 8, Reg::F64),
            (E4M3, 1, 1, Reg::B8),
            (E4M3, 2, 2, Reg::B16),
            (E4M3, 4, 4, Reg::B32),
            (E5M2, 1, 1, Reg::B8),
            (E5M2, 2, 2, Reg::B16),
            (E5M2, 4, 4, Reg::B32),
        ]
    };

    /// The scalar of which it consists, such as `f16` for `f16x2`.
    pub fn scalar(self) -> ElemType {
        Self::FACTS[self as usize].0
    }

    /// The number of scalars that a value holds, such as 2 for `f16x2`.
    pub fn lanes(self) -> u8 {
        Self::FACTS[self as usize].1
    }

    /// The width of the type in bytes.
    pub fn bytes(self) -> u8 {
        Self::FACTS[self as usize].2
    }

    /// The kind of register that holds a value.
    pub fn reg(self) -> Reg {
        Self::FACTS[self as usize].3
    }
}
