//! The measurement itself, on every PE.

use super::algorithm::{Algorithm, Contender};
use super::data::{self, Number, with_number};
use super::report::{Report, Row, Spread, Wrong};
use super::{Bench, BenchError};
use crate::collective::{Collective, Counts, Place};
use crate::compile::{KernelFile, Lowering, Options};
use crate::gpu::{Grid, Kernel, target};
use weft_ir::Scalar;
use weft_lang::elaborate::Define;
use weft_runtime::cuda::{self, Event};
use weft_runtime::{Barrier, DeviceTensor, Graph, Stream, SymmetricBuffer, SymmetricTensor, Team, World};

/// Calls of a check, back to back, each with new data.
const ROUNDS: std::ops::RangeInclusive<u32> = 1..=3;

/// The round whose data the timed calls have.
const TIMED_ROUND: u32 = 0;

type Done<'a> = &'a mut dyn FnMut(&Report, &[Row]) -> std::io::Result<()>;
/// Puts one call of a contender on a stream.
type Call<'a> = Box<dyn Fn(&Stream) -> Result<()> + 'a>;
type Result<T> = std::result::Result<T, BenchError>;

pub(super) fn run(world: &World, bench: &Bench, done: Done<'_>) -> Result<Report> {
    let counts = bench.counts(world.n_pes())?;
    let no_numbers = || Err(BenchError::Request("bool is no type of numbers".into()));
    with_number!(bench.dtype, no_numbers(), measure(world, bench, &counts, done))
}

/// What all measurements share.
struct Bed<'a> {
    world: &'a World,
    team: Team,
    stream: &'a Stream,
    bench: &'a Bench,
    lowering: Lowering,
    /// What a PE gives, and, in place, gets: large enough for every size.
    input: SymmetricBuffer,
    output: SymmetricBuffer,
    barrier: Barrier,
    most_ctas: u32,
}

/// A contender with a size and a place, ready to be called.
struct Case<'a, T> {
    counts: &'a Counts,
    input: SymmetricTensor<T>,
    output: SymmetricTensor<T>,
    call: Call<'a>,
    ctas: Option<u32>,
    /// Whether the next call may begin while another PE still reads what it got from the last: all of ours wait for
    /// each other first, NVSHMEM's do not.
    waits: bool,
}

fn measure<T: Number>(world: &World, bench: &Bench, counts: &[Counts], done: Done<'_>) -> Result<Report> {
    let bed = Bed::new(world, bench, counts, size_of::<T>())?;
    let mut report = bed.report()?;
    for counts in counts {
        for contender in &bench.contenders {
            let rows = contender
                .places(bench.collective)
                .iter()
                .map(|place| bed.row::<T>(*contender, *place, counts))
                .collect::<Result<Vec<_>>>()?;
            done(&report, &rows).map_err(|e| BenchError::Request(format!("cannot write: {e}")))?;
            report.rows.extend(rows);
        }
    }
    Ok(report)
}

impl<'a> Bed<'a> {
    fn new(world: &'a World, bench: &'a Bench, counts: &[Counts], element: usize) -> Result<Bed<'a>> {
        let most = |of: fn(&Counts) -> u64| {
            let elements = usize::try_from(counts.iter().map(of).max().unwrap_or(1)).unwrap_or(usize::MAX);
            elements.saturating_mul(element)
        };
        let team = world.team();
        let most_ctas = bench.ctas.unwrap_or(world.device().sm_count()?);
        let input = world.buffer(most(|c| c.send))?;
        let output = world.buffer(most(|c| c.recv))?;
        let barrier = world.kernel_barrier(most_ctas)?;
        // What the switch has for one allocation it has for all.
        let lowering = match bench.lowering {
            Lowering::Auto if input.multicast_address(&team).is_some() => Lowering::Multimem,
            Lowering::Auto => Lowering::Unicast,
            asked => asked,
        };
        Ok(Bed { world, team, stream: world.stream(), bench, lowering, input, output, barrier, most_ctas })
    }

    /// Without rows.
    fn report(&self) -> Result<Report> {
        let (major, minor) = cuda::driver_version()?;
        Ok(Report {
            warpweft: env!("CARGO_PKG_VERSION").into(),
            collective: self.bench.collective,
            n_pes: self.world.n_pes(),
            gpu: self.world.device().name()?,
            cuda: format!("{major}.{minor}"),
            nvshmem: self.world.nvshmem_version().to_string(),
            lowering: if self.lowering == Lowering::Unicast { "unicast" } else { "multimem" }.into(),
            no_multicast: self.input.why_no_multicast(&self.team),
            iters: self.bench.iters,
            warmup: self.bench.warmup,
            repeats: self.bench.repeats,
            graph: self.bench.graph,
            rows: Vec::new(),
        })
    }

    fn row<T: Number>(&self, contender: Contender, place: Place, counts: &Counts) -> Result<Row> {
        let case = self.case::<T>(contender, place, counts)?;
        let time_us = self.time(&case)?;
        let checked = if self.bench.check { Some(self.check(&case)?) } else { None };
        let row = Row {
            size: counts.bytes,
            count: counts.count,
            dtype: self.bench.dtype,
            redop: self.bench.collective.reduces().then(|| self.bench.op.name().into()),
            algorithm: contender.name().into(),
            place,
            ctas: case.ctas,
            time_us,
            algbw: 0.0,
            busbw: 0.0,
            wrong: checked.as_ref().map(|wrong| wrong.as_ref().map_or(0, |w| w.elements)),
            first_wrong: checked.flatten(),
        };
        Ok(row.with_bandwidth(self.bench.collective.bus_factor(self.world.n_pes())))
    }

    fn case<'c, T: Number>(
        &'c self,
        contender: Contender,
        place: Place,
        counts: &'c Counts,
    ) -> Result<Case<'c, T>> {
        let [give, get] = self.bench.collective.shapes(counts, self.world.n_pes());
        let input = SymmetricTensor::<T>::view(self.input.clone(), 0, &give[..])?;
        let output = match place {
            Place::InPlace => input.clone(),
            Place::OutOfPlace => SymmetricTensor::<T>::view(self.output.clone(), 0, &get[..])?,
        };
        let (x, out) = (input.clone(), output.clone());
        let (call, ctas): (Call<'c>, _) = match contender {
            Contender::Ours(algorithm) => {
                let (kernel, ctas) = self.kernel(algorithm, counts)?;
                let grid = move || Grid::of(ctas);
                let call: Call<'c> = match place {
                    Place::InPlace => {
                        Box::new(move |s| Ok(kernel.launch(s, grid(), (&x, &self.barrier, &self.team))?))
                    }
                    Place::OutOfPlace => Box::new(move |s| {
                        Ok(kernel.launch(s, grid(), (&x, &out, &self.barrier, &self.team))?)
                    }),
                };
                (call, Some(ctas))
            }
            Contender::Nvshmem => {
                let (team, op, collective) = (&self.team, self.bench.op, self.bench.collective);
                let call = move |s: &Stream| {
                    Ok(match collective {
                        Collective::AllReduce => team.reduce(op, &out, &x, s),
                        Collective::AllGather => team.fcollect(&out, &x, s),
                        Collective::ReduceScatter => team.reduce_scatter(op, &out, &x, s),
                        Collective::Broadcast => team.broadcast(&out, &x, 0, s),
                        Collective::AllToAll => team.alltoall(&out, &x, s),
                    }?)
                };
                (Box::new(call), None)
            }
        };
        Ok(Case { counts, input, output, call, ctas, waits: matches!(contender, Contender::Ours(_)) })
    }

    /// The algorithm compiled for this size, and its CTAs.
    fn kernel(&self, algorithm: &Algorithm, counts: &Counts) -> Result<(Kernel, u32)> {
        let bench = self.bench;
        let mut options = Options::new(target(self.world.device())?);
        options.lowering = self.lowering;
        options.defines.insert("N".into(), Define::Int(counts.count as i64));
        if let Some(scalar) = Scalar::parse(bench.dtype.name()) {
            options.defines.insert("T".into(), scalar.into());
        }
        let name = format!("{}_{}.weft", bench.collective, algorithm.name);
        let file = KernelFile::parse(&name, algorithm.source).map_err(crate::gpu::GpuError::from)?;
        let kernel = Kernel::with(self.world, file, options)?;
        let ctas = match bench.ctas {
            Some(asked) => asked,
            None => {
                let threads: u64 = kernel.info()?.block.iter().map(|n| u64::from(*n)).product();
                let bytes = (algorithm.work)(counts, self.world.n_pes().into()) * bench.dtype.bytes() as u64;
                let wanted = bytes.div_ceil(threads * 16).max(1);
                let most = self.most_ctas.min(kernel.max_ctas()?);
                u32::try_from(wanted).unwrap_or(most).min(most)
            }
        };
        Ok((kernel, ctas))
    }

    /// This PE's data of a round.
    fn data<T: Number>(&self, elements: u64, round: u32) -> Vec<T> {
        let (me, limit) = (self.world.my_pe(), self.limit());
        (0..elements).map(|i| T::of(data::datum(me, i, round, limit))).collect()
    }

    fn limit(&self) -> u64 {
        data::limit(self.bench.dtype, self.bench.summands(self.world.n_pes()))
    }

    /// Time of a call: each block's on its slowest PE.
    fn time<T: Number>(&self, case: &Case<'_, T>) -> Result<Spread> {
        let (stream, bench) = (self.stream, self.bench);
        case.input.copy_from(&self.data(case.counts.send, TIMED_ROUND), stream)?;
        // Making data takes each PE its own time.
        self.world.wait_for_all()?;
        let calls = |n: u32, stream: &Stream| (0..n).try_for_each(|_| (case.call)(stream));
        calls(bench.warmup, stream)?;
        cuda::wait_for(stream)?;
        let graph = match bench.graph {
            true => Some(Graph::capture(stream, |s| calls(bench.iters, s))?),
            false => None,
        };
        let block = || match &graph {
            Some(graph) => Ok(graph.launch()?),
            None => calls(bench.iters, stream),
        };
        if let Some(graph) = &graph {
            graph.upload()?;
            // A graph's first launch is not like the others.
            block()?;
            cuda::wait_for(stream)?;
        }
        let mut times = Vec::new();
        for _ in 0..bench.repeats {
            // All begin together.
            self.team.barrier(stream)?;
            let start = Event::record(stream)?;
            block()?;
            let end = Event::record(stream)?;
            times.push(start.elapsed_us(&end)? / f64::from(bench.iters));
        }
        let bytes: Vec<u8> = times.iter().flat_map(|t| t.to_le_bytes()).collect();
        Ok(Spread::of(slowest(&self.world.all_gather_host(&bytes)?)))
    }

    /// Calls with new data each time, nothing between them but the copies of what goes in and comes out, and compares
    /// with the reference; what is wrong on any PE, the first of the least PE.
    fn check<T: Number>(&self, case: &Case<'_, T>) -> Result<Option<Wrong>> {
        let (stream, me, device) = (self.stream, self.world.my_pe(), self.world.device());
        let mut given = Vec::new();
        let mut got = Vec::new();
        for round in ROUNDS {
            given.push(DeviceTensor::from_slice(&self.data::<T>(case.counts.send, round), stream)?);
            got.push(DeviceTensor::<T>::alloc(device, case.counts.recv as usize)?);
        }
        // What nobody writes is seen.
        case.output.buffer().fill(0xff)?;
        self.world.wait_for_all()?;
        let rounds = |stream: &Stream| -> Result<()> {
            for (given, got) in given.iter().zip(&got) {
                let flat = |t: &SymmetricTensor<T>| t.slice(0..t.len());
                self.world.put(&flat(&case.input)?, given, me, stream)?;
                if !case.waits {
                    self.team.barrier(stream)?;
                }
                (case.call)(stream)?;
                self.world.get(got, &flat(&case.output)?, me, stream)?;
            }
            Ok(())
        };
        match self.bench.graph {
            true => {
                let graph = Graph::capture(stream, rounds)?;
                graph.launch()?;
                cuda::wait_for(stream)?;
            }
            false => rounds(stream)?,
        }
        let mut wrong: Option<Wrong> = None;
        for (round, got) in ROUNDS.zip(&got) {
            self.compare(case.counts, round, &got.to_vec(stream)?, &mut wrong);
        }
        // Comparing takes each PE its own time.
        self.world.wait_for_all()?;
        let bytes = serde_json::to_vec(&wrong).unwrap_or_default();
        let all = self.world.all_gather_host(&bytes)?;
        let all = all.iter().map(|b| serde_json::from_slice::<Option<Wrong>>(b));
        let all = all
            .collect::<std::result::Result<Vec<_>, _>>()
            .map_err(|e| BenchError::Request(format!("a PE's findings cannot be read: {e}")))?;
        Ok(all_wrong(all))
    }

    fn compare<T: Number>(&self, counts: &Counts, round: u32, got: &[T], wrong: &mut Option<Wrong>) {
        let (n_pes, me, limit) = (self.world.n_pes(), self.world.my_pe(), self.limit());
        let of = counts.recv * u64::from(n_pes) * ROUNDS.count() as u64;
        for (index, found) in (0u64..).zip(got) {
            let given = |pe: u32, i: u64| data::datum(pe, i, round, limit);
            let want = self.bench.collective.result(self.bench.op, counts, n_pes, me, index, given);
            let want = T::of(want);
            if *found != want {
                let first = || Wrong {
                    elements: 0,
                    of,
                    pe: me,
                    round,
                    index,
                    found: format!("{found:?}"),
                    expected: format!("{want:?}"),
                };
                wrong.get_or_insert_with(first).elements += 1;
            }
        }
    }
}

/// Of each PE's times, as bytes, the slowest of each block.
fn slowest(all: &[Vec<u8>]) -> Vec<f64> {
    let mut slowest = Vec::new();
    for pe in all {
        for (i, bytes) in pe.as_chunks::<8>().0.iter().enumerate() {
            let time = f64::from_le_bytes(*bytes);
            match slowest.get_mut(i) {
                None => slowest.push(time),
                Some(slowest) => *slowest = time.max(*slowest),
            }
        }
    }
    slowest
}

/// What PEs found wrong, as one.
fn all_wrong(all: Vec<Option<Wrong>>) -> Option<Wrong> {
    let found: Vec<Wrong> = all.into_iter().flatten().collect();
    let elements = found.iter().map(|w| w.elements).sum();
    found.into_iter().next().map(|first| Wrong { elements, ..first })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_takes_as_long_as_on_its_slowest_pe() {
        let bytes = |times: &[f64]| times.iter().flat_map(|t| t.to_le_bytes()).collect::<Vec<u8>>();
        let all = [bytes(&[1.0, 5.0, 2.0]), bytes(&[4.0, 3.0, 2.5])];
        assert_eq!(slowest(&all), [4.0, 5.0, 2.5]);
    }

    #[test]
    fn findings_are_added_up() {
        let wrong = |pe, elements| Wrong {
            elements,
            of: 100,
            pe,
            round: 1,
            index: 3,
            found: "1".into(),
            expected: "2".into(),
        };
        assert_eq!(all_wrong(vec![None, None]), None);
        assert_eq!(all_wrong(vec![None, Some(wrong(1, 4)), Some(wrong(2, 5))]), Some(wrong(1, 9)));
    }
}
