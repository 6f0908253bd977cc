//! `weft tune` finds the fastest plan of warpweft's collectives on this machine, by size, type,
//! placement and memory.

mod search;

pub use search::{Effort, Look, Search, SearchResult, Timed};

use super::calibrate;
use super::data::{self, Number, with_number};
use super::measure::{Case, Harness, Result};
use super::report::{Report, Spread};
use super::times::{Blocks, gather};
use super::{Bench, BenchError, Contender};
use weft::Lowering;
use weft::collective::tuning::{Entry, Table, Tuning};
use weft::collective::{Algorithm, Collective, Counts, Limits, Links, Placement, Plan, Sums};
use weft::gpu::GpuError;
use weft_runtime::{DType, Reduce, World};

/// The measurements to make, with their options.
#[derive(Clone, Debug)]
pub struct Tune {
    /// The collectives that are tuned.
    pub collectives: Vec<Collective>,
    /// The element types that are tuned. Other types use the plans of a type of the same width.
    pub dtypes: Vec<DType>,
    /// The reduction of collectives that reduce.
    pub op: Reduce,
    /// Sizes in bytes of the larger buffer of a PE, ascending. Sizes that do not have an element
    /// for each PE are left out.
    pub sizes: Vec<u64>,
    /// How in-switch operations are carried out.
    pub lowering: Lowering,
    /// Whether only the default plans of the algorithms are measured.
    pub quick: bool,
    /// The sums that calls allow, for which the fastest plans are searched.
    pub sums: Sums,
}

/// A request that was searched.
#[derive(Clone, Copy, Debug)]
pub struct Cell {
    /// The collective that was tuned.
    pub collective: Collective,
    /// The type of the elements.
    pub dtype: DType,
    /// Where the results are.
    pub place: Placement,
    /// The bytes of the larger buffer.
    pub bytes: u64,
    /// The fastest plans, and how many were measured.
    pub found: SearchResult,
}

/// Receives each cell when it is done, on every PE.
pub type ProgressSink<'a> = &'a mut dyn FnMut(&Cell) -> std::io::Result<()>;

/// The microseconds of a block of a brief and of a long measurement.
const BLOCK_US: [f64; 2] = [300.0, 1000.0];
/// The number of blocks of a brief and of a long measurement.
const BLOCKS: [u32; 2] = [3, 9];
/// The greatest number of calls in a block.
const CALLS: f64 = 20.0;
/// The number of blocks of the calibration.
const CALIBRATION: u32 = 10;

impl Tune {
    /// A request for all collectives, with f32 and bf16 and sums.
    pub fn new(sizes: Vec<u64>) -> Tune {
        Tune {
            collectives: Collective::ALL.to_vec(),
            dtypes: vec![DType::F32, DType::BF16],
            op: Reduce::Sum,
            sizes,
            lowering: Lowering::Auto,
            quick: false,
            sums: Sums::default(),
        }
    }

    /// The benchmark request for a collective and type on `n_pes` PEs.
    fn bench(&self, collective: Collective, dtype: DType, n_pes: u32) -> Bench {
        let whole = |s: &u64| collective.counts(*s, dtype.bytes() as u64, n_pes).map(|c| c.bytes);
        let mut sizes: Vec<u64> = self.sizes.iter().filter_map(whole).collect();
        sizes.sort_unstable();
        sizes.dedup();
        let mut bench = Bench::new(collective, sizes);
        bench.contenders = Algorithm::of(collective).map(Contender::Ours).collect();
        (bench.dtype, bench.op, bench.lowering) = (dtype, self.op, self.lowering);
        (bench.graph, bench.check, bench.tuning) = (true, true, Tuning::Model);
        bench.sums = self.sums;
        bench
    }

    /// The placements that a collective supports.
    fn places(collective: Collective) -> impl Iterator<Item = Placement> {
        let has = move |p: &Placement| Algorithm::of(collective).any(|a| a.kernel(*p).is_some());
        [Placement::OutOfPlace, Placement::InPlace].into_iter().filter(has)
    }

    /// The number of cells that are searched on `n_pes` PEs.
    pub fn cells(&self, n_pes: u32) -> usize {
        let of = |c: Collective, d: DType| self.bench(c, d, n_pes).sizes.len() * Tune::places(c).count();
        self.collectives.iter().flat_map(|c| self.dtypes.iter().map(move |d| of(*c, *d))).sum()
    }

    /// Checks everything that can be checked before a GPU is used.
    ///
    /// # Errors
    ///
    /// Fails if there is nothing to tune, or if sums are not exact in a type.
    pub fn examine(&self, n_pes: u32) -> std::result::Result<(), BenchError> {
        let bad = |message: String| Err(BenchError::Request(message));
        if self.dtypes.contains(&DType::Bool) {
            return bad("bool is not a number type".into());
        }
        if let Some(dtype) = self.dtypes.iter().find(|d| data::limit(**d, n_pes) == 0) {
            return bad(format!(
                "sums over {n_pes} PEs are not exact in {dtype}, so no result can be checked"
            ));
        }
        match self.cells(n_pes) {
            0 => bad(format!(
                "there is nothing to tune: give a collective, a type, and a size with an element for each of {n_pes} PEs"
            )),
            _ => Ok(()),
        }
    }
}

/// Measures on every PE of the world, all of which call it with the same request, and returns the
/// table. This call is *collective*.
///
/// # Errors
///
/// Fails where [`Tune::examine`] fails, if the results of a plan are wrong, or if a call of CUDA or
/// NVSHMEM fails.
pub fn tune(world: &World, what: &Tune, progress: ProgressSink<'_>) -> Result<Table> {
    let n_pes = world.n_pes();
    what.examine(n_pes)?;
    let mut table: Option<Table> = None;
    for collective in &what.collectives {
        for dtype in &what.dtypes {
            let bench = what.bench(*collective, *dtype, n_pes);
            if bench.sizes.is_empty() {
                continue;
            }
            let none = || Err(BenchError::Request("bool is not a number type".into()));
            with_number!(*dtype, none(), one(world, what, &bench, &mut table, progress))?;
        }
    }
    let mut table = table.unwrap_or_default();
    table.stamp();
    Ok(table)
}

/// Tunes a collective for one type.
fn one<T: Number>(
    world: &World,
    what: &Tune,
    bench: &Bench,
    table: &mut Option<Table>,
    progress: ProgressSink<'_>,
) -> Result<()> {
    let counts = bench.counts(world.n_pes())?;
    let harness = Harness::<T>::new(world, bench, &counts)?;
    let table = match table {
        Some(table) => table,
        none => none.insert(empty(&harness)?),
    };
    let super::Operation::Collective(collective) = bench.operation else { return Ok(()) };
    let effort = if what.quick { Effort::Defaults } else { Effort::Climb };
    for place in Tune::places(collective) {
        let group = Group { harness: &harness, links: table.links, collective, dtype: bench.dtype, place };
        let mut before: Option<(&Counts, SearchResult)> = None;
        for counts in &counts {
            let found =
                group.search(counts, &before.iter().flat_map(|b| b.1.best()).collect::<Vec<_>>(), effort)?;
            if let Some((smaller, other)) = before.filter(|(_, other)| !found.agrees(other)) {
                group.border(&mut table.entries, [smaller, counts], &[other, found])?;
            }
            group.keep(&mut table.entries, counts, &found)?;
            let (dtype, bytes) = (bench.dtype, counts.bytes);
            progress(&Cell { collective, dtype, place, bytes, found })
                .map_err(|e| BenchError::Request(format!("cannot write: {e}")))?;
            before = Some((counts, found));
        }
    }
    Ok(())
}

/// Requests that differ only in size.
struct Group<'b, T> {
    harness: &'b Harness<'b, T>,
    links: Links,
    collective: Collective,
    dtype: DType,
    place: Placement,
}

impl<T: Number> Group<'_, T> {
    /// The fastest plans of a size.
    fn search(
        &self,
        counts: &Counts,
        before: &[(&'static Algorithm, Limits)],
        effort: Effort,
    ) -> Result<SearchResult> {
        let (harness, place) = (self.harness, self.place);
        let request = harness.request(place, counts)?;
        let mut filled = false;
        let search = Search { request, max_ctas: harness.max_ctas, links: &self.links, effort, before };
        search.run(&mut |plan: &Plan, look: Look| {
            let case = match harness.ours_by(place, counts, plan) {
                // The switch of a GPU does not support the type, or the assembler rejects the
                // kernel. This is the same on all PEs.
                Err(BenchError::Gpu(GpuError::Compile(_))) => return Ok(f64::INFINITY),
                case => case?,
            };
            if !std::mem::replace(&mut filled, true) {
                harness.fill(&case.input)?;
                harness.world.wait_for_all()?;
            }
            harness.quickly(&case, look, self.links.time(plan, &request))
        })
    }

    /// Measures one more size between two sizes with different fastest plans, so that the border
    /// between them is measured.
    fn border(&self, entries: &mut Vec<Entry>, sizes: [&Counts; 2], found: &[SearchResult; 2]) -> Result<()> {
        let [from, to] = sizes.map(|c| c.count);
        // Each PE gets whole vectors, as it does for small sizes.
        let unit = u64::from(self.harness.world.n_pes()) * 16;
        let count = ((from as f64 * to as f64).sqrt() as u64).next_multiple_of(unit);
        if count <= from || count >= to {
            return Ok(());
        }
        let counts = self.collective.of_count(count, self.dtype.bytes() as u64, self.harness.world.n_pes());
        let of: Vec<_> = found.iter().flat_map(SearchResult::best).collect();
        let found = self.search(&counts, &of, Effort::Given)?;
        self.keep(entries, &counts, &found)
    }

    /// Adds the fastest plans to the table, once their results are found to be right.
    fn keep(&self, entries: &mut Vec<Entry>, counts: &Counts, found: &SearchResult) -> Result<()> {
        let mut checked: Vec<Plan> = Vec::new();
        for (symmetric, timed) in [(true, found.symmetric), (false, found.any)] {
            let Some(timed) = timed else { continue };
            if !checked.contains(&timed.plan) {
                self.harness.believe(&timed.plan, self.place, counts)?;
                checked.push(timed.plan);
            }
            let group = (self.collective, self.place, symmetric, self.dtype, self.harness.bench.sums);
            add(entries, group, counts.bytes, &timed);
        }
        Ok(())
    }
}

/// A table without entries.
fn empty<T: Number>(harness: &Harness<'_, T>) -> Result<Table> {
    let report: Report = harness.report(&[])?;
    let links = calibrate::run(&harness.start, CALIBRATION)?.links();
    let setting = harness.collectives()?.setting()?;
    let Report { warpweft, date, nvshmem, .. } = report;
    Ok(Table { setting, warpweft, nvshmem, date, links, ..Table::default() })
}

/// Adds a size to the table: to the previous entry, if that has the same plan.
fn add(
    entries: &mut Vec<Entry>,
    (collective, place, symmetric, dtype, sums): (Collective, Placement, bool, DType, Sums),
    bytes: u64,
    timed: &Timed,
) {
    // The measurement is not accurate to hundredths of a microsecond.
    let size = (bytes, (timed.us * 1e3).round() / 1e3);
    let algorithm = timed.plan.algorithm.name.to_owned();
    let entry = Entry {
        collective,
        place,
        symmetric,
        dtype,
        sums,
        algorithm,
        limits: timed.limits,
        sizes: vec![size],
    };
    let group = |e: &Entry| (e.collective, e.place, e.symmetric, e.dtype, e.sums);
    let last = entries.iter_mut().rfind(|e| group(e) == group(&entry));
    match last {
        Some(last) if (&last.algorithm, last.limits) == (&entry.algorithm, entry.limits) => {
            last.sizes.push(size)
        }
        _ => entries.push(entry),
    }
}

impl<T: Number> Harness<'_, T> {
    /// The microseconds of a call that is expected to take about `about`.
    fn quickly(&self, case: &Case<'_, T>, look: Look, about: f64) -> Result<f64> {
        let at = usize::from(look == Look::Long);
        let calls = (BLOCK_US[at] / about.max(1.0)).clamp(1.0, CALLS).round() as u32;
        let times = self.blocks(case, Blocks { calls, before: 0, blocks: BLOCKS[at], cold: false })?;
        let each: Vec<f64> = times.iter().map(|us| us / f64::from(calls)).collect();
        Ok(Spread::over(&gather(self.world, &each)?).median)
    }

    /// Compares the result of a plan with a reference.
    fn believe(&self, plan: &Plan, place: Placement, counts: &Counts) -> Result<()> {
        let case = self.ours_by(place, counts, plan)?;
        let Some(wrong) = self.check(&case)? else { return Ok(()) };
        let how = case.plan.as_deref().unwrap_or_default();
        let (operation, bytes, place) = (self.bench.operation, counts.bytes, place.name());
        let message =
            format!("{operation} with {how} {place}, {bytes} bytes of {}: {wrong}", self.bench.dtype);
        Err(BenchError::Request(message + "; no table was stored"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_with_one_plan_are_one_entry() {
        let find = |name| Algorithm::find(Collective::AllReduce, name).unwrap();
        let request = weft::collective::Request::new(Collective::AllReduce, DType::F32, 4096, 2);
        let timed = |name, ctas| {
            let limits = Limits { ctas, threads: 256, unroll: 1 };
            let plan = Plan::within(find(name), &request, limits, 64);
            Search {
                request,
                max_ctas: 64,
                links: &Links::H200,
                effort: Effort::Defaults,
                before: &[(plan.algorithm, limits)],
            }
            .run::<std::convert::Infallible>(&mut |p, _| Ok(if *p == plan { 1.23456 } else { 9.0 }))
            .unwrap()
            .symmetric
            .unwrap()
        };
        let mut entries = Vec::new();
        let group =
            |symmetric| (Collective::AllReduce, Placement::InPlace, symmetric, DType::F32, Sums::Ordinary);
        for (bytes, name, ctas) in
            [(1024, "ll", 64), (4096, "ll", 64), (16384, "push", 32), (65536, "ll", 64)]
        {
            add(&mut entries, group(true), bytes, &timed(name, ctas));
            add(&mut entries, group(false), bytes, &timed("ll", 64));
        }
        let sizes: Vec<Vec<u64>> =
            entries.iter().map(|e| e.sizes.iter().map(|(bytes, _)| *bytes).collect()).collect();
        assert_eq!(sizes, [&[1024, 4096][..], &[1024, 4096, 16384, 65536], &[16384], &[65536]]);
        assert_eq!(entries[0].sizes[0].1, 1.235);
    }

    #[test]
    fn what_cannot_be_tuned_is_said_before() {
        let why = |change: fn(&mut Tune), n_pes| {
            let mut what = Tune::new(vec![1 << 10, 1 << 20]);
            change(&mut what);
            what.examine(n_pes).map_err(|e| e.to_string()).err().unwrap_or_default()
        };
        assert_eq!(why(|_| {}, 8), "");
        assert!(why(|t| t.dtypes = vec![DType::Bool], 8).contains("bool"));
        assert!(why(|t| t.dtypes = vec![DType::E5M2], 9).contains("not exact in e5m2"));
        assert!(why(|t| t.sizes = vec![1], 8).contains("nothing to tune"));
        assert!(why(|t| t.collectives.clear(), 8).contains("nothing to tune"));
        // Sizes without an element for each PE are left out, and so are duplicates after rounding.
        let what = Tune::new(vec![4, 6, 1000, 1001]);
        let sizes = |c, n| what.bench(c, DType::F32, n).sizes;
        assert_eq!(sizes(Collective::AllReduce, 8), [4, 1000]);
        assert_eq!(sizes(Collective::AllGather, 8), [992]);
        // Two collectives with two sizes of f32 and three of bf16, and three with one size; both
        // placements.
        assert_eq!(what.cells(8), 2 * (2 * (2 + 3) + 3 * (1 + 1)));
    }
}
