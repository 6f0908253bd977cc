//! The formatting of items, blocks and statements.

use super::Formatter;
use super::doc::Doc;
use super::exprs::SHORT_PARAMETER;
use crate::ast::{
    Attr, Block, Const, File, Function, GenericParam, Item, Kernel, Param, Stmt, StmtKind, TypeExpr, Unroll,
};
use crate::lexer::TokenKind;

impl<'a> Formatter<'a> {
    pub(super) fn file(&mut self, file: &File) -> Doc<'a> {
        let mut parts = Vec::new();
        for (n, item) in file.items.iter().enumerate() {
            parts.push(self.leading(n == 0));
            parts.push(self.item(item));
            parts.push(Doc::HARD);
        }
        parts.push(self.closing(file.items.is_empty()));
        Doc::seq(parts)
    }

    fn item(&mut self, item: &Item) -> Doc<'a> {
        match item {
            Item::Use(_) => {
                let mut parts = vec![self.token(), Doc::text(" ")];
                while !self.is(TokenKind::Semi) && !self.is(TokenKind::End) {
                    parts.push(self.token());
                }
                parts.push(self.token());
                Doc::seq(parts)
            }
            Item::Const(Const { value, .. }) => {
                let mut parts = vec![self.token(), Doc::text(" "), self.token()];
                parts.extend([self.equals(), self.token(), Doc::text(" "), self.expr(value), self.token()]);
                Doc::seq(parts)
            }
            Item::Kernel(kernel) => self.kernel(kernel),
            Item::Function(function) => self.function(function),
            Item::Reference(function) => {
                Doc::seq(vec![self.token(), Doc::text(" "), self.function(function)])
            }
        }
    }

    /// The space before the next `=`.
    fn equals(&self) -> Doc<'a> {
        let next = self.next();
        if next.before.is_empty() {
            Doc::equals(next.spaces > 1 && !next.begins_line)
        } else {
            Doc::text(" ")
        }
    }

    fn kernel(&mut self, kernel: &Kernel) -> Doc<'a> {
        let mut parts = vec![self.token(), Doc::text(" "), self.token()];
        parts.push(self.generics(&kernel.generics));
        parts.push(self.list_of(&kernel.params, Self::param, SHORT_PARAMETER));
        let mut attrs = Vec::new();
        for attr in &kernel.attrs {
            attrs.extend([Doc::LINE, self.attr(attr)]);
        }
        let first = if attrs.is_empty() { None } else { Some(attrs.remove(0)) };
        let attrs = Doc::seq(first.into_iter().chain([Doc::seq(attrs).group()]).collect()).indent();
        let open = if kernel.attrs.is_empty() { Doc::text(" ") } else { Doc::LINE };
        parts.push(Doc::seq(vec![attrs, open, self.token()]).group());
        parts.push(self.block_rest(&kernel.body).group());
        Doc::seq(parts)
    }

    fn attr(&mut self, attr: &Attr) -> Doc<'a> {
        Doc::seq(vec![self.token(), self.list(&attr.args, Self::expr)])
    }

    fn function(&mut self, function: &Function) -> Doc<'a> {
        let mut parts = vec![self.token(), Doc::text(" "), self.token()];
        parts.push(self.generics(&function.generics));
        parts.push(self.list(&function.params, Self::param));
        if let Some(ret) = &function.ret {
            parts.extend([Doc::text(" "), self.token(), Doc::text(" "), self.ty(ret)]);
        }
        parts.extend([Doc::text(" "), self.block(&function.body).group()]);
        Doc::seq(parts)
    }

    pub(super) fn generic_param(&mut self, param: &GenericParam) -> Doc<'a> {
        let mut parts = vec![self.token(), self.token(), Doc::text(" "), self.token()];
        if let Some(div) = &param.div {
            parts.extend([Doc::text(" "), self.token(), Doc::text(" "), self.expr(div)]);
        }
        if let Some(default) = &param.default {
            parts.extend([Doc::text(" "), self.token(), Doc::text(" "), self.expr(default)]);
        }
        Doc::seq(parts)
    }

    fn param(&mut self, param: &Param) -> Doc<'a> {
        let mut parts = Vec::new();
        if param.role.is_some() {
            parts.extend([self.token(), Doc::text(" ")]);
        }
        parts.push(self.token());
        if let Some(ty) = &param.ty {
            parts.extend([self.token(), Doc::text(" "), self.ty(ty)]);
        }
        Doc::seq(parts)
    }

    fn ty(&mut self, ty: &TypeExpr) -> Doc<'a> {
        let mut parts = vec![self.token(), self.angles(&ty.args, Self::arg)];
        if let Some(div) = &ty.div {
            parts.extend([Doc::text(" "), self.token(), Doc::text(" "), self.expr(div)]);
        }
        Doc::seq(parts)
    }

    /// A block, which uses the line breaks of the surrounding group.
    pub(super) fn block(&mut self, block: &Block) -> Doc<'a> {
        let open = self.token();
        Doc::seq(vec![open, self.block_rest(block)])
    }

    /// A block after its `{`. It stays on one line if it is on one line and has one statement.
    fn block_rest(&mut self, block: &Block) -> Doc<'a> {
        let count = block.stmts.len() + usize::from(block.value.is_some());
        if count == 0 && self.next().before.is_empty() {
            return self.token();
        }
        let mut broken = count != 1 || self.next().begins_line;
        let mut inner = vec![Doc::LINE];
        for (n, stmt) in block.stmts.iter().enumerate() {
            if n > 0 {
                inner.push(Doc::HARD);
            }
            inner.extend([self.leading(n == 0), self.stmt(stmt)]);
        }
        if let Some(value) = &block.value {
            if count > 1 {
                inner.push(Doc::HARD);
            }
            inner.extend([self.leading(count == 1), self.expr(value)]);
        }
        broken |= self.next().begins_line;
        let closing = self.closing(count == 0);
        if closing.has_lines() {
            inner.extend([Doc::HARD, closing]);
        }
        Doc::seq(vec![Doc::seq(inner).indent(), Doc::LINE, self.token()]).broken_if(broken)
    }

    fn stmt(&mut self, stmt: &Stmt) -> Doc<'a> {
        let space = || Doc::text(" ");
        match &stmt.kind {
            StmtKind::Let { mutable, ty, value, .. } => {
                let mut parts = vec![self.token(), space()];
                if *mutable {
                    parts.extend([self.token(), space()]);
                }
                parts.push(self.token());
                if let Some(ty) = ty {
                    parts.extend([self.token(), space(), self.ty(ty)]);
                }
                parts.extend([self.equals(), self.token(), space(), self.expr(value), self.token()]);
                Doc::seq(parts)
            }
            StmtKind::Assign { target, op, value } => {
                let target = self.expr(target);
                let sign = self.sign(op.map_or(1, |op| crate::parser::sign(op).len() + 1));
                Doc::seq(vec![target, space(), sign, space(), self.expr(value), self.token()])
            }
            StmtKind::For { lo, hi, step, unroll, body, .. } => {
                let mut parts = vec![self.token(), space(), self.token(), space(), self.token(), space()];
                parts.extend([self.expr(lo), self.token(), self.expr(hi)]);
                if let Some(step) = step {
                    parts.extend([space(), self.token(), space(), self.expr(step)]);
                }
                if let Some(unroll) = unroll {
                    parts.extend([space(), self.token()]);
                    if let Unroll::By(factor) = unroll {
                        parts.extend([self.token(), self.expr(factor), self.token()]);
                    }
                }
                self.with_block(parts, body)
            }
            StmtKind::While { cond, body } => {
                let parts = vec![self.token(), space(), self.expr(cond)];
                self.with_block(parts, body)
            }
            StmtKind::Loop { body } => Doc::seq(vec![self.token(), space(), self.block(body)]).group(),
            StmtKind::Role { args, body, .. } => {
                let parts = vec![self.token(), space(), self.token(), self.list(args, Self::arg)];
                self.with_block(parts, body)
            }
            StmtKind::Break | StmtKind::Continue => Doc::seq(vec![self.token(), self.token()]),
            StmtKind::Expr(value) => {
                let value = self.expr(value);
                if self.is(TokenKind::Semi) { Doc::seq(vec![value, self.token()]) } else { value }
            }
            StmtKind::Return(None) => Doc::seq(vec![self.token(), self.token()]),
            StmtKind::Return(Some(value)) => {
                Doc::seq(vec![self.token(), space(), self.expr(value), self.token()])
            }
        }
    }

    /// A head and its block. The `{` has a line of its own if the head does not fit on one line.
    fn with_block(&mut self, mut head: Vec<Doc<'a>>, body: &Block) -> Doc<'a> {
        head.push(Doc::text(" "));
        Doc::seq(vec![Doc::seq(head), self.block(body)]).group()
    }
}
