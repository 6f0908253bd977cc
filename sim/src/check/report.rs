//! What was found, in words: both accesses, the memory, and the order that is missing.

use super::detector::{Detector, Fault, Raw, Side};
use super::patterns::{Miss, Why};
use super::sync::CtaInfo;
use super::why::Near;
use super::{Access, AccessKind, Agent, Finding, Location, MemorySpace};
use crate::error::Place;
use crate::exec::run::Run;
use crate::model::LANES;

/// Where two threads stand to each other: what can order them.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Distance {
    Warp,
    Cta,
    Cluster,
    Gpu,
    System,
}

impl Distance {
    fn of(a: &CtaInfo, b: &CtaInfo, same_cta: bool, same_warp: bool) -> Distance {
        if same_warp {
            Distance::Warp
        } else if same_cta {
            Distance::Cta
        } else if a.pe != b.pe {
            Distance::System
        } else if a.grid == b.grid && a.cluster == b.cluster {
            Distance::Cluster
        } else {
            Distance::Gpu
        }
    }

    /// Between whom, and the scope that includes both.
    fn words(self) -> (&'static str, &'static str) {
        match self {
            Distance::Warp => ("threads of one warp", "cta"),
            Distance::Cta => ("threads of one CTA", "cta"),
            Distance::Cluster => ("CTAs of one cluster", "cluster"),
            Distance::Gpu => ("CTAs of one PE", "gpu"),
            Distance::System => ("PEs", "sys"),
        }
    }

    fn remedy(self) -> &'static str {
        match self {
            Distance::Warp => {
                "put bar.warp.sync (__syncwarp) between them: a shuffle or vote orders no memory"
            }
            Distance::Cta => "put a barrier of the CTA between them",
            Distance::Cluster => "put a cluster barrier with .release and .acquire between them",
            Distance::Gpu => {
                "let one release at .gpu scope what the other acquires (a flag, or a barrier of the grid)"
            }
            Distance::System => {
                "let one PE release at .sys scope what the other acquires (a signal, or a barrier over the PEs)"
            }
        }
    }
}

impl Detector {
    /// An instruction's opcode with its modifiers; of a call, the function.
    fn opcode(&self, run: &Run, warp: u32, pc: u32) -> String {
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
    fn words(&self, run: &Run, s: &Side) -> String {
        let Some(Place { pe, cta: [x, y, z], thread, source, ptx_line, .. }) = self.place(run, s) else {
            return String::new();
        };
        let by = if s.agent == Agent::Thread { "by" } else { "begun by" };
        let thread = thread.map_or(String::new(), |[x, y, z]| format!(", thread ({x}, {y}, {z})"));
        let line = source.first().map_or(String::new(), |s| format!("{s}, "));
        format!(
            "{} ({line}PTX line {ptx_line}) {by} PE {pe}, CTA ({x}, {y}, {z}){thread}",
            self.opcode(run, s.warp, s.pc)
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

    /// Code, message, missing order and remedy of a pair.
    fn explain(&self, run: &Run, raw: &Raw, other: &Side, f: &mut Finding) {
        let (Some(a), Some(b)) = (self.threads.info(raw.at.warp), self.threads.info(other.warp)) else {
            return;
        };
        let same_cta =
            self.threads.warp_cta.get(raw.at.warp as usize) == self.threads.warp_cta.get(other.warp as usize);
        let distance = Distance::of(a, b, same_cta, raw.at.warp == other.warp);
        let (between, scope) = distance.words();
        let (first, second) = (self.words(run, other), self.words(run, &raw.at));
        let kinds = match (other.kind, raw.at.kind) {
            (AccessKind::Read, _) => "a write that a read is not ordered before",
            (_, AccessKind::Read) => "a read that a write is not ordered before",
            _ => "two writes",
        };
        f.message = format!("data race between {between}: {kinds}");
        f.notes.push(format!("{first} is not ordered before {second}"));
        f.help = distance.remedy().into();
        match (raw.fault, other.agent, raw.at.agent) {
            (Fault::NonCoherent, ..) => {
                f.code = "S037";
                f.message = "ld.global.nc of memory that this launch writes".into();
                f.notes =
                    vec![format!("{first} wrote it; the read-only path may return what was there before")];
                f.help =
                    "load with ld.global (no __ldg, no const __restrict__) what the kernel itself writes"
                        .into();
                return;
            }
            (Fault::Scope, ..) => {
                f.code = "S032";
                f.message = format!("data race between {between}: a scope is too narrow");
                let narrow = [(other, &first), (&raw.at, &second)];
                for (side, words) in narrow {
                    if let Some(s) = side.strong.filter(|s| s.name() != scope && s.name() != "sys") {
                        f.notes.push(format!(
                            "the .{} scope of {words} does not include the other thread",
                            s.name()
                        ));
                    }
                }
                f.help = format!("give both .{scope} scope");
                return;
            }
            (Fault::Proxy, ..) => {
                f.code = "S033";
                f.message =
                    "a proxy fence is missing between an access by a thread and one by the async proxy"
                        .into();
                f.help = "execute fence.proxy.async after the access and before the barrier that hands the memory over".into();
                return;
            }
            (_, Agent::Remote, _) | (_, _, Agent::Remote) => {
                f.code = "S034";
                let (what, help) = remote(raw, other, same_cta);
                f.message = what.into();
                f.help = help.into();
                return;
            }
            (_, Agent::Copy | Agent::Async, _) => {
                f.code = "S035";
                f.message = "an asynchronous operation is not complete".into();
                f.help = "wait for it before (cp.async.wait_group and then a barrier, the mbarrier it completes on, \
                          cp.async.bulk.wait_group, or wgmma.wait_group)"
                    .into();
                return;
            }
            _ => {}
        }
        if let Some(m) = &raw.miss {
            self.tell_miss(run, m, scope, f);
        } else if let Some(near) = &raw.near {
            self.tell_near(run, near, f);
        }
    }

    /// Others have synchronised.
    fn tell_near(&self, run: &Run, near: &Near, f: &mut Finding) {
        let (Near::Learnt { warp, .. } | Near::Told { warp, .. }) = *near else { return };
        let side =
            |lane| Side { warp, lane, pc: 0, agent: Agent::Thread, kind: AccessKind::Read, strong: None };
        let thread = |lane| self.place(run, &side(lane)).and_then(|p| p.thread).unwrap_or_default();
        let (note, help) = match *near {
            Near::Learnt { lane, .. } => {
                let [x, y, z] = thread(lane);
                (
                    format!(
                        "thread ({x}, {y}, {z}) of this CTA has acquired what the other one did, this thread has not"
                    ),
                    "put a barrier of the CTA between that thread's wait and this access",
                )
            }
            Near::Told { lane, .. } => {
                let [x, y, z] = thread(lane.unwrap_or(0));
                let who = if lane.is_some() { "thread" } else { "the warp of thread" };
                (
                    format!(
                        "{who} ({x}, {y}, {z}) of the other CTA has released later, but what it did itself only"
                    ),
                    "put a barrier of the CTA between that access and the release",
                )
            }
            Near::Issued => return,
        };
        f.notes.push(note);
        f.help = help.into();
    }

    /// Synchronisation that was there and did not do.
    fn tell_miss(&self, run: &Run, m: &Miss, scope: &str, f: &mut Finding) {
        let side = |warp, lane, pc, kind| Side { warp, lane, pc, agent: Agent::Thread, kind, strong: None };
        let write = self.words(run, &side(m.writer, m.writer_lane, m.write_pc, AccessKind::Write));
        let read = self.words(run, &side(m.reader, m.reader_lane, m.read_pc, AccessKind::Read));
        let fence = ["fence", "membar"].iter().any(|f| self.opcode(run, m.writer, m.write_pc).starts_with(f));
        let met = match fence {
            true => format!("{read} reads what was written behind {write}"),
            false => format!("{read} reads what {write} wrote"),
        };
        let (code, note, help) = match m.why {
            Why::NoRelease => (
                "S031",
                format!("{met}, which is relaxed: no release orders what came before it"),
                format!("write it with .release.{scope}, or put fence.acq_rel.{scope} before it"),
            ),
            Why::NoAcquire => (
                "S031",
                format!("{met}, but relaxed: no acquire orders what comes after it"),
                format!("read it with .acquire.{scope}, or put fence.acq_rel.{scope} behind it"),
            ),
            Why::WeakWrite => (
                "S031",
                format!("{met}, which is a weak store: it synchronises with nobody"),
                format!("write it with .release.{scope}"),
            ),
            Why::Scope(s) => (
                "S032",
                format!(
                    "{met}, but the .{} scope of one of them does not include the other thread",
                    s.name()
                ),
                format!("use .{scope} scope for both, and for the fences beside them"),
            ),
        };
        f.code = code;
        f.notes.push(note);
        f.help = help;
    }
}

/// An operation of NVSHMEM's and what met it.
fn remote(raw: &Raw, other: &Side, same_cta: bool) -> (&'static str, &'static str) {
    match (other.agent, other.kind) {
        (Agent::Remote, AccessKind::Read) => (
            "the source of a non-blocking operation is written before it has been read",
            "call quiet (nvshmem_quiet) or a barrier before using the source again",
        ),
        (Agent::Remote, _) if same_cta && raw.at.agent == Agent::Thread => (
            "the destination of a non-blocking operation is used before it is complete",
            "call quiet (nvshmem_quiet) before",
        ),
        (Agent::Remote, _) if matches!(raw.near, Some(Near::Issued)) => (
            "a remote operation is not ordered before this access: the barrier or flag between them does not complete it",
            "call quiet (nvshmem_quiet) behind the operation, before that barrier or flag",
        ),
        (Agent::Remote, _) => (
            "a remote operation is not ordered before this access",
            "wait for a signal that a fence or put_signal orders behind it, or for a barrier over the PEs",
        ),
        _ => (
            "a remote operation is not ordered after this access",
            "let the PE that issues it wait until the other has finished (a signal, or a barrier over the PEs)",
        ),
    }
}
