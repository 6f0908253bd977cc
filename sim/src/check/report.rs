//! What was found, in words: both accesses, the memory, and the order that is missing.

use super::detector::{Detector, Raw, Side};
use super::{Access, AccessKind, Agent, Finding, Location, MemorySpace};
use crate::error::Place;
use crate::exec::run::Run;
use crate::model::LANES;

impl Detector {
    /// An instruction's opcode with its modifiers; of a call, the function.
    pub(super) fn opcode(&self, run: &Run, warp: u32, pc: u32) -> String {
        let grid = self.threads.info(warp).and_then(|i| run.grids.get(i.grid as usize));
        let Some(code) = grid.map(|g| &*g.module) else { return String::new() };
        let Some(inst) = code.insts.get(pc as usize) else { return String::new() };
        let mnemonic = &code.mnemonics[inst.mnemonic as usize];
        let words = code.line(inst.line).split([',', ' ', '(', ')', ';', '\t']);
        let called = || words.clone().find(|w| w.starts_with("nvshmem"));
        match mnemonic.starts_with("call").then(called).flatten() {
            Some(name) => name.to_string(),
            None => mnemonic.clone(),
        }
    }

    /// The findings in words.
    pub(crate) fn findings(&self, run: &Run) -> Vec<Finding> {
        let mut out: Vec<Finding> = self.raws.iter().filter_map(|r| self.finding(run, r)).collect();
        if let (Some(last), true) = (out.last_mut(), self.dropped > 0) {
            last.notes.push(format!("{} more findings at other places are not listed", self.dropped));
        }
        out
    }

    fn place(&self, run: &Run, s: &Side) -> Option<Place> {
        let info = self.threads.info(s.warp)?;
        let grid = run.grids.get(info.grid as usize)?;
        let inst = grid.module.insts.get(s.pc as usize)?;
        let [x, y, _] = grid.block;
        let threads = grid.block.iter().product::<u32>();
        let linear = ((s.warp - info.first_warp) * LANES as u32 + s.lane).min(threads.saturating_sub(1));
        Some(Place {
            pe: info.pe as usize,
            cta: info.ctaid,
            thread: Some([linear % x, linear / x % y, linear / (x * y)]),
            kernel: grid.kernel().name.clone(),
            ptx_line: inst.line,
            ptx_text: grid.module.line(inst.line).to_string(),
            source: grid.module.source(inst),
        })
    }

    fn access(&self, run: &Run, s: &Side) -> Option<Access> {
        Some(Access { place: self.place(run, s)?, kind: s.kind, agent: s.agent })
    }

    /// `ld.acquire.sys.b32 (PTX line 7) by PE 5, CTA (0, 0, 0), thread (3, 0, 0)`
    pub(super) fn words(&self, run: &Run, s: &Side) -> String {
        let by = if s.agent == Agent::Thread { "by" } else { "begun by" };
        format!("{} {by} {}", self.instruction(run, s), self.who(run, s))
    }

    /// `ld.acquire.sys.b32 (k.weft:7:5, PTX line 7)`
    pub(super) fn instruction(&self, run: &Run, s: &Side) -> String {
        let Some(Place { source, ptx_line, .. }) = self.place(run, s) else { return String::new() };
        let line = source.first().map_or(String::new(), |s| format!("{s}, "));
        format!("{} ({line}PTX line {ptx_line})", self.opcode(run, s.warp, s.pc))
    }

    /// `PE 5, CTA (0, 0, 0), thread (3, 0, 0)`
    pub(super) fn who(&self, run: &Run, s: &Side) -> String {
        let Some(Place { pe, cta: [x, y, z], thread, .. }) = self.place(run, s) else { return String::new() };
        let thread = thread.map_or(String::new(), |[x, y, z]| format!(", thread ({x}, {y}, {z})"));
        format!("PE {pe}, CTA ({x}, {y}, {z}){thread}")
    }

    /// The latest write to a word of memory, in words.
    pub(crate) fn last_write(&self, run: &Run, space: usize, word: usize) -> Option<String> {
        let write = self.shadow.peek(space, word)?.write;
        let r = self.shadow.records(&write).last()?;
        let warp = self.threads.warp(r.warp);
        let (lane, kind) = (r.lanes.trailing_zeros().min(31), AccessKind::Write);
        Some(
            self.words(
                run,
                &Side { warp, lane, pc: r.pc, agent: r.agent, kind, strong: r.strong, time: r.time },
            ),
        )
    }

    fn location(&self, run: &Run, raw: &Raw) -> Location {
        let Raw { space, offset, bytes, at, .. } = raw;
        let bytes = *bytes as u64;
        if *space < self.globals {
            let (name, start, symmetric, pe) = run.memory.allocation(*space, *offset as u64);
            let space = if symmetric { MemorySpace::Symmetric { pe } } else { MemorySpace::Global { pe } };
            return Location { name, space, offset: *offset as u64 - start, bytes };
        }
        // A slot's CTA may have ended since; shared memory is accessed by its own CTA or cluster.
        let info = self.threads.info(at.warp);
        let (pe, cta) = info.map_or((0, [0; 3]), |i| (i.pe as usize, i.ctaid));
        let grid = info.and_then(|i| run.grids.get(i.grid as usize));
        let below = |g: &crate::exec::run::Grid| {
            let of = g.code().shared.iter().filter(|(_, start)| *start <= *offset as u64);
            of.max_by_key(|(_, start)| *start).copied()
        };
        let (name, start) = match grid.and_then(|g| Some((g, below(g)?))) {
            Some((g, (v, start))) => (g.module.variables[v].name.clone(), start),
            None => (String::new(), 0),
        };
        Location { name, space: MemorySpace::Shared { pe, cta }, offset: *offset as u64 - start, bytes }
    }

    fn finding(&self, run: &Run, raw: &Raw) -> Option<Finding> {
        let at = self.access(run, &raw.at)?;
        let location = self.location(run, raw);
        let mut finding = Finding {
            code: "S030",
            message: String::new(),
            at,
            other: None,
            location: Some(location),
            notes: Vec::new(),
            help: String::new(),
            count: raw.count,
            rank: rank(self.telling(raw)),
        };
        match &raw.other {
            None => {
                finding.code = "S036";
                finding.message = format!(
                    "{} reads memory that nobody has written",
                    self.opcode(run, raw.at.warp, raw.at.pc)
                );
                finding.help = match raw.space < self.globals {
                    true => {
                        "initialise it on the host or write it before: its contents differ from run to run"
                    }
                    false => "shared memory begins with whatever an earlier CTA left",
                }
                .into();
            }
            Some(other) => {
                finding.other = self.access(run, other);
                self.explain(run, raw, other, &mut finding);
            }
        }
        Some(finding)
    }
}

/// How much a finding says, as one number.
fn rank((explained, apart): (u8, u8)) -> u8 {
    8 * explained + apart
}
