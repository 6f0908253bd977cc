//! `break`, `continue` and `return`: the loops and functions that they leave, and the place at
//! which execution continues.
//!
//! A jump of the IR counts the loops and `once` blocks between it and the one that it leaves. A
//! completely unrolled loop is not a loop of the IR. Its rounds are in a `once`, which `break`
//! leaves, and each round is in a `once` of its own, which `continue` leaves. The same holds for
//! the body of a function that returns before its end, because it is inlined.

use super::arith::raw;
use super::value::{Fragment, Val};
use super::{Elab, Result, fail};
use crate::ast::{self, Arg, Block, Expr, ExprKind, Stmt, StmtKind, Unroll};
use crate::codes::meaning::{BAD_RETURN, MISMATCH, NO_LOOP};
use weft_ir::diag::{Diagnostic, Span};
use weft_ir::{Control, Kernel, LocalId, Operation, Scalar, Type, Value, ValueType};

/// The state of control flow at the current point of the generated code.
#[derive(Default)]
pub(super) struct Flow {
    /// The open loops and `once` blocks of the IR, outermost first, and whether a jump leaves each
    /// of them.
    around: Vec<bool>,
    /// The open loops of the function's text.
    loops: Vec<Loop>,
    /// The meaning of `return` in the function that is being inlined. In a kernel it ends the
    /// kernel.
    returns: Option<Returns>,
    /// Whether this point is unreachable because the code before it always jumps away.
    pub ended: bool,
}

/// A loop of the text: the targets of its jumps, as indices into [`Flow::around`].
struct Loop {
    behind: usize,
    /// The target of `continue`, and whether it is a block of a single round and not the loop.
    next: (usize, bool),
}

/// The returns of a function.
struct Returns {
    /// The block that `return` leaves, as an index into [`Flow::around`].
    behind: usize,
    /// The type that its head states.
    ty: Option<ast::TypeExpr>,
    value: Option<Returned>,
    /// Whether a `return` without a value occurred.
    nothing: bool,
}

/// The value that a function has returned so far.
struct Returned {
    local: LocalId,
    ty: Type,
    fragment: Option<Fragment>,
}

/// The jumps of a text, apart from those within its own loops.
#[derive(Clone, Copy, Default)]
pub(super) struct Jumps {
    pub breaks: bool,
    pub continues: bool,
    pub returns: bool,
}

impl Jumps {
    pub fn of(block: &Block) -> Jumps {
        let mut found = Jumps::default();
        found.block(block);
        found
    }

    fn block(&mut self, block: &Block) {
        block.stmts.iter().for_each(|s| self.stmt(s));
        block.value.iter().for_each(|e| self.expr(e));
    }

    fn stmt(&mut self, s: &Stmt) {
        match &s.kind {
            StmtKind::Let { ty, value, .. } => {
                ty.iter().for_each(|ty| self.ty(ty));
                self.expr(value);
            }
            StmtKind::Expr(e) => self.expr(e),
            StmtKind::Assign { target, value, .. } => [target, value].into_iter().for_each(|e| self.expr(e)),
            StmtKind::For { lo, hi, step, unroll, body, .. } => {
                [lo, hi].into_iter().chain(step).for_each(|e| self.expr(e));
                if let Some(Unroll::By(e)) = unroll {
                    self.expr(e);
                }
                self.returns |= Jumps::of(body).returns;
            }
            StmtKind::While { cond, body } => {
                self.expr(cond);
                self.returns |= Jumps::of(body).returns;
            }
            StmtKind::Loop { body } => self.returns |= Jumps::of(body).returns,
            StmtKind::Role { body, .. } => self.block(body),
            StmtKind::Break => self.breaks = true,
            StmtKind::Continue => self.continues = true,
            StmtKind::Return(value) => {
                self.returns = true;
                value.iter().for_each(|e| self.expr(e));
            }
        }
    }

    fn ty(&mut self, ty: &ast::TypeExpr) {
        let args = ty.args.iter().map(|a| &a.value);
        args.chain(ty.div.as_deref()).for_each(|e| self.expr(e));
    }

    fn expr(&mut self, e: &Expr) {
        let mut args = |args: &[Arg]| args.iter().for_each(|a| self.expr(&a.value));
        match &e.kind {
            ExprKind::Int(_)
            | ExprKind::Float(_)
            | ExprKind::Bool(_)
            | ExprKind::Str(_)
            | ExprKind::Underscore
            | ExprKind::Name(_) => {}
            ExprKind::Paren(a) | ExprKind::Unary(_, a) => self.expr(a),
            ExprKind::Binary(_, a, b) | ExprKind::Layout(a, b) | ExprKind::Range(a, b) => {
                self.expr(a);
                self.expr(b);
            }
            ExprKind::Tuple(items) => items.iter().for_each(|i| self.expr(i)),
            ExprKind::Record(fields) => fields.iter().for_each(|(_, value)| self.expr(value)),
            ExprKind::Field { base, .. } => self.expr(base),
            ExprKind::Call { args: list, .. } => args(list),
            ExprKind::Method { recv, args: list, .. } => {
                args(list);
                self.expr(recv);
            }
            ExprKind::Index { base, indices } => {
                self.expr(base);
                indices.iter().for_each(|i| self.expr(i));
            }
            ExprKind::If { cond, then, otherwise } => {
                self.expr(cond);
                self.block(then);
                otherwise.iter().for_each(|b| self.block(b));
            }
        }
    }
}

/// Whether a function returns before its end.
fn returns_early(body: &Block) -> bool {
    let Some((Stmt { kind: StmtKind::Return(_), .. }, rest)) = body.stmts.split_last() else {
        return Jumps::of(body).returns;
    };
    let mut found = Jumps::default();
    rest.iter().for_each(|s| found.stmt(s));
    found.returns
}

/// Removes the code after a jump, which is left over if a part of an expression jumps.
pub(super) fn cut(k: &Kernel, block: &mut weft_ir::Block) {
    let jumps = |v: &Value| k.op(*v).control().is_some_and(Control::is_jump);
    if let Some(at) = block.0.iter().position(jumps) {
        block.0.truncate(at + 1);
    }
}

impl Elab<'_> {
    /// The ops that `f` emits as a block of their own, and whether the block always jumps away.
    pub(super) fn nested(
        &mut self,
        f: impl FnOnce(&mut Self) -> Result<()>,
    ) -> Result<(weft_ir::Block, bool)> {
        self.b.open();
        let before = std::mem::replace(&mut self.flow.ended, false);
        let result = f(self);
        let mut block = self.b.close();
        cut(self.b.kernel(), &mut block);
        let ended = std::mem::replace(&mut self.flow.ended, before);
        result.map(|()| (block, ended))
    }

    /// Generates code in a loop or in a block that jumps can leave. Also returns whether a jump
    /// leaves it.
    pub(super) fn inside<T>(&mut self, f: impl FnOnce(&mut Self) -> Result<T>) -> Result<(T, bool)> {
        self.flow.around.push(false);
        let result = f(self);
        let left = self.flow.around.pop().unwrap_or(false);
        result.map(|out| (out, left))
    }

    /// Generates the code of a loop of the IR.
    pub(super) fn in_loop<T>(&mut self, f: impl FnOnce(&mut Self) -> Result<T>) -> Result<(T, bool)> {
        self.inside(|e| {
            let here = e.flow.around.len() - 1;
            e.in_text_loop(here, (here, false), f)
        })
    }

    fn in_text_loop<T>(
        &mut self,
        behind: usize,
        next: (usize, bool),
        f: impl FnOnce(&mut Self) -> Result<T>,
    ) -> Result<T> {
        self.flow.loops.push(Loop { behind, next });
        let result = f(self);
        self.flow.loops.pop();
        result
    }

    /// Generates a `once` around the ops of `f`, if `wanted` is set.
    fn once_if(&mut self, wanted: bool, f: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        if !wanted {
            return f(self);
        }
        let ((body, ended), left) = self.inside(|e| e.nested(f))?;
        self.b.emit(Control::Once { body })?;
        self.flow.ended = ended && !left;
        Ok(())
    }

    /// Generates the rounds of a completely unrolled loop. `rounds` calls its argument for each of
    /// them.
    pub(super) fn in_unrolled(
        &mut self,
        body: &Block,
        rounds: impl FnOnce(&mut Self, &dyn Fn(&mut Self) -> Result<()>) -> Result<()>,
    ) -> Result<()> {
        let jumps = Jumps::of(body);
        self.once_if(jumps.breaks, |e| {
            let behind = e.flow.around.len().saturating_sub(1);
            rounds(e, &|e| {
                e.once_if(jumps.continues, |e| {
                    let next = (e.flow.around.len().saturating_sub(1), true);
                    e.in_text_loop(behind, next, |e| e.block(body).map(drop))
                })
            })
        })
    }

    /// Elaborates `break` and `continue`.
    pub(super) fn jump(&mut self, again: bool, span: Span) -> Result<()> {
        let name = if again { "continue" } else { "break" };
        let Some(Loop { behind, next }) = self.flow.loops.last() else {
            let message = format!("`{name}` is outside of a loop");
            return Err(Diagnostic::error(NO_LOOP, span, message)
                .help("move it into the body of a `for`, `while` or `loop` of the same function"));
        };
        let (to, again) = match (again, *next) {
            (true, (to, own)) => (to, !own),
            (false, _) => (*behind, false),
        };
        self.leave(to, again)
    }

    fn leave(&mut self, to: usize, again: bool) -> Result<()> {
        let depth = self.flow.around.len().saturating_sub(1 + to) as u32;
        if let Some(left) = self.flow.around.get_mut(to) {
            *left |= !again;
        }
        self.flow.ended = true;
        self.b.emit(if again { Control::Continue { depth } } else { Control::Break { depth } }).map(drop)
    }

    /// Elaborates `return`.
    pub(super) fn return_(&mut self, value: Option<&Expr>, span: Span) -> Result<()> {
        let Some(Returns { behind, .. }) = &self.flow.returns else {
            if let Some(value) = value {
                return fail(BAD_RETURN, value.span, "a kernel returns no value");
            }
            self.flow.ended = true;
            return self.b.emit(Control::Return {}).map(drop);
        };
        let behind = *behind;
        let val = value.map_or(Ok(Val::Unit), |v| self.expr(v))?;
        self.b.at(span);
        self.give(val, value.map_or(span, |v| v.span))?;
        self.leave(behind, false)
    }

    /// Stores the value that a function returns.
    fn give(&mut self, val: Val, span: Span) -> Result<()> {
        let Some(ways) = &mut self.flow.returns else { return Ok(()) };
        let unit = matches!(val, Val::Unit);
        ways.nothing |= unit;
        if ways.nothing && (!unit || ways.value.is_some()) {
            return fail(MISMATCH, span, "this function returns a value in some places and none in others");
        }
        if unit {
            return Ok(());
        }
        let (ty, known) = (ways.ty.clone(), ways.value.as_ref().map(|known| (known.local, known.ty.clone())));
        let val = ty.map_or(Ok(val.clone()), |ty| self.fit(val, &ty, span))?;
        let v = self.scalar_or_frag(val, known.as_ref().and_then(|(_, ty)| ty.elem()), span)?;
        let ty = self.b.ty(raw(&v)).clone();
        let local = match known {
            Some((local, expected)) if expected == ty => {
                let ways = self.flow.returns.as_ref().and_then(|ways| ways.value.as_ref());
                let fragment = ways.and_then(|known| known.fragment.clone());
                self.same_distribution(&v, fragment.as_ref(), span)?;
                local
            }
            Some((_, expected)) => {
                let message = format!("this function returns {expected} in one place and {ty} in another");
                return Err(Diagnostic::error(MISMATCH, span, message)
                    .help("state the type in the function's head, `-> u32`, or convert one of the values"));
            }
            None => {
                let local = self.b.local("returned", ty.clone());
                let fragment = if let Val::Fragment(f) = &v { Some(f.clone()) } else { None };
                if let Some(ways) = &mut self.flow.returns {
                    ways.value = Some(Returned { local, ty, fragment });
                }
                local
            }
        };
        self.b.set(local, raw(&v)).map(drop)
    }

    /// Elaborates a function's body. Jumps in it cannot leave loops of the caller, and it can
    /// return from anywhere.
    pub(super) fn function_body(&mut self, f: &ast::Function) -> Result<Val> {
        let loops = std::mem::take(&mut self.flow.loops);
        let returns = self.flow.returns.take();
        let result = if returns_early(&f.body) { self.early(f) } else { self.one_way(&f.body) };
        self.flow.loops = loops;
        self.flow.returns = returns;
        result
    }

    /// Elaborates the body of a function that ends in one place. Its last statement can be
    /// `return`.
    fn one_way(&mut self, body: &Block) -> Result<Val> {
        match (&body.value, body.stmts.split_last()) {
            (None, Some((Stmt { kind: StmtKind::Return(value), .. }, rest))) => {
                self.scoped(|e| e.statements(rest, value.as_ref()))
            }
            _ => self.block(body),
        }
    }

    /// Elaborates the body of a function that returns before its end.
    fn early(&mut self, f: &ast::Function) -> Result<Val> {
        let behind = self.flow.around.len();
        self.flow.returns = Some(Returns { behind, ty: f.ret.clone(), value: None, nothing: false });
        self.once_if(true, |e| {
            let val = e.block(&f.body)?;
            if e.flow.ended { Ok(()) } else { e.give(val, f.body.value.as_ref().map_or(f.span, |v| v.span)) }
        })?;
        let Some(Returned { local, ty, fragment }) = self.flow.returns.take().and_then(|ways| ways.value)
        else {
            return Ok(Val::Unit);
        };
        self.read(local, &ty, fragment)
    }

    /// Reads a variable that the elaborator made.
    pub(super) fn read(&mut self, local: LocalId, ty: &Type, fragment: Option<Fragment>) -> Result<Val> {
        let value = self.b.get(local)?;
        self.varying.insert(value);
        match fragment {
            Some(f) => Ok(Val::Fragment(Fragment { value, ..f })),
            None if *ty == Type::Scalar(Scalar::I64) => self.symbol(value).map(Val::Int),
            None => Ok(Val::Runtime(value)),
        }
    }
}
