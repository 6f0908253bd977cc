//! Streams of a simulated PE, their events, and their captures.

use super::job::Pe;
use super::state::{Captured, Kernel, Key, Moment, Wait, Work};
use crate::error::{CUDA, Error, Result};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// A stream of a simulated PE.
#[derive(Clone)]
pub struct Stream(Arc<Inner>);

struct Inner {
    pe: Pe,
    key: Key,
}

impl Drop for Inner {
    fn drop(&mut self) {
        // The default stream is not removed.
        if self.key.1 != 0
            && let Some(queue) = self.pe.job.lock().streams.get_mut(&self.key)
        {
            queue.dropped = true;
        }
    }
}

impl Stream {
    pub(super) fn new(pe: Pe, key: Key) -> Stream {
        Stream(Arc::new(Inner { pe, key }))
    }

    pub(crate) fn pe(&self) -> &Pe {
        &self.0.pe
    }

    pub(crate) fn synchronize(&self) -> Result<()> {
        self.0.pe.wait(Wait::Stream(self.0.key))
    }

    pub(crate) fn fill(&self, address: u64, byte: u8, bytes: usize) -> Result<()> {
        self.0.pe.enqueue(self.0.key, Work::Fill { address, byte, bytes })
    }

    pub(crate) fn copy(&self, to: u64, from: u64, bytes: usize) -> Result<()> {
        self.0.pe.enqueue(self.0.key, Work::Copy { to, from, bytes })
    }

    pub(super) fn launch(&self, kernel: Kernel) -> Result<()> {
        self.0.pe.enqueue_kernel(self.0.key, kernel)
    }

    pub(crate) fn is_capturing(&self) -> bool {
        self.0.pe.job.lock().streams.get(&self.0.key).is_some_and(|q| q.capture.is_some())
    }

    /// Begins to capture the enqueued work.
    pub(crate) fn begin_capture(&self) -> Result<()> {
        let mut state = self.0.pe.lock()?;
        let id = state.number();
        let origin = self.0.key;
        match state.streams.get_mut(&origin) {
            Some(queue) if queue.capture.is_none() => queue.capture = Some(id),
            _ => return Err(Error::new(CUDA, "the stream is already being captured")),
        }
        state.captures.insert(id, Captured { origin, branches: [(origin, Vec::new())].into() });
        Ok(())
    }

    /// Ends the capture of this stream, and of those that joined it.
    pub(crate) fn end_capture(&self) -> Result<Graph> {
        let mut state = self.0.pe.lock()?;
        let id = state.streams.get_mut(&self.0.key).and_then(|q| q.capture.take());
        for queue in state.streams.values_mut().filter(|q| q.capture == id) {
            queue.capture = None;
        }
        let captured = id.and_then(|id| state.captures.remove(&id));
        let captured = captured.ok_or_else(|| Error::new(CUDA, "the stream is not being captured"))?;
        Ok(Graph { stream: self.clone(), captured })
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "stream {} of {:?}", self.0.key.1, self.0.pe)
    }
}

/// A point in a stream's work. Its time is that of the simulating machine, not of any GPU.
#[derive(Debug)]
pub(crate) struct Event {
    pe: Pe,
    id: u64,
}

impl Event {
    pub fn new(pe: &Pe) -> Result<Event> {
        let mut state = pe.lock()?;
        let id = state.number();
        state.events.insert(id, Moment::default());
        Ok(Event { pe: pe.clone(), id })
    }

    /// Records the event after all work so far of a stream.
    pub fn record(&self, stream: &Stream) -> Result<()> {
        let (mut state, key) = (self.pe.lock()?, stream.0.key);
        let capture = state.streams.get(&key).and_then(|q| q.capture);
        let Some(event) = state.events.get_mut(&self.id) else { return Ok(()) };
        event.capture = capture;
        if capture.is_none() {
            event.recorded += 1;
        }
        let work = Work::Record(self.id, event.recorded);
        drop(state);
        stream.0.pe.enqueue(key, work)
    }

    /// Adds the event to the graph of a stream's capture. Each launch reaches it again.
    pub fn capture(&self, stream: &Stream) -> Result<()> {
        let (mut state, key) = (self.pe.lock()?, stream.0.key);
        if state.streams.get(&key).is_none_or(|q| q.capture.is_none()) {
            return Err(Error::new(CUDA, "an event was recorded in a capture that does not exist"));
        }
        if let Some(event) = state.events.get_mut(&self.id) {
            event.external = true;
        }
        drop(state);
        stream.0.pe.enqueue(key, Work::Record(self.id, 0))
    }

    /// Makes later work of a stream wait for the event.
    pub fn wait(&self, stream: &Stream) -> Result<()> {
        let (mut state, key) = (self.pe.lock()?, stream.0.key);
        let Some(event) = state.events.get(&self.id) else { return Ok(()) };
        let (recorded, capture) = (event.recorded, event.capture);
        if let Some(capture) = capture.filter(|id| state.captures.contains_key(id))
            && let Some(queue) = state.streams.get_mut(&key)
        {
            // The stream joins the capture.
            queue.capture = Some(capture);
        }
        drop(state);
        stream.0.pe.enqueue(key, Work::Wait(self.id, recorded))
    }

    pub fn synchronize(&self) -> Result<()> {
        let recorded = self.pe.lock()?.events.get(&self.id).map_or(0, |e| e.recorded);
        self.pe.wait(Wait::Event(self.id, recorded))
    }

    /// Returns the milliseconds from this event to a later one.
    pub fn elapsed_ms(&self, end: &Event) -> Result<f64> {
        self.synchronize()?;
        end.synchronize()?;
        let state = self.pe.lock()?;
        let when = |e: &Event| state.events.get(&e.id).and_then(|e| e.when);
        match (when(self), when(end)) {
            (Some(from), Some(to)) => {
                let later = to.saturating_duration_since(from).as_secs_f64();
                Ok((later - from.saturating_duration_since(to).as_secs_f64()) * 1e3)
            }
            _ => Err(Error::new(CUDA, "the event has not happened, so it has no time")),
        }
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        let mut state = self.pe.job.lock();
        // Queues that wait for it still need it.
        if state.events.get(&self.id).is_some_and(|e| e.reached >= e.recorded && e.capture.is_none()) {
            state.events.remove(&self.id);
        }
    }
}

/// Captured work that can be enqueued many times.
pub(crate) struct Graph {
    stream: Stream,
    captured: Captured,
}

impl Graph {
    pub fn launch(&self) -> Result<()> {
        let Captured { origin, branches } = &self.captured;
        let pe = self.stream.pe();
        let mut state = pe.lock()?;
        // Each launch has its own events between its branches, and streams for all branches but the
        // first.
        let mut events: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
        let between = branches.len() > 1;
        for id in branches.values().flatten().filter_map(recorded) {
            let fresh = match between && !state.is_external(id) {
                true => {
                    let fresh = state.number();
                    state.events.insert(fresh, Moment::default());
                    fresh
                }
                false => id,
            };
            if let Some(event) = state.events.get_mut(&fresh) {
                event.recorded += 1;
                events.insert(id, (fresh, event.recorded));
            }
        }
        let mut work: Vec<(Key, Vec<Work>)> = Vec::new();
        for (key, branch) in branches {
            let key = if key == origin { *origin } else { state.temporary_stream(key.0) };
            let known = |id: &u64, as_it_was: u64| events.get(id).copied().unwrap_or((*id, as_it_was));
            let renamed = branch.iter().map(|w| match w {
                Work::Record(id, n) => {
                    let (id, n) = known(id, *n);
                    Work::Record(id, n)
                }
                Work::Wait(id, n) => {
                    let (id, n) = known(id, *n);
                    Work::Wait(id, n)
                }
                other => other.clone(),
            });
            work.push((key, renamed.collect()));
        }
        for (key, branch) in work {
            branch.into_iter().try_for_each(|w| state.enqueue(key, w))?;
        }
        Ok(())
    }
}

fn recorded(work: &Work) -> Option<u64> {
    match work {
        Work::Record(id, _) => Some(*id),
        _ => None,
    }
}
