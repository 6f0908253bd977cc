//! The common parts of all tables of measurements: the file that stores them, the machine that they
//! hold for, and the text of the kernels that were measured.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::ffi::OsStr;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use weft_runtime::owned::{self, Trust};
use weft_runtime::{Device, Error, cuda, error, find, machine};

/// The size of the largest file in bytes.
const MAX_BYTES: u64 = 64 << 20;

/// A kind of file with tables.
#[derive(Clone, Copy)]
pub(crate) struct TuningFile {
    /// The variable that names another file, or is `off`.
    pub variable: &'static str,
    /// The name of the file in warpweft's folder of the user's data.
    pub name: &'static str,
    /// The command that writes it.
    pub command: &'static str,
    /// The number of its format.
    pub form: u32,
}

impl TuningFile {
    /// The path of the file, or `None` if its variable is `off` or no folder is known.
    pub fn path(&self) -> Option<PathBuf> {
        match std::env::var_os(self.variable).filter(|v| !v.is_empty()) {
            Some(off) if off == OsStr::new("off") || off == OsStr::new("0") => None,
            Some(file) => Some(file.into()),
            None => Some(find::data_folder()?.join(self.name)),
        }
    }

    /// The text of a file, or `None` if the file does not exist and the variable does not name it.
    ///
    /// # Errors
    /// Fails if it cannot be read (R0111).
    pub fn read(&self, file: &Path) -> Result<Option<String>, Error> {
        if std::env::var_os(self.variable).is_some_and(|v| Path::new(&v) == file) {
            let text = crate::library::read_text_of(file, MAX_BYTES, "tuning");
            return text.map(Some).map_err(|why| self.bad(why));
        }
        // The user has not named the file, so it must be the user's own.
        match owned::read(file, MAX_BYTES, Trust::Owner) {
            Ok(bytes) => {
                let text = String::from_utf8(bytes);
                text.map(Some).map_err(|_| self.bad(format!("{} is not UTF-8", file.display())))
            }
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
            Err(e) => Err(self.bad(format!("cannot read {}: {e}", file.display()))),
        }
    }

    /// Parses the tables in a text.
    ///
    /// # Errors
    ///
    /// Says what is wrong with the text, as the predicate of a sentence about the file.
    pub fn parse<T: DeserializeOwned>(&self, text: &str) -> Result<T, String> {
        #[derive(Deserialize)]
        struct Head {
            form: u32,
        }
        let damaged =
            |e: serde_json::Error| format!("is damaged, or is not a file of `{}`: {e}", self.command);
        let Head { form } = serde_json::from_str(text).map_err(damaged)?;
        if form != self.form {
            return Err(format!("has format {form}, but this version reads format {}", self.form));
        }
        serde_json::from_str(text).map_err(damaged)
    }

    /// Writes a file at once, so that a reader sees either the old file or the new one.
    ///
    /// # Errors
    /// Fails if the file cannot be written (R0111).
    pub fn write(&self, file: &Path, text: &str) -> Result<(), Error> {
        let folder = match file.parent() {
            Some(parent) if parent != Path::new("") => parent,
            _ => Path::new("."),
        };
        let write = || -> std::io::Result<()> {
            std::fs::create_dir_all(folder)?;
            let mut new = tempfile::Builder::new().prefix(".tuning").tempfile_in(folder)?;
            new.write_all(text.as_bytes())?;
            new.persist(file)?;
            Ok(())
        };
        write().map_err(|e| self.bad(format!("cannot write {}: {e}", file.display())))
    }

    /// Makes an error about this kind of file.
    pub fn bad(&self, message: String) -> Error {
        let TuningFile { command, variable, .. } = self;
        Error::new(error::TUNING, message).help(format!(
            "move the file away and run `{command}` to measure again, or set {variable}=off to run without it"
        ))
    }
}

/// The measurements of one setting.
pub(crate) trait Measured: Clone + Serialize {
    /// The type of one measurement.
    type Entry: Serialize;

    /// The table without its entries, and the entries.
    fn parts(&self) -> (Self, &[Self::Entry]);

    /// The reason why the command cannot have written the table, as the predicate of a sentence
    /// about its file.
    fn flaw(&self) -> Option<String> {
        None
    }

    /// Adds the table to others. Its measurements replace older ones.
    fn join(self, tables: &mut Vec<Self>);

    /// The table in JSON, with an entry in each line.
    fn json(&self) -> String {
        let (head, entries) = self.parts();
        let lines: Vec<_> = entries.iter().filter_map(|e| serde_json::to_string(e).ok()).collect();
        let entries = format!("\"entries\": [\n    {}\n  ]", lines.join(",\n    "));
        // No quoted text contains quotes.
        serde_json::to_string_pretty(&head).unwrap_or_default().replace("\"entries\": []", &entries)
    }
}

/// Declares `Tables`, the content of a file: a `Table` for each setting, which is [`Measured`].
macro_rules! tables {
    ($file:ident, $variable:literal, $name:literal) => {
        /// Tables of any number of settings, as the file has them.
        #[derive(Clone, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
        pub struct Tables {
            form: u32,
            /// The tables, one for each setting.
            pub tables: Vec<Table>,
        }

        impl Tables {
            #[doc = concat!("The file with the tables, which `", $variable, "` names. By default, it is `", $name, "` in")]
            /// warpweft's folder of the user's data. It is none if the variable is `off`, or if no folder is known.
            pub fn path() -> Option<std::path::PathBuf> {
                $file.path()
            }

            /// Creates a file without tables.
            pub fn new() -> Tables {
                Tables { form: $file.form, tables: Vec::new() }
            }

            #[doc = concat!("Reads the tables of a file. A file that does not exist has none, unless `", $variable, "`")]
            /// names it.
            ///
            /// # Errors
            /// Fails if the file cannot be read, is damaged, or is of another form (R0111).
            pub fn read(file: &std::path::Path) -> Result<Tables, weft_runtime::Error> {
                let Some(text) = $file.read(file)? else { return Ok(Tables::new()) };
                let all = $file.parse::<Tables>(&text);
                let all = all.and_then(|all| match all.tables.iter().find_map($crate::tuned::Measured::flaw) {
                    Some(flaw) => Err(flaw),
                    None => Ok(all),
                });
                all.map_err(|why| $file.bad(format!("{} {why}", file.display())))
            }

            /// Adds a table of measurements. They replace those of the same setting, and all that
            /// was measured with another driver or with other kernels.
            pub fn add(&mut self, table: Table) {
                $crate::tuned::Measured::join(table, &mut self.tables);
            }

            /// The text of the file: JSON, with one entry in each line.
            pub fn text(&self) -> String {
                let all: Vec<_> = self.tables.iter().map($crate::tuned::Measured::json).collect();
                format!("{{ \"form\": {}, \"tables\": [\n{}\n] }}\n", self.form, all.join(",\n"))
            }

            /// Writes the tables to a file at once, so that a reader sees either the old file or the new one.
            ///
            /// # Errors
            /// Fails if the file cannot be written (R0111).
            pub fn write(&self, file: &std::path::Path) -> Result<(), weft_runtime::Error> {
                $file.write(file, &self.text())
            }
        }

        impl Default for Tables {
            fn default() -> Tables {
                Tables::new()
            }
        }
    };
}
pub(crate) use tables;

/// The driver of this machine, queried once.
pub(crate) fn here() -> Option<&'static machine::Driver> {
    static HERE: OnceLock<Option<machine::Driver>> = OnceLock::new();
    HERE.get_or_init(|| machine::driver().ok()).as_ref()
}

/// The version of a device's driver, or of its CUDA if NVML does not report a driver.
///
/// # Errors
/// Fails if the CUDA driver refuses a call (R0103).
pub(crate) fn driver(device: &Device) -> Result<String, Error> {
    // The driver of simulated PEs has no measurements, so models choose.
    if device.is_simulated() {
        return Ok("simulator".into());
    }
    if let Some(version) = here().and_then(|d| d.version.clone()) {
        return Ok(version);
    }
    let (major, minor) = cuda::driver_version()?;
    Ok(format!("CUDA {major}.{minor}"))
}

/// A hash of the code of a part of the library and of all parts that it uses. Comments do not count.
pub(crate) fn hash(part: &str) -> String {
    let mut hasher = blake3::Hasher::new();
    let mut parts = vec![part];
    let mut next = 0;
    while let Some(name) = parts.get(next).copied() {
        next += 1;
        let text = crate::library::part(name).unwrap_or_default();
        hasher.update(&[0]);
        let code = text.lines().map(|line| line.split("//").next().unwrap_or_default().trim());
        for line in code.filter(|line| !line.is_empty()) {
            hasher.update(line.as_bytes()).update(b"\n");
            let used = line.trim().strip_prefix("use weft::").and_then(|rest| rest.split(';').next());
            parts.extend(used.filter(|used| !parts.contains(used)));
        }
    }
    hasher.finalize().to_hex()[..16].into()
}
