//! `weft::moe` on simulated PEs: the example with its reference, and what is refused.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

#[path = "../examples/17_moe.rs"]
#[expect(dead_code, reason = "a test has no `main` of its own")]
mod example;

use weft::gpu::GpuError;
use weft::moe::{Moe, Plan, Problem, Routes};
use weft::runtime::{DType, DeviceTensor, Error, World};
use weft_bench::moe::{Contender, Request, run};

#[test]
fn results_are_those_of_the_reference() {
    for pes in [1, 2, 3] {
        let run = |world: &World| Ok::<_, Error>(example::moe(world).map_err(|e| e.to_string()));
        for outcome in World::simulated(pes).unwrap().run(run).unwrap() {
            outcome.unwrap();
        }
    }
}

fn small(world: &World, rows: Option<u64>) -> (Moe, DeviceTensor<half::bf16>) {
    let mut problem = Problem::new(8, 16, 4, 2, DType::BF16);
    problem.most_rows = rows;
    let plan = Plan { bn: 64, stages: 2, ..Plan::default() };
    let x = DeviceTensor::zeros([8, 16], world.stream()).unwrap();
    (Moe::new(world, world.team(), problem, plan).unwrap(), x)
}

/// What `check` says after a dispatch on two PEs with these experts and counts of tokens, and after a right one.
fn routed(rows: Option<u64>, ids: fn(u32) -> [i32; 16], live: i32) -> Vec<(String, bool)> {
    let run = |world: &World| {
        let stream = world.stream();
        let (moe, x) = small(world, rows);
        let all = DeviceTensor::<i32>::zeros([8, 2], stream)?;
        let count = DeviceTensor::<i32>::zeros(1, stream)?;
        all.copy_from(&ids(world.my_pe()), stream)?;
        count.copy_from(&[live], stream)?;
        let routes = Routes { ids: &all, live: &count };
        moe.dispatch(stream, &x, &routes)?;
        let said = moe.check(stream).err().map_or(String::new(), |e| e.to_string());
        // The next launch finds everything as it should be.
        count.copy_from(&[1], stream)?;
        all.copy_from(&[0; 16], stream)?;
        moe.dispatch(stream, &x, &routes)?;
        Ok::<_, GpuError>((said, moe.check(stream).is_ok()))
    };
    World::simulated(2).unwrap().run(run).unwrap()
}

#[test]
fn wrong_routes_are_errors_on_every_pe() {
    let right = |_| [0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3];
    assert_eq!(routed(None, right, 8), [(String::new(), true), (String::new(), true)]);
    for (rows, ids, live, says) in [
        (None, (|pe| [if pe == 1 { 4 } else { 0 }; 16]) as fn(u32) -> [i32; 16], 8, "not one of 0 to 3"),
        (None, |pe| [if pe == 0 { -1 } else { 0 }; 16], 8, "not one of 0 to 3"),
        (None, right, 9, "more than 8 tokens"),
        (Some(300), |_| [0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 2, 3], 8, ""),
        (Some(255), right, 8, "room for"),
    ] {
        for (said, mended) in routed(rows, ids, live) {
            assert_eq!(said.contains("R0506"), !says.is_empty(), "{said}");
            assert!(said.contains(says), "{said}");
            assert!(mended);
        }
    }
}

/// The benchmark's own launches give what its check expects.
#[test]
fn the_benchmark_checks_results() {
    let problem = Problem { columns: 72, ..Problem::new(8, 64, 4, 2, DType::BF16) };
    let plan = Plan { bn: 64, stages: 2, ..Plan::default() };
    let request = Request {
        problems: vec![problem],
        contenders: vec![Contender::Ours(plan)],
        iters: 1,
        warmup: 1,
        repeats: 1,
        graph: false,
        check: true,
    };
    let reports = World::simulated(2).unwrap().run(|world| run(world, &request, &mut |_, _| Ok(())));
    for report in reports.unwrap() {
        let checked = report.rows[0].checked.as_ref().unwrap();
        assert_eq!(checked.elements, 0, "{checked:?}");
        assert!(checked.of > 30, "{checked:?}");
    }
}

#[test]
fn problems_and_plans_that_do_not_fit_are_refused() {
    let problem = Problem::new(4096, 4096, 64, 8, DType::BF16);
    assert!(problem.check(2).is_ok() && Plan::default().fits(&problem, 2).is_ok());
    assert!(problem.check(3).unwrap_err().to_string().contains("equal parts"));
    assert!(Problem { hidden: 4095, ..problem }.check(2).unwrap_err().to_string().contains("16 bytes"));
    assert!(Problem { dtype: DType::F32, ..problem }.check(2).unwrap_err().to_string().contains("bf16"));
    assert!(Problem { tokens: 1 << 40, ..problem }.check(2).unwrap_err().to_string().contains("2^31"));
    let plan: Plan = "stages=8".parse().unwrap();
    assert!(plan.fits(&problem, 2).unwrap_err().to_string().contains("shared memory"));
    assert_eq!(plan.to_string().parse(), Ok(plan));
    assert!("lag=1".parse::<Plan>().unwrap_err().contains("no `lag`"));
}
