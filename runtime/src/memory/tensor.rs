//! Symmetric memory with an element type and a layout.

use super::SymmetricBuffer;
use crate::cuda::{Stream, copy};
use crate::error::{Error, Result, SHAPE};
use crate::shape::{IntoLayout, memory_elements, without_gaps};
use crate::team::Team;
use crate::world::World;
use crate::{DType, Element};
use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;
use weft_layout::Layout;

impl World {
    /// Allocates a symmetric tensor of this shape or layout, without setting its elements. This
    /// call is *collective*.
    ///
    /// # Errors
    /// Fails where [`buffer`](World::buffer) fails, or for a layout without elements (R0307).
    #[track_caller]
    pub fn tensor<T: Element>(&self, layout: impl IntoLayout) -> Result<SymmetricTensor<T>> {
        let bytes = layout.into_layout().and_then(|layout| Ok((bytes_of::<T>(&layout)?, layout)));
        let (bytes, layout) = bytes.map_err(|e| self.0.refuse(&self.0.everyone, e))?;
        SymmetricTensor::view(self.buffer(bytes)?, 0, layout)
    }

    /// Allocates a symmetric tensor whose elements are 0. This call is *collective*.
    ///
    /// # Errors
    /// Fails where [`tensor`](World::tensor) fails.
    #[track_caller]
    pub fn zeros<T: Element>(&self, layout: impl IntoLayout) -> Result<SymmetricTensor<T>> {
        let tensor = self.tensor(layout)?;
        tensor.buffer().fill(0)?;
        self.barrier()?;
        Ok(tensor)
    }
}

/// The size of a tensor with that layout in bytes.
fn bytes_of<T: Element>(layout: &Layout) -> Result<usize> {
    let too_large = || Error::new(SHAPE, format!("a tensor {layout} exceeds the address space"));
    memory_elements(layout)?.checked_mul(size_of::<T>()).ok_or_else(too_large)
}

/// A tensor that every PE has, at the same offset of its symmetric heap. Clones and
/// [slices](SymmetricTensor::slice) share the memory, which is freed when the last one is dropped.
/// The PEs must drop tensors in the same order.
#[derive(Clone)]
pub struct SymmetricTensor<T> {
    buffer: SymmetricBuffer,
    /// The offset from the start of the buffer in bytes.
    offset: u64,
    layout: Layout,
    /// The number of elements from the first to the last, which is the layout's cosize.
    elements: usize,
    marker: PhantomData<T>,
}

impl<T: Element> SymmetricTensor<T> {
    /// Returns a part of a buffer as a tensor of this shape or layout, from `offset` bytes on.
    ///
    /// # Errors
    /// Fails if it does not fit the buffer, or is not aligned to its elements (R0307).
    pub fn view(buffer: SymmetricBuffer, offset: u64, layout: impl IntoLayout) -> Result<SymmetricTensor<T>> {
        let layout = layout.into_layout()?;
        let elements = memory_elements(&layout)?;
        let end = (elements as u64).checked_mul(size_of::<T>() as u64).and_then(|n| n.checked_add(offset));
        if elements == 0 || end.is_none_or(|end| end > buffer.bytes() as u64) {
            return Err(Error::new(
                SHAPE,
                format!(
                    "{} elements of {} from byte {offset} do not fit into a buffer of {} bytes",
                    elements,
                    T::DTYPE,
                    buffer.bytes()
                ),
            ));
        }
        if !(buffer.address() + offset).is_multiple_of(size_of::<T>() as u64) {
            return Err(Error::new(
                SHAPE,
                format!("byte {offset} is not aligned for {} of {} bytes", T::DTYPE, size_of::<T>()),
            ));
        }
        Ok(SymmetricTensor { buffer, offset, layout, elements, marker: PhantomData })
    }

    /// Returns the elements `range` of a compact tensor as a tensor of one mode in the same memory.
    ///
    /// # Errors
    /// Fails for a range that goes past the end, or a layout with gaps (R0307).
    pub fn slice(&self, range: Range<usize>) -> Result<SymmetricTensor<T>> {
        let n = self.compact("slice")?;
        if range.start > range.end || range.end > n {
            return Err(Error::new(SHAPE, format!("the range {range:?} exceeds a tensor of {n} elements")));
        }
        let offset = self.offset + (range.start * size_of::<T>()) as u64;
        SymmetricTensor::view(self.buffer.clone(), offset, range.end - range.start)
    }

    /// Writes this PE's elements in memory order (including gaps of the layout), in stream order,
    /// and waits.
    ///
    /// # Errors
    /// Fails for another number of elements (R0307), after the world has ended (R0305), or if the
    /// CUDA driver rejects a call (R0103).
    pub fn copy_from(&self, data: &[T], stream: &Stream) -> Result<()> {
        let _entered = self.buffer.world().enter()?;
        copy::same_len("the tensor", self.elements, data.len())?;
        copy::write(self.range()?, data, stream)
    }

    /// Copies elements to the tensor like [`copy_from`](SymmetricTensor::copy_from), from their bytes.
    ///
    /// # Errors
    /// Fails where [`copy_from`](SymmetricTensor::copy_from) fails.
    pub fn copy_from_bytes(&self, data: &[u8], stream: &Stream) -> Result<()> {
        let _entered = self.buffer.world().enter()?;
        copy::same_len("the tensor, in bytes,", self.elements * size_of::<T>(), data.len())?;
        copy::write(self.range()?, data, stream)
    }

    /// Returns the elements like [`to_vec`](SymmetricTensor::to_vec), as their bytes.
    ///
    /// # Errors
    /// Fails where [`to_vec`](SymmetricTensor::to_vec) fails.
    pub fn to_bytes(&self, stream: &Stream) -> Result<Vec<u8>> {
        let _entered = self.buffer.world().enter()?;
        copy::to_vec(self.range()?, stream)
    }

    /// Copies this PE's elements to the host in memory order, in stream order.
    ///
    /// # Errors
    /// Fails after the world has ended (R0305), or if the CUDA driver rejects a call (R0103).
    pub fn to_vec(&self, stream: &Stream) -> Result<Vec<T>> {
        let _entered = self.buffer.world().enter()?;
        copy::to_vec(self.range()?, stream)
    }

    /// The range of its elements in this PE's memory.
    fn range(&self) -> Result<copy::Range<'_>> {
        self.in_copy(self.buffer.address())
    }

    /// The range of its elements in a PE's copy of the buffer, which begins at `base`.
    fn in_copy(&self, base: u64) -> Result<copy::Range<'_>> {
        self.buffer.range(base, self.offset as usize, self.elements * size_of::<T>())
    }

    /// Returns the copy of a PE of the world, for loads, stores and copies of the driver.
    ///
    /// # Errors
    /// Fails for a PE that does not exist (R0303), or for a PE that only puts and gets reach
    /// (R0304).
    pub fn peer(&self, pe: u32) -> Result<PeerTensor<T>> {
        let address = self.buffer.peer_address(pe)? + self.offset;
        Ok(PeerTensor { tensor: self.clone(), pe, address })
    }

    /// Returns all copies of a team at once, for multimem instructions, or `None` if the team has
    /// no multicast address ([`SymmetricBuffer::why_no_multicast`]).
    pub fn multicast(&self, team: &Team) -> Option<MulticastTensor<T>> {
        let address = self.buffer.multicast_address(team)? + self.offset;
        Some(MulticastTensor { tensor: self.clone(), address })
    }
}

impl<T> SymmetricTensor<T> {
    /// Returns the buffer that contains the tensor.
    pub fn buffer(&self) -> &SymmetricBuffer {
        &self.buffer
    }

    /// Returns the offset from the start of its buffer in bytes.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Returns the address on this PE.
    pub fn address(&self) -> u64 {
        self.buffer.address() + self.offset
    }

    /// Shape and strides, in elements.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Returns the number of elements in memory, including gaps of the layout.
    pub fn len(&self) -> usize {
        self.elements
    }

    /// Returns false, since a tensor has at least one element.
    pub fn is_empty(&self) -> bool {
        self.elements == 0
    }

    /// The number of elements, which must have no gaps, since they are moved as one piece.
    pub(crate) fn compact(&self, what: &str) -> Result<usize> {
        without_gaps(what, &self.layout, self.elements)
    }
}

impl<T: Element> SymmetricTensor<T> {
    /// The type of the elements.
    pub fn dtype(&self) -> DType {
        T::DTYPE
    }
}

impl<T> fmt::Debug for SymmetricTensor<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SymmetricTensor({} at {:#x})", self.layout, self.address())
    }
}

/// Another PE's copy of a tensor.
#[derive(Clone, Debug)]
pub struct PeerTensor<T> {
    tensor: SymmetricTensor<T>,
    pe: u32,
    address: u64,
}

impl<T: Element> PeerTensor<T> {
    /// The rank of the PE that has the tensor.
    pub fn pe(&self) -> u32 {
        self.pe
    }

    /// The address at which this PE's loads and stores reach the tensor.
    pub fn address(&self) -> u64 {
        self.address
    }

    fn range(&self) -> Result<copy::Range<'_>> {
        self.tensor.in_copy(self.address - self.tensor.offset)
    }

    /// Returns the tensor that it is a copy of.
    pub fn tensor(&self) -> &SymmetricTensor<T> {
        &self.tensor
    }

    /// Writes its elements as [`SymmetricTensor::copy_from`] does.
    ///
    /// # Errors
    /// Fails where [`SymmetricTensor::copy_from`] fails.
    pub fn copy_from(&self, data: &[T], stream: &Stream) -> Result<()> {
        let _entered = self.tensor.buffer.world().enter()?;
        copy::same_len("the tensor", self.tensor.elements, data.len())?;
        copy::write(self.range()?, data, stream)
    }

    /// Copies the elements to the host, as [`SymmetricTensor::to_vec`] does.
    ///
    /// # Errors
    /// Fails where [`SymmetricTensor::to_vec`] fails.
    pub fn to_vec(&self, stream: &Stream) -> Result<Vec<T>> {
        let _entered = self.tensor.buffer.world().enter()?;
        copy::to_vec(self.range()?, stream)
    }
}

/// All copies of a tensor at their multicast address, which only multimem instructions may access.
#[derive(Clone, Debug)]
pub struct MulticastTensor<T> {
    tensor: SymmetricTensor<T>,
    address: u64,
}

impl<T> MulticastTensor<T> {
    /// The multicast address of the first element.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Returns the tensor whose copies these are.
    pub fn tensor(&self) -> &SymmetricTensor<T> {
        &self.tensor
    }
}

/// A symmetric tensor whose element type is known only at run time, for launches.
#[derive(Clone, Debug)]
pub struct AnyTensor {
    buffer: SymmetricBuffer,
    offset: u64,
    dtype: DType,
    layout: Layout,
}

impl AnyTensor {
    /// Returns a buffer, from its first byte, as elements of that type.
    ///
    /// # Errors
    /// Fails if the layout does not fit the buffer (R0307).
    pub fn new(buffer: SymmetricBuffer, dtype: DType, layout: Layout) -> Result<AnyTensor> {
        AnyTensor::view(buffer, 0, dtype, layout)
    }

    /// Returns a part of a buffer, from byte `offset` on, as elements of that type.
    ///
    /// # Errors
    /// Fails if the layout does not fit the buffer (R0307).
    pub fn view(buffer: SymmetricBuffer, offset: u64, dtype: DType, layout: Layout) -> Result<AnyTensor> {
        let bytes = (memory_elements(&layout)? as u64).checked_mul(dtype.bytes().into());
        let end = bytes.and_then(|bytes| bytes.checked_add(offset));
        if end.is_none_or(|end| end > buffer.bytes() as u64) {
            let have = buffer.bytes();
            let message = format!(
                "a tensor {layout} of {dtype} from byte {offset} does not fit into a buffer of {have} bytes"
            );
            return Err(Error::new(SHAPE, message));
        }
        Ok(AnyTensor { buffer, offset, dtype, layout })
    }

    /// Returns the offset from the start of its buffer in bytes.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Returns the buffer that contains the tensor.
    pub fn buffer(&self) -> &SymmetricBuffer {
        &self.buffer
    }

    /// Returns the address on this PE.
    pub fn address(&self) -> u64 {
        self.buffer.address() + self.offset
    }

    /// The type of the elements.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Shape and strides, in elements.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }
}
