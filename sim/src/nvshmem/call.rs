//! Calls: the threads that make one together, and those that wait.
//!
//! A call that has to wait gets a *ticket*, which its lanes carry until it is done: they stay at the instruction and
//! look again whenever memory has changed. A warp's call begins when all its lanes have come, a CTA's when all its
//! threads have; the function is then carried out once, and all of them go on.

use super::collective::Push;
use super::table::{FUNCTIONS, Function, Scope};
use super::watch::Notes;
use super::wire::{Overtaken, Wire};
use super::{Call, Step, Waiting, answer, argument};
use crate::check::clock::Clock;
use crate::exec::access::from_le;
use crate::exec::{Context, Fault, Flow, Operation};
use crate::memory::Memory;
use crate::model::{LANES, lanes};
use crate::order;
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// A call that has not been left by all its threads.
struct InProgress {
    f: &'static Function,
    args: [u64; 8],
    /// Thread that came first.
    first: [u32; 3],
    /// Threads that have come, and those of them that have not gone on.
    arrived: u32,
    present: u32,
    phase: Phase,
    waiting: Option<Waiting>,
    /// A buffer as the first thread found it, where NVSHMEM begins to read it then.
    found: Option<Vec<u8>>,
    notes: Notes,
}

enum Phase {
    Gathering,
    Running,
    Done(u64),
}

/// One PE's call of a collective function.
pub(super) struct Arrival {
    pub ticket: u64,
    pub f: &'static Function,
    /// What must be the same on all PEs.
    pub key: Vec<(&'static str, u64)>,
    pub pushes: Vec<Push>,
    /// What its threads knew, for the detector of races.
    pub clock: Option<Box<Clock>>,
}

/// NVSHMEM's state during a launch.
pub(crate) struct Nvshmem {
    pub(crate) wire: Wire,
    calls: FxHashMap<u64, InProgress>,
    last_ticket: u64,
    searches: u64,
    /// By team and member: who has come to the collective function under way.
    pub(super) rounds: Vec<Vec<Option<Arrival>>>,
    /// Calls by function.
    counts: Vec<u64>,
    pub(super) peer_access: bool,
    pub(super) multicast: bool,
}

impl Nvshmem {
    pub(crate) fn new(memory: &Memory, seed: u64) -> Nvshmem {
        let mut nvshmem = Nvshmem {
            wire: Wire::new(memory.n_pes, seed),
            calls: FxHashMap::default(),
            last_ticket: 0,
            searches: 0,
            rounds: Vec::new(),
            counts: Vec::new(),
            peer_access: true,
            multicast: true,
        };
        nvshmem.know_teams(memory);
        nvshmem
    }

    /// Teams that have been made since have collective functions too.
    pub(crate) fn know_teams(&mut self, memory: &Memory) {
        let new = memory.teams.iter().skip(self.rounds.len());
        self.rounds.extend(new.map(|t| t.members.iter().map(|_| None).collect::<Vec<_>>()));
    }

    /// What `nvshmem_ptr` and `nvshmemx_mc_ptr` answer.
    pub(crate) fn reach(&mut self, peer_access: bool, multicast: bool) {
        (self.peer_access, self.multicast) = (peer_access, multicast);
    }

    fn ticket(&mut self) -> u64 {
        self.last_ticket += 1;
        self.last_ticket
    }

    fn count(&mut self, f: &Function) {
        if self.counts.is_empty() {
            self.counts.resize(FUNCTIONS.list.len(), 0);
        }
        self.counts[f.index] += 1;
    }

    /// Calls by function, most called first.
    pub(crate) fn counts(&self) -> Vec<(String, u64)> {
        let called = FUNCTIONS.list.iter().zip(&self.counts).filter(|(_, n)| **n > 0);
        let mut out: Vec<(String, u64)> = called.map(|(f, n)| (f.name.clone(), *n)).collect();
        out.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        out
    }

    /// Where the next search among several elements begins.
    pub(super) fn next_start(&mut self) -> u64 {
        self.searches += 1;
        self.searches
    }

    /// Ends a call of another PE.
    pub(super) fn finish(&mut self, ticket: u64, result: u64, met: &Option<Arc<Clock>>) {
        if let Some(c) = self.calls.get_mut(&ticket) {
            c.notes.met.clone_from(met);
            c.phase = Phase::Done(result);
        }
    }

    /// What a call waits for, in words.
    pub(crate) fn describe(&self, ticket: u64, memory: &Memory, pe: usize, threads: u32) -> Option<String> {
        let c = self.calls.get(&ticket)?;
        let name = &c.f.name;
        Some(match (&c.phase, c.waiting) {
            (Phase::Gathering, _) => {
                let (n, scope) = (c.arrived, c.f.scope.name());
                format!("in `{name}` for the other threads of its {scope} ({n} of {threads} have come)")
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
                    format!(" (PE {from} set it to {first} and then {second}, which landed first: no fence is between)")
                });
                format!(
                    "in `{name}` for {what}{} {} {}; now {holds} {}{more}{overtaken}",
                    memory.describe(pe, addr),
                    super::signal::CMP.get(cmp as usize).copied().unwrap_or("?"),
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
                    "in `{name}` for PE{s} {} of team {members:?}, which {has} not called it",
                    missing.join(", ")
                )
            }
            _ => format!("in `{name}`"),
        })
    }
}

/// A call instruction whose function is built in.
pub(super) struct Builtin {
    pub f: &'static Function,
    /// Arguments and result in the frame.
    pub args: Vec<(u64, u64)>,
    pub result: Option<u64>,
}

impl Operation for Builtin {
    fn execute(&self, cx: &mut Context<'_>) -> Result<Flow, Fault> {
        if self.f.scope == Scope::Warp && cx.active != cx.live && lanes(cx.active).any(|l| cx.tickets[l] == 0)
        {
            return Ok(Flow::Converge(cx.live));
        }
        // NVSHMEM's functions see what their CTA has stored.
        cx.publish(order::Scope::Sys);
        let mut repeats = false;
        let staying = match self.f.scope {
            Scope::Thread => self.apart(cx, &mut repeats)?,
            Scope::Warp | Scope::Block => self.together(cx)?,
        };
        Ok(match staying {
            0 if repeats => Flow::Yield,
            0 => Flow::Next,
            _ => Flow::Stay(staying),
        })
    }
}

impl Builtin {
    fn args(&self, cx: &mut Context<'_>, lane: usize) -> Result<[u64; 8], Fault> {
        let mut out = [0; 8];
        for (arg, value) in self.args.iter().zip(&mut out) {
            *value = argument(cx, *arg, lane)?;
        }
        Ok(out)
    }

    /// Each lane for itself; returns those that wait.
    fn apart(&self, cx: &mut Context<'_>, repeats: &mut bool) -> Result<u32, Fault> {
        let mut staying = 0;
        let mut fences = (0, false);
        for lane in lanes(cx.active) {
            let mut ticket = cx.tickets[lane];
            let done = if ticket != 0 {
                self.advance(cx, ticket, lane, 1)?
            } else {
                let args = self.args(cx, lane)?;
                cx.nvshmem.count(self.f);
                ticket = cx.nvshmem.ticket();
                let mut call = Call::new(cx, self.f, args, lane, ticket);
                let step = (self.f.row.perform)(&mut call)?;
                *repeats |= call.repeats;
                let notes = std::mem::take(&mut call.notes);
                match step {
                    Step::Done(v) => {
                        cx.watch_return(1 << lane, &notes);
                        fences = notes.fence.map_or(fences, |quiet| (fences.0 | 1 << lane, quiet));
                        answer(cx, self.f, self.result, v, 1 << lane)?;
                        continue;
                    }
                    Step::Wait(waiting) => {
                        self.enter(cx, ticket, args, lane, Some((waiting, notes)));
                        None
                    }
                }
            };
            staying |= self.leave(cx, ticket, done, 1 << lane)?;
        }
        if fences.0 != 0 {
            cx.watch_fences(fences.0, fences.1);
        }
        Ok(staying)
    }

    /// Faults if threads of the group have ended or never were: each does its share of the work, as one of a full warp
    /// or of the whole CTA.
    fn none_missing(&self, cx: &mut Context<'_>, lane: usize, wanted: u32) -> Result<(), Fault> {
        let live = if self.f.scope == Scope::Warp { cx.live.count_ones() } else { cx.cta_live };
        if live == wanted {
            return Ok(());
        }
        let scope = self.f.scope.name();
        let call = Call::new(cx, self.f, [0; 8], lane, 0);
        let message =
            format_args!("the {scope} has {live} threads, and NVSHMEM shares the work among {wanted}");
        Err(call
            .fault(message, "call it where no thread has ended, a warp's function in warps of 32 threads"))
    }

    /// The lanes as part of their warp or CTA; returns those that wait.
    fn together(&self, cx: &mut Context<'_>) -> Result<u32, Fault> {
        let threads = cx.at.ntid.iter().product::<u32>();
        let wanted = if self.f.scope == Scope::Warp { threads.min(LANES as u32) } else { threads };
        let fresh = lanes(cx.active).filter(|&l| cx.tickets[l] == 0).fold(0, |m, l| m | 1 << l);
        if fresh != 0 {
            let known = if self.f.scope == Scope::Block { *cx.gathering } else { None };
            let ticket = known.unwrap_or_else(|| cx.nvshmem.ticket());
            for lane in lanes(fresh) {
                let args = self.args(cx, lane)?;
                if known.is_some() || cx.nvshmem.calls.contains_key(&ticket) {
                    self.join(cx, ticket, args, lane)?;
                } else {
                    self.enter(cx, ticket, args, lane, None);
                    let found = self.hasty(cx, ticket, args, lane)?;
                    if let Some(c) = cx.nvshmem.calls.get_mut(&ticket) {
                        c.found = found;
                    }
                }
            }
            let notes = cx.nvshmem.calls.get_mut(&ticket).map(|c| std::mem::take(&mut c.notes));
            let mut notes = notes.unwrap_or_default();
            cx.watch_arrival(fresh, &mut notes);
            if let Some(c) = cx.nvshmem.calls.get_mut(&ticket) {
                c.notes = notes;
            }
            if self.f.scope == Scope::Block {
                *cx.gathering = Some(ticket);
            }
        }
        let (mut staying, mut left) = (0, cx.active);
        while left != 0 {
            let lane = left.trailing_zeros() as usize;
            let ticket = cx.tickets[lane];
            let mine = lanes(left).filter(|&l| cx.tickets[l] == ticket).fold(0, |m, l| m | 1 << l);
            left &= !mine;
            let done = self.advance(cx, ticket, lane, wanted)?;
            staying |= self.leave(cx, ticket, done, mine)?;
        }
        Ok(staying)
    }

    /// The first lane of a call.
    fn enter(
        &self,
        cx: &mut Context<'_>,
        ticket: u64,
        args: [u64; 8],
        lane: usize,
        waits: Option<(Waiting, Notes)>,
    ) {
        let first = cx.at.tid(cx.thread(lane));
        let phase = if waits.is_some() { Phase::Running } else { Phase::Gathering };
        let (waiting, notes) = waits.map_or((None, Notes::default()), |(w, notes)| (Some(w), notes));
        let call =
            InProgress { f: self.f, args, first, arrived: 1, present: 1, phase, waiting, found: None, notes };
        cx.nvshmem.calls.insert(ticket, call);
        cx.tickets[lane] = ticket;
    }

    /// The buffer that the function begins to read before all threads have come.
    fn hasty(
        &self,
        cx: &mut Context<'_>,
        ticket: u64,
        args: [u64; 8],
        lane: usize,
    ) -> Result<Option<Vec<u8>>, Fault> {
        let Some((param, extent)) = self.f.row.hasty else { return Ok(None) };
        let mut call = Call::new(cx, self.f, args, lane, ticket);
        call.notes.silent = true;
        let bytes = extent(&call)?;
        let name = self.f.row.params.get(param).map_or("?", |(name, _)| name);
        call.load(name, args[param], bytes).map(Some)
    }

    /// A further lane of a call that others have begun.
    fn join(&self, cx: &mut Context<'_>, ticket: u64, args: [u64; 8], lane: usize) -> Result<(), Fault> {
        let me = cx.at.tid(cx.thread(lane));
        let Some(c) = cx.nvshmem.calls.get_mut(&ticket) else { return Ok(()) };
        c.arrived += 1;
        c.present += 1;
        let (first, f) = (c.first, c.f);
        let before = c.args;
        cx.tickets[lane] = ticket;
        let call = Call::new(cx, self.f, args, lane, ticket);
        let (scope, [x, y, z], [i, j, k]) = (self.f.scope.name(), me, first);
        if f.index != self.f.index {
            let message = format_args!(
                "called by thread ({x}, {y}, {z}) while thread ({i}, {j}, {k}) of the same {scope} is in `{}`",
                f.name
            );
            return Err(call.fault(message, "all threads of the group make the same call, together"));
        }
        match (0..self.args.len()).find(|&n| before[n] != args[n]) {
            None => Ok(()),
            Some(n) => {
                let name = self.f.row.params.get(n).map_or("?", |(name, _)| name);
                let message = format_args!(
                    "`{name}` differs between the threads of a {scope}: {:#x} in thread ({i}, {j}, {k}), {:#x} in thread \
                     ({x}, {y}, {z})",
                    before[n], args[n]
                );
                Err(call.fault(message, "all threads of the group make one call, with the same arguments"))
            }
        }
    }

    /// Carries a call as far as it goes; returns its result once it has one.
    fn advance(
        &self,
        cx: &mut Context<'_>,
        ticket: u64,
        lane: usize,
        wanted: u32,
    ) -> Result<Option<u64>, Fault> {
        let Some(c) = cx.nvshmem.calls.get_mut(&ticket) else { return Ok(Some(0)) };
        let begins = match c.phase {
            Phase::Done(v) => return Ok(Some(v)),
            Phase::Gathering if c.arrived < wanted => {
                self.none_missing(cx, lane, wanted)?;
                return Ok(None);
            }
            Phase::Gathering => true,
            Phase::Running => false,
        };
        c.phase = Phase::Running;
        let (args, waited) = (c.args, !begins);
        let (found, [x, y, z]) = (c.found.take(), c.first);
        if found.is_some() && found != self.hasty(cx, ticket, args, lane)? {
            let call = Call::new(cx, self.f, args, lane, ticket);
            let message = format_args!(
                "`src` has changed between the coming of thread ({x}, {y}, {z}) and that of the CTA's last threads"
            );
            let help =
                "NVSHMEM begins to read it as soon as a thread comes: put a CTA barrier in front of the call";
            return Err(call.fault(message, help));
        }
        if begins {
            if self.f.scope == Scope::Block {
                *cx.gathering = None;
            }
            cx.nvshmem.count(self.f);
        }
        let notes = cx.nvshmem.calls.get_mut(&ticket).map(|c| std::mem::take(&mut c.notes));
        let mut call = Call::new(cx, self.f, args, lane, ticket);
        (call.waited, call.notes) = (waited, notes.unwrap_or_default());
        let step = (self.f.row.perform)(&mut call)?;
        let notes = std::mem::take(&mut call.notes);
        let Some(c) = cx.nvshmem.calls.get_mut(&ticket) else { return Ok(Some(0)) };
        c.notes = notes;
        match step {
            Step::Done(v) => {
                c.phase = Phase::Done(v);
                // The group's other threads look again.
                cx.memory.changes += 1;
                Ok(Some(v))
            }
            Step::Wait(waiting) => {
                c.waiting = Some(waiting);
                Ok(None)
            }
        }
    }

    /// Lets the lanes of a call go on if it is done; returns those that stay.
    fn leave(&self, cx: &mut Context<'_>, ticket: u64, done: Option<u64>, mask: u32) -> Result<u32, Fault> {
        let Some(value) = done else { return Ok(mask) };
        answer(cx, self.f, self.result, value, mask)?;
        let notes = cx.nvshmem.calls.get_mut(&ticket).map(|c| std::mem::take(&mut c.notes));
        let notes = notes.unwrap_or_default();
        for lane in lanes(mask) {
            cx.tickets[lane] = 0;
        }
        cx.watch_return(mask, &notes);
        if let Some(c) = cx.nvshmem.calls.get_mut(&ticket) {
            c.notes = notes;
        }
        if let Some(c) = cx.nvshmem.calls.get_mut(&ticket) {
            c.present = c.present.saturating_sub(mask.count_ones());
            if c.present == 0 {
                cx.nvshmem.calls.remove(&ticket);
            }
        }
        Ok(0)
    }
}
