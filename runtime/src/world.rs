//! This process as one of the PEs: NVSHMEM on all of them, and their common operations.

use crate::cuda::{Device, Stream, device_count};
use crate::direct::Direct;
use crate::error::{self, Error, Result};
use crate::find;
use crate::job::{Control, Options, ProcessRank};
use crate::nvshmem::Version;
use crate::nvshmem::{self, Host, Library, sys};
use crate::peers::Peers;
use crate::registry::{Leak, Registry};
use crate::simulated::{Nvshmem, Pe, Simulation};
use std::ops::Deref;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// This flag is set permanently at the first start, since NVSHMEM has one state in a process.
static STARTED: AtomicBool = AtomicBool::new(false);

/// The options of a world. The default suits most programs.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Config {
    /// The number of the GPU among those that CUDA sees. If it is not given, it is the PE's rank on
    /// its host, or the only GPU.
    pub device: Option<u32>,
    /// The path of the host library, which is searched for if it is not given.
    pub library: Option<PathBuf>,
    /// The library that makes memory symmetric. If not given, `WEFT_MEMORY` names it, `nvshmem` or `local`.
    /// The default is NVSHMEM.
    pub memory: Option<Memory>,
    /// The time that the PEs wait for each other, and the reaction of this process to the death of
    /// another PE. If it is not given, the environment determines it.
    pub job: Option<Options>,
    /// Whether several PEs can share one GPU, in a world without NVSHMEM. Their kernels that wait
    /// for each other then run in turns, which takes milliseconds, so this is for tests.
    /// `WEFT_SHARE_GPU=1` also allows it.
    pub share_gpu: bool,
    /// Whether the PEs compare each collective on a stream before they call it, so that a
    /// difference is an error and not a hang. It costs the host an exchange: 21, 44 and 104 us with
    /// 2, 4 and 8 PEs (medians, on two cores). If it is not given, `WEFT_CHECK=0` disables it.
    pub checks: Option<bool>,
}

weft_sim::setters!(
    Config {
        device: Option<u32>,
        library: Option<PathBuf>,
        memory: Option<Memory>,
        job: Option<Options>,
        share_gpu: bool,
        checks: Option<bool>,
    }
);

impl Config {
    fn connect(&self, place: &ProcessRank) -> Result<Arc<Control>> {
        match self.job {
            Some(options) => Control::connect_with(place, options),
            None => Control::connect(place),
        }
    }
}

/// The library that makes memory symmetric.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Memory {
    /// NVSHMEM, between the GPUs of one host or of several.
    Nvshmem,
    /// The PEs themselves, all on one host: each maps the memory of the others (CUDA's virtual
    /// memory functions), and NVSHMEM is neither needed nor started. NVSHMEM device functions are
    /// errors; kernels are compiled to use direct loads and stores.
    Local,
}

impl Memory {
    fn from_env() -> Result<Memory> {
        match std::env::var("WEFT_MEMORY").unwrap_or_default().as_str() {
            "" | "nvshmem" => Ok(Memory::Nvshmem),
            "local" => Ok(Memory::Local),
            other => Err(Error::new(error::LAUNCHER, format!("WEFT_MEMORY is `{other}`"))
                .help("set it to `nvshmem` or `local`")),
        }
    }
}

/// All PEs in the view of this one. Clones are the same world.
///
/// Calls marked *collective* must be made by all PEs in the same order with the same sizes. Each is
/// checked, and a PE whose call differs causes an error on every PE instead of a hang.
///
/// Threads can share a world. NVSHMEM is started at its level `NVSHMEM_THREAD_SERIALIZED`, so its
/// calls take turns, and [`World::init`] fails if NVSHMEM supports less. Threads that make
/// collective calls must agree on their order among themselves.
#[derive(Clone)]
pub struct World(pub(crate) Arc<Inner>);

pub(crate) struct Inner {
    pub library: Library,
    pub device: Device,
    pub stream: Stream,
    /// A stream for tables of addresses, which are also created while another stream is captured.
    pub side: Stream,
    pub control: Peers,
    /// The ranks 0 to n_pes - 1.
    pub everyone: Arc<[u32]>,
    pub registry: Mutex<Registry>,
    ended: AtomicBool,
    /// The number of calls in progress, which the end waits for.
    users: AtomicUsize,
    /// Whether the PEs compare their collectives on streams before they call them.
    checks: bool,
}

/// A call in progress. NVSHMEM does not end during it.
pub(crate) struct Entered<'a>(&'a Inner);

impl Deref for Entered<'_> {
    type Target = Inner;

    fn deref(&self) -> &Inner {
        self.0
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        self.0.users.fetch_sub(1, Ordering::SeqCst);
    }
}

/// The facts that each PE sends to the others before memory is shared, so that an impossible setup
/// ends with a reason.
struct Hello {
    /// The version of NVSHMEM, or of warpweft without NVSHMEM.
    version: String,
    host: String,
    gpu: String,
}

impl World {
    /// Joins the job that the environment describes ([`ProcessRank::detect`]). Without a job, the
    /// world has one PE. This call is *collective*.
    ///
    /// # Errors
    /// Fails if a library or a GPU is missing (R01xx), or if a PE did not arrive (R02xx).
    pub fn init() -> Result<World> {
        let place = ProcessRank::detect()?.unwrap_or_else(ProcessRank::alone);
        World::join(&place, &Config::default())
    }

    /// Joins a job like [`init`](World::init), without NVSHMEM, if all PEs are on this host. A
    /// process can be in several such worlds. This call is *collective*.
    ///
    /// # Errors
    /// Fails where [`init`](World::init) fails.
    pub fn local() -> Result<World> {
        let place = ProcessRank::detect()?.unwrap_or_else(ProcessRank::alone);
        World::join(&place, &Config::default().memory(Some(Memory::Local)))
    }

    /// Joins the job in which this process has the given place. This call is *collective*.
    ///
    /// # Errors
    /// Fails where [`init`](World::init) fails.
    pub fn join(place: &ProcessRank, config: &Config) -> Result<World> {
        let memory = config.memory.map_or_else(Memory::from_env, Ok)?;
        if memory == Memory::Local {
            let control = config.connect(place)?;
            let started = World::start_local(place, config, control.clone());
            return started.inspect_err(|e| control.fail(&e.to_string()));
        }
        if STARTED.swap(true, Ordering::SeqCst) {
            return Err(Error::new(error::STARTED_TWICE, "this process has already joined a job")
                .help("use clones of the first World, which are the same world"));
        }
        let joined = config.connect(place).and_then(|control| {
            World::start(place, config, control.clone()).inspect_err(|e| control.fail(&e.to_string()))
        });
        if joined.is_err() && !nvshmem::begun() {
            // The same call may succeed once the missing part exists.
            STARTED.store(false, Ordering::SeqCst);
        }
        joined
    }

    fn start(place: &ProcessRank, config: &Config, control: Arc<Control>) -> Result<World> {
        let everyone: Vec<u32> = (0..place.size).collect();
        let path = match &config.library {
            Some(path) => path.clone(),
            None => find::nvshmem_host()?.path,
        };
        let (device, host) = device(place, config, &control, &everyone)?;
        let library = Host::open(&path)?;
        let hello = Hello { version: library.version().to_string(), host, gpu: device.uuid()? };
        let all = control.exchange(&everyone, "init", hello.to_line().as_bytes())?;
        agree(&all, true)?;

        let id = if place.rank == 0 { library.unique_id()? } else { sys::UniqueId::new() };
        let ids = control.exchange(&everyone, "init: unique id", &id.internal)?;
        let mut id = sys::UniqueId::new();
        match ids.first().and_then(|b| b.as_slice().try_into().ok()) {
            Some(bytes) => id.internal = bytes,
            None => return Err(Error::new(error::BOOTSTRAP, "PE 0 sent no unique id")),
        }
        library.init(place.rank, place.size, id)?;
        // Its shared memory would remain if it were killed now.
        control.tell_of_segments();
        let checks = config.checks.unwrap_or_else(checks);
        World::of(Library::Host(library), device, Peers::Job(control), checks)
    }

    fn start_local(place: &ProcessRank, config: &Config, control: Arc<Control>) -> Result<World> {
        let everyone: Vec<u32> = (0..place.size).collect();
        let (device, host) = device(place, config, &control, &everyone)?;
        let hello =
            Hello { version: env!("CARGO_PKG_VERSION").into(), host: host.clone(), gpu: device.uuid()? };
        let all = control.exchange(&everyone, "init", hello.to_line().as_bytes())?;
        agree(&all, !(config.share_gpu || gpus_are_shared()))?;
        if let Some(pe) = all.iter().position(|other| Hello::field(other, 1) != host) {
            let message = format!("PE {pe} is on {}, but this PE is on {host}", Hello::field(&all[pe], 1));
            return Err(Error::new(error::BOOTSTRAP, message).help(
                "use World::init, which uses NVSHMEM between hosts: World::local works only on one host",
            ));
        }
        let peers = Peers::Job(control);
        let library = Library::Direct(Direct::start(&device, &peers)?);
        World::of(library, device, peers, config.checks.unwrap_or_else(checks))
    }

    /// The world of a simulated PE.
    pub(crate) fn of_simulated(pe: &Pe) -> Result<World> {
        let library = Library::Simulated(Nvshmem(pe.clone()));
        World::of(library, Device::simulated(pe), Peers::Simulated(pe.clone()), checks())
    }

    fn of(library: Library, device: Device, control: Peers, checks: bool) -> Result<World> {
        let (stream, side) = (device.new_stream()?, device.new_stream()?);
        let registry = Mutex::new(Registry::default());
        let (ended, users) = (AtomicBool::new(false), AtomicUsize::new(0));
        let everyone = (0..control.size()).collect();
        Ok(World(Arc::new(Inner {
            library,
            device,
            stream,
            side,
            control,
            everyone,
            registry,
            ended,
            users,
            checks,
        })))
    }

    /// The rank of this PE.
    pub fn my_pe(&self) -> u32 {
        self.0.control.rank()
    }

    /// The number of PEs.
    pub fn n_pes(&self) -> u32 {
        self.0.control.size()
    }

    /// The GPU of this PE.
    pub fn device(&self) -> &Device {
        &self.0.device
    }

    /// Returns a stream of this PE's GPU, for programs that need only one.
    pub fn stream(&self) -> &Stream {
        &self.0.stream
    }

    /// Returns the version of NVSHMEM. In a simulated world it is the version whose functions the
    /// simulator has, and in a world [without NVSHMEM](World::local) it is none.
    pub fn nvshmem_version(&self) -> Option<Version> {
        self.0.library.version()
    }

    /// The functions that only a simulated world has: findings and statistics. On GPUs, it is none.
    pub fn simulation(&self) -> Option<Simulation> {
        self.0.device.pe().map(Simulation::of)
    }

    /// The path that NVSHMEM was loaded from, which is empty in a simulated world.
    pub fn nvshmem_path(&self) -> &std::path::Path {
        self.0.library.path()
    }

    /// Waits, on the host, until all PEs have arrived and their remote operations are complete.
    /// This call is *collective*.
    ///
    /// # Errors
    /// Fails if a PE makes another call (R0301), or if one died (R0203).
    pub fn barrier(&self) -> Result<()> {
        let inner = self.0.enter()?;
        inner.device.wait()?;
        inner.together("barrier", &[])?;
        inner.library.barrier_all()
    }

    /// Waits like [`barrier`](World::barrier), until the other PEs arrive or one dies. This call is
    /// *collective*.
    ///
    /// # Errors
    /// Fails where [`barrier`](World::barrier) fails, except that PEs can take any time to arrive.
    pub fn wait_for_all(&self) -> Result<()> {
        let inner = self.0.enter()?;
        inner.device.wait()?;
        inner.control.exchange_patiently(&inner.everyone, "wait_for_all", &[])?;
        inner.library.barrier_all()
    }

    /// Gathers the bytes of every PE, in the order of their ranks; for values that programs agree
    /// on. This call is *collective*.
    ///
    /// # Errors
    /// Fails where [`barrier`](World::barrier) fails.
    pub fn all_gather_host(&self, bytes: &[u8]) -> Result<Vec<Vec<u8>>> {
        self.0.enter()?.together("all_gather_host", bytes)
    }

    /// Returns the first PE that has died and the reason, if one has.
    pub fn died(&self) -> Option<(u32, String)> {
        self.0.control.died()
    }

    /// Ends the job for a reason of this PE: all others get `R0203` with it, and NVSHMEM is not
    /// finalized. This process can continue without the world.
    pub fn fail(&self, why: &str) {
        if !self.0.ended.swap(true, Ordering::SeqCst) {
            self.0.control.fail(why);
        }
    }

    /// Frees the memory that was exported by DLPack and is no longer used on any PE. This call is
    /// *collective*.
    ///
    /// # Errors
    /// Fails where [`barrier`](World::barrier) fails.
    pub fn collect(&self) -> Result<()> {
        self.0.enter()?.collect("collect")
    }

    /// Frees the exported memory that is no longer used anywhere, then ends NVSHMEM. Returns the
    /// remaining allocations, and reports them on standard error. This call is *collective*.
    ///
    /// # Errors
    /// Fails where [`barrier`](World::barrier) fails.
    pub fn finalize(self) -> Result<Vec<Leak>> {
        self.0.finalize()
    }
}

impl Inner {
    /// Checks, before every NVSHMEM call, that NVSHMEM has not ended, and makes the GPU's context
    /// current in this thread.
    pub fn enter(&self) -> Result<Entered<'_>> {
        self.users.fetch_add(1, Ordering::SeqCst);
        let entered = Entered(self);
        if self.ended() {
            return Err(Error::new(error::FINALIZED, "NVSHMEM has been finalized")
                .help("drop tensors, teams and kernels before World::finalize"));
        }
        self.device.bind()?;
        Ok(entered)
    }

    /// Checks that the world has a PE of this rank, and returns the rank.
    pub fn member(&self, pe: u32) -> Result<u32> {
        match pe < self.control.size() {
            true => Ok(pe),
            false => Err(Error::new(
                error::NOT_IN_TEAM,
                format!("PE {pe} does not exist: the world has {} PEs", self.control.size()),
            )),
        }
    }

    pub fn ended(&self) -> bool {
        self.ended.load(Ordering::SeqCst)
    }

    /// Whether collectives on that stream are compared first. In a capture nothing runs, so they
    /// are not.
    pub fn checks(&self, stream: &Stream) -> bool {
        self.checks && !stream.is_capturing()
    }

    /// Makes an exchange of all PEs.
    pub fn together(&self, what: &str, payload: &[u8]) -> Result<Vec<Vec<u8>>> {
        self.control.exchange(&self.everyone, what, payload)
    }

    /// Makes an exchange of these PEs in which this one gives the reason why it cannot take part.
    /// The others get that reason instead of waiting.
    pub fn refuse(&self, members: &[u32], e: Error) -> Error {
        // Whatever the result is, the reason is this PE's own.
        let _ = self.control.exchange(members, &format!("nothing, since {}", e.message), &[]);
        e
    }

    pub fn registry(&self) -> MutexGuard<'_, Registry> {
        // A panic in another thread leaves the list consistent.
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn finalize(&self) -> Result<Vec<Leak>> {
        drop(self.enter()?);
        self.together("finalize", &[])?;
        self.device.wait()?;
        self.collect("finalize")?;
        self.together("finalize", &[])?;
        if self.ended.swap(true, Ordering::SeqCst) {
            return Ok(Vec::new());
        }
        // Wait for the calls of other threads of this PE. (Their next calls see the end.)
        let began = Instant::now();
        while self.users.load(Ordering::SeqCst) > 0 {
            if began.elapsed() > self.control.timeout() {
                return Err(Error::new(
                    error::NOT_DONE,
                    "another thread's call is still in progress at finalize",
                ));
            }
            std::thread::sleep(Duration::from_micros(100));
        }
        let leaks = self.registry().leaks();
        for leak in &leaks {
            eprintln!("PE {}: not freed at finalize: {leak}", self.control.rank());
        }
        self.library.finalize();
        self.control.goodbye();
        Ok(leaks)
    }

    /// Prints an error at the end, unless another PE died, which was already reported.
    pub fn print_error(&self, what: &str, e: &Error) {
        if self.control.died().is_none() {
            eprintln!("PE {}: {what}: {e}", self.control.rank());
        }
    }
}

/// Handles the end of a program without [`World::finalize`]. If all PEs reach it, it is a normal
/// end; a program that failed has its own error to report.
impl Drop for Inner {
    fn drop(&mut self) {
        if self.ended() {
            return;
        }
        if std::thread::panicking() {
            self.control.fail("panicked");
        } else if let Err(e) = self.finalize() {
            self.control.fail(&format!("ended before the others: {}", e.message));
        }
    }
}

impl Hello {
    fn to_line(&self) -> String {
        format!("{}\n{}\n{}", self.version, self.host, self.gpu)
    }

    /// Line `n` of a PE's facts: version, host, GPU.
    fn field(told: &[u8], n: usize) -> String {
        String::from_utf8_lossy(told).lines().nth(n).unwrap_or("?").to_owned()
    }
}

/// Returns the device of this PE, whose context is current in this thread from now on, and the
/// host's name. This call is *collective*.
fn device(
    place: &ProcessRank,
    config: &Config,
    control: &Control,
    everyone: &[u32],
) -> Result<(Device, String)> {
    let host = host_name();
    let hosts = control.exchange(everyone, "init: hosts", host.as_bytes())?;
    // The number of PEs with a lower rank on this host.
    let before = hosts.iter().take(place.rank as usize).filter(|h| **h == host.as_bytes()).count();
    let local_rank = place.local_rank.unwrap_or(before as u32);
    // A launcher may make only its own GPU visible to each PE. (Whether two PEs share a GPU is
    // checked later.)
    let usual = match device_count()? {
        1 => 0,
        count if gpus_are_shared() => local_rank % count.max(1),
        _ => local_rank,
    };
    crate::cuda::this_is(place.rank);
    let device = Device::open(config.device.unwrap_or(usual))?;
    device.bind()?;
    Ok((device, host))
}

/// Whether several PEs can share one GPU: `WEFT_SHARE_GPU=1`.
pub(crate) fn gpus_are_shared() -> bool {
    std::env::var("WEFT_SHARE_GPU").is_ok_and(|v| v == "1")
}

/// Checks that all PEs have the same version, and that no two share a GPU if each must have its
/// own.
fn agree(all: &[Vec<u8>], own_gpus: bool) -> Result<()> {
    let field = |pe: usize, n: usize| all.get(pe).map_or_else(String::new, |told| Hello::field(told, n));
    for pe in 1..all.len() {
        if field(pe, 0) != field(0, 0) {
            return Err(Error::new(
                error::NVSHMEM_VERSION,
                format!("PE 0 has version {}, but PE {pe} has {}", field(0, 0), field(pe, 0)),
            )
            .help("install one version of NVSHMEM and of warpweft on all hosts"));
        }
        let same = |q: &usize| own_gpus && field(*q, 2) == field(pe, 2) && field(*q, 1) == field(pe, 1);
        if let Some(other) = (0..pe).find(same) {
            return Err(Error::new(
                error::NO_GPU,
                format!("PEs {other} and {pe} use the same GPU, {}, on {}", field(pe, 2), field(pe, 1)),
            )
            .help("start one PE for each GPU: the launcher's local rank selects the GPU"));
        }
    }
    Ok(())
}

/// The value of `WEFT_CHECK`, which is on unless it is 0.
fn checks() -> bool {
    std::env::var("WEFT_CHECK").map_or(true, |v| v != "0")
}

fn host_name() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname").map_or_else(|_| "?".into(), |s| s.trim().into())
}
