//! Mixtures of experts over the PEs of a team.
//!
//! Each PE has tokens, and each token has `choices` experts, which are shared out to the PEs in equal parts. A [`Moe`]
//! sends tokens to the PEs of their experts ([`Moe::dispatch`]), may multiply them there in the same launch
//! ([`Moe::experts`]), and brings results back ([`Moe::combine`]). How many tokens an expert gets only the device knows.
//!
//! Launches of one `Moe` follow each other on one stream, and can be captured into a graph. Routes that cannot be carried
//! out are an error on every PE, which [`Moe::check`] reads: then no token was sent.

mod model;
mod problem;

pub use model::{Bytes, Estimate};
pub use problem::{Plan, Problem};

use crate::collective::Flat;
use crate::compile::{KernelFile, Options};
use crate::gemm::alike;
use crate::gpu::{GpuError, Grid, Kernel, target};
use std::fmt;
use weft_lang::elaborate::Define;
use weft_runtime::launch::{AsArgument, LaunchOptions};
use weft_runtime::memory::AnyTensor;
use weft_runtime::{DeviceTensor, Error, IntoLayout, Stream, SymmetricTensor, Team, World, error};

/// The architecture that the kernels are written for, as those of products with communication inside.
const TARGET: &str = "sm_90a";

/// CTAs that the kernels' table has room for.
const CTAS: u32 = 1024;

/// Dispatch, products of experts, and combine, compiled for the PEs of a team.
pub struct Moe {
    problem: Problem,
    plan: Plan,
    dispatch: Kernel,
    experts: Kernel,
    combine: Kernel,
    /// What is added up at the PE of the experts, if it is.
    parts: Option<Parts>,
    team: Team,
    room: i64,
    received: AnyTensor,
    /// Their scales, or what stands for them.
    scales: SymmetricTensor<f32>,
    /// What stands for scales that no kernel reads.
    unread: DeviceTensor<f32>,
    results: AnyTensor,
    offsets: DeviceTensor<i32>,
    route: DeviceTensor<i32>,
    order: DeviceTensor<i32>,
    table: DeviceTensor<u32>,
    lists: SymmetricTensor<u64>,
    flags: SymmetricTensor<u64>,
    counts: SymmetricTensor<u64>,
    arrived: DeviceTensor<u64>,
    due: DeviceTensor<u64>,
    rounds: DeviceTensor<u64>,
    status: DeviceTensor<u32>,
    state: DeviceTensor<u32>,
    started: SymmetricTensor<u64>,
    passed: DeviceTensor<u64>,
}

/// Memory of a combine that adds up what a PE's experts make of a token before it is sent.
struct Parts {
    gates: SymmetricTensor<f32>,
    parts: AnyTensor,
    met: SymmetricTensor<u64>,
}

impl Parts {
    fn new(world: &World, problem: &Problem, pes: u32) -> Result<Parts, GpuError> {
        let count = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
        let elements = count(problem.tokens * problem.columns * u64::from(pes));
        let buffer = world.buffer(elements.saturating_mul(problem.out.bytes() as usize))?;
        Ok(Parts {
            gates: world.zeros(count(problem.tokens * u64::from(problem.choices)))?,
            parts: AnyTensor::new(buffer, problem.out, elements.into_layout()?)?,
            met: world.zeros(2 * pes as usize)?,
        })
    }
}

/// The experts of a PE's tokens, in device memory, where each launch of a graph reads them anew.
pub struct Routes<'a> {
    /// Experts of each token, `i32` with modes (token, choice).
    pub ids: &'a dyn AsArgument,
    /// How many tokens there are, one `i32`: at most [`Problem::tokens`].
    pub live: &'a dyn AsArgument,
}

impl Moe {
    /// Compiles the kernels for a team, and allocates what launches need: [`Problem::symmetric_bytes`] of symmetric
    /// memory. *Collective*: all PEs of the world call it with the same arguments.
    ///
    /// # Errors
    /// Fails for a problem or a plan that the kernels do not have and where PEs of the team ask for different ones
    /// (R0505), without memory (R0302), and as [`Kernel::compile`] does.
    pub fn new(world: &World, team: Team, problem: Problem, plan: Plan) -> Result<Moe, GpuError> {
        let pes = team.n_pes();
        let fits = problem.check(pes).and_then(|()| plan.fits(&problem, pes));
        alike(world, &team, &format!("{problem}, {plan}"))?;
        fits?;
        let target = target(world.device())?;
        if target.name() != TARGET {
            let message = format!("the GPU is {target}, and mixtures of experts are for {TARGET}");
            return Err(Error::new(error::GEMM, message).help("run on a GPU of that kind").into());
        }
        let kernel = |part: &str, defines: &[(&str, Define)]| {
            let mut options = Options::new(target);
            let all =
                [("P", i64::from(pes)), ("EXPERTS", problem.experts.into()), ("K", problem.choices.into())];
            let all = all.into_iter().map(|(name, n)| (name, Define::Int(n)));
            options.defines =
                all.chain(defines.iter().cloned()).map(|(name, d)| (name.to_owned(), d)).collect();
            let text = crate::library::part(part).unwrap_or_default();
            Kernel::with(world, KernelFile::parse(&format!("weft::{part}"), text)?, options)
        };
        let (dtype, out) = (Define::from(problem.dtype), Define::from(problem.out));
        let ctas = ("CTAS", Define::Int(CTAS.into()));
        let align = ("ALIGN", Define::Int(Problem::ALIGN as i64));
        // Both kernels have the flags of pieces.
        let piece = ("PIECE", Define::Int(plan.piece.into()));
        let scaled = ("SCALES", Define::Int(problem.is_scaled().into()));
        let dispatch = if problem.is_scaled() { "moe_dispatch_scaled" } else { "moe_dispatch" };
        let mut of_experts = vec![("T", dtype), ("OUT", out), ctas, scaled];
        of_experts.extend(plan.defines());
        let (device, stream) = (world.device(), world.stream());
        let count = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
        let (tokens, choices) = (count(problem.tokens), problem.choices as usize);
        let (experts, local) = (problem.experts as usize, (problem.experts / pes) as usize);
        let (room, each) = (problem.rows(pes), pes as usize);
        let symmetric = |dtype: weft_runtime::DType, columns: u64| -> Result<AnyTensor, GpuError> {
            let shape = [count(room), count(columns)];
            let buffer = world.buffer(shape[0] * shape[1] * dtype.bytes() as usize)?;
            Ok(AnyTensor::new(buffer, dtype, shape.into_layout()?)?)
        };
        let (combine, parts) = match model::adds_at_experts(&problem, pes) {
            true => {
                let types = [("T", out), ("OUT", out), ("PART", out)];
                (kernel("moe_combine_once", &types)?, Some(Parts::new(world, &problem, pes)?))
            }
            false => (kernel("moe_combine", &[("T", out), ("OUT", out)])?, None),
        };
        let moe = Moe {
            dispatch: kernel(dispatch, &[("T", dtype), ctas, align, piece])?,
            experts: kernel("moe_experts", &of_experts)?,
            combine,
            parts,
            received: symmetric(problem.dtype, problem.hidden)?,
            scales: world.zeros(if problem.is_scaled() { count(room) } else { 1 })?,
            unread: DeviceTensor::zeros(1, stream)?,
            results: symmetric(problem.out, problem.columns)?,
            offsets: DeviceTensor::zeros(local + 1, stream)?,
            route: DeviceTensor::zeros([tokens, choices], stream)?,
            order: DeviceTensor::alloc(device, tokens * each)?,
            table: DeviceTensor::alloc(device, CTAS as usize * (2 * experts + 1))?,
            lists: world.zeros((choices + 1) * tokens * each)?,
            flags: world.zeros(tokens.div_ceil(plan.piece as usize) * each)?,
            counts: world.zeros((experts + 2) * each * 2)?,
            arrived: DeviceTensor::zeros(local, stream)?,
            due: DeviceTensor::zeros(local, stream)?,
            rounds: DeviceTensor::zeros(16, stream)?,
            status: DeviceTensor::zeros(1, stream)?,
            state: DeviceTensor::zeros(1, stream)?,
            started: world.zeros(pes as usize)?,
            passed: DeviceTensor::zeros(16, stream)?,
            room: i64::try_from(room).unwrap_or(i64::MAX),
            problem,
            plan,
            team,
        };
        // Nobody sends before all flags are 0.
        world.barrier()?;
        stream.synchronize()?;
        world.wait_for_all()?;
        Ok(moe)
    }

    /// The problem that it computes.
    pub fn problem(&self) -> &Problem {
        &self.problem
    }

    /// Tokens that came, with modes (row, column). The rows of an expert follow each other, in the order of the PEs
    /// that sent them and of their tokens.
    pub fn received(&self) -> &AnyTensor {
        &self.received
    }

    /// Scales of the tokens that came, one for each row, where the problem has scales.
    pub fn received_scales(&self) -> Option<&SymmetricTensor<f32>> {
        self.problem.is_scaled().then_some(&self.scales)
    }

    /// Results of the experts, of which each has the row of its token in [`Moe::received`]. [`Moe::experts`] writes
    /// them; after [`Moe::dispatch`], kernels of the caller do.
    pub fn results(&self) -> &AnyTensor {
        &self.results
    }

    /// Where the rows of each expert of this PE begin, multiples of [`Problem::ALIGN`]; and behind them where they end.
    pub fn offsets(&self) -> &DeviceTensor<i32> {
        &self.offsets
    }

    /// Sends the tokens x (token, column) to their experts. What follows on the stream reads [`Moe::received`] and
    /// [`Moe::offsets`].
    ///
    /// # Errors
    /// Fails for operands of other types, shapes or strides (R0502), for a grid that the GPU cannot hold (R0503), and for a
    /// problem with scales (R0505).
    pub fn dispatch(&self, stream: &Stream, x: &dyn AsArgument, routes: &Routes<'_>) -> Result<(), GpuError> {
        self.has_scales(false)?;
        self.send(stream, (x, None), routes)
    }

    /// Dispatches like [`dispatch`](Moe::dispatch), for tokens of 8 bits with a scale each: `scales`, f32 (token). They arrive in
    /// [`Moe::received_scales`].
    ///
    /// # Errors
    /// Fails where [`Moe::dispatch`] fails, and for a problem without scales (R0505).
    pub fn dispatch_scaled(
        &self,
        stream: &Stream,
        x: &dyn AsArgument,
        scales: &dyn AsArgument,
        routes: &Routes<'_>,
    ) -> Result<(), GpuError> {
        self.has_scales(true)?;
        self.send(stream, (x, Some(scales)), routes)
    }

    fn send(
        &self,
        stream: &Stream,
        (x, scales): (&dyn AsArgument, Option<&dyn AsArgument>),
        routes: &Routes<'_>,
    ) -> Result<(), GpuError> {
        let [tokens, hidden, _] = self.extents();
        let (received, to) = (Flat(&self.received), Flat(&self.scales));
        let scales = scales.map(Flat);
        let mut arguments: Vec<&dyn AsArgument> = vec![&tokens, &hidden, &self.room, x];
        arguments.extend(scales.iter().map(|scales| scales as &dyn AsArgument));
        arguments.extend([routes.ids, routes.live, &received as &dyn AsArgument]);
        arguments.extend(scales.iter().map(|_| &to as &dyn AsArgument));
        let places = self.places();
        arguments.push(&self.offsets);
        arguments.extend(self.workspaces(&places));
        self.launch(&self.dispatch, stream, &arguments)
    }

    /// Sends the tokens x to their experts, and multiplies each by the transpose of its expert's matrix (column of the
    /// result, column of x), in one launch. `b` has the matrices of this PE's experts behind each other. An expert
    /// begins when its tokens are complete.
    ///
    /// # Errors
    /// Fails where [`Moe::dispatch`] fails.
    pub fn experts(
        &self,
        stream: &Stream,
        x: &dyn AsArgument,
        routes: &Routes<'_>,
        b: &dyn AsArgument,
    ) -> Result<(), GpuError> {
        self.has_scales(false)?;
        self.multiply(stream, (x, &self.unread), routes, (b, &self.unread))
    }

    /// Multiplies like [`experts`](Moe::experts), for tokens and matrices of 8 bits: `scales`, f32 (token), and `scale_b`, f32 with one
    /// for each column of the results of each of this PE's experts, whose columns lie together.
    ///
    /// # Errors
    /// Fails where [`Moe::dispatch_scaled`] fails.
    pub fn experts_scaled(
        &self,
        stream: &Stream,
        (x, scales): (&dyn AsArgument, &dyn AsArgument),
        routes: &Routes<'_>,
        (b, scale_b): (&dyn AsArgument, &dyn AsArgument),
    ) -> Result<(), GpuError> {
        self.has_scales(true)?;
        self.multiply(stream, (x, scales), routes, (b, scale_b))
    }

    fn multiply(
        &self,
        stream: &Stream,
        (x, scales): (&dyn AsArgument, &dyn AsArgument),
        routes: &Routes<'_>,
        (b, scale_b): (&dyn AsArgument, &dyn AsArgument),
    ) -> Result<(), GpuError> {
        let [tokens, hidden, columns] = self.extents();
        let (received, results, b) = (Flat(&self.received), Flat(&self.results), Flat(b));
        let (scales, scale_b, scales_to) = (Flat(scales), Flat(scale_b), Flat(&self.scales));
        let mut arguments: Vec<&dyn AsArgument> =
            vec![&tokens, &columns, &hidden, &self.room, x, routes.ids, routes.live];
        let places = self.places();
        arguments.extend([&b as &dyn AsArgument, &scales, &scale_b, &scales_to]);
        arguments.extend([&received as &dyn AsArgument, &results, &self.offsets]);
        arguments.extend(self.workspaces(&places));
        self.launch(&self.experts, stream, &arguments)
    }

    /// Whether the problem has scales, as a call expects.
    fn has_scales(&self, expected: bool) -> Result<(), Error> {
        match (self.problem.is_scaled(), expected) {
            (true, false) => {
                let message = format!("tokens are {}, and no scales are given", self.problem.dtype);
                Err(Error::new(error::GEMM, message).help("use `dispatch_scaled` or `experts_scaled`"))
            }
            (false, true) => {
                let message = format!("tokens are {}, which have no scales", self.problem.dtype);
                Err(Error::new(error::GEMM, message).help("use `dispatch` or `experts`"))
            }
            _ => Ok(()),
        }
    }

    /// Writes to `out` (token, column) the results of each token's experts times `gates`, `f32` (token, choice), added
    /// up in f32. Where a token has several experts of a PE, that PE adds up their results in the order of choices and
    /// sends the sum, rounded to the type of results; sums are added up in the order of PEs. Otherwise all are added up in
    /// the order of choices. Nothing is written for tokens beyond `live`, and after an error.
    ///
    /// # Errors
    /// Fails where [`Moe::dispatch`] fails.
    pub fn combine(
        &self,
        stream: &Stream,
        routes: &Routes<'_>,
        gates: &dyn AsArgument,
        out: &dyn AsArgument,
    ) -> Result<(), GpuError> {
        let [tokens, _, columns] = self.extents();
        let results = Flat(&self.results);
        if let Some(parts) = &self.parts {
            return self.combine_once(stream, routes, gates, out, parts);
        }
        let arguments: [&dyn AsArgument; 13] = [
            &tokens,
            &columns,
            &self.room,
            routes.ids,
            gates,
            routes.live,
            &self.route,
            &results,
            out,
            &self.started,
            &self.passed,
            &self.status,
            &self.team,
        ];
        self.combine.launch(stream, Grid::Auto, &arguments[..])
    }

    fn combine_once(
        &self,
        stream: &Stream,
        routes: &Routes<'_>,
        gates: &dyn AsArgument,
        out: &dyn AsArgument,
        Parts { gates: all_gates, parts, met }: &Parts,
    ) -> Result<(), GpuError> {
        let [tokens, _, columns] = self.extents();
        let [lists, counts, results] = [Flat(&self.lists), Flat(&self.counts), Flat(&self.results)];
        let [all_gates, parts, met] = [Flat(all_gates), Flat(parts), Flat(met)];
        let arguments: [&dyn AsArgument; 19] = [
            &tokens,
            &columns,
            &self.room,
            routes.ids,
            gates,
            routes.live,
            &self.route,
            &lists,
            &counts,
            &self.rounds,
            &results,
            &all_gates,
            &parts,
            out,
            &met,
            &self.passed,
            &self.status,
            &self.state,
            &self.team,
        ];
        self.launch(&self.combine, stream, &arguments)
    }

    /// Waits for the stream, and says whether the newest dispatch was carried out.
    ///
    /// # Errors
    /// Fails on every PE of the team (R0506) for experts that do not exist, for more tokens than there is room for, and
    /// where PEs have tokens of different widths.
    pub fn check(&self, stream: &Stream) -> Result<(), GpuError> {
        let code = self.status.to_vec(stream)?.first().copied().unwrap_or_default();
        let Problem { tokens, experts, .. } = self.problem;
        let (message, help) = match code {
            0 => return Ok(()),
            1 => (
                format!(
                    "a PE names an expert that is not one of 0 to {}, or more than {tokens} tokens",
                    experts - 1
                ),
                "mend `ids` and `live`: an entry beyond `live` is not read",
            ),
            2 => (
                format!("a PE gets more rows of tokens than the {} that it has room for", self.room),
                "give the problem more rows; without `with_rows` there is room for any route",
            ),
            _ => (
                "PEs of the team have tokens of different widths, or room for different numbers of rows"
                    .into(),
                "make the problems of all PEs alike",
            ),
        };
        Err(Error::new(error::ROUTES, message).help(help).into())
    }

    fn extents(&self) -> [i64; 3] {
        let Problem { tokens, hidden, columns, .. } = self.problem;
        [tokens, hidden, columns].map(|n| i64::try_from(n).unwrap_or(i64::MAX))
    }

    /// Workspaces whose modes the kernels know.
    fn places(&self) -> [Flat<'_>; 5] {
        [Flat(&self.order), Flat(&self.table), Flat(&self.lists), Flat(&self.flags), Flat(&self.counts)]
    }

    /// The last arguments of a dispatch; `places` are those of [`Moe::places`].
    fn workspaces<'a>(&'a self, places: &'a [Flat<'a>; 5]) -> [&'a dyn AsArgument; 12] {
        let [order, table, lists, flags, counts] = places;
        [
            &self.route,
            order,
            table,
            lists,
            flags,
            counts,
            &self.arrived,
            &self.due,
            &self.rounds,
            &self.status,
            &self.state,
            &self.team,
        ]
    }

    /// Launches a kernel whose CTAs wait for each other.
    fn launch(
        &self,
        kernel: &Kernel,
        stream: &Stream,
        arguments: &[&dyn AsArgument],
    ) -> Result<(), GpuError> {
        let grid = Grid::of(kernel.max_ctas()?.min(CTAS));
        let options = LaunchOptions::default().cooperative(Some(true));
        kernel.launch_with(stream, grid, &options, arguments)
    }
}

impl fmt::Debug for Moe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Moe({}, {})", self.problem, self.plan)
    }
}
