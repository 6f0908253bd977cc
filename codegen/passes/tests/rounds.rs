//! Tests that loops whose rounds are in flight together have the same effect as before.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use common::machine::{Arg, World};
use common::{layout, lower, module};
use proptest::prelude::*;
use weft_ir::builder::{Built, Range};
use weft_ir::*;
use weft_passes::Lowering;

const THREADS: i64 = 2;

/// A loop that loads a fragment, computes, and stores a fragment.
#[derive(Clone, Debug)]
struct Rounds {
    extents: Vec<i64>,
    strides: Vec<i64>,
    /// The distance in elements from round to round of the reads, and that of the writes.
    read_by: i64,
    write_by: i64,
    /// The offset of the writes from the reads.
    apart: i64,
    in_place: bool,
    lo: i64,
    trip: i64,
    step: i64,
    unroll: u32,
    known_end: bool,
    /// The limit of existing positions, in percent.
    limit: Option<i64>,
    body: u8,
}

fn rounds() -> impl Strategy<Value = Rounds> {
    let layout = prop::sample::select(vec![
        (vec![4], vec![1]),
        (vec![1], vec![1]),
        (vec![8], vec![1]),
        (vec![2, 2], vec![1, 8]),
        (vec![4, 2], vec![1, 16]),
        (vec![2], vec![3]),
        (vec![2, 3], vec![1, 2]),
    ]);
    let moves = prop::sample::select(vec![0i64, 1, 2, 4, 8, 12]);
    (
        layout,
        (moves.clone(), moves, prop::sample::select(vec![0i64, 0, 1, 4, 64, 256])),
        any::<bool>(),
        (0i64..3, 0i64..12, 1i64..3, 0u32..7, any::<bool>()),
        prop::option::of(1i64..100),
        0u8..5,
    )
        .prop_map(
            |((extents, strides), (a, b, apart), in_place, (lo, trip, step, unroll, known), limit, body)| {
                Rounds {
                    extents,
                    strides,
                    read_by: a,
                    write_by: if in_place && apart == 0 { a } else { b },
                    apart,
                    in_place,
                    lo,
                    trip,
                    step,
                    unroll,
                    known_end: known,
                    limit,
                    body,
                }
            },
        )
}

/// The number of elements that the rounds of a thread can reach.
const SPAN: i64 = 1024;

impl Rounds {
    fn kernel(&self) -> Built<(Kernel, i64)> {
        let mut b = Builder::new("rounds", [THREADS as u32, 1, 1]);
        let elem = Scalar::I32;
        let tensor = || Builder::tensor(elem, Space::Global, layout(&[1], &[1]), 16);
        let x = b.param("x", tensor())?;
        let y = b.param("y", tensor())?;
        let y = if self.in_place { x } else { y };
        let end = b.param("end", Type::Scalar(Scalar::I64))?;
        let limit = b.param("limit", Type::Scalar(Scalar::I32))?;
        let limit_value = self.limit.map_or(SPAN * THREADS, |l| (SPAN * THREADS * l / 100).max(1));
        let tid = b.special(Sreg::ThreadIdx, Dim::X)?;
        let thread = b.symbol(tid)? * Int::from(SPAN);
        let limit = b.symbol(limit)?;
        let (lo, step) = (b.int(Scalar::I64, self.lo)?, b.int(Scalar::I64, self.step)?);
        let hi = if self.known_end { b.int(Scalar::I64, self.lo + self.trip * self.step)? } else { end };
        let own = layout(&self.extents, &self.strides);
        let bounds = |at: &Int| match self.limit {
            Some(_) => vec![Bound { limit: limit.clone(), offset: at.clone(), layout: own.clone() }],
            None => vec![],
        };
        let range = Range { min: self.lo, max: None, div: 1 };
        b.for_loop((lo, hi, step), self.unroll, range, |b, i| {
            let round = b.symbol(i)?;
            let from = &thread + &round * self.read_by;
            let to = &thread + &round * self.write_by + self.apart;
            let from = b.view(x, from.clone(), own.clone(), bounds(&from))?;
            let to = b.view(y, to.clone(), own.clone(), bounds(&to))?;
            let v = b.load(from)?;
            let ty = b.ty(v).clone();
            let v = match self.body {
                // The value is stored unchanged, or combined with a constant, or with the round's
                // number.
                0 => v,
                1 => {
                    let c = b.convert(tid, elem)?;
                    let c = b.binary(BinOp::Mul, c, c)?;
                    let c = b.splat(c, &ty)?;
                    b.binary(BinOp::Add, v, c)?
                }
                2 => {
                    let c = b.convert(i, elem)?;
                    let c = b.splat(c, &ty)?;
                    b.binary(BinOp::Xor, v, c)?
                }
                // The value is combined with the previous contents, or its lanes are permuted.
                3 => {
                    let before = b.load(to)?;
                    b.binary(BinOp::Sub, before, v)?
                }
                _ => {
                    let at = b.index(&round * 3 + 1)?;
                    let at = b.convert(at, elem)?;
                    let zero = b.zero(&ty)?;
                    let at = b.splat(at, &ty)?;
                    let less = b.compare(CmpOp::Lt, v, at)?;
                    b.select(less, zero, v)?
                }
            };
            b.store(to, v)?;
            Ok(())
        })?;
        Ok((b.finish(), limit_value))
    }

    fn check(&self) -> u32 {
        let (kernel, limit) = self.kernel().unwrap();
        let bytes =
            |n: i64, k: i64| (0..n).flat_map(|i| ((i * k % 251) as i32).to_le_bytes()).collect::<Vec<u8>>();
        let n = if self.limit.is_some() { limit } else { SPAN * THREADS };
        let args = vec![
            Arg::Memory(vec![bytes(n, 7)], 16),
            Arg::Memory(vec![bytes(n, 11)], 16),
            Arg::Int(self.lo + self.trip * self.step),
            Arg::Int(limit),
        ];
        let (mut want, mut have) = (World::new(1, [1, 1, 1], args.clone()), World::new(1, [1, 1, 1], args));
        let lowered = lower(kernel.clone(), Lowering::Multimem);
        want.launch(&module(kernel).kernels[0]);
        have.launch_lowered(&lowered);
        for arg in [0, 1] {
            assert!(want.memory(arg, 0) == have.memory(arg, 0), "{self:?}");
        }
        lowered.report.loops.first().map_or(1, |l| l.rounds)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn rounds_in_flight_change_nothing(r in rounds()) {
        r.check();
    }
}

/// A loop that qualifies.
fn plain() -> Rounds {
    Rounds {
        extents: vec![4],
        strides: vec![1],
        read_by: 4,
        write_by: 4,
        apart: 0,
        in_place: false,
        lo: 0,
        trip: 9,
        step: 1,
        unroll: 4,
        known_end: false,
        limit: None,
        body: 0,
    }
}

#[test]
fn independent_rounds_are_in_flight_together() {
    for (r, rounds) in [
        (plain(), 4),
        (Rounds { in_place: true, ..plain() }, 4),
        // A round reads what the previous round has written.
        (Rounds { in_place: true, apart: 4, ..plain() }, 1),
        // A round reads what a later round writes. The loads come first in any case.
        (Rounds { in_place: true, apart: -4, lo: 1, ..plain() }, 4),
        // The rounds interleave in memory without overlap.
        (
            Rounds {
                extents: vec![2, 2],
                strides: vec![1, 8],
                read_by: 2,
                write_by: 2,
                in_place: true,
                ..plain()
            },
            4,
        ),
        (Rounds { read_by: 2, write_by: 2, in_place: true, ..plain() }, 1),
        // All rounds are in flight.
        (Rounds { unroll: 0, known_end: true, ..plain() }, 9),
        (Rounds { unroll: 0, ..plain() }, 1),
        (Rounds { unroll: 6, known_end: true, trip: 3, ..plain() }, 3),
        // Bounds are tested before the loop.
        (Rounds { limit: Some(2), ..plain() }, 4),
        (Rounds { body: 3, ..plain() }, 4),
        (Rounds { body: 2, ..plain() }, 4),
    ] {
        assert_eq!(r.check(), rounds, "{r:?}");
    }
}

#[test]
fn all_loads_come_before_the_first_store() {
    let (kernel, _) = plain().kernel().unwrap();
    let lowered = lower(kernel, Lowering::Multimem);
    let k = &lowered.module.kernels[0];
    let mut ops = Vec::new();
    k.walk(&mut |_, inst| {
        if matches!(inst.op, machine::Op::Memory(Memory::Load { .. } | Memory::Store { .. })) {
            ops.push(inst.op.mnemonic());
        }
    });
    let wide = [["ld"; 4], ["st"; 4]].concat();
    assert_eq!(ops[..8], wide);
    assert_eq!(ops[8..], ["ld", "st"]);
}

#[test]
fn an_unchanged_loop_has_a_reason() {
    let why = |r: Rounds| {
        let (kernel, _) = r.kernel().unwrap();
        lower(kernel, Lowering::Multimem).report.loops.remove(0).why.unwrap()
    };
    assert_eq!(
        why(Rounds { in_place: true, apart: 4, ..plain() }),
        "a round may access memory that another round writes"
    );
    assert_eq!(why(Rounds { unroll: 0, ..plain() }), "the number of rounds is known only at run time");
    assert_eq!(
        why(Rounds { unroll: 100, ..plain() }),
        "a round has 4 elements, but only 256 can be in flight"
    );
}
