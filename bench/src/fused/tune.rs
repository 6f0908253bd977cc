//! Tuning finds the fastest plan for a number of tokens by measurement.

use super::{Contender, Fused, Plan, ProgressSink, Report, Request, Row, RowSplit, run};
use crate::BenchError;
use weft::fused::Form;
use weft::fused::tuning::{Entry, Setting, Table};
use weft_runtime::World;

/// The kernels of warpweft that compute a form, with every number of CTAs for a row, and with one to four vectors of 16
/// bytes for each thread.
pub fn candidates(row_bytes: usize, form: &Form) -> Vec<Contender> {
    let mut all = Vec::new();
    for kernel in Fused::ALL.iter().filter(|kernel| form.fits(kernel)) {
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
/// Rows with wrong results do not count, but stay in the report. This call is *collective*.
///
/// # Errors
///
/// Fails where [`run`] fails.
pub fn tune(world: &World, request: &Request, done: ProgressSink<'_>) -> Result<(Report, Table), BenchError> {
    let row_bytes = request.hidden as usize * request.form.dtype.bytes() as usize;
    let contenders = candidates(row_bytes, &request.form);
    let request = Request { contenders, check: true, ..request.clone() };
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
        Some(Entry::new(&plan, row.tokens, row_bytes, &request.form, row.time_us.median))
    };
    let entries = report.rows.chunks(request.contenders.len()).filter_map(best).collect();
    let table = Table::new(setting, report.date.clone(), entries);
    Ok((report, table))
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_ir::Scalar;

    /// The choice and the tuning support every form of results.
    #[test]
    fn every_form_can_be_chosen_and_tuned() {
        let plain = Form::plain(Scalar::BF16);
        let groups = Form { out: Scalar::E4M3, group: 128, ..plain };
        for (form, kernels) in [(plain, 5), (Form { layer: true, ..plain }, 2), (groups, 2)] {
            let auto = vec![Contender::Auto];
            let request = Request { form, contenders: auto, ..Request::new(vec![1], 8192) };
            request.examine().unwrap();
            let contenders = candidates(16 << 10, &form);
            let name = |c: &Contender| c.name().split(':').next().unwrap_or_default().to_owned();
            let names: std::collections::BTreeSet<_> = contenders.iter().map(name).collect();
            assert_eq!(names.len(), kernels, "{form:?}: {names:?}");
            Request { contenders, ..request }.examine().unwrap();
        }
    }
}
