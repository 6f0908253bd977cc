//! `weft fmt`

use crate::lang::format::{FormatError, format};
use crate::lang::render::render;
use crate::lang::source::SourceMap;
use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// A line is at most 120 characters wide where it can be ended. Comments, empty lines and blocks on one line stay as
/// they are. A `=` stays in line with those above and below it, and so do the comments at the ends of lines.
#[derive(Args)]
pub struct Fmt {
    /// Kernel files, or folders whose `.weft` files are formatted; `-` formats standard input to standard output.
    #[arg(value_name = "FILE", default_value = ".")]
    files: Vec<PathBuf>,
    /// Write nothing; name the files that are not formatted, and exit with status 1 if there are any.
    #[arg(long)]
    check: bool,
}

impl Fmt {
    pub fn run(&self) -> Result<ExitCode> {
        let mut failed = false;
        for path in &self.files {
            if path == Path::new("-") {
                failed |= self.standard_input()?;
                continue;
            }
            for file in kernel_files(path)? {
                failed |= self.file(&file)?;
            }
        }
        Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }

    fn standard_input(&self) -> Result<bool> {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).context("cannot read standard input")?;
        let Some(formatted) = formatted("<stdin>", &text)? else { return Ok(true) };
        if self.check {
            return Ok(formatted != text);
        }
        super::write_out(None, formatted.as_bytes())?;
        Ok(false)
    }

    /// Formats or checks one file, and gives whether it has an error or should be formatted.
    fn file(&self, path: &Path) -> Result<bool> {
        let text = crate::library::read_text(path).map_err(|e| anyhow!(e))?;
        let name = crate::library::name_of(path);
        let Some(formatted) = formatted(&name, &text)? else { return Ok(true) };
        if formatted == text {
            return Ok(false);
        }
        if self.check {
            super::write_out(None, format!("{name} is not formatted\n").as_bytes())?;
            return Ok(true);
        }
        std::fs::write(path, formatted).with_context(|| format!("cannot write {name}"))?;
        Ok(false)
    }
}

/// The formatted text, or nothing if it has syntax errors, which are shown.
fn formatted(name: &str, text: &str) -> Result<Option<String>> {
    let mut sources = SourceMap::new();
    let file = sources.add(name, text);
    match format(file, text) {
        Ok(formatted) => Ok(Some(formatted)),
        Err(FormatError::Syntax(found)) => {
            let mut err = std::io::stderr().lock();
            let shown = render(&found, &sources, super::color(&err));
            err.write_all(shown.as_bytes())?;
            Ok(None)
        }
        Err(FormatError::Changed) => {
            bail!(
                "{name}: the formatter would change what this file says; it is left as it is. Please report this"
            )
        }
    }
}

/// The kernel file at the path, or the kernel files below the folder in the order of their names, without those in
/// hidden folders and in `target`.
fn kernel_files(path: &Path) -> Result<Vec<PathBuf>> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut folders = vec![path.to_owned()];
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        let entries =
            std::fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))?;
        for entry in entries {
            let entry = entry.with_context(|| format!("cannot read {}", folder.display()))?;
            let (path, name) = (entry.path(), entry.file_name());
            let kind = entry.file_type().with_context(|| format!("cannot read {}", path.display()))?;
            let skipped = name.to_string_lossy().starts_with('.') || name == "target";
            if kind.is_dir() && !skipped {
                folders.push(path);
            } else if kind.is_file() && path.extension().is_some_and(|e| e == "weft") {
                files.push(path);
            }
        }
    }
    files.sort();
    Ok(files)
}
