//! Chooses the plan for a number of tokens: the one that `weft tune fused-allreduce-rmsnorm`
//! stored, or the model's.

use super::{Exchange, Form, Fused, KERNELS, Plan, Shape};
use crate::collective::Links;
use crate::tuned::{self, Measured, TuningFile, tables};
use serde::{Deserialize, Serialize};
use std::fmt;
use weft_runtime::{Device, Error};

/// The number of the file's format.
const FORM: u32 = 1;

/// The file, unless `WEFT_FUSED_TUNING` names another or is `off`.
const FILE: TuningFile = TuningFile {
    variable: "WEFT_FUSED_TUNING",
    name: "fused.json",
    command: "weft tune fused-allreduce-rmsnorm",
    form: FORM,
};

/// The parts of the library that contain the kernels.
const PARTS: [&str; 2] = ["allreduce_norm", "allreduce_rms_norm"];

/// The largest factor between a number of tokens and one that was measured.
const FAR: f64 = 4.0;

/// The setting that measurements hold for. With another GPU, driver or team, the model chooses.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Setting {
    /// The name of the GPU.
    pub gpu: String,
    /// The version of the driver.
    pub driver: String,
    /// The number of PEs.
    pub n_pes: u32,
    /// Whether the team has a multicast address.
    pub multicast: bool,
}

impl Setting {
    /// The setting of a team of `n_pes` PEs on a device.
    ///
    /// # Errors
    ///
    /// Fails if the CUDA driver rejects a query (R0103).
    pub fn of(device: &Device, n_pes: u32, multicast: bool) -> Result<Setting, Error> {
        Ok(Setting { gpu: device.name()?, driver: tuned::driver(device)?, n_pes, multicast })
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let switch = if self.multicast { ", multicast" } else { "" };
        write!(f, "{} x {}, driver {}{switch}", self.n_pes, self.gpu, self.driver)
    }
}

/// The fastest plan of a number of tokens.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Entry {
    /// The number of tokens.
    pub tokens: u32,
    /// The size of a row in bytes.
    pub row_bytes: usize,
    /// The name of the kernel.
    pub kernel: String,
    /// CTAs that share a row.
    pub split: u32,
    /// Threads of a CTA of a kernel that spreads rows, or 0 for another kernel.
    pub threads: u32,
    /// Whether it was measured with LayerNorm.
    #[serde(default)]
    pub layer: bool,
    /// The number of elements that shared a scale, or 0.
    #[serde(default)]
    pub group: u32,
    /// Microseconds that a launch took.
    pub us: f64,
}

impl Entry {
    /// The entry of a plan that was measured.
    pub fn new(plan: &Plan, tokens: u32, row_bytes: usize, form: &Form, us: f64) -> Entry {
        let (Plan { kernel, split, threads, .. }, Form { layer, group, .. }) = (*plan, *form);
        Entry { tokens, row_bytes, kernel: kernel.name.into(), split, threads, layer, group, us }
    }

    /// The values for which a table has one entry each.
    fn key(&self) -> (usize, u32, bool, u32) {
        (self.row_bytes, self.tokens, self.layer, self.group)
    }

    /// Its kernel, if it still exists.
    fn kernel(&self) -> Option<&'static Fused> {
        KERNELS.iter().find(|k| k.name == self.kernel)
    }

    /// The plan for another number of tokens with rows of the same size, or `None` if the kernel no
    /// longer exists.
    fn plan(&self, shape: &Shape, sms: u32) -> Option<Plan> {
        let kernel = self.kernel()?;
        let (tokens, row_bytes) = (shape.tokens, shape.row_bytes);
        let plan = match kernel.exchange {
            Exchange::Spread(_) => {
                let split = shape.fixed(kernel).unwrap_or((self.split, Some(self.threads)));
                Plan::spread(kernel, tokens, row_bytes, sms, split)
            }
            Exchange::Barriers | Exchange::Packets => Plan::with(kernel, tokens, row_bytes, sms, self.split),
        };
        Some(Plan { switch: shape.switches(kernel), ..plan })
    }
}

/// The measurements of one setting.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Table {
    /// The setting that was measured.
    pub setting: Setting,
    /// The date of the measurement.
    pub date: String,
    /// The command that measured it.
    pub command: Vec<String>,
    /// A hash of the kernels' texts. If they have changed, no entry holds.
    pub kernels: String,
    /// The fastest plans, by tokens and bytes of a row.
    pub entries: Vec<Entry>,
}

impl Table {
    /// A table that holds for the kernels as they are.
    pub fn new(setting: Setting, date: String, entries: Vec<Entry>) -> Table {
        Table { setting, date, command: std::env::args().collect(), kernels: kernel_hash(), entries }
    }

    /// The plan of the number of tokens that is nearest as a factor, or `None` if nothing similar
    /// was measured. Entries of the same norm and groups come first.
    pub fn plan(&self, shape: &Shape, sms: u32) -> Option<Plan> {
        let far = |e: &Entry| (f64::from(e.tokens.max(1)) / f64::from(shape.tokens.max(1))).ln().abs();
        let other = |e: &Entry| (e.layer, e.group) != (shape.form.layer, shape.form.group);
        let near = |e: &&Entry| e.row_bytes == shape.row_bytes && far(e) <= FAR.ln();
        let allowed = |e: &&Entry| e.kernel().is_some_and(|kernel| shape.allows(kernel));
        let alike = self.entries.iter().filter(near).filter(allowed);
        alike.min_by(|a, b| other(a).cmp(&other(b)).then(far(a).total_cmp(&far(b))))?.plan(shape, sms)
    }

    /// The table for people, with a line for each entry.
    pub fn text(&self) -> String {
        let mut out = format!("# {}; {}\n", self.setting, self.date);
        if self.kernels != kernel_hash() {
            out += "# not used: the kernels have changed since then; measure again\n";
        }
        for Entry { tokens, row_bytes, kernel, split, threads, layer, group, us } in &self.entries {
            let shape = if *threads > 0 { format!("{split}x{threads}") } else { String::new() };
            let norm = if *layer { " LayerNorm" } else { "" };
            let scales = if *group > 0 { format!(" groups of {group}") } else { String::new() };
            out += &format!("{tokens:>9}{row_bytes:>10}{kernel:>16} {shape:<8}{us:>9.2}{norm}{scales}\n");
        }
        out
    }
}

tables!(FILE, "WEFT_FUSED_TUNING", "fused.json");

/// A hash of the kernels' texts and of the parts that they use.
fn kernel_hash() -> String {
    PARTS.map(tuned::hash).concat()
}

impl Measured for Table {
    type Entry = Entry;

    fn parts(&self) -> (Table, &[Entry]) {
        (Table { entries: Vec::new(), ..self.clone() }, &self.entries)
    }

    /// Entries replace older ones with the same tokens, rows and kind of norm.
    fn join(self, tables: &mut Vec<Table>) {
        let same = |t: &Table| t.setting == self.setting && t.kernels == self.kernels;
        let measured = |e: &Entry| self.entries.iter().any(|n| n.key() == e.key());
        let kept = tables.iter().filter(|t| same(t)).flat_map(|t| &t.entries);
        let kept: Vec<_> = kept.filter(|e| !measured(e)).cloned().collect();
        tables.retain(|t| t.setting != self.setting);
        let mut entries = [kept, self.entries].concat();
        entries.sort_by_key(Entry::key);
        tables.push(Table { entries, ..self });
    }
}

impl Tables {
    /// The table that holds for a setting.
    fn find(&self, setting: &Setting) -> Option<&Table> {
        self.tables.iter().find(|t| t.setting == *setting && t.kernels == kernel_hash())
    }
}

/// Chooses plans for a team.
#[derive(Clone, Debug)]
pub struct Selector {
    table: Option<Table>,
    links: Links,
    sms: u32,
}

impl Selector {
    /// Makes a selector from the table that is stored for this setting, or from the model with
    /// these links. If the file cannot be read, a warning is printed on standard error and the
    /// model chooses.
    ///
    /// # Errors
    /// Fails if the CUDA driver refuses a query (R0103).
    pub fn new(device: &Device, n_pes: u32, multicast: bool, links: Links) -> Result<Selector, Error> {
        let setting = Setting::of(device, n_pes, multicast)?;
        let tables = Tables::path().map(|file| Tables::read(&file)).transpose().unwrap_or_else(|e| {
            eprintln!("warning: fused kernels run without a tuning table: {e}");
            None
        });
        let table = tables.and_then(|t| t.find(&setting).cloned());
        Ok(Selector { table, links, sms: device.sm_count()? })
    }

    /// Its table as bytes for the other PEs, which must make the same choices.
    pub fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(&self.table).unwrap_or_default()
    }

    /// Replaces the table by another PE's. If the bytes contain none, the model chooses.
    pub fn with_bytes(self, bytes: &[u8]) -> Selector {
        Selector { table: serde_json::from_slice(bytes).unwrap_or_default(), ..self }
    }

    /// The plan of a shape.
    pub fn plan(&self, shape: &Shape) -> Plan {
        let found = self.table.as_ref().and_then(|t| t.plan(shape, self.sms));
        found.unwrap_or_else(|| Plan::choose(shape, self.sms, &self.links))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collective::Sums;

    fn setting(gpu: &str) -> Setting {
        Setting { gpu: gpu.into(), driver: "580".into(), n_pes: 2, multicast: false }
    }

    fn entry(tokens: u32, us: f64) -> Entry {
        let plan = Plan::spread(&KERNELS[0], tokens, 16 << 10, 132, (4, Some(256)));
        Entry::new(&plan, tokens, 16 << 10, &Form::plain(weft_ir::Scalar::BF16), us)
    }

    fn shape(tokens: u32, row_bytes: usize) -> Shape {
        let (form, sums) = (Form::plain(weft_ir::Scalar::BF16), Sums::Ordinary);
        Shape { tokens, row_bytes, n_pes: 2, multicast: false, form, sums }
    }

    /// Deterministic sums take only the number of flights from a table, and not the order of squares.
    #[test]
    fn deterministic_sums_ignore_measured_shapes() {
        let eight = Entry { split: 8, threads: 128, ..entry(1, 3.0) };
        let whole = Entry { kernel: "two_shot".into(), split: 1, threads: 0, ..entry(64, 9.0) };
        let table = Table::new(setting("a"), String::new(), vec![eight, entry(8, 4.0), whole]);
        let plans = |sums| {
            let of = |tokens| table.plan(&Shape { sums, ..shape(tokens, 16 << 10) }, 132);
            [1, 8, 64].map(|tokens| of(tokens).map(|p| (p.kernel.name, p.split, p.threads)))
        };
        let ordinary = [("one_flight", 8, 128), ("one_flight", 4, 256), ("two_shot", 1, 0)];
        assert_eq!(plans(Sums::Ordinary), ordinary.map(Some));
        let strict = Some(("one_flight", 4, 128));
        assert_eq!(plans(Sums::Deterministic), [strict, strict, None]);
    }

    /// LayerNorm takes its own entries first, and never those of kernels that cannot compute it.
    #[test]
    fn forms_have_entries_of_their_own() {
        let layer = Form { layer: true, ..shape(1, 0).form };
        let own = Entry { split: 2, layer: true, ..entry(1, 3.5) };
        let whole = Entry { kernel: "two_shot".into(), split: 1, threads: 0, ..entry(16, 9.0) };
        let mut all = Tables::new();
        all.add(Table::new(setting("a"), String::new(), vec![entry(1, 3.0), whole]));
        all.add(Table::new(setting("a"), String::new(), vec![own]));
        let table = all.find(&setting("a")).unwrap();
        assert_eq!(table.entries.len(), 3);
        let split =
            |tokens, form| table.plan(&Shape { form, ..shape(tokens, 16 << 10) }, 132).map(|p| p.split);
        assert_eq!([split(1, layer), split(1, shape(1, 0).form)], [Some(2), Some(4)]);
        assert_eq!(split(16, layer), None);
    }

    #[test]
    fn the_nearest_number_of_tokens_decides() {
        let two = Entry { split: 2, threads: 512, ..entry(16, 4.0) };
        let table = Table::new(setting("a"), String::new(), vec![entry(1, 3.0), two]);
        let plan = |tokens, bytes| table.plan(&shape(tokens, bytes), 132).map(|p| (p.split, p.ctas));
        assert_eq!(plan(1, 16 << 10), Some((4, 4)));
        assert_eq!(plan(3, 16 << 10), Some((4, 12)));
        assert_eq!(plan(8, 16 << 10), Some((2, 16)));
        assert_eq!(plan(256, 16 << 10), None, "too far");
        assert_eq!(plan(1, 8 << 10), None, "rows of another size");
        let unknown = Entry { kernel: "gone".into(), ..entry(1, 1.0) };
        let table = Table { entries: vec![unknown], ..table };
        assert!(table.plan(&shape(1, 16 << 10), 132).is_none());
    }

    #[test]
    fn newer_entries_replace_older_ones() {
        let mut all = Tables::new();
        all.add(Table::new(setting("a"), "old".into(), vec![entry(1, 3.0), entry(8, 4.0)]));
        all.add(Table::new(setting("b"), "old".into(), vec![entry(1, 9.0)]));
        all.add(Table::new(setting("a"), "new".into(), vec![entry(8, 3.5)]));
        let a = all.find(&setting("a")).unwrap();
        assert_eq!(a.entries.iter().map(|e| e.us).collect::<Vec<_>>(), [3.0, 3.5]);
        assert_eq!(a.date, "new");
        assert_eq!(all.tables.len(), 2);
        // A table of other kernels does not hold.
        all.tables.iter_mut().for_each(|t| t.kernels = "other".into());
        assert!(all.find(&setting("a")).is_none());
        all.add(Table::new(setting("a"), "last".into(), vec![entry(1, 2.0)]));
        assert_eq!(all.find(&setting("a")).map(|t| t.entries.len()), Some(1));
    }

    #[test]
    fn a_file_reads_back() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("fused.json");
        let mut all = Tables::new();
        all.add(Table::new(setting("a"), "today".into(), vec![entry(1, 3.0)]));
        all.write(&file).unwrap();
        assert_eq!(Tables::read(&file).unwrap(), all);
        std::fs::write(&file, "{\"form\": 9}").unwrap();
        assert!(Tables::read(&file).is_err());
    }
}
