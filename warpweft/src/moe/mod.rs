//! Mixtures of experts over the PEs of a team.
//!
//! Each PE has tokens, and each token has `choices` experts. The experts are divided among the PEs
//! in equal parts. A [`Moe`] computes the whole layer ([`Moe::layer`]) or its parts.
//! [`Moe::dispatch`] sends tokens to the PEs of their experts, [`Moe::experts`] also multiplies
//! them there in the same launch, and [`Moe::combine`] sends results back. Only the device knows
//! how many tokens an expert gets.
//!
//! There are two forms. For few tokens, as in decode, tokens and results are packets that carry
//! their own flags. For many tokens, PEs exchange their counts first, and move data while they
//! multiply. [`Moe::new`] uses the form that the model predicts to be faster for
//! [`Problem::tokens`].
//!
//! Launches of one `Moe` follow each other on one stream, and can be captured into a graph. Invalid
//! routes are an error on every PE, and no token arrives. [`Moe::check`] reports the error.

mod few;
mod many;
mod model;
mod problem;

pub use model::{Bytes, Estimate};
pub use problem::{Plan, Problem};

use crate::compile::{KernelFile, Options};
use crate::gemm::alike;
use crate::gpu::{GpuError, Kernel, target};
use few::Few;
use many::Many;
use std::fmt;
use weft_isa::Target;
use weft_lang::elaborate::Define;
use weft_runtime::launch::AsArgument;
use weft_runtime::memory::AnyTensor;
use weft_runtime::{DType, DeviceTensor, Error, IntoLayout, Stream, SymmetricTensor, Team, World, error};

/// The architecture that the kernels are written for, like those of products with communication
/// inside.
const TARGET: &str = "sm_90a";

/// Dispatch, products of experts, and combine, compiled for the PEs of a team.
pub struct Moe {
    shared: Shared,
    form: Form,
}

/// The form in which tokens and results travel.
enum Form {
    Few(Box<Few>),
    Many(Box<Many>),
}

/// The state that both forms share.
struct Shared {
    world: World,
    team: Team,
    target: Target,
    problem: Problem,
    plan: Plan,
    room: i64,
    received: AnyTensor,
    /// The scales of results' rows, or memory that replaces them.
    scales: SymmetricTensor<f32>,
    /// Memory that replaces scales that no kernel reads.
    unread: DeviceTensor<f32>,
    results: AnyTensor,
    offsets: DeviceTensor<i32>,
    counts: SymmetricTensor<u64>,
    rounds: DeviceTensor<u64>,
    status: DeviceTensor<u32>,
}

/// The experts of a PE's tokens, in device memory. Each launch of a graph reads them again.
pub struct Routes<'a> {
    /// Experts of each token, `i32` with modes (token, choice).
    pub ids: &'a dyn AsArgument,
    /// The number of tokens, one `i32`, at most [`Problem::tokens`].
    pub live: &'a dyn AsArgument,
}

/// Operands of a dispatch.
struct Calls<'a> {
    x: &'a dyn AsArgument,
    scales: Option<&'a dyn AsArgument>,
    routes: &'a Routes<'a>,
}

/// Operands of a combine.
struct Sum<'a> {
    routes: &'a Routes<'a>,
    gates: &'a dyn AsArgument,
    out: &'a dyn AsArgument,
}

fn count(n: u64) -> usize {
    usize::try_from(n).unwrap_or(usize::MAX)
}

impl Shared {
    /// Checks the problem and the plan, and allocates memory. This call is *collective*.
    fn new(world: &World, team: Team, problem: Problem, plan: Plan, form: &str) -> Result<Shared, GpuError> {
        let pes = team.n_pes();
        let fits = problem.check(pes).and_then(|()| plan.fits(&problem, pes));
        alike(world, &team, &format!("{problem}, {plan}, {form}"))?;
        fits?;
        let target = target(world.device())?;
        if target.name() != TARGET {
            let message =
                format!("the kernels for mixtures of experts are for {TARGET}, but the GPU is {target}");
            return Err(Error::new(error::GEMM, message).help("run on a GPU of that kind").into());
        }
        let stream = world.stream();
        let (experts, each, rows) = (problem.experts as usize, pes as usize, problem.rows(pes));
        let symmetric = |dtype: DType, rows: u64, columns: u64| -> Result<AnyTensor, GpuError> {
            let shape = [count(rows), count(columns)];
            let buffer = world.buffer(shape[0] * shape[1] * dtype.bytes() as usize)?;
            Ok(AnyTensor::new(buffer, dtype, shape.into_layout()?)?)
        };
        Ok(Shared {
            received: symmetric(problem.dtype, rows, problem.hidden)?,
            scales: world.zeros(if problem.is_scaled() { count(rows) } else { 1 })?,
            unread: DeviceTensor::zeros(1, stream)?,
            // Results of this PE's rows, or results of all PEs for its tokens.
            results: symmetric(problem.out, rows.max(problem.entries()), problem.columns)?,
            offsets: DeviceTensor::zeros(experts / each + 1, stream)?,
            counts: world.zeros((experts + 2) * each * 2)?,
            rounds: DeviceTensor::zeros(16, stream)?,
            status: DeviceTensor::zeros(1, stream)?,
            room: i64::try_from(rows).unwrap_or(i64::MAX),
            world: world.clone(),
            team,
            target,
            problem,
            plan,
        })
    }

    /// Compiles a kernel of the library with those of `defines` that it has as parameters.
    fn kernel(&self, part: &str, defines: &[(&str, Define)]) -> Result<Kernel, GpuError> {
        let Problem { experts, choices, .. } = self.problem;
        let file =
            KernelFile::parse(&format!("weft::{part}"), crate::library::part(part).unwrap_or_default())?;
        let sizes = [("P", self.team.n_pes()), ("EXPERTS", experts), ("K", choices)];
        let sizes = sizes.map(|(name, n)| (name, Define::Int(n.into())));
        let heads = file.heads();
        let taken = |name: &str| heads.iter().flat_map(|head| &head.generics).any(|(own, ..)| &**own == name);
        let all = sizes.iter().chain(defines).filter(|(name, _)| taken(name));
        let mut options = Options::new(self.target);
        options.defines = all.map(|(name, d)| ((*name).to_owned(), *d)).collect();
        Kernel::with(&self.world, file, options)
    }

    fn extents(&self) -> [i64; 3] {
        let Problem { tokens, hidden, columns, .. } = self.problem;
        [tokens, hidden, columns].map(|n| i64::try_from(n).unwrap_or(i64::MAX))
    }

    /// Checks that the problem has scales if the call expects them, and none otherwise.
    fn has_scales(&self, expected: bool) -> Result<(), Error> {
        match (self.problem.is_scaled(), expected) {
            (true, false) => {
                let message = format!("tokens are {}, and no scales are given", self.problem.dtype);
                let help = "use `dispatch_scaled`, `experts_scaled` or `layer_scaled`";
                Err(Error::new(error::GEMM, message).help(help))
            }
            (false, true) => {
                let message = format!("tokens are {}, which have no scales", self.problem.dtype);
                Err(Error::new(error::GEMM, message).help("use `dispatch`, `experts` or `layer`"))
            }
            _ => Ok(()),
        }
    }
}

impl Moe {
    /// Compiles the kernels for a team, and allocates the memory of launches:
    /// [`Problem::symmetric_bytes`] of symmetric memory, and workspaces. [`Problem::is_few`]
    /// chooses the form for few tokens or the one for many. This call is *collective*: all PEs of
    /// the world call it with the same arguments.
    ///
    /// # Errors
    /// Fails for a problem or a plan that the kernels do not support or if PEs of the team request
    /// different ones (R0505), if there is no memory (R0302), and where [`Kernel::compile`] fails.
    pub fn new(world: &World, team: Team, problem: Problem, plan: Plan) -> Result<Moe, GpuError> {
        match problem.is_few(team.n_pes()) {
            true => Moe::for_few(world, team, problem, plan),
            false => Moe::for_many(world, team, problem, plan),
        }
    }

    /// Compiles and allocates like [`new`](Moe::new), in the form for few tokens. This call is
    /// *collective*.
    ///
    /// # Errors
    /// Fails where [`Moe::new`] fails.
    pub fn for_few(world: &World, team: Team, problem: Problem, plan: Plan) -> Result<Moe, GpuError> {
        Moe::with(world, team, problem, plan, "few", |shared| Ok(Form::Few(Box::new(Few::new(shared)?))))
    }

    /// Compiles and allocates like [`new`](Moe::new), in the form for many tokens. This call is
    /// *collective*.
    ///
    /// # Errors
    /// Fails where [`Moe::new`] fails.
    pub fn for_many(world: &World, team: Team, problem: Problem, plan: Plan) -> Result<Moe, GpuError> {
        Moe::with(world, team, problem, plan, "many", |shared| {
            Ok(Form::Many(Box::new(Many::new(shared, None)?)))
        })
    }

    /// Makes the form for many tokens for measurements. [`Moe::layer`] sends results back during
    /// the products whatever the model predicts, and `moe_layer` has these values of compile-time
    /// parameters.
    #[doc(hidden)]
    pub fn tried(
        world: &World,
        team: Team,
        problem: Problem,
        plan: Plan,
        layer: &[(&'static str, i64)],
    ) -> Result<Moe, GpuError> {
        let form = format!("many {layer:?}");
        Moe::with(world, team, problem, plan, &form, |shared| {
            Ok(Form::Many(Box::new(Many::new(shared, Some(layer))?)))
        })
    }

    fn with(
        world: &World,
        team: Team,
        problem: Problem,
        plan: Plan,
        name: &str,
        form: impl FnOnce(&Shared) -> Result<Form, GpuError>,
    ) -> Result<Moe, GpuError> {
        let shared = Shared::new(world, team, problem, plan, name)?;
        let moe = Moe { form: form(&shared)?, shared };
        // No PE may send before all flags are 0.
        world.barrier()?;
        world.stream().synchronize()?;
        world.wait_for_all()?;
        Ok(moe)
    }

    /// The problem that it computes.
    pub fn problem(&self) -> &Problem {
        &self.shared.problem
    }

    /// The tokens that arrived, with modes (row, column). The rows of an expert are contiguous, in
    /// the order of the PEs that sent them and of their tokens.
    pub fn received(&self) -> &AnyTensor {
        &self.shared.received
    }

    /// The scales of the tokens that arrived, one for each row, if the problem has scales.
    pub fn received_scales(&self) -> Option<&SymmetricTensor<f32>> {
        self.shared.problem.is_scaled().then_some(&self.shared.scales)
    }

    /// The results of the experts, each in the row of its token in [`Moe::received`].
    /// [`Moe::experts`] writes them. After [`Moe::dispatch`], kernels of the caller write them.
    /// [`Moe::layer`] leaves other contents there.
    pub fn results(&self) -> &AnyTensor {
        &self.shared.results
    }

    /// The first row of each expert of this PE, which is a multiple of [`Problem::ALIGN`], and
    /// after those the end of the last expert's rows.
    pub fn offsets(&self) -> &DeviceTensor<i32> {
        &self.shared.offsets
    }

    /// Sends the tokens x (token, column) to their experts. Later work on the stream can read
    /// [`Moe::received`] and [`Moe::offsets`].
    ///
    /// # Errors
    /// Fails for operands of other types, shapes or strides (R0502), for a grid that the GPU cannot hold (R0503), and for a
    /// problem with scales (R0505).
    pub fn dispatch(&self, stream: &Stream, x: &dyn AsArgument, routes: &Routes<'_>) -> Result<(), GpuError> {
        self.shared.has_scales(false)?;
        self.send(stream, &Calls { x, scales: None, routes })
    }

    /// Dispatches like [`dispatch`](Moe::dispatch), for tokens of 8 bits. `scales` is f32 (token),
    /// and the scales arrive in [`Moe::received_scales`].
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
        self.shared.has_scales(true)?;
        self.send(stream, &Calls { x, scales: Some(scales), routes })
    }

    fn send(&self, stream: &Stream, calls: &Calls<'_>) -> Result<(), GpuError> {
        match &self.form {
            Form::Few(few) => few.dispatch(&self.shared, stream, calls),
            Form::Many(many) => many.dispatch(&self.shared, stream, calls),
        }
    }

    /// Sends the tokens x to their experts, and multiplies each by the transpose of its expert's
    /// matrix (column of the result, column of x). `b` contains the matrices of this PE's experts
    /// one after the other. For many tokens, it is one launch in which an expert begins when its
    /// tokens are complete.
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
        self.shared.has_scales(false)?;
        self.multiply(stream, &Calls { x, scales: None, routes }, (b, &self.shared.unread))
    }

    /// Multiplies like [`experts`](Moe::experts), for tokens and matrices of 8 bits. `scales` is
    /// f32 (token). `scale_b` is f32, with a scale for each column of the results of each of this
    /// PE's experts. The scales of an expert are contiguous.
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
        self.shared.has_scales(true)?;
        self.multiply(stream, &Calls { x, scales: Some(scales), routes }, (b, scale_b))
    }

    fn multiply(
        &self,
        stream: &Stream,
        calls: &Calls<'_>,
        b: (&dyn AsArgument, &dyn AsArgument),
    ) -> Result<(), GpuError> {
        match &self.form {
            Form::Few(few) => {
                few.dispatch(&self.shared, stream, calls)?;
                few.products(&self.shared, stream, b)
            }
            Form::Many(many) => many.experts(&self.shared, stream, calls, b),
        }
    }

    /// Computes the whole layer, like [`experts`](Moe::experts) followed by
    /// [`combine`](Moe::combine). In the form for many tokens, if few tokens have several experts
    /// of one PE, results are sent back to their tokens while others are multiplied, and are added
    /// up in the order of choices.
    ///
    /// # Errors
    /// Fails where [`Moe::dispatch`] fails.
    pub fn layer(
        &self,
        stream: &Stream,
        x: &dyn AsArgument,
        routes: &Routes<'_>,
        b: &dyn AsArgument,
        gates: &dyn AsArgument,
        out: &dyn AsArgument,
    ) -> Result<(), GpuError> {
        self.shared.has_scales(false)?;
        let calls = Calls { x, scales: None, routes };
        self.whole(stream, &calls, (b, &self.shared.unread), &Sum { routes, gates, out })
    }

    /// Computes like [`layer`](Moe::layer), with the scales of [`experts_scaled`](Moe::experts_scaled).
    ///
    /// # Errors
    /// Fails where [`Moe::dispatch_scaled`] fails.
    pub fn layer_scaled(
        &self,
        stream: &Stream,
        (x, scales): (&dyn AsArgument, &dyn AsArgument),
        routes: &Routes<'_>,
        b: (&dyn AsArgument, &dyn AsArgument),
        gates: &dyn AsArgument,
        out: &dyn AsArgument,
    ) -> Result<(), GpuError> {
        self.shared.has_scales(true)?;
        let calls = Calls { x, scales: Some(scales), routes };
        self.whole(stream, &calls, b, &Sum { routes, gates, out })
    }

    fn whole(
        &self,
        stream: &Stream,
        calls: &Calls<'_>,
        b: (&dyn AsArgument, &dyn AsArgument),
        sum: &Sum<'_>,
    ) -> Result<(), GpuError> {
        match &self.form {
            Form::Few(few) => {
                self.multiply(stream, calls, b)?;
                few.combine(&self.shared, stream, sum)
            }
            Form::Many(many) => many.layer(&self.shared, stream, calls, b, sum),
        }
    }

    /// Writes to `out` (token, column) the sum of the results of each token's experts times
    /// `gates`, `f32` (token, choice). The sum is in f32, in the order of choices. In the form for
    /// many tokens, a PE that has several experts of a token adds up their results in the order of
    /// choices, and sends the sum, rounded to the type of results. The token's PE adds up these
    /// sums in the order of PEs. Nothing is written for tokens beyond `live`, or after an error.
    /// Call a dispatch between two calls.
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
        let sum = Sum { routes, gates, out };
        match &self.form {
            Form::Few(few) => few.combine(&self.shared, stream, &sum),
            Form::Many(many) => many.combine(&self.shared, stream, &sum),
        }
    }

    /// Waits for the stream, and checks that the newest dispatch succeeded.
    ///
    /// # Errors
    /// Fails on every PE of the team (R0506) for experts that do not exist, for more tokens than
    /// there is room for, and if PEs have tokens of different widths.
    pub fn check(&self, stream: &Stream) -> Result<(), GpuError> {
        let code = self.shared.status.to_vec(stream)?.first().copied().unwrap_or_default();
        let Problem { tokens, experts, .. } = self.shared.problem;
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
                format!("a PE gets more rows of tokens than the {} that it has room for", self.shared.room),
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
}

impl fmt::Debug for Moe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Moe({}, {})", self.shared.problem, self.shared.plan)
    }
}
