//! Tests epilogues of `weft::gemm::Fused` on simulated GPUs.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

#[path = "support/products.rs"]
mod products;

use products::{BF16, FP8, filled, narrowed, run, run_sequence, run_uneven, scaled_and};
use weft::collective::Flat;
use weft::gemm::{
    Activation, BlockTiles, Choice, Epilogue, Form, Fused, FusedOperands, FusedPlan, FusedTeam, Machine,
    Problem, Scales, Shape,
};
use weft::runtime::{DType, Device, World};
use weft_bench::BenchError;

#[test]
fn an_all_gather_brings_scales_along() {
    let scaled = Epilogue { scales: Scales::Rows, bias: true, ..Epilogue::default() };
    run(Form::AllGather, 3, (140, 80, 128), FP8, scaled, "bn=64,bk=128,stages=2,strip=32,piece=64");
    let whole = Epilogue { scales: Scales::Matrices, activation: Activation::Relu, ..Epilogue::default() };
    run(Form::AllGather, 2, (70, 72, 144), FP8, whole, "bn=64,bk=128,stages=2");
}

#[test]
fn gates_of_an_all_gather() {
    let gated = Epilogue {
        activation: Activation::Silu,
        gated: true,
        residual: true,
        divide: true,
        bias: true,
        ..Epilogue::default()
    };
    run(Form::AllGather, 2, (131, 96, 72), BF16, gated, "bn=64,stages=2,strip=32");
    let scaled = Epilogue { scales: Scales::Rows, gated: true, ..Epilogue::default() };
    run(Form::AllGather, 2, (20, 160, 64), FP8, scaled, "bn=64,bk=128,stages=2,strip=32");
    let whole = Epilogue { scales: Scales::Matrices, ..scaled };
    run(Form::AllGather, 2, (20, 160, 64), FP8, whole, "bn=64,bk=128,stages=2,strip=32");
}

/// Checks results whose rows have a scale for each 128 columns. The last of them are cut, and a tile has several.
#[test]
fn an_all_gather_with_scales_of_results() {
    let plain = Epilogue { row_scales: true, ..Epilogue::default() };
    let all = Epilogue {
        scales: Scales::Rows,
        bias: true,
        activation: Activation::GeluTanh,
        residual: true,
        ..plain
    };
    let gated = Epilogue { scales: Scales::Matrices, activation: Activation::Silu, gated: true, ..plain };
    let types = (DType::E4M3, DType::E4M3);
    let stages = "bk=128,stages=2,strip=32";
    for plan in [&format!("bn=128,{stages}"), &format!("bn=256,{stages}"), "sequence"] {
        run(Form::AllGather, 3, (70, 272, 128), types, all, plan);
    }
    for plan in [&format!("bn=256,{stages}"), "sequence"] {
        run(Form::AllGather, 2, (33, 288, 64), types, gated, plan);
    }
    run(Form::AllGather, 2, (130, 144, 72), (DType::BF16, DType::E5M2), plain, "bn=128,stages=2,ctas=2");
    for plan in [&format!("bn=128,{stages}"), "sequence"] {
        run_uneven(Form::AllGather, &[5, 0, 133, 2], (144, 64), types, all, plan);
    }
}

/// Checks results that go to other PEs, with the scales, the bias and the residual of the PE that multiplied.
#[test]
fn an_all_to_all_of_finished_products() {
    let all = scaled_and(Activation::GeluTanh);
    run(Form::AllToAll, 3, (131, 80, 128), FP8, all, "bn=64,bk=128,stages=2,strip=32");
    let narrow = narrowed();
    let types = (DType::E4M3, DType::E4M3);
    run(Form::AllToAll, 2, (40, 80, 128), types, narrow, "bn=64,bk=128,stages=2,outs=1");
    let blocks = Epilogue { scales: Scales::Blocks, bias: true, ..Epilogue::default() };
    run(Form::AllToAll, 4, (50, 80, 272), FP8, blocks, "bn=64,bk=128,stages=2,strip=32,ctas=2");
    let gated = Epilogue { activation: Activation::Silu, gated: true, residual: true, ..narrow };
    run(Form::AllToAll, 2, (70, 160, 64), FP8, gated, "bn=64,bk=128,stages=2,strip=32,pace=20");
}

/// Checks the same for PEs with different numbers of rows. A residual and scales have the rows of A.
#[test]
fn an_all_to_all_of_finished_products_with_uneven_rows() {
    let all = scaled_and(Activation::GeluTanh);
    run_uneven(Form::AllToAll, &[5, 0, 133], (80, 128), FP8, all, "bn=64,bk=128,stages=2,strip=32");
    let narrow = narrowed();
    let types = (DType::E4M3, DType::E4M3);
    run_uneven(Form::AllToAll, &[9, 40], (80, 128), types, narrow, "bn=64,bk=128,stages=2,outs=1");
    let blocks = Epilogue { scales: Scales::Blocks, bias: true, residual: true, ..Epilogue::default() };
    let plan = "bn=64,bk=128,stages=2,strip=32,ctas=2";
    run_uneven(Form::AllToAll, &[30, 129, 0, 7], (80, 272), FP8, blocks, plan);
    let gated = Epilogue { activation: Activation::Silu, gated: true, residual: true, ..narrow };
    let scaled = Epilogue { scales: Scales::Rows, ..gated };
    for epilogue in [gated, scaled] {
        let plan = "bn=64,bk=128,stages=2,strip=32,pace=20";
        run_uneven(Form::AllToAll, &[70, 3], (160, 64), FP8, epilogue, plan);
    }
}

#[test]
fn sums_of_scaled_products() {
    let all = scaled_and(Activation::GeluTanh);
    run(Form::ReduceScatter, 3, (131, 80, 128), FP8, all, "bn=64,bk=128,stages=2,strip=32,send=bulk");
    let narrow = narrowed();
    let types = (DType::E4M3, DType::E4M3);
    run(Form::ReduceScatter, 2, (40, 80, 128), types, narrow, "bn=64,bk=128,stages=2");
}

#[test]
fn an_allreduce_adds_the_residual_once() {
    let all = Epilogue { scales: Scales::Rows, bias: true, residual: true, ..Epilogue::default() };
    run(Form::AllReduce, 3, (131, 80, 128), FP8, all, "bn=64,bk=128,stages=2,strip=32");
    let plain = Epilogue { residual: true, activation: Activation::Relu, ..Epilogue::default() };
    run(Form::AllReduce, 2, (50, 72, 64), BF16, plain, "bn=64,stages=2,ctas=2,send=tma");
}

/// Checks sums that are made in the memory of their owner, which adds the bias and the residual to its own part.
#[test]
fn sums_in_the_memory_of_the_owner() {
    let all =
        Epilogue { scales: Scales::Rows, bias: true, residual: true, divide: true, ..Epilogue::default() };
    let plan = "bn=64,bk=128,stages=2,strip=32,send=add";
    run(Form::ReduceScatter, 3, (131, 80, 128), FP8, all, plan);
    let blocks = Epilogue { scales: Scales::Blocks, ..Epilogue::default() };
    run(Form::ReduceScatter, 2, (50, 144, 272), FP8, blocks, plan);
}

#[test]
fn sums_by_the_switch() {
    let all = Epilogue {
        scales: Scales::Rows,
        bias: true,
        activation: Activation::Relu,
        residual: true,
        divide: true,
        ..Epilogue::default()
    };
    run(Form::AllReduce, 3, (131, 80, 128), FP8, all, "bn=64,bk=128,stages=2,strip=32,send=switch");
    let matrices = Epilogue { scales: Scales::Matrices, bias: true, ..Epilogue::default() };
    run(Form::AllReduce, 2, (50, 72, 128), FP8, matrices, "bn=64,bk=128,stages=2,ctas=2,send=switch");
}

#[test]
fn packets_of_scaled_products() {
    let all = Epilogue {
        scales: Scales::Rows,
        bias: true,
        activation: Activation::Silu,
        residual: true,
        ..Epilogue::default()
    };
    run(Form::AllReduce, 3, (9, 80, 144), FP8, all, "decode=1,bn=16,split=2,stages=2,flights=2");
    run(Form::AllReduce, 2, (37, 136, 144), FP8, all, "decode=1,bn=16,stages=2,exchange=2");
    let narrow = narrowed();
    let types = (DType::E4M3, DType::E4M3);
    run(Form::AllReduce, 2, (5, 80, 144), types, narrow, "decode=1,bn=16,split=1,stages=2");
}

/// Checks scales that change along K, of which the last block is cut.
#[test]
fn scales_of_blocks() {
    let blocks = Epilogue { scales: Scales::Blocks, bias: true, residual: true, ..Epilogue::default() };
    run(Form::AllGather, 2, (70, 144, 144), FP8, blocks, "bn=128,bk=128,stages=2,strip=32,piece=128");
    let plan = "bn=64,bk=128,stages=2,strip=32,outs=2,ins=0";
    run(Form::ReduceScatter, 3, (50, 80, 272), FP8, blocks, &format!("{plan},send=bulk"));
    run(Form::AllReduce, 2, (20, 144, 144), FP8, blocks, &format!("{plan},ctas=2"));
    run_uneven(Form::AllGather, &[5, 0, 30], (80, 144), FP8, blocks, "bn=64,bk=128,stages=2,strip=32");
    run_uneven(Form::ReduceScatter, &[5, 0, 30], (80, 144), FP8, blocks, plan);
}

/// Checks products of a sequence with wide tiles, which take less time than two of 128 columns.
#[test]
fn scales_of_blocks_in_wide_tiles() {
    let blocks = Epilogue { scales: Scales::Blocks, bias: true, residual: true, ..Epilogue::default() };
    // Two multiprocessors have three tiles of 128 columns each, and two of 160 or of 192. Pairs of tiles of 192
    // columns have all rows, and take less time, unless one tile has them.
    for (m, n, columns, ctas) in [(140, 272, 160, 1), (140, 376, 192, 2), (100, 376, 192, 1)] {
        let machine =
            Machine { target: "sm_90a".parse().unwrap(), sms: 2, memory_gbps: Device::H200_MEMORY_GBPS };
        let shape = Shape::new(m, n, 272);
        assert_eq!(machine.tiles_with_blocks(shape)[0], BlockTiles { columns, ctas });
        run_sequence(Form::AllGather, 2, (m, n, 272), blocks);
        run_sequence(Form::ReduceScatter, 2, (m, n, 272), blocks);
    }
}

/// Checks a product with an epilogue, or a kernel that completes sums.
#[test]
fn epilogues_of_a_sequence() {
    let scaled = Epilogue { scales: Scales::Rows, bias: true, residual: true, ..Epilogue::default() };
    let all = Epilogue { activation: Activation::GeluTanh, ..scaled };
    let narrow = narrowed();
    let types = (DType::E4M3, DType::E4M3);
    let blocks = Epilogue { scales: Scales::Blocks, ..Epilogue::default() };
    for form in Form::ALL {
        run(form, 3, (140, 80, 128), FP8, all, "sequence");
        run(form, 2, (40, 80, 128), types, narrow, "sequence");
        run(form, 2, (20, 144, 272), FP8, blocks, "sequence");
    }
    let gated = Epilogue { activation: Activation::Silu, gated: true, divide: true, ..scaled };
    run(Form::AllGather, 2, (70, 160, 64), FP8, gated, "sequence");
    run(Form::AllToAll, 2, (71, 160, 64), FP8, gated, "sequence");
    run(Form::ReduceScatter, 4, (9, 80, 128), types, Epilogue::default(), "sequence");
    run_uneven(Form::AllGather, &[5, 0, 30], (80, 144), FP8, all, "sequence");
    run_uneven(Form::AllGather, &[5, 33], (80, 144), FP8, narrow, "sequence");
    run_uneven(Form::ReduceScatter, &[0, 9, 20], (80, 144), FP8, all, "sequence");
    run_uneven(Form::AllToAll, &[5, 0, 30], (80, 144), FP8, all, "sequence");
    run_uneven(Form::AllToAll, &[5, 33], (80, 144), types, narrow, "sequence");
    run_uneven(Form::AllToAll, &[0, 9, 20], (144, 272), FP8, blocks, "sequence");
    run_uneven(Form::AllToAll, &[33, 6], (160, 64), FP8, gated, "sequence");
    run_uneven(
        Form::ReduceScatter,
        &[7, 20],
        (80, 144),
        types,
        Epilogue { scales: Scales::Blocks, ..narrow },
        "sequence",
    );
}

/// Checks that missing and superfluous operands of an epilogue are rejected, and that a plan
/// without a place for an operand is too.
#[test]
fn invalid_operands_are_rejected() {
    let problem = Problem::new(Shape::new(128, 64, 64), DType::BF16);
    let form = Form::ReduceScatter;
    let fits = |epilogue: Epilogue, form, plan: &str| {
        let choice = Choice::parse(plan, form).unwrap();
        epilogue.fits(form, &problem, &choice).map_err(|e| e.to_string())
    };
    let bias = Epilogue { bias: true, ..Epilogue::default() };
    assert_eq!(fits(bias, form, "bn=64"), Ok(()));
    assert_eq!(fits(bias, form, "sequence"), Ok(()));
    assert_eq!(fits(bias, form, "send=add"), Ok(()));
    assert_eq!(fits(bias, Form::AllReduce, "decode=1"), Ok(()));
    let active = Epilogue { activation: Activation::Relu, ..Epilogue::default() };
    assert!(fits(active, form, "send=add").unwrap_err().contains("no activation can follow"));
    let gated = Epilogue { gated: true, ..Epilogue::default() };
    assert!(fits(gated, form, "bn=64").unwrap_err().contains("no gates"));
    assert!(fits(gated, form, "sequence").unwrap_err().contains("no gates"));
    assert!(fits(gated, Form::AllToAll, "bn=64").unwrap_err().contains("half of bn"));
    assert!(fits(gated, Form::AllGather, "bn=128,ctas=2").unwrap_err().contains("ctas=1"));
    assert!(fits(gated, Form::AllGather, "bn=64").unwrap_err().contains("half of bn"));
    assert_eq!(fits(gated, Form::AllGather, "bn=128"), Ok(()));
    let blocks = Epilogue { scales: Scales::Blocks, ..Epilogue::default() };
    assert!(fits(blocks, form, "bn=128,ins=0").unwrap_err().contains("several blocks"));
    assert!(fits(blocks, form, "bn=128,bk=128,stages=2").unwrap_err().contains("no warp"));
    assert!(fits(blocks, form, "bn=128,bk=128,stages=3,ins=0").unwrap_err().contains("shared memory"));
    assert_eq!(fits(blocks, form, "bn=128,bk=128,stages=2,ins=0"), Ok(()));
    assert_eq!(fits(blocks, form, "bn=128,bk=128,stages=2,send=add"), Ok(()));
    let switch = fits(blocks, Form::AllReduce, "bn=128,bk=128,stages=2,send=switch");
    assert!(switch.unwrap_err().contains("no warp"));
    assert!(fits(blocks, Form::AllReduce, "decode=1").unwrap_err().contains("transpose"));
    let matrices = Epilogue { scales: Scales::Matrices, ..Epilogue::default() };
    assert!(fits(matrices, Form::AllReduce, "decode=1,exchange=2").unwrap_err().contains("before scales"));
    let rows = Epilogue { row_scales: true, ..Epilogue::default() };
    let narrow = Problem { out: DType::E4M3, ..problem };
    let scales = |epilogue: Epilogue, form, problem: &Problem, plan: &str| {
        epilogue.fits(form, problem, &Choice::parse(plan, form).unwrap()).map_err(|e| e.to_string())
    };
    assert_eq!(scales(rows, Form::AllGather, &narrow, "bn=128"), Ok(()));
    assert!(scales(rows, Form::AllGather, &narrow, "bn=64").unwrap_err().contains("64 columns of D"));
    assert!(scales(rows, Form::AllGather, &problem, "bn=128").unwrap_err().contains("D is bf16"));
    assert!(scales(rows, form, &narrow, "bn=128").unwrap_err().contains("one strip at a time"));
    assert!(scales(rows, Form::AllReduce, &narrow, "sequence").unwrap_err().contains("one strip at a time"));
    assert!(scales(rows, Form::AllToAll, &narrow, "bn=128").unwrap_err().contains("does not send scales"));
    let gates = Epilogue { gated: true, ..rows };
    assert!(scales(gates, Form::AllGather, &narrow, "bn=128").unwrap_err().contains("64 columns of D"));
    let both = Epilogue { gated: true, ..blocks };
    for plan in ["bn=128,bk=128,stages=2", "sequence"] {
        assert!(fits(both, Form::AllGather, plan).unwrap_err().contains("other columns"));
    }

    let team = FusedTeam {
        machine: Machine {
            target: "sm_90a".parse().unwrap(),
            sms: 132,
            memory_gbps: Device::H100_MEMORY_GBPS,
        },
        pes: 2,
        multicast: true,
        links: weft::collective::Links::H200,
    };
    for form in Form::ALL {
        let (choice, _) = team.choose_with(form, &problem, &bias).unwrap();
        assert_eq!(bias.fits(form, &problem, &choice).map_err(|e| e.to_string()), Ok(()));
    }

    let world = World::simulated(1).unwrap();
    world
        .run(|world| {
            let plan = FusedPlan::parse("bn=64,stages=2", form).unwrap();
            let fused = Fused::with(world, world.team(), form, problem, bias, plan)?;
            let t = filled(world, DType::BF16, 128 * 64, |_| 1.0)?;
            let t = Flat(&t);
            let said = |x: &FusedOperands<'_>| fused.launch_with(world.stream(), x).unwrap_err().to_string();
            assert!(said(&FusedOperands::new(&t, &t, &t)).contains("`bias` is missing"));
            let more = FusedOperands { bias: Some(&t), scale: Some(&t), ..FusedOperands::new(&t, &t, &t) };
            assert!(said(&more).contains("`scale` is given"));
            Ok::<_, BenchError>(())
        })
        .unwrap();
}
