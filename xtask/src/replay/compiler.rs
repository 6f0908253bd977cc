//! The two compilers that are compared.

use super::{Case, CompilerUnderTest, outcome};
use anyhow::{Context, Result, bail, ensure};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The compiler of a revision.
pub struct Revision {
    /// The full commit hash of the revision.
    pub commit: String,
    /// A git worktree of the revision.
    pub tree: PathBuf,
    /// The path of its `weft`.
    pub binary: PathBuf,
    /// The folder in which its binary and its results are kept.
    cache: PathBuf,
}

impl Revision {
    /// Checks a revision out, and builds its `weft` unless that was done before.
    ///
    /// # Errors
    /// Fails if the revision does not exist or does not build.
    pub fn build(root: &Path, folder: &Path, rev: &str) -> Result<Revision> {
        let commit = git(root, &["rev-parse", "--verify", &format!("{rev}^{{commit}}")])?.trim().to_owned();
        let tree = folder.join("tree");
        if tree.join(".git").exists() {
            git(&tree, &["checkout", "--quiet", "--force", "--detach", &commit])?;
        } else {
            // The folder of an earlier worktree may have been deleted without git's knowledge.
            git(root, &["worktree", "prune"])?;
            git(root, &["worktree", "add", "--quiet", "--detach", &tree.display().to_string(), &commit])?;
        }
        let cache = folder.join("revisions").join(&commit);
        let binary = cache.join("weft");
        if !binary.exists() {
            let built = build(&tree, Some(&folder.join("target")))?;
            fs::create_dir_all(&cache)?;
            // The file gets its final name last, so that an interrupted copy is not mistaken for a
            // binary.
            let copy = cache.join("weft.new");
            fs::copy(&built, &copy).with_context(|| format!("cannot copy {}", built.display()))?;
            fs::rename(copy, &binary)?;
        }
        Ok(Revision { commit, tree, binary, cache })
    }

    /// The results for all cases. A result is taken from an earlier call if the case had the same
    /// text.
    ///
    /// # Errors
    /// Fails if the compiler cannot be run.
    pub fn results(
        &self,
        side: &CompilerUnderTest,
        cases: &BTreeSet<Case>,
    ) -> Result<BTreeMap<Case, outcome::Digest>> {
        let texts = super::corpus::fingerprints(&side.corpus)?;
        let text_of = |case: &Case| case.first().and_then(|file| texts.get(file)).cloned();
        let file = self.cache.join("results");
        let kept = fs::read_to_string(&file).map(|text| outcome::read(&text)).unwrap_or_default();
        let current = kept.into_iter().filter(|(case, (_, text))| text_of(case).as_ref() == Some(text));
        let mut known: BTreeMap<_, _> = current.map(|(case, (digest, _))| (case, digest)).collect();
        let missing: BTreeSet<_> = cases.iter().filter(|case| !known.contains_key(*case)).cloned().collect();
        known.extend(outcome::of_all(side, &missing)?);
        fs::write(&file, outcome::print(&known, &text_of))?;
        known.retain(|case, _| cases.contains(case));
        Ok(known)
    }
}

/// Builds the `weft` of the working tree in the folder that `cargo build` uses, and returns its
/// path.
///
/// # Errors
/// Fails if the working tree does not build.
pub fn working_tree(root: &Path) -> Result<PathBuf> {
    build(root, None)
}

/// Builds `weft` in a tree, and returns its path.
fn build(tree: &Path, target: Option<&Path>) -> Result<PathBuf> {
    let mut cargo = Command::new("cargo");
    cargo.args(["build", "--bin", "weft", "--message-format=json-render-diagnostics"]).current_dir(tree);
    // Each tree pins its own toolchain.
    cargo.env_remove("RUSTUP_TOOLCHAIN").stderr(std::process::Stdio::inherit());
    if let Some(target) = target {
        cargo.arg("--target-dir").arg(target);
    }
    let out = cargo.output().context("cannot run cargo")?;
    ensure!(out.status.success(), "weft does not build in {}", tree.display());
    let messages = String::from_utf8_lossy(&out.stdout);
    let path = messages.lines().filter_map(|line| line.split_once("\"executable\":\"")).next_back();
    let path = path.and_then(|(_, rest)| rest.split_once('"')).map(|(path, _)| PathBuf::from(path));
    path.with_context(|| format!("cargo names no executable in {}", tree.display()))
}

/// The output of a git command.
fn git(at: &Path, arguments: &[&str]) -> Result<String> {
    let out = Command::new("git").args(arguments).current_dir(at).output().context("cannot run git")?;
    if !out.status.success() {
        bail!("git {}: {}", arguments.join(" "), String::from_utf8_lossy(&out.stderr).trim());
    }
    Ok(String::from_utf8(out.stdout)?)
}
