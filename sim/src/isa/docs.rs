//! The instruction tables as a page of documentation.

use super::FAMILIES;
use super::special::SPECIAL;
use std::fmt::Write as _;

/// The page `docs/ptx-instructions.md`.
pub(crate) fn markdown() -> String {
    let mut out = String::from(
        "# PTX that the simulator runs\n\n\
         This page lists the instructions that the simulator runs. Anything else is an error that names the\n\
         PTX line. The page is generated from the tables in `sim/src/isa`, so do not edit it:\n\
         `WEFT_BLESS=1 cargo test -p weft-sim` rewrites it. Section numbers are those of the PTX ISA 9.0\n\
         manual. A modifier in `{}` is optional.\n",
    );
    for f in FAMILIES {
        let _ = write!(
            out,
            "\n## {} ({})\n\n| instruction | operands | where |\n|---|---|---|\n",
            f.title, f.section
        );
        for r in f.rows {
            let classes: Vec<String> =
                r.classes.iter().map(|(name, list)| format!("`.{name}` = {}", list.join(" "))).collect();
            let operands = r.operands.replace('|', "\\|");
            let _ = writeln!(out, "| `{}` | {operands} | {} |", r.syntax, classes.join("; "));
        }
    }
    out.push_str(super::tensor::NOTES);
    out.push_str("\n## Special registers (10)\n\n| register | value |\n|---|---|\n");
    for s in SPECIAL {
        let _ = writeln!(out, "| `{}` | {} |", s.name, s.meaning);
    }
    out
}
