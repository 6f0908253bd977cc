//! Strong reads of memory to which stores are under way: what they have observed is not what was stored last.

use super::shadow::Record;
use crate::memory::UnderWay;
use crate::model::WarpId;
use std::collections::VecDeque;

/// The latest such reads of one word.
#[derive(Default)]
pub(super) struct StaleReads(VecDeque<StaleRead>);

/// Reads of one word that are kept.
const KEPT: usize = 16;

struct StaleRead {
    warp: WarpId,
    lanes: u32,
    time: u64,
    under_way: UnderWay,
}

impl StaleReads {
    /// Whether the read `q` saw what the write `w` wrote, or something later.
    pub(super) fn saw(&self, q: &Record, w: &Record) -> bool {
        let missed = |s: &StaleRead| {
            (s.warp, s.time) == (q.warp, q.time) && s.lanes & q.lanes != 0 && s.under_way.hides(w.time)
        };
        !self.0.iter().any(missed)
    }

    /// Lanes have read the word while stores to it were under way.
    pub(super) fn add(&mut self, read: &Record, under_way: &UnderWay) {
        if self.0.len() >= KEPT {
            self.0.pop_front();
        }
        let &Record { warp, lanes, time, .. } = read;
        self.0.push_back(StaleRead { warp, lanes, time, under_way: under_way.clone() });
    }
}
