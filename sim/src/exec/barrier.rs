//! CTA barriers (`bar`, `barrier`), of which each CTA has 16.
//!
//! A barrier without a thread count completes when every thread of the CTA that has not exited has
//! arrived. A barrier with a count completes when this number of threads has arrived. Threads
//! arrive by warps. An aligned arrival counts 32 even if lanes of the warp have exited or never
//! existed, as on hardware; a non-aligned arrival of part of a warp counts its lanes. So an exit
//! can complete a barrier without a count.

use super::{Pred, Reg};

/// The role of arriving threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Sync,
    /// The threads do not wait.
    Arrive,
    /// The threads wait for a reduction over the predicates of the arriving threads.
    Reduce {
        op: Reduction,
        votes: u32,
        to: ReduceTo,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reduction {
    And,
    Or,
    Popc,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReduceTo {
    Pred(Pred),
    Reg(Reg),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Arrival {
    pub id: u8,
    /// The number of threads, a multiple of 32; `None` means all.
    pub count: Option<u32>,
    pub aligned: bool,
    pub role: Role,
}

/// A barrier's state between completions.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Barrier {
    /// The number of threads that have arrived.
    pub lanes: u32,
    /// The number of arrived threads, with aligned arrivals counted as 32.
    pub padded: u32,
    pub count: Option<u32>,
    pub votes: u32,
}

impl Barrier {
    /// Whether these arrivals complete the barrier, if `live` threads of the CTA have not exited.
    pub(crate) fn complete(&self, live: u32) -> bool {
        self.lanes > 0
            && match self.count {
                Some(n) => self.padded >= n,
                None => self.lanes >= live,
            }
    }

    /// Adds an arrival of `lanes` threads. The error describes the conflict with earlier arrivals.
    pub(crate) fn arrive(&mut self, a: &Arrival, lanes: u32) -> Result<(), String> {
        if self.lanes > 0 && self.count != a.count {
            let text = |c: Option<u32>| c.map_or("all".to_string(), |n| n.to_string());
            return Err(format!(
                "barrier {} waits for {} threads, but another warp arrives with a count of {}",
                a.id,
                text(self.count),
                text(a.count)
            ));
        }
        self.count = a.count;
        self.lanes += lanes;
        self.padded += if a.aligned { 32 } else { lanes };
        if let Role::Reduce { votes, .. } = a.role {
            self.votes += votes.count_ones();
        }
        Ok(())
    }
}
