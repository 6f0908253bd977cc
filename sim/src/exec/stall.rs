//! Progress: proof that a warp repeats itself, and reports on machines that cannot go on.
//!
//! A group whose registers are the same as at an earlier pass through the same backward branch, while no memory
//! has changed in between, will do the same for ever: only another's store can free it. When every warp is
//! proven to repeat itself or waits at a barrier, nobody will store, and the machine is deadlocked. Loops that
//! count (bounded spins) or read the clock never repeat and are never reported.

use super::run::Run;
use super::warp::{Snapshot, State};
use super::{LANES, lanes};
use crate::error::SimError;

/// Warps that a report lists.
const LISTED: usize = 24;

/// Called after a backward branch of group `i`: compares with its snapshot and renews it at growing distances.
pub(crate) fn probe(run: &mut Run<'_>, w: usize, i: usize) {
    if !run.is_probing() {
        return;
    }
    let changes = run.memory.changes;
    let warp = &mut run.warps[w];
    let frame = &warp.frames[warp.groups[i].frame];
    let g = &mut warp.groups[i];
    if let Some(s) = g.snapshot.as_mut().filter(|s| s.changes == changes) {
        let same_preds = || s.preds.iter().zip(&frame.preds).all(|(a, b)| (a ^ b) & g.mask == 0);
        let same_regs = || s.regs.iter().zip(&frame.regs).all(|(a, b)| lanes(g.mask).all(|l| a[l] == b[l]));
        if s.pc == g.pc && same_preds() && same_regs() {
            g.proven = changes + 1;
            g.snapshot = None;
            return;
        }
        s.steps += 1;
        if s.steps < s.power {
            return;
        }
    }
    let power = g.snapshot.as_ref().filter(|s| s.changes == changes).map_or(1, |s| s.power.saturating_mul(2));
    g.snapshot = Some(Box::new(Snapshot {
        pc: g.pc,
        regs: frame.regs.clone(),
        preds: frame.preds.clone(),
        power,
        steps: 0,
        changes,
    }));
}

/// What each waiting group waits for, one line each.
fn waits(run: &Run<'_>, order: &[usize]) -> Vec<String> {
    let mut sorted = order.to_vec();
    sorted.sort_by_key(|&w| {
        let warp = &run.warps[w];
        let at = &run.ctas[warp.cta].at;
        (at.pe, at.ctaid[2], at.ctaid[1], at.ctaid[0], warp.index)
    });
    let mut out = Vec::new();
    for w in sorted {
        let warp = &run.warps[w];
        for g in &warp.groups {
            if out.len() == LISTED {
                out.push(format!("... and more ({} warps in all)", order.len()));
                return out;
            }
            out.push(wait_line(run, w, g));
        }
    }
    out
}

fn wait_line(run: &Run<'_>, w: usize, g: &super::warp::Group) -> String {
    let warp = &run.warps[w];
    let cta = &run.ctas[warp.cta];
    let lanes_text = if g.mask == warp.live { String::new() } else { format!(" lanes {:#010x}", g.mask) };
    let [x, y, z] = cta.at.ctaid;
    let who = format!("PE {} CTA ({x}, {y}, {z}) warp {}{lanes_text}", cta.at.pe, warp.index);
    let what = |pc: u32| {
        let inst = &run.code.insts[pc as usize];
        let source = run.code.source(inst).first().map_or(String::new(), |s| format!("{s}, "));
        format!("{source}PTX line {}: {}", inst.line, run.code.line(inst.line))
    };
    match g.state {
        State::Barrier(a) => {
            let b = &cta.barriers[a.id as usize];
            let wanted = a.count.map_or(format!("{}", cta.live), |n| n.to_string());
            format!(
                "{who} waits at barrier {} ({} of {wanted} threads arrived), {}",
                a.id,
                b.lanes,
                what(g.pc)
            )
        }
        State::Converge(needed) => {
            format!(
                "{who} waits for lanes {:#010x} of its warp, {}",
                needed & warp.live & !g.mask,
                what(g.pc)
            )
        }
        State::Ready if warp.poll.valid => {
            let p = warp.poll;
            let place = if p.shared {
                format!("shared {:#x}", p.addr)
            } else {
                run.memory.describe(cta.at.pe, p.addr)
            };
            format!("{who} reads {place} = {:#x} again and again, {}", p.value, what(p.pc))
        }
        State::Ready => format!("{who} loops without reading memory, {}", what(g.pc)),
    }
}

/// Remarks on grids of which not all CTAs were resident.
fn residency(run: &Run<'_>) -> Vec<String> {
    let waiting = run.grids.iter().filter(|g| g.next < g.total);
    waiting
        .map(|g| {
            format!(
                "PE {}: {} of {} CTAs of `{}` have not started: at most {} of this size are resident at once, \
                 and those that wait for the others never end",
                g.pe,
                g.total - g.next,
                g.total,
                g.kernel.name,
                g.resident
            )
        })
        .collect()
}

/// No warp can go on.
pub(crate) fn deadlock(run: &Run<'_>, order: &[usize]) -> SimError {
    let all = || order.iter().flat_map(|&w| run.warps[w].groups.iter().map(move |g| (w, g)));
    let divergent = all().find(|(_, g)| matches!(g.state, State::Converge(_)));
    let mut error = match divergent {
        Some((w, g)) => {
            let mut e = SimError::new(
                "S007",
                "a barrier or warp-synchronous instruction is reached by part of a warp only",
                "execute it where all threads of the warp (those of the member mask) come along",
            );
            let lane = g.mask.trailing_zeros() as usize;
            e.at = Some(Box::new(run.place(w, g.pc, Some(lane))));
            e
        }
        None => {
            let mut e = SimError::new(
                "S008",
                "deadlock: every thread that has not ended waits for memory that nobody will write, or at a barrier",
                "see what each waits for: a signal not sent, sent to another PE, or an epoch out of step",
            );
            if let Some((w, g)) = all().next() {
                let pc = if g.state == State::Ready && run.warps[w].poll.valid {
                    run.warps[w].poll.pc
                } else {
                    g.pc
                };
                e.at =
                    Some(Box::new(run.place(w, pc, Some((g.mask.trailing_zeros() as usize).min(LANES - 1)))));
            }
            e
        }
    };
    error.notes = residency(run);
    error.notes.extend(waits(run, order));
    error
}

/// The launch has used up its instructions.
pub(crate) fn step_limit(run: &Run<'_>, order: &[usize]) -> SimError {
    let mut error = SimError::new(
        "S009",
        format!("the launch executed more than {} warp instructions", run.step_limit),
        "raise `Config::step_limit` if the program is only long; it may also wait in a loop that counts or reads the clock",
    );
    error.notes = residency(run);
    error.notes.extend(waits(run, order));
    error
}
