//! An estimate of the time that a plan takes, for shapes that were not measured.
//!
//! The model counts clock cycles of one multiprocessor: waves of tiles, with the steps of each
//! along K, each of which takes as long as the slowest of the tensor cores, shared memory, and the
//! L2 cache. Parts of tiles beyond the edges of D are computed like the others. The figures below
//! are NVIDIA's for Hopper, except for the latencies, which are orders of magnitude. The model
//! ranks plans, and does not predict times.

use super::fit::candidates;
use super::{Param, Plan, Problem, Shape};
use std::cmp::Ordering;
use weft_isa::Target;
use weft_runtime::{Device, Error};

/// The properties of a GPU that the choice of a plan depends on.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Machine {
    /// The target that kernels for it are compiled for.
    pub target: Target,
    /// The number of its multiprocessors.
    pub sms: u32,
    /// The bandwidth of its memory in 10^9 bytes per second.
    pub memory_gbps: u32,
}

impl Machine {
    /// The stages of a plan whose tiles have more than 128 columns, with scales of blocks
    /// ([`Scales::Blocks`](super::Scales::Blocks)). For tiles of 192 columns, shared memory has room
    /// for no more.
    pub const STAGES_WITH_BLOCKS: u32 = 4;

    /// The description of a device.
    ///
    /// # Errors
    /// Fails for a GPU older than all known targets (R0501), or if the CUDA driver refuses a call (R0103).
    pub fn of(device: &Device) -> Result<Machine, Error> {
        let (sms, memory_gbps) = (device.sm_count()?, device.memory_gbps()?);
        Ok(Machine { target: crate::gpu::target(device)?, sms, memory_gbps })
    }

    /// The plans that can compute the problem on this GPU, with the plan that is likely to be the fastest first.
    pub fn plans(self, problem: &Problem) -> Vec<Plan> {
        ranked(problem, self)
    }

    /// Predicts the number of clock cycles that the plan takes for the problem.
    pub fn cycles(self, problem: &Problem, plan: &Plan) -> f64 {
        cycles(problem, plan, self.sms)
    }

    /// The tiles that a product with scales of blocks ([`Scales::Blocks`](super::Scales::Blocks)) can
    /// have. Those that are likely to take the least time come first.
    pub fn tiles_with_blocks(self, Shape { m, n, .. }: Shape) -> [BlockTiles; 4] {
        let time = |(tiles, each): &(BlockTiles, f64)| {
            let (columns, ctas) = (u64::from(tiles.columns), u64::from(tiles.ctas));
            let all = m.div_ceil(128 * ctas).saturating_mul(n.div_ceil(columns));
            all.div_ceil(clusters(self.sms.into(), ctas)) as f64 * columns as f64 * each
        };
        let mut all = WITH_BLOCKS;
        all.sort_by(|a, b| time(a).total_cmp(&time(b)));
        all.map(|(tiles, _)| tiles)
    }
}

/// Tiles of 128 rows for a product with scales of blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockTiles {
    /// The columns of a tile: those of one block, or of parts of several.
    pub columns: u32,
    /// The CTAs of a cluster, whose tiles lie below each other.
    pub ctas: u32,
}

/// These tiles, each with the time that a wave takes for a column, relative to the first. On an H200,
/// products from 1024 x 8192 x 8192 to 8192 x 8192 x 8192 have these times.
const WITH_BLOCKS: [(BlockTiles, f64); 4] = [
    (BlockTiles { columns: 128, ctas: 1 }, 1.0),
    (BlockTiles { columns: 160, ctas: 1 }, 0.985),
    (BlockTiles { columns: 192, ctas: 1 }, 0.95),
    (BlockTiles { columns: 192, ctas: 2 }, 0.87),
];

/// Bytes that shared memory reads in a cycle.
const SHARED: f64 = 128.0;
/// The cost of a written byte relative to a read byte. cuBLAS's tiles of 128 x 168 keep the tensor
/// cores of an H200 98.6 % busy with 88 bytes read and 56 written in a cycle.
const WRITTEN: f64 = 0.7;
/// Bytes that a multiprocessor gets from the L2 cache in a cycle while all of them read. On an
/// H200, a step of 37.9 KB takes 687 cycles with the tensor cores busy for 97 % of them, so the
/// figure is at least 55.
const CACHE: f64 = 64.0;
/// Requests to the L2 cache for a row of a stage that does not begin at a sector boundary. On an
/// H200, products of 4104 columns in tiles of 128 x 256 take 1.22 times as long as those of 4096,
/// and 1.02 times in clusters of two.
const UNALIGNED: f64 = 2.0;
/// Bytes of a sector of the L2 cache.
const SECTOR: u64 = 32;
/// Bytes that all multiprocessors get from memory in a cycle: 3.35 TB/s at 1.7 GHz.
pub(super) const MEMORY: f64 = 2000.0;
/// Bytes that one multiprocessor gets from memory in a cycle. On an H200, 112 CTAs read 235 MB in 63 us
/// (16 x 28672 x 4096), where 132 take 58 us, and 98 CTAs read 134 MB in 44 us (128 x 16384 x 4096), where 128
/// take 38 us. These are 16 to 18 bytes in a cycle.
const MEMORY_OF_ONE: f64 = 17.0;
/// Bytes that a multiprocessor writes to others of its cluster in a cycle: on an H200 the sums of 128x8192x8192 in tiles of
/// 128 x 128 take about six microseconds.
const CLUSTER: f64 = 6.0;
/// Cycles from a request of a stage to its arrival while all multiprocessors request stages.
const LATENCY: f64 = 1800.0;
/// Cycles before the first product of a CTA, and between the last product of a tile and the first
/// of the next.
const START: f64 = 3000.0;
const BETWEEN: f64 = 2500.0;
/// The additional time of a step if the only role that multiplies has 64 rows: a factor of its own
/// cycles, and a number of cycles. On an H200, with both factors in the L2 cache, 64 of 4096 elements
/// along K take 337 cycles in tiles of 64 x 128 and 266 in tiles of 64 x 64, and 128 elements take
/// 462 in the latter.
const ALONE: (f64, f64) = (1.05, 30.0);
/// Cycles that the CTAs of a cluster wait for each other before they add up.
const MEET: f64 = 1500.0;
/// Cycles in which 128 bytes of a stage beyond the last row are set to 0. On an H100, 192 rows in tiles of 128
/// take 160 cycles longer for a step than 256 rows. On an H200, 96 rows in tiles of 64 take 6 us longer for 32
/// steps than 128 rows, which is 6 cycles for 128 bytes.
const CLEARED: f64 = 4.0;
/// The same for rows that become columns of the last of several tiles, shared among all of them. On an H100, 232 columns in two tiles of 128
/// take 160 cycles longer than 256 columns, 176 in two tiles of 96 take 120 cycles longer than 192, and 4096 columns in
/// tiles of 160 take no longer than 4160.
const CLEARED_COLUMNS: f64 = 12.0;

/// Multiply-adds of a multiprocessor's tensor cores in a cycle.
fn products(problem: &Problem) -> f64 {
    [4096.0, 2048.0, 1024.0][problem.dtype.bytes().trailing_zeros().min(2) as usize]
}

/// The rows and columns that are divided into tiles: those of D, or of its transpose.
fn extents(problem: &Problem, plan: &Plan) -> (u64, u64) {
    let Shape { m, n, .. } = problem.shape;
    if plan.get(Param::Swap) == 1 { (n, m) } else { (m, n) }
}

/// Bytes that a CTA gets from the L2 cache for a stage. The CTAs of a cluster share the rows that
/// become a tile's columns, and nothing beyond the ends of A and B is read. Tiles of the transpose
/// count without sharing: on an H200, 256 x 8192 x 8192 takes 54.3 us in pairs and 48.8 us without.
fn fetched(problem: &Problem, plan: &Plan) -> f64 {
    let of = |param| u64::from(plan.get(param));
    let (rows, columns) = extents(problem, plan);
    let ctas = if plan.get(Param::Swap) == 1 { 1 } else { of(Param::Ctas) };
    let rows = of(Param::Bm).min(rows) as f64 + of(Param::Bn).min(columns) as f64 / ctas as f64;
    let bytes = |elements: u64| elements * u64::from(problem.dtype.bytes());
    let requests = if bytes(problem.shape.k).is_multiple_of(SECTOR) { 1.0 } else { UNALIGNED };
    rows * bytes(of(Param::Bk)) as f64 * requests
}

/// Predicts the cycles that a plan takes on a GPU with `sms` multiprocessors.
pub(crate) fn cycles(problem: &Problem, plan: &Plan, sms: u32) -> f64 {
    busy(problem, plan, sms).max(from_memory(problem, plan, sms))
}

/// Cycles in which all bytes are read from memory or written to it.
fn from_memory(problem: &Problem, plan: &Plan, sms: u32) -> f64 {
    let cluster = cluster(plan);
    let active = tiles(problem, plan).min(clusters(u64::from(sms), cluster)) * cluster;
    START + moved(problem) / MEMORY.min(MEMORY_OF_ONE * active as f64)
}

/// Cycles in which a cluster adds up its sums.
fn adding(plan: &Plan) -> f64 {
    let elements = f64::from(plan.get(Param::Bm) * plan.get(Param::Bn));
    if plan.get(Param::Split) > 1 { MEET + elements * 4.0 / CLUSTER } else { 0.0 }
}

/// Cycles in which the rows and columns of a stage beyond the last ones are set to 0.
fn cleared(problem: &Problem, plan: &Plan) -> f64 {
    let (rows, columns) = extents(problem, plan);
    let [bm, bn] = [Param::Bm, Param::Bn].map(|param| u64::from(plan.get(param)));
    let beyond = |extent: u64, tile| (extent.next_multiple_of(tile) - extent) as f64;
    let of_columns = match columns.div_ceil(bn) {
        1 => CLEARED,
        tiles => CLEARED_COLUMNS / tiles as f64,
    };
    let units = f64::from(plan.get(Param::Bk) * problem.dtype.bytes()) / 128.0;
    (beyond(rows, bm) * CLEARED + beyond(columns, bn) * of_columns) * units
}

/// The number of CTAs of a cluster.
fn cluster(plan: &Plan) -> u64 {
    u64::from(plan.get(Param::Ctas) * plan.get(Param::Split))
}

/// The number of tiles that a cluster computes together.
fn tiles(problem: &Problem, plan: &Plan) -> u64 {
    let of = |param| u64::from(plan.get(param));
    let (rows, columns) = extents(problem, plan);
    rows.div_ceil(of(Param::Bm) * of(Param::Ctas)) * columns.div_ceil(of(Param::Bn))
}

/// The number of tiles that a cluster computes one after the other.
fn waves(problem: &Problem, plan: &Plan, sms: u32) -> u64 {
    tiles(problem, plan).div_ceil(clusters(u64::from(sms), cluster(plan)))
}

/// Whether a launch may begin early and lets the next one begin early (`after_others` of
/// weft::gemm_split). This holds if each cluster has one tile, and no two clusters read the same
/// rows of both factors.
pub(super) fn lets_next_begin(problem: &Problem, plan: &Plan, sms: u32) -> bool {
    let (rows, columns) = extents(problem, plan);
    let rows = rows.div_ceil(u64::from(plan.get(Param::Bm) * plan.get(Param::Ctas)));
    waves(problem, plan, sms) == 1 && rows.min(columns.div_ceil(plan.get(Param::Bn).into())) == 1
}

/// Bytes that are read from memory or written to it.
fn moved(problem: &Problem) -> f64 {
    let Shape { m, n, k } = problem.shape;
    let (element, out) = (f64::from(problem.dtype.bytes()), f64::from(problem.out.bytes()));
    (m * k + n * k) as f64 * element + (m * n) as f64 * out
}

/// The number of clusters of `ctas` CTAs that run at the same time. A cluster is placed in one
/// group of multiprocessors (GPC), and groups differ in size, so that some multiprocessors are left
/// over: on an H200, 128 CTAs in clusters of four take two waves.
pub(super) fn clusters(sms: u64, ctas: u64) -> u64 {
    let left_over = if ctas > 2 { 2 } else { 0 };
    (sms / ctas).saturating_sub(left_over).max(1)
}

/// Cycles that a multiprocessor is busy, if memory is not the limit.
fn busy(problem: &Problem, plan: &Plan, sms: u32) -> f64 {
    let of = |param| u64::from(plan.get(param));
    let (bm, bn, bk) = (of(Param::Bm), of(Param::Bn), of(Param::Bk));
    let (split, turns) = (of(Param::Split), of(Param::Turns) == 1);
    let (element, out) = (f64::from(problem.dtype.bytes()), f64::from(problem.out.bytes()));
    let waves = waves(problem, plan, sms) as f64;
    let steps = problem.shape.k.div_ceil(bk).div_ceil(split) as f64;

    // Each instruction reads 64 rows of A and all of the tile's rows of B.
    let read = ((bm / 64) * (64 + bn) * bk) as f64 * element;
    let written = ((bm + bn) * bk) as f64 * element;
    let once = waves == 1.0;
    let single = turns && once && of(Param::Ctas) == 1 && of(Param::Swap) == 0;
    let (longer, more) = if bm == 64 && !single { ALONE } else { (1.0, 0.0) };
    // Of several tiles, few have rows beyond the ends.
    let more = more + if once { cleared(problem, plan) } else { 0.0 };
    let step = [
        (bm * bn * bk) as f64 / products(problem) * longer,
        (read + WRITTEN * written) / SHARED * longer,
        fetched(problem, plan) / CACHE,
        LATENCY / of(Param::Stages) as f64,
    ];
    let step = step.into_iter().fold(0.0, f64::max) + more;
    let store = (bm * bn / split) as f64 * out / CACHE;
    let between = adding(plan) + store + BETWEEN;
    // If roles take turns, a tile is written while the next one is multiplied.
    let hidden = if turns { (waves - 1.0) * between.min(steps * step) } else { 0.0 };
    START + waves * (steps * step + between) - hidden
}

/// The bandwidth of memory, in 10^9 bytes per second, from which clusters do not make large products
/// faster. It is between [`Device::H100_MEMORY_GBPS`] and [`Device::H200_MEMORY_GBPS`].
const FAST_MEMORY: u32 = 4000;
/// Plans within this factor of the least cycles rank alike, and so do those up to its square, and
/// so on.
const ALIKE: f64 = 1.02;

/// The plans with which a problem can be computed, with the one that is likely to be the fastest
/// first. If memory is the limit, a multiprocessor that is busy for longer has less time to spare,
/// which counts an eighth. Plans that rank alike are in this order:
/// - Clusters of two come first, or no clusters if memory is fast or the limit, or if each
///   multiprocessor has one tile. For large shapes, two CTAs have 0.986 to 1.002 of the speed of one
///   on an H200, and 1.1 to 1.15 on an H100. In fp8 with 128 columns, they have 0.93 to 0.99 on an H100, and come second. So do tiles of the
///   transpose, which have 0.88 to 0.99 on an H200. If memory is the limit, a pair of CTAs whose tiles have all
///   rows of A also comes first: on an H200, 128 x 8192 x 8192 takes 37.4 us, and otherwise 38.5 us.
/// - Plans with turns come first, if there are tiles to take turns with.
/// - Plans with fewer bytes from the L2 cache for each product come first, because they save power.
/// - Plans with more bytes in flight come first, then those with more stages, then smaller tiles, and
///   tiles of the transpose of D last. On an H200, 160 x 8192 x 4096 takes 21.8 us with eight stages
///   of 64 elements and 22.5 us with four of 128.
pub(super) fn ranked(problem: &Problem, machine: Machine) -> Vec<Plan> {
    let Machine { target, sms, memory_gbps } = machine;
    let timed = |plan: Plan| {
        // The CTAs of a cluster add up after the last bytes have come. `cycles` leaves that out, because the estimates
        // of fused products were compared with measurements without it.
        let (busy, memory) = (busy(problem, &plan, sms), from_memory(problem, &plan, sms) + adding(&plan));
        (busy.max(memory) + busy.min(memory) / 8.0, plan)
    };
    let timed: Vec<(f64, Plan)> = candidates(problem, target).map(timed).collect();
    let least = timed.iter().map(|(cycles, _)| *cycles).fold(f64::INFINITY, f64::min);
    let key = |&(cycles, plan): &(f64, Plan)| {
        let of = |param| plan.get(param);
        let (rows, columns) = extents(problem, &plan);
        let products = u64::from(of(Param::Bm)).min(rows) * u64::from(of(Param::Bn)).min(columns);
        let bytes = fetched(problem, &plan) / (products * u64::from(of(Param::Bk))) as f64;
        let ahead = f64::from(of(Param::Bk) * of(Param::Stages));
        let waves = waves(problem, &plan, sms);
        let reads = busy(problem, &plan, sms) < from_memory(problem, &plan, sms);
        let shares = memory_gbps < FAST_MEMORY
            && of(Param::Swap) == 0
            && (problem.dtype.bytes() > 1 || of(Param::Bn) > 128);
        // Such a cluster has all rows of A, so that B is read from the L2 cache once.
        let all_rows = reads && of(Param::Swap) == 0 && u64::from(of(Param::Bm)) < rows && rows <= 128;
        let pairs = waves > 1 && !reads && shares || all_rows && of(Param::Ctas) == 2;
        let ctas = cluster(&plan).abs_diff(if pairs { 2 } else { 1 }) as f64;
        let rank = ((cycles / least).ln() / ALIKE.ln()).floor();
        // With one tile for each CTA, only tiles of 64 rows are faster in a kernel whose roles take turns.
        let alone = of(Param::Bm) == 64 && of(Param::Swap) == 0 && !reads;
        let takes_turns = waves > 1 || alone;
        let useless = (of(Param::Turns) == 1) != takes_turns;
        // If memory is the limit, the cycles of the other units do not matter.
        let unhidden = if reads { 0.0 } else { cycles };
        let (area, kept) = (f64::from(of(Param::Bm) * of(Param::Bn)), 1 - of(Param::Swap));
        let stages = f64::from(of(Param::Stages));
        ([rank, ctas, f64::from(useless), bytes, -ahead, -stages, area, unhidden, f64::from(kept)], plan)
    };
    let mut all: Vec<([f64; 9], Plan)> = timed.iter().map(key).collect();
    let order = |a: &[f64; 9], b: &[f64; 9]| -> Ordering {
        a.iter().zip(b).map(|(a, b)| a.total_cmp(b)).find(|o| o.is_ne()).unwrap_or(Ordering::Equal)
    };
    all.sort_by(|(a, _), (b, _)| order(a, b));
    all.into_iter().map(|(_, plan)| plan).collect()
}
