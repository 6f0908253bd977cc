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
/// Fails if a compiler or git cannot be run, or if a file cannot be written.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::outcome;
    use std::os::unix::fs::PermissionsExt;

    /// A compiler that is a shell script, in a folder that it runs in.
    fn side(folder: &Path, script: &str) -> Side {
        fs::create_dir_all(folder).unwrap();
        let binary = folder.join("weft");
        fs::write(&binary, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&binary, fs::Permissions::from_mode(0o755)).unwrap();
        Side { binary, corpus: folder.to_owned(), lines: true }
    }

    #[test]
    fn every_kind_of_difference_is_reported() {
        let folder = tempfile::tempdir().unwrap();
        // Of its arguments, `compile CASE ...`, the second decides.
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
            ("added", Kind::ExistsOnlyAfter),
            ("better", Kind::CompilesOnlyAfter),
            ("gone", Kind::ExistsOnlyBefore),
            ("message", Kind::Message),
            ("other", Kind::Output),
            ("worse", Kind::CompilesOnlyBefore),
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

        // What is kept reads back.
        let text_of = |_: &Case| Some("print".to_owned());
        let kept = outcome::read(&outcome::print(&old, &text_of));
        assert_eq!(kept.len(), old.len());
        assert!(old.iter().all(|(case, digest)| kept[case] == (digest.clone(), "print".to_owned())));
    }
}
