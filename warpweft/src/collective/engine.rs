//! Calls whose bytes the copy engine transfers. All PEs meet in a kernel, copies to each of them
//! run concurrently, and all PEs meet again. The copy of a PE's own part is concurrent with all of
//! that, and one copy runs on the caller's stream. A CUDA graph captures such a call like any
//! other, because the kernels count how often PEs have met.

use super::handle::Flat;
use super::{Call, Collective, Request};
use crate::gpu::GpuError;
use std::sync::OnceLock;
use weft_runtime::cuda::{Event, Stream};
use weft_runtime::launch::{Copied, Prepared};
use weft_runtime::{Team, World};

/// The kernel that synchronises the PEs.
pub(super) const MEET: &str = "meet";

/// The greatest number of streams for copies, besides the caller's.
const MAX_STREAMS: usize = 8;

/// Streams for concurrent copies, created at the first call.
#[derive(Default)]
pub(super) struct Engine(OnceLock<Vec<Stream>>);

impl Engine {
    /// The streams: one for each PE of the team, up to the greatest number.
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
        meet: &Prepared,
        (call, request): (&Call<'_>, &Request),
        stream: &Stream,
    ) -> Result<(), GpuError> {
        let copies = copies(request, team.my_pe());
        let streams = self.streams(world, request.n_pes)?;
        let (x, out) = (Flat(call.x), Flat(call.out.unwrap_or(call.x)));
        let on = |side: &Stream, copied: &Copied| -> Result<(), GpuError> {
            let pe = team.members().get(copied.pe as usize).copied().unwrap_or(copied.pe);
            Ok(world.copy_bytes(&out, &x, Copied { pe, ..*copied }, side)?)
        };
        // Start copies concurrently, each on its own stream.
        let concurrently = |copies: &[Copied], streams: &[Stream]| -> Result<Vec<Event>, GpuError> {
            if copies.is_empty() || streams.is_empty() {
                return Ok(Vec::new());
            }
            let begin = Event::record(stream)?;
            let used = streams.iter().enumerate().take(copies.len());
            used.map(|(i, side)| {
                begin.wait(side)?;
                copies.iter().skip(i).step_by(streams.len()).try_for_each(|copied| on(side, copied))?;
                Ok(Event::record(side)?)
            })
            .collect()
        };
        let (own, others): (Vec<_>, Vec<_>) = copies.into_iter().partition(|c| c.pe == team.my_pe());
        let (for_own, for_others) = streams.split_at(1.min(streams.len()));
        // No other PE reads or writes this PE's own part of its result.
        let mut ends = concurrently(&own, for_own)?;
        meet.launch(stream, &[])?;
        if let Some((first, rest)) = others.split_first() {
            ends.extend(concurrently(rest, for_others)?);
            on(stream, first)?;
        }
        ends.iter().try_for_each(|end| end.wait(stream))?;
        Ok(meet.launch(stream, &[])?)
    }
}

/// The copies of a PE, by ranks in the team. Each PE starts with the next rank, so that they do not
/// all copy to the same PE, and ends with itself, unless its own part is already in place.
fn copies(request: &Request, me: u32) -> Vec<Copied> {
    let Request { collective, n_pes, root, .. } = *request;
    let part = (request.count * u64::from(request.dtype.bytes())) as usize;
    let at = |pe: u32| pe as usize * part;
    let in_place = request.place == super::Placement::InPlace;
    let copied = |pe: u32| match collective {
        Collective::AllToAll => Copied { pe, to: at(me), from: at(pe), bytes: part },
        Collective::AllGather if in_place => Copied { pe, to: at(me), from: at(me), bytes: part },
        Collective::AllGather => Copied { pe, to: at(me), from: 0, bytes: part },
        _ => Copied { pe, to: 0, from: 0, bytes: part },
    };
    let sends = collective != Collective::Broadcast || me == root;
    let others = (1..n_pes).map(|k| (me + k) % n_pes);
    let own = (!in_place).then_some(me);
    others.chain(own).filter(|_| sends).map(copied).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collective::Placement;
    use weft_runtime::DType;

    #[test]
    fn what_each_pe_copies() {
        let of = |collective, place, me| {
            let request = Request { place, root: 1, ..Request::new(collective, DType::BF16, 8, 3) };
            copies(&request, me).iter().map(|c| (c.pe, c.to, c.from)).collect::<Vec<_>>()
        };
        use Placement::{InPlace, OutOfPlace};
        assert_eq!(of(Collective::AllToAll, OutOfPlace, 1), [(2, 16, 32), (0, 16, 0), (1, 16, 16)]);
        assert_eq!(of(Collective::AllGather, OutOfPlace, 2), [(0, 32, 0), (1, 32, 0), (2, 32, 0)]);
        assert_eq!(of(Collective::AllGather, InPlace, 2), [(0, 32, 32), (1, 32, 32)]);
        assert_eq!(of(Collective::Broadcast, OutOfPlace, 1), [(2, 0, 0), (0, 0, 0), (1, 0, 0)]);
        assert_eq!(of(Collective::Broadcast, InPlace, 1), [(2, 0, 0), (0, 0, 0)]);
        assert!(of(Collective::Broadcast, InPlace, 0).is_empty());
    }
}
