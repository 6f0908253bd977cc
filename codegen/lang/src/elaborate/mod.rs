//! The elaborator, which turns a parsed file into IR. It resolves names, binds compile-time
//! parameters, inlines functions and computes layouts. The rest is done at run time and becomes
//! ops.

mod accumulated;
mod arith;
mod builtin;
mod coordinates;
mod description;
mod distribution;
mod expr;
mod files;
mod head;
mod jump;
mod kinds;
mod names;
mod params;
mod role;
mod stmt;
mod tensor;
mod value;
mod words;

pub use builtin::{Builtin, all as builtins, markdown};
pub use description::{Compiled, Define, Defines, Head, HeadParam, REFERENCES, Reference};
pub use files::{Loader, NoFiles, Program};
pub use kinds::Kinds;
pub use names::Resolution;
pub(crate) use words::counted;

use crate::ast;
use std::collections::HashMap;
use std::sync::Arc;
use value::Val;
use weft_ir::Builder;
use weft_ir::diag::{Code, Diagnostic, Span};
use weft_ir::{Bound, Int, LocalId, Value, ValueType};

/// A result whose error is a diagnostic.
pub(crate) type Result<T, E = Diagnostic> = std::result::Result<T, E>;

/// The maximum number of instructions of a kernel before its passes (also of statements elaborated
/// for it), of numbers that these compute together, and of nested calls.
const MAX_INSTS: usize = 200_000;
const MAX_LANES: usize = 500_000;
const MAX_CALLS: usize = 64;

/// The code of an error that follows from one already reported.
pub(crate) const SILENT: Code = Code(0);

/// The meaning of a name.
#[derive(Clone, Debug)]
enum Binding {
    Val(Val),
    /// A variable that can be assigned. It has the shape of the register tensor, if it holds one.
    Local(LocalId, Option<value::Fragment>),
}

/// The state of the elaboration of one kernel.
pub(crate) struct Elab<'a> {
    program: &'a Program,
    b: Builder,
    scopes: Vec<HashMap<Arc<str>, Binding>>,
    /// Scopes below this index belong to callers and are invisible.
    floor: usize,
    calls: usize,
    /// Whether asserts are turned into ops.
    asserts: bool,
    /// The number of statements, calls and uses of constants so far, which need not emit
    /// instructions.
    steps: usize,
    /// The number of lanes of all instructions so far, up to the instruction `counted`.
    lanes: usize,
    counted: usize,
    errors: Vec<Diagnostic>,
    /// Values that differ between the threads of a CTA (see [`tensor`]).
    varying: std::collections::HashSet<Value>,
    /// The positions of views of parameters in the modes of the parameter's layout, flattened, for
    /// copies of tiles.
    positions: HashMap<Value, Arc<Vec<Bound>>>,
    /// The bounds that the variables of loops stay below, within the loops' bodies.
    below: HashMap<u32, Int>,
    flow: jump::Flow,
    /// The threads of the kernel's roles, in the order of the text.
    roles: Vec<role::Plan>,
    /// Descriptions of variables and parameters by their definition, if they are requested.
    kinds: Option<kinds::Kinds>,
}

pub(crate) fn fail<T>(code: Code, span: Span, message: impl Into<String>) -> Result<T> {
    Err(Diagnostic::error(code, span, message))
}

impl<'a> Elab<'a> {
    fn new(program: &'a Program, asserts: bool, b: Builder) -> Elab<'a> {
        Elab {
            program,
            b,
            scopes: vec![HashMap::new()],
            floor: 0,
            calls: 0,
            asserts,
            steps: 0,
            lanes: 0,
            counted: 0,
            errors: Vec::new(),
            varying: Default::default(),
            positions: HashMap::new(),
            below: HashMap::new(),
            flow: jump::Flow::default(),
            roles: Vec::new(),
            kinds: None,
        }
    }

    fn bind(&mut self, name: &ast::Ident, binding: Binding) {
        self.note_kind(name, &binding);
        if let Some(scope) = self.scopes.last_mut() {
            scope.insert(name.name.clone(), binding);
        }
    }

    fn lookup(&self, name: &str) -> Option<&Binding> {
        let own = self.scopes.iter().skip(self.floor).rev().find_map(|s| s.get(name));
        own.or_else(|| self.scopes.first().and_then(|globals| globals.get(name)).filter(|_| self.floor > 0))
    }

    fn scoped<T>(&mut self, f: impl FnOnce(&mut Self) -> T) -> T {
        self.scopes.push(HashMap::new());
        let out = f(self);
        self.scopes.pop();
        out
    }

    /// Reports an error unless it follows from one reported before.
    fn report(&mut self, d: Diagnostic) {
        if d.code != SILENT {
            self.errors.push(d);
        }
    }

    /// Counts a step, and fails if the kernel has grown too large.
    fn check_size(&mut self, span: Span) -> Result<()> {
        self.steps += 1;
        let insts = &self.b.kernel().insts;
        while self.counted < insts.len() {
            let ty = &insts[Value(self.counted as u32)].ty;
            self.lanes += ty.lanes().map_or(1, |n| n as usize);
            self.counted += 1;
        }
        if insts.len().max(self.steps) > MAX_INSTS || self.lanes > MAX_LANES {
            return Err(Diagnostic::error(
                crate::codes::meaning::TOO_LARGE,
                span,
                format!("unrolling and inlining make more than {MAX_INSTS} instructions or steps, or {MAX_LANES} numbers"),
            )
            .help("unroll less: `unroll(4)` instead of `unroll`"));
        }
        Ok(())
    }

    fn symbol(&self, v: Value) -> Result<Int> {
        self.b.symbol(v)
    }
}
