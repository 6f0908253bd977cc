//! Arithmetic, which is done at compile time if both operands are known or symbolic, and
//! elementwise at run time otherwise.

use super::distribution::same_order;
use super::value::{Fragment, Val};
use super::{Elab, Result, fail};
use crate::ast::{BinOp as A, Expr, ExprKind, UnOp as U};
use crate::codes::meaning::{MISMATCH, NOT_CONSTANT, WRONG_KIND};
use weft_ir::diag::{Diagnostic, Span};
use weft_ir::{Arith, BinOp, CmpOp, Constant, Int, Scalar, Type, UnOp, Value, ValueType};
use weft_layout::Poison;

/// The IR's operation for an operator.
fn ir_op(op: A) -> Option<BinOp> {
    const TABLE: [(A, BinOp); 12] = [
        (A::Add, BinOp::Add),
        (A::Sub, BinOp::Sub),
        (A::Mul, BinOp::Mul),
        (A::Div, BinOp::Div),
        (A::Rem, BinOp::Rem),
        (A::BitAnd, BinOp::And),
        (A::BitOr, BinOp::Or),
        (A::BitXor, BinOp::Xor),
        (A::And, BinOp::And),
        (A::Or, BinOp::Or),
        (A::Shl, BinOp::Shl),
        (A::Shr, BinOp::Shr),
    ];
    TABLE.iter().find(|(a, _)| *a == op).map(|(_, b)| *b)
}

pub(super) fn cmp_op(op: A) -> Option<CmpOp> {
    const TABLE: [(A, CmpOp); 6] = [
        (A::Eq, CmpOp::Eq),
        (A::Ne, CmpOp::Ne),
        (A::Lt, CmpOp::Lt),
        (A::Le, CmpOp::Le),
        (A::Gt, CmpOp::Gt),
        (A::Ge, CmpOp::Ge),
    ];
    TABLE.iter().find(|(a, _)| *a == op).map(|(_, b)| *b)
}

impl Elab<'_> {
    /// Evaluates a chain of infix operators from left to right, without recursion on its length.
    pub(super) fn binary_chain(&mut self, e: &Expr) -> Result<Val> {
        let mut right = Vec::new();
        let mut left = e;
        while let ExprKind::Binary(op, a, b) = &left.kind {
            right.push((*op, b, left.span));
            left = a;
        }
        let mut acc = self.expr(left)?;
        for (op, b, span) in right.into_iter().rev() {
            let value = self.expr(b)?;
            self.b.at(span);
            self.converts_only_a_literal(&acc, b, &value)?;
            acc = self.binary(op, acc, value, span)?;
        }
        Ok(acc)
    }

    pub(super) fn unary(&mut self, op: U, a: Val, span: Span) -> Result<Val> {
        match (op, a) {
            (U::Neg, Val::Int(n)) => Ok(Val::Int(-n)),
            (U::Neg, Val::Float(x)) => Ok(Val::Float(-x)),
            (U::Not, Val::Bool(b)) => Ok(Val::Bool(!b)),
            (op, a) => {
                let op = if op == U::Neg { UnOp::Neg } else { UnOp::Not };
                self.map(op, a, span)
            }
        }
    }

    /// Applies an elementwise function with one operand.
    pub(super) fn map(&mut self, op: UnOp, a: Val, span: Span) -> Result<Val> {
        let a = self.scalar_or_frag(a, None, span)?;
        let value = self.b.unary(op, raw(&a))?;
        Ok(with(a, value))
    }

    pub(super) fn binary(&mut self, op: A, a: Val, b: Val, span: Span) -> Result<Val> {
        match (op, &a, &b) {
            (_, Val::Int(x), Val::Int(y)) => return self.int_binary(op, x, y, span),
            (A::And, Val::Bool(x), Val::Bool(y)) => return Ok(Val::Bool(*x && *y)),
            (A::Or, Val::Bool(x), Val::Bool(y)) => return Ok(Val::Bool(*x || *y)),
            (A::And, Val::Bool(false), _) => return Ok(Val::Bool(false)),
            (A::Or, Val::Bool(true), _) => return Ok(Val::Bool(true)),
            (_, Val::Dtype(x), Val::Dtype(y)) if op == A::Eq => return Ok(Val::Bool(x == y)),
            (_, Val::Dtype(x), Val::Dtype(y)) if op == A::Ne => return Ok(Val::Bool(x != y)),
            _ => {}
        }
        if let Some(out) = self.of_coordinates(op, &a, &b)? {
            return Ok(out);
        }
        if let Some((x, y)) = self.as_ints(&a, &b, span)? {
            return self.int_binary(op, &x, &y, span);
        }
        if let (Some(x), Some(y)) = (literal(&a), literal(&b))
            && let Some(out) = float_binary(op, x, y)
        {
            return Ok(out);
        }
        let (a, b) = self.pair(a, b, span)?;
        let (x, y) = (raw(&a), raw(&b));
        let value = match (ir_op(op), cmp_op(op)) {
            (Some(op), _) => self.b.binary(op, x, y)?,
            (_, Some(op)) => self.b.compare(op, x, y)?,
            _ => return fail(WRONG_KIND, span, "there is no such operation"),
        };
        Ok(join(a, b, value))
    }

    fn int_binary(&mut self, op: A, x: &Int, y: &Int, span: Span) -> Result<Val> {
        if let (Some(x), Some(y)) = (x.as_const(), y.as_const()) {
            return self.const_binary(op, x, y, span);
        }
        let out = match op {
            A::Add => x + y,
            A::Sub => x - y,
            A::Mul => x * y,
            A::Div => x.floor_div(y),
            A::Rem => x.rem(y),
            A::Lt if x.is_lt(y) => return Ok(Val::Bool(true)),
            A::Lt if y.is_le(x) => return Ok(Val::Bool(false)),
            A::Le if x.is_le(y) => return Ok(Val::Bool(true)),
            A::Le if y.is_lt(x) => return Ok(Val::Bool(false)),
            A::Gt if y.is_lt(x) => return Ok(Val::Bool(true)),
            A::Gt if x.is_le(y) => return Ok(Val::Bool(false)),
            A::Ge if y.is_le(x) => return Ok(Val::Bool(true)),
            A::Ge if x.is_lt(y) => return Ok(Val::Bool(false)),
            A::Eq if x == y => return Ok(Val::Bool(true)),
            A::Ne if x == y => return Ok(Val::Bool(false)),
            _ => {
                let (a, b) = (self.b.index(x.clone())?, self.b.index(y.clone())?);
                return match (ir_op(op), cmp_op(op)) {
                    (_, Some(op)) => self.b.compare(op, a, b).map(Val::Runtime),
                    (Some(op), _) => {
                        let v = self.b.binary(op, a, b)?;
                        self.symbol(v).map(Val::Int)
                    }
                    _ => fail(WRONG_KIND, span, "integers do not have this operation"),
                };
            }
        };
        match out.poison() {
            None => Ok(Val::Int(out)),
            // The expression is too large for a symbol, so its value is computed and named.
            Some(Poison::TooComplex) => {
                let (a, b) = (self.b.index(x.clone())?, self.b.index(y.clone())?);
                let op = ir_op(op).unwrap_or(BinOp::Add);
                let v = self.b.binary(op, a, b)?;
                self.symbol(v).map(Val::Int)
            }
            Some(p) => fail(NOT_CONSTANT, span, format!("this integer has no value: {p}")),
        }
    }

    fn const_binary(&mut self, op: A, x: i64, y: i64, span: Span) -> Result<Val> {
        let shift = u32::try_from(y).ok().filter(|n| *n < 64);
        let out = match op {
            A::Add => x.checked_add(y),
            A::Sub => x.checked_sub(y),
            A::Mul => x.checked_mul(y),
            A::Div => Int::from(x).floor_div(&Int::from(y)).as_const(),
            A::Rem => Int::from(x).rem(&Int::from(y)).as_const(),
            A::BitAnd => Some(x & y),
            A::BitOr => Some(x | y),
            A::BitXor => Some(x ^ y),
            A::Shl => shift.and_then(|n| x.checked_mul(1i64.checked_shl(n)?)),
            A::Shr => shift.map(|n| x >> n),
            A::Eq => return Ok(Val::Bool(x == y)),
            A::Ne => return Ok(Val::Bool(x != y)),
            A::Lt => return Ok(Val::Bool(x < y)),
            A::Le => return Ok(Val::Bool(x <= y)),
            A::Gt => return Ok(Val::Bool(x > y)),
            A::Ge => return Ok(Val::Bool(x >= y)),
            A::And | A::Or => return fail(WRONG_KIND, span, "`&&` and `||` need truth values"),
        };
        out.map(|n| Val::Int(n.into())).ok_or_else(|| {
            Diagnostic::error(
                NOT_CONSTANT,
                span,
                "this integer has no value: it overflows, or divides by zero",
            )
        })
    }

    /// Whether the text converts only a literal where the result was meant, as in `n - 1.to<u32>()`
    /// with an `int` n. A literal takes the type of the other operand anyway.
    fn converts_only_a_literal(&self, left: &Val, right: &Expr, value: &Val) -> Result<()> {
        let ExprKind::Method { recv, name, .. } = &right.kind else { return Ok(()) };
        let (ExprKind::Int(literal), "to", true) = (&recv.kind, &*name.name, self.widens(left, value)) else {
            return Ok(());
        };
        let to = self.elem(value).map_or("T", Scalar::name);
        let message = format!("`.to<{to}>()` converts only the `{literal}` before it");
        Err(Diagnostic::error(MISMATCH, right.span, message)
            .label(format!("next to an `int`, this has the same meaning as `{literal}`"))
            .help(format!(
                "to convert the result, put it in parentheses before `.to<{to}>()`; a literal \
                 needs no conversion"
            )))
    }

    /// Makes both operands an `int`, if one is an `int` that is not a literal and the other is a
    /// run-time integer whose values all fit an `int`.
    pub(super) fn as_ints(&mut self, a: &Val, b: &Val, span: Span) -> Result<Option<(Int, Int)>> {
        let single = |v: &Val| match v {
            Val::Int(n) => n.as_const().is_none(),
            Val::Tensor(t) => t.element,
            v => matches!(v, Val::Runtime(_)),
        };
        if !(single(a) && single(b) && (self.widens(a, b) || self.widens(b, a))) {
            return Ok(None);
        }
        Ok(Some((self.as_int(a.clone(), span)?, self.as_int(b.clone(), span)?)))
    }

    /// Whether `b` becomes an integer of 64 bits when it is combined with `a`. This loses no bits,
    /// while the values of `a` need not fit the type of `b`.
    fn widens(&self, a: &Val, b: &Val) -> bool {
        let wide = match a {
            Val::Int(n) => n.as_const().is_none(),
            a => self.elem(a) == Some(Scalar::I64),
        };
        wide && self.elem(b).is_some_and(|s| s.is_int() && s.bits() < Scalar::I64.bits())
    }

    fn elem(&self, v: &Val) -> Option<Scalar> {
        match v {
            Val::Runtime(v) => self.b.ty(*v).elem(),
            Val::Fragment(f) => self.b.ty(f.value).elem(),
            Val::Tensor(t) => self.b.ty(t.value).elem(),
            _ => None,
        }
    }

    /// A value for an `int` variable, which narrow integers fit.
    pub(super) fn as_int_of(&mut self, val: Val, span: Span) -> Result<Val> {
        match self.elem(&val) {
            Some(s) if s.is_int() && s.bits() < Scalar::I64.bits() => self.widened(val, span),
            _ => Ok(val),
        }
    }

    /// A run-time integer, extended to 64 bits.
    fn widened(&mut self, val: Val, span: Span) -> Result<Val> {
        let val = self.scalar_or_frag(val, None, span)?;
        let value = self.b.convert(raw(&val), Scalar::I64)?;
        Ok(with(val, value))
    }

    /// Makes two operands agree in type and shape. Literals take the other's type, narrow integers
    /// become `int` if the other is one, and scalars are repeated over the other's lanes.
    pub(super) fn pair(&mut self, a: Val, b: Val, span: Span) -> Result<(Val, Val)> {
        let (a, b) = (self.plain_numbers(a)?, self.plain_numbers(b)?);
        let (a, b) = match (self.widens(&a, &b), self.widens(&b, &a)) {
            (true, _) => (a, self.widened(b, span)?),
            (_, true) => (self.widened(a, span)?, b),
            (false, false) => (a, b),
        };
        let (a, b) = self.both_read(a, b, span)?;
        let (a, b) = (self.dealt_as(a, &b, span)?, b);
        let b = self.dealt_as(b, &a, span)?;
        let like = self.elem(&a).or_else(|| self.elem(&b));
        let like_b = self.elem(&b).or(like);
        let a = self.scalar_or_frag(a, like, span)?;
        let b = self.scalar_or_frag(b, like_b, span)?;
        let (a, b) = (self.rows_alike(a, &b, span)?, b);
        let b = self.rows_alike(b, &a, span)?;
        let (ta, tb) = (self.b.ty(raw(&a)).clone(), self.b.ty(raw(&b)).clone());
        if ta.elem() != tb.elem() {
            let (ta, tb) = (self.describe(&a), self.describe(&b));
            return Err(Diagnostic::error(MISMATCH, span, format!("{ta} cannot be combined with {tb}"))
                .label("the element types differ")
                .help("convert one of them: `.to<f32>()`"));
        }
        match (&a, &b) {
            (Val::Fragment(x), Val::Fragment(y))
                if ta.lanes() != tb.lanes() || x.distribution != y.distribution =>
            {
                if ta.lanes() == tb.lanes() {
                    self.same_distribution(&b, Some(x), span)?;
                }
                Err(Diagnostic::error(
                    MISMATCH,
                    span,
                    format!("the register tensors have the shapes {} and {}", x.shape, y.shape),
                )
                .help("both sides must have the same elements in the same threads"))
            }
            (Val::Fragment(x), Val::Fragment(y)) => {
                same_order(x.order, y.order, span)?;
                let order = x.order.or(y.order);
                let ordered = |f: &Fragment| Val::Fragment(Fragment { order, ..f.clone() });
                Ok((ordered(x), ordered(y)))
            }
            (Val::Runtime(x), Val::Fragment(f)) => {
                let value = self.b.splat(*x, &tb)?;
                Ok((Val::Fragment(Fragment { value, bounds: Vec::new(), ..f.clone() }), b))
            }
            (Val::Fragment(f), Val::Runtime(y)) => {
                let value = self.b.splat(*y, &ta)?;
                let b = Val::Fragment(Fragment { value, bounds: Vec::new(), ..f.clone() });
                Ok((a, b))
            }
            _ => Ok((a, b)),
        }
    }

    /// The value as a run-time scalar or register tensor. Tensors are loaded, and literals become
    /// constants of type `like`.
    pub(super) fn scalar_or_frag(&mut self, val: Val, like: Option<Scalar>, span: Span) -> Result<Val> {
        match val {
            Val::Runtime(_) | Val::Fragment(_) => Ok(val),
            Val::Coordinates(c) => self.numbers(&c),
            Val::Tensor(t) => {
                let f = self.load(t, span)?;
                Ok(if t.element { Val::Runtime(f.value) } else { Val::Fragment(f) })
            }
            Val::Bool(b) => self
                .b
                .emit_as(Arith::Const { value: Constant::Bool(b) }, Type::Scalar(Scalar::Bool))
                .map(Val::Runtime),
            Val::Float(x) => match like.unwrap_or(Scalar::F32) {
                s if s.is_float() && !s.is_fp8() => self.b.float(s, x).map(Val::Runtime),
                s => Err(Diagnostic::error(MISMATCH, span, format!("the literal {x} is not a value of {s}"))
                    .help("write an integer, or convert the other side: `.to<f32>()`")),
            },
            Val::Int(n) => match (n.as_const(), like) {
                (Some(n), Some(s)) if s.is_float() && !s.is_fp8() => {
                    self.b.float(s, n as f64).map(Val::Runtime)
                }
                (Some(n), Some(s)) if s.is_int() => self.b.int(s, n).map(Val::Runtime),
                (_, None | Some(Scalar::I64)) => self.b.index(n).map(Val::Runtime),
                (_, Some(s)) => {
                    let d = Diagnostic::error(MISMATCH, span, format!("expected {s}, found an `int`"));
                    Err(match s.is_int() {
                        true if s.bits() == 64 => d.help(format!(
                            "an `int` may be negative and {s} may not; `.to<{s}>()` converts it"
                        )),
                        true => {
                            let bits = s.bits();
                            d.help(format!("an `int` has 64 bits; `.to<{s}>()` keeps the lowest {bits}"))
                        }
                        false => d.help(format!("convert it: `.to<{s}>()`")),
                    })
                }
            },
            other => fail(WRONG_KIND, span, format!("expected a number, found {}", self.describe(&other))),
        }
    }

    /// Checks that the element type is `want`, if one is required.
    pub(super) fn check_elem(&self, val: Val, want: Option<Scalar>, span: Span) -> Result<Val> {
        let have = self.b.ty(raw(&val)).elem();
        match want {
            Some(w) if have != Some(w) => {
                Err(Diagnostic::error(MISMATCH, span, format!("expected {w}, found {}", self.describe(&val)))
                    .help(format!("convert it: `.to<{w}>()`")))
            }
            _ => Ok(val),
        }
    }

    /// Evaluates `.to<T>()`.
    pub(super) fn convert(&mut self, val: Val, to: Scalar, span: Span) -> Result<Val> {
        match (&val, to.is_float() && !to.is_fp8()) {
            (Val::Int(n), true) if n.as_const().is_some() => return self.scalar_or_frag(val, Some(to), span),
            (Val::Int(n), false) if n.as_const().is_some() && to.is_int() => {
                return self.scalar_or_frag(val, Some(to), span);
            }
            (Val::Float(_), true) => return self.scalar_or_frag(val, Some(to), span),
            _ => {}
        }
        let val = self.scalar_or_frag(val, None, span)?;
        let value = self.b.convert(raw(&val), to)?;
        Ok(with(val, value))
    }
}

/// The IR value of a run-time scalar or register tensor.
pub(super) fn raw(val: &Val) -> Value {
    match val {
        Val::Runtime(v) => *v,
        Val::Fragment(f) => f.value,
        // Callers pass the results of `scalar_or_frag`.
        _ => Value(u32::MAX),
    }
}

/// The same shape with another IR value.
pub(super) fn with(val: Val, value: Value) -> Val {
    match val {
        Val::Fragment(f) => Val::Fragment(Fragment { value, ..f }),
        _ => Val::Runtime(value),
    }
}

/// The result of an operation with two operands. A lane exists if it exists in both.
pub(super) fn join(a: Val, b: Val, value: Value) -> Val {
    match (a, b) {
        (Val::Fragment(mut f), Val::Fragment(g)) => {
            for bound in g.bounds {
                if !f.bounds.contains(&bound) {
                    f.bounds.push(bound);
                }
            }
            Val::Fragment(Fragment { value, ..f })
        }
        (Val::Fragment(f), _) | (_, Val::Fragment(f)) => Val::Fragment(Fragment { value, ..f }),
        _ => Val::Runtime(value),
    }
}

/// The value of a literal number.
fn literal(val: &Val) -> Option<f64> {
    match val {
        Val::Float(x) => Some(*x),
        Val::Int(n) => n.as_const().map(|n| n as f64),
        _ => None,
    }
}

fn float_binary(op: A, x: f64, y: f64) -> Option<Val> {
    Some(match op {
        A::Add => Val::Float(x + y),
        A::Sub => Val::Float(x - y),
        A::Mul => Val::Float(x * y),
        A::Div => Val::Float(x / y),
        A::Eq => Val::Bool(x == y),
        A::Ne => Val::Bool(x != y),
        A::Lt => Val::Bool(x < y),
        A::Le => Val::Bool(x <= y),
        A::Gt => Val::Bool(x > y),
        A::Ge => Val::Bool(x >= y),
        _ => return None,
    })
}
