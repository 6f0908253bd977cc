//! The launches of calls: they are prepared for the calls of one request, and kept for later calls.

use super::call::{Call, Flat};
use super::engine::{self, LANDED, LEAD, LEAD_SHAPE, Lead};
use super::handle::{Arranged, Collectives, Compiled};
use super::kernel::{align, head, refuse};
use super::ready::Ready;
use super::workspace::extent;
use super::{Collective, Placement, Plan, Request};
use crate::gpu::{GpuError, Kernel};
use std::sync::{Arc, PoisonError};
use weft_runtime::cuda::Stream;
use weft_runtime::launch::{AsArgument, Grid};
use weft_runtime::{Reduce, error};

/// The greatest number of prepared launches that are kept.
const MAX_READY: usize = 1024;

impl Collectives {
    /// Reduces the `x` of all PEs, and writes the result to `out` of every PE, or to `x` if there is no
    /// `out`.
    ///
    /// # Errors
    /// Fails where [`launch`](Collectives::launch) fails.
    pub fn allreduce(
        &self,
        x: &dyn AsArgument,
        out: Option<&dyn AsArgument>,
        op: Reduce,
        stream: &Stream,
    ) -> Result<(), GpuError> {
        self.run(&Call { op, ..Call::new(Collective::AllReduce, x, out) }, stream)
    }

    /// Reduces the `x` of all PEs, which has a part for each PE. This PE's part of the result is written to
    /// `out`, or to its part of `x` if there is no `out`.
    ///
    /// # Errors
    /// Fails where [`launch`](Collectives::launch) fails.
    pub fn reduce_scatter(
        &self,
        x: &dyn AsArgument,
        out: Option<&dyn AsArgument>,
        op: Reduce,
        stream: &Stream,
    ) -> Result<(), GpuError> {
        self.run(&Call { op, ..Call::new(Collective::ReduceScatter, x, out) }, stream)
    }

    /// Gathers the `x` of every PE in `out`. Without `out`, `x` has a part for each PE, and this PE's part is
    /// sent to the others.
    ///
    /// # Errors
    /// Fails where [`launch`](Collectives::launch) fails.
    pub fn all_gather(
        &self,
        x: &dyn AsArgument,
        out: Option<&dyn AsArgument>,
        stream: &Stream,
    ) -> Result<(), GpuError> {
        self.run(&Call::new(Collective::AllGather, x, out), stream)
    }

    /// Copies the `x` of PE `root` to `out` of every PE, or to `x` if there is no `out`.
    ///
    /// # Errors
    /// Fails where [`launch`](Collectives::launch) fails.
    pub fn broadcast(
        &self,
        x: &dyn AsArgument,
        out: Option<&dyn AsArgument>,
        root: u32,
        stream: &Stream,
    ) -> Result<(), GpuError> {
        self.run(&Call { root, ..Call::new(Collective::Broadcast, x, out) }, stream)
    }

    /// Sends part j of `x` to PE j, which receives it in the sender's part of `out`.
    ///
    /// # Errors
    /// Fails where [`launch`](Collectives::launch) fails.
    pub fn all_to_all(
        &self,
        x: &dyn AsArgument,
        out: Option<&dyn AsArgument>,
        stream: &Stream,
    ) -> Result<(), GpuError> {
        self.run(&Call::new(Collective::AllToAll, x, out), stream)
    }

    /// Carries out a call with the plan that [`plan`](Collectives::plan) chooses.
    ///
    /// # Errors
    /// Fails where [`launch`](Collectives::launch) fails.
    pub fn run(&self, call: &Call<'_>, stream: &Stream) -> Result<(), GpuError> {
        let (request, fixed) = self.operands(call, stream)?;
        let lock = || self.ready.lock().unwrap_or_else(PoisonError::into_inner);
        let found = lock().get(&(request, fixed)).cloned();
        if let Some(ready) = found.filter(Arranged::is_current) {
            return self.go(&ready, (call, &request), stream);
        }
        let ready = self.arranged(&self.choose(&request)?, call, &request, stream)?;
        self.go(&ready, (call, &request), stream)?;
        let mut all = lock();
        if all.len() >= MAX_READY {
            all.clear();
        }
        all.insert((request, fixed), ready);
        Ok(())
    }

    /// Compiles what a call needs, so that no launch waits for it. Call it before a graph is captured.
    ///
    /// # Errors
    /// Fails where [`launch`](Collectives::launch) fails.
    pub fn prepare(&self, plan: &Plan, call: &Call<'_>, stream: &Stream) -> Result<(), GpuError> {
        let request = self.operands(call, stream)?.0;
        if plan.algorithm.engine {
            self.engine.streams(&self.world, self.team.n_pes())?;
            self.kernel(&self.lead(plan), LEAD, &request)?;
            self.kernel(plan, LANDED, &request)?;
        }
        self.kernel(plan, self.name(plan, &request)?, &request).map(drop)
    }

    /// Carries out a call with the plan's algorithm, CTAs (at most as many as the GPU holds at once), threads
    /// and unrolling. All PEs of the team must call it with the same plan.
    ///
    /// # Errors
    /// Fails where [`request`](Collectives::request) fails, if the algorithm cannot do it (R0401), or where
    /// [`Kernel::launch`] fails.
    pub fn launch(&self, plan: &Plan, call: &Call<'_>, stream: &Stream) -> Result<(), GpuError> {
        let (request, _) = self.operands(call, stream)?;
        self.go(&self.arranged(plan, call, &request, stream)?, (call, &request), stream)
    }

    /// Carries out a call by the launch that was prepared for its request.
    fn go(
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
    fn arranged(
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
    fn lead(&self, plan: &Plan) -> Plan {
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
        let is_space = |name: &str| extent(name, plan, request, self.ctas).is_some();
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
