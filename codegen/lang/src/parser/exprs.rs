//! Parsers of expressions, by precedence climbing.

use super::{Res, Tokens, ident, list, stmts, token, types};
use crate::ast::{BinOp, Expr, ExprKind, UnOp};
use crate::lexer::TokenKind;
use nom::Parser;
use nom::branch::alt;
use nom::combinator::value;
use std::sync::Arc;

/// The infix operators with their precedences. Operators of one level group from the left.
const INFIX: &[(TokenKind, BinOp, u8)] = &[
    (TokenKind::OrOr, BinOp::Or, 1),
    (TokenKind::AndAnd, BinOp::And, 2),
    (TokenKind::EqEq, BinOp::Eq, COMPARISON),
    (TokenKind::Ne, BinOp::Ne, COMPARISON),
    (TokenKind::Lt, BinOp::Lt, COMPARISON),
    (TokenKind::Le, BinOp::Le, COMPARISON),
    (TokenKind::Gt, BinOp::Gt, COMPARISON),
    (TokenKind::Ge, BinOp::Ge, COMPARISON),
    (TokenKind::Or, BinOp::BitOr, ABOVE_COMPARISON),
    (TokenKind::Caret, BinOp::BitXor, 5),
    (TokenKind::And, BinOp::BitAnd, 6),
    (TokenKind::Shl, BinOp::Shl, 7),
    (TokenKind::Shr, BinOp::Shr, 7),
    (TokenKind::Plus, BinOp::Add, 8),
    (TokenKind::Minus, BinOp::Sub, 8),
    (TokenKind::Star, BinOp::Mul, 9),
    (TokenKind::Slash, BinOp::Div, 9),
    (TokenKind::Percent, BinOp::Rem, 9),
];
const LOOSEST: u8 = 1;
const COMPARISON: u8 = 3;
const ABOVE_COMPARISON: u8 = 4;

/// The text of an operator.
pub(crate) fn sign(op: BinOp) -> &'static str {
    INFIX.iter().find(|row| row.1 == op).and_then(|row| row.0.text()).unwrap_or_default()
}

/// The precedence of an operator.
pub(crate) fn level(op: BinOp) -> u8 {
    INFIX.iter().find(|row| row.1 == op).map_or(LOOSEST, |row| row.2)
}

/// Parses an expression.
pub(super) fn expr(i: Tokens<'_>) -> Res<'_, Expr> {
    i.nested(|i| layout(i, LOOSEST))
}

/// Parses an expression between `<` and `>`, where `>` is not an operator.
pub(super) fn arg_expr(i: Tokens<'_>) -> Res<'_, Expr> {
    i.nested(|i| layout(i, ABOVE_COMPARISON))
}

/// Parses an expression without infix operators.
pub(super) fn operand(i: Tokens<'_>) -> Res<'_, Expr> {
    i.nested(unary)
}

/// Parses `shape : stride`, or an expression that binds at least as tightly as `min`.
fn layout(i: Tokens<'_>, min: u8) -> Res<'_, Expr> {
    let (rest, shape) = binary(i, min)?;
    if rest.kind() != TokenKind::Colon {
        return Ok((rest, shape));
    }
    let (rest, stride) = rest.skip(1).nested(|i| binary(i, min))?;
    let (rest, ()) = rest.on_top()?;
    if rest.kind() == TokenKind::Colon {
        return rest.chained_layout();
    }
    Ok((rest, node(i, rest, ExprKind::Layout(Box::new(shape), Box::new(stride)))))
}

fn binary(i: Tokens<'_>, min: u8) -> Res<'_, Expr> {
    let (mut rest, mut left) = unary(i)?;
    while let Some((&(_, op, level), operand)) = infix_here(rest).filter(|(row, _)| row.2 >= min) {
        let (after, right) = operand.nested(|i| binary(i, level + 1))?;
        if level == COMPARISON && infix_here(after).is_some_and(|(row, _)| row.2 == COMPARISON) {
            return after.chained_comparison(rest);
        }
        rest.on_top()?;
        rest = after;
        left = node(i, rest, ExprKind::Binary(op, Box::new(left), Box::new(right)));
    }
    Ok((rest, left))
}

/// The next infix operator, and the tokens after it.
fn infix_here(i: Tokens<'_>) -> Option<(&'static (TokenKind, BinOp, u8), Tokens<'_>)> {
    let (kind, rest) = joined(i);
    INFIX.iter().find(|row| row.0 == kind).map(|row| (row, rest))
}

/// The next token. `>`, `>` and `=` are joined if there is nothing between them.
pub(super) fn joined(i: Tokens<'_>) -> (TokenKind, Tokens<'_>) {
    let follows = |n: usize, kind| i.nth(n).kind == kind && i.nth(n).start == i.nth(n - 1).end;
    match i.kind() {
        TokenKind::Gt if follows(1, TokenKind::Gt) && follows(2, TokenKind::Assign) => {
            (TokenKind::ShrAssign, i.skip(3))
        }
        TokenKind::Gt if follows(1, TokenKind::Gt) => (TokenKind::Shr, i.skip(2)),
        TokenKind::Gt if follows(1, TokenKind::Assign) => (TokenKind::Ge, i.skip(2)),
        kind => (kind, i.skip(1)),
    }
}

fn unary(i: Tokens<'_>) -> Res<'_, Expr> {
    // A loop instead of recursion needs no stack for `- - - x`.
    let mut operand = i;
    while prefix(operand.kind()).is_some() {
        operand = operand.skip(1);
    }
    let (rest, mut value) = postfix(operand)?;
    for n in (0..operand.at - i.at).rev() {
        let sign = i.skip(n);
        sign.on_top()?;
        if let Some(op) = prefix(sign.kind()) {
            value = node(sign, rest, ExprKind::Unary(op, Box::new(value)));
        }
    }
    Ok((rest, value))
}

fn prefix(kind: TokenKind) -> Option<UnOp> {
    match kind {
        TokenKind::Minus => Some(UnOp::Neg),
        TokenKind::Not => Some(UnOp::Not),
        _ => None,
    }
}

/// Parses a primary expression with its methods and indices.
fn postfix(i: Tokens<'_>) -> Res<'_, Expr> {
    let (mut rest, mut value) = primary(i)?;
    loop {
        let kind;
        (rest, kind) = match rest.kind() {
            TokenKind::Dot => method(rest.skip(1), value)?,
            TokenKind::LBracket => index(rest.skip(1), value)?,
            TokenKind::LParen => return rest.not_callable(value.span),
            _ => return Ok((rest, value)),
        };
        rest.on_top()?;
        value = node(i, rest, kind);
    }
}

fn method(i: Tokens<'_>, recv: Expr) -> Res<'_, ExprKind> {
    let (rest, name) = i.name("of a method")?;
    let (rest, generics) = match rest.kind() {
        TokenKind::Lt => match types::generic_args(rest) {
            Ok((after, list)) if after.kind() == TokenKind::LParen => (after, list),
            Err(stop) if is_called(rest) => return stop.bad_generic(rest),
            // This is a field, as in `r.x < y`.
            _ => return Ok((rest, ExprKind::Field { base: Box::new(recv), name })),
        },
        TokenKind::LParen => (rest, Vec::new()),
        _ => return Ok((rest, ExprKind::Field { base: Box::new(recv), name })),
    };
    let (rest, _) = rest.need(TokenKind::LParen, "after the name of a method")?;
    let (rest, args) = types::args(rest)?;
    Ok((rest, ExprKind::Method { recv: Box::new(recv), name, generics, args }))
}

/// Whether a `>(` closes the bracket that is open at `<`, as far as brackets and statements show.
fn is_called(open: Tokens<'_>) -> bool {
    let mut i = open;
    let mut depth = 0usize;
    loop {
        match i.kind() {
            TokenKind::Gt if depth == 0 && i.nth(1).kind == TokenKind::LParen => return true,
            TokenKind::LParen | TokenKind::LBracket => depth += 1,
            TokenKind::RParen | TokenKind::RBracket if depth > 0 => depth -= 1,
            TokenKind::RParen
            | TokenKind::RBracket
            | TokenKind::LBrace
            | TokenKind::RBrace
            | TokenKind::Semi
            | TokenKind::End => {
                return false;
            }
            _ => {}
        }
        i = i.skip(1);
    }
}

fn index(i: Tokens<'_>, base: Expr) -> Res<'_, ExprKind> {
    let (rest, indices) = list(i, TokenKind::RBracket, |i| {
        let (rest, lo) = expr(i)?;
        if rest.kind() != TokenKind::DotDot {
            return Ok((rest, lo));
        }
        let (rest, hi) = expr(rest.skip(1))?;
        Ok((rest, node(i, rest, ExprKind::Range(Box::new(lo), Box::new(hi)))))
    })?;
    if indices.is_empty() {
        return i.no_index();
    }
    Ok((rest, ExprKind::Index { base: Box::new(base), indices }))
}

fn primary(i: Tokens<'_>) -> Res<'_, Expr> {
    let (rest, kind) = match i.kind() {
        TokenKind::Ident => name_or_call(i)?,
        TokenKind::LParen => parenthesised(i.skip(1))?,
        TokenKind::If => return i.nested(conditional),
        _ => leaf(i)?,
    };
    Ok((rest, node(i, rest, kind)))
}

fn leaf(i: Tokens<'_>) -> Res<'_, ExprKind> {
    let mut leaf = alt((
        int.map(|number| number.kind),
        float,
        quoted.map(ExprKind::Str),
        value(ExprKind::Bool(true), token(TokenKind::True)),
        value(ExprKind::Bool(false), token(TokenKind::False)),
        value(ExprKind::Underscore, token(TokenKind::Underscore)),
    ));
    match leaf.parse(i) {
        Err(nom::Err::Error(_)) => i.no_expression(),
        found => found,
    }
}

fn name_or_call(i: Tokens<'_>) -> Res<'_, ExprKind> {
    let (rest, name) = ident(i)?;
    let call = match rest.kind() {
        TokenKind::LParen => Some((rest, Vec::new())),
        TokenKind::Lt => types::generic_args(rest).ok(),
        _ => None,
    };
    let Some((rest, generics)) = call else { return Ok((rest, ExprKind::Name(name))) };
    let (rest, args) = types::args(rest.skip(1))?;
    Ok((rest, ExprKind::Call { callee: name, generics, args }))
}

/// Parses `(a)`, `(a, b)`, `(a,)` or `()`. `i` is after the bracket.
fn parenthesised(i: Tokens<'_>) -> Res<'_, ExprKind> {
    if i.kind() == TokenKind::RParen {
        return Ok((i.skip(1), ExprKind::Tuple(Vec::new())));
    }
    if i.kind() == TokenKind::Ident && i.nth(1).kind == TokenKind::Assign {
        let (rest, fields) = list(i, TokenKind::RParen, |i| {
            let (rest, name) = i.name("of a field")?;
            let (rest, _) = rest.need(TokenKind::Assign, "and a value after the name of a field")?;
            expr(rest).map(|(rest, value)| (rest, (name, value)))
        })?;
        return Ok((rest, ExprKind::Record(fields)));
    }
    let (rest, first) = expr(i)?;
    match rest.kind() {
        TokenKind::RParen => Ok((rest.skip(1), ExprKind::Paren(Box::new(first)))),
        TokenKind::Comma => {
            // The list is parsed again from its second item on, but errors still show its opening
            // bracket.
            let mut first = Some(first);
            let (rest, items) = list(i, TokenKind::RParen, |i| match first.take() {
                Some(value) => Ok((rest, value)),
                None => expr(i),
            })?;
            Ok((rest, ExprKind::Tuple(items)))
        }
        _ => rest.unclosed(i.all[i.at - 1], TokenKind::RParen),
    }
}

/// Parses `if c { a } else if d { b } else { e }`.
pub(super) fn conditional(i: Tokens<'_>) -> Res<'_, Expr> {
    let (rest, _) = token(TokenKind::If)(i)?;
    let (rest, cond) = expr(rest)?;
    let (rest, then) = stmts::block(rest, "after the condition")?;
    let (rest, otherwise) = match (rest.kind(), rest.nth(1).kind) {
        (TokenKind::Else, TokenKind::If) => {
            let (rest, chained) = rest.skip(1).nested(conditional)?;
            (rest, Some(chained.into()))
        }
        (TokenKind::Else, _) => {
            let (rest, block) = stmts::block(rest.skip(1), "or `if` after `else`")?;
            (rest, Some(block))
        }
        _ => (rest, None),
    };
    Ok((rest, node(i, rest, ExprKind::If { cond: Box::new(cond), then, otherwise })))
}

/// Parses a whole number. One that is too large is reported and becomes 0, so that parsing can
/// continue.
pub(super) fn int(i: Tokens<'_>) -> Res<'_, Expr> {
    let (rest, number) = token(TokenKind::Int)(i)?;
    let text = i.text(number).replace('_', "");
    let (digits, base) = match text.get(..2) {
        Some("0x" | "0X") => (&text[2..], 16),
        Some("0b" | "0B") => (&text[2..], 2),
        _ => (&text[..], 10),
    };
    let value = i64::from_str_radix(digits, base).unwrap_or_else(|_| {
        i.too_large("whole numbers go up to 9223372036854775807 (2^63 - 1)");
        0
    });
    Ok((rest, node(i, rest, ExprKind::Int(value))))
}

fn float(i: Tokens<'_>) -> Res<'_, ExprKind> {
    let (rest, number) = token(TokenKind::Float)(i)?;
    let value = i.text(number).replace('_', "").parse().unwrap_or(f64::INFINITY);
    if value == f64::INFINITY {
        i.too_large("the largest number is 1.79e308; infinity is written `inf`");
    }
    Ok((rest, ExprKind::Float(value)))
}

/// The character that each escape stands for.
pub(crate) const ESCAPES: &[(char, char)] =
    &[('n', '\n'), ('t', '\t'), ('r', '\r'), ('0', '\0'), ('\\', '\\'), ('"', '"')];

/// Parses a string and resolves its escapes. An unknown escape is reported and left out.
pub(super) fn quoted(i: Tokens<'_>) -> Res<'_, Arc<str>> {
    let (rest, token) = token(TokenKind::Str)(i)?;
    let text = i.text(token);
    let mut plain = String::with_capacity(text.len());
    let mut chars = text[1..text.len() - 1].char_indices();
    while let Some((at, c)) = chars.next() {
        if c != '\\' {
            plain.push(c);
            continue;
        }
        let escaped = chars.next().map_or('\\', |(_, c)| c);
        match ESCAPES.iter().find(|(name, _)| *name == escaped) {
            Some((_, meaning)) => plain.push(*meaning),
            None => i.unknown_escape(at + 1, escaped),
        }
    }
    Ok((rest, plain.into()))
}

fn node(start: Tokens<'_>, end: Tokens<'_>, kind: ExprKind) -> Expr {
    Expr { kind, span: end.since(start) }
}
