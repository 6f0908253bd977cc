//! What is known to be over: of each stream the last kernel that has ended.
//!
//! Streams, events and hosts each know some of it. What a kernel may rely on without being told by memory is what its
//! stream and its host know when it is launched: this is the order that the check for races begins with.

use super::state::Key;
use std::collections::BTreeMap;
use weft_sim::GridId;

#[derive(Clone, Debug, Default)]
pub(super) struct Order(BTreeMap<Key, GridId>);

impl Order {
    /// A kernel on that stream has ended.
    pub fn ended(&mut self, stream: Key, kernel: GridId) {
        self.0.insert(stream, kernel);
    }

    /// Learns what another knows.
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

    /// Kernels of earlier runs need no order any more.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}
