//! Tensor maps and the copies that they describe.
//!
//! A tensor map describes a tensor of up to five dimensions in global memory, and the box of it
//! that a tensor copy moves. The driver's `CUtensorMap` is opaque. The 128 bytes here have the same
//! fields in a different order (the offsets below). So maps that the driver has encoded do not work
//! on the simulator, and maps of the simulator do not work on a GPU. A map that a kernel makes by
//! `tensormap.replace` from 128 zero bytes works on both.

use crate::error::SimError;
use crate::num::{F32, OOB_NAN, Rounding, TF32, mask};

/// The size of a tensor map in bytes.
pub(crate) const BYTES: usize = 128;
/// The largest number of dimensions.
const RANK: usize = 5;

/// The element types, in the order of `tensormap.replace.tile.elemtype`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TensorType {
    /// An integer of 1 byte (also for 8-bit floats).
    U8,
    /// An unsigned integer of 2 bytes.
    U16,
    /// An unsigned integer of 4 bytes.
    U32,
    /// A signed integer of 4 bytes.
    S32,
    /// An unsigned integer of 8 bytes.
    U64,
    /// A signed integer of 8 bytes.
    S64,
    /// A half-precision number of 2 bytes.
    F16,
    /// A single-precision number of 4 bytes.
    F32,
    /// A double-precision number of 8 bytes.
    F64,
    /// A single-precision number. An H200 loads subnormals unchanged in spite of the name.
    F32Ftz,
    /// A bfloat16 number of 2 bytes.
    Bf16,
    /// A single-precision number that is rounded to TF32 when it is loaded.
    Tf32,
    /// The same as [`Tf32`](TensorType::Tf32) in the simulator.
    Tf32Ftz,
}

/// The conversion of the bits of an element in a load.
pub(crate) type Convert = fn(u64) -> u64;

/// An element type: its number in a tensor map, the name of the PTX type, whether it is a float,
/// and its conversion.
struct Entry(TensorType, u8, &'static str, bool, Option<Convert>);

const TYPES: [Entry; 13] = [
    Entry(TensorType::U8, 0, "u8", false, None),
    Entry(TensorType::U16, 1, "u16", false, None),
    Entry(TensorType::U32, 2, "u32", false, None),
    Entry(TensorType::S32, 3, "s32", false, None),
    Entry(TensorType::U64, 4, "u64", false, None),
    Entry(TensorType::S64, 5, "s64", false, None),
    Entry(TensorType::F16, 6, "f16", true, None),
    Entry(TensorType::F32, 7, "f32", true, None),
    Entry(TensorType::F32Ftz, 8, "f32", true, None),
    Entry(TensorType::F64, 9, "f64", true, None),
    Entry(TensorType::Bf16, 10, "bf16", true, None),
    Entry(TensorType::Tf32, 11, "f32", true, Some(tf32)),
    Entry(TensorType::Tf32Ftz, 12, "f32", true, Some(tf32)),
];

/// Rounds single precision to TF32. NaNs have all bits of TF32 set.
fn tf32(v: u64) -> u64 {
    if F32.is_nan(v) {
        return mask(31) & !mask(13);
    }
    TF32.encode(F32.decode(v), Rounding::Nearest, false) << 13
}

/// The permutation of 16-byte pieces in shared memory, which avoids bank conflicts of columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Swizzle {
    /// The pieces stay in place.
    #[default]
    None,
    /// Pieces are permuted within 32 bytes.
    B32,
    /// Pieces are permuted within 64 bytes.
    B64,
    /// Pieces are permuted within 128 bytes.
    B128,
}

impl Swizzle {
    const ALL: [Swizzle; 4] = [Swizzle::None, Swizzle::B32, Swizzle::B64, Swizzle::B128];

    /// The number of bytes within which pieces are permuted, or 0 for none.
    fn span(self) -> usize {
        match self {
            Swizzle::None => 0,
            Swizzle::B32 => 32,
            Swizzle::B64 => 64,
            Swizzle::B128 => 128,
        }
    }

    /// Returns the swizzled offset of a shared address: the piece's number in the row of 128 bytes
    /// is combined with the row's.
    fn apply(self, at: usize) -> usize {
        at ^ (at >> 7 & (self.span() / 16).saturating_sub(1)) << 4
    }
}

/// The arguments of `cuTensorMapEncodeTiled`, without interleaving and L2 promotion (which is a hint).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorMap {
    /// The type of the elements.
    pub element: TensorType,
    /// The address of the tensor in the memory of the PE that uses the map, a multiple of 16.
    pub address: u64,
    /// The number of elements in each of the 1 to 5 dimensions, innermost first.
    pub dims: Vec<u64>,
    /// The stride of each dimension but the innermost in bytes, a multiple of 16.
    pub strides: Vec<u64>,
    /// The number of elements of the copied box in each dimension, from 1 to 256.
    pub tile: Vec<u32>,
    /// The step between copied elements in each dimension, from 1 to 8. The innermost is ignored.
    pub element_strides: Vec<u32>,
    /// The order of the elements in shared memory.
    pub swizzle: Swizzle,
    /// Whether elements outside the tensor are read as NaN instead of zero.
    pub fill_nan: bool,
}

// The offsets of the fields.
const ADDRESS: usize = 0;
const HEAD: usize = 8;
const DIMS: usize = 16;
const TILE: usize = 36;
const STRIDES: usize = 56;
const ELEMENT_STRIDES: usize = 88;

/// A field that `tensormap.replace` writes: its name, its first byte, its size in bytes, and its
/// number of entries.
pub(crate) struct Field {
    pub name: &'static str,
    offset: usize,
    pub bytes: usize,
    pub count: usize,
}

pub(crate) const FIELDS: &[Field] = &[
    Field { name: "global_address", offset: ADDRESS, bytes: 8, count: 1 },
    Field { name: "rank", offset: HEAD, bytes: 1, count: 1 },
    Field { name: "elemtype", offset: HEAD + 1, bytes: 1, count: 1 },
    Field { name: "interleave_layout", offset: HEAD + 2, bytes: 1, count: 1 },
    Field { name: "swizzle_mode", offset: HEAD + 3, bytes: 1, count: 1 },
    Field { name: "fill_mode", offset: HEAD + 4, bytes: 1, count: 1 },
    Field { name: "swizzle_atomicity", offset: HEAD + 5, bytes: 1, count: 1 },
    Field { name: "global_dim", offset: DIMS, bytes: 4, count: RANK },
    Field { name: "box_dim", offset: TILE, bytes: 4, count: RANK },
    Field { name: "global_stride", offset: STRIDES, bytes: 8, count: RANK - 1 },
    Field { name: "element_stride", offset: ELEMENT_STRIDES, bytes: 4, count: RANK },
];

impl Field {
    /// The offset of entry `i`.
    pub(crate) fn at(&self, i: usize) -> usize {
        self.offset + i * self.bytes
    }
}

/// A part of a row of a box: its address if it is within the tensor, and its offset in shared
/// memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Part {
    /// The address, if the bytes are within the tensor.
    pub global: Option<u64>,
    /// Offset in shared memory.
    pub shared: usize,
    pub len: usize,
}

impl TensorMap {
    /// Encodes the map as 128 bytes, to be passed as a kernel parameter or stored in memory.
    ///
    /// # Errors
    /// Fails if `cuTensorMapEncodeTiled` would reject the map (S001).
    pub fn encode(&self) -> Result<[u8; 128], SimError> {
        let rank = self.dims.len();
        let lengths = [self.strides.len() + 1, self.tile.len(), self.element_strides.len()];
        if !(1..=RANK).contains(&rank) || lengths != [rank; 3] {
            let help =
                "give dims, tile and element_strides the same 1 to 5 entries, and strides one entry less";
            return Err(SimError::request("the lengths of the tensor map's lists do not match", help));
        }
        self.check().map_err(|message| SimError::request(format!("tensor map: {message}"), ""))?;
        let mut out = [0; BYTES];
        let mut put = |name: &str, i: usize, value: u64| {
            if let Some(f) = FIELDS.iter().find(|f| f.name == name) {
                out[f.at(i)..f.at(i) + f.bytes].copy_from_slice(&value.to_le_bytes()[..f.bytes]);
            }
        };
        put("global_address", 0, self.address);
        put("rank", 0, rank as u64 - 1);
        put("elemtype", 0, self.entry().1.into());
        put("swizzle_mode", 0, self.swizzle as u64);
        put("fill_mode", 0, self.fill_nan.into());
        for i in 0..rank {
            put("global_dim", i, self.dims[i]);
            put("box_dim", i, self.tile[i].into());
            put("element_stride", i, self.element_strides[i].into());
        }
        for (i, &s) in self.strides.iter().enumerate() {
            put("global_stride", i, s);
        }
        Ok(out)
    }

    /// Decodes the map in 128 bytes.
    pub(crate) fn decode(bytes: &[u8; BYTES]) -> Result<TensorMap, String> {
        let get = |name: &str, i: usize| {
            let field = FIELDS.iter().find(|f| f.name == name);
            field.map_or(0, |f| {
                let list = &bytes[f.at(i)..f.at(i) + f.bytes];
                list.iter().rev().fold(0_u64, |v, b| v << 8 | u64::from(*b))
            })
        };
        let rank = get("rank", 0) as usize + 1;
        if rank > RANK {
            return Err(format!("the rank is {rank}, so these bytes are not a tensor map"));
        }
        let kind = get("elemtype", 0);
        let Some(&Entry(element, ..)) = TYPES.iter().find(|t| u64::from(t.1) == kind) else {
            return Err(format!("element type {kind} is not simulated"));
        };
        if get("interleave_layout", 0) != 0 || get("swizzle_atomicity", 0) != 0 {
            return Err("interleaved layouts and swizzle atoms other than 16 bytes are not simulated".into());
        }
        let Some(&swizzle) = Swizzle::ALL.get(get("swizzle_mode", 0) as usize) else {
            return Err(format!("swizzle mode {} is not simulated", get("swizzle_mode", 0)));
        };
        // In 32 bits, 0 means 2^32.
        let dim = |i| match get("global_dim", i) {
            0 => 1 << 32,
            n => n,
        };
        let map = TensorMap {
            element,
            address: get("global_address", 0),
            dims: (0..rank).map(dim).collect(),
            strides: (0..rank - 1).map(|i| get("global_stride", i)).collect(),
            tile: (0..rank).map(|i| get("box_dim", i) as u32).collect(),
            element_strides: (0..rank).map(|i| get("element_stride", i) as u32).collect(),
            swizzle,
            fill_nan: get("fill_mode", 0) != 0,
        };
        map.check().map(|()| map)
    }

    fn entry(&self) -> &'static Entry {
        TYPES.iter().find(|t| t.0 == self.element).unwrap_or(&TYPES[0])
    }

    /// Name of the element type.
    pub(crate) fn type_name(&self) -> &'static str {
        self.entry().2
    }

    /// The size of an element in bytes.
    pub(crate) fn element_bytes(&self) -> usize {
        let name = self.type_name();
        name.trim_start_matches(|c: char| c.is_ascii_alphabetic()).parse::<usize>().unwrap_or(8) / 8
    }

    /// The repeated value of elements outside the tensor.
    pub(crate) fn fill(&self) -> [u8; 2] {
        if self.fill_nan { OOB_NAN.to_le_bytes() } else { [0; 2] }
    }

    /// The conversion of elements in a load.
    pub(crate) fn convert(&self) -> Option<Convert> {
        self.entry().4
    }

    /// Checks the requirements of the driver.
    fn check(&self) -> Result<(), String> {
        let row = self.tile[0] as usize * self.element_bytes();
        let span = self.swizzle.span();
        let wrong = if !self.address.is_multiple_of(16) {
            format!("the address {:#x} is not a multiple of 16", self.address)
        } else if let Some(n) = self.dims.iter().find(|n| !(1..=1 << 32).contains(*n)) {
            format!("a dimension has {n} elements; 1 to 2^32 are possible")
        } else if let Some(n) = self.strides.iter().find(|n| !n.is_multiple_of(16) || **n >= 1 << 40) {
            format!("a stride of {n} bytes is not a multiple of 16 below 2^40")
        } else if let Some(n) = self.tile.iter().find(|n| !(1..=256).contains(*n)) {
            format!("the box has {n} elements in a dimension; 1 to 256 are possible")
        } else if let Some(n) = self.element_strides.iter().find(|n| !(1..=8).contains(*n)) {
            format!("an element stride is {n}; 1 to 8 are possible")
        } else if !row.is_multiple_of(16) {
            format!("the box's innermost dimension has {row} bytes, not a multiple of 16")
        } else if span > 0 && row > span {
            format!("the box's innermost dimension has {row} bytes, more than its swizzle of {span}")
        } else if self.fill_nan && !self.entry().3 {
            "only floating-point elements can be filled with NaN".into()
        } else {
            return Ok(());
        };
        Err(wrong)
    }

    /// The number of copied elements in each dimension.
    fn counts(&self) -> impl Iterator<Item = u64> + '_ {
        let steps = std::iter::once(&1).chain(self.element_strides.iter().skip(1));
        self.tile.iter().zip(steps).map(|(&n, &step)| u64::from(n.div_ceil(step)))
    }

    /// The size of a row of a box, and the distance between rows in shared memory, in bytes. A row
    /// that is narrower than the swizzle still has the swizzle's span (found on an H200).
    fn row_bytes(&self) -> (usize, usize) {
        let row = self.tile[0] as usize * self.element_bytes();
        (row, row.max(self.swizzle.span()))
    }

    /// The size of a box in shared memory, in bytes.
    pub(crate) fn box_bytes(&self) -> usize {
        self.counts().skip(1).product::<u64>() as usize * self.row_bytes().1
    }

    /// The parts of the box at these coordinates, which begins at a shared offset. If the rows of a
    /// tensor do not end at a multiple of 16 bytes, a store to them continues in the next row
    /// (found on an H200).
    pub(crate) fn parts(&self, coordinates: &[i32], shared: usize, stores: bool) -> Vec<Part> {
        let size = self.element_bytes();
        let counts: Vec<u64> = self.counts().collect();
        let (row, pitch) = self.row_bytes();
        // The bytes of a row before and after those within the tensor.
        let first = i64::from(coordinates[0]);
        let before = (-first).clamp(0, counts[0] as i64) as usize * size;
        let end = (self.dims[0] as i64 - first).clamp(0, counts[0] as i64) as usize * size;
        let end = if stores { end.next_multiple_of(16) } else { end };
        let mut out = Vec::new();
        let mut index = vec![0_u64; counts.len()];
        for n in 0..counts[1..].iter().product::<u64>() {
            let mut address = self.address.wrapping_add((first as u64).wrapping_mul(size as u64));
            let mut inside = true;
            for d in 1..counts.len() {
                let at = i64::from(coordinates[d]) + (index[d] * u64::from(self.element_strides[d])) as i64;
                inside &= (0..self.dims[d] as i64).contains(&at);
                address = address.wrapping_add((at as u64).wrapping_mul(self.strides[d - 1]));
            }
            self.row(&mut out, (address, inside, before..end.max(before)), shared + n as usize * pitch, row);
            for (i, count) in index.iter_mut().zip(&counts).skip(1) {
                *i += 1;
                if *i < *count {
                    break;
                }
                *i = 0;
            }
        }
        out
    }

    /// The parts of one row.
    fn row(
        &self,
        out: &mut Vec<Part>,
        (address, inside, valid): (u64, bool, std::ops::Range<usize>),
        shared: usize,
        row: usize,
    ) {
        let piece = if self.swizzle == Swizzle::None { row } else { 16 };
        for start in (0..row).step_by(piece) {
            let to = self.swizzle.apply(shared + start);
            let cuts = [start, valid.start, valid.end, start + piece].map(|c| c.clamp(start, start + piece));
            for (i, c) in cuts.windows(2).enumerate().filter(|(_, c)| c[1] > c[0]) {
                let is_valid = inside && i == 1;
                let global = is_valid.then(|| address.wrapping_add(c[0] as u64));
                out.push(Part { global, shared: to + c[0] - start, len: c[1] - c[0] });
            }
        }
    }
}
