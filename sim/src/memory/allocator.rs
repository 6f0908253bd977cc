//! Allocations: their positions in a region, and the handling of their memory.

use super::{Memory, Name, REGION_MASK, Spot, Symmetric};
use crate::codes;
use crate::error::SimError;

/// The number of unused bytes between allocations.
const RED_ZONE: u64 = 256;

#[derive(Debug, Clone)]
pub(super) struct Allocation {
    pub name: Name,
    pub offset: u64,
    pub bytes: u64,
    pub read_only: bool,
    /// The address on the symmetric heap, for private memory that is registered.
    pub alias: Option<u64>,
}

impl Allocation {
    /// Whether `[offset, offset + len)` is inside, for an offset at or above its begin.
    pub fn holds(&self, offset: u64, len: u64) -> bool {
        offset < self.offset + self.bytes && self.offset + self.bytes - offset >= len
    }
}

/// The allocations of one region, in order of offset.
#[derive(Debug, Default)]
pub(super) struct Allocator {
    pub list: Vec<Allocation>,
    /// Whether some have been freed.
    holes: bool,
}

impl Allocator {
    fn end(&self) -> u64 {
        self.list.last().map_or(0, |a| a.offset + a.bytes)
    }

    /// The last allocation that begins at or below `offset`.
    pub fn below(&self, offset: u64) -> Option<&Allocation> {
        let n = self.list.partition_point(|a| a.offset <= offset);
        self.list[..n].last()
    }

    /// The allocation that has the byte at `offset`, or the nearest one.
    pub fn nearest(&self, offset: u64) -> Option<&Allocation> {
        let (below, above) = (self.below(offset), self.list.iter().find(|a| a.offset > offset));
        match (below, above) {
            (Some(b), Some(a))
                if offset >= b.offset + b.bytes && a.offset - offset < offset - (b.offset + b.bytes) =>
            {
                Some(a)
            }
            (Some(b), _) => Some(b),
            (None, a) => a,
        }
    }

    /// The offset for an allocation: in the first hole that is large enough, or after all others.
    fn fit(&self, bytes: u64, align: u64) -> u64 {
        let behind = |end: u64| (end + RED_ZONE).next_multiple_of(align.max(16));
        let ends = std::iter::once(0).chain(self.list.iter().map(|a| a.offset + a.bytes));
        let holes = ends.zip(&self.list).filter(|_| self.holes);
        let fits = |at: &u64, next: u64| at.checked_add(bytes).is_some_and(|end| end + RED_ZONE <= next);
        let mut rooms = holes.filter_map(|(end, next)| Some(behind(end)).filter(|at| fits(at, next.offset)));
        rooms.next().unwrap_or_else(|| behind(self.end()))
    }

    fn insert(&mut self, allocation: Allocation) {
        let at = self.list.partition_point(|a| a.offset < allocation.offset);
        self.list.insert(at, allocation);
    }

    /// Removes the allocation that begins at `offset`.
    fn remove(&mut self, offset: u64) -> Option<Allocation> {
        let at = self.list.binary_search_by_key(&offset, |a| a.offset).ok()?;
        self.holes = true;
        Some(self.list.remove(at))
    }

    fn get(&mut self, offset: u64) -> Option<&mut Allocation> {
        let at = self.list.binary_search_by_key(&offset, |a| a.offset).ok()?;
        self.list.get_mut(at)
    }
}

fn unknown(what: &str) -> SimError {
    SimError::request(format!("{what} is not the address of an allocation"), "")
}

impl Memory {
    /// Checks the size of an allocation in `copies` buffers of the length `have`.
    fn affords(&self, offset: u64, bytes: u64, have: u64, copies: u64) -> Result<(), SimError> {
        let end = offset.checked_add(bytes).filter(|end| *end <= REGION_MASK);
        let total = end.and_then(|end| end.saturating_sub(have).checked_mul(copies)?.checked_add(self.used));
        match total {
            Some(t) if t <= self.limit => Ok(()),
            _ => Err(SimError::new(
                codes::MEMORY_LIMIT,
                format!(
                    "{bytes} bytes on {copies} PEs exceed the machine's memory limit of {} bytes",
                    self.limit
                ),
                "raise `Config::memory_limit` or use smaller tensors",
            )),
        }
    }

    /// Gives every PE's heap this fixed number of bytes, which never move.
    pub(crate) fn fix_heap(&mut self, bytes: u64) -> Result<(), SimError> {
        for pe in 0..self.n_pes {
            let room = usize::try_from(bytes).ok();
            let reserved = room.and_then(|n| self.buffers[2 * pe + 1].try_reserve_exact(n).ok());
            reserved.ok_or_else(|| {
                let message = format!("heaps of {bytes} bytes for each of {} PEs do not fit", self.n_pes);
                SimError::new(codes::MEMORY_LIMIT, message, "choose a smaller `Config::heap`")
            })?;
        }
        self.fixed = Some(bytes);
        Ok(())
    }

    /// The address in this process of a location on a heap that does not move.
    pub(crate) fn host_address(&mut self, spot: Spot) -> Option<usize> {
        let on_heap = spot.buffer % 2 == 1 && spot.buffer < 2 * self.n_pes;
        let memory = self.buffers.get_mut(spot.buffer).filter(|_| on_heap && self.fixed.is_some())?;
        Some(memory.as_mut_ptr().expose_provenance() + spot.at)
    }

    fn check_align(align: u64) -> Result<(), SimError> {
        if align.is_power_of_two() && align <= 1 << 20 {
            return Ok(());
        }
        let help = "use a power of two up to 1 MiB";
        Err(SimError::request(format!("alignment {align} is not possible"), help))
    }

    /// Gives a range of a buffer to a new allocation, filled with poison.
    fn grow(&mut self, buffer: usize, offset: u64, bytes: u64) {
        let (old, from, end) = (self.buffers[buffer].len(), offset as usize, (offset + bytes) as usize);
        if end > old {
            self.used += (end - old) as u64;
            self.buffers[buffer].resize(end, self.poison);
        }
        if from < old {
            self.buffers[buffer][from..end.min(old)].fill(self.poison);
            self.forget_writes(buffer, from, end.min(old) - from);
        }
    }

    pub(crate) fn alloc_symmetric(
        &mut self,
        name: &str,
        bytes: u64,
        align: u64,
    ) -> Result<Symmetric, SimError> {
        Memory::check_align(align)?;
        let offset = self.heap.fit(bytes, align);
        self.affords(offset, bytes, self.buffers[1].len() as u64, self.n_pes as u64)?;
        if let Some(fixed) = self.fixed.filter(|fixed| offset.saturating_add(bytes) > *fixed) {
            let message = format!("{bytes} bytes do not fit into a PE's heap of {fixed} bytes");
            return Err(SimError::new(codes::MEMORY_LIMIT, message, "raise `Config::heap`, or free tensors"));
        }
        let name = name.into();
        self.heap.insert(Allocation { name, offset, bytes, read_only: false, alias: None });
        for pe in 0..self.n_pes {
            self.grow(2 * pe + 1, offset, bytes);
        }
        Ok(Symmetric { offset, bytes })
    }

    pub(crate) fn set_name(&mut self, s: Symmetric, name: Name) {
        if let Some(allocation) = self.heap.get(s.offset) {
            allocation.name = name;
        }
    }

    pub(crate) fn set_private_name(&mut self, pe: usize, addr: u64, name: Name) {
        let offset = addr.wrapping_sub(self.private_base(pe));
        if let Some(allocation) = self.private[pe].get(offset) {
            allocation.name = name;
        }
    }

    pub(crate) fn alloc_private(
        &mut self,
        pe: usize,
        name: &str,
        bytes: u64,
        align: u64,
        read_only: bool,
    ) -> Result<u64, SimError> {
        Memory::check_align(align)?;
        let offset = self.private[pe].fit(bytes, align);
        self.affords(offset, bytes, self.buffers[2 * pe].len() as u64, 1)?;
        let name = name.into();
        self.private[pe].insert(Allocation { name, offset, bytes, read_only, alias: None });
        self.grow(2 * pe, offset, bytes);
        Ok(self.private_base(pe) + offset)
    }

    pub(crate) fn free_symmetric(&mut self, s: Symmetric) -> Result<(), SimError> {
        self.heap.remove(s.offset).map(drop).ok_or_else(|| unknown("a freed address of the symmetric heap"))
    }

    pub(crate) fn free_private(&mut self, pe: usize, addr: u64) -> Result<(), SimError> {
        let offset = addr.wrapping_sub(self.private_base(pe));
        self.private[pe].remove(offset).map(drop).ok_or_else(|| unknown("a freed address"))
    }

    /// Moves private memory of a PE to the symmetric heap with its contents, or back.
    pub(crate) fn alias(&mut self, pe: usize, addr: u64, to: Option<Symmetric>) -> Result<(), SimError> {
        let offset = addr.wrapping_sub(self.private_base(pe));
        let a = self.private[pe].get(offset).ok_or_else(|| unknown("registered memory"))?;
        let was = std::mem::replace(&mut a.alias, to.map(|s| s.offset));
        let n = to.map_or(a.bytes, |s| s.bytes.min(a.bytes)) as usize;
        let own = (2 * pe, offset as usize);
        let (from, into) = match (was, to) {
            (None, Some(s)) => (own, (2 * pe + 1, s.offset as usize)),
            (Some(on_heap), None) => ((2 * pe + 1, on_heap as usize), own),
            _ => return Err(SimError::request("the memory is already registered", "")),
        };
        let data = self.buffers[from.0][from.1..from.1 + n].to_vec();
        self.buffers[into.0][into.1..into.1 + n].copy_from_slice(&data);
        self.mark_written(into.0, into.1, n);
        Ok(())
    }

    /// The number of free bytes after the last allocation on the heap, or in one PE's private
    /// memory.
    pub(crate) fn room(&self, pe: Option<usize>) -> u64 {
        let (allocator, buffer, copies) = match pe {
            Some(pe) => (&self.private[pe], 2 * pe, 1),
            None => (&self.heap, 1, self.n_pes as u64),
        };
        let slack = (self.buffers[buffer].len() as u64).saturating_sub(allocator.end());
        let new = self.limit.saturating_sub(self.used) / copies;
        let fixed = self.fixed.filter(|_| pe.is_none()).map(|bytes| bytes.saturating_sub(allocator.end()));
        (slack + new).min(fixed.unwrap_or(u64::MAX)).saturating_sub(2 * RED_ZONE)
    }
}
