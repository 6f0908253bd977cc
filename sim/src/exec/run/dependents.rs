//! Programmatic dependent launch: a grid can begin early if the grid before it allows this, and
//! then waits itself for that grid's end (PTX ISA, griddepcontrol).

use super::*;

/// A grid of the run and the grids before it that let the next one begin early.
pub(super) fn chain(grids: &[Grid], last: usize) -> impl Iterator<Item = usize> {
    std::iter::successors(Some(last), |g| grids[*g].early)
}

impl Run {
    /// Whether all conditions for an early begin of a grid hold.
    pub(super) fn is_let(&self, g: usize) -> bool {
        self.grids[g].early.is_none_or(|e| self.grids[e].lets == self.grids[e].total)
    }

    /// Whether a grid has ended, and also the grids before it that let it begin early.
    pub(super) fn have_ended(&self, g: usize) -> bool {
        chain(&self.grids, g).all(|g| self.grids[g].has_ended())
    }

    /// Whether the grids before a grid that let it begin early have ended.
    pub(in crate::exec) fn follows_ended(&self, g: usize) -> bool {
        self.grids[g].early.is_none_or(|early| self.have_ended(early))
    }

    /// Lets the grids after a CTA's own begin, as far as this CTA is concerned.
    pub(in crate::exec) fn let_dependents(&mut self, c: CtaSlot) {
        let cta = &mut self.ctas[c];
        if !std::mem::replace(&mut cta.lets, true) {
            self.grids[cta.grid].lets += 1;
            self.memory.changes += 1;
        }
    }

    /// Lets the lanes `active` of group `i` wait until the grids before theirs have ended.
    pub(super) fn wait_dependencies(&mut self, w: WarpSlot, i: usize, active: u32) {
        let grid = self.ctas[self.warps[w].cta].grid;
        let before: Vec<usize> = match self.grids[grid].early {
            Some(early) => chain(&self.grids, early).collect(),
            None => Vec::new(),
        };
        let ended = self.follows_ended(grid);
        let changes = self.memory.changes + 1;
        let warp = &mut self.warps[w];
        if !ended {
            return warp.stay(i, active, changes);
        }
        let next = warp.groups[i].pc + 1;
        warp.branch(i, active, next);
        for g in before {
            self.memory.land_from(self.grids[g].pe);
            if let Some(d) = &mut self.check {
                d.wait_grid(w, active, g);
            }
        }
    }
}
