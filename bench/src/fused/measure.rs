//! The measurement, on every PE.

use super::report::compare;
use super::{
    Contender, Exchange, Form, Inputs, Outputs, Plan, ProgressSink, Report, Request, Row, Shape, Workspace,
    Wrong,
};
use crate::BenchError;
use crate::data;
use crate::report::Spread;
use crate::start::StartLine;
use crate::times::{Blocks, gather};
use crate::torch::norm::Norm;
use crate::torch::{self, Torch};
use std::time::SystemTime;
use weft::collective::{Collectives, Config, Links, Sums};
use weft::fused::tuning::Selector;
use weft::gpu::{GpuError, Grid, Kernel, target};
use weft::{KernelFile, Options};
use weft_ir::Scalar;
use weft_lang::elaborate::Define;
use weft_run::array::{Number, read_number, write_number};
use weft_runtime::launch::AsArgument;
use weft_runtime::launch::Lowering;
use weft_runtime::nccl::{self, Communicator};
use weft_runtime::{Barrier, DeviceTensor, Element, Reduce, Stream, SymmetricTensor, Team, World, cuda};

type Result<T> = std::result::Result<T, BenchError>;
type Call<'a> = Box<dyn Fn(&Stream) -> Result<()> + 'a>;

/// The epsilon that is added to the mean of squares.
const EPS: f32 = 1e-5;
/// The scale of results that are quantised without a scale for each token.
const SCALE: f32 = 0.02;
/// The rounds of a check, each with new data.
const ROUNDS: std::ops::RangeInclusive<u32> = 1..=2;
/// The number that takes the place of the PE in data that are the same on all PEs.
const RESIDUAL: u32 = 1000;
const WEIGHT: u32 = 1001;
const BIAS: u32 = 1002;

pub(super) fn run(world: &World, request: &Request, progress: ProgressSink<'_>) -> Result<Report> {
    request.examine()?;
    match (request.form.dtype, request.form.out) {
        (Scalar::BF16, Scalar::BF16) => measure::<half::bf16, half::bf16>(world, request, progress),
        (Scalar::BF16, _) => measure::<half::bf16, float8::F8E4M3>(world, request, progress),
        (_, Scalar::F16) => measure::<half::f16, half::f16>(world, request, progress),
        _ => measure::<half::f16, float8::F8E4M3>(world, request, progress),
    }
}

/// The state that all measurements share.
struct Harness<'a> {
    world: &'a World,
    team: Team,
    request: &'a Request,
    lowering: Lowering,
    start: StartLine<'a>,
    collectives: Option<Collectives>,
    nccl: Option<Communicator>,
    torch: Option<Torch>,
    barrier: Barrier,
    selector: Selector,
    links: Links,
    sms: u32,
}

/// The tensors for one number of tokens.
struct Tensors<T: Element, O: Element> {
    tokens: u32,
    x: SymmetricTensor<T>,
    sum: SymmetricTensor<T>,
    residual: SymmetricTensor<T>,
    weight: DeviceTensor<T>,
    out: DeviceTensor<O>,
    scale: DeviceTensor<f32>,
    norm: DeviceTensor<T>,
    /// The bias of LayerNorm; one element for RMSNorm, which has none.
    bias: DeviceTensor<T>,
    /// The operand and the result of NCCL's allreduce, in plain memory and in registered windows.
    plain: Option<[nccl::Tensor<T>; 2]>,
    windows: Option<[nccl::Tensor<T>; 2]>,
}

fn measure<T: Element, O: Element>(
    world: &World,
    request: &Request,
    progress: ProgressSink<'_>,
) -> Result<Report> {
    let harness = Harness::new(world, request)?;
    let mut report = harness.report()?;
    let mut written = |report: &Report, rows: &[Row]| {
        progress(report, rows).map_err(|e| BenchError::Request(format!("cannot write: {e}")))
    };
    written(&report, &[])?;
    for tokens in &request.tokens {
        let tensors = harness.tensors::<T, O>(*tokens)?;
        let rows = request.contenders.iter().map(|c| harness.row(*c, &tensors));
        let mut rows = rows.collect::<Result<Vec<_>>>()?;
        compare(&mut rows);
        written(&report, &rows)?;
        report.rows.extend(rows);
    }
    Ok(report)
}

impl<'a> Harness<'a> {
    fn new(world: &'a World, request: &'a Request) -> Result<Harness<'a>> {
        let (team, sms) = (world.team(), world.device().sm_count()?);
        let barrier = world.kernel_barrier(sms)?;
        let lowering = request.lowering.decide(barrier.buffer().multicast_address(&team).is_some());
        let has = |of: fn(&Contender) -> bool| request.contenders.iter().any(of);
        let collectives = match has(|c| matches!(c, Contender::Separate)) {
            true => {
                Some(Collectives::with(world, world.team(), Config::default().lowering(lowering.into()))?)
            }
            false => None,
        };
        let nccl = match has(|c| matches!(c, Contender::Nccl | Contender::NcclSymm)) {
            true => Some(Communicator::over(world)?),
            false => None,
        };
        let torch = match has(|c| matches!(c, Contender::FlashInfer)) {
            true => Some(Torch::with_own_operands(world, request.form.dtype, request.graph)?),
            false => None,
        };
        let start = StartLine::new(world)?;
        let links = collectives.as_ref().map_or(Links::H200, |c| *c.selector().links());
        let multicast = lowering == Lowering::Multimem;
        let selector = Selector::new(world.device(), world.n_pes(), multicast, links)?;
        let tables = world.all_gather_host(&selector.to_bytes())?;
        let selector = selector.with_bytes(tables.first().map_or(&[], |t| t));
        Ok(Harness {
            world,
            team,
            request,
            lowering,
            start,
            collectives,
            nccl,
            torch,
            barrier,
            selector,
            links,
            sms,
        })
    }

    /// A report without rows.
    fn report(&self) -> Result<Report> {
        let (major, minor) = cuda::driver_version()?;
        let Request { form, .. } = self.request;
        let own = match (form.per_token, form.group) {
            (true, _) => ", a scale a token".into(),
            (false, 0) => String::new(),
            (false, group) => format!(", a scale for {group} elements"),
        };
        let layer = if form.layer { ", LayerNorm" } else { "" };
        let both = if form.both { format!(" and {}", form.dtype) } else { String::new() };
        Ok(Report {
            warpweft: env!("CARGO_PKG_VERSION").into(),
            date: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
            command: std::env::args().collect(),
            n_pes: self.world.n_pes(),
            gpu: self.world.device().name()?,
            cuda: format!("{major}.{minor}"),
            nvshmem: self.world.nvshmem_version().map_or_else(|| "none".into(), |v| v.to_string()),
            nccl: self.nccl.as_ref().map(|n| n.version().to_string()),
            flashinfer: self.torch.as_ref().and_then(|_| torch::flashinfer().ok().map(str::to_owned)),
            lowering: self.lowering.to_string(),
            hidden: self.request.hidden,
            dtype: form.dtype.to_string(),
            out: format!("{}{own}{both}{layer}", form.out),
            graph: self.request.graph,
            iters: self.request.iters,
            repeats: self.request.repeats,
            rows: Vec::new(),
        })
    }

    fn tensors<T: Element, O: Element>(&self, tokens: u32) -> Result<Tensors<T, O>> {
        let (world, stream, form) = (self.world, self.world.stream(), self.request.form);
        let (rows, hidden) = (tokens as usize, self.request.hidden as usize);
        let shape = [rows, hidden];
        let two = |window: bool| -> Result<Option<[nccl::Tensor<T>; 2]>> {
            let wanted = self.request.contenders.iter().any(|c| match c {
                Contender::Nccl => !window,
                Contender::NcclSymm => window,
                _ => false,
            });
            let Some(nccl) = self.nccl.as_ref().filter(|_| wanted) else { return Ok(None) };
            let one = || if window { nccl.window(rows * hidden) } else { nccl.plain(rows * hidden) };
            Ok(Some([one()?, one()?]))
        };
        let weight = DeviceTensor::alloc(world.device(), hidden)?;
        weight.copy_from_bytes(&self.bytes(hidden, |c| self.weight(c)), stream)?;
        let biases = if form.layer { hidden } else { 1 };
        let bias = DeviceTensor::alloc(world.device(), biases)?;
        bias.copy_from_bytes(&self.bytes(biases, |c| self.bias(c)), stream)?;
        // One scale is given, or the kernel writes those of each row.
        let scales = form.scales(hidden);
        let scale = DeviceTensor::zeros(if scales > 0 { [rows, scales] } else { [1, 1] }, stream)?;
        scale.copy_from(&vec![SCALE; scale.len()], stream)?;
        Ok(Tensors {
            tokens,
            x: world.tensor(shape)?,
            sum: world.tensor(shape)?,
            residual: world.tensor(shape)?,
            weight,
            out: DeviceTensor::zeros(shape, stream)?,
            scale,
            norm: DeviceTensor::zeros(if form.both { shape } else { [1, 1] }, stream)?,
            bias,
            plain: two(false)?,
            windows: two(true)?,
        })
    }

    fn row<T: Element, O: Element>(&self, contender: Contender, t: &Tensors<T, O>) -> Result<Row> {
        // The check runs after many calls, so that it also covers the state that they leave behind.
        let (plan, time_us, first_wrong) = if let Some(torch) = &self.torch
            && matches!(contender, Contender::FlashInfer)
        {
            let (time, wrong) = self.flashinfer(torch, t.tokens)?;
            (None, time, wrong)
        } else {
            let (call, plan) = self.call(contender, t)?;
            let time = self.time(contender, t, &call)?;
            (plan, time, if self.request.check { self.check(contender, t, &call)? } else { None })
        };
        let elements = first_wrong.as_ref().map_or(0, |(_, wrong)| wrong.elements);
        Ok(Row {
            tokens: t.tokens,
            size: u64::from(t.tokens) * u64::from(self.request.hidden) * size_of::<T>() as u64,
            name: match (contender, &plan) {
                (Contender::Auto, Some(plan)) => format!("auto: {}", plan.kernel.name),
                _ => contender.name(),
            },
            ctas: plan.map(|plan| (plan.ctas, plan.split)),
            time_us,
            model_us: plan.map(|plan| {
                let row_bytes = self.request.hidden as usize * size_of::<T>();
                plan.predict(&self.shape(t.tokens, row_bytes), &self.links)
            }),
            of_nccl: None,
            of_separate: None,
            of_flashinfer: None,
            wrong: self.request.check.then_some(elements),
            first_wrong,
        })
    }

    /// FlashInfer's time, and the first wrong element.
    fn flashinfer(&self, torch: &Torch, tokens: u32) -> Result<(Spread, Option<(u32, Wrong)>)> {
        let Request { form, hidden, iters, warmup, repeats, .. } = *self.request;
        let none = || BenchError::Request("FlashInfer does not have this form of results".into());
        let form = Norm::form(&form).ok_or_else(none)?;
        torch.normalise(self.world, Norm { tokens, hidden, form, eps: EPS, scale: SCALE })?;
        let blocks = Blocks { calls: iters, before: warmup, blocks: repeats, cold: false };
        let times: Vec<_> = torch.norm_blocks(blocks)?.into_iter().map(|us| us / f64::from(iters)).collect();
        let time = Spread::over(&gather(self.world, &times)?);
        let wrong = if self.request.check { torch.compare_norms(*ROUNDS.end())? } else { None };
        Ok((time, self.first_wrong(wrong.as_ref())?))
    }

    fn compile(
        &self,
        (name, (file, text)): (&str, (&str, &str)),
        defines: Vec<(&'static str, Define)>,
    ) -> Result<Kernel> {
        let mut options = Options::new(target(self.world.device())?);
        options.kernel = Some(name.into());
        options.lowering = self.lowering.into();
        options.defines = defines.into_iter().map(|(n, d)| (n.to_owned(), d)).collect();
        let file = KernelFile::parse(file, text).map_err(GpuError::from)?;
        Ok(Kernel::with(self.world, file, options)?)
    }

    /// The quantities that plans depend on.
    fn shape(&self, tokens: u32, row_bytes: usize) -> Shape {
        let multicast = self.lowering == Lowering::Multimem;
        let (n_pes, form) = (self.world.n_pes(), self.request.form);
        Shape { tokens, row_bytes, n_pes, multicast, form, sums: Sums::Ordinary }
    }

    /// The launch plan of a fused contender.
    fn plan(&self, contender: Contender, tokens: u32, row_bytes: usize) -> Option<Plan> {
        let chosen = |shape: &Shape| self.selector.plan(shape);
        contender.plan(&self.shape(tokens, row_bytes), self.sms, self.request.split, chosen)
    }

    /// Makes the call of a contender.
    fn call<'c, T: Element, O: Element>(
        &'c self,
        contender: Contender,
        t: &'c Tensors<T, O>,
    ) -> Result<(Call<'c>, Option<Plan>)> {
        let (form, tokens) = (self.request.form, i64::from(t.tokens));
        let hidden = self.request.hidden as usize;
        let Tensors { x, sum, residual, weight, out, scale, norm, .. } = t;
        let missing = || BenchError::Request(format!("{} was not prepared", contender.name()));
        if let Some(plan) = self.plan(contender, t.tokens, hidden * size_of::<T>()) {
            return Ok((self.fused(plan, t)?, Some(plan)));
        }
        let behind = ("add_rms_norm", ("allreduce_rms_norm.weft", weft::fused::Fused::TEXT));
        let kernel = self.compile(behind, form.defines(hidden).to_vec())?;
        let grid = move || Grid::of(t.tokens.min(self.sms));
        let call: Call<'c> = match contender {
            Contender::FlashInfer => return Err(missing()),
            Contender::Fused(_) | Contender::Spread(..) | Contender::Auto | Contender::Separate => {
                let collectives = self.collectives.as_ref().ok_or_else(missing)?;
                Box::new(move |s| {
                    collectives.allreduce(x, Some(sum), Reduce::Sum, s)?;
                    Ok(kernel.launch(s, grid(), (tokens, sum, residual, weight, EPS, out, scale, norm))?)
                })
            }
            Contender::Nccl | Contender::NcclSymm => {
                let nccl = self.nccl.as_ref().ok_or_else(missing)?;
                let [x, sum] = self.nccl_tensors(contender, t).ok_or_else(missing)?;
                Box::new(move |s| {
                    nccl.all_reduce(Reduce::Sum, sum, x, s)?;
                    Ok(kernel.launch(s, grid(), (tokens, sum, residual, weight, EPS, out, scale, norm))?)
                })
            }
        };
        Ok((call, None))
    }

    /// The call of a fused kernel, with a workspace of its own.
    fn fused<'c, T: Element, O: Element>(&'c self, plan: Plan, t: &'c Tensors<T, O>) -> Result<Call<'c>> {
        let (n_pes, hidden) = (self.world.n_pes(), self.request.hidden as usize);
        let code = (plan.kernel.kernel(), plan.kernel.file());
        let kernel = self.compile(code, plan.defines(self.request.form, hidden, n_pes))?;
        let size = Workspace::of(&plan, hidden * size_of::<T>(), n_pes);
        let packets = size.packets.iter().map(|n| self.world.zeros::<u64>(*n));
        let packets = packets.collect::<std::result::Result<Vec<_>, _>>()?;
        let epoch = DeviceTensor::<u32>::zeros(size.epoch.max(1), self.world.stream())?;
        let tokens = i64::from(t.tokens);
        Ok(Box::new(move |s| {
            let mut arguments: Vec<&dyn AsArgument> = vec![&tokens, &t.x, &t.residual, &t.weight];
            if plan.kernel.spreads() {
                arguments.push(&t.bias);
            }
            let after: [&dyn AsArgument; 4] = [&EPS, &t.out, &t.scale, &t.norm];
            arguments.extend(after);
            arguments.extend(packets.iter().map(|p| p as &dyn AsArgument));
            arguments.push(match plan.kernel.exchange {
                Exchange::Barriers => &self.barrier,
                Exchange::Packets | Exchange::Spread(_) => &epoch,
            });
            arguments.push(&self.team);
            Ok(kernel.launch(s, Grid::of(plan.ctas), arguments)?)
        }))
    }

    fn nccl_tensors<'t, T: Element, O: Element>(
        &self,
        contender: Contender,
        t: &'t Tensors<T, O>,
    ) -> Option<&'t [nccl::Tensor<T>; 2]> {
        if matches!(contender, Contender::NcclSymm) { t.windows.as_ref() } else { t.plain.as_ref() }
    }

    /// A number from -1 to 1 that the type can represent.
    fn datum(&self, pe: u32, i: usize, round: u32) -> f64 {
        let number = data::datum(pe, i as u64, round, 1 << 12) as f64 / 2048.0 - 1.0;
        rounded(self.request.form.dtype, number)
    }

    fn weight(&self, c: usize) -> f64 {
        rounded(self.request.form.dtype, 1.0 + self.datum(WEIGHT, c, 0) / 4.0)
    }

    fn bias(&self, c: usize) -> f64 {
        self.datum(BIAS, c, 0)
    }

    fn bytes(&self, n: usize, of: impl Fn(usize) -> f64) -> Vec<u8> {
        let mut bytes = Vec::new();
        (0..n).for_each(|i| write_number(self.request.form.dtype, Number::Float(of(i)), &mut bytes));
        bytes
    }

    /// Writes a round's data where the contender reads it. This call is *collective*.
    fn fill<T: Element, O: Element>(
        &self,
        contender: Contender,
        t: &Tensors<T, O>,
        round: u32,
    ) -> Result<()> {
        let (me, stream) = (self.world.my_pe(), self.world.stream());
        let bytes = self.bytes(t.x.len(), |i| self.datum(me, i, round));
        t.x.copy_from_bytes(&bytes, stream)?;
        if let Some([x, _]) = self.nccl_tensors(contender, t) {
            let device = DeviceTensor::<T>::alloc(self.world.device(), t.x.len())?;
            device.copy_from_bytes(&bytes, stream)?;
            x.load(&device, stream)?;
        }
        t.residual.copy_from_bytes(&self.bytes(t.x.len(), |i| self.datum(RESIDUAL, i, round)), stream)?;
        cuda::wait_for(stream)?;
        Ok(self.world.wait_for_all()?)
    }

    /// The time of a call: blocks of calls, which all PEs begin together.
    fn time<T: Element, O: Element>(
        &self,
        contender: Contender,
        t: &Tensors<T, O>,
        call: &Call<'_>,
    ) -> Result<Spread> {
        let (stream, request) = (self.world.stream(), self.request);
        self.fill(contender, t, 0)?;
        let calls = |n: u32, stream: &Stream| (0..n).try_for_each(|_| call(stream));
        calls(request.warmup, stream)?;
        cuda::wait_for(stream)?;
        let block = self.start.block(request.graph, |s| calls(request.iters, s))?;
        // The first launch of a graph takes longer than later ones.
        self.start.time(&block)?;
        let mut times = Vec::new();
        for _ in 0..request.repeats {
            times.push(self.start.time(&block)? / f64::from(request.iters));
        }
        Ok(Spread::over(&gather(self.world, &times)?))
    }

    /// Makes calls with new data each time, and returns what is wrong on the first PE that has a
    /// wrong result. This call is *collective*.
    fn check<T: Element, O: Element>(
        &self,
        contender: Contender,
        t: &Tensors<T, O>,
        call: &Call<'_>,
    ) -> Result<Option<(u32, Wrong)>> {
        let stream = self.world.stream();
        let Form { dtype, out, both, .. } = self.request.form;
        let scales = self.request.form.scales(self.request.hidden as usize);
        let mut wrong: Option<Wrong> = None;
        for round in ROUNDS {
            self.fill(contender, t, round)?;
            call(stream)?;
            cuda::wait_for(stream)?;
            let got = Outputs {
                residual: numbers(dtype, &t.residual.to_bytes(stream)?),
                out: numbers(out, &t.out.to_bytes(stream)?),
                scale: if scales > 0 { numbers(Scalar::F32, &t.scale.to_bytes(stream)?) } else { Vec::new() },
                norm: if both { numbers(dtype, &t.norm.to_bytes(stream)?) } else { Vec::new() },
            };
            let given = Inputs {
                form: self.request.form,
                n_pes: self.world.n_pes(),
                tokens: t.tokens as usize,
                hidden: self.request.hidden as usize,
                eps: EPS.into(),
                scale: SCALE.into(),
                acc: if matches!(contender, Contender::Nccl | Contender::NcclSymm) {
                    dtype
                } else {
                    Scalar::F32
                },
                x: &|pe, i| self.datum(pe, i, round),
                residual: &|i| self.datum(RESIDUAL, i, round),
                weight: &|c| self.weight(c),
                bias: &|c| self.bias(c),
            };
            wrong = wrong.or(given.wrong(&got));
            // The PEs take different times to compare.
            self.world.wait_for_all()?;
        }
        self.first_wrong(wrong.as_ref())
    }

    /// What is wrong on the first PE that has a wrong result, with the number of wrong elements of
    /// all PEs. This call is *collective*.
    fn first_wrong(&self, own: Option<&Wrong>) -> Result<Option<(u32, Wrong)>> {
        let bytes = serde_json::to_vec(&own).unwrap_or_default();
        let all = self.world.all_gather_host(&bytes)?;
        let mut first = None;
        let mut elements = 0;
        for (pe, bytes) in (0u32..).zip(&all) {
            let wrong: Option<Wrong> = serde_json::from_slice(bytes)
                .map_err(|e| BenchError::Request(format!("the findings of a PE cannot be parsed: {e}")))?;
            if let Some(wrong) = wrong {
                elements += wrong.elements;
                first.get_or_insert((pe, wrong));
            }
        }
        Ok(first.map(|(pe, wrong)| (pe, Wrong { elements, ..wrong })))
    }
}

fn rounded(dtype: Scalar, x: f64) -> f64 {
    let mut bytes = Vec::new();
    write_number(dtype, Number::Float(x), &mut bytes);
    read_number(dtype, &bytes).as_f64()
}

fn numbers(dtype: Scalar, bytes: &[u8]) -> Vec<f64> {
    bytes.chunks(dtype.bytes() as usize).map(|b| read_number(dtype, b).as_f64()).collect()
}
