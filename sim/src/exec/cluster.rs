//! Thread-block clusters: CTAs that are resident together, can access each other's shared memory,
//! and have a barrier of their own (`barrier.cluster`).
//!
//! The barrier completes when every thread of the cluster that has not exited has arrived. Arrival
//! and wait are separate instructions, and each thread alternates between them.

use super::FaultInfo;
use super::run::Run;
use super::warp::State;
use crate::codes;
use crate::error::SimError;
use crate::model::{CtaSlot, WarpSlot, lanes};

/// The way in which threads take part in the cluster's barrier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Step {
    pub waits: bool,
    /// Whether the threads release their earlier accesses.
    pub releases: bool,
    pub aligned: bool,
}

/// The state that the CTAs of a cluster share. The CTA of rank 0 has it.
#[derive(Debug, Default)]
pub(crate) struct Cluster {
    /// The CTAs of the cluster by rank.
    pub ctas: Vec<CtaSlot>,
    /// The number of CTAs that still have threads.
    pub running: u32,
    /// The number of threads that have not exited.
    pub live: u32,
    /// The number of these threads that have arrived at the barrier.
    pub arrived: u32,
}

/// The state of a warp's lanes in the cluster barrier.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Arrivals {
    /// The lanes that have arrived and wait for others.
    pub arrived: u32,
    /// The lanes whose barrier is complete, but that have not executed the wait yet.
    pub released: u32,
}

/// The coordinates `[x, y, z]` of number `n` in `dims`, with x varying fastest.
pub(crate) fn unflatten(n: u64, dims: [u32; 3]) -> [u32; 3] {
    let [x, y, _] = dims.map(u64::from);
    [(n % x) as u32, (n / x % y) as u32, (n / (x * y)) as u32]
}

/// Combines two triples by coordinate.
pub(crate) fn zip(a: [u32; 3], b: [u32; 3], f: impl Fn(u32, u32) -> u32) -> [u32; 3] {
    [f(a[0], b[0]), f(a[1], b[1]), f(a[2], b[2])]
}

impl Run {
    /// Lets the lanes `active` of group `i` arrive at the cluster's barrier, or wait at it.
    pub(super) fn cluster_barrier(
        &mut self,
        w: WarpSlot,
        i: usize,
        active: u32,
        step: Step,
    ) -> Result<(), SimError> {
        let warp = &mut self.warps[w];
        if step.aligned && active != warp.live {
            warp.wait(i, active, State::Converge(warp.live));
            return Ok(());
        }
        let pc = warp.groups[i].pc;
        let Arrivals { arrived, released } = warp.arrivals;
        let wrong = if step.waits { active & !(arrived | released) } else { active & (arrived | released) };
        if wrong != 0 {
            let (message, help) = if step.waits {
                ("barrier.cluster.wait without an arrival", "execute barrier.cluster.arrive before it")
            } else {
                (
                    "a second barrier.cluster.arrive without a wait",
                    "execute barrier.cluster.wait between the two arrivals",
                )
            };
            let lane = Some(wrong.trailing_zeros() as usize);
            let fault = FaultInfo {
                code: codes::BARRIER,
                message: message.into(),
                help: help.into(),
                lane,
                shared: None,
            };
            return Err(self.error(w, pc, fault));
        }
        if step.waits {
            let leader = self.ctas[warp.cta].leader;
            if let Some(d) = self.check.as_mut().filter(|_| active & released != 0) {
                d.wait_cluster(w, leader, active & released);
            }
            warp.arrivals.released &= !active;
            match active & arrived {
                0 => warp.branch(i, active, pc + 1),
                waiting => warp.wait(i, waiting, State::Cluster),
            }
        } else {
            warp.arrivals.arrived |= active;
            warp.branch(i, active, pc + 1);
            let leader = self.ctas[self.warps[w].cta].leader;
            self.ctas[leader].cluster.arrived += active.count_ones();
            if let Some(d) = &mut self.check {
                d.arrive_cluster(w, leader, active, step.releases);
            }
            self.memory.changes += 1;
            self.complete_cluster(leader);
        }
        Ok(())
    }

    /// Releases the cluster's barrier if all its threads have arrived.
    pub(super) fn complete_cluster(&mut self, leader: CtaSlot) {
        let cluster = &mut self.ctas[leader].cluster;
        if cluster.arrived == 0 || cluster.arrived < cluster.live {
            return;
        }
        cluster.arrived = 0;
        self.barriers += 1;
        self.memory.changes += 1;
        if let Some(d) = &mut self.check {
            d.complete_cluster(leader);
        }
        for &c in &self.ctas[leader].cluster.ctas {
            for &w in &self.ctas[c].warps {
                let warp = &mut self.warps[w];
                if warp.live == 0 || warp.cta != c {
                    continue;
                }
                let Arrivals { arrived, released } = warp.arrivals;
                warp.arrivals = Arrivals { arrived: 0, released: arrived | released };
                let mut woken = false;
                for g in warp.groups.iter_mut().filter(|g| g.state == State::Cluster) {
                    warp.arrivals.released &= !g.mask;
                    if let Some(d) = &mut self.check {
                        d.wait_cluster(w, leader, g.mask);
                    }
                    g.state = State::Ready;
                    g.pc += 1;
                    woken = true;
                }
                if woken {
                    warp.merge_all();
                }
            }
        }
    }

    /// Handles threads of a CTA that exit, of which `arrived` take part in the cluster's barrier.
    pub(super) fn leave_cluster(&mut self, c: CtaSlot, leaving: u32, arrived: u32) -> Result<(), SimError> {
        let leader = self.ctas[c].leader;
        let ended = self.ctas[c].live == 0;
        let cluster = &mut self.ctas[leader].cluster;
        cluster.live -= leaving;
        cluster.arrived -= arrived;
        if ended {
            cluster.running -= 1;
            self.end_shared(c)?;
            self.let_dependents(c);
            let grid = self.ctas[c].grid;
            if let Some(d) = &mut self.check {
                d.end_cta(c, grid);
            }
        }
        let cluster = &mut self.ctas[leader].cluster;
        if cluster.running == 0 {
            let ctas = std::mem::take(&mut cluster.ctas);
            let grid = self.ctas[leader].grid;
            self.grids[grid].running -= ctas.len() as u32;
            if self.grids[grid].has_ended() {
                self.end_operations(grid)?;
                self.ended.push(grid);
                self.memory.retire(self.grids[grid].pe);
            }
            self.free_ctas.extend(ctas);
        } else {
            self.complete_cluster(leader);
        }
        Ok(())
    }

    /// Describes the wait of a group at the cluster's barrier.
    pub(super) fn describe_cluster(&self, c: CtaSlot) -> String {
        let cluster = &self.ctas[self.ctas[c].leader].cluster;
        format!("waits at the cluster barrier ({} of {} threads arrived)", cluster.arrived, cluster.live)
    }
}

/// Removes exiting lanes of a warp from the current barrier, and returns the number of those that
/// had arrived.
pub(super) fn withdraw(arrivals: &mut Arrivals, leaving: u32) -> u32 {
    let count = lanes(arrivals.arrived & leaving).count() as u32;
    arrivals.arrived &= !leaving;
    arrivals.released &= !leaving;
    count
}
