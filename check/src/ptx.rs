//! Checks of PTX from other compilers.

use super::CheckOptions;
use super::finding::{self, Finding, Replay};
use weft::{Lowering, Transport};
use weft_lang::elaborate::Defines;
use weft_run::RunError;
use weft_run::ptx::{PtxFile, PtxLaunch, PtxOutcome, Setup};
use weft_sim::{Trace, TraceConfig};

/// A launch on this number of PEs, for any seed.
pub(super) struct Case<'a> {
    file: &'a PtxFile,
    setup: Setup<'a>,
}

/// The launch on each of the options' numbers of PEs.
pub(super) fn all<'a>(
    file: &'a PtxFile,
    launch: &PtxLaunch,
    options: &CheckOptions,
) -> Result<Vec<Case<'a>>, RunError> {
    let on = |&pes: &usize| {
        let launch = launch
            .clone()
            .pes(pes)
            .launches(options.launches)
            .step_limit(options.step_limit)
            .time_limit(options.time_limit)
            .check(Some(weft_sim::Check::default()));
        Ok(Case { file, setup: Setup::new(file, &launch)? })
    };
    options.pes.iter().map(on).collect()
}

impl Case<'_> {
    pub fn run(&self, seed: u64) -> Result<Vec<Finding>, RunError> {
        Ok(findings(self.file, self.setup.run(seed)?, &self.replay(seed)))
    }

    /// Runs the case and returns its timeline.
    pub fn trace(&self, seed: u64) -> Result<Trace, RunError> {
        let trace = Some(TraceConfig::default());
        Ok(Setup::new(self.file, &self.setup.launch().clone().trace(trace))?.run(seed)?.trace)
    }

    pub fn replay(&self, seed: u64) -> Replay {
        replay(self.setup.kernel(), &self.setup.launch().clone().seed(seed))
    }
}

/// The parameters that reproduce a launch.
pub(super) fn replay(kernel: &str, launch: &PtxLaunch) -> Replay {
    Replay {
        kernel: kernel.to_owned(),
        pes: launch.pes,
        seed: launch.seed,
        defines: Defines::new(),
        args: std::collections::BTreeMap::new(),
        sequence: None,
        files: String::new(),
        lowering: Lowering::Auto,
        transport: Transport::Auto,
        node: None,
        grid: Some(launch.grid),
        launches: launch.launches,
        overlap: false,
        ptx: Some(launch.words()),
    }
}

/// The findings of a run.
pub(super) fn findings(file: &PtxFile, outcome: PtxOutcome, replay: &Replay) -> Vec<Finding> {
    let locate = |place: &weft_sim::CodeLocation| file.span(place);
    finding::of(outcome.findings, outcome.ended.err(), &locate, replay)
}
