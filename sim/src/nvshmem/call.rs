//! Calls: the threads that make a call together, and those that wait.
//!
//! A call that has to wait gets a *ticket*, which its lanes keep until it is complete. They stay at
//! the instruction and try again whenever memory has changed. A warp's call begins when all its
//! lanes have arrived, and a CTA's when all its threads have. The function is then executed once,
//! and all of them continue.

use super::table::Function;
use super::{Call, Step, answer, argument};
use crate::exec::remote::notes::Notes;
use crate::exec::remote::{InProgress, Phase, Scope, Waiting};
use crate::exec::{Context, Fault, Flow, Operation};
use crate::model::{LANES, lanes};
use crate::order;

/// A call instruction whose function is built in.
pub(super) struct Builtin {
    pub f: &'static Function,
    /// The locations of arguments and result in the frame.
    pub args: Vec<(u64, u64)>,
    pub result: Option<u64>,
}

impl Operation for Builtin {
    fn execute(&self, cx: &mut Context<'_>) -> Result<Flow, Fault> {
        if self.f.scope == Scope::Warp && cx.active != cx.live && lanes(cx.active).any(|l| cx.tickets[l] == 0)
        {
            return Ok(Flow::Converge(cx.live));
        }
        // NVSHMEM functions see the stores of their CTA.
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

    /// Executes the call for each lane separately. Returns the lanes that wait.
    fn apart(&self, cx: &mut Context<'_>, repeats: &mut bool) -> Result<u32, Fault> {
        let mut staying = 0;
        let mut fences = (0, false);
        for lane in lanes(cx.active) {
            let mut ticket = cx.tickets[lane];
            let done = if ticket != 0 {
                self.advance(cx, ticket, lane, 1)?
            } else {
                let args = self.args(cx, lane)?;
                cx.remote.count(self.f.named());
                ticket = cx.remote.ticket();
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

    /// Faults if threads of the group have ended or do not exist, since each does its share of the
    /// work of a full warp or of the whole CTA.
    fn none_missing(&self, cx: &mut Context<'_>, lane: usize, wanted: u32) -> Result<(), Fault> {
        let live = if self.f.scope == Scope::Warp { cx.live.count_ones() } else { cx.cta_live };
        if live == wanted {
            return Ok(());
        }
        let scope = self.f.scope.name();
        let call = Call::new(cx, self.f, [0; 8], lane, 0);
        let message = format_args!(
            "the {scope} has {live} running threads, but NVSHMEM divides the work among {wanted}"
        );
        Err(call
            .fault(message, "call it before any thread of the group ends, and call a warp function only in warps of 32 threads"))
    }

    /// Executes the call for the lanes as part of their warp or CTA. Returns the lanes that wait.
    fn together(&self, cx: &mut Context<'_>) -> Result<u32, Fault> {
        let threads = cx.at.ntid.iter().product::<u32>();
        let wanted = if self.f.scope == Scope::Warp { threads.min(LANES as u32) } else { threads };
        let fresh = lanes(cx.active).filter(|&l| cx.tickets[l] == 0).fold(0, |m, l| m | 1 << l);
        if fresh != 0 {
            let known = if self.f.scope == Scope::Block { *cx.gathering } else { None };
            let ticket = known.unwrap_or_else(|| cx.remote.ticket());
            for lane in lanes(fresh) {
                let args = self.args(cx, lane)?;
                if known.is_some() || cx.remote.calls.contains_key(&ticket) {
                    self.join(cx, ticket, args, lane)?;
                } else {
                    self.enter(cx, ticket, args, lane, None);
                    let found = self.hasty(cx, ticket, args, lane)?;
                    if let Some(c) = cx.remote.calls.get_mut(&ticket) {
                        c.found = found;
                    }
                }
            }
            let notes = cx.remote.calls.get_mut(&ticket).map(|c| std::mem::take(&mut c.notes));
            let mut notes = notes.unwrap_or_default();
            cx.watch_arrival(fresh, &mut notes);
            if let Some(c) = cx.remote.calls.get_mut(&ticket) {
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

    /// Begins a call with its first lane.
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
        let call = InProgress {
            f: self.f.named(),
            args,
            first,
            arrived: 1,
            present: 1,
            phase,
            waiting,
            found: None,
            notes,
        };
        cx.remote.calls.insert(ticket, call);
        cx.tickets[lane] = ticket;
    }

    /// Returns the buffer that the function begins to read before all threads have arrived.
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

    /// Adds another lane to a call that has begun.
    fn join(&self, cx: &mut Context<'_>, ticket: u64, args: [u64; 8], lane: usize) -> Result<(), Fault> {
        let me = cx.at.tid(cx.thread(lane));
        let Some(c) = cx.remote.calls.get_mut(&ticket) else { return Ok(()) };
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
            return Err(call.fault(message, "let all threads of the group make the same call together"));
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
                Err(call.fault(message, "let all threads of the group make the call with the same arguments"))
            }
        }
    }

    /// Advances a call as far as possible. Returns its result once it has one.
    fn advance(
        &self,
        cx: &mut Context<'_>,
        ticket: u64,
        lane: usize,
        wanted: u32,
    ) -> Result<Option<u64>, Fault> {
        let Some(c) = cx.remote.calls.get_mut(&ticket) else { return Ok(Some(0)) };
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
                "`src` changed after thread ({x}, {y}, {z}) made the call and before the last threads of the CTA made it"
            );
            let help = "put a CTA barrier before the call: NVSHMEM begins to read as soon as the first thread calls it";
            return Err(call.fault(message, help));
        }
        if begins {
            if self.f.scope == Scope::Block {
                *cx.gathering = None;
            }
            cx.remote.count(self.f.named());
        }
        let notes = cx.remote.calls.get_mut(&ticket).map(|c| std::mem::take(&mut c.notes));
        let mut call = Call::new(cx, self.f, args, lane, ticket);
        (call.waited, call.notes) = (waited, notes.unwrap_or_default());
        let step = (self.f.row.perform)(&mut call)?;
        let notes = std::mem::take(&mut call.notes);
        let Some(c) = cx.remote.calls.get_mut(&ticket) else { return Ok(Some(0)) };
        c.notes = notes;
        match step {
            Step::Done(v) => {
                c.phase = Phase::Done(v);
                // The group's other threads try again.
                cx.memory.changes += 1;
                Ok(Some(v))
            }
            Step::Wait(waiting) => {
                c.waiting = Some(waiting);
                Ok(None)
            }
        }
    }

    /// Lets the lanes of a call continue if it is complete. Returns those that stay.
    fn leave(&self, cx: &mut Context<'_>, ticket: u64, done: Option<u64>, mask: u32) -> Result<u32, Fault> {
        let Some(value) = done else { return Ok(mask) };
        answer(cx, self.f, self.result, value, mask)?;
        let notes = cx.remote.calls.get_mut(&ticket).map(|c| std::mem::take(&mut c.notes));
        let notes = notes.unwrap_or_default();
        for lane in lanes(mask) {
            cx.tickets[lane] = 0;
        }
        cx.watch_return(mask, &notes);
        if let Some(c) = cx.remote.calls.get_mut(&ticket) {
            c.notes = notes;
        }
        if let Some(c) = cx.remote.calls.get_mut(&ticket) {
            c.present = c.present.saturating_sub(mask.count_ones());
            if c.present == 0 {
                cx.remote.calls.remove(&ticket);
            }
        }
        Ok(0)
    }
}
