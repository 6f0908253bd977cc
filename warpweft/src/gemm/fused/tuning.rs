//! The table of measurements of `weft tune gemm-reducescatter`, `gemm-allreduce` and
//! `allgather-gemm`.

use super::{Choice, Form};
use crate::gemm::Problem;
use crate::gemm::tuning::{FAR, Setting, distance};
use crate::tuned::{self, Measured, TuningFile, tables};
use serde::{Deserialize, Serialize};

/// The number of the file's format.
const FORM: u32 = 1;

/// The file, unless `WEFT_GEMM_COMM_TUNING` names another or is `off`.
const FILE: TuningFile = TuningFile {
    variable: "WEFT_GEMM_COMM_TUNING",
    name: "gemm_comm.json",
    command: "weft tune gemm-reducescatter",
    form: FORM,
};

/// The case that an entry is for.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Case {
    /// The collective that is fused with the product.
    pub form: Form,
    /// The number of PEs.
    pub pes: u32,
    /// Whether the team has a multicast address.
    pub multicast: bool,
    /// The problem that is tuned.
    #[serde(flatten)]
    pub problem: Problem,
}

/// The fastest way to compute a problem.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Entry {
    /// The case that was measured.
    #[serde(flatten)]
    pub case: Case,
    /// The [`Choice`] as text.
    pub choice: String,
    /// A hash of the kernel's text, or empty for a sequence. If the text has changed, the entry
    /// does not hold.
    pub kernel: String,
    /// Microseconds that a call took.
    pub us: f64,
}

impl Entry {
    /// The entry of a measurement, with the current text of the kernel.
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

/// The measurements of one setting.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Table {
    /// The setting that was measured.
    pub setting: Setting,
    /// The fastest choice for each problem.
    pub entries: Vec<Entry>,
}

impl Table {
    /// The fastest choice for a problem, or for the most similar one of the same types that was
    /// measured for as many PEs. It is `None` if nothing similar was measured, or if it no longer
    /// holds.
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

    /// The table for people, with a line for each entry.
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

impl Measured for Table {
    type Entry = Entry;

    fn parts(&self) -> (Table, &[Entry]) {
        (Table { entries: Vec::new(), ..self.clone() }, &self.entries)
    }

    /// One table for each GPU.
    fn join(self, tables: &mut Vec<Table>) {
        tables.retain(|t| t.setting == self.setting || t.setting.gpu != self.setting.gpu);
        match tables.iter_mut().find(|t| t.setting == self.setting) {
            Some(there) => {
                there.entries.retain(|e| self.entries.iter().all(|n| n.case != e.case));
                there.entries.extend(self.entries);
            }
            None => tables.push(self),
        }
    }
}

tables!(FILE, "WEFT_GEMM_COMM_TUNING", "gemm_comm.json");

impl Tables {
    /// The table of a setting.
    pub fn find(&self, setting: &Setting) -> Option<&Table> {
        self.tables.iter().find(|t| t.setting == *setting)
    }
}

/// The stored choice for a case in a setting. If the file cannot be read, a warning is printed on
/// standard error.
pub(super) fn stored(setting: &Setting, case: &Case) -> Option<Choice> {
    let tables = Tables::read(&Tables::path()?);
    let tables = tables.inspect_err(|e| eprintln!("warning: products go without tuning: {e}")).ok()?;
    tables.find(setting)?.choice(case)
}
