//! The formatting of expressions and lists.

use super::Formatter;
use super::doc::Doc;
use crate::ast::{Arg, Block, Expr, ExprKind, GenericParam, Ident};
use crate::lexer::TokenKind;
use crate::parser::{level, sign};
use crate::print::chained;

/// If all items of a long list have at most this number of characters, they share lines.
const SHORT: usize = 24;

/// The same limit for parameters of a kernel and for those in angle brackets, which are named and
/// have defaults.
pub(super) const SHORT_PARAMETER: usize = 48;

/// A list with more items than this is long.
const FEW: usize = 4;

impl<'a> Formatter<'a> {
    pub(super) fn expr(&mut self, expr: &Expr) -> Doc<'a> {
        match &expr.kind {
            ExprKind::Int(_)
            | ExprKind::Float(_)
            | ExprKind::Bool(_)
            | ExprKind::Str(_)
            | ExprKind::Name(_)
            | ExprKind::Underscore => self.token(),
            ExprKind::Unary(_, value) => Doc::seq(vec![self.token(), self.expr(value)]),
            ExprKind::Binary(..) => self.chain(expr),
            ExprKind::Paren(value) => {
                let open = self.token();
                let value = self.expr(value);
                let closing = self.closing(true);
                Doc::seq(vec![open, value, closing, self.token()])
            }
            ExprKind::Tuple(items) => self.tuple(items),
            ExprKind::Record(fields) => self.list(fields, Self::field),
            ExprKind::Field { base, .. } => Doc::seq(vec![self.expr(base), self.token(), self.token()]),
            ExprKind::Layout(a, b) | ExprKind::Range(a, b) => {
                Doc::seq(vec![self.expr(a), self.token(), self.expr(b)])
            }
            ExprKind::Call { generics, args, .. } => {
                let parts = vec![self.token(), self.angles(generics, Self::arg), self.list(args, Self::arg)];
                Doc::seq(parts)
            }
            ExprKind::Method { recv, generics, args, .. } => {
                let mut parts = vec![self.expr(recv), self.token(), self.token()];
                parts.extend([self.angles(generics, Self::arg), self.list(args, Self::arg)]);
                Doc::seq(parts)
            }
            ExprKind::Index { base, indices } => {
                Doc::seq(vec![self.expr(base), self.list(indices, Self::expr)])
            }
            ExprKind::If { cond, then, otherwise } => {
                self.conditional(cond, then, otherwise.as_ref()).group()
            }
        }
    }

    /// Operators of one level: all of them stay on the line, or each begins a line.
    fn chain(&mut self, expr: &Expr) -> Doc<'a> {
        let mut operands = Vec::new();
        let mut left = expr;
        while let ExprKind::Binary(op, a, b) = &left.kind
            && level(*op) == binary_level(expr)
        {
            operands.push((*op, &**b));
            left = a;
        }
        let first = self.expr(left);
        let mut rest = Vec::new();
        for (op, operand) in operands.into_iter().rev() {
            rest.extend([Doc::LINE, self.sign(sign(op).len()), Doc::text(" "), self.expr(operand)]);
        }
        Doc::seq(vec![first, Doc::seq(rest).indent()]).group()
    }

    /// An operator with this number of characters, which can be several tokens.
    pub(super) fn sign(&mut self, characters: usize) -> Doc<'a> {
        let mut parts = Vec::new();
        let mut seen = 0;
        while seen < characters && !self.is(TokenKind::End) {
            seen += self.next().text.len();
            parts.push(self.token());
        }
        Doc::seq(parts)
    }

    /// Conditions and blocks. All of their possible line breaks are used, or none is.
    fn conditional(&mut self, cond: &Expr, then: &Block, otherwise: Option<&Block>) -> Doc<'a> {
        let space = || Doc::text(" ");
        let mut parts = vec![self.token(), space(), self.expr(cond), space(), self.block(then)];
        if let Some(otherwise) = otherwise {
            parts.extend([space(), self.token(), space()]);
            parts.push(match chained(otherwise).map(|next| &next.kind) {
                Some(ExprKind::If { cond, then, otherwise }) if self.is(TokenKind::If) => {
                    self.conditional(cond, then, otherwise.as_ref())
                }
                _ => self.block(otherwise),
            });
        }
        Doc::seq(parts)
    }

    pub(super) fn arg(&mut self, arg: &Arg) -> Doc<'a> {
        self.named(arg.name.as_ref(), &arg.value)
    }

    fn field(&mut self, (name, value): &(Ident, Expr)) -> Doc<'a> {
        self.named(Some(name), value)
    }

    fn named(&mut self, name: Option<&Ident>, value: &Expr) -> Doc<'a> {
        if name.is_none() {
            return self.expr(value);
        }
        Doc::seq(vec![self.token(), Doc::text(" "), self.token(), Doc::text(" "), self.expr(value)])
    }

    /// A list between `<` and `>`, if there is one.
    pub(super) fn angles<T>(&mut self, items: &[T], item: impl Fn(&mut Self, &T) -> Doc<'a>) -> Doc<'a> {
        if self.is(TokenKind::Lt) && (!items.is_empty() || self.after_is(TokenKind::Gt)) {
            self.list(items, item)
        } else {
            Doc::seq(Vec::new())
        }
    }

    fn after_is(&self, kind: TokenKind) -> bool {
        self.tokens.get(self.at + 1).is_some_and(|token| token.kind == kind)
    }

    fn tuple(&mut self, items: &[Expr]) -> Doc<'a> {
        let [only] = items else { return self.list(items, Self::expr) };
        // The comma makes it a tuple.
        let mut parts = vec![self.token(), self.expr(only), self.token()];
        let closing = self.closing(true);
        parts.extend([closing, self.token()]);
        Doc::seq(parts)
    }

    /// The parameters of a kernel or a function in angle brackets, if there are any.
    pub(super) fn generics(&mut self, params: &[GenericParam]) -> Doc<'a> {
        if !self.is(TokenKind::Lt) {
            return Doc::seq(Vec::new());
        }
        self.list_of(params, Self::generic_param, SHORT_PARAMETER)
    }

    /// A list whose items are short if they have at most `SHORT` characters.
    pub(super) fn list<T>(&mut self, items: &[T], item: impl Fn(&mut Self, &T) -> Doc<'a>) -> Doc<'a> {
        self.list_of(items, item, SHORT)
    }

    /// An opening bracket, items separated by commas, and the closing bracket. The list is on one
    /// line, or its items share a line of their own, or each item has its own line. Items that are
    /// all short share lines.
    pub(super) fn list_of<T>(
        &mut self,
        items: &[T],
        item: impl Fn(&mut Self, &T) -> Doc<'a>,
        short: usize,
    ) -> Doc<'a> {
        let open = self.token();
        let mut docs = Vec::new();
        for (n, value) in items.iter().enumerate() {
            let doc = item(self, value);
            let comma = match self.is(TokenKind::Comma) {
                true if n + 1 < items.len() => self.token(),
                true => Doc::seq(vec![Doc::COMMA, self.comma_comments()]),
                false => Doc::COMMA,
            };
            docs.push(Doc::seq(vec![doc, comma]));
        }
        let closing = self.closing(items.is_empty());
        let close = self.token();
        if docs.is_empty() && !closing.has_lines() {
            return Doc::seq(vec![open, close]);
        }
        let short = docs.len() > FEW && docs.iter().all(|doc| doc.is_short(short));
        let between = || if short { Doc::FILL_LINE } else { Doc::LINE };
        let mut inner = Vec::new();
        for (n, doc) in docs.into_iter().enumerate() {
            inner.extend((n > 0).then(between));
            inner.push(doc);
        }
        let inner = Doc::seq(inner).group();
        let inside = Doc::seq(vec![Doc::SOFT, inner, closing]).indent();
        Doc::seq(vec![open, inside, Doc::SOFT, close]).group()
    }
}

fn binary_level(expr: &Expr) -> u8 {
    match &expr.kind {
        ExprKind::Binary(op, ..) => level(*op),
        _ => 0,
    }
}
