//! The command `weft fmt`.

use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use weft::lang::format::{FormatError, format};
use weft::lang::render::render;
use weft::lang::source::SourceMap;

/// Lines have at most 120 characters where they can be broken. Comments, empty lines and blocks on
/// one line stay as they are. A `=` stays aligned with those above and below it, and so do comments
/// at the ends of lines.
#[derive(Args)]
pub struct Fmt {
    /// The kernel files, or folders whose `.weft` files are formatted. `-` formats standard input
    /// to standard output.
    #[arg(value_name = "FILE", default_value = ".")]
    files: Vec<PathBuf>,
    /// Write nothing. List the files that are not formatted, and exit with status 1 if there are
    /// any.
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

    /// Formats or checks one file. Returns whether it has an error or is not formatted.
    fn file(&self, path: &Path) -> Result<bool> {
        let text = weft::library::read_text(path).map_err(|e| anyhow!(e))?;
        let name = weft::library::name_of(path);
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

/// Returns the formatted text, or nothing for a text with syntax errors, which are shown.
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
                "{name}: the formatter would change the meaning of this file, so the file stays unchanged. Please report this"
            )
        }
    }
}

/// Lists the kernel file at the path, or all kernel files below the folder in the order of their
/// names. Hidden folders and `target` are skipped.
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
