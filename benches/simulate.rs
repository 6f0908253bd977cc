//! The two-shot allreduce on eight simulated PEs, 1 Mi elements each. Run on a quiet machine: `cargo bench --bench simulate`.

#![allow(missing_docs, clippy::unwrap_used, reason = "a benchmark")]

use criterion::{Criterion, criterion_group, criterion_main};
use std::time::Duration;
use weft::{KernelFile, Lowering, Options};
use weft_run::{Outcome, Ran, RunOptions, run_file};

const TEXT: &str = include_str!("../examples/allreduce_two_shot.weft");

fn simulated(outcome: Outcome) -> Duration {
    match outcome.ran {
        Ran::Simulator { time, .. } => time,
        Ran::Gpus { .. } => Duration::ZERO,
    }
}

fn simulate(c: &mut Criterion) {
    let file = KernelFile::parse("allreduce_two_shot.weft", TEXT).unwrap();
    for (name, lowering) in [("multimem", Lowering::Multimem), ("unicast", Lowering::Unicast)] {
        let mut options = Options::new("sm_90a".parse().unwrap());
        options.lowering = lowering;
        let options = RunOptions::new(options, 8);
        // The run's own clock covers the launch alone, without making data and checking it.
        c.bench_function(&format!("simulate 8 PEs x 1 Mi f32, two-shot, {name}"), |b| {
            b.iter_custom(|n| (0..n).map(|_| simulated(run_file(&file, &options).unwrap())).sum());
        });
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(10);
    targets = simulate
}
criterion_main!(benches);
