//! Workspaces, compiled kernels, and launches.

use super::algorithm::{Algorithm, reduction};
use super::engine::{Engine, LANDED, LEAD, MEET};
use super::ready::Arranged;
use super::table::{INBOX, LL_CTAS, LL_SLOTS, room};
use super::tuning::{Selector, Setting, Tuning};
use super::workspace::Workspaces;
use super::{Collective, Placement, Plan, Request, Sums};
use crate::compile::{KernelFile, Lowering, Options};
use crate::gpu::{GpuError, Kernel, target};
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use weft_ir::Scalar;
use weft_isa::Target;
use weft_lang::elaborate::{Define, Head};
use weft_runtime::cuda::Stream;
use weft_runtime::launch::{Argument, ArgumentValue, AsArgument, Elements};
use weft_runtime::{Barrier, DType, Reduce, Team, World, error};

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

/// One call of a collective.
#[derive(Clone, Copy)]
pub struct Call<'a> {
    /// The collective that is called.
    pub collective: Collective,
    /// The operation of a reduction.
    pub op: Reduce,
    /// The operand. In place, it is the larger tensor, in which this PE's part is at its rank.
    pub x: &'a dyn AsArgument,
    /// The tensor for the result, if it is not the operand.
    pub out: Option<&'a dyn AsArgument>,
    /// The rank in the team of the PE that a broadcast is from.
    pub root: u32,
    /// The sums that a reduction allows. By default, they are [`Config::sums`]. They must be the
    /// same on all PEs.
    pub sums: Option<Sums>,
}

impl<'a> Call<'a> {
    /// Makes a call that computes a sum or broadcasts from rank 0.
    pub fn new(collective: Collective, x: &'a dyn AsArgument, out: Option<&'a dyn AsArgument>) -> Call<'a> {
        Call { collective, op: Reduce::Sum, x, out, root: 0, sums: None }
    }
}

/// The collectives of a team: see the [module](super).
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
    ready: Mutex<HashMap<(Request, Bound), Arranged>>,
}

/// A kernel, and the number of its CTAs that the GPU can hold at once. A launch has no more,
/// because CTAs of different PEs wait for each other.
#[derive(Clone)]
pub(super) struct Compiled {
    pub kernel: Arc<Kernel>,
    pub max_ctas: u32,
}

/// The addresses of `x` and `out` that a prepared launch is bound to, or `None` for operands that
/// may be anywhere.
type Bound = [Option<u64>; 2];

/// The greatest number of prepared launches that are kept.
const MAX_READY: usize = 1024;

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
    /// Creates the collectives of all PEs. Every PE must call it. *Collective.*
    ///
    /// # Errors
    /// Fails where [`with`](Collectives::with) fails.
    pub fn new(world: &World) -> Result<Collectives, GpuError> {
        Collectives::with(world, world.team(), Config::default())
    }

    /// Creates the collectives of `team`, with workspaces sized by `config`. *Collective*: symmetric memory
    /// is allocated, so all PEs of the world must call it at once, each with a team that it is in.
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

    fn choose(&self, request: &Request) -> Result<Plan, GpuError> {
        let plan = self.selector.plan(request, self.ctas);
        plan.map(|(plan, _)| plan).map_err(|why| refuse(error::OPERATION, why))
    }

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

    pub(super) fn name(&self, plan: &Plan, request: &Request) -> Result<&'static str, GpuError> {
        plan.check(request, self.ctas).map_err(|why| refuse(error::OPERATION, why))?;
        let name = plan.algorithm.kernel(request.place);
        let name = name.map(|name| if plan.algorithm.engine { MEET } else { name });
        name.ok_or_else(|| refuse(error::OPERATION, format!("{} has no kernel", plan.algorithm.name)))
    }

    /// The request of a call, and the operands' addresses that a prepared launch is bound to.
    fn operands(&self, call: &Call<'_>, stream: &Stream) -> Result<(Request, Bound), GpuError> {
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

/// Alignments below 16 bytes are rare, so they share one kernel.
pub(super) fn align(request: &Request) -> u32 {
    if request.align >= 16 { 16 } else { request.dtype.bytes() }
}

/// A number that divides the count. If every PE has whole vectors, no access needs a bounds test.
fn divisor(algorithm: &Algorithm, request: &Request) -> u32 {
    let vectors = (16 / request.dtype.bytes()).max(algorithm.run).saturating_mul(request.n_pes);
    if align(request) == 16 && request.count.is_multiple_of(vectors.into()) { vectors } else { 1 }
}

/// The options that compile an algorithm's kernel for a request, in a handle with `ctas` CTAs.
pub(super) fn options(
    plan: &Plan,
    request: &Request,
    ctas: u32,
    target: Target,
) -> Result<Options, GpuError> {
    let none = || refuse(error::OPERATION, format!("{} has no such kernel", plan.algorithm.name));
    let name = plan.algorithm.kernel(request.place).ok_or_else(none)?;
    options_of(name, plan, request, ctas, target)
}

/// The options that compile one of an algorithm's kernels.
fn options_of(
    name: &str,
    plan: &Plan,
    request: &Request,
    ctas: u32,
    target: Target,
) -> Result<Options, GpuError> {
    let scalar = request.dtype;
    let op = reduction(request.op).unwrap_or(weft_ir::RedOp::Add);
    // Sums of 16-bit floats are accumulated in f32. fp8 has no arithmetic; f16 represents all its
    // numbers and their sums.
    let acc = match scalar {
        s if s.is_fp8() => Scalar::F16,
        Scalar::F16 | Scalar::BF16 if op == weft_ir::RedOp::Add => Scalar::F32,
        s => s,
    };
    let known: [(&str, Define); 16] = [
        ("T", scalar.into()),
        ("OP", op.into()),
        ("ACC", acc.into()),
        ("P", request.n_pes.into()),
        ("THREADS", plan.threads.into()),
        ("UNROLL", plan.unroll.into()),
        ("ALIGN", align(request).into()),
        ("DIV", divisor(plan.algorithm, request).into()),
        ("ONCE", plan.is_once(request).into()),
        ("MC", plan.algorithm.switch.into()),
        ("ROOT", request.root.into()),
        ("SLOTS", LL_SLOTS.into()),
        ("CTAS", LL_CTAS.into()),
        ("ROOM", room(request.n_pes).into()),
        ("STAGES", plan.algorithm.stages(plan.threads, plan.unroll, ctas).into()),
        ("INBOX", INBOX.into()),
    ];
    let head = head(plan.algorithm, name)?;
    let mut options = Options::new(target);
    options.kernel = Some(name.into());
    options.defines =
        known.into_iter().filter(|(n, _)| has(head, n)).map(|(n, d)| (n.to_owned(), d)).collect();
    Ok(options)
}

/// Whether a kernel has a compile-time parameter.
fn has(head: &Head, name: &str) -> bool {
    head.generics.iter().any(|(g, ..)| **g == *name)
}

/// The text of an algorithm.
pub(super) fn file(algorithm: &Algorithm) -> Result<KernelFile, GpuError> {
    Ok(KernelFile::parse(&format!("weft/{}.weft", algorithm.part), algorithm.source())?)
}

impl Plan {
    /// The kernel file of the plan's algorithm, and the options that compile it for `request`: its kernel, its
    /// compile-time parameters, and the lowering that `request.multicast` asks for.
    ///
    /// # Errors
    /// Fails if the plan does not fit the request ([`check`](Plan::check)).
    pub fn compilation(&self, request: &Request, target: Target) -> Result<(KernelFile, Options), GpuError> {
        self.check(request, self.ctas).map_err(operation)?;
        let mut options = options(self, request, self.ctas, target)?;
        let multicast = request.multicast && !self.algorithm.avoids_switch();
        options.lowering = Lowering::Auto.decide(multicast).into();
        Ok((file(self.algorithm)?, options))
    }
}

/// The head of a kernel of the library, parsed once.
pub(super) fn head(algorithm: &'static Algorithm, kernel: &str) -> Result<&'static Head, GpuError> {
    static HEADS: OnceLock<HashMap<(&'static str, String), Head>> = OnceLock::new();
    let heads = HEADS.get_or_init(|| {
        let parts: std::collections::BTreeMap<_, _> = super::ALGORITHMS.iter().map(|a| (a.part, a)).collect();
        let of = |a: &Algorithm| file(a).map(|f| f.heads()).unwrap_or_default();
        let named = |(part, a): (&'static str, &'static Algorithm)| {
            of(a).into_iter().map(move |h| ((part, h.name.to_string()), h))
        };
        parts.into_iter().flat_map(named).collect()
    });
    let none = || refuse(error::NO_KERNEL, format!("there is no kernel `{kernel}` in {}", algorithm.part));
    heads.get(&(algorithm.part, kernel.to_owned())).ok_or_else(none)
}

/// An operand of a call.
struct Operand {
    address: u64,
    dtype: DType,
    elements: u64,
    symmetric: bool,
    /// Whether its elements are contiguous.
    flat: bool,
}

impl Operand {
    /// Its address, if it is the same in all calls.
    fn fixed(&self) -> Option<u64> {
        (self.symmetric || !self.flat).then_some(self.address)
    }
}

/// The elements of a tensor of any shape in the order of memory, because collectives do not depend
/// on coordinates.
pub struct Flat<'a>(pub &'a dyn AsArgument);

impl AsArgument for Flat<'_> {
    fn argument<'a>(&'a self, stream: &'a Stream) -> Argument<'a> {
        self.0.argument(stream).flat()
    }
}

fn operand(given: &dyn AsArgument, name: &str, stream: &Stream) -> Result<Operand, GpuError> {
    match Flat(given).argument(stream).given() {
        ArgumentValue::Tensor { address, dtype, extent, symmetric } => {
            let elements = match extent {
                Elements::Layout(l) => l.size().as_const().and_then(|n| u64::try_from(n).ok()).unwrap_or(0),
                Elements::Flat(n) => n as u64,
            };
            let flat = matches!(extent, Elements::Flat(_));
            Ok(Operand { address, dtype, elements, symmetric, flat })
        }
        other => Err(refuse(error::ARGUMENT, format!("{name} is {other}, but it must be a tensor"))),
    }
}

/// The error for an operation that an algorithm does not support.
fn operation(why: String) -> GpuError {
    refuse(error::OPERATION, why)
}

pub(super) fn refuse(code: weft_runtime::error::Code, message: String) -> GpuError {
    weft_runtime::Error::new(code, message).into()
}
