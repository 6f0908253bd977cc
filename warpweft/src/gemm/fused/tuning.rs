//! What `weft tune gemm-reducescatter`, `gemm-allreduce` and `allgather-gemm` have measured and stored.

use super::{Choice, Form};
use crate::gemm::Problem;
use crate::gemm::tuning::{FAR, Setting, distance};
use crate::tuned::{self, TuningFile};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use weft_runtime::Error;

/// Another form of the file has another number.
const FORM: u32 = 1;

/// The file: `WEFT_GEMM_COMM_TUNING` names another, or is `off`.
const FILE: TuningFile = TuningFile {
    variable: "WEFT_GEMM_COMM_TUNING",
    name: "gemm_comm.json",
    command: "weft tune gemm-reducescatter",
    form: FORM,
};

/// What an entry is for.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Case {
    /// What PEs compute together.
    pub form: Form,
    /// How many they are.
    pub pes: u32,
    /// Whether they have a multicast address.
    pub multicast: bool,
    /// The problem that is tuned.
    #[serde(flatten)]
    pub problem: Problem,
}

/// The fastest way to compute a problem.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Entry {
    /// What it is for.
    #[serde(flatten)]
    pub case: Case,
    /// The [`Choice`] as text.
    pub choice: String,
    /// A hash of the kernel's text: where that has changed since, the entry does not hold. Empty for a sequence.
    pub kernel: String,
    /// Microseconds that a call took.
    pub us: f64,
}

impl Entry {
    /// The entry of a measurement, for the kernel as it is.
    pub fn new(case: Case, choice: &Choice, us: f64) -> Entry {
        let (text, kernel) = (choice.text(case.form), kernel(choice, case.form));
        Entry { case, choice: text, kernel, us }
    }

    /// The choice, if it still holds.
    fn choice(&self) -> Option<Choice> {
        let choice = Choice::parse(&self.choice, self.case.form).ok()?;
        (kernel(&choice, self.case.form) == self.kernel).then_some(choice)
    }
}

fn kernel(choice: &Choice, form: Form) -> String {
    match choice {
        Choice::Launch(plan) => tuned::hash(plan.part(form).name()),
        Choice::Decode(_) => tuned::hash(crate::gemm::decode::PART),
        Choice::Sequence => String::new(),
    }
}

/// What was measured in one setting.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Table {
    /// What it holds for.
    pub setting: Setting,
    /// The fastest ways, of each problem one.
    pub entries: Vec<Entry>,
}

impl Table {
    /// The fastest way to compute a problem, or the most similar one of the same types that was measured for as many PEs;
    /// none where nothing like it was, or where it no longer holds.
    pub fn choice(&self, case: &Case) -> Option<Choice> {
        let kind = |c: &Case| (c.form, c.pes, c.multicast, c.problem.dtype, c.problem.out, c.problem.b);
        let alike = self.entries.iter().filter(|e| kind(&e.case) == kind(case));
        let near = alike.filter_map(|e| {
            let far = distance(e.case.problem.shape, case.problem.shape);
            let choice = e.choice().filter(|choice| choice.fits(case.form, &case.problem).is_ok())?;
            (far <= FAR.ln()).then_some((far, choice))
        });
        near.min_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, choice)| choice)
    }

    /// The table for people: a line for each entry.
    pub fn text(&self) -> String {
        let mut out = format!("# {}\n", self.setting);
        for entry in &self.entries {
            let Entry { case: Case { form, pes, problem, .. }, choice, us, .. } = entry;
            let old = if entry.choice().is_some() { "" } else { "  (left out: the kernel has changed)" };
            out += &format!("{form:?} on {pes} PEs, {problem}: {us:.2} us, {choice}{old}\n");
        }
        out
    }
}

/// Tables of any number of settings, as the file has them.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Tables {
    form: u32,
    /// One for each setting.
    pub tables: Vec<Table>,
}

impl Default for Tables {
    fn default() -> Tables {
        Tables { form: FORM, tables: Vec::new() }
    }
}

impl Tables {
    /// Where tables are stored: the file that `WEFT_GEMM_COMM_TUNING` names, or `gemm_comm.json` in warpweft's folder of the
    /// user's data. There is none where the variable is `off`, or where no folder is known.
    pub fn path() -> Option<PathBuf> {
        FILE.path()
    }

    /// The tables of a file; none of one that does not exist, unless `WEFT_GEMM_COMM_TUNING` names it.
    ///
    /// # Errors
    /// Fails if the file cannot be read, is damaged, or has another form (R0111).
    pub fn read(file: &Path) -> Result<Tables, Error> {
        let Some(text) = FILE.read(file)? else { return Ok(Tables::default()) };
        FILE.parse(&text).map_err(|why| FILE.bad(format!("{} {why}", file.display())))
    }

    /// Takes a table in. Its entries replace those of the same problems in the table of the same setting, and another
    /// driver's table of the same GPU goes.
    pub fn add(&mut self, table: Table) {
        self.tables.retain(|t| t.setting == table.setting || t.setting.gpu != table.setting.gpu);
        match self.tables.iter_mut().find(|t| t.setting == table.setting) {
            Some(there) => {
                there.entries.retain(|e| table.entries.iter().all(|n| n.case != e.case));
                there.entries.extend(table.entries);
            }
            None => self.tables.push(table),
        }
    }

    /// The table of a setting.
    pub fn find(&self, setting: &Setting) -> Option<&Table> {
        self.tables.iter().find(|t| t.setting == *setting)
    }

    /// Writes them, all at once: a reader sees the old file or the new one.
    ///
    /// # Errors
    /// Fails if the file cannot be written (R0111).
    pub fn write(&self, file: &Path) -> Result<(), Error> {
        let text = serde_json::to_string_pretty(self).map_err(|e| FILE.bad(e.to_string()))?;
        FILE.write(file, &(text + "\n"))
    }
}

/// What is stored for a case in a setting. A file that cannot be read is said on standard error.
pub(super) fn stored(setting: &Setting, case: &Case) -> Option<Choice> {
    let tables = Tables::read(&Tables::path()?);
    let tables = tables.inspect_err(|e| eprintln!("warning: products go without tuning: {e}")).ok()?;
    tables.find(setting)?.choice(case)
}
