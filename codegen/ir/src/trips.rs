//! Checks how often the roles of a kernel fill, wait for and release the stages of each pipeline.
//!
//! A role has a position of its own in each pipeline, so only one role fills the stages of a
//! pipeline by copies. Several roles can write a stage together. Counts are symbolic: sums of products of the loops' numbers of rounds, which are assumed to be
//! positive. If the numbers of filled and awaited stages cannot be compared, the check gives a
//! warning.

use crate::diag::{Code, Diagnostic};
use crate::kernel::{Block, Kernel, Value};
use crate::names::CmpOp;
use crate::op::{Arith, Control, Operation, Tile};
use crate::ordering::number;
use crate::text::readable;
use crate::types::{TypeRef, ValueType};
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use weft_layout::{Int, Node};

/// Roles disagree about the number of stages that pass through a pipeline.
pub const UNEVEN: Code = Code(242);

/// Reports pipelines whose users disagree.
pub(crate) fn check(k: &Kernel, found: &mut Vec<Diagnostic>) {
    let (mut pipes, mut copied) = (Vec::new(), HashSet::new());
    k.walk(&mut |v, inst| match inst.op.tile() {
        Some(Tile::Pipeline { .. }) => pipes.push(v),
        Some(
            Tile::TmaLoad { pipe, .. }
            | Tile::BulkLoad { pipe, .. }
            | Tile::BulkStore { pipe: Some(pipe), .. },
        ) => drop(copied.insert(*pipe)),
        _ => {}
    });
    if pipes.is_empty() {
        return;
    }
    let mut walk =
        Walk { k, atoms: Vec::new(), trips: Vec::new(), inside: Vec::new(), users: Vec::new(), copied };
    walk.user(None, &k.body);
    found.extend(pipes.into_iter().filter_map(|pipe| walk.judge(pipe)));
}

/// An operation on a pipeline.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum PipelineOp {
    Acquire,
    Commit,
    Await,
    Release,
    Skip,
}

/// The number of times that a user does an operation, if it is known, and the first occurrence.
#[derive(Clone)]
struct Count {
    n: Option<Int>,
    at: Value,
}

type Counts = BTreeMap<(Value, PipelineOp), Count>;

/// A role, or the code outside of roles, that uses pipelines.
struct User {
    name: Arc<str>,
    is_role: bool,
    counts: Counts,
}

/// The meaning of a symbol in a count.
#[derive(Clone, PartialEq)]
enum Atom {
    /// The variable of a loop at a nesting depth, with its bounds and step.
    Round(usize, [Int; 3]),
    /// 1 in all rounds of that loop except the first one, where it is 0.
    Later(Int),
    /// 1 if a condition holds, and 0 otherwise.
    Holds(CmpOp, Int, Int),
    /// The sum of a count over the rounds of a loop.
    Sum(Int, Int),
}

/// A surrounding loop: its variable, the symbol that stands for it, and its first value.
struct EnclosingLoop {
    var: Value,
    symbol: Int,
    first: Int,
}

struct Walk<'k> {
    k: &'k Kernel,
    /// The meanings of symbols, and the values that name them in messages.
    atoms: Vec<(Atom, Value)>,
    /// The numbers of rounds that occur in the kernel.
    trips: Vec<Int>,
    inside: Vec<EnclosingLoop>,
    users: Vec<User>,
    /// The pipelines on which copies arrive.
    copied: HashSet<Value>,
}

impl Walk<'_> {
    /// Counts the operations of a role, or of the code outside of roles.
    fn user(&mut self, role: Option<&Arc<str>>, body: &Block) {
        let mut counts = self.block(body);
        if jumps(self.k, body, &mut Vec::new()) {
            forget(&mut counts);
        }
        let name = role.cloned().unwrap_or_else(|| "the kernel".into());
        self.users.push(User { name, is_role: role.is_some(), counts });
    }

    fn block(&mut self, block: &Block) -> Counts {
        let mut counts = Counts::new();
        for &v in &block.0 {
            let Some(inst) = self.k.insts.get(v) else { continue };
            let one =
                |pipe: &Value, what| Counts::from([((*pipe, what), Count { n: Some(Int::ONE), at: v })]);
            let own = match (inst.op.tile(), inst.op.control()) {
                (Some(Tile::Acquire { pipe }), _) => one(pipe, PipelineOp::Acquire),
                (Some(Tile::Commit { pipe }), _) => one(pipe, PipelineOp::Commit),
                (Some(Tile::Await { pipe }), _) => one(pipe, PipelineOp::Await),
                (Some(Tile::Release { pipe }), _) => one(pipe, PipelineOp::Release),
                (Some(Tile::Skip { pipe, stages }), _) => {
                    Counts::from([((*pipe, PipelineOp::Skip), Count { n: self.expr(*stages), at: v })])
                }
                (_, Some(control)) => self.control(control),
                _ => continue,
            };
            add(&mut counts, own, &Int::ONE);
        }
        counts
    }

    fn control(&mut self, control: &Control) -> Counts {
        match control {
            Control::If { cond, then, otherwise } => {
                let (a, b) = (self.block(then), self.block(otherwise));
                if a.is_empty() && b.is_empty() {
                    return a;
                }
                let mut counts = Counts::new();
                match self.holds(*cond) {
                    Some(holds) => {
                        add(&mut counts, a, &holds);
                        add(&mut counts, b, &(&Int::ONE - &holds));
                    }
                    None => {
                        add(&mut counts, a, &Int::ONE);
                        add(&mut counts, b, &Int::ONE);
                        forget(&mut counts);
                    }
                }
                counts
            }
            Control::For { var, lo, hi, step, body, .. } => {
                let bounds = [lo, hi, step].map(|v| self.expr(*v));
                let [Some(lo), Some(hi), Some(step)] = bounds else {
                    let mut counts = self.block(body);
                    forget(&mut counts);
                    return counts;
                };
                self.rounds(var.0, [lo, hi, step], body)
            }
            Control::While { head, body, .. } => {
                let mut counts = self.block(head);
                add(&mut counts, self.block(body), &Int::ONE);
                forget(&mut counts);
                counts
            }
            Control::Once { body } => self.block(body),
            Control::Role { name, body, .. } if !name.is_empty() => {
                self.user(Some(name), body);
                Counts::new()
            }
            Control::Role { body, .. } => self.block(body),
            Control::Break { .. } | Control::Continue { .. } | Control::Return {} => Counts::new(),
        }
    }

    fn rounds(&mut self, var: Value, bounds: [Int; 3], body: &Block) -> Counts {
        let symbol = self.symbol(Atom::Round(self.inside.len(), bounds.clone()), var);
        let [lo, hi, step] = bounds;
        let trips = (hi - &lo).ceil_div(&step);
        self.inside.push(EnclosingLoop { var, symbol: symbol.clone(), first: lo });
        let mut counts = self.block(body);
        self.inside.pop();
        if !counts.is_empty() && !self.trips.contains(&trips) {
            self.trips.push(trips.clone());
        }
        let later = self.symbol(Atom::Later(symbol.clone()), var);
        for count in counts.values_mut() {
            let Some(n) = &count.n else { continue };
            let put = |value: Int| n.subst(&mut |x| same(x, &later).then(|| value.clone()));
            let (first, others) = (put(Int::ZERO), put(Int::ONE));
            count.n = Some(match self.depends(n, &symbol) {
                false => first + others * (&trips - &Int::ONE),
                true => self.symbol(Atom::Sum(symbol.clone(), n.clone()), var),
            });
        }
        counts
    }

    /// An integer in terms of the surrounding loops.
    fn expr(&self, v: Value) -> Option<Int> {
        let at = |id: u32| self.inside.iter().find(|around| around.var == Value(id));
        let n = number(self.k, v)?.subst(&mut |x| at(x.id).map(|around| around.symbol.clone()));
        n.poison().is_none().then_some(n)
    }

    /// A symbol that is 1 if a condition holds, and 0 otherwise.
    fn holds(&mut self, cond: Value) -> Option<Int> {
        let Some(Arith::Compare { op, a, b }) = self.k.insts.get(cond)?.op.arith() else { return None };
        let (x, y) = (self.expr(*a)?, self.expr(*b)?);
        let behind = |around: &&EnclosingLoop| {
            around.symbol == x && around.first == y && matches!(op, CmpOp::Gt | CmpOp::Ne)
        };
        let atom = match self.inside.iter().find(behind) {
            Some(around) => Atom::Later(around.symbol.clone()),
            None => Atom::Holds(*op, x, y),
        };
        Some(self.symbol(atom, cond))
    }

    /// The symbol that stands for an atom. `v` names it in messages.
    fn symbol(&mut self, atom: Atom, v: Value) -> Int {
        let known = self.atoms.iter().position(|(known, _)| *known == atom);
        let at = known.unwrap_or_else(|| {
            self.atoms.push((atom.clone(), v));
            self.atoms.len() - 1
        });
        let v = self.atoms.get(at).map_or(v, |(_, first)| *first);
        let id = u32::try_from(self.k.insts.len() + at).unwrap_or(u32::MAX);
        let (min, max) = match atom {
            Atom::Later(_) | Atom::Holds(..) => (0, Some(1)),
            Atom::Round(..) => (i64::MIN, None),
            Atom::Sum(..) => (0, None),
        };
        Int::var(weft_layout::Var { id, name: v.to_string().into(), div: 1, min, max })
    }

    /// Whether a count changes from round to round of a loop, apart from the first round.
    fn depends(&self, n: &Int, symbol: &Int) -> bool {
        let mut found = false;
        n.vars(&mut |x| {
            let atom = (x.id as usize).checked_sub(self.k.insts.len()).and_then(|i| self.atoms.get(i));
            found |= match atom.map(|(atom, _)| atom) {
                Some(Atom::Holds(_, a, b)) => self.depends(a, symbol) || self.depends(b, symbol),
                Some(Atom::Sum(_, n)) => self.depends(n, symbol),
                Some(Atom::Round(_, bounds)) => {
                    same(x, symbol) || bounds.iter().any(|n| self.depends(n, symbol))
                }
                Some(Atom::Later(_)) | None => false,
            };
        });
        found
    }

    /// The error in the use of a pipeline, if there is one.
    fn judge(&self, pipe: Value) -> Option<Diagnostic> {
        let of =
            |what: PipelineOp| self.users.iter().filter_map(move |u| Some((u, u.counts.get(&(pipe, what))?)));
        let fills: Vec<_> = of(PipelineOp::Acquire).collect();
        let Some((filler, filled)) =
            fills.first().copied().filter(|_| of(PipelineOp::Await).next().is_some())
        else {
            return self.one_sided(pipe);
        };
        if let Some(error) = self.fillers(pipe, &fills) {
            return Some(error);
        }
        // Roles that write a stage together acquire it once each.
        let mut counted = false;
        let acquires = fills
            .iter()
            .filter(|(user, _)| !(user.is_role && std::mem::replace(&mut counted, true)))
            .try_fold(Int::ZERO, |sum, (_, c)| Some(sum + c.n.as_ref()?));
        let mut open = None;
        for (user, wait) in of(PipelineOp::Await) {
            let skip = user.counts.get(&(pipe, PipelineOp::Skip));
            let skips = skip.map_or(Some(Int::ZERO), |count| count.n.clone());
            let (Some(acquires), Some(waits), Some(skips)) = (&acquires, &wait.n, skips) else {
                open = open.or(Some((user, wait)));
                continue;
            };
            let passed = waits + &skips;
            if !(acquires - &passed).is(0) {
                open = open.or(Some((user, wait)));
            }
            if self.differ(acquires, &passed) {
                let skips = if skip.is_some() { format!(" and skips {skips}") } else { String::new() };
                let message = self.say(format!(
                    "`{}` waits for {waits} stages{skips} of a pipeline that `{}` fills {acquires} times",
                    user.name, filler.name
                ));
                return Some(self.report(wait.at, message, filled.at, "the pipeline is filled here"));
            }
            let release = user.counts.get(&(pipe, PipelineOp::Release));
            let releases = match release {
                Some(count) => count.n.clone(),
                None => Some(Int::ZERO),
            };
            let Some(releases) = releases else { continue };
            let kept = acquires - &skips - &releases;
            let too_few = match kept.as_const() {
                Some(n) => n > self.stages(pipe),
                None => self.positive(&kept),
            };
            if too_few {
                let message = self.say(format!(
                    "`{}` releases {releases} of the {acquires} stages that it waits for, but the \
                     pipeline has only {}",
                    user.name,
                    self.stages(pipe)
                ));
                return Some(self.report(
                    wait.at,
                    message,
                    filled.at,
                    "this call waits for a stage to be released",
                ));
            }
            if let Some(release) = release.filter(|_| self.positive(&(&releases - waits))) {
                let message =
                    self.say(format!("`{}` releases {releases} stages and waits for {waits}", user.name));
                return Some(self.report(release.at, message, wait.at, "it waits here"));
            }
        }
        open.map(|(user, wait)| self.unclear((user, wait), (filler, filled)))
    }

    /// The error in the roles that fill a pipeline, if there is one.
    fn fillers(&self, pipe: Value, fills: &[(&User, &Count)]) -> Option<Diagnostic> {
        let commits = |user: &User| user.counts.get(&(pipe, PipelineOp::Commit)).cloned();
        let together = !self.copied.contains(&pipe) && fills.iter().all(|(user, _)| commits(user).is_some());
        let mut roles = fills.iter().filter(|(user, _)| user.is_role);
        let first = roles.next();
        for (user, count) in roles {
            let (first, filled) = first?;
            let names = format!("`{}` and `{}`", first.name, user.name);
            let error = match (together, &filled.n, &count.n) {
                (false, ..) => Some(format!("{names} both fill a pipeline")),
                (_, Some(a), Some(b)) if self.differ(a, b) => {
                    Some(self.say(format!("{names} write {a} and {b} stages of a pipeline")))
                }
                _ => None,
            };
            if let Some(message) = error {
                let error = self.report(count.at, message, filled.at, "the pipeline is filled here too");
                return Some(error.help(ONE_FILLER));
            }
        }
        fills.iter().find_map(|(user, count)| {
            let commit = commits(user)?;
            let (acquires, commits) = (count.n.as_ref()?, commit.n.as_ref()?);
            let message = || format!("`{}` acquires {acquires} stages and commits {commits}", user.name);
            let differ = self.differ(acquires, commits);
            differ.then(|| self.report(count.at, self.say(message()), commit.at, "it commits here"))
        })
    }

    /// The warning that two roles cannot be compared.
    fn unclear(&self, (user, wait): (&User, &Count), (filler, filled): (&User, &Count)) -> Diagnostic {
        let span = |v: Value| self.k.insts[v].span;
        let message = format!(
            "`{}` may wait for a different number of stages of a pipeline than `{}` fills",
            user.name, filler.name
        );
        Diagnostic::warning(UNEVEN, span(wait.at), message)
            .related(span(filled.at), "the pipeline is filled here")
            .help(
                "give both roles loops with the same bounds and conditions on the same values, which can \
            be compared; `weft check` finds a role that waits forever",
            )
    }

    /// The error for a pipeline that nothing fills or nothing waits for.
    fn one_sided(&self, pipe: Value) -> Option<Diagnostic> {
        let first =
            |what: PipelineOp| self.users.iter().find_map(|u| Some((u, u.counts.get(&(pipe, what))?)));
        if let Some((user, count)) = first(PipelineOp::Await).or_else(|| first(PipelineOp::Release)) {
            let message = format!("`{}` waits for stages of a pipeline that no role fills", user.name);
            return Some(self.report(count.at, message, pipe, "this pipeline"));
        }
        let (user, count) = first(PipelineOp::Acquire)?;
        let n = count.n.as_ref()?;
        let endless = match n.as_const() {
            Some(n) => n > self.stages(pipe),
            None => self.positive(n),
        };
        let message = format!("`{}` fills stages of a pipeline that no role waits for", user.name);
        endless.then(|| self.report(count.at, message, pipe, "this pipeline"))
    }

    fn report(&self, at: Value, message: String, other: Value, what: &str) -> Diagnostic {
        let span = |v: Value| self.k.insts[v].span;
        Diagnostic::error(UNEVEN, span(at), message).related(span(other), what).help(
            "each role that reads the pipeline must wait for every filled stage once and release it \
            once: give the loops of these roles the same number of rounds",
        )
    }

    fn say(&self, message: String) -> String {
        readable(self.k, &message)
    }

    fn stages(&self, pipe: Value) -> i64 {
        match self.k.ty(pipe).view() {
            TypeRef::Pipeline(stages) => i64::from(stages),
            _ => 1,
        }
    }

    fn differ(&self, a: &Int, b: &Int) -> bool {
        self.positive(&(a - b)) || self.positive(&(b - a))
    }

    /// Whether a number is positive if every loop has at least one round.
    fn positive(&self, n: &Int) -> bool {
        if n.lower_bound() >= 1 || self.trips.contains(n) {
            return true;
        }
        match n.node() {
            Node::Add(terms) => terms.iter().all(|t| self.positive(t)),
            Node::Mul(factors) => factors.iter().all(|f| self.positive(f)),
            _ => false,
        }
    }
}

const ONE_FILLER: &str = "each role counts the stages by itself: fill the pipeline in one role, use a pipeline for each role, \
     or let both write each stage and commit it";

/// Whether a variable is the symbol `symbol`.
fn same(x: &weft_layout::Var, symbol: &Int) -> bool {
    matches!(symbol.node(), Node::Var(v) if v.id == x.id)
}

/// Adds `times` times the counts of `more`.
fn add(counts: &mut Counts, more: Counts, times: &Int) {
    for (key, count) in more {
        let n = count.n.map(|n| n * times).filter(|n| n.poison().is_none());
        let sum = counts.entry(key).or_insert(Count { n: Some(Int::ZERO), at: count.at });
        sum.n = sum.n.take().zip(n).map(|(a, b)| a + b);
    }
}

/// Makes the counts unknown.
fn forget(counts: &mut Counts) {
    counts.values_mut().for_each(|count| count.n = None);
}

/// Whether code uses a pipeline.
fn uses(k: &Kernel, block: &Block) -> bool {
    block.0.iter().filter_map(|v| k.insts.get(*v)).any(|inst| {
        let own = matches!(
            inst.op.tile(),
            Some(
                Tile::Acquire { .. }
                    | Tile::Commit { .. }
                    | Tile::Await { .. }
                    | Tile::Release { .. }
                    | Tile::Skip { .. }
            )
        );
        own || inst.op.blocks().into_iter().any(|b| uses(k, b))
    })
}

/// Whether a jump skips code that uses a pipeline. `around` has an entry for each surrounding loop
/// and `once`, which says whether it has such code.
fn jumps(k: &Kernel, block: &Block, around: &mut Vec<bool>) -> bool {
    block.0.iter().filter_map(|v| k.insts.get(*v)).any(|inst| match inst.op.control() {
        Some(Control::Return {}) => true,
        Some(Control::Break { depth } | Control::Continue { depth }) => {
            around.iter().rev().nth(*depth as usize).is_none_or(|counts| *counts)
        }
        Some(Control::Role { name, .. }) if !name.is_empty() => false,
        Some(control) => {
            let target =
                matches!(control, Control::For { .. } | Control::While { .. } | Control::Once { .. });
            let blocks = inst.op.blocks();
            if target {
                around.push(blocks.iter().any(|b| uses(k, b)));
            }
            let found = blocks.into_iter().any(|b| jumps(k, b, around));
            if target {
                around.pop();
            }
            found
        }
        None => false,
    })
}
