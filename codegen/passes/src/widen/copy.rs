//! Emits the body of a loop for several rounds at once. A wide value has the lanes of the first
//! round, followed by those of the second round, and so on.

use super::plan::{Loop, Plan, ValueKind};
use crate::edit::Editor;
use rustc_hash::FxHashMap;
use std::sync::Arc;
use weft_ir::builder::Built;
use weft_ir::diag::Diagnostic;
use weft_ir::mixed::{Op, Type};
use weft_ir::{Arith, Bound, Int, IntTuple, Layout, Operation, TensorType, Value, ValueType, View};
use weft_layout::Var;

/// A body that is being emitted for several rounds.
pub(super) struct Wide<'a> {
    l: &'a Loop,
    plan: &'a Plan,
    /// The variable in the first round.
    start: &'a Int,
    /// The replacements of the body's values: one value for [`ValueKind::Same`] and tensors (that
    /// of the first round), and the wide value for [`ValueKind::Rounds`].
    copies: FxHashMap<Value, Value>,
}

impl Wide<'_> {
    pub fn new<'a>(l: &'a Loop, plan: &'a Plan, start: &'a Int) -> Wide<'a> {
        Wide { l, plan, start, copies: FxHashMap::default() }
    }

    /// Emits the ops that are the same in every round. They need nothing else, so they come first.
    pub fn same(&mut self, e: &mut Editor) -> Built<()> {
        for &v in &self.l.body.0 {
            if self.plan.kinds.get(&v) == Some(&ValueKind::Same) {
                let (op, ty) = (e.op(v), e.b.ty(v).clone());
                let copy = self.once(e, op, &ty, 0)?;
                self.copies.insert(v, copy);
            }
        }
        Ok(())
    }

    /// Emits the other ops of the body.
    pub fn emit(mut self, e: &mut Editor) -> Built<()> {
        for &v in &self.l.body.0 {
            let (op, ty) = (e.op(v), e.b.ty(v).clone());
            e.b.at(e.b.kernel().insts[v].span);
            let copy = match self.plan.kinds.get(&v) {
                Some(ValueKind::Same) => continue,
                Some(ValueKind::Tensor) => self.once(e, op, &ty, 0)?,
                Some(ValueKind::Rounds(_)) if op.is_pure() => match elementwise(&op, e) {
                    true => self.lanewise(e, op, &ty)?,
                    false => self.each(e, &op, &ty)?,
                },
                _ => self.access(e, &op)?,
            };
            self.copies.insert(v, copy);
        }
        Ok(())
    }

    fn rounds(&self) -> u32 {
        self.plan.rounds
    }

    /// An expression in one round. Its variables are the loop's variable, or values that are the
    /// same in every round.
    pub fn int(&self, expr: &Int, round: u32) -> Int {
        expr.subst(&mut |v| match v.id == self.l.var.0 {
            true => Some(self.start + &self.l.stride * i64::from(round)),
            false => {
                let copy = self.copies.get(&Value(v.id))?;
                Some(Int::var(Var { id: copy.0, name: copy.to_string().into(), ..v.clone() }))
            }
        })
    }

    fn tensor(&self, t: &TensorType, round: u32) -> Built<TensorType> {
        let layout = |l: &Layout| {
            let part = |t: &IntTuple| t.map(&mut |i| self.int(i, round));
            Layout::new(part(l.shape()), part(l.stride())).map_err(layout_error)
        };
        let bound = |b: &Bound| {
            Ok(Bound {
                limit: self.int(&b.limit, round),
                offset: self.int(&b.offset, round),
                layout: layout(&b.layout)?,
            })
        };
        let bounds = t.bounds.iter().map(bound).collect::<Built<_>>()?;
        Ok(TensorType { layout: layout(&t.layout)?, bounds, ..t.clone() })
    }

    /// Emits the op for one round.
    fn once(&self, e: &mut Editor, mut op: Op, ty: &Type, round: u32) -> Built<Value> {
        if let Op::View(View::Index { expr }) = &mut op {
            *expr = self.int(expr, round);
        } else if let Op::View(View::Part { base, offset }) = &mut op {
            *base = self.copies.get(base).copied().unwrap_or(*base);
            *offset = self.int(offset, round);
        } else {
            let parts = self.parts(e, &op, round)?;
            op.map_operands(&mut |x| parts.get(&x).copied().unwrap_or(x));
        }
        let ty = match ty {
            Type::Tensor(t) => Type::Tensor(Arc::new(self.tensor(t, round)?)),
            ty => ty.clone(),
        };
        e.b.emit_as(op, ty)
    }

    /// The operands of an op in one round.
    fn parts(&self, e: &mut Editor, op: &Op, round: u32) -> Built<FxHashMap<Value, Value>> {
        let mut parts = FxHashMap::default();
        for x in operands(op) {
            let part = match (self.copies.get(&x), self.plan.kinds.get(&x)) {
                _ if x == self.l.var => e.b.index(self.int(&self.l.symbol, round))?,
                (Some(wide), Some(ValueKind::Rounds(lanes))) => e.b.slice(*wide, round * lanes, *lanes)?,
                (Some(copy), _) => *copy,
                (None, _) => x,
            };
            parts.insert(x, part);
        }
        Ok(parts)
    }

    /// Emits a pure op round by round.
    fn each(&self, e: &mut Editor, op: &Op, ty: &Type) -> Built<Value> {
        let parts = (0..self.rounds()).map(|r| self.once(e, op.clone(), ty, r)).collect::<Built<Vec<_>>>()?;
        e.b.concat(parts)
    }

    /// Emits an elementwise op for all rounds at once.
    fn lanewise(&self, e: &mut Editor, mut op: Op, ty: &Type) -> Built<Value> {
        let mut wide = FxHashMap::default();
        for x in operands(&op) {
            wide.insert(x, self.wide(e, x)?);
        }
        op.map_operands(&mut |x| wide.get(&x).copied().unwrap_or(x));
        let ty = match (ty.elem(), ty.lanes()) {
            (Some(elem), Some(lanes)) => Type::lanes_of(elem, lanes * self.rounds()),
            _ => ty.clone(),
        };
        e.b.emit_as(op, ty)
    }

    /// The value for all rounds.
    fn wide(&self, e: &mut Editor, x: Value) -> Built<Value> {
        if x == self.l.var {
            let each = (0..self.rounds()).map(|r| e.b.index(self.int(&self.l.symbol, r)));
            let each = each.collect::<Built<Vec<_>>>()?;
            return e.b.concat(each);
        }
        let copy = self.copies.get(&x).copied().unwrap_or(x);
        if let Some(ValueKind::Rounds(_)) = self.plan.kinds.get(&x) {
            return Ok(copy);
        }
        match e.b.ty(copy).clone() {
            Type::Scalar(elem) => e.b.splat(copy, &Type::lanes_of(elem, self.rounds())),
            _ => e.b.concat(vec![copy; self.rounds() as usize]),
        }
    }

    /// Emits an access for all rounds at once. The place gets one more mode and no bounds, which
    /// are tested before.
    fn access(&self, e: &mut Editor, op: &Op) -> Built<Value> {
        let Some(op) = op.access() else { return Err(layout_error("an op that is not an access")) };
        let to = op.place();
        let first = self.copies.get(&to).copied().unwrap_or(to);
        let (Some(t), Some(stride)) = (e.b.ty(first).tensor().cloned(), self.plan.strides.get(&to)) else {
            return Err(layout_error("an access without a place"));
        };
        let with = |part: &IntTuple, last: Int| IntTuple::Tuple(vec![part.clone(), last.into()]);
        let shape = with(t.layout.shape(), self.rounds().into());
        let stride = with(t.layout.stride(), self.int(stride, 0));
        let layout = Layout::new(shape, stride).map_err(layout_error)?;
        let ty = TensorType { layout, bounds: Vec::new(), ..(*t).clone() };
        let wide = e.b.emit_as(View::Part { base: first, offset: Int::ZERO }, Type::Tensor(Arc::new(ty)))?;
        let new = match op.value() {
            Some(value) => Some(self.wide(e, value)?),
            None => None,
        };
        e.b.emit(op.moved(wide, new))
    }
}

fn operands(op: &Op) -> Vec<Value> {
    let mut all = Vec::new();
    op.operands(&mut |x| all.push(x));
    all
}

/// Whether lane `i` of the result depends only on lane `i` of the operands (or, for a bit cast, on
/// the bits there).
fn elementwise(op: &Op, e: &Editor) -> bool {
    match op.arith() {
        Some(
            Arith::Unary { .. }
            | Arith::Binary { .. }
            | Arith::Fma { .. }
            | Arith::Compare { .. }
            | Arith::Convert { .. }
            | Arith::Bitcast { .. },
        ) => true,
        Some(Arith::Select { c, a, .. }) => e.b.ty(*c).lanes() == e.b.ty(*a).lanes(),
        Some(
            Arith::Const { .. }
            | Arith::Splat { .. }
            | Arith::Concat { .. }
            | Arith::Slice { .. }
            | Arith::Extract { .. }
            | Arith::Insert { .. },
        )
        | None => false,
    }
}

fn layout_error(why: impl std::fmt::Display) -> Diagnostic {
    Diagnostic::error(crate::codes::NO_VALUE, weft_ir::diag::Span::NONE, why.to_string())
}
