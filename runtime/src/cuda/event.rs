//! Points in time on a stream.

use super::{CudaStream, error};
use crate::error::Result;
use cudarc::driver::{CudaEvent, sys::CUevent_flags};

/// A point in a stream's work, with the time it was reached.
#[derive(Debug)]
pub struct Event(CudaEvent);

impl Event {
    /// The point after all work so far on `stream`.
    ///
    /// # Errors
    /// `R0103`, as of all functions here.
    pub fn record(stream: &CudaStream) -> Result<Event> {
        let event = stream.record_event(Some(CUevent_flags::CU_EVENT_DEFAULT));
        event.map(Event).map_err(|e| error("cuEventRecord", e))
    }

    /// Milliseconds from this event to a later one; waits for both. The clock steps by half a microsecond.
    ///
    /// # Errors
    /// `R0103`: also where a kernel between them failed.
    pub fn elapsed_ms(&self, end: &Event) -> Result<f64> {
        self.0.elapsed_ms(&end.0).map(f64::from).map_err(|e| error("cuEventElapsedTime", e))
    }

    /// Microseconds from this event to a later one; waits for both.
    ///
    /// # Errors
    /// `R0103`: also where a kernel between them failed.
    pub fn elapsed_us(&self, end: &Event) -> Result<f64> {
        self.elapsed_ms(end).map(|ms| ms * 1e3)
    }

    /// Waits until it is reached.
    ///
    /// # Errors
    /// `R0103`.
    pub fn synchronize(&self) -> Result<()> {
        self.0.synchronize().map_err(|e| error("cuEventSynchronize", e))
    }

    /// Lets later work on `stream` wait for it.
    ///
    /// # Errors
    /// `R0103`.
    pub fn wait(&self, stream: &CudaStream) -> Result<()> {
        stream.wait(&self.0).map_err(|e| error("cuStreamWaitEvent", e))
    }
}
