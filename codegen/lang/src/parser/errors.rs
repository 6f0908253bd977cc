//! The errors that the parsers report. They are in functions of their own because diagnostics are
//! large and the stack frames of the recursive parsers must be small.

use super::{MAX_HEIGHT, MAX_NESTING, Res, Tokens, starts_item, starts_stmt};
use crate::ast::{Expr, Param};
use crate::codes::syntax as code;
use crate::lexer::{Token, TokenKind};
use std::fmt::Display;
use weft_ir::Role;
use weft_ir::diag::{Code, Diagnostic, Span};

impl<'a> Tokens<'a> {
    /// Makes an error at the next token.
    fn error(self, code: Code, message: impl Into<String>) -> Diagnostic {
        Diagnostic::error(code, self.span(), message)
    }

    /// Makes an error at the next token: `expected WHAT, found ...`.
    fn expected(self, code: Code, what: &str) -> Diagnostic {
        self.error(code, format!("expected {what}, found {}", self.found())).label(format!("expected {what}"))
    }

    /// Reports that the next token is not `kind`, which is required here.
    #[cold]
    pub(super) fn no_token<T>(self, kind: TokenKind, place: &str) -> Res<'a, T> {
        let what = kind.text().map_or("the end of the text".into(), |text| format!("`{text}`"));
        let error =
            self.expected(code::EXPECTED_TOKEN, &format!("{what} {place}")).label(format!("expected {what}"));
        self.fail(match self.kind() {
            TokenKind::Assign if kind == TokenKind::LBrace => error.help("`=` assigns, `==` compares"),
            _ => error,
        })
    }

    /// Reports that a name is missing here.
    #[cold]
    pub(super) fn no_name<T>(self, what: &str) -> Res<'a, T> {
        let error = self.expected(code::EXPECTED_NAME, &format!("the name {what}"));
        self.fail(match self.kind() {
            TokenKind::Underscore => error.help("`_` is not a name; write `_x` for a name that is not used"),
            kind if kind.is_keyword() => error.label("a keyword").help("choose another name"),
            _ => error,
        })
    }

    /// Reports that a type is missing here. `what` describes it.
    #[cold]
    pub(super) fn no_type<T>(self, what: &str) -> Res<'a, T> {
        self.fail(self.expected(code::EXPECTED_TYPE, what))
    }

    /// Reports that the `;` after `what` is missing. At the end of a line or block, parsing
    /// continues as if it were present.
    #[cold]
    pub(super) fn no_semicolon(self, what: &dyn Display) -> Res<'a, ()> {
        let (before, here) = (self.end_before(), self.first());
        let error = if here.kind == TokenKind::DotDot {
            self.stray_range()
        } else {
            let message = format!("missing `;` after {what}, found {}", self.found());
            Diagnostic::error(code::MISSING_SEMICOLON, Span::new(self.ctx.file, before, before), message)
                .label("expected `;` here")
                .help(format!("end {what} with `;`"))
        };
        let gap = self.ctx.text.get(before as usize..here.start as usize).unwrap_or_default();
        if gap.contains('\n')
            || here.kind == TokenKind::RBrace
            || starts_stmt(here.kind)
            || starts_item(here.kind)
        {
            self.report(error);
            return Ok((self, ()));
        }
        self.fail(error)
    }

    fn stray_range(self) -> Diagnostic {
        self.error(code::STRAY_RANGE, "a range is not allowed here")
            .label("of this range")
            .help("ranges are allowed in `for i in a..b` and in an index, `t[a..b]`")
    }

    /// Reports that neither the next item of a list nor its end follows.
    #[cold]
    pub(super) fn unclosed<T>(self, open: Token, close: TokenKind) -> Res<'a, T> {
        if self.kind() == TokenKind::DotDot {
            return self.fail(self.stray_range());
        }
        let close = close.text().unwrap_or_default();
        let error = self.expected(code::UNCLOSED, &format!("`,` or `{close}`"));
        self.fail(error.related(self.span_of(open), "opened here"))
    }

    #[cold]
    pub(super) fn open_block<T>(self, open: Tokens<'_>) -> Res<'a, T> {
        let error = self.expected(code::UNCLOSED, "`}`").label("expected `}` before this");
        self.fail(error.related(open.span(), "this block is not closed"))
    }

    #[cold]
    pub(super) fn too_deep<T>(self) -> Res<'a, T> {
        self.fail(
            self.error(code::TOO_DEEP, format!("nested more than {MAX_NESTING} levels deep"))
                .label("the nesting exceeds the limit here")
                .help("each parenthesis, block, argument and `else if` is a level; name parts with `let`"),
        )
    }

    #[cold]
    pub(super) fn too_long<T>(self) -> Res<'a, T> {
        self.fail(
            self.error(
                code::TOO_DEEP,
                format!("a chain of more than {MAX_HEIGHT} operators, calls and indices"),
            )
            .label("the chain exceeds the limit here")
            .help("name parts of it with `let`, or use a loop"),
        )
    }

    #[cold]
    pub(super) fn no_item<T>(self) -> Res<'a, T> {
        let error = self.expected(code::EXPECTED_ITEM, "`kernel`, `fn`, `reference fn`, `const` or `use`");
        self.fail(match self.kind() {
            TokenKind::RBrace => error.help("no block is open here; remove this `}`"),
            TokenKind::Let => error.help("outside of a kernel or a function, write `const` instead of `let`"),
            _ => error.help("write statements inside the braces of a kernel or a function"),
        })
    }

    #[cold]
    pub(super) fn no_path<T>(self) -> Res<'a, T> {
        let error = self.expected(code::EXPECTED_NAME, "a file or a library path");
        self.fail(error.help("write `use \"tiles.weft\";` or `use weft::collectives;`"))
    }

    /// Reports a path without quotes: `use tiles.weft;`.
    #[cold]
    pub(super) fn bare_file<T>(self) -> Res<'a, T> {
        let error = self.expected(code::EXPECTED_TOKEN, "`;`");
        self.fail(error.help("write the file in quotes: `use \"lib/tiles.weft\";`"))
    }

    #[cold]
    pub(super) fn param_without_type(self, param: &Param) {
        let name = &param.name.name;
        let message = format!("the kernel parameter `{name}` has no type");
        self.ctx.report(
            Diagnostic::error(code::PARAM_WITHOUT_TYPE, param.span, message)
                .label("which type?")
                .help(format!("write a type, such as `{name}: symm<f32, (N):(1)>` or `{name}: i32`")),
        );
    }

    /// Reports that the first of two names is not a role.
    #[cold]
    pub(super) fn no_role<T>(self) -> Res<'a, T> {
        let roles: Vec<_> = Role::ALL.iter().map(|role| role.name()).collect();
        let message = format!("{} is not a role of a parameter", self.found());
        self.fail(self.error(code::ROLE, message).label("not a role").help(format!(
            "the roles are {}; if these are two parameters, separate them with `,`",
            roles.join(", ")
        )))
    }

    #[cold]
    pub(super) fn role_of_function(self, param: &Param) {
        let message = format!("`{}` is a parameter of a function and has no role", param.name.name);
        self.ctx.report(
            Diagnostic::error(code::ROLE, param.span, message)
                .label("roles are for the parameters of kernels")
                .help("state the role at the kernel's parameter that is passed"),
        );
    }

    #[cold]
    pub(super) fn nested_item(self) {
        self.report(
            self.error(code::NESTED_ITEM, format!("{} inside a block", self.found()))
                .label("only at the top of a file")
                .help("use `let` here, or move this out of the block"),
        );
    }

    #[cold]
    pub(super) fn empty_stmt(self) {
        self.report(self.expected(code::EXPECTED_EXPRESSION, "a statement").help("remove this `;`"));
    }

    #[cold]
    pub(super) fn not_a_place(self, target: &Expr) {
        self.ctx.report(
            Diagnostic::error(
                code::NOT_A_PLACE,
                target.span,
                "assignment to something that cannot be assigned",
            )
            .label("not a name or an indexed tensor")
            .help("assign to `x` or `t[i, _]`; to compare, write `==`"),
        );
    }

    #[cold]
    pub(super) fn no_expression<T>(self) -> Res<'a, T> {
        let error = self.expected(code::EXPECTED_EXPRESSION, "an expression");
        self.fail(match self.kind() {
            TokenKind::LBrace => error.help(
                "write a block only after `if`, `else`, `for`, `while`, `loop`, or the head of a function",
            ),
            TokenKind::And => error.help("there are no references: pass the tensor itself"),
            TokenKind::Plus => error.help("there is no prefix `+` and no `++`; to count, write `i += 1`"),
            kind if starts_stmt(kind) && kind != TokenKind::If => error.help("a statement has no value"),
            _ => error,
        })
    }

    #[cold]
    pub(super) fn no_index<T>(self) -> Res<'a, T> {
        let error = self.expected(code::EXPECTED_EXPRESSION, "an index");
        self.fail(error.help("`_` keeps a whole mode: `t[_]`"))
    }

    #[cold]
    pub(super) fn chained_layout<T>(self) -> Res<'a, T> {
        self.fail(
            self.error(code::CHAINED_LAYOUT, "`:` does not chain")
                .label("a second `:`")
                .help("a layout is `shape:stride`; write tuples for several modes: `(4, 2):(2, 1)`"),
        )
    }

    #[cold]
    pub(super) fn chained_comparison<T>(self, first: Tokens<'_>) -> Res<'a, T> {
        self.fail(
            self.error(code::CHAINED_COMPARISON, "comparisons do not chain")
                .label("a second comparison")
                .related(first.span(), "the first one")
                .help("write `a < b && b < c`; arguments of a generic call `f<n>(x)` are names and whole numbers"),
        )
    }

    #[cold]
    pub(super) fn not_callable<T>(self, value: Span) -> Res<'a, T> {
        self.fail(
            self.error(code::NOT_CALLABLE, "only a name can be called")
                .label("a call")
                .related(value, "this is a value")
                .help("write `f(x)` or `x.f()`; if no call is meant, an operator is missing here"),
        )
    }

    #[cold]
    pub(super) fn bad_generic<T>(self, open: Tokens<'_>) -> Res<'a, T> {
        let message = format!("generic arguments are names and whole numbers, found {}", self.found());
        self.fail(
            self.error(code::GENERIC_ARGUMENT, message)
                .label("expected `,` or `>(` after an argument")
                .related(open.span(), "generic arguments begin here")
                .help("name a longer expression with `let` first"),
        )
    }

    #[cold]
    pub(super) fn too_large(self, help: &str) {
        let message = format!("the number {} is too large", self.found());
        self.report(self.error(code::NUMBER_TOO_LARGE, message).label("too large").help(help));
    }

    /// Reports the unknown escape `\c` at byte `at` of the next string.
    #[cold]
    pub(super) fn unknown_escape(self, at: usize, c: char) {
        let start = self.first().start + super::offset(at);
        let span = Span::new(self.ctx.file, start, start + 1 + super::offset(c.len_utf8()));
        let message = format!("unknown escape `\\{}`", c.escape_debug());
        self.report(
            Diagnostic::error(code::UNKNOWN_ESCAPE, span, message)
                .label("not an escape")
                .help("the escapes are `\\n`, `\\t`, `\\r`, `\\0`, `\\\\` and `\\\"`; a backslash is `\\\\`"),
        );
    }
}
