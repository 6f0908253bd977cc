//! Predictions for GPUs that this machine does not have.

use super::{Contender, Request};
use crate::BenchError;
use crate::model::machine;
use std::fmt::Write;
use weft::collective::Links;
use weft::gemm::Machine;
use weft::moe::{Estimate, Plan, Problem};

/// The predictions for each problem and plan on `pes` H200s, as a table.
///
/// # Errors
///
/// Fails for a problem or a plan that the kernels do not support.
pub fn predict(request: &Request, pes: u32) -> Result<String, BenchError> {
    let machine = machine()?;
    let mut text = format!(
        "# mixtures of experts on {pes} H200s: a prediction, nothing is measured; docs/moe.md has the assumptions\n\
         #      us  product  dispatch    first  combine    start  MB sent  copied  MB back  problem, plan\n"
    );
    let plans: Vec<Plan> = request.contenders.iter().filter_map(ours).collect();
    for problem in &request.problems {
        problem.check(pes)?;
        for plan in &plans {
            plan.fits(problem, pes)?;
            line(&mut text, problem, plan, pes, machine);
        }
    }
    Ok(text)
}

fn ours(contender: &Contender) -> Option<Plan> {
    match contender {
        Contender::Ours(variant) => Some(variant.plan),
        Contender::Nccl | Contender::OneProduct => None,
    }
}

fn line(text: &mut String, problem: &Problem, plan: &Plan, pes: u32, machine: Machine) {
    let all = problem.estimate(plan, pes, machine, &Links::H200);
    let Estimate { product_us, dispatch_us, first_us, combine_us, start_us } = all;
    let moved = problem.bytes(pes);
    let [sent, copied, back] = [moved.dispatch, moved.copies, moved.combine].map(|n| n / 1e6);
    let _ = writeln!(
        text,
        "{:>9.1}{product_us:>9.1}{dispatch_us:>10.1}{first_us:>9.1}{combine_us:>9.1}{start_us:>9.1}{sent:>9.1}{copied:>8.1}{back:>9.1}  {problem}; {plan}",
        all.total()
    );
}
