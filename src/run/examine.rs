//! A kernel that is compiled once and simulated many times: what `weft check` runs.

use super::plan::Plan;
use super::reference::{Checked, Values};
use super::simulated::Simulated;
use super::{Prepared, RunError, RunOptions, TensorInfo};
use crate::compile::{Compiled, KernelFile};
use std::sync::{Mutex, PoisonError};
use weft_ir::diag::Span;
use weft_ir::{Operation, Team};
use weft_lang::source::LineColumn;
use weft_sim::{Finding, Place, SimError, Trace};

/// A compiled kernel with its decoded PTX.
pub(crate) struct Subject {
    prepared: Prepared,
    simulated: Simulated,
}

/// What came of a run.
pub(crate) struct Examined {
    /// What the machine's checks found, and the element that it is about: `y[3, 17]`.
    pub findings: Vec<(Finding, Option<String>)>,
    /// The tensors.
    pub tensors: Vec<TensorInfo>,
    /// The check of each launch that ended.
    pub checks: Vec<Checked>,
    /// Why a launch did not end.
    pub error: Option<SimError>,
    /// The timeline, where one is asked for.
    pub trace: Trace,
}

impl Subject {
    /// Finds parameters out, compiles, and reads the PTX.
    ///
    /// # Errors
    /// As [`run`](super::run), before anything is allocated.
    pub fn new(file: &KernelFile, options: &RunOptions) -> Result<Subject, RunError> {
        let prepared = Prepared::new(file, options)?;
        let simulated = Simulated::new(&prepared)?;
        Ok(Subject { prepared, simulated })
    }

    pub fn compiled(&self) -> &Compiled {
        &self.prepared.compiled
    }

    /// Whether the kernel itself has barriers over the PEs.
    pub fn meets(&self) -> bool {
        let mut found = false;
        for kernel in &self.compiled().high.kernels {
            kernel.walk(&mut |_, inst| found |= matches!(inst.op.team(), Some(Team::Barrier { .. })));
        }
        found
    }

    /// Whether the other one's PTX is the same.
    pub fn same_code(&self, other: &Subject) -> bool {
        self.compiled().ptx == other.compiled().ptx
    }

    /// Where a thread was in the kernel's text: all of the expression that its instruction is of.
    pub fn span(&self, place: &Place) -> Span {
        let sources = self.compiled().sources();
        let found = place.source.iter().find_map(|s| {
            let file = sources.find(&s.file)?;
            let at = LineColumn { line: s.line, column: s.column };
            Some((at, sources.span_at(file, at)?))
        });
        let Some((at, line)) = found else { return Span::NONE };
        let mut best = Span { end: line.start, ..line };
        for kernel in &self.compiled().high.kernels {
            kernel.walk(&mut |_, inst| {
                let span = inst.span;
                let here = (span.file, span.start) == (line.file, line.start) && span.end <= line.end;
                if here && span.end > best.end {
                    best = span;
                }
            });
        }
        // Without an instruction of that place, what is left of the line.
        if best.end > best.start || at.column == 0 { best } else { line }
    }

    fn plan(&self, options: &RunOptions) -> Result<Plan, RunError> {
        Plan::new(&self.prepared.compiled, options, &self.prepared.found)
    }

    /// Whether its tensors can have these sizes on so many PEs, and what it computes fits them; the bytes of all.
    pub fn fits(&self, options: &RunOptions) -> Result<u64, RunError> {
        let plan = self.plan(options)?;
        if let Some(reference) = self.prepared.reference() {
            let values = |name: &str| {
                let tensor = &plan.tensors[plan.tensor(name)?];
                Some(Values { dtype: tensor.info.dtype, data: vec![tensor.zeros(); plan.n_pes] })
            };
            self.prepared.check(reference, &values, &values)?;
        }
        Ok(plan.bytes().saturating_mul(plan.n_pes as u64))
    }

    /// Runs it once: so many PEs, launches, and the seed are those of `options`.
    ///
    /// # Errors
    /// What kept it from being run. What a kernel did wrong is in the answer.
    pub fn run(&self, options: &RunOptions) -> Result<Examined, RunError> {
        let (plan, checks) = (self.plan(options)?, Mutex::default());
        let ran = self.simulated.run(&self.prepared, &plan, options, &checks)?;
        let error = match ran.result {
            Ok(()) => None,
            Err(RunError::Sim(e)) if e.code != "S001" => Some(e),
            Err(e) => return Err(e),
        };
        let simulation = ran.job.simulation();
        let kernel = self.compiled().high.kernels.first();
        let findings = simulation.findings().into_iter();
        let findings = findings.map(|f| {
            let element = f.location.as_ref().and_then(|l| plan.coordinate(kernel?, l));
            (f, element)
        });
        Ok(Examined {
            findings: findings.collect(),
            tensors: plan.infos(),
            checks: checks.into_inner().unwrap_or_else(PoisonError::into_inner),
            error,
            trace: simulation.take_trace(),
        })
    }
}
