//! Each PE puts to the next PE and gets from the previous one, on a stream. `cargo run --release --example 01_ring_put_get`
//! runs it on all GPUs, or on simulated PEs if there is no GPU (`WEFT_ON=sim` selects them).

use std::error::Error;
use std::process::ExitCode;
use weft::runtime::{World, on_every_pe};

fn main() -> ExitCode {
    on_every_pe(ring)
}

pub(crate) fn ring(world: &World) -> Result<(), Box<dyn Error>> {
    let (me, n_pes, stream) = (world.my_pe(), world.n_pes(), world.stream());
    let (next, previous) = ((me + 1) % n_pes, (me + n_pes - 1) % n_pes);
    let n = 1 << 20;
    let mine: Vec<f32> = (0..n).map(|i| (me * 1000) as f32 + (i % 1000) as f32).collect();

    let source = world.tensor::<f32>(n)?; // collective: every PE has one
    let dest = world.zeros::<f32>(n)?;
    source.copy_from(&mine, stream)?;

    world.put(&dest, &source, next, stream)?;
    world.team().barrier(stream)?; // all puts have arrived
    let from_put = dest.to_vec(stream)?;

    world.get(&dest, &source, previous, stream)?;
    let from_get = dest.to_vec(stream)?;
    world.barrier()?; // no PE frees memory that another still reads

    let want: Vec<f32> = mine.iter().map(|x| x - (me * 1000) as f32 + (previous * 1000) as f32).collect();
    if from_put != want || from_get != want {
        return Err(format!("PE {me} has different data than PE {previous} sent").into());
    }
    println!("PE {me}: received {n} elements from PE {previous}, by its put and by this PE's get");
    Ok(())
}
