//! Simulated PEs in this process.

use crate::check::interruptible;
use crate::error::Fault;
use crate::world::{World, seconds};
use pyo3::prelude::*;
use std::sync::{Arc, Mutex, PoisonError};
use weft::runtime::{self, SimConfig, SimJob, World as RuntimeWorld};
use weft::sim::Check;

/// The options of a simulation, as given by Python.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct SimulationOptions {
    n_pes: u32,
    seed: u64,
    check: bool,
    explore: bool,
    node: Option<u32>,
    multicast: bool,
    sms: Option<u32>,
    heap: u64,
    max_steps: Option<u64>,
    time_limit: Option<f64>,
}

/// A job of simulated PEs, and the world of each.
#[pyclass(frozen, module = "warpweft._native")]
pub struct Simulated {
    job: Arc<SimJob>,
    worlds: Vec<RuntimeWorld>,
    pes: Vec<Py<World>>,
    ended: Mutex<bool>,
}

/// The result of a PE's function: whether it returned, and the value or the exception.
type Outcome = (bool, Py<PyAny>);

#[pymethods]
impl Simulated {
    #[new]
    fn new(py: Python<'_>, options: SimulationOptions) -> PyResult<Simulated> {
        let mut config = SimConfig::new(options.n_pes);
        (config.seed, config.explore, config.node) = (options.seed, options.explore, options.node);
        config.check = options.check.then(Check::default);
        (config.multicast, config.multicast_of_one) = (options.multicast, options.multicast);
        config.sms = options.sms.unwrap_or(config.sms);
        config.heap = Some(options.heap);
        config.memory_limit =
            config.memory_limit.max(options.heap.saturating_mul(u64::from(options.n_pes)).saturating_mul(2));
        config.step_limit = options.max_steps.unwrap_or(config.step_limit);
        config.time_limit = options.time_limit.map(|t| seconds("time_limit", t)).transpose()?;
        config.stop = Some(Arc::default());
        let made = py.detach(|| {
            let job = RuntimeWorld::simulated_with(&config)?;
            let worlds = job.worlds()?;
            Ok((Arc::new(job), worlds))
        });
        let (job, worlds) = made.map_err(|e: runtime::Error| Fault::from(e))?;
        let pes =
            worlds.iter().map(|world| Py::new(py, World::of(world.clone()))).collect::<PyResult<_>>()?;
        Ok(Simulated { job, worlds, pes, ended: Mutex::new(false) })
    }

    /// The worlds of all PEs, in their order.
    #[getter]
    fn pes(&self, py: Python<'_>) -> Vec<Py<World>> {
        self.pes.iter().map(|pe| pe.clone_ref(py)).collect()
    }

    /// Calls a function with the number of each PE, each in its own thread. Returns, for each PE,
    /// whether the function returned, and its value or the exception that it raised.
    fn each(&self, py: Python<'_>, body: Py<PyAny>) -> PyResult<Vec<Outcome>> {
        let simulation = self.job.simulation();
        let call = |world: &RuntimeWorld| -> Result<Outcome, Fault> {
            let pe = world.my_pe();
            Ok(Python::attach(|py| match body.call1(py, (pe,)) {
                Ok(value) => (true, value),
                Err(e) => (false, e.into_value(py).into_any()),
            }))
        };
        let results =
            interruptible(py, || self.job.each(&self.worlds, call), move || simulation.interrupt())?;
        results.into_iter().map(|result| result.map_err(PyErr::from)).collect()
    }

    /// The findings of the check so far: code, message, help, and full text.
    fn findings(&self, py: Python<'_>) -> Vec<(String, String, String, String)> {
        let found = py.detach(|| self.job.simulation().findings());
        let text = |f: &weft::sim::Finding| {
            (f.code.to_string(), f.message.clone(), f.help.to_string(), f.to_string())
        };
        found.iter().map(text).collect()
    }

    /// The number of warp instructions executed so far.
    fn steps(&self, py: Python<'_>) -> u64 {
        py.detach(|| self.job.simulation().stats().iter().map(|s| s.warp_instructions).sum())
    }

    fn set_seed(&self, seed: u64) {
        self.job.simulation().set_seed(seed);
    }

    /// Ends all PEs.
    fn close(&self, py: Python<'_>) {
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        if !std::mem::replace(&mut *ended, true) {
            // After an error has stopped a world, an orderly finalization is impossible.
            py.detach(|| drop(self.job.each(&self.worlds, |world| world.clone().finalize().map(drop))));
        }
    }
}

impl Drop for Simulated {
    fn drop(&mut self) {
        Python::try_attach(|py| self.close(py));
    }
}
