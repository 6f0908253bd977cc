//! Forms of instructions whose tables name their own columns: whether a target has a form, and its
//! text.

use std::fmt;

use crate::instruction::{Choices, Instruction};
use crate::target::{PtxVersion, Target};
use crate::template::{Piece, pieces};

/// A form of an instruction, legal or not, which has a word for each column. `Display` writes the
/// PTX text before the operands.
#[derive(Clone)]
pub struct Choice {
    /// The instruction that the form belongs to.
    pub instruction: &'static Instruction,
    /// The words of the form, in the order of the columns.
    pub words: Vec<String>,
}

/// A form that a target has. Only [`Choice::check`] makes one.
#[derive(Clone)]
pub struct Spelling {
    choice: Choice,
    row: &'static Choices,
    min_ptx: PtxVersion,
}

/// The reason why a form does not exist.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Reason {
    /// The word of this column cannot be combined with the others.
    Word(&'static str),
    /// The form exists, but not on this target.
    Target,
    /// ptxas accepts the form, but the manual does not have it.
    Refused,
}

/// A form that does not exist. `Display` writes one line without the code and the help.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NoForm {
    /// The requested form, as PTX would write it.
    pub form: String,
    /// The target that does not have the form.
    pub target: Target,
    /// The reason why it does not exist.
    pub reason: Reason,
    /// The word that does not fit.
    pub found: String,
    /// The words that would be legal if everything else stays as requested. If more than one column
    /// is wrong, these words fit the columns before it. For [`Reason::Refused`] this is the reason.
    pub expected: Vec<String>,
}

impl std::error::Error for NoForm {}

impl fmt::Display for NoForm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fn named(word: &str) -> &str {
            if word == "-" { "none" } else { word }
        }
        let list = self.expected.iter().map(|word| named(word)).collect::<Vec<_>>().join(", ");
        let NoForm { form, target, .. } = self;
        match self.reason {
            Reason::Word(column) => {
                let found = named(&self.found);
                write!(f, "`{form}` does not exist: {column} is {found}, expected {list}")
            }
            Reason::Target => write!(f, "`{form}` does not exist on {target}, expected {list}"),
            Reason::Refused => write!(f, "`{form}` is not documented: {list}"),
        }
    }
}

impl NoForm {
    /// The stable number of the error: `E0709` is 709.
    pub fn code(&self) -> u16 {
        match self.reason {
            Reason::Word(_) => 709,
            Reason::Target => 707,
            Reason::Refused => 708,
        }
    }
}

impl Choice {
    /// Creates a form with these words.
    pub fn new(instruction: &'static Instruction, words: &[&str]) -> Choice {
        Choice { instruction, words: words.iter().map(ToString::to_string).collect() }
    }

    /// Replaces the word of a column.
    #[must_use]
    pub fn with(mut self, column: usize, word: &str) -> Choice {
        if let Some(old) = self.words.get_mut(column) {
            *old = word.to_owned();
        }
        self
    }

    /// Checks whether a target has the form.
    ///
    /// # Errors
    /// Fails if the target does not have the form. [`NoForm`] names the first column that must be
    /// different, and the words that it can have.
    pub fn check(&self, target: Target) -> Result<Spelling, NoForm> {
        self.find(target).ok_or_else(|| self.diagnose(target))
    }

    fn find(&self, target: Target) -> Option<Spelling> {
        let rows =
            self.instruction.rows.iter().filter(|row| row.refused.is_none() && row.has_all(&self.words));
        let (min_ptx, row) =
            rows.filter_map(|row| Some((row.min_ptx(target)?, row))).min_by_key(|(ptx, _)| *ptx)?;
        Some(Spelling { choice: self.clone(), row, min_ptx })
    }

    fn diagnose(&self, target: Target) -> NoForm {
        let no = |reason, found: &str, expected: Vec<String>| {
            let form = self.to_string();
            NoForm { form, target, reason, found: found.to_owned(), expected }
        };
        let rows = &self.instruction.rows;
        let refused = rows.iter().filter(|row| row.has_all(&self.words)).find_map(|row| row.refused);
        if let Some(why) = refused {
            return no(Reason::Refused, "", vec![why.to_owned()]);
        }
        let everywhere = |fits: &dyn Fn(Target) -> bool| {
            Target::all().filter(|t| fits(*t)).map(|t| t.name().to_owned()).collect::<Vec<_>>()
        };
        if rows.iter().any(|row| row.has_all(&self.words)) {
            return no(Reason::Target, "", everywhere(&|t| self.find(t).is_some()));
        }
        let columns = || self.instruction.columns.iter().copied().zip(&self.words).enumerate();
        // If one change suffices, the error is about the last column for which it does. The first
        // columns hold the user's data.
        for (column, (name, word)) in columns().rev() {
            let fits = |other: &&str| self.clone().with(column, other).find(target).is_some();
            let expected: Vec<_> = self.instruction.words(column).into_iter().filter(fits).collect();
            if !expected.is_empty() {
                return no(Reason::Word(name), word, expected.into_iter().map(str::to_owned).collect());
            }
        }
        let legal = |row: &&Choices| row.refused.is_none() && row.min_ptx(target).is_some();
        let mut left: Vec<&Choices> = rows.iter().filter(legal).collect();
        for (column, (name, word)) in columns() {
            let (narrower, others): (Vec<_>, Vec<_>) =
                left.iter().copied().partition(|r| r.has(column, word));
            if narrower.is_empty() && !others.is_empty() {
                let words = others.iter().filter_map(|row| row.words.get(column)).flatten();
                let mut expected: Vec<String> = Vec::new();
                for word in words {
                    if !expected.contains(word) {
                        expected.push(word.clone());
                    }
                }
                return no(Reason::Word(name), word, expected);
            }
            left = narrower;
        }
        no(Reason::Target, "", everywhere(&|t| rows.iter().any(|row| row.min_ptx(t).is_some())))
    }

    /// Fills in the text. `operand` writes each operand.
    fn fill(&self, operands: &str, operand: &mut dyn FnMut(&str) -> String) -> String {
        let mut out = String::with_capacity(128);
        self.append(self.instruction.template, operands, operand, &mut out);
        out
    }

    fn append(
        &self,
        template: &str,
        operands: &str,
        operand: &mut dyn FnMut(&str) -> String,
        out: &mut String,
    ) {
        for piece in pieces(template) {
            match piece {
                Piece::Text(text) => out.push_str(text),
                Piece::Modifier(name) => match self.printed(name) {
                    Some("") | None => {}
                    Some(word) => {
                        out.push('.');
                        out.push_str(word);
                    }
                },
                Piece::Operand("operands") => self.append(operands, "", operand, out),
                Piece::Operand(name) => match self.printed(name) {
                    Some(word) => out.push_str(word),
                    None => out.push_str(&operand(name)),
                },
            }
        }
    }

    /// The printed word of a column, or `None` if there is no such column.
    fn printed(&self, column: &str) -> Option<&str> {
        let at = self.instruction.columns.iter().position(|name| *name == column)?;
        let word = self.words.get(at).map_or("", String::as_str);
        let other = self.instruction.prints.iter().find(|(from, _)| *from == word);
        Some(other.map_or(if word == "-" { "" } else { word }, |(_, to)| to))
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.fill("", &mut |_| String::new());
        f.pad(text.split(' ').next().unwrap_or_default())
    }
}

impl fmt::Debug for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self} {:?}", self.words)
    }
}

impl fmt::Debug for Spelling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Spelling({}, PTX {})", self.choice, self.min_ptx)
    }
}

impl Spelling {
    /// The form that the instruction is written from.
    pub fn choice(&self) -> &Choice {
        &self.choice
    }

    /// The lowest `.version` that has the form on the target.
    pub fn min_ptx(&self) -> PtxVersion {
        self.min_ptx
    }

    /// The instruction with its operands. `operand` is called with the name that the table gives to
    /// each operand.
    pub fn ptx(&self, mut operand: impl FnMut(&str) -> String) -> String {
        self.choice.fill(self.row.operands, &mut operand)
    }
}

/// Every form that some target has, in the order of the tables.
pub fn choices(instruction: &'static Instruction) -> impl Iterator<Item = Choice> {
    instruction.rows.iter().filter(|row| row.refused.is_none()).flat_map(move |row| {
        let one = vec![Choice::new(instruction, &[])];
        row.words.iter().fold(one, |forms, words| {
            let with = |form: &Choice, word: &String| {
                let mut form = form.clone();
                form.words.push(word.clone());
                form
            };
            forms.iter().flat_map(|form| words.iter().map(move |word| with(form, word))).collect()
        })
    })
}
