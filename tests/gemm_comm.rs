//! `weft::gemm::Fused` and its benchmark without GPUs: on simulated ones.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use weft::gemm::{Form, Fused, FusedPlan, Problem, Shape};
use weft::runtime::{DType, World};
use weft_bench::BenchError;
use weft_bench::gemm_comm::{Contender, Request, run};

fn request(form: Form, plans: &[&str]) -> Request {
    let plan = |text: &&str| Contender::Fused(FusedPlan::parse(text, form).unwrap());
    Request {
        form,
        // Rows that no number of tiles or PEs divides.
        shapes: vec![Shape::new(131, 96, 96)],
        dtype: DType::BF16,
        contenders: plans.iter().map(plan).collect(),
        iters: 1,
        warmup: 1,
        repeats: 1,
        graph: false,
        check: true,
    }
}

/// Launches follow each other, and the samples of every PE's results are right.
#[test]
fn results_are_right() {
    for (form, pes, plans) in [
        (Form::ReduceScatter, 3, &["bn=64,stages=2", "bn=64,stages=2,lag=0,pace=50"][..]),
        (Form::AllReduce, 2, &["bn=64,stages=2"][..]),
        (Form::AllGather, 2, &["bn=64,stages=2,piece=32"][..]),
    ] {
        let request = request(form, plans);
        let reports = World::simulated(pes).unwrap().run(|world| run(world, &request, &mut |_, _| Ok(())));
        for report in reports.unwrap() {
            assert_eq!(report.rows.len(), plans.len());
            for row in &report.rows {
                let checked = row.checked.as_ref().unwrap();
                assert_eq!(checked.elements, 0, "{form:?} on {pes} PEs, {}: {checked:?}", row.plan);
                assert!(checked.of > 50);
            }
        }
    }
}

#[test]
fn plans_read_back() {
    for form in Form::ALL {
        let plan = FusedPlan::parse("bn=128,stages=5,ctas=2,pace=6000", form).unwrap();
        assert_eq!(FusedPlan::parse(&plan.text(form), form), Ok(plan));
        assert_eq!((plan.bn, plan.stages, plan.ctas, plan.pace), (128, 5, 2, 6000));
    }
    assert!(FusedPlan::parse("lag=1", Form::AllGather).unwrap_err().contains("no `lag`"));
    assert!(FusedPlan::parse("bm=64", Form::AllReduce).unwrap_err().contains("128 to 128"));
    assert!(FusedPlan::parse("bn", Form::AllReduce).unwrap_err().contains("NAME=N"));
}

#[test]
fn plans_that_do_not_fit_are_refused() {
    let problem = Problem::new(Shape::new(1024, 1024, 1024), DType::BF16);
    for form in Form::ALL {
        assert!(FusedPlan::of(form).fits(form, &problem).is_ok());
        let large = FusedPlan::parse("stages=8", form).unwrap().fits(form, &problem).unwrap_err();
        assert!(large.to_string().contains("shared memory"), "{large}");
        let odd = FusedPlan::parse("bn=192,strip=128", form).unwrap().fits(form, &problem).unwrap_err();
        assert!(odd.to_string().contains("strips"), "{odd}");
    }
}

/// A PE that asks for another product is an error on all of them, and no wait for flags that nobody raises.
#[test]
fn pes_that_differ() {
    let errors = World::simulated(2).unwrap().run(|world| {
        let rows = 64 + u64::from(world.my_pe());
        let problem = Problem::new(Shape::new(rows, 64, 64), DType::BF16);
        let form = Form::AllReduce;
        let fused = Fused::new(world, world.team(), form, problem, FusedPlan::of(form));
        Ok::<_, BenchError>(fused.map(drop).unwrap_err().to_string())
    });
    for error in errors.unwrap() {
        assert!(error.contains("64x64x64") && error.contains("65x64x64"), "{error}");
    }
}

/// What PEs do not share out evenly is an error before anything is launched.
#[test]
fn shapes_that_cannot_be_split() {
    let request = request(Form::ReduceScatter, &[""]);
    let error = request.problem(Shape::new(64, 64, 100), 3).unwrap_err();
    assert!(error.to_string().contains("100"), "{error}");
    assert_eq!(request.problem(Shape::new(64, 64, 96), 3).unwrap().shape, Shape::new(64, 64, 32));
}
