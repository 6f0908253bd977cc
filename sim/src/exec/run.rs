//! The scheduler: CTAs become resident, and their warps take turns until all have finished or none
//! can continue.
//!
//! Every grid of a launch makes progress at the same time. Some CTAs are admitted in each round, up
//! to the number that the PE's SMs can hold. The warps of resident CTAs run slices of random length
//! in an order that is shuffled every round. All choices are drawn from the seed, so that a run is
//! repeatable and a spinning warp starves no other warp.

mod admission;
mod dependents;
mod meeting;

use super::asynchronous::Asynchronous;
use super::barrier::{Arrival, Barrier};
use super::cluster::{self, Cluster, unflatten, withdraw};
use super::pipe::Warpgroup;
use super::remote::Remote;
use super::schedule::Schedule;
use super::warp::{Group, State, Warp};
use super::{Context, Coordinates, FaultInfo, Flow, Output, stall};
use crate::check::{Check, Detector, Finding};
use crate::codes;
use crate::error::{CodeLocation, SimError};
use crate::exec::code::{Code, Kernel, KernelCode};
use crate::exec::trace::Recorder;
use crate::memory::Memory;
use crate::model::{BARRIERS, CtaSlot, Table, WarpSlot};
use crate::model::{LANES, Lanes};
use crate::names::Named;
use crate::rng::Rng;
use crate::stats::MulticastBytes;
use dependents::chain;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The number of CTAs of a grid that can become resident in one round.
const ADMIT: u32 = 8;

/// A grid of a run on one PE.
pub(crate) struct Grid {
    pub pe: usize,
    pub module: Arc<Code>,
    /// The number of its module among those of the run.
    pub image: usize,
    /// The number of its kernel in the module.
    pub entry: usize,
    pub dims: [u32; 3],
    /// The shape of a cluster in CTAs, which divides that of the grid.
    pub cluster: [u32; 3],
    pub block: [u32; 3],
    pub dynamic_shared: u32,
    pub params: Vec<u8>,
    /// The names of threads for reports.
    pub names: Arc<[Named]>,
    /// The module's constants on this PE.
    pub consts: Vec<Lanes>,
    /// The number of CTAs that the PE's SMs can hold at once, in whole clusters.
    pub resident: u32,
    pub total: u64,
    pub next: u64,
    pub running: u32,
    /// The grids of the run that must have ended before it.
    pub after: Vec<usize>,
    /// The grid before it that lets it begin early, before its own end.
    pub early: Option<usize>,
    /// The number of CTAs that have let the grids after it begin, or have ended.
    pub lets: u64,
}

impl Grid {
    pub(crate) fn kernel(&self) -> &Kernel {
        &self.module.kernels[self.entry]
    }

    pub(crate) fn code(&self) -> &KernelCode {
        &self.module.kernel_code[self.entry]
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.next == self.total && self.running == 0
    }
}

pub(crate) struct Cta {
    pub grid: usize,
    pub at: Coordinates,
    /// The CTA of rank 0 of its cluster, which has the cluster's state.
    pub leader: CtaSlot,
    pub cluster: Cluster,
    pub warps: Vec<WarpSlot>,
    /// The number of threads that have not exited.
    pub live: u32,
    /// Whether it has let the grids after its own begin.
    pub lets: bool,
    pub barriers: [Barrier; BARRIERS],
    /// The call of a built-in function at which some threads have arrived, and others not yet.
    pub gathering: Option<u64>,
    /// The pending matrix multiplications of its warpgroups.
    pub warpgroups: Vec<Warpgroup>,
}

/// Executes the instruction at `pc` for the lanes of `mask` whose guard holds. The error is the
/// event that ends the inner loop.
#[inline(always)]
fn step(
    cx: &mut Context<'_>,
    (code, counts): (&Code, &mut [Count]),
    mask: u32,
    pc: &mut u32,
    probing: bool,
) -> Result<(), Event> {
    let inst = &code.insts[*pc as usize];
    let active = match inst.guard {
        None => mask,
        Some((p, flip)) => mask & (cx.preds[p.0 as usize] ^ flip),
    };
    if cx.deferral.is_taken() && active != 0 {
        cx.active = active;
        match cx.read_first(code, inst) {
            Ok(true) => {}
            Ok(false) => return Err(Event::Spent),
            Err(fault) => {
                *pc = cx.pc;
                return Err(Event::Fault(fault));
            }
        }
    }
    let count = &mut counts[*pc as usize];
    count.warps += 1;
    count.lanes += u64::from(active.count_ones());
    cx.clock += 1;
    if active == 0 {
        *pc += 1;
        return Ok(());
    }
    cx.active = active;
    cx.pc = *pc;
    match inst.op.execute(cx) {
        Ok(Flow::Next) => *pc += 1,
        Ok(Flow::Jump(label)) if active == mask => {
            let to = code.labels[label as usize];
            let back = to <= *pc;
            *pc = to;
            if back && probing {
                return Err(Event::BackEdge);
            }
        }
        Ok(flow) => return Err(Event::Flow(flow, active)),
        Err(fault) => return Err(Event::Fault(fault)),
    }
    Ok(())
}

/// The number of executed warp and lane instructions of one program counter.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Count {
    pub warps: u64,
    pub lanes: u64,
}

/// Grids that run at the same time. The run can be suspended when a grid has ended, and resumed
/// with more grids.
pub(crate) struct Run {
    /// The memory of the machine, while grids run.
    pub memory: Memory,
    pub grids: Vec<Grid>,
    /// The number of launches in earlier runs, by PE.
    pub launched: Vec<usize>,
    /// The modules of the grids.
    pub modules: Vec<Arc<Code>>,
    /// The grids that have ended since the last query.
    pub ended: Vec<usize>,
    /// The first grid whose CTAs have not all started.
    first_open: usize,
    pub ctas: Table<CtaSlot, Cta>,
    pub warps: Table<WarpSlot, Warp>,
    pub rng: Rng,
    pub(super) schedule: Schedule,
    pub step_limit: u64,
    /// The time at which the launch is stopped, and the duration from its begin to then.
    pub time_limit: Option<(Instant, Duration)>,
    /// A flag that another thread sets to stop the run.
    pub stop: Option<Arc<AtomicBool>>,
    /// The number of warp instructions so far.
    pub clock: u64,
    /// The counts of each instruction, by module.
    pub counts: Vec<Vec<Count>>,
    pub barriers: u64,
    pub output: Output,
    pub multicast: Vec<MulticastBytes>,
    pub remote: Remote,
    pub check: Option<Box<Detector>>,
    pub asynchronous: Asynchronous,
    pub trace: Option<Box<Recorder>>,
    /// The target labels of the lanes of a `brx.idx`.
    targets: [u32; LANES],
    pub(super) free_ctas: Vec<CtaSlot>,
    free_warps: Vec<WarpSlot>,
    /// The warps that have not ended.
    order: Vec<WarpSlot>,
    /// The state of the memory at the last change, and its time.
    seen: u64,
    quiet_since: u64,
    /// Whether nothing has changed for long, so that warps are examined for repetition.
    probing: bool,
    /// Whether a warp has repeated a read since then.
    polling: bool,
}

/// The reason why a warp's slice was interrupted.
enum Event {
    Spent,
    Regroup,
    BackEdge,
    Flow(Flow, u32),
    Fault(Box<FaultInfo>),
}

impl Run {
    pub(crate) fn new(mut memory: Memory, (seed, explore): (u64, bool)) -> Self {
        let remote = Remote::new(&memory, seed);
        let mut rng = Rng(seed);
        let (schedule, delayed) = Schedule::new(explore, &mut rng);
        memory.delay_stores(delayed, seed);
        Run {
            seen: memory.changes,
            quiet_since: 0,
            memory,
            grids: Vec::new(),
            launched: Vec::new(),
            modules: Vec::new(),
            ended: Vec::new(),
            first_open: 0,
            ctas: Table::default(),
            warps: Table::default(),
            rng,
            schedule,
            step_limit: u64::MAX,
            time_limit: None,
            stop: None,
            clock: 0,
            counts: Vec::new(),
            barriers: 0,
            output: Output::default(),
            multicast: Vec::new(),
            remote,
            check: None,
            asynchronous: Asynchronous::new(seed),
            trace: None,
            targets: [0; LANES],
            free_ctas: Vec::new(),
            free_warps: Vec::new(),
            order: Vec::new(),
            probing: false,
            polling: false,
        }
    }

    /// Enables the checks for the grids.
    pub(crate) fn watch(&mut self, check: &Check) {
        self.check = Some(Box::new(Detector::new(check.clone(), self.memory.shared_buffer(CtaSlot(0)))));
    }

    /// Returns the findings so far.
    pub(crate) fn findings(&self) -> Vec<Finding> {
        self.check.as_ref().map_or_else(Vec::new, |d| d.findings(self))
    }

    /// Returns the number of a module among those of the run.
    pub(crate) fn image(&mut self, module: &Arc<Code>) -> usize {
        let known = self.modules.iter().position(|m| m.id == module.id);
        known.unwrap_or_else(|| {
            self.counts.push(vec![Count::default(); module.insts.len()]);
            self.modules.push(Arc::clone(module));
            self.modules.len() - 1
        })
    }

    /// Adds a grid and returns its number. It can begin when the grids before it have ended.
    pub(crate) fn add(&mut self, grid: Grid) -> usize {
        // Teams may have been created since the last grid.
        self.multicast.resize(self.memory.teams.len() * self.memory.n_pes, MulticastBytes::default());
        self.remote.know_teams(&self.memory);
        if let Some(d) = &mut self.check {
            let after: Vec<usize> = grid.after.iter().flat_map(|a| chain(&self.grids, *a)).collect();
            d.add_grid(grid.image as u32, &after, grid.module.has_sequential_fences());
        }
        self.grids.push(grid);
        self.grids.len() - 1
    }

    /// Returns the code that a warp runs.
    pub(crate) fn code_of(&self, w: WarpSlot) -> &Code {
        &self.grids[self.ctas[self.warps[w].cta].grid].module
    }

    /// Completes the pending operations after the end of all grids.
    pub(crate) fn settle(&mut self) -> Result<(), SimError> {
        self.memory.land_every();
        self.finish_operations()
    }

    /// Runs the grids until one of them, or all, have ended.
    pub(crate) fn advance(&mut self) -> Result<(), SimError> {
        let mut order = std::mem::take(&mut self.order);
        let result = self.rounds(&mut order);
        self.order = order;
        result
    }

    fn rounds(&mut self, order: &mut Vec<WarpSlot>) -> Result<(), SimError> {
        loop {
            if !self.ended.is_empty() {
                return Ok(());
            }
            self.admit(order);
            if order.is_empty() {
                return Ok(());
            }
            self.remote.wire.tick(&mut self.memory);
            let time = self.check.as_deref_mut().map_or(0, |d| {
                d.tick();
                d.now()
            });
            self.memory.tick(time);
            self.land_some()?;
            self.schedule.round(&mut self.rng, self.clock, order);
            let mut progress = false;
            for &w in order.iter() {
                let stamp = self.memory.changes + 1;
                if self.warps[w].live != 0 && self.warps[w].choose(stamp).is_some() {
                    let c = self.warps[w].cta;
                    let budget = self.schedule.budget(&mut self.rng, self.clock, self.ctas[c].at.pe, c);
                    if budget > 0 {
                        progress = true;
                        self.turn(w, budget)?;
                    }
                }
            }
            order.retain(|&w| self.warps[w].live != 0);
            if self.memory.changes != self.seen {
                (self.seen, self.quiet_since) = (self.memory.changes, self.clock);
                (self.probing, self.polling) = (false, false);
            }
            let admitting = (self.first_open..self.grids.len()).any(|g| self.may_admit(g));
            if !progress && !order.is_empty() && !admitting && !self.hasten()? {
                return Err(stall::deadlock(self, order));
            }
            if self.clock - self.quiet_since > 10_000 + 400 * order.len() as u64 {
                self.probing = true;
                // Some warp waits in a loop, perhaps for a pending operation.
                if self.polling {
                    self.hasten()?;
                }
            }
            if self.clock > self.step_limit {
                let done = format!("executed more than {} warp instructions", self.step_limit);
                return Err(stall::limit(self, order, &done));
            }
            if self.stop.as_ref().is_some_and(|stop| stop.load(Ordering::Relaxed)) {
                return Err(stall::limit(self, order, "was interrupted"));
            }
            if let Some((_, limit)) = self.time_limit.filter(|limit| Instant::now() > limit.0) {
                let done = format!("ran for more than {} s", limit.as_secs_f64());
                return Err(stall::limit(self, order, &done));
            }
        }
    }

    /// Runs one warp for at most `budget` instructions, and records the result for a timeline if
    /// one is wanted.
    fn turn(&mut self, w: WarpSlot, budget: u32) -> Result<(), SimError> {
        let Some(mut trace) = self.trace.take() else { return self.slice(w, budget) };
        let turn = trace.begin(self, w);
        let ended = self.slice(w, budget);
        trace.end(self, w, &turn);
        self.trace = Some(trace);
        ended
    }

    /// Runs one warp for at most `budget` instructions.
    fn slice(&mut self, w: WarpSlot, mut budget: u32) -> Result<(), SimError> {
        while let Some(i) = self.warps[w].choose(self.memory.changes + 1) {
            let before = budget;
            let event = self.steps(w, i, &mut budget);
            let spent = before - budget;
            self.clock += u64::from(spent);
            self.warps[w].groups[i].charge(spent);
            match event {
                Event::Spent => return Ok(()),
                Event::Regroup => self.warps[w].merge_all(),
                Event::BackEdge => stall::probe(self, w, i),
                Event::Flow(flow, active) => {
                    let jumped_back = self.transfer(w, i, flow, active)?;
                    let next = self.warps[w].choose(self.memory.changes + 1).filter(|_| jumped_back);
                    if let Some(i) = next {
                        stall::probe(self, w, i);
                    }
                    if flow == Flow::Yield || self.warps[w].live == 0 {
                        return Ok(());
                    }
                }
                Event::Fault(f) => return Err(self.error(w, self.warps[w].groups[i].pc, *f)),
            }
            if budget == 0 {
                return Ok(());
            }
        }
        Ok(())
    }

    /// The inner loop: runs group `i` of a warp until an event affects more than its registers.
    fn steps(&mut self, w: WarpSlot, i: usize, budget: &mut u32) -> Event {
        let warp = &mut self.warps[w];
        let cta = &mut self.ctas[warp.cta];
        let grid = &self.grids[cta.grid];
        // If the warp has other groups, the loop ends when it meets one or passes one that should
        // run first.
        let alone = warp.groups.len() == 1;
        let &Group { mut pc, mask, frame, .. } = &warp.groups[i];
        let code = &*grid.module;
        let counts = &mut self.counts[grid.image][..];
        let frame = &mut warp.frames[frame];
        let mut cx = Context {
            regs: &mut frame.regs,
            preds: &mut frame.preds,
            consts: &grid.consts,
            active: mask,
            live: warp.live,
            pc,
            frame_base: frame.base,
            locals: &mut warp.locals,
            shared: self.memory.shared_buffer(warp.cta),
            params: &grid.params,
            memory: &mut self.memory,
            at: &cta.at,
            warp: warp.index,
            poll: &mut warp.poll,
            targets: &mut self.targets,
            output: &mut self.output,
            multicast: &mut self.multicast,
            remote: &mut self.remote,
            tickets: &mut warp.tickets,
            pipe: &mut warp.pipe,
            deferral: &mut warp.deferral,
            warpgroups: &mut cta.warpgroups,
            rng: &mut self.rng,
            gathering: &mut cta.gathering,
            cta_live: cta.live,
            clock: self.clock,
            slot: w,
            check: self.check.as_deref_mut(),
            asynchronous: &mut self.asynchronous,
        };
        // Diverged lanes share their registers.
        cx.deferral.allow(alone && !self.probing && cx.memory.delayed.is_on());
        let event = loop {
            let Some(left) = budget.checked_sub(1) else { break Event::Spent };
            *budget = left;
            if let Err(event) = step(&mut cx, (code, counts), mask, &mut pc, self.probing) {
                break event;
            }
            let stamp = cx.memory.changes + 1;
            let runs = |g: &Group| g.state == State::Ready && g.proven != stamp;
            let meets = |(j, g): (usize, &Group)| j != i && (pc == g.pc || pc > g.pc && runs(g));
            if !alone && warp.groups.iter().enumerate().any(meets) {
                break Event::Regroup;
            }
        };
        let group = &mut warp.groups[i];
        group.pc = pc;
        if warp.poll.mask & mask != 0 {
            group.poll = warp.poll;
        }
        event
    }

    /// Executes a change of control flow. Returns whether lanes jumped back.
    fn transfer(&mut self, w: WarpSlot, i: usize, flow: Flow, active: u32) -> Result<bool, SimError> {
        let warp = &mut self.warps[w];
        let code = &*self.grids[self.ctas[warp.cta].grid].module;
        let pc = warp.groups[i].pc;
        match flow {
            Flow::Next => {}
            Flow::Scatter => {
                let to = self.targets.map(|label| code.labels[label as usize]);
                warp.scatter(i, active, &to);
                return Ok(super::lanes(active).any(|l| to[l] <= pc));
            }
            Flow::Yield => {
                self.polling = true;
                let g = &mut warp.groups[i];
                g.pc += 1;
                g.turn += 1;
                warp.merge_all();
            }
            Flow::Jump(label) => {
                let to = code.labels[label as usize];
                warp.branch(i, active, to);
                return Ok(to <= pc);
            }
            Flow::Call(site) => {
                if warp.call(i, active, code, site, pc).is_err() {
                    let fault = FaultInfo {
                        code: codes::MEMORY_LIMIT,
                        message: "the call stack of a thread exceeds 512 KiB of local memory".into(),
                        help: "look for unbounded recursion".into(),
                        lane: Some(active.trailing_zeros() as usize),
                        shared: None,
                    };
                    return Err(self.error(w, pc, fault));
                }
            }
            Flow::Return => {
                if !warp.ret(i, active, code) {
                    self.exit(w, i, active)?;
                }
            }
            Flow::Exit => self.exit(w, i, active)?,
            Flow::Stay(staying) => warp.stay(i, staying, self.memory.changes + 1),
            Flow::Converge(needed) => warp.wait(i, active, State::Converge(needed)),
            Flow::Meet(needed) => {
                warp.wait(i, active, State::Meet(needed));
                if let Some(met) = warp.meet(needed) {
                    self.memory.changes += 1;
                    if let Some(d) = &mut self.check {
                        d.warp_sync(w, met, pc);
                    }
                }
            }
            Flow::Part { waiting, needed } => warp.wait(i, waiting, State::Converge(needed)),
            Flow::Barrier(arrival) => self.barrier(w, i, active, arrival)?,
            Flow::ClusterBarrier(step) => self.cluster_barrier(w, i, active, step)?,
            Flow::LaunchDependents => {
                warp.branch(i, active, pc + 1);
                self.let_dependents(self.warps[w].cta);
            }
            Flow::WaitDependencies => self.wait_dependencies(w, i, active),
        }
        Ok(false)
    }

    fn exit(&mut self, w: WarpSlot, i: usize, leaving: u32) -> Result<(), SimError> {
        if let Some((pc, fault)) = self.warps[w].pipe.left() {
            return Err(self.error(w, pc, fault));
        }
        self.memory.changes += 1;
        self.warps[w].exit(i, leaving);
        let arrived = withdraw(&mut self.warps[w].arrivals, leaving);
        let c = self.warps[w].cta;
        if let Some(d) = &mut self.check {
            d.exit(w, c, leaving);
        }
        let cta = &mut self.ctas[c];
        cta.live -= leaving.count_ones();
        for id in 0..BARRIERS {
            self.complete(c, id);
        }
        if self.warps[w].live == 0 {
            self.end_warp(w);
            self.free_warps.push(w);
        }
        self.leave_cluster(c, leaving.count_ones(), arrived)
    }

    /// Makes an error with its location: lane `fault.lane` of warp `w` at `pc`.
    pub(crate) fn error(&self, w: WarpSlot, pc: u32, fault: FaultInfo) -> SimError {
        let place = self.place(w, pc, fault.lane);
        let near = fault.shared.and_then(|at| self.shared_variable(w, at)).unwrap_or_default();
        SimError {
            code: fault.code,
            message: fault.message + &near,
            help: fault.help,
            at: Some(Box::new(place)),
            notes: Vec::new(),
            printed: String::new(),
        }
    }

    /// Describes the shared variable at or below an offset.
    pub(super) fn shared_variable(&self, w: WarpSlot, at: u64) -> Option<String> {
        let grid = &self.grids[self.ctas[self.warps[w].cta].grid];
        let (index, start) =
            grid.code().shared.iter().filter(|(_, start)| *start <= at).max_by_key(|(_, start)| *start)?;
        let v = &grid.module.variables[*index];
        let bytes = if v.dynamic { u64::from(grid.dynamic_shared) } else { v.size };
        Some(format!(": `{}`{:+}, which has {bytes} bytes", v.name, at as i64 - *start as i64))
    }

    pub(crate) fn place(&self, w: WarpSlot, pc: u32, lane: Option<usize>) -> CodeLocation {
        let warp = &self.warps[w];
        let cta = &self.ctas[warp.cta];
        let grid = &self.grids[cta.grid];
        let inst = &grid.module.insts[pc as usize];
        let first = warp.index * LANES as u32;
        CodeLocation {
            pe: cta.at.pe,
            cta: cta.at.ctaid,
            thread: lane.map(|l| cta.at.tid(first + l as u32)),
            role: Named::of(&grid.names, first).cloned(),
            kernel: grid.kernel().name.clone(),
            ptx_line: inst.line,
            ptx_text: grid.module.line(inst.line).to_string(),
            source: grid.module.source(inst),
        }
    }

    pub(crate) fn is_probing(&self) -> bool {
        self.probing
    }
}
