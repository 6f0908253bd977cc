//! NVSHMEM of a simulated PE: the functions of the host library, on the machine that the PEs share.

use super::calls;
use super::job::Pe;
use super::state::Kernel;
use super::stream::Stream;
use crate::DType;
use crate::error::{Error, NVSHMEM, OPERATION, Result};
use crate::nvshmem::{Collective, PutSignal, Version, sys};
use std::sync::Arc;
use weft_sim::{Arg, Name};

/// The NVSHMEM version whose functions are built into the simulator.
pub(crate) const VERSION: Version = Version::new(3, 8, 0);

/// The NVSHMEM of one PE.
pub(crate) struct Nvshmem(pub Pe);

/// The function of a collective, and the number of counted units for each element.
pub(crate) struct CollectiveFunction {
    function: String,
    scale: usize,
}

impl Nvshmem {
    fn pe(&self) -> usize {
        self.0.pe as usize
    }

    fn members(&self, team: sys::Team) -> Option<Vec<u32>> {
        self.0.job.lock().heap.team(team).map(|(_, members)| members.clone())
    }

    /// Returns this PE's handle of a predefined team of NVSHMEM; other handles are unchanged.
    pub fn resolve(&self, team: sys::Team) -> sys::Team {
        let predefined = self.0.job.lock().heap.predefined[self.pe()];
        match team {
            sys::TEAM_NODE | sys::TEAM_SHARED => predefined[0],
            sys::TEAM_SAME_MYPE_NODE => predefined[1],
            other => other,
        }
    }

    pub fn alloc(&self, name: &str, bytes: usize, align: usize) -> u64 {
        let made = self.0.lock().and_then(|mut s| s.alloc_symmetric(self.0.pe, name, bytes, align as u64));
        made.unwrap_or(0)
    }

    pub fn free(&self, address: u64) {
        // Memory that is already gone needs no action.
        let _ = self.0.job.lock().free_symmetric(self.0.pe, address);
    }

    fn reaches(&self, pe: u32) -> bool {
        let node = self.0.job.settings.node;
        self.0.pe / node == pe / node
    }

    /// Whether kernels that can choose use direct loads and stores for operations on a PE.
    pub fn in_place(&self, pe: u32) -> bool {
        let group = self.0.job.settings.reach;
        self.reaches(pe) && self.0.pe / group == pe / group
    }

    pub fn peer(&self, address: u64, pe: u32) -> Option<u64> {
        let state = self.0.job.lock();
        self.reaches(pe).then(|| state.machine.peer_of(self.pe(), address, pe as usize).ok()).flatten()
    }

    pub fn multicast(&self, team: sys::Team, address: u64) -> Option<u64> {
        let state = self.0.job.lock();
        let (team, members) = state.heap.team(team)?;
        let least = if self.0.job.settings.multicast_of_one { 1 } else { 2 };
        let reached = members.len() >= least && members.iter().all(|pe| self.reaches(*pe));
        let has = self.0.config().multicast && reached;
        has.then(|| state.machine.multicast_of(self.pe(), *team, address).ok().flatten()).flatten()
    }

    pub fn register(&self, address: u64, bytes: usize) -> u64 {
        self.0.lock().and_then(|mut s| s.register(self.0.pe, address, bytes)).unwrap_or(0)
    }

    pub fn unregister(&self, address: u64) -> Result<()> {
        self.0.lock()?.unregister(self.0.pe, address)
    }

    pub fn team_my_pe(&self, team: sys::Team) -> Option<u32> {
        let rank = self.members(team)?.iter().position(|pe| *pe == self.0.pe)?;
        u32::try_from(rank).ok()
    }

    pub fn team_n_pes(&self, team: sys::Team) -> Option<u32> {
        self.members(team).map(|members| members.len() as u32)
    }

    pub fn translate(&self, from: sys::Team, pe: u32, to: sys::Team) -> Option<u32> {
        let world = *self.members(from)?.get(pe as usize)?;
        let rank = self.members(to)?.iter().position(|pe| *pe == world)?;
        u32::try_from(rank).ok()
    }

    fn split(&self, parent: sys::Team, ranks: &[Vec<u32>]) -> Result<Vec<Option<sys::Team>>> {
        let bad = || Error::new(NVSHMEM, format!("team {parent} does not exist or cannot be split this way"));
        let members = self.members(parent).ok_or_else(bad)?;
        let world = |ranks: &Vec<u32>| ranks.iter().map(|r| members.get(*r as usize).copied()).collect();
        let parts: Vec<Vec<u32>> = ranks.iter().map(world).collect::<Option<_>>().ok_or_else(bad)?;
        let teams = self.0.lock()?.split(self.0.pe, parent, &parts)?;
        let mine = |(part, team): (&Vec<u32>, i32)| part.contains(&self.0.pe).then_some(team);
        Ok(parts.iter().zip(teams).map(mine).collect())
    }

    pub fn split_strided(
        &self,
        parent: sys::Team,
        start: u32,
        stride: u32,
        size: u32,
    ) -> Result<Option<sys::Team>> {
        let ranks = (0..size).map(|i| start + i * stride).collect();
        Ok(self.split(parent, &[ranks])?.first().copied().flatten())
    }

    /// Creates teams for the rows and columns of a grid `x_range` wide.
    pub fn split_2d(
        &self,
        parent: sys::Team,
        x_range: u32,
    ) -> Result<(Option<sys::Team>, Option<sys::Team>)> {
        let n = self.team_n_pes(parent).unwrap_or(0);
        let (rows, columns) = (n.div_ceil(x_range), x_range.min(n));
        let row = |y: u32| (y * x_range..((y + 1) * x_range).min(n)).collect();
        let column = |x: u32| (x..n).step_by(x_range as usize).collect();
        let parts: Vec<Vec<u32>> = (0..rows).map(row).chain((0..columns).map(column)).collect();
        let teams = self.split(parent, &parts)?;
        let (rows, columns) = teams.split_at(rows as usize);
        let mine = |teams: &[Option<sys::Team>]| teams.iter().copied().flatten().next();
        Ok((mine(rows), mine(columns)))
    }

    /// Returns a number by which the PEs of a list identify their team.
    pub fn team_unique_id(&self) -> u64 {
        self.0.job.lock().number()
    }

    /// Creates a team of these PEs of the world, in this order.
    pub fn team_init(&self, unique_id: u64, members: &[u32]) -> Result<sys::Team> {
        let mut state = self.0.lock()?;
        if let Some(team) = state.heap.listed.get(&unique_id) {
            return Ok(*team);
        }
        let super::state::State { heap, machine, .. } = &mut *state;
        let team = heap.add_team(machine, members)?;
        heap.listed.insert(unique_id, team);
        Ok(team)
    }

    /// Calls a function on a stream.
    fn call(&self, function: &str, arguments: Vec<Arg>, stream: &Stream) -> Result<()> {
        let (module, entry) = (calls::module(function)?, calls::kernel_name(function));
        let launch = calls::launch(self.0.pe, arguments);
        stream.launch(Kernel { module, entry, launch, dependent: false })
    }

    /// Completes the remote operations of all PEs. The PEs have met, and their earlier work has
    /// ended. The first PE that calls this does it for all, since a PE that has continued may
    /// already have launched new kernels.
    pub fn barrier_all(&self) -> Result<()> {
        self.0.lock()?.settle();
        Ok(())
    }

    /// Sets the name of memory in findings.
    pub fn set_name(&self, address: u64, name: Name) {
        self.0.job.lock().set_name(self.0.pe, address, name);
    }

    pub fn put(&self, dest: u64, source: u64, bytes: usize, pe: u32, nbi: bool, on: &Stream) -> Result<()> {
        let name = if nbi { "nvshmem_putmem_nbi" } else { "nvshmem_putmem" };
        self.call(name, copy(dest, source, bytes, pe), on)
    }

    pub fn get(&self, dest: u64, source: u64, bytes: usize, pe: u32, nbi: bool, on: &Stream) -> Result<()> {
        let name = if nbi { "nvshmem_getmem_nbi" } else { "nvshmem_getmem" };
        self.call(name, copy(dest, source, bytes, pe), on)
    }

    pub fn put_signal(&self, copy: &PutSignal, stream: &Stream) -> Result<()> {
        let PutSignal { dest, source, bytes, signal, value, op, pe, nbi } = *copy;
        let name = if nbi { "nvshmem_putmem_signal_nbi" } else { "nvshmem_putmem_signal" };
        let arguments = vec![
            Arg::U64(dest),
            Arg::U64(source),
            Arg::U64(bytes as u64),
            Arg::U64(signal),
            Arg::U64(value),
            Arg::I32(op),
            Arg::U32(pe),
        ];
        self.call(name, arguments, stream)
    }

    pub fn signal(&self, signal: u64, value: u64, op: i32, pe: u32, stream: &Stream) -> Result<()> {
        let arguments = vec![Arg::U64(signal), Arg::U64(value), Arg::I32(op), Arg::U32(pe)];
        self.call("nvshmemx_signal_op", arguments, stream)
    }

    pub fn signal_wait(&self, signal: u64, compare: i32, value: u64, stream: &Stream) -> Result<()> {
        let arguments = vec![Arg::U64(signal), Arg::I32(compare), Arg::U64(value)];
        self.call("nvshmem_signal_wait_until", arguments, stream)
    }

    pub fn quiet(&self, stream: &Stream) -> Result<()> {
        self.call("nvshmem_quiet", Vec::new(), stream)
    }

    pub fn barrier(&self, team: sys::Team, stream: &Stream) -> Result<()> {
        self.call("nvshmem_barrier", vec![Arg::I32(team)], stream)
    }

    pub fn sync(&self, team: sys::Team, stream: &Stream) -> Result<()> {
        self.call("nvshmem_team_sync", vec![Arg::I32(team)], stream)
    }

    /// Finds the function of a collective for an element type; none if NVSHMEM has none.
    pub fn find_collective(&self, name: &str, dtype: DType) -> Option<CollectiveFunction> {
        let found = match (name, dtype.nvshmem_name()) {
            // Types without a name in NVSHMEM are moved as bytes.
            ("fcollect" | "alltoall", None) => {
                CollectiveFunction { function: format!("nvshmem_{name}mem"), scale: dtype.bytes() as usize }
            }
            (_, None) => return None,
            (_, Some(ty)) => CollectiveFunction { function: format!("nvshmem_{ty}_{name}"), scale: 1 },
        };
        weft_sim::nvshmem_function(&found.function).map(|_| found)
    }

    pub fn collective(&self, found: &CollectiveFunction, io: &Collective, stream: &Stream) -> Result<()> {
        self.call(&found.function, operands(io, found.scale), stream)
    }

    pub fn broadcast(&self, dtype: DType, io: &Collective, root: u32, stream: &Stream) -> Result<()> {
        let mut arguments = operands(io, dtype.bytes() as usize);
        arguments.push(Arg::U32(root));
        self.call("nvshmem_broadcastmem", arguments, stream)
    }
}

fn copy(dest: u64, source: u64, bytes: usize, pe: u32) -> Vec<Arg> {
    vec![Arg::U64(dest), Arg::U64(source), Arg::U64(bytes as u64), Arg::U32(pe)]
}

fn operands(io: &Collective, scale: usize) -> Vec<Arg> {
    let count = (io.count * scale) as u64;
    vec![Arg::I32(io.team), Arg::U64(io.dest), Arg::U64(io.source), Arg::U64(count)]
}

impl Pe {
    /// Loads a module from its PTX text.
    pub fn load(&self, ptx: &[u8]) -> Result<weft_sim::Module> {
        self.job.settings.modules.load(ptx)
    }
}

impl Stream {
    /// Launches a kernel with its block of parameters.
    pub(crate) fn launch_kernel(
        &self,
        module: &weft_sim::Module,
        entry: &str,
        (grid, block, cluster): ([u32; 3], [u32; 3], Option<[u32; 3]>),
        dynamic_shared: u32,
        parameters: &[u8],
        (names, dependent): (Arc<[weft_sim::Named]>, bool),
    ) -> Result<()> {
        let missing = || Error::new(OPERATION, format!("the module has no kernel `{entry}`"));
        let kernel = module.kernel(entry).ok_or_else(missing)?;
        let part =
            |p: &weft_sim::Param| Some(Arg::Bytes(parameters.get(p.offset..p.offset + p.size)?.to_vec()));
        let args = kernel.params.iter().map(part).collect::<Option<Vec<_>>>().ok_or_else(|| {
            let message = format!(
                "`{entry}` takes {} bytes of parameters, but its description has {}",
                kernel.param_bytes(),
                parameters.len()
            );
            Error::new(crate::error::ARGUMENT, message)
        })?;
        let (pe, cluster) = (self.pe().rank() as usize, cluster.unwrap_or([1; 3]));
        let launch = weft_sim::Launch::default().pe(pe).grid(grid).block(block).cluster(cluster);
        let launch = launch.dynamic_shared(dynamic_shared).args(args).names(names);
        self.launch(Kernel { module: module.clone(), entry: entry.to_owned(), launch, dependent })
    }
}
