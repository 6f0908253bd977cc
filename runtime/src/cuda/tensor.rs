//! A tensor in one device's own memory.
#![allow(unsafe_code, reason = "FFI")]

use super::{CudaStream, Device, error, no_room};
use crate::dtype::Element;
use crate::error::{Error, Result, SHAPE};
use cudarc::driver::{result, sys::CUdeviceptr};
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use weft_layout::{Int, Layout};

/// Device memory; freed on drop, which waits for the device.
pub(crate) struct Memory {
    device: Device,
    address: CUdeviceptr,
}

impl Memory {
    fn new(device: &Device, bytes: usize) -> Result<Memory> {
        device.bind()?;
        // SAFETY: the context is bound; the driver refuses 0 bytes.
        let address = unsafe { result::malloc_sync(bytes.max(1)) };
        let address = address.map_err(|e| no_room("a tensor", bytes, device, "cuMemAlloc", e))?;
        Ok(Memory { device: device.clone(), address })
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let context = self.device.context();
        context.record_err(context.bind_to_thread());
        // SAFETY: allocated by `new`, freed once.
        context.record_err(unsafe { result::free_sync(self.address) });
    }
}

/// A tensor in the memory of one device, not symmetric: a `global` parameter of a kernel.
///
/// A launched kernel or copy may still be using it when it is dropped: its memory is freed when the device is done.
pub struct DeviceTensor<T> {
    memory: Arc<Memory>,
    layout: Layout,
    /// Elements from the first to the last: the layout's cosize.
    elements: usize,
    marker: PhantomData<T>,
}

impl<T: Element> DeviceTensor<T> {
    /// Memory for a layout, as it was left.
    ///
    /// # Errors
    /// `R0307` for a layout with extents or strides that are not known, or negative strides; `R0302` where the device
    /// has no room.
    pub fn alloc(device: &Device, layout: &Layout) -> Result<DeviceTensor<T>> {
        let elements = memory_elements(layout)?;
        let bytes = elements.checked_mul(size_of::<T>()).ok_or_else(|| too_large(layout))?;
        let memory = Arc::new(Memory::new(device, bytes)?);
        Ok(DeviceTensor { memory, layout: layout.clone(), elements, marker: PhantomData })
    }

    /// Memory for a layout, all bytes 0 once `stream` gets there.
    ///
    /// # Errors
    /// As [`alloc`](DeviceTensor::alloc).
    pub fn zeros(stream: &CudaStream, layout: &Layout) -> Result<DeviceTensor<T>> {
        let t = DeviceTensor::alloc(&Device::of(stream.context()), layout)?;
        let bytes = t.elements * size_of::<T>();
        // SAFETY: the memory has as many bytes, and any are an `Element`.
        unsafe { result::memset_d8_async(t.memory.address, 0, bytes, stream.cu_stream()) }
            .map_err(|e| error("cuMemsetD8Async", e))?;
        Ok(t)
    }

    /// A tensor of one mode with these elements.
    ///
    /// # Errors
    /// As [`alloc`](DeviceTensor::alloc).
    pub fn from_slice(stream: &CudaStream, data: &[T]) -> Result<DeviceTensor<T>> {
        let n = i64::try_from(data.len()).unwrap_or(i64::MAX);
        let layout = Layout::new(Int::from(n), 1).map_err(|e| Error::new(SHAPE, e.to_string()))?;
        let t = DeviceTensor::alloc(&Device::of(stream.context()), &layout)?;
        t.write(stream, data)?;
        Ok(t)
    }

    /// Writes its memory, first element to last (gaps of the layout included), and waits for the stream.
    ///
    /// # Errors
    /// `R0307` for another number of elements than its memory has, `R0103`.
    pub fn write(&self, stream: &CudaStream, data: &[T]) -> Result<()> {
        self.fits(stream, data.len())?;
        // SAFETY: the memory has as many elements, and `data` lives until the copy is done.
        unsafe { result::memcpy_htod_async(self.memory.address, data, stream.cu_stream()) }
            .map_err(|e| error("cuMemcpyHtoDAsync", e))?;
        stream.synchronize().map_err(|e| error("cuStreamSynchronize", e))
    }

    /// Reads its memory, first element to last (gaps of the layout included), once `stream` gets there.
    ///
    /// # Errors
    /// `R0307` for another number of elements than its memory has, `R0103`.
    pub fn read(&self, stream: &CudaStream, data: &mut [T]) -> Result<()> {
        self.fits(stream, data.len())?;
        // SAFETY: the memory has as many elements, any bytes are an `Element`, and `data` lives until the copy is done.
        unsafe { result::memcpy_dtoh_async(data, self.memory.address, stream.cu_stream()) }
            .map_err(|e| error("cuMemcpyDtoHAsync", e))?;
        stream.synchronize().map_err(|e| error("cuStreamSynchronize", e))
    }

    /// Its memory, first element to last (gaps of the layout included), once `stream` gets there.
    ///
    /// # Errors
    /// `R0103`.
    pub fn to_vec(&self, stream: &CudaStream) -> Result<Vec<T>> {
        // SAFETY: an `Element` may have any bytes, zeros among them.
        let mut data = vec![unsafe { std::mem::zeroed() }; self.elements];
        self.read(stream, &mut data)?;
        Ok(data)
    }

    /// Copies to another tensor of as many elements in memory, in stream order.
    ///
    /// # Errors
    /// `R0307` where they have different numbers of elements, `R0103`.
    pub fn copy_to(&self, stream: &CudaStream, to: &DeviceTensor<T>) -> Result<()> {
        self.fits(stream, to.elements)?;
        let bytes = self.elements * size_of::<T>();
        // SAFETY: both memories have as many bytes.
        unsafe {
            result::memcpy_dtod_async(to.memory.address, self.memory.address, bytes, stream.cu_stream())
        }
        .map_err(|e| error("cuMemcpyDtoDAsync", e))?;
        super::keep(self.memory.clone());
        super::keep(to.memory.clone());
        Ok(())
    }

    fn fits(&self, stream: &CudaStream, n: usize) -> Result<()> {
        if n != self.elements {
            let (has, layout) = (self.elements, &self.layout);
            return Err(Error::new(
                SHAPE,
                format!("{n} elements to copy, and the tensor {layout} has {has} in memory"),
            ));
        }
        Device::of(stream.context()).bind()
    }
}

impl<T> DeviceTensor<T> {
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

    /// Where it begins on the device.
    pub fn address(&self) -> u64 {
        self.memory.address
    }

    /// The device whose memory it is.
    pub fn device(&self) -> &Device {
        &self.memory.device
    }

    /// What a graph holds on to.
    pub(crate) fn memory(&self) -> &Arc<Memory> {
        &self.memory
    }
}

impl<T> fmt::Debug for DeviceTensor<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DeviceTensor({} at {:#x})", self.layout, self.address())
    }
}

/// Elements from the first to the last of a layout.
pub(crate) fn memory_elements(layout: &Layout) -> Result<usize> {
    let down = layout.stride().leaves().iter().any(|d| d.lower_bound() < 0);
    let elements = if layout.size().is(0) { Some(0) } else { layout.cosize().as_const() };
    match elements.and_then(|n| usize::try_from(n).ok()) {
        Some(n) if !down => Ok(n),
        _ => {
            let message = format!("no memory can be made for the layout {layout}");
            Err(Error::new(SHAPE, message)
                .help("extents and strides are numbers known now, strides not negative"))
        }
    }
}

fn too_large(layout: &Layout) -> Error {
    Error::new(SHAPE, format!("the layout {layout} has more bytes than there are addresses"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_layout::parse_layout;

    #[test]
    fn memory_reaches_from_the_first_element_to_the_last() {
        let elements =
            |text| memory_elements(&parse_layout(text, &mut |_| None).unwrap()).map_err(|e| e.code);
        assert_eq!(elements("(4,8):(8,1)"), Ok(32));
        assert_eq!(elements("(4,8):(10,1)"), Ok(38));
        assert_eq!(elements("(0,8):(8,1)"), Ok(0));
        assert_eq!(elements("4:-1"), Err(SHAPE));
        assert_eq!(elements("(2,2):(9223372036854775807,9223372036854775807)"), Err(SHAPE));
    }
}
