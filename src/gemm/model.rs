//! How long a plan is likely to take, for shapes that nobody has measured.
//!
//! The model counts clock cycles of one multiprocessor: waves of tiles, each as many steps along K as there are, each as
//! long as the slowest of the tensor cores, shared memory, and the L2 cache takes. What lies beyond the edges of D is
//! computed as if it were there. The figures below are NVIDIA's for Hopper, but for the latencies, which are orders of
//! magnitude. The model ranks plans, and does not predict times.

use super::fit::candidates;
use super::{Param, Plan, Problem, Shape};
use std::cmp::Ordering;
use weft_isa::Target;
use weft_runtime::{Device, Error};

/// A GPU, as plans are chosen for it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Machine {
    /// What is compiled for it.
    pub target: Target,
    /// Its multiprocessors.
    pub sms: u32,
}

impl Machine {
    /// That of a device.
    ///
    /// # Errors
    /// `R0501` for a GPU older than all known targets; `R0103`.
    pub fn of(device: &Device) -> Result<Machine, Error> {
        Ok(Machine { target: crate::gpu::target(device)?, sms: device.sm_count()? })
    }
}

/// Bytes that shared memory reads or writes in a cycle.
const SHARED: f64 = 128.0;
/// Bytes that a multiprocessor gets from the L2 cache in a cycle while all of them do: on an H100 a step of 48 KiB takes
/// 1050 cycles.
const CACHE: f64 = 48.0;
/// Bytes that all multiprocessors get from memory in a cycle: 3.35 TB/s at 1.7 GHz.
const MEMORY: f64 = 2000.0;
/// Bytes that a multiprocessor writes to others of its cluster in a cycle.
const CLUSTER: f64 = 32.0;
/// Cycles from a request of a stage to its arrival.
const LATENCY: f64 = 1000.0;
/// Cycles of the first tile before its first product, and of each tile between its last product and the next tile's first.
const START: f64 = 3000.0;
const BETWEEN: f64 = 600.0;
/// Cycles that the CTAs of a cluster wait for each other to add up.
const MEET: f64 = 1500.0;

/// Products that the tensor cores of a multiprocessor add up in a cycle.
fn products(problem: &Problem) -> f64 {
    [4096.0, 2048.0, 1024.0][problem.dtype.bytes().trailing_zeros().min(2) as usize]
}

/// The rows and columns that tiles divide: those of D, or of its transpose.
fn extents(problem: &Problem, plan: &Plan) -> (u64, u64) {
    let Shape { m, n, .. } = problem.shape;
    if plan.get(Param::Swap) == 1 { (n, m) } else { (m, n) }
}

/// Bytes that a CTA gets from the L2 cache for a stage. The CTAs of a cluster share the rows that are a tile's columns, and
/// nothing is read beyond the ends of A and B.
fn fetched(problem: &Problem, plan: &Plan) -> f64 {
    let of = |param| u64::from(plan.get(param));
    let (rows, columns) = extents(problem, plan);
    let rows = of(Param::Bm).min(rows) as f64 + of(Param::Bn).min(columns) as f64 / of(Param::Ctas) as f64;
    rows * (of(Param::Bk) * u64::from(problem.dtype.bytes())) as f64
}

/// Cycles that a plan is likely to take on a GPU with so many multiprocessors.
pub fn cycles(problem: &Problem, plan: &Plan, sms: u32) -> f64 {
    busy(problem, plan, sms).max(START + moved(problem) / MEMORY)
}

/// Bytes that are read from memory and written to it.
fn moved(problem: &Problem) -> f64 {
    let Shape { m, n, k } = problem.shape;
    let (element, out) = (f64::from(problem.dtype.bytes()), f64::from(problem.out.bytes()));
    (m * k + n * k) as f64 * element + (m * n) as f64 * out
}

/// Cycles that a multiprocessor is busy, if memory is no limit.
fn busy(problem: &Problem, plan: &Plan, sms: u32) -> f64 {
    let of = |param| u64::from(plan.get(param));
    let (bm, bn, bk) = (of(Param::Bm), of(Param::Bn), of(Param::Bk));
    let (ctas, split) = (of(Param::Ctas), of(Param::Split));
    let (rows, columns) = extents(problem, plan);
    let (element, out) = (f64::from(problem.dtype.bytes()), f64::from(problem.out.bytes()));
    let tiles = rows.div_ceil(bm * ctas) * columns.div_ceil(bn);
    let waves = tiles.div_ceil((u64::from(sms) / (ctas * split)).max(1)) as f64;
    let steps = problem.shape.k.div_ceil(bk).div_ceil(split) as f64;

    // Each instruction reads 64 rows of A and all of the tile's rows of B.
    let read = ((bm / 64) * (64 + bn) * bk) as f64 * element;
    let written = ((bm + bn) * bk) as f64 * element;
    let step = [
        (bm * bn * bk) as f64 / products(problem),
        (read + written) / SHARED,
        fetched(problem, plan) / CACHE,
        LATENCY / of(Param::Stages) as f64,
    ];
    let step = step.into_iter().fold(0.0, f64::max);
    let store = (bm * bn / split) as f64 * out / CACHE;
    let adding = if split > 1 { MEET + (bm * bn) as f64 * 4.0 / CLUSTER } else { 0.0 };
    START + waves * (steps * step + adding + store + BETWEEN)
}

/// The plans that a problem can be computed with, the one that is likely to be the fastest first. Of plans that memory
/// limits alike, those come first that keep multiprocessors less busy. Then come smaller clusters: of seven large shapes on
/// an H100, two CTAs have 0.998 of the speed of one. Then come those that get fewer bytes from the L2 cache for each
/// product, which takes power, and then those with more bytes on their way.
pub fn ranked(problem: &Problem, machine: Machine) -> Vec<Plan> {
    let Machine { target, sms } = machine;
    let key = |plan: Plan| {
        let of = |param| plan.get(param);
        let products = of(Param::Bm) * of(Param::Bn) * of(Param::Bk);
        let bytes = fetched(problem, &plan) / f64::from(products);
        let ahead = f64::from(of(Param::Bk) * of(Param::Stages));
        let ctas = f64::from(of(Param::Ctas) * of(Param::Split));
        let busy = busy(problem, &plan, sms);
        ([cycles(problem, &plan, sms), busy, ctas, f64::from(of(Param::Swap)), bytes, -ahead], plan)
    };
    let mut all: Vec<([f64; 6], Plan)> = candidates(problem, target).map(key).collect();
    let order = |a: &[f64; 6], b: &[f64; 6]| -> Ordering {
        a.iter().zip(b).map(|(a, b)| a.total_cmp(b)).find(|o| o.is_ne()).unwrap_or(Ordering::Equal)
    };
    all.sort_by(|(a, _), (b, _)| order(a, b));
    all.into_iter().map(|(_, plan)| plan).collect()
}
