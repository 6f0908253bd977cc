//! Makes kernels. Every method checks the op's typing rule at once; [`verify`](crate::verify::verify) checks the whole.
//!
//! ```
//! use weft_ir::*;
//! let mut b = Builder::new("double", [256, 1, 1]);
//! let x = b.param("x", Builder::tensor(Scalar::F32, Space::Global, Layout::new(1024, 1)?, 16))?;
//! let tid = b.special(Sreg::ThreadIdx, Dim::X)?;
//! let at = b.symbol(tid)?;
//! let mine = b.view(x, at * Int::from(4), Layout::new(4, 1)?, vec![])?;
//! let v = b.load(mine)?;
//! let twice = b.binary(BinOp::Add, v, v)?;
//! b.store(mine, twice)?;
//! let module = Module { kernels: vec![b.finish()], ..Module::default() };
//! assert!(verify::verify(module).is_ok());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod access;
mod arith;
mod control;
mod machine;
mod matrix;
mod remote;
mod tensor;
mod threads;
mod tile;

pub use control::Range;
pub use remote::{Rank, Signal};
pub use tensor::{aligned, moved, sliced};
pub use tile::{Ctas, PlacedTile};

use crate::diag::{Diagnostic, Span};
use crate::kernel::{Block, Inst, Kernel, Local, LocalId, Value};
use crate::level::Level;
use crate::op::Operation;
use crate::types::ValueType;

/// A result whose error is a diagnostic with a place and a help.
pub type Built<T> = Result<T, Diagnostic>;

/// A kernel under construction.
#[derive(Debug)]
pub struct Builder<L: Level> {
    kernel: Kernel<L>,
    /// The blocks that are open, outermost first.
    open: Vec<Block>,
    span: Span,
}

impl<L: Level> Builder<L> {
    /// Begins a kernel of `block` threads per CTA.
    pub fn new(name: &str, block: [u32; 3]) -> Builder<L> {
        let mut kernel = Kernel::new(name);
        kernel.block = block;
        Builder { kernel, open: vec![Block::default()], span: Span::NONE }
    }

    /// Continues a kernel whose code has been taken out, for example by a pass that rewrites it.
    /// Returns the builder and the old code.
    pub fn edit(mut kernel: Kernel<L>) -> (Builder<L>, Block) {
        let body = std::mem::take(&mut kernel.body);
        (Builder { kernel, open: vec![Block::default()], span: Span::NONE }, body)
    }

    /// The kernel that has been built so far.
    pub fn kernel(&self) -> &Kernel<L> {
        &self.kernel
    }

    /// The kernel that has been built so far, for changes of its head.
    pub fn kernel_mut(&mut self) -> &mut Kernel<L> {
        &mut self.kernel
    }

    /// Closes the builder and returns the finished kernel.
    pub fn finish(mut self) -> Kernel<L> {
        self.kernel.body = self.open.into_iter().next().unwrap_or_default();
        self.kernel
    }

    /// Sets the source text of the ops that follow.
    pub fn at(&mut self, span: Span) {
        self.span = span;
    }

    /// The type of a value.
    pub fn ty(&self, v: Value) -> &L::Type {
        self.kernel.ty(v)
    }

    /// Appends an op. `given` is the type of an op whose type does not follow from its operands (`convert`, `view`).
    ///
    /// # Errors
    /// Fails if the op's typing rule does not accept the operands.
    pub fn emit_as(&mut self, op: impl Into<L::Op>, given: L::Type) -> Built<Value> {
        let op = op.into();
        let ty = op.result_type(&self.kernel, &given).map_err(|e| {
            let mut d = Diagnostic::error(e.code, self.span, e.message);
            d.help = e.help;
            d
        })?;
        let v = self.kernel.insts.push(Inst { op, ty, span: self.span });
        self.push(v);
        Ok(v)
    }

    /// Appends an op whose type follows from its operands.
    ///
    /// # Errors
    /// Fails if the op's typing rule does not accept the operands.
    pub fn emit(&mut self, op: impl Into<L::Op>) -> Built<Value> {
        self.emit_as(op, L::Type::unit())
    }

    /// Appends an existing instruction to the open block.
    pub fn push(&mut self, v: Value) {
        if let Some(block) = self.open.last_mut() {
            block.0.push(v);
        }
    }

    /// Makes an instruction that is in no block, such as the variable of a loop.
    pub fn detached(&mut self, op: impl Into<L::Op>, ty: L::Type) -> Value {
        self.kernel.insts.push(Inst { op: op.into(), ty, span: self.span })
    }

    /// Opens a nested block.
    pub fn open(&mut self) {
        self.open.push(Block::default());
    }

    /// Closes the innermost nested block.
    pub fn close(&mut self) -> Block {
        if self.open.len() > 1 { self.open.pop().unwrap_or_default() } else { Block::default() }
    }

    /// Declares a local variable.
    pub fn local(&mut self, name: &str, ty: L::Type) -> LocalId {
        self.kernel.locals.push(Local { name: name.into(), ty })
    }
}
