//! Checks for signals that nothing sends, and for counters that add up the signals of several puts.

use crate::diag::{Code, Diagnostic, Span};
use crate::kernel::{Block, Inst, Kernel, Value};
use crate::names::{CmpOp, SignalKind};
use crate::op::{Access, Control, Operation, Remote, Thread, Var};
use crate::ordering::{Region, viewed_region};
use crate::tensor::Op;
use std::collections::HashSet;
use weft_layout::Int;

/// A signal is waited for that nothing in the kernel sends.
pub const NOBODY_SIGNALS: Code = Code(230);
/// One counter adds up the signals of several non-blocking puts.
pub const SHARED_COUNTER: Code = Code(231);

/// The senders and receivers of signals in a kernel.
pub(crate) struct Signals {
    /// The waits: the instruction, the variables, and whether the wait is for at least a value.
    waits: Vec<(Value, Region, bool)>,
    /// The parameters that the kernel writes, on this PE or on others.
    sent: HashSet<u32>,
    /// The non-blocking puts that add to a signal: the instruction, the signal, whether a loop
    /// repeats the put without completing it, and the number of completions before it.
    adds: Vec<(Value, Region, bool, u32)>,
    /// The number of completions so far: quiets, barriers and waits.
    done: u32,
}

impl Signals {
    pub fn of(k: &Kernel) -> Signals {
        let mut out = Signals { waits: Vec::new(), sent: HashSet::new(), adds: Vec::new(), done: 0 };
        out.block(k, &k.body, false);
        out
    }

    fn block(&mut self, k: &Kernel, block: &Block, looped: bool) {
        for &v in &block.0 {
            let Some(inst) = k.insts.get(v) else { continue };
            self.inst(k, v, &inst.op, looped);
            let blocks = inst.op.blocks();
            let looped = match inst.op.control() {
                Some(Control::For { .. } | Control::While { .. }) => !blocks.iter().any(|b| completes(k, b)),
                Some(
                    Control::If { .. }
                    | Control::Once { .. }
                    | Control::Role { .. }
                    | Control::Break { .. }
                    | Control::Continue { .. }
                    | Control::Return {},
                )
                | None => looped,
            };
            blocks.iter().for_each(|b| self.block(k, b, looped));
        }
    }

    fn inst(&mut self, k: &Kernel, v: Value, op: &Op, looped: bool) {
        if let Some(op) = op.remote() {
            self.done += u32::from(op.completes());
            self.remote(k, v, op, looped);
        }
        let written = op.writes().into_iter().filter_map(|place| viewed_region(k, place.value));
        self.sent.extend(written.map(|(region, _)| region.param));
    }

    fn remote(&mut self, k: &Kernel, v: Value, op: &Remote, looped: bool) {
        if let Remote::SignalWait { signal: var, cmp, .. } | Remote::Wait { vars: var, cmp, test: false, .. } =
            op
            && let Some((region, _)) = viewed_region(k, *var)
        {
            self.waits.push((v, region, matches!(cmp, CmpOp::Ge | CmpOp::Gt)));
        }
        if let Remote::PutSignal { signal, op: SignalKind::Add, nbi: true, .. } = op
            && let Some((region, _)) = viewed_region(k, *signal)
        {
            // A signal whose index depends on the round counts only its own chunk.
            let picked = varies(k, &region.offset);
            self.adds.push((v, region, looped && !picked, self.done));
        }
    }

    pub fn waited(&self) -> Vec<Region> {
        self.waits.iter().map(|(_, region, _)| region.clone()).collect()
    }

    pub fn report(&self, k: &Kernel, found: &mut Vec<Diagnostic>) {
        let span = |v: Value| k.insts.get(v).map_or(Span::NONE, |i| i.span);
        for (v, Region { param, .. }, at_least) in &self.waits {
            let Some(name) = k.head.params.get(*param as usize).map(|p| &p.name) else { continue };
            if !self.sent.contains(param) && !k.head.signaled.contains(param) {
                found.push(
                    Diagnostic::warning(
                        NOBODY_SIGNALS,
                        span(*v),
                        format!("this kernel waits for `{name}`, but nothing in it signals `{name}`"),
                    )
                    .help(format!(
                        "if the host or another kernel signals it, state this in the kernel's head: \
                         `signaled({name})`"
                    )),
                );
            }
            let same =
                |a: &Region, done: u32| self.adds.iter().filter(|b| b.3 == done && b.1.meets(a)).count() > 1;
            let several = self
                .adds
                .iter()
                .find(|(_, r, looped, done)| r.param == *param && (*looped || same(r, *done)));
            if let (true, Some((at, ..))) = (at_least, several) {
                found.push(
                    Diagnostic::warning(
                        SHARED_COUNTER,
                        span(*v),
                        format!(
                            "`{name}` counts the signals of several non-blocking puts, which can \
                             arrive in any order"
                        ),
                    )
                    .related(span(*at), "this put adds to it")
                    .help(
                        "the count says how many puts have arrived, but not which: give each put its \
                         own signal, or wait for all of them with `eq`",
                    ),
                );
            }
        }
    }
}

/// Whether an op in a block completes earlier operations.
fn completes(k: &Kernel, block: &Block) -> bool {
    block.0.iter().filter_map(|v| k.insts.get(*v)).any(|inst| {
        inst.op.remote().is_some_and(Remote::completes) || inst.op.blocks().iter().any(|b| completes(k, b))
    })
}

/// Whether a number differs between rounds or threads.
fn varies(k: &Kernel, n: &Int) -> bool {
    let mut found = false;
    n.vars(&mut |var| {
        found |= k.insts.get(Value(var.id)).is_some_and(|Inst { op, .. }| {
            matches!(op.var(), Some(Var::LoopVar { .. } | Var::LocalGet { .. }))
                || matches!(op.access(), Some(Access::Load { .. }))
                || matches!(op.thread(), Some(Thread::Special { .. }))
        });
    });
    found
}
