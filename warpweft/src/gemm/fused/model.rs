//! Predicts the time of a product with communication inside, for shapes that were not measured.
//!
//! The model combines those for products ([`cycles`]) and for collectives ([`Links`]). It assumes
//! this:
//!
//! - A GPU runs at [`FusedTeam::CLOCK`], and multiplies while its links are busy, as long as they
//!   need at most [`SHARE`] of their bandwidth. The longer time of both counts. If links are the
//!   limit, they hide all but [`SEEN`] of the product.
//! - Tiles are whole: a PE's rows take as many tiles as cover them.
//! - Bytes go through the busiest port of a GPU, in its busier direction. D or A goes once to each
//!   PE that needs it, and sums come once from each PE that has a part. With the switch a PE sends
//!   its own product once and receives all of D once.
//! - An allreduce sends its own tiles of the last wave after the product, and so does a
//!   reduce-scatter by `add` with the last tiles of others. Sums take [`SUM_US`] besides the
//!   launch, and an all-gather takes [`FIRST_US`], according to two H200s.
//! - An all-to-all sends the last wave of tiles after the product, and begins like an all-gather.
//!   Neither was measured.
//! - Packets of few rows are sent after the product. They take [`PACKETS_US`] besides their bytes,
//!   and at least [`HOP_US`].
//!
//! A test compares the model with two H200s. Nothing was measured with 8 PEs.

use super::plan::{Choice, FusedPlan, Part};
use super::{Epilogue, Form, Scales, TARGET, part_of, sequence, uneven};
use crate::collective::{self, Collective, Links};
use crate::gemm::model::{MEMORY, cycles, lets_next_begin, ranked};
use crate::gemm::{DecodePlan, Machine, Param, Plan, Problem, Shape};
use weft_runtime::{Error, Team, World, error};

/// The part of a link's bandwidth that pushes may take before loads of the same multiprocessors stall.
const SHARE: f64 = 0.75;
/// The part of a product that moving bytes does not hide if links are the limit. It was not
/// measured.
const SEEN: f64 = 0.25;
/// Microseconds that a reduce-scatter takes besides the product: PEs begin at different times, and
/// flags and the last sums follow.
const SUM_US: f64 = 6.0;
/// Microseconds until rows of other PEs arrive in an all-gather, less those that its own rows hide.
const FIRST_US: f64 = 4.0;
/// Microseconds that packets take besides their bytes, because PEs begin at different times. The
/// next two constants are the least microseconds of a flight, and the time of packets relative to
/// stores of as many bytes. On two H100s, 16, 64 and 256 rows of 8192 columns took 2.4, 4.4 and
/// 20.0 us more than the product alone.
const PACKETS_US: f64 = 0.3;
const HOP_US: f64 = 1.5;
const PACKING: f64 = 1.5;
/// The same for packets that the roles that multiply exchange. On two H200s, 128 rows of 8192
/// columns took 29.9 us in all, and 256 rows 42.6 us.
const DIRECT_PACKING: f64 = 1.4;
/// The least rows for which the roles that multiply may exchange packets. No GPU has measured fewer.
const DIRECT_ROWS: u64 = 97;
/// Microseconds of a second flight.
const FLIGHT_US: f64 = 2.0;
/// The part of a tile's time over which its pieces are sent. On two H100s, an all-gather with
/// 4096x8192x8192 takes 437 us with 0.35 and 449 us with 0.65.
const SPREAD: f64 = 0.35;
/// The part of a tile's time over which the strips of a tile of 256 columns are sent. It is half as
/// much for 128 columns. On two H100s, a reduce-scatter with 4096x8192x8192 takes 442 us with a
/// pace of 6000 cycles, which is this part, and 465 us by bulk copies without a pace. An allreduce
/// takes 466 us with the pace, and 497 us by bulk copies.
const PUSHED: f64 = 0.69;
/// The number of waves of tiles below which sending slowly gains nothing, because nothing hides it.
const WAVES: u64 = 2;

/// The microseconds that a product and a collective save if both begin early.
const BEGIN_US: f64 = 0.6;

/// The PEs that compute a product together.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct FusedTeam {
    /// The GPU of each PE.
    pub machine: Machine,
    /// The number of PEs.
    pub pes: u32,
    /// Whether there is a multicast address.
    pub multicast: bool,
    /// The links between the PEs.
    pub links: Links,
}

/// Bytes through a GPU's port in its busier direction.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Bytes {
    /// The bytes that go from one PE to another.
    pub peer: f64,
    /// The bytes that the switch multicasts or reduces.
    pub switch: f64,
}

/// The predicted microseconds of a launch, by cause.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Estimate {
    /// The product alone, with the same tiles.
    pub product_us: f64,
    /// The transfer of bytes during the product.
    pub moving_us: f64,
    /// The transfer of the last tiles' bytes after the product.
    pub tail_us: f64,
    /// The launch, and the wait for other PEs.
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

/// The problem that one launch computes, in which each PE's rows are filled up to whole tiles.
fn padded(problem: &Problem, plan: &FusedPlan, pes: u32) -> Problem {
    let Shape { m, n, k } = problem.shape;
    let pes = u64::from(pes.max(1));
    let whole = m.div_ceil(pes).next_multiple_of(u64::from(plan.bm * plan.ctas)) * pes;
    Problem { shape: Shape::new(whole, n, k), ..*problem }
}

/// Whether sums are sent by vectors, with a stage for each strip of a tile.
fn paced(form: Form, plan: &FusedPlan) -> bool {
    plan.part(form).stages() && plan.send == 0 && plan.outs * plan.strip >= plan.bn
}

/// The choice with the least predicted time.
fn fastest(all: Vec<(Choice, Estimate)>) -> Option<(Choice, Estimate)> {
    all.into_iter().min_by(|a, b| a.1.total().total_cmp(&b.1.total()))
}

/// The plan of a plain product with the same tiles.
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
    /// The GPUs of a team, with links as H200s have them.
    ///
    /// # Errors
    /// Fails if the CUDA driver refuses a call (R0103).
    pub(super) fn of(world: &World, team: &Team) -> Result<FusedTeam, Error> {
        let multicast = world.signal()?.tensor().multicast(team).is_some();
        let machine = Machine::of(world.device())?;
        Ok(FusedTeam { machine, pes: team.n_pes(), multicast, links: Links::H200 })
    }

    /// Cycles of a multiprocessor in a microsecond, while tensor cores are busy.
    pub const CLOCK: f64 = 1700.0;

    /// The bytes that a launch moves through a port. Staged strips are whole, whatever the extents
    /// of D.
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
            (Part::Deliver, _) => [all * others, 0.0],
        };
        Bytes { peer, switch }
    }

    /// Microseconds in which bytes go through a port.
    fn moving(&self, bytes: Bytes) -> f64 {
        let peer = if self.pes > 2 { self.links.push_gbps } else { self.links.neighbour_gbps };
        (bytes.peer / peer + bytes.switch / self.links.switch_gbps) / 1e3
    }

    /// Predicts the time of a launch with a plan.
    pub fn launch(&self, form: Form, problem: &Problem, plan: &FusedPlan) -> Estimate {
        let product = padded(problem, plan, self.pes);
        let product_us = cycles(&product, &tiles(plan), self.machine.sms) / FusedTeam::CLOCK;
        let moving_us = self.moving(self.bytes(form, problem, plan));
        let out = f64::from(problem.out.bytes());
        let wave = f64::from(self.machine.sms * plan.bm * plan.bn) * out;
        let pes = f64::from(self.pes.max(1));
        let own = (product.shape.m * problem.shape.n) as f64 * out / pes;
        // `by_turns` puts the own tiles of the last blocks together.
        let last = own.min(wave).min(wave / pes * f64::from(plan.lag + 1));
        let others = pes - 1.0;
        let by_peers = |bytes: f64| self.moving(Bytes { peer: bytes, switch: 0.0 });
        let by_switch = |bytes: f64| self.moving(Bytes { peer: 0.0, switch: bytes });
        let tail_us = match (plan.part(form), self.multicast) {
            (Part::Gather | Part::Scatter, _) => 0.0,
            // Own tiles come first, so the last wave is sent after the product.
            (Part::Add, _) => by_peers(wave.min(own * others)),
            (Part::Reduce, false) => by_peers(last * others),
            (Part::Reduce, true) => by_switch(last * pes),
            (Part::Switch, true) => by_switch(last * (pes + 1.0)),
            (Part::Switch, false) => by_peers(2.0 * last * others),
            (Part::Deliver, _) => by_peers(wave.min(own * pes) * others / pes),
        };
        // A single wave of tiles hides nothing.
        let exposed = if self.waves(&product, plan) < WAVES { moving_us / SHARE } else { 0.0 };
        let tail_us = tail_us.max(exposed);
        let waits = match plan.part(form) {
            _ if self.pes < 2 => 0.0,
            Part::Gather | Part::Deliver => FIRST_US,
            _ => SUM_US,
        };
        let start_us = self.links.launch_us + self.links.work_us + waits;
        Estimate { product_us, moving_us, tail_us, start_us }
    }

    /// Predicts a launch that exchanges packets, and returns the plan that it uses.
    ///
    /// # Errors
    /// Fails where [`DecodePlan::of`] fails (R0505).
    pub fn decode(&self, problem: &Problem, plan: DecodePlan) -> Result<(DecodePlan, Estimate), Error> {
        let plan = plan.of(problem, self.pes, self.machine.sms)?;
        let product_us = cycles(problem, &plan.tiles(), self.machine.sms) / FusedTeam::CLOCK;
        let moving = self.moving(Bytes { peer: plan.sent(problem, self.pes), switch: 0.0 });
        let packing = if plan.exchange == 2 { DIRECT_PACKING } else { PACKING };
        let tail_us = if self.pes < 2 { 0.0 } else { (packing * moving).max(HOP_US) };
        let waits = if self.pes < 2 { 0.0 } else { PACKETS_US + FLIGHT_US * f64::from(plan.flights - 1) };
        let start_us = self.links.launch_us + self.links.work_us + waits;
        Ok((plan, Estimate { product_us, moving_us: 0.0, tail_us, start_us }))
    }

    /// Predicts a product and a collective of this crate that follow each other.
    ///
    /// # Errors
    /// Fails if the collectives do not support it (R0505).
    pub fn sequence(&self, form: Form, problem: &Problem) -> Result<Estimate, Error> {
        self.sequence_with(form, problem, &Epilogue::default())
    }

    /// The same, for a product with an epilogue.
    fn sequence_with(&self, form: Form, problem: &Problem, epilogue: &Epilogue) -> Result<Estimate, Error> {
        epilogue.fits(form, problem, &Choice::Sequence)?;
        let refuse = |why: String| Error::new(error::GEMM, why).help("choose a plan for one launch");
        let [of_product, of_sums] = sequence::divided(form, epilogue);
        let plan = match of_product.is_none() {
            true => ranked(problem, self.machine).first().copied().unwrap_or_default(),
            false => tiles(&sequence::filled(problem, &of_product, self.machine)),
        };
        let product_us = cycles(problem, &plan, self.machine.sms) / FusedTeam::CLOCK;
        let (Shape { m, n, k }, part) = (problem.shape, part_of(problem.out));
        let each = m.div_ceil(u64::from(self.pes.max(1)));
        let (collective, dtype, count) = match form {
            Form::AllGather => (Collective::AllGather, problem.dtype, each * k),
            Form::ReduceScatter => (Collective::ReduceScatter, part, each * n),
            Form::AllReduce => (Collective::AllReduce, part, m * n),
            Form::AllToAll => (Collective::AllToAll, problem.out, each * n),
        };
        let request = collective::Request {
            multicast: self.multicast,
            ..collective::Request::new(collective, dtype, count, self.pes)
        };
        let by = collective::Plan::choose(&request, self.machine.sms, &self.links).map_err(refuse)?;
        // Sums are read and written again if a kernel completes them.
        let completes = form.adds_up() && (!of_sums.is_none() || part != problem.out);
        let bytes = count as f64 * f64::from(part.bytes() + problem.out.bytes());
        let completing = self.links.launch_us + bytes / (MEMORY * FusedTeam::CLOCK);
        let completing = if completes { completing } else { 0.0 };
        let begins = of_product.is_none() && lets_next_begin(problem, &plan, self.machine.sms);
        let hidden = if begins { BEGIN_US } else { 0.0 };
        let start_us = self.links.launch_us + self.links.time(&by, &request) + completing - hidden;
        Ok(Estimate { product_us, moving_us: 0.0, tail_us: 0.0, start_us })
    }

    /// Plans that are likely to be fast for a problem: each shape of tiles and each transport, with
    /// as many stages as fit.
    pub fn candidates(&self, form: Form, problem: &Problem) -> Vec<FusedPlan> {
        let texts: &[&str] = match form {
            Form::AllGather | Form::AllToAll => &["bn=256", "bn=128,ctas=2", "bn=128"],
            // A stage for each strip of a tile, and a pace. With them, on two H100s, `bn=256` was
            // the fastest reduce-scatter and `bn=128` in clusters the fastest allreduce of 1024
            // rows. Nothing was measured with more PEs. On eight, the roles that multiply would
            // spill registers.
            Form::ReduceScatter if self.pes <= 2 => {
                &["bn=256,outs=4,ins=0", "bn=128,outs=2,ins=0", "bn=256,send=bulk"]
            }
            Form::AllReduce if self.pes <= 2 => &[
                "bn=256,outs=4,ins=0",
                "bn=128,ctas=2,outs=2,ins=0",
                "bn=256,send=bulk",
                "bn=256,outs=4,send=switch",
                "bn=128,outs=4,send=switch",
            ],
            Form::ReduceScatter => &["bn=256,send=bulk", "bn=128,send=bulk", "bn=256", "bn=256,send=tma"],
            Form::AllReduce => &[
                "bn=256,send=bulk",
                "bn=128,send=bulk",
                "bn=256",
                "bn=256,outs=4,send=switch",
                "bn=128,outs=4,send=switch",
            ],
        };
        self.filled_all(form, problem, texts)
    }

    /// Plans that are likely to be fast with an epilogue. The numbers that it reads for columns and
    /// elements take the registers of larger tiles.
    fn candidates_with(&self, form: Form, problem: &Problem, epilogue: &Epilogue) -> Vec<FusedPlan> {
        let plans = match epilogue.reads() || epilogue.gated || epilogue.row_scales {
            false => self.candidates(form, problem),
            true if epilogue.gated && epilogue.row_scales => {
                self.filled_all(form, problem, &["bn=256,strip=32"])
            }
            true if !form.adds_up() => {
                self.filled_all(form, problem, &["bn=128,ctas=2,strip=32", "bn=128,strip=32"])
            }
            true if epilogue.scales == Scales::Blocks => {
                self.filled_all(form, problem, &["bn=128,strip=32,outs=4,ins=0,send=bulk"])
            }
            true => self.filled_all(form, problem, &["bn=128,strip=32,send=bulk"]),
        };
        // Scales of blocks take shared memory beside the stages.
        let fewer = |plan: FusedPlan| (2..=plan.stages).rev().map(move |stages| FusedPlan { stages, ..plan });
        let fits = |plan: &FusedPlan| epilogue.fits(form, problem, &(*plan).into()).is_ok();
        plans.into_iter().filter_map(|plan| fewer(plan).find(fits)).collect()
    }

    fn filled_all(&self, form: Form, problem: &Problem, texts: &[&str]) -> Vec<FusedPlan> {
        let usable = |plan: &FusedPlan| self.multicast || plan.part(form) != Part::Switch;
        let plans = texts.iter().filter_map(|text| FusedPlan::parse(text, form).ok()).filter(usable);
        plans.filter_map(|plan| self.filled(form, problem, plan)).collect()
    }

    /// Completes a plan: rows of 128 bytes in a stage, strips that fit, as many stages as fit, and
    /// a pace.
    fn filled(&self, form: Form, problem: &Problem, plan: FusedPlan) -> Option<FusedPlan> {
        let bytes = problem.dtype.bytes().max(1);
        let strip = if part_of(problem.out).bytes() > 2 { 32 } else { plan.strip };
        let plan = FusedPlan { bk: 128 / bytes, strip, ..plan };
        let stages = (2..=8).rev().map(|stages| FusedPlan { stages, ..plan });
        let plan = stages.into_iter().find(|plan| plan.fits(form, problem).is_ok())?;
        Some(FusedPlan { pace: self.pace(form, problem, &plan), ..plan })
    }

    /// The number of waves of tiles of a product whose rows are whole tiles.
    fn waves(&self, product: &Problem, plan: &FusedPlan) -> u64 {
        let Shape { m, n, .. } = product.shape;
        (m / u64::from(plan.bm) * n.div_ceil(plan.bn.into())).div_ceil(self.machine.sms.into())
    }

    /// Cycles between two parts that are sent, so that sending takes a part of the time that hides
    /// it: [`SPREAD`] for an all-gather, and [`PUSHED`] for sums.
    fn pace(&self, form: Form, problem: &Problem, plan: &FusedPlan) -> u32 {
        let product = padded(problem, plan, self.pes);
        let Shape { m, k, .. } = product.shape;
        let waves = self.waves(&product, plan);
        let all = cycles(&product, &tiles(plan), self.machine.sms);
        let (share, parts) = match form {
            // With two waves, an all-gather takes 122 us with a pace and 106 us without.
            Form::AllGather if waves > WAVES => {
                let pieces = m / u64::from(plan.bm) * k.div_ceil(plan.piece.into());
                (SPREAD, 2.0 * pieces as f64 / f64::from(self.machine.sms))
            }
            // Only plans with a stage for each strip of a tile have a pace. With fewer stages, the
            // roles that multiply would wait, too.
            Form::ReduceScatter | Form::AllReduce if waves >= WAVES && paced(form, plan) => {
                let strips = f64::from(plan.bn / plan.strip);
                (PUSHED * f64::from(plan.bn) / 256.0, 2.0 * strips * waves as f64)
            }
            _ => return 0,
        };
        if self.pes < 2 { 0 } else { (share * all / parts.max(1.0)) as u32 / 100 * 100 }
    }

    /// The choice with the least predicted time, and the prediction.
    ///
    /// # Errors
    /// Fails if neither a plan nor a sequence computes the problem (R0505).
    pub fn choose(&self, form: Form, problem: &Problem) -> Result<(Choice, Estimate), Error> {
        self.choose_with(form, problem, &Epilogue::default())
    }

    /// Chooses like [`choose`](FusedTeam::choose), for products with an epilogue.
    ///
    /// # Errors
    /// Fails where [`choose`](FusedTeam::choose) fails.
    pub fn choose_with(
        &self,
        form: Form,
        problem: &Problem,
        epilogue: &Epilogue,
    ) -> Result<(Choice, Estimate), Error> {
        problem.check()?;
        let least = fastest(self.choices(form, problem, epilogue));
        least.ok_or_else(|| {
            Error::new(error::GEMM, format!("no plan fits {problem}"))
                .help("choose other element types: sums of 8 bits are sent as bf16")
        })
    }

    /// What computes a problem on this team, with the predicted time.
    fn choices(&self, form: Form, problem: &Problem, epilogue: &Epilogue) -> Vec<(Choice, Estimate)> {
        let fused = self.machine.target.name() == TARGET;
        let launch = |plan: FusedPlan| (Choice::Launch(plan), self.launch(form, problem, &plan));
        let plans = if fused { self.candidates_with(form, problem, epilogue) } else { Vec::new() };
        let launches = plans.into_iter().map(launch);
        let sequence = self.sequence_with(form, problem, epilogue).ok().map(|e| (Choice::Sequence, e));
        let exchanges: &[u32] = match form {
            Form::AllReduce if fused && self.pes <= 2 && problem.shape.m >= DIRECT_ROWS => &[1, 2],
            Form::AllReduce if fused => &[1],
            _ => &[],
        };
        let packets = exchanges.iter().filter_map(|exchange| {
            let (plan, estimate) =
                self.decode(problem, DecodePlan { exchange: *exchange, ..DecodePlan::default() }).ok()?;
            Some((Choice::Decode(plan), estimate))
        });
        let all = launches.chain(packets).chain(sequence);
        all.filter(|(choice, _)| epilogue.fits(form, problem, choice).is_ok()).collect()
    }

    /// Chooses like [`choose_with`](FusedTeam::choose_with) for PEs with these rows, as if each had the most of them. A
    /// sequence has a product for each PE.
    ///
    /// # Errors
    /// Fails for rows that do not fit, and if no plan computes the problem (R0505).
    pub(super) fn choose_uneven(
        &self,
        form: Form,
        problem: &Problem,
        epilogue: &Epilogue,
        rows: &[u64],
    ) -> Result<Choice, Error> {
        let max_rows = rows.iter().copied().max().unwrap_or_default();
        let shape = Shape { m: max_rows.saturating_mul(self.pes.into()), ..problem.shape };
        let padded = Problem { shape, ..*problem };
        padded.check()?;
        let mut all = self.choices(form, &padded, epilogue);
        all.retain(|(choice, _)| uneven::fits(form, problem, choice, (self.pes, rows)).is_ok());
        for (choice, estimate) in &mut all {
            let more = if *choice == Choice::Sequence { f64::from(self.pes) } else { 0.0 };
            estimate.start_us += more * self.links.launch_us;
        }
        fastest(all).map(|(choice, _)| choice).ok_or_else(|| {
            Error::new(error::GEMM, format!("no plan fits {problem} with rows {rows:?}"))
                .help("give the rows of each PE for another form than an allreduce")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_runtime::{DType, Device};

    fn team(pes: u32, multicast: bool) -> FusedTeam {
        let machine =
            Machine { target: "sm_90a".parse().unwrap(), sms: 132, memory_gbps: Device::H100_MEMORY_GBPS };
        FusedTeam { machine, pes, multicast, links: Links::H200 }
    }

    fn problem(m: u64, n: u64, k: u64) -> Problem {
        Problem::new(Shape::new(m, n, k), DType::BF16)
    }

    /// The time of hand-written kernels on two H200s, relative to that of the product alone.
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

    /// The choices are those that were the fastest on two H100s, with a pace near the measured one.
    #[test]
    fn sums_of_two_pes_are_sent_at_a_pace() {
        for (form, m, text, pace) in [
            (Form::ReduceScatter, 4096, "bn=256,bk=64,stages=3,ctas=1,strip=64,outs=4,ins=0", 6000),
            (Form::ReduceScatter, 1024, "bn=256,bk=64,stages=3,ctas=1,strip=64,outs=4,ins=0", 6000),
            (Form::AllReduce, 1024, "bn=128,bk=64,stages=6,ctas=2,strip=64,outs=2,ins=0", 3000),
        ] {
            let (choice, _) = team(2, false).choose(form, &problem(m, 8192, 4096)).unwrap();
            let Choice::Launch(plan) = choice else { panic!("{form:?}, {m} rows: {choice:?}") };
            let said = plan.text(form);
            assert!(said.contains(text), "{form:?}, {m} rows: {said}");
            assert!((pace * 17 / 20..=pace * 23 / 20).contains(&plan.pace), "{form:?}, {m} rows: {said}");
        }
        // A single wave of tiles hides nothing, and bulk copies have no pace. Other teams were not
        // measured.
        let paces = |pes, m| {
            let plans = team(pes, false).candidates(Form::ReduceScatter, &problem(m, 8192, 4096));
            plans.iter().map(|plan| plan.pace).collect::<Vec<_>>()
        };
        assert_eq!(paces(2, 256)[0], 0);
        assert_eq!(paces(2, 4096)[2], 0);
        assert!(paces(8, 4096).iter().all(|pace| *pace == 0));
    }

    /// With few rows, whole tiles of each PE's rows would be computed for nothing.
    #[test]
    fn few_rows_go_in_sequence() {
        for form in [Form::AllGather, Form::ReduceScatter] {
            let (choice, _) = team(8, false).choose(form, &problem(16, 8192, 1024)).unwrap();
            assert_eq!(choice, Choice::Sequence, "{form:?}");
        }
        let choose = |form, m, rows: &[u64]| {
            let team = team(rows.len() as u32, false);
            team.choose_uneven(form, &problem(m, 8192, 1024), &Epilogue::default(), rows)
        };
        for form in [Form::ReduceScatter, Form::AllToAll] {
            assert_eq!(choose(form, 16, &[9, 0, 1, 6]), Ok(Choice::Sequence), "{form:?}");
            let many = choose(form, 8192, &[4096, 96, 4000, 0]);
            assert!(matches!(many, Ok(Choice::Launch(_))), "{form:?}: {many:?}");
        }
        assert!(choose(Form::AllReduce, 16, &[9, 7]).unwrap_err().to_string().contains("no plan fits"));
    }

    /// An allreduce of few rows uses packets if that is faster than a sequence. Next to the rows
    /// are the microseconds that two H100s took in addition to the product alone, if a role of its
    /// own exchanges packets. The sequence took 1.03 times as long for 16 rows, 1.045 times for 64,
    /// and 0.975 times for 256. For 256 rows on two H200s, it took 1.013 times as long as the kernel
    /// whose multiplying roles exchange packets, and 1.02 times for 128 rows.
    #[test]
    fn few_rows_of_an_allreduce_go_by_packets() {
        for (m, measured) in [(16, 2.4), (64, 4.4), (256, 20.0)] {
            let problem = problem(m, 8192, 4096);
            let (plan, estimate) = team(2, false).decode(&problem, DecodePlan::default()).unwrap();
            let ratio = (estimate.total() - estimate.product_us) / measured;
            assert!((0.7..1.4).contains(&ratio), "{m} rows: {estimate:?}, measured {measured}");
            let (choice, _) = team(2, false).choose(Form::AllReduce, &problem).unwrap();
            assert_eq!(choice == Choice::Decode(plan), m < 128, "{m} rows: {choice:?}");
        }
        for m in [128, 256] {
            let (choice, _) = team(2, false).choose(Form::AllReduce, &problem(m, 8192, 4096)).unwrap();
            assert!(matches!(choice, Choice::Decode(plan) if plan.exchange == 2), "{m} rows: {choice:?}");
            let (choice, _) = team(4, false).choose(Form::AllReduce, &problem(m, 8192, 4096)).unwrap();
            assert!(!matches!(choice, Choice::Decode(plan) if plan.exchange == 2), "{m} rows: {choice:?}");
        }
        // The kernels need a Hopper GPU.
        let machine =
            Machine { target: "sm_100a".parse().unwrap(), sms: 148, memory_gbps: Device::H100_MEMORY_GBPS };
        let other = FusedTeam { machine, ..team(2, false) };
        assert_eq!(other.choose(Form::AllReduce, &problem(16, 8192, 4096)).unwrap().0, Choice::Sequence);
        let (choice, _) = team(2, false).choose(Form::AllReduce, &problem(257, 8192, 4096)).unwrap();
        assert!(!matches!(choice, Choice::Decode(_)), "{choice:?}");
    }

    /// The switch sends fewer bytes for an allreduce of eight PEs, and more for one of two.
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
