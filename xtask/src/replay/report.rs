//! The differences between two compilers, and their presentation.

use super::outcome::{Digest, Outcome};
use super::{Case, CompilerUnderTest};
use anyhow::{Context, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Command;

/// The way in which the results of a case differ.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Difference {
    Output,
    Message,
    CompilesOnlyBefore,
    CompilesOnlyAfter,
    ExistsOnlyBefore,
    ExistsOnlyAfter,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Difference::Output => "output differs",
            Difference::Message => "error message differs",
            Difference::CompilesOnlyBefore => "compiles only before",
            Difference::CompilesOnlyAfter => "compiles only after",
            Difference::ExistsOnlyBefore => "exists only before",
            Difference::ExistsOnlyAfter => "exists only after",
        })
    }
}

/// The result of a comparison.
pub struct Summary {
    /// The number of cases of either side.
    pub cases: usize,
    /// The number of cases that compile with both compilers.
    pub compiled: usize,
    /// The number of cases that neither compiler compiles.
    pub rejected: usize,
    pub differences: Vec<(Case, Difference)>,
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
            (Some(true), Some(true)) => Difference::Output,
            (Some(false), Some(false)) => Difference::Message,
            (Some(true), Some(false)) => Difference::CompilesOnlyBefore,
            (Some(false), Some(true)) => Difference::CompilesOnlyAfter,
            (_, None) => Difference::ExistsOnlyBefore,
            (None, _) => Difference::ExistsOnlyAfter,
        };
        summary.compiled += usize::from(kind == Difference::Output);
        summary.rejected += usize::from(kind == Difference::Message);
        if !same {
            summary.differences.push((case.clone(), kind));
        }
    }
    summary
}

/// Lists the differences and shows the first ones. The texts of all of them are written to the folder `differences`.
///
/// # Errors
/// Fails if a compiler or git cannot be run, or if a file cannot be written.
pub fn show(
    out: &mut impl Write,
    differences: &[(Case, Difference)],
    sides: [&CompilerUnderTest; 2],
    folder: &Path,
    max: usize,
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
        if matches!(kind, Difference::ExistsOnlyBefore | Difference::ExistsOnlyAfter) {
            continue;
        }
        let files = ["before", "after"].map(|side| format!("{number}.{side}"));
        for (file, side) in files.iter().zip(sides) {
            fs::write(texts.join(file), Outcome::of(side, case)?.text)?;
        }
        if shown.len() < max {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::outcome;
    use std::os::unix::fs::PermissionsExt;

    /// A compiler that is a shell script, with a folder in which it runs.
    fn side(folder: &Path, script: &str) -> CompilerUnderTest {
        fs::create_dir_all(folder).unwrap();
        let binary = folder.join("weft");
        fs::write(&binary, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&binary, fs::Permissions::from_mode(0o755)).unwrap();
        CompilerUnderTest { binary, corpus: folder.to_owned(), lines: true }
    }

    #[test]
    fn every_kind_of_difference_is_reported() {
        let folder = tempfile::tempdir().unwrap();
        // The second of its arguments, `compile CASE ...`, selects the output.
        let before = side(
            &folder.path().join("a"),
            "case $2 in worse|same) echo text;; other) echo old;; message) echo old >&2; exit 1;; *) exit 1;; esac",
        );
        let after = side(
            &folder.path().join("b"),
            "case $2 in better|same) echo text;; other) echo new;; message) echo new >&2; exit 1;; *) exit 1;; esac",
        );
        let cases = |names: &[&str]| names.iter().map(|name| vec![(*name).to_owned()]).collect();
        let names = ["same", "other", "message", "worse", "better", "never"];
        let old = outcome::of_all(&before, &cases(&[&names[..], &["gone"]].concat())).unwrap();
        let new = outcome::of_all(&after, &cases(&[&names[..], &["added"]].concat())).unwrap();
        let summary = compare(&old, &new);
        assert_eq!((summary.cases, summary.compiled, summary.rejected), (8, 2, 2));
        let found: Vec<_> = summary.differences.iter().map(|(case, kind)| (&*case[0], *kind)).collect();
        let wanted = [
            ("added", Difference::ExistsOnlyAfter),
            ("better", Difference::CompilesOnlyAfter),
            ("gone", Difference::ExistsOnlyBefore),
            ("message", Difference::Message),
            ("other", Difference::Output),
            ("worse", Difference::CompilesOnlyBefore),
        ];
        assert_eq!(found, wanted);

        let mut out = Vec::new();
        show(&mut out, &summary.differences, [&before, &after], folder.path(), 9).unwrap();
        let out = String::from_utf8(out).unwrap();
        for line in ["output differs: other", "compiles only before: worse", "-old", "+new", "-text", "+text"]
        {
            assert!(
                out.lines().any(|l| l.trim_start_matches(|c: char| " 0123456789".contains(c)) == line),
                "{out}"
            );
        }

        // The stored results read back.
        let text_of = |_: &Case| Some("print".to_owned());
        let kept = outcome::read(&outcome::print(&old, &text_of));
        assert_eq!(kept.len(), old.len());
        assert!(old.iter().all(|(case, digest)| kept[case] == (digest.clone(), "print".to_owned())));
    }
}
