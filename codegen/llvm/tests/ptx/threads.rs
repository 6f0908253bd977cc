//! Tests of special registers, and of operations of groups of threads.

use crate::harness::*;
use weft_ir::machine::{Kernel, Type};
use weft_ir::{Dim, Group, RedOp, Scalar, ShuffleMode, Sreg, Thread, ValueType};

#[test]
fn special_registers() {
    let text = ptx("special", |b, at| {
        for (i, (reg, dim)) in [
            (Sreg::ThreadIdx, Dim::X),
            (Sreg::ThreadIdx, Dim::Y),
            (Sreg::BlockIdx, Dim::Z),
            (Sreg::GridDim, Dim::Y),
            (Sreg::BlockDim, Dim::X),
            (Sreg::LaneIdx, Dim::X),
        ]
        .into_iter()
        .enumerate()
        {
            let v = b.special(reg, dim)?;
            let out = pointer(b, at, 4 * i as i64)?;
            b.store(out, v)?;
        }
        Ok(())
    });
    // The block is 128 x 1 x 1, so its size needs no register, and neither does an index that is 0.
    contains(&text, &["%tid.x", "%ctaid.z", "%nctaid.y", "%laneid", "128"]);
    assert!(!text.contains("%tid.y") && !text.contains("%ntid"), "{text}");
    contains(&text, &[".reqntid 128, 1, 1"]);
}

#[test]
fn ranges_of_indices_are_known() {
    let text = ptx("ranges", |b, at| {
        let tid = b.special(Sreg::ThreadIdx, Dim::X)?;
        let limit = b.int(Scalar::I32, 128)?;
        let inside = b.compare(weft_ir::CmpOp::Lt, tid, limit)?;
        b.if_true(inside, |b| b.store(at, tid).map(|_| ())).map(|_| ())
    });
    assert!(mnemonics(&text, "setp").is_empty(), "{text}");
}

#[test]
fn barriers() {
    let text = ptx("barriers", |b, _| {
        b.emit(Thread::GroupBarrier { group: Group::Block })?;
        b.emit(Thread::GroupBarrier { group: Group::Warp }).map(|_| ())
    });
    contains(&text, &["bar.sync \t0;", "bar.warp.sync \t-1;"]);
}

#[test]
fn votes() {
    let text = ptx("votes", |b, at| {
        let x = unknown(b, at, Type::Scalar(Scalar::I32))?;
        let y = b.special(Sreg::LaneIdx, Dim::X)?;
        let less = b.compare(weft_ir::CmpOp::Lt, x, y)?;
        for op in [RedOp::And, RedOp::Or] {
            let all = b.vote(op, less)?;
            b.if_true(all, |b| b.store(at, y).map(drop))?;
        }
        Ok(())
    });
    contains(&text, &["vote.sync.all.pred", "vote.sync.any.pred"]);
}

fn shuffles(s: Scalar, lanes: u32) -> Kernel {
    kernel(&format!("shuffle_{s}_{lanes}"), |b, at| {
        let x = unknown(b, at, Type::lanes_of(s, lanes))?;
        for mode in ShuffleMode::ALL {
            let lane = b.int(Scalar::I32, 1)?;
            let y = b.emit(Thread::Shuffle { value: x, mode: *mode, lane })?;
            let out = pointer(b, at, 32 * b.kernel().insts.len() as i64)?;
            b.store(out, y)?;
        }
        Ok(())
    })
}

#[test]
fn every_type_is_shuffled() {
    let mut all = Vec::new();
    for s in Scalar::ALL {
        all.push(shuffles(*s, 1));
        all.push(shuffles(*s, 16 / s.bytes()));
    }
    let out = compile(all);
    accepted(&out.ptx, "sm_90a");
}

#[test]
fn shuffles_move_words() {
    for (s, lanes, words) in
        [(Scalar::F32, 1, 1), (Scalar::F64, 1, 2), (Scalar::BF16, 8, 4), (Scalar::I8, 1, 1)]
    {
        let out = compile(vec![shuffles(s, lanes)]);
        assert_eq!(mnemonics(&out.ptx, "shfl.sync.bfly.b32").len(), words, "{}", out.ptx);
        assert_eq!(mnemonics(&out.ptx, "shfl.sync.up.b32").len(), words, "{}", out.ptx);
    }
    let out = compile(vec![shuffles(Scalar::F32, 1)]);
    contains(&out.ptx, &["1, 31, -1;", "1, 0, -1;"]);
}
