//! Findings: what is wrong, who did it where, and how it is met again.

use crate::compile::{Lowering, Transport};
use crate::run::examine::Examined;
use crate::run::reference::Checked;
use indexmap::IndexMap;
use std::collections::BTreeMap;
use std::fmt;
use weft_lang::elaborate::{Define, Defines};
use weft_sim::{Place, SimError};

/// The code of a result that is not what `computes(...)` says.
pub const WRONG_RESULT: &str = "C001";

/// Something that a thread did.
#[derive(Clone, PartialEq, Debug)]
pub struct Access {
    /// Who, and where in the PTX and the kernel's text.
    pub place: Place,
    /// What, as `writes 4 bytes of y[3, 17] of PE 1 (st.global.weak)`; empty where the finding's message says it.
    pub what: String,
}

/// Something wrong.
#[derive(Clone, PartialEq, Debug)]
pub struct Finding {
    /// Stable code: `S008`, [`WRONG_RESULT`].
    pub code: String,
    /// One line, no full stop.
    pub message: String,
    /// Who did what: of a race the later access and then the earlier one. None for a wrong result.
    pub accesses: Vec<Access>,
    /// Further lines: who waits for what in a deadlock.
    pub notes: Vec<String>,
    /// What to do; may be empty.
    pub help: String,
    /// Runs that met it.
    pub count: u64,
    /// The first of them.
    pub replay: Replay,
}

/// A run, so that it can be had again: data and schedule follow from it.
#[derive(Clone, PartialEq, Debug)]
pub struct Replay {
    /// The kernel.
    pub kernel: String,
    /// Number of PEs.
    pub pes: usize,
    /// Seed of data and schedule.
    pub seed: u64,
    /// Compile-time parameters.
    pub defines: Defines,
    /// Run-time scalars.
    pub args: BTreeMap<String, Define>,
    /// How in-switch operations are carried out.
    pub lowering: Lowering,
    /// How other PEs are reached.
    pub transport: Transport,
    /// CTAs, where they were given.
    pub grid: Option<[u32; 3]>,
    /// Launches of the run.
    pub launches: u32,
}

impl fmt::Display for Replay {
    /// The options of `weft check` that bring it back.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "--kernel {} --pes {} --seed {}", self.kernel, self.pes, self.seed)?;
        for (name, value) in &self.defines {
            write!(f, " -D {name}={}", crate::run::show(*value))?;
        }
        for (name, value) in &self.args {
            write!(f, " --arg {name}={}", crate::run::show(*value))?;
        }
        match self.lowering {
            Lowering::Auto => {}
            Lowering::Multimem => f.write_str(" --lowering multimem")?,
            Lowering::Unicast => f.write_str(" --lowering unicast")?,
        }
        match self.transport {
            Transport::Auto => {}
            Transport::Nvshmem => f.write_str(" --transport nvshmem")?,
            Transport::P2p => f.write_str(" --transport p2p")?,
        }
        if let Some([x, y, z]) = self.grid {
            write!(f, " --grid {x},{y},{z}")?;
        }
        write!(f, " --launches {}", self.launches)
    }
}

/// What a run met.
pub(super) fn of(examined: Examined, replay: &Replay) -> Vec<Finding> {
    let mut out = Vec::new();
    out.extend(examined.error.map(|e| stopped(e, replay)));
    out.extend(examined.checks.iter().enumerate().filter_map(|(i, c)| wrong(c, i, replay)));
    out
}

fn stopped(e: SimError, replay: &Replay) -> Finding {
    let access = |place| Access { place, what: String::new() };
    Finding {
        code: e.code.to_owned(),
        message: e.message,
        accesses: e.at.map(|place| access(*place)).into_iter().collect(),
        notes: e.notes,
        help: e.help,
        count: 1,
        replay: replay.clone(),
    }
}

fn wrong(c: &Checked, launch: usize, replay: &Replay) -> Option<Finding> {
    let (pe, i, have, want) = c.first_wrong?;
    let Checked { tensor, elements, wrong, .. } = c;
    Some(Finding {
        code: WRONG_RESULT.to_owned(),
        message: format!("`{tensor}` is not what computes(...) says"),
        accesses: Vec::new(),
        notes: vec![
            format!("{wrong} of {elements} elements are wrong after launch {}", launch + 1),
            format!("the first: PE {pe}, {tensor}[{i}] is {have}, expected {want}"),
        ],
        help: "if nothing else is found, the arithmetic is wrong, or not every element is covered".to_owned(),
        count: 1,
        replay: replay.clone(),
    })
}

/// What makes two findings the same: code, kernel, and the places in the text.
type Key = (String, String, Vec<String>);

impl Finding {
    fn key(&self) -> Key {
        let place = |p: &Place| match p.source.first() {
            Some(s) => s.to_string(),
            None => format!("PTX line {}", p.ptx_line),
        };
        let mut places: Vec<String> = self.accesses.iter().map(|a| place(&a.place)).collect();
        places.sort();
        if places.is_empty() {
            places.push(self.message.clone());
        }
        (self.code.clone(), self.replay.kernel.clone(), places)
    }
}

/// Findings, each once.
#[derive(Default)]
pub(super) struct Gathered(IndexMap<Key, Finding>);

impl Gathered {
    /// Takes what a run met, once: a run that meets the same twice counts once.
    pub fn add_run(&mut self, found: Vec<Finding>) {
        let mut new: IndexMap<Key, Finding> = IndexMap::new();
        for f in found {
            new.entry(f.key()).or_insert(f);
        }
        for (key, f) in new {
            self.0.entry(key).and_modify(|old| old.count += 1).or_insert(f);
        }
    }

    pub fn into_findings(self) -> Vec<Finding> {
        self.0.into_values().collect()
    }
}
