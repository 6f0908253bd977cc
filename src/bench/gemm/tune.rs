//! Which plan is the fastest for a problem, by measurement.

use super::Request;
use super::measure::{Bed, Call, Case, Result};
use super::report::Quartiles;
use crate::bench::BenchError;
use crate::bench::data::in_each;
use crate::gemm::tuning::{Entry, Setting, Table};
use crate::gemm::{Gemm, Param, Plan, Problem, Selector, Tuning, ranked};
use std::time::SystemTime;
use weft_runtime::Device;

/// Plans that are compared once more, in turns, after each was timed by itself.
const FINALISTS: usize = 5;

/// What is to be tuned.
#[derive(Clone, Debug)]
pub struct Tune {
    /// The products.
    pub problems: Vec<Problem>,
    /// Plans that are tried for each of them.
    pub budget: u32,
    /// Rounds in which the fastest of them are compared.
    pub rounds: u32,
}

/// What was found for a problem.
#[derive(Clone, PartialEq, Debug)]
pub struct Found {
    /// The fastest plan, with microseconds of a call.
    pub entry: Entry,
    /// The plan that the model puts first, with microseconds of a call.
    pub model: (Plan, f64),
    /// Plans that were timed.
    pub plans: u32,
    /// Plans that were left out, and why: they do not compile, or their results are wrong.
    pub left_out: Vec<String>,
}

impl Tune {
    /// 24 plans for each product.
    pub fn new(problems: Vec<Problem>) -> Tune {
        Tune { problems, budget: 24, rounds: 12 }
    }

    /// Looks at all that can be known before a GPU works.
    ///
    /// # Errors
    /// `R0505` for a problem that the kernel does not compute; no shape, no plan, or no round.
    pub fn examine(&self) -> Result<()> {
        if self.problems.is_empty() || self.budget == 0 || self.rounds == 0 {
            return Err(BenchError::Request(
                "there is nothing to tune: no shape, no plan, or no round".into(),
            ));
        }
        Ok(self.problems.iter().try_for_each(Problem::check)?)
    }
}

/// The plans that are tried first: of each group that differs in the number of stages alone the one that the model
/// prefers, and then the others, each in the model's order.
pub fn tried(problem: &Problem, sms: u32, budget: u32) -> Vec<Plan> {
    let group = |plan: &Plan| -> Vec<u32> {
        Param::ALL.iter().filter(|p| **p != Param::Stages).map(|p| plan.get(*p)).collect()
    };
    let (mut first, mut rest, mut seen) = (Vec::new(), Vec::new(), Vec::new());
    for plan in ranked(problem, sms) {
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

/// Tunes on a GPU; `done` gets what was found for each problem as it comes.
///
/// # Errors
/// As [`Tune::examine`]; no plan of a problem compiles or computes it right; whatever the GPU refuses.
pub fn tune(
    device: &Device,
    what: &Tune,
    done: &mut dyn FnMut(&Found) -> std::io::Result<()>,
) -> Result<Table> {
    what.examine()?;
    let bed = Bed::new(device, true)?;
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
fn fastest(bed: &Bed, problem: &Problem, what: &Tune) -> Result<Found> {
    let plans = tried(problem, bed.device.sm_count()?, what.budget);
    let sets = bed.sets(problem, false)?;
    let mut left_out = Vec::new();
    // What is compiled here on all cores is found in the cache below.
    let compiled = in_each(&plans, |plan| {
        Gemm::with(&bed.device, *problem, &Tuning::Plan(*plan)).map(drop).map_err(|e| format!("{plan}: {e}"))
    });
    let mut cases: Vec<Case> = Vec::new();
    for (plan, compiled) in plans.iter().zip(compiled) {
        match compiled {
            Ok(()) => cases.push(bed.ours(&sets, &Selector::new(&bed.device, &Tuning::Plan(*plan))?)?),
            Err(why) => left_out.push(why),
        }
    }
    bed.check(&sets, &mut cases)?;
    cases.retain(|case| match case.fault() {
        None => true,
        Some(why) => {
            left_out.push(why);
            false
        }
    });
    let mut timed: Vec<(f64, Case)> = Vec::new();
    for case in cases {
        timed.push((bed.quick(&sets, &case)?, case));
    }
    timed.sort_by(|a, b| a.0.total_cmp(&b.0));
    let count = timed.len() as u32;
    let is_first = |case: &Case| matches!(&case.call, Call::Ours { plan, .. } if plans.first() == Some(plan));
    let mut place = 0;
    timed.retain(|(_, case)| {
        place += 1;
        place <= FINALISTS || is_first(case)
    });
    let cases: Vec<Case> = timed.into_iter().map(|(_, case)| case).collect();
    let rounds = Request { repeats: what.rounds, ..Request::new(Vec::new()) };
    let times = bed.interleaved(&sets, &cases, &rounds)?;
    let medians: Vec<(Plan, f64)> = cases
        .iter()
        .zip(times)
        .filter_map(|(case, (_, times))| match &case.call {
            Call::Ours { plan, .. } => Some((*plan, Quartiles::of(&times).median)),
            Call::Cublas { .. } => None,
        })
        .collect();
    let best = medians.iter().copied().min_by(|a, b| a.1.total_cmp(&b.1));
    let none = || BenchError::Request(format!("{problem}: no plan computes it: {}", left_out.join("; ")));
    let (plan, us) = best.ok_or_else(none)?;
    let model = medians.iter().copied().find(|(p, _)| plans.first() == Some(p)).unwrap_or((plan, us));
    Ok(Found { entry: Entry { problem: *problem, plan, us }, model, plans: count, left_out })
}
