//! Tests of matrix products: several plans, types and layouts with tails in each mode, beside
//! cuBLASLt, and tuned.

use crate::check::{Case, Checked};
use crate::{ensure, same};
use weft::gemm::tuning::{By, Tuning};
use weft::gemm::{Gemm, Major, Problem, Scales, Shape};
use weft::runtime::{DType, World, cublas, error};
use weft_bench::gemm::{Contender, Report, Request, Tune, run, tune};

pub const CASES: &[Case] = &[
    Case::new("gemm::plans_and_types", plans_and_types),
    Case::new("gemm::operands_with_scales", operands_with_scales),
    Case::new("gemm::beside_cublas", beside_cublas),
    Case::new("gemm::what_is_tuned", what_is_tuned),
];

fn request(problems: Vec<Problem>, plans: &[&str]) -> Request {
    let mut request = Request::new(problems);
    request.contenders = plans.iter().map(|plan| Contender::ours(plan).unwrap()).collect();
    (request.iters, request.warmup, request.repeats) = (1, 1, 1);
    request
}

/// Runs the request. No row may have a wrong element.
fn checked(world: &World, request: &Request) -> Result<Report, Box<dyn std::error::Error>> {
    let report = run(world.device(), request, &mut |_, _| Ok(()))?;
    same!(report.first_wrong(), None, "wrong elements");
    same!(report.rows.len(), request.problems.len() * request.contenders.len(), "rows");
    for row in &report.rows {
        ensure!(row.wrong.is_some_and(|(wrong, of)| wrong == 0 && of > 50), "{row:?}");
        ensure!(row.differ == Some(0) && row.time_us.median > 0.0, "{row:?}");
    }
    Ok(report)
}

fn plans_and_types(world: &World) -> Checked {
    let simulated = world.device().is_simulated();
    let shape = if simulated { Shape::new(130, 80, 80) } else { Shape::new(1030, 1040, 1104) };
    let of = |dtype| Problem::new(shape, dtype);
    let columns = Problem { b: Major::Column, ..of(DType::F16) };
    checked(world, &request(vec![columns], &["bn=64,stages=3"]))?;
    checked(world, &request(vec![of(DType::E4M3)], &["bk=128,bn=64,stages=3"]))?;
    checked(world, &request(vec![of(DType::F32)], &["bk=32,bn=64,stages=2"]))?;
    if simulated {
        return Ok(());
    }
    let plans = ["stages=4", "bn=192", "bm=256,bn=128,stages=3", "bk=128,stages=2", "bn=128,ctas=2"];
    checked(world, &request(vec![of(DType::BF16), Problem { dtype: DType::BF16, ..columns }], &plans))?;
    let wide = Problem { out: DType::F32, ..of(DType::BF16) };
    checked(world, &request(vec![wide, of(DType::E5M2)], &["bk=128,bn=64,stages=3"]))?;
    Ok(())
}

/// Products with each kind of scales, by a plan and by the model's, with a last block that is cut.
fn operands_with_scales(world: &World) -> Checked {
    let simulated = world.device().is_simulated();
    let shape = if simulated { Shape::new(140, 144, 272) } else { Shape::new(1040, 1168, 1104) };
    let problem = Problem::new(shape, DType::E4M3);
    for (scales, plan) in [
        (Scales::Matrices, "bk=128,bn=64,stages=2,turns=1"),
        (Scales::Rows, "bk=128,bn=64,stages=3"),
        (Scales::Blocks, "bk=128,bn=64,stages=3"),
    ] {
        let plans = if simulated { &[plan][..] } else { &[plan, "model"] };
        let mut request = Request { scales, ..request(vec![problem], plans) };
        // Version 12.9 is the first one with scales of rows and blocks.
        if !simulated && cublas::installed().is_ok_and(|(version, _)| version >= cublas::Version(120_900)) {
            request.contenders.extend([Contender::Cublas, Contender::CublasMatrices]);
            request.contenders.truncate(if scales == Scales::Matrices { 3 } else { 4 });
        }
        let report = checked(world, &request)?;
        for row in &report.rows {
            same!(row.of_cublas.is_some(), request.contenders.len() > 2, "{row:?}");
        }
    }
    Ok(())
}

fn beside_cublas(world: &World) -> Checked {
    let shapes = ["1x8x16", "16x1024x512", "1000x520x272"].map(|s| s.parse::<Shape>().unwrap());
    let mut problems: Vec<_> = shapes.iter().map(|shape| Problem::new(*shape, DType::BF16)).collect();
    problems.push(Problem { b: Major::Column, ..problems[2] });
    let mut request = request(problems, &["auto", "model"]);
    request.contenders.push(Contender::Cublas);
    if let Err(e) = cublas::installed() {
        println!("without cuBLASLt: {}", e.message);
        same!(e.code, error::NO_CUBLAS, "what is missing");
        ensure!(request.examine().is_err(), "a peer that is missing is measured");
        return Ok(());
    }
    for (graph, cold) in [(true, false), (false, true)] {
        let report = checked(world, &Request { graph, cold, ..request.clone() })?;
        for row in &report.rows {
            ensure!(row.of_cublas.is_some() && (row.sets > 1) == cold, "{row:?}");
        }
    }
    Ok(())
}

fn what_is_tuned(world: &World) -> Checked {
    let problem = Problem::new(Shape::new(512, 512, 512), DType::BF16);
    let what = Tune { budget: 6, rounds: 2, ..Tune::new(vec![problem]) };
    let mut left_out = Vec::new();
    let table = tune(world.device(), &what, &mut |found| {
        left_out.extend(found.left_out.clone());
        Ok(())
    })?;
    ensure!(left_out.is_empty(), "{left_out:?}");
    let plan = table.entries[0].plan;
    let near = Problem { shape: Shape::new(500, 512, 520), ..problem };
    for problem in [problem, near] {
        let gemm = Gemm::with(world, problem, &Tuning::Table(Box::new(table.clone())))?;
        same!((*gemm.plan(), gemm.by()), (plan, By::Table), "{problem}");
    }
    Ok(())
}
