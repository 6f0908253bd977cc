//! PEs that reach each other's memory by loads and stores, without NVSHMEM: processes of one host
//! whose memory is mapped in all of them.
//!
//! Source: CUDA Driver API, Virtual Memory Management. Each PE allocates memory and passes a
//! descriptor of it to the others ([`mesh`]), which map it. The driver copies on streams; barriers
//! and signals are small kernels (`ops.ptx`).
#![allow(unsafe_code, reason = "copies between addresses that this module keeps")]

mod collectives;
mod heap;
mod mesh;
mod ops;
mod reduce;
mod teams;

use crate::cuda::{Device, Stream, copy, ipc, vmm};
use crate::error::{self, Error, Result};
use crate::memory::SignalOp;
use crate::nvshmem::{PutSignal, sys};
use crate::peers::Peers;
use crate::registry::ALIGN;
pub use collectives::CollectiveFunction;
use heap::{Heap, ProcessRank};
use mesh::Mesh;
use ops::Ops;
use reduce::Reductions;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use teams::Teams;

/// The size in bytes of a chunk that allocations share. Larger allocations have their own chunk.
const CHUNK: usize = 32 << 20;

/// Memory of all PEs in the view of this one.
struct Symmetric {
    bytes: usize,
    /// The address of each PE's copy, by PE.
    copies: Vec<u64>,
    /// The address at which multimem instructions reach all copies.
    multicast: Option<u64>,
    /// The owner of this PE's copy, if this library allocated it, and the mappings of the others'
    /// copies.
    _kept: Vec<Mapping>,
}

/// An object that keeps memory mapped.
#[expect(dead_code, reason = "kept for its drop")]
enum Mapping {
    Vmm(vmm::Allocation),
    Ipc(ipc::Opened),
}

#[derive(Default)]
struct State {
    heap: Heap,
    /// The addresses by the number of their chunk.
    chunks: BTreeMap<usize, u64>,
    /// All memory, by its address on this PE.
    memory: BTreeMap<u64, Symmetric>,
    /// The allocations in chunks by address, with their position and size.
    live: BTreeMap<u64, (ProcessRank, usize)>,
    teams: Teams,
}

/// One PE's part of a world without NVSHMEM.
pub struct Direct {
    device: Device,
    peers: Peers,
    everyone: Vec<u32>,
    mesh: Mesh,
    state: Mutex<State>,
    ops: Ops,
    reductions: Reductions,
    /// The address of the teams' flags: see [`teams`].
    flags: u64,
}

impl Direct {
    /// Connects the PEs of one host. This call is *collective*.
    pub fn start(device: &Device, peers: &Peers) -> Result<Direct> {
        if peers.size() as usize > ops::MAX_PES {
            let message = format!(
                "the job has {} PEs, but a world without NVSHMEM can have at most {}",
                peers.size(),
                ops::MAX_PES
            );
            return Err(Error::new(error::BOOTSTRAP, message));
        }
        let everyone: Vec<u32> = (0..peers.size()).collect();
        let mesh = Mesh::connect(peers, &everyone)?;
        let state = State { teams: Teams::new(peers.rank(), peers.size()), ..State::default() };
        let ops = Ops::new(device, peers.timeout());
        let (device, peers) = (device.clone(), peers.clone());
        let mut direct = Direct {
            device,
            peers,
            everyone,
            mesh,
            state: Mutex::new(state),
            ops,
            reductions: Reductions::default(),
            flags: 0,
        };
        let bytes = teams::bytes(direct.peers.size());
        direct.flags = direct.alloc(bytes);
        if direct.flags == 0 {
            return Err(Error::new(
                error::OUT_OF_MEMORY,
                format!("the PEs cannot allocate {CHUNK} bytes each"),
            ));
        }
        ops::clear(&direct.device, direct.flags, bytes)?;
        direct.peers.exchange(&direct.everyone, "init: flags", &[])?;
        Ok(direct)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Allocates memory on all PEs. Returns 0 if a PE does not have enough memory. This call is
    /// *collective*.
    pub fn alloc(&self, bytes: usize) -> u64 {
        let mut state = self.state();
        if let Some(address) = state.place(bytes) {
            return address;
        }
        let whole = if bytes > CHUNK / 2 { bytes } else { CHUNK };
        let Ok(memory) = self.share(vmm::Allocation::new(&self.device, whole)) else { return 0 };
        let (bytes_of, address) = (memory.bytes, memory.copies[self.peers.rank() as usize]);
        let number = state.heap.add(bytes_of);
        state.chunks.insert(number, address);
        state.memory.insert(address, memory);
        state.place(bytes).unwrap_or(0)
    }

    pub fn free(&self, address: u64) {
        let mut state = self.state();
        let Some((place, bytes)) = state.live.remove(&address) else { return };
        if state.heap.give(place, bytes, ALIGN) {
            state.heap.remove(place.0);
            let chunk = state.chunks.remove(&place.0);
            let gone = chunk.and_then(|address| state.memory.remove(&address));
            drop(state);
            // Unmapping waits for the device.
            drop(gone);
        }
    }

    /// Maps the memory of each PE on all of them. If one PE has an error, all PEs fail. This call
    /// is *collective*.
    fn share(&self, own: Result<vmm::Allocation>) -> Result<Symmetric> {
        let exported = own.and_then(|own| Ok((vmm::export(&self.device, own.address())?, own)));
        let (descriptor, own) = match exported {
            Ok((descriptor, own)) => (Some(descriptor), Ok(own)),
            Err(e) => (None, Err(e)),
        };
        let theirs = self.mesh.exchange(descriptor.as_ref())?;
        let mapped = own.and_then(|own| {
            let (address, bytes) = (own.address(), own.bytes());
            let (mut copies, mut kept) = (Vec::new(), vec![Mapping::Vmm(own)]);
            for (descriptor, pe) in theirs.iter().zip(0..) {
                copies.push(match descriptor {
                    _ if pe == self.peers.rank() => address,
                    Some(descriptor) => {
                        let theirs = vmm::Allocation::import(&self.device, descriptor, bytes)?;
                        let address = theirs.address();
                        kept.push(Mapping::Vmm(theirs));
                        address
                    }
                    None => {
                        return Err(Error::new(
                            error::OUT_OF_MEMORY,
                            format!("PE {pe} does not have enough memory"),
                        ));
                    }
                });
            }
            Ok(Symmetric { bytes, copies, multicast: None, _kept: kept })
        });
        let all = self.peers.exchange(&self.everyone, "mapped", &[u8::from(mapped.is_ok())])?;
        match all.iter().position(|done| *done != [1]) {
            Some(pe) if mapped.is_ok() => {
                Err(Error::new(error::OUT_OF_MEMORY, format!("PE {pe} could not map the others' memory")))
            }
            _ => mapped,
        }
    }

    /// Registers memory of all PEs. This PE's is at `address`, and was allocated by CUDA's virtual
    /// memory functions or by `cuMemAlloc`. Returns its address, or 0 if a PE cannot pass it on or
    /// map another's. This call is *collective*.
    pub fn register(&self, address: u64, bytes: usize) -> u64 {
        let mapped = self.pass_on(address, bytes);
        let done = [u8::from(mapped.is_ok())];
        let all = self.peers.exchange(&self.everyone, "registered memory is mapped", &done);
        match (mapped, all) {
            (Ok(symmetric), Ok(all)) if all.iter().all(|done| *done == [1]) => {
                self.state().memory.insert(address, symmetric);
                address
            }
            _ => 0,
        }
    }

    fn pass_on(&self, address: u64, bytes: usize) -> Result<Symmetric> {
        let descriptor = vmm::export(&self.device, address).ok();
        // Memory without a descriptor has a handle, or neither.
        let handle = match &descriptor {
            None => ipc::handle(&self.device, address).ok(),
            Some(_) => None,
        };
        let process = std::process::id();
        let named = handle.map(|(handle, offset)| Named { process, address, handle, offset }.to_bytes());
        let names = self.peers.exchange(&self.everyone, "handles of memory", &named.unwrap_or_default())?;
        let descriptors = self.mesh.exchange(descriptor.as_ref())?;
        let (mut copies, mut kept) = (Vec::new(), Vec::new());
        for ((descriptor, name), pe) in descriptors.iter().zip(&names).zip(0..) {
            copies.push(match (descriptor, Named::of(name)) {
                _ if pe == self.peers.rank() => address,
                (Some(descriptor), _) => {
                    let theirs = vmm::Allocation::import(&self.device, descriptor, bytes)?;
                    let address = theirs.address();
                    kept.push(Mapping::Vmm(theirs));
                    address
                }
                // A process cannot open its own handles, and does not need to.
                (None, Some(name)) if name.process == process => name.address,
                (None, Some(name)) => {
                    let theirs = ipc::Opened::new(&self.device, name.handle)?;
                    let address = theirs.start() + name.offset;
                    kept.push(Mapping::Ipc(theirs));
                    address
                }
                (None, None) => {
                    let message = format!("the memory of PE {pe} cannot be passed to other processes");
                    return Err(Error::new(error::REGISTER, message));
                }
            });
        }
        if descriptor.is_none() && handle.is_none() {
            return Err(Error::new(error::REGISTER, "this memory cannot be passed to other processes"));
        }
        Ok(Symmetric { bytes, copies, multicast: None, _kept: kept })
    }

    /// Uses memory that another library has mapped in all PEs.
    pub fn adopt(&self, bytes: usize, copies: Vec<u64>, multicast: Option<u64>) -> Result<u64> {
        let me = self.peers.rank() as usize;
        let address = copies.get(me).copied().unwrap_or(0);
        let mut state = self.state();
        if state.around(address).is_some() {
            return Err(Error::new(
                error::REGISTER,
                format!("the memory at {address:#x} is already symmetric"),
            )
            .help("use the existing buffer, or drop it first"));
        }
        state.memory.insert(address, Symmetric { bytes, copies, multicast, _kept: Vec::new() });
        Ok(address)
    }

    /// Removes memory at an address from the symmetric memory.
    pub fn unregister(&self, address: u64) {
        let gone = self.state().memory.remove(&address);
        drop(gone);
    }

    /// The address at which loads and stores reach a PE's copy.
    pub fn peer(&self, address: u64, pe: u32) -> Option<u64> {
        self.copy_of(address, 0, pe).ok()
    }

    /// The address at which multimem instructions reach all copies. Only a team of all PEs has one.
    pub fn multicast(&self, team: sys::Team, address: u64) -> Option<u64> {
        let state = self.state();
        let all = state.teams.members(team)?.len() == self.everyone.len();
        let (start, memory) = state.around(address)?;
        memory.multicast.filter(|_| all).map(|at| at + (address - start))
    }
}

/// Functions of teams, which every member calls, and no other PE.
impl Direct {
    /// Returns the handle of a predefined team.
    pub fn resolve(team: sys::Team) -> sys::Team {
        Teams::resolve(team)
    }

    pub fn team_my_pe(&self, team: sys::Team) -> Option<u32> {
        let state = self.state();
        let place = state.teams.members(team)?.iter().position(|pe| *pe == self.peers.rank())?;
        u32::try_from(place).ok()
    }

    pub fn team_n_pes(&self, team: sys::Team) -> Option<u32> {
        Some(self.state().teams.members(team)?.len() as u32)
    }

    /// The rank in another team of a PE of this team.
    pub fn translate(&self, from: sys::Team, pe: u32, to: sys::Team) -> Option<u32> {
        let state = self.state();
        let pe = state.teams.members(from)?.get(pe as usize)?;
        state.teams.members(to)?.iter().position(|other| other == pe).map(|place| place as u32)
    }

    /// Creates a team of these PEs of the world, which include this one. This call is *collective*
    /// over these PEs.
    pub fn team_init(&self, members: &[u32]) -> Result<sys::Team> {
        let mut sorted = members.to_vec();
        sorted.sort_unstable();
        let free = self.state().teams.free_slots();
        let all = self.peers.exchange(&sorted, "flags of a team", &free.to_le_bytes())?;
        let free = |bytes: &Vec<u8>| bytes.as_slice().try_into().map_or(0, u64::from_le_bytes);
        let free = all.iter().fold(u64::MAX, |common, bytes| common & free(bytes));
        let handle = self.state().teams.add(members.to_vec(), free)?;
        // The state of an earlier team in the slot is removed before the first member of this team
        // writes there.
        if let Some(slot) = self.state().teams.get(handle).map(|team| team.slot) {
            let bytes = teams::slot_bytes(self.peers.size());
            ops::clear(&self.device, self.flags + (slot * bytes) as u64, bytes)?;
        }
        self.peers.exchange(&sorted, "flags of a team are clear", &[])?;
        Ok(handle)
    }

    pub fn split_strided(
        &self,
        parent: sys::Team,
        start: u32,
        stride: u32,
        size: u32,
    ) -> Result<Option<sys::Team>> {
        let parent = self.members(parent)?;
        let part = (0..size).map(|i| parent.get((start + i * stride) as usize).copied());
        let part = part.collect::<Option<Vec<u32>>>().unwrap_or_default();
        match part.contains(&self.peers.rank()) {
            true => self.team_init(&part).map(Some),
            false => Ok(None),
        }
    }

    pub fn split_2d(
        &self,
        parent: sys::Team,
        x_range: u32,
    ) -> Result<(Option<sys::Team>, Option<sys::Team>)> {
        let rank = self.team_my_pe(parent).unwrap_or(0);
        let [row, column] = teams::rows(&self.members(parent)?, rank as usize, x_range as usize);
        Ok((Some(self.team_init(&row)?), Some(self.team_init(&column)?)))
    }

    pub fn team_destroy(&self, team: sys::Team) {
        self.state().teams.remove(team);
    }

    fn members(&self, team: sys::Team) -> Result<Vec<u32>> {
        let members = self.state().teams.members(team).map(<[u32]>::to_vec);
        members.ok_or_else(|| Error::new(error::NOT_IN_TEAM, format!("there is no team {team}")))
    }
}

/// Operations on streams. The callers keep the owners of the memory at the addresses.
impl Direct {
    /// Waits until all PEs have arrived, each after a wait for its own device.
    pub fn barrier_all(&self) -> Result<()> {
        self.peers.exchange(&self.everyone, "barrier_all", &[]).map(drop)
    }

    /// Copies to a PE. In stream order a copy is complete when the stream gets past it, so a
    /// non-blocking copy is the same.
    pub fn put(&self, to: u64, from: u64, bytes: usize, pe: u32, _nbi: bool, stream: &Stream) -> Result<()> {
        let to = self.copy_of(to, bytes, pe)?;
        self.copy((to, from), bytes, stream)
    }

    pub fn get(&self, to: u64, from: u64, bytes: usize, pe: u32, _nbi: bool, stream: &Stream) -> Result<()> {
        let from = self.copy_of(from, bytes, pe)?;
        self.copy((to, from), bytes, stream)
    }

    fn copy(&self, (to, from): (u64, u64), bytes: usize, stream: &Stream) -> Result<()> {
        // SAFETY: one side was found by `copy_of`, and the caller keeps the other, which has the
        // same number of bytes.
        let range = |address| unsafe { copy::Range::new(&self.device, address, bytes) };
        copy::on_device(range(to), range(from), stream)
    }

    pub fn put_signal(&self, copy: &PutSignal, stream: &Stream) -> Result<()> {
        let PutSignal { dest, source, bytes, signal, value, op, pe, nbi } = *copy;
        self.put(dest, source, bytes, pe, nbi, stream)?;
        self.signal(signal, value, op, pe, stream)
    }

    pub fn signal(&self, signal: u64, value: u64, op: i32, pe: u32, stream: &Stream) -> Result<()> {
        let at = self.copy_of(signal, size_of::<u64>(), pe)?;
        self.ops.signal(at, value, op == SignalOp::Add as i32, stream)
    }

    pub fn signal_wait(&self, signal: u64, compare: i32, value: u64, stream: &Stream) -> Result<()> {
        self.ops.wait(signal, compare, value, stream)
    }

    /// Does nothing, because copies complete in the order of their stream.
    pub fn quiet(&self, _: &Stream) -> Result<()> {
        Ok(())
    }

    /// Waits, in stream order, until the team's PEs have arrived and the earlier work of their
    /// streams is visible.
    pub fn barrier(&self, team: sys::Team, stream: &Stream) -> Result<()> {
        let team = self.state().teams.get(team).cloned();
        let team = team.ok_or_else(|| Error::new(error::NOT_IN_TEAM, "this PE is not in the team"))?;
        let Some(rank) = team.members.iter().position(|pe| *pe == self.peers.rank()) else { return Ok(()) };
        if team.members.len() == 1 {
            return Ok(());
        }
        let n_pes = self.peers.size();
        let slot = self.flags + (team.slot * teams::slot_bytes(n_pes)) as u64;
        let (flag, word) = (slot + (rank * size_of::<u64>()) as u64, size_of::<u64>());
        let theirs = team.members.iter().map(|pe| self.copy_of(flag, word, *pe));
        let theirs = theirs.collect::<Result<Vec<u64>>>()?;
        let epoch = slot + (n_pes as usize * word) as u64;
        self.ops.meet(slot, epoch, &theirs, stream)
    }

    /// The address of a PE's copy of memory that is symmetric here and has this number of bytes.
    fn copy_of(&self, address: u64, bytes: usize, pe: u32) -> Result<u64> {
        let state = self.state();
        let found = state.around(address).and_then(|(start, memory)| {
            let offset = address - start;
            (offset + bytes as u64 <= memory.bytes as u64).then_some(memory.copies.get(pe as usize)? + offset)
        });
        found.ok_or_else(|| {
            let message = format!("PE {pe} has no copy of {bytes} bytes at {address:#x}");
            Error::new(error::UNREACHABLE, message)
        })
    }
}

/// Memory of `cuMemAlloc`, in the form for another process.
struct Named {
    process: u32,
    address: u64,
    handle: [u8; ipc::BYTES],
    /// The offset from the start of the allocation in bytes.
    offset: u64,
}

impl Named {
    fn to_bytes(&self) -> Vec<u8> {
        let Named { process, address, handle, offset } = self;
        [&process.to_le_bytes()[..], &address.to_le_bytes(), &offset.to_le_bytes(), handle].concat()
    }

    fn of(bytes: &[u8]) -> Option<Named> {
        let (process, rest) = bytes.split_first_chunk()?;
        let (address, rest) = rest.split_first_chunk()?;
        let (offset, rest) = rest.split_first_chunk()?;
        let (process, address) = (u32::from_le_bytes(*process), u64::from_le_bytes(*address));
        Some(Named { process, address, handle: rest.try_into().ok()?, offset: u64::from_le_bytes(*offset) })
    }
}

impl State {
    /// Takes memory from an existing chunk.
    fn place(&mut self, bytes: usize) -> Option<u64> {
        let place = self.heap.take(bytes, ALIGN)?;
        let address = self.chunks.get(&place.0)? + place.1 as u64;
        self.live.insert(address, (place, bytes));
        Some(address)
    }

    /// The memory that contains an address, and its start.
    fn around(&self, address: u64) -> Option<(u64, &Symmetric)> {
        let (start, memory) = self.memory.range(..=address).next_back()?;
        (address - start < memory.bytes as u64).then_some((*start, memory))
    }
}
