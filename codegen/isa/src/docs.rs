//! Generates docs/multimem.md from the tables.

use crate::form::{Column, Form};
use crate::table::{Family, carriers, families};
use crate::target::{PtxVersion, Target};
use crate::words::Instr;

pub(crate) const MANUAL: &str = "https://docs.nvidia.com/cuda/parallel-thread-execution/index.html#";

const HEAD: &str = "\
# In-switch instructions: what is legal where

<!-- Generated from ptx_templates/ by weft-isa; `WEFT_BLESS=1 cargo test -p weft-isa` renews it. -->

This page lists the forms of the in-switch instructions that the compiler accepts, and of the
unicast accesses that replace them. A row of a table stands for every combination of its cells. `-`
means none, and `any` means every scope. A `weak` access has no scope, and every other access needs
one. The column PTX has the lowest `.version`. A target's own lowest version, in the last table, can
be higher.

Targets are written in three ways. `sm_90+` is that number or a higher one with any suffix.
`sm_100f+` is a target with suffix `a` or `f`, of the same family, with that number or a higher one.
A bare name is that target alone.

In a template, `{d}` stands for results, `{b}` for data, and `{a}` for the global address (a
multimem address if the instruction is `multimem`). `{s}` stands for a shared address, and `{n}` for
bytes. The registers of a vector are in braces. An address is a multiple of the bytes that one
access moves. `acc` is the precision of the sum. Without `acc`, it is the precision of the element.

`tests/isa_ptxas.rs` assembles every row with ptxas, for every semantics and scope, and shows that
ptxas rejects what no row allows.

";

/// Writes a Markdown table, or nothing if there are no rows.
pub(crate) fn table(out: &mut String, head: &[&str], rows: impl Iterator<Item = Vec<String>>) {
    let mut line = |cells: &[String]| {
        out.push_str("| ");
        out.push_str(&cells.join(" | "));
        out.push_str(" |\n");
    };
    line(&head.iter().map(ToString::to_string).collect::<Vec<_>>());
    line(&vec!["---".to_owned(); head.len()]);
    rows.for_each(|row| line(&row));
    out.push('\n');
}

pub(crate) fn code(cell: &str) -> String {
    if cell == "-" { cell.into() } else { format!("`{cell}`") }
}

/// The words of a cell, each formatted as code.
pub(crate) fn codes(cell: &str) -> String {
    cell.split_whitespace().map(code).collect::<Vec<_>>().join(" ")
}

fn family(out: &mut String, family: &Family) {
    let (section, anchor) = family.manual;
    let template = family.template;
    out.push_str(&format!(
        "### {}\n\n```text\n{template}\n```\n\nThe manual describes it in\n[PTX ISA 9.3, {section}]({MANUAL}{anchor}).\n",
        family.instr
    ));
    if !family.covers_all {
        out.push_str("The table has only the forms that the compiler uses.\n");
    }
    out.push('\n');
    let (refused, rows): (Vec<&[&str; 10]>, Vec<_>) =
        family.lines.iter().partition(|cells| !cells[9].is_empty());
    let columns = ["op", "type", "vec", "acc", "semantics", "scope", "extra", "PTX", "targets"];
    // A column that is empty in all rows is left out.
    let kept: Vec<usize> = (0..9).filter(|i| rows.iter().any(|cells| cells[*i] != "-")).collect();
    let head: Vec<&str> = kept.iter().map(|i| columns[*i]).collect();
    table(out, &head, rows.iter().map(|cells| kept.iter().map(|i| codes(cells[*i])).collect()));
    if family.ignores == Some(Column::Acc) {
        out.push_str("ptxas accepts and ignores `.acc` here. The compiler rejects it.\n\n");
    }
    for cells in refused {
        let [op, ty, vec, ..] = cells.map(codes);
        let why = cells[9].trim_start_matches("refused:").trim();
        out.push_str(&format!("The compiler rejects {op} of {ty} with {vec}:\n{why}.\n\n"));
    }
}

/// The page docs/multimem.md: every family, the carrier types and the targets.
pub fn markdown() -> String {
    let mut out = HEAD.to_owned();
    let (multimem, global): (Vec<_>, Vec<_>) = families().iter().partition(|f| f.instr.is_multimem());
    out.push_str("## In the switch\n\n");
    multimem.iter().for_each(|f| family(&mut out, f));
    out.push_str("## Unicast accesses that LLVM cannot print\n\n");
    out.push_str("LLVM 22 has scalar atomic loads and stores, compare-and-swap and fences with semantics and scope. It\n\
         has no vectors of them, and it drops semantics and scope of every other read-modify-write operation.\n\
         This section has these accesses.\n\n");
    global.iter().for_each(|f| family(&mut out, f));

    out.push_str("## Types that carry others\n\n");
    out.push_str("If an instruction has no form for a type, another type's form can do the same.\n\n");
    let carrier_rows = carriers().iter().map(|carrier| {
        let names = |names: Vec<&str>| names.into_iter().map(code).collect::<Vec<_>>().join(" ");
        let sems = if carrier.sems.len() == crate::Sem::ALL.len() {
            "any".to_owned()
        } else {
            names(carrier.sems.iter().map(|x| x.name()).collect())
        };
        vec![
            names(carrier.instrs.iter().map(|x| x.name()).collect()),
            names(carrier.ops.iter().map(|x| x.map_or("-", |x| x.name())).collect()),
            names(carrier.types.iter().map(|x| x.name()).collect()),
            sems,
            names(carrier.by.iter().map(|x| x.name()).collect()),
            carrier.why.into(),
        ]
    });
    table(&mut out, &["instruction", "op", "type", "semantics", "carried by", "reason"], carrier_rows);

    out.push_str(&format!("## Targets\n\nLLVM 22 prints PTX up to {}. ", PtxVersion::llvm_highest()));
    out.push_str(
        "If a form needs more, or LLVM does not know a target,\n\
         the compiler replaces the `.version` and `.target` lines after printing.\n\n",
    );
    let fp8 = Form::new(Instr::St, crate::ElemType::E4M3x4);
    let target_rows = Target::all().map(|t| {
        let fp8 = if crate::check(&fp8, t).is_ok() { "yes" } else { "no" };
        vec![code(t.name()), t.family().to_string(), t.min_ptx().to_string(), code(t.llvm_cpu()), fp8.into()]
    });
    table(&mut out, &["target", "family", "lowest PTX", "LLVM's CPU", "fp8 in the switch"], target_rows);
    out.truncate(out.trim_end().len());
    out.push('\n');
    out
}
