//! Tensor maps, which a launch makes for copies of tiles (TMA) from an argument's address and its
//! layout in the launch.

use crate::DType;
use crate::cuda;
use crate::error::{ARGUMENT, Error, LAUNCH, Result};
use cudarc::driver::sys;
use weft_abi::{MapShape, MapSwizzle};
use weft_layout::Layout;

/// The size of a tensor map in the driver's encoding, in bytes.
pub const BYTES: usize = weft_abi::MAP_BYTES as usize;
/// Addresses and strides are multiples of this many bytes (CUDA Driver API, `cuTensorMapEncodeTiled`).
const UNIT: u64 = 16;
/// The largest number of elements along a dimension, and one more than the largest stride in bytes.
const MAX_EXTENT: u64 = 1 << 32;
const MAX_STRIDE: u64 = 1 << 40;

/// The description that a tensor map is made from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MapRequest {
    /// The offset in the parameter block in bytes.
    pub offset: usize,
    /// The type of the elements.
    pub dtype: DType,
    /// The address of the tensor's first element.
    pub address: u64,
    /// The number of elements along each dimension, with the one of stride 1 first.
    pub extents: Vec<u64>,
    /// The stride of each dimension but the first in bytes.
    pub strides: Vec<u64>,
    /// The number of elements of a box along each dimension.
    pub boxes: Vec<u32>,
    /// The permutation of a box in shared memory.
    pub swizzle: MapSwizzle,
}

impl MapRequest {
    /// Describes the map of a tensor for boxes of a shape.
    ///
    /// # Errors
    /// Says why tensor maps cannot describe the tensor: an address or a stride is not a multiple of
    /// 16 bytes, or an extent or a stride is too large.
    pub(super) fn new(
        offset: usize,
        (dtype, address, layout): (DType, u64, &Layout),
        shape: &MapShape,
    ) -> std::result::Result<MapRequest, String> {
        let numbers = |t: &weft_layout::IntTuple| -> Option<Vec<u64>> {
            t.leaves().into_iter().map(|n| n.as_const().and_then(|n| u64::try_from(n).ok())).collect()
        };
        let known = numbers(layout.shape()).zip(numbers(layout.stride()));
        let (all_extents, all_strides) = known.ok_or("its layout is not known, or has a negative stride")?;
        let bytes = u64::from(dtype.bytes());
        let (mut extents, mut strides, mut boxes) = (Vec::new(), Vec::new(), Vec::new());
        for (i, (mode, extent)) in shape.dims().enumerate() {
            let dim = all_extents.get(mode).copied().zip(all_strides.get(mode).copied());
            let (n, stride) = dim.ok_or_else(|| format!("it has no mode {mode}"))?;
            // The stride of a mode with one element is never used, but a map needs a legal one.
            let stride = if n == 1 && i > 0 { UNIT } else { stride.saturating_mul(bytes) };
            match i {
                0 if stride != bytes => {
                    return Err(format!(
                        "mode {mode} has a stride of {stride} bytes, but it must be contiguous"
                    ));
                }
                0 => {}
                _ if stride % UNIT != 0 || stride >= MAX_STRIDE => {
                    return Err(format!(
                        "mode {mode} has a stride of {stride} bytes, but TMA needs a multiple of {UNIT} below 2^40"
                    ));
                }
                _ => strides.push(stride),
            }
            if n == 0 || n > MAX_EXTENT {
                return Err(format!("mode {mode} has {n} elements, but TMA needs 1 to 2^32"));
            }
            extents.push(n);
            boxes.push(u32::from(extent));
        }
        if !address.is_multiple_of(UNIT) {
            return Err(format!("its address {address:#x} is not a multiple of {UNIT}, which TMA requires"));
        }
        Ok(MapRequest { offset, dtype, address, extents, strides, boxes, swizzle: shape.swizzle })
    }

    /// Encodes the map for a simulated PE.
    ///
    /// # Errors
    /// Fails for a map that the simulator rejects, as the driver does (R0503).
    pub(super) fn simulated(&self) -> Result<[u8; BYTES]> {
        use weft_sim::{Swizzle, TensorType};
        let element = match self.dtype {
            DType::F16 => TensorType::F16,
            DType::BF16 => TensorType::Bf16,
            DType::F32 => TensorType::F32,
            DType::F64 => TensorType::F64,
            DType::I32 => TensorType::S32,
            DType::I64 => TensorType::S64,
            DType::U32 => TensorType::U32,
            DType::U64 => TensorType::U64,
            DType::U16 | DType::I16 => TensorType::U16,
            DType::U8 | DType::I8 | DType::Bool | DType::E4M3 | DType::E5M2 => TensorType::U8,
        };
        let swizzle = match self.swizzle {
            MapSwizzle::None => Swizzle::None,
            MapSwizzle::B32 => Swizzle::B32,
            MapSwizzle::B64 => Swizzle::B64,
            MapSwizzle::B128 => Swizzle::B128,
        };
        let map = weft_sim::TensorMap {
            element,
            address: self.address,
            dims: self.extents.clone(),
            strides: self.strides.clone(),
            tile: self.boxes.clone(),
            element_strides: vec![1; self.boxes.len()],
            swizzle,
            fill_nan: false,
        };
        map.encode().map_err(|e| self.refused(&e.to_string()))
    }

    /// Encodes the map for a GPU.
    ///
    /// # Errors
    /// Fails if the driver rejects it (R0503), or if it cannot encode maps (R0103).
    pub(super) fn encoded(&self) -> Result<[u8; BYTES]> {
        use sys::CUtensorMapDataType as T;
        use sys::CUtensorMapSwizzle as S;
        let element = match self.dtype {
            DType::F16 => T::CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
            DType::BF16 => T::CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
            DType::F32 => T::CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
            DType::F64 => T::CU_TENSOR_MAP_DATA_TYPE_FLOAT64,
            DType::I32 => T::CU_TENSOR_MAP_DATA_TYPE_INT32,
            DType::I64 => T::CU_TENSOR_MAP_DATA_TYPE_INT64,
            DType::U32 => T::CU_TENSOR_MAP_DATA_TYPE_UINT32,
            DType::U64 => T::CU_TENSOR_MAP_DATA_TYPE_UINT64,
            DType::U16 | DType::I16 => T::CU_TENSOR_MAP_DATA_TYPE_UINT16,
            DType::U8 | DType::I8 | DType::Bool | DType::E4M3 | DType::E5M2 => {
                T::CU_TENSOR_MAP_DATA_TYPE_UINT8
            }
        };
        let swizzle = match self.swizzle {
            MapSwizzle::None => S::CU_TENSOR_MAP_SWIZZLE_NONE,
            MapSwizzle::B32 => S::CU_TENSOR_MAP_SWIZZLE_32B,
            MapSwizzle::B64 => S::CU_TENSOR_MAP_SWIZZLE_64B,
            MapSwizzle::B128 => S::CU_TENSOR_MAP_SWIZZLE_128B,
        };
        let map =
            cuda::encode_map(element, swizzle, self.address, (&self.extents, &self.strides, &self.boxes));
        map.map_err(|e| self.refused(&e.message))
    }

    fn refused(&self, why: &str) -> Error {
        let message = format!(
            "cannot encode a tensor map of {:?} elements of {} in boxes of {:?}: {why}",
            self.extents, self.dtype, self.boxes
        );
        Error::new(LAUNCH, message)
    }
}

/// Makes the error for a tensor that a map cannot describe.
pub(super) fn bad(kernel: &str, param: &str, why: &str) -> Error {
    Error::new(ARGUMENT, format!("`{kernel}` copies tiles of `{param}`: {why}"))
        .help("align the address and the strides of the tensor to 16 bytes, which TMA requires")
}
