//! What stands at the top of a file.

use super::exprs::{expr, quoted};
use super::{Res, Tokens, ident, list, starts_item, stmts, stopped_at, token, types};
use crate::ast::{Attr, Const, File, Function, Item, Kernel, Use, UsePath};
use crate::codes::syntax as code;
use crate::lexer::Kind;
use nom::Parser;
use nom::branch::alt;
use nom::combinator::opt;
use nom::sequence::preceded;
use weft_ir::diag::Diagnostic;

/// The whole text. Reports what is wrong with each item.
pub(super) fn file(i: Tokens<'_>) -> Res<'_, File> {
    let mut file = File::default();
    let mut rest = i;
    while rest.kind() != Kind::End && !rest.ctx.full() {
        match item(rest) {
            Ok((after, item)) => {
                file.items.push(item);
                rest = after;
            }
            Err(fault) => {
                rest = Tokens { at: stopped_at(&fault, rest).max(rest.at + 1), ..rest };
                while rest.kind() != Kind::End && !starts_item(rest.kind()) {
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
    ));
    match item.parse(i) {
        Err(nom::Err::Error(_)) => i.fail(no_item(i)),
        parsed => parsed,
    }
}

fn no_item(i: Tokens<'_>) -> Diagnostic {
    let error = i.expected(code::EXPECTED_ITEM, "`kernel`, `fn`, `const` or `use`");
    match i.kind() {
        Kind::RBrace => error.help("no block is open here; remove this `}`"),
        Kind::Let => error.help("outside of a kernel or a function, write `const` instead of `let`"),
        _ => error.help("statements stand inside the braces of a kernel or a function"),
    }
}

fn use_item(i: Tokens<'_>) -> Res<'_, Use> {
    let (start, _) = token(Kind::Use)(i)?;
    let (mut rest, path) = match quoted(start) {
        Ok((rest, file)) => (rest, UsePath::File(file)),
        Err(_) => {
            let Ok((mut rest, first)) = ident(start) else {
                let error = start.expected(code::EXPECTED_NAME, "a file or a library path");
                return start.fail(error.help("write `use \"tiles.weft\";` or `use weft::collectives;`"));
            };
            let mut segments = vec![first];
            while rest.kind() == Kind::PathSep {
                let (after, segment) = rest.skip(1).name("of a part of the library")?;
                segments.push(segment);
                rest = after;
            }
            (rest, UsePath::Builtin(segments))
        }
    };
    if matches!(rest.kind(), Kind::Dot | Kind::Slash) {
        let error = rest.expected(code::EXPECTED_TOKEN, "`;`");
        return rest.fail(error.help("a file stands in quotes: `use \"lib/tiles.weft\";`"));
    }
    (rest, ()) = rest.semicolon("`use`")?;
    Ok((rest, Use { path, span: rest.since(i) }))
}

fn const_item(i: Tokens<'_>) -> Res<'_, Const> {
    let (rest, _) = token(Kind::Const)(i)?;
    let (rest, name) = rest.name("of a constant")?;
    let (rest, _) = rest.need(Kind::Assign, "and a value after the constant")?;
    let (rest, value) = expr(rest)?;
    let (rest, ()) = rest.semicolon(&format!("`const {}`", name.name))?;
    Ok((rest, Const { name, value, span: rest.since(i) }))
}

fn kernel(i: Tokens<'_>) -> Res<'_, Kernel> {
    let (rest, _) = token(Kind::Kernel)(i)?;
    let (rest, name) = rest.name("of a kernel")?;
    let (rest, generics) = types::generic_params(rest)?;
    let (rest, _) = rest.need(Kind::LParen, "and parameters after the name of the kernel")?;
    let (mut head, params) = types::params(rest)?;
    for param in params.iter().filter(|param| param.ty.is_none()) {
        let message = format!("the kernel parameter `{}` has no type", param.name.name);
        i.ctx.report(
            Diagnostic::error(code::PARAM_WITHOUT_TYPE, param.span, message)
                .label("which type?")
                .help(format!("write `{0}: symm<f32, (N):(1)>`, `{0}: i32` or the like", param.name.name)),
        );
    }
    let mut attrs = Vec::new();
    while head.kind() == Kind::Ident {
        let (rest, attr) = attr(head)?;
        attrs.push(attr);
        head = rest;
    }
    let (rest, body) = stmts::block(head, "after the head of the kernel")?;
    Ok((rest, Kernel { name, generics, params, attrs, body, span: head.since(i) }))
}

fn attr(i: Tokens<'_>) -> Res<'_, Attr> {
    let (rest, name) = ident(i)?;
    let (rest, _) = rest.need(Kind::LParen, "after a launch attribute")?;
    let (rest, args) = list(rest, Kind::RParen, expr)?;
    Ok((rest, Attr { name, args, span: rest.since(i) }))
}

fn function(i: Tokens<'_>) -> Res<'_, Function> {
    let (rest, _) = token(Kind::Fn)(i)?;
    let (rest, name) = rest.name("of a function")?;
    let (rest, generics) = types::generic_params(rest)?;
    let (rest, _) = rest.need(Kind::LParen, "and parameters after the name of the function")?;
    let (rest, params) = types::params(rest)?;
    let (head, ret) = opt(preceded(token(Kind::Arrow), types::ty)).parse(rest)?;
    let (rest, body) = stmts::block(head, "after the head of the function")?;
    Ok((rest, Function { name, generics, params, ret, body, span: head.since(i) }))
}
