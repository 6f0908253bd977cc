//! Kernels whose waits do not end, for tests of reports on GPUs and on simulated PEs.

use std::error::Error;
use weft::gpu::{Grid, Kernel};
use weft::runtime::{Graph, World};
use weft::{KernelFile, Options};

/// Thread 3 of each CTA waits for element 5 of `flags`.
const SPIN: &str = "kernel spin(flags: symm<u32, (8):(1)>, goal: u32, out: global<u32, (1):(1)>) block(64) {
    if thread_idx() == 3 {
        while load<acquire, sys>(flags[5]) < goal { }
        out[0] = goal;
    }
}";

/// So many barriers of all PEs.
const STEPS: &str = "kernel steps(rounds: i64, sync: barrier, team: team) block(64) {
    for i in 0..rounds { barrier(sync, team, acq_rel, sys); }
}";

type Ran = Result<(), Box<dyn Error>>;

/// The kernel of a text, with its waits watched.
fn watched(world: &World, text: &str) -> Result<Kernel, Box<dyn Error>> {
    let options = Options::new(weft::gpu::target(world.device())?).watch(true);
    Ok(Kernel::with(world, KernelFile::parse("waiting.weft", text)?, options)?)
}

/// Every PE waits for a flag that nobody sets, in its second launch.
pub fn spins_for_ever(world: &World) -> Ran {
    let kernel = watched(world, SPIN)?;
    let (flags, out) = (world.zeros::<u32>(8)?, world.zeros::<u32>(1)?);
    for goal in [0u32, 9] {
        kernel.launch(world.stream(), Grid::of(2), (&flags, goal, &out))?;
    }
    Ok(world.stream().synchronize()?)
}

/// The last PE makes one barrier less than the others.
pub fn another_size(world: &World) -> Ran {
    let kernel = watched(world, STEPS)?;
    let sync = world.kernel_barrier(1)?;
    let last = world.my_pe() + 1 == world.n_pes();
    let rounds = if last { 2i64 } else { 3 };
    kernel.launch(world.stream(), Grid::of(1), (rounds, &sync, &world.team()))?;
    world.stream().synchronize()?;
    Ok(world.barrier()?)
}

/// Only the first PE replays the graph once more.
pub fn replayed_on_one_pe(world: &World) -> Ran {
    let kernel = watched(world, STEPS)?;
    let sync = world.kernel_barrier(1)?;
    let graph = Graph::capture(world.stream(), |stream| {
        kernel.launch(stream, Grid::of(1), (1i64, &sync, &world.team()))
    })?;
    graph.launch()?;
    world.stream().synchronize()?;
    world.barrier()?;
    if world.my_pe() == 0 {
        graph.launch()?;
    }
    world.stream().synchronize()?;
    Ok(world.barrier()?)
}
