//! The barriers at which threads of a CTA meet.

use super::*;
use crate::codes;
use crate::exec::barrier::{ReduceTo, Reduction, Role};
use crate::exec::lanes;

impl Run {
    /// Lets lanes arrive at a barrier of their CTA.
    pub(super) fn barrier(&mut self, w: WarpSlot, i: usize, active: u32, a: Arrival) -> Result<(), SimError> {
        let warp = &mut self.warps[w];
        if a.aligned && active != warp.live {
            // The other lanes must arrive at the same instruction first.
            warp.wait(i, active, State::Converge(warp.live));
            return Ok(());
        }
        let (c, pc) = (warp.cta, warp.groups[i].pc);
        let arrived = self.ctas[c].barriers[a.id as usize].arrive(&a, active.count_ones());
        if let Err(message) = arrived {
            let help = "give the same count in all threads that use the barrier".into();
            return Err(self.error(
                w,
                pc,
                FaultInfo { code: codes::BARRIER, message, help, lane: None, shared: None },
            ));
        }
        if let Some(d) = &mut self.check {
            d.arrive(w, c, (a.id as usize, pc), active);
        }
        let warp = &mut self.warps[w];
        if a.role == Role::Arrive {
            warp.branch(i, active, pc + 1);
        } else {
            warp.wait(i, active, State::Barrier(a));
        }
        self.memory.changes += 1;
        self.complete(c, a.id as usize);
        Ok(())
    }

    /// Releases the waiting threads of a barrier if it is complete.
    pub(super) fn complete(&mut self, c: CtaSlot, id: usize) {
        let cta = &mut self.ctas[c];
        let barrier = cta.barriers[id];
        if !barrier.complete(cta.live) {
            return;
        }
        cta.barriers[id] = Barrier::default();
        self.barriers += 1;
        self.memory.changes += 1;
        let mut waiting = Vec::new();
        for &w in &cta.warps {
            let warp = &mut self.warps[w];
            if warp.live == 0 || warp.cta != c {
                continue;
            }
            let mut woken = false;
            for g in &mut warp.groups {
                let State::Barrier(a) = g.state else { continue };
                if a.id as usize != id {
                    continue;
                }
                if let Role::Reduce { op, to, .. } = a.role {
                    let frame = &mut warp.frames[g.frame];
                    deliver(op, to, &barrier, g.mask, &mut frame.regs, &mut frame.preds);
                }
                g.state = State::Ready;
                g.pc += 1;
                woken = true;
                if self.check.is_some() {
                    waiting.push((w, g.mask));
                }
            }
            if woken {
                warp.merge_all();
            }
        }
        if let Some(d) = &mut self.check {
            d.complete(c, id, barrier.count.is_none(), &waiting);
        }
    }
}

/// Writes a barrier reduction's result to the waiting lanes.
fn deliver(op: Reduction, to: ReduceTo, b: &Barrier, mask: u32, regs: &mut [Lanes], preds: &mut [u32]) {
    let value = match op {
        Reduction::And => u32::from(b.votes == b.lanes),
        Reduction::Or => u32::from(b.votes > 0),
        Reduction::Popc => b.votes,
    };
    match to {
        ReduceTo::Reg(r) => {
            for lane in lanes(mask) {
                regs[r.0 as usize][lane] = value.into();
            }
        }
        ReduceTo::Pred(p) => {
            let slot = &mut preds[p.0 as usize];
            *slot = *slot & !mask | if value != 0 { mask } else { 0 };
        }
    }
}
