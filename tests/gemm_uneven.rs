//! Tests products of `weft::gemm::Fused` whose PEs have different numbers of rows, on simulated GPUs.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

#[path = "support/products.rs"]
#[expect(dead_code, reason = "all rows of these products are shared out by hand")]
mod products;

use products::{BF16, FP8, run_uneven, scaled_and};
use weft::gemm::{Activation, Choice, Epilogue, Form, Fused, Problem, Scales, Shape};
use weft::runtime::{DType, World};
use weft_bench::BenchError;

#[test]
fn an_all_gather_of_uneven_rows() {
    let scaled = Epilogue { scales: Scales::Rows, bias: true, residual: true, ..Epilogue::default() };
    let plan = "bn=64,bk=128,stages=2,strip=32";
    run_uneven(Form::AllGather, &[5, 0, 133], (80, 128), FP8, scaled, plan);
    let plain = Epilogue::default();
    run_uneven(Form::AllGather, &[30, 129, 0, 7], (72, 64), BF16, plain, "bn=64,stages=2,ctas=2");
    let gated = Epilogue { activation: Activation::Silu, gated: true, ..Epilogue::default() };
    run_uneven(Form::AllGather, &[40, 3], (96, 72), BF16, gated, "bn=64,stages=2,strip=32");
}

#[test]
fn sums_of_uneven_rows() {
    let all = scaled_and(Activation::Relu);
    let plan = "bn=64,bk=128,stages=2,strip=32,send=bulk";
    run_uneven(Form::ReduceScatter, &[70, 0, 5], (80, 128), FP8, all, plan);
    let plain = Epilogue::default();
    run_uneven(Form::ReduceScatter, &[30, 129, 0, 7], (72, 64), BF16, plain, "bn=64,stages=2,ctas=2,lag=0");
    let narrow = Epilogue { divide: true, bias: true, ..Epilogue::default() };
    let types = (DType::E4M3, DType::E4M3);
    run_uneven(Form::ReduceScatter, &[9, 0], (80, 128), types, narrow, "bn=64,bk=128,stages=2,ins=0,outs=1");
}

/// Checks sums of uneven rows in the memory of their owner. The owner's rows cut tiles, between which those of other PEs lie.
#[test]
fn uneven_sums_in_the_memory_of_the_owner() {
    let all =
        Epilogue { scales: Scales::Rows, bias: true, residual: true, divide: true, ..Epilogue::default() };
    let plan = "bn=64,bk=128,stages=2,strip=32,send=add";
    run_uneven(Form::ReduceScatter, &[70, 0, 133], (80, 128), FP8, all, plan);
    let plain = Epilogue::default();
    run_uneven(
        Form::ReduceScatter,
        &[30, 129, 0, 7],
        (72, 64),
        BF16,
        plain,
        "bn=64,stages=2,ctas=2,send=add",
    );
    let blocks = Epilogue { scales: Scales::Blocks, ..Epilogue::default() };
    run_uneven(Form::ReduceScatter, &[3, 50], (144, 272), FP8, blocks, plan);
}

/// Checks rows that go to other PEs. All PEs have memory for as many rows as the largest number.
#[test]
fn an_all_to_all_of_uneven_rows() {
    let all = scaled_and(Activation::Relu);
    let plan = "bn=64,bk=128,stages=2,strip=32";
    run_uneven(Form::AllToAll, &[70, 0, 133], (80, 128), FP8, all, plan);
    let plain = Epilogue::default();
    run_uneven(Form::AllToAll, &[30, 129, 0, 7], (72, 64), BF16, plain, "bn=64,stages=2,ctas=2");
    run_uneven(Form::AllToAll, &[0, 261], (72, 64), BF16, plain, "bn=64,stages=2,outs=1,pace=20");
    run_uneven(
        Form::AllToAll,
        &[9, 0, 3, 70, 5],
        (72, 40),
        (DType::F16, DType::F32),
        plain,
        "bn=64,stages=2,strip=32",
    );
}

/// Checks a product for each PE and a collective, which the model chooses for few rows.
#[test]
fn a_sequence_of_uneven_rows() {
    let plain = Epilogue::default();
    run_uneven(Form::AllGather, &[5, 0, 133], (80, 64), BF16, plain, "sequence");
    run_uneven(Form::AllGather, &[1, 7], (64, 144), FP8, plain, "sequence");
    run_uneven(Form::ReduceScatter, &[70, 0, 5], (80, 64), BF16, plain, "sequence");
    run_uneven(Form::ReduceScatter, &[0, 9, 3, 2], (72, 40), (DType::F16, DType::F32), plain, "sequence");
    run_uneven(Form::AllToAll, &[70, 0, 5], (80, 64), BF16, plain, "sequence");
    run_uneven(Form::AllToAll, &[0, 9, 3, 2], (72, 40), (DType::F16, DType::F32), plain, "sequence");
}

#[test]
fn few_uneven_rows_on_eight_pes() {
    let rows = [9, 0, 1, 0, 0, 33, 0, 2];
    let plain = Epilogue::default();
    run_uneven(Form::ReduceScatter, &rows, (64, 64), BF16, plain, "bn=64,stages=2,send=tma");
    run_uneven(Form::AllGather, &rows, (64, 64), BF16, plain, "bn=64,stages=2");
    run_uneven(Form::AllToAll, &rows, (64, 64), BF16, plain, "bn=64,stages=2");
}

/// Checks that rows which do not make the problem, or for which there is no memory, are errors on all PEs.
#[test]
fn invalid_rows_are_rejected() {
    let problem = Problem::new(Shape::new(100, 64, 64), DType::BF16);
    let none = Epilogue::default();
    let plan = |text: &str, form| Choice::parse(text, form).unwrap();
    World::simulated(2)
        .unwrap()
        .run(|world| {
            let made = |form, rows: &[u64], text: &str| {
                let made = Fused::uneven(world, world.team(), form, problem, none, rows, plan(text, form));
                made.map(drop).unwrap_err().to_string()
            };
            let form = Form::ReduceScatter;
            assert!(made(form, &[100], "bn=64").contains("rows for 1 PEs, and the team has 2"));
            assert!(made(form, &[50, 49], "bn=64").contains("99 together, and m is 100"));
            assert!(made(form, &[u64::MAX, 101], "bn=64").contains("more than 2^64"));
            assert!(made(Form::AllReduce, &[99, 1], "bn=64").contains("none has rows of its own"));
            assert!(made(Form::AllToAll, &[99, 2], "bn=64").contains("101 together, and m is 100"));
            let different = [99 - u64::from(world.my_pe()), 1 + u64::from(world.my_pe())];
            assert!(made(form, &different, "bn=64,stages=2").contains("different products"));

            let choice = plan("bn=64,stages=2", form);
            let mut fused = Fused::uneven(world, world.team(), form, problem, none, &[60, 40], choice)?;
            let mut set = |rows: &[u64]| fused.set_rows(world, world.stream(), rows).unwrap_err().to_string();
            assert!(set(&[61, 0]).contains("PE 0 of the team has 61 rows"));
            assert!(set(&[1, 1, 1]).contains("rows for 3 PEs"));
            assert!(set(&[0, 0]).contains("m is 0"));
            assert!(set(&[u64::from(world.my_pe()), 1]).contains("different products"));
            assert_eq!(fused.rows(), Some(&[60, 40][..]));
            let mut equal = Fused::new(world, world.team(), form, problem, choice)?;
            let error = equal.set_rows(world, world.stream(), &[60, 40]).unwrap_err();
            assert!(error.to_string().contains("equal parts"), "{error}");
            assert!(equal.rows().is_none());

            let choice = plan("sequence", form);
            let mut fused = Fused::uneven(world, world.team(), form, problem, none, &[60, 40], choice)?;
            let error = fused.set_rows(world, world.stream(), &[61, 0]).unwrap_err();
            assert!(error.to_string().contains("memory for 60"), "{error}");

            let auto = |form| Fused::auto_uneven(world, world.team(), form, problem, none, &[60, 40]);
            for form in [Form::AllGather, Form::AllToAll] {
                assert_eq!(auto(form)?.rows(), Some(&[60, 40][..]));
            }
            let error = auto(Form::AllReduce).map(drop).unwrap_err();
            assert!(error.to_string().contains("none has rows of its own"), "{error}");
            Ok::<_, BenchError>(())
        })
        .unwrap();
}
