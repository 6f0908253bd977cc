//! Prints syntax trees as text that parses to the same trees. Comments are not in the tree, so they
//! are lost.

use crate::ast::*;
use crate::parser::{ESCAPES, sign};
use std::fmt::{self, Display, Formatter, Write};

/// The text of a file, indented by four spaces per level.
pub fn print(file: &File) -> String {
    Printed { node: file, indent: 0 }.to_string()
}

impl Display for Expr {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.print(f, 0)
    }
}

impl Display for TypeExpr {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.print(f, 0)
    }
}

impl Display for Ident {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl Display for UnOp {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_char(match self {
            UnOp::Neg => '-',
            UnOp::Not => '!',
        })
    }
}

impl Display for BinOp {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(sign(*self))
    }
}

/// A node that can print itself in a block of a given level.
trait Print {
    fn print(&self, f: &mut Formatter<'_>, indent: usize) -> fmt::Result;
}

struct Printed<'a, T: ?Sized> {
    node: &'a T,
    indent: usize,
}

impl<T: Print + ?Sized> Display for Printed<'_, T> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.node.print(f, self.indent)
    }
}

fn text(node: &Expr, indent: usize) -> Printed<'_, Expr> {
    Printed { node, indent }
}

/// Prints nodes separated by commas between brackets.
fn list<T: Print>(f: &mut Formatter<'_>, indent: usize, brackets: [&str; 2], nodes: &[T]) -> fmt::Result {
    f.write_str(brackets[0])?;
    for (n, node) in nodes.iter().enumerate() {
        f.write_str(if n == 0 { "" } else { ", " })?;
        node.print(f, indent)?;
    }
    f.write_str(brackets[1])
}

/// Prints `<a, b>`, or nothing if there are no nodes.
fn angles<T: Print>(f: &mut Formatter<'_>, indent: usize, nodes: &[T]) -> fmt::Result {
    if nodes.is_empty() { Ok(()) } else { list(f, indent, ["<", ">"], nodes) }
}

/// Prints the parameters of a head, on one line if they are short, and otherwise each on its own
/// line.
fn params(f: &mut Formatter<'_>, indent: usize, params: &[Param]) -> fmt::Result {
    let texts: Vec<String> =
        params.iter().map(|param| Printed { node: param, indent: indent + 1 }.to_string()).collect();
    if texts.iter().map(String::len).sum::<usize>() < 80 {
        return write!(f, "({})", texts.join(", "));
    }
    f.write_str("(")?;
    for text in texts {
        line(f, indent + 1)?;
        write!(f, "{text},")?;
    }
    line(f, indent)?;
    f.write_str(")")
}

/// Prints `before node`, if there is a node.
fn maybe<T: Print>(f: &mut Formatter<'_>, indent: usize, before: &str, node: Option<&T>) -> fmt::Result {
    let Some(node) = node else { return Ok(()) };
    f.write_str(before)?;
    node.print(f, indent)
}

fn line(f: &mut Formatter<'_>, indent: usize) -> fmt::Result {
    write!(f, "\n{:1$}", "", 4 * indent)
}

impl Print for File {
    fn print(&self, f: &mut Formatter<'_>, indent: usize) -> fmt::Result {
        for (n, item) in self.items.iter().enumerate() {
            let short = matches!(item, Item::Use(_) | Item::Const(_));
            f.write_str(if n == 0 || short { "" } else { "\n" })?;
            item.print(f, indent)?;
            f.write_str("\n")?;
        }
        Ok(())
    }
}

impl Print for Item {
    fn print(&self, f: &mut Formatter<'_>, indent: usize) -> fmt::Result {
        match self {
            Item::Use(Use { path: UsePath::File(file), .. }) => {
                f.write_str("use ")?;
                quoted(f, file)?;
                f.write_str(";")
            }
            Item::Use(Use { path: UsePath::Builtin(segments), .. }) => {
                let segments: Vec<&str> = segments.iter().map(|segment| &*segment.name).collect();
                write!(f, "use {};", segments.join("::"))
            }
            Item::Const(Const { name, value, .. }) => {
                write!(f, "const {name} = {};", Printed { node: value, indent })
            }
            Item::Kernel(kernel) => kernel.print(f, indent),
            Item::Function(function) => function.print(f, indent),
            Item::Reference(function) => {
                f.write_str("reference ")?;
                function.print(f, indent)
            }
        }
    }
}

impl Print for Kernel {
    fn print(&self, f: &mut Formatter<'_>, indent: usize) -> fmt::Result {
        write!(f, "kernel {}", self.name)?;
        angles(f, indent, &self.generics)?;
        params(f, indent, &self.params)?;
        for attr in &self.attrs {
            write!(f, " {}", attr.name)?;
            list(f, indent, ["(", ")"], &attr.args)?;
        }
        f.write_str(" ")?;
        self.body.print(f, indent)
    }
}

impl Print for Function {
    fn print(&self, f: &mut Formatter<'_>, indent: usize) -> fmt::Result {
        write!(f, "fn {}", self.name)?;
        angles(f, indent, &self.generics)?;
        params(f, indent, &self.params)?;
        maybe(f, indent, " -> ", self.ret.as_ref())?;
        f.write_str(" ")?;
        self.body.print(f, indent)
    }
}

impl Print for GenericParam {
    fn print(&self, f: &mut Formatter<'_>, indent: usize) -> fmt::Result {
        write!(f, "{}: {}", self.name, self.bound)?;
        maybe(f, indent, " % ", self.div.as_ref())?;
        maybe(f, indent, " = ", self.default.as_ref())
    }
}

impl Print for Param {
    fn print(&self, f: &mut Formatter<'_>, indent: usize) -> fmt::Result {
        if let Some(role) = self.role {
            write!(f, "{role} ")?;
        }
        write!(f, "{}", self.name)?;
        maybe(f, indent, ": ", self.ty.as_ref())
    }
}

impl Print for TypeExpr {
    fn print(&self, f: &mut Formatter<'_>, indent: usize) -> fmt::Result {
        write!(f, "{}", self.name)?;
        angles(f, indent, &self.args)?;
        maybe(f, indent, " % ", self.div.as_deref())
    }
}

impl Print for Arg {
    fn print(&self, f: &mut Formatter<'_>, indent: usize) -> fmt::Result {
        if let Some(name) = &self.name {
            write!(f, "{name} = ")?;
        }
        self.value.print(f, indent)
    }
}

impl Print for Block {
    fn print(&self, f: &mut Formatter<'_>, indent: usize) -> fmt::Result {
        match (&self.stmts[..], &self.value) {
            ([], None) => return f.write_str("{}"),
            ([], Some(value)) => return write!(f, "{{ {} }}", Printed { node: &**value, indent }),
            _ => {}
        }
        f.write_str("{")?;
        for stmt in &self.stmts {
            line(f, indent + 1)?;
            stmt.print(f, indent + 1)?;
        }
        if let Some(value) = &self.value {
            line(f, indent + 1)?;
            value.print(f, indent + 1)?;
        }
        line(f, indent)?;
        f.write_str("}")
    }
}

impl Print for Stmt {
    fn print(&self, f: &mut Formatter<'_>, indent: usize) -> fmt::Result {
        let text = |node| text(node, indent);
        match &self.kind {
            StmtKind::Let { mutable, name, ty, value } => {
                write!(f, "let {}{name}", if *mutable { "mut " } else { "" })?;
                maybe(f, indent, ": ", ty.as_ref())?;
                write!(f, " = {};", text(value))
            }
            StmtKind::Assign { target, op, value } => {
                let op = op.map(|op| op.to_string()).unwrap_or_default();
                write!(f, "{} {op}= {};", text(target), text(value))
            }
            StmtKind::For { var, lo, hi, step, unroll, body } => {
                write!(f, "for {var} in {}..{} ", text(lo), text(hi))?;
                if let Some(step) = step {
                    write!(f, "step {} ", text(step))?;
                }
                match unroll {
                    Some(Unroll::Full) => f.write_str("unroll ")?,
                    Some(Unroll::By(factor)) => write!(f, "unroll({}) ", text(factor))?,
                    None => {}
                }
                body.print(f, indent)
            }
            StmtKind::While { cond, body } => {
                write!(f, "while {} ", text(cond))?;
                body.print(f, indent)
            }
            StmtKind::Loop { body } => {
                f.write_str("loop ")?;
                body.print(f, indent)
            }
            StmtKind::Role { name, args, body } => {
                write!(f, "role {name}")?;
                list(f, indent, ["(", ") "], args)?;
                body.print(f, indent)
            }
            StmtKind::Break => f.write_str("break;"),
            StmtKind::Continue => f.write_str("continue;"),
            StmtKind::Expr(value) => {
                value.print(f, indent)?;
                // Without `;`, a conditional that has a value would be the value of the block.
                let done = matches!(&value.kind, ExprKind::If { .. }) && !value.has_value();
                f.write_str(if done { "" } else { ";" })
            }
            StmtKind::Return(None) => f.write_str("return;"),
            StmtKind::Return(Some(value)) => write!(f, "return {};", text(value)),
        }
    }
}

impl Print for Expr {
    fn print(&self, f: &mut Formatter<'_>, indent: usize) -> fmt::Result {
        let text = |node| text(node, indent);
        match &self.kind {
            ExprKind::Int(value) => write!(f, "{value}"),
            ExprKind::Float(value) => write!(f, "{value:?}"),
            ExprKind::Bool(value) => write!(f, "{value}"),
            ExprKind::Str(value) => quoted(f, value),
            ExprKind::Name(name) => write!(f, "{name}"),
            ExprKind::Underscore => f.write_str("_"),
            ExprKind::Unary(op, a) => write!(f, "{op}{}", text(a)),
            ExprKind::Binary(op, a, b) => write!(f, "{} {op} {}", text(a), text(b)),
            ExprKind::Paren(a) => write!(f, "({})", text(a)),
            ExprKind::Tuple(items) => {
                list(f, indent, ["(", if items.len() == 1 { ",)" } else { ")" }], items)
            }
            ExprKind::Record(fields) => {
                f.write_str("(")?;
                for (n, (name, value)) in fields.iter().enumerate() {
                    write!(f, "{}{name} = {}", if n == 0 { "" } else { ", " }, text(value))?;
                }
                f.write_str(")")
            }
            ExprKind::Field { base, name } => write!(f, "{}.{name}", text(base)),
            ExprKind::Layout(shape, stride) => write!(f, "{}:{}", text(shape), text(stride)),
            ExprKind::Range(lo, hi) => write!(f, "{}..{}", text(lo), text(hi)),
            ExprKind::Call { callee, generics, args } => {
                write!(f, "{callee}")?;
                angles(f, indent, generics)?;
                list(f, indent, ["(", ")"], args)
            }
            ExprKind::Method { recv, name, generics, args } => {
                write!(f, "{}.{name}", text(recv))?;
                angles(f, indent, generics)?;
                list(f, indent, ["(", ")"], args)
            }
            ExprKind::Index { base, indices } => {
                base.print(f, indent)?;
                list(f, indent, ["[", "]"], indices)
            }
            ExprKind::If { cond, then, otherwise } => {
                write!(f, "if {} ", text(cond))?;
                then.print(f, indent)?;
                let Some(otherwise) = otherwise else { return Ok(()) };
                f.write_str(" else ")?;
                match chained(otherwise) {
                    Some(next) => next.print(f, indent),
                    None => otherwise.print(f, indent),
                }
            }
        }
    }
}

/// The conditional of an `else if`.
pub(crate) fn chained(otherwise: &Block) -> Option<&Expr> {
    let last = match (&otherwise.stmts[..], &otherwise.value) {
        ([], Some(value)) => value,
        ([Stmt { kind: StmtKind::Expr(last), .. }], None) if !last.has_value() => last,
        _ => return None,
    };
    matches!(last.kind, ExprKind::If { .. }).then_some(last)
}

fn quoted(f: &mut Formatter<'_>, text: &str) -> fmt::Result {
    f.write_char('"')?;
    for c in text.chars() {
        match ESCAPES.iter().find(|(_, meaning)| *meaning == c) {
            Some((name, _)) => write!(f, "\\{name}")?,
            None => f.write_char(c)?,
        }
    }
    f.write_char('"')
}
