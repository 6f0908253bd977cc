//! Simulated PEs: the same [`World`] on a laptop.
//!
//! The simulation lies below everything that programs see. A simulated PE is a thread of this process; its device, its
//! streams, events and graphs, its NVSHMEM and its connection with the other PEs are the few types that [`cuda`],
//! [`nvshmem`] and the job have in two kinds. Tensors, teams, checks of arguments, hidden parameters and collectives are
//! the same code as on GPUs.
//!
//! What streams are given waits until every PE's thread is blocked, or has ended. Then all kernels that can run do, at
//! the same time, on one [`weft_sim::Machine`], until a thread has what it waits for. The thread that called
//! [`SimJob::run`] carries the machine on, which stands still while a PE's thread runs. So one seed gives one run, however fast the threads are.
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
pub(crate) use nvshmem::{Found, Nvshmem, VERSION};
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
    /// Seed of the schedule, and of what NVSHMEM and the memory model leave open: one seed gives one run.
    pub seed: u64,
    /// Whether the seed also chooses how warps take turns, and how late others see weak stores
    /// ([`weft_sim::Config::explore`]).
    pub explore: bool,
    /// The checks that watch running kernels; see [`Simulation::findings`].
    pub check: Option<Check>,
    /// The number of PEs in a node. PEs of a node reach each other by loads and stores, and other PEs only by puts and
    /// gets. If it is not given, all PEs are in one node.
    pub node: Option<u32>,
    /// The number of PEs in a group, for kernels that choose at run time how they reach a PE (`Transport::Auto` of the
    /// compiler). Such a kernel carries an operation out in place within a group, and calls NVSHMEM's function between
    /// groups, so that both ways run although all PEs reach each other. If it is not given, the groups are the nodes.
    pub reach: Option<u32>,
    /// Whether teams have multicast addresses.
    pub multicast: bool,
    /// Whether a team of one PE has a multicast address too. NVSHMEM gives it none.
    pub multicast_of_one: bool,
    /// Streaming multiprocessors of a PE.
    pub sms: u32,
    /// The compute capability of the devices: code compiled for another architecture is refused as on a GPU.
    pub capability: (u32, u32),
    /// A timeline of what kernels do; see [`Simulation::take_trace`].
    pub trace: Option<TraceConfig>,
    /// Code that has been read. Clones of a configuration share it, so that jobs made with them read a text once.
    pub modules: Modules,
    /// Most bytes of memory of all PEs together.
    pub memory_limit: u64,
    /// Most instructions of warps between two moments in which no kernel runs.
    pub step_limit: u64,
    /// Time from one such moment to the next, after which kernels are given up, if there is a limit.
    pub time_limit: Option<Duration>,
    /// The number of bytes of each PE's symmetric heap, where it is fixed: see [`Simulation::host_address`].
    pub heap: Option<u64>,
    /// Gives up the kernels that run, and those to come, once it is set: see [`Simulation::interrupt`].
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
    /// One PE like an H200, without checks.
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

    /// Watches for data races and for reads of memory that nobody has written, on schedules of every kind.
    #[must_use]
    pub fn checked(self) -> SimConfig {
        self.check(Some(Check::default())).explore(true)
    }

    fn settings(&self) -> Result<Settings> {
        if self.n_pes == 0 || self.node == Some(0) || self.reach == Some(0) {
            let message = "a simulated job has at least one PE, and so has each of its nodes and groups";
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

/// A job of simulated PEs, none of which runs yet.
pub struct SimJob(Arc<Job>);

impl World {
    /// Makes a job of `n_pes` simulated PEs in this process, like H200s of one node: see [`SimJob::run`].
    ///
    /// # Errors
    /// Fails for no PE or too many, or a `WEFT_TIMEOUT` that is not a time (R0201).
    pub fn simulated(n_pes: u32) -> Result<SimJob> {
        World::simulated_with(&SimConfig::new(n_pes))
    }

    /// Creates PEs that are simulated in this process, as `config` says.
    ///
    /// # Errors
    /// Fails where [`simulated`](World::simulated) fails.
    pub fn simulated_with(config: &SimConfig) -> Result<SimJob> {
        Ok(SimJob(Job::new(config.settings()?)?))
    }
}

impl SimJob {
    /// Runs `body` as every PE, each in a thread with a [`World`] of its own, and finalizes. What each returned, by PE.
    ///
    /// # Errors
    /// Fails with the error of the PE that failed first: what `body` returned, R0203 if it panicked, or R0403
    /// if the simulator stopped the kernels. The other PEs get R0203 where they wait for it.
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

    /// The worlds of all PEs, by PE, which stay until they are finalized: for [`each`](SimJob::each). A job has one such
    /// set of worlds, and then no [`run`](SimJob::run).
    ///
    /// # Errors
    /// Fails if the simulator has stopped (R0403).
    pub fn worlds(&self) -> Result<Vec<World>> {
        self.threads(&World::of_simulated).into_iter().collect()
    }

    /// Calls `body` as every PE, each in a thread of its own, and returns when all have ended. Memory and streams stay
    /// for later calls. Unlike [`run`](SimJob::run), an error of one PE ends nothing: it is that PE's result, and PEs that
    /// wait for it get `R0301`. What each returned, by PE.
    pub fn each<T: Send, E: From<Error> + Send>(
        &self,
        worlds: &[World],
        body: impl Fn(&World) -> std::result::Result<T, E> + Sync,
    ) -> Vec<std::result::Result<T, E>> {
        let no_world = || E::from(Error::new(FINALIZED, "the simulated worlds have ended"));
        self.threads(&|pe: &Pe| body(worlds.get(pe.pe as usize).ok_or_else(no_world)?))
    }

    /// Calls `body` in a thread for each PE, and carries the machine on until all have ended.
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

/// The thread of a PE.
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
        place.fail("it has no thread");
        place.leave();
        Error::new(LAUNCHER, format!("no thread for PE {}: {e}", place.pe))
    })
}

/// What a PE's thread does.
fn main<T, E: From<Error> + fmt::Display>(
    pe: &Pe,
    body: &impl Fn(&World) -> std::result::Result<T, E>,
) -> std::result::Result<T, E> {
    let world = World::of_simulated(pe)?;
    // Nobody's body begins, and fails, before all are there.
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

    /// The timeline of what has run since the last call, if [`SimConfig::trace`] asked for one. Nothing of kernels that
    /// are running is in it.
    pub fn take_trace(&self) -> Trace {
        let mut state = self.0.lock();
        state.settle();
        state.machine.take_trace()
    }

    /// Counters of what has run so far, of all PEs together, and nothing of kernels that are running: one for each time
    /// that kernels began when none ran; with a check, one for each call of this function or
    /// [`findings`](Simulation::findings), and for every 64 kernels. What the host's own operations on streams executed is
    /// not counted in the instructions.
    pub fn stats(&self) -> Vec<Stats> {
        let mut state = self.0.lock();
        state.settle();
        state.stats.clone()
    }

    /// The error that stopped the kernels, if one has: a deadlock, or an access that no GPU allows. Every PE
    /// gets it as `R0403`.
    pub fn stopped(&self) -> Option<SimError> {
        self.0.lock().stopped.clone()
    }

    /// Reads memory of a PE from an address of its own on. Kernels of the PEs must have ended, and what they sent must have
    /// arrived, as after [`World::barrier`].
    ///
    /// # Errors
    /// Fails for bytes that the PE does not have there (R0403).
    pub fn read(&self, pe: u32, address: u64, data: &mut [u8]) -> Result<()> {
        let state = self.0.lock();
        state.machine.read(pe as usize, address, data).map_err(|e| state::from_sim(&e))
    }

    /// The address in this process of memory on a PE's symmetric heap, where the heaps have a fixed size
    /// ([`SimConfig::heap`]). It stays valid until the memory is freed, or the job dropped. Kernels use the memory while
    /// they run: whoever else uses it first waits for all of them, as [`World::barrier`] does on every PE.
    ///
    /// # Errors
    /// Fails for memory that the PE does not have there, or without fixed heaps (R0403).
    pub fn host_address(&self, pe: u32, address: u64, bytes: u64) -> Result<usize> {
        let mut state = self.0.lock();
        state.machine.host_address(pe as usize, address, bytes).map_err(|e| state::from_sim(&e))
    }

    /// Gives up what runs: every wait of every PE ends with `R0405`, and so does every later one. It stops kernels where
    /// the job has [`SimConfig::stop`].
    pub fn interrupt(&self) {
        if let Some(stop) = &self.0.settings.config.stop {
            stop.store(true, Ordering::Relaxed);
        }
        let e = Error::new(INTERRUPTED, "the simulated job was interrupted").help("start another world");
        self.0.lock().fail(None, e);
    }

    /// Another seed, for the kernels that begin from now on.
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

/// An error of something that simulated PEs do not have.
pub(crate) fn not_simulated(what: &str) -> Error {
    Error::new(SIMULATED, format!("a simulated PE has no {what}"))
}
