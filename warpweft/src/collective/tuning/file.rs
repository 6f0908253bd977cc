//! The file that tables are stored in.

use super::super::Links;
use super::{Setting, Table};
use crate::tuned::TuningFile;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use weft_runtime::Error;

/// Another form of the file has another number.
const FORM: u32 = 1;

/// The file: `WEFT_TUNING` names another, or is `off`.
const FILE: TuningFile =
    TuningFile { variable: "WEFT_TUNING", name: "tuning.json", command: "weft tune", form: FORM };

/// Tables of any number of settings.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Tables {
    form: u32,
    /// One for each setting.
    pub tables: Vec<Table>,
}

/// The tables that are stored for a setting.
#[derive(Clone, PartialEq, Debug)]
pub enum Stored {
    /// A table, without what no longer holds, and why that does not.
    Table(Box<Table>, Vec<String>),
    /// None, for that reason.
    None(String),
}

impl Tables {
    /// The file with the tables, which `WEFT_TUNING` names. By default, it is `tuning.json` in warpweft's folder
    /// of the user's data. It is none if `WEFT_TUNING` is `off`, or if no folder is known.
    pub fn path() -> Option<PathBuf> {
        FILE.path()
    }

    /// Creates a file without tables.
    pub fn new() -> Tables {
        Tables { form: FORM, tables: Vec::new() }
    }

    /// Reads the tables of a file. A file that does not exist counts as empty, unless `WEFT_TUNING`
    /// names it.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be read, is damaged, or has another format (R0111).
    pub fn read(file: &Path) -> Result<Tables, Error> {
        match FILE.read(file)? {
            Some(text) => Tables::parse(&text).map_err(|why| FILE.bad(format!("{} {why}", file.display()))),
            None => Ok(Tables::new()),
        }
    }

    /// Those of a text.
    ///
    /// # Errors
    /// Says what is wrong with the text, as what a file "does".
    fn parse(text: &str) -> Result<Tables, String> {
        let tables: Tables = FILE.parse(text)?;
        let entries = tables.tables.iter().flat_map(|t| &t.entries);
        match entries.filter_map(|e| Some((e, e.flaw()?))).next() {
            Some((e, flaw)) => Err(format!("is damaged: {} by {}: {flaw}", e.collective, e.algorithm)),
            None => Ok(tables),
        }
    }

    /// The tables that are stored for a setting.
    pub fn find(&self, setting: &Setting) -> Stored {
        let Some(table) = self.tables.iter().find(|t| t.setting == *setting) else {
            let similar = self.tables.iter().find(|t| t.setting.resembles(setting));
            return Stored::None(match similar {
                Some(t) => format!("its table was measured with driver {}", t.setting.driver),
                None => format!("there is no table for {setting}"),
            });
        };
        match table.clone().usable() {
            (table, why) if table.entries.is_empty() => {
                Stored::None(format!("no entry in the table of {} is valid: {}", table.date, why.join(", ")))
            }
            (table, why) => Stored::Table(Box::new(table), why),
        }
    }

    /// The measurements of links like those of a setting, if they were measured for a team of any size.
    pub fn links(&self, setting: &Setting) -> Option<Links> {
        let other = |t: &&Table| Setting { n_pes: setting.n_pes, ..t.setting.clone() } == *setting;
        self.tables.iter().find(other).map(|t| t.links)
    }

    /// Adds a table. A table for the same setting is renewed, and one for a similar setting is
    /// replaced.
    pub fn add(&mut self, table: Table) {
        match self.tables.iter_mut().find(|t| t.setting.resembles(&table.setting)) {
            Some(there) if there.setting == table.setting => there.renew(table),
            Some(there) => *there = table,
            None => self.tables.push(table),
        }
    }

    /// The text of the file: JSON, with one entry in each line.
    pub fn text(&self) -> String {
        let empty = "\"entries\": []";
        let one = |t: &Table| {
            let head = Table { entries: Vec::new(), ..t.clone() };
            let lines: Vec<_> = t.entries.iter().filter_map(|e| serde_json::to_string(e).ok()).collect();
            let entries = format!("\"entries\": [\n    {}\n  ]", lines.join(",\n    "));
            // No text within quotes has quotes.
            serde_json::to_string_pretty(&head).unwrap_or_default().replace(empty, &entries)
        };
        let all: Vec<_> = self.tables.iter().map(one).collect();
        format!("{{ \"form\": {}, \"tables\": [\n{}\n] }}\n", self.form, all.join(",\n"))
    }

    /// Writes the tables to a file at once, so that a reader sees either the old file or the new one.
    ///
    /// # Errors
    /// Fails if the file cannot be written (R0111).
    pub fn write(&self, file: &Path) -> Result<(), Error> {
        FILE.write(file, &self.text())
    }
}

impl Default for Tables {
    fn default() -> Tables {
        Tables::new()
    }
}
