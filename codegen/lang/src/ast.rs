//! The syntax tree that the parser makes of a `.weft` file. Every node has its span, and names are
//! not resolved yet.

use std::sync::Arc;
use weft_ir::Role;
use weft_ir::diag::Span;

/// A name with its span in the source.
#[derive(Clone, PartialEq, Debug)]
pub struct Ident {
    /// The text of the name.
    pub name: Arc<str>,
    /// The source text of the name.
    pub span: Span,
}

/// The syntax tree of one `.weft` file.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct File {
    /// The items in source order.
    pub items: Vec<Item>,
}

/// An item at the top level of a file.
#[derive(Clone, PartialEq, Debug)]
pub enum Item {
    /// `use "tiles.weft";` or `use weft::collectives;`
    Use(Use),
    /// A constant: `const WARP = 32;`
    Const(Const),
    /// A kernel: `kernel name<...>(...) block(...) { ... }`
    Kernel(Kernel),
    /// A function: `fn name<...>(...) { ... }`
    Function(Function),
    /// A function that the host evaluates and that states what a kernel computes: `reference fn
    /// name(...) { ... }`
    Reference(Function),
}

/// An import of every function and constant of another file.
#[derive(Clone, PartialEq, Debug)]
pub struct Use {
    /// The file that is imported.
    pub path: UsePath,
    /// The source text of the import.
    pub span: Span,
}

/// The forms of a `use`.
#[derive(Clone, PartialEq, Debug)]
pub enum UsePath {
    /// The path of a file, relative to the file that contains the `use`.
    File(Arc<str>),
    /// The segments of a path in the built-in library: `weft::collectives`.
    Builtin(Vec<Ident>),
}

/// A named compile-time constant.
#[derive(Clone, PartialEq, Debug)]
pub struct Const {
    /// The name of the constant.
    pub name: Ident,
    /// The expression for the value.
    pub value: Expr,
    /// The source text of the constant.
    pub span: Span,
}

/// A compile-time parameter: `T: float = f32`, `N: int % 8`.
#[derive(Clone, PartialEq, Debug)]
pub struct GenericParam {
    /// The name of the parameter.
    pub name: Ident,
    /// The kind of value, such as `float`, `int` or `dtype`.
    pub bound: Ident,
    /// The divisor, written `% 8`.
    pub div: Option<Expr>,
    /// The default value, such as `= f32`.
    pub default: Option<Expr>,
    /// The source text of the parameter.
    pub span: Span,
}

/// A type as written: `f32`, `team`, `int % 8`, `symm<T, (N):(1)>`.
#[derive(Clone, PartialEq, Debug)]
pub struct TypeExpr {
    /// The name of the type, such as `symm`, `f32` or `T`.
    pub name: Ident,
    /// The arguments between `<` and `>`. `align = 16` is a named argument.
    pub args: Vec<Arg>,
    /// The divisor, written `% 8`.
    pub div: Option<Box<Expr>>,
    /// The source text of the type.
    pub span: Span,
}

/// A run-time parameter. Parameters of functions can omit the type, because functions are inlined.
#[derive(Clone, PartialEq, Debug)]
pub struct Param {
    /// The role of the parameter, such as `zeroed`, if the text states one.
    pub role: Option<Role>,
    /// The name of the parameter.
    pub name: Ident,
    /// The type of the parameter.
    pub ty: Option<TypeExpr>,
    /// The source text of the parameter.
    pub span: Span,
}

/// A launch attribute of a kernel: `block(512)`, `grid(ceil_div(N, 4096))`, `cluster(2)`.
#[derive(Clone, PartialEq, Debug)]
pub struct Attr {
    /// The name of the attribute.
    pub name: Ident,
    /// The arguments of the attribute.
    pub args: Vec<Expr>,
    /// The source text of the attribute.
    pub span: Span,
}

/// A kernel: an entry point that a host launches.
#[derive(Clone, PartialEq, Debug)]
pub struct Kernel {
    /// The name of the kernel.
    pub name: Ident,
    /// The compile-time parameters, in angle brackets.
    pub generics: Vec<GenericParam>,
    /// The run-time parameters, in parentheses.
    pub params: Vec<Param>,
    /// The launch attributes, such as `block(512)`.
    pub attrs: Vec<Attr>,
    /// The block that the kernel runs.
    pub body: Block,
    /// The source text of the head.
    pub span: Span,
}

/// A function, which is inlined where it is called.
#[derive(Clone, PartialEq, Debug)]
pub struct Function {
    /// The name of the function.
    pub name: Ident,
    /// The compile-time parameters, in angle brackets.
    pub generics: Vec<GenericParam>,
    /// The parameters, in parentheses.
    pub params: Vec<Param>,
    /// The type of the result, such as `-> f32`.
    pub ret: Option<TypeExpr>,
    /// The block that the function runs.
    pub body: Block,
    /// The source text of the head.
    pub span: Span,
}

/// A block `{ ... }`. Its value is its last expression, if that has no semicolon.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Block {
    /// The statements in source order.
    pub stmts: Vec<Stmt>,
    /// The value of the block.
    pub value: Option<Box<Expr>>,
}

/// A statement with its span in the source.
#[derive(Clone, PartialEq, Debug)]
pub struct Stmt {
    /// The statement without its span.
    pub kind: StmtKind,
    /// The source text of the statement.
    pub span: Span,
}

/// The kinds of statements.
#[derive(Clone, PartialEq, Debug)]
#[expect(clippy::large_enum_variant, reason = "files are short, and boxes would make every match longer")]
pub enum StmtKind {
    /// The declaration of a variable: `let x = e;`, `let mut x: f32 = e;`
    Let {
        /// Whether the variable can be assigned.
        mutable: bool,
        /// The name of the variable.
        name: Ident,
        /// The type of the variable, if the text states it.
        ty: Option<TypeExpr>,
        /// The expression for the first value.
        value: Expr,
    },
    /// An assignment: `place = e;`, `place += e;`
    Assign {
        /// The target of the assignment: a name or an indexed tensor.
        target: Expr,
        /// The operator of `+=` and similar assignments.
        op: Option<BinOp>,
        /// The expression for the new value.
        value: Expr,
    },
    /// A loop over integers: `for i in lo..hi step s unroll(4) { ... }`
    For {
        /// The name of the loop variable.
        var: Ident,
        /// The expression for the first value.
        lo: Expr,
        /// The bound that the variable stays below.
        hi: Expr,
        /// The step `step s`, which is 1 if it is left out.
        step: Option<Expr>,
        /// The request to unroll, written `unroll(4)` or `unroll`.
        unroll: Option<Unroll>,
        /// The block that each round runs.
        body: Block,
    },
    /// A loop with a condition: `while cond { ... }`
    While {
        /// The condition, which is tested before each round.
        cond: Expr,
        /// The block that each round runs.
        body: Block,
    },
    /// A loop that only `break` or `return` ends: `loop { ... }`
    Loop {
        /// The body of the loop, which contains the jump that ends it.
        body: Block,
    },
    /// A role: `role name(threads, regs = n) { ... }`
    Role {
        /// The name of the role.
        name: Ident,
        /// The number of threads, and the number of registers per thread.
        args: Vec<Arg>,
        /// The code that its threads run.
        body: Block,
    },
    /// The end of a loop: `break;`
    Break,
    /// The end of a round: `continue;`
    Continue,
    /// An expression that is evaluated for its effect, such as an `if` whose blocks have no value.
    Expr(Expr),
    /// The end of a function: `return e;`
    Return(Option<Expr>),
}

/// The way in which a loop is unrolled.
#[derive(Clone, PartialEq, Debug)]
pub enum Unroll {
    /// `unroll`: complete unrolling of a loop whose bounds are compile-time constants.
    Full,
    /// `unroll(n)`: unrolling by the factor `n`.
    By(Expr),
}

/// An argument, which can be named: `acc = f32`.
#[derive(Clone, PartialEq, Debug)]
pub struct Arg {
    /// The name in `name = value`.
    pub name: Option<Ident>,
    /// The expression for the value.
    pub value: Expr,
}

/// An expression with its span in the source.
#[derive(Clone, PartialEq, Debug)]
pub struct Expr {
    /// The expression without its span.
    pub kind: ExprKind,
    /// The source text of the expression.
    pub span: Span,
}

/// The kinds of expressions.
#[derive(Clone, PartialEq, Debug)]
pub enum ExprKind {
    /// An integer: `42`, `0xff`, `1_000`
    Int(i64),
    /// A floating-point number: `1.5`, `1e-5`
    Float(f64),
    /// A truth value, `true` or `false`.
    Bool(bool),
    /// A text in quotes, with its escapes resolved.
    Str(Arc<str>),
    /// The name `x` of a variable, parameter or constant.
    Name(Ident),
    /// The placeholder `_`, which keeps a whole mode.
    Underscore,
    /// An operator before its operand: `-a`, `!a`
    Unary(UnOp, Box<Expr>),
    /// An operator between two operands: `a + b`
    Binary(BinOp, Box<Expr>, Box<Expr>),
    /// A parenthesised expression `(a)`, which is a tuple of rank 1 where a tuple is expected.
    Paren(Box<Expr>),
    /// A tuple: `(a, b)`, `()`
    Tuple(Vec<Expr>),
    /// A tuple with named fields: `(x = a, y = b)`
    Record(Vec<(Ident, Expr)>),
    /// A field of a record: `r.x`
    Field {
        /// The record, `r` in `r.x`.
        base: Box<Expr>,
        /// The name of the field, `x` in `r.x`.
        name: Ident,
    },
    /// A layout, written `shape : stride`.
    Layout(Box<Expr>, Box<Expr>),
    /// A range `a..b`, which can be an index.
    Range(Box<Expr>, Box<Expr>),
    /// A call of a function: `f<generics>(args)`
    Call {
        /// The name of the function.
        callee: Ident,
        /// The compile-time arguments: `<add, acc = f32>`
        generics: Vec<Arg>,
        /// The arguments in parentheses: `(x, team = t)`
        args: Vec<Arg>,
    },
    /// A call of a method: `x.to<f32>()`
    Method {
        /// The value before the point, `x` in `x.to<f32>()`.
        recv: Box<Expr>,
        /// The name of the method, `to` in `x.to<f32>()`.
        name: Ident,
        /// The compile-time arguments: `<f32>` in `x.to<f32>()`.
        generics: Vec<Arg>,
        /// The arguments in parentheses: `()` in `x.to<f32>()`.
        args: Vec<Arg>,
    },
    /// An element or a slice of a tensor: `t[i, _]`
    Index {
        /// The tensor, `t` in `t[i, _]`.
        base: Box<Expr>,
        /// The indices, one for each mode.
        indices: Vec<Expr>,
    },
    /// A conditional: `if c { a } else { b }`
    If {
        /// The condition of the branch.
        cond: Box<Expr>,
        /// The block that runs if the condition is true.
        then: Block,
        /// The block that runs if the condition is false. `else if` is a nested conditional.
        otherwise: Option<Block>,
    },
}

/// The prefix operators of expressions.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum UnOp {
    /// The negative of a number, `-`.
    Neg,
    /// The negation of a truth value, `!`.
    Not,
}

/// The infix operators, beginning with those that bind least tightly: `||`, `&&`, comparisons, `|`,
/// `^`, `&`, shifts, sums, products.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[expect(missing_docs, reason = "each variant is named after its operator")]
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
    /// Whether the expression has a value. All expressions have one, except conditionals whose
    /// blocks have none.
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
    /// The block that ends with this expression. If the expression has a value, it is the block's
    /// value, and otherwise its last statement.
    fn from(last: Expr) -> Block {
        if last.has_value() {
            return Block { stmts: Vec::new(), value: Some(Box::new(last)) };
        }
        let span = last.span;
        Block { stmts: vec![Stmt { kind: StmtKind::Expr(last), span }], value: None }
    }
}
