//! Tests of products with communication in the same launch: every form with several plans and tails
//! along every mode, after consecutive launches and replays of a graph, beside cuBLASLt's product
//! and a collective.

use crate::check::{Case, Checked};
use crate::{ensure, same};
use weft::gemm::{Choice, Form, FusedPlan, Shape};
use weft::runtime::{DType, World, cublas, nccl};
use weft_bench::gemm_comm::{Contender, Request, run};

pub const CASES: &[Case] = &[
    Case::new("gemm_comm::reduce_scatter", |w| plans(w, Form::ReduceScatter)),
    Case::new("gemm_comm::allreduce", |w| plans(w, Form::AllReduce)),
    Case::new("gemm_comm::all_gather", |w| plans(w, Form::AllGather)),
    Case::new("gemm_comm::all_to_all", |w| plans(w, Form::AllToAll)),
    Case::new("gemm_comm::rows_of_each_pe", rows_of_each_pe),
    Case::new("gemm_comm::beside_a_sequence", beside_a_sequence),
];

fn request(form: Form, shapes: Vec<Shape>, contenders: Vec<Contender>) -> Request {
    let (iters, warmup, repeats) = (3, 1, 2);
    let dtype = DType::BF16;
    let rows = Vec::new();
    Request { form, shapes, rows, dtype, contenders, iters, warmup, repeats, graph: true, check: true }
}

fn checked(world: &World, request: &Request) -> Checked {
    let report = run(world, request, &mut |_, _| Ok(()))?;
    same!(report.first_wrong(), None, "wrong elements");
    same!(report.rows.len(), request.shapes.len() * request.contenders.len(), "rows");
    for row in report.rows.iter().filter(|row| row.checked.is_some()) {
        ensure!(row.checked.as_ref().is_some_and(|found| found.elements == 0 && found.of > 50), "{row:?}");
    }
    Ok(())
}

/// The greatest multiple of 8 up to `n` that the number of PEs divides evenly.
fn shared(n: u64, pes: u64) -> u64 {
    n / (8 * pes) * (8 * pes)
}

fn plans(world: &World, form: Form) -> Checked {
    let pes = u64::from(world.n_pes());
    let shape = Shape::new(1001, shared(1200, pes), shared(2080, pes));
    let plans: &[&str] = match form {
        Form::AllGather => {
            &["", "piece=128,pace=1000", "bn=128,ctas=2,stages=6", "bm=256,bn=128,stages=3", "sequence"]
        }
        Form::ReduceScatter => &[
            "",
            "pace=2000",
            "lag=0",
            "bn=128,ctas=2,stages=4,outs=4",
            "send=tma",
            "send=bulk",
            "send=add",
            "sequence",
        ],
        Form::AllReduce => &[
            "",
            "lag=1000,ins=1",
            "bn=128,ctas=2,stages=4,outs=4",
            "send=tma",
            "send=bulk",
            "send=switch",
            "sequence",
        ],
        Form::AllToAll => &["", "pace=1000", "bn=128,ctas=2,stages=6", "sequence"],
    };
    let parsed = plans.iter().map(|plan| Choice::parse(plan, form).map(Contender::Fused));
    checked(world, &request(form, vec![shape], parsed.collect::<Result<_, _>>()?))
}

/// The PEs have different numbers of rows, and one has none.
fn rows_of_each_pe(world: &World) -> Checked {
    let pes = u64::from(world.n_pes());
    let rows: Vec<u64> = (0..pes).map(|pe| if pe == 1 { 0 } else { 300 + 77 * pe }).collect();
    let shape = Shape::new(rows.iter().sum(), shared(1200, pes), shared(2080, pes));
    for (form, plans) in [
        (Form::AllGather, &["", "bn=128,ctas=2,stages=6", "sequence"][..]),
        (
            Form::ReduceScatter,
            &["", "send=tma", "send=bulk", "send=add", "bn=128,ctas=2,send=add", "sequence"][..],
        ),
        (Form::AllToAll, &["", "pace=1000", "bn=128,ctas=2,stages=6", "sequence"][..]),
    ] {
        let parsed = plans.iter().map(|plan| Choice::parse(plan, form).map(Contender::Fused));
        let mut contenders = parsed.collect::<Result<Vec<_>, _>>()?;
        contenders.push(Contender::Auto);
        checked(world, &Request { rows: rows.clone(), ..request(form, vec![shape], contenders) })?;
    }
    Ok(())
}

/// Without cuBLASLt or NCCL there is nothing to compare with.
fn beside_a_sequence(world: &World) -> Checked {
    if let Some(e) = cublas::installed().err().or_else(|| nccl::installed().err()) {
        println!("{}", e.message);
        return Ok(());
    }
    let pes = u64::from(world.n_pes());
    let shape = Shape::new(128 * pes, shared(1024, pes), shared(1024, pes));
    for form in Form::ALL {
        let fused = Contender::Fused(FusedPlan::of(form).into());
        let contenders = vec![fused, Contender::Product, Contender::Ours, Contender::Nccl];
        checked(world, &request(form, vec![shape], contenders))?;
    }
    Ok(())
}
