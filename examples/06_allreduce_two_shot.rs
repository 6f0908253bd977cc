//! Two-shot allreduce in place with as many CTAs as the GPU holds, timed by events, and NVSHMEM's
//! own reduction for comparison.

use std::error::Error;
use std::process::ExitCode;
use weft::gpu::{Grid, Kernel};
use weft::runtime::cuda::Event;
use weft::runtime::{Reduce, World, on_every_pe};

fn main() -> ExitCode {
    on_every_pe(allreduce)
}

pub(crate) fn allreduce(world: &World) -> Result<(), Box<dyn Error>> {
    let (me, n_pes, stream, team) = (world.my_pe(), world.n_pes(), world.stream(), world.team());
    // The simulator is much slower than a GPU.
    let (n, rounds) = if world.simulation().is_some() { (5 << 10, 3) } else { (16 << 20, 12) };
    let kernel =
        Kernel::compile(world, include_str!("allreduce_two_shot.weft"), &[("N", (n as i64).into())])?;
    let ctas = kernel.max_ctas()?;

    let x = world.tensor::<f32>(n)?;
    let y = world.tensor::<f32>(n)?;
    let barrier = world.kernel_barrier(ctas)?;
    let mine: Vec<f32> = (0..n).map(|i| (me + 1) as f32 * (i % 100) as f32).collect();
    let want: Vec<f32> = (0..n).map(|i| (1..=n_pes).sum::<u32>() as f32 * (i % 100) as f32).collect();

    let mut times = Vec::new();
    for round in 0..rounds {
        x.copy_from(&mine, stream)?;
        world.barrier()?;
        let start = Event::record(stream)?;
        kernel.launch(stream, Grid::of(ctas), (&x, &barrier, &team))?;
        let end = Event::record(stream)?;
        times.push(start.elapsed_us(&end)?);
        if x.to_vec(stream)? != want {
            return Err(format!("PE {me}: wrong sums in round {round}").into());
        }
    }
    y.copy_from(&mine, stream)?;
    team.reduce(Reduce::Sum, &x, &y, stream)?;
    if x.to_vec(stream)? != want {
        return Err(format!("PE {me}: NVSHMEM's sums differ").into());
    }
    times.sort_by(f64::total_cmp);
    let median = times[times.len() / 2];
    println!("PE {me}: {} KiB summed over {n_pes} PEs in {median:.0} us (median), {ctas} CTAs", n >> 8);
    world.barrier()?;
    Ok(())
}
