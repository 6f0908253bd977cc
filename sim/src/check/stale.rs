//! Strong reads of memory with pending stores. Such a read has not necessarily observed the latest
//! store.

use super::shadow::Record;
use crate::memory::UnderWay;
use crate::model::WarpId;
use std::collections::VecDeque;

/// The latest such reads of one word.
#[derive(Default)]
pub(super) struct StaleReads(VecDeque<StaleRead>);

/// The number of reads of one word that are kept.
const KEPT: usize = 16;

struct StaleRead {
    warp: WarpId,
    lanes: u32,
    time: u64,
    under_way: UnderWay,
}

impl StaleReads {
    /// Whether the read `q` saw the value that the write `w` wrote, or a later value.
    pub(super) fn saw(&self, q: &Record, w: &Record) -> bool {
        let missed = |s: &StaleRead| {
            (s.warp, s.time) == (q.warp, q.time) && s.lanes & q.lanes != 0 && s.under_way.hides(w.time)
        };
        !self.0.iter().any(missed)
    }

    /// Notes that lanes have read the word while stores to it were pending.
    pub(super) fn add(&mut self, read: &Record, under_way: &UnderWay) {
        if self.0.len() >= KEPT {
            self.0.pop_front();
        }
        let &Record { warp, lanes, time, .. } = read;
        self.0.push_back(StaleRead { warp, lanes, time, under_way: under_way.clone() });
    }
}
