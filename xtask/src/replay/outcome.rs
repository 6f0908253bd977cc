//! Runs a compiler over cases.

use super::{Case, CompilerUnderTest};
use anyhow::{Context, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The result of a case in short form.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Digest {
    /// Whether the case compiles.
    pub compiles: bool,
    /// The hash of everything that the compiler prints.
    pub hash: String,
}

/// The output of the compiler for a case, followed by its errors, warnings and notes.
pub struct Outcome {
    compiles: bool,
    pub text: Vec<u8>,
}

impl Outcome {
    /// Runs the compiler on a case.
    ///
    /// # Errors
    /// Fails if the compiler cannot be run.
    pub fn of(side: &CompilerUnderTest, case: &Case) -> Result<Outcome> {
        let mut weft = Command::new(&side.binary);
        // NVSHMEM's functions stay external, so that NVSHMEM need not be installed.
        weft.arg("compile").args(case).args(["--nvshmem", "extern"]).current_dir(&side.corpus);
        let out = weft.output().with_context(|| format!("cannot run {}", side.binary.display()))?;
        let mut text = out.stdout;
        if !side.lines {
            let text = without_lines(&text);
            return Ok(Outcome { compiles: out.status.success(), text });
        }
        if !out.stderr.is_empty() || !out.status.success() {
            text.extend(format!("--- standard error, {} ---\n", out.status).into_bytes());
            text.extend(out.stderr);
        }
        Ok(Outcome { compiles: out.status.success(), text })
    }

    fn digest(&self) -> Digest {
        Digest { compiles: self.compiles, hash: blake3::hash(&self.text).to_hex().to_string() }
    }
}

/// PTX without the directives for line numbers.
fn without_lines(ptx: &[u8]) -> Vec<u8> {
    let lines = ptx.split_inclusive(|byte| *byte == b'\n');
    lines.filter(|line| !line.trim_ascii_start().starts_with(b".loc")).flatten().copied().collect()
}

/// The results of all cases, computed on all processors of the machine.
///
/// # Errors
/// Fails if the compiler cannot be run.
pub fn of_all(side: &CompilerUnderTest, cases: &BTreeSet<Case>) -> Result<BTreeMap<Case, Digest>> {
    let cases: Vec<_> = cases.iter().collect();
    let (next, results) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
    let work = || -> Result<()> {
        while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
            let digest = Outcome::of(side, case)?.digest();
            results.lock().unwrap_or_else(|e| e.into_inner()).insert((*case).clone(), digest);
        }
        Ok(())
    };
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|w| w.join().unwrap_or_else(|_| anyhow::bail!("a worker panicked")))
    })?;
    Ok(results.into_inner().unwrap_or_else(|e| e.into_inner()))
}

/// The results as text, with a line for each case and the fingerprint of its kernel file.
pub fn print(results: &BTreeMap<Case, Digest>, text_of: &dyn Fn(&Case) -> Option<String>) -> String {
    results.iter().fold(String::new(), |mut lines, (case, digest)| {
        let (Digest { compiles, hash }, text) = (digest, text_of(case).unwrap_or_default());
        let _ = writeln!(lines, "{compiles}\t{hash}\t{text}\t{}", case.join("\t"));
        lines
    })
}

/// Reads the text that [`print()`] writes.
pub fn read(text: &str) -> BTreeMap<Case, (Digest, String)> {
    let line = |line: &str| {
        let mut words = line.split('\t').map(str::to_owned);
        let (compiles, hash, text) = (words.next()? == "true", words.next()?, words.next()?);
        Some((words.collect(), (Digest { compiles, hash }, text)))
    };
    text.lines().filter_map(line).collect()
}
