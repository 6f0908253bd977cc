//! Memory that other libraries allocated, as symmetric memory.

use super::{Allocation, SymmetricBuffer, number};
use crate::cuda::vmm;
use crate::error::{self, Error, Result};
use crate::nvshmem::Library;
use crate::world::{Inner, World};
use std::panic::Location;
use std::sync::Arc;

/// The default of NVSHMEM (env_defs.h): 512 MiB.
const GRANULARITY: usize = 1 << 29;
/// The granularity of CUDA, which is the minimum of NVSHMEM.
const MIN_GRANULARITY: usize = 2 << 20;

/// The granularity of memory that can be registered in bytes: `NVSHMEM_CUMEM_GRANULARITY`, with the
/// suffixes K, M, G.
pub fn granularity() -> usize {
    bytes_of("NVSHMEM_CUMEM_GRANULARITY").map_or(GRANULARITY, |n| n.max(MIN_GRANULARITY))
}

/// The number of bytes in a variable, if it has one.
pub(super) fn bytes_of(variable: &str) -> Option<usize> {
    std::env::var(variable).ok().and_then(|v| size(&v))
}

/// Parses a size such as `512M`, `1g` or `65536`.
fn size(text: &str) -> Option<usize> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let shift = match text[digits..].chars().next().map(|c| c.to_ascii_lowercase()) {
        None => 0,
        Some('k') => 10,
        Some('m') => 20,
        Some('g') => 30,
        Some('t') => 40,
        Some(_) => return None,
    };
    text[..digits].parse::<usize>().ok()?.checked_mul(1 << shift).filter(|n| *n > 0)
}

impl World {
    /// Allocates memory of this PE's GPU with CUDA's virtual memory functions, in a size that can
    /// be registered.
    ///
    /// # Errors
    /// Fails if the device does not have enough memory (R0302), or after the world has ended
    /// (R0305).
    pub fn vmm(&self, bytes: usize) -> Result<vmm::Allocation> {
        let world = self.0.enter()?;
        vmm::Allocation::with_granularity(&world.device, bytes, unit(&world))
    }

    /// Makes an allocation symmetric, together with those of all other PEs. Its memory is then also
    /// mapped at the address of the buffer. This call is *collective*.
    ///
    /// # Errors
    /// Fails if the PEs give different sizes (R0301), or for memory that NVSHMEM cannot register
    /// (R0306).
    #[track_caller]
    pub fn register(&self, memory: vmm::Allocation) -> Result<SymmetricBuffer> {
        let (address, bytes) = (memory.address(), memory.bytes());
        register(&self.0, address, bytes, Some(memory), Location::caller())
    }

    /// Registers memory like [`register`](World::register). The memory stays the caller's.
    ///
    /// # Errors
    /// Fails where [`register`](World::register) fails.
    ///
    /// # Safety
    /// `address` is the start of a mapping made with `cuMemCreate` and `cuMemMap`, of `bytes` bytes, that stays mapped
    /// until the last clone of the buffer is dropped on every PE. In a world [without NVSHMEM](World::local) it may also
    /// lie in memory of `cuMemAlloc`.
    #[track_caller]
    #[allow(unsafe_code, reason = "the caller vouches for an address")]
    pub unsafe fn register_raw(&self, address: u64, bytes: usize) -> Result<SymmetricBuffer> {
        register(&self.0, address, bytes, None, Location::caller())
    }
}

/// Memory of all PEs that another library has mapped in each of them, such as PyTorch's symmetric
/// memory after `rendezvous`, a window of NCCL, or another NVSHMEM's heap.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mapping {
    /// The size of each PE's copy in bytes.
    pub bytes: usize,
    /// The address at which this PE's loads and stores reach each PE's copy, including its own.
    pub copies: Vec<u64>,
    /// The address at which this PE's multimem instructions reach all copies, if the other library made one.
    pub multicast: Option<u64>,
}

impl World {
    /// Makes memory symmetric that another library has mapped in all PEs, without copying. The
    /// memory stays that library's, and dropping the buffer frees nothing. This call is
    /// *collective*.
    ///
    /// # Errors
    /// Fails if the PEs give different sizes (R0301), if the mapping has no address for a PE, or if
    /// this world uses NVSHMEM: [`World::local`] starts a world that supports such memory (R0306).
    ///
    /// # Safety
    /// Loads and stores of this PE's GPU reach `bytes` bytes at each address, on the PE that the
    /// address belongs to, and multimem instructions reach all of them at `multicast`, until the
    /// last clone of the buffer is dropped on every PE.
    #[track_caller]
    #[allow(unsafe_code, reason = "the caller vouches for addresses")]
    pub unsafe fn adopt(&self, mapping: Mapping) -> Result<SymmetricBuffer> {
        let (place, world) = (Location::caller(), self.0.enter()?);
        let Mapping { bytes, copies, multicast } = mapping;
        let whole = bytes > 0 && copies.len() == world.everyone.len() && !copies.contains(&0);
        let Library::Direct(direct) = &world.library else {
            let e = Error::new(
                error::REGISTER,
                "this world uses NVSHMEM, which does not support foreign mappings",
            );
            return Err(
                world.refuse(&world.everyone, e.help("start a world that supports them with World::local"))
            );
        };
        let taken = match whole {
            true => direct.adopt(bytes, copies, multicast),
            false => Err(Error::new(
                error::REGISTER,
                "a mapping must have at least one byte and an address for each PE",
            )),
        };
        let address = taken.map_err(|e| world.refuse(&world.everyone, e))?;
        let agreed = world.together(&format!("adoption of {bytes} bytes"), &[]);
        agreed.inspect_err(|_| direct.unregister(address))?;
        let external = Some((bytes, None));
        Ok(SymmetricBuffer::of(Allocation::adopt(&self.0, address, bytes, external, place)))
    }
}

/// The granularity of registered memory in this world in bytes; without NVSHMEM it is that of
/// [`vmm`].
fn unit(world: &Inner) -> usize {
    match world.library {
        Library::Host(_) => granularity(),
        Library::Direct(_) | Library::Simulated(_) => 1,
    }
}

fn register(
    world: &Arc<Inner>,
    address: u64,
    bytes: usize,
    memory: Option<vmm::Allocation>,
    place: &Location<'_>,
) -> Result<SymmetricBuffer> {
    let _entered = world.enter()?;
    // All PEs are asked before NVSHMEM is, since it destroys its heap on an error.
    let unit = unit(world);
    let here = memory.as_ref().is_none_or(|m| *m.device() == world.device);
    let room = world.registry().room(usize::MAX, unit, world.max_memory());
    let fits = here && address != 0 && bytes != 0 && bytes.is_multiple_of(unit) && bytes <= room;
    let answers = world.together(&format!("registering {bytes} bytes"), &u64::from(fits).to_le_bytes())?;
    if let Some(pe) = answers.iter().position(|b| number(b) == 0) {
        let message = format!(
            "PE {pe} cannot register {bytes} bytes: the size is not a multiple of {unit}, the memory is of another GPU, or it exceeds the address space"
        );
        return Err(Error::new(error::REGISTER, message).help(
            "allocate memory of a valid size with World::vmm; NVSHMEM_CUMEM_GRANULARITY sets the granularity",
        ));
    }
    let alias = world.library.register(address, bytes);
    let all = world.together("registered", &alias.to_le_bytes())?;
    if let Some(pe) = all.iter().position(|b| number(b) == 0) {
        return Err(Error::new(
            error::REGISTER,
            format!("NVSHMEM rejected the memory of PE {pe} at {address:#x}"),
        )
        .help(
            "allocate it with cuMemCreate, exportable as a file descriptor, and map all of it as writable",
        ));
    }
    Ok(SymmetricBuffer::of(Allocation::adopt(world, alias, bytes, Some((bytes, memory)), place)))
}

#[cfg(test)]
mod tests {
    use super::size;

    #[test]
    fn sizes_have_suffixes() {
        let sizes = ["65536", "2k", "512M", "1g", "3T", "", "0", "x", "5q"].map(size);
        let want =
            [Some(65536), Some(2048), Some(512 << 20), Some(1 << 30), Some(3 << 40), None, None, None, None];
        assert_eq!(sizes, want);
    }
}
