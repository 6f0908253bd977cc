//! Removes values that are not used, and control flow without effect.

use weft_ir::arena::Handle;
use weft_ir::machine::Kernel;
use weft_ir::{Block, Control, Debug, Operation, Value, Var};

/// Runs the pass on a kernel.
pub(crate) fn run(mut k: Kernel) -> Kernel {
    let mut live = Live { k: &k, live: vec![false; k.insts.len()], work: Vec::new() };
    live.roots(&k.body);
    live.spread();
    let live = live.live;
    let mut body = std::mem::take(&mut k.body);
    sweep(&mut k, &mut body, &live);
    k.body = body;
    k
}

struct Live<'k> {
    k: &'k Kernel,
    live: Vec<bool>,
    work: Vec<Value>,
}

impl Live<'_> {
    fn mark(&mut self, v: Value) {
        if let Some(live) = self.live.get_mut(v.index())
            && !std::mem::replace(live, true)
        {
            self.work.push(v);
        }
    }

    /// Marks the ops that have an effect. Returns whether the block has any.
    fn roots(&mut self, block: &Block) -> bool {
        let mut any = false;
        for &v in &block.0 {
            let op = self.k.op(v);
            let effect = match op.control() {
                Some(
                    control @ (Control::If { .. }
                    | Control::For { .. }
                    | Control::Once { .. }
                    | Control::Role { .. }),
                ) => {
                    // An empty role still releases registers to other roles, which wait for them.
                    let gives = matches!(control, Control::Role { regs, .. } if *regs > 0);
                    op.blocks().into_iter().fold(gives, |any, b| self.roots(b) | any)
                }
                Some(Control::While { head, body, .. }) => {
                    self.roots(head);
                    self.roots(body);
                    true
                }
                Some(Control::Break { .. } | Control::Continue { .. } | Control::Return {}) => true,
                None => {
                    let only_reads = matches!(op.var(), Some(Var::LocalGet { .. }));
                    !(op.is_pure() || only_reads)
                }
            };
            if effect {
                self.mark(v);
            }
            any |= effect;
        }
        any
    }

    fn spread(&mut self) {
        while let Some(v) = self.work.pop() {
            let k = self.k;
            k.op(v).operands(&mut |x| self.mark(x));
        }
    }
}

fn sweep(k: &mut Kernel, block: &mut Block, live: &[bool]) {
    block.0.retain(|v| live.get(v.index()).copied().unwrap_or(false));
    for &v in &block.0 {
        if k.op(v).blocks().is_empty() {
            continue;
        }
        let mut op = std::mem::replace(&mut k.insts[v].op, Debug::Trap {}.into());
        op.blocks_mut().into_iter().for_each(|b| sweep(k, b, live));
        k.insts[v].op = op;
    }
}
