//! Programs that are jobs: the `main` function of every PE.

use crate::cuda;
use crate::error::{Error, LAUNCHER, NO_GPU, Result};
use crate::job::{ProcessRank, Started, start};
use crate::simulated::SimConfig;
use crate::world::{Config, World, gpus_are_shared};
use std::fmt::{self, Display};
use std::process::ExitCode;
use std::str::FromStr;

/// The variable for the number of PEs that [`on_every_pe`] starts, if it is not one for each GPU.
const PES: &str = "WEFT_PES";

/// The variable for the kind of PEs.
const ON: &str = "WEFT_ON";

/// The variable for the seed of simulated PEs.
const SEED: &str = "WEFT_SEED";

/// The default number of simulated PEs.
const SIMULATED_PES: u32 = 4;

/// The kind of PEs that a program runs on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum On {
    /// GPUs if there are any, or if a launcher has started the job; otherwise simulated PEs.
    #[default]
    Auto,
    /// The PEs are GPUs.
    Gpu,
    /// The PEs are threads of this process on the simulator.
    Sim,
}

impl FromStr for On {
    type Err = Error;

    fn from_str(text: &str) -> Result<On> {
        match text {
            "auto" => Ok(On::Auto),
            "gpu" => Ok(On::Gpu),
            "sim" => Ok(On::Sim),
            other => {
                Err(Error::new(LAUNCHER, format!("{ON} is {other:?}"))
                    .help("set it to `sim`, `gpu` or `auto`"))
            }
        }
    }
}

impl On {
    /// Reads the kind from `WEFT_ON`. Without it, the kind is [`Auto`](On::Auto).
    ///
    /// # Errors
    /// Fails for another text than `sim`, `gpu` and `auto` (R0201).
    pub fn from_env() -> Result<On> {
        std::env::var(ON).map_or(Ok(On::Auto), |text| text.parse())
    }

    /// Returns the kind, with `Auto` resolved for this machine.
    ///
    /// # Errors
    /// Fails if the variables that a launcher has set are inconsistent (R0201).
    pub fn resolve(self) -> Result<On> {
        Ok(match self {
            On::Auto if ProcessRank::detect()?.is_some() || cuda::device_count().is_ok_and(|n| n > 0) => {
                On::Gpu
            }
            On::Auto => On::Sim,
            chosen => chosen,
        })
    }
}

/// Runs `body` on every PE of the job, on GPUs or simulated PEs as `WEFT_ON` says, and finalizes.
///
/// * `gpu`: if a launcher (mpirun, torchrun, srun, `WEFT_RANK`) started the job, this process is one of its PEs. Otherwise
///   this process starts one process for each GPU of this host (or for `WEFT_PES` of them) and is no PE itself.
/// * `sim`: runs a thread of this process for each of `WEFT_PES` simulated PEs (4 if that is not set), with the schedule
///   that `WEFT_SEED` chooses (0 if that is not set).
/// * `auto`, or unset: uses GPUs if the host has any or a launcher started the job, otherwise simulated PEs, and then says
///   so on standard error.
///
/// An error is printed, ends all PEs, and fails the job.
///
/// ```
/// fn main() -> std::process::ExitCode {
///     weft_runtime::on_every_pe(|world| {
///         println!("PE {} of {}", world.my_pe(), world.n_pes());
///         world.barrier()
///     })
/// }
/// ```
pub fn on_every_pe<E: Display>(body: impl Fn(&World) -> std::result::Result<(), E> + Sync) -> ExitCode {
    let on = match On::from_env() {
        Ok(on) => on,
        Err(e) => return failed(&e),
    };
    match on.resolve() {
        Ok(On::Sim) => simulated(on, body),
        Ok(_) => on_gpus(body),
        Err(e) => failed(&e),
    }
}

/// Runs `body` like [`on_every_pe`], under the name that it had before.
pub fn on_every_gpu<E: Display>(body: impl Fn(&World) -> std::result::Result<(), E> + Sync) -> ExitCode {
    on_every_pe(body)
}

fn on_gpus<E: Display>(body: impl FnOnce(&World) -> std::result::Result<(), E>) -> ExitCode {
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

/// An error of a simulated PE that was already printed.
struct Printed(Error);

impl From<Error> for Printed {
    fn from(e: Error) -> Printed {
        eprintln!("{e}");
        Printed(e)
    }
}

impl Display for Printed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

fn simulated<E: Display>(on: On, body: impl Fn(&World) -> std::result::Result<(), E> + Sync) -> ExitCode {
    let job = number(PES, SIMULATED_PES).and_then(|n_pes| {
        let seed = number(SEED, 0)?;
        if on == On::Auto {
            eprintln!("no GPU is visible: using {n_pes} simulated PEs");
        }
        World::simulated_with(&SimConfig::new(n_pes).seed(seed))
    });
    let job = match job {
        Ok(job) => job,
        Err(e) => return failed(&e),
    };
    // The PE's own message is printed before the others learn of the failure.
    let ran = job.run(|world| {
        body(world).map_err(|e| {
            let text = e.to_string();
            eprintln!("{text}");
            Printed(Error::new(LAUNCHER, text.lines().next().unwrap_or_default()))
        })
    });
    if ran.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn number<T: FromStr>(variable: &str, unset: T) -> Result<T> {
    let Ok(text) = std::env::var(variable) else { return Ok(unset) };
    text.parse()
        .map_err(|_| Error::new(LAUNCHER, format!("{variable} is {text:?}")).help("set it to a whole number"))
}

impl World {
    /// Runs `body`, then finalizes. An error is printed, and ends all PEs. This call is
    /// *collective*.
    pub fn run<E: Display>(self, body: impl FnOnce(&World) -> std::result::Result<(), E>) -> ExitCode {
        if let Err(e) = body(&self) {
            // The PE's own message is printed before the others learn of the failure.
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
            Error::new(LAUNCHER, format!("{PES} is {text:?}"))
                .help("set it to a number of PEs, at most one for each GPU")
        })?,
    };
    match asked {
        0 => {
            Err(Error::new(NO_GPU, "no GPU is visible")
                .help("run `weft doctor` to see what this machine has"))
        }
        n if n > count && !gpus_are_shared() => {
            Err(Error::new(NO_GPU, format!("there are {n} PEs, but {count} GPUs"))
                .help("start at most one PE for each GPU"))
        }
        n => Ok(n),
    }
}
