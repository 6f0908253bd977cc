//! What the parser makes of a `.weft` file. Every node has its span; nothing is resolved yet.

use std::sync::Arc;
use weft_ir::Role;
use weft_ir::diag::Span;

/// A name where it stands.
#[derive(Clone, PartialEq, Debug)]
pub struct Ident {
    /// The text.
    pub name: Arc<str>,
    /// Where.
    pub span: Span,
}

/// One `.weft` file.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct File {
    /// In source order.
    pub items: Vec<Item>,
}

/// What may stand at the top of a file.
#[derive(Clone, PartialEq, Debug)]
pub enum Item {
    /// `use "tiles.weft";` or `use weft::collectives;`
    Use(Use),
    /// `const WARP = 32;`
    Const(Const),
    /// `kernel name<...>(...) block(...) { ... }`
    Kernel(Kernel),
    /// `fn name<...>(...) { ... }`
    Function(Function),
    /// `reference fn name(...) { ... }`: what a kernel computes, evaluated on the host
    Reference(Function),
}

/// An import of every function and constant of another file.
#[derive(Clone, PartialEq, Debug)]
pub struct Use {
    /// Which.
    pub path: UsePath,
    /// Where.
    pub span: Span,
}

/// The two kinds of `use`.
#[derive(Clone, PartialEq, Debug)]
pub enum UsePath {
    /// A file, relative to the one that says so.
    File(Arc<str>),
    /// Segments of a built-in library path: `weft::collectives`.
    Builtin(Vec<Ident>),
}

/// A compile-time constant.
#[derive(Clone, PartialEq, Debug)]
pub struct Const {
    /// Its name.
    pub name: Ident,
    /// Its value.
    pub value: Expr,
    /// Where.
    pub span: Span,
}

/// A compile-time parameter: `T: float = f32`, `N: int % 8`.
#[derive(Clone, PartialEq, Debug)]
pub struct GenericParam {
    /// Its name.
    pub name: Ident,
    /// `float`, `int`, `dtype`, ...
    pub bound: Ident,
    /// `% 8`: known to be divisible by.
    pub div: Option<Expr>,
    /// `= f32`.
    pub default: Option<Expr>,
    /// Where.
    pub span: Span,
}

/// A type as written: `f32`, `team`, `int % 8`, `symm<T, (N):(1)>`.
#[derive(Clone, PartialEq, Debug)]
pub struct TypeExpr {
    /// `symm`, `f32`, `T`, ...
    pub name: Ident,
    /// Between `<` and `>`; `align = 16` is a named one.
    pub args: Vec<Arg>,
    /// `% 8`.
    pub div: Option<Box<Expr>>,
    /// Where.
    pub span: Span,
}

/// A run-time parameter. Functions may leave the type out (they are generic by inlining).
#[derive(Clone, PartialEq, Debug)]
pub struct Param {
    /// What the kernel uses it for: `zeroed`, if the text says so.
    pub role: Option<Role>,
    /// Its name.
    pub name: Ident,
    /// Its type.
    pub ty: Option<TypeExpr>,
    /// Where.
    pub span: Span,
}

/// A launch attribute of a kernel: `block(512)`, `grid(ceil_div(N, 4096))`, `cluster(2)`.
#[derive(Clone, PartialEq, Debug)]
pub struct Attr {
    /// Its name.
    pub name: Ident,
    /// Its arguments.
    pub args: Vec<Expr>,
    /// Where.
    pub span: Span,
}

/// An entry point.
#[derive(Clone, PartialEq, Debug)]
pub struct Kernel {
    /// Its name.
    pub name: Ident,
    /// Compile-time parameters.
    pub generics: Vec<GenericParam>,
    /// Run-time parameters.
    pub params: Vec<Param>,
    /// Launch attributes.
    pub attrs: Vec<Attr>,
    /// The code.
    pub body: Block,
    /// Where the head stands.
    pub span: Span,
}

/// A function: inlined where it is called.
#[derive(Clone, PartialEq, Debug)]
pub struct Function {
    /// Its name.
    pub name: Ident,
    /// Compile-time parameters.
    pub generics: Vec<GenericParam>,
    /// Parameters.
    pub params: Vec<Param>,
    /// `-> f32`.
    pub ret: Option<TypeExpr>,
    /// The code.
    pub body: Block,
    /// Where the head stands.
    pub span: Span,
}

/// `{ ... }`, with the value of its last expression if that has no semicolon.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Block {
    /// In order.
    pub stmts: Vec<Stmt>,
    /// The value of the block.
    pub value: Option<Box<Expr>>,
}

/// A statement where it stands.
#[derive(Clone, PartialEq, Debug)]
pub struct Stmt {
    /// What it is.
    pub kind: StmtKind,
    /// Where.
    pub span: Span,
}

/// The statements.
#[derive(Clone, PartialEq, Debug)]
#[expect(clippy::large_enum_variant, reason = "files are short; boxes would make every match longer")]
pub enum StmtKind {
    /// `let x = e;`, `let mut x: f32 = e;`
    Let {
        /// May be assigned.
        mutable: bool,
        /// The name.
        name: Ident,
        /// The type, if said.
        ty: Option<TypeExpr>,
        /// The value.
        value: Expr,
    },
    /// `place = e;`, `place += e;`
    Assign {
        /// A name or an indexed tensor.
        target: Expr,
        /// The operator of `+=` and its like.
        op: Option<BinOp>,
        /// The value.
        value: Expr,
    },
    /// `for i in lo..hi step s unroll(4) { ... }`
    For {
        /// The loop variable.
        var: Ident,
        /// First value.
        lo: Expr,
        /// One past the last.
        hi: Expr,
        /// `step s`, else 1.
        step: Option<Expr>,
        /// `unroll(4)`, `unroll`.
        unroll: Option<Unroll>,
        /// The body.
        body: Block,
    },
    /// `while cond { ... }`
    While {
        /// Tested before each round.
        cond: Expr,
        /// The body.
        body: Block,
    },
    /// `loop { ... }`
    Loop {
        /// The body, which ends the loop.
        body: Block,
    },
    /// `role name(threads, regs = n) { ... }`
    Role {
        /// The name.
        name: Ident,
        /// Its threads, and their registers.
        args: Vec<Arg>,
        /// What its threads do.
        body: Block,
    },
    /// `break;`
    Break,
    /// `continue;`
    Continue,
    /// An expression for its effect. `if` with blocks that have no value stands here too.
    Expr(Expr),
    /// `return e;`
    Return(Option<Expr>),
}

/// How a loop is unrolled.
#[derive(Clone, PartialEq, Debug)]
pub enum Unroll {
    /// `unroll`: wholly; the bounds are compile-time constants.
    Full,
    /// `unroll(n)`.
    By(Expr),
}

/// An argument, maybe named: `acc = f32`.
#[derive(Clone, PartialEq, Debug)]
pub struct Arg {
    /// The name in `name = value`.
    pub name: Option<Ident>,
    /// The value.
    pub value: Expr,
}

/// An expression where it stands.
#[derive(Clone, PartialEq, Debug)]
pub struct Expr {
    /// What it is.
    pub kind: ExprKind,
    /// Where.
    pub span: Span,
}

/// The expressions.
#[derive(Clone, PartialEq, Debug)]
pub enum ExprKind {
    /// `42`, `0xff`, `1_000`
    Int(i64),
    /// `1.5`, `1e-5`
    Float(f64),
    /// `true`
    Bool(bool),
    /// `"text"` (unescaped)
    Str(Arc<str>),
    /// `x`
    Name(Ident),
    /// `_`: the whole mode
    Underscore,
    /// `-a`, `!a`
    Unary(UnOp, Box<Expr>),
    /// `a + b`
    Binary(BinOp, Box<Expr>, Box<Expr>),
    /// `(a)`: a parenthesised expression, or a rank-1 tuple where a tuple is wanted
    Paren(Box<Expr>),
    /// `(a, b)`, `()`
    Tuple(Vec<Expr>),
    /// `(x = a, y = b)`
    Record(Vec<(Ident, Expr)>),
    /// `r.x`
    Field {
        /// `r`
        base: Box<Expr>,
        /// `x`
        name: Ident,
    },
    /// `shape : stride`
    Layout(Box<Expr>, Box<Expr>),
    /// `a..b` (in an index)
    Range(Box<Expr>, Box<Expr>),
    /// `f<generics>(args)`
    Call {
        /// The function.
        callee: Ident,
        /// `<add, acc = f32>`
        generics: Vec<Arg>,
        /// `(x, team = t)`
        args: Vec<Arg>,
    },
    /// `x.to<f32>()`
    Method {
        /// `x`
        recv: Box<Expr>,
        /// `to`
        name: Ident,
        /// `<f32>`
        generics: Vec<Arg>,
        /// `()`
        args: Vec<Arg>,
    },
    /// `t[i, _]`
    Index {
        /// `t`
        base: Box<Expr>,
        /// One per mode
        indices: Vec<Expr>,
    },
    /// `if c { a } else { b }`
    If {
        /// The condition.
        cond: Box<Expr>,
        /// If true.
        then: Block,
        /// If false (`else if` nests).
        otherwise: Option<Block>,
    },
}

/// Prefix operators.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum UnOp {
    /// `-`
    Neg,
    /// `!`
    Not,
}

/// Infix operators, loosest binding first: `||`, `&&`, comparisons, `|`, `^`, `&`, shifts, sums, products.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[expect(missing_docs, reason = "each is its sign")]
pub enum BinOp {
    Or,
    And,
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
    BitOr,
    BitXor,
    BitAnd,
    Shl,
    Shr,
    Add,
    Sub,
    Mul,
    Div,
    Rem,
}

impl Expr {
    /// Whether it is a value: everything is but a conditional none of whose blocks ends in one.
    pub fn has_value(&self) -> bool {
        match &self.kind {
            ExprKind::If { then, otherwise, .. } => {
                then.value.is_some() || otherwise.as_ref().is_some_and(|block| block.value.is_some())
            }
            _ => true,
        }
    }
}

impl From<Expr> for Block {
    /// The block whose last expression this is: its value if it has one, else its last statement.
    fn from(last: Expr) -> Block {
        if last.has_value() {
            return Block { stmts: Vec::new(), value: Some(Box::new(last)) };
        }
        let span = last.span;
        Block { stmts: vec![Stmt { kind: StmtKind::Expr(last), span }], value: None }
    }
}
