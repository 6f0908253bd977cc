//! The provider of a PE's symmetric memory, teams and operations on streams: NVSHMEM's host
//! library, memory that the PEs of a host map directly, or the simulator.

use super::result::{self, Collective, Host, PutSignal};
use super::sys::Team;
use super::version::Version;
use crate::DType;
use crate::cuda::Stream;
use crate::direct::{self, Direct};
use crate::error::{self, Error, Result};
use crate::simulated::{self, Nvshmem, not_simulated};
use std::ffi::c_void;
use std::path::Path;
use weft_sim::Name;

/// One of the implementations of NVSHMEM's host functions.
pub enum Library {
    Host(Host),
    Direct(Direct),
    Simulated(Nvshmem),
}

/// The function of a collective, found for its operands.
pub enum CollectiveFunction {
    Host(result::CollectiveFunction),
    Direct(direct::CollectiveFunction),
    Simulated(simulated::CollectiveFunction),
}

/// The stream in C's form.
pub fn raw(stream: &Stream) -> Result<*mut c_void> {
    Ok(stream.gpu()?.cu_stream().cast())
}

/// The stream of a simulated PE.
fn queue(stream: &Stream) -> Result<&simulated::Stream> {
    match stream {
        Stream::Simulated(stream) => Ok(stream),
        Stream::Gpu(_) => Err(not_simulated("stream of a GPU")),
    }
}

/// Makes the same call of each implementation.
macro_rules! each {
    ($library:expr, $l:ident => $call:expr) => {
        match $library {
            Library::Host($l) => $call,
            Library::Direct($l) => $call,
            Library::Simulated($l) => $call,
        }
    };
}

/// Makes a call on a stream; that of the host library has no result.
macro_rules! on_stream {
    ($library:expr, $stream:expr, $l:ident, $s:ident => $call:expr) => {
        match $library {
            Library::Host($l) => {
                let $s = raw($stream)?;
                $call;
                Ok(())
            }
            Library::Direct($l) => {
                let $s = $stream;
                $call
            }
            Library::Simulated($l) => {
                let $s = queue($stream)?;
                $call
            }
        }
    };
}

/// Makes the error for something that needs NVSHMEM in a world without it.
fn no_nvshmem(what: &str) -> Error {
    Error::new(error::NVSHMEM, format!("{what}, but this world was started without NVSHMEM"))
        .help("start a world with NVSHMEM by World::init, or compile with `--transport p2p`")
}

impl Library {
    /// The path that NVSHMEM was loaded from, if it was loaded.
    pub fn path(&self) -> &Path {
        match self {
            Library::Host(l) => l.path(),
            Library::Direct(_) | Library::Simulated(_) => Path::new(""),
        }
    }

    /// Returns NVSHMEM's version, if there is one.
    pub fn version(&self) -> Option<Version> {
        match self {
            Library::Host(l) => Some(l.version()),
            Library::Direct(_) => None,
            Library::Simulated(_) => Some(simulated::VERSION),
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
            Library::Direct(_) => Err(no_nvshmem("the code calls NVSHMEM functions")),
            Library::Simulated(_) => Ok(()),
        }
    }

    pub fn module_finalize(&self, module: *mut c_void) -> Result<()> {
        match self {
            Library::Host(l) => l.module_finalize(module),
            Library::Direct(_) | Library::Simulated(_) => Ok(()),
        }
    }

    /// Allocates symmetric memory; `name` is for messages of the simulator. This call is
    /// *collective* over all PEs.
    pub fn alloc(&self, name: &str, bytes: usize, align: usize) -> u64 {
        match self {
            Library::Host(l) => l.alloc(bytes, align),
            Library::Direct(l) => l.alloc(bytes),
            Library::Simulated(l) => l.alloc(name, bytes, align),
        }
    }

    pub fn free(&self, address: u64) {
        each!(self, l => l.free(address));
    }

    pub fn peer(&self, address: u64, pe: u32) -> Option<u64> {
        each!(self, l => l.peer(address, pe))
    }

    /// Whether kernels that can choose use direct loads and stores for operations on a PE.
    pub fn in_place(&self, pe: u32) -> bool {
        match self {
            Library::Host(_) | Library::Direct(_) => true,
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
        each!(self, l => l.multicast(team, address))
    }

    pub fn register(&self, address: u64, bytes: usize) -> u64 {
        each!(self, l => l.register(address, bytes))
    }

    pub fn unregister(&self, address: u64, bytes: usize) -> Result<()> {
        match self {
            Library::Host(l) => l.unregister(address, bytes),
            Library::Direct(l) => {
                l.unregister(address);
                Ok(())
            }
            Library::Simulated(l) => l.unregister(address),
        }
    }

    /// Returns the handle of a predefined team for later calls.
    pub fn resolve(&self, team: Team) -> Team {
        match self {
            Library::Host(_) => team,
            Library::Direct(_) => Direct::resolve(team),
            Library::Simulated(l) => l.resolve(team),
        }
    }

    pub fn team_my_pe(&self, team: Team) -> Option<u32> {
        each!(self, l => l.team_my_pe(team))
    }

    pub fn team_n_pes(&self, team: Team) -> Option<u32> {
        each!(self, l => l.team_n_pes(team))
    }

    pub fn translate(&self, from: Team, pe: u32, to: Team) -> Option<u32> {
        each!(self, l => l.translate(from, pe, to))
    }

    pub fn split_strided(&self, parent: Team, start: u32, stride: u32, size: u32) -> Result<Option<Team>> {
        each!(self, l => l.split_strided(parent, start, stride, size))
    }

    pub fn split_2d(&self, parent: Team, x_range: u32) -> Result<(Option<Team>, Option<Team>)> {
        each!(self, l => l.split_2d(parent, x_range))
    }

    pub fn team_unique_id(&self) -> Result<u64> {
        match self {
            Library::Host(l) => l.team_unique_id(),
            Library::Direct(_) => Ok(0),
            Library::Simulated(l) => Ok(l.team_unique_id()),
        }
    }

    /// Creates a team of these PEs of the world, in this order, in which this PE has rank `my_pe`.
    pub fn team_init(&self, unique_id: u64, members: &[u32], my_pe: u32) -> Result<Team> {
        match self {
            Library::Host(l) => l.team_init(unique_id, members.len() as u32, my_pe),
            Library::Direct(l) => l.team_init(members),
            Library::Simulated(l) => l.team_init(unique_id, members),
        }
    }

    pub fn team_destroy(&self, team: Team) {
        match self {
            Library::Host(l) => l.team_destroy(team),
            Library::Direct(l) => l.team_destroy(team),
            Library::Simulated(_) => {}
        }
    }

    /// Waits until all PEs have arrived and all their stores are visible.
    pub fn barrier_all(&self) -> Result<()> {
        match self {
            Library::Host(l) => {
                l.barrier_all();
                Ok(())
            }
            Library::Direct(l) => l.barrier_all(),
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
            Library::Direct(l) => l.barrier(team, on),
            Library::Simulated(l) => l.barrier(team, queue(on)?),
        }
    }

    pub fn sync(&self, team: Team, on: &Stream) -> Result<()> {
        match self {
            Library::Host(l) => l.sync(team, raw(on)?),
            Library::Direct(l) => l.barrier(team, on),
            Library::Simulated(l) => l.sync(team, queue(on)?),
        }
    }

    /// Finds the collective of that name for that element type.
    ///
    /// # Errors
    /// Fails if NVSHMEM has none (R0401).
    pub fn find_collective(&self, name: &str, dtype: DType) -> Result<CollectiveFunction> {
        match self {
            Library::Host(l) => l.find_collective(name, dtype).map(CollectiveFunction::Host),
            Library::Direct(l) => {
                let found = l.find_collective(name, dtype).map(CollectiveFunction::Direct);
                found.ok_or_else(|| result::no_operation(name, dtype))
            }
            Library::Simulated(l) => {
                let found = l.find_collective(name, dtype).map(CollectiveFunction::Simulated);
                found.ok_or_else(|| result::no_operation(name, dtype))
            }
        }
    }

    pub fn collective(&self, found: &CollectiveFunction, io: &Collective, on: &Stream) -> Result<()> {
        match (self, found) {
            (Library::Host(l), CollectiveFunction::Host(found)) => l.collective(found, io, raw(on)?),
            (Library::Simulated(l), CollectiveFunction::Simulated(found)) => {
                l.collective(found, io, queue(on)?)
            }
            (Library::Direct(l), CollectiveFunction::Direct(found)) => l.collective(found, io, on),
            _ => Err(not_simulated("function of the host's library")),
        }
    }

    pub fn broadcast(&self, dtype: DType, io: &Collective, root: u32, on: &Stream) -> Result<()> {
        match self {
            Library::Host(l) => l.broadcast(dtype, io, root, raw(on)?),
            Library::Direct(l) => l.broadcast(dtype, io, root, on),
            Library::Simulated(l) => l.broadcast(dtype, io, root, queue(on)?),
        }
    }
}
