//! Module scope: version, target, variables, functions, debug sections.

use super::MAX_NESTING;
use super::ast::{Ast, Function, Init, Variable};
use super::body::{Cursor, block, loc, plus_minus};
use super::lex::{
    Res, Snag, blank, commas, directive, eat, fail, must, name, number, sign, string, unsigned,
};
use crate::codes;

/// Linking directives that may precede a variable or function.
const LINKAGE: &[&str] = &["visible", "extern", "weak", "common"];

pub(super) fn module<'a>(text: &'a str, i: &'a str) -> Result<Ast<'a>, Snag<'a>> {
    let cx = Cursor { text, depth: 0 };
    let mut ast = Ast::default();
    let mut i = blank(i);
    while !i.is_empty() {
        i = match item(cx, i, &mut ast) {
            Ok((rest, ())) => blank(rest),
            Err(nom::Err::Error(snag) | nom::Err::Failure(snag)) => return Err(snag),
            Err(nom::Err::Incomplete(_)) => {
                return Err(Snag {
                    rest: i,
                    code: codes::SYNTAX,
                    message: "the text is incomplete".into(),
                    help: "",
                });
            }
        };
    }
    if ast.version == (0, 0) {
        let message = "no `.version` directive: this is not a PTX module".into();
        return Err(Snag {
            rest: text,
            code: codes::SYNTAX,
            message,
            help: "begin the module with a version, such as `.version 8.0`",
        });
    }
    Ok(ast)
}

fn item<'a>(cx: Cursor<'a>, start: &'a str, ast: &mut Ast<'a>) -> Res<'a, ()> {
    let mut is_extern = false;
    let mut i = start;
    let (rest, word) = loop {
        let (rest, word) = must(directive)(i)?;
        if !LINKAGE.contains(&word) {
            break (rest, word);
        }
        is_extern |= word == "extern";
        i = rest;
    };
    match word {
        "version" => {
            let (rest, major) = must(unsigned)(rest)?;
            let (rest, minor) = must(|i| unsigned(sign(".")(i)?.0))(rest)?;
            ast.version = (major.min(999) as u32, minor.min(999) as u32);
            Ok((rest, ()))
        }
        "target" => {
            let (rest, names) = commas(rest, name)?;
            ast.target = names.first().copied().unwrap_or("");
            Ok((rest, ()))
        }
        "address_size" => match must(unsigned)(rest)? {
            (rest, 64) => Ok((rest, ())),
            _ => fail(i, codes::NOT_SIMULATED, "only 64-bit PTX is simulated", "write `.address_size 64`"),
        },
        "file" => {
            let (rest, number) = must(unsigned)(rest)?;
            let (mut rest, file) = must(string)(rest)?;
            while eat(&mut rest, ",") {
                (rest, _) = must(unsigned)(rest)?;
            }
            ast.files.push((number, crate::visible::visible_line(file).into_owned()));
            Ok((rest, ()))
        }
        // Sections contain debug data without code.
        "section" => match rest.find('}') {
            Some(n) => Ok((&rest[n + 1..], ())),
            None => fail(rest, codes::SYNTAX, "this section has no closing `}`", ""),
        },
        "loc" => must(loc)(rest).map(|(rest, _)| (rest, ())),
        "pragma" => {
            let (rest, _) = commas(rest, string)?;
            must(sign(";"))(rest).map(|(rest, _)| (rest, ()))
        }
        "global" | "const" | "shared" => {
            let (rest, vars) = variables(cx, rest, word, is_extern)?;
            ast.variables.extend(vars);
            Ok((rest, ()))
        }
        "entry" | "func" => {
            let (rest, function) = function(cx, rest, word == "entry")?;
            ast.functions.push(function);
            Ok((rest, ()))
        }
        _ => fail(i, codes::SYNTAX, format!("`.{word}` is not a directive of a PTX module"), ""),
    }
}

fn function<'a>(cx: Cursor<'a>, i: &'a str, is_entry: bool) -> Res<'a, Function<'a>> {
    let mut i = i;
    let mut directives = Vec::new();
    let mut returns = Vec::new();
    // `.func .attribute(...)` and `.func .noreturn` may come before the name.
    while blank(i).starts_with('.') {
        (i, _) = function_directive(i, &mut directives)?;
    }
    if !is_entry && eat(&mut i, "(") {
        (i, returns) = parameters(cx, i)?;
    }
    let at = cx.offset(blank(i));
    let (mut i, name) = must(name)(i)?;
    let mut params = Vec::new();
    if eat(&mut i, "(") {
        (i, params) = parameters(cx, i)?;
    }
    while blank(i).starts_with('.') {
        (i, _) = function_directive(i, &mut directives)?;
    }
    let mut body = None;
    if !eat(&mut i, ";") {
        (i, _) = must(sign("{"))(i)?;
        let (rest, statements) = block(cx, i)?;
        (i, body) = (rest, Some(statements));
    }
    Ok((i, Function { at, name, is_entry, returns, params, directives, body }))
}

/// `.name [numbers | (attributes) | "string"]` between a function's head and its body.
fn function_directive<'a>(i: &'a str, out: &mut Vec<(&'a str, Vec<u64>)>) -> Res<'a, ()> {
    let at = blank(i);
    let (mut rest, word) = must(directive)(i)?;
    let mut numbers = Vec::new();
    match word {
        "reqntid" | "maxntid" | "maxnreg" | "minnctapersm" | "maxnctapersm" | "reqnctapercluster"
        | "maxclusterrank" => {
            (rest, numbers) = commas(rest, unsigned)?;
        }
        "noreturn" | "explicitcluster" | "blocksareclusters" | "unique" => {}
        "pragma" => {
            (rest, _) = commas(rest, string)?;
            (rest, _) = must(sign(";"))(rest)?;
        }
        _ => {
            return fail(
                at,
                codes::NOT_SIMULATED,
                format!("`.{word}` is not a function directive that the simulator knows"),
                "",
            );
        }
    }
    out.push((word, numbers));
    Ok((rest, ()))
}

fn parameters<'a>(cx: Cursor<'a>, i: &'a str) -> Res<'a, Vec<Variable<'a>>> {
    let one = |i: &'a str| {
        let (rest, word) = directive(i)?;
        match word {
            "param" | "reg" => {
                declarator(cx, rest, word, false).map(|(i, (head, name))| (i, Variable { name, ..head }))
            }
            _ => fail(
                blank(i),
                codes::SYNTAX,
                format!("`.{word}` is not a parameter space"),
                "declare parameters with `.param`",
            ),
        }
    };
    let (i, params) = commas(i, one)?;
    let (i, _) = must(sign(")"))(i)?;
    Ok((i, params))
}

/// Parses `[.align n] [.v2] .type [.ptr ...] name dims [= init] (, name ...)* ;` after the state
/// space.
pub(super) fn variables<'a>(
    cx: Cursor<'a>,
    i: &'a str,
    space: &'a str,
    is_extern: bool,
) -> Res<'a, Vec<Variable<'a>>> {
    let (mut i, (head, first)) = declarator(cx, i, space, is_extern)?;
    let mut out = vec![Variable { name: first, ..head.clone() }];
    loop {
        if eat(&mut i, "=") {
            let mut init = Vec::new();
            (i, _) = initialiser(i, 0, &mut init)?;
            if let Some(last) = out.last_mut() {
                last.init = init;
            }
        }
        if !eat(&mut i, ",") {
            break;
        }
        let at = cx.offset(blank(i));
        let (rest, next) = must(name)(i)?;
        let (rest, dims) = dimensions(rest)?;
        out.push(Variable { name: next, at, dims, init: Vec::new(), ..head.clone() });
        i = rest;
    }
    let (i, _) = must(sign(";"))(i)?;
    Ok((i, out))
}

fn declarator<'a>(
    cx: Cursor<'a>,
    i: &'a str,
    space: &'a str,
    is_extern: bool,
) -> Res<'a, (Variable<'a>, &'a str)> {
    let (mut align, mut vector, mut ty, mut is_pointer) = (None, 1, "", false);
    let mut i = i;
    while blank(i).starts_with('.') {
        let (rest, word) = must(directive)(i)?;
        i = rest;
        match word {
            "align" => {
                let (rest, n) = must(unsigned)(i)?;
                // The alignment after `.ptr` is that of the pointee.
                if !is_pointer {
                    align = Some(n);
                }
                i = rest;
            }
            "v2" => vector = 2,
            "v4" => vector = 4,
            "ptr" => is_pointer = true,
            "global" | "const" | "local" | "shared" | "param" if is_pointer => {}
            "attribute" => {
                let (rest, _) = must(sign("("))(i)?;
                i = match rest.find(')') {
                    Some(n) => &rest[n + 1..],
                    None => return fail(rest, codes::SYNTAX, "expected `)`", ""),
                };
            }
            _ if ty.is_empty() => ty = word,
            _ => {
                return fail(blank(i), codes::SYNTAX, format!("`.{word}` cannot occur in a declaration"), "");
            }
        }
    }
    let at = cx.offset(blank(i));
    let (i, name) = must(name)(i)?;
    let (i, dims) = dimensions(i)?;
    let head = Variable { at, name, space, is_extern, align, vector, ty, is_pointer, dims, init: Vec::new() };
    Ok((i, (head, name)))
}

fn dimensions(mut i: &str) -> Res<'_, Vec<Option<u64>>> {
    let mut dims = Vec::new();
    while eat(&mut i, "[") {
        if eat(&mut i, "]") {
            dims.push(None);
            continue;
        }
        let (rest, n) = must(unsigned)(i)?;
        (i, _) = must(sign("]"))(rest)?;
        dims.push(Some(n));
    }
    Ok((i, dims))
}

fn initialiser<'a>(i: &'a str, depth: usize, out: &mut Vec<Init<'a>>) -> Res<'a, ()> {
    if depth > MAX_NESTING {
        return fail(i, codes::TOO_LARGE, format!("initialiser nested deeper than {MAX_NESTING}"), "");
    }
    let mut i = blank(i);
    if eat(&mut i, "{") {
        while !eat(&mut i, "}") {
            (i, _) = initialiser(i, depth + 1, out)?;
            if !eat(&mut i, ",") {
                (i, _) = must(sign("}"))(i)?;
                break;
            }
        }
        return Ok((i, ()));
    }
    if let Ok((mut rest, mut symbol)) = name(i) {
        if symbol == "generic" && eat(&mut rest, "(") {
            (rest, symbol) = must(name)(rest)?;
            (rest, _) = must(sign(")"))(rest)?;
        }
        let (rest, offset) = plus_minus(rest)?;
        out.push(Init::Symbol { name: symbol, offset });
        return Ok((rest, ()));
    }
    let (rest, value) = must(number)(i)?;
    if blank(rest).starts_with('(') {
        return fail(
            i,
            codes::NOT_SIMULATED,
            "masked addresses `0xff(symbol)` in initialisers are not supported",
            "",
        );
    }
    out.push(Init::Number(value));
    Ok((rest, ()))
}
