//! Collectives on streams, for occasional calls of a program. `weft::collective` has fast ones.

use super::{Direct, reduce};
use crate::DType;
use crate::collective::Reduce;
use crate::cuda::Stream;
use crate::error::Result;
use crate::nvshmem::Collective;

/// A collective on streams.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Move {
    Reduce(Reduce),
    ReduceScatter(Reduce),
    Fcollect,
    AllToAll,
    Broadcast(u32),
}

/// A collective's function, for an element type.
pub struct CollectiveFunction {
    what: Move,
    dtype: DType,
}

impl Direct {
    /// Returns the collective of that name, in NVSHMEM's naming, or `None` if NVSHMEM has none.
    pub fn find_collective(&self, name: &str, dtype: DType) -> Option<CollectiveFunction> {
        let of = |suffix: &str| {
            let name = name.strip_suffix(suffix)?;
            Reduce::ALL.into_iter().find(|op| op.name() == name && reduce::exists(dtype, *op))
        };
        let what = match name {
            "fcollect" => Move::Fcollect,
            "alltoall" => Move::AllToAll,
            _ => of("_reducescatter").map(Move::ReduceScatter).or_else(|| of("_reduce").map(Move::Reduce))?,
        };
        Some(CollectiveFunction { what, dtype })
    }

    pub fn broadcast(&self, dtype: DType, io: &Collective, root: u32, stream: &Stream) -> Result<()> {
        self.collective(&CollectiveFunction { what: Move::Broadcast(root), dtype }, io, stream)
    }

    /// Runs the collective. The team meets before it, so that no PE writes memory that is still
    /// used, and after it, so that all data has arrived.
    pub fn collective(&self, found: &CollectiveFunction, io: &Collective, stream: &Stream) -> Result<()> {
        let (members, size) = (self.members(io.team)?, found.dtype.bytes() as usize);
        let rank = self.team_my_pe(io.team).unwrap_or(0) as usize;
        let (n, bytes) = (members.len(), io.count * size);
        self.barrier(io.team, stream)?;
        let put = |to: usize, from: usize, pe: u32| {
            self.put(io.dest + to as u64, io.source + from as u64, bytes, pe, false, stream)
        };
        let on = |address: u64, bytes: usize, pes: &[u32]| {
            pes.iter().map(|pe| self.copy_of(address, bytes, *pe)).collect::<Result<Vec<u64>>>()
        };
        let reduce = |op, count: usize, (from, to): (u64, u64), pes: &[u32]| {
            let sources = on(from, count * size, &members)?;
            let destinations = on(to, count * size, pes)?;
            let sides = (&*sources, &*destinations);
            self.reductions.launch(&self.device, (found.dtype, op), count, sides, stream)
        };
        match found.what {
            Move::Fcollect => members.iter().try_for_each(|pe| put(rank * bytes, 0, *pe))?,
            Move::AllToAll => {
                members.iter().enumerate().try_for_each(|(j, pe)| put(rank * bytes, j * bytes, *pe))?;
            }
            Move::Broadcast(root) if root as usize == rank => {
                members.iter().try_for_each(|pe| put(0, 0, *pe))?;
            }
            Move::Broadcast(_) => {}
            // Each PE reduces one part and writes it to all PEs, so source and destination can be
            // the same.
            Move::Reduce(op) => {
                let part = io.count.div_ceil(n);
                let (start, end) = ((rank * part).min(io.count), ((rank + 1) * part).min(io.count));
                let offset = (start * size) as u64;
                if start < end {
                    reduce(op, end - start, (io.source + offset, io.dest + offset), &members)?;
                }
            }
            Move::ReduceScatter(op) => {
                let from = io.source + (rank * bytes) as u64;
                reduce(op, io.count, (from, io.dest), &[self.peers.rank()])?;
            }
        }
        self.barrier(io.team, stream)
    }
}
