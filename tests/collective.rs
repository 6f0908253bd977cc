//! Tests every algorithm of the library on the simulator against float64: types, reductions, sizes,
//! teams, placements, alignments, and several consecutive launches.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use weft::collective::{Algorithm, Collective, Placement, Plan, Request, Sums};
use weft::runtime::{DType, Reduce};
use weft_run::{run_file, simulation};

const TYPES: [DType; 10] = [
    DType::BF16,
    DType::F32,
    DType::I32,
    DType::F16,
    DType::E4M3,
    DType::U64,
    DType::F64,
    DType::I8,
    DType::E5M2,
    DType::U16,
];
const OPS: [Reduce; 3] = [Reduce::Sum, Reduce::Min, Reduce::Max];
/// Some counts are multiples of a vector, and most are not.
const COUNTS: [u64; 8] = [1, 7, 33, 1023, 2051, 64, 1300, 130];
const PES: [u32; 6] = [2, 3, 8, 1, 5, 4];
/// The types of algorithms that reserve a value.
const FLOATS: [DType; 3] = [DType::F32, DType::BF16, DType::F16];

/// The number of requests of each algorithm and placement.
const REQUESTS: usize = 3;

/// Tests the `i`th request. Its parameters step through their lists side by side.
fn one(algorithm: &'static Algorithm, place: Placement, i: usize) {
    let pick = |from: usize, by: usize| (i * by + from) % 97;
    let types: &[DType] = if algorithm.lamport { &FLOATS } else { &TYPES };
    let mut request = Request::new(
        algorithm.collective,
        types[pick(0, 1) % types.len()],
        COUNTS[pick(0, 3) % COUNTS.len()],
        PES[pick(0, 1) % PES.len()],
    );
    (request.op, request.place) = (OPS[pick(0, 1) % OPS.len()], place);
    request.multicast = algorithm.switch;
    request.root = (i as u32) % request.n_pes;
    request.reach = !algorithm.net || i % 2 == 1;
    if i % 3 == 2 {
        request.align = request.dtype.bytes();
    }
    let mut plan = Plan::of(algorithm, &request, 3);
    // Idle threads also cost time on the simulator.
    let small = Plan { threads: plan.threads.min(128), ..plan };
    let odd = match i % 2 == 1 && !algorithm.engine {
        true => Plan { threads: 32, unroll: 1 + i as u32 % 3, ..plan },
        false => small,
    };
    // One round of `lamport` may need more threads.
    plan = [odd, small].into_iter().find(|p| p.check(&request, 3).is_ok()).unwrap_or(plan);
    let what = format!("{} {} {place:?}, {request:?}, {plan:?}", algorithm.collective, algorithm.name);
    let (file, mut run) = simulation(&plan, &request, "sm_90a".parse().unwrap()).expect(&what);
    (run.launches, run.seed) = (3, i as u64);
    let outcome = run_file(&file, &run).unwrap_or_else(|e| panic!("{what}: {e}"));
    assert_eq!(outcome.checks().count(), 3, "{what}");
    assert!(outcome.passed(), "{what}: {:?}", outcome.checks().find_map(|c| c.first_wrong));
}

/// Tests requests of each algorithm of a collective, in both placements.
fn all(collective: Collective) {
    let mut algorithms = 0;
    // (Quantised results have no exact reference. tests/sums.rs checks their bounds.)
    let exact = |a: &&Algorithm| (a.sums)(&Request::new(collective, DType::F32, 1, 2)) != Sums::Quantised;
    let own = Algorithm::ALL.iter().filter(|a| a.collective == collective);
    for (k, algorithm) in own.filter(exact).enumerate() {
        algorithms += 1;
        for place in algorithm.places() {
            for i in 0..REQUESTS {
                one(algorithm, place, i + 13 * k);
            }
        }
    }
    assert!(algorithms > 1, "{collective}");
}

#[test]
fn allreduce() {
    all(Collective::AllReduce);
}

#[test]
fn all_gather() {
    all(Collective::AllGather);
}

#[test]
fn reduce_scatter() {
    all(Collective::ReduceScatter);
}

#[test]
fn broadcast() {
    all(Collective::Broadcast);
}

#[test]
fn all_to_all() {
    all(Collective::AllToAll);
}
