//! Tuning finds the fastest plan of a problem by measurement.

use super::Request;
use super::measure::{Call, Case, Harness, Result, Sets};
use super::report::Quartiles;
use crate::BenchError;
use crate::data::in_each;
use std::time::SystemTime;
use weft::gemm::tuning::{Entry, Selector, Setting, Table, Tuning};
use weft::gemm::{Gemm, Machine, Param, Plan, Problem, Scales};
use weft_runtime::Device;

/// The number of plans that are compared again, in alternation, after each was timed by itself.
const FINALISTS: usize = 5;

/// A request to tune products of matrices.
#[derive(Clone, Debug)]
pub struct Tune {
    /// The products that are tuned.
    pub problems: Vec<Problem>,
    /// The number of plans that are tried for each of them.
    pub budget: u32,
    /// The number of rounds in which the fastest of them are compared.
    pub rounds: u32,
}

/// The tuning result for a problem.
#[derive(Clone, PartialEq, Debug)]
pub struct TuningResult {
    /// The fastest plan, with microseconds of a call.
    pub entry: Entry,
    /// The plan that the model ranks first, with microseconds of a call.
    pub model: (Plan, f64),
    /// The number of plans that were timed.
    pub plans: u32,
    /// The plans that were left out, with reasons: they do not compile, or their results are wrong.
    pub left_out: Vec<String>,
}

impl Tune {
    /// A request that tries 24 plans for each product.
    pub fn new(problems: Vec<Problem>) -> Tune {
        Tune { problems, budget: 24, rounds: 12 }
    }

    /// Checks everything that can be checked before a GPU is used.
    ///
    /// # Errors
    ///
    /// Fails for a problem that the kernel does not support (R0505), or without a shape, a plan, or
    /// a round.
    pub fn examine(&self) -> Result<()> {
        if self.problems.is_empty() || self.budget == 0 || self.rounds == 0 {
            return Err(BenchError::Request(
                "there is nothing to tune: give at least one shape, one plan and one round".into(),
            ));
        }
        Ok(self.problems.iter().try_for_each(Problem::check)?)
    }
}

/// The plans that are tried first. Of each group of plans that differ only in the number of stages,
/// the one that the model prefers comes first; then come the others. Both are in the model's order.
pub fn tried(problem: &Problem, machine: Machine, budget: u32) -> Vec<Plan> {
    let group = |plan: &Plan| -> Vec<u32> {
        Param::ALL.iter().filter(|p| **p != Param::Stages).map(|p| plan.get(*p)).collect()
    };
    let (mut first, mut rest, mut seen) = (Vec::new(), Vec::new(), Vec::new());
    for plan in machine.plans(problem) {
        match seen.contains(&group(&plan)) {
            true => rest.push(plan),
            false => {
                seen.push(group(&plan));
                first.push(plan);
            }
        }
    }
    first.extend(rest);
    first.truncate(budget as usize);
    first
}

/// Tunes on a GPU. `done` gets the result for each problem when it is found.
///
/// # Errors
///
/// Fails where [`Tune::examine`] fails, if no plan of a problem compiles and gives right results,
/// or if a CUDA call fails.
pub fn tune(
    device: &Device,
    what: &Tune,
    done: &mut dyn FnMut(&TuningResult) -> std::io::Result<()>,
) -> Result<Table> {
    what.examine()?;
    let bed = Harness::new(device, true)?;
    let date = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
    let mut table = Table { date, ..Table::new(Setting::of(device)?) };
    for problem in &what.problems {
        let found = fastest(&bed, problem, what)?;
        done(&found).map_err(|e| BenchError::Local(format!("cannot write: {e}")))?;
        table.entries.push(found.entry);
    }
    Ok(table)
}

/// The fastest plan of a problem.
fn fastest(bed: &Harness, problem: &Problem, what: &Tune) -> Result<TuningResult> {
    let plans = tried(problem, Machine::of(&bed.device)?, what.budget);
    let sets = bed.sets(problem, Scales::None, false)?;
    let (cases, left_out) = right(bed, &sets, &plans)?;
    let count = cases.len() as u32;
    let medians = finalists(bed, &sets, cases, plans.first(), what.rounds)?;
    let best = medians.iter().copied().min_by(|a, b| a.1.total_cmp(&b.1));
    let none = || BenchError::Request(format!("no plan can compute {problem}: {}", left_out.join("; ")));
    let (plan, us) = best.ok_or_else(none)?;
    let model = medians.iter().copied().find(|(p, _)| plans.first() == Some(p)).unwrap_or((plan, us));
    Ok(TuningResult { entry: Entry { problem: *problem, plan, us }, model, plans: count, left_out })
}

/// The plans that compile and whose results are right, and the other plans with the reasons.
fn right(bed: &Harness, sets: &Sets, plans: &[Plan]) -> Result<(Vec<Case>, Vec<String>)> {
    let (mut cases, mut left_out) = (Vec::new(), Vec::new());
    // The plans are compiled here on all cores; below they are found in the cache.
    let compiled = in_each(plans, |plan| {
        let gemm = Gemm::with(&bed.device, sets.problem, &Tuning::Plan(*plan));
        gemm.map(drop).map_err(|e| format!("{plan}: {e}"))
    });
    for (plan, compiled) in plans.iter().zip(compiled) {
        match compiled {
            Ok(()) => cases.push(bed.ours(sets, &Selector::new(&bed.device, &Tuning::Plan(*plan))?)?),
            Err(why) => left_out.push(why),
        }
    }
    bed.check(sets, &mut cases)?;
    left_out.extend(cases.iter().filter_map(Case::fault));
    cases.retain(|case| case.fault().is_none());
    Ok((cases, left_out))
}

/// The plans with the medians of their times: the fastest ones and the one that the model ranks
/// first, compared in alternation.
fn finalists(
    bed: &Harness,
    sets: &Sets,
    cases: Vec<Case>,
    first: Option<&Plan>,
    rounds: u32,
) -> Result<Vec<(Plan, f64)>> {
    let mut timed: Vec<(f64, Plan, Case)> = Vec::new();
    for case in cases {
        if let Call::Ours { plan, .. } = &case.call {
            timed.push((bed.quick(sets, &case)?, *plan, case));
        }
    }
    timed.sort_by(|a, b| a.0.total_cmp(&b.0));
    let of_model = timed.iter().position(|(_, plan, _)| Some(plan) == first);
    if let Some(place) = of_model.filter(|place| *place >= FINALISTS) {
        timed.swap(place, FINALISTS);
        timed.truncate(FINALISTS + 1);
    } else {
        timed.truncate(FINALISTS);
    }
    let (plans, cases): (Vec<Plan>, Vec<Case>) =
        timed.into_iter().map(|(_, plan, case)| (plan, case)).unzip();
    let request = Request { repeats: rounds, ..Request::new(Vec::new()) };
    let times = bed.interleaved(sets, &cases, &request)?;
    Ok(plans.into_iter().zip(times).map(|(plan, (_, times))| (plan, Quartiles::of(&times).median)).collect())
}
