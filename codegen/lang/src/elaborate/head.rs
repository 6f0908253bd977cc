//! The heads of kernels: compile-time parameters, run-time parameters and launch attributes.

use super::description::{Compiled, Define, Defines, Head, HeadParam, REFERENCES, Reference};
use super::jump::cut;
use super::kinds::Kinds;
use super::names::NUMBERS;
use super::value::{Threads, Val};
use super::{Binding, Elab, Program, Result, SILENT, fail};
use crate::ast::{self, ExprKind};
use crate::codes::meaning::{
    BAD_ATTR, BAD_DEFINE, BAD_ROLE, DUPLICATE, NO_KERNEL, NOT_CONSTANT, NOT_GIVEN, WRONG_ARGS,
};
use crate::evaluate::ReferenceFn;
use std::collections::HashSet;
use std::sync::Arc;
use weft_ir::Builder;
use weft_ir::diag::{Diagnostic, Span};
use weft_ir::verify::{MAX_CLUSTER, verify};
use weft_ir::{Int, Kernel, Module, Op, RedOp, Role, Scalar, Thread};

impl Program {
    /// The heads of the root file's kernels.
    pub fn heads(&self) -> Vec<Head> {
        self.kernels.iter().map(head).collect()
    }

    /// A kernel without its code: the parameters and launch attributes that it has with these values for its
    /// compile-time parameters.
    ///
    /// # Errors
    /// Fails if there is no such kernel, or if its head is wrong.
    pub fn without_code(&self, name: &str, defines: &Defines) -> Result<Kernel, Vec<Diagnostic>> {
        let kernel = self.kernels.iter().find(|k| *k.name.name == *name);
        let missing =
            || vec![Diagnostic::error(NO_KERNEL, Span::NONE, format!("there is no kernel `{name}`"))];
        begin(self, kernel.ok_or_else(missing)?, defines, true, None).map(|(e, ..)| e.b.finish())
    }

    /// Makes IR of the kernels (or only of `only`) with these values for their compile-time
    /// parameters. A value for a parameter that no kernel has is an error.
    pub fn compile(&self, only: Option<&str>, defines: &Defines) -> Result<Compiled, Vec<Diagnostic>> {
        self.compile_with(only, defines, true)
    }

    /// Compiles a file like [`compile`](Program::compile), without its calls of `assert`.
    ///
    /// # Errors
    /// Fails where [`compile`](Program::compile) fails. Errors within an assert are not reported.
    pub fn compile_without_asserts(
        &self,
        only: Option<&str>,
        defines: &Defines,
    ) -> Result<Compiled, Vec<Diagnostic>> {
        self.compile_with(only, defines, false)
    }

    fn compile_with(
        &self,
        only: Option<&str>,
        defines: &Defines,
        asserts: bool,
    ) -> Result<Compiled, Vec<Diagnostic>> {
        let chosen: Vec<_> =
            self.kernels.iter().filter(|k| only.is_none_or(|n| n == &*k.name.name)).collect();
        if chosen.is_empty() {
            let names: Vec<_> = self.kernels.iter().map(|k| &*k.name.name).collect();
            let message = match only {
                Some(n) => format!("there is no kernel `{n}`"),
                None => "the file has no kernel".to_owned(),
            };
            return Err(vec![Diagnostic::error(NO_KERNEL, Span::NONE, message).help(if names.is_empty() {
                "write `kernel name(...) block(256) { ... }`".to_owned()
            } else {
                format!("it has {}", names.join(", "))
            })]);
        }
        let mut errors: Vec<Diagnostic> = Vec::new();
        for name in defines.keys() {
            if !chosen.iter().any(|k| k.generics.iter().any(|g| *g.name.name == **name)) {
                let known: Vec<_> = chosen.iter().flat_map(|k| &k.generics).map(|g| &*g.name.name).collect();
                errors.push(
                    Diagnostic::error(
                        BAD_DEFINE,
                        Span::NONE,
                        format!("no kernel has a compile-time parameter `{name}`"),
                    )
                    .help(format!("there are: {}", known.join(", "))),
                );
            }
        }
        let names = self.resolve(asserts).found;
        let module = Module { files: self.files.clone(), ..Module::default() };
        let mut out = (module, Vec::new(), Vec::new());
        for k in chosen {
            match compile_kernel(self, k, defines, asserts) {
                Ok((kernel, reference, defines)) => {
                    out.0.kernels.push(kernel);
                    out.1.push(reference);
                    out.2.push(defines);
                }
                Err(mut e) => errors.append(&mut e),
            }
        }
        // Errors in code that no kernel calls, and in branches that no kernel takes, come after the
        // errors of the kernels.
        for name in names {
            if errors.iter().all(|e| (e.code, e.span) != (name.code, name.span)) {
                errors.push(name);
            }
        }
        if !errors.is_empty() {
            return Err(errors);
        }
        let module = verify(out.0)?;
        Ok(Compiled { module, references: out.1, defines: out.2 })
    }
}

fn head(k: &ast::Kernel) -> Head {
    let name_of = |e: &ast::Expr| match &e.kind {
        ExprKind::Name(n) => Some(n.name.clone()),
        _ => None,
    };
    let params = k.params.iter().filter_map(|p| {
        let ty = p.ty.as_ref()?;
        let elem = ty.args.first().and_then(|a| name_of(&a.value));
        let extents = match ty.args.get(1).map(|a| &a.value.kind) {
            Some(ExprKind::Layout(shape, _)) => match &shape.kind {
                ExprKind::Paren(e) => vec![name_of(e)],
                ExprKind::Tuple(es) => es.iter().map(name_of).collect(),
                _ => vec![name_of(shape)],
            },
            _ => Vec::new(),
        };
        Some(HeadParam { name: p.name.name.clone(), ty: ty.name.name.clone(), elem, extents })
    });
    Head {
        name: k.name.name.clone(),
        generics: k
            .generics
            .iter()
            .map(|g| (g.name.name.clone(), g.bound.name.clone(), g.default.is_some()))
            .collect(),
        params: params.collect(),
    }
}

type ElaboratedKernel = (Kernel, Option<Reference>, Defines);

/// Elaborates the head of a kernel. Returns the code so far, what the kernel computes, and its
/// compile-time parameters. `kinds` collects descriptions of variables.
pub(super) fn begin<'p>(
    program: &'p Program,
    k: &ast::Kernel,
    defines: &Defines,
    asserts: bool,
    kinds: Option<Kinds>,
) -> Result<(Elab<'p>, Option<Reference>, Defines), Vec<Diagnostic>> {
    let mut b = Builder::new(&k.name.name, [1, 1, 1]);
    b.at(k.span);
    b.kernel_mut().span = k.span;
    let mut e = Elab::new(program, asserts, b);
    e.kinds = kinds;
    let mut bound = Defines::new();
    e.globals();
    e.scopes.push(Default::default());
    match e.head(k, defines, &mut bound) {
        Ok(reference) => Ok((e, reference, bound)),
        Err(d) => {
            e.report(d);
            Err(e.readable_errors())
        }
    }
}

fn compile_kernel(
    program: &Program,
    k: &ast::Kernel,
    defines: &Defines,
    asserts: bool,
) -> Result<ElaboratedKernel, Vec<Diagnostic>> {
    let (mut e, reference, bound) = begin(program, k, defines, asserts, None)?;
    if let Err(d) = e.body(&k.body) {
        e.report(d);
    }
    if !e.errors.is_empty() {
        return Err(e.readable_errors());
    }
    let mut kernel = e.b.finish();
    let mut code = std::mem::take(&mut kernel.body);
    cut(&kernel, &mut code);
    kernel.body = code;
    Ok((kernel, reference, bound))
}

impl Elab<'_> {
    /// The errors, in which symbols are replaced by the names in the source text.
    fn readable_errors(self) -> Vec<Diagnostic> {
        let k = self.b.finish();
        let mut errors = self.errors;
        if errors.is_empty() {
            // An error that follows from another one is not reported. Without another error, it
            // must not be lost.
            let message = format!("`{}` refers to something that is not defined here", k.name);
            errors.push(Diagnostic::error(WRONG_ARGS, k.span, message));
        }
        for d in &mut errors {
            d.message = weft_ir::text::readable(&k, &d.message);
        }
        errors
    }

    /// Defines the element types, which are names like others.
    fn globals(&mut self) {
        for s in Scalar::ALL {
            self.scopes[0].insert(s.name().into(), Binding::Val(Val::Dtype(*s)));
        }
        for (name, number) in NUMBERS {
            self.scopes[0].insert(name.into(), Binding::Val(Val::Float(number)));
        }
    }

    fn head(&mut self, k: &ast::Kernel, defines: &Defines, bound: &mut Defines) -> Result<Option<Reference>> {
        let mut names = HashSet::new();
        let all = k.generics.iter().map(|g| &g.name).chain(k.params.iter().map(|p| &p.name));
        for name in all {
            if !names.insert(name.name.clone()) {
                return fail(DUPLICATE, name.span, format!("`{}` is defined twice", name.name));
            }
        }
        for g in &k.generics {
            let val = self.generic(g, defines.get(&*g.name.name).copied())?;
            let define = match &val {
                Val::Int(n) => n.as_const().map(Define::Int),
                Val::Float(x) => Some(Define::Float(*x)),
                Val::Bool(x) => Some(Define::Bool(*x)),
                Val::Dtype(s) => Some(Define::Dtype(*s)),
                Val::Reduction(op) => Some(Define::Reduction(*op)),
                _ => None,
            };
            bound.extend(define.map(|d| (g.name.name.to_string(), d)));
            self.bind(&g.name, Binding::Val(val));
        }
        self.params(&k.params)?;
        let mut reference = None;
        let mut has_block = false;
        for (i, attr) in k.attrs.iter().enumerate() {
            if let Some(first) = k.attrs[..i].iter().find(|a| a.name.name == attr.name.name) {
                let message = format!("the attribute `{}` occurs twice", attr.name.name);
                return Err(Diagnostic::error(BAD_ATTR, attr.span, message).related(first.span, "first here"));
            }
            match &*attr.name.name {
                "block" => {
                    self.b.kernel_mut().block = self.constant_dims(attr, 1024)?;
                    has_block = true;
                }
                "cluster" => self.b.kernel_mut().cluster = self.constant_dims(attr, MAX_CLUSTER)?,
                "grid" => {
                    let dims = self.dims(attr)?;
                    for (d, max) in dims.iter().zip([i64::from(i32::MAX), 65535, 65535]) {
                        if d.upper_bound().is_some_and(|n| n < 1) || d.lower_bound() > max {
                            return fail(BAD_ATTR, attr.span, format!("grid: {d} is not from 1 to {max}"));
                        }
                    }
                    let one = || Int::from(1);
                    let mut dims = dims.into_iter();
                    let mut next = || dims.next().unwrap_or_else(one);
                    self.b.kernel_mut().head.grid = Some([next(), next(), next()]);
                }
                "computes" => reference = Some(self.reference(attr, &k.params)?),
                "signaled" => {
                    let signaled = self.signaled(attr)?;
                    self.b.kernel_mut().head.signaled.extend(signaled);
                }
                other => {
                    return Err(Diagnostic::error(
                        BAD_ATTR,
                        attr.span,
                        format!("unknown launch attribute `{other}`"),
                    )
                    .help(
                        "the launch attributes are block(...), grid(...), cluster(...), computes(...) \
                         and signaled(...)",
                    ));
                }
            }
        }
        let threads = self.plan_roles(&k.body)?;
        if threads > 0 {
            if has_block || threads > 1024 {
                let message = format!("the roles have {threads} threads together");
                return Err(Diagnostic::error(BAD_ATTR, k.span, message)
                    .help("a CTA can have 1024 threads; a kernel with roles has no `block(...)`"));
            }
            self.b.kernel_mut().block = [threads, 1, 1];
        } else if !has_block {
            return Err(Diagnostic::error(
                BAD_ATTR,
                k.span,
                "the kernel does not state the number of threads of a CTA",
            )
            .help("write `block(256)` after the parameters"));
        }
        Ok(reference)
    }

    /// Evaluates `signaled(sig, flags)`, which names parameters that the host or other kernels
    /// signal.
    fn signaled(&self, attr: &ast::Attr) -> Result<Vec<u32>> {
        let index = |arg: &ast::Expr| {
            let name = match &arg.kind {
                ExprKind::Name(n) => n.name.clone(),
                _ => "".into(),
            };
            let params = &self.b.kernel().head.params;
            (0u32..).zip(params).find(|(_, p)| p.name == name).map(|(i, _)| i).ok_or_else(|| {
                let message = "signaled: expected a run-time parameter of the kernel";
                Diagnostic::error(BAD_ATTR, arg.span, message).help("such as `signaled(sig)`")
            })
        };
        attr.args.iter().map(index).collect()
    }

    /// Evaluates extents that are known at compile time, each from 1 to `max`.
    fn constant_dims(&mut self, attr: &ast::Attr, max: u32) -> Result<[u32; 3]> {
        let mut out = [1; 3];
        for (own, d) in out.iter_mut().zip(self.dims(attr)?) {
            let n = d.as_const().and_then(|n| u32::try_from(n).ok());
            let Some(n) = n.filter(|n| (1..=max).contains(n)) else {
                let message = format!("{}: {d} is not a constant from 1 to {max}", attr.name.name);
                return fail(NOT_CONSTANT, attr.span, message);
            };
            *own = n;
        }
        Ok(out)
    }

    fn dims(&mut self, attr: &ast::Attr) -> Result<Vec<Int>> {
        if attr.args.is_empty() || attr.args.len() > 3 {
            return fail(BAD_ATTR, attr.span, format!("`{}` takes 1 to 3 extents", attr.name.name));
        }
        attr.args.iter().map(|e| self.int(e)).collect()
    }

    fn generic(&mut self, g: &ast::GenericParam, given: Option<Define>) -> Result<Val> {
        let val = match (given, &g.default) {
            (Some(Define::Int(n)), _) => Val::Int(n.into()),
            (Some(Define::Float(x)), _) => Val::Float(x),
            (Some(Define::Bool(b)), _) => Val::Bool(b),
            (Some(Define::Dtype(s)), _) => Val::Dtype(s),
            (Some(Define::Reduction(op)), _) => Val::Reduction(op),
            (None, Some(e)) => match (&*g.bound.name, &e.kind) {
                ("reduction", ExprKind::Name(n)) => {
                    RedOp::parse(&n.name).map_or_else(|| self.expr(e), |op| Ok(Val::Reduction(op)))?
                }
                _ => self.expr(e)?,
            },
            (None, None) => {
                let (name, example) = (&g.name.name, if &*g.bound.name == "int" { "1048576" } else { "f32" });
                return Err(Diagnostic::error(NOT_GIVEN, g.span, format!("`{name}` has no value"))
                    .label("needed at compile time")
                    .help(format!(
                        "set it on the command line, `-D {name}={example}`, or write a default, `= {example}`"
                    )));
            }
        };
        let fits = match (&*g.bound.name, &val) {
            ("int", Val::Int(n)) => n.as_const().is_some(),
            ("dtype", Val::Dtype(_)) | ("bool", Val::Bool(_)) => true,
            ("float", Val::Dtype(s)) => s.is_float(),
            ("integer", Val::Dtype(s)) => s.is_int(),
            ("real", Val::Float(_) | Val::Int(_)) => true,
            ("reduction", Val::Reduction(_)) => true,
            ("int" | "dtype" | "bool" | "float" | "integer" | "real" | "reduction", _) => false,
            (other, _) => {
                return Err(Diagnostic::error(
                    BAD_DEFINE,
                    g.bound.span,
                    format!("unknown kind of parameter `{other}`"),
                )
                .help(
                    "the kinds are int (a number), dtype, float and integer (element types), real, \
                     bool and reduction",
                ));
            }
        };
        if !fits {
            let message = format!("`{}` is {val}, which is not of the kind `{}`", g.name.name, g.bound.name);
            let help = match (&*g.bound.name, &val) {
                // NumPy has no bf16 and no 8-bit floats, so files with such data are declared as
                // integers.
                ("float", Val::Dtype(Scalar::U16)) => "if the numbers are bf16, add `--dtype bf16`",
                ("float", Val::Dtype(Scalar::U8)) => {
                    "if the numbers are e4m3 or e5m2, add `--dtype e4m3` or `--dtype e5m2`"
                }
                _ => {
                    "int is a number, dtype is any element type, float is a floating-point type, and \
                     integer is an integer type"
                }
            };
            return Err(Diagnostic::error(BAD_DEFINE, g.span, message).help(help));
        }
        if let (Some(div), Val::Int(n)) = (&g.div, &val) {
            let div = self.constant(div)?;
            let n = n.as_const().unwrap_or(0);
            if div <= 0 || n % div != 0 {
                return fail(
                    BAD_DEFINE,
                    g.span,
                    format!("`{}` is {n}, not a multiple of {div}", g.name.name),
                );
            }
        }
        Ok(val)
    }

    /// The function that `computes` names. A parameter that stands for a reduction is replaced by
    /// the reduction's name.
    fn reference(&self, attr: &ast::Attr, params: &[ast::Param]) -> Result<Reference> {
        if let Some(reference) = self.own_reference(attr)? {
            return Ok(reference);
        }
        let mut reference = reference_of(attr, params)?;
        for word in &mut reference.words {
            if let Some(Binding::Val(Val::Reduction(op))) = self.lookup(word) {
                *word = op.name().into();
            }
        }
        Ok(reference)
    }

    /// The function that `computes` names, if it is a `reference fn` of the text.
    fn own_reference(&self, attr: &ast::Attr) -> Result<Option<Reference>> {
        let [ast::Expr { kind: ExprKind::Call { callee, generics, args }, .. }] = &attr.args[..] else {
            return Ok(None);
        };
        let Some(function) = self.program.library.references.get(&callee.name) else { return Ok(None) };
        let wanted = function.params.len();
        if !generics.is_empty() || args.len() != wanted {
            let message =
                format!("computes: `{}` needs {wanted} arguments, but has {}", callee.name, args.len());
            return Err(
                Diagnostic::error(BAD_ATTR, callee.span, message).related(function.span, "defined here")
            );
        }
        let name = |arg: &ast::Arg| match &arg.value.kind {
            ExprKind::Name(n) if arg.name.is_none() && self.lookup(&n.name).is_some() => Ok(n.name.clone()),
            _ => Err(Diagnostic::error(
                BAD_ATTR,
                arg.value.span,
                "computes: expected a parameter of the kernel",
            )
            .help("a compile-time parameter can be passed too; the function can refer to constants itself")),
        };
        let args = args.iter().map(name).collect::<Result<_>>()?;
        let function = ReferenceFn { function: function.clone(), library: self.program.library.clone() };
        Ok(Some(Reference { name: callee.name.clone(), words: Vec::new(), args, function: Some(function) }))
    }

    /// The set of all threads of the CTA or of the grid, and this thread's place in it.
    pub(super) fn threads(&mut self, grid: bool) -> Result<Threads> {
        use weft_ir::{Dim, Sreg};
        let [x, y, z] = self.b.kernel().block.map(i64::from);
        let per_cta = Int::from(x * y * z);
        let mut index = self.special(Sreg::ThreadIdx, Dim::X)?;
        if y > 1 {
            index = index + self.special(Sreg::ThreadIdx, Dim::Y)? * Int::from(x);
        }
        if z > 1 {
            index = index + self.special(Sreg::ThreadIdx, Dim::Z)? * Int::from(x * y);
        }
        if !grid {
            return Ok(Threads { index, count: per_cta });
        }
        let mut cta = self.special(Sreg::BlockIdx, Dim::X)?;
        let mut ctas = self.special(Sreg::GridDim, Dim::X)?;
        let flat = match &self.b.kernel().head.grid {
            Some([_, y, z]) => y.is(1) && z.is(1),
            // If the launcher chooses the grid, it has one dimension.
            None => true,
        };
        if !flat {
            let (gy, gz) = (self.special(Sreg::GridDim, Dim::Y)?, self.special(Sreg::GridDim, Dim::Z)?);
            let (cy, cz) = (self.special(Sreg::BlockIdx, Dim::Y)?, self.special(Sreg::BlockIdx, Dim::Z)?);
            cta = cta + (cy + cz * gy.clone()) * ctas.clone();
            ctas = ctas * gy * gz;
        }
        Ok(Threads { index: index + cta * per_cta.clone(), count: ctas * per_cta })
    }

    /// A special register as a symbol.
    pub(super) fn special(&mut self, reg: weft_ir::Sreg, dim: weft_ir::Dim) -> Result<Int> {
        let v = self.b.special(reg, dim)?;
        if matches!(
            self.b.kernel().op(v),
            Op::Thread(Thread::Special { reg: weft_ir::Sreg::ThreadIdx | weft_ir::Sreg::LaneIdx, .. })
        ) {
            self.varying.insert(v);
        }
        self.symbol(v)
    }
}

/// Reads `computes(allreduce<add>(x, out))`.
fn reference_of(attr: &ast::Attr, params: &[ast::Param]) -> Result<Reference> {
    let bad = || {
        Diagnostic::error(
            BAD_ATTR,
            attr.span,
            "expected what the kernel computes, with parameters as arguments",
        )
        .help("such as `computes(allreduce<add>(x))`")
    };
    let [ast::Expr { kind: ExprKind::Call { callee, generics, args }, .. }] = &attr.args[..] else {
        return Err(bad());
    };
    let names = |args: &[ast::Arg]| -> Option<Vec<Arc<str>>> {
        args.iter()
            .map(|a| match &a.value.kind {
                ExprKind::Name(n) if a.name.is_none() => Some(n.name.clone()),
                _ => None,
            })
            .collect()
    };
    let (words, args) = names(generics).zip(names(args)).ok_or_else(bad)?;
    if let Some(name) = args.iter().find(|a| !params.iter().any(|p| p.name.name == **a)) {
        return fail(BAD_ATTR, attr.span, format!("computes: the kernel has no parameter `{name}`"));
    }
    if !REFERENCES.contains(&&*callee.name) {
        return Err(Diagnostic::error(
            BAD_ATTR,
            callee.span,
            format!("computes: `{}` is not known", callee.name),
        )
        .help(format!("known are {}, and every `reference fn` of the file", REFERENCES.join(", "))));
    }
    for (i, name) in args.iter().enumerate() {
        check_role(attr, params, name, i > 0 && args[0] != *name)?;
    }
    Ok(Reference { name: callee.name.clone(), words, args, function: None })
}

/// Checks the role of a parameter in `computes`: an operand must hold data before the launch, and a
/// result must be kept after it.
fn check_role(attr: &ast::Attr, params: &[ast::Param], name: &str, is_result: bool) -> Result<()> {
    let Some(param) = params.iter().find(|p| *p.name.name == *name) else { return Ok(()) };
    let why = match (param.role, is_result) {
        (Some(Role::Workspace), true) => "is its result, but a workspace cannot be a result",
        (Some(Role::Output | Role::Workspace), false) => "is read by it, but holds no data before a launch",
        _ => return Ok(()),
    };
    Err(Diagnostic::error(BAD_ROLE, param.span, format!("computes: `{name}` {why}"))
        .related(attr.span, "what the kernel computes")
        .help(if is_result { "declare it as `output`" } else { "declare it as `input` or `zeroed`" }))
}

/// An error that is not shown.
pub(super) fn silent() -> Diagnostic {
    Diagnostic::error(SILENT, Span::NONE, "")
}
