//! Starts a process for each GPU, and makes a communicator in each.

use std::error::Error;
use std::io::{Read, Write};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use warpweft_comm::{Comm, Id, Options};
use weft::runtime::cuda::device_count;

/// The communicator of a process, and the place of the process in it.
pub struct Rank {
    /// The number of this process among the ranks, which is also that of its GPU.
    pub rank: u32,
    /// The number of ranks.
    pub ranks: u32,
    /// The communicator of all ranks.
    pub comm: Arc<Comm>,
}

/// Calls `body` in a process for each GPU. A process that has no rank starts those that have one.
pub fn run(body: fn(Rank) -> Result<(), Box<dyn Error>>) -> ExitCode {
    let ran = match std::env::var("RANK").ok().and_then(|rank| rank.parse().ok()) {
        Some(rank) => joined(rank).and_then(body),
        None => start(),
    };
    ran.map_or_else(
        |e| {
            eprintln!("{e}");
            ExitCode::FAILURE
        },
        |()| ExitCode::SUCCESS,
    )
}

/// Starts the ranks, as mistral.rs starts its daemons, and sends them the id through a pipe.
fn start() -> Result<(), Box<dyn Error>> {
    let (ranks, id) = (device_count()?, Id::random()?);
    let mut children = Vec::new();
    for rank in 0..ranks {
        let mut command = Command::new(std::env::current_exe()?);
        command.env("RANK", rank.to_string()).env("RANKS", ranks.to_string()).stdin(Stdio::piped());
        let mut child = command.spawn()?;
        child.stdin.take().ok_or("no pipe")?.write_all(&id.0)?;
        children.push(child);
    }
    let statuses = children.iter_mut().map(|child| child.wait()).collect::<Result<Vec<_>, _>>()?;
    if statuses.iter().all(|status| status.success()) { Ok(()) } else { Err("a rank failed".into()) }
}

/// Makes the communicator of a rank, whose id comes through the pipe.
fn joined(rank: u32) -> Result<Rank, Box<dyn Error>> {
    let ranks: u32 = std::env::var("RANKS")?.parse()?;
    let mut id = Id([0; 128]);
    std::io::stdin().read_exact(&mut id.0)?;
    let comm = Arc::new(Comm::new(rank, ranks, &id, &Options::default().device(Some(rank)))?);
    Ok(Rank { rank, ranks, comm })
}
