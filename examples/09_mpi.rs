//! PEs of an existing MPI program: ranks and addresses come from its communicator, so no
//! environment variables are needed. `cargo build --release --features mpi --example 09_mpi &&
//! mpirun -n 2 target/release/examples/09_mpi`

use std::error::Error;
use std::process::ExitCode;
use weft::runtime::job::ProcessRank;
use weft::runtime::mpi;
use weft::runtime::{Config, Reduce, World};

fn main() -> ExitCode {
    let Some(universe) = mpi::initialize() else {
        eprintln!("MPI was already started");
        return ExitCode::FAILURE;
    };
    let started =
        ProcessRank::from_mpi(&universe.world()).and_then(|place| World::join(&place, &Config::default()));
    match started {
        Ok(world) => world.run(allreduce),
        Err(e) => {
            eprintln!("{e}");
            ExitCode::FAILURE
        }
    }
}

fn allreduce(world: &World) -> Result<(), Box<dyn Error>> {
    let (x, sum) = (world.tensor::<f64>(3)?, world.zeros::<f64>(3)?);
    x.copy_from(&[1.0, f64::from(world.my_pe()), 0.5], world.stream())?;
    world.team().reduce(Reduce::Sum, &sum, &x, world.stream())?;
    let n = f64::from(world.n_pes());
    let have = sum.to_vec(world.stream())?;
    if have != [n, n * (n - 1.0) / 2.0, n / 2.0] {
        return Err(format!("PE {}: {have:?}", world.my_pe()).into());
    }
    println!("PE {} of {n}, MPI ranks: {have:?}", world.my_pe());
    world.barrier()?;
    Ok(())
}
