//! The allocations of symmetric memory, and the room for more.

use crate::cuda::vmm;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::panic::Location;

/// The alignment of every allocation in bytes.
pub const ALIGN: usize = 256;

/// The allocations, by the number that all PEs use.
#[derive(Default)]
pub(crate) struct Registry {
    made: u64,
    live: BTreeMap<u64, Leak>,
    /// The allocations that another owner frees, at any time.
    excused: BTreeSet<u64>,
    /// The allocations that were exported and are no longer used. They are freed together at the
    /// next collective call.
    pub released: BTreeMap<u64, (u64, Option<External>)>,
    /// The bytes of NVSHMEM's heap in use, and the observed growth of the heap. NVSHMEM keeps the
    /// difference in reserve.
    in_use: usize,
    grown: usize,
    pub registered: usize,
}

/// Registered memory that is not from NVSHMEM's heap: its registered size in bytes, and the memory
/// itself if this library owns it.
pub type External = (usize, Option<vmm::Allocation>);

/// An allocation that was not freed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Leak {
    /// The number of the allocation, counted from 0.
    pub number: u64,
    /// The size of the allocation in bytes.
    pub bytes: usize,
    /// The `file:line` of the call that allocated it.
    pub place: String,
}

impl fmt::Display for Leak {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "allocation {} of {} bytes, made at {}", self.number, self.bytes, self.place)
    }
}

impl Registry {
    pub fn add(&mut self, bytes: usize, place: &Location<'_>) -> u64 {
        let number = self.made;
        self.made += 1;
        self.live.insert(number, Leak { number, bytes, place: place.to_string() });
        number
    }

    /// Counts an allocation of `bytes` bytes from NVSHMEM's heap, for which NVSHMEM took `device`
    /// bytes of the device.
    pub fn took(&mut self, bytes: usize, device: usize) {
        self.in_use = self.in_use.saturating_add(bytes);
        self.grown = self.grown.saturating_add(device);
    }

    /// Counts bytes that were given back to the heap.
    pub fn gave_back(&mut self, bytes: usize) {
        self.in_use = self.in_use.saturating_sub(bytes);
    }

    /// Returns the size of the largest allocation that NVSHMEM can make from its heap, or from free
    /// memory of the device, which it takes in whole units. (NVSHMEM must not be asked for more: it
    /// would destroy its heap, and the PEs would crash.)
    ///
    /// `max` limits the address range of heap and registered memory together, in whole units, of
    /// which NVSHMEM uses some from the start.
    pub fn room(&self, free: usize, unit: usize, max: usize) -> usize {
        const OWN_UNITS: usize = 4;
        let addresses = max.saturating_sub(self.grown + self.registered + OWN_UNITS * unit);
        let new = (free.min(addresses) / unit * unit).saturating_sub(ALIGN);
        new.max(self.grown.saturating_sub(self.in_use))
    }

    pub fn remove(&mut self, number: u64) -> usize {
        self.excused.remove(&number);
        self.live.remove(&number).map_or(0, |gone| gone.bytes)
    }

    /// Excludes an allocation from the report of leaks.
    pub fn excuse(&mut self, number: u64) {
        self.excused.insert(number);
    }

    pub fn leaks(&self) -> Vec<Leak> {
        self.live.values().filter(|leak| !self.excused.contains(&leak.number)).cloned().collect()
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
        // The address range is exhausted before the memory is.
        assert_eq!(r.room(1 << 40, 512 * MIB, 8192 * MIB), 5632 * MIB - ALIGN);
        // NVSHMEM had reserved memory from the start.
        r.took(500 * MIB, 0);
        assert_eq!(r.room(0, 512 * MIB, usize::MAX), 0);
    }
}
