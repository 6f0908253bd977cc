//! Exchanges of PEs on the host: the PEs meet, name their call, and exchange bytes.

use super::state::{State, Wait};
use crate::error::{COLLECTIVE, Error};
use crate::job::pes;
use std::collections::{BTreeMap, VecDeque};

/// The rounds by their members in ascending order.
#[derive(Default)]
pub(super) struct Exchanges(BTreeMap<Vec<u32>, VecDeque<Round>>);

/// One exchange. A member's k-th call in a group belongs to the group's k-th round.
#[derive(Default)]
struct Round {
    came: BTreeMap<u32, Call>,
    /// The reason why it will not complete; the members that have arrived were told.
    failed: Option<String>,
}

struct Call {
    waiter: u64,
    what: String,
    payload: Vec<u8>,
}

fn refused(message: String) -> Error {
    Error::new(COLLECTIVE, message)
        .help("make the same collective calls in the same order on every PE of the team")
}

impl State {
    /// Notes that a PE arrives at an exchange of some PEs; `waiter` gets the answer when all have
    /// arrived.
    pub fn come(&mut self, pe: u32, waiter: u64, members: &[u32], what: &str, payload: &[u8]) {
        let rounds = self.exchanges.0.entry(members.to_vec()).or_default();
        let at = rounds.partition_point(|round| round.came.contains_key(&pe));
        if at == rounds.len() {
            rounds.push_back(Round::default());
        }
        let round = &mut rounds[at];
        let late = round.failed.clone();
        round.came.insert(pe, Call { waiter, what: what.into(), payload: payload.to_vec() });
        if let Some(message) = late {
            self.answer_waiter(waiter, Err(refused(message)));
        }
        self.settle_exchanges();
    }

    /// Ends the exchanges that are complete, or that wait for a PE that has left.
    pub fn settle_exchanges(&mut self) {
        let mut groups = std::mem::take(&mut self.exchanges.0);
        groups.retain(|members, rounds| {
            for round in rounds.iter_mut().filter(|round| round.failed.is_none()) {
                self.settle_round(members, round);
            }
            while rounds.front().is_some_and(|round| round.came.len() == members.len()) {
                rounds.pop_front();
            }
            !rounds.is_empty()
        });
        self.exchanges.0 = groups;
    }

    fn settle_round(&mut self, members: &[u32], round: &mut Round) {
        let missing: Vec<u32> = members.iter().copied().filter(|m| !round.came.contains_key(m)).collect();
        let left: Vec<u32> = missing.iter().copied().filter(|m| self.hosts[*m as usize].left).collect();
        let mut whats = round.came.values().map(|call| &call.what);
        let first = whats.next();
        let failure = if !left.is_empty() {
            format!("{} already left the job; {}", pes(&left), calls(&round.came))
        } else if !missing.is_empty() {
            return;
        } else if whats.any(|what| Some(what) != first) {
            format!("the PEs made different calls: {}", calls(&round.came))
        } else {
            self.meet(members);
            let payloads: Vec<Vec<u8>> =
                round.came.values_mut().map(|call| std::mem::take(&mut call.payload)).collect();
            round.came.values().for_each(|call| self.answer_waiter(call.waiter, Ok(payloads.clone())));
            return;
        };
        self.refuse_round(round, failure);
    }

    fn refuse_round(&mut self, round: &mut Round, message: String) {
        round.came.values().for_each(|call| self.answer_waiter(call.waiter, Err(refused(message.clone()))));
        round.failed = Some(message);
    }

    /// Ends the exchange in which a thread waits.
    pub fn give_up(&mut self, waiter: u64, why: &str) {
        let mut groups = std::mem::take(&mut self.exchanges.0);
        for (members, rounds) in &mut groups {
            let is = |r: &&mut Round| r.failed.is_none() && r.came.values().any(|call| call.waiter == waiter);
            if let Some(round) = rounds.iter_mut().find(is) {
                let missing: Vec<u32> =
                    members.iter().copied().filter(|m| !round.came.contains_key(m)).collect();
                let message = format!("{} did not arrive: {why}; {}", pes(&missing), calls(&round.came));
                self.refuse_round(round, message);
            }
        }
        self.exchanges.0 = groups;
    }
}

/// Formats "PEs 0, 2: alloc 4096 B; PE 1: free #3", with equal calls together, in the order of
/// their first PE.
fn calls(came: &BTreeMap<u32, Call>) -> String {
    let mut by_what: Vec<(&str, Vec<u32>)> = Vec::new();
    for (pe, call) in came {
        match by_what.iter_mut().find(|(other, _)| *other == call.what) {
            Some((_, same)) => same.push(*pe),
            None => by_what.push((&call.what, vec![*pe])),
        }
    }
    let parts: Vec<String> = by_what.iter().map(|(what, same)| format!("{}: {what}", pes(same))).collect();
    parts.join("; ")
}

impl Wait {
    pub fn exchange(what: &str) -> Wait {
        Wait::Exchange(what.into())
    }
}
