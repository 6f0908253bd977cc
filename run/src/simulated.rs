//! Runs on simulated PEs, all in this process.

use super::pe::Pe;
use super::plan::Plan;
use super::sequence::{Checks, Prepared, Sequence};
use super::{RunError, RunOptions, entry, request};
use std::sync::Mutex;
use std::time::Duration;
use weft_runtime::launch::{Module, ModuleInfo};
use weft_runtime::{Modules, SimConfig, SimJob, World};
use weft_sim::Stats;

/// The largest size of all tensors of all PEs, together with their copies, in bytes.
const MAX_BYTES: u64 = 8 << 30;

/// The number of copies: the tensors themselves, their contents before a launch, and those that PE
/// 0 reads after it.
const COPIES: u64 = 3;

/// Compiled kernels for simulated PEs.
pub(super) struct Simulated {
    /// The description of each kernel.
    infos: Vec<ModuleInfo>,
    /// The modules that have been read.
    modules: Modules,
}

/// The result of a run.
pub(super) struct Simulation {
    pub job: SimJob,
    /// The wall time of all launches.
    pub time: Duration,
    /// The error that stopped it.
    pub result: Result<(), RunError>,
}

impl Simulated {
    pub fn new(sequence: &Sequence) -> Result<Simulated, RunError> {
        let modules = Modules::default();
        let read = |stage: &Prepared| {
            modules.read(&stage.compiled.ptx)?;
            stage.compiled.describe().map_err(|e| RunError::Request(e.to_string()))
        };
        Ok(Simulated { infos: sequence.stages.iter().map(read).collect::<Result<_, _>>()?, modules })
    }

    /// Runs the kernels; `checks` has the check of each launch that ended.
    ///
    /// # Errors
    /// Fails if the kernel cannot be run at all.
    pub fn run(
        &self,
        sequence: &Sequence,
        plan: &Plan,
        options: &RunOptions,
        checks: &Mutex<Checks>,
    ) -> Result<Simulation, RunError> {
        let tensors = plan.bytes().saturating_mul(plan.n_pes as u64);
        let all = tensors.saturating_mul(COPIES);
        if all > MAX_BYTES {
            let (n, tensors, all, max) = (plan.n_pes, tensors >> 20, all >> 20, MAX_BYTES >> 20);
            return request(format!(
                "the tensors of {n} PEs take {tensors} MiB, and {all} MiB with the copies that results are compared with; a \
                 simulated run may take {max} MiB"
            ));
        }
        let job = World::simulated_with(&self.config(sequence, options))?;
        let done = job.run(|world| {
            let load = |(stage, info): (&Prepared, &ModuleInfo)| {
                let module = Module::load_in(world, stage.compiled.ptx.as_bytes(), info.clone())?;
                module.kernel(entry(info))
            };
            let kernels = sequence.stages.iter().zip(&self.infos).map(load);
            let mut pe = Pe::new(world, plan, kernels.collect::<Result<_, _>>()?)?;
            sequence.carry_out(&mut pe, options, checks)?;
            Ok::<_, RunError>(pe.micros.iter().sum::<f64>())
        });
        // The simulator's report about stopped kernels has more details than the errors of the PEs.
        let (time, result) = match (done, job.simulation().stopped()) {
            (Ok(micros), _) => (micros[0], Ok(())),
            (Err(_), Some(e)) => (0.0, Err(e.into())),
            (Err(e), None) => (0.0, Err(e)),
        };
        Ok(Simulation { job, time: Duration::from_secs_f64(time / 1e6), result })
    }

    fn config(&self, sequence: &Sequence, options: &RunOptions) -> SimConfig {
        let mut config = SimConfig::new(options.n_pes as u32);
        config.seed = options.seed;
        config.check.clone_from(&options.check);
        config.explore = options.check.is_some();
        config.trace.clone_from(&options.trace);
        config.step_limit = options.step_limit.unwrap_or(config.step_limit);
        config.time_limit = options.time_limit;
        config.stop.clone_from(&options.stop);
        config.multicast_of_one = true;
        config.reach = Some(options.pes_of_node() as u32);
        let target = sequence.stages.first().map(|stage| stage.compiled.target);
        let number = target.map_or(90, |target| u32::from(target.number()));
        config.capability = (number / 10, number % 10);
        config.modules = self.modules.clone();
        config
    }
}

impl Simulation {
    /// Returns the counters of the last launch.
    pub fn stats(&self) -> Stats {
        self.job.simulation().stats().pop().unwrap_or_default()
    }

    /// Returns the text that all launches printed.
    pub fn printed(&self) -> String {
        self.job.simulation().stats().iter().map(|s| s.printed.as_str()).collect()
    }
}
