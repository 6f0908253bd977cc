//! Evaluates a `reference fn` on the host, which states what a kernel computes, in exact integers
//! and float64.

mod call;
mod expr;
mod number;

pub use number::{Number, Real, unit_roundoff};

use crate::ast::{self, StmtKind};
use crate::codes::meaning::{NOT_ASSIGNABLE, TOO_LARGE, WRONG_ARGS, WRONG_KIND};
use crate::elaborate::fail;
use std::collections::HashMap;
use std::sync::Arc;
use weft_ir::Scalar;
use weft_ir::diag::{Diagnostic, Span};

/// The functions and constants of a file and of all files that it uses.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Library {
    pub(crate) functions: HashMap<Arc<str>, Arc<ast::Function>>,
    pub(crate) references: HashMap<Arc<str>, Arc<ast::Function>>,
    pub(crate) consts: HashMap<Arc<str>, ast::Const>,
}

/// A `reference fn` with the functions that it can call.
#[derive(Clone, PartialEq, Debug)]
pub struct ReferenceFn {
    pub(crate) function: Arc<ast::Function>,
    pub(crate) library: Arc<Library>,
}

/// The meaning of a reference function's parameter.
#[derive(Clone, PartialEq, Debug)]
pub enum Argument {
    /// A tensor, by its index in [`Tensors`].
    Tensor(usize),
    /// A number that the launch passes or the compiler knows.
    Number(Number),
    /// An element type, such as `f32`.
    Dtype(Scalar),
}

/// The tensors that a reference function accesses. They begin with their contents before the
/// launch.
pub trait Tensors {
    /// The extents of a tensor.
    fn shape(&self, tensor: usize) -> &[u64];
    /// An element of a PE, counted with the last mode fastest. For the PE that is evaluated, it is
    /// the value that was assigned last.
    fn read(&self, tensor: usize, pe: usize, at: usize) -> Number;
    /// Assigns an element of the PE that is evaluated.
    ///
    /// # Errors
    /// Fails if the tensor cannot hold such a number.
    fn write(&mut self, tensor: usize, at: usize, value: Number) -> Result<(), String>;
}

/// The PE for which a reference function is evaluated, and the arithmetic to compare with.
#[derive(Clone, Copy, Debug)]
pub struct PeContext {
    /// The PE that the result is computed for.
    pub pe: usize,
    /// The number of PEs.
    pub n_pes: usize,
    /// The unit roundoff of the arithmetic that the result is compared with.
    pub unit: f64,
}

/// The maximum number of statements and operations of one evaluation, and the maximum nesting of
/// calls.
const MAX_STEPS: u64 = 2_000_000_000;
const MAX_CALLS: usize = 64;

impl ReferenceFn {
    /// For each parameter, whether the function assigns its elements, so that it is a result.
    pub fn assigned(&self) -> Vec<bool> {
        let mut names = Vec::new();
        assigned(&self.function.body, &mut names);
        self.function.params.iter().map(|p| names.contains(&p.name.name)).collect()
    }

    /// Evaluates the function for one PE.
    ///
    /// # Errors
    /// Fails if the text does something that is undefined here, such as an index out of bounds, a
    /// division by zero, or a function of threads.
    pub fn evaluate(
        &self,
        arguments: &[Argument],
        tensors: &mut dyn Tensors,
        place: PeContext,
    ) -> Result<(), Diagnostic> {
        let mut run =
            Run { library: &self.library, tensors, place, scope: Vec::new(), floor: 0, calls: 0, steps: 0 };
        let arguments = arguments.iter().map(|a| match a {
            Argument::Tensor(tensor) => Value::Tensor { tensor: *tensor, pe: place.pe },
            Argument::Number(n) => Value::Number(*n),
            Argument::Dtype(dtype) => Value::Dtype(*dtype),
        });
        match run.call(&self.function, arguments.collect(), self.function.span) {
            Ok(_) => Ok(()),
            Err(Stop::Error(d)) => Err(*d),
            Err(Stop::Jump(..)) => Err(Diagnostic::error(
                WRONG_KIND,
                self.function.span,
                "this function jumps outside of a loop",
            )),
        }
    }
}

/// The names of tensors whose elements a block assigns.
fn assigned(block: &ast::Block, names: &mut Vec<Arc<str>>) {
    for stmt in &block.stmts {
        match &stmt.kind {
            StmtKind::Assign {
                target: ast::Expr { kind: ast::ExprKind::Index { base, .. }, .. }, ..
            } => {
                if let ast::ExprKind::Name(name) = &base.kind {
                    names.push(name.name.clone());
                }
            }
            StmtKind::For { body, .. } | StmtKind::While { body, .. } | StmtKind::Loop { body } => {
                assigned(body, names);
            }
            StmtKind::Expr(ast::Expr { kind: ast::ExprKind::If { then, otherwise, .. }, .. }) => {
                assigned(then, names);
                otherwise.iter().for_each(|block| assigned(block, names));
            }
            _ => {}
        }
    }
}

/// The value of an expression.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Value {
    /// An expression without a value.
    Unit,
    Number(Number),
    /// A tensor of a PE.
    Tensor {
        tensor: usize,
        pe: usize,
    },
    Dtype(Scalar),
}

/// A variable of a reference function.
struct Variable {
    name: Arc<str>,
    value: Value,
    mutable: bool,
}

/// The reason why a block ends before its end.
enum Stop {
    Jump(Jump),
    Error(Box<Diagnostic>),
}

enum Jump {
    Break,
    Continue,
    Return(Value),
}

impl From<Diagnostic> for Stop {
    fn from(d: Diagnostic) -> Stop {
        Stop::Error(Box::new(d))
    }
}

type Result<T, E = Stop> = std::result::Result<T, E>;

/// The state of an evaluation.
struct Run<'a> {
    library: &'a Library,
    tensors: &'a mut dyn Tensors,
    place: PeContext,
    scope: Vec<Variable>,
    /// Variables below this index belong to callers and are invisible.
    floor: usize,
    calls: usize,
    steps: u64,
}

impl Run<'_> {
    fn step(&mut self, span: Span) -> Result<()> {
        self.steps += 1;
        if self.steps > MAX_STEPS {
            fail(TOO_LARGE, span, format!("the reference takes more than {MAX_STEPS} steps"))?;
        }
        Ok(())
    }

    fn bind(&mut self, name: &ast::Ident, value: Value, mutable: bool) {
        self.scope.push(Variable { name: name.name.clone(), value, mutable });
    }

    fn variable(&mut self, name: &str) -> Option<&mut Variable> {
        self.scope[self.floor..].iter_mut().rev().find(|v| *v.name == *name)
    }

    /// Calls a function with values for its parameters.
    fn call(&mut self, f: &ast::Function, arguments: Vec<Value>, span: Span) -> Result<Value> {
        if !f.generics.is_empty() || f.params.len() != arguments.len() {
            let (n, m) = (f.params.len(), arguments.len());
            let what = format!("`{}` needs {n} arguments and no compile-time ones here, but has {m}", f.name);
            fail(WRONG_ARGS, span, what)?;
        }
        self.calls += 1;
        if self.calls > MAX_CALLS {
            fail(TOO_LARGE, span, format!("more than {MAX_CALLS} calls are nested"))?;
        }
        let (floor, depth) = (self.floor, self.scope.len());
        self.floor = depth;
        for (param, value) in f.params.iter().zip(arguments) {
            self.bind(&param.name, value, false);
        }
        let result = self.block(&f.body);
        self.scope.truncate(depth);
        self.floor = floor;
        self.calls -= 1;
        match result {
            Err(Stop::Jump(Jump::Return(value))) => Ok(value),
            other => other,
        }
    }

    /// Runs a block in a scope of its own and returns the value of its last expression.
    fn block(&mut self, block: &ast::Block) -> Result<Value> {
        let depth = self.scope.len();
        let mut result = block.stmts.iter().try_for_each(|stmt| self.stmt(stmt)).map(|()| Value::Unit);
        if let (Ok(_), Some(value)) = (&result, &block.value) {
            result = self.expr(value);
        }
        self.scope.truncate(depth);
        result
    }

    fn stmt(&mut self, stmt: &ast::Stmt) -> Result<()> {
        self.step(stmt.span)?;
        match &stmt.kind {
            StmtKind::Let { mutable, name, ty, value } => {
                let mut found = self.expr(value)?;
                if let (Some(ty), Value::Number(n)) = (ty, found)
                    && Scalar::parse(&ty.name.name).is_some_and(Scalar::is_float)
                {
                    found = Value::Number(Number::Real(n.real()));
                }
                self.bind(name, found, *mutable);
                Ok(())
            }
            StmtKind::Assign { target, op, value } => self.assign(target, *op, value),
            StmtKind::For { var, lo, hi, step, body, .. } => {
                let (mut i, end) = (self.int(lo)?, self.int(hi)?);
                let by = step.as_ref().map_or(Ok(1), |step| self.int(step))?;
                if by <= 0 {
                    fail(WRONG_KIND, stmt.span, format!("the loop's step is {by}, but must be positive"))?;
                }
                while i < end {
                    let depth = self.scope.len();
                    self.bind(var, Value::Number(Number::Int(i)), false);
                    let goes_on = self.round(body, stmt.span);
                    self.scope.truncate(depth);
                    if !goes_on? {
                        break;
                    }
                    i += by;
                }
                Ok(())
            }
            StmtKind::While { cond, body } => {
                while self.truth(cond)? && self.round(body, stmt.span)? {}
                Ok(())
            }
            StmtKind::Loop { body } => {
                while self.round(body, stmt.span)? {}
                Ok(())
            }
            StmtKind::Role { .. } => Err(Stop::from(Diagnostic::error(
                WRONG_KIND,
                stmt.span,
                "a reference function has no roles: the host evaluates it",
            ))),
            StmtKind::Break => Err(Stop::Jump(Jump::Break)),
            StmtKind::Continue => Err(Stop::Jump(Jump::Continue)),
            StmtKind::Return(value) => {
                let value = value.as_ref().map_or(Ok(Value::Unit), |value| self.expr(value))?;
                Err(Stop::Jump(Jump::Return(value)))
            }
            StmtKind::Expr(e) => self.expr(e).map(|_| ()),
        }
    }

    /// Runs a round of a loop. Returns whether another round can follow.
    fn round(&mut self, body: &ast::Block, span: Span) -> Result<bool> {
        self.step(span)?;
        match self.block(body) {
            Ok(_) | Err(Stop::Jump(Jump::Continue)) => Ok(true),
            Err(Stop::Jump(Jump::Break)) => Ok(false),
            Err(stop) => Err(stop),
        }
    }

    fn assign(&mut self, target: &ast::Expr, op: Option<ast::BinOp>, value: &ast::Expr) -> Result<()> {
        let mut new = self.expr(value)?;
        if let Some(op) = op {
            let old = self.expr(target)?;
            new = self.binary(op, old, new, target.span)?;
        }
        match &target.kind {
            ast::ExprKind::Name(name) => {
                let Some(variable) = self.variable(&name.name).filter(|v| v.mutable) else {
                    let what = format!("`{name}` is not a variable declared by `let mut`");
                    return Ok(fail(NOT_ASSIGNABLE, target.span, what)?);
                };
                match (variable.value, new) {
                    (Value::Number(Number::Real(_)), Value::Number(n)) => {
                        variable.value = Value::Number(Number::Real(n.real()));
                    }
                    (old, new) if std::mem::discriminant(&old) == std::mem::discriminant(&new) => {
                        if let (Value::Number(a), Value::Number(b)) = (old, new)
                            && std::mem::discriminant(&a) != std::mem::discriminant(&b)
                        {
                            let what = format!("`{name}` holds {a}, and cannot become {b}");
                            return Err(Diagnostic::error(WRONG_KIND, target.span, what)
                                .help("a variable for real numbers begins with one, such as 0.0")
                                .into());
                        }
                        variable.value = new;
                    }
                    _ => fail(WRONG_KIND, target.span, format!("`{name}` holds a value of another kind"))?,
                }
                Ok(())
            }
            ast::ExprKind::Index { base, indices } => {
                let (tensor, pe, at) = self.element(base, indices, target.span)?;
                if pe != self.place.pe {
                    fail(
                        NOT_ASSIGNABLE,
                        target.span,
                        "each PE's result is evaluated separately; assign to this PE's tensor",
                    )?;
                }
                let Value::Number(n) = new else {
                    return Ok(fail(WRONG_KIND, value.span, "an element must be a number")?);
                };
                let written = self.tensors.write(tensor, at, n);
                Ok(written.or_else(|what| fail(WRONG_KIND, value.span, what))?)
            }
            _ => Ok(fail(NOT_ASSIGNABLE, target.span, "expected a variable or an element of a tensor")?),
        }
    }
}
