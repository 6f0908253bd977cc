//! The raw functions of NCCL: names, signatures and numbers of nccl.h (the same in 2.19 to 2.32).
#![allow(unsafe_code, reason = "functions of a C library")]

use crate::DType;
use crate::collective::Reduce;
use crate::foreign::functions;
use std::ffi::{c_char, c_int, c_void};

/// A handle of a communicator, `ncclComm_t`.
pub type Comm = *mut c_void;
/// A handle of a window, `ncclWindow_t`.
pub type Window = *mut c_void;
/// The type `cudaStream_t`, which is a `CUstream`.
pub type Stream = *mut c_void;

/// `ncclUniqueId`: 128 bytes that one rank creates and sends to all others. It is passed by value.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct UniqueId {
    /// Data that only the library interprets.
    pub internal: [u8; 128],
}

/// `NCCL_WIN_COLL_SYMMETRIC`: every rank registers the same window at the same offsets.
pub const WIN_COLL_SYMMETRIC: c_int = 1;

functions! {
    /// The functions of NCCL, by name.
    {
        ncclGetVersion(*mut c_int) -> c_int;
        ncclGetUniqueId(*mut UniqueId) -> c_int;
        ncclCommInitRank(*mut Comm, c_int, UniqueId, c_int) -> c_int;
        ncclCommDestroy(Comm) -> c_int;
        ncclCommGetAsyncError(Comm, *mut c_int) -> c_int;
        ncclGetErrorString(c_int) -> *const c_char;
        ncclGetLastError(Comm) -> *const c_char;
        ncclAllReduce(*const c_void, *mut c_void, usize, c_int, c_int, Comm, Stream) -> c_int;
        ncclReduceScatter(*const c_void, *mut c_void, usize, c_int, c_int, Comm, Stream) -> c_int;
        ncclBroadcast(*const c_void, *mut c_void, usize, c_int, c_int, Comm, Stream) -> c_int;
        ncclAllGather(*const c_void, *mut c_void, usize, c_int, Comm, Stream) -> c_int;
        ncclSend(*const c_void, usize, c_int, c_int, Comm, Stream) -> c_int;
        ncclRecv(*mut c_void, usize, c_int, c_int, Comm, Stream) -> c_int;
        ncclGroupStart() -> c_int;
        ncclGroupEnd() -> c_int;
        ncclMemAlloc(*mut *mut c_void, usize) -> c_int;
        ncclMemFree(*mut c_void) -> c_int;
    }
    {
        ncclCommWindowRegister(Comm, *mut c_void, usize, *mut Window, c_int) -> c_int;
        ncclCommWindowDeregister(Comm, Window) -> c_int;
    }
}

/// Returns the `ncclDataType_t`, or none for 16-bit integers, which NCCL does not add up, and for
/// `bool`, which is not a number.
pub fn data_type(dtype: DType) -> Option<c_int> {
    Some(match dtype {
        DType::I8 => 0,
        DType::U8 => 1,
        DType::I32 => 2,
        DType::U32 => 3,
        DType::I64 => 4,
        DType::U64 => 5,
        DType::F16 => 6,
        DType::F32 => 7,
        DType::F64 => 8,
        DType::BF16 => 9,
        DType::E4M3 => 10,
        DType::E5M2 => 11,
        DType::I16 | DType::U16 | DType::Bool => return None,
    })
}

/// `ncclUint8`, the type by which bytes are moved.
pub const BYTES: c_int = 1;

/// Returns the `ncclRedOp_t`, or none for bitwise operations.
pub fn operation(op: Reduce) -> Option<c_int> {
    match op {
        Reduce::Sum => Some(0),
        Reduce::Prod => Some(1),
        Reduce::Max => Some(2),
        Reduce::Min => Some(3),
        Reduce::And | Reduce::Or | Reduce::Xor => None,
    }
}
