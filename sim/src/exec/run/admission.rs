//! Makes CTAs resident: a few in each round, in whole clusters, as far as the PE's SMs can hold
//! them.

use super::*;

impl Run {
    /// Whether the grids before a grid have ended.
    pub(in crate::exec) fn may_start(&self, g: usize) -> bool {
        self.grids[g].after.iter().all(|a| self.have_ended(*a)) && self.is_let(g)
    }

    pub(super) fn may_admit(&self, g: usize) -> bool {
        let grid = &self.grids[g];
        grid.next < grid.total && grid.running < grid.resident && self.may_start(g)
    }

    /// Makes further CTAs resident.
    pub(super) fn admit(&mut self, order: &mut Vec<WarpSlot>) {
        while self.grids.get(self.first_open).is_some_and(|g| g.next == g.total) {
            self.first_open += 1;
        }
        for g in self.first_open..self.grids.len() {
            let size: u32 = self.grids[g].cluster.iter().product();
            for _ in 0..ADMIT.div_ceil(size) {
                let grid = &self.grids[g];
                if grid.next == grid.total || grid.running >= grid.resident || !self.may_start(g) {
                    break;
                }
                self.start_cluster(g, order);
            }
        }
    }

    /// Makes the CTAs of a grid's next cluster resident.
    fn start_cluster(&mut self, g: usize, order: &mut Vec<WarpSlot>) {
        if self.grids[g].next == 0 {
            // The grid sees the stores of the grids before it, on any PE.
            let before: Vec<usize> = self.grids[g].after.iter().map(|a| self.grids[*a].pe).collect();
            before.into_iter().for_each(|pe| self.memory.land_from(pe));
        }
        let grid = &mut self.grids[g];
        let size: u32 = grid.cluster.iter().product();
        let clusters = cluster::zip(grid.dims, grid.cluster, |a, b| a / b);
        let origin = unflatten(grid.next / u64::from(size), clusters);
        let origin = cluster::zip(origin, grid.cluster, |a, b| a * b);
        let ctas: Vec<CtaSlot> = (0..size).map(|_| self.slot(g)).collect();
        let members: Vec<usize> = ctas.iter().map(|&c| self.memory.shared_buffer(c)).collect();
        for (rank, &c) in (0..).zip(&ctas) {
            let within = unflatten(rank.into(), self.grids[g].cluster);
            let ctaid = cluster::zip(origin, within, |a, b| a + b);
            self.start_cta(g, c, ctas[0], (ctaid, rank, members.clone()), order);
        }
        let threads = size * self.grids[g].block.iter().product::<u32>();
        let leader = ctas[0];
        self.ctas[leader].cluster = Cluster { ctas, running: size, live: threads, arrived: 0 };
        self.memory.changes += 1;
    }

    /// Returns a slot for another CTA.
    fn slot(&mut self, g: usize) -> CtaSlot {
        self.free_ctas.pop().unwrap_or_else(|| {
            self.ctas.push(Cta {
                grid: g,
                at: Coordinates::default(),
                leader: CtaSlot(0),
                cluster: Cluster::default(),
                warps: Vec::new(),
                live: 0,
                lets: false,
                barriers: [Barrier::default(); BARRIERS],
                gathering: None,
                warpgroups: Vec::new(),
            })
        })
    }

    fn start_cta(
        &mut self,
        g: usize,
        c: CtaSlot,
        leader: CtaSlot,
        (ctaid, rank, members): ([u32; 3], u32, Vec<usize>),
        order: &mut Vec<WarpSlot>,
    ) {
        let grid = &mut self.grids[g];
        grid.next += 1;
        let slot = grid.running;
        grid.running += 1;
        let threads = grid.block.iter().product::<u32>();
        let at = Coordinates {
            pe: grid.pe,
            grid: g,
            ctaid,
            nctaid: grid.dims,
            ntid: grid.block,
            cluster: grid.cluster,
            rank,
            members,
            slot,
            slots: grid.resident,
            static_shared: grid.kernel().shared_bytes,
            dynamic_shared: grid.dynamic_shared,
        };
        let shared_bytes = grid.kernel().shared_bytes as usize + grid.dynamic_shared as usize;
        let cta = &mut self.ctas[c];
        cta.grid = g;
        cta.at = at;
        cta.leader = leader;
        cta.live = threads;
        cta.lets = false;
        cta.barriers = [Barrier::default(); BARRIERS];
        cta.gathering = None;
        cta.warpgroups.clear();
        cta.warps.clear();
        self.memory.share(c, shared_bytes);
        if let Some(d) = &mut self.check {
            let at = &self.ctas[c].at;
            d.start_cta((c, leader), at.pe, g, at.ctaid);
        }
        self.start_warps(c, threads, order);
    }

    /// Starts the warps of a CTA with this number of threads.
    fn start_warps(&mut self, c: CtaSlot, threads: u32, order: &mut Vec<WarpSlot>) {
        let grid = &self.grids[self.ctas[c].grid];
        let function = &grid.module.functions[grid.code().function];
        for index in 0..threads.div_ceil(LANES as u32) {
            let w = match self.free_warps.pop() {
                Some(w) => w,
                None => self.warps.push(Warp::default()),
            };
            let lanes = crate::num::mask((threads - index * LANES as u32).min(32)) as u32;
            self.warps[w].start(c, index, lanes, function);
            if let Some(d) = &mut self.check {
                d.start_warp(w, c, lanes);
            }
            self.ctas[c].warps.push(w);
            order.push(w);
        }
    }
}
