//! One-shot allreduce from a kernel's text, compiled at run time for the GPU of this machine, with
//! the switch if it supports that.

use half::bf16;
use std::error::Error;
use std::process::ExitCode;
use weft::gpu::{Grid, Kernel};
use weft::ir::Scalar;
use weft::runtime::{World, on_every_pe};

fn main() -> ExitCode {
    on_every_pe(allreduce)
}

pub(crate) fn allreduce(world: &World) -> Result<(), Box<dyn Error>> {
    let (me, n_pes, stream, team) = (world.my_pe(), world.n_pes(), world.stream(), world.team());
    let n = 8192;
    let source = include_str!("allreduce_one_shot.weft");
    let kernel = Kernel::compile(world, source, &[("N", (n as i64).into()), ("T", Scalar::BF16.into())])?;

    let x = world.tensor::<bf16>(n)?;
    let out = world.zeros::<bf16>(n)?;
    let barrier = world.kernel_barrier(16)?; // counters for 16 CTAs; any number of launches
    let data = |pe: u32| (0..n).map(move |i| bf16::from_f32((pe + 1) as f32 * (i % 16) as f32));
    x.copy_from(&data(me).collect::<Vec<_>>(), stream)?;

    kernel.launch(stream, Grid::of(16), (&x, &out, &barrier, &team))?;

    let want: Vec<f32> = (0..n).map(|i| (1..=n_pes).sum::<u32>() as f32 * (i % 16) as f32).collect();
    for (i, (have, want)) in out.to_vec(stream)?.iter().zip(&want).enumerate() {
        if have.to_f32() != bf16::from_f32(*want).to_f32() {
            return Err(format!("PE {me}: element {i} is {have}, expected {want}").into());
        }
    }
    println!("PE {me}: the sum of {n_pes} PEs, {n} elements");
    world.barrier()?;
    Ok(())
}
