//! Registers memory that the program allocated itself as symmetric: other PEs access it without a
//! copy into the heap.

use std::error::Error;
use std::process::ExitCode;
use weft::runtime::{DeviceTensor, SymmetricTensor, World, on_every_pe};

fn main() -> ExitCode {
    on_every_pe(register)
}

pub(crate) fn register(world: &World) -> Result<(), Box<dyn Error>> {
    let (me, n_pes, stream) = (world.my_pe(), world.n_pes(), world.stream());
    let n = 1 << 20;

    // Allocate with CUDA's virtual memory functions, in the granularity that NVSHMEM can register.
    // (World::register_raw takes an address from another library.)
    let memory = world.vmm(n * 4)?;
    let buffer = world.register(memory)?; // collective
    let x = SymmetricTensor::<u32>::view(buffer, 0, n)?;

    let mine: Vec<u32> = (0..n as u32).map(|i| i * n_pes + me).collect();
    x.copy_from(&mine, stream)?;
    world.barrier()?;

    let next = (me + 1) % n_pes;
    let y = DeviceTensor::<u32>::zeros(x.layout(), stream)?; // this GPU's own
    world.get(&y, &x, next, stream)?;
    let want: Vec<u32> = (0..n as u32).map(|i| i * n_pes + next).collect();
    if y.to_vec(stream)? != want {
        return Err(format!("PE {me} read different data than PE {next} wrote").into());
    }
    println!("PE {me}: read {n} elements of PE {next}'s registered memory");
    world.barrier()?;
    Ok(())
}
