//! Points in time on a stream.

use super::wait::poll;
use super::{CudaStream, Device, error};
use crate::error::Result;
use cudarc::driver::CudaEvent;
use cudarc::driver::sys::{self, CUevent_flags};

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

    /// A point that is not reached yet: [`capture`](Event::capture) puts it into a graph.
    ///
    /// # Errors
    /// `R0103`.
    pub fn new(device: &Device) -> Result<Event> {
        let event = device.context().new_event(Some(CUevent_flags::CU_EVENT_DEFAULT));
        event.map(Event).map_err(|e| error("cuEventCreate", e))
    }

    /// Puts the point after all work so far into the graph that is being captured on `stream`: each launch of the graph
    /// reaches it anew. Its time can be asked for once that launch is done. The event must be there as long as the graph.
    ///
    /// # Errors
    /// `R0103`: also where nothing is captured.
    #[allow(unsafe_code, reason = "FFI")]
    pub fn capture(&self, stream: &CudaStream) -> Result<()> {
        let flags = sys::CUevent_record_flags::CU_EVENT_RECORD_EXTERNAL as u32;
        // SAFETY: event and stream are alive.
        unsafe { sys::cuEventRecordWithFlags(self.0.cu_event(), stream.cu_stream(), flags) }
            .result()
            .map_err(|e| error("cuEventRecordWithFlags", e))
    }

    /// Milliseconds from this event to a later one; waits for both. The clock steps by half a microsecond.
    ///
    /// # Errors
    /// `R0103`: also where a kernel between them failed.
    pub fn elapsed_ms(&self, end: &Event) -> Result<f64> {
        self.synchronize()?;
        end.synchronize()?;
        self.0.elapsed_ms(&end.0).map(f64::from).map_err(|e| error("cuEventElapsedTime", e))
    }

    /// Microseconds from this event to a later one; waits for both.
    ///
    /// # Errors
    /// `R0103`: also where a kernel between them failed.
    pub fn elapsed_us(&self, end: &Event) -> Result<f64> {
        self.elapsed_ms(end).map(|ms| ms * 1e3)
    }

    /// Waits until it is reached, at most for the bound of waits.
    ///
    /// # Errors
    /// `R0402` where that takes longer, `R0103`.
    #[allow(unsafe_code, reason = "FFI")]
    pub fn synchronize(&self) -> Result<()> {
        let context = self.0.context();
        context.bind_to_thread().map_err(|e| error("cuCtxSetCurrent", e))?;
        // SAFETY: the event is alive.
        poll("an event", "cuEventQuery", || unsafe { sys::cuEventQuery(self.0.cu_event()) })
    }

    /// Lets later work on `stream` wait for it.
    ///
    /// # Errors
    /// `R0103`.
    pub fn wait(&self, stream: &CudaStream) -> Result<()> {
        stream.wait(&self.0).map_err(|e| error("cuStreamWaitEvent", e))
    }
}
