//! Parsers of types, of compile-time parameters, and of both kinds of arguments.

use super::{Res, Tokens, exprs, ident, list, token};
use crate::ast::{Arg, Expr, ExprKind, GenericParam, Ident, Param, TypeExpr, UnOp};
use crate::lexer::TokenKind;
use nom::Parser;
use nom::branch::alt;
use nom::combinator::opt;
use nom::sequence::preceded;
use weft_ir::Role;

/// Parses a type such as `f32`, `int % 8` or `symm<T, (N):(1), align = 16>`.
pub(super) fn ty(i: Tokens<'_>) -> Res<'_, TypeExpr> {
    let Ok((mut rest, name)) = ident(i) else {
        return i.no_type("a type");
    };
    let mut args = Vec::new();
    if rest.kind() == TokenKind::Lt {
        (rest, args) = list(rest.skip(1), TokenKind::Gt, |i| named(i, exprs::arg_expr))?;
    }
    let (rest, div) = divisor(rest)?;
    Ok((rest, TypeExpr { name, args, div: div.map(Box::new), span: rest.since(i) }))
}

/// Parses `: type`, if it is present.
pub(super) fn annotation(i: Tokens<'_>) -> Res<'_, Option<TypeExpr>> {
    opt(preceded(token(TokenKind::Colon), ty)).parse(i)
}

/// Parses `% 8`, if it is present.
fn divisor(i: Tokens<'_>) -> Res<'_, Option<Expr>> {
    opt(preceded(token(TokenKind::Percent), exprs::operand)).parse(i)
}

/// Parses `<T: float = f32, N: int % 8>`, or nothing.
pub(super) fn generic_params(i: Tokens<'_>) -> Res<'_, Vec<GenericParam>> {
    if i.kind() != TokenKind::Lt {
        return Ok((i, Vec::new()));
    }
    list(i.skip(1), TokenKind::Gt, generic_param)
}

fn generic_param(i: Tokens<'_>) -> Res<'_, GenericParam> {
    let (rest, name) = i.name("of a compile-time parameter")?;
    let (rest, _) = rest.need(TokenKind::Colon, "and a kind, such as `int` or `float`")?;
    let (rest, bound) = match (rest.kind(), ident(rest)) {
        (TokenKind::Fn, _) => (rest.skip(1), Ident { name: "fn".into(), span: rest.span_of(rest.first()) }),
        (_, Ok(bound)) => bound,
        _ => return rest.no_type("a kind, such as `int` or `float`"),
    };
    let (rest, div) = divisor(rest)?;
    let (rest, default) = opt(preceded(token(TokenKind::Assign), exprs::arg_expr)).parse(rest)?;
    Ok((rest, GenericParam { name, bound, div, default, span: rest.since(i) }))
}

/// Parses `x: symm<T, (N):(1)>, zeroed sum: global<f32, (1):(1)>, n)`. `i` is after the bracket.
pub(super) fn params(i: Tokens<'_>) -> Res<'_, Vec<Param>> {
    list(i, TokenKind::RParen, |i| {
        let (rest, role) = role(i)?;
        let (rest, name) = rest.name("of a parameter")?;
        let (rest, ty) = annotation(rest)?;
        Ok((rest, Param { role, name, ty, span: rest.since(i) }))
    })
}

/// Parses a role such as `zeroed`, if it is present. Of two names in a row, the first is a role.
fn role(i: Tokens<'_>) -> Res<'_, Option<Role>> {
    if i.kind() != TokenKind::Ident || i.skip(1).kind() != TokenKind::Ident {
        return Ok((i, None));
    }
    let (rest, word) = ident(i)?;
    match Role::parse(&word.name) {
        Some(role) => Ok((rest, Some(role))),
        None => i.no_role(),
    }
}

/// Parses `x, team = t)`. `i` is after the bracket.
pub(super) fn args(i: Tokens<'_>) -> Res<'_, Vec<Arg>> {
    list(i, TokenKind::RParen, |i| named(i, exprs::expr))
}

/// Parses `name = value` or `value`.
fn named<'a>(i: Tokens<'a>, value: impl Fn(Tokens<'a>) -> Res<'a, Expr>) -> Res<'a, Arg> {
    let (rest, name) = arg_name(i)?;
    let (rest, value) = value(rest)?;
    Ok((rest, Arg { name, value }))
}

/// Parses `name =`, if it is present.
fn arg_name(i: Tokens<'_>) -> Res<'_, Option<crate::ast::Ident>> {
    opt((ident, token(TokenKind::Assign)).map(|(name, _)| name)).parse(i)
}

/// Parses `<add, acc = f32>` before a `(`. The arguments are single tokens (a number can have a
/// sign), so that looking ahead over such a list distinguishes `a < b` from a call. It reports
/// nothing. If the text is not such a list, it returns the position at which it stops being one.
pub(super) fn generic_args(i: Tokens<'_>) -> Result<(Tokens<'_>, Vec<Arg>), Tokens<'_>> {
    let mut args = Vec::new();
    let mut rest = i.skip(1);
    while args.is_empty() || rest.kind() != TokenKind::Gt {
        let (value_at, name) = arg_name(rest).map_err(|_| rest)?;
        let (after, value) = generic_arg(value_at).map_err(|_| value_at)?;
        args.push(Arg { name, value });
        rest = if after.kind() == TokenKind::Comma { after.skip(1) } else { after };
        if after.kind() != TokenKind::Comma && after.kind() != TokenKind::Gt {
            return Err(after);
        }
    }
    let rest = rest.skip(1);
    if rest.kind() == TokenKind::LParen { Ok((rest, args)) } else { Err(rest) }
}

fn generic_arg(i: Tokens<'_>) -> Res<'_, Expr> {
    let negative = (token(TokenKind::Minus), exprs::int);
    let mut kind = alt((
        negative.map(|(_, number)| ExprKind::Unary(UnOp::Neg, Box::new(number))),
        exprs::int.map(|number| number.kind),
        ident.map(ExprKind::Name),
        token(TokenKind::Underscore).map(|_| ExprKind::Underscore),
        token(TokenKind::True).map(|_| ExprKind::Bool(true)),
        token(TokenKind::False).map(|_| ExprKind::Bool(false)),
    ));
    kind.parse(i).map(|(rest, kind)| (rest, Expr { kind, span: rest.since(i) }))
}
