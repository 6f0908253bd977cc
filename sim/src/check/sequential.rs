//! Derives the order of `fence.sc` instructions from the accesses around them.
//!
//! Of two `fence.sc` whose scopes include both threads, one precedes the other in Fence-SC order
//! and synchronizes with it (PTX ISA, memory consistency model). Often either order is possible;
//! then the fences order nothing that a program could rely on, and no knowledge is passed here.
//! Fence F must precede fence G in one case: an access after F sees or makes an older value of some
//! location than a write that comes before G, or than a write that a read before G has observed. If
//! G preceded F, that write would precede the access in causality order, and the access could not
//! be older.

use super::sync::{CodeLocation, Snapshot, Threads};
use crate::model::WarpId;
use crate::order::Scope;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// The number of accesses of one word that are kept; the oldest are forgotten first.
const KEPT: usize = 64;

/// An access after a fence.
struct Behind {
    fence: Snapshot,
    scope: Scope,
    version: Version,
}

/// The version of a location's value that an access sees or makes.
#[derive(Clone)]
pub(super) struct Version {
    /// The time at which it was written.
    pub time: u64,
    /// The times of the stores that were pending then. The version comes before them.
    pub under_way: SmallVec<[u64; 1]>,
}

impl Version {
    /// Whether a write made at this time comes after this version in coherence order.
    fn is_before(&self, write: u64) -> bool {
        write > self.time || self.under_way.contains(&write)
    }
}

/// Strong accesses after fences, by location.
#[derive(Default)]
pub(super) struct Sequential {
    /// Whether the launch has such fences.
    pub on: bool,
    behind: FxHashMap<CodeLocation, Vec<Behind>>,
}

impl Sequential {
    /// Notes that a thread accesses a location after these fences.
    pub(super) fn access<'a>(
        &mut self,
        place: CodeLocation,
        version: &Version,
        fences: impl Iterator<Item = (Scope, &'a Snapshot)>,
    ) {
        for (scope, fence) in fences {
            let list = self.behind.entry(place).or_default();
            let thread = |s: &Snapshot| (s.warp, s.lane, s.time);
            match list.iter_mut().find(|b| thread(&b.fence) == thread(fence)) {
                Some(same) if same.version.time <= version.time => {}
                Some(same) => same.version = version.clone(),
                None => list.push(Behind { fence: fence.clone(), scope, version: version.clone() }),
            }
            if list.len() > KEPT {
                list.remove(0);
            }
        }
    }

    /// The fences that precede a fence of a thread, which knows writes to each location that were
    /// made at the times `known(place)`.
    pub(super) fn before(
        &self,
        threads: &Threads,
        (scope, warp): (Scope, WarpId),
        mut known: impl FnMut(CodeLocation) -> SmallVec<[u64; 2]>,
    ) -> Vec<Snapshot> {
        let mut all = Vec::new();
        for (place, list) in &self.behind {
            let known = known(*place);
            let precedes = |b: &&Behind| {
                known.iter().any(|w| b.version.is_before(*w))
                    && threads.includes(scope, warp, b.fence.warp)
                    && threads.includes(b.scope, b.fence.warp, warp)
            };
            all.extend(list.iter().filter(precedes).map(|b| b.fence.clone()));
        }
        all
    }

    /// Forgets the accesses to a space that is allocated anew.
    pub(super) fn clear(&mut self, space: usize) {
        self.behind.retain(|(s, _), _| *s != space);
    }
}
