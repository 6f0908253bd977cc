//! The boxes of a tensor that a kernel copies with TMA.

use crate::words;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The maximum number of dimensions of a tensor map (PTX ISA, Tensors).
pub const MAP_DIMS: usize = 5;
/// The size of an encoded tensor map in bytes (CUDA Driver API, CUtensorMap).
pub const MAP_BYTES: u32 = 128;
/// The alignment of a tensor map among a kernel's parameters, in bytes.
pub const MAP_ALIGN: u32 = 64;

words! {
    /// The permutation of a box's 16-byte pieces in shared memory (PTX ISA, Swizzling Modes).
    #[derive(Default, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    MapSwizzle {
        /// The pieces are not permuted.
        #[default]
        None = "plain",
        /// The pieces are permuted within rows of 32 bytes.
        B32 = "b32",
        /// The pieces are permuted within rows of 64 bytes.
        B64 = "b64",
        /// The pieces are permuted within rows of 128 bytes.
        B128 = "b128",
    }
}

/// The part of a tensor map that the compiler decides. The launch adds the address, extents and
/// strides.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct MapShape {
    /// The permutation of the pieces.
    pub swizzle: MapSwizzle,
    /// The number of dimensions.
    rank: u8,
    /// For each dimension, its mode of the parameter's layout, counted over the flattened modes.
    modes: [u8; MAP_DIMS],
    /// For each dimension, the number of elements of a box.
    boxes: [u16; MAP_DIMS],
}

impl MapShape {
    /// Creates a map with these dimensions. Each is a mode of the parameter's layout and the box's
    /// extent along it. Dimension 0 is the mode of stride 1. The result is `None` if there are no
    /// dimensions, or more than [`MAP_DIMS`].
    pub fn new(swizzle: MapSwizzle, dims: &[(u8, u16)]) -> Option<MapShape> {
        let rank = u8::try_from(dims.len()).ok().filter(|n| (1..=MAP_DIMS).contains(&usize::from(*n)))?;
        let mut shape = MapShape { swizzle, rank, modes: [0; MAP_DIMS], boxes: [0; MAP_DIMS] };
        for (i, (mode, extent)) in dims.iter().enumerate() {
            (shape.modes[i], shape.boxes[i]) = (*mode, *extent);
        }
        Some(shape)
    }

    /// The dimensions, each as the mode of the parameter's layout and the box's extent along it.
    pub fn dims(&self) -> impl Iterator<Item = (usize, u16)> + '_ {
        let rank = usize::from(self.rank).min(MAP_DIMS);
        self.modes.iter().zip(&self.boxes).take(rank).map(|(mode, extent)| (usize::from(*mode), *extent))
    }
}

impl fmt::Display for MapShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.swizzle.name())?;
        self.dims().try_for_each(|(mode, extent)| write!(f, ", {mode}, {extent}"))
    }
}
