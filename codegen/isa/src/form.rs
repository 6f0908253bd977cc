//! An instruction with all its modifiers, and the columns that the tables have for them.

use std::fmt;

use crate::table::{Mask, tables};
use crate::template;
use crate::words::{Acc, ElemType, Instr, RedOp, Scope, Sem};

/// An instruction with all its modifiers, legal or not. `Display` writes the PTX text before the
/// operands.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Form {
    /// The instruction without its modifiers.
    pub instr: Instr,
    /// The reduction, for instructions that have one.
    pub op: Option<RedOp>,
    /// The type of the elements.
    pub ty: ElemType,
    /// The number of elements of the vector: 1 (without `.vec`), 2, 4 or 8.
    pub vec: u8,
    /// The precision of the sum, if it differs from the element's.
    pub acc: Option<Acc>,
    /// The memory semantics of the access.
    pub sem: Sem,
    /// The scope, which weak accesses do not have.
    pub scope: Option<Scope>,
}

impl Form {
    /// Creates a weak, scalar form without a reduction.
    pub fn new(instr: Instr, ty: ElemType) -> Form {
        Form { instr, op: None, ty, vec: 1, acc: None, sem: Sem::Weak, scope: None }
    }

    /// Sets the reduction of the form.
    #[must_use]
    pub fn op(self, op: RedOp) -> Form {
        Form { op: Some(op), ..self }
    }

    /// Sets the number of elements of the vector.
    #[must_use]
    pub fn vec(self, vec: u8) -> Form {
        Form { vec, ..self }
    }

    /// Sets the precision of the sum.
    #[must_use]
    pub fn acc(self, acc: Acc) -> Form {
        Form { acc: Some(acc), ..self }
    }

    /// Makes the access strong, with the given semantics and scope.
    #[must_use]
    pub fn order(self, sem: Sem, scope: Scope) -> Form {
        Form { sem, scope: Some(scope), ..self }
    }

    /// The number of bytes that are moved for each PE.
    pub fn bytes(&self) -> u32 {
        u32::from(self.ty.bytes()) * u32::from(self.vec)
    }

    /// The number of scalars that are moved for each PE, for example 8 for `.v4.f16x2`.
    pub fn scalars(&self) -> u32 {
        u32::from(self.ty.lanes()) * u32::from(self.vec)
    }

    /// The form's word in `column`, as an index into [`Column::words`]. It is `None` if the column
    /// does not have such a word.
    pub(crate) fn word(&self, column: Column) -> Option<usize> {
        fn optional(index: Option<usize>) -> Option<usize> {
            Some(index.map_or(0, |i| i + 1))
        }
        match column {
            Column::Op => optional(self.op.map(|x| x as usize)),
            Column::Type => Some(self.ty as usize),
            Column::Vec => VECS.iter().position(|vec| *vec == self.vec),
            Column::Acc => optional(self.acc.map(|x| x as usize)),
            Column::Sem => Some(self.sem as usize),
            Column::Scope => optional(self.scope.map(|x| x as usize)),
        }
    }

    /// The form with the `index`th word of `column` instead.
    pub(crate) fn with_word(mut self, column: Column, index: usize) -> Form {
        let rest = index.wrapping_sub(1);
        match column {
            Column::Op => self.op = RedOp::ALL.get(rest).copied(),
            Column::Type => self.ty = ElemType::ALL[index],
            Column::Vec => self.vec = VECS[index],
            Column::Acc => self.acc = Acc::ALL.get(rest).copied(),
            Column::Sem => self.sem = Sem::ALL[index],
            Column::Scope => self.scope = Scope::ALL.get(rest).copied(),
        }
        self
    }
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let family = tables().family(self.instr);
        let text = family.map_or_else(|| self.instr.name().into(), |family| template::mnemonic(family, self));
        f.pad(&text)
    }
}

/// The number of columns of a row that select a form.
pub(crate) const COLUMNS: usize = 6;

/// The columns that select a form, in the order of a row.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Column {
    /// The column of the reduction, such as `.add`.
    Op,
    /// The column of the element type.
    Type,
    /// The column of the number of elements of a vector.
    Vec,
    /// The column of the precision of the sum.
    Acc,
    /// The column of the memory semantics.
    Sem,
    /// The column of the scope.
    Scope,
}

/// The values of [`Form::vec`], in the order of [`VEC_WORDS`].
const VECS: [u8; 4] = [1, 2, 4, 8];
const VEC_WORDS: &[&str] = &["-", "v2", "v4", "v8"];
const OP_WORDS: &[&str] = &with_none::<7>(RedOp::NAMES);
const ACC_WORDS: &[&str] = &with_none::<3>(Acc::NAMES);
const SCOPE_WORDS: &[&str] = &with_none::<5>(Scope::NAMES);

/// `-`, followed by the names.
const fn with_none<const N: usize>(names: &[&'static str]) -> [&'static str; N] {
    let mut words = ["-"; N];
    let mut i = 1;
    while i < N {
        words[i] = names[i - 1];
        i += 1;
    }
    words
}

impl Column {
    /// Every column, in the order of a row.
    pub const ALL: &'static [Column; COLUMNS] =
        &[Column::Op, Column::Type, Column::Vec, Column::Acc, Column::Sem, Column::Scope];

    /// The words of the column, where `-` stands for no word.
    pub fn words(self) -> &'static [&'static str] {
        match self {
            Column::Op => OP_WORDS,
            Column::Type => ElemType::NAMES,
            Column::Vec => VEC_WORDS,
            Column::Acc => ACC_WORDS,
            Column::Sem => Sem::NAMES,
            Column::Scope => SCOPE_WORDS,
        }
    }

    /// The words of a cell as bits.
    pub(crate) fn mask(self, cell: &str) -> Option<Mask> {
        let words = self.words();
        if cell == "any" {
            return Some((1 << words.len()) - 1);
        }
        cell.split_whitespace().try_fold(0, |mask, word| {
            let bit = words.iter().position(|known| *known == word)?;
            Some(mask | 1 << bit)
        })
    }
}
