//! Kernels whose waits do not end, for tests of reports on GPUs and on simulated PEs.

use std::error::Error;
use weft::gpu::{Grid, Kernel};
use weft::runtime::{Graph, World};
use weft::{KernelFile, Options};

/// A kernel in which thread 3 of each CTA waits for element 5 of `flags`.
const SPIN: &str = "kernel spin(flags: symm<u32, (8):(1)>, goal: u32, out: global<u32, (1):(1)>) block(64) {
    if thread_idx() == 3 {
        while load<acquire, sys>(flags[5]) < goal { }
        out[0] = goal;
    }
}";

/// A kernel with a number of barriers of all PEs.
const STEPS: &str = "kernel steps(rounds: i64, sync: barrier, team: team) block(64) {
    for i in 0..rounds { barrier(sync, team, acq_rel, sys); }
}";

type Ran = Result<(), Box<dyn Error>>;

/// The kernel of a text, with its waits watched.
fn watched(world: &World, text: &str) -> Result<Kernel, Box<dyn Error>> {
    let options = Options::new(weft::gpu::target(world.device())?).watch(true);
    Ok(Kernel::with(world, KernelFile::parse("waiting.weft", text)?, options)?)
}

/// Delays the host of this PE, so that the wait of another PE's kernel is the first one that exceeds
/// its limit. Simulated PEs have no limit in seconds.
fn let_kernels_wait_first(world: &World) {
    if !world.device().is_simulated() {
        std::thread::sleep(std::time::Duration::from_millis(1500));
    }
}

/// Every PE waits in its second launch for a flag that is never set.
pub fn spins_for_ever(world: &World) -> Ran {
    let kernel = watched(world, SPIN)?;
    let (flags, out) = (world.zeros::<u32>(8)?, world.zeros::<u32>(1)?);
    for goal in [0u32, 9] {
        kernel.launch(world.stream(), Grid::of(2), (&flags, goal, &out))?;
    }
    Ok(world.stream().synchronize()?)
}

/// The last PE executes one barrier less than the others.
pub fn another_size(world: &World) -> Ran {
    let kernel = watched(world, STEPS)?;
    let sync = world.kernel_barrier(1)?;
    let last = world.my_pe() + 1 == world.n_pes();
    let rounds = if last { 2i64 } else { 3 };
    kernel.launch(world.stream(), Grid::of(1), (rounds, &sync, &world.team()))?;
    world.stream().synchronize()?;
    let_kernels_wait_first(world);
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
    match world.my_pe() {
        0 => graph.launch()?,
        _ => let_kernels_wait_first(world),
    }
    world.stream().synchronize()?;
    Ok(world.barrier()?)
}

/// The first PE executes an allreduce by packets twice, and the others do not. The second launch may
/// begin before the first one ends.
pub fn allreduce_of_one_pe(world: &World) -> Ran {
    const SLOTS: usize = 1024;
    let n_pes = world.n_pes() as usize;
    let mut options = Options::new(weft::gpu::target(world.device())?).watch(true);
    options.lowering = weft::Lowering::Unicast;
    options.kernel = Some("ll_in_place".into());
    let defines = [("P", n_pes), ("CTAS", 1), ("THREADS", 32)];
    options.defines = defines.iter().map(|(n, d)| ((*n).to_owned(), weft::Define::Int(*d as i64))).collect();
    options.defines.insert("T".into(), weft::runtime::DType::BF16.into());
    let text = weft::library::part("allreduce").unwrap_or_default();
    let kernel = Kernel::with(world, KernelFile::parse("weft/allreduce.weft", text)?, options)?;
    let (x, ws) = (world.zeros::<half::bf16>(64)?, world.zeros::<u64>(2 * SLOTS * n_pes * 2)?);
    let epoch = world.zeros::<u32>(32)?;
    use weft::collective::Flat;
    if world.my_pe() == 0 {
        for _ in 0..2 {
            let arguments = (Flat(&x), 64i64, Flat(&ws), Flat(&epoch), &world.team());
            kernel.launch(world.stream(), Grid::of(1), arguments)?;
        }
        world.stream().synchronize()?;
    } else {
        let_kernels_wait_first(world);
    }
    Ok(world.barrier()?)
}

/// A number of CTAs wait for a flag that is never set.
pub fn many_wait(world: &World, ctas: u32) -> Ran {
    let kernel = watched(world, SPIN)?;
    let (flags, out) = (world.zeros::<u32>(8)?, world.zeros::<u32>(1)?);
    kernel.launch(world.stream(), Grid::of(ctas), (&flags, 9u32, &out))?;
    Ok(world.stream().synchronize()?)
}
