//! Findings: the error, the threads and locations, and the way to reproduce it.

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

/// An access of a thread.
#[derive(Clone, PartialEq, Debug)]
pub struct Access {
    /// The thread, and the location in the PTX and the kernel's text.
    pub place: CodeLocation,
    /// A description such as `writes y[3, 17] of PE 1`. It is empty if the finding's message has
    /// it.
    pub what: String,
    /// The location in the kernel's text, or [`Span::NONE`] if there is none.
    pub span: Span,
}

impl Access {
    /// Returns `PE 2, CTA 0, thread 5`, or in a role `thread 5 of role load`, counted from the
    /// role's first.
    pub fn who(&self) -> String {
        let CodeLocation { pe, cta, thread, role, .. } = &self.place;
        let of = role.as_ref().map_or_else(String::new, |role| format!(" of role {}", role.name));
        let first = role.as_ref().map_or(0, |role| role.first);
        let own = |[x, y, z]: [u32; 3]| coordinate([x.saturating_sub(first), y, z]);
        let thread = thread.map(|t| format!(", thread {}{of}", own(t))).unwrap_or_default();
        format!("PE {pe}, CTA {}{thread}", coordinate(*cta))
    }
}

/// Formats a coordinate without trailing zeros.
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
    /// The severity. A warning may be intended by the author.
    pub severity: Severity,
    /// The message, in one line without a full stop.
    pub message: String,
    /// The accesses of the finding: for a race the later one and then the earlier one, for a wrong
    /// result none.
    pub accesses: Vec<Access>,
    /// Further lines, such as the waits in a deadlock.
    pub notes: Vec<String>,
    /// A text that says what to do. It may be empty.
    pub help: String,
    /// The number of runs with this finding.
    pub count: u64,
    /// The rank of a data race among others at the same locations: [`weft_sim::Finding::rank`].
    pub rank: u8,
    /// The first run in which the finding has this much information.
    pub replay: Replay,
}

/// The parameters of a run, which determine data and schedule, to reproduce it.
#[derive(Clone, PartialEq, Debug)]
pub struct Replay {
    /// The kernel, or all kernels of a sequence, such as `produce, consume`.
    pub kernel: String,
    /// For a sequence of kernels, its form on the command line: `a.weft:produce b.weft:consume`.
    pub sequence: Option<String>,
    /// The number of PEs.
    pub pes: usize,
    /// The seed of data and schedule.
    pub seed: u64,
    /// The values of compile-time parameters.
    pub defines: Defines,
    /// The values of run-time scalars.
    pub args: BTreeMap<String, Arg>,
    /// The lowering of in-switch operations.
    pub lowering: Lowering,
    /// The transport to other PEs.
    pub transport: Transport,
    /// The number of PEs in a node, if it changes what runs.
    pub node: Option<u32>,
    /// The number of CTAs, if it was given.
    pub grid: Option<[u32; 3]>,
    /// The number of launches of the run.
    pub launches: u32,
    /// Whether launches of any kernel overlap: [`CheckOptions::overlap`](super::CheckOptions::overlap).
    pub overlap: bool,
    /// Options that name files and folders: ` --input x=x.npy --expect y=y.npy --root kernels`.
    pub files: String,
    /// For a PTX file, the other options of its launch on the command line.
    pub ptx: Option<String>,
}

impl Replay {
    /// Returns the chosen lowering, transport and nodes, such as `multimem, p2p` or `unicast, nodes
    /// of 2`.
    pub(super) fn variant(&self) -> String {
        let words = [self.lowering.name(), self.transport.name()];
        let words = words.into_iter().filter(|w| *w != "auto").map(str::to_owned);
        words.chain(self.node.map(|n| format!("nodes of {n}"))).collect::<Vec<_>>().join(", ")
    }

    /// Returns the parameters, such as `N=1003, T=f32`.
    pub(super) fn parameters(&self) -> String {
        let defines = self.defines.iter().map(|(name, v)| (name, Arg::from(*v)));
        let all = defines.chain(self.args.iter().map(|(name, v)| (name, *v)));
        all.map(|(name, v)| format!("{name}={v}")).collect::<Vec<_>>().join(", ")
    }
}

/// Returns ` OPTION NAME=VALUE` for each value.
pub(super) fn values<V: Copy + Into<Arg>>(option: &str, values: &BTreeMap<String, V>) -> String {
    values.iter().map(|(name, value)| format!(" {option} {name}={}", (*value).into())).collect()
}

impl Replay {
    /// Returns the options for the chosen lowering and transport, such as ` --lowering multimem
    /// --transport p2p`.
    pub(super) fn variant_options(&self) -> String {
        let words = [("lowering", self.lowering.name()), ("transport", self.transport.name())];
        let chosen = words.into_iter().filter(|(_, word)| *word != "auto");
        chosen.map(|(option, word)| format!(" --{option} {word}")).collect()
    }
}

impl fmt::Display for Replay {
    /// Formats the options of `weft check` that reproduce it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.sequence, &self.ptx) {
            (Some(_), _) => {}
            (None, Some(_)) => write!(f, "--entry {} ", self.kernel)?,
            (None, None) => write!(f, "--kernel {} ", self.kernel)?,
        }
        write!(f, "--pes {} --seed {}", self.pes, self.seed)?;
        write!(
            f,
            "{}{}{}",
            values("-D", &self.defines),
            values("--arg", &self.args),
            self.variant_options()
        )?;
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

/// A function that finds a thread's location in the kernel's text.
type Locate<'a> = &'a dyn Fn(&CodeLocation) -> Span;

/// The findings of a machine, and the error that stopped it.
pub(super) fn of(
    findings: Vec<(SimFinding, Option<String>)>,
    error: Option<SimError>,
    locate: Locate<'_>,
    replay: &Replay,
) -> Vec<Finding> {
    let findings = findings.into_iter().map(|(f, element)| found(f, element, locate, replay));
    findings.chain(error.map(|e| stopped(e, locate, replay))).collect()
}

/// The verbs of accesses, in the present and the past.
const VERBS: [(AccessKind, &str, &str); 3] = [
    (AccessKind::Read, "reads", "read"),
    (AccessKind::Write, "writes", "wrote"),
    (AccessKind::Update, "updates", "updated"),
];

/// The agents of accesses that the thread began and does not make itself.
const AGENTS: [(Agent, &str); 3] = [
    (Agent::Copy, " by a copy"),
    (Agent::Async, " by an asynchronous operation"),
    (Agent::Remote, " by an NVSHMEM operation"),
];

/// Converts a finding of the machine's checks.
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
        let object = if earlier { " it earlier" } else { &what };
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

/// Converts the error that stopped a launch.
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

/// Makes the finding of a result that differs from `computes(...)` or from a file.
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
        message: format!("`{tensor}` differs from {says}"),
        accesses: Vec::new(),
        notes: vec![
            format!("{wrong} of {elements} elements are wrong after {when}"),
            format!("the first: PE {pe}, {tensor}[{at}] is {have}, expected {want}"),
        ],
        help: "no other error was found: check the arithmetic, and whether all elements are written"
            .to_owned(),
        rank: 0,
        count: 1,
        replay: replay.clone(),
    })
}

/// The key of equal findings: code, kernel, and the locations in the text.
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

/// The different findings.
#[derive(Default)]
pub(super) struct Gathered(IndexMap<Key, Finding>);

impl Gathered {
    /// Adds the findings of a run. A finding that occurs twice in a run counts once. Of equal
    /// findings, the one with the most information is kept.
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
