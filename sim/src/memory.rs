//! The memory of the machine, and the virtual addresses at which each PE sees it.
//!
//! Every PE has its own 64-bit address space. It maps the PE's private memory, its own part of the
//! symmetric heap, every peer's part, and every team's multicast range as *regions* of 64 GiB at
//! bases that no other PE uses. So an address that was computed on another PE is detected and not
//! silently accepted.
//!
//! Below the first region are the windows through which generic addresses reach the CTA's shared
//! memory, the thread's local memory and the kernel's parameters.

mod allocator;
mod delayed;
mod name;
mod words;

use crate::codes;
use crate::model::CtaSlot;
use allocator::Allocator;
use delayed::Delayed;
pub(crate) use delayed::{Accessor, Landed, UnderWay};
pub use name::{Elements, Name};

/// The base-2 logarithm of the size of a region in bytes.
const REGION_SHIFT: u32 = 36;
const REGION_MASK: u64 = (1 << REGION_SHIFT) - 1;

/// Generic addresses of the narrow state spaces are `window << 32 | offset`.
pub(crate) const SHARED_WINDOW: u64 = 1 << 32;
pub(crate) const LOCAL_WINDOW: u64 = 2 << 32;
pub(crate) const PARAM_WINDOW: u64 = 3 << 32;

/// A tensor or buffer on the symmetric heap, at the same offset on every PE.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Symmetric {
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
}

impl Symmetric {
    /// Returns the size on each PE in bytes.
    pub fn bytes(self) -> u64 {
        self.bytes
    }
}

/// A set of PEs with a multicast range of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Team(pub(crate) usize);

impl Team {
    /// All PEs of the machine (`NVSHMEM_TEAM_WORLD`).
    pub const WORLD: Team = Team(0);

    /// The `nvshmem_team_t` by which kernels name the team. It is the same on every PE: 0 for the
    /// world, and a number above NVSHMEM's predefined ones for other teams. The predefined teams 1
    /// (shared), 2 (node), 5 (GPU leaders) and 6 (multicast) also equal the world, since the
    /// machine is one node with one GPU for each PE.
    pub fn handle(self) -> i32 {
        if self.0 == 0 { 0 } else { i32::try_from(self.0).map_or(i32::MAX, |n| n.saturating_add(PREDEFINED)) }
    }
}

/// The last of the team handles that NVSHMEM itself defines.
const PREDEFINED: i32 = 6;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RegionKind {
    Private,
    Heap { of: usize },
    Multicast { team: usize },
}

#[derive(Debug, Clone, Copy)]
struct Region {
    viewer: usize,
    kind: RegionKind,
}

/// The members of a team and their multicast traffic.
#[derive(Debug)]
pub(crate) struct TeamInfo {
    pub members: Vec<usize>,
    /// The region of the multicast range, by viewer.
    regions: Vec<Option<u64>>,
}

/// A location in the machine's buffers, independent of the viewer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Spot {
    pub buffer: usize,
    pub at: usize,
}

/// One allocation in the view of one PE. Accesses are checked against it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Window {
    low: u64,
    high: u64,
    pub buffer: usize,
    /// The address of the buffer's byte 0.
    origin: u64,
    read_only: bool,
    /// The PE that owns the memory.
    pub owner: usize,
}

impl Window {
    /// A window without contents.
    pub(crate) fn empty() -> Window {
        Window { low: 1, high: 0, buffer: 0, origin: 0, read_only: true, owner: usize::MAX }
    }

    /// Whether `[addr, addr + len)` lies inside.
    #[inline]
    pub(crate) fn holds(&self, addr: u64, len: u64) -> bool {
        addr >= self.low && addr < self.high && self.high - addr >= len
    }
}

/// An error in an access. The runner adds the executing thread and the line.
#[derive(Debug, Clone)]
pub(crate) struct AccessError {
    pub code: codes::Code,
    pub message: String,
    pub help: &'static str,
}

pub(crate) struct Memory {
    pub n_pes: usize,
    poison: u8,
    limit: u64,
    used: u64,
    /// The size of each PE's heap in bytes, if it is fixed.
    fixed: Option<u64>,
    regions: Vec<Region>,
    heap: Allocator,
    private: Vec<Allocator>,
    pub teams: Vec<TeamInfo>,
    /// The private memory of PE p at `2p`, and its part of the symmetric heap at `2p + 1`. During a
    /// launch, the shared memories of the CTAs follow.
    pub buffers: Vec<Vec<u8>>,
    /// Counts every change of memory contents and every other event that can end a wait. If it does
    /// not change while all warps repeat themselves, the machine is deadlocked.
    pub changes: u64,
    /// The written bytes as bits, by buffer, if reads are checked.
    written: Option<Vec<Vec<u64>>>,
    pub delayed: Delayed,
    /// The bytes that loads, stores and atomics moved between PEs, at index `from * n_pes + to`.
    pub links: Vec<u64>,
    /// The accesses that moved these bytes.
    pub remote: RemoteAccesses,
}

/// Counts of accesses of lanes, and of pieces of asynchronous copies, to memory of other PEs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct RemoteAccesses {
    pub loads: u64,
    pub stores: u64,
}

impl Memory {
    /// Replaces a machine's memory while grids have it.
    pub(crate) fn none() -> Self {
        Memory::new(0, 0, 0)
    }

    pub(crate) fn new(n_pes: usize, poison: u8, limit: u64) -> Self {
        let mut regions = vec![Region { viewer: usize::MAX, kind: RegionKind::Private }];
        for viewer in 0..n_pes {
            regions.push(Region { viewer, kind: RegionKind::Private });
            regions.extend((0..n_pes).map(|of| Region { viewer, kind: RegionKind::Heap { of } }));
        }
        let mut memory = Memory {
            n_pes,
            poison,
            limit,
            used: 0,
            fixed: None,
            regions,
            heap: Allocator::default(),
            private: (0..n_pes).map(|_| Allocator::default()).collect(),
            teams: Vec::new(),
            buffers: vec![Vec::new(); 2 * n_pes],
            changes: 0,
            written: None,
            delayed: Delayed::off(),
            links: vec![0; n_pes * n_pes],
            remote: RemoteAccesses::default(),
        };
        memory.add_team(&(0..n_pes).collect::<Vec<_>>());
        memory
    }

    /// The team that a kernel names with this handle.
    pub(crate) fn team_of(&self, handle: i32) -> Option<usize> {
        let team = match handle {
            0 | 1 | 2 | 5 | 6 => 0,
            n => usize::try_from(n.checked_sub(PREDEFINED)?).ok().filter(|&n| n > 0)?,
        };
        (team < self.teams.len()).then_some(team)
    }

    /// The location of `[addr, addr + len)` on the symmetric heap, if it is in the PE's own part.
    pub(crate) fn symmetric(&self, pe: usize, addr: u64, len: u64) -> Result<u64, AccessError> {
        let what = match self.region(pe, addr)? {
            Some(Region { kind: RegionKind::Heap { of }, .. }) if *of == pe => {
                let offset = addr & REGION_MASK;
                return match self.heap.below(offset) {
                    Some(a) if a.holds(offset, len) => Ok(offset),
                    _ => Err(self.outside(pe, addr, len)),
                };
            }
            Some(Region { kind: RegionKind::Heap { .. }, .. }) => "is already an address of a peer's memory",
            Some(Region { kind: RegionKind::Multicast { .. }, .. }) => "is a multicast address",
            Some(Region { kind: RegionKind::Private, .. }) => "is not symmetric",
            None => return Err(self.unmapped(pe, addr)),
        };
        Err(AccessError {
            code: codes::NVSHMEM,
            message: format!("{} {what}", self.describe(pe, addr)),
            help: "pass the PE's own address of an object on the symmetric heap, and the target PE as a separate argument",
        })
    }

    /// The location of `[addr, addr + len)` for plain accesses of `pe`.
    pub(crate) fn spot(&self, pe: usize, addr: u64, len: u64, write: bool) -> Result<Spot, AccessError> {
        let w = self.window(pe, addr, len)?;
        if write {
            self.writable(pe, &w, addr)?;
        }
        Ok(Spot { buffer: w.buffer, at: (addr - w.origin) as usize })
    }

    /// The location of a heap offset on `pe`.
    pub(crate) fn heap(&self, pe: usize, offset: u64) -> Spot {
        Spot { buffer: 2 * pe + 1, at: offset as usize }
    }

    /// The buffer of the shared memory of CTA `cta` of a launch.
    #[inline]
    pub(crate) fn shared_buffer(&self, cta: CtaSlot) -> usize {
        2 * self.n_pes + cta.0
    }

    /// Gives a new CTA this amount of uninitialised shared memory.
    pub(crate) fn share(&mut self, cta: CtaSlot, bytes: usize) {
        let buffer = self.shared_buffer(cta);
        if buffer >= self.buffers.len() {
            self.buffers.resize_with(buffer + 1, Vec::new);
        }
        let memory = &mut self.buffers[buffer];
        memory.clear();
        memory.resize(bytes, self.poison);
    }

    /// Removes the shared memories at the end of a launch.
    pub(crate) fn unshare(&mut self) {
        self.buffers.truncate(2 * self.n_pes);
    }

    /// Returns the bytes at a location that has been checked.
    pub(crate) fn at(&self, s: Spot, len: usize) -> &[u8] {
        &self.buffers[s.buffer][s.at..s.at + len]
    }

    /// Begins to record the written bytes.
    pub(crate) fn remember_writes(&mut self) {
        self.written = Some(vec![Vec::new(); self.buffers.len()]);
    }

    /// Records that these bytes are written.
    #[inline]
    pub(crate) fn mark_written(&mut self, buffer: usize, at: usize, len: usize) {
        if let Some(all) = &mut self.written {
            // Shared memory begins with its CTA, and the detector knows its writes.
            let Some(bits) = all.get_mut(buffer) else { return };
            if bits.len() * 64 < at + len {
                bits.resize((at + len).div_ceil(64).max(self.buffers[buffer].len() / 64), 0);
            }
            let mut from = at;
            while from < at + len {
                let n = (64 - from % 64).min(at + len - from);
                bits[from / 64] |= crate::num::mask(n as u32) << (from % 64);
                from += n;
            }
        }
    }

    /// Marks these bytes as uninitialised.
    fn forget_writes(&mut self, buffer: usize, at: usize, len: usize) {
        let Some(bits) = self.written.as_mut().and_then(|all| all.get_mut(buffer)) else { return };
        for i in at..at + len {
            if let Some(word) = bits.get_mut(i / 64) {
                *word &= !(1 << (i % 64));
            }
        }
    }

    /// Whether all of these bytes have been written.
    pub(crate) fn is_written(&self, buffer: usize, at: usize, len: usize) -> bool {
        let Some(bits) = self.written.as_ref().and_then(|all| all.get(buffer)) else { return true };
        (at..at + len).all(|i| bits.get(i / 64).is_some_and(|w| w >> (i % 64) & 1 != 0))
    }

    /// The name and the first byte of the allocation at a location in a buffer, whether it is
    /// symmetric, and its owner.
    pub(crate) fn allocation(&self, buffer: usize, at: u64) -> (String, u64, bool, usize) {
        let (pe, symmetric) = (buffer / 2, buffer % 2 == 1);
        let allocator = if symmetric { &self.heap } else { &self.private[pe] };
        let (name, start) =
            allocator.below(at).map_or((String::new(), 0), |a| (a.name.text().to_owned(), a.offset));
        (name, start, symmetric, pe)
    }

    /// The buffer and offset of byte `addr` in a window.
    #[inline]
    pub(crate) fn spot_in(&self, w: &Window, addr: u64) -> Spot {
        Spot { buffer: w.buffer, at: (addr - w.origin) as usize }
    }

    /// Writes at a location that has been checked. A change of contents is counted.
    pub(crate) fn store_at(&mut self, s: Spot, data: &[u8]) {
        self.mark_written(s.buffer, s.at, data.len());
        let place = &mut self.buffers[s.buffer][s.at..s.at + data.len()];
        if place != data {
            place.copy_from_slice(data);
            self.changes += 1;
        }
    }

    fn private_base(&self, pe: usize) -> u64 {
        (1 + pe as u64 * (self.n_pes as u64 + 1)) << REGION_SHIFT
    }

    /// The address at which `viewer` sees a symmetric object of `target`.
    pub(crate) fn peer_addr(&self, viewer: usize, target: usize, offset: u64) -> u64 {
        self.private_base(viewer) + ((1 + target as u64) << REGION_SHIFT) + offset
    }

    pub(crate) fn multicast_addr(&self, viewer: usize, team: usize, offset: u64) -> Option<u64> {
        let region = (*self.teams.get(team)?.regions.get(viewer)?)?;
        Some((region << REGION_SHIFT) + offset)
    }

    pub(crate) fn add_team(&mut self, members: &[usize]) -> Team {
        let team = self.teams.len();
        let mut regions = vec![None; self.n_pes];
        for &viewer in members {
            regions[viewer] = Some(self.regions.len() as u64);
            self.regions.push(Region { viewer, kind: RegionKind::Multicast { team } });
        }
        self.teams.push(TeamInfo { members: members.to_vec(), regions });
        Team(team)
    }

    /// The allocation around `[addr, addr + len)` in the address space of `pe`, for plain accesses.
    #[cold]
    pub(crate) fn window(&self, pe: usize, addr: u64, len: u64) -> Result<Window, AccessError> {
        let Some(region) = self.region(pe, addr)? else { return Err(self.unmapped(pe, addr)) };
        let (allocator, buffer, owner) = match region.kind {
            RegionKind::Private => (&self.private[pe], 2 * pe, pe),
            RegionKind::Heap { of } => (&self.heap, 2 * of + 1, of),
            RegionKind::Multicast { .. } => {
                return Err(AccessError {
                    code: codes::MULTICAST,
                    message: format!(
                        "a plain access uses {}, which is a multicast address",
                        self.describe(pe, addr)
                    ),
                    help: "use the local or peer address here; only multimem.ld_reduce, multimem.st and multimem.red \
                           accept a multicast address",
                });
            }
        };
        let offset = addr & REGION_MASK;
        let origin = addr - offset;
        match allocator.below(offset) {
            // Registered memory belongs to the heap at both addresses.
            Some(a)
                if a.holds(offset, len)
                    && let Some(on_heap) = a.alias =>
            {
                Ok(Window {
                    low: origin + a.offset,
                    high: origin + a.offset + a.bytes,
                    buffer: buffer + 1,
                    origin: (origin + a.offset).wrapping_sub(on_heap),
                    read_only: false,
                    owner,
                })
            }
            Some(a) if a.holds(offset, len) => Ok(Window {
                low: origin + a.offset,
                high: origin + a.offset + a.bytes,
                buffer,
                origin,
                read_only: a.read_only,
                owner,
            }),
            _ => Err(self.outside(pe, addr, len)),
        }
    }

    /// Offset on the heap and team of a multicast address, for multimem accesses.
    pub(crate) fn multicast(&self, pe: usize, addr: u64, len: u64) -> Result<(usize, usize), AccessError> {
        let region = self.region(pe, addr)?;
        let Some(Region { kind: RegionKind::Multicast { team }, .. }) = region else {
            return Err(AccessError {
                code: codes::MULTICAST,
                message: format!("{} is not a multicast address", self.describe(pe, addr)),
                help: "give multimem instructions the multicast address of a symmetric tensor (nvshmemx_mc_ptr)",
            });
        };
        let offset = addr & REGION_MASK;
        match self.heap.below(offset) {
            Some(a) if a.holds(offset, len) => Ok((*team, offset as usize)),
            _ => Err(self.outside(pe, addr, len)),
        }
    }

    fn region(&self, pe: usize, addr: u64) -> Result<Option<&Region>, AccessError> {
        let region = match addr >> REGION_SHIFT {
            0 => None,
            n => usize::try_from(n).ok().and_then(|n| self.regions.get(n)),
        };
        match region {
            Some(r) if r.viewer != pe => Err(AccessError {
                code: codes::BAD_ADDRESS,
                message: format!(
                    "PE {pe} uses {addr:#x}, which is an address in PE {}'s address space ({})",
                    r.viewer,
                    self.describe(r.viewer, addr)
                ),
                help: "pass offsets, or ask for the peer address: an address is valid only on the PE that mapped it",
            }),
            other => Ok(other),
        }
    }

    /// The bytes of an access within the window `w`.
    #[inline]
    pub(crate) fn bytes(&self, w: &Window, addr: u64, len: usize) -> &[u8] {
        let at = (addr - w.origin) as usize;
        &self.buffers[w.buffer][at..at + len]
    }

    /// Writes bytes. A change of contents is counted.
    #[inline]
    pub(crate) fn store(&mut self, w: &Window, addr: u64, data: &[u8]) {
        let at = (addr - w.origin) as usize;
        self.mark_written(w.buffer, at, data.len());
        let place = &mut self.buffers[w.buffer][at..at + data.len()];
        if place != data {
            place.copy_from_slice(data);
            self.changes += 1;
        }
    }

    /// Whether stores and atomics may use the window.
    pub(crate) fn writable(&self, pe: usize, w: &Window, addr: u64) -> Result<(), AccessError> {
        if !w.read_only {
            return Ok(());
        }
        Err(AccessError {
            code: codes::BAD_ADDRESS,
            message: format!("{} is constant memory and cannot be written", self.describe(pe, addr)),
            help: "declare the variable in .global",
        })
    }

    /// Counts the bytes that an operation of `pe` moved on the links.
    pub(crate) fn count_bytes(&mut self, pe: usize, from: Option<Spot>, to: Spot, bytes: usize) {
        if let Some(owner) = from.and_then(|s| self.owner(s)) {
            self.count_load(owner, pe, bytes);
        }
        if let Some(owner) = self.owner(to) {
            self.count_store(pe, owner, bytes);
        }
    }

    /// The PE whose global memory contains a location, or none for shared memory.
    pub(crate) fn owner(&self, s: Spot) -> Option<usize> {
        (s.buffer < 2 * self.n_pes).then_some(s.buffer / 2)
    }

    /// Counts bytes that `pe` has read from `owner`.
    #[inline]
    pub(crate) fn count_load(&mut self, owner: usize, pe: usize, bytes: usize) {
        if owner != pe {
            self.links[owner * self.n_pes + pe] += bytes as u64;
            self.remote.loads += 1;
        }
    }

    /// Counts bytes that `pe` has written to `owner`.
    #[inline]
    pub(crate) fn count_store(&mut self, pe: usize, owner: usize, bytes: usize) {
        if owner != pe {
            self.links[pe * self.n_pes + owner] += bytes as u64;
            self.remote.stores += 1;
        }
    }

    /// Subtracts the count of a read that a reduction executes at the memory.
    pub(crate) fn uncount_load(&mut self, owner: usize, pe: usize, bytes: usize) {
        if owner != pe {
            self.links[owner * self.n_pes + pe] -= bytes as u64;
            self.remote.loads -= 1;
        }
    }
}
