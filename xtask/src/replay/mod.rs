//! `cargo xtask replay REV`, which compares the output of two compilers for the same kernels.

mod compiler;
mod corpus;
mod outcome;
mod report;

use anyhow::{Result, bail};
use clap::Args;
use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// A call of `weft compile`: its arguments, beginning with the kernel file.
type Case = Vec<String>;

#[derive(Args)]
pub struct Replay {
    /// The revision to compare with: anything that `git rev-parse` understands.
    rev: String,
    /// What to compare: a stage that `weft compile --emit` can write.
    #[arg(long, default_value = "ptx")]
    emit: String,
    /// Compare only cases whose command line contains this text.
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Give each compiler the texts of its own revision, and leave out line numbers and messages.
    /// Changes of only the formatting and the comments of kernels then make no difference.
    #[arg(long)]
    formatting: bool,
    /// The number of differing cases that are shown as a unified diff.
    #[arg(long, default_value_t = 3, value_name = "COUNT")]
    show: usize,
}

/// A compiler and the folder in which it runs, which contains the corpus.
struct CompilerUnderTest {
    binary: PathBuf,
    corpus: PathBuf,
    /// Whether line numbers and messages are compared.
    lines: bool,
}

impl CompilerUnderTest {
    /// The cases of this side's corpus that were requested.
    fn cases(&self, replay: &Replay) -> Result<BTreeSet<Case>> {
        let mut cases = corpus::cases(&self.corpus)?;
        cases.iter_mut().for_each(|case| case.extend(["--emit".to_owned(), replay.emit.clone()]));
        cases.retain(|case| replay.only.as_ref().is_none_or(|text| case.join(" ").contains(text)));
        Ok(cases.into_iter().collect())
    }
}

impl Replay {
    /// Compares both sides and prints the differences.
    ///
    /// # Errors
    /// Fails if a compiler cannot be built or run, or if no case compiles, so that nothing was
    /// compared.
    pub fn run(&self, root: &Path) -> Result<ExitCode> {
        let folder = root.join("target/replay");
        let old = compiler::Revision::build(root, &folder, &self.rev)?;
        let lines = !self.formatting;
        let before = CompilerUnderTest { binary: old.binary.clone(), corpus: folder.join("before"), lines };
        let after =
            CompilerUnderTest { binary: compiler::working_tree(root)?, corpus: folder.join("after"), lines };
        corpus::write(&before.corpus, if self.formatting { &old.tree } else { root }, &old.tree)?;
        corpus::write(&after.corpus, root, root)?;

        let (old_cases, new_cases) = (before.cases(self)?, after.cases(self)?);
        let old_results =
            if lines { old.results(&before, &old_cases)? } else { outcome::of_all(&before, &old_cases)? };
        let new_results = outcome::of_all(&after, &new_cases)?;
        let summary = report::compare(&old_results, &new_results);
        let mut out = std::io::stdout().lock();
        writeln!(out, "before: {} ({})", self.rev, &old.commit[..12.min(old.commit.len())])?;
        writeln!(out, "{summary}")?;
        if summary.compiled == 0 {
            bail!("no case compiles with both compilers: nothing was compared");
        }
        report::show(&mut out, &summary.differences, [&before, &after], &folder, self.show)?;
        Ok(ExitCode::from(u8::from(!summary.differences.is_empty())))
    }
}
