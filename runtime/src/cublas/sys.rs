//! The raw functions of cuBLASLt: names, signatures and numbers of `cublasLt.h` of CUDA 12 and 13,
//! which agree on everything that is used here.
#![allow(unsafe_code, reason = "functions of a C library")]

use crate::DType;
use crate::foreign::functions;
use std::ffi::{c_char, c_int, c_void};

/// A handle of the library, a descriptor, a layout or a preference. Each is a pointer to an opaque
/// structure.
pub type Handle = *mut c_void;
/// The type `cudaStream_t`, which is a `CUstream`.
pub type Stream = *mut c_void;

/// `cublasLtMatmulAlgo_t`: an algorithm with its parameters. It is plain data that may be copied.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Algo {
    /// Data that only the library interprets.
    pub data: [u64; 8],
}

/// `cublasLtMatmulHeuristicResult_t`: one answer of the heuristic.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct HeuristicResult {
    /// The algorithm that the heuristic proposes.
    pub algo: Algo,
    /// The size of the workspace that the algorithm needs in bytes.
    pub workspace: usize,
    /// Whether the algorithm can be used: a status.
    pub state: c_int,
    /// The number of waves of thread blocks that the algorithm has on this device.
    pub waves: f32,
    /// Reserved by the library.
    pub reserved: [c_int; 4],
}

/// The status `CUBLAS_STATUS_NOT_SUPPORTED` of a call.
pub const NOT_SUPPORTED: c_int = 15;

/// `CUBLASLT_MATMUL_DESC_TRANSA`, an `int32_t` of [`OP_N`] or [`OP_T`].
pub const DESC_TRANSA: c_int = 3;
/// `CUBLASLT_MATMUL_DESC_TRANSB`, an `int32_t` of [`OP_N`] or [`OP_T`].
pub const DESC_TRANSB: c_int = 4;
/// `CUBLASLT_MATMUL_DESC_FAST_ACCUM`, an `int8_t`: whether products of 8 bits are added up in the tensor cores alone.
pub const DESC_FAST_ACCUM: c_int = 25;
/// `CUBLASLT_MATMUL_DESC_A_SCALE_POINTER`, an address of f32 in device memory.
pub const DESC_A_SCALE_POINTER: c_int = 17;
/// `CUBLASLT_MATMUL_DESC_B_SCALE_POINTER`, an address of f32 in device memory.
pub const DESC_B_SCALE_POINTER: c_int = 18;
/// `CUBLASLT_MATMUL_DESC_A_SCALE_MODE`, an `int32_t`: one of the numbers `SCALE_...`. CUDA 12.8 and later have it.
pub const DESC_A_SCALE_MODE: c_int = 31;
/// `CUBLASLT_MATMUL_DESC_B_SCALE_MODE`, an `int32_t`: one of the numbers `SCALE_...`. CUDA 12.8 and later have it.
pub const DESC_B_SCALE_MODE: c_int = 32;
/// `CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F`: one scale for the matrix, which is the default.
pub const SCALE_SCALAR_32F: i32 = 0;
/// `CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F`: a scale for each row of A and each column of B. CUDA 12.9 and later have it.
pub const SCALE_OUTER_VEC_32F: i32 = 3;
/// `CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F`: a scale for each 128 elements along K. CUDA 12.9 and later have it.
pub const SCALE_VEC128_32F: i32 = 4;
/// `CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F`: a scale for each 128 x 128 elements. CUDA 12.9 and later have it.
pub const SCALE_BLK128X128_32F: i32 = 5;
/// `CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES`, a `uint64_t` in bytes.
pub const PREF_MAX_WORKSPACE_BYTES: c_int = 1;
/// `CUBLAS_OP_N`: the matrix is used unchanged.
pub const OP_N: i32 = 0;
/// `CUBLAS_OP_T`: the matrix is transposed.
pub const OP_T: i32 = 1;
/// `CUDA_R_32F`: the type of 32-bit floating-point numbers.
pub const R_32F: c_int = 0;

/// Returns the `cudaDataType_t` of an operand, and the `cublasComputeType_t` of products of such
/// operands, or none for types whose products the library does not add up in f32.
pub fn data_type(dtype: DType) -> Option<(c_int, c_int)> {
    const COMPUTE_32F: c_int = 68;
    const COMPUTE_32F_FAST_TF32: c_int = 77;
    Some(match dtype {
        DType::F32 => (R_32F, COMPUTE_32F_FAST_TF32),
        DType::F16 => (2, COMPUTE_32F),
        DType::BF16 => (14, COMPUTE_32F),
        DType::E4M3 => (28, COMPUTE_32F),
        DType::E5M2 => (29, COMPUTE_32F),
        _ => return None,
    })
}

functions! {
    /// The functions of cuBLASLt, by name.
    {
        cublasLtGetVersion() -> usize;
        cublasLtGetStatusString(c_int) -> *const c_char;
        cublasLtCreate(*mut Handle) -> c_int;
        cublasLtDestroy(Handle) -> c_int;
        cublasLtMatmulDescCreate(*mut Handle, c_int, c_int) -> c_int;
        cublasLtMatmulDescSetAttribute(Handle, c_int, *const c_void, usize) -> c_int;
        cublasLtMatmulDescDestroy(Handle) -> c_int;
        cublasLtMatrixLayoutCreate(*mut Handle, c_int, u64, u64, i64) -> c_int;
        cublasLtMatrixLayoutDestroy(Handle) -> c_int;
        cublasLtMatmulPreferenceCreate(*mut Handle) -> c_int;
        cublasLtMatmulPreferenceSetAttribute(Handle, c_int, *const c_void, usize) -> c_int;
        cublasLtMatmulPreferenceDestroy(Handle) -> c_int;
        cublasLtMatmulAlgoGetHeuristic(
            Handle,
            Handle,
            Handle,
            Handle,
            Handle,
            Handle,
            Handle,
            c_int,
            *mut HeuristicResult,
            *mut c_int
        ) -> c_int;
        cublasLtMatmul(
            Handle,
            Handle,
            *const c_void,
            *const c_void,
            Handle,
            *const c_void,
            Handle,
            *const c_void,
            *const c_void,
            Handle,
            *mut c_void,
            Handle,
            *const Algo,
            *mut c_void,
            usize,
            Stream
        ) -> c_int;
    }
    {}
}
