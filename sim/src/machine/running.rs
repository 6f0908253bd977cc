//! Launches: grids that begin while others run, and the results of a run.

use super::{Launch, Machine};
use crate::error::SimError;
use crate::exec::Output;
use crate::exec::run::Run;
use crate::exec::trace::Recorder;
use crate::memory::{Memory, RemoteAccesses};
use crate::module::Module;
use crate::stats::{MulticastTraffic, NvshmemStats, OpcodeCount, Stats};
use std::collections::BTreeMap;
use std::time::Instant;

/// A grid that a machine was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GridId(u64);

/// A run of grids that has begun, and the traffic between PEs before it.
pub(super) struct Running {
    run: Box<Run>,
    links: Vec<u64>,
    remote: RemoteAccesses,
}

impl Machine {
    /// Runs the grids of one kernel, on one PE or many, at the same time until they end.
    ///
    /// Memory changes before an error persist, so that the machine can be inspected.
    ///
    /// # Errors
    /// Fails if a grid does not fit the kernel (S001), or with the error that stopped one thread or
    /// all of them.
    pub fn launch(&mut self, module: &Module, kernel: &str, grids: &[Launch]) -> Result<Stats, SimError> {
        self.launch_in_order(module, kernel, &[grids])
    }

    /// Runs several launches in the order of streams: each PE's grids run one after another, while
    /// the host waits for none. A PE can begin the next launch while others are in the one before.
    ///
    /// # Errors
    /// Fails where [`launch`](Self::launch) fails.
    pub fn launch_in_order(
        &mut self,
        module: &Module,
        kernel: &str,
        launches: &[&[Launch]],
    ) -> Result<Stats, SimError> {
        entry(module, kernel)?;
        let mut last: Vec<Option<GridId>> = vec![None; self.config.n_pes];
        let mut begun = Vec::new();
        for grids in launches {
            let before = last.clone();
            for g in *grids {
                let after = before.get(g.pe).copied().flatten();
                match self.begin(module, kernel, g, after.as_slice()) {
                    Ok(id) => begun.push((g.pe, id)),
                    Err(e) => {
                        // None of them has run.
                        self.leave();
                        return Err(e);
                    }
                }
            }
            for (pe, id) in begun.drain(..) {
                last[pe] = Some(id);
            }
        }
        while !self.advance()?.is_empty() {}
        self.settle()
    }

    /// Adds a grid, which begins when the grids before it have ended. Nothing runs before
    /// [`advance`](Self::advance) is called. Grids of different kernels and modules run at the same
    /// time.
    ///
    /// # Errors
    /// Fails if the grid does not fit the kernel, or if the module has no such kernel (S001).
    pub fn begin(
        &mut self,
        module: &Module,
        kernel: &str,
        grid: &Launch,
        after: &[GridId],
    ) -> Result<GridId, SimError> {
        self.begin_early(module, kernel, grid, after, None)
    }

    /// Adds a grid like [`begin`](Self::begin), after one more grid, `early`. The new grid can
    /// begin before the end of `early`, when all CTAs of `early` have executed
    /// `griddepcontrol.launch_dependents` or have ended. `griddepcontrol.wait` waits for that end.
    ///
    /// # Errors
    /// Fails where [`begin`](Self::begin) fails.
    pub fn begin_early(
        &mut self,
        module: &Module,
        kernel: &str,
        grid: &Launch,
        after: &[GridId],
        early: Option<GridId>,
    ) -> Result<GridId, SimError> {
        let (code, k) = (&module.inner, entry(module, kernel)?);
        self.check_pe(grid.pe)?;
        let symbols = self.load(grid.pe, code)?.to_vec();
        let mut grid = self.grid(code, k, grid, &symbols)?;
        // The grids of earlier runs have ended.
        let here = |id: &GridId| id.0.checked_sub(self.ended).map(|n| n as usize);
        grid.after = after.iter().filter_map(here).collect();
        grid.early = early.as_ref().and_then(here);
        let first = self.ended;
        let number = self.with_run(|run| {
            grid.image = run.image(code);
            run.add(grid)
        });
        Ok(GridId(first + number as u64))
    }

    /// Runs the grids until some have ended, and returns these. The result is empty if all have
    /// already ended. More grids can [`begin`](Self::begin) between the calls.
    ///
    /// # Errors
    /// Fails with the error that stopped one thread or all of them. The run is then over, and the
    /// remaining grids are removed.
    pub fn advance(&mut self) -> Result<Vec<GridId>, SimError> {
        if self.running.is_none() {
            return Ok(Vec::new());
        }
        let first = self.ended;
        let ended = self.with_run(|run| run.advance().map(|()| std::mem::take(&mut run.ended)));
        match ended {
            Ok(ended) => Ok(ended.into_iter().map(|n| GridId(first + n as u64)).collect()),
            Err(e) => Err(self.fail(e)),
        }
    }

    /// Ends a run whose grids have all ended: pending remote operations complete. Returns the
    /// statistics of the run.
    ///
    /// # Errors
    /// Fails if an operation fails at its completion.
    pub fn settle(&mut self) -> Result<Stats, SimError> {
        if self.running.is_none() {
            return Ok(Stats::default());
        }
        if let Err(e) = self.with_run(Run::settle) {
            return Err(self.fail(e));
        }
        Ok(self.leave().map(|ended| stats(&ended, &self.memory)).unwrap_or_default())
    }

    /// Whether grids have begun and the run has not been settled.
    pub fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// Ends a run with an error.
    fn fail(&mut self, e: SimError) -> SimError {
        let printed = self.leave().map(|ended| ended.run.output.text).unwrap_or_default();
        SimError { printed, ..e }
    }

    /// Calls `act` with the run, which has the memory meanwhile, and begins a run if there is none.
    fn with_run<T>(&mut self, act: impl FnOnce(&mut Run) -> T) -> T {
        let mut running = match self.running.take() {
            Some(running) => running,
            None => self.start(),
        };
        std::mem::swap(&mut running.run.memory, &mut self.memory);
        let result = act(&mut running.run);
        std::mem::swap(&mut running.run.memory, &mut self.memory);
        self.running = Some(running);
        result
    }

    fn start(&mut self) -> Running {
        let (links, remote) = (self.memory.links.clone(), self.memory.remote);
        let memory = std::mem::replace(&mut self.memory, Memory::none());
        let mut run = Box::new(Run::new(memory, (self.config.seed, self.config.explore)));
        run.launched.clone_from(&self.launched);
        run.step_limit = self.config.step_limit;
        run.time_limit = self.config.time_limit.map(|limit| (Instant::now() + limit, limit));
        run.stop.clone_from(&self.config.stop);
        run.remote.reach(self.config.peer_access, self.config.multicast);
        run.output = Output { limit: self.config.print_limit, ..Output::default() };
        if let Some(check) = &self.config.check {
            run.watch(check);
        }
        if let Some(trace) = &self.config.trace {
            run.trace = Some(Box::new(Recorder::new(&mut run, trace, self.trace.len())));
        }
        std::mem::swap(&mut run.memory, &mut self.memory);
        Running { run, links, remote }
    }

    /// Ends the run, and takes its findings, its timeline and its shared memories.
    fn leave(&mut self) -> Option<Running> {
        let mut running = self.running.take()?;
        let run = &mut running.run;
        std::mem::swap(&mut run.memory, &mut self.memory);
        if let Some(recorder) = run.trace.take() {
            self.trace.extend(recorder.finish(run));
        }
        run.memory.unshare();
        self.findings.extend(run.findings());
        self.ended += run.grids.len() as u64;
        for grid in run.grids.iter().filter(|grid| !grid.module.of_host) {
            self.launched[grid.pe] += 1;
        }
        std::mem::swap(&mut run.memory, &mut self.memory);
        Some(running)
    }
}

/// The number of a kernel in its module.
fn entry(module: &Module, kernel: &str) -> Result<usize, SimError> {
    let kernels = module.kernels();
    kernels.iter().position(|k| k.name == kernel).ok_or_else(|| {
        let names: Vec<&str> = kernels.iter().map(|k| k.name.as_str()).collect();
        let help = format!("the module has: {}", names.join(", "));
        SimError::request(format!("the module has no kernel `{kernel}`"), help)
    })
}

/// The statistics of a run, whose traffic `memory` has counted.
fn stats(running: &Running, memory: &Memory) -> Stats {
    let run = &running.run;
    let mut s = Stats { barriers: run.barriers, ..Stats::default() };
    let counted = || run.modules.iter().zip(&run.counts).filter(|(code, _)| !code.of_host);
    let mut by_mnemonic: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    for (code, counts) in counted() {
        for (inst, c) in code.insts.iter().zip(counts).filter(|(_, c)| c.warps > 0) {
            s.warp_instructions += c.warps;
            s.lane_instructions += c.lanes;
            let entry = by_mnemonic.entry(&code.mnemonics[inst.mnemonic as usize]).or_default();
            *entry = (entry.0 + c.warps, entry.1 + c.lanes);
            match s.lines.last_mut() {
                Some((line, n)) if *line == inst.line => *n += c.warps,
                _ => s.lines.push((inst.line, c.warps)),
            }
        }
    }
    match counted().count() {
        1 => s.lines.sort_unstable(),
        // The lines of different texts cannot be combined.
        _ => s.lines.clear(),
    }
    let opcode = |(m, (warps, lanes)): (&str, (u64, u64))| OpcodeCount { mnemonic: m.into(), warps, lanes };
    s.opcodes = by_mnemonic.into_iter().map(opcode).collect();
    s.opcodes.sort_by(|a, b| b.warps.cmp(&a.warps).then_with(|| a.mnemonic.cmp(&b.mnemonic)));
    s.remote_loads = memory.remote.loads - running.remote.loads;
    s.remote_stores = memory.remote.stores - running.remote.stores;
    s.links = memory.links.iter().zip(&running.links).map(|(now, before)| now - before).collect();
    let by_team = run.multicast.chunks_exact(memory.n_pes).zip(&memory.teams);
    let traffic = by_team.map(|(by_pe, t)| MulticastTraffic::new(t.members.clone(), by_pe.to_vec()));
    s.multicast = traffic.filter(|m| m.ld_reduce + m.st + m.red > 0).collect();
    s.nvshmem = NvshmemStats {
        calls: run.remote.counts(),
        links: run.remote.wire.links.clone(),
        unfinished: run.remote.wire.unfinished,
    };
    s.printed.clone_from(&run.output.text);
    s.printed_truncated = run.output.truncated;
    s
}
