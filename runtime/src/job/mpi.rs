//! Connects over an MPI communicator, without variables (MPI 4.0: 6.4.2 for the ranks, 7.4.2 for
//! the hosts).

use std::net::{Ipv6Addr, TcpListener};

use mpi::traits::{Communicator, Root};

use super::control::Control;
use super::env::{Hub, Launcher, ProcessRank, local_name, port};
use super::secret::{Admission, Secret, once};
use super::spawn::random;
use crate::error::{Error, LAUNCHER, Result};
use std::sync::Arc;

/// The size of PE 0's broadcast: a number for the job, the port (0: a local socket), a secret, and
/// its host's name, padded with 0.
const BYTES: usize = 8 + 2 + SECRET + 256;
const SECRET: usize = 32;
/// The offset of the host's name.
const NAME: usize = 10 + SECRET;

impl ProcessRank {
    /// Determines the rank and the job from a communicator, whose ranks become the PEs. This call
    /// is *collective* over it.
    ///
    /// # Errors
    /// Fails if the communicator's numbers, or the name of PE 0's host, are invalid (R0201).
    pub fn from_mpi(communicator: &impl Communicator) -> Result<ProcessRank> {
        let bad = |what: &str| Error::new(LAUNCHER, format!("the MPI communicator has {what}"));
        let number = |n: i32| u32::try_from(n).map_err(|_| bad(&format!("the number {n}")));
        let (rank, size) = (number(communicator.rank())?, number(communicator.size())?);
        let host = communicator.split_shared(communicator.rank());
        let (local_rank, local_size) = (number(host.rank())?, number(host.size())?);

        let mut message = [0; BYTES];
        if rank == 0 {
            let id = random();
            message[..8].copy_from_slice(&id.to_le_bytes());
            message[10..NAME].copy_from_slice(&once()?);
            if local_size < size {
                message[8..10].copy_from_slice(&free_port(id).to_le_bytes());
                let name = nix::unistd::gethostname().unwrap_or_default();
                let name = name.as_encoded_bytes();
                let length = name.len().min(BYTES - NAME - 1);
                message[NAME..NAME + length].copy_from_slice(&name[..length]);
            }
        }
        communicator.process_at_rank(0).broadcast_into(&mut message[..]);

        let id = message[..8].iter().rev().fold(0, |id, &byte| id << 8 | u64::from(byte));
        let job = format!("mpi {id:016x}");
        let hub = match u16::from_le_bytes([message[8], message[9]]) {
            0 => Hub::Local(local_name(&job)),
            port => {
                let name = message[NAME..].split(|&byte| byte == 0).next().unwrap_or_default();
                let name = std::str::from_utf8(name).ok().filter(|name| !name.is_empty());
                Hub::Tcp(name.ok_or_else(|| bad("the host name of PE 0 is not known"))?.to_string(), port)
            }
        };
        let (local_rank, local_size) = (Some(local_rank), Some(local_size));
        let admission = Admission::Secret(Secret::new(&message[10..NAME]));
        Ok(ProcessRank { rank, size, local_rank, local_size, launcher: Launcher::Mpi, hub, job, admission })
    }
}

impl Control {
    /// Connects the ranks of this communicator, as [`Control::connect`] does. This call is
    /// *collective* over it.
    ///
    /// # Errors
    /// Fails where [`ProcessRank::from_mpi`] or [`Control::connect`] fails.
    pub fn from_mpi(communicator: &impl Communicator) -> Result<Arc<Control>> {
        Control::connect(&ProcessRank::from_mpi(communicator)?)
    }
}

/// A port that is free now.
fn free_port(id: u64) -> u16 {
    let listener =
        TcpListener::bind((Ipv6Addr::UNSPECIFIED, 0)).or_else(|_| TcpListener::bind(("0.0.0.0", 0)));
    let free = listener.and_then(|listener| listener.local_addr());
    free.map_or_else(|_| port(&id.to_string()), |address| address.port())
}
