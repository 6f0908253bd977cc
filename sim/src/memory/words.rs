//! Descriptions of addresses, and errors about them.

use super::allocator::Allocator;
use super::name::Kind;
use super::{AccessError, Memory, REGION_MASK, REGION_SHIFT, Region, RegionKind, Spot};
use crate::codes;

impl Memory {
    pub(super) fn unmapped(&self, pe: usize, addr: u64) -> AccessError {
        let (message, help) = if addr < 1 << 16 {
            (
                format!("{addr:#x} is a null pointer (or an offset from one)"),
                "check the kernel's pointer arguments and, for the memory of a peer, that the PE exists and that \
                 loads and stores reach it: nvshmem_ptr returns null otherwise",
            )
        } else {
            (
                format!("{addr:#x} is not mapped on PE {pe}"),
                "check the kernel's pointer arguments and the address arithmetic",
            )
        };
        AccessError { code: codes::BAD_ADDRESS, message, help }
    }

    pub(super) fn outside(&self, pe: usize, addr: u64, len: u64) -> AccessError {
        let near = self.region_at(addr).and_then(|region| self.allocator(region).nearest(addr & REGION_MASK));
        // A row has at least 8 bytes. A smaller access belongs to a tensor next to the table.
        let help = if len >= 8 && near.is_some_and(|allocation| allocation.name.kind() == Kind::Peers) {
            "check the PE: its number must be from 0 to n_pes(team) - 1"
        } else {
            "check the bound on the index: the usual cause is the tail of a tensor whose size is not a multiple of the tile"
        };
        AccessError {
            code: codes::OUT_OF_BOUNDS,
            message: format!("an access of {len} bytes at {} is out of bounds", self.describe(pe, addr)),
            help,
        }
    }

    /// The region of an address, which need not be in an allocation.
    fn region_at(&self, addr: u64) -> Option<&Region> {
        usize::try_from(addr >> REGION_SHIFT).ok().filter(|&n| n > 0).and_then(|n| self.regions.get(n))
    }

    fn allocator(&self, region: &Region) -> &Allocator {
        match region.kind {
            RegionKind::Private => &self.private[region.viewer],
            RegionKind::Heap { .. } | RegionKind::Multicast { .. } => &self.heap,
        }
    }

    /// Whether the address is in memory in which kernels keep the state of their own reports.
    pub(crate) fn is_of_reports(&self, addr: u64) -> bool {
        let found =
            self.region_at(addr).and_then(|region| self.allocator(region).nearest(addr & REGION_MASK));
        found.is_some_and(|allocation| allocation.name.kind() == Kind::Reports)
    }

    /// Describes a location.
    pub(crate) fn describe_at(&self, s: Spot) -> String {
        match self.owner(s) {
            Some(pe) if s.buffer % 2 == 1 => self.describe(pe, self.peer_addr(pe, pe, s.at as u64)),
            Some(pe) => self.describe(pe, self.private_base(pe) + s.at as u64),
            None => format!("shared {:#x}", s.at),
        }
    }

    /// Describes the address: allocation, element or offset, size and owner.
    pub(crate) fn describe(&self, pe: usize, addr: u64) -> String {
        let Some(region) = self.region_at(addr) else { return format!("{addr:#x}") };
        let whose = match region.kind {
            RegionKind::Private => format!("private memory of PE {}", region.viewer),
            RegionKind::Heap { of } if of == pe => format!("symmetric heap of PE {of}"),
            RegionKind::Heap { of } => format!("symmetric heap of peer PE {of}"),
            RegionKind::Multicast { team } => {
                format!("multicast range of team {:?}", self.teams[team].members)
            }
        };
        let offset = addr & REGION_MASK;
        // An address in the red zone is described relative to the nearest allocation.
        match self.allocator(region).nearest(offset) {
            Some(a) => {
                let delta = offset as i64 - a.offset as i64;
                match a.name.element(delta) {
                    Some((element, None)) => format!("{element} ({whose})"),
                    Some((element, Some(count))) => format!("{element} (of {count} elements, {whose})"),
                    None => format!("`{}`{delta:+} ({addr:#x}; {} bytes, {whose})", a.name.text(), a.bytes),
                }
            }
            None => format!("{addr:#x} ({whose}, which has no allocations)"),
        }
    }
}
