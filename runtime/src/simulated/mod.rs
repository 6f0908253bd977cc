//! Simulated PEs have the same [`World`] on a machine without GPUs.
//!
//! The simulation is below everything that programs see. A simulated PE is a thread of this
//! process. Its device, its streams, events and graphs, its NVSHMEM and its connection with the
//! other PEs are the few types that [`cuda`], [`nvshmem`] and the job have in two variants.
//! Tensors, teams, checks of arguments, hidden parameters and collectives are the same code as on
//! GPUs.
//!
//! Work on streams waits until every PE's thread is blocked or has ended. Then all kernels that can
//! run do so at the same time on one [`weft_sim::Machine`], until a thread can continue. The thread
//! that called [`SimJob::run`] advances the machine, which does not run while a PE's thread runs.
//! So one seed gives one run, however fast the threads are.
//!
//! [`cuda`]: crate::cuda
//! [`nvshmem`]: crate::nvshmem

mod calls;
mod exchange;
mod heap;
mod job;
mod modules;
mod nvshmem;
mod order;
mod state;
mod stream;

pub(crate) use job::Pe;
pub use modules::Modules;
pub(crate) use nvshmem::{CollectiveFunction, Nvshmem, VERSION};
pub use stream::Stream;
pub(crate) use stream::{Event, Graph};

use crate::error::{Error, FINALIZED, INTERRUPTED, LAUNCHER, PEER_DIED, Result, SIMULATED};
use crate::job::Options;
use crate::world::World;
use job::{Job, Settings};
use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use weft_sim::{Check, Finding, SimError, Stats, Trace, TraceConfig};

/// The machine to simulate, and how to simulate it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SimConfig {
    /// The number of PEs.
    pub n_pes: u32,
    /// The seed of the schedule, and of choices that NVSHMEM and the memory model leave open. One
    /// seed gives one run.
    pub seed: u64,
    /// Whether the seed also chooses how warps take turns, and how late weak stores become visible
    /// ([`weft_sim::Config::explore`]).
    pub explore: bool,
    /// The checks that watch running kernels; see [`Simulation::findings`].
    pub check: Option<Check>,
    /// The number of PEs in a node. PEs of a node reach each other by loads and stores, and other PEs only by puts and
    /// gets. If it is not given, all PEs are in one node.
    pub node: Option<u32>,
    /// The number of PEs in a group, for kernels that choose at run time how they reach a PE
    /// (`Transport::Auto` of the compiler). Such a kernel uses direct loads and stores within a
    /// group and NVSHMEM calls between groups, so that both ways run although all PEs reach each
    /// other. If it is not given, the groups are the nodes.
    pub reach: Option<u32>,
    /// Whether teams have multicast addresses.
    pub multicast: bool,
    /// Whether a team of one PE also has a multicast address. NVSHMEM does not give it one.
    pub multicast_of_one: bool,
    /// The number of streaming multiprocessors of a PE.
    pub sms: u32,
    /// The compute capability of the devices. Code for another architecture is rejected, as on a
    /// GPU.
    pub capability: (u32, u32),
    /// The options of a timeline of the kernels; see [`Simulation::take_trace`].
    pub trace: Option<TraceConfig>,
    /// The modules that have been read. Clones of a configuration share them, so that their jobs
    /// read each text once.
    pub modules: Modules,
    /// The largest amount of memory of all PEs together, in bytes.
    pub memory_limit: u64,
    /// The largest number of warp instructions between two points at which no kernel runs.
    pub step_limit: u64,
    /// The time between two such points after which kernels are stopped, if there is a limit.
    pub time_limit: Option<Duration>,
    /// The fixed size of each PE's symmetric heap in bytes, if it has one: see
    /// [`Simulation::host_address`].
    pub heap: Option<u64>,
    /// A flag that stops running and later kernels once it is set: see [`Simulation::interrupt`].
    pub stop: Option<Arc<AtomicBool>>,
}

weft_sim::setters!(
    SimConfig {
        n_pes: u32,
        seed: u64,
        explore: bool,
        check: Option<Check>,
        node: Option<u32>,
        reach: Option<u32>,
        multicast: bool,
        multicast_of_one: bool,
        sms: u32,
        capability: (u32, u32),
        trace: Option<TraceConfig>,
        modules: Modules,
        memory_limit: u64,
        step_limit: u64,
        time_limit: Option<Duration>,
        heap: Option<u64>,
        stop: Option<Arc<AtomicBool>>,
    }
);

impl Default for SimConfig {
    /// The configuration of one PE like an H200, without checks.
    fn default() -> SimConfig {
        let sim = weft_sim::Config::default();
        SimConfig {
            n_pes: 1,
            seed: 0,
            explore: false,
            check: None,
            node: None,
            reach: None,
            multicast: sim.multicast,
            multicast_of_one: false,
            sms: sim.sms,
            capability: (9, 0),
            trace: None,
            modules: Modules::default(),
            memory_limit: sim.memory_limit,
            step_limit: sim.step_limit,
            time_limit: None,
            heap: None,
            stop: None,
        }
    }
}

impl SimConfig {
    /// Configures `n_pes` PEs that are like H200s of one node.
    pub fn new(n_pes: u32) -> SimConfig {
        SimConfig::default().n_pes(n_pes)
    }

    /// Enables the checks for data races and for reads of uninitialised memory, on schedules of
    /// every kind.
    #[must_use]
    pub fn checked(self) -> SimConfig {
        self.check(Some(Check::default())).explore(true)
    }

    fn settings(&self) -> Result<Settings> {
        if self.n_pes == 0 || self.node == Some(0) || self.reach == Some(0) {
            let message = "a simulated job, and each of its nodes and groups, must have at least one PE";
            return Err(Error::new(LAUNCHER, message));
        }
        let node = self.node.unwrap_or(self.n_pes).min(self.n_pes);
        let reach = self.reach.unwrap_or(node).min(self.n_pes);
        let config = weft_sim::Config::default()
            .n_pes(self.n_pes as usize)
            .seed(self.seed)
            .explore(self.explore)
            .check(self.check.clone())
            .peer_access(node == self.n_pes)
            .multicast(self.multicast)
            .sms(self.sms.max(1))
            .memory_limit(self.memory_limit)
            .step_limit(self.step_limit)
            .time_limit(self.time_limit)
            .trace(self.trace.clone())
            .heap(self.heap)
            .stop(self.stop.clone());
        let SimConfig { capability, multicast_of_one, .. } = *self;
        let (modules, bound) = (self.modules.clone(), Options::from_env()?.timeout);
        Ok(Settings { node, reach, capability, multicast_of_one, modules, config, bound })
    }
}

/// A job of simulated PEs that have not started.
pub struct SimJob(Arc<Job>);

impl World {
    /// Creates a job of `n_pes` simulated PEs in this process, like H200s of one node: see
    /// [`SimJob::run`].
    ///
    /// # Errors
    /// Fails for no PE or too many PEs, or if `WEFT_TIMEOUT` is not a time (R0201).
    pub fn simulated(n_pes: u32) -> Result<SimJob> {
        World::simulated_with(&SimConfig::new(n_pes))
    }

    /// Creates PEs that are simulated in this process, with this configuration.
    ///
    /// # Errors
    /// Fails where [`simulated`](World::simulated) fails.
    pub fn simulated_with(config: &SimConfig) -> Result<SimJob> {
        Ok(SimJob(Job::new(config.settings()?)?))
    }
}

impl SimJob {
    /// Runs `body` as every PE, each in a thread with a [`World`] of its own, and finalizes.
    /// Returns the results by PE.
    ///
    /// # Errors
    /// Fails with the error of the PE that failed first: the error of `body`, R0203 if it panicked,
    /// or R0403 if the simulator stopped the kernels. The other PEs get R0203 when they wait for
    /// it.
    pub fn run<T: Send, E: From<Error> + fmt::Display + Send>(
        &self,
        body: impl Fn(&World) -> std::result::Result<T, E> + Sync,
    ) -> std::result::Result<Vec<T>, E> {
        let results = self.threads(&|pe: &Pe| main(pe, &body));
        let first = self.0.lock().failed.as_ref().and_then(|failed| failed.pe);
        let mut all = Vec::new();
        let mut failed = None;
        for (pe, result) in (0..).zip(results) {
            match result {
                Ok(value) => all.push(value),
                Err(e) if failed.is_none() || Some(pe) == first => failed = Some(e),
                Err(_) => {}
            }
        }
        failed.map_or(Ok(all), Err)
    }

    /// Returns the worlds of all PEs, by PE, which exist until they are finalized, for
    /// [`each`](SimJob::each). A job with such worlds cannot be [`run`](SimJob::run).
    ///
    /// # Errors
    /// Fails if the simulator has stopped (R0403).
    pub fn worlds(&self) -> Result<Vec<World>> {
        self.threads(&World::of_simulated).into_iter().collect()
    }

    /// Calls `body` as every PE, each in a thread of its own, and returns the results by PE when
    /// all have ended. Memory and streams stay for later calls. Unlike in [`run`](SimJob::run), an
    /// error of one PE does not end the job: it is that PE's result, and PEs that wait for it get
    /// `R0301`.
    pub fn each<T: Send, E: From<Error> + Send>(
        &self,
        worlds: &[World],
        body: impl Fn(&World) -> std::result::Result<T, E> + Sync,
    ) -> Vec<std::result::Result<T, E>> {
        let no_world = || E::from(Error::new(FINALIZED, "the simulated worlds have ended"));
        self.threads(&|pe: &Pe| body(worlds.get(pe.pe as usize).ok_or_else(no_world)?))
    }

    /// Calls `body` in a thread for each PE, and advances the machine until all have ended.
    fn threads<T: Send, E: From<Error> + Send>(
        &self,
        body: &(impl Fn(&Pe) -> std::result::Result<T, E> + Sync),
    ) -> Vec<std::result::Result<T, E>> {
        self.0.begin();
        let pes = (0..self.0.n_pes()).map(|pe| Pe { job: self.0.clone(), pe });
        std::thread::scope(|scope| {
            let threads: Vec<_> = pes.map(|pe| (pe.pe, spawn(scope, pe, body))).collect();
            self.0.conduct();
            let joined = threads.into_iter().map(|(pe, thread)| match thread {
                Ok(thread) => thread.join().unwrap_or_else(|panic| Err(E::from(panicked(pe, &*panic)))),
                Err(e) => Err(E::from(e)),
            });
            joined.collect()
        })
    }

    /// The functions that only a simulated job has: findings and statistics.
    pub fn simulation(&self) -> Simulation {
        Simulation(self.0.clone())
    }
}

impl fmt::Debug for SimJob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SimJob({} PEs)", self.0.n_pes())
    }
}

type Thread<'s, T, E> = std::thread::ScopedJoinHandle<'s, std::result::Result<T, E>>;

/// Starts the thread of a PE.
fn spawn<'s, T: Send + 's, E: From<Error> + Send + 's>(
    scope: &'s std::thread::Scope<'s, '_>,
    pe: Pe,
    body: &'s (impl Fn(&Pe) -> std::result::Result<T, E> + Sync),
) -> Result<Thread<'s, T, E>> {
    let (name, place) = (format!("PE {}", pe.pe), pe.clone());
    let thread = std::thread::Builder::new().name(name).spawn_scoped(scope, move || {
        pe.enter();
        let result = catch_unwind(AssertUnwindSafe(|| body(&pe)));
        let result = result.unwrap_or_else(|panic| {
            let e = panicked(pe.pe, &*panic);
            pe.fail(&e.message);
            Err(E::from(e))
        });
        pe.leave();
        result
    });
    thread.map_err(|e| {
        place.fail("its thread did not start");
        place.leave();
        Error::new(LAUNCHER, format!("cannot start a thread for PE {}: {e}", place.pe))
    })
}

/// The main function of a PE's thread.
fn main<T, E: From<Error> + fmt::Display>(
    pe: &Pe,
    body: &impl Fn(&World) -> std::result::Result<T, E>,
) -> std::result::Result<T, E> {
    let world = World::of_simulated(pe)?;
    // No body begins, and possibly fails, before all PEs have arrived.
    pe.exchange(&(0..pe.n_pes()).collect::<Vec<_>>(), "start", &[], false)?;
    match body(&world) {
        Ok(value) => {
            world.finalize()?;
            Ok(value)
        }
        Err(e) => {
            let text = e.to_string();
            world.fail(text.lines().next().unwrap_or_default());
            Err(e)
        }
    }
}

fn panicked(pe: u32, panic: &(dyn Any + Send)) -> Error {
    let said = panic.downcast_ref::<&str>().map(|s| (*s).to_owned());
    let said = said.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
    Error::new(PEER_DIED, format!("PE {pe} panicked: {said}"))
}

/// The functions that only a simulated world has.
#[derive(Clone)]
pub struct Simulation(Arc<Job>);

impl Simulation {
    pub(crate) fn of(pe: &Pe) -> Simulation {
        Simulation(pe.job.clone())
    }

    /// The findings of [`SimConfig::check`] in kernels that have ended. Kernels that are launched after this
    /// call are not compared with earlier ones.
    pub fn findings(&self) -> Vec<Finding> {
        let mut state = self.0.lock();
        state.settle();
        state.findings.clone()
    }

    /// Takes the timeline since the last call, if [`SimConfig::trace`] requests one. Running
    /// kernels are not included.
    pub fn take_trace(&self) -> Trace {
        let mut state = self.0.lock();
        state.settle();
        state.machine.take_trace()
    }

    /// Returns the counters of all PEs so far, without running kernels. There is one entry for each
    /// time that kernels began when none ran. With a check, there is one for each call of this
    /// function or [`findings`](Simulation::findings), and for every 64 kernels. The instructions
    /// of the host's own operations on streams are not counted.
    pub fn stats(&self) -> Vec<Stats> {
        let mut state = self.0.lock();
        state.settle();
        state.stats.clone()
    }

    /// Returns the error that stopped the kernels, if there was one: a deadlock, or an access that
    /// no GPU allows. Every PE gets it as `R0403`.
    pub fn stopped(&self) -> Option<SimError> {
        self.0.lock().stopped.clone()
    }

    /// Reads memory of a PE, beginning at an address of that PE. Kernels of the PEs must have
    /// ended, and their remote operations must have completed, as after [`World::barrier`].
    ///
    /// # Errors
    /// Fails for memory that the PE does not have (R0403).
    pub fn read(&self, pe: u32, address: u64, data: &mut [u8]) -> Result<()> {
        let state = self.0.lock();
        state.machine.read(pe as usize, address, data).map_err(|e| state::from_sim(&e))
    }

    /// Returns the address in this process of memory on a PE's symmetric heap, if the heaps have a
    /// fixed size ([`SimConfig::heap`]). It is valid until the memory is freed, or the job dropped.
    /// Kernels use the memory while they run, so other users must first wait for all of them, as
    /// [`World::barrier`] does on every PE.
    ///
    /// # Errors
    /// Fails for memory that the PE does not have, or without fixed heaps (R0403).
    pub fn host_address(&self, pe: u32, address: u64, bytes: u64) -> Result<usize> {
        let mut state = self.0.lock();
        state.machine.host_address(pe as usize, address, bytes).map_err(|e| state::from_sim(&e))
    }

    /// Stops the whole job: every current and later wait of every PE ends with `R0405`. Kernels are
    /// stopped if the job has [`SimConfig::stop`].
    pub fn interrupt(&self) {
        if let Some(stop) = &self.0.settings.config.stop {
            stop.store(true, Ordering::Relaxed);
        }
        let e = Error::new(INTERRUPTED, "the simulated job was interrupted").help("start a new world");
        self.0.lock().fail(None, e);
    }

    /// Sets the seed for kernels that begin from now on.
    pub fn set_seed(&self, seed: u64) {
        self.0.lock().seed = seed;
    }

    /// The number of PEs of a node.
    pub fn node(&self) -> u32 {
        self.0.settings.node
    }
}

impl fmt::Debug for Simulation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Simulation({} PEs)", self.0.n_pes())
    }
}

/// Makes the error for a feature that simulated PEs do not have.
pub(crate) fn not_simulated(what: &str) -> Error {
    Error::new(SIMULATED, format!("a simulated PE does not have {what}"))
}
