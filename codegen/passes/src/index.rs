//! Turns symbolic integers into 64-bit arithmetic. Equal expressions are computed once if one
//! computation is visible to both uses. Quotients that a loop does not change are computed before
//! it.

use crate::codes::NO_VALUE;
use crate::edit::{Action, Editor, Emit, Rewrite, rewrite};
use crate::{Options, Report};
use rustc_hash::{FxHashMap, FxHashSet};
use weft_ir::builder::Built;
use weft_ir::diag::{Diagnostic, Span};
use weft_ir::mixed::{Builder, Kernel, Type};
use weft_ir::{Arith, BinOp, Block, CmpOp, Control, Int, Operation, Scalar, Value, View};
use weft_layout::{Node, Poison};

/// Runs the pass on a kernel.
pub(crate) fn run(kernel: Kernel, _: &Options, _: &mut Report) -> Result<Kernel, Vec<Diagnostic>> {
    rewrite(kernel, &mut Index { known: vec![FxHashMap::default()] })
}

struct Index {
    /// The values that are computed already, by block, outermost first.
    known: Vec<FxHashMap<Int, Value>>,
}

impl Rewrite for Index {
    fn op(&mut self, e: &mut Editor, v: Value) -> Built<Action> {
        if let Some(Control::For { .. }) = e.b.kernel().op(v).control() {
            self.before_loop(e, v)?;
        }
        let Some(View::Index { expr }) = e.b.kernel().op(v).view() else { return Ok(Action::Keep) };
        let expr = expr.clone();
        let span = e.b.kernel().insts[v].span;
        self.value(&mut e.b, &expr, span).map(Action::Become)
    }

    fn enter(&mut self) {
        self.known.push(FxHashMap::default());
    }

    fn leave(&mut self) {
        self.known.pop();
    }
}

/// The values that the blocks of a loop compute.
#[derive(Default)]
struct Inside {
    values: FxHashSet<u32>,
    expressions: Vec<Int>,
}

impl Inside {
    fn op(&mut self, k: &Kernel, v: Value) {
        let op = k.op(v);
        self.values.insert(v.0);
        if let Some(Control::For { var, .. }) = op.control() {
            self.values.insert(var.0.0);
        }
        if let Some(View::Index { expr }) = op.view() {
            self.expressions.push(expr.clone());
        }
        op.blocks().into_iter().for_each(|block: &Block| block.0.iter().for_each(|v| self.op(k, *v)));
    }

    /// The quotients and remainders of an expression that do not change in the loop.
    fn fixed(&self, e: &Int, found: &mut Vec<Int>) {
        let mut changes = false;
        e.vars(&mut |x| changes |= self.values.contains(&x.id));
        match e.node() {
            Node::FloorDiv(_, y) | Node::CeilDiv(_, y) | Node::Rem(_, y)
                if !changes && y.as_const().is_none() =>
            {
                found.push(e.clone());
            }
            _ => parts(e).into_iter().for_each(|part| self.fixed(part, found)),
        }
    }
}

impl Index {
    /// Computes the quotients that a loop does not change before the loop. LLVM does not move them
    /// there, because the loop might have no round. Here a quotient by 0 has a value too.
    fn before_loop(&mut self, e: &mut Editor, v: Value) -> Built<()> {
        let mut inside = Inside::default();
        inside.op(e.b.kernel(), v);
        let span = e.b.kernel().insts[v].span;
        let mut found = Vec::new();
        inside.expressions.iter().for_each(|expr| inside.fixed(expr, &mut found));
        found.iter().try_for_each(|quotient| {
            let quotient = e.current(quotient);
            self.value(&mut e.b, &quotient, span).map(drop)
        })
    }

    fn value(&mut self, b: &mut Builder, e: &Int, span: Span) -> Built<Value> {
        if let Some(v) = self.known.iter().rev().find_map(|scope| scope.get(e)) {
            return Ok(*v);
        }
        let v = self.compute(b, e, span)?;
        if let Some(scope) = self.known.last_mut() {
            scope.insert(e.clone(), v);
        }
        Ok(v)
    }

    fn compute(&mut self, b: &mut Builder, e: &Int, span: Span) -> Built<Value> {
        match e.node() {
            Node::Const(n) => b.i64(n),
            Node::Var(var) => b.convert(Value(var.id), Scalar::I64),
            Node::Add(terms) => self.sum(b, terms, span),
            Node::Mul(factors) => self.fold(b, BinOp::Mul, factors, span),
            Node::FloorDiv(x, y) => self.floor_div(b, x, y, span),
            Node::CeilDiv(x, y) => self.ceil_div(b, x, y, span),
            Node::Rem(x, y) => self.rem(b, x, y, span),
            Node::Min(x, y) => self.binary(b, BinOp::Min, x, y, span),
            Node::Max(x, y) => self.binary(b, BinOp::Max, x, y, span),
            Node::And(x, y) => self.binary(b, BinOp::And, x, y, span),
            Node::Xor(x, y) => self.binary(b, BinOp::Xor, x, y, span),
            Node::Poison(p) => Err(poison(p, span)),
        }
    }

    fn binary(&mut self, b: &mut Builder, op: BinOp, x: &Int, y: &Int, span: Span) -> Built<Value> {
        let (x, y) = (self.value(b, x, span)?, self.value(b, y, span)?);
        b.binary(op, x, y)
    }

    fn fold(&mut self, b: &mut Builder, op: BinOp, parts: &[Int], span: Span) -> Built<Value> {
        let mut all = None;
        for part in parts {
            let x = self.value(b, part, span)?;
            all = Some(match all {
                None => x,
                Some(before) => b.binary(op, before, x)?,
            });
        }
        all.map_or_else(|| b.i64(i64::from(op == BinOp::Mul)), Ok)
    }

    /// The sum without its constant is shared with other offsets. Terms that are subtracted are
    /// computed as positive terms.
    fn sum(&mut self, b: &mut Builder, terms: &[Int], span: Span) -> Built<Value> {
        if let [rest @ .., _, last] = terms
            && !rest.is_empty()
            && let Some(c) = last.as_const()
        {
            let terms = &terms[..terms.len() - 1];
            let rest = terms.iter().fold(Int::ZERO, |sum, t| sum + t);
            let (rest, c) = (self.value(b, &rest, span)?, b.i64(c)?);
            return b.binary(BinOp::Add, rest, c);
        }
        let negated = |t: &Int| matches!(t.node(), Node::Mul([.., c]) if c.as_const().is_some_and(|c| c < 0));
        let (minus, plus): (Vec<_>, Vec<_>) = terms.iter().cloned().partition(negated);
        let mut sum = match plus[..] {
            [] => b.i64(0)?,
            _ => self.fold(b, BinOp::Add, &plus, span)?,
        };
        for term in minus {
            let x = self.value(b, &-term, span)?;
            sum = b.binary(BinOp::Sub, sum, x)?;
        }
        Ok(sum)
    }

    fn floor_div(&mut self, b: &mut Builder, x: &Int, y: &Int, span: Span) -> Built<Value> {
        if let Some(shift) = power_of_two(y) {
            // An arithmetic shift rounds toward negative infinity.
            return self.shift(b, x, shift, span);
        }
        if natural(x) && natural(y) {
            return self.unsigned(b, BinOp::Div, x, y, span);
        }
        let (q, wrong) = self.truncated(b, x, y, span)?;
        let one = b.i64(1)?;
        let below = b.binary(BinOp::Sub, q, one)?;
        b.select(wrong, below, q)
    }

    fn ceil_div(&mut self, b: &mut Builder, x: &Int, y: &Int, span: Span) -> Built<Value> {
        if let Some(shift) = power_of_two(y) {
            let up = x + ((1i64 << shift) - 1);
            return self.shift(b, &up, shift, span);
        }
        if x.lower_bound() >= 1 && natural(y) {
            // The expression (x + y - 1) / y is avoided, because x alone can be known to fit 32
            // bits.
            let before = self.unsigned(b, BinOp::Div, &(x - 1), y, span)?;
            let one = b.i64(1)?;
            return b.binary(BinOp::Add, before, one);
        }
        if natural(x) && y.lower_bound() >= 1 {
            return self.unsigned(b, BinOp::Div, &(x + (y - 1)), y, span);
        }
        let floor = self.floor_div(b, &-x, y, span)?;
        let zero = b.i64(0)?;
        b.binary(BinOp::Sub, zero, floor)
    }

    fn rem(&mut self, b: &mut Builder, x: &Int, y: &Int, span: Span) -> Built<Value> {
        if let Some(shift) = power_of_two(y) {
            let x = self.value(b, x, span)?;
            let mask = b.i64((1 << shift) - 1)?;
            return b.binary(BinOp::And, x, mask);
        }
        if natural(x) && natural(y) {
            return self.unsigned(b, BinOp::Rem, x, y, span);
        }
        let q = self.floor_div(b, x, y, span)?;
        let (x, y) = (self.value(b, x, span)?, self.value(b, y, span)?);
        let whole = b.binary(BinOp::Mul, q, y)?;
        b.binary(BinOp::Sub, x, whole)
    }

    fn shift(&mut self, b: &mut Builder, x: &Int, by: u32, span: Span) -> Built<Value> {
        let x = self.value(b, x, span)?;
        let by = b.i64(by.into())?;
        b.binary(BinOp::Shr, x, by)
    }

    /// Unsigned division is cheaper than signed division, and 32-bit division is much cheaper than
    /// 64-bit division.
    fn unsigned(&mut self, b: &mut Builder, op: BinOp, x: &Int, y: &Int, span: Span) -> Built<Value> {
        const MAX_NARROW: i64 = u32::MAX as i64;
        let narrow = x.upper_bound().is_some_and(|x| x < MAX_NARROW);
        // A divisor that does not fit 32 bits is greater than the dividend, and so is the greatest
        // one that fits.
        let y = if narrow { y.min(&Int::from(MAX_NARROW)) } else { y.clone() };
        let (x, y) = (self.value(b, x, span)?, self.value(b, &y, span)?);
        let mut cast = |a, to| match narrow {
            true => b.convert(a, to),
            false => b.emit_as(Arith::Bitcast { a }, Type::Scalar(to)),
        };
        let wide = if narrow { Scalar::U32 } else { Scalar::U64 };
        let (x, y) = (cast(x, wide)?, cast(y, wide)?);
        let q = b.binary(op, x, y)?;
        b.emit_as(
            if narrow { Arith::Convert { a: q } } else { Arith::Bitcast { a: q } },
            Type::Scalar(Scalar::I64),
        )
    }

    /// The quotient rounded toward zero, and whether the floor is one less.
    fn truncated(&mut self, b: &mut Builder, x: &Int, y: &Int, span: Span) -> Built<(Value, Value)> {
        let (x, y) = (self.value(b, x, span)?, self.value(b, y, span)?);
        let q = b.binary(BinOp::Div, x, y)?;
        let rest = b.binary(BinOp::Rem, x, y)?;
        let zero = b.i64(0)?;
        let exact = b.compare(CmpOp::Ne, rest, zero)?;
        // The remainder has the sign of the dividend. It differs from the sign of the divisor if
        // their exclusive or is negative.
        let signs = b.binary(BinOp::Xor, rest, y)?;
        let differ = b.compare(CmpOp::Lt, signs, zero)?;
        Ok((q, b.binary(BinOp::And, exact, differ)?))
    }
}

/// The direct subexpressions of an expression.
fn parts(e: &Int) -> Vec<&Int> {
    match e.node() {
        Node::Const(_) | Node::Var(_) | Node::Poison(_) => Vec::new(),
        Node::Add(list) | Node::Mul(list) => list.iter().collect(),
        Node::FloorDiv(a, b)
        | Node::CeilDiv(a, b)
        | Node::Rem(a, b)
        | Node::Min(a, b)
        | Node::Max(a, b)
        | Node::And(a, b)
        | Node::Xor(a, b) => vec![a, b],
    }
}

fn natural(x: &Int) -> bool {
    x.lower_bound() >= 0
}

fn power_of_two(x: &Int) -> Option<u32> {
    x.as_const().filter(|n| *n > 0 && n.count_ones() == 1).map(i64::trailing_zeros)
}

/// The error for an expression without a value.
pub(crate) fn poison(why: Poison, span: Span) -> Diagnostic {
    let (what, help) = match why {
        Poison::Overflow => ("leaves 64 bits", "make the tile or the tensor smaller"),
        Poison::Undefined => ("divides by zero", "an extent here must not be 0"),
        Poison::TooComplex => ("has too many terms", "bind some of its variables to constants"),
    };
    Diagnostic::error(NO_VALUE, span, format!("an index or extent here {what}")).help(help)
}
