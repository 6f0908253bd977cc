//! PE 0 puts data with a signal after it; PE 1 waits for the signal and then reads the data. All
//! operations are on streams, so neither host waits in between.

use std::error::Error;
use std::process::ExitCode;
use weft::runtime::{Compare, SignalOp, World, on_every_pe};

fn main() -> ExitCode {
    on_every_pe(put_signal)
}

pub(crate) fn put_signal(world: &World) -> Result<(), Box<dyn Error>> {
    let (me, stream) = (world.my_pe(), world.stream());
    let receiver = 1 % world.n_pes();
    let source = world.tensor::<f32>([4, 4])?;
    let dest = world.zeros::<f32>([4, 4])?;
    let ready = world.signal()?;

    source.copy_from(&[me as f32 + 1.0; 16], stream)?;
    if me == 0 {
        world.put_signal(&dest, &source, (&ready, SignalOp::Set, 1), receiver, stream)?;
    }
    if me == receiver {
        world.signal_wait(&ready, Compare::Eq, 1, stream)?;
        let data = dest.to_vec(stream)?;
        if data != [1.0; 16] {
            return Err(format!("the signal arrived before the data: {data:?}").into());
        }
        println!("PE {me}: signal {} and data {:?}", ready.get(stream)?, &data[..4]);
    }
    world.barrier()?;
    Ok(())
}
