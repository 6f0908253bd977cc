//! Tests of launches: compiled for the machine's GPU, checked, cooperative, in clusters, in graphs.

use crate::check::{Case, Checked, data};
use crate::{ensure, same};
use weft::runtime::cuda::Event;
use weft::runtime::launch::{Grid, Kernel, LaunchOptions, Module};
use weft::runtime::{DeviceTensor, Graph, SymmetricTensor, World, error};
use weft::{Define, Lowering, Options};

pub const CASES: &[Case] = &[
    Case::new("launch::arguments_are_checked", arguments),
    Case::new("launch::cooperative_and_clusters", cooperative),
    Case::new("launch::a_graph_is_replayed", graph),
    Case::new("launch::ptx_that_the_driver_refuses", refused),
    Case::new("launch::parts_of_the_world", parts),
    Case::new("launch::kernels_from_the_library", library),
    Case::new("launch::barriers_over_grids", grids),
];

const TWO_SHOT: &str = include_str!("../../examples/allreduce_two_shot.weft");

/// A kernel that multiplies by a run-time number. The caller chooses its grid.
const SCALE: &str = "kernel scale<N: int>(x: global<f32, (N):(1)>, by: f32) block(128) {
    let mine = partition(x, threads());
    for i in 0..size<1>(mine) { mine[_, i] = mine[_, i] * by; }
}";

/// A kernel that passes rows from PE to PE, and within them from CTA to CTA, with both barriers
/// over a grid.
const PASSED: &str = "use weft::grid;
kernel passed<N: int>(x: global<u32, (N):(1)>, row: symm<u32, (N):(1)>, out: global<u32, (N):(1)>, rounds: i32,
    launch: i32, state: global<u32, (1):(1)>, sync: barrier, team: team) block(64)
{
    let first = block_idx() * 64 + thread_idx();
    let apart = grid_dim() * 64;
    let behind = peer(row, (my_pe(team) + 1) % n_pes(team), team);
    for round in 0..rounds.to<int>() {
        for i in first..N step apart { behind[i] = x[(i + 65) % N] * 3; }
        grid_barrier_all(state, sync, team);
        for i in first..N step apart { out[(i + 70) % N] = row[i] + (i * (round + 2)).to<u32>(); }
        grid_barrier(state);
        for i in first..N step apart { x[i] = out[i] + (my_pe(team) + 1000 * launch.to<int>()).to<u32>(); }
        grid_barrier_all(state, sync, team);
    }
}";

fn load(
    world: &World,
    name: &str,
    text: &str,
    defines: &[(&str, Define)],
) -> Result<Kernel, Box<dyn std::error::Error>> {
    let mut options = Options::new(world.device().arch()?.parse()?);
    options.lowering = Lowering::Unicast;
    options.defines = defines.iter().map(|(n, d)| ((*n).to_owned(), *d)).collect();
    let compiled = weft::KernelFile::parse(name, text)?.compile(&options)?;
    let info = compiled.describe().map_err(|e| e.to_string())?;
    let module = Module::load_in(world, compiled.ptx.as_bytes(), info)?;
    let first = module.info().kernels[0].name.clone();
    Ok(module.kernel(&first)?)
}

fn allreduce(world: &World, n: i64) -> Result<Kernel, Box<dyn std::error::Error>> {
    load(world, "two_shot.weft", TWO_SHOT, &[("N", Define::Int(n))])
}

/// The sum over PEs of small integers, which is exact in f32.
fn sum(pes: &[u32], n: usize, round: u32) -> Vec<f32> {
    let all: Vec<Vec<f32>> = pes.iter().map(|pe| data(*pe, n, round)).collect();
    (0..n).map(|i| all.iter().map(|of| of[i]).sum()).collect()
}

fn arguments(world: &World) -> Checked {
    let (stream, team) = (world.stream(), world.team());
    let kernel = allreduce(world, 1000)?;
    let x: SymmetricTensor<f32> = world.zeros(1000)?;
    let barrier = world.kernel_barrier(64)?;
    kernel.launch(stream, Grid::of(4), (&x, &barrier, &team))?;
    stream.synchronize()?;

    let refused = |e: weft::runtime::Result<()>, what: &str, word: &str| -> Checked {
        let e = e.err().ok_or_else(|| format!("{what} was launched"))?;
        same!(e.code, error::ARGUMENT, "{what}");
        ensure!(e.to_string().contains(word), "{what}: {e}");
        Ok(())
    };
    refused(kernel.launch(stream, Grid::of(4), (&x, &barrier)), "two arguments", "team")?;
    let wrong: SymmetricTensor<f64> = world.zeros(1000)?;
    refused(kernel.launch(stream, Grid::of(4), (&wrong, &barrier, &team)), "f64", "f64")?;
    let wrong: SymmetricTensor<f32> = world.zeros(999)?;
    refused(kernel.launch(stream, Grid::of(4), (&wrong, &barrier, &team)), "999 elements", "999")?;
    let wrong: SymmetricTensor<f32> = world.tensor(weft::layout::Layout::new(1000, 2)?)?;
    refused(kernel.launch(stream, Grid::of(4), (&wrong, &barrier, &team)), "stride 2", ":2")?;
    let own: DeviceTensor<f32> = DeviceTensor::zeros(1000, stream)?;
    refused(kernel.launch(stream, Grid::of(4), (&own, &barrier, &team)), "memory of one GPU", "symmetric")?;
    refused(
        kernel.launch(stream, Grid::of(65), (&x, &barrier, &team)),
        "65 CTAs and a barrier for 64",
        "64",
    )?;
    refused(kernel.launch(stream, Grid::of(4), (&x, &x, &team)), "a tensor for a barrier", "barrier")?;

    let scale = load(world, "scale.weft", SCALE, &[("N", Define::Int(1000))])?;
    own.copy_from(&data(world.my_pe(), 1000, 3), stream)?;
    scale.launch(stream, Grid::fill(world.device()), (&own, 2.0))?;
    let want: Vec<f32> = data::<f32>(world.my_pe(), 1000, 3).iter().map(|x| x * 2.0).collect();
    same!(own.to_vec(stream)?, want, "twice the data");
    refused(scale.launch(stream, Grid::of(1), (&own, "2".len())), "an integer for a float", "integer")?;
    world.barrier()?;
    Ok(())
}

fn cooperative(world: &World) -> Checked {
    let (stream, team) = (world.stream(), world.team());
    let n = 100_003usize;
    let kernel = allreduce(world, n as i64)?;
    let max = kernel.max_ctas(&LaunchOptions::default())?;
    ensure!(max >= world.device().sm_count()?, "{max} CTAs at once");
    let x: SymmetricTensor<f32> = world.tensor(n)?;
    let barrier = world.kernel_barrier(max + 8)?;
    let pes: Vec<u32> = (0..world.n_pes()).collect();
    let together = LaunchOptions::default().cooperative(Some(true));
    let pairs = LaunchOptions::default().cluster(Some([2, 1, 1]));
    for (round, (grid, options)) in
        (0..).zip([(max, &together), (8, &pairs), (32, &LaunchOptions::default())])
    {
        x.copy_from(&data(world.my_pe(), n, round), stream)?;
        world.barrier()?;
        kernel.launch_with(stream, Grid::of(grid), options, (&x, &barrier, &team))?;
        same!(x.to_vec(stream)?, sum(&pes, n, round), "sum by {grid} CTAs, {options:?}");
        world.barrier()?;
    }
    let e = kernel.launch_with(stream, Grid::of(max + 1), &together, (&x, &barrier, &team)).unwrap_err();
    same!(e.code, error::LAUNCH, "more CTAs than fit at once");
    ensure!(e.message.contains(&max.to_string()), "{e}");
    let odd = kernel.launch_with(stream, Grid::of(9), &pairs, (&x, &barrier, &team)).unwrap_err();
    same!(odd.code, error::LAUNCH, "9 CTAs in pairs");
    let shared = LaunchOptions::default().shared_bytes(1 << 30);
    let e = kernel.launch_with(stream, Grid::of(1), &shared, (&x, &barrier, &team)).unwrap_err();
    same!(e.code, error::LAUNCH, "a GiB of shared memory");
    world.barrier()?;
    Ok(())
}

fn graph(world: &World) -> Checked {
    let (stream, team) = (world.stream(), world.team());
    let n = 4099usize;
    let kernel = allreduce(world, n as i64)?;
    let x: SymmetricTensor<f32> = world.tensor(n)?;
    let barrier = world.kernel_barrier(8)?;
    let pes: Vec<u32> = (0..world.n_pes()).collect();
    world.barrier()?;
    let graph = Graph::capture(stream, |stream| kernel.launch(stream, Grid::of(8), (&x, &barrier, &team)))?;
    for round in 0..10 {
        x.copy_from(&data(world.my_pe(), n, round), stream)?;
        world.barrier()?;
        let start = Event::record(stream)?;
        graph.launch()?;
        let end = Event::record(stream)?;
        let us = start.elapsed_us(&end)?;
        ensure!((0.1..1e6).contains(&us), "it took {us} us");
        same!(x.to_vec(stream)?, sum(&pes, n, round), "replay {round}");
        world.barrier()?;
    }
    // The graph keeps the memory that it uses.
    let twice = {
        let kernel = allreduce(world, n as i64)?;
        Graph::capture(stream, |stream| {
            kernel.launch(stream, Grid::of(8), (&x, &barrier, &team))?;
            kernel.launch(stream, Grid::of(8), (&x, &barrier, &team))
        })?
    };
    x.copy_from(&data(world.my_pe(), n, 77), stream)?;
    world.barrier()?;
    twice.launch()?;
    let want: Vec<f32> = sum(&pes, n, 77).iter().map(|v| v * world.n_pes() as f32).collect();
    same!(x.to_vec(stream)?, want, "two launches in a graph");
    // A call that cannot be captured leaves the stream unchanged.
    ensure!(Graph::capture(stream, |s| x.to_vec(s).map(drop)).is_err(), "a copy to the host was captured");
    kernel.launch(stream, Grid::of(8), (&x, &barrier, &team))?;
    stream.synchronize()?;
    world.barrier()?;
    drop((graph, twice));
    Ok(())
}

fn refused(world: &World) -> Checked {
    let options = Options::new(world.device().arch()?.parse()?);
    let compiled = weft::compile(SCALE, &[("N", Define::Int(8))], options.target)?;
    let info = compiled.describe().map_err(|e| e.to_string())?;
    let newer = compiled.ptx.replacen(&format!(".version {}", compiled.ptx_version), ".version 99.9", 1);
    let e = Module::load_in(world, newer.as_bytes(), info.clone()).err().ok_or("PTX 99.9 was loaded")?;
    same!(e.code, error::PTX, "PTX 99.9");
    ensure!(e.to_string().contains("driver"), "{e}");
    let broken = compiled.ptx.replacen("ret;", "retreat;", 1);
    let e = Module::load_in(world, broken.as_bytes(), info.clone()).err().ok_or("broken PTX was loaded")?;
    same!(e.code, error::PTX, "an unknown instruction");
    ensure!(e.message.contains("retreat"), "the driver's log is missing: {e}");
    let module = Module::load_in(world, compiled.ptx.as_bytes(), info)?;
    same!(
        module.kernel("nobody").err().map(|e| e.code),
        Some(error::NO_KERNEL),
        "a kernel that is not there"
    );
    world.barrier()?;
    Ok(())
}

/// Tests a kernel over a team that is not the world. Only its members take part.
fn parts(world: &World) -> Checked {
    let (stream, n) = (world.stream(), 5003usize);
    let kernel = allreduce(world, n as i64)?;
    let x: SymmetricTensor<f32> = world.tensor(n)?;
    let barrier = world.kernel_barrier(8)?;
    let all = world.team();
    let (even, odd) = (
        all.split_strided(0, 2, world.n_pes().div_ceil(2))?,
        if world.n_pes() > 1 { all.split_strided(1, 2, world.n_pes() / 2)? } else { None },
    );
    let team = even.or(odd).ok_or("every PE is even or odd")?;
    for round in 0..5 {
        x.copy_from(&data(world.my_pe(), n, round), stream)?;
        world.barrier()?;
        kernel.launch(stream, Grid::of(8), (&x, &barrier, &team))?;
        same!(x.to_vec(stream)?, sum(team.members(), n, round), "sum over {team:?}");
        world.barrier()?;
    }
    Ok(())
}

/// Tests `weft::gpu::Kernel`: compiled for the machine's GPU, stored as a cubin, and found again.
fn library(world: &World) -> Checked {
    let (stream, team, n) = (world.stream(), world.team(), 1009usize);
    let pes: Vec<u32> = (0..world.n_pes()).collect();
    let x: SymmetricTensor<f32> = world.tensor(n)?;
    let barrier = world.kernel_barrier(4)?;
    for round in 0..3 {
        let kernel = weft::gpu::Kernel::compile(world, TWO_SHOT, &[("N", Define::Int(n as i64))])?;
        x.copy_from(&data(world.my_pe(), n, round), stream)?;
        world.barrier()?;
        kernel.launch(stream, Grid::of(4), (&x, &barrier, &team))?;
        same!(x.to_vec(stream)?, sum(&pes, n, round), "kernel {round} from the library");
        world.barrier()?;
    }
    // A multicast address is rejected before the launch if there is none.
    if x.multicast(&team).is_none() {
        let mut options = Options::new(weft::gpu::target(world.device())?);
        options.lowering = Lowering::Multimem;
        options.defines.insert("N".into(), Define::Int(n as i64));
        let file = weft::KernelFile::parse("two_shot.weft", TWO_SHOT)?;
        let kernel = weft::gpu::Kernel::with(world, file, options)?;
        let e = kernel.launch(stream, Grid::of(4), (&x, &barrier, &team)).err().ok_or("it was launched")?;
        ensure!(e.to_string().contains("R0502") && e.to_string().contains("multicast"), "{e}");
    }
    Ok(())
}

/// The effect of `PASSED` on the rows of all PEs.
fn passed(rows: &mut [Vec<u32>], rounds: u32, launch: u32) {
    let n = rows[0].len();
    for round in 0..rounds {
        let from = rows.to_owned();
        for (pe, row) in rows.iter_mut().enumerate() {
            let before = &from[(pe + from.len() - 1) % from.len()];
            for i in 0..n {
                let moved = before[(i + 65) % n].wrapping_mul(3).wrapping_add(i as u32 * (round + 2));
                row[(i + 70) % n] = moved.wrapping_add(pe as u32 + 1000 * launch);
            }
        }
    }
}

/// Checks that one state and one barrier serve consecutive launches of any grid, with nothing
/// between them.
fn grids(world: &World) -> Checked {
    let (stream, team, n) = (world.stream(), world.team(), 3001usize);
    let options = LaunchOptions::default().cooperative(Some(true));
    let kernel = load(world, "passed.weft", PASSED, &[("N", Define::Int(n as i64))])?;
    // Simulated CTAs execute in turns, so the test uses only a few of them.
    let max = if world.simulation().is_some() { 7 } else { kernel.max_ctas(&options)? };
    let first = |pe: u32| (0..n as u32).map(|i| i * 31 + pe * 7919).collect::<Vec<_>>();
    let mut rows: Vec<Vec<u32>> = (0..world.n_pes()).map(first).collect();
    let x = DeviceTensor::<u32>::zeros(n, stream)?;
    x.copy_from(&rows[world.my_pe() as usize], stream)?;
    let (row, out) = (world.zeros::<u32>(n)?, DeviceTensor::<u32>::zeros(n, stream)?);
    let (state, sync) = (DeviceTensor::<u32>::zeros(1, stream)?, world.kernel_barrier(max)?);
    for (launch, (ctas, rounds)) in (0u32..).zip([(max, 3), (1, 2), (3, 1), (max, 2), (max - 1, 3)]) {
        let arguments = (&x, &row, &out, rounds as i32, launch as i32, &state, &sync, &team);
        // The grids of the PEs can differ in size.
        let ctas = ctas.saturating_sub(world.my_pe() % 2).max(1);
        kernel.launch_with(stream, Grid::of(ctas), &options, arguments)?;
        passed(&mut rows, rounds, launch);
    }
    same!(x.to_vec(stream)?, rows[world.my_pe() as usize], "after all launches");
    world.barrier()?;
    Ok(())
}
