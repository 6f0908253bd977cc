//! A product and a collective that follow each other, for shapes whose fused launch is no faster.

use super::uneven::Rows;
use super::{Form, FusedOperands, Unread, part_of, signed, staging};
use crate::collective::{Collectives, Config, Flat};
use crate::compile::{KernelFile, Options};
use crate::gemm::{Gemm, Problem, Shape};
use crate::gpu::{GpuError, Grid, Kernel, target};
use weft_runtime::launch::{Argument, AsArgument};
use weft_runtime::memory::AnyTensor;
use weft_runtime::{Reduce, Stream, Team, World};

/// The product, the collective, and the memory between them.
pub(super) struct Sequence {
    form: Form,
    gemm: Gemm,
    collectives: Collectives,
    /// This PE's product of all rows, with an equal part for each PE.
    whole: Option<AnyTensor>,
    finish: Option<Finish>,
    /// The rows of each PE, where they are not equal parts.
    rows: Option<Rows>,
}

/// Rows that one launch multiplies: their number, and the first of them in A and in the product.
struct Block {
    rows: u64,
    a: Option<u64>,
    d: Option<u64>,
}

/// The elements of a tensor from row `first` on, where rows have `columns` elements, or the whole tensor as it is.
struct From<'a> {
    of: &'a dyn AsArgument,
    first: Option<u64>,
    columns: u64,
}

impl AsArgument for From<'_> {
    fn argument<'a>(&'a self, stream: &'a Stream) -> Argument<'a> {
        let all = self.of.argument(stream);
        let skipped = |first: u64| usize::try_from(first.saturating_mul(self.columns)).unwrap_or(usize::MAX);
        match self.first {
            Some(first) => all.skip(skipped(first)),
            None => all,
        }
    }
}

impl Sequence {
    /// Compiles the product, and allocates the memory between both. *Collective.*
    ///
    /// # Errors
    /// Fails where [`Gemm::new`] or [`Collectives::with`] fails.
    pub fn new(
        world: &World,
        team: Team,
        form: Form,
        problem: &Problem,
        rows: Option<&[u64]>,
    ) -> Result<Sequence, GpuError> {
        let Shape { m, n, .. } = problem.shape;
        let pes = u64::from(team.n_pes());
        let rows = rows.map(|rows| Rows::new(rows, team.my_pe()));
        let part = rows.as_ref().map_or(m.div_ceil(pes), Rows::max);
        let whole = (form == Form::ReduceScatter).then(|| {
            let elements = usize::try_from((part * pes).saturating_mul(n)).unwrap_or(usize::MAX);
            staging(world, problem.out, elements)
        });
        let finish = (form == Form::ReduceScatter && rows.is_some()).then(|| Finish::new(world, problem));
        // A launch multiplies the rows of one PE if PEs have different numbers of them.
        let m = if rows.is_some() { part } else { m };
        let multiplied = Problem { shape: Shape { m, ..problem.shape }, ..*problem };
        Ok(Sequence {
            form,
            gemm: Gemm::new(world, multiplied)?,
            collectives: Collectives::with(world, team, Config::default())?,
            whole: whole.transpose()?,
            finish: finish.transpose()?,
            rows,
        })
    }

    /// The team whose PEs take part.
    pub fn team(&self) -> &Team {
        self.collectives.team()
    }

    /// The rows of each PE, if they are not equal parts.
    pub fn rows(&self) -> Option<&Rows> {
        self.rows.as_ref()
    }

    /// Changes the rows of each PE.
    pub fn set_rows(&mut self, rows: &[u64]) {
        self.rows.iter_mut().for_each(|all| all.set(rows));
    }

    /// What each launch multiplies.
    fn blocks(&self, m: u64) -> Vec<Block> {
        let Some(rows) = &self.rows else { return vec![Block { rows: m, a: None, d: None }] };
        let block = |(pe, own): (usize, &u64)| {
            let (packed, part) = (Some(rows.first(pe)), Some(pe as u64 * rows.max()));
            let (a, d) = if self.form == Form::AllGather { (part, packed) } else { (packed, part) };
            Block { rows: *own, a, d }
        };
        rows.all().iter().enumerate().map(block).filter(|block| block.rows > 0).collect()
    }

    fn multiply(
        &self,
        stream: &Stream,
        Shape { m, n, k }: Shape,
        [a, b, d]: [&dyn AsArgument; 3],
    ) -> Result<(), GpuError> {
        self.blocks(m).into_iter().try_for_each(|block| {
            let a = From { of: a, first: block.a, columns: k };
            let d = From { of: d, first: block.d, columns: n };
            self.gemm.launch_rows(stream, block.rows, [&a, b, &d])
        })
    }

    /// Puts the product and the collective on a stream.
    ///
    /// # Errors
    /// Fails where [`Gemm::launch`] or [`Collectives::run`] fails.
    pub fn launch(&self, shape: Shape, stream: &Stream, x: &FusedOperands<'_>) -> Result<(), GpuError> {
        let FusedOperands { a, b, d, .. } = *x;
        match (self.form, &self.whole) {
            (Form::AllGather, _) => {
                self.collectives.all_gather(a, None, stream)?;
                self.multiply(stream, shape, [&Flat(a), b, d])
            }
            (_, Some(whole)) => {
                self.multiply(stream, shape, [a, b, &Flat(whole)])?;
                let to = if self.finish.is_some() { None } else { Some(d) };
                self.collectives.reduce_scatter(whole, to, Reduce::Sum, stream)?;
                let (Some(finish), Some(rows)) = (&self.finish, &self.rows) else { return Ok(()) };
                let first = Some(rows.me() * rows.max());
                let sums = From { of: whole, first, columns: shape.n };
                finish.launch(stream, (rows.own(), shape.n), &sums, x)
            }
            _ => {
                self.multiply(stream, shape, [a, b, d])?;
                self.collectives.allreduce(d, None, Reduce::Sum, stream)
            }
        }
    }
}

/// The kernel that completes sums after a collective.
struct Finish {
    kernel: Kernel,
    unread: Unread,
}

/// The part of the library that has it.
const PART: &str = "finish_sums";

impl Finish {
    fn new(world: &World, problem: &Problem) -> Result<Finish, GpuError> {
        let mut options = Options::new(target(world.device())?);
        let types = [("OUT", problem.out), ("PART", part_of(problem.out))];
        options.defines = types.into_iter().map(|(name, dtype)| (name.to_owned(), dtype.into())).collect();
        let text = crate::library::part(PART).unwrap_or_default();
        let file = KernelFile::parse(&format!("weft::{PART}"), text)?;
        Ok(Finish { kernel: Kernel::with(world, file, options)?, unread: Unread::new(world, problem)? })
    }

    /// Completes rows of n columns. A PE without rows launches nothing.
    fn launch(
        &self,
        stream: &Stream,
        (rows, n): (u64, u64),
        sums: &dyn AsArgument,
        x: &FusedOperands<'_>,
    ) -> Result<(), GpuError> {
        if rows == 0 {
            return Ok(());
        }
        let (rows, n) = (signed(rows), signed(n));
        let [.., bias, residual, scale] = self.unread.operands(x);
        let arguments: [&dyn AsArgument; 7] = [&rows, &n, sums, &bias, &residual, &scale, x.d];
        self.kernel.launch(stream, Grid::Auto, &arguments[..])
    }
}
