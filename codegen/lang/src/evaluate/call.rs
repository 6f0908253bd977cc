//! The functions that a reference function can call: some functions of the language, and functions
//! of the text.

use super::number::{FUNCTIONS, Number, Real};
use super::{Result, Run, Value};
use crate::ast::{self, ExprKind};
use crate::codes::meaning::{BAD_INDEX, UNKNOWN_NAME, WRONG_ARGS, WRONG_KIND};
use crate::elaborate::fail;
use weft_ir::diag::{Diagnostic, Span};
use weft_ir::{NumberKind, Scalar};

/// A function of the language: its name, the number of its arguments, and its evaluation.
type Row = (&'static str, usize, fn(&mut Run<'_>, &[ast::Arg], Span) -> Result<Value>);

const BUILTINS: [Row; 9] = [
    ("my_pe", 0, |run, _, _| Ok(int(run.place.pe as i128))),
    ("n_pes", 0, |run, _, _| Ok(int(run.place.n_pes as i128))),
    ("peer", 2, |run, args, span| run.peer(args, span)),
    ("min", 2, |run, args, _| run.choose(args, true)),
    ("max", 2, |run, args, _| run.choose(args, false)),
    ("fma", 3, |run, args, _| {
        let [a, b, c] = [0, 1, 2].map(|i| run.number(&args[i].value));
        let unit = run.place.unit;
        Ok(Value::Number(Number::Real(a?.real().multiply(b?.real(), unit).add(c?.real(), unit))))
    }),
    ("select", 3, |run, args, _| {
        let chosen = if run.truth(&args[0].value)? { 1 } else { 2 };
        run.expr(&args[chosen].value)
    }),
    ("ceil_div", 2, |run, args, span| {
        let [a, b] = [run.int(&args[0].value)?, run.int(&args[1].value)?];
        positive(b, span)?;
        Ok(int((a + b - 1).div_euclid(b)))
    }),
    ("round_up", 2, |run, args, span| {
        let [a, b] = [run.int(&args[0].value)?, run.int(&args[1].value)?];
        positive(b, span)?;
        Ok(int((a + b - 1).div_euclid(b) * b))
    }),
];

fn int(n: i128) -> Value {
    Value::Number(Number::Int(n))
}

fn positive(n: i128, span: Span) -> Result<()> {
    if n > 0 { Ok(()) } else { Ok(fail(WRONG_KIND, span, format!("the divisor is {n}"))?) }
}

impl Run<'_> {
    pub(super) fn builtin(
        &mut self,
        callee: &ast::Ident,
        generics: &[ast::Arg],
        args: &[ast::Arg],
        span: Span,
    ) -> Result<Value> {
        let name = &*callee.name;
        if let Some(named) = args.iter().find_map(|arg| arg.name.as_ref()) {
            fail(WRONG_ARGS, named.span, format!("`{name}` has no parameter named `{named}` here"))?;
        }
        if name == "size" {
            return self.size(generics, args, span);
        }
        if !generics.is_empty() {
            fail(
                WRONG_ARGS,
                span,
                format!("`{name}` accepts nothing in angle brackets in a reference function"),
            )?;
        }
        let count = |n: usize| match args.len() == n {
            true => Ok(()),
            false => fail(WRONG_ARGS, span, format!("`{name}` needs {n} arguments, but has {}", args.len())),
        };
        if let Some((_, n, call)) = BUILTINS.iter().find(|row| row.0 == name) {
            count(*n)?;
            return call(self, args, span);
        }
        if let Some(function) = FUNCTIONS.iter().find(|f| f.name == name) {
            count(1)?;
            return Ok(Value::Number(match self.number(&args[0].value)? {
                Number::Int(n) if name == "abs" => Number::Int(n.wrapping_abs()),
                n => Number::Real(n.real().apply(function, self.place.unit)),
            }));
        }
        let library = self.library;
        let Some(f) = library.references.get(name).or_else(|| library.functions.get(name)) else {
            let known = BUILTINS.iter().map(|row| row.0).chain(FUNCTIONS.iter().map(|f| f.name));
            let known: Vec<_> = known.chain(["size", "to"]).collect();
            let what = format!("a reference function cannot call `{name}`");
            return Err(Diagnostic::error(UNKNOWN_NAME, callee.span, what)
                .help(format!("it can call functions of the file, and {}", known.join(", ")))
                .into());
        };
        let arguments = args.iter().map(|arg| self.expr(&arg.value)).collect::<Result<Vec<_>>>()?;
        self.call(f, arguments, span)
    }

    /// Evaluates `size(x)` and `size<1>(x)`.
    fn size(&mut self, generics: &[ast::Arg], args: &[ast::Arg], span: Span) -> Result<Value> {
        let mode = match generics {
            [] => None,
            [ast::Arg { value: ast::Expr { kind: ExprKind::Int(n), .. }, .. }] => Some(*n),
            _ => fail(WRONG_ARGS, span, "expected the number of a mode, as in `size<1>(x)`")?,
        };
        let [arg] = args else { return Ok(fail(WRONG_ARGS, span, "expected one tensor")?) };
        let Value::Tensor { tensor, .. } = self.expr(&arg.value)? else {
            return Ok(fail(WRONG_KIND, arg.value.span, "only tensors have a size here")?);
        };
        let shape = self.tensors.shape(tensor);
        match mode {
            None => Ok(int(shape.iter().product::<u64>().into())),
            Some(mode) => match usize::try_from(mode).ok().and_then(|mode| shape.get(mode)) {
                Some(extent) => Ok(int((*extent).into())),
                None => {
                    let what = format!("there is no mode {mode}: the tensor has {}", shape.len());
                    Ok(fail(BAD_INDEX, span, what)?)
                }
            },
        }
    }

    /// Evaluates `peer(x, pe)`: the tensor of another PE as it was before the launch.
    fn peer(&mut self, args: &[ast::Arg], span: Span) -> Result<Value> {
        let Value::Tensor { tensor, .. } = self.expr(&args[0].value)? else {
            return Ok(fail(WRONG_KIND, args[0].value.span, "expected a tensor")?);
        };
        let pe = self.int(&args[1].value)?;
        match usize::try_from(pe).ok().filter(|pe| *pe < self.place.n_pes) {
            Some(pe) => Ok(Value::Tensor { tensor, pe }),
            None => Ok(fail(BAD_INDEX, span, format!("there is no PE {pe}"))?),
        }
    }

    fn choose(&mut self, args: &[ast::Arg], least: bool) -> Result<Value> {
        let [a, b] = [self.number(&args[0].value)?, self.number(&args[1].value)?];
        Ok(Value::Number(match (a, b) {
            (Number::Int(a), Number::Int(b)) => Number::Int(if least { a.min(b) } else { a.max(b) }),
            (a, b) => Number::Real(Real::choose(a.real(), b.real(), least)),
        }))
    }

    /// Evaluates `x.to<f32>()`.
    pub(super) fn method(
        &mut self,
        recv: &ast::Expr,
        name: &ast::Ident,
        generics: &[ast::Arg],
        args: &[ast::Arg],
    ) -> Result<Value> {
        let ([ast::Arg { value, .. }], [], "to") = (generics, args, &*name.name) else {
            return Ok(fail(WRONG_ARGS, name.span, "the only method in a reference function is `to<T>()`")?);
        };
        let n = self.number(recv)?;
        let dtype = match &value.kind {
            ExprKind::Name(word) if &*word.name == "int" => Scalar::I64,
            _ => match self.expr(value)? {
                Value::Dtype(dtype) => dtype,
                _ => fail(WRONG_KIND, value.span, "expected an element type")?,
            },
        };
        let Some(n) = n.to(dtype) else {
            return Ok(fail(WRONG_KIND, recv.span, format!("{n} has no value as {dtype}"))?);
        };
        Ok(Value::Number(match n {
            Number::Int(n) => Number::Int(wrapped(n, dtype)),
            n => n,
        }))
    }
}

/// The lowest bits of a number as an integer type holds them.
fn wrapped(n: i128, dtype: Scalar) -> i128 {
    let bits = dtype.bits();
    let low = n & ((1i128 << bits) - 1);
    let negative = dtype.kind() == NumberKind::Signed && low >> (bits - 1) == 1;
    if negative { low - (1i128 << bits) } else { low }
}
