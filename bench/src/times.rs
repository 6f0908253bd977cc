//! Times of a call: the number of calls in a block, the number of blocks, and the times of all PEs.

use super::Bench;
use super::measure::Result;
use super::report::{Spread, Times};
use serde::Serialize;
use std::time::{SystemTime, UNIX_EPOCH};
use weft_runtime::World;

/// The greatest number of cold calls; before each of them the cache is overwritten.
const COLD: u32 = 5;

/// A request to time blocks of calls.
#[derive(Clone, Copy, Serialize)]
pub struct Blocks {
    /// The number of calls in a block.
    pub calls: u32,
    /// The number of calls before the first block.
    pub before: u32,
    /// The number of timed blocks. One more block runs before them as a warm-up.
    pub blocks: u32,
    /// Whether the data is evicted from the L2 cache before each block.
    pub cold: bool,
}

/// What can be called and timed, on this PE.
pub trait Timed {
    /// Makes the very first call, and returns its microseconds from the call on the host to the end
    /// of its work. This call is *collective*.
    fn first(&self) -> Result<f64>;

    /// Returns the microseconds of each block. This call is *collective*.
    fn blocks(&self, blocks: Blocks) -> Result<Vec<f64>>;

    /// How often a call repeats what is timed.
    fn in_a_call(&self) -> u32 {
        1
    }
}

/// The times of the first call, of cold calls, and of blocks of calls. This call is *collective*.
pub fn times(world: &World, bench: &Bench, timed: &impl Timed) -> Result<Times> {
    let first = timed.first()?;
    let one = Blocks { calls: 1, before: 0, blocks: 1, cold: false };
    let about = gather(world, &timed.blocks(one)?)?;
    let (iters, repeats) = fitting(Spread::over(&about).max, bench.iters, bench.repeats);
    let mut cold = timed.blocks(Blocks { blocks: repeats.min(COLD), cold: true, ..one })?;
    let before = bench.warmup.min(iters);
    let mut warm = timed.blocks(Blocks { calls: iters, before, blocks: repeats, cold: false })?;
    let each = f64::from(timed.in_a_call());
    cold.iter_mut().for_each(|t| *t /= each);
    warm.iter_mut().for_each(|t| *t /= each * f64::from(iters));
    let [first, cold, warm] =
        [&[first][..], &cold, &warm].map(|times| gather(world, times).map(|all| Spread::over(&all)));
    Ok(Times { warm: warm?, cold: cold?, first_us: first?.max, iters, repeats })
}

/// The numbers of calls in a block and of blocks: as many as requested, or fewer if a call takes
/// `us` microseconds and a block would take more than 0.2 s or all of them more than 1 s. There are
/// at least one call and three blocks.
fn fitting(us: f64, iters: u32, repeats: u32) -> (u32, u32) {
    let us = us.max(0.1);
    let within = |limit: f64, each: f64, least: u32| ((limit / each) as u32).max(least);
    let iters = iters.min(within(2e5, us, 1));
    (iters, repeats.min(within(1e6, us * f64::from(iters), 3)))
}

/// The times of all PEs. This call is *collective*.
pub fn gather(world: &World, times: &[f64]) -> Result<Vec<Vec<f64>>> {
    let bytes: Vec<u8> = times.iter().flat_map(|t| t.to_le_bytes()).collect();
    let all = world.all_gather_host(&bytes)?;
    let times = |bytes: &Vec<u8>| bytes.as_chunks::<8>().0.iter().map(|b| f64::from_le_bytes(*b)).collect();
    Ok(all.iter().map(times).collect())
}

/// A sequence of random orders.
pub struct Drawn(u64);

impl Drawn {
    /// A sequence that is seeded with the clock.
    pub fn new() -> Drawn {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Drawn(now.as_nanos() as u64)
    }

    /// The sequence of PE 0, on all PEs. This call is *collective*.
    pub fn together(world: &World) -> Result<Drawn> {
        let all = world.all_gather_host(&Drawn::new().0.to_le_bytes())?;
        let first = all.first().and_then(|bytes| bytes.as_slice().try_into().ok());
        Ok(Drawn(first.map_or(0, u64::from_le_bytes)))
    }

    /// Shuffles items, with every order equally likely (Fisher and Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            self.0 = self.0.wrapping_add(1);
            let drawn = crate::data::datum(0, self.0, 0, last as u64);
            items.swap(last, usize::try_from(drawn).unwrap_or(0));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_calls_are_fewer() {
        assert_eq!(fitting(5.0, 20, 10), (20, 10));
        assert_eq!(fitting(5000.0, 20, 10), (20, 10));
        assert_eq!(fitting(60_000.0, 20, 10), (3, 5));
        assert_eq!(fitting(1e7, 20, 10), (1, 3));
        assert_eq!(fitting(1e7, 20, 1), (1, 1));
        assert_eq!(fitting(0.0, 100_000, 100_000), (100_000, 100));
        assert_eq!(fitting(f64::NAN, 20, 10).1, 10);
    }
}
