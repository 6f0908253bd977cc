//! The raw host functions of NVSHMEM: names, signatures and structures of its headers (3.3 to 3.8,
//! all of which accept version 1 structures).
#![allow(unsafe_code, reason = "functions of a C library")]

use crate::foreign::functions;
use std::ffi::{c_char, c_int, c_long, c_uint, c_void};

/// A handle of a team, `nvshmem_team_t`.
pub type Team = i32;

/// A handle of a stream, `CUstream`.
pub type Stream = *mut c_void;

/// `nvshmemx_uniqueid_v1` (nvshmem_uniqueid.h): 128 bytes that PE 0 creates and sends to all
/// others.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct UniqueId {
    /// The version and the size of the struct.
    pub version: c_int,
    /// Data that only the library interprets.
    pub internal: [u8; 124],
}

/// The arguments of an initialization by unique id, `nvshmemx_uniqueid_args_v1`.
#[repr(C)]
pub struct UniqueIdArgs {
    /// The version and the size of the struct.
    pub version: c_int,
    /// The unique id, which initialization reads.
    pub id: *mut UniqueId,
    /// The rank of this PE.
    pub rank: c_int,
    /// The number of PEs.
    pub size: c_int,
}

/// The arguments of an initialization, `nvshmemx_init_args_v1`.
#[repr(C)]
pub struct InitArgs {
    /// The version and the size of the struct.
    pub version: c_int,
    /// The arguments for a bootstrap by unique id.
    pub uid: UniqueIdArgs,
    /// Padding, which must be 0.
    pub padding: [u8; 96],
}

/// The attributes of an initialization, `nvshmemx_init_attr_v1`.
#[repr(C)]
pub struct InitAttr {
    /// The version and the size of the struct.
    pub version: c_int,
    /// The communicator for a bootstrap by MPI, which is null.
    pub mpi_comm: *mut c_void,
    /// The arguments for a bootstrap by unique id.
    pub args: InitArgs,
}

/// The configuration of a team, `nvshmem_team_config_v2`.
#[repr(C)]
pub struct TeamConfig {
    /// The version and the size of the struct.
    pub version: c_int,
    /// The number of contexts; -1 leaves it to the library.
    pub num_contexts: c_int,
    /// An id that all PEs of the team share, and no other team has.
    pub unique_id: u64,
    /// Padding, which must be 0.
    pub padding: [u8; 48],
}

// The headers make the same assertions.
const _: () = assert!(size_of::<UniqueId>() == 128 && size_of::<UniqueIdArgs>() == 24);
const _: () = assert!(size_of::<InitArgs>() == 128 && size_of::<InitAttr>() == 144);
const _: () = assert!(size_of::<TeamConfig>() == 64);

/// The first word of a structure, which has its version and its size.
const fn word<T>(version: c_int) -> c_int {
    (version << 16) + size_of::<T>() as c_int
}

impl UniqueId {
    /// Returns the value of `NVSHMEMX_UNIQUEID_INITIALIZER`.
    pub const fn new() -> UniqueId {
        UniqueId { version: word::<UniqueId>(1), internal: [0; 124] }
    }
}

impl Default for UniqueId {
    fn default() -> UniqueId {
        UniqueId::new()
    }
}

impl InitAttr {
    /// Returns the value of `NVSHMEMX_INIT_ATTR_INITIALIZER`.
    pub const fn new() -> InitAttr {
        let version = word::<UniqueIdArgs>(1);
        let uid = UniqueIdArgs { version, id: std::ptr::null_mut(), rank: 0, size: 0 };
        let args = InitArgs { version: word::<InitArgs>(1), uid, padding: [0; 96] };
        InitAttr { version: word::<InitAttr>(1), mpi_comm: std::ptr::null_mut(), args }
    }
}

impl Default for InitAttr {
    fn default() -> InitAttr {
        InitAttr::new()
    }
}

impl TeamConfig {
    /// Returns the value of `NVSHMEM_TEAM_CONFIG_INITIALIZER` with a unique id.
    pub const fn new(unique_id: u64) -> TeamConfig {
        TeamConfig { version: word::<TeamConfig>(2), num_contexts: -1, unique_id, padding: [0; 48] }
    }
}

/// The flag `NVSHMEMX_INIT_WITH_UNIQUEID` of an initialization.
pub const INIT_WITH_UNIQUEID: c_uint = 1 << 3;

/// The flag `NVSHMEM_TEAM_CONFIG_MASK_UNIQUEID` of a team's configuration.
pub const TEAM_CONFIG_MASK_UNIQUEID: c_long = 2;

/// The handle of no team, `NVSHMEM_TEAM_INVALID`.
pub const TEAM_INVALID: Team = -1;
/// The team of all PEs, `NVSHMEM_TEAM_WORLD`.
pub const TEAM_WORLD: Team = 0;
/// The team of PEs that share memory, `NVSHMEM_TEAM_SHARED`.
pub const TEAM_SHARED: Team = 1;
/// `NVSHMEM_THREAD_SINGLE`: the process has one thread.
pub const THREAD_SINGLE: c_int = 0;
/// `NVSHMEM_THREAD_SERIALIZED`: any thread, one at a time.
pub const THREAD_SERIALIZED: c_int = 2;
/// `NVSHMEM_THREAD_MULTIPLE`: any thread may call the library.
pub const THREAD_MULTIPLE: c_int = 3;
/// The team of PEs of a node, `NVSHMEMX_TEAM_NODE`.
pub const TEAM_NODE: Team = 2;
/// The team of PEs of equal rank on each node, `NVSHMEMX_TEAM_SAME_MYPE_NODE`.
pub const TEAM_SAME_MYPE_NODE: Team = 3;

functions! {
    /// The untyped functions of NVSHMEM's host library, by name.
    {
        nvshmem_info_get_version(*mut c_int, *mut c_int);
        nvshmem_info_get_name(*mut c_char);
        nvshmemx_get_uniqueid(*mut UniqueId) -> c_int;
        nvshmemx_set_attr_uniqueid_args(c_int, c_int, *const UniqueId, *mut InitAttr) -> c_int;
        nvshmemx_hostlib_init_attr(c_uint, *mut InitAttr) -> c_int;
        nvshmemx_hostlib_finalize();
        nvshmemx_init_status() -> c_int;
        nvshmem_query_thread(*mut c_int);
        nvshmemx_cumodule_init(*mut c_void) -> c_int;
        nvshmemx_cumodule_finalize(*mut c_void) -> c_int;
        nvshmem_my_pe() -> c_int;
        nvshmem_n_pes() -> c_int;

        nvshmem_malloc(usize) -> *mut c_void;
        nvshmem_calloc(usize, usize) -> *mut c_void;
        nvshmem_align(usize, usize) -> *mut c_void;
        nvshmem_free(*mut c_void);
        nvshmem_ptr(*const c_void, c_int) -> *mut c_void;
        nvshmemx_mc_ptr(Team, *const c_void) -> *mut c_void;
        nvshmemx_buffer_register_symmetric(*mut c_void, usize, c_int) -> *mut c_void;
        nvshmemx_buffer_unregister_symmetric(*mut c_void, usize) -> c_int;

        nvshmem_team_my_pe(Team) -> c_int;
        nvshmem_team_n_pes(Team) -> c_int;
        nvshmem_team_translate_pe(Team, c_int, Team) -> c_int;
        nvshmem_team_split_strided(Team, c_int, c_int, c_int, *const TeamConfig, c_long, *mut Team) -> c_int;
        nvshmem_team_split_2d(
            Team, c_int, *const TeamConfig, c_long, *mut Team, *const TeamConfig, c_long, *mut Team
        ) -> c_int;
        nvshmemx_team_get_uniqueid(*mut u64) -> c_int;
        nvshmemx_team_init(*mut Team, *mut TeamConfig, c_long, c_int, c_int) -> c_int;
        nvshmem_team_destroy(Team);

        nvshmem_barrier_all();
        nvshmem_sync_all();
        nvshmem_barrier(Team) -> c_int;
        nvshmem_team_sync(Team) -> c_int;
        nvshmem_quiet();
        nvshmem_fence();

        nvshmemx_putmem_on_stream(*mut c_void, *const c_void, usize, c_int, Stream);
        nvshmemx_putmem_nbi_on_stream(*mut c_void, *const c_void, usize, c_int, Stream);
        nvshmemx_getmem_on_stream(*mut c_void, *const c_void, usize, c_int, Stream);
        nvshmemx_getmem_nbi_on_stream(*mut c_void, *const c_void, usize, c_int, Stream);
        nvshmemx_putmem_signal_on_stream(*mut c_void, *const c_void, usize, *mut u64, u64, c_int, c_int, Stream);
        nvshmemx_putmem_signal_nbi_on_stream(
            *mut c_void, *const c_void, usize, *mut u64, u64, c_int, c_int, Stream
        );
        nvshmemx_signal_op_on_stream(*mut u64, u64, c_int, c_int, Stream);
        nvshmemx_signal_wait_until_on_stream(*mut u64, c_int, u64, Stream);
        nvshmemx_quiet_on_stream(Stream);
        nvshmemx_barrier_on_stream(Team, Stream) -> c_int;
        nvshmemx_barrier_all_on_stream(Stream);
        nvshmemx_team_sync_on_stream(Team, Stream) -> c_int;
        nvshmemx_sync_all_on_stream(Stream);

        nvshmemx_broadcastmem_on_stream(Team, *mut c_void, *const c_void, usize, c_int, Stream) -> c_int;
        nvshmemx_fcollectmem_on_stream(Team, *mut c_void, *const c_void, usize, Stream) -> c_int;
        nvshmemx_alltoallmem_on_stream(Team, *mut c_void, *const c_void, usize, Stream) -> c_int;
    }
    {}
}

/// The signature of `nvshmemx_TYPENAME_OP_reduce_on_stream` and similar functions: team,
/// destination, source, elements, stream.
pub type Collective = unsafe extern "C" fn(Team, *mut c_void, *const c_void, usize, Stream) -> c_int;
