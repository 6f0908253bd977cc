//! Litmus tests: the simulator shows no outcome that the axioms of PTX's memory consistency model forbid, and over many
//! seeds those that tell a weak machine from a sequentially consistent one.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod axioms;
mod program;
mod published;
mod shapes;

use axioms::allowed;
use program::Program;
use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Schedules that each program is run with.
const SEEDS: u64 = 60;

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
    let programs = shapes::all();
    let wrong = Mutex::new(Vec::new());
    for_each(&programs, |program| {
        let allowed = allowed(program);
        for (outcome, seed) in program.outcomes(0..SEEDS) {
            if !allowed.contains(&outcome) {
                wrong.lock().unwrap().push(format!("{program}: {outcome:?} with seed {seed}"));
            }
        }
    });
    let wrong = wrong.into_inner().unwrap();
    let shown = wrong.iter().take(20).cloned().collect::<Vec<_>>().join("\n");
    assert!(wrong.is_empty(), "{} of {} programs and outcomes:\n{shown}", wrong.len(), programs.len());
}

/// What hardware shows of programs whose threads are ordered too weakly is seen by the simulator too.
#[test]
fn what_weak_programs_do_is_shown() {
    for (name, program, weak) in shapes::weak() {
        let allowed: BTreeSet<_> = allowed(&program);
        let has = |(read, last): &program::Outcome| weak.iter().all(|w| w.is(read, last));
        assert!(allowed.iter().any(has), "{name}: the axioms forbid it: {program}");
        let shown = program.outcomes(0..6000);
        assert!(shown.keys().any(has), "{name} is not shown by {program}: {shown:?}");
    }
}
