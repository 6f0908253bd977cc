//! How calls are timed: all PEs begin together, and the time does not include waiting for the
//! host's launches.
//!
//! The events of each GPU use its own clock, so a time is always between two events of one GPU. The
//! PEs must therefore begin at the same time. A barrier among the GPUs right before the first event
//! ensures that, to within the flight time of a flag. Synchronised clocks of the hosts would not,
//! because the launches themselves take a varying time.
//!
//! A graph contains that barrier and both events. Without a graph, the kernel of the barrier first
//! waits as long as the host needs to launch the calls that are timed.

use super::BenchError;
use super::kernels::{self, BARRIER, START_LINE};
use super::measure::{Call, Result};
use weft::Transport;
use weft::gpu::{Grid, Kernel};
use weft_runtime::cuda::{self, Event};
use weft_runtime::{Barrier, DeviceTensor, Graph, Stream, Team, World};

/// The number of accesses of a word, one after the other, before the barrier; each takes about 0.5
/// us.
const ACCESSES: i32 = 100;

/// The barrier at which PEs meet before the timing begins.
pub struct StartLine<'a> {
    world: &'a World,
    team: Team,
    sync: Barrier,
    word: DeviceTensor<u32>,
    /// Memory of twice the size of the L2 cache.
    scratch: DeviceTensor<u8>,
    start: Kernel,
    barrier: Kernel,
}

impl<'a> StartLine<'a> {
    /// Allocates the memory of the barrier. This call is *collective*.
    pub fn new(world: &'a World) -> Result<StartLine<'a>> {
        let (stream, device) = (world.stream(), world.device());
        let compile = |text| kernels::compile(world, text, Transport::P2p, None, &[]);
        // Simulated PEs have no caches.
        let cache = if world.simulation().is_some() { 0 } else { device.l2_bytes()? };
        let scratch = DeviceTensor::alloc(device, 2 * cache.max(1 << 20) as usize)?;
        let line = StartLine {
            world,
            team: world.team(),
            sync: world.kernel_barrier(1)?,
            word: DeviceTensor::zeros(1, stream)?,
            scratch,
            start: compile(START_LINE)?,
            barrier: compile(BARRIER)?,
        };
        line.time(&Block::Calls(Box::new(|_| Ok(()))))?;
        Ok(line)
    }

    /// The world whose PEs begin together.
    pub fn world(&self) -> &'a World {
        self.world
    }

    /// Puts a barrier of all PEs on a stream.
    pub fn barrier(&self, stream: &Stream) -> Result<()> {
        Ok(self.barrier.launch(stream, Grid::Kernel, (&self.sync, &self.team))?)
    }

    /// Evicts the measured data from the L2 cache.
    pub fn flush(&self, stream: &Stream) -> Result<()> {
        Ok(self.scratch.fill(0, stream)?)
    }

    /// Makes a block of calls that are timed together, in a graph or not.
    pub fn block(&self, graph: bool, calls: impl Fn(&Stream) -> Result<()> + 'a) -> Result<Block<'a>> {
        if !graph {
            return Ok(Block::Calls(Box::new(calls)));
        }
        let device = self.world.device();
        let (start, end) = (Event::new(device)?, Event::new(device)?);
        let graph = Graph::capture(self.world.stream(), |stream| {
            self.barrier(stream)?;
            start.capture(stream)?;
            calls(stream)?;
            Ok::<_, BenchError>(end.capture(stream)?)
        })?;
        graph.upload()?;
        Ok(Block::Graph { graph, start, end })
    }

    /// Runs a block, and returns its microseconds on this PE. This call is *collective*.
    pub fn time(&self, block: &Block<'_>) -> Result<f64> {
        let stream = self.world.stream();
        match block {
            Block::Graph { graph, start, end } => {
                graph.launch()?;
                // An event in a graph keeps its old state until the graph is done.
                cuda::wait_for(stream)?;
                Ok(start.elapsed_us(end)?)
            }
            Block::Calls(calls) => {
                self.start.launch(stream, Grid::Kernel, (&self.word, ACCESSES, &self.sync, &self.team))?;
                let start = Event::record(stream)?;
                calls(stream)?;
                let end = Event::record(stream)?;
                Ok(start.elapsed_us(&end)?)
            }
        }
    }
}

/// Calls that are timed together.
pub enum Block<'a> {
    /// A graph, with the events that time it. They live as long as the graph.
    Graph { graph: Graph, start: Event, end: Event },
    /// Calls that are launched one after the other.
    Calls(Call<'a>),
}
