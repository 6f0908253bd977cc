//! The measurement of products: operands, calls, and their times.

use super::data::{Data, Expected, Operands, Values, Wrong};
use super::report::{CUBLAS, CUBLAS_MATRICES, OURS, Quartiles, Report, Row, compare};
use super::{Contender, Own, Request, scaled, scales};
use crate::BenchError;
use crate::times::Drawn;
use std::time::SystemTime;
use weft::gemm::tuning::{By, Selector, Setting, Tuning};
use weft::gemm::{Gemm, Plan, Problem, Scales};
use weft_runtime::cuda::{self, AnyDeviceTensor, Event};
use weft_runtime::launch::Prepared;
use weft_runtime::{Device, Graph, Stream, cublas};

pub(super) type Result<T> = std::result::Result<T, BenchError>;

/// The most microseconds that a block takes; a block of a single call may take longer.
const BLOCK_US: f64 = 50_000.0;
/// The size of all sets of operands together, relative to that of the L2 cache.
const CACHES: u64 = 3;
/// The greatest number of sets of operands.
const MAX_SETS: u64 = 32;

pub(super) fn run(
    device: &Device,
    request: &Request,
    done: &mut dyn FnMut(&Report, &[Row]) -> std::io::Result<()>,
) -> Result<Report> {
    let bed = Harness::new(device, request.graph)?;
    let mut report = report(device, request)?;
    let mut tell = |report: &Report, rows: &[Row]| {
        done(report, rows).map_err(|e| BenchError::Local(format!("cannot write: {e}")))
    };
    let auto = match request.contenders.contains(&Contender::Ours(Tuning::Stored)) {
        true => Some(Selector::new(device, &Tuning::Stored)?),
        false => None,
    };
    report.auto = auto.as_ref().map(Selector::to_string);
    tell(&report, &[])?;
    for problem in &request.problems {
        let mut left_out = Vec::new();
        let mut rows = bed.rows(problem, request, auto.as_ref(), &mut left_out)?;
        compare(&mut rows);
        report.left_out.extend(left_out);
        tell(&report, &rows)?;
        report.rows.extend(rows);
    }
    match report.rows.is_empty() {
        true => Err(BenchError::Request(report.left_out.join("; "))),
        false => Ok(report),
    }
}

/// A report without rows.
fn report(device: &Device, request: &Request) -> Result<Report> {
    let cublas = match request.contenders.iter().any(Contender::is_cublas) {
        true => Some(cublas::installed()?.0.to_string()),
        false => None,
    };
    Ok(Report {
        warpweft: env!("CARGO_PKG_VERSION").into(),
        date: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
        command: Vec::new(),
        gpu: device.name()?,
        sms: device.sm_count()?,
        driver: Setting::of(device)?.driver,
        cublas,
        auto: None,
        scales: scales::name(request.scales).into(),
        graph: request.graph,
        cold: request.cold,
        left_out: Vec::new(),
        rows: Vec::new(),
    })
}

/// A device on which calls are timed.
pub(super) struct Harness {
    pub device: Device,
    pub stream: Stream,
    graph: bool,
}

/// A contender that is ready to compute a problem on each set of operands.
pub(super) struct Case {
    pub call: Call,
    /// The scales by which it multiplies.
    scales: Scales,
    /// The result of a check.
    checked: Option<Checked>,
}

/// How a case computes the product.
pub(super) enum Call {
    /// The kernel of warpweft: a launch for each set.
    Ours { plan: Plan, by: By, launches: Vec<Prepared> },
    /// A kernel from a file: a launch for each set, the compile-time parameters that were given,
    /// and memory that the launches share.
    Own { name: String, defines: String, launches: Vec<Prepared>, _memory: Vec<AnyDeviceTensor> },
    /// The product by cuBLASLt.
    Cublas { matmul: Box<cublas::Matmul>, algorithm: cublas::Algorithm, place: (u32, u32) },
}

/// The result of a check.
#[derive(Clone, Default)]
struct Checked {
    wrong: (u64, u64),
    first: Option<Wrong>,
    differ: u64,
}

/// Calls that are timed together.
pub(super) struct Block {
    calls: u32,
    graph: Option<Graph>,
}

/// The sets of operands of a problem.
pub(super) struct Sets {
    pub problem: Problem,
    pub scales: Scales,
    pub data: Data,
    pub all: Vec<Operands>,
}

impl Sets {
    /// The operands with number `i`, modulo the number of sets.
    fn at(&self, i: u32) -> Result<&Operands> {
        let missing = || BenchError::Request("the operands of this type are missing".into());
        self.all.get(i as usize % self.all.len().max(1)).ok_or_else(missing)
    }

    fn fill(&self, values: Values, stream: &Stream) -> Result<()> {
        self.all.iter().try_for_each(|set| self.data.fill(set, values, stream))
    }
}

impl Case {
    /// The fault that a check found in the results, as a sentence.
    pub fn fault(&self) -> Option<String> {
        let Checked { wrong: (n, of), first, differ } = self.checked.as_ref()?;
        let how = match &self.call {
            Call::Ours { plan, .. } => plan.to_string(),
            Call::Own { name, .. } => name.clone(),
            Call::Cublas { .. } => "cublas".into(),
        };
        match (first, differ) {
            (Some(first), _) => Some(format!("{how}: {n} of {of} samples are wrong; the first: {first}")),
            (None, 0) => None,
            (None, n) => Some(format!("{how}: {n} elements differ from the first plan's")),
        }
    }

    /// Puts call number `i` on a stream.
    fn call(&self, i: u32, sets: &Sets, stream: &Stream) -> Result<()> {
        match &self.call {
            Call::Ours { launches, .. } | Call::Own { launches, .. } => {
                match launches.get(i as usize % launches.len().max(1)) {
                    Some(launch) => Ok(launch.launch(stream, &[])?),
                    None => Ok(()),
                }
            }
            Call::Cublas { matmul, algorithm, .. } => {
                let Operands { a, b, d, scaling, .. } = sets.at(i)?;
                match scaling.as_ref().map(|scaling| scaling.of_cublas(self.scales == sets.scales)) {
                    Some((of_a, of_b)) => {
                        Ok(matmul.launch_scaled(algorithm, (a, b, d), (of_a, of_b), stream)?)
                    }
                    None => Ok(matmul.launch(algorithm, (a, b, d), stream)?),
                }
            }
        }
    }
}

impl Harness {
    pub fn new(device: &Device, graph: bool) -> Result<Harness> {
        Ok(Harness { device: device.clone(), stream: device.new_stream()?, graph })
    }

    /// The operands of a problem: one set, or as many sets as exceed the L2 cache.
    pub fn sets(&self, problem: &Problem, scales: Scales, cold: bool) -> Result<Sets> {
        let count = match cold {
            true => {
                let cache = u64::from(self.device.l2_bytes()?);
                (CACHES * cache).div_ceil(Operands::bytes(problem).max(1)).clamp(1, MAX_SETS)
            }
            false => 1,
        };
        let data = Data::new(&self.device, problem)?;
        let on = (&self.device, &self.stream);
        let all = (0..count as u32).map(|set| data.operands(on, problem, scales, set));
        let all = all.collect::<Result<Vec<_>>>()?;
        Ok(Sets { problem: *problem, scales, data, all })
    }

    /// The kernel of warpweft, by a plan that a selector chooses.
    pub fn ours(&self, sets: &Sets, selector: &Selector) -> Result<Case> {
        if sets.scales != Scales::None {
            let (plan, by) = scaled::chosen(&self.device, &sets.problem, sets.scales, selector)?;
            let (launches, _) = scaled::kernel(&plan)?.launches(sets, (&self.device, &self.stream))?;
            return Ok(Case { call: Call::Ours { plan, by, launches }, scales: sets.scales, checked: None });
        }
        let gemm = Gemm::chosen(&self.device, sets.problem, selector)?;
        let prepare = |set: &Operands| Ok(gemm.prepared(&self.stream, &set.a, &set.b, &set.d)?);
        let launches = sets.all.iter().map(prepare).collect::<Result<_>>()?;
        let call = Call::Ours { plan: *gemm.plan(), by: gemm.by(), launches };
        Ok(Case { call, scales: Scales::None, checked: None })
    }

    /// A kernel from a file.
    fn own(&self, sets: &Sets, own: &Own) -> Result<Case> {
        let (launches, _memory) = own.launches(sets, (&self.device, &self.stream))?;
        let call = Call::Own { name: own.name().into(), defines: own.defines(), launches, _memory };
        Ok(Case { call, scales: sets.scales, checked: None })
    }

    /// Rows of a problem, one for each contender.
    fn rows(
        &self,
        problem: &Problem,
        request: &Request,
        auto: Option<&Selector>,
        left_out: &mut Vec<String>,
    ) -> Result<Vec<Row>> {
        let sets = self.sets(problem, request.scales, request.cold)?;
        sets.fill(Values::Real, &self.stream)?;
        let mut cases: Vec<Case> = Vec::new();
        for contender in &request.contenders {
            let case = match contender {
                Contender::Ours(Tuning::Stored) => auto.map_or_else(
                    || Err(BenchError::Request("no plan was chosen".into())),
                    |selector| self.ours(&sets, selector),
                ),
                Contender::Ours(tuning) => self.ours(&sets, &Selector::new(&self.device, tuning)?),
                Contender::Own(own) => self.own(&sets, own),
                Contender::Cublas => self.cublas(&sets, request, request.scales),
                Contender::CublasMatrices => self.cublas(&sets, request, Scales::Matrices),
            };
            match case {
                Ok(case) => cases.push(case),
                Err(why) if refused(&why) => left_out.push(format!("{}, {problem}: {why}", contender.name())),
                Err(e) => return Err(e),
            }
        }
        if request.check {
            self.check(&sets, &mut cases)?;
        }
        let times = self.interleaved(&sets, &cases, request)?;
        Ok(cases.iter().zip(times).map(|(case, (iters, times))| row(&sets, case, iters, &times)).collect())
    }

    /// The fastest of the algorithms of cuBLASLt's heuristic.
    fn cublas(&self, sets: &Sets, request: &Request, scales: Scales) -> Result<Case> {
        let Problem { shape, dtype, out, b } = sets.problem;
        let b_columns = b == weft::gemm::Major::Column;
        let product = cublas::Product { m: shape.m, n: shape.n, k: shape.k, dtype, out, b_columns };
        let matmul = Box::new(cublas::Matmul::scaled(&self.device, product, scales::of_cublas(scales))?);
        let algorithms = matmul.algorithms(request.algorithms as usize)?;
        let of = algorithms.len() as u32;
        let first = algorithms.first().copied();
        let missing = || BenchError::Request("cuBLASLt returned no algorithm".into());
        let call = Call::Cublas { matmul, algorithm: first.ok_or_else(missing)?, place: (0, of) };
        let mut case = Case { call, scales, checked: None };
        let mut best = (f64::INFINITY, 0);
        let mut rejected = None;
        for (i, tried) in algorithms.iter().enumerate() {
            if let Call::Cublas { algorithm, .. } = &mut case.call {
                *algorithm = *tried;
            }
            // The GPU may still reject an algorithm that the heuristic proposes.
            match self.quick(sets, &case) {
                Ok(us) if us < best.0 => best = (us, i),
                Ok(_) => {}
                Err(why) => rejected = Some(why),
            }
        }
        if let (f64::INFINITY, Some(why)) = (best.0, rejected) {
            return Err(why);
        }
        if let (Call::Cublas { algorithm, place, .. }, Some(chosen)) =
            (&mut case.call, algorithms.get(best.1))
        {
            (*algorithm, *place) = (*chosen, (best.1 as u32, of));
        }
        Ok(case)
    }

    /// Microseconds of a call: the median of a few short blocks.
    pub fn quick(&self, sets: &Sets, case: &Case) -> Result<f64> {
        let one = self.block(sets, case, 1)?;
        self.time(sets, case, &one)?;
        let about = self.time(sets, case, &one)?;
        let calls = (BLOCK_US / 20.0 / about.max(1.0)).clamp(2.0, 20.0) as u32;
        let block = self.block(sets, case, calls)?;
        let times: Result<Vec<f64>> = (0..4).map(|_| self.time(sets, case, &block)).collect();
        // During the first block, clocks and caches are not yet in a steady state.
        Ok(Quartiles::of(times?.get(1..).unwrap_or_default()).median)
    }

    /// Calls of a case that are timed together.
    fn block(&self, sets: &Sets, case: &Case, calls: u32) -> Result<Block> {
        let graph = match self.graph {
            true => {
                // Code that the first call loads must be loaded outside of the capture.
                case.call(0, sets, &self.stream)?;
                cuda::wait_for(&self.stream)?;
                let graph = Graph::capture(&self.stream, |stream| {
                    (0..calls).try_for_each(|i| case.call(i, sets, stream))
                })?;
                graph.upload()?;
                Some(graph)
            }
            false => None,
        };
        Ok(Block { calls, graph })
    }

    /// Microseconds of each call of a block.
    fn time(&self, sets: &Sets, case: &Case, block: &Block) -> Result<f64> {
        let start = Event::record(&self.stream)?;
        match &block.graph {
            Some(graph) => graph.launch()?,
            None => (0..block.calls).try_for_each(|i| case.call(i, sets, &self.stream))?,
        }
        let end = Event::record(&self.stream)?;
        Ok(start.elapsed_us(&end)? / f64::from(block.calls))
    }

    /// The times of blocks of each case. Each round runs one block of each, in a new random order.
    /// Also returns the number of calls in a block.
    pub fn interleaved(
        &self,
        sets: &Sets,
        cases: &[Case],
        request: &Request,
    ) -> Result<Vec<(u32, Vec<f64>)>> {
        let mut blocks = Vec::new();
        for case in cases {
            let one = self.block(sets, case, 1)?;
            for _ in 0..request.warmup {
                self.time(sets, case, &one)?;
            }
            let about = self.time(sets, case, &one)?;
            let calls = request.iters.min((BLOCK_US / about.max(1.0)) as u32).max(1);
            blocks.push(self.block(sets, case, calls)?);
        }
        let mut times: Vec<(u32, Vec<f64>)> = blocks.iter().map(|b| (b.calls, Vec::new())).collect();
        let mut order: Vec<usize> = (0..cases.len()).collect();
        let mut drawn = Drawn::new();
        // The first round is a warm-up.
        for round in 0..=request.repeats {
            drawn.shuffle(&mut order);
            for i in &order {
                let time = self.time(sets, &cases[*i], &blocks[*i])?;
                if round > 0 {
                    times[*i].1.push(time);
                }
            }
        }
        Ok(times)
    }

    /// Checks the results of cases, first with whole numbers, for which every element is compared,
    /// then with random numbers.
    pub fn check(&self, sets: &Sets, cases: &mut [Case]) -> Result<()> {
        let (stream, set) = (&self.stream, sets.at(0)?);
        let mut found = vec![Checked::default(); cases.len()];
        let first = sets.data.result(&self.device, &sets.problem)?;
        for values in [Values::Whole, Values::Real] {
            sets.data.fill(set, values, stream)?;
            let expected = |scales| Expected::of(&sets.problem, scales, set, values);
            let own = expected(sets.scales);
            let other = cases.iter().find(|c| c.scales != sets.scales).map(|c| expected(c.scales));
            let same = |case: &Case| case.scales == sets.scales;
            let leader = cases.iter().position(same);
            for (i, case) in cases.iter().enumerate() {
                // Elements that are not written read as NaN.
                set.d.fill(0xff, stream)?;
                case.call(0, sets, stream)?;
                cuda::wait_for(stream)?;
                let expected = other.as_ref().filter(|_| !same(case)).unwrap_or(&own);
                let (wrong, of, one) = expected.check(&sets.problem, &set.d, stream)?;
                found[i].wrong.0 += wrong;
                found[i].wrong.1 += of;
                found[i].first = found[i].first.take().or(one);
                match values {
                    Values::Whole if leader == Some(i) => set.d.copy_to(&first, stream)?,
                    Values::Whole if same(case) => {
                        found[i].differ = sets.data.differing(&first, &set.d, stream)?.0;
                    }
                    _ => {}
                }
            }
        }
        cases.iter_mut().zip(found).for_each(|(case, found)| case.checked = Some(found));
        Ok(())
    }
}

/// Whether the error means that this contender does not support a problem, while others may.
fn refused(e: &BenchError) -> bool {
    use weft::gpu::GpuError;
    use weft_runtime::error::{CUBLAS, GEMM};
    matches!(e, BenchError::Gpu(GpuError::Runtime(e)) if [CUBLAS, GEMM].contains(&e.code))
}

fn row(sets: &Sets, case: &Case, iters: u32, times: &[f64]) -> Row {
    let time_us = Quartiles::of(times);
    let (mut plan, mut by, mut defines, mut algorithm) = (None, None, None, None);
    let contender = match &case.call {
        Call::Ours { plan: chosen, by: why, .. } => {
            (plan, by) = (Some(*chosen), Some(*why));
            OURS
        }
        Call::Own { name, defines: given, .. } => {
            defines = Some(given.clone());
            name
        }
        Call::Cublas { place, .. } => {
            algorithm = Some(*place);
            if case.scales == sets.scales { CUBLAS } else { CUBLAS_MATRICES }
        }
    };
    let checked = case.checked.clone();
    Row {
        problem: sets.problem,
        contender: contender.into(),
        plan,
        by,
        defines,
        algorithm,
        iters,
        repeats: times.len() as u32,
        sets: sets.all.len() as u32,
        time_us,
        tflops: sets.problem.shape.flops() / time_us.median / 1e6,
        of_cublas: None,
        of_matrices: None,
        wrong: checked.as_ref().map(|c| c.wrong),
        differ: checked.as_ref().map(|c| c.differ),
        first_wrong: checked.and_then(|c| c.first),
    }
}
