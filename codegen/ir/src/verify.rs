//! The verifier, which reports every error of a module at once. A module that verifies either
//! lowers or is rejected with a diagnostic, and later stages never panic on it. The rules of a
//! single level are with its head.

use crate::diag::{Code, Diagnostic, Severity};
use crate::kernel::{Block, Inst, Kernel, Module, TeamRef, Value};
use crate::level::{Head, Level, Tensor};
use crate::names::{Group, Scalar, Space};
use crate::op::{Call, Control, Debug, Operation, Remote, Team, Var, View};
use crate::remote;
use crate::types::{TypeRef, ValueType};
use crate::typing::{MAX_LANES, MISMATCH};
use crate::uniform::{self, Uniformity, Varies};
use std::collections::{HashMap, HashSet};
use std::ops::Deref;
use std::sync::Arc;

/// A value is used where it is not defined.
pub const UNDEFINED: Code = Code(210);
/// An instruction is in no block, or in two.
pub const MISPLACED: Code = Code(211);
/// An op that all threads of a group must reach is under a condition that differs between them.
pub const DIVERGENT: Code = Code(212);
/// An op has a memory order that it cannot have.
pub const BAD_ORDER: Code = Code(213);
/// The launch shape is not possible on any GPU.
pub const BAD_LAUNCH: Code = Code(214);
/// A parameter that is named as a team is not a team parameter.
pub const NO_TEAM: Code = Code(215);
/// A print format does not match its arguments.
pub const BAD_FORMAT: Code = Code(216);
/// A function has a name that no library function can have, or two signatures.
pub const BAD_FUNCTION: Code = Code(218);

/// A module without errors. Only the verifier creates this type, and later stages require it.
#[derive(Clone, PartialEq, Debug)]
pub struct Verified<L: Level = Tensor> {
    module: Module<L>,
    /// Findings in code that is allowed but looks wrong.
    pub warnings: Vec<Diagnostic>,
}

impl<L: Level> Verified<L> {
    /// The module, for changes. It must be verified again.
    pub fn into_module(self) -> Module<L> {
        self.module
    }
}

impl<L: Level> Deref for Verified<L> {
    type Target = Module<L>;
    fn deref(&self) -> &Module<L> {
        &self.module
    }
}

/// Checks a module by the rules of its level.
///
/// # Errors
/// Fails with all findings at once, in source order.
pub fn verify<L: Level>(module: Module<L>) -> Result<Verified<L>, Vec<Diagnostic>> {
    let mut found = Vec::new();
    for k in &module.kernels {
        // The errors of one kernel do not affect the next one.
        let mut of_kernel = Vec::new();
        kernel(k, &mut of_kernel);
        found.append(&mut of_kernel);
    }
    if !has_errors(&found) {
        functions(&module, &mut found);
    }
    let (errors, warnings): (Vec<_>, Vec<_>) = found.into_iter().partition(|d| d.severity == Severity::Error);
    if errors.is_empty() { Ok(Verified { module, warnings }) } else { Err(errors) }
}

fn has_errors(found: &[Diagnostic]) -> bool {
    found.iter().any(|d| d.severity == Severity::Error)
}

fn kernel<L: Level>(k: &Kernel<L>, found: &mut Vec<Diagnostic>) {
    let launch = |message: String, help: &str| Diagnostic::error(BAD_LAUNCH, k.span, message).help(help);
    let threads = k.block.iter().try_fold(1u32, |n, d| n.checked_mul(*d)).unwrap_or(u32::MAX);
    if threads == 0 || threads > 1024 || k.block[2] > 64 {
        let [x, y, z] = k.block;
        found.push(launch(
            format!("block({x}, {y}, {z}) has {threads} threads"),
            "a CTA must have 1 to 1024 threads, with at most 64 in z",
        ));
    }
    let ctas = k.cluster.iter().try_fold(1u32, |n, d| n.checked_mul(*d)).unwrap_or(u32::MAX);
    if !(1..=MAX_CLUSTER).contains(&ctas) {
        let [x, y, z] = k.cluster;
        let help = "a cluster can have 1 to 8 CTAs on every device that supports clusters";
        found.push(launch(format!("cluster({x}, {y}, {z}) has {ctas} CTAs"), help));
    }
    if !is_identifier(&k.name) {
        found.push(launch(
            format!("`{}` cannot name a kernel", k.name),
            "use letters, digits and `_`, and begin with a letter",
        ));
    } else if k.name.starts_with(LIBRARY) {
        found.push(launch(
            format!("`{}` cannot name a kernel", k.name),
            "names that begin with `nvshmem` belong to the device library; choose another name",
        ));
    }
    L::Head::check(k, found);
    let mut order = Order { k, defined: HashSet::new(), seen: HashSet::new(), around: Vec::new(), found };
    order.block(&k.body, 0);
    if has_errors(order.found) {
        // Types and uniformity are undefined while values are undefined.
        return;
    }
    check_locals(k, found);
    crate::roles::check(k, found);
    k.walk(&mut |_, inst| check_inst(k, inst, found));
    if has_errors(found) {
        return;
    }
    let uniformity = uniform::analyze(k);
    k.walk(&mut |v, inst| check_threads(k, &uniformity, v, inst, found));
    if !has_errors(found) {
        L::check(k, found);
    }
}

/// The prefix of the functions of NVSHMEM's device library. Remote operations become calls of these
/// functions.
const LIBRARY: &str = "nvshmem";

/// The maximum number of CTAs of a cluster that every device supports (CUDA C++ Programming Guide,
/// Thread Block Clusters).
pub const MAX_CLUSTER: u32 = 8;

/// The maximum nesting of blocks. Later stages walk them recursively.
const MAX_DEPTH: usize = 200;

fn is_identifier(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        && name.len() <= 256
}

/// The signature of a function in C, where all pointers have one type.
fn c_signature<L: Level>(k: &Kernel<L>, result: &L::Type, args: &[Value]) -> Vec<L::Type> {
    let types = std::iter::once(result).chain(args.iter().map(|a| k.ty(*a)));
    let pointer = L::Type::of(TypeRef::Pointer(Space::Global));
    let one_kind = |ty: &L::Type| match (ty.view(), &pointer) {
        (TypeRef::Pointer(_), Some(pointer)) => pointer.clone(),
        _ => ty.clone(),
    };
    types.map(one_kind).collect()
}

/// Checks that a called function has a C name, is not a kernel, and has one signature in the whole
/// module.
fn functions<L: Level>(module: &Module<L>, found: &mut Vec<Diagnostic>) {
    let mut known: HashMap<Arc<str>, Vec<L::Type>> = HashMap::new();
    for k in &module.kernels {
        k.walk(&mut |_, inst| {
            let Some(Call::Function { function, args }) = inst.op.call() else { return };
            let bad = |message: String, help: &str| {
                Diagnostic::error(BAD_FUNCTION, inst.span, message).help(help.to_owned())
            };
            if !is_identifier(function) || module.kernels.iter().any(|k| k.name == *function) {
                found.push(bad(
                    format!("`{}` cannot name a function", function.escape_debug()),
                    "use letters, digits and `_`, begin with a letter, and do not use the name of a kernel",
                ));
                return;
            }
            let here = c_signature(k, &inst.ty, args);
            if *known.entry(function.clone()).or_insert_with(|| here.clone()) != here {
                found.push(bad(
                    format!("`{function}` is called with two signatures"),
                    "give the function the same parameters and result in all calls",
                ));
            }
        });
    }
}

/// Checks that every value is defined before its use, in its block or a surrounding one, and that
/// every instruction is in one block.
struct Order<'a, L: Level> {
    k: &'a Kernel<L>,
    defined: HashSet<Value>,
    seen: HashSet<Value>,
    /// The surrounding loops (`true`) and `once` (`false`), outermost first.
    around: Vec<bool>,
    found: &'a mut Vec<Diagnostic>,
}

impl<L: Level> Order<'_, L> {
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
                self.found.push(Diagnostic::error(MISPLACED, inst.span, format!("{v} is in two places")));
                continue;
            }
            self.inst(inst, depth);
            if inst.op.control().is_some_and(Control::is_jump) && block.0.last() != Some(&v) {
                let message = format!("`{}` is not the last op of its block", inst.op.mnemonic());
                self.found.push(Diagnostic::error(MISPLACED, inst.span, message));
            }
            self.defined.insert(v);
            here.push(v);
        }
        for v in here {
            self.defined.remove(&v);
        }
    }

    fn inst(&mut self, inst: &Inst<L>, depth: usize) {
        let mut uses = Vec::new();
        self.k.operands(inst, &mut |x| uses.push(x));
        match inst.op.control() {
            Some(Control::For { var, body, .. }) => {
                self.uses(&uses, inst);
                let var = var.0;
                let is_loop_var = self.k.insts.get(var).is_some_and(|i| {
                    matches!(i.op.var(), Some(Var::LoopVar { .. })) && i.ty == L::Type::scalar(Scalar::I64)
                });
                if !(self.seen.insert(var) && is_loop_var) {
                    let message = format!("{var} is not a new loop variable");
                    self.found.push(Diagnostic::error(MISPLACED, inst.span, message));
                }
                self.defined.insert(var);
                self.around.push(true);
                self.block(body, depth + 1);
                self.around.pop();
                self.defined.remove(&var);
            }
            Some(Control::While { head, cond, body }) => {
                // The head computes the condition, so it is defined after the head and in the body.
                self.around.push(true);
                self.block(head, depth + 1);
                let known = self.defined.clone();
                self.defined.extend(head.0.iter().copied());
                self.uses(&[*cond], inst);
                self.block(body, depth + 1);
                self.around.pop();
                self.defined = known;
            }
            Some(Control::Once { body }) => {
                self.around.push(false);
                self.block(body, depth + 1);
                self.around.pop();
            }
            Some(Control::Role { body, .. }) => {
                let around = std::mem::take(&mut self.around);
                self.block(body, depth + 1);
                self.around = around;
            }
            Some(Control::Break { depth }) => self.jump(inst, *depth, false),
            Some(Control::Continue { depth }) => self.jump(inst, *depth, true),
            Some(Control::If { .. } | Control::Return {}) | None => {
                self.uses(&uses, inst);
                for b in inst.op.blocks() {
                    self.block(b, depth + 1);
                }
            }
        }
    }

    /// Checks that a jump has a target around it. Only loops can continue with a next round.
    fn jump(&mut self, inst: &Inst<L>, depth: u32, again: bool) {
        let to = self.around.iter().rev().nth(depth as usize);
        if to.is_none_or(|is_loop| again && !is_loop) {
            let message = format!("`{} {depth}` has no target", inst.op.mnemonic());
            self.found.push(Diagnostic::error(MISPLACED, inst.span, message));
        }
    }

    fn uses(&mut self, uses: &[Value], inst: &Inst<L>) {
        // A parameter's layout can refer to other parameters and team sizes, wherever they are
        // defined.
        let of_launch = |v: Value| {
            self.k.insts.get(v).is_some_and(|i| {
                let queries =
                    |c: &Call| matches!(c, Call::Function { function, .. } if remote::is_query(function));
                matches!(i.op.var(), Some(Var::Param { .. }))
                    || matches!(i.op.team(), Some(Team::NPes { .. }))
                    || i.op.call().is_some_and(queries)
            })
        };
        let is_param = matches!(inst.op.var(), Some(Var::Param { .. }));
        for u in uses {
            if !(self.defined.contains(u) || is_param && of_launch(*u)) {
                let message = format!("{u} is used by `{}` before it is defined", inst.op.mnemonic());
                self.found.push(Diagnostic::error(UNDEFINED, inst.span, message));
            }
        }
    }
}

/// The reason why no value can have the type, if there is one.
fn no_value(ty: TypeRef<'_>) -> Option<String> {
    match ty {
        TypeRef::Vector(_, n) if !(1..=MAX_LANES).contains(&n) => {
            Some(format!("a vector must have 1 to {MAX_LANES} lanes, not {n}"))
        }
        TypeRef::Pointer(Space::Register) => Some("registers have no address".into()),
        TypeRef::Tensor(t) if !t.align.is_power_of_two() => {
            Some(format!("an alignment must be a power of two, not {}", t.align))
        }
        TypeRef::Unit
        | TypeRef::Scalar(_)
        | TypeRef::Vector(..)
        | TypeRef::Pointer(_)
        | TypeRef::Tensor(_)
        | TypeRef::Team
        | TypeRef::Barrier
        | TypeRef::Pipeline(_)
        | TypeRef::Accumulator(_) => None,
    }
}

/// Checks that every local variable can hold a value.
fn check_locals<L: Level>(k: &Kernel<L>, found: &mut Vec<Diagnostic>) {
    for (_, local) in k.locals.iter() {
        let ty = local.ty.view();
        let wrong = if ty == TypeRef::Unit { Some("it has no value".into()) } else { no_value(ty) };
        if let Some(wrong) = wrong {
            let message = format!("variable `{}`: {wrong}", local.name);
            found.push(Diagnostic::error(MISMATCH, k.span, message));
        }
    }
}

fn check_inst<L: Level>(k: &Kernel<L>, inst: &Inst<L>, found: &mut Vec<Diagnostic>) {
    if let Some(message) = no_value(inst.ty.view()) {
        found.push(Diagnostic::error(MISMATCH, inst.span, message));
        return;
    }
    match inst.op.result_type(k, &inst.ty) {
        Ok(ty) if ty == inst.ty => {}
        Ok(ty) => {
            let message = format!("`{}` gives {ty}, not {}", inst.op.mnemonic(), inst.ty);
            found.push(Diagnostic::error(MISMATCH, inst.span, message));
        }
        Err(e) => {
            let mut d = Diagnostic::error(e.code, inst.span, e.message);
            d.help = e.help;
            found.push(d);
        }
    }
    if inst.op.group() == Some(Group::Cluster) && inst.op.remote().is_some() {
        let message = format!("`{}` cannot be an operation of a cluster", inst.op.mnemonic());
        found.push(
            Diagnostic::error(MISMATCH, inst.span, message)
                .help("a thread, a warp or a CTA executes operations on other PEs"),
        );
    }
    if let Some((sem, allowed)) = inst.op.order()
        && !allowed.contains(&sem)
    {
        let names: Vec<_> = allowed.iter().map(|s| s.name()).collect();
        found.push(
            Diagnostic::error(BAD_ORDER, inst.span, format!("{} cannot be `{sem}`", inst.op.quoted_name()))
                .help(format!("it can be {}", one_of(&names))),
        );
    }
    for TeamRef(team) in inst.op.teams() {
        if TeamRef(team) != TeamRef::WORLD && !k.head.is_team(team) {
            found.push(Diagnostic::error(NO_TEAM, inst.span, format!("parameter {team} is not a team")));
        }
    }
    if let Some(Debug::Print { format, args }) = inst.op.debug() {
        check_format(format, args, k, inst, found);
    }
}

/// Checks that all threads of a group reach the group's operations with the same arguments.
fn check_threads<L: Level>(
    k: &Kernel<L>,
    u: &Uniformity,
    v: Value,
    inst: &Inst<L>,
    found: &mut Vec<Diagnostic>,
) {
    let Some(group) = inst.op.group().or_else(|| together(k, inst)) else { return };
    let (varies, cond) = u.control(v);
    // For a CTA of one warp, being uniform in the warp is sufficient.
    let whole = matches!(group, Group::Block | Group::Cluster) && u.threads(k, v) > 32;
    let limit = if whole { Varies::No } else { Varies::ByWarp };
    if varies > limit {
        found.push(divergent(k, u, inst, group, cond));
    }
    if inst.op.remote().is_some_and(Remote::is_collective) {
        check_uniform_arguments(k, u, inst, group, limit, found);
    }
}

/// The group that must reach an access together: the CTA, for a view of the threads' elements of a
/// tile.
fn together<L: Level>(k: &Kernel<L>, inst: &Inst<L>) -> Option<Group> {
    let place = k.insts.get(inst.op.access()?.place())?;
    matches!(place.op.view(), Some(View::Distributed { .. })).then_some(Group::Block)
}

/// Checks that the arguments of an operation that threads call together are the same in all of them.
fn check_uniform_arguments<L: Level>(
    k: &Kernel<L>,
    u: &Uniformity,
    inst: &Inst<L>,
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
    let who = if group == Group::Warp { "the lanes of the warp" } else { "the threads of the CTA" };
    let mut d = Diagnostic::error(
        remote::NOT_SAME,
        inst.span,
        format!(
            "an argument of {} differs between {who}, which must call it together",
            inst.op.quoted_name()
        ),
    )
    .help(
        "pass the same value in all of them, or let each thread execute its own operation: omit \
         `<warp>` or `<block>`",
    );
    if let Some(at) = k.insts.get(v) {
        d = d.related(at.span, "this value differs from thread to thread");
    }
    found.push(d);
}

fn divergent<L: Level>(
    k: &Kernel<L>,
    u: &Uniformity,
    inst: &Inst<L>,
    group: Group,
    cond: Option<Value>,
) -> Diagnostic {
    let who = match group {
        Group::Cluster => "thread of the cluster",
        Group::Block => "thread of the CTA",
        Group::Warp | Group::Thread => "lane of the warp",
    };
    let mut d = Diagnostic::error(
        DIVERGENT,
        inst.span,
        format!("{} is in divergent control flow, but every {who} must reach it", inst.op.quoted_name()),
    )
    .label("some threads never reach this operation")
    .help("move it out of the condition, or make the condition the same for all threads");
    let Some((cause, at)) = cond.and_then(|c| Some((c, k.insts.get(c)?))) else { return d };
    if !at.op.control().is_some_and(Control::is_jump) {
        return d.related(at.span, "this value differs from thread to thread");
    }
    d = d.related(at.span, "some threads skip it from here");
    match u.control(cause).1.and_then(|c| k.insts.get(c)) {
        Some(why) => d.related(why.span, "this value differs from thread to thread"),
        None => d,
    }
}

/// Checks that a format has as many conversions such as `%d` as there are arguments, and of the
/// same kinds.
fn check_format<L: Level>(
    format: &str,
    args: &[Value],
    k: &Kernel<L>,
    inst: &Inst<L>,
    found: &mut Vec<Diagnostic>,
) {
    let specs: Vec<char> = format
        .replace("%%", "")
        .split('%')
        .skip(1)
        .map(|s| s.chars().find(|c| c.is_ascii_alphabetic() && *c != 'l').unwrap_or('?'))
        .collect();
    let bad = |message: String| {
        Diagnostic::error(BAD_FORMAT, inst.span, message).help(
            "use %d for signed integers, %u and %x for unsigned integers, and %f, %e and %g for floats, \
             one for each argument",
        )
    };
    if specs.len() != args.len() {
        found.push(bad(format!(
            "the format has {} conversions, but there are {} arguments",
            specs.len(),
            args.len()
        )));
        return;
    }
    for (spec, a) in specs.iter().zip(args) {
        let float = k.ty(*a).elem().is_some_and(Scalar::is_float);
        if !(if float { "feg" } else { "dixuc" }).contains(*spec) {
            found.push(bad(format!("`%{spec}` cannot print a {}", k.ty(*a))));
        }
    }
}

/// The alternatives in words, such as `weak, relaxed or acquire`.
fn one_of(names: &[&str]) -> String {
    match names {
        [first @ .., last] if !first.is_empty() => format!("{} or {last}", first.join(", ")),
        names => names.concat(),
    }
}
