//! The driver's encoding of tensor maps.
#![allow(unsafe_code, reason = "FFI")]

use super::error;
use crate::error::Result;
use cudarc::driver::sys::{self, CUtensorMapDataType, CUtensorMapL2promotion, CUtensorMapSwizzle};

/// Encodes a tensor map (CUDA Driver API, `cuTensorMapEncodeTiled`). Extents are in elements,
/// strides in bytes without the first dimension's, and boxes in elements. Elements beyond the
/// tensor read as 0.
///
/// # Errors
/// Fails if the driver rejects it (R0103).
pub fn encode_map(
    element: CUtensorMapDataType,
    swizzle: CUtensorMapSwizzle,
    address: u64,
    (extents, strides, boxes): (&[u64], &[u64], &[u32]),
) -> Result<[u8; 128]> {
    let steps = [1u32; 5];
    // Rows that do not begin at a multiple of 256 bytes would fetch one line too many at each end.
    let promotion = if strides.iter().all(|s| s.is_multiple_of(256)) {
        CUtensorMapL2promotion::CU_TENSOR_MAP_L2_PROMOTION_L2_256B
    } else {
        CUtensorMapL2promotion::CU_TENSOR_MAP_L2_PROMOTION_L2_128B
    };
    let rank = extents.len().min(boxes.len()).min(strides.len() + 1).min(steps.len());
    // SAFETY: the structure is plain bytes, for which 0 is a value.
    let mut map: sys::CUtensorMap = unsafe { std::mem::zeroed() };
    // SAFETY: the arrays have `rank` elements (strides one less) and live during the call, which
    // writes the local map. The address is only stored in the map.
    let code = unsafe {
        sys::cuTensorMapEncodeTiled(
            &mut map,
            element,
            rank as u32,
            std::ptr::without_provenance_mut(address as usize),
            extents.as_ptr(),
            strides.as_ptr(),
            boxes.as_ptr(),
            steps.as_ptr(),
            sys::CUtensorMapInterleave::CU_TENSOR_MAP_INTERLEAVE_NONE,
            swizzle,
            promotion,
            sys::CUtensorMapFloatOOBfill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        )
    };
    code.result().map_err(|e| error("cuTensorMapEncodeTiled", e))?;
    let mut bytes = [0; 128];
    for (to, word) in bytes.chunks_exact_mut(8).zip(map.opaque) {
        to.copy_from_slice(&word.to_le_bytes());
    }
    Ok(bytes)
}
