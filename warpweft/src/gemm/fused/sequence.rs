//! A product and a collective that follow each other, for shapes whose fused launch is no faster.

use super::uneven::Rows;
use super::{Epilogue, Form, FusedOperands, FusedPlan, Scales, Unread, part_of, signed, staging};
use crate::collective::{Collectives, Config, Flat};
use crate::compile::{KernelFile, Options};
use crate::gemm::{BlockTiles, Gemm, Machine, Problem, Shape};
use crate::gpu::{GpuError, Grid, Kernel, target};
use weft_lang::elaborate::Define;
use weft_runtime::launch::{Argument, AsArgument};
use weft_runtime::memory::AnyTensor;
use weft_runtime::{Reduce, Stream, Team, World};

/// The product, the collective, and the memory between them.
pub(super) struct Sequence {
    form: Form,
    scales: Scales,
    product: Product,
    collectives: Collectives,
    /// This PE's product of all rows, with an equal part for each PE.
    whole: Option<AnyTensor>,
    finish: Option<Finish>,
    me: u64,
    /// The rows of a part.
    part: u64,
    /// The rows of each PE, where they are not equal parts.
    rows: Option<Rows>,
}

/// The least number of stages of a product with an epilogue.
pub(super) const MIN_STAGES: u32 = 2;

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

/// The parts of an epilogue that are applied to the product of a PE, and to sums after the collective.
pub(super) fn divided(form: Form, epilogue: &Epilogue) -> [Epilogue; 2] {
    let none = Epilogue::default();
    match form {
        Form::AllGather | Form::AllToAll => [*epilogue, none],
        Form::ReduceScatter | Form::AllReduce => {
            [Epilogue { scales: epilogue.scales, ..none }, Epilogue { scales: Scales::None, ..*epilogue }]
        }
    }
}

/// The tiles of a product with an epilogue.
pub(super) fn tiles(problem: &Problem, epilogue: &Epilogue, stages: u32) -> FusedPlan {
    // A stage has one scale of a block, or rows of 128 bytes.
    let bk = if epilogue.scales == Scales::Blocks { 128 } else { 128 / problem.dtype.bytes().max(1) };
    // A tile has all columns of a scale of D.
    let bn = if epilogue.gated && epilogue.row_scales { 256 } else { 128 };
    FusedPlan { bm: 128, bn, bk, stages, ctas: 1, strip: 32, ..FusedPlan::of(Form::AllGather) }
}

/// The same, with as many stages as a GPU has memory for. With scales of blocks, tiles are wider where
/// that is likely to take less time and there is memory for them.
pub(super) fn filled(problem: &Problem, epilogue: &Epilogue, machine: Machine) -> FusedPlan {
    let bytes = |plan: &FusedPlan| plan.shared_bytes(Form::AllGather, problem) + plan.scale_bytes(epilogue);
    let fits = |plan: &FusedPlan| bytes(plan) <= u64::from(machine.target.shared_limit());
    let mut all = (MIN_STAGES..=8).rev().map(|stages| tiles(problem, epilogue, stages));
    let plan = all.find(fits).unwrap_or_else(|| tiles(problem, epilogue, MIN_STAGES));
    if epilogue.scales != Scales::Blocks || epilogue.row_scales {
        return plan;
    }
    let stages = Machine::STAGES_WITH_BLOCKS;
    let with = |BlockTiles { columns: bn, ctas }| match bn == plan.bn {
        true => plan,
        false => FusedPlan { bn, stages, ctas, ..plan },
    };
    machine.tiles_with_blocks(problem.shape).map(with).into_iter().find(fits).unwrap_or(plan)
}

impl Sequence {
    /// Compiles the product, and allocates the memory between both. This call is *collective*.
    ///
    /// # Errors
    /// Fails where [`Gemm::new`] or [`Collectives::with`] fails.
    pub fn new(
        world: &World,
        team: Team,
        form: Form,
        (problem, epilogue): (&Problem, &Epilogue),
        rows: Option<&[u64]>,
    ) -> Result<Sequence, GpuError> {
        let Shape { m, n, .. } = problem.shape;
        let (pes, me) = (u64::from(team.n_pes()), team.my_pe());
        let [of_product, of_sums] = divided(form, epilogue);
        let rows = rows.map(|rows| Rows::new(rows, me));
        let part = rows.as_ref().map_or(m.div_ceil(pes), Rows::max);
        let sums = form.adds_up();
        // A launch completes what the collective cannot write to D.
        let finishes = !of_sums.is_none() || sums && (rows.is_some() || part_of(problem.out) != problem.out);
        let out = if sums { part_of(problem.out) } else { problem.out };
        let divides = matches!(form, Form::ReduceScatter | Form::AllToAll);
        let whole = (divides || finishes).then(|| {
            let columns = of_product.columns(n);
            let elements = usize::try_from((part * pes).saturating_mul(columns)).unwrap_or(usize::MAX);
            staging(world, out, elements)
        });
        let finish = finishes.then(|| Finish::new(world, problem, &of_sums));
        // A launch multiplies the rows of one PE if PEs have different numbers of them.
        let shape = Shape { m: if rows.is_some() { part } else { m }, ..problem.shape };
        let multiplied = Problem { shape, out, ..*problem };
        Ok(Sequence {
            form,
            scales: epilogue.scales,
            product: Product::new(world, multiplied, &of_product)?,
            collectives: Collectives::with(world, team, Config::default())?,
            whole: whole.transpose()?,
            finish: finish.transpose()?,
            me: me.into(),
            part,
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
            let (packed, part) = (Some(rows.first(pe)), Some(pe as u64 * self.part));
            let (a, d) = if self.form == Form::AllGather { (part, packed) } else { (packed, part) };
            Block { rows: *own, a, d }
        };
        rows.all().iter().enumerate().map(block).filter(|block| block.rows > 0).collect()
    }

    /// Multiplies all rows of A, and writes them to x.d.
    fn multiply(&self, stream: &Stream, shape: Shape, x: &FusedOperands<'_>) -> Result<(), GpuError> {
        let Shape { m, n, k } = shape;
        let along = self.scales.of_a(1, k);
        let gathers = self.form == Form::AllGather;
        self.blocks(m).into_iter().try_for_each(|block| {
            // The scale of a whole matrix is in the place of this PE, and others are those of the rows.
            let of_scales = match self.scales {
                Scales::Matrices => gathers.then_some(self.me),
                _ => block.a,
            };
            let columns = self.product.columns(n);
            let from = |of, first, columns| From { of, first, columns };
            let a = from(x.a, block.a, k);
            let d = from(x.d, block.d, columns);
            let scale_a = x.scale_a.map(|of| from(of, of_scales, along));
            // That of an all-to-all has the rows of A, since the PE that multiplies adds it.
            let added = if self.form == Form::AllToAll { block.a } else { block.d };
            let residual = x.residual.map(|of| from(of, added, columns));
            let scales_of_rows = self.product.scales_of_a_row(n);
            let row_scales = x.row_scales.map(|of| from(of, block.d, scales_of_rows));
            let rows = FusedOperands {
                a: &a,
                d: &d,
                scale_a: scale_a.as_ref().map(|of| of as &dyn AsArgument),
                residual: residual.as_ref().map(|of| of as &dyn AsArgument),
                row_scales: row_scales.as_ref().map(|of| of as &dyn AsArgument),
                ..*x
            };
            self.product.launch(stream, Shape { m: block.rows, n, k }, &rows)
        })
    }

    /// Puts the product and the collective on a stream.
    ///
    /// # Errors
    /// Fails where [`Gemm::launch`] or [`Collectives::run`] fails.
    pub fn launch(&self, shape: Shape, stream: &Stream, x: &FusedOperands<'_>) -> Result<(), GpuError> {
        if self.form == Form::AllGather {
            self.collectives.all_gather(x.a, None, stream)?;
            if let (Some(scales), Scales::Rows | Scales::Blocks) = (x.scale_a, self.scales) {
                self.collectives.all_gather(scales, None, stream)?;
            }
            let (a, scale_a) = (Flat(x.a), x.scale_a.map(Flat));
            let scale_a = scale_a.as_ref().map(|of| of as &dyn AsArgument);
            return self.multiply(stream, shape, &FusedOperands { a: &a, scale_a, ..*x });
        }
        let whole = self.whole.as_ref();
        let flat = whole.map(|whole| Flat(whole));
        let d = flat.as_ref().map_or(x.d, |whole| whole as &dyn AsArgument);
        if self.form == Form::AllToAll {
            self.multiply(stream, shape, &FusedOperands { d, ..*x })?;
            let whole = whole.map_or(x.d, |whole| whole as &dyn AsArgument);
            return self.collectives.all_to_all(whole, Some(x.d), stream);
        }
        let of_product = FusedOperands { d, bias: None, residual: None, scale: None, ..*x };
        self.multiply(stream, shape, &of_product)?;
        let sums = whole.map_or(x.d, |whole| whole as &dyn AsArgument);
        let reduces = self.form == Form::AllReduce;
        match (&self.finish, reduces) {
            (None, true) => return self.collectives.allreduce(sums, None, Reduce::Sum, stream),
            (None, false) => return self.collectives.reduce_scatter(sums, Some(x.d), Reduce::Sum, stream),
            (Some(_), true) => self.collectives.allreduce(sums, None, Reduce::Sum, stream)?,
            (Some(_), false) => self.collectives.reduce_scatter(sums, None, Reduce::Sum, stream)?,
        }
        let own = self.rows.as_ref().map_or(self.part, Rows::own);
        let (first, rows) = if reduces { (0, shape.m) } else { (self.me * self.part, own) };
        let sums = From { of: sums, first: Some(first), columns: shape.n };
        self.finish.as_ref().map_or(Ok(()), |finish| finish.launch(stream, (rows, shape.n), &sums, x))
    }
}

/// A kernel of the library for the GPU of a world.
fn kernel(world: &World, name: &str, defines: Vec<(String, Define)>) -> Result<Kernel, GpuError> {
    let mut options = Options::new(target(world.device())?);
    options.defines = defines.into_iter().collect();
    let text = crate::library::part(name).unwrap_or_default();
    Kernel::with(world, KernelFile::parse(&format!("weft::{name}"), text)?, options)
}

/// The product of a sequence, and what its epilogue applies to elements.
enum Product {
    Plain(Gemm),
    Finished { kernel: Kernel, unread: Unread, epilogue: Epilogue },
}

impl Product {
    fn new(world: &World, problem: Problem, epilogue: &Epilogue) -> Result<Product, GpuError> {
        if epilogue.is_none() {
            return Ok(Product::Plain(Gemm::before_another(world, problem)?));
        }
        let plan = filled(&problem, epilogue, Machine::of(world.device())?);
        let (_, mut defines) = plan.kernel(Form::AllGather, &problem, epilogue, 1);
        // The kernel sends nothing.
        defines.retain(|(name, _)| !["P", "PIECE", "PACE"].contains(&&**name));
        let unread = Unread::new(world, &problem)?;
        Ok(Product::Finished {
            kernel: kernel(world, "gemm_finished", defines)?,
            unread,
            epilogue: *epilogue,
        })
    }

    /// Columns of the result, where B has n rows.
    fn columns(&self, n: u64) -> u64 {
        match self {
            Product::Plain(_) => n,
            Product::Finished { epilogue, .. } => epilogue.columns(n),
        }
    }

    /// Scales of a row of the result, where B has n rows.
    fn scales_of_a_row(&self, n: u64) -> u64 {
        match self {
            Product::Plain(_) => 0,
            Product::Finished { epilogue, .. } => epilogue.scales_of_rows(1, n),
        }
    }

    fn launch(&self, stream: &Stream, shape: Shape, x: &FusedOperands<'_>) -> Result<(), GpuError> {
        match self {
            Product::Plain(gemm) => gemm.launch_rows(stream, shape.m, [x.a, x.b, x.d]),
            Product::Finished { kernel, unread, .. } => {
                let extents = [shape.m, shape.n, shape.k].map(signed);
                let others = unread.operands(x);
                let mut arguments: Vec<&dyn AsArgument> = Vec::new();
                arguments.extend(extents.iter().map(|n| n as &dyn AsArgument));
                arguments.extend([x.a, x.b, x.d]);
                arguments.extend(others.iter().map(|other| other as &dyn AsArgument));
                kernel.launch(stream, Grid::Auto, &arguments[..])
            }
        }
    }
}

/// The kernel that completes sums after a collective.
struct Finish {
    kernel: Kernel,
    unread: Unread,
}

impl Finish {
    fn new(world: &World, problem: &Problem, epilogue: &Epilogue) -> Result<Finish, GpuError> {
        let types = [("OUT", problem.out), ("PART", part_of(problem.out))];
        let mut defines: Vec<_> = types.into_iter().map(|(name, of)| (name.to_owned(), of.into())).collect();
        defines.extend(epilogue.defines_of_packets().into_iter().filter(|(name, _)| name != "SCALES"));
        let unread = Unread::new(world, problem)?;
        Ok(Finish { kernel: kernel(world, "finish_sums", defines)?, unread })
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
        let [_, _, bias, residual, scale, _] = self.unread.operands(x);
        let arguments: [&dyn AsArgument; 7] = [&rows, &n, sums, &bias, &residual, &scale, x.d];
        self.kernel.launch(stream, Grid::Auto, &arguments[..])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_runtime::{DType, Device};

    /// Wide tiles are for scales of blocks alone, and not where a scale of D has 128 columns.
    #[test]
    fn tiles_of_several_blocks() {
        let target = "sm_90a".parse().unwrap();
        let machine = Machine { target, sms: 132, memory_gbps: Device::H200_MEMORY_GBPS };
        let tile = |m, out, epilogue: Epilogue| {
            let problem = Problem { out, ..Problem::new(Shape::new(m, 8192, 8192), DType::E4M3) };
            let plan = filled(&problem, &epilogue, machine);
            assert_eq!(plan.fits(Form::AllGather, &problem), Ok(()), "{plan:?}");
            (plan.bn, plan.stages, plan.ctas)
        };
        let blocks = Epilogue { scales: Scales::Blocks, ..Epilogue::default() };
        assert_eq!(tile(8192, DType::BF16, blocks), (192, 4, 2));
        assert_eq!(tile(8192, DType::F32, blocks), (192, 4, 2));
        // One wave of each width.
        assert_eq!(tile(128, DType::BF16, blocks).0, 128);
        let narrow = Epilogue { row_scales: true, ..blocks };
        assert_eq!(tile(8192, DType::E4M3, narrow).0, 128);
        let rows = Epilogue { scales: Scales::Rows, ..blocks };
        assert_eq!(tile(8192, DType::BF16, rows).0, 128);
    }
}
