//! The intermediate representation of a kernel: types, ops, builder, printer, verifier.
//! It knows layouts and nothing of LLVM, CUDA or text files.

pub mod abi;
pub mod arena;
pub mod builder;
pub mod codes;
pub mod diag;
pub mod kernel;
pub mod names;
pub mod op;
pub mod ordering;
pub mod remote;
pub mod text;
pub mod types;
pub mod typing;
pub mod uniform;
pub mod verify;

pub use builder::Builder;
pub use kernel::{Block, Inst, Kernel, Local, LocalId, Module, Param, ParamKind, TeamRef, Value};
pub use names::{AmoOp, BinOp, CmpOp, Dim, Group, Kind, MoveKind, RedOp, Scalar, Scope, Sem, ShuffleMode};
pub use names::{SignalKind, Space, Sreg, UnOp, WaitFor};
pub use op::{Constant, Op};
pub use types::{Bound, TensorType, Type};
pub use weft_abi::Hidden;
pub use weft_layout::{Int, IntTuple, Layout};
