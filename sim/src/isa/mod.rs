//! The instruction set as tables, with one file for each family, in the notation of the PTX manual.
//!
//! A [`Row`] is a form of an instruction: its syntax (`add{.rnd}{.ftz}.f32`), its operands, the
//! choices for each named modifier, and the function that builds the executable [`Op`] from an
//! instruction of that form. An instruction belongs to the first row whose modifiers are exactly
//! its own. An instruction that belongs to no row is an error, so nothing is ever skipped. The
//! documentation ([`docs`]) is generated from the same rows.

pub(crate) mod docs;
pub(crate) mod lift;
pub(crate) mod site;

mod atomic;
mod bits;
mod bulk;
mod cluster;
mod compare;
mod control;
mod convert;
mod cp_async;
mod float;
mod integer;
mod logic;
mod mbarrier;
mod memory;
mod multimem;
mod printf;
pub(crate) mod reduce;
pub(crate) mod special;
mod sync;
pub(crate) mod tensor;
mod tensor_map;
mod video;
mod warp;

use crate::codes;
use crate::exec::Op;
use crate::ptx::ast::Operand;
use rustc_hash::FxHashMap;
use site::{Issue, Site};
pub(crate) use special::special_register;
use std::sync::LazyLock;

/// A named modifier and its choices.
pub(crate) type Class = (&'static str, &'static [&'static str]);
pub(crate) type Build = fn(&mut Site<'_, '_, '_>) -> Result<Op, Issue>;

pub(crate) struct Row {
    /// The syntax: `opcode.required{.optional}`. A component named in `classes` means one of its
    /// choices.
    pub syntax: &'static str,
    /// The operands as in the manual, where `{, x}` is optional.
    pub operands: &'static str,
    pub classes: &'static [Class],
    pub build: Build,
}

pub(crate) const fn row(
    syntax: &'static str,
    operands: &'static str,
    classes: &'static [Class],
    build: Build,
) -> Row {
    Row { syntax, operands, classes, build }
}

pub(crate) struct Family {
    pub title: &'static str,
    /// The section of the PTX ISA manual (version 9.0).
    pub section: &'static str,
    pub rows: &'static [Row],
}

/// Every instruction that the simulator executes.
pub(crate) static FAMILIES: &[&Family] = &[
    &integer::FAMILY,
    &bits::FAMILY,
    &video::FAMILY,
    &float::FAMILY,
    &float::HALF_FAMILY,
    &compare::FAMILY,
    &logic::FAMILY,
    &convert::FAMILY,
    &memory::FAMILY,
    &atomic::FAMILY,
    &multimem::FAMILY,
    &warp::FAMILY,
    &tensor::matrix::FAMILY,
    &tensor::mma::FAMILY,
    &tensor::sparse::FAMILY,
    &tensor::wmma::FAMILY,
    &tensor::wgmma::FAMILY,
    &sync::FAMILY,
    &cluster::FAMILY,
    &cp_async::FAMILY,
    &mbarrier::FAMILY,
    &bulk::FAMILY,
    &tensor_map::FAMILY,
    &control::FAMILY,
];

pub(crate) mod classes {
    //! Modifier choices that several families share.
    pub(crate) const INT: &[&str] = &["u16", "u32", "u64", "s16", "s32", "s64"];
    pub(crate) const WORD: &[&str] = &["u32", "u64", "s32", "s64"];
    pub(crate) const BITS: &[&str] = &["b16", "b32", "b64"];
    pub(crate) const RND: &[&str] = &["rn", "rz", "rm", "rp"];
    pub(crate) const SCOPE: &[&str] = &["cta", "cluster", "gpu", "sys"];
    pub(crate) const SCALAR: &[&str] =
        &["b16", "b32", "b64", "u16", "u32", "u64", "s16", "s32", "s64", "f32", "f64"];
}

/// One modifier position of a row.
struct Slot {
    name: &'static str,
    options: Vec<&'static str>,
    required: bool,
}

/// A row that is prepared for matching.
pub(crate) struct Form {
    pub row: &'static Row,
    slots: Vec<Slot>,
    min_operands: usize,
    max_operands: usize,
}

/// The chosen modifiers, by the name of their position.
pub(crate) type Picks = Vec<(&'static str, &'static str)>;

static FORMS: LazyLock<FxHashMap<&'static str, Vec<Form>>> = LazyLock::new(|| {
    let mut forms: FxHashMap<&'static str, Vec<Form>> = FxHashMap::default();
    for row in FAMILIES.iter().flat_map(|f| f.rows) {
        let (opcode, slots) = slots(row);
        let (min_operands, max_operands) = arity(row.operands);
        forms.entry(opcode).or_default().push(Form { row, slots, min_operands, max_operands });
    }
    forms
});

/// Splits `add{.rnd}.f32` into opcode and modifier positions.
fn slots(row: &'static Row) -> (&'static str, Vec<Slot>) {
    let mut parts = row.syntax.split('.');
    let opcode = parts.next().unwrap_or("").trim_end_matches('{');
    // Inside braces, `{.a.b}` makes both optional; a row's builder checks that they occur together.
    let mut optional = row.syntax[opcode.len()..].starts_with('{');
    let mut out = Vec::new();
    for part in parts {
        let name = part.trim_end_matches(['{', '}']);
        let options = match row.classes.iter().find(|(n, _)| *n == name) {
            Some((_, list)) => list.to_vec(),
            None => vec![name],
        };
        out.push(Slot { name, options, required: !optional });
        optional = part.ends_with('{') || optional && !part.contains('}');
    }
    (opcode, out)
}

/// Least and greatest number of operands.
fn arity(operands: &str) -> (usize, usize) {
    if operands.is_empty() {
        return (0, 0);
    }
    // Commas within brackets do not separate operands.
    let count = |text: &str| {
        let mut depth = 0;
        let separates = |c: char| {
            depth += i32::from(c == '[') - i32::from(c == ']');
            c == ',' && depth == 0
        };
        text.split(separates).filter(|s| !s.trim().is_empty()).count()
    };
    (count(operands.split('{').next().unwrap_or("")), count(operands))
}

impl Form {
    /// Assigns each modifier to the first free position that has it. ptxas is equally lenient about
    /// their order.
    fn assign(&self, modifiers: &[&str]) -> Option<Picks> {
        let mut taken = vec![false; self.slots.len()];
        let mut picks = Vec::with_capacity(modifiers.len());
        for m in modifiers {
            let (i, choice) = self.slots.iter().enumerate().find_map(|(i, slot)| {
                let choice = slot.options.iter().find(|o| *o == m)?;
                (!taken[i]).then_some((i, *choice))
            })?;
            taken[i] = true;
            picks.push((self.slots[i].name, choice));
        }
        let complete = self.slots.iter().zip(&taken).all(|(slot, &t)| t || !slot.required);
        complete.then_some(picks)
    }
}

/// Finds the form of an instruction, and its modifiers by position.
pub(crate) fn find(
    opcode: &str,
    modifiers: &[&str],
    operands: &[Operand<'_>],
) -> Result<(&'static Form, Picks), Issue> {
    let Some(forms) = FORMS.get(opcode) else {
        return Err(Issue {
            code: codes::UNKNOWN_INSTRUCTION,
            message: format!("instruction `{opcode}` is not simulated"),
            help: "docs/ptx-instructions.md lists the simulated instructions".into(),
        });
    };
    let mut wrong_count = None;
    for form in forms {
        if let Some(picks) = form.assign(modifiers) {
            if (form.min_operands..=form.max_operands).contains(&operands.len()) {
                return Ok((form, picks));
            }
            wrong_count = Some(form);
        }
    }
    if let Some(form) = wrong_count {
        return Err(Issue {
            code: codes::BAD_OPERANDS,
            message: format!("`{}` has {} operands", mnemonic(opcode, modifiers), operands.len()),
            help: format!("write the instruction as `{} {}`", form.row.syntax, form.row.operands),
        });
    }
    let known = |m: &str| forms.iter().flat_map(|f| &f.slots).any(|s| s.options.contains(&m));
    let message = match modifiers.iter().find(|m| !known(m)) {
        Some(m) => format!("`.{m}` is not a modifier of `{opcode}` that the simulator knows"),
        None => {
            format!("`{}` is not a form of `{opcode}` that the simulator knows", mnemonic(opcode, modifiers))
        }
    };
    let mut list: Vec<&str> = forms.iter().map(|f| f.row.syntax).collect();
    list.dedup();
    list.truncate(12);
    Err(Issue { code: codes::UNKNOWN_MODIFIER, message, help: format!("forms: {}", list.join(", ")) })
}

/// Formats the mnemonic, such as `add.rn.f32`.
pub(crate) fn mnemonic(opcode: &str, modifiers: &[&str]) -> String {
    let mut out = opcode.to_string();
    for m in modifiers {
        out.push('.');
        out.push_str(m);
    }
    out
}
