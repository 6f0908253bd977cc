//! The calls of NVSHMEM with a `Result`. Pointers are addresses, which this layer neither owns nor
//! dereferences.
#![allow(unsafe_code, reason = "calls of a C library")]

use super::sys::{self, Functions, InitAttr, Stream, Team, TeamConfig, UniqueId};
use super::version::{Version, check_supported, host_version};
use crate::DType;
use crate::error::{self, Error, Result};
use std::ffi::{c_int, c_void};
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The opened host library. It stays loaded, because NVSHMEM has threads and exit handlers.
///
/// Any thread can make calls. NVSHMEM starts with the level `NVSHMEM_THREAD_SERIALIZED` unless it
/// reports another (NVSHMEM API, "Thread Support"), so only one call runs at a time.
pub struct Host {
    functions: Functions,
    /// The lock that the current call holds.
    calls: Mutex<()>,
    /// Whether NVSHMEM has reported that calls can run at the same time.
    multiple: AtomicBool,
    library: ManuallyDrop<libloading::Library>,
    version: Version,
    path: PathBuf,
}

/// An address in the form of the C functions.
fn at(address: u64) -> *mut c_void {
    address as usize as *mut c_void
}

/// NVSHMEM's functions, while no other thread calls one.
struct Turn<'h> {
    functions: &'h Functions,
    _held: Option<MutexGuard<'h, ()>>,
}

impl Deref for Turn<'_> {
    type Target = Functions;

    fn deref(&self) -> &Functions {
        self.functions
    }
}

/// Checks a status, where 0 is success.
fn check(call: &str, status: c_int) -> Result<()> {
    match status {
        0 => Ok(()),
        other => Err(Error::new(error::NVSHMEM, format!("{call} returned {other}{}", meaning(other)))
            .help("set NVSHMEM_DEBUG=INFO to make NVSHMEM print more")),
    }
}

/// The meaning of an `nvshmemx_status` (nvshmemx_error.h).
fn meaning(status: c_int) -> &'static str {
    match status {
        1 => " (invalid value)",
        2 => " (out of memory)",
        3 => " (not supported)",
        4 => " (symmetry)",
        5 => " (GPU not selected)",
        6 => " (collective launch failed)",
        7 => " (internal)",
        _ => "",
    }
}

impl Host {
    /// Opens the library of that path and finds its functions.
    ///
    /// # Errors
    /// Fails if it cannot be loaded (R0104), or if a function is missing (R0105).
    pub fn open(path: &Path) -> Result<Host> {
        // SAFETY: loading runs NVSHMEM's own initialisers, which only set up tables.
        let library = unsafe { libloading::Library::new(path) }.map_err(|e| {
            Error::new(error::NO_NVSHMEM, format!("{} cannot be loaded: {e}", path.display()))
        })?;
        let library = ManuallyDrop::new(library);
        // The version is checked first, since another version lacks other functions.
        let version = host_version(path)?;
        check_supported(version, path)?;
        // SAFETY: `ManuallyDrop` keeps it loaded for the life of the process.
        let functions = unsafe { Functions::load(&library) }.map_err(|name| {
            Error::new(error::NVSHMEM_VERSION, format!("{} has no function {name}", path.display()))
                .help("install NVSHMEM 3.3 to 3.8")
        })?;
        let (calls, multiple) = (Mutex::new(()), AtomicBool::new(false));
        Ok(Host { functions, calls, multiple, library, version, path: path.to_owned() })
    }

    /// Waits until no other thread is in a call.
    fn turn(&self) -> Turn<'_> {
        let serial = !self.multiple.load(Ordering::Acquire);
        let held = serial.then(|| self.calls.lock().unwrap_or_else(PoisonError::into_inner));
        Turn { functions: &self.functions, _held: held }
    }

    /// Asks NVSHMEM, once it has started, how many threads may make calls.
    fn check_threads(&self) -> Result<()> {
        let mut level = sys::THREAD_SINGLE;
        // SAFETY: writes a number.
        unsafe { (self.turn().nvshmem_query_thread)(&mut level) };
        if level < sys::THREAD_SERIALIZED {
            let message =
                format!("NVSHMEM allows calls from only one thread: nvshmem_query_thread returned {level}");
            return Err(Error::new(error::NVSHMEM, message).help(
                "do not set a thread level before: NVSHMEM 3.3 to 3.8 start with level 2 (serialized)",
            ));
        }
        self.multiple.store(level >= sys::THREAD_MULTIPLE, Ordering::Release);
        Ok(())
    }

    /// The path that the library was loaded from.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The version that the library reported when it was opened.
    pub fn version(&self) -> Version {
        self.version
    }

    /// Returns a new unique id, for PE 0 to send to the others.
    pub fn unique_id(&self) -> Result<UniqueId> {
        let mut id = UniqueId::new();
        // SAFETY: fills the structure.
        check("nvshmemx_get_uniqueid", unsafe { (self.turn().nvshmemx_get_uniqueid)(&mut id) })?;
        Ok(id)
    }

    /// Starts NVSHMEM on the current CUDA context's device. This call is *collective*.
    pub fn init(&self, rank: u32, size: u32, mut id: UniqueId) -> Result<()> {
        let mut attr = InitAttr::new();
        attr.args.uid.id = &mut id;
        let f = self.turn();
        // SAFETY: `attr` and `id` live through both calls, which copy what they keep.
        let status = unsafe {
            let set = f.nvshmemx_set_attr_uniqueid_args;
            check("nvshmemx_set_attr_uniqueid_args", set(rank as c_int, size as c_int, &id, &mut attr))?;
            (f.nvshmemx_hostlib_init_attr)(sys::INIT_WITH_UNIQUEID, &mut attr)
        };
        drop(f);
        // This is needed even after a failure, since NVSHMEM may have started far enough to need an
        // end.
        super::exit::guard();
        check("nvshmemx_hostlib_init_attr", status)?;
        // SAFETY: a query.
        match unsafe { (self.turn().nvshmemx_init_status)() } {
            // Some versions defer errors, and end the process at the first call that fails.
            state @ (0 | 1) => {
                let message = format!(
                    "NVSHMEM has not started: nvshmemx_init_status is {state} after the initialisation"
                );
                Err(Error::new(error::NVSHMEM, message).help(
                    "what it printed above says why: no transport between the GPUs (peer access, InfiniBand), or \
                     no GPU\nNVSHMEM_DEBUG=INFO makes it say more",
                ))
            }
            _ => self.check_threads(),
        }
    }

    /// Ends NVSHMEM in this process. This call is *collective*.
    pub fn finalize(&self) {
        // SAFETY: init succeeded; `World` calls this once.
        unsafe { (self.turn().nvshmemx_hostlib_finalize)() }
        super::exit::release();
    }

    /// Makes NVSHMEM's device state known to a module that contains its device functions.
    pub fn module_init(&self, module: *mut c_void) -> Result<()> {
        // SAFETY: the caller has a loaded module.
        check("nvshmemx_cumodule_init", unsafe { (self.turn().nvshmemx_cumodule_init)(module) })
    }

    /// Undoes [`module_init`](Host::module_init), before the module is unloaded.
    pub fn module_finalize(&self, module: *mut c_void) -> Result<()> {
        // SAFETY: as above.
        check("nvshmemx_cumodule_finalize", unsafe { (self.turn().nvshmemx_cumodule_finalize)(module) })
    }

    /// Allocates symmetric memory, zeroed or as it was, aligned to `align` bytes. The result is 0 if there is
    /// not enough left. All PEs must call it.
    pub fn alloc(&self, bytes: usize, align: usize) -> u64 {
        // SAFETY: any size is allowed.
        (unsafe { (self.turn().nvshmem_align)(align, bytes) }) as u64
    }

    /// Frees symmetric memory. This call is *collective* over all PEs.
    pub fn free(&self, address: u64) {
        // SAFETY: the owner frees once.
        unsafe { (self.turn().nvshmem_free)(at(address)) }
    }

    /// Returns the address at which loads and stores reach a PE's copy, if they do.
    pub fn peer(&self, address: u64, pe: u32) -> Option<u64> {
        // SAFETY: computes an address.
        let p = unsafe { (self.turn().nvshmem_ptr)(at(address), pe as c_int) } as u64;
        (p != 0).then_some(p)
    }

    /// Returns the address at which multimem instructions reach all copies of a team, if they do.
    pub fn multicast(&self, team: Team, address: u64) -> Option<u64> {
        // SAFETY: computes an address.
        let p = unsafe { (self.turn().nvshmemx_mc_ptr)(team, at(address)) } as u64;
        (p != 0).then_some(p)
    }

    /// Maps memory of CUDA's virtual memory functions to the symmetric heap, and returns its
    /// address there, or 0. This call is *collective* over all PEs.
    pub fn register(&self, address: u64, bytes: usize) -> u64 {
        // SAFETY: the owner keeps the allocation until it is unregistered.
        (unsafe { (self.turn().nvshmemx_buffer_register_symmetric)(at(address), bytes, 0) }) as u64
    }

    /// Undoes [`register`](Host::register). This call is *collective* over all PEs.
    pub fn unregister(&self, address: u64, bytes: usize) -> Result<()> {
        let f = self.turn();
        let call = f.nvshmemx_buffer_unregister_symmetric;
        // SAFETY: as registered.
        check("nvshmemx_buffer_unregister_symmetric", unsafe { call(at(address), bytes) })
    }

    /// Returns the rank of this PE in a team, or `None` if it is not a member.
    pub fn team_my_pe(&self, team: Team) -> Option<u32> {
        // SAFETY: a query.
        u32::try_from(unsafe { (self.turn().nvshmem_team_my_pe)(team) }).ok()
    }

    /// Returns the number of PEs of a team.
    pub fn team_n_pes(&self, team: Team) -> Option<u32> {
        // SAFETY: a query.
        u32::try_from(unsafe { (self.turn().nvshmem_team_n_pes)(team) }).ok()
    }

    /// Returns the rank in another team of a PE of this team.
    pub fn translate(&self, from: Team, pe: u32, to: Team) -> Option<u32> {
        // SAFETY: a query.
        u32::try_from(unsafe { (self.turn().nvshmem_team_translate_pe)(from, pe as c_int, to) }).ok()
    }

    /// Creates a team of the PEs `start + i * stride`, i < size, of a parent. This call is
    /// *collective* over the parent; `None` in other PEs.
    pub fn split_strided(&self, parent: Team, start: u32, stride: u32, size: u32) -> Result<Option<Team>> {
        let mut team = sys::TEAM_INVALID;
        let f = self.turn();
        let split = f.nvshmem_team_split_strided;
        let null = std::ptr::null();
        // SAFETY: no configuration is given, so that none is read.
        let status =
            unsafe { split(parent, start as c_int, stride as c_int, size as c_int, null, 0, &mut team) };
        drop(f);
        // The call returns a non-zero status in PEs outside the new team.
        match team {
            sys::TEAM_INVALID if status != 0 && self.inside(parent, start, stride, size) => {
                check("nvshmem_team_split_strided", status).map(|()| None)
            }
            sys::TEAM_INVALID => Ok(None),
            team => Ok(Some(team)),
        }
    }

    fn inside(&self, parent: Team, start: u32, stride: u32, size: u32) -> bool {
        let me = self.team_my_pe(parent);
        me.is_some_and(|me| (0..size).any(|i| start + i * stride == me))
    }

    /// Creates teams for the rows and columns of a grid `x_range` wide. This call is *collective*
    /// over the parent.
    pub fn split_2d(&self, parent: Team, x_range: u32) -> Result<(Option<Team>, Option<Team>)> {
        let (mut x, mut y) = (sys::TEAM_INVALID, sys::TEAM_INVALID);
        let f = self.turn();
        let split = f.nvshmem_team_split_2d;
        let null = std::ptr::null();
        // SAFETY: no configuration is given, so that none is read.
        let status = unsafe { split(parent, x_range as c_int, null, 0, &mut x, null, 0, &mut y) };
        check("nvshmem_team_split_2d", status)?;
        let team = |t| (t != sys::TEAM_INVALID).then_some(t);
        Ok((team(x), team(y)))
    }

    /// Returns an id for a team of [`team_init`](Host::team_init). One PE calls this and sends it
    /// to the others.
    pub fn team_unique_id(&self) -> Result<u64> {
        let mut id = 0;
        let f = self.turn();
        let call = f.nvshmemx_team_get_uniqueid;
        // SAFETY: writes a number.
        check("nvshmemx_team_get_uniqueid", unsafe { call(&mut id) })?;
        Ok(id)
    }

    /// Creates a team of any PEs. This call is *collective* over these PEs.
    pub fn team_init(&self, unique_id: u64, n_pes: u32, my_pe: u32) -> Result<Team> {
        let mut team = sys::TEAM_INVALID;
        let mut config = TeamConfig::new(unique_id);
        let f = self.turn();
        let init = f.nvshmemx_team_init;
        let mask = sys::TEAM_CONFIG_MASK_UNIQUEID;
        // SAFETY: reads the configuration, writes the team.
        let status = unsafe { init(&mut team, &mut config, mask, n_pes as c_int, my_pe as c_int) };
        check("nvshmemx_team_init", status)?;
        match team {
            sys::TEAM_INVALID => Err(Error::new(error::NVSHMEM, "nvshmemx_team_init created no team").help(
                "raise NVSHMEM_MAX_TEAMS, which limits the number of teams at a time (128 by default)",
            )),
            team => Ok(team),
        }
    }

    /// Ends a team. This call is *collective* over this team.
    pub fn team_destroy(&self, team: Team) {
        // SAFETY: the owner destroys once.
        unsafe { (self.turn().nvshmem_team_destroy)(team) }
    }

    /// Waits until all PEs have arrived and all their stores are visible.
    pub fn barrier_all(&self) {
        // SAFETY: init succeeded.
        unsafe { (self.turn().nvshmem_barrier_all)() }
    }

    /// Copies to a PE, in stream order. With `nbi`, the copy is complete only after a quiet.
    pub fn put(&self, dest: u64, source: u64, bytes: usize, pe: u32, nbi: bool, stream: Stream) {
        let f = self.turn();
        let call = if nbi { f.nvshmemx_putmem_nbi_on_stream } else { f.nvshmemx_putmem_on_stream };
        // SAFETY: both ranges lie in memory that the caller owns.
        unsafe { call(at(dest), at(source), bytes, pe as c_int, stream) }
    }

    /// Copies from a PE, in stream order. With `nbi`, the copy is complete only after a quiet.
    pub fn get(&self, dest: u64, source: u64, bytes: usize, pe: u32, nbi: bool, stream: Stream) {
        let f = self.turn();
        let call = if nbi { f.nvshmemx_getmem_nbi_on_stream } else { f.nvshmemx_getmem_on_stream };
        // SAFETY: both ranges lie in memory that the caller owns.
        unsafe { call(at(dest), at(source), bytes, pe as c_int, stream) }
    }

    /// Copies to a PE and then updates its signal, in stream order.
    pub fn put_signal(&self, copy: &PutSignal, stream: Stream) {
        let PutSignal { dest, source, bytes, signal, value, op, pe, nbi } = *copy;
        let f = self.turn();
        let call =
            if nbi { f.nvshmemx_putmem_signal_nbi_on_stream } else { f.nvshmemx_putmem_signal_on_stream };
        // SAFETY: all three lie in memory that the caller owns.
        unsafe { call(at(dest), at(source), bytes, at(signal).cast(), value, op, pe as c_int, stream) }
    }

    /// Updates the signal of a PE, in stream order.
    pub fn signal(&self, signal: u64, value: u64, op: c_int, pe: u32, stream: Stream) {
        let f = self.turn();
        let call = f.nvshmemx_signal_op_on_stream;
        // SAFETY: eight bytes of memory that the caller owns.
        unsafe { call(at(signal).cast(), value, op, pe as c_int, stream) }
    }

    /// Waits for the signal of this PE, in stream order.
    pub fn signal_wait(&self, signal: u64, compare: c_int, value: u64, stream: Stream) {
        let f = self.turn();
        let call = f.nvshmemx_signal_wait_until_on_stream;
        // SAFETY: eight bytes of memory that the caller owns.
        unsafe { call(at(signal).cast(), compare, value, stream) }
    }

    /// Waits in stream order until all operations that this PE started are complete.
    pub fn quiet(&self, stream: Stream) {
        // SAFETY: init succeeded.
        unsafe { (self.turn().nvshmemx_quiet_on_stream)(stream) }
    }

    /// Waits in stream order until the team's PEs have arrived and all their stores are visible.
    pub fn barrier(&self, team: Team, stream: Stream) -> Result<()> {
        let f = self.turn();
        let call = f.nvshmemx_barrier_on_stream;
        // SAFETY: this PE is a member.
        check("nvshmemx_barrier_on_stream", unsafe { call(team, stream) })
    }

    /// Waits in stream order until the team's PEs have arrived.
    pub fn sync(&self, team: Team, stream: Stream) -> Result<()> {
        let f = self.turn();
        let call = f.nvshmemx_team_sync_on_stream;
        // SAFETY: this PE is a member.
        check("nvshmemx_team_sync_on_stream", unsafe { call(team, stream) })
    }

    /// Finds the collective of that name for that element type.
    ///
    /// # Errors
    /// Fails if NVSHMEM has none (R0401).
    pub fn find_collective(&self, name: &str, dtype: DType) -> Result<CollectiveFunction> {
        let f = &self.functions;
        // Types without a name in NVSHMEM are moved as bytes.
        let bytes =
            |call, name: &str| CollectiveFunction { call, scale: dtype.bytes() as usize, label: name.into() };
        match (name, dtype.nvshmem_name()) {
            ("fcollect", None) => {
                Ok(bytes(f.nvshmemx_fcollectmem_on_stream, "nvshmemx_fcollectmem_on_stream"))
            }
            ("alltoall", None) => {
                Ok(bytes(f.nvshmemx_alltoallmem_on_stream, "nvshmemx_alltoallmem_on_stream"))
            }
            (_, None) => Err(no_operation(name, dtype)),
            (_, Some(ty)) => {
                let label = format!("nvshmemx_{ty}_{name}_on_stream");
                // SAFETY: all collectives of that form have this signature.
                let call = unsafe { self.library.get::<sys::Collective>(label.as_bytes()) };
                Ok(CollectiveFunction {
                    call: *call.map_err(|_| no_operation(name, dtype))?,
                    scale: 1,
                    label,
                })
            }
        }
    }

    /// Runs a collective, in stream order.
    pub fn collective(&self, found: &CollectiveFunction, io: &Collective, stream: Stream) -> Result<()> {
        let count = io.count * found.scale;
        let _turn = self.turn();
        // SAFETY: source and destination lie in symmetric memory that the caller owns.
        let status = unsafe { (found.call)(io.team, at(io.dest), at(io.source), count, stream) };
        check(&found.label, status)
    }

    /// Copies the root's source to the destination of all PEs, in stream order.
    pub fn broadcast(&self, dtype: DType, io: &Collective, root: u32, stream: Stream) -> Result<()> {
        let (count, root) = (io.count * dtype.bytes() as usize, root as c_int);
        let f = self.turn();
        let call = f.nvshmemx_broadcastmem_on_stream;
        // SAFETY: source and destination lie in symmetric memory that the caller owns.
        let status = unsafe { call(io.team, at(io.dest), at(io.source), count, root, stream) };
        check("nvshmemx_broadcastmem_on_stream", status)
    }
}

pub fn no_operation(name: &str, dtype: DType) -> Error {
    Error::new(error::OPERATION, format!("NVSHMEM does not have {} of {dtype}", name.replace('_', " ")))
        .help("use sum, min, max or prod of integers, f16, bf16, f32 or f64, or use and, or, xor of integers")
}

/// The function of a collective, found for its operands.
pub struct CollectiveFunction {
    call: sys::Collective,
    /// The number of counted units for each element.
    scale: usize,
    label: String,
}

/// The operands of a collective: addresses in symmetric memory, and a number of elements.
#[derive(Clone, Copy, Debug)]
pub struct Collective {
    /// The team whose PEs take part.
    pub team: Team,
    /// The address that is written.
    pub dest: u64,
    /// The address that is read.
    pub source: u64,
    /// The number of elements of each PE's contribution, or of each PE's result in a
    /// reduce-scatter.
    pub count: usize,
}

/// A copy with a signal after it.
#[derive(Clone, Copy, Debug)]
pub struct PutSignal {
    /// The address of the destination, in symmetric memory.
    pub dest: u64,
    /// The address of the source, in memory of this PE.
    pub source: u64,
    /// The number of bytes to copy.
    pub bytes: usize,
    /// The address of the signal in symmetric memory, of eight bytes.
    pub signal: u64,
    /// The value that the signal is set to, or that is added to it.
    pub value: u64,
    /// Whether the signal is set or added to.
    pub op: c_int,
    /// The rank of the PE that receives the copy.
    pub pe: u32,
    /// Whether the copy is complete only after a quiet.
    pub nbi: bool,
}
