//! `weft bench gemm-reducescatter`, `gemm-allreduce` and `allgather-gemm`

use super::bench::dtype;
use super::bench::output::{Table, writable_all};
use super::run::gpus;
use crate::bench::gemm_comm::{Contender, Report, Request, SHAPES, run};
use crate::gemm::{Form, Shape};
use crate::runtime::World;
use crate::runtime::job::{Place, Started, start};
use anyhow::{Result, anyhow};
use clap::Args;
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Args)]
pub struct GemmComm {
    /// The number of PEs. The default is all GPUs of this host.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pes: Option<u32>,
    /// A list of shapes of the product as it would be on one PE: rows of A, rows of B, and columns
    /// of both. K is shared out to the PEs, and for allgather-gemm N.
    #[arg(long, value_name = "MxNxK,...", value_delimiter = ',', value_parser = shape)]
    shapes: Vec<Shape>,
    /// The element type of all matrices: bf16 or f16.
    #[arg(long, default_value = "bf16")]
    dtype: String,
    /// The parameters of our kernel, such as bn=128,stages=5,ctas=2,pace=6000. A plan of
    /// gemm-allreduce that begins with decode=1 selects the kernel for few rows, such as
    /// decode=1,bn=32,split=4. Give the option again for each further plan.
    #[arg(long, value_name = "NAME=N,...", default_value = "")]
    plan: Vec<String>,
    /// The contenders in the same run beside the product alone: cublas+ours, cublas+nccl, or none.
    #[arg(long, value_name = "PEER,...", default_value = "cublas+ours,cublas+nccl")]
    against: String,
    /// Do not measure cuBLASLt's product alone.
    #[arg(long)]
    no_product: bool,
    /// The calls back to back in a timed block. Long calls get fewer.
    #[arg(long, default_value = "10", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    iters: u32,
    /// The number of calls before the first block.
    #[arg(long, default_value = "3", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    warmup: u32,
    /// The number of blocks of each contender. Each round has one of each, in a new random order.
    #[arg(long, default_value = "9", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    repeats: u32,
    /// Capture a block into a CUDA graph and replay it.
    #[arg(long)]
    graph: bool,
    /// Compare results with the product in float64, and fail if they differ.
    #[arg(long)]
    check: bool,
    /// The file for all measurements as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

fn shape(text: &str) -> Result<Shape, String> {
    text.parse()
}

impl GemmComm {
    pub fn run(&self, form: Form) -> Result<ExitCode> {
        let request = self.request(form)?;
        request.examine()?;
        writable_all([&self.json])?;
        match start(gpus(self.pes)?)? {
            Started::Done(code) => Ok(code),
            Started::Pe(place) => self.measure(&request, &place),
        }
    }

    /// What is asked for.
    fn request(&self, form: Form) -> Result<Request> {
        let ours = |text: &String| Contender::ours(text, form).map_err(|e| anyhow!("--plan {text}: {e}"));
        let mut contenders: Vec<Contender> = Vec::new();
        for text in &self.plan {
            contenders.push(ours(text)?);
        }
        if !self.no_product {
            contenders.push(Contender::Product);
        }
        if self.against != "none" {
            let peers =
                Contender::peers(&self.against).map_err(|e| anyhow!("--against {}: {e}", self.against))?;
            contenders.extend(peers);
        }
        Ok(Request {
            form,
            shapes: if self.shapes.is_empty() { SHAPES.to_vec() } else { self.shapes.clone() },
            dtype: dtype(&self.dtype)?,
            contenders,
            iters: self.iters,
            warmup: self.warmup,
            repeats: self.repeats,
            graph: self.graph,
            check: self.check,
        })
    }

    /// One PE of a job. PE 0 reports.
    fn measure(&self, request: &Request, place: &Place) -> Result<ExitCode> {
        super::bench::measured(place, |world| Ok(self.report(request, world)?.first_wrong().is_none()))
    }

    fn report(&self, request: &Request, world: &World) -> Result<Report> {
        let mut table = Table::new(world, request.shapes.len());
        let outcome =
            run(world, request, &mut |report, rows| table.add(|| report.head(), || Report::lines(rows)));
        table.end("")?;
        let report = outcome?;
        let json = Box::new(|| Ok(serde_json::to_string_pretty(&report)?));
        table.write(&[(&self.json, json)], report.first_wrong())?;
        Ok(report)
    }
}
