//! Who runs next, for how long: strategies drawn from the seed.

use crate::model::{CtaSlot, WarpSlot};
use crate::rng::Rng;

/// Shortest slice of the fair strategy; up to 127 instructions more are drawn.
const SLICE: u32 = 64;

/// How warps take turns.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Strategy {
    /// Slices of random length in an order shuffled every round.
    Fair,
    /// The same with slices of a few instructions.
    Fine,
    /// Warps run until they wait, in an order of priority, but for a few preemptions at moments drawn beforehand
    /// (Burckhardt and others, A randomized scheduler with probabilistic guarantees of finding bugs, 2010).
    Bounded { preemptions: Vec<u64> },
    /// Some PEs or CTAs stand still for long.
    Lagging { mask: u64, until: u64, by_pe: bool },
}

/// The schedule of a launch.
#[derive(Debug)]
pub(crate) struct Schedule {
    strategy: Strategy,
}

impl Schedule {
    /// The fair schedule, or where `explore`, one that the seed chooses; with it how many of eight stores are delayed.
    pub(crate) fn new(explore: bool, rng: &mut Rng) -> (Schedule, u64) {
        if !explore {
            return (Schedule { strategy: Strategy::Fair }, 0);
        }
        let delayed = [0, 4, 7, 8][(rng.next() % 4) as usize];
        let strategy = match rng.next() % 4 {
            0 => Strategy::Fair,
            1 => Strategy::Fine,
            2 => {
                // Over few instructions or many: nobody knows beforehand how long the launch is.
                let reach = 1 << (6 + rng.next() % 12);
                let mut preemptions: Vec<u64> = (0..1 + rng.next() % 8).map(|_| rng.next() % reach).collect();
                preemptions.sort_unstable_by(|a, b| b.cmp(a));
                Strategy::Bounded { preemptions }
            }
            _ => Strategy::Lagging { mask: rng.next(), until: 0, by_pe: rng.next().is_multiple_of(2) },
        };
        (Schedule { strategy }, delayed)
    }

    /// A new round: the order of the warps, and who stands still.
    pub(crate) fn round(&mut self, rng: &mut Rng, clock: u64, order: &mut [WarpSlot]) {
        match &mut self.strategy {
            Strategy::Fair | Strategy::Fine => rng.shuffle(order),
            Strategy::Bounded { preemptions } => {
                // Whoever comes late is sorted in at random; a preemption draws new priorities.
                if preemptions.last().is_some_and(|p| *p <= clock) {
                    preemptions.pop();
                    rng.shuffle(order);
                } else if let Some(last) = order.len().checked_sub(1) {
                    order.swap(last, rng.below(last + 1));
                }
            }
            Strategy::Lagging { mask, until, .. } => {
                rng.shuffle(order);
                if clock >= *until {
                    *mask = rng.next() & rng.next();
                    *until = clock + (1 << (8 + rng.next() % 10));
                }
            }
        }
    }

    /// Instructions that a warp may run now; none if it stands still.
    pub(crate) fn budget(&self, rng: &mut Rng, clock: u64, pe: usize, cta: CtaSlot) -> u32 {
        match &self.strategy {
            Strategy::Fair => SLICE + (rng.next() & 127) as u32,
            Strategy::Fine => 1 + (rng.next() & 7) as u32,
            Strategy::Bounded { preemptions } => {
                let left = preemptions.last().map_or(1 << 14, |p| p.saturating_sub(clock).max(1));
                left.min(1 << 14) as u32
            }
            Strategy::Lagging { mask, by_pe, .. } => {
                let who = if *by_pe { pe } else { cta.0 };
                if mask >> (who % 64) & 1 != 0 { 0 } else { SLICE + (rng.next() & 127) as u32 }
            }
        }
    }

    /// Nobody has run: those that stand still go on.
    pub(crate) fn wake(&mut self) -> bool {
        match &mut self.strategy {
            Strategy::Lagging { mask, .. } if *mask != 0 => {
                *mask = 0;
                true
            }
            _ => false,
        }
    }
}
