//! Symmetric memory: the same size on every PE, reachable from all.
//!
//! Allocating and dropping are collective: all PEs, the same sizes, the same order. Both are checked over the job's
//! control connection before NVSHMEM is called, so that a PE that does something else is an error on all of them and
//! not a hang. Source: NVSHMEM API, Memory Management.

mod buffer;
mod dlpack;
mod external;
mod sync;
mod tensor;

pub use buffer::{SymmetricBuffer, Table};
pub use dlpack::ImportedTensor;
pub use external::granularity;
pub use sync::{Barrier, Compare, Signal, SignalOp};
pub use tensor::{AnyTensor, MulticastTensor, PeerTensor, SymmetricTensor};

use crate::cuda::{self, vmm};
use crate::error::{self, Error, Result};
use crate::world::Inner;
use std::collections::BTreeMap;
use std::fmt;
use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// What is allocated, by the number that all PEs know it by.
#[derive(Default)]
pub(crate) struct Registry {
    made: u64,
    live: BTreeMap<u64, Leak>,
    /// Exported once and no longer used: freed together at the next collective call.
    released: BTreeMap<u64, (u64, Option<External>)>,
    /// Bytes of NVSHMEM's heap in use, and what the heap was seen to grow by: it keeps the difference in reserve.
    in_use: usize,
    grown: usize,
    registered: usize,
}

/// Memory that is registered, not from NVSHMEM's heap: bytes registered, and the memory itself if it is ours.
type External = (usize, Option<vmm::Allocation>);

/// Something allocated and not freed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Leak {
    /// Allocation, counted from 0.
    pub number: u64,
    /// Bytes.
    pub bytes: usize,
    /// `file:line` of the call that made it.
    pub place: String,
}

impl fmt::Display for Leak {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "allocation {} of {} bytes, made at {}", self.number, self.bytes, self.place)
    }
}

impl Registry {
    fn add(&mut self, bytes: usize, place: &Location<'_>) -> u64 {
        let number = self.made;
        self.made += 1;
        self.live.insert(number, Leak { number, bytes, place: place.to_string() });
        number
    }

    /// NVSHMEM gave so many bytes of its heap, and took so many of the device for it.
    fn took(&mut self, bytes: usize, device: usize) {
        self.in_use = self.in_use.saturating_add(bytes);
        self.grown = self.grown.saturating_add(device);
    }

    /// So many bytes are the heap's again.
    fn gave_back(&mut self, bytes: usize) {
        self.in_use = self.in_use.saturating_sub(bytes);
    }

    /// The largest allocation that NVSHMEM can make of what the heap has, or of free memory of the device, which it
    /// takes in whole units. (Where it cannot, it tears its heap down, and the PEs crash: so it must not be asked.)
    ///
    /// `most` bounds the addresses of heap and registered memory together, in whole units; some units are NVSHMEM's
    /// own from the start.
    fn room(&self, free: usize, unit: usize, most: usize) -> usize {
        const OWN_UNITS: usize = 4;
        let addresses = most.saturating_sub(self.grown + self.registered + OWN_UNITS * unit);
        let new = (free.min(addresses) / unit * unit).saturating_sub(ALIGN);
        new.max(self.grown.saturating_sub(self.in_use))
    }

    fn remove(&mut self, number: u64) -> usize {
        self.live.remove(&number).map_or(0, |gone| gone.bytes)
    }

    pub fn leaks(&self) -> Vec<Leak> {
        self.live.values().cloned().collect()
    }
}

/// One symmetric allocation, freed when the last that uses it is dropped.
pub(crate) struct Allocation {
    pub world: Arc<Inner>,
    pub address: u64,
    pub bytes: usize,
    number: u64,
    external: Option<External>,
    /// Once handed to another library, which may drop it at any time and on any thread.
    exported: AtomicBool,
}

impl Allocation {
    /// From NVSHMEM's heap. Collective.
    fn heap(world: &Arc<Inner>, bytes: usize, place: &Location<'_>) -> Result<Allocation> {
        let _entered = world.enter()?;
        if bytes == 0 {
            return Err(Error::new(error::SHAPE, "a symmetric allocation of 0 bytes"));
        }
        let what = format!("allocation of {bytes} bytes");
        world.collect(&what)?;
        let (free, _) = world.device.memory()?;
        let room = world.registry().room(free, granularity(), world.most_memory()) as u64;
        let rooms = world.together(&what, &room.to_le_bytes())?;
        let least = rooms.iter().map(|b| number(b)).enumerate().min_by_key(|(_, room)| *room);
        let too_large = |pe: usize, room: u64| {
            Error::new(error::OUT_OF_MEMORY, format!("{what} on each PE: PE {pe} has room for {room} bytes"))
                .help("NVSHMEM keeps its heap once it has grown; free what is not needed before it grows")
        };
        if let Some((pe, room)) = least.filter(|(_, room)| *room < bytes as u64) {
            return Err(too_large(pe, room));
        }
        let address = world.library.alloc(bytes, ALIGN);
        // NVSHMEM may run out on one PE alone (fragments); then nobody has it.
        let all = world.together("allocated", &address.to_le_bytes())?;
        if let Some(pe) = all.iter().position(|b| number(b) == 0) {
            let error = too_large(pe, number(&rooms[pe]));
            return Err(error.help("NVSHMEM_SYMMETRIC_SIZE and NVSHMEM_MAX_MEMORY_PER_GPU bound its heap"));
        }
        let (left, _) = world.device.memory()?;
        world.registry().took(bytes, free.saturating_sub(left));
        Ok(Allocation::adopt(world, address, bytes, None, place))
    }

    fn adopt(
        world: &Arc<Inner>,
        address: u64,
        bytes: usize,
        external: Option<External>,
        place: &Location<'_>,
    ) -> Allocation {
        let mut registry = world.registry();
        let number = registry.add(bytes, place);
        registry.registered += external.as_ref().map_or(0, |(bytes, _)| *bytes);
        drop(registry);
        let exported = AtomicBool::new(false);
        Allocation { world: world.clone(), address, bytes, number, external, exported }
    }

    /// From now on it is freed at a later collective call, not when it is dropped.
    pub fn export(&self) {
        self.exported.store(true, Ordering::SeqCst);
    }

    /// Frees it. Collective.
    fn free(&mut self) -> Result<()> {
        cuda::not_stuck()?;
        let world = self.world.enter()?;
        world.device.wait()?;
        world.together(&format!("free of allocation {} of {} bytes", self.number, self.bytes), &[])?;
        world.give_back(self.number, self.address, self.external.take())
    }
}

/// Bytes that every allocation's address is a multiple of.
const ALIGN: usize = 256;

/// Eight bytes that a PE sent; 0 where it sent others.
fn number(bytes: &[u8]) -> u64 {
    bytes.try_into().map_or(0, u64::from_le_bytes)
}

impl Drop for Allocation {
    fn drop(&mut self) {
        // After the end all is freed; after a panic the other PEs are elsewhere.
        if self.world.ended() || std::thread::panicking() {
            return;
        }
        if self.exported.load(Ordering::SeqCst) {
            let released = (self.address, self.external.take());
            self.world.registry().released.insert(self.number, released);
        } else if let Err(e) = self.free() {
            self.world
                .complain(&format!("allocation {} of {} bytes is not freed", self.number, self.bytes), &e);
        }
    }
}

impl Inner {
    /// Bytes of addresses that NVSHMEM reserves for its heap and what is registered (`NVSHMEM_MAX_MEMORY_PER_GPU`;
    /// env_defs.h: 128 GiB before 3.5, 256 GiB since). Past them it crashes.
    pub fn most_memory(&self) -> usize {
        let (major, minor, _) = self.library.version();
        let own = if (major, minor) < (3, 5) { 128 << 30 } else { 256 << 30 };
        external::bytes_of("NVSHMEM_MAX_MEMORY_PER_GPU").unwrap_or(own)
    }

    /// Frees what was exported and is no longer used on any PE: the first step of a call. Collective.
    pub fn collect(&self, what: &str) -> Result<()> {
        let mine: Vec<u64> = self.registry().released.keys().copied().collect();
        let bytes: Vec<u8> = mine.iter().flat_map(|n| n.to_le_bytes()).collect();
        let all = self.together(what, &bytes)?;
        let on_all = |n: &u64| all.iter().all(|pe| pe.chunks_exact(8).any(|c| number(c) == *n));
        for n in mine.into_iter().filter(on_all) {
            let released = self.registry().released.remove(&n);
            if let Some((address, external)) = released {
                self.device.wait()?;
                self.give_back(n, address, external)?;
            }
        }
        Ok(())
    }

    /// Gives an allocation's memory back, once all PEs agree. Collective.
    fn give_back(&self, number: u64, address: u64, external: Option<External>) -> Result<()> {
        match external {
            // The memory itself goes after its alias in the heap.
            Some((bytes, _memory)) => {
                self.library.unregister(address, bytes)?;
                let mut registry = self.registry();
                registry.remove(number);
                registry.registered = registry.registered.saturating_sub(bytes);
            }
            None => {
                self.library.free(address);
                let mut registry = self.registry();
                let bytes = registry.remove(number);
                registry.gave_back(bytes);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    #[test]
    fn room_is_what_the_heap_has_or_can_take_in_whole_units() {
        let mut r = Registry::default();
        assert_eq!(r.room(300 * MIB, 512 * MIB, usize::MAX), 0);
        assert_eq!(r.room(1300 * MIB, 512 * MIB, usize::MAX), 1024 * MIB - ALIGN);
        r.took(100 * MIB, 512 * MIB);
        assert_eq!(r.room(300 * MIB, 512 * MIB, usize::MAX), 412 * MIB);
        r.took(400 * MIB, 0);
        assert_eq!(r.room(300 * MIB, 512 * MIB, usize::MAX), 12 * MIB);
        r.gave_back(400 * MIB);
        assert_eq!(r.room(0, 512 * MIB, usize::MAX), 412 * MIB);
        // Addresses end before memory does.
        assert_eq!(r.room(1 << 40, 512 * MIB, 8192 * MIB), 5632 * MIB - ALIGN);
        // NVSHMEM had room of its own from the start.
        r.took(500 * MIB, 0);
        assert_eq!(r.room(0, 512 * MIB, usize::MAX), 0);
    }
}
