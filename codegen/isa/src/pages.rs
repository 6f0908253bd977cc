//! Generates docs/mma.md and docs/bulk.md from the tables.

use crate::docs::{MANUAL, code, codes, table};
use crate::instruction::Instruction;
use crate::table::tables;

const MMA: &str = "\
# Matrix instructions: what is legal where

This page lists the forms of matrix instructions that the compiler accepts on each target. `mma`
multiplies tiles with `wgmma.mma_async` on sm_90a. On targets without it, warps load fragments of
the tiles by `ldmatrix` and multiply them with `mma.sync`. The kernel's text is the same. `f32`
operands are multiplied as `tf32`, and `i8` is called `s8` here. ptxas has `mma.sync` of fp8 for
every target, but before sm_120 it converts fp8 to f16 and multiplies that.

In a template, `{D}` stands for the sums and `{C}` for what the product is added to. `{A}` and `{B}`
stand for the factors: descriptors of tiles in shared memory, or registers. `{SCALE}` says whether
the warpgroup's product is added to `{D}` at all. `{S}` stands for an address in shared memory, and
`{N}` for a number of registers. `a-major` and `b-major` say whether an operand is contiguous along
K or along M or N. `k` is printed as 0 and `mn` as 1.
";

const BULK: &str = "\
# Bulk copies: what is legal where

This page lists the forms of bulk copies that the compiler accepts on each target. A bulk copy moves
a run of bytes between global memory and shared memory without registers. Addresses and sizes are
multiples of 16 bytes. The bulk forms that store to multicast addresses are on the page of
[in-switch instructions](multimem.md). In the language, bulk copies are `bulk` and `bulk_red`
([Tiles, pipelines and matrix products](language.md#tiles-pipelines-and-matrix-products)).

In a template, `{G}` stands for an address in global memory, `{S}` for one in shared memory, and
`{TO}` for one in the shared memory of a CTA of the cluster. `{N}` stands for the bytes, `{M}` for
the barrier that counts them, `{MASK}` for the CTAs that get the data, and `{POLICY}` for a cache
policy.
";

const HOW: &str = "\
A row of a table stands for every combination of its cells. `-` means none, and `8-256/8` means 8,
16 and so on to 256. The column PTX has the lowest `.version`, and a target's own lowest version can
be higher. Targets are written as on the page of [in-switch instructions](multimem.md).
`tests/isa_ptxas.rs` assembles the rows with ptxas, and shows that ptxas rejects what no row allows.
";

fn section(out: &mut String, instruction: &Instruction) {
    let Instruction { name, manual: (section, anchor), template, columns, lines, .. } = instruction;
    out.push_str(&format!(
        "## {name}\n\n```text\n{template}\n```\n\nThe manual describes it in\n[PTX ISA 9.3, {section}]({MANUAL}{anchor}).\n\n"
    ));
    let own = columns.len();
    let (refused, rows): (Vec<_>, Vec<_>) = lines.iter().partition(|cells| cells.len() > own + 3);
    let has_operands = rows.iter().any(|cells| !cells[own].is_empty());
    let kept: Vec<usize> = (0..own + 3).filter(|i| *i != own || has_operands).collect();
    let head: Vec<&str> = columns.iter().copied().chain(["operands", "PTX", "targets"]).collect();
    let head: Vec<&str> = kept.iter().map(|i| head[*i]).collect();
    let cell = |cells: &[&str], i: usize| match cells[i] {
        "" => String::new(),
        operands if i == own => code(operands.trim_start_matches(", ")),
        words => codes(words),
    };
    table(out, &head, rows.iter().map(|cells| kept.iter().map(|i| cell(cells, *i)).collect()));
    for cells in refused {
        let words: Vec<String> = cells[..own].iter().map(|cell| codes(cell)).collect();
        let why = cells[own + 3].trim_start_matches("refused:").trim();
        out.push_str(&format!(
            "ptxas accepts {}.\nThe compiler rejects it, because {why}.\n\n",
            words.join(", ")
        ));
    }
}

/// The page with that name, `mma` or `bulk`, or `None` for another name.
pub fn page(name: &str) -> Option<String> {
    let head = if name == "mma" { MMA } else { BULK };
    let (_, all) = tables().instructions.iter().find(|(page, _)| *page == name)?;
    let (title, about) = head.split_once("\n\n")?;
    let mut out = format!(
        "{title}\n\n<!-- Generated from ptx_templates/ by weft-isa; `WEFT_BLESS=1 cargo test -p weft-isa` renews it. -->\n\n{about}\n{HOW}\n"
    );
    all.iter().for_each(|instruction| section(&mut out, instruction));
    out.truncate(out.trim_end().len());
    out.push('\n');
    Some(out)
}
