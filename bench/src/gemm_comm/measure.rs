//! The measurement of products with communication, on every PE.

use super::report::compare;
use super::{Contender, Report, Request, Row, Wrong};
use crate::BenchError;
use crate::gemm::data::{Data, Values, rounded, samples, value};
use crate::report::Spread;
use crate::rounds::{Call, Rounds, Timed};
use crate::start::StartLine;
use crate::torch::Torch;
use std::time::SystemTime;
use weft::collective::{Collectives, Flat};
use weft::gemm::{Choice, Epilogue, Form, Fused, Problem, Shape};
use weft_lang::evaluate::unit_roundoff;
use weft_run::array::read_number;
use weft_runtime::cuda::{self, Event};
use weft_runtime::launch::AsArgument;
use weft_runtime::nccl::{self, Communicator};
use weft_runtime::{DeviceTensor, Element, Reduce, Stream, SymmetricTensor, World, cublas};

type Result<T> = std::result::Result<T, BenchError>;
type Read<'a> = Box<dyn Fn(&Stream) -> Result<Vec<u8>> + 'a>;
type ReportSink<'a> = &'a mut dyn FnMut(&Report, &[Row]) -> std::io::Result<()>;

/// The number of algorithms of cuBLASLt's heuristic that are tried.
const ALGORITHMS: usize = 8;

pub(super) fn run<T: Element>(world: &World, request: &Request, done: ReportSink<'_>) -> Result<Report> {
    let bed = Harness::new(world, request)?;
    let mut report = bed.report()?;
    let mut tell = |report: &Report, rows: &[Row]| {
        done(report, rows).map_err(|e| BenchError::Local(format!("cannot write: {e}")))
    };
    tell(&report, &[])?;
    for shape in &request.shapes {
        let mut rows = bed.rows::<T>(*shape)?;
        compare(&mut rows);
        tell(&report, &rows)?;
        report.rows.extend(rows);
    }
    Ok(report)
}

/// The state that all measurements share.
struct Harness<'a> {
    world: &'a World,
    request: &'a Request,
    start: StartLine<'a>,
    collectives: Option<Collectives>,
    nccl: Option<Communicator>,
    torch: Option<Torch>,
}

/// The operands that all contenders read: this PE's part of A, and B. For an all-gather, A has the
/// rows of this PE.
struct Operands<T: Element> {
    a: DeviceTensor<T>,
    b: DeviceTensor<T>,
}

/// A contender that is ready to be called.
struct Case<'a> {
    name: &'static str,
    plan: String,
    invocation: Invocation<'a>,
}

/// How a contender is called.
enum Invocation<'a> {
    /// By calls on the world's stream.
    Calls {
        /// Copies operands to where the contender reads them.
        place: Call<'a>,
        call: Call<'a>,
        /// Reads the result on this PE; none if the contender does not compute a result over all
        /// PEs.
        read: Option<Read<'a>>,
    },
    /// By calls in PyTorch's process.
    Torch(&'a Torch),
}

impl<'a> Case<'a> {
    fn calls(
        name: &'static str,
        plan: String,
        place: Call<'a>,
        call: Call<'a>,
        read: Option<Read<'a>>,
    ) -> Case<'a> {
        Case { name, plan, invocation: Invocation::Calls { place, call, read } }
    }

    fn timed(&self) -> Timed<'_> {
        match &self.invocation {
            Invocation::Calls { place, call, .. } => Timed::Call(Some(place), call),
            Invocation::Torch(torch) => Timed::Process(*torch),
        }
    }
}

/// A result that a call writes and a check reads.
type Shared<T> = std::rc::Rc<T>;

fn nothing<'a>() -> Call<'a> {
    Box::new(|_| Ok(()))
}

/// cuBLASLt's product with its fastest algorithm.
struct Product {
    matmul: cublas::Matmul,
    algorithm: cublas::Algorithm,
}

impl Product {
    /// Chooses the algorithm that is the fastest on this GPU among those that the heuristic
    /// proposes.
    fn new(world: &World, problem: &Problem, operands: [&dyn AsArgument; 3]) -> Result<Product> {
        let Shape { m, n, k } = problem.shape;
        let product = cublas::Product { m, n, k, dtype: problem.dtype, out: problem.out, b_columns: false };
        let matmul = cublas::Matmul::new(world.device(), product)?;
        let (stream, mut best) = (world.stream(), None);
        let [a, b, d] = operands;
        for algorithm in matmul.algorithms(ALGORITHMS)? {
            // The GPU may still reject an algorithm that the heuristic proposes.
            if matmul.launch(&algorithm, (a, b, d), stream).is_err() {
                continue;
            }
            let begin = Event::record(stream)?;
            (0..5).try_for_each(|_| matmul.launch(&algorithm, (a, b, d), stream))?;
            let us = begin.elapsed_us(&Event::record(stream)?)?;
            if best.as_ref().is_none_or(|(least, _)| us < *least) {
                best = Some((us, algorithm));
            }
        }
        let none = || BenchError::Request("cuBLASLt returned no algorithm that works".into());
        let (_, algorithm) = best.ok_or_else(none)?;
        Ok(Product { matmul, algorithm })
    }

    fn launch(
        &self,
        operands: (&dyn AsArgument, &dyn AsArgument, &dyn AsArgument),
        stream: &Stream,
    ) -> Result<()> {
        Ok(self.matmul.launch(&self.algorithm, operands, stream)?)
    }
}

/// Puts a collective on a stream.
fn nccl_collective<T: Element>(
    form: Form,
    nccl: &Communicator,
    (to, from): (&nccl::Tensor<T>, &nccl::Tensor<T>),
    s: &Stream,
) -> Result<()> {
    match form {
        Form::AllGather => nccl.all_gather(to, from, s)?,
        Form::ReduceScatter => nccl.reduce_scatter(Reduce::Sum, to, from, s)?,
        Form::AllReduce => nccl.all_reduce(Reduce::Sum, to, from, s)?,
        Form::AllToAll => nccl.all_to_all(to, from, s)?,
    }
    Ok(())
}

fn own_collective(
    form: Form,
    ours: &Collectives,
    (to, from): (&dyn AsArgument, &dyn AsArgument),
    s: &Stream,
) -> Result<()> {
    match form {
        Form::AllGather => ours.all_gather(from, Some(to), s)?,
        Form::ReduceScatter => ours.reduce_scatter(from, Some(to), Reduce::Sum, s)?,
        Form::AllReduce => ours.allreduce(from, Some(to), Reduce::Sum, s)?,
        Form::AllToAll => ours.all_to_all(from, Some(to), s)?,
    }
    Ok(())
}

impl<'a> Harness<'a> {
    fn new(world: &'a World, request: &'a Request) -> Result<Harness<'a>> {
        let has = |c: Contender| request.contenders.contains(&c);
        let collectives = if has(Contender::Ours) { Some(Collectives::new(world)?) } else { None };
        let nccl = if has(Contender::Nccl) { Some(Communicator::over(world)?) } else { None };
        // Steps that may fail on one PE alone come before allocations that all PEs must free
        // together.
        let torch = match has(Contender::Torch) {
            true => Some(Torch::with_own_operands(world, request.dtype, request.graph)?),
            false => None,
        };
        Ok(Harness { world, request, start: StartLine::new(world)?, collectives, nccl, torch })
    }

    /// A report without rows.
    fn report(&self) -> Result<Report> {
        let Request { form, graph, repeats, contenders, rows, .. } = self.request;
        let ours = |c: &Contender| matches!(c, Contender::Auto | Contender::Fused(_));
        let cublas = !contenders.iter().all(ours);
        Ok(Report {
            warpweft: env!("CARGO_PKG_VERSION").into(),
            date: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
            command: std::env::args().collect(),
            form: *form,
            rows_of_pes: rows.clone(),
            n_pes: self.world.n_pes(),
            gpu: self.world.device().name()?,
            cublas: if cublas { Some(cublas::installed()?.0.to_string()) } else { None },
            nccl: self.nccl.as_ref().map(|n| n.version().to_string()),
            torch: self.torch.as_ref().map(|t| t.version.clone()),
            graph: *graph,
            repeats: *repeats,
            rows: Vec::new(),
        })
    }

    /// Rows of a shape, one for each contender.
    fn rows<T: Element>(&self, shape: Shape) -> Result<Vec<Row>> {
        let problem = self.request.problem(shape, self.world.n_pes())?;
        let data = Data::new(self.world.device(), &problem)?;
        let operands = self.operands::<T>(&problem)?;
        let contenders = self.request.contenders.iter();
        let cases = contenders.map(|c| match c {
            Contender::Auto => self.fused(&problem, None, &operands),
            Contender::Fused(choice) => self.fused(&problem, Some(*choice), &operands),
            Contender::Product => self.product(&problem, &operands),
            Contender::Ours => self.ours(&problem, &operands),
            Contender::Nccl => self.with_nccl(&problem, &operands),
            Contender::Torch => self.with_torch(&problem, &operands),
        });
        let cases = cases.collect::<Result<Vec<_>>>()?;
        let mut checked = vec![None; cases.len()];
        if self.request.check {
            for values in [Values::Whole, Values::Real] {
                self.fill(&problem, &operands, &data, values)?;
                for (case, found) in cases.iter().zip(&mut checked) {
                    self.check(&problem, case, values, found)?;
                }
            }
        }
        self.fill(&problem, &operands, &data, Values::Real)?;
        let Request { iters, warmup, repeats, graph, .. } = *self.request;
        let timed: Vec<_> = cases.iter().map(Case::timed).collect();
        let times = Rounds { iters, warmup, repeats, graph }.times(&self.start, &timed)?;
        let flops = problem.shape.flops();
        let row = |((case, time), checked): ((&Case<'_>, Spread), Option<Wrong>)| Row {
            shape,
            name: case.name.into(),
            plan: case.plan.clone(),
            tflops: flops / time.median / 1e6,
            time_us: time,
            of_product: None,
            of_nccl: None,
            of_ours: None,
            of_torch: None,
            checked,
        };
        Ok(cases.iter().zip(times).zip(checked).map(row).collect())
    }

    /// The number of rows for which each PE has memory: an equal part of all rows, or the most rows of a PE.
    fn rows_of_a_pe(&self, problem: &Problem) -> u64 {
        let equal = problem.shape.m.div_ceil(u64::from(self.world.n_pes()));
        self.request.rows.iter().copied().max().unwrap_or(equal)
    }

    /// The first row of a PE among the rows of all PEs, and its number of rows.
    fn rows_of(&self, problem: &Problem, pe: u32) -> (u64, u64) {
        let rows = &self.request.rows;
        if let Some(own) = rows.get(pe as usize) {
            return (rows.iter().take(pe as usize).sum(), *own);
        }
        let (m, part) = (problem.shape.m, self.rows_of_a_pe(problem));
        let first = (u64::from(pe) * part).min(m);
        (first, part.min(m - first))
    }

    /// The extents of A on a PE, of B, and of D.
    fn extents(&self, problem: &Problem) -> [[usize; 2]; 3] {
        let (Shape { m, n, k }, part) = (problem.shape, self.rows_of_a_pe(problem));
        let (a, d) = match self.request.form {
            Form::AllGather => (part, m),
            Form::ReduceScatter => (m, part),
            Form::AllReduce => (m, m),
            Form::AllToAll => (m, part * u64::from(self.world.n_pes())),
        };
        [[a, k], [n, k], [d, n]].map(|extents| extents.map(|n| usize::try_from(n).unwrap_or(usize::MAX)))
    }

    fn operands<T: Element>(&self, problem: &Problem) -> Result<Operands<T>> {
        let [a, b, _] = self.extents(problem);
        let device = self.world.device();
        Ok(Operands { a: DeviceTensor::alloc(device, a)?, b: DeviceTensor::alloc(device, b)? })
    }

    /// The seeds of a PE's A and B.
    fn seeds(pe: u32) -> [u32; 2] {
        [2 * pe + 1, 2 * pe + 2]
    }

    fn fill<T: Element>(
        &self,
        problem: &Problem,
        operands: &Operands<T>,
        data: &Data,
        values: Values,
    ) -> Result<()> {
        let [a, b, _] = self.extents(problem).map(|[rows, columns]| (rows * columns) as u64);
        let [seed, other] = Harness::seeds(self.world.my_pe());
        data.fill_one(&operands.a, a, (seed, values), self.world.stream())?;
        data.fill_one(&operands.b, b, (other, values), self.world.stream())?;
        cuda::wait_for(self.world.stream())?;
        Ok(self.world.wait_for_all()?)
    }

    /// The contender of warpweft: one launch or a sequence of launches, or an automatic choice.
    fn fused<'c, T: Element>(
        &'c self,
        problem: &Problem,
        choice: Option<Choice>,
        operands: &'c Operands<T>,
    ) -> Result<Case<'c>> {
        let (form, world) = (self.request.form, self.world);
        let (rows, none, team) = (&self.request.rows[..], Epilogue::default(), world.team());
        let fused = match (choice, rows.is_empty()) {
            (Some(choice), true) => Fused::new(world, team, form, *problem, choice)?,
            (Some(choice), false) => Fused::uneven(world, team, form, *problem, none, rows, choice)?,
            (None, true) => Fused::auto(world, team, form, *problem)?,
            (None, false) => Fused::auto_uneven(world, team, form, *problem, none, rows)?,
        };
        let [_, _, d] = self.extents(problem);
        let Operands { a, b } = operands;
        let name = choice.map_or(Contender::Auto, Contender::Fused).name();
        let plan = fused.choice().text(form);
        if fused.choice().is_result_symmetric(form) {
            let to: Shared<SymmetricTensor<T>> = world.tensor(d)?.into();
            let result = to.clone();
            let call: Call<'c> = Box::new(move |s| Ok(fused.launch(s, a, b, &Flat(&*to))?));
            let read: Read<'c> = Box::new(move |s| Ok(result.to_bytes(s)?));
            return Ok(Case::calls(name, plan, nothing(), call, Some(read)));
        }
        let to: Shared<DeviceTensor<T>> = DeviceTensor::alloc(world.device(), d)?.into();
        let result = to.clone();
        let read: Read<'c> = Box::new(move |s| Ok(result.to_bytes(s)?));
        if form != Form::AllGather {
            let call: Call<'c> = Box::new(move |s| Ok(fused.launch(s, a, b, &Flat(&*to))?));
            return Ok(Case::calls(name, plan, nothing(), call, Some(read)));
        }
        let (part, me) = (a.len(), world.my_pe() as usize);
        let x: SymmetricTensor<T> = world.tensor(part * world.n_pes() as usize)?;
        let own = x.slice(me * part..(me + 1) * part)?;
        let place: Call<'c> = Box::new(move |s| Ok(own.copy_from_bytes(&a.to_bytes(s)?, s)?));
        let call: Call<'c> = Box::new(move |s| Ok(fused.launch(s, &Flat(&x), b, &*to)?));
        Ok(Case::calls(name, plan, place, call, Some(read)))
    }

    /// The product alone, with operands as they are after all communication.
    fn product<'c, T: Element>(&'c self, problem: &Problem, operands: &'c Operands<T>) -> Result<Case<'c>> {
        let device = self.world.device();
        let Shape { m, n, k } = problem.shape;
        let d: DeviceTensor<T> = DeviceTensor::alloc(device, (m * n) as usize)?;
        let all = match self.request.form {
            Form::AllGather => {
                let all: DeviceTensor<T> = DeviceTensor::alloc(device, (m * k) as usize)?;
                let data = Data::new(device, problem)?;
                data.fill_one(&all, m * k, (1, Values::Real), self.world.stream())?;
                Some(all)
            }
            _ => None,
        };
        let Operands { a, b } = operands;
        let product = Product::new(self.world, problem, [all.as_ref().unwrap_or(a), b, &d])?;
        let call: Call<'c> = Box::new(move |s| product.launch((all.as_ref().unwrap_or(a), b, &d), s));
        let name = Contender::Product.name();
        Ok(Case::calls(name, String::new(), nothing(), call, None))
    }

    /// The elements of the tensor that the product of a sequence reads or writes, and of the other
    /// side of the collective.
    fn sides<T: Element>(&self, problem: &Problem, operands: &Operands<T>) -> Result<(usize, usize)> {
        let Shape { m, n, k } = problem.shape;
        let shared_out = self.request.form != Form::AllReduce;
        if shared_out && !m.is_multiple_of(u64::from(self.world.n_pes())) {
            let message = format!(
                "{m} rows cannot be divided evenly over the PEs, which the collective of a sequence needs"
            );
            return Err(BenchError::Request(message));
        }
        let [_, _, [rows, columns]] = self.extents(problem);
        Ok(match self.request.form {
            Form::AllGather => ((m * k) as usize, operands.a.len()),
            _ => ((m * n) as usize, rows * columns),
        })
    }

    /// cuBLASLt's product and warpweft's collective.
    fn ours<'c, T: Element>(&'c self, problem: &Problem, operands: &'c Operands<T>) -> Result<Case<'c>> {
        let (world, form) = (self.world, self.request.form);
        let missing = || BenchError::Request("the collectives of warpweft were not prepared".into());
        let ours = self.collectives.as_ref().ok_or_else(missing)?;
        let (whole, part) = self.sides(problem, operands)?;
        let [_, _, [rows, columns]] = self.extents(problem);
        let (whole, part): (SymmetricTensor<T>, SymmetricTensor<T>) =
            (world.tensor(whole)?, world.tensor(part)?);
        let Operands { a, b } = operands;
        let d: Shared<DeviceTensor<T>> = DeviceTensor::alloc(world.device(), rows * columns)?.into();
        let (name, plan) = (Contender::Ours.name(), String::new());
        if form == Form::AllGather {
            let part = Shared::new(part);
            let own = part.clone();
            let product = Product::new(world, problem, [&whole, b, &*d])?;
            let result = d.clone();
            let place: Call<'c> = Box::new(move |s| Ok(own.copy_from_bytes(&a.to_bytes(s)?, s)?));
            let call: Call<'c> = Box::new(move |s| {
                own_collective(form, ours, (&whole, &*part), s)?;
                product.launch((&whole, b, &*d), s)
            });
            let read: Read<'c> = Box::new(move |s| Ok(result.to_bytes(s)?));
            return Ok(Case::calls(name, plan, place, call, Some(read)));
        }
        let product = Product::new(world, problem, [a, b, &whole])?;
        let part = Shared::new(part);
        let result = part.clone();
        let call: Call<'c> = Box::new(move |s| {
            product.launch((a, b, &whole), s)?;
            own_collective(form, ours, (&*part, &whole), s)
        });
        let read: Read<'c> = Box::new(move |s| Ok(result.to_bytes(s)?));
        Ok(Case::calls(name, plan, nothing(), call, Some(read)))
    }

    /// cuBLASLt's product and NCCL's collective.
    fn with_nccl<'c, T: Element>(&'c self, problem: &Problem, operands: &'c Operands<T>) -> Result<Case<'c>> {
        let (world, form) = (self.world, self.request.form);
        let missing = || BenchError::Request("NCCL was not prepared".into());
        let nccl = self.nccl.as_ref().ok_or_else(missing)?;
        let (whole, part) = self.sides(problem, operands)?;
        let [_, _, [rows, columns]] = self.extents(problem);
        let (whole, part): (nccl::Tensor<T>, nccl::Tensor<T>) = (nccl.plain(whole)?, nccl.plain(part)?);
        let Operands { a, b } = operands;
        let d: Shared<DeviceTensor<T>> = DeviceTensor::alloc(world.device(), rows * columns)?.into();
        let (name, plan) = (Contender::Nccl.name(), String::new());
        let result = d.clone();
        if form == Form::AllGather {
            let part = Shared::new(part);
            let own = part.clone();
            let product = Product::new(world, problem, [&whole, b, &*d])?;
            let place: Call<'c> = Box::new(move |s| Ok(own.load(a, s)?));
            let call: Call<'c> = Box::new(move |s| {
                nccl_collective(form, nccl, (&whole, &part), s)?;
                product.launch((&whole, b, &*d), s)
            });
            let read: Read<'c> = Box::new(move |s| Ok(result.to_bytes(s)?));
            return Ok(Case::calls(name, plan, place, call, Some(read)));
        }
        let product = Product::new(world, problem, [a, b, &whole])?;
        let part = Shared::new(part);
        let sum = part.clone();
        let call: Call<'c> = Box::new(move |s| {
            product.launch((a, b, &whole), s)?;
            nccl_collective(form, nccl, (&part, &whole), s)
        });
        let read: Read<'c> = Box::new(move |s| {
            sum.store(&result, s)?;
            Ok(result.to_bytes(s)?)
        });
        Ok(Case::calls(name, plan, nothing(), call, Some(read)))
    }

    /// PyTorch's fused product, in its own process.
    fn with_torch<'c, T: Element>(&'c self, problem: &Problem, operands: &Operands<T>) -> Result<Case<'c>> {
        self.sides(problem, operands)?;
        let missing = || BenchError::Request("PyTorch was not started".into());
        let torch = self.torch.as_ref().ok_or_else(missing)?;
        let rows = match self.request.form {
            Form::AllGather => self.rows_of_a_pe(problem),
            _ => problem.shape.m,
        };
        let seeds = Harness::seeds(self.world.my_pe());
        torch.multiply(self.world, self.request.form, (rows, problem.shape), seeds)?;
        Ok(Case { name: Contender::Torch.name(), plan: String::new(), invocation: Invocation::Torch(torch) })
    }

    /// Calls a case twice, and compares samples of its result. This call is *collective*.
    fn check(
        &self,
        problem: &Problem,
        case: &Case<'_>,
        values: Values,
        found: &mut Option<Wrong>,
    ) -> Result<()> {
        let (world, stream) = (self.world, self.world.stream());
        let places = self.places(problem);
        let elements = match &case.invocation {
            Invocation::Calls { read: None, .. } => return Ok(()),
            Invocation::Calls { place, call, read: Some(read) } => {
                place(stream)?;
                cuda::wait_for(stream)?;
                world.wait_for_all()?;
                call(stream)?;
                call(stream)?;
                cuda::wait_for(stream)?;
                elements(problem, &read(stream)?, &places)
            }
            Invocation::Torch(torch) => torch.sample(values == Values::Whole, &places)?,
        };
        let own = self.compare(problem, &places, &elements, values);
        found.get_or_insert_default().add(world, &own)
    }

    /// The positions of this PE's result that are checked.
    fn places(&self, problem: &Problem) -> Vec<(u64, u64)> {
        let Shape { m, n, k } = problem.shape;
        let (part, own) = (self.rows_of_a_pe(problem), self.rows_of(problem, self.world.my_pe()).1);
        let rows = match self.request.form {
            Form::ReduceScatter => own,
            Form::AllToAll => part * u64::from(self.world.n_pes()),
            Form::AllGather | Form::AllReduce => m,
        };
        let seed = self.world.my_pe() + 1;
        let mut places =
            if own == 0 && rows != m { Vec::new() } else { samples(Shape { m: rows, n, k }, seed) };
        // Each PE sends as many rows as this PE has, to a part that may be larger.
        places.retain(|(row, _)| self.request.form != Form::AllToAll || row % part < own);
        places
    }

    /// The index of this PE's first row among the rows of the sum.
    fn first_row(&self, problem: &Problem) -> u64 {
        match self.request.form {
            Form::ReduceScatter | Form::AllToAll => self.rows_of(problem, self.world.my_pe()).0,
            Form::AllGather | Form::AllReduce => 0,
        }
    }

    /// Compares samples of this PE's result with the product in float64. A sum may differ by one
    /// unit roundoff of f32 for each addition, relative to the sum of magnitudes; the summands of
    /// PEs are first rounded to the type of the result.
    fn compare(&self, problem: &Problem, places: &[(u64, u64)], elements: &[f64], values: Values) -> Wrong {
        let (dtype, form, pes) = (problem.out, self.request.form, self.world.n_pes());
        let k = problem.shape.k;
        let (me, first, part) = (self.world.my_pe(), self.first_row(problem), self.rows_of_a_pe(problem));
        let has = |pe: u32, row: u64| {
            let (first, rows) = self.rows_of(problem, pe);
            (first..first + rows).contains(&row).then(|| (pe, me, row - first))
        };
        let element = |at: u64, seed: u32| rounded(problem.dtype, value(at, seed, values));
        let mut found = Wrong { of: places.len() as u64, ..Wrong::default() };
        for (i, (row, column)) in places.iter().copied().enumerate() {
            // The PEs whose rows of A and of B are multiplied, and the row on that PE.
            let pairs: Vec<(u32, u32, u64)> = match form {
                Form::AllGather => (0..pes).filter_map(|pe| has(pe, row)).collect(),
                Form::AllToAll => {
                    let from = (row / part) as u32;
                    vec![(from, from, first + row % part)]
                }
                _ => (0..pes).map(|pe| (pe, pe, first + row)).collect(),
            };
            let (mut sum, mut products, mut addends) = (0.0, 0.0, 0.0);
            for (of_a, of_b, at) in pairs {
                let seeds = (Harness::seeds(of_a)[0], Harness::seeds(of_b)[1]);
                let both = (0..k).map(|l| element(at * k + l, seeds.0) * element(column * k + l, seeds.1));
                let (one, magnitude) = both.fold((0.0, 0.0), |(s, m), x| (s + x, m + x.abs()));
                (sum, products, addends) = (sum + one, products + magnitude, addends + f64::abs(one));
            }
            let unit = unit_roundoff(dtype);
            let is = elements.get(i).copied().unwrap_or(f64::NAN);
            let bound = k as f64 * 2.0 * unit_roundoff(weft_runtime::DType::F32) * products
                + f64::from(pes) * unit * addends
                + 2.0 * unit * f64::abs(sum);
            let exact = values == Values::Whole && addends <= 256.0;
            let right = if exact { is == rounded(dtype, sum) } else { (is - sum).abs() <= bound };
            if !right {
                found.elements += 1;
                found.first = found.first.or(Some((me, row, column, is, sum)));
            }
        }
        found
    }
}

/// The elements at these places of a result whose rows have n columns.
fn elements(problem: &Problem, result: &[u8], places: &[(u64, u64)]) -> Vec<f64> {
    let size = problem.out.bytes() as usize;
    let element = |(row, column): &(u64, u64)| {
        let at = (row * problem.shape.n + column) as usize * size;
        result.get(at..at + size).map_or(f64::NAN, |bytes| read_number(problem.out, bytes).as_f64())
    };
    places.iter().map(element).collect()
}
