//! Expresses findings in words: both accesses, the memory, and the missing order.

use super::detector::{Detector, Raw, Side};
use super::programs::Programs;
use super::{Access, AccessKind, Agent, Finding, Location, MemorySpace};
use crate::codes;
use crate::error::CodeLocation;
use crate::model::{LANES, WarpId};
use crate::names::Named;

impl Detector {
    /// The opcode of an instruction with its modifiers, or the function of a call.
    pub(super) fn opcode(&self, programs: &dyn Programs, warp: WarpId, pc: u32) -> String {
        let info = self.threads.info(warp);
        let Some(inst) = info.and_then(|i| programs.instruction(i.grid, pc)) else {
            return String::new();
        };
        let mnemonic = inst.mnemonic;
        let words = inst.text.split([',', ' ', '(', ')', ';', '\t']);
        let called = || words.clone().find(|w| w.starts_with("nvshmem"));
        match mnemonic.starts_with("call").then(called).flatten() {
            Some(name) => name.to_string(),
            None => mnemonic.to_owned(),
        }
    }

    /// The findings in words.
    pub(crate) fn findings(&self, programs: &dyn Programs) -> Vec<Finding> {
        let mut out: Vec<Finding> = self.raws.iter().filter_map(|r| self.finding(programs, r)).collect();
        if let (Some(last), true) = (out.last_mut(), self.dropped > 0) {
            last.notes.push(format!("{} more findings at other locations are not listed", self.dropped));
        }
        out
    }

    fn place(&self, programs: &dyn Programs, s: &Side) -> Option<CodeLocation> {
        let info = self.threads.info(s.warp)?;
        let grid = programs.grid(info.grid)?;
        let inst = programs.instruction(info.grid, s.pc)?;
        let [x, y, _] = grid.block;
        let threads = grid.block.iter().product::<u32>();
        let linear = ((s.warp.0 - info.first_warp.0) * LANES as u32 + s.lane).min(threads.saturating_sub(1));
        Some(CodeLocation {
            pe: info.pe as usize,
            cta: info.ctaid,
            thread: Some([linear % x, linear / x % y, linear / (x * y)]),
            role: Named::of(grid.names, linear).cloned(),
            kernel: grid.kernel.to_owned(),
            ptx_line: inst.line,
            ptx_text: inst.text.to_owned(),
            source: inst.source,
        })
    }

    fn access(&self, programs: &dyn Programs, s: &Side) -> Option<Access> {
        Some(Access { place: self.place(programs, s)?, kind: s.kind, agent: s.agent })
    }

    /// `ld.acquire.sys.b32 (PTX line 7) by PE 5, CTA (0, 0, 0), thread (3, 0, 0)`
    pub(super) fn words(&self, programs: &dyn Programs, s: &Side) -> String {
        let by = if s.agent == Agent::Thread { "by" } else { "begun by" };
        format!("{} {by} {}", self.instruction(programs, s), self.who(programs, s))
    }

    /// `ld.acquire.sys.b32 (k.weft:7:5, PTX line 7)`
    pub(super) fn instruction(&self, programs: &dyn Programs, s: &Side) -> String {
        let Some(CodeLocation { source, ptx_line, .. }) = self.place(programs, s) else {
            return String::new();
        };
        let line = source.first().map_or(String::new(), |s| format!("{s}, "));
        format!("{} ({line}PTX line {ptx_line})", self.opcode(programs, s.warp, s.pc))
    }

    /// `PE 5, CTA (0, 0, 0), thread (3, 0, 0)`
    pub(super) fn who(&self, programs: &dyn Programs, s: &Side) -> String {
        let Some(place) = self.place(programs, s) else { return String::new() };
        let CodeLocation { pe, cta: [x, y, z], .. } = place;
        format!("PE {pe}, CTA ({x}, {y}, {z}){}", place.thread_words())
    }

    /// The latest write to a word of memory, in words.
    pub(crate) fn last_write(&self, programs: &dyn Programs, space: usize, word: usize) -> Option<String> {
        let write = self.shadow.peek(space, word)?.write;
        let r = self.shadow.records(&write).last()?;
        let warp = self.threads.warp(r.warp);
        let (lane, kind) = (r.lanes.trailing_zeros().min(31), AccessKind::Write);
        Some(self.words(
            programs,
            &Side { warp, lane, pc: r.pc, agent: r.agent, kind, strong: r.strong, time: r.time },
        ))
    }

    fn location(&self, programs: &dyn Programs, raw: &Raw) -> Location {
        let Raw { space, offset, bytes, at, .. } = raw;
        let bytes = *bytes as u64;
        if *space < self.globals {
            let (name, start, symmetric, pe) = programs.memory().allocation(*space, *offset as u64);
            let space = if symmetric { MemorySpace::Symmetric { pe } } else { MemorySpace::Global { pe } };
            return Location { name, space, offset: *offset as u64 - start, bytes };
        }
        // A slot's CTA may have ended since; shared memory is accessed by its own CTA or cluster.
        let info = self.threads.info(at.warp);
        let (pe, cta) = info.map_or((0, [0; 3]), |i| (i.pe as usize, i.ctaid));
        let variable = info.and_then(|i| programs.shared_variable(i.grid, *offset as u64));
        let (name, start) = variable.unwrap_or_default();
        Location {
            name: name.to_owned(),
            space: MemorySpace::Shared { pe, cta },
            offset: *offset as u64 - start,
            bytes,
        }
    }

    fn finding(&self, programs: &dyn Programs, raw: &Raw) -> Option<Finding> {
        let at = self.access(programs, &raw.at)?;
        let location = self.location(programs, raw);
        let mut finding = Finding {
            code: codes::RACE,
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
                finding.code = codes::UNWRITTEN;
                finding.message = format!(
                    "{} reads memory that nobody has written",
                    self.opcode(programs, raw.at.warp, raw.at.pc)
                );
                finding.help = match raw.space < self.globals {
                    true => {
                        "initialise the memory on the host, or write it before it is read: its contents differ from run to run"
                    }
                    false => "write the shared memory before it is read: it begins with the data of an earlier CTA",
                }
                .into();
            }
            Some(other) => {
                finding.other = self.access(programs, other);
                self.explain(programs, raw, other, &mut finding);
            }
        }
        Some(finding)
    }
}

/// The amount of explanation in a finding, as one number.
fn rank((explained, apart): (u8, u8)) -> u8 {
    8 * explained + apart
}
