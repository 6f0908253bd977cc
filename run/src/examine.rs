//! Kernels that are compiled once and simulated many times, for `weft check`.

use super::plan::Plan;
use super::reference::{Checked, Values};
use super::sequence::{Checks, Prepared, Sequence, Stage};
use super::simulated::Simulated;
use super::{RunError, RunOptions, TensorInfo};
use std::sync::Mutex;
use weft::Compiled;
use weft_ir::diag::Span;
use weft_ir::{Kernel, Operation, Team};
use weft_lang::source::{LineColumn, SourceMap};
use weft_sim::{CodeLocation, Finding, SimError, Stats, Trace, codes};

/// Compiled kernels with their decoded PTX.
pub struct Subject {
    sequence: Sequence,
    simulated: Simulated,
}

/// The result of a run.
pub struct Examined {
    /// The findings of the machine's checks, each with its element, such as `y[3, 17]`.
    pub findings: Vec<(Finding, Option<String>)>,
    /// The tensors of the run.
    pub tensors: Vec<TensorInfo>,
    /// The check of each launch that ended, with the number of its kernel in the sequence.
    pub checks: Vec<(usize, Checked)>,
    /// The comparison with the numbers of each file after the last launch.
    pub expected: Vec<(String, Checked)>,
    /// The error that stopped a launch.
    pub error: Option<SimError>,
    /// The timeline, if one is requested.
    pub trace: Trace,
    /// The counters of the last launch.
    pub stats: Stats,
}

impl Subject {
    /// Determines the parameters, compiles, and reads the PTX.
    ///
    /// # Errors
    /// Fails where [`run`](super::run) fails before anything is allocated.
    pub fn new(stages: &[Stage<'_>], options: &RunOptions) -> Result<Subject, RunError> {
        let sequence = Sequence::new(stages, options)?;
        let simulated = Simulated::new(&sequence)?;
        Ok(Subject { sequence, simulated })
    }

    /// Returns a lower bound for the size of a kernel's tensors on all PEs in bytes, without
    /// compiling.
    ///
    /// # Errors
    /// Fails where [`new`](Subject::new) fails, as far as the kernels' heads show it.
    pub fn min_bytes(stages: &[Stage<'_>], options: &RunOptions) -> Result<u64, RunError> {
        Sequence::bytes_of_largest(stages, options)
    }

    /// The kernels, in the order of their launches.
    pub fn stages(&self) -> impl Iterator<Item = &Prepared> {
        self.sequence.stages.iter()
    }

    fn compiled(&self) -> impl Iterator<Item = &Compiled> {
        self.stages().map(|stage| &stage.compiled)
    }

    /// The kernels in the form of their texts.
    fn kernels(&self) -> impl Iterator<Item = &Kernel> {
        self.compiled().flat_map(|c| &c.high.kernels)
    }

    /// Whether a kernel itself has barriers over the PEs.
    pub fn meets(&self) -> bool {
        let mut found = false;
        for kernel in self.kernels() {
            kernel.walk(&mut |_, inst| found |= matches!(inst.op.team(), Some(Team::Barrier { .. })));
        }
        found
    }

    /// Whether a kernel tests at run time which PEs it reaches.
    pub fn tests_reach(&self) -> bool {
        self.sequence.tests_reach()
    }

    /// Whether the PTX of another subject is the same.
    pub fn same_code(&self, other: &Subject) -> bool {
        self.compiled().map(|c| &c.ptx).eq(other.compiled().map(|c| &c.ptx))
    }

    /// Returns a thread's location in a kernel's text: the whole expression that its instruction
    /// belongs to. `sources` has all texts.
    pub fn span(&self, place: &CodeLocation, sources: &SourceMap) -> Span {
        let spans = self.compiled().filter_map(|compiled| {
            let (exact, span) = span(compiled, place)?;
            Some((exact, Span { file: sources.find(compiled.sources().name(span.file)?)?, ..span }))
        });
        spans.max_by_key(|(exact, span)| (*exact, span.end - span.start)).map_or(Span::NONE, |(_, span)| span)
    }

    fn plan(&self, options: &RunOptions) -> Result<Plan, RunError> {
        Plan::new(&self.sequence, options)
    }

    /// Checks that its tensors can have these sizes on this number of PEs, and that `computes` fits
    /// them. Returns the size of all tensors in bytes.
    pub fn fits(&self, options: &RunOptions) -> Result<u64, RunError> {
        let plan = self.plan(options)?;
        let values = |name: &str| {
            let tensor = &plan.tensors[plan.tensor(name)?];
            let TensorInfo { dtype, ref shape, .. } = tensor.info;
            Some(Values { dtype, shape: shape.clone(), data: vec![tensor.zeros(); plan.n_pes] })
        };
        for stage in &self.sequence.stages {
            // A function of the text can have tensors of any shape.
            if let Some(reference) = stage.reference().filter(|r| r.function.is_none()) {
                stage.check(reference, &values, &values, &|_| None)?;
            }
        }
        Ok(plan.bytes().saturating_mul(plan.n_pes as u64))
    }

    /// Runs it once, with the numbers of PEs and launches and the seed of `options`.
    ///
    /// # Errors
    /// Fails if the kernel cannot be run. The result has the errors of a kernel that ran.
    pub fn run(&self, options: &RunOptions) -> Result<Examined, RunError> {
        let (plan, checks) = (self.plan(options)?, Mutex::default());
        let ran = self.simulated.run(&self.sequence, &plan, options, &checks)?;
        let stats = ran.stats();
        let error = match ran.result {
            Ok(()) => None,
            Err(RunError::Sim(e)) if e.code != codes::BAD_REQUEST => Some(*e),
            Err(e) => return Err(e),
        };
        let simulation = ran.job.simulation();
        let findings = simulation.findings().into_iter();
        let findings = findings.map(|f| {
            let element = f.location.as_ref().and_then(|l| plan.coordinate(self.kernels(), l));
            (f, element)
        });
        let (checks, expected) = Checks::into_all(checks)?;
        Ok(Examined {
            findings: findings.collect(),
            tensors: plan.infos(),
            checks,
            expected,
            error,
            trace: simulation.take_trace(),
            stats,
        })
    }
}

/// Returns a thread's location in the text of a compiled kernel, and whether an instruction of the
/// kernel has exactly that location; `None` for a text that it does not run.
fn span(compiled: &Compiled, place: &CodeLocation) -> Option<(bool, Span)> {
    let sources = compiled.sources();
    let (at, line) = place.source.iter().find_map(|s| {
        let file = sources.find(&s.file)?;
        let at = LineColumn { line: s.line, column: s.column };
        Some((at, sources.span_at(file, at)?))
    })?;
    let mut best = Span { end: line.start, ..line };
    for kernel in &compiled.high.kernels {
        kernel.walk(&mut |_, inst| {
            let span = inst.span;
            let here = (span.file, span.start) == (line.file, line.start) && span.end <= line.end;
            if here && span.end > best.end {
                best = span;
            }
        });
    }
    let exact = best.end > best.start;
    // Without an instruction at that location, use the rest of the line.
    Some((exact, if exact || at.column == 0 { best } else { line }))
}
