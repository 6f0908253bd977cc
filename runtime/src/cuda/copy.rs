//! Copies between the host and addresses of the device, in a stream's order.
#![allow(unsafe_code, reason = "calls of the CUDA driver on addresses, and elements as their bytes")]

use super::{Stream, error, wait_for};
use crate::Element;
use crate::error::{Error, Result, SHAPE};
use cudarc::driver::result;

/// Writes a slice's elements from `address` on, and waits for the stream. The caller owns as many bytes there.
pub fn write<T: Element>(address: u64, data: &[T], stream: &Stream) -> Result<()> {
    // Only the copy itself is then waited for without a bound.
    wait_for(stream)?;
    match stream {
        Stream::Gpu(stream) => {
            // SAFETY: the caller's memory has room for them; the stream is waited for before `data` can go.
            unsafe { result::memcpy_htod_async(address, data, stream.cu_stream()) }
                .map_err(|e| error("cuMemcpyHtoDAsync", e))?;
            stream.synchronize().map_err(|e| error("cuStreamSynchronize", e))
        }
        Stream::Simulated(stream) => {
            // SAFETY: elements are numbers without padding: all of their bytes are initialised.
            let bytes = unsafe { std::slice::from_raw_parts(data.as_ptr().cast(), size_of_val(data)) };
            stream.pe().write(address, bytes)
        }
    }
}

/// Reads a slice's elements from `address` on, after all that the stream has to do before.
pub fn read<T: Element>(address: u64, data: &mut [T], stream: &Stream) -> Result<()> {
    wait_for(stream)?;
    match stream {
        Stream::Gpu(stream) => {
            // SAFETY: the caller's memory has as many; any bytes are an `Element`; the stream is waited for.
            unsafe { result::memcpy_dtoh_async(data, address, stream.cu_stream()) }
                .map_err(|e| error("cuMemcpyDtoHAsync", e))?;
            stream.synchronize().map_err(|e| error("cuStreamSynchronize", e))
        }
        Stream::Simulated(stream) => {
            let n = size_of_val(data);
            // SAFETY: as many bytes, and any bytes are an `Element`.
            let bytes = unsafe { std::slice::from_raw_parts_mut(data.as_mut_ptr().cast(), n) };
            stream.pe().read(address, bytes)
        }
    }
}

/// The `n` elements from `address` on.
pub fn to_vec<T: Element>(address: u64, n: usize, stream: &Stream) -> Result<Vec<T>> {
    // SAFETY: all elements are numbers, for which zero bytes are a value.
    let mut data = vec![unsafe { std::mem::zeroed::<T>() }; n];
    read(address, &mut data, stream)?;
    Ok(data)
}

/// Sets bytes, in the stream's order.
pub fn fill(address: u64, byte: u8, bytes: usize, stream: &Stream) -> Result<()> {
    match stream {
        Stream::Gpu(stream) => {
            Stream::bind(stream)?;
            // SAFETY: the caller's memory has as many bytes.
            unsafe { result::memset_d8_async(address, byte, bytes, stream.cu_stream()) }
                .map_err(|e| error("cuMemsetD8Async", e))
        }
        Stream::Simulated(stream) => stream.fill(address, byte, bytes),
    }
}

/// Copies bytes from one address to another, in the stream's order. The caller owns as many bytes at both.
pub fn on_device(to: u64, from: u64, bytes: usize, stream: &Stream) -> Result<()> {
    match stream {
        Stream::Gpu(stream) => {
            Stream::bind(stream)?;
            // SAFETY: both of the caller's memories have as many bytes.
            unsafe { result::memcpy_dtod_async(to, from, bytes, stream.cu_stream()) }
                .map_err(|e| error("cuMemcpyDtoDAsync", e))
        }
        Stream::Simulated(stream) => stream.copy(to, from, bytes),
    }
}

/// A copy's two sides have one size.
pub fn same_len(what: &str, have: usize, given: usize) -> Result<()> {
    match have == given {
        true => Ok(()),
        false => Err(Error::new(SHAPE, format!("{what} has {have} elements; {given} were given"))),
    }
}
