//! Litmus tests: the simulator shows no outcome that the axioms of PTX's memory consistency model forbid, and over many
//! seeds those that tell a weak machine from a sequentially consistent one.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod axioms;
mod program;
mod published;
mod shapes;

use axioms::{Verdict, allowed};
use program::Program;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Schedules that each program is run with.
const SEEDS: u64 = 60;

/// Programs of each kind that are drawn, beside those of the usual shapes; `WEFT_LITMUS` asks for more of them.
fn drawn() -> usize {
    std::env::var("WEFT_LITMUS").ok().and_then(|n| n.parse().ok()).unwrap_or(1000)
}

/// Calls `f` for each program, on all cores.
fn for_each(programs: &[Program], f: impl Fn(&Program) + Sync) {
    let next = AtomicUsize::new(0);
    let work = || {
        while let Some(program) = programs.get(next.fetch_add(1, Ordering::Relaxed)) {
            f(program);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(work);
        }
    });
}

#[test]
fn nothing_that_the_axioms_forbid_is_shown() {
    let programs = [shapes::all(), shapes::drawn(drawn(), 1), shapes::handed_over(drawn(), 3)].concat();
    let wrong = Mutex::new(Vec::new());
    for_each(&programs, |program| {
        let allowed = allowed(program);
        for (outcome, seed) in program.outcomes(0..SEEDS) {
            if !allowed.contains_key(&outcome) {
                wrong.lock().unwrap().push(format!("{program}: {outcome:?} with seed {seed}"));
            }
        }
    });
    let wrong = wrong.into_inner().unwrap();
    let shown = wrong.iter().take(20).cloned().collect::<Vec<_>>().join("\n");
    assert!(wrong.is_empty(), "{} of {} programs and outcomes:\n{shown}", wrong.len(), programs.len());
}

/// A run is told to have a race if each execution with its outcome has one, and not if none has.
#[test]
fn races_are_found_where_the_axioms_have_them() {
    let programs = [shapes::all(), shapes::drawn(drawn(), 2), shapes::handed_over(drawn(), 4)].concat();
    let wrong = Mutex::new(Vec::new());
    for_each(&programs, |program| {
        let allowed = allowed(program);
        for ((outcome, found), seed) in program.checked_outcomes(0..SEEDS) {
            let wanted = match allowed.get(&outcome) {
                Some(Verdict::Silent) => false,
                Some(Verdict::Racy) => true,
                Some(Verdict::Either) | None => continue,
            };
            if found != wanted {
                let what = if found { "a false report" } else { "a miss" };
                wrong.lock().unwrap().push(format!("{what}: {program}: {outcome:?} with seed {seed}"));
            }
        }
    });
    let wrong = wrong.into_inner().unwrap();
    let misses = wrong.iter().filter(|w| w.starts_with("a miss")).count();
    let shown = wrong.iter().take(20).cloned().collect::<Vec<_>>().join("\n");
    assert!(wrong.is_empty(), "{} wrong, {misses} of them misses:\n{shown}", wrong.len());
}

/// What hardware shows of programs whose threads are ordered too weakly is seen by the simulator too.
#[test]
fn what_weak_programs_do_is_shown() {
    for (name, program, weak) in shapes::weak() {
        let allowed = allowed(&program);
        let has = |(read, last): &program::Outcome| weak.iter().all(|w| w.is(read, last));
        assert!(allowed.keys().any(has), "{name}: the axioms forbid it: {program}");
        let shown = program.outcomes(0..6000);
        assert!(shown.keys().any(has), "{name} is not shown by {program}: {shown:?}");
    }
}
