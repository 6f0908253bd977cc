//! The intermediate representation of a kernel: types, ops, builder, printer and verifier, at two
//! levels. The crate depends on layouts and not on LLVM, CUDA or text files.
//!
//! The names at the root are those of the [`tensor`] level, at which kernels are written.
//! [`machine`] has those of the level that back ends take, and [`mixed`] has those of kernels that
//! passes lower from one level to the other.

pub mod abi;
pub mod arena;
pub mod builder;
pub mod codes;
pub mod diag;
pub mod flight;
pub mod head;
pub mod kernel;
pub mod level;
pub mod names;
pub mod op;
pub mod ordering;
pub mod remote;
pub mod reuse;
pub mod roles;
pub mod signals;
pub mod stuck;
pub mod text;
pub mod tile;
pub mod trips;
pub mod types;
pub mod typing;
pub mod uniform;
pub mod verify;

/// Declares the names of a level.
macro_rules! level_names {
    ($($(#[$meta:meta])* $module:ident = $level:ident),* $(,)?) => {$(
        $(#[$meta])*
        pub mod $module {
            use crate::level::$level as Level;
            pub use crate::op::$module::Op;
            pub use crate::types::$module::Type;

            /// An entry point of this level.
            pub type Kernel = crate::kernel::Kernel<Level>;
            /// Kernels of this level that are compiled together.
            pub type Module = crate::kernel::Module<Level>;
            /// An instruction of this level.
            pub type Inst = crate::kernel::Inst<Level>;
            /// A local variable of a kernel of this level.
            pub type Local = crate::kernel::Local<Level>;
            /// A builder of kernels of this level.
            pub type Builder = crate::builder::Builder<Level>;
            /// A module of this level that the verifier accepted.
            pub type Verified = crate::verify::Verified<Level>;
        }
    )*};
}

level_names! {
    /// The level of tensors, layouts, views, teams, reductions and remote operations.
    tensor = Tensor,
    /// The level of pointers, numbers and registers.
    machine = Machine,
    /// Both levels, for kernels that passes are lowering.
    mixed = Mixed,
}

pub use head::{Launch, LaunchParam, MachineHead, MachineParam, Param, ParamKind, TensorHead};
pub use kernel::{Block, LocalId, TeamRef, Value};
pub use level::{Head, Level};
pub use names::{AmoOp, BinOp, CmpOp, Dim, Group, MoveKind, NumberKind, RedOp, Role, Scalar, Scope, Sem};
pub use names::{ShuffleMode, SignalKind, Space, Sreg, UnOp, WaitFor};
pub use op::{
    Access, Address, Arith, Async, Bridge, Call, Constant, Control, Debug, Memory, Remote, Team, Thread,
};
pub use op::{Family, FamilyRef, Operation, Tile, Together, Var, View};
pub use tensor::{Builder, Inst, Kernel, Local, Module, Op, Type};
pub use types::{Accumulator, Bound, TensorType, TypeRef, ValueType};
pub use weft_abi::Hidden;
pub use weft_layout::{Int, IntTuple, Layout};

/// The examples of the README compile and run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
