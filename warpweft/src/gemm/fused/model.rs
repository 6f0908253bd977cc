//! How long a product with communication inside is likely to take, for shapes that nobody has measured.
//!
//! The model is made of the one for products ([`cycles`]) and of the one for collectives ([`Links`]), and assumes this:
//!
//! - A GPU runs at [`FusedTeam::CLOCK`], and multiplies while its links are busy, as long as they need at most [`SHARE`] of
//!   what they have. What takes longer of both is what counts. Where links are the limit, they hide all but [`SEEN`] of
//!   the product.
//! - Tiles are whole: a PE's rows take as many tiles as cover them.
//! - Bytes go through the busiest port of a GPU in its busier direction: D or A once to each PE that needs it, and sums
//!   once from each PE that has a part. With the switch a PE sends its own product once and receives all of D once.
//! - An allreduce sends the own tiles of the last wave behind the product, and a reduce-scatter by `add` the last tiles of
//!   others. Sums show [`SUM_US`] beside the launch, and an all-gather [`FIRST_US`], as far as two H200s tell.
//!
//! A test compares it with what two H200s take. Of 8 PEs nothing was measured.

use super::plan::{Choice, FusedPlan, Part};
use super::{Form, part_of};
use crate::collective::{self, Collective, Links};
use crate::gemm::{Machine, Param, Plan, Problem, Shape, cycles, ranked};
use weft_runtime::{Error, error};

/// The part of a link's bandwidth that pushes may take before loads of the same multiprocessors stall.
const SHARE: f64 = 0.75;
/// The part of a product that moving bytes does not hide where links are the limit. Nothing of that was measured.
const SEEN: f64 = 0.25;
/// Microseconds that a reduce-scatter takes beside the product: PEs that begin at different times, flags, the last sums.
const SUM_US: f64 = 6.0;
/// Microseconds that an all-gather takes until rows of others are there, beside what own rows hide.
const FIRST_US: f64 = 4.0;
/// The part of a tile's time over which its strips are sent.
const SPREAD: f64 = 0.65;
/// Waves of tiles below which nothing is gained by sending slowly, since nothing hides it.
const WAVES: u64 = 2;

/// What products are shared out to.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct FusedTeam {
    /// The GPU of each PE.
    pub machine: Machine,
    /// The number of PEs.
    pub pes: u32,
    /// Whether there is a multicast address.
    pub multicast: bool,
    /// What is between them.
    pub links: Links,
}

/// Bytes through a GPU's port in its busier direction.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Bytes {
    /// From one PE to another.
    pub peer: f64,
    /// By the switch's multicast and reductions.
    pub switch: f64,
}

/// Microseconds of a launch, by what they are for.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Estimate {
    /// The product alone, in such tiles.
    pub product_us: f64,
    /// Moving bytes, at the same time.
    pub moving_us: f64,
    /// Moving the bytes of the last tiles, behind the product.
    pub tail_us: f64,
    /// The launch, and waiting for others.
    pub start_us: f64,
}

impl Estimate {
    /// The sum of all parts.
    pub fn total(&self) -> f64 {
        let Estimate { product_us, moving_us, tail_us, start_us } = *self;
        let moving = (moving_us / SHARE).min(moving_us + SEEN * product_us);
        (product_us + tail_us).max(moving) + start_us
    }
}

/// The problem that one launch computes: all rows, of which those of each PE are filled up to whole tiles.
fn padded(problem: &Problem, plan: &FusedPlan, pes: u32) -> Problem {
    let Shape { m, n, k } = problem.shape;
    let pes = u64::from(pes.max(1));
    let whole = m.div_ceil(pes).next_multiple_of(u64::from(plan.bm * plan.ctas)) * pes;
    Problem { shape: Shape::new(whole, n, k), ..*problem }
}

/// The plan of a product alone with the same tiles.
fn tiles(plan: &FusedPlan) -> Plan {
    let values = [
        (Param::Bm, plan.bm),
        (Param::Bn, plan.bn),
        (Param::Bk, plan.bk),
        (Param::Stages, plan.stages),
        (Param::Ctas, plan.ctas),
    ];
    values.into_iter().fold(Plan::default(), |all, (param, n)| all.with(param, n).unwrap_or(all))
}

impl FusedTeam {
    /// Cycles of a multiprocessor in a microsecond, while tensor cores are busy.
    pub const CLOCK: f64 = 1700.0;

    /// Bytes that a launch by a plan moves through a port. Staged strips are whole, whatever rows and columns D has.
    pub fn bytes(&self, form: Form, problem: &Problem, plan: &FusedPlan) -> Bytes {
        let Shape { m, n, k } = problem.shape;
        let pes = f64::from(self.pes.max(1));
        let (others, out) = ((pes - 1.0) / pes, f64::from(problem.out.bytes()));
        let all = (m * n) as f64 * out;
        let tiles = padded(problem, plan, self.pes).shape.m * n.next_multiple_of(plan.bn.into());
        let staged = tiles as f64 * f64::from(part_of(problem.out).bytes()) * others;
        let [peer, switch] = match (plan.part(form), self.multicast) {
            (Part::Gather, _) => [(m * k) as f64 * f64::from(problem.dtype.bytes()) * others, 0.0],
            (Part::Scatter, _) => [staged, 0.0],
            (Part::Add, _) => [all * others, 0.0],
            (Part::Reduce, false) => [staged + all * others, 0.0],
            (Part::Reduce, true) => [staged, all],
            (Part::Switch, false) => [2.0 * all * others, 0.0],
            (Part::Switch, true) => [0.0, all * (1.0 + 1.0 / pes)],
        };
        Bytes { peer, switch }
    }

    /// Microseconds in which bytes go through a port.
    fn moving(&self, bytes: Bytes) -> f64 {
        let peer = if self.pes > 2 { self.links.push_gbps } else { self.links.neighbour_gbps };
        (bytes.peer / peer + bytes.switch / self.links.switch_gbps) / 1e3
    }

    /// What a launch by a plan is likely to take.
    pub fn launch(&self, form: Form, problem: &Problem, plan: &FusedPlan) -> Estimate {
        let product = padded(problem, plan, self.pes);
        let product_us = cycles(&product, &tiles(plan), self.machine.sms) / FusedTeam::CLOCK;
        let moving_us = self.moving(self.bytes(form, problem, plan));
        let out = f64::from(problem.out.bytes());
        let wave = f64::from(self.machine.sms * plan.bm * plan.bn) * out;
        let pes = f64::from(self.pes.max(1));
        let own = (product.shape.m * problem.shape.n) as f64 * out / pes;
        // Own tiles of the last blocks come together, as `by_turns` has them.
        let last = own.min(wave).min(wave / pes * f64::from(plan.lag + 1));
        let others = pes - 1.0;
        let by_peers = |bytes: f64| self.moving(Bytes { peer: bytes, switch: 0.0 });
        let by_switch = |bytes: f64| self.moving(Bytes { peer: 0.0, switch: bytes });
        let tail_us = match (plan.part(form), self.multicast) {
            (Part::Gather | Part::Scatter, _) => 0.0,
            // Own tiles come first, so the last wave is sent behind the product.
            (Part::Add, _) => by_peers(wave.min(own * others)),
            (Part::Reduce, false) => by_peers(last * others),
            (Part::Reduce, true) => by_switch(last * pes),
            (Part::Switch, true) => by_switch(last * (pes + 1.0)),
            (Part::Switch, false) => by_peers(2.0 * last * others),
        };
        let waits = match plan.part(form) {
            _ if self.pes < 2 => 0.0,
            Part::Gather => FIRST_US,
            _ => SUM_US,
        };
        let start_us = self.links.launch_us + self.links.work_us + waits;
        Estimate { product_us, moving_us, tail_us, start_us }
    }

    /// What a product and our collective are likely to take, one after the other.
    ///
    /// # Errors
    /// `R0505` where our collectives cannot do it.
    pub fn sequence(&self, form: Form, problem: &Problem) -> Result<Estimate, Error> {
        Choice::Sequence.fits(form, problem)?;
        let refuse = |why: String| Error::new(error::GEMM, why).help("choose a plan for one launch");
        let plan = ranked(problem, self.machine).first().copied().unwrap_or_default();
        let product_us = cycles(problem, &plan, self.machine.sms) / FusedTeam::CLOCK;
        let Shape { m, n, k } = problem.shape;
        let each = m.div_ceil(u64::from(self.pes.max(1)));
        let (collective, dtype, count) = match form {
            Form::AllGather => (Collective::AllGather, problem.dtype, each * k),
            Form::ReduceScatter => (Collective::ReduceScatter, problem.out, each * n),
            Form::AllReduce => (Collective::AllReduce, problem.out, m * n),
        };
        let request = collective::Request {
            multicast: self.multicast,
            ..collective::Request::new(collective, dtype, count, self.pes)
        };
        let by = collective::Plan::choose(&request, self.machine.sms, &self.links).map_err(refuse)?;
        let start_us = self.links.launch_us + self.links.time(&by, &request);
        Ok(Estimate { product_us, moving_us: 0.0, tail_us: 0.0, start_us })
    }

    /// Plans that are likely to be fast for a problem: each shape of tiles and each transport, with as many stages as fit.
    pub fn candidates(&self, form: Form, problem: &Problem) -> Vec<FusedPlan> {
        let texts: &[&str] = match form {
            Form::AllGather => &["bn=256", "bn=128,ctas=2", "bn=128"],
            Form::ReduceScatter => {
                &["bn=256", "bn=128,ctas=2", "bn=128", "bn=256,send=tma", "bn=256,send=bulk"]
            }
            Form::AllReduce => &[
                "bn=256",
                "bn=128,ctas=2",
                "bn=128",
                "bn=256,send=bulk",
                "bn=256,outs=4,send=switch",
                "bn=128,ctas=2,outs=4,send=switch",
            ],
        };
        let usable = |plan: &FusedPlan| self.multicast || plan.part(form) != Part::Switch;
        let plans = texts.iter().filter_map(|text| FusedPlan::parse(text, form).ok()).filter(usable);
        plans.filter_map(|plan| self.filled(form, problem, plan)).collect()
    }

    /// The plan with rows of 128 bytes in a stage and strips that fit, as many stages as fit, and a pace.
    fn filled(&self, form: Form, problem: &Problem, plan: FusedPlan) -> Option<FusedPlan> {
        let bytes = problem.dtype.bytes().max(1);
        let strip = if part_of(problem.out).bytes() > 2 { 32 } else { plan.strip };
        let plan = FusedPlan { bk: 128 / bytes, strip, ..plan };
        let stages = (2..=8).rev().map(|stages| FusedPlan { stages, ..plan });
        let plan = stages.into_iter().find(|plan| plan.fits(form, problem).is_ok())?;
        Some(FusedPlan { pace: self.pace(form, problem, &plan), ..plan })
    }

    /// Cycles between two parts of what is sent, so that sending takes [`SPREAD`] of the time that hides it.
    fn pace(&self, form: Form, problem: &Problem, plan: &FusedPlan) -> u32 {
        let product = padded(problem, plan, self.pes);
        let Shape { m, n, k } = product.shape;
        let tiles_in_all = m / u64::from(plan.bm) * n.div_ceil(plan.bn.into());
        let waves = tiles_in_all.div_ceil(self.machine.sms.into());
        if self.pes < 2 || waves < WAVES || plan.part(form) == Part::Switch {
            return 0;
        }
        let all = cycles(&product, &tiles(plan), self.machine.sms);
        let parts = match form {
            Form::AllGather => {
                let pieces = m / u64::from(plan.bm) * k.div_ceil(plan.piece.into());
                2.0 * pieces as f64 / f64::from(self.machine.sms)
            }
            _ => f64::from(2 * plan.bn / plan.strip) * waves as f64,
        };
        (SPREAD * all / parts.max(1.0)) as u32 / 100 * 100
    }

    /// What is likely to take the least time, with the estimate.
    ///
    /// # Errors
    /// `R0505` where neither a plan nor a sequence computes the problem.
    pub fn choose(&self, form: Form, problem: &Problem) -> Result<(Choice, Estimate), Error> {
        problem.check()?;
        let launch = |plan: FusedPlan| (Choice::Launch(plan), self.launch(form, problem, &plan));
        let launches = self.candidates(form, problem).into_iter().map(launch);
        let sequence = self.sequence(form, problem).ok().map(|e| (Choice::Sequence, e));
        let least = launches.chain(sequence).min_by(|a, b| a.1.total().total_cmp(&b.1.total()));
        least.ok_or_else(|| {
            Error::new(error::GEMM, format!("no plan fits {problem}"))
                .help("choose other element types: sums of 8 bits are sent as bf16")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_runtime::DType;

    fn team(pes: u32, multicast: bool) -> FusedTeam {
        let machine = Machine { target: "sm_90a".parse().unwrap(), sms: 132 };
        FusedTeam { machine, pes, multicast, links: Links::H200 }
    }

    fn problem(m: u64, n: u64, k: u64) -> Problem {
        Problem::new(Shape::new(m, n, k), DType::BF16)
    }

    /// What two H200s take by one launch of a hand-written kernel, of the time of the product alone.
    #[test]
    fn the_model_is_near_what_two_gpus_take() {
        let measured = [
            (Form::ReduceScatter, 4096, 4096, 1.00),
            (Form::ReduceScatter, 8192, 4096, 0.98),
            (Form::AllReduce, 4096, 4096, 1.06),
            (Form::AllReduce, 1024, 4096, 1.25),
            (Form::ReduceScatter, 1024, 4096, 1.08),
        ];
        for (form, m, k, expected) in measured {
            let problem = problem(m, 8192, k);
            let (choice, estimate) = team(2, false).choose(form, &problem).unwrap();
            assert!(matches!(choice, Choice::Launch(_)), "{form:?} {problem}: {choice:?}");
            let alone = ranked(&problem, team(2, false).machine)[0];
            let ratio = estimate.total() * FusedTeam::CLOCK / cycles(&problem, &alone, 132);
            assert!(
                (ratio / expected - 1.0).abs() < 0.15,
                "{form:?} {problem}: {ratio}, measured {expected}"
            );
        }
    }

    /// Where rows are few, whole tiles of each PE's rows would be computed for nothing.
    #[test]
    fn few_rows_go_in_sequence() {
        for form in Form::ALL {
            let (choice, _) = team(8, false).choose(form, &problem(16, 8192, 1024)).unwrap();
            assert_eq!(choice, Choice::Sequence, "{form:?}");
        }
    }

    /// The switch sends less of an allreduce of eight PEs, and more of one of two.
    #[test]
    fn the_switch_is_for_many() {
        let problem = problem(8192, 8192, 1024);
        let by = |pes, send: &str| {
            let plan = FusedPlan::parse(&format!("send={send}"), Form::AllReduce).unwrap();
            team(pes, true).launch(Form::AllReduce, &problem, &plan)
        };
        assert!(by(8, "switch").total() < by(8, "vectors").total());
        assert!(by(2, "switch").moving_us > by(2, "vectors").moving_us);
        let (choice, _) = team(8, true).choose(Form::AllReduce, &problem).unwrap();
        assert!(choice.text(Form::AllReduce).contains("send=switch"), "{choice:?}");
        let (choice, _) = team(8, false).choose(Form::AllReduce, &problem).unwrap();
        assert!(!choice.text(Form::AllReduce).contains("send=switch"), "{choice:?}");
    }

    #[test]
    fn proposals_fit() {
        let types = [DType::BF16, DType::F32, DType::E4M3];
        for (form, dtype) in Form::ALL.into_iter().flat_map(|form| types.map(|dtype| (form, dtype))) {
            for out in [dtype, DType::BF16] {
                let problem = Problem { dtype, out, ..problem(4096, 4096, 4096) };
                let plans = team(4, true).candidates(form, &problem);
                assert!(!plans.is_empty(), "{form:?} {problem}");
                assert!(plans.iter().all(|plan| plan.fits(form, &problem).is_ok()));
            }
        }
    }
}
