//! The evaluation of expressions: names, literals, indices, conditions, calls.

use super::head::silent;
use super::value::{Fragment, Tensor, Val};
use super::words::{indices_for_modes, with_article};
use super::{Binding, Elab, MAX_CALLS, Result, builtin, fail, names};
use crate::ast::{self, Expr, ExprKind};
use crate::codes::meaning::{
    BAD_INDEX, LAYOUT, MISMATCH, NOT_CONSTANT, TOO_DEEP, TOO_LARGE, WRONG_ARGS, WRONG_KIND,
};
use std::borrow::Cow;
use std::sync::Arc;
use weft_ir::builder::moved;
use weft_ir::diag::{Diagnostic, Span};
use weft_ir::{Arith, Int, IntTuple, Layout, RedOp, Scalar, Type, ValueType};
use weft_layout::{Coord, MAX_LEAVES};

/// An evaluated call.
pub(super) struct Call<'e> {
    pub name: &'e str,
    pub span: Span,
    pub words: &'e [ast::Arg],
    pub args: Vec<(Option<&'e ast::Ident>, Val, Span)>,
}

impl Elab<'_> {
    /// The meaning of an expression.
    pub(super) fn expr(&mut self, e: &Expr) -> Result<Val> {
        self.b.at(e.span);
        match &e.kind {
            ExprKind::Int(n) => Ok(Val::Int((*n).into())),
            ExprKind::Float(x) => Ok(Val::Float(*x)),
            ExprKind::Bool(b) => Ok(Val::Bool(*b)),
            ExprKind::Str(s) => Ok(Val::Str(s.clone())),
            ExprKind::Underscore => Ok(Val::Whole),
            ExprKind::Name(name) => self.name(name),
            ExprKind::Paren(inner) => self.expr(inner),
            ExprKind::Tuple(items) => {
                let items = items.iter().map(|i| self.expr(i)).collect::<Result<Vec<_>>>()?;
                let leaves: usize = items.iter().map(Val::leaves).sum();
                if leaves > MAX_LEAVES {
                    return fail(
                        TOO_LARGE,
                        e.span,
                        format!("a tuple cannot have more than {MAX_LEAVES} elements"),
                    );
                }
                Ok(Val::Tuple(items))
            }
            ExprKind::Record(fields) => self.record(fields, e.span),
            ExprKind::Field { base, name } => {
                let base = self.expr(base)?;
                self.field(&base, name)
            }
            ExprKind::Unary(op, a) => {
                let a = self.expr(a)?;
                self.b.at(e.span);
                self.unary(*op, a, e.span)
            }
            ExprKind::Binary(..) => self.binary_chain(e),
            ExprKind::Layout(shape, stride) => {
                let (shape, stride) = (self.shape(shape)?, self.shape(stride)?);
                Layout::new(shape, stride)
                    .map(Val::Layout)
                    .map_err(|x| Diagnostic::error(LAYOUT, e.span, x.to_string()))
            }
            ExprKind::Range(lo, hi) => Ok(Val::Range(self.int(lo)?, self.int(hi)?)),
            ExprKind::Index { base, indices } => {
                let base = self.expr(base)?;
                let coords =
                    indices.iter().map(|i| Ok((self.expr(i)?, i.span))).collect::<Result<Vec<_>>>()?;
                self.b.at(e.span);
                self.index(base, &coords, e.span)
            }
            ExprKind::If { cond, then, otherwise } => self.if_value(cond, then, otherwise.as_ref(), e.span),
            ExprKind::Call { callee: name, .. } | ExprKind::Method { name, .. } if self.leaves_out(name) => {
                Ok(Val::Unit)
            }
            ExprKind::Call { callee, generics, args } => {
                let args = self.args(args)?;
                self.b.at(e.span);
                let words = &self.spelled(generics);
                self.call(callee, Call { name: &callee.name, span: e.span, words, args })
            }
            ExprKind::Method { recv, name, generics, args } => {
                let mut all = vec![(None, self.expr(recv)?, recv.span)];
                all.extend(self.args(args)?);
                self.b.at(e.span);
                let words = &self.spelled(generics);
                self.call(name, Call { name: &name.name, span: e.span, words, args: all })
            }
        }
    }

    /// Evaluates `(x = a, y = b)`.
    fn record(&mut self, fields: &[(ast::Ident, Expr)], span: Span) -> Result<Val> {
        let mut out: Vec<(Arc<str>, Val)> = Vec::new();
        for (name, value) in fields {
            if out.iter().any(|(n, _)| *n == name.name) {
                return fail(WRONG_ARGS, name.span, format!("the field `{name}` occurs twice"));
            }
            out.push((name.name.clone(), self.expr(value)?));
        }
        let out = Val::Record(out);
        if out.leaves() > MAX_LEAVES {
            return fail(TOO_LARGE, span, format!("a tuple cannot have more than {MAX_LEAVES} elements"));
        }
        Ok(out)
    }

    /// Evaluates `r.x`.
    fn field(&mut self, base: &Val, name: &ast::Ident) -> Result<Val> {
        let Val::Record(fields) = base else {
            return Err(Diagnostic::error(
                WRONG_KIND,
                name.span,
                format!("{} has no field `{name}`", self.describe(base)),
            )
            .help(format!("call the method with parentheses: `.{name}()`")));
        };
        let found = fields.iter().find(|(n, _)| *n == name.name);
        let no_field = || names::no_field(fields.iter().map(|(n, _)| &**n), name);
        found.map(|(_, v)| v.clone()).ok_or_else(no_field)
    }

    fn args<'e>(&mut self, args: &'e [ast::Arg]) -> Result<Vec<(Option<&'e ast::Ident>, Val, Span)>> {
        args.iter().map(|a| Ok((a.name.as_ref(), self.expr(&a.value)?, a.value.span))).collect()
    }

    fn name(&mut self, name: &ast::Ident) -> Result<Val> {
        match self.lookup(&name.name).cloned() {
            Some(Binding::Val(Val::Error)) => Err(silent()),
            Some(Binding::Val(v)) => Ok(v),
            Some(Binding::Local(local, fragment)) => {
                let value = self.b.get(local)?;
                self.varying.insert(value);
                match (fragment, self.b.ty(value)) {
                    (Some(fragment), _) => Ok(Val::Fragment(Fragment { value, ..fragment })),
                    (None, Type::Accumulator(ty)) => Ok(Val::Accumulator(value, *ty)),
                    (None, Type::Scalar(Scalar::I64)) => Ok(Val::Int(self.symbol(value)?)),
                    _ => Ok(Val::Runtime(value)),
                }
            }
            None => match self.program.library.consts.get(&name.name) {
                Some(c) => {
                    self.check_size(c.span)?;
                    self.in_callee(c.span, |e| e.expr(&c.value))
                }
                None if builtin::word(&name.name) => Ok(Val::Str(name.name.clone())),
                None => Err(self.unknown(name)),
            },
        }
    }

    fn unknown(&self, name: &ast::Ident) -> Diagnostic {
        let scope = self.scopes.iter().flat_map(|s| s.keys()).map(|k| &**k);
        names::unknown(self.program, scope, name)
    }

    /// Runs `f` one call deeper, with only global names in scope.
    pub(super) fn in_callee<T>(&mut self, span: Span, f: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        if self.calls >= MAX_CALLS {
            return Err(Diagnostic::error(TOO_DEEP, span, format!("calls nest deeper than {MAX_CALLS}"))
                .help("functions are inlined and cannot recurse, and a constant cannot refer to itself"));
        }
        let floor = std::mem::replace(&mut self.floor, self.scopes.len());
        self.calls += 1;
        let out = self.scoped(f);
        self.calls -= 1;
        self.floor = floor;
        out
    }

    /// Whether this is a call of `assert` that is left out together with its arguments.
    fn leaves_out(&self, callee: &ast::Ident) -> bool {
        !self.asserts
            && &*callee.name == "assert"
            && !self.program.library.functions.contains_key(&callee.name)
    }

    fn call(&mut self, callee: &ast::Ident, call: Call<'_>) -> Result<Val> {
        self.check_size(call.span)?;
        if let Some(Binding::Val(Val::Function(f))) = self.lookup(&callee.name).cloned() {
            return self.inline(&f, call);
        }
        if let Some(f) = self.program.library.functions.get(&callee.name).cloned() {
            return self.inline(&f, call);
        }
        match builtin::find(&callee.name) {
            Some(b) => (b.run)(self, &call),
            None => Err(self.unknown(callee)),
        }
    }

    /// The words in angle brackets, in which a parameter that stands for a reduction is replaced by
    /// the reduction's name.
    fn spelled<'w>(&self, words: &'w [ast::Arg]) -> Cow<'w, [ast::Arg]> {
        let op = |w: &ast::Arg| match &w.value.kind {
            ExprKind::Name(n) => match self.lookup(&n.name) {
                Some(Binding::Val(Val::Reduction(op))) => Some(*op),
                _ => None,
            },
            _ => None,
        };
        if !words.iter().any(|w| op(w).is_some()) {
            return Cow::Borrowed(words);
        }
        let mut words = words.to_vec();
        for w in &mut words {
            if let (Some(op), ExprKind::Name(n)) = (op(w), &mut w.value.kind) {
                n.name = op.name().into();
            }
        }
        Cow::Owned(words)
    }

    /// A compile-time argument of a function.
    fn generic_argument(&mut self, w: &ast::Arg, g: Option<&ast::GenericParam>) -> Result<Val> {
        match (&w.value.kind, g) {
            (ExprKind::Name(n), Some(g)) if &*g.bound.name == "reduction" => match RedOp::parse(&n.name) {
                Some(op) => Ok(Val::Reduction(op)),
                None => fail(WRONG_ARGS, w.value.span, format!("`{}` is not a reduction", n.name)),
            },
            (ExprKind::Name(n), Some(g)) if &*g.bound.name == "fn" => self.function_named(n),
            (_, Some(g)) if &*g.bound.name == "fn" => fail(
                WRONG_ARGS,
                w.value.span,
                format!("the parameter `{}` is a function: pass the name of one", g.name),
            ),
            _ => self.expr(&w.value),
        }
    }

    /// A function of the text, or the function for which a parameter stands.
    fn function_named(&self, name: &ast::Ident) -> Result<Val> {
        if let Some(Binding::Val(f @ Val::Function(_))) = self.lookup(&name.name) {
            return Ok(f.clone());
        }
        match self.program.library.functions.get(&name.name) {
            Some(f) => Ok(Val::Function(Arc::new(f.as_ref().clone()))),
            None => Err(names::no_function(name)),
        }
    }

    fn inline(&mut self, f: &ast::Function, call: Call<'_>) -> Result<Val> {
        if let Some(wrong) = wrong_count(f, call.args.len(), call.words.len(), call.span) {
            return Err(wrong);
        }
        // The words in brackets are evaluated in the scope of the call.
        let given = call.words.iter().enumerate();
        let given =
            given.map(|(i, w)| self.generic_argument(w, f.generics.get(i))).collect::<Result<Vec<_>>>()?;
        let out = self.in_callee(call.span, |e| {
            for (i, g) in f.generics.iter().enumerate() {
                let val = match (given.get(i), &g.default) {
                    (Some(v), _) => v.clone(),
                    (None, Some(d)) => e.expr(d)?,
                    (None, None) => infer(e, f, g, &call.args).ok_or_else(|| {
                        Diagnostic::error(
                            WRONG_ARGS,
                            call.span,
                            format!("the argument for `{}` is missing", g.name.name),
                        )
                    })?,
                };
                e.bind(&g.name, Binding::Val(val));
            }
            let mut placed = vec![None; f.params.len()];
            for (i, (name, val, span)) in call.args.iter().enumerate() {
                let at = match name {
                    Some(n) => f.params.iter().position(|p| p.name.name == n.name),
                    None => Some(i),
                };
                match at.and_then(|at| placed.get_mut(at)) {
                    Some(slot @ None) => *slot = Some((val.clone(), *span)),
                    _ => {
                        return fail(
                            WRONG_ARGS,
                            *span,
                            format!(
                                "`{}` has no such parameter, or the parameter has an argument already",
                                f.name.name
                            ),
                        );
                    }
                }
            }
            for (p, slot) in f.params.iter().zip(placed) {
                let Some((val, span)) = slot else {
                    return fail(
                        WRONG_ARGS,
                        call.span,
                        format!("the argument for `{}` is missing", p.name.name),
                    );
                };
                let val = match &p.ty {
                    Some(ty) => e.fit(val, ty, span)?,
                    None => val,
                };
                e.bind(&p.name, Binding::Val(val));
            }
            let val = e.function_body(f)?;
            match &f.ret {
                Some(ty) => e.fit(val, ty, f.span),
                None => Ok(val),
            }
        })?;
        self.b.at(call.span);
        Ok(out)
    }

    /// Converts a value to the type that the text states. A scalar takes the type, and other values
    /// must be of its kind.
    pub(super) fn fit(&mut self, val: Val, ty: &ast::TypeExpr, span: Span) -> Result<Val> {
        let name = &*ty.name.name;
        let dtype = match self.lookup(name) {
            Some(Binding::Val(Val::Dtype(s))) => Some(*s),
            _ => None,
        };
        let ok = match (name, &val) {
            (
                _,
                Val::Int(_)
                | Val::Float(_)
                | Val::Bool(_)
                | Val::Runtime(_)
                | Val::Fragment(_)
                | Val::Tensor(_),
            ) if dtype.is_some() => {
                let v = self.scalar_or_frag(val, dtype, span)?;
                return self.check_elem(v, dtype, span);
            }
            ("int", Val::Runtime(_)) => return self.as_int(val, span).map(Val::Int),
            ("int", Val::Int(_)) | ("team", Val::Team(_)) | ("barrier", Val::Barrier(_)) => true,
            ("layout", Val::Layout(_)) | ("threads", Val::Threads(_)) | ("dtype", Val::Dtype(_)) => true,
            ("tensor" | "symm" | "global" | "peer" | "multicast" | "shared", Val::Tensor(t)) => {
                name == "tensor" || self.b.ty(t.value).space().is_some_and(|s| s.name() == name)
            }
            ("register", Val::Fragment(_)) => true,
            _ => false,
        };
        if ok {
            Ok(val)
        } else {
            fail(MISMATCH, span, format!("expected `{name}`, found {}", self.describe(&val)))
        }
    }

    /// A description of a value, with its type if it has one.
    pub(super) fn describe(&self, val: &Val) -> String {
        match val {
            Val::Runtime(v) => with_article(self.b.ty(*v)),
            Val::Fragment(f) => format!("a register tensor {}", self.b.ty(f.value)),
            Val::Tensor(t) => with_article(self.b.ty(t.value)),
            Val::Int(n) if n.as_const().is_some() => format!("the integer {n}"),
            other => other.kind().to_owned(),
        }
    }

    /// Evaluates an expression that must be an integer, known at compile time or symbolic.
    pub(super) fn int(&mut self, e: &Expr) -> Result<Int> {
        let val = self.expr(e)?;
        self.as_int(val, e.span)
    }

    /// Evaluates an expression that must be a compile-time integer.
    pub(super) fn constant(&mut self, e: &Expr) -> Result<i64> {
        let n = self.int(e)?;
        n.as_const().ok_or_else(|| {
            Diagnostic::error(NOT_CONSTANT, e.span, "this must be known when the kernel is compiled")
                .help("use a literal, a constant or a compile-time parameter")
        })
    }

    pub(super) fn as_int(&mut self, val: Val, span: Span) -> Result<Int> {
        match val {
            Val::Int(n) => Ok(n),
            Val::Tensor(t) => {
                let f = self.load(t, span)?;
                self.as_int(Val::Runtime(f.value), span)
            }
            Val::Fragment(f) if matches!(self.b.ty(f.value), Type::Scalar(_)) => {
                self.as_int(Val::Runtime(f.value), span)
            }
            Val::Runtime(v) => match self.b.ty(v) {
                Type::Scalar(Scalar::I32 | Scalar::I64) => self.symbol(v),
                Type::Scalar(s) if s.is_int() => {
                    let wide = self.b.convert(v, Scalar::I64)?;
                    self.symbol(wide)
                }
                other => {
                    let message = format!("expected an integer, found {}", with_article(other));
                    Err(Diagnostic::error(WRONG_KIND, span, message).help("convert it: `.to<int>()`"))
                }
            },
            other => fail(WRONG_KIND, span, format!("expected an integer, found {}", self.describe(&other))),
        }
    }

    /// A shape or stride as written. Parentheses make a tuple, even of one element.
    pub(super) fn shape(&mut self, e: &Expr) -> Result<IntTuple> {
        match &e.kind {
            ExprKind::Paren(inner) => Ok(IntTuple::Tuple(vec![self.shape(inner)?])),
            ExprKind::Tuple(items) => {
                items.iter().map(|i| self.shape(i)).collect::<Result<_>>().map(IntTuple::Tuple)
            }
            _ => {
                let val = self.expr(e)?;
                self.as_tuple(&val, e.span)
            }
        }
    }

    /// The value as an integer or as tuples of integers.
    pub(super) fn as_tuple(&mut self, val: &Val, span: Span) -> Result<IntTuple> {
        match val {
            Val::Tuple(items) => {
                items.iter().map(|i| self.as_tuple(i, span)).collect::<Result<_>>().map(IntTuple::Tuple)
            }
            other => self.as_int(other.clone(), span).map(IntTuple::Int),
        }
    }

    /// Evaluates an expression that must be a layout. A shape stands for its compact column-major
    /// layout.
    pub(super) fn layout(&mut self, e: &Expr) -> Result<Layout> {
        let val = match &e.kind {
            ExprKind::Paren(_) => match self.shape(e)? {
                // `((8):(1))` is a layout in parentheses, and `(8)` is a shape.
                IntTuple::Tuple(_) if matches!(peel(e).kind, ExprKind::Layout(..)) => self.expr(e)?,
                shape => {
                    return Layout::col_major(shape)
                        .map_err(|x| Diagnostic::error(LAYOUT, e.span, x.to_string()));
                }
            },
            _ => self.expr(e)?,
        };
        self.as_layout(val, e.span)
    }

    pub(super) fn as_layout(&mut self, val: Val, span: Span) -> Result<Layout> {
        match val {
            Val::Layout(l) => Ok(l),
            Val::Tensor(t) => Ok(self.tensor_type_of(t).layout.clone()),
            Val::Int(_) | Val::Tuple(_) => {
                let shape = self.as_tuple(&val, span)?;
                Layout::col_major(shape).map_err(|x| Diagnostic::error(LAYOUT, span, x.to_string()))
            }
            other => fail(WRONG_KIND, span, format!("expected a layout, found {}", self.describe(&other))),
        }
    }

    fn index(&mut self, base: Val, coords: &[(Val, Span)], span: Span) -> Result<Val> {
        match base {
            Val::Tensor(t) => self.slice(t, coords, span).map(Val::Tensor),
            Val::Fragment(f) => self.lanes(&f, coords, span),
            Val::Accumulator(acc, ty) => self.accumulated((acc, ty), coords, span),
            Val::Layout(l) => {
                let coord = self.coord(coords, l.shape(), span)?;
                let bad = |x: weft_layout::LayoutError| Diagnostic::error(LAYOUT, span, x.to_string());
                if coord.has_all() {
                    l.slice(&coord).map(Val::Layout).map_err(bad)
                } else {
                    l.slice_and_offset(&coord).map(|(_, offset)| Val::Int(offset)).map_err(bad)
                }
            }
            Val::Tuple(items) => match coords {
                [(i, at)] => {
                    let i = self.as_int(i.clone(), *at)?;
                    let found = i.as_const().and_then(|i| usize::try_from(i).ok()).and_then(|i| items.get(i));
                    found.cloned().ok_or_else(|| {
                        Diagnostic::error(
                            BAD_INDEX,
                            *at,
                            format!("the tuple has modes 0 to {}", items.len().saturating_sub(1)),
                        )
                    })
                }
                _ => fail(BAD_INDEX, span, "a tuple must be indexed with one constant"),
            },
            other => fail(WRONG_KIND, span, format!("{} has no elements", self.describe(&other))),
        }
    }

    /// The indices as a coordinate of that shape. A single index for several modes is linear.
    pub(super) fn coord(&mut self, coords: &[(Val, Span)], shape: &IntTuple, span: Span) -> Result<Coord> {
        let rank = shape.as_tuple().map_or(1, <[IntTuple]>::len);
        if coords.len() != rank && coords.len() != 1 {
            return Err(Diagnostic::error(BAD_INDEX, span, indices_for_modes(coords.len(), rank)).help(
                "write one index for each mode, where `_` keeps a whole mode, or a single linear index",
            ));
        }
        let mut all = coords.iter().map(|(v, at)| self.as_coord(v, *at)).collect::<Result<Vec<_>>>()?;
        let linear = all.len() == 1 && (rank != 1 || shape.as_tuple().is_none());
        Ok(if linear { all.remove(0) } else { Coord::Tuple(all) })
    }

    fn as_coord(&mut self, val: &Val, span: Span) -> Result<Coord> {
        match val {
            Val::Whole => Ok(Coord::All),
            Val::Tuple(items) => {
                items.iter().map(|i| self.as_coord(i, span)).collect::<Result<_>>().map(Coord::Tuple)
            }
            other => self.as_int(other.clone(), span).map(Coord::Int),
        }
    }

    /// The lanes of a register tensor at the indices: one lane, or those of the kept modes.
    fn lanes(&mut self, f: &Fragment, coords: &[(Val, Span)], span: Span) -> Result<Val> {
        let layout = self.fragment_layout(f, span)?;
        let coord = self.coord(coords, layout.shape(), span)?;
        let bad = |x: weft_layout::LayoutError| Diagnostic::error(BAD_INDEX, span, x.to_string());
        let (rest, offset) = layout.slice_and_offset(&coord).map_err(bad)?;
        if f.distribution.is_some() {
            return Err(Diagnostic::error(
                BAD_INDEX,
                span,
                "this tensor is distributed over the CTA, so a thread has only some of its elements",
            )
            .help("partition the tensor in memory yourself to index parts of it"));
        }
        if !coord.has_all() {
            if matches!(self.b.ty(f.value), Type::Scalar(_)) {
                return Ok(Val::Runtime(f.value));
            }
            let lane = self.b.index(offset)?;
            return self.b.emit(Arith::Extract { a: f.value, lane }).map(Val::Runtime);
        }
        let elem = self.b.ty(f.value).elem().unwrap_or(Scalar::F32);
        let mut parts = Vec::new();
        let n = rest.size().as_const().unwrap_or(0);
        for i in 0..n {
            let at = rest.crd2idx(&Int::from(i).into()).map_err(bad)? + &offset;
            let lane = self.b.index(at)?;
            parts.push(self.b.emit(Arith::Extract { a: f.value, lane })?);
        }
        let value = self.b.emit_as(Arith::Concat { parts }, Type::lanes_of(elem, n as u32))?;
        let bounds = moved(&f.bounds, |l| l.slice_and_offset(&coord)).map_err(bad)?;
        Ok(Val::Fragment(Fragment {
            value,
            shape: rest.shape().clone(),
            bounds,
            distribution: None,
            order: f.order,
        }))
    }

    /// The layout from coordinates to the lanes of a register tensor.
    pub(super) fn fragment_layout(&self, f: &Fragment, span: Span) -> Result<Layout> {
        Layout::col_major(f.shape.clone()).map_err(|x| Diagnostic::error(LAYOUT, span, x.to_string()))
    }

    /// The type of a tensor.
    pub(super) fn tensor_type_of(&self, t: Tensor) -> Arc<weft_ir::TensorType> {
        match self.b.ty(t.value) {
            Type::Tensor(ty) => ty.clone(),
            // A `Tensor` always has a value of tensor type.
            _ => Arc::new(weft_ir::TensorType {
                elem: Scalar::F32,
                layout: Layout::one(),
                swizzle: None,
                space: weft_ir::Space::Global,
                align: 1,
                bounds: Vec::new(),
            }),
        }
    }
}

fn peel(e: &Expr) -> &Expr {
    match &e.kind {
        ExprKind::Paren(inner) => peel(inner),
        _ => e,
    }
}

/// The error if a call of a function of the text has a wrong number of arguments or of compile-time
/// arguments.
pub(super) fn wrong_count(f: &ast::Function, args: usize, words: usize, span: Span) -> Option<Diagnostic> {
    let name = &f.name.name;
    if args != f.params.len() {
        let message = format!("`{name}` takes {} arguments, not {args}", f.params.len());
        return Some(Diagnostic::error(WRONG_ARGS, span, message).related(f.span, "defined here"));
    }
    let message = format!("`{name}` has {} compile-time parameters", f.generics.len());
    (words > f.generics.len()).then(|| Diagnostic::error(WRONG_ARGS, span, message))
}

/// Infers a function's compile-time parameter from the types of its arguments: `fn f<T: float>(x:
/// symm<T>)`, `fn f<T: dtype>(v: T)`.
fn infer(
    e: &Elab<'_>,
    f: &ast::Function,
    g: &ast::GenericParam,
    args: &[(Option<&ast::Ident>, Val, Span)],
) -> Option<Val> {
    f.params.iter().zip(args).find_map(|(p, (_, val, _))| {
        let ty = p.ty.as_ref()?;
        let first = ty.args.first().map(|a| &a.value.kind);
        let named =
            ty.name.name == g.name.name || matches!(first, Some(ExprKind::Name(n)) if n.name == g.name.name);
        if !named {
            return None;
        }
        match val {
            Val::Runtime(v) => e.b.ty(*v).elem().map(Val::Dtype),
            Val::Fragment(f) => e.b.ty(f.value).elem().map(Val::Dtype),
            Val::Tensor(t) => e.b.ty(t.value).elem().map(Val::Dtype),
            _ => None,
        }
    })
}
