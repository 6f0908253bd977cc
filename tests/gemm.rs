//! Tests `weft::gemm` and `weft bench gemm` without a GPU, on a simulated one.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use weft::KernelFile;
use weft::gemm::tuning::{By, Tuning};
use weft::gemm::{Gemm, Machine, Major, Param, Plan, Problem, Shape};
use weft::gpu::GpuError;
use weft::runtime::launch::AsArgument;
use weft::runtime::{DType, Device, DeviceTensor, World, error};
use weft_bench::BenchError;
use weft_bench::gemm::{Contender, Own, Request, Tune, run, tried, tune};

fn problem(m: u64, n: u64, k: u64) -> Problem {
    Problem::new(Shape::new(m, n, k), DType::BF16)
}

fn plan(text: &str) -> Tuning {
    Tuning::Plan(text.parse::<Plan>().unwrap())
}

#[test]
fn a_product_of_tensors() {
    let ones = World::simulated(1).unwrap().run(|world| {
        let (m, n, k) = (70, 72, 40);
        let (stream, one) = (world.stream(), half::bf16::ONE);
        let a = DeviceTensor::<half::bf16>::alloc(world.device(), [m, k])?;
        let b = DeviceTensor::<half::bf16>::alloc(world.device(), [n, k])?;
        let d = DeviceTensor::<half::bf16>::alloc(world.device(), [m, n])?;
        a.copy_from(&vec![one; m * k], stream)?;
        b.copy_from(&vec![one; n * k], stream)?;
        let gemm = Gemm::with(world, problem(m as u64, n as u64, k as u64), &plan("bn=64,stages=2"))?;
        gemm.launch(stream, &a, &b, &d)?;
        // Operands that do not match the problem are rejected before the launch: with another
        // shape, with gaps between rows, of another type, and at an address that is not a multiple
        // of 16.
        let gaps = DeviceTensor::<half::bf16>::alloc(world.device(), "(70,40):(41,1)")?;
        let other = DeviceTensor::<half::f16>::alloc(world.device(), [m, k])?;
        let shifted = world.tensor::<half::bf16>(m * k + 1)?.slice(1..m * k + 1)?;
        for wrong in [&b as &dyn AsArgument, &gaps, &other, &shifted] {
            let refused = gemm.launch(stream, wrong, &b, &d).unwrap_err();
            assert!(matches!(&refused, GpuError::Runtime(e) if e.code == error::ARGUMENT), "{refused}");
        }
        Ok::<_, GpuError>(d.to_vec(stream)?)
    });
    assert!(ones.unwrap()[0].iter().all(|x| x.to_f32() == 40.0));
}

#[test]
fn the_benchmark_checks_its_results() {
    let report = World::simulated(1).unwrap().run(|world| {
        let columns = Problem { b: Major::Column, ..problem(72, 136, 72) };
        let mut request = Request::new(vec![problem(130, 72, 72), columns]);
        request.contenders =
            ["bn=64,stages=2", "bn=128,stages=3,ctas=2"].map(|p| Contender::ours(p).unwrap()).into();
        // This is a user's kernel with a text of its own.
        let text = include_str!("../warpweft/src/library/gemm_kernel.weft");
        let file = KernelFile::parse("mine.weft", text).map_err(GpuError::from)?;
        let defines = [("BN", 64), ("STAGES", 2)].map(|(name, n)| (name.into(), n.into()));
        let own = Own::new("mine.weft", file, Some("gemm"), defines.into()).map_err(BenchError::Request)?;
        request.contenders.push(Contender::Own(own));
        (request.iters, request.warmup, request.repeats) = (1, 1, 1);
        let report = run(world.device(), &request, &mut |_, _| Ok(()))?;
        Ok::<_, BenchError>((report.first_wrong(), report.rows))
    });
    let (wrong, rows) = report.unwrap().swap_remove(0);
    assert_eq!((wrong, rows.len()), (None, 6));
    assert_eq!(rows[2].defines.as_deref(), Some("BN=64,STAGES=2"));
    for row in rows {
        let (wrong, of) = row.wrong.unwrap();
        assert!(wrong == 0 && of > 50 && row.differ == Some(0), "{row:?}");
    }
}

/// Checks that memory which a kernel needs besides the operands is allocated, if it is declared to
/// be the kernel's own.
#[test]
fn memory_of_a_kernel_is_made() {
    let found = World::simulated(1).unwrap().run(|world| {
        let report = |text: &str| {
            let file = KernelFile::parse("stream.weft", text).map_err(GpuError::from)?;
            let own = Own::new("stream.weft", file, None, [("G".into(), 132.into())].into());
            let mut request = Request::new(vec![problem(130, 72, 520)]);
            request.contenders = vec![Contender::Own(own.map_err(BenchError::Request)?)];
            (request.iters, request.warmup, request.repeats) = (1, 1, 1);
            run(world.device(), &request, &mut |_, _| Ok(()))
        };
        let text = include_str!("filetests/gemm/stream.weft");
        let wrong =
            report(text)?.rows.iter().map(|row| row.wrong.map(|(wrong, _)| wrong)).collect::<Vec<_>>();
        let refused = report(&text.replace("zeroed flags", "flags")).map(|_| ()).unwrap_err();
        Ok::<_, BenchError>((wrong, refused.to_string()))
    });
    let (wrong, refused) = found.unwrap().swap_remove(0);
    assert_eq!(wrong, [Some(0)]);
    assert!(refused.contains("`flags`"), "{refused}");
}

#[test]
fn tuned_plans_are_used() {
    let small = problem(64, 64, 64);
    let found = World::simulated(1).unwrap().run(|world| {
        let what = Tune { budget: 2, rounds: 1, ..Tune::new(vec![small]) };
        let mut plans = 0;
        let table = tune(world.device(), &what, &mut |found| {
            plans = found.plans;
            assert!(found.left_out.is_empty(), "{:?}", found.left_out);
            Ok(())
        })?;
        let plan = table.entries[0].plan;
        let gemm = Gemm::with(world, small, &Tuning::Table(Box::new(table)))?;
        Ok::<_, BenchError>((plans, plan, *gemm.plan(), gemm.by()))
    });
    let (plans, stored, chosen, by) = found.unwrap().swap_remove(0);
    assert_eq!((plans, stored, by), (2, chosen, By::Table));
}

/// Checks that the plans that are tried first differ in more than the number of stages.
#[test]
fn plans_of_all_tiles_are_tried() {
    let large = problem(4096, 4096, 4096);
    let machine =
        Machine { target: "sm_90a".parse().unwrap(), sms: 132, memory_gbps: Device::H100_MEMORY_GBPS };
    let tile = |plan: &Plan| -> Vec<u32> {
        Param::ALL.iter().filter(|p| **p != Param::Stages).map(|p| plan.get(*p)).collect()
    };
    let all: std::collections::BTreeSet<_> =
        Plan::candidates(&large, machine.target).map(|p| tile(&p)).collect();
    let first: std::collections::BTreeSet<_> =
        tried(&large, machine, all.len() as u32).iter().map(tile).collect();
    assert_eq!(first, all);
    assert_eq!(tried(&large, machine, 10_000).len(), Plan::candidates(&large, machine.target).count());
}
