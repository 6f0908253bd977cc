//! The evaluation of expressions of reference functions.

use super::number::Number;
use super::{Result, Run, Value};
use crate::ast::{self, BinOp, ExprKind, UnOp};
use crate::codes::meaning::{BAD_INDEX, UNKNOWN_NAME, WRONG_KIND};
use crate::elaborate::{counted, fail};
use weft_ir::Scalar;
use weft_ir::diag::Span;

impl Run<'_> {
    pub(super) fn expr(&mut self, e: &ast::Expr) -> Result<Value> {
        self.step(e.span)?;
        match &e.kind {
            ExprKind::Int(n) => Ok(Value::Number(Number::Int((*n).into()))),
            ExprKind::Float(x) => Ok(Value::Number(Number::Real((*x).into()))),
            ExprKind::Bool(b) => Ok(Value::Number(Number::Bool(*b))),
            ExprKind::Name(name) => self.name(&name.name, e.span),
            ExprKind::Paren(inner) => self.expr(inner),
            ExprKind::Unary(op, inner) => self.unary(*op, inner),
            ExprKind::Binary(op @ (BinOp::And | BinOp::Or), a, b) => {
                let known = self.truth(a)?;
                let decided = known == (*op == BinOp::Or);
                let result = if decided { known } else { self.truth(b)? };
                Ok(Value::Number(Number::Bool(result)))
            }
            ExprKind::Binary(op, a, b) => {
                let (a, b) = (self.expr(a)?, self.expr(b)?);
                self.binary(*op, a, b, e.span)
            }
            ExprKind::Call { callee, generics, args } => self.builtin(callee, generics, args, e.span),
            ExprKind::Method { recv, name, generics, args } => self.method(recv, name, generics, args),
            ExprKind::Index { base, indices } => {
                let (tensor, pe, at) = self.element(base, indices, e.span)?;
                Ok(Value::Number(self.tensors.read(tensor, pe, at)))
            }
            ExprKind::If { cond, then, otherwise } => match (self.truth(cond)?, otherwise) {
                (true, _) => self.block(then),
                (false, Some(block)) => self.block(block),
                (false, None) => Ok(Value::Unit),
            },
            ExprKind::Str(_)
            | ExprKind::Underscore
            | ExprKind::Tuple(_)
            | ExprKind::Record(_)
            | ExprKind::Field { .. }
            | ExprKind::Layout(..)
            | ExprKind::Range(..) => Ok(fail(
                WRONG_KIND,
                e.span,
                "a reference function computes with numbers and elements of tensors",
            )?),
        }
    }

    fn name(&mut self, name: &str, span: Span) -> Result<Value> {
        if let Some(variable) = self.variable(name) {
            return Ok(variable.value);
        }
        if let Some(constant) = self.library.consts.get(name) {
            let floor = std::mem::replace(&mut self.floor, self.scope.len());
            let value = self.expr(&constant.value);
            self.floor = floor;
            return value;
        }
        let real = |x: f64| Ok(Value::Number(Number::Real(x.into())));
        match (name, Scalar::parse(name)) {
            (_, Some(dtype)) => Ok(Value::Dtype(dtype)),
            ("inf", _) => real(f64::INFINITY),
            ("nan", _) => real(f64::NAN),
            _ => Ok(fail(UNKNOWN_NAME, span, format!("`{name}` is not defined in the reference function"))?),
        }
    }

    pub(super) fn number(&mut self, e: &ast::Expr) -> Result<Number> {
        match self.expr(e)? {
            Value::Number(n) => Ok(n),
            _ => Ok(fail(WRONG_KIND, e.span, "expected a number")?),
        }
    }

    pub(super) fn int(&mut self, e: &ast::Expr) -> Result<i128> {
        match self.number(e)? {
            Number::Int(n) => Ok(n),
            other => Ok(fail(WRONG_KIND, e.span, format!("expected an integer, found {other}"))?),
        }
    }

    pub(super) fn truth(&mut self, e: &ast::Expr) -> Result<bool> {
        match self.number(e)? {
            Number::Bool(b) => Ok(b),
            other => Ok(fail(WRONG_KIND, e.span, format!("expected true or false, found {other}"))?),
        }
    }

    fn unary(&mut self, op: UnOp, inner: &ast::Expr) -> Result<Value> {
        Ok(Value::Number(match (op, self.number(inner)?) {
            (UnOp::Neg, Number::Int(n)) => Number::Int(n.wrapping_neg()),
            (UnOp::Neg, Number::Real(x)) => Number::Real(x.negate()),
            (UnOp::Not, Number::Bool(b)) => Number::Bool(!b),
            (UnOp::Not, Number::Int(n)) => Number::Int(!n),
            (_, other) => fail(WRONG_KIND, inner.span, format!("the operator does not apply to {other}"))?,
        }))
    }

    pub(super) fn binary(&mut self, op: BinOp, a: Value, b: Value, span: Span) -> Result<Value> {
        let (Value::Number(a), Value::Number(b)) = (a, b) else {
            return Ok(fail(WRONG_KIND, span, "the operator needs numbers, such as elements of tensors")?);
        };
        let comparison: Option<fn(std::cmp::Ordering) -> bool> = match op {
            BinOp::Eq => Some(std::cmp::Ordering::is_eq),
            BinOp::Ne => Some(std::cmp::Ordering::is_ne),
            BinOp::Lt => Some(std::cmp::Ordering::is_lt),
            BinOp::Le => Some(std::cmp::Ordering::is_le),
            BinOp::Gt => Some(std::cmp::Ordering::is_gt),
            BinOp::Ge => Some(std::cmp::Ordering::is_ge),
            _ => None,
        };
        if let Some(holds) = comparison {
            let order = match (a, b) {
                (Number::Int(a), Number::Int(b)) => Some(a.cmp(&b)),
                (a, b) => a.real().value.partial_cmp(&b.real().value),
            };
            // For a NaN, only "not equal" holds.
            return Ok(Value::Number(Number::Bool(order.map_or(op == BinOp::Ne, holds))));
        }
        let result = match (a, b) {
            (Number::Bool(a), Number::Bool(b)) => logic(op, a, b).map(Number::Bool),
            (Number::Int(a), Number::Int(b)) => integers(op, a, b).map(Number::Int),
            (a, b) => {
                let (a, b, unit) = (a.real(), b.real(), self.place.unit);
                let result = match op {
                    BinOp::Add => a.add(b, unit),
                    BinOp::Sub => a.add(b.negate(), unit),
                    BinOp::Mul => a.multiply(b, unit),
                    BinOp::Div => a.divide(b, unit),
                    BinOp::Rem => a.remainder(b),
                    _ => return Ok(fail(WRONG_KIND, span, "the operator needs integers")?),
                };
                Some(Number::Real(result))
            }
        };
        match result {
            Some(n) => Ok(Value::Number(n)),
            None => Ok(fail(WRONG_KIND, span, format!("the result for {a} and {b} does not exist"))?),
        }
    }

    /// The tensor, the PE and the index of an element, counted with the last mode fastest.
    pub(super) fn element(
        &mut self,
        base: &ast::Expr,
        indices: &[ast::Expr],
        span: Span,
    ) -> Result<(usize, usize, usize)> {
        let Value::Tensor { tensor, pe } = self.expr(base)? else {
            return Ok(fail(WRONG_KIND, base.span, "only tensors have elements")?);
        };
        let modes = self.tensors.shape(tensor).len();
        if indices.len() != modes {
            let coordinates = counted(indices.len(), "coordinate", "coordinates");
            let modes = counted(modes, "mode", "modes");
            fail(BAD_INDEX, span, format!("{coordinates} for a tensor of {modes}"))?;
        }
        let mut at = 0;
        for (mode, index) in indices.iter().enumerate() {
            let i = self.int(index)?;
            let extent = self.tensors.shape(tensor)[mode];
            let Some(i) = u64::try_from(i).ok().filter(|i| *i < extent) else {
                let what =
                    format!("the coordinate of mode {mode} is {i}, but the mode has {extent} elements");
                return Ok(fail(BAD_INDEX, index.span, what)?);
            };
            at = at * extent as usize + i as usize;
        }
        Ok((tensor, pe, at))
    }
}

fn logic(op: BinOp, a: bool, b: bool) -> Option<bool> {
    Some(match op {
        BinOp::BitAnd => a & b,
        BinOp::BitOr => a | b,
        BinOp::BitXor => a ^ b,
        _ => return None,
    })
}

/// Exact integer arithmetic. The result is `None` for a division by zero, a shift by too much, or a
/// result beyond 127 bits.
fn integers(op: BinOp, a: i128, b: i128) -> Option<i128> {
    match op {
        BinOp::Add => a.checked_add(b),
        BinOp::Sub => a.checked_sub(b),
        BinOp::Mul => a.checked_mul(b),
        BinOp::Div => a.checked_div(b),
        BinOp::Rem => a.checked_rem(b),
        BinOp::BitAnd => Some(a & b),
        BinOp::BitOr => Some(a | b),
        BinOp::BitXor => Some(a ^ b),
        BinOp::Shl => u32::try_from(b).ok().filter(|b| *b < 64).and_then(|b| a.checked_mul(1 << b)),
        BinOp::Shr => u32::try_from(b).ok().filter(|b| *b < 64).map(|b| a >> b),
        _ => None,
    }
}
