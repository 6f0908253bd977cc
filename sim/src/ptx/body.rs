//! Function bodies: declarations, labels, instructions and their operands.

use super::MAX_NESTING;
use super::ast::{Base, Guard, Instruction, Loc, Number, Offset, Operand, Statement};
use super::lex::{
    Res, blank, commas, directive, dotted, eat, fail, miss, must, name, number, sign, signed, unsigned,
};
use super::toplevel::variables;
use crate::codes;

/// The text from which offsets are counted, and the depth of the block being read.
#[derive(Clone, Copy)]
pub(super) struct Cursor<'a> {
    pub text: &'a str,
    pub depth: usize,
}

impl Cursor<'_> {
    pub(super) fn offset(&self, rest: &str) -> Offset {
        (self.text.len() - rest.len()) as Offset
    }
}

/// `{ statement* }`, the opening brace already read.
pub(super) fn block<'a>(cx: Cursor<'a>, mut i: &'a str) -> Res<'a, Vec<Statement<'a>>> {
    if cx.depth > MAX_NESTING {
        return fail(i, codes::TOO_LARGE, format!("blocks nested deeper than {MAX_NESTING}"), "");
    }
    let mut out = Vec::new();
    loop {
        i = blank(i);
        if eat(&mut i, "}") {
            return Ok((i, out));
        }
        if i.is_empty() {
            return fail(i, codes::SYNTAX, "the text ends inside a block", "add the missing `}`");
        }
        (i, ()) = statement(cx, i, &mut out)?;
    }
}

fn statement<'a>(cx: Cursor<'a>, i: &'a str, out: &mut Vec<Statement<'a>>) -> Res<'a, ()> {
    if let Some(rest) = i.strip_prefix('{') {
        let (rest, inner) = block(Cursor { depth: cx.depth + 1, ..cx }, rest)?;
        out.push(Statement::Block(inner));
        return Ok((rest, ()));
    }
    if i.starts_with('.') {
        return declaration(cx, i, out);
    }
    if let Ok((rest, label)) = name(i) {
        let mut rest = rest;
        // `a::b` never starts a statement, so one colon decides.
        if eat(&mut rest, ":") {
            return labelled(cx, i, label, rest, out);
        }
    }
    let (rest, inst) = instruction(cx, i)?;
    out.push(Statement::Inst(inst));
    Ok((rest, ()))
}

fn labelled<'a>(
    cx: Cursor<'a>,
    i: &'a str,
    name_: &'a str,
    rest: &'a str,
    out: &mut Vec<Statement<'a>>,
) -> Res<'a, ()> {
    let at = cx.offset(i);
    let (after, word) = match directive(rest) {
        Ok((after, word @ ("branchtargets" | "callprototype" | "calltargets"))) => (after, word),
        _ => {
            out.push(Statement::Label { at, name: name_ });
            return Ok((rest, ()));
        }
    };
    if word == "branchtargets" {
        let (rest, targets) = commas(after, name)?;
        let (rest, _) = must(sign(";"))(rest)?;
        out.push(Statement::Targets { at, name: name_, targets });
        return Ok((rest, ()));
    }
    match after.find(';') {
        Some(n) => {
            out.push(Statement::Prototype);
            Ok((&after[n + 1..], ()))
        }
        None => fail(after, codes::SYNTAX, "expected `;`", ""),
    }
}

fn declaration<'a>(cx: Cursor<'a>, i: &'a str, out: &mut Vec<Statement<'a>>) -> Res<'a, ()> {
    let (rest, word) = directive(i)?;
    match word {
        "reg" => registers(cx, rest, out),
        "loc" => {
            let (rest, loc) = must(loc)(rest)?;
            out.push(Statement::Loc(loc));
            Ok((rest, ()))
        }
        "pragma" => {
            let (rest, _) = commas(rest, super::lex::string)?;
            let (rest, _) = must(sign(";"))(rest)?;
            Ok((rest, ()))
        }
        "local" | "shared" | "param" | "global" | "const" => {
            let (rest, vars) = variables(cx, rest, word, false)?;
            out.extend(vars.into_iter().map(Statement::Var));
            Ok((rest, ()))
        }
        _ => fail(i, codes::SYNTAX, format!("`.{word}` is not a directive of a function body"), ""),
    }
}

fn registers<'a>(cx: Cursor<'a>, i: &'a str, out: &mut Vec<Statement<'a>>) -> Res<'a, ()> {
    let (i, ty) = must(directive)(i)?;
    if matches!(ty, "v2" | "v4") {
        return fail(
            i,
            codes::NOT_SIMULATED,
            "vector registers are not supported",
            "declare scalar registers and use {a, b}",
        );
    }
    let one = |i: &'a str| {
        let at = cx.offset(blank(i));
        let (mut i, name) = name(i)?;
        let mut count = None;
        if eat(&mut i, "<") {
            let (rest, n) = must(unsigned)(i)?;
            (i, _) = must(sign(">"))(rest)?;
            count = Some(n);
        }
        Ok((i, Statement::Reg { at, ty, name, count }))
    };
    let (i, regs) = commas(i, one)?;
    let (i, _) = must(sign(";"))(i)?;
    out.extend(regs);
    Ok((i, ()))
}

/// `.loc file line column [, function_name label [+ n], inlined_at file line column]`
pub(super) fn loc(i: &str) -> Res<'_, Loc> {
    fn triple(i: &str) -> Res<'_, (u64, u32, u32)> {
        let (i, file) = unsigned(i)?;
        let (i, line) = unsigned(i)?;
        let (i, column) = unsigned(i)?;
        Ok((i, (file, line.min(u32::MAX.into()) as u32, column.min(u32::MAX.into()) as u32)))
    }
    let (mut i, (file, line, column)) = triple(i)?;
    let mut inlined_at = None;
    while eat(&mut i, ",") {
        let (mut rest, word) = must(name)(i)?;
        match word {
            "function_name" => {
                (rest, _) = must(name)(rest)?;
                if eat(&mut rest, "+") {
                    (rest, _) = must(unsigned)(rest)?;
                }
            }
            "inlined_at" => {
                let (after, at) = must(triple)(rest)?;
                (rest, inlined_at) = (after, Some(at));
            }
            _ => return fail(i, codes::SYNTAX, format!("`{word}` cannot occur in `.loc`"), ""),
        }
        i = rest;
    }
    Ok((i, Loc { file, line, column, inlined_at }))
}

fn instruction<'a>(cx: Cursor<'a>, i: &'a str) -> Res<'a, Instruction<'a>> {
    let mut i = i;
    let mut guard = None;
    let mut start = i;
    if eat(&mut i, "@") {
        let negated = eat(&mut i, "!");
        let (rest, name) = must(name)(i)?;
        guard = Some(Guard { negated, name });
        i = rest;
        start = blank(i);
    }
    let at = cx.offset(start);
    let (mut i, opcode) =
        must(|i| name(i).or_else(|_| miss(blank(i), "an instruction, a label or a directive")))(i)?;
    let mut modifiers = Vec::new();
    while i.starts_with('.') {
        let (rest, m) = must(dotted)(i)?;
        modifiers.push(m);
        i = rest;
    }
    let (i, operands) = commas(i, operand)?;
    let (i, _) = must(|i| sign(";")(i).or_else(|_| miss(blank(i), "`,` or `;` after the operand")))(i)?;
    Ok((i, Instruction { at, guard, opcode, modifiers, operands }))
}

fn operand(i: &str) -> Res<'_, Operand<'_>> {
    let mut i = blank(i);
    match i.as_bytes().first() {
        Some(b'{') => {
            let (rest, list) = commas(&i[1..], scalar)?;
            let (rest, _) = must(sign("}"))(rest)?;
            Ok((rest, Operand::Vector(list)))
        }
        Some(b'(') => {
            let (rest, list) = commas(&i[1..], scalar)?;
            let (rest, _) = must(sign(")"))(rest)?;
            Ok((rest, Operand::List(list)))
        }
        Some(b'[') => address(&i[1..]),
        Some(b'!') => {
            i = &i[1..];
            let (rest, name) = must(name)(i)?;
            Ok((rest, Operand::Not(name)))
        }
        _ => scalar(i),
    }
}

/// Name with offset, pair or number.
fn scalar(i: &str) -> Res<'_, Operand<'_>> {
    let (mut rest, first) = match name(i) {
        Ok(found) => found,
        Err(_) => {
            let register = blank(i).strip_prefix('-').filter(|r| blank(r).starts_with('%'));
            if let Some(i) = register {
                let (rest, first) = must(name)(i)?;
                let (rest, part) = if rest.starts_with('.') { dotted(rest)? } else { (rest, "") };
                return Ok((rest, Operand::Part { name: first, part, negated: true }));
            }
            let (rest, n) = number(i).or_else(|e| match e {
                nom::Err::Error(_) => miss(blank(i), "an operand"),
                e => Err(e),
            })?;
            return Ok((rest, Operand::Number(n)));
        }
    };
    if eat(&mut rest, "|") {
        let (rest, second) = must(name)(rest)?;
        return Ok((rest, Operand::Pair(first, second)));
    }
    if rest.starts_with('.') {
        let (rest, part) = dotted(rest)?;
        return Ok((rest, Operand::Part { name: first, part, negated: false }));
    }
    let (rest, offset) = plus_minus(rest)?;
    Ok((rest, Operand::Name { name: first, offset }))
}

/// `+n`, `+-n` or nothing.
pub(super) fn plus_minus(mut i: &str) -> Res<'_, i64> {
    if eat(&mut i, "+") { must(signed)(i) } else { Ok((i, 0)) }
}

fn address(i: &str) -> Res<'_, Operand<'_>> {
    let (rest, base) = match name(i) {
        Ok((rest, n)) => (rest, Base::Name(n)),
        Err(_) => match must(number)(i)? {
            (rest, Number::Int(v)) => (rest, Base::Absolute(v)),
            _ => {
                return fail(
                    i,
                    codes::SYNTAX,
                    "an address must be a name or an integer, with an optional offset",
                    "",
                );
            }
        },
    };
    let (rest, offset) = plus_minus(rest)?;
    let mut rest = rest;
    if eat(&mut rest, ",") {
        let (rest, _) = must(sign("{"))(rest)?;
        let (rest, coordinates) = commas(rest, scalar)?;
        let (rest, _) = must(sign("}"))(rest)?;
        let (rest, _) = must(sign("]"))(rest)?;
        return Ok((rest, Operand::Tensor { base, offset, coordinates }));
    }
    let (mut rest, _) = must(sign("]"))(rest)?;
    if let Some(after) = rest.strip_prefix(".unified") {
        rest = after;
    }
    Ok((rest, Operand::Address { base, offset }))
}
