//! Replaces addresses that are a linear function of a loop's variable by pointers that the loop
//! increments.
//!
//! ```text
//! for i in lo..hi step s { p = ptr + (a + b*i); .. }
//! ```
//! becomes
//! ```text
//! $at = ptr + (a + b*lo)
//! for i in lo..hi step s { p = $at; ..; $at = $at + b*s }
//! ```
//!
//! `b` is often known only at run time (the number of CTAs times a tile), and a 64-bit product in
//! every round costs more than the rest of a loop that only moves data. LLVM's own strength
//! reduction is disabled, because it separates addresses that differ by a constant. Two kinds of
//! loops stay unchanged: loops that LLVM is to unroll, and loops with a `continue`, which would
//! skip the increments.

use crate::edit::{Action, Editor, Emit, Rewrite, constant, rewrite};
use crate::{Options, Report};
use rustc_hash::FxHashSet;
use weft_ir::builder::Built;
use weft_ir::diag::Diagnostic;
use weft_ir::mixed::{Kernel, Op, Type};
use weft_ir::{Address, Arith, BinOp, Block, Bridge, Control, Int, LocalId, Operation, Value, Var, View};

/// Runs the pass on a kernel.
pub(crate) fn run(kernel: Kernel, _: &Options, _: &mut Report) -> Result<Kernel, Vec<Diagnostic>> {
    rewrite(kernel, &mut Advance)
}

struct Advance;

/// An address that moves with a loop.
struct Moving {
    value: Value,
    /// The pointer from which the offset counts, or the parameter or allocation whose address it
    /// is.
    origin: Value,
    /// The offset from `origin` in the first round, in bytes.
    first: Int,
    /// The increment per round, in bytes.
    stride: Int,
}

impl Rewrite for Advance {
    fn op(&mut self, e: &mut Editor, v: Value) -> Built<Action> {
        let Some((addresses, body)) = addresses(e.b.kernel(), v) else { return Ok(Action::Keep) };
        let mut moved: Vec<(LocalId, Int)> = Vec::new();
        let mut same: Vec<(&Moving, LocalId)> = Vec::new();
        for a in &addresses {
            let known =
                same.iter().find(|(b, _)| b.origin == a.origin && b.first == a.first && b.stride == a.stride);
            let local = match known {
                Some((_, local)) => *local,
                None => {
                    let ty = e.b.ty(a.value).clone();
                    let local = e.b.local("at", ty);
                    let origin = match e.b.ty(a.origin) {
                        Type::Pointer(_) => a.origin,
                        _ => e.b.emit(Bridge::AddressOf { base: a.origin })?,
                    };
                    let start = e.b.offset(origin, &a.first)?;
                    e.b.set(local, start)?;
                    moved.push((local, a.stride.clone()));
                    same.push((a, local));
                    local
                }
            };
            e.b.kernel_mut().insts[a.value].op = Var::LocalGet { local }.into();
        }
        let steps = e.b.nested(|b| {
            moved.iter().try_for_each(|(local, stride)| {
                let at = b.get(*local)?;
                let next = b.offset(at, stride)?;
                b.set(*local, next).map(drop)
            })
        })?;
        if let Op::Control(Control::For { body: old, .. }) = &mut e.b.kernel_mut().insts[v].op {
            *old = Block(body.0.into_iter().chain(steps.0).collect());
        }
        Ok(Action::Keep)
    }
}

/// The addresses that move with a loop, and its body, or `None` if no address moves.
fn addresses(k: &Kernel, v: Value) -> Option<(Vec<Moving>, Block)> {
    let Some(Control::For { var, lo, step, unroll: 1, body, .. }) = k.op(v).control() else { return None };
    let jumps = |v: &Value| k.op(*v).control().is_some_and(Control::is_jump);
    if continues(k, body, 0) || body.0.last().is_some_and(jumps) {
        return None;
    }
    let (var, lo, step) = (var.0, k.symbol(*lo)?, k.symbol(*step)?);
    let i = k.symbol(var)?;
    let inside: FxHashSet<Value> = body.0.iter().copied().collect();
    let at = |e: &Int, x: &Int| e.subst(&mut |v| (v.id == var.0).then(|| x.clone()));
    let stays = |e: &Int| {
        let mut stays = true;
        e.vars(&mut |v| stays &= v.id != var.0 && !inside.contains(&Value(v.id)));
        stays && e.poison().is_none()
    };
    let address = |value: &Value| {
        let Some(Address::PtrAdd { ptr, bytes }) = k.op(*value).address() else { return None };
        let origin = if let Op::Bridge(Bridge::AddressOf { base }) = k.op(*ptr) { *base } else { *ptr };
        let bytes = bytes_of(k, *bytes)?;
        let (first, stride) = (at(&bytes, &lo), at(&bytes, &(&i + &step)) - &bytes);
        let moves = !inside.contains(&origin) && !stride.is(0);
        (moves && stays(&first) && stays(&stride)).then_some(Moving { value: *value, origin, first, stride })
    };
    let found: Vec<Moving> = body.0.iter().filter_map(address).collect();
    (!found.is_empty()).then(|| (found, body.clone()))
}

/// Whether code in a block continues with the next round of the loop that is `depth` levels around
/// it.
fn continues(k: &Kernel, block: &Block, depth: u32) -> bool {
    block.0.iter().any(|v| {
        let blocks = k.op(*v).blocks();
        match k.op(*v).control() {
            Some(Control::Continue { depth: to }) => *to == depth,
            Some(Control::For { .. } | Control::While { .. } | Control::Once { .. }) => {
                blocks.into_iter().any(|b| continues(k, b, depth + 1))
            }
            Some(Control::If { .. } | Control::Role { .. } | Control::Break { .. } | Control::Return {})
            | None => blocks.into_iter().any(|b| continues(k, b, depth)),
        }
    })
}

/// An offset as a symbol: an expression, a number, or a product of them.
fn bytes_of(k: &Kernel, v: Value) -> Option<Int> {
    let op = k.op(v);
    if let Some(View::Index { expr }) = op.view() {
        return Some(expr.clone());
    }
    if let Some(Arith::Binary { op: BinOp::Mul, a, b }) = op.arith() {
        return Some(bytes_of(k, *a)? * bytes_of(k, *b)?);
    }
    constant(k, v).map(Int::from)
}
