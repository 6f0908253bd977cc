//! The form for many tokens, which exchanges counts first, and then sends each token once to each
//! PE.

use super::model;
use super::{Calls, Plan, Shared, Sum, count};
use crate::collective::{Flat, Links};
use crate::gpu::{GpuError, Grid, Kernel};
use weft_lang::elaborate::Define;
use weft_runtime::launch::{AsArgument, LaunchOptions};
use weft_runtime::memory::AnyTensor;
use weft_runtime::{DeviceTensor, IntoLayout, Stream, SymmetricTensor};

/// The kernels of this form, and the memory that only they use.
pub(super) struct Many {
    dispatch: Kernel,
    experts: Kernel,
    combine: Kernel,
    /// The memory of a combine that adds up results at the PE of the experts, if it does.
    parts: Option<Parts>,
    /// The kernels that send results back during the products, if they do.
    back: Option<Back>,
    route: DeviceTensor<i32>,
    origin: DeviceTensor<u64>,
    order: DeviceTensor<i32>,
    lists: SymmetricTensor<u64>,
    flags: SymmetricTensor<u64>,
    arrived: DeviceTensor<u64>,
    due: DeviceTensor<u64>,
    state: DeviceTensor<u32>,
    started: SymmetricTensor<u64>,
    passed: DeviceTensor<u64>,
    done: SymmetricTensor<u64>,
    returned: DeviceTensor<u64>,
}

/// Products whose results are sent back in the same launch, and the sums of these results.
struct Back {
    layer: Kernel,
    sum: Kernel,
}

/// Memory of a combine that adds up a PE's results of a token before it sends the sum.
struct Parts {
    gates: SymmetricTensor<f32>,
    parts: AnyTensor,
    met: SymmetricTensor<u64>,
}

impl Parts {
    fn new(shared: &Shared) -> Result<Parts, GpuError> {
        let (world, problem, pes) = (&shared.world, &shared.problem, shared.team.n_pes());
        let elements = count(problem.tokens * problem.columns * u64::from(pes));
        let buffer = world.buffer(elements.saturating_mul(problem.out.bytes() as usize))?;
        Ok(Parts {
            gates: world.zeros(count(problem.entries()))?,
            parts: AnyTensor::new(buffer, problem.out, elements.into_layout()?)?,
            met: world.zeros(2 * pes as usize)?,
        })
    }
}

impl Many {
    /// Compiles the kernels, and allocates their memory. With `tried`, results are sent back during
    /// the products whatever the model predicts, and `moe_layer` has these additional values.
    pub(super) fn new(shared: &Shared, tried: Option<&[(&'static str, i64)]>) -> Result<Many, GpuError> {
        let Shared { world, team, problem, plan, .. } = shared;
        let (pes, stream) = (team.n_pes(), world.stream());
        let (dtype, out) = (Define::from(problem.dtype), Define::from(problem.out));
        let int = |n: u64| Define::Int(i64::try_from(n).unwrap_or(i64::MAX));
        // For few tokens, pieces are so small that each CTA has one.
        let ctas = u64::from(world.device().sm_count()?).max(1);
        let each = (problem.tokens * u64::from(pes)).div_ceil(ctas).max(1);
        let plan = &Plan { piece: plan.piece.min(u32::try_from(each).unwrap_or(u32::MAX)), ..*plan };
        // All kernels use the flags of pieces.
        let piece = ("PIECE", Define::Int(plan.piece.into()));
        let scaled = ("SCALES", Define::Int(problem.is_scaled().into()));
        let outs = ("OUTS", Define::Int(plan.strips(problem, pes).into()));
        let mut products = vec![("T", dtype), ("OUT", out), scaled, outs];
        products.extend(plan.defines());
        let experts = shared.kernel("moe_experts", &products)?;
        let of_results = [("T", out), ("OUT", out)];
        let back = match tried.is_some() || model::returns_beside(problem, pes) {
            true => {
                // If names are equal, the last one counts.
                products.push(("OUTS", Define::Int(plan.strips_back(problem, pes).into())));
                products.push(("PACE", Define::Int(model::pace(problem, plan, pes, &Links::H200))));
                products.extend(tried.into_iter().flatten().map(|&(name, n)| (name, Define::Int(n))));
                let layer = shared.kernel("moe_layer", &products)?;
                Some(Back { layer, sum: shared.kernel("moe_sum", &of_results)? })
            }
            false => None,
        };
        let dispatch = if problem.is_scaled() { "moe_dispatch_scaled" } else { "moe_dispatch" };
        let to_dispatch = [("T", dtype), ("ALIGN", int(super::Problem::ALIGN)), piece];
        let (combine, parts) = match model::adds_at_experts(problem, pes) {
            true => {
                let types = [of_results[0], of_results[1], ("PART", out)];
                (shared.kernel("moe_combine_once", &types)?, Some(Parts::new(shared)?))
            }
            false => (shared.kernel("moe_combine", &of_results)?, None),
        };
        let (tokens, choices) = (count(problem.tokens), problem.choices as usize);
        let each = pes as usize;
        let local = problem.experts as usize / each;
        Ok(Many {
            dispatch: shared.kernel(dispatch, &to_dispatch)?,
            experts,
            combine,
            parts,
            back,
            route: DeviceTensor::zeros([tokens, choices], stream)?,
            origin: DeviceTensor::zeros(count(problem.rows(pes)), stream)?,
            order: DeviceTensor::alloc(world.device(), tokens * each)?,
            lists: world.zeros((choices + 1) * tokens * each)?,
            flags: world.zeros(tokens.div_ceil(plan.piece as usize) * each)?,
            arrived: DeviceTensor::zeros(local, stream)?,
            due: DeviceTensor::zeros(local, stream)?,
            state: DeviceTensor::zeros(1, stream)?,
            started: world.zeros(each)?,
            passed: DeviceTensor::zeros(16, stream)?,
            done: world.zeros(each)?,
            returned: DeviceTensor::zeros(16, stream)?,
        })
    }

    pub(super) fn dispatch(
        &self,
        shared: &Shared,
        stream: &Stream,
        calls: &Calls<'_>,
    ) -> Result<(), GpuError> {
        let [tokens, hidden, _] = shared.extents();
        let (received, to) = (Flat(&shared.received), Flat(&shared.scales));
        let scales = calls.scales.map(Flat);
        let places = self.places(shared);
        let mut arguments: Vec<&dyn AsArgument> = vec![&tokens, &hidden, &shared.room, calls.x];
        arguments.extend(scales.iter().map(|scales| scales as &dyn AsArgument));
        arguments.extend([calls.routes.ids, calls.routes.live, &received as &dyn AsArgument]);
        arguments.extend(scales.iter().map(|_| &to as &dyn AsArgument));
        arguments.push(&shared.offsets);
        arguments.extend(self.sending(&places));
        arguments.extend(self.counting(shared));
        launch(&self.dispatch, stream, &arguments)
    }

    /// Computes the whole layer.
    pub(super) fn layer(
        &self,
        shared: &Shared,
        stream: &Stream,
        calls: &Calls<'_>,
        b: (&dyn AsArgument, &dyn AsArgument),
        sum: &Sum<'_>,
    ) -> Result<(), GpuError> {
        let Some(Back { layer, sum: kernel }) = &self.back else {
            self.experts(shared, stream, calls, b)?;
            return self.combine(shared, stream, sum);
        };
        self.multiply(shared, stream, calls, b, Some(layer))?;
        self.sum(shared, stream, sum, kernel)
    }

    /// Dispatches tokens, and multiplies them by the matrices `b`.
    pub(super) fn experts(
        &self,
        shared: &Shared,
        stream: &Stream,
        calls: &Calls<'_>,
        b: (&dyn AsArgument, &dyn AsArgument),
    ) -> Result<(), GpuError> {
        self.multiply(shared, stream, calls, b, None)
    }

    /// Dispatches tokens and multiplies them. With `layer`, results are sent back in the same
    /// launch.
    fn multiply(
        &self,
        shared: &Shared,
        stream: &Stream,
        calls: &Calls<'_>,
        (b, scale_b): (&dyn AsArgument, &dyn AsArgument),
        layer: Option<&Kernel>,
    ) -> Result<(), GpuError> {
        let [tokens, hidden, columns] = shared.extents();
        let (received, results, b) = (Flat(&shared.received), Flat(&shared.results), Flat(b));
        let scales = Flat(calls.scales.unwrap_or(&shared.unread));
        let (scale_b, scales_to, done) = (Flat(scale_b), Flat(&shared.scales), Flat(&self.done));
        let places = self.places(shared);
        let mut arguments: Vec<&dyn AsArgument> = vec![&tokens, &columns, &hidden, &shared.room];
        arguments.extend([calls.x, calls.routes.ids, calls.routes.live]);
        arguments.extend([&b as &dyn AsArgument, &scales, &scale_b, &scales_to, &received]);
        if layer.is_some() {
            arguments.push(&self.origin);
        }
        arguments.extend([&results as &dyn AsArgument, &shared.offsets]);
        arguments.extend(self.sending(&places));
        let Some(layer) = layer else {
            arguments.extend(self.counting(shared));
            return launch(&self.experts, stream, &arguments);
        };
        let [arrived, due, rounds, status, state, team] = self.counting(shared);
        arguments.extend([
            &done as &dyn AsArgument,
            arrived,
            due,
            rounds,
            &self.returned,
            status,
            state,
            team,
        ]);
        launch(layer, stream, &arguments)
    }

    /// Adds up the results that `moe_layer` has sent back.
    fn sum(&self, shared: &Shared, stream: &Stream, sum: &Sum<'_>, kernel: &Kernel) -> Result<(), GpuError> {
        let [tokens, _, columns] = shared.extents();
        let (results, done) = (Flat(&shared.results), Flat(&self.done));
        let arguments: [&dyn AsArgument; 10] = [
            &tokens,
            &columns,
            sum.gates,
            sum.routes.live,
            &results,
            sum.out,
            &done,
            &shared.rounds,
            &shared.status,
            &shared.team,
        ];
        kernel.launch(stream, Grid::Auto, &arguments[..])
    }

    pub(super) fn combine(&self, shared: &Shared, stream: &Stream, sum: &Sum<'_>) -> Result<(), GpuError> {
        let [tokens, _, columns] = shared.extents();
        let results = Flat(&shared.results);
        let mut arguments: Vec<&dyn AsArgument> =
            vec![&tokens, &columns, &shared.room, sum.routes.ids, sum.gates];
        arguments.extend([sum.routes.live, &self.route]);
        let Some(Parts { gates, parts, met }) = &self.parts else {
            arguments.extend([&results as &dyn AsArgument, sum.out, &self.started, &self.passed]);
            arguments.extend([&shared.status as &dyn AsArgument, &shared.team]);
            return self.combine.launch(stream, Grid::Auto, &arguments[..]);
        };
        let [lists, counts] = [Flat(&self.lists), Flat(&shared.counts)];
        let [gates, parts, met] = [Flat(gates), Flat(parts), Flat(met)];
        arguments.extend([&lists as &dyn AsArgument, &counts, &shared.rounds, &results, &gates, &parts]);
        arguments.extend([sum.out, &met, &self.passed, &shared.status, &self.state, &shared.team]);
        launch(&self.combine, stream, &arguments)
    }

    /// The workspaces whose modes the kernels know.
    fn places<'a>(&'a self, shared: &'a Shared) -> [Flat<'a>; 4] {
        [Flat(&self.order), Flat(&self.lists), Flat(&self.flags), Flat(&shared.counts)]
    }

    /// The arguments that say where tokens go, with the workspaces of [`Many::places`].
    fn sending<'a>(&'a self, places: &'a [Flat<'a>; 4]) -> [&'a dyn AsArgument; 5] {
        let [order, lists, flags, counts] = places;
        [&self.route, order, lists, flags, counts]
    }

    /// The last arguments of a dispatch.
    fn counting<'a>(&'a self, shared: &'a Shared) -> [&'a dyn AsArgument; 6] {
        [&self.arrived, &self.due, &shared.rounds, &shared.status, &self.state, &shared.team]
    }
}

/// Launches a kernel whose CTAs wait for each other.
fn launch(kernel: &Kernel, stream: &Stream, arguments: &[&dyn AsArgument]) -> Result<(), GpuError> {
    let grid = Grid::of(kernel.max_ctas()?);
    let options = LaunchOptions::default().cooperative(Some(true));
    kernel.launch_with(stream, grid, &options, arguments)
}
