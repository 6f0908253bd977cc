//! The commands `weft bench gemm` and `weft tune gemm`.

use super::bench::dtype;
use super::bench::output::{writable, writable_all, write};
use super::{KernelPath, defines};
use anyhow::{Context, Result, anyhow};
use clap::Args;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use weft::gemm::tuning::{Entry, Table, Tables};
use weft::gemm::{Major, Problem, Scales, Shape};
use weft::runtime::{DType, Device};
use weft_bench::gemm::{
    Contender, Own, Report, Request, SHAPES, TAILS, Tune, TuningResult, problems, run, scales, tune,
};

/// The options that choose matrix products.
#[derive(Args)]
pub struct Products {
    /// A list of shapes: rows of A, rows of B, and columns of both. The default is seven shapes
    /// from 1024x8192x4096 to 8192x8192x8192.
    #[arg(long, value_name = "MxNxK,...", value_delimiter = ',', value_parser = shape)]
    shapes: Vec<Shape>,
    /// Add the shape 4001x8184x4104, which has partial tiles in every mode.
    #[arg(long)]
    tails: bool,
    /// A list of element types of A and B: bf16, f16, f32 (as tf32), e4m3, e5m2.
    #[arg(long, default_value = "bf16", value_delimiter = ',')]
    dtype: Vec<String>,
    /// The element type of D. The default is that of A and B, and bf16 for types of 8 bits.
    #[arg(long, value_name = "TYPE")]
    out_dtype: Option<String>,
    /// Use a B with contiguous columns, (n, k):(1, n), instead of contiguous rows.
    #[arg(long)]
    column_major_b: bool,
    /// The number of the GPU.
    #[arg(long, default_value = "0", value_name = "NUMBER")]
    device: u32,
}

fn shape(text: &str) -> Result<Shape, String> {
    text.parse()
}

impl Products {
    /// The problems; `default` has the shapes if the options give none.
    pub fn problems(&self, default: &[Shape]) -> Result<Vec<Problem>> {
        let mut shapes = if self.shapes.is_empty() { default.to_vec() } else { self.shapes.clone() };
        if self.tails {
            shapes.push(TAILS);
        }
        let out = |name: &String| {
            let known = "f32, f16, bf16, e4m3 or e5m2";
            DType::parse(name).with_context(|| format!("--out-dtype {name}: expected {known}"))
        };
        let out = self.out_dtype.as_ref().map(out).transpose()?;
        let b = if self.column_major_b { Major::Column } else { Major::Row };
        let dtypes = self.dtype.iter().map(|name| dtype(name)).collect::<Result<Vec<DType>>>()?;
        Ok(dtypes.into_iter().flat_map(|dtype| problems(&shapes, dtype, out, b)).collect())
    }

    /// Opens the GPU that the options name.
    pub fn device(&self) -> Result<Device> {
        Ok(Device::open(self.device)?)
    }
}

#[derive(Args)]
pub struct BenchGemm {
    #[command(flatten)]
    products: Products,
    /// The scales by which operands of 8 bits are multiplied: one for each matrix, one for each row of
    /// A and of B, or one for each 1 x 128 elements of A and each 128 x 128 of B.
    #[arg(long, default_value = "none", value_name = "none|matrices|rows|blocks", value_parser = scales)]
    scales: Scales,
    /// A plan of warpweft: auto (the result of `weft tune gemm`, or else the model's choice),
    /// model, or parameters such as bm=128,bn=256,bk=64,stages=4. Give the option again for each
    /// further plan.
    #[arg(long, value_name = "auto|model|NAME=N,...", default_value = "auto")]
    plan: Vec<String>,
    /// A kernel of your own to measure, as FILE or FILE:KERNEL. It has the parameters m, n, k, a, b
    /// and d, like examples/gemm.weft, and with --scales also scale_a and scale_b, like
    /// examples/gemm_fp8.weft.
    #[arg(long, value_name = "FILE")]
    kernel: Vec<KernelPath>,
    /// A compile-time parameter of such a kernel: -D BN=128
    #[arg(short = 'D', value_name = "NAME=VALUE")]
    define: Vec<String>,
    /// Measure cuBLASLt in the same run, with the fastest of the algorithms that its heuristic
    /// returns. With scales of rows or blocks, it is also measured with one scale for each matrix.
    #[arg(long, value_name = "cublas")]
    against: Option<String>,
    /// The number of algorithms of cuBLASLt's heuristic to try.
    #[arg(long, default_value = "8", value_parser = clap::value_parser!(u32).range(1..=100))]
    algorithms: u32,
    /// The number of back-to-back calls in a timed block. Long calls get fewer.
    #[arg(long, default_value = "20", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    iters: u32,
    /// The number of calls before the first block.
    #[arg(long, default_value = "5", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    warmup: u32,
    /// The number of blocks of each contender. Each round runs one block of each contender, in a
    /// new random order.
    #[arg(long, default_value = "15", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    repeats: u32,
    /// Launch the calls of a block one by one instead of as a CUDA graph.
    #[arg(long)]
    no_graph: bool,
    /// Let calls alternate between several sets of operands, which together have three times the
    /// size of the L2 cache.
    #[arg(long)]
    cold: bool,
    /// Do not check results.
    #[arg(long)]
    no_check: bool,
    /// The file for all measurements as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// The file for all measurements as CSV, with a line for each row.
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
}

impl BenchGemm {
    pub fn run(&self) -> Result<ExitCode> {
        let request = self.request()?;
        request.examine()?;
        writable_all([&self.json, &self.csv])?;
        let device = self.products.device()?;
        let mut begun = false;
        let outcome = run(&device, &request, &mut |report, rows| {
            let text = if begun { Report::lines(rows) } else { report.head() };
            begun = true;
            let mut out = std::io::stdout().lock();
            out.write_all(text.as_bytes())?;
            out.flush()
        });
        let report = Report { command: std::env::args().collect(), ..outcome? };
        super::write_out(None, report.foot().as_bytes())?;
        let json = Box::new(|| Ok(report.json()?));
        let csv = Box::new(|| Ok(report.csv()));
        let wrong = report.first_wrong();
        let right = wrong.is_none();
        write(&[(&self.json, json), (&self.csv, csv)], wrong)?;
        Ok(if right { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    /// The requested benchmark.
    fn request(&self) -> Result<Request> {
        let mut request = Request::new(self.products.problems(&SHAPES)?);
        let ours =
            self.plan.iter().map(|word| Contender::ours(word).map_err(|e| anyhow!("--plan {word}: {e}")));
        request.contenders = ours.collect::<Result<_>>()?;
        for path in &self.kernel {
            let name = path.path.file_name().unwrap_or_default().to_string_lossy();
            let own = Own::new(&name, path.parse(None)?, path.kernel.as_deref(), defines(&self.define)?);
            let own = own.map_err(|e| anyhow!("--kernel {}: {e}", path.path.display()))?;
            request.contenders.push(Contender::Own(own));
        }
        match self.against.as_deref() {
            None => {}
            Some("cublas") => {
                request.contenders.push(Contender::Cublas);
                let finer = matches!(self.scales, Scales::Rows | Scales::Blocks);
                request.contenders.extend(finer.then_some(Contender::CublasMatrices));
            }
            Some(other) => return Err(anyhow!("--against {other}: expected cublas")),
        }
        (request.iters, request.warmup, request.repeats) = (self.iters, self.warmup, self.repeats);
        (request.graph, request.cold, request.check) = (!self.no_graph, self.cold, !self.no_check);
        (request.algorithms, request.scales) = (self.algorithms, self.scales);
        Ok(request)
    }
}

#[derive(Args)]
pub struct TuneGemm {
    #[command(flatten)]
    products: Products,
    /// The number of plans to try for each shape, starting with the fastest ones according to the
    /// model.
    #[arg(long, default_value = "24", value_name = "PLANS", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    budget: u32,
    /// The file for the results, to store or to show. The default is WEFT_GEMM_TUNING, or gemm.json
    /// in your data folder.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Print the stored results without measuring.
    #[arg(long)]
    show: bool,
}

impl TuneGemm {
    pub fn run(&self) -> Result<ExitCode> {
        let file = self.out.clone().or_else(Tables::path).context(
            "there is no file for the table: give --out FILE (WEFT_GEMM_TUNING is off, or neither XDG_DATA_HOME nor HOME is set)",
        )?;
        // Existing entries stay in the file, so it must be readable.
        let mut tables = if file.exists() { Tables::read(&file)? } else { Tables::new() };
        if self.show {
            let mut text = format!("# {}\n", file.display());
            match tables.tables.is_empty() {
                true => text.push_str("# there is no stored table: `weft tune gemm` measures one\n"),
                false => tables.tables.iter().for_each(|table| text.push_str(&table.text())),
            }
            super::write_out(None, text.as_bytes())?;
            return Ok(ExitCode::SUCCESS);
        }
        let what = Tune { budget: self.budget, ..Tune::new(self.products.problems(&SHAPES)?) };
        what.examine()?;
        if let Some(folder) = file.parent().filter(|f| !f.as_os_str().is_empty()) {
            std::fs::create_dir_all(folder).with_context(|| format!("cannot write {}", file.display()))?;
        }
        writable(&file)?;
        let device = self.products.device()?;
        super::write_out(None, head().as_bytes())?;
        let table = tune(&device, &what, &mut |found| {
            let mut out = std::io::stdout().lock();
            out.write_all(line(found).as_bytes())?;
            out.flush()
        })?;
        let setting = table.setting.clone();
        tables.add(Table { command: std::env::args().collect(), ..table });
        tables.write(&file)?;
        super::write_out(
            None,
            format!("# the table for {setting} was stored in {}\n", file.display()).as_bytes(),
        )?;
        Ok(ExitCode::SUCCESS)
    }
}

fn head() -> String {
    format!("# {:>42}{:>10}{:>9}{:>10}{:>7}  plan\n", "problem", "us", "TFLOP/s", "model us", "plans")
}

fn line(found: &TuningResult) -> String {
    let TuningResult { entry: Entry { problem, plan, us }, model, plans, left_out } = found;
    let tflops = problem.shape.flops() / us / 1e6;
    let mut text =
        format!("{:>44}{us:>10.2}{tflops:>9.1}{:>10.2}{plans:>7}  {plan}\n", problem.to_string(), model.1);
    left_out.iter().for_each(|why| text.push_str(&format!("# left out: {why}\n")));
    text
}
