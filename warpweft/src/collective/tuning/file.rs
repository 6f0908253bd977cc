//! The file that tables are stored in.

use super::super::Links;
use super::{Entry, Setting, Table};
use crate::tuned::{Measured, TuningFile, tables};

/// The number of the file's format.
const FORM: u32 = 1;

/// The file, unless `WEFT_TUNING` names another or is `off`.
const FILE: TuningFile =
    TuningFile { variable: "WEFT_TUNING", name: "tuning.json", command: "weft tune", form: FORM };

tables!(FILE, "WEFT_TUNING", "tuning.json");

/// The result of a search for a setting's table.
#[derive(Clone, PartialEq, Debug)]
pub enum Stored {
    /// The table without entries that no longer hold, and the reasons why those do not.
    Table(Box<Table>, Vec<String>),
    /// The reason why there is no table.
    None(String),
}

impl Tables {
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

    /// The links of a setting like this one with a team of any size, if they were measured.
    pub fn links(&self, setting: &Setting) -> Option<Links> {
        let other = |t: &&Table| Setting { n_pes: setting.n_pes, ..t.setting.clone() } == *setting;
        self.tables.iter().find(other).map(|t| t.links)
    }
}

impl Measured for Table {
    type Entry = Entry;

    fn parts(&self) -> (Table, &[Entry]) {
        (Table { entries: Vec::new(), ..self.clone() }, &self.entries)
    }

    fn flaw(&self) -> Option<String> {
        let flaw =
            |e: &Entry| Some(format!("is damaged: {} by {}: {}", e.collective, e.algorithm, e.flaw()?));
        self.entries.iter().find_map(flaw)
    }

    fn join(self, tables: &mut Vec<Table>) {
        match tables.iter_mut().find(|t| t.setting.resembles(&self.setting)) {
            Some(there) if there.setting == self.setting => there.renew(self),
            Some(there) => *there = self,
            None => tables.push(self),
        }
    }
}
