//! Signals that nobody sends, and counters that add up the signals of several puts.

use crate::diag::{Code, Diagnostic, Span};
use crate::kernel::{Block, Inst, Kernel, Value};
use crate::names::{CmpOp, SignalKind};
use crate::op::{Access, Control, Operation, Remote, Thread, Var};
use crate::ordering::{Region, behind};
use crate::tensor::Op;
use std::collections::HashSet;
use weft_layout::Int;

/// A signal is waited for that nothing in the kernel sends.
pub const NOBODY_SIGNALS: Code = Code(230);
/// One counter adds up the signals of several non-blocking puts.
pub const SHARED_COUNTER: Code = Code(231);

/// Who sends signals and who waits for them.
pub(crate) struct Signals {
    /// Waits: the instruction, the variables, whether it asks for at least a value.
    waits: Vec<(Value, Region, bool)>,
    /// Parameters that somebody writes, here or on other PEs.
    sent: HashSet<u32>,
    /// Non-blocking puts that add to a signal: the instruction, the signal, whether a loop repeats it with none of them
    /// done in between, and after how many completions it stands.
    adds: Vec<(Value, Region, bool, u32)>,
    /// Completions so far: quiets, barriers, waits.
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
        let written = op.writes().into_iter().filter_map(|place| behind(k, place.value));
        self.sent.extend(written.map(|(region, _)| region.param));
    }

    fn remote(&mut self, k: &Kernel, v: Value, op: &Remote, looped: bool) {
        if let Remote::SignalWait { signal: var, cmp, .. } | Remote::Wait { vars: var, cmp, test: false, .. } =
            op
            && let Some((region, _)) = behind(k, *var)
        {
            self.waits.push((v, region, matches!(cmp, CmpOp::Ge | CmpOp::Gt)));
        }
        if let Remote::PutSignal { signal, op: SignalKind::Add, nbi: true, .. } = op
            && let Some((region, _)) = behind(k, *signal)
        {
            // A signal that the round picks counts its own chunk only.
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
                        format!("nothing in this kernel signals `{name}`, which is waited for"),
                    )
                    .help(format!(
                        "if the host or another kernel does, say so in the kernel's head: `signaled({name})`"
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
                        format!("`{name}` counts the signals of several non-blocking puts, which may come in any order"),
                    )
                    .related(span(*at), "this adds to it")
                    .help("a count tells how many have come, not which: give each its own signal, or wait for all of them with `eq`"),
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

/// Whether a number has other values in other rounds or threads.
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
