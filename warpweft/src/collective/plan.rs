//! Requests of collectives, and plans that carry them out: the algorithm and the size of the
//! launch.

use super::{Algorithm, Collective, Counts, Links, Sums};
use weft_runtime::{DType, Reduce};

/// The least number of threads of a CTA that has enough work for them.
const MIN_THREADS: u64 = 128;

/// Whether the result replaces the operand.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Placement {
    /// The operand and the result are two tensors.
    OutOfPlace,
    /// The operand and the result are one tensor.
    InPlace,
}

impl Placement {
    /// The name that reports print.
    pub fn name(self) -> &'static str {
        ["out of place", "in place"][self as usize]
    }
}

/// A collective of certain operands.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Request {
    /// The collective that is requested.
    pub collective: Collective,
    /// The type of the elements.
    pub dtype: DType,
    /// The operation of a reduction.
    pub op: Reduce,
    /// The elements of a PE's part: `count` of [`Counts`].
    pub count: u64,
    /// The number of PEs of the team.
    pub n_pes: u32,
    /// Where the result goes: to the operand or to another tensor.
    pub place: Placement,
    /// Whether operand and result are tensors of the symmetric heap.
    pub symmetric: [bool; 2],
    /// Whether the team has a multicast address.
    pub multicast: bool,
    /// Whether loads and stores of every PE reach the memory of the others.
    pub reach: bool,
    /// A power of two of at most 16 that divides the address in bytes of every PE's part of both
    /// operands.
    pub align: u32,
    /// The PE that a broadcast is from, by its rank in the team.
    pub root: u32,
    /// The sums that are allowed for a reduction.
    pub sums: Sums,
}

impl Request {
    /// A request for a sum out of place, with root 0 and symmetric tensors aligned to 16 bytes,
    /// without multicast.
    pub fn new(collective: Collective, dtype: DType, count: u64, n_pes: u32) -> Request {
        let mut request = Request {
            collective,
            dtype,
            op: Reduce::Sum,
            count,
            n_pes,
            place: Placement::OutOfPlace,
            symmetric: [true; 2],
            multicast: false,
            reach: true,
            align: 16,
            root: 0,
            sums: Sums::default(),
        };
        request.align = request.aligned(0);
        request
    }

    /// The value of `align` for tensors at these addresses, which are combined by a bitwise or.
    pub(super) fn aligned(&self, addresses: u64) -> u32 {
        // The kernel of a single PE is the same, so it is divided, too.
        let divided = self.collective.parts(2) > 1;
        let part = if divided { self.count.wrapping_mul(self.dtype.bytes() as u64) } else { 0 };
        1 << (addresses | part | 16).trailing_zeros()
    }

    /// The numbers of elements of both operands.
    pub fn counts(&self) -> Counts {
        self.collective.of_count(self.count, self.dtype.bytes() as u64, self.n_pes)
    }

    /// Bytes of the larger operand of a PE, as nccl-tests counts them.
    pub fn bytes(&self) -> u64 {
        self.counts().bytes
    }
}

/// The way in which a request is carried out. All PEs of a team must use the same plan.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Plan {
    /// The algorithm that carries out the request.
    pub algorithm: &'static Algorithm,
    /// The number of CTAs.
    pub ctas: u32,
    /// Threads of a CTA.
    pub threads: u32,
    /// The number of steps of a thread that are in flight at once.
    pub unroll: u32,
}

/// The limits of a plan: CTAs, threads and steps in flight. The size of the request determines how
/// many of them are used.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, serde::Serialize, serde::Deserialize)]
pub struct Limits {
    /// The greatest number of CTAs.
    pub ctas: u32,
    /// Threads of a CTA.
    pub threads: u32,
    /// The number of steps of a thread that are in flight at once.
    pub unroll: u32,
}

impl Limits {
    /// The default limits of an algorithm.
    pub fn of(algorithm: &Algorithm, max_ctas: u32) -> Limits {
        Limits { ctas: max_ctas, threads: algorithm.threads, unroll: algorithm.unroll }
    }
}

impl Plan {
    /// The plan with the default limits of an algorithm.
    pub fn of(algorithm: &'static Algorithm, request: &Request, max_ctas: u32) -> Plan {
        Plan::within(algorithm, request, Limits::of(algorithm, max_ctas), max_ctas)
    }

    /// Makes a plan within `limits`, in a handle with `max_ctas` CTAs. Each thread has
    /// one step of 16 bytes, or of a packet. There are many small CTAs rather than few large ones,
    /// and all have the same number of rounds.
    pub fn within(algorithm: &'static Algorithm, request: &Request, limits: Limits, max_ctas: u32) -> Plan {
        let units = (algorithm.work)(request).div_ceil(algorithm.unit).max(1);
        let max_threads = u64::from(limits.threads).clamp(32, 1024) / 32 * 32;
        let max = u64::from(limits.ctas.min(max_ctas).clamp(1, algorithm.max_ctas));
        // CTAs have whole warps, but no more threads than units of work.
        let warps = |units: u64| units.next_multiple_of(32);
        let min = warps(units).min(MIN_THREADS).min(max_threads);
        let threads = warps(units.div_ceil(max)).clamp(min, max_threads);
        let room = (u64::from((algorithm.max_steps)(request)) / threads).clamp(1, 16);
        let ctas = units.div_ceil(threads).min(max);
        let steps = units.div_ceil(ctas * threads);
        let unroll = steps.next_power_of_two().min(u64::from(limits.unroll.max(1))).min(room);
        let rounds = units.div_ceil(ctas * threads * unroll);
        let ctas = units.div_ceil(rounds * threads * unroll);
        let narrow = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
        let plan = Plan { algorithm, ctas: narrow(ctas), threads: narrow(threads), unroll: narrow(unroll) };
        // Large steps leave staging memory for fewer CTAs.
        let stages = algorithm.stages(plan.threads, plan.unroll, max_ctas).max(1);
        Plan { ctas: plan.ctas.min(stages), ..plan }
    }

    /// Whether each thread has at most one step.
    pub(super) fn is_once(&self, request: &Request) -> bool {
        self.unroll == 1 && super::cost::rounds(request, self) <= 1.0
    }

    /// Checks that a handle with workspaces for `max_ctas` CTAs can launch the plan.
    ///
    /// # Errors
    /// Fails if the plan does not fit the request. The message says why.
    pub fn check(&self, request: &Request, max_ctas: u32) -> Result<(), String> {
        let Plan { algorithm, ctas, threads, unroll } = *self;
        algorithm.can(request)?;
        let name = algorithm.name;
        let max = algorithm.stages(threads, unroll, max_ctas).min(algorithm.max_ctas);
        if ctas == 0 || ctas > max {
            return Err(format!("{name} needs 1 to {max} CTAs here, not {ctas}"));
        }
        if threads == 0 || threads > 1024 || !threads.is_multiple_of(32) {
            return Err(format!("{name} needs whole warps, 32 to 1024 threads, not {threads}"));
        }
        let steps = (algorithm.max_steps)(request);
        if unroll == 0 || unroll > 16 {
            return Err(format!("{name} can have 1 to 16 steps of a thread in flight, not {unroll}"));
        }
        if threads * unroll > steps {
            return Err(format!(
                "{name}: {threads} threads with {unroll} steps each exceed the limit of {steps} steps"
            ));
        }
        if algorithm.lamport && super::cost::rounds(request, self) > 1.0 {
            let room = u64::from(ctas) * u64::from(threads * unroll) * algorithm.unit;
            return Err(format!(
                "{name} has one round: {ctas} CTAs of {threads} threads with {unroll} steps have places for {room} \
                 bytes, but the request has {}",
                request.bytes()
            ));
        }
        Ok(())
    }

    /// The algorithm that the model predicts to be the fastest.
    ///
    /// # Errors
    ///
    /// Fails if no algorithm supports the request. The message says why.
    pub fn choose(request: &Request, max_ctas: u32, links: &Links) -> Result<Plan, String> {
        let mut why = Vec::new();
        let mut best: Option<(f64, Plan)> = None;
        for a in Algorithm::of(request.collective) {
            if let Err(e) = a.allowed(request) {
                why.push(format!("{}: {e}", a.name));
                continue;
            }
            let plan = Plan::of(a, request, max_ctas);
            if let Err(e) = plan.check(request, max_ctas) {
                why.push(e);
                continue;
            }
            let time = links.time(&plan, request);
            if best.is_none_or(|(fastest, _)| time < fastest) {
                best = Some((time, plan));
            }
        }
        let none =
            || format!("no algorithm of {} supports this request: {}", request.collective, why.join("; "));
        best.map(|(_, plan)| plan).ok_or_else(none)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(name: &str, bytes: u64) -> (u32, u32, u32) {
        let request = Request::new(Collective::AllReduce, DType::BF16, bytes / 2, 8);
        let plan = Plan::of(Algorithm::find(Collective::AllReduce, name).unwrap(), &request, 132);
        plan.check(&request, 132).unwrap();
        (plan.ctas, plan.threads, plan.unroll)
    }

    #[test]
    fn work_is_spread() {
        assert_eq!(plan("ll", 16), (1, 32, 1));
        assert_eq!(plan("ll", 1 << 10), (1, 128, 1));
        assert_eq!(plan("ll", 16 << 10), (16, 128, 1));
        assert_eq!(plan("ll", 64 << 10), (64, 128, 1));
        assert_eq!(plan("ll_two_shot", 1 << 20), (64, 256, 1));
        assert_eq!(plan("push_direct", 1 << 20), (64, 128, 1));
        assert_eq!(plan("push_direct", 16 << 20), (128, 256, 4));
        assert_eq!(plan("push_direct", 1 << 30), (131, 256, 4));
        assert_eq!(plan("two_shot", 1 << 30), (128, 512, 4));
    }

    #[test]
    fn what_is_chosen() {
        let choose = |bytes: u64, change: fn(&mut Request)| {
            let mut request = Request::new(Collective::AllReduce, DType::BF16, bytes / 2, 8);
            change(&mut request);
            Plan::choose(&request, 132, &Links::H200).map(|p| p.algorithm.name)
        };
        assert_eq!(choose(1 << 10, |_| {}), Ok("lamport"));
        assert_eq!(choose(1 << 10, |r| r.dtype = DType::I16), Ok("ll"));
        assert_eq!(choose(64 << 10, |r| r.dtype = DType::I16), Ok("ll_two_shot"));
        assert_eq!(choose(512 << 10, |_| {}), Ok("lamport_two_shot"));
        assert_eq!(choose(512 << 10, |r| r.dtype = DType::I32), Ok("push_direct"));
        assert_eq!(choose(4 << 20, |_| {}), Ok("lamport_two_shot"));
        assert_eq!(choose(64 << 20, |_| {}), Ok("rotate"));
        assert_eq!(choose(16 << 20, |r| r.symmetric = [false; 2]), Ok("push"));
        assert_eq!(choose(1 << 10, |r| r.multicast = true), Ok("lamport_switch"));
        assert_eq!(choose(1 << 10, |r| r.reach = false), Ok("net"));
        let why = choose(1 << 10, |r| r.op = Reduce::Xor).unwrap_err();
        assert!(why.contains("ll supports sum, min and max, but not xor"), "{why}");
    }

    #[test]
    fn what_cannot_be_launched() {
        let request = Request::new(Collective::AllReduce, DType::F32, 1 << 20, 8);
        let find = |name| Algorithm::find(Collective::AllReduce, name).unwrap();
        let (good, lamport) = (Plan::of(find("push"), &request, 132), find("lamport"));
        for (bad, why) in [
            (Plan { ctas: 0, ..good }, "1 to 132 CTAs"),
            (Plan { ctas: 133, ..good }, "1 to 132 CTAs"),
            (Plan { threads: 48, ..good }, "whole warps"),
            (Plan { threads: 1024, unroll: 2, ..good }, "1 to 66 CTAs"),
            (Plan { unroll: 0, ..good }, "steps"),
            (Plan { algorithm: lamport, unroll: 1, ..good }, "have places for"),
        ] {
            let said = bad.check(&request, 132).unwrap_err();
            assert!(said.contains(why), "{said}");
        }
    }
}
