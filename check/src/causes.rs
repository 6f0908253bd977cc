//! The order of findings: causes come before their consequences, and a consequence names its cause.

use super::finding::{Access, Finding};
use weft::codes::WRONG_RESULT;

/// The code of a read of uninitialised memory.
const UNWRITTEN: &str = weft_sim::codes::UNWRITTEN.as_str();

/// The distance of a finding from the mistake in the kernel's text.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Distance {
    Cause,
    /// A read before the first write, because the write is not ordered before it.
    EarlyRead,
    Stop,
    Result,
}

/// Sorts findings by distance from their causes, and adds the cause to the help of a consequence.
pub(super) fn sorted(findings: Vec<Finding>) -> Vec<Finding> {
    let far = |f| distance(f, &findings);
    let mut keyed: Vec<(Distance, Finding)> = findings.iter().map(|f| (far(f), f.clone())).collect();
    keyed.sort_by_key(|(distance, _)| *distance);
    for i in 0..keyed.len() {
        let (before, rest) = keyed.split_at_mut(i);
        let (distance, f) = &mut rest[0];
        let cause = before.iter().find(|(d, b)| d < distance && b.replay.kernel == f.replay.kernel);
        match (*distance, cause) {
            (Distance::EarlyRead, Some(_)) => {
                let text =
                    "the read comes before the write, since the data race above leaves their order open";
                f.help = text.to_owned();
            }
            (Distance::Result, Some((_, cause))) => {
                f.help = format!("fix {} above first: it can cause wrong values", cause.code);
            }
            _ => {}
        }
    }
    keyed.into_iter().map(|(_, f)| f).collect()
}

fn distance(f: &Finding, all: &[Finding]) -> Distance {
    match f.code.as_str() {
        WRONG_RESULT => Distance::Result,
        UNWRITTEN if all.iter().any(|race| races_with(race, f)) => Distance::EarlyRead,
        code if code < weft_sim::codes::RACE.as_str() => Distance::Stop,
        _ => Distance::Cause,
    }
}

/// Whether one of the two accesses of a data race is at the location of a read.
fn races_with(race: &Finding, read: &Finding) -> bool {
    let place = |a: &Access| (a.place.source.clone(), a.place.ptx_line);
    race.replay.kernel == read.replay.kernel
        && race.accesses.len() == 2
        && race.accesses.iter().any(|a| read.accesses.iter().any(|b| place(a) == place(b)))
}
