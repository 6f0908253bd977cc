//! The machine: PEs with their memories, and launches on them.

use crate::check::{Check, Finding};
use crate::codes;
use crate::error::SimError;
use crate::exec::access::{CLUSTER_SHIFT, Space};
use crate::exec::code::Code;
use crate::exec::run::Grid;
use crate::exec::trace::{Trace, TraceConfig};
use crate::memory::{AccessError, Memory, Name, Symmetric, Team};
use crate::module::Module;
use crate::names::Named;
use running::Running;
use shape::{check_shape, cluster, constants, cta_bytes, pack, per_sm};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

mod running;
mod shape;

pub use running::GridId;

/// The description of the machine to simulate.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Config {
    /// The number of PEs (GPUs), from 1 to 4096.
    pub n_pes: usize,
    /// The seed of the schedule and of the times at which remote operations complete. The same seed
    /// gives the same run.
    pub seed: u64,
    /// Whether the seed also chooses how warps take turns (long or short slices, few preemptions,
    /// PEs or CTAs that pause for long), and how many weak and relaxed stores become visible late.
    /// Without it, all warps take short turns, and every store is visible at once.
    pub explore: bool,
    /// The number of warp instructions after which a launch is stopped.
    pub step_limit: u64,
    /// The time after which a launch is stopped, if there is a limit.
    pub time_limit: Option<Duration>,
    /// The largest amount of memory of all PEs together, in bytes.
    pub memory_limit: u64,
    /// The byte that fills uninitialised memory. `0xff` makes every float a NaN and every index
    /// absurd.
    pub poison: u8,
    /// The number of streaming multiprocessors of a PE. With their limits of threads, CTAs and
    /// shared memory, they determine the CTAs that are resident at once. An H100 and an H200 have
    /// 132.
    pub sms: u32,
    /// The largest amount of shared memory of a CTA in bytes (227 KiB as on sm_90 and sm_100).
    pub shared_per_cta: u32,
    /// The largest amount of `vprintf` output of a launch that is kept, in bytes.
    pub print_limit: usize,
    /// Whether loads and stores reach peers' memory, so that `nvshmem_ptr` returns addresses.
    /// Without it, as between nodes, the function returns null for every other PE.
    pub peer_access: bool,
    /// Whether teams have multicast addresses, so that `nvshmemx_mc_ptr` returns them. Without it,
    /// the function returns null.
    pub multicast: bool,
    /// The checks that watch running kernels. `None` costs nothing.
    pub check: Option<Check>,
    /// The options of a timeline of the kernels. `None` costs nothing.
    pub trace: Option<TraceConfig>,
    /// The initial and final size of each PE's symmetric heap in bytes. Allocations on such a heap
    /// never move in the memory of this process ([`Machine::host_address`]). Without a size the
    /// heap grows on demand.
    pub heap: Option<u64>,
    /// A flag that stops running kernels with `S009` once another thread sets it.
    pub stop: Option<Arc<AtomicBool>>,
}

crate::setters!(
    Config {
        n_pes: usize,
        seed: u64,
        explore: bool,
        step_limit: u64,
        time_limit: Option<Duration>,
        memory_limit: u64,
        poison: u8,
        sms: u32,
        shared_per_cta: u32,
        print_limit: usize,
        peer_access: bool,
        multicast: bool,
        check: Option<Check>,
        trace: Option<TraceConfig>,
        heap: Option<u64>,
        stop: Option<Arc<AtomicBool>>,
    }
);

impl Default for Config {
    fn default() -> Self {
        Config {
            n_pes: 1,
            seed: 0,
            explore: false,
            step_limit: 1 << 33,
            time_limit: None,
            memory_limit: 8 << 30,
            poison: 0xff,
            sms: 132,
            shared_per_cta: 227 << 10,
            print_limit: 1 << 20,
            peer_access: true,
            multicast: true,
            check: None,
            trace: None,
            heap: None,
            stop: None,
        }
    }
}

/// An argument of a kernel.
#[derive(Debug, Clone, PartialEq)]
pub enum Arg {
    /// An unsigned integer of 1 byte.
    U8(u8),
    /// An integer of 2 bytes, or the bits of an f16 or bf16.
    U16(u16),
    /// An unsigned integer of 4 bytes.
    U32(u32),
    /// A signed integer of 4 bytes.
    I32(i32),
    /// An integer of 8 bytes, or a pointer.
    U64(u64),
    /// A signed integer of 8 bytes.
    I64(i64),
    /// A single-precision number of 4 bytes.
    F32(f32),
    /// A double-precision number of 8 bytes.
    F64(f64),
    /// The bytes of a structure.
    Bytes(Vec<u8>),
}

impl Arg {
    fn bytes(&self) -> Vec<u8> {
        match self {
            Arg::U8(v) => v.to_le_bytes().to_vec(),
            Arg::U16(v) => v.to_le_bytes().to_vec(),
            Arg::U32(v) => v.to_le_bytes().to_vec(),
            Arg::I32(v) => v.to_le_bytes().to_vec(),
            Arg::U64(v) => v.to_le_bytes().to_vec(),
            Arg::I64(v) => v.to_le_bytes().to_vec(),
            Arg::F32(v) => v.to_le_bytes().to_vec(),
            Arg::F64(v) => v.to_le_bytes().to_vec(),
            Arg::Bytes(v) => v.clone(),
        }
    }
}

/// One grid of a launch.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Launch {
    /// The PE that runs it.
    pub pe: usize,
    /// The number of CTAs in x, y, z.
    pub grid: [u32; 3],
    /// The number of threads of a CTA in x, y, z.
    pub block: [u32; 3],
    /// The number of CTAs of a cluster in x, y, z, which must divide those of the grid. `[1, 1, 1]`
    /// means no clusters, or those that the kernel's `.reqnctapercluster` requires.
    pub cluster: [u32; 3],
    /// The size of dynamic shared memory in bytes.
    pub dynamic_shared: u32,
    /// The arguments in the order of the kernel's parameters, each of its parameter's size.
    pub args: Vec<Arg>,
    /// The names of groups of threads, for reports.
    pub names: Arc<[Named]>,
}

crate::setters!(
    Launch {
        pe: usize,
        grid: [u32; 3],
        block: [u32; 3],
        cluster: [u32; 3],
        dynamic_shared: u32,
        args: Vec<Arg>,
        names: Arc<[Named]>,
    }
);

impl Default for Launch {
    /// A launch of one thread on PE 0, without arguments.
    fn default() -> Self {
        let one = [1, 1, 1];
        let names = Arc::new([]);
        Launch { pe: 0, grid: one, block: one, cluster: one, dynamic_shared: 0, args: Vec::new(), names }
    }
}

/// The largest number of CTAs of a cluster.
const MAX_CLUSTER: u32 = 16;

/// The largest number of PEs, whose pairs are mapped separately.
const MAX_PES: usize = 4096;

/// A module's variables on each PE.
struct Loaded {
    id: u64,
    /// For each PE that has loaded the module, the address of each variable, or 0 for shared
    /// variables.
    symbols: Vec<Option<Vec<u64>>>,
}

/// A machine of many PEs. Each PE has private memory, a symmetric heap, and a view of its peers'
/// heaps and of multicast ranges.
pub struct Machine {
    config: Config,
    memory: Memory,
    loaded: Vec<Loaded>,
    findings: Vec<Finding>,
    trace: Trace,
    /// The run with the grids that have begun.
    running: Option<Running>,
    /// The number of grids of runs that have ended.
    ended: u64,
    /// By PE, the number of launches in runs that have ended.
    launched: Vec<usize>,
}

impl std::fmt::Debug for Machine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Machine").field("config", &self.config).finish_non_exhaustive()
    }
}

fn host(e: AccessError) -> SimError {
    SimError::new(e.code, e.message, e.help)
}

impl Machine {
    /// Creates a machine without allocations.
    ///
    /// # Errors
    /// Fails if the number of PEs is not 1 to 4096 (S001).
    pub fn new(config: Config) -> Result<Machine, SimError> {
        if !(1..=MAX_PES).contains(&config.n_pes) {
            return Err(SimError::request(
                format!("{} PEs", config.n_pes),
                format!("use 1 to {MAX_PES} PEs"),
            ));
        }
        let launched = vec![0; config.n_pes];
        let mut memory = Memory::new(config.n_pes, config.poison, config.memory_limit);
        if let Some(bytes) = config.heap {
            memory.fix_heap(bytes)?;
        }
        if config.check.as_ref().is_some_and(|c| c.uninitialised) {
            memory.remember_writes();
        }
        Ok(Machine {
            config,
            memory,
            loaded: Vec::new(),
            findings: Vec::new(),
            trace: Trace::default(),
            running: None,
            ended: 0,
            launched,
        })
    }

    /// Returns the configuration of the machine.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Takes the findings of [`Config::check`] in the launches since the last call, in the order in which
    /// they were found. It also works after a launch that ended in an error.
    pub fn take_findings(&mut self) -> Vec<Finding> {
        std::mem::take(&mut self.findings)
    }

    /// Takes the timeline of the launches since the last call, one launch after another, if
    /// [`Config::trace`] requests one. It includes a launch that ended in an error.
    pub fn take_trace(&mut self) -> Trace {
        std::mem::take(&mut self.trace)
    }

    /// Changes the seed for later launches.
    pub fn set_seed(&mut self, seed: u64) {
        self.config.seed = seed;
    }

    fn check_pe(&self, pe: usize) -> Result<(), SimError> {
        if pe < self.config.n_pes {
            return Ok(());
        }
        Err(SimError::request(
            format!("PE {pe} does not exist"),
            format!("the machine has {} PEs", self.config.n_pes),
        ))
    }

    /// Allocates on the symmetric heap: `bytes` on every PE, at the same offset, filled with poison.
    ///
    /// # Errors
    /// Fails for an alignment that is not a power of two up to 1 MiB (S001), or beyond the memory limit
    /// (S012).
    pub fn alloc_symmetric(&mut self, name: &str, bytes: u64, align: u64) -> Result<Symmetric, SimError> {
        self.memory.alloc_symmetric(name, bytes, align)
    }

    /// Changes the name of an allocation on the symmetric heap.
    pub fn set_name(&mut self, of: Symmetric, name: impl Into<Name>) {
        self.memory.set_name(of, name.into());
    }

    /// Allocates in the private memory of one PE, and returns the address.
    ///
    /// # Errors
    /// Fails where [`alloc_symmetric`](Self::alloc_symmetric) fails, or if the PE does not exist
    /// (S001).
    pub fn alloc(&mut self, pe: usize, name: &str, bytes: u64, align: u64) -> Result<u64, SimError> {
        self.check_pe(pe)?;
        self.memory.alloc_private(pe, name, bytes, align, false)
    }

    /// Changes the name of an allocation in the private memory of one PE.
    pub fn set_private_name(&mut self, pe: usize, addr: u64, name: impl Into<Name>) {
        if self.check_pe(pe).is_ok() {
            self.memory.set_private_name(pe, addr, name.into());
        }
    }

    /// Creates a team of PEs, in the order in which reductions use them. It gets a multicast range
    /// and a [handle](Team::handle) for kernels. [`Team::WORLD`] always exists.
    ///
    /// # Errors
    /// Fails if the list is empty, or names a PE twice or a PE that does not exist (S001).
    pub fn team(&mut self, pes: &[usize]) -> Result<Team, SimError> {
        for (i, &pe) in pes.iter().enumerate() {
            self.check_pe(pe)?;
            if pes[..i].contains(&pe) {
                return Err(SimError::request(format!("PE {pe} is in the team twice"), "name each PE once"));
            }
        }
        if pes.is_empty() {
            return Err(SimError::request("a team needs at least one PE", ""));
        }
        Ok(self.memory.add_team(pes))
    }

    /// Returns the address of the PE's own copy of a symmetric allocation.
    ///
    /// # Errors
    /// Fails if the PE does not exist (S001).
    pub fn local_addr(&self, pe: usize, what: Symmetric) -> Result<u64, SimError> {
        self.peer_addr(pe, what, pe)
    }

    /// Returns the address at which `viewer` reaches the copy of `target`, which is the result of
    /// `nvshmem_ptr`.
    ///
    /// # Errors
    /// Fails if a PE does not exist (S001).
    pub fn peer_addr(&self, viewer: usize, what: Symmetric, target: usize) -> Result<u64, SimError> {
        self.check_pe(viewer)?;
        self.check_pe(target)?;
        Ok(self.memory.peer_addr(viewer, target, what.offset))
    }

    /// Returns the address at which `viewer` reaches all copies of the team at once, which is the
    /// result of `nvshmemx_mc_ptr`.
    ///
    /// # Errors
    /// Fails if `viewer` is not in the team (S001).
    pub fn multicast_addr(&self, viewer: usize, what: Symmetric, team: Team) -> Result<u64, SimError> {
        self.memory.multicast_addr(viewer, team.0, what.offset).ok_or_else(|| {
            SimError::request(
                format!("PE {viewer} is not in the team"),
                "only members have the team's multicast address",
            )
        })
    }

    /// Frees an allocation on the symmetric heap. Its addresses may be given to later ones.
    ///
    /// # Errors
    /// Fails if it has been freed (S001).
    pub fn free_symmetric(&mut self, s: Symmetric) -> Result<(), SimError> {
        self.memory.free_symmetric(s)
    }

    /// Frees an allocation in the private memory of one PE.
    ///
    /// # Errors
    /// Fails if no allocation begins at that address (S001).
    pub fn free(&mut self, pe: usize, addr: u64) -> Result<(), SimError> {
        self.check_pe(pe)?;
        self.memory.free_private(pe, addr)
    }

    /// Maps an allocation in the private memory of one PE to the symmetric heap, with its contents.
    /// It can then be reached at both addresses.
    ///
    /// # Errors
    /// Fails if no allocation begins at that address, or if it is already registered (S001).
    pub fn register(&mut self, pe: usize, addr: u64, on_heap: Symmetric) -> Result<(), SimError> {
        self.check_pe(pe)?;
        self.memory.alias(pe, addr, Some(on_heap))
    }

    /// Undoes [`register`](Self::register). The contents stay in the private memory.
    ///
    /// # Errors
    /// Fails if the allocation is not registered (S001).
    pub fn unregister(&mut self, pe: usize, addr: u64) -> Result<(), SimError> {
        self.check_pe(pe)?;
        self.memory.alias(pe, addr, None)
    }

    /// Returns the number of free bytes in a PE's private memory, or in the symmetric heap of each
    /// PE if `pe` is none.
    pub fn room(&self, pe: Option<usize>) -> u64 {
        self.memory.room(pe.filter(|pe| *pe < self.config.n_pes))
    }

    /// Returns the address at which `viewer` reaches the memory of PE `of` that corresponds to the
    /// viewer's own symmetric address `addr`.
    ///
    /// # Errors
    /// Fails if a PE does not exist (S001), or if the address is not symmetric (S013).
    pub fn peer_of(&self, viewer: usize, addr: u64, of: usize) -> Result<u64, SimError> {
        self.check_pe(viewer)?;
        self.check_pe(of)?;
        let offset = self.memory.symmetric(viewer, addr, 1).map_err(host)?;
        Ok(self.memory.peer_addr(viewer, of, offset))
    }

    /// Returns the multicast address at which `viewer` reaches all copies of the memory at the
    /// symmetric address `addr`, or none for a PE outside the team.
    ///
    /// # Errors
    /// Fails where [`peer_of`](Self::peer_of) fails.
    pub fn multicast_of(&self, viewer: usize, team: Team, addr: u64) -> Result<Option<u64>, SimError> {
        self.check_pe(viewer)?;
        let offset = self.memory.symmetric(viewer, addr, 1).map_err(host)?;
        Ok(self.memory.multicast_addr(viewer, team.0, offset))
    }

    /// Writes memory that `pe` can address by plain accesses.
    ///
    /// # Errors
    /// Fails with `S002` to `S005` under the same conditions as a kernel's access.
    pub fn write(&mut self, pe: usize, addr: u64, data: &[u8]) -> Result<(), SimError> {
        self.check_pe(pe)?;
        if !data.is_empty() {
            let w = self.memory.window(pe, addr, data.len() as u64).map_err(host)?;
            self.memory.store(&w, addr, data);
        }
        Ok(())
    }

    /// Makes the stores of kernels visible to all PEs and to the host, as after a wait of the host
    /// for these kernels. Stores of running kernels, which could become visible later, also become
    /// visible.
    pub fn land_stores(&mut self) {
        self.memory.land_every();
    }

    /// Reads memory that `pe` can address by plain accesses.
    ///
    /// # Errors
    /// Fails with `S002` to `S005` under the same conditions as a kernel's access.
    pub fn read(&self, pe: usize, addr: u64, out: &mut [u8]) -> Result<(), SimError> {
        self.check_pe(pe)?;
        if !out.is_empty() {
            let w = self.memory.window(pe, addr, out.len() as u64).map_err(host)?;
            out.copy_from_slice(self.memory.bytes(&w, addr, out.len()));
        }
        Ok(())
    }

    /// Returns the address in this process of memory that `pe` can address by plain accesses, in a
    /// heap of a fixed size ([`Config::heap`]). It is valid as long as the machine, or until the
    /// memory is freed. Kernels use the memory while they run, so other users must wait for them.
    ///
    /// # Errors
    /// Fails if the heap's size is not fixed, or if the memory is not on a heap (S001). Fails with
    /// `S002` to `S005` under the same conditions as a kernel's access.
    pub fn host_address(&mut self, pe: usize, addr: u64, bytes: u64) -> Result<usize, SimError> {
        self.check_pe(pe)?;
        let spot = self.memory.spot(pe, addr, bytes, true).map_err(host)?;
        self.memory.host_address(spot).ok_or_else(|| {
            SimError::request("the memory has no fixed address in this process", "set `Config::heap`")
        })
    }

    /// Describes the address by its allocation, offset and size.
    pub fn describe(&self, pe: usize, addr: u64) -> String {
        self.memory.describe(pe, addr)
    }

    /// Returns the address of a module's `.global` or `.const` variable on a PE, and loads the
    /// module if needed. Like a loaded CUDA module, it keeps its variables between launches.
    ///
    /// # Errors
    /// Fails if there is no such variable (S001), or beyond the memory limit (S012).
    pub fn symbol(&mut self, pe: usize, module: &Module, name: &str) -> Result<u64, SimError> {
        self.check_pe(pe)?;
        let variables = &module.inner.variables;
        match variables.iter().position(|v| v.name == name && v.space != Space::Shared) {
            Some(i) => Ok(self.load(pe, &module.inner)?[i]),
            None => Err(SimError::request(format!("the module has no global variable `{name}`"), "")),
        }
    }

    /// Allocates a module's variables on a PE once, and returns their addresses.
    fn load(&mut self, pe: usize, code: &Code) -> Result<&[u64], SimError> {
        let known = self.loaded.iter().position(|l| l.id == code.id);
        let loaded = known.unwrap_or_else(|| {
            self.loaded.push(Loaded { id: code.id, symbols: vec![None; self.config.n_pes] });
            self.loaded.len() - 1
        });
        if self.loaded[loaded].symbols[pe].is_none() {
            let addresses = self.place(pe, code)?;
            self.loaded[loaded].symbols[pe] = Some(addresses);
        }
        Ok(self.loaded[loaded].symbols[pe].as_deref().unwrap_or_default())
    }

    fn place(&mut self, pe: usize, code: &Code) -> Result<Vec<u64>, SimError> {
        let mut addresses = Vec::new();
        for v in &code.variables {
            addresses.push(match v.space {
                Space::Shared => 0,
                space => self.memory.alloc_private(pe, &v.name, v.size, v.align, space == Space::Const)?,
            });
        }
        for (v, &addr) in code.variables.iter().zip(&addresses) {
            if v.space == Space::Shared || v.size == 0 {
                continue;
            }
            // Variables without an initial value are zero.
            let mut bytes = vec![0; v.size as usize];
            bytes[..v.init.len()].copy_from_slice(&v.init);
            for r in &v.relocations {
                let value = addresses[r.variable].wrapping_add(r.offset as u64);
                bytes[r.at..r.at + r.size].copy_from_slice(&value.to_le_bytes()[..r.size]);
            }
            let w = self.memory.window(pe, addr, v.size).map_err(host)?;
            self.memory.store(&w, addr, &bytes);
        }
        Ok(addresses)
    }

    /// Checks a grid against the kernel and packs its parameters.
    fn grid(&self, code: &Arc<Code>, k: usize, g: &Launch, symbols: &[u64]) -> Result<Grid, SimError> {
        let kernel = &code.kernels[k];
        let name = &kernel.name;
        let threads = check_shape(kernel, g)?;
        let cluster = cluster(kernel, g)?;
        let per_cluster: u32 = cluster.iter().product();
        let shared = u64::from(kernel.shared_bytes) + u64::from(g.dynamic_shared);
        if shared > u64::from(self.config.shared_per_cta).min(1 << CLUSTER_SHIFT) {
            let message = format!("`{name}` with {shared} bytes of shared memory");
            return Err(SimError::request(
                message,
                format!("a CTA can have at most {}", self.config.shared_per_cta),
            ));
        }
        let resident = self.config.sms.saturating_mul(per_sm(threads, shared as u32)).max(1);
        let host_bytes = cta_bytes(&code.functions[code.kernel_code[k].function], threads, shared);
        let affordable = self.config.memory_limit / host_bytes.max(1);
        if affordable < per_cluster.into() {
            let message = format!(
                "{per_cluster} CTAs of `{name}` need {host_bytes} bytes each for registers, local and shared memory"
            );
            return Err(SimError::new(
                codes::MEMORY_LIMIT,
                message,
                "raise `Config::memory_limit` or use less local memory",
            ));
        }
        Ok(Grid {
            pe: g.pe,
            module: Arc::clone(code),
            image: 0,
            entry: k,
            dims: g.grid,
            cluster,
            block: g.block,
            dynamic_shared: g.dynamic_shared,
            params: pack(kernel, &g.args)?,
            names: Arc::clone(&g.names),
            consts: constants(code, k, symbols),
            resident: (resident.min(u32::try_from(affordable).unwrap_or(u32::MAX)) / per_cluster).max(1)
                * per_cluster,
            total: g.grid.iter().map(|&d| u64::from(d)).product(),
            next: 0,
            running: 0,
            after: Vec::new(),
            early: None,
            lets: 0,
        })
    }
}
