//! The measurement of mixtures of experts, on every PE.

use super::{Contender, Form, Report, Request, Row, Variant, Wrong, products};
use crate::BenchError;
use crate::gemm::data::{Data, Values, rounded, samples, value};
use crate::report::NvLink;
use crate::rounds::{Call, Rounds, Timed};
use crate::start::StartLine;
use std::time::SystemTime;
use weft::gemm::{self, Shape};
use weft::moe::{Moe, Problem, Routes};
use weft_lang::evaluate::unit_roundoff;
use weft_run::array::read_number;
use weft_runtime::cuda::{self};
use weft_runtime::nccl::{self, Communicator};
use weft_runtime::{DType, DeviceTensor, Element, World, cublas, machine};

type Result<T> = std::result::Result<T, BenchError>;
type ReportSink<'a> = &'a mut dyn FnMut(&Report, &[Row]) -> std::io::Result<()>;

pub(super) fn run<T: Element>(world: &World, request: &Request, done: ReportSink<'_>) -> Result<Report> {
    let nccl = match request.contenders.contains(&Contender::Nccl) {
        true => Some(Communicator::over(world)?),
        false => None,
    };
    let transfers = request.contenders.iter().any(Contender::is_transfer);
    let driver = if transfers { machine::driver().ok() } else { None };
    let link = driver.and_then(|driver| NvLink::of_device(&driver, world.device()));
    let bed = Harness { world, request, start: StartLine::new(world)?, nccl, link };
    let mut report = Report {
        warpweft: env!("CARGO_PKG_VERSION").into(),
        date: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
        command: std::env::args().collect(),
        n_pes: world.n_pes(),
        gpu: world.device().name()?,
        nccl: bed.nccl.as_ref().map(|n| n.version().to_string()),
        graph: request.graph,
        repeats: request.repeats,
        rows: Vec::new(),
    };
    let mut tell = |report: &Report, rows: &[Row]| {
        done(report, rows).map_err(|e| BenchError::Local(format!("cannot write: {e}")))
    };
    tell(&report, &[])?;
    for problem in &request.problems {
        let rows = bed.rows::<T>(problem)?;
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
    nccl: Option<Communicator>,
    /// The links of this PE's GPU, if transfers alone are timed.
    link: Option<NvLink>,
}

/// The operands of a PE for a problem.
struct Operands<T: Element> {
    x: DeviceTensor<T>,
    b: DeviceTensor<T>,
    ids: DeviceTensor<i32>,
    live: DeviceTensor<i32>,
    gates: DeviceTensor<f32>,
    out: DeviceTensor<T>,
}

fn count(n: u64) -> usize {
    usize::try_from(n).unwrap_or(usize::MAX)
}

/// The expert that a token's choice names. All experts get equally many entries if the number of
/// tokens is a multiple of the number of experts.
fn expert(problem: &Problem, token: u64, choice: u64) -> u64 {
    let experts = u64::from(problem.experts);
    (token + choice * (experts / u64::from(problem.choices)).max(1)) % experts
}

impl<'a> Harness<'a> {
    /// Rows of a problem, one for each contender.
    fn rows<T: Element>(&self, problem: &Problem) -> Result<Vec<Row>> {
        let operands = self.operands::<T>(problem)?;
        let calls = self.request.contenders.iter().map(|c| match c {
            Contender::Ours(variant) if variant.is_product() => {
                products::grouped(self.world, problem, variant, &operands.b)
            }
            Contender::OneProduct => products::one::<T>(self.world, problem),
            Contender::Ours(variant) => Ok(ours(variant.layer(self.world, *problem)?, variant, &operands)),
            Contender::Nccl => self.with_nccl(problem, &operands),
        });
        let calls = calls.collect::<Result<Vec<_>>>()?;
        let mut checked = vec![None; calls.len()];
        for ((call, contender), found) in calls.iter().zip(&self.request.contenders).zip(&mut checked) {
            if self.request.check && matches!(contender, Contender::Ours(variant) if variant.is_layer()) {
                *found = Some(self.check(problem, call, &operands)?);
            }
        }
        let Request { iters, warmup, repeats, graph, .. } = *self.request;
        let timed: Vec<_> = calls.iter().map(|call| Timed::Call(None, call)).collect();
        let times = Rounds { iters, warmup, repeats, graph }.times(&self.start, &timed)?;
        let of = |i: usize| (&self.request.contenders[i], &times[i]);
        let peer =
            (0..calls.len()).map(of).find(|(c, _)| !matches!(c, Contender::Ours(_))).map(|(_, t)| t.median);
        let entries = (problem.tokens * u64::from(problem.choices)) as f64;
        let flops = 2.0 * entries * (problem.hidden * problem.columns) as f64;
        let pes = f64::from(self.world.n_pes());
        let row_bytes = problem.hidden * u64::from(problem.dtype.bytes())
            + problem.columns * u64::from(problem.out.bytes());
        let bytes = entries * (pes - 1.0) / pes * row_bytes as f64;
        let row = |(i, checked): (usize, Option<Wrong>)| {
            let (contender, time) = of(i);
            let (plan, bytes, of_link) = match contender {
                Contender::Ours(variant) if variant.is_transfer() => {
                    let sent = sent_tokens(problem, (self.world.my_pe(), self.world.n_pes()));
                    let bytes = variant.bytes(problem, sent);
                    let of_link = self.link.map(|link| bytes / time.median / 1e3 / link.gbps);
                    (variant.to_string(), bytes, of_link)
                }
                Contender::Ours(variant) => (variant.to_string(), bytes, None),
                _ => (String::new(), bytes, None),
            };
            Row {
                problem: problem.to_string(),
                name: contender.name().into(),
                plan,
                tflops: flops / time.median / 1e6,
                gb_per_s: bytes / time.median / 1e3,
                time_us: *time,
                of_peer: peer.map(|peer| time.median / peer),
                of_link,
                checked,
            }
        };
        Ok(checked.into_iter().enumerate().map(row).collect())
    }

    fn operands<T: Element>(&self, problem: &Problem) -> Result<Operands<T>> {
        let (world, stream) = (self.world, self.world.stream());
        let Problem { tokens, hidden, columns, experts, choices, dtype, .. } = *problem;
        let local = u64::from(experts / world.n_pes());
        let routes = (0..tokens).flat_map(|t| (0..u64::from(choices)).map(move |c| (t, c)));
        let ids: Vec<i32> = routes.map(|(t, c)| expert(problem, t, c) as i32).collect();
        let shape = [count(tokens), choices as usize];
        let operands = Operands {
            x: DeviceTensor::alloc(world.device(), [shape[0], count(hidden)])?,
            b: DeviceTensor::alloc(world.device(), [count(local), count(columns), count(hidden)])?,
            ids: DeviceTensor::zeros(shape, stream)?,
            live: DeviceTensor::from_slice(&[tokens as i32], stream)?,
            gates: DeviceTensor::zeros(shape, stream)?,
            out: DeviceTensor::zeros([shape[0], count(columns)], stream)?,
        };
        operands.ids.copy_from(&ids, stream)?;
        operands.gates.copy_from(&vec![1.0 / choices as f32; ids.len()], stream)?;
        let data = Data::new(
            world.device(),
            &gemm::Problem::new(Shape { m: tokens, n: columns, k: hidden }, dtype),
        )?;
        let [of_x, of_b] = seeds(world.my_pe());
        data.fill_one(&operands.x, tokens * hidden, (of_x, Values::Real), stream)?;
        data.fill_one(&operands.b, local * columns * hidden, (of_b, Values::Real), stream)?;
        cuda::wait_for(stream)?;
        world.wait_for_all()?;
        Ok(operands)
    }

    /// NCCL's all-to-alls, before and after one product for each expert.
    fn with_nccl<'c, T: Element>(&'c self, problem: &Problem, operands: &'c Operands<T>) -> Result<Call<'c>> {
        let missing = || BenchError::Request("NCCL was not prepared".into());
        let nccl = self.nccl.as_ref().ok_or_else(missing)?;
        let Problem { tokens, hidden, columns, experts, choices, dtype, out, .. } = *problem;
        let (entries, local) = (tokens * u64::from(choices), u64::from(experts / self.world.n_pes()));
        if !tokens.is_multiple_of(u64::from(experts)) {
            let message = format!("{tokens} tokens cannot be divided evenly over {experts} experts");
            return Err(BenchError::Request(message));
        }
        let rows = entries / local;
        let of_rows = |columns: u64| nccl.plain::<T>(count(entries * columns));
        let (sent, came, made, back): (nccl::Tensor<T>, _, _, nccl::Tensor<T>) =
            (of_rows(hidden)?, of_rows(hidden)?, of_rows(columns)?, of_rows(columns)?);
        let matrices = nccl.plain::<T>(count(local * columns * hidden))?;
        matrices.load(&operands.b, self.world.stream())?;
        let product = cublas::Product { m: rows, n: columns, k: hidden, dtype, out, b_columns: false };
        let matmul = cublas::Matmul::new(self.world.device(), product)?;
        let none = || BenchError::Request("cuBLASLt returned no algorithm".into());
        let algorithm = matmul.algorithms(1)?.into_iter().next().ok_or_else(none)?;
        let part = |columns: u64, l: u64| count(l * rows * columns)..count((l + 1) * rows * columns);
        let tensors = (0..local).map(|l| {
            let of_b = count(l * columns * hidden)..count((l + 1) * columns * hidden);
            Ok((came.slice(part(hidden, l))?, matrices.slice(of_b)?, made.slice(part(columns, l))?))
        });
        let tensors = tensors.collect::<Result<Vec<_>>>()?;
        Ok(Box::new(move |s| {
            nccl.all_to_all(&came, &sent, s)?;
            for (a, b, d) in &tensors {
                matmul.launch(&algorithm, (a, b, d), s)?;
            }
            Ok(nccl.all_to_all(&back, &made, s)?)
        }))
    }

    /// Makes two calls, and compares samples of the result. This call is *collective*.
    fn check<T: Element>(&self, problem: &Problem, call: &Call<'a>, operands: &Operands<T>) -> Result<Wrong> {
        let (world, stream) = (self.world, self.world.stream());
        call(stream)?;
        call(stream)?;
        cuda::wait_for(stream)?;
        let own = self.compare(problem, &operands.out.to_bytes(stream)?);
        let mut all = Wrong::default();
        all.add(world, &own)?;
        Ok(all)
    }

    /// Compares samples with float64. A product may differ by one unit roundoff of f32 for each
    /// addition, relative to the sum of magnitudes, and by its rounding to the type of results; the
    /// same holds for the result of a PE's experts for a token.
    fn compare(&self, problem: &Problem, result: &[u8]) -> Wrong {
        let (me, pes) = (self.world.my_pe(), self.world.n_pes());
        let Problem { tokens, hidden: k, columns: n, experts, choices, dtype, out, .. } = *problem;
        let local = u64::from(experts / pes);
        let element = |at: u64, seed: u32| rounded(dtype, value(at, seed, Values::Real));
        let places = samples(Shape { m: tokens, n, k }, me + 1);
        let mut found = Wrong { of: places.len() as u64, ..Wrong::default() };
        let gate = f64::from(1.0 / choices as f32);
        for (token, column) in places {
            let (mut sum, mut bound) = (0.0, 0.0);
            for choice in 0..u64::from(choices) {
                let e = expert(problem, token, choice);
                let of_b = seeds((e / local) as u32)[1];
                let row = (e % local * n + column) * k;
                let both = (0..k).map(|l| element(token * k + l, seeds(me)[0]) * element(row + l, of_b));
                let (one, magnitude) = both.fold((0.0, 0.0), |(s, m), x| (s + x, m + x.abs()));
                sum += gate * one;
                bound += gate
                    * (k as f64 * 2.0 * unit_roundoff(DType::F32) * magnitude
                        + 2.0 * unit_roundoff(out) * f64::abs(one) * 1.01);
            }
            bound += 2.0 * unit_roundoff(out) * f64::abs(sum);
            let size = out.bytes() as usize;
            let at = count(token * n + column) * size;
            let is = result.get(at..at + size).map_or(f64::NAN, |bytes| read_number(out, bytes).as_f64());
            if (is - sum).abs() > bound || is.is_nan() {
                found.elements += 1;
                found.first = found.first.or(Some((me, token, column, is, sum)));
            }
        }
        found
    }
}

/// The number of times that a token of the PE goes to another PE: once to each that has one of its experts.
fn sent_tokens(problem: &Problem, (me, pes): (u32, u32)) -> u64 {
    let local = u64::from(problem.experts / pes);
    let is_there = |token: u64, pe: u32| {
        (0..u64::from(problem.choices)).any(|c| expert(problem, token, c) / local == u64::from(pe))
    };
    let others = (0..pes).filter(|pe| *pe != me);
    others.map(|pe| (0..problem.tokens).filter(|token| is_there(*token, pe)).count() as u64).sum()
}

/// The launches of warpweft.
fn ours<'a, T: Element>(moe: Moe, variant: &Variant, operands: &'a Operands<T>) -> Call<'a> {
    let form = variant.form;
    Box::new(move |s| {
        let Operands { x, b, ids, live, gates, out } = operands;
        let routes = Routes { ids, live };
        match form {
            Form::Dispatch | Form::Exchange => moe.dispatch(s, x, &routes)?,
            Form::Apart => moe.experts(s, x, &routes, b)?,
            _ => return Ok(moe.layer(s, x, &routes, b, gates, out)?),
        }
        if form != Form::Dispatch {
            moe.combine(s, &routes, gates, out)?;
        }
        Ok(())
    })
}

/// The seeds of a PE's tokens and of its experts' matrices.
fn seeds(pe: u32) -> [u32; 2] {
    [2 * pe + 1, 2 * pe + 2]
}
