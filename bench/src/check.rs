//! Results compared with a reference.

use super::BenchError;
use super::data::{self, Number};
use super::measure::{Case, Harness, Result};
use super::report::Wrong;
use weft::collective::Sums;
use weft_runtime::{DeviceTensor, Graph, Stream, World, cuda};

/// The number of calls in a check, back to back, each with new data.
pub(super) const ROUNDS: std::ops::RangeInclusive<u32> = 1..=3;

impl<T: Number> Harness<'_, T> {
    /// Makes calls with new data each time, with only the copies of inputs and outputs between
    /// them, and compares the results with the reference. Returns the wrong elements on all PEs,
    /// with the first one of the PE of least number that has any. This call is *collective*.
    pub(super) fn check(&self, case: &Case<'_, T>) -> Result<Option<Wrong>> {
        let (stream, device) = (self.stream, self.world.device());
        let mut given = Vec::new();
        let mut got = Vec::new();
        for round in ROUNDS {
            given.push(DeviceTensor::from_slice(&self.data(case.counts.send, round), stream)?);
            got.push(DeviceTensor::<T>::alloc(device, case.counts.recv as usize)?);
        }
        // Elements that a contender fails to write are detected by this value.
        case.output.poison(stream)?;
        self.world.wait_for_all()?;
        let together = |stream: &Stream| match case.orders {
            true => Ok(()),
            false => self.team.barrier(stream),
        };
        let rounds = |stream: &Stream| -> Result<()> {
            for (given, got) in given.iter().zip(&got) {
                case.input.load(given, self.world, stream)?;
                together(stream)?;
                (case.call)(stream)?;
                together(stream)?;
                case.output.store(got, self.world, stream)?;
            }
            Ok(())
        };
        match self.bench.graph {
            true => {
                let graph = Graph::capture(stream, rounds)?;
                graph.launch()?;
                cuda::wait_for(stream)?;
            }
            false => rounds(stream)?,
        }
        let mut wrong: Option<Wrong> = None;
        for (round, got) in ROUNDS.zip(&got) {
            let found = self.compare(case, round, &got.to_vec(stream)?);
            wrong = added([wrong, found]);
        }
        agreed(self.world, wrong)
    }

    /// The greatest error of a result that still counts as right, for data up to the limit.
    fn slack(&self, sums: Sums) -> f64 {
        if sums != Sums::Quantised {
            return 0.0;
        }
        let n_pes = self.world.n_pes();
        let max = self.limit() as f64;
        let given = vec![max; n_pes as usize];
        let exact = max * f64::from(n_pes);
        // The type that the result is rounded to can represent all whole numbers up to the sum.
        Sums::quantised_error(&given, exact) + 0.5
    }

    fn compare(&self, case: &Case<'_, T>, round: u32, got: &[T]) -> Option<Wrong> {
        let counts = case.counts;
        let (n_pes, me, limit) = (self.world.n_pes(), self.world.my_pe(), self.limit());
        let bench = self.bench;
        let of = counts.recv * u64::from(n_pes) * ROUNDS.count() as u64;
        let slack = self.slack(case.sums);
        let given = |pe: u32, i: u64| data::datum(pe, i, round, limit);
        let wrong = |index: u64| {
            let exact = bench.operation.result(bench.op, counts, n_pes, me, index, given);
            let (want, found) = (T::of(exact), *got.get(usize::try_from(index).ok()?)?);
            let near = (found.as_f64() - exact as f64).abs() <= slack;
            (found != want && !near).then(|| (index, format!("{found:?}"), format!("{want:?}")))
        };
        let parts = data::in_parts(n_pes, got.len() as u64, |range| {
            let mut found = range.filter_map(&wrong);
            let first = found.next();
            first.map(|first| (1 + found.count() as u64, first))
        });
        let elements = parts.iter().flatten().map(|(n, _)| n).sum();
        let (_, (index, found, expected)) = parts.into_iter().flatten().next()?;
        Some(Wrong { elements, of, pe: me, round, index, found, expected })
    }
}

/// The combined findings of all PEs. This call is *collective*.
pub(super) fn agreed(world: &World, wrong: Option<Wrong>) -> Result<Option<Wrong>> {
    // The PEs take different times to compare.
    world.wait_for_all()?;
    let bytes = serde_json::to_vec(&wrong).unwrap_or_default();
    let all = world.all_gather_host(&bytes)?;
    let all = all.iter().map(|b| serde_json::from_slice::<Option<Wrong>>(b));
    let all = all
        .collect::<std::result::Result<Vec<_>, _>>()
        .map_err(|e| BenchError::Request(format!("the findings of a PE cannot be parsed: {e}")))?;
    Ok(added(all))
}

/// Combines findings into one: the first finding, with the total number of wrong elements.
fn added(all: impl IntoIterator<Item = Option<Wrong>>) -> Option<Wrong> {
    let found: Vec<Wrong> = all.into_iter().flatten().collect();
    let elements = found.iter().map(|w| w.elements).sum();
    found.into_iter().next().map(|first| Wrong { elements, ..first })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_are_added_up() {
        let wrong = |pe, elements| Wrong {
            elements,
            of: 100,
            pe,
            round: 1,
            index: 3,
            found: "1".into(),
            expected: "2".into(),
        };
        assert_eq!(added([None, None]), None);
        assert_eq!(added([None, Some(wrong(1, 4)), Some(wrong(2, 5))]), Some(wrong(1, 9)));
    }
}
