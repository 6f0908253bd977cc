//! The table of functions as a part of the page `docs/ptx-instructions.md`.

use super::table::{FAMILIES, FUNCTIONS, LISTS, Row, Size};
use std::fmt::Write as _;

/// The chapter about NVSHMEM's functions.
pub(crate) fn markdown() -> String {
    let mut out = String::from(
        "\n# NVSHMEM's functions, built in\n\n\
         The simulator runs calls of functions that are declared `.extern .func` with these names. The names\n\
         come from the tables in `sim/src/nvshmem`. Functions with `_warp` and `_block` forms begin with\n\
         `nvshmemx_` in these forms. All threads of the warp or CTA make such a call together, with the same\n\
         arguments, and none of them can have ended. The call begins when all have come, and all leave when\n\
         it is done. NVSHMEM 3.3 to 3.8 also begin and end these functions with a barrier of the group.\n\
         The section on collective functions describes those. Sizes of parameters are in bytes, as PTX\n\
         passes them. `v` is the size of the type, with integers widened to 4.\n",
    );
    out.push_str("\n| name | types |\n|---|---|\n");
    for (name, types) in LISTS {
        let _ = writeln!(out, "| {name} | {} |", types.join(" "));
    }
    for family in FAMILIES {
        let _ = write!(
            out,
            "\n## {}\n\n{}\n\n| function | forms | parameters | returns | {{T}} | since |\n|---|---|---|---|---|---|\n",
            family.title, family.meaning
        );
        for row in family.rows {
            line(&mut out, row);
        }
    }
    out
}

fn size(s: Size) -> &'static str {
    match s {
        Size::Int => "4",
        Size::Long => "8",
        Size::Value => "v",
    }
}

fn line(out: &mut String, row: &Row) {
    let prefix = if row.extension { "nvshmemx_" } else { "nvshmem_" };
    let op = if let [op] = row.ops { op } else { "{op}" };
    let name = row.name.replace("{op}", op);
    let forms = if row.scoped { "thread, warp, block" } else { "thread" };
    let params: Vec<String> = row.params.iter().map(|(n, s)| format!("{n}: {}", size(*s))).collect();
    let mut types = match (row.types, LISTS.iter().find(|(_, list)| *list == row.types)) {
        (_, Some((name, _))) => (*name).to_string(),
        (types, None) => types.join(" "),
    };
    if row.ops.len() > 1 {
        types = format!("{types}; {{op}} = {}", row.ops.join(" "));
    }
    let versions = FUNCTIONS.list.iter().filter(|f| std::ptr::eq(f.row, row)).map(|f| f.since);
    let (first, last) = (versions.clone().min().unwrap_or_default(), versions.max().unwrap_or_default());
    let mut since = format!("{}.{}", first.0, first.1);
    if last != first {
        let _ = write!(since, ", some {}.{}", last.0, last.1);
    }
    let returns = row.result.map_or("", size);
    let _ = writeln!(
        out,
        "| `{prefix}{name}` | {forms} | {} | {returns} | {types} | {since} |",
        params.join(", ")
    );
}
