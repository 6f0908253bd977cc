//! How long a plan is likely to take, for shapes that nobody has measured.
//!
//! The model counts clock cycles of one multiprocessor: waves of tiles, each as many steps along K as there are, each as
//! long as the slowest of the tensor cores, shared memory, and the L2 cache takes. What lies beyond the edges of D is
//! computed as if it were there. The figures below are NVIDIA's for Hopper, but for the latencies, which are orders of
//! magnitude. The model ranks plans, and does not predict times.

use super::fit::candidates;
use super::{Param, Plan, Problem, Shape};
use std::cmp::Ordering;

/// Bytes that shared memory reads or writes in a cycle.
const SHARED: f64 = 128.0;
/// Bytes that a multiprocessor gets from the L2 cache in a cycle.
const CACHE: f64 = 64.0;
/// Bytes that all multiprocessors get from memory in a cycle: 3.35 TB/s at 1.7 GHz.
const MEMORY: f64 = 2000.0;
/// Cycles from a request of a stage to its arrival.
const LATENCY: f64 = 1000.0;
/// Cycles of the first tile before its first product, and of each tile between its last product and the next tile's first.
const START: f64 = 3000.0;
const BETWEEN: f64 = 600.0;

/// Products that the tensor cores of a multiprocessor add up in a cycle.
fn products(problem: &Problem) -> f64 {
    [4096.0, 2048.0, 1024.0][problem.dtype.bytes().trailing_zeros().min(2) as usize]
}

/// Cycles that a plan is likely to take on a GPU with so many multiprocessors.
pub fn cycles(problem: &Problem, plan: &Plan, sms: u32) -> f64 {
    let of = |param| u64::from(plan.get(param));
    let (bm, bn, bk, stages) = (of(Param::Bm), of(Param::Bn), of(Param::Bk), of(Param::Stages));
    let Shape { m, n, k } = problem.shape;
    let (element, out) = (problem.dtype.bytes() as f64, problem.out.bytes() as f64);
    let tiles = m.div_ceil(bm) * n.div_ceil(bn);
    let waves = tiles.div_ceil(u64::from(sms.max(1))) as f64;
    let steps = k.div_ceil(bk) as f64;

    let stage = ((bm + bn) * bk) as f64 * element;
    // Each instruction reads 64 rows of A and all of the tile's rows of B.
    let read = ((bm / 64) * (64 + bn) * bk) as f64 * element;
    let step = [
        (bm * bn * bk) as f64 / products(problem),
        (read + stage) / SHARED,
        stage / CACHE,
        LATENCY / stages as f64,
    ];
    let step = step.into_iter().fold(0.0, f64::max);
    let store = (bm * bn) as f64 * out / CACHE;
    let busy = START + waves * (steps * step + store + BETWEEN);
    let bytes = (m * k + n * k) as f64 * element + (m * n) as f64 * out;
    busy.max(START + bytes / MEMORY)
}

/// The plans that a problem can be computed with, the one that is likely to be the fastest first. Of plans that the model
/// ranks alike, those with more bytes on their way come first.
pub fn ranked(problem: &Problem, sms: u32) -> Vec<Plan> {
    let mut all: Vec<(f64, u32, Plan)> =
        candidates(problem).map(|plan| (cycles(problem, &plan, sms), ahead(&plan), plan)).collect();
    let order =
        |a: &(f64, u32, Plan), b: &(f64, u32, Plan)| -> Ordering { a.0.total_cmp(&b.0).then(b.1.cmp(&a.1)) };
    all.sort_by(order);
    all.into_iter().map(|(_, _, plan)| plan).collect()
}

/// Elements along K that can be on their way at once.
fn ahead(plan: &Plan) -> u32 {
    plan.get(Param::Bk) * plan.get(Param::Stages)
}
