//! Operations on single elements of other PEs: `p`, `g`, signals, atomics.

use super::copy::Threads;
use super::library::{call, carrier, signal_op};
use super::{RemotePass, address};
use crate::codes::NO_FUNCTION;
use crate::edit::{Action, Editor, Emit};
use weft_ir::ValueType;
use weft_ir::builder::Built;
use weft_ir::diag::{Diagnostic, Span};
use weft_ir::mixed::{Builder, Type};
use weft_ir::{
    AmoOp, Arith, BinOp, CmpOp, Memory, RedOp, Scalar, Scope, Sem, SignalKind, TeamRef, Thread, Value,
};

impl RemotePass<'_> {
    /// Lowers `p`.
    pub(super) fn put_value(
        &mut self,
        e: &mut Editor,
        (dst, team, pe): (Value, TeamRef, Value),
        value: Value,
    ) -> Built<Action> {
        let (carrier, name) = carrier(elem(&e.b, dst).bytes());
        self.by_transport(
            e,
            (dst, team, pe),
            &Type::Unit,
            &mut |_, e, ptr| e.b.emit(Memory::Store { ptr, value, sem: Sem::Relaxed, scope: Scope::Sys }),
            &mut |_, e, pe| {
                let (at, value) = (address(&mut e.b, dst)?, as_bits(&mut e.b, value, carrier)?);
                call(&mut e.b, &format!("nvshmem_{name}_p"), vec![at, value, pe], Type::Unit)
            },
        )?;
        Ok(Action::Drop)
    }

    /// Lowers `g`.
    pub(super) fn get_value(
        &mut self,
        e: &mut Editor,
        (src, team, pe): (Value, TeamRef, Value),
    ) -> Built<Action> {
        let ty = elem(&e.b, src);
        let (carrier, name) = carrier(ty.bytes());
        let value = self.by_transport(
            e,
            (src, team, pe),
            &Type::Scalar(ty),
            &mut |_, e, ptr| {
                let load = Memory::Load { ptr, sem: Sem::Relaxed, scope: Scope::Sys };
                e.b.emit_as(load, Type::Scalar(ty))
            },
            &mut |_, e, pe| {
                let at = address(&mut e.b, src)?;
                let function = format!("nvshmem_{name}_g");
                let bits = call(&mut e.b, &function, vec![at, pe], Type::Scalar(carrier))?;
                from_bits(&mut e.b, bits, ty)
            },
        )?;
        Ok(Action::Become(value))
    }

    /// Lowers `signal_op`.
    pub(super) fn signal(
        &mut self,
        e: &mut Editor,
        (signal, team, pe): (Value, TeamRef, Value),
        op: SignalKind,
        value: Value,
    ) -> Built<Action> {
        self.by_transport(
            e,
            (signal, team, pe),
            &Type::Unit,
            &mut |_, e, place| raise(&mut e.b, place, op, value),
            &mut |_, e, pe| call_signal_op(&mut e.b, signal, op, value, pe),
        )?;
        Ok(Action::Drop)
    }

    /// Lowers atomic operations on one element.
    pub(super) fn amo(
        &mut self,
        e: &mut Editor,
        (target, team, pe): (Value, TeamRef, Value),
        op: AmoOp,
        operands: &[Value],
        span: Span,
    ) -> Built<Action> {
        let s = elem(&e.b, target);
        let (carrier, function) = amo_function(op, s, span)?;
        let result = if op.fetches() { Type::Scalar(s) } else { Type::Unit };
        if s == Scalar::F16 {
            // NVSHMEM's function takes a struct, so only the other implementation is possible.
            let place = self.near(e, target, team, pe, false)?.pointer;
            let old = atomic(&mut e.b, place, op, s, operands)?;
            return Ok(if op.fetches() { Action::Become(old) } else { Action::Drop });
        }
        let value = self.by_transport(
            e,
            (target, team, pe),
            &result,
            &mut |_, e, place| atomic(&mut e.b, place, op, s, operands),
            &mut |_, e, pe| {
                let at = address(&mut e.b, target)?;
                if s.is_float() && matches!(op, AmoOp::Add | AmoOp::FetchAdd) {
                    let old = add_by_swaps(&mut e.b, at, s, operands, pe)?;
                    return if op.fetches() { from_bits(&mut e.b, old, s) } else { Ok(old) };
                }
                let mut args = vec![at];
                for v in operands {
                    args.push(as_bits(&mut e.b, *v, carrier)?);
                }
                args.push(pe);
                if !op.fetches() {
                    return call(&mut e.b, &function, args, Type::Unit);
                }
                let old = call(&mut e.b, &function, args, Type::Scalar(carrier))?;
                from_bits(&mut e.b, old, s)
            },
        )?;
        Ok(if op.fetches() { Action::Become(value) } else { Action::Drop })
    }
}

fn elem(b: &Builder, tensor: Value) -> Scalar {
    b.ty(tensor).elem().unwrap_or(Scalar::U32)
}

/// A value as the integer that represents it in a call.
fn as_bits(b: &mut Builder, a: Value, to: Scalar) -> Built<Value> {
    match b.ty(a).elem() {
        Some(from) if from == to => Ok(a),
        Some(Scalar::Bool) => b.convert(a, to),
        _ => b.emit_as(Arith::Bitcast { a }, Type::Scalar(to)),
    }
}

fn from_bits(b: &mut Builder, a: Value, to: Scalar) -> Built<Value> {
    match to {
        Scalar::Bool => {
            let zero = b.zero(&b.ty(a).clone())?;
            b.compare(weft_ir::CmpOp::Ne, a, zero)
        }
        to => as_bits(b, a, to),
    }
}

/// Updates a signal at an address.
pub(super) fn raise(b: &mut Builder, place: Value, op: SignalKind, value: Value) -> Built<Value> {
    let (sem, scope) = (Sem::Relaxed, Scope::Sys);
    b.emit(match op {
        SignalKind::Set => Memory::Store { ptr: place, value, sem, scope },
        SignalKind::Add => Memory::Red { ptr: place, value, op: RedOp::Add, sem, scope },
    })
}

/// Updates a signal by a call of NVSHMEM.
pub(super) fn call_signal_op(
    b: &mut Builder,
    signal: Value,
    op: SignalKind,
    value: Value,
    pe: Value,
) -> Built<Value> {
    let (at, op) = (address(b, signal)?, b.i32(signal_op(op))?);
    call(b, "nvshmemx_signal_op", vec![at, value, op, pe], Type::Unit)
}

/// Updates a signal after the data of a group, so that all its writes precede the signal.
pub(super) fn raise_after(
    b: &mut Builder,
    threads: &Threads,
    place: Value,
    op: SignalKind,
    value: Value,
) -> Built<()> {
    threads.first(b, |b| {
        b.emit(Thread::Fence { sem: Sem::AcqRel, scope: Scope::Sys })?;
        raise(b, place, op, value).map(drop)
    })
}

/// Whether an operation only moves bits. Such an operation uses the unsigned type of the same
/// width, because NVSHMEM's swaps of other types convert the old value instead of reinterpreting it
/// (`double_atomic_swap` up to 3.8 returns its bits as a number).
fn moves_bits(op: AmoOp) -> bool {
    matches!(op, AmoOp::Fetch | AmoOp::Set | AmoOp::Swap | AmoOp::CompareSwap)
}

/// Adds floats by compare and swap of their bits, which every version of NVSHMEM has. Returns the
/// old bits. (NVSHMEM has float additions from 3.7 on, but a kernel is not compiled for one
/// version.)
fn add_by_swaps(b: &mut Builder, at: Value, s: Scalar, operands: &[Value], pe: Value) -> Built<Value> {
    let (carrier, name) = carrier(s.bytes());
    let bits = Type::Scalar(carrier);
    let Some(addend) = operands.first().copied() else { return b.zero(&bits) };
    let (old, seen) = (b.local("old", bits.clone()), b.local("seen", bits.clone()));
    let first = call(b, &format!("nvshmem_{name}_atomic_fetch"), vec![at, pe], bits.clone())?;
    b.set(seen, first)?;
    b.while_loop(
        |b| {
            let before = b.get(seen)?;
            b.set(old, before)?;
            let sum = from_bits(b, before, s)?;
            let sum = b.binary(BinOp::Add, sum, addend)?;
            let sum = as_bits(b, sum, carrier)?;
            let function = format!("nvshmem_{name}_atomic_compare_swap");
            let found = call(b, &function, vec![at, before, sum, pe], bits)?;
            b.set(seen, found)?;
            b.compare(CmpOp::Ne, found, before)
        },
        |_| Ok(()),
    )?;
    b.get(old)
}

/// The name of a function such as `nvshmem_uint32_atomic_add`, and the type of its operands and
/// result.
fn amo_function(op: AmoOp, s: Scalar, span: Span) -> Built<(Scalar, String)> {
    let adds = matches!(op, AmoOp::Add | AmoOp::FetchAdd | AmoOp::Inc | AmoOp::FetchInc);
    let (moved, ty) = match s {
        s if moves_bits(op) => {
            let (carrier, name) = carrier(s.bytes());
            (carrier, Some(name))
        }
        // Sums of signed 64-bit integers exist only under C's name of the type.
        Scalar::I64 if adds => (s, Some("long")),
        s => (s, s.nvshmem_name()),
    };
    match ty {
        Some(ty) if op.takes(s) => Ok((moved, format!("nvshmem_{ty}_atomic_{op}"))),
        _ => {
            let message = format!("`atomic_{op}` does not exist for {s}");
            Err(Diagnostic::error(NO_FUNCTION, span, message)
                .help("convert to a type for which it exists: i32, i64, u32, u64"))
        }
    }
}

/// Does the operation by an atomic instruction at an address.
fn atomic(b: &mut Builder, place: Value, op: AmoOp, s: Scalar, operands: &[Value]) -> Built<Value> {
    let (sem, scope) = (Sem::Relaxed, Scope::Sys);
    let value = match operands.last() {
        Some(v) => *v,
        None => b.int(if s.is_int() { s } else { Scalar::I32 }, 1)?,
    };
    let fetches = op.fetches();
    let red = match op {
        AmoOp::Fetch => return b.emit_as(Memory::Load { ptr: place, sem, scope }, Type::Scalar(s)),
        AmoOp::Set => return b.emit(Memory::Store { ptr: place, value, sem, scope }),
        AmoOp::CompareSwap => {
            let expected = operands.first().copied().unwrap_or(value);
            return b.emit(Memory::AtomicCas { ptr: place, expected, value, sem, scope });
        }
        AmoOp::Swap => None,
        AmoOp::Inc | AmoOp::FetchInc | AmoOp::Add | AmoOp::FetchAdd => Some(RedOp::Add),
        AmoOp::And | AmoOp::FetchAnd => Some(RedOp::And),
        AmoOp::Or | AmoOp::FetchOr => Some(RedOp::Or),
        AmoOp::Xor | AmoOp::FetchXor => Some(RedOp::Xor),
    };
    b.emit(match red {
        // `atom` without a result is `red`, which does not exist for f16.
        Some(op) if !fetches && s != Scalar::F16 => Memory::Red { ptr: place, value, op, sem, scope },
        red => Memory::Atomic { ptr: place, value, op: red, sem, scope },
    })
}
