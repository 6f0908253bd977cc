//! The measurement itself, on every PE: memory, calls, and their times.

use super::calibrate;
use super::contender::Contender;
use super::data::{self, Number, with_number};
use super::kernels::{self, GET, PUT, PingPong};
use super::operand::{Operand, Pair};
use super::operation::Operation;
use super::own;
use super::report::{Report, Row, Spread, Times};
use super::start::StartLine;
use super::{Bench, BenchError};
use crate::collective::{Call as Asked, Collectives, Config, Plan};
use crate::collective::{Collective, Counts, Place};
use crate::compile::{Lowering, Transport};
use std::time::Instant;
use weft_runtime::launch::AsArgument;
use weft_runtime::nccl::Communicator;
use weft_runtime::{
    Barrier, DType, DeviceTensor, Reduce, Stream, SymmetricBuffer, SymmetricTensor, Team, World, cuda, nccl,
};

/// The round whose data the timed calls have.
const TIMED_ROUND: u32 = 0;

/// Elements of it that differ; past them it begins again.
const TIMED_PERIOD: u64 = 1 << 20;

/// Most cold calls; each waits for a cache to be written.
const COLD: u32 = 5;

pub(super) type Done<'a> = &'a mut dyn FnMut(&Report, &[Row]) -> std::io::Result<()>;
/// Puts one call of a contender on a stream.
pub(super) type Call<'a> = Box<dyn Fn(&Stream) -> Result<()> + 'a>;
pub(super) type Result<T> = std::result::Result<T, BenchError>;

pub(super) fn run(world: &World, bench: &Bench, done: Done<'_>) -> Result<Report> {
    let counts = bench.counts(world.n_pes())?;
    let no_numbers = || Err(BenchError::Request("bool is no type of numbers".into()));
    with_number!(bench.dtype, no_numbers(), measure(world, bench, &counts, done))
}

/// What all measurements share.
pub(super) struct Bed<'a, T> {
    pub world: &'a World,
    pub team: Team,
    pub stream: &'a Stream,
    pub bench: &'a Bench,
    lowering: Lowering,
    buffers: [SymmetricBuffer; 2],
    symmetric: Pair<T>,
    /// NCCL, with memory of each kind that is asked for.
    nccl: Option<Nccl<T>>,
    collectives: Option<Collectives>,
    /// For kernels of files.
    sync: Option<Barrier>,
    start: StartLine<'a>,
    most_ctas: u32,
}

struct Nccl<T> {
    communicator: Communicator,
    plain: Option<Pair<T>>,
    windows: Option<Pair<T>>,
}

/// A contender with a size and a place, ready to be called.
pub(super) struct Case<'a, T> {
    pub counts: &'a Counts,
    pub input: Operand<T>,
    pub output: Operand<T>,
    pub call: Call<'a>,
    ctas: Option<u32>,
    /// How ours is carried out.
    plan: Option<String>,
    /// What is timed is so many times in a call.
    times: u32,
    /// Whether calls order themselves among PEs: what a PE got is there when its call is done, and the next call may
    /// begin while another PE is in the last.
    pub orders: bool,
}

fn measure<T: Number>(world: &World, bench: &Bench, counts: &[Counts], done: Done<'_>) -> Result<Report> {
    let bed = Bed::<T>::new(world, bench, counts)?;
    let mut report = bed.report()?;
    if bench.calibrate {
        report.calibration = Some(calibrate::run(&bed.start, bench.repeats)?);
    }
    let written = |e| BenchError::Request(format!("cannot write: {e}"));
    done(&report, &[]).map_err(written)?;
    for counts in counts {
        for contender in &bench.contenders {
            let mut rows = Vec::new();
            for place in contender.places(bench.operation) {
                match bed.row(*contender, *place, counts)? {
                    Ok(row) => rows.push(row),
                    Err(why) if !report.left_out.contains(&why) => report.left_out.push(why),
                    Err(_) => {}
                }
            }
            done(&report, &rows).map_err(written)?;
            report.rows.extend(rows);
        }
    }
    match report.rows.is_empty() {
        true => Err(BenchError::Request(report.left_out.join("; "))),
        false => Ok(report),
    }
}

impl<'a, T: Number> Bed<'a, T> {
    fn new(world: &'a World, bench: &'a Bench, counts: &[Counts]) -> Result<Bed<'a, T>> {
        let most = counts.iter().map(|c| c.send.max(c.recv)).max().unwrap_or(1);
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        let bytes = most.saturating_mul(size_of::<T>());
        let team = world.team();
        let most_ctas = bench.ctas.unwrap_or(world.device().sm_count()?);
        let buffers = [world.buffer(bytes)?, world.buffer(bytes)?];
        let symmetric = Pair::symmetric([&buffers[0], &buffers[1]], most)?;
        // What the switch has for one allocation it has for all.
        let lowering = match bench.lowering {
            Lowering::Auto if buffers[0].multicast_address(&team).is_some() => Lowering::Multimem,
            Lowering::Auto => Lowering::Unicast,
            asked => asked,
        };
        let has = |of: &dyn Fn(&Contender) -> bool| bench.contenders.iter().any(of);
        let collectives = match has(&|c| matches!(c, Contender::Ours(_) | Contender::Auto)) {
            true => Some(Collectives::with(world, world.team(), Config { ctas: Some(most_ctas), lowering })?),
            false => None,
        };
        let own = has(&|c| matches!(c, Contender::Own(_)));
        let sync = if own { Some(world.kernel_barrier(most_ctas)?) } else { None };
        let nccl = match has(&|c| c.is_nccl()) {
            true => {
                let communicator = Communicator::over(world)?;
                let (mut plain, mut windows) = (None, None);
                if has(&|c| *c == Contender::Nccl) {
                    plain = Some(Pair::nccl(communicator.plain(most)?, communicator.plain(most)?));
                }
                if has(&|c| *c == Contender::NcclSymm) {
                    windows = Some(Pair::nccl(communicator.window(most)?, communicator.window(most)?));
                }
                Some(Nccl { communicator, plain, windows })
            }
            false => None,
        };
        let (stream, start) = (world.stream(), StartLine::new(world)?);
        Ok(Bed {
            world,
            team,
            stream,
            bench,
            lowering,
            buffers,
            symmetric,
            nccl,
            collectives,
            sync,
            start,
            most_ctas,
        })
    }

    /// Without rows.
    fn report(&self) -> Result<Report> {
        let mut report = Report::of(self.world, self.bench)?;
        report.lowering = if self.lowering == Lowering::Unicast { "unicast" } else { "multimem" }.into();
        report.no_multicast = self.buffers[0].why_no_multicast(&self.team);
        report.nccl = self.nccl.as_ref().map(|n| n.communicator.version().to_string());
        Ok(report)
    }

    /// Or why the contender cannot do that here.
    fn row(
        &self,
        contender: Contender,
        place: Place,
        counts: &Counts,
    ) -> Result<std::result::Result<Row, String>> {
        let (bench, n_pes) = (self.bench, self.world.n_pes());
        let case = match self.case(contender, place, counts)? {
            Ok(case) => case,
            Err(why) => return Ok(Err(why)),
        };
        let Times { warm, cold, first_us, iters, repeats } = self.time(&case)?;
        let moves = bench.operation.has_size();
        let checked = if bench.check && moves { Some(self.check(&case)?) } else { None };
        let row = Row {
            size: counts.bytes,
            count: counts.count,
            dtype: if moves { bench.dtype } else { DType::U64 },
            redop: bench.operation.reduces().then(|| bench.op.name().into()),
            algorithm: contender.name().into(),
            place,
            ctas: case.ctas,
            plan: case.plan.clone(),
            iters,
            repeats,
            time_us: warm,
            cold_us: cold,
            first_us,
            algbw: 0.0,
            busbw: 0.0,
            wrong: checked.as_ref().map(|wrong| wrong.as_ref().map_or(0, |w| w.elements)),
            first_wrong: checked.flatten(),
        };
        Ok(Ok(row.with_bandwidth(bench.operation.bus_factor(n_pes))))
    }

    /// The memory that a contender works on.
    fn memory(&self, contender: Contender) -> Result<&Pair<T>> {
        let nccl = self.nccl.as_ref();
        let pair = match contender {
            Contender::Nccl => nccl.and_then(|n| n.plain.as_ref()),
            Contender::NcclSymm => nccl.and_then(|n| n.windows.as_ref()),
            _ => Some(&self.symmetric),
        };
        pair.ok_or_else(|| BenchError::Request(format!("{} has no memory", contender.name())))
    }

    fn case<'c>(
        &'c self,
        contender: Contender,
        place: Place,
        counts: &'c Counts,
    ) -> Result<std::result::Result<Case<'c, T>, String>> {
        let memory = self.memory(contender)?;
        let (send, recv) = (counts.send as usize, counts.recv as usize);
        let [input, output] = match place {
            Place::OutOfPlace => memory.apart(send, recv)?,
            Place::InPlace => memory.together(send, recv, self.world.my_pe() as usize)?,
        };
        let mut case = Case {
            counts,
            input: input.clone(),
            output: output.clone(),
            call: Box::new(|_| Ok(())),
            ctas: None,
            plan: None,
            times: 1,
            orders: true,
        };
        use Operand::{Nccl, Symmetric};
        match (contender, self.bench.operation, input, output) {
            (
                Contender::Ours(_) | Contender::Auto,
                Operation::Collective(c),
                Symmetric(x),
                Symmetric(out),
            ) => {
                let operands = match place {
                    Place::OutOfPlace => (x, Some(out)),
                    // The larger side.
                    Place::InPlace => (if out.len() > x.len() { out } else { x }, None),
                };
                if let Err(why) = self.ours(&mut case, contender, c, operands)? {
                    return Ok(Err(why));
                }
            }
            (Contender::Own(own), Operation::Collective(c), Symmetric(x), Symmetric(out)) => {
                let missing = || BenchError::Request("there is no barrier".into());
                let sync = self.sync.as_ref().ok_or_else(missing)?;
                let how = (own, self.lowering, self.bench.ctas);
                let kernel = own::Compiled::new((self.world, &self.team, sync), how, (c, counts), (x, out))?;
                case.ctas = Some(kernel.ctas());
                case.call = Box::new(move |s| kernel.launch(s));
            }
            (Contender::Nvshmem, Operation::Collective(c), Symmetric(x), Symmetric(out)) => {
                case.call = self.nvshmem(c, x, out);
                case.orders = false;
            }
            (_, Operation::Collective(c), Nccl(x), Nccl(out)) => case.call = self.nccl(c, x, out)?,
            (_, _, Symmetric(x), Symmetric(out)) => self.remote(&mut case, contender, x, out)?,
            _ => return Err(BenchError::Request(format!("{} has other memory", contender.name()))),
        }
        Ok(Ok(case))
    }

    /// A kernel of the library; or why it cannot do that here.
    fn ours<'c>(
        &'c self,
        case: &mut Case<'c, T>,
        contender: Contender,
        collective: Collective,
        (x, out): (SymmetricTensor<T>, Option<SymmetricTensor<T>>),
    ) -> Result<std::result::Result<(), String>> {
        let (bench, stream) = (self.bench, self.stream);
        let missing = || BenchError::Request("there are no workspaces".into());
        let collectives = self.collectives.as_ref().ok_or_else(missing)?;
        let call = asked(collective, bench.op, &x, out.as_ref());
        let request = collectives.request(&call, stream)?;
        let mut plan = match contender {
            Contender::Ours(a) => match a.can(&request) {
                Ok(()) => Plan::of(a, &request, self.most_ctas),
                Err(why) => return Ok(Err(why)),
            },
            _ => collectives.plan(&call, stream)?,
        };
        plan.ctas = bench.ctas.map_or(plan.ctas, |n| n.min(plan.algorithm.most_ctas));
        plan.threads = bench.threads.unwrap_or(plan.threads);
        plan.unroll = bench.unroll.unwrap_or(plan.unroll);
        if let Err(why) = plan.check(&request, self.most_ctas) {
            return Ok(Err(why));
        }
        collectives.prepare(&plan, &call, stream)?;
        case.ctas = Some(plan.ctas);
        let Plan { algorithm, ctas, threads, unroll } = plan;
        case.plan = Some(format!("{}, {ctas} CTAs of {threads}, {unroll} at once", algorithm.name));
        let op = bench.op;
        case.call =
            Box::new(move |s| Ok(collectives.launch(&plan, &asked(collective, op, &x, out.as_ref()), s)?));
        Ok(Ok(()))
    }

    /// NVSHMEM's collective on a stream.
    fn nvshmem<'c>(&'c self, c: Collective, x: SymmetricTensor<T>, out: SymmetricTensor<T>) -> Call<'c> {
        let (team, op) = (&self.team, self.bench.op);
        Box::new(move |s| {
            Ok(match c {
                Collective::AllReduce => team.reduce(op, &out, &x, s),
                Collective::AllGather => team.fcollect(&out, &x, s),
                Collective::ReduceScatter => team.reduce_scatter(op, &out, &x, s),
                Collective::Broadcast => team.broadcast(&out, &x, 0, s),
                Collective::AllToAll => team.alltoall(&out, &x, s),
            }?)
        })
    }

    /// NCCL's.
    fn nccl<'c>(&'c self, c: Collective, x: nccl::Tensor<T>, out: nccl::Tensor<T>) -> Result<Call<'c>> {
        let missing = || BenchError::Request("NCCL is not started".into());
        let (op, nccl) = (self.bench.op, &self.nccl.as_ref().ok_or_else(missing)?.communicator);
        Ok(Box::new(move |s| {
            Ok(match c {
                Collective::AllReduce => nccl.all_reduce(op, &out, &x, s),
                Collective::AllGather => nccl.all_gather(&out, &x, s),
                Collective::ReduceScatter => nccl.reduce_scatter(op, &out, &x, s),
                Collective::Broadcast => nccl.broadcast(&out, &x, 0, s),
                Collective::AllToAll => nccl.all_to_all(&out, &x, s),
            }?)
        }))
    }

    /// What is no collective.
    fn remote<'c>(
        &'c self,
        case: &mut Case<'c, T>,
        contender: Contender,
        x: SymmetricTensor<T>,
        out: SymmetricTensor<T>,
    ) -> Result<()> {
        let (world, team) = (self.world, &self.team);
        let (me, n_pes) = (world.my_pe(), world.n_pes());
        let (next, before) = ((me + 1) % n_pes, (me + n_pes - 1) % n_pes);
        let transport = if contender == Contender::Nvshmem { Transport::Nvshmem } else { Transport::P2p };
        case.orders = false;
        case.call = match (self.bench.operation, contender) {
            (Operation::Put, Contender::Stream) => Box::new(move |s| Ok(world.put(&out, &x, next, s)?)),
            (Operation::Get, Contender::Stream) => Box::new(move |s| Ok(world.get(&out, &x, before, s)?)),
            (Operation::Signal, _) => {
                let ping_pong = PingPong::new(world, transport)?;
                case.times = PingPong::FLIGHTS;
                Box::new(move |s| ping_pong.launch(s))
            }
            (Operation::Barrier, Contender::Nvshmem) => Box::new(move |s| Ok(team.barrier(s)?)),
            (Operation::Barrier, _) => Box::new(move |s| self.start.barrier(s)),
            (operation, _) => {
                let text = if operation == Operation::Put { PUT } else { GET };
                let wanted = u32::try_from(case.counts.bytes.div_ceil(1024 * 16)).unwrap_or(u32::MAX);
                let ctas = self.bench.ctas.unwrap_or(wanted.clamp(1, self.most_ctas));
                let copy = kernels::Copy::new(world, text, transport, ctas, (&x, &out))?;
                case.ctas = Some(ctas);
                Box::new(move |s| copy.launch(s))
            }
        };
        Ok(())
    }

    /// This PE's data of a round.
    pub fn data(&self, elements: u64, round: u32) -> Vec<T> {
        let (me, limit) = (self.world.my_pe(), self.limit());
        data::made(self.world.n_pes(), elements, |i| T::of(data::datum(me, i, round, limit)))
    }

    /// Greatest number of the data.
    pub fn limit(&self) -> u64 {
        data::limit(self.bench.dtype, self.bench.summands(self.world.n_pes()))
    }

    /// Gives an operand the data that timed calls have: some, again and again.
    fn fill(&self, input: &Operand<T>) -> Result<()> {
        let (len, stream) = (input.len(), self.stream);
        let some = self.data(TIMED_PERIOD.min(len as u64), TIMED_ROUND);
        let on_device = DeviceTensor::from_slice(&some, stream)?;
        let period = some.len().max(1);
        for from in (0..len).step_by(period) {
            let part = input.slice(from..len.min(from + period))?;
            match len - from < period {
                true => part.write(&some[..len - from], stream)?,
                false => part.load(&on_device, self.world, stream)?,
            }
        }
        Ok(cuda::wait_for(stream)?)
    }

    /// Times of a call: the first, cold ones, and those of blocks of calls.
    fn time(&self, case: &Case<'_, T>) -> Result<Times> {
        let (stream, bench) = (self.stream, self.bench);
        self.fill(&case.input)?;
        // Making data takes each PE its own time.
        self.world.wait_for_all()?;
        let calls = |n: u32, stream: &Stream| (0..n).try_for_each(|_| (case.call)(stream));
        let began = Instant::now();
        calls(1, stream)?;
        cuda::wait_for(stream)?;
        let first = began.elapsed().as_secs_f64() * 1e6;
        let block = |n: u32| self.start.block(bench.graph, move |s| (0..n).try_for_each(|_| (case.call)(s)));
        let one = block(1)?;
        // A graph's first launch is not like the others.
        self.start.time(&one)?;
        let about = gather(self.world, &[self.start.time(&one)?])?;
        let (iters, repeats) = fitting(Spread::over(&about).max, bench.iters, bench.repeats);
        calls(bench.warmup.min(iters), stream)?;
        cuda::wait_for(stream)?;
        let many = block(iters)?;
        self.start.time(&many)?;
        let each = |n: u32| f64::from(n) * f64::from(case.times);
        let (mut cold, mut warm) = (Vec::new(), Vec::new());
        for _ in 0..repeats.min(COLD) {
            self.start.flush(stream)?;
            cold.push(self.start.time(&one)? / each(1));
        }
        for _ in 0..repeats {
            warm.push(self.start.time(&many)? / each(iters));
        }
        let [first, cold, warm] =
            [&[first][..], &cold, &warm].map(|times| gather(self.world, times).map(|all| Spread::over(&all)));
        Ok(Times { warm: warm?, cold: cold?, first_us: first?.max, iters, repeats })
    }
}

/// Calls of a block and blocks, as many as are asked for, or fewer of calls that take so many microseconds each: a
/// block is to take 0.2 s and all of them 1 s, but for one call and three blocks.
fn fitting(us: f64, iters: u32, repeats: u32) -> (u32, u32) {
    let us = us.max(0.1);
    let within = |limit: f64, each: f64, least: u32| ((limit / each) as u32).max(least);
    let iters = iters.min(within(2e5, us, 1));
    (iters, repeats.min(within(1e6, us * f64::from(iters), 3)))
}

fn asked<'x, T: Number>(
    collective: Collective,
    op: Reduce,
    x: &'x SymmetricTensor<T>,
    out: Option<&'x SymmetricTensor<T>>,
) -> Asked<'x> {
    Asked { op, ..Asked::new(collective, x, out.map(|out| out as &dyn AsArgument)) }
}

/// Every PE's times. *Collective.*
pub(super) fn gather(world: &World, times: &[f64]) -> Result<Vec<Vec<f64>>> {
    let bytes: Vec<u8> = times.iter().flat_map(|t| t.to_le_bytes()).collect();
    let all = world.all_gather_host(&bytes)?;
    let times = |bytes: &Vec<u8>| bytes.as_chunks::<8>().0.iter().map(|b| f64::from_le_bytes(*b)).collect();
    Ok(all.iter().map(times).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_calls_are_fewer() {
        assert_eq!(fitting(5.0, 20, 10), (20, 10));
        assert_eq!(fitting(5000.0, 20, 10), (20, 10));
        assert_eq!(fitting(60_000.0, 20, 10), (3, 5));
        assert_eq!(fitting(1e7, 20, 10), (1, 3));
        assert_eq!(fitting(1e7, 20, 1), (1, 1));
        assert_eq!(fitting(0.0, 100_000, 100_000), (100_000, 100));
        assert_eq!(fitting(f64::NAN, 20, 10).1, 10);
    }
}
