//! Tensors in the memory of one device.
#![allow(unsafe_code, reason = "FFI")]

use super::device::DeviceKind;
use super::{Device, Stream, copy, no_room};
use crate::error::{Error, Result, SHAPE};
use crate::shape::{IntoLayout, memory_elements};
use crate::{DType, Element};
use cudarc::driver::{result, sys::CUdeviceptr};
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use weft_layout::Layout;
use weft_sim::Name;

/// Device memory, which is freed on drop after a wait for the device.
pub(crate) struct Memory {
    device: Device,
    address: CUdeviceptr,
}

impl Memory {
    fn set_name(&self, name: Name) {
        if let Some(pe) = self.device.pe() {
            pe.set_name(self.address, name);
        }
    }

    fn new(device: &Device, bytes: usize) -> Result<Memory> {
        if let Some(pe) = device.pe() {
            return Ok(Memory { device: device.clone(), address: pe.alloc(bytes)? });
        }
        device.bind()?;
        // SAFETY: the context is bound; the driver refuses 0 bytes.
        let address = unsafe { result::malloc_sync(bytes.max(1)) };
        let address = address.map_err(|e| no_room("a tensor", bytes, device, "cuMemAlloc", e))?;
        Ok(Memory { device: device.clone(), address })
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // The driver itself would wait without a limit.
        if self.device.wait().and_then(|()| self.device.bind()).is_err() {
            return;
        }
        match self.device.kind() {
            // SAFETY: allocated by `new`, freed once.
            DeviceKind::Gpu(context) => context.record_err(unsafe { result::free_sync(self.address) }),
            DeviceKind::Simulated(pe) => pe.free(self.address),
        }
    }
}

/// A tensor in the memory of one device, which is not symmetric: a `global` parameter of a kernel.
///
/// A launched kernel or copy may still be using it when it is dropped. Its memory is freed when the
/// device is done.
pub struct DeviceTensor<T> {
    memory: Arc<Memory>,
    layout: Layout,
    /// The number of elements from the first to the last, which is the layout's cosize.
    elements: usize,
    marker: PhantomData<T>,
}

impl<T: Element> DeviceTensor<T> {
    /// Allocates memory for a shape or layout, without setting its contents.
    ///
    /// # Errors
    /// Fails for a layout with extents or strides that are not known, or negative strides (R0307),
    /// or if the device does not have enough memory (R0302).
    pub fn alloc(device: &Device, layout: impl IntoLayout) -> Result<DeviceTensor<T>> {
        let layout = layout.into_layout()?;
        let elements = memory_elements(&layout)?;
        let bytes = elements.checked_mul(size_of::<T>()).ok_or_else(|| too_large(&layout))?;
        let memory = Arc::new(Memory::new(device, bytes)?);
        Ok(DeviceTensor { memory, layout, elements, marker: PhantomData })
    }

    /// Allocates a tensor of this shape or layout, and sets its bytes to 0 in stream order.
    ///
    /// # Errors
    /// Fails where [`alloc`](DeviceTensor::alloc) fails.
    pub fn zeros(layout: impl IntoLayout, stream: &Stream) -> Result<DeviceTensor<T>> {
        let t = DeviceTensor::alloc(&stream.device(), layout)?;
        copy::fill(t.range(), 0, stream)?;
        Ok(t)
    }

    /// Allocates a tensor of one mode with these elements.
    ///
    /// # Errors
    /// Fails where [`alloc`](DeviceTensor::alloc) fails.
    pub fn from_slice(data: &[T], stream: &Stream) -> Result<DeviceTensor<T>> {
        let t = DeviceTensor::alloc(&stream.device(), data.len())?;
        t.copy_from(data, stream)?;
        Ok(t)
    }

    /// Writes its elements in memory order (including gaps of the layout), in stream order, and
    /// waits.
    ///
    /// # Errors
    /// Fails for another number of elements than its memory has (R0307), or if the CUDA driver
    /// rejects a call (R0103).
    pub fn copy_from(&self, data: &[T], stream: &Stream) -> Result<()> {
        copy::same_len("the tensor", self.elements, data.len())?;
        copy::write(self.range(), data, stream)
    }

    /// Copies elements to the tensor like [`copy_from`](DeviceTensor::copy_from), from their bytes.
    ///
    /// # Errors
    /// Fails where [`copy_from`](DeviceTensor::copy_from) fails.
    pub fn copy_from_bytes(&self, data: &[u8], stream: &Stream) -> Result<()> {
        copy::same_len("the tensor, in bytes,", self.bytes(), data.len())?;
        copy::write(self.range(), data, stream)
    }

    /// Returns the elements in memory order, read in stream order.
    ///
    /// # Errors
    /// Fails if the CUDA driver rejects the copy (R0103).
    pub fn to_vec(&self, stream: &Stream) -> Result<Vec<T>> {
        copy::to_vec(self.range(), stream)
    }

    /// Returns the elements like [`to_vec`](DeviceTensor::to_vec), as their bytes.
    ///
    /// # Errors
    /// Fails where [`to_vec`](DeviceTensor::to_vec) fails.
    pub fn to_bytes(&self, stream: &Stream) -> Result<Vec<u8>> {
        copy::to_vec(self.range(), stream)
    }

    /// Copies to another tensor of as many elements in memory, in stream order.
    ///
    /// # Errors
    /// Fails if they have different numbers of elements (R0307), or if the CUDA driver rejects a call
    /// (R0103).
    pub fn copy_to(&self, to: &DeviceTensor<T>, stream: &Stream) -> Result<()> {
        copy::same_len("the tensor", self.elements, to.elements)?;
        copy::on_device(to.range(), self.range(), stream)?;
        super::keep(self.memory.clone());
        super::keep(to.memory.clone());
        Ok(())
    }

    /// Sets all bytes of the tensor to `byte`, in stream order.
    ///
    /// # Errors
    /// Fails if the CUDA driver rejects the call (R0103).
    pub fn fill(&self, byte: u8, stream: &Stream) -> Result<()> {
        super::keep(self.memory.clone());
        copy::fill(self.range(), byte, stream)
    }

    fn bytes(&self) -> usize {
        self.elements * size_of::<T>()
    }

    /// The range of its memory that its elements occupy.
    pub(crate) fn range(&self) -> copy::Range<'_> {
        // SAFETY: `alloc` has allocated this number of bytes, which `memory` frees when the device
        // is done.
        unsafe { copy::Range::new(&self.memory.device, self.memory.address, self.bytes()) }
    }
}

impl<T> DeviceTensor<T> {
    /// Names the memory for findings in simulated worlds.
    pub(crate) fn set_name(&self, name: Name) {
        self.memory.set_name(name);
    }

    /// Shape and strides, in elements.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Elements in memory, gaps of the layout included.
    pub fn len(&self) -> usize {
        self.elements
    }

    /// Whether it has no elements.
    pub fn is_empty(&self) -> bool {
        self.elements == 0
    }

    /// The address of the first element on the device.
    pub fn address(&self) -> u64 {
        self.memory.address
    }

    /// The device whose memory it is.
    pub fn device(&self) -> &Device {
        &self.memory.device
    }

    /// The object that a graph keeps alive.
    pub(crate) fn memory(&self) -> &Arc<Memory> {
        &self.memory
    }
}

impl<T> fmt::Debug for DeviceTensor<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DeviceTensor({} at {:#x})", self.layout, self.address())
    }
}

/// Memory with another owner, as a tensor: for launches, and for the local side of puts and gets of
/// bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BorrowedTensor {
    address: CUdeviceptr,
    dtype: DType,
    elements: usize,
    /// The layout, or none for contiguous elements in any shape that a kernel declares.
    layout: Option<Layout>,
    ordinal: u32,
}

impl BorrowedTensor {
    /// Creates a tensor of `elements` contiguous elements from `address` on.
    ///
    /// # Safety
    /// Loads and stores of the device reach this number of elements there until all work on them is
    /// done.
    pub unsafe fn new(device: &Device, address: u64, dtype: DType, elements: usize) -> BorrowedTensor {
        BorrowedTensor { address, dtype, elements, layout: None, ordinal: device.ordinal() }
    }

    /// Creates a tensor at `address` with a layout.
    ///
    /// # Errors
    /// Fails for a layout with extents or strides that are not known, or negative strides (R0307).
    ///
    /// # Safety
    /// The requirements are those of [`new`](BorrowedTensor::new), for all elements of the layout.
    pub unsafe fn with_layout(
        device: &Device,
        address: u64,
        dtype: DType,
        layout: Layout,
    ) -> Result<BorrowedTensor> {
        let elements = memory_elements(&layout)?;
        Ok(BorrowedTensor { address, dtype, elements, layout: Some(layout), ordinal: device.ordinal() })
    }

    /// Returns its layout, if it has one.
    pub fn layout(&self) -> Option<&Layout> {
        self.layout.as_ref()
    }

    /// The address of its first element.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// The type of its elements.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The number of elements of the tensor.
    pub fn len(&self) -> usize {
        self.elements
    }

    /// Whether it has no elements.
    pub fn is_empty(&self) -> bool {
        self.elements == 0
    }

    /// The number of its device.
    pub(crate) fn ordinal(&self) -> u32 {
        self.ordinal
    }
}

/// A tensor in the memory of one device whose element type is known only at run time, for launches.
/// Clones share the memory.
#[derive(Clone)]
pub struct AnyDeviceTensor {
    memory: Arc<Memory>,
    dtype: DType,
    layout: Layout,
    bytes: usize,
}

impl AnyDeviceTensor {
    /// Allocates a tensor of this layout, without setting its elements.
    ///
    /// # Errors
    /// Fails where [`DeviceTensor::alloc`] fails.
    pub fn alloc(device: &Device, dtype: DType, layout: Layout) -> Result<AnyDeviceTensor> {
        let bytes = memory_elements(&layout)?.checked_mul(dtype.bytes() as usize);
        let bytes = bytes.ok_or_else(|| too_large(&layout))?;
        Ok(AnyDeviceTensor { memory: Arc::new(Memory::new(device, bytes)?), dtype, layout, bytes })
    }

    /// Sets the name of the memory in findings of simulated worlds. On GPUs the name is not used.
    pub fn set_name(&self, name: impl Into<Name>) {
        self.memory.set_name(name.into());
    }

    /// Writes bytes from `offset` on, in stream order, and waits.
    ///
    /// # Errors
    /// Fails if the range goes past the end (R0307), or if the CUDA driver rejects a call (R0103).
    pub fn write(&self, offset: usize, data: &[u8], stream: &Stream) -> Result<()> {
        copy::write(self.range().part("tensor", offset, data.len())?, data, stream)
    }

    /// Reads `n` bytes from `offset` on, in stream order.
    ///
    /// # Errors
    /// Fails if the range goes past the end (R0307), or if the CUDA driver rejects a call (R0103).
    pub fn read(&self, offset: usize, n: usize, stream: &Stream) -> Result<Vec<u8>> {
        copy::to_vec(self.range().part("tensor", offset, n)?, stream)
    }

    /// Sets all bytes of the tensor to `byte`, in stream order.
    ///
    /// # Errors
    /// Fails if the CUDA driver rejects the call (R0103).
    pub fn fill(&self, byte: u8, stream: &Stream) -> Result<()> {
        super::keep(self.memory.clone());
        copy::fill(self.range(), byte, stream)
    }

    /// Copies to another tensor of as many bytes, in stream order.
    ///
    /// # Errors
    /// Fails if they have different numbers of bytes (R0307), or if the CUDA driver rejects a call (R0103).
    pub fn copy_to(&self, to: &AnyDeviceTensor, stream: &Stream) -> Result<()> {
        copy::on_device(to.range(), self.range(), stream)?;
        super::keep(self.memory.clone());
        super::keep(to.memory.clone());
        Ok(())
    }

    /// Returns the size of its memory in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    fn range(&self) -> copy::Range<'_> {
        // SAFETY: `alloc` has allocated this number of bytes, which `memory` frees when the device
        // is done.
        unsafe { copy::Range::new(&self.memory.device, self.memory.address, self.bytes) }
    }

    /// The address of the first element on the device.
    pub fn address(&self) -> u64 {
        self.memory.address
    }

    /// The type of the elements.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Shape and strides, in elements.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The device whose memory it is.
    pub fn device(&self) -> &Device {
        &self.memory.device
    }

    /// The object that a graph keeps alive.
    pub(crate) fn memory(&self) -> &Arc<Memory> {
        &self.memory
    }
}

fn too_large(layout: &Layout) -> Error {
    Error::new(SHAPE, format!("the layout {layout} exceeds the address space"))
}
