//! Predictions of the model for fused norms, for PEs that this machine does not have.

use super::{Contender, Plan, Request, RowSplit, Shape};
use crate::BenchError;
use crate::model::SMS;
use std::fmt::Write;
use weft::collective::{Links, Sums};

/// The predictions for each number of tokens and contender on `pes` H200s, as a table with a line
/// without the switch and a line with it. The line of `auto` has the kernel that the model chooses.
/// Contenders that are not one kernel have no prediction, and a last line says so.
///
/// # Errors
///
/// Fails where [`Request::examine`] fails, or if no contender has a prediction.
pub fn predict(request: &Request, pes: u32) -> Result<String, BenchError> {
    request.examine()?;
    let Request { hidden, form, .. } = *request;
    let mut text = format!(
        "# allreduce, residual and norm of {hidden} {} on {pes} H200s: a prediction, nothing is measured; docs/fused.md has the assumptions\n\
         #  tokens      size  switch       us    start  flights   moving     norm      CTAs  kernel\n",
        form.dtype
    );
    let (kernels, others): (Vec<Contender>, Vec<Contender>) =
        request.contenders.iter().copied().partition(Contender::is_kernel);
    let left_out: Vec<_> = others.iter().map(|c| c.name()).collect();
    if kernels.is_empty() {
        let what = left_out.join(", ");
        return Err(BenchError::Request(format!("the model predicts fused kernels, and not {what}")));
    }
    let row_bytes = hidden as usize * form.dtype.bytes() as usize;
    for tokens in &request.tokens {
        for (contender, multicast) in kernels.iter().flat_map(|c| [(c, false), (c, true)]) {
            let (tokens, sums) = (*tokens, Sums::Ordinary);
            let shape = Shape { tokens, row_bytes, n_pes: pes, multicast, form, sums };
            let chosen = |shape: &Shape| Plan::choose(shape, SMS, &Links::H200);
            if let Some(plan) = contender.plan(&shape, SMS, request.split, chosen) {
                line(&mut text, contender, &plan, &shape);
            }
        }
    }
    for name in left_out {
        let _ = writeln!(text, "# left out: {name}: the model predicts fused kernels");
    }
    Ok(text)
}

fn line(text: &mut String, contender: &Contender, plan: &Plan, shape: &Shape) {
    let time = Links::H200.predict(&(plan.kernel.cost)(shape, plan), plan.ctas);
    let ctas = match plan.split {
        1 => plan.ctas.to_string(),
        split => format!("{} ({split})", plan.ctas),
    };
    let auto = if matches!(contender, Contender::Auto) { "auto: " } else { "" };
    let _ = writeln!(
        text,
        "{:>9}{:>10}{:>8}{:>9.2}{:>9.2}{:>9.2}{:>9.2}{:>9.2}{ctas:>10}  {auto}{}",
        shape.tokens,
        shape.tokens as usize * shape.row_bytes,
        if shape.multicast { "yes" } else { "no" },
        plan.predict(shape, &Links::H200),
        time.launch_us,
        time.latency_us,
        time.moving_us,
        plan.kernel.norm_us,
        name(plan)
    );
}

/// The name of a plan's kernel, with its CTAs and threads if it spreads rows.
fn name(plan: &Plan) -> String {
    let Plan { kernel, split: ctas, threads, early, flags, .. } = *plan;
    match kernel.spreads() {
        true => format!("{}:{}", kernel.name, RowSplit { ctas, threads, late: !early, flags }),
        false => kernel.name.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(request: &Request, pes: u32) -> Vec<Vec<String>> {
        let text = predict(request, pes).unwrap();
        let words = |line: &str| line.split_whitespace().map(str::to_owned).collect();
        text.lines().skip(2).map(words).collect()
    }

    /// The time of a line is the sum of its parts, and that of `auto` is the least of all kernels.
    #[test]
    fn the_choice_has_its_name_and_the_least_time() {
        let request = Request::new(vec![1, 64, 4096], 8192);
        let lines = lines(&request, 8);
        let (notes, rows): (Vec<_>, Vec<_>) = lines.iter().partition(|words| words[0] == "#");
        assert_eq!(notes.len(), 1);
        assert!(notes[0].contains(&"allreduce+norm:".to_owned()), "{notes:?}");
        assert_eq!(rows.len(), 3 * 6 * 2);
        let us = |words: &[String], i: usize| words[i].parse::<f64>().unwrap();
        for row in &rows {
            let parts: f64 = (4..8).map(|i| us(row, i)).sum();
            assert!((parts - us(row, 3)).abs() < 0.03, "{row:?}");
        }
        for of in rows.chunks(12) {
            for switch in ["no", "yes"] {
                let same: Vec<_> = of.iter().filter(|row| row[2] == switch).collect();
                let auto = same.iter().find(|row| row.contains(&"auto:".to_owned())).unwrap();
                let least = same.iter().map(|row| us(row, 3)).fold(f64::MAX, f64::min);
                assert_eq!(us(auto, 3), least, "{same:?}");
                let twin = same.iter().filter(|row| row.last() == auto.last() && row[3] == auto[3]);
                assert_eq!(twin.count(), 2, "the choice is one of the kernels: {same:?}");
            }
        }
    }

    #[test]
    fn an_allreduce_and_a_kernel_have_no_prediction() {
        let request =
            Request { contenders: Contender::ours("separate").unwrap(), ..Request::new(vec![1], 8192) };
        let e = predict(&request, 4).unwrap_err();
        assert!(e.to_string().contains("not allreduce+norm"), "{e}");
    }

    /// Plans are named as they are launched, so names of plans that cannot be launched are refused.
    #[test]
    fn variants_are_those_that_can_run() {
        for good in ["one_flight:8x128", "two_flights:1x352:flags", "one_flight:2x512:late"] {
            let contenders = Contender::ours(good).unwrap();
            let request = Request { contenders, ..Request::new(vec![4], 8192) };
            assert_eq!(lines(&request, 4)[0].last().map(String::as_str), Some(good));
        }
        for bad in ["one_flight:8x256", "one_flight:3x128", "one_flight:16x32", "two_flights:4x100"] {
            let e = Contender::ours(bad).unwrap_err();
            assert!(e.contains(&format!("`{bad}` cannot run")) && e.contains("1024 threads"), "{e}");
        }
    }
}
