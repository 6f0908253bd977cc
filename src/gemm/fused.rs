//! Products with communication inside: one launch that multiplies, sends, and adds up.

use super::{Problem, Shape};
use crate::collective::Flat;
use crate::compile::{KernelFile, Options};
use crate::gpu::{GpuError, Grid, Kernel, target};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use weft_lang::elaborate::Define;
use weft_runtime::launch::AsArgument;
use weft_runtime::memory::AnyTensor;
use weft_runtime::{DType, DeviceTensor, Error, IntoLayout, Stream, SymmetricTensor, Team, World, error};

/// The architecture that the kernels are written for: their roles divide a CTA's registers and shared memory as Hopper has
/// them.
const TARGET: &str = "sm_90a";

/// The collective that PEs compute together with a product.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Form {
    /// A (m / PEs, k) of every PE times the PE's own B (n, k): D (m, n).
    AllGather,
    /// The sum over PEs of A (m, k) times B (n, k), of which each PE gets its part of the rows: D (m / PEs, n).
    ReduceScatter,
    /// That sum, of which each PE gets all rows: D (m, n).
    AllReduce,
}

impl Form {
    /// Every form, in the order of the variants.
    pub const ALL: [Form; 3] = [Form::AllGather, Form::ReduceScatter, Form::AllReduce];

    /// The part of the library that has its kernel.
    fn part(self) -> &'static str {
        match self {
            Form::AllGather => "all_gather_gemm",
            Form::ReduceScatter => "gemm_reduce_scatter",
            Form::AllReduce => "gemm_allreduce",
        }
    }
}

/// A compile-time parameter of the kernels: its name in the text, whether the all-gather and the two sums have it, and
/// its least and greatest value.
struct Parameter {
    name: &'static str,
    gathers: bool,
    sums: bool,
    range: (u32, u32),
}

macro_rules! parameters {
    ($(#[doc = $about:literal] $field:ident = $name:literal, $gathers:literal, $sums:literal, $value:expr, $range:expr;)*) => {
        /// A value for each compile-time parameter of the kernels. As text it is `bn=256,stages=3,pace=6000`: what is
        /// left out has the form's own value.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub struct FusedPlan { $(#[doc = $about] pub $field: u32,)* }

        const PARAMETERS: &[Parameter] = &[
            $(Parameter { name: $name, gathers: $gathers, sums: $sums, range: $range },)*
        ];

        impl FusedPlan {
            fn values(&self) -> [u32; PARAMETERS.len()] {
                [$(self.$field),*]
            }

            fn fields(&mut self) -> [&mut u32; PARAMETERS.len()] {
                [$(&mut self.$field),*]
            }

            /// The default plan of a form.
            pub fn of(form: Form) -> FusedPlan {
                $(let $field: fn(Form) -> u32 = $value;)*
                FusedPlan { $($field: $field(form)),* }
            }
        }
    };
}

parameters! {
    /// Rows of a tile.
    bm = "BM", true, true, |_| 128, (128, 128);
    /// Columns of a tile.
    bn = "BN", true, true, |_| 256, (64, 256);
    /// Elements along K of a stage.
    bk = "BK", true, true, |_| 64, (32, 128);
    /// Stages of the pipeline that feeds the matrix instructions.
    stages = "STAGES", true, true, |form| if form == Form::AllGather { 4 } else { 3 }, (2, 8);
    /// CTAs of a cluster, whose tiles lie below each other.
    ctas = "CTAS", true, true, |_| 1, (1, 2);
    /// Columns of a strip of a tile that is moved at once.
    strip = "STRIP", true, true, |_| 64, (32, 128);
    /// Strips on their way out that shared memory holds for each half of a tile.
    outs = "OUTS", false, true, |_| 2, (1, 8);
    /// Strips of other PEs that shared memory holds for each half of a tile.
    ins = "INS", false, true, |_| 2, (1, 8);
    /// Blocks of tiles for other PEs that are computed before the first own ones.
    lag = "LAG", false, true, |_| 4, (0, 1024);
    /// Columns of a piece of A that is sent at once.
    piece = "PIECE", true, false, |_| 64, (32, 512);
    /// Cycles that a role waits after each half of a strip or a piece that it sends.
    pace = "PACE", true, true, |_| 0, (0, 1_000_000);
}

impl FusedPlan {
    /// The plan that text says, as `bn=128,ctas=2`, for a form.
    ///
    /// # Errors
    /// Fails for a name or a value that does not exist.
    pub fn parse(text: &str, form: Form) -> Result<FusedPlan, String> {
        let mut plan = FusedPlan::of(form);
        for word in text.split(',').filter(|word| !word.is_empty()) {
            let (name, value) = word.split_once('=').ok_or_else(|| format!("`{word}` is not NAME=N"))?;
            let at = PARAMETERS.iter().position(|p| p.name.eq_ignore_ascii_case(name) && p.is_of(form));
            let known = || PARAMETERS.iter().filter(|p| p.is_of(form)).map(|p| p.name.to_ascii_lowercase());
            let at = at.ok_or_else(|| {
                format!("there is no `{name}`: known are {}", known().collect::<Vec<_>>().join(", "))
            })?;
            let (least, most) = PARAMETERS[at].range;
            let number = u32::from_str(value).ok().filter(|n| (least..=most).contains(n));
            let number = number.ok_or_else(|| format!("{name} is {least} to {most}, not `{value}`"))?;
            *plan.fields()[at] = number;
        }
        Ok(plan)
    }

    /// The text that names the plan.
    pub fn text(&self, form: Form) -> String {
        let own = PARAMETERS.iter().zip(self.values()).filter(|(p, _)| p.is_of(form));
        own.map(|(p, n)| format!("{}={n}", p.name.to_ascii_lowercase())).collect::<Vec<_>>().join(",")
    }

    /// Bytes of shared memory of a CTA.
    pub fn shared_bytes(&self, form: Form, problem: &Problem) -> u64 {
        /// Barriers of the pipelines, and what the memory's alignment leaves.
        const BESIDE: u64 = 2048;
        let [bm, bn, bk, stages, strip, outs, ins] =
            [self.bm, self.bn, self.bk, self.stages, self.strip, self.outs, self.ins].map(u64::from);
        let (out, part) = (u64::from(problem.out.bytes()), u64::from(part_of(problem.out).bytes()));
        let strips = match form {
            Form::AllGather => 2 * out,
            _ => (outs + ins) * part + if out == part { 0 } else { outs * out },
        };
        stages * (bm + bn) * bk * u64::from(problem.dtype.bytes()) + bm * strip * strips + BESIDE
    }

    /// Whether a problem can be computed with it.
    ///
    /// # Errors
    /// Fails with the limit that is exceeded (R0505).
    pub fn fits(&self, form: Form, problem: &Problem) -> Result<(), Error> {
        const MOST: u64 = 227 << 10;
        let refuse = |message: String, help: &str| Err(Error::new(error::GEMM, message).help(help));
        if !self.bn.is_multiple_of(self.strip) {
            let message =
                format!("tiles of {} columns have no whole number of strips of {}", self.bn, self.strip);
            return refuse(message, "choose a strip that divides bn");
        }
        match self.shared_bytes(form, problem) {
            0..=MOST => Ok(()),
            bytes => refuse(
                format!(
                    "the plan {} takes {bytes} bytes of shared memory, and a CTA has {MOST}",
                    self.text(form)
                ),
                "choose fewer stages, smaller tiles or fewer strips",
            ),
        }
    }
}

impl Parameter {
    fn is_of(&self, form: Form) -> bool {
        if form == Form::AllGather { self.gathers } else { self.sums }
    }
}

/// The type of sums that PEs send: that of results, and bf16 for results of 8 bits.
fn part_of(out: DType) -> DType {
    if out.bytes() == 1 { DType::BF16 } else { out }
}

/// A product with communication inside, compiled for the PEs of a team. Launches follow each other on one stream; for
/// several streams there is one of these each.
pub struct Fused {
    form: Form,
    problem: Problem,
    plan: FusedPlan,
    kernel: Kernel,
    team: Team,
    stage: AnyTensor,
    flags: SymmetricTensor<u64>,
    started: SymmetricTensor<u64>,
    done: SymmetricTensor<u64>,
    rounds: DeviceTensor<u64>,
}

impl Fused {
    /// Compiles a product for a team, and allocates what its launches need. The problem's `m` are the rows of all PEs
    /// together, `n` and `k` what a PE has. *Collective*: all PEs of the world call it with the same arguments.
    ///
    /// # Errors
    /// Fails for a problem or a plan that the kernel does not have, and where PEs of the team ask for
    /// different ones (R0505), if there is no memory (R0302), or where [`Kernel::compile`] fails.
    pub fn new(
        world: &World,
        team: Team,
        form: Form,
        problem: Problem,
        plan: FusedPlan,
    ) -> Result<Fused, GpuError> {
        let fits = problem.check().and_then(|()| plan.fits(form, &problem));
        alike(world, &team, &format!("{form:?}, {problem}, {}", plan.text(form)))?;
        fits?;
        let target = target(world.device())?;
        if target.name() != TARGET {
            let message =
                format!("the GPU is {target}, and products with communication inside are for {TARGET}");
            return Err(Error::new(error::GEMM, message).help("use `Gemm` and a collective").into());
        }
        let pes = team.n_pes();
        let mut options = Options::new(target);
        options.defines = defines(form, &problem, &plan, pes).collect();
        let text = crate::library::part(form.part()).unwrap_or_default();
        let file = KernelFile::parse(&format!("weft::{}", form.part()), text)?;
        let kernel = Kernel::with(world, file, options)?;
        let Extents { flags, strips } = Extents::of(form, problem.shape, &plan, u64::from(pes));
        let stage = problem_stage(world, part_of(problem.out), &plan, strips)?;
        let fused = Fused {
            stage,
            flags: world.zeros(flags)?,
            started: world.zeros(pes as usize)?,
            done: world.zeros(pes as usize)?,
            rounds: DeviceTensor::zeros(16, world.stream())?,
            form,
            problem,
            plan,
            kernel,
            team,
        };
        // Nobody sends before all flags are 0.
        world.barrier()?;
        world.stream().synchronize()?;
        world.wait_for_all()?;
        Ok(fused)
    }

    /// The product that the kernel computes.
    pub fn problem(&self) -> &Problem {
        &self.problem
    }

    /// The plan by which it is computed.
    pub fn plan(&self) -> &FusedPlan {
        &self.plan
    }

    /// Puts the product on a stream. A and B have contiguous rows. For an all-gather, A is symmetric with modes (row of
    /// a PE, column, PE), and this PE's rows are in its place; the others come there. For an allreduce, D is symmetric.
    ///
    /// # Errors
    /// Fails for operands of other types, shapes or strides (R0502), or if the CUDA driver refuses a call
    /// (R0103).
    pub fn launch(
        &self,
        stream: &Stream,
        a: &dyn AsArgument,
        b: &dyn AsArgument,
        d: &dyn AsArgument,
    ) -> Result<(), GpuError> {
        let Shape { m, n, k } = self.problem.shape;
        // A problem that was checked has extents of 31 bits.
        let [m, n, k] = [m, n, k].map(|extent| i64::try_from(extent).unwrap_or(i64::MAX));
        let (stage, flags) = (Flat(&self.stage), Flat(&self.flags));
        let mut arguments: Vec<&dyn AsArgument> = vec![&m, &n, &k, a, b, d];
        if self.form != Form::AllGather {
            arguments.push(&stage);
        }
        arguments.extend([&flags as &dyn AsArgument, &self.started]);
        if self.form == Form::AllReduce {
            arguments.push(&self.done);
        }
        arguments.extend([&self.rounds as &dyn AsArgument, &self.team]);
        self.kernel.launch(stream, Grid::Auto, &arguments[..])
    }
}

impl fmt::Debug for Fused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fused({:?}, {}, {})", self.form, self.problem, self.plan.text(self.form))
    }
}

/// Compares what the PEs of a team ask for, so that none waits for flags that others never raise. *Collective.*
///
/// # Errors
/// Fails on every PE of a team whose PEs differ (R0505).
pub(crate) fn alike(world: &World, team: &Team, asked: &str) -> Result<(), Error> {
    let all = world.all_gather_host(asked.as_bytes())?;
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

/// Values of the kernel's compile-time parameters.
fn defines<'p>(
    form: Form,
    problem: &Problem,
    plan: &'p FusedPlan,
    pes: u32,
) -> impl Iterator<Item = (String, Define)> + use<'p> {
    let types = [("T", problem.dtype), ("OUT", problem.out), ("PART", part_of(problem.out))];
    let types = types.into_iter().filter(move |(name, _)| form != Form::AllGather || *name != "PART");
    let types = types.map(|(name, dtype)| (name.to_owned(), Define::from(dtype)));
    let own = PARAMETERS.iter().zip(plan.values()).filter(move |(p, _)| p.is_of(form));
    let own = own.map(|(p, n)| (p.name.to_owned(), Define::Int(n.into())));
    types.chain(own).chain([("P".to_owned(), Define::Int(pes.into()))])
}

/// Flags of a PE, and strips that its staging memory holds: the extents in the kernels' heads.
struct Extents {
    flags: usize,
    strips: usize,
}

impl Extents {
    fn of(form: Form, Shape { m, n, k }: Shape, plan: &FusedPlan, pes: u64) -> Extents {
        let [bm, bn, ctas, strip, piece] =
            [plan.bm, plan.bn, plan.ctas, plan.strip, plan.piece].map(u64::from);
        let rows = m.div_ceil(pes);
        let count = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
        match form {
            Form::AllGather => {
                Extents { flags: count(k.div_ceil(piece) * rows.div_ceil(bm) * pes), strips: 1 }
            }
            _ => {
                let halves = 2 * ctas * rows.div_ceil(bm * ctas) * n.div_ceil(bn);
                Extents { flags: count(halves * pes), strips: count(bn / strip * pes * halves) }
            }
        }
    }
}

/// Staging memory for so many strips. *Collective.*
fn problem_stage(world: &World, dtype: DType, plan: &FusedPlan, strips: usize) -> Result<AnyTensor, Error> {
    let elements = (plan.bm / 2 * plan.strip) as usize * strips;
    let buffer = world.buffer(elements * dtype.bytes() as usize)?;
    AnyTensor::new(buffer, dtype, elements.into_layout()?)
}
