//! Progress: the proof that a warp repeats itself, and the reports about machines that cannot
//! continue.
//!
//! If the registers of a group are the same as at an earlier pass through the same backward branch,
//! and no memory has changed in between, the group will repeat itself forever. Only a store by
//! another thread can end the loop. When every warp provably repeats itself or waits at a barrier,
//! no thread will store, and the machine is deadlocked. Loops that count (bounded spins) or read
//! the clock never repeat and are never reported.

mod awaited;
mod waits;

pub(crate) use awaited::Ending;
pub(crate) use waits::waiting;

use super::run::Run;
use super::warp::{Group, Snapshot, State};
use crate::codes;
use crate::error::SimError;
use crate::model::WarpSlot;
use waits::{finished, reads_once, waits};

/// Runs after a backward branch of group `i`: compares the group with its snapshot, and renews the
/// snapshot at growing distances.
pub(crate) fn probe(run: &mut Run, w: WarpSlot, i: usize) {
    if !run.is_probing() {
        return;
    }
    let changes = run.memory.changes;
    let warp = &mut run.warps[w];
    let (pc, mut old) = (warp.groups[i].pc, warp.groups[i].snapshot.take().filter(|s| s.changes == changes));
    if let Some(s) = &mut old {
        if s.pc == pc && warp.is_saved(i, &s.stack) {
            warp.groups[i].proven = changes + 1;
            return;
        }
        s.steps += 1;
    }
    let power = old.as_ref().map_or(1, |s| s.power);
    warp.groups[i].snapshot = match old {
        Some(s) if s.steps < s.power => Some(s),
        _ => {
            (warp.poll.fresh, warp.groups[i].poll.fresh) = (false, false);
            Some(Box::new(Snapshot {
                pc,
                stack: warp.save(i),
                power: power.saturating_mul(2),
                steps: 0,
                changes,
            }))
        }
    };
}

/// Notes about grids whose CTAs were not all resident.
fn residency(run: &Run) -> Vec<String> {
    let waiting = run.grids.iter().enumerate().filter(|(i, g)| g.next < g.total && run.may_start(*i));
    waiting
        .map(|(_, g)| g)
        .map(|g| {
            format!(
                "PE {}: {} of {} CTAs of `{}` have not started: at most {} of this size are resident at once, \
                 and those that wait for the others never end",
                g.pe,
                g.total - g.next,
                g.total,
                g.kernel().name,
                g.resident
            )
        })
        .collect()
}

/// Finds a CTA whose threads all wait at its barriers, so that no thread is left to complete one.
fn stuck_at_barriers(run: &Run, order: &[WarpSlot]) -> Option<WarpSlot> {
    let at_barrier = |w: WarpSlot| run.warps[w].groups.iter().all(|g| matches!(g.state, State::Barrier(_)));
    order.iter().copied().find(|&w| {
        let of_cta = |v: &&WarpSlot| run.warps[**v].cta == run.warps[w].cta;
        order.iter().filter(of_cta).all(|&v| at_barrier(v))
    })
}

/// Makes the error for a machine in which no warp can continue.
pub(crate) fn deadlock(run: &Run, order: &[WarpSlot]) -> SimError {
    // Launches that have begun early wait for those before them, which contain the cause.
    let begins = |w: &WarpSlot| run.follows_ended(run.ctas[run.warps[*w].cta].grid);
    let causes: Vec<WarpSlot> = order.iter().copied().filter(begins).collect();
    let groups = || causes.iter().flat_map(|&w| run.warps[w].groups.iter().map(move |g| (w, g)));
    // The thread at the earliest position in the text is the likely cause, and is the same one for
    // any seed.
    let behind = |(w, g): &(WarpSlot, &Group)| {
        let warp = &run.warps[*w];
        let at = &run.ctas[warp.cta].at;
        (if g.poll.valid { g.poll.pc.min(g.pc) } else { g.pc }, at.pe, at.ctaid, warp.index)
    };
    // Lanes that wait for other lanes of their warp, which are stuck at another such instruction.
    let all_stuck = |w: WarpSlot| run.warps[w].groups.iter().all(|g| g.state != State::Ready);
    let divergent = groups()
        .filter(|(w, g)| matches!(g.state, State::Converge(_) | State::Meet(_)) && all_stuck(*w))
        .min_by_key(behind);
    let absent = residency(run);
    let (mut error, culprit) = if let Some(found) = divergent {
        let message = "only part of a warp reaches a barrier or a warp-synchronous instruction";
        let help = "execute it where all threads of the warp, or of its member mask, reach it";
        (SimError::new(codes::BARRIER, message, help), Some(found))
    } else if let Some(w) = stuck_at_barriers(run, &causes) {
        let message = "a barrier of the CTA waits for threads that will not arrive: all remaining threads wait at barriers";
        let help = "let all threads that the barrier counts reach the same barrier, and equally often";
        let cta = run.warps[w].cta;
        let first = groups().filter(|(w, _)| run.warps[*w].cta == cta).min_by_key(behind);
        (SimError::new(codes::BARRIER, message, help), first)
    } else {
        let reader = groups().filter(|(_, g)| g.state == State::Ready).min_by_key(behind);
        let once = groups().filter(|(w, g)| reads_once(run, *w, g)).min_by_key(behind);
        let short = groups().filter(|(_, g)| lacks(run, g).is_some()).min_by_key(behind);
        let error = match (absent.is_empty(), once) {
            (true, Some((w, g))) => once_only(run, w, g),
            (true, None) if short.is_some() => unfilled(short.and_then(|(_, g)| lacks(run, g))),
            (true, None) => {
                let message = "deadlock: every remaining thread waits for a write that no thread will execute, or for a thread that \
                               also waits";
                let help = "look at what each thread waits for: usual causes are a signal that is not sent or goes to another PE, and \
                     epochs that differ";
                SimError::new(codes::DEADLOCK, message, help)
            }
            (false, _) => {
                let message = "deadlock: CTAs wait for CTAs of their grid that cannot start, since the grid is larger than \
                               the number of CTAs that are resident at once";
                let help = "launch no more CTAs than are resident at once (a cooperative launch rejects more), and let each \
                            do more work";
                SimError::new(codes::RESIDENCY, message, help)
            }
        };
        (error, once.or(short).or(reader).or_else(|| groups().min_by_key(behind)))
    };
    if let Some((w, g)) = culprit {
        let poll = &g.poll;
        let polls = g.state == State::Ready && poll.valid && run.warps[w].ticket(g.mask).is_none();
        let pc = if polls { poll.pc } else { g.pc };
        error.at = Some(Box::new(run.place(w, pc, Some(g.mask.trailing_zeros().min(31) as usize))));
    }
    error.notes = absent;
    error.notes.extend(waits(run, order));
    error.notes.push(finished(run, order));
    error
}

/// The missing bytes that a group waits for at an mbarrier, if all copies are complete and no more
/// threads will arrive.
fn lacks(run: &Run, g: &Group) -> Option<i64> {
    let poll = &g.poll;
    let at = poll.mbarrier.filter(|_| g.state == State::Ready && poll.valid)?;
    run.asynchronous.lacks(&run.memory, at)
}

/// The error for an mbarrier that expects more bytes than the copies bring.
fn unfilled(bytes: Option<i64>) -> SimError {
    let bytes = bytes.unwrap_or_default();
    let message = format!("deadlock: an mbarrier expects {bytes} more bytes, and no copy is in flight");
    let help =
        "pass mbarrier.arrive.expect_tx the bytes of exactly the copies that complete on this mbarrier";
    SimError::new(codes::DEADLOCK, message, help)
}

/// The error for a loop that waits for memory without reading it.
fn once_only(run: &Run, w: WarpSlot, g: &Group) -> SimError {
    let message = "deadlock: a loop waits for memory that it has read only once, before the loop";
    let code = run.code_of(w);
    let mnemonic = &code.mnemonics[code.insts[g.poll.pc as usize].mnemonic as usize];
    let strong = ["acquire", "relaxed", "volatile", "atom"].iter().any(|word| mnemonic.contains(word));
    let help = match strong {
        true => "read the memory in every iteration of the loop",
        false => {
            "read it with load<acquire> or load<relaxed> (ld.acquire, ld.relaxed): the compiler can move a plain load \
             out of a loop, since it assumes that no other thread writes the memory"
        }
    };
    SimError::new(codes::DEADLOCK, message, help)
}

/// The error for a launch that has used up its instructions or its time.
pub(crate) fn limit(run: &Run, order: &[WarpSlot], done: &str) -> SimError {
    let mut error = SimError::new(
        codes::STEP_LIMIT,
        format!("the launch {done} and was stopped"),
        "check whether it waits in a loop that counts or reads the clock; if it is only long, raise the limit: \
         --max-steps and --time-limit on the command line, `step_limit` and `time_limit` in `Config`",
    );
    error.notes = residency(run);
    error.notes.extend(waits(run, order));
    error
}
