//! The timeline of the simulated run.

use crate::page::{Shown, bytes, missing};
use crate::study::Run;
use maud::{Markup, html};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use weft_sim::{Activity, Trace, TraceSpan};

/// The number of steps that the time is divided into.
const STEPS: usize = 600;
/// The greatest number of rows of CTAs and roles.
const ROWS: usize = 64;
/// The height of a row in units of the picture.
const HEIGHT: u64 = 10;

/// An activity: the beginning of the simulator's text for the wait, the class of its colour, its
/// name, and its rank. An activity of lower rank explains those of higher rank: warps wait at a
/// barrier of the CTA because another of them waits for memory.
type Wait = (&'static str, &'static str, &'static str, u32);

const WAITS: [Wait; 7] = [
    ("barrier of the cluster", "w-cluster", "waits at a barrier of the cluster", 4),
    ("barrier", "w-barrier", "waits at a barrier of the CTA", 5),
    ("polls shared", "w-shared", "polls shared memory: a stage of a pipeline", 3),
    ("polls", "w-memory", "polls memory: another CTA or PE", 1),
    ("NVSHMEM", "w-library", "waits in an NVSHMEM function", 2),
    ("lanes", "w-other", "waits for something else", 6),
    ("", "w-other", "waits for something else", 6),
];
const RUNS: Wait = ("", "runs", "runs", 0);

/// The activity of a warp: what it waits for, or none while it runs.
type Doing = Option<Arc<str>>;

/// The key of a row: its PE, its CTA (z, y, x), and the number of its role. Warps without a role
/// have the number after the last role.
type RowKey = (usize, [u32; 3], usize);

/// The time of warps in each activity, by step.
type Row = BTreeMap<usize, BTreeMap<Doing, u64>>;

pub(crate) fn section(kernel: &Shown<'_>) -> Markup {
    let run = match &kernel.study.run {
        Ok(run) => run,
        Err(why) => return missing("The kernel did not run on simulated PEs, so there is no timeline.", why),
    };
    let trace = &run.examined.trace;
    let (rows, left_out) = rows(run);
    let legend = legend(&rows, trace.end);
    html! {
        p.lead {
            "Each row is a CTA, or a role of a CTA, in the launch that the section Traffic describes. It runs if one of its warps "
            "does. Otherwise its colour shows what it waits for, and a wait for other CTAs or PEs takes priority over a wait within the "
            "CTA. Time is counted in warp instructions of all PEs together."
        }
        div.legend { @for (_, class, name) in legend { span { span.swatch.(class) {} " " (name) } } }
        div.timeline data-end=(trace.end) data-steps=(STEPS) {
            div.zoom role="group" aria-label="Zoom" {
                @for (action, sign, name) in
                    [("out", "\u{2212}", "Zoom out"), ("in", "+", "Zoom in"), ("left", "\u{25c0}", "Earlier"), ("right", "\u{25b6}", "Later"), ("all", "All", "Show all")]
                { button type="button" data-zoom=(action) aria-label=(name) title=(name) { (sign) } }
            }
            @for pe in 0..run.replay.pes {
                div.pe { "PE " (pe) }
                @for (key, row) in rows.iter().filter(|((of, ..), _)| *of == pe) { (activity(run, key, row)) }
                (transfers(trace, pe))
                (moved(trace, pe))
            }
            div.row.axis { span.label {} div.ticks { @for tick in 0..=4 { span { (trace.end * tick / 4) } } } }
        }
        output.detail aria-live="polite" {}
        @if left_out > 0 { p.quiet { (left_out) " more CTAs and roles are not shown." } }
        @if trace.dropped > 0 { p.quiet { (trace.dropped) " events at the end were not recorded." } }
    }
}

/// The row of a warp.
fn row_of(run: &Run, span: &TraceSpan) -> RowKey {
    let thread = span.warp * 32;
    let role = run.roles.iter().position(|r| (r.first..r.first + r.threads).contains(&thread));
    let [x, y, z] = span.cta;
    (span.pe, [z, y, x], role.unwrap_or(run.roles.len()))
}

/// The rows that are shown, which are of the same CTAs on each PE, and the number of those that are
/// not.
fn rows(run: &Run) -> (BTreeMap<RowKey, Row>, usize) {
    let trace = &run.examined.trace;
    let mut rows: BTreeMap<RowKey, Row> = BTreeMap::new();
    for span in &trace.spans {
        add(rows.entry(row_of(run, span)).or_default(), span, trace.end);
    }
    // Whole CTAs are shown, and at least one of each PE.
    let of_pe = ROWS / (run.replay.pes * (run.roles.len() + 1)).max(1);
    let all = rows.len();
    let ctas: BTreeSet<_> = rows.keys().map(|(pe, cta, _)| (*pe, *cta)).collect();
    rows.retain(|(pe, cta, _), _| ctas.range((*pe, [0; 3])..(*pe, *cta)).count() < of_pe.max(1));
    let left_out = all - rows.len();
    (rows, left_out)
}

/// Adds the activity of a warp to the steps of its time.
fn add(row: &mut Row, span: &TraceSpan, end: u64) {
    let doing = match &span.activity {
        Activity::Running => None,
        Activity::Waiting { what, .. } => Some(what.clone()),
    };
    let start_of = |step: u64| step * end / STEPS as u64;
    let step_of = |time: u64| time * STEPS as u64 / end.max(1);
    for step in step_of(span.start)..=step_of(span.end.saturating_sub(1)).min(STEPS as u64 - 1) {
        let (from, to) = (start_of(step).max(span.start), start_of(step + 1).min(span.end));
        let time = to.saturating_sub(from).max(1);
        *row.entry(step as usize).or_default().entry(doing.clone()).or_default() += time;
    }
}

/// The activities of a row over time, each with its first step and one past its last. A step has
/// the activity of lowest rank that takes half of it in some warp, or else the one that takes the
/// most time.
fn stretches(row: &Row, end: u64) -> Vec<(usize, usize, Doing)> {
    let half = end / (2 * STEPS as u64);
    let mut all: Vec<(usize, usize, Doing)> = Vec::new();
    for (step, doings) in row {
        let long = doings.iter().filter(|(_, time)| **time >= half);
        let long = long.min_by_key(|(doing, time)| (wait(doing).3, u64::MAX - **time));
        let Some((doing, _)) = long.or_else(|| doings.iter().max_by_key(|(_, time)| **time)) else {
            continue;
        };
        match all.last_mut() {
            Some((_, end, last)) if *end == *step && last == doing => *end += 1,
            _ => all.push((*step, step + 1, doing.clone())),
        }
    }
    all
}

fn wait(doing: &Doing) -> Wait {
    let Some(what) = doing else { return RUNS };
    WAITS.into_iter().find(|(begin, ..)| what.starts_with(begin)).unwrap_or(RUNS)
}

fn activity(run: &Run, (_, [z, y, x], role): &RowKey, row: &Row) -> Markup {
    let cta = if (*y, *z) == (0, 0) { x.to_string() } else { format!("({x}, {y}, {z})") };
    let role = match run.roles.get(*role) {
        Some(role) => format!(" {}", role.name),
        None if run.roles.is_empty() => String::new(),
        None => " other warps".to_owned(),
    };
    let label = format!("CTA {cta}{role}");
    let end = run.examined.trace.end;
    let time = |step: usize| end * step as u64 / STEPS as u64;
    html! {
        div.row {
            span.label title=(label) { (label) }
            (track(&label, html! {
                @for (start, end, doing) in stretches(row, end) {
                    rect.(wait(&doing).1) x=(start) width=(end - start) height=(HEIGHT) {
                        title { (label) ", " (time(start)) " to " (time(end)) ": " @match &doing {
                            None => "runs",
                            Some(what) => { "waits: " (what) }
                        } }
                    }
                }
            }))
        }
    }
}

fn track(label: &str, body: Markup) -> Markup {
    html! {
        svg.track viewBox={ "0 0 " (STEPS) " " (HEIGHT) } preserveAspectRatio="none" role="img" aria-label=(label) { (body) }
    }
}

/// The operations that a PE issued, each from its issue to its completion.
fn transfers(trace: &Trace, pe: usize) -> Markup {
    let own: Vec<_> =
        trace.transfers.iter().filter(|t| t.from == pe && t.what != "bulk load").take(STEPS).collect();
    let at = |time: u64| time as f64 * STEPS as f64 / trace.end.max(1) as f64;
    html! {
        @if !own.is_empty() {
            div.row {
                span.label { "transfers" }
                (track("transfers", html! {
                    @for t in own {
                        rect.transfer x=(format!("{:.1}", at(t.start))) width=(format!("{:.1}", at(t.end - t.start).max(1.0)))
                            height=(HEIGHT) {
                            title { (t.what) " of " (t.bytes) " bytes to PE " (t.to) ", " (t.start) " to " (t.end) }
                        }
                    }
                }))
            }
        }
    }
}

/// The bytes that other PEs read from and wrote to a PE's memory, by step.
fn moved(trace: &Trace, pe: usize) -> Markup {
    let mut steps: BTreeMap<u64, u64> = BTreeMap::new();
    let mut last = 0;
    for t in trace.traffic.iter().filter(|t| t.pe == pe) {
        let step = (t.time * STEPS as u64 / trace.end.max(1)).min(STEPS as u64 - 1);
        *steps.entry(step).or_default() += t.bytes - last;
        last = t.bytes;
    }
    let max = steps.values().copied().max().unwrap_or(1).max(1);
    html! {
        @if !steps.is_empty() {
            div.row {
                span.label { "bytes out" }
                (track("bytes out", html! {
                    @for (step, count) in &steps {
                        @let height = (HEIGHT * count).div_ceil(max);
                        rect.moved x=(step) width="1" y=(HEIGHT - height) height=(height) { title { (bytes(*count)) } }
                    }
                }))
            }
        }
    }
}

/// The colours that occur, with their names.
fn legend(rows: &BTreeMap<RowKey, Row>, end: u64) -> BTreeSet<(u32, &'static str, &'static str)> {
    let doings = rows.values().flat_map(|row| stretches(row, end));
    doings.map(|(.., doing)| wait(&doing)).map(|(_, class, name, rank)| (rank, class, name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(warp: u32, start: u64, end: u64, waits: Option<&str>) -> TraceSpan {
        let activity = waits
            .map_or(Activity::Running, |what| Activity::Waiting { what: what.into(), detail: "".into() });
        TraceSpan { pe: 0, cta: [0; 3], warp, kernel: "k".into(), start, end, activity }
    }

    #[test]
    fn a_row_runs_if_a_warp_does_and_otherwise_shows_what_holds_it_up() {
        let end = STEPS as u64 * 10;
        let mut row = Row::new();
        let spans = [
            span(0, 0, 1000, None),
            span(0, 1000, 2000, Some("polls flag")),
            span(0, 2000, 3000, Some("barrier 0")),
            span(1, 0, 3000, Some("barrier 0")),
            span(2, 0, 3000, Some("barrier 0")),
        ];
        spans.iter().for_each(|s| add(&mut row, s, end));
        let want =
            [(0, 100, None), (100, 200, Some("polls flag".into())), (200, 300, Some("barrier 0".into()))];
        assert_eq!(stretches(&row, end), want);
        let class = |what: &str| wait(&Some(what.into())).1;
        assert_eq!(
            ["barrier 0", "polls shared 0x10", "polls x", "anything"].map(class),
            ["w-barrier", "w-shared", "w-memory", "w-other"]
        );
    }
}
