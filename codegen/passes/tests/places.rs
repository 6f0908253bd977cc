//! Tests of addresses: peers, shared memory, atomics, and the order of accesses.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use common::machine::{Arg, World};
use common::{layout, lower, module, options};
use weft_ir::builder::Built;
use weft_ir::*;
use weft_passes::{Lowering, run};

fn words(bytes: &[u8]) -> Vec<i32> {
    bytes.chunks(4).map(|w| i32::from_le_bytes(w.try_into().unwrap())).collect()
}

fn memory(pes: usize, n: i32) -> Arg {
    let values = |pe: i32| (0..n).flat_map(move |i| (pe * 100 + i).to_le_bytes()).collect();
    Arg::Memory((0..pes as i32).map(values).collect(), 16)
}

fn symmetric(b: &mut Builder, name: &str) -> Built<Value> {
    b.param(name, Builder::tensor(Scalar::I32, Space::Symmetric, layout(&[8], &[1]), 16))
}

/// The kernel computes `y = peer(x, (me + 1) % n)` with a view of a peer and with a peer's view.
#[test]
fn a_peers_memory_is_reached_through_the_table() {
    let mut b = Builder::new("rotate", [1, 1, 1]);
    let (x, y) = (symmetric(&mut b, "x").unwrap(), symmetric(&mut b, "y").unwrap());
    b.param("team", Type::Team).unwrap();
    let team = TeamRef(2);
    let me = b.emit(Team::MyPe { team }).unwrap();
    let n = b.emit(Team::NPes { team }).unwrap();
    let one = b.int(Scalar::I32, 1).unwrap();
    let next = b.binary(BinOp::Add, me, one).unwrap();
    let next = b.binary(BinOp::Rem, next, n).unwrap();
    let there = b.peer(x, team, next).unwrap();
    let first = b.view(there, Int::ZERO, layout(&[4], &[1]), vec![]).unwrap();
    let second = b.view(x, Int::from(4), layout(&[4], &[1]), vec![]).unwrap();
    let second = b.peer(second, team, next).unwrap();
    for (at, from) in [(4, first), (0, second)] {
        let to = b.view(y, Int::from(at), layout(&[4], &[1]), vec![]).unwrap();
        let v = b.load(from).unwrap();
        b.store(to, v).unwrap();
    }
    let lowered = lower(b.finish(), Lowering::Multimem);
    let mut w = World::new(3, [1, 1, 1], vec![memory(3, 8), memory(3, 8), Arg::Team]);
    w.launch_lowered(&lowered);
    for pe in 0..3 {
        let from = (pe as i32 + 1) % 3 * 100;
        let want = [4, 5, 6, 7, 0, 1, 2, 3].map(|i| from + i);
        assert_eq!(words(w.memory(1, pe)), want);
    }
    assert!(w.accesses.iter().filter(|(_, bytes)| *bytes == 16).count() == 3 * 4);
}

/// Threads exchange their values through shared memory, and count themselves in memory.
#[test]
fn shared_memory_and_atomics() {
    let mut b = Builder::new("reverse", [8, 1, 1]);
    let x = symmetric(&mut b, "x").unwrap();
    let count = symmetric(&mut b, "count").unwrap();
    let tile = b.shared(Scalar::I32, layout(&[8], &[1]), None).unwrap();
    let tid = b.special(Sreg::ThreadIdx, Dim::X).unwrap();
    let t = b.symbol(tid).unwrap();
    let one = layout(&[1], &[1]);
    let mine = b.view(x, t.clone(), one.clone(), vec![]).unwrap();
    let v = b.load(mine).unwrap();
    let slot = b.view(tile, t.clone(), one.clone(), vec![]).unwrap();
    b.store(slot, v).unwrap();
    b.emit(Thread::GroupBarrier { group: Group::Block }).unwrap();
    let other = b.view(tile, Int::from(7) - &t, one.clone(), vec![]).unwrap();
    let v = b.load(other).unwrap();
    b.store(mine, v).unwrap();
    // Only six of eight threads are counted. The others get 0.
    let bound = Bound { limit: 6.into(), offset: t.clone(), layout: layout(&[1], &[0]) };
    let counter = b.view(count, Int::ZERO, one.clone(), vec![bound]).unwrap();
    let step = b.int(Scalar::I32, 5).unwrap();
    let (sem, scope) = (Sem::Relaxed, Scope::Gpu);
    let old =
        b.emit(Access::Atomic { place: counter, value: step, op: Some(RedOp::Add), sem, scope }).unwrap();
    let seen = b.view(x, t, one, vec![]).unwrap();
    let v = b.load(seen).unwrap();
    let sum = b.binary(BinOp::Add, v, old).unwrap();
    b.store(seen, sum).unwrap();
    let kernel = b.finish();
    let args = vec![memory(1, 8), Arg::Memory(vec![vec![0; 32]], 16)];
    let (mut want, mut have) = (World::new(1, [1, 1, 1], args.clone()), World::new(1, [1, 1, 1], args));
    want.launch(&module(kernel.clone()).kernels[0]);
    let lowered = lower(kernel, Lowering::Multimem);
    have.launch_lowered(&lowered);
    assert_eq!(words(have.memory(0, 0)), [7, 6 + 5, 5 + 10, 4 + 15, 3 + 20, 2 + 25, 1, 0]);
    assert_eq!(words(have.memory(1, 0))[0], 30);
    assert_eq!(want.memory(0, 0)[..4], have.memory(0, 0)[..4]);
}

fn orders(lowering: Lowering, sem: [Sem; 2]) -> Vec<String> {
    let mut b = Builder::new("k", [1, 1, 1]);
    let x = symmetric(&mut b, "x").unwrap();
    b.param("team", Type::Team).unwrap();
    let mc = b.multicast(x, TeamRef(1)).unwrap();
    let scope = Scope::Sys;
    let (op, acc) = (RedOp::Add, Scalar::I32);
    let part = b.view(mc, Int::ZERO, layout(&[1], &[1]), vec![]).unwrap();
    let v = b.emit(Access::LdReduce { place: part, op, acc, sem: sem[0], scope }).unwrap();
    b.emit(Access::McStore { place: part, value: v, sem: sem[1], scope }).unwrap();
    let lowered = lower(b.finish(), lowering);
    let mut out = Vec::new();
    lowered.module.kernels[0].walk(&mut |_, inst| match &inst.op {
        // Loads of 64 bits read the table of addresses and are not counted.
        machine::Op::Memory(Memory::Load { .. }) if inst.ty == machine::Type::Scalar(Scalar::I64) => {}
        machine::Op::Memory(
            Memory::Load { sem, .. }
            | Memory::Store { sem, .. }
            | Memory::LdReduce { sem, .. }
            | Memory::McStore { sem, .. },
        ) => {
            out.push(format!("{} {sem}", inst.op.mnemonic()));
        }
        machine::Op::Thread(Thread::Fence { sem, .. }) => out.push(format!("fence {sem}")),
        _ => {}
    });
    // Repeated names of several PEs are merged.
    out.dedup();
    out
}

/// Checks that fences around relaxed accesses order unicast forms.
#[test]
fn memory_order_is_kept() {
    let unicast = |sem| orders(Lowering::Unicast, sem);
    assert_eq!(unicast([Sem::Weak, Sem::Weak]), ["ld weak", "st weak"]);
    assert_eq!(
        unicast([Sem::Acquire, Sem::Release]),
        ["ld relaxed", "fence acquire", "fence release", "st relaxed"]
    );
    assert_eq!(
        orders(Lowering::Multimem, [Sem::Acquire, Sem::Release]),
        ["multimem_ld_reduce acquire", "multimem_st release"]
    );
}

fn arrivals(sem: Sem, lowering: Lowering) -> Vec<String> {
    let mut b = Builder::new("k", [64, 1, 1]);
    let sync = b.param("sync", Type::Barrier).unwrap();
    b.param("team", Type::Team).unwrap();
    b.emit(Team::Barrier { sync, team: TeamRef(1), sem, scope: Scope::Sys }).unwrap();
    let lowered = lower(b.finish(), lowering);
    let mut out = Vec::new();
    lowered.module.kernels[0].walk(&mut |_, inst| match &inst.op {
        machine::Op::Memory(Memory::McRed { sem, .. } | Memory::Red { sem, .. }) => {
            out.push(format!("arrive {sem}"))
        }
        machine::Op::Memory(Memory::Load { sem, .. }) if *sem != Sem::Weak => out.push(format!("wait {sem}")),
        machine::Op::Thread(Thread::GroupBarrier { .. }) => out.push("threads".into()),
        _ => {}
    });
    out
}

#[test]
fn barriers_have_the_requested_order() {
    for lowering in [Lowering::Multimem, Lowering::Unicast] {
        for (sem, arrive, wait) in [
            (Sem::AcqRel, "arrive release", "wait acquire"),
            (Sem::Release, "arrive release", "wait relaxed"),
            (Sem::Acquire, "arrive relaxed", "wait acquire"),
            (Sem::Relaxed, "arrive relaxed", "wait relaxed"),
        ] {
            assert_eq!(arrivals(sem, lowering), ["threads", arrive, wait, "threads"]);
        }
    }
}

#[test]
fn a_wait_that_traps_prints_its_state() {
    let mut b = Builder::new("lonely", [32, 1, 1]);
    let sync = b.param("sync", Type::Barrier).unwrap();
    b.param("team", Type::Team).unwrap();
    b.emit(Team::Barrier { sync, team: TeamRef(1), sem: Sem::AcqRel, scope: Scope::Sys }).unwrap();
    let mut o = options(Lowering::Multimem);
    o.debug_waits = Some(100);
    let lowered = run(module(b.finish()), &o).unwrap();
    let mut counters = vec![0; 256];
    // The epoch is one ahead of the arrivals, so that a PE is missing.
    counters[128 + 4] = 1;
    let args = vec![Arg::Memory(vec![counters], 128), Arg::Team];
    let mut w = World::new(1, [2, 1, 1], args);
    w.launch_lowered(&lowered);
    assert!(w.trapped);
    assert_eq!(
        w.printed,
        ["weft: PE %d CTA %d waits in barrier at kernel lonely: counter %u, expected %u\n [0, 1, 1, 2]"]
    );
}
