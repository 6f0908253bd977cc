//! Statements and control flow.

use super::arith::raw;
use super::value::{Fragment, Val};
use super::words::with_article;
use super::{Binding, Elab, Result, fail};
use crate::ast::{self, Block, Expr, ExprKind, Stmt, StmtKind, Unroll};
use crate::codes::meaning::{
    BAD_RETURN, MISMATCH, NOT_ASSIGNABLE, NOT_CONSTANT, TOO_LARGE, UNKNOWN_NAME, WRONG_KIND,
};
use weft_ir::builder::Range;
use weft_ir::diag::{Diagnostic, Span};
use weft_ir::{
    Arith, Control, Int, LocalId, Op, Operation, Scalar, Space, Tile, Type, Value, ValueType, Var,
};

impl Elab<'_> {
    /// Elaborates a block in a scope of its own and returns its value. Errors of statements are
    /// collected, so that all of them are reported.
    pub(super) fn block(&mut self, block: &Block) -> Result<Val> {
        self.scoped(|e| e.statements(&block.stmts, block.value.as_deref()))
    }

    /// Elaborates statements and a value. If the statements always jump away, the code after the
    /// jump is dropped and there is no value.
    pub(super) fn statements(&mut self, stmts: &[Stmt], value: Option<&Expr>) -> Result<Val> {
        for (at, s) in stmts.iter().enumerate() {
            if self.flow.ended {
                return Ok(Val::Unit);
            }
            self.stmt_or_report(s)?;
            let behind = stmts.get(at + 1).map(|s| s.span).or(value.map(|v| v.span));
            if let (Some(name), Some(behind), true) = (jump_name(s), behind, self.flow.ended) {
                let message = format!("this code is never reached: `{name}` precedes it");
                self.report(
                    Diagnostic::error(BAD_RETURN, behind, message)
                        .related(s.span, "this always leaves the block")
                        .help("put the jump under a condition, or remove the code after it"),
                );
                return Ok(Val::Unit);
            }
        }
        match value {
            Some(v) if !self.flow.ended => {
                let val = self.expr(v);
                // An error in an unreachable value follows from the jump.
                if self.flow.ended { Ok(Val::Unit) } else { val }
            }
            _ => Ok(Val::Unit),
        }
    }

    /// Elaborates a statement and reports its errors. Only the error that the kernel has grown too
    /// large stops at once.
    fn stmt_or_report(&mut self, s: &Stmt) -> Result<()> {
        if let Err(d) = self.check_size(s.span).and_then(|()| self.stmt(s)) {
            // The statement jumped away before its end, so errors in the rest follow from that.
            if self.flow.ended && d.code != TOO_LARGE {
                return Ok(());
            }
            if d.code == TOO_LARGE || self.errors.len() >= 20 {
                return Err(d);
            }
            if let StmtKind::Let { name, .. } = &s.kind {
                self.bind(name, Binding::Val(Val::Error));
            }
            self.report(d);
        }
        Ok(())
    }

    fn stmt(&mut self, s: &Stmt) -> Result<()> {
        self.b.at(s.span);
        match &s.kind {
            StmtKind::Let { mutable, name, ty, value } => self.let_(*mutable, name, ty.as_ref(), value),
            StmtKind::Assign { target, op, value } => self.assign(target, *op, value, s.span),
            StmtKind::For { var, lo, hi, step, unroll, body } => {
                let (lo_at, lo) = (lo.span, self.int(lo)?);
                let hi = self.int(hi)?;
                let step = match step {
                    Some(e) => {
                        let n = self.int(e)?;
                        if n.lower_bound() < 1 {
                            let message = format!("the step {n} is not known to be positive");
                            return fail(NOT_CONSTANT, e.span, message);
                        }
                        n
                    }
                    None => Int::from(1),
                };
                self.b.at(s.span);
                match unroll {
                    Some(Unroll::Full) => self.unrolled(var, (&lo, &hi, &step), body, lo_at.to(s.span)),
                    other => {
                        let n = match other {
                            Some(Unroll::By(e)) => match self.constant(e)? {
                                n @ 1..=64 => n as u32,
                                n => {
                                    return fail(
                                        NOT_CONSTANT,
                                        e.span,
                                        format!("unroll({n}) is not from 1 to 64"),
                                    );
                                }
                            },
                            _ => 1,
                        };
                        self.for_loop(var, (lo, hi, step), n, body)
                    }
                }
            }
            StmtKind::While { cond, body } => self.while_loop(Some(cond), body, s.span),
            StmtKind::Expr(e) => match &e.kind {
                ExprKind::If { cond, then, otherwise } => self.if_stmt(cond, then, otherwise.as_ref()),
                _ => self.expr(e).map(|_| ()),
            },
            StmtKind::Loop { body } => self.while_loop(None, body, s.span),
            StmtKind::Role { .. } => {
                Err(Diagnostic::error(WRONG_KIND, s.span, "a role is nested in other code")
                    .help("roles must be the last statements of a kernel"))
            }
            StmtKind::Break => self.jump(false, s.span),
            StmtKind::Continue => self.jump(true, s.span),
            StmtKind::Return(value) => self.return_(value.as_ref(), s.span),
        }
    }

    fn let_(
        &mut self,
        mutable: bool,
        name: &ast::Ident,
        ty: Option<&ast::TypeExpr>,
        value: &Expr,
    ) -> Result<()> {
        let mut val = self.expr(value)?;
        self.b.at(value.span);
        if let Some(ty) = ty {
            val = self.fit(val, ty, value.span)?;
        }
        // A single element of memory is read here. Several elements stay a view.
        if let Val::Tensor(t) = val {
            let ty = self.tensor_type_of(t);
            if t.element && ty.space != Space::Multicast {
                val = self.scalar_or_frag(val, None, value.span)?;
            }
        }
        if matches!(val, Val::Unit) {
            return fail(WRONG_KIND, value.span, "this expression has no value");
        }
        if let Val::Tensor(t) = val {
            self.b.name_shared(t.value, &name.name);
        }
        if !mutable {
            self.bind(name, Binding::Val(val));
            return Ok(());
        }
        let (local, fragment) = match val {
            Val::Layout(_)
            | Val::Swizzled(..)
            | Val::Pipeline(_)
            | Val::Team(_)
            | Val::Barrier(_)
            | Val::Threads(_)
            | Val::Dtype(_)
            | Val::Record(_)
            | Val::Function(_)
            | Val::Str(_) => {
                return Err(Diagnostic::error(
                    NOT_ASSIGNABLE,
                    value.span,
                    format!("{} cannot be `mut`", val.kind()),
                )
                .help("remove `mut`: the value is known when the kernel is compiled"));
            }
            Val::Accumulator(v, ty) => {
                let local = self.b.local(&name.name, Type::Accumulator(ty));
                self.b.set(local, v)?;
                (local, None)
            }
            other => {
                let v = self.scalar_or_frag(other, None, value.span)?;
                let ty = self.b.ty(raw(&v)).clone();
                let local = self.b.local(&name.name, ty);
                self.b.set(local, raw(&v))?;
                (local, if let Val::Fragment(f) = v { Some(f) } else { None })
            }
        };
        self.bind(name, Binding::Local(local, fragment));
        Ok(())
    }

    fn assign(&mut self, target: &Expr, op: Option<ast::BinOp>, value: &Expr, span: Span) -> Result<()> {
        let mut val = self.expr(value)?;
        match &target.kind {
            ExprKind::Name(name) => {
                let Some(Binding::Local(local, fragment)) = self.lookup(&name.name).cloned() else {
                    return Err(match self.lookup(&name.name) {
                        Some(_) => Diagnostic::error(
                            NOT_ASSIGNABLE,
                            target.span,
                            format!("`{}` is not `mut`", name.name),
                        )
                        .help(format!("declare it with `let mut {}`", name.name)),
                        None => Diagnostic::error(
                            UNKNOWN_NAME,
                            target.span,
                            format!("`{}` is not defined here", name.name),
                        ),
                    });
                };
                if let Some(op) = op {
                    let old = self.expr(target)?;
                    val = self.binary(op, old, val, span)?;
                }
                let ty = self.b.kernel().locals[local].ty.clone();
                if let Type::Accumulator(_) = ty {
                    return self.assign_accumulator(local, &val, (value.span, span));
                }
                let val = match &fragment {
                    Some(old) => self.dealt_as(val, &Val::Fragment(old.clone()), value.span)?,
                    None => val,
                };
                let v = self.scalar_or_frag(val, ty.elem(), value.span)?;
                self.same_distribution(&v, fragment.as_ref(), value.span)?;
                let v = match ty {
                    Type::Scalar(Scalar::I64) => self.as_int_of(v, value.span)?,
                    _ => v,
                };
                let v = self.check_elem(v, ty.elem(), value.span)?;
                let v = match (&v, &fragment) {
                    (Val::Runtime(x), Some(_)) => self.b.splat(*x, &ty)?,
                    _ => raw(&v),
                };
                self.b.at(span);
                self.b.set(local, v).map(|_| ())
            }
            ExprKind::Index { base, indices } => {
                let mut inner = &**base;
                while let ExprKind::Paren(e) = &inner.kind {
                    inner = e;
                }
                if let ExprKind::Name(name) = &inner.kind
                    && let Some(Binding::Local(local, Some(fragment))) = self.lookup(&name.name).cloned()
                {
                    return self.assign_lane(local, &fragment, target, indices, op, (val, value.span));
                }
                let place = self.expr(target)?;
                let Val::Tensor(t) = place else {
                    return Err(Diagnostic::error(
                        NOT_ASSIGNABLE,
                        target.span,
                        format!("{} cannot be assigned", self.describe(&place)),
                    )
                    .help("declare the register tensor with `let mut`"));
                };
                if let Some(op) = op {
                    val = self.binary(op, Val::Tensor(t), val, span)?;
                }
                self.b.at(span);
                self.store(t, val, span)
            }
            _ => Err(Diagnostic::error(NOT_ASSIGNABLE, target.span, "this cannot be assigned")
                .help("assign to a `let mut` variable or to elements of a tensor")),
        }
    }

    /// Assigns to a variable that holds an accumulator. The new value must be an accumulator of the
    /// same tile.
    fn assign_accumulator(&mut self, local: LocalId, val: &Val, (at, span): (Span, Span)) -> Result<()> {
        let ty = self.b.kernel().locals[local].ty.clone();
        match val {
            Val::Accumulator(v, of) if Type::Accumulator(*of) == ty => {
                self.b.at(span);
                self.b.set(local, *v).map(|_| ())
            }
            other => fail(MISMATCH, at, format!("expected {ty}, found {}", self.describe(other))),
        }
    }

    fn assign_lane(
        &mut self,
        local: LocalId,
        fragment: &Fragment,
        target: &Expr,
        indices: &[Expr],
        op: Option<ast::BinOp>,
        (mut val, at): (Val, Span),
    ) -> Result<()> {
        if let Some(op) = op {
            let old = self.expr(target)?;
            val = self.binary(op, old, val, target.span)?;
        }
        let layout = self.fragment_layout(fragment, target.span)?;
        let coords = indices.iter().map(|i| Ok((self.expr(i)?, i.span))).collect::<Result<Vec<_>>>()?;
        let coord = self.coord(&coords, layout.shape(), target.span)?;
        let ty = self.b.kernel().locals[local].ty.clone();
        let v = self.scalar_or_frag(val, ty.elem(), at)?;
        let v = self.check_elem(v, ty.elem(), at)?;
        let bad = |x: weft_layout::LayoutError| Diagnostic::error(NOT_ASSIGNABLE, target.span, x.to_string());
        let (rest, offset) = layout.slice_and_offset(&coord).map_err(bad)?;
        let n = if coord.has_all() { rest.size().as_const().unwrap_or(1) } else { 1 };
        if fragment.distribution.is_some() {
            return fail(
                NOT_ASSIGNABLE,
                target.span,
                "this tensor is distributed over the CTA: assign all of it",
            );
        }
        if matches!(v, Val::Fragment(_)) && self.b.ty(raw(&v)).lanes().map(i64::from) != Some(n) {
            return fail(MISMATCH, at, format!("expected {n} elements, found {}", self.describe(&v)));
        }
        if matches!(ty, Type::Scalar(_)) {
            return self.b.set(local, raw(&v)).map(|_| ());
        }
        let mut all = self.b.get(local)?;
        for i in 0..n {
            let at = match coord.has_all() {
                true => rest.crd2idx(&Int::from(i).into()).map_err(bad)? + &offset,
                false => offset.clone(),
            };
            let lane = self.b.index(at)?;
            let elem = match self.b.ty(raw(&v)) {
                Type::Vector(..) => {
                    let from = self.b.index(i)?;
                    self.b.emit(Arith::Extract { a: raw(&v), lane: from })?
                }
                _ => raw(&v),
            };
            all = self.b.emit(Arith::Insert { a: all, lane, elem })?;
        }
        self.b.set(local, all).map(|_| ())
    }

    /// Evaluates a condition, which is known at compile time or computed at run time.
    fn cond(&mut self, e: &Expr) -> Result<Val> {
        let val = self.expr(e)?;
        self.condition(val, e.span)
    }

    /// A value as a condition.
    pub(crate) fn condition(&mut self, val: Val, at: Span) -> Result<Val> {
        match val {
            Val::Bool(_) => Ok(val),
            other => {
                let v = self.scalar_or_frag(other, None, at)?;
                match self.b.ty(raw(&v)) {
                    Type::Scalar(Scalar::Bool) => Ok(Val::Runtime(raw(&v))),
                    ty => {
                        let message = format!("a condition must be a bool, not {}", with_article(ty));
                        Err(Diagnostic::error(WRONG_KIND, at, message).help("compare it: `x != 0`"))
                    }
                }
            }
        }
    }

    fn if_stmt(&mut self, cond: &Expr, then: &Block, otherwise: Option<&Block>) -> Result<()> {
        match self.cond(cond)? {
            Val::Bool(true) => self.block(then).map(|_| ()),
            Val::Bool(false) => otherwise.map_or(Ok(()), |b| self.block(b).map(|_| ())),
            c => {
                let (then, gone) = self.nested(|e| e.block(then).map(|_| ()))?;
                let (otherwise, gone_too) =
                    self.nested(|e| otherwise.map_or(Ok(()), |b| e.block(b).map(|_| ())))?;
                self.b.at(cond.span);
                self.flow.ended = gone && gone_too;
                self.b.emit(Control::If { cond: raw(&c), then, otherwise }).map(|_| ())
            }
        }
    }

    /// Evaluates an `if` as a value. Both branches have the same type.
    pub(super) fn if_value(
        &mut self,
        cond: &Expr,
        then: &Block,
        otherwise: Option<&Block>,
        span: Span,
    ) -> Result<Val> {
        let Some(otherwise) = otherwise.filter(|b| b.value.is_some() && then.value.is_some()) else {
            return self.if_stmt(cond, then, otherwise).map(|()| Val::Unit);
        };
        let c = match self.cond(cond)? {
            Val::Bool(true) => return self.block(then),
            Val::Bool(false) => return self.block(otherwise),
            c => raw(&c),
        };
        let mut kept = None;
        let (then, gone) = self.nested(|e| e.branch_value(then, &mut kept, span))?;
        let (otherwise, gone_too) = self.nested(|e| e.branch_value(otherwise, &mut kept, span))?;
        self.b.at(span);
        self.flow.ended = gone && gone_too;
        self.b.emit(Control::If { cond: c, then, otherwise })?;
        kept.map_or(Ok(Val::Unit), |(local, ty, fragment)| self.read(local, &ty, fragment))
    }

    /// Elaborates a branch that has a value, unless it jumps away. The value is stored in a
    /// variable whose type is that of the first branch with a value.
    fn branch_value(
        &mut self,
        block: &Block,
        kept: &mut Option<(LocalId, Type, Option<Fragment>)>,
        span: Span,
    ) -> Result<()> {
        let v = self.block(block)?;
        if self.flow.ended {
            return Ok(());
        }
        let v = self.scalar_or_frag(v, kept.as_ref().and_then(|(_, ty, _)| ty.elem()), span)?;
        let ty = self.b.ty(raw(&v)).clone();
        let local = match kept {
            None => {
                let local = self.b.local("if", ty.clone());
                *kept = Some((local, ty, if let Val::Fragment(f) = &v { Some(f.clone()) } else { None }));
                local
            }
            Some((local, first, fragment)) if *first == ty => {
                self.same_distribution(&v, fragment.as_ref(), span)?;
                *local
            }
            Some((_, first, _)) => {
                return fail(MISMATCH, span, format!("the two branches have the types {first} and {ty}"));
            }
        };
        self.b.set(local, raw(&v)).map(drop)
    }

    fn for_loop(
        &mut self,
        var: &ast::Ident,
        (lo, hi, step): (Int, Int, Int),
        unroll: u32,
        body: &Block,
    ) -> Result<()> {
        // Like a branch that is never taken, the body of a loop without rounds is left out: there is
        // no value that its variable could have as an index.
        if hi.is_le(&lo) {
            return Ok(());
        }
        let bounds = [self.b.index(lo.clone())?, self.b.index(hi.clone())?, self.b.index(step.clone())?];
        let (v, rounds) = self.rounds(var, (&lo, &hi, &step), body, 1)?;
        self.b.at(var.span);
        if unroll == 1 || !self.waits_in_order(&rounds) {
            return self.emit_for(v, bounds, unroll, rounds);
        }
        let count = Int::from(unroll);
        let whole = (&hi - &lo).max(&Int::ZERO).ceil_div(&step).floor_div(&count);
        let stride = &step * count;
        let last = &lo + whole * &stride;
        let (first, group) = self.rounds(var, (&lo, &last, &step), body, unroll)?;
        self.b.at(var.span);
        let (last, stride) = (self.b.index(last)?, self.b.index(stride)?);
        self.emit_for(first, [bounds[0], last, stride], 1, group)?;
        self.emit_for(v, [last, bounds[1], bounds[2]], 1, rounds)
    }

    /// Elaborates `count` consecutive rounds of a loop. The result is the variable of the first one,
    /// and the ops of all.
    fn rounds(
        &mut self,
        var: &ast::Ident,
        (lo, hi, step): (&Int, &Int, &Int),
        body: &Block,
        count: u32,
    ) -> Result<(Value, weft_ir::Block)> {
        let range = Range::of(lo, hi, &(step * Int::from(count)));
        let op = Op::Var(Var::LoopVar { min: range.min, max: range.max.unwrap_or(i64::MAX), div: range.div });
        let v = self.b.detached(op, Type::Scalar(Scalar::I64));
        if self.varies(lo) || self.varies(step) {
            self.varying.insert(v);
        }
        self.below.insert(v.0, hi.clone());
        let first = self.symbol(v)?;
        let round = |e: &mut Self, i: u32| {
            e.scoped(|e| {
                e.bind(var, Binding::Val(Val::Int(&first + step * Int::from(i))));
                e.block(body).map(|_| ())
            })
        };
        let ((ops, _), _) = self.in_loop(|e| e.nested(|e| (0..count).try_for_each(|i| round(e, i))))?;
        Ok((v, ops))
    }

    fn emit_for(
        &mut self,
        var: Value,
        [lo, hi, step]: [Value; 3],
        unroll: u32,
        body: weft_ir::Block,
    ) -> Result<()> {
        let var = weft_ir::kernel::Induction(var);
        self.b.emit(Control::For { var, lo, hi, step, unroll, body }).map(|_| ())
    }

    /// Whether ops wait for stages of a pipeline, so that their rounds cannot be in flight together.
    /// They can be repeated if no jump leaves them.
    fn waits_in_order(&self, block: &weft_ir::Block) -> bool {
        let (mut waits, mut jumps) = (false, false);
        let mut todo = vec![block];
        while let Some(block) = todo.pop() {
            for op in block.0.iter().map(|v| self.b.kernel().op(*v)) {
                waits |= matches!(op.tile(), Some(Tile::Acquire { .. } | Tile::Await { .. }));
                jumps |= op.control().is_some_and(Control::is_jump);
                todo.extend(op.blocks());
            }
        }
        waits && !jumps
    }

    fn unrolled(
        &mut self,
        var: &ast::Ident,
        (lo, hi, step): (&Int, &Int, &Int),
        body: &Block,
        span: Span,
    ) -> Result<()> {
        let (Some(lo), Some(hi), Some(step)) = (lo.as_const(), hi.as_const(), step.as_const()) else {
            return Err(Diagnostic::error(
                NOT_CONSTANT,
                span,
                "a loop can be unrolled completely only if its bounds are constants",
            )
            .help("unroll by a number: `unroll(4)`"));
        };
        self.in_unrolled(body, |e, round| {
            let mut i = lo;
            while i < hi && !e.flow.ended {
                e.check_size(span)?;
                let before = e.errors.len();
                e.scoped(|e| {
                    e.bind(var, Binding::Val(Val::Int(i.into())));
                    round(e)
                })?;
                // The other rounds would report the same errors.
                if e.errors.len() > before {
                    break;
                }
                i = i.saturating_add(step);
            }
            Ok(())
        })
    }

    /// Elaborates `while`, or `loop`, which has no condition.
    fn while_loop(&mut self, cond: Option<&Expr>, body: &Block, span: Span) -> Result<()> {
        let mut known = (None, false);
        let ((head, body), left) = self.in_loop(|e| {
            let (head, _) = e.nested(|e| {
                known = match cond.map_or(Ok(Val::Bool(true)), |c| e.cond(c))? {
                    Val::Bool(b) => {
                        let op = Arith::Const { value: weft_ir::Constant::Bool(b) };
                        (Some(e.b.emit_as(op, Type::Scalar(Scalar::Bool))?), b)
                    }
                    c => (Some(raw(&c)), false),
                };
                Ok(())
            })?;
            let (body, _) = e.nested(|e| e.block(body).map(|_| ()))?;
            Ok((head, body))
        })?;
        let (Some(cond), endless) = known else { return Ok(()) };
        self.b.at(span);
        self.flow.ended = endless && !left;
        self.b.emit(Control::While { head, cond, body }).map(|_| ())
    }
}

/// The keyword of a statement that is a jump.
fn jump_name(s: &Stmt) -> Option<&'static str> {
    match s.kind {
        StmtKind::Return(_) => Some("return"),
        StmtKind::Break => Some("break"),
        StmtKind::Continue => Some("continue"),
        StmtKind::Let { .. }
        | StmtKind::Assign { .. }
        | StmtKind::For { .. }
        | StmtKind::While { .. }
        | StmtKind::Loop { .. }
        | StmtKind::Role { .. }
        | StmtKind::Expr(_) => None,
    }
}
