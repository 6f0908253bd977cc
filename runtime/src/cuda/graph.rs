//! Graphs are work of a stream that is captured once and launched many times.

use super::{Stream, error};
use crate::error::{CUDA, Error, Result};
use crate::simulated;
use cudarc::driver::CudaGraph;
use cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode};
use std::any::Any;
use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;

/// An object that a graph keeps alive: a module, memory, or a table of addresses.
pub type Keep = Arc<dyn Any + Send + Sync>;

thread_local! {
    /// The objects of launches since the capture on this thread began; none without a capture.
    static KEPT: RefCell<Option<Vec<Keep>>> = const { RefCell::new(None) };
}

/// Lets the graph that is being captured on this thread keep `what` alive. Without a capture it
/// does nothing, since the caller keeps the objects of a launch until its stream is done.
pub fn keep(what: Keep) {
    KEPT.with_borrow_mut(|kept| {
        if let Some(kept) = kept {
            kept.push(what);
        }
    });
}

/// A captured graph that can be launched. It keeps the modules and buffers of its launches alive.
pub struct Graph {
    graph: GraphKind,
    kept: Vec<Keep>,
}

enum GraphKind {
    Gpu(CudaGraph),
    Simulated(simulated::Graph),
}

/// Ends a capture, however its closure ends.
struct Capture<'s> {
    stream: &'s Stream,
    ended: bool,
}

impl<'s> Capture<'s> {
    fn begin(stream: &'s Stream) -> Result<Capture<'s>> {
        if KEPT.with_borrow(Option::is_some) {
            return Err(Error::new(CUDA, "this thread is already capturing a graph")
                .help("capture one graph after the other, or launch both sequences in one capture"));
        }
        // Relaxed mode is needed because a kernel's first launch may create a table of addresses on
        // another stream.
        let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
        match stream {
            Stream::Gpu(stream) => {
                stream.begin_capture(mode).map_err(|e| error("cuStreamBeginCapture", e))?;
            }
            Stream::Simulated(stream) => stream.begin_capture()?,
        }
        KEPT.set(Some(Vec::new()));
        Ok(Capture { stream, ended: false })
    }

    fn end(&mut self) -> Result<Graph> {
        self.ended = true;
        let kept = KEPT.take().unwrap_or_default();
        // Errors of the launches are found here; a graph without nodes is also an error.
        let stream = match self.stream {
            Stream::Gpu(stream) => stream,
            Stream::Simulated(stream) => {
                return Ok(Graph { graph: GraphKind::Simulated(stream.end_capture()?), kept });
            }
        };
        let graph = stream.end_capture(CUgraphInstantiate_flags(0));
        match graph.map_err(|e| error("cuStreamEndCapture", e))? {
            Some(graph) => Ok(Graph { graph: GraphKind::Gpu(graph), kept }),
            None => Err(Error::new(CUDA, "the driver returned no graph for the capture")),
        }
    }
}

impl Drop for Capture<'_> {
    fn drop(&mut self) {
        if !self.ended {
            // The closure's own error is the one that is reported.
            let _ = self.end();
        }
    }
}

impl Graph {
    /// Captures the work that `work` launches on `stream` (and on streams that wait for its
    /// events), without running it.
    ///
    /// Meanwhile, nothing can be copied to or from the host on that stream, and the host cannot
    /// wait for it.
    ///
    /// # Errors
    /// Fails with the error of `work`, after which the stream is as before, or if a launch cannot
    /// be captured (R0103).
    pub fn capture<E: From<Error>>(
        stream: &Stream,
        work: impl FnOnce(&Stream) -> std::result::Result<(), E>,
    ) -> std::result::Result<Graph, E> {
        let mut capture = Capture::begin(stream)?;
        work(stream)?;
        Ok(capture.end()?)
    }

    /// Launches the graph on the stream it was captured on.
    ///
    /// # Errors
    /// Fails if the CUDA driver rejects the launch (R0103).
    pub fn launch(&self) -> Result<()> {
        match &self.graph {
            GraphKind::Gpu(graph) => graph.launch().map_err(|e| error("cuGraphLaunch", e)),
            GraphKind::Simulated(graph) => graph.launch(),
        }
    }

    /// Prepares the device, so that the first launch takes no longer than later ones.
    ///
    /// # Errors
    /// Fails if the CUDA driver rejects the call (R0103).
    pub fn upload(&self) -> Result<()> {
        match &self.graph {
            GraphKind::Gpu(graph) => graph.upload().map_err(|e| error("cuGraphUpload", e)),
            GraphKind::Simulated(_) => Ok(()),
        }
    }
}

impl fmt::Debug for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Graph").field("kept", &self.kept.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn things_are_kept_only_during_a_capture() {
        let thing: Keep = Arc::new(7);
        keep(thing.clone());
        assert_eq!(Arc::strong_count(&thing), 1);
        KEPT.set(Some(Vec::new()));
        keep(thing.clone());
        assert_eq!(Arc::strong_count(&thing), 2);
        drop(KEPT.take());
        assert_eq!(Arc::strong_count(&thing), 1);
    }
}
