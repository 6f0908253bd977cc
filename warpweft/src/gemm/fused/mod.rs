//! Products with communication inside: one launch that multiplies, sends, and adds up.

mod epilogue;
mod model;
mod plan;
mod sequence;
pub mod tuning;
mod uneven;

use super::tuning::Setting;
use super::{Decode, Problem, Shape};
use crate::collective::Flat;
use crate::compile::{KernelFile, Options};
use crate::gpu::{GpuError, Grid, Kernel, target};
use plan::Part;
use sequence::Sequence;
use serde::{Deserialize, Serialize};
use std::fmt;
use weft_runtime::launch::AsArgument;
use weft_runtime::memory::AnyTensor;
use weft_runtime::{DType, DeviceTensor, Error, IntoLayout, Stream, SymmetricTensor, Team, World, error};

use uneven::{Rows, Uneven};

pub use epilogue::{Activation, Epilogue, FusedOperands, Scales};
pub(super) use epilogue::{OTHERS, Unread};
pub use model::{Bytes, Estimate, FusedTeam};
pub use plan::{Choice, FusedPlan};

/// The architecture that the kernels are written for. Their roles divide a CTA's registers and
/// shared memory according to Hopper's limits.
const TARGET: &str = "sm_90a";

/// What PEs compute together with a product.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Form {
    /// D (m, n) is A (m / PEs, k) of every PE times the PE's own B (n, k).
    AllGather,
    /// D (m / PEs, n) is the PE's part of the rows of the sum over PEs of A (m, k) times B (n, k).
    ReduceScatter,
    /// D (m, n) is the sum of the products of all PEs, and each PE gets all rows.
    AllReduce,
    /// D (m / PEs, n, PEs) is the PE's part of the rows of each PE's product of A (m, k) and B (n, k), as experts send results
    /// to the PEs of their tokens.
    AllToAll,
}

impl Form {
    /// Every form, in the order of the variants.
    pub const ALL: [Form; 4] = [Form::AllGather, Form::ReduceScatter, Form::AllReduce, Form::AllToAll];

    /// Whether D has sums over PEs, which are complete after the communication.
    pub(super) fn adds_up(self) -> bool {
        matches!(self, Form::ReduceScatter | Form::AllReduce)
    }
}

/// The type of sums that PEs send: that of results, and bf16 for results of 8 bits.
pub(super) fn part_of(out: DType) -> DType {
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
    unread: Unread,
    /// The rows of each PE, where they are not equal parts.
    uneven: Option<Uneven>,
}

impl Fused {
    /// Compiles a product for a team, and allocates the memory of its launches. The problem's `m`
    /// counts the rows of all PEs together, and `n` and `k` are those of one PE. This call is
    /// *collective*: all PEs of the world call it with the same arguments.
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

    /// Compiles like [`new`](Fused::new), with an epilogue that is applied to elements. This call
    /// is *collective*.
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
        Fused::made(world, team, form, (problem, epilogue), choice.into(), None)
    }

    /// Compiles like [`with`](Fused::with), for PEs that have different numbers of rows: `rows` has
    /// one for each PE of the team, which may be 0, and `m` is their sum. For an all-gather, A has
    /// modes (row of a PE, column, PE) with as many rows as the largest of `rows`, and D has the
    /// rows of the PEs one after the other. For a reduce-scatter, D has the rows of this PE, or if
    /// it must be symmetric as many as the largest of `rows`, of which the first ones are written.
    /// For an all-to-all, D has modes (row, column, PE that multiplied), also with as many rows as
    /// the largest of `rows`. The first ones are those of this PE, and a sequence overwrites the
    /// others. This call is *collective*.
    ///
    /// Launches may have other rows, up to the largest of these for each PE: [`set_rows`](Fused::set_rows).
    ///
    /// # Errors
    /// Fails as [`with`](Fused::with) does, and for rows that do not add up to `m`, another number of PEs, an allreduce, which
    /// has all rows on each PE, and for a choice that has equal parts of the rows (R0505).
    pub fn uneven(
        world: &World,
        team: Team,
        form: Form,
        problem: Problem,
        epilogue: Epilogue,
        rows: &[u64],
        choice: impl Into<Choice>,
    ) -> Result<Fused, GpuError> {
        Fused::made(world, team, form, (problem, epilogue), choice.into(), Some(rows))
    }

    fn made(
        world: &World,
        team: Team,
        form: Form,
        (problem, epilogue): (Problem, Epilogue),
        choice: Choice,
        rows: Option<&[u64]>,
    ) -> Result<Fused, GpuError> {
        let fits = problem.check().and_then(|()| choice.fits(form, &problem));
        let fits = fits.and_then(|()| epilogue.fits(form, &problem, &choice));
        let uneven = |rows| uneven::fits(form, &problem, &choice, (team.n_pes(), rows));
        let fits = fits.and_then(|()| rows.map_or(Ok(()), uneven));
        let mut more = if epilogue.is_none() { String::new() } else { format!(", {epilogue:?}") };
        more.extend(rows.map(|rows| format!(", rows {rows:?}")));
        alike(world, &team, &format!("{form:?}, {problem}, {}{more}", choice.text(form)))?;
        fits?;
        let launcher = match choice {
            Choice::Launch(plan) => {
                Launcher::Launch(Launch::new(world, team, form, (&problem, &epilogue), &plan, rows)?.into())
            }
            Choice::Decode(plan) => {
                Launcher::Decode(Decode::with(world, team, problem, epilogue, plan)?.into())
            }
            Choice::Sequence => {
                Launcher::Sequence(Sequence::new(world, team, form, (&problem, &epilogue), rows)?.into())
            }
        };
        let choice = match &launcher {
            Launcher::Decode(decode) => Choice::Decode(*decode.plan()),
            _ => choice,
        };
        Ok(Fused { form, problem, epilogue, choice, launcher })
    }

    /// Compiles what is likely to be the fastest like [`new`](Fused::new): one launch, a launch
    /// with packets for few rows, or a product and a collective. This call is *collective*.
    ///
    /// # Errors
    /// Fails where [`new`](Fused::new) fails.
    pub fn auto(world: &World, team: Team, form: Form, problem: Problem) -> Result<Fused, GpuError> {
        Fused::auto_with(world, team, form, problem, Epilogue::default())
    }

    /// Compiles like [`auto`](Fused::auto), with an epilogue that is applied to elements. This call
    /// is *collective*.
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

    /// Compiles like [`uneven`](Fused::uneven), by the choice of the model: one launch, or products
    /// and a collective. This call is *collective*.
    ///
    /// # Errors
    /// Fails as [`uneven`](Fused::uneven) does.
    pub fn auto_uneven(
        world: &World,
        team: Team,
        form: Form,
        problem: Problem,
        epilogue: Epilogue,
        rows: &[u64],
    ) -> Result<Fused, GpuError> {
        let choice = FusedTeam::of(world, &team)?.choose_uneven(form, &problem, &epilogue, rows);
        // Where there is none, all PEs still compare what they ask for.
        let choice = choice.unwrap_or_else(|_| FusedPlan::of(form).into());
        Fused::uneven(world, team, form, problem, epilogue, rows, choice)
    }

    /// The rows of each PE, if the product was made for different numbers of them.
    pub fn rows(&self) -> Option<&[u64]> {
        self.launcher.rows().map(|(rows, _)| rows.all())
    }

    /// Changes the rows of each PE for launches that follow on the stream: `m` is their sum then.
    /// Nothing is compiled or allocated. This call is *collective*.
    ///
    /// # Errors
    /// Fails on every PE if PEs pass different rows, for another number of PEs, for a PE with more rows than there is memory
    /// for, and for a product that was not made by [`uneven`](Fused::uneven) (R0505).
    pub fn set_rows(&mut self, world: &World, stream: &Stream, rows: &[u64]) -> Result<(), GpuError> {
        let Some((own, team)) = self.launcher.rows() else {
            let message = "PEs have equal parts of the rows of this product";
            return Err(Error::new(error::GEMM, message).help("make it by Fused::uneven").into());
        };
        alike(world, team, &format!("rows {rows:?}"))?;
        let m = rows.iter().fold(0u64, |sum, rows| sum.saturating_add(*rows));
        uneven::adds_up(m, team.n_pes(), rows)?;
        own.has_room(rows)?;
        let shape = Shape { m, ..self.problem.shape };
        Problem { shape, ..self.problem }.check()?;
        match &mut self.launcher {
            Launcher::Launch(launch) => launch.set_rows(stream, rows)?,
            Launcher::Sequence(sequence) => sequence.set_rows(rows),
            Launcher::Decode(_) => (),
        }
        self.problem.shape = shape;
        Ok(())
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
    /// This PE's rows are in its place, and the rows of the others arrive in theirs. For an all-to-all, D
    /// has modes (row of a PE, column, PE that multiplied).
    /// [`Choice::is_result_symmetric`] says whether D must be symmetric: for an allreduce without
    /// packets, for a reduce-scatter with `send=add`, and for an all-to-all.
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
            Launcher::Launch(launch) => launch.go(self.problem.shape, stream, x),
            Launcher::Decode(decode) => decode.launch_with(stream, x),
            Launcher::Sequence(sequence) => sequence.launch(self.problem.shape, stream, x),
        }
    }
}

impl Launcher {
    /// The rows of each PE and the team, for PEs that have different numbers of rows.
    fn rows(&self) -> Option<(&Rows, &Team)> {
        match self {
            Launcher::Launch(launch) => launch.uneven.as_ref().map(|uneven| (uneven.rows(), &launch.team)),
            Launcher::Sequence(sequence) => sequence.rows().map(|rows| (rows, sequence.team())),
            Launcher::Decode(_) => None,
        }
    }
}

impl Launch {
    fn set_rows(&mut self, stream: &Stream, rows: &[u64]) -> Result<(), GpuError> {
        let Launch { uneven, team, .. } = self;
        uneven.as_mut().map_or(Ok(()), |uneven| uneven.set(stream, team, rows))
    }

    fn new(
        world: &World,
        team: Team,
        form: Form,
        (problem, epilogue): (&Problem, &Epilogue),
        plan: &FusedPlan,
        rows: Option<&[u64]>,
    ) -> Result<Launch, GpuError> {
        let target = target(world.device())?;
        if target.name() != TARGET {
            let message =
                format!("the GPU is {target}, and products with communication inside are for {TARGET}");
            return Err(Error::new(error::GEMM, message).help("choose a sequence").into());
        }
        let (part, pes) = (plan.part(form), team.n_pes());
        let mut options = Options::new(target);
        let (name, defines) = match rows {
            Some(_) => plan.uneven_kernel(form, problem, epilogue, pes),
            None => plan.kernel(form, problem, epilogue, pes),
        };
        options.defines = defines.into_iter().collect();
        let text = crate::library::part(name).unwrap_or_default();
        let file = KernelFile::parse(&format!("weft::{name}"), text)?;
        let uneven = rows.map(|rows| Uneven::new(world, &team, (part, plan), problem, rows)).transpose()?;
        let shape = uneven.as_ref().map_or(problem.shape, |uneven| uneven.padded(problem.shape));
        let kernel = Kernel::with(world, file, options)?;
        let Extents { flags, stage } = Extents::of(part, shape, plan, u64::from(pes));
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
            unread: Unread::new(world, problem)?,
            uneven,
        };
        // No PE may send before all flags are 0.
        world.barrier()?;
        world.stream().synchronize()?;
        world.wait_for_all()?;
        Ok(launch)
    }

    fn go(&self, shape: Shape, stream: &Stream, x: &FusedOperands<'_>) -> Result<(), GpuError> {
        let of_rows =
            self.uneven.as_ref().map_or_else(|| vec![signed(shape.m)], |uneven| uneven.extents(shape.m));
        let extents = of_rows.into_iter().chain([signed(shape.n), signed(shape.k)]).collect::<Vec<_>>();
        let x = &self.uneven.as_ref().map_or(*x, |uneven| uneven.operands(x));
        let stage = self.stage.as_ref().map(|stage| Flat(stage));
        let flags = Flat(&self.flags);
        let mut arguments: Vec<&dyn AsArgument> = extents.iter().map(|n| n as &dyn AsArgument).collect();
        arguments.extend([x.a, x.b, x.d]);
        let others = self.unread.operands(x);
        let count = if self.part == Part::Gather { others.len() } else { OTHERS };
        arguments.extend(others.iter().take(count).map(|other| other as &dyn AsArgument));
        arguments.extend(stage.iter().map(|stage| stage as &dyn AsArgument));
        arguments.extend((self.part != Part::Deliver).then_some(&flags as &dyn AsArgument));
        arguments.push(&self.started);
        if self.part.writes_to_others() {
            arguments.push(&self.done);
        }
        arguments.push(&self.rounds);
        arguments.extend(self.uneven.iter().flat_map(Uneven::tensors));
        arguments.push(&self.team);
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
    let team = FusedTeam::of(world, team)?;
    let case = tuning::Case { form, pes: team.pes, multicast: team.multicast, problem: *problem };
    let stored = tuning::stored(&Setting::of(world.device())?, &case);
    let stored = stored.filter(|choice| epilogue.fits(form, problem, choice).is_ok());
    stored.map_or_else(|| Ok(team.choose_with(form, problem, epilogue)?.0), Ok)
}

/// Compares the requests of a team's PEs, so that none waits for flags that others never raise.
/// This call is *collective*.
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
            // Rows go to their place, and no PE reads them in this launch.
            Part::Deliver => (1, 0),
            Part::Switch => (halves, rows * n * pes),
        };
        let count = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
        Extents { flags: count(flags * pes), stage: count(stage) }
    }
}

/// An extent as a kernel takes it. A problem that was checked has extents of 31 bits.
fn signed(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

/// Staging memory of so many elements. This call is *collective*.
pub(super) fn staging(world: &World, dtype: DType, elements: usize) -> Result<AnyTensor, Error> {
    let buffer = world.buffer(elements.saturating_mul(dtype.bytes() as usize))?;
    AnyTensor::new(buffer, dtype, elements.into_layout()?)
}
