//! Checks that a plan's tiles fit the memory and the registers of a CTA.

use super::{Major, Param, Plan, Problem};
use weft_isa::{Instruction, Target};
use weft_runtime::{Error, error};

/// The bytes of shared memory for the pipeline's barriers and for the alignment of tiles.
const BARRIERS: u64 = 1 << 10;
/// The most registers of accumulators of a thread, which also computes addresses and epilogues.
/// With 192, ptxas 13.5 spills 440 bytes of the kernel's loop.
const MAX_SUMS: u32 = 128;
/// The same limit if roles take turns. ptxas compiles tiles of 128 x 168 without spills.
const MAX_SUMS_IN_TURNS: u32 = 168;
/// The same limit if warps multiply, because they also keep fragments in registers.
const MAX_SUMS_OF_WARPS: u32 = 64;
/// Rows of an operand that are adjacent in shared memory if its columns are contiguous: 128 bytes
/// of 16-bit elements.
const COLUMNS: u32 = 64;
/// The least number of rows of an operand that a CTA of a cluster loads.
const ROWS: u32 = 4;
/// The number of columns of a tile that belong to four threads.
const QUAD: u32 = 8;
/// The most columns of a tile that are always stored at once.
const STRIP: u32 = 64;
/// The columns of a wider tile that are stored at a time. The first number that divides those of a
/// tile counts. If there is none, all columns are stored at once.
const STRIPS: [u32; 8] = [64, 56, 48, 32, 40, 88, 104, 72];
/// The bytes of a row that TMA copies are a multiple of this number.
const UNIT: u32 = 16;
/// The number of elements by which rows of the memory for a cluster's sums are padded, to avoid
/// bank conflicts.
const GAP: u64 = 8;

/// Threads of a role that multiplies.
const THREADS: u32 = 128;

/// The number of parts of a tile, of 64 or more rows each, that roles multiply. If roles take
/// turns, each has its own tile.
fn parts(plan: &Plan) -> u32 {
    if plan.get(Param::Turns) == 1 { 1 } else { roles(plan) }
}

/// The number of roles that multiply.
fn roles(plan: &Plan) -> u32 {
    if plan.get(Param::Turns) == 1 { 2 } else { (plan.get(Param::Bm) / 64).min(2) }
}

/// The columns of a tile that a CTA stores, those that it stores at a time, and a role's buffers
/// for them.
fn stored(plan: &Plan) -> (u32, u32, u32) {
    let columns = plan.get(Param::Bn) / plan.get(Param::Split);
    let divides = |strip: &u32| columns > STRIP && columns.is_multiple_of(*strip);
    let strip = STRIPS.into_iter().find(divides).unwrap_or(columns);
    let buffers = if matches!(strip, 40 | 56) || strip > STRIP { 1 } else { 2 };
    (columns, strip, buffers)
}

/// Bytes of shared memory of a CTA: the stages of A and B, the buffers of D, the sums of a cluster,
/// and the pipeline's barriers.
pub(super) fn shared_bytes(problem: &Problem, plan: &Plan) -> u64 {
    let of = |param| u64::from(plan.get(param));
    let (bm, bn, bk, stages, split) =
        (of(Param::Bm), of(Param::Bn), of(Param::Bk), of(Param::Stages), of(Param::Split));
    let (columns, strip, buffers) = stored(plan);
    let operands = stages * (bm + bn) * bk * u64::from(problem.dtype.bytes());
    let rows = bm / u64::from(parts(plan)) * u64::from(roles(plan));
    let results = rows * u64::from(strip * buffers) * u64::from(problem.out.bytes());
    let sums = match split {
        1 => 0,
        // The last row needs no gap, and each role has a count.
        _ => (bm * (u64::from(columns) + GAP) * split - GAP + u64::from(parts(plan))) * 4,
    };
    operands + results + sums + BARRIERS
}

/// Checks that the kernel can be compiled with a plan for a problem and a target.
///
/// # Errors
/// Fails with the limit that is exceeded (R0505).
pub(super) fn fits(problem: &Problem, plan: &Plan, target: Target) -> Result<(), Error> {
    let refused = shape(problem, plan).err().or_else(|| room(problem, plan, target).err());
    refused.map_or(Ok(()), |(what, help)| {
        Err(Error::new(error::GEMM, format!("the plan {plan} {what}")).help(help))
    })
}

/// Checks that a plan fits a problem on some target. Targets whose warpgroups multiply support most
/// plans.
///
/// # Errors
/// Fails with the limit that is exceeded (R0505).
pub(super) fn fits_some(problem: &Problem, plan: &Plan) -> Result<(), Error> {
    let targets = Target::all().filter(|target| has_warpgroups(*target));
    targets.map(|target| fits(problem, plan, target)).reduce(Result::or).unwrap_or(Ok(()))
}

/// What a plan does wrong, and advice.
type Refusal = (String, String);

/// Checks that the kernel can load, multiply and store the tiles.
fn shape(problem: &Problem, plan: &Plan) -> Result<(), Refusal> {
    let of = |param| plan.get(param);
    let (bk, ctas, split, swap) = (of(Param::Bk), of(Param::Ctas), of(Param::Split), of(Param::Swap) == 1);
    let row = bk * problem.dtype.bytes();
    if !row.is_multiple_of(128) {
        let what = format!("has rows of {row} bytes in a stage ({bk} of {})", problem.dtype);
        return Err((what, "a row of a stage must be a multiple of 128 bytes: choose a larger bk".into()));
    }
    if ctas > 1 && split > 1 {
        let what = format!("has clusters of {ctas} tiles, with {split} CTAs for each tile");
        return Err((what, "choose ctas=1 or split=1".into()));
    }
    if split > 1 && of(Param::Turns) == 1 {
        let what = format!("has roles that take turns, with {split} CTAs for each tile");
        return Err((what, "choose turns=0 or split=1".into()));
    }
    let part = of(Param::Bn) / ctas;
    let (matrix, multiple, why) = match (swap, problem.b) {
        (true, _) => ("A", ROWS, ""),
        (false, Major::Row) => ("B", ROWS, ""),
        (false, Major::Column) => ("B", COLUMNS, ", and columns of B are contiguous"),
    };
    if !part.is_multiple_of(multiple) {
        let what = format!("loads {part} rows of {matrix} at a time{why}");
        return Err((
            what,
            format!("a part must be a multiple of {multiple} rows: choose a larger bn or fewer ctas"),
        ));
    }
    let (columns, strip, _) = stored(plan);
    if !columns.is_multiple_of(QUAD) {
        let what = format!("gives each CTA {columns} columns of a tile to store");
        return Err((what, format!("a CTA must store a multiple of {QUAD} columns")));
    }
    let written = strip * problem.out.bytes();
    if !swap && !written.is_multiple_of(UNIT) {
        let what = format!("stores rows of {written} bytes ({strip} of {})", problem.out);
        return Err((
            what,
            format!("a row must be a multiple of {UNIT} bytes: choose a larger bn or a smaller split"),
        ));
    }
    Ok(())
}

/// Checks the shared memory of a CTA and the registers of its threads.
fn room(problem: &Problem, plan: &Plan, target: Target) -> Result<(), Refusal> {
    let (bytes, limit) = (shared_bytes(problem, plan), target.shared_limit());
    if bytes > u64::from(limit) {
        let what = format!("needs {bytes} bytes of shared memory, but a CTA on {target} has {limit}");
        return Err((what, "choose fewer stages or smaller tiles".into()));
    }
    let sums = plan.get(Param::Bm) * plan.get(Param::Bn) / (parts(plan) * THREADS);
    let max = match (has_warpgroups(target), plan.get(Param::Turns)) {
        (false, _) => MAX_SUMS_OF_WARPS,
        (true, 0) => MAX_SUMS,
        (true, _) => MAX_SUMS_IN_TURNS,
    };
    if sums > max {
        let what =
            format!("needs {sums} registers of each thread for sums, but the limit on {target} is {max}");
        return Err((what, "choose smaller tiles".into()));
    }
    Ok(())
}

/// Whether warpgroups multiply on a target. On other targets, warps multiply.
pub(super) fn has_warpgroups(target: Target) -> bool {
    Instruction::named("wgmma.mma_async").is_some_and(|wgmma| wgmma.is_on(target))
}

/// Rows of A up to which one tile of the transpose has all of them.
const ROWS_OF_ONE_TILE: u64 = 128;
/// Rows of A up to which clusters add up sums of two tiles of the transpose. With more, stages are few.
const ROWS_OF_SUMS: u64 = 256;

/// Widths of tiles that are tried for all products.
const WIDTHS: [u32; 11] = [256, 224, 192, 168, 160, 128, 96, 80, 64, 32, 16];
/// The fewest stages of other widths, whose factors often come from memory. On an H200, 464 rows in tiles of 232 columns
/// take 1.22 times as long with three stages as in tiles of 240 columns with four.
const STAGES: u32 = 4;
/// The most tiles of the transpose into which the rows of A are divided, if their width is chosen for that.
const TILES: u64 = 4;

/// Every plan with which a problem can be computed on a target, except those that were always slow on GPUs.
pub(super) fn candidates(problem: &Problem, target: Target) -> impl Iterator<Item = Plan> {
    let (m, bytes) = (problem.shape.m, problem.dtype.bytes());
    let fitted = Plan::of_widths(widths_for(m)).filter(|plan| plan.get(Param::Swap) == 1);
    let all = Plan::of_widths(WIDTHS).chain(fitted);
    all.filter(move |plan| !slow(plan, m) && !waits(plan, bytes) && fits(problem, plan, target).is_ok())
}

/// Other widths, of tiles of the transpose with the fewest rows beyond the last of `m` rows of A. Such rows take time,
/// because TMA sets them to 0.
fn widths_for(m: u64) -> Vec<u32> {
    let values = Plan::PARAMETERS[Param::Bn as usize].values;
    // Multiples of 16 have strips, where others need memory for all columns, and have fewer stages.
    let units = [QUAD, 2 * QUAD].map(u64::from);
    let widths = (1..=TILES).flat_map(|tiles| units.map(|unit| m.div_ceil(tiles).next_multiple_of(unit)));
    let mut widths: Vec<u32> = widths.filter_map(|width| width.try_into().ok()).collect();
    widths.retain(|n| values.contains(n) && !WIDTHS.contains(n));
    widths.dedup();
    widths
}

/// Whether the rows of A are divided into no more tiles than `measured` rows, if a tile has the rows of A as columns.
/// The width of such a tile is chosen for a number of rows.
pub(super) fn keeps_tiles(plan: &Plan, m: u64, measured: u64) -> bool {
    let tiles = |m: u64| m.div_ceil(plan.get(Param::Bn).into());
    plan.get(Param::Swap) == 0 || tiles(m) <= tiles(measured)
}

/// Whether a plan is slower than others for products with `m` rows of A:
/// - tiles of the transpose, which are stored in smaller pieces, if A has more rows than two of them have, or
///   [`TILES`] of a width that is chosen for `m`;
/// - tiles of a width that is chosen for `m` with fewer than [`STAGES`] stages, or with 128 rows and fewer than 64
///   columns, which tiles of 64 rows and twice as many columns replace;
/// - tiles of 128 rows and 80 to 120 columns, if roles take turns, or if one tile has all rows of A and tiles of 64 rows
///   keep more multiprocessors busy.
fn slow(plan: &Plan, m: u64) -> bool {
    let of = |param| plan.get(param);
    let [swap, turns] = [Param::Swap, Param::Turns].map(|param| of(param) == 1);
    let fitted = !WIDTHS.contains(&of(Param::Bn));
    let tiles = match of(Param::Split) {
        _ if m <= ROWS_OF_ONE_TILE => 1,
        1 if fitted => TILES,
        1 => 2,
        _ if m <= ROWS_OF_SUMS => 2,
        _ => 1,
    };
    let many = u64::from(of(Param::Bn)) * tiles < m;
    let tall = of(Param::Bm) >= 128;
    let narrow = tall && (80..128).contains(&of(Param::Bn));
    let unfit = fitted && (of(Param::Stages) < STAGES || tall && of(Param::Bn) < 64);
    swap && many || unfit || narrow && (turns || !swap && m <= ROWS_OF_ONE_TILE)
}

/// Whether a plan has large stages of 16-bit elements, and too few of them to load the next ones while one is
/// multiplied. On an H200, plans with three such stages have 0.73 to 0.85 of the speed of cuBLASLt's best for 136 to 608
/// rows, and others have 0.95 or more. CTAs that load for each other need more stages: with eight stages of 64 elements,
/// pairs take 0.97 of the time of four stages of 128. Clusters that share a tile have less memory for stages. They were
/// not measured with so few.
fn waits(plan: &Plan, bytes: u32) -> bool {
    let of = |param| plan.get(param);
    let fewest = if of(Param::Ctas) > 1 { 2 * STAGES } else { STAGES };
    bytes == 2 && of(Param::Bk) == 128 && of(Param::Split) == 1 && of(Param::Stages) < fewest
}

impl Plan {
    /// Checks that there is a target on which the plan fits the problem. Targets whose warpgroups
    /// multiply can run most plans.
    ///
    /// # Errors
    ///
    /// Fails with the limit that is exceeded (R0505).
    pub fn check(&self, problem: &Problem) -> Result<(), Error> {
        fits_some(problem, self)
    }

    /// Lists every plan with which the problem can be computed on a target.
    pub fn candidates(problem: &Problem, target: Target) -> impl Iterator<Item = Plan> {
        candidates(problem, target)
    }
}
