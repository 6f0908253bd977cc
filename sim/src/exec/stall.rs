//! Progress: proof that a warp repeats itself, and reports on machines that cannot go on.
//!
//! A group whose registers are the same as at an earlier pass through the same backward branch, while no memory
//! has changed in between, will do the same for ever: only another's store can free it. When every warp is
//! proven to repeat itself or waits at a barrier, nobody will store, and the machine is deadlocked. Loops that
//! count (bounded spins) or read the clock never repeat and are never reported.

use super::run::Run;
use super::warp::{Group, Snapshot, State};
use crate::error::SimError;
use std::collections::BTreeMap;

/// Lines of a report.
const LISTED: usize = 24;

/// Called after a backward branch of group `i`: compares with its snapshot and renews it at growing distances.
pub(crate) fn probe(run: &mut Run, w: usize, i: usize) {
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
        _ => Some(Box::new(Snapshot {
            pc,
            stack: warp.save(i),
            power: power.saturating_mul(2),
            steps: 0,
            changes,
        })),
    };
}

/// What a group waits for. The order is that of a report: causes before consequences.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Wait {
    Memory(String),
    Nothing(String),
    Lanes(String),
    Barrier(String),
}

/// What each waiting group waits for; warps of a CTA that wait for the same share a line.
fn waits(run: &Run, order: &[usize]) -> Vec<String> {
    let mut all: BTreeMap<(Wait, usize, [u32; 3]), Vec<String>> = BTreeMap::new();
    let mut sorted = order.to_vec();
    sorted.sort_unstable_by_key(|&w| run.warps[w].index);
    for w in sorted {
        let warp = &run.warps[w];
        let at = &run.ctas[warp.cta].at;
        for g in &warp.groups {
            let lanes = if g.mask == warp.live { String::new() } else { format!(" lanes {:#010x}", g.mask) };
            let [x, y, z] = at.ctaid;
            all.entry((wait(run, w, g), at.pe, [z, y, x]))
                .or_default()
                .push(format!("{}{lanes}", warp.index));
        }
    }
    let total = all.len();
    let line = |((wait, pe, [z, y, x]), warps): ((Wait, usize, [u32; 3]), Vec<String>)| {
        let (Wait::Memory(text) | Wait::Nothing(text) | Wait::Lanes(text) | Wait::Barrier(text)) = wait;
        let s = if warps.len() == 1 { "" } else { "s" };
        let shown = warps.iter().take(8).map(String::as_str).collect::<Vec<_>>().join(", ");
        let more = if warps.len() > 8 { format!(" and {} more", warps.len() - 8) } else { String::new() };
        format!("PE {pe} CTA ({x}, {y}, {z}) warp{s} {shown}{more}: {text}")
    };
    let mut out: Vec<String> = all.into_iter().take(LISTED).map(line).collect();
    if total > LISTED {
        out.push(format!("... and {} more waits, of {} warps in all", total - LISTED, order.len()));
    }
    out
}

fn wait(run: &Run, w: usize, g: &Group) -> Wait {
    let warp = &run.warps[w];
    let cta = &run.ctas[warp.cta];
    let place = |pc: u32| {
        let code = run.code_of(w);
        let inst = &code.insts[pc as usize];
        let source = code.source(inst).first().map_or(String::new(), |s| format!("{s}, "));
        format!("{source}PTX line {}: {}", inst.line, code.line(inst.line))
    };
    if let Some(ticket) = warp.ticket(g.mask) {
        let what = run.nvshmem.describe(ticket, &run.memory, cta.at.pe, cta.at.ntid.iter().product());
        return Wait::Memory(format!("{}, {}", what.unwrap_or_default(), place(g.pc)));
    }
    match g.state {
        State::Barrier(a) => {
            let b = &cta.barriers[a.id as usize];
            let wanted = a.count.unwrap_or(cta.live);
            Wait::Barrier(format!(
                "at barrier {} ({} of {wanted} threads arrived), {}",
                a.id,
                b.lanes,
                place(g.pc)
            ))
        }
        State::Cluster => Wait::Barrier(format!("{}, {}", run.describe_cluster(warp.cta), place(g.pc))),
        State::Converge(needed) | State::Meet(needed) => {
            let missing = needed & warp.live & !g.mask;
            Wait::Lanes(format!("waits for lanes {missing:#010x} of its warp, {}", place(g.pc)))
        }
        State::Ready if warp.pipe.waits() => {
            let what = "waits for the other warps of its warpgroup to begin the same wgmma.mma_async";
            Wait::Barrier(format!("{what}, {}", place(g.pc)))
        }
        State::Ready if warp.poll.valid => {
            let p = warp.poll;
            if let Some(at) = p.mbarrier {
                let name = run
                    .shared_variable(w, at.at as u64)
                    .filter(|_| at.buffer == run.memory.shared_buffer(warp.cta));
                let phase = run.asynchronous.describe(&run.memory, at);
                return Wait::Memory(format!(
                    "waits at the mbarrier at shared {:#x}{}, whose {phase}, {}",
                    at.at,
                    name.unwrap_or_default(),
                    place(p.pc)
                ));
            }
            let what = if p.shared {
                format!("shared {:#x}", p.addr)
            } else {
                run.memory.describe(cta.at.pe, p.addr)
            };
            Wait::Memory(format!("reads {what} = {:#x} again and again, {}", p.value, place(p.pc)))
        }
        State::Ready => Wait::Nothing(format!("loops without reading memory, {}", place(g.pc))),
    }
}

/// What a group waits for: in a few words, and all that is known.
pub(crate) fn waiting(run: &Run, w: usize, g: &Group) -> (String, String) {
    let warp = &run.warps[w];
    let (Wait::Memory(detail) | Wait::Nothing(detail) | Wait::Lanes(detail) | Wait::Barrier(detail)) =
        wait(run, w, g);
    let p = warp.poll;
    let what = match g.state {
        _ if warp.ticket(g.mask).is_some() => "NVSHMEM".to_owned(),
        State::Barrier(a) => format!("barrier {}", a.id),
        State::Cluster => "barrier of the cluster".to_owned(),
        State::Converge(_) | State::Meet(_) => "lanes of its warp".to_owned(),
        State::Ready if p.valid && p.shared => format!("polls shared {:#x}", p.addr),
        State::Ready if p.valid => {
            let place = run.memory.describe(run.ctas[warp.cta].at.pe, p.addr);
            format!("polls {}", place.split(" (").next().unwrap_or_default().replace('`', ""))
        }
        State::Ready => "loops".to_owned(),
    };
    (what, detail)
}

/// Remarks on grids of which not all CTAs were resident.
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

/// A CTA whose threads all wait at its barriers: nobody is left to complete one.
fn stuck_at_barriers(run: &Run, order: &[usize]) -> Option<usize> {
    let at_barrier = |w: usize| run.warps[w].groups.iter().all(|g| matches!(g.state, State::Barrier(_)));
    order.iter().copied().find(|&w| {
        let of_cta = |v: &&usize| run.warps[**v].cta == run.warps[w].cta;
        order.iter().filter(of_cta).all(|&v| at_barrier(v))
    })
}

/// No warp can go on.
pub(crate) fn deadlock(run: &Run, order: &[usize]) -> SimError {
    let groups = || order.iter().flat_map(|&w| run.warps[w].groups.iter().map(move |g| (w, g)));
    // Who is furthest behind in the text is the likely cause; and whatever the seed, the same one.
    let behind = |(w, g): &(usize, &Group)| {
        let warp = &run.warps[*w];
        let at = &run.ctas[warp.cta].at;
        (if warp.poll.valid { warp.poll.pc.min(g.pc) } else { g.pc }, at.pe, at.ctaid, warp.index)
    };
    // Lanes that wait for others of their warp, which are stuck at another such place.
    let all_stuck = |w: usize| run.warps[w].groups.iter().all(|g| g.state != State::Ready);
    let divergent = groups()
        .filter(|(w, g)| matches!(g.state, State::Converge(_) | State::Meet(_)) && all_stuck(*w))
        .min_by_key(behind);
    let absent = residency(run);
    let (mut error, culprit) = if let Some(found) = divergent {
        let message = "a barrier or warp-synchronous instruction is reached by part of a warp only";
        let help = "execute it where all threads of the warp (those of the member mask) come along";
        (SimError::new("S007", message, help), Some(found))
    } else if let Some(w) = stuck_at_barriers(run, order) {
        let message =
            "a barrier of the CTA waits for threads that will not come: all that are left wait at barriers";
        let help = "let all threads that the barrier counts reach the same barrier, as often as each other";
        let cta = run.warps[w].cta;
        let first = groups().filter(|(w, _)| run.warps[*w].cta == cta).min_by_key(behind);
        (SimError::new("S007", message, help), first)
    } else {
        let reader = groups().filter(|(_, g)| g.state == State::Ready).min_by_key(behind);
        let error = if absent.is_empty() {
            let message = "deadlock: every thread that has not ended waits for memory that nobody will write, or for \
                           threads that wait";
            let help =
                "see what each waits for: a signal not sent, sent to another PE, or an epoch out of step";
            SimError::new("S008", message, help)
        } else {
            let message = "deadlock: CTAs wait for others of their grid that cannot start, as the grid is larger than what \
                           is resident at once";
            let help = "launch no more CTAs than are resident at once (a cooperative launch refuses more), and let each do \
                        more work";
            SimError::new("S015", message, help)
        };
        (error, reader.or_else(|| groups().min_by_key(behind)))
    };
    if let Some((w, g)) = culprit {
        let poll = &run.warps[w].poll;
        let polls = g.state == State::Ready && poll.valid && run.warps[w].ticket(g.mask).is_none();
        let pc = if polls { poll.pc } else { g.pc };
        error.at = Some(Box::new(run.place(w, pc, Some(g.mask.trailing_zeros().min(31) as usize))));
    }
    error.notes = absent;
    error.notes.extend(waits(run, order));
    error
}

/// The launch has used up its instructions.
pub(crate) fn step_limit(run: &Run, order: &[usize]) -> SimError {
    let mut error = SimError::new(
        "S009",
        format!("the launch executed more than {} warp instructions", run.step_limit),
        "raise `Config::step_limit` if the program is only long; it may also wait in a loop that counts or reads the clock",
    );
    error.notes = residency(run);
    error.notes.extend(waits(run, order));
    error
}
