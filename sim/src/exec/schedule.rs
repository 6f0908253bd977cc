//! Chooses the warp that runs next and the length of its slice, by strategies that the seed draws.

use crate::model::{CtaSlot, WarpSlot};
use crate::rng::Rng;

/// The shortest slice of the fair strategy; up to 127 further instructions are drawn.
const SLICE: u32 = 64;

/// The strategies by which warps take turns.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Strategy {
    /// Slices of random length in an order shuffled every round.
    Fair,
    /// Slices of a few instructions in an order shuffled every round.
    Fine,
    /// Warps run until they wait, in an order of priority, except for a few preemptions at random
    /// times (Burckhardt and others, A randomized scheduler with probabilistic guarantees of
    /// finding bugs, 2010).
    Bounded { preemptions: Vec<u64> },
    /// Some PEs or CTAs pause for long.
    Lagging { mask: u64, until: u64, by_pe: bool },
}

/// The schedule of a launch.
#[derive(Debug)]
pub(crate) struct Schedule {
    strategy: Strategy,
}

impl Schedule {
    /// Draws a schedule: the fair one, or with `explore` any of them. Also returns the number of
    /// stores in eight that are delayed.
    pub(crate) fn new(explore: bool, rng: &mut Rng) -> (Schedule, u64) {
        if !explore {
            return (Schedule { strategy: Strategy::Fair }, 0);
        }
        let delayed = [0, 4, 7, 8][(rng.next() % 4) as usize];
        let strategy = match rng.next() % 4 {
            0 => Strategy::Fair,
            1 => Strategy::Fine,
            2 => {
                // The times cover few instructions or many, since the length of the launch is not
                // known beforehand.
                let reach = 1 << (6 + rng.next() % 12);
                let mut preemptions: Vec<u64> = (0..1 + rng.next() % 8).map(|_| rng.next() % reach).collect();
                preemptions.sort_unstable_by(|a, b| b.cmp(a));
                Strategy::Bounded { preemptions }
            }
            _ => Strategy::Lagging { mask: rng.next(), until: 0, by_pe: rng.next().is_multiple_of(2) },
        };
        (Schedule { strategy }, delayed)
    }

    /// Begins a round: chooses the order of the warps, and the PEs or CTAs that pause.
    pub(crate) fn round(&mut self, rng: &mut Rng, clock: u64, order: &mut [WarpSlot]) {
        match &mut self.strategy {
            Strategy::Fair | Strategy::Fine => rng.shuffle(order),
            Strategy::Bounded { preemptions } => {
                // New warps get a random position; a preemption draws new priorities.
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

    /// The number of instructions that a warp may run now; none if it pauses.
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

    /// Ends a pause if no warp has run.
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
