//! What is allocated of symmetric memory, and what room there is for more.

use crate::cuda::vmm;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::panic::Location;

/// Bytes that every allocation's address is a multiple of.
pub const ALIGN: usize = 256;

/// What is allocated, by the number that all PEs know it by.
#[derive(Default)]
pub(crate) struct Registry {
    made: u64,
    live: BTreeMap<u64, Leak>,
    /// Those that somebody else frees, at any time.
    excused: BTreeSet<u64>,
    /// Exported once and no longer used: freed together at the next collective call.
    pub released: BTreeMap<u64, (u64, Option<External>)>,
    /// Bytes of NVSHMEM's heap in use, and what the heap was seen to grow by: it keeps the difference in reserve.
    in_use: usize,
    grown: usize,
    pub registered: usize,
}

/// Memory that is registered, not from NVSHMEM's heap: bytes registered, and the memory itself if it is ours.
pub type External = (usize, Option<vmm::Allocation>);

/// Something allocated and not freed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Leak {
    /// Allocation, counted from 0.
    pub number: u64,
    /// The size of the allocation in bytes.
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
    pub fn add(&mut self, bytes: usize, place: &Location<'_>) -> u64 {
        let number = self.made;
        self.made += 1;
        self.live.insert(number, Leak { number, bytes, place: place.to_string() });
        number
    }

    /// Counts an allocation of `bytes` bytes of NVSHMEM's heap, for which NVSHMEM took `device` bytes of the
    /// device.
    pub fn took(&mut self, bytes: usize, device: usize) {
        self.in_use = self.in_use.saturating_add(bytes);
        self.grown = self.grown.saturating_add(device);
    }

    /// Counts bytes that were given back to the heap.
    pub fn gave_back(&mut self, bytes: usize) {
        self.in_use = self.in_use.saturating_sub(bytes);
    }

    /// The largest allocation that NVSHMEM can make of what the heap has, or of free memory of the device, which it
    /// takes in whole units. (Where it cannot, it tears its heap down, and the PEs crash: so it must not be asked.)
    ///
    /// `most` bounds the addresses of heap and registered memory together, in whole units; some units are NVSHMEM's
    /// own from the start.
    pub fn room(&self, free: usize, unit: usize, most: usize) -> usize {
        const OWN_UNITS: usize = 4;
        let addresses = most.saturating_sub(self.grown + self.registered + OWN_UNITS * unit);
        let new = (free.min(addresses) / unit * unit).saturating_sub(ALIGN);
        new.max(self.grown.saturating_sub(self.in_use))
    }

    pub fn remove(&mut self, number: u64) -> usize {
        self.excused.remove(&number);
        self.live.remove(&number).map_or(0, |gone| gone.bytes)
    }

    /// Leaves it out of what is reported as not freed.
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
        // Addresses end before memory does.
        assert_eq!(r.room(1 << 40, 512 * MIB, 8192 * MIB), 5632 * MIB - ALIGN);
        // NVSHMEM had room of its own from the start.
        r.took(500 * MIB, 0);
        assert_eq!(r.room(0, 512 * MIB, usize::MAX), 0);
    }
}
