//! Three launches captured into a CUDA graph, and replayed with new data.

use std::error::Error;
use std::process::ExitCode;
use weft::gpu::{Grid, Kernel};
use weft::runtime::{Graph, World, on_every_pe};

fn main() -> ExitCode {
    on_every_pe(graph)
}

pub(crate) fn graph(world: &World) -> Result<(), Box<dyn Error>> {
    let (me, n_pes, stream, team) = (world.my_pe(), world.n_pes(), world.stream(), world.team());
    let n = 4096;
    let kernel =
        Kernel::compile(world, include_str!("allreduce_two_shot.weft"), &[("N", (n as i64).into())])?;
    let x = world.tensor::<f32>(n)?;
    let barrier = world.kernel_barrier(4)?;
    kernel.prepare(weft::Lowering::Auto)?; // compiles now, since the capture must not

    let graph = Graph::capture(stream, |stream| {
        (0..3).try_for_each(|_| kernel.launch(stream, Grid::of(4), (&x, &barrier, &team)))
    })?;
    for round in 1..=5u32 {
        x.copy_from(&vec![(round + me) as f32; n], stream)?;
        world.barrier()?;
        graph.launch()?;
        // The first sum, then multiplied twice by n_pes.
        let sum: f32 = (0..n_pes).map(|pe| (round + pe) as f32).sum();
        let want = sum * (n_pes * n_pes) as f32;
        if x.to_vec(stream)? != vec![want; n] {
            return Err(format!("PE {me}, replay {round}: expected {want}").into());
        }
        world.barrier()?;
    }
    println!("PE {me}: 5 replays of 3 allreduces");
    Ok(())
}
