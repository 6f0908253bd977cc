//! The measurement of collectives and remote operations on every PE: memory, calls, and their
//! times.

use super::calibrate;
use super::contender::Contender;
use super::data::{self, Number, with_number};
use super::kernels::{self, GET, PUT, PingPong};
use super::operand::{Operand, Pair};
use super::operation::Operation;
use super::own;
use super::report::{Report, Row, Times, Wrong};
use super::start::StartLine;
use super::times::{Blocks, Timed, times};
use super::torch::{self, Torch};
use super::{Bench, BenchError};
use std::time::Instant;
use weft::Transport;
use weft::collective::{Call as CollectiveCall, Collectives, Config, Plan, Request};
use weft::collective::{Collective, Counts, Placement, Sums};
use weft_runtime::launch::{AsArgument, Lowering};
use weft_runtime::nccl::Communicator;
use weft_runtime::{
    Barrier, DType, DeviceTensor, Reduce, Stream, SymmetricBuffer, SymmetricTensor, Team, World, cuda, nccl,
};

/// The round whose data is used in timed calls.
const TIMED_ROUND: u32 = 0;

/// The period of that data, in elements.
const TIMED_PERIOD: u64 = 1 << 20;

pub(super) type ProgressSink<'a> = &'a mut dyn FnMut(&Report, &[Row]) -> std::io::Result<()>;
/// Puts one call of a contender on a stream.
pub(super) type Call<'a> = Box<dyn Fn(&Stream) -> Result<()> + 'a>;
pub(super) type Result<T> = std::result::Result<T, BenchError>;

pub(super) fn run(world: &World, bench: &Bench, progress: ProgressSink<'_>) -> Result<Report> {
    let counts = bench.counts(world.n_pes())?;
    let no_numbers = || Err(BenchError::Request("bool is not a number type".into()));
    with_number!(bench.dtype, no_numbers(), measure(world, bench, &counts, progress))
}

/// The state that all measurements of a run share: the world, its memory, and the contenders.
pub(super) struct Harness<'a, T> {
    pub world: &'a World,
    pub team: Team,
    pub stream: &'a Stream,
    pub bench: &'a Bench,
    lowering: Lowering,
    buffers: [SymmetricBuffer; 2],
    symmetric: Pair<T>,
    /// NCCL, with each kind of memory that the request needs.
    nccl: Option<Nccl<T>>,
    pub torch: Option<Torch>,
    collectives: Option<Collectives>,
    /// The barrier for kernels from files.
    sync: Option<Barrier>,
    pub start: StartLine<'a>,
    pub max_ctas: u32,
}

/// A collective, its input and output, and a case that calls it.
type Heap<'c, T> = (Collective, SymmetricTensor<T>, Option<SymmetricTensor<T>>, Case<'c, T>);

struct Nccl<T> {
    communicator: Communicator,
    plain: Option<Pair<T>>,
    windows: Option<Pair<T>>,
}

/// A contender with a size and a placement, ready to be called.
pub(super) struct Case<'a, T> {
    pub counts: &'a Counts,
    pub input: Operand<T>,
    pub output: Operand<T>,
    pub call: Call<'a>,
    ctas: Option<u32>,
    /// How warpweft carries out the call.
    pub plan: Option<String>,
    /// How often a call repeats what is timed.
    times: u32,
    /// The kind of sums that it computes.
    pub sums: Sums,
    /// Whether calls are ordered among PEs: the data of a PE has arrived when its call is done, and
    /// the next call may begin while another PE is still in the previous one.
    pub orders: bool,
}

/// The outcome of a contender with a size and a placement.
pub(super) struct Outcome {
    pub ctas: Option<u32>,
    pub plan: Option<String>,
    pub times: Times,
    /// The result of the check, if there was one.
    pub checked: Option<Option<Wrong>>,
}

fn measure<T: Number>(
    world: &World,
    bench: &Bench,
    counts: &[Counts],
    progress: ProgressSink<'_>,
) -> Result<Report> {
    let harness = Harness::<T>::new(world, bench, counts)?;
    let outcome = harness.measure(counts, progress);
    if let Err(BenchError::Local(_)) = outcome {
        // Freeing symmetric memory waits for the other PEs, which do not know of this error: the
        // job ends first.
        std::mem::forget(harness);
    }
    outcome
}

impl<'a, T: Number> Harness<'a, T> {
    pub(super) fn new(world: &'a World, bench: &'a Bench, counts: &[Counts]) -> Result<Harness<'a, T>> {
        let max = counts.iter().map(|c| c.send.max(c.recv)).max().unwrap_or(1);
        let max = usize::try_from(max).unwrap_or(usize::MAX);
        let has = |of: &dyn Fn(&Contender) -> bool| bench.contenders.iter().any(of);
        // Steps that may fail on one PE alone come before allocations that all PEs must free
        // together.
        let limit = data::limit(bench.dtype, bench.summands(world.n_pes()));
        let torch = match has(&|c| matches!(c, Contender::Torch(_))) {
            true => Some(Torch::start(world, bench, max as u64, limit)?),
            false => None,
        };
        let bytes = max.saturating_mul(size_of::<T>());
        let team = world.team();
        let max_ctas = bench.ctas.unwrap_or(world.device().sm_count()?);
        let buffers = [world.buffer(bytes)?, world.buffer(bytes)?];
        let symmetric = Pair::symmetric([&buffers[0], &buffers[1]], max)?;
        // If the switch has a multicast address for one allocation, it has one for all.
        let lowering = bench.lowering.decide(buffers[0].multicast_address(&team).is_some());
        let collectives = match has(&|c| matches!(c, Contender::Ours(_) | Contender::Auto)) {
            true => {
                let config = Config::default().ctas(Some(max_ctas)).lowering(lowering.into());
                let config = config.tuning(bench.tuning.clone()).sums(bench.sums);
                Some(Collectives::with(world, world.team(), config)?)
            }
            false => None,
        };
        let own = has(&|c| matches!(c, Contender::Own(_)));
        let sync = if own { Some(world.kernel_barrier(max_ctas)?) } else { None };
        let nccl = match has(&|c| c.is_nccl()) {
            true => {
                let communicator = Communicator::over(world)?;
                let (mut plain, mut windows) = (None, None);
                if has(&|c| *c == Contender::Nccl) {
                    plain = Some(Pair::nccl(communicator.plain(max)?, communicator.plain(max)?));
                }
                if has(&|c| *c == Contender::NcclSymm) {
                    windows = Some(Pair::nccl(communicator.window(max)?, communicator.window(max)?));
                }
                Some(Nccl { communicator, plain, windows })
            }
            false => None,
        };
        let (stream, start) = (world.stream(), StartLine::new(world)?);
        Ok(Harness {
            world,
            team,
            stream,
            bench,
            lowering,
            buffers,
            symmetric,
            nccl,
            torch,
            collectives,
            sync,
            start,
            max_ctas,
        })
    }

    /// Measures all rows, one after the other.
    fn measure(&self, counts: &[Counts], progress: ProgressSink<'_>) -> Result<Report> {
        let bench = self.bench;
        let mut report = self.report(counts)?;
        if bench.calibrate {
            report.calibration = Some(calibrate::run(&self.start, bench.repeats)?);
        }
        let written = |e| BenchError::Local(format!("cannot write: {e}"));
        progress(&report, &[]).map_err(written)?;
        for counts in counts {
            for contender in &bench.contenders {
                let mut rows = Vec::new();
                for place in contender.places(bench.operation) {
                    match self.row(*contender, *place, counts)? {
                        Ok(row) => rows.push(row),
                        Err(why) if !report.left_out.contains(&why) => report.left_out.push(why),
                        Err(_) => {}
                    }
                }
                progress(&report, &rows).map_err(written)?;
                report.rows.extend(rows);
            }
        }
        match report.rows.is_empty() {
            true => Err(BenchError::Request(report.left_out.join("; "))),
            false => Ok(report),
        }
    }

    /// A report without rows.
    pub(super) fn report(&self, counts: &[Counts]) -> Result<Report> {
        let mut report = Report::of(self.world, self.bench)?;
        report.lowering = self.lowering.to_string();
        report.auto = self.collectives.as_ref().map(|c| c.selector().to_string());
        report.no_multicast = self.buffers[0].why_no_multicast(&self.team);
        report.nccl = self.nccl.as_ref().map(|n| n.communicator.version().to_string());
        report.torch = self.torch.as_ref().map(|t| t.version.clone());
        let from_python = self.bench.contenders.iter().filter_map(|c| match c {
            Contender::Torch(name) => Some(*name),
            _ => None,
        });
        report.flashinfer = torch::flashinfer_of(from_python);
        let parts = counts.iter().map(|c| c.count * size_of::<T>() as u64);
        let divided = [Collective::AllGather, Collective::ReduceScatter].map(Operation::Collective);
        if let Some(Nccl { communicator, windows: Some(_), .. }) = &self.nccl
            && communicator.version().misplaces_parts()
            && divided.contains(&self.bench.operation)
            && let Some(part) = parts.into_iter().find(|bytes| bytes % 8 != 0)
        {
            report.notes.push(format!(
                "{}: NCCL {} misplaces parts that are not a multiple of 8 bytes, such as {part}",
                Contender::NcclSymm.name(),
                communicator.version()
            ));
        }
        Ok(report)
    }

    /// Measures a row, or returns why the contender does not support it.
    fn row(
        &self,
        contender: Contender,
        place: Placement,
        counts: &Counts,
    ) -> Result<std::result::Result<Row, String>> {
        let (bench, n_pes) = (self.bench, self.world.n_pes());
        let moves = bench.operation.has_size();
        let done = match (contender, bench.operation) {
            (Contender::Torch(name), Operation::Collective(c)) => self.by_torch(name, (c, place), counts)?,
            _ => match self.case(contender, place, counts)? {
                Ok(case) => Ok(self.measured(case, moves)?),
                Err(why) => Err(why),
            },
        };
        let Outcome { ctas, plan, times, checked } = match done {
            Ok(done) => done,
            Err(why) => return Ok(Err(why)),
        };
        let row = Row {
            size: counts.bytes,
            count: counts.count,
            dtype: if moves { bench.dtype } else { DType::U64 },
            redop: bench.operation.reduces().then(|| bench.op.name().into()),
            algorithm: contender.name().into(),
            place,
            ctas,
            plan,
            iters: times.iters,
            repeats: times.repeats,
            time_us: times.warm,
            cold_us: times.cold,
            first_us: times.first_us,
            algbw: 0.0,
            busbw: 0.0,
            wrong: checked.as_ref().map(|wrong| wrong.as_ref().map_or(0, |w| w.elements)),
            first_wrong: checked.flatten(),
        };
        Ok(Ok(row.with_bandwidth(bench.operation.bus_factor(n_pes))))
    }

    /// Measures a case, and checks it if it has results.
    fn measured(&self, case: Case<'_, T>, moves: bool) -> Result<Outcome> {
        let timed = times(self.world, self.bench, &LocalCase { harness: self, case: &case })?;
        let checked = if self.bench.check && moves { Some(self.check(&case)?) } else { None };
        Ok(Outcome { ctas: case.ctas, plan: case.plan, times: timed, checked })
    }

    /// The memory that a contender works on.
    fn memory(&self, contender: Contender) -> Result<&Pair<T>> {
        let nccl = self.nccl.as_ref();
        let pair = match contender {
            Contender::Nccl => nccl.and_then(|n| n.plain.as_ref()),
            Contender::NcclSymm => nccl.and_then(|n| n.windows.as_ref()),
            _ => Some(&self.symmetric),
        };
        pair.ok_or_else(|| {
            BenchError::Request(format!("the memory of {} was not allocated", contender.name()))
        })
    }

    fn case<'c>(
        &'c self,
        contender: Contender,
        place: Placement,
        counts: &'c Counts,
    ) -> Result<std::result::Result<Case<'c, T>, String>> {
        let ([input, output], mut case) = self.sides(self.memory(contender)?, place, counts)?;
        use Operand::{Nccl, Symmetric};
        match (contender, self.bench.operation, input, output) {
            (
                Contender::Ours(_) | Contender::Auto,
                Operation::Collective(c),
                Symmetric(x),
                Symmetric(out),
            ) => {
                if let Err(why) = self.ours(&mut case, contender, c, larger(place, x, out))? {
                    return Ok(Err(why));
                }
            }
            (Contender::Own(own), Operation::Collective(c), Symmetric(x), Symmetric(out)) => {
                let missing = || BenchError::Request("the barrier was not created".into());
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
            _ => return Err(BenchError::Request(format!("{} cannot use this memory", contender.name()))),
        }
        Ok(Ok(case))
    }

    /// A case with a kernel of the library, or why it does not support the request.
    fn ours<'c>(
        &'c self,
        case: &mut Case<'c, T>,
        contender: Contender,
        collective: Collective,
        (x, out): (SymmetricTensor<T>, Option<SymmetricTensor<T>>),
    ) -> Result<std::result::Result<(), String>> {
        let (bench, stream) = (self.bench, self.stream);
        let collectives = self.collectives()?;
        let call = collective_call(collective, bench.op, &x, out.as_ref());
        let request = collectives.request(&call, stream)?;
        let mut plan = match contender {
            Contender::Ours(a) => match a.can(&request) {
                Ok(()) => Plan::of(a, &request, self.max_ctas),
                Err(why) => return Ok(Err(why)),
            },
            _ => collectives.plan(&call, stream)?,
        };
        plan.ctas = bench.ctas.map_or(plan.ctas, |n| n.min(plan.algorithm.max_ctas));
        plan.threads = bench.threads.unwrap_or(plan.threads);
        plan.unroll = bench.unroll.unwrap_or(plan.unroll);
        if let Err(why) = plan.check(&request, self.max_ctas) {
            return Ok(Err(why));
        }
        self.planned(case, plan, collective, (x, out)).map(Ok)
    }

    /// A case with a kernel of the library and a given plan.
    fn planned<'c>(
        &'c self,
        case: &mut Case<'c, T>,
        plan: Plan,
        collective: Collective,
        (x, out): (SymmetricTensor<T>, Option<SymmetricTensor<T>>),
    ) -> Result<()> {
        let (collectives, op) = (self.collectives()?, self.bench.op);
        collectives.prepare(&plan, &collective_call(collective, op, &x, out.as_ref()), self.stream)?;
        case.ctas = Some(plan.ctas);
        case.sums = (plan.algorithm.sums)(
            &collectives.request(&collective_call(collective, op, &x, out.as_ref()), self.stream)?,
        );
        let Plan { algorithm, ctas, threads, unroll } = plan;
        case.plan = Some(format!("{}, {ctas} CTAs of {threads} threads, unroll {unroll}", algorithm.name));
        case.call = Box::new(move |s| {
            Ok(collectives.launch(&plan, &collective_call(collective, op, &x, out.as_ref()), s)?)
        });
        Ok(())
    }

    /// The collectives of this library.
    pub fn collectives(&self) -> Result<&Collectives> {
        let missing = || BenchError::Request("the workspaces were not allocated".into());
        self.collectives.as_ref().ok_or_else(missing)
    }

    /// The request to a collective of warpweft with operands in the symmetric heap.
    pub fn request(&self, place: Placement, counts: &Counts) -> Result<Request> {
        let (collective, x, out, _) = self.heap(place, counts)?;
        let call = collective_call(collective, self.bench.op, &x, out.as_ref());
        Ok(self.collectives()?.request(&call, self.stream)?)
    }

    /// A case of the collective with a given plan.
    pub fn ours_by<'c>(&'c self, place: Placement, counts: &'c Counts, plan: &Plan) -> Result<Case<'c, T>> {
        let (collective, x, out, mut case) = self.heap(place, counts)?;
        self.planned(&mut case, *plan, collective, (x, out))?;
        Ok(case)
    }

    /// The operands of a collective in the symmetric heap, and a case that does not call anything
    /// yet.
    fn heap<'c>(&'c self, place: Placement, counts: &'c Counts) -> Result<Heap<'c, T>> {
        match (self.bench.operation, self.sides(&self.symmetric, place, counts)?) {
            (Operation::Collective(c), ([Operand::Symmetric(x), Operand::Symmetric(out)], case)) => {
                let (x, out) = larger(place, x, out);
                Ok((c, x, out, case))
            }
            _ => Err(BenchError::Request(format!("{} is not a collective", self.bench.operation))),
        }
    }

    /// The input and the output of a call in a memory, and a case that does not call anything yet.
    fn sides<'c>(
        &'c self,
        memory: &Pair<T>,
        place: Placement,
        counts: &'c Counts,
    ) -> Result<([Operand<T>; 2], Case<'c, T>)> {
        let (send, recv) = (counts.send as usize, counts.recv as usize);
        let operands = match place {
            Placement::OutOfPlace => memory.apart(send, recv)?,
            Placement::InPlace => memory.together(send, recv, self.world.my_pe() as usize)?,
        };
        let [input, output] = operands.clone();
        let call: Call<'c> = Box::new(|_| Ok(()));
        let case = Case {
            counts,
            input,
            output,
            call,
            ctas: None,
            plan: None,
            times: 1,
            sums: Sums::Ordinary,
            orders: true,
        };
        Ok((operands, case))
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

    /// The collective of NCCL on a stream.
    fn nccl<'c>(&'c self, c: Collective, x: nccl::Tensor<T>, out: nccl::Tensor<T>) -> Result<Call<'c>> {
        let missing = || BenchError::Request("NCCL was not started".into());
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

    /// A case of an operation that is not a collective.
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
                let ctas = self.bench.ctas.unwrap_or(wanted.clamp(1, self.max_ctas));
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

    /// The greatest number of the data.
    pub fn limit(&self) -> u64 {
        data::limit(self.bench.dtype, self.bench.summands(self.world.n_pes()))
    }

    /// Microseconds of each block of a case's calls. This call is *collective*.
    pub(super) fn blocks(&self, case: &Case<'_, T>, blocks: Blocks) -> Result<Vec<f64>> {
        LocalCase { harness: self, case }.blocks(blocks)
    }

    /// Fills an operand with the data of timed calls, which repeats periodically.
    pub(super) fn fill(&self, input: &Operand<T>) -> Result<()> {
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
}

/// A case that this process calls.
struct LocalCase<'b, 'c, T> {
    harness: &'b Harness<'b, T>,
    case: &'b Case<'c, T>,
}

impl<T: Number> LocalCase<'_, '_, T> {
    fn calls(&self, n: u32, stream: &Stream) -> Result<()> {
        (0..n).try_for_each(|_| (self.case.call)(stream))
    }
}

impl<T: Number> Timed for LocalCase<'_, '_, T> {
    fn first(&self) -> Result<f64> {
        let stream = self.harness.stream;
        self.harness.fill(&self.case.input)?;
        // The PEs take different times to make the data.
        self.harness.world.wait_for_all()?;
        let began = Instant::now();
        self.calls(1, stream)?;
        cuda::wait_for(stream)?;
        Ok(began.elapsed().as_secs_f64() * 1e6)
    }

    fn blocks(&self, Blocks { calls, before, blocks, cold }: Blocks) -> Result<Vec<f64>> {
        let Harness { stream, start, bench, .. } = self.harness;
        self.calls(before, stream)?;
        cuda::wait_for(stream)?;
        let block = start.block(bench.graph, |s| self.calls(calls, s))?;
        // The first launch of a graph takes longer than later ones.
        start.time(&block)?;
        let timed = (0..blocks).map(|_| {
            if cold {
                start.flush(stream)?;
            }
            start.time(&block)
        });
        timed.collect()
    }

    fn in_a_call(&self) -> u32 {
        self.case.times
    }
}

/// The operand and the result of a call of warpweft: in place, only the larger of the two.
fn larger<T: Number>(
    place: Placement,
    x: SymmetricTensor<T>,
    out: SymmetricTensor<T>,
) -> (SymmetricTensor<T>, Option<SymmetricTensor<T>>) {
    match place {
        Placement::OutOfPlace => (x, Some(out)),
        Placement::InPlace => (if out.len() > x.len() { out } else { x }, None),
    }
}

fn collective_call<'x, T: Number>(
    collective: Collective,
    op: Reduce,
    x: &'x SymmetricTensor<T>,
    out: Option<&'x SymmetricTensor<T>>,
) -> CollectiveCall<'x> {
    CollectiveCall { op, ..CollectiveCall::new(collective, x, out.map(|out| out as &dyn AsArgument)) }
}
