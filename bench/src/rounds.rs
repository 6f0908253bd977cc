//! Code that benchmarks of products over PEs share: times of contenders in rounds, and samples of
//! results that all PEs compare.

use crate::BenchError;
use crate::report::Spread;
use crate::start::{Block, StartLine};
use crate::times::{Drawn, gather};
use serde::{Deserialize, Serialize};
use weft_runtime::{Stream, World, cuda};

type Result<T> = std::result::Result<T, BenchError>;

/// A call of a contender on a stream.
pub(crate) type Call<'a> = Box<dyn Fn(&Stream) -> Result<()> + 'a>;

/// Blocks of calls that another process makes and times.
pub(crate) trait Blocks {
    /// Prepares a block of `calls` calls after `before` calls that are not timed. Returns the
    /// microseconds of its first run. This call is *collective*.
    fn arrange(&self, calls: u32, before: u32) -> Result<f64>;

    /// Runs that block again, and returns its microseconds. This call is *collective*.
    fn again(&self) -> Result<f64>;
}

/// A contender that is timed.
pub(crate) enum Timed<'a> {
    /// A call on the world's stream, and a call that copies operands to where it reads them, if
    /// that is needed.
    Call(Option<&'a Call<'a>>, &'a Call<'a>),
    /// Calls of another process.
    Process(&'a dyn Blocks),
}

/// A block that is ready to be timed.
enum Ready<'a> {
    Block(Block<'a>),
    Process(&'a dyn Blocks),
}

impl Ready<'_> {
    /// Microseconds of the block. This call is *collective*.
    fn time(&self, start: &StartLine<'_>) -> Result<f64> {
        match self {
            Ready::Block(block) => start.time(block),
            Ready::Process(process) => process.again(),
        }
    }
}

/// The time in microseconds that a block takes at most. A block of a single call may take longer.
const BLOCK_US: f64 = 50_000.0;

/// How often contenders are called.
pub(crate) struct Rounds {
    /// The number of back-to-back calls in a timed block; fewer if they take long.
    pub iters: u32,
    /// The number of calls before the first block.
    pub warmup: u32,
    /// The number of blocks of each contender.
    pub repeats: u32,
    /// Whether a block is captured into a CUDA graph and replayed.
    pub graph: bool,
}

impl Rounds {
    /// The times of a call of each contender, over all PEs. Each round runs one block of each, in a
    /// new random order. This call is *collective*.
    pub fn times<'a>(&self, start: &StartLine<'a>, contenders: &[Timed<'a>]) -> Result<Vec<Spread>> {
        let world = start.world();
        let ready = |contender: &Timed<'a>| match contender {
            Timed::Call(place, call) => self.block(start, *place, call),
            Timed::Process(process) => {
                let iters = self.fitting(world, [process.arrange(1, self.warmup)?, process.again()?])?;
                process.arrange(iters, 0)?;
                Ok((iters, Ready::Process(*process)))
            }
        };
        let blocks = contenders.iter().map(ready).collect::<Result<Vec<_>>>()?;
        let mut times: Vec<Vec<f64>> = vec![Vec::new(); contenders.len()];
        let mut order: Vec<usize> = (0..contenders.len()).collect();
        let mut drawn = Drawn::together(world)?;
        // The first round is a warm-up.
        for round in 0..=self.repeats {
            drawn.shuffle(&mut order);
            for &i in &order {
                let (iters, block) = &blocks[i];
                let time = block.time(start)? / f64::from(*iters);
                if round > 0 {
                    times[i].push(time);
                }
            }
        }
        times.iter().map(|times| Ok(Spread::over(&gather(world, times)?))).collect()
    }

    /// The number of calls in a block, from the microseconds of single calls. This call is
    /// *collective*.
    fn fitting(&self, world: &World, ones: [f64; 2]) -> Result<u32> {
        let about = Spread::over(&gather(world, &ones)?);
        Ok(self.iters.min((BLOCK_US / about.median.max(1.0)) as u32).max(1))
    }

    /// A block of calls on the world's stream, and the number of its calls.
    fn block<'a>(
        &self,
        start: &StartLine<'a>,
        place: Option<&Call<'_>>,
        call: &'a Call<'a>,
    ) -> Result<(u32, Ready<'a>)> {
        let (world, stream) = (start.world(), start.world().stream());
        if let Some(place) = place {
            place(stream)?;
            cuda::wait_for(stream)?;
            world.wait_for_all()?;
        }
        let calls = |n: u32, s: &Stream| (0..n).try_for_each(|_| call(s));
        calls(self.warmup.max(1), stream)?;
        cuda::wait_for(stream)?;
        let one = start.block(false, move |s| calls(1, s))?;
        let iters = self.fitting(world, [start.time(&one)?, start.time(&one)?])?;
        let block = start.block(self.graph, move |s| calls(iters, s))?;
        // The first launch of a graph takes longer than later ones.
        start.time(&block)?;
        Ok((iters, Ready::Block(block)))
    }
}

/// The wrong samples of a result.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Wrong {
    /// The number of wrong samples, over all PEs.
    pub elements: u64,
    /// The number of samples that were compared.
    pub of: u64,
    /// The first wrong sample: its PE, its row (a token or a row of a matrix), its column, the
    /// value found, and the value expected.
    pub first: Option<(u32, u64, u64, f64, f64)>,
}

impl Wrong {
    /// Adds the findings of all PEs. This call is *collective*.
    pub(crate) fn add(&mut self, world: &World, own: &Wrong) -> Result<()> {
        let bytes = serde_json::to_vec(own).unwrap_or_default();
        for (pe, bytes) in (0u32..).zip(world.all_gather_host(&bytes)?) {
            let wrong: Wrong = serde_json::from_slice(&bytes)
                .map_err(|e| BenchError::Request(format!("the findings of a PE cannot be parsed: {e}")))?;
            (self.elements, self.of) = (self.elements + wrong.elements, self.of + wrong.of);
            let first = wrong.first.map(|(_, row, column, is, should)| (pe, row, column, is, should));
            self.first = self.first.or(first);
        }
        Ok(())
    }

    /// The number of wrong samples and of all samples, as in the table.
    pub(crate) fn counts(checked: Option<&Wrong>) -> String {
        checked.map_or("N/A".into(), |w| format!("{}/{}", w.elements, w.of))
    }

    /// The first wrong sample, as a sentence.
    pub(crate) fn shown(&self) -> Option<String> {
        let (pe, row, column, found, expected) = self.first?;
        Some(format!("PE {pe} has {found} at ({row}, {column}), expected {expected}"))
    }
}
