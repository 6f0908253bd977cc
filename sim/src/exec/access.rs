//! Memory accesses of lanes: state spaces, windows of generic addresses, bounds and alignment.

use super::{Context, Fault, access_fault, fault};
use crate::codes;
use crate::memory::{Accessor, LOCAL_WINDOW, PARAM_WINDOW, SHARED_WINDOW, Spot, Window};
use crate::order::Scope;
use crate::stats::MulticastBytes;

/// The position of the rank in a `shared::cluster` address, in the format of `mapa`: `r + 1` for
/// the CTA of rank `r` in the bits from this one on, and the offset below.
pub(crate) const CLUSTER_SHIFT: u32 = 24;

/// The state space of an access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Space {
    Generic,
    Global,
    Const,
    Shared,
    /// The shared memory of any CTA of the cluster, at a CTA's own addresses or at those that
    /// `mapa` returns.
    Cluster,
    Local,
    /// The parameters of the kernel.
    Param,
}

impl Space {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Space::Generic => "generic",
            Space::Global => "global",
            Space::Const => "const",
            Space::Shared => "shared",
            Space::Cluster => "shared::cluster",
            Space::Local => "local",
            Space::Param => "param",
        }
    }

    /// The base of the space's window in generic addresses, or 0 for global and const, whose
    /// addresses are generic.
    pub(crate) fn window(self) -> u64 {
        match self {
            Space::Shared | Space::Cluster => SHARED_WINDOW,
            Space::Local => LOCAL_WINDOW,
            Space::Param => PARAM_WINDOW,
            Space::Generic | Space::Global | Space::Const => 0,
        }
    }

    /// Returns the shared space of an address: the CTA's own or the cluster's.
    #[inline]
    fn or_cluster(self, addr: u64) -> Space {
        if addr >> CLUSTER_SHIFT == 0 { Space::Shared } else { Space::Cluster }
    }

    /// Whether the space is the shared memory of some CTA.
    #[inline]
    pub(crate) fn is_shared(self) -> bool {
        matches!(self, Space::Shared | Space::Cluster)
    }

    /// Returns the space that a generic address points to, and the address in it.
    #[inline]
    pub(crate) fn of_generic(addr: u64) -> (Space, u64) {
        match addr >> 32 {
            1 => (Space::Shared.or_cluster(addr & 0xffff_ffff), addr & 0xffff_ffff),
            2 => (Space::Local, addr & 0xffff_ffff),
            3 => (Space::Param, addr & 0xffff_ffff),
            _ => (Space::Global, addr),
        }
    }
}

#[cold]
fn misaligned(cx: &Context<'_>, space: Space, addr: u64, len: usize, lane: usize) -> Fault {
    let place = match space {
        Space::Global | Space::Const | Space::Generic => cx.memory.describe(cx.at.pe, addr),
        _ => format!("{} address {addr:#x}", space.name()),
    };
    fault(
        codes::MISALIGNED,
        lane,
        format!("{len} bytes at {place} are not aligned to {len}"),
        "align an access to its size, and a vector access to the size of the whole vector",
    )
}

#[cold]
fn outside(space: Space, addr: u64, len: usize, size: usize, lane: usize) -> Fault {
    let help = match space {
        Space::Shared => "check the index and the dynamic shared memory given at launch",
        Space::Param => "check the offset: the access lies beyond the kernel's parameters",
        _ => "check the index into the local array",
    };
    let message = format!("{len} bytes at {} offset {addr:#x} are out of bounds (size {size})", space.name());
    let mut f = fault(codes::OUT_OF_BOUNDS, lane, message, help);
    f.shared = (space == Space::Shared).then_some(addr);
    f
}

/// Returns the bytes `[addr, addr + len)` of a narrow space.
#[inline]
fn range(
    space: Space,
    addr: u64,
    len: usize,
    size: usize,
    lane: usize,
) -> Result<std::ops::Range<usize>, Fault> {
    match usize::try_from(addr) {
        Ok(at) if at <= size && size - at >= len => Ok(at..at + len),
        _ => Err(outside(space, addr, len, size, lane)),
    }
}

impl Context<'_> {
    /// The counters of the switch operations of the CTA's PE for a team.
    pub(crate) fn switch(&mut self, team: usize) -> &mut MulticastBytes {
        &mut self.multicast[team * self.memory.n_pes + self.at.pe]
    }

    /// Resolves generic addresses and checks alignment to `len`, a power of two.
    #[inline]
    pub(crate) fn locate(
        &self,
        space: Space,
        addr: u64,
        len: usize,
        lane: usize,
    ) -> Result<(Space, u64), Fault> {
        let (space, addr) = match space {
            Space::Generic => Space::of_generic(addr),
            Space::Cluster => (space.or_cluster(addr), addr),
            _ => (space, addr),
        };
        if addr & (len as u64 - 1) != 0 {
            return Err(misaligned(self, space, addr, len, lane));
        }
        Ok((space, addr))
    }

    /// Moves `w` to the allocation that contains a global access.
    #[inline]
    pub(crate) fn seek(&self, w: &mut Window, addr: u64, len: usize, lane: usize) -> Result<(), Fault> {
        if !w.holds(addr, len as u64) {
            *w = self.memory.window(self.at.pe, addr, len as u64).map_err(|e| access_fault(lane, e))?;
        }
        Ok(())
    }

    /// Returns the location of `len` bytes of the CTA's own shared memory.
    pub(crate) fn own(&self, addr: u64, len: usize, lane: usize) -> Result<Spot, Fault> {
        let size = self.memory.buffers[self.shared].len();
        let at = range(Space::Shared, addr, len, size, lane)?.start;
        Ok(Spot { buffer: self.shared, at })
    }

    /// Returns the location of a `shared::cluster` address with a rank in it.
    #[cold]
    pub(crate) fn remote(&self, addr: u64, len: usize, lane: usize) -> Result<Spot, Fault> {
        let rank = (addr >> CLUSTER_SHIFT).wrapping_sub(1);
        let at = (addr & ((1 << CLUSTER_SHIFT) - 1)) as usize;
        let Some(&buffer) = usize::try_from(rank).ok().and_then(|r| self.at.members.get(r)) else {
            let count = self.at.members.len();
            let message = format!("{addr:#x} is not a shared::cluster address: the cluster has {count} CTAs");
            return Err(fault(
                codes::BAD_ADDRESS,
                lane,
                message,
                "compute the address with mapa, from a rank in the cluster",
            ));
        };
        let size = self.memory.buffers[buffer].len();
        if at <= size && size - at >= len {
            return Ok(Spot { buffer, at });
        }
        let message = format!(
            "{len} bytes at shared offset {at:#x} of the cluster's CTA {rank} are out of bounds (size {size})"
        );
        let help = match size {
            0 => "a CTA's shared memory ends with it: wait at a cluster barrier before its threads exit",
            _ => "check the index and the dynamic shared memory given at launch",
        };
        Err(fault(codes::OUT_OF_BOUNDS, lane, message, help))
    }

    /// Reads `out.len()` bytes (a power of two) for one lane. `w` remembers the allocation between lanes.
    #[inline]
    pub(crate) fn read(
        &mut self,
        space: Space,
        addr: u64,
        out: &mut [u8],
        lane: usize,
        w: &mut Window,
    ) -> Result<(), Fault> {
        let len = out.len();
        let (space, addr) = self.locate(space, addr, len, lane)?;
        match space {
            Space::Global | Space::Const | Space::Generic => {
                self.seek(w, addr, len, lane)?;
                out.copy_from_slice(self.memory.bytes(w, addr, len));
                if self.memory.delayed.under_way > 0 {
                    let spot = self.memory.spot_in(w, addr);
                    self.memory.overlay(self.accessor(), spot, out);
                }
                self.memory.count_load(w.owner, self.at.pe, len);
            }
            Space::Shared => {
                let memory = &self.memory.buffers[self.shared];
                out.copy_from_slice(&memory[range(space, addr, len, memory.len(), lane)?])
            }
            Space::Cluster => {
                let at = self.remote(addr, len, lane)?;
                out.copy_from_slice(self.memory.at(at, len));
            }
            Space::Param => {
                out.copy_from_slice(&self.params[range(space, addr, len, self.params.len(), lane)?])
            }
            Space::Local => {
                let memory = &self.locals.lanes[lane];
                out.copy_from_slice(&memory[range(space, addr, len, memory.len(), lane)?]);
            }
        }
        Ok(())
    }

    /// Writes `data`, whose length is a power of two, for one lane.
    #[inline]
    pub(crate) fn write(
        &mut self,
        space: Space,
        addr: u64,
        data: &[u8],
        lane: usize,
        w: &mut Window,
    ) -> Result<(), Fault> {
        let len = data.len();
        let (space, addr) = self.locate(space, addr, len, lane)?;
        let place = match space {
            Space::Global | Space::Const | Space::Generic => {
                self.seek(w, addr, len, lane)?;
                self.memory.writable(self.at.pe, w, addr).map_err(|e| access_fault(lane, e))?;
                self.remote.wire.order(self.memory, self.at.pe, w.owner);
                if self.memory.delayed.under_way > 0 {
                    let spot = self.memory.spot_in(w, addr);
                    self.memory.land_at(self.accessor(), spot, len);
                }
                self.memory.store(w, addr, data);
                self.memory.count_store(self.at.pe, w.owner, len);
                return Ok(());
            }
            Space::Param => {
                let help = "copy the parameter to a local variable: kernel parameters are constant";
                return Err(fault(codes::BAD_ADDRESS, lane, "store to a kernel parameter", help));
            }
            Space::Shared => {
                let memory = &mut self.memory.buffers[self.shared];
                let size = memory.len();
                &mut memory[range(space, addr, len, size, lane)?]
            }
            Space::Cluster => {
                let at = self.remote(addr, len, lane)?;
                self.memory.store_at(at, data);
                return Ok(());
            }
            Space::Local => {
                let memory = &mut self.locals.lanes[lane];
                let size = memory.len();
                &mut memory[range(space, addr, len, size, lane)?]
            }
        };
        if place != data {
            place.copy_from_slice(data);
            self.memory.changes += 1;
        }
        Ok(())
    }

    /// Writes `data` for one lane. Other CTAs see it at once or later.
    #[inline]
    pub(crate) fn post(
        &mut self,
        space: Space,
        addr: u64,
        data: &[u8],
        lane: usize,
        w: &mut Window,
    ) -> Result<(), Fault> {
        if self.memory.delayed.is_on() {
            let (space, addr) = self.locate(space, addr, data.len(), lane)?;
            if space == Space::Global {
                self.seek(w, addr, data.len(), lane)?;
                self.memory.writable(self.at.pe, w, addr).map_err(|e| access_fault(lane, e))?;
                let spot = self.memory.spot_in(w, addr);
                if self.memory.delay(self.accessor(), w.owner, spot, data) {
                    self.memory.count_store(self.at.pe, w.owner, data.len());
                    return Ok(());
                }
            }
        }
        self.write(space, addr, data, lane, w)
    }

    /// The identity of the CTA for the memory.
    #[inline]
    pub(crate) fn accessor(&self) -> Accessor {
        Accessor { cta: self.shared, pe: self.at.pe, time: self.check.as_ref().map_or(0, |d| d.now()) }
    }

    /// Makes the CTA's own stores to the same bytes visible before an atomic operation.
    #[inline]
    pub(crate) fn land_own(
        &mut self,
        space: Space,
        addr: u64,
        len: usize,
        lane: usize,
        w: &mut Window,
    ) -> Result<(), Fault> {
        if self.memory.delayed.under_way > 0 && space == Space::Global {
            self.seek(w, addr, len, lane)?;
            let spot = self.memory.spot_in(w, addr);
            self.memory.land_at(self.accessor(), spot, len);
        }
        Ok(())
    }

    /// Handles a release of the CTA: its stores become visible to the other threads of the scope.
    #[inline]
    pub(crate) fn publish(&mut self, scope: Scope) {
        if self.memory.delayed.under_way > 0 {
            self.memory.release(self.accessor(), scope);
        }
    }

    /// Remembers the warp's last read and returns whether the warp read the same value before, so
    /// that it is waiting.
    #[inline]
    pub(crate) fn note_read(&mut self, space: Space, addr: u64, value: u64, bytes: usize) -> bool {
        let (space, addr) = if space == Space::Generic { Space::of_generic(addr) } else { (space, addr) };
        if space != Space::Global && !space.is_shared() {
            return false;
        }
        let now = super::Poll {
            pc: self.pc,
            addr,
            value,
            bytes: bytes as u8,
            shared: space.is_shared(),
            valid: true,
            fresh: self.poll.fresh,
            mask: self.poll.mask,
            mbarrier: None,
        };
        let same = *self.poll == now;
        *self.poll = super::Poll { fresh: true, mask: self.active, ..now };
        same
    }
}

/// Reads a little-endian integer of 1, 2, 4 or 8 bytes.
#[inline]
pub(crate) fn from_le(bytes: &[u8]) -> u64 {
    match *bytes {
        [a] => a.into(),
        [a, b] => u16::from_le_bytes([a, b]).into(),
        [a, b, c, d] => u32::from_le_bytes([a, b, c, d]).into(),
        [a, b, c, d, e, f, g, h] => u64::from_le_bytes([a, b, c, d, e, f, g, h]),
        _ => 0,
    }
}

/// Writes the low 1, 2, 4 or 8 bytes of `v`.
#[inline]
pub(crate) fn put_le(out: &mut [u8], v: u64) {
    match out {
        [a] => *a = v as u8,
        [_, _] => out.copy_from_slice(&(v as u16).to_le_bytes()),
        [_, _, _, _] => out.copy_from_slice(&(v as u32).to_le_bytes()),
        [_, _, _, _, _, _, _, _] => out.copy_from_slice(&v.to_le_bytes()),
        _ => {}
    }
}
