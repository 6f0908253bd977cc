//! The commands `weft bench` and `weft tune` of `gemm-reducescatter`, `gemm-allreduce`,
//! `allgather-gemm` and `gemm-alltoall`.

use super::bench::dtype;
use super::bench::output::{Table, writable_all};
use super::bench::timing::Timing;
use super::run::gpus;
use anyhow::{Context, Result, anyhow};
use clap::Args;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use weft::gemm::fused_tuning::Tables;
use weft::gemm::{Form, Shape};
use weft::runtime::World;
use weft::runtime::job::{ProcessRank, Started, start};
use weft_bench::gemm_comm::{Contender, Report, Request, SHAPES, TuningResult, predict, run, table, tune};

#[derive(Args)]
pub struct GemmComm {
    /// The number of PEs. The default is all GPUs of this host.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pes: Option<u32>,
    /// A list of shapes of the whole product: rows of A, rows of B, and columns of both. K is
    /// divided over the PEs; for allgather-gemm, N is divided; for gemm-alltoall, each PE has a
    /// product of this shape.
    #[arg(long, value_name = "MxNxK,...", value_delimiter = ',', value_parser = shape)]
    shapes: Vec<Shape>,
    /// The number of rows of each PE, which can be 0. M of each shape is their sum. The default is
    /// an equal part for each. Neither gemm-allreduce nor a peer has such rows.
    #[arg(long, value_name = "ROWS,...", value_delimiter = ',', conflicts_with = "predict")]
    rows: Vec<u64>,
    /// The element type of all matrices: bf16 or f16.
    #[arg(long, default_value = "bf16")]
    dtype: String,
    /// The contender: auto (the result that `weft tune` has stored, or else the model's choice),
    /// sequence (warpweft's GEMM and collective), or parameters of the fused kernel, such as
    /// bn=128,stages=5,ctas=2,pace=6000. A plan of gemm-allreduce that begins with decode=1 selects
    /// the kernel for few rows, such as decode=1,bn=32,split=4. Give the option again for each
    /// further plan.
    #[arg(long, value_name = "auto|sequence|NAME=N,...", default_value = "auto")]
    plan: Vec<String>,
    /// The peers to measure in the same run, in addition to the GEMM alone: cublas+ours,
    /// cublas+nccl, torch (PyTorch's fused product of gemm-reducescatter and allgather-gemm), or none.
    /// The default is cublas+ours,cublas+nccl, or none with --rows.
    #[arg(long, value_name = "PEER,...")]
    against: Option<String>,
    /// Do not measure cuBLASLt's GEMM alone.
    #[arg(long)]
    no_product: bool,
    #[command(flatten)]
    timing: Timing,
    /// Compare results with the product in float64, and fail if they differ.
    #[arg(long)]
    check: bool,
    /// Print the times that the model predicts for --pes H200s, without and with the switch, and
    /// measure nothing.
    #[arg(long, conflicts_with_all = ["graph", "check", "json", "plot"])]
    predict: bool,
    /// The file for all measurements as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// The file for an SVG plot of times, relative to that of the GEMM alone.
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
}

fn shape(text: &str) -> Result<Shape, String> {
    text.parse()
}

impl GemmComm {
    pub fn run(&self, form: Form) -> Result<ExitCode> {
        let request = self.request(form)?;
        request.examine()?;
        if self.predict {
            let pes = self.pes.context("--predict needs --pes, the number of GPUs to predict times for")?;
            super::write_out(None, table(&request, pes, &predict(&request, pes)?).as_bytes())?;
            return Ok(ExitCode::SUCCESS);
        }
        writable_all([&self.json, &self.plot])?;
        match start(gpus(self.pes)?)? {
            Started::Done(code) => Ok(code),
            Started::Pe(place) => self.measure(&request, &place),
        }
    }

    /// The requested benchmark.
    fn request(&self, form: Form) -> Result<Request> {
        let ours = |word: &String| Contender::ours(word, form).map_err(|e| anyhow!("--plan {word}: {e}"));
        let mut contenders = self.plan.iter().map(ours).collect::<Result<Vec<_>>>()?;
        if !self.no_product {
            contenders.push(Contender::Product);
        }
        let default = if self.rows.is_empty() { "cublas+ours,cublas+nccl" } else { "none" };
        let against = self.against.as_deref().unwrap_or(default);
        if against != "none" {
            contenders.extend(Contender::peers(against).map_err(|e| anyhow!("--against {against}: {e}"))?);
        }
        Ok(Request {
            form,
            shapes: self.measured(),
            rows: self.rows.clone(),
            dtype: dtype(&self.dtype)?,
            contenders,
            iters: self.timing.iters,
            warmup: self.timing.warmup,
            repeats: self.timing.repeats,
            graph: self.timing.graph,
            check: self.check,
        })
    }

    /// The shapes to measure. Those of the default have as many rows as all PEs together.
    fn measured(&self) -> Vec<Shape> {
        let given = if self.shapes.is_empty() { SHAPES.to_vec() } else { self.shapes.clone() };
        if self.rows.is_empty() || !self.shapes.is_empty() {
            return given;
        }
        let m = self.rows.iter().fold(0u64, |sum, rows| sum.saturating_add(*rows));
        let mut all: Vec<_> = given.into_iter().map(|shape| Shape { m, ..shape }).collect();
        all.dedup();
        all
    }

    /// Measures as one PE of a job. PE 0 reports.
    fn measure(&self, request: &Request, place: &ProcessRank) -> Result<ExitCode> {
        super::bench::measured(place, |world| Ok(self.report(request, world)?.first_wrong().is_none()))
    }

    fn report(&self, request: &Request, world: &World) -> Result<Report> {
        let mut table = Table::new(world, request.shapes.len());
        let outcome =
            run(world, request, &mut |report, rows| table.add(|| report.head(), || Report::lines(rows)));
        table.end("")?;
        let report = outcome?;
        let json = Box::new(|| Ok(serde_json::to_string_pretty(&report)?));
        let plot = Box::new(|| Ok(report.plot()?));
        table.write(&[(&self.json, json), (&self.plot, plot)], report.first_wrong())?;
        Ok(report)
    }
}

#[derive(Args)]
pub struct TuneGemmComm {
    /// The number of PEs. The default is all GPUs of this host. A table applies to this number of
    /// PEs.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pes: Option<u32>,
    /// A list of shapes of the whole product: rows of A, rows of B, and columns of both. K is
    /// divided over the PEs; for allgather-gemm, N is divided; for gemm-alltoall, each PE has a
    /// product of this shape.
    #[arg(long, value_name = "MxNxK,...", value_delimiter = ',', value_parser = shape)]
    shapes: Vec<Shape>,
    /// The element type of all matrices: bf16 or f16.
    #[arg(long, default_value = "bf16")]
    dtype: String,
    /// The number of plans to try for each shape, starting with the fastest ones according to the
    /// model.
    #[arg(long, default_value = "16", value_name = "PLANS", value_parser = clap::value_parser!(u16).range(1..=1000))]
    budget: u16,
    /// The file for the results, to store or to show. The default is WEFT_GEMM_COMM_TUNING, or
    /// gemm_comm.json in your data folder.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Print the stored results without measuring.
    #[arg(long)]
    show: bool,
}

impl TuneGemmComm {
    pub fn run(&self, form: Form) -> Result<ExitCode> {
        let file = self.out.clone().or_else(Tables::path).context(
            "there is no file to store in: give --out FILE (WEFT_GEMM_COMM_TUNING is off, or neither XDG_DATA_HOME nor \
             HOME is set)",
        )?;
        // Existing entries stay in the file, so it must be readable.
        let tables = read(&file)?;
        if self.show {
            let mut text = format!("# {}\n", file.display());
            tables.tables.iter().for_each(|table| text.push_str(&table.text()));
            super::write_out(None, text.as_bytes())?;
            return Ok(ExitCode::SUCCESS);
        }
        let request = self.request(form)?;
        request.examine()?;
        match start(gpus(self.pes)?)? {
            Started::Done(code) => Ok(code),
            Started::Pe(place) => super::bench::measured(&place, |world| {
                self.measure(&request, world, &file)?;
                Ok(true)
            }),
        }
    }

    fn request(&self, form: Form) -> Result<Request> {
        let shapes = if self.shapes.is_empty() { SHAPES.to_vec() } else { self.shapes.clone() };
        let dtype = dtype(&self.dtype)?;
        let (contenders, graph, check) = (Vec::new(), true, true);
        let rows = Vec::new();
        Ok(Request { form, shapes, rows, dtype, contenders, iters: 10, warmup: 3, repeats: 9, graph, check })
    }

    /// Measures as one PE of a job. PE 0 reports and stores.
    fn measure(&self, request: &Request, world: &World, file: &Path) -> Result<()> {
        let first = world.my_pe() == 0;
        let table = tune(world, request, self.budget.into(), &mut |found| {
            if first { std::io::stdout().lock().write_all(lines(found).as_bytes()) } else { Ok(()) }
        })?;
        if first {
            let setting = table.setting.clone();
            let mut tables = read(file)?;
            tables.add(table);
            if let Some(folder) = file.parent().filter(|f| !f.as_os_str().is_empty()) {
                std::fs::create_dir_all(folder)
                    .with_context(|| format!("cannot write {}", file.display()))?;
            }
            tables.write(file)?;
            super::write_out(
                None,
                format!("# the table for {setting} was stored in {}\n", file.display()).as_bytes(),
            )?;
        }
        Ok(())
    }
}

fn read(file: &Path) -> Result<Tables> {
    Ok(if file.exists() { Tables::read(file)? } else { Tables::default() })
}

/// All measured times of a shape, and the stored plan.
fn lines(found: &TuningResult) -> String {
    let TuningResult { shape, entry, rows } = found;
    format!("{}# {shape}: {:.2} us, {}\n", Report::lines(rows), entry.us, entry.choice)
}
