//! The calls of NCCL with a `Result`. Pointers are addresses, which this layer neither owns nor
//! dereferences.
#![allow(unsafe_code, reason = "calls of a C library")]

use super::sys::{self, Comm, Functions, Stream, UniqueId, Window};
use super::version::{OLDEST, Version};
use crate::error::{Error, NCCL, NO_NCCL, Result};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::ManuallyDrop;
use std::path::Path;
use std::ptr::null_mut;

/// The library that was opened. It stays loaded, because it has threads.
pub struct Library {
    functions: Functions,
    pub version: Version,
    _library: ManuallyDrop<libloading::Library>,
}

/// The addresses that a collective reads and writes, and the `count` of nccl.h.
#[derive(Clone, Copy)]
pub struct Sides {
    pub source: u64,
    pub dest: u64,
    pub count: usize,
    pub dtype: c_int,
}

fn at(address: u64) -> *mut c_void {
    address as usize as *mut c_void
}

impl Library {
    pub fn open(path: &Path) -> Result<Library> {
        let fails = |why: String| Error::new(NO_NCCL, format!("{}: {why}", path.display()));
        // SAFETY: loading runs the initialisers of a library that the user names or the system has, which set up
        // tables.
        let library = unsafe { libloading::Library::new(path) }.map_err(|e| fails(e.to_string()))?;
        let library = ManuallyDrop::new(library);
        // SAFETY: `ManuallyDrop` keeps it loaded for the life of the process; in a library that is
        // not NCCL, the first function is missing.
        let functions = unsafe { Functions::load(&library) };
        let functions = functions.map_err(|name| fails(format!("the library has no function {name}")))?;
        let mut number = 0;
        // SAFETY: writes a number.
        let status = unsafe { (functions.ncclGetVersion)(&mut number) };
        let version = Version::of(number);
        let library = Library { functions, version, _library: library };
        library.check(null_mut(), "ncclGetVersion", status)?;
        if version < OLDEST {
            let message = format!("{} is NCCL {version}, but {OLDEST} or later is needed", path.display());
            return Err(Error::new(NO_NCCL, message).help("`pip install -U nvidia-nccl-cu13`"));
        }
        Ok(library)
    }

    /// Whether buffers can be registered as symmetric windows.
    pub fn windows(&self) -> Result<()> {
        match self.functions.ncclCommWindowRegister.and(self.functions.ncclCommWindowDeregister) {
            Some(_) => Ok(()),
            None => Err(Error::new(NCCL, format!("NCCL {} does not have symmetric windows", self.version))
                .help("install NCCL 2.27 or later: `pip install -U nvidia-nccl-cu13`")),
        }
    }

    pub fn unique_id(&self) -> Result<UniqueId> {
        let mut id = UniqueId { internal: [0; 128] };
        // SAFETY: fills the structure.
        let status = unsafe { (self.functions.ncclGetUniqueId)(&mut id) };
        self.check(null_mut(), "ncclGetUniqueId", status).map(|()| id)
    }

    /// Creates a communicator on the device of the current CUDA context. Every rank must call it.
    pub fn init(&self, n: u32, id: UniqueId, rank: u32) -> Result<Comm> {
        let mut comm = null_mut();
        // SAFETY: writes the communicator; the id is by value.
        let status = unsafe { (self.functions.ncclCommInitRank)(&mut comm, n as c_int, id, rank as c_int) };
        self.check(null_mut(), "ncclCommInitRank", status).map(|()| comm)
    }

    pub fn destroy(&self, comm: Comm) -> Result<()> {
        // SAFETY: the owner destroys once.
        self.check(null_mut(), "ncclCommDestroy", unsafe { (self.functions.ncclCommDestroy)(comm) })
    }

    /// Reports errors since the last call that no call has returned.
    pub fn state(&self, comm: Comm) -> Result<()> {
        let mut state = 0;
        // SAFETY: a query; the communicator is alive.
        let status = unsafe { (self.functions.ncclCommGetAsyncError)(comm, &mut state) };
        self.check(comm, "ncclCommGetAsyncError", status)?;
        self.check(comm, "an NCCL operation", state)
    }

    pub fn alloc(&self, bytes: usize) -> Result<u64> {
        let mut address = null_mut();
        // SAFETY: writes the address.
        let status = unsafe { (self.functions.ncclMemAlloc)(&mut address, bytes) };
        self.check(null_mut(), "ncclMemAlloc", status).map(|()| address as u64)
    }

    pub fn free(&self, address: u64) -> Result<()> {
        // SAFETY: the owner frees once what `alloc` gave.
        self.check(null_mut(), "ncclMemFree", unsafe { (self.functions.ncclMemFree)(at(address)) })
    }

    /// Registers memory of `alloc` as a symmetric window. This call is *collective*.
    pub fn register(&self, comm: Comm, address: u64, bytes: usize) -> Result<Window> {
        let Some(call) = self.functions.ncclCommWindowRegister else {
            return self.windows().map(|()| null_mut());
        };
        let mut window = null_mut();
        // SAFETY: the memory is the caller's, and stays until it is deregistered.
        let status = unsafe { call(comm, at(address), bytes, &mut window, sys::WIN_COLL_SYMMETRIC) };
        self.check(comm, "ncclCommWindowRegister", status).map(|()| window)
    }

    pub fn deregister(&self, comm: Comm, window: Window) -> Result<()> {
        match self.functions.ncclCommWindowDeregister {
            // SAFETY: registered with this communicator, once.
            Some(call) => self.check(comm, "ncclCommWindowDeregister", unsafe { call(comm, window) }),
            None => Ok(()),
        }
    }

    pub fn all_reduce(&self, io: Sides, op: c_int, comm: Comm, stream: Stream) -> Result<()> {
        let Sides { source, dest, count, dtype } = io;
        let call = self.functions.ncclAllReduce;
        // SAFETY: here and below, both ranges lie in memory that the caller owns.
        let status = unsafe { call(at(source), at(dest), count, dtype, op, comm, stream) };
        self.check(comm, "ncclAllReduce", status)
    }

    pub fn reduce_scatter(&self, io: Sides, op: c_int, comm: Comm, stream: Stream) -> Result<()> {
        let Sides { source, dest, count, dtype } = io;
        let call = self.functions.ncclReduceScatter;
        // SAFETY: as above.
        let status = unsafe { call(at(source), at(dest), count, dtype, op, comm, stream) };
        self.check(comm, "ncclReduceScatter", status)
    }

    pub fn broadcast(&self, io: Sides, root: u32, comm: Comm, stream: Stream) -> Result<()> {
        let Sides { source, dest, count, dtype } = io;
        let call = self.functions.ncclBroadcast;
        // SAFETY: as above.
        let status = unsafe { call(at(source), at(dest), count, dtype, root as c_int, comm, stream) };
        self.check(comm, "ncclBroadcast", status)
    }

    pub fn all_gather(&self, io: Sides, comm: Comm, stream: Stream) -> Result<()> {
        let Sides { source, dest, count, dtype } = io;
        // SAFETY: as above.
        let status =
            unsafe { (self.functions.ncclAllGather)(at(source), at(dest), count, dtype, comm, stream) };
        self.check(comm, "ncclAllGather", status)
    }

    /// Sends part j of `source` to rank j, and receives part j of `dest` from it, with sends and
    /// receives in one group. `stride` is the size of a part in bytes.
    pub fn all_to_all(&self, io: Sides, stride: usize, n: u32, comm: Comm, stream: Stream) -> Result<()> {
        let Sides { source, dest, count, dtype } = io;
        let (send, recv) = (self.functions.ncclSend, self.functions.ncclRecv);
        // SAFETY: a counter of this thread.
        self.check(comm, "ncclGroupStart", unsafe { (self.functions.ncclGroupStart)() })?;
        let parts = (0..n).try_for_each(|rank| {
            let offset = u64::from(rank) * stride as u64;
            let (from, to, rank) = (at(source + offset), at(dest + offset), rank as c_int);
            // SAFETY: as above.
            self.check(comm, "ncclSend", unsafe { send(from, count, dtype, rank, comm, stream) })?;
            // SAFETY: as above.
            self.check(comm, "ncclRecv", unsafe { recv(to, count, dtype, rank, comm, stream) })
        });
        // The group ends whatever happened in it.
        // SAFETY: as above.
        let ended = self.check(comm, "ncclGroupEnd", unsafe { (self.functions.ncclGroupEnd)() });
        parts.and(ended)
    }

    /// Checks a status, where 0 is success.
    fn check(&self, comm: Comm, call: &str, status: c_int) -> Result<()> {
        if status == 0 {
            return Ok(());
        }
        // SAFETY: both return strings that live as long as the library, or null.
        let (meaning, last) = unsafe {
            let text = |s: *const c_char| match s.is_null() {
                true => String::new(),
                false => CStr::from_ptr(s).to_string_lossy().trim().to_owned(),
            };
            (text((self.functions.ncclGetErrorString)(status)), text((self.functions.ncclGetLastError)(comm)))
        };
        let last = if last.is_empty() { String::new() } else { format!("; {last}") };
        Err(Error::new(NCCL, format!("{call} returned {status} ({meaning}){last}"))
            .help("set NCCL_DEBUG=INFO to make NCCL print more"))
    }
}
