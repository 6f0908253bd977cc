//! The form for few tokens, with packets that carry their own flags.

use super::{Calls, Shared, Sum, count};
use crate::collective::Flat;
use crate::gpu::{GpuError, Grid, Kernel};
use weft_lang::elaborate::Define;
use weft_runtime::launch::AsArgument;
use weft_runtime::{DeviceTensor, Stream, SymmetricTensor};

/// The kernels of this form, and the memory that only they use.
pub(super) struct Few {
    dispatch: Kernel,
    products: Kernel,
    combine: Kernel,
    spans: DeviceTensor<i32>,
    origin: DeviceTensor<i32>,
    inbox: SymmetricTensor<u64>,
    heads: SymmetricTensor<u64>,
    back: SymmetricTensor<u64>,
    passed: DeviceTensor<u64>,
}

impl Few {
    pub(super) fn new(shared: &Shared) -> Result<Few, GpuError> {
        let Shared { world, team, problem, plan, .. } = shared;
        let (pes, stream) = (team.n_pes(), world.stream());
        let (dtype, out) = (Define::from(problem.dtype), Define::from(problem.out));
        let scaled = ("SCALES", Define::Int(problem.is_scaled().into()));
        let align = ("ALIGN", Define::Int(i64::try_from(super::Problem::ALIGN).unwrap_or(i64::MAX)));
        let mut products = vec![("T", dtype), ("OUT", out), scaled];
        products.push(("OUTS", Define::Int(plan.strips(problem, pes).into())));
        products.extend(plan.defines().filter(|(name, _)| *name != "PIECE"));
        // A packet has 8 bytes of data in two words.
        let words = |columns: u64, bytes: u32| count(columns * u64::from(bytes) / 4);
        let (tokens, each) = (count(problem.tokens), pes as usize);
        let heads = problem.choices as usize + usize::from(problem.is_scaled());
        let local = (problem.experts / pes.max(1)) as usize;
        Ok(Few {
            dispatch: shared.kernel("moe_ll_dispatch", &[("T", dtype), align, scaled])?,
            products: shared.kernel("moe_products", &products)?,
            combine: shared.kernel("moe_ll_combine", &[("T", out), ("OUT", out)])?,
            spans: DeviceTensor::zeros([local, 2], stream)?,
            origin: DeviceTensor::zeros([count(problem.rows(pes)), 2], stream)?,
            inbox: world.zeros(words(problem.hidden, problem.dtype.bytes()) * tokens * each * 2)?,
            heads: world.zeros(2 * heads * tokens * each * 2)?,
            back: world.zeros(words(problem.columns, problem.out.bytes()) * count(problem.entries()))?,
            passed: DeviceTensor::zeros(16, stream)?,
        })
    }

    pub(super) fn dispatch(
        &self,
        shared: &Shared,
        stream: &Stream,
        calls: &Calls<'_>,
    ) -> Result<(), GpuError> {
        let [tokens, hidden, _] = shared.extents();
        let (received, scales_to) = (Flat(&shared.received), Flat(&shared.scales));
        let scales = Flat(calls.scales.unwrap_or(&shared.unread));
        let [inbox, heads, counts] = [Flat(&self.inbox), Flat(&self.heads), Flat(&shared.counts)];
        let arguments: [&dyn AsArgument; 18] = [
            &tokens,
            &hidden,
            &shared.room,
            calls.x,
            &scales,
            calls.routes.ids,
            calls.routes.live,
            &received,
            &scales_to,
            &shared.offsets,
            &self.spans,
            &self.origin,
            &inbox,
            &heads,
            &counts,
            &shared.rounds,
            &shared.status,
            &shared.team,
        ];
        // CTAs wait only for the same CTA of other PEs, but CTAs of a PE that start late would keep
        // those waiting.
        self.dispatch.launch(stream, Grid::Auto, &arguments[..])
    }

    /// Multiplies the tokens that a dispatch has brought.
    pub(super) fn products(
        &self,
        shared: &Shared,
        stream: &Stream,
        (b, scale_b): (&dyn AsArgument, &dyn AsArgument),
    ) -> Result<(), GpuError> {
        let [_, hidden, columns] = shared.extents();
        let (received, results, scales) =
            (Flat(&shared.received), Flat(&shared.results), Flat(&shared.scales));
        let (b, scale_b) = (Flat(b), Flat(scale_b));
        let arguments: [&dyn AsArgument; 9] =
            [&columns, &hidden, &shared.room, &received, &b, &scales, &scale_b, &self.spans, &results];
        self.products.launch(stream, Grid::Auto, &arguments[..])
    }

    pub(super) fn combine(&self, shared: &Shared, stream: &Stream, sum: &Sum<'_>) -> Result<(), GpuError> {
        let [tokens, _, columns] = shared.extents();
        let (results, back) = (Flat(&shared.results), Flat(&self.back));
        let arguments: [&dyn AsArgument; 13] = [
            &tokens,
            &columns,
            &shared.room,
            sum.gates,
            sum.routes.live,
            &self.origin,
            &self.spans,
            &results,
            sum.out,
            &back,
            &self.passed,
            &shared.status,
            &shared.team,
        ];
        self.combine.launch(stream, Grid::Auto, &arguments[..])
    }
}
