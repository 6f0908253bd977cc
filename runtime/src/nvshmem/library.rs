//! NVSHMEM of a PE: the host library, or what the simulator has in its place.

use super::result::{self, Collective, Host, PutSignal};
use super::sys::Team;
use super::version::Version;
use crate::DType;
use crate::cuda::Stream;
use crate::error::Result;
use crate::simulated::{self, Nvshmem, not_simulated};
use std::ffi::c_void;
use std::path::Path;
use weft_sim::Name;

/// Either.
#[expect(clippy::large_enum_variant, reason = "there is one for each PE, and calls need no further pointer")]
pub enum Library {
    Host(Host),
    Simulated(Nvshmem),
}

/// A collective's function.
pub enum Found {
    Host(result::Found),
    Simulated(simulated::Found),
}

/// A stream as C has it.
pub fn raw(stream: &Stream) -> Result<*mut c_void> {
    Ok(stream.gpu()?.cu_stream().cast())
}

/// The simulated one.
fn queue(stream: &Stream) -> Result<&simulated::Stream> {
    match stream {
        Stream::Simulated(stream) => Ok(stream),
        Stream::Gpu(_) => Err(not_simulated("stream of a GPU")),
    }
}

/// The same call of either.
macro_rules! either {
    ($library:expr, $l:ident => $call:expr) => {
        match $library {
            Library::Host($l) => $call,
            Library::Simulated($l) => $call,
        }
    };
}

/// A call on a stream, of the host's library without an answer.
macro_rules! on_stream {
    ($library:expr, $stream:expr, $l:ident, $s:ident => $call:expr) => {
        match $library {
            Library::Host($l) => {
                let $s = raw($stream)?;
                $call;
                Ok(())
            }
            Library::Simulated($l) => {
                let $s = queue($stream)?;
                $call
            }
        }
    };
}

impl Library {
    /// Where it was loaded from; nowhere if it is the simulator's.
    pub fn path(&self) -> &Path {
        match self {
            Library::Host(l) => l.path(),
            Library::Simulated(_) => Path::new(""),
        }
    }

    pub fn version(&self) -> Version {
        match self {
            Library::Host(l) => l.version(),
            Library::Simulated(_) => simulated::VERSION,
        }
    }

    pub fn finalize(&self) {
        if let Library::Host(l) = self {
            l.finalize();
        }
    }

    pub fn module_init(&self, module: *mut c_void) -> Result<()> {
        match self {
            Library::Host(l) => l.module_init(module),
            Library::Simulated(_) => Ok(()),
        }
    }

    pub fn module_finalize(&self, module: *mut c_void) -> Result<()> {
        match self {
            Library::Host(l) => l.module_finalize(module),
            Library::Simulated(_) => Ok(()),
        }
    }

    /// Symmetric memory; `name` is for what the simulator says of it. Collective over all PEs.
    pub fn alloc(&self, name: &str, bytes: usize, align: usize) -> u64 {
        match self {
            Library::Host(l) => l.alloc(bytes, align),
            Library::Simulated(l) => l.alloc(name, bytes, align),
        }
    }

    pub fn free(&self, address: u64) {
        either!(self, l => l.free(address));
    }

    pub fn peer(&self, address: u64, pe: u32) -> Option<u64> {
        either!(self, l => l.peer(address, pe))
    }

    /// Whether kernels that have the choice carry their operations on a PE out in place, where loads and stores reach it.
    pub fn in_place(&self, pe: u32) -> bool {
        match self {
            Library::Host(_) => true,
            Library::Simulated(l) => l.in_place(pe),
        }
    }

    /// Names memory for findings of the simulator.
    pub fn set_name(&self, address: u64, name: Name) {
        if let Library::Simulated(l) = self {
            l.set_name(address, name);
        }
    }

    pub fn multicast(&self, team: Team, address: u64) -> Option<u64> {
        either!(self, l => l.multicast(team, address))
    }

    pub fn register(&self, address: u64, bytes: usize) -> u64 {
        either!(self, l => l.register(address, bytes))
    }

    pub fn unregister(&self, address: u64, bytes: usize) -> Result<()> {
        match self {
            Library::Host(l) => l.unregister(address, bytes),
            Library::Simulated(l) => l.unregister(address),
        }
    }

    /// The handle by which a predefined team is known from now on.
    pub fn resolve(&self, team: Team) -> Team {
        match self {
            Library::Host(_) => team,
            Library::Simulated(l) => l.resolve(team),
        }
    }

    pub fn team_my_pe(&self, team: Team) -> Option<u32> {
        either!(self, l => l.team_my_pe(team))
    }

    pub fn team_n_pes(&self, team: Team) -> Option<u32> {
        either!(self, l => l.team_n_pes(team))
    }

    pub fn translate(&self, from: Team, pe: u32, to: Team) -> Option<u32> {
        either!(self, l => l.translate(from, pe, to))
    }

    pub fn split_strided(&self, parent: Team, start: u32, stride: u32, size: u32) -> Result<Option<Team>> {
        either!(self, l => l.split_strided(parent, start, stride, size))
    }

    pub fn split_2d(&self, parent: Team, x_range: u32) -> Result<(Option<Team>, Option<Team>)> {
        either!(self, l => l.split_2d(parent, x_range))
    }

    pub fn team_unique_id(&self) -> Result<u64> {
        match self {
            Library::Host(l) => l.team_unique_id(),
            Library::Simulated(l) => Ok(l.team_unique_id()),
        }
    }

    /// A team of these PEs of the world, in this order, of which this one is number `my_pe`.
    pub fn team_init(&self, unique_id: u64, members: &[u32], my_pe: u32) -> Result<Team> {
        match self {
            Library::Host(l) => l.team_init(unique_id, members.len() as u32, my_pe),
            Library::Simulated(l) => l.team_init(unique_id, members),
        }
    }

    pub fn team_destroy(&self, team: Team) {
        if let Library::Host(l) = self {
            l.team_destroy(team);
        }
    }

    /// All PEs have come, and all their stores are seen.
    pub fn barrier_all(&self) -> Result<()> {
        match self {
            Library::Host(l) => {
                l.barrier_all();
                Ok(())
            }
            Library::Simulated(l) => l.barrier_all(),
        }
    }

    pub fn put(&self, to: u64, from: u64, bytes: usize, pe: u32, nbi: bool, on: &Stream) -> Result<()> {
        on_stream!(self, on, l, stream => l.put(to, from, bytes, pe, nbi, stream))
    }

    pub fn get(&self, to: u64, from: u64, bytes: usize, pe: u32, nbi: bool, on: &Stream) -> Result<()> {
        on_stream!(self, on, l, stream => l.get(to, from, bytes, pe, nbi, stream))
    }

    pub fn put_signal(&self, copy: &PutSignal, on: &Stream) -> Result<()> {
        on_stream!(self, on, l, stream => l.put_signal(copy, stream))
    }

    pub fn signal(&self, signal: u64, value: u64, op: i32, pe: u32, on: &Stream) -> Result<()> {
        on_stream!(self, on, l, stream => l.signal(signal, value, op, pe, stream))
    }

    pub fn signal_wait(&self, signal: u64, compare: i32, value: u64, on: &Stream) -> Result<()> {
        on_stream!(self, on, l, stream => l.signal_wait(signal, compare, value, stream))
    }

    pub fn quiet(&self, on: &Stream) -> Result<()> {
        on_stream!(self, on, l, stream => l.quiet(stream))
    }

    pub fn barrier(&self, team: Team, on: &Stream) -> Result<()> {
        match self {
            Library::Host(l) => l.barrier(team, raw(on)?),
            Library::Simulated(l) => l.barrier(team, queue(on)?),
        }
    }

    pub fn sync(&self, team: Team, on: &Stream) -> Result<()> {
        match self {
            Library::Host(l) => l.sync(team, raw(on)?),
            Library::Simulated(l) => l.sync(team, queue(on)?),
        }
    }

    /// The collective of that name for that element type.
    ///
    /// # Errors
    /// `R0401` where NVSHMEM has none.
    pub fn find_collective(&self, name: &str, dtype: DType) -> Result<Found> {
        match self {
            Library::Host(l) => l.find_collective(name, dtype).map(Found::Host),
            Library::Simulated(l) => {
                let found = l.find_collective(name, dtype).map(Found::Simulated);
                found.ok_or_else(|| result::no_operation(name, dtype))
            }
        }
    }

    pub fn collective(&self, found: &Found, io: &Collective, on: &Stream) -> Result<()> {
        match (self, found) {
            (Library::Host(l), Found::Host(found)) => l.collective(found, io, raw(on)?),
            (Library::Simulated(l), Found::Simulated(found)) => l.collective(found, io, queue(on)?),
            _ => Err(not_simulated("function of the host's library")),
        }
    }

    pub fn broadcast(&self, dtype: DType, io: &Collective, root: u32, on: &Stream) -> Result<()> {
        match self {
            Library::Host(l) => l.broadcast(dtype, io, root, raw(on)?),
            Library::Simulated(l) => l.broadcast(dtype, io, root, queue(on)?),
        }
    }
}
