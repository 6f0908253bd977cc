//! Tests `weft::gemm::Decode`, `DecodeNorm` and their benchmark without GPUs, with simulated
//! weights.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use half::bf16;
use weft::gemm::{Decode, DecodeNorm, DecodePlan, Form, Normed, Problem, Shape};
use weft::runtime::{DType, DeviceTensor, World};
use weft_bench::BenchError;
use weft_bench::gemm_comm::{Contender, Request, run};

/// An element that depends on the PE and the index. It has few bits, so that sums of products are
/// exact.
fn element(pe: usize, i: usize) -> f32 {
    ((i * 7 + pe * 5) % 13) as f32 - 6.0
}

/// Checks consecutive launches, and samples of every PE's results.
#[test]
fn sums_are_right() {
    let plans = [
        (2, 5, "decode=1"),
        (3, 37, "decode=1,bn=64,split=4,flights=2"),
        (2, 37, "decode=1,bn=16,exchange=2"),
        (3, 37, "decode=1,bm=64,exchange=2,flights=2"),
    ];
    for (pes, m, plan) in plans {
        let request = Request {
            form: Form::AllReduce,
            shapes: vec![Shape::new(m, 136, 96)],
            rows: Vec::new(),
            dtype: DType::BF16,
            contenders: vec![Contender::ours(plan, Form::AllReduce).unwrap()],
            iters: 2,
            warmup: 1,
            repeats: 1,
            graph: false,
            check: true,
        };
        let reports = World::simulated(pes).unwrap().run(|world| run(world, &request, &mut |_, _| Ok(())));
        for report in reports.unwrap() {
            let checked = report.rows[0].checked.as_ref().unwrap();
            assert_eq!(
                (report.rows[0].name.as_str(), checked.elements),
                ("decode", 0),
                "{pes} PEs: {checked:?}"
            );
            assert!(checked.of > 50);
        }
    }
}

/// Checks that each launch uses its own packets, although launches use the same buffers. A is new in
/// each launch, and one of its elements is too large for the sum, which is not a number.
#[test]
fn packets_of_earlier_launches_are_not_used() {
    let (m, n, k) = (9, 136, 96);
    for (pes, plan) in [
        (2, "threads=256,bn=64,units=2"),
        (2, "split=1"),
        (2, "exchange=2"),
        (3, "bn=32,units=2,flights=2"),
        (3, "bn=32,exchange=2"),
    ] {
        let job = World::simulated(pes).unwrap();
        job.run(|world| {
            let (stream, me) = (world.stream(), world.my_pe() as usize);
            let matrix = |rows: usize, element: &dyn Fn(usize) -> f32| {
                let values: Vec<bf16> = (0..rows * k).map(|i| bf16::from_f32(element(i))).collect();
                let tensor = DeviceTensor::<bf16>::alloc(world.device(), [rows, k])?;
                tensor.copy_from(&values, stream).map(|()| tensor)
            };
            // Elements of A are those of an earlier launch, but for the first column.
            let of_a = |pe: usize, launch: usize, i: usize| {
                let large = i == 0 && launch == 3;
                let first =
                    if large { f32::INFINITY * if pe == 0 { 1.0 } else { -1.0 } } else { launch as f32 };
                if i.is_multiple_of(k) { first } else { element(pe, i) }
            };
            let b = matrix(n, &|i| element(me + 4, i) + if i.is_multiple_of(k) { 20.0 } else { 0.0 })?;
            let d = DeviceTensor::<bf16>::alloc(world.device(), [m, n])?;
            let problem = Problem::new(Shape::new(m as u64, n as u64, k as u64), DType::BF16);
            let parsed = DecodePlan::parse(plan).unwrap();
            let decode = Decode::new(world, world.team(), problem, parsed)?;
            for launch in 0..8 {
                let a = matrix(m, &|i| of_a(me, launch, i))?;
                decode.launch(stream, &a, &b, &d)?;
                let got = d.to_vec(stream)?;
                for (at, got) in got.iter().enumerate() {
                    let (i, j) = (at / n, at % n);
                    let part = |pe: usize| {
                        let of_b = |l: usize| element(pe + 4, j * k + l) + if l == 0 { 20.0 } else { 0.0 };
                        let products = (0..k).map(|l| of_a(pe, launch, i * k + l) * of_b(l));
                        bf16::from_f32(products.sum()).to_f32()
                    };
                    let expected = bf16::from_f32((0..pes as usize).map(part).sum()).to_f32();
                    let same = got.to_f32() == expected || got.is_nan() && expected.is_nan();
                    assert!(same, "{plan}, launch {launch}, [{i}, {j}]: {got}, expected {expected}");
                }
            }
            Ok::<_, BenchError>(())
        })
        .unwrap();
    }
}

/// Checks rows of a product of known numbers, with the residual and the weights, against the same
/// computation on the host.
#[test]
fn norms_are_right() {
    let (m, n, k) = (3, 72, 32);
    World::simulated(2)
        .unwrap()
        .run(|world| {
            let stream = world.stream();
            let filled = |pe: usize, rows: usize, columns: usize| {
                let values: Vec<bf16> = (0..rows * columns).map(|i| bf16::from_f32(element(pe, i))).collect();
                let tensor = DeviceTensor::<bf16>::alloc(world.device(), [rows, columns])?;
                tensor.copy_from(&values, stream).map(|()| tensor)
            };
            let me = world.my_pe() as usize;
            let (a, b) = (filled(me, m, k)?, filled(me + 2, n, k)?);
            let residual = filled(9, m, n)?;
            let weights: Vec<bf16> = (0..n).map(|i| bf16::from_f32(element(4, i))).collect();
            let weight = DeviceTensor::from_slice(&weights, stream)?;
            let scale = DeviceTensor::<f32>::zeros(1, stream)?;
            let added = DeviceTensor::<bf16>::alloc(world.device(), [m, n])?;
            let d = DeviceTensor::<bf16>::alloc(world.device(), [m, n])?;
            let problem = Problem::new(Shape::new(m as u64, n as u64, k as u64), DType::BF16);
            let norm = DecodeNorm::new(world, world.team(), problem, DecodePlan::default())?;
            let x = Normed {
                a: &a,
                b: &b,
                residual: &residual,
                weight: &weight,
                eps: 1e-5,
                scale: &scale,
                added: &added,
                d: &d,
            };
            for _ in 0..3 {
                norm.launch(stream, &x)?;
            }
            stream.synchronize()?;
            let (added, d) = (added.to_vec(stream)?, d.to_vec(stream)?);
            for i in 0..m {
                let row: Vec<f32> = (0..n)
                    .map(|j| {
                        let part = |pe: usize| -> f32 {
                            let products =
                                (0..k).map(|l| element(pe, i * k + l) * element(pe + 2, j * k + l));
                            bf16::from_f32(products.sum()).to_f32()
                        };
                        let sum = bf16::from_f32(part(0) + part(1)).to_f32();
                        bf16::from_f32(element(9, i * n + j) + sum).to_f32()
                    })
                    .collect();
                let mean = row.iter().map(|x| x * x).sum::<f32>() / n as f32;
                for (j, x) in row.iter().enumerate() {
                    assert_eq!(added[i * n + j].to_f32(), *x, "row {i}, column {j}");
                    let expected = x / (mean + 1e-5).sqrt() * element(4, j);
                    let got = d[i * n + j].to_f32();
                    assert!((got - expected).abs() <= expected.abs() / 128.0, "{got}, expected {expected}");
                }
            }
            Ok::<_, BenchError>(())
        })
        .unwrap();
}

#[test]
fn shapes_choose_plans() {
    let of = |m, n, pes| {
        let problem = Problem::new(Shape::new(m, n, 4096), DType::BF16);
        DecodePlan::default().of(&problem, pes, 132).unwrap()
    };
    // All 132 multiprocessors have work, because K is split if there are few tiles.
    let tile = |plan: DecodePlan| (plan.bm, plan.bn, plan.split);
    assert_eq!(tile(of(16, 8192, 2)), (128, 16, 2));
    assert_eq!(tile(of(64, 8192, 2)), (128, 64, 2));
    assert_eq!(tile(of(96, 8192, 2)), (128, 96, 2));
    assert_eq!(tile(of(192, 8192, 2)), (128, 128, 1));
    assert_eq!(tile(of(256, 8192, 2)), (128, 128, 1));
    // Two flights halve the amount that eight PEs send, which is used if it takes longer than a
    // flight.
    assert_eq!([of(1, 8192, 8), of(256, 8192, 8), of(256, 8192, 2)].map(|plan| plan.flights), [1, 2, 1]);
    let parsed = DecodePlan::parse("bn=32,split=4").unwrap();
    assert_eq!(parsed.to_string(), "decode=1,bn=32,split=4");
}

#[test]
fn invalid_operands_are_rejected() {
    let refused = |m, n, plan: &str| {
        let problem = Problem::new(Shape::new(m, n, 4096), DType::BF16);
        DecodePlan::parse(plan).unwrap().of(&problem, 2, 132).unwrap_err().to_string()
    };
    assert!(refused(Decode::MAX_ROWS + 1, 8192, "").contains("257 rows"));
    assert!(refused(16, 8192, "bn=16,split=4").contains("cannot be split"));
    assert!(refused(16, 8192, "split=3").contains("cannot be split"));
    assert!(refused(256, 8192, "bn=192,stages=8").contains("shared memory"));
    assert!(refused(256, 8192, "bm=128,bn=224").contains("two roles"));
    assert!(refused(16, 8192, "threads=200").contains("200 threads"));
    assert!(refused(256, 8192, "bn=256,threads=256,stages=2,bm=64").contains("256 threads"));
    assert!(refused(16, 8192, "exchange=2,split=2").contains("2 CTAs that multiply"));
    assert!(refused(16, 8191, "").contains("n is 8191"));
    assert!(DecodePlan::parse("lag=1").unwrap_err().contains("no `lag`"));
    assert!(DecodePlan::parse("units=9").unwrap_err().contains("1 to 8"));
    assert!(Contender::ours("decode=1", Form::AllGather).unwrap_err().contains("gemm-allreduce"));
}

/// Checks that a PE which requests another product causes an error on all PEs, instead of a wait
/// for packets that are never sent.
#[test]
fn pes_that_differ() {
    let errors = World::simulated(2).unwrap().run(|world| {
        let problem = Problem::new(Shape::new(2 + u64::from(world.my_pe()), 64, 64), DType::BF16);
        let decode = Decode::new(world, world.team(), problem, DecodePlan::default());
        Ok::<_, BenchError>(decode.map(drop).unwrap_err().to_string())
    });
    for error in errors.unwrap() {
        assert!(error.contains("2x64x64") && error.contains("3x64x64"), "{error}");
    }
}
