//! Parsers of the items at the top level of a file.

use super::exprs::{expr, quoted};
use super::{Res, Tokens, ident, list, starts_item, stmts, stopped_at, token, types, word};
use crate::ast::{Attr, Const, File, Function, Item, Kernel, Use, UsePath};
use crate::lexer::TokenKind;
use nom::Parser;
use nom::branch::alt;
use nom::combinator::opt;
use nom::sequence::preceded;

/// Parses the whole text and reports the errors of each item.
pub(super) fn file(i: Tokens<'_>) -> Res<'_, File> {
    let mut file = File::default();
    let mut rest = i;
    while rest.kind() != TokenKind::End && !rest.ctx.full() {
        match item(rest) {
            Ok((after, item)) => {
                file.items.push(item);
                rest = after;
            }
            Err(fault) => {
                rest = Tokens { at: stopped_at(&fault, rest).max(rest.at + 1), ..rest };
                while rest.kind() != TokenKind::End && !starts_item(rest.kind()) {
                    rest = rest.skip(1);
                }
            }
        }
    }
    Ok((rest, file))
}

fn item(i: Tokens<'_>) -> Res<'_, Item> {
    let mut item = alt((
        use_item.map(Item::Use),
        const_item.map(Item::Const),
        kernel.map(Item::Kernel),
        function.map(Item::Function),
        preceded(word("reference"), function).map(Item::Reference),
    ));
    match item.parse(i) {
        Err(nom::Err::Error(_)) => i.no_item(),
        parsed => parsed,
    }
}

fn use_item(i: Tokens<'_>) -> Res<'_, Use> {
    let (start, _) = token(TokenKind::Use)(i)?;
    let (mut rest, path) = match quoted(start) {
        Ok((rest, file)) => (rest, UsePath::File(file)),
        Err(_) => {
            let Ok((mut rest, first)) = ident(start) else {
                return start.no_path();
            };
            let mut segments = vec![first];
            while rest.kind() == TokenKind::PathSep {
                let (after, segment) = rest.skip(1).name("of a part of the library")?;
                segments.push(segment);
                rest = after;
            }
            (rest, UsePath::Builtin(segments))
        }
    };
    if matches!(rest.kind(), TokenKind::Dot | TokenKind::Slash) {
        return rest.bare_file();
    }
    (rest, ()) = rest.semicolon("`use`")?;
    Ok((rest, Use { path, span: rest.since(i) }))
}

fn const_item(i: Tokens<'_>) -> Res<'_, Const> {
    let (rest, _) = token(TokenKind::Const)(i)?;
    let (rest, name) = rest.name("of a constant")?;
    let (rest, _) = rest.need(TokenKind::Assign, "and a value after the constant")?;
    let (rest, value) = expr(rest)?;
    let (rest, ()) = rest.semicolon(format_args!("`const {name}`"))?;
    Ok((rest, Const { name, value, span: rest.since(i) }))
}

fn kernel(i: Tokens<'_>) -> Res<'_, Kernel> {
    let (rest, _) = token(TokenKind::Kernel)(i)?;
    let (rest, name) = rest.name("of a kernel")?;
    let (rest, generics) = types::generic_params(rest)?;
    let (rest, _) = rest.need(TokenKind::LParen, "and parameters after the name of the kernel")?;
    let (mut head, params) = types::params(rest)?;
    for param in params.iter().filter(|param| param.ty.is_none()) {
        i.param_without_type(param);
    }
    let mut attrs = Vec::new();
    while head.kind() == TokenKind::Ident {
        let (rest, attr) = attr(head)?;
        attrs.push(attr);
        head = rest;
    }
    let (rest, body) = stmts::block(head, "after the head of the kernel")?;
    Ok((rest, Kernel { name, generics, params, attrs, body, span: head.since(i) }))
}

fn attr(i: Tokens<'_>) -> Res<'_, Attr> {
    let (rest, name) = ident(i)?;
    let (rest, _) = rest.need(TokenKind::LParen, "after a launch attribute")?;
    let (rest, args) = list(rest, TokenKind::RParen, expr)?;
    Ok((rest, Attr { name, args, span: rest.since(i) }))
}

fn function(i: Tokens<'_>) -> Res<'_, Function> {
    let (rest, _) = token(TokenKind::Fn)(i)?;
    let (rest, name) = rest.name("of a function")?;
    let (rest, generics) = types::generic_params(rest)?;
    let (rest, _) = rest.need(TokenKind::LParen, "and parameters after the name of the function")?;
    let (rest, params) = types::params(rest)?;
    for param in params.iter().filter(|param| param.role.is_some()) {
        i.role_of_function(param);
    }
    let (head, ret) = opt(preceded(token(TokenKind::Arrow), types::ty)).parse(rest)?;
    let (rest, body) = stmts::block(head, "after the head of the function")?;
    Ok((rest, Function { name, generics, params, ret, body, span: head.since(i) }))
}
