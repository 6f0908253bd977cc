//! Symmetric memory without an element type.

use super::Allocation;
use crate::cuda::{self, DeviceTensor, Stream, copy};
use crate::error::{self, Error, Result};
use crate::machine;
use crate::team::Team;
use crate::world::{Inner, World};
use std::collections::HashMap;
use std::fmt;
use std::panic::Location;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use weft_sim::Name;

impl World {
    /// Allocates bytes of symmetric memory, aligned to 256. This call is *collective*.
    ///
    /// # Errors
    /// Fails if the PEs request different sizes (R0301), or if a PE has too little memory (R0302).
    #[track_caller]
    pub fn buffer(&self, bytes: usize) -> Result<SymmetricBuffer> {
        SymmetricBuffer::new(&self.0, bytes)
    }
}

/// Symmetric memory without a type. Clones share the memory, which is freed when the last one is
/// dropped. The PEs must drop buffers in the same order.
#[derive(Clone)]
pub struct SymmetricBuffer(pub(crate) Arc<Shared>);

/// Addresses by rank in a team, on the device.
pub type Table = Arc<DeviceTensor<u64>>;

/// A tensor map, encoded.
type Map = [u8; weft_abi::MAP_BYTES as usize];

/// Tables of tensor maps, by a team's members and the map of this PE's own tensor.
type Maps = HashMap<(Arc<[u32]>, Map), Table>;

/// The tables by a team's members (NVSHMEM reuses an ended team's handle) and offset.
type Tables = HashMap<(Arc<[u32]>, u64, bool), Table>;

pub(crate) struct Shared {
    /// The tables of peers' addresses on the device, which are freed before the memory.
    tables: Mutex<Tables>,
    /// The tables of peers' tensor maps, which are also freed before the memory.
    maps: Mutex<Maps>,
    pub allocation: Allocation,
}

/// A buffer that may have been dropped.
#[derive(Clone)]
pub(crate) struct WeakBuffer(Weak<Shared>);

impl WeakBuffer {
    pub fn is_there(&self) -> bool {
        self.0.strong_count() > 0
    }

    /// The buffer, if it still exists.
    ///
    /// # Errors
    /// Fails if the buffer was freed or its world has ended (R0305).
    pub fn upgrade(&self) -> Result<SymmetricBuffer> {
        let gone = || Error::new(error::FINALIZED, "a symmetric buffer of the launch was dropped");
        let buffer = self.0.upgrade().map(SymmetricBuffer).ok_or_else(gone)?;
        buffer.world().enter()?;
        Ok(buffer)
    }
}

impl fmt::Debug for WeakBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WeakBuffer")
    }
}

impl SymmetricBuffer {
    #[track_caller]
    pub(crate) fn new(world: &Arc<Inner>, bytes: usize) -> Result<SymmetricBuffer> {
        Ok(SymmetricBuffer::of(Allocation::heap(world, bytes, Location::caller())?))
    }

    pub(super) fn of(allocation: Allocation) -> SymmetricBuffer {
        SymmetricBuffer(Arc::new(Shared { tables: Mutex::default(), maps: Mutex::default(), allocation }))
    }

    /// Returns a weak reference.
    pub(crate) fn downgrade(&self) -> WeakBuffer {
        WeakBuffer(Arc::downgrade(&self.0))
    }

    pub(crate) fn world(&self) -> &Arc<Inner> {
        &self.0.allocation.world
    }

    /// Returns the address on this PE.
    pub fn address(&self) -> u64 {
        self.0.allocation.address
    }

    /// The size in bytes.
    pub fn bytes(&self) -> usize {
        self.0.allocation.bytes
    }

    /// Lets each PE drop the buffer at its own time, as a garbage collector does. The memory is
    /// freed at the next allocation, [`collect`](World::collect) or end after every PE has dropped
    /// it. All PEs must call this function, or none.
    pub fn free_later(&self) {
        self.0.allocation.free_later();
    }

    /// Sets the name of the memory in findings of simulated worlds. On GPUs the name is not used.
    pub fn set_name(&self, name: impl Into<Name>) {
        self.world().library.set_name(self.address(), name.into());
    }

    /// Sets every byte of the buffer on this PE, and waits for the result.
    ///
    /// # Errors
    /// Fails if the CUDA driver rejects the call (R0103), or after the world has ended (R0305).
    pub fn fill(&self, byte: u8) -> Result<()> {
        let world = self.world().enter()?;
        copy::fill(self.range(self.address(), 0, self.bytes())?, byte, &world.stream)?;
        cuda::wait_for(&world.stream)
    }

    /// Writes this PE's bytes from `offset` on, in stream order, and waits.
    ///
    /// # Errors
    /// Fails if the range goes past the end (R0307), after the world has ended (R0305), or if the
    /// CUDA driver rejects a call (R0103).
    pub fn write(&self, offset: usize, data: &[u8], stream: &Stream) -> Result<()> {
        let _entered = self.world().enter()?;
        copy::write(self.range(self.address(), offset, data.len())?, data, stream)
    }

    /// Reads the bytes of a PE from `offset` on, in stream order.
    ///
    /// # Errors
    /// Fails where [`write`](SymmetricBuffer::write) or
    /// [`peer_address`](SymmetricBuffer::peer_address) fails.
    pub fn read(&self, pe: u32, offset: usize, data: &mut [u8], stream: &Stream) -> Result<()> {
        let base = self.peer_address(pe)?;
        copy::read(self.range(base, offset, data.len())?, data, stream)
    }

    /// A range of a PE's copy, which begins at `base`: this PE's address or the address of a peer's
    /// copy.
    #[allow(unsafe_code, reason = "the buffer vouches for its addresses")]
    pub(super) fn range(&self, base: u64, offset: usize, n: usize) -> Result<copy::Range<'_>> {
        // SAFETY: every copy of the buffer has that many bytes, and `allocation` keeps all of them; it is freed on all
        // PEs together, after each has waited for its device.
        let all = unsafe { copy::Range::new(&self.world().device, base, self.bytes()) };
        all.part("buffer", offset, n)
    }

    /// Returns the address at which loads and stores reach a PE's copy.
    ///
    /// # Errors
    /// Fails for a PE that does not exist (R0303), or for a PE that only puts and gets reach
    /// (R0304).
    pub fn peer_address(&self, pe: u32) -> Result<u64> {
        let world = self.world().enter()?;
        world.library.peer(self.address(), world.member(pe)?).ok_or_else(|| {
            Error::new(
                error::UNREACHABLE,
                format!("loads and stores of PE {} do not reach the memory of PE {pe}", world.control.rank()),
            )
            .help("use put or get, which work over any transport; `weft doctor` shows which GPUs can access each other")
        })
    }

    /// The address at which multimem instructions reach all of a team's copies. It is `None` if the team has
    /// no multicast address ([`why_no_multicast`](SymmetricBuffer::why_no_multicast)).
    pub fn multicast_address(&self, team: &Team) -> Option<u64> {
        self.world().enter().ok()?.library.multicast(team.handle, self.address())
    }

    /// Returns the reason why a team has no multicast address for this memory, or `None` if it has
    /// one.
    pub fn why_no_multicast(&self, team: &Team) -> Option<String> {
        if self.multicast_address(team).is_some() {
            return None;
        }
        let world = self.world();
        Some(if world.ended() {
            "NVSHMEM has been finalized".into()
        } else if machine::nvls_disabled() {
            "NVSHMEM_DISABLE_NVLS is set".into()
        } else if !world.device.supports_multicast().unwrap_or(false) {
            "the GPU or its fabric has no multicast (NVLink SHARP: Hopper or newer behind NVSwitch)".into()
        } else if team.n_pes() < 2 {
            "the team has only one PE".into()
        } else {
            "NVSHMEM created no multicast object for this team (it spans hosts, or the fabric's multicast objects are used up)"
                .into()
        })
    }

    /// Returns a table, on this PE's device, of all team members' addresses of the byte at
    /// `offset`. A kernel's unicast lowering reads it. The table is created once for each team.
    ///
    /// # Errors
    /// Fails where [`peer_address`](SymmetricBuffer::peer_address) fails.
    pub fn peer_table(&self, team: &Team, offset: u64) -> Result<Table> {
        self.table(team, offset, true)
    }

    /// Returns a table like [`peer_table`](SymmetricBuffer::peer_table), with 0 for a PE that loads
    /// and stores do not reach. Kernels that choose at run time how to reach another PE read it.
    ///
    /// # Errors
    /// Fails if the CUDA driver rejects the call (R0103), or after the world has ended (R0305).
    pub fn reach_table(&self, team: &Team, offset: u64) -> Result<Table> {
        self.table(team, offset, false)
    }

    pub(crate) fn table(&self, team: &Team, offset: u64, all_reached: bool) -> Result<Table> {
        let mut tables = self.0.tables.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (team.members.clone(), offset, all_reached);
        if let Some(table) = tables.get(&key) {
            return Ok(table.clone());
        }
        let library = &self.world().library;
        let peers = team.members().iter().map(|pe| match self.peer_address(*pe) {
            Err(e) if e.code == error::UNREACHABLE && !all_reached => Ok(0),
            Ok(_) if !all_reached && !library.in_place(*pe) => Ok(0),
            address => Ok(address? + offset),
        });
        let peers = peers.collect::<Result<Vec<u64>>>()?;
        let table = Arc::new(DeviceTensor::from_slice(&peers, &self.world().side)?);
        table.set_name(Name::of_peers(peers.len() as u64, 8));
        tables.insert(key, table.clone());
        Ok(table)
    }

    /// Returns a table of the tensor maps of all team members' tensors, one after another. `encode`
    /// makes the map of an address, and `own` is the address of the tensor on this PE. The table is
    /// created once for each team and map.
    ///
    /// # Errors
    /// Fails where [`peer_address`](SymmetricBuffer::peer_address) fails, or if `encode` fails for
    /// a map.
    pub(crate) fn map_table(
        &self,
        team: &Team,
        own: u64,
        encode: impl Fn(u64) -> Result<Map>,
    ) -> Result<Table> {
        let mut maps = self.0.maps.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (team.members.clone(), encode(own)?);
        if let Some(table) = maps.get(&key) {
            return Ok(table.clone());
        }
        let offset = own - self.address();
        let mut words = Vec::new();
        for pe in team.members() {
            let map = encode(self.peer_address(*pe)? + offset)?;
            let (chunks, _) = map.as_chunks::<8>();
            words.extend(chunks.iter().map(|word| u64::from_le_bytes(*word)));
        }
        let table = Arc::new(DeviceTensor::from_slice(&words, &self.world().side)?);
        table.set_name(Name::of_peers(team.members().len() as u64, size_of::<Map>() as u64));
        maps.insert(key, table.clone());
        Ok(table)
    }
}

impl fmt::Debug for SymmetricBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SymmetricBuffer({} bytes at {:#x})", self.bytes(), self.address())
    }
}
