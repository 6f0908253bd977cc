//! Tests of structured control flow.

use crate::harness::*;
use weft_ir::builder::{Built, Range};
use weft_ir::machine::{Builder, Kernel, Type};
use weft_ir::{Address, BinOp, CmpOp, Control, Memory, Scalar, Value};

/// A kernel with `for i in lo..hi step step { x[i] = i }`, with bounds from memory or constants.
fn count(unroll: u32, bounds: impl Fn(&mut Builder, Value) -> Built<(Value, Value, Value)>) -> String {
    ptx("count", |b, at| {
        let bounds = bounds(b, at)?;
        b.for_loop(bounds, unroll, Range { min: i64::MIN, max: None, div: 1 }, |b, i| {
            let size = b.int(Scalar::I64, 8)?;
            let bytes = b.binary(BinOp::Mul, i, size)?;
            let out = b.emit(Address::PtrAdd { ptr: at, bytes })?;
            b.store(out, i).map(|_| ())
        })
        .map(|_| ())
    })
}

fn constants(lo: i64, hi: i64, step: i64) -> impl Fn(&mut Builder, Value) -> Built<(Value, Value, Value)> {
    move |b, _| Ok((b.int(Scalar::I64, lo)?, b.int(Scalar::I64, hi)?, b.int(Scalar::I64, step)?))
}

fn from_memory(step: i64) -> impl Fn(&mut Builder, Value) -> Built<(Value, Value, Value)> {
    move |b, at| {
        let lo = unknown(b, at, scalar(Scalar::I64))?;
        let there = pointer(b, at, 8)?;
        let hi = unknown(b, there, scalar(Scalar::I64))?;
        Ok((lo, hi, b.int(Scalar::I64, step)?))
    }
}

#[test]
fn unrolling_is_as_asked() {
    let stores = |text: &str| mnemonics(text, "st.global").len();
    assert_eq!(stores(&count(0, constants(0, 6, 1))), 6);
    assert_eq!(stores(&count(1, constants(0, 6, 1))), 1);
    // There are two rounds at once and no remainder.
    assert_eq!(stores(&count(2, constants(0, 64, 1))), 2);
    // There are four rounds at once, and a loop for the others.
    assert_eq!(stores(&count(4, from_memory(3))), 5);
    assert_eq!(stores(&count(1, from_memory(1))), 1);
}

#[test]
fn bounds_at_the_end_of_the_integers_end_the_loop() {
    // If the loop is completely unrolled, the stores show its rounds.
    let rounds = |lo, hi, step| mnemonics(&count(0, constants(lo, hi, step)), "st.global").len();
    assert_eq!(rounds(i64::MAX - 4, i64::MAX, 2), 2);
    assert_eq!(rounds(i64::MAX - 3, i64::MAX, 2), 2);
    assert_eq!(rounds(i64::MIN, i64::MIN + 1, i64::MAX), 1);
    assert_eq!(rounds(i64::MIN, i64::MAX, i64::MAX), 3);
    assert_eq!(rounds(5, 5, 1), 0);
    assert_eq!(rounds(6, 5, 1), 0);
    // A step below 1 counts as 1.
    assert_eq!(rounds(0, 3, 0), 3);
    assert_eq!(rounds(0, 3, -7), 3);
}

/// A kernel that sums a vector over a loop in a local variable.
fn summing() -> Kernel {
    kernel("summing", |b, at| {
        let ty = Type::Vector(Scalar::F32, 4);
        let sum = b.local("sum", ty.clone());
        let (lo, hi, step) = from_memory(1)(b, at)?;
        b.for_loop((lo, hi, step), 1, Range { min: 0, max: None, div: 1 }, |b, i| {
            let size = b.int(Scalar::I64, 16)?;
            let bytes = b.binary(BinOp::Mul, i, size)?;
            let there = b.emit(Address::PtrAdd { ptr: at, bytes })?;
            let x = unknown(b, there, ty.clone())?;
            let old = b.get(sum)?;
            let new = b.binary(BinOp::Add, old, x)?;
            b.set(sum, new).map(|_| ())
        })?;
        let total = b.get(sum)?;
        b.store(at, total).map(|_| ())
    })
}

#[test]
fn variables_live_in_registers_and_begin_as_zero() {
    let out = compile(vec![summing()]);
    accepted(&out.ptx, "sm_90a");
    assert!(!out.ptx.contains(".local"), "{}", out.ptx);
    contains(&out.ptx, &["0f00000000", "add.rn.f32"]);
}

#[test]
fn both_ways_of_a_condition() {
    let text = ptx("ways", |b, at| {
        let x = unknown(b, at, scalar(Scalar::I32))?;
        let zero = b.int(Scalar::I32, 0)?;
        let negative = b.compare(CmpOp::Lt, x, zero)?;
        let value = b.local("value", scalar(Scalar::I32));
        b.if_else(
            negative,
            |b| {
                let n = b.int(Scalar::I32, 11)?;
                b.set(value, n).map(|_| ())
            },
            |b| {
                let n = b.int(Scalar::I32, 22)?;
                b.set(value, n).map(|_| ())
            },
        )?;
        let value = b.get(value)?;
        b.store(at, value).map(|_| ())
    });
    contains(&text, &["11", "22"]);
}

#[test]
fn a_spinning_wait_loads_again_and_again() {
    let text = ptx("spin", |b, at| {
        b.while_loop(
            |b| {
                let op = Memory::Load { ptr: at, sem: weft_ir::Sem::Acquire, scope: weft_ir::Scope::Sys };
                let seen = b.emit_as(op, scalar(Scalar::U32))?;
                let wanted = b.int(Scalar::U32, 8)?;
                b.compare(CmpOp::Lt, seen, wanted)
            },
            |_| Ok(()),
        )
        .map(|_| ())
    });
    assert_eq!(mnemonics(&text, "ld.acquire.sys.global.b32").len(), 1, "{text}");
    contains(&text, &["bra"]);
}

/// Checks `loop { .. break .. }`: the test in the middle of the round is the loop's only branch.
#[test]
fn a_loop_that_polls_and_breaks() {
    let text = ptx("polls", |b, at| {
        let seen = b.local("seen", scalar(Scalar::U32));
        let forever = |b: &mut Builder| {
            let value = weft_ir::Constant::Bool(true);
            b.emit_as(weft_ir::Arith::Const { value }, scalar(Scalar::Bool))
        };
        b.while_loop(forever, |b| {
            let op = Memory::Load { ptr: at, sem: weft_ir::Sem::Acquire, scope: weft_ir::Scope::Sys };
            let value = b.emit_as(op, scalar(Scalar::U32))?;
            b.set(seen, value)?;
            let wanted = b.int(Scalar::U32, 8)?;
            let done = b.compare(CmpOp::Ge, value, wanted)?;
            b.if_true(done, |b| b.emit(Control::Break { depth: 0 }).map(drop)).map(drop)
        })?;
        let seen = b.get(seen)?;
        let out = pointer(b, at, 8)?;
        b.store(out, seen).map(drop)
    });
    assert_eq!(mnemonics(&text, "ld.acquire.sys.global.b32").len(), 1, "{text}");
    assert_eq!(mnemonics(&text, "setp").len(), 1, "{text}");
    assert_eq!(text.matches("bra").count(), 1, "{text}");
}

/// Checks rounds that are cut short, a jump out of an inner loop past an outer one, and code after
/// a block that always jumps.
#[test]
fn jumps_of_every_kind() {
    let text = ptx("jumps", |b, at| {
        let bounds = from_memory(1)(b, at)?;
        let range = Range { min: i64::MIN, max: None, div: 1 };
        let cond = unknown(b, at, scalar(Scalar::Bool))?;
        let jump = |b: &mut Builder, op: Control| b.if_true(cond, |b| b.emit(op).map(drop)).map(drop);
        b.for_loop(bounds, 1, range, |b, i| {
            b.for_loop(bounds, 2, range, |b, _| {
                jump(b, Control::Continue { depth: 1 })?;
                jump(b, Control::Break { depth: 1 })?;
                b.store(at, i)?;
                b.emit(Control::Continue { depth: 0 }).map(drop)
            })?;
            let body = b.nested(|b| {
                jump(b, Control::Break { depth: 0 })?;
                jump(b, Control::Return {})?;
                b.emit(Control::Break { depth: 1 }).map(drop)
            })?;
            b.emit(Control::Once { body })?;
            b.store(at, i).map(drop)
        })?;
        b.emit(Control::Return {}).map(drop)
    });
    contains(&text, &["st.global"]);
}

#[test]
fn nesting_of_two_hundred_blocks() {
    fn nested(b: &mut Builder, at: Value, cond: Value, depth: u32) -> Built<()> {
        if depth == 0 {
            let x = b.int(Scalar::I32, 1)?;
            return b.store(at, x).map(|_| ());
        }
        b.if_true(cond, |b| nested(b, at, cond, depth - 1)).map(|_| ())
    }
    let text = ptx("nested", |b, at| {
        let cond = unknown(b, at, scalar(Scalar::Bool))?;
        nested(b, at, cond, 199)
    });
    assert_eq!(mnemonics(&text, "st.global").len(), 1);
}
