//! Points in time on a stream.

use super::wait::poll;
use super::{Device, Stream, error};
use crate::error::Result;
use crate::simulated::{self, not_simulated};
use cudarc::driver::CudaEvent;
use cudarc::driver::sys::{self, CUevent_flags};

/// A point in a stream's work, with the time at which it was reached. On a simulated PE the time is
/// that of the simulation: the speed of the simulator says nothing about a GPU.
#[derive(Debug)]
pub struct Event(EventKind);

#[derive(Debug)]
enum EventKind {
    Gpu(CudaEvent),
    Simulated(simulated::Event),
}

impl Event {
    /// Records an event after all work so far on `stream`.
    ///
    /// # Errors
    /// Fails if the CUDA driver rejects a call (R0103).
    pub fn record(stream: &Stream) -> Result<Event> {
        let kind = match stream {
            Stream::Gpu(stream) => {
                let event = stream.record_event(Some(CUevent_flags::CU_EVENT_DEFAULT));
                EventKind::Gpu(event.map_err(|e| error("cuEventRecord", e))?)
            }
            Stream::Simulated(stream) => {
                let event = simulated::Event::new(stream.pe())?;
                event.record(stream)?;
                EventKind::Simulated(event)
            }
        };
        Ok(Event(kind))
    }

    /// Creates an event that is not recorded yet. [`capture`](Event::capture) puts it into a graph.
    ///
    /// # Errors
    /// Fails if the CUDA driver rejects the call (R0103).
    pub fn new(device: &Device) -> Result<Event> {
        if let Some(pe) = device.pe() {
            return Ok(Event(EventKind::Simulated(simulated::Event::new(pe)?)));
        }
        let event = device.context()?.new_event(Some(CUevent_flags::CU_EVENT_DEFAULT));
        event.map(EventKind::Gpu).map(Event).map_err(|e| error("cuEventCreate", e))
    }

    /// Adds the event, after all work so far, to the graph that is being captured on `stream`. Each
    /// launch of the graph reaches it again. Its time can be queried once that launch is done. The
    /// event must exist as long as the graph.
    ///
    /// # Errors
    /// Fails if the CUDA driver rejects a call, or if the stream captures nothing (R0103).
    #[allow(unsafe_code, reason = "FFI")]
    pub fn capture(&self, stream: &Stream) -> Result<()> {
        let (event, stream) = match (&self.0, stream) {
            (EventKind::Gpu(event), Stream::Gpu(stream)) => (event, stream),
            (EventKind::Simulated(event), Stream::Simulated(stream)) => return event.capture(stream),
            _ => return Err(not_simulated("GPU, nor a GPU a simulated event")),
        };
        let flags = sys::CUevent_record_flags::CU_EVENT_RECORD_EXTERNAL as u32;
        // SAFETY: event and stream are alive.
        unsafe { sys::cuEventRecordWithFlags(event.cu_event(), stream.cu_stream(), flags) }
            .result()
            .map_err(|e| error("cuEventRecordWithFlags", e))
    }

    /// Returns the milliseconds from this event to a later one, and waits for both. The clock has
    /// steps of half a microsecond.
    ///
    /// # Errors
    /// Fails if the CUDA driver rejects a call, or if a kernel between the events failed (R0103).
    pub fn elapsed_ms(&self, end: &Event) -> Result<f64> {
        self.synchronize()?;
        end.synchronize()?;
        match (&self.0, &end.0) {
            (EventKind::Gpu(from), EventKind::Gpu(to)) => {
                from.elapsed_ms(to).map(f64::from).map_err(|e| error("cuEventElapsedTime", e))
            }
            (EventKind::Simulated(from), EventKind::Simulated(to)) => from.elapsed_ms(to),
            _ => Err(not_simulated("GPU, nor a GPU a simulated event")),
        }
    }

    /// Returns the microseconds from this event to a later one, and waits for both.
    ///
    /// # Errors
    /// Fails if the CUDA driver rejects a call, or if a kernel between the events failed (R0103).
    pub fn elapsed_us(&self, end: &Event) -> Result<f64> {
        self.elapsed_ms(end).map(|ms| ms * 1e3)
    }

    /// Waits until the event is reached, at most for the limit on waits.
    ///
    /// # Errors
    /// Fails if that takes longer (R0402), or if the CUDA driver rejects a call (R0103).
    #[allow(unsafe_code, reason = "FFI")]
    pub fn synchronize(&self) -> Result<()> {
        let event = match &self.0 {
            EventKind::Gpu(event) => event,
            EventKind::Simulated(event) => return event.synchronize(),
        };
        event.context().bind_to_thread().map_err(|e| error("cuCtxSetCurrent", e))?;
        // SAFETY: the event is alive.
        poll("an event", "cuEventQuery", || unsafe { sys::cuEventQuery(event.cu_event()) })
    }

    /// Makes later work on `stream` wait for the event.
    ///
    /// # Errors
    /// Fails if the CUDA driver rejects the call (R0103).
    pub fn wait(&self, stream: &Stream) -> Result<()> {
        match (&self.0, stream) {
            (EventKind::Gpu(event), Stream::Gpu(stream)) => {
                stream.wait(event).map_err(|e| error("cuStreamWaitEvent", e))
            }
            (EventKind::Simulated(event), Stream::Simulated(stream)) => event.wait(stream),
            _ => Err(not_simulated("GPU, nor a GPU a simulated event")),
        }
    }
}
