//! Copies between the host and a device's memory, in a stream's order.
#![allow(unsafe_code, reason = "calls of the CUDA driver on addresses, and elements as their bytes")]

use super::{Device, Stream, error, wait_for};
use crate::Element;
use crate::error::{Error, Result, SHAPE};
use cudarc::driver::result;

/// A range of memory that a device can access. Its owner keeps the memory for `'m`, and frees it
/// only when the device has no more work on it.
#[derive(Clone, Copy, Debug)]
pub struct Range<'m> {
    device: &'m Device,
    address: u64,
    bytes: usize,
}

impl<'m> Range<'m> {
    /// Creates the range of `bytes` bytes from `address` on.
    ///
    /// # Safety
    /// All of them are allocated, and loads and stores of `device` reach them, for as long as the
    /// value borrowed for `'m` lives. That value's drop waits for the device before it frees them.
    pub unsafe fn new(device: &'m Device, address: u64, bytes: usize) -> Range<'m> {
        Range { device, address, bytes }
    }

    /// Returns the range of `n` bytes from `offset` on.
    ///
    /// # Errors
    /// Fails if the range goes past the end (R0307).
    pub fn part(self, what: &str, offset: usize, n: usize) -> Result<Range<'m>> {
        match offset.checked_add(n) {
            Some(end) if end <= self.bytes => {
                Ok(Range { address: self.address + offset as u64, bytes: n, ..self })
            }
            _ => {
                let message =
                    format!("{n} bytes from byte {offset} exceed the end of a {what} of {}", self.bytes);
                Err(Error::new(SHAPE, message))
            }
        }
    }

    /// Checks that a stream may work on `n` bytes of this range.
    fn check(self, n: usize, stream: &Stream) -> Result<()> {
        same_len("the memory, in bytes,", self.bytes, n)?;
        match self.device.is_simulated() == matches!(stream, Stream::Simulated(_)) {
            true => Ok(()),
            false => {
                let message = "use a stream of the device that owns the memory";
                Err(Error::new(SHAPE, message))
            }
        }
    }
}

/// Writes a slice's elements to memory of the same size, and waits for the stream.
pub fn write<T: Element>(to: Range<'_>, data: &[T], stream: &Stream) -> Result<()> {
    to.check(size_of_val(data), stream)?;
    // After this wait, only the copy itself is waited for without a limit.
    wait_for(stream)?;
    match stream {
        Stream::Gpu(stream) => {
            // SAFETY: `to` has the same number of bytes, and the stream is waited for before `data`
            // can be freed.
            unsafe { result::memcpy_htod_async(to.address, data, stream.cu_stream()) }
                .map_err(|e| error("cuMemcpyHtoDAsync", e))?;
            stream.synchronize().map_err(|e| error("cuStreamSynchronize", e))
        }
        Stream::Simulated(stream) => {
            // SAFETY: elements are numbers without padding, so all of their bytes are initialised.
            let bytes = unsafe { std::slice::from_raw_parts(data.as_ptr().cast(), size_of_val(data)) };
            stream.pe().write(to.address, bytes)
        }
    }
}

/// Reads the bytes of a slice's elements from memory, after all earlier work of the stream.
pub fn read<T: Element>(from: Range<'_>, data: &mut [T], stream: &Stream) -> Result<()> {
    from.check(size_of_val(data), stream)?;
    wait_for(stream)?;
    match stream {
        Stream::Gpu(stream) => {
            // SAFETY: `from` has as many bytes, any bytes are an `Element`, and the stream is waited for.
            unsafe { result::memcpy_dtoh_async(data, from.address, stream.cu_stream()) }
                .map_err(|e| error("cuMemcpyDtoHAsync", e))?;
            stream.synchronize().map_err(|e| error("cuStreamSynchronize", e))
        }
        Stream::Simulated(stream) => {
            let n = size_of_val(data);
            // SAFETY: these are the slice's own bytes, and any bytes are an `Element`.
            let bytes = unsafe { std::slice::from_raw_parts_mut(data.as_mut_ptr().cast(), n) };
            stream.pe().read(from.address, bytes)
        }
    }
}

/// Returns the elements in memory.
pub fn to_vec<T: Element>(from: Range<'_>, stream: &Stream) -> Result<Vec<T>> {
    // SAFETY: all elements are numbers, for which zero bytes are a value.
    let mut data = vec![unsafe { std::mem::zeroed::<T>() }; from.bytes / size_of::<T>()];
    read(from, &mut data, stream)?;
    Ok(data)
}

/// Sets all bytes, in stream order.
pub fn fill(range: Range<'_>, byte: u8, stream: &Stream) -> Result<()> {
    range.check(range.bytes, stream)?;
    match stream {
        Stream::Gpu(stream) => {
            Stream::bind(stream)?;
            // SAFETY: the range has this number of bytes, and stays until the device has set them.
            unsafe { result::memset_d8_async(range.address, byte, range.bytes, stream.cu_stream()) }
                .map_err(|e| error("cuMemsetD8Async", e))
        }
        Stream::Simulated(stream) => stream.fill(range.address, byte, range.bytes),
    }
}

/// Copies to memory of the same size, in stream order.
pub fn on_device(to: Range<'_>, from: Range<'_>, stream: &Stream) -> Result<()> {
    to.check(from.bytes, stream)?;
    from.check(to.bytes, stream)?;
    match stream {
        Stream::Gpu(stream) => {
            Stream::bind(stream)?;
            // SAFETY: both ranges have this number of bytes, and stay until the device has copied
            // them.
            unsafe { result::memcpy_dtod_async(to.address, from.address, to.bytes, stream.cu_stream()) }
                .map_err(|e| error("cuMemcpyDtoDAsync", e))
        }
        Stream::Simulated(stream) => stream.copy(to.address, from.address, to.bytes),
    }
}

/// Checks that the two sides of a copy have the same size.
pub fn same_len(what: &str, have: usize, given: usize) -> Result<()> {
    match have == given {
        true => Ok(()),
        false => Err(Error::new(SHAPE, format!("{what} has {have} elements, but {given} were given"))),
    }
}
