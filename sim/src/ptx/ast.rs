//! The syntax tree of a PTX module: names are slices of the text, nothing is resolved yet.

/// A byte offset in the text. Errors compute lines and columns from it.
pub(crate) type Offset = u32;

#[derive(Debug, Default)]
pub(crate) struct Ast<'a> {
    pub version: (u32, u32),
    pub target: &'a str,
    /// The `.file` directives, as number and name.
    pub files: Vec<(u64, String)>,
    pub variables: Vec<Variable<'a>>,
    pub functions: Vec<Function<'a>>,
}

#[derive(Debug)]
pub(crate) struct Function<'a> {
    pub at: Offset,
    pub name: &'a str,
    pub is_entry: bool,
    pub returns: Vec<Variable<'a>>,
    pub params: Vec<Variable<'a>>,
    /// Performance and other directives between the parameters and the body, with their numbers.
    pub directives: Vec<(&'a str, Vec<u64>)>,
    /// `None` for a declaration.
    pub body: Option<Vec<Statement<'a>>>,
}

/// A declared variable or parameter.
#[derive(Debug, Clone)]
pub(crate) struct Variable<'a> {
    pub at: Offset,
    pub name: &'a str,
    /// `global`, `const`, `shared`, `local`, `param` or `reg`.
    pub space: &'a str,
    pub is_extern: bool,
    pub align: Option<u64>,
    /// Vector length of the element: 1, 2 or 4.
    pub vector: u8,
    /// Type name without its dot.
    pub ty: &'a str,
    /// Whether `.ptr` was given (kernel parameters).
    pub is_pointer: bool,
    /// Array dimensions, outermost first; `None` for `[]`.
    pub dims: Vec<Option<u64>>,
    pub init: Vec<Init<'a>>,
}

#[derive(Debug, Clone)]
pub(crate) enum Init<'a> {
    Number(Number),
    /// The address `x + n` or `generic(x) + n`, which is the same for global and constant
    /// variables.
    Symbol {
        name: &'a str,
        offset: i64,
    },
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Number {
    /// Two's complement bits and whether a minus sign was given.
    Int(u64),
    /// `0f` literal.
    F32(u32),
    /// `0d` literal or a decimal one.
    F64(f64),
}

#[derive(Debug)]
pub(crate) enum Statement<'a> {
    Block(Vec<Statement<'a>>),
    /// `.reg .ty name` or `name<count>`.
    Reg {
        at: Offset,
        ty: &'a str,
        name: &'a str,
        count: Option<u64>,
    },
    Var(Variable<'a>),
    Label {
        at: Offset,
        name: &'a str,
    },
    /// `name: .branchtargets a, b;`
    Targets {
        at: Offset,
        name: &'a str,
        targets: Vec<&'a str>,
    },
    /// `name: .callprototype ...;` or `.calltargets`: they carry no code.
    Prototype,
    Loc(Loc),
    Inst(Instruction<'a>),
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Loc {
    pub file: u64,
    pub line: u32,
    pub column: u32,
    /// The location at which the code was inlined (`inlined_at`).
    pub inlined_at: Option<(u64, u32, u32)>,
}

#[derive(Debug)]
pub(crate) struct Instruction<'a> {
    pub at: Offset,
    pub guard: Option<Guard<'a>>,
    pub opcode: &'a str,
    pub modifiers: Vec<&'a str>,
    pub operands: Vec<Operand<'a>>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Guard<'a> {
    pub negated: bool,
    pub name: &'a str,
}

#[derive(Debug, Clone)]
pub(crate) enum Operand<'a> {
    /// A register, special register (`%tid.x`), variable, label or `_`, with an offset for
    /// variables.
    Name {
        name: &'a str,
        offset: i64,
    },
    /// A part of a register, or its negative (video instructions): `%r1.b0` or `-%r1.h1`.
    Part {
        name: &'a str,
        part: &'a str,
        negated: bool,
    },
    /// `!p`
    Not(&'a str),
    Number(Number),
    /// `[base+offset]`
    Address {
        base: Base<'a>,
        offset: i64,
    },
    /// A position in a tensor: `[map+offset, {c0, c1}]`.
    Tensor {
        base: Base<'a>,
        offset: i64,
        coordinates: Vec<Operand<'a>>,
    },
    /// `{a, b}`
    Vector(Vec<Operand<'a>>),
    /// `d|p`
    Pair(&'a str, &'a str),
    /// `(a, b)` in calls
    List(Vec<Operand<'a>>),
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Base<'a> {
    Name(&'a str),
    Absolute(u64),
}
