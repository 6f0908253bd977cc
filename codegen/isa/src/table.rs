//! Reads the tables of `ptx_templates/`, once per process.
//!
//! The tables are small and compiled into the program. Reading them takes some tens of microseconds
//! (`tests/tables.rs` measures it).

use std::sync::LazyLock;

use crate::form::{COLUMNS, Column};
use crate::instruction::{self, Instruction};
use crate::target::{PtxVersion, TargetSpec, Targets};
use crate::words::{ElemType, Instr, RedOp, Sem};

/// A bit for each word of a column ([`Column::words`]).
pub(crate) type Mask = u32;

/// Rows that share an instruction and a template.
pub struct Family {
    /// The instruction that the rows belong to.
    pub instr: Instr,
    /// Section and anchor in the PTX ISA manual.
    pub manual: (&'static str, &'static str),
    /// The template of the PTX text, for example `multimem.st{.sem}{.scope}.global{.vec}{.type} [{a}], {b};`.
    pub template: &'static str,
    /// The semantics that the text leaves out.
    pub default: Option<Sem>,
    /// Whether every form that no row allows is also rejected by ptxas.
    pub covers_all: bool,
    /// A column whose words ptxas ignores for this instruction, although no row has any.
    pub ignores: Option<Column>,
    /// The rows as written: op, type, vec, acc, sem, scope, extra, lowest PTX version, targets, and
    /// the reason why the row is rejected.
    pub lines: Vec<[&'static str; 10]>,
    pub(crate) rows: Vec<Row>,
}

/// A set of forms, which have one word from each cell.
pub(crate) struct Row {
    pub masks: [Mask; COLUMNS],
    /// A modifier that all forms of the row have.
    pub extra: &'static str,
    pub ptx: PtxVersion,
    pub targets: Vec<TargetSpec>,
    /// The reason why these forms are illegal although ptxas accepts them.
    pub refused: Option<&'static str>,
}

/// A type that carries the data of another type, as `carriers.table` lists them.
pub struct Carrier {
    /// The instructions to which this applies.
    pub instrs: Vec<Instr>,
    /// The reductions to which this applies. `None` stands for an instruction without a reduction.
    pub ops: Vec<Option<RedOp>>,
    /// The types whose data are carried.
    pub types: Vec<ElemType>,
    /// The memory semantics to which this applies.
    pub sems: Vec<Sem>,
    /// The types that carry the data, best first.
    pub by: Vec<ElemType>,
    /// The reason why the meaning is the same.
    pub why: &'static str,
}

pub(crate) struct Tables {
    /// The instructions whose tables name their own columns, by the page of the manual that shows
    /// them.
    pub instructions: Vec<(&'static str, Vec<Instruction>)>,
    pub targets: Targets,
    pub families: Vec<Family>,
    pub carriers: Vec<Carrier>,
}

/// The tables, which are read at first use.
pub(crate) fn tables() -> &'static Tables {
    #[expect(clippy::expect_used, reason = "the tables are compiled in, and a test reads them")]
    static TABLES: LazyLock<Tables> =
        LazyLock::new(|| Tables::read().expect("ptx_templates/ is well formed"));
    &TABLES
}

/// A line of a table that cannot be read.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("line {line}: expected {expected}")]
pub(crate) struct TableError {
    pub line: usize,
    pub expected: &'static str,
}

/// A line without its comment.
#[derive(Clone, Copy)]
pub(crate) struct Line {
    pub number: usize,
    pub text: &'static str,
}

/// The lines that contain more than a comment.
pub(crate) fn lines(text: &'static str) -> impl Iterator<Item = Line> {
    let strip = |(i, line): (usize, &'static str)| Line {
        number: i + 1,
        text: line.split_once('#').map_or(line, |(before, _)| before).trim(),
    };
    text.lines().enumerate().map(strip).filter(|line| !line.text.is_empty())
}

impl Line {
    pub(crate) fn error(self, expected: &'static str) -> TableError {
        TableError { line: self.number, expected }
    }

    /// The cells between `|`.
    pub(crate) fn cells<const N: usize>(self) -> Result<[&'static str; N], TableError> {
        let cells: Vec<&'static str> = self.text.split('|').map(str::trim).collect();
        cells.try_into().map_err(|_| self.error("the same number of cells as in every row"))
    }
}

impl Tables {
    pub(crate) fn read() -> Result<Tables, TableError> {
        let targets = Targets::parse(include_str!("../ptx_templates/targets.table"))?;
        let mut families = Vec::new();
        for text in
            [include_str!("../ptx_templates/multimem.table"), include_str!("../ptx_templates/global.table")]
        {
            read_families(text, &targets, &mut families)?;
        }
        let carriers = lines(include_str!("../ptx_templates/carriers.table"))
            .map(read_carrier)
            .collect::<Result<_, _>>()?;
        let instructions = instruction::TABLES
            .into_iter()
            .map(|(page, text)| Ok((page, instruction::read(text, &targets)?)))
            .collect::<Result<_, _>>()?;
        Ok(Tables { instructions, targets, families, carriers })
    }

    pub(crate) fn family(&self, instr: Instr) -> Option<&Family> {
        self.families.iter().find(|family| family.instr == instr)
    }
}

fn read_families(text: &'static str, targets: &Targets, out: &mut Vec<Family>) -> Result<(), TableError> {
    for line in lines(text) {
        let (key, value) = line.text.split_once(' ').map_or((line.text, ""), |(k, v)| (k, v.trim()));
        if key == "family" {
            let instr = Instr::parse(value).ok_or_else(|| line.error("the name of an instruction"))?;
            out.push(Family {
                instr,
                manual: ("", ""),
                template: "",
                default: None,
                covers_all: false,
                ignores: None,
                lines: Vec::new(),
                rows: Vec::new(),
            });
            continue;
        }
        let family = out.last_mut().ok_or_else(|| line.error("`family` first"))?;
        match key {
            "manual" => family.manual = value.split_once(' ').unwrap_or((value, "")),
            "ptx" => family.template = value,
            "covers" => family.covers_all = value == "all",
            "ignores" if value == "acc" => family.ignores = Some(Column::Acc),
            "default" => {
                family.default = Some(Sem::parse(value).ok_or_else(|| line.error("semantics"))?);
            }
            _ => read_row(line, targets, family)?,
        }
    }
    Ok(())
}

fn read_row(line: Line, targets: &Targets, family: &mut Family) -> Result<(), TableError> {
    let cells: [&'static str; 10] = match line.text.matches('|').count() {
        8 => pad(line.cells::<9>()?),
        _ => line.cells()?,
    };
    let mut masks = [0; COLUMNS];
    for (mask, (column, cell)) in masks.iter_mut().zip(Column::ALL.iter().zip(cells)) {
        *mask = column.mask(cell).ok_or_else(|| line.error("words of the column"))?;
    }
    let [.., extra, ptx, specs, note] = cells;
    let ptx = ptx.parse().map_err(|_| line.error("a PTX version"))?;
    let specs = specs.split_whitespace().map(|word| TargetSpec::parse(word, targets));
    let specs: Vec<TargetSpec> = specs.collect::<Option<_>>().ok_or_else(|| line.error("targets"))?;
    family.lines.push(cells);
    // Weak accesses have no scope, and other accesses need one. A line that covers both makes two
    // rows.
    let (sem, scope) = (Column::Sem as usize, Column::Scope as usize);
    let weak: Mask = 1 << Sem::Weak as usize;
    for (sems, scopes) in [(masks[sem] & weak, 1), (masks[sem] & !weak, masks[scope] & !1)] {
        if sems != 0 && scopes != 0 {
            let mut masks = masks;
            (masks[sem], masks[scope]) = (sems, scopes);
            let extra = if extra == "-" { "" } else { extra };
            let refused = note.strip_prefix("refused:").map(str::trim);
            family.rows.push(Row { masks, extra, ptx, targets: specs.clone(), refused });
        }
    }
    Ok(())
}

/// The cells with an empty cell after them.
fn pad(cells: [&'static str; 9]) -> [&'static str; 10] {
    std::array::from_fn(|i| cells.get(i).copied().unwrap_or_default())
}

fn read_carrier(line: Line) -> Result<Carrier, TableError> {
    /// Parses each word of a cell.
    fn each<T>(cell: &str, parse: impl Fn(&str) -> Option<T>) -> Option<Vec<T>> {
        cell.split_whitespace().map(parse).collect()
    }
    let [instrs, ops, types, sems, by, why] = line.cells()?;
    let carrier = || {
        Some(Carrier {
            instrs: each(instrs, Instr::parse)?,
            ops: each(ops, |word| if word == "-" { Some(None) } else { RedOp::parse(word).map(Some) })?,
            types: each(types, ElemType::parse)?,
            sems: if sems == "any" { Sem::ALL.to_vec() } else { each(sems, Sem::parse)? },
            by: each(by, ElemType::parse)?,
            why,
        })
    };
    carrier().ok_or_else(|| line.error("words of the columns"))
}

/// Every family, in the order of the tables.
pub fn families() -> &'static [Family] {
    &tables().families
}

/// Every line of `carriers.table`.
pub fn carriers() -> &'static [Carrier] {
    &tables().carriers
}

#[cfg(test)]
mod tests {
    use super::*;

    fn families_of(text: &'static str) -> Result<Vec<Family>, TableError> {
        let mut families = Vec::new();
        read_families(text, &tables().targets, &mut families)?;
        Ok(families)
    }

    #[test]
    fn the_tables_are_complete() {
        assert!(Tables::read().is_ok());
        for instr in Instr::ALL {
            assert_eq!(families().iter().filter(|family| family.instr == *instr).count(), 1, "{instr}");
        }
        for family in families() {
            assert!(family.template.starts_with(family.instr.name()), "{}", family.instr);
            assert!(
                family.manual.1.contains("-instructions-") && !family.rows.is_empty(),
                "{}",
                family.instr
            );
        }
    }

    #[test]
    fn an_unknown_line_is_an_error_with_its_number() {
        const CELLS: &str = "the same number of cells as in every row";
        let cases = [
            ("family nop", 1, "the name of an instruction"),
            ("covers all", 1, "`family` first"),
            ("family ld\n\n# x\nbogus", 4, CELLS),
            ("family ld\nadd | u32 | -", 2, CELLS),
            ("family ld\nadd | u33 | - | - | weak | any | - | 8.1 | sm_90+", 2, "words of the column"),
            ("family ld\nadd | u32 | - | - | weak | any | - | 81 | sm_90+", 2, "a PTX version"),
            ("family ld\nadd | u32 | - | - | weak | any | - | 8.1 | sm_90a+", 2, "targets"),
            ("family ld\ndefault sc", 2, "semantics"),
        ];
        for (text, line, expected) in cases {
            assert_eq!(families_of(text).err(), Some(TableError { line, expected }), "{text}");
        }
    }

    #[test]
    fn a_row_of_weak_and_strong_semantics_is_two() {
        let families =
            families_of("family ld\n- | b32 | - | - | weak acquire | sys | - | 7.8 | sm_90+").unwrap();
        let rows: Vec<_> = families[0].rows.iter().map(|row| (row.masks[4], row.masks[5])).collect();
        assert_eq!(rows, [(1, 1), (1 << Sem::Acquire as usize, 1 << 4)]);
    }

    /// Checks that reading the tables takes a negligible part of the 50 ms that a cold process has
    /// to compile a kernel.
    #[test]
    fn reading_takes_less_than_a_millisecond() {
        let time = || {
            let start = std::time::Instant::now();
            assert!(Tables::read().is_ok());
            start.elapsed()
        };
        let best = (0..20).map(|_| time()).min().unwrap();
        println!("tables read in {best:?}");
        assert!(best.as_micros() < 1000, "{best:?}");
    }
}
