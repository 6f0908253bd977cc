//! The connection of a PE with the others on the host: a job's connection, or the threads of a
//! simulated job.

use crate::error::Result;
use crate::job::Control;
use crate::simulated::Pe;
use std::sync::Arc;
use std::time::Duration;

#[derive(Clone)]
pub enum Peers {
    Job(Arc<Control>),
    Simulated(Pe),
}

impl Peers {
    /// The rank of this PE.
    pub fn rank(&self) -> u32 {
        match self {
            Peers::Job(control) => control.rank(),
            Peers::Simulated(pe) => pe.rank(),
        }
    }

    /// The number of PEs.
    pub fn size(&self) -> u32 {
        match self {
            Peers::Job(control) => control.size(),
            Peers::Simulated(pe) => pe.n_pes(),
        }
    }

    /// Returns the limit on waits.
    pub fn timeout(&self) -> Duration {
        match self {
            Peers::Job(control) => control.timeout(),
            Peers::Simulated(pe) => pe.bound(),
        }
    }

    /// Exchanges bytes with other PEs, as [`Control::exchange`] does.
    pub fn exchange(&self, members: &[u32], what: &str, payload: &[u8]) -> Result<Vec<Vec<u8>>> {
        match self {
            Peers::Job(control) => control.exchange(members, what, payload),
            Peers::Simulated(pe) => pe.exchange(members, what, payload, false),
        }
    }

    /// Exchanges bytes with other PEs, as [`Control::exchange_patiently`] does.
    pub fn exchange_patiently(&self, members: &[u32], what: &str, payload: &[u8]) -> Result<Vec<Vec<u8>>> {
        match self {
            Peers::Job(control) => control.exchange_patiently(members, what, payload),
            Peers::Simulated(pe) => pe.exchange(members, what, payload, true),
        }
    }

    /// Reports a failure to the other PEs, as [`Control::fail`] does.
    pub fn fail(&self, message: &str) {
        match self {
            Peers::Job(control) => control.fail(message),
            Peers::Simulated(pe) => pe.fail(message),
        }
    }

    /// Ends in order. The thread of a simulated PE says goodbye when it ends.
    pub fn goodbye(&self) {
        if let Peers::Job(control) = self {
            control.goodbye();
        }
    }

    /// The first known death, as the PE and the reason.
    pub fn died(&self) -> Option<(u32, String)> {
        match self {
            Peers::Job(control) => control.died(),
            Peers::Simulated(pe) => pe.died(),
        }
    }
}
