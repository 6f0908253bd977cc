//! Instructions whose tables name their own columns: `mma.table` and `bulk.table`.

use std::collections::BTreeSet;
use std::fmt;

use crate::table::{Line, TableError, lines};
use crate::target::{PtxVersion, Target, TargetSpec, Targets};

/// An instruction, the columns that choose its forms, and the rows that say which forms exist.
pub struct Instruction {
    /// The name as in PTX, for example `wgmma.mma_async`.
    pub name: &'static str,
    /// Section and anchor in the PTX ISA manual.
    pub manual: (&'static str, &'static str),
    /// The template from which the text of forms is made.
    pub template: &'static str,
    /// The names of the columns, in the order in which an error narrows down what is wrong.
    pub columns: Vec<&'static str>,
    /// The rows as written: the cells of the columns, the operands, the lowest PTX version, the
    /// targets, and the reason why a row is rejected.
    pub lines: Vec<Vec<&'static str>>,
    /// The printed text for words that are not printed as they are.
    pub(crate) prints: Vec<(&'static str, &'static str)>,
    pub(crate) rows: Vec<Choices>,
}

/// A row: the forms that have one of its words in each column.
pub(crate) struct Choices {
    /// The words of each column.
    pub words: Vec<Vec<String>>,
    /// The operands of these forms.
    pub operands: &'static str,
    ptx: PtxVersion,
    targets: Vec<TargetSpec>,
    /// The reason why these forms are illegal although ptxas accepts them.
    pub refused: Option<&'static str>,
}

impl Choices {
    /// Whether a column of the row has the word.
    pub(crate) fn has(&self, column: usize, word: &str) -> bool {
        self.words.get(column).is_some_and(|words| words.iter().any(|w| w == word))
    }

    /// Whether the row includes the form with these words.
    pub(crate) fn has_all(&self, words: &[String]) -> bool {
        words.len() == self.words.len() && words.iter().enumerate().all(|(i, word)| self.has(i, word))
    }

    /// The lowest version that has these forms on a target, or `None` if the target lacks them.
    pub(crate) fn min_ptx(&self, target: Target) -> Option<PtxVersion> {
        self.targets.iter().any(|spec| spec.has(target)).then(|| self.ptx.max(target.min_ptx()))
    }
}

impl fmt::Debug for Instruction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl Instruction {
    /// The instruction with that name.
    pub fn named(name: &str) -> Option<&'static Instruction> {
        instructions().find(|instruction| instruction.name == name)
    }

    /// Whether a target has any form of the instruction.
    pub fn is_on(&self, target: Target) -> bool {
        self.rows.iter().any(|row| row.refused.is_none() && row.min_ptx(target).is_some())
    }

    /// Every word that a column has in any row, in the order of the rows.
    pub fn words(&self, column: usize) -> Vec<&str> {
        let mut seen = BTreeSet::new();
        let all = self.rows.iter().filter_map(|row| row.words.get(column)).flatten();
        all.map(String::as_str).filter(|word| seen.insert(*word)).collect()
    }
}

/// The tables of instructions that name their own columns, each with the name of its page in
/// `docs/`.
pub(crate) const TABLES: [(&str, &str); 2] = [
    ("mma", include_str!("../ptx_templates/mma.table")),
    ("bulk", include_str!("../ptx_templates/bulk.table")),
];

/// Every instruction of these tables.
pub fn instructions() -> impl Iterator<Item = &'static Instruction> {
    crate::table::tables().instructions.iter().flat_map(|(_, all)| all)
}

pub(crate) fn read(text: &'static str, targets: &Targets) -> Result<Vec<Instruction>, TableError> {
    let mut all: Vec<Instruction> = Vec::new();
    for line in lines(text) {
        let (key, value) = line.text.split_once(' ').map_or((line.text, ""), |(k, v)| (k, v.trim()));
        if key == "family" {
            all.push(Instruction {
                name: value,
                manual: ("", ""),
                template: "",
                columns: Vec::new(),
                lines: Vec::new(),
                prints: Vec::new(),
                rows: Vec::new(),
            });
            continue;
        }
        let last = all.last_mut().ok_or_else(|| line.error("`family` first"))?;
        match key {
            "manual" => last.manual = value.split_once(' ').unwrap_or((value, "")),
            "ptx" => last.template = value,
            "columns" => last.columns = value.split_whitespace().collect(),
            "print" => {
                last.prints.push(value.split_once(' ').ok_or_else(|| line.error("a word and a text"))?)
            }
            _ => read_row(line, targets, last)?,
        }
    }
    Ok(all)
}

fn read_row(line: Line, targets: &Targets, to: &mut Instruction) -> Result<(), TableError> {
    let cells: Vec<&'static str> = line.text.split('|').map(str::trim).collect();
    let (words, rest) = cells.split_at_checked(to.columns.len()).ok_or_else(|| line.error("all columns"))?;
    let (operands, ptx, specs, note) = match *rest {
        [operands, ptx, specs] => (operands, ptx, specs, ""),
        [operands, ptx, specs, note] => (operands, ptx, specs, note),
        _ => return Err(line.error("the columns, operands, a PTX version and targets")),
    };
    let words = words.iter().map(|cell| spread(cell)).collect::<Option<_>>();
    let specs = specs.split_whitespace().map(|word| TargetSpec::parse(word, targets));
    to.rows.push(Choices {
        words: words.ok_or_else(|| line.error("words, or numbers as 8-256/8"))?,
        operands,
        ptx: ptx.parse().map_err(|_| line.error("a PTX version"))?,
        targets: specs.collect::<Option<_>>().ok_or_else(|| line.error("targets"))?,
        refused: note.strip_prefix("refused:").map(str::trim),
    });
    to.lines.push(cells);
    Ok(())
}

/// The words of a cell. `8-256/8` stands for 8, 16 and so on to 256.
fn spread(cell: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    for word in cell.split_whitespace() {
        match word.split_once('/') {
            None => words.push(word.to_owned()),
            Some((range, step)) => {
                let (first, last) = range.split_once('-')?;
                let step: usize = step.parse().ok().filter(|step| *step > 0)?;
                let numbers = first.parse::<u32>().ok()?..=last.parse().ok()?;
                words.extend(numbers.step_by(step).map(|n| n.to_string()));
            }
        }
    }
    (!words.is_empty()).then_some(words)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::tables;

    #[test]
    fn a_cell_spreads_out() {
        assert_eq!(spread("8 16-64/16 x").unwrap(), ["8", "16", "32", "48", "64", "x"]);
        for bad in ["", "8-x/2", "8/2", "8-16/0"] {
            assert_eq!(spread(bad), None, "{bad}");
        }
    }

    #[test]
    fn an_unknown_line_is_an_error_with_its_number() {
        const ROW: &str = "the columns, operands, a PTX version and targets";
        let cases = [
            ("columns a", 1, "`family` first"),
            ("family x\ncolumns a b\nu32", 3, "all columns"),
            ("family x\ncolumns a\nu32 | | 8.0", 3, ROW),
            ("family x\ncolumns a\n | | 8.0 | sm_90+", 3, "words, or numbers as 8-256/8"),
            ("family x\ncolumns a\nu32 | | 80 | sm_90+", 3, "a PTX version"),
            ("family x\ncolumns a\nu32 | | 8.0 | sm_90a+", 3, "targets"),
            ("family x\nprint k", 2, "a word and a text"),
        ];
        for (text, line, expected) in cases {
            assert_eq!(read(text, &tables().targets).err(), Some(TableError { line, expected }), "{text}");
        }
    }

    #[test]
    fn every_instruction_is_complete() {
        for instruction in instructions() {
            let name = instruction.name;
            assert!(instruction.template.starts_with(name), "{name}");
            assert!(instruction.manual.1.contains("-instructions-"), "{name}");
            assert!(!instruction.rows.is_empty() && !instruction.columns.is_empty(), "{name}");
        }
    }
}
