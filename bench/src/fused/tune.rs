//! Tuning: finds the fastest plan for a number of tokens by measurement.

use super::{Contender, Fused, Plan, ProgressSink, Report, Request, Row, RowSplit, run};
use crate::BenchError;
use weft::fused::tuning::{Entry, Setting, Table};
use weft_runtime::World;

/// The kernels of warpweft with every number of CTAs for a row, and with one to four vectors of 16
/// bytes for each thread.
pub fn candidates(row_bytes: usize) -> Vec<Contender> {
    let mut all = Vec::new();
    for kernel in Fused::ALL {
        if !kernel.spreads() {
            all.push(Contender::Fused(kernel));
            continue;
        }
        for split in [1, 2, 4, 8] {
            let whole = Plan::spread(kernel, 1, row_bytes, 1, (split, None)).threads;
            let mut threads: Vec<u32> =
                [1, 2, 3, 4].map(|each| whole.div_ceil(each).next_multiple_of(32)).into();
            threads.dedup();
            all.extend(threads.into_iter().map(|n| Contender::Spread(kernel, RowSplit::of(split, n))));
        }
    }
    all
}

/// Measures all candidates for each number of tokens of a request, and returns the fastest ones.
/// Rows with wrong results do not count, but stay in the report. *Collective.*
///
/// # Errors
///
/// Fails where [`run`] fails.
pub fn tune(world: &World, request: &Request, done: ProgressSink<'_>) -> Result<(Report, Table), BenchError> {
    let row_bytes = request.hidden as usize * request.form.dtype.bytes() as usize;
    let request = Request { contenders: candidates(row_bytes), check: true, ..request.clone() };
    let report = run(world, &request, done)?;
    let multicast = report.lowering == "multimem";
    let setting = Setting::of(world.device(), world.n_pes(), multicast)?;
    let sms = world.device().sm_count()?;
    let best = |rows: &[Row]| {
        let right = rows.iter().zip(&request.contenders).filter(|(row, _)| row.wrong == Some(0));
        let (row, contender) =
            right.min_by(|(a, _), (b, _)| a.time_us.median.total_cmp(&b.time_us.median))?;
        let plan = match contender {
            Contender::Spread(kernel, split) => split.plan(kernel, row.tokens, row_bytes, sms),
            Contender::Fused(kernel) => Plan::of(kernel, row.tokens, row_bytes, sms),
            _ => return None,
        };
        Some(Entry::new(&plan, row.tokens, row_bytes, row.time_us.median))
    };
    let entries = report.rows.chunks(request.contenders.len()).filter_map(best).collect();
    let table = Table::new(setting, report.date.clone(), entries);
    Ok((report, table))
}
