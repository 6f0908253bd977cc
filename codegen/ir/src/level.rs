//! The levels of the IR.
//!
//! A kernel is written at the [`Tensor`] level: tensors, layouts, views, teams, reductions, remote
//! operations. The back end takes the [`Machine`] level: pointers, numbers, registers. The levels
//! are different types, so a kernel of one cannot be passed where the other is expected. [`Mixed`]
//! holds the ops of both. Only the passes use it, because they replace one level by the other step
//! by step.
//!
//! Code that serves several levels (builder, printer, reader, verifier, analyses) is generic over
//! [`Level`].

use crate::diag::Diagnostic;
use crate::flight;
use crate::head::{self, MachineHead, TensorHead};
use crate::kernel::Kernel;
use crate::names::Dim;
use crate::op::{
    self, Access, Arith, Control, Debug, Operation, Remote, Team, Thread, Tile, Together, Var, View,
};
use crate::ordering;
use crate::reuse;
use crate::text::{ParseError, Printer, Reader};
use crate::trips;
use crate::types::{self, TensorType, ValueType};
use std::fmt;

/// A level of the IR.
pub trait Level: Copy + PartialEq + fmt::Debug + 'static {
    /// The operations of the level.
    type Op: Operation + From<Arith> + From<Thread> + From<Var> + From<Control> + From<Debug>;
    /// The types of the level's values.
    type Type: ValueType;
    /// The attributes of its kernels' heads besides name and block.
    type Head: Head<Self>;
    /// The name of the level in messages.
    const NAME: &'static str;

    /// Reports violations of rules that only this level has.
    fn check(_: &Kernel<Self>, _: &mut Vec<Diagnostic>) {}
}

/// The part of a kernel's head that differs between levels: its parameters and its grid.
pub trait Head<L: Level<Head = Self>>: Clone + PartialEq + fmt::Debug + Default {
    /// The type of the parameter at `index`.
    fn param(&self, index: u32) -> Option<&L::Type>;
    /// The parameter's name in the text.
    fn param_name(&self, index: u32) -> Option<&str>;
    /// The least value, the greatest value and a divisor of the integer parameter at `index`.
    fn range(&self, index: u32) -> (i64, Option<i64>, i64);
    /// The number of CTAs of the grid in a dimension, if it is a constant.
    fn ctas(&self, dim: Dim) -> Option<i64>;
    /// Whether the parameter at `index` is a team.
    fn is_team(&self, index: u32) -> bool;
    /// Appends the text between the block and the opening brace.
    fn print_attributes(&self, p: &mut Printer<'_, L>);
    /// Appends the lines of the parameters.
    fn print_params(&self, p: &mut Printer<'_, L>);
    /// Reads what [`print_attributes`](Head::print_attributes) wrote.
    ///
    /// # Errors
    /// Fails if the text is not one that the printer writes.
    fn read_attributes(r: &mut Reader<'_, L>) -> Result<(), ParseError>;
    /// Reads what [`print_params`](Head::print_params) wrote.
    ///
    /// # Errors
    /// Fails if the text is not one that the printer writes.
    fn read_params(r: &mut Reader<'_, L>) -> Result<(), ParseError>;
    /// Reports errors in the head of `k`.
    fn check(k: &Kernel<L>, found: &mut Vec<Diagnostic>);
}

/// A level that has tensors.
pub trait TensorLevel:
    Level<
        Head = TensorHead<Self>,
        Op: From<View> + From<Team> + From<Access> + From<Together> + From<Tile> + From<Remote>,
        Type: From<TensorType>,
    >
{
}

impl TensorLevel for Tensor {}
impl TensorLevel for Mixed {}

/// The level of tensors, layouts, views, teams, reductions and remote operations.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tensor;

/// The level of pointers, numbers and registers, from which LLVM code is generated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Machine;

/// The ops and types of both levels, for a kernel that passes are lowering.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mixed;

impl Level for Tensor {
    type Op = op::tensor::Op;
    type Type = types::tensor::Type;
    type Head = TensorHead<Tensor>;
    const NAME: &'static str = "tensor";

    fn check(k: &Kernel<Tensor>, found: &mut Vec<Diagnostic>) {
        head::all_given(k, found);
        ordering::check(k, found);
        flight::check(k, found);
        reuse::check(k, found);
        trips::check(k, found);
    }
}

impl Level for Machine {
    type Op = op::machine::Op;
    type Type = types::machine::Type;
    type Head = MachineHead;
    const NAME: &'static str = "machine";
}

impl Level for Mixed {
    type Op = op::mixed::Op;
    type Type = types::mixed::Type;
    type Head = TensorHead<Mixed>;
    const NAME: &'static str = "mixed";
}
