//! Tuning finds the fastest plan for a product with communication by measurement.

use super::{Contender, Request, Row, run};
use crate::BenchError;
use std::io;
use weft::collective::Links;
use weft::gemm::fused_tuning::{Case, Entry, Table};
use weft::gemm::tuning::Setting;
use weft::gemm::{Choice, DecodePlan, Form, FusedPlan, FusedTeam, Machine, Problem, Shape};
use weft_runtime::World;

/// The tuning result for a shape.
#[derive(Clone, PartialEq, Debug)]
pub struct TuningResult {
    /// The product as it would be on one PE.
    pub shape: Shape,
    /// The fastest plan, with microseconds of a call.
    pub entry: Entry,
    /// All measurements of the shape.
    pub rows: Vec<Row>,
}

/// The plans that are tried: the sequence; packets if there are few rows, also by the roles that
/// multiply, and with other splits and flights; and the plans that the model proposes, each with
/// other paces and lags.
pub fn tried(team: &FusedTeam, form: Form, problem: &Problem, budget: usize) -> Vec<Choice> {
    let proposed = team.candidates(form, problem);
    let changes: [fn(FusedPlan) -> FusedPlan; 5] = [
        |plan| plan,
        |plan| FusedPlan { pace: 0, ..plan },
        |plan| FusedPlan { pace: plan.pace / 2, ..plan },
        |plan| FusedPlan { lag: 1, ..plan },
        |plan| FusedPlan { lag: 1000, ..plan },
    ];
    let mut all = vec![Choice::Sequence];
    if form == Form::AllReduce {
        let others = ["", "exchange=2", "split=1", "split=2", "split=4", "bm=64", "flights=1", "flights=2"];
        let plans = others.iter().filter_map(|text| team.decode(problem, DecodePlan::parse(text).ok()?).ok());
        for (plan, _) in plans {
            if !all.contains(&plan.into()) {
                all.push(plan.into());
            }
        }
    }
    for change in changes {
        for plan in proposed.iter().map(|plan| change(*plan)) {
            // Plans that differ only in a parameter that their kernel does not have have the same
            // text.
            let again = all.iter().any(|c| c.text(form) == plan.text(form));
            if !again {
                all.push(plan.into());
            }
        }
    }
    all.retain(|choice| choice.fits(form, problem).is_ok());
    all.truncate(budget.max(1));
    all
}

/// Tunes on every PE of the world, all of which call it with the same request. Its contenders are
/// ignored. `done` gets the result for each shape, on every PE. This call is *collective*.
///
/// # Errors
///
/// Fails where [`run`] fails, or if no plan gives the right result for a shape.
pub fn tune(
    world: &World,
    request: &Request,
    budget: usize,
    done: &mut dyn FnMut(&TuningResult) -> io::Result<()>,
) -> Result<Table, BenchError> {
    request.examine()?;
    let form = request.form;
    let multicast = world.signal()?.tensor().multicast(&world.team()).is_some();
    let (machine, pes) = (Machine::of(world.device())?, world.n_pes());
    let team = FusedTeam { machine, pes, multicast, links: Links::H200 };
    let mut table = Table { setting: Setting::of(world.device())?, entries: Vec::new() };
    for shape in &request.shapes {
        let problem = request.problem(*shape, pes)?;
        let choices = tried(&team, form, &problem, budget);
        let contenders = choices.iter().copied().map(Contender::Fused).collect();
        let one = Request { shapes: vec![*shape], contenders, check: true, ..request.clone() };
        let rows = run(world, &one, &mut |_, _| Ok(()))?.rows;
        let right = |row: &Row| row.checked.as_ref().is_some_and(|found| found.elements == 0);
        let timed = rows.iter().zip(&choices).filter(|(row, _)| right(row));
        let best = timed.min_by(|a, b| a.0.time_us.median.total_cmp(&b.0.time_us.median));
        let none = || BenchError::Request(format!("no plan computes {problem} correctly"));
        let (row, choice) = best.ok_or_else(none)?;
        let case = Case { form, pes, multicast, problem };
        let found = TuningResult { shape: *shape, entry: Entry::new(case, choice, row.time_us.median), rows };
        done(&found).map_err(|e| BenchError::Local(format!("cannot write: {e}")))?;
        table.entries.push(found.entry);
    }
    Ok(table)
}
