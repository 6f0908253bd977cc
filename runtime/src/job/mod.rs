//! The PEs of a job start, find each other, agree, and end together.
//!
//! [`ProcessRank`] tells which PE this process is, for any launcher. [`Control`] connects it with
//! all others before (and beside) NVSHMEM. PE 0 runs the hub, which has a few threads that match
//! the calls of the PEs and notice when one is gone. [`start`] and [`Job`] start the PEs without a
//! launcher.

mod control;
mod doing;
mod door;
mod env;
mod hub;
#[cfg(feature = "mpi")]
mod mpi;
mod options;
mod output;
mod secret;
mod shm;
mod socket;
mod spawn;
mod sys;
mod wire;

#[cfg(fuzzing)]
#[doc(hidden)]
pub use wire::fuzz as fuzz_frames;

use std::io::IsTerminal;

pub use control::Control;
pub(crate) use doing::{fail, is_over, rank, report, words};
pub use env::{Hub, Launcher, ProcessRank};
pub use options::Options;
pub use secret::{Admission, Secret};
pub use spawn::{Job, Started, set_command, start};
pub(crate) use wire::Doing;

/// The exit status of a process that ended because another PE did (`EX_SOFTWARE` of sysexits.h).
pub const ENDED_WITH_PEER: u8 = 70;

/// Tells PE 0 that its output goes to a terminal, through the process that started it.
const TERMINAL: &str = "WEFT_TERMINAL";

/// Whether the standard output of this process goes to a terminal, directly or through the process
/// that started it as PE 0.
pub fn attended() -> bool {
    std::env::var_os(TERMINAL).is_some() || std::io::stdout().is_terminal()
}

/// Formats a list of PEs, such as "PE 3" or "PEs 0-2, 5".
pub(crate) fn pes(ranks: &[u32]) -> String {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for &rank in ranks {
        match runs.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(rank) => *last = rank,
            _ => runs.push((rank, rank)),
        }
    }
    let parts: Vec<String> = runs
        .iter()
        .map(|&(first, last)| match last - first {
            0 => first.to_string(),
            1 => format!("{first}, {last}"),
            _ => format!("{first}-{last}"),
        })
        .collect();
    format!("{} {}", if ranks.len() == 1 { "PE" } else { "PEs" }, parts.join(", "))
}

#[cfg(test)]
mod tests {
    #[test]
    fn ranks_are_named_in_runs() {
        assert_eq!(super::pes(&[3]), "PE 3");
        assert_eq!(super::pes(&[0, 1]), "PEs 0, 1");
        assert_eq!(super::pes(&[0, 1, 2, 5, 7, 8]), "PEs 0-2, 5, 7, 8");
        assert_eq!(super::pes(&[u32::MAX, 0]), "PEs 4294967295, 0");
    }
}
