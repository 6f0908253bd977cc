//! Finds waits for a stage of a pipeline that never end, because only later code of the same threads
//! would end them.
//!
//! The walk of [`reuse`](crate::reuse) counts the steps of a role on each pipeline. A wait for a
//! full stage never ends if the role holds all stages, or if no other role fills the pipeline and
//! the role has not done so yet. A wait for an empty stage never ends if all stages are full and
//! only the role itself releases them.

use crate::diag::{Code, Diagnostic};
use crate::kernel::{Block, Kernel, Value};
use crate::op::{Control, Operation, Tile};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// A wait for a stage that only later code of the same threads fills or releases.
pub const STUCK: Code = Code(245);

/// The number of times that a pipeline was acquired, committed, waited for and released.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub acquires: i64,
    pub commits: i64,
    pub waits: i64,
    pub releases: i64,
    /// Whether the differences of the counts depend on an unknown number of rounds.
    pub open: bool,
}

/// The role whose code is walked: its operation and its name.
pub(crate) type Role = Option<(Value, Arc<str>)>;

/// The roles that fill and release the stages of each pipeline, and the errors found so far.
#[derive(Default)]
pub(crate) struct Waits {
    pub role: Role,
    fill: HashMap<Value, Vec<Option<Value>>>,
    release: HashMap<Value, Vec<Option<Value>>>,
    /// The pipelines whose stages threads write.
    written: HashSet<Value>,
    /// The errors with the pipelines that they are about.
    found: Vec<(Value, Diagnostic)>,
    reported: HashSet<Value>,
}

impl Waits {
    pub fn new(k: &Kernel) -> Waits {
        let mut waits = Waits::default();
        waits.users(k, &k.body, None);
        waits
    }

    fn users(&mut self, k: &Kernel, block: &Block, role: Option<Value>) {
        for &v in &block.0 {
            let Some(inst) = k.insts.get(v) else { continue };
            match inst.op.tile() {
                Some(Tile::Acquire { pipe }) => self.fill.entry(*pipe).or_default().push(role),
                Some(Tile::Release { pipe }) => self.release.entry(*pipe).or_default().push(role),
                Some(Tile::Commit { pipe }) => drop(self.written.insert(*pipe)),
                _ => {}
            }
            let named = matches!(inst.op.control(), Some(Control::Role { name, .. }) if !name.is_empty());
            let role = if named { Some(v) } else { role };
            inst.op.blocks().into_iter().for_each(|b| self.users(k, b, role));
        }
    }

    /// Whether only the role that is walked, and the code before it, does something.
    fn alone(&self, users: &HashMap<Value, Vec<Option<Value>>>, pipe: Value) -> bool {
        let own = self.role.as_ref().map(|(v, _)| *v);
        users.get(&pipe).is_some_and(|users| users.iter().all(|user| user.is_none() || *user == own))
    }

    /// Whether the role that is walked does something itself.
    fn itself(&self, users: &HashMap<Value, Vec<Option<Value>>>, pipe: Value) -> bool {
        let own = self.role.as_ref().map(|(v, _)| *v);
        users.get(&pipe).is_some_and(|users| users.contains(&own))
    }

    /// The differences of counts that decide whether the role's waits end. They do not change from
    /// round to round of a loop that leaves as many stages full and held as it finds.
    fn position(&self, pipe: Value, counts: Counts) -> [i64; 4] {
        let fills = self.itself(&self.fill, pipe);
        let if_true = |holds: bool, difference: i64| if holds { difference } else { 0 };
        [
            counts.waits - counts.releases,
            if_true(self.alone(&self.fill, pipe), counts.acquires - counts.waits),
            if_true(self.written.contains(&pipe), counts.acquires - counts.commits),
            if_true(fills && self.alone(&self.release, pipe), counts.acquires - counts.releases),
        ]
    }

    /// Checks the wait `v` for a full stage.
    pub fn full(&mut self, k: &Kernel, (v, pipe): (Value, Value), counts: Counts, stages: i64) {
        if counts.open {
            return;
        }
        let filled = if self.written.contains(&pipe) { counts.commits } else { counts.acquires };
        let held = counts.waits - counts.releases;
        if held >= stages && self.itself(&self.release, pipe) {
            let all = if stages == 1 { "the only stage".into() } else { format!("all {stages} stages") };
            self.report(k, (v, pipe), &format!("while it holds {all} of the pipeline"), RELEASE_FIRST);
        } else if counts.waits >= filled && self.alone(&self.fill, pipe) {
            self.report(k, (v, pipe), "that only its later code fills", FILL_FIRST);
        }
    }

    /// Checks the wait `v` for an empty stage.
    pub fn empty(&mut self, k: &Kernel, (v, pipe): (Value, Value), counts: Counts, stages: i64) {
        if !counts.open && counts.acquires - counts.releases >= stages && self.alone(&self.release, pipe) {
            self.report(k, (v, pipe), "that only its later code releases", RELEASE_FIRST);
        }
    }

    fn report(&mut self, k: &Kernel, (v, pipe): (Value, Value), what: &str, help: &str) {
        if !self.reported.insert(v) {
            return;
        }
        let who = self.role.as_ref().map_or_else(|| "the kernel".into(), |(_, name)| format!("`{name}`"));
        let error = Diagnostic::error(STUCK, k.insts[v].span, format!("{who} waits for a stage {what}"));
        self.found.push((pipe, error.related(k.insts[pipe].span, "this pipeline").help(help)));
    }

    /// The number of errors found so far.
    pub fn mark(&self) -> usize {
        self.found.len()
    }

    /// Forgets what the rounds of a loop after the first one found about a pipeline: the loop may
    /// have fewer rounds.
    fn forget(&mut self, mark: usize, pipe: Value) {
        let mut at = 0;
        self.found.retain(|(about, _)| {
            at += 1;
            at <= mark || *about != pipe
        });
    }

    /// Decides which errors hold for a loop of which several rounds were assumed. `starts` has the
    /// counts at the beginning of each round.
    pub fn settle(
        &mut self,
        mark: Option<usize>,
        starts: &[HashMap<Value, Counts>],
        after: &mut HashMap<Value, Counts>,
    ) {
        for (pipe, counts) in after {
            let at = |start: &HashMap<Value, Counts>| {
                self.position(*pipe, start.get(pipe).copied().unwrap_or_default())
            };
            let steady = matches!(starts, [_, .., x, y] if at(x) == at(y));
            let used = starts.first().is_some_and(|first| first.get(pipe) != Some(counts));
            if used && !steady {
                counts.open = true;
                mark.into_iter().for_each(|mark| self.forget(mark, *pipe));
            }
        }
    }

    pub fn into_errors(self) -> impl Iterator<Item = Diagnostic> {
        self.found.into_iter().map(|(_, error)| error)
    }
}

const RELEASE_FIRST: &str =
    "release a stage with `consumer_release` before this wait, or give the pipeline more stages";
const FILL_FIRST: &str = "fill the stage before this wait, or in another role";
