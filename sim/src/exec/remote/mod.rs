//! Pending NVSHMEM operations ([`wire`]), and calls that not all threads have left: the state that
//! a machine keeps while it runs other instructions. [`crate::nvshmem`] has the functions
//! themselves.

pub(crate) mod notes;
pub(crate) mod wire;

use super::access::from_le;
use crate::check::clock::Clock;
use crate::memory::Memory;
use crate::types::Ty;
use notes::Notes;
use rustc_hash::FxHashMap;
use std::sync::Arc;
use wire::{Overtaken, Wire};

/// The comparisons by number (`NVSHMEM_CMP_EQ` and so on).
pub(crate) const CMP: [&str; 6] = ["=", "!=", ">", "<=", "<", ">="];

/// The threads that make a call together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    Thread,
    Warp,
    Block,
}

impl Scope {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Scope::Thread => "thread",
            Scope::Warp => "warp",
            Scope::Block => "CTA",
        }
    }
}

/// The name of an NVSHMEM function.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Named {
    /// The number of the function among all functions.
    pub index: usize,
    pub name: &'static str,
    pub scope: Scope,
}

/// The condition that a call waits for, to be reported if it waits forever.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Waiting {
    /// A comparison that one of `count` elements must fulfil; `addr` is the address of the first.
    Memory { addr: u64, count: u64, ty: Ty, cmp: i32, value: u64 },
    /// The arrival of the other PEs of a team.
    Team(usize),
}

/// The data that a PE's call writes to a peer: heap offset and bytes.
pub(crate) struct Push {
    pub to: usize,
    pub at: u64,
    pub data: Vec<u8>,
}

/// A call that not all of its threads have left.
pub(crate) struct InProgress {
    pub f: Named,
    pub args: [u64; 8],
    /// The thread that arrived first.
    pub first: [u32; 3],
    /// The number of arrived threads, and of those that are still in the call.
    pub arrived: u32,
    pub present: u32,
    pub phase: Phase,
    pub waiting: Option<Waiting>,
    /// The contents of a buffer when the first thread arrived, if NVSHMEM begins to read it then.
    pub found: Option<Vec<u8>>,
    pub notes: Notes,
}

pub(crate) enum Phase {
    Gathering,
    Running,
    Done(u64),
}

/// One PE's call of a collective function.
pub(crate) struct Arrival {
    pub ticket: u64,
    pub f: Named,
    /// The values that must be equal on all PEs.
    pub key: Vec<(&'static str, u64)>,
    pub pushes: Vec<Push>,
    /// For the race detector, the knowledge of its threads.
    pub clock: Option<Box<Clock>>,
}

/// The pending NVSHMEM operations, and the calls that wait, during a launch.
pub(crate) struct Remote {
    pub(crate) wire: Wire,
    pub calls: FxHashMap<u64, InProgress>,
    last_ticket: u64,
    searches: u64,
    /// By team and member, the PEs that have arrived at the current collective function.
    pub(crate) rounds: Vec<Vec<Option<Arrival>>>,
    /// The names of functions and the numbers of their calls, by function number.
    counts: Vec<(&'static str, u64)>,
    pub(crate) peer_access: bool,
    pub(crate) multicast: bool,
}

impl Remote {
    pub(crate) fn new(memory: &Memory, seed: u64) -> Remote {
        let mut remote = Remote {
            wire: Wire::new(memory.n_pes, seed),
            calls: FxHashMap::default(),
            last_ticket: 0,
            searches: 0,
            rounds: Vec::new(),
            counts: Vec::new(),
            peer_access: true,
            multicast: true,
        };
        remote.know_teams(memory);
        remote
    }

    /// Adds the teams that were created after the launch began, which have collective functions
    /// too.
    pub(crate) fn know_teams(&mut self, memory: &Memory) {
        let new = memory.teams.iter().skip(self.rounds.len());
        self.rounds.extend(new.map(|t| t.members.iter().map(|_| None).collect::<Vec<_>>()));
    }

    /// Sets the results of `nvshmem_ptr` and `nvshmemx_mc_ptr`.
    pub(crate) fn reach(&mut self, peer_access: bool, multicast: bool) {
        (self.peer_access, self.multicast) = (peer_access, multicast);
    }

    /// Returns the number of a new call.
    pub(crate) fn ticket(&mut self) -> u64 {
        self.last_ticket += 1;
        self.last_ticket
    }

    /// Counts a call.
    pub(crate) fn count(&mut self, f: Named) {
        if self.counts.len() <= f.index {
            self.counts.resize(f.index + 1, ("", 0));
        }
        let (name, calls) = &mut self.counts[f.index];
        (*name, *calls) = (f.name, *calls + 1);
    }

    /// The number of calls of each function, with the most frequent first.
    pub(crate) fn counts(&self) -> Vec<(String, u64)> {
        let called = self.counts.iter().filter(|(_, n)| *n > 0);
        let mut out: Vec<(String, u64)> = called.map(|(name, n)| ((*name).to_owned(), *n)).collect();
        out.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        out
    }

    /// The index at which the next search among several elements begins.
    pub(crate) fn next_start(&mut self) -> u64 {
        self.searches += 1;
        self.searches
    }

    /// Ends a call of another PE.
    pub(crate) fn finish(&mut self, ticket: u64, result: u64, met: &Option<Arc<Clock>>) {
        if let Some(c) = self.calls.get_mut(&ticket) {
            c.notes.met.clone_from(met);
            c.phase = Phase::Done(result);
        }
    }

    /// Describes the wait of a call.
    pub(crate) fn describe(&self, ticket: u64, memory: &Memory, pe: usize, threads: u32) -> Option<String> {
        let c = self.calls.get(&ticket)?;
        let name = c.f.name;
        Some(match (&c.phase, c.waiting) {
            (Phase::Gathering, _) => {
                let (n, scope) = (c.arrived, c.f.scope.name());
                format!(
                    "waits in `{name}` for the other threads of its {scope} ({n} of {threads} have arrived)"
                )
            }
            (_, Some(Waiting::Memory { addr, count, ty, cmp, value })) => {
                let size = ty.bytes() as u64;
                let shown: Vec<String> = (0..count.min(4))
                    .filter_map(|i| {
                        let at = memory.spot(pe, addr + i * size, size, false).ok()?;
                        Some(ty.extend(from_le(memory.at(at, size as usize))).to_string())
                    })
                    .collect();
                let (what, holds) = if count > 1 {
                    (format!("any of {count} at "), "hold")
                } else {
                    (String::new(), "holds")
                };
                let more = if count > 4 { ", ..." } else { "" };
                let offset = memory.symmetric(pe, addr, size).ok();
                let overtaken = offset.and_then(|at| self.wire.overtaken(pe, at)).map_or(String::new(), |o| {
                    let Overtaken { from, first, second } = o;
                    format!(" (PE {from} set it to {first} and then to {second}, and {second} arrived first: there is no fence between them)")
                });
                format!(
                    "waits in `{name}` until {what}{} {} {}; now {holds} {}{more}{overtaken}",
                    memory.describe(pe, addr),
                    CMP.get(cmp as usize).copied().unwrap_or("?"),
                    ty.extend(value),
                    shown.join(", ")
                )
            }
            (_, Some(Waiting::Team(team))) => {
                let members = memory.teams.get(team).map_or(&[][..], |t| &t.members);
                let round = self.rounds.get(team).map_or(&[][..], Vec::as_slice);
                let missing = members.iter().zip(round).filter(|(_, a)| a.is_none());
                let missing: Vec<String> = missing.map(|(pe, _)| pe.to_string()).collect();
                let (s, has) = if missing.len() == 1 { ("", "has") } else { ("s", "have") };
                format!(
                    "waits in `{name}` for PE{s} {} of team {members:?}, which {has} not called it",
                    missing.join(", ")
                )
            }
            _ => format!("waits in `{name}`"),
        })
    }
}
