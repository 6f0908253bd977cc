//! The output of commands that measure: a table that grows, a progress bar below it, and files at
//! the end.

use crate::progress::Below;
use crate::write_out;
use anyhow::{Context, Result, bail};
use std::fs::{OpenOptions, remove_file};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use weft::runtime::World;
use weft::runtime::job::ProcessRank;

/// A file that may have been requested, and a function that makes its contents.
pub(crate) type Sink<'a> = (&'a Option<PathBuf>, Box<dyn Fn() -> Result<String> + 'a>);

/// Checks, before anything is measured, whether the requested files can be written. The process
/// that writes them calls this function.
pub(crate) fn writable_all<'a>(files: impl IntoIterator<Item = &'a Option<PathBuf>>) -> Result<()> {
    match ProcessRank::detect()?.is_none_or(|place| place.rank == 0) {
        true => files.into_iter().flatten().try_for_each(|file| writable(file)),
        false => Ok(()),
    }
}

/// Checks whether a file can be written, and leaves the file unchanged.
pub(crate) fn writable(file: &Path) -> Result<()> {
    let is_new = !file.exists();
    let opened = OpenOptions::new().append(true).create(true).open(file);
    drop(opened.with_context(|| format!("cannot write {}", file.display()))?);
    if is_new && let Err(e) = remove_file(file) {
        bail!("cannot write {}: {e}", file.display());
    }
    Ok(())
}

/// The table of a job, which PE 0 prints as it grows.
pub(crate) struct Table {
    prints: bool,
    bar: Below,
    total: usize,
    /// The number of printed parts; none before the head is printed.
    done: Option<usize>,
}

impl Table {
    /// A table of this number of parts.
    pub fn new(world: &World, total: usize) -> Table {
        Table { prints: world.my_pe() == 0, bar: Below::new("lines"), total, done: None }
    }

    /// Prints the head the first time, and another part of the table after that.
    pub fn add(&mut self, head: impl FnOnce() -> String, lines: impl FnOnce() -> String) -> io::Result<()> {
        let text = if self.done.is_none() { head() } else { lines() };
        let done = self.done.map_or(0, |n| n + 1);
        self.done = Some(done);
        self.print(&text, done)
    }

    /// Removes the bar, and prints the lines below the table.
    pub fn end(&mut self, foot: &str) -> io::Result<()> {
        self.print(foot, self.total)
    }

    fn print(&mut self, text: &str, done: usize) -> io::Result<()> {
        match self.prints {
            true => io::stdout().lock().write_all(self.bar.over(text, done, self.total).as_bytes()),
            false => Ok(()),
        }
    }

    /// Writes the requested files and reports wrong results, if this PE is the one that reports.
    pub fn write(&self, files: &[Sink<'_>], wrong: Option<String>) -> Result<()> {
        if self.prints { write(files, wrong) } else { Ok(()) }
    }
}

/// Writes files, and reports wrong results.
pub(crate) fn write(files: &[Sink<'_>], wrong: Option<String>) -> Result<()> {
    for (file, text) in files {
        if let Some(file) = file {
            write_out(Some(file), text()?.as_bytes())?;
        }
    }
    if let Some(wrong) = wrong {
        eprintln!("error: {wrong}");
    }
    Ok(())
}
