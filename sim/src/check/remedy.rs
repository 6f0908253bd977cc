//! Finds the order that is missing between two accesses, and a synchronisation that supplies it.

use super::detector::{Detector, Fault, Raw, Side};
use super::near::Near;
use super::patterns::{Miss, Unordered};
use super::programs::Programs;
use super::sync::{CtaInfo, Met};
use super::{AccessKind, Agent, Finding};
use crate::codes;
use crate::model::{CtaId, LANES, WarpId};

/// The distance between two threads, which determines what can order them.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Distance {
    Warp,
    /// The CTA has other warps.
    WarpOfMany,
    Cta,
    Cluster,
    Gpu,
    System,
}

impl Distance {
    fn of((a, b): (&CtaInfo, &CtaInfo), same_cta: bool, same_warp: bool, many: bool) -> Distance {
        if same_warp {
            if many { Distance::WarpOfMany } else { Distance::Warp }
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

    /// The words for the pair, and the scope that includes both threads.
    fn words(self) -> (&'static str, &'static str) {
        match self {
            Distance::Warp | Distance::WarpOfMany => ("threads of one warp", "cta"),
            Distance::Cta => ("threads of one CTA", "cta"),
            Distance::Cluster => ("CTAs of one cluster", "cluster"),
            Distance::Gpu => ("CTAs of one PE", "gpu"),
            Distance::System => ("PEs", "sys"),
        }
    }

    fn remedy(self) -> &'static str {
        match self {
            Distance::Warp => {
                "put bar.warp.sync (__syncwarp) between them: a shuffle or a vote does not order memory accesses"
            }
            Distance::WarpOfMany => {
                "put a barrier of the CTA (sync_threads) between them; bar.warp.sync is enough only where no other warp \
                 uses this memory"
            }
            Distance::Cta => "put a barrier of the CTA (sync_threads) between them",
            Distance::Cluster => "put a cluster barrier with .release and .acquire between them",
            Distance::Gpu => {
                "let one thread release at .gpu scope and the other acquire (through a flag or a grid barrier)"
            }
            Distance::System => {
                "let one PE release at .sys scope and the other acquire (through a signal or a barrier over the PEs)"
            }
        }
    }
}

/// The PEs of two accesses and the numbers of their launches, counted from 1 on each PE.
struct Launches {
    pes: [u32; 2],
    later: usize,
    earlier: usize,
}

impl Launches {
    /// A note that says whether an earlier launch is involved.
    fn note(&self) -> Option<String> {
        let Launches { pes: [a, b], later, earlier } = self;
        if later != earlier {
            return Some(format!(
                "PE {a} makes its access in launch {later} and PE {b} in launch {earlier}: no PE waits at the end of a \
                 launch for the others, unless the kernel or the host lets it"
            ));
        }
        let before = later.checked_sub(1).filter(|before| *before > 0)?;
        Some(format!(
            "both accesses are in launch {later}: a signal or a counter that keeps its value from launch {before} lets a \
             wait for the same value pass at once"
        ))
    }
}

/// A side for a thread without an access.
fn thread(warp: WarpId, lane: u32) -> Side {
    at(warp, lane, 0)
}

/// A side for an instruction of a thread.
fn at(warp: WarpId, lane: u32, pc: u32) -> Side {
    Side { warp, lane, pc, agent: Agent::Thread, kind: AccessKind::Read, strong: None, time: 0 }
}

impl Detector {
    /// Fills in the code, message, missing order and remedy of a pair, and its launches.
    pub(super) fn explain(&self, programs: &dyn Programs, raw: &Raw, other: &Side, f: &mut Finding) {
        self.explain_order(programs, raw, other, f);
        f.notes.extend(self.launches(programs, raw, other).and_then(|launches| launches.note()));
    }

    fn explain_order(&self, programs: &dyn Programs, raw: &Raw, other: &Side, f: &mut Finding) {
        let (Some(a), Some(b)) = (self.threads.info(raw.at.warp), self.threads.info(other.warp)) else {
            return;
        };
        let same_cta = self.threads.warp_cta.get(raw.at.warp) == self.threads.warp_cta.get(other.warp);
        let block = programs.grid(a.grid).map_or(0, |g| g.block.iter().product::<u32>());
        let distance = Distance::of((a, b), same_cta, raw.at.warp == other.warp, block > LANES as u32);
        let (between, scope) = distance.words();
        let (first, second) = (self.words(programs, other), self.words(programs, &raw.at));
        let kinds = match (other.kind, raw.at.kind) {
            (AccessKind::Read, _) => "a read and a later write without an order between them",
            (_, AccessKind::Read) => "a write and a later read without an order between them",
            _ => "two writes",
        };
        f.message = format!("data race between {between}: {kinds}");
        f.notes.push(format!("{first} is not ordered before {second}"));
        f.help = distance.remedy().into();
        if self.tell_kind(programs, raw, other, (between, scope), f) {
            return;
        }
        match &raw.misses[..] {
            [] => {
                let told =
                    self.tell_update(programs, raw, other, f) || self.tell_launches(programs, raw, other, f);
                if !told {
                    self.tell_near(programs, raw, other, scope, f);
                }
            }
            [miss] => self.tell_miss(programs, miss, scope, f),
            all => self.tell_relay(programs, all, scope, f),
        }
    }

    /// Explains pairs that need a special text. Returns whether the pair is one of them.
    fn tell_kind(
        &self,
        programs: &dyn Programs,
        raw: &Raw,
        other: &Side,
        (between, scope): (&str, &str),
        f: &mut Finding,
    ) -> bool {
        let first = self.words(programs, other);
        let (code, message, help) = match (raw.fault, other.agent, raw.at.agent) {
            (Fault::NonCoherent, ..) => {
                f.notes = vec![format!(
                    "{first} wrote this memory; the read-only path may return the value from before that write"
                )];
                (
                    codes::READ_ONLY,
                    "ld.global.nc of memory that this launch writes",
                    "load memory that the kernel itself writes with ld.global (without __ldg and const __restrict__)",
                )
            }
            (Fault::Scope, ..) => {
                f.code = codes::NARROW_SCOPE;
                f.message = format!("data race between {between}: a scope is too narrow");
                for side in [other, &raw.at] {
                    if let Some(s) = side.strong.filter(|s| s.name() != scope && s.name() != "sys") {
                        let (name, words) = (s.name(), self.words(programs, side));
                        f.notes
                            .push(format!("the .{name} scope of {words} does not include the other thread"));
                    }
                }
                f.help = format!("use .{scope} scope in both instructions");
                return true;
            }
            (Fault::Proxy, ..) => (
                codes::PROXY,
                "a proxy fence is missing between an access by a thread and an access by the async proxy",
                "execute fence.proxy.async after the access and before the barrier that hands the memory over",
            ),
            (_, Agent::Remote, _) | (_, _, Agent::Remote) => {
                let (what, help) = remote(raw, other, scope == "cta");
                (codes::REMOTE, what, help)
            }
            (_, Agent::Copy | Agent::Async, _) => (
                codes::COPY,
                "memory is used before an asynchronous operation on it is complete",
                "wait for the operation first (cp.async.wait_group and then a barrier, the mbarrier it completes on, \
                 cp.async.bulk.wait_group, or wgmma.wait_group)",
            ),
            _ => return false,
        };
        (f.code, f.message, f.help) = (code, message.into(), help.into());
        if code == codes::REMOTE {
            self.tell_launches(programs, raw, other, f);
        }
        true
    }

    /// Explains accesses in two launches. Returns whether they are in different launches.
    fn tell_launches(&self, programs: &dyn Programs, raw: &Raw, other: &Side, f: &mut Finding) -> bool {
        let Some(launches) = self.launches(programs, raw, other).filter(|l| l.later != l.earlier) else {
            return false;
        };
        let last = if launches.later > launches.earlier { raw.at.warp } else { other.warp };
        let grid = self.threads.info(last).and_then(|cta| programs.grid(cta.grid));
        let early = launches.pes[0] == launches.pes[1] && grid.is_some_and(|grid| grid.early);
        f.message = f.message.replacen(":", ", in two launches:", 1);
        f.help = if early {
            "let each thread of the later launch wait for the earlier one before this access (wait_dependencies; in PTX \
             griddepcontrol.wait)"
        } else {
            "put a barrier over the PEs at the end of the kernel, or let the host wait for all PEs between the launches"
        }
        .into();
        true
    }

    /// The launches of a pair.
    fn launches(&self, programs: &dyn Programs, raw: &Raw, other: &Side) -> Option<Launches> {
        let (a, b) = (self.threads.info(raw.at.warp)?, self.threads.info(other.warp)?);
        let number = |c: &CtaInfo| programs.grid(c.grid).map(|grid| grid.launch);
        Some(Launches { pes: [a.pe, b.pe], later: number(a)?, earlier: number(b)? })
    }

    /// Explains threads that update the same memory without atomic operations. Returns whether the
    /// pair is such a case.
    fn tell_update(&self, programs: &dyn Programs, raw: &Raw, other: &Side, f: &mut Finding) -> bool {
        let updates = |u: &Raw| {
            let pcs = u.update.map(|read| [read, u.at.pc]);
            pcs.is_some_and(|pcs| pcs.contains(&raw.at.pc) && pcs.contains(&other.pc))
        };
        let both_write = raw.at.kind.writes() && other.kind.writes();
        let one = both_write && (raw.at.warp, raw.at.time) == (other.warp, other.time);
        let (note, help) = if self.raws.iter().any(updates) {
            let write = if raw.at.kind.writes() { &raw.at } else { other };
            let write = self.instruction(programs, write);
            (
                format!(
                    "both threads read this memory and then write a value computed from it with {write}: one update may be lost"
                ),
                "update it atomically (`red<add>` or `atomic<add>`; in PTX red.add or atom.add), or let one thread do all updates",
            )
        } else if one {
            (
                "both threads execute the same instruction of one warp, so no barrier can come between the writes"
                    .to_owned(),
                "let one thread write, or combine the values (`red<add>`, or a reduction over the warp)",
            )
        } else {
            return false;
        };
        f.notes.push(note);
        f.help = help.into();
        true
    }

    /// Explains a synchronisation that other threads have made.
    fn tell_near(&self, programs: &dyn Programs, raw: &Raw, other: &Side, scope: &str, f: &mut Finding) {
        let cta = |warp: WarpId| self.threads.warp_cta.get(warp);
        // The side of the pair that belongs to the CTA of `warp`.
        let beside = |warp: WarpId| if cta(warp) == cta(raw.at.warp) { &raw.at } else { other };
        let (note, help) = match raw.near {
            Some(Near::Learnt { warp, lane }) => (
                format!(
                    "{} has acquired what the other thread released, but {} is not ordered after that acquire",
                    self.who(programs, &thread(warp, lane)),
                    self.instruction(programs, beside(warp))
                ),
                "put a barrier of the CTA (sync_threads) between that thread's wait and this access",
            ),
            Some(Near::Told { warp, lane }) => (
                format!(
                    "{}{} has released its own accesses, but {} is not ordered before that release",
                    if lane.is_some() { "" } else { "the warp of " },
                    self.who(programs, &thread(warp, lane.unwrap_or(0))),
                    self.instruction(programs, beside(warp))
                ),
                "put a barrier of the CTA (sync_threads) between that access and the release",
            ),
            Some(Near::SameIndex { cta, met }) => {
                let Some((own, met)) = self.named(cta).zip(self.named(met)) else { return };
                (
                    format!(
                        "{own} has synchronised with {met}, but not with the other CTA: a barrier over the PEs joins CTAs of \
                         the same index only"
                    ),
                    "let CTAs of the same index exchange the data, or put a barrier over the grids of all PEs between them",
                )
            }
            Some(Near::Apart { later, earlier }) => {
                (self.apart_words(programs, raw, other, later, earlier), {
                    "let all threads of the CTA execute the same barrier (sync_threads) between the two accesses"
                })
            }
            Some(Near::NextRound(met)) => (
                format!(
                    "both threads executed {} before the earlier access, and the later access is in the next iteration of a loop",
                    self.instruction(programs, &at(met.warp, 0, met.pc))
                ),
                "put a second barrier of the CTA (sync_threads) at the end of the loop's body",
            ),
            Some(Near::Issued) | None => return self.tell_plain_read(programs, raw, other, scope, f),
        };
        f.notes.push(note);
        f.help = help.into();
    }

    /// Notes a plain read of memory that a strong operation writes, which may be a read of a flag.
    fn tell_plain_read(
        &self,
        programs: &dyn Programs,
        raw: &Raw,
        other: &Side,
        scope: &str,
        f: &mut Finding,
    ) {
        let sides = [(&raw.at, other), (other, &raw.at)];
        let plain = sides.into_iter().find(|(write, read)| {
            write.kind.writes()
                && write.strong.is_some()
                && read.kind == AccessKind::Read
                && read.strong.is_none()
        });
        if let Some((_, read)) = plain {
            let read = self.instruction(programs, read);
            f.notes.push(format!(
                "{read} is a plain load: a load that waits for this write must be .acquire.{scope}"
            ));
        }
    }

    /// `CTA (0, 0, 0) of PE 1`
    fn named(&self, cta: CtaId) -> Option<String> {
        let c = self.threads.ctas.get(cta)?;
        let [x, y, z] = c.ctaid;
        Some(format!("CTA ({x}, {y}, {z}) of PE {}", c.pe))
    }

    /// Describes barriers that do not join the two threads.
    fn apart_words(
        &self,
        programs: &dyn Programs,
        raw: &Raw,
        other: &Side,
        later: Option<Met>,
        earlier: Option<Met>,
    ) -> String {
        let came = |side: &Side, met: Option<Met>| {
            let instruction = met.map(|m| self.instruction(programs, &at(m.warp, 0, m.pc)));
            instruction.map(|i| format!("{} executed {i}", self.who(programs, side)))
        };
        let both: Vec<String> = [came(other, earlier), came(&raw.at, later)].into_iter().flatten().collect();
        let of_warp = [earlier, later].into_iter().flatten().any(|m| m.at.is_none());
        let why = match of_warp {
            true => "bar.warp.sync joins threads of one warp only",
            false => "threads at different barriers do not wait for each other",
        };
        format!("{}: {why}", both.join(", and "))
    }

    /// Explains a synchronisation that exists but does not order the accesses.
    fn tell_miss(&self, programs: &dyn Programs, m: &Miss, scope: &str, f: &mut Finding) {
        let (code, note, help) = self.miss_words(programs, m, scope);
        f.code = code;
        f.notes.push(note);
        f.help = help;
    }

    /// Explains a chain of threads that passed on a value without passing on the order.
    fn tell_relay(&self, programs: &dyn Programs, all: &[Miss], scope: &str, f: &mut Finding) {
        f.code = codes::RELAXED;
        for m in all {
            let (code, note, _) = self.miss_words(programs, m, scope);
            f.code = if code == codes::NARROW_SCOPE { code } else { f.code };
            f.notes.push(note);
        }
        for m in &all[..all.len() - 1] {
            let relay = self.who(programs, &thread(m.reader, m.reader_lane));
            f.notes.push(format!("{relay} passes on the value that it reads, but its read and write do not order the accesses before them"));
        }
        f.help = format!(
            "let each thread of the chain read with .acquire.{scope} and write with .release.{scope}"
        );
    }

    fn miss_words(&self, programs: &dyn Programs, m: &Miss, scope: &str) -> (codes::Code, String, String) {
        let write = self.words(programs, &at(m.writer, m.writer_lane, m.write_pc));
        let read = self.words(programs, &at(m.reader, m.reader_lane, m.read_pc));
        let fence =
            ["fence", "membar"].iter().any(|f| self.opcode(programs, m.writer, m.write_pc).starts_with(f));
        let met = match fence {
            true => format!("{read} reads a value that was written after {write}"),
            false => format!("{read} reads the value that {write} wrote"),
        };
        match m.why {
            Unordered::NoRelease => (
                codes::RELAXED,
                format!("{met}, which is relaxed: no release orders the accesses before it"),
                format!("write it with .release.{scope}, or put fence.acq_rel.{scope} before it"),
            ),
            Unordered::NoAcquire => (
                codes::RELAXED,
                format!("{met}, but the read is relaxed: no acquire orders the accesses after it"),
                format!("read it with .acquire.{scope}, or put fence.acq_rel.{scope} after it"),
            ),
            Unordered::WeakWrite => (
                codes::RELAXED,
                format!("{met}, which is a weak store: a weak store does not synchronise with other threads"),
                format!("write it with .release.{scope}"),
            ),
            Unordered::Scope(s) => (
                codes::NARROW_SCOPE,
                format!(
                    "{met}, but the .{} scope of one of them does not include the other thread",
                    s.name()
                ),
                format!("use .{scope} scope for both, and for fences that belong to them"),
            ),
            Unordered::Learnt => (codes::RELAXED, met, String::new()),
        }
    }
}

/// The message and help for a race with an NVSHMEM operation.
fn remote(raw: &Raw, other: &Side, same_cta: bool) -> (&'static str, &'static str) {
    match (other.agent, other.kind) {
        (Agent::Remote, AccessKind::Read) => (
            "the source of a non-blocking operation is written before it has been read",
            "call quiet (nvshmem_quiet) or a barrier before using the source again",
        ),
        (Agent::Remote, _) if same_cta && raw.at.agent == Agent::Thread => (
            "the destination of a non-blocking operation is used before it is complete",
            "call quiet (nvshmem_quiet) before the destination is used",
        ),
        (Agent::Remote, _) if matches!(raw.near, Some(Near::Issued)) => (
            "a remote operation is not ordered before this access: the barrier or flag between them does not complete it",
            "call quiet (nvshmem_quiet) after the operation and before that barrier or flag",
        ),
        (Agent::Remote, _) => (
            "a remote operation is not ordered before this access",
            "wait for a signal that a fence or put_signal orders after the operation, or for a barrier over the PEs",
        ),
        _ => (
            "a remote operation is not ordered after this access",
            "let the PE that issues the operation wait until the other PE has finished (a signal, or a barrier over the PEs)",
        ),
    }
}
