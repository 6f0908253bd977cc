//! Tests of whole kernels: after the lowered kernel, the memory of all PEs is the same as after the
//! original kernel.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use common::kernels::two_shot;
use common::machine::{Arg, World};
use common::{lower, module, num};
use proptest::prelude::*;
use weft_ir::{Kernel, RedOp, Scalar};
use weft_passes::{Cover, Lowering};

/// Data that depends on PE and index, small enough that sums are exact in every type.
fn data(elem: Scalar, pes: usize, n: usize) -> Vec<Vec<u8>> {
    let value = |pe: usize, i: usize| ((pe * 7 + i * 3) % 13) as i64 - 4;
    let bytes = |x: i64| {
        let bits = if elem.is_float() { num::float_bits(elem, x as f64) } else { num::bits(elem, x) };
        bits.to_le_bytes()[..elem.bytes() as usize].to_vec()
    };
    (0..pes).map(|pe| (0..n).flat_map(|i| bytes(value(pe, i))).collect()).collect()
}

fn world(elem: Scalar, pes: usize, grid: u32, n: usize) -> World {
    let counters = vec![vec![0u8; 128 * grid as usize]; pes];
    World::new(
        pes,
        [grid, 1, 1],
        vec![Arg::Int(n as i64), Arg::Memory(data(elem, pes, n), 16), Arg::Memory(counters, 128), Arg::Team],
    )
}

fn same_memory(kernel: Kernel, lowering: Lowering, start: World) -> World {
    let lowered = lower(kernel.clone(), lowering);
    let (mut want, mut have) = (start.clone(), start);
    want.launch(&module(kernel).kernels[0]);
    have.launch_lowered(&lowered);
    for pe in 0..want.pes {
        assert_eq!(want.memory(1, pe), have.memory(1, pe), "PE {pe}");
    }
    have
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn two_shot_is_two_shot(
        elem in prop::sample::select(vec![Scalar::F32, Scalar::F16, Scalar::BF16, Scalar::I32, Scalar::U64, Scalar::F64]),
        multimem in any::<bool>(),
        pes in 1usize..5,
        grid in 1u32..3,
        n in 1usize..700,
        unroll in 1u32..6,
    ) {
        let lowering = if multimem { Lowering::Multimem } else { Lowering::Unicast };
        let kernel = two_shot(elem, 16, unroll, RedOp::Add).unwrap();
        same_memory(kernel, lowering, world(elem, pes, grid, n));
    }
}

#[test]
fn every_reduction_agrees_with_its_unicast_form() {
    for (elem, op) in [
        (Scalar::F16, RedOp::Min),
        (Scalar::BF16, RedOp::Max),
        (Scalar::I32, RedOp::Min),
        (Scalar::U32, RedOp::Xor),
        (Scalar::I64, RedOp::And),
        (Scalar::U64, RedOp::Or),
    ] {
        for lowering in [Lowering::Multimem, Lowering::Unicast] {
            let kernel = two_shot(elem, 32, 2, op).unwrap();
            same_memory(kernel, lowering, world(elem, 3, 1, 333));
        }
    }
}

#[test]
fn accesses_have_sixteen_bytes_and_four_rounds() {
    for elem in [Scalar::F32, Scalar::BF16, Scalar::F16] {
        let n = 16 / elem.bytes() as usize * 16 * 4 * 2 * 3;
        let kernel = two_shot(elem, 16, 4, RedOp::Add).unwrap();
        let lowered = lower(kernel.clone(), Lowering::Multimem);
        let accesses = &lowered.report.accesses;
        // The wide loop has four rounds. The original loop for the tail has one round, which a
        // bound can cut.
        let facts: Vec<_> =
            accesses.iter().map(|a| (a.op, a.elements * elem.bytes(), a.instrs[0].bytes, a.cover)).collect();
        assert_eq!(
            facts,
            [
                ("ld_reduce", 64, 16, Cover::All),
                ("mc_store", 64, 16, Cover::All),
                ("ld_reduce", 16, 16, Cover::Cut),
                ("mc_store", 16, 16, Cover::Cut)
            ]
        );
        assert_eq!(accesses[0].narrow, None);
        assert_eq!(lowered.report.loops[0].rounds, 4);
        // The shards are whole, so that all accesses have 16 bytes.
        let end = same_memory(kernel, Lowering::Multimem, world(elem, 2, 1, n));
        let data = end.accesses.iter().filter(|(op, _)| ["multimem_ld_reduce", "multimem_st"].contains(op));
        assert_eq!(data.clone().count(), n * 2 / (16 / elem.bytes() as usize));
        assert!(data.clone().all(|(_, width)| *width == 16));
    }
}

#[test]
fn barriers_count_epochs_and_never_reset() {
    for lowering in [Lowering::Multimem, Lowering::Unicast] {
        let lowered = lower(two_shot(Scalar::F32, 16, 1, RedOp::Add).unwrap(), lowering);
        let mut w = world(Scalar::F32, 3, 2, 100);
        for launch in 1..4u32 {
            w.launch_lowered(&lowered);
            for pe in 0..3 {
                for cta in 0..2 {
                    let line = &w.memory(2, pe)[cta * 128..][..128];
                    let word = |at: usize| u32::from_le_bytes(line[at..at + 4].try_into().unwrap());
                    // A launch has two barriers, and a barrier has three arrivals.
                    assert_eq!((word(0), word(4)), (launch * 6, launch * 2));
                    assert!(line[8..].iter().all(|b| *b == 0));
                }
            }
        }
    }
}

#[test]
fn counters_wrap_around() {
    let lowered = lower(two_shot(Scalar::F32, 16, 1, RedOp::Add).unwrap(), Lowering::Multimem);
    let mut w = world(Scalar::F32, 2, 1, 8);
    let Arg::Memory(counters, _) = &mut w.args[2] else { panic!() };
    for line in counters {
        line[..4].copy_from_slice(&(u32::MAX - 1).to_le_bytes());
        line[4..8].copy_from_slice(&(u32::MAX).to_le_bytes());
    }
    w.launch_lowered(&lowered);
    assert_eq!(&w.memory(2, 0)[..8], [2, 0, 0, 0, 1, 0, 0, 0]);
}
