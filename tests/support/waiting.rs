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

/// The kernel with a number of barriers.
pub fn steps(world: &World) -> Result<Kernel, Box<dyn Error>> {
    watched(world, STEPS)
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
    let kernel = steps(world)?;
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
    let kernel = steps(world)?;
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

/// An in-place allreduce of the library, with one CTA of 32 threads.
pub struct Packets {
    pub kernel: &'static str,
    /// The type and the number of elements of its workspace for one PE.
    workspace: (weft::runtime::DType, usize),
    /// The compile-time parameters with the size of the workspace.
    sizes: &'static [(&'static str, i64)],
}

/// Packets with flags, in two buffers of 1024 slots of two words.
pub const LL: Packets = Packets {
    kernel: "ll_in_place",
    workspace: (weft::runtime::DType::U64, 2 * 1024 * 2),
    sizes: &[("SLOTS", 1024), ("CTAS", 1)],
};

/// Packets whose data is their flag, in three buffers of 64 slots of four words.
pub const LAMPORT: Packets = Packets {
    kernel: "lamport_in_place",
    workspace: (weft::runtime::DType::U32, 4 * 64 * 3),
    sizes: &[("ROOM", 64), ("STAGES", 1)],
};

/// The first PE executes an allreduce by packets twice, and the others do not. The second launch may
/// begin before the first one ends.
pub fn allreduce_of_one_pe(world: &World, packets: &Packets) -> Ran {
    let n_pes = world.n_pes() as usize;
    let mut options = Options::new(weft::gpu::target(world.device())?).watch(true);
    options.lowering = weft::Lowering::Unicast;
    options.kernel = Some(packets.kernel.into());
    let defines = [("P", n_pes as i64), ("THREADS", 32)];
    let defines = defines.iter().chain(packets.sizes);
    options.defines = defines.map(|(n, d)| ((*n).to_owned(), weft::Define::Int(*d))).collect();
    options.defines.insert("T".into(), weft::runtime::DType::BF16.into());
    let text = weft::library::part("allreduce").unwrap_or_default();
    let kernel = Kernel::with(world, KernelFile::parse("weft/allreduce.weft", text)?, options)?;
    let (x, epoch) = (world.zeros::<half::bf16>(64)?, world.zeros::<u32>(32)?);
    let (dtype, words) = packets.workspace;
    let (wide, narrow) = match dtype {
        weft::runtime::DType::U64 => (words * n_pes, 1),
        _ => (1, words * n_pes),
    };
    let (wide, narrow) = (world.zeros::<u64>(wide)?, world.zeros::<u32>(narrow)?);
    use weft::collective::Flat;
    if world.my_pe() == 0 {
        for _ in 0..2 {
            let workspace = if dtype == weft::runtime::DType::U64 { Flat(&wide) } else { Flat(&narrow) };
            let arguments = (Flat(&x), 64i64, workspace, Flat(&epoch), &world.team());
            kernel.launch(world.stream(), Grid::of(1), arguments)?;
        }
        world.stream().synchronize()?;
    } else {
        let_kernels_wait_first(world);
    }
    Ok(world.barrier()?)
}

/// A kernel that waits for an element of a matrix and has numbers of several types.
const TYPED: &str = "kernel typed(
    flags: symm<i32, (3,4):(4,1)>, goal: i32, scale: f32, eps: bf16, out: global<f32, (2):(1)>
) block(64) {
    if thread_idx() == 3 {
        while load<acquire, sys>(flags[2, 1]) != goal { }
        out[0] = scale + eps.to<f32>();
    }
}";

/// Every PE waits for an element of a matrix to become negative.
pub fn numbers_of_all_types(world: &World) -> Ran {
    let kernel = watched(world, TYPED)?;
    let (flags, out) = (world.zeros::<i32>([3, 4])?, world.zeros::<f32>(2)?);
    let arguments = (&flags, -5i32, 0.5f32, 1e-2f32, &out);
    kernel.launch(world.stream(), Grid::of(1), arguments)?;
    Ok(world.stream().synchronize()?)
}

/// A number of CTAs wait for a flag that is never set.
pub fn many_wait(world: &World, ctas: u32) -> Ran {
    let kernel = watched(world, SPIN)?;
    let (flags, out) = (world.zeros::<u32>(8)?, world.zeros::<u32>(1)?);
    kernel.launch(world.stream(), Grid::of(ctas), (&flags, 9u32, &out))?;
    Ok(world.stream().synchronize()?)
}
