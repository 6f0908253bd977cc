//! Tests `weft::gemm::Fused` and its benchmark without GPUs, on simulated ones.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

#[path = "../examples/18_tensor_parallel_mlp.rs"]
#[expect(dead_code, reason = "its main starts processes")]
mod tensor_parallel_mlp;

use weft::gemm::fused_tuning::{Case, Entry, Table, Tables};
use weft::gemm::tuning::Setting;
use weft::gemm::{Choice, Form, Fused, FusedPlan, Problem, Shape};
use weft::runtime::{DType, World};
use weft_bench::BenchError;
use weft_bench::gemm_comm::{Contender, Request, SHAPES, predict, run, table};

fn request(form: Form, plans: &[&str]) -> Request {
    let plan = |text: &&str| Contender::ours(text, form).unwrap();
    Request {
        form,
        // No number of tiles or PEs divides the rows.
        shapes: vec![Shape::new(131, 96, 96)],
        rows: Vec::new(),
        dtype: DType::BF16,
        contenders: plans.iter().map(plan).collect(),
        iters: 1,
        warmup: 1,
        repeats: 1,
        graph: false,
        check: true,
    }
}

/// Checks consecutive launches, and samples of every PE's results.
#[test]
fn results_are_right() {
    for (form, pes, plans) in [
        (
            Form::ReduceScatter,
            3,
            &[
                "bn=64,stages=2",
                "bn=64,stages=2,lag=0,pace=50,send=tma",
                "bn=64,stages=2,send=bulk",
                "sequence",
                "auto",
            ][..],
        ),
        (Form::ReduceScatter, 2, &["bm=256,bn=64,stages=2,strip=32,send=add"][..]),
        (
            Form::AllReduce,
            2,
            &["bn=64,stages=2,send=bulk", "bn=64,stages=2,send=switch", "sequence", "auto"][..],
        ),
        (Form::AllGather, 2, &["bn=64,stages=2,piece=32", "sequence", "auto"][..]),
        (Form::AllToAll, 3, &["bn=64,stages=2,pace=50", "sequence", "auto"][..]),
    ] {
        let request = request(form, plans);
        let reports = World::simulated(pes).unwrap().run(|world| run(world, &request, &mut |_, _| Ok(())));
        for report in reports.unwrap() {
            assert_eq!(report.rows.len(), plans.len());
            let sequences = report.rows.iter().filter(|row| row.name == "sequence");
            assert!(sequences.clone().all(|row| row.plan == "sequence"));
            for row in &report.rows {
                let checked = row.checked.as_ref().unwrap();
                assert_eq!(checked.elements, 0, "{form:?} on {pes} PEs, {}: {checked:?}", row.plan);
                assert!(checked.of > 50);
            }
        }
    }
}

/// Checks PEs that have different numbers of rows, and that rows which do not fit are errors before a launch.
#[test]
fn rows_of_each_pe() {
    for (form, plans) in [
        (
            Form::ReduceScatter,
            &["bn=64,stages=2", "bn=64,stages=2,strip=32,send=add", "sequence", "auto"][..],
        ),
        (Form::AllGather, &["bn=64,stages=2", "sequence", "auto"][..]),
        (Form::AllToAll, &["bn=64,stages=2", "bn=64,stages=2,ctas=2,pace=50", "sequence", "auto"][..]),
    ] {
        let request = Request { rows: vec![100, 0, 31], ..request(form, plans) };
        let reports = World::simulated(3).unwrap().run(|world| run(world, &request, &mut |_, _| Ok(())));
        for (pe, report) in reports.unwrap().iter().enumerate() {
            assert!(report.head().contains("rows [100, 0, 31]"), "{}", report.head());
            for row in &report.rows {
                let checked = row.checked.as_ref().unwrap();
                assert_eq!(checked.elements, 0, "{form:?} on PE {pe}, {}: {checked:?}", row.plan);
                assert!(checked.of > 50, "{form:?} on PE {pe}, {}: {checked:?}", row.plan);
            }
        }
    }
    let said = |request: &Request| request.examine().unwrap_err().to_string();
    let uneven = Request { rows: vec![100, 31], ..request(Form::ReduceScatter, &["auto"]) };
    assert!(uneven.examine().is_ok());
    assert!(uneven.problem(uneven.shapes[0], 3).unwrap_err().to_string().contains("rows for 2 PEs"));
    assert!(said(&Request { rows: vec![100, 30], ..uneven.clone() }).contains("130 together"));
    assert!(
        said(&Request { form: Form::AllReduce, ..uneven.clone() }).contains("equal parts of an allreduce")
    );
    let peers = Request { contenders: vec![Contender::Nccl], ..uneven };
    assert!(said(&peers).contains("cublas+nccl needs equal parts"));
}

#[test]
fn plans_read_back() {
    for form in Form::ALL {
        let plan = FusedPlan::parse("bn=128,stages=5,ctas=2,pace=6000", form).unwrap();
        assert_eq!(FusedPlan::parse(&plan.text(form), form), Ok(plan));
        assert_eq!((plan.bn, plan.stages, plan.ctas, plan.pace), (128, 5, 2, 6000));
    }
    assert!(FusedPlan::parse("lag=1", Form::AllGather).unwrap_err().contains("no `lag`"));
    assert!(FusedPlan::parse("bm=64", Form::AllReduce).unwrap_err().contains("128, 256"));
    let switch = FusedPlan::parse("outs=4,send=switch", Form::AllReduce).unwrap();
    assert_eq!(FusedPlan::parse(&switch.text(Form::AllReduce), Form::AllReduce), Ok(switch));
    assert!(
        FusedPlan::parse("send=switch", Form::ReduceScatter).unwrap_err().contains("vectors, tma, bulk, add")
    );
    // The kernel has no staging memory from which strips could be fetched.
    assert!(FusedPlan::parse("ins=3,send=switch", Form::AllReduce).unwrap_err().contains("no `ins`"));
    assert!(FusedPlan::parse("send=tma", Form::AllGather).unwrap_err().contains("vectors"));
    assert_eq!(Choice::parse("sequence", Form::AllReduce), Ok(Choice::Sequence));
    assert!(FusedPlan::parse("bn", Form::AllReduce).unwrap_err().contains("NAME=N"));
}

#[test]
fn invalid_plans_are_rejected() {
    let problem = Problem::new(Shape::new(1024, 1024, 1024), DType::BF16);
    for form in Form::ALL {
        assert!(FusedPlan::of(form).fits(form, &problem).is_ok());
        let large = FusedPlan::parse("stages=8", form).unwrap().fits(form, &problem).unwrap_err();
        assert!(large.to_string().contains("shared memory"), "{large}");
        let odd = FusedPlan::parse("bn=192,strip=128", form).unwrap().fits(form, &problem).unwrap_err();
        assert!(odd.to_string().contains("strips"), "{odd}");
    }
}

/// Checks that a PE which requests another product causes an error on all PEs, instead of a wait
/// for flags that are never set.
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

/// Checks that a shape which PEs cannot divide evenly is an error before the launch.
#[test]
fn shapes_that_cannot_be_split() {
    let request = request(Form::ReduceScatter, &[""]);
    let error = request.problem(Shape::new(64, 64, 100), 3).unwrap_err();
    assert!(error.to_string().contains("100"), "{error}");
    assert_eq!(request.problem(Shape::new(64, 64, 96), 3).unwrap().shape, Shape::new(64, 64, 32));
}

fn case(form: Form, shape: Shape) -> Case {
    Case { form, pes: 2, multicast: false, problem: Problem::new(shape, DType::BF16) }
}

/// Checks that a table is used for its setting, and for shapes that are similar to the measured
/// ones.
#[test]
fn measured_plans_are_chosen() {
    let form = Form::ReduceScatter;
    let plan: Choice = FusedPlan::parse("bn=128,ctas=2,send=tma", form).unwrap().into();
    let large = Entry::new(case(form, Shape::new(4096, 8192, 4096)), &plan, 400.0);
    let small = Entry::new(case(form, Shape::new(64, 8192, 4096)), &Choice::Sequence, 30.0);
    let setting = Setting { gpu: "a GPU".into(), driver: "580.1".into() };
    let table = Table { setting: setting.clone(), entries: vec![large.clone(), small] };
    let of = |m| table.choice(&case(form, Shape::new(m, 8192, 4096)));
    assert_eq!(
        (of(4096), of(4001), of(64), of(1024)),
        (Some(plan), Some(plan), Some(Choice::Sequence), None)
    );
    assert_eq!(table.choice(&Case { pes: 4, ..case(form, Shape::new(4096, 8192, 4096)) }), None);
    assert_eq!(table.choice(&case(Form::AllReduce, Shape::new(4096, 8192, 4096))), None);

    // An entry of an older version of the kernel does not count.
    let old = Table { entries: vec![Entry { kernel: "0".into(), ..large.clone() }], ..table.clone() };
    assert_eq!(old.choice(&large.case), None);
    assert!(old.text().contains("the kernel has changed"));

    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("gemm_comm.json");
    let mut tables = Tables::default();
    tables.add(table.clone());
    tables.add(Table { entries: vec![Entry { us: 390.0, ..large.clone() }], ..table });
    tables.write(&file).unwrap();
    let read = Tables::read(&file).unwrap();
    assert_eq!(read, tables);
    assert_eq!(read.find(&setting).unwrap().entries.iter().map(|e| e.us).collect::<Vec<_>>(), [30.0, 390.0]);
    std::fs::write(&file, "{}").unwrap();
    assert!(Tables::read(&file).unwrap_err().to_string().contains("weft tune gemm-reducescatter"));
}

/// Checks that the example is right on simulated PEs, the last of which has fewer rows.
#[test]
fn an_mlp_over_all_pes() {
    let run = |world: &World| tensor_parallel_mlp::mlp(world).map_err(|e| BenchError::Request(e.to_string()));
    World::simulated(4).unwrap().run(run).unwrap();
}

/// Checks the predicted times for PEs that do not exist: the switch makes an allreduce of eight PEs
/// faster, and the table has all shapes.
#[test]
fn predictions_of_eight_pes() {
    for form in Form::ALL {
        let request = Request { shapes: SHAPES.to_vec(), ..request(form, &[]) };
        let all = predict(&request, 8).unwrap();
        assert_eq!(all.len(), 2 * SHAPES.len());
        for pair in all.chunks(2) {
            let [without, with] = [&pair[0], &pair[1]].map(|p| p.estimate.total());
            assert!(without.is_finite() && with > 0.0, "{form:?}: {pair:?}");
            assert!(with <= without, "{form:?}: {pair:?}");
        }
        let text = table(&request, 8, &all);
        assert!(
            SHAPES.iter().all(|shape| text.contains(&shape.to_string()))
                && text.contains("nothing is measured")
        );
    }
    let odd = Request { shapes: vec![Shape::new(64, 64, 100)], ..request(Form::ReduceScatter, &[]) };
    assert!(predict(&odd, 8).unwrap_err().to_string().contains("cannot be divided evenly over 8 PEs"));
}
