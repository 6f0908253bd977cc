//! The work that is known to have ended: for each stream, the last such kernel.
//!
//! Streams, events and hosts each know a part of it. Without synchronisation through memory, a
//! kernel can rely only on what its stream and its host know when it is launched. The race detector
//! begins with this order.

use super::state::Key;
use std::collections::BTreeMap;
use weft_sim::GridId;

#[derive(Clone, Debug, Default)]
pub(super) struct Order(BTreeMap<Key, GridId>);

impl Order {
    /// Adds that a kernel on that stream has ended.
    pub fn ended(&mut self, stream: Key, kernel: GridId) {
        self.0.insert(stream, kernel);
    }

    /// Adds the knowledge of another.
    pub fn join(&mut self, other: &Order) {
        for (stream, kernel) in &other.0 {
            let mine = self.0.entry(*stream).or_insert(*kernel);
            *mine = (*mine).max(*kernel);
        }
    }

    /// The kernels that are known to have ended, each with those before it on its stream.
    pub fn kernels(&self) -> Vec<GridId> {
        self.0.values().copied().collect()
    }

    /// Forgets kernels of earlier runs, which need no order any more.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}
