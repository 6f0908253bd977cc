//! Checks whether a form exists on a target. If it does not, the error names the wrong column and
//! the words that it can have.

use std::fmt;

use crate::form::{Column, Form};
use crate::table::{Family, Row, families, tables};
use crate::target::{PtxVersion, Target};
use crate::words::ElemType;

/// A form that a target has. Only [`check`] creates this type, and instructions are only written
/// from it.
#[derive(Clone, Copy)]
pub struct Legal {
    pub(crate) form: Form,
    pub(crate) family: &'static Family,
    pub(crate) row: &'static Row,
    min_ptx: PtxVersion,
}

impl Legal {
    /// The form that was found to be legal.
    pub fn form(&self) -> &Form {
        &self.form
    }

    /// The lowest `.version` that has the form on this target.
    pub fn min_ptx(&self) -> PtxVersion {
        self.min_ptx
    }

    /// The section of the PTX ISA manual that describes it, and the section's anchor.
    pub fn manual(&self) -> (&'static str, &'static str) {
        self.family.manual
    }
}

impl fmt::Debug for Legal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Legal({}, PTX {})", self.form, self.min_ptx)
    }
}

/// The reasons why a form is illegal.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Rule {
    /// A word that cannot be combined with the others.
    Column(Column),
    /// The form exists, but not on this target.
    Target,
    /// ptxas accepts the form, but the manual does not have it.
    Refused,
}

impl Rule {
    /// Each rule with its error code, the name of what is wrong, and a note.
    const FACTS: [(Rule, u16, &'static str, &'static str); 8] = [
        (Rule::Column(Column::Op), 701, "reduction", "not every reduction exists for every element type"),
        (
            Rule::Column(Column::Type),
            702,
            "element type",
            "the instruction has no form for this element type",
        ),
        (
            Rule::Column(Column::Vec),
            703,
            "vector width",
            "one access moves 4, 8 or 16 bytes; f16, bf16 and fp8 need a vector or a packed type, and \
             integers and f64 have no vectors",
        ),
        (
            Rule::Column(Column::Acc),
            704,
            "accumulator",
            "acc::f32 can be used with add of f16 and bf16, and acc::f16 with add of fp8",
        ),
        (
            Rule::Column(Column::Sem),
            705,
            "memory semantics",
            "loads can be weak, relaxed or acquire, and stores weak, relaxed or release; red can be \
             relaxed or release, and atom relaxed, acquire, release or acq_rel",
        ),
        (
            Rule::Column(Column::Scope),
            706,
            "scope",
            "a weak access has no scope; relaxed, acquire and release accesses need one",
        ),
        (Rule::Target, 707, "target", "compile for one of these targets, or use a type that this one has"),
        (Rule::Refused, 708, "form", "its meaning is not documented; use another form"),
    ];

    fn facts(self) -> (u16, &'static str, &'static str) {
        let found = Rule::FACTS.iter().find(|(rule, ..)| *rule == self);
        found.map_or((700, "form", ""), |(_, code, what, help)| (*code, what, help))
    }

    /// The stable number of the error: `E0701` is 701.
    pub fn code(self) -> u16 {
        self.facts().0
    }
}

/// A form that does not exist. `Display` writes one line without the code and the help.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub struct Illegal {
    /// The form that was requested.
    pub form: Form,
    /// The target that does not have the form.
    pub target: Target,
    /// The reason why it is illegal.
    pub rule: Rule,
    /// The words that would be legal if everything else stays as requested. If more than one column
    /// is wrong, these words fit the columns before it. For [`Rule::Refused`] this is the reason.
    pub expected: Vec<&'static str>,
}

impl Illegal {
    /// The stable number of the error.
    pub fn code(&self) -> u16 {
        self.rule.code()
    }

    /// Advice on what to do. It names a type that carries this type's data, if the target has the
    /// form with that type.
    pub fn help(&self) -> String {
        let legal_with = |ty: &&ElemType| find(&Form { ty: **ty, ..self.form }, self.target).is_some();
        let carriers = tables().carriers.iter().filter(|carrier| carrier.carries(&self.form));
        for carrier in carriers.filter(|_| self.rule != Rule::Target) {
            if let Some(ty) = carrier.by.iter().find(legal_with) {
                return format!("use `{ty}`: {}", carrier.why);
            }
        }
        let types = self.types_of_reduction();
        if self.rule == Rule::Column(Column::Op) && !types.is_empty() {
            return format!("this reduction exists for {}", words(types.into_iter()));
        }
        self.rule.facts().2.into()
    }

    /// The element types for which the instruction has this reduction on the target.
    fn types_of_reduction(&self) -> Vec<&'static str> {
        let exists = |ty: ElemType| {
            [1, 2, 4, 8].into_iter().any(|vec| {
                let form = Form { ty, vec, acc: None, ..self.form };
                find(&form, self.target).is_some()
            })
        };
        let all = ElemType::ALL.iter().zip(ElemType::NAMES);
        all.filter(|(ty, _)| exists(**ty)).map(|(_, name)| *name).collect()
    }

    /// The word in the column that the error is about.
    fn found(&self) -> String {
        match self.rule {
            Rule::Column(column) => match self.form.word(column) {
                Some(word) => words([column.words()[word]].into_iter()),
                None => format!("v{}", self.form.vec),
            },
            Rule::Target => self.target.to_string(),
            Rule::Refused => String::new(),
        }
    }
}

fn words<'a>(words: impl Iterator<Item = &'a str>) -> String {
    words.map(|word| if word == "-" { "none" } else { word }).collect::<Vec<_>>().join(", ")
}

impl fmt::Display for Illegal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let expected = words(self.expected.iter().copied());
        if self.rule == Rule::Refused {
            return write!(f, "`{}` is rejected: {expected}", self.form);
        }
        let (found, what) = (self.found(), self.rule.facts().1);
        write!(f, "`{}` does not exist: {what} is {found}, expected {expected}", self.form)
    }
}

impl Row {
    /// Whether the row has the form (on some target).
    pub(crate) fn has(&self, form: &Form) -> bool {
        Column::ALL.iter().all(|column| self.allows(form, *column))
    }

    fn allows(&self, form: &Form, column: Column) -> bool {
        form.word(column).is_some_and(|word| self.masks[column as usize] >> word & 1 == 1)
    }

    /// The lowest version of PTX that has the row on a target, if the target has it.
    fn min_ptx(&self, target: Target) -> Option<PtxVersion> {
        self.targets.iter().any(|spec| spec.has(target)).then(|| target.min_ptx().max(self.ptx))
    }
}

/// Checks whether a target has a form.
///
/// # Errors
/// Fails if the target does not have the form. [`Illegal`] names the first column that must be
/// different.
pub fn check(form: &Form, target: Target) -> Result<Legal, Illegal> {
    find(form, target).ok_or_else(|| diagnose(form, target))
}

pub(crate) fn find(form: &Form, target: Target) -> Option<Legal> {
    let family = tables().family(form.instr)?;
    let rows = family.rows.iter().filter(|row| row.refused.is_none() && row.has(form));
    let (min_ptx, row) =
        rows.filter_map(|row| Some((row.min_ptx(target)?, row))).min_by_key(|(ptx, _)| *ptx)?;
    Some(Legal { form: *form, family, row, min_ptx })
}

/// The order in which columns are reported if a change of any of several would do. The type is
/// last, because the user's data determines it.
const BLAME: [Column; 6] = [Column::Vec, Column::Acc, Column::Scope, Column::Sem, Column::Op, Column::Type];

/// The order in which columns narrow down the rows if several are wrong.
const NARROW: [Column; 6] = [Column::Type, Column::Op, Column::Acc, Column::Vec, Column::Sem, Column::Scope];

fn diagnose(form: &Form, target: Target) -> Illegal {
    let illegal = |rule, expected| Illegal { form: *form, target, rule, expected };
    let Some(family) = tables().family(form.instr) else {
        return illegal(Rule::Target, Vec::new());
    };
    let (refused, rows): (Vec<&Row>, Vec<&Row>) = family.rows.iter().partition(|row| row.refused.is_some());
    let here = |row: &&&Row| row.has(form) && row.min_ptx(target).is_some();
    if let Some(why) = refused.iter().find(here).and_then(|row| row.refused) {
        return illegal(Rule::Refused, vec![why]);
    }
    if rows.iter().any(|row| row.has(form)) {
        let targets = Target::all().filter(|t| find(form, *t).is_some()).map(Target::name);
        return illegal(Rule::Target, targets.collect());
    }
    for column in BLAME {
        let fits = |word: &usize| find(&form.with_word(column, *word), target).is_some();
        let expected: Vec<_> = (0..column.words().len()).filter(fits).map(|i| column.words()[i]).collect();
        if !expected.is_empty() {
            return illegal(Rule::Column(column), expected);
        }
    }
    let mut left: Vec<&Row> = rows.iter().copied().filter(|row| row.min_ptx(target).is_some()).collect();
    for column in NARROW {
        let narrower: Vec<&Row> = left.iter().copied().filter(|row| row.allows(form, column)).collect();
        if narrower.is_empty() {
            let mask = left.iter().fold(0, |mask, row| mask | row.masks[column as usize]);
            let expected = column.words().iter().enumerate().filter(|(i, _)| mask >> i & 1 == 1);
            let expected: Vec<_> = expected.map(|(_, word)| *word).collect();
            if expected.is_empty() {
                let targets = Target::all().filter(|t| rows.iter().any(|row| row.min_ptx(*t).is_some()));
                return illegal(Rule::Target, targets.map(Target::name).collect());
            }
            return illegal(Rule::Column(column), expected);
        }
        left = narrower;
    }
    illegal(Rule::Target, Vec::new())
}

/// Every form that some target has, including semantics and scopes, in the order of the tables.
pub fn legal_forms() -> impl Iterator<Item = Form> {
    let rows = families().iter().flat_map(|family| family.rows.iter().map(move |row| (family, row)));
    rows.filter(|(_, row)| row.refused.is_none()).flat_map(|(family, row)| expand(family, row))
}

/// Every combination of a row's words.
fn expand(family: &Family, row: &Row) -> Vec<Form> {
    let mut forms = vec![Form::new(family.instr, ElemType::U32)];
    for column in Column::ALL {
        let words: Vec<usize> =
            (0..column.words().len()).filter(|i| row.masks[*column as usize] >> i & 1 == 1).collect();
        forms = forms.iter().flat_map(|form| words.iter().map(|w| form.with_word(*column, *w))).collect();
    }
    forms
}
