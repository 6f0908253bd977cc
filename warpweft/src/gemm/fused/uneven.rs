//! Products in which each PE of a team has a number of rows of its own.

use super::plan::{Choice, Part};
use super::{Form, FusedOperands, FusedPlan, part_of, signed, staging};
use crate::gemm::{Problem, Shape};
use crate::gpu::{GpuError, Grid, Kernel};
use weft_lang::elaborate::Define;
use weft_runtime::launch::AsArgument;
use weft_runtime::memory::AnyTensor;
use weft_runtime::{DeviceTensor, Error, Stream, Team, World, error};

/// The part of the library that has the kernel which writes the order of tiles.
const PART: &str = "gemm_uneven_order";
/// Numbers of rows that this kernel takes.
const MAX_PES: usize = 8;
/// Multiprocessors of a Hopper GPU. All PEs divide their tiles into blocks of the same size, whatever GPUs they have: else
/// they could wait for each other in a circle.
const SMS: u64 = 132;
/// The lag of an order that begins with own tiles.
const OWN_FIRST: i64 = -1;
/// The lag of an order in which own tiles have their turn after those of the other PEs, as in the
/// kernel for equal parts.
const IN_TURN: i64 = 0;

/// The rows of each PE of a team.
pub(super) struct Rows {
    all: Vec<u64>,
    /// The rank of this PE in the team.
    me: u32,
    /// The largest number of rows of a PE that there is memory for.
    max: u64,
}

impl Rows {
    /// Memory is for the largest of these numbers.
    pub fn new(all: &[u64], me: u32) -> Rows {
        Rows { all: all.to_vec(), me, max: all.iter().copied().max().unwrap_or_default() }
    }

    /// The rows of each PE.
    pub fn all(&self) -> &[u64] {
        &self.all
    }

    /// Changes the rows of each PE.
    pub fn set(&mut self, all: &[u64]) {
        self.all = all.to_vec();
    }

    /// The largest number of rows of a PE that there is memory for.
    pub fn max(&self) -> u64 {
        self.max
    }

    /// Rows of this PE.
    pub fn own(&self) -> u64 {
        self.all.get(self.me as usize).copied().unwrap_or_default()
    }

    /// The first row of a PE among those of all PEs.
    pub fn first(&self, pe: usize) -> u64 {
        self.all.iter().take(pe).sum()
    }

    /// Whether there is memory for these rows.
    ///
    /// # Errors
    /// Fails for a PE with more rows (R0505).
    pub fn has_room(&self, all: &[u64]) -> Result<(), Error> {
        let Some(pe) = all.iter().position(|rows| *rows > self.max) else { return Ok(()) };
        let message =
            format!("PE {pe} of the team has {} rows, and there is memory for {}", all[pe], self.max);
        Err(Error::new(error::GEMM, message)
            .help("make another Fused, with the largest number of rows of a PE"))
    }
}

/// The rows of each PE of a team, and the order of their tiles on the device.
pub(super) struct Uneven {
    kernel: Kernel,
    part: Part,
    rows: Rows,
    order: DeviceTensor<i32>,
    starts: DeviceTensor<i32>,
    /// What stands for the result and the residual of a PE without rows: one row.
    empty: [AnyTensor; 2],
    tiles: Tiles,
    /// Tiles of a block: what the CTAs of a GPU multiply at the same time for one PE.
    block: u64,
    /// Blocks of tiles for other PEs before the first own ones.
    lag: i64,
}

/// The extents of tiles, and how many of them lie beside each other.
#[derive(Clone, Copy)]
struct Tiles {
    /// Rows of the tiles of a cluster.
    down: u64,
    columns: u64,
}

impl Tiles {
    fn of(plan: &FusedPlan, problem: &Problem) -> Tiles {
        Tiles { down: u64::from(plan.bm * plan.ctas), columns: problem.shape.n.div_ceil(plan.bn.into()) }
    }

    fn count(&self, rows: &[u64]) -> u64 {
        rows.iter().map(|rows| rows.div_ceil(self.down) * self.columns).sum()
    }
}

impl Uneven {
    /// Compiles the kernel that writes the order, and allocates its memory. This call is
    /// *collective*.
    ///
    /// # Errors
    /// Fails where [`Kernel::with`] fails, and if there is no memory (R0302).
    pub fn new(
        world: &World,
        team: &Team,
        (part, plan): (Part, &FusedPlan),
        problem: &Problem,
        rows: &[u64],
    ) -> Result<Uneven, GpuError> {
        let text = crate::library::part(PART).unwrap_or_default();
        let kernel = Kernel::compile(world, text, &[("P", Define::Int(team.n_pes().into()))])?;
        let own = Rows::new(rows, team.my_pe());
        let tiles = Tiles::of(plan, problem);
        let all = tiles.count(&vec![own.max(); rows.len()]).saturating_mul(5);
        let row = usize::try_from(problem.shape.n).unwrap_or(usize::MAX);
        let uneven = Uneven {
            kernel,
            part,
            rows: own,
            order: DeviceTensor::zeros(usize::try_from(all).unwrap_or(usize::MAX), world.stream())?,
            starts: DeviceTensor::zeros(rows.len() + 1, world.stream())?,
            empty: [staging(world, problem.out, row)?, staging(world, part_of(problem.out), row)?],
            tiles,
            block: (SMS / u64::from(plan.ctas)).div_ceil(rows.len().max(1) as u64),
            lag: match part {
                Part::Scatter => plan.lag.into(),
                Part::Deliver => IN_TURN,
                _ => OWN_FIRST,
            },
        };
        uneven.write(world.stream(), team)?;
        Ok(uneven)
    }

    /// Changes the rows of each PE, for launches that follow on the stream.
    ///
    /// # Errors
    /// Fails where a launch fails.
    pub fn set(&mut self, stream: &Stream, team: &Team, rows: &[u64]) -> Result<(), GpuError> {
        self.rows.set(rows);
        self.write(stream, team)
    }

    /// Puts the kernel on a stream that writes the order of tiles.
    fn write(&self, stream: &Stream, team: &Team) -> Result<(), GpuError> {
        let mut numbers = [0; MAX_PES + 5];
        for (to, rows) in numbers.iter_mut().zip(self.rows.all()) {
            *to = signed(*rows);
        }
        let Tiles { down, columns } = self.tiles;
        let of_tiles = [signed(down), signed(columns), signed(self.block), self.lag, self.room()];
        numbers[MAX_PES..].copy_from_slice(&of_tiles);
        let mut arguments: Vec<&dyn AsArgument> = numbers.iter().map(|n| n as &dyn AsArgument).collect();
        arguments.extend([&self.order as &dyn AsArgument, &self.starts, team]);
        let threads = 128;
        let ctas = u32::try_from(self.tiles.count(self.rows.all()).div_ceil(threads)).unwrap_or(u32::MAX);
        self.kernel.launch(stream, Grid::of(ctas.clamp(1, 64)), &arguments[..])
    }

    /// The number of tiles that the order has memory for.
    fn room(&self) -> i64 {
        signed(self.tiles.count(&vec![self.rows.max(); self.rows.all().len()]))
    }

    /// The rows of each PE.
    pub fn rows(&self) -> &Rows {
        &self.rows
    }

    /// Whether D is a sum over PEs. Then a residual has the rows of this PE.
    fn adds_up(&self) -> bool {
        matches!(self.part, Part::Scatter | Part::Add)
    }

    /// The operands of a launch. A PE without rows has no residual of a sum, and its result has no rows unless others write
    /// to it.
    pub fn operands<'a>(&'a self, x: &FusedOperands<'a>) -> FusedOperands<'a> {
        if !self.adds_up() || self.rows.own() > 0 {
            return *x;
        }
        let [d, residual] = self.empty.each_ref().map(|tensor| tensor as &dyn AsArgument);
        let d = if self.part == Part::Add { x.d } else { d };
        FusedOperands { d, residual: x.residual.and(Some(residual)), ..*x }
    }

    /// The shape of a product whose PEs all have as many rows as there is memory for.
    pub fn padded(&self, shape: Shape) -> Shape {
        Shape { m: self.rows.max().saturating_mul(self.rows.all().len() as u64), ..shape }
    }

    /// The extents of a launch that come before those of columns.
    pub fn extents(&self, m: u64) -> Vec<i64> {
        let own = self.adds_up().then(|| signed(self.rows.own().max(1)));
        let tiles = signed(self.tiles.count(self.rows.all()));
        let all = [Some(signed(m)), Some(signed(self.rows.max())), own, Some(tiles), Some(self.room())];
        all.into_iter().flatten().collect()
    }

    /// What a launch reads beside the operands.
    pub fn tensors(&self) -> [&dyn AsArgument; 2] {
        [&self.order, &self.starts]
    }
}

/// Whether rows of PEs make a problem, and a choice computes it so.
///
/// # Errors
/// Fails for another number of PEs, rows that do not add up to m, and what has no form for uneven rows (R0505).
pub(super) fn fits(
    form: Form,
    problem: &Problem,
    choice: &Choice,
    (pes, rows): (u32, &[u64]),
) -> Result<(), Error> {
    let refuse = |message: String, help: &str| Err(Error::new(error::GEMM, message).help(help));
    adds_up(problem.shape.m, pes, rows)?;
    if form == Form::AllReduce {
        let message = "all PEs get all rows of an allreduce, and none has rows of its own".to_owned();
        return refuse(message, "use Fused::with: m can be any number");
    }
    match choice {
        Choice::Launch(_) | Choice::Sequence => Ok(()),
        Choice::Decode(_) => {
            let message = format!("{} has equal parts of the rows", choice.text(form));
            refuse(message, "choose a plan for one launch that moves tiles")
        }
    }
}

/// Whether there are rows for each PE, and as many as the problem has.
///
/// # Errors
/// Fails if not (R0505).
pub(super) fn adds_up(m: u64, pes: u32, rows: &[u64]) -> Result<(), Error> {
    if rows.len() != pes as usize || rows.len() > MAX_PES {
        let message = format!("there are rows for {} PEs, and the team has {pes}", rows.len());
        return Err(
            Error::new(error::GEMM, message).help(format!("give one number for each PE, {MAX_PES} at most"))
        );
    }
    let sum = rows.iter().try_fold(0u64, |sum, rows| sum.checked_add(*rows));
    if sum == Some(m) {
        return Ok(());
    }
    let sum = sum.map_or_else(|| "more than 2^64".to_owned(), |sum| sum.to_string());
    let message = format!("the rows of the PEs are {rows:?}, {sum} together, and m is {m}");
    Err(Error::new(error::GEMM, message).help("m is the sum of the rows of all PEs"))
}
