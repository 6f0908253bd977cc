//! Fills templates, which turns a legal form and operands into an instruction.

use crate::check::Legal;
use crate::form::Form;
use crate::table::{Family, Row};
use crate::words::Reg;

/// An instruction for LLVM's inline assembly. It always has side effects and clobbers memory, so
/// that LLVM neither removes it nor moves other accesses across it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Asm {
    /// The instruction with operands `$0`, `$1`, .... Results come first, followed by inputs in the
    /// order of the text.
    pub text: String,
    /// The constraints of the operands in that order, followed by the clobber: `=f,=f,l,~{memory}`.
    pub constraints: String,
    /// The registers of the results. For several results LLVM returns a struct.
    pub outputs: Vec<Reg>,
    /// The operands, in the order of the call's arguments.
    pub inputs: Vec<Input>,
}

/// An operand of [`Asm`] that is read.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Input {
    /// The address in global memory, which is the multicast address for multimem instructions.
    Address,
    /// The address in shared memory, which has 32 bits.
    SharedAddress,
    /// The number of bytes to move, which has 32 bits.
    Bytes,
    /// A register of data.
    Data(Reg),
}

impl Input {
    /// The register that holds the input.
    pub fn reg(self) -> Reg {
        match self {
            Input::Address => Reg::B64,
            Input::SharedAddress | Input::Bytes => Reg::B32,
            Input::Data(reg) => reg,
        }
    }
}

/// A piece of a template.
pub(crate) enum Piece<'a> {
    Text(&'a str),
    /// `{.sem}`.
    Modifier(&'a str),
    /// `{a}`.
    Operand(&'a str),
}

/// Splits a template into pieces. A brace without its partner ends it.
pub(crate) fn pieces(template: &str) -> impl Iterator<Item = Piece<'_>> {
    let mut rest = template;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let piece;
        match rest.strip_prefix('{').and_then(|inner| inner.split_once('}')) {
            Some((name, after)) => {
                piece = name.strip_prefix('.').map_or(Piece::Operand(name), Piece::Modifier);
                rest = after;
            }
            None => {
                let end = rest.find('{').filter(|end| *end > 0).unwrap_or(rest.len());
                piece = Piece::Text(&rest[..end]);
                rest = &rest[end..];
            }
        }
        Some(piece)
    })
}

/// The text of a modifier, which is empty if it has none.
fn modifier(name: &str, family: &Family, row: Option<&Row>, form: &Form) -> &'static str {
    const VECS: [(u8, &str); 3] = [(2, "v2"), (4, "v4"), (8, "v8")];
    match name {
        "sem" if family.default == Some(form.sem) => "",
        "sem" => form.sem.name(),
        "scope" => form.scope.map_or("", |scope| scope.name()),
        "op" => form.op.map_or("", |op| op.name()),
        "acc" => form.acc.map_or("", |acc| acc.name()),
        "vec" => VECS.iter().find(|(n, _)| *n == form.vec).map_or("", |(_, word)| word),
        "type" => form.ty.name(),
        "extra" => row.map_or("", |row| row.extra),
        _ => "",
    }
}

fn fill(
    family: &Family,
    row: Option<&Row>,
    form: &Form,
    mut operand: impl FnMut(&str, &mut String),
) -> String {
    let mut out = String::with_capacity(96);
    for piece in pieces(family.template) {
        match piece {
            Piece::Text(text) => out.push_str(text),
            Piece::Operand(name) => operand(name, &mut out),
            Piece::Modifier(name) => {
                let word = modifier(name, family, row, form);
                if !word.is_empty() {
                    out.push('.');
                    out.push_str(word);
                }
            }
        }
    }
    out
}

/// The instruction up to its operands. An illegal form has no extra modifier of a row, and
/// modifiers that the template has no place for are at the end.
pub(crate) fn mnemonic(family: &Family, form: &Form) -> String {
    let row = family.rows.iter().find(|row| row.has(form));
    let mut text = fill(family, row, form, |_, _| {});
    text.truncate(text.find(' ').unwrap_or(text.len()));
    for name in ["sem", "scope", "op", "acc", "vec"] {
        let has_place = |piece| matches!(piece, Piece::Modifier(place) if place == name);
        let word = modifier(name, family, row, form);
        if !word.is_empty() && !pieces(family.template).any(has_place) {
            text.push('.');
            text.push_str(word);
        }
    }
    text
}

/// Writes a list as PTX does, with braces around more than one item.
fn list(out: &mut String, items: &[String]) {
    match items {
        [one] => out.push_str(one),
        _ => {
            out.push('{');
            out.push_str(&items.join(", "));
            out.push('}');
        }
    }
}

impl Legal {
    /// The instruction with named operands: `address` for `{a}`, `shared` and `bytes` for those of
    /// a bulk copy, and a register from `data` for each of `0..vec`.
    pub fn ptx(&self, address: &str, shared: &str, bytes: &str, data: impl Fn(u8) -> String) -> String {
        let data: Vec<String> = (0..self.form.vec).map(data).collect();
        fill(self.family, Some(self.row), &self.form, |name, out| match name {
            "a" => out.push_str(address),
            "s" => out.push_str(shared),
            "n" => out.push_str(bytes),
            _ => list(out, &data),
        })
    }

    /// The instruction for LLVM's inline assembly. It is `None` for a form with `.b8` registers
    /// (fp8 scalars), which LLVM does not have. The equivalent packed form (`e4m3x4` for
    /// `.v4.e4m3`) does the same.
    pub fn asm(&self) -> Option<Asm> {
        let form = &self.form;
        let reg = form.ty.reg();
        let uses = |wanted: &str| {
            pieces(self.family.template).any(|piece| matches!(piece, Piece::Operand(name) if name == wanted))
        };
        let outputs = if uses("d") { vec![reg; usize::from(form.vec)] } else { Vec::new() };
        let mut inputs = Vec::new();
        let text = fill(self.family, Some(self.row), form, |name, out| {
            let start = outputs.len() + inputs.len();
            let (first, count) = match name {
                "d" => (0, outputs.len()),
                "a" => (start, push(&mut inputs, Input::Address, 1)),
                "s" => (start, push(&mut inputs, Input::SharedAddress, 1)),
                "n" => (start, push(&mut inputs, Input::Bytes, 1)),
                _ => (start, push(&mut inputs, Input::Data(reg), usize::from(form.vec))),
            };
            let names: Vec<String> = (first..first + count).map(|i| format!("${i}")).collect();
            list(out, &names);
        });
        let mut constraints = String::new();
        for out in &outputs {
            constraints.push('=');
            constraints.push(out.constraint()?);
            constraints.push(',');
        }
        for input in &inputs {
            constraints.push(input.reg().constraint()?);
            constraints.push(',');
        }
        constraints.push_str("~{memory}");
        Some(Asm { text, constraints, outputs, inputs })
    }
}

fn push(inputs: &mut Vec<Input>, input: Input, count: usize) -> usize {
    inputs.extend(std::iter::repeat_n(input, count));
    count
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::families;

    #[test]
    fn templates_name_only_existing_modifiers_and_operands() {
        for family in families() {
            for piece in pieces(family.template) {
                let known = match piece {
                    Piece::Text(text) => !text.contains(['{', '}']),
                    Piece::Modifier(name) => {
                        ["sem", "scope", "op", "acc", "vec", "type", "extra"].contains(&name)
                    }
                    Piece::Operand(name) => ["d", "b", "a", "s", "n"].contains(&name),
                };
                assert!(known, "{}", family.template);
            }
        }
    }

    #[test]
    fn an_open_brace_ends_a_template() {
        let texts: Vec<_> = ["", "{", "a{", "{.x", "a{b}c{"]
            .iter()
            .map(|template| pieces(template).filter(|piece| matches!(piece, Piece::Text(_))).count())
            .collect();
        assert_eq!(texts, [0, 1, 2, 1, 3]);
    }
}
