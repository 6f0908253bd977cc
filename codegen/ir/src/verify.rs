//! The verifier: every error of a module at once. What passes it lowers, or is refused with an error; it never panics.

use crate::diag::{Code, Diagnostic, Severity};
use crate::kernel::{Block, Inst, Kernel, Module, TeamRef, Value};
use crate::names::{Group, Sem, Space};
use crate::op::Op;
use crate::types::Type;
use crate::typing::{MAX_LANES, result_type};
use crate::uniform::{self, Uniformity, Varies};
use crate::{ordering, remote};
use std::collections::{HashMap, HashSet};
use std::ops::Deref;
use std::sync::Arc;

/// A value used where it is not defined.
pub const UNDEFINED: Code = Code(210);
/// An instruction that stands in no block, or in two.
pub const MISPLACED: Code = Code(211);
/// An op that all threads of a group must reach, under a condition that differs between them.
pub const DIVERGENT: Code = Code(212);
/// A memory order that the op does not have.
pub const BAD_ORDER: Code = Code(213);
/// A launch shape that no GPU has.
pub const BAD_LAUNCH: Code = Code(214);
/// A team that is no team parameter.
pub const NO_TEAM: Code = Code(215);
/// A print format that does not fit its arguments.
pub const BAD_FORMAT: Code = Code(216);
/// A function that no library can have, or one with two signatures.
pub const BAD_FUNCTION: Code = Code(218);

/// A module without errors. Only the verifier makes it; what comes after asks for it.
#[derive(Clone, PartialEq, Debug)]
pub struct Verified {
    module: Module,
    /// What is allowed but looks wrong.
    pub warnings: Vec<Diagnostic>,
}

impl Verified {
    /// The module, to change it; it must be verified again.
    pub fn into_module(self) -> Module {
        self.module
    }
}

impl Deref for Verified {
    type Target = Module;
    fn deref(&self) -> &Module {
        &self.module
    }
}

/// Checks a module. All findings at once, in source order.
pub fn verify(module: Module) -> Result<Verified, Vec<Diagnostic>> {
    let mut found = Vec::new();
    for k in &module.kernels {
        kernel(k, &mut found);
    }
    if found.is_empty() {
        functions(&module, &mut found);
    }
    let (errors, warnings): (Vec<_>, Vec<_>) = found.into_iter().partition(|d| d.severity == Severity::Error);
    if errors.is_empty() { Ok(Verified { module, warnings }) } else { Err(errors) }
}

fn kernel(k: &Kernel, found: &mut Vec<Diagnostic>) {
    let launch = |message: String, help: &str| Diagnostic::error(BAD_LAUNCH, k.span, message).help(help);
    let threads = k.block.iter().try_fold(1u32, |n, d| n.checked_mul(*d)).unwrap_or(u32::MAX);
    if threads == 0 || threads > 1024 || k.block[2] > 64 {
        let [x, y, z] = k.block;
        found.push(launch(
            format!("block({x}, {y}, {z}) has {threads} threads"),
            "a CTA has 1 to 1024 threads, at most 64 in z",
        ));
    }
    if !is_identifier(&k.name) {
        found.push(launch(
            format!("`{}` cannot name a kernel", k.name),
            "letters, digits and `_`, a letter first",
        ));
    }
    let mut order = Order { k, defined: HashSet::new(), seen: HashSet::new(), found };
    order.block(&k.body, 0);
    if order.found.iter().any(|d| d.severity == Severity::Error) {
        // Types and uniformity mean nothing while values are undefined.
        return;
    }
    // Once addresses are arithmetic, so are conditions, which then are not understood as well: what lowering makes of a
    // kernel diverges no more than the kernel did.
    let mut lowered = false;
    k.walk(&mut |_, inst| lowered |= matches!(inst.op, Op::PtrAdd { .. }));
    let uniformity = (!lowered).then(|| uniform::analyze(k));
    k.walk(&mut |v, inst| {
        check_inst(k, inst, found);
        if let Some(u) = &uniformity {
            check_threads(k, u, v, inst, found);
        }
    });
    if !found.iter().any(|d| d.severity == Severity::Error) {
        ordering::check(k, found);
    }
}

/// Deepest nesting of blocks: what comes after walks them recursively.
const MAX_DEPTH: usize = 200;

fn is_identifier(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        && name.len() <= 256
}

/// What a function returns and takes in C, where there is but one kind of pointer.
fn c_signature(k: &Kernel, result: &Type, args: &[Value]) -> Vec<Type> {
    let types = std::iter::once(result).chain(args.iter().map(|a| k.ty(*a)));
    types
        .map(|ty| if matches!(ty, Type::Pointer(_)) { Type::Pointer(Space::Global) } else { ty.clone() })
        .collect()
}

/// A called function has a C name, no kernel's, and one signature in all of the module.
fn functions(module: &Module, found: &mut Vec<Diagnostic>) {
    let mut known: HashMap<Arc<str>, Vec<Type>> = HashMap::new();
    for k in &module.kernels {
        k.walk(&mut |_, inst| {
            let Op::Call { function, args } = &inst.op else { return };
            let bad = |message: String, help: &str| {
                Diagnostic::error(BAD_FUNCTION, inst.span, message).help(help.to_owned())
            };
            if !is_identifier(function) || module.kernels.iter().any(|k| k.name == *function) {
                found.push(bad(
                    format!("`{}` cannot name a function", function.escape_debug()),
                    "letters, digits and `_`, a letter first, and no kernel's name",
                ));
                return;
            }
            let here = c_signature(k, &inst.ty, args);
            if *known.entry(function.clone()).or_insert_with(|| here.clone()) != here {
                found.push(bad(
                    format!("`{function}` is called with two signatures"),
                    "a function has the same parameters and result wherever it is called",
                ));
            }
        });
    }
}

/// Every value is defined before it is used, in its block or one around it; every instruction stands once.
struct Order<'a> {
    k: &'a Kernel,
    defined: HashSet<Value>,
    seen: HashSet<Value>,
    found: &'a mut Vec<Diagnostic>,
}

impl Order<'_> {
    fn block(&mut self, block: &Block, depth: usize) {
        if depth > MAX_DEPTH {
            self.found.push(Diagnostic::error(
                MISPLACED,
                self.k.span,
                format!("blocks nest deeper than {MAX_DEPTH}"),
            ));
            return;
        }
        let mut here = Vec::new();
        for &v in &block.0 {
            let Some(inst) = self.k.insts.get(v) else {
                self.found.push(Diagnostic::error(UNDEFINED, self.k.span, format!("{v} does not exist")));
                continue;
            };
            if !self.seen.insert(v) {
                self.found.push(Diagnostic::error(MISPLACED, inst.span, format!("{v} stands in two places")));
                continue;
            }
            self.inst(inst, depth);
            self.defined.insert(v);
            here.push(v);
        }
        for v in here {
            self.defined.remove(&v);
        }
    }

    fn inst(&mut self, inst: &Inst, depth: usize) {
        let mut uses = Vec::new();
        inst.op.operands(&mut |x| uses.push(x));
        if let Type::Tensor(t) = &inst.ty {
            t.vars(&mut |v| uses.push(Value(v.id)));
        }
        if remote::name(&inst.op).is_some() {
            // What is moved are the elements of whole tensors: their layouts are computed with here.
            for x in uses.clone() {
                if let Some(Type::Tensor(t)) = self.k.insts.get(x).map(|i| &i.ty) {
                    t.vars(&mut |v| uses.push(Value(v.id)));
                }
            }
        }
        match &inst.op {
            Op::For { var, body, .. } => {
                self.uses(&uses, inst);
                let fresh = self.seen.insert(var.0)
                    && matches!(self.k.insts.get(var.0).map(|i| &i.op), Some(Op::LoopVar { .. }));
                if !fresh {
                    self.found.push(Diagnostic::error(
                        MISPLACED,
                        inst.span,
                        format!("{} is no fresh loop variable", var.0),
                    ));
                }
                self.defined.insert(var.0);
                self.block(body, depth + 1);
                self.defined.remove(&var.0);
            }
            Op::While { head, cond, body } => {
                // The condition is computed in the head, so it is known after it and in the body.
                self.block(head, depth + 1);
                let known = self.defined.clone();
                self.defined.extend(head.0.iter().copied());
                self.uses(&[*cond], inst);
                self.block(body, depth + 1);
                self.defined = known;
            }
            op => {
                self.uses(&uses, inst);
                for b in op.blocks() {
                    self.block(b, depth + 1);
                }
            }
        }
    }

    fn uses(&mut self, uses: &[Value], inst: &Inst) {
        for u in uses {
            // A parameter's layout may be made of other parameters and team sizes, wherever they stand.
            let is_param = |v: Value| match self.k.insts.get(v).map(|i| &i.op) {
                Some(Op::Call { function, .. }) => remote::is_query(function),
                op => matches!(op, Some(Op::Param { .. } | Op::NPes { .. })),
            };
            let between_params = matches!(inst.op, Op::Param { .. }) && is_param(*u);
            if !self.defined.contains(u) && !between_params {
                let message = format!("{u} is used by `{}` before it is defined", inst.op.mnemonic());
                self.found.push(Diagnostic::error(UNDEFINED, inst.span, message));
            }
        }
    }
}

fn check_inst(k: &Kernel, inst: &Inst, found: &mut Vec<Diagnostic>) {
    if let Type::Vector(_, lanes) = inst.ty
        && !(1..=MAX_LANES).contains(&lanes)
    {
        let message = format!("a vector has 1 to {MAX_LANES} lanes, not {lanes}");
        found.push(Diagnostic::error(crate::typing::MISMATCH, inst.span, message));
        return;
    }
    match result_type(k, &inst.op, &inst.ty) {
        Ok(ty) if ty == inst.ty => {}
        Ok(ty) => {
            let message = format!("`{}` gives {ty}, not {}", inst.op.mnemonic(), inst.ty);
            found.push(Diagnostic::error(crate::typing::MISMATCH, inst.span, message));
        }
        Err(e) => {
            let mut d = Diagnostic::error(e.code, inst.span, e.message);
            d.help = e.help;
            found.push(d);
        }
    }
    if let Some((sem, allowed)) = order_of(&inst.op)
        && !allowed.contains(&sem)
    {
        let names: Vec<_> = allowed.iter().map(|s| s.name()).collect();
        found.push(
            Diagnostic::error(BAD_ORDER, inst.span, format!("{} cannot be `{sem}`", called(&inst.op)))
                .help(format!("it may be {}", names.join(", "))),
        );
    }
    if let Some(team) = team_of(&inst.op)
        && team != TeamRef::WORLD
        && let TeamRef(t) = team
        && k.params.get(t as usize).map(|p| &p.ty) != Some(&Type::Team)
    {
        found.push(Diagnostic::error(NO_TEAM, inst.span, format!("parameter {t} is no team")));
    }
    if let Op::Print { format, args } = &inst.op {
        check_format(format, args, k, inst, found);
    }
}

/// All threads of a group come to an operation of theirs, with the same arguments.
fn check_threads(k: &Kernel, u: &Uniformity, v: Value, inst: &Inst, found: &mut Vec<Diagnostic>) {
    if let Some(group) = takes_all(&inst.op) {
        let (varies, cond) = u.control(v);
        // A CTA of one warp differs as little as its warp.
        let limit = if group == Group::Block && k.threads() > 32 { Varies::No } else { Varies::ByWarp };
        if varies > limit {
            found.push(divergent(k, inst, group, cond));
        }
        if remote::group(&inst.op).is_some() {
            not_same(k, u, inst, group, limit, found);
        }
    }
}

/// The arguments of an operation that threads call together are the same in all of them.
fn not_same(
    k: &Kernel,
    u: &Uniformity,
    inst: &Inst,
    group: Group,
    limit: Varies,
    found: &mut Vec<Diagnostic>,
) {
    let mut differs = None;
    inst.op.operands(&mut |v| {
        if u.value(v) > limit && differs.is_none() {
            differs = Some(v);
        }
    });
    let Some(v) = differs else { return };
    let who = if group == Group::Block { "the threads of the CTA" } else { "the lanes of the warp" };
    let mut d = Diagnostic::error(
        remote::NOT_SAME,
        inst.span,
        format!("an argument of {} differs between {who}, which call it together", called(&inst.op)),
    )
    .help("pass all of them the same, or let each thread do its own: without `<warp>` or `<block>`");
    if let Some(at) = k.insts.get(v) {
        d = d.related(at.span, "this differs from thread to thread");
    }
    found.push(d);
}

fn divergent(k: &Kernel, inst: &Inst, group: Group, cond: Option<Value>) -> Diagnostic {
    let who = if group == Group::Block { "thread of the CTA" } else { "lane of the warp" };
    let mut d = Diagnostic::error(
        DIVERGENT,
        inst.span,
        format!("{} in divergent control flow: every {who} must reach it", called(&inst.op)),
    )
    .label("some threads never come here")
    .help("move it out of the condition, or make the condition the same for all threads");
    if let Some(at) = cond.and_then(|c| k.insts.get(c)) {
        d = d.related(at.span, "this differs from thread to thread");
    }
    d
}

/// What the language calls an op that threads reach together.
fn called(op: &Op) -> String {
    match op {
        Op::GroupBarrier { group: Group::Block } => "`sync_threads`".into(),
        Op::GroupBarrier { group: Group::Warp } => "`sync_warp`".into(),
        Op::TeamBarrier { .. } => "`barrier`".into(),
        Op::Reduce { group, .. } => format!("a reduction over the {group}"),
        op if remote::name(op).is_some() => format!("`{}`", remote::name(op).unwrap_or_default()),
        Op::Converge { group } => format!("an access to a tensor that the {group} shares out"),
        other => format!(
            "`{}`",
            other
                .mnemonic()
                .trim_start_matches("mc_")
                .replace("store", if matches!(op, Op::McStore { .. }) { "st" } else { "store" })
        ),
    }
}

/// The threads that must all take part.
fn takes_all(op: &Op) -> Option<Group> {
    match op {
        Op::GroupBarrier { group } | Op::Converge { group } | Op::Reduce { group, .. } => {
            Some(*group).filter(|g| *g != Group::Thread)
        }
        Op::TeamBarrier { .. } => Some(Group::Block),
        Op::Shuffle { .. } => Some(Group::Warp),
        op => remote::group(op).filter(|g| *g != Group::Thread),
    }
}

/// The memory order of an op, and those it may have (PTX ISA: the `.sem` of each instruction).
fn order_of(op: &Op) -> Option<(Sem, &'static [Sem])> {
    use Sem::{AcqRel, Acquire, Relaxed, Release, SeqCst, Weak};
    match op {
        Op::Load { sem, .. } | Op::LdReduce { sem, .. } => Some((*sem, &[Weak, Relaxed, Acquire])),
        Op::Store { sem, .. } | Op::McStore { sem, .. } => Some((*sem, &[Weak, Relaxed, Release])),
        Op::McRed { sem, .. } | Op::Red { sem, .. } => Some((*sem, &[Relaxed, Release])),
        Op::Atomic { sem, .. } | Op::AtomicCas { sem, .. } => {
            Some((*sem, &[Relaxed, Acquire, Release, AcqRel]))
        }
        Op::Fence { sem, .. } => Some((*sem, &[Acquire, Release, AcqRel, SeqCst])),
        Op::TeamBarrier { sem, .. } => Some((*sem, &[Relaxed, Acquire, Release, AcqRel])),
        _ => None,
    }
}

fn team_of(op: &Op) -> Option<TeamRef> {
    match op {
        Op::MyPe { team } | Op::NPes { team } => Some(*team),
        Op::Multicast { team, .. } | Op::Peer { team, .. } | Op::TeamBarrier { team, .. } => Some(*team),
        op => remote::team(op),
    }
}

/// `%d`-like conversions of a format: as many as arguments, of their kind.
fn check_format(format: &str, args: &[Value], k: &Kernel, inst: &Inst, found: &mut Vec<Diagnostic>) {
    let specs: Vec<char> = format
        .replace("%%", "")
        .split('%')
        .skip(1)
        .map(|s| s.chars().find(|c| c.is_ascii_alphabetic() && *c != 'l').unwrap_or('?'))
        .collect();
    let bad = |message: String| {
        Diagnostic::error(BAD_FORMAT, inst.span, message).help(
            "%d for signed, %u and %x for unsigned integers, %f, %e and %g for floats, one for each argument",
        )
    };
    if specs.len() != args.len() {
        found.push(bad(format!(
            "the format has {} conversions and there are {} arguments",
            specs.len(),
            args.len()
        )));
        return;
    }
    for (spec, a) in specs.iter().zip(args) {
        let float = k.ty(*a).elem().is_some_and(crate::names::Scalar::is_float);
        if !(if float { "feg" } else { "dixuc" }).contains(*spec) {
            found.push(bad(format!("`%{spec}` does not print a {}", k.ty(*a))));
        }
    }
}
