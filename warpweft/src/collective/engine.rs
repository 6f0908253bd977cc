//! Calls whose bytes the copy engine transfers. All PEs meet in a kernel, and then copies to each of
//! them run concurrently. A copy begins several microseconds after the kernel before it has ended,
//! so meanwhile the threads of another kernel store the first bytes of each part. They also copy the
//! PE's own part. After each copy, the copy engine writes a count to the PE that received it, and a
//! third kernel waits for the counts of all senders. A kernel could write it only several
//! microseconds after the copy has ended. A CUDA graph captures such a call like any other, because
//! the kernels count the calls.

use super::call::{Call, Flat};
use super::ready::Ready;
use super::{Collective, Placement, Request};
use crate::gpu::GpuError;
use std::sync::OnceLock;
use weft_runtime::cuda::{Event, Stream};
use weft_runtime::launch::Copied;
use weft_runtime::memory::AnyTensor;
use weft_runtime::{Team, World};

/// The kernel that synchronises the PEs.
pub(super) const MEET: &str = "meet";
/// The kernel whose threads store the first bytes of each part.
pub(super) const LEAD: &str = "lead";
/// The kernel that waits for the data of other PEs.
pub(super) const LANDED: &str = "landed";
/// The greatest number of CTAs of that kernel, and the threads of each.
pub(super) const LEAD_SHAPE: (u32, u32) = (32, 512);

/// The bytes that threads send before the copy engine has begun. On two H200s, 2 to 4 MiB are the
/// best number for 16 to 256 MiB.
const LEAD_BYTES: usize = 3 << 20;
/// Threads send at most this fraction of a part.
const LEAD_SHARE: usize = 8;

/// The greatest number of streams for copies, besides the caller's.
const MAX_STREAMS: usize = 8;

/// The kernels of a call.
#[derive(Clone)]
pub(super) struct Kernels {
    /// All PEs wait for each other.
    pub meet: Ready,
    /// The kernel that runs beside the copies.
    pub lead: Ready,
    /// The kernel that waits for the data of other PEs.
    pub landed: Ready,
    /// The number of calls in which each PE has sent data.
    pub calls: AnyTensor,
    /// The calls in which the data of each PE has arrived.
    pub marks: AnyTensor,
}

impl Kernels {
    /// Whether all of them can still be launched.
    pub fn are_current(&self) -> bool {
        [&self.meet, &self.lead, &self.landed].iter().all(|kernel| kernel.is_current())
    }
}

/// Streams for concurrent copies, created at the first call.
#[derive(Default)]
pub(super) struct Engine(OnceLock<Vec<Stream>>);

impl Engine {
    /// Returns a stream for each PE of the team, up to the greatest number.
    ///
    /// # Errors
    ///
    /// Fails if the CUDA driver does not create them (R0103).
    pub fn streams(&self, world: &World, n_pes: u32) -> Result<&[Stream], GpuError> {
        if let Some(streams) = self.0.get() {
            return Ok(streams);
        }
        let n = (n_pes as usize).min(MAX_STREAMS);
        let made = (0..n).map(|_| world.device().new_stream()).collect::<Result<Vec<_>, _>>()?;
        Ok(self.0.get_or_init(|| made))
    }

    /// Carries out a call.
    ///
    /// # Errors
    /// Fails if the CUDA driver refuses a launch or a copy (R0103), or if the copy engine does not reach a PE (R0304).
    pub fn go(
        &self,
        (world, team): (&World, &Team),
        kernels: &Kernels,
        (call, request): (&Call<'_>, &Request),
        stream: &Stream,
    ) -> Result<(), GpuError> {
        let copies = copies(request, team.my_pe());
        let streams = self.streams(world, request.n_pes)?;
        let (x, out) = (Flat(call.x), Flat(call.out.unwrap_or(call.x)));
        let member = |pe: u32| team.members().get(pe as usize).copied().unwrap_or(pe);
        kernels.meet.go(call, stream)?;
        let begin = Event::record(stream)?;
        let sides = || streams.iter().enumerate().take(copies.len());
        let of = |i: usize| copies.iter().skip(i).step_by(streams.len());
        for (i, side) in sides() {
            begin.wait(side)?;
            for copied in of(i) {
                world.copy_bytes(&out, &x, Copied { pe: member(copied.pe), ..*copied }, side)?;
            }
        }
        kernels.lead.go(call, stream)?;
        let counted = Event::record(stream)?;
        kernels.landed.go(call, stream)?;
        for (i, side) in sides() {
            counted.wait(side)?;
            let word = team.my_pe() as usize;
            for copied in of(i) {
                world.copy_count(&kernels.marks, &kernels.calls, (member(copied.pe), word), side)?;
            }
            Event::record(side)?.wait(stream)?;
        }
        Ok(())
    }
}

/// What the threads of [`LEAD`] move, in elements.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Lead {
    /// The beginning of PE 0's part of the operand.
    pub from: u64,
    /// The distance between the parts of two PEs.
    pub apart: u64,
    /// The place of this PE's data in the results of all PEs.
    pub to: u64,
    /// The first elements of each other PE's part, which are sent.
    pub head: u64,
    /// The number of elements that this PE has to copy to its own result.
    pub own: u64,
}

impl Lead {
    /// What PE `me` moves.
    pub fn of(request: &Request, me: u32) -> Lead {
        let Request { collective, n_pes, count, place, .. } = *request;
        let size = request.dtype.bytes() as usize;
        let (mine, in_place) = (u64::from(me) * count, place == Placement::InPlace);
        let (from, apart, to) = match collective {
            Collective::AllToAll => (0, count, mine),
            Collective::AllGather if in_place => (mine, 0, mine),
            Collective::AllGather => (0, 0, mine),
            _ => (0, 0, 0),
        };
        let sends = sends(request, me);
        let each = LEAD_BYTES / (n_pes.max(2) as usize - 1);
        // Threads move whole vectors, so the parts of all PEs must begin with one.
        let head = (count as usize * size / LEAD_SHARE).min(each) / 16 * 16 / size;
        let head = if sends && request.align >= 16 && n_pes > 1 { head as u64 } else { 0 };
        Lead { from, apart, to, head, own: if sends && !in_place { count } else { 0 } }
    }

    /// The arguments of [`LEAD`] by their names. It counts in vectors of `unit` elements, except for its own part.
    pub fn numbers(self, unit: u64) -> [(&'static str, u64); 5] {
        let Lead { from, apart, to, head, own } = self;
        [
            ("from", from / unit),
            ("apart", apart / unit),
            ("to", to / unit),
            ("head", head / unit),
            ("own", own),
        ]
    }
}

/// Whether PE `me` sends data. Only the root of a broadcast does.
fn sends(request: &Request, me: u32) -> bool {
    request.collective != Collective::Broadcast || me == request.root
}

/// What the copy engine copies for a PE, by ranks in the team. Each PE starts with the next rank, so
/// that they do not all copy to the same PE.
fn copies(request: &Request, me: u32) -> Vec<Copied> {
    if !sends(request, me) {
        return Vec::new();
    }
    let Request { n_pes, count, .. } = *request;
    let Lead { from, apart, to, head, .. } = Lead::of(request, me);
    let bytes = |elements: u64| (elements * u64::from(request.dtype.bytes())) as usize;
    let others = (1..n_pes).map(|k| (me + k) % n_pes);
    let copied = |pe: u32| Copied {
        pe,
        to: bytes(to + head),
        from: bytes(from + u64::from(pe) * apart + head),
        bytes: bytes(count - head),
    };
    others.map(copied).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_runtime::DType;

    use Placement::{InPlace, OutOfPlace};

    /// A request of 3 PEs with `count` elements of two bytes for each part.
    fn of(collective: Collective, place: Placement, count: u64) -> Request {
        let request = Request::new(collective, DType::BF16, count, 3);
        Request { place, root: 1, align: if count.is_multiple_of(8) { 16 } else { 2 }, ..request }
    }

    #[test]
    fn what_each_pe_copies() {
        let copies = |collective, place, me| {
            let all = copies(&of(collective, place, 8), me);
            all.iter().map(|c| (c.pe, c.to, c.from, c.bytes)).collect::<Vec<_>>()
        };
        assert_eq!(copies(Collective::AllToAll, OutOfPlace, 1), [(2, 16, 32, 16), (0, 16, 0, 16)]);
        assert_eq!(copies(Collective::AllGather, OutOfPlace, 2), [(0, 32, 0, 16), (1, 32, 0, 16)]);
        assert_eq!(copies(Collective::AllGather, InPlace, 2), [(0, 32, 32, 16), (1, 32, 32, 16)]);
        assert_eq!(copies(Collective::Broadcast, OutOfPlace, 1), [(2, 0, 0, 16), (0, 0, 0, 16)]);
        assert!(copies(Collective::Broadcast, InPlace, 0).is_empty());
    }

    #[test]
    fn threads_send_whole_vectors_of_the_beginning() {
        let lead = |collective, place, count, me| Lead::of(&of(collective, place, count), me);
        let all = lead(Collective::AllToAll, OutOfPlace, 128, 1);
        assert_eq!(all, Lead { from: 0, apart: 128, to: 128, head: 16, own: 128 });
        // The rest is the copy engine's.
        let rest = copies(&of(Collective::AllToAll, OutOfPlace, 128), 1);
        assert_eq!(rest[0], Copied { pe: 2, to: 288, from: 544, bytes: 224 });
        assert_eq!(lead(Collective::AllGather, InPlace, 128, 2).own, 0);
        assert_eq!(
            lead(Collective::AllGather, OutOfPlace, 132, 2).head,
            0,
            "parts that begin within a vector"
        );
        assert_eq!(lead(Collective::Broadcast, InPlace, 1 << 30, 1).head, (LEAD_BYTES as u64) / 4);
        let idle = Lead { from: 0, apart: 0, to: 0, head: 0, own: 0 };
        assert_eq!(lead(Collective::Broadcast, OutOfPlace, 1 << 30, 0), idle, "the root alone sends");
    }
}
