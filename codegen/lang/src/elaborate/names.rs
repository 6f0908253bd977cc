//! The first step of elaboration, which resolves names in every function and kernel, even if
//! nothing calls them.
//!
//! It needs no values, so it visits both branches of a conditional that is decided later. It
//! reports names that are not defined, fields that a tuple does not have, assignments to variables
//! that are not `mut`, and calls of functions of the text with the wrong number of arguments.
//! Checks that need values and types are left to the elaboration of a kernel.

use super::expr::wrong_count;
use super::words::nearest;
use super::{Program, builtin};
use crate::ast::{
    self, Arg, Block, Expr, ExprKind, GenericParam, Ident, Param, Stmt, StmtKind, TypeExpr, Unroll,
};
use crate::codes::meaning::{NOT_ASSIGNABLE, UNKNOWN_NAME};
use std::collections::HashMap;
use std::sync::Arc;
use weft_ir::Scalar;
use weft_ir::diag::{Diagnostic, Span};

/// The maximum number of errors that are reported.
const MAX_FOUND: usize = 20;

/// The types of parameters and variables that are not element types.
pub(super) const TYPES: &[&str] = &[
    "int",
    "team",
    "barrier",
    "layout",
    "threads",
    "dtype",
    "tensor",
    "symm",
    "global",
    "peer",
    "multicast",
    "shared",
    "register",
];

/// Names of the language that are neither functions nor element types.
pub(super) const NUMBERS: [(&str, f64); 2] = [("inf", f64::INFINITY), ("nan", f64::NAN)];

/// The definitions of the names of a program.
#[derive(Clone, Debug, Default)]
pub struct Resolution {
    /// The occurrences of names, each with its definition.
    pub uses: Vec<(Span, Span)>,
    /// The definitions of parameters and variables.
    pub variables: Vec<Ident>,
    /// The variables that are tuples, with the names of their fields.
    pub records: Vec<(Ident, Vec<Arc<str>>)>,
    /// The errors, as [`Program::check_names`] returns them.
    pub found: Vec<Diagnostic>,
}

/// The properties of a name in scope.
#[derive(Clone, Debug, PartialEq)]
enum Named {
    /// A name that cannot be assigned.
    Fixed,
    /// A variable declared with `mut`.
    Mutable,
    /// A tuple with these fields.
    Record(Vec<Arc<str>>),
}

struct Names<'a> {
    program: &'a Program,
    scopes: Vec<HashMap<Arc<str>, (Span, Named)>>,
    /// Whether calls of `assert` are visited.
    asserts: bool,
    out: Resolution,
}

impl Program {
    /// Resolves the names in all functions and kernels. With `asserts` it also visits calls of
    /// `assert`.
    ///
    /// # Errors
    /// Fails for names that are not defined, assignments to variables that are not `mut`, and calls
    /// of functions of the text with a wrong number of arguments (E0100, E0104, E0105). There are
    /// at most 20 errors, in the order of the text.
    pub fn check_names(&self, asserts: bool) -> Result<(), Vec<Diagnostic>> {
        let found = self.resolve(asserts).found;
        if found.is_empty() { Ok(()) } else { Err(found) }
    }

    /// Resolves the names in all functions and kernels, and returns their definitions.
    pub fn resolve(&self, asserts: bool) -> Resolution {
        let out = Resolution::default();
        let mut names = Names { program: self, scopes: Vec::new(), asserts, out };
        for constant in self.library.consts.values() {
            names.scoped(|names| names.expr(&constant.value));
        }
        for function in self.library.functions.values() {
            names.body(&function.generics, &function.params, function.ret.as_ref(), &function.body);
        }
        for kernel in &self.kernels {
            names.body(&kernel.generics, &kernel.params, None, &kernel.body);
        }
        let mut out = names.out;
        out.found.sort_by_key(|d| (d.span.file, d.span.start));
        out.found.truncate(MAX_FOUND);
        out
    }

    /// The definition of the function, constant, kernel or reference function with this name.
    pub fn definition(&self, name: &str) -> Option<Span> {
        self.spans.get(name).copied()
    }

    /// The functions of the text and of the files that it uses.
    pub fn functions(&self) -> impl Iterator<Item = &ast::Function> {
        self.library.functions.values().map(|function| &**function)
    }

    /// The constants of the text and of the files that it uses.
    pub fn constants(&self) -> impl Iterator<Item = &ast::Const> {
        self.library.consts.values()
    }
}

impl Names<'_> {
    fn scoped(&mut self, walk: impl FnOnce(&mut Self)) {
        self.scopes.push(HashMap::new());
        walk(self);
        self.scopes.pop();
    }

    fn bind(&mut self, name: &Ident, named: Named) {
        self.out.variables.push(name.clone());
        if let Named::Record(fields) = &named {
            self.out.records.push((name.clone(), fields.clone()));
        }
        if let Some(scope) = self.scopes.last_mut() {
            scope.insert(name.name.clone(), (name.span, named));
        }
    }

    fn lookup(&self, name: &str) -> Option<&Named> {
        self.scopes.iter().rev().find_map(|scope| scope.get(name)).map(|(_, named)| named)
    }

    /// Records the definition of a name, if it is defined in the text or in a file that it uses.
    fn used(&mut self, name: &Ident) {
        let local = self.scopes.iter().rev().find_map(|scope| scope.get(&name.name)).map(|(span, _)| *span);
        if let Some(definition) = local.or_else(|| self.program.definition(&name.name)) {
            self.out.uses.push((name.span, definition));
        }
    }

    fn body(&mut self, generics: &[GenericParam], params: &[Param], ret: Option<&TypeExpr>, body: &Block) {
        self.scoped(|names| {
            for param in generics {
                if let Some(default) = &param.default {
                    names.expr(default);
                }
                names.bind(&param.name, Named::Fixed);
            }
            for ty in params.iter().filter_map(|param| param.ty.as_ref()).chain(ret) {
                names.ty(ty);
            }
            for param in params {
                names.bind(&param.name, Named::Fixed);
            }
            names.block(body);
        });
    }

    fn block(&mut self, block: &Block) {
        self.scoped(|names| {
            block.stmts.iter().for_each(|stmt| names.stmt(stmt));
            block.value.iter().for_each(|value| names.expr(value));
        });
    }

    fn stmt(&mut self, stmt: &Stmt) {
        match &stmt.kind {
            StmtKind::Let { mutable, name, ty, value } => {
                self.expr(value);
                ty.iter().for_each(|ty| self.ty(ty));
                let named = match &value.kind {
                    _ if *mutable => Named::Mutable,
                    ExprKind::Record(fields) => {
                        Named::Record(fields.iter().map(|(name, _)| name.name.clone()).collect())
                    }
                    _ => Named::Fixed,
                };
                self.bind(name, named);
            }
            StmtKind::Assign { target, value, .. } => {
                self.expr(value);
                match &target.kind {
                    ExprKind::Name(name) => self.assigned(name, target.span),
                    _ => self.expr(target),
                }
            }
            StmtKind::For { var, lo, hi, step, unroll, body } => {
                [Some(lo), Some(hi), step.as_ref()].into_iter().flatten().for_each(|e| self.expr(e));
                if let Some(Unroll::By(factor)) = unroll {
                    self.expr(factor);
                }
                self.scoped(|names| {
                    names.bind(var, Named::Fixed);
                    names.block(body);
                });
            }
            StmtKind::While { cond, body } => {
                self.expr(cond);
                self.block(body);
            }
            StmtKind::Loop { body } => self.block(body),
            StmtKind::Role { args, body, .. } => {
                self.args(args);
                self.block(body);
            }
            StmtKind::Break | StmtKind::Continue | StmtKind::Return(None) => {}
            StmtKind::Expr(value) | StmtKind::Return(Some(value)) => self.expr(value),
        }
    }

    fn assigned(&mut self, name: &Ident, span: Span) {
        self.used(name);
        match self.lookup(&name.name) {
            Some(Named::Mutable) => {}
            Some(_) => {
                let not_mut = Diagnostic::error(NOT_ASSIGNABLE, span, format!("`{name}` is not `mut`"));
                self.out.found.push(not_mut.help(format!("declare it with `let mut {name}`")));
            }
            None => self.unknown(name),
        }
    }

    fn expr(&mut self, e: &Expr) {
        match &e.kind {
            ExprKind::Int(_) | ExprKind::Float(_) | ExprKind::Bool(_) | ExprKind::Str(_) => {}
            ExprKind::Underscore => {}
            ExprKind::Name(name) => {
                self.used(name);
                if !self.is_known(&name.name) {
                    self.unknown(name);
                }
            }
            ExprKind::Unary(_, a) | ExprKind::Paren(a) => self.expr(a),
            ExprKind::Binary(_, a, b) | ExprKind::Layout(a, b) | ExprKind::Range(a, b) => {
                self.expr(a);
                self.expr(b);
            }
            ExprKind::Tuple(items) => items.iter().for_each(|item| self.expr(item)),
            ExprKind::Record(fields) => fields.iter().for_each(|(_, value)| self.expr(value)),
            ExprKind::Field { base, name } => {
                self.expr(base);
                self.field(base, name);
            }
            ExprKind::Call { callee, generics, args } => self.call(callee, generics, None, args, e.span),
            ExprKind::Method { recv, name, generics, args } => {
                self.call(name, generics, Some(recv), args, e.span);
            }
            ExprKind::Index { base, indices } => {
                self.expr(base);
                indices.iter().for_each(|index| self.expr(index));
            }
            ExprKind::If { cond, then, otherwise } => {
                self.expr(cond);
                self.block(then);
                otherwise.iter().for_each(|block| self.block(block));
            }
        }
    }

    fn args(&mut self, args: &[Arg]) {
        args.iter().for_each(|arg| self.expr(&arg.value));
    }

    /// Whether a name has a value.
    fn is_known(&self, name: &str) -> bool {
        self.lookup(name).is_some()
            || self.program.library.consts.contains_key(name)
            || Scalar::parse(name).is_some()
            || NUMBERS.iter().any(|(number, _)| *number == name)
            || builtin::word(name)
    }

    fn field(&mut self, base: &Expr, name: &Ident) {
        let ExprKind::Name(tuple) = &base.kind else { return };
        let Some(Named::Record(fields)) = self.lookup(&tuple.name) else { return };
        if !fields.contains(&name.name) {
            let found = no_field(fields.iter().map(|field| &**field), name);
            self.out.found.push(found);
        }
    }

    fn call(&mut self, callee: &Ident, generics: &[Arg], recv: Option<&Expr>, args: &[Arg], span: Span) {
        let function = self.program.library.functions.get(&callee.name).cloned();
        if !self.asserts && &*callee.name == "assert" && function.is_none() {
            return;
        }
        recv.into_iter().for_each(|recv| self.expr(recv));
        self.args(args);
        self.used(callee);
        self.words(generics);
        if self.lookup(&callee.name).is_some() {
            // The name is a parameter that stands for a function, or a variable with the same name
            // as a function.
            return;
        }
        let Some(function) = function else {
            if builtin::find(&callee.name).is_none() {
                self.unknown(callee);
            }
            return;
        };
        let count = args.len() + usize::from(recv.is_some());
        self.out.found.extend(wrong_count(&function, count, generics.len(), span));
        for (word, param) in generics.iter().zip(&function.generics) {
            self.generic_argument(&word.value, param);
        }
    }

    /// Records the definitions of words in angle brackets. Some of these words are not defined
    /// names.
    fn words(&mut self, generics: &[Arg]) {
        for word in generics {
            if let ExprKind::Name(name) = &word.value.kind {
                self.used(name);
            }
        }
    }

    fn generic_argument(&mut self, value: &Expr, param: &GenericParam) {
        match (&value.kind, &*param.bound.name) {
            (ExprKind::Name(name), "fn") => {
                let functions = &self.program.library.functions;
                if self.lookup(&name.name).is_none() && !functions.contains_key(&name.name) {
                    self.out.found.push(no_function(name));
                }
            }
            (_, "fn" | "reduction") => {}
            (ExprKind::Name(name), _) if self.is_known(&name.name) => {}
            _ => self.expr(value),
        }
    }

    fn ty(&mut self, ty: &TypeExpr) {
        self.used(&ty.name);
        let name = &*ty.name.name;
        let known = TYPES.contains(&name) || Scalar::parse(name).is_some() || self.lookup(name).is_some();
        if !known {
            let unknown = Diagnostic::error(UNKNOWN_NAME, ty.name.span, format!("there is no type `{name}`"));
            let types = TYPES.iter().copied().chain(Scalar::ALL.iter().map(|scalar| scalar.name()));
            self.out.found.push(match nearest(types, name) {
                Some(near) => unknown.help(format!("did you mean `{near}`?")),
                None => unknown.help(format!("the types are {}, and element types", TYPES.join(", "))),
            });
        }
    }

    fn unknown(&mut self, name: &Ident) {
        let scope = self.scopes.iter().flat_map(|scope| scope.keys()).map(|name| &**name);
        let globals = Scalar::ALL.iter().map(|scalar| scalar.name()).chain(NUMBERS.map(|(name, _)| name));
        let found = unknown(self.program, scope.chain(globals), name);
        self.out.found.push(found);
    }
}

/// Names of other languages for which there is no function, and what to write instead.
const ELSEWHERE: [(&str, &str); 4] = [
    ("erf", "there is no `erf`: use an approximation, such as that of GELU by `tanh`"),
    ("pow", "write `exp2(y * log2(x))`, for a positive `x`"),
    ("sigmoid", "write `1.0 / (1.0 + exp(-x))`"),
    ("warpSize", "write 32, which is the number of threads of a warp"),
];

/// The error for a name that is not defined. `scope` has the names that are known at its place,
/// besides those of the program and the language.
pub(super) fn unknown<'n>(
    program: &'n Program,
    scope: impl Iterator<Item = &'n str>,
    name: &Ident,
) -> Diagnostic {
    if program.library.references.contains_key(&name.name) {
        let message = format!("`{name}` is a reference function, which kernels cannot call");
        return Diagnostic::error(UNKNOWN_NAME, name.span, message)
            .help("the host evaluates it: write `computes(...)` in the kernel's head");
    }
    let items = program.library.functions.keys().chain(program.library.consts.keys()).map(|key| &**key);
    let all = scope.chain(items).chain(builtin::all().map(|b| b.name));
    let unknown = Diagnostic::error(UNKNOWN_NAME, name.span, format!("`{name}` is not defined here"));
    if let Some((_, help)) = ELSEWHERE.iter().find(|(other, _)| *other == &*name.name) {
        return unknown.help(*help);
    }
    match nearest(all, &name.name) {
        Some(near) => unknown.help(format!("did you mean `{near}`?")),
        None => unknown.help("declare it, or `use` the file that declares it"),
    }
}

/// The error for a name that should be the name of a function of the text.
pub(super) fn no_function(name: &Ident) -> Diagnostic {
    Diagnostic::error(UNKNOWN_NAME, name.span, format!("there is no function `{name}`"))
        .help("define it in this file or in one that it uses: `fn name(...) { ... }`")
}

/// The error for a field that a tuple with these fields does not have.
pub(super) fn no_field<'n>(fields: impl Iterator<Item = &'n str>, name: &ast::Ident) -> Diagnostic {
    let known: Vec<_> = fields.map(|field| format!("`{field}`")).collect();
    Diagnostic::error(UNKNOWN_NAME, name.span, format!("there is no field `{name}`"))
        .help(format!("the fields are {}", known.join(", ")))
}
