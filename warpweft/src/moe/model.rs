//! Predicts the time of a mixture of experts on GPUs that were not measured.
//!
//! The model assumes this:
//!
//! - Every expert is equally likely for each choice of a token, and a token has an expert once. So
//!   a token goes to a PE with the probability that one of its experts is there, and crosses the
//!   link once.
//! - The launch with products takes as long as the products in tiles of whole rows, or as the bytes
//!   that it moves, whichever is longer, and the time until the rows of the first expert arrive.
//!   Bytes may take [`SHARE`] of a link before they slow products down.
//! - Bytes go through the busiest port of a GPU, at the rates of [`Links`]. A result is sent back
//!   for each choice during the products, and those of the last wave of tiles are not hidden. If a
//!   PE adds up its results of a token, one sum is sent back for each token and PE after the
//!   products.
//! - A PE copies a token to its further rows at [`COPY_GBPS`] during the products, and adds results
//!   up at that rate.
//! - In the form for few tokens, nothing is hidden, and packets are twice as large as their data.
//! - Counts take two barriers of the grid, a word to the other PEs, and [`COUNTS_US`] for the entries themselves.
//!
//! The model was not fitted to measurements of mixtures of experts.

use super::{Plan, Problem};
use crate::collective::Links;
use crate::gemm::model::cycles;
use crate::gemm::{self, FusedTeam, Machine, Param, Shape};

/// The part of a link's bandwidth that pushes may take before loads of the same multiprocessors stall, as in fused
/// products.
const SHARE: f64 = 0.75;
/// The bandwidth at which a GPU reads its own memory and at the same time writes to it, in 10^9
/// bytes per second.
const COPY_GBPS: f64 = 1500.0;
/// Microseconds in which the CTAs count the entries and list the tokens.
const COUNTS_US: f64 = 5.0;

/// The number of multiprocessors of the GPUs that the kernels are written for.
const SMS: f64 = 132.0;
/// Elements of a tile whose results are sent after the last product.
const LAST_TILE: f64 = 128.0 * 256.0;

/// The bytes that a PE moves.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Bytes {
    /// Tokens that are sent to other PEs.
    pub dispatch: f64,
    /// Tokens that a PE copies to further rows in its own memory.
    pub copies: f64,
    /// Results that arrive from other PEs.
    pub combine: f64,
}

/// The predicted microseconds of both launches, by cause.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Estimate {
    /// The products of the experts.
    pub product_us: f64,
    /// The transfer of tokens during the products.
    pub dispatch_us: f64,
    /// The time until the rows of the first expert arrive.
    pub first_us: f64,
    /// The part of sending results back that follows the products, and adding them up.
    pub combine_us: f64,
    /// The launches, the counts, and waits for other PEs.
    pub start_us: f64,
}

impl Estimate {
    /// The sum of all parts.
    pub fn total(&self) -> f64 {
        let Estimate { product_us, dispatch_us, first_us, combine_us, start_us } = *self;
        (product_us + first_us).max(dispatch_us / SHARE) + combine_us + start_us
    }
}

/// The probability that none of `choices` different experts of `experts` is one of `own`.
fn none_of(experts: u32, own: u32, choices: u32) -> f64 {
    let factor = |c: u32| f64::from(experts.saturating_sub(own).saturating_sub(c)) / f64::from(experts - c);
    (0..choices.min(experts)).map(factor).product()
}

/// Whether a PE adds up its results of a token before it sends the sum. It does so if a token has
/// enough experts of a PE for this to save at least a quarter of the rows.
pub(super) fn adds_at_experts(problem: &Problem, pes: u32) -> bool {
    let pes = pes.max(1);
    let here = 1.0 - none_of(problem.experts, problem.experts / pes, problem.choices);
    pes > 1 && f64::from(pes) * here <= 0.75 * f64::from(problem.choices)
}

/// Whether results are sent back one by one during the products, in the form for many tokens. If a
/// PE adds up its results of a token, sums after the products are faster for many tokens in small
/// groups. On two H100s, 4096 tokens with 8 of 64 experts take 2002 us with sums and 2237 us with
/// single results. With 8 of 8 experts, they take 2220 and 1913 us. For 256 tokens, the times are
/// 518 and 494 us with 8 of 64 experts, and 220 and 199 us with 8 of 8.
pub(super) fn returns_beside(problem: &Problem, pes: u32) -> bool {
    /// The most tokens and the fewest rows of an expert for which single results are faster.
    const TOKENS: u64 = 1024;
    const ROWS: u64 = 4096;
    let rows = problem.entries() * u64::from(pes) / u64::from(problem.experts.max(1));
    !adds_at_experts(problem, pes) || problem.tokens <= TOKENS || rows >= ROWS
}

/// Bytes that a dispatch and the way back on `pes` PEs move.
pub(super) fn bytes(problem: &Problem, pes: u32) -> Bytes {
    let pes = pes.max(1);
    let Problem { tokens, hidden, columns, experts, choices, dtype, out, .. } = *problem;
    let tokens = tokens as f64;
    let here = 1.0 - none_of(experts, experts / pes, choices);
    let row = (hidden * u64::from(dtype.bytes())) as f64;
    let others = f64::from(pes - 1);
    let rows = problem.entries() as f64;
    Bytes {
        dispatch: tokens * others * here * row,
        copies: (rows - tokens * f64::from(pes) * here).max(0.0) * row,
        combine: rows * others / f64::from(pes) * (columns * u64::from(out.bytes())) as f64,
    }
}

fn us(bytes: f64, gbps: f64) -> f64 {
    bytes / gbps / 1e3
}

/// Microseconds of adding results up. A copy reads and writes, and this reads a row for each
/// choice.
fn sum_us(problem: &Problem) -> f64 {
    let rows = (problem.entries() + problem.tokens) as f64 / 2.0;
    us(rows * (problem.columns * u64::from(problem.out.bytes())) as f64, COPY_GBPS)
}

/// The transfers and waits besides the products, in the form for few tokens and in the one for
/// many.
fn moved_us(problem: &Problem, pes: u32, links: &Links) -> [Estimate; 2] {
    let Bytes { dispatch, copies, combine } = bytes(problem, pes);
    let push = if pes > 2 { links.push_gbps } else { links.neighbour_gbps };
    let waits = if pes < 2 { 0.0 } else { 2.0 * links.packet_us };
    let launch = links.launch_us + links.work_us;
    let packets = |bytes: f64| us(2.0 * bytes, links.packet_gbps);
    let sent = packets(dispatch) + us(copies, COPY_GBPS);
    let few = Estimate {
        product_us: 0.0,
        dispatch_us: sent,
        first_us: sent,
        combine_us: packets(combine) + sum_us(problem),
        start_us: 3.0 * launch + waits,
    };
    // The part of all tokens that have their first row at the first expert.
    let first = 1.0 - none_of(problem.experts, 1, problem.choices);
    let own = problem.experts / pes.max(1);
    let here = (1.0 - none_of(problem.experts, own, problem.choices)).max(f64::MIN_POSITIVE);
    let last = LAST_TILE * SMS * f64::from(problem.out.bytes()) * f64::from(pes - 1) / f64::from(pes);
    let dispatch_us = us(dispatch, push) + us(copies, COPY_GBPS);
    let (hidden, exposed) = match returns_beside(problem, pes) {
        true => (us(combine, push), us(combine.min(last), push)),
        // One sum for each token and PE that has an expert of it.
        false => (0.0, us(combine * f64::from(pes) * here / f64::from(problem.choices), push)),
    };
    let many = Estimate {
        product_us: 0.0,
        dispatch_us: dispatch_us + hidden,
        first_us: dispatch_us * first / here,
        combine_us: exposed + sum_us(problem),
        start_us: 2.0 * launch + COUNTS_US + waits + if pes < 2 { 0.0 } else { links.flight_us },
    };
    [few, many]
}

/// Cycles that a store role waits after each half of a strip of results, so that all roles together
/// take [`SHARE`] of a link. They are few enough for a tile's strips to be sent while the next tile
/// is multiplied.
pub(super) fn pace(problem: &Problem, plan: &Plan, pes: u32, links: &Links) -> i64 {
    /// Bytes of half a strip of 64 rows and 64 columns, of elements of 16 bits.
    const HALF: f64 = 4096.0;
    /// Multiply-adds of elements of 16 bits in a cycle.
    const RATE: f64 = 2048.0;
    if pes < 2 {
        return 0;
    }
    let gbps = SHARE * if pes > 2 { links.push_gbps } else { links.neighbour_gbps };
    let crossing = 2.0 * SMS * HALF * f64::from(pes - 1) / f64::from(pes);
    let tile =
        128.0 * f64::from(plan.bn) * problem.hidden as f64 * f64::from(problem.dtype.bytes()) / 2.0 / RATE;
    let halves = 2.0 * f64::from(plan.bn / 64);
    (us(crossing, gbps) * FusedTeam::CLOCK).min(SHARE * tile / halves) as i64
}

/// Whether the form for few tokens is predicted to take less time.
pub(super) fn is_few(problem: &Problem, pes: u32, links: &Links) -> bool {
    let [few, many] = moved_us(problem, pes.max(1), links);
    few.total() < many.total()
}

/// Predicts the time of the layer on `pes` PEs.
pub(super) fn estimate(
    problem: &Problem,
    plan: &Plan,
    pes: u32,
    machine: Machine,
    links: &Links,
) -> Estimate {
    let pes = pes.max(1);
    let local = u64::from(problem.experts / pes).max(1);
    // Each expert gets an equal number of rows, in whole tiles.
    let rows = problem.entries().div_ceil(local).max(1);
    let shape = Shape::new(rows.next_multiple_of(Problem::ALIGN) * local, problem.columns, problem.hidden);
    let product = gemm::Problem { out: problem.out, ..gemm::Problem::new(shape, problem.dtype) };
    let values = [(Param::Bn, plan.bn), (Param::Bk, plan.bk), (Param::Stages, plan.stages)];
    let tiles =
        values.into_iter().fold(gemm::Plan::default(), |all, (param, n)| all.with(param, n).unwrap_or(all));
    let [few, many] = moved_us(problem, pes, links);
    let moved = if is_few(problem, pes, links) { few } else { many };
    Estimate { product_us: cycles(&product, &tiles, machine.sms) / FusedTeam::CLOCK, ..moved }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_runtime::{DType, Device};

    #[test]
    fn tokens_cross_a_link_once() {
        let problem = |experts, choices| Problem::new(4096, 4096, experts, choices, DType::BF16);
        let row = 4096.0 * 2.0;
        // One expert for each token: half of the tokens go to the other one of two PEs.
        let one = bytes(&problem(8, 1), 2);
        assert!((one.dispatch - 2048.0 * row).abs() < 1.0 && one.copies == 0.0, "{one:?}");
        // Two of eight experts: 1 - (4/8) (3/7) of the tokens go to the other PE, and the rest of
        // the rows are copies.
        let two = bytes(&problem(8, 2), 2);
        let here = 1.0 - 0.5 * 3.0 / 7.0;
        assert!((two.dispatch - 4096.0 * here * row).abs() < 1.0, "{two:?}");
        assert!((two.copies - 4096.0 * (2.0 - 2.0 * here) * row).abs() < 1.0, "{two:?}");
        assert!((two.combine - 4096.0 * row).abs() < 1.0, "{two:?}");
        let eight = bytes(&problem(64, 8), 2);
        assert!((eight.combine - 4.0 * 4096.0 * row).abs() < 1.0, "{eight:?}");
        // All experts: each token goes to every PE.
        let all = bytes(&problem(8, 8), 4);
        assert!((all.dispatch - 3.0 * 4096.0 * row).abs() < 1.0, "{all:?}");
    }

    #[test]
    fn products_hide_what_moves() {
        let machine =
            Machine { target: "sm_90a".parse().unwrap(), sms: 132, memory_gbps: Device::H100_MEMORY_GBPS };
        let of = |experts, choices, pes| {
            let problem = Problem::new(4096, 4096, experts, choices, DType::BF16);
            estimate(&problem, &Plan::default(), pes, machine, &Links::H200)
        };
        let two = of(64, 8, 2);
        assert!(two.dispatch_us < two.product_us && two.first_us < two.dispatch_us / 4.0, "{two:?}");
        assert!(two.total() > two.product_us + two.combine_us);
        // With more PEs, each gets as many rows, and more of them come from others.
        assert!(of(64, 8, 8).dispatch_us > two.dispatch_us);
        assert!(of(64, 8, 1).combine_us < of(64, 8, 2).combine_us);
    }

    #[test]
    fn few_tokens_are_few() {
        let few = |tokens, experts, choices, pes| {
            Problem::new(tokens, 4096, experts, choices, DType::BF16).is_few(pes)
        };
        for pes in [2, 4, 8] {
            assert!(few(1, 64, 8, pes) && few(8, 8, 2, pes) && few(8, 64, 8, pes), "{pes} PEs");
            assert!(!few(4096, 8, 2, pes) && !few(1024, 64, 8, pes), "{pes} PEs");
        }
        // As measured on two H100s.
        for (experts, choices) in [(8, 2), (8, 8), (64, 2), (64, 8)] {
            assert!(few(64, experts, choices, 2) && !few(256, experts, choices, 2), "{choices} of {experts}");
        }
    }

    #[test]
    fn sums_come_back_for_many_small_groups() {
        let beside = |tokens, experts, choices| {
            returns_beside(&Problem::new(tokens, 4096, experts, choices, DType::BF16), 2)
        };
        assert!(beside(4096, 8, 2) && beside(4096, 64, 2) && beside(4096, 8, 8) && !beside(4096, 64, 8));
        assert!(beside(256, 8, 8) && beside(256, 64, 8));
    }
}
