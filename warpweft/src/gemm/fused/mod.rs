//! Products with communication inside: one launch that multiplies, sends, and adds up.

mod epilogue;
mod model;
mod plan;
mod sequence;
pub mod tuning;

use super::tuning::Setting;
use super::{Decode, Machine, Problem, Shape};
use crate::collective::{Flat, Links};
use crate::compile::{KernelFile, Options};
use crate::gpu::{GpuError, Grid, Kernel, target};
use plan::Part;
use sequence::Sequence;
use serde::{Deserialize, Serialize};
use std::fmt;
use weft_runtime::launch::AsArgument;
use weft_runtime::memory::AnyTensor;
use weft_runtime::{DType, DeviceTensor, Error, IntoLayout, Stream, SymmetricTensor, Team, World, error};

pub use epilogue::{Activation, Epilogue, FusedOperands, Scales};
pub use model::{Bytes, Estimate, FusedTeam};
pub use plan::{Choice, FusedPlan};

/// The architecture that the kernels are written for. Their roles divide a CTA's registers and
/// shared memory according to Hopper's limits.
const TARGET: &str = "sm_90a";

/// Elements of the memory that replaces unread operands: one for each PE of a team, and for two
/// modes.
const UNREAD: usize = 16;

/// The collective that is fused with a product.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Form {
    /// D (m, n) is A (m / PEs, k) of every PE times the PE's own B (n, k).
    AllGather,
    /// D (m / PEs, n) is the PE's part of the rows of the sum over PEs of A (m, k) times B (n, k).
    ReduceScatter,
    /// D (m, n) is the sum of the products of all PEs, and each PE gets all rows.
    AllReduce,
}

impl Form {
    /// Every form, in the order of the variants.
    pub const ALL: [Form; 3] = [Form::AllGather, Form::ReduceScatter, Form::AllReduce];
}

/// The type of sums that PEs send: that of results, and bf16 for results of 8 bits.
fn part_of(out: DType) -> DType {
    if out.bytes() == 1 { DType::BF16 } else { out }
}

/// A product with communication inside, compiled for the PEs of a team. Launches follow each other
/// on one stream. Each stream needs its own `Fused`.
pub struct Fused {
    form: Form,
    problem: Problem,
    epilogue: Epilogue,
    choice: Choice,
    launcher: Launcher,
}

/// The kernels that a launch runs.
enum Launcher {
    Launch(Box<Launch>),
    Decode(Box<Decode>),
    Sequence(Box<Sequence>),
}

/// One kernel, and the memory that its launches share.
struct Launch {
    part: Part,
    kernel: Kernel,
    team: Team,
    /// Staging memory for the sums of other PEs, or for this PE's own.
    stage: Option<AnyTensor>,
    flags: SymmetricTensor<u64>,
    started: SymmetricTensor<u64>,
    done: SymmetricTensor<u64>,
    rounds: DeviceTensor<u64>,
    /// Memory that replaces scales, and a bias and a residual, that the kernel does not read.
    unread: [AnyTensor; 2],
}

impl Fused {
    /// Compiles a product for a team, and allocates the memory of its launches. The problem's `m`
    /// counts the rows of all PEs together, and `n` and `k` are those of one PE. *Collective*: all
    /// PEs of the world call it with the same arguments.
    ///
    /// # Errors
    /// Fails for a problem or a plan that the kernel does not support or if PEs of the team request
    /// different ones (R0505), if there is no memory (R0302), and where [`Kernel::compile`] fails.
    pub fn new(
        world: &World,
        team: Team,
        form: Form,
        problem: Problem,
        choice: impl Into<Choice>,
    ) -> Result<Fused, GpuError> {
        Fused::with(world, team, form, problem, Epilogue::default(), choice)
    }

    /// Compiles like [`new`](Fused::new), with an epilogue that is applied to elements. *Collective.*
    ///
    /// # Errors
    /// Fails where [`new`](Fused::new) fails, and for a choice that does not support the epilogue
    /// (R0505).
    pub fn with(
        world: &World,
        team: Team,
        form: Form,
        problem: Problem,
        epilogue: Epilogue,
        choice: impl Into<Choice>,
    ) -> Result<Fused, GpuError> {
        let choice = choice.into();
        let fits = problem.check().and_then(|()| choice.fits(form, &problem));
        let fits = fits.and_then(|()| epilogue.fits(form, &problem, &choice));
        let more = if epilogue.is_none() { String::new() } else { format!(", {epilogue:?}") };
        alike(world, &team, &format!("{form:?}, {problem}, {}{more}", choice.text(form)))?;
        fits?;
        let launcher = match choice {
            Choice::Launch(plan) => {
                Launcher::Launch(Launch::new(world, team, form, (&problem, &epilogue), &plan)?.into())
            }
            Choice::Decode(plan) => Launcher::Decode(Decode::new(world, team, problem, plan)?.into()),
            Choice::Sequence => Launcher::Sequence(Sequence::new(world, team, form, &problem)?.into()),
        };
        let choice = match &launcher {
            Launcher::Decode(decode) => Choice::Decode(*decode.plan()),
            _ => choice,
        };
        Ok(Fused { form, problem, epilogue, choice, launcher })
    }

    /// Compiles what is likely to be the fastest like [`new`](Fused::new): one launch, a launch
    /// with packets for few rows, or a product and a collective. *Collective.*
    ///
    /// # Errors
    /// Fails where [`new`](Fused::new) fails.
    pub fn auto(world: &World, team: Team, form: Form, problem: Problem) -> Result<Fused, GpuError> {
        Fused::auto_with(world, team, form, problem, Epilogue::default())
    }

    /// Compiles like [`auto`](Fused::auto), with an epilogue that is applied to elements. *Collective.*
    ///
    /// # Errors
    /// Fails where [`with`](Fused::with) fails.
    pub fn auto_with(
        world: &World,
        team: Team,
        form: Form,
        problem: Problem,
        epilogue: Epilogue,
    ) -> Result<Fused, GpuError> {
        // PEs use the choice of the team's first PE, because tables may differ by machine.
        let chosen = chosen(world, &team, form, (&problem, &epilogue));
        let text = chosen.as_ref().map_or_else(ToString::to_string, |choice| choice.text(form));
        let all = world.all_gather_host(text.as_bytes())?;
        let first = team.members().first().and_then(|pe| all.get(*pe as usize));
        let text = first.map_or("".into(), |bytes| String::from_utf8_lossy(bytes));
        let Ok(choice) = Choice::parse(&text, form) else {
            let message = format!("the first PE of the team cannot compute {problem}: {text}");
            let others = || Error::new(error::GEMM, message).help("give all PEs the same problem");
            return Err(chosen.err().unwrap_or_else(others).into());
        };
        Fused::with(world, team, form, problem, epilogue, choice)
    }

    /// The problem that it computes.
    pub fn problem(&self) -> &Problem {
        &self.problem
    }

    /// The kernel and the plan by which it is computed.
    pub fn choice(&self) -> &Choice {
        &self.choice
    }

    /// Puts the product on a stream. A and B have contiguous rows, or B has contiguous columns if
    /// the problem says so. For an all-gather, A is symmetric with modes (row of a PE, column, PE).
    /// This PE's rows are in its place, and the rows of the others arrive in theirs.
    /// [`Choice::is_result_symmetric`] says whether D must be symmetric: for an allreduce without
    /// packets, and for a reduce-scatter with `send=add`.
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

    /// Launches like [`launch`](Fused::launch), with the operands of the epilogue.
    ///
    /// # Errors
    /// Fails where [`launch`](Fused::launch) fails, and for missing or superfluous operands of the
    /// epilogue (R0505).
    pub fn launch_with(&self, stream: &Stream, x: &FusedOperands<'_>) -> Result<(), GpuError> {
        self.epilogue.agrees(x)?;
        match &self.launcher {
            Launcher::Launch(launch) => launch.go(self.form, self.problem.shape, stream, x),
            Launcher::Decode(decode) => decode.launch(stream, x.a, x.b, x.d),
            Launcher::Sequence(sequence) => sequence.launch(stream, x.a, x.b, x.d),
        }
    }
}

impl Launch {
    fn new(
        world: &World,
        team: Team,
        form: Form,
        (problem, epilogue): (&Problem, &Epilogue),
        plan: &FusedPlan,
    ) -> Result<Launch, GpuError> {
        let target = target(world.device())?;
        if target.name() != TARGET {
            let message =
                format!("the GPU is {target}, and products with communication inside are for {TARGET}");
            return Err(Error::new(error::GEMM, message).help("choose a sequence").into());
        }
        let (part, pes) = (plan.part(form), team.n_pes());
        let mut options = Options::new(target);
        let (name, defines) = plan.kernel(form, problem, epilogue, pes);
        options.defines = defines.into_iter().collect();
        let text = crate::library::part(name).unwrap_or_default();
        let file = KernelFile::parse(&format!("weft::{name}"), text)?;
        let kernel = Kernel::with(world, file, options)?;
        let Extents { flags, stage } = Extents::of(part, problem.shape, plan, u64::from(pes));
        let stage = match stage {
            0 => None,
            elements => Some(staging(world, part_of(problem.out), elements)?),
        };
        let launch = Launch {
            part,
            kernel,
            team,
            stage,
            flags: world.zeros(flags)?,
            started: world.zeros(pes as usize)?,
            done: world.zeros(pes as usize)?,
            rounds: DeviceTensor::zeros(16, world.stream())?,
            unread: [staging(world, DType::F32, UNREAD)?, staging(world, part_of(problem.out), UNREAD)?],
        };
        // No PE may send before all flags are 0.
        world.barrier()?;
        world.stream().synchronize()?;
        world.wait_for_all()?;
        Ok(launch)
    }

    fn go(&self, form: Form, shape: Shape, stream: &Stream, x: &FusedOperands<'_>) -> Result<(), GpuError> {
        // A checked problem has extents of 31 bits.
        let extents = [shape.m, shape.n, shape.k].map(|n| i64::try_from(n).unwrap_or(i64::MAX));
        let stage = self.stage.as_ref().map(|stage| Flat(stage));
        let flags = Flat(&self.flags);
        let mut arguments: Vec<&dyn AsArgument> = extents.iter().map(|n| n as &dyn AsArgument).collect();
        arguments.extend([x.a, x.b, x.d]);
        let [scales, numbers] = [Flat(&self.unread[0]), Flat(&self.unread[1])];
        let others = x.others().map(|(name, given)| {
            let unread = if matches!(name, "bias" | "residual") { &numbers } else { &scales };
            Flat(given.unwrap_or(unread))
        });
        if self.part.finishes() {
            arguments.extend(others.iter().map(|other| other as &dyn AsArgument));
        }
        arguments.extend(stage.iter().map(|stage| stage as &dyn AsArgument));
        arguments.extend([&flags as &dyn AsArgument, &self.started]);
        // If PEs write to the D of others, a launch ends when all PEs have written.
        if form == Form::AllReduce || self.part == Part::Add {
            arguments.push(&self.done);
        }
        arguments.extend([&self.rounds as &dyn AsArgument, &self.team]);
        self.kernel.launch(stream, Grid::Auto, &arguments[..])
    }
}

impl fmt::Debug for Fused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fused({:?}, {}, {})", self.form, self.problem, self.choice.text(self.form))
    }
}

/// The choice that was measured to be the fastest for a team, or the model's if nothing similar was
/// measured.
fn chosen(
    world: &World,
    team: &Team,
    form: Form,
    (problem, epilogue): (&Problem, &Epilogue),
) -> Result<Choice, Error> {
    let multicast = world.signal()?.tensor().multicast(team).is_some();
    let machine = Machine::of(world.device())?;
    let case = tuning::Case { form, pes: team.n_pes(), multicast, problem: *problem };
    let stored = tuning::stored(&Setting::of(world.device())?, &case);
    let team = FusedTeam { machine, pes: team.n_pes(), multicast, links: Links::H200 };
    let stored = stored.filter(|choice| epilogue.fits(form, problem, choice).is_ok());
    stored.map_or_else(|| Ok(team.choose_with(form, problem, epilogue)?.0), Ok)
}

/// Compares the requests of a team's PEs, so that none waits for flags that others never raise.
/// *Collective.*
///
/// # Errors
/// Fails on every PE of a team whose requests differ (R0505).
pub(crate) fn alike(world: &World, team: &Team, request: &str) -> Result<(), Error> {
    let all = world.all_gather_host(request.as_bytes())?;
    let of = |pe: u32| String::from_utf8_lossy(all.get(pe as usize).map_or(&[][..], |text| text));
    let members = team.members();
    let first = members.first().copied().unwrap_or_default();
    match members.iter().find(|pe| of(**pe) != of(first)) {
        None => Ok(()),
        Some(other) => {
            let message = format!(
                "PEs of a team ask for different products: PE {first} for {}, PE {other} for {}",
                of(first),
                of(*other)
            );
            Err(Error::new(error::GEMM, message).help("give all PEs the same form, problem and plan"))
        }
    }
}

/// Flags of a PE, and elements of its staging memory: the extents in the kernels' heads.
struct Extents {
    flags: usize,
    stage: usize,
}

impl Extents {
    fn of(part: Part, Shape { m, n, k }: Shape, plan: &FusedPlan, pes: u64) -> Extents {
        let [bm, bn, ctas, piece] = [plan.bm, plan.bn, plan.ctas, plan.piece].map(u64::from);
        let rows = m.div_ceil(pes);
        let halves = 2 * ctas * rows.div_ceil(bm * ctas) * n.div_ceil(bn);
        let (flags, stage) = match part {
            Part::Gather => (k.div_ceil(piece) * rows.div_ceil(bm), 0),
            Part::Scatter | Part::Reduce => (halves, halves * pes * (bm / 2) * bn),
            Part::Add => (halves, 0),
            Part::Switch => (halves, rows * n * pes),
        };
        let count = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
        Extents { flags: count(flags * pes), stage: count(stage) }
    }
}

/// Allocates staging memory of `elements` elements. *Collective.*
fn staging(world: &World, dtype: DType, elements: usize) -> Result<AnyTensor, Error> {
    let buffer = world.buffer(elements.saturating_mul(dtype.bytes() as usize))?;
    AnyTensor::new(buffer, dtype, elements.into_layout()?)
}
