//! Findings: what is wrong, who did it where, and how it is met again.

use super::causes;
use indexmap::IndexMap;
use std::collections::BTreeMap;
use std::fmt;
use weft::codes::WRONG_RESULT;
use weft::{Lowering, Transport};
use weft_ir::diag::{Severity, Span};
use weft_lang::elaborate::Defines;
use weft_run::reference::Checked;
use weft_run::{Arg, TensorInfo};
use weft_sim::{AccessKind, Agent, CodeLocation, Finding as SimFinding, MemorySpace, SimError};

/// Something that a thread did.
#[derive(Clone, PartialEq, Debug)]
pub struct Access {
    /// Who, and where in the PTX and the kernel's text.
    pub place: CodeLocation,
    /// What, as `writes y[3, 17] of PE 1`; empty where the finding's message says it.
    pub what: String,
    /// The place in the kernel's text, or [`Span::NONE`] if there is none.
    pub span: Span,
}

impl Access {
    /// `PE 2, CTA 0, thread 5`; in a role `thread 5 of role load`, counted from the role's first.
    pub fn who(&self) -> String {
        let CodeLocation { pe, cta, thread, role, .. } = &self.place;
        let of = role.as_ref().map_or_else(String::new, |role| format!(" of role {}", role.name));
        let first = role.as_ref().map_or(0, |role| role.first);
        let own = |[x, y, z]: [u32; 3]| coordinate([x.saturating_sub(first), y, z]);
        let thread = thread.map(|t| format!(", thread {}{of}", own(t))).unwrap_or_default();
        format!("PE {pe}, CTA {}{thread}", coordinate(*cta))
    }
}

/// As short as it can be told.
fn coordinate(at: [u32; 3]) -> String {
    match at {
        [x, 0, 0] => x.to_string(),
        [x, y, z] => format!("({x}, {y}, {z})"),
    }
}

/// Something wrong that a check found.
#[derive(Clone, PartialEq, Debug)]
pub struct Finding {
    /// The stable code of the finding, such as `S008` or [`WRONG_RESULT`].
    pub code: String,
    /// Warnings may be meant.
    pub severity: Severity,
    /// One line, no full stop.
    pub message: String,
    /// The accesses of the finding: of a race the later one and then the earlier one, of a wrong result none.
    pub accesses: Vec<Access>,
    /// Further lines: who waits for what in a deadlock.
    pub notes: Vec<String>,
    /// A text that says what to do. It may be empty.
    pub help: String,
    /// Runs that met it.
    pub count: u64,
    /// The rank of a data race among others about the same places: [`weft_sim::Finding::rank`].
    pub rank: u8,
    /// The first of the runs in which it says so much.
    pub replay: Replay,
}

/// A run, so that it can be had again: data and schedule follow from it.
#[derive(Clone, PartialEq, Debug)]
pub struct Replay {
    /// The kernel; of a sequence all of them, `produce, consume`.
    pub kernel: String,
    /// For a sequence of kernels, as the command line has it: `a.weft:produce b.weft:consume`.
    pub sequence: Option<String>,
    /// The number of PEs.
    pub pes: usize,
    /// Seed of data and schedule.
    pub seed: u64,
    /// The values of compile-time parameters.
    pub defines: Defines,
    /// The values of run-time scalars.
    pub args: BTreeMap<String, Arg>,
    /// The way in which in-switch operations are carried out.
    pub lowering: Lowering,
    /// The way in which other PEs are reached.
    pub transport: Transport,
    /// The number of PEs in a node, where that makes a difference.
    pub node: Option<u32>,
    /// CTAs, where they were given.
    pub grid: Option<[u32; 3]>,
    /// Launches of the run.
    pub launches: u32,
    /// Whether launches of any kernel overlap: [`CheckOptions::overlap`](super::CheckOptions::overlap).
    pub overlap: bool,
    /// Options that name files and folders: ` --input x=x.npy --expect y=y.npy --root kernels`.
    pub files: String,
    /// For a PTX file: the other options of its launch, as the command line has them.
    pub ptx: Option<String>,
}

impl Replay {
    /// `multimem, p2p`, `unicast, nodes of 2`: how in-switch operations are carried out and other PEs are reached, as far
    /// as it was chosen.
    pub(super) fn way(&self) -> String {
        let words = [self.lowering.name(), self.transport.name()];
        let words = words.into_iter().filter(|w| *w != "auto").map(str::to_owned);
        words.chain(self.node.map(|n| format!("nodes of {n}"))).collect::<Vec<_>>().join(", ")
    }

    /// `N=1003, T=f32`.
    pub(super) fn parameters(&self) -> String {
        let defines = self.defines.iter().map(|(name, v)| (name, Arg::from(*v)));
        let all = defines.chain(self.args.iter().map(|(name, v)| (name, *v)));
        all.map(|(name, v)| format!("{name}={v}")).collect::<Vec<_>>().join(", ")
    }
}

/// ` OPTION NAME=VALUE` for each value.
pub(super) fn values<V: Copy + Into<Arg>>(option: &str, values: &BTreeMap<String, V>) -> String {
    values.iter().map(|(name, value)| format!(" {option} {name}={}", (*value).into())).collect()
}

impl Replay {
    /// ` --lowering multimem --transport p2p`, as far as it was chosen.
    pub(super) fn ways(&self) -> String {
        let words = [("lowering", self.lowering.name()), ("transport", self.transport.name())];
        let chosen = words.into_iter().filter(|(_, word)| *word != "auto");
        chosen.map(|(option, word)| format!(" --{option} {word}")).collect()
    }
}

impl fmt::Display for Replay {
    /// The options of `weft check` that bring it back.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.sequence, &self.ptx) {
            (Some(_), _) => {}
            (None, Some(_)) => write!(f, "--entry {} ", self.kernel)?,
            (None, None) => write!(f, "--kernel {} ", self.kernel)?,
        }
        write!(f, "--pes {} --seed {}", self.pes, self.seed)?;
        write!(f, "{}{}{}", values("-D", &self.defines), values("--arg", &self.args), self.ways())?;
        if let Some(node) = self.node {
            write!(f, " --node {node}")?;
        }
        if let Some([x, y, z]) = self.grid {
            write!(f, " --grid {x},{y},{z}")?;
        }
        let overlap = if self.overlap { " --overlap" } else { "" };
        write!(
            f,
            " --launches {}{overlap}{}{}",
            self.launches,
            self.files,
            self.ptx.as_deref().unwrap_or_default()
        )
    }
}

/// The place in the kernel's text that a thread was at.
type Locate<'a> = &'a dyn Fn(&CodeLocation) -> Span;

/// What a machine found, and what stopped it.
pub(super) fn of(
    findings: Vec<(SimFinding, Option<String>)>,
    error: Option<SimError>,
    locate: Locate<'_>,
    replay: &Replay,
) -> Vec<Finding> {
    let findings = findings.into_iter().map(|(f, element)| found(f, element, locate, replay));
    findings.chain(error.map(|e| stopped(e, locate, replay))).collect()
}

/// What accesses do, and did.
const VERBS: [(AccessKind, &str, &str); 3] = [
    (AccessKind::Read, "reads", "read"),
    (AccessKind::Write, "writes", "wrote"),
    (AccessKind::Update, "updates", "updated"),
];

/// Who does it, where the thread does not itself.
const AGENTS: [(Agent, &str); 3] = [
    (Agent::Copy, " by a copy that it began"),
    (Agent::Async, " by an asynchronous operation that it began"),
    (Agent::Remote, " by an operation of NVSHMEM's that it began"),
];

/// What the machine's checks found.
fn found(f: SimFinding, element: Option<String>, locate: Locate<'_>, replay: &Replay) -> Finding {
    let what = f.location.as_ref().map_or_else(String::new, |l| {
        let element = element.unwrap_or_else(|| match &*l.name {
            "" => format!("{} bytes at {:#x}", l.bytes, l.offset),
            name => format!("{} bytes at `{name}`+{}", l.bytes, l.offset),
        });
        match l.space {
            MemorySpace::Shared { pe, cta } => {
                format!(" {element}, shared memory of PE {pe}, CTA {}", coordinate(cta))
            }
            ref space => format!(" {element} of PE {}", space.pe()),
        }
    });
    let access = |a: weft_sim::Access, earlier: bool| {
        let verb = VERBS.iter().find(|(kind, ..)| *kind == a.kind);
        let verb = verb.map_or("", |(_, does, did)| if earlier { did } else { does });
        let object = if earlier { " it before" } else { &what };
        let agent = AGENTS.iter().find(|(agent, _)| *agent == a.agent).map_or("", |(_, words)| words);
        Access { span: locate(&a.place), place: a.place, what: format!("{verb}{object}{agent}") }
    };
    let mut accesses = vec![access(f.at, false)];
    accesses.extend(f.other.map(|a| access(a, true)));
    Finding {
        code: f.code.to_string(),
        severity: Severity::Error,
        message: f.message,
        accesses,
        notes: f.notes,
        help: f.help,
        rank: f.rank,
        count: 1,
        replay: replay.clone(),
    }
}

/// What stopped a launch.
fn stopped(e: SimError, locate: Locate<'_>, replay: &Replay) -> Finding {
    let access = |place: CodeLocation| Access { span: locate(&place), place, what: String::new() };
    Finding {
        code: e.code.to_string(),
        severity: Severity::Error,
        message: e.message,
        accesses: e.at.map(|place| access(*place)).into_iter().collect(),
        notes: e.notes,
        help: e.help,
        rank: 0,
        count: 1,
        replay: replay.clone(),
    }
}

/// A result that is not what `computes(...)` or a file says: who says it, and when that was.
pub(super) fn wrong(
    c: &Checked,
    tensors: &[TensorInfo],
    says: &str,
    when: &str,
    replay: &Replay,
) -> Option<Finding> {
    let (pe, i, have, want) = c.first_wrong?;
    let Checked { tensor, elements, wrong, .. } = c;
    let shape = tensors.iter().find(|t| t.name == *tensor).map_or(&[][..], |t| &t.shape);
    let mut rest = i as u64;
    let mut at: Vec<String> = Vec::new();
    for n in shape.iter().rev() {
        at.push((rest % n).to_string());
        rest /= n;
    }
    at.reverse();
    let at = at.join(", ");
    Some(Finding {
        code: WRONG_RESULT.to_owned(),
        severity: Severity::Error,
        message: format!("`{tensor}` is not what {says} says"),
        accesses: Vec::new(),
        notes: vec![
            format!("{wrong} of {elements} elements are wrong after {when}"),
            format!("the first: PE {pe}, {tensor}[{at}] is {have}, expected {want}"),
        ],
        help: "nothing else was found: the arithmetic is wrong, or some elements are not written".to_owned(),
        rank: 0,
        count: 1,
        replay: replay.clone(),
    })
}

/// What makes two findings the same: code, kernel, and the places in the text.
type Key = (String, String, Vec<String>);

impl Finding {
    fn key(&self) -> Key {
        let place = |p: &CodeLocation| match &p.source[..] {
            [] => format!("PTX line {}", p.ptx_line),
            chain => chain.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "),
        };
        let mut places: Vec<String> = self.accesses.iter().map(|a| place(&a.place)).collect();
        places.sort();
        if places.is_empty() {
            places.push(self.message.clone());
        }
        (self.code.clone(), self.replay.kernel.clone(), places)
    }
}

/// Findings, each once.
#[derive(Default)]
pub(super) struct Gathered(IndexMap<Key, Finding>);

impl Gathered {
    /// Takes what a run met, once: a run that meets the same twice counts once. Of what is the same, the finding stays that
    /// says most.
    pub fn add_run(&mut self, found: Vec<Finding>) {
        let mut new: IndexMap<Key, Finding> = IndexMap::new();
        for f in found {
            let known = new.entry(f.key()).or_insert_with(|| f.clone());
            if f.rank > known.rank {
                *known = f;
            }
        }
        for (key, f) in new {
            let Some(known) = self.0.get_mut(&key) else {
                self.0.insert(key, f);
                continue;
            };
            let count = known.count + 1;
            if f.rank > known.rank {
                *known = f;
            }
            known.count = count;
        }
    }

    /// The findings, with causes before their consequences.
    pub fn into_findings(self) -> Vec<Finding> {
        causes::sorted(self.0.into_values().collect())
    }
}
