//! The run-time parameters of a kernel.

use super::value::{Tensor, Val};
use super::{Binding, Elab, Result, fail};
use crate::ast;
use crate::codes::meaning::{BAD_PARAM, BAD_ROLE, LAYOUT, WRONG_ARGS};
use std::sync::Arc;
use weft_ir::diag::Diagnostic;
use weft_ir::{Layout, Op, ParamKind, Scalar, Space, Team, TensorType, Type, Value, Var};

impl Elab<'_> {
    /// Defines the parameters. Scalars come first, because layouts of tensors refer to them.
    pub(super) fn params(&mut self, params: &[ast::Param]) -> Result<()> {
        for p in params {
            let Some(ty) = &p.ty else {
                return fail(BAD_PARAM, p.span, format!("`{}` needs a type", p.name.name));
            };
            self.b.at(p.span);
            let scalar = match (&*ty.name.name, Scalar::parse(&ty.name.name)) {
                ("team", _) => Type::Team,
                ("barrier", _) => Type::Barrier,
                ("int", _) => Type::Scalar(Scalar::I64),
                (_, Some(s)) => Type::Scalar(s),
                _ => match self.lookup(&ty.name.name) {
                    Some(Binding::Val(Val::Dtype(s))) => Type::Scalar(*s),
                    _ => Type::Unit,
                },
            };
            if let (Some(role), true) = (p.role, scalar != Type::Unit) {
                let message = format!("`{}` is declared as `{role}` but is not a tensor", p.name.name);
                return Err(Diagnostic::error(BAD_ROLE, p.span, message)
                    .help("remove the role, which only tensors have"));
            }
            let is_int = &*ty.name.name == "int";
            let div = match &ty.div {
                Some(d) => self.constant(d)?,
                // Nothing is known of other numbers.
                None => i64::from(is_int || !matches!(scalar, Type::Scalar(_))),
            };
            if div < 0 || (ty.div.is_some() && (!is_int || div == 0)) {
                return fail(BAD_PARAM, ty.span, "only an `int` has a divisor, of 1 or more");
            }
            let index = self.b.kernel().head.params.len() as u32;
            let v = self.b.param_of(&p.name.name, scalar.clone(), ParamKind::User, div)?;
            let val = match scalar {
                Type::Team => Val::Team(weft_ir::TeamRef(index)),
                Type::Barrier => Val::Barrier(v),
                Type::Scalar(_) if is_int => Val::Int(self.symbol(v)?),
                Type::Scalar(_) => Val::Runtime(v),
                // A tensor has no name before its own type is known.
                _ => continue,
            };
            self.bind(&p.name, Binding::Val(val));
        }
        for (i, p) in params.iter().enumerate() {
            let Some(ty) = p.ty.as_ref().filter(|_| self.b.kernel().head.params[i].ty == Type::Unit) else {
                continue;
            };
            let tensor = Type::Tensor(Arc::new(self.tensor_type(ty)?));
            let v = Value(i as u32);
            let k = self.b.kernel_mut();
            let param = &mut k.head.params[i];
            param.ty = tensor.clone();
            param.role = p.role;
            k.insts[v].ty = tensor;
            self.bind(
                &p.name,
                Binding::Val(Val::Tensor(Tensor { value: v, private: false, element: false, order: None })),
            );
        }
        Ok(())
    }

    /// Evaluates a type such as `symm<T, (N):(1), align = 16>`.
    fn tensor_type(&mut self, ty: &ast::TypeExpr) -> Result<TensorType> {
        let space = match &*ty.name.name {
            "symm" => Space::Symmetric,
            "global" => Space::Global,
            other => {
                return Err(Diagnostic::error(
                    BAD_PARAM,
                    ty.span,
                    format!("`{other}` is not a type of a kernel parameter"),
                )
                .help("symm<T, layout>, global<T, layout>, int, i32, f32, ..., barrier, team"));
            }
        };
        let (named, plain): (Vec<_>, Vec<_>) = ty.args.iter().partition(|a| a.name.is_some());
        let [elem, layout] = &plain[..] else {
            return Err(Diagnostic::error(
                BAD_PARAM,
                ty.span,
                format!("`{}` needs an element type and a layout", ty.name.name),
            )
            .help("write `symm<f32, (N):(1)>`"));
        };
        let elem_span = elem.value.span;
        let Val::Dtype(elem) = self.expr(&elem.value)? else {
            return fail(BAD_PARAM, elem_span, "expected an element type");
        };
        let layout_span = layout.value.span;
        let layout: Layout = self.layout(&layout.value)?;
        // Allocations of the CUDA driver and of NVSHMEM have at least this alignment.
        let mut align = 16;
        for a in named {
            let name = a.name.as_ref().map_or("", |n| &*n.name);
            let n = self.constant(&a.value)?;
            match (name, u32::try_from(n)) {
                ("align", Ok(n)) if n.is_power_of_two() && n >= elem.bytes() && n <= 1 << 20 => align = n,
                ("align", _) => {
                    return fail(
                        BAD_PARAM,
                        a.value.span,
                        format!("align: {n} is not a power of two of at least {}", elem.bytes()),
                    );
                }
                _ => return fail(WRONG_ARGS, a.value.span, format!("unknown argument `{name}`")),
            }
        }
        // A launcher allocates cosize elements, so this number must not be negative or exceed all
        // memory.
        if layout.cosize().poison().is_some() || layout.size().as_const().is_some_and(|n| n < 1) {
            let why = if layout.cosize().poison().is_some() {
                "has more elements than a 64-bit number can count"
            } else {
                "has an extent of 0 or less"
            };
            return Err(Diagnostic::error(LAYOUT, layout_span, format!("{layout} {why}"))
                .help("a tensor must have at least one element"));
        }
        let ty = TensorType { elem, layout, swizzle: None, space, align, bounds: Vec::new() };
        let mut unknown = None;
        ty.vars(&mut |v| {
            let op = self.b.kernel().insts.get(Value(v.id)).map(|i| &i.op);
            if !matches!(op, Some(Op::Var(Var::Param { .. }) | Op::Team(Team::NPes { .. }))) {
                unknown = Some(v.name.clone());
            }
        });
        match unknown {
            Some(name) => {
                let message =
                    format!("the layout {} depends on {name}, which is not known at the launch", ty.layout);
                Err(Diagnostic::error(BAD_PARAM, layout_span, message)
                    .help("a parameter's layout can contain numbers, integer parameters and n_pes(team)"))
            }
            None => Ok(ty),
        }
    }
}
