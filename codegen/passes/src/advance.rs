//! Addresses that are a linear function of a loop's variable become pointers that the loop moves on.
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
//! `b` is often known at run time only (CTAs times a tile), and a product of 64 bits in every round costs more than all
//! the rest of a loop that only moves data. LLVM's own strength reduction is off: it takes apart what stands together.
//! A loop that LLVM is to unroll stays as it is.

use crate::edit::{Action, Editor, Emit, Rewrite, constant, rewrite};
use crate::{Options, Report};
use rustc_hash::FxHashSet;
use weft_ir::builder::Built;
use weft_ir::diag::Diagnostic;
use weft_ir::{BinOp, Block, Int, Kernel, LocalId, Op, Type, Value};

/// The pass.
pub(crate) fn run(kernel: Kernel, _: &Options, _: &mut Report) -> Result<Kernel, Vec<Diagnostic>> {
    rewrite(kernel, &mut Advance)
}

struct Advance;

/// An address in a loop.
struct Address {
    value: Value,
    ptr: Value,
    /// Bytes behind `ptr` in the first round.
    first: Int,
    /// From one round to the next.
    stride: Int,
}

impl Rewrite for Advance {
    fn op(&mut self, e: &mut Editor, v: Value) -> Built<Action> {
        let Some((addresses, body)) = addresses(e.b.kernel(), v) else { return Ok(Action::Keep) };
        let mut moved: Vec<(LocalId, Int)> = Vec::new();
        let mut same: Vec<(&Address, LocalId)> = Vec::new();
        for a in &addresses {
            let known =
                same.iter().find(|(b, _)| b.ptr == a.ptr && b.first == a.first && b.stride == a.stride);
            let local = match known {
                Some((_, local)) => *local,
                None => {
                    let ty = e.b.ty(a.value).clone();
                    let local = e.b.local("at", ty);
                    let start = e.b.offset(a.ptr, &a.first)?;
                    e.b.set(local, start)?;
                    moved.push((local, a.stride.clone()));
                    same.push((a, local));
                    local
                }
            };
            e.b.kernel_mut().insts[a.value].op = Op::LocalGet { local };
        }
        let steps = e.b.nested(|b| {
            moved.iter().try_for_each(|(local, stride)| {
                let at = b.get(*local)?;
                let next = b.offset(at, stride)?;
                b.set(*local, next).map(drop)
            })
        })?;
        if let Op::For { body: old, .. } = &mut e.b.kernel_mut().insts[v].op {
            *old = Block(body.0.into_iter().chain(steps.0).collect());
        }
        Ok(Action::Keep)
    }
}

/// What moves with a loop, and its body; none if nothing does.
fn addresses(k: &Kernel, v: Value) -> Option<(Vec<Address>, Block)> {
    let Op::For { var, lo, step, unroll: 1, body, .. } = k.op(v) else { return None };
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
        let Op::PtrAdd { ptr, bytes } = k.op(*value) else { return None };
        let bytes = bytes_of(k, *bytes)?;
        let (first, stride) = (at(&bytes, &lo), at(&bytes, &(&i + &step)) - &bytes);
        let moves = !inside.contains(ptr) && matches!(k.ty(*value), Type::Pointer(_)) && !stride.is(0);
        (moves && stays(&first) && stays(&stride)).then_some(Address {
            value: *value,
            ptr: *ptr,
            first,
            stride,
        })
    };
    let found: Vec<Address> = body.0.iter().filter_map(address).collect();
    (!found.is_empty()).then(|| (found, body.clone()))
}

/// An offset as a symbol: an expression, a number, or products of them.
fn bytes_of(k: &Kernel, v: Value) -> Option<Int> {
    match k.op(v) {
        Op::Index { expr } => Some(expr.clone()),
        Op::Binary { op: BinOp::Mul, a, b } => Some(bytes_of(k, *a)? * bytes_of(k, *b)?),
        _ => constant(k, v).map(Int::from),
    }
}
