//! Strong reads that missed stores under way: they have not observed what those write.

use super::shadow::Record;
use smallvec::SmallVec;

/// The latest such reads of one word.
#[derive(Default)]
pub(super) struct StaleReads(SmallVec<[StaleRead; 1]>);

struct StaleRead {
    warp: u32,
    lanes: u32,
    time: u64,
    /// When the stores were made.
    unseen: SmallVec<[u64; 1]>,
}

impl StaleReads {
    /// Whether the read `q` saw what the write `w` wrote, or something later.
    pub(super) fn saw(&self, q: &Record, w: &Record) -> bool {
        let missed = |s: &StaleRead| {
            (s.warp, s.time) == (q.warp, q.time) && s.lanes & q.lanes != 0 && s.unseen.contains(&w.time)
        };
        !self.0.iter().any(missed)
    }

    /// Lanes have read the word and missed these stores.
    pub(super) fn add(&mut self, read: &Record, unseen: &[u64]) {
        self.0.retain(|s| s.warp != read.warp || s.lanes & !read.lanes != 0);
        if !unseen.is_empty() {
            let &Record { warp, lanes, time, .. } = read;
            self.0.push(StaleRead { warp, lanes, time, unseen: unseen.into() });
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
