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

use crate::diag::{Diagnostic, Span};
use crate::head::{MachineParam, Param, ParamKind};
use crate::kernel::{Block, Induction, Inst, Kernel, Local, LocalId, TeamRef, Value};
use crate::level::{Level, Machine, Tensor, TensorLevel};
use crate::names::{BinOp, CmpOp, Dim, NumberKind, RedOp, Scalar, Scope, Sem, Space, Sreg, UnOp};
use crate::op::{self, Access, Arith, Constant, Control, Memory, Operation, Thread, Var, View};
use crate::types::{Bound, TensorType, TypeRef, ValueType, machine};
use crate::typing;
use weft_layout::{Int, Layout, Swizzle};

/// A result whose error is a diagnostic with a place and a help.
pub type Built<T> = Result<T, Diagnostic>;

/// The known bounds and divisor of a loop variable's values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Range {
    /// The least value of the variable.
    pub min: i64,
    /// The greatest value of the variable, if it is known.
    pub max: Option<i64>,
    /// A divisor of all values of the variable.
    pub div: i64,
}

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

    // ---- arithmetic -------------------------------------------------------------------------------------

    /// Appends an integer literal of type `ty`.
    pub fn int(&mut self, ty: Scalar, n: i64) -> Built<Value> {
        self.emit_as(Arith::Const { value: Constant::Int(n) }, L::Type::scalar(ty))
    }

    /// Appends a floating-point literal of type `ty`.
    pub fn float(&mut self, ty: Scalar, x: f64) -> Built<Value> {
        self.emit_as(Arith::Const { value: Constant::Float(x) }, L::Type::scalar(ty))
    }

    /// Appends the number 0 (or `false`) of a scalar or vector type.
    pub fn zero(&mut self, ty: &L::Type) -> Built<Value> {
        let elem = ty.elem().unwrap_or(Scalar::I32);
        let value = match elem.kind() {
            NumberKind::Bool => Constant::Bool(false),
            NumberKind::Float => Constant::Float(0.0),
            _ => Constant::Int(0),
        };
        let scalar = self.emit_as(Arith::Const { value }, L::Type::scalar(elem))?;
        self.splat(scalar, ty)
    }

    /// Appends a vector of type `ty` with `a` in all lanes. If `ty` is a scalar, the result is `a`.
    pub fn splat(&mut self, a: Value, ty: &L::Type) -> Built<Value> {
        match ty.view() {
            TypeRef::Vector(..) => self.emit_as(Arith::Splat { a }, ty.clone()),
            _ => Ok(a),
        }
    }

    /// An `i32` or `i64` as a symbol for layouts and offsets.
    pub fn symbol(&self, v: Value) -> Built<Int> {
        self.kernel.symbol(v).ok_or_else(|| {
            let message = format!("expected an i32 or i64, found {}", self.kernel.ty(v));
            Diagnostic::error(typing::MISMATCH, self.span, message)
        })
    }

    /// Appends a read of component `dim` of a special register.
    pub fn special(&mut self, reg: Sreg, dim: Dim) -> Built<Value> {
        self.emit(Thread::Special { reg, dim })
    }

    /// Appends an elementwise operation with one operand.
    pub fn unary(&mut self, op: UnOp, a: Value) -> Built<Value> {
        self.emit(Arith::Unary { op, a })
    }

    /// Appends an elementwise operation with two operands.
    pub fn binary(&mut self, op: BinOp, a: Value, b: Value) -> Built<Value> {
        self.emit(Arith::Binary { op, a, b })
    }

    /// Appends an elementwise comparison of `a` and `b`.
    pub fn compare(&mut self, op: CmpOp, a: Value, b: Value) -> Built<Value> {
        self.emit(Arith::Compare { op, a, b })
    }

    /// Appends a selection, written `c ? a : b` in C.
    pub fn select(&mut self, c: Value, a: Value, b: Value) -> Built<Value> {
        self.emit(Arith::Select { c, a, b })
    }

    /// Appends a conversion of each lane to `to`, unless `a` already has that type.
    pub fn convert(&mut self, a: Value, to: Scalar) -> Built<Value> {
        if self.ty(a).elem() == Some(to) {
            return Ok(a);
        }
        let ty = self.ty(a).with_elem(to);
        self.emit_as(Arith::Convert { a }, ty)
    }

    // ---- locals and control -----------------------------------------------------------------------------

    /// Reads a local variable.
    pub fn get(&mut self, local: LocalId) -> Built<Value> {
        self.emit(Var::LocalGet { local })
    }

    /// Writes a local variable.
    pub fn set(&mut self, local: LocalId, value: Value) -> Built<Value> {
        self.emit(Var::LocalSet { local, value })
    }

    /// Appends an `if` that runs `then` if `cond` is true, and `otherwise` if it is false.
    pub fn if_else(
        &mut self,
        cond: Value,
        then: impl FnOnce(&mut Builder<L>) -> Built<()>,
        otherwise: impl FnOnce(&mut Builder<L>) -> Built<()>,
    ) -> Built<Value> {
        let span = self.span;
        let then = self.nested(then)?;
        let otherwise = self.nested(otherwise)?;
        self.span = span;
        self.emit(Control::If { cond, then, otherwise })
    }

    /// Appends an `if` that runs `then` if `cond` is true.
    pub fn if_true(&mut self, cond: Value, then: impl FnOnce(&mut Builder<L>) -> Built<()>) -> Built<Value> {
        self.if_else(cond, then, |_| Ok(()))
    }

    /// Appends `for var in lo..hi step step` with unroll factor `unroll` (0 unrolls completely).
    /// `range` states what is known of `var`.
    pub fn for_loop(
        &mut self,
        (lo, hi, step): (Value, Value, Value),
        unroll: u32,
        range: Range,
        body: impl FnOnce(&mut Builder<L>, Value) -> Built<()>,
    ) -> Built<Value> {
        let span = self.span;
        let op = Var::LoopVar { min: range.min, max: range.max.unwrap_or(i64::MAX), div: range.div };
        let var = self.detached(op, L::Type::scalar(Scalar::I64));
        let body = self.nested(|b| body(b, var))?;
        self.span = span;
        self.emit(Control::For { var: Induction(var), lo, hi, step, unroll, body })
    }

    /// Appends the loop `while head() { body() }`.
    pub fn while_loop(
        &mut self,
        head: impl FnOnce(&mut Builder<L>) -> Built<Value>,
        body: impl FnOnce(&mut Builder<L>) -> Built<()>,
    ) -> Built<Value> {
        let span = self.span;
        self.open();
        let cond = head(self);
        let head = self.close();
        let cond = cond?;
        let body = self.nested(body)?;
        self.span = span;
        self.emit(Control::While { head, cond, body })
    }

    /// Collects the ops that `f` adds in a block of their own.
    pub fn nested(&mut self, f: impl FnOnce(&mut Builder<L>) -> Built<()>) -> Built<Block> {
        self.open();
        let result = f(self);
        let block = self.close();
        result.map(|()| block)
    }
}

/// Methods for kernels with tensors.
impl<L: TensorLevel> Builder<L> {
    /// A tensor type without bounds.
    pub fn tensor(elem: Scalar, space: Space, layout: Layout, align: u32) -> L::Type {
        TensorType { elem, layout, swizzle: None, space, align, bounds: Vec::new() }.into()
    }

    /// Adds a run-time parameter. Parameters come before all other ops. An integer parameter is
    /// positive, as extents are.
    pub fn param(&mut self, name: &str, ty: L::Type) -> Built<Value> {
        self.param_of(name, ty, ParamKind::User, 1)
    }

    /// Adds a parameter whose argument comes from `kind`. An integer is a positive multiple of
    /// `div`, or any integer if `div` is 0.
    pub fn param_of(&mut self, name: &str, ty: L::Type, kind: ParamKind, div: i64) -> Built<Value> {
        let params = &mut self.kernel.head.params;
        let index = u32::try_from(params.len()).unwrap_or(u32::MAX);
        params.push(Param { name: name.into(), ty, kind, div, role: None, span: self.span });
        self.emit(Var::Param { index })
    }

    /// Appends a symbolic integer as an `i64`.
    pub fn index(&mut self, expr: impl Into<Int>) -> Built<Value> {
        self.emit(View::Index { expr: expr.into() })
    }

    /// Appends a view of a part of `base` that starts at element `offset` and has layout `layout`.
    /// The alignment follows from the offset.
    pub fn view(&mut self, base: Value, offset: Int, layout: Layout, bounds: Vec<Bound>) -> Built<Value> {
        let Some(t) = self.ty(base).tensor().cloned() else {
            let message = format!("expected a tensor, found {}", self.ty(base));
            return Err(Diagnostic::error(typing::MISMATCH, self.span, message));
        };
        let ty = part_of(&t, &offset, layout, bounds);
        self.emit_as(View::Part { base, offset }, ty.into())
    }

    /// Appends a [`view`](Self::view) of the elements that a thread has of a tile which `over`
    /// warpgroups divide as an accumulator.
    pub fn dealt(
        &mut self,
        base: Value,
        offset: Int,
        layout: Layout,
        bounds: Vec<Bound>,
        over: [u32; 2],
    ) -> Built<Value> {
        let Some(t) = self.ty(base).tensor().cloned() else {
            let message = format!("expected a tensor, found {}", self.ty(base));
            return Err(Diagnostic::error(typing::MISMATCH, self.span, message));
        };
        let ty = part_of(&t, &offset, layout, bounds);
        self.emit_as(View::Dealt { base, offset, over: over.into() }, ty.into())
    }

    /// Appends a view with the same layout at the team's multicast address.
    pub fn multicast(&mut self, base: Value, team: TeamRef) -> Built<Value> {
        self.emit(View::Multicast { base, team })
    }

    /// Appends a view with the same layout in the memory of rank `pe`.
    pub fn peer(&mut self, base: Value, team: TeamRef, pe: Value) -> Built<Value> {
        self.emit(View::Peer { base, team, pe })
    }

    /// Appends a tensor in the CTA's shared memory. A swizzled tensor is aligned to the period of
    /// its swizzle.
    pub fn shared(&mut self, elem: Scalar, layout: Layout, swizzle: Option<Swizzle>) -> Built<Value> {
        let op = View::Shared { name: "".into() };
        // The pattern of a swizzle repeats after 8 of its rows (PTX ISA, Swizzling Modes).
        let align = swizzle.map_or(16, |s| 8 * (16 << s.bits().min(3)));
        let ty = TensorType { elem, layout, swizzle, space: Space::Shared, align, bounds: Vec::new() };
        self.emit_as(op, ty.into())
    }

    /// Appends a weak load of a tensor's elements.
    pub fn load(&mut self, place: Value) -> Built<Value> {
        self.emit(Access::Load { place, sem: Sem::Weak, scope: Scope::Sys })
    }

    /// Appends a weak store of a tensor's elements.
    pub fn store(&mut self, place: Value, value: Value) -> Built<Value> {
        self.emit(Access::Store { place, value, sem: Sem::Weak, scope: Scope::Sys })
    }

    /// Appends a `multimem.ld_reduce.relaxed.sys` from `place`.
    pub fn ld_reduce(&mut self, place: Value, op: RedOp, acc: Scalar) -> Built<Value> {
        self.emit(Access::LdReduce { place, op, acc, sem: Sem::Relaxed, scope: Scope::Sys })
    }

    /// Appends a `multimem.st.relaxed.sys` of `value` to `place`.
    pub fn mc_store(&mut self, place: Value, value: Value) -> Built<Value> {
        self.emit(Access::McStore { place, value, sem: Sem::Relaxed, scope: Scope::Sys })
    }
}

impl Builder<Tensor> {
    /// Gives a name to a tensor in shared memory that has none.
    pub fn name_shared(&mut self, tensor: Value, text: &str) {
        if let op::tensor::Op::View(View::Shared { name }) = &mut self.kernel.insts[tensor].op
            && name.is_empty()
        {
            *name = text.into();
        }
    }
}

impl Builder<Machine> {
    /// Adds a parameter that is a number, or an address of which nothing is known.
    pub fn param(&mut self, name: &str, ty: machine::Type) -> Built<Value> {
        self.add(name, ty, 1)
    }

    /// Adds a parameter that is an address and a multiple of `align` bytes.
    pub fn pointer_param(&mut self, name: &str, space: Space, align: u32) -> Built<Value> {
        self.add(name, machine::Type::Pointer(space), align)
    }

    /// Appends a weak load of a value of type `ty`.
    pub fn load(&mut self, ptr: Value, ty: machine::Type) -> Built<Value> {
        self.emit_as(Memory::Load { ptr, sem: Sem::Weak, scope: Scope::Sys }, ty)
    }

    /// Appends a weak store of a value.
    pub fn store(&mut self, ptr: Value, value: Value) -> Built<Value> {
        self.emit(Memory::Store { ptr, value, sem: Sem::Weak, scope: Scope::Sys })
    }

    /// Appends a `multimem.st.relaxed.sys` of `value` to the address `ptr`.
    pub fn mc_store(&mut self, ptr: Value, value: Value) -> Built<Value> {
        self.emit(Memory::McStore { ptr, value, sem: Sem::Relaxed, scope: Scope::Sys })
    }

    fn add(&mut self, name: &str, ty: machine::Type, align: u32) -> Built<Value> {
        let params = &mut self.kernel.head.params;
        let index = u32::try_from(params.len()).unwrap_or(u32::MAX);
        params.push(MachineParam { name: name.into(), ty, align, source: index, span: self.span });
        self.emit(Var::Param { index })
    }
}

/// The type of a part of a tensor. The alignment follows from the offset.
fn part_of(t: &TensorType, offset: &Int, layout: Layout, bounds: Vec<Bound>) -> TensorType {
    let align = aligned(t.align, offset, t.elem.bytes());
    TensorType { elem: t.elem, layout, swizzle: t.swizzle, space: t.space, align, bounds }
}

/// The alignment in bytes of an address that lies `offset` elements of `bytes` bytes after an
/// address aligned to `align`.
pub fn aligned(align: u32, offset: &Int, bytes: u32) -> u32 {
    let step = offset.divisor().checked_mul(i64::from(bytes)).unwrap_or(0);
    let twos = if step == 0 { u32::BITS - 1 } else { step.trailing_zeros().min(u32::BITS - 1) };
    align.min(1 << twos)
}
