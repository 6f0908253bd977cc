//! A framework for passes that rewrite a kernel op by op.

use rustc_hash::FxHashMap;
use weft_ir::builder::Built;
use weft_ir::diag::Diagnostic;
use weft_ir::kernel::Induction;
use weft_ir::mixed::{Builder, Inst, Kernel, Op, Type};
use weft_ir::{
    Address, Arith, BinOp, Block, CmpOp, Constant, Control, Debug, Int, Operation, RedOp, Scalar, Space,
};
use weft_ir::{Value, ValueType, Var, View};

/// The treatment of an op by a pass.
pub(crate) enum Action {
    /// The op stays, and the ops in its blocks are visited.
    Keep,
    /// Another value replaces the op.
    Become(Value),
    /// The op is removed.
    Drop,
}

/// A pass as a function of a single op.
pub(crate) trait Rewrite {
    /// Emits the replacement of `v`, whose operands have been renamed already.
    fn op(&mut self, e: &mut Editor, v: Value) -> Built<Action>;
    /// Is called at the beginning of a nested block.
    fn enter(&mut self) {}
    /// Is called at the end of a nested block.
    fn leave(&mut self) {}
}

/// A kernel that is being rewritten.
pub(crate) struct Editor {
    /// The builder to which new ops are added.
    pub b: Builder,
    renamed: FxHashMap<Value, Value>,
    prologue: Vec<Value>,
    errors: Vec<Diagnostic>,
    /// The first thread of the role whose code is visited, or `None` outside of roles.
    role: Option<u32>,
    /// The threads of a CTA, including those of all roles.
    whole: [u32; 3],
}

/// Visits every op of a kernel. All errors are reported at once.
pub(crate) fn rewrite(kernel: Kernel, pass: &mut dyn Rewrite) -> Result<Kernel, Vec<Diagnostic>> {
    let (b, body) = Builder::edit(kernel);
    let whole = b.kernel().block;
    let (renamed, prologue, errors) = (FxHashMap::default(), Vec::new(), Vec::new());
    let mut e = Editor { b, renamed, prologue, errors, role: None, whole };
    e.block(&body, pass);
    if !e.errors.is_empty() {
        return Err(e.errors);
    }
    let mut kernel = e.b.finish();
    kernel.body.0.splice(0..0, e.prologue);
    Ok(kernel)
}

impl Editor {
    /// The first thread of the role whose code is visited, or `None` outside of roles.
    pub fn role(&self) -> Option<u32> {
        self.role
    }

    /// The threads of a CTA, even if a role is visited.
    pub fn whole(&self) -> [u32; 3] {
        self.whole
    }

    /// The op that computes a value.
    pub fn op(&self, v: Value) -> Op {
        self.b.kernel().op(v).clone()
    }

    /// An expression in which values are replaced by the values that took their place.
    pub fn current(&self, e: &Int) -> Int {
        e.subst(&mut |x| self.renamed_symbol(x))
    }

    /// The symbol that replaces `x`, if there is one.
    fn renamed_symbol(&self, x: &weft_layout::Var) -> Option<Int> {
        let to = self.renamed.get(&Value(x.id))?;
        Some(Int::var(weft_layout::Var { id: to.0, name: to.to_string().into(), ..x.clone() }))
    }

    /// Emits ops at the start of the kernel, where all code can use them.
    pub fn prologue<T>(&mut self, f: impl FnOnce(&mut Builder) -> Built<T>) -> Built<T> {
        self.b.open();
        let result = f(&mut self.b);
        self.prologue.extend(self.b.close().0);
        result
    }

    /// Replaces `old` by `new` in the ops at the start of the kernel.
    pub fn retire(&mut self, old: Value, new: Value) {
        self.prologue.iter_mut().filter(|v| **v == old).for_each(|v| *v = new);
    }

    /// Visits the ops of a block, which are added to the open block.
    pub fn block(&mut self, block: &Block, pass: &mut dyn Rewrite) {
        for &v in &block.0 {
            if self.b.kernel().insts.get(v).is_some() {
                self.inst(v, pass);
            }
        }
    }

    fn inst(&mut self, v: Value, pass: &mut dyn Rewrite) {
        self.b.at(self.b.kernel().insts[v].span);
        self.rename(v);
        let action = pass.op(self, v).unwrap_or_else(|d| {
            self.errors.push(d);
            Action::Keep
        });
        match action {
            Action::Drop => {}
            Action::Become(to) => {
                self.renamed.insert(v, to);
            }
            Action::Keep => {
                self.nested(v, pass);
                // The condition of a while loop is computed in its head, so it is renamed only now.
                self.rename(v);
                self.b.push(v);
            }
        }
    }

    fn nested(&mut self, v: Value, pass: &mut dyn Rewrite) {
        if self.b.kernel().op(v).blocks().is_empty() {
            return;
        }
        let mut op = std::mem::replace(&mut self.b.kernel_mut().insts[v].op, Debug::Trap {}.into());
        // Within a role, the role takes the place of the CTA.
        let outside = (self.b.kernel().block, self.role);
        if let Some(Control::Role { first, threads, .. }) = op.control() {
            self.b.kernel_mut().block = [*threads, 1, 1];
            self.role = Some(*first);
        }
        for block in op.blocks_mut() {
            self.b.open();
            pass.enter();
            self.block(&std::mem::take(block), pass);
            pass.leave();
            *block = self.b.close();
        }
        (self.b.kernel_mut().block, self.role) = outside;
        self.b.kernel_mut().insts[v].op = op;
    }

    fn rename(&mut self, v: Value) {
        if self.renamed.is_empty() {
            return;
        }
        let mut affected = false;
        self.b.kernel().op(v).operands(&mut |x| affected |= self.renamed.contains_key(&x));
        if affected {
            let renamed = &self.renamed;
            let op = &mut self.b.kernel_mut().insts[v].op;
            op.map_operands(&mut |x| renamed.get(&x).copied().unwrap_or(x));
        }
        self.rename_type(v);
    }
}

impl Editor {
    /// Renames the symbols in the layout and the bounds of a tensor.
    fn rename_type(&mut self, v: Value) {
        let Some(ty) = self.b.ty(v).tensor().cloned() else { return };
        let mut affected = false;
        ty.vars(&mut |x| affected |= self.renamed.contains_key(&Value(x.id)));
        if !affected {
            return;
        }
        // Renaming symbols does not change the layout otherwise.
        if let Ok(ty) = ty.subst(&mut |x| self.renamed_symbol(x)) {
            self.b.kernel_mut().insts[v].ty = Type::Tensor(std::sync::Arc::new(ty));
        }
    }
}

/// The ops that `f` emits, as a block.
pub(crate) fn nested(e: &mut Editor, f: impl FnOnce(&mut Editor) -> Built<()>) -> Built<Block> {
    e.b.open();
    let result = f(e);
    let block = e.b.close();
    result.map(|()| block)
}

/// Sequences of ops that passes emit often.
pub(crate) trait Emit {
    /// Emits an `i64` literal.
    fn i64(&mut self, n: i64) -> Built<Value>;
    /// Emits an integer literal of 32 bits.
    fn i32(&mut self, n: i64) -> Built<Value>;
    /// Emits `a < b`.
    fn less(&mut self, a: &Int, b: &Int) -> Built<Value>;
    /// Emits the conjunction of conditions. The result is `None` if there are none.
    fn all(&mut self, conditions: Vec<Value>) -> Built<Option<Value>>;
    /// Emits the address `bytes` bytes after `ptr`.
    fn offset(&mut self, ptr: Value, bytes: &Int) -> Built<Value>;
    /// Emits an address from the bits of an integer of 64 bits.
    fn address(&mut self, bits: Value, space: Space) -> Built<Value>;
    /// Makes a loop variable within `min..=max`.
    fn loop_var(&mut self, min: i64, max: i64, div: i64) -> Value;
    /// Emits a loop over `var` with the given range and unroll factor.
    fn rounds(&mut self, var: Value, range: [Value; 3], unroll: u32, body: Block) -> Built<Value>;
    /// Emits `a op b`.
    fn combine(&mut self, op: RedOp, a: Value, b: Value) -> Built<Value>;
}

impl Emit for Builder {
    fn i64(&mut self, n: i64) -> Built<Value> {
        self.int(Scalar::I64, n)
    }

    fn i32(&mut self, n: i64) -> Built<Value> {
        self.int(Scalar::I32, n)
    }

    fn less(&mut self, a: &Int, b: &Int) -> Built<Value> {
        let a = self.index(a.clone())?;
        let b = self.index(b.clone())?;
        self.compare(CmpOp::Lt, a, b)
    }

    fn all(&mut self, conditions: Vec<Value>) -> Built<Option<Value>> {
        let mut all = None;
        for c in conditions {
            all = Some(match all {
                None => c,
                Some(before) => self.binary(BinOp::And, before, c)?,
            });
        }
        Ok(all)
    }

    fn offset(&mut self, ptr: Value, bytes: &Int) -> Built<Value> {
        if bytes.is(0) && matches!(self.ty(ptr), Type::Pointer(_)) {
            return Ok(ptr);
        }
        let bytes = match bytes.as_const() {
            Some(n) => self.i64(n)?,
            None => self.index(bytes.clone())?,
        };
        self.emit(Address::PtrAdd { ptr, bytes })
    }

    fn address(&mut self, bits: Value, space: Space) -> Built<Value> {
        let a = match self.ty(bits) {
            Type::Scalar(Scalar::I64) => bits,
            _ => self.emit_as(Arith::Bitcast { a: bits }, Type::Scalar(Scalar::I64))?,
        };
        self.emit_as(Address::FromInt { a }, Type::Pointer(space))
    }

    fn loop_var(&mut self, min: i64, max: i64, div: i64) -> Value {
        let op = Var::LoopVar { min, max, div }.into();
        let span = weft_ir::diag::Span::NONE;
        self.kernel_mut().insts.push(Inst { op, ty: Type::Scalar(Scalar::I64), span })
    }

    fn rounds(&mut self, var: Value, [lo, hi, step]: [Value; 3], unroll: u32, body: Block) -> Built<Value> {
        self.emit(Control::For { var: Induction(var), lo, hi, step, unroll, body })
    }

    fn combine(&mut self, op: RedOp, a: Value, b: Value) -> Built<Value> {
        let op = match op {
            RedOp::Add => BinOp::Add,
            RedOp::Mul => BinOp::Mul,
            RedOp::Min => BinOp::Min,
            RedOp::Max => BinOp::Max,
            RedOp::And => BinOp::And,
            RedOp::Or => BinOp::Or,
            RedOp::Xor => BinOp::Xor,
        };
        self.binary(op, a, b)
    }
}

/// The number of a value, if it is a constant.
pub(crate) fn constant(k: &Kernel, v: Value) -> Option<i64> {
    let op = k.op(v);
    if let Some(Arith::Const { value: Constant::Int(n) }) = op.arith() {
        return Some(*n);
    }
    if let Some(View::Index { expr }) = op.view() { expr.as_const() } else { None }
}

/// The index of the parameter, if the value is one.
pub(crate) fn param_index(k: &Kernel, v: Value) -> Option<u32> {
    let Some(Var::Param { index }) = k.op(v).var() else { return None };
    Some(*index).filter(|index| (*index as usize) < k.head.params.len())
}
