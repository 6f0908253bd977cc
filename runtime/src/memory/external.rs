//! Memory that others made, as symmetric memory.

use super::{Allocation, SymmetricBuffer, number};
use crate::cuda::vmm;
use crate::error::{self, Error, Result};
use crate::world::{Inner, World};
use std::panic::Location;
use std::sync::Arc;

/// NVSHMEM's own default (env_defs.h): 512 MiB.
const GRANULARITY: usize = 1 << 29;
/// CUDA's own, below which NVSHMEM does not go.
const LEAST: usize = 2 << 20;

/// Bytes that memory to be registered must be a multiple of: `NVSHMEM_CUMEM_GRANULARITY`, with the suffixes K, M, G.
pub fn granularity() -> usize {
    bytes_of("NVSHMEM_CUMEM_GRANULARITY").map_or(GRANULARITY, |n| n.max(LEAST))
}

/// A variable's number of bytes, if it is one.
pub(super) fn bytes_of(variable: &str) -> Option<usize> {
    std::env::var(variable).ok().and_then(|v| size(&v))
}

/// `512M`, `1g`, `65536`.
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
    /// Memory of this PE's GPU by CUDA's virtual memory functions, of a size that can be registered.
    ///
    /// # Errors
    /// `R0302` where the device has no room, `R0305` after the end.
    pub fn vmm(&self, bytes: usize) -> Result<vmm::Allocation> {
        let world = self.0.enter()?;
        vmm::Allocation::with_granularity(&world.device, bytes, unit(&world))
    }

    /// Makes an allocation symmetric, with the one that every other PE gives: its memory is then also at the address
    /// of the buffer. *Collective.*
    ///
    /// # Errors
    /// `R0301` where the PEs give different sizes, `R0306` for memory that NVSHMEM cannot register.
    #[track_caller]
    pub fn register(&self, memory: vmm::Allocation) -> Result<SymmetricBuffer> {
        let (address, bytes) = (memory.address(), memory.bytes());
        register(&self.0, address, bytes, Some(memory), Location::caller())
    }

    /// As [`register`](World::register), for memory that stays the caller's.
    ///
    /// # Errors
    /// As there.
    ///
    /// # Safety
    /// `address` is the start of a mapping made with `cuMemCreate` and `cuMemMap`, of `bytes` bytes, that stays mapped
    /// until the last clone of the buffer is dropped on every PE.
    #[track_caller]
    #[allow(unsafe_code, reason = "the caller vouches for an address")]
    pub unsafe fn register_raw(&self, address: u64, bytes: usize) -> Result<SymmetricBuffer> {
        register(&self.0, address, bytes, None, Location::caller())
    }
}

/// Bytes that memory of this world's devices must be a multiple of; simulated PEs leave it to [`vmm`].
fn unit(world: &Inner) -> usize {
    if world.device.is_simulated() { 1 } else { granularity() }
}

fn register(
    world: &Arc<Inner>,
    address: u64,
    bytes: usize,
    memory: Option<vmm::Allocation>,
    place: &Location<'_>,
) -> Result<SymmetricBuffer> {
    let _entered = world.enter()?;
    // All are asked before NVSHMEM is: it tears its heap down on an error.
    let unit = unit(world);
    let here = memory.as_ref().is_none_or(|m| *m.device() == world.device);
    let room = world.registry().room(usize::MAX, unit, world.most_memory());
    let fits = here && address != 0 && bytes != 0 && bytes.is_multiple_of(unit) && bytes <= room;
    let answers = world.together(&format!("registering {bytes} bytes"), &u64::from(fits).to_le_bytes())?;
    if let Some(pe) = answers.iter().position(|b| number(b) == 0) {
        let message = format!(
            "PE {pe} gives {bytes} bytes: not a multiple of {unit}, of another GPU, or more than there are addresses for"
        );
        return Err(Error::new(error::REGISTER, message)
            .help("World::vmm makes memory of a right size; NVSHMEM_CUMEM_GRANULARITY sets the unit"));
    }
    let alias = world.library.register(address, bytes);
    let all = world.together("registered", &alias.to_le_bytes())?;
    if let Some(pe) = all.iter().position(|b| number(b) == 0) {
        return Err(Error::new(
            error::REGISTER,
            format!("NVSHMEM refused the memory of PE {pe} at {address:#x}"),
        )
        .help("it must come from cuMemCreate, exportable by file descriptor, mapped whole and writable"));
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
