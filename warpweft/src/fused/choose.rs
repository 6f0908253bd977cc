//! Predicts the fastest kernel from the waits and bytes of each kernel and the speed of the links.

use super::{Form, Fused, KERNELS, MAX_SPREAD, Plan};
use crate::collective::{Cost, Links, Sums};

/// The kernel of rows that no other one can have.
const LAST: &Fused = &KERNELS[KERNELS.len() - 1];

/// The quantities that costs and the choice of a plan depend on.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Shape {
    /// The number of tokens, one for each row.
    pub tokens: u32,
    /// The size of a row in bytes.
    pub row_bytes: usize,
    /// The number of PEs.
    pub n_pes: u32,
    /// Whether the team has a multicast address.
    pub multicast: bool,
    /// The element types and the outputs, which not every kernel can compute.
    pub form: Form,
    /// The sums that results may have. Deterministic sums have one order of the squares of a row,
    /// whatever the number of tokens.
    pub sums: Sums,
}

impl Shape {
    /// Whether a kernel can be chosen. Kernels that spread rows over CTAs of the same shape add
    /// squares in the same order, in one flight or in two.
    pub(super) fn allows(&self, kernel: &Fused) -> bool {
        let only_spread = !self.form.reads_whole_rows();
        let spreads = self.row_bytes <= MAX_SPREAD || only_spread;
        match kernel.spreads() {
            true => spreads,
            false if self.sums > Sums::Deterministic => !only_spread,
            // Rows that are too long to be spread have one kernel.
            false => !spreads && kernel.name == LAST.name,
        }
    }

    /// The CTAs that share a row and their threads, if sums must have one order for all numbers of
    /// tokens: those of one token.
    pub(super) fn fixed(&self, kernel: &'static Fused) -> Option<(u32, Option<u32>)> {
        let one = || Plan::of(kernel, 1, self.row_bytes, Plan::MAX_SPLIT);
        let strict = self.sums == Sums::Deterministic && kernel.spreads();
        strict.then(one).map(|plan| (plan.split, Some(plan.threads)))
    }

    /// Whether packets go through the switch, which adds in an order of its own.
    pub(super) fn switches(&self, kernel: &Fused) -> bool {
        self.multicast && kernel.packets() && self.sums > Sums::Deterministic
    }

    /// The bytes of the hidden states, and the bytes of a PE's share that it has to send to the
    /// other PEs.
    fn bytes(&self) -> (f64, f64) {
        let (all, pes) = (f64::from(self.tokens) * self.row_bytes as f64, f64::from(self.n_pes.max(1)));
        (all, all * (pes - 1.0) / pes)
    }
}

/// The cost of one flight, which carries all of each row to every PE. Threads send their part of a
/// row at once, so packets are as fast as plain stores (docs/performance.md, `one_flight` on 2
/// H100s).
pub(super) fn one_flight(s: &Shape, plan: &Plan) -> Cost {
    let others = f64::from(s.n_pes.saturating_sub(1));
    // Through the switch, every PE also receives what it sends.
    let by = match plan.switch {
        true => Cost { switch: sent(s, plan) * (others + 1.0), ..Cost::default() },
        false => Cost::stored(s.n_pes, sent(s, plan) * others),
    };
    // A CTA sends its next row before the packets of this row have arrived.
    Cost { packets: 1.0, ..by }
}

/// The time of the second flight relative to that of packets with flags. The first flight also
/// contains the start of the CTAs, whose skew the second does not have. Two flights on 4 H100s took
/// this (docs/performance.md), and so does each flight of the allreduce by `lamport`.
const SECOND: f64 = 0.7;

/// The cost of two flights: a part of each row goes to each PE, and the sums go to all PEs.
pub(super) fn two_flights(s: &Shape, plan: &Plan) -> Cost {
    let pes = f64::from(s.n_pes.max(1));
    let part = sent(s, plan) * (pes - 1.0) / pes;
    let by = match plan.switch {
        true => Cost { switch: sent(s, plan), ..Cost::stored(s.n_pes, part) },
        false => Cost::stored(s.n_pes, 2.0 * part),
    };
    // Sums are not sent ahead. Half of the flights of further rows are hidden, because CTAs are not
    // in step.
    Cost { packets: 1.0 + SECOND + 0.5 * (rounds(s, plan) - 1.0), ..by }
}

/// The bytes of the packets of all rows to one PE.
fn sent(s: &Shape, plan: &Plan) -> f64 {
    f64::from(s.tokens) * plan.row_packets(s.row_bytes) as f64 * 16.0
}

/// The number of rows that the same CTAs process in sequence.
fn rounds(s: &Shape, plan: &Plan) -> f64 {
    (f64::from(s.tokens) * f64::from(plan.split) / f64::from(plan.ctas.max(1))).ceil()
}

/// The cost of two flights for each row, with packets of twice the size of their data.
pub(super) fn low_latency(s: &Shape, plan: &Plan) -> Cost {
    let (all, others) = s.bytes();
    let sums = if plan.switch {
        Cost { switch: 2.0 * all, packed: 2.0 * others, ..Cost::default() }
    } else {
        Cost { packed: 4.0 * others, ..Cost::default() }
    };
    Cost { packets: 2.0 * rounds(s, plan), ..sums }
}

/// The cost of two barriers and of loads of all rows of all PEs.
pub(super) fn one_shot(s: &Shape, _: &Plan) -> Cost {
    let (all, others) = s.bytes();
    let pes = f64::from(s.n_pes);
    if s.multicast {
        Cost { waits: 2.0, switch: pes * all, ..Cost::default() }
    } else {
        Cost { waits: 2.0, pull: pes * others, ..Cost::default() }
    }
}

/// The cost of two barriers, of loads of a share of all rows, and of stores of its sums to all PEs.
pub(super) fn two_shot(s: &Shape, _: &Plan) -> Cost {
    let (all, others) = s.bytes();
    if s.multicast {
        Cost { waits: 2.0, switch: all + all / f64::from(s.n_pes.max(1)), ..Cost::default() }
    } else {
        Cost { waits: 2.0, pull: others, push: others, ..Cost::default() }
    }
}

impl Plan {
    /// The predicted microseconds of a launch.
    pub fn predict(&self, shape: &Shape, links: &Links) -> f64 {
        let cost = (self.kernel.cost)(shape, self);
        links.predict(&cost, self.ctas).total() + self.kernel.norm_us
    }

    /// The kernel with the least predicted time on these links and a GPU with `sms`
    /// multiprocessors.
    pub fn choose(shape: &Shape, sms: u32, links: &Links) -> Plan {
        let plan = |kernel: &'static Fused| {
            let plan = match shape.fixed(kernel) {
                Some(split) => Plan::spread(kernel, shape.tokens, shape.row_bytes, sms, split),
                None => Plan::of(kernel, shape.tokens, shape.row_bytes, sms),
            };
            let plan = Plan { switch: shape.switches(kernel), ..plan };
            (plan.predict(shape, links), plan)
        };
        let plans = KERNELS.iter().filter(|kernel| shape.allows(kernel)).map(plan);
        let best = plans.min_by(|a, b| a.0.total_cmp(&b.0));
        best.unwrap_or_else(|| plan(LAST)).1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(tokens: u32, n_pes: u32) -> Shape {
        let (form, sums) = (Form::plain(weft_ir::Scalar::BF16), Sums::Ordinary);
        Shape { tokens, row_bytes: 16 << 10, n_pes, multicast: false, form, sums }
    }

    fn chosen(n_pes: u32, multicast: bool) -> Vec<&'static str> {
        let of = |tokens| {
            let shape = Shape { multicast, ..shape(tokens, n_pes) };
            Plan::choose(&shape, 132, &Links::H200).kernel.name
        };
        [1, 8, 16, 128, 512, 8192].map(of).to_vec()
    }

    /// One token and two PEs use one flight. With two PEs, it moves as many bytes as the kernels
    /// with barriers. Eight PEs would send everything to everyone, so they use two flights, and for
    /// thousands of tokens two shots, whose sums do not wait row by row.
    #[test]
    fn packets_are_chosen_until_sums_wait_for_too_many_rows() {
        let [flight, flights, two] = ["one_flight", "two_flights", "two_shot"];
        assert_eq!(chosen(8, false), [flight, flights, flights, flights, flights, two]);
        assert_eq!(chosen(2, false), [flight; 6]);
        assert_eq!(chosen(8, true)[0], flight);
        assert_eq!(chosen(8, true)[5], two);
    }

    /// The choice is the flights that were the faster ones on H100s (docs/performance.md, hidden
    /// 8192): one on 2 GPUs, and on 4 two from 16 tokens on. For 1 and 8 tokens on 4 GPUs, which
    /// were not measured, one flight is ahead by a clear margin.
    #[test]
    fn the_measured_flights_are_chosen() {
        let choice = |tokens, n_pes| Plan::choose(&shape(tokens, n_pes), 132, &Links::H200);
        for tokens in 1..=512 {
            assert_eq!(choice(tokens, 2).kernel.name, "one_flight", "{tokens} tokens on 2 GPUs");
        }
        for tokens in [16, 64, 128, 256, 512] {
            assert_eq!(choice(tokens, 4).kernel.name, "two_flights", "{tokens} tokens on 4 GPUs");
        }
        for tokens in [1, 8] {
            let us = |kernel| {
                let shape = shape(tokens, 4);
                Plan::of(kernel, tokens, shape.row_bytes, 132).predict(&shape, &Links::H200)
            };
            let [one, two] = [0, 1].map(|i| us(&KERNELS[i]));
            assert!(one + 0.2 < two, "{tokens} tokens: {one} and {two} us");
            assert_eq!(choice(tokens, 4).kernel.name, "one_flight");
        }
    }

    /// The times of the choice are near those of the same kernels on 4 H100s. There, waits ended for
    /// each lane. Since they end for a whole warp, two flights take at least 0.3 us less on 2 H200s.
    #[test]
    fn times_of_two_flights_are_near_those_that_were_measured() {
        for (tokens, us) in [(16, 5.20), (64, 8.41), (128, 13.55), (256, 24.96), (512, 43.88)] {
            let shape = shape(tokens, 4);
            let time = Plan::choose(&shape, 132, &Links::H200).predict(&shape, &Links::H200);
            let us = us - 0.3;
            assert!((time / us - 1.0).abs() < 0.08, "{tokens} tokens: {time} and {us} us");
        }
    }

    /// Deterministic sums add the squares of a row in the order of one kind of CTAs, for every
    /// number of tokens. Rows that are too long for a cluster have one kernel.
    #[test]
    fn deterministic_sums_have_one_shape() {
        let orders = |n_pes, row_bytes, sums| {
            let of = |tokens| {
                let shape = Shape { row_bytes, sums, multicast: true, ..shape(tokens, n_pes) };
                let plan = Plan::choose(&shape, 132, &Links::H200);
                let name = if plan.kernel.spreads() { "spread" } else { plan.kernel.name };
                (name, plan.split, plan.threads)
            };
            let mut all: Vec<_> = (0..15).flat_map(|power| [1 << power, 3 << power]).map(of).collect();
            all.sort_unstable();
            all.dedup();
            all
        };
        for n_pes in [2, 4, 8] {
            for row_bytes in [4 << 10, 16 << 10, 32 << 10] {
                let strict = orders(n_pes, row_bytes, Sums::Deterministic);
                assert!(strict.len() == 1 && strict[0].0 == "spread", "{n_pes} {row_bytes}: {strict:?}");
            }
            assert_eq!(orders(n_pes, 256 << 10, Sums::Deterministic), [("two_shot", 1, 0)]);
        }
        assert!(orders(8, 16 << 10, Sums::Ordinary).len() > 1);
    }

    /// Only kernels that spread rows compute LayerNorm and scales of groups.
    #[test]
    fn forms_choose_kernels_that_compute_them() {
        for form in [(true, 0), (false, 128)] {
            for power in 0..16 {
                let of = shape(1 << power, 8);
                let form = Form { layer: form.0, group: form.1, ..of.form };
                let plan = Plan::choose(&Shape { form, ..of }, 132, &Links::H200);
                assert!(form.fits(plan.kernel), "{form:?}: {}", plan.kernel.name);
            }
        }
    }

    /// Packets without flags have the bytes of their data, whether CTAs process one row or several.
    /// Flags double them, except for three vectors for each thread, whose packets are dense.
    #[test]
    fn packets_are_counted() {
        let packed = |tokens, threads, flags| {
            let shape = shape(tokens, 2);
            let of = |kernel| {
                let plan = Plan::spread(kernel, tokens, 16 << 10, 132, (1, Some(threads)));
                ((kernel.cost)(&shape, &Plan { flags, ..plan }).neighbour / f64::from(tokens)) as usize
            };
            let [one, two] = [0, 1].map(|i| of(&KERNELS[i]));
            assert_eq!(one, two, "both flights together carry what one flight carries to the other PE");
            one
        };
        assert_eq!([packed(64, 1024, false), packed(256, 512, false), packed(512, 512, false)], [16384; 3]);
        assert_eq!([packed(64, 1024, true), packed(512, 512, true)], [32768; 2]);
        assert_eq!(packed(512, 352, true), 352 * 4 * 16);
    }
}
