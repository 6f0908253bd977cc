//! The choice of a plan for a problem: from the measurements that `weft tune gemm` has stored, or
//! from the model.

use super::fit::{fits, keeps_tiles};
use super::model::ranked;
use super::{Machine, Plan, Problem, Shape};
use crate::tuned::{self, Measured, TuningFile, tables};
use serde::{Deserialize, Serialize};
use std::fmt;
use weft_isa::Target;
use weft_runtime::{Device, Error};

/// The number of the file's format.
const FORM: u32 = 1;

/// The file, unless `WEFT_GEMM_TUNING` names another or is `off`.
const FILE: TuningFile =
    TuningFile { variable: "WEFT_GEMM_TUNING", name: "gemm.json", command: "weft tune gemm", form: FORM };

/// The part of the library that contains the kernel.
pub(super) const PART: &str = "gemm_kernel";

/// The largest product of the factors between the three extents of a shape and a measured one.
pub(super) const FAR: f64 = 1.5;

/// The setting that a table is for. A table does not hold for another GPU or another driver.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Setting {
    /// The name of the GPU.
    pub gpu: String,
    /// The version of the driver.
    pub driver: String,
}

impl Setting {
    /// The setting of a device.
    ///
    /// # Errors
    /// Fails if the CUDA driver refuses a query (R0103).
    pub fn of(device: &Device) -> Result<Setting, Error> {
        Ok(Setting { gpu: device.name()?, driver: tuned::driver(device)? })
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, driver {}", self.gpu, self.driver)
    }
}

/// The fastest plan of a problem.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Entry {
    /// The product that was measured.
    #[serde(flatten)]
    pub problem: Problem,
    /// The fastest plan of the product.
    pub plan: Plan,
    /// Microseconds that a launch took.
    pub us: f64,
}

/// The measurements of one setting.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Table {
    /// The setting that was measured.
    pub setting: Setting,
    /// The version of warpweft.
    pub warpweft: String,
    /// The time at which it was measured.
    pub date: String,
    /// The command that measured it.
    pub command: Vec<String>,
    /// A hash of the kernel's text. If the text has changed, no entry holds.
    pub kernel: String,
    /// The fastest plan of each problem that was measured.
    pub entries: Vec<Entry>,
}

tables!(FILE, "WEFT_GEMM_TUNING", "gemm.json");

/// A hash of the kernel's text and of all parts that it uses.
fn kernel_hash() -> String {
    tuned::hash(PART)
}

impl Table {
    /// A table of a setting, without entries, that holds for the kernel as it is.
    pub fn new(setting: Setting) -> Table {
        Table {
            setting,
            warpweft: env!("CARGO_PKG_VERSION").into(),
            date: String::new(),
            command: Vec::new(),
            kernel: kernel_hash(),
            entries: Vec::new(),
        }
    }

    /// The plan that was the fastest for the problem, or for the most similar one of the same types
    /// and layout. A plan with `swap=1` also needs no more tiles along the rows of A. It is `None`
    /// if nothing similar was measured, or if no such plan fits the target.
    pub fn plan(&self, problem: &Problem, target: Target) -> Option<Plan> {
        let kind = |p: &Problem| (p.dtype, p.out, p.b);
        let alike = self.entries.iter().filter(|e| kind(&e.problem) == kind(problem));
        let alike = alike.filter(|e| keeps_tiles(&e.plan, problem.shape.m, e.problem.shape.m));
        let near = alike.map(|e| (distance(e.problem.shape, problem.shape), e.plan));
        let near = near.filter(|(far, plan)| *far <= FAR.ln() && fits(problem, plan, target).is_ok());
        near.min_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, plan)| plan)
    }

    /// Takes over the entries of a newer table of the same setting.
    fn renew(&mut self, newer: Table) {
        let mut entries =
            if self.kernel == newer.kernel { std::mem::take(&mut self.entries) } else { Vec::new() };
        entries.retain(|e| newer.entries.iter().all(|n| n.problem != e.problem));
        entries.extend(newer.entries.iter().cloned());
        entries.sort_by_key(|e| (e.problem.dtype.name(), e.problem.b, e.problem.shape));
        *self = Table { entries, ..newer };
    }

    /// The table for people, with a line for each entry.
    pub fn text(&self) -> String {
        let Table { setting, warpweft, date, .. } = self;
        let mut out = format!("# {setting}; warpweft {warpweft}, {date}\n");
        if self.kernel != kernel_hash() {
            out += "# left out: it was measured with another kernel; `weft tune gemm` measures it again\n";
            return out;
        }
        for Entry { problem, plan, us } in &self.entries {
            let tflops = problem.shape.flops() / us / 1e6;
            out += &format!("{:>44}  {plan:<36}{us:>10.2} us{tflops:>8.1} TFLOP/s\n", problem.to_string());
        }
        out
    }
}

/// The sum of the logarithms of the factors between two shapes' extents.
pub(super) fn distance(a: Shape, b: Shape) -> f64 {
    let ln = |x: u64, y: u64| (x.max(1) as f64 / y.max(1) as f64).ln().abs();
    ln(a.m, b.m) + ln(a.n, b.n) + ln(a.k, b.k)
}

impl Tables {
    /// The valid table of a setting, or why there is none.
    pub(super) fn find(&self, setting: &Setting) -> Result<&Table, String> {
        let Some(table) = self.tables.iter().find(|t| t.setting.gpu == setting.gpu) else {
            return Err(format!("there is no table for {}", setting.gpu));
        };
        match table {
            t if t.setting.driver != setting.driver => {
                Err(format!("the table of {} was measured with driver {}", t.date, t.setting.driver))
            }
            t if t.kernel != kernel_hash() => {
                Err(format!("the table of {} was measured with another kernel", t.date))
            }
            t => Ok(t),
        }
    }
}

impl Measured for Table {
    type Entry = Entry;

    fn parts(&self) -> (Table, &[Entry]) {
        (Table { entries: Vec::new(), ..self.clone() }, &self.entries)
    }

    fn flaw(&self) -> Option<String> {
        let wrong = self.entries.iter().find(|e| !e.us.is_finite() || e.us <= 0.0)?;
        Some(format!("is damaged: {} takes {} us", wrong.problem, wrong.us))
    }

    /// One table for each GPU.
    fn join(self, tables: &mut Vec<Table>) {
        match tables.iter_mut().find(|t| t.setting.gpu == self.setting.gpu) {
            Some(there) if there.setting == self.setting => there.renew(self),
            Some(there) => *there = self,
            None => tables.push(self),
        }
    }
}

/// The source of plans.
#[derive(Clone, PartialEq, Debug, Default)]
pub enum Tuning {
    /// Plans come from the table that is stored for the GPU, or from the model for what is not in it.
    #[default]
    Stored,
    /// Plans come from the model alone.
    Model,
    /// Plans come from a table, or from the model for what is not in it.
    Table(Box<Table>),
    /// The caller gives the plan.
    Plan(Plan),
}

/// The source that a plan was taken from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum By {
    /// The plan was found by measurement.
    Table,
    /// The plan was predicted by the model.
    Model,
    /// The plan was given by the caller.
    Caller,
}

/// Chooses plans on a GPU.
#[derive(Clone, Debug)]
pub struct Selector {
    source: Tuning,
    machine: Machine,
    /// The source in words.
    about: String,
}

impl Selector {
    /// Makes the requested selector for a device. A stored table is read once, here. If its file
    /// cannot be read, a warning is printed on standard error and the model chooses.
    ///
    /// # Errors
    ///
    /// Fails if the CUDA driver rejects a query (R0103).
    pub fn new(device: &Device, requested: &Tuning) -> Result<Selector, Error> {
        let machine = Machine::of(device)?;
        let (source, about) = match requested {
            Tuning::Stored => match stored(&Setting::of(device)?) {
                Ok((table, about)) => (Tuning::Table(Box::new(table)), about),
                Err(why) => (Tuning::Model, format!("model: {why}; `weft tune gemm` measures")),
            },
            Tuning::Model => (Tuning::Model, "model: as requested".into()),
            Tuning::Table(table) => (Tuning::Table(table.clone()), "table: given".into()),
            Tuning::Plan(plan) => (Tuning::Plan(*plan), format!("plan: {plan}")),
        };
        Ok(Selector { source, machine, about })
    }

    /// The plan of a problem, and its source.
    ///
    /// # Errors
    ///
    /// Fails if the kernel does not support the problem, or not with the given plan (R0505).
    pub fn plan(&self, problem: &Problem) -> Result<(Plan, By), Error> {
        problem.check()?;
        let target = self.machine.target;
        let found = match &self.source {
            Tuning::Plan(plan) => return fits(problem, plan, target).map(|()| (*plan, By::Caller)),
            Tuning::Table(table) => table.plan(problem, target).map(|plan| (plan, By::Table)),
            Tuning::Stored | Tuning::Model => None,
        };
        let model = || ranked(problem, self.machine).first().map(|plan| (*plan, By::Model));
        found.or_else(model).ok_or_else(|| {
            Error::new(weft_runtime::error::GEMM, format!("no plan fits {problem}"))
                .help("please report this: it is an error in warpweft's tables")
        })
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.about)
    }
}

/// The table that is stored for a setting, with its location, or the reason why there is none.
fn stored(setting: &Setting) -> Result<(Table, String), String> {
    let file = Tables::path().ok_or("WEFT_GEMM_TUNING is off, or there is no folder for the table")?;
    let tables = Tables::read(&file).map_err(|e| {
        eprintln!("warning: GEMM runs without a tuning table: {e}");
        e.message
    })?;
    let table = tables.find(setting)?;
    Ok((table.clone(), format!("table: {} of {}", file.display(), table.date)))
}
