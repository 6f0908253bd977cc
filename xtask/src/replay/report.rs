//! What differs, and how it is shown.

use super::outcome::{Digest, Outcome};
use super::{Case, Side};
use anyhow::{Context, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Command;

/// How the results of a case differ.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Output,
    Message,
    CompilesOnlyBefore,
    CompilesOnlyAfter,
    ExistsOnlyBefore,
    ExistsOnlyAfter,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Output => "output differs",
            Kind::Message => "error message differs",
            Kind::CompilesOnlyBefore => "compiles only before",
            Kind::CompilesOnlyAfter => "compiles only after",
            Kind::ExistsOnlyBefore => "exists only before",
            Kind::ExistsOnlyAfter => "exists only after",
        })
    }
}

/// What came out of a comparison.
pub struct Summary {
    /// Cases of either side.
    pub cases: usize,
    /// Cases that compile with both compilers.
    pub compiled: usize,
    /// Cases that neither compiler compiles.
    pub rejected: usize,
    pub differences: Vec<(Case, Kind)>,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Summary { cases, compiled, rejected, differences } = self;
        write!(
            f,
            "{cases} cases: {compiled} compile on both sides, {rejected} on neither side; {} differ",
            differences.len()
        )
    }
}

/// Compares the results of both sides.
pub fn compare(before: &BTreeMap<Case, Digest>, after: &BTreeMap<Case, Digest>) -> Summary {
    let cases: BTreeSet<_> = before.keys().chain(after.keys()).collect();
    let mut summary = Summary { cases: cases.len(), compiled: 0, rejected: 0, differences: Vec::new() };
    for case in cases {
        let (old, new) = (before.get(case), after.get(case));
        let same = old == new;
        let kind = match (old.map(|d| d.compiles), new.map(|d| d.compiles)) {
            (Some(true), Some(true)) => Kind::Output,
            (Some(false), Some(false)) => Kind::Message,
            (Some(true), Some(false)) => Kind::CompilesOnlyBefore,
            (Some(false), Some(true)) => Kind::CompilesOnlyAfter,
            (_, None) => Kind::ExistsOnlyBefore,
            (None, _) => Kind::ExistsOnlyAfter,
        };
        summary.compiled += usize::from(kind == Kind::Output);
        summary.rejected += usize::from(kind == Kind::Message);
        if !same {
            summary.differences.push((case.clone(), kind));
        }
    }
    summary
}

/// Lists the differences and shows the first ones. The texts of all of them are written to the folder `differences`.
///
/// # Errors
/// A compiler or git cannot be run, or a file cannot be written.
pub fn show(
    out: &mut impl Write,
    differences: &[(Case, Kind)],
    sides: [&Side; 2],
    folder: &Path,
    most: usize,
) -> Result<()> {
    let texts = folder.join("differences");
    if texts.exists() {
        fs::remove_dir_all(&texts)?;
    }
    if differences.is_empty() {
        return Ok(());
    }
    fs::create_dir_all(&texts)?;
    let mut shown = Vec::new();
    for (number, (case, kind)) in differences.iter().enumerate() {
        writeln!(out, "{number:>5}  {kind}: {}", case.join(" "))?;
        if matches!(kind, Kind::ExistsOnlyBefore | Kind::ExistsOnlyAfter) {
            continue;
        }
        let files = ["before", "after"].map(|side| format!("{number}.{side}"));
        for (file, side) in files.iter().zip(sides) {
            fs::write(texts.join(file), Outcome::of(side, case)?.text)?;
        }
        if shown.len() < most {
            shown.push((number, files));
        }
    }
    for (number, [before, after]) in shown {
        writeln!(out, "\n== {number}: {}", differences[number].0.join(" "))?;
        let mut diff = Command::new("git");
        diff.args(["diff", "--no-index", "--no-color"]).args([before, after]).current_dir(&texts);
        out.write_all(&diff.output().context("cannot run git")?.stdout)?;
    }
    writeln!(out, "\nThe outputs are in {} as NUMBER.before and NUMBER.after.", texts.display())?;
    Ok(())
}
