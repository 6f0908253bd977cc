//! One instruction with all its modifiers, and the columns a table has for them.

use std::fmt;

use crate::table::{Mask, tables};
use crate::template;
use crate::words::{Acc, ElemType, Instr, RedOp, Scope, Sem};

/// An instruction with all its modifiers, legal or not. `Display` is what PTX writes before the operands.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Form {
    /// The instruction without its modifiers.
    pub instr: Instr,
    /// The reduction, of instructions that have one.
    pub op: Option<RedOp>,
    /// The type of the elements.
    pub ty: ElemType,
    /// Elements a vector: 1 (no `.vec`), 2, 4 or 8.
    pub vec: u8,
    /// Precision of the sum, where it is not the element's.
    pub acc: Option<Acc>,
    /// The memory semantics of the access.
    pub sem: Sem,
    /// Scope; of all but weak accesses.
    pub scope: Option<Scope>,
}

impl Form {
    /// Weak, scalar, without op.
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

    /// Strong, with semantics and scope.
    #[must_use]
    pub fn order(self, sem: Sem, scope: Scope) -> Form {
        Form { sem, scope: Some(scope), ..self }
    }

    /// Bytes moved for each PE.
    pub fn bytes(&self) -> u32 {
        u32::from(self.ty.bytes()) * u32::from(self.vec)
    }

    /// Scalars moved for each PE: 8 of `.v4.f16x2`.
    pub fn scalars(&self) -> u32 {
        u32::from(self.ty.lanes()) * u32::from(self.vec)
    }

    /// The word of `column` it has, as an index into [`Column::words`]; `None` where the column has no such word.
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

    /// With the `index`th word of `column` instead.
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

/// How many columns of a row choose a form.
pub(crate) const COLUMNS: usize = 6;

/// The columns that choose a form, in a row's order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Column {
    /// The column of the reduction, such as `.add`.
    Op,
    /// The column of the element type.
    Type,
    /// The column of the number of elements of a vector.
    Vec,
    /// Precision of the sum.
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

/// `-`, then the names.
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
    /// Every column, in a row's order.
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
