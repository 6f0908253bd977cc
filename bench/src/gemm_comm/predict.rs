//! Predictions of the model for products fused with communication, for PEs that this machine does
//! not have.

use super::Request;
use crate::BenchError;
use crate::model::machine;
use std::fmt::Write;
use weft::collective::Links;
use weft::gemm::{Choice, Estimate, FusedTeam, Shape};

/// The prediction for a shape.
#[derive(Clone, PartialEq, Debug)]
pub struct Predicted {
    /// The product as it would be on one PE.
    pub shape: Shape,
    /// Whether the team has a multicast address.
    pub multicast: bool,
    /// The plan that is predicted to be the fastest.
    pub choice: Choice,
    /// The estimate of its time.
    pub estimate: Estimate,
    /// The estimate for a product and a collective of warpweft, if they support the problem.
    pub sequence: Option<Estimate>,
    /// The time relative to that of the product alone with its best plan.
    pub of_product: f64,
}

/// Predicts each shape for `pes` H200s, without and with the switch.
///
/// # Errors
///
/// Fails where [`Request::examine`] or [`Request::problem`] fails, or if no plan supports the
/// problem.
pub fn predict(request: &Request, pes: u32) -> Result<Vec<Predicted>, BenchError> {
    request.examine()?;
    let machine = machine()?;
    let one = |shape: Shape, multicast: bool| -> Result<Predicted, BenchError> {
        let (problem, form) = (request.problem(shape, pes)?, request.form);
        let team = FusedTeam { machine, pes, multicast, links: Links::H200 };
        let (choice, estimate) = team.choose(form, &problem)?;
        let alone = machine.plans(&problem).first().map(|plan| machine.cycles(&problem, plan));
        let of_product = estimate.total() / alone.map_or(f64::NAN, |cycles| cycles / FusedTeam::CLOCK);
        let sequence = team.sequence(form, &problem).ok();
        Ok(Predicted { shape, multicast, choice, estimate, sequence, of_product })
    };
    request.shapes.iter().flat_map(|shape| [false, true].map(|multicast| one(*shape, multicast))).collect()
}

/// The predictions as a table.
pub fn table(request: &Request, pes: u32, all: &[Predicted]) -> String {
    let mut text = format!(
        "# {:?} and GEMM on {pes} H200s: a prediction, nothing is measured; docs/gemm-comm.md has the assumptions\n\
         #           shape  switch       us  product   moving     tail    start  of gemm  sequence  way\n",
        request.form
    );
    for p in all {
        let Estimate { product_us, moving_us, tail_us, start_us } = p.estimate;
        let sequence = p.sequence.map_or("-".into(), |e| format!("{:.1}", e.total()));
        let way = p.choice.text(request.form);
        let switch = if p.multicast { "yes" } else { "no" };
        let _ = writeln!(
            text,
            "{:>17}{switch:>8}{:>9.1}{product_us:>9.1}{moving_us:>9.1}{tail_us:>9.1}{start_us:>9.1}{:>9.3}{sequence:>10}  {way}",
            p.shape.to_string(),
            p.estimate.total(),
            p.of_product
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use weft::collective::Links;
    use weft::gemm::{Epilogue, Form, FusedPlan, FusedTeam, Problem, Shape};
    use weft::{KernelFile, Lowering, Options};
    use weft_lang::elaborate::Define;
    use weft_run::{Ran, RunOptions, run_file};
    use weft_runtime::DType;

    /// The bytes that the model predicts for a launch equal those that a simulated launch moves,
    /// except for flags.
    #[test]
    fn bytes_are_those_of_a_simulated_launch() {
        for (form, pes, plan) in [
            (Form::AllGather, 3, "bn=64,stages=2"),
            (Form::ReduceScatter, 3, "bn=64,stages=2"),
            (Form::ReduceScatter, 2, "bn=64,stages=2,send=bulk"),
            (Form::ReduceScatter, 3, "bn=64,stages=2,strip=32,send=add"),
            (Form::AllReduce, 4, "bn=64,stages=2,send=tma"),
            (Form::AllReduce, 4, "bn=64,stages=2,send=switch"),
            (Form::AllToAll, 3, "bn=64,stages=2"),
        ] {
            [false, true].into_iter().for_each(|multicast| agrees(form, pes, plan, multicast));
        }
    }

    fn agrees(form: Form, pes: u32, text: &str, multicast: bool) {
        let plan = FusedPlan::parse(text, form).unwrap();
        let shape = Shape::new(128 * u64::from(pes), 136, 64);
        let mut problem = Problem::new(shape, DType::BF16);
        if text.contains("add") {
            problem.out = DType::F32;
        }
        let machine = crate::model::machine().unwrap();
        let team = FusedTeam { machine, pes, multicast, links: Links::H200 };
        let said = team.bytes(form, &problem, &plan);

        let (name, defines) = plan.kernel(form, &problem, &Epilogue::default(), pes);
        let mut options = Options::new(machine.target);
        options.defines = defines.into_iter().collect();
        options.lowering = if multicast { Lowering::Multimem } else { Lowering::Unicast };
        let mut run = RunOptions::new(options, pes as usize);
        run.grid = Some([2, 1, 1]);
        for (name, extent) in [("m", shape.m), ("n", shape.n), ("k", shape.k)] {
            run.args.insert(name.into(), Define::Int(extent as i64).into());
        }
        let file = KernelFile::parse(name, weft::library::part(name).unwrap()).unwrap();
        let outcome = run_file(&file, &run).unwrap();
        assert!(outcome.passed(), "{form:?} {text}: the result is wrong");
        let Ran::Simulator { stats, .. } = &outcome.ran else {
            panic!("the kernel did not run on the simulator")
        };
        let max =
            |ports: Vec<weft_sim::Port>| ports.iter().map(|p| p.out.max(p.into)).max().unwrap_or(0) as f64;
        let found = [max(stats.peer_ports(pes as usize)), max(stats.switch_ports(pes as usize))];
        for (said, found) in [said.peer, said.switch].into_iter().zip(found) {
            assert!(
                (said - found).abs() <= 0.02 * said + 2048.0,
                "{form:?} {text} {multicast}: {said}, {found}"
            );
        }
    }
}
