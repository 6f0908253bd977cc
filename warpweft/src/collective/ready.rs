//! Launches that are prepared for the calls of one request.

use super::call::{Call, Flat};
use super::engine::{self, LANDED, LEAD, LEAD_SHAPE, Lead};
use super::handle::Compiled;
use super::kernel::{align, head, refuse};
use super::{Collective, Collectives, Placement, Plan, Request};
use crate::gpu::{GpuError, Kernel};
use std::sync::Arc;
use weft_runtime::cuda::Stream;
use weft_runtime::error;
use weft_runtime::launch::{ArgumentValue, AsArgument, Elements, Grid, Prepared};

/// A launch that was prepared for calls of one request.
#[derive(Clone)]
pub(super) struct Ready {
    launch: Arc<Prepared>,
    /// Positions of `x` and `out` among the kernel's arguments.
    places: [Option<usize>; 2],
}

/// What was prepared for calls of one request.
#[derive(Clone)]
pub(super) enum Arranged {
    /// One launch.
    Kernel(Ready),
    /// Kernels beside which the copy engine carries the bytes.
    Engine(Arc<engine::Kernels>),
}

impl Arranged {
    /// Whether all of it can still be launched.
    pub fn is_current(&self) -> bool {
        match self {
            Arranged::Kernel(ready) => ready.is_current(),
            Arranged::Engine(kernels) => kernels.are_current(),
        }
    }
}

impl Ready {
    /// Whether it can still be launched.
    pub fn is_current(&self) -> bool {
        self.launch.is_current()
    }

    /// Launches it for a call with the same request.
    pub fn go(&self, call: &Call<'_>, stream: &Stream) -> Result<(), GpuError> {
        let (x, out) = (Flat(call.x), call.out.map(Flat));
        let sides = [Some(&x), out.as_ref()];
        let others = (0..2).filter_map(|side| {
            let (place, given) = (self.places[side]?, sides[side]?);
            let given = given.argument(stream);
            let moves = matches!(
                given.given(),
                ArgumentValue::Tensor { symmetric: false, extent: Elements::Flat(_), .. }
            );
            moves.then_some((place, given))
        });
        Ok(self.launch.launch(stream, &others.collect::<Vec<_>>())?)
    }
}

impl Collectives {
    /// Carries out a call by the launch that was prepared for its request.
    pub(super) fn go(
        &self,
        arranged: &Arranged,
        (call, request): (&Call<'_>, &Request),
        stream: &Stream,
    ) -> Result<(), GpuError> {
        match arranged {
            Arranged::Kernel(ready) => ready.go(call, stream),
            Arranged::Engine(kernels) => {
                self.engine.go((&self.world, &self.team), kernels, (call, request), stream)
            }
        }
    }

    /// Prepares what a call with a plan launches.
    pub(super) fn arranged(
        &self,
        plan: &Plan,
        call: &Call<'_>,
        request: &Request,
        stream: &Stream,
    ) -> Result<Arranged, GpuError> {
        let of = |plan: &Plan, name| self.bound(plan, name, (call, request), stream);
        let kernel = of(plan, self.name(plan, request)?)?;
        Ok(match plan.algorithm.engine {
            true => Arranged::Engine(Arc::new(engine::Kernels {
                meet: kernel,
                lead: of(&self.lead(plan), LEAD)?,
                landed: of(plan, LANDED)?,
                calls: self.workspaces.tensor("calls", plan, request)?,
                marks: self.workspaces.tensor("marks", plan, request)?,
            })),
            false => Arranged::Kernel(kernel),
        })
    }

    /// The plan of the kernel that runs beside the copy engine.
    pub(super) fn lead(&self, plan: &Plan) -> Plan {
        let (ctas, threads) = LEAD_SHAPE;
        Plan { ctas: self.ctas.min(ctas), threads, ..*plan }
    }

    /// The plan with at most as many CTAs as the GPU holds at once, and its kernel.
    fn held(
        &self,
        plan: &Plan,
        name: &'static str,
        request: &Request,
    ) -> Result<(Plan, Arc<Kernel>), GpuError> {
        let Compiled { kernel, max_ctas } = self.kernel(plan, name, request)?;
        if plan.ctas <= max_ctas {
            return Ok((*plan, kernel));
        }
        // A kernel for many CTAs may not handle the additional work of each CTA of a smaller
        // launch.
        let plan = Plan { ctas: max_ctas, ..*plan };
        Ok((plan, self.kernel(&plan, name, request)?.kernel))
    }

    /// Prepares the launch of one of the plan's kernels.
    fn bound(
        &self,
        plan: &Plan,
        name: &'static str,
        (call, request): (&Call<'_>, &Request),
        stream: &Stream,
    ) -> Result<Ready, GpuError> {
        let (plan, kernel) = &self.held(plan, name, request)?;
        let head = head(plan.algorithm, name)?;
        let is_space = |name: &str| super::workspace::extent(name, plan, request, self.ctas).is_some();
        let spaces = head.params.iter().filter(|p| is_space(&p.name));
        let spaces = spaces
            .map(|p| Ok((&*p.name, self.workspaces.tensor(&p.name, plan, request)?)))
            .collect::<Result<Vec<_>, GpuError>>()?;
        let (x, out) = (Flat(call.x), Flat(call.out.unwrap_or(call.x)));
        let lead = (name == LEAD).then(|| Lead::of(request, self.team.my_pe()));
        let numbers: Vec<_> = numbers(request, lead).collect();
        let mut arguments: Vec<&dyn AsArgument> = Vec::with_capacity(head.params.len());
        for p in &head.params {
            let space = spaces.iter().find(|(name, _)| *name == &*p.name).map(|(_, t)| t as &dyn AsArgument);
            let number =
                numbers.iter().find(|(name, _)| *name == &*p.name).map(|(_, n)| n as &dyn AsArgument);
            let given = match &*p.name {
                "x" => Some(&x as &dyn AsArgument),
                "out" => Some(&out as _),
                "sync" => Some(&self.sync as _),
                "team" => Some(&self.team as _),
                _ => space.or(number),
            };
            let none = || {
                let by = plan.algorithm.name;
                refuse(error::ARGUMENT, format!("{by} takes `{}`, which does not exist", p.name))
            };
            arguments.push(given.ok_or_else(none)?);
        }
        let launch = kernel.prepared(stream, Grid::of(plan.ctas), arguments)?;
        let place = |name: &str| head.params.iter().position(|p| *p.name == *name);
        let places = [place("x"), call.out.and(place("out"))];
        Ok(Ready { launch: Arc::new(launch), places })
    }
}

/// The numbers that a kernel takes, by their names.
fn numbers(request: &Request, lead: Option<Lead>) -> impl Iterator<Item = (&'static str, i64)> {
    let unit = u64::from(align(request) / request.dtype.bytes()).max(1);
    let counts = request.counts();
    let in_place = request.place == Placement::InPlace;
    let operand = |elements| if in_place { counts.send.max(counts.recv) } else { elements };
    let all = [("n", request.count), ("size_x", operand(counts.send)), ("size_out", operand(counts.recv))];
    let all = all.into_iter().chain(lead.into_iter().flat_map(move |lead| lead.numbers(unit)));
    let all = all.map(|(name, number)| (name, i64::try_from(number).unwrap_or(i64::MAX)));
    let sender = if request.collective == Collective::Broadcast { i64::from(request.root) } else { -1 };
    all.chain([("sender", sender)])
}
