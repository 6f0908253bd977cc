//! The handle of a team's collectives: workspaces, compiled kernels, and launches that are kept.

use super::algorithm::reduction;
use super::call::{Call, Operand, operand};
use super::engine::{self, Engine, MEET};
use super::kernel::{align, divisor, file, has, head, options_of, refuse};
use super::ready::Ready;
use super::tuning::{Selector, Setting, Tuning};
use super::workspace::Workspaces;
use super::{Collective, Placement, Plan, Request, Sums};
use crate::compile::Lowering;
use crate::gpu::{GpuError, Kernel, target};
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use weft_runtime::cuda::Stream;
use weft_runtime::{Barrier, DType, Team, World, error};

/// The size of a handle's workspaces, and the way in which it chooses plans.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct Config {
    /// The greatest number of CTAs of a launch. By default, it is the GPU's number of
    /// multiprocessors. It must be the same on all PEs.
    pub ctas: Option<u32>,
    /// The way in which in-switch operations are carried out.
    pub lowering: Lowering,
    /// The source of plans.
    pub tuning: Tuning,
    /// The sums that calls allow if they do not say it themselves. They must be the same on all
    /// PEs.
    pub sums: Sums,
}

weft_sim::setters!(
    Config {
        ctas: Option<u32>,
        lowering: Lowering,
        tuning: Tuning,
        sums: Sums,
    }
);

impl Default for Config {
    fn default() -> Config {
        Config { ctas: None, lowering: Lowering::Auto, tuning: Tuning::Stored, sums: Sums::default() }
    }
}

/// The collectives of a team. The [module](super) describes them.
pub struct Collectives {
    pub(super) world: World,
    pub(super) team: Team,
    config: Config,
    pub(super) ctas: u32,
    multicast: bool,
    reach: bool,
    selector: Selector,
    pub(super) workspaces: Workspaces,
    pub(super) sync: Barrier,
    pub(super) engine: Engine,
    kernels: Mutex<HashMap<Key, Compiled>>,
    pub(super) ready: Mutex<HashMap<(Request, Bound), Arranged>>,
}

/// A kernel, and the number of its CTAs that the GPU can hold at once. A launch has no more,
/// because CTAs of different PEs wait for each other.
#[derive(Clone)]
pub(super) struct Compiled {
    pub kernel: Arc<Kernel>,
    pub max_ctas: u32,
}

/// What was prepared for calls of one request.
#[derive(Clone)]
pub(super) enum Arranged {
    /// One launch of the algorithm's kernel.
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

/// The addresses of `x` and `out` that a prepared launch is bound to, or `None` for operands that
/// may be anywhere.
pub(super) type Bound = [Option<u64>; 2];

/// The compilation parameters of a kernel, besides the team.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Key {
    kernel: (&'static str, &'static str),
    dtype: DType,
    op: Option<weft_ir::RedOp>,
    align: u32,
    div: u32,
    threads: u32,
    unroll: u32,
    once: bool,
    switch: bool,
    root: Option<u32>,
}

impl Collectives {
    /// Creates the collectives of all PEs. This call is *collective*.
    ///
    /// # Errors
    /// Fails where [`with`](Collectives::with) fails.
    pub fn new(world: &World) -> Result<Collectives, GpuError> {
        Collectives::with(world, world.team(), Config::default())
    }

    /// Creates the collectives of `team`, with workspaces sized by `config`. This call is
    /// *collective*: symmetric memory is allocated, so all PEs of the world must call it at once,
    /// each with a team that it is in.
    ///
    /// # Errors
    /// Fails if there is no memory for the workspaces (R0302), or if the CUDA driver refuses a call (R0103).
    /// An unusable tuning file is ignored, with a warning on standard error.
    pub fn with(world: &World, team: Team, config: Config) -> Result<Collectives, GpuError> {
        let ctas = config.ctas.unwrap_or(world.device().sm_count()?).max(1);
        let workspaces = Workspaces::new(world, ctas)?;
        let sync = world.kernel_barrier(ctas)?;
        let multicast =
            config.lowering != Lowering::Unicast && sync.buffer().multicast_address(&team).is_some();
        let reach = team.members().iter().all(|pe| sync.buffer().peer_address(*pe).is_ok());
        let selector = Selector::agreed(&config.tuning, world, &team, (reach, multicast))?;
        Ok(Collectives {
            world: world.clone(),
            team,
            config,
            ctas,
            multicast,
            reach,
            selector,
            workspaces,
            sync,
            engine: Engine::default(),
            kernels: Mutex::default(),
            ready: Mutex::default(),
        })
    }

    /// The team whose PEs take part.
    pub fn team(&self) -> &Team {
        &self.team
    }

    /// The greatest number of CTAs of a launch.
    pub fn max_ctas(&self) -> u32 {
        self.ctas
    }

    /// The request of a call.
    ///
    /// # Errors
    /// Fails for operands that are not tensors, that differ in type, or whose sizes do not fit each
    /// other (R0502).
    pub fn request(&self, call: &Call<'_>, stream: &Stream) -> Result<Request, GpuError> {
        Ok(self.operands(call, stream)?.0)
    }

    /// The setting by which tables of measurements are found for the team.
    ///
    /// # Errors
    /// Fails if the CUDA driver refuses a query (R0103).
    pub fn setting(&self) -> Result<Setting, GpuError> {
        Ok(Setting::of(&self.world, self.team.n_pes(), (self.reach, self.multicast))?)
    }

    /// The sums that calls allow if they do not say it themselves.
    pub fn sums(&self) -> Sums {
        self.config.sums
    }

    /// The selector of plans: a table that `weft tune` stored, or the model.
    pub fn selector(&self) -> &Selector {
        &self.selector
    }

    /// The plan of a call for which the caller gives none, from the [`selector`](Collectives::selector).
    ///
    /// # Errors
    /// Fails where [`request`](Collectives::request) fails, or if no algorithm can do it (R0401). The message
    /// has the reason.
    pub fn plan(&self, call: &Call<'_>, stream: &Stream) -> Result<Plan, GpuError> {
        self.choose(&self.request(call, stream)?)
    }

    pub(super) fn choose(&self, request: &Request) -> Result<Plan, GpuError> {
        let plan = self.selector.plan(request, self.ctas);
        plan.map(|(plan, _)| plan).map_err(|why| refuse(error::OPERATION, why))
    }

    pub(super) fn name(&self, plan: &Plan, request: &Request) -> Result<&'static str, GpuError> {
        plan.check(request, self.ctas).map_err(|why| refuse(error::OPERATION, why))?;
        let name = plan.algorithm.kernel(request.place);
        let name = name.map(|name| if plan.algorithm.engine { MEET } else { name });
        name.ok_or_else(|| refuse(error::OPERATION, format!("{} has no kernel", plan.algorithm.name)))
    }

    /// The request of a call, and the operands' addresses that a prepared launch is bound to.
    pub(super) fn operands(&self, call: &Call<'_>, stream: &Stream) -> Result<(Request, Bound), GpuError> {
        let x = operand(call.x, "x", stream)?;
        let out = call.out.map(|out| operand(out, "out", stream)).transpose()?;
        let (collective, n_pes) = (call.collective, self.team.n_pes());
        if call.root >= n_pes {
            return Err(refuse(
                error::ARGUMENT,
                format!("there is no root {} in a team of {n_pes} PEs", call.root),
            ));
        }
        let parts = collective.parts(n_pes);
        // The larger operand has all parts.
        let (place, larger) = match (&out, collective) {
            (Some(out), Collective::AllGather) => (Placement::OutOfPlace, out.elements),
            (Some(_), _) => (Placement::OutOfPlace, x.elements),
            (None, _) => (Placement::InPlace, x.elements),
        };
        let mut request = Request {
            collective,
            dtype: x.dtype,
            op: call.op,
            count: larger / parts,
            n_pes,
            place,
            symmetric: [x.symmetric, out.as_ref().is_none_or(|o| o.symmetric)],
            multicast: self.multicast,
            reach: self.reach,
            align: 16,
            root: call.root,
            sums: call.sums.unwrap_or(self.config.sums),
        };
        request.align = request.aligned(x.address | out.as_ref().map_or(0, |o| o.address));
        let counts = request.counts();
        let fits = match &out {
            Some(out) => (counts.send, counts.recv, x.dtype) == (x.elements, out.elements, out.dtype),
            None => counts.send.max(counts.recv) == x.elements,
        };
        if !fits || counts.count == 0 {
            let out =
                out.as_ref().map_or(String::new(), |o| format!(", out is {} of {}", o.elements, o.dtype));
            let message = format!("{collective} over {n_pes} PEs: x is {} of {}{out}", x.elements, x.dtype);
            let help = match collective {
                Collective::AllReduce | Collective::Broadcast => {
                    "both must have the same number of elements and the same type"
                }
                Collective::AllGather => {
                    "out must have as many times the elements of x as there are PEs, and the same type"
                }
                Collective::ReduceScatter => {
                    "x must have as many times the elements of out as there are PEs, and the same type"
                }
                Collective::AllToAll => {
                    "both must have the same number of elements, a multiple of the number of PEs, and the same type"
                }
            };
            return Err(weft_runtime::Error::new(error::ARGUMENT, message).help(help).into());
        }
        let fixed = [x.fixed(), out.as_ref().map_or(x.fixed(), Operand::fixed)];
        Ok((request, fixed))
    }

    /// Returns the kernel, and compiles it if necessary.
    pub(super) fn kernel(
        &self,
        plan: &Plan,
        name: &'static str,
        request: &Request,
    ) -> Result<Compiled, GpuError> {
        let reduces = request.collective.reduces();
        let key = Key {
            kernel: (plan.algorithm.part, name),
            dtype: request.dtype,
            op: reduces.then(|| reduction(request.op)).flatten(),
            align: align(request),
            div: divisor(plan.algorithm, request),
            threads: plan.threads,
            unroll: plan.unroll,
            once: has(head(plan.algorithm, name)?, "ONCE") && plan.is_once(request),
            switch: plan.algorithm.switch,
            root: (request.collective == Collective::Broadcast).then_some(request.root),
        };
        let lock = || self.kernels.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(compiled) = lock().get(&key) {
            return Ok(compiled.clone());
        }
        let mut options = options_of(name, plan, request, self.ctas, target(self.world.device())?)?;
        let multicast = self.multicast && !plan.algorithm.avoids_switch();
        options.lowering = self.config.lowering.decide(multicast).into();
        let compiled = Kernel::with(&self.world, file(plan.algorithm)?, options.clone());
        let kernel = match (compiled, options.lowering) {
            // Reductions that the switch does not support use the address of every PE.
            (Err(GpuError::Compile(_)), Lowering::Multimem) if self.config.lowering == Lowering::Auto => {
                options.lowering = Lowering::Unicast;
                Kernel::with(&self.world, file(plan.algorithm)?, options)?
            }
            (compiled, _) => compiled?,
        };
        let max_ctas = kernel.max_ctas()?;
        Ok(lock().entry(key).or_insert(Compiled { kernel: Arc::new(kernel), max_ctas }).clone())
    }
}

impl fmt::Debug for Collectives {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Collectives({} PEs, {} CTAs)", self.team.n_pes(), self.ctas)
    }
}
