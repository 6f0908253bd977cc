//! The command `weft new`.

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use weft::KernelFile;

/// The name of the kernel in the templates.
const TEMPLATE: &str = "my_kernel";

const KERNEL: &str = include_str!("new/my_kernel.weft");

/// Create a kernel, a host program that runs it on simulated PEs or on GPUs, and a test.
#[derive(Args)]
pub struct New {
    /// The folder to create. The kernel gets the same name.
    folder: PathBuf,
    /// The language of the host program.
    #[arg(long, value_enum, default_value = "rust")]
    host: Host,
    /// The folder of warpweft's sources, which a Rust program then uses instead of the published crates.
    #[arg(long, value_name = "FOLDER")]
    path: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Host {
    /// A Cargo package.
    Rust,
    /// A script for Python 3.9 or later with NumPy.
    Python,
}

impl Host {
    /// The files beside the kernel, by their names in the new folder.
    fn files(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Host::Rust => &[
                ("Cargo.toml", include_str!("new/rust/manifest.toml")),
                ("src/main.rs", include_str!("new/rust/main.rs")),
                ("tests/kernel.rs", include_str!("new/rust/kernel.rs")),
            ],
            Host::Python => &[
                ("host.py", include_str!("new/python/host.py")),
                ("test_kernel.py", include_str!("new/python/test_kernel.py")),
            ],
        }
    }

    /// The commands that run the program and its test.
    fn commands(self) -> [&'static str; 2] {
        match self {
            Host::Rust => ["cargo run", "cargo test"],
            Host::Python => ["python host.py", "python -m pytest"],
        }
    }
}

impl New {
    pub fn run(&self) -> Result<ExitCode> {
        let name = self.name()?;
        let kernel = name.replace('-', "_");
        let text = KERNEL.replace(TEMPLATE, &kernel);
        if KernelFile::parse(&format!("{kernel}.weft"), &text).is_err() {
            bail!(
                "`{kernel}` is a word of the language, so it cannot be the name of a kernel: choose another name"
            );
        }
        if self.folder.exists() {
            bail!("{} already exists: choose another name", self.folder.display());
        }

        let mut files = vec![(format!("{kernel}.weft"), text)];
        for (file, template) in self.host.files() {
            // A package can have a name with hyphens, but a kernel cannot.
            let package = template.replace(&format!("name = \"{TEMPLATE}\""), &format!("name = \"{name}\""));
            files.push(((*file).to_owned(), self.with_versions(&package)?.replace(TEMPLATE, &kernel)));
        }
        for (file, text) in &files {
            write(&self.folder.join(file), text)?;
        }
        self.print_next_steps(&kernel, &files)?;
        Ok(ExitCode::SUCCESS)
    }

    /// The last part of the path, if it can be a name.
    fn name(&self) -> Result<&str> {
        let name = self.folder.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let is_good = name.starts_with(|c: char| c.is_ascii_alphabetic())
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
        if !is_good {
            bail!("`{name}` cannot be the name of a kernel: use a letter, then letters, digits, `_` and `-`");
        }
        Ok(name)
    }

    /// Fills in the versions of warpweft's crates that the new package requires.
    fn with_versions(&self, text: &str) -> Result<String> {
        let requirement = |folder: &str| match &self.path {
            Some(path) => {
                let path = path.join(folder);
                let path = path.canonicalize().with_context(|| format!("cannot find {}", path.display()))?;
                // TOML and Rust write the strings of paths in the same way.
                Ok(format!("{{ path = {:?} }}", path.display().to_string()))
            }
            None => Ok::<_, anyhow::Error>(format!("{:?}", env!("CARGO_PKG_VERSION"))),
        };
        if !text.contains("WARPWEFT") {
            return Ok(text.to_owned());
        }
        Ok(text.replace("WARPWEFT", &requirement("warpweft")?).replace("CHECK", &requirement("check")?))
    }

    /// Prints the created files and the commands that use them.
    fn print_next_steps(&self, kernel: &str, files: &[(String, String)]) -> Result<()> {
        let mut out = String::new();
        for (file, _) in files {
            out.push_str(&format!("created {}\n", self.folder.join(file).display()));
        }
        out.push_str(&format!("\nTo run it:\n\n    cd {}\n", self.folder.display()));
        for command in [format!("weft run {kernel}.weft"), format!("weft check {kernel}.weft")] {
            out.push_str(&format!("    {command}\n"));
        }
        for command in self.host.commands() {
            out.push_str(&format!("    {command}\n"));
        }
        super::write_out(None, out.as_bytes())
    }
}

/// Writes a file and creates the folders above it.
fn write(path: &Path, text: &str) -> Result<()> {
    let failed = || format!("cannot write {}", path.display());
    path.parent().map_or(Ok(()), std::fs::create_dir_all).with_context(failed)?;
    std::fs::write(path, text).with_context(failed)
}
