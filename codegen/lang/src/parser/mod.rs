//! The parser, which turns tokens into [`ast`](crate::ast) with nom. A parser returns
//! `Fault::NotHere` (nom's `Error`: nothing is consumed, and the next alternative is tried) if its
//! first token does not fit. After that token it reports errors and returns `Fault::Reported`
//! (nom's `Failure`). Lists of statements and of items catch this fault, skip to a place where
//! another item can begin, and continue there.

mod errors;
mod exprs;
mod items;
mod stmts;
mod types;

pub(crate) use exprs::{ESCAPES, level, sign};

use crate::ast::{Expr, File, Ident};
use crate::codes::syntax as code;
use crate::lexer::{self, Token, TokenKind, clip};
use crate::source::MAX_FILE_BYTES;
use nom::IResult;
use nom::error::{ErrorKind, ParseError};
use rustc_hash::FxHashMap;
use std::cell::{Cell, RefCell};
use std::fmt::Display;
use std::sync::Arc;
use weft_ir::diag::{Diagnostic, Span};

/// The greatest depth to which parentheses, blocks, arguments and conditionals nest.
pub const MAX_NESTING: u32 = 64;

/// The maximum height of a syntax tree, in which each operator of a chain such as `a + b + c` is a
/// level. Functions that walk a tree can therefore recurse.
pub const MAX_HEIGHT: u32 = 128;

/// The greatest number of syntax errors that one run reports.
pub const MAX_ERRORS: usize = 20;

/// Parses one file. Spans are bytes of `text` in file `file_id`.
///
/// # Errors
/// Fails with up to [`MAX_ERRORS`] syntax errors (E0001 to E0029), in source order.
pub fn parse(file_id: u32, text: &str) -> Result<File, Vec<Diagnostic>> {
    run(file_id, text, items::file)
}

/// Parses one file from bytes, which must be UTF-8.
///
/// # Errors
/// Fails where [`parse`] fails, or at the first byte that is not UTF-8 (E0002).
pub fn parse_bytes(file_id: u32, bytes: &[u8]) -> Result<File, Vec<Diagnostic>> {
    check_size(file_id, bytes.len())?;
    match std::str::from_utf8(bytes) {
        Ok(text) => parse(file_id, text),
        Err(e) => {
            let at = offset(e.valid_up_to());
            let message = format!(
                "the file is not UTF-8: byte {at} (0x{:02x}) is not valid there",
                bytes[e.valid_up_to()]
            );
            Err(vec![
                Diagnostic::error(code::NOT_UTF8, Span::new(file_id, at, at), message)
                    .help("save the file as UTF-8; is it a `.weft` text at all?"),
            ])
        }
    }
}

/// Parses one expression that is the whole text, such as the value in `-D N=1 << 20`.
///
/// # Errors
/// Fails where [`parse`] fails.
pub fn parse_expr(file_id: u32, text: &str) -> Result<Expr, Vec<Diagnostic>> {
    run(file_id, text, |i| {
        let (i, expr) = exprs::expr(i)?;
        let (i, _) = i.need(TokenKind::End, "after the expression")?;
        Ok((i, expr))
    })
}

fn check_size(file: u32, bytes: usize) -> Result<(), Vec<Diagnostic>> {
    if bytes <= MAX_FILE_BYTES {
        return Ok(());
    }
    let message = format!("the file has {bytes} bytes, but a `.weft` file can have at most {MAX_FILE_BYTES}");
    let help = "is it a `.weft` text at all? if it is generated, split it and join the parts with `use`";
    Err(vec![Diagnostic::error(code::FILE_TOO_LARGE, Span::new(file, 0, 0), message).help(help)])
}

fn run<T>(
    file: u32,
    text: &str,
    parser: impl for<'a> FnOnce(Tokens<'a>) -> Res<'a, T>,
) -> Result<T, Vec<Diagnostic>> {
    check_size(file, text.len())?;
    let (tokens, found) = lexer::lex(file, text, MAX_ERRORS);
    let ctx = Ctx::new(file, text, found);
    let result = if ctx.full() {
        None
    } else {
        parser(Tokens { all: &tokens, at: 0, ctx: &ctx }).ok().map(|(_, value)| value)
    };
    let mut found = ctx.found.take();
    match result {
        Some(value) if found.is_empty() => Ok(value),
        _ => {
            found.sort_by_key(|d| d.span.start);
            Err(found)
        }
    }
}

fn offset(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

/// The result of a parser.
type Res<'a, T> = IResult<Tokens<'a>, T, Fault>;

/// The reason why a parser has no result.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fault {
    /// The parsed construct does not begin here.
    NotHere,
    /// The construct begins here, but is malformed at the token with this index, which has been
    /// reported.
    Reported(usize),
}

impl<'a> ParseError<Tokens<'a>> for Fault {
    fn from_error_kind(_: Tokens<'a>, _: ErrorKind) -> Fault {
        Fault::NotHere
    }

    fn append(_: Tokens<'a>, _: ErrorKind, other: Fault) -> Fault {
        other
    }
}

/// The state that the parsers of one text share.
struct Ctx<'a> {
    file: u32,
    text: &'a str,
    found: RefCell<Vec<Diagnostic>>,
    names: RefCell<FxHashMap<&'a str, Arc<str>>>,
    /// The number of open [`Tokens::nested`].
    depth: Cell<u32>,
    /// The height of the trees that the innermost of them has finished.
    height: Cell<u32>,
}

impl<'a> Ctx<'a> {
    fn new(file: u32, text: &'a str, found: Vec<Diagnostic>) -> Ctx<'a> {
        Ctx {
            file,
            text,
            found: RefCell::new(found),
            names: RefCell::default(),
            depth: Cell::new(0),
            height: Cell::new(0),
        }
    }

    fn full(&self) -> bool {
        self.found.borrow().len() >= MAX_ERRORS
    }

    /// Adds an error, unless one has been reported for this place already.
    fn report(&self, found: Diagnostic) {
        let mut all = self.found.borrow_mut();
        if all.len() < MAX_ERRORS && all.iter().all(|d| d.span.start != found.span.start) {
            all.push(found);
        }
    }
}

/// The remaining tokens, which are the input for nom.
#[derive(Clone, Copy)]
struct Tokens<'a> {
    all: &'a [Token],
    at: usize,
    ctx: &'a Ctx<'a>,
}

impl<'a> Tokens<'a> {
    fn nth(self, n: usize) -> Token {
        // `all` ends with `End`, and the index never exceeds it.
        self.all[(self.at + n).min(self.all.len() - 1)]
    }

    fn first(self) -> Token {
        self.nth(0)
    }

    fn kind(self) -> TokenKind {
        self.first().kind
    }

    fn skip(self, n: usize) -> Tokens<'a> {
        Tokens { at: (self.at + n).min(self.all.len() - 1), ..self }
    }

    fn text(self, token: Token) -> &'a str {
        self.ctx.text.get(token.start as usize..token.end as usize).unwrap_or_default()
    }

    fn span_of(self, token: Token) -> Span {
        Span::new(self.ctx.file, token.start, token.end)
    }

    fn span(self) -> Span {
        self.span_of(self.first())
    }

    /// The span from `start` up to here, without the white space before here.
    fn since(self, start: Tokens<'_>) -> Span {
        let (start, end) = (start.first().start, self.end_before());
        Span::new(self.ctx.file, start, end.max(start))
    }

    /// The end of the previous token.
    fn end_before(self) -> u32 {
        self.at.checked_sub(1).map_or(0, |before| self.all[before].end)
    }

    /// The description of the next token in diagnostics.
    fn found(self) -> String {
        match self.kind() {
            TokenKind::End => "the end of the file".into(),
            TokenKind::Str => "a string".into(),
            _ => {
                let text = self.text(self.first());
                let head = clip(text);
                format!("`{head}{}`", if head.len() < text.len() { "..." } else { "" })
            }
        }
    }

    fn not_here<T>(self) -> Res<'a, T> {
        Err(nom::Err::Error(Fault::NotHere))
    }

    /// Fails here without a report.
    fn give_up<T>(self) -> Res<'a, T> {
        Err(nom::Err::Failure(Fault::Reported(self.at)))
    }

    /// Reports an error and fails here.
    fn fail<T>(self, found: Diagnostic) -> Res<'a, T> {
        self.report(found);
        self.give_up()
    }

    /// Reports an error, unless the lexer has reported the next token.
    fn report(self, found: Diagnostic) {
        if self.kind() != TokenKind::Bad {
            self.ctx.report(found);
        }
    }

    /// Requires a token here. `place` describes the position: `after the condition`.
    fn need(self, kind: TokenKind, place: &str) -> Res<'a, Token> {
        if self.kind() == kind {
            return Ok((self.skip(1), self.first()));
        }
        self.no_token(kind, place)
    }

    /// Requires the `;` that ends `what`. If it is missing at the end of a line or block, reports
    /// this and continues as if it were present.
    fn semicolon(self, what: impl Display) -> Res<'a, ()> {
        if self.kind() == TokenKind::Semi {
            return Ok((self.skip(1), ()));
        }
        self.no_semicolon(&what)
    }

    /// Requires a new name. `what` describes it: `of the variable`.
    fn name(self, what: &str) -> Res<'a, Ident> {
        match ident(self) {
            Err(nom::Err::Error(_)) => self.no_name(what),
            named => named,
        }
    }

    /// Parses a nested construct, and bounds the depth of nesting.
    fn nested<T>(self, mut parser: impl FnMut(Tokens<'a>) -> Res<'a, T>) -> Res<'a, T> {
        let ctx = self.ctx;
        let outer = ctx.height.replace(0);
        ctx.depth.update(|depth| depth + 1);
        let result = if ctx.depth.get() > MAX_NESTING { self.too_deep() } else { parser(self) };
        ctx.depth.update(|depth| depth - 1);
        ctx.height.update(|inner| outer.max(inner + 1));
        result
    }

    /// Adds a node above the trees that the innermost [`Tokens::nested`] has finished, as each
    /// operator of a chain does. `depth + height` stays within [`MAX_HEIGHT`], and so does the
    /// height of the whole tree.
    fn on_top(self) -> Res<'a, ()> {
        self.ctx.height.update(|height| height + 1);
        if self.ctx.depth.get() + self.ctx.height.get() > MAX_HEIGHT {
            self.too_long()
        } else {
            Ok((self, ()))
        }
    }
}

/// Parses a token of this kind, or fails with [`Fault::NotHere`].
fn token<'a>(kind: TokenKind) -> impl Fn(Tokens<'a>) -> Res<'a, Token> {
    move |i| if i.kind() == kind { Ok((i.skip(1), i.first())) } else { i.not_here() }
}

/// Parses a contextual keyword such as `step` or `unroll`.
fn word<'a>(word: &'static str) -> impl Fn(Tokens<'a>) -> Res<'a, Token> {
    move |i| {
        let first = i.first();
        if first.kind == TokenKind::Ident && i.text(first) == word {
            Ok((i.skip(1), first))
        } else {
            i.not_here()
        }
    }
}

fn ident(i: Tokens<'_>) -> Res<'_, Ident> {
    let (rest, token) = token(TokenKind::Ident)(i)?;
    let text = i.text(token);
    let name = i.ctx.names.borrow_mut().entry(text).or_insert_with(|| text.into()).clone();
    Ok((rest, Ident { name, span: i.span_of(token) }))
}

/// Parses the rest of a list after its opening bracket: `item, item, )`, with or without the last
/// comma. `i` is after the bracket.
fn list<'a, T>(
    i: Tokens<'a>,
    close: TokenKind,
    mut item: impl FnMut(Tokens<'a>) -> Res<'a, T>,
) -> Res<'a, Vec<T>> {
    let open = i.all[i.at - 1];
    let mut items = Vec::new();
    let mut rest = i;
    loop {
        if rest.kind() == close {
            return Ok((rest.skip(1), items));
        }
        let (after, value) = item(rest)?;
        items.push(value);
        rest = after;
        if rest.kind() == TokenKind::Comma {
            rest = rest.skip(1);
        } else if rest.kind() != close {
            return rest.unclosed(open, close);
        }
    }
}

/// The token at which a parser that began at `start` failed.
fn stopped_at(fault: &nom::Err<Fault>, start: Tokens<'_>) -> usize {
    match fault {
        nom::Err::Failure(Fault::Reported(at)) => *at,
        _ => start.at,
    }
}

fn starts_stmt(kind: TokenKind) -> bool {
    use TokenKind::{Break, Continue, For, If, Let, Loop, Return, While};
    matches!(kind, Let | For | While | Loop | If | Return | Break | Continue)
}

fn starts_item(kind: TokenKind) -> bool {
    matches!(kind, TokenKind::Use | TokenKind::Const | TokenKind::Kernel | TokenKind::Fn)
}
