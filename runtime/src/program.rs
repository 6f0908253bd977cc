//! Programs that are jobs: `main` of every PE.

use crate::cuda;
use crate::error::{Error, LAUNCHER, NO_GPU, Result};
use crate::job::{Started, start};
use crate::world::{Config, World};
use std::fmt::Display;
use std::process::ExitCode;

/// PEs that [`on_every_gpu`] starts, where that is not one for each GPU.
const PES: &str = "WEFT_PES";

/// Runs `body` as every PE: in the job that a launcher started (mpirun, torchrun, srun, `WEFT_RANK`), or else in one
/// process for each GPU of this host (or `WEFT_PES` of them) that this one starts, being no PE itself. Then finalizes.
///
/// An error is printed, ends all PEs, and fails the job.
///
/// ```no_run
/// fn main() -> std::process::ExitCode {
///     weft_runtime::on_every_gpu(|world| {
///         println!("PE {} of {}", world.my_pe(), world.n_pes());
///         world.barrier()
///     })
/// }
/// ```
pub fn on_every_gpu<E: Display>(body: impl FnOnce(&World) -> std::result::Result<(), E>) -> ExitCode {
    let place = match pes().and_then(start) {
        Ok(Started::Pe(place)) => place,
        Ok(Started::Done(status)) => return status,
        Err(e) => return failed(&e),
    };
    match World::join(&place, &Config::default()) {
        Ok(world) => world.run(body),
        Err(e) => failed(&e),
    }
}

impl World {
    /// Runs `body`, then finalizes: the rest of a program. An error is printed, and ends all PEs. *Collective.*
    pub fn run<E: Display>(self, body: impl FnOnce(&World) -> std::result::Result<(), E>) -> ExitCode {
        if let Err(e) = body(&self) {
            // Its own words are out before the others hear of it.
            let status = failed(&e);
            let text = e.to_string();
            self.fail(text.lines().next().unwrap_or_default());
            return status;
        }
        match self.finalize() {
            Ok(_) => ExitCode::SUCCESS,
            Err(e) => failed(&e),
        }
    }
}

fn failed(e: &impl Display) -> ExitCode {
    eprintln!("{e}");
    ExitCode::FAILURE
}

fn pes() -> Result<u32> {
    let count = cuda::device_count()?;
    let asked = match std::env::var(PES) {
        Err(_) => count,
        Ok(text) => text.parse().map_err(|_| {
            Error::new(LAUNCHER, format!("{PES} is {text:?}")).help("a number of PEs, at most one a GPU")
        })?,
    };
    match asked {
        0 => Err(Error::new(NO_GPU, "no GPU is seen").help("`weft doctor` says what this machine has")),
        n if n > count => Err(Error::new(NO_GPU, format!("{n} PEs, and {count} GPUs")).help("one PE a GPU")),
        n => Ok(n),
    }
}
