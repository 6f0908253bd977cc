//! Tests of allreduce, residual add and RMSNorm in one kernel: every output is compared with the
//! reference in float64, after consecutive launches and replays of a graph.

use crate::check::{Case, Checked};
use crate::same;
use weft::ir::Scalar;
use weft::runtime::{World, nccl};
use weft_bench::fused::{Contender, Form, Request, run};

pub const CASES: &[Case] = &[
    Case::new("fused::hidden_states", |w| {
        forms(w, &[bf16(), Form { dtype: Scalar::F16, out: Scalar::F16, ..bf16() }])
    }),
    Case::new("fused::quantised", |w| forms(w, &quantised())),
    Case::new("fused::spread", |w| forms(w, &spread())),
    Case::new("fused::several_rows", several_rows),
    Case::new("fused::nccl", beside_nccl),
];

fn bf16() -> Form {
    Form::plain(Scalar::BF16)
}

fn quantised() -> [Form; 3] {
    let e4m3 = Form { out: Scalar::E4M3, ..bf16() };
    [e4m3, Form { per_token: true, ..e4m3 }, Form { dtype: Scalar::F16, both: true, ..e4m3 }]
}

fn spread() -> [Form; 3] {
    let groups = Form { out: Scalar::E4M3, group: 128, ..bf16() };
    [groups, Form { layer: true, ..bf16() }, Form { layer: true, ..groups }]
}

fn request(tokens: &[u32], hidden: u32) -> Request {
    let mut request = Request::new(tokens.to_vec(), hidden);
    (request.iters, request.warmup, request.repeats) = (3, 1, 2);
    (request.graph, request.check) = (true, true);
    request
}

fn checked(world: &World, request: &Request, rows: usize) -> Checked {
    let report = run(world, request, &mut |_, _| Ok(()))?;
    same!(report.first_wrong(), None, "wrong elements");
    same!(report.rows.len(), rows, "rows");
    for row in &report.rows {
        same!(row.wrong, Some(0), "{}, {} tokens", row.name, row.tokens);
        same!(row.time_us.median > 0.0, true, "{}: {:?}", row.name, row.time_us);
    }
    Ok(())
}

fn forms(world: &World, forms: &[Form]) -> Checked {
    for (i, form) in forms.iter().enumerate() {
        let shapes = [[8192, 100], [5120, 64], [2048, 8200]][i];
        for hidden in shapes.map(|h: u32| if form.group > 0 { h.next_multiple_of(form.group) } else { h }) {
            let mut request = Request { form: *form, ..request(&[1, 3, 65], hidden) };
            request.contenders.retain(|c| c.computes(form));
            checked(world, &request, 3 * request.contenders.len())?;
        }
    }
    Ok(())
}

/// CTAs process several rows, and packets carry flags or not.
fn several_rows(world: &World) -> Checked {
    let names = "one_flight,two_flights,one_flight:2x128:flags,two_flights:2x128:flags";
    let contenders = Contender::ours(names)?;
    let request = Request { contenders, ..request(&[257, 1100], 4096) };
    checked(world, &request, 2 * request.contenders.len())
}

/// Checks that NCCL's allreduce and the library's kernel give the same results within NCCL's
/// rounding. A missing NCCL is reported.
fn beside_nccl(world: &World) -> Checked {
    let mut request = request(&[3], 8192);
    request.contenders.push(Contender::Nccl);
    if nccl::installed().is_ok() {
        return checked(world, &request, request.contenders.len());
    }
    let error = run(world, &request, &mut |_, _| Ok(())).err().map(|e| e.to_string());
    same!(error.is_some_and(|e| e.contains("NCCL")), true, "an error that names NCCL");
    Ok(())
}
