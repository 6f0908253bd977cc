//! Streams of GPUs and of simulated PEs.

use super::{CudaStream, Device, error, wait_for};
use crate::error::Result;
use crate::simulated;
use cudarc::driver::sys::CUstreamCaptureStatus;
use std::sync::Arc;

/// A stream of a GPU, which is `cudarc`'s own, or of a simulated PE. Programs that use `cudarc` can
/// pass their streams with `into`.
#[derive(Clone, Debug)]
pub enum Stream {
    /// A stream of a GPU.
    Gpu(Arc<CudaStream>),
    /// A stream of a simulated PE.
    Simulated(simulated::Stream),
}

impl From<Arc<CudaStream>> for Stream {
    fn from(stream: Arc<CudaStream>) -> Stream {
        Stream::Gpu(stream)
    }
}

impl Stream {
    /// The stream of `cudarc`.
    ///
    /// # Errors
    /// Fails on a simulated PE (R0403).
    pub fn gpu(&self) -> Result<&Arc<CudaStream>> {
        match self {
            Stream::Gpu(stream) => Ok(stream),
            Stream::Simulated(_) => Err(simulated::not_simulated("stream of CUDA's")),
        }
    }

    /// The device that it belongs to.
    pub fn device(&self) -> Device {
        match self {
            Stream::Gpu(stream) => Device::of(stream.context()),
            Stream::Simulated(stream) => Device::simulated(stream.pe()),
        }
    }

    /// The number of its device.
    pub(crate) fn ordinal(&self) -> u32 {
        match self {
            Stream::Gpu(stream) => u32::try_from(stream.context().ordinal()).unwrap_or(u32::MAX),
            Stream::Simulated(stream) => stream.pe().rank(),
        }
    }

    /// Waits until the stream has done all its work, at most for the limit on waits.
    ///
    /// # Errors
    /// Fails if the work takes longer than the limit (R0402), if it failed (R0103), or if the
    /// simulator stopped the kernels (R0403).
    pub fn synchronize(&self) -> Result<()> {
        wait_for(self)
    }

    /// Whether the stream is being captured.
    pub fn is_capturing(&self) -> bool {
        let none = CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
        match self {
            // A stream whose status cannot be queried counts as capturing.
            Stream::Gpu(stream) => !stream.capture_status().is_ok_and(|status| status == none),
            Stream::Simulated(stream) => stream.is_capturing(),
        }
    }

    /// Makes the stream's context current in the calling thread.
    pub(super) fn bind(stream: &CudaStream) -> Result<()> {
        stream.context().bind_to_thread().map_err(|e| error("cuCtxSetCurrent", e))
    }
}
