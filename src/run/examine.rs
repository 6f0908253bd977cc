//! A kernel that is compiled once and simulated many times: what `weft check` runs.

use super::simulated::Simulated;
use super::tensors::Plan;
use super::{Prepared, RunError, RunOptions, TensorInfo, accumulator, request};
use crate::compile::{Compiled, KernelFile};
use crate::run::reference::{Checked, check};
use weft_ir::diag::Span;
use weft_ir::{Operation, Team};
use weft_lang::source::LineColumn;
use weft_sim::{Finding, Module, Place, SimError, Trace};

/// A compiled kernel with its decoded PTX.
pub(crate) struct Subject {
    prepared: Prepared,
    module: Module,
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
        let module = Module::parse(&prepared.compiled.ptx)?;
        Ok(Subject { prepared, module })
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

    fn plan(&self, options: &RunOptions) -> Result<Plan<'_, Simulated>, RunError> {
        let backend = Simulated::new(self.module.clone(), options)?;
        Plan::new(&self.prepared.compiled, options, &self.prepared.found, backend)
    }

    /// Whether its tensors can have these sizes on so many PEs, and what it computes fits them; the bytes of all.
    pub fn fits(&self, options: &RunOptions) -> Result<u64, RunError> {
        let plan = self.plan(options)?;
        if let Some(Some(reference)) = self.prepared.compiled.references.first() {
            let values = |name: &str| plan.values(name).ok().flatten();
            let root = self.prepared.root();
            check(reference, &values, &values, root, accumulator(&self.prepared.compiled))
                .or_else(request)?;
        }
        Ok(plan.backend.bytes)
    }

    /// Runs it once: so many PEs, launches, and the seed are those of `options`.
    ///
    /// # Errors
    /// What kept it from being run. What a kernel did wrong is in the answer.
    pub fn run(&self, options: &RunOptions) -> Result<Examined, RunError> {
        let mut plan = self.plan(options)?;
        let mut checks = Vec::new();
        let error = match self.prepared.launches(&mut plan, options, &mut checks) {
            Ok(()) => None,
            Err(RunError::Sim(e)) if e.code != "S001" => Some(e),
            Err(e) => return Err(e),
        };
        let trace = plan.backend.take_trace();
        let findings = plan.backend.take_findings().into_iter();
        let findings = findings.map(|f| {
            let element = f.location.as_ref().and_then(|l| plan.coordinate(l));
            (f, element)
        });
        Ok(Examined { findings: findings.collect(), tensors: plan.infos(), checks, error, trace })
    }
}
