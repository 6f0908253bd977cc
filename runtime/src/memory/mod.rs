//! Symmetric memory has the same size on every PE, and all PEs can reach it.
//!
//! Allocating and dropping are collective: all PEs do it with the same sizes in the same order.
//! Both are checked over the job's control connection before NVSHMEM is called, so that a PE that
//! does something else is an error on all of them and not a hang. Source: NVSHMEM API, Memory
//! Management.

mod buffer;
mod dlpack;
mod external;
mod sync;
mod tensor;

pub(crate) use buffer::WeakBuffer;
pub use buffer::{SymmetricBuffer, Table};
pub use dlpack::ImportedTensor;
pub use external::{Mapping, granularity};
pub use sync::{BARRIER_LINE, Barrier, Compare, Signal, SignalOp};
pub use tensor::{AnyTensor, MulticastTensor, PeerTensor, SymmetricTensor};

use crate::cuda;
use crate::error::{self, Error, Result};
pub use crate::registry::Leak;
use crate::registry::{ALIGN, External};
use crate::world::Inner;
use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// One symmetric allocation, which is freed when its last user is dropped.
pub(crate) struct Allocation {
    pub world: Arc<Inner>,
    pub address: u64,
    pub bytes: usize,
    number: u64,
    external: Option<External>,
    /// Whether it was passed to another library, which can drop it at any time and on any thread.
    exported: AtomicBool,
}

impl Allocation {
    /// Allocates from NVSHMEM's heap. This call is *collective*.
    fn heap(world: &Arc<Inner>, bytes: usize, place: &Location<'_>) -> Result<Allocation> {
        let _entered = world.enter()?;
        if bytes == 0 {
            let e = Error::new(error::SHAPE, "a symmetric allocation must have at least one byte");
            return Err(world.refuse(&world.everyone, e));
        }
        let what = format!("allocation of {bytes} bytes");
        world.collect(&what)?;
        let name = format!("allocation at {place}");
        if let Some(pe) = world.device.pe() {
            // One machine has the memory of all PEs, so each PE gets the same answer.
            return match world.library.alloc(&name, bytes, ALIGN) {
                0 => Err(too_large(&what, pe.rank() as usize, pe.symmetric_room() as u64)),
                address => Ok(Allocation::adopt(world, address, bytes, None, place)),
            };
        }
        let (free, _) = world.device.memory()?;
        let room = world.registry().room(free, granularity(), world.max_memory()) as u64;
        let rooms = world.together(&what, &room.to_le_bytes())?;
        let least = rooms.iter().map(|b| number(b)).enumerate().min_by_key(|(_, room)| *room);
        if let Some((pe, room)) = least.filter(|(_, room)| *room < bytes as u64) {
            return Err(too_large(&what, pe, room));
        }
        let address = world.library.alloc(&name, bytes, ALIGN);
        // NVSHMEM may run out of memory on one PE alone (fragmentation). Then the allocation fails
        // on all.
        let all = world.together("allocated", &address.to_le_bytes())?;
        if let Some(pe) = all.iter().position(|b| number(b) == 0) {
            let error = too_large(&what, pe, number(&rooms[pe]));
            return Err(error
                .help("raise NVSHMEM_SYMMETRIC_SIZE or NVSHMEM_MAX_MEMORY_PER_GPU, which limit the heap"));
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

    /// Marks the memory as exported: it is freed at a later collective call, not when it is dropped.
    pub fn export(&self) {
        self.exported.store(true, Ordering::SeqCst);
    }

    /// Marks the memory like [`export`](Allocation::export), and does not report it as a leak at the end.
    pub fn free_later(&self) {
        self.export();
        self.world.registry().excuse(self.number);
    }

    /// Frees the allocation. This call is *collective*.
    fn free(&mut self) -> Result<()> {
        cuda::not_stuck()?;
        let world = self.world.enter()?;
        world.device.wait()?;
        world.together(&format!("free of allocation {} of {} bytes", self.number, self.bytes), &[])?;
        world.give_back(self.number, self.address, self.external.take())
    }
}

fn too_large(what: &str, pe: usize, room: u64) -> Error {
    Error::new(error::OUT_OF_MEMORY, format!("{what} on each PE: PE {pe} can allocate only {room} bytes"))
        .help("free memory that is not needed before the heap grows: NVSHMEM never shrinks it")
}

/// Eight bytes that a PE sent, or 0 if it sent something else.
fn number(bytes: &[u8]) -> u64 {
    bytes.try_into().map_or(0, u64::from_le_bytes)
}

impl Drop for Allocation {
    fn drop(&mut self) {
        // After the end all memory is freed; after a panic the other PEs are at another point of
        // the program.
        if self.world.ended() || std::thread::panicking() {
            return;
        }
        if self.exported.load(Ordering::SeqCst) {
            let released = (self.address, self.external.take());
            self.world.registry().released.insert(self.number, released);
        } else if let Err(e) = self.free() {
            self.world
                .print_error(&format!("allocation {} of {} bytes is not freed", self.number, self.bytes), &e);
        }
    }
}

impl Inner {
    /// Returns the size of the address range that NVSHMEM reserves for its heap and registered
    /// memory (`NVSHMEM_MAX_MEMORY_PER_GPU`; env_defs.h: 128 GiB before 3.5, 256 GiB since). Beyond
    /// it NVSHMEM crashes.
    pub fn max_memory(&self) -> usize {
        let Some(version) = self.library.version() else { return usize::MAX };
        let own = if (version.major, version.minor) < (3, 5) { 128 << 30 } else { 256 << 30 };
        external::bytes_of("NVSHMEM_MAX_MEMORY_PER_GPU").unwrap_or(own)
    }

    /// Frees exported memory that no PE uses any more, as the first step of a call. This call is
    /// *collective*.
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

    /// Gives an allocation's memory back once all PEs agree. This call is *collective*.
    fn give_back(&self, number: u64, address: u64, external: Option<External>) -> Result<()> {
        match external {
            // The memory itself is freed after its alias in the heap.
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
