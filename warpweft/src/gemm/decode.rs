//! Products of few rows with an allreduce inside. One launch multiplies, and exchanges packets of
//! data that is its own flag.

use super::fused::{OTHERS, Unread, alike, part_of};
use super::model::clusters;
use super::{Epilogue, Form, FusedOperands, Major, Param, Plan, Problem, Shape};
use crate::collective::Flat;
use crate::compile::{KernelFile, Options};
use crate::gpu::{GpuError, Grid, Kernel, target};
use std::fmt;
use weft_lang::elaborate::Define;
use weft_runtime::launch::AsArgument;
use weft_runtime::{DeviceTensor, Error, Stream, SymmetricTensor, Team, World, error};

/// The value of [`Decode::MAX_ROWS`].
const MAX_ROWS: u64 = 256;

/// The part of the library that contains the kernel of [`Decode`].
pub(super) const PART: &str = "gemm_allreduce_decode";

/// The architecture that the kernels are written for.
const TARGET: &str = "sm_90a";

/// The bytes of shared memory that a CTA can use besides barriers, counters and alignment.
const SHARED: u64 = (227 << 10) - 3072;

/// The most rows of D of a tile if 256 threads exchange packets. They leave the roles that multiply
/// 112 registers for each thread, and a row takes half a register.
const MAX_COLUMNS: u32 = 128;

/// The most rows of D of a tile if two roles multiply. A CTA with the role that exchanges packets
/// has 512 threads or more, which begin with 128 registers each.
const MAX_OF_TWO: u32 = 192;

macro_rules! parameters {
    ($(#[doc = $about:literal] $field:ident = $name:literal, $min:literal, $max:literal;)*) => {
        /// A value for each compile-time parameter of the kernels. 0 stands for the value that
        /// suits the shape. As text it is `bn=32,split=4`, where omitted parameters are 0.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
        pub struct DecodePlan { $(#[doc = $about] pub $field: u32,)* }

        /// Names of the parameters in the kernels, with the least and the greatest value.
        const PARAMETERS: &[(&str, u32, u32)] = &[$(($name, $min, $max),)*];

        impl DecodePlan {
            fn values(&self) -> [u32; PARAMETERS.len()] {
                [$(self.$field),*]
            }

            fn fields(&mut self) -> [&mut u32; PARAMETERS.len()] {
                [$(&mut self.$field),*]
            }
        }
    };
}

parameters! {
    /// Columns of D of a tile: 64 or 128.
    bm = "BM", 64, 128;
    /// Rows of D of a tile, a multiple of 8 for each CTA of a cluster.
    bn = "BN", 8, 256;
    /// Stages of the pipeline that feeds the matrix instructions.
    stages = "STAGES", 2, 8;
    /// CTAs of a cluster, each of which has a part of K.
    split = "SPLIT", 1, 8;
    /// Threads of the role that exchanges packets: 128 or 256.
    threads = "THREADS", 128, 256;
    /// Units of 16 bytes that a thread sends at once.
    units = "UNITS", 1, 8;
    /// Flights of a sum: 1 sends partial sums to all PEs, 2 to one PE, which sends the sum to all.
    flights = "FLIGHTS", 1, 2;
    /// Roles that exchange packets: 1 stands for a role of its own, and 2 for the roles that multiply.
    exchange = "EXCHANGE", 1, 2;
}

impl DecodePlan {
    /// Parses a plan such as `bn=32,split=4`.
    ///
    /// # Errors
    /// Fails for an unknown name or a wrong value.
    pub fn parse(text: &str) -> Result<DecodePlan, String> {
        let mut plan = DecodePlan::default();
        for word in text.split(',').filter(|word| !word.is_empty()) {
            let (name, value) = word.split_once('=').ok_or_else(|| format!("`{word}` is not NAME=N"))?;
            let at = PARAMETERS.iter().position(|p| p.0.eq_ignore_ascii_case(name)).ok_or_else(|| {
                let known =
                    PARAMETERS.iter().map(|p| p.0.to_ascii_lowercase()).collect::<Vec<_>>().join(", ");
                format!("there is no `{name}`: known are {known}")
            })?;
            let (_, min, max) = PARAMETERS[at];
            let number = value.parse().ok().filter(|n| (min..=max).contains(n));
            *plan.fields()[at] = number.ok_or_else(|| format!("{name} is {min} to {max}, not `{value}`"))?;
        }
        Ok(plan)
    }

    /// Replaces parameters that are 0 by values that suit the shape. The tile and the split are
    /// those with which a CTA reads the fewest bytes, on a GPU of `sms` multiprocessors.
    ///
    /// # Errors
    /// Fails if the problem has too many rows, or if no plan with these values fits (R0505).
    pub fn of(self, problem: &Problem, pes: u32, sms: u32) -> Result<DecodePlan, Error> {
        DecodePlan::takes(problem)?;
        let choices_of =
            |value: u32, choices: &[u32]| if value == 0 { choices.to_vec() } else { vec![value] };
        let mut best: Option<(u64, DecodePlan)> = None;
        for bm in choices_of(self.bm, &[128, 64]) {
            // Tiles of 80 and 96 rows are for products that have no more rows.
            let few = |bn: &u32| bn.is_power_of_two() || u64::from(*bn) >= problem.shape.m || self.bn != 0;
            for bn in choices_of(self.bn, &[16, 32, 64, 80, 96, 128, 256]).into_iter().filter(few) {
                for split in choices_of(self.split, &[1, 2, 4, 8]) {
                    let plan = DecodePlan { bm, bn, split, ..self }.filled(problem, pes);
                    let cost = plan.cost(problem, sms);
                    if plan.fits(problem).is_ok() && best.is_none_or(|(cheapest, _)| cost < cheapest) {
                        best = Some((cost, plan));
                    }
                }
            }
        }
        // If nothing fits, the error is about the requested values.
        let or = |value: u32, other: u32| if value == 0 { other } else { value };
        let small = DecodePlan { bm: or(self.bm, 64), bn: or(self.bn, 16), split: or(self.split, 1), ..self };
        best.map_or_else(|| small.filled(problem, pes).checked(problem), |(_, plan)| Ok(plan))
    }

    /// Checks that packets suit a problem, whatever the plan.
    ///
    /// # Errors
    /// Fails for a problem that has too many rows, or whose B has contiguous columns (R0505).
    pub(super) fn takes(problem: &Problem) -> Result<(), Error> {
        problem.check()?;
        let shape = problem.shape;
        if shape.m > MAX_ROWS {
            let message = format!("{shape} has {} rows, but packets are for at most {MAX_ROWS}", shape.m);
            return Err(Error::new(error::GEMM, message).help("use `Fused` with `Form::AllReduce`"));
        }
        if problem.b == Major::Column {
            let message =
                "columns of B are contiguous, and the kernel for few rows reads contiguous rows of B";
            return Err(Error::new(error::GEMM, message).help("transpose B once, or use another plan"));
        }
        Ok(())
    }

    /// The plan of a plain product with the same tiles, which are tiles of the transpose of D.
    pub(super) fn tiles(&self) -> Plan {
        let values = [
            (Param::Bm, self.bm),
            (Param::Bn, self.bn),
            (Param::Stages, self.stages),
            (Param::Split, self.split),
            (Param::Swap, 1),
        ];
        values.into_iter().fold(Plan::default(), |all, (param, n)| all.with(param, n).unwrap_or(all))
    }

    /// The bytes that a PE sends, and as many arrive.
    pub(super) fn sent(&self, problem: &Problem, pes: u32) -> f64 {
        let Shape { m, n, .. } = problem.shape;
        let packets = (m * n * u64::from(part_of(problem.out).bytes())) as f64;
        let pes = f64::from(pes.max(1));
        if self.flights == 1 { packets * (pes - 1.0) } else { 2.0 * packets * (pes - 1.0) / pes }
    }

    fn checked(self, problem: &Problem) -> Result<DecodePlan, Error> {
        self.fits(problem).map(|()| self)
    }

    /// Sets the stages, units and flights for a tile and a split.
    fn filled(self, problem: &Problem, pes: u32) -> DecodePlan {
        let or = |value: u32, other: u64| {
            if value == 0 { u32::try_from(other).unwrap_or(u32::MAX) } else { value }
        };
        // The words of all PEs are in registers at once.
        let at_once = match pes {
            0..=2 => 4,
            3..=4 => 2,
            _ => 1,
        };
        // Tiles of many units are exchanged by twice as many threads, if the other roles have registers to spare.
        let of_128 = DecodePlan { threads: 128, ..self }.units_of_thread(problem);
        let many = of_128 >= 4 && self.bn <= MAX_COLUMNS && self.exchange != 2;
        let plan = DecodePlan { threads: or(self.threads, if many { 256 } else { 128 }), ..self };
        let stages = SHARED.saturating_sub(plan.sums(problem)) / plan.stage(problem).max(1);
        DecodePlan {
            stages: or(self.stages, stages.clamp(2, 8)),
            units: or(self.units, plan.units_of_thread(problem).min(at_once)),
            flights: or(self.flights, if two_flights(problem, pes) { 2 } else { 1 }),
            exchange: or(self.exchange, 1),
            ..plan
        }
    }

    /// The bytes of a stage.
    fn stage(&self, problem: &Problem) -> u64 {
        u64::from(self.bm + self.bn) * depth(problem) * u64::from(problem.dtype.bytes())
    }

    /// The roles that exchange packets.
    fn exchanging(&self) -> u64 {
        if self.exchange == 2 { u64::from(self.bm / 64) } else { 1 }
    }

    /// The bytes of shared memory for sums on their way to the role that exchanges them, and for
    /// squares. If the roles that multiply exchange them, sums without scales are held as they are
    /// sent. Only operands of 8 bits can have scales then.
    fn sums(&self, problem: &Problem) -> u64 {
        let columns = u64::from(self.bn / self.split.max(1));
        if self.exchange == 2 && problem.dtype.bytes() > 1 {
            return u64::from(self.bm * part_of(problem.out).bytes()) * columns;
        }
        68 * 4 * columns * u64::from(self.split * self.bm / 64)
            + u64::from(self.bm / 4 + self.threads / 32) * 4 * columns
    }

    /// The number of units of a tile that a thread has.
    fn units_of_thread(&self, problem: &Problem) -> u64 {
        let bytes = u64::from(self.bm * (self.bn / self.split.max(1)) * part_of(problem.out).bytes());
        bytes.div_ceil(16 * u64::from(self.threads) * self.exchanging()).max(1)
    }

    /// The number of CTAs that the tiles can occupy.
    fn ctas(&self, problem: &Problem) -> u64 {
        let Shape { m, n, .. } = problem.shape;
        n.div_ceil(self.bm.into()) * m.div_ceil(self.bn.into()) * u64::from(self.split)
    }

    /// The number of 32-bit words of the workspace.
    fn words(&self, problem: &Problem, pes: u32) -> u64 {
        let units = self.units_of_thread(problem).next_multiple_of(u64::from(self.units));
        let senders = u64::from(pes + self.flights - 1);
        4 * u64::from(self.threads) * units * self.exchanging() * self.ctas(problem) * senders * 3
    }

    /// The bytes that a CTA reads for all its tiles.
    fn cost(&self, problem: &Problem, sms: u32) -> u64 {
        let Shape { m, n, k } = problem.shape;
        let tiles = n.div_ceil(self.bm.into()) * m.div_ceil(self.bn.into());
        let rounds = tiles.div_ceil(clusters(sms.into(), self.split.max(1).into()));
        rounds * k.div_ceil(depth(problem)).div_ceil(u64::from(self.split.max(1))) * self.stage(problem)
    }

    /// Checks that the kernels can be compiled with the plan.
    fn fits(&self, problem: &Problem) -> Result<(), Error> {
        let refuse = |message: String, help: &str| Err(Error::new(error::GEMM, message).help(help));
        let DecodePlan { bm, bn, split, .. } = *self;
        if !split.is_power_of_two() || bn % (8 * split) != 0 {
            let message = format!("tiles of {bn} rows of D cannot be split over {split} CTAs");
            return refuse(message, "choose split = 1, 2, 4 or 8, and bn = a multiple of 8 * split");
        }
        if bm != 64 && bm != 128 {
            return refuse(format!("tiles of {bm} columns of D"), "choose bm = 64 or 128");
        }
        if self.exchange == 2 && (split != 1 || self.threads != 128) {
            let message = format!("{} threads exchange packets of {split} CTAs that multiply", self.threads);
            return refuse(message, "choose exchange = 1, or split = 1 and threads = 128");
        }
        if bm == 128 && bn > MAX_OF_TWO && self.exchange != 2 {
            let message = format!("two roles multiply tiles of {bn} rows of D");
            return refuse(message, "choose bn = 192 or less, or bm = 64");
        }
        if self.threads != 128 && (self.threads != 256 || bn > MAX_COLUMNS) {
            let message = format!("{} threads exchange packets of tiles of {bn} rows of D", self.threads);
            return refuse(message, "choose threads = 128, or threads = 256 and bn = 128 or less");
        }
        let bytes = u64::from(self.stages) * self.stage(problem) + self.sums(problem);
        if bytes > SHARED {
            let message =
                format!("the plan {self} takes {bytes} bytes of shared memory, and a CTA has {SHARED}");
            return refuse(message, "choose fewer stages or smaller tiles");
        }
        Ok(())
    }

    /// The compile-time parameters that all kernels of this part have.
    fn defines(&self, problem: &Problem, pes: u32) -> Vec<(String, Define)> {
        let number =
            |name: &str, value: u64| (name.to_owned(), Define::Int(i64::try_from(value).unwrap_or(i64::MAX)));
        // A kernel without this parameter has a role that exchanges packets.
        let known = |(p, value): &(&(&str, u32, u32), u32)| p.0 != "EXCHANGE" || *value == 2;
        let own = PARAMETERS.iter().zip(self.values()).filter(known);
        let own = own.map(|(p, value)| number(p.0, value.into()));
        let types = [("T", problem.dtype), ("OUT", problem.out)];
        let types = types.map(|(name, dtype)| (name.to_owned(), Define::from(dtype)));
        own.chain(types).chain([number("BK", depth(problem)), number("P", pes.into())]).collect()
    }
}

impl fmt::Display for DecodePlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("decode=1")?;
        for ((name, ..), value) in PARAMETERS.iter().zip(self.values()).filter(|(_, value)| *value != 0) {
            write!(f, ",{}={value}", name.to_ascii_lowercase())?;
        }
        Ok(())
    }
}

/// The number of elements of a stage along K, which have 128 bytes.
fn depth(problem: &Problem) -> u64 {
    u64::from(128 / problem.dtype.bytes())
}

/// Whether two flights are faster than one: a second flight takes about 2 us, in which a link moves 700 kB one way.
fn two_flights(problem: &Problem, pes: u32) -> bool {
    const FLIGHT: u64 = 700_000;
    let Shape { m, n, .. } = problem.shape;
    let packets = m * n * u64::from(part_of(problem.out).bytes());
    let pes = u64::from(pes.max(1));
    packets * (pes - 1) > packets * 2 * (pes - 1) / pes + FLIGHT
}

/// The common parts of both products: a kernel, its plan, and memory that its launches share.
struct Launches {
    problem: Problem,
    plan: DecodePlan,
    kernel: Kernel,
    team: Team,
    packets: SymmetricTensor<u32>,
    rounds: DeviceTensor<u64>,
}

impl Launches {
    fn new(
        world: &World,
        team: Team,
        (part, more): (&str, String),
        problem: Problem,
        plan: Result<DecodePlan, Error>,
        own: Vec<(String, Define)>,
    ) -> Result<Launches, GpuError> {
        let (pes, sms) = (team.n_pes(), world.device().sm_count()?);
        let plan = plan.and_then(|plan| plan.of(&problem, pes, sms));
        let asked = plan.as_ref().map_or_else(|_| String::new(), ToString::to_string);
        alike(world, &team, &format!("{part}, {problem}, {asked}{more}"))?;
        let plan = plan?;
        let target = target(world.device())?;
        if target.name() != TARGET {
            let message = format!("products with packets inside are for {TARGET}, but the GPU is {target}");
            return Err(Error::new(error::GEMM, message).help("use `Gemm` and a collective").into());
        }
        let mut options = Options::new(target);
        options.defines = plan.defines(&problem, pes).into_iter().chain(own).collect();
        let text = crate::library::part(part).unwrap_or_default();
        let kernel = Kernel::with(world, KernelFile::parse(&format!("weft::{part}"), text)?, options)?;
        let words = usize::try_from(plan.words(&problem, pes)).unwrap_or(usize::MAX);
        let packets = world.zeros(words)?;
        // Each CTA counts launches in a cache line of its own.
        let counts = usize::try_from(16 * plan.ctas(&problem)).unwrap_or(usize::MAX);
        let rounds = DeviceTensor::zeros(counts, world.stream())?;
        let launches = Launches { problem, plan, kernel, team, packets, rounds };
        // No PE may send before all words are 0.
        world.barrier()?;
        world.stream().synchronize()?;
        world.wait_for_all()?;
        Ok(launches)
    }

    /// Puts the kernel on a stream. The arguments `own` are between the extents and the packets,
    /// and `last` follow the packets.
    fn launch(
        &self,
        stream: &Stream,
        own: &[&dyn AsArgument],
        last: &[&dyn AsArgument],
    ) -> Result<(), GpuError> {
        let Shape { m, n, k } = self.problem.shape;
        // A checked problem has extents of 31 bits.
        let [m, n, k] = [m, n, k].map(|extent| i64::try_from(extent).unwrap_or(i64::MAX));
        let packets = Flat(&self.packets);
        let mut arguments: Vec<&dyn AsArgument> = vec![&m, &n, &k];
        arguments.extend(own);
        arguments.push(&packets);
        arguments.extend(last);
        let rounds = Flat(&self.rounds);
        arguments.extend([&rounds as &dyn AsArgument, &self.team]);
        self.kernel.launch(stream, Grid::Auto, &arguments[..])
    }
}

/// D (m, n), the sum over PEs of A (m, k) times B (n, k), for m up to [`Decode::MAX_ROWS`], in one launch. Launches follow each
/// other on one stream; for several streams there is one of these each.
pub struct Decode {
    launches: Launches,
    epilogue: Epilogue,
    unread: Unread,
}

impl Decode {
    /// The most rows of A and D. With more rows, `Fused` moves whole tiles instead of packets.
    pub const MAX_ROWS: u64 = MAX_ROWS;

    /// Compiles a product for a team, and allocates what its launches need. This call is
    /// *collective*: all PEs of the world call it with the same arguments.
    ///
    /// Fails for a problem or a plan that the kernel does not support or if PEs of the team request
    /// different ones (R0505), if there is no memory (R0302), and where [`Kernel::compile`] fails.
    pub fn new(world: &World, team: Team, problem: Problem, plan: DecodePlan) -> Result<Decode, GpuError> {
        Decode::with(world, team, problem, Epilogue::default(), plan)
    }

    /// Compiles like [`new`](Decode::new), with an epilogue that is applied to elements. This call
    /// is *collective*.
    ///
    /// # Errors
    /// Fails as [`new`](Decode::new) does, and for gates or scales of blocks (R0505).
    pub fn with(
        world: &World,
        team: Team,
        problem: Problem,
        epilogue: Epilogue,
        plan: DecodePlan,
    ) -> Result<Decode, GpuError> {
        let mut own = vec![("PART".to_owned(), Define::from(part_of(problem.out)))];
        own.extend(epilogue.defines_of_packets());
        let fits = epilogue.fits(Form::AllReduce, &problem, &plan.into());
        let part = (PART, if epilogue.is_none() { String::new() } else { format!(", {epilogue:?}") });
        let launches = Launches::new(world, team, part, problem, fits.map(|()| plan), own)?;
        Ok(Decode { launches, epilogue, unread: Unread::new(world, &problem)? })
    }

    /// The plan by which it is computed.
    pub fn plan(&self) -> &DecodePlan {
        &self.launches.plan
    }

    /// Puts the product on a stream. All matrices have contiguous rows.
    ///
    /// # Errors
    /// Fails for operands of other types, shapes or strides (R0502), or if the CUDA driver refuses a call (R0103).
    pub fn launch(
        &self,
        stream: &Stream,
        a: &dyn AsArgument,
        b: &dyn AsArgument,
        d: &dyn AsArgument,
    ) -> Result<(), GpuError> {
        self.launch_with(stream, &FusedOperands::new(a, b, d))
    }

    /// Launches like [`launch`](Decode::launch), with what the epilogue reads.
    ///
    /// # Errors
    /// Fails as [`launch`](Decode::launch) does, and if the epilogue reads what is missing, or does not read what is given
    /// (R0505).
    pub fn launch_with(&self, stream: &Stream, x: &FusedOperands<'_>) -> Result<(), GpuError> {
        self.epilogue.agrees(x)?;
        let others = self.unread.operands(x);
        let others = others.iter().take(OTHERS).map(|other| other as &dyn AsArgument);
        let own: Vec<_> = [x.a, x.b, x.d].into_iter().chain(others).collect();
        self.launches.launch(stream, &own, &[])
    }
}

impl fmt::Debug for Decode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Decode({}, {})", self.launches.problem, self.launches.plan)
    }
}

/// The operands and results of a launch of [`DecodeNorm`].
pub struct Normed<'a> {
    /// The matrix A (m, k), a part along K of a larger one.
    pub a: &'a dyn AsArgument,
    /// The matrix B (n, k), a part along K of a larger one.
    pub b: &'a dyn AsArgument,
    /// The residual (m, n) before the product is added. It is only read.
    pub residual: &'a dyn AsArgument,
    /// Weights (n) of the norm.
    pub weight: &'a dyn AsArgument,
    /// The number that is added to the mean of squares.
    pub eps: f32,
    /// One f32 by which results of 8 bits are divided.
    pub scale: &'a dyn AsArgument,
    /// The residual (m, n) with the product added.
    pub added: &'a dyn AsArgument,
    /// The normalised rows (m, n).
    pub d: &'a dyn AsArgument,
}

/// The sum over PEs of A times B, added to a residual and normalised by RMSNorm, in one launch.
/// [`Decode`] describes how PEs exchange packets.
pub struct DecodeNorm {
    launches: Launches,
    squares: DeviceTensor<u64>,
}

impl DecodeNorm {
    /// Compiles a product like [`Decode::new`]. Results are normalised rows. Results of 8 bits are
    /// divided by a scale. The residual and the weights have the results' type, or bf16 if results
    /// have 8 bits.
    ///
    /// # Errors
    /// Fails where [`Decode::new`] fails.
    pub fn new(
        world: &World,
        team: Team,
        problem: Problem,
        plan: DecodePlan,
    ) -> Result<DecodeNorm, GpuError> {
        let own = vec![
            ("R".to_owned(), Define::from(part_of(problem.out))),
            ("SCALED".to_owned(), Define::Bool(problem.out.bytes() == 1)),
        ];
        let part = ("gemm_allreduce_rms_norm", String::new());
        let plan = if plan.exchange == 2 {
            let message = "rows are normalised by the role that exchanges packets, which the plan omits";
            Err(Error::new(error::GEMM, message).help("choose exchange = 1"))
        } else {
            Ok(plan)
        };
        let launches = Launches::new(world, team, part, problem, plan, own)?;
        let Shape { m, n, .. } = problem.shape;
        let words = usize::try_from(m * n.div_ceil(launches.plan.bm.into())).unwrap_or(usize::MAX);
        let squares = DeviceTensor::zeros(words, world.stream())?;
        world.stream().synchronize()?;
        Ok(DecodeNorm { launches, squares })
    }

    /// The plan by which it is computed.
    pub fn plan(&self) -> &DecodePlan {
        &self.launches.plan
    }

    /// Puts the product on a stream. All matrices have contiguous rows.
    ///
    /// # Errors
    /// Fails for operands of other types, shapes or strides (R0502), or if the CUDA driver refuses a call (R0103).
    pub fn launch(&self, stream: &Stream, x: &Normed<'_>) -> Result<(), GpuError> {
        let own = [x.a, x.b, x.residual, x.weight, &x.eps, x.scale, x.added, x.d];
        self.launches.launch(stream, &own, &[&Flat(&self.squares)])
    }
}

impl fmt::Debug for DecodeNorm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DecodeNorm({}, {})", self.launches.problem, self.launches.plan)
    }
}
