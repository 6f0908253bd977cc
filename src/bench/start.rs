//! How calls are timed: all PEs begin together, and the host has launched all by then.
//!
//! Each GPU's events are on its own clock, so a time is between two events of one GPU, and what must agree is when the
//! PEs begin. A barrier among the GPUs right before the first event sees to that, to within the flight of a flag, which
//! aligned clocks of hosts, behind which launches lie, do not. In front of it a kernel takes as long as the host needs to
//! launch what is timed, so that no launch is waited for within it.

use super::kernels::{self, BARRIER, START_LINE};
use super::measure::Result;
use crate::compile::Transport;
use crate::gpu::{Grid, Kernel};
use weft_runtime::cuda::{self, Event};
use weft_runtime::{Barrier, DeviceTensor, Stream, Team, World};

/// Accesses of a word, one after the other, before the barrier: about 0.5 us each.
const ACCESSES: i32 = 100;

/// Where timing begins.
pub struct StartLine<'a> {
    world: &'a World,
    team: Team,
    sync: Barrier,
    word: DeviceTensor<u32>,
    /// Twice what the second-level cache holds.
    scratch: DeviceTensor<u8>,
    start: Kernel,
    barrier: Kernel,
}

impl<'a> StartLine<'a> {
    /// *Collective.*
    pub fn new(world: &'a World) -> Result<StartLine<'a>> {
        let (stream, device) = (world.stream(), world.device());
        let compile = |text| kernels::compile(world, text, Transport::P2p, None, &[]);
        let scratch = DeviceTensor::alloc(device, 2 * device.l2_bytes()?.max(1 << 20) as usize)?;
        let line = StartLine {
            world,
            team: world.team(),
            sync: world.kernel_barrier(1)?,
            word: DeviceTensor::zeros(1, stream)?,
            scratch,
            start: compile(START_LINE)?,
            barrier: compile(BARRIER)?,
        };
        line.time(stream, &|_| Ok(()))?;
        Ok(line)
    }

    /// The world whose PEs begin.
    pub fn world(&self) -> &'a World {
        self.world
    }

    /// A kernel in which all PEs wait for each other.
    pub fn barrier(&self, stream: &Stream) -> Result<()> {
        Ok(self.barrier.launch(stream, Grid::Kernel, (&self.sync, &self.team))?)
    }

    /// Leaves nothing of what is measured in the second-level cache.
    pub fn flush(&self, stream: &Stream) -> Result<()> {
        Ok(self.scratch.fill(0, stream)?)
    }

    /// Microseconds on this PE, from when all begin to the end of what `work` launches. *Collective.*
    pub fn time(&self, stream: &Stream, work: &dyn Fn(&Stream) -> Result<()>) -> Result<f64> {
        self.start.launch(stream, Grid::Kernel, (&self.word, ACCESSES, &self.sync, &self.team))?;
        let start = Event::record(stream)?;
        work(stream)?;
        let end = Event::record(stream)?;
        let us = start.elapsed_us(&end)?;
        cuda::wait_for(stream)?;
        Ok(us)
    }
}
