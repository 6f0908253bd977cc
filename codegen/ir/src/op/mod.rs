//! The ops, in families. Pure ops compute a value from values. The others have an effect, and their
//! order is kept.
//!
//! `shared.rs` has the families of both levels. `tensor_level.rs`, `tile.rs` and `remote.rs` have
//! those of the tensor level, and `machine_level.rs` has those of the machine level. The table that
//! declares an op states all of its properties. Other code asks the table and does not match on
//! single ops with a catch-all arm.
//!
//! The text form is `%result = mnemonic field, field, ... : type`, with the fields in the order of
//! the declaration.

#[macro_use]
mod declare;
mod machine_level;
mod remote;
mod shared;
mod tensor_level;
mod tile;

pub use machine_level::{Address, Async, Call, Memory};
pub use remote::{Remote, Team};
pub use shared::{Arith, Constant, Control, Debug, Thread, Var};
pub use tensor_level::{Access, Bridge, Together, View};
pub use tile::Tile;

use crate::kernel::{Block, Kernel, TeamRef, Value};
use crate::level::Level;
use crate::names::{Group, Sem};
use crate::text::{ParseError, Printer, Reader};
use crate::typing::TypeError;
use std::borrow::Cow;
use std::fmt;

/// Memory that an op accesses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AccessedMemory {
    /// The tensor or address that is accessed.
    pub value: Value,
    /// Whether the access is to another PE's copy of it.
    pub remote: bool,
}

/// An access to memory of this PE, or to the memory that the operand's own space names.
pub(crate) fn here(value: &Value) -> Option<AccessedMemory> {
    Some(AccessedMemory { value: *value, remote: false })
}

/// An access to another PE's copy of a symmetric operand.
pub(crate) fn there(value: &Value) -> Option<AccessedMemory> {
    Some(AccessedMemory { value: *value, remote: true })
}

/// The memory order of an op, and the orders that it can have (PTX ISA: the `.sem` of each
/// instruction).
pub type Order = (Sem, &'static [Sem]);

/// The way in which a result differs between the threads of a CTA.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Spread {
    /// It differs as much as its operands do.
    Operands,
    /// It is the same in all threads.
    Same,
    /// It can differ from thread to thread, whatever the operands are.
    Threads,
    /// The uniformity analysis has a special rule for it.
    Rule,
}

/// The functions that every family of ops has.
pub trait Family: Clone + PartialEq + fmt::Debug {
    /// The op's name in the text form.
    fn mnemonic(&self) -> &'static str;
    /// Whether it computes a value and does nothing else, so that it can be moved, shared and
    /// dropped.
    fn is_pure(&self) -> bool;
    /// Calls `visit` with every value among its fields (without those of nested blocks).
    fn operands(&self, visit: &mut dyn FnMut(Value));
    /// Replaces every value among its fields.
    fn map_operands(&mut self, map: &mut dyn FnMut(Value) -> Value);
    /// Appends its nested blocks.
    fn blocks<'a>(&'a self, out: &mut Vec<&'a Block>);
    /// Appends its nested blocks, for changes.
    fn blocks_mut<'a>(&'a mut self, out: &mut Vec<&'a mut Block>);
    /// The memory that it reads.
    fn reads(&self) -> Vec<AccessedMemory>;
    /// The memory that it writes.
    fn writes(&self) -> Vec<AccessedMemory>;
    /// Its memory order and those that it can have, if it has one.
    fn order(&self) -> Option<Order>;
    /// The threads that must all reach it, unless a single thread executes it.
    fn group(&self) -> Option<Group>;
    /// The teams that it names.
    fn teams(&self) -> Vec<TeamRef>;
    /// The name of the op in the source language.
    fn name(&self) -> Cow<'static, str>;
    /// The way in which its result differs between threads.
    fn spread(&self) -> Spread;
    /// The type of its result. `given` is the type of an op whose type does not follow from its
    /// operands (`convert`, `view`). Other ops ignore it.
    ///
    /// # Errors
    /// Fails if the operands, or a given type, do not fit the op.
    fn result_type<L: Level>(&self, k: &Kernel<L>, given: &L::Type) -> Result<L::Type, TypeError>;
    /// Appends the fields of the op to the text.
    fn print_fields<L: Level>(&self, p: &mut Printer<'_, L>);
    /// Reads its fields. The result is `None` if no op of the family has the mnemonic.
    fn read_fields<L: Level>(mnemonic: &str, r: &mut Reader<'_, L>) -> Option<Result<Self, ParseError>>;
}

/// A reference to an op of any family, for code that serves several levels.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum FamilyRef<'a> {
    /// Arithmetic on numbers and vectors.
    Arith(&'a Arith),
    /// Special registers, and synchronisation of threads.
    Thread(&'a Thread),
    /// Access to parameters and local variables.
    Var(&'a Var),
    /// Loops, branches and other control flow.
    Control(&'a Control),
    /// Messages and the end of a kernel with an error.
    Debug(&'a Debug),
    /// Operations that make views of tensors.
    View(&'a View),
    /// Ranks in a team, and barriers of a team.
    Team(&'a Team),
    /// Operations that access the elements of tensors.
    Access(&'a Access),
    /// Operations that threads carry out together.
    Together(&'a Together),
    /// Tiles that move asynchronously.
    Tile(&'a Tile),
    /// Operations that NVSHMEM carries out.
    Remote(&'a Remote),
    /// Operations that take the addresses of tensors.
    Bridge(&'a Bridge),
    /// Operations that compute with addresses.
    Address(&'a Address),
    /// Operations that access memory through addresses.
    Memory(&'a Memory),
    /// Asynchronous copies and their barriers.
    Async(&'a Async),
    /// Calls of library functions.
    Call(&'a Call),
}

/// Calls a method of [`Family`] on an op of any family.
macro_rules! each_family {
    ($self:expr, $op:ident => $result:expr) => {
        match $self {
            FamilyRef::Arith($op) => $result,
            FamilyRef::Thread($op) => $result,
            FamilyRef::Var($op) => $result,
            FamilyRef::Control($op) => $result,
            FamilyRef::Debug($op) => $result,
            FamilyRef::View($op) => $result,
            FamilyRef::Team($op) => $result,
            FamilyRef::Access($op) => $result,
            FamilyRef::Together($op) => $result,
            FamilyRef::Tile($op) => $result,
            FamilyRef::Remote($op) => $result,
            FamilyRef::Bridge($op) => $result,
            FamilyRef::Address($op) => $result,
            FamilyRef::Memory($op) => $result,
            FamilyRef::Async($op) => $result,
            FamilyRef::Call($op) => $result,
        }
    };
}

/// Declares the methods that ask whether an op is of one family.
macro_rules! family_accessors {
    ($($(#[$meta:meta])* $name:ident: $family:ident),* $(,)?) => {$(
        $(#[$meta])*
        fn $name(&self) -> Option<&$family> {
            if let FamilyRef::$family(op) = self.family() { Some(op) } else { None }
        }
    )*};
}

/// The op of a level.
pub trait Operation: Clone + PartialEq + fmt::Debug {
    /// The op as a reference by family.
    fn family(&self) -> FamilyRef<'_>;
    /// Calls `visit` with every value among its fields (without those of nested blocks).
    fn operands(&self, visit: &mut dyn FnMut(Value));
    /// Replaces every value among its fields.
    fn map_operands(&mut self, map: &mut dyn FnMut(Value) -> Value);
    /// The blocks that are nested in the op.
    fn blocks(&self) -> Vec<&Block>;
    /// The blocks that are nested in the op, for changes.
    fn blocks_mut(&mut self) -> Vec<&mut Block>;
    /// The type of its result. `given` is the type of an op whose type does not follow from its
    /// operands (`convert`, `view`). Other ops ignore it.
    ///
    /// # Errors
    /// Fails if the operands, or a given type, do not fit the op.
    fn result_type<L: Level>(&self, k: &Kernel<L>, given: &L::Type) -> Result<L::Type, TypeError>;
    /// Appends the fields of the op to the text.
    fn print_fields<L: Level>(&self, p: &mut Printer<'_, L>);
    /// Reads its fields. The result is `None` if the level has no op with that mnemonic.
    fn read_fields<L: Level>(mnemonic: &str, r: &mut Reader<'_, L>) -> Option<Result<Self, ParseError>>;

    /// The op's name in the text form.
    fn mnemonic(&self) -> &'static str {
        each_family!(self.family(), op => op.mnemonic())
    }

    /// Whether it computes a value and does nothing else, so that it can be moved, shared and
    /// dropped.
    fn is_pure(&self) -> bool {
        each_family!(self.family(), op => op.is_pure())
    }

    /// The memory that it reads.
    fn reads(&self) -> Vec<AccessedMemory> {
        each_family!(self.family(), op => op.reads())
    }

    /// The memory that it writes.
    fn writes(&self) -> Vec<AccessedMemory> {
        each_family!(self.family(), op => op.writes())
    }

    /// Its memory order and those that it can have, if it has one.
    fn order(&self) -> Option<Order> {
        each_family!(self.family(), op => op.order())
    }

    /// The threads that must all reach it, unless a single thread executes it.
    fn group(&self) -> Option<Group> {
        each_family!(self.family(), op => op.group())
    }

    /// The teams that it names.
    fn teams(&self) -> Vec<TeamRef> {
        each_family!(self.family(), op => op.teams())
    }

    /// The name of the op in the source language.
    fn name(&self) -> Cow<'static, str> {
        each_family!(self.family(), op => op.name())
    }

    /// The name of the op in messages: a word of the language in backticks, or a phrase.
    fn quoted_name(&self) -> String {
        let name = self.name();
        if name.contains(' ') { name.into_owned() } else { format!("`{name}`") }
    }

    /// The way in which its result differs between threads.
    fn spread(&self) -> Spread {
        each_family!(self.family(), op => op.spread())
    }

    family_accessors! {
        /// The op, if it is arithmetic.
        arith: Arith,
        /// The op, if it reads a special register or synchronises threads.
        thread: Thread,
        /// The op, if it accesses a parameter or variable.
        var: Var,
        /// The op, if it is control flow.
        control: Control,
        /// The op, if it prints a message or ends the kernel.
        debug: Debug,
        /// The op, if it is a view of a tensor.
        view: View,
        /// The op, if it concerns a team.
        team: Team,
        /// The op, if it is an access to a tensor.
        access: Access,
        /// The op, if threads execute it together.
        together: Together,
        /// The op, if it moves tiles or belongs to a pipeline.
        tile: Tile,
        /// The op, if it is one of NVSHMEM's operations.
        remote: Remote,
        /// The op, if it is arithmetic on addresses.
        address: Address,
        /// The op, if it is a call.
        call: Call,
    }
}

level_ops! {
    /// An operation at the tensor level.
    tensor:
    /// Arithmetic on numbers and vectors.
    Arith,
    /// Special registers, and synchronisation of threads.
    Thread,
    /// Accesses to parameters and variables.
    Var,
    /// Loops, branches and other control flow.
    Control,
    /// Messages and the end of a kernel with an error.
    Debug,
    /// Operations that make views of tensors.
    View,
    /// Ranks in a team, and barriers of a team.
    Team,
    /// Accesses to the elements of tensors.
    Access,
    /// Operations that threads carry out together.
    Together,
    /// Tiles that move asynchronously.
    Tile,
    /// Operations that NVSHMEM carries out.
    Remote,
}

level_ops! {
    /// An operation at the machine level.
    machine:
    /// Arithmetic on numbers and vectors.
    Arith,
    /// Special registers, and synchronisation of threads.
    Thread,
    /// Accesses to parameters and variables.
    Var,
    /// Loops, branches and other control flow.
    Control,
    /// Messages and the end of a kernel with an error.
    Debug,
    /// Arithmetic on addresses.
    Address,
    /// Accesses to memory through addresses.
    Memory,
    /// Asynchronous copies and their barriers.
    Async,
    /// Calls of library functions.
    Call,
}

level_ops! {
    /// An operation of a kernel that passes lower.
    mixed:
    /// Arithmetic on numbers and vectors.
    Arith,
    /// Special registers, and synchronisation of threads.
    Thread,
    /// Accesses to parameters and variables.
    Var,
    /// Loops, branches and other control flow.
    Control,
    /// Messages and the end of a kernel with an error.
    Debug,
    /// Operations that make views of tensors.
    View,
    /// Ranks in a team, and barriers of a team.
    Team,
    /// Accesses to the elements of tensors.
    Access,
    /// Operations that threads carry out together.
    Together,
    /// Tiles that move asynchronously.
    Tile,
    /// Operations that NVSHMEM carries out.
    Remote,
    /// Operations that take the addresses of tensors.
    Bridge,
    /// Arithmetic on addresses.
    Address,
    /// Accesses to memory through addresses.
    Memory,
    /// Asynchronous copies and their barriers.
    Async,
    /// Calls of library functions.
    Call,
}

impl From<tensor::Op> for mixed::Op {
    fn from(op: tensor::Op) -> mixed::Op {
        match op {
            tensor::Op::Arith(op) => op.into(),
            tensor::Op::Thread(op) => op.into(),
            tensor::Op::Var(op) => op.into(),
            tensor::Op::Control(op) => op.into(),
            tensor::Op::Debug(op) => op.into(),
            tensor::Op::View(op) => op.into(),
            tensor::Op::Team(op) => op.into(),
            tensor::Op::Access(op) => op.into(),
            tensor::Op::Together(op) => op.into(),
            tensor::Op::Tile(op) => op.into(),
            tensor::Op::Remote(op) => op.into(),
        }
    }
}
