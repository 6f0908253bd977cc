//! The parts of the time of a small allreduce, from time stamps of the GPUs' timers in a kernel
//! that works like `ll`.

use super::kernels;
use super::measure::Result;
use super::{BenchError, Counts};
use weft::collective::{Algorithm, Collective, Plan, Request};
use weft::gpu::{GpuError, Grid, Kernel, target};
use weft::{KernelFile, Options};
use weft_lang::elaborate::Define;
use weft_runtime::launch::Lowering;
use weft_runtime::{DType, DeviceTensor, Graph, SymmetricTensor, Team, World, cuda};

/// The text of the kernel that records time stamps.
const TEXT: &str = include_str!("timeline.weft");
/// The number of back-to-back launches in a graph.
const LAUNCHES: usize = 32;
/// The number of launches after which the PEs of a graph are in step.
const BEFORE: usize = 4;
/// The numbers of CTAs and slots of a workspace, as for `ll`.
const CTAS: usize = 64;
const SLOTS: usize = 1024;
/// The number of time stamps of a CTA.
const POINTS: usize = 4;
/// The number of graph launches before the one that is read.
const WARM: usize = 10;

/// The time stamps of one PE's launch in nanoseconds, by CTA.
#[derive(Clone, PartialEq, Debug)]
pub struct Stamps {
    /// The time of the first instruction.
    pub begin: Vec<i64>,
    /// The times when the packets were issued to the memory system.
    pub sent: Vec<i64>,
    /// The times when the packets of all PEs had arrived.
    pub seen: Vec<i64>,
    /// The time of the last store.
    pub end: Vec<i64>,
}

/// The parts of the time for one size, in nanoseconds: medians over launches.
#[derive(Clone, PartialEq, Debug)]
pub struct Timeline {
    /// Bytes of the operand.
    pub bytes: u64,
    /// The number of CTAs of a launch, and of threads of a CTA.
    pub grid: (u32, u32),
    /// The time from the store of a packet on one PE until another PE sees it: the least over
    /// launches and CTAs, between PE 0 and each other PE.
    pub flight: Vec<f64>,
    /// How far the timer of each PE is ahead of that of PE 0.
    pub offset: Vec<f64>,
    /// The parts of each PE.
    pub parts: Vec<Parts>,
}

/// The parts of a launch on one PE, in nanoseconds from the start of its first CTA.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub struct Parts {
    /// The start of the launch, relative to the PE that starts first, corrected by the offsets of
    /// the timers.
    pub late: f64,
    /// The time from the last store of the previous launch to the first instruction.
    pub launch: f64,
    /// The time until the last CTA has started.
    pub begun: f64,
    /// The time until the last CTA has sent its packets.
    pub sent: f64,
    /// The time until the last CTA has seen the packets of all PEs.
    pub seen: f64,
    /// The time until the last store.
    pub end: f64,
    /// The time from one launch to the next.
    pub period: f64,
}

/// The median of some numbers.
fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all.get(all.len() / 2).copied().unwrap_or_default()
}

fn least(all: &[i64]) -> i64 {
    all.iter().copied().min().unwrap_or_default()
}

fn latest(all: &[i64]) -> i64 {
    all.iter().copied().max().unwrap_or_default()
}

/// The shortest time between the send on one PE and the arrival on another, by their own timers,
/// over launches and CTAs.
fn shortest(from: &[Stamps], to: &[Stamps]) -> f64 {
    let pairs = from.iter().zip(to).flat_map(|(from, to)| from.sent.iter().zip(&to.seen));
    pairs.map(|(sent, seen)| (seen - sent) as f64).fold(f64::INFINITY, f64::min)
}

impl Timeline {
    /// Computes the timeline from the time stamps of all PEs' launches.
    ///
    /// A packet takes the same time in both directions, so half of the difference between the two
    /// directions is the offset of the timers, as in the Network Time Protocol.
    pub fn of(bytes: u64, grid: (u32, u32), pes: &[Vec<Stamps>]) -> Timeline {
        let first = pes.first().map(Vec::as_slice).unwrap_or_default();
        let both = |pe: &Vec<Stamps>| [shortest(first, pe), shortest(pe, first)];
        let (mut flight, mut offset) = (Vec::new(), Vec::new());
        for (i, pe) in pes.iter().enumerate() {
            let [there, back] = if i == 0 { [0.0; 2] } else { both(pe) };
            flight.push((there + back) / 2.0);
            offset.push((there - back) / 2.0);
        }
        let begin = |pe: usize, l: usize| least(&pes[pe][l].begin) as f64 - offset[pe];
        let launches = pes.iter().map(Vec::len).min().unwrap_or_default();
        let parts = (0..pes.len()).map(|pe| {
            let of = |part: &dyn Fn(usize, &Stamps, i64) -> f64| {
                median((1..launches).map(|l| part(l, &pes[pe][l], least(&pes[pe][l].begin))).collect())
            };
            let first = |l: usize| (0..pes.len()).map(|pe| begin(pe, l)).fold(f64::INFINITY, f64::min);
            Parts {
                late: of(&|l, _, _| begin(pe, l) - first(l)),
                launch: of(&|l, _, from| (from - latest(&pes[pe][l - 1].end)) as f64),
                begun: of(&|_, s, from| (latest(&s.begin) - from) as f64),
                sent: of(&|_, s, from| (latest(&s.sent) - from) as f64),
                seen: of(&|_, s, from| (latest(&s.seen) - from) as f64),
                end: of(&|_, s, from| (latest(&s.end) - from) as f64),
                period: of(&|l, _, from| (from - least(&pes[pe][l - 1].begin)) as f64),
            }
        });
        let parts = parts.collect();
        Timeline { bytes, grid, flight, offset, parts }
    }

    /// The head of a table; its lines are those of [`lines`](Timeline::lines).
    pub fn head() -> String {
        let names =
            ["bytes", "CTAs", "threads", "PE", "late", "launch", "begun", "sent", "seen", "end", "period"];
        let more = ["flight", "offset"];
        let cells = names.iter().chain(&more).map(|name| format!("{name:>9}"));
        format!("#{}\n", cells.collect::<String>())
    }

    /// The lines of the table, one for each PE, in nanoseconds.
    pub fn lines(&self) -> String {
        let (ctas, threads) = self.grid;
        let line = |(pe, p): (usize, &Parts)| {
            let whole = [self.bytes, ctas.into(), threads.into(), pe as u64].map(|n| format!("{n:>9}"));
            let ns = [
                p.late,
                p.launch,
                p.begun,
                p.sent,
                p.seen,
                p.end,
                p.period,
                self.flight[pe],
                self.offset[pe],
            ];
            format!(" {}{}\n", whole.concat(), ns.map(|ns| format!("{ns:>9.0}")).concat())
        };
        self.parts.iter().enumerate().map(line).collect()
    }
}

/// Records the timeline of an allreduce of `bytes` bytes on all PEs. This call is *collective*.
///
/// # Errors
///
/// Fails for a size that needs more than one packet for each thread, or if a call of CUDA or
/// NVSHMEM fails.
pub fn timeline(world: &World, bytes: u64, ctas: Option<u32>, threads: Option<u32>) -> Result<Timeline> {
    let recorder = Recorder::new(world, bytes, ctas, threads)?;
    let own = recorder.record(world)?;
    let bytes_of: Vec<u8> = own.iter().flat_map(|n| n.to_le_bytes()).collect();
    let numbers = |bytes: &Vec<u8>| -> Vec<i64> {
        bytes.as_chunks::<8>().0.iter().map(|b| i64::from_le_bytes(*b)).collect()
    };
    let all: Vec<_> = world.all_gather_host(&bytes_of)?.iter().map(numbers).collect();
    let pes: Vec<_> = all.iter().map(|pe| stamps(pe, recorder.plan.ctas as usize)).collect();
    Ok(Timeline::of(bytes, (recorder.plan.ctas, recorder.plan.threads), &pes))
}

/// The time stamps of one PE, by launch, without the first launches, in which the PEs are not yet
/// in step.
fn stamps(of: &[i64], ctas: usize) -> Vec<Stamps> {
    let launch = |points: &[i64]| {
        let point = |k: usize| points.chunks_exact(POINTS).take(ctas).map(|cta| cta[k]).collect();
        Stamps { begin: point(0), sent: point(1), seen: point(2), end: point(3) }
    };
    of.chunks_exact(POINTS * CTAS).skip(BEFORE).map(launch).collect()
}

/// The kernel with its memory.
struct Recorder {
    kernel: Kernel,
    plan: Plan,
    x: SymmetricTensor<half::bf16>,
    out: SymmetricTensor<half::bf16>,
    workspace: SymmetricTensor<u64>,
    epoch: DeviceTensor<u32>,
    stamps: DeviceTensor<i64>,
    team: Team,
}

impl Recorder {
    fn new(world: &World, bytes: u64, ctas: Option<u32>, threads: Option<u32>) -> Result<Recorder> {
        let none = || BenchError::Request(format!("--timeline cannot use {bytes} bytes"));
        let counts: Counts =
            Collective::AllReduce.counts(bytes / 16 * 16, 2, world.n_pes()).ok_or_else(none)?;
        let request = Request::new(Collective::AllReduce, DType::BF16, counts.count, world.n_pes());
        let ll = Algorithm::find(Collective::AllReduce, "ll").map_err(BenchError::Request)?;
        let plan = Plan { unroll: 1, ..Plan::of(ll, &request, CTAS as u32) };
        let plan = Plan { ctas: ctas.unwrap_or(plan.ctas), threads: threads.unwrap_or(plan.threads), ..plan };
        plan.check(&request, CTAS as u32).map_err(BenchError::Request)?;
        if u64::from(plan.ctas) * u64::from(plan.threads) * 8 < bytes {
            let (ctas, threads) = (plan.ctas, plan.threads);
            let max = u64::from(ctas) * u64::from(threads) * 8;
            return Err(BenchError::Request(format!(
                "--timeline is of one packet for each thread: {ctas} CTAs of {threads} threads have {max} bytes, \
                 not {bytes}"
            )));
        }
        let n_pes = world.n_pes() as usize;
        let mut options = Options::new(target(world.device())?);
        options.lowering = Lowering::Unicast.into();
        let defines = [("P", n_pes), ("THREADS", plan.threads as usize), ("LAUNCHES", LAUNCHES)];
        options.defines = defines.iter().map(|(n, d)| ((*n).to_owned(), Define::Int(*d as i64))).collect();
        let file = KernelFile::parse("timeline.weft", TEXT).map_err(GpuError::from)?;
        let kernel = Kernel::with(world, file, options)?;
        let (n, stream) = (counts.count as usize, world.stream());
        Ok(Recorder {
            kernel,
            plan,
            x: world.zeros(n)?,
            out: world.zeros(n)?,
            workspace: world.zeros(2 * SLOTS * n_pes * 2 * CTAS)?,
            epoch: DeviceTensor::zeros(32 * CTAS, stream)?,
            stamps: DeviceTensor::zeros(POINTS * CTAS * LAUNCHES, stream)?,
            team: world.team(),
        })
    }

    /// The time stamps of a graph of launches, on this PE. This call is *collective*.
    fn record(&self, world: &World) -> Result<Vec<i64>> {
        let barrier = kernels::compile(world, kernels::BARRIER, weft::Transport::P2p, None, &[])?;
        let sync = world.kernel_barrier(1)?;
        let count = self.x.len() as i64;
        let graph = Graph::capture(world.stream(), |stream| -> Result<()> {
            barrier.launch(stream, Grid::Kernel, (&sync, &self.team))?;
            for launch in 0..LAUNCHES as i64 {
                let arguments = (
                    weft::collective::Flat(&self.x),
                    weft::collective::Flat(&self.out),
                    &count,
                    weft::collective::Flat(&self.workspace),
                    weft::collective::Flat(&self.epoch),
                    weft::collective::Flat(&self.stamps),
                    &launch,
                    &self.team,
                );
                self.kernel.launch(stream, Grid::of(self.plan.ctas), arguments)?;
            }
            Ok(())
        })?;
        let graphs = if world.simulation().is_some() { 1 } else { WARM };
        for _ in 0..graphs {
            graph.launch()?;
        }
        cuda::wait_for(world.stream())?;
        Ok(self.stamps.to_vec(world.stream())?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two PEs whose timers differ by 5000 ns. A packet takes 600 ns in each direction, and PE 1
    /// starts 40 ns later.
    #[test]
    fn offsets_and_flights_are_found_again() {
        let launch = |l: i64, ahead: i64, late: i64| {
            let from = l * 2000 + late + ahead;
            let seen = l * 2000 + 300 + 40 + 600 - if late > 0 { 40 } else { 0 } + ahead;
            Stamps {
                begin: vec![from, from + 20],
                sent: vec![from + 300, from + 330],
                seen: vec![seen, seen + 30],
                end: vec![seen + 10, seen + 45],
            }
        };
        let pes = [(0, 0), (5000, 40)].map(|(ahead, late)| (0..9).map(|l| launch(l, ahead, late)).collect());
        let found = Timeline::of(1024, (2, 128), &pes);
        assert_eq!((found.flight[1], found.offset[1]), (600.0, 5000.0));
        let [first, second] = [found.parts[0], found.parts[1]];
        assert_eq!((first.late, second.late), (0.0, 40.0));
        assert_eq!((first.begun, first.sent, first.seen, first.end), (20.0, 330.0, 970.0, 985.0));
        assert_eq!((first.launch, first.period), (2000.0 - 985.0, 2000.0));
        let lines = found.lines();
        assert!(lines.lines().count() == 2 && lines.contains("5000"), "{lines}");
        assert_eq!(lines.lines().next().map(str::len), Timeline::head().lines().next().map(str::len));
    }

    /// On simulated PEs, whose timers count instructions, the time stamps are in order and the
    /// results are right.
    #[test]
    fn points_are_in_order_on_the_simulator() {
        let job = World::simulated(2).unwrap();
        job.run(|world| -> Result<()> {
            let recorder = Recorder::new(world, 1024, None, None)?;
            let given = vec![half::bf16::from_f32(1.0 + world.my_pe() as f32); 512];
            recorder.x.copy_from(&given, world.stream())?;
            world.barrier()?;
            let own = stamps(&recorder.record(world)?, recorder.plan.ctas as usize);
            assert_eq!(own.len(), LAUNCHES - BEFORE);
            for s in &own {
                let order = [&s.begin, &s.sent, &s.seen, &s.end];
                assert!(
                    order.windows(2).all(|w| w[0].iter().zip(w[1]).all(|(a, b)| 0 < *a && a < b)),
                    "{s:?}"
                );
            }
            let sums = recorder.out.to_vec(world.stream())?;
            assert!(sums.iter().all(|x| x.to_f32() == 3.0), "{sums:?}");
            Ok(world.barrier()?)
        })
        .unwrap();
    }

    #[test]
    fn sizes_with_several_packets_for_a_thread_are_refused() {
        let job = World::simulated(2).unwrap();
        job.run(|world| {
            let why = timeline(world, 1 << 20, Some(64), Some(128)).unwrap_err().to_string();
            assert!(why.contains("one packet for each thread"), "{why}");
            Ok::<_, BenchError>(())
        })
        .unwrap();
    }
}
