//! Runs the kernel on every GPU of this machine, or on simulated PEs if there is none.

use std::error::Error;
use std::process::ExitCode;
use weft::gpu::{Grid, Kernel};
use weft::runtime::{World, on_every_pe};

/// The number of elements on each PE.
const N: usize = 4096;

/// The number of CTAs that each PE launches.
const CTAS: u32 = 8;

fn main() -> ExitCode {
    on_every_pe(run)
}

/// Runs the kernel on one PE and checks its result.
pub fn run(world: &World) -> Result<(), Box<dyn Error>> {
    let (me, stream) = (world.my_pe(), world.stream());
    let text = include_str!("../my_kernel.weft");
    let kernel = Kernel::compile(world, text, &[("N", (N as i64).into())])?;

    let x = world.tensor::<f32>(N)?;
    let out = world.zeros::<f32>(N)?;
    let barrier = world.kernel_barrier(CTAS)?;
    x.copy_from(&vec![me as f32 + 1.0; N], stream)?;
    kernel.launch(stream, Grid::of(CTAS), (&x, &out, &barrier, &world.team()))?;

    let expected = (1..=world.n_pes()).sum::<u32>() as f32;
    let result = out.to_vec(stream)?;
    if let Some(i) = result.iter().position(|value| *value != expected) {
        return Err(format!("PE {me}: element {i} is {}, expected {expected}", result[i]).into());
    }
    println!("PE {me}: the sum over {} PEs is {expected}", world.n_pes());
    world.barrier()?;
    Ok(())
}
